/*
 * pipe/random_model.h: writes a complete model of the Qwen-Image family in the diffusers layout, of
 * any size, with random weights from a seed: for tests of speed and memory on shapes of real models,
 * and for peers that open the same folder.
 *
 * Values. Every parameter is bf16, filled as pipe/filling.h says; its numbers depend on the seed and the
 * parameter's name alone.
 */
#ifndef OZ_PIPE_RANDOM_MODEL_H
#define OZ_PIPE_RANDOM_MODEL_H

#include <ounce/status.h>
#include <stdint.h>

/* 0 and NULL: as `like` has it. */
struct oz_random_model {
    const char *like; /* "emoji" (NULL too) or "qwen-image": whose sizes */
    int32_t layers, heads, head_dim, text_layers, vae_base_dim;
    uint64_t seed;
    int64_t max_shard_bytes; /* 0: 4 GiB */
    oz_progress_fn progress; /* in bytes; NULL: none */
    void *progress_ctx;
};

/*
 * Writes the model into a folder, which is made. The tokenizer is the bundled model's. Holds one
 * buffer, not a tensor. model_index.json comes last: without it the folder is no model.
 * OZ_ERR_ARG: a size that the family does not have, or the folder holds a model already; OZ_ERR_IO;
 * OZ_ERR_NOMEM; OZ_ERR_NO_MODEL: the bundled model is missing; OZ_ERR_CANCELLED.
 */
OZ_MUST_USE enum oz_status
oz_random_model_write(const char *folder, const struct oz_random_model *m, struct oz_error *err);

#endif
