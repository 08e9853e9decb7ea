/*
 * quant/layer.h: CONTRACT. The layer table: how a model declares every parameter that it has.
 *
 * A family builds its table from its config alone, before any file is opened. Everything that
 * asks "what is this tensor?" reads this table: loader, plan, inspect, rules, keep-lists, LoRA,
 * name tables of other conventions, tensor parallelism. There is no second list.
 *
 * One row is one parameter (a weight and its bias are two rows of one module). Rules of
 * quantization match a row's *module* name.
 */
#ifndef OZ_QUANT_LAYER_H
#define OZ_QUANT_LAYER_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

#define OZ_LAYER_MAX_RANK 5

/* What a parameter is to the operators. Only LINEAR and EXPERTS can be quantized. */
enum oz_layer_kind {
    OZ_LAYER_LINEAR,  /* [out, in] */
    OZ_LAYER_EXPERTS, /* [experts, out, in] */
    OZ_LAYER_EMBED,   /* [vocabulary, width] */
    OZ_LAYER_CONV,    /* [out, in, (kt,) kh, kw] in the file; channel-last inside (ops.h) */
    OZ_LAYER_NORM,    /* [width] */
    OZ_LAYER_VECTOR,  /* bias, sinks, scalars: anything small and dense */
};

/* What a module does in its model. Keep-lists and reports go by role. */
#define OZ_ROLE_MAP(X)                                                                     \
    X(OZ_ROLE_OTHER, "other")                                                              \
    X(OZ_ROLE_EMBEDDER, "embedder")     /* image, text, time and patch embedders */        \
    X(OZ_ROLE_MODULATION, "modulation") /* per-block and final modulation linears */       \
    X(OZ_ROLE_ATTN_QKV, "attn_qkv")                                                        \
    X(OZ_ROLE_ATTN_OUT, "attn_out")                                                        \
    X(OZ_ROLE_MLP_UP, "mlp_up") /* gate and up projections */                              \
    X(OZ_ROLE_MLP_DOWN, "mlp_down")                                                        \
    X(OZ_ROLE_FINAL, "final") /* the projection out of the model */                        \
    X(OZ_ROLE_ROUTER, "router")                                                            \
    X(OZ_ROLE_EXPERT_UP, "expert_up")                                                      \
    X(OZ_ROLE_EXPERT_DOWN, "expert_down")                                                  \
    X(OZ_ROLE_TOKEN_EMBED, "token_embed")                                                  \
    X(OZ_ROLE_LM_HEAD, "lm_head")                                                          \
    X(OZ_ROLE_NORM, "norm")                                                                \
    X(OZ_ROLE_CONV, "conv")                                                                \
    X(OZ_ROLE_REFINER, "refiner") /* small blocks before the main ones */

enum oz_role {
#define OZ_ROLE_ENUM(id, name) id,
    OZ_ROLE_MAP(OZ_ROLE_ENUM)
#undef OZ_ROLE_ENUM
    OZ_ROLE_COUNT
};

const char *oz_role_name(enum oz_role role); /* "attn_qkv"; "?" outside the enum */

/* From the file's tensor to the canonical parameter. Applied before encoding, in this order. */
enum oz_transform {
    OZ_TRANSFORM_NONE = 0,
    OZ_TRANSFORM_LAST_TAP = 1 << 0,   /* conv [o, i, kt, kh, kw] -> [:, :, kt - 1] */
    OZ_TRANSFORM_RESHAPE = 1 << 1,    /* same elements, the row's shape */
    OZ_TRANSFORM_TRANSPOSE = 1 << 2,  /* last two dims swapped in the file */
    OZ_TRANSFORM_SWAP_HALVES = 1 << 3, /* first and second half of dim 0 exchanged */
    OZ_TRANSFORM_PERMUTE = 1 << 4,    /* rows re-ordered by `permutation` */
    OZ_TRANSFORM_ADD_ONE = 1 << 5,    /* x + 1 (norms stored as w - 1) */
};

/* How a parameter is cut over tensor-parallel ranks. */
enum oz_cut {
    OZ_CUT_NONE = 0, /* replicated */
    OZ_CUT_ROWS,     /* out features: dim 0 (dim 1 of EXPERTS) */
    OZ_CUT_COLS,     /* in features: the last dim */
    OZ_CUT_HEADS,    /* dim 0 in whole heads of `cut_unit` rows */
    OZ_CUT_EXPERTS,  /* dim 0 of EXPERTS */
};

