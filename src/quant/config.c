#include "quant/config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/names.h"
#include "base/yaml.h"
#include "quant/config_read.h"
#include "quant/rules.h"

static const char *const reserved[] = {"linear", "moe", "ignore", "targets"};

static bool has_reserved(const struct oz_json *v)
{
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (oz_json_get(v, reserved[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* ---- method and quant_method ---- */

/* The method that an object names, or NULL. */
static enum oz_status method_of(struct oz_config_reader *r, const struct oz_json *v,
                                const char *where, const struct oz_method **out, const char **asked)
{
    static const char *const names[] = {"method", "quant_method"};
    *out = NULL;
    *asked = NULL;
    for (int i = 0; i < 2; i++) {
        const struct oz_json *value = oz_json_get(v, names[i]);
        const char *name = oz_json_string(value, NULL);
        const struct oz_method *m;
        if (value == NULL) {
            continue;
        }
        if (name == NULL) {
            return OZ_FAIL(r->err, OZ_ERR_ARG, "%s.%s must be a string, not %s.", where, names[i],
                           oz_json_type_name(value));
        }
        OZ_TRY(oz_method_get(&m, name, r->err));
        if (*out != NULL && m != *out) {
            return OZ_FAIL(r->err, OZ_ERR_ARG,
                           "%s: Conflicting quantization method keys: method is \"%s\", "
                           "quant_method is \"%.100s\". Both say the method here; give one.",
                           where, *asked, name);
        }
        *out = m;
        OZ_TRY(oz_config_string(r, name, asked));
    }
    return OZ_OK;
}

static enum oz_status check_method(struct oz_config_reader *r, const struct oz_method *m,
                                   const struct oz_method *outer, const char *outer_name,
                                   const char *where)
{
    if (m != NULL && outer != NULL && m != outer) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "The quantization method is \"%s\", but %s says \"%s\"; give one.",
                       outer_name, where, m->name);
    }
    return OZ_OK;
}

/* ---- one component ---- */

static enum oz_status read_name(struct oz_config_reader *r, const char *name,
                                struct oz_component_request *c)
{
    const struct oz_method *m;
    OZ_TRY(oz_method_get(&m, name, r->err));
    OZ_TRY(oz_config_string(r, name, &c->asked));
    if (m->kind == OZ_METHOD_NONE) {
        c->leave = true;
        c->method = m;
        return OZ_OK;
    }
    if (m->kind == OZ_METHOD_CONFIG) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "The method \"online\" requires at least one of quantization_config.linear, "
                       "quantization_config.moe, or quantization_config.targets to be set.");
    }
    oz_config_inherit(c, m);
    return OZ_OK;
}

/* An object with slots or a method; `outer` is the method given beside it, or NULL. */
static enum oz_status read_object(struct oz_config_reader *r, const struct oz_json *v,
                                  const char *where, const struct oz_method *outer,
                                  const char *outer_name, struct oz_component_request *c)
{
    const struct oz_method *m;
    const char *asked;
    OZ_TRY(method_of(r, v, where, &m, &asked));
    OZ_TRY(check_method(r, m, outer, outer_name, where));
    c->asked = m != NULL ? asked : outer_name;
    m = m != NULL ? m : outer;
    if (m != NULL && m->kind == OZ_METHOD_NONE) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s: the method \"none\" takes no parameters; leave one of them out.",
                       where);
    }
    if (m != NULL && m->kind != OZ_METHOD_CONFIG) {
        oz_config_inherit(c, m);
    }
    if (has_reserved(v)) {
        return oz_config_read_online(r, v, where, c);
    }
    if (m == NULL) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s must have a 'method' or 'quant_method' key, or one of linear, moe, "
                       "ignore, targets.",
                       where);
    }
    if (m->kind == OZ_METHOD_CONFIG) {
        return oz_config_read_online(r, v, where, c);
    }
    return oz_config_read_flat(r, v, where, c);
}

