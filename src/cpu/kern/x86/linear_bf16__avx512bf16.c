/*
 * linear and conv of bf16 inputs and bf16 weights with AVX512-BF16: 12 rows by 32 columns, 24 sums.
 * One 32-bit broadcast of two neighbours of K feeds two VDPBF16PS.
 *
 * Order of a sum: for k = 0, 2, 4 ... the product of k + 1 is added first, then that of k (Intel SDM,
 * VDPBF16PS), each with a rounding to nearest even. Denormal inputs count as zero and denormal results
 * become zero, whatever MXCSR says.
 */
#include "cpu/kern/x86/vec_avx512.h"

#define TILE_PAIRS 1

#include "cpu/kern/x86/linear_entry.h"
#include "cpu/kern/x86/store_vec.h"
#include "cpu/kern/x86/tile_vec.h"

static const struct oz_gemm_kernel micro = {
    .mr = TILE_MR,
    .nr = TILE_NR,
    .kr = 2,
    .k_multiple = 2,
    .row_multiple = 1,
    .a_dtype = OZ_DTYPE_BF16,
    .k_block = 320,
    .row_block = 192,
    .run = tile_run,
    .few_panels = TILE_FEW_PANELS,
    .run_few = tile_run_few,
    .store = v_store_tile,
    .convert = v_to_bf16_row,
};

OZ_LINEAR_ENTRY(oz_kernel_linear_bf16__avx512bf16, "oz_linear_bf16_bf16_f32__avx512bf16_12x32",
                OZ_TIER_AVX512BF16, "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)", micro)
OZ_CONV_ENTRY(oz_kernel_conv_bf16__avx512bf16, "oz_conv_bf16_bf16_f32__avx512bf16_12x32",
              OZ_TIER_AVX512BF16, "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 4)", micro)
