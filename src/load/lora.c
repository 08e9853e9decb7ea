#include "load/lora.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "load/lora_names.h"
#include "num/codec.h"

#define MAX_CONFIG_BYTES (1U << 20)

/* ---- FILE:scale ---- */

/* The number behind the last colon, as JSON writes it; the file's name may have colons itself. */
static enum oz_status split(const char *text, char **path, double *scale, struct oz_error *err)
{
    const char *colon = strrchr(text, ':');
    struct oz_json *json = NULL;
    *scale = 1;
    if (text[0] == '\0' || colon == text) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A LoRA has no file: \"%s\" must be FILE or FILE:scale.",
                       text);
    }
    if (colon == NULL || oz_file_exists(text)) {
        *path = oz_strdup(text);
        return *path != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, text);
    }
    enum oz_status status = oz_json_parse(&json, colon + 1, strlen(colon + 1), text, NULL);
    if (status == OZ_ERR_NOMEM) {
        return OZ_FAIL_NOMEM(err, text);
    }
    bool number = status == OZ_OK &&
                  (oz_json_type(json) == OZ_JSON_INTEGER || oz_json_type(json) == OZ_JSON_REAL);
    *scale = number ? oz_json_number(json, 0) : 0;
    oz_json_free(json);
    if (!number) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "LoRA %s: there is no such file, and \"%s\" behind the colon is no scale "
                       "such as 0.8.",
                       text, colon + 1);
    }
    if (*scale == 0 || !isfinite((float)*scale)) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "LoRA %s: the scale %g has no effect that can be computed; leave the file "
                       "out, or give a finite number other than 0.",
                       text, *scale);
    }
    *path = oz_strndup(text, (size_t)(colon - text));
    return *path != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, text);
}

/* ---- what the file says of all its layers ---- */

struct config {
    struct oz_json *json; /* NULL: none */
    const char *prefix;   /* of its keys: "transformer." or "" */
    char *name;           /* for messages */
};

static const struct oz_json *member(const struct config *c, const char *key)
{
    char full[64];
    size_t n = strlen(c->prefix);
    if (c->json == NULL || n + strlen(key) >= sizeof full) {
        return NULL;
    }
    memcpy(full, c->prefix, n);
    memcpy(full + n, key, strlen(key) + 1);
    return oz_json_get(c->json, full);
}

/* What decides the factor must be what it should be: a wrong type would be another picture. */
static enum oz_status check_types(const struct config *c, struct oz_error *err)
{
    static const struct {
        const char *key;
        enum oz_json_type type;
        const char *what;
    } types[] = {
        {"use_dora", OZ_JSON_BOOL, "true or false"},
        {"use_rslora", OZ_JSON_BOOL, "true or false"},
        {"alpha_pattern", OZ_JSON_OBJECT, "an object"},
        {"peft_type", OZ_JSON_STRING, "a string"},
    };
    if (oz_json_type(c->json) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: a LoRA's config must be an object, not %s.",
                       c->name, oz_json_type_name(c->json));
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct oz_json *v = member(c, types[i].key);
        if (v != NULL && oz_json_type(v) != types[i].type && oz_json_type(v) != OZ_JSON_NULL) {
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" must be %s, not %s.", c->name,
                           types[i].key, types[i].what, oz_json_type_name(v));
        }
    }
    return OZ_OK;
}

static enum oz_status check_config(const struct config *c, struct oz_error *err)
{
    const struct oz_json *alpha = member(c, "lora_alpha");
    OZ_TRY(check_types(c, err));
    const char *type = oz_json_string(member(c, "peft_type"), "LORA");
    if (strcmp(type, "LORA") != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: \"peft_type\" is \"%.64s\"; ounce merges LORA only.", c->name, type);
    }
    if (oz_json_bool(member(c, "use_dora"), false)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: \"use_dora\" is set; ounce merges plain LoRA only, so merge this one "
                       "into the checkpoint with the tool that made it.",
                       c->name);
    }
    if (alpha != NULL && !(isfinite(oz_json_number(alpha, NAN)))) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"lora_alpha\" must be a number, not %s.", c->name,
                       oz_json_type_name(alpha));
    }
    const struct oz_json *patterns = member(c, "alpha_pattern");
    for (void *it = oz_json_first(patterns); it != NULL; it = oz_json_next(patterns, it)) {
        if (strpbrk(oz_json_key(it), "*+?[](){}|\\^$") != NULL ||
            !isfinite(oz_json_number(oz_json_value(it), NAN))) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s: \"alpha_pattern\" has \"%s\"; ounce takes names of modules with a "
                           "number each, no expressions.",
                           c->name, oz_json_key(it));
        }
    }
    return OZ_OK;
}