static enum oz_status read_component(struct oz_config_reader *r, const struct oz_json *v,
                                     const char *key, struct oz_component_request *c)
{
    char where[160];
    (void)snprintf(where, sizeof where, "quantization_config.%.100s", key);
    *c = (struct oz_component_request){.by_default = strcmp(key, "default") == 0};
    OZ_TRY(oz_config_string(r, key, &c->component));
    switch (oz_json_type(v)) {
    case OZ_JSON_NULL: c->leave = true; return OZ_OK;
    case OZ_JSON_STRING: {
        enum oz_status status = read_name(r, oz_json_string(v, ""), c);
        return status == OZ_OK ? OZ_OK : oz_error_prefix(r->err, status, "%s: ", where);
    }
    case OZ_JSON_OBJECT: return read_object(r, v, where, NULL, NULL, c);
    default:
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s must be the name of a method, an object or null, not %s. An object with "
                       "none of method, quant_method, linear, moe, ignore, targets names the "
                       "model's components.",
                       where, oz_json_type_name(v));
    }
}

/* ---- the whole request ---- */

static enum oz_status make_components(struct oz_config_reader *r, struct oz_request *q,
                                      size_t count)
{
    void *memory = NULL;
    if (count == 0) {
        return OZ_FAIL(
            r->err, OZ_ERR_ARG,
            "quantization_config is an empty object: it must have a 'method' or "
            "'quant_method' key, one of linear, moe, ignore, targets, or name components "
            "of the model.");
    }
    if (count > 64) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "quantization_config names %zu components; no model has so many.", count);
    }
    if (oz_arena_push(r->arena, count * sizeof *q->components, &memory) != OZ_OK) {
        return OZ_FAIL_NOMEM(r->err, "the quantization config");
    }
    q->components = memory;
    return OZ_OK;
}

static bool is_flat_of(const struct oz_json *v, const struct oz_method *m)
{
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        if (oz_method_param_find(m->params, oz_json_key(it)) == OZ_METHOD_PARAM_COUNT) {
            return false;
        }
    }
    return oz_json_count(v) > 0;
}

static enum oz_status read_document(struct oz_config_reader *r, struct oz_request *q,
                                    const struct oz_json *v, const struct oz_method *outer,
                                    const char *outer_name)
{
    if (oz_json_type(v) != OZ_JSON_OBJECT) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "quantization_config must be an object, not %s.",
                       oz_json_type_name(v));
    }
    bool whole = has_reserved(v) || oz_json_get(v, "method") != NULL ||
                 oz_json_get(v, "quant_method") != NULL || (outer != NULL && is_flat_of(v, outer));
    if (whole) {
        OZ_TRY(make_components(r, q, 1));
        q->components[0] = (struct oz_component_request){0};
        q->count = 1;
        return read_object(r, v, "quantization_config", outer, outer_name, &q->components[0]);
    }
    if (outer != NULL) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "The method \"%s\" is given beside a quantization_config that names "
                       "components (\"%.100s\" is no parameter of it). Give the method inside: "
                       "{\"%.100s\": {\"method\": \"%s\"}}.",
                       outer_name, oz_json_count(v) > 0 ? oz_json_key(oz_json_first(v)) : "",
                       oz_json_count(v) > 0 ? oz_json_key(oz_json_first(v)) : "transformer",
                       outer_name);
    }
    OZ_TRY(make_components(r, q, oz_json_count(v)));
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        OZ_TRY(read_component(r, oz_json_value(it), oz_json_key(it), &q->components[q->count]));
        q->count++;
    }
    return OZ_OK;
}

/* Patterns given beside the config join those of the one entry that they can be about. */
static enum oz_status join_ignored(struct oz_config_reader *r, struct oz_request *q,
                                   const struct oz_request_text *text)
{
    struct oz_component_request *c = NULL;
    void *memory = NULL;
    int32_t alive = 0;
    if (text->ignored_count == 0) {
        return OZ_OK;
    }
    for (int32_t i = 0; q != NULL && i < q->count; i++) {
        if (!q->components[i].leave) {
            c = &q->components[i];
            alive++;
        }
    }
    if (alive != 1) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "%s",
                       alive == 0 ? "Ignored layers are given, but nothing is to be quantized."
                                  : "Ignored layers are given beside a config of several "
                                    "components; write ignored_layers in the component that is "
                                    "meant.");
    }
    size_t count = (size_t)c->ignored_layers.count + (size_t)text->ignored_count;
    if (count > OZ_CONFIG_MAX_ITEMS) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "%zu ignored layers are given; at most %d are taken.",
                       count, OZ_CONFIG_MAX_ITEMS);
    }
    if (oz_arena_push(r->arena, count * sizeof(const char *), &memory) != OZ_OK) {
        return OZ_FAIL_NOMEM(r->err, "ignored layers");
    }
    const char **items = memory;
    for (int32_t i = 0; i < c->ignored_layers.count; i++) {
        items[i] = c->ignored_layers.items[i];
    }
    for (int32_t i = 0; i < text->ignored_count; i++) {
        OZ_TRY(oz_rule_check(text->ignored_layers[i], "ignored_layers", r->err));
        OZ_TRY(oz_config_string(r, text->ignored_layers[i], &items[c->ignored_layers.count + i]));
    }
    c->ignored_layers = (struct oz_strings){items, (int32_t)count};
    c->ignored_key = c->ignored_key != NULL ? c->ignored_key : "ignored_layers";
    return OZ_OK;
}

