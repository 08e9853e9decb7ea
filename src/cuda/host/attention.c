/* attention: which kernel, and outputs that are quantized from f32 rows. */
#include "base/log.h"
#include "cuda/host/cuda.h"

#define SDPA_LEAST 512 /* keys of a sequence from which cuDNN does it */

struct course {
    bool tiles;            /* bf16 on tensor cores */
    bool sdpa;             /* some sequence is long enough for cuDNN */
    int64_t queries, keys; /* of the longest sequence, rounded up */
    size_t q, k, v, out, lengths;
    size_t rows[OZ_ATTENTION_SEGMENTS], amax[OZ_ATTENTION_SEGMENTS], total;
};

static bool is_staged(const struct oz_act *out)
{
    return out != NULL && !oz_cuda_plain(&out->spec);
}

/* Rows of a sequence in the segments that ask, or that offer keys. */
static int64_t joined_rows(const struct oz_attention_args *a, int32_t sequence, bool queries)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < a->segment_count; i++) {
        const int32_t *offsets = a->segments[i].rows->offsets;
        bool there = queries ? a->segments[i].q != NULL : a->segments[i].k != NULL;
        rows += there ? offsets[sequence + 1] - offsets[sequence] : 0;
    }
    return rows;
}

/* Can cuDNN's operation do this at all? */
static bool suits_sdpa(const struct oz_device *dev, const struct oz_attention_args *a)
{
    bool suits = oz_cuda_of(dev)->untried && !dev->f32_math && a->mask == OZ_MASK_NONE &&
                 a->paged == NULL && a->bias == NULL && !oz_cuda_exists(a->sinks) &&
                 a->heads == a->kv_heads && (a->head_dim == 64 || a->head_dim == 128);
    for (int32_t i = 0; i < a->segment_count; i++) {
        const struct oz_act *out = a->segments[i].out;
        suits = suits && (out == NULL || !oz_cuda_spans_sequence(&out->spec));
    }
    return suits;
}

