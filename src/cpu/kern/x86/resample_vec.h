/* cpu/kern/x86/resample_vec.h: resample NEAREST between equal formats: whole rows are copied, by the
 * C library. The kinds of the VAE's other shortcuts stay with the reference. */
#ifndef OZ_CPU_KERN_X86_RESAMPLE_VEC_H
#define OZ_CPU_KERN_X86_RESAMPLE_VEC_H

#include "cpu/kern/x86/row_vec.h"

static const char *resample_reject(const struct oz_device *dev, const void *args)
{
    const struct oz_resample_args *a = args;
    (void)dev;
    if (a->kind != OZ_RESAMPLE_NEAREST) {
        return "only NEAREST";
    }
    if (a->x->spec.dtype != a->out->spec.dtype) {
        return "x and out differ in format";
    }
    return v_reject_act(a->x, true) != NULL ? v_reject_act(a->x, true) : v_reject_act(a->out, true);
}

/* Lines of the output: line (t, y) of width * factor_x rows. */
static void resample_lines(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_resample_args *a = ctx;
    size_t size = a->x->spec.dtype == OZ_DTYPE_F32 ? 4 : 2;
    size_t bytes = (size_t)a->out->cols * size;
    int64_t out_height = (int64_t)a->height * a->factor_y;
    (void)thread;
    for (int64_t line = begin; line < end; line++) {
        int64_t t = line / out_height / a->factor_t;
        int64_t y = line % out_height / a->factor_y;
        int64_t from = (t * a->height + y) * a->width * a->x->stride;
        int64_t to = line * a->width * a->factor_x * a->out->stride;
        const uint8_t *src = (const uint8_t *)a->x->data + (size_t)from * size;
        uint8_t *dst = (uint8_t *)a->out->data + (size_t)to * size;
        for (int32_t x = 0; x < a->width; x++) {
            for (int32_t i = 0; i < a->factor_x; i++) {
                memcpy(dst, src, bytes);
                dst += (size_t)a->out->stride * size;
            }
            src += (size_t)a->x->stride * size;
        }
    }
}

static enum oz_status resample_run(const struct oz_op_ctx *ctx, const void *args)
{
    struct oz_resample_args a = *(const struct oz_resample_args *)args;
    int64_t lines = (int64_t)a.frames * a.factor_t * a.height * a.factor_y;
    int64_t line_elems = oz_ref_times((int64_t)a.width * a.factor_x, a.out->cols);
    OZ_TRY(oz_ref_begin(ctx, 0));
    if (line_elems > 0) {
        oz_pool_for(ctx->dev->pool, lines, v_grain(lines, line_elems), resample_lines, &a);
    }
    return OZ_OK;
}

#endif
