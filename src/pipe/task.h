/*
 * pipe/task.h: one picture to draw, with every default filled in and every bound checked.
 */
#ifndef OZ_PIPE_TASK_H
#define OZ_PIPE_TASK_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "pipe/pipeline.h"

#define OZ_TASK_MAX_SIDE 16384
#define OZ_TASK_MAX_STEPS 10000
#define OZ_TASK_MAX_SCALE 1000.0
/* Of a prompt. No model reads so much, and both prompts, escaped, fit the picture's metadata. */
#define OZ_TASK_MAX_TEXT_BYTES ((size_t)256 << 10)

/* Strings are borrowed. Zero and NULL mean "the model's", as in struct oz_image_request. */
struct oz_task {
    const char *prompt, *negative_prompt;
    int32_t width, height, steps;
    double scale; /* true CFG; at most 1: off */
    uint64_t seed;
};

static inline bool oz_task_has_cfg(const struct oz_task *t)
{
    return t->scale > 1.0;
}

/* Fills defaults and checks. OZ_ERR_ARG names the value, its bounds and the nearest valid one;
 * `index` (from 1; 0: do not say) is the request's place in the call. */
OZ_MUST_USE enum oz_status oz_task_resolve(struct oz_task *t, const struct oz_pipeline *p,
                                           int32_t index, struct oz_error *err);

#endif
