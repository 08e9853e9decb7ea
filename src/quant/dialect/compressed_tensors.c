/*
 * compressed_tensors.c: checkpoints of compressed-tensors (llm-compressor writes them, vLLM and
 * transformers read them). Formats: float-quantized, int-quantized, naive-quantized, mxfp8-quantized,
 * mxfp4-pack-quantized, nvfp4-pack-quantized, and several of them as mixed-precision; pack-quantized of
 * 4-bit integers is read only.
 *
 * A group of the config says how the weights and activations of its targets are coded (struct kind is
 * what we know of the weights); the tensors are named behind their module: codes as "weight" or, packed
 * two in a byte with the first one low, as "weight_packed" U8; scales as "weight_scale".
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/regex.h"
#include "quant/dialect/form.h"

/* How a group's weights are coded, and what that is to us. */
struct kind {
    const char *scheme;
    const char *format;       /* of activations that are quantized too; and without: */
    const char *plain_format; /* (the makers' own reader takes either) */
    const char *type, *strategy;
    int32_t bits, group; /* group 0: by none */
    bool blocks;         /* of 128 x 128 */
    const char *scale_dtype;
    const char *codes; /* "weight" or "weight_packed" */
    enum oz_dtype code_dtype, scale_file_dtype;
};

#define FLOAT "float-quantized"
#define NAIVE "naive-quantized"
static const struct kind kinds[] = {
    {"fp8_per_tensor", FLOAT, NAIVE, "float", "tensor", 8, 0, false, NULL, "weight",
     OZ_DTYPE_F8_E4M3, OZ_DTYPE_F32},
    {"fp8_per_channel", FLOAT, NAIVE, "float", "channel", 8, 0, false, NULL, "weight",
     OZ_DTYPE_F8_E4M3, OZ_DTYPE_F32},
    {"fp8_per_block", FLOAT, NAIVE, "float", "block", 8, 0, true, NULL, "weight", OZ_DTYPE_F8_E4M3,
     OZ_DTYPE_F32},
    {"int8", "int-quantized", NAIVE, "int", "channel", 8, 0, false, NULL, "weight", OZ_DTYPE_I8,
     OZ_DTYPE_F32},
    {"mxfp8", "mxfp8-quantized", NULL, "float", "group", 8, 32, false, "torch.uint8", "weight",
     OZ_DTYPE_F8_E4M3, OZ_DTYPE_U8},
    {"mxfp4", "mxfp4-pack-quantized", NULL, "float", "group", 4, 32, false, "torch.uint8",
     "weight_packed", OZ_DTYPE_U8, OZ_DTYPE_U8},
    {"nvfp4", "nvfp4-pack-quantized", NULL, "float", "tensor_group", 4, 16, false,
     "torch.float8_e4m3fn", "weight_packed", OZ_DTYPE_U8, OZ_DTYPE_F8_E4M3},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Activations as a group's input_activations have them; all dynamic and symmetric. */
static const struct act {
    enum oz_act_mode mode;
    const char *type, *strategy;
    int32_t bits, group;
    const char *scale_dtype;
} acts[] = {
    {OZ_ACT_FP8_TOKEN, "float", "token", 8, 0, NULL},
    {OZ_ACT_FP8_GROUP, "float", "group", 8, 128, NULL},
    {OZ_ACT_INT8_TOKEN, "int", "token", 8, 0, NULL},
    {OZ_ACT_MXFP8, "float", "group", 8, 32, "torch.uint8"},
    {OZ_ACT_MXFP4, "float", "group", 4, 32, "torch.uint8"},
};
enum { ACTS = sizeof acts / sizeof *acts };

static const struct kind *kind_of_scheme(const char *scheme)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].scheme, scheme) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

static const struct act *act_of_mode(enum oz_act_mode mode)
{
    for (size_t i = 0; i < ACTS; i++) {
        if (acts[i].mode == mode) {
            return &acts[i];
        }
    }
    return NULL;
}

static const char *format_of(const struct kind *k, enum oz_act_mode mode)
{
    return mode == OZ_ACT_NONE && k->plain_format != NULL ? k->plain_format : k->format;
}