/* PEFT's config beside an adapter_model.safetensors. */
static enum oz_status read_beside(struct config *c, const char *path, struct oz_error *err)
{
    static const char own[] = "adapter_model.safetensors";
    size_t n = strlen(path);
    size_t base = n >= sizeof own - 1 ? n - (sizeof own - 1) : n;
    if (strcmp(path + base, own) != 0 || (base > 0 && path[base - 1] != '/')) {
        return OZ_OK;
    }
    char *folder = base > 0 ? oz_strndup(path, base) : oz_strdup(".");
    c->name = folder != NULL ? oz_file_join(folder, "adapter_config.json") : NULL;
    oz_free(folder);
    if (c->name == NULL) {
        return OZ_FAIL_NOMEM(err, path);
    }
    return oz_file_exists(c->name) ? oz_json_parse_file(&c->json, c->name, MAX_CONFIG_BYTES, err)
                                   : OZ_OK;
}

static enum oz_status read_config(struct config *c, const struct oz_ckpt *ckpt,
                                  struct oz_error *err)
{
    static const char key[] = "lora_adapter_metadata";
    const char *text = oz_ckpt_metadata(ckpt, key);
    const char *path = oz_ckpt_file(ckpt, 0)->path;
    *c = (struct config){.prefix = ""};
    if (text == NULL) {
        OZ_TRY(read_beside(c, path, err));
    } else {
        struct oz_buf b;
        oz_buf_init(&b, MAX_CONFIG_BYTES);
        oz_buf_printf(&b, "%s, metadata \"%s\"", path, key);
        c->name = oz_buf_take(&b);
        oz_buf_deinit(&b);
        if (c->name == NULL) {
            return OZ_FAIL_NOMEM(err, path);
        }
        OZ_TRY(oz_json_parse(&c->json, text, strlen(text), c->name, err));
        c->prefix = oz_json_get(c->json, "transformer.lora_alpha") != NULL ? "transformer." : "";
    }
    return c->json != NULL ? check_config(c, err) : OZ_OK;
}

static void config_deinit(struct config *c)
{
    oz_json_free(c->json);
    oz_free(c->name);
}

/* A layer's alpha by the config, or `fallback`. */
static double config_alpha(const struct config *c, const char *module, double fallback)
{
    const struct oz_json *patterns = member(c, "alpha_pattern");
    size_t n = strlen(module);
    for (void *it = oz_json_first(patterns); it != NULL; it = oz_json_next(patterns, it)) {
        const char *key = oz_json_key(it);
        size_t k = strlen(key);
        if (k <= n && strcmp(module + n - k, key) == 0 && (k == n || module[n - k - 1] == '.')) {
            return oz_json_number(oz_json_value(it), fallback);
        }
    }
    return oz_json_number(member(c, "lora_alpha"), fallback);
}

/* ---- one file's tensors, by rows of the table ---- */

struct found {
    const struct oz_tensor_view *down, *up, *alpha;
};

struct reader {
    struct oz_lora *lora;
    const struct oz_match *match;
    const struct oz_lora_names *names;
    int32_t file;
    const char *path;
    struct config config;
    struct found *rows; /* [table->count] */
    /* Keys that match no layer: how many, and the first. */
    int64_t keys, foreign;
    const char *first_foreign;
    size_t first_bytes;
    int32_t first_reason;
};

