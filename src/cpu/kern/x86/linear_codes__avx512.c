/* linear of quantized weights in f32 on AVX-512; see q_f32_vec.h. */
#include "cpu/kern/x86/vec_avx512.h"

#define TILE_ANY_ONLY 1

#include "cpu/kern/x86/tile_vec.h"

#include "cpu/kern/x86/q_f32_vec.h"

static const struct oz_qgemm_kernel micro = QF_KERNEL(128);

OZ_Q_ENTRY(oz_kernel_linear_codes__avx512, "oz_linear_f32_codes_f32__avx512_12x32", OZ_TIER_AVX512,
           "AMD EPYC (Zen 4)", micro)
