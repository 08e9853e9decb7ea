#include "cpu/ceiling.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/pool.h"

#define CEILING_NAME(id, name, unit) name,
#define CEILING_UNIT(id, name, unit) unit,
static const char *const names[] = {OZ_CEILING_MAP(CEILING_NAME)};
static const char *const units[] = {OZ_CEILING_MAP(CEILING_UNIT)};

const char *oz_ceiling_name(enum oz_ceiling kind)
{
    return (unsigned)kind < OZ_CEILING_COUNT ? names[kind] : "?";
}

const char *oz_ceiling_unit(enum oz_ceiling kind)
{
    return (unsigned)kind < OZ_CEILING_COUNT ? units[kind] : "?";
}

/* ---- portable loops ---- */

typedef float four __attribute__((vector_size(16)));

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define COUNT 8
#define BEGIN(i) four s##i = {unknown, unknown, unknown, unknown};
#define STEP(i) s##i = s##i * x + y;
#define ADD(i) sum += s##i[0];

/* What compilers make of portable C: vectors of four, no fused multiply-add. Sums begin with what they
 * cannot know, or they would make one of equal ones. */
static double scalar_f32(int64_t count)
{
    volatile float unknown = 0.5F;
    four x = {unknown, unknown, unknown, unknown};
    four y = x;
    float sum = 0;
    EACH(BEGIN)
    for (int64_t i = 0; i < count; i++) {
        EACH(STEP)
    }
    EACH(ADD)
    return isnan(sum) ? 0 : 2.0 * 4 * COUNT * (double)count;
}

static double scalar_s8(int64_t count)
{
    volatile int8_t unknown = 1;
    int8_t x = unknown;
    uint32_t a = (uint32_t)unknown;
    uint32_t b = (uint32_t)unknown;
    uint32_t c = (uint32_t)unknown;
    uint32_t d = (uint32_t)unknown;
    for (int64_t i = 0; i < count; i++) {
        uint32_t y = (uint32_t)(int8_t)i;
        a += (uint32_t)x * y;
        b += (uint32_t)x * (y ^ 1);
        c += (uint32_t)x * (y ^ 2);
        d += (uint32_t)x * (y ^ 3);
    }
    return a + b + c + d == 1 ? 0 : 2.0 * 4 * (double)count;
}

static uint64_t scalar_read(const void *memory, int64_t bytes)
{
    const uint64_t *p = memory;
    int64_t quarter = bytes / 32;
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t c = 0;
    uint64_t d = 0;
    for (int64_t i = 0; i < quarter; i += 8) {
        for (int64_t j = i; j < i + 8; j += 2) {
            a |= p[j] | p[j + 1];
            b |= p[quarter + j] | p[quarter + j + 1];
            c |= p[2 * quarter + j] | p[2 * quarter + j + 1];
            d |= p[3 * quarter + j] | p[3 * quarter + j + 1];
        }
    }
    return a | b | c | d;
}

#define AHEAD 1024 /* elements: 8 KiB */

/* On every tier a second way to read, since which one is faster depends on the processor: one stream that
 * asks far ahead, as kernels read weights in the order in which they lie. */
static uint64_t read_stream(const void *memory, int64_t bytes)
{
    const uint64_t *p = memory;
    uint64_t a = 0;
    uint64_t b = 0;
    for (int64_t i = 0; i < bytes / 8; i += 8) {
        __builtin_prefetch(p + i + AHEAD, 0, 2);
        a |= p[i] | p[i + 1] | p[i + 2] | p[i + 3];
        b |= p[i + 4] | p[i + 5] | p[i + 6] | p[i + 7];
    }
    return a | b;
}

static void scalar_update(void *memory, int64_t bytes)
{
    uint64_t *p = memory;
    int64_t quarter = bytes / 32;
    for (int64_t i = 0; i < quarter; i++) {
        p[i] ^= 1;
        p[quarter + i] ^= 1;
        p[2 * quarter + i] ^= 1;
        p[3 * quarter + i] ^= 1;
    }
}

/* ---- choice ---- */

typedef double (*compute_fn)(int64_t count);

struct loops {
    compute_fn compute[OZ_CEILING_READ];
    uint64_t (*read)(const void *memory, int64_t bytes);
    void (*update)(void *memory, int64_t bytes); /* a tier has both or neither */
};