/* Room for the longest sequence's joined rows. */
static void reserve_joined(const struct oz_attention_args *a, struct course *c)
{
    int64_t width = (int64_t)a->heads * a->head_dim;
    for (int32_t s = 0; s < a->segments[0].rows->count; s++) {
        int64_t queries = oz_cuda_round(joined_rows(a, s, true), OZ_CUDA_SDPA_BUCKET);
        int64_t keys = joined_rows(a, s, false);
        c->sdpa = c->sdpa || keys >= SDPA_LEAST;
        keys = oz_cuda_round(keys, OZ_CUDA_SDPA_BUCKET);
        c->queries = queries > c->queries ? queries : c->queries;
        c->keys = keys > c->keys ? keys : c->keys;
    }
    if (c->sdpa) {
        c->q = oz_cuda_reserve(&c->total, c->queries, width, 2);
        c->k = oz_cuda_reserve(&c->total, c->keys, width, 2);
        c->v = oz_cuda_reserve(&c->total, c->keys, width, 2);
        c->out = oz_cuda_reserve(&c->total, c->queries, width, 2);
        c->lengths = oz_cuda_reserve(&c->total, 8, 1, sizeof(int32_t));
    }
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
    if (suits_sdpa(dev, a)) {
        reserve_joined(a, &c);
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
    return oz_cuda_check(
        ctx->dev, "attention",
        oz_launch_act_quant(stream, rows, out, rows->rows, NULL, NULL, apart ? amax : NULL));
}

/* One sequence by cuDNN; false in *done: it has no plan for it. */
static enum oz_status run_sdpa(const struct oz_op_ctx *ctx, const struct oz_attention_args *a,
                               const struct course *c, struct oz_cuda_attention *d, bool *done)
{
    oz_cuda_stream stream = oz_cuda_stream_of(ctx->dev, ctx->queue);
    int32_t sequence = d->first_sequence;
    const struct oz_cuda_joined j = {.q = oz_cuda_at(ctx, c->q),
                                     .k = oz_cuda_at(ctx, c->k),
                                     .v = oz_cuda_at(ctx, c->v),
                                     .out = oz_cuda_at(ctx, c->out),
                                     .lengths = oz_cuda_at(ctx, c->lengths)};
    const struct oz_cuda_sdpa *plan =
        oz_cuda_sdpa_find(oz_cuda_of(ctx->dev), joined_rows(a, sequence, true),
                          joined_rows(a, sequence, false), a->heads, a->head_dim);
    *done = plan != NULL;
    if (plan == NULL) {
        return OZ_OK;
    }
    OZ_TRY(oz_cuda_check(
        ctx->dev, "attention",
        oz_launch_join(stream, d, j.q, j.k, j.v, plan->queries, plan->keys, j.lengths)));
    OZ_TRY(oz_cuda_sdpa_run(ctx, plan, &j, a->scale));
    int64_t row = 0;
    for (int32_t i = 0; i < a->segment_count; i++) {
        const int32_t *offsets = a->segments[i].rows->offsets;
        int64_t count = offsets[sequence + 1] - offsets[sequence];
        if (a->segments[i].q == NULL) {
            continue;
        }
        int64_t width = (int64_t)a->heads * a->head_dim;
        const struct oz_act from = {.data = (uint16_t *)j.out + row * width,
                                    .rows = count,
                                    .cols = width,
                                    .stride = width,
                                    .spec = {.dtype = OZ_DTYPE_BF16}};
        const struct oz_act to = oz_act_rows(a->segments[i].out, offsets[sequence], count);
        OZ_TRY(oz_cuda_check(ctx->dev, "attention",
                             oz_launch_act_quant(stream, &from, &to, count, NULL, NULL, NULL)));
        row += count;
    }
    return OZ_OK;
}

/* All sequences by ounce's own kernels, or one: the choice is each sequence's own. */
static enum oz_status run_own(const struct oz_op_ctx *ctx, const struct oz_attention_args *a,
                              const struct course *c, struct oz_cuda_attention *d)
{
    oz_cuda_stream stream = oz_cuda_stream_of(ctx->dev, ctx->queue);
    for (int32_t i = 0; i < a->segment_count; i++) {
        const struct oz_act *out = a->segments[i].out;
        if (a->segments[i].q == NULL) {
            continue;
        }
        d->asking = i;
        d->most_queries = longest(a->segments[i].rows);
        d->segments[i].out = *out;
        if (is_staged(out)) {
            d->segments[i].out = (struct oz_act){.data = oz_cuda_at(ctx, c->rows[i]),
                                                 .rows = out->rows,
                                                 .cols = out->cols,
                                                 .stride = out->cols,
                                                 .spec = {.dtype = OZ_DTYPE_F32}};
        }
        OZ_TRY(oz_cuda_check(ctx->dev, "attention",
                             c->tiles ? oz_launch_attention_bf16(stream, d)
                                      : oz_launch_attention_f32(stream, d)));
        if (is_staged(out)) {
            int64_t first = a->segments[i].rows->offsets[d->first_sequence];
            int64_t end = a->segments[i].rows->offsets[d->first_sequence + d->sequences];
            struct oz_act from = oz_act_rows(&d->segments[i].out, first, end - first);
            struct oz_act to = oz_act_rows(out, first, end - first);
            OZ_TRY(quantize(ctx, &from, &to, a->segments[i].rows, oz_cuda_at(ctx, c->amax[i])));
        }
    }
    return OZ_OK;
}

enum oz_status oz_cuda_attention(const struct oz_op_ctx *ctx, const struct oz_attention_args *a)
{
    struct course c = plan_course(ctx->dev, a);
    struct oz_cuda_attention d;
    if (a->head_dim > OZ_CUDA_MOST_HEAD) {
        oz_log(OZ_LOG_ERROR, "dispatch", "attention: heads of %d are wider than %d.", a->head_dim,
               OZ_CUDA_MOST_HEAD);
        return OZ_ERR_UNSUPPORTED;
    }
    OZ_TRY(describe(a, &d));
    if (!c.sdpa) {
        return run_own(ctx, a, &c, &d);
    }
    d.sequences = 1;
    for (int32_t s = 0; s < a->segments[0].rows->count; s++) {
        bool done = false;
        d.first_sequence = s;
        if (joined_rows(a, s, false) >= SDPA_LEAST && joined_rows(a, s, true) > 0) {
            OZ_TRY(run_sdpa(ctx, a, &c, &d, &done));
        }
        if (!done) {
            OZ_TRY(run_own(ctx, a, &c, &d));
        }
    }
    return OZ_OK;
}
