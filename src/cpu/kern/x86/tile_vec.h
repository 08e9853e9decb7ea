/*
 * cpu/kern/x86/tile_vec.h: the micro-kernel of linear and conv, over vec_avx2.h (6 rows by 16 columns)
 * or vec_avx512.h (12 by 32). In f32: panels are f32, or bf16 that is widened (exactly) as it is read;
 * every sum is one accumulator, one fused multiply-add for each k in order. With TILE_PAIRS defined
 * (AVX512-BF16) both sides are bf16, two neighbours of K in each lane, and every sum is one
 * accumulator of VDPBF16PS. With TILE_QUADS rows are u8 and panels s8, four of K in a lane, sums s32
 * of VPDPBUSD.
 *
 * Sums are named variables: GCC keeps an array of them on the stack and writes it back in every step,
 * which costs two thirds of the speed.
 */
#ifndef OZ_CPU_KERN_X86_TILE_VEC_H
#define OZ_CPU_KERN_X86_TILE_VEC_H

#include <stdbool.h>
#include <string.h>

#include "cpu/gemm.h"

#define TILE_NR (2 * OZ_VL)
#if OZ_VL == 16
#define TILE_MR 12
#else
#define TILE_MR 6
#endif

#define TILE_INLINE static inline __attribute__((always_inline))

#if defined(TILE_PAIRS)
#include "cpu/kern/x86/pairs_avx512bf16.h"
#define TILE_KR 2
typedef vp tile_v;
TILE_INLINE tile_v tile_set(const char *a)
{
    return vp_set(a);
}
TILE_INLINE tile_v tile_panel(const char *b, int64_t lane, bool bf16)
{
    (void)bf16;
    return vp_load(b + 4 * lane);
}
TILE_INLINE vf tile_add(vf sum, tile_v a, tile_v b)
{
    return vp_dot(sum, a, b);
}
TILE_INLINE vf tile_add_at(vf sum, const char *a, tile_v b)
{
    return vp_dot_at(sum, a, b);
}
#elif defined(TILE_QUADS)
#include "cpu/kern/x86/quads_avx512.h"
#define TILE_KR 4
typedef vq tile_v;
TILE_INLINE tile_v tile_set(const char *a)
{
    return vq_set(a);
}
TILE_INLINE tile_v tile_panel(const char *b, int64_t lane, bool bf16)
{
    (void)bf16;
    return vq_load(b + 4 * lane);
}
TILE_INLINE vf tile_add(vf sum, tile_v a, tile_v b)
{
    return vq_dot(sum, a, b);
}
TILE_INLINE vf tile_add_at(vf sum, const char *a, tile_v b)
{
    return vq_dot(sum, vq_set(a), b);
}
#else
#define TILE_KR 1
typedef vf tile_v;
TILE_INLINE tile_v tile_set(const char *a)
{
    return v_set(*(const float *)(const void *)a);
}
TILE_INLINE tile_v tile_panel(const char *b, int64_t lane, bool bf16)
{
    return bf16 ? v_load_bf16((const uint16_t *)(const void *)b + lane)
                : v_load((const float *)(const void *)b + lane);
}
TILE_INLINE vf tile_add(vf sum, tile_v a, tile_v b)
{
    return v_fma(a, b, sum);
}
TILE_INLINE vf tile_add_at(vf sum, const char *a, tile_v b)
{
    return v_fma_at((const float *)(const void *)a, b, sum);
}
#endif

/*
 * Rows whose element is broadcast by each multiply-add itself: two loads in place of a load and an
 * instruction. All rows would be bound by loads (two a cycle), none by the instructions that a core
 * decodes when it shares them with another thread; two of three measured best.
 */
#if OZ_VL == 16 && TILE_KR == 1 /* else the products are the bound: folding only costs */
#define TILE_FOLDS(r) ((r) % 3 != 2)
#else
#define TILE_FOLDS(r) false
#endif

#define TILE_A_BYTES 4 /* of a row in one step: an f32, two bf16, four bytes */

