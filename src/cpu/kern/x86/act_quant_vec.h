/* cpu/kern/x86/act_quant_vec.h: act_quant over vec_avx2.h or vec_avx512.h: rows copied, gathered,
 * scattered, between F32 and BF16, to the same bits as num/float.h. */
#ifndef OZ_CPU_KERN_X86_ACT_QUANT_VEC_H
#define OZ_CPU_KERN_X86_ACT_QUANT_VEC_H

#include "cpu/kern/x86/row_vec.h"

static const char *act_quant_reject(const struct oz_device *dev, const void *args)
{
    const struct oz_act_quant_args *a = args;
    const char *reason = v_reject_act(a->x, true);
    (void)dev;
    return reason != NULL ? reason : v_reject_act(a->out, true);
}

OZ_ALWAYS void quant_step(const struct oz_act_quant_args *a, int64_t from, int64_t to, int64_t col,
                          int64_t left, bool whole)
{
    struct v4 v = a->x->spec.dtype == OZ_DTYPE_BF16
                      ? v4_load_bf16(oz_ref_bf16(a->x, from, col), left, whole)
                      : v4_load(oz_ref_f32(a->x, from, col), left, whole);
    v4_store_act(a->out, to, col, v, left, whole);
}

static void act_quant_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_act_quant_args *a = ctx;
    size_t size = a->x->spec.dtype == OZ_DTYPE_F32 ? 4 : 2;
    int64_t cols = a->x->cols;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = a->x_rows != NULL ? a->x_rows[i] : i;
        int64_t to = a->out_rows != NULL ? a->out_rows[i] : i;
        if (a->x->spec.dtype == a->out->spec.dtype) { /* bit for bit */
            memcpy((uint8_t *)a->out->data + (size_t)(to * a->out->stride) * size,
                   (const uint8_t *)a->x->data + (size_t)(from * a->x->stride) * size,
                   (size_t)cols * size);
        } else {
            OZ_EACH_STEP(cols, quant_step(a, from, to, col, left, whole));
        }
    }
}

static enum oz_status act_quant_run(const struct oz_op_ctx *ctx, const void *args)
{
    struct oz_act_quant_args a = *(const struct oz_act_quant_args *)args;
    OZ_TRY(oz_ref_begin(ctx, 0));
    if (a.x->cols > 0) {
        oz_pool_for(ctx->dev->pool, a.rows, v_grain(a.rows, a.x->cols), act_quant_rows, &a);
    }
    return OZ_OK;
}

#endif
