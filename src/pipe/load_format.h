/*
 * pipe/load_format.h: the words of --load-format: where weights come from. Ours are auto and dummy;
 * vLLM's and vLLM-Omni's others are mapped to auto where they name a way to read what ounce reads anyway,
 * and refused by name where they do not.
 */
#ifndef OZ_PIPE_LOAD_FORMAT_H
#define OZ_PIPE_LOAD_FORMAT_H

#include <ounce/status.h>
#include <stdbool.h>

struct oz_load_format {
    const char *name;
    bool dummy;          /* drawn, not read (pipe/filling.h) */
    const char *meaning; /* for the plan, of a name that is not ours; NULL */
};

/* The row of a name (case does not matter, '-' is '_'); NULL or "" is auto. OZ_ERR_ARG: unknown, with
 * all names; OZ_ERR_UNSUPPORTED: a format that ounce does not read, and why. */
OZ_MUST_USE enum oz_status oz_load_format_find(const struct oz_load_format **out, const char *name,
                                               struct oz_error *err);

#endif