/* ---- tensors ---- */

static int64_t cells(int64_t extent, int64_t cell)
{
    return (extent + cell - 1) / cell;
}

static int32_t lay_out(const struct kind *k, int64_t rows, int64_t cols,
                       struct oz_dialect_tensor out[OZ_DIALECT_TENSORS])
{
    out[0] = (struct oz_dialect_tensor){.plane = OZ_PLANE_CODES,
                                        .suffix = k->codes,
                                        .dtype = k->code_dtype,
                                        .rank = 2,
                                        .shape = {rows, cols * k->bits / 8}};
    out[1] = (struct oz_dialect_tensor){.plane = OZ_PLANE_SCALES,
                                        .suffix = "weight_scale",
                                        .dtype = k->scale_file_dtype,
                                        .rank = 2,
                                        .shape = {rows, 1}};
    if (k->group > 0) {
        out[1].shape[1] = cells(cols, k->group);
    } else if (k->blocks) {
        out[1].shape[0] = cells(rows, 128);
        out[1].shape[1] = cells(cols, 128);
    } else if (strcmp(k->strategy, "tensor") == 0) {
        out[1].rank = 1;
        out[1].shape[0] = 1;
    }
    if (strcmp(k->strategy, "tensor_group") != 0) {
        return 2;
    }
    out[2] = (struct oz_dialect_tensor){.plane = OZ_PLANE_SCALES2,
                                        .suffix = "weight_global_scale",
                                        .dtype = OZ_DTYPE_F32,
                                        .rank = 1,
                                        .shape = {1},
                                        .move = OZ_MOVE_RECIPROCAL};
    return 3;
}

enum oz_status oz_ct_layout(struct oz_dialect_tensor out[OZ_DIALECT_TENSORS], int32_t *count,
                            const struct oz_scheme *scheme, const struct oz_layer *layer,
                            struct oz_error *err)
{
    const struct kind *k = kind_of_scheme(scheme->name);
    const char *ending = strrchr(layer->name, '.');
    int64_t cols = layer->shape[1];
    *count = 0;
    if (k == NULL || layer->kind != OZ_LAYER_LINEAR || layer->rank != 2) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: no format holds %s%s. Linear layers can be written as " OZ_DIALECT_WRITES
            "; %s can be made while loading only.",
            layer->module, scheme->name, k != NULL ? " of such a layer" : "", scheme->name);
    }
    if (ending == NULL || strcmp(ending, ".weight") != 0 || layer->transform != 0 ||
        layer->file_rows != 0 || layer->file_row != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: its tensor is not the layer's matrix as it stands, and cannot be "
                       "written quantized; add it to ignored_layers.",
                       layer->name);
    }
    if (scheme->mode_count != 1 ||
        (scheme->acts[0] == OZ_ACT_MXFP4 && scheme->act_exponent_rule != OZ_EXPONENT_DEFAULT)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: compressed-tensors does not hold %s; leave it out when writing.",
                       layer->module,
                       scheme->mode_count != 1 ? "activations that change by the step "
                                                 "(w4a8_fallback_steps)"
                                               : "a rule for the exponents of activations "
                                                 "(mxfp4_scale_alg)");
    }
    if (scheme->acts[0] != OZ_ACT_NONE && act_of_mode(scheme->acts[0]) == NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: compressed-tensors does not hold %s activations without a static "
                       "scale; ask for others, or for none (\"activation\": null).",
                       layer->module, oz_act_mode_name(scheme->acts[0]));
    }
    if (k->group > 0 && cols % k->group != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s has %" PRId64 " input features; compressed-tensors holds %s in "
                       "multiples of %d only. Add the layer to ignored_layers, or choose another "
                       "method for it.",
                       layer->module, cols, scheme->name, (int)k->group);
    }
    *count = lay_out(k, layer->shape[0], cols, out);
    return OZ_OK;
}

/* ---- the config that is written ---- */

