/* cpu/kern/x86/cfg_combine_vec.h: cfg_combine over vec_avx2.h or vec_avx512.h, F32. With rescale the
 * rows are read twice: for their lengths, then for the result. */
#ifndef OZ_CPU_KERN_X86_CFG_COMBINE_VEC_H
#define OZ_CPU_KERN_X86_CFG_COMBINE_VEC_H

#include "cpu/kern/x86/row_vec.h"

static const char *cfg_combine_reject(const struct oz_device *dev, const void *args)
{
    const struct oz_cfg_combine_args *a = args;
    (void)dev;
    return v_reject_act(a->positive, false) != NULL || v_reject_act(a->negative, false) != NULL ||
                   v_reject_act(a->out, false) != NULL
               ? "an operand is not plain F32"
               : NULL;
}

/* negative + guidance (positive - negative), then times factor. */
OZ_ALWAYS void cfg_step(const struct oz_cfg_combine_args *a, int64_t r, float factor, int64_t col,
                        int64_t left, bool whole)
{
    struct v4 n = v4_load(oz_ref_f32(a->negative, r, col), left, whole);
    struct v4 d = v4_sub(v4_load(oz_ref_f32(a->positive, r, col), left, whole), n);
    struct v4 v = v4_fma(v4_set(a->guidance), d, n);
    v4_store(oz_ref_f32(a->out, r, col), v4_mul(v, v4_set(factor)), left, whole);
}

/* |positive| / |combined|; 1 for a row that combines to zero. */
static float cfg_factor(const struct oz_cfg_combine_args *a, int64_t r)
{
    const float *p = oz_ref_f32(a->positive, r, 0);
    const float *n = oz_ref_f32(a->negative, r, 0);
    const int64_t half = OZ_VL / 2;
    int64_t cols = a->out->cols;
    vd guidance = vd_set(a->guidance);
    vd positive = vd_set(0);
    vd combined = vd_set(0);
    int64_t c = 0;
    for (; c + half <= cols; c += half) {
        vd x = vd_load(p + c);
        vd y = vd_load(n + c);
        vd v = vd_fma(guidance, vd_sub(x, y), y);
        positive = vd_fma(x, x, positive);
        combined = vd_fma(v, v, combined);
    }
    double squares_p = vd_sum(positive);
    double squares = vd_sum(combined);
    for (; c < cols; c++) {
        double v = n[c] + (double)a->guidance * ((double)p[c] - n[c]);
        squares_p += (double)p[c] * p[c];
        squares += v * v;
    }
    return squares != 0 ? (float)sqrt(squares_p / squares) : 1;
}

static void cfg_combine_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_cfg_combine_args *a = ctx;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float factor = a->rescale ? cfg_factor(a, r) : 1;
        OZ_EACH_STEP(a->out->cols, cfg_step(a, r, factor, col, left, whole));
    }
}

static enum oz_status cfg_combine_run(const struct oz_op_ctx *ctx, const void *args)
{
    struct oz_cfg_combine_args a = *(const struct oz_cfg_combine_args *)args;
    OZ_TRY(oz_ref_begin(ctx, 0));
    oz_pool_for(ctx->dev->pool, a.out->rows, v_grain(a.out->rows, a.out->cols), cfg_combine_rows,
                &a);
    return OZ_OK;
}

#endif
