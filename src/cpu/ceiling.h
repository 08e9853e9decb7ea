/*
 * cpu/ceiling.h: what one thread of this machine can do at most, measured by loops that do nothing
 * else. Kernels' rates are given as shares of these, taken in the same run.
 */
#ifndef OZ_CPU_CEILING_H
#define OZ_CPU_CEILING_H

#include "cpu/tier.h"

struct oz_pool;

/* Kind, name, unit. A multiply-add counts as two operations. DECODE has no loop here: cpu/bench.c takes
 * the kernel itself. */
#define OZ_CEILING_MAP(X)                                                            \
    X(OZ_CEILING_F32, "f32", "GFLOP/s")    /* fused multiply-adds of f32 */          \
    X(OZ_CEILING_BF16, "bf16", "GFLOP/s")  /* bf16 products summed in f32 */         \
    X(OZ_CEILING_S8, "s8", "GOP/s")        /* 8-bit products summed in s32 */        \
    X(OZ_CEILING_READ, "read", "GB/s")     /* reading memory that no cache holds */  \
    X(OZ_CEILING_UPDATE, "update", "GB/s") /* changing it in place: bytes in, out */ \
    X(OZ_CEILING_DECODE, "decode", "GB/s") /* weights that lie in a second cache */

enum oz_ceiling {
#define OZ_CEILING_ENUM(id, name, unit) id,
    OZ_CEILING_MAP(OZ_CEILING_ENUM)
#undef OZ_CEILING_ENUM
        OZ_CEILING_COUNT
};

const char *oz_ceiling_name(enum oz_ceiling kind);
const char *oz_ceiling_unit(enum oz_ceiling kind);

/*
 * The best rate of one thread within `seconds`, in units of 10^9 a second, with the instructions of a
 * tier: a tier without bf16 products gives its f32 rate for BF16 (it widens), one without its own
 * 8-bit products the rate of the next lower tier. 0: the processor or the build lacks the tier, or
 * there was no memory to read.
 */
double oz_cpu_ceiling(enum oz_tier tier, enum oz_ceiling kind, double seconds);

/* All threads of a pool together. Products: the sum of each thread's best. Memory, which they share:
 * the best of rounds in which all take part. Reading is tried in two ways. */
double oz_cpu_ceiling_pool(struct oz_pool *pool, enum oz_tier tier, enum oz_ceiling kind,
                           double seconds);

/* The same of memory, for rates that are taken again and again. NULL: there is none. */
struct oz_ceiling_memory;
struct oz_ceiling_memory *oz_ceiling_memory_open(struct oz_pool *pool);
void oz_ceiling_memory_close(struct oz_ceiling_memory **m);

/* The mean of rounds that take `seconds` together; of reading, that of the faster of two ways, half of the
 * time each. */
double oz_ceiling_memory_rate(struct oz_ceiling_memory *m, enum oz_tier tier, enum oz_ceiling kind,
                              double seconds);

/* The loops, one for each tier and kind, in kern/x86/ceiling__<tier>.c: `count` rounds, operations
 * done. READ, UPDATE: `bytes` bytes, a multiple of 1024, are read or changed as four streams; what was
 * read is returned, so that the reading is not in vain. */
double oz_ceiling_f32__avx2(int64_t count);
double oz_ceiling_s8__avx2(int64_t count);
uint64_t oz_ceiling_read__avx2(const void *memory, int64_t bytes);
void oz_ceiling_update__avx2(void *memory, int64_t bytes);
double oz_ceiling_s8__avxvnni(int64_t count);
double oz_ceiling_f32__avx512(int64_t count);
double oz_ceiling_s8__avx512(int64_t count);
uint64_t oz_ceiling_read__avx512(const void *memory, int64_t bytes);
void oz_ceiling_update__avx512(void *memory, int64_t bytes);
double oz_ceiling_bf16__avx512bf16(int64_t count);
double oz_ceiling_bf16__amx(int64_t count);
double oz_ceiling_s8__amx(int64_t count);

#endif
