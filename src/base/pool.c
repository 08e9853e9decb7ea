#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#define MAX_THREADS 1024
#define SPIN_SECONDS 40e-6 /* before a thread sleeps */

struct worker {
    struct oz_pool *pool;
    pthread_t thread;
    int32_t index;
};

/* What is left of a thread's own part of a range that streams. */
struct part {
    _Alignas(64) atomic_int_fast64_t next;
    int64_t end;
};

/*
 * The gate is one word: the round in the upper half, whether it takes workers in, and how many are
 * inside. A worker enters by counting itself in, so a round ends when the gate is shut and nobody is
 * inside: a worker that wakes up late costs nothing. fn, ctx and the ranges change only while that
 * holds, and whoever enters reads them behind the gate.
 */
#define ROUND_ONE (UINT64_C(1) << 32)
#define OPEN (UINT64_C(1) << 31)
#define INSIDE (OPEN - 1)

struct oz_pool {
    /* What workers read while they wait and when they enter. */
    _Alignas(64) atomic_uint_fast64_t gate;
    oz_pool_fn fn;
    void *ctx;
    int64_t count, grain;
    bool streams; /* by parts, not by grains */
    int32_t threads, started;
    atomic_int sleepers; /* workers that wait for `start`, or are about to */
    atomic_bool waiting; /* the caller waits for `finish`, or is about to */
    atomic_bool stop;
    bool spin; /* there is a CPU for each thread */
    /* Written with each grain. */
    _Alignas(64) atomic_int_fast64_t next;
    struct worker *workers; /* [threads - 1] */
    struct part *parts;     /* [threads] */
    pthread_mutex_t lock;
    pthread_cond_t start, finish;
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

static void work_parts(struct oz_pool *p, int32_t thread)
{
    for (int32_t i = 0; i < p->threads; i++) {
        struct part *part = &p->parts[(thread + i) % p->threads];
        for (;;) {
            int64_t at = atomic_fetch_add_explicit(&part->next, 1, memory_order_relaxed);
            if (at >= part->end) {
                break;
            }
            p->fn(p->ctx, at, at + 1, thread);
        }
    }
}

/* Takes grains until none is left. */
static void work(struct oz_pool *p, int32_t thread)
{
    if (p->streams) {
        work_parts(p, thread);
        return;
    }
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&p->next, p->grain, memory_order_relaxed);
        if (begin >= p->count) {
            return;
        }
        int64_t end = p->count - begin < p->grain ? p->count : begin + p->grain;
        p->fn(p->ctx, begin, end, thread);
    }
}

static void relax(void)
{
#if OZ_ARCH_X86
    __builtin_ia32_pause();
#endif
}

/*
 * Looks at the gate until `mask` of it differs from `old` or SPIN_SECONDS are over; returns what it
 * saw last. Operators follow one another within microseconds: waking a thread takes longer. It yields
 * now and then: what it waits for may want this very CPU.
 */
static uint64_t spin_while(struct oz_pool *p, uint64_t mask, uint64_t old)
{
    uint64_t gate = atomic_load(&p->gate);
    double end = 0;
    while (p->spin && (gate & mask) == old && !atomic_load(&p->stop)) {
        for (int i = 0; i < 64 && (gate & mask) == old; i++) {
            relax();
            gate = atomic_load_explicit(&p->gate, memory_order_acquire);
        }
        double now = oz_clock_seconds();
        end = end > 0 ? end : now + SPIN_SECONDS;
        if (now >= end) {
            break;
        }
        (void)sched_yield();
        gate = atomic_load(&p->gate);
    }
    return gate;
}

/* Waits for a round other than `seen` and returns the gate; sleeps when none comes soon. Each side
 * writes its word (here sleepers, there gate) before it reads the other's, so none is missed. */
