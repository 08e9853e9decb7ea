/*
 * pipe/sequence.h: one picture on its way: token ids, text states, latents, schedule, positions. Its
 * device memory is one arena that it brings along and takes away; nothing of it moves.
 */
#ifndef OZ_PIPE_SEQUENCE_H
#define OZ_PIPE_SEQUENCE_H

#include <ounce/status.h>
#include <stdint.h>

#include "base/arena.h"
#include "pipe/pipeline.h"
#include "pipe/task.h"
#include "text/tokenizer.h"

/* With guidance a sequence is a group of two branches that share latents and timestep. */
enum { OZ_BRANCH_POSITIVE, OZ_BRANCH_NEGATIVE, OZ_BRANCH_COUNT };

struct oz_sequence {
    struct oz_task task;
    int32_t index; /* of the request */
    int32_t branches;
    int32_t latent_height, latent_width; /* of the VAE's grid */
    struct oz_grid grid;                 /* in tokens */
    int64_t image_rows;
    int64_t text_rows[OZ_BRANCH_COUNT];
    struct oz_token_list tokens[OZ_BRANCH_COUNT]; /* template and prompt, before the drop */
    float *sigmas;                                /* host [steps + 1] */
    int32_t *mod_rows;                            /* host [steps]: rows of the modulation table */
    int32_t step;                                 /* steps done */

    void *memory; /* device; NULL before it joins */
    struct oz_arena arena;
    struct oz_act latents;               /* [image_rows, in_channels], packed */
    struct oz_act text[OZ_BRANCH_COUNT]; /* [text_rows, text_dim] */
    struct oz_act image_cos, image_sin;
    struct oz_act text_cos[OZ_BRANCH_COUNT], text_sin[OZ_BRANCH_COUNT];
};

/* Starts a sequence in caller's storage: tokenises, makes the schedule. Host memory only. A prompt
 * that is too long is cut, with one warning in the log that quotes the words lost. */
OZ_MUST_USE enum oz_status oz_sequence_init(struct oz_sequence *s, const struct oz_pipeline *p,
                                            const struct oz_task *task, int32_t index,
                                            struct oz_error *err);
void oz_sequence_deinit(struct oz_sequence *s, struct oz_device *dev);

/* Device bytes that joining takes. */
size_t oz_sequence_bytes(const struct oz_sequence *s, const struct oz_pipeline *p);

/* Takes the device memory, draws the first latents from the seed, computes positions. The text
 * states are still to be written (pipe/generate.c). */
OZ_MUST_USE enum oz_status oz_sequence_join(struct oz_sequence *s, const struct oz_pipeline *p,
                                            struct oz_error *err);
/* Gives the device memory back. */
void oz_sequence_leave(struct oz_sequence *s, struct oz_device *dev);

#endif
