/*
 * study/search.h: which scheme each unit of a model gets, when errors add up: for every unit there are
 * options of so many bytes and so much error; a search spends a budget of the one to save the other.
 * Knows no models.
 */
#ifndef OZ_STUDY_SEARCH_H
#define OZ_STUDY_SEARCH_H

#include <ounce/status.h>
#include <stdint.h>

#define OZ_SEARCH_OPTIONS 16 /* of a unit at most */

/* An option of a unit; error is NaN where the option is not open to it. */
struct oz_search_option {
    double bytes, error;
};

struct oz_search {
    const struct oz_search_option *options; /* [units][count]; option 0 is "as stored" */
    int32_t units, count;
    int32_t *chosen; /* [units]: the result; the caller's storage */
    double bytes, error;
};

/*
 * The assignment of least bytes whose error is at most `most_error`, or (that negative) of least error
 * whose bytes are at most `most_bytes`; to within one option of the best that no single step improves:
 * from option 0 on, the step that costs least error for a byte, along each unit's lower convex hull;
 * then whatever still fits. OZ_ERR_THRESHOLD: bytes cannot be had so few; chosen are the fewest then.
 * OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_search_run(struct oz_search *s, double most_error, double most_bytes,
                                         struct oz_error *err);

#endif