static void put_args(struct oz_buf *b, const char *key, const char *type, const char *strategy,
                     int32_t bits, int32_t group, bool blocks, const char *scale_dtype,
                     bool dynamic)
{
    oz_buf_printf(b, "        \"%s\": {\n", key);
    oz_buf_printf(b, "          \"block_structure\": %s,\n", blocks ? "[128, 128]" : "null");
    oz_buf_printf(b, "          \"dynamic\": %s,\n", dynamic ? "true" : "false");
    if (group > 0) {
        oz_buf_printf(b, "          \"group_size\": %d,\n", (int)group);
    } else {
        oz_buf_puts(b, "          \"group_size\": null,\n");
    }
    oz_buf_printf(b, "          \"num_bits\": %d,\n", (int)bits);
    if (scale_dtype != NULL) {
        oz_buf_printf(b, "          \"scale_dtype\": \"%s\",\n", scale_dtype);
    }
    oz_buf_printf(b, "          \"strategy\": \"%s\",\n", strategy);
    oz_buf_puts(b, "          \"symmetric\": true,\n");
    oz_buf_printf(b, "          \"type\": \"%s\"%s\n", type, scale_dtype != NULL ? "," : "");
    if (scale_dtype != NULL) {
        oz_buf_printf(b, "          \"zp_dtype\": \"%s\"\n", scale_dtype);
    }
    oz_buf_puts(b, "        }");
}

/* A module's name, or an expression for it behind any prefix: "re:(.*\\.)?layers\\.0\\.mlp$". */
static void put_name(struct oz_buf *b, const char *module, bool any_prefix)
{
    struct oz_buf text;
    if (!any_prefix) {
        oz_buf_json(b, module);
        return;
    }
    module = oz_dialect_bare_module(module);
    oz_buf_init(&text, 4 * (size_t)OZ_CKPT_MAX_NAME_BYTES);
    oz_buf_puts(&text, "re:(.*\\.)?");
    for (; *module != '\0'; module++) {
        bool word = strchr("_", *module) != NULL || (*module >= '0' && *module <= '9') ||
                    (*module >= 'a' && *module <= 'z') || (*module >= 'A' && *module <= 'Z') ||
                    (unsigned char)*module >= 0x80;
        oz_buf_puts(&text, word ? "" : "\\");
        oz_buf_append(&text, module, 1);
    }
    oz_buf_puts(&text, "$");
    oz_buf_json(b, oz_buf_text(&text));
    b->status = b->status == OZ_OK ? text.status : b->status;
    oz_buf_deinit(&text);
}

/* Rows of one weight and activations: their first. */
static int32_t first_alike(const struct oz_assignment *a, int32_t row)
{
    for (int32_t i = 0; i < row; i++) {
        const struct oz_scheme *s = &a->choices[i].scheme;
        const struct oz_scheme *t = &a->choices[row].scheme;
        if (oz_dialect_is_written(a, i) && s->codec == t->codec && s->acts[0] == t->acts[0]) {
            return i;
        }
    }
    return row;
}

static void put_group(struct oz_buf *b, const struct oz_assignment *a, int32_t first,
                      int32_t number, bool alone, bool any_prefix)
{
    const struct oz_scheme *s = &a->choices[first].scheme;
    const struct kind *k = kind_of_scheme(s->name);
    const struct act *x = act_of_mode(s->acts[0]);
    oz_buf_printf(b, "%s      \"group_%d\": {\n        \"format\": \"%s\",\n",
                  number > 0 ? ",\n" : "", (int)number, format_of(k, s->acts[0]));
    if (x != NULL) {
        put_args(b, "input_activations", x->type, x->strategy, x->bits, x->group, false,
                 x->scale_dtype, true);
        oz_buf_puts(b, ",\n");
    } else {
        oz_buf_puts(b, "        \"input_activations\": null,\n");
    }
    oz_buf_puts(b, "        \"output_activations\": null,\n        \"targets\": [");
    if (alone) {
        oz_buf_puts(b, "\"Linear\"");
    }
    for (int32_t i = first; i < a->table->count && !alone; i++) {
        if (oz_dialect_is_written(a, i) && first_alike(a, i) == first) {
            oz_buf_puts(b, i > first ? ",\n          " : "\n          ");
            put_name(b, a->table->rows[i].module, any_prefix);
        }
    }
    oz_buf_puts(b, alone ? "],\n" : "\n        ],\n");
    put_args(b, "weights", k->type, k->strategy, k->bits, k->group, k->blocks, k->scale_dtype,
             false);
    oz_buf_puts(b, "\n      }");
}

