/* attention in f32 on AVX-512. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/attention_vec.h"

typedef float tile_element;
typedef vf vx;
#define TILE_KR 1
#define TILE_LOAD(at) v_load(b + (at))
#define TILE_BROADCAST(at) v_set(a[at])
#define TILE_MULTIPLY(c, x, y) v_fma(x, y, c)
#include "cpu/kern/x86/tile_avx512.inc"

static const struct oz_gemm_kernel micro = {.mr = TILE_MR,
                                            .nr = TILE_NR,
                                            .kr = TILE_KR,
                                            .k_multiple = 1,
                                            .a_dtype = OZ_DTYPE_F32,
                                            .k_block = 256,
                                            .run = tile_run};

OZ_ATTENTION_ENTRY(oz_kernel_attention_f32__avx512, "oz_attention_f32__avx512_12x32",
                   OZ_TIER_AVX512, NULL, .gemm = &micro)
