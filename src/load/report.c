#include "load/report.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"
#include "load/item.h"
#include "load/schedule.h"

_Static_assert(OZ_SCHEME_MODES == 2, "a report has the kernels of two modes");

const char *oz_fate_name(enum oz_fate fate)
{
    static const char *const names[] = {
#define OZ_FATE_NAME(id, name) [id] = (name),
        OZ_FATE_MAP(OZ_FATE_NAME)
#undef OZ_FATE_NAME
    };
    return (unsigned)fate < OZ_FATE_COUNT ? names[fate] : "?";
}

static enum oz_fate fate_of(const struct oz_load_item *item)
{
    if (item->encodes) {
        return OZ_FATE_ENCODED;
    }
    if (item->way == OZ_WAY_MAPPED) {
        return OZ_FATE_MAPPED;
    }
    return item->packed_bytes > 0 ? OZ_FATE_PACKED : OZ_FATE_STORED;
}

static int64_t part_elements(const struct oz_load_part *p)
{
    return p->shape.slices * p->shape.rows * p->shape.cols;
}

/* A part's share of its parameter's bytes; the shares' sum is the whole. */
static int64_t share(const struct oz_load_item *item, int32_t part)
{
    int64_t bytes = item->packed_bytes + item->plane_bytes;
    int64_t all = 0;
    int64_t before = 0;
    for (int32_t i = 0; i < item->part_count; i++) {
        before += i < part ? part_elements(&item->parts[i]) : 0;
        all += part_elements(&item->parts[i]);
    }
    double scale = all > 0 ? (double)bytes / (double)all : 0;
    int64_t begin = (int64_t)(scale * (double)before);
    int64_t end = part + 1 < item->part_count
                      ? (int64_t)(scale * (double)(before + part_elements(&item->parts[part])))
                      : bytes;
    return end - begin;
}

/* Adds what a parameter's rows became to the entries of their rows. */
static void tell_item(struct oz_load_entry *of_row, const struct oz_load_args *a,
                      const struct oz_load_item *item)
{
    for (int32_t i = 0; i < item->part_count; i++) {
        const struct oz_load_part *p = &item->parts[i];
        struct oz_load_entry *e = &of_row[p->row];
        bool streamed = item->way == OZ_WAY_STREAM;
        e->fate = a->passing ? OZ_FATE_PASSING : fate_of(item);
        e->scheme = item->scheme;
        e->rule = a->assignment != NULL ? a->assignment->choices[p->row].rule : NULL;
        e->kernel = item->kernels[0];
        e->fallback = item->kernels[1];
        e->encoder = !item->encodes              ? NULL
                     : item->row_encoder != NULL ? item->row_encoder
                     : item->encoder != NULL     ? item->encoder->name
                                                 : OZ_ENCODER_OF_CODEC;
        e->lora = oz_lora_rank(a->lora, p->row) > 0 ? a->lora : NULL;
        e->read_bytes = streamed || item->way == OZ_WAY_MAPPED ? 0 : p->tensor->bytes;
        e->resident_bytes = a->passing ? 0 : share(item, i);
    }
}

static void tell_rows(struct oz_load_entry *of_row, const struct oz_load_args *a,
                      const struct oz_load_items *items, const struct oz_load_schedule *schedule)
{
    const struct oz_match *m = a->match;
    for (int32_t r = 0; r < m->table->count; r++) {
        of_row[r] = (struct oz_load_entry){.fate = OZ_FATE_LISTED, .row = r};
    }
    for (int32_t i = 0; i < items->count; i++) {
        tell_item(of_row, a, &items->items[i]);
    }
    for (int64_t i = 0; i < schedule->count; i++) {
        const struct oz_load_step *step = &schedule->steps[i];
        const struct oz_load_item *item = &items->items[step->item];
        int64_t line = step->rows > 0 ? step->bytes / step->rows : 0;
        for (int64_t r = 0; r < step->rows && step->bytes > 0;) { /* rows of one part together */
            int64_t at;
            const struct oz_load_part *p =
                oz_load_find_part(item, step->slice, step->first_row + r, &at);
            int64_t run = p->row_stride == 1 ? p->shape.rows - at : 1;
            run = run < step->rows - r ? run : step->rows - r;
            of_row[p->row].read_bytes += run * line;
            r += run;
        }
    }
}

