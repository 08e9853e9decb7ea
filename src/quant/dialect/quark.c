/*
 * quark.c: checkpoints of AMD Quark. The config says how layers are quantized, by name
 * ("layer_quant_config"), class ("layer_type_quant_config") or for all ("global_quant_config");
 * "exclude" comes first. A list of two specifications is NVFP4: scales that are scaled themselves.
 * Integers of 4 bits lie transposed in words.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/regex.h"
#include "quant/dialect/form.h"
#include "quant/rules.h"

struct spec {
    const char *dtype, *qscheme, *scales;
    int64_t group;
    bool symmetric, second; /* second: its scales are scaled, too */
    bool acts, static_acts;
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

static enum oz_status read_spec(struct spec *s, const struct oz_json *config,
                                const struct oz_dialect_reader *r)
{
    const struct oz_json *weight = oz_json_get(config, "weight");
    const struct oz_json *acts = oz_json_get(config, "input_tensors");
    *s = (struct spec){.second =
                           oz_json_count(weight) == 2 && oz_json_type(weight) == OZ_JSON_ARRAY};
    const struct oz_json *first =
        oz_json_type(weight) == OZ_JSON_ARRAY ? oz_json_at(weight, 0) : weight;
    OZ_TRY(oz_json_get_string(first, "dtype", "", &s->dtype, r->path, r->err));
    OZ_TRY(oz_json_get_string(first, "qscheme", "", &s->qscheme, r->path, r->err));
    OZ_TRY(oz_json_get_string(first, "scale_format", "float32", &s->scales, r->path, r->err));
    OZ_TRY(oz_json_get_integer(first, "group_size", 0, -1, INT32_MAX, &s->group, r->path, r->err));
    OZ_TRY(oz_json_get_bool(first, "symmetric", true, &s->symmetric, r->path, r->err));
    s->acts = oz_json_type(acts) == OZ_JSON_OBJECT;
    s->static_acts = s->acts && !oz_json_bool(oz_json_get(acts, "is_dynamic"), true);
    return OZ_OK;
}

/* ---- layers ---- */

static const int order[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* shift of channel e within its word */

static int64_t at_reordered(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)cols;
    return col * rows + row / 8 * 8 + order[row % 8];
}

static enum oz_status take_int4(const struct oz_dialect_reader *r, int32_t row,
                                const struct spec *s)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const char *pack =
        oz_json_string(oz_json_get(oz_json_get(r->q, "export"), "pack_method"), "reorder");
    const struct oz_form_int4 f = {.codes = "weight",
                                   .scales = "weight_scale",
                                   .code_dtype = OZ_DTYPE_I32,
                                   .code_shape = {layer->shape[1], layer->shape[0] / 8},
                                   .at =
                                       strcmp(pack, "order") == 0 ? oz_at_transposed : at_reordered,
                                   .code_move = OZ_MOVE_SIGNED,
                                   .group = s->group,
                                   .transposed = true};
    if (layer->shape[0] % 8 != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s has %" PRId64 " output features; Quark packs eight of them in a word.",
                       layer->module, layer->shape[0]);
    }
    OZ_TRY(oz_form_take_int4(r, row, &f));
    return oz_form_zeros(r, row, "weight_zero_point");
}

static enum oz_status take_int8(const struct oz_dialect_reader *r, int32_t row,
                                const struct spec *s)
{
    OZ_TRY(oz_form_take_int8(r, row, "weight", "weight_scale",
                             s->acts ? OZ_ACT_INT8_TOKEN : OZ_ACT_NONE));
    (void)oz_form_spend(r, row, "input_scale");
    (void)oz_form_spend(r, row, "input_zero_point");
    return oz_form_zeros(r, row, "weight_zero_point");
}

static enum oz_status take_fp4(const struct oz_dialect_reader *r, int32_t row, const struct spec *s)
{
    bool nv = s->second;
    const struct oz_form f = {.scheme = nv ? "nvfp4" : "mxfp4",
                              .codes = "weight",
                              .scales = "weight_scale",
                              .scales2 = nv ? "weight_scale_2" : NULL,
                              .code_dtype = OZ_DTYPE_U8,
                              .scale_dtype = nv ? OZ_DTYPE_F8_E4M3 : OZ_DTYPE_U8,
                              .per_byte = 2,
                              .scope = OZ_FORM_GROUP,
                              .group = nv ? 16 : 32};
    OZ_TRY(oz_form_take(r, row, &f));
    (void)oz_form_spend(r, row, "input_scale_2");
    return OZ_OK;
}

static enum oz_status take_spec(const struct oz_dialect_reader *r, int32_t row,
                                const struct spec *s)
{
    bool mx = strcmp(s->scales, "e8m0") == 0 && s->group == 32;
    bool nv = s->second && strcmp(s->scales, "e4m3") == 0 && s->group == 16;
    if (strcmp(s->dtype, "fp8_e4m3") == 0 && !s->second) {
        OZ_TRY(oz_form_take_fp8(r, row, "weight", "weight_scale", false));
        if (!s->acts) {
            r->out->schemes[row].acts[0] = OZ_ACT_NONE;
        }
        return oz_form_input_scale(r, row, "input_scale", NULL);
    }
    if (strcmp(s->dtype, "int8") == 0 && s->symmetric && !s->second) {
        return take_int8(r, row, s);
    }
    if (strcmp(s->dtype, "int4") == 0 && strcmp(s->qscheme, "per_group") == 0 && s->symmetric &&
        !s->second) {
        return take_int4(r, row, s);
    }
    if (strcmp(s->dtype, "fp4") == 0 && (mx || nv)) {
        return take_fp4(r, row, s);
    }
    return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                   "%s: %s is %.40s (%.40s, group size %" PRId64 ", scales %.40s%s); of Quark this "
                   "version reads fp8_e4m3, symmetric int8, symmetric int4 in groups, and fp4 in "
                   "groups of 32 or 16.",
                   r->path, r->table->rows[row].module, s->dtype, s->qscheme, s->group, s->scales,
                   s->symmetric ? "" : ", asymmetric");
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
    return take_spec(r, row, &s);
}

enum oz_status oz_quark_read(const struct oz_dialect_reader *r)
{
    const char *format =
        oz_json_string(oz_json_get(oz_json_get(r->q, "export"), "weight_format"), "real_quantized");
    if (strcmp(format, "real_quantized") != 0) {
        return OZ_FAIL(
            r->err, OZ_ERR_UNSUPPORTED,
            "%s: Quark's weight_format is %.40s: the weights are floats that were rounded "
            "only. Take the config's \"quantization_config\" out to load them as they are.",
            r->path, format);
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(r, i));
    }
    return OZ_OK;
}
