/*
 * model/qwen25_vl/qwen25_vl.h: the text tower of Qwen2.5-VL: config, layer table, forward over a
 * ragged batch of token sequences. Owns no memory: the model lives in the caller's arena, weights
 * where the loader puts them.
 */
#ifndef OZ_MODEL_QWEN25_VL_H
#define OZ_MODEL_QWEN25_VL_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dev/ops.h"
#include "ops/exec.h"
#include "quant/layer.h"

struct oz_ckpt;
struct oz_json;

/* ---- config ---- */

struct oz_qwen25_vl_config {
    int32_t hidden, intermediate, layers, vocab;
    int32_t heads, kv_heads, head_dim;
    int32_t max_positions;    /* as the config says; nothing here depends on it */
    int32_t mrope_section[3]; /* frequency pairs that turn by t, h, w; sum head_dim / 2 */
    double rope_theta;
    float eps;
    bool tied;      /* the head is the embedding */
    bool need_head; /* the caller's: build lm_head too; set to false by config_read */
};

/*
 * Reads a config.json, flat or nested (`name` is its path, for messages). OZ_ERR_FORMAT: a value is
 * missing, of the wrong type, or impossible. OZ_ERR_UNSUPPORTED: a switch that ounce does not have,
 * by name.
 */
OZ_MUST_USE enum oz_status oz_qwen25_vl_config_read(struct oz_qwen25_vl_config *c,
                                                    const struct oz_json *root, const char *name,
                                                    struct oz_error *err);

/* ---- parameters ---- */

/* Gives the tensors of a checkpoint with llama.cpp's names (GGUF), or of a whole ComfyUI checkpoint, those
 * of transformers; *convention is the name of the convention or what stood in front of the names, static;
 * NULL: nothing was done. Errors: oz_ckpt_rename. */
OZ_MUST_USE enum oz_status oz_qwen25_vl_rename(struct oz_ckpt *ckpt, const char **convention,
                                               struct oz_error *err);

#define OZ_QWEN25_VL_PREFIX_BYTES 128

struct oz_qwen25_vl_layer {
    const char *attn_label, *mlp_label; /* "model.layers.0.self_attn", "model.layers.0.mlp" */
    struct oz_param input_norm, post_norm;
    struct oz_linear q, k, v, o;
    struct oz_linear gate, up, down;
};

struct oz_qwen25_vl {
    struct oz_qwen25_vl_config config;
    const char *embed_label, *norm_label; /* "model.embed_tokens", "model.norm" */
    struct oz_param embed, norm;
    struct oz_qwen25_vl_layer *layers; /* [config.layers] */
    struct oz_linear lm_head;          /* absent without need_head */
};

/*
 * What stands before "layers.0." in the checkpoint's names: "model", "model.language_model", or
 * nothing (""). OZ_ERR_FORMAT: there is no such tower, or more than one.
 */
OZ_MUST_USE enum oz_status oz_qwen25_vl_find_prefix(const struct oz_ckpt *ckpt,
                                                    char prefix[OZ_QWEN25_VL_PREFIX_BYTES],
                                                    struct oz_error *err);

/* Bytes of host arena that a build takes at most. */
size_t oz_qwen25_vl_host_bytes(const struct oz_qwen25_vl_config *c);

/*
 * Builds the model and its layer table (component "text_encoder") in the arena. The parameters have
 * shapes and no weights yet. Names begin with `prefix`, which is copied. m and t are the caller's
 * storage; m must stay where it is, for the rows are bound to it.
 */
OZ_MUST_USE enum oz_status oz_qwen25_vl_build(struct oz_qwen25_vl *m,
                                              const struct oz_qwen25_vl_config *c,
                                              struct oz_arena *host, struct oz_layer_table *t,
                                              const char *prefix, struct oz_error *err);

/* ---- forward ---- */

/* Positions of plain text for oz_qwen25_vl_rope: 0, 1, 2 ... in each sequence, in all three rows.
 * positions: host [3, rows]. */
void oz_qwen25_vl_text_positions(const struct oz_ragged *sequences, int32_t *positions);

/* Rotation tables [rows, head_dim / 2] of positions [3, rows] (t, h, w), all in host memory. Angles
 * in f32 as PyTorch has them. */
void oz_qwen25_vl_rope(const struct oz_qwen25_vl_config *c, const int32_t *positions, int64_t rows,
                       float *cosine, float *sine);

struct oz_qwen25_vl_batch {
    int64_t rows;                       /* tokens of all sequences */
    const int32_t *ids;                 /* device [rows] */
    const struct oz_ragged *sequences;  /* of the rows; attention is causal within each */
    const struct oz_act *cosine, *sine; /* f32 [rows, head_dim / 2] */
};

/* Hidden states after the final norm into out [rows, hidden], any spec. Takes step memory and gives
 * it back. */
void oz_qwen25_vl_forward(struct oz_exec *x, const struct oz_qwen25_vl *m,
                          const struct oz_qwen25_vl_batch *b, struct oz_act *out);

/* Logits [count, vocab] f32 of rows rows[0 .. count) (device; NULL: the first count) of what a
 * forward gave (F32 or BF16). The model must have been built with need_head. */
void oz_qwen25_vl_logits(struct oz_exec *x, const struct oz_qwen25_vl *m,
                         const struct oz_act *hidden, const int32_t *rows, int64_t count,
                         struct oz_act *logits);

#endif
