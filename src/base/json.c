#include "base/json.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_tree.h"
#include "base/log.h"
#include "base/names.h"

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
    oz_json_document_free((struct oz_json_document *)root);
}

enum oz_json_type oz_json_type(const struct oz_json *v)
{
    return v != NULL ? v->type : OZ_JSON_NULL;
}

const char *oz_json_type_name(const struct oz_json *v)
{
    static const char *const names[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "a list",    "an object"};
    return names[oz_json_type(v)];
}

const struct oz_json *oz_json_get(const struct oz_json *v, const char *key)
{
    if (oz_json_type(v) != OZ_JSON_OBJECT) {
        return NULL;
    }
    if (v->names != NULL) {
        int32_t i = oz_string_map_get(&v->names->map, key, strlen(key), -1);
        return i >= 0 ? &v->items[i] : NULL;
    }
    for (uint32_t i = 0; i < v->count; i++) {
        if (strcmp(v->items[i].key, key) == 0) {
            return &v->items[i];
        }
    }
    return NULL;
}

const struct oz_json *oz_json_at(const struct oz_json *v, size_t index)
{
    return oz_json_type(v) == OZ_JSON_ARRAY && index < v->count ? &v->items[index] : NULL;
}

size_t oz_json_count(const struct oz_json *v)
{
    return v != NULL ? v->count : 0;
}

const char *oz_json_string(const struct oz_json *v, const char *fallback)
{
    return oz_json_type(v) == OZ_JSON_STRING ? v->string : fallback;
}

int64_t oz_json_integer(const struct oz_json *v, int64_t fallback)
{
    return oz_json_type(v) == OZ_JSON_INTEGER ? v->integer : fallback;
}

double oz_json_number(const struct oz_json *v, double fallback)
{
    switch (oz_json_type(v)) {
    case OZ_JSON_INTEGER: return (double)v->integer;
    case OZ_JSON_REAL: return v->real;
    default: return fallback;
    }
}

bool oz_json_bool(const struct oz_json *v, bool fallback)
{
    return oz_json_type(v) == OZ_JSON_BOOL ? v->boolean : fallback;
}

void *oz_json_first(const struct oz_json *v)
{
    return oz_json_type(v) == OZ_JSON_OBJECT && v->count > 0 ? v->items : NULL;
}

void *oz_json_next(const struct oz_json *v, void *it)
{
    struct oz_json *next = (struct oz_json *)it + 1;
    return next < v->items + v->count ? next : NULL;
}

const char *oz_json_key(void *it)
{
    return ((const struct oz_json *)it)->key;
}

const struct oz_json *oz_json_value(void *it)
{
    return it;
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
    if (m != NULL && oz_json_type(m) != OZ_JSON_INTEGER && oz_json_type(m) != OZ_JSON_REAL) {
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

void oz_json_warn_unknown(const struct oz_json *v, const char *const *known, size_t count,
                          const char *name)
{
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        const char *key = oz_json_key(it);
        bool found = key[0] == '_' || oz_json_type(oz_json_value(it)) == OZ_JSON_NULL;
        for (size_t i = 0; !found && i < count; i++) {
            found = strcmp(key, known[i]) == 0;
        }
        if (!found) {
            const char *near = oz_names_nearest(key, known, count);
            oz_log(OZ_LOG_WARN, "load", "%s: the key \"%s\" is not known and has no effect%s%s%s.",
                   name, key, near != NULL ? " (nearest: \"" : "", near != NULL ? near : "",
                   near != NULL ? "\")" : "");
        }
    }
}
