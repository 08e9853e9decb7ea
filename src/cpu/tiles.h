/*
 * cpu/tiles.h: large products over tiles of 16 rows x 64 bytes (AMX). Rows are brought into tiles once,
 * for all threads; weights are read from panels as they lie, or decoded block by block.
 *
 * A strip is 32 rows, a panel 32 columns of the weight, a step what one tile holds of K: 32 of bf16, 64 of
 * s8; a strip and a panel take 2 KiB of it each. K is walked in blocks: a panel's block stays in the first
 * cache while all strips of a task pass, the task's rows of the block and its sums stay in the second, and
 * what comes next from farther away is asked for between the products. Where the rows of a task stay in
 * the second cache over all of K, panels are walked outside and blocks inside: then weights are read
 * in the order in which they lie.
 *
 * Order of sums: as cpu/gemm.h, every element has one accumulator and K runs from first to last, or from
 * group to group: neither blocks nor tasks change it.
 */
#ifndef OZ_CPU_TILES_H
#define OZ_CPU_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dev/ops.h"

#define OZ_TILE_SIDE 16
#define OZ_TILE_BYTES 1024
#define OZ_TILE_STRIP 32  /* rows of a strip, columns of a panel */
#define OZ_TILE_STEP 2048 /* bytes of a step of a strip, and of a panel */
#define OZ_TILE_SUMS 1024 /* of a strip and a panel: [32][32] */
#define OZ_TILE_PANELS 4  /* most panels that share the first cache */

/* Lines that are asked for while a product runs, so many in each step. NULL: none. */
struct oz_tile_ask {
    const uint8_t *from;
    int64_t lines;
};

/* One strip by one panel's block. Rows behind `rows` are multiplied, too, as far as their tile goes. */
struct oz_tile_call {
    int64_t rows, steps;
    const uint8_t *a; /* [steps][tiles][16][64 bytes]: a_step bytes from step to step */
    int64_t a_step;
    const uint8_t *b;       /* [steps][16][32 columns][4 bytes] */
    float *c;               /* [32][32], f32 or s32 */
    bool first;             /* c is written, not added to */
    struct oz_tile_ask far; /* of weights, into the second cache */
    struct oz_tile_ask rows_far;
    const float *c_next; /* sums of the next call, into the first cache; NULL: none */
    /* Groups of so many steps that share scales; 0: none. c = fma(partial a_scale, w_scale, c). */
    int64_t group_steps;
    const float *a_scales; /* [rows][scale_ld]; NULL: ones */
    int64_t scale_ld;
    const float *w_scales; /* [groups][32]; NULL: ones */
};

/* What is tuned: none of it changes a sum. */
struct oz_tile_tuning {
    int32_t row_block; /* rows of a task, at most; whole strips */
    int32_t
        col_block;  /* columns of a task, at most; whole panels; its sums lie in the second cache */
    int32_t steps;  /* of a block of K */
    int32_t panels; /* that share the first cache: a strip passes all of them */
    int32_t whole_bytes; /* rows of a task that stay in the second cache over all of K, at most */
    bool ask_sums, ask_rows;
    int64_t pack_bytes; /* of rows that are in tiles at a time, about */
    /* Products with fewer multiply-adds, by weights of fewer elements, gain nothing: all of theirs lies
     * in a cache. */
    int64_t least_work, least_weights;
};

struct oz_tile_kernel {
    struct oz_tile_tuning tuning;
    int32_t k_step;  /* of K in a step */
    int32_t element; /* bytes of one of K of a row: 64 / k_step */
    void (*run)(const struct oz_tile_call *call);
    /* Around each task, on its thread. */
    void (*begin)(void);
    void (*end)(void);
};

/* A product of `weights` weights (1 or 2) of the same shape by the same rows. */
struct oz_tiles {
    const struct oz_tile_kernel *kernel;
    int64_t m, n, k;
    int64_t group;   /* of K that share scales, whole steps; 0: none */
    bool row_scales; /* rows have scales for groups */
    bool decodes;    /* `panel` writes blocks into its room */
    int32_t weights;
    int32_t k_bytes;   /* that one of K takes in a stored panel */
    size_t room_bytes; /* of scratch for `bring` */
    const void *ctx;

    /* Rows [row0, row0 + rows), at most 16, columns [k0, k0 + count) to dst, stride bytes apart: zeros
     * behind K. scales: of the groups of the columns, scale_ld apart, where row_scales. */
    void (*bring)(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                  uint8_t *dst, int64_t stride, float *scales, int64_t scale_ld, void *room);
    /* A panel's block [count / k_step][16][32][4 bytes]: where it lies, or in `room`; scales of its
     * groups [][32]. streams: what lies behind it is next, and nobody has asked for it. */
    const uint8_t *(*panel)(const void *ctx, int32_t weight, int64_t panel, int64_t k0,
                            int64_t count, bool streams, uint8_t *room, float *scales);
    /* Where the stored block begins. */
    const uint8_t *(*stored)(const void *ctx, int32_t weight, int64_t panel, int64_t k0);
    /* Sums of rows [row0, row0 + rows) of a panel, [rows][32], and of the second weight's or NULL, to
     * what the product writes. May change them. */
    void (*finish)(const void *ctx, int64_t row0, int64_t rows, int64_t panel, float *y, float *up);
};

/* Is a product of such a shape large enough? */
bool oz_tiles_pay(const struct oz_tile_kernel *k, int64_t rows, int64_t cols, int64_t depth);

/* Scratch that a product takes; then the product. Only shapes count for the first. */
size_t oz_tiles_scratch(const struct oz_device *dev, const struct oz_tiles *p);
void oz_tiles_run(const struct oz_op_ctx *ctx, const struct oz_tiles *p);

#endif
