/* text.h: memory and text for the program. Out of memory ends the process here, with the exit code
 * that stands for it. */
#ifndef OUNCE_CLI_TEXT_H
#define OUNCE_CLI_TEXT_H

#include <ounce/status.h>
#include <stdbool.h>

void *cli_alloc(size_t count, size_t bytes);               /* zeroed; free() */
void *cli_grow(void *data, size_t count, size_t bytes);    /* as realloc; free() */
char *cli_format(const char *format, ...) OZ_PRINTF(1, 2); /* free() */

/* Does text end in `end`, ASCII letters alike in both cases? */
bool cli_ends_with(const char *text, const char *end);

/*
 * The name that `wrong` was probably meant to be, or NULL: fewest edits (at most a third of its
 * letters; upper case and _ count as lower case and -), else a name that contains it.
 */
const char *cli_nearest(const char *wrong, const char *const *names, size_t count);

/* Seconds on a clock that only runs forward. */
double cli_seconds(void);

#endif
