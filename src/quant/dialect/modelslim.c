/*
 * modelslim.c: checkpoints of Ascend's msModelSlim. quant_model_description*.json gives every tensor a
 * label, FLOAT where it is plain; the label of "<layer>.weight" says how the layer is quantized. Offsets
 * of the weight must be zero: its makers and its readers do not agree on their sign.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/form.h"

/* A layer that is smoothed is wrapped: "x.div.mul_scale", "x.linear.weight". */
#define DIVIDED ".div.mul_scale"
#define INSIDE ".linear."

enum { ALONE = 0, DUAL = 1, LOW_RANK = 2, FLAT = 4 };
enum shape { ROWS8, STATIC8, ROWS_FP8, INT4, GROUPS };

static const struct label {
    const char *name;
    enum shape shape;
    enum oz_act_mode mode;
    struct oz_form form; /* of GROUPS */
    unsigned with;       /* what stands beside codes and scales */
} labels[] = {
    {"W8A8_DYNAMIC", ROWS8, OZ_ACT_INT8_TOKEN, {0}, ALONE},
    {"W8A8_MIX", ROWS8, OZ_ACT_INT8_TOKEN, {0}, ALONE},
    {"W8A8_TIMESTEP", ROWS8, OZ_ACT_INT8_TOKEN, {0}, ALONE},
    {"W8A8", STATIC8, OZ_ACT_INT8_TOKEN, {0}, ALONE},
    {"W8A16", ROWS8, OZ_ACT_NONE, {0}, ALONE},
    {"W4A4_DYNAMIC", ROWS8, OZ_ACT_NONE, {0}, ALONE},
    {"W4A8_DYNAMIC", INT4, OZ_ACT_NONE, {0}, ALONE},
    {"W4A16", INT4, OZ_ACT_NONE, {0}, ALONE},
    {"WFP8AFP8_DYNAMIC", ROWS_FP8, OZ_ACT_FP8_TOKEN, {0}, ALONE},
    {"W8A8FP8_DYNAMIC", ROWS_FP8, OZ_ACT_FP8_TOKEN, {0}, ALONE},
    {"W8A8_MXFP8", GROUPS, OZ_ACT_NONE, OZ_FORM_MX("mxfp8", "weight", OZ_DTYPE_F8_E4M3, 1), ALONE},
#define MXFP4(name, scheme_, with)                                                     \
    {                                                                                  \
        name, GROUPS, OZ_ACT_NONE, OZ_FORM_MX(scheme_, "weight", OZ_DTYPE_U8, 2), with \
    }
    MXFP4("W4A4_MXFP4", "mxfp4", ALONE),
    MXFP4("W4A8_MXFP", "mxfp4", ALONE),
    MXFP4("W4A4_MXFP4_DUALSCALE", "mxfp4_dualscale", DUAL),
#undef MXFP4
};

/* Of wrapped layers the label has that in it: "W4A4_SVD_DYNAMIC", "W4A4_MXFP4_FLATQUANT". */
static const struct {
    const char *name;
    unsigned with;
} wrappers[] = {{"_SVD", LOW_RANK}, {"_FLATQUANT", FLAT}};

static bool find_label(struct label *out, const char *name)
{
    char base[64];
    unsigned with = ALONE;
    (void)snprintf(base, sizeof base, "%s", name);
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        size_t n = strlen(wrappers[i].name);
        char *at = strstr(base, wrappers[i].name);
        if (at != NULL && (at[n] == '\0' || at[n] == '_')) {
            memmove(at, at + n, strlen(at + n) + 1);
            with |= wrappers[i].with;
        }
    }
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        if (strcmp(labels[i].name, base) == 0 && strlen(name) < sizeof base) {
            *out = labels[i];
            out->with |= with;
            return true;
        }
    }
    return false;
}

/* ---- labels ---- */

