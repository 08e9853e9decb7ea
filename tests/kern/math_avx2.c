/* math_vec.h at tier avx2. */
#include "cpu/kern/x86/vec_avx2.h"

#include "math_body.h"

const struct kern_math kern_math_avx2 = {.tier = OZ_TIER_AVX2,
                                         .exp = exp_row,
                                         .sigmoid = sigmoid_row,
                                         .silu = silu_row,
                                         .gelu_tanh = gelu_tanh_row};