/* A list of names that grows. */
struct name_list {
    struct oz_buf *b;
    bool any, any_prefix;
};

static void put_ignored(void *ctx, const char *module, size_t length)
{
    struct name_list *list = ctx;
    char name[OZ_CKPT_MAX_NAME_BYTES + 1];
    (void)snprintf(name, sizeof name, "%.*s", (int)length, module);
    oz_buf_puts(list->b, list->any ? ",\n      " : "\n      ");
    put_name(list->b, name, list->any_prefix);
    list->any = true;
}

void oz_ct_config(struct oz_buf *out, const struct oz_assignment *a, const struct oz_ckpt *ckpt,
                  bool any_prefix)
{
    int32_t groups = 0;
    const char *format = NULL;
    for (int32_t i = 0; i < a->table->count; i++) {
        if (oz_dialect_is_written(a, i) && first_alike(a, i) == i) {
            const struct oz_scheme *s = &a->choices[i].scheme;
            const char *own = format_of(kind_of_scheme(s->name), s->acts[0]);
            format = groups == 0 || strcmp(format, own) == 0 ? own : "mixed-precision";
            groups++;
        }
    }
    oz_buf_puts(out, "{\n    \"config_groups\": {\n");
    int32_t number = 0;
    for (int32_t i = 0; i < a->table->count; i++) {
        if (oz_dialect_is_written(a, i) && first_alike(a, i) == i) {
            put_group(out, a, i, number++, groups == 1, any_prefix);
        }
    }
    oz_buf_printf(out, "\n    },\n    \"format\": \"%s\",\n", format != NULL ? format : "dense");
    oz_buf_puts(out, "    \"global_compression_ratio\": null,\n    \"ignore\": [");
    struct name_list ignore = {.b = out, .any_prefix = any_prefix};
    oz_dialect_each_plain(a, ckpt, any_prefix, put_ignored, &ignore);
    oz_buf_puts(out, ignore.any ? "\n    ]" : "]");
    oz_buf_puts(out, ",\n    \"kv_cache_scheme\": null,\n"
                     "    \"quant_method\": \"compressed-tensors\",\n"
                     "    \"quantization_status\": \"compressed\"\n  }");
}

/* ---- reading ---- */

struct pattern {
    const char *text;
    struct oz_regex *regex; /* of "re:..." */
};

struct patterns {
    struct pattern *items; /* [count] */
    size_t count;
};

struct group {
    const struct kind *kind; /* NULL: integers in groups (read only) */
    int32_t int_bits;        /* of integers: 4 or 8 */
    int64_t int_group;       /* columns; 0: a row */
    bool int_zeros;          /* with zero points */
    bool int_order;          /* groups in an order of their own */
    bool static_acts;
    enum oz_act_mode mode;
    struct patterns targets;
};

struct reader {
    const char *path;
    const struct oz_ckpt *ckpt;
    const struct oz_dialect_reader *from;
    struct group *groups; /* [group_count] */
    size_t group_count;
    struct patterns ignore;
    struct oz_error *err;
};

static void patterns_deinit(struct patterns *p)
{
    for (size_t i = 0; i < p->count && p->items != NULL; i++) {
        oz_regex_free(p->items[i].regex);
    }
    oz_free(p->items);
}

