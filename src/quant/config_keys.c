/*
 * config_keys.c: dotted keys ("linear.activation=mxfp8") laid over a config (vllm-online 1.2). The
 * config becomes a tree whose leaves are JSON texts; each key is a path in it.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "quant/config_read.h"

struct node {
    const char *key;
    const char *leaf; /* JSON text; NULL: an object with members */
    struct node *first, *next;
};

static enum oz_status fail_full(struct oz_config_reader *r)
{
    return OZ_FAIL(r->err, OZ_ERR_ARG, "The quantization config is too large.");
}

static enum oz_status new_node(struct oz_config_reader *r, const char *key, struct node **out)
{
    void *memory = NULL;
    const char *copy = oz_arena_string(r->arena, key);
    if (copy == NULL || oz_arena_push(r->arena, sizeof **out, &memory) != OZ_OK) {
        return fail_full(r);
    }
    *out = memory;
    **out = (struct node){.key = copy};
    return OZ_OK;
}

/* ---- JSON to tree and to text ---- */

static enum oz_status print(struct oz_config_reader *r, struct oz_buf *b, const struct oz_json *v,
                            int depth)
{
    bool first = true;
    if (depth > OZ_CONFIG_MAX_DEPTH) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "The quantization config is nested more than %d levels deep.",
                       OZ_CONFIG_MAX_DEPTH);
    }
    switch (oz_json_type(v)) {
    case OZ_JSON_BOOL: oz_buf_puts(b, oz_json_bool(v, false) ? "true" : "false"); break;
    case OZ_JSON_INTEGER: oz_buf_printf(b, "%lld", (long long)oz_json_integer(v, 0)); break;
    case OZ_JSON_REAL: oz_buf_number(b, oz_json_number(v, 0)); break;
    case OZ_JSON_STRING: oz_buf_json(b, oz_json_string(v, "")); break;
    case OZ_JSON_ARRAY:
        oz_buf_puts(b, "[");
        for (size_t i = 0; i < oz_json_count(v); i++) {
            oz_buf_puts(b, i > 0 ? "," : "");
            OZ_TRY(print(r, b, oz_json_at(v, i), depth + 1));
        }
        oz_buf_puts(b, "]");
        break;
    case OZ_JSON_OBJECT:
        oz_buf_puts(b, "{");
        for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
            oz_buf_puts(b, first ? "" : ",");
            oz_buf_json(b, oz_json_key(it));
            oz_buf_puts(b, ":");
            OZ_TRY(print(r, b, oz_json_value(it), depth + 1));
            first = false;
        }
        oz_buf_puts(b, "}");
        break;
    case OZ_JSON_NULL:
    default: oz_buf_puts(b, "null"); break;
    }
    return OZ_OK;
}

static enum oz_status set_leaf(struct oz_config_reader *r, struct node *n, const struct oz_json *v)
{
    struct oz_buf b;
    oz_buf_init(&b, OZ_CONFIG_MAX_BYTES);
    enum oz_status status = print(r, &b, v, 0);
    if (status == OZ_OK) {
        n->leaf = b.status == OZ_OK ? oz_arena_string(r->arena, oz_buf_text(&b)) : NULL;
        n->first = NULL;
        status = n->leaf != NULL ? OZ_OK : fail_full(r);
    }
    oz_buf_deinit(&b);
    return status;
}

/* A value becomes the node's: objects as members, everything else as a text. */
static enum oz_status set_value(struct oz_config_reader *r, struct node *n, const struct oz_json *v,
                                int depth)
{
    if (oz_json_type(v) != OZ_JSON_OBJECT) {
        return set_leaf(r, n, v);
    }
    if (depth > OZ_CONFIG_MAX_DEPTH) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "The quantization config is nested more than %d levels deep.",
                       OZ_CONFIG_MAX_DEPTH);
    }
    n->leaf = NULL;
    n->first = NULL;
    struct node **end = &n->first;
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        OZ_TRY(new_node(r, oz_json_key(it), end));
        OZ_TRY(set_value(r, *end, oz_json_value(it), depth + 1));
        end = &(*end)->next;
    }
    return OZ_OK;
}

static void print_tree(struct oz_buf *b, const struct node *n)
{
    if (n->leaf != NULL) {
        oz_buf_puts(b, n->leaf);
        return;
    }
    oz_buf_puts(b, "{");
    for (const struct node *member = n->first; member != NULL; member = member->next) {
        oz_buf_puts(b, member == n->first ? "" : ",");
        oz_buf_json(b, member->key);
        oz_buf_puts(b, ":");
        print_tree(b, member);
    }
    oz_buf_puts(b, "}");
}

/* ---- values ---- */

/* "1k" is 1000, "1K" 1024, "2.5m" 2500000; with a fraction only the decimal ones. */
static bool human_integer(const char *text, int64_t *out)
{
    static const char letters[] = "kmgt";
    size_t digits = strspn(text, "0123456789");
    const char *end = text + digits;
    size_t fraction = 0;
    if (digits == 0 || digits > 15) {
        return false;
    }
    if (*end == '.') {
        fraction = strspn(end + 1, "0123456789");
        end += 1 + fraction;
        if (fraction == 0 || fraction > 12) {
            return false;
        }
    }
    const char *letter = *end != '\0' ? strchr(letters, tolower((unsigned char)*end)) : NULL;
    bool binary = isupper((unsigned char)*end) != 0;
    if (letter == NULL || end[1] != '\0' || (binary && fraction > 0)) {
        return false;
    }
    int64_t value = strtoll(text, NULL, 10);
    int64_t unit = 1;
    for (const char *at = letters; at <= letter; at++) {
        unit *= binary ? 1024 : 1000;
    }
    int64_t part = unit;
    if (__builtin_mul_overflow(value, unit, &value)) {
        return false;
    }
    for (size_t i = 0; i < fraction; i++) {
        int digit = text[digits + 1 + i] - '0';
        if (part % 10 != 0 && digit != 0) {
            return false; /* 1.2345k is no integer */
        }
        part /= 10;
        value += digit * part;
    }
    *out = value;
    return true;
}

