/*
 * act_quant: rows copied, gathered, scattered, and quantized. What a row's numbers become is
 * num/act.h's. A scale over a sequence is found first, over all rows of the sequence.
 */
#include "cpu/kern/ref/ref.h"

/* A plain row passes through f32 in pieces of this size. */
#define PIECE 256

struct layout {
    size_t amax, rows, total;
};

struct job {
    const struct oz_act_quant_args *a;
    float *amax; /* [rows of x], of each row, then of its sequence; NULL: no scale spans more */
    float *rows; /* [threads, cols] */
};

static bool quantizes(const struct oz_act_quant_args *a)
{
    return !oz_ref_is_plain(&a->out->spec);
}

static struct layout lay_out(const struct oz_device *dev, const struct oz_act_quant_args *a)
{
    struct layout l = {0};
    bool whole = oz_ref_spans_sequence(&a->out->spec);
    l.amax = oz_ref_reserve(&l.total, whole ? a->x->rows : 0, sizeof(float));
    l.rows = oz_ref_reserve(
        &l.total, quantizes(a) ? oz_ref_times(oz_ref_threads(dev), a->x->cols) : 0, sizeof(float));
    return l;
}

size_t oz_ref_scratch_act_quant(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

static void copy_row(const struct oz_act *x, int64_t from, const struct oz_act *out, int64_t to)
{
    int64_t cols = x->cols;
    if (x->spec.dtype == out->spec.dtype) { /* bit for bit */
        size_t size = x->spec.dtype == OZ_DTYPE_F32 ? 4 : 2;
        memcpy((uint8_t *)out->data + (size_t)(to * out->stride) * size,
               (const uint8_t *)x->data + (size_t)(from * x->stride) * size, (size_t)cols * size);
        return;
    }
    for (int64_t c = 0; c < cols; c += PIECE) {
        float piece[PIECE];
        int64_t count = oz_ref_min(PIECE, cols - c);
        oz_ref_load(x, from, c, count, piece);
        oz_ref_store(out, to, c, count, piece);
    }
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_act_quant_args *a = job->a;
    float *row = job->rows + thread * a->x->cols;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = a->x_rows != NULL ? a->x_rows[i] : i;
        int64_t to = a->out_rows != NULL ? a->out_rows[i] : i;
        if (!quantizes(a)) {
            copy_row(a->x, from, a->out, to);
            continue;
        }
        oz_ref_load(a->x, from, 0, a->x->cols, row);
        oz_ref_quantize(a->out, to, row, job->amax != NULL ? job->amax[from] : 0);
    }
}

static void find_amax(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_act_quant_args *a = job->a;
    float *row = job->rows + thread * a->x->cols;
    for (int64_t r = begin; r < end; r++) {
        oz_ref_load(a->x, r, 0, a->x->cols, row);
        job->amax[r] = oz_ref_row_amax(&a->out->spec, row, a->x->cols);
    }
}

/* From amax of each row to that of its sequence. Without sequences each row is one. */
static void join_sequences(const struct job *job)
{
    const struct oz_ragged *s = job->a->sequences;
    for (int32_t i = 0; s != NULL && i < s->count; i++) {
        float most = 0;
        for (int64_t r = s->offsets[i]; r < s->offsets[i + 1]; r++) {
            most = job->amax[r] > most ? job->amax[r] : most;
        }
        for (int64_t r = s->offsets[i]; r < s->offsets[i + 1]; r++) {
            job->amax[r] = most;
        }
    }
}

enum oz_status oz_act_quant_f32_any__scalar(const struct oz_op_ctx *ctx,
                                            const struct oz_act_quant_args *a)
{
    struct layout l = lay_out(ctx->dev, a);
    struct job job = {.a = a, .rows = oz_ref_at(ctx, l.rows)};
    OZ_TRY(oz_ref_begin(ctx, l.total));
    OZ_TRY(oz_ref_check_act("act_quant", a->x));
    OZ_TRY(oz_ref_check_rows("act_quant", a->out));
    if (a->x->cols == 0) {
        return OZ_OK;
    }
    if (oz_ref_spans_sequence(&a->out->spec)) {
        job.amax = oz_ref_at(ctx, l.amax);
        oz_pool_for(ctx->dev->pool, a->x->rows, oz_ref_grain(a->x->cols), find_amax, &job);
        join_sequences(&job);
    }
    oz_pool_for(ctx->dev->pool, a->rows, oz_ref_grain(a->x->cols), run_rows, &job);
    return OZ_OK;
}
