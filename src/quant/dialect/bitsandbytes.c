/*
 * bitsandbytes.c: checkpoints of bitsandbytes of 4 and 8 bits, as diffusers and transformers write them (vLLM reads
 * them, too). Behind a module's name: "weight" U8 [N K / 2, 1], codes two in a byte with the first one
 * high; "weight.absmax" F32, one for 64 elements, across rows; "weight.quant_map" F32 [16], the values of
 * the codes; "weight.quant_state.bitsandbytes__nf4" (or fp4) U8, a JSON text of what the tensors do not
 * say. Nested: absmax is U8 codes of "weight.nested_quant_map" F32 [256], times "weight.nested_absmax" F32,
 * one for 256 of them, plus the number "nested_offset" of the text. 8 bits are read only.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "num/codebook.h"
#include "quant/dialect/dialect.h"

#define BLOCK 64
#define NESTED 256
#define MAX_STATE_BYTES 4096
#define BY_127 7.874015718698502e-3F /* one over 127, as bitsandbytes has it */

static const struct kind {
    const char *scheme, *type;
    bool nested;
    const struct oz_codebook *book;
} kinds[] = {
    {"bitsandbytes_nf4", "nf4", false, &oz_codebook_nf4},
    {"bitsandbytes_fp4", "fp4", false, &oz_codebook_fp4_bnb},
    {"bitsandbytes_nf4_nested", "nf4", true, &oz_codebook_nf4},
    {"bitsandbytes_fp4_nested", "fp4", true, &oz_codebook_fp4_bnb},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *const state_suffixes[] = {"weight.quant_state.bitsandbytes__nf4",
                                             "weight.quant_state.bitsandbytes__fp4"};

static const char *state_suffix(const char *type)
{
    return state_suffixes[strcmp(type, "fp4") == 0];
}

static const struct kind *kind_of(const char *scheme)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].scheme, scheme) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

bool oz_bnb_writes(const char *scheme)
{
    return kind_of(scheme) != NULL;
}

/* ---- tensors ---- */

static struct oz_dialect_tensor *add(struct oz_dialect_tensor *out, int32_t *count,
                                     enum oz_plane plane, const char *suffix, enum oz_dtype dtype,
                                     int64_t elements)
{
    struct oz_dialect_tensor *t = &out[(*count)++];
    *t = (struct oz_dialect_tensor){
        .plane = plane, .suffix = suffix, .dtype = dtype, .rank = 1, .shape = {elements, 1}};
    return t;
}

/* The tensors of planes, in the order: codes, scales, nested scales. */
static void lay_out_planes(struct oz_dialect_tensor *out, int32_t *count, const struct kind *k,
                           int64_t rows, int64_t cols)
{
    int64_t blocks = (rows * cols + BLOCK - 1) / BLOCK;
    struct oz_dialect_tensor *codes =
        add(out, count, OZ_PLANE_CODES, "weight", OZ_DTYPE_U8, rows * cols / 2);
    codes->rank = 2;
    codes->move = OZ_MOVE_NIBBLES;
    (void)add(out, count, OZ_PLANE_SCALES, "weight.absmax", k->nested ? OZ_DTYPE_U8 : OZ_DTYPE_F32,
              blocks);
    if (k->nested) {
        (void)add(out, count, OZ_PLANE_SCALES2, "weight.nested_absmax", OZ_DTYPE_F32,
                  (blocks + NESTED - 1) / NESTED);
    }
}

static void add_table(struct oz_dialect_tensor *out, int32_t *count, const char *suffix,
                      const struct oz_codebook *book)
{
    add(out, count, OZ_PLANE_COUNT, suffix, OZ_DTYPE_F32, book->count)->fixed = book->values;
}

static const char *torch_name(enum oz_dtype dtype)
{
    return dtype == OZ_DTYPE_BF16 ? "bfloat16" : dtype == OZ_DTYPE_F16 ? "float16" : "float32";
}

