/*
 * experts: rows go through the experts that route chose. PIECE_ROWS rows at a time: the pairs
 * (row, choice) are sorted by expert; each expert is one product up and one down over its pairs;
 * then every row adds its choices in their order. A pair's numbers do not depend on the others: a
 * scale over a sequence is, between glu and down, one over the pair's own row.
 */
#include "base/log.h"
#include "cpu/int8.h"
#include "cpu/kern/ref/ref.h"

#define PIECE_ROWS 256

struct layout {
    size_t order, starts, bias, up, down, codes, scales[2], row_scales, col_scales, product, total;
    int64_t experts, hidden, wide; /* f and 2 f */
    bool quantizes;                /* what goes into down */
    bool int8_up, int8_down;
};

/* One piece. */
struct job {
    const struct oz_experts_args *a;
    struct layout l;
    int64_t row0, rows;
    int32_t *order;       /* [pairs]: pairs of the piece, by expert */
    int32_t *starts;      /* [experts + 1]: where each expert's pairs begin in `order` */
    float *bias;          /* [max(2 f, d)] */
    float *up;            /* [pairs, 2 f], in the order of `order`; after glu the first f hold it */
    float *down;          /* [pairs, d], by pair */
    struct oz_act hidden; /* [pairs, f], in the order of `order`, where it is quantized */
    float *row_scales;    /* [pairs], in the order of `order`, of s8 rows */
    float *col_scales;    /* [max(2 f, d)], of the current expert's s8 weight */
    int64_t first;        /* of the current expert's pairs in `order` */
    const float *current_bias;
};

static struct layout lay_out(const struct oz_device *dev, const struct oz_experts_args *a)
{
    struct layout l = {.experts = a->up->shape[0], .wide = a->up->shape[1]};
    int64_t d = a->x->cols;
    int64_t pairs = oz_ref_min(a->x->rows, PIECE_ROWS) * a->k;
    l.hidden = l.wide / 2;
    l.quantizes = !oz_ref_is_plain(&a->hidden);
    l.int8_up = oz_int8_product(&a->x->spec, &a->up->weight);
    l.int8_down = oz_int8_product(&a->hidden, &a->down->weight);
    l.order = oz_ref_reserve(&l.total, pairs, sizeof(int32_t));
    l.starts = oz_ref_reserve(&l.total, l.experts + 1, sizeof(int32_t));
    l.bias = oz_ref_reserve(&l.total, oz_ref_max(l.wide, a->out->cols), sizeof(float));
    l.up = oz_ref_reserve(&l.total, oz_ref_times(pairs, l.wide), sizeof(float));
    l.down = oz_ref_reserve(&l.total, oz_ref_times(pairs, a->out->cols), sizeof(float));
    if (l.quantizes) {
        int64_t bytes = (l.hidden * oz_dtype_bits(a->hidden.dtype) + 7) / 8;
        l.codes = oz_ref_reserve(&l.total, oz_ref_times(pairs, bytes), 1);
    }
    for (int32_t i = 0; i < a->hidden.scale_count; i++) {
        int64_t group = a->hidden.scale[i].group_cols;
        int64_t groups = group > 0 ? (l.hidden + group - 1) / group : 1;
        l.scales[i] = oz_ref_reserve(&l.total, oz_ref_times(pairs, groups),
                                     (size_t)oz_dtype_bits(a->hidden.scale[i].dtype) / 8);
    }
    l.row_scales = oz_ref_reserve(&l.total, l.int8_up ? pairs : 0, sizeof(float));
    l.col_scales = oz_ref_reserve(
        &l.total, l.int8_up || l.int8_down ? oz_ref_max(l.wide, a->out->cols) : 0, sizeof(float));
    l.product = oz_ref_reserve(&l.total, oz_ref_product_floats(dev, oz_ref_max(d, l.hidden), 0),
                               sizeof(float));
    return l;
}

