#include "cpu/stage.h"

#include "cpu/kern/ref/ref.h"
#include "cpu/kernel.h"

/* Outputs of one call that wait in f32, and the arguments with them in place of the real ones. */
struct stage {
    union {
        struct oz_embed_args embed;
        struct oz_linear_args linear;
        struct oz_experts_args experts;
        struct oz_attention_args attention;
        struct oz_norm_mod_args norm_mod;
    } args;
    int count;
    struct oz_act rows[OZ_ATTENTION_SEGMENTS]; /* data is an offset into scratch until bound */
    struct oz_act *out[OZ_ATTENTION_SEGMENTS];
    const struct oz_ragged *sequences[OZ_ATTENTION_SEGMENTS];
    size_t offsets[OZ_ATTENTION_SEGMENTS];
    size_t total; /* of the rows */
};

/* Takes *out's place when the format is not plain. */
static void divert(struct stage *s, struct oz_act **out, const struct oz_ragged *sequences)
{
    struct oz_act *real = *out;
    if (real == NULL || oz_ref_is_plain(&real->spec)) {
        return;
    }
    int i = s->count++;
    s->out[i] = real;
    s->sequences[i] = sequences;
    s->rows[i] = (struct oz_act){
        .rows = real->rows, .cols = real->cols, .stride = real->cols, .spec.dtype = OZ_DTYPE_F32};
    s->offsets[i] = oz_ref_reserve(&s->total, oz_ref_times(real->rows, real->cols), sizeof(float));
    *out = &s->rows[i];
}

/* Fills s; nothing is staged when s->count stays 0. s must not move afterwards. */
static void open_stage(struct stage *s, enum oz_op op, const void *args)
{
    s->count = 0;
    s->total = 0;
    switch (op) {
    case OZ_OP_EMBED:
        s->args.embed = *(const struct oz_embed_args *)args;
        divert(s, &s->args.embed.out, NULL);
        break;
    case OZ_OP_LINEAR:
        s->args.linear = *(const struct oz_linear_args *)args;
        divert(s, &s->args.linear.out, s->args.linear.sequences);
        break;
    case OZ_OP_EXPERTS:
        s->args.experts = *(const struct oz_experts_args *)args;
        divert(s, &s->args.experts.out, s->args.experts.sequences);
        break;
    case OZ_OP_NORM_MOD:
        s->args.norm_mod = *(const struct oz_norm_mod_args *)args;
        divert(s, &s->args.norm_mod.out, s->args.norm_mod.sequences);
        break;
    case OZ_OP_ATTENTION:
        s->args.attention = *(const struct oz_attention_args *)args;
        for (int32_t i = 0; i < s->args.attention.segment_count; i++) {
            divert(s, &s->args.attention.segments[i].out, s->args.attention.segments[i].rows);
        }
        break;
    default: break;
    }
}

static struct oz_act_quant_args quantization(struct stage *s, int i)
{
    return (struct oz_act_quant_args){
        .x = &s->rows[i], .out = s->out[i], .rows = s->rows[i].rows, .sequences = s->sequences[i]};
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t oz_stage_scratch(const struct oz_device *dev, enum oz_op op, const void *args)
{
    struct stage s;
    open_stage(&s, op, args);
    const void *inner = s.count > 0 ? &s.args : args;
    size_t bytes = oz_cpu_pick(dev, op, inner)->scratch(dev, inner);
    for (int i = 0; i < s.count; i++) {
        struct oz_act_quant_args q = quantization(&s, i);
        bytes = larger(bytes, oz_cpu_pick(dev, OZ_OP_ACT_QUANT, &q)->scratch(dev, &q));
    }
    return bytes == SIZE_MAX || __builtin_add_overflow(bytes, s.total, &bytes) ? SIZE_MAX : bytes;
}

enum oz_status oz_stage_run(const struct oz_op_ctx *ctx, enum oz_op op, const void *args)
{
    struct stage s;
    struct oz_op_ctx inner = *ctx;
    open_stage(&s, op, args);
    if (s.count == 0) {
        return oz_cpu_pick(ctx->dev, op, args)->run(ctx, args);
    }
    OZ_TRY(oz_ref_begin(ctx, s.total));
    for (int i = 0; i < s.count; i++) {
        OZ_TRY(oz_ref_check_quantized(oz_cpu_op_name(op), s.out[i]));
        s.rows[i].data = oz_ref_at(ctx, s.offsets[i]);
    }
    inner.scratch = oz_ref_at(ctx, s.total);
    inner.scratch_bytes -= s.total;
    OZ_TRY(oz_cpu_pick(ctx->dev, op, &s.args)->run(&inner, &s.args));
    for (int i = 0; i < s.count; i++) {
        struct oz_act_quant_args q = quantization(&s, i);
        OZ_TRY(oz_cpu_pick(ctx->dev, OZ_OP_ACT_QUANT, &q)->run(&inner, &q));
    }
    return OZ_OK;
}

const char *oz_stage_reject(const struct oz_act_spec *spec)
{
    return oz_ref_act_problem(spec);
}
