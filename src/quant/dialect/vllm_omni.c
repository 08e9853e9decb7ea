/*
 * vllm_omni.c: checkpoints of vLLM-Omni's own methods ("quant_method": "int8" or "mxfp8"): codes as
 * "weight", scales that multiply as "weight_scale", by output row or by 32 of a row. Read only. Which
 * layers are quantized is in the tensors; ignored_layers says the same.
 */
#include <string.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

static const struct kind {
    const char *method, *scheme;
    enum oz_dtype codes, scales;
    int32_t group; /* 0: a scale for each row */
    enum oz_act_mode mode;
} kinds[] = {
    {"int8", "int8", OZ_DTYPE_I8, OZ_DTYPE_F32, 0, OZ_ACT_INT8_TOKEN},
    {"mxfp8", "mxfp8", OZ_DTYPE_F8_E4M3, OZ_DTYPE_U8, 32, OZ_ACT_NONE},
};

bool oz_vllm_omni_reads(const char *method)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].method, method) == 0) {
            return true;
        }
    }
    return false;
}

static enum oz_status read_row(struct oz_stored *out, int32_t row, const struct kind *k,
                               const char *path, const struct oz_ckpt *ckpt,
                               const struct oz_layer *layer, struct oz_error *err)
{
    int64_t rows = layer->shape[0];
    int64_t cols = layer->shape[1];
    const struct oz_dialect_tensor codes = {.plane = OZ_PLANE_CODES,
                                            .suffix = "weight",
                                            .dtype = k->codes,
                                            .rank = 2,
                                            .shape = {rows, cols}};
    const struct oz_dialect_tensor scales = {
        .plane = OZ_PLANE_SCALES,
        .suffix = "weight_scale",
        .dtype = k->scales,
        .rank = 2,
        .shape = {rows, k->group > 0 ? (cols + k->group - 1) / k->group : 1}};
    OZ_TRY(oz_stored_take(&out->weights[row], ckpt, path, layer, &codes, err));
    OZ_TRY(oz_stored_take(&out->weights[row], ckpt, path, layer, &scales, err));
    OZ_TRY(oz_stored_scheme(&out->schemes[row], k->scheme, k->mode, err));
    out->count++;
    return OZ_OK;
}

enum oz_status oz_vllm_omni_read(struct oz_stored *out, const struct oz_json *q, const char *path,
                                 const struct oz_ckpt *ckpt, const struct oz_layer_table *table,
                                 struct oz_error *err)
{
    const char *acts = oz_json_string(oz_json_get(q, "activation_scheme"), "dynamic");
    const struct kind *k = kinds;
    while (strcmp(k->method, out->method) != 0) { /* it is one of them: oz_vllm_omni_reads */
        k++;
    }
    if (strcmp(acts, "dynamic") != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: \"activation_scheme\" is \"%.40s\"; this version reads \"dynamic\".",
                       path, acts);
    }
    for (int32_t i = 0; i < table->count; i++) {
        const struct oz_layer *layer = &table->rows[i];
        const struct oz_tensor_view *t = oz_ckpt_find(ckpt, layer->name, NULL);
        if (layer->kind == OZ_LAYER_LINEAR && layer->rank == 2 && t != NULL &&
            t->dtype == k->codes) {
            OZ_TRY(read_row(out, i, k, path, ckpt, layer, err));
        }
    }
    return OZ_OK;
}
