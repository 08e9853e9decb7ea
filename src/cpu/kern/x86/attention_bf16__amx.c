/*
 * attention in bf16 with AMX: queries, keys, weights and values in bf16, sums and softmax in f32. f32
 * inputs are rounded as they are packed. The order of sums is tile_amx.h's, from the first feature (or
 * key) on.
 */
#if defined(__AVX512F__)
#include "cpu/kern/x86/vec_avx512.h"
#else /* the tests' emulation */
#include "cpu/kern/x86/vec_avx2.h"
#endif

#define OZ_ATTENTION_BF16 1
#define ATT_NR ((int64_t)32)
#include "cpu/kern/x86/attention_vec.h"
#include "cpu/kern/x86/tile_amx.h"

static const struct oz_gemm_kernel micro = {.mr = TILE_MR,
                                            .nr = TILE_NR,
                                            .kr = 2,
                                            .k_multiple = TILE_DEPTH,
                                            .row_multiple = TILE_SIDE,
                                            .a_dtype = OZ_DTYPE_BF16,
                                            .k_block = OZ_ATTENTION_MAX_DIM,
                                            .run = tile_run,
                                            .begin = amx_begin,
                                            .end = amx_end};

OZ_ATTENTION_ENTRY(oz_kernel_attention_bf16__amx, "oz_attention_bf16__amx_32x32", OZ_TIER_AMX,
                   "Intel Xeon (Emerald Rapids)", .gemm = &micro)