static uint64_t wait_for_round(struct oz_pool *p, uint64_t seen)
{
    uint64_t rounds = ~(ROUND_ONE - 1);
    uint64_t gate = spin_while(p, rounds, seen);
    if ((gate & rounds) != seen || atomic_load(&p->stop)) {
        return gate;
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    gate = atomic_load(&p->gate);
    while ((gate & rounds) == seen && !atomic_load(&p->stop)) {
        pthread_cond_wait(&p->start, &p->lock);
        gate = atomic_load(&p->gate);
    }
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    return gate;
}

static void leave(struct oz_pool *p)
{
    uint64_t before = atomic_fetch_sub(&p->gate, 1);
    if ((before & INSIDE) == 1 && atomic_load(&p->waiting)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->finish);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct oz_pool *p = w->pool;
    uint64_t seen = 0;
    for (;;) {
        uint64_t gate = wait_for_round(p, seen);
        if (atomic_load(&p->stop)) {
            return NULL;
        }
        seen = gate & ~(ROUND_ONE - 1);
        while ((gate & OPEN) && (gate & ~(ROUND_ONE - 1)) == seen) {
            if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) {
                work(p, w->index);
                leave(p);
                break;
            }
        }
    }
}

/* The gate is shut: waits for those inside. */
static void wait_until_empty(struct oz_pool *p, uint64_t gate)
{
    while ((gate & INSIDE) != 0) {
        uint64_t now = spin_while(p, INSIDE, gate & INSIDE);
        if (now != gate) {
            gate = now;
            continue;
        }
        pthread_mutex_lock(&p->lock);
        atomic_store(&p->waiting, true);
        while (((gate = atomic_load(&p->gate)) & INSIDE) != 0) {
            pthread_cond_wait(&p->finish, &p->lock);
        }
        atomic_store(&p->waiting, false);
        pthread_mutex_unlock(&p->lock);
    }
}

enum oz_status oz_pool_create(struct oz_pool **out, int32_t threads, struct oz_error *err)
{
    *out = NULL;
    if (threads < 0 || threads > MAX_THREADS) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%d threads: the number must be 0 (automatic) to %d.",
                       threads, MAX_THREADS);
    }
    struct oz_pool *p = oz_alloc_aligned(sizeof *p, _Alignof(struct oz_pool));
    if (p == NULL) {
        return OZ_FAIL_NOMEM(err, "the thread pool");
    }
    memset(p, 0, sizeof *p);
    int32_t cpus = oz_pool_default_threads();
    p->threads = threads > 0 ? threads : cpus;
    p->spin = p->threads <= cpus;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->finish, NULL);
    p->workers = oz_alloc_zero((size_t)p->threads, sizeof *p->workers);
    p->parts = oz_alloc_aligned((size_t)p->threads * sizeof *p->parts, _Alignof(struct part));
    if (p->workers == NULL || p->parts == NULL) {
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
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < p->started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->start);
    pthread_cond_destroy(&p->finish);
    pthread_mutex_destroy(&p->lock);
    oz_free(p->workers);
    oz_free(p->parts);
    oz_free(p);
    *pool = NULL;
}

int32_t oz_pool_threads(const struct oz_pool *pool)
{
    return pool != NULL ? pool->threads : 1;
}

/* What fn, ctx and the ranges say, by all threads. */
static void run_round(struct oz_pool *p)
{
    uint64_t gate = atomic_load(&p->gate); /* shut and empty */
    atomic_store(&p->gate, gate + ROUND_ONE + OPEN);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->start);
        pthread_mutex_unlock(&p->lock);
    }
    work(p, 0);
    gate = atomic_fetch_and(&p->gate, ~OPEN);
    wait_until_empty(p, gate & ~OPEN);
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
    p->fn = fn;
    p->ctx = ctx;
    p->count = count;
    p->grain = grain;
    p->streams = false;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    run_round(p);
}

void oz_pool_stream(struct oz_pool *p, int64_t count, oz_pool_fn fn, void *ctx)
{
    if (p == NULL || p->threads == 1 || count <= 1) {
        oz_pool_for(p, count, 1, fn, ctx);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->streams = true;
    int64_t each = count / p->threads;
    int64_t more = count % p->threads; /* parts that are one longer */
    int64_t begin = 0;
    for (int32_t i = 0; i < p->threads; i++) {
        int64_t end = begin + each + (i < more);
        atomic_store_explicit(&p->parts[i].next, begin, memory_order_relaxed);
        p->parts[i].end = end;
        begin = end;
    }
    run_round(p);
}
