#include "base/json.h"

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

/* A struct oz_json * is a json_t * by another name. */
static json_t *of(const struct oz_json *v)
{
    return (json_t *)(uintptr_t)v;
}

static const struct oz_json *from(const json_t *v)
{
    return (const struct oz_json *)(uintptr_t)v;
}

enum oz_status oz_json_parse(struct oz_json **out, const char *text, size_t bytes, const char *name,
                             struct oz_error *err)
{
    json_error_t at;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    *out = (struct oz_json *)root;
    if (root == NULL) {
        if (json_error_code(&at) == json_error_out_of_memory) {
            return OZ_FAIL_NOMEM(err, name);
        }
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s is not valid JSON: %s (line %d, column %d).", name,
                       at.text, at.line, at.column);
    }
    return OZ_OK;
}

enum oz_status oz_json_parse_file(struct oz_json **out, const char *path, size_t max_bytes,
                                  struct oz_error *err)
{
    char *text;
    size_t bytes;
    *out = NULL;
    OZ_TRY(oz_file_read(path, max_bytes, &text, &bytes, err));
    enum oz_status status = oz_json_parse(out, text, bytes, path, err);
    oz_free(text);
    return status;
}

void oz_json_free(struct oz_json *root)
{
    json_decref((json_t *)root);
}

enum oz_json_type oz_json_type(const struct oz_json *v)
{
    const json_t *j = of(v);
    if (j == NULL) {
        return OZ_JSON_NULL;
    }
    switch (json_typeof(j)) {
    case JSON_TRUE:
    case JSON_FALSE: return OZ_JSON_BOOL;
    case JSON_INTEGER: return OZ_JSON_INTEGER;
    case JSON_REAL: return OZ_JSON_REAL;
    case JSON_STRING: return OZ_JSON_STRING;
    case JSON_ARRAY: return OZ_JSON_ARRAY;
    case JSON_OBJECT: return OZ_JSON_OBJECT;
    case JSON_NULL:
    default: return OZ_JSON_NULL;
    }
}

const char *oz_json_type_name(const struct oz_json *v)
{
    static const char *const names[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "a list",    "an object"};
    return names[oz_json_type(v)];
}

const struct oz_json *oz_json_get(const struct oz_json *v, const char *key)
{
    return from(json_object_get(of(v), key));
}

const struct oz_json *oz_json_at(const struct oz_json *v, size_t index)
{
    return from(json_array_get(of(v), index));
}

size_t oz_json_count(const struct oz_json *v)
{
    const json_t *j = of(v);
    return json_is_array(j) ? json_array_size(j) : json_object_size(j);
}

const char *oz_json_string(const struct oz_json *v, const char *fallback)
{
    const char *text = json_string_value(of(v));
    return text != NULL ? text : fallback;
}

int64_t oz_json_integer(const struct oz_json *v, int64_t fallback)
{
    return json_is_integer(of(v)) ? (int64_t)json_integer_value(of(v)) : fallback;
}

double oz_json_number(const struct oz_json *v, double fallback)
{
    return json_is_number(of(v)) ? json_number_value(of(v)) : fallback;
}

bool oz_json_bool(const struct oz_json *v, bool fallback)
{
    const json_t *j = of(v);
    return json_is_boolean(j) ? json_is_true(j) : fallback;
}

void *oz_json_first(const struct oz_json *v)
{
    return json_object_iter(of(v));
}

void *oz_json_next(const struct oz_json *v, void *it)
{
    return json_object_iter_next(of(v), it);
}

const char *oz_json_key(void *it)
{
    return json_object_iter_key(it);
}

const struct oz_json *oz_json_value(void *it)
{
    return from(json_object_iter_value(it));
}

/* The member, or NULL when absent or null; an error when v is something else than an object. */
static enum oz_status member(const struct oz_json *v, const char *key, const struct oz_json **out,
                             const char *name, struct oz_error *err)
{
    if (oz_json_type(v) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: an object was expected around \"%s\", not %s.",
                       name, key, oz_json_type_name(v));
    }
    *out = oz_json_get(v, key);
    if (oz_json_type(*out) == OZ_JSON_NULL) {
        *out = NULL;
    }
    return OZ_OK;
}

enum oz_status oz_json_get_integer(const struct oz_json *v, const char *key, int64_t fallback,
                                   int64_t min, int64_t max, int64_t *out, const char *name,
                                   struct oz_error *err)
{
    const struct oz_json *m;
    *out = fallback;
    OZ_TRY(member(v, key, &m, name, err));
    if (m == NULL) {
        return OZ_OK;
    }
    if (oz_json_type(m) != OZ_JSON_INTEGER) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" must be an integer, not %s.", name, key,
                       oz_json_type_name(m));
    }
    int64_t value = oz_json_integer(m, 0);
    if (value < min || value > max) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" is %lld; it must lie in %lld to %lld.", name,
                       key, (long long)value, (long long)min, (long long)max);
    }
    *out = value;
    return OZ_OK;
}

enum oz_status oz_json_get_number(const struct oz_json *v, const char *key, double fallback,
                                  double *out, const char *name, struct oz_error *err)
{
    const struct oz_json *m;
    *out = fallback;
    OZ_TRY(member(v, key, &m, name, err));
    if (m != NULL && !json_is_number(of(m))) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" must be a number, not %s.", name, key,
                       oz_json_type_name(m));
    }
    *out = oz_json_number(m, fallback);
    return OZ_OK;
}

enum oz_status oz_json_get_bool(const struct oz_json *v, const char *key, bool fallback, bool *out,
                                const char *name, struct oz_error *err)
{
    const struct oz_json *m;
    *out = fallback;
    OZ_TRY(member(v, key, &m, name, err));
    if (m != NULL && oz_json_type(m) != OZ_JSON_BOOL) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" must be true or false, not %s.", name, key,
                       oz_json_type_name(m));
    }
    *out = oz_json_bool(m, fallback);
    return OZ_OK;
}

enum oz_status oz_json_get_string(const struct oz_json *v, const char *key, const char *fallback,
                                  const char **out, const char *name, struct oz_error *err)
{
    const struct oz_json *m;
    *out = fallback;
    OZ_TRY(member(v, key, &m, name, err));
    if (m != NULL && oz_json_type(m) != OZ_JSON_STRING) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" must be a string, not %s.", name, key,
                       oz_json_type_name(m));
    }
    *out = oz_json_string(m, fallback);
    return OZ_OK;
}
