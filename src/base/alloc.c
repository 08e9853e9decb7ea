#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

static atomic_uint_fast64_t calls;
static atomic_uint_fast64_t fail_at; /* absolute number of the call that fails; 0: none */
static atomic_int fail_sticky;

uint64_t oz_alloc_calls(void)
{
    return atomic_load_explicit(&calls, memory_order_relaxed);
}

void oz_alloc_fail_at(uint64_t n, int sticky)
{
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_at, n ? atomic_load(&calls) + n : 0);
}

/* Counts a call; true when it must fail. */
static int count_call(void)
{
    uint64_t n = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    uint64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (at == 0) {
        return 0;
    }
    return n == at || (n > at && atomic_load(&fail_sticky));
}

void *oz_alloc(size_t bytes)
{
    return count_call() ? NULL : malloc(bytes ? bytes : 1);
}

void *oz_alloc_zero(size_t count, size_t size)
{
    size_t bytes;
    if (count_call() || __builtin_mul_overflow(count, size, &bytes)) {
        return NULL;
    }
    return bytes ? calloc(count, size) : calloc(1, 1);
}

void *oz_realloc(void *memory, size_t bytes)
{
    return count_call() ? NULL : realloc(memory, bytes ? bytes : 1);
}

void *oz_alloc_aligned(size_t bytes, size_t align)
{
    void *memory = NULL;
    if (count_call() || posix_memalign(&memory, align, bytes ? bytes : 1) != 0) {
        return NULL;
    }
    return memory;
}

#define HUGE_PAGE ((size_t)2 << 20)

void *oz_alloc_large(size_t bytes, size_t align)
{
    bool huge = bytes >= 2 * HUGE_PAGE;
    void *memory = oz_alloc_aligned(bytes, huge && align < HUGE_PAGE ? HUGE_PAGE : align);
#if defined(MADV_HUGEPAGE)
    if (memory != NULL && huge) { /* whole pages only: the rest would be rounded up */
        (void)madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
#endif
    return memory;
}

void oz_free(void *memory)
{
    free(memory);
}

char *oz_strndup(const char *text, size_t bytes)
{
    char *copy = bytes < SIZE_MAX ? oz_alloc(bytes + 1) : NULL;
    if (copy != NULL) {
        memcpy(copy, text, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

char *oz_strdup(const char *text)
{
    return oz_strndup(text, strlen(text));
}

void oz_alloc_trim(void)
{
#if defined(__GLIBC__)
    (void)malloc_trim(0);
#endif
}
