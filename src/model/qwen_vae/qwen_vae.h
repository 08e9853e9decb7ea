/*
 * model/qwen_vae/qwen_vae.h: AutoencoderKLQwenImage, the picture codec of Qwen-Image: config, layer
 * table, decode and encode of single frames. Owns no memory: parameters and names are pushed on the
 * builder's host arena, feature maps on the exec's step arena.
 *
 * Pixels are rows, channel-last: row (frame * height + y) * width + x.
 */
#ifndef OZ_MODEL_QWEN_VAE_QWEN_VAE_H
#define OZ_MODEL_QWEN_VAE_QWEN_VAE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "dev/ops.h"
#include "ops/exec.h"
#include "quant/layer.h"

struct oz_ckpt;
struct oz_json;

#define OZ_QWEN_VAE_MAX_LEVELS 8
#define OZ_QWEN_VAE_MAX_Z 128

/* vae/config.json. The side of a picture is 2^(levels - 1) times that of its latent. */
struct oz_qwen_vae_config {
    int32_t base_dim, z_dim, num_res_blocks, input_channels;
    int32_t levels;
    int32_t dim_mult[OZ_QWEN_VAE_MAX_LEVELS];         /* [levels] */
    bool temperal_downsample[OZ_QWEN_VAE_MAX_LEVELS]; /* [levels - 1]; spelt as in the file */
    float latents_mean[OZ_QWEN_VAE_MAX_Z];            /* [z_dim] */
    float latents_std[OZ_QWEN_VAE_MAX_Z];
};

/*
 * Reads the config from its parsed file; `name` (the path) begins every error. Absent keys have the
 * values of the published Qwen-Image VAE. OZ_ERR_FORMAT: wrong types, numbers out of range, lists
 * of the wrong length; OZ_ERR_UNSUPPORTED: settings that this family does not compute, by name.
 * Keys that are not known are named in the log (topic "load"); `dropout`, keys that begin with "_"
 * and nulls are skipped.
 */
OZ_MUST_USE enum oz_status oz_qwen_vae_config_read(struct oz_qwen_vae_config *c,
                                                   const struct oz_json *json, const char *name,
                                                   struct oz_error *err);

/* Gives the tensors of a checkpoint with the names of Wan's own code, or of a whole ComfyUI checkpoint,
 * those of diffusers; *convention is the name of the convention or what stood in front of the names,
 * static; NULL: they had them. Errors: oz_ckpt_rename. */
OZ_MUST_USE enum oz_status oz_qwen_vae_rename(struct oz_ckpt *ckpt,
                                              const struct oz_qwen_vae_config *c,
                                              const char **convention, struct oz_error *err);

struct oz_qwen_vae_conv {
    struct oz_param w, b; /* w: [out, in, (kt,) k, k] */
    const char *name;     /* for labels */
};

struct oz_qwen_vae_resnet {
    const char *name;
    struct oz_param norm1, norm2;
    struct oz_qwen_vae_conv conv1, conv2, shortcut; /* shortcut: absent where widths are equal */
};

struct oz_qwen_vae_middle {
    struct oz_qwen_vae_resnet resnets[2];
    const char *attention; /* name */
    struct oz_param norm;
    struct oz_linear to_qkv, proj; /* 1x1 convolutions in the file */
};

struct oz_qwen_vae_level {
    int32_t in, out; /* channels before and after its residual blocks */
    int32_t resnet_count;
    struct oz_qwen_vae_resnet *resnets;
    struct oz_qwen_vae_conv resample; /* absent in the last level */
};

struct oz_qwen_vae_coder {
    struct oz_qwen_vae_conv conv_in, conv_out;
    struct oz_qwen_vae_middle middle;
    struct oz_qwen_vae_level levels[OZ_QWEN_VAE_MAX_LEVELS]; /* in the order of the computation */
    struct oz_param norm_out;
    const char *norm_out_name;
};

/* A model. The layer table binds to its members, so it must stay where it was built. */
struct oz_qwen_vae {
    struct oz_qwen_vae_config config;
    bool time_taps; /* weights keep all temporal taps */
    struct oz_qwen_vae_coder encoder, decoder;
    struct oz_qwen_vae_conv quant_conv, post_quant_conv;
    /* Norm and convolution, and enlarging and convolution, run together in bands of rows, so that
     * what lies between them takes about so many bytes and never exists whole. Changes no byte of a
     * result; set by build, may be changed before measuring. */
    int64_t band_bytes;
};

/* Host memory that oz_qwen_vae_build pushes, at most. */
size_t oz_qwen_vae_host_bytes(const struct oz_qwen_vae_config *c);

/*
 * Starts a model and its layer table, both in caller's storage, both using `host`, which must
 * outlive them. Every parameter of encoder and decoder has a row; afterwards all of them have their
 * names and shapes, so that decode and encode can be measured.
 * keep_time_taps: 3-D convolutions stay 3-D; otherwise only the last temporal tap is kept, which is
 * all that a single frame ever meets. OZ_ERR_NOMEM: the arena is smaller than host_bytes.
 */
OZ_MUST_USE enum oz_status oz_qwen_vae_build(struct oz_qwen_vae *m,
                                             const struct oz_qwen_vae_config *c,
                                             struct oz_arena *host, struct oz_layer_table *t,
                                             bool keep_time_taps, struct oz_error *err);

/*
 * latent: f32 [frames * h * w, z_dim], already times latents_std plus latents_mean.
 * out: f32 [frames * H * W, 3], H = h * 2^(levels - 1), nominally in [-1, 1] but not clamped.
 * OZ_ERR_UNSUPPORTED (in the exec) for more than one frame where time would be resampled or where
 * the temporal taps are gone; OZ_ERR_ARG for shapes that do not belong together. Takes from the
 * step arena about two feature maps of the largest level, and gives all back.
 */
void oz_qwen_vae_decode(struct oz_exec *x, const struct oz_qwen_vae *m, const struct oz_act *latent,
                        int32_t frames, int32_t h, int32_t w, struct oz_act *out);

/*
 * image: f32 [frames * h * w, 3] in [-1, 1]; h and w are multiples of 2^(levels - 1).
 * moments: f32 [frames * h' * w', 2 * z_dim], h' = h / 2^(levels - 1): means (the mode; a latent is
 * (mean - latents_mean) / latents_std), then log variances. Errors as decode.
 */
void oz_qwen_vae_encode(struct oz_exec *x, const struct oz_qwen_vae *m, const struct oz_act *image,
                        int32_t frames, int32_t h, int32_t w, struct oz_act *moments);

#endif
