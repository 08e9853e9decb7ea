/* words.h: what was probably meant; and how late it is. */
#ifndef OUNCE_COMMON_WORDS_H
#define OUNCE_COMMON_WORDS_H

#include <stddef.h>

/*
 * The name that `wrong` was probably meant to be, or NULL: fewest edits (at most a third of its
 * letters; upper case and _ count as lower case and -), else a name that contains it.
 */
const char *words_nearest(const char *wrong, const char *const *names, size_t count);

/* Seconds on a clock that only runs forward. */
double words_seconds(void);

#endif
