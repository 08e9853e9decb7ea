/*
 * cpu/kern/x86/norm_mod_vec.h: norm_mod over vec_avx2.h or vec_avx512.h. x, y and mul are F32, out is
 * F32 or BF16, or any format whose rows can be written one by one: then a row of the result waits in
 * f32, in the nearest cache. A row of x stays there too: it is read once to add the residual, once for
 * its sums, once for the result.
 *
 * Numbers. Sums are in double, LAYER's of x - x[0]: since (x[0] - mean)^2 <= n var, taking the square
 * of the mean off the mean square costs at most about n 2^-52 of the variance, however large the
 * mean is. Mean and factor enter as pairs of f32, and d + e = x - mean_hi exactly, so that
 *   out = d f_hi + (d f_lo + (e f_hi - mean_lo f))
 * is rounded once but for terms of 2^-48, as the reference's result is.
 */
#ifndef OZ_CPU_KERN_X86_NORM_MOD_VEC_H
#define OZ_CPU_KERN_X86_NORM_MOD_VEC_H

#include "cpu/kern/x86/row_vec.h"

#define NORM_BATCH 8   /* rows that are taken together when they are short: */
#define NORM_NEAR 2048 /* elements of them, to stay in the nearest cache with the vectors */

#if OZ_VL == 16
#define NORM_CODER oz_coder__avx512
#else
#define NORM_CODER oz_coder__avx2
#endif

struct norm_job {
    const struct oz_norm_mod_args *a;
    const float *weight, *bias; /* [cols] or NULL */
    float *rows;                /* [threads, cols]: rows that will be coded; NULL: none are */
};

static bool norm_codes_rows(const struct oz_norm_mod_args *a)
{
    return a->out != NULL && !oz_ref_is_plain(&a->out->spec);
}

static const char *norm_mod_codes(const void *args)
{
    const struct oz_norm_mod_args *a = args;
    return oz_ref_by_row_problem(a->out, a->sequences);
}

/* (x - mean) (factor + factor_lo) + offset */
struct norm_line {
    float mean, factor, factor_lo, offset;
};

static const char *norm_mod_reject(const struct oz_device *dev, const void *args)
{
    const struct oz_norm_mod_args *a = args;
    const struct oz_act *in[3] = {a->x, a->y, a->mul};
    (void)dev;
    for (size_t i = 0; i < 3; i++) {
        const char *reason = v_reject_act(in[i], false);
        if (reason != NULL) {
            return reason;
        }
    }
    if (a->fn == OZ_FN_GELU_ERF || a->mul_fn == OZ_FN_GELU_ERF) {
        return "erf has no vector form";
    }
    return norm_codes_rows(a) ? norm_mod_codes(a) : v_reject_act(a->out, true);
}

struct norm_layout {
    size_t weight, bias, rows, total;
};

static struct norm_layout norm_lay_out(const struct oz_device *dev,
                                       const struct oz_norm_mod_args *a)
{
    struct norm_layout l = {0};
    int64_t threads = norm_codes_rows(a) ? oz_ref_threads(dev) : 0;
    l.weight = oz_ref_reserve(&l.total, a->x->cols, sizeof(float));
    l.bias = oz_ref_reserve(&l.total, a->x->cols, sizeof(float));
    l.rows = oz_ref_reserve(&l.total, oz_ref_times(threads, a->x->cols), sizeof(float));
    return l;
}

static size_t norm_mod_scratch(const struct oz_device *dev, const void *args)
{
    return norm_lay_out(dev, args).total;
}

static struct norm_line norm_line_of(const struct oz_norm_mod_args *a, const float *x)
{
    int64_t cols = a->x->cols;
    double n = (double)cols;
    double mean = 0;
    double factor = 1;
    if (a->norm == OZ_NORM_LAYER) {
        struct v_sums s = v_row_sums(x, cols, x[0]);
        double var = (s.squares - s.sum * (s.sum / n)) / n;
        mean = x[0] + s.sum / n;
        factor = 1 / sqrt((var < 0 ? 0 : var) + a->eps);
    } else if (a->norm != OZ_NORM_NONE) {
        double squares = v_row_squares(x, cols);
        double length = sqrt(squares);
        factor = a->norm == OZ_NORM_RMS ? 1 / sqrt(squares / n + a->eps)
                                        : sqrt(n) / (length < a->eps ? a->eps : length);
    }
    struct norm_line line = {.mean = (float)mean, .factor = (float)factor};
    line.factor_lo = (float)(factor - line.factor);
    line.offset = (float)((line.mean - mean) * factor);
    return line;
}

OZ_ALWAYS void norm_residual_step(const struct oz_norm_mod_args *a, int64_t r, const float *gate,
                                  struct v4 all, int64_t col, int64_t left, bool whole)
{
    struct v4 v = v4_load(oz_ref_f32(a->y, r, col), left, whole);
    float *x = oz_ref_f32(a->x, r, col);
    if (gate != NULL) {
        v = v4_mul(v, v4_load(gate + col, left, whole));
    }
    if (a->mul != NULL && a->mul->cols == 1) {
        v = v4_mul(v, all);
    } else if (a->mul != NULL) {
        v = v4_mul(v, v4_fn(a->mul_fn, v4_load(oz_ref_f32(a->mul, r, col), left, whole)));
    }
    v4_store(x, v4_add(v4_load(x, left, whole), v), left, whole);
}

