/*
 * A parser for JSON (RFC 8259) as strict as a reader of strangers' files must be: no member twice, no
 * invalid UTF-8, no zero bytes, limited depth, no number that does not fit. One pass over the text; the
 * tree lies in a few large blocks, so that vocabularies of 150,000 entries are read in milliseconds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_tree.h"
#include "base/unicode.h"

#define MAX_DEPTH 64
#define MAX_NUMBER_BYTES 512
#define BLOCK_BYTES ((size_t)1 << 16)

/* An open list or object: where its items begin on the stack of values. */
struct level {
    size_t first;
    const char *key; /* of the container itself */
    bool object;
};

struct parser {
    const char *text, *at, *end;
    const char *name; /* of the text, for messages */
    struct oz_error *err;
    struct oz_json_document *document;
    uint8_t *free; /* in the newest block */
    size_t free_bytes, block_bytes;
    struct oz_json *stack; /* values whose container is open */
    size_t count, capacity;
    struct level levels[MAX_DEPTH];
    size_t depth;
};

/* ---- memory ---- */

void oz_json_document_free(struct oz_json_document *d)
{
    if (d == NULL) {
        return;
    }
    for (struct oz_json_names *n = d->names; n != NULL; n = n->next) {
        oz_string_map_deinit(&n->map);
    }
    for (struct oz_json_block *b = d->blocks, *next; b != NULL; b = next) {
        next = b->next;
        oz_free(b);
    }
    oz_free(d);
}

/* Memory that lives as long as the document, aligned for anything; NULL without. */
static void *take(struct parser *p, size_t bytes)
{
    const size_t align = _Alignof(struct oz_json);
    bytes = (bytes + align - 1) / align * align;
    if (bytes > p->free_bytes) {
        size_t want = p->block_bytes > bytes ? p->block_bytes : bytes;
        struct oz_json_block *b = oz_alloc(sizeof *b + want);
        if (b == NULL) {
            return NULL;
        }
        b->next = p->document->blocks;
        p->document->blocks = b;
        p->free = (uint8_t *)(b + 1);
        p->free_bytes = want;
        p->block_bytes = want < (size_t)1 << 22 ? 2 * want : want; /* few blocks, little waste */
    }
    void *memory = p->free;
    p->free += bytes;
    p->free_bytes -= bytes;
    return memory;
}

/* ---- errors ---- */

/* Fails at a place of the text, as line and column in bytes, both from 1. */
static enum oz_status fail_at(const struct parser *p, const char *at, const char *what)
{
    size_t line = 1;
    const char *begin = p->text;
    for (const char *c = p->text; c < at; c++) {
        if (*c == '\n') {
            line++;
            begin = c + 1;
        }
    }
    return OZ_FAIL(p->err, OZ_ERR_FORMAT, "%s is not valid JSON: %s (line %zu, column %zu).",
                   p->name, what, line, (size_t)(at - begin) + 1);
}

static enum oz_status fail(const struct parser *p, const char *what)
{
    return fail_at(p, p->at, p->at == p->end ? "it ends too early" : what);
}

