#include "ops/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "ops/ops.h"

#define MAX_EVENTS (1 << 18)
#define MAX_FILE_BYTES (256U << 20)
#define LABEL_BYTES 48

struct event {
    double begin, end;
    int64_t rows, cols;
    enum oz_op op;
    char label[LABEL_BYTES];
};

struct oz_trace {
    char *path;
    struct event *events;
    int64_t count, lost;
};

static void free_trace(struct oz_trace *t)
{
    if (t != NULL) {
        oz_free(t->path);
        oz_free(t->events);
    }
    oz_free(t);
}

enum oz_status oz_trace_create(struct oz_trace **out, const char *path, struct oz_error *err)
{
    static const char empty[] = "{\"traceEvents\":[]}\n";
    *out = NULL;
    struct oz_trace *t = oz_alloc_zero(1, sizeof *t);
    if (t != NULL) {
        t->path = oz_strdup(path);
        t->events = oz_alloc(MAX_EVENTS * sizeof *t->events);
    }
    if (t == NULL || t->path == NULL || t->events == NULL) {
        free_trace(t);
        return OZ_FAIL_NOMEM(err, "the trace");
    }
    /* A place that cannot be written to is found now, not when all is done. */
    enum oz_status status = oz_file_write(path, empty, sizeof empty - 1, err);
    if (status != OZ_OK) {
        free_trace(t);
        return status;
    }
    *out = t;
    return OZ_OK;
}

void oz_trace_add(struct oz_trace *t, enum oz_op op, const char *label, int64_t rows, int64_t cols,
                  double begin, double end)
{
    if (t->count == MAX_EVENTS) {
        t->lost++;
        return;
    }
    struct event *e = &t->events[t->count++];
    *e = (struct event){.begin = begin, .end = end, .rows = rows, .cols = cols, .op = op};
    size_t n = strlen(label);
    size_t first = n < LABEL_BYTES ? 0 : n - (LABEL_BYTES - 1);
    while (((unsigned char)label[first] & 0xC0) == 0x80) {
        first++; /* not inside a UTF-8 sequence */
    }
    (void)snprintf(e->label, sizeof e->label, "%s", label + first);
}

/* With three decimals, and a point in every locale. */
static void append_microseconds(struct oz_buf *b, double seconds)
{
    oz_buf_number(b, round(1e9 * seconds) / 1e3);
}

enum oz_status oz_trace_finish(struct oz_trace **trace, struct oz_error *err)
{
    struct oz_trace *t = *trace;
    if (t == NULL) {
        return OZ_OK;
    }
    struct oz_buf b;
    oz_buf_init(&b, MAX_FILE_BYTES);
    oz_buf_printf(&b, "{\"otherData\":{\"events_left_out\":%" PRId64 "},\"traceEvents\":[",
                  t->lost);
    for (int64_t i = 0; i < t->count; i++) {
        const struct event *e = &t->events[i];
        oz_buf_printf(&b, "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"%s\",\"ts\":",
                      i > 0 ? "," : "", oz_op_name(e->op));
        append_microseconds(&b, e->begin - t->events[0].begin);
        oz_buf_puts(&b, ",\"dur\":");
        append_microseconds(&b, e->end - e->begin);
        oz_buf_puts(&b, ",\"args\":{\"at\":");
        oz_buf_json(&b, e->label);
        oz_buf_printf(&b, ",\"rows\":%" PRId64 ",\"cols\":%" PRId64 "}}", e->rows, e->cols);
    }
    oz_buf_puts(&b, "\n]}\n");
    enum oz_status status = b.status != OZ_OK
                                ? OZ_FAIL(err, b.status, "The trace for %s is too large.", t->path)
                                : oz_file_write(t->path, b.data, b.bytes, err);
    oz_buf_deinit(&b);
    free_trace(t);
    *trace = NULL;
    return status;
}
