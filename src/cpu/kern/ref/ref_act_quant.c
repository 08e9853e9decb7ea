/* act_quant: rows copied, gathered, scattered, between F32 and BF16, and quantized. */
#include "cpu/kern/ref/ref.h"

/* A row passes through f32 in pieces of this size where its format allows. */
#define PIECE 256

struct run {
    const struct oz_act_quant_args *a;
    const struct oz_ref_coder *coder; /* NULL: the reference's forms */
    float *rows;                      /* [threads, cols]: whole rows in f32 */
    float *amax;                      /* [sequences]; [rows of x] without sequences */
};

struct layout {
    size_t rows, amax, total;
};

static bool is_quantized(const struct oz_act *a)
{
    return !oz_ref_is_plain(&a->spec); /* a smoothing vector alone needs whole rows too */
}

/* The sequences that a second scale spans; NULL: each row is one. */
static const struct oz_ragged *sequences_of(const struct oz_act_quant_args *a)
{
    return a->out->spec.second_by_row ? NULL : a->sequences;
}

static int64_t sequence_count(const struct oz_act_quant_args *a)
{
    return sequences_of(a) != NULL ? sequences_of(a)->count : a->x->rows;
}

static struct layout lay_out(const struct oz_device *dev, const struct oz_act_quant_args *a)
{
    struct layout l = {0};
    if (is_quantized(a->out)) {
        l.rows =
            oz_ref_reserve(&l.total, oz_ref_times(oz_ref_threads(dev), a->x->cols), sizeof(float));
        if (oz_ref_needs_amax(a->out)) {
            l.amax = oz_ref_reserve(&l.total, sequence_count(a), sizeof(float));
        }
    }
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

/* ---- quantizing ---- */

/* A row of x in f32, smoothed: where it lies, or in `room`. */
static const float *bring_row(const struct run *run, int64_t from, float *room)
{
    const struct oz_act *x = run->a->x;
    const float *by = run->a->out->spec.smooth;
    const struct oz_ref_coder *coder = run->coder;
    const float *row = room;
    if (x->spec.dtype == OZ_DTYPE_F32) {
        row = oz_ref_f32(x, from, 0);
    } else if (coder != NULL) {
        coder->widen(oz_ref_bf16(x, from, 0), x->cols, room);
    } else {
        oz_ref_load(x, from, 0, x->cols, room);
    }
    if (by != NULL && coder != NULL) {
        coder->divide(row, by, x->cols, room);
    } else if (by != NULL) {
        memmove(room, row, (size_t)x->cols * sizeof *room);
        oz_ref_smooth(&run->a->out->spec, room, x->cols);
    }
    return by != NULL ? room : row;
}

static void find_amax(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct run *run = ctx;
    const struct oz_act *x = run->a->x;
    const struct oz_ragged *sequences = sequences_of(run->a);
    float *row = run->rows + thread * x->cols;
    for (int64_t s = begin; s < end; s++) {
        int64_t last = sequences != NULL ? sequences->offsets[s + 1] : s + 1;
        float amax = 0;
        for (int64_t r = sequences != NULL ? sequences->offsets[s] : s; r < last; r++) {
            const float *values = bring_row(run, r, row);
            float part = run->coder != NULL ? run->coder->amax(values, x->cols)
                                            : oz_ref_amax(values, x->cols);
            amax = part > amax ? part : amax;
        }
        run->amax[s] = amax;
    }
}

static int64_t sequence_of(const struct oz_ragged *sequences, int64_t row)
{
    if (sequences == NULL) {
        return row;
    }
    int64_t low = 0;
    int64_t high = sequences->count;
    while (low + 1 < high) { /* offsets[low] <= row < offsets[high] */
        int64_t middle = (low + high) / 2;
        if (sequences->offsets[middle] <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct run *run = ctx;
    const struct oz_act_quant_args *a = run->a;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = a->x_rows != NULL ? a->x_rows[i] : i;
        int64_t to = a->out_rows != NULL ? a->out_rows[i] : i;
        if (run->rows == NULL) {
            copy_row(a->x, from, a->out, to);
            continue;
        }
        const float *row = bring_row(run, from, run->rows + thread * a->x->cols);
        float amax = run->amax != NULL ? run->amax[sequence_of(sequences_of(a), from)] : 0;
        oz_ref_code_row(run->coder, a->out, to, amax, row);
    }
}

enum oz_status oz_act_quant_any__scalar(const struct oz_op_ctx *ctx,
                                        const struct oz_act_quant_args *a)
{
    return oz_ref_act_quant(ctx, a, NULL);
}

enum oz_status oz_ref_act_quant(const struct oz_op_ctx *ctx, const struct oz_act_quant_args *a,
                                const struct oz_ref_coder *coder)
{
    struct layout l = lay_out(ctx->dev, a);
    OZ_TRY(oz_ref_begin(ctx, l.total));
    OZ_TRY(oz_ref_check_act("act_quant", a->x));
    OZ_TRY(oz_ref_check_quantized("act_quant", a->out));
    struct run run = {.a = a, .coder = coder};
    if (is_quantized(a->out)) {
        run.rows = oz_ref_at(ctx, l.rows);
        run.amax = oz_ref_needs_amax(a->out) ? oz_ref_at(ctx, l.amax) : NULL;
    }
    if (a->x->cols == 0) {
        return OZ_OK;
    }
    if (run.amax != NULL) {
        oz_pool_for(ctx->dev->pool, sequence_count(a), 1, find_amax, &run);
    }
    oz_pool_for(ctx->dev->pool, a->rows, oz_ref_grain(a->x->cols), run_rows, &run);
    return OZ_OK;
}