static enum oz_status patterns_read(struct patterns *p, const struct oz_json *list,
                                    const struct reader *r, const char *key)
{
    if (oz_json_type(list) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    if (oz_json_type(list) != OZ_JSON_ARRAY) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s: \"%s\" must be a list, not %s.", r->path, key,
                       oz_json_type_name(list));
    }
    p->count = oz_json_count(list);
    p->items = oz_alloc_zero(p->count, sizeof *p->items);
    if (p->items == NULL) {
        return OZ_FAIL_NOMEM(r->err, r->path);
    }
    for (size_t i = 0; i < p->count; i++) {
        p->items[i].text = oz_json_string(oz_json_at(list, i), NULL);
        if (p->items[i].text == NULL) {
            return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s: entry %zu of \"%s\" is %s, not a name.",
                           r->path, i, key, oz_json_type_name(oz_json_at(list, i)));
        }
        if (strncmp(p->items[i].text, "re:", 3) == 0) {
            OZ_TRY(oz_regex_compile(&p->items[i].regex, p->items[i].text + 3, r->err));
        }
    }
    return OZ_OK;
}

/* Exact name, expression from the start, or (class_too) the class of linear layers. */
static enum oz_status matches(const struct patterns *p, const char *module, bool class_too,
                              bool *found, struct oz_error *err)
{
    *found = false;
    for (size_t i = 0; i < p->count && !*found; i++) {
        size_t begin;
        size_t end;
        if (p->items[i].regex != NULL) {
            OZ_TRY(oz_regex_match(p->items[i].regex, module, strlen(module), 0, true, found, &begin,
                                  &end, err));
        } else {
            *found = (class_too && strcmp(p->items[i].text, "Linear") == 0) ||
                     strcmp(p->items[i].text, module) == 0;
        }
    }
    return OZ_OK;
}

/* What a group's weights or activations say of themselves. */
struct args {
    int64_t bits, group;
    const char *type, *strategy;
    bool symmetric, dynamic, local, blocks, order;
};

static enum oz_status args_read(struct args *a, const struct oz_json *v, const struct reader *r)
{
    const struct oz_json *block = oz_json_get(v, "block_structure");
    const char *none;
    OZ_TRY(oz_json_get_integer(v, "num_bits", 8, 1, 64, &a->bits, r->path, r->err));
    OZ_TRY(oz_json_get_integer(v, "group_size", 0, -1, INT32_MAX, &a->group, r->path, r->err));
    OZ_TRY(oz_json_get_string(v, "type", "int", &a->type, r->path, r->err));
    OZ_TRY(oz_json_get_bool(v, "symmetric", true, &a->symmetric, r->path, r->err));
    none = a->group > 0 ? "group" : a->group < 0 ? "channel" : "tensor";
    OZ_TRY(oz_json_get_string(v, "strategy", none, &a->strategy, r->path, r->err));
    const struct oz_json *order = oz_json_get(v, "actorder");
    const char *kind_of_order = oz_json_string(order, "");
    a->order = oz_json_bool(order, false) || strcmp(kind_of_order, "group") == 0 ||
               strcmp(kind_of_order, "dynamic") == 0;
    a->local = strcmp(oz_json_string(oz_json_get(v, "dynamic"), ""), "local") == 0;
    a->dynamic = a->local || oz_json_bool(oz_json_get(v, "dynamic"), false);
    a->blocks = strcmp(oz_json_string(block, ""), "128x128") == 0 ||
                (oz_json_integer(oz_json_at(block, 0), 0) == 128 &&
                 oz_json_integer(oz_json_at(block, 1), 0) == 128);
    a->group = a->group > 0 ? a->group : 0;
    return OZ_OK;
}

static enum oz_status fail_args(const struct reader *r, const char *what, const struct args *a)
{
    return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                   "%s: %s of %" PRId64 " bits (%s, strategy \"%s\", group size %" PRId64
                   "%s%s) are not read by this version. It reads fp8 by tensor, channel or "
                   "128x128, int8 and int4 by channel or group, mxfp8, mxfp4 and nvfp4, "
                   "with activations that are plain or dynamic, or static for fp8.",
                   r->path, what, a->bits, a->type, a->strategy, a->group,
                   a->symmetric ? "" : ", asymmetric", a->dynamic ? ", dynamic" : ", static");
}

