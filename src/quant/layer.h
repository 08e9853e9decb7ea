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

#define OZ_LAYER_MAX_RANK 5 /* as OZ_PARAM_MAX_RANK of dev/ops.h */

/* What a parameter is to the operators. Online schemes quantize only LINEAR and EXPERTS; a file may
 * hold any of them in any codec. */
enum oz_layer_kind {
    OZ_LAYER_LINEAR,  /* [out, in] */
    OZ_LAYER_EXPERTS, /* [experts, out, in] */
    OZ_LAYER_EMBED,   /* [vocabulary, width] */
    OZ_LAYER_CONV,    /* [out, in, (kt,) kh, kw] in the file; channel-last inside (ops.h) */
    OZ_LAYER_NORM,    /* [width] */
    OZ_LAYER_VECTOR,  /* bias, sinks, scalars: anything small and dense */
};

/* What a module does in its model. Keep-lists and reports go by role. */
#define OZ_ROLE_MAP(X)                                                               \
    X(OZ_ROLE_OTHER, "other")                                                        \
    X(OZ_ROLE_EMBEDDER, "embedder")     /* image, text, time and patch embedders */  \
    X(OZ_ROLE_MODULATION, "modulation") /* per-block and final modulation linears */ \
    X(OZ_ROLE_ATTN_QKV, "attn_qkv")                                                  \
    X(OZ_ROLE_ATTN_OUT, "attn_out")                                                  \
    X(OZ_ROLE_MLP_UP, "mlp_up") /* gate and up projections */                        \
    X(OZ_ROLE_MLP_DOWN, "mlp_down")                                                  \
    X(OZ_ROLE_FINAL, "final") /* the projection out of the model */                  \
    X(OZ_ROLE_ROUTER, "router")                                                      \
    X(OZ_ROLE_EXPERT_UP, "expert_up")                                                \
    X(OZ_ROLE_EXPERT_DOWN, "expert_down")                                            \
    X(OZ_ROLE_TOKEN_EMBED, "token_embed")                                            \
    X(OZ_ROLE_LM_HEAD, "lm_head")                                                    \
    X(OZ_ROLE_NORM, "norm")                                                          \
    X(OZ_ROLE_CONV, "conv")                                                          \
    X(OZ_ROLE_REFINER, "refiner") /* small blocks before the main ones */

enum oz_role {
#define OZ_ROLE_ENUM(id, name) id,
    OZ_ROLE_MAP(OZ_ROLE_ENUM)
#undef OZ_ROLE_ENUM
        OZ_ROLE_COUNT
};

const char *oz_role_name(enum oz_role role); /* "attn_qkv"; "?" outside the enum */

/*
 * From the file's tensor to the canonical parameter. Applied before encoding, in this order. "Out
 * features" are dim 0, of EXPERTS dim 1. On weights that the file holds quantized, out features may
 * be moved where no plane's cell spans more than one row; TRANSPOSE and ADD_ONE are refused there.
 */
enum oz_transform {
    OZ_TRANSFORM_NONE = 0,
    OZ_TRANSFORM_LAST_TAP = 1 << 0,    /* conv [o, i, kt, kh, kw] -> [:, :, kt - 1] */
    OZ_TRANSFORM_RESHAPE = 1 << 1,     /* same elements, the row's shape */
    OZ_TRANSFORM_TRANSPOSE = 1 << 2,   /* last two dims swapped in the file */
    OZ_TRANSFORM_SWAP_HALVES = 1 << 3, /* first and second half of the out features exchanged */
    OZ_TRANSFORM_PERMUTE = 1 << 4,     /* out features re-ordered by `permutation` */
    OZ_TRANSFORM_ADD_ONE = 1 << 5,     /* x + 1 (norms stored as w - 1) */
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
 * One parameter, or a part of one: the file's rows [file_row, file_row + file_rows) may go to rows
 * bind_row, bind_row + bind_row_stride ... of slice bind_slice of the parameter at `bind` (experts
 * stacked from single files, gate and up interleaved, q, k, v into one). Strings live in the
 * table's arena or are static; a row is copied by the table, its strings are not.
 */
struct oz_layer {
    const char *name; /* canonical within its component, "blocks.0.attn.to_q.weight"; set by add */
    const char *module; /* what rules match: the name without its last segment; set by add */
    enum oz_layer_kind kind;
    enum oz_role role;
    int32_t rank;
    int64_t shape[OZ_LAYER_MAX_RANK];      /* canonical, after the transform */
    int32_t file_rank;                     /* 0: the file's shape is `shape` */
    int64_t file_shape[OZ_LAYER_MAX_RANK]; /* what the file must hold, before the transform */
    int64_t file_row, file_rows;           /* part of the file's dim 0; file_rows 0: all */
    uint32_t transform;                    /* of enum oz_transform, or-ed */
    const int32_t *permutation; /* [out features], for PERMUTE; borrowed for the table's life */
    const char *fused;   /* name of the fused group with its prefix ("...attn.to_qkv"), or NULL */
    int32_t fused_index; /* position within the group */
    enum oz_cut cut;
    int32_t cut_unit;
    int32_t block_number; /* 1 + number within the family's block list; 0: outside it */
    const char *tied_to;  /* name of the row whose tensor this one shares when absent, or NULL */
    bool optional;        /* may be absent; then bind stays empty */
    bool planes_read;     /* of a linear: while unquantized, operators but linear read its planes */
    struct oz_param *bind; /* where the model wants it; NULL: inventory only */
    int64_t bind_slice, bind_row, bind_row_stride; /* 0, 0, 0: the whole parameter */
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
    int32_t *by_name; /* [count] after finish: rows in byte order of their names */
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
 * Appends a row (copied). The name is given by a printf format (row->name and row->module are not
 * read); unset members may be zero. What is bound is described by oz_params_describe (ops/param.h).
 * Errors are sticky in t->status (NOMEM; INTERNAL for more rows than max_rows), so that a family's
 * builder is a plain list; the builder returns oz_layer_table_finish().
 */
void oz_layer_add(struct oz_layer_table *t, const struct oz_layer *row, const char *format, ...)
    OZ_PRINTF(3, 4);
void oz_layer_ignore(struct oz_layer_table *t, const struct oz_ignore *rule);

/* A string in the table's arena, for `fused` and `tied_to`; NULL after a failure (sticky). */
const char *oz_layer_string(struct oz_layer_table *t, const char *format, ...) OZ_PRINTF(2, 3);

/* Sticky status of the adds, with a message; also checks that names are unique. */
OZ_MUST_USE enum oz_status oz_layer_table_finish(struct oz_layer_table *t, struct oz_error *err);

/* Row by canonical name after finish, or NULL. */
const struct oz_layer *oz_layer_find(const struct oz_layer_table *t, const char *name);

/* The rule that ignores a file tensor of that name, or NULL. */
const struct oz_ignore *oz_layer_ignored(const struct oz_layer_table *t, const char *tensor);

#endif
