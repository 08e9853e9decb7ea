/*
 * cpu/kern/x86/tile_avx512.h: a micro-kernel of 12 rows by 32 columns (cpu/gemm.h), 24 accumulators.
 * f32, unless a unit defines before it tile_element, vx, TILE_KR, TILE_LOAD(at) (16 columns of the
 * panel b, as the products take them), TILE_BROADCAST(at) (kr elements of a in every lane) and
 * TILE_MULTIPLY(c, x, y).
 *
 * The accumulators are named variables: GCC keeps an array of vectors on the stack.
 */
#ifndef OZ_CPU_KERN_X86_TILE_AVX512_H
#define OZ_CPU_KERN_X86_TILE_AVX512_H

#include <stdbool.h>

#ifndef TILE_KR
typedef float tile_element;
typedef vf vx;
#define TILE_KR 1
#define TILE_LOAD(at) v_load(b + (at))
#define TILE_BROADCAST(at) v_set(a[at])
#define TILE_MULTIPLY(c, x, y) v_fma(x, y, c)
#endif

#define TILE_MR 12
#define TILE_NR 32

#define TILE_ROWS_1(X) X(0)
#define TILE_ROWS_2(X) TILE_ROWS_1(X) X(1)
#define TILE_ROWS_3(X) TILE_ROWS_2(X) X(2)
#define TILE_ROWS_4(X) TILE_ROWS_3(X) X(3)
#define TILE_ROWS_6(X) TILE_ROWS_4(X) X(4) X(5)
#define TILE_ROWS_8(X) TILE_ROWS_6(X) X(6) X(7)
#define TILE_ROWS_12(X) TILE_ROWS_8(X) X(8) X(9) X(10) X(11)

#define TILE_BEGIN(r)                                  \
    vf lo##r = first ? v_zero() : v_load(c + r * ldc); \
    vf hi##r = first ? v_zero() : v_load(c + r * ldc + 16);
#define TILE_STEP(r)                         \
    {                                        \
        vx x = TILE_BROADCAST(r * lda + i);  \
        lo##r = TILE_MULTIPLY(lo##r, x, b0); \
        hi##r = TILE_MULTIPLY(hi##r, x, b1); \
    }
#define TILE_END(r)              \
    v_store(c + r * ldc, lo##r); \
    v_store(c + r * ldc + 16, hi##r);

#define TILE(name, ROWS)                                                                   \
    static void name(int64_t k, const tile_element *a, int64_t lda, const tile_element *b, \
                     float *c, int64_t ldc, bool first)                                    \
    {                                                                                      \
        ROWS(TILE_BEGIN)                                                                   \
        for (int64_t i = 0; i < k; i += TILE_KR) {                                         \
            vx b0 = TILE_LOAD(i * TILE_NR);                                                \
            vx b1 = TILE_LOAD(i * TILE_NR + (int64_t)16 * TILE_KR);                        \
            ROWS(TILE_STEP)                                                                \
        }                                                                                  \
        ROWS(TILE_END)                                                                     \
    }

TILE(tile_1, TILE_ROWS_1)
TILE(tile_2, TILE_ROWS_2)
TILE(tile_3, TILE_ROWS_3)
TILE(tile_4, TILE_ROWS_4)
TILE(tile_6, TILE_ROWS_6)
TILE(tile_8, TILE_ROWS_8)
TILE(tile_12, TILE_ROWS_12)

/* Other numbers of rows are two tiles; a row's sums are the same in any of them. */
static void tile_run(int64_t rows, int64_t k, const void *a_, int64_t lda, const void *b, float *c,
                     int64_t ldc, bool first)
{
    const tile_element *a = a_;
    while (rows > 0) {
        int64_t n = rows >= 12 ? 12 : (rows >= 8 ? 8 : (rows >= 6 ? 6 : (rows > 4 ? 4 : rows)));
        switch (n) {
        case 1: tile_1(k, a, lda, b, c, ldc, first); break;
        case 2: tile_2(k, a, lda, b, c, ldc, first); break;
        case 3: tile_3(k, a, lda, b, c, ldc, first); break;
        case 4: tile_4(k, a, lda, b, c, ldc, first); break;
        case 6: tile_6(k, a, lda, b, c, ldc, first); break;
        case 8: tile_8(k, a, lda, b, c, ldc, first); break;
        default: tile_12(k, a, lda, b, c, ldc, first); break;
        }
        rows -= n;
        a += n * lda;
        c += n * ldc;
    }
}

#endif
