/*
 * inferred.c: quantized weights that no config tells of, where names, dtypes and shapes say enough: FP8 with
 * scales of tensors, rows or blocks; INT8 with scales of rows; MXFP8 and MXFP4; compressed-tensors'
 * packed FP4. Files of bare FP8 without any scale are casts, and read as ComfyUI's.
 */
#include <string.h>

#include "base/error.h"
#include "quant/dialect/form.h"

static const struct oz_form mxfp8 = OZ_FORM_MX("mxfp8", "weight", OZ_DTYPE_F8_E4M3, 1);
static const struct oz_form mxfp4 = OZ_FORM_MX("mxfp4", "weight", OZ_DTYPE_U8, 2);
static const struct oz_form packed_mxfp4 = OZ_FORM_MX("mxfp4", "weight_packed", OZ_DTYPE_U8, 2);
static const struct oz_form packed_nvfp4 = {.scheme = "nvfp4",
                                            .codes = "weight_packed",
                                            .scales = "weight_scale",
                                            .scales2 = "weight_global_scale",
                                            .code_dtype = OZ_DTYPE_U8,
                                            .scale_dtype = OZ_DTYPE_F8_E4M3,
                                            .per_byte = 2,
                                            .scope = OZ_FORM_GROUP,
                                            .group = 16,
                                            .scale2_move = OZ_MOVE_RECIPROCAL};
static const struct oz_form int8 = {.scheme = "int8",
                                    .codes = "weight",
                                    .scales = "weight_scale",
                                    .code_dtype = OZ_DTYPE_I8,
                                    .scale_dtype = OZ_DTYPE_F32,
                                    .per_byte = 1,
                                    .scope = OZ_FORM_ROW,
                                    .mode = OZ_ACT_INT8_TOKEN};

static enum oz_status read_fp8(const struct oz_dialect_reader *r, int32_t row)
{
    const struct oz_tensor_view *scale = oz_form_find(r, row, "weight_scale");
    const char *module = r->table->rows[row].module;
    if (oz_form_find(r, row, "weight_scale_inv") != NULL) {
        return oz_form_take_fp8(r, row, "weight", "weight_scale_inv", false);
    }
    if (scale == NULL) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "Tensor %s.weight is F8_E4M3, and its scale is missing (%s.weight_scale).",
                       module, module);
    }
    if (scale->dtype == OZ_DTYPE_U8 || scale->dtype == OZ_DTYPE_F8_E8M0) {
        return oz_form_take(r, row, &mxfp8);
    }
    OZ_TRY(oz_form_take_fp8(r, row, "weight", "weight_scale", false));
    return oz_form_input_scale(r, row, "input_scale", NULL);
}

static enum oz_status read_row(const struct oz_dialect_reader *r, int32_t row)
{
    if (oz_form_has(r, row, "weight_packed", OZ_DTYPE_U8)) {
        bool nv = oz_form_find(r, row, "weight_global_scale") != NULL;
        OZ_TRY(oz_form_take(r, row, nv ? &packed_nvfp4 : &packed_mxfp4));
        (void)oz_form_spend(r, row, "input_global_scale");
        return OZ_OK;
    }
    if (oz_form_has(r, row, "weight_packed", OZ_DTYPE_COUNT)) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: %s.weight_packed is %s, and no config says how many bits a code has. "
                       "Add compressed-tensors' own config to the weights.",
                       r->path, r->table->rows[row].module,
                       oz_dtype_name(oz_form_find(r, row, "weight_packed")->dtype));
    }
    if (oz_form_has(r, row, "weight", OZ_DTYPE_F8_E4M3)) {
        return read_fp8(r, row);
    }
    if (oz_form_has(r, row, "weight", OZ_DTYPE_I8)) {
        const struct oz_tensor_view *scale = oz_form_find(r, row, "weight_scale");
        return scale == NULL || scale->elements <= r->table->rows[row].shape[0]
                   ? oz_form_take(r, row, &int8)
                   : OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                             "%s: %s has scales of groups, and no config says which. Add the "
                             "maker's own config to the weights.",
                             r->path, r->table->rows[row].module);
    }
    return oz_form_has(r, row, "weight", OZ_DTYPE_U8) ? oz_form_take(r, row, &mxfp4) : OZ_OK;
}

enum oz_status oz_inferred_read(const struct oz_dialect_reader *r)
{
    bool scales = false;
    for (int32_t i = 0; i < r->table->count; i++) {
        scales = scales || oz_form_has(r, i, "weight_scale", OZ_DTYPE_COUNT) ||
                 oz_form_has(r, i, "weight_scale_inv", OZ_DTYPE_COUNT);
    }
    if (!scales) {
        return oz_comfy_read(r);
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(r, i));
    }
    r->out->method = "fp8";
    for (int32_t i = 0; i < r->table->count; i++) {
        const char *name = r->out->schemes[i].name;
        if (r->out->schemes[i].codec != NULL && strncmp(name, "fp8", 3) != 0) {
            r->out->method = strcmp(name, "nvfp4") == 0   ? "compressed_tensors"
                             : strcmp(name, "int8") == 0  ? "int8"
                             : strcmp(name, "mxfp8") == 0 ? "mxfp8"
                                                          : "mxfp4";
        }
    }
    return OZ_OK;
}
