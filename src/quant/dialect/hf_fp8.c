/*
 * hf_fp8.c: FP8 checkpoints as DeepSeek, transformers and vLLM have them ("quant_method": "fp8"): codes as
 * "weight" F8_E4M3; with "weight_block_size" [128, 128] the scales of blocks as "weight_scale_inv", which
 * multiply in spite of their name; without it "weight_scale", one for each linear or each row. Where the
 * config says "weight_scale_semantics": "inverse" (GPTQModel), they divide. Read only.
 */
#include <string.h>

#include "base/error.h"
#include "quant/dialect/form.h"

static enum oz_status check_config(const struct oz_dialect_reader *r, bool *blocks, bool *inverse,
                                   bool *static_acts)
{
    const struct oz_json *size = oz_json_get(r->q, "weight_block_size");
    const char *scheme;
    const char *format;
    const char *semantics;
    OZ_TRY(oz_json_get_string(r->q, "activation_scheme", "dynamic", &scheme, r->path, r->err));
    OZ_TRY(oz_json_get_string(r->q, "fmt", "e4m3", &format, r->path, r->err));
    OZ_TRY(oz_json_get_string(r->q, "weight_scale_semantics", "", &semantics, r->path, r->err));
    *inverse = strcmp(semantics, "inverse") == 0;
    *blocks = oz_json_type(size) != OZ_JSON_NULL;
    bool square = oz_json_count(size) == 2 && oz_json_integer(oz_json_at(size, 0), 0) == 128 &&
                  oz_json_integer(oz_json_at(size, 1), 0) == 128;
    bool is_static = strcmp(scheme, "static") == 0;
    *static_acts = is_static;
    if ((!is_static && strcmp(scheme, "dynamic") != 0) || (is_static && *blocks) ||
        strcmp(format, "e4m3") != 0 || (*blocks && !square)) {
        return OZ_FAIL(
            r->err, OZ_ERR_UNSUPPORTED,
            "%s: of fp8 checkpoints this version reads e4m3 with scales of a linear, of rows or of "
            "128x128, and activations that are dynamic, or static without blocks; this one has the "
            "format \"%.40s\", \"%.40s\" activations%s.",
            r->path, format, scheme, *blocks && !square ? ", blocks of another size" : "");
    }
    return OZ_OK;
}

enum oz_status oz_hf_fp8_read(const struct oz_dialect_reader *r)
{
    bool blocks;
    bool inverse;
    bool is_static;
    OZ_TRY(check_config(r, &blocks, &inverse, &is_static));
    for (int32_t i = 0; i < r->table->count; i++) {
        const struct oz_layer *layer = &r->table->rows[i];
        if (!oz_form_has(r, i, "weight", OZ_DTYPE_F8_E4M3)) {
            continue; /* modules_to_not_convert lists them; the tensors say it as well */
        }
        bool inv = oz_form_find(r, i, "weight_scale_inv") != NULL;
        const char *scales = blocks || inv ? "weight_scale_inv" : "weight_scale";
        if (oz_form_find(r, i, scales) == NULL) {
            return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                           "%s says that %s is quantized, but the tensor %s.%s is missing.",
                           r->path, layer->module, layer->module, scales);
        }
        OZ_TRY(oz_form_take_fp8(r, i, "weight", scales, inverse));
        bool block = strcmp(r->out->schemes[i].name, "fp8_per_block") == 0;
        if (blocks != block && !(blocks && layer->shape[0] <= 128 && layer->shape[1] <= 128)) {
            return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                           "%s says that scales are of %s, but the tensor %s.%s is not.", r->path,
                           blocks ? "128x128" : "a linear or of rows", layer->module, scales);
        }
        if (blocks && !block) { /* one block */
            OZ_TRY(
                oz_stored_scheme(&r->out->schemes[i], "fp8_per_block", OZ_ACT_FP8_GROUP, r->err));
        }
        bool found;
        OZ_TRY(oz_form_input_scale(r, i, "input_scale", &found));
        if (is_static && !found) {
            return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                           "%s says that activations have static scales, but the tensor "
                           "%s.input_scale is missing.",
                           r->path, layer->module);
        }
    }
    return OZ_OK;
}
