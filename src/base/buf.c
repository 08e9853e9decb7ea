#include "base/buf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void oz_buf_init(struct oz_buf *b, size_t max_bytes)
{
    *b = (struct oz_buf){.max_bytes = max_bytes};
}

void oz_buf_deinit(struct oz_buf *b)
{
    oz_free(b->data);
    *b = (struct oz_buf){.max_bytes = b->max_bytes};
}

/* Makes room for `count` more bytes and the terminating zero. */
static bool reserve(struct oz_buf *b, size_t count)
{
    if (b->status != OZ_OK) {
        return false;
    }
    if (count > b->max_bytes - b->bytes) {
        b->status = OZ_ERR_ARG;
        return false;
    }
    size_t need = b->bytes + count + 1;
    if (need <= b->capacity) {
        return true;
    }
    size_t capacity = b->capacity ? b->capacity : 64;
    while (capacity < need) {
        capacity += capacity / 2 + 64;
    }
    char *data = oz_realloc(b->data, capacity);
    if (data == NULL) {
        b->status = OZ_ERR_NOMEM;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void oz_buf_append(struct oz_buf *b, const void *bytes, size_t count)
{
    if (!reserve(b, count)) {
        return;
    }
    if (count > 0) {
        memcpy(b->data + b->bytes, bytes, count);
    }
    b->bytes += count;
    b->data[b->bytes] = '\0';
}

void oz_buf_puts(struct oz_buf *b, const char *text)
{
    oz_buf_append(b, text, strlen(text));
}

void oz_buf_printf(struct oz_buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(b, (size_t)n)) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(b->data + b->bytes, (size_t)n + 1, format, args);
    va_end(args);
    b->bytes += (size_t)n;
}

void oz_buf_json(struct oz_buf *b, const char *text)
{
    oz_buf_append(b, "\"", 1);
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') {
            char pair[2] = {'\\', *p};
            oz_buf_append(b, pair, 2);
        } else if (c == '\n') {
            oz_buf_append(b, "\\n", 2);
        } else if (c < 0x20 || c == 0x7F) {
            oz_buf_printf(b, "\\u%04x", c);
        } else {
            oz_buf_append(b, p, 1);
        }
    }
    oz_buf_append(b, "\"", 1);
}

void oz_buf_number(struct oz_buf *b, double value)
{
    char text[40];
    if (!isfinite(value)) {
        oz_buf_puts(b, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    for (char *p = text; *p != '\0'; p++) {
        if (strchr("0123456789+-e", *p) == NULL) {
            *p = '.'; /* the locale's decimal point, one byte of it */
        }
    }
    oz_buf_puts(b, text);
}

const char *oz_buf_text(const struct oz_buf *b)
{
    return b->data != NULL ? b->data : "";
}

char *oz_buf_take(struct oz_buf *b)
{
    oz_buf_append(b, "", 0);
    if (b->status != OZ_OK) {
        oz_buf_deinit(b);
        return NULL;
    }
    char *data = b->data;
    *b = (struct oz_buf){.max_bytes = b->max_bytes};
    return data;
}
