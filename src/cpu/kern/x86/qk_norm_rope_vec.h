/*
 * cpu/kern/x86/qk_norm_rope_vec.h: qk_norm_rope over vec_avx2.h or vec_avx512.h, x and tables F32. Of
 * each row first the sums of squares of some heads, in double, then their features: scaled and turned
 * in registers. Pairs and features beyond whole vectors take the scalar way.
 */
#ifndef OZ_CPU_KERN_X86_QK_NORM_ROPE_VEC_H
#define OZ_CPU_KERN_X86_QK_NORM_ROPE_VEC_H

#include "cpu/kern/x86/row_vec.h"

#define ROPE_HEADS 16 /* whose sums are taken together, so that their latencies overlap */

struct rope_job {
    const struct oz_qk_norm_rope_args *a;
    const float *weight; /* [head_dim] or NULL; already + 1 */
    int64_t pairs;
    float *twice; /* [threads, 2, 2 * pairs]: PAIRS: a row's tables, each element twice */
};

static const char *qk_norm_rope_reject(const struct oz_device *dev, const void *args)
{
    const struct oz_qk_norm_rope_args *a = args;
    (void)dev;
    if (v_reject_act(a->x, false) != NULL) {
        return "x is not plain F32";
    }
    if (a->out != NULL) {
        return "it works in place";
    }
    if (v_reject_act(a->cosine, false) != NULL || v_reject_act(a->sine, false) != NULL) {
        return "the tables are not F32";
    }
    return NULL;
}

static size_t qk_norm_rope_scratch(const struct oz_device *dev, const void *args)
{
    const struct oz_qk_norm_rope_args *a = args;
    size_t total = 0;
    int64_t pairs = a->rope == OZ_ROPE_PAIRS ? a->cosine->cols : 0;
    (void)oz_ref_reserve(&total, a->head_dim, sizeof(float));
    (void)oz_ref_reserve(&total, oz_ref_times(4 * oz_ref_threads(dev), pairs), sizeof(float));
    return total;
}

/* x f w: twice rounded, besides f's and w's own rounding. */
OZ_ALWAYS vf rope_scaled(const float *x, const float *w, vf factor, bool norm)
{
    vf v = v_load(x);
    return norm ? v_mul(v_mul(v, factor), v_load(w)) : v;
}

OZ_ALWAYS float rope_scaled_1(float x, const float *w, float factor, bool norm)
{
    return norm ? x * factor * *w : x;
}

/* Features (2 j, 2 j + 1) of a head; tables with each element twice. */
OZ_ALWAYS void rope_pairs(float *x, const float *w, const float *cosine, const float *sine,
                          int64_t pairs, float factor, bool norm)
{
    vf f = v_set(factor);
    int64_t c = 0;
    for (; c + OZ_VL <= 2 * pairs; c += OZ_VL) {
        vf v = rope_scaled(x + c, w + c, f, norm);
        vf turned = v_mul(v_swap(v), v_load(sine + c));
        v_store(x + c, v_fmaddsub(v, v_load(cosine + c), turned));
    }
    for (; c < 2 * pairs; c += 2) {
        float a = rope_scaled_1(x[c], w + c, factor, norm);
        float b = rope_scaled_1(x[c + 1], w + c + 1, factor, norm);
        x[c] = fmaf(a, cosine[c], -(b * sine[c]));
        x[c + 1] = fmaf(b, cosine[c], a * sine[c]);
    }
}

/* Features (j, j + pairs) of a head. */
OZ_ALWAYS void rope_halves(float *x, const float *w, const float *cosine, const float *sine,
                           int64_t pairs, float factor, bool norm)
{
    vf f = v_set(factor);
    int64_t j = 0;
    for (; j + OZ_VL <= pairs; j += OZ_VL) {
        vf a = rope_scaled(x + j, w + j, f, norm);
        vf b = rope_scaled(x + j + pairs, w + j + pairs, f, norm);
        vf c = v_load(cosine + j);
        vf s = v_load(sine + j);
        v_store(x + j, v_fnma(b, s, v_mul(a, c)));
        v_store(x + j + pairs, v_fma(b, c, v_mul(a, s)));
    }
    for (; j < pairs; j++) {
        float a = rope_scaled_1(x[j], w + j, factor, norm);
        float b = rope_scaled_1(x[j + pairs], w + j + pairs, factor, norm);
        x[j] = fmaf(-b, sine[j], a * cosine[j]);
        x[j + pairs] = fmaf(b, cosine[j], a * sine[j]);
    }
}