/* Where the loader puts a loaded parameter; defined with the operators (dev/ops.h). */
struct oz_param;

/*
 * One parameter. Strings live in the table's arena or are static; a row is copied by the table,
 * its strings are not.
 */
struct oz_layer {
    const char *name;   /* canonical name within its component: "transformer_blocks.0.attn.to_q.weight" */
    const char *module; /* what rules match: the name without its last segment; set by the table */
    enum oz_layer_kind kind;
    enum oz_role role;
    int32_t rank;
    int64_t shape[OZ_LAYER_MAX_RANK];      /* canonical, after the transform */
    int32_t file_rank;                     /* 0: the file's shape is `shape` */
    int64_t file_shape[OZ_LAYER_MAX_RANK]; /* what the file must hold, before the transform */
    uint32_t transform;                    /* of enum oz_transform, or-ed */
    const int32_t *permutation;            /* [shape[0]], for PERMUTE; borrowed for the table's life */
    const char *fused;                     /* name of the fused group ("attn.to_qkv" with its prefix), or NULL */
    int32_t fused_index;                   /* position within the group */
    enum oz_cut cut;
    int32_t cut_unit;
    int32_t block;         /* number within the family's block list; -1 outside it */
    const char *tied_to;   /* name of the row whose tensor this one shares when it is absent, or NULL */
    bool optional;         /* may be absent; then bind stays empty */
    struct oz_param *bind; /* where the model wants it; NULL: inventory only */
};

/*
 * Tensors that a file may hold and the model does not read, with the reason in words, shown by
 * inspect and plan. `prefix` matches whole dotted segments from the start of the name; `suffix`
 * likewise from the end; both may be set.
 */
struct oz_ignore {
    const char *name;   /* of the rule: "vision tower" */
    const char *prefix; /* "visual", or NULL */
    const char *suffix; /* "time_conv.weight", or NULL */
    const char *reason; /* "not used for text to image" */
};

struct oz_layer_table {
    struct oz_arena *arena; /* borrowed: rows, strings */
    struct oz_layer *rows;
    int32_t count, capacity;
    struct oz_ignore *ignores;
    int32_t ignore_count, ignore_capacity;
    const char *component; /* "transformer", "text_encoder", "vae" */
    enum oz_status status; /* first failure of an add; later adds do nothing */
};

/*
 * Starts an empty table in caller's storage. `max_rows` and `max_ignores` bound it (a family knows
 * both from its config). Rows, strings and the table's memory are the arena's: there is no deinit.
 */
OZ_MUST_USE enum oz_status oz_layer_table_init(struct oz_layer_table *t, struct oz_arena *arena,
                                               const char *component, int32_t max_rows,
                                               int32_t max_ignores);

/*
 * Appends a row (copied). The name is given by a printf format; module is derived from it. Unset
 * members may be zero, except block, which is -1 outside the block list. Errors are sticky in
 * t->status (NOMEM; ARG for more rows than max_rows or a duplicate name), so that a family's
 * builder is a plain list; the builder returns oz_layer_table_finish().
 */
void oz_layer_add(struct oz_layer_table *t, const struct oz_layer *row, const char *name_format, ...)
    OZ_PRINTF(3, 4);
void oz_layer_ignore(struct oz_layer_table *t, const struct oz_ignore *rule);

/* A string in the table's arena, for `fused` and `tied_to`; NULL after a failure (sticky). */
const char *oz_layer_string(struct oz_layer_table *t, const char *format, ...) OZ_PRINTF(2, 3);

/* Sticky status of the adds, with a message; also checks that names are unique. */
OZ_MUST_USE enum oz_status oz_layer_table_finish(struct oz_layer_table *t, struct oz_error *err);

/* Row by canonical name, or NULL. */
struct oz_layer *oz_layer_find(const struct oz_layer_table *t, const char *name);

/* The rule that ignores a file tensor of that name, or NULL. */
const struct oz_ignore *oz_layer_ignored(const struct oz_layer_table *t, const char *tensor);

#endif