static enum oz_status fail_unknown(const struct reader *r, const char *key, struct oz_error *err)
{
    return OZ_FAIL(
        err, OZ_ERR_FORMAT,
        "%s: %s is no part of a LoRA. Its tensors are called <layer>.lora_A.weight and "
        "lora_B.weight, lora_down.weight and lora_up.weight, or alpha; whole weights are "
        "given with --transformer.",
        r->path, key);
}

/* The place of a tensor among its row's, or the reason why it has none. */
static enum oz_status put(struct reader *r, int32_t row, enum oz_lora_half half,
                          const struct oz_tensor_view *t, struct oz_error *err)
{
    struct found *f = &r->rows[row];
    const struct oz_tensor_view **to = half == OZ_LORA_DOWN ? &f->down
                                       : half == OZ_LORA_UP ? &f->up
                                                            : &f->alpha;
    if (*to != NULL) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: %s and %s are the same part of the layer %s; remove one of them.",
                       r->path, (*to)->name, t->name, r->match->table->rows[row].module);
    }
    *to = t;
    return OZ_OK;
}

static enum oz_status read_tensor(struct reader *r, const struct oz_tensor_view *t,
                                  struct oz_error *err)
{
    const struct oz_lora_key key = oz_lora_read_key(t->name);
    if (key.half == OZ_LORA_UNKNOWN) {
        return fail_unknown(r, t->name, err);
    }
    if (key.half == OZ_LORA_REFUSED) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: %s belongs to %s; ounce merges plain LoRA of linear layers only. Merge "
                       "this one into the checkpoint with the tool that made it.",
                       r->path, t->name, key.what);
    }
    int32_t row = oz_lora_find_row(r->names, t->name, key.module_bytes);
    r->keys++;
    if (row < 0) {
        if (r->foreign++ == 0) {
            r->first_foreign = t->name;
            r->first_bytes = key.module_bytes;
            r->first_reason = row;
        }
        return OZ_OK;
    }
    const struct oz_layer *layer = &r->match->table->rows[row];
    if (layer->kind != OZ_LAYER_LINEAR || layer->file_rank > 2) {
        static const char *const kinds[] = {[OZ_LAYER_LINEAR] = "kept in another shape",
                                            [OZ_LAYER_EXPERTS] = "a stack of experts",
                                            [OZ_LAYER_EMBED] = "an embedding",
                                            [OZ_LAYER_CONV] = "a convolution",
                                            [OZ_LAYER_NORM] = "a norm",
                                            [OZ_LAYER_VECTOR] = "a vector"};
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: %s is for %s, which is %s; ounce merges LoRA into linear layers only.",
                       r->path, t->name, layer->module, kinds[layer->kind]);
    }
    if (r->match->row_tensor[row] < 0 || layer->bind == NULL) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED, "%s: %s is for %s, which %s; it would have no effect.",
            r->path, t->name, layer->module,
            layer->bind == NULL ? "this model does not use" : "the checkpoint does not hold");
    }
    return put(r, row, key.half, t, err);
}

/* Keys without a layer. */
static enum oz_status check_foreign(const struct reader *r, struct oz_error *err)
{
    const char *component = r->match->table->component;
    if (r->keys == 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s holds no LoRA: it has no tensors.", r->path);
    }
    if (r->foreign == 0) {
        return OZ_OK;
    }
    if (r->first_reason == OZ_LORA_OTHER_MODEL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: %s adapts a text encoder; ounce merges LoRA into the %s only. Remove "
                       "such tensors from the file if it may go without.",
                       r->path, r->first_foreign, component);
    }
    if (r->first_reason == OZ_LORA_TWO_ROWS) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: %s may mean two layers of the %s, whose names differ in dots and "
                       "underscores only; write it with dots.",
                       r->path, r->first_foreign, component);
    }
    const char *near = oz_lora_nearest(r->names, r->first_foreign, r->first_bytes);
    char more[64] = "";
    if (r->foreign > 1) {
        (void)snprintf(more, sizeof more, " (nor do %" PRId64 " others of %" PRId64 ")",
                       r->foreign - 1, r->keys);
    }
    if (r->foreign == r->keys) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: none of its %" PRId64
                       " keys matches a layer of the %s: the LoRA is for "
                       "another model. The first is %s%s%s; `ounce inspect --tensors` lists the "
                       "model's layers.",
                       r->path, r->keys, component, r->first_foreign,
                       near != NULL ? ", and the nearest layer " : "", near != NULL ? near : "");
    }
    return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: %s matches no layer of the %s%s%s%s%s", r->path,
                   r->first_foreign, component, more, near != NULL ? "; did you mean " : "",
                   near != NULL ? near : "",
                   near != NULL ? "?" : ". `ounce inspect --tensors` lists the model's layers.");
}

