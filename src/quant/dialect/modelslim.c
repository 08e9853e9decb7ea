/*
 * modelslim.c: checkpoints of Ascend's msModelSlim. quant_model_description*.json gives every tensor a
 * label, FLOAT where it is plain; the label of "<layer>.weight" says how the layer is quantized. Offsets
 * of the weight must be zero: its makers and its readers do not agree on their sign.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/form.h"

enum shape { ROWS8, STATIC8, ROWS_FP8, PAIRS4, GROUPS };

static const struct label {
    const char *name;
    enum shape shape;
    enum oz_act_mode mode;
    struct oz_form form; /* of GROUPS */
    bool dual, low_rank;
} labels[] = {
    {"W8A8_DYNAMIC", ROWS8, OZ_ACT_INT8_TOKEN, {0}, false, false},
    {"W8A8_MIX", ROWS8, OZ_ACT_INT8_TOKEN, {0}, false, false},
    {"W8A8", STATIC8, OZ_ACT_INT8_TOKEN, {0}, false, false},
    {"W8A16", ROWS8, OZ_ACT_NONE, {0}, false, false},
    {"W4A4_DYNAMIC", ROWS8, OZ_ACT_NONE, {0}, false, false},
    {"W4A8_DYNAMIC", PAIRS4, OZ_ACT_NONE, {0}, false, false},
    {"WFP8AFP8_DYNAMIC", ROWS_FP8, OZ_ACT_FP8_TOKEN, {0}, false, false},
    {"W8A8FP8_DYNAMIC", ROWS_FP8, OZ_ACT_FP8_TOKEN, {0}, false, false},
    {"W8A8_MXFP8", GROUPS, OZ_ACT_NONE, OZ_FORM_MX("mxfp8", "weight", OZ_DTYPE_F8_E4M3, 1), false,
     false},
#define MXFP4(name, scheme_, dual, low_rank)                                                     \
    {                                                                                            \
        name, GROUPS, OZ_ACT_NONE, OZ_FORM_MX(scheme_, "weight", OZ_DTYPE_U8, 2), dual, low_rank \
    }
    MXFP4("W4A4_MXFP4", "mxfp4", false, false),
    MXFP4("W4A8_MXFP", "mxfp4", false, false),
    MXFP4("W4A4_MXFP4_DUALSCALE", "mxfp4_dualscale", true, false),
    MXFP4("W4A4_MXFP4_SVD", "mxfp4", false, true),
#undef MXFP4
};

static const struct label *find_label(const char *name)
{
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        if (strcmp(labels[i].name, name) == 0) {
            return &labels[i];
        }
    }
    return NULL;
}

/* ---- labels ---- */

static const char *label_of(const struct oz_dialect_reader *r, const char *tensor)
{
    return oz_json_string(oz_json_get(r->q, tensor), NULL);
}

/* What a label that is none of ours stands for. */
static enum oz_status fail_label(const struct oz_dialect_reader *r, const char *tensor,
                                 const char *label)
{
    struct oz_buf list;
    oz_buf_init(&list, OZ_ERROR_MESSAGE_BYTES);
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        oz_buf_printf(&list, "%s%s", i > 0 ? ", " : "", labels[i].name);
    }
    (void)OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                  "%s: %s is %.60s; of msModelSlim's labels this version reads FLOAT, %s.", r->path,
                  tensor, label, oz_buf_text(&list));
    oz_buf_deinit(&list);
    return OZ_ERR_UNSUPPORTED;
}

/* ---- layers ---- */

static const struct oz_form rows8 = {.scheme = "int8",
                                     .codes = "weight",
                                     .scales = "weight_scale",
                                     .code_dtype = OZ_DTYPE_I8,
                                     .scale_dtype = OZ_DTYPE_F32,
                                     .per_byte = 1,
                                     .scope = OZ_FORM_ROW};

/* Static activations: the file has the product of both scales, and what the activations' offset adds up
 * to as integers. The weight's own scale is the product over that of the activations. */
static enum oz_status take_static(const struct oz_dialect_reader *r, int32_t row,
                                  const struct label *k)
{
    struct oz_form f = rows8;
    f.mode = k->mode;
    if (oz_form_find(r, row, "weight_scale") == NULL) {
        float scale;
        const struct oz_tensor_view *t = oz_form_find(r, row, "deq_scale");
        if (t != NULL && t->dtype == OZ_DTYPE_I64) {
            return OZ_FAIL(
                r->err, OZ_ERR_UNSUPPORTED,
                "Tensor %s is I64: the form for fp16 models is not read by this version.", t->name);
        }
        OZ_TRY(oz_form_number(r, row, "input_scale", &scale));
        f.scales = "deq_scale";
        f.scale_move = OZ_MOVE_TIMES;
        r->out->weights[row].number = 1.0F / scale;
    } else {
        (void)oz_form_spend(r, row, "deq_scale");
    }
    OZ_TRY(oz_form_take(r, row, &f));
    static const char *const known[] = {"input_scale", "input_offset", "quant_bias"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        (void)oz_form_spend(r, row, known[i]); /* activations are scaled for each token instead */
    }
    return oz_form_zeros(r, row, "weight_offset");
}

