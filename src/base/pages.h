/*
 * base/pages.h: a pool of equal pages over memory that is reserved at the start. Taking and giving
 * back move nothing and cost a few instructions. For keys and values, whose length is not known
 * when a sequence joins.
 */
#ifndef OZ_BASE_PAGES_H
#define OZ_BASE_PAGES_H

#include <ounce/status.h>
#include <stdint.h>

struct oz_pages {
    int32_t count, free_count;
    int32_t *free_list; /* [count]; the first free_count are free, taken from the end */
};

/* A pool of pages 0 .. count - 1, all free. The pages' memory is the caller's: page i is at
 * base + i * page_bytes. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_pages_init(struct oz_pages *p, int32_t count, struct oz_error *err);
void oz_pages_deinit(struct oz_pages *p);

/* Takes `n` pages, all or none: OZ_ERR_NOMEM says that fewer are free. */
OZ_MUST_USE enum oz_status oz_pages_take(struct oz_pages *p, int32_t n, int32_t *pages);
void oz_pages_give(struct oz_pages *p, int32_t n, const int32_t *pages);

#endif
