/* base/names.h: lists of names for people: the nearest of several, and long lists folded. */
#ifndef OZ_BASE_NAMES_H
#define OZ_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

/* What a letter of a name counts as: small, and '-' is '_'. */
char oz_names_letter(char c);
/* Are two names the same word by that? */
bool oz_names_same(const char *a, const char *b);

/* The name of `names` (count of them) that is nearest to `wrong` by edit distance, or NULL when
 * none is near (more than a third of its letters would change). */
const char *oz_names_nearest(const char *wrong, const char *const *names, size_t count);
/* OZ_ERR_ARG: "<what> <wrong> is not known", with the nearest name, if one is near, and all that there are. */
OZ_MUST_USE enum oz_status oz_names_unknown(const char *what, const char *wrong,
                                            const char *const *names, size_t count,
                                            struct oz_error *err);

/*
 * Appends a list to b in which names that differ only in one number are folded: "blocks.{0..5}.w".
 * Every name is covered, and can be found in the text or made from it: numbers with zeros in front
 * are not folded. Sorts `names` in place.
 */
void oz_names_fold(struct oz_buf *b, const char **names, size_t count);

#endif