/* ---- pairs ---- */

static void shape_text(char *out, size_t bytes, const struct oz_tensor_view *t)
{
    size_t n = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < t->rank && n + 24 < bytes; i++) {
        n += (size_t)snprintf(out + n, bytes - n, "%s%" PRId64, i > 0 ? ", " : "", t->shape[i]);
    }
}

static enum oz_status check_dtype(const struct reader *r, const struct oz_tensor_view *t,
                                  struct oz_error *err)
{
    if (oz_codec_plain(t->dtype) == NULL || t->codec != NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: %s is stored as %s; ounce reads LoRA in F32, F16, BF16 and F64.",
                       r->path, t->name, oz_dtype_name(t->dtype));
    }
    return OZ_OK;
}

static enum oz_status check_shapes(const struct reader *r, const struct oz_layer *layer,
                                   const struct found *f, struct oz_error *err)
{
    bool swapped = (layer->transform & OZ_TRANSFORM_TRANSPOSE) != 0;
    int64_t out = layer->file_shape[swapped ? 1 : 0];
    int64_t in = layer->file_shape[swapped ? 0 : 1];
    const struct oz_tensor_view *a = f->down;
    const struct oz_tensor_view *b = f->up;
    if (a->rank > 2 || b->rank > 2) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: %s has %d dimensions: a convolution's LoRA, but %s is a linear layer.",
                       r->path, a->rank > 2 ? a->name : b->name, a->rank > 2 ? a->rank : b->rank,
                       layer->module);
    }
    if (a->rank == 2 && b->rank == 2 && a->shape[0] > 0 && a->shape[0] == b->shape[1] &&
        a->shape[1] == in && b->shape[0] == out) {
        return OZ_OK;
    }
    char down[64];
    char up[64];
    shape_text(down, sizeof down, a);
    shape_text(up, sizeof up, b);
    return OZ_FAIL(err, OZ_ERR_FORMAT,
                   "%s: %s is [%s] and %s is [%s]; the layer %s, [%" PRId64 ", %" PRId64
                   "], takes [rank, %" PRId64 "] and [%" PRId64
                   ", rank] of one rank. The LoRA is for a model of other sizes.",
                   r->path, a->name, down, b->name, up, layer->module, out, in, in, out);
}

static enum oz_status read_alpha(const struct reader *r, const struct oz_layer *layer,
                                 const struct found *f, double *alpha, struct oz_error *err)
{
    const struct oz_tensor_view *t = f->alpha;
    float value;
    *alpha = config_alpha(&r->config, layer->module, (double)f->down->shape[0]);
    if (t == NULL) {
        return OZ_OK;
    }
    OZ_TRY(check_dtype(r, t, err));
    if (t->elements != 1) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: %s has %" PRId64 " elements; an alpha is one number.", r->path, t->name,
                       t->elements);
    }
    struct oz_weight w = oz_weight_plain(t->dtype, 1, 1, 1, (void *)(uintptr_t)t->data);
    w.codec->decode(&w, 0, 0, 0, 1, &value);
    *alpha = (double)value;
    return OZ_OK;
}

