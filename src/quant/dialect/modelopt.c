/*
 * modelopt.c: checkpoints of NVIDIA ModelOpt. What it calls quant_algo stands in hf_quant_config.json
 * (within "quantization") or in the component's config (flat); MIXED_PRECISION has one for each layer
 * in "quantized_layers". Codes are "weight", scales "weight_scale", the second level of NVFP4
 * "weight_scale_2", which multiplies; nibbles have the first code low, scales lie row by row. Static
 * scales of activations are "input_scale".
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/form.h"
#include "quant/rules.h"

enum shape { FP8, BLOCKS, INT8, FORM, AWQ4, AWQ4_FP8 };

static const struct algo {
    const char *name;   /* upper case */
    const char *method; /* of a checkpoint that has it everywhere */
    enum shape shape;
    enum oz_dtype codes;
    struct oz_form form; /* of FORM */
} algos[] = {
    {"FP8", "modelopt", FP8, OZ_DTYPE_F8_E4M3, {0}},
    {"FP8_PER_CHANNEL_PER_TOKEN", "modelopt", FP8, OZ_DTYPE_F8_E4M3, {0}},
    {"FP8_PB_WO", "modelopt", BLOCKS, OZ_DTYPE_F8_E4M3, {0}},
    {"FP8_PB_REAL", "modelopt", BLOCKS, OZ_DTYPE_F8_E4M3, {0}},
    {"W8A16", "modelopt", INT8, OZ_DTYPE_I8, {0}},
    {"W8A8_SQ_PER_CHANNEL", "modelopt", INT8, OZ_DTYPE_I8, {0}},
#define NVFP4(name)                                                                              \
    {                                                                                            \
        name, "modelopt_fp4", FORM, OZ_DTYPE_U8,                                                 \
        {                                                                                        \
            .scheme = "nvfp4", .codes = "weight", .scales = "weight_scale",                      \
            .scales2 = "weight_scale_2", .code_dtype = OZ_DTYPE_U8,                              \
            .scale_dtype = OZ_DTYPE_F8_E4M3, .per_byte = 2, .scope = OZ_FORM_GROUP, .group = 16, \
        }                                                                                        \
    }
    NVFP4("NVFP4"),
    NVFP4("NVFP4_STATIC"),
    NVFP4("W4A16_NVFP4"),
    NVFP4("NVFP4_AWQ"),
    NVFP4("NVFP4_SVD"),
    NVFP4("W4A8_NVFP4_FP8"),
#undef NVFP4
    {"MXFP8", "modelopt_mxfp8", FORM, OZ_DTYPE_F8_E4M3,
     OZ_FORM_MX("mxfp8", "weight", OZ_DTYPE_F8_E4M3, 1)},
#define MXFP4(name)                                                                        \
    {                                                                                      \
        name, "modelopt", FORM, OZ_DTYPE_U8, OZ_FORM_MX("mxfp4", "weight", OZ_DTYPE_U8, 2) \
    }
    MXFP4("MXFP4"),
    MXFP4("W4A8_MXFP4_FP8"),
#undef MXFP4
    {"W4A16_AWQ", "modelopt", AWQ4, OZ_DTYPE_U8, {0}},
    {"W4A8_AWQ", "modelopt", AWQ4_FP8, OZ_DTYPE_U8, {0}},
};

struct reader {
    const struct oz_dialect_reader *r;
    const struct algo *algo;        /* of all layers; NULL: MIXED_PRECISION */
    const struct oz_json *layers;   /* MIXED_PRECISION: "quantized_layers" */
    const struct oz_json *excluded; /* a list of patterns */
    bool
        no_vectors; /* AWQ's are none, as the config says: a file that lacks one is damaged otherwise */
    int32_t plain; /* layers that are not excluded, and stored plain */
};

static bool same_upper(const char *upper, const char *text)
{
    while (*upper != '\0' && *upper == toupper((unsigned char)*text)) {
        upper++;
        text++;
    }
    return *upper == *text;
}

static enum oz_status find_algo(const struct algo **out, const char *name,
                                const struct oz_dialect_reader *r)
{
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        if (name != NULL && same_upper(algos[i].name, name)) {
            *out = &algos[i];
            return OZ_OK;
        }
    }
    return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                   "%s: ModelOpt's quant_algo is %s%.60s%s; this version reads FP8, "
                   "FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, W8A16, W8A8_SQ_PER_CHANNEL, NVFP4 and "
                   "its kinds, W4A16_AWQ, W4A8_AWQ, MXFP8, MXFP4 and MIXED_PRECISION of these.",
                   r->path, name != NULL ? "\"" : "", name != NULL ? name : "missing",
                   name != NULL ? "\"" : "");
}

