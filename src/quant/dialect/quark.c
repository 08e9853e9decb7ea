/*
 * quark.c: checkpoints of AMD Quark. The config says how layers are quantized, by name
 * ("layer_quant_config"), class ("layer_type_quant_config") or for all ("global_quant_config");
 * "exclude" comes first. A weight of two stages is a list of two specifications: the second one quantizes
 * the scales of the first (NVFP4), or what the first has made of the weight (W4A8: FP8, then integers).
 * Integers in groups lie transposed, those of 4 bits in words.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/regex.h"
#include "quant/dialect/form.h"
#include "quant/rules.h"

struct stage {
    const char *dtype, *qscheme, *scales;
    int64_t group;
    bool symmetric, of_scales;
};

struct spec {
    struct stage stages[2];
    size_t count;
    bool acts;
};

/* ---- the config ---- */

static enum oz_status matches(const char *pattern, const char *module, bool *found,
                              struct oz_error *err)
{
    *found = strcmp(pattern, module) == 0 || oz_glob_match(pattern, module);
    if (*found || strncmp(pattern, "re:", 3) != 0) {
        return OZ_OK;
    }
    struct oz_regex *regex;
    size_t begin;
    size_t end;
    OZ_TRY(oz_regex_compile(&regex, pattern + 3, err));
    enum oz_status status =
        oz_regex_match(regex, module, strlen(module), 0, true, found, &begin, &end, err);
    oz_regex_free(regex);
    return status;
}

static enum oz_status is_excluded(const struct oz_dialect_reader *r, const char *module,
                                  bool *found)
{
    const struct oz_json *list = oz_json_get(r->q, "exclude");
    *found = false;
    for (size_t i = 0; i < oz_json_count(list) && !*found; i++) {
        OZ_TRY(matches(oz_json_string(oz_json_at(list, i), ""), module, found, r->err));
    }
    return OZ_OK;
}

/* The configuration of a layer, NULL: none. */
static enum oz_status config_of(const struct oz_dialect_reader *r, const char *module,
                                const struct oz_json **out)
{
    const struct oz_json *by_name = oz_json_get(r->q, "layer_quant_config");
    bool found = false;
    *out = NULL;
    for (void *it = oz_json_first(by_name); it != NULL && !found; it = oz_json_next(by_name, it)) {
        OZ_TRY(matches(oz_json_key(it), module, &found, r->err));
        *out = found ? oz_json_value(it) : NULL;
    }
    if (*out == NULL) {
        *out = oz_json_get(oz_json_get(r->q, "layer_type_quant_config"), "Linear");
    }
    if (*out == NULL) {
        *out = oz_json_get(r->q, "global_quant_config");
    }
    return OZ_OK;
}

static enum oz_status read_stage(struct stage *s, const struct oz_json *q,
                                 const struct oz_dialect_reader *r)
{
    OZ_TRY(oz_json_get_string(q, "dtype", "", &s->dtype, r->path, r->err));
    OZ_TRY(oz_json_get_string(q, "qscheme", "", &s->qscheme, r->path, r->err));
    OZ_TRY(oz_json_get_string(q, "scale_format", "float32", &s->scales, r->path, r->err));
    OZ_TRY(oz_json_get_integer(q, "group_size", 0, -1, INT32_MAX, &s->group, r->path, r->err));
    OZ_TRY(oz_json_get_bool(q, "symmetric", true, &s->symmetric, r->path, r->err));
    return oz_json_get_bool(q, "is_scale_quant", false, &s->of_scales, r->path, r->err);
}

static enum oz_status read_spec(struct spec *s, const struct oz_json *config,
                                const struct oz_dialect_reader *r)
{
    const struct oz_json *weight = oz_json_get(config, "weight");
    bool list = oz_json_type(weight) == OZ_JSON_ARRAY;
    const struct stage none = {.dtype = "", .qscheme = "", .scales = ""};
    *s = (struct spec){.stages = {none, none}, .count = list ? oz_json_count(weight) : 1};
    for (size_t i = 0; i < s->count && i < 2; i++) {
        OZ_TRY(read_stage(&s->stages[i], list ? oz_json_at(weight, i) : weight, r));
    }
    s->acts = oz_json_type(oz_json_get(config, "input_tensors")) == OZ_JSON_OBJECT;
    return OZ_OK;
}

