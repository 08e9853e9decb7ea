#include "base/names.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define LONGEST 128
#define MAX_COMPARISONS 50000000 /* of a list that folds badly; the rest is listed name by name */

char oz_names_letter(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

bool oz_names_same(const char *a, const char *b)
{
    while (*a != '\0' && oz_names_letter(*a) == oz_names_letter(*b)) {
        a++;
        b++;
    }
    return oz_names_letter(*a) == oz_names_letter(*b);
}

/* Levenshtein distance, names cut at LONGEST. */
static size_t distance(const char *a, const char *b)
{
    size_t row[LONGEST + 1];
    size_t n = strnlen(b, LONGEST);
    size_t m = strnlen(a, LONGEST);
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) {
                best = row[j] + 1;
            }
            if (row[j - 1] + 1 < best) {
                best = row[j - 1] + 1;
            }
            row[j] = best;
        }
    }
    return row[n];
}

const char *oz_names_nearest(const char *wrong, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        size_t d = distance(wrong, names[i]);
        size_t limit = strlen(names[i]) / 3 + 1;
        if (d <= limit && d < best_distance) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

enum oz_status oz_names_unknown(const char *what, const char *wrong, const char *const *names,
                                size_t count, struct oz_error *err)
{
    struct oz_buf list;
    oz_buf_init(&list, 1024);
    for (size_t i = 0; i < count; i++) {
        oz_buf_printf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = oz_names_nearest(wrong, names, count);
    enum oz_status status =
        OZ_FAIL(err, OZ_ERR_ARG, "%s %.100s is not known%s%s%s; there are %s.", what, wrong,
                near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                near != NULL ? "?)" : "", oz_buf_text(&list));
    oz_buf_deinit(&list);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Folded numbers are printed from their value: none with zeros in front, none too long for that. */
static bool plain_number(const char *digits, size_t count)
{
    return count > 0 && count < 10 && (digits[0] != '0' || count == 1);
}

/* If a and b are equal but for one number, gives its place in a. */
static bool differ_in_number(const char *a, const char *b, size_t *begin, size_t *end_a)
{
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i]) {
        i++;
    }
    while (i > 0 && isdigit((unsigned char)a[i - 1])) {
        i--;
    }
    size_t ea = i;
    size_t eb = i;
    while (isdigit((unsigned char)a[ea])) {
        ea++;
    }
    while (isdigit((unsigned char)b[eb])) {
        eb++;
    }
    *begin = i;
    *end_a = ea;
    return plain_number(a + i, ea - i) && plain_number(b + i, eb - i) &&
           strcmp(a + ea, b + eb) == 0;
}

static int by_number(const void *a, const void *b)
{
    long x = *(const long *)a;
    long y = *(const long *)b;
    return (x > y) - (x < y);
}

/* "{0..5,9}" of sorted numbers. */
static void append_numbers(struct oz_buf *b, const long *numbers, size_t count)
{
    oz_buf_puts(b, "{");
    for (size_t i = 0; i < count;) {
        size_t j = i;
        while (j + 1 < count && numbers[j + 1] == numbers[j] + 1) {
            j++;
        }
        oz_buf_printf(b, "%s%ld", i > 0 ? "," : "", numbers[i]);
        if (j > i) {
            oz_buf_printf(b, "..%ld", numbers[j]);
        }
        i = j + 1;
    }
    oz_buf_puts(b, "}");
}

void oz_names_fold(struct oz_buf *b, const char **names, size_t count)
{
    bool *used = oz_alloc_zero(count, sizeof *used);
    long *numbers = oz_alloc_zero(count, sizeof *numbers);
    if (used == NULL || numbers == NULL) {
        b->status = OZ_ERR_NOMEM;
        oz_free(used);
        oz_free(numbers);
        return;
    }
    if (count > 0) {
        qsort(names, count, sizeof *names, by_name);
    }
    bool first = true;
    int64_t comparisons = 0;
    for (size_t i = 0; i < count; i++) {
        if (used[i]) {
            continue;
        }
        size_t members = 0;
        size_t begin = 0;
        size_t end = 0;
        for (size_t j = i + 1; j < count && comparisons < MAX_COMPARISONS; j++, comparisons++) {
            size_t at;
            size_t stop;
            if (used[j] || !differ_in_number(names[i], names[j], &at, &stop) ||
                (members > 0 && at != begin)) {
                continue;
            }
            begin = at;
            end = stop;
            used[j] = true;
            numbers[members++] = strtol(names[j] + at, NULL, 10);
        }
        oz_buf_puts(b, first ? "" : ", ");
        first = false;
        if (members == 0) {
            oz_buf_puts(b, names[i]);
            continue;
        }
        numbers[members++] = strtol(names[i] + begin, NULL, 10);
        qsort(numbers, members, sizeof *numbers, by_number);
        oz_buf_append(b, names[i], begin);
        append_numbers(b, numbers, members);
        oz_buf_puts(b, names[i] + end);
    }
    oz_free(used);
    oz_free(numbers);
}
