/*
 * pipe/random_model.h: writes a complete model of the Qwen-Image family in the diffusers layout, of
 * any size, with random weights from a seed: for tests of speed and memory on shapes of real models,
 * and for peers that open the same folder.
 *
 * Values. Every parameter is bf16. Its numbers depend on the seed and the parameter's name alone.
 *  - weights of linears and convolutions: N(0, 1) / sqrt(fan-in), where the fan-in of a causal 3-D
 *    convolution leaves its temporal taps out, since a single frame meets only the last one;
 *  - embeddings: N(0, 1); norm weights (gamma): 1; biases: 0.02 N(0, 1).
 * So activations stay of order one at any width and depth: what a norm or an input of variance one
 * feeds comes out with variance one; silu and gelu make it 0.36 and 0.43; modulation, behind two
 * silus, comes out at about 0.2, so that a gated branch adds a few hundredths to the residual's
 * variance.
 *
 * N(0, 1) are 32768 draws of num/randn.h and their negatives, picked by 16 bits each of a splitmix64
 * sequence: exact, symmetric, up to 4.3.
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
