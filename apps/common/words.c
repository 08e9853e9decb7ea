#include "words.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

enum { LONGEST = 200 }; /* of names that are compared */

static char folded(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b, both at most LONGEST long. */
static size_t edits(const char *a, const char *b)
{
    size_t rows[3][LONGEST + 1], n = strlen(b);
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
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
    return last[n];
}

const char *words_nearest(const char *wrong, const char *const *names, size_t count)
{
    size_t length = strlen(wrong);
    if (length > LONGEST) {
        return NULL;
    }
    size_t nearest = count, fewest = length / 3 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(names[i]) <= LONGEST ? edits(wrong, names[i]) : length;
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

double words_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
