/*
 * base/pool.h: threads that share a range. The number of threads never changes a result: a range is
 * cut into grains of fixed size, and which thread takes a grain does not matter to what it writes.
 * Workers look for the next range for some 40 us before they sleep, if each thread has a CPU.
 */
#ifndef OZ_BASE_POOL_H
#define OZ_BASE_POOL_H

#include <ounce/status.h>
#include <stdint.h>

struct oz_pool;

/* Threads that this process may really use: the affinity mask, cut by the cgroup's CPU quota
 * (rounded up), at least 1. */
int32_t oz_pool_default_threads(void);

/* `threads` workers in all, the calling thread included (so 1 starts none); 0: the default. */
OZ_MUST_USE enum oz_status oz_pool_create(struct oz_pool **out, int32_t threads,
                                          struct oz_error *err);
void oz_pool_destroy(struct oz_pool **pool);
int32_t oz_pool_threads(const struct oz_pool *pool);

/* Work on [begin, end). `thread` is in [0, threads) and no two running calls share it. */
typedef void (*oz_pool_fn)(void *ctx, int64_t begin, int64_t end, int32_t thread);

/*
 * Runs fn over [0, count) in grains of `grain` (the last may be short) and returns when all are
 * done. Called by one thread at a time; not from inside fn. pool NULL: on the calling thread.
 */
void oz_pool_for(struct oz_pool *pool, int64_t count, int64_t grain, oz_pool_fn fn, void *ctx);

/*
 * The same in grains of one, for what lies one after the other in memory: each thread walks a part of its
 * own from begin to end, so that what it asks for ahead is for itself, and then takes from what others
 * have left.
 */
void oz_pool_stream(struct oz_pool *pool, int64_t count, oz_pool_fn fn, void *ctx);

#endif
