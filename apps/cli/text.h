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

#endif