size_t oz_ref_scratch_experts(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

/* Counting sort of the piece's pairs by expert. */
static void sort_pairs(const struct job *job)
{
    const struct oz_experts_args *a = job->a;
    const int32_t *ids = a->ids + job->row0 * a->k;
    int64_t pairs = job->rows * a->k;
    memset(job->starts, 0, (size_t)(job->l.experts + 1) * sizeof *job->starts);
    for (int64_t p = 0; p < pairs; p++) {
        job->starts[ids[p] + 1]++;
    }
    for (int64_t e = 0; e < job->l.experts; e++) {
        job->starts[e + 1] += job->starts[e];
    }
    for (int64_t p = pairs - 1; p >= 0; p--) { /* from the end, so that starts end as begins */
        job->order[--job->starts[ids[p] + 1]] = (int32_t)p;
    }
    for (int64_t e = 0; e < job->l.experts; e++) {
        job->starts[e] = job->starts[e + 1];
    }
    job->starts[job->l.experts] = (int32_t)pairs;
}

static const float *fetch_x(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                            float *room, int64_t *stride)
{
    const struct job *job = ctx;
    for (int64_t r = 0; r < rows; r++) {
        int64_t pair = job->order[job->first + row0 + r];
        (job->l.int8_up ? oz_int8_load : oz_ref_load)(job->a->x, job->row0 + pair / job->a->k, k0,
                                                      count, room + r * count);
    }
    *stride = count;
    return room;
}

static const float *fetch_hidden(const void *ctx, int64_t row0, int64_t rows, int64_t k0,
                                 int64_t count, float *room, int64_t *stride)
{
    const struct job *job = ctx;
    if (job->l.quantizes) {
        return (job->l.int8_down ? oz_ref_fetch_codes : oz_ref_fetch_act)(
            &job->hidden, job->first + row0, rows, k0, count, room, stride);
    }
    *stride = job->l.wide;
    return job->up + (job->first + row0) * job->l.wide + k0;
}

static void store_line(float *to, const float *y, const float *bias, int64_t col0, int64_t cols)
{
    for (int64_t c = 0; c < cols; c++) {
        to[col0 + c] = bias != NULL ? y[c] + bias[col0 + c] : y[c];
    }
}

static void store_up(const void *ctx, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                     const float *y, const float *up)
{
    const struct job *job = ctx;
    (void)up;
    for (int64_t r = 0; r < rows; r++) {
        store_line(job->up + (job->first + row0 + r) * job->l.wide, y + r * OZ_REF_COLS,
                   job->current_bias, col0, cols);
    }
}

static void store_down(const void *ctx, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                       const float *y, const float *up)
{
    const struct job *job = ctx;
    (void)up;
    for (int64_t r = 0; r < rows; r++) {
        int64_t pair = job->order[job->first + row0 + r];
        store_line(job->down + pair * job->a->out->cols, y + r * OZ_REF_COLS, job->current_bias,
                   col0, cols);
    }
}

/* One hidden feature from its gate and up parts. */
static float glu(const struct oz_experts_args *a, float gate, float up)
{
    switch (a->glu) {
    case OZ_GLU_SILU: return oz_ref_fn(OZ_FN_SILU, gate) * up;
    case OZ_GLU_GELU: return oz_ref_fn(OZ_FN_GELU_TANH, gate) * up;
    case OZ_GLU_CLAMPED:
        gate = gate > a->limit ? a->limit : gate;
        up = up > a->limit ? a->limit : (up < -a->limit ? -a->limit : up);
        return (up + 1.0F) * (gate * oz_ref_fn(OZ_FN_SIGMOID, a->alpha * gate));
    }
    return 0;
}

/* In place: feature i needs elements that later features do not overwrite before it is read. */
static void glu_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_experts_args *a = job->a;
    int64_t f = job->l.hidden;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *row = job->up + r * job->l.wide;
        for (int64_t i = 0; i < f; i++) {
            bool interleaved = a->glu == OZ_GLU_CLAMPED;
            float h = glu(a, row[interleaved ? 2 * i : i], row[interleaved ? 2 * i + 1 : f + i]);
            row[i] = a->hidden.dtype == OZ_DTYPE_BF16 ? oz_bf16_to_f32(oz_f32_to_bf16(h)) : h;
        }
        if (job->l.quantizes) {
            oz_ref_smooth(&a->hidden, row, f);
            oz_ref_store_row(&job->hidden, r, oz_ref_amax(row, f), row);
        }
    }
}

static void add_choices(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_experts_args *a = job->a;
    int64_t d = a->out->cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        for (int64_t c = 0; c < d; c++) {
            float sum = 0;
            for (int64_t j = 0; j < a->k; j++) {
                sum += a->weights[(job->row0 + r) * a->k + j] * job->down[(r * a->k + j) * d + c];
            }
            oz_ref_store(a->out, job->row0 + r, c, 1, &sum);
        }
    }
}

/* Row e of biases [experts, n]; NULL when absent. */
static const float *expert_bias(const struct oz_param *p, int64_t e, int64_t n, float *dst)
{
    if (oz_ref_param(p) == NULL) {
        return NULL;
    }
    p->weight.codec->decode(&p->weight, 0, e, 0, n, dst);
    return dst;
}

