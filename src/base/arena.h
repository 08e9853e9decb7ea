/*
 * base/arena.h: memory that is pushed and given back all at once. An arena is a range of (host or
 * device) memory with a fill mark; it never grows. In measuring mode it has no memory and counts:
 * the same code that will run says first, to the byte, what it needs.
 *
 * Lifetimes in ounce: model (load to unload), plan (sized once for the largest admitted batch),
 * sequence (one request), step (one forward; mark and reset). Pages for keys and values come from
 * base/pages.h.
 */
#ifndef OZ_BASE_ARENA_H
#define OZ_BASE_ARENA_H

#include <ounce/status.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OZ_ARENA_ALIGN 256 /* of every push; also rounds its size */

struct oz_arena {
    const char *name; /* for messages: "step", "sequence" */
    uint8_t *base;    /* while measuring: an address that must not be followed */
    size_t capacity_bytes;
    size_t used_bytes, peak_bytes;
    bool measuring;
    bool host;   /* base is host memory: zeroing and poisoning are possible */
    void *owned; /* what oz_arena_deinit frees, or NULL */
};

/* An arena without memory that only counts. */
void oz_arena_init_measure(struct oz_arena *a, const char *name);

/* An arena over memory that the caller owns and keeps alive, aligned to OZ_ARENA_ALIGN (asserted).
 */
void oz_arena_init_view(struct oz_arena *a, const char *name, void *base, size_t bytes, bool host);

/* An arena over fresh host memory, zeroed and committed as it is touched: a generous bound costs
 * nothing. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_arena_init_host(struct oz_arena *a, const char *name, size_t bytes,
                                              struct oz_error *err);
void oz_arena_deinit(struct oz_arena *a); /* a zeroed arena is fine */

/*
 * Takes `bytes` (0 is fine) and advances. Not cleared. While measuring *out is an address that is
 * not NULL and must not be followed, so that "is it there?" has one answer in both modes.
 * OZ_ERR_NOMEM (*out NULL) when the arena is full: a bug of the caller's measuring, or a bound that
 * was too small.
 */
OZ_MUST_USE enum oz_status oz_arena_push(struct oz_arena *a, size_t bytes, void **out);

/* Size that a push of `bytes` takes; SIZE_MAX on overflow. */
size_t oz_arena_round(size_t bytes);

/* Fill mark, and back to it: everything pushed since is gone (and poisoned under ASan). */
static inline size_t oz_arena_mark(const struct oz_arena *a)
{
    return a->used_bytes;
}
void oz_arena_reset(struct oz_arena *a, size_t mark);

/* Copies of strings in a host arena; NULL when it is full. */
const char *oz_arena_string(struct oz_arena *a, const char *text);
const char *oz_arena_vprintf(struct oz_arena *a, const char *format, va_list args) OZ_PRINTF(2, 0);

#endif