/* The text, in which the offset, once it is known, takes the place of a 0. */
static void add_state(struct oz_dialect_tensor *out, int32_t *count, const struct kind *k,
                      const struct oz_layer *layer, enum oz_dtype stored)
{
    struct oz_dialect_tensor *t = add(out, count, k->nested ? OZ_PLANE_OFFSETS : OZ_PLANE_COUNT,
                                      state_suffix(k->type), OZ_DTYPE_U8, 0);
    int n = snprintf(t->text, sizeof t->text,
                     "{\"quant_type\": \"%s\", \"blocksize\": %d, \"dtype\": \"%s\", \"shape\": "
                     "[%" PRId64 ", %" PRId64 "]",
                     k->type, BLOCK, torch_name(stored), layer->shape[0], layer->shape[1]);
    if (k->nested) {
        n += snprintf(t->text + n, sizeof t->text - (size_t)n,
                      ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\", "
                      "\"nested_offset\": ",
                      NESTED);
        t->move = OZ_MOVE_NUMBER;
        t->number_at = n;
        n += snprintf(t->text + n, sizeof t->text - (size_t)n, OZ_DIALECT_NUMBER, 0.0);
    }
    n += snprintf(t->text + n, sizeof t->text - (size_t)n, "}");
    t->fixed = t->text;
    t->shape[0] = n;
}

enum oz_status oz_bnb_layout(struct oz_dialect_tensor out[OZ_DIALECT_TENSORS], int32_t *count,
                             const struct oz_scheme *scheme, const struct oz_layer *layer,
                             enum oz_dtype stored, struct oz_error *err)
{
    const struct kind *k = kind_of(scheme->name);
    *count = 0;
    if (!oz_stored_is_matrix(layer) || layer->transform != 0 || layer->file_rows != 0 ||
        layer->file_row != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: its tensor is not the layer's matrix as it stands, and cannot be "
                       "written quantized; add it to ignored_layers.",
                       layer->name);
    }
    if (layer->shape[1] % 2 != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s has %" PRId64 " input features; bitsandbytes packs two codes in a byte, "
                       "and ounce writes rows of whole bytes only. Add the layer to "
                       "ignored_layers.",
                       layer->module, layer->shape[1]);
    }
    lay_out_planes(out, count, k, layer->shape[0], layer->shape[1]);
    add_table(out, count, "weight.quant_map", k->book);
    if (k->nested) {
        add_table(out, count, "weight.nested_quant_map", &oz_codebook_dynamic8);
    }
    add_state(out, count, k, layer, stored);
    return OZ_OK;
}

/* ---- the config ---- */

/* Would an entry of llm_int8_skip_modules keep a module plain, beside the one that it names? As diffusers
 * (name of the last part, part of the path) and transformers (ending) compare them. */
static bool skips(const char *entry, size_t length, const char *module, bool any_prefix)
{
    size_t n = strlen(module);
    const char *last = strrchr(module, '.');
    last = last != NULL ? last + 1 : module;
    if (any_prefix) {
        return n >= length && memcmp(module + n - length, entry, length) == 0;
    }
    if (strlen(last) == length && memcmp(last, entry, length) == 0) {
        return true;
    }
    for (const char *at = module; n > length && (size_t)(at - module) + length < n; at++) {
        if (memcmp(at, entry, length) == 0 && at[length] == '.') {
            return true;
        }
    }
    return false;
}

struct collision {
    const struct oz_assignment *assignment;
    bool any_prefix;
    struct oz_error *err;
    enum oz_status status;
};

static void check_plain(void *ctx, const char *module, size_t length)
{
    struct collision *c = ctx;
    const struct oz_assignment *a = c->assignment;
    for (int32_t i = 0; i < a->table->count && c->status == OZ_OK; i++) {
        const char *other = a->table->rows[i].module;
        other = c->any_prefix ? oz_dialect_bare_module(other) : other;
        if (oz_dialect_is_written(a, i) && skips(module, length, other, c->any_prefix)) {
            c->status = OZ_FAIL(c->err, OZ_ERR_UNSUPPORTED,
                                "bitsandbytes cannot leave %.*s plain and have %s quantized: it "
                                "tells them apart by parts of their names. Quantize both, or "
                                "neither.",
                                (int)length, module, a->table->rows[i].module);
        }
    }
}

