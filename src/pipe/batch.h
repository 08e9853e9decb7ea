/*
 * pipe/batch.h: the ragged batch: sequences of different sizes at different steps, one forward for
 * all; where a scheme has another activation mode in some steps, one for each stretch of members that
 * are in the same mode. What they need together (text states, positions, indices) is copied into the plan arena when
 * the composition changes; between changes a step allocates nothing.
 */
#ifndef OZ_PIPE_BATCH_H
#define OZ_PIPE_BATCH_H

#include <ounce/status.h>
#include <stdint.h>

#include "ops/exec.h"
#include "pipe/pipeline.h"
#include "pipe/sequence.h"

/* Called after a step's prediction and before anything is combined (RUN only): the conditional
 * velocity of a sequence, and then its latents after the step; each may be NULL. Device memory. For
 * parity tests. */
struct oz_batch_hooks {
    void (*prediction)(void *ctx, const struct oz_sequence *s, const struct oz_act *velocity);
    void (*latents)(void *ctx, const struct oz_sequence *s, const struct oz_act *latents);
    void *ctx;
};

/* A composition laid out: host arrays belong to the batch, device arrays to the plan arena. */
struct oz_batch {
    const struct oz_pipeline *pipeline;
    const struct oz_qwen_image_mod *mod; /* borrowed */
    const struct oz_batch_hooks *hooks;  /* borrowed; may be NULL */
    int32_t capacity;                    /* sequences */
    struct oz_sequence **members;        /* [capacity] */
    int32_t count;

    int32_t *host;                         /* one allocation for the host arrays below */
    int32_t *image_offsets, *text_offsets; /* [2 capacity + 1] */
    int32_t *image_mod, *text_mod;         /* [rows of the largest composition] */
    int32_t *part_offsets;                 /* [8 capacity]: offsets of parts, from 0 */
    float *factors;                        /* [2 capacity] */
    int64_t max_image_rows, max_text_rows;

    struct oz_qwen_image_batch forward; /* views of device memory */
    struct oz_act text_states, image_cos, image_sin, text_cos, text_sin;
    int32_t *device_image_mod, *device_text_mod;
    int32_t *device_part_offsets; /* as part_offsets; NULL without fallback steps */
    float *device_factors;
};

/* Host memory for compositions of at most `capacity` sequences and so many rows (all branches
 * counted). OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_batch_init(struct oz_batch *b, const struct oz_pipeline *p,
                                         int32_t capacity, int64_t max_image_rows,
                                         int64_t max_text_rows, struct oz_error *err);
void oz_batch_deinit(struct oz_batch *b);

/* Makes the given sequences the composition. `plan` is the part of the plan arena that is the
 * composition's own; it is filled from its start. In MEASURE (exec x) nothing is copied. */
void oz_batch_compose(struct oz_exec *x, struct oz_batch *b, struct oz_sequence *const *members,
                      int32_t count, struct oz_arena *plan);

/* One step of every member: forward, guidance, solver. Advances their `step`. */
void oz_batch_step(struct oz_exec *x, struct oz_batch *b);

#endif
