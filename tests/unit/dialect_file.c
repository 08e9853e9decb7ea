#include "dialect_file.h"

#include "test.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "scratch.h"

void dialect_file_read(struct dialect_file *f, const char *path)
{
    char *text;
    size_t bytes;
    uint64_t length;
    struct oz_json *header;
    struct oz_error err;
    memset(f, 0, sizeof *f);
    assert_int_equal(oz_file_read(path, 1 << 20, &text, &bytes, &err), OZ_OK);
    memcpy(&length, text, 8);
    assert_int_equal(oz_json_parse(&header, text + 8, length, path, &err), OZ_OK);
    for (void *it = oz_json_first(header); it != NULL; it = oz_json_next(header, it)) {
        const struct oz_json *v = oz_json_value(it);
        if (strcmp(oz_json_key(it), "__metadata__") == 0) {
            struct oz_buf b;
            oz_buf_init(&b, 1 << 16);
            oz_buf_puts(&b, "{");
            for (void *m = oz_json_first(v); m != NULL; m = oz_json_next(v, m)) {
                oz_buf_puts(&b, b.bytes > 1 ? "," : "");
                oz_buf_json(&b, oz_json_key(m));
                oz_buf_puts(&b, ":");
                oz_buf_json(&b, oz_json_string(oz_json_value(m), ""));
            }
            oz_buf_puts(&b, "}");
            f->metadata = strdup(oz_buf_text(&b));
            oz_buf_deinit(&b);
            continue;
        }
        struct dialect_piece *p = &f->pieces[f->count++];
        const struct oz_json *shape = oz_json_get(v, "shape");
        const struct oz_json *offsets = oz_json_get(v, "data_offsets");
        int64_t begin = oz_json_integer(oz_json_at(offsets, 0), 0);
        (void)snprintf(p->name, sizeof p->name, "%s", oz_json_key(it));
        (void)snprintf(p->dtype, sizeof p->dtype, "%s",
                       oz_json_string(oz_json_get(v, "dtype"), ""));
        p->rank = (int)oz_json_count(shape);
        for (int i = 0; i < p->rank; i++) {
            p->shape[i] = oz_json_integer(oz_json_at(shape, (size_t)i), 0);
        }
        p->bytes = (size_t)(oz_json_integer(oz_json_at(offsets, 1), 0) - begin);
        p->data = malloc(p->bytes + 1);
        memcpy(p->data, text + 8 + length + begin, p->bytes);
    }
    oz_json_free(header);
    oz_free(text);
}

void dialect_file_free(struct dialect_file *f)
{
    for (int i = 0; i < f->count; i++) {
        free(f->pieces[i].data);
    }
    free(f->metadata);
}

void dialect_file_write(const struct dialect_file *f, int first, int last, const char *name)
{
    struct oz_buf header;
    struct oz_buf all;
    size_t at = 0;
    oz_buf_init(&header, 1 << 20);
    oz_buf_init(&all, 1 << 20);
    oz_buf_puts(&header, "{");
    if (f->metadata != NULL) {
        oz_buf_printf(&header, "\"__metadata__\":%s", f->metadata);
    }
    for (int i = first; i < last; i++) {
        const struct dialect_piece *p = &f->pieces[i];
        if (p->gone) {
            continue;
        }
        oz_buf_puts(&header, header.bytes > 1 ? "," : "");
        oz_buf_json(&header, p->name);
        oz_buf_printf(&header, ":{\"dtype\":\"%s\",\"shape\":[", p->dtype);
        for (int k = 0; k < p->rank; k++) {
            oz_buf_printf(&header, "%s%lld", k > 0 ? "," : "", (long long)p->shape[k]);
        }
        oz_buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", at, at + p->bytes);
        at += p->bytes;
    }
    oz_buf_puts(&header, "}");
    uint64_t length = header.bytes;
    oz_buf_append(&all, (const char *)&length, 8);
    oz_buf_append(&all, header.data, header.bytes);
    for (int i = first; i < last; i++) {
        if (!f->pieces[i].gone) {
            oz_buf_append(&all, (const char *)f->pieces[i].data, f->pieces[i].bytes);
        }
    }
    scratch_write(name, all.data, all.bytes);
    oz_buf_deinit(&header);
    oz_buf_deinit(&all);
}

struct dialect_piece *dialect_file_find(struct dialect_file *f, const char *name)
{
    for (int i = 0; i < f->count; i++) {
        if (strcmp(f->pieces[i].name, name) == 0) {
            return &f->pieces[i];
        }
    }
    return NULL;
}
