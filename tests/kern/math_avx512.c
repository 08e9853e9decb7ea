/* math_vec.h at tier avx512. */
#include "cpu/kern/x86/vec_avx512.h"

#include "math_body.h"

const struct kern_math kern_math_avx512 = {.tier = OZ_TIER_AVX512,
                                           .exp = exp_row,
                                           .sigmoid = sigmoid_row,
                                           .silu = silu_row,
                                           .gelu_tanh = gelu_tanh_row};
