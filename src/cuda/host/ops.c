/* The operator table: arguments as kernels take them. */
#include <string.h>

#include "base/log.h"
#include "cuda/host/cuda.h"

#define SCRATCH_ALIGN 256

size_t oz_cuda_reserve(size_t *total, int64_t rows, int64_t cols, size_t size)
{
    size_t offset = *total;
    int64_t count;
    size_t bytes;
    if (rows < 0 || cols < 0 || __builtin_mul_overflow(rows, cols, &count) ||
        __builtin_mul_overflow((size_t)count, size, &bytes) || bytes > SIZE_MAX - SCRATCH_ALIGN ||
        __builtin_add_overflow(*total, (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN,
                               total)) {
        *total = SIZE_MAX;
    }
    return offset;
}

static oz_cuda_stream stream_of(const struct oz_op_ctx *ctx)
{
    return oz_cuda_stream_of(ctx->dev, ctx->queue);
}

/* ---- rows whose second scale spans a sequence ---- */

static size_t apart_bytes(const struct oz_act *out)
{
    size_t total = 0;
    if (out != NULL && oz_cuda_spans_sequence(&out->spec)) {
        (void)oz_cuda_reserve(&total, out->rows, out->cols, sizeof(float));
        (void)oz_cuda_reserve(&total, out->rows, 1, sizeof(float));
    }
    return total;
}

static struct oz_act apart_rows(const struct oz_op_ctx *ctx, const struct oz_act *out)
{
    return (struct oz_act){.data = ctx->scratch,
                           .rows = out->rows,
                           .cols = out->cols,
                           .stride = out->cols,
                           .spec = {.dtype = OZ_DTYPE_F32}};
}

static enum oz_status quantize_apart(const struct oz_op_ctx *ctx, const char *what,
                                     const struct oz_act *rows, const struct oz_act *out,
                                     const struct oz_ragged *sequences)
{
    size_t at = 0;
    (void)oz_cuda_reserve(&at, out->rows, out->cols, sizeof(float));
    float *amax = oz_cuda_at(ctx, at);
    OZ_TRY(oz_cuda_check(ctx->dev, what,
                         oz_launch_amax(stream_of(ctx), rows, out->spec.smooth,
                                        sequences != NULL ? sequences->device_offsets : NULL,
                                        sequences != NULL ? sequences->count : 0, amax)));
    return oz_cuda_check(
        ctx->dev, what,
        oz_launch_act_quant(stream_of(ctx), rows, out, rows->rows, NULL, NULL, amax));
}

static enum oz_status refuse(const char *op, const char *problem)
{
    oz_log(OZ_LOG_ERROR, "dispatch", "%s: %s.", op, problem);
    return OZ_ERR_UNSUPPORTED;
}

/* ---- operators ---- */

static enum oz_status run_embed(const struct oz_op_ctx *ctx, const struct oz_embed_args *a)
{
    struct oz_cuda_weight w;
    if (!oz_cuda_weight_of(&a->table->weight, &w) || w.codes == NULL) {
        return refuse("embed", "the table's codec is not known to this device");
    }
    bool apart = oz_cuda_spans_sequence(&a->out->spec);
    struct oz_act rows = apart ? apart_rows(ctx, a->out) : *a->out;
    OZ_TRY(oz_cuda_check(ctx->dev, "embed",
                         oz_launch_embed(stream_of(ctx), &w, a->ids, a->scale, &rows)));
    return apart ? quantize_apart(ctx, "embed", &rows, a->out, NULL) : OZ_OK;
}

static enum oz_status run_norm_mod(const struct oz_op_ctx *ctx, const struct oz_norm_mod_args *a)
{
    struct oz_cuda_norm_mod d = {.x = *a->x,
                                 .mul_fn = a->mul_fn,
                                 .fn = a->fn,
                                 .norm = a->norm,
                                 .eps = a->eps,
                                 .weight = oz_cuda_vector(a->weight),
                                 .bias = oz_cuda_vector(a->bias),
                                 .weight_plus_one = a->weight_plus_one,
                                 .gate = oz_cuda_mod_of(&a->gate),
                                 .scale = oz_cuda_mod_of(&a->scale),
                                 .shift = oz_cuda_mod_of(&a->shift),
                                 .index = a->mod_index};
    bool apart = a->out != NULL && oz_cuda_spans_sequence(&a->out->spec);
    if (a->out != NULL && oz_cuda_act_problem(&a->out->spec) != NULL) {
        return refuse("norm_mod", oz_cuda_act_problem(&a->out->spec));
    }
    if (a->y != NULL) {
        d.y = *a->y;
    }
    if (a->mul != NULL) {
        d.mul = *a->mul;
    }
    if (a->out != NULL) {
        d.out = apart ? apart_rows(ctx, a->out) : *a->out;
    }
    OZ_TRY(oz_cuda_check(ctx->dev, "norm_mod", oz_launch_norm_mod(stream_of(ctx), &d)));
    return apart ? quantize_apart(ctx, "norm_mod", &d.out, a->out, a->sequences) : OZ_OK;
}

static enum oz_status run_qk_norm_rope(const struct oz_op_ctx *ctx,
                                       const struct oz_qk_norm_rope_args *a)
{
    if (a->head_dim > 1024) {
        return refuse("qk_norm_rope", "heads are wider than 1024");
    }
    return oz_cuda_check(ctx->dev, "qk_norm_rope",
                         oz_launch_qk_norm_rope(stream_of(ctx), a, oz_cuda_vector(a->weight)));
}

static size_t amax_bytes(const struct oz_act_quant_args *a)
{
    size_t total = 0;
    if (oz_cuda_spans_sequence(&a->out->spec)) {
        (void)oz_cuda_reserve(&total, a->x->rows, 1, sizeof(float));
    }
    return total;
}

static enum oz_status run_act_quant(const struct oz_op_ctx *ctx, const struct oz_act_quant_args *a)
{
    bool apart = oz_cuda_spans_sequence(&a->out->spec);
    if (oz_cuda_act_problem(&a->out->spec) != NULL) {
        return refuse("act_quant", oz_cuda_act_problem(&a->out->spec));
    }
    if (apart) {
        OZ_TRY(oz_cuda_check(
            ctx->dev, "act_quant",
            oz_launch_amax(stream_of(ctx), a->x, a->out->spec.smooth,
                           a->sequences != NULL ? a->sequences->device_offsets : NULL,
                           a->sequences != NULL ? a->sequences->count : 0, ctx->scratch)));
    }
    return oz_cuda_check(ctx->dev, "act_quant",
                         oz_launch_act_quant(stream_of(ctx), a->x, a->out, a->rows, a->x_rows,
                                             a->out_rows, apart ? ctx->scratch : NULL));
}

static enum oz_status run_resample(const struct oz_op_ctx *ctx, const struct oz_resample_args *a)
{
    return oz_cuda_check(ctx->dev, "resample", oz_launch_resample(stream_of(ctx), a));
}

static enum oz_status run_patch(const struct oz_op_ctx *ctx, const struct oz_patch_args *a)
{
    return oz_cuda_check(ctx->dev, "patch", oz_launch_patch(stream_of(ctx), a));
}

static enum oz_status run_unpatch(const struct oz_op_ctx *ctx, const struct oz_unpatch_args *a)
{
    return oz_cuda_check(ctx->dev, "unpatch", oz_launch_unpatch(stream_of(ctx), a));
}

static enum oz_status run_cfg_combine(const struct oz_op_ctx *ctx,
                                      const struct oz_cfg_combine_args *a)
{
    return oz_cuda_check(ctx->dev, "cfg_combine", oz_launch_cfg_combine(stream_of(ctx), a));
}

static enum oz_status run_sched_step(const struct oz_op_ctx *ctx,
                                     const struct oz_sched_step_args *a)
{
    return oz_cuda_check(ctx->dev, "sched_step", oz_launch_sched_step(stream_of(ctx), a));
}

/* Only the largest logit: what draws lies in device memory and cannot be seen here, so such rows get
 * -1. */
static enum oz_status run_sample(const struct oz_op_ctx *ctx, const struct oz_sample_args *a)
{
    return oz_cuda_check(ctx->dev, "sample", oz_launch_argmax(stream_of(ctx), a));
}

static enum oz_status run_route(const struct oz_op_ctx *ctx, const struct oz_route_args *a)
{
    (void)ctx;
    (void)a;
    return refuse("route", "experts do not run on this device yet; use --device cpu");
}

static enum oz_status run_experts(const struct oz_op_ctx *ctx, const struct oz_experts_args *a)
{
    (void)ctx;
    (void)a;
    return refuse("experts", "experts do not run on this device yet; use --device cpu");
}

static size_t scratch_bytes(const struct oz_device *dev, enum oz_op op, const void *args)
{
    switch (op) {
    case OZ_OP_LINEAR: return oz_cuda_scratch_linear(dev, args);
    case OZ_OP_TIME_EMBED: return oz_cuda_scratch_time_embed(dev, args);
    case OZ_OP_CONV: return oz_cuda_scratch_conv(dev, args);
    case OZ_OP_ATTENTION: return oz_cuda_scratch_attention(dev, args);
    case OZ_OP_ACT_QUANT: return amax_bytes(args);
    case OZ_OP_EMBED: return apart_bytes(((const struct oz_embed_args *)args)->out);
    case OZ_OP_NORM_MOD: return apart_bytes(((const struct oz_norm_mod_args *)args)->out);
    default: return 0;
    }
}

/* A device for planning runs nothing; the current device is the thread's own. */
#define RUN(name, id, type, inner)                                              \
    static enum oz_status name(const struct oz_op_ctx *ctx, const type *a)      \
    {                                                                           \
        if (ctx->dev->plan_only) {                                              \
            return OZ_ERR_DEVICE;                                               \
        }                                                                       \
        if (ctx->scratch_bytes < scratch_bytes(ctx->dev, id, a)) {              \
            return OZ_ERR_INTERNAL;                                             \
        }                                                                       \
        OZ_TRY(oz_cuda_check(ctx->dev, "choosing the device",                   \
                             (int)cudaSetDevice(oz_cuda_of(ctx->dev)->index))); \
        return inner(ctx, a);                                                   \
    }
RUN(embed, OZ_OP_EMBED, struct oz_embed_args, run_embed)
RUN(linear, OZ_OP_LINEAR, struct oz_linear_args, oz_cuda_linear)
RUN(route, OZ_OP_ROUTE, struct oz_route_args, run_route)
RUN(experts, OZ_OP_EXPERTS, struct oz_experts_args, run_experts)
RUN(attention, OZ_OP_ATTENTION, struct oz_attention_args, oz_cuda_attention)
RUN(norm_mod, OZ_OP_NORM_MOD, struct oz_norm_mod_args, run_norm_mod)
RUN(qk_norm_rope, OZ_OP_QK_NORM_ROPE, struct oz_qk_norm_rope_args, run_qk_norm_rope)
RUN(act_quant, OZ_OP_ACT_QUANT, struct oz_act_quant_args, run_act_quant)
RUN(conv, OZ_OP_CONV, struct oz_conv_args, oz_cuda_conv)
RUN(resample, OZ_OP_RESAMPLE, struct oz_resample_args, run_resample)
RUN(time_embed, OZ_OP_TIME_EMBED, struct oz_time_embed_args, oz_cuda_time_embed)
RUN(patch, OZ_OP_PATCH, struct oz_patch_args, run_patch)
RUN(unpatch, OZ_OP_UNPATCH, struct oz_unpatch_args, run_unpatch)
RUN(cfg_combine, OZ_OP_CFG_COMBINE, struct oz_cfg_combine_args, run_cfg_combine)
RUN(sched_step, OZ_OP_SCHED_STEP, struct oz_sched_step_args, run_sched_step)
RUN(sample, OZ_OP_SAMPLE, struct oz_sample_args, run_sample)

/* What encode.c does not encode on the device while it is loaded. */
static const struct oz_encoder *find_encoder(const struct oz_device *dev,
                                             const struct oz_codec *codec, enum oz_dtype stored)
{
    (void)dev;
    return oz_cuda_host->find_encoder(codec, stored);
}

const struct oz_op_table oz_cuda_operators = {
    .scratch_bytes = scratch_bytes,
    .plan_param = oz_cuda_plan_param,
    .act_support = oz_cuda_act_support,
    .pack_band = oz_cuda_pack_band,
    .find_encoder = find_encoder,
    .row_encoder = oz_cuda_row_encoder,
    .encode_rows = oz_cuda_encode_rows,
    .draw = oz_cuda_draw,
    .embed = embed,
    .linear = linear,
    .route = route,
    .experts = experts,
    .attention = attention,
    .norm_mod = norm_mod,
    .qk_norm_rope = qk_norm_rope,
    .act_quant = act_quant,
    .conv = conv,
    .resample = resample,
    .time_embed = time_embed,
    .patch = patch,
    .unpatch = unpatch,
    .cfg_combine = cfg_combine,
    .sched_step = sched_step,
    .sample = sample,
};