static const struct loops loops[OZ_TIER_COUNT] = {
    [OZ_TIER_SCALAR] = {{[OZ_CEILING_F32] = scalar_f32, [OZ_CEILING_S8] = scalar_s8},
                        scalar_read,
                        scalar_update},
#if defined(OZ_HAVE_AVX2)
    [OZ_TIER_AVX2] =
        {{[OZ_CEILING_F32] = oz_ceiling_f32__avx2, [OZ_CEILING_S8] = oz_ceiling_s8__avx2},
         oz_ceiling_read__avx2,
         oz_ceiling_update__avx2},
#endif
#if defined(OZ_HAVE_AVXVNNI)
    [OZ_TIER_AVXVNNI] = {{[OZ_CEILING_S8] = oz_ceiling_s8__avxvnni}, NULL, NULL},
#endif
#if defined(OZ_HAVE_AVX512)
    [OZ_TIER_AVX512] =
        {{[OZ_CEILING_F32] = oz_ceiling_f32__avx512, [OZ_CEILING_S8] = oz_ceiling_s8__avx512},
         oz_ceiling_read__avx512,
         oz_ceiling_update__avx512},
#endif
#if defined(OZ_HAVE_AVX512BF16)
    [OZ_TIER_AVX512BF16] = {{[OZ_CEILING_BF16] = oz_ceiling_bf16__avx512bf16}, NULL, NULL},
#endif
#if defined(OZ_HAVE_AMX)
    [OZ_TIER_AMX] =
        {{[OZ_CEILING_BF16] = oz_ceiling_bf16__amx, [OZ_CEILING_S8] = oz_ceiling_s8__amx},
         NULL,
         NULL},
#endif
};

/* The loop of a tier, or of the nearest lower one that has it and can run. */
static compute_fn find_compute(uint32_t mask, enum oz_tier tier, enum oz_ceiling kind)
{
    for (int t = tier; t >= 0; t--) {
        if (mask & (1U << t) && loops[t].compute[kind] != NULL) {
            return loops[t].compute[kind];
        }
    }
    return kind == OZ_CEILING_BF16 ? find_compute(mask, tier, OZ_CEILING_F32) : NULL;
}

static const struct loops *find_memory(uint32_t mask, enum oz_tier tier)
{
    int t = tier;
    while (t > 0 && !(mask & (1U << t) && loops[t].read != NULL)) {
        t--;
    }
    return &loops[t];
}

/* ---- measuring ---- */

#define SLICE 5e-4 /* seconds: short, so that some are not interrupted */

/* Rounds that take about a slice; then the best of what fits. */
static double measure_compute(compute_fn fn, double seconds)
{
    int64_t count = 1 << 10;
    double best = 0;
    double start = oz_clock_seconds();
    double took = 0;
    while (took < SLICE && count < INT64_C(1) << 40) {
        double t = oz_clock_seconds();
        (void)fn(count);
        took = oz_clock_seconds() - t;
        count *= took < SLICE ? 2 : 1;
    }
    do {
        double t = oz_clock_seconds();
        double done = fn(count);
        best = fmax(best, done / (oz_clock_seconds() - t) * 1e-9);
    } while (oz_clock_seconds() - start < seconds);
    return best;
}

struct compute {
    compute_fn fn;
    double seconds;
    double *rates; /* one for each thread */
};

static void run_compute(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    struct compute *c = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        c->rates[i] = measure_compute(c->fn, c->seconds);
    }
}

static double compute_rate(struct oz_pool *pool, compute_fn fn, double seconds)
{
    int64_t threads = pool != NULL ? oz_pool_threads(pool) : 1;
    double *rates = oz_alloc_zero((size_t)threads, sizeof *rates);
    double sum = 0;
    if (fn != NULL && rates != NULL) {
        struct compute c = {fn, seconds, rates};
        oz_pool_for(pool, threads, 1, run_compute, &c);
        for (int64_t i = 0; i < threads; i++) {
            sum += rates[i];
        }
    }
    oz_free(rates);
    return sum;
}

#define MEMORY_BYTES (INT64_C(512) << 20) /* beyond the last cache of most machines */
#define PIECE_BYTES (INT64_C(2) << 20)    /* that a thread takes from a round */
#define ROUND_PIECES 8                    /* for each thread */

struct oz_ceiling_memory {
    struct oz_pool *pool;
    uint8_t *memory;
    int64_t pieces, rounds; /* of a round; until the memory begins again */
    int64_t round;
    /* Of the round that runs. */
    const struct loops *loops;
    enum oz_ceiling kind;
    int32_t way; /* of reading: the tier's, or read_stream's */
    uint8_t *at;
};

static void fill(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    struct oz_ceiling_memory *m = ctx;
    (void)thread;
    memset(m->memory + begin * PIECE_BYTES, 1, (size_t)((end - begin) * PIECE_BYTES));
}

static void run_memory(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    struct oz_ceiling_memory *m = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        uint8_t *piece = m->at + i * PIECE_BYTES;
        if (m->kind == OZ_CEILING_UPDATE) {
            m->loops->update(piece, PIECE_BYTES);
        } else if (m->way == 0) {
            (void)m->loops->read(piece, PIECE_BYTES);
        } else {
            volatile uint64_t seen = read_stream(piece, PIECE_BYTES); /* else nothing is read */
            (void)seen;
        }
    }
}

