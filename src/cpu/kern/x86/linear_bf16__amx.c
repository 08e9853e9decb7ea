/* linear and conv of bf16 inputs and bf16 weights with AMX; the order of sums is tile_amx.h's. */
#if defined(__AVX512F__)
#include "cpu/kern/x86/vec_avx512.h"
#else /* the tests' emulation */
#include "cpu/kern/x86/vec_avx2.h"
#endif

#include "cpu/kern/x86/linear_entry.h"
#include "cpu/kern/x86/store_vec.h"
#include "cpu/kern/x86/strip_amx.h"
#include "cpu/kern/x86/tile_amx.h"

static const struct oz_tile_kernel tiles = STRIP_KERNEL(TILE_DEPTH, 2, strip_run_bf16, amx_begin);

static const struct oz_gemm_kernel micro = {
    .mr = TILE_MR,
    .nr = TILE_NR,
    .kr = 2,
    .k_multiple = TILE_DEPTH,
    .row_multiple = TILE_SIDE,
    .a_dtype = OZ_DTYPE_BF16,
    .k_block = 512,
    .row_block = 256,
    .run = tile_run,
    .store = v_store_tile,
    .convert = v_to_bf16_row,
    .begin = amx_begin,
    .end = amx_end,
    .tiles = &tiles,
};

OZ_LINEAR_ENTRY(oz_kernel_linear_bf16__amx, "oz_linear_bf16_bf16_f32__amx_32x32", OZ_TIER_AMX,
                "Intel Xeon (Emerald Rapids)", micro)
OZ_CONV_ENTRY(oz_kernel_conv_bf16__amx, "oz_conv_bf16_bf16_f32__amx_32x32", OZ_TIER_AMX,
              "Intel Xeon (Emerald Rapids)", micro)
