/*
 * The door of the plug-in, and what it borrows of the core: the heap, errors and the log are the host's,
 * so that a process has one of each. The rest of the core is not linked here.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cuda/host/cuda.h"

#define LINE_BYTES 2048

const struct oz_backend_host *oz_cuda_host;

void *oz_alloc_zero(size_t count, size_t size)
{
    return oz_cuda_host->alloc_zero(count, size);
}

void oz_free(void *memory)
{
    oz_cuda_host->free(memory);
}

bool oz_log_wants(enum oz_log_level level, const char *topic)
{
    return oz_cuda_host->log_wants(level, topic);
}

void oz_log(enum oz_log_level level, const char *topic, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    oz_cuda_host->log(level, topic, "%s", text);
}

enum oz_status oz_error_fail(struct oz_error *err, enum oz_status code, const char *file, int line,
                             const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return oz_cuda_host->fail(err, code, file, line, "%s", text);
}

static const struct oz_backend backend = {
    .abi = OZ_BACKEND_ABI,
    .name = "cuda",
    .present = oz_cuda_present,
    .open = oz_cuda_open,
};

OZ_API const struct oz_backend *oz_backend_entry(const struct oz_backend_host *host);

const struct oz_backend *oz_backend_entry(const struct oz_backend_host *host)
{
    oz_cuda_host = host;
    return &backend;
}
