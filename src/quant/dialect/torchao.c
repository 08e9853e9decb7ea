/*
 * torchao.c: safetensors of TorchAO. The tensor "M.weight" of one of its classes is in parts,
 * "M._weight_qdata", "M._weight_scale" ...; the header's metadata says which class, as a JSON text under
 * the name "M.weight". Without it nothing can be concluded.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/form.h"

#define Q "_weight_qdata"
#define S "_weight_scale"

static enum oz_status refuse(const struct oz_dialect_reader *r, int32_t row, const char *type,
                             const char *why)
{
    return OZ_FAIL(
        r->err, OZ_ERR_UNSUPPORTED,
        "%s.weight is TorchAO's %.60s%s%s; this version reads Float8Tensor, Int8Tensor, "
        "Int4Tensor, NVFP4Tensor and MXTensor, without zero points of integers and static "
        "scales.",
        r->table->rows[row].module, type, why[0] != '\0' ? " with " : "", why);
}

static enum oz_status take_int8(const struct oz_dialect_reader *r, int32_t row)
{
    OZ_TRY(oz_form_take_int8(r, row, Q, S, OZ_ACT_INT8_TOKEN));
    return oz_form_zeros(r, row, "_weight_zero_point");
}

static enum oz_status take_int4(const struct oz_dialect_reader *r, int32_t row)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_form_find(r, row, S);
    int64_t groups = t != NULL && t->rank == 2 ? t->shape[0] : 0;
    const struct oz_form_int4 f = {.codes = Q,
                                   .scales = S,
                                   .mins = "_weight_zero_point",
                                   .code_dtype = OZ_DTYPE_I8,
                                   .code_shape = {layer->shape[0], layer->shape[1] / 2},
                                   .code_move = OZ_MOVE_SIGNED,
                                   .group = groups > 0 ? layer->shape[1] / groups : 0,
                                   .transposed = true};
    return oz_form_take_int4(r, row, &f);
}

/* Block scales row by row, or in tiles. */
static enum oz_status take_blocks(const struct oz_dialect_reader *r, int32_t row,
                                  const struct oz_json *data, struct oz_form *f)
{
    f->codes = Q;
    f->scales = S;
    f->scope = OZ_FORM_GROUP;
    OZ_TRY(oz_json_get_bool(data, "is_swizzled_scales", false, &f->swizzled,
                            r->table->rows[row].name, r->err));
    return oz_form_take(r, row, f);
}

static enum oz_status take_nvfp4(const struct oz_dialect_reader *r, int32_t row,
                                 const struct oz_json *data)
{
    bool global = oz_form_find(r, row, "_weight_per_tensor_scale") != NULL;
    struct oz_form f = {.scheme = "nvfp4",
                        .scales2 = global ? "_weight_per_tensor_scale" : NULL,
                        .code_dtype = OZ_DTYPE_U8,
                        .scale_dtype = OZ_DTYPE_F8_E4M3,
                        .per_byte = 2,
                        .group = 16};
    if (!global) {
        r->out->weights[row].planes[OZ_PLANE_SCALES2].move = OZ_MOVE_REPEAT;
        r->out->weights[row].number = 1;
    }
    (void)oz_form_spend(r, row, "_weight_act_per_tensor_scale");
    return take_blocks(r, row, data, &f);
}

static enum oz_status take_mx(const struct oz_dialect_reader *r, int32_t row,
                              const struct oz_json *data)
{
    bool fp8 = oz_form_has(r, row, Q, OZ_DTYPE_F8_E4M3);
    struct oz_form f = {.scheme = fp8 ? "mxfp8" : "mxfp4",
                        .code_dtype = fp8 ? OZ_DTYPE_F8_E4M3 : OZ_DTYPE_U8,
                        .scale_dtype = OZ_DTYPE_U8,
                        .per_byte = fp8 ? 1 : 2,
                        .group = 32};
    return take_blocks(r, row, data, &f);
}

static enum oz_status take_type(const struct oz_dialect_reader *r, int32_t row, const char *type,
                                const struct oz_json *data)
{
    if (oz_form_find(r, row, "_weight_act_quant_scale") != NULL) {
        return refuse(r, row, type, "static scales of activations");
    }
    enum oz_status status;
    if (strcmp(type, "Float8Tensor") == 0) {
        status = oz_form_take_fp8(r, row, Q, S, false);
    } else if (strcmp(type, "Int8Tensor") == 0) {
        status = take_int8(r, row);
    } else if (strcmp(type, "Int4Tensor") == 0) {
        status = take_int4(r, row);
    } else if (strcmp(type, "NVFP4Tensor") == 0) {
        status = take_nvfp4(r, row, data);
    } else if (strcmp(type, "MXTensor") == 0) {
        status = take_mx(r, row, data);
    } else {
        return refuse(r, row, type, "");
    }
    /* Weight-only unless the class says how activations are quantized. */
    if (status == OZ_OK && oz_json_type(oz_json_get(data, "act_quant_kwargs")) == OZ_JSON_NULL &&
        r->out->weights[row].codec == NULL) {
        r->out->schemes[row].acts[0] = OZ_ACT_NONE;
    }
    if (status == OZ_OK && oz_form_find(r, row, "_weight_act_pre_scale") != NULL) {
        status = oz_form_smooth(r, row, "_weight_act_pre_scale", true);
    }
    return status;
}

/* All parts that the metadata list are there. */
static enum oz_status check_parts(const struct oz_dialect_reader *r, int32_t row,
                                  const struct oz_json *names)
{
    for (size_t i = 0; i < oz_json_count(names); i++) {
        char suffix[256];
        (void)snprintf(suffix, sizeof suffix, "_weight_%.200s",
                       oz_json_string(oz_json_at(names, i), ""));
        if (oz_form_find(r, row, suffix) == NULL) {
            return OZ_FAIL(r->err, OZ_ERR_FORMAT, "The tensor %s.%s of %s is missing.",
                           r->table->rows[row].module, suffix, r->table->rows[row].name);
        }
    }
    return OZ_OK;
}

static enum oz_status read_row(const struct oz_dialect_reader *r, int32_t row)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const char *text = oz_ckpt_metadata(r->ckpt, layer->name);
    bool parts = oz_form_find(r, row, Q) != NULL;
    struct oz_json *v = NULL;
    if (!oz_stored_is_matrix(layer) || (text == NULL && !parts)) {
        return OZ_OK;
    }
    if (text == NULL) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s." Q " is there, but the metadata of the file say nothing of %s.",
                       layer->module, layer->name);
    }
    OZ_TRY(oz_json_parse(&v, text, strlen(text), layer->name, r->err));
    const char *type = oz_json_string(oz_json_get(v, "_type"), "");
    bool plain = strcmp(type, "Tensor") == 0;
    enum oz_status status =
        plain ? OZ_OK : check_parts(r, row, oz_json_get(v, "_tensor_data_names"));
    if (status == OZ_OK && !plain) {
        status = take_type(r, row, type, oz_json_get(v, "_data"));
    }
    oz_json_free(v);
    return status;
}

enum oz_status oz_torchao_read(const struct oz_dialect_reader *r)
{
    if (oz_ckpt_metadata(r->ckpt, "tensor_names") == NULL) {
        return OZ_FAIL(
            r->err, OZ_ERR_FORMAT,
            "%s says that the weights are TorchAO's, but the metadata of the files do not "
            "list its tensors (\"tensor_names\"): they were not written by TorchAO's own "
            "safetensors support.",
            r->path);
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(r, i));
    }
    return OZ_OK;
}
