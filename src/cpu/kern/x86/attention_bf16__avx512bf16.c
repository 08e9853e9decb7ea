/* attention in bf16 on AVX512-BF16, with the products of linear: queries, keys, weights and values in
 * bf16, sums and softmax in f32. f32 inputs are rounded as they are packed. */
#include "cpu/kern/x86/vec_avx512.h"

#define OZ_ATTENTION_BF16 1
#include "cpu/kern/x86/attention_vec.h"

OZ_ATTENTION_ENTRY(oz_kernel_attention_bf16__avx512bf16, "oz_attention_bf16__avx512bf16_12x32",
                   OZ_TIER_AVX512BF16, "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)",
                   .linear = &oz_kernel_linear_bf16__avx512bf16)
