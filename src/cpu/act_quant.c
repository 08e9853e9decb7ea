/*
 * act_quant by the encoders of weights (cpu/encode.h): a row of activations is a weight of one row
 * wherever a codec has the same elements and scale rules (num/act.h). To the same bytes as the
 * reference, which takes the rows that an encoder leaves.
 */
#include "cpu/encode.h"
#include "cpu/kern/ref/ref.h"
#include "cpu/kernel.h"
#include "num/group.h"

/* The codec whose rows look like this format, or NULL. */
static const char *codec_of(const struct oz_act_spec *s)
{
    bool rows = true;
    for (int i = 0; i < s->scale_count; i++) {
        rows = rows && s->scale[i].layout == OZ_SCALE_ROWS;
    }
    if (!rows || s->scale_count == 0 || s->static_scale != NULL || s->static_offset != NULL) {
        return NULL;
    }
    switch (s->dtype) {
    case OZ_DTYPE_F8_E4M3:
        return s->scale[0].dtype == OZ_DTYPE_F8_E8M0 ? "mxfp8"
               : s->scale[0].group_cols == 0         ? "fp8_channel"
                                                     : NULL;
    case OZ_DTYPE_I8: return "int8_channel";
    case OZ_DTYPE_F4:
        return s->scale[0].dtype == OZ_DTYPE_F8_E4M3 ? "nvfp4"
               : s->scale_count == 1                 ? "mxfp4"
                                                     : NULL;
    default: return NULL;
    }
}

static const struct oz_encoder *encoder_of(const struct oz_device *dev, const struct oz_act_spec *s,
                                           enum oz_tier tier)
{
    const char *name = codec_of(s);
    const struct oz_codec *codec = name != NULL ? oz_codec_find(name) : NULL;
    (void)dev;
    for (const struct oz_cpu_encoder *const *e = oz_cpu_encoders; codec != NULL && *e != NULL;
         e++) {
        if ((*e)->codec == codec && (*e)->stored == OZ_DTYPE_F32 && (*e)->tier == tier) {
            return &(*e)->encoder;
        }
    }
    return NULL;
}

static bool put_row(const struct oz_device *dev, const struct oz_act *a, int64_t row, float amax,
                    const float *src, enum oz_tier tier)
{
    const struct oz_act_spec *s = &a->spec;
    const struct oz_encoder *encoder = encoder_of(dev, s, tier);
    struct oz_encode_state state;
    if (encoder == NULL) {
        return false;
    }
    struct oz_weight w = oz_weight_shape(oz_codec_find(codec_of(s)), 1, 1, a->cols);
    int64_t group = s->scale[0].group_cols > 0 ? s->scale[0].group_cols : a->cols;
    int64_t groups = (a->cols + group - 1) / group;
    w.planes[OZ_PLANE_CODES].data =
        (uint8_t *)a->data + row * a->stride * oz_dtype_bits(s->dtype) / 8;
    w.planes[OZ_PLANE_SCALES].data =
        (uint8_t *)a->scales[0] + row * groups * oz_dtype_bits(s->scale[0].dtype) / 8;
    oz_encode_state_init(&state);
    state.exponent_rule = s->exponent_rule;
    state.amax = amax;
    if (s->scale_count == 2) { /* nvfp4: of the sequence, in every row */
        ((float *)a->scales[1])[row] = 1.0F / oz_nvfp4_global(amax);
    }
    return encoder->encode(&w, 0, 0, src, 1, a->cols, &state);
}

#define ENTRY(object, text, tier_)                                                                \
    static bool object##_put(const struct oz_device *dev, const struct oz_act *a, int64_t row,    \
                             float amax, const float *src)                                        \
    {                                                                                             \
        return put_row(dev, a, row, amax, src, tier_);                                            \
    }                                                                                             \
    static const char *object##_reject(const struct oz_device *dev, const void *args)             \
    {                                                                                             \
        const struct oz_act_quant_args *a = args;                                                 \
        return encoder_of(dev, &a->out->spec, tier_) != NULL ? NULL                               \
                                                             : "it has no encoder for such rows"; \
    }                                                                                             \
    static enum oz_status object##_run(const struct oz_op_ctx *ctx, const void *args)             \
    {                                                                                             \
        return oz_ref_act_quant(ctx, args, object##_put);                                         \
    }                                                                                             \
    const struct oz_cpu_kernel object = {.name = (text),                                          \
                                         .op = OZ_OP_ACT_QUANT,                                   \
                                         .tier = (tier_),                                         \
                                         .proven = "AMD EPYC (Zen 4)",                            \
                                         .reject = object##_reject,                               \
                                         .scratch = oz_ref_scratch_act_quant,                     \
                                         .run = object##_run};

#if defined(OZ_HAVE_AVX512)
ENTRY(oz_kernel_act_quant_codes__avx512, "oz_act_quant_f32_codes__avx512", OZ_TIER_AVX512)
#endif
#if defined(OZ_HAVE_AVX2)
ENTRY(oz_kernel_act_quant_codes__avx2, "oz_act_quant_f32_codes__avx2", OZ_TIER_AVX2)
#endif