static enum oz_status add_pair(struct reader *r, int32_t row, struct oz_error *err)
{
    const struct oz_layer *layer = &r->match->table->rows[row];
    const struct found *f = &r->rows[row];
    struct oz_lora *l = r->lora;
    double alpha;
    if (f->down == NULL || f->up == NULL) {
        const struct oz_tensor_view *there = f->down != NULL ? f->down
                                             : f->up != NULL ? f->up
                                                             : f->alpha;
        const char *missing = f->down == NULL && f->up == NULL ? "both factors are"
                              : f->down == NULL                ? "lora_A (lora_down) is"
                                                               : "lora_B (lora_up) is";
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: %s is there, but of the layer %s %s missing; the file is incomplete.",
                       r->path, there->name, layer->module, missing);
    }
    OZ_TRY(check_dtype(r, f->down, err));
    OZ_TRY(check_dtype(r, f->up, err));
    OZ_TRY(check_shapes(r, layer, f, err));
    OZ_TRY(read_alpha(r, layer, f, &alpha, err));
    double scale = l->files[r->file].scale;
    double rank = (double)f->down->shape[0];
    bool root = f->alpha == NULL && oz_json_bool(member(&r->config, "use_rslora"), false);
    float factor = (float)(scale * (alpha / (root ? sqrt(rank) : rank)));
    if (!isfinite(factor) || factor == 0) {
        return OZ_FAIL(
            err, OZ_ERR_FORMAT,
            "%s: the layer %s has alpha %g, rank %g and scale %g; the factor %g cannot be "
            "merged.",
            r->path, layer->module, alpha, rank, scale, (double)factor);
    }
    int32_t at = l->pair_count++;
    l->pairs[at] = (struct oz_lora_pair){.down = f->down,
                                         .up = f->up,
                                         .file = r->file,
                                         .next = -1,
                                         .rank = f->down->shape[0],
                                         .alpha = alpha,
                                         .factor = factor};
    if (l->last[row] >= 0) {
        l->pairs[l->last[row]].next = at;
    } else {
        l->first[row] = at;
    }
    l->last[row] = at;
    l->files[r->file].layers++;
    return OZ_OK;
}

/* ---- files ---- */

static enum oz_status read_rows(struct reader *r, struct oz_error *err)
{
    const struct oz_ckpt *ckpt = r->lora->files[r->file].ckpt;
    int32_t rows = r->match->table->count;
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        OZ_TRY(read_tensor(r, oz_ckpt_tensor(ckpt, i), err));
    }
    OZ_TRY(check_foreign(r, err));
    int32_t layers = 0;
    for (int32_t i = 0; i < rows; i++) {
        layers += r->rows[i].down != NULL || r->rows[i].up != NULL || r->rows[i].alpha != NULL;
    }
    struct oz_lora *l = r->lora;
    void *pairs = oz_realloc(l->pairs, (size_t)(l->pair_count + layers) * sizeof *l->pairs);
    if (pairs == NULL) {
        return OZ_FAIL_NOMEM(err, r->path);
    }
    l->pairs = pairs;
    for (int32_t i = 0; i < rows; i++) {
        if (r->rows[i].down != NULL || r->rows[i].up != NULL || r->rows[i].alpha != NULL) {
            OZ_TRY(add_pair(r, i, err));
        }
    }
    return OZ_OK;
}

static enum oz_status open_file(struct reader *r, const char *text, int64_t max_header_bytes,
                                struct oz_error *err)
{
    static const char *const stems[] = {"pytorch_lora_weights", "adapter_model", NULL};
    struct oz_lora_file *f = &r->lora->files[r->file];
    OZ_TRY(split(text, &f->path, &f->scale, err));
    r->path = f->path;
    enum oz_status status = oz_ckpt_open_limited(&f->ckpt, f->path, stems, max_header_bytes, err);
    if (status == OZ_OK) {
        status = read_config(&r->config, f->ckpt, err);
    }
    memset(r->rows, 0, (size_t)r->match->table->count * sizeof *r->rows);
    r->keys = r->foreign = 0;
    if (status == OZ_OK) {
        status = read_rows(r, err);
    }
    config_deinit(&r->config);
    r->config = (struct config){.prefix = ""};
    OZ_TRY(status);
    oz_log(OZ_LOG_INFO, "load", "%s: LoRA %s adapts %d layers, scale %g.",
           r->match->table->component, f->path, (int)f->layers, f->scale);
    return OZ_OK;
}

