#include "pipe/task.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/unicode.h"

/* "" or "Request 3: ", in caller's storage. */
static const char *place(int32_t index, char text[32])
{
    text[0] = '\0';
    if (index > 0) {
        (void)snprintf(text, 32, "Request %d: ", index);
    }
    return text;
}

static enum oz_status check_side(const char *where, const char *what, int32_t side,
                                 int32_t multiple, struct oz_error *err)
{
    if (side < multiple || side > OZ_TASK_MAX_SIDE) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%sthe %s is %d; it must lie in %d to %d.", where, what,
                       side, multiple, OZ_TASK_MAX_SIDE);
    }
    if (side % multiple != 0) {
        int32_t below = side / multiple * multiple;
        int32_t above = below + multiple;
        if (above > OZ_TASK_MAX_SIDE) {
            above = below;
        }
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%sthe %s is %d; it must be a multiple of %d. The nearest is %d.", where,
                       what, side, multiple, side - below < above - side ? below : above);
    }
    return OZ_OK;
}

static enum oz_status check_text(const char *where, const char *what, const char *text,
                                 struct oz_error *err)
{
    size_t at;
    if (strlen(text) > OZ_TASK_MAX_TEXT_BYTES) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%sthe %s has %zu bytes; it must have %zu or less.", where,
                       what, strlen(text), OZ_TASK_MAX_TEXT_BYTES);
    }
    if (!oz_utf8_valid(text, strlen(text), &at)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%sthe %s is not valid UTF-8 at byte %zu.", where, what,
                       at);
    }
    return OZ_OK;
}

static enum oz_status resolve(struct oz_task *t, const struct oz_pipeline *p, int32_t index,
                              struct oz_error *err)
{
    char text[32];
    const char *where = place(index, text);
    const struct oz_pipeline_defaults *d = &p->defaults;
    if (t->prompt == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%sthere is no prompt.", where);
    }
    t->width = t->width != 0 ? t->width : d->width;
    t->height = t->height != 0 ? t->height : d->height;
    t->steps = t->steps != 0 ? t->steps : d->num_inference_steps;
    t->scale = t->scale != 0.0 ? t->scale : d->true_cfg_scale;
    t->negative_prompt = t->negative_prompt != NULL ? t->negative_prompt : d->negative_prompt;
    OZ_TRY(check_text(where, "prompt", t->prompt, err));
    OZ_TRY(check_text(where, "negative prompt", t->negative_prompt, err));
    int32_t multiple = oz_pipeline_size_multiple(p);
    OZ_TRY(check_side(where, "width", t->width, multiple, err));
    OZ_TRY(check_side(where, "height", t->height, multiple, err));
    if (t->steps < 1 || t->steps > OZ_TASK_MAX_STEPS) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%sthe number of steps is %d; it must lie in 1 to %d.",
                       where, t->steps, OZ_TASK_MAX_STEPS);
    }
    if (!isfinite(t->scale) || t->scale < 0 || t->scale > OZ_TASK_MAX_SCALE) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%sthe guidance scale is %g; it must lie in 0 to %g (1 and less: off).",
                       where, t->scale, OZ_TASK_MAX_SCALE);
    }
    return OZ_OK;
}

enum oz_status oz_task_resolve(struct oz_task *t, const struct oz_pipeline *p, int32_t index,
                               struct oz_error *err)
{
    enum oz_status status = resolve(t, p, index, err);
    if (status != OZ_OK && err != NULL && err->message[0] == 't') {
        err->message[0] =
            'T'; /* "the width is ..." without "Request 2: " in front begins a sentence */
    }
    return status;
}