enum oz_status oz_bnb_check(const struct oz_assignment *a, const struct oz_ckpt *ckpt,
                            bool any_prefix, struct oz_error *err)
{
    struct collision c = {.assignment = a, .any_prefix = any_prefix, .err = err};
    oz_dialect_each_plain(a, ckpt, any_prefix, check_plain, &c);
    return c.status;
}

struct name_list {
    struct oz_buf *b;
    bool any;
};

static void put_skipped(void *ctx, const char *module, size_t length)
{
    struct name_list *list = ctx;
    char name[OZ_CKPT_MAX_NAME_BYTES + 1];
    (void)snprintf(name, sizeof name, "%.*s", (int)length, module);
    oz_buf_puts(list->b, list->any ? ",\n      " : "\n      ");
    oz_buf_json(list->b, name);
    list->any = true;
}

void oz_bnb_config(struct oz_buf *out, const struct oz_assignment *a, const struct oz_ckpt *ckpt,
                   bool any_prefix)
{
    const struct kind *k = kinds;
    struct name_list list = {.b = out};
    for (int32_t i = 0; i < a->table->count; i++) {
        if (oz_dialect_is_written(a, i)) {
            k = kind_of(a->choices[i].scheme.name);
            break;
        }
    }
    oz_buf_printf(out,
                  "{\n    \"_load_in_4bit\": true,\n    \"_load_in_8bit\": false,\n"
                  "    \"bnb_4bit_compute_dtype\": \"bfloat16\",\n"
                  "    \"bnb_4bit_quant_storage\": \"uint8\",\n"
                  "    \"bnb_4bit_quant_type\": \"%s\",\n"
                  "    \"bnb_4bit_use_double_quant\": %s,\n"
                  "    \"llm_int8_enable_fp32_cpu_offload\": false,\n"
                  "    \"llm_int8_has_fp16_weight\": false,\n"
                  "    \"llm_int8_skip_modules\": [",
                  k->type, k->nested ? "true" : "false");
    oz_dialect_each_plain(a, ckpt, any_prefix, put_skipped, &list);
    oz_buf_puts(out, list.any ? "\n    ],\n" : "],\n");
    oz_buf_puts(out, "    \"llm_int8_threshold\": 6.0,\n    \"load_in_4bit\": true,\n"
                     "    \"load_in_8bit\": false,\n    \"quant_method\": \"bitsandbytes\"\n  }");
}

/* ---- reading ---- */

struct reader {
    const char *path;
    const struct oz_ckpt *ckpt;
    struct oz_error *err;
    bool eight, four; /* bits that the config says */
};

/* The config and the tensors of a layer speak of other bits. */
static enum oz_status fail_bits(const struct reader *r, const struct oz_tensor_view *t, int has,
                                int says)
{
    return OZ_FAIL(
        r->err, OZ_ERR_FORMAT,
        "%s says that the weights have %d bits, but tensor %s belongs to one of %d bits.", r->path,
        says, t->name, has);
}

/* What the text of a weight says. */
struct state {
    const struct kind *kind;
    float offset;
};

static enum oz_status fail_state(const struct reader *r, const struct oz_tensor_view *t,
                                 const char *what)
{
    return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                   "Tensor %s: %s; this version reads bitsandbytes' nf4 and fp4 in blocks of %d, "
                   "nested in blocks of %d.",
                   t->name, what, BLOCK, NESTED);
}