static void norm_residual(const struct oz_norm_mod_args *a, int64_t r)
{
    const float *gate = oz_ref_mod(&a->gate, a->mod_index, r);
    struct v4 all = v4_set(1);
    if (a->mul != NULL && a->mul->cols == 1) {
        all = v4_fn(a->mul_fn, v4_set(*oz_ref_f32(a->mul, r, 0)));
    }
    OZ_EACH_STEP(a->x->cols, norm_residual_step(a, r, gate, all, col, left, whole));
}

struct norm_row {
    const float *x, *scale, *shift;
    struct norm_line line;
};

OZ_ALWAYS struct v4 norm_scaled(enum oz_norm norm, const struct norm_line *line, struct v4 x)
{
    struct v4 factor = v4_set(line->factor);
    struct v4 factor_lo = v4_set(line->factor_lo);
    if (norm == OZ_NORM_NONE) {
        return x;
    }
    if (norm != OZ_NORM_LAYER) {
        return v4_fma(x, factor, v4_mul(x, factor_lo));
    }
    struct v4 mean = v4_set(line->mean);
    struct v4 d = v4_sub(x, mean);
    struct v4 back = v4_sub(x, d); /* near the mean: what of it was taken off */
    struct v4 e = v4_add(v4_sub(x, v4_add(d, back)), v4_sub(back, mean));
    struct v4 rest = v4_fma(d, factor_lo, v4_fma(e, factor, v4_set(line->offset)));
    return v4_fma(d, factor, rest);
}

OZ_ALWAYS void norm_result_step(const struct norm_job *job, const struct norm_row *row,
                                const struct oz_act *out, int64_t r, int64_t col, int64_t left,
                                bool whole)
{
    const struct oz_norm_mod_args *a = job->a;
    struct v4 v = norm_scaled(a->norm, &row->line, v4_load(row->x + col, left, whole));
    if (job->weight != NULL) {
        struct v4 w = v4_load(job->weight + col, left, whole);
        v = v4_mul(v, a->weight_plus_one ? v4_add(w, v4_set(1)) : w);
    }
    if (job->bias != NULL) {
        v = v4_add(v, v4_load(job->bias + col, left, whole));
    }
    if (row->scale != NULL) {
        v = v4_mul(v, v4_add(v4_set(1), v4_load(row->scale + col, left, whole)));
    }
    if (row->shift != NULL) {
        v = v4_add(v, v4_load(row->shift + col, left, whole));
    }
    v = v4_fn(a->fn, v);
    v4_store_act(out, r, col, v, left, whole);
}

/* Rows [begin, begin + count): all sums before the first result, so that the latencies of square
 * roots and divisions overlap. `room`: a row that will be coded, or NULL. */
static void norm_mod_batch(const struct norm_job *job, int64_t begin, int64_t count, float *room)
{
    const struct oz_norm_mod_args *a = job->a;
    /* One row, whichever it is. */
    const struct oz_act waiting = {.data = room, .spec = {.dtype = OZ_DTYPE_F32}};
    const struct oz_act *out = room != NULL ? &waiting : a->out;
    struct norm_line lines[NORM_BATCH];
    for (int64_t i = 0; i < count; i++) {
        if (a->y != NULL) {
            norm_residual(a, begin + i);
        }
        if (a->out != NULL) {
            lines[i] = norm_line_of(a, oz_ref_f32(a->x, begin + i, 0));
        }
    }
    for (int64_t i = 0; a->out != NULL && i < count; i++) {
        int64_t r = begin + i;
        struct norm_row row = {.x = oz_ref_f32(a->x, r, 0),
                               .scale = oz_ref_mod(&a->scale, a->mod_index, r),
                               .shift = oz_ref_mod(&a->shift, a->mod_index, r),
                               .line = lines[i]};
        OZ_EACH_STEP(a->x->cols, norm_result_step(job, &row, out, r, col, left, whole));
        if (room != NULL) {
            oz_ref_finish_row(&NORM_CODER, a->out, r, room);
        }
    }
}

static void norm_mod_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct norm_job *job = ctx;
    int64_t batch = oz_ref_min(NORM_BATCH, oz_ref_max(1, NORM_NEAR / job->a->x->cols));
    float *room = job->rows != NULL ? job->rows + thread * job->a->x->cols : NULL;
    for (int64_t r = begin; r < end; r += batch) {
        norm_mod_batch(job, r, oz_ref_min(batch, end - r), room);
    }
}

static enum oz_status norm_mod_run(const struct oz_op_ctx *ctx, const void *args)
{
    const struct oz_norm_mod_args *a = args;
    int64_t cols = a->x->cols;
    struct norm_layout l = norm_lay_out(ctx->dev, a);
    OZ_TRY(oz_ref_begin(ctx, l.total));
    OZ_TRY(oz_ref_check_quantized("norm_mod", a->out));
    OZ_TRY(oz_ref_check_param("norm_mod", oz_ref_param(a->weight), 1, 1, cols));
    OZ_TRY(oz_ref_check_param("norm_mod", oz_ref_param(a->bias), 1, 1, cols));
    struct norm_job job = {.a = a,
                           .weight = v_vector(a->weight, cols, oz_ref_at(ctx, l.weight)),
                           .bias = v_vector(a->bias, cols, oz_ref_at(ctx, l.bias)),
                           .rows = norm_codes_rows(a) ? oz_ref_at(ctx, l.rows) : NULL};
    if (cols > 0) {
        oz_pool_for(ctx->dev->pool, a->x->rows, v_grain(a->x->rows, cols), norm_mod_rows, &job);
    }
    return OZ_OK;
}

#endif
