/*
 * comfy.c: files of ComfyUI. Old: "<layer>.scale_weight" beside FP8 codes, with the mark "scaled_fp8"
 * in the file. New: each layer says its format in a JSON text, as the tensor "<layer>.comfy_quant" or in
 * "_quantization_metadata" of the header; both are read, and must not differ. NVFP4 has the first code
 * of a byte high and its scales in tiles of 128 x 4. Files without any scale are FP8 casts.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "num/rotate.h"
#include "quant/dialect/form.h"

/* What a layer's hints say; zero: nothing. */
struct hint {
    char format[32];
    bool full_precision, rotated;
    int64_t rotate_cols;
};

struct reader {
    const struct oz_dialect_reader *r;
    const struct oz_json *layers; /* of the header; NULL */
    bool scaled;                  /* some layer of the file has a scale */
    bool nvfp4, rotated;          /* some layer is */
    int32_t hints;                /* that the header has and a layer took */
};

/* Names in hints may have a prefix that tensors lack: the program's own for the model. */
static const char *bare(const char *name)
{
    static const char *const prefixes[] = {"model.diffusion_model.", "diffusion_model.", "model.",
                                           "transformer.", "net."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) == 0) {
            return name + n;
        }
    }
    return name;
}

static enum oz_status parse_hint(struct hint *h, const struct oz_json *v, const char *where,
                                 const struct oz_dialect_reader *r)
{
    const char *format = oz_json_string(v, NULL); /* the format alone */
    const struct oz_json *params = oz_json_get(v, "params");
    *h = (struct hint){.rotate_cols = 256};
    if (format == NULL) {
        OZ_TRY(oz_json_get_string(v, "format", "", &format, where, r->err));
        OZ_TRY(oz_json_get_bool(v, "full_precision_matrix_mult", false, &h->full_precision, where,
                                r->err));
        OZ_TRY(oz_json_get_bool(v, "convrot", false, &h->rotated, where, r->err));
        OZ_TRY(oz_json_get_integer(v, "convrot_groupsize", 256, 1, 1 << 20, &h->rotate_cols, where,
                                   r->err));
    }
    if (params != NULL) {
        OZ_TRY(oz_json_get_bool(params, "convrot", h->rotated, &h->rotated, where, r->err));
        OZ_TRY(oz_json_get_integer(params, "convrot_groupsize", h->rotate_cols, 1, 1 << 20,
                                   &h->rotate_cols, where, r->err));
    }
    if (format[0] == '\0' || strlen(format) >= sizeof h->format) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s: \"format\" is missing, or no name of one.",
                       where);
    }
    memcpy(h->format, format, strlen(format) + 1);
    return OZ_OK;
}

static enum oz_status read_tensor_hint(struct hint *h, const struct oz_tensor_view *t,
                                       const struct oz_dialect_reader *r)
{
    char text[4096];
    struct oz_json *v;
    if (t->dtype != OZ_DTYPE_U8 || t->bytes > (int64_t)sizeof text) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "Tensor %s is no text of a few bytes.", t->name);
    }
    OZ_TRY(oz_ckpt_read(r->ckpt, t, 0, t->bytes, text, r->err));
    OZ_TRY(oz_json_parse(&v, text, (size_t)t->bytes, t->name, r->err));
    enum oz_status status = parse_hint(h, v, t->name, r);
    oz_json_free(v);
    return status;
}

/* What the header says of a module. */
static const struct oz_json *header_hint(const struct reader *s, const char *module)
{
    const struct oz_json *v = oz_json_get(s->layers, module);
    for (void *it = v == NULL ? oz_json_first(s->layers) : NULL; it != NULL && v == NULL;
         it = oz_json_next(s->layers, it)) {
        v = strcmp(bare(oz_json_key(it)), module) == 0 ? oz_json_value(it) : NULL;
    }
    return v;
}

static enum oz_status read_hint(struct reader *s, int32_t row, struct hint *h, bool *found)
{
    const struct oz_dialect_reader *r = s->r;
    const char *module = r->table->rows[row].module;
    const struct oz_tensor_view *t = oz_form_find(r, row, "comfy_quant");
    const struct oz_json *v = header_hint(s, module);
    struct hint other = {0};
    *h = (struct hint){0};
    *found = t != NULL || v != NULL;
    s->hints += v != NULL;
    if (v != NULL) {
        OZ_TRY(parse_hint(h, v, "\"_quantization_metadata\" of the file", r));
    }
    if (t == NULL) {
        return OZ_OK;
    }
    OZ_TRY(read_tensor_hint(&other, t, r));
    if (v != NULL && (strcmp(h->format, other.format) != 0 || h->rotated != other.rotated)) {
        return OZ_FAIL(
            r->err, OZ_ERR_FORMAT,
            "%s is %s%s by \"_quantization_metadata\" of the file, and %s%s by the tensor "
            "%s.",
            module, h->format, h->rotated ? ", rotated," : "", other.format,
            other.rotated ? ", rotated," : "", t->name);
    }
    other.full_precision = other.full_precision || h->full_precision;
    *h = other;
    (void)oz_form_spend(r, row, "comfy_quant");
    return OZ_OK;
}