static enum oz_status parse_state(struct state *s, const struct oz_json *v,
                                  const struct oz_tensor_view *t, const struct oz_layer *layer,
                                  const struct reader *r)
{
    const char *type;
    const char *nested_dtype;
    int64_t block;
    int64_t nested_block;
    double offset;
    bool nested = oz_json_get(v, "nested_offset") != NULL;
    const struct oz_json *shape = oz_json_get(v, "shape");
    OZ_TRY(oz_json_get_string(v, "quant_type", "", &type, t->name, r->err));
    OZ_TRY(oz_json_get_integer(v, "blocksize", BLOCK, 1, INT32_MAX, &block, t->name, r->err));
    OZ_TRY(oz_json_get_integer(v, "nested_blocksize", NESTED, 1, INT32_MAX, &nested_block, t->name,
                               r->err));
    OZ_TRY(oz_json_get_string(v, "nested_dtype", "float32", &nested_dtype, t->name, r->err));
    OZ_TRY(oz_json_get_number(v, "nested_offset", 0, &offset, t->name, r->err));
    s->offset = (float)offset;
    s->kind = NULL;
    for (size_t i = 0; i < KINDS; i++) {
        s->kind =
            strcmp(kinds[i].type, type) == 0 && kinds[i].nested == nested ? &kinds[i] : s->kind;
    }
    if (s->kind == NULL || block != BLOCK || (nested && nested_block != NESTED) ||
        strcmp(nested_dtype, "float32") != 0 || !isfinite(s->offset)) {
        return fail_state(r, t, "its type, blocks or offset are others");
    }
    if (oz_json_count(shape) != 2 || oz_json_integer(oz_json_at(shape, 0), -1) != layer->shape[0] ||
        oz_json_integer(oz_json_at(shape, 1), -1) != layer->shape[1]) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "Tensor %s has another shape than %s, [%" PRId64 ", %" PRId64 "].", t->name,
                       layer->module, layer->shape[0], layer->shape[1]);
    }
    return OZ_OK;
}

static enum oz_status read_state(struct state *s, const struct oz_tensor_view *t,
                                 const struct oz_layer *layer, const struct reader *r)
{
    char text[MAX_STATE_BYTES];
    struct oz_json *v;
    if (t->dtype != OZ_DTYPE_U8 || t->bytes > MAX_STATE_BYTES) {
        return fail_state(r, t, "it is no text of a few bytes");
    }
    OZ_TRY(oz_ckpt_read(r->ckpt, t, 0, t->bytes, text, r->err));
    OZ_TRY(oz_json_parse(&v, text, (size_t)t->bytes, t->name, r->err));
    enum oz_status status = parse_state(s, v, t, layer, r);
    oz_json_free(v);
    return status;
}

static void spend(struct oz_stored_weight *w, int64_t index)
{
    w->spent[w->spent_count++] = index;
}

/* A table must be bitsandbytes' own: it is what the codec has. */
static enum oz_status check_table(struct oz_stored_weight *w, const struct oz_layer *layer,
                                  const char *suffix, const struct oz_codebook *book,
                                  const struct reader *r)
{
    float values[NESTED];
    int64_t index;
    const struct oz_tensor_view *t = oz_stored_find(r->ckpt, layer, suffix, &index);
    if (t == NULL || t->dtype != OZ_DTYPE_F32 || t->elements != book->count) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: the tensor %s.%s is missing, or is no table of %d F32.", r->path,
                       layer->module, suffix, (int)book->count);
    }
    OZ_TRY(oz_ckpt_read(r->ckpt, t, 0, t->bytes, values, r->err));
    for (int32_t i = 0; i < book->count; i++) {
        if (!(values[i] == book->values[i])) {
            return fail_state(r, t, "its values are not bitsandbytes' own");
        }
    }
    spend(w, index);
    return OZ_OK;
}

