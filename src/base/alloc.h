/*
 * base/alloc.h: the only door to the heap. Counts what is live, so that tests can prove that loops
 * allocate nothing, and fails on demand, so that tests can walk every failure path.
 */
#ifndef OZ_BASE_ALLOC_H
#define OZ_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Like malloc, calloc, realloc, free, but for zero sizes: those give a valid pointer. NULL when
 * there is no memory. Thread safe. */
void *oz_alloc(size_t bytes);
void *oz_alloc_zero(size_t count, size_t size); /* NULL on overflow too */
void *oz_realloc(void *memory, size_t bytes);
void *oz_alloc_aligned(size_t bytes, size_t align); /* give back with oz_free */
/* The same for what is filled from end to end and read often (weights, scratch): in huge pages where
 * the system has them, so that streams are not cut at each 4 KiB. Never more memory than asked. */
void *oz_alloc_large(size_t bytes, size_t align);
void oz_free(void *memory);

/* Gives what the heap holds free back to the system, where it can: before memory is measured. */
void oz_alloc_trim(void);

char *oz_strdup(const char *text); /* NULL when there is no memory */
char *oz_strndup(const char *text, size_t bytes);

/* Calls of oz_alloc and friends so far in this process. */
uint64_t oz_alloc_calls(void);

/* Tests: the n-th call from now fails (1: the next one); 0 switches it off. With `sticky`, all
 * later ones fail too. */
void oz_alloc_fail_at(uint64_t n, int sticky);

#endif
