/*
 * hf_fp8.c: FP8 checkpoints as DeepSeek, transformers and vLLM have them ("quant_method": "fp8"): codes as
 * "weight" F8_E4M3; with "weight_block_size" [128, 128] the scales of blocks as "weight_scale_inv", which
 * multiply in spite of their name; without it one "weight_scale" for each linear. Read only.
 */
#include <string.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

static enum oz_status check_config(const struct oz_json *q, const char *path, bool *blocks,
                                   struct oz_error *err)
{
    const struct oz_json *size = oz_json_get(q, "weight_block_size");
    const char *scheme;
    const char *format;
    const char *semantics;
    OZ_TRY(oz_json_get_string(q, "activation_scheme", "dynamic", &scheme, path, err));
    OZ_TRY(oz_json_get_string(q, "fmt", "e4m3", &format, path, err));
    OZ_TRY(oz_json_get_string(q, "weight_scale_semantics", "", &semantics, path, err));
    *blocks = oz_json_type(size) != OZ_JSON_NULL;
    bool square = oz_json_count(size) == 2 && oz_json_integer(oz_json_at(size, 0), 0) == 128 &&
                  oz_json_integer(oz_json_at(size, 1), 0) == 128;
    if (strcmp(scheme, "dynamic") != 0 || strcmp(format, "e4m3") != 0 ||
        strcmp(semantics, "inverse") == 0 || (*blocks && !square)) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: of fp8 checkpoints this version reads e4m3 with scales that multiply, of a "
            "linear or of 128x128, and dynamic activations; this one has the format "
            "\"%.40s\", \"%.40s\" activations%s%s.",
            path, format, scheme, strcmp(semantics, "inverse") == 0 ? ", inverse scales" : "",
            *blocks && !square ? ", blocks of another size" : "");
    }
    return OZ_OK;
}

enum oz_status oz_hf_fp8_read(struct oz_stored *out, const struct oz_json *q, const char *path,
                              const struct oz_ckpt *ckpt, const struct oz_layer_table *table,
                              struct oz_error *err)
{
    bool blocks;
    OZ_TRY(check_config(q, path, &blocks, err));
    for (int32_t i = 0; i < table->count; i++) {
        const struct oz_layer *layer = &table->rows[i];
        const struct oz_tensor_view *t = oz_ckpt_find(ckpt, layer->name, NULL);
        if (layer->kind != OZ_LAYER_LINEAR || layer->rank != 2 || t == NULL ||
            t->dtype != OZ_DTYPE_F8_E4M3) {
            continue; /* modules_to_not_convert lists them; the tensors say it as well */
        }
        const struct oz_dialect_tensor codes = {.plane = OZ_PLANE_CODES,
                                                .suffix = "weight",
                                                .dtype = OZ_DTYPE_F8_E4M3,
                                                .rank = 2,
                                                .shape = {layer->shape[0], layer->shape[1]}};
        struct oz_dialect_tensor scales = {.plane = OZ_PLANE_SCALES,
                                           .suffix = "weight_scale",
                                           .dtype = OZ_DTYPE_F32,
                                           .rank = 1,
                                           .shape = {1}};
        if (blocks) {
            scales.suffix = "weight_scale_inv";
            scales.rank = 2;
            scales.shape[0] = (layer->shape[0] + 127) / 128;
            scales.shape[1] = (layer->shape[1] + 127) / 128;
        }
        OZ_TRY(oz_stored_take(&out->weights[i], ckpt, path, layer, &codes, err));
        OZ_TRY(oz_stored_take(&out->weights[i], ckpt, path, layer, &scales, err));
        OZ_TRY(oz_stored_scheme(&out->schemes[i], blocks ? "fp8_per_block" : "fp8_per_tensor",
                                blocks ? OZ_ACT_FP8_GROUP : OZ_ACT_FP8_TOKEN, err));
        out->count++;
    }
    return OZ_OK;
}
