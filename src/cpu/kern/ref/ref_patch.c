/* patch, unpatch: pictures to tokens and back. */
#include "cpu/kern/ref/ref.h"

struct shape {
    enum oz_patch_order order;
    int64_t channels, frames, height, width, patch;
};

/* Token row and feature of a pixel's channel. */
static void locate(const struct shape *s, int64_t c, int64_t f, int64_t y, int64_t x, int64_t *row,
                   int64_t *feature)
{
    int64_t p = s->patch;
    int64_t dy = y % p;
    int64_t dx = x % p;
    *row = (f * (s->height / p) + y / p) * (s->width / p) + x / p;
    *feature = 0;
    switch (s->order) {
    case OZ_PATCH_CYX: *feature = (c * p + dy) * p + dx; break;
    case OZ_PATCH_YXC: *feature = (dy * p + dx) * s->channels + c; break;
    case OZ_PATCH_CXY: *feature = (c * p + dx) * p + dy; break;
    }
}

struct patch_job {
    const struct oz_patch_args *a;
    struct shape s;
};

struct unpatch_job {
    const struct oz_unpatch_args *a;
    struct shape s;
};

/* Tasks of both: lines (channel, frame, y) of the picture. */
static void patch_lines(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct patch_job *job = ctx;
    const struct shape *s = &job->s;
    (void)thread;
    for (int64_t line = begin; line < end; line++) {
        for (int64_t x = 0; x < s->width; x++) {
            int64_t row;
            int64_t feature;
            locate(s, line / s->height / s->frames, line / s->height % s->frames, line % s->height,
                   x, &row, &feature);
            oz_ref_store(job->a->tokens, row, feature, 1, job->a->picture + line * s->width + x);
        }
    }
}

static void unpatch_lines(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct unpatch_job *job = ctx;
    const struct oz_unpatch_args *a = job->a;
    const struct shape *s = &job->s;
    (void)thread;
    for (int64_t line = begin; line < end; line++) {
        int64_t c = line / s->height / s->frames;
        int64_t f = line / s->height % s->frames;
        int64_t y = line % s->height;
        float scale = a->channel_scale != NULL ? a->channel_scale[c] : 1.0F;
        float shift = a->channel_shift != NULL ? a->channel_shift[c] : 0.0F;
        for (int64_t x = 0; x < s->width; x++) {
            int64_t row;
            int64_t feature;
            int64_t pixel = (f * s->height + y) * s->width + x;
            float value;
            locate(s, c, f, y, x, &row, &feature);
            oz_ref_load(a->tokens, row, feature, 1, &value);
            value = a->channel_scale != NULL ? value * scale : value;
            value = a->channel_shift != NULL ? value + shift : value;
            oz_ref_store(a->out, a->channel_last ? pixel : c, a->channel_last ? c : pixel, 1,
                         &value);
        }
    }
}

enum oz_status oz_patch_f32__scalar(const struct oz_op_ctx *ctx, const struct oz_patch_args *a)
{
    struct patch_job job = {
        .a = a,
        .s = {a->order, a->channels, a->frames, a->height, a->width, a->patch},
    };
    OZ_TRY(oz_ref_begin(ctx, 0));
    OZ_TRY(oz_ref_check_act("patch", a->tokens));
    oz_pool_for(ctx->dev->pool, job.s.channels * job.s.frames * job.s.height,
                oz_ref_grain(job.s.width), patch_lines, &job);
    return OZ_OK;
}

enum oz_status oz_unpatch_f32__scalar(const struct oz_op_ctx *ctx, const struct oz_unpatch_args *a)
{
    struct unpatch_job job = {
        .a = a,
        .s = {a->order, a->channels, a->frames, a->height, a->width, a->patch},
    };
    OZ_TRY(oz_ref_begin(ctx, 0));
    OZ_TRY(oz_ref_check_act("unpatch", a->tokens));
    OZ_TRY(oz_ref_check_act("unpatch", a->out));
    oz_pool_for(ctx->dev->pool, job.s.channels * job.s.frames * job.s.height,
                oz_ref_grain(job.s.width), unpatch_lines, &job);
    return OZ_OK;
}
