/*
 * base/buf.h: the one growable thing: bytes with a stated maximum. Always zero-terminated behind
 * its length, so that it serves as a string builder. Errors are sticky: after a failed append
 * nothing more is added and `status` says why.
 */
#ifndef OZ_BASE_BUF_H
#define OZ_BASE_BUF_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>

struct oz_buf {
    char *data; /* NULL until the first append */
    size_t bytes, capacity, max_bytes;
    enum oz_status status; /* OZ_ERR_NOMEM, or OZ_ERR_ARG when max_bytes would be passed */
};

void oz_buf_init(struct oz_buf *b, size_t max_bytes);
void oz_buf_deinit(struct oz_buf *b);
void oz_buf_append(struct oz_buf *b, const void *bytes, size_t count);
void oz_buf_puts(struct oz_buf *b, const char *text);
void oz_buf_printf(struct oz_buf *b, const char *format, ...) OZ_PRINTF(2, 3);
/* Text as a JSON string with quotes; control characters escaped. text is UTF-8. */
void oz_buf_json(struct oz_buf *b, const char *text);
/* The shortest decimal that reads back as the same value, with a point whatever the locale. Infinity
 * and NaN become null. */
void oz_buf_number(struct oz_buf *b, double value);
/* The string so far; "" when empty. Valid until the next append. */
const char *oz_buf_text(const struct oz_buf *b);
/* Gives the bytes away (free with oz_free) and leaves the buffer empty; NULL when status is set. */
char *oz_buf_take(struct oz_buf *b);

#endif
