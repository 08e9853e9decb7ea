/*
 * cpu/attention.h: attention over packed matrix products. The driver cuts the work into tasks and
 * keeps to the contract (segments, masks, pages); a tier gives it a micro-kernel and the few
 * functions below.
 *
 * Method. A unit is one key-value head of one sequence. Units are taken in waves that fit the room
 * for packed keys and values; a wave has two phases, each in parallel: keys and values are packed
 * tile by tile; then blocks of queries pass over the tiles with a running maximum and sum.
 *
 * Order of sums: tiles begin at multiples of OZ_ATTENTION_TILE positions, blocks of queries at fixed
 * rows of their sequence, and every sum over keys or features runs from first to last in one
 * accumulator. So a query's bytes depend on its own sequence alone: not on the number of sequences,
 * waves, or threads.
 *
 * Packed keys: panels of nr keys, [padded keys / nr][depth / kr][nr][kr]; packed values: panels of nr
 * features, [padded features / nr][padded keys / kr][nr][kr]; as micro-kernels read them
 * (cpu/gemm.h). kr elements are 4 bytes. What pads is zero.
 *
 * Scratch: packed units (16 MiB or one unit, whichever is more, or less when all units are smaller),
 * and for each thread the queries, sums and scores of a block (at most 440 KiB). A unit takes
 * keys * 2 * head_dim elements: 4.3 MB for 4160 keys of 128 in f32, so 24 such heads pass in waves of
 * three.
 *
 * NEEDSWORK: a sequence with one or two queries over many keys (decoding) packs all its keys for few
 * products; a kernel that reads pages as they lie, chosen by the sequence's own rows, would pay there.
 */
#ifndef OZ_CPU_ATTENTION_H
#define OZ_CPU_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/gemm.h"
#include "cpu/kernel.h"
#include "dev/ops.h"

#define OZ_ATTENTION_TILE 256     /* keys of a tile */
#define OZ_ATTENTION_MAX_ROWS 96  /* queries of a block */
#define OZ_ATTENTION_MAX_DIM 1024 /* of a head */

/* A block of queries on its way over one tile of keys. */
struct oz_attention_tile {
    int64_t rows, padded;       /* queries; keys with padding */
    int64_t count;              /* keys that exist */
    const int32_t *begin, *end; /* [rows] keys of the tile that a query sees */
    float *scores;              /* [rows, OZ_ATTENTION_TILE]: q k^T */
    float factor;               /* of scores: scale * log2 e */
    const float *bias;          /* of the first row's first key, row r's is r before; NULL: none */
    float *largest, *sum;       /* [rows] so far, in units of log2 */
    float *out;                 /* [rows, out_ld] so far */
    int64_t out_ld, out_cols;   /* out_cols: whole vectors */
    bool first;                 /* nothing is in out yet */
};

/* What a tier gives. Elements are gemm->a_dtype. */
struct oz_attention_kernel {
    const struct oz_gemm_kernel *gemm;  /* its run, mr, nr, kr, k_multiple, a_dtype; NULL: */
    const struct oz_cpu_kernel *linear; /* those of this kernel */
    /* Elements [col, col + count) of a row; zeros up to `padded`. */
    void (*load)(const struct oz_act *x, int64_t row, int64_t col, int64_t count, int64_t padded,
                 void *dst);
    /* One panel of keys from nr rows of `depth` elements. */
    void (*pack_keys)(const void *rows, int64_t depth, void *panel);
    /* nr keys of every panel of values: rows of `features` (whole panels), into dst, and
     * panel_elems further for each panel. Says whether all values are finite. */
    bool (*pack_values)(const void *rows, int64_t features, int64_t panel_elems, void *dst);
    /* Scores to weights 2^(score - largest) in elements, in place, 2 * TILE bf16 or TILE f32 apart; zero
     * for what a row does not see. Updates largest and sum, and scales out to match. */
    void (*soften)(const struct oz_attention_tile *tile);
    /* out[row, col ..] = sums / denominator. */
    void (*store)(const struct oz_act *out, int64_t row, int64_t col, int64_t count,
                  const float *sums, float denominator);
};

/* What `scratch`, `reject` and `run` of the list's entries call. */
size_t oz_attention_scratch(const struct oz_device *dev, const struct oz_attention_args *a,
                            const struct oz_attention_kernel *k);
const char *oz_attention_reject(const struct oz_device *dev, const struct oz_attention_args *a,
                                const struct oz_attention_kernel *k);
OZ_MUST_USE enum oz_status oz_attention_run(const struct oz_op_ctx *ctx,
                                            const struct oz_attention_args *a,
                                            const struct oz_attention_kernel *k);

#endif
