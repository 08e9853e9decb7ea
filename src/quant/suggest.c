/* suggest.c: what a pattern that matched nothing may have been meant to be. */
#include <string.h>

#include "base/alloc.h"
#include "base/names.h"
#include "quant/rules.h"

enum { MAX_NAMES = 4096 };

struct names {
    const char *items[MAX_NAMES];
    char *owned[MAX_NAMES]; /* segments cut out of names */
    size_t count, owned_count;
};

static bool has(const struct names *n, const char *text, size_t bytes)
{
    for (size_t i = 0; i < n->count; i++) {
        if (strncmp(n->items[i], text, bytes) == 0 && n->items[i][bytes] == '\0') {
            return true;
        }
    }
    return false;
}

/* Adds text[0 .. bytes); memory that is missing only makes the list shorter. */
static void add(struct names *n, const char *text, size_t bytes)
{
    if (n->count == MAX_NAMES || bytes == 0 || strspn(text, "0123456789") >= bytes ||
        has(n, text, bytes)) {
        return;
    }
    if (text[bytes] == '\0') {
        n->items[n->count++] = text;
        return;
    }
    char *copy = oz_alloc_zero(1, bytes + 1);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
        n->owned[n->owned_count++] = copy;
        n->items[n->count++] = copy;
    }
}

/* Every segment, and every run of them up to the end that does not begin in the middle of a block's
 * path: "attn", "to_q", "attn.to_q". */
static void add_runs(struct names *n, const char *name)
{
    const char *at = name;
    for (;;) {
        size_t segment = strcspn(at, ".");
        add(n, at, segment);
        if (at[segment] == '\0') {
            return;
        }
        if (at != name) {
            add(n, at, strlen(at));
        }
        at += segment + 1;
    }
}

/* The pattern without what only a pattern has: "re:.*img_mpl.*" is meant to be near "img_mlp". */
static void strip(char *out, size_t out_bytes, const char *pattern)
{
    size_t n = 0;
    pattern += strncmp(pattern, "re:", 3) == 0 ? 3 : 0;
    pattern += strspn(pattern, ".*^\\");
    for (; *pattern != '\0' && n + 1 < out_bytes; pattern++) {
        if (strchr("*^$\\", *pattern) == NULL) {
            out[n++] = *pattern;
        }
    }
    while (n > 0 && out[n - 1] == '.') {
        n--;
    }
    out[n] = '\0';
}

static bool is_layer(const struct oz_layer *row)
{
    return row->kind == OZ_LAYER_LINEAR || row->kind == OZ_LAYER_EXPERTS;
}

static const char *name_of(const struct oz_layer *row)
{
    return row->kind == OZ_LAYER_EXPERTS && row->fused != NULL ? row->fused : row->module;
}

static void list_layers(struct oz_buf *b, struct names *n, const struct oz_layer_table *table)
{
    struct oz_buf list;
    n->count = 0;
    for (int32_t i = 0; i < table->count && n->count < MAX_NAMES; i++) {
        if (is_layer(&table->rows[i])) {
            n->items[n->count++] = name_of(&table->rows[i]);
        }
    }
    oz_buf_init(&list, 1U << 20);
    oz_names_fold(&list, n->items, n->count);
    oz_buf_printf(b, ". Its layers are: %.1500s%s.", oz_buf_text(&list),
                  list.bytes > 1500 ? " ..." : "");
    oz_buf_deinit(&list);
}

void oz_rules_suggest(struct oz_buf *b, const char *pattern, const struct oz_layer_table *table)
{
    char bare[256];
    struct names *n = oz_alloc_zero(1, sizeof *n);
    if (n == NULL) {
        return;
    }
    strip(bare, sizeof bare, pattern);
    size_t component = strlen(table->component);
    const char *relative = strncmp(bare, table->component, component) == 0 && bare[component] == '.'
                               ? bare + component + 1
                               : bare;
    for (int32_t i = 0; i < table->count; i++) {
        if (is_layer(&table->rows[i])) {
            const char *name = name_of(&table->rows[i]);
            add_runs(n, name);
            if (n->count < MAX_NAMES && strchr(relative, '.') != NULL) {
                n->items[n->count++] = name;
            }
            if (table->rows[i].fused != NULL) {
                add_runs(n, table->rows[i].fused);
            }
        }
    }
    const char *near = *relative != '\0' ? oz_names_nearest(relative, n->items, n->count) : NULL;
    if (near != NULL) {
        oz_buf_printf(b, "; did you mean \"%s\"?", near);
    } else {
        list_layers(b, n, table);
    }
    for (size_t i = 0; i < n->owned_count; i++) {
        oz_free(n->owned[i]);
    }
    oz_free(n);
}