/* "a,b" as a JSON array behind what the leaf has. */
static enum oz_status append_list(struct oz_config_reader *r, struct node *n, const char *path,
                                  const char *text)
{
    struct oz_buf b;
    oz_buf_init(&b, OZ_CONFIG_MAX_BYTES);
    if (n->first != NULL ||
        (n->leaf != NULL && n->leaf[0] != '[' && strcmp(n->leaf, "null") != 0)) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "The key \"%.200s\" appends, but what is there is no list.", path);
    }
    bool empty = n->leaf == NULL || n->leaf[0] != '[' || n->leaf[1] == ']';
    oz_buf_printf(&b, "%.*s", empty ? 1 : (int)strlen(n->leaf) - 1, empty ? "[" : n->leaf);
    for (const char *at = text; *at != '\0';) {
        size_t word = strcspn(at, ",");
        char entry[1024];
        if (word >= sizeof entry) {
            oz_buf_deinit(&b);
            return OZ_FAIL(r->err, OZ_ERR_ARG, "An entry of the key \"%.200s\" is too long.", path);
        }
        memcpy(entry, at, word);
        entry[word] = '\0';
        oz_buf_puts(&b, empty ? "" : ",");
        oz_buf_json(&b, entry);
        empty = false;
        at += word;
        at += *at == ',';
    }
    oz_buf_puts(&b, "]");
    n->leaf = b.status == OZ_OK ? oz_arena_string(r->arena, oz_buf_text(&b)) : NULL;
    oz_buf_deinit(&b);
    return n->leaf != NULL ? OZ_OK : fail_full(r);
}

/* Tried as JSON, then as a human-readable integer, else a string. */
static enum oz_status set_text(struct oz_config_reader *r, struct node *n, const char *text)
{
    struct oz_json *v;
    struct oz_buf b;
    int64_t number;
    if (oz_json_parse(&v, text, strlen(text), "value", NULL) == OZ_OK) {
        enum oz_status status = set_value(r, n, v, 0);
        oz_json_free(v);
        return status;
    }
    oz_buf_init(&b, OZ_CONFIG_MAX_BYTES);
    if (human_integer(text, &number)) {
        oz_buf_printf(&b, "%lld", (long long)number);
    } else {
        oz_buf_json(&b, text);
    }
    n->first = NULL;
    n->leaf = b.status == OZ_OK ? oz_arena_string(r->arena, oz_buf_text(&b)) : NULL;
    oz_buf_deinit(&b);
    return n->leaf != NULL ? OZ_OK : fail_full(r);
}

/* ---- keys ---- */

/* The member of that name, made if it is missing. */
static enum oz_status member(struct oz_config_reader *r, struct node *parent, const char *key,
                             struct node **out, bool *made)
{
    struct node **at = &parent->first;
    parent->leaf = NULL;
    while (*at != NULL && strcmp((*at)->key, key) != 0) {
        at = &(*at)->next;
    }
    *made = *at == NULL;
    if (*made) {
        OZ_TRY(new_node(r, key, at));
    }
    *out = *at;
    return OZ_OK;
}

static enum oz_status apply(struct oz_config_reader *r, struct node *root, const char *text)
{
    char path[512];
    size_t bytes = strcspn(text, "=");
    if (text[bytes] != '=' || bytes == 0 || bytes >= sizeof path) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "The quantization key \"%.200s\" must have the form name.name=value.", text);
    }
    memcpy(path, text, bytes);
    path[bytes] = '\0';
    bool append = path[bytes - 1] == '+';
    path[bytes - append] = '\0';
    struct node *n = root;
    bool made = false;
    int depth = 0;
    for (char *at = path; at != NULL;) {
        size_t segment = strcspn(at, ".");
        char *next = at[segment] == '.' ? at + segment + 1 : NULL;
        at[segment] = '\0';
        if (segment == 0 || ++depth > OZ_CONFIG_MAX_DEPTH) {
            return OZ_FAIL(r->err, OZ_ERR_ARG,
                           "The quantization key \"%.200s\" has an empty or too long name.", text);
        }
        if (n->leaf != NULL && n != root) {
            oz_config_note(r, text, "replaces what was given before");
        }
        OZ_TRY(member(r, n, at, &n, &made));
        at = next;
    }
    if (append) {
        return append_list(r, n, text, text + bytes + 1);
    }
    if (!made) {
        oz_config_note(r, text, "given twice (found duplicate keys): the last counts");
    }
    return set_text(r, n, text + bytes + 1);
}

enum oz_status oz_config_apply_keys(struct oz_config_reader *r, const struct oz_json *config,
                                    const char *const *keys, int32_t count, struct oz_buf *out)
{
    struct node root = {.key = ""};
    if (config != NULL) {
        OZ_TRY(set_value(r, &root, config, 0));
    }
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(apply(r, &root, keys[i]));
    }
    print_tree(out, &root);
    return out->status == OZ_OK ? OZ_OK : fail_full(r);
}
