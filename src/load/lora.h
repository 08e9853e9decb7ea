/*
 * load/lora.h: low-rank adapters (LoRA) that are merged while weights are loaded.
 *
 *     W' = W + s B A,   s = scale alpha / rank      A [rank, in], B [out, rank]
 *
 * in f32 on the checkpoint's own orientation, for each file in the order given; the sum over the rank
 * runs from its first element to its last. A layer that stays as it is stored is rounded to its dtype
 * once, after the last file (nearest, ties to even), for operators read that dtype; what goes on to a
 * scheme's encoder is not rounded, for the encoder rounds it anyway and a second rounding only adds
 * its error. An element depends on nothing but its row and column: bands, threads and the ring do not
 * change a bit.
 *
 * Names: PEFT and diffusers (lora_A, lora_B), the older diffusers form (lora.down, lora.up), kohya and
 * Lightning (lora_down, lora_up, alpha); with or without the prefixes of those tools and of ComfyUI;
 * dots between segments or underscores, resolved through the layer table.
 * alpha: the file's own for each layer; else "lora_alpha" (of "alpha_pattern" where it names the layer)
 * in the file's metadata "lora_adapter_metadata" or in the adapter_config.json beside an
 * adapter_model.safetensors, over the square root of the rank with "use_rslora"; else the rank.
 */
#ifndef OZ_LOAD_LORA_H
#define OZ_LOAD_LORA_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "ckpt/table.h"
#include "load/match.h"

struct oz_lora_file {
    char *path;
    double scale;
    struct oz_ckpt *ckpt;
    int32_t layers; /* that it adapts */
};

/* What one file has for one layer. Tensors are read in the file's map, band by band: nothing is held. */
struct oz_lora_pair {
    const struct oz_tensor_view *down, *up; /* A, B */
    int32_t file;
    int32_t next; /* of the same row, in the order of the files; -1: none */
    int64_t rank;
    double alpha;
    float factor; /* scale alpha / rank */
};

struct oz_lora {
    const struct oz_layer_table *table; /* borrowed */
    struct oz_lora_file *files;
    int32_t file_count;
    struct oz_lora_pair *pairs;
    int32_t pair_count;
    int32_t *first, *last; /* [table->count]: a row's pairs; -1: none */
};

/*
 * Opens "FILE" or "FILE:scale" in the order given (a folder stands for the pytorch_lora_weights or
 * adapter_model that it holds) and finds each one's layers; reads headers, alphas and configs, no
 * factors. max_header_bytes as in oz_ckpt_open_limited. *out is the caller's to destroy and borrows
 * the match's table.
 * Errors name file, key, numbers and remedy. OZ_ERR_ARG: a scale that is no finite number or 0.
 * OZ_ERR_FORMAT: no key of a file, or some key of it, matches no layer (with the nearest one); a pair
 * that is incomplete or there twice; shapes; an alpha that is not finite. OZ_ERR_UNSUPPORTED: DoRA,
 * LoHa, LoKr, OFT, full differences; LoRA for convolutions, biases, norms or the text encoder; a dtype.
 * OZ_ERR_IO, OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_lora_open(struct oz_lora **out, const struct oz_match *match,
                                        const char *const *texts, int32_t count,
                                        int64_t max_header_bytes, struct oz_error *err);
void oz_lora_close(struct oz_lora **lora); /* NULL inside is fine */

/* OZ_ERR_IO when a file is not what was opened any more. NULL is fine. */
OZ_MUST_USE enum oz_status oz_lora_check(const struct oz_lora *lora, struct oz_error *err);

/* Largest rank of a row's pairs; 0: it has none, or lora is NULL. */
int64_t oz_lora_rank(const struct oz_lora *lora, int32_t row);

/* Memory that the lists take. */
int64_t oz_lora_bytes(const struct oz_lora *lora);

/* [{"file": "..", "rank": .., "alpha": .., "scale": .., "factor": ..}, ..] of a row. */
void oz_lora_json(const struct oz_lora *lora, int32_t row, struct oz_buf *out);

/* ---- merging: lora_merge.c ---- */

#define OZ_LORA_LANES 16 /* columns of A that are kept together */

/* Elements of room for A. */
static inline int64_t oz_lora_down_elements(int64_t rank, int64_t cols)
{
    return (cols + OZ_LORA_LANES - 1) / OZ_LORA_LANES * OZ_LORA_LANES * rank;
}

/* Rows of a layer that wait in staging. */
struct oz_lora_rows {
    int32_t row;             /* of the layer table */
    int64_t count, cols;     /* cols: the layer's input features */
    const int64_t *up_rows;  /* [count]: rows of B, ascending or not */
    float *const *w;         /* [count]: [cols] each */
    float *down, *up;        /* room of oz_lora_down_elements, and of rank * count elements */
    float limit;             /* what becomes infinite where it is stored: the least such value */
    const char *stored_name; /* of that dtype, for messages */
};

/* W' = W + s B A. OZ_ERR_FORMAT: NaN or infinity in a factor (file, key and index), or an element that
 * was finite and is not below the limit any more. Any thread. */
OZ_MUST_USE enum oz_status oz_lora_merge(const struct oz_lora *lora, const struct oz_lora_rows *r,
                                         struct oz_error *err);

#endif
