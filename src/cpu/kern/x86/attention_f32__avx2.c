/* attention in f32 on AVX2, with the products of linear. */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/attention_vec.h"

OZ_ATTENTION_ENTRY(oz_kernel_attention_f32__avx2, "oz_attention_f32__avx2_6x16", OZ_TIER_AVX2,
                   "AMD EPYC (Zen 3)", .linear = &oz_kernel_linear_f32__avx2)