/* ---- texts and files ---- */

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t\r\n");
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A JSON object in an argument: a mistake in it is the caller's, not a file's. */
static enum oz_status parse_text(const char *text, const char *name, struct oz_json **out,
                                 struct oz_error *err)
{
    size_t bytes = strlen(text);
    *out = NULL;
    if (bytes > OZ_CONFIG_MAX_BYTES) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%s has %zu bytes; at most %u are taken.", name, bytes,
                       OZ_CONFIG_MAX_BYTES);
    }
    enum oz_status status = oz_json_parse(out, text, bytes, name, err);
    if (status == OZ_ERR_FORMAT) {
        status = OZ_ERR_ARG;
        if (err != NULL) {
            err->code = status;
        }
    }
    return status;
}

static enum oz_status parse_file(const char *path, struct oz_json **out, struct oz_error *err)
{
    char *text;
    char *json = NULL;
    size_t bytes;
    *out = NULL;
    if (!oz_file_exists(path)) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "The quantization config \"%.300s\" is neither a JSON object nor a file. A "
                       "method's name goes into the option for the method.",
                       path);
    }
    OZ_TRY(oz_file_read(path, OZ_CONFIG_MAX_BYTES, &text, &bytes, err));
    enum oz_status status = OZ_OK;
    if (ends_with(path, ".yaml") || ends_with(path, ".yml")) {
        status = oz_yaml_to_json(text, bytes, path, &json, err);
        oz_free(text);
        text = json;
        bytes = json != NULL ? strlen(json) : 0;
    }
    if (status == OZ_OK) {
        status = oz_json_parse(out, text, bytes, path, err);
    }
    oz_free(text);
    return status;
}

/* The document that is asked for, dotted keys applied; NULL: none. */
static enum oz_status read_texts(struct oz_config_reader *r, const struct oz_request_text *text,
                                 struct oz_json **out)
{
    const char *name = text->quantization != NULL ? skip_blanks(text->quantization) : "";
    const char *config = text->config != NULL ? skip_blanks(text->config) : "";
    *out = NULL;
    if (*name == '{' && *config != '\0') {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "Two quantization configs are given: an object in place of the method's "
                       "name, and another; give one.");
    }
    if (*name == '{') {
        OZ_TRY(parse_text(name, "quantization", out, r->err));
    } else if (*config == '{') {
        OZ_TRY(parse_text(config, "quantization_config", out, r->err));
    } else if (*config != '\0') {
        OZ_TRY(parse_file(text->config, out, r->err));
    }
    if (text->key_count == 0) {
        return OZ_OK;
    }
    if (*out != NULL && oz_json_type(*out) != OZ_JSON_OBJECT) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "quantization_config must be an object, not %s.",
                       oz_json_type_name(*out));
    }
    struct oz_buf b;
    struct oz_json *merged = NULL;
    oz_buf_init(&b, 2 * OZ_CONFIG_MAX_BYTES);
    enum oz_status status = oz_config_apply_keys(r, *out, text->keys, text->key_count, &b);
    if (status == OZ_OK) {
        status = parse_text(oz_buf_text(&b), "quantization_config with its keys", &merged, r->err);
    }
    oz_buf_deinit(&b);
    oz_json_free(*out);
    *out = merged;
    return status;
}