/* LLM.int8: "weight" I8, "SCB" F32 with the largest magnitude of each row, which is 127 times its scale. */
static enum oz_status read_int8(struct oz_stored *out, int32_t row, const struct oz_layer *layer,
                                const struct reader *r)
{
    struct oz_stored_weight *w = &out->weights[row];
    int64_t index;
    const struct oz_tensor_view *t = oz_stored_find(r->ckpt, layer, "weight", NULL);
    const struct oz_tensor_view *format = oz_stored_find(r->ckpt, layer, "weight_format", &index);
    bool scales = oz_stored_find(r->ckpt, layer, "SCB", NULL) != NULL;
    if (!scales && (t == NULL || t->dtype != OZ_DTYPE_I8)) {
        return OZ_OK;
    }
    if (r->four && t != NULL) {
        return fail_bits(r, t, 8, 4);
    }
    if (format != NULL) {
        uint8_t kind = 0;
        if (format->dtype != OZ_DTYPE_U8 || format->elements != 1) {
            return fail_state(r, format, "it is no number of one byte");
        }
        OZ_TRY(oz_ckpt_read(r->ckpt, format, 0, 1, &kind, r->err));
        if (kind != 0) {
            return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                           "Tensor %s is %d: the weight is in the order of a processor's tiles; "
                           "this version reads the order by rows (0).",
                           format->name, (int)kind);
        }
        spend(w, index);
    }
    struct oz_dialect_tensor want[2];
    int32_t count = 0;
    add(want, &count, OZ_PLANE_CODES, "weight", OZ_DTYPE_I8, layer->shape[0])->rank = 2;
    want[0].shape[1] = layer->shape[1];
    add(want, &count, OZ_PLANE_SCALES, "SCB", OZ_DTYPE_F32, layer->shape[0])->move = OZ_MOVE_TIMES;
    w->number = BY_127;
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &want[i], r->err));
    }
    out->count++;
    return oz_stored_scheme(&out->schemes[row], "int8", OZ_ACT_INT8_TOKEN, r->err);
}

static enum oz_status read_row(struct oz_stored *out, int32_t row, const struct oz_layer *layer,
                               const struct reader *r)
{
    struct oz_dialect_tensor want[OZ_DIALECT_TENSORS];
    struct oz_stored_weight *w = &out->weights[row];
    struct state s;
    int32_t count = 0;
    int64_t index = -1;
    const struct oz_tensor_view *t = NULL;
    for (size_t i = 0; i < 2 && t == NULL; i++) {
        t = oz_stored_find(r->ckpt, layer, state_suffixes[i], &index);
    }
    if (t == NULL || !oz_stored_is_matrix(layer)) { /* plain; llm_int8_skip_modules says the same */
        return oz_stored_is_matrix(layer) ? read_int8(out, row, layer, r) : OZ_OK;
    }
    if (r->eight) {
        return fail_bits(r, t, 4, 8);
    }
    OZ_TRY(read_state(&s, t, layer, r));
    if (layer->shape[1] % 2 != 0) {
        return fail_state(r, t, "its rows do not end with a byte");
    }
    lay_out_planes(want, &count, s.kind, layer->shape[0], layer->shape[1]);
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &want[i], r->err));
    }
    OZ_TRY(check_table(w, layer, "weight.quant_map", s.kind->book, r));
    if (s.kind->nested) {
        OZ_TRY(check_table(w, layer, "weight.nested_quant_map", &oz_codebook_dynamic8, r));
        w->planes[OZ_PLANE_OFFSETS].tensor = t;
        w->planes[OZ_PLANE_OFFSETS].index = index;
        w->planes[OZ_PLANE_OFFSETS].move = OZ_MOVE_NUMBER;
        w->number = s.offset;
    } else {
        spend(w, index);
    }
    out->count++;
    return oz_stored_scheme(&out->schemes[row], s.kind->scheme, OZ_ACT_NONE, r->err);
}

enum oz_status oz_bnb_read(const struct oz_dialect_reader *from)
{
    const char *storage = oz_json_string(oz_json_get(from->q, "bnb_4bit_quant_storage"), "uint8");
    const struct reader r = {.path = from->path,
                             .ckpt = from->ckpt,
                             .err = from->err,
                             .eight = oz_json_bool(oz_json_get(from->q, "load_in_8bit"), false),
                             .four = oz_json_bool(oz_json_get(from->q, "load_in_4bit"), false)};
    if (r.eight && r.four) {
        return OZ_FAIL(from->err, OZ_ERR_FORMAT,
                       "%s says both \"load_in_8bit\" and \"load_in_4bit\".", from->path);
    }
    if (!r.eight && strcmp(storage, "uint8") != 0) {
        return OZ_FAIL(from->err, OZ_ERR_UNSUPPORTED,
                       "%s: of bitsandbytes this version reads 4 bits that are stored as uint8, "
                       "not as %.40s.",
                       from->path, storage);
    }
    for (int32_t i = 0; i < from->table->count; i++) {
        OZ_TRY(read_row(from->out, i, &from->table->rows[i], &r));
    }
    return OZ_OK;
}
