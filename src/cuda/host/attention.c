/* attention: which kernel, and outputs that are quantized from f32 rows. */
#include "base/log.h"
#include "cuda/host/cuda.h"

struct course {
    bool tiles; /* bf16 on tensor cores */
    size_t rows[OZ_ATTENTION_SEGMENTS], amax[OZ_ATTENTION_SEGMENTS], total;
};

static bool is_staged(const struct oz_act *out)
{
    return out != NULL && !oz_cuda_plain(&out->spec);
}

static struct course plan_course(const struct oz_device *dev, const struct oz_attention_args *a)
{
    struct course c = {.tiles = !dev->f32_math && a->head_dim % 16 == 0 && a->head_dim <= 512};
    for (int32_t i = 0; i < a->segment_count; i++) {
        const struct oz_act *out = a->segments[i].out;
        bool staged = is_staged(out);
        bool apart = staged && oz_cuda_spans_sequence(&out->spec);
        c.rows[i] = oz_cuda_reserve(&c.total, staged ? out->rows : 0, staged ? out->cols : 0,
                                    sizeof(float));
        c.amax[i] = oz_cuda_reserve(&c.total, apart ? out->rows : 0, 1, sizeof(float));
    }
    return c;
}

size_t oz_cuda_scratch_attention(const struct oz_device *dev, const struct oz_attention_args *a)
{
    return plan_course(dev, a).total;
}

static enum oz_status describe(const struct oz_attention_args *a, struct oz_cuda_attention *d)
{
    *d = (struct oz_cuda_attention){.segment_count = a->segment_count,
                                    .sequences = a->segments[0].rows->count,
                                    .heads = a->heads,
                                    .kv_heads = a->kv_heads,
                                    .head_dim = a->head_dim,
                                    .scale = a->scale,
                                    .mask = a->mask,
                                    .window = a->window,
                                    .sinks = oz_cuda_vector(a->sinks)};
    for (int32_t i = 0; i < a->segment_count; i++) {
        const struct oz_act *parts[3] = {a->segments[i].q, a->segments[i].k, a->segments[i].v};
        struct oz_act *to[3] = {&d->segments[i].q, &d->segments[i].k, &d->segments[i].v};
        for (int j = 0; j < 3; j++) {
            if (parts[j] != NULL && !oz_cuda_plain(&parts[j]->spec)) {
                oz_log(OZ_LOG_ERROR, "dispatch",
                       "attention: q, k and v must be plain F32 or BF16 rows.");
                return OZ_ERR_UNSUPPORTED;
            }
            if (parts[j] != NULL) {
                *to[j] = *parts[j];
            }
        }
        d->segments[i].offsets = a->segments[i].rows->device_offsets;
    }
    if (a->bias != NULL) {
        d->bias = *a->bias;
    }
    if (a->paged != NULL) {
        d->paged_k = *a->paged->k;
        d->paged_v = *a->paged->v;
        d->tables = a->paged->tables;
        d->lengths = a->paged->lengths;
        d->table_stride = a->paged->table_stride;
        d->page_rows = a->paged->page_rows;
    }
    return OZ_OK;
}

static int64_t longest(const struct oz_ragged *r)
{
    int64_t most = 0;
    for (int32_t s = 0; s < r->count; s++) {
        int64_t rows = r->offsets[s + 1] - r->offsets[s];
        most = rows > most ? rows : most;
    }
    return most;
}

/* Rows that waited in f32, to their format. */
static enum oz_status quantize(const struct oz_op_ctx *ctx, const struct oz_act *rows,
                               const struct oz_act *out, const struct oz_ragged *sequences,
                               float *amax)
{
    oz_cuda_stream stream = oz_cuda_stream_of(ctx->dev, ctx->queue);
    bool apart = oz_cuda_spans_sequence(&out->spec);
    if (apart) {
        OZ_TRY(oz_cuda_check(ctx->dev, "attention",
                             oz_launch_amax(stream, rows, out->spec.smooth,
                                            sequences->device_offsets, sequences->count, amax)));
    }
    return oz_cuda_check(ctx->dev, "attention",
                         oz_launch_act_quant(stream, rows, out, rows->rows, NULL, NULL,
                                             apart ? amax : NULL));
}

enum oz_status oz_cuda_attention(const struct oz_op_ctx *ctx, const struct oz_attention_args *a)
{
    struct course c = plan_course(ctx->dev, a);
    oz_cuda_stream stream = oz_cuda_stream_of(ctx->dev, ctx->queue);
    struct oz_cuda_attention d;
    if (a->head_dim > OZ_CUDA_MOST_HEAD) {
        oz_log(OZ_LOG_ERROR, "dispatch", "attention: heads of %d are wider than %d.", a->head_dim,
               OZ_CUDA_MOST_HEAD);
        return OZ_ERR_UNSUPPORTED;
    }
    OZ_TRY(describe(a, &d));
    for (int32_t i = 0; i < a->segment_count; i++) {
        const struct oz_act *out = a->segments[i].out;
        if (a->segments[i].q == NULL) {
            continue;
        }
        d.asking = i;
        d.most_queries = longest(a->segments[i].rows);
        d.segments[i].out = *out;
        if (is_staged(out)) {
            d.segments[i].out = (struct oz_act){.data = oz_cuda_at(ctx, c.rows[i]),
                                                .rows = out->rows,
                                                .cols = out->cols,
                                                .stride = out->cols,
                                                .spec = {.dtype = OZ_DTYPE_F32}};
        }
        OZ_TRY(oz_cuda_check(ctx->dev, "attention",
                             c.tiles ? oz_launch_attention_bf16(stream, &d)
                                     : oz_launch_attention_f32(stream, &d)));
        if (is_staged(out)) {
            OZ_TRY(quantize(ctx, &d.segments[i].out, out, a->segments[i].rows,
                            oz_cuda_at(ctx, c.amax[i])));
        }
    }
    return OZ_OK;
}
