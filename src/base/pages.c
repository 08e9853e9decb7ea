#include "base/pages.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum oz_status oz_pages_init(struct oz_pages *p, int32_t count, struct oz_error *err)
{
    *p = (struct oz_pages){0};
    assert(count >= 0);
    p->free_list = oz_alloc_zero((size_t)count, sizeof *p->free_list);
    if (p->free_list == NULL) {
        return OZ_FAIL_NOMEM(err, "the page pool");
    }
    p->count = p->free_count = count;
    for (int32_t i = 0; i < count; i++) {
        p->free_list[i] = count - 1 - i; /* so that page 0 is taken first */
    }
    return OZ_OK;
}

void oz_pages_deinit(struct oz_pages *p)
{
    oz_free(p->free_list);
    *p = (struct oz_pages){0};
}

enum oz_status oz_pages_take(struct oz_pages *p, int32_t n, int32_t *pages)
{
    assert(n >= 0);
    if (n > p->free_count) {
        return OZ_ERR_NOMEM;
    }
    for (int32_t i = 0; i < n; i++) {
        pages[i] = p->free_list[--p->free_count];
    }
    return OZ_OK;
}

void oz_pages_give(struct oz_pages *p, int32_t n, const int32_t *pages)
{
    assert(n >= 0 && n <= p->count - p->free_count);
    for (int32_t i = 0; i < n; i++) {
        assert(pages[i] >= 0 && pages[i] < p->count);
        p->free_list[p->free_count++] = pages[i];
    }
}