/* ---- layers ---- */

/* What its exporters call the same tensors: that of transformers' models, and that of diffusers', after
 * the modules of the quantizers, of which two stages have two. */
struct names {
    const char *scales, *zeros, *scales2, *zeros2, *input_scale, *input_zeros, *input_scale2;
};

static const struct names *names_of(const struct oz_dialect_reader *r, int32_t row)
{
    static const struct names names[] = {
        {"weight_scale", "weight_zero_point", "weight_scale_2", "weight_zero_point_2",
         "input_scale", "input_zero_point", "input_scale_2"},
        {"weight_quantizer.scale", "weight_quantizer.zero_point", "weight_quantizer.1.scale",
         "weight_quantizer.1.zero_point", "input_quantizer.scale", "input_quantizer.zero_point",
         "input_quantizer.1.scale"},
        {"weight_quantizer.0.scale", "weight_quantizer.0.zero_point", "weight_quantizer.1.scale",
         "weight_quantizer.1.zero_point", "input_quantizer.scale", "input_quantizer.zero_point",
         "input_quantizer.1.scale"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (oz_form_find(r, row, names[i].scales) != NULL) {
            return &names[i];
        }
    }
    return &names[0];
}

static const int order[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* place of channel e within its word */

/* Output channels in words, and input channels (or groups of them) one after another. */
static int64_t at_columns_reordered(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)cols;
    return col * rows + row / 8 * 8 + order[row % 8];
}

/* Input channels in words. */
static int64_t at_rows_reordered(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)rows;
    return row * cols + col / 8 * 8 + order[col % 8];
}

static bool is_reordered(const struct oz_dialect_reader *r)
{
    const struct oz_json *pack = oz_json_get(oz_json_get(r->q, "export"), "pack_method");
    return strcmp(oz_json_string(pack, "reorder"), "order") != 0;
}

/* Zero points, in the order of codes; a symmetric weight's are there too, and 0. */
static enum oz_status take_zeros(const struct oz_dialect_reader *r, int32_t row,
                                 const struct stage *s, const char *suffix, int64_t groups)
{
    const struct oz_layer *layer = &r->table->rows[row];
    bool sign = s->dtype[0] == 'i';
    bool bytes = strstr(s->dtype, "int8") != NULL;
    int64_t words = layer->shape[0] / (bytes ? 1 : 8);
    const struct oz_dialect_tensor zeros = {
        .plane = OZ_PLANE_ZEROS,
        .suffix = suffix,
        .dtype = !bytes ? OZ_DTYPE_I32
                 : sign ? OZ_DTYPE_I8
                        : OZ_DTYPE_U8,
        .rank = 2,
        .shape = {groups > 1 ? groups : words, groups > 1 ? words : 1},
        .move = sign ? OZ_MOVE_SIGNED : OZ_MOVE_BYTES,
        .at = !bytes && is_reordered(r) ? at_columns_reordered : oz_at_transposed};
    if (s->symmetric && sign) {
        return oz_form_zeros(r, row, suffix);
    }
    return oz_stored_take(&r->out->weights[row], r->ckpt, r->path, layer, &zeros, r->err);
}

