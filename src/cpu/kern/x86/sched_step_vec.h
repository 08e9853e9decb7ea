/* cpu/kern/x86/sched_step_vec.h: sched_step over vec_avx2.h or vec_avx512.h, F32. */
#ifndef OZ_CPU_KERN_X86_SCHED_STEP_VEC_H
#define OZ_CPU_KERN_X86_SCHED_STEP_VEC_H

#include "cpu/kern/x86/row_vec.h"

static const char *sched_step_reject(const struct oz_device *dev, const void *args)
{
    const struct oz_sched_step_args *a = args;
    (void)dev;
    if (v_reject_act(a->x, false) != NULL) {
        return "x is not plain F32";
    }
    for (int32_t i = 0; i < a->count; i++) {
        if (v_reject_act(a->terms[i], false) != NULL) {
            return "a term is not plain F32";
        }
    }
    return NULL;
}

OZ_ALWAYS void sched_step_step(const struct oz_sched_step_args *a, int64_t r, int64_t col,
                               int64_t left, bool whole)
{
    float *x = oz_ref_f32(a->x, r, col);
    struct v4 v = v4_load(x, left, whole);
    if (!a->keep) {
        v = v4_mul(v, v4_set(a->factors[0]));
    }
    for (int32_t i = 0; i < a->count; i++) {
        struct v4 term = v4_load(oz_ref_f32(a->terms[i], r, col), left, whole);
        v = v4_fma(v4_set(a->factors[1 + i]), term, v);
    }
    v4_store(x, v, left, whole);
}

static void sched_step_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_sched_step_args *a = ctx;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        OZ_EACH_STEP(a->x->cols, sched_step_step(a, r, col, left, whole));
    }
}

static enum oz_status sched_step_run(const struct oz_op_ctx *ctx, const void *args)
{
    struct oz_sched_step_args a = *(const struct oz_sched_step_args *)args;
    OZ_TRY(oz_ref_begin(ctx, 0));
    oz_pool_for(ctx->dev->pool, a.x->rows, v_grain(a.x->rows, a.x->cols), sched_step_rows, &a);
    return OZ_OK;
}

#endif