static enum oz_status open_all(struct reader *r, const char *const *texts, int32_t count,
                               int64_t max_header_bytes, struct oz_error *err)
{
    struct oz_lora *l = r->lora;
    size_t rows = (size_t)l->table->count;
    l->files = oz_alloc_zero((size_t)count, sizeof *l->files);
    l->first = oz_alloc(rows * sizeof *l->first);
    l->last = oz_alloc(rows * sizeof *l->last);
    r->rows = oz_alloc_zero(rows, sizeof *r->rows);
    if (l->files == NULL || l->first == NULL || l->last == NULL || r->rows == NULL) {
        return OZ_FAIL_NOMEM(err, "the lists of LoRA");
    }
    for (size_t i = 0; i < rows; i++) {
        l->first[i] = l->last[i] = -1;
    }
    for (r->file = 0; r->file < count; r->file++) {
        l->file_count = r->file + 1;
        OZ_TRY(open_file(r, texts[r->file], max_header_bytes, err));
    }
    return OZ_OK;
}

enum oz_status oz_lora_open(struct oz_lora **out, const struct oz_match *match,
                            const char *const *texts, int32_t count, int64_t max_header_bytes,
                            struct oz_error *err)
{
    struct oz_lora_names names;
    struct oz_lora *l = oz_alloc_zero(1, sizeof *l);
    *out = NULL;
    if (l == NULL) {
        return OZ_FAIL_NOMEM(err, "the lists of LoRA");
    }
    l->table = match->table;
    struct reader r = {.lora = l, .match = match, .names = &names, .config = {.prefix = ""}};
    enum oz_status status = oz_lora_names_init(&names, match->table, err);
    if (status == OZ_OK) {
        status = open_all(&r, texts, count, max_header_bytes, err);
    }
    oz_lora_names_deinit(&names);
    oz_free(r.rows);
    if (status != OZ_OK) {
        oz_lora_close(&l);
        return status;
    }
    *out = l;
    return OZ_OK;
}

void oz_lora_close(struct oz_lora **lora)
{
    struct oz_lora *l = *lora;
    if (l == NULL) {
        return;
    }
    for (int32_t i = 0; i < l->file_count; i++) {
        oz_ckpt_close(&l->files[i].ckpt);
        oz_free(l->files[i].path);
    }
    oz_free(l->files);
    oz_free(l->pairs);
    oz_free(l->first);
    oz_free(l->last);
    oz_free(l);
    *lora = NULL;
}

enum oz_status oz_lora_check(const struct oz_lora *l, struct oz_error *err)
{
    for (int32_t i = 0; l != NULL && i < l->file_count; i++) {
        OZ_TRY(oz_ckpt_check(l->files[i].ckpt, err));
    }
    return OZ_OK;
}

int64_t oz_lora_rank(const struct oz_lora *l, int32_t row)
{
    int64_t rank = 0;
    for (int32_t i = l != NULL ? l->first[row] : -1; i >= 0; i = l->pairs[i].next) {
        rank = l->pairs[i].rank > rank ? l->pairs[i].rank : rank;
    }
    return rank;
}

int64_t oz_lora_bytes(const struct oz_lora *l)
{
    return l == NULL ? 0
                     : (int64_t)sizeof *l + l->file_count * (int64_t)sizeof *l->files +
                           l->pair_count * (int64_t)sizeof *l->pairs +
                           2 * l->table->count * (int64_t)sizeof *l->first;
}

void oz_lora_json(const struct oz_lora *l, int32_t row, struct oz_buf *out)
{
    oz_buf_puts(out, "[");
    for (int32_t i = l->first[row]; i >= 0; i = l->pairs[i].next) {
        const struct oz_lora_pair *p = &l->pairs[i];
        oz_buf_puts(out, i != l->first[row] ? ", {\"file\": " : "{\"file\": ");
        oz_buf_json(out, l->files[p->file].path);
        oz_buf_printf(out, ", \"rank\": %" PRId64 ", \"alpha\": ", p->rank);
        oz_buf_number(out, p->alpha);
        oz_buf_puts(out, ", \"scale\": ");
        oz_buf_number(out, l->files[p->file].scale);
        oz_buf_puts(out, ", \"factor\": ");
        oz_buf_number(out, (double)p->factor);
        oz_buf_puts(out, "}");
    }
    oz_buf_puts(out, "]");
}