/* By the tensor's name in the file, where it is there: a wrapped layer's is another one. */
static const char *label_of(const struct oz_dialect_reader *r, const struct oz_tensor_view *t,
                            const char *name)
{
    const struct oz_json *own =
        t != NULL ? oz_json_get(r->q, oz_tensor_file_name(t)) : oz_json_get(r->q, name);
    return oz_json_string(own != NULL ? own : oz_json_get(r->q, name), NULL);
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
    (void)OZ_FAIL(
        r->err, OZ_ERR_UNSUPPORTED,
        "%s: %s is %.60s; of msModelSlim's labels this version reads FLOAT, %s, and these "
        "with _SVD or _FLATQUANT.",
        r->path, tensor, label, oz_buf_text(&list));
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

/* Of activations with static scales; they are scaled for each token instead. */
static void spend_static(const struct oz_dialect_reader *r, int32_t row)
{
    static const char *const known[] = {"input_scale", "input_offset", "quant_bias"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        (void)oz_form_spend(r, row, known[i]);
    }
}

/* Static activations: the file has the product of both scales, and what the activations' offset adds up
 * to as integers. The weight's own scale is the product over that of the activations. For fp16 models the
 * product is an I64 whose low half is the F32. */
static enum oz_status take_static(const struct oz_dialect_reader *r, int32_t row,
                                  const struct label *k)
{
    struct oz_form f = rows8;
    f.mode = k->mode;
    if (oz_form_find(r, row, "weight_scale") == NULL) {
        float scale;
        const struct oz_tensor_view *t = oz_form_find(r, row, "deq_scale");
        OZ_TRY(oz_form_number(r, row, "input_scale", &scale));
        f.scales = "deq_scale";
        f.scale_move = OZ_MOVE_TIMES;
        if (t != NULL && t->dtype == OZ_DTYPE_I64) {
            f.scale_dtype = OZ_DTYPE_I64;
            f.scale_move = OZ_MOVE_WORDS;
        }
        r->out->weights[row].number = 1.0F / scale;
    } else {
        (void)oz_form_spend(r, row, "deq_scale");
    }
    OZ_TRY(oz_form_take(r, row, &f));
    spend_static(r, row);
    return oz_form_zeros(r, row, "weight_offset");
}

/* Columns of a group by the scales' tensor [rows, groups]: all, where it has one for a row. What the
 * description says of groups must be the same, but for 32, which MX layers of the same file write there. */
static enum oz_status group_of(const struct oz_dialect_reader *r, int32_t row, const char *suffix,
                               int64_t *group)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_form_find(r, row, suffix);
    int64_t groups = t != NULL && t->rank == 2 && t->shape[1] > 0 ? t->shape[1] : 1;
    int64_t said = oz_json_integer(oz_json_get(r->q, "group_size"), 0);
    *group = layer->shape[1] / groups;
    return groups == 1 || said <= 0 || said == 32 || said == *group
               ? OZ_OK
               : OZ_FAIL(r->err, OZ_ERR_FORMAT,
                         "%s says that \"group_size\" is %" PRId64
                         ", but the tensor %s has %" PRId64 " scales for %" PRId64 " columns.",
                         r->path, said, t->name, groups, layer->shape[1]);
}

/* A code in each byte, under scales of rows or of groups. */
static enum oz_status take_bytes(const struct oz_dialect_reader *r, int32_t row,
                                 enum oz_act_mode mode, const char *scales)
{
    const struct oz_layer *layer = &r->table->rows[row];
    struct oz_form f = rows8;
    struct oz_form_int4 groups = {.codes = "weight",
                                  .scales = scales,
                                  .code_dtype = OZ_DTYPE_I8,
                                  .code_shape = {layer->shape[0], layer->shape[1]},
                                  .code_move = OZ_MOVE_SIGNED,
                                  .bytes = true};
    f.mode = mode;
    OZ_TRY(group_of(r, row, scales, &groups.group));
    return groups.group == layer->shape[1] && strcmp(scales, f.scales) == 0
               ? oz_form_take(r, row, &f)
               : oz_form_take_int4(r, row, &groups);
}

static enum oz_status take_rows8(const struct oz_dialect_reader *r, int32_t row,
                                 const struct label *k)
{
    OZ_TRY(take_bytes(r, row, k->mode, "weight_scale"));
    spend_static(r, row); /* of W8A8_MIX, and of each step of W8A8_TIMESTEP */
    (void)oz_form_spend(r, row, "deq_scale");
    return oz_form_zeros(r, row, "weight_offset");
}

/* Pairs of rows share a byte, the even one low. */
static int64_t at_pairs(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)rows;
    return 2 * (row / 2 * cols + col) + row % 2;
}