#define ROWS_1(X) X(0)
#define ROWS_2(X) ROWS_1(X) X(1)
#define ROWS_3(X) ROWS_2(X) X(2)
#define ROWS_4(X) ROWS_3(X) X(3)
#define ROWS_5(X) ROWS_4(X) X(4)
#define ROWS_6(X) ROWS_5(X) X(5)
#define ROWS_7(X) ROWS_6(X) X(6)
#define ROWS_8(X) ROWS_7(X) X(7)
#define ROWS_9(X) ROWS_8(X) X(8)
#define ROWS_10(X) ROWS_9(X) X(9)
#define ROWS_11(X) ROWS_10(X) X(10)
#define ROWS_12(X) ROWS_11(X) X(11)

/* A pointer for each row: a load that is part of a multiply-add costs no more than the multiply-add
 * only where its address is a register and a constant. */
#define ROW_BEGIN(r) const char *p##r = a + (r) * (lda * (TILE_A_BYTES / TILE_KR));
#define ROW_NEXT(r)               \
    p##r += steps * TILE_A_BYTES; \
    __asm__("" : "+r"(p##r)); /* or the compiler derives one from another in every step */

#define TILE_BEGIN(r)                                  \
    vf lo##r = first ? v_zero() : v_load(c + (r)*ldc); \
    vf hi##r = first ? v_zero() : v_load(c + (r)*ldc + OZ_VL);
#define TILE_ROW(r)                                \
    if (TILE_FOLDS(r)) {                           \
        lo##r = tile_add_at(lo##r, p##r + at, b0); \
        hi##r = tile_add_at(hi##r, p##r + at, b1); \
    } else {                                       \
        x = tile_set(p##r + at);                   \
        lo##r = tile_add(lo##r, x, b0);            \
        hi##r = tile_add(hi##r, x, b1);            \
    }
#define TILE_END(r)              \
    v_store(c + (r)*ldc, lo##r); \
    v_store(c + (r)*ldc + OZ_VL, hi##r);

/* Step i of those between two moves of the pointers. */
#define TILE_STEP(ROWS, i)                                   \
    {                                                        \
        const int64_t at = (i)*TILE_A_BYTES;                 \
        const char *from = b + (i)*TILE_NR * (bf16 ? 2 : 4); \
        tile_v b0 = tile_panel(from, 0, bf16);               \
        tile_v b1 = tile_panel(from, OZ_VL, bf16);           \
        ROWS(TILE_ROW)                                       \
    }
#define TILE_NEXT(ROWS, count)                 \
    {                                          \
        const int64_t steps = count;           \
        b += steps * TILE_NR * (bf16 ? 2 : 4); \
        ROWS(ROW_NEXT)                         \
    }

/* FOUR: in steps of four; only the whole tile, as it takes time to compile. */
#define TILE(name, ROWS, FOUR)                                                            \
    TILE_INLINE void name(int64_t k, const char *a, int64_t lda, const char *b, float *c, \
                          int64_t ldc, bool first, bool bf16)                             \
    {                                                                                     \
        tile_v x;                                                                         \
        int64_t i = 0;                                                                    \
        ROWS(ROW_BEGIN)                                                                   \
        ROWS(TILE_BEGIN)                                                                  \
        for (; (FOUR) && i + 4 * TILE_KR <= k; i += 4 * TILE_KR) {                        \
            TILE_STEP(ROWS, 0)                                                            \
            TILE_STEP(ROWS, 1)                                                            \
            TILE_STEP(ROWS, 2)                                                            \
            TILE_STEP(ROWS, 3)                                                            \
            TILE_NEXT(ROWS, 4)                                                            \
        }                                                                                 \
        for (; i < k; i += TILE_KR) {                                                     \
            TILE_STEP(ROWS, 0)                                                            \
            TILE_NEXT(ROWS, 1)                                                            \
        }                                                                                 \
        ROWS(TILE_END)                                                                    \
    }

TILE(tile_1, ROWS_1, TILE_MR == 1)
TILE(tile_2, ROWS_2, TILE_MR == 2)
TILE(tile_3, ROWS_3, TILE_MR == 3)
TILE(tile_4, ROWS_4, TILE_MR == 4)
TILE(tile_5, ROWS_5, TILE_MR == 5)
TILE(tile_6, ROWS_6, TILE_MR == 6)
#if OZ_VL == 16
TILE(tile_7, ROWS_7, TILE_MR == 7)
TILE(tile_8, ROWS_8, TILE_MR == 8)
TILE(tile_9, ROWS_9, TILE_MR == 9)
TILE(tile_10, ROWS_10, TILE_MR == 10)
TILE(tile_11, ROWS_11, TILE_MR == 11)
TILE(tile_12, ROWS_12, TILE_MR == 12)
#endif

TILE_INLINE void tile_any(int64_t rows, int64_t k, const char *a, int64_t lda, const char *b,
                          float *c, int64_t ldc, bool first, bool bf16)
{
    switch (rows) {
    case 1: tile_1(k, a, lda, b, c, ldc, first, bf16); break;
    case 2: tile_2(k, a, lda, b, c, ldc, first, bf16); break;
    case 3: tile_3(k, a, lda, b, c, ldc, first, bf16); break;
    case 4: tile_4(k, a, lda, b, c, ldc, first, bf16); break;
    case 5: tile_5(k, a, lda, b, c, ldc, first, bf16); break;
#if OZ_VL == 16
    case 6: tile_6(k, a, lda, b, c, ldc, first, bf16); break;
    case 7: tile_7(k, a, lda, b, c, ldc, first, bf16); break;
    case 8: tile_8(k, a, lda, b, c, ldc, first, bf16); break;
    case 9: tile_9(k, a, lda, b, c, ldc, first, bf16); break;
    case 10: tile_10(k, a, lda, b, c, ldc, first, bf16); break;
    case 11: tile_11(k, a, lda, b, c, ldc, first, bf16); break;
    default: tile_12(k, a, lda, b, c, ldc, first, bf16); break;
#else
    default: tile_6(k, a, lda, b, c, ldc, first, bf16); break;
#endif
    }
}

#if !defined(TILE_ANY_ONLY)
static void tile_run(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                     int64_t ldc, bool first)
{
    tile_any(rows, k, a, lda, b, c, ldc, first, false);
}
#endif

#if TILE_KR == 1 && !defined(TILE_ANY_ONLY)
static void tile_run_bf16(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b,
                          float *c, int64_t ldc, bool first)
{
    tile_any(rows, k, a, lda, b, c, ldc, first, true);
}
#endif

#if !defined(TILE_ANY_ONLY)
/* ---- few rows, several panels ---- */

/*
 * All rows of a product at once, panels as they stream from memory: several panels, so that enough
 * sums are under way, and each asked for ahead.
 */
#define FEW_AHEAD 1024 /* bytes between what is read and what is asked for */

#define FEW_BEGIN(r, p)                                                   \
    vf lo##r##_##p = first ? v_zero() : v_load(c + (r)*ldc + (p)*c_step); \
    vf hi##r##_##p = first ? v_zero() : v_load(c + (r)*ldc + (p)*c_step + OZ_VL);
#define FEW_LOAD(r, p)                                              \
    tile_v b0_##p = tile_panel(b + (p)*b_step, 0, bf16);            \
    tile_v b1_##p = tile_panel(b + (p)*b_step, OZ_VL, bf16);        \
    _mm_prefetch(b + (p)*b_step + FEW_AHEAD, _MM_HINT_T0);          \
    if (TILE_NR * (bf16 ? 2 : 4) > 64) { /* two lines a step */     \
        _mm_prefetch(b + (p)*b_step + FEW_AHEAD + 64, _MM_HINT_T0); \
    }
#define FEW_STEP(r, p)                              \
    lo##r##_##p = tile_add(lo##r##_##p, x, b0_##p); \
    hi##r##_##p = tile_add(hi##r##_##p, x, b1_##p);
#define FEW_END(r, p)                               \
    v_store(c + (r)*ldc + (p)*c_step, lo##r##_##p); \
    v_store(c + (r)*ldc + (p)*c_step + OZ_VL, hi##r##_##p);

#define PANELS_1(X, r) X(r, 0)
#define PANELS_2(X, r) PANELS_1(X, r) X(r, 1)
#define PANELS_4(X, r) PANELS_2(X, r) X(r, 2) X(r, 3)
#define FEW_BEGIN_1(r) PANELS_1(FEW_BEGIN, r)
#define FEW_BEGIN_2(r) PANELS_2(FEW_BEGIN, r)
#define FEW_BEGIN_4(r) PANELS_4(FEW_BEGIN, r)
#define FEW_SET(r) x = tile_set(p##r);
#define FEW_STEP_1(r) FEW_SET(r) PANELS_1(FEW_STEP, r)
#define FEW_STEP_2(r) FEW_SET(r) PANELS_2(FEW_STEP, r)
#define FEW_STEP_4(r) FEW_SET(r) PANELS_4(FEW_STEP, r)
#define FEW_END_1(r) PANELS_1(FEW_END, r)
#define FEW_END_2(r) PANELS_2(FEW_END, r)
#define FEW_END_4(r) PANELS_4(FEW_END, r)

#define FEW(name, ROWS, PANELS, BEGIN, STEP, END)                                               \
    TILE_INLINE void name(int64_t k, const char *a, int64_t lda, const char *b, int64_t b_step, \
                          float *c, int64_t ldc, int64_t c_step, bool first, bool bf16)         \
    {                                                                                           \
        tile_v x;                                                                               \
        ROWS(ROW_BEGIN)                                                                         \
        ROWS(BEGIN)                                                                             \
        for (int64_t i = 0; i < k; i += TILE_KR) {                                              \
            PANELS(FEW_LOAD, 0)                                                                 \
            ROWS(STEP)                                                                          \
            TILE_NEXT(ROWS, 1)                                                                  \
        }                                                                                       \
        ROWS(END)                                                                               \
    }

#define FEW_X1(name, ROWS) FEW(name, ROWS, PANELS_1, FEW_BEGIN_1, FEW_STEP_1, FEW_END_1)
#define FEW_X2(name, ROWS) FEW(name, ROWS, PANELS_2, FEW_BEGIN_2, FEW_STEP_2, FEW_END_2)
#define FEW_X4(name, ROWS) FEW(name, ROWS, PANELS_4, FEW_BEGIN_4, FEW_STEP_4, FEW_END_4)

FEW_X4(few_1, ROWS_1)
#if OZ_VL == 16 /* thirty-two registers */
FEW_X4(few_2, ROWS_2)
FEW_X2(few_3, ROWS_3)
FEW_X2(few_4, ROWS_4)
FEW_X2(few_5, ROWS_5)
FEW_X1(few_6, ROWS_6)
FEW_X1(few_7, ROWS_7)
FEW_X1(few_8, ROWS_8)
FEW_X1(few_9, ROWS_9)
FEW_X1(few_10, ROWS_10)
FEW_X1(few_11, ROWS_11)
FEW_X1(few_12, ROWS_12)
#define TILE_FEW_PANELS                       \
    {                                         \
        0, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1 \
    }
#else
FEW_X2(few_2, ROWS_2)
FEW_X1(few_3, ROWS_3)
FEW_X1(few_4, ROWS_4)
FEW_X1(few_5, ROWS_5)
FEW_X1(few_6, ROWS_6)
#define TILE_FEW_PANELS     \
    {                       \
        0, 4, 2, 1, 1, 1, 1 \
    }
#endif

TILE_INLINE void few_any(int64_t rows, int64_t k, const char *a, int64_t lda, const char *b,
                         int64_t b_step, float *c, int64_t ldc, int64_t c_step, bool first,
                         bool bf16)
{
    switch (rows) {
    case 1: few_1(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 2: few_2(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 3: few_3(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 4: few_4(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 5: few_5(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 6: few_6(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
#if OZ_VL == 16
    case 7: few_7(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 8: few_8(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 9: few_9(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 10: few_10(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 11: few_11(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
    case 12: few_12(k, a, lda, b, b_step, c, ldc, c_step, first, bf16); break;
#endif
    default: break;
    }
}

static void tile_run_few(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b,
                         int64_t b_step, float *c, int64_t ldc, int64_t c_step, bool first,
                         enum oz_dtype stored)
{
    if (stored == OZ_DTYPE_BF16 && TILE_KR == 1) {
        few_any(rows, k, a, lda, b, b_step, c, ldc, c_step, first, true);
    } else {
        few_any(rows, k, a, lda, b, b_step, c, ldc, c_step, first, false);
    }
}

#endif

#endif