/* The same layer may have the model's own prefix in front, in the config or in the file. */
static bool same_module(const char *entry, const char *module)
{
    size_t n = strlen(entry);
    size_t k = strlen(module);
    const char *longer = n > k ? entry : module;
    const char *shorter = n > k ? module : entry;
    size_t more = n > k ? n - k : k - n;
    return strcmp(longer + more, shorter) == 0 && (more == 0 || longer[more - 1] == '.');
}

static bool is_excluded(const struct reader *s, const char *module)
{
    for (size_t i = 0; i < oz_json_count(s->excluded); i++) {
        const char *entry = oz_json_string(oz_json_at(s->excluded, i), "");
        if (same_module(entry, module) || oz_glob_match(entry, module)) {
            return true;
        }
    }
    return false;
}

static const char *layer_algo(const struct reader *s, const char *module)
{
    const struct oz_json *exact = oz_json_get(s->layers, module);
    for (void *it = exact == NULL ? oz_json_first(s->layers) : NULL; it != NULL && exact == NULL;
         it = oz_json_next(s->layers, it)) {
        exact = same_module(oz_json_key(it), module) ? oz_json_value(it) : NULL;
    }
    return oz_json_string(oz_json_get(exact, "quant_algo"), NULL);
}

/* ---- a layer ---- */

/* Pairs of rows share a byte, the even one low. */
static int64_t at_pairs(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)rows;
    return 2 * (row / 2 * cols + col) + row % 2;
}

/* W4A8: what the integers are worth is rounded to FP8 under "weight_scale_2", one number, and the product
 * is computed of that; "weight_scale" is the whole scale of a group. */
static enum oz_status take_fp8_level(const struct oz_dialect_reader *r, int32_t row)
{
    OZ_TRY(oz_form_number(r, row, "weight_scale_2", &r->out->weights[row].e4m3_scale));
    (void)oz_form_spend(r, row, "weight_scale_2");
    oz_form_expand(r, row);
    return OZ_OK;
}

static enum oz_status take_int4(const struct reader *s, int32_t row, bool fp8)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_form_find(r, row, "weight_scale");
    int64_t groups = t != NULL && t->rank == 2 ? t->shape[1] : 0;
    const struct oz_form_int4 f = {.codes = "weight",
                                   .scales = "weight_scale",
                                   .code_dtype = OZ_DTYPE_U8,
                                   .code_shape = {layer->shape[0] / 2, layer->shape[1]},
                                   .at = at_pairs,
                                   .code_move = OZ_MOVE_SIGNED,
                                   .group = groups > 0 ? layer->shape[1] / groups : 0};
    if (layer->shape[0] % 2 != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: %s is in 4-bit integers of pairs of rows, but has %" PRId64 " of them.",
                       r->path, layer->module, layer->shape[0]);
    }
    OZ_TRY(oz_form_take_int4(r, row, &f));
    return fp8 ? take_fp8_level(r, row) : OZ_OK;
}

static enum oz_status take_shape(const struct reader *s, int32_t row, const struct algo *a)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_form rows = {.scheme = "int8",
                                 .codes = "weight",
                                 .scales = "weight_scale",
                                 .code_dtype = OZ_DTYPE_I8,
                                 .scale_dtype = OZ_DTYPE_F32,
                                 .per_byte = 1,
                                 .scope = OZ_FORM_ROW,
                                 .mode = strcmp(a->name, "W8A16") == 0 ? OZ_ACT_NONE
                                                                       : OZ_ACT_INT8_TOKEN};
    switch (a->shape) {
    case FP8:
        return oz_form_find(r, row, "weight_scale") != NULL
                   ? oz_form_take_fp8(r, row, "weight", "weight_scale", false)
                   : OZ_FAIL(r->err, OZ_ERR_FORMAT,
                             "%s says that %s is quantized, but the tensor %s.weight_scale is "
                             "missing.",
                             r->path, layer->module, layer->module);
    case BLOCKS: {
        struct oz_form f = {.scheme = "fp8_per_block",
                            .codes = "weight",
                            .scales = "weight_scale",
                            .code_dtype = OZ_DTYPE_F8_E4M3,
                            .scale_dtype = OZ_DTYPE_F32,
                            .per_byte = 1,
                            .scope = OZ_FORM_BLOCK};
        return oz_form_take(r, row, &f); /* weight-only */
    }
    case INT8: return oz_form_take(r, row, &rows);
    case FORM: return oz_form_take(r, row, &a->form);
    case AWQ4:
    case AWQ4_FP8: break;
    }
    return take_int4(s, row, a->shape == AWQ4_FP8);
}

