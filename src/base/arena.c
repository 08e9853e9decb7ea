#include "base/arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

void oz_arena_init_measure(struct oz_arena *a, const char *name)
{
    *a =
        (struct oz_arena){.name = name,
                          .base = (uint8_t *)(uintptr_t)OZ_ARENA_ALIGN, /* in the unmapped page 0 */
                          .capacity_bytes = SIZE_MAX / 2,
                          .measuring = true};
}

void oz_arena_init_view(struct oz_arena *a, const char *name, void *base, size_t bytes, bool host)
{
    assert((uintptr_t)base % OZ_ARENA_ALIGN == 0);
    *a = (struct oz_arena){.name = name, .base = base, .capacity_bytes = bytes, .host = host};
    if (host && base != NULL) {
        POISON(base, bytes);
    }
}

enum oz_status oz_arena_init_host(struct oz_arena *a, const char *name, size_t bytes,
                                  struct oz_error *err)
{
    *a = (struct oz_arena){.name = name};
    size_t whole = oz_arena_round(bytes);
    /* Not aligned_alloc: only zeroed allocations come untouched from the system. */
    void *owned =
        whole < SIZE_MAX - OZ_ARENA_ALIGN ? oz_alloc_zero(1, whole + OZ_ARENA_ALIGN) : NULL;
    if (owned == NULL) {
        return OZ_FAIL(err, OZ_ERR_NOMEM, "Out of memory: %zu bytes for the %s arena.", bytes,
                       name);
    }
    void *base =
        (void *)(((uintptr_t)owned + OZ_ARENA_ALIGN - 1) & ~(uintptr_t)(OZ_ARENA_ALIGN - 1));
    oz_arena_init_view(a, name, base, whole, true);
    a->owned = owned;
    return OZ_OK;
}

void oz_arena_deinit(struct oz_arena *a)
{
    if (a->host && a->base != NULL) {
        UNPOISON(a->base, a->capacity_bytes);
    }
    oz_free(a->owned);
    *a = (struct oz_arena){0};
}

size_t oz_arena_round(size_t bytes)
{
    if (bytes > SIZE_MAX - OZ_ARENA_ALIGN) {
        return SIZE_MAX;
    }
    return (bytes + OZ_ARENA_ALIGN - 1) & ~(size_t)(OZ_ARENA_ALIGN - 1);
}

enum oz_status oz_arena_push(struct oz_arena *a, size_t bytes, void **out)
{
    *out = NULL;
    size_t whole = oz_arena_round(bytes);
    if (whole == SIZE_MAX || whole > a->capacity_bytes - a->used_bytes) {
        return OZ_ERR_NOMEM;
    }
    *out = (void *)((uintptr_t)a->base + a->used_bytes);
    if (a->host) {
        UNPOISON(*out, bytes);
    }
    a->used_bytes += whole;
    if (a->used_bytes > a->peak_bytes) {
        a->peak_bytes = a->used_bytes;
    }
    return OZ_OK;
}

void oz_arena_reset(struct oz_arena *a, size_t mark)
{
    assert(mark <= a->used_bytes);
    if (a->host) {
        POISON(a->base + mark, a->used_bytes - mark);
    }
    a->used_bytes = mark;
}

const char *oz_arena_string(struct oz_arena *a, const char *text)
{
    size_t bytes = strlen(text) + 1;
    void *copy = NULL;
    if (!a->host || oz_arena_push(a, bytes, &copy) != OZ_OK) {
        return NULL;
    }
    memcpy(copy, text, bytes);
    return copy;
}

const char *oz_arena_vprintf(struct oz_arena *a, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    void *copy = NULL;
    if (n < 0 || !a->host || oz_arena_push(a, (size_t)n + 1, &copy) != OZ_OK) {
        return NULL;
    }
    (void)vsnprintf(copy, (size_t)n + 1, format, args);
    return copy;
}
