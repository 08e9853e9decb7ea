/* attention in f32 on AVX-512. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/attention_vec.h"
#include "cpu/kern/x86/tile_avx512.h"

static const struct oz_gemm_kernel micro = {.mr = TILE_MR,
                                            .nr = TILE_NR,
                                            .kr = TILE_KR,
                                            .k_multiple = 1,
                                            .a_dtype = OZ_DTYPE_F32,
                                            .k_block = 256,
                                            .run = tile_run};

OZ_ATTENTION_ENTRY(oz_kernel_attention_f32__avx512, "oz_attention_f32__avx512_12x32",
                   OZ_TIER_AVX512, "Intel Xeon (Emerald Rapids)", .gemm = &micro)
