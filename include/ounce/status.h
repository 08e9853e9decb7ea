/*
 * ounce/status.h: the vocabulary that every layer shares: status values, the error record, and the
 * log and progress callbacks. Programs include <ounce/ounce.h>, which includes this file.
 */
#ifndef OUNCE_STATUS_H
#define OUNCE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OZ_API __attribute__((visibility("default")))
#define OZ_MUST_USE __attribute__((warn_unused_result))
#define OZ_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define OZ_API
#define OZ_MUST_USE
#define OZ_PRINTF(fmt, first)
#endif

/* Every status: name, pinned value, text. Append only; values are never reused. */
#define OZ_STATUS_MAP(X)                                \
    X(OZ_OK, 0, "success")                              \
    X(OZ_ERR_INTERNAL, 1, "internal error")             \
    X(OZ_ERR_ARG, 2, "invalid argument")                \
    X(OZ_ERR_FORMAT, 3, "malformed file")               \
    X(OZ_ERR_UNSUPPORTED, 4, "valid but not supported") \
    X(OZ_ERR_NOMEM, 5, "out of memory")                 \
    X(OZ_ERR_IO, 6, "input/output error")               \
    X(OZ_ERR_THRESHOLD, 7, "a threshold was missed")    \
    X(OZ_ERR_NO_MODEL, 8, "no such model")              \
    X(OZ_ERR_DEVICE, 9, "device absent or lost")        \
    X(OZ_ERR_CANCELLED, 10, "interrupted")              \
    X(OZ_ERR_BUSY, 11, "busy, try again later")

enum oz_status {
#define OZ_STATUS_ENUM(name, value, text) name = value,
    OZ_STATUS_MAP(OZ_STATUS_ENUM)
#undef OZ_STATUS_ENUM
};

/* Longest error message, with its terminating zero. */
#define OZ_ERROR_MESSAGE_BYTES 4096

/*
 * What went wrong. Lives in the caller's storage and needs no clean-up. A function that fails and
 * was given a non-NULL `struct oz_error *` has filled it; one that succeeds has not touched it.
 * `message` is one or more whole English sentences in UTF-8 that name the thing, the numbers and
 * the remedy; it has no trailing newline. `file` and `line` are where ounce raised it (static
 * storage).
 */
struct oz_error {
    enum oz_status code;
    int line;
    const char *file;
    char message[OZ_ERROR_MESSAGE_BYTES];
};

/* The text of a status ("malformed file"); "unknown status" for any other value. Never NULL. */
OZ_API const char *oz_status_text(enum oz_status status);

enum oz_log_level {
    OZ_LOG_ERROR = 0,
    OZ_LOG_WARN = 1,
    OZ_LOG_INFO = 2,
    OZ_LOG_DEBUG = 3,
};

/*
 * One log line: `topic` ("load", "dispatch", "text" ...), `message` without newline. Both are
 * borrowed for the call. May be called from any thread, one call at a time.
 */
typedef void (*oz_log_fn)(void *ctx, enum oz_log_level level, const char *topic,
                          const char *message);

/* A stage of long work, in the order in which they happen. */
enum oz_stage {
    OZ_STAGE_LOAD = 0,    /* done and total in bytes */
    OZ_STAGE_TEXT = 1,    /* in prompts */
    OZ_STAGE_DENOISE = 2, /* in steps, summed over the pictures of the call */
    OZ_STAGE_DECODE = 3,  /* in pictures */
    OZ_STAGE_BENCH = 4,   /* in measurements */
    OZ_STAGE_WRITE = 5,   /* in bytes */
    OZ_STAGE_STUDY = 6,   /* in steps, summed over all pictures of a comparison or a search */
};

struct oz_progress {
    size_t struct_size; /* of the library that calls; members are only ever added */
    enum oz_stage stage;
    int32_t picture; /* which request moved, from 0; -1: the whole call */
    int64_t done, total;
};

/* Reports progress from the thread that called ounce; within long steps again, with the same figures.
 * Return nonzero to cancel: the call then returns OZ_ERR_CANCELLED at the next safe point (between two
 * operators) and gives everything back. */
typedef int (*oz_progress_fn)(void *ctx, const struct oz_progress *progress);

#ifdef __cplusplus
}
#endif
#endif
