/*
 * pipe/stages.h: what a sequence goes through besides its steps: prompts to text states before them,
 * latents to a picture after them. The same code measures and runs. Used by generate.c, which draws a
 * list, and by the batcher, which serves.
 */
#ifndef OZ_PIPE_STAGES_H
#define OZ_PIPE_STAGES_H

#include <ounce/status.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/exec.h"
#include "pipe/pipeline.h"
#include "pipe/sequence.h"

/* Of the VAE's latents, by channel: device [z_dim] each. */
struct oz_latent_scale {
    float *scale, *shift;
};

/* Takes their memory, and (RUN) fills it. */
OZ_MUST_USE enum oz_status oz_latent_scale_init(struct oz_latent_scale *l,
                                                const struct oz_pipeline *p,
                                                struct oz_arena *arena);
void oz_latent_scale_fill(struct oz_exec *x, const struct oz_latent_scale *l,
                          const struct oz_pipeline *p);

/* Shapes of a sequence that has not joined yet, for measuring: addresses that are not followed. */
void oz_stage_sketch(struct oz_sequence *s, const struct oz_pipeline *p);

/* Waits for what an exec was given; its status. */
OZ_MUST_USE enum oz_status oz_stage_finish(struct oz_exec *x);

/* Host bytes that oz_stage_text stages a sequence's inputs in. */
size_t oz_stage_text_host_bytes(const struct oz_sequence *s, const struct oz_pipeline *p);

/* Encodes one branch's tokens and writes the kept rows to the sequence. `host` (not read in MEASURE)
 * must stay until the device has been waited for. */
void oz_stage_text(struct oz_exec *x, const struct oz_pipeline *p, struct oz_sequence *s,
                   int branch, void *host);

/* Latents to pixels [height * width, 3], nominally in [-1, 1], in the step arena; MEASURE and RUN. */
void oz_stage_decode(struct oz_exec *x, const struct oz_pipeline *p, const struct oz_sequence *s,
                     const struct oz_latent_scale *scale, struct oz_act *pixels);

/* Decodes and waits. *picture: fresh host memory (oz_free), f32 [3, height, width] in 0..1; values that
 * are no numbers become 0 and are told to the log. NULL after a failure, among them OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_stage_draw(struct oz_exec *x, const struct oz_pipeline *p,
                                         const struct oz_sequence *s,
                                         const struct oz_latent_scale *scale, float **picture);

/* Cells of the VAE's grid that a preview of the sequence has: of the picture's, or fewer, so that no side
 * has more than 16. */
void oz_stage_preview_size(const struct oz_sequence *s, int32_t *height, int32_t *width);

/* Pixels of so many cells, which are averages of the latents, in MEASURE. */
void oz_stage_measure_preview(struct oz_exec *x, const struct oz_pipeline *p,
                              const struct oz_sequence *s);

/* A rough picture of latents as they are, which stay as they are: averaged, decoded, waited for.
 * *picture as of oz_stage_draw, *height and *width in pixels. */
OZ_MUST_USE enum oz_status oz_stage_preview(struct oz_exec *x, const struct oz_pipeline *p,
                                            const struct oz_sequence *s, float **picture,
                                            int32_t *height, int32_t *width);

/* Bytes of a finished picture; oz_stage_draw holds it twice while it works. */
size_t oz_stage_picture_bytes(const struct oz_task *t);

/* [-1, 1] channel-last [count, 3] to 0..1 channel-first. Returns how many values are no numbers. */
int64_t oz_stage_to_picture(const float *pixels, int64_t count, float *picture);

#endif
