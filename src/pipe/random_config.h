/* pipe/random_config.h: the configs of a random model, as text. Internal to random_model.c. */
#ifndef OZ_PIPE_RANDOM_CONFIG_H
#define OZ_PIPE_RANDOM_CONFIG_H

#include "base/buf.h"
#include "pipe/random_model.h"

/* Every size, filled in. */
struct oz_random_sizes {
    int32_t layers, heads, head_dim, joint_dim;
    int32_t text_layers, text_heads, text_kv_heads, text_hidden, text_intermediate;
    int32_t vae_base_dim, vae_res_blocks;
    int32_t vocab;
    int32_t width, height, steps; /* defaults of the model; 0: the family's */
};

/* The vision tower, which text to image does not use: as small as it gets. */
#define OZ_RANDOM_VISION_HIDDEN 32
#define OZ_RANDOM_VISION_INTERMEDIATE 64
#define OZ_RANDOM_VISION_PATCH 14
#define OZ_RANDOM_VISION_MERGED (4 * OZ_RANDOM_VISION_HIDDEN)

/* Sizes of `like` with what the request changes. OZ_ERR_ARG. */
OZ_MUST_USE enum oz_status oz_random_sizes_fill(struct oz_random_sizes *s,
                                                const struct oz_random_model *m, int32_t vocab,
                                                struct oz_error *err);

void oz_random_config_transformer(struct oz_buf *b, const struct oz_random_sizes *s);
void oz_random_config_text_encoder(struct oz_buf *b, const struct oz_random_sizes *s);
void oz_random_config_vae(struct oz_buf *b, const struct oz_random_sizes *s);
void oz_random_config_scheduler(struct oz_buf *b);
void oz_random_config_ounce(struct oz_buf *b, const struct oz_random_sizes *s);
void oz_random_config_index(struct oz_buf *b);

#endif