struct oz_ceiling_memory *oz_ceiling_memory_open(struct oz_pool *pool)
{
    struct oz_ceiling_memory *m = oz_alloc_zero(1, sizeof *m);
    if (m == NULL) {
        return NULL;
    }
    m->pool = pool;
    m->pieces = ROUND_PIECES * oz_pool_threads(pool);
    m->rounds = MEMORY_BYTES / (m->pieces * PIECE_BYTES);
    m->rounds = m->rounds > 2 ? m->rounds : 2;
    m->memory = oz_alloc_large((size_t)(m->rounds * m->pieces * PIECE_BYTES), 4096);
    if (m->memory == NULL) {
        oz_ceiling_memory_close(&m);
        return NULL;
    }
    oz_pool_for(pool, m->rounds * m->pieces, 1, fill, m);
    return m;
}

void oz_ceiling_memory_close(struct oz_ceiling_memory **m)
{
    if (*m != NULL) {
        oz_free((*m)->memory);
        oz_free(*m);
        *m = NULL;
    }
}

/* The next round: bytes moved, in 10^9, and the seconds it took. */
static double run_round(struct oz_ceiling_memory *m, const struct loops *l, enum oz_ceiling kind,
                        int32_t way, double *seconds)
{
    m->loops = l;
    m->kind = kind;
    m->way = way;
    m->at = m->memory + m->round++ % m->rounds * m->pieces * PIECE_BYTES;
    double start = oz_clock_seconds();
    oz_pool_for(m->pool, m->pieces, 1, run_memory, m);
    *seconds = oz_clock_seconds() - start;
    return (double)(m->pieces * PIECE_BYTES) * (kind == OZ_CEILING_UPDATE ? 2e-9 : 1e-9);
}

/* Is there a loop for the kind on this processor? */
static const struct loops *memory_loops(enum oz_tier tier, enum oz_ceiling kind)
{
    struct oz_cpuid id;
    oz_cpuid_read(&id);
    uint32_t mask = oz_tier_mask(&id);
    bool known = (unsigned)tier < OZ_TIER_COUNT && (mask & (1U << tier)) != 0 &&
                 (kind == OZ_CEILING_READ || kind == OZ_CEILING_UPDATE);
    return known ? find_memory(mask, tier) : NULL;
}

#define WAYS(kind) ((kind) == OZ_CEILING_READ ? 2 : 1)

double oz_ceiling_memory_rate(struct oz_ceiling_memory *m, enum oz_tier tier, enum oz_ceiling kind,
                              double seconds)
{
    const struct loops *l = memory_loops(tier, kind);
    double best = 0;
    for (int32_t way = 0; l != NULL && way < WAYS(kind); way++) {
        double moved = 0;
        double took = 0;
        while (took < seconds / WAYS(kind) || moved == 0) {
            double round;
            moved += run_round(m, l, kind, way, &round);
            took += round;
        }
        best = fmax(best, moved / took);
    }
    return best;
}

/* Rounds one after the other through the memory, over and over, at least once; the best of them. */
static double memory_rate(struct oz_pool *pool, enum oz_tier tier, enum oz_ceiling kind,
                          double seconds)
{
    const struct loops *l = memory_loops(tier, kind);
    struct oz_ceiling_memory *m = l != NULL ? oz_ceiling_memory_open(pool) : NULL;
    double best = 0;
    double start = oz_clock_seconds();
    while (m != NULL && (oz_clock_seconds() - start < seconds || m->round < m->rounds)) {
        double took;
        double moved = run_round(m, l, kind, (int32_t)(m->round % WAYS(kind)), &took);
        best = fmax(best, moved / took);
    }
    oz_ceiling_memory_close(&m);
    return best;
}

double oz_cpu_ceiling_pool(struct oz_pool *pool, enum oz_tier tier, enum oz_ceiling kind,
                           double seconds)
{
    if (kind >= OZ_CEILING_READ) {
        return memory_rate(pool, tier, kind, seconds);
    }
    struct oz_cpuid id;
    oz_cpuid_read(&id);
    uint32_t mask = oz_tier_mask(&id);
    if ((unsigned)tier >= OZ_TIER_COUNT || !(mask & (1U << tier))) {
        return 0;
    }
    return compute_rate(pool, find_compute(mask, tier, kind), seconds);
}

double oz_cpu_ceiling(enum oz_tier tier, enum oz_ceiling kind, double seconds)
{
    return oz_cpu_ceiling_pool(NULL, tier, kind, seconds);
}