static enum oz_status group_weights(struct group *g, const struct oz_json *v,
                                    const struct reader *r)
{
    struct args a;
    if (oz_json_type(v) != OZ_JSON_OBJECT) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: a group of \"config_groups\" has no \"weights\".", r->path);
    }
    OZ_TRY(args_read(&a, v, r));
    bool group = strcmp(a.strategy, "group") == 0 && a.group > 0;
    bool integers = (a.bits == 4 || a.bits == 8) && strcmp(a.type, "int") == 0 && !a.dynamic &&
                    (group || strcmp(a.strategy, "channel") == 0);
    if (integers) {
        g->int_bits = (int32_t)a.bits;
        g->int_group = group ? a.group : 0;
        g->int_zeros = !a.symmetric;
        g->int_order = a.order;
    }
    for (size_t i = 0; i < KINDS; i++) {
        const struct kind *k = &kinds[i];
        if (k->bits == a.bits && strcmp(k->type, a.type) == 0 &&
            strcmp(k->strategy, a.strategy) == 0 && k->group == a.group && a.symmetric &&
            !a.dynamic && (!k->blocks || a.blocks)) {
            g->kind = k;
            return OZ_OK;
        }
    }
    return integers ? OZ_OK : fail_args(r, "weights", &a);
}

/* FP8 under one static scale: kept, and used on request. */
static bool takes_static(const struct group *g, const struct args *a)
{
    return !a->dynamic && a->bits == 8 && strcmp(a->type, "float") == 0 && a->symmetric &&
           strcmp(a->strategy, "tensor") == 0 &&
           (strcmp(g->kind->scheme, "fp8_per_tensor") == 0 ||
            strcmp(g->kind->scheme, "fp8_per_channel") == 0);
}

static enum oz_status group_acts(struct group *g, const struct oz_json *v, const struct reader *r)
{
    struct args a;
    g->mode = OZ_ACT_NONE;
    if (oz_json_type(v) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    OZ_TRY(args_read(&a, v, r));
    if (g->kind == NULL) { /* integers in groups: activations stay plain */
        return a.dynamic ? OZ_OK : fail_args(r, "activations", &a);
    }
    /* NVFP4's are "local": blocks are scaled on the way under one static factor, which is not applied. */
    if (a.local && strcmp(g->kind->scheme, "nvfp4") == 0) {
        return OZ_OK;
    }
    if (takes_static(g, &a)) {
        g->static_acts = true;
        g->mode = OZ_ACT_FP8_TOKEN;
        return OZ_OK;
    }
    for (size_t i = 0; i < ACTS; i++) {
        /* A scale of the whole tensor would tie a request to its neighbours: each row has its own. */
        bool rows = strcmp(acts[i].strategy, "token") == 0 && strcmp(a.strategy, "tensor") == 0;
        if (acts[i].bits == a.bits && strcmp(acts[i].type, a.type) == 0 &&
            (rows || strcmp(acts[i].strategy, a.strategy) == 0) && acts[i].group == a.group &&
            a.symmetric && a.dynamic && !a.local) {
            g->mode = acts[i].mode;
            break;
        }
    }
    uint32_t allowed = oz_scheme_allowed_acts(g->kind->scheme);
    return g->mode != OZ_ACT_NONE && (allowed & OZ_ACT_BIT(g->mode)) != 0
               ? OZ_OK
               : fail_args(r, "activations", &a);
}

static enum oz_status read_groups(struct reader *r, const struct oz_json *q)
{
    const struct oz_json *groups = oz_json_get(q, "config_groups");
    if (oz_json_type(groups) != OZ_JSON_OBJECT || oz_json_count(groups) == 0) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: \"quantization_config\" has no \"config_groups\".", r->path);
    }
    r->groups = oz_alloc_zero(oz_json_count(groups), sizeof *r->groups);
    if (r->groups == NULL) {
        return OZ_FAIL_NOMEM(r->err, r->path);
    }
    for (void *it = oz_json_first(groups); it != NULL; it = oz_json_next(groups, it)) {
        const struct oz_json *v = oz_json_value(it);
        struct group *g = &r->groups[r->group_count++];
        OZ_TRY(group_weights(g, oz_json_get(v, "weights"), r));
        OZ_TRY(group_acts(g, oz_json_get(v, "input_activations"), r));
        OZ_TRY(patterns_read(&g->targets, oz_json_get(v, "targets"), r, "targets"));
    }
    return patterns_read(&r->ignore, oz_json_get(q, "ignore"), r, "ignore");
}

