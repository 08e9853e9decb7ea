/*
 * cpu/kern/x86/tile_amx.h: the micro-kernel of bf16 products with AMX (cpu/gemm.h), which linear, conv
 * and attention share: 32 rows by 32 columns in four tiles of sums. Tiles of A are 16 rows x 32 of K
 * straight from the rows, tiles of B are 16 pairs of K x 16 columns straight from the packed panel
 * [k / 2][32][2].
 *
 * Order of a sum (Intel SDM, TDPBF16PS): K in steps of 32; in a step even and odd k are summed apart,
 * each in order from zero, then even + odd, then sum + that; all rounded to nearest even. Denormal
 * inputs count as zero and denormal results become zero.
 */
#ifndef OZ_CPU_KERN_X86_TILE_AMX_H
#define OZ_CPU_KERN_X86_TILE_AMX_H

#include <stdbool.h>

#include "cpu/kern/x86/amx.h"

#define TILE_MR 32
#define TILE_NR 32
#define TILE_SIDE 16                   /* rows and columns of a tile of sums */
#define TILE_DEPTH 32                  /* of K in a tile of A */
#define TILE_B_BYTES (2 * 2 * TILE_NR) /* one pair of K of a panel */

/* Tiles 0 and 1 sum rows 0 to 15, tiles 2 and 3 rows 16 to 31; A is in 4 and 5, B in 6 and 7. */
static void tile_run(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                     int64_t ldc, bool first)
{
    const uint16_t *a0 = a;
    const uint16_t *a1 = a0 + TILE_SIDE * lda;
    const uint8_t *panel = b;
    float *c1 = c + TILE_SIDE * ldc;
    const int64_t a_step = lda * (int64_t)sizeof *a0;
    const int64_t c_step = ldc * (int64_t)sizeof *c;
    const bool both = rows > TILE_SIDE;
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    if (!first) {
        AMX_LOAD(0, c, c_step);
        AMX_LOAD(1, c + TILE_SIDE, c_step);
    }
    if (!first && both) {
        AMX_LOAD(2, c1, c_step);
        AMX_LOAD(3, c1 + TILE_SIDE, c_step);
    }
    for (int64_t i = 0; i < k; i += TILE_DEPTH, panel += TILE_DEPTH / 2 * TILE_B_BYTES) {
        AMX_LOAD(6, panel, TILE_B_BYTES);
        AMX_LOAD(4, a0 + i, a_step);
        AMX_LOAD(7, panel + TILE_B_BYTES / 2, TILE_B_BYTES);
        AMX_DP_BF16(0, 4, 6);
        AMX_DP_BF16(1, 4, 7);
        if (both) {
            AMX_LOAD(5, a1 + i, a_step);
            AMX_DP_BF16(2, 5, 6);
            AMX_DP_BF16(3, 5, 7);
        }
    }
    AMX_STORE(0, c, c_step);
    AMX_STORE(1, c + TILE_SIDE, c_step);
    if (both) {
        AMX_STORE(2, c1, c_step);
        AMX_STORE(3, c1 + TILE_SIDE, c_step);
    }
}

#endif
