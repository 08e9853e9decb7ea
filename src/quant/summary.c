/* summary.c: an assignment in one line, in the form of vllm-online 4.1. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "quant/assign.h"

/* Behind a block's number, the first of the name: "transformer_blocks.0.attn.to_out.0" is of the
 * type "attn.to_out.0". The whole name outside of blocks. */
static const char *type_of(const struct oz_layer *row)
{
    const char *at = row->module;
    while (row->block_number > 0 && at != NULL) {
        size_t digits = strspn(at, "0123456789");
        if (digits > 0 && at[digits] == '.') {
            return at + digits + 1;
        }
        at = strchr(at, '.');
        at = at != NULL ? at + 1 : NULL;
    }
    return row->module;
}

static int by_entry(const void *a, const void *b, void *assignment)
{
    const struct oz_assignment *s = assignment;
    int32_t i = *(const int32_t *)a;
    int32_t k = *(const int32_t *)b;
    const struct oz_choice *c = &s->choices[i];
    const struct oz_choice *d = &s->choices[k];
    int order = strcmp(type_of(&s->table->rows[i]), type_of(&s->table->rows[k]));
    order = order != 0 ? order : strcmp(oz_source_name(c->source), oz_source_name(d->source));
    if (order == 0 && c->source == OZ_SOURCE_TARGETS) {
        order = strcmp(c->rule, d->rule);
    }
    return order != 0 ? order : strcmp(c->scheme.name, d->scheme.name);
}

enum oz_status oz_assignment_summary(const struct oz_assignment *a, struct oz_arena *arena,
                                     const char **line, struct oz_error *err)
{
    struct oz_buf b;
    void *memory = NULL;
    int32_t count = 0;
    *line = NULL;
    size_t mark = oz_arena_mark(arena);
    if (oz_arena_push(arena, (size_t)a->table->count * sizeof(int32_t), &memory) != OZ_OK) {
        return OZ_FAIL_NOMEM(err, "the summary of an assignment");
    }
    int32_t *rows = memory;
    for (int32_t i = 0; i < a->table->count; i++) {
        if (a->choices[i].scheme.codec != NULL && a->choices[i].source != OZ_SOURCE_CHECKPOINT) {
            rows[count++] = i;
        }
    }
    qsort_r(rows, (size_t)count, sizeof *rows, by_entry, (void *)(uintptr_t)a);
    oz_buf_init(&b, 1U << 24);
    oz_buf_printf(&b, "Quantized %d layers of types: ", count);
    for (int32_t i = 0, next; i < count; i = next) {
        const struct oz_choice *c = &a->choices[rows[i]];
        for (next = i + 1; next < count;) {
            if (by_entry(&rows[i], &rows[next], (void *)(uintptr_t)a) != 0) {
                break;
            }
            next++;
        }
        oz_buf_printf(&b, "%s%s: %d (from %s: %s%s%s)", i > 0 ? "; " : "",
                      type_of(&a->table->rows[rows[i]]), next - i, oz_source_name(c->source),
                      c->source == OZ_SOURCE_TARGETS ? c->rule : "",
                      c->source == OZ_SOURCE_TARGETS ? ", " : "", c->scheme.name);
    }
    oz_arena_reset(arena, mark);
    *line = b.status == OZ_OK
                ? oz_arena_string(arena, count > 0 ? oz_buf_text(&b) : "Quantized 0 layers.")
                : NULL;
    oz_buf_deinit(&b);
    return *line != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "the summary of an assignment");
}