/* The group of a module; exact names and expressions come before the class. */
static enum oz_status find_group(const struct reader *r, const char *module,
                                 const struct group **out)
{
    *out = NULL;
    bool found;
    OZ_TRY(matches(&r->ignore, module, true, &found, r->err));
    for (size_t i = 0; i < 2 * r->group_count && !found && *out == NULL; i++) {
        bool hit;
        const struct group *g = &r->groups[i % r->group_count];
        OZ_TRY(matches(&g->targets, module, i >= r->group_count, &hit, r->err));
        *out = hit ? g : NULL;
    }
    if (*out == NULL) {
        return OZ_FAIL(
            r->err, OZ_ERR_FORMAT,
            "%s: the file holds %s quantized (it has a weight_scale), but the config %s.", r->path,
            module, found ? "ignores it" : "has no group that targets it");
    }
    return OZ_OK;
}

/* Zero points are packed along the rows, eight or four of them in a word. */
static int64_t at_zeros4(int64_t row, int64_t group, int64_t rows, int64_t groups)
{
    (void)rows;
    return (row / 8 * groups + group) * 8 + row % 8;
}

static int64_t at_zeros8(int64_t row, int64_t group, int64_t rows, int64_t groups)
{
    (void)rows;
    return (row / 4 * groups + group) * 4 + row % 4;
}

static enum oz_status take_zeros(const struct reader *r, int32_t row, const struct group *g,
                                 int64_t groups, bool packed)
{
    const struct oz_layer *layer = &r->from->table->rows[row];
    int64_t per_word = 32 / g->int_bits;
    struct oz_dialect_tensor zeros = {.plane = OZ_PLANE_ZEROS,
                                      .suffix = "weight_zero_point",
                                      .dtype = OZ_DTYPE_I8,
                                      .rank = 2,
                                      .shape = {layer->shape[0], groups},
                                      .move = OZ_MOVE_SIGNED};
    if (packed) {
        zeros.dtype = OZ_DTYPE_I32;
        zeros.shape[0] = (layer->shape[0] + per_word - 1) / per_word;
        zeros.at = g->int_bits == 4 ? at_zeros4 : at_zeros8;
        zeros.move = OZ_MOVE_BYTES;
    }
    return oz_stored_take(&r->from->out->weights[row], r->ckpt, r->path, layer, &zeros, r->err);
}

/* The group of each column, where groups have an order of their own. */
static enum oz_status take_order(const struct reader *r, int32_t row, const struct group *g)
{
    const struct oz_layer *layer = &r->from->table->rows[row];
    const struct oz_dialect_tensor order = {.plane = OZ_PLANE_PERM,
                                            .suffix = "weight_g_idx",
                                            .dtype = OZ_DTYPE_I32,
                                            .rank = 1,
                                            .shape = {layer->shape[1]}};
    return g->int_order || oz_form_find(r->from, row, order.suffix) != NULL
               ? oz_stored_take(&r->from->out->weights[row], r->ckpt, r->path, layer, &order,
                                r->err)
               : OZ_OK;
}

/* Integers in groups, or with zero points: in words, the zero in the middle, or (8 bits) one by one in
 * two's complement. */
static enum oz_status read_integers(const struct reader *r, int32_t row, const struct group *g)
{
    const struct oz_layer *layer = &r->from->table->rows[row];
    int64_t cols = layer->shape[1];
    int64_t group = g->int_group > 0 ? g->int_group : cols;
    bool packed = oz_form_find(r->from, row, "weight_packed") != NULL || g->int_bits == 4;
    int64_t per_word = 32 / g->int_bits;
    struct oz_form_int4 f = {.codes = "weight_packed",
                             .scales = "weight_scale",
                             .code_dtype = OZ_DTYPE_I32,
                             .code_shape = {layer->shape[0], cols / per_word},
                             .group = group,
                             .bytes = g->int_bits == 8};
    if (!packed) {
        f.codes = "weight";
        f.code_dtype = OZ_DTYPE_I8;
        f.code_shape[1] = cols;
        f.code_move = OZ_MOVE_SIGNED;
    } else if (cols % per_word != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: %s has rows that do not end with a word, which this version does not "
                       "read.",
                       r->path, layer->module);
    }
    OZ_TRY(oz_form_take_int4(r->from, row, &f));
    (void)oz_form_spend(r->from, row, "weight_shape");
    OZ_TRY(take_order(r, row, g));
    return g->int_zeros ? take_zeros(r, row, g, cols / group, packed) : OZ_OK;
}

