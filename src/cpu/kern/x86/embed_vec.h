/*
 * cpu/kern/x86/embed_vec.h: embed from plain F32 and BF16 tables over vec_avx2.h or vec_avx512.h. The
 * table is not known while memory is measured: scratch is the reference's, which may run instead.
 */
#ifndef OZ_CPU_KERN_X86_EMBED_VEC_H
#define OZ_CPU_KERN_X86_EMBED_VEC_H

#include "cpu/kern/x86/row_vec.h"

static const char *embed_reject(const struct oz_device *dev, const void *args)
{
    const struct oz_embed_args *a = args;
    const struct oz_codec *codec = a->table->weight.codec;
    (void)dev;
    if (codec != NULL && codec != oz_codec_plain(OZ_DTYPE_F32) &&
        codec != oz_codec_plain(OZ_DTYPE_BF16)) {
        return "the table is neither plain F32 nor BF16";
    }
    return v_reject_act(a->out, true);
}

OZ_ALWAYS void embed_step(const struct oz_embed_args *a, const void *src, bool bf16, int64_t r,
                          int64_t col, int64_t left, bool whole)
{
    struct v4 v = bf16 ? v4_load_bf16((const uint16_t *)src + col, left, whole)
                       : v4_load((const float *)src + col, left, whole);
    v4_store_act(a->out, r, col, v4_mul(v, v4_set(a->scale)), left, whole);
}

static void embed_rows(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_embed_args *a = ctx;
    const struct oz_plane_view *codes = &a->table->weight.planes[OZ_PLANE_CODES];
    bool bf16 = a->table->weight.codec == oz_codec_plain(OZ_DTYPE_BF16);
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const void *src = (const uint8_t *)codes->data + a->ids[r] * codes->row_stride_bytes;
        OZ_EACH_STEP(a->out->cols, embed_step(a, src, bf16, r, col, left, whole));
    }
}

static enum oz_status embed_run(const struct oz_op_ctx *ctx, const void *args)
{
    struct oz_embed_args a = *(const struct oz_embed_args *)args;
    OZ_TRY(oz_ref_begin(ctx, 0));
    OZ_TRY(oz_ref_check_embed(&a));
    oz_pool_for(ctx->dev->pool, a.out->rows, v_grain(a.out->rows, a.out->cols), embed_rows, &a);
    return OZ_OK;
}

#endif