enum oz_status oz_load_report_add(struct oz_load_report *report, const struct oz_load_args *a,
                                  const struct oz_load_items *items,
                                  const struct oz_load_schedule *schedule, struct oz_error *err)
{
    const struct oz_match *m = a->match;
    int64_t tensors = oz_ckpt_count(m->ckpt);
    int32_t rows = m->table->count;
    struct oz_load_entry *of_row = oz_alloc((size_t)rows * sizeof *of_row);
    size_t most = (size_t)(report->count + tensors + rows);
    struct oz_load_entry *entries =
        of_row != NULL ? oz_realloc(report->entries, most * sizeof *entries) : NULL;
    if (entries == NULL) {
        oz_free(of_row);
        return OZ_FAIL_NOMEM(err, "the load report");
    }
    report->entries = entries;
    tell_rows(of_row, a, items, schedule);
    for (int64_t i = 0; i < tensors; i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(m->ckpt, i);
        int32_t row = m->tensor_row[i];
        if (row < 0 ? a->passing : !oz_load_takes(a, &m->table->rows[row])) {
            continue; /* another load of the component tells of it */
        }
        if (row < 0) {
            const struct oz_ignore *rule = m->tensor_rule[i];
            entries[report->count++] =
                (struct oz_load_entry){.tensor = t,
                                       .fate = rule != NULL ? OZ_FATE_IGNORED : OZ_FATE_UNEXPECTED,
                                       .row = -1,
                                       .rule = rule != NULL ? rule->name : NULL};
            continue;
        }
        const struct oz_load_entry *first = &of_row[m->tensor_row[i]];
        if (m->row_tensor[first->row] !=
            i) { /* a plane beside the codes, whose entry has the sum */
            entries[report->count] = *first;
            entries[report->count].tensor = t;
            entries[report->count].read_bytes = t->bytes;
            entries[report->count++].resident_bytes = 0;
            continue;
        }
        for (int32_t r = m->tensor_row[i]; r < rows;
             r++) { /* its first row, and those tied to it */
            if (m->row_tensor[r] == i) {
                of_row[r].tensor = t;
                entries[report->count++] = of_row[r];
            }
        }
    }
    oz_free(of_row);
    return OZ_OK;
}

void oz_load_report_deinit(struct oz_load_report *report)
{
    oz_free(report->entries);
    *report = (struct oz_load_report){0};
}

static void member(struct oz_buf *out, const char *name, const char *text)
{
    if (text != NULL) {
        oz_buf_printf(out, ", \"%s\": ", name);
        oz_buf_json(out, text);
    }
}

void oz_load_report_json(const struct oz_load_report *report, struct oz_buf *out)
{
    oz_buf_puts(out, "[");
    for (int64_t i = 0; i < report->count; i++) {
        const struct oz_load_entry *e = &report->entries[i];
        oz_buf_puts(out, i > 0 ? ", {\"tensor\": " : "{\"tensor\": ");
        oz_buf_json(out, e->tensor->name);
        member(out, "fate", oz_fate_name(e->fate));
        oz_buf_puts(out, ", \"shape\": [");
        for (int32_t d = 0; d < e->tensor->rank; d++) {
            oz_buf_printf(out, d > 0 ? ", %" PRId64 : "%" PRId64, e->tensor->shape[d]);
        }
        oz_buf_puts(out, "]");
        member(out, "dtype", oz_tensor_format(e->tensor));
        member(out, "scheme", e->scheme);
        member(out, "rule", e->rule);
        member(out, "kernel", e->kernel);
        member(out, "fallback_kernel", e->fallback);
        member(out, "encoder", e->encoder);
        if (e->lora != NULL) {
            oz_buf_puts(out, ", \"lora\": ");
            oz_lora_json(e->lora, e->row, out);
        }
        oz_buf_printf(out,
                      ", \"file_bytes\": %" PRId64 ", \"read_bytes\": %" PRId64
                      ", \"resident_bytes\": %" PRId64 "}",
                      e->tensor->bytes, e->read_bytes, e->resident_bytes);
    }
    oz_buf_puts(out, "]");
}
