/* linear of quantized weights in f32 on AVX2; see q_f32_vec.h. */
#include "cpu/kern/x86/vec_avx2.h"

#define TILE_ANY_ONLY 1

#include "cpu/kern/x86/tile_vec.h"

#include "cpu/kern/x86/q_f32_vec.h"

static const struct oz_qgemm_kernel micro = QF_KERNEL(128);

OZ_Q_ENTRY(oz_kernel_linear_codes__avx2, "oz_linear_f32_codes_f32__avx2_6x16", OZ_TIER_AVX2,
           "AMD EPYC (Zen 4), AMD EPYC (Zen 3)", micro)