/* Integers of 4 or 8 bits in groups, or with a scale and a zero point a row. */
static enum oz_status take_integers(const struct oz_dialect_reader *r, int32_t row,
                                    const struct stage *s, const char *scales, const char *zeros)
{
    const struct oz_layer *layer = &r->table->rows[row];
    bool groups = strcmp(s->qscheme, "per_group") == 0;
    bool bytes = strstr(s->dtype, "int8") != NULL;
    bool reordered = !bytes && is_reordered(r);
    int64_t lines = layer->shape[groups ? 1 : 0];
    int64_t packed = layer->shape[groups ? 0 : 1];
    struct oz_form_int4 f = {.codes = "weight",
                             .scales = scales,
                             .code_dtype = OZ_DTYPE_I32,
                             .code_shape = {lines, packed / (bytes ? 1 : 8)},
                             .code_move = OZ_MOVE_SIGNED,
                             .group = groups ? s->group : layer->shape[1],
                             .transposed = groups,
                             .bytes = bytes};
    if (groups) {
        f.at = reordered ? at_columns_reordered : oz_at_transposed;
    } else if (reordered) {
        f.at = at_rows_reordered;
    }
    if (bytes) {
        f.code_dtype = s->dtype[0] == 'i' ? OZ_DTYPE_I8 : OZ_DTYPE_U8;
    } else if (packed % 8 != 0 || layer->shape[0] % 8 != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s is [%" PRId64 ", %" PRId64 "]; Quark packs eight channels in a word.",
                       layer->module, layer->shape[0], layer->shape[1]);
    }
    if (s->dtype[0] == 'u') {
        f.code_move = OZ_MOVE_BYTES;
    }
    OZ_TRY(oz_form_take_int4(r, row, &f));
    return take_zeros(r, row, s, zeros, layer->shape[1] / f.group);
}

/* Of integers that were made of FP8: W = (q - zero) * second scale * first scale. Nothing is rounded to FP8
 * between, neither by its reader nor by what it computes with before it writes. */
static enum oz_status take_two_stages(const struct oz_dialect_reader *r, int32_t row,
                                      const struct spec *s, const struct names *n)
{
    struct oz_stored_weight *w = &r->out->weights[row];
    OZ_TRY(oz_form_number(r, row, n->scales, &w->number));
    (void)oz_form_spend(r, row, n->scales);
    OZ_TRY(take_integers(r, row, &s->stages[1], n->scales2, n->zeros2));
    w->planes[OZ_PLANE_SCALES].move = OZ_MOVE_TIMES;
    if (w->planes[OZ_PLANE_SCALES].at == NULL) {
        w->planes[OZ_PLANE_SCALES].at = oz_at_transposed; /* of one column: where they are */
    }
    return OZ_OK;
}

static enum oz_status take_int8(const struct oz_dialect_reader *r, int32_t row,
                                const struct spec *s, const struct names *n)
{
    OZ_TRY(
        oz_form_take_int8(r, row, "weight", n->scales, s->acts ? OZ_ACT_INT8_TOKEN : OZ_ACT_NONE));
    return oz_form_zeros(r, row, n->zeros);
}

static enum oz_status take_fp4(const struct oz_dialect_reader *r, int32_t row, bool nv,
                               const struct names *n)
{
    const struct oz_form f = {.scheme = nv ? "nvfp4" : "mxfp4",
                              .codes = "weight",
                              .scales = n->scales,
                              .scales2 = nv ? n->scales2 : NULL,
                              .code_dtype = OZ_DTYPE_U8,
                              .scale_dtype = nv ? OZ_DTYPE_F8_E4M3 : OZ_DTYPE_U8,
                              .per_byte = 2,
                              .scope = OZ_FORM_GROUP,
                              .group = nv ? 16 : 32};
    return oz_form_take(r, row, &f);
}

static enum oz_status take_fp8(const struct oz_dialect_reader *r, int32_t row, const struct spec *s,
                               const struct names *n)
{
    OZ_TRY(oz_form_take_fp8(r, row, "weight", n->scales, false));
    if (!s->acts) {
        r->out->schemes[row].acts[0] = OZ_ACT_NONE;
    }
    return oz_form_input_scale(r, row, n->input_scale, NULL);
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool is_integers(const struct stage *s)
{
    bool four = is(s->dtype, "int4") || is(s->dtype, "uint4");
    bool eight = is(s->dtype, "int8") || is(s->dtype, "uint8");
    return (four || eight) && (is(s->qscheme, "per_group") || is(s->qscheme, "per_channel"));
}

static enum oz_status fail_spec(const struct oz_dialect_reader *r, int32_t row,
                                const struct spec *s)
{
    const struct stage *a = &s->stages[0];
    bool two = s->count == 2;
    return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                   "%s: %s is %.40s (%.40s, group size %" PRId64 ", scales %.40s%s%s%.40s); of "
                   "Quark this version reads fp8_e4m3, integers of 8 and 4 bits in groups or by "
                   "channel, the same of an fp8_e4m3 by tensor, and fp4 in groups of 32 (e8m0) or "
                   "16 (scaled twice).",
                   r->path, r->table->rows[row].module, a->dtype, a->qscheme, a->group, a->scales,
                   a->symmetric ? "" : ", asymmetric", two ? ", then " : "",
                   two ? s->stages[1].dtype : "");
}