static enum oz_status read_request(struct oz_config_reader *r, struct oz_request *q,
                                   const struct oz_request_text *text, struct oz_json **document)
{
    const char *name = text->quantization != NULL ? skip_blanks(text->quantization) : "";
    const struct oz_method *outer = NULL;
    const char *outer_name = NULL;
    OZ_TRY(read_texts(r, text, document));
    if (*name != '\0' && *name != '{') {
        OZ_TRY(oz_method_get(&outer, name, r->err));
        OZ_TRY(oz_config_string(r, name, &outer_name));
    }
    if (*document != NULL) {
        OZ_TRY(read_document(r, q, *document, outer, outer_name));
    } else if (outer != NULL) {
        OZ_TRY(make_components(r, q, 1));
        q->components[0] = (struct oz_component_request){0};
        q->count = 1;
        OZ_TRY(read_name(r, name, &q->components[0]));
    }
    OZ_TRY(join_ignored(r, q, text));
    q->notes = r->notes;
    q->note_count = r->note_count;
    return OZ_OK;
}

static size_t text_bytes(const struct oz_request_text *text)
{
    size_t bytes = (text->quantization != NULL ? strlen(text->quantization) : 0) +
                   (text->config != NULL ? strlen(text->config) : 0);
    for (int32_t i = 0; i < text->key_count; i++) {
        bytes += strlen(text->keys[i]);
    }
    for (int32_t i = 0; i < text->ignored_count; i++) {
        bytes += strlen(text->ignored_layers[i]);
    }
    return bytes;
}

/* Strings cost OZ_ARENA_ALIGN each, and one needs at least three bytes of text. Dotted keys copy the
 * whole config, and lists that are appended to once more for each key. A file's size is not known
 * yet. */
static size_t arena_bytes(const struct oz_request_text *text)
{
    const char *config = text->config != NULL ? skip_blanks(text->config) : "";
    bool file = *config != '\0' && *config != '{';
    size_t bytes = text_bytes(text) + (file ? OZ_CONFIG_MAX_BYTES : 0);
    if (bytes > 4 * (size_t)OZ_CONFIG_MAX_BYTES) {
        bytes = 4 * (size_t)OZ_CONFIG_MAX_BYTES;
    }
    return (1U << 18) + bytes * 256 + (size_t)text->key_count * 4096;
}

enum oz_status oz_request_create(struct oz_request **out, const struct oz_request_text *text,
                                 struct oz_error *err)
{
    struct oz_json *document = NULL;
    struct oz_config_reader r = {.err = err};
    void *notes = NULL;
    *out = NULL;
    struct oz_request *q = oz_alloc_zero(1, sizeof *q);
    if (q == NULL) {
        return OZ_FAIL_NOMEM(err, "the quantization config");
    }
    enum oz_status status = oz_arena_init_host(&q->arena, "quantization", arena_bytes(text), err);
    r.arena = &q->arena;
    if (status == OZ_OK) {
        status = oz_arena_push(r.arena, OZ_CONFIG_MAX_NOTES * sizeof *r.notes, &notes);
        r.notes = notes;
    }
    if (status == OZ_OK) {
        status = read_request(&r, q, text, &document);
    }
    oz_json_free(document);
    if (status != OZ_OK || q->count == 0) {
        oz_request_destroy(&q);
        return status;
    }
    *out = q;
    return OZ_OK;
}

void oz_request_destroy(struct oz_request **request)
{
    if (request != NULL && *request != NULL) {
        oz_arena_deinit(&(*request)->arena);
        oz_free(*request);
        *request = NULL;
    }
}

/* ---- asking it ---- */

enum oz_status oz_request_check_components(const struct oz_request *q, const char *const *names,
                                           int32_t count, struct oz_error *err)
{
    struct oz_config_reader r = {.err = err};
    const char *all[66];
    int32_t n = 0;
    for (; n < count && n < 64; n++) {
        all[n] = names[n];
    }
    all[n++] = "default";
    for (int32_t i = 0; i < q->count; i++) {
        bool known = q->components[i].component == NULL;
        for (int32_t k = 0; k < n && !known; k++) {
            known = strcmp(all[k], q->components[i].component) == 0;
        }
        if (!known) {
            return oz_config_fail_choice(&r,
                                         "quantization_config: the model has no component called",
                                         q->components[i].component, all, (size_t)n);
        }
    }
    return OZ_OK;
}

const struct oz_component_request *oz_request_for(const struct oz_request *q, const char *component,
                                                  bool main)
{
    const struct oz_component_request *fallback = NULL;
    for (int32_t i = 0; q != NULL && i < q->count; i++) {
        const struct oz_component_request *c = &q->components[i];
        if (c->component == NULL) {
            return main ? c : NULL;
        }
        if (strcmp(c->component, component) == 0) {
            return c;
        }
        fallback = c->by_default ? c : fallback;
    }
    return fallback;
}
