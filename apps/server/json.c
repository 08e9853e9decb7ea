#include "json.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static json_t *of(const struct sv_json *value)
{
    return (json_t *)(uintptr_t)value;
}

static struct sv_json *as(json_t *value)
{
    return (struct sv_json *)(void *)value;
}

/* The deepest nesting of brackets outside of strings: found before anything is built of them. */
static int depth_of(const char *text, size_t bytes)
{
    int depth = 0, deepest = 0;
    bool inside = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (inside) {
            i += c == '\\';
            inside = c != '"';
        } else if (c == '"') {
            inside = true;
        } else if (c == '[' || c == '{') {
            depth++;
            deepest = depth > deepest ? depth : deepest;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return deepest;
}

/* In want of memory jansson blames the text in places, and in others goes on with a letter lost: its
 * allocations tell. */
static _Thread_local bool starved;

static void *take(size_t bytes)
{
    void *data = malloc(bytes);
    starved = starved || data == NULL;
    return data;
}

static void take_over(void)
{
    json_set_alloc_funcs(take, free);
}

struct sv_json *sv_json_parse(const char *text, size_t bytes, int depth, char *why, size_t room)
{
    if (depth_of(text, bytes) > depth) {
        (void)snprintf(why, room, "The JSON nests deeper than %d levels.", depth);
        return NULL;
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    json_error_t error;
    (void)pthread_once(&once, take_over);
    starved = false;
    json_t *document = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (starved) {
        json_decref(document);
        document = NULL;
        (void)snprintf(why, room, SV_JSON_NO_MEMORY);
    } else if (document == NULL) {
        /* What jansson quotes of the text is cut off: a log line is no place for it. */
        char *near = strstr(error.text, " near '");
        if (near != NULL) {
            *near = '\0';
        }
        (void)snprintf(why, room, "This is not valid JSON: line %d, column %d: %s.", error.line,
                       error.column, error.text);
    }
    return as(document);
}

void sv_json_free(struct sv_json *document)
{
    json_decref(of(document));
}

enum sv_json_type sv_json_type(const struct sv_json *value)
{
    switch (json_typeof(of(value))) {
    case JSON_OBJECT: return SV_JSON_OBJECT;
    case JSON_ARRAY: return SV_JSON_ARRAY;
    case JSON_STRING: return SV_JSON_STRING;
    case JSON_INTEGER: return SV_JSON_INTEGER;
    case JSON_REAL: return SV_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return SV_JSON_BOOL;
    default: return SV_JSON_NULL;
    }
}

const char *sv_json_type_name(enum sv_json_type type)
{
    static const char *const names[] = {"null",     "true or false", "a whole number", "a number",
                                        "a string", "an array",      "an object"};
    return names[type];
}

const struct sv_json *sv_json_get(const struct sv_json *object, const char *name)
{
    return as(json_object_get(of(object), name));
}

bool sv_json_member(const struct sv_json *object, size_t i, const char **name,
                    const struct sv_json **value)
{
    void *at = json_object_iter(of(object));
    for (; at != NULL && i > 0; i--) {
        at = json_object_iter_next(of(object), at);
    }
    if (at == NULL) {
        return false;
    }
    *name = json_object_iter_key(at);
    *value = as(json_object_iter_value(at));
    return true;
}

size_t sv_json_count(const struct sv_json *value)
{
    return json_is_array(of(value)) ? json_array_size(of(value)) : json_object_size(of(value));
}

const struct sv_json *sv_json_at(const struct sv_json *array, size_t i)
{
    return as(json_array_get(of(array), i));
}

const char *sv_json_string(const struct sv_json *value)
{
    return json_string_value(of(value));
}

int64_t sv_json_integer(const struct sv_json *value)
{
    return json_integer_value(of(value));
}

double sv_json_number(const struct sv_json *value)
{
    return json_number_value(of(value));
}

bool sv_json_true(const struct sv_json *value)
{
    return json_is_true(of(value));
}

/* ---- writing ---- */

static void put_quoted(struct sv_text *out, const char *string)
{
    sv_text_add(out, "\"", 1);
    for (const char *p = string; *p != '\0';) {
        size_t plain = 0;
        while ((unsigned char)p[plain] >= ' ' && p[plain] != '"' && p[plain] != '\\' &&
               p[plain] != 0x7f) {
            plain++;
        }
        sv_text_add(out, p, plain);
        p += plain;
        if (*p == '"' || *p == '\\') {
            sv_text_printf(out, "\\%c", *p++);
        } else if (*p != '\0') {
            sv_text_printf(out, "\\u%04x", (unsigned)(unsigned char)*p++);
        }
    }
    sv_text_add(out, "\"", 1);
}

/* The comma and the name in front of a value. No value ends in a character that opens one. */
static void begin(struct sv_text *out, const char *name)
{
    char last = out->bytes > 0 ? out->data[out->bytes - 1] : '{';
    if (last != '{' && last != '[' && last != ':' && last != ' ' && last != '\n') {
        sv_text_add(out, ",", 1);
    }
    if (name != NULL) {
        put_quoted(out, name);
        sv_text_add(out, ":", 1);
    }
}

void sv_json_open(struct sv_text *out, const char *name, char bracket)
{
    begin(out, name);
    sv_text_add(out, &bracket, 1);
}

void sv_json_close(struct sv_text *out, char bracket)
{
    sv_text_add(out, &bracket, 1);
}

void sv_json_put_string(struct sv_text *out, const char *name, const char *value)
{
    begin(out, name);
    if (value == NULL) {
        sv_text_put(out, "null");
    } else {
        put_quoted(out, value);
    }
}

void sv_json_put_integer(struct sv_text *out, const char *name, int64_t value)
{
    begin(out, name);
    sv_text_printf(out, "%lld", (long long)value);
}

void sv_json_put_unsigned(struct sv_text *out, const char *name, uint64_t value)
{
    begin(out, name);
    sv_text_printf(out, "%llu", (unsigned long long)value);
}

void sv_json_put_number(struct sv_text *out, const char *name, double value)
{
    begin(out, name);
    if (isfinite(value)) {
        sv_text_printf(out, "%.10g", value);
    } else {
        sv_text_put(out, "null");
    }
}

void sv_json_put_bool(struct sv_text *out, const char *name, bool value)
{
    begin(out, name);
    sv_text_put(out, value ? "true" : "false");
}

void sv_json_put_base64(struct sv_text *out, const char *name, const void *data, size_t bytes)
{
    begin(out, name);
    sv_text_add(out, "\"", 1);
    sv_text_base64(out, data, bytes);
    sv_text_add(out, "\"", 1);
}

void sv_json_put_raw(struct sv_text *out, const char *name, const char *value)
{
    begin(out, name);
    sv_text_put(out, value);
}
