/*
 * base/error.h: raising and forwarding errors. Functions that can fail return enum oz_status; those
 * at module borders take a `struct oz_error *err` (may be NULL) as last parameter and fill it.
 */
#ifndef OZ_BASE_ERROR_H
#define OZ_BASE_ERROR_H

#include <ounce/status.h>

/* Fills err (when not NULL) and returns `code`. The message says what, which numbers, and what to
 * do; too long ones end in "...". */
#define OZ_FAIL(err, code, ...) \
    ((void)oz_error_fail((err), (code), __FILE__, __LINE__, __VA_ARGS__), (enum oz_status)(code))

/* Forwards a failure. */
#define OZ_TRY(expr)                     \
    do {                                 \
        enum oz_status status_ = (expr); \
        if (status_ != OZ_OK) {          \
            return status_;              \
        }                                \
    } while (0)

/* Out of memory, with what it was for. */
#define OZ_FAIL_NOMEM(err, what) OZ_FAIL((err), OZ_ERR_NOMEM, "Out of memory for %s.", (what))

enum oz_status oz_error_fail(struct oz_error *err, enum oz_status code, const char *file, int line,
                             const char *format, ...) OZ_PRINTF(5, 6);

/* Puts text in front of the message of an error that is being forwarded; returns err's code, or
 * `code` when err is NULL. */
enum oz_status oz_error_prefix(struct oz_error *err, enum oz_status code, const char *format, ...)
    OZ_PRINTF(3, 4);

#endif
