/*
 * json.h: JSON, read (through jansson, which json.c alone knows) and written. A document is bounded
 * before it is read: bytes by the caller, nesting here; names given twice, text that is no UTF-8 and
 * zero characters are refused.
 */
#ifndef OUNCE_SERVER_JSON_H
#define OUNCE_SERVER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

struct sv_json; /* a value; those inside a document live as long as it */

enum sv_json_type {
    SV_JSON_NULL,
    SV_JSON_BOOL,
    SV_JSON_INTEGER,
    SV_JSON_REAL,
    SV_JSON_STRING,
    SV_JSON_ARRAY,
    SV_JSON_OBJECT,
};

/* How deep arrays and objects may nest in a request, and in a file or text of our own. */
enum { SV_JSON_DEPTH_REQUEST = 8, SV_JSON_DEPTH_OWN = 32 };

/* NULL: `why` says what is wrong, as a sentence; this one where nothing is but memory. sv_json_free
 * after. */
#define SV_JSON_NO_MEMORY "Out of memory."
struct sv_json *sv_json_parse(const char *text, size_t bytes, int depth, char *why, size_t room);
void sv_json_free(struct sv_json *document);

enum sv_json_type sv_json_type(const struct sv_json *value);
const char *sv_json_type_name(enum sv_json_type type); /* "a string" */

/* Of an object; NULL: has no such member, or is no object. */
const struct sv_json *sv_json_get(const struct sv_json *object, const char *name);
/* Member i of an object, in the order of the text; false: there are fewer. */
bool sv_json_member(const struct sv_json *object, size_t i, const char **name,
                    const struct sv_json **value);
size_t sv_json_count(const struct sv_json *array_or_object);
const struct sv_json *sv_json_at(const struct sv_json *array, size_t i);

const char *sv_json_string(const struct sv_json *value); /* NULL: is none */
int64_t sv_json_integer(const struct sv_json *value);    /* 0: is none */
double sv_json_number(const struct sv_json *value);      /* integers too; 0: is none */
bool sv_json_true(const struct sv_json *value);

/* ---- writing: values follow each other, commas come by themselves; name NULL in an array ---- */

void sv_json_open(struct sv_text *out, const char *name, char bracket); /* '{' or '[' */
void sv_json_close(struct sv_text *out, char bracket);
void sv_json_put_string(struct sv_text *out, const char *name, const char *value); /* NULL: null */
void sv_json_put_integer(struct sv_text *out, const char *name, int64_t value);
void sv_json_put_unsigned(struct sv_text *out, const char *name, uint64_t value);
void sv_json_put_number(struct sv_text *out, const char *name, double value); /* no number: null */
void sv_json_put_bool(struct sv_text *out, const char *name, bool value);
void sv_json_put_base64(struct sv_text *out, const char *name, const void *data, size_t bytes);
/* A value that is JSON already. */
void sv_json_put_raw(struct sv_text *out, const char *name, const char *value);

#endif