/* What makes activations ready for the weight is merged into it. */
static enum oz_status take_branches(const struct reader *s, int32_t row, const struct algo *a)
{
    const struct oz_dialect_reader *r = s->r;
    bool branch = strstr(a->name, "SVD") != NULL;
    bool smooth = branch || (strstr(a->name, "AWQ") != NULL && !s->no_vectors) ||
                  strstr(a->name, "SQ") != NULL;
    if (smooth || oz_form_find(r, row, "pre_quant_scale") != NULL) {
        OZ_TRY(oz_form_smooth(r, row, "pre_quant_scale", true));
    }
    if (branch || oz_form_find(r, row, "svdquant_lora_a") != NULL) {
        OZ_TRY(oz_form_low_rank(r, row, "svdquant_lora_a", "svdquant_lora_b", false, NULL, NULL));
        /* The branch sees the activations that the codes see, with pre_quant_scale in them. */
        r->out->weights[row].smooth_last = true;
    }
    return OZ_OK;
}

static enum oz_status read_row(struct reader *s, int32_t row)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_ckpt_find(r->ckpt, layer->name, NULL);
    const struct algo *a = s->algo;
    if (!oz_stored_is_matrix(layer) || t == NULL) {
        return OZ_OK;
    }
    bool coded = oz_codec_plain(t->dtype) == NULL;
    const char *own = s->layers != NULL ? layer_algo(s, layer->module) : NULL;
    bool excluded = is_excluded(s, layer->module) || (s->layers != NULL && own == NULL);
    if (!coded) {
        s->plain += !excluded;
        return OZ_OK;
    }
    if (excluded) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s leaves %s out, but the file holds it quantized: %s is %s.", r->path,
                       layer->module, t->name, oz_dtype_name(t->dtype));
    }
    if (own != NULL) {
        OZ_TRY(find_algo(&a, own, r));
    }
    if (t->dtype != a->codes) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s says that %s is %s, whose weights are %s, but the tensor %s is %s.",
                       r->path, layer->module, a->name, oz_dtype_name(a->codes), t->name,
                       oz_dtype_name(t->dtype));
    }
    OZ_TRY(take_shape(s, row, a));
    OZ_TRY(oz_form_input_scale(r, row, "input_scale", NULL));
    (void)oz_form_spend(r, row, "k_scale"); /* of a cache of keys and values */
    (void)oz_form_spend(r, row, "v_scale");
    return take_branches(s, row, a);
}

enum oz_status oz_modelopt_read(const struct oz_dialect_reader *r)
{
    const struct oz_json *nested = oz_json_get(r->q, "quantization");
    const struct oz_json *q = nested != NULL ? nested : r->q;
    const char *name = oz_json_string(oz_json_get(q, "quant_algo"), NULL);
    struct reader s = {.r = r,
                       .excluded = oz_json_get(q, "exclude_modules"),
                       .no_vectors = !oz_json_bool(oz_json_get(q, "pre_quant_scale"), true)};
    if (s.excluded == NULL) {
        s.excluded = oz_json_get(q, "ignore");
    }
    if (oz_json_type(s.excluded) != OZ_JSON_NULL && oz_json_type(s.excluded) != OZ_JSON_ARRAY) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: the list of layers that are left out is %s, not a list.", r->path,
                       oz_json_type_name(s.excluded));
    }
    if (name != NULL && same_upper("MIXED_PRECISION", name)) {
        s.layers = oz_json_get(q, "quantized_layers");
        if (oz_json_type(s.layers) != OZ_JSON_OBJECT) {
            return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                           "%s: quant_algo is MIXED_PRECISION, but \"quantized_layers\" is %s.",
                           r->path, oz_json_type_name(s.layers));
        }
        r->out->method = "modelopt_mixed";
    } else {
        OZ_TRY(find_algo(&s.algo, name, r));
        r->out->method = s.algo->method;
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(&s, i));
    }
    oz_stored_note(r->out, r->arena, "ModelOpt's quant_algo is %.60s", name);
    if (s.plain > 0) {
        oz_stored_note(r->out, r->arena,
                       "%d linear layers that the config does not leave out are stored plain, and "
                       "stay so",
                       (int)s.plain);
    }
    return OZ_OK;
}
