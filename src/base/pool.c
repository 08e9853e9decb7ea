#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define MAX_THREADS 1024

struct worker {
    struct oz_pool *pool;
    pthread_t thread;
    int32_t index;
};

struct oz_pool {
    pthread_mutex_t lock;
    pthread_cond_t start, finish;
    struct worker *workers; /* [threads - 1] */
    int32_t threads, started;
    uint64_t round;  /* grows with each oz_pool_for */
    int32_t running; /* workers that have not finished this round */
    bool stop;
    oz_pool_fn fn;
    void *ctx;
    int64_t count, grain;
    atomic_int_fast64_t next;
};

/* CPUs that a cgroup quota allows ("max" or "<quota> <period>"), or 0 when there is none. */
static int32_t cgroup_cpus(void)
{
    char text[128];
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f == NULL) {
        return 0;
    }
    char *line = fgets(text, sizeof text, f);
    (void)fclose(f);
    if (line == NULL) {
        return 0;
    }
    char *end = NULL;
    double quota = strtod(line, &end);
    double period = end != line ? strtod(end, NULL) : 0;
    if (end == line || quota <= 0 || period <= 0) {
        return 0;
    }
    double cpus = quota / period;
    return cpus < 1 ? 1 : (cpus > MAX_THREADS ? MAX_THREADS : (int32_t)(cpus + 0.999));
}

int32_t oz_pool_default_threads(void)
{
    cpu_set_t set;
    int32_t n = 1;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        n = CPU_COUNT(&set);
    }
    int32_t quota = cgroup_cpus();
    if (quota > 0 && quota < n) {
        n = quota;
    }
    return n < 1 ? 1 : n;
}

/* Takes grains until none is left. */
static void work(struct oz_pool *p, int32_t thread)
{
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&p->next, p->grain, memory_order_relaxed);
        if (begin >= p->count) {
            return;
        }
        int64_t end = p->count - begin < p->grain ? p->count : begin + p->grain;
        p->fn(p->ctx, begin, end, thread);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct oz_pool *p = w->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && p->round == seen) {
            pthread_cond_wait(&p->start, &p->lock);
        }
        if (p->stop) {
            break;
        }
        seen = p->round;
        pthread_mutex_unlock(&p->lock);
        work(p, w->index);
        pthread_mutex_lock(&p->lock);
        if (--p->running == 0) {
            pthread_cond_signal(&p->finish);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum oz_status oz_pool_create(struct oz_pool **out, int32_t threads, struct oz_error *err)
{
    *out = NULL;
    if (threads < 0 || threads > MAX_THREADS) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%d threads: the number must be 0 (automatic) to %d.",
                       threads, MAX_THREADS);
    }
    struct oz_pool *p = oz_alloc_zero(1, sizeof *p);
    if (p == NULL) {
        return OZ_FAIL_NOMEM(err, "the thread pool");
    }
    p->threads = threads > 0 ? threads : oz_pool_default_threads();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->finish, NULL);
    p->workers = oz_alloc_zero((size_t)p->threads, sizeof *p->workers);
    if (p->workers == NULL) {
        oz_pool_destroy(&p);
        return OZ_FAIL_NOMEM(err, "the thread pool");
    }
    for (int32_t i = 0; i < p->threads - 1; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i + 1};
        int failed = pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]);
        if (failed) {
            int32_t wanted = p->threads;
            oz_pool_destroy(&p);
            return OZ_FAIL(err, OZ_ERR_NOMEM,
                           "Thread %d of %d could not be started (%s); use fewer with --threads.",
                           i + 2, wanted, strerror(failed));
        }
        p->started++;
    }
    *out = p;
    return OZ_OK;
}

void oz_pool_destroy(struct oz_pool **pool)
{
    struct oz_pool *p = *pool;
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < p->started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->start);
    pthread_cond_destroy(&p->finish);
    pthread_mutex_destroy(&p->lock);
    oz_free(p->workers);
    oz_free(p);
    *pool = NULL;
}

int32_t oz_pool_threads(const struct oz_pool *pool)
{
    return pool != NULL ? pool->threads : 1;
}

void oz_pool_for(struct oz_pool *p, int64_t count, int64_t grain, oz_pool_fn fn, void *ctx)
{
    if (count <= 0) {
        return;
    }
    if (grain < 1) {
        grain = 1;
    }
    if (p == NULL || p->threads == 1 || count <= grain) {
        for (int64_t begin = 0; begin < count; begin += grain) {
            fn(ctx, begin, count - begin < grain ? count : begin + grain, 0);
        }
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->ctx = ctx;
    p->count = count;
    p->grain = grain;
    atomic_store(&p->next, 0);
    p->running = p->threads - 1;
    p->round++;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    work(p, 0);
    pthread_mutex_lock(&p->lock);
    while (p->running > 0) {
        pthread_cond_wait(&p->finish, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}