static enum oz_status take_spec(const struct oz_dialect_reader *r, int32_t row,
                                const struct spec *s)
{
    const struct stage *a = &s->stages[0];
    const struct stage *b = &s->stages[1];
    const struct names *n = names_of(r, row);
    bool one = s->count == 1;
    bool two = s->count == 2;
    bool mx = one && is(a->scales, "e8m0") && a->group == 32;
    bool nv = two && b->of_scales && is(b->dtype, "fp8_e4m3") && a->group == 16;
    if (one && is(a->dtype, "fp8_e4m3") && !is(a->qscheme, "per_group")) {
        return take_fp8(r, row, s, n);
    }
    if (is(a->dtype, "fp4") && (mx || nv)) {
        return take_fp4(r, row, nv, n);
    }
    if (one && is(a->dtype, "int8") && a->symmetric && !is(a->qscheme, "per_group")) {
        return take_int8(r, row, s, n);
    }
    if (one && is_integers(a)) {
        return take_integers(r, row, a, n->scales, n->zeros);
    }
    if (two && !b->of_scales && is(a->dtype, "fp8_e4m3") && is(a->qscheme, "per_tensor") &&
        is_integers(b)) {
        return take_two_stages(r, row, s, n);
    }
    return fail_spec(r, row, s);
}

/* Scales of activations that are not taken: they are quantized by what they are. */
static void spend_inputs(const struct oz_dialect_reader *r, int32_t row)
{
    const struct names *n = names_of(r, row);
    if (r->out->weights[row].planes[OZ_PLANE_INPUT_SCALE].tensor == NULL) {
        (void)oz_form_spend(r, row, n->input_scale);
    }
    (void)oz_form_spend(r, row, n->input_zeros);
    (void)oz_form_spend(r, row, n->input_scale2);
}

static enum oz_status read_row(const struct oz_dialect_reader *r, int32_t row)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_ckpt_find(r->ckpt, layer->name, NULL);
    const struct oz_json *config;
    struct spec s;
    bool excluded;
    if (!oz_stored_is_matrix(layer) || t == NULL || oz_codec_plain(t->dtype) != NULL) {
        return OZ_OK; /* plain; "exclude" says the same */
    }
    OZ_TRY(is_excluded(r, layer->module, &excluded));
    OZ_TRY(config_of(r, layer->module, &config));
    if (excluded || config == NULL) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: the file holds %s quantized (%s), but the config %s.", r->path,
                       layer->module, oz_dtype_name(t->dtype),
                       excluded ? "excludes it" : "has nothing for it");
    }
    OZ_TRY(read_spec(&s, config, r));
    OZ_TRY(take_spec(r, row, &s));
    spend_inputs(r, row);
    return OZ_OK;
}

enum oz_status oz_quark_read(const struct oz_dialect_reader *r)
{
    const char *format =
        oz_json_string(oz_json_get(oz_json_get(r->q, "export"), "weight_format"), "real_quantized");
    if (strcmp(format, "real_quantized") != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: Quark's weight_format is %.40s: weights of floating point, of which "
                       "some are rounded and some are not, beside their scales. Export with "
                       "weight_format=\"real_quantized\" is read.",
                       r->path, format);
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(r, i));
    }
    return OZ_OK;
}