static enum oz_status fail_memory(const struct parser *p)
{
    return OZ_FAIL_NOMEM(p->err, p->name);
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The four digits at `c`; -1 when they are not there. */
static int32_t hex4(const struct parser *p, const char *c)
{
    int32_t value = 0;
    if (p->end - c < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(c[i]);
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* What stands behind "\u"; advances behind it. */
static enum oz_status read_code_point(struct parser *p, uint32_t *out)
{
    int32_t high = hex4(p, p->at);
    if (high < 0) {
        return fail(p, "four hexadecimal digits must follow \\u");
    }
    if (high == 0) {
        return fail(p, "\\u0000 is not allowed");
    }
    p->at += 4;
    *out = (uint32_t)high;
    if (high < 0xD800 || high > 0xDFFF) {
        return OZ_OK;
    }
    int32_t low =
        p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'u' ? hex4(p, p->at + 2) : -1;
    if (high > 0xDBFF || low < 0xDC00 || low > 0xDFFF) {
        return fail(p, "half a surrogate pair is no Unicode character");
    }
    p->at += 6;
    *out = 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
    return OZ_OK;
}

/* One escape behind its backslash, appended at *to. */
static enum oz_status read_escape(struct parser *p, char **to)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end) {
        return fail(p, "");
    }
    char c = *p->at++;
    if (c == 'u') {
        uint32_t code_point = 0;
        OZ_TRY(read_code_point(p, &code_point));
        *to += oz_utf8_encode(code_point, *to);
        return OZ_OK;
    }
    const char *found = c != '\0' ? strchr(from, c) : NULL;
    if (found == NULL) {
        p->at--;
        return fail(p, "unknown escape behind a backslash");
    }
    *(*to)++ = into[found - from];
    return OZ_OK;
}

/* Does a byte of a string stand for itself? */
static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

/* A string, from its quote on. Escapes never grow, so the room for the written form does. */
static enum oz_status read_string(struct parser *p, const char **out)
{
    const char *begin = p->at + 1;
    const char *close = begin;
    while (close < p->end && *close != '"') {
        close += *close == '\\' && p->end - close > 1 ? 2 : 1;
    }
    if (close >= p->end) {
        p->at = p->end;
        return fail(p, "");
    }
    char *text = take(p, (size_t)(close - begin) + 1);
    if (text == NULL) {
        return fail_memory(p);
    }
    char *to = text;
    p->at = begin;
    while (p->at < close) {
        const char *run = p->at;
        while (p->at < close && is_plain(*p->at)) {
            p->at++;
        }
        memcpy(to, run, (size_t)(p->at - run));
        to += p->at - run;
        if (p->at < close && *p->at == '\\') {
            p->at++;
            OZ_TRY(read_escape(p, &to));
        } else if (p->at < close) {
            return fail(p, "a control character must be escaped");
        }
    }
    *to = '\0';
    p->at = close + 1;
    *out = text;
    return OZ_OK;
}

/* ---- numbers ---- */

static bool is_digit(const struct parser *p, const char *c)
{
    return c < p->end && *c >= '0' && *c <= '9';
}

static enum oz_status take_integer(struct parser *p, const char *begin, const char *end,
                                   struct oz_json *v)
{
    bool negative = *begin == '-';
    int64_t value = 0;
    for (const char *c = begin + negative; c < end; c++) {
        int64_t digit = negative ? '0' - *c : *c - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return fail_at(p, begin, negative ? "too big negative integer" : "too big integer");
        }
    }
    v->type = OZ_JSON_INTEGER;
    v->integer = value;
    return OZ_OK;
}

/* Digits with the point taken out and its place put into the exponent: what strtod reads alike in
 * every locale. `point` is NULL without one, `exponent` points behind the 'e' or is NULL. */
static enum oz_status take_real(struct parser *p, const char *begin, const char *end,
                                const char *point, const char *exponent, struct oz_json *v)
{
    char digits[MAX_NUMBER_BYTES + 32];
    size_t n = 0;
    const char *mantissa_end = exponent != NULL ? exponent - 1 : end;
    for (const char *c = begin; c < mantissa_end; c++) {
        if (c != point) {
            digits[n++] = *c;
        }
    }
    long long power = 0;
    if (exponent != NULL) {
        bool negative = *exponent == '-';
        for (const char *c = exponent + (*exponent == '-' || *exponent == '+'); c < end; c++) {
            power = power < 100000 ? 10 * power + (*c - '0') : power;
        }
        power = negative ? -power : power;
    }
    power -= point != NULL ? mantissa_end - point - 1 : 0;
    (void)snprintf(digits + n, sizeof digits - n, "e%lld", power);
    v->type = OZ_JSON_REAL;
    v->real = strtod(digits, NULL);
    return isfinite(v->real) ? OZ_OK : fail_at(p, begin, "real number overflow");
}

