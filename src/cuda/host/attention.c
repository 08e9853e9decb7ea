/*
 * attention: which kernel, and outputs that are quantized from f32 rows. Long sequences without masks are
 * joined first: cuDNN takes heads of 64 and 128; wide heads go through two products with a softmax between.
 */
#include "base/log.h"
#include "cuda/host/cuda.h"

#define JOINED_LEAST 512   /* keys of a sequence from which it is joined */
#define PRODUCT_ALIGN 64   /* keys and queries of products are rounded up to so many */
#define PRODUCT_CHUNK 1024 /* queries whose scores lie there at a time */

enum way { OWN, BY_CUDNN, BY_PRODUCTS };

struct course {
    bool tiles;            /* bf16 on tensor cores */
    enum way way;          /* of sequences that are long enough; OWN: there is none */
    int64_t queries, keys; /* of the longest sequence, rounded up */
    size_t q, k, v, out, scores, weights;
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

/* How long sequences go. */
static enum way way_of(const struct oz_device *dev, const struct oz_attention_args *a)
{
    bool suits = !dev->f32_math && a->mask == OZ_MASK_NONE && a->paged == NULL && a->bias == NULL &&
                 !oz_cuda_exists(a->sinks) && a->heads == a->kv_heads;
    for (int32_t i = 0; i < a->segment_count; i++) {
        const struct oz_act *out = a->segments[i].out;
        suits = suits && (out == NULL || !oz_cuda_spans_sequence(&out->spec));
    }
    return !suits                                      ? OWN
           : a->head_dim == 64 || a->head_dim == 128   ? BY_CUDNN
           : a->head_dim > 256 && a->head_dim % 8 == 0 ? BY_PRODUCTS
                                                       : OWN;
}

/* Room for the longest sequence's joined rows. */
static void reserve_joined(const struct oz_attention_args *a, enum way way, struct course *c)
{
    int64_t width = (int64_t)a->heads * a->head_dim;
    for (int32_t s = 0; s < a->segments[0].rows->count; s++) {
        int64_t queries = oz_cuda_round(joined_rows(a, s, true), PRODUCT_ALIGN);
        int64_t keys = joined_rows(a, s, false);
        c->way = keys >= JOINED_LEAST ? way : c->way;
        keys = oz_cuda_round(keys, PRODUCT_ALIGN);
        c->queries = queries > c->queries ? queries : c->queries;
        c->keys = keys > c->keys ? keys : c->keys;
    }
    if (c->way != OWN) {
        c->q = oz_cuda_reserve(&c->total, c->queries, width, 2);
        c->k = oz_cuda_reserve(&c->total, c->keys, width, 2);
        c->v = oz_cuda_reserve(&c->total, c->keys, width, 2);
        c->out = oz_cuda_reserve(&c->total, c->queries, width, 2);
    }
    if (c->way == BY_PRODUCTS) {
        c->scores = oz_cuda_reserve(&c->total, PRODUCT_CHUNK, c->keys, sizeof(float));
        c->weights = oz_cuda_reserve(&c->total, PRODUCT_CHUNK, c->keys, 2);
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
    enum way way = way_of(dev, a);
    if (way != OWN) {
        reserve_joined(a, way, &c);
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

/* softmax(q k^T scale) v of each head by two products, chunk by chunk of the queries. */
static enum oz_status run_products(const struct oz_op_ctx *ctx, const struct oz_attention_args *a,
                                   const struct course *c, const struct oz_cuda_joined *j,
                                   int32_t sequence)
{
    oz_cuda_stream stream = oz_cuda_stream_of(ctx->dev, ctx->queue);
    const int64_t width = (int64_t)a->heads * a->head_dim;
    const int64_t queries = joined_rows(a, sequence, true);
    const int64_t keys = joined_rows(a, sequence, false);
    const int64_t padded = oz_cuda_round(keys, PRODUCT_ALIGN);
    for (int64_t unit = 0; unit < a->heads * ((queries + PRODUCT_CHUNK - 1) / PRODUCT_CHUNK);
         unit++) {
        int64_t first = unit / a->heads * PRODUCT_CHUNK;
        int64_t at = unit % a->heads * a->head_dim;
        /* All of a chunk, also behind the queries' end where the buffer holds it. */
        int64_t m = oz_cuda_round(queries, PRODUCT_ALIGN) - first;
        m = m < PRODUCT_CHUNK ? m : PRODUCT_CHUNK;
        const int32_t offsets[2] = {0, (int32_t)m};
        const struct oz_ragged rows = {.count = 1, .offsets = offsets};
        const struct oz_cuda_gemm scores = {.m = m,
                                            .n = padded,
                                            .k = a->head_dim,
                                            .x = (const uint16_t *)j->q + first * width + at,
                                            .w = (const uint16_t *)j->k + at,
                                            .y = oz_cuda_at(ctx, c->scores),
                                            .x_stride = width,
                                            .w_stride = width,
                                            .y_stride = padded,
                                            .x_dtype = OZ_DTYPE_BF16,
                                            .w_dtype = OZ_DTYPE_BF16,
                                            .y_dtype = OZ_DTYPE_F32,
                                            .unique = true};
        const struct oz_cuda_gemm sums = {.m = m,
                                          .n = a->head_dim,
                                          .k = padded,
                                          .x = oz_cuda_at(ctx, c->weights),
                                          .w = (const uint16_t *)j->v + at,
                                          .y = (uint16_t *)j->out + first * width + at,
                                          .x_stride = padded,
                                          .w_stride = width,
                                          .y_stride = width,
                                          .x_dtype = OZ_DTYPE_BF16,
                                          .w_dtype = OZ_DTYPE_BF16,
                                          .y_dtype = OZ_DTYPE_BF16,
                                          .w_by_k = true,
                                          .unique = true};
        OZ_TRY(oz_cuda_gemm_run(ctx, &scores, &rows));
        OZ_TRY(oz_cuda_check(ctx->dev, "attention",
                             oz_launch_softmax(stream, scores.y, m, keys, padded, a->scale,
                                               oz_cuda_at(ctx, c->weights))));
        OZ_TRY(oz_cuda_gemm_run(ctx, &sums, &rows));
    }
    return OZ_OK;
}

enum part { PART_Q, PART_K, PART_V, PART_OUT };

static const struct oz_act *part_of(const struct oz_attention_args *a, int32_t segment, enum part p)
{
    return p == PART_Q                      ? a->segments[segment].q
           : p == PART_K                    ? a->segments[segment].k
           : p == PART_V                    ? a->segments[segment].v
           : a->segments[segment].q != NULL ? a->segments[segment].out
                                            : NULL;
}

/* Where a part of all segments lies as one matrix of bf16 rows; NULL: it does not. */
static void *joined_at(const struct oz_attention_args *a, enum part p)
{
    const int64_t width = (int64_t)a->heads * a->head_dim;
    uint16_t *first = NULL;
    int64_t rows = 0;
    for (int32_t i = 0; i < a->segment_count; i++) {
        const struct oz_act *x = part_of(a, i, p);
        if (x == NULL || x->rows == 0) {
            continue;
        }
        first = first == NULL ? x->data : first;
        if (!oz_cuda_plain(&x->spec) || x->spec.dtype != OZ_DTYPE_BF16 || x->stride != width ||
            (uint16_t *)x->data != first + rows * width) {
            return NULL;
        }
        rows += x->rows;
    }
    return (uintptr_t)first % 16 == 0 ? first : NULL;
}

/* One sequence whose rows lie joined already: j then points there, and to the output where that lies so
 * too. */
static bool lie_joined(const struct oz_attention_args *a, struct oz_cuda_joined *j)
{
    void *q = joined_at(a, PART_Q);
    void *k = joined_at(a, PART_K);
    void *v = joined_at(a, PART_V);
    void *out = joined_at(a, PART_OUT);
    if (a->segments[0].rows->count != 1 || q == NULL || k == NULL || v == NULL) {
        return false;
    }
    j->q = q;
    j->k = k;
    j->v = v;
    j->out = out != NULL ? out : j->out;
    return true;
}

/* One long sequence; false in *done: cuDNN has no plan for it. */
static enum oz_status run_joined(const struct oz_op_ctx *ctx, const struct oz_attention_args *a,
                                 const struct course *c, struct oz_cuda_attention *d, bool *done)
{
    oz_cuda_stream stream = oz_cuda_stream_of(ctx->dev, ctx->queue);
    int32_t sequence = d->first_sequence;
    struct oz_cuda_joined j = {.q = oz_cuda_at(ctx, c->q),
                               .k = oz_cuda_at(ctx, c->k),
                               .v = oz_cuda_at(ctx, c->v),
                               .out = oz_cuda_at(ctx, c->out)};
    int64_t queries = joined_rows(a, sequence, true);
    int64_t keys = joined_rows(a, sequence, false);
    const struct oz_cuda_sdpa *plan = NULL;
    bool in_place = false;
    *done = true;
    if (c->way == BY_CUDNN) {
        plan = oz_cuda_sdpa_find(oz_cuda_of(ctx->dev), queries, keys, a->heads, a->head_dim);
        *done = plan != NULL;
        if (plan == NULL) {
            return OZ_OK;
        }
        in_place = lie_joined(a, &j);
    } else {
        queries = oz_cuda_round(queries, PRODUCT_ALIGN);
        keys = oz_cuda_round(keys, PRODUCT_ALIGN);
    }
    if (!in_place) {
        OZ_TRY(oz_cuda_check(ctx->dev, "attention",
                             oz_launch_join(stream, d, j.q, j.k, j.v, queries, keys)));
    }
    OZ_TRY(plan != NULL ? oz_cuda_sdpa_run(ctx, plan, &j, a->scale)
                        : run_products(ctx, a, c, &j, sequence));
    if (j.out != oz_cuda_at(ctx, c->out)) {
        return OZ_OK; /* it was written where it belongs */
    }
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
    if (c.way == OWN) {
        return run_own(ctx, a, &c, &d);
    }
    d.sequences = 1;
    for (int32_t s = 0; s < a->segments[0].rows->count; s++) {
        bool done = false;
        d.first_sequence = s;
        if (joined_rows(a, s, false) >= JOINED_LEAST && joined_rows(a, s, true) > 0) {
            OZ_TRY(run_joined(ctx, a, &c, &d, &done));
        }
        if (!done) {
            OZ_TRY(run_own(ctx, a, &c, &d));
        }
    }
    return OZ_OK;
}