static enum oz_status take_rows8(const struct oz_dialect_reader *r, int32_t row,
                                 const struct label *k)
{
    static const char *const known[] = {"input_scale", "input_offset", "quant_bias", "deq_scale"};
    struct oz_form f = rows8;
    f.mode = k->mode;
    OZ_TRY(oz_form_take(r, row, &f));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) { /* of W8A8_MIX */
        (void)oz_form_spend(r, row, known[i]);
    }
    return oz_form_zeros(r, row, "weight_offset");
}

/* Pairs of rows share a byte, the even one low. */
static int64_t at_pairs(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)rows;
    return 2 * (row / 2 * cols + col) + row % 2;
}

static enum oz_status take_pairs4(const struct oz_dialect_reader *r, int32_t row)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_form_int4 f = {.codes = "weight",
                                   .scales = "weight_scale",
                                   .code_dtype = OZ_DTYPE_I8,
                                   .code_shape = {layer->shape[0] / 2, layer->shape[1]},
                                   .at = at_pairs,
                                   .code_move = OZ_MOVE_SIGNED,
                                   .group = layer->shape[1]};
    if (layer->shape[0] % 2 != 0 || oz_form_find(r, row, "weight_scale_second") != NULL) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: %s is W4A8_DYNAMIC under two levels of scales, or of an odd number of "
                       "rows, which this version does not read.",
                       r->path, layer->module);
    }
    OZ_TRY(oz_form_take_int4(r, row, &f));
    (void)oz_form_spend(r, row, "scale_bias");
    return oz_form_zeros(r, row, "weight_offset");
}

static enum oz_status take_groups(const struct oz_dialect_reader *r, int32_t row,
                                  const struct label *k)
{
    const struct oz_layer *layer = &r->table->rows[row];
    OZ_TRY(oz_form_take(r, row, &k->form));
    if (k->dual) {
        const struct oz_dialect_tensor dual = {
            .plane = OZ_PLANE_SCALES2,
            .suffix = "weight_dual_scale",
            .dtype = OZ_DTYPE_F32,
            .rank = 2,
            .shape = {layer->shape[0], (layer->shape[1] + 511) / 512}};
        OZ_TRY(oz_stored_take(&r->out->weights[row], r->ckpt, r->path, layer, &dual, r->err));
    }
    return k->low_rank
               ? oz_form_low_rank(r, row, "svd_lowrank_l1", "svd_lowrank_l2", false, NULL, NULL)
               : OZ_OK;
}

static enum oz_status read_row(const struct oz_dialect_reader *r, int32_t row)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const char *label = label_of(r, layer->name);
    const struct oz_tensor_view *t = oz_ckpt_find(r->ckpt, layer->name, NULL);
    if (!oz_stored_is_matrix(layer) || (t == NULL && label == NULL)) {
        return OZ_OK;
    }
    if (label == NULL || t == NULL) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s: %s is %s.", r->path, layer->name,
                       t == NULL ? "labelled, but not in the file"
                                 : "in the file, but has no label; every tensor has one");
    }
    bool coded = oz_codec_plain(t->dtype) == NULL;
    if (strcmp(label, "FLOAT") == 0) {
        return !coded ? OZ_OK
                      : OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s says that %s is FLOAT, but it is %s.",
                                r->path, layer->name, oz_dtype_name(t->dtype));
    }
    const struct label *k = find_label(label);
    if (k == NULL) {
        return fail_label(r, layer->name, label);
    }
    if (!coded) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s says that %s is %s, but it is stored plain, as %s.", r->path,
                       layer->name, label, oz_dtype_name(t->dtype));
    }
    switch (k->shape) {
    case ROWS8: return take_rows8(r, row, k);
    case STATIC8: return take_static(r, row, k);
    case PAIRS4: return take_pairs4(r, row);
    case GROUPS: return take_groups(r, row, k);
    case ROWS_FP8: break;
    }
    OZ_TRY(oz_form_take_fp8(r, row, "weight", "weight_scale", false));
    return oz_form_zeros(r, row, "weight_offset");
}

enum oz_status oz_modelslim_read(const struct oz_dialect_reader *r)
{
    if (oz_json_type(r->q) != OZ_JSON_OBJECT) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s is no list of msModelSlim's labels.", r->path);
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(r, i));
    }
    return OZ_OK;
}