static enum oz_status read_number(struct parser *p, struct oz_json *v)
{
    const char *begin = p->at;
    const char *c = begin + (*begin == '-');
    const char *point = NULL;
    const char *exponent = NULL;
    const char *first = c;
    while (is_digit(p, c)) {
        c++;
    }
    p->at = c;
    if (c == first || (*first == '0' && c - first > 1)) {
        p->at = c == first ? c : first;
        return fail(p, "a value was expected");
    }
    if (c < p->end && *c == '.') {
        point = c++;
        p->at = c;
        if (!is_digit(p, c)) {
            return fail(p, "a digit must follow the point");
        }
        while (is_digit(p, c)) {
            c++;
        }
    }
    if (c < p->end && (*c == 'e' || *c == 'E')) {
        exponent = ++c;
        c += c < p->end && (*c == '-' || *c == '+');
        p->at = c;
        if (!is_digit(p, c)) {
            return fail(p, "a digit must follow in the exponent");
        }
        while (is_digit(p, c)) {
            c++;
        }
    }
    p->at = c;
    if (c - begin > MAX_NUMBER_BYTES) {
        return fail_at(p, begin, "the number has too many digits");
    }
    return point == NULL && exponent == NULL ? take_integer(p, begin, c, v)
                                             : take_real(p, begin, c, point, exponent, v);
}

/* ---- values ---- */

static void skip_blanks(struct parser *p)
{
    while (p->at < p->end &&
           (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t')) {
        p->at++;
    }
}

static bool next_is(struct parser *p, char c)
{
    skip_blanks(p);
    return p->at < p->end && *p->at == c;
}

static enum oz_status push(struct parser *p, const struct oz_json *v)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity + p->capacity / 2 + 64;
        struct oz_json *stack = oz_realloc(p->stack, capacity * sizeof *stack);
        if (stack == NULL) {
            return fail_memory(p);
        }
        p->stack = stack;
        p->capacity = capacity;
    }
    p->stack[p->count++] = *v;
    return OZ_OK;
}

static enum oz_status fail_twice(const struct parser *p, const char *key)
{
    return OZ_FAIL(p->err, OZ_ERR_FORMAT,
                   "%s is not valid JSON: duplicate key \"%.200s\" in an object.", p->name, key);
}

/* Names of an object, each once; those of a large one go into a map. */
static enum oz_status index_names(struct parser *p, struct oz_json *object)
{
    if (object->count <= OZ_JSON_FEW) {
        for (uint32_t i = 0; i < object->count; i++) {
            for (uint32_t j = 0; j < i; j++) {
                if (strcmp(object->items[i].key, object->items[j].key) == 0) {
                    return fail_twice(p, object->items[i].key);
                }
            }
        }
        return OZ_OK;
    }
    struct oz_json_names *names = take(p, sizeof *names);
    if (names == NULL) {
        return fail_memory(p);
    }
    OZ_TRY(oz_string_map_init(&names->map, object->count, p->err));
    names->next = p->document->names;
    p->document->names = names;
    object->names = names;
    for (uint32_t i = 0; i < object->count; i++) {
        const char *key = object->items[i].key;
        if (!oz_string_map_put(&names->map, key, strlen(key), (int32_t)i)) {
            return fail_twice(p, key);
        }
    }
    return OZ_OK;
}

/* Ends the innermost container: its items move from the stack to their place, and it becomes one. */
static enum oz_status close_container(struct parser *p)
{
    struct level *l = &p->levels[--p->depth];
    size_t count = p->count - l->first;
    struct oz_json v = {.type = l->object ? OZ_JSON_OBJECT : OZ_JSON_ARRAY, .key = l->key};
    p->at++;
    if (count > INT32_MAX) {
        return fail(p, "too many items");
    }
    v.count = (uint32_t)count;
    if (count > 0) {
        v.items = take(p, count * sizeof *v.items);
        if (v.items == NULL) {
            return fail_memory(p);
        }
        memcpy(v.items, p->stack + l->first, count * sizeof *v.items);
        p->count = l->first;
        if (l->object) {
            OZ_TRY(index_names(p, &v));
        }
    }
    return push(p, &v);
}