/* What goes along with activations. */
static enum oz_status read_acts(const struct reader *r, int32_t row, const struct group *g)
{
    bool found;
    (void)oz_form_spend(r->from, row, "input_global_scale");
    OZ_TRY(oz_form_input_scale(r->from, row, "input_scale", &found));
    return found || !g->static_acts
               ? OZ_OK
               : OZ_FAIL(r->err, OZ_ERR_FORMAT,
                         "%s says that the activations of %s have a static scale, but the tensor "
                         "%s.input_scale is missing.",
                         r->path, r->from->table->rows[row].module,
                         r->from->table->rows[row].module);
}

static enum oz_status read_row(const struct reader *r, int32_t row, bool *quantized)
{
    const struct oz_layer *layer = &r->from->table->rows[row];
    struct oz_stored_weight *weight = &r->from->out->weights[row];
    struct oz_dialect_tensor want[OZ_DIALECT_TENSORS];
    const struct group *g;
    *quantized = oz_stored_is_matrix(layer) &&
                 (oz_stored_find(r->ckpt, layer, "weight_scale", NULL) != NULL ||
                  oz_stored_find(r->ckpt, layer, "weight_packed", NULL) != NULL);
    if (!*quantized) {
        return OZ_OK;
    }
    OZ_TRY(find_group(r, layer->module, &g));
    bool words = g->int_bits != 0 && oz_form_find(r->from, row, "weight_packed") != NULL;
    if (g->kind == NULL || words) {
        return read_integers(r, row, g);
    }
    int32_t count = lay_out(g->kind, layer->shape[0], layer->shape[1], want);
    if (g->kind->group > 0 && layer->shape[1] % g->kind->group != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: %" PRId64 " input features are no multiple of the group size %d.",
                       layer->module, layer->shape[1], (int)g->kind->group);
    }
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(oz_stored_take(weight, r->ckpt, r->path, layer, &want[i], r->err));
    }
    OZ_TRY(oz_stored_scheme(&r->from->out->schemes[row], g->kind->scheme, g->mode, r->err));
    r->from->out->count++;
    return read_acts(r, row, g);
}

static enum oz_status read_rows(struct reader *r)
{
    const struct oz_layer_table *table = r->from->table;
    int32_t plain = 0;
    OZ_TRY(read_groups(r, r->from->q));
    for (int32_t i = 0; i < table->count; i++) {
        const struct oz_layer *layer = &table->rows[i];
        bool quantized;
        OZ_TRY(read_row(r, i, &quantized));
        if (!quantized && layer->kind == OZ_LAYER_LINEAR &&
            oz_ckpt_find(r->ckpt, layer->name, NULL) != NULL) {
            bool ignored;
            OZ_TRY(matches(&r->ignore, layer->module, true, &ignored, r->err));
            plain += !ignored;
        }
    }
    if (plain > 0) {
        oz_log(OZ_LOG_WARN, "quant",
               "%s: %d linear layers that it does not ignore are stored plain, and stay so.",
               r->path, (int)plain);
    }
    return OZ_OK;
}

enum oz_status oz_ct_read(const struct oz_dialect_reader *from)
{
    struct reader r = {.path = from->path, .ckpt = from->ckpt, .from = from, .err = from->err};
    enum oz_status status = read_rows(&r);
    for (size_t i = 0; i < r.group_count; i++) {
        patterns_deinit(&r.groups[i].targets);
    }
    oz_free(r.groups);
    patterns_deinit(&r.ignore);
    return status;
}
