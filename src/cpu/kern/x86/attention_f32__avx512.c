/* attention in f32 on AVX-512, with the products of linear. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/attention_vec.h"

OZ_ATTENTION_ENTRY(oz_kernel_attention_f32__avx512, "oz_attention_f32__avx512_12x32",
                   OZ_TIER_AVX512, "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
                   .linear = &oz_kernel_linear_f32__avx512)