static enum oz_status read_word(struct parser *p, const char *word, struct oz_json *v)
{
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0) {
        return fail(p, "a value was expected");
    }
    p->at += n;
    v->type = *word == 'n' ? OZ_JSON_NULL : OZ_JSON_BOOL;
    v->boolean = *word == 't';
    return OZ_OK;
}

/* "key": in front of a member. */
static enum oz_status read_key(struct parser *p, const char **key)
{
    if (!next_is(p, '"')) {
        return fail(p, "a key in quotes was expected");
    }
    OZ_TRY(read_string(p, key));
    if (!next_is(p, ':')) {
        return fail(p, "':' was expected");
    }
    p->at++;
    return OZ_OK;
}

/* A value that is no container, or the beginning of one (*opened). */
static enum oz_status read_value(struct parser *p, const char *key, bool *opened)
{
    struct oz_json v = {.type = OZ_JSON_NULL, .key = key};
    *opened = false;
    skip_blanks(p);
    switch (p->at < p->end ? *p->at : '\0') {
    case '{':
    case '[':
        if (p->depth == MAX_DEPTH) {
            return fail(p, "the greatest depth is passed");
        }
        p->levels[p->depth++] =
            (struct level){.first = p->count, .key = key, .object = *p->at == '{'};
        p->at++;
        *opened = true;
        return OZ_OK;
    case '"':
        v.type = OZ_JSON_STRING;
        OZ_TRY(read_string(p, &v.string));
        break;
    case 't': OZ_TRY(read_word(p, "true", &v)); break;
    case 'f': OZ_TRY(read_word(p, "false", &v)); break;
    case 'n': OZ_TRY(read_word(p, "null", &v)); break;
    default: OZ_TRY(read_number(p, &v)); break;
    }
    return push(p, &v);
}

/* What follows a value: the ends of containers, then a comma or the end of it all. */
static enum oz_status after_value(struct parser *p, bool opened)
{
    while (p->depth > 0) {
        char close = p->levels[p->depth - 1].object ? '}' : ']';
        if (next_is(p, close)) {
            OZ_TRY(close_container(p));
            opened = false;
            continue;
        }
        if (!opened && !next_is(p, ',')) {
            return fail(p, close == '}' ? "',' or '}' was expected" : "',' or ']' was expected");
        }
        p->at += !opened;
        return OZ_OK;
    }
    return OZ_OK;
}

static enum oz_status read_document(struct parser *p)
{
    size_t bad;
    if (!oz_utf8_valid(p->text, (size_t)(p->end - p->text), &bad)) {
        return fail_at(p, p->text + bad, "unable to decode byte as UTF-8");
    }
    do {
        const char *key = NULL;
        bool opened;
        if (p->depth > 0 && p->levels[p->depth - 1].object) {
            OZ_TRY(read_key(p, &key));
        }
        OZ_TRY(read_value(p, key, &opened));
        OZ_TRY(after_value(p, opened));
    } while (p->depth > 0);
    skip_blanks(p);
    if (p->at < p->end) {
        return fail(p, "end of file expected");
    }
    p->document->root = p->stack[0];
    return OZ_OK;
}

enum oz_status oz_json_parse(struct oz_json **out, const char *text, size_t bytes, const char *name,
                             struct oz_error *err)
{
    struct parser p = {.text = text,
                       .at = text,
                       .end = text + bytes,
                       .name = name,
                       .err = err,
                       .block_bytes = bytes < BLOCK_BYTES / 4 ? 4 * bytes + 64 : BLOCK_BYTES};
    *out = NULL;
    p.document = oz_alloc_zero(1, sizeof *p.document);
    if (p.document == NULL) {
        return fail_memory(&p);
    }
    enum oz_status status = read_document(&p);
    oz_free(p.stack);
    if (status != OZ_OK) {
        oz_json_document_free(p.document);
        return status;
    }
    *out = &p.document->root;
    return OZ_OK;
}