/* Features that do not turn. */
OZ_ALWAYS void rope_rest(float *x, const float *w, int64_t begin, int64_t dim, float factor)
{
    vf f = v_set(factor);
    int64_t c = begin;
    for (; c + OZ_VL <= dim; c += OZ_VL) {
        v_store(x + c, rope_scaled(x + c, w + c, f, true));
    }
    for (; c < dim; c++) {
        x[c] = rope_scaled_1(x[c], w + c, factor, true);
    }
}

OZ_ALWAYS void rope_head(const struct rope_job *job, float *x, const float *cosine,
                         const float *sine, float factor, bool norm)
{
    const struct oz_qk_norm_rope_args *a = job->a;
    if (a->rope == OZ_ROPE_PAIRS) {
        rope_pairs(x, job->weight, cosine, sine, job->pairs, factor, norm);
    } else if (a->rope == OZ_ROPE_HALVES) {
        rope_halves(x, job->weight, cosine, sine, job->pairs, factor, norm);
    }
    if (norm) {
        rope_rest(x, job->weight, 2 * job->pairs, a->head_dim, factor);
    }
}

/* Heads [first, first + count) of a row at x. */
static void rope_heads_norm(const struct rope_job *job, float *x, int64_t count,
                            const float *cosine, const float *sine)
{
    int64_t dim = job->a->head_dim;
    double squares[ROPE_HEADS];
    for (int64_t h = 0; h < count; h++) {
        squares[h] = v_row_squares(x + h * dim, dim);
    }
    for (int64_t h = 0; h < count; h++) {
        float factor = (float)(1 / sqrt(squares[h] / (double)dim + job->a->eps));
        rope_head(job, x + h * dim, cosine, sine, factor, true);
    }
}

/* Each element twice, for all heads of a row; returns `to`. */
static const float *rope_twice(const float *from, int64_t pairs, float *to)
{
    const int64_t half = OZ_VL / 2;
    int64_t j = 0;
    for (; j + half <= pairs; j += half) {
        v_store(to + 2 * j, v_load_twice(from + j));
    }
    for (; j < pairs; j++) {
        to[2 * j] = to[2 * j + 1] = from[j];
    }
    return to;
}

static void qk_norm_rope_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct rope_job *job = ctx;
    const struct oz_qk_norm_rope_args *a = job->a;
    const float *cosine = NULL;
    const float *sine = NULL;
    float *twice = job->twice + 4 * job->pairs * thread;
    for (int64_t r = begin; r < end; r++) {
        if (a->rope != OZ_ROPE_NONE) {
            int64_t at = a->table_rows != NULL ? a->table_rows[r] : r;
            cosine = oz_ref_f32(a->cosine, at, 0);
            sine = oz_ref_f32(a->sine, at, 0);
        }
        if (a->rope == OZ_ROPE_PAIRS) {
            cosine = rope_twice(cosine, job->pairs, twice);
            sine = rope_twice(sine, job->pairs, twice + 2 * job->pairs);
        }
        for (int64_t h = 0; h < a->heads; h += ROPE_HEADS) {
            int64_t count = oz_ref_min(ROPE_HEADS, a->heads - h);
            float *x = oz_ref_f32(a->x, r, h * a->head_dim);
            if (job->weight != NULL) {
                rope_heads_norm(job, x, count, cosine, sine);
                continue;
            }
            for (int64_t i = 0; i < count; i++) {
                rope_head(job, x + i * a->head_dim, cosine, sine, 1, false);
            }
        }
    }
}

static enum oz_status qk_norm_rope_run(const struct oz_op_ctx *ctx, const void *args)
{
    const struct oz_qk_norm_rope_args *a = args;
    size_t total = 0;
    size_t weight = oz_ref_reserve(&total, a->head_dim, sizeof(float));
    OZ_TRY(oz_ref_begin(ctx, qk_norm_rope_scratch(ctx->dev, args)));
    OZ_TRY(oz_ref_check_param("qk_norm_rope", oz_ref_param(a->weight), 1, 1, a->head_dim));
    float *room = oz_ref_at(ctx, weight);
    struct rope_job job = {.a = a,
                           .weight = oz_ref_vector(a->weight, a->head_dim, room),
                           .pairs = a->rope != OZ_ROPE_NONE ? a->cosine->cols : 0,
                           .twice = oz_ref_at(ctx, total)};
    for (int64_t c = 0; job.weight != NULL && a->weight_plus_one && c < a->head_dim; c++) {
        room[c] += 1.0F;
    }
    if (job.weight != NULL || job.pairs > 0) {
        oz_pool_for(ctx->dev->pool, a->x->rows, v_grain(a->x->rows, a->x->cols), qk_norm_rope_rows,
                    &job);
    }
    return OZ_OK;
}

#endif
