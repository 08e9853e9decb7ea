/*
 * base/json.h: reads JSON; documents are trees of borrowed values. Duplicate keys, invalid UTF-8,
 * U+0000 and numbers that do not fit are errors; containers nest at most 64 deep. An object's members
 * are found by hash.
 */
#ifndef OZ_BASE_JSON_H
#define OZ_BASE_JSON_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value. The document's root is freed by oz_json_free; all others are borrowed from it. */
struct oz_json;

enum oz_json_type {
    OZ_JSON_NULL,
    OZ_JSON_BOOL,
    OZ_JSON_INTEGER, /* fits 64 bits, written without fraction or exponent */
    OZ_JSON_REAL,
    OZ_JSON_STRING,
    OZ_JSON_ARRAY,
    OZ_JSON_OBJECT,
};

/* Parses a whole text. `name` (a path) begins the error: OZ_ERR_FORMAT with line and column. */
OZ_MUST_USE enum oz_status oz_json_parse(struct oz_json **out, const char *text, size_t bytes,
                                         const char *name, struct oz_error *err);
/* The same from a file of at most max_bytes. */
OZ_MUST_USE enum oz_status oz_json_parse_file(struct oz_json **out, const char *path,
                                              size_t max_bytes, struct oz_error *err);
void oz_json_free(struct oz_json *root); /* NULL is fine */

enum oz_json_type oz_json_type(const struct oz_json *v); /* NULL counts as OZ_JSON_NULL */
const char *oz_json_type_name(const struct oz_json *v);  /* "a string"; for messages */

/* Members and elements. NULL where v is not of that type or has no such part. */
const struct oz_json *oz_json_get(const struct oz_json *v, const char *key);
const struct oz_json *oz_json_at(const struct oz_json *v, size_t index);
size_t oz_json_count(const struct oz_json *v); /* elements or members; else 0 */

/* Values; the fallback where v is NULL or of another type. A string is borrowed. */
const char *oz_json_string(const struct oz_json *v, const char *fallback);
int64_t oz_json_integer(const struct oz_json *v, int64_t fallback);
double oz_json_number(const struct oz_json *v, double fallback); /* integer or real */
bool oz_json_bool(const struct oz_json *v, bool fallback);

/* Walks an object in the order of the text: for (it = oz_json_first(v); it; it = oz_json_next(v,
 * it)). */
void *oz_json_first(const struct oz_json *v);
void *oz_json_next(const struct oz_json *v, void *it);
const char *oz_json_key(void *it);
const struct oz_json *oz_json_value(void *it);

/*
 * Typed members for configs: absent or null gives the fallback, another type or a value outside
 * [min, max] is OZ_ERR_FORMAT with file name, key and what was found.
 */
OZ_MUST_USE enum oz_status oz_json_get_integer(const struct oz_json *v, const char *key,
                                               int64_t fallback, int64_t min, int64_t max,
                                               int64_t *out, const char *name,
                                               struct oz_error *err);
OZ_MUST_USE enum oz_status oz_json_get_number(const struct oz_json *v, const char *key,
                                              double fallback, double *out, const char *name,
                                              struct oz_error *err);
OZ_MUST_USE enum oz_status oz_json_get_bool(const struct oz_json *v, const char *key, bool fallback,
                                            bool *out, const char *name, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_json_get_string(const struct oz_json *v, const char *key,
                                              const char *fallback, const char **out,
                                              const char *name, struct oz_error *err);

/* Warns in the log (topic "load") of each member of an object whose key is not among `known`: it has
 * no effect; the nearest known key is named. Bookkeeping ("_...") and nulls are passed over. */
void oz_json_warn_unknown(const struct oz_json *v, const char *const *known, size_t count,
                          const char *name);

#endif
