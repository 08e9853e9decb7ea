#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT(name, value, text) \
    case name: return text;

const char *oz_status_text(enum oz_status status)
{
    switch (status) {
        OZ_STATUS_MAP(TEXT)
    }
    return "unknown status";
}

/* Marks a message that did not fit; never cuts inside a UTF-8 sequence. */
static void mark_cut(char *message, size_t capacity)
{
    size_t end = capacity - 4;
    while (end > 0 && ((unsigned char)message[end] & 0xC0) == 0x80) {
        end--;
    }
    memcpy(message + end, "...", 4);
}

enum oz_status oz_error_fail(struct oz_error *err, enum oz_status code, const char *file, int line,
                             const char *format, ...)
{
    if (err == NULL) {
        return code;
    }
    err->code = code;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (n < 0) {
        err->message[0] = '\0';
    } else if ((size_t)n >= sizeof err->message) {
        mark_cut(err->message, sizeof err->message);
    }
    return code;
}

enum oz_status oz_error_prefix(struct oz_error *err, enum oz_status code, const char *format, ...)
{
    if (err == NULL) {
        return code;
    }
    char rest[OZ_ERROR_MESSAGE_BYTES];
    memcpy(rest, err->message, sizeof rest);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used >= sizeof err->message) {
        mark_cut(err->message, sizeof err->message);
        return err->code;
    }
    n = snprintf(err->message + used, sizeof err->message - used, "%s", rest);
    if (n >= 0 && (size_t)n >= sizeof err->message - used) {
        mark_cut(err->message, sizeof err->message);
    }
    return err->code;
}