/* ---- formats ---- */

/* Scales of one byte may be in a tensor of bytes. */
static enum oz_dtype container(const struct oz_dialect_reader *r, int32_t row, const char *suffix,
                               enum oz_dtype dtype)
{
    const struct oz_tensor_view *t = oz_form_find(r, row, suffix);
    return t != NULL && t->dtype == OZ_DTYPE_U8 ? OZ_DTYPE_U8 : dtype;
}

static enum oz_status take_fp8(struct reader *s, int32_t row, const char *scale, const char *input)
{
    const struct oz_dialect_reader *r = s->r;
    OZ_TRY(oz_form_take_fp8(r, row, "weight", scale, false));
    return oz_form_input_scale(r, row, input, NULL);
}

static enum oz_status check_cols(const struct reader *s, int32_t row, int64_t group)
{
    const struct oz_layer *layer = &s->r->table->rows[row];
    return layer->shape[1] % group == 0
               ? OZ_OK
               : OZ_FAIL(s->r->err, OZ_ERR_UNSUPPORTED,
                         "%s has %" PRId64 " input features; ComfyUI's files of this format are "
                         "read in multiples of %" PRId64 ".",
                         layer->module, layer->shape[1], group);
}

static enum oz_status take_nvfp4(struct reader *s, int32_t row)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_form f = {.scheme = "nvfp4",
                              .codes = "weight",
                              .scales = "weight_scale",
                              .scales2 = "weight_scale_2",
                              .code_dtype = OZ_DTYPE_U8,
                              .scale_dtype = container(r, row, "weight_scale", OZ_DTYPE_F8_E4M3),
                              .per_byte = 2,
                              .scope = OZ_FORM_GROUP,
                              .group = 16,
                              .code_move = OZ_MOVE_NIBBLES,
                              .swizzled = true,
                              .row_multiple = 16};
    OZ_TRY(check_cols(s, row, 16));
    OZ_TRY(oz_form_take(r, row, &f));
    s->nvfp4 = true;
    OZ_TRY(oz_form_input_scale(r, row, "input_scale", NULL));
    return oz_form_find(r, row, "pre_quant_scale") != NULL
               ? oz_form_smooth(r, row, "pre_quant_scale", true)
               : OZ_OK;
}

static enum oz_status take_mxfp8(struct reader *s, int32_t row)
{
    const struct oz_form f = {.scheme = "mxfp8",
                              .codes = "weight",
                              .scales = "weight_scale",
                              .code_dtype = container(s->r, row, "weight", OZ_DTYPE_F8_E4M3),
                              .scale_dtype = OZ_DTYPE_U8,
                              .per_byte = 1,
                              .scope = OZ_FORM_GROUP,
                              .group = 32,
                              .swizzled = true,
                              .row_multiple = 32};
    OZ_TRY(check_cols(s, row, 32));
    return oz_form_take(s->r, row, &f);
}

static enum oz_status take_int8(struct reader *s, int32_t row, const struct hint *h)
{
    const struct oz_dialect_reader *r = s->r;
    OZ_TRY(oz_form_take_int8(r, row, "weight", "weight_scale",
                             h->full_precision ? OZ_ACT_NONE : OZ_ACT_INT8_TOKEN));
    OZ_TRY(oz_form_input_scale(r, row, "input_scale", NULL));
    if (!h->rotated) {
        return OZ_OK;
    }
    if (!oz_rotate_known((int32_t)h->rotate_cols)) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s is rotated in groups of %" PRId64
                       "; a group has 4, 16, 64, 256, 1024 or "
                       "4096 columns.",
                       r->table->rows[row].module, h->rotate_cols);
    }
    OZ_TRY(check_cols(s, row, h->rotate_cols));
    oz_form_expand(r, row);
    r->out->weights[row].rotate_cols = (int32_t)h->rotate_cols;
    s->rotated = true;
    return OZ_OK;
}

static enum oz_status take_format(struct reader *s, int32_t row, const struct hint *h)
{
    const struct oz_dialect_reader *r = s->r;
    enum oz_status status;
    if (strcmp(h->format, "float8_e4m3fn") == 0) {
        status = take_fp8(s, row, "weight_scale", "input_scale");
    } else if (strcmp(h->format, "nvfp4") == 0) {
        status = take_nvfp4(s, row);
    } else if (strcmp(h->format, "mxfp8") == 0) {
        status = take_mxfp8(s, row);
    } else if (strcmp(h->format, "int8_tensorwise") == 0) {
        status = take_int8(s, row, h);
    } else {
        return OZ_FAIL(
            r->err, OZ_ERR_UNSUPPORTED,
            "%s is ComfyUI's format %.32s; this version reads float8_e4m3fn, nvfp4, mxfp8 "
            "and int8_tensorwise (rotated, too).",
            r->table->rows[row].module, h->format);
    }
    if (status == OZ_OK && h->full_precision && r->out->weights[row].codec == NULL) {
        r->out->schemes[row].acts[0] = OZ_ACT_NONE;
    }
    return status;
}

