/*
 * base/regex.h: the door to the regular-expression library (Perl syntax, UTF-8, Unicode classes,
 * no JIT, match limits set).
 */
#ifndef OZ_BASE_REGEX_H
#define OZ_BASE_REGEX_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>

struct oz_regex;

/* Compiles a pattern. OZ_ERR_ARG: the pattern is wrong; the message quotes it, says where and why.
 * OZ_ERR_NOMEM. One compiled pattern may be used by one thread at a time. */
OZ_MUST_USE enum oz_status oz_regex_compile(struct oz_regex **out, const char *pattern,
                                            struct oz_error *err);
void oz_regex_free(struct oz_regex *re); /* NULL is fine */

/*
 * First match at or after byte `from` of a valid UTF-8 text. *found says whether there is one,
 * [*begin, *end) where. anchored: only a match that begins at `from` counts. OZ_ERR_FORMAT when a
 * match limit was hit.
 */
OZ_MUST_USE enum oz_status oz_regex_match(struct oz_regex *re, const char *text, size_t bytes,
                                          size_t from, bool anchored, bool *found, size_t *begin,
                                          size_t *end, struct oz_error *err);

#endif
