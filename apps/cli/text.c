#include "text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static char folded(char c)
{
    if (c == '_') {
        return '-';
    }
    return (char)tolower((unsigned char)c);
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b. */
static size_t edits(const char *a, const char *b)
{
    size_t n = strlen(b);
    size_t *rows = cli_alloc(3 * (n + 1), sizeof *rows);
    size_t *before = rows, *last = rows + n + 1, *now = rows + 2 * (n + 1);
    for (size_t j = 0; j <= n; j++) {
        last[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        now[0] = i;
        for (size_t j = 1; j <= n; j++) {
            char x = folded(a[i - 1]), y = folded(b[j - 1]);
            size_t best = last[j - 1] + (x != y);
            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y &&
                before[j - 2] + 1 < best) {
                best = before[j - 2] + 1;
            }
            now[j] = best;
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    size_t result = last[n];
    free(rows);
    return result;
}

const char *cli_nearest(const char *wrong, const char *const *names, size_t count)
{
    size_t length = strlen(wrong);
    if (length > 200) {
        return NULL;
    }
    size_t nearest = count, fewest = length / 3 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t n = edits(wrong, names[i]);
        if (n < fewest) {
            fewest = n;
            nearest = i;
        }
    }
    for (size_t i = 0; nearest == count && length >= 3 && i < count; i++) {
        if (strcasestr(names[i], wrong) != NULL) {
            nearest = i;
        }
    }
    return nearest < count ? names[nearest] : NULL;
}

double cli_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