/* One product of every expert over its pairs. */
static void run_experts(struct job *job, struct oz_pool *pool, const struct oz_param *w, bool int8,
                        const struct oz_param *bias, const float *row_scales,
                        struct oz_ref_product p)
{
    struct oz_weight codes = int8 ? oz_int8_codes(&w->weight) : w->weight;
    p.w = &codes;
    for (int64_t e = 0; e < job->l.experts; e++) {
        job->first = job->starts[e];
        p.rows = job->starts[e + 1] - job->first;
        p.slice = e;
        job->current_bias = expert_bias(bias, e, p.cols, job->bias);
        if (int8) {
            oz_int8_scales(&w->weight, e, 0, p.cols, job->col_scales);
            p.row_scales = row_scales + job->first;
            p.col_scales = job->col_scales;
        }
        oz_ref_product_run(pool, &p);
    }
}

static void run_piece(struct job *job, struct oz_pool *pool, float *product)
{
    const struct oz_experts_args *a = job->a;
    sort_pairs(job);
    for (int64_t i = 0; job->l.int8_up && i < job->rows * a->k; i++) {
        job->row_scales[i] = ((const float *)a->x->scales[0])[job->row0 + job->order[i] / a->k];
    }
    struct oz_ref_product up = {
        .cols = job->l.wide,
        .depth = a->x->cols,
        .fetch = fetch_x,
        .fetch_ctx = job,
        .store = store_up,
        .store_ctx = job,
        .scratch = product,
    };
    struct oz_ref_product down = up;
    down.cols = a->out->cols;
    down.depth = job->l.hidden;
    down.fetch = fetch_hidden;
    down.store = store_down;
    run_experts(job, pool, a->up, job->l.int8_up, a->up_bias, job->row_scales, up);
    oz_pool_for(pool, job->rows * a->k, oz_ref_grain(job->l.hidden), glu_rows, job);
    run_experts(job, pool, a->down, job->l.int8_down, a->down_bias, job->hidden.scales[0], down);
    oz_pool_for(pool, job->rows, oz_ref_grain(a->out->cols), add_choices, job);
}

static enum oz_status check_args(const struct oz_experts_args *a, const struct layout *l)
{
    OZ_TRY(oz_ref_check_quantized("experts", a->x));
    OZ_TRY(oz_ref_check_act("experts", a->out));
    OZ_TRY(oz_ref_check_quantized("experts", &(struct oz_act){.spec = a->hidden}));
    OZ_TRY(oz_ref_check_smooth("experts", &a->x->spec, a->up));
    OZ_TRY(oz_ref_check_smooth("experts", &a->hidden, a->down));
    OZ_TRY(oz_ref_check_param("experts", a->up, l->experts, l->wide, a->x->cols));
    OZ_TRY(oz_ref_check_param("experts", a->down, l->experts, a->out->cols, l->hidden));
    OZ_TRY(oz_ref_check_param("experts", oz_ref_param(a->up_bias), 1, l->experts, l->wide));
    OZ_TRY(oz_ref_check_param("experts", oz_ref_param(a->down_bias), 1, l->experts, a->out->cols));
    for (int64_t p = 0; p < a->x->rows * a->k; p++) {
        if (a->ids[p] < 0 || a->ids[p] >= l->experts) {
            oz_log(OZ_LOG_ERROR, "dispatch", "experts: row %lld asks for expert %d of %lld.",
                   (long long)(p / a->k), (int)a->ids[p], (long long)l->experts);
            return OZ_ERR_ARG;
        }
    }
    return OZ_OK;
}

enum oz_status oz_experts_f32_any_f32__scalar(const struct oz_op_ctx *ctx,
                                              const struct oz_experts_args *a)
{
    struct layout l = lay_out(ctx->dev, a);
    OZ_TRY(oz_ref_begin(ctx, l.total));
    OZ_TRY(check_args(a, &l));
    struct job job = {
        .a = a,
        .l = l,
        .order = oz_ref_at(ctx, l.order),
        .starts = oz_ref_at(ctx, l.starts),
        .bias = oz_ref_at(ctx, l.bias),
        .up = oz_ref_at(ctx, l.up),
        .down = oz_ref_at(ctx, l.down),
        .row_scales = oz_ref_at(ctx, l.row_scales),
        .col_scales = oz_ref_at(ctx, l.col_scales),
        .hidden = {.data = oz_ref_at(ctx, l.codes),
                   .rows = oz_ref_min(a->x->rows, PIECE_ROWS) * a->k,
                   .cols = l.hidden,
                   .stride = l.hidden + (a->hidden.dtype == OZ_DTYPE_F4 ? l.hidden % 2 : 0),
                   .spec = a->hidden,
                   .scales = {oz_ref_at(ctx, l.scales[0]), oz_ref_at(ctx, l.scales[1])}},
    };
    for (job.row0 = 0; job.row0 < a->x->rows; job.row0 += PIECE_ROWS) {
        job.rows = oz_ref_min(PIECE_ROWS, a->x->rows - job.row0);
        run_piece(&job, ctx->dev->pool, oz_ref_at(ctx, l.product));
    }
    return OZ_OK;
}
