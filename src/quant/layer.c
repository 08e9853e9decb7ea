#include "quant/layer.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define ROLE_NAME(id, name) name,
static const char *const role_names[] = {OZ_ROLE_MAP(ROLE_NAME)};

const char *oz_role_name(enum oz_role role)
{
    return (unsigned)role < OZ_ROLE_COUNT ? role_names[role] : "?";
}

enum oz_status oz_layer_table_init(struct oz_layer_table *t, struct oz_arena *arena,
                                   const char *component, int32_t max_rows, int32_t max_ignores)
{
    void *rows = NULL;
    void *order = NULL;
    void *ignores = NULL;
    *t = (struct oz_layer_table){.arena = arena, .component = component};
    OZ_TRY(oz_arena_push(arena, (size_t)max_rows * sizeof *t->rows, &rows));
    OZ_TRY(oz_arena_push(arena, (size_t)max_rows * sizeof *t->by_name, &order));
    OZ_TRY(oz_arena_push(arena, (size_t)max_ignores * sizeof *t->ignores, &ignores));
    t->rows = rows;
    t->by_name = order;
    t->ignores = ignores;
    t->capacity = max_rows;
    t->ignore_capacity = max_ignores;
    return OZ_OK;
}

const char *oz_layer_string(struct oz_layer_table *t, const char *format, ...)
{
    if (t->status != OZ_OK) {
        return NULL;
    }
    va_list args;
    va_start(args, format);
    const char *text = oz_arena_vprintf(t->arena, format, args);
    va_end(args);
    if (text == NULL) {
        t->status = OZ_ERR_NOMEM;
    }
    return text;
}

void oz_layer_add(struct oz_layer_table *t, const struct oz_layer *row, const char *format, ...)
{
    if (t->status != OZ_OK) {
        return;
    }
    if (t->count == t->capacity) {
        t->status = OZ_ERR_INTERNAL;
        return;
    }
    va_list args;
    va_start(args, format);
    const char *name = oz_arena_vprintf(t->arena, format, args);
    va_end(args);
    if (name == NULL) {
        t->status = OZ_ERR_NOMEM;
        return;
    }
    const char *dot = strrchr(name, '.');
    const char *module =
        oz_layer_string(t, "%.*s", dot != NULL ? (int)(dot - name) : (int)strlen(name), name);
    if (module == NULL) {
        return;
    }
    struct oz_layer *r = &t->rows[t->count++];
    *r = *row;
    r->name = name;
    r->module = module;
    if (r->file_rank == 0) {
        r->file_rank = r->rank;
        memcpy(r->file_shape, r->shape, sizeof r->file_shape);
    }
}

void oz_layer_ignore(struct oz_layer_table *t, const struct oz_ignore *rule)
{
    if (t->status != OZ_OK) {
        return;
    }
    if (t->ignore_count == t->ignore_capacity) {
        t->status = OZ_ERR_INTERNAL;
        return;
    }
    t->ignores[t->ignore_count++] = *rule;
}

static int by_name(const void *a, const void *b, void *rows)
{
    const struct oz_layer *r = rows;
    return strcmp(r[*(const int32_t *)a].name, r[*(const int32_t *)b].name);
}

enum oz_status oz_layer_table_finish(struct oz_layer_table *t, struct oz_error *err)
{
    if (t->status == OZ_ERR_NOMEM) {
        return OZ_FAIL_NOMEM(err, "the layer table");
    }
    if (t->status != OZ_OK) {
        return OZ_FAIL(err, t->status, "The layer table of %s has room for %d rows and %d rules.",
                       t->component, t->capacity, t->ignore_capacity);
    }
    for (int32_t i = 0; i < t->count; i++) {
        t->by_name[i] = i;
    }
    qsort_r(t->by_name, (size_t)t->count, sizeof *t->by_name, by_name, t->rows);
    for (int32_t i = 1; i < t->count; i++) {
        const char *name = t->rows[t->by_name[i]].name;
        if (strcmp(t->rows[t->by_name[i - 1]].name, name) == 0) {
            return OZ_FAIL(err, OZ_ERR_INTERNAL, "The layer table of %s has %s twice.",
                           t->component, name);
        }
    }
    return OZ_OK;
}

const struct oz_layer *oz_layer_find(const struct oz_layer_table *t, const char *name)
{
    int32_t low = 0;
    int32_t high = t->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const struct oz_layer *r = &t->rows[t->by_name[middle]];
        int order = strcmp(name, r->name);
        if (order == 0) {
            return r;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

/* Whole dotted segments at the start or the end of a name. */
static bool has_prefix(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && (name[n] == '.' || name[n] == '\0');
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name);
    size_t m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0 && (n == m || name[n - m - 1] == '.');
}

const struct oz_ignore *oz_layer_ignored(const struct oz_layer_table *t, const char *tensor)
{
    for (int32_t i = 0; i < t->ignore_count; i++) {
        const struct oz_ignore *rule = &t->ignores[i];
        if ((rule->prefix == NULL || has_prefix(tensor, rule->prefix)) &&
            (rule->suffix == NULL || has_suffix(tensor, rule->suffix))) {
            return rule;
        }
    }
    return NULL;
}
