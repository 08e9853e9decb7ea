#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

static void *or_exit(void *data)
{
    if (data == NULL) {
        exit(cli_exit_code(cli_fail(OZ_ERR_NOMEM, "Out of memory.")));
    }
    return data;
}

void *cli_alloc(size_t count, size_t bytes)
{
    return or_exit(calloc(count > 0 ? count : 1, bytes));
}

void *cli_grow(void *data, size_t count, size_t bytes)
{
    return or_exit(reallocarray(data, count > 0 ? count : 1, bytes));
}

char *cli_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0) {
        text = NULL;
    }
    va_end(args);
    return or_exit(text);
}

bool cli_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcasecmp(text + n - k, end) == 0;
}