/* Two codes in a byte, of two rows, or, of W4A16 with scales of rows, of two columns. */
static enum oz_status take_nibbles(const struct oz_dialect_reader *r, int32_t row,
                                   const struct label *k, const char *scales)
{
    const struct oz_layer *layer = &r->table->rows[row];
    int64_t n = layer->shape[0];
    int64_t cols = layer->shape[1];
    struct oz_form_int4 f = {.codes = "weight",
                             .scales = scales,
                             .code_dtype = OZ_DTYPE_I8,
                             .code_shape = {n / 2, cols},
                             .at = at_pairs,
                             .code_move = OZ_MOVE_SIGNED};
    OZ_TRY(group_of(r, row, scales, &f.group));
    if (strcmp(k->name, "W4A16") == 0 && f.group == cols) {
        f.code_shape[0] = n;
        f.code_shape[1] = cols / 2;
        f.at = NULL;
    } else if (n % 2 != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: %s is %s, which pairs rows, but has %" PRId64 " of them.", r->path,
                       layer->module, k->name, n);
    }
    return oz_form_take_int4(r, row, &f);
}

/* Four bits, packed or (before version 1.0.0) each in a byte. With two levels the first one's scales are
 * of groups, "weight_scale_second", those of rows multiply them. */
static enum oz_status take_int4(const struct oz_dialect_reader *r, int32_t row,
                                const struct label *k)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_form_find(r, row, "weight");
    bool levels = oz_form_find(r, row, "weight_scale_second") != NULL ||
                  oz_form_find(r, row, "weight_offset_second") != NULL;
    bool apart = t->elements == layer->shape[0] * layer->shape[1];
    const char *scales = levels ? "weight_scale_second" : "weight_scale";
    OZ_TRY(apart ? take_bytes(r, row, k->mode, scales) : take_nibbles(r, row, k, scales));
    if (levels) {
        const struct oz_dialect_tensor channels = {.plane = OZ_PLANE_SCALES3,
                                                   .suffix = "weight_scale",
                                                   .dtype = OZ_DTYPE_F32,
                                                   .rank = 2,
                                                   .shape = {layer->shape[0], 1}};
        OZ_TRY(oz_stored_take(&r->out->weights[row], r->ckpt, r->path, layer, &channels, r->err));
        oz_form_expand(r, row);
    }
    (void)oz_form_spend(r, row, "scale_bias");
    OZ_TRY(oz_form_zeros(r, row, "weight_offset_second"));
    return oz_form_zeros(r, row, "weight_offset");
}

static enum oz_status take_groups(const struct oz_dialect_reader *r, int32_t row,
                                  const struct label *k)
{
    const struct oz_layer *layer = &r->table->rows[row];
    OZ_TRY(oz_form_take(r, row, &k->form));
    if ((k->with & DUAL) != 0) {
        const struct oz_dialect_tensor dual = {
            .plane = OZ_PLANE_SCALES2,
            .suffix = "weight_dual_scale",
            .dtype = OZ_DTYPE_F32,
            .rank = 2,
            .shape = {layer->shape[0], (layer->shape[1] + 511) / 512}};
        OZ_TRY(oz_stored_take(&r->out->weights[row], r->ckpt, r->path, layer, &dual, r->err));
    }
    return OZ_OK;
}

/* The tensor stands in the layer that is wrapped, not beside it. */
static bool is_inside(const struct oz_dialect_reader *r, int32_t row, const char *suffix)
{
    const struct oz_tensor_view *t = oz_form_find(r, row, suffix);
    char ending[64];
    int n = snprintf(ending, sizeof ending, INSIDE "%s", suffix);
    const char *name = t != NULL ? oz_tensor_file_name(t) : "";
    size_t length = strlen(name);
    return length > (size_t)n && strcmp(name + length - (size_t)n, ending) == 0;
}

/* What activations go through before the codes. A wrapper has what is inside behind it. */
static enum oz_status take_wrappers(const struct oz_dialect_reader *r, int32_t row,
                                    const struct label *k)
{
    bool smooth = oz_form_find(r, row, "mul_scale") != NULL;
    if (!smooth && is_inside(r, row, "weight")) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: %s is wrapped, but the tensor %s" DIVIDED " is missing.", r->path,
                       r->table->rows[row].module, r->table->rows[row].module);
    }
    if ((k->with & FLAT) != 0) {
        const char *one = oz_form_find(r, row, "left_trans") != NULL ? "left_trans" : "right_trans";
        if (smooth && !is_inside(r, row, one)) {
            return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                           "%s: %s smooths activations behind FlatQuant's factors, which this "
                           "version does not read.",
                           r->path, r->table->rows[row].module);
        }
        OZ_TRY(oz_form_factors(r, row, "left_trans", "right_trans"));
        (void)oz_form_spend(r, row, "clip_ratio"); /* of activations */
    }
    if ((k->with & LOW_RANK) != 0) {
        OZ_TRY(oz_form_low_rank(r, row, "svd_lowrank_l1", "svd_lowrank_l2", false, NULL, NULL));
        r->out->weights[row].smooth_last = smooth && is_inside(r, row, "svd_lowrank_l1");
    }
    return smooth ? oz_form_smooth(r, row, "mul_scale", true) : OZ_OK;
}

