/*
 * vllm_omni.c: checkpoints of vLLM-Omni's own methods ("quant_method": "int8", "mxfp8", "mxfp4" or
 * "mxfp4_dualscale"): codes as "weight", scales that multiply as "weight_scale", by output row or by 32 of
 * a row, and "weight_dual_scale" by 512. FP4 weights are two codes in a byte, or each one's value as a
 * number of a wider dtype; so may be those of mxfp8. "mul_scale" multiplies activations. Read only. Which
 * layers are quantized is in the tensors; ignored_layers says the same.
 */
#include <string.h>

#include "base/error.h"
#include "num/float4.h"
#include "num/float8.h"
#include "num/plane.h"
#include "quant/dialect/form.h"

static const struct kind {
    const char *method, *scheme;
    enum oz_dtype codes;
    enum oz_dtype scales;
    int32_t group; /* 0: a scale for each row */
    bool dual;
    enum oz_act_mode mode;
} kinds[] = {
    {"int8", "int8", OZ_DTYPE_I8, OZ_DTYPE_F32, 0, false, OZ_ACT_INT8_TOKEN},
    {"mxfp8", "mxfp8", OZ_DTYPE_F8_E4M3, OZ_DTYPE_U8, 32, false, OZ_ACT_NONE},
    {"mxfp4", "mxfp4", OZ_DTYPE_U8, OZ_DTYPE_U8, 32, false, OZ_ACT_NONE},
    {"mxfp4_dualscale", "mxfp4_dualscale", OZ_DTYPE_U8, OZ_DTYPE_U8, 32, true, OZ_ACT_NONE},
};

static enum oz_status take_dual(const struct oz_dialect_reader *r, int32_t row)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_dialect_tensor dual = {
        .plane = OZ_PLANE_SCALES2,
        .suffix = "weight_dual_scale",
        .dtype = OZ_DTYPE_F32,
        .rank = 2,
        .shape = {layer->shape[0], (layer->shape[1] + 511) / 512}};
    return oz_stored_take(&r->out->weights[row], r->ckpt, r->path, layer, &dual, r->err);
}

/* Are the first numbers of a plain tensor values of the method's codes, as in a weight whose scale has been
 * lost? */
static enum oz_status check_lost(const struct oz_dialect_reader *r, const struct oz_tensor_view *t,
                                 const struct kind *k)
{
    uint8_t bytes[512];
    bool fp4 = k->codes == OZ_DTYPE_U8;
    bool values = t->elements >= 64;
    bool zeros = true;
    int64_t n = t->elements < 128 ? t->elements : 128;
    if (!values || k->codes == OZ_DTYPE_I8 || oz_dtype_bits(t->dtype) > 32) {
        return OZ_OK;
    }
    OZ_TRY(oz_ckpt_read(r->ckpt, t, 0, n * oz_dtype_bits(t->dtype) / 8, bytes, r->err));
    for (int64_t i = 0; i < n && values; i++) {
        float x;
        oz_plane_read(t->dtype, bytes, i, 1, &x);
        values = x == (fp4 ? oz_e2m1_to_f32(oz_f32_to_e2m1(x)) : oz_e4m3_to_f32(oz_f32_to_e4m3(x)));
        zeros = zeros && x == 0;
    }
    return !values || zeros ? OZ_OK
                            : OZ_FAIL(r->err, OZ_ERR_FORMAT,
                                      "Tensor %s holds values of %s codes, and its weight_scale is "
                                      "missing.",
                                      t->name, fp4 ? "FP4" : "FP8");
}

/* Smoothing is a property of the whole: a vector alone that is not there has been lost. */
static enum oz_status check_smooth(const struct oz_dialect_reader *r)
{
    int32_t with = 0;
    const char *without = NULL;
    for (int32_t i = 0; i < r->table->count; i++) {
        bool smooth = r->out->weights[i].planes[OZ_PLANE_SMOOTH].tensor != NULL;
        bool quantized = r->out->schemes[i].codec != NULL;
        with += smooth;
        without = quantized && !smooth ? r->table->rows[i].module : without;
    }
    return with == 0 || without == NULL
               ? OZ_OK
               : OZ_FAIL(r->err, OZ_ERR_FORMAT,
                         "%s: %d quantized layers have a mul_scale, but %s has none.", r->path,
                         (int)with, without);
}

static enum oz_status read_row(const struct oz_dialect_reader *r, int32_t row, const struct kind *k)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_form_find(r, row, "weight");
    bool scaled = oz_form_find(r, row, "weight_scale") != NULL;
    if (!oz_stored_is_matrix(layer) || t == NULL) {
        return OZ_OK;
    }
    if (!scaled && oz_codec_plain(t->dtype) != NULL) {
        return check_lost(r, t, k);
    }
    bool numbers = t->dtype != OZ_DTYPE_I8 && t->dtype != OZ_DTYPE_U8 && t->dtype != k->codes;
    bool packed = k->codes == OZ_DTYPE_U8 && !numbers;
    struct oz_form f = {.scheme = k->scheme,
                        .codes = "weight",
                        .scales = "weight_scale",
                        .code_dtype = numbers ? t->dtype : k->codes,
                        .scale_dtype = k->scales,
                        .per_byte = packed ? 2 : 1,
                        .scope = k->group > 0 ? OZ_FORM_GROUP : OZ_FORM_ROW,
                        .group = k->group,
                        .code_move = numbers ? OZ_MOVE_VALUES : OZ_MOVE_BYTES,
                        .mode = k->mode};
    if (numbers && k->group == 0) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "Tensor %s is %s; the weights of %s are I8.", t->name,
                       oz_dtype_name(t->dtype), k->method);
    }
    OZ_TRY(oz_form_take(r, row, &f));
    if (k->dual) {
        OZ_TRY(take_dual(r, row));
    }
    bool required = oz_json_bool(oz_json_get(r->q, "require_smooth_scale"), false);
    return required || oz_form_find(r, row, "mul_scale") != NULL
               ? oz_form_smooth(r, row, "mul_scale", true)
               : OZ_OK;
}

enum oz_status oz_vllm_omni_read(const struct oz_dialect_reader *r)
{
    const char *acts = oz_json_string(oz_json_get(r->q, "activation_scheme"), "dynamic");
    const struct kind *k = kinds;
    while (strcmp(k->method, r->out->method) != 0) { /* it is one of them: oz_stored_read */
        k++;
    }
    if (strcmp(acts, "dynamic") != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: \"activation_scheme\" is \"%.40s\"; this version reads \"dynamic\".",
                       r->path, acts);
    }
    if (strcmp(k->method, "mxfp4") == 0 && oz_gpt_oss_is(r->ckpt)) {
        return oz_gpt_oss_read(r); /* it has the same name for its own */
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(r, i, k));
    }
    static const char *const policy[] = {"w4a8_fallback_steps", "w4a8_fallback_layers",
                                         "mxfp4_scale_alg"};
    for (size_t i = 0; i < sizeof policy / sizeof *policy; i++) {
        if (oz_json_get(r->q, policy[i]) != NULL) {
            oz_stored_note(r->out, r->arena,
                           "%s of the config is about activations of 4 bits, which are not taken "
                           "unless they are asked for; give it with the request then",
                           policy[i]);
        }
    }
    return check_smooth(r);
}
