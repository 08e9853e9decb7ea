/* tests/kern/math_vec.h: the functions of cpu/kern/x86/math_vec.h, as compiled for each tier. */
#ifndef OZ_TESTS_KERN_MATH_VEC_H
#define OZ_TESTS_KERN_MATH_VEC_H

#include <stdint.h>

#include "cpu/tier.h"

/* Each in place over count elements. */
struct kern_math {
    enum oz_tier tier;
    void (*exp)(float *x, int64_t count);
    void (*sigmoid)(float *x, int64_t count);
    void (*silu)(float *x, int64_t count);
    void (*gelu_tanh)(float *x, int64_t count);
};

extern const struct kern_math kern_math_avx2;
extern const struct kern_math kern_math_avx512;

#endif