static enum oz_status take(const struct oz_dialect_reader *r, int32_t row, const struct label *k)
{
    switch (k->shape) {
    case ROWS8: OZ_TRY(take_rows8(r, row, k)); break;
    case STATIC8: OZ_TRY(take_static(r, row, k)); break;
    case INT4: OZ_TRY(take_int4(r, row, k)); break;
    case GROUPS: OZ_TRY(take_groups(r, row, k)); break;
    case ROWS_FP8:
        OZ_TRY(oz_form_take_fp8(r, row, "weight", "weight_scale", false));
        OZ_TRY(oz_form_zeros(r, row, "weight_offset"));
        break;
    }
    return take_wrappers(r, row, k);
}

static enum oz_status read_row(const struct oz_dialect_reader *r, int32_t row)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_ckpt_find(r->ckpt, layer->name, NULL);
    const char *label = label_of(r, t, layer->name);
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
    struct label k;
    if (!find_label(&k, label)) {
        return fail_label(r, layer->name, label);
    }
    if (!coded) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s says that %s is %s, but it is stored plain, as %s.", r->path,
                       layer->name, label, oz_dtype_name(t->dtype));
    }
    return take(r, row, &k);
}

/* Under its name here, or in the file. */
static bool is_there(const struct oz_dialect_reader *r, const char *tensor)
{
    bool found = oz_ckpt_find(r->ckpt, tensor, NULL) != NULL;
    for (int64_t i = 0; i < oz_ckpt_count(r->ckpt) && !found; i++) {
        found = strcmp(oz_tensor_file_name(oz_ckpt_tensor(r->ckpt, i)), tensor) == 0;
    }
    return found;
}

/* All that is labelled as quantized is in the file: a scale that is lost could be taken for none. */
static enum oz_status check_labels(const struct oz_dialect_reader *r)
{
    for (void *it = oz_json_first(r->q); it != NULL; it = oz_json_next(r->q, it)) {
        const char *tensor = oz_json_key(it);
        const char *label = oz_json_string(oz_json_value(it), NULL);
        struct label k;
        if (label != NULL && strchr(tensor, '.') != NULL && find_label(&k, label) &&
            !is_there(r, tensor)) {
            return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s: %s is labelled, but not in the file.",
                           r->path, tensor);
        }
    }
    return OZ_OK;
}

enum oz_status oz_modelslim_read(const struct oz_dialect_reader *r)
{
    if (oz_json_type(r->q) != OZ_JSON_OBJECT) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s is no list of msModelSlim's labels.", r->path);
    }
    OZ_TRY(check_labels(r));
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(r, i));
    }
    return OZ_OK;
}

/* ---- wrapped layers ---- */

/* "x.linear.rest" and "x.div.mul_scale", where the table has a matrix "x.weight". */
static bool without_wrapper(void *ctx, const char *name, struct oz_buf *out)
{
    const struct oz_layer_table *table = ctx;
    static const char *const parts[] = {INSIDE, ".div."};
    char row[OZ_CKPT_MAX_NAME_BYTES + 8];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(name, parts[i]);
        int n = at != NULL ? (int)(at - name) : 0;
        (void)snprintf(row, sizeof row, "%.*s.weight", n, name);
        const struct oz_layer *layer = at != NULL ? oz_layer_find(table, row) : NULL;
        if (layer != NULL && oz_stored_is_matrix(layer)) {
            oz_buf_printf(out, "%.*s.%s", n, name, at + strlen(parts[i]));
            return true;
        }
    }
    return false;
}

enum oz_status oz_modelslim_unwrap(struct oz_ckpt *ckpt, const struct oz_layer_table *table,
                                   struct oz_error *err)
{
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        const char *name = oz_ckpt_tensor(ckpt, i)->name;
        size_t n = strlen(name);
        if (n >= sizeof DIVIDED && strcmp(name + n + 1 - sizeof DIVIDED, DIVIDED) == 0) {
            return oz_ckpt_rename(ckpt, without_wrapper, (void *)(uintptr_t)table, err);
        }
    }
    return OZ_OK;
}
