/* Weights that the device encodes from rows sent as the file has them, and dummies that it draws. */
#include <string.h>

#include "cuda/host/cuda.h"
#include "num/noise.h"

static const struct known {
    const char *codec;
    enum oz_encode_kind kind;
    const char *name; /* as the host's are called (struct oz_encoder) */
} known[] = {
    {"fp8_tensor", OZ_ENCODE_FP8_TENSOR, "oz_encode_bf16_fp8_tensor__cuda"},
    {"fp8_channel", OZ_ENCODE_FP8_CHANNEL, "oz_encode_bf16_fp8_channel__cuda"},
    {"fp8_block", OZ_ENCODE_FP8_BLOCK, "oz_encode_bf16_fp8_block__cuda"},
    {"int8_channel", OZ_ENCODE_INT8, "oz_encode_bf16_int8_channel__cuda"},
    {"mxfp8", OZ_ENCODE_MXFP8, "oz_encode_bf16_mxfp8__cuda"},
    {"mxfp4", OZ_ENCODE_MXFP4, "oz_encode_bf16_mxfp4__cuda"},
    {"mxfp4_dualscale", OZ_ENCODE_DUAL, "oz_encode_bf16_mxfp4_dualscale__cuda"},
    {"nvfp4", OZ_ENCODE_NVFP4, "oz_encode_bf16_nvfp4__cuda"},
};

static const struct known *find(const struct oz_codec *codec)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].codec, codec->name) == 0) {
            return &known[i];
        }
    }
    return NULL;
}

const char *oz_cuda_row_encoder(const struct oz_device *dev, const struct oz_codec *codec,
                                enum oz_dtype stored)
{
    const struct known *k = stored == OZ_DTYPE_BF16 ? find(codec) : NULL;
    (void)dev;
    return k != NULL ? k->name : NULL;
}

static uint8_t *plane_of(const struct oz_weight *w, enum oz_plane plane, int64_t slice,
                         int64_t *row_bytes)
{
    const struct oz_plane_view *v = &w->planes[plane];
    *row_bytes = v->row_stride_bytes;
    return v->present ? (uint8_t *)v->data + slice * v->slice_stride_bytes : NULL;
}

enum oz_status oz_cuda_encode_rows(struct oz_device *dev, struct oz_queue *queue,
                                   const struct oz_encode_rows_args *a, struct oz_error *err)
{
    const struct known *k = find(a->w->codec);
    struct oz_cuda_encode e = {.src = a->src,
                               .row0 = a->row0,
                               .rows = a->rows,
                               .cols = a->w->cols,
                               .rule = a->state.exponent_rule,
                               .amax = a->state.amax,
                               .keep_nonfinite = a->state.keep_nonfinite,
                               .bad = a->bad};
    if (k == NULL) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL, "Device %s does not encode %s.", dev->name,
                       a->w->codec->name);
    }
    e.kind = k->kind;
    e.codes = plane_of(a->w, OZ_PLANE_CODES, a->slice, &e.code_bytes);
    e.scales[0] = plane_of(a->w, OZ_PLANE_SCALES, a->slice, &e.scale_bytes[0]);
    e.scales[1] = plane_of(a->w, OZ_PLANE_SCALES2, a->slice, &e.scale_bytes[1]);
    OZ_TRY(oz_cuda_choose(dev, err));
    return oz_cuda_report(dev, "encoding a weight",
                          oz_launch_encode(oz_cuda_stream_of(dev, queue), &e), err);
}

enum oz_status oz_cuda_draw(struct oz_device *dev, struct oz_queue *queue,
                            const struct oz_draw_args *a, struct oz_error *err)
{
    OZ_TRY(oz_cuda_choose(dev, err));
    oz_cuda_halves_forget(oz_cuda_of(dev), a->dst, (size_t)a->count * 2);
    return oz_cuda_report(dev, "drawing a weight", oz_launch_draw(oz_cuda_stream_of(dev, queue), a),
                          err);
}
