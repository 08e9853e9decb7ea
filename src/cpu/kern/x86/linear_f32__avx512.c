/* linear and conv in f32 on AVX-512: 12 rows by 32 columns. */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/linear_entry.h"
#include "cpu/kern/x86/store_vec.h"
#include "cpu/kern/x86/tile_vec.h"

static const struct oz_gemm_kernel micro = {
    .mr = TILE_MR,
    .nr = TILE_NR,
    .kr = 1,
    .k_multiple = 1,
    .row_multiple = 1,
    .a_dtype = OZ_DTYPE_F32,
    .k_block = 256,
    .row_block = 192,
    .run = tile_run,
    .run_bf16 = tile_run_bf16,
    .few_panels = TILE_FEW_PANELS,
    .run_few = tile_run_few,
    .decode = v_decode_bf16,
    .store = v_store_tile,
};

OZ_LINEAR_ENTRY(oz_kernel_linear_f32__avx512, "oz_linear_f32_any_f32__avx512_12x32", OZ_TIER_AVX512,
                "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)", micro)
OZ_CONV_ENTRY(oz_kernel_conv_f32__avx512, "oz_conv_f32_any_f32__avx512_12x32", OZ_TIER_AVX512,
              "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)", micro)
