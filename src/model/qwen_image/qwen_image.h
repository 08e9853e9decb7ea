/*
 * model/qwen_image/qwen_image.h: the Qwen-Image transformer (README.md has the pitfalls). Shapes:
 * S image tokens, T text tokens, D = heads * head_dim, L blocks.
 */
#ifndef OZ_MODEL_QWEN_IMAGE_H
#define OZ_MODEL_QWEN_IMAGE_H

#include <ounce/status.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "ops/exec.h"
#include "quant/assign.h"
#include "quant/layer.h"

struct oz_ckpt;

#define OZ_QWEN_IMAGE_TIME_DIM 256

struct oz_qwen_image_config {
    int32_t patch_size, in_channels, out_channels; /* channels of a packed token; of a latent */
    int32_t layers, heads, head_dim;
    int32_t text_dim;     /* joint_attention_dim */
    int32_t rope_dims[3]; /* frame, row, column; their sum is head_dim */
};

/* Reads transformer/config.json; `name` begins messages. OZ_ERR_FORMAT, OZ_ERR_UNSUPPORTED. */
OZ_MUST_USE enum oz_status oz_qwen_image_config_read(struct oz_qwen_image_config *c,
                                                     const struct oz_json *json, const char *name,
                                                     struct oz_error *err);

struct oz_qwen_image_stream { /* one of the two streams of a block */
    struct oz_linear mod, q, k, v, out, up, down;
    struct oz_param norm_q, norm_k;
};

struct oz_qwen_image_block {
    struct oz_qwen_image_stream image, text;
    const char *label_image, *label_text, *label_attn; /* places for traces and dumps */
};

struct oz_qwen_image {
    struct oz_qwen_image_config config;
    struct oz_linear img_in, txt_in, time_1, time_2, norm_out, proj_out;
    struct oz_param txt_norm;
    struct oz_qwen_image_block *blocks; /* [layers], host arena */
};

/* Gives the tensors of a checkpoint of another convention (ComfyUI, GGUF) the names that are built;
 * *convention is what stood in front of them, static, or NULL: they had them. Errors: oz_ckpt_rename. */
OZ_MUST_USE enum oz_status oz_qwen_image_rename(struct oz_ckpt *ckpt, const char **convention,
                                                struct oz_error *err);

/* Host memory that building takes, at most. */
size_t oz_qwen_image_host_bytes(const struct oz_qwen_image_config *c);

/* Declares every parameter in `t` (initialised here) and describes them, so that forwards can be
 * measured. m must not move afterwards: rows point into it. */
OZ_MUST_USE enum oz_status oz_qwen_image_build(struct oz_qwen_image *m,
                                               const struct oz_qwen_image_config *c,
                                               struct oz_arena *host, struct oz_layer_table *t,
                                               struct oz_error *err);

/* ---- positions ---- */

struct oz_grid {
    int32_t frames, height, width; /* in tokens */
};

/* Angles' cosines and sines: image tables [sum of the grids' cells, head_dim / 2], text tables
 * [text_rows, head_dim / 2]. Grid i has frame positions from i. In PyTorch's f32 arithmetic. */
void oz_qwen_image_rope(const struct oz_qwen_image_config *c, const struct oz_grid *grids,
                        int32_t grid_count, int64_t text_rows, float *image_cos, float *image_sin,
                        float *text_cos, float *text_sin);

/* ---- quantization ---- */

/* What is known of the layers' sensitivity. */
extern const struct oz_advice oz_qwen_image_advice[];
extern const int32_t oz_qwen_image_advice_count;

/* ---- modulation ---- */

/* The modulation vectors of `rows` timesteps: what img_mod, txt_mod and norm_out give, which depends
 * on the timestep alone. Then those weights are not needed any more. */
struct oz_qwen_image_mod {
    int64_t rows;
    struct oz_act *image, *text; /* [layers] each [rows, 6 D] */
    struct oz_act final;         /* [rows, 2 D] */
};

/* Takes the table's memory: `acts` is caller's storage for 2 * layers acts, data from the arena. */
OZ_MUST_USE enum oz_status oz_qwen_image_mod_init(struct oz_qwen_image_mod *mod,
                                                  const struct oz_qwen_image *m, int64_t rows,
                                                  struct oz_act *acts, struct oz_arena *arena);

/* Fills the table from `timesteps` (device, [mod->rows]; sigma in 0..1). */
void oz_qwen_image_mod_fill(struct oz_exec *x, const struct oz_qwen_image *m,
                            const struct oz_qwen_image_mod *mod, const float *timesteps);

/* Parts [first, first + count) of it, for weights that are not all there at once: part i < layers is the
 * two linears of block i, part `layers` is norm_out. */
void oz_qwen_image_mod_fill_part(struct oz_exec *x, const struct oz_qwen_image *m,
                                 const struct oz_qwen_image_mod *mod, const float *timesteps,
                                 int32_t first, int32_t count);
static inline int32_t oz_qwen_image_mod_parts(const struct oz_qwen_image *m)
{
    return m->config.layers + 1;
}
/* The part that reads a row of the layer table; -1: none. */
int32_t oz_qwen_image_mod_part(const struct oz_qwen_image *m, const struct oz_layer *layer);

/* ---- forward ---- */

/* A ragged batch. Sequence s has image rows of `image` and text rows of `text`; both have the same
 * count of sequences. */
struct oz_qwen_image_batch {
    struct oz_ragged image, text;
    const struct oz_act *latents;     /* [image rows, in_channels] */
    const struct oz_act *text_states; /* [text rows, text_dim] */
    const struct oz_act *image_cos, *image_sin, *text_cos, *text_sin;
    const struct oz_qwen_image_mod *mod;
    const int32_t *image_mod, *text_mod; /* device [rows]: row of the modulation table */
    int32_t mode; /* which of its activation modes each linear takes; the table's linears take 0 */
};

/* Predicts the velocity of every image row: out [image rows, patch^2 * out_channels]. */
void oz_qwen_image_forward(struct oz_exec *x, const struct oz_qwen_image *m,
                           const struct oz_qwen_image_batch *b, struct oz_act *out);

#endif