/* ---- layers ---- */

static enum oz_status read_unhinted(struct reader *s, int32_t row)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    if (oz_form_has(r, row, "weight", OZ_DTYPE_F8_E5M2)) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "Tensor %s is F8_E5M2; this version reads FP8 weights of e4m3.",
                       layer->name);
    }
    const struct oz_tensor_view *t = oz_form_find(r, row, "weight");
    if (t != NULL && (t->dtype == OZ_DTYPE_U8 || t->dtype == OZ_DTYPE_I8)) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s is %s, and nothing says in which of ComfyUI's formats (%s.comfy_quant).",
                       t->name, oz_dtype_name(t->dtype), layer->module);
    }
    if (!oz_form_has(r, row, "weight", OZ_DTYPE_F8_E4M3)) {
        return OZ_OK;
    }
    if (oz_form_find(r, row, "scale_weight") != NULL) {
        return take_fp8(s, row, "scale_weight", "scale_input");
    }
    if (oz_form_find(r, row, "weight_scale") != NULL) { /* the other spelling */
        return take_fp8(s, row, "weight_scale", "input_scale");
    }
    if (s->scaled) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s is F8_E4M3, and its scale is missing (%s.scale_weight); other layers of "
                       "the file have theirs.",
                       layer->name, layer->module);
    }
    OZ_TRY(oz_stored_take(&r->out->weights[row], r->ckpt, r->path, layer,
                          &(struct oz_dialect_tensor){.plane = OZ_PLANE_CODES,
                                                      .suffix = "weight",
                                                      .dtype = OZ_DTYPE_F8_E4M3,
                                                      .rank = 2,
                                                      .shape = {layer->shape[0], layer->shape[1]}},
                          r->err));
    r->out->weights[row].planes[OZ_PLANE_SCALES].move = OZ_MOVE_REPEAT; /* a cast: 1 */
    r->out->weights[row].number = 1;
    r->out->count++;
    return oz_stored_scheme(&r->out->schemes[row], "fp8_per_tensor", OZ_ACT_FP8_TOKEN, r->err);
}

static enum oz_status read_row(struct reader *s, int32_t row)
{
    struct hint h;
    bool found;
    if (!oz_stored_is_matrix(&s->r->table->rows[row])) {
        return OZ_OK;
    }
    OZ_TRY(read_hint(s, row, &h, &found));
    return found ? take_format(s, row, &h) : read_unhinted(s, row);
}

/* The mark belongs to no layer: the first one takes it. */
static enum oz_status take_mark(struct reader *s)
{
    const struct oz_dialect_reader *r = s->r;
    int64_t index;
    const struct oz_tensor_view *t = oz_ckpt_find(r->ckpt, "scaled_fp8", &index);
    for (int32_t i = 0; t != NULL && i < r->table->count; i++) {
        struct oz_stored_weight *w = &r->out->weights[i];
        if (r->out->schemes[i].codec != NULL && w->spent_count < OZ_STORED_SPENT) {
            w->spent[w->spent_count++] = index;
            break;
        }
    }
    if (t != NULL && t->dtype == OZ_DTYPE_F8_E5M2) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "Tensor scaled_fp8 is F8_E5M2; this version reads FP8 weights of e4m3.");
    }
    return OZ_OK;
}

static enum oz_status read_rows(struct reader *s)
{
    const struct oz_dialect_reader *r = s->r;
    s->scaled = oz_ckpt_find(r->ckpt, "scaled_fp8", NULL) != NULL;
    for (int64_t i = 0; i < oz_ckpt_count(r->ckpt) && !s->scaled; i++) {
        const char *name = oz_ckpt_tensor(r->ckpt, i)->name;
        size_t n = strlen(name);
        s->scaled = (n > 13 && strcmp(name + n - 13, ".scale_weight") == 0) ||
                    (n > 13 && strcmp(name + n - 13, ".weight_scale") == 0);
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(s, i));
    }
    if (s->hints != (int32_t)oz_json_count(s->layers)) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "\"_quantization_metadata\" of the file names %zu layers, of which %d are "
                       "layers of this model.",
                       oz_json_count(s->layers), (int)s->hints);
    }
    r->out->method = s->rotated ? "int8_convrot" : s->nvfp4 ? "comfy_nvfp4" : "comfy";
    return take_mark(s);
}

enum oz_status oz_comfy_read(const struct oz_dialect_reader *r)
{
    struct reader s = {.r = r};
    struct oz_json *header = NULL;
    const char *text = oz_ckpt_metadata(r->ckpt, "_quantization_metadata");
    if (text != NULL) {
        OZ_TRY(oz_json_parse(&header, text, strlen(text), "\"_quantization_metadata\" of the file",
                             r->err));
        s.layers = oz_json_get(header, "layers");
    }
    enum oz_status status = read_rows(&s);
    oz_json_free(header);
    return status;
}
