#include "study/assignment_text.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "plan/plan.h"

struct writing {
    struct oz_buf *b;
    const struct oz_layer_table *t;
    const char *const *values;
    bool *done;
};

static bool same_list(const struct writing *w, int32_t a, int32_t b)
{
    struct oz_plan_parts x = oz_plan_parts_of(&w->t->rows[a]), y = oz_plan_parts_of(&w->t->rows[b]);
    return x.before == y.before && memcmp(x.module, y.module, x.before) == 0;
}

static bool same_type(const struct writing *w, int32_t a, int32_t b)
{
    return same_list(w, a, b) && strcmp(oz_plan_parts_of(&w->t->rows[a]).type,
                                        oz_plan_parts_of(&w->t->rows[b]).type) == 0;
}

static bool has_value(const struct writing *w, int32_t row, const char *value)
{
    return w->values[row] != NULL && strcmp(w->values[row], value) == 0;
}

/* Row of the same type as `row` in another block; -1: there is none. */
static int32_t in_block(const struct writing *w, int32_t row, int32_t block)
{
    for (int32_t i = 0; i < w->t->count; i++) {
        if (w->t->rows[i].kind == w->t->rows[row].kind && w->t->rows[i].block_number == block &&
            same_type(w, row, i)) {
            return i;
        }
    }
    return -1;
}

static int32_t blocks(const struct writing *w, int32_t row)
{
    int32_t most = 0;
    for (int32_t i = 0; i < w->t->count; i++) {
        if (same_list(w, row, i) && w->t->rows[i].block_number > most) {
            most = w->t->rows[i].block_number;
        }
    }
    return most;
}

/* Do the types of two rows have this value in the same blocks? */
static bool same_blocks(const struct writing *w, int32_t a, int32_t b, const char *value)
{
    for (int32_t k = 1; k <= blocks(w, a); k++) {
        int32_t x = in_block(w, a, k), y = in_block(w, b, k);
        bool p = x >= 0 && has_value(w, x, value), q = y >= 0 && has_value(w, y, value);
        if (p != q) {
            return false;
        }
    }
    return true;
}

static void put_pattern(struct oz_buf *b, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '.') {
            oz_buf_puts(b, "[.]");
        } else if (strchr("\\^$|()[]{}*+?\"", text[i]) != NULL) {
            oz_buf_printf(b, "[%c]", text[i]);
        } else {
            oz_buf_append(b, &text[i], 1);
        }
    }
}

/* "transformer_blocks[.](0|3)[.]" or "transformer_blocks[.][0-9]+[.]" */
static void put_blocks(const struct writing *w, int32_t row, const char *value)
{
    struct oz_plan_parts p = oz_plan_parts_of(&w->t->rows[row]);
    int32_t count = blocks(w, row), hits = 0;
    bool bar = false;
    put_pattern(w->b, p.module, p.before);
    for (int32_t k = 1; k <= count; k++) {
        int32_t i = in_block(w, row, k);
        hits += i >= 0 && has_value(w, i, value);
    }
    if (hits == count) {
        oz_buf_puts(w->b, "[0-9]+[.]");
        return;
    }
    oz_buf_puts(w->b, "(");
    for (int32_t k = 1; k <= count; k++) {
        int32_t i = in_block(w, row, k);
        if (i >= 0 && has_value(w, i, value)) {
            oz_buf_printf(w->b, "%s%d", bar ? "|" : "", k - 1);
            bar = true;
        }
    }
    oz_buf_puts(w->b, ")[.]");
}

/* One pattern for the row and all that can share it. */
static void put_target(const struct writing *w, int32_t row)
{
    const char *value = w->values[row];
    bool inside = oz_plan_parts_of(&w->t->rows[row]).before > 0, bar = false;
    oz_buf_puts(w->b, "\"re:");
    if (inside) {
        put_blocks(w, row, value);
    }
    oz_buf_puts(w->b, "(");
    for (int32_t i = row; i < w->t->count; i++) {
        if (w->done[i] || !has_value(w, i, value) || !same_list(w, row, i) ||
            (inside && !same_blocks(w, row, i, value))) {
            continue;
        }
        const char *type = oz_plan_parts_of(&w->t->rows[i]).type;
        oz_buf_puts(w->b, bar ? "|" : "");
        put_pattern(w->b, type, strlen(type));
        bar = true;
        for (int32_t k = i; k < w->t->count; k++) {
            w->done[k] = w->done[k] || (has_value(w, k, value) && same_type(w, i, k));
        }
    }
    oz_buf_printf(w->b, ")$\": %s", value);
}

enum oz_status oz_assignment_text(struct oz_buf *b, const struct oz_layer_table *table,
                                  const char *const *values, struct oz_error *err)
{
    struct writing w = {.b = b, .t = table, .values = values};
    bool any = false;
    w.done = oz_alloc_zero((size_t)table->count + 1, sizeof *w.done);
    if (w.done == NULL) {
        return OZ_FAIL_NOMEM(err, "a quantization config");
    }
    oz_buf_puts(b, "{\"targets\": {");
    for (int32_t i = 0; i < table->count; i++) {
        if (values[i] != NULL && !w.done[i]) {
            oz_buf_puts(b, any ? ", " : "");
            put_target(&w, i);
            any = true;
        }
    }
    oz_buf_puts(b, "}}");
    oz_free(w.done);
    if (!any) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Nothing is quantized: there is no config to write.");
    }
    return b->status == OZ_OK ? OZ_OK
                              : OZ_FAIL(err, b->status, "A quantization config is too long.");
}
