#include "study/search.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"

/* A step of one unit along its hull, from one option to one of fewer bytes. */
struct step {
    int32_t unit, from, to;
    double error, bytes; /* more error, fewer bytes (> 0) */
};

static const struct oz_search_option *option(const struct oz_search *s, int32_t unit, int32_t i)
{
    return &s->options[(int64_t)unit * s->count + i];
}

static bool is_open(const struct oz_search_option *o)
{
    return isfinite(o->error) && isfinite(o->bytes);
}

/* The steps of a unit's lower convex hull, from option `at` on: each time the option of fewer bytes that
 * costs least error for a byte. Returns how many. */
static int32_t list_steps(const struct oz_search *s, int32_t unit, int32_t at, struct step *steps)
{
    int32_t n = 0;
    for (;;) {
        const struct oz_search_option *from = option(s, unit, at);
        int32_t best = -1;
        double rate = INFINITY;
        for (int32_t i = 0; i < s->count; i++) {
            const struct oz_search_option *to = option(s, unit, i);
            double saved = from->bytes - to->bytes;
            if (!is_open(to) || !(saved > 0)) {
                continue;
            }
            double r = (to->error - from->error) / saved;
            if (r < rate || (r == rate && to->bytes < option(s, unit, best)->bytes)) {
                rate = r;
                best = i;
            }
        }
        if (best < 0) {
            return n;
        }
        steps[n++] = (struct step){unit, at, best, option(s, unit, best)->error - from->error,
                                   from->bytes - option(s, unit, best)->bytes};
        at = best;
    }
}

static int by_rate(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    double p = x->error / x->bytes, q = y->error / y->bytes;
    if (p != q) {
        return p < q ? -1 : 1;
    }
    return x->unit != y->unit ? (x->unit > y->unit) - (x->unit < y->unit)
                              : (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void take(struct oz_search *s, int32_t unit, int32_t to)
{
    const struct oz_search_option *from = option(s, unit, s->chosen[unit]);
    s->error += option(s, unit, to)->error - from->error;
    s->bytes += option(s, unit, to)->bytes - from->bytes;
    s->chosen[unit] = to;
}

/* What still fits the error: the option that saves most bytes, again and again. */
static void fill(struct oz_search *s, double most_error)
{
    for (;;) {
        int32_t unit = -1, to = -1;
        double saved = 0;
        for (int32_t u = 0; u < s->units; u++) {
            const struct oz_search_option *from = option(s, u, s->chosen[u]);
            for (int32_t i = 0; i < s->count; i++) {
                const struct oz_search_option *o = option(s, u, i);
                if (is_open(o) && s->error + o->error - from->error <= most_error &&
                    from->bytes - o->bytes > saved) {
                    saved = from->bytes - o->bytes;
                    unit = u;
                    to = i;
                }
            }
        }
        if (unit < 0) {
            return;
        }
        take(s, unit, to);
    }
}

enum oz_status oz_search_run(struct oz_search *s, double most_error, double most_bytes,
                             struct oz_error *err)
{
    bool by_error = most_error >= 0;
    int32_t count = 0;
    struct step *steps = oz_alloc_zero((size_t)s->units * (size_t)s->count + 1, sizeof *steps);
    if (steps == NULL) {
        return OZ_FAIL_NOMEM(err, "a search");
    }
    s->error = s->bytes = 0;
    for (int32_t u = 0; u < s->units; u++) {
        s->chosen[u] = 0;
        s->error += option(s, u, 0)->error;
        s->bytes += option(s, u, 0)->bytes;
        count += list_steps(s, u, 0, steps + count);
    }
    qsort(steps, (size_t)count, sizeof *steps, by_rate);
    for (int32_t i = 0; i < count; i++) {
        if (!by_error && s->bytes <= most_bytes) {
            break;
        }
        /* A step whose forerunner did not fit is none. */
        bool follows = s->chosen[steps[i].unit] == steps[i].from;
        if (follows && (!by_error || s->error + steps[i].error <= most_error)) {
            take(s, steps[i].unit, steps[i].to);
        }
    }
    if (by_error) {
        fill(s, most_error);
    }
    oz_free(steps);
    if (!by_error && s->bytes > most_bytes) {
        return OZ_FAIL(
            err, OZ_ERR_THRESHOLD,
            "No assignment of these schemes has so few bytes as %.0f; the fewest are %.0f.",
            most_bytes, s->bytes);
    }
    return OZ_OK;
}
