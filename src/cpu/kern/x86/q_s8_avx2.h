/*
 * cpu/kern/x86/q_s8_avx2.h: s8 rows by s8 weights in vectors of 8 s32 sums: 6 rows by 16 columns, twice
 * for a panel. A unit defines q8_dot(sum, row, weights), Q8_ELEMENT (bytes of a code of a row;
 * what is broadcast is 4 bytes) and includes this beside vec_avx2.h and q_end_vec.h.
 */
#ifndef OZ_CPU_KERN_X86_Q_S8_AVX2_H
#define OZ_CPU_KERN_X86_Q_S8_AVX2_H

#include <string.h>

#include "cpu/kern/x86/q_end_vec.h"

#if OZ_VL == 8 /* over vec_avx2.h alone */

#define Q8_COLS 16
#define Q8_MR 6
#define Q8_STEP 128 /* bytes of a step of a panel: 32 features of four bytes */

#define Q8_BEGIN(r)                                                               \
    __m256i lo##r = q->first ? _mm256_setzero_si256() : qi_load(c + (r)*OZ_Q_NR); \
    __m256i hi##r = q->first ? _mm256_setzero_si256() : qi_load(c + (r)*OZ_Q_NR + OZ_VL);
#define Q8_ROW(r)                            \
    memcpy(&word, a + (r)*row, sizeof word); \
    x = _mm256_set1_epi32(word);             \
    lo##r = q8_dot(lo##r, x, b0);            \
    hi##r = q8_dot(hi##r, x, b1);
#define Q8_END(r)                                         \
    v_store(c + (r)*OZ_Q_NR, _mm256_castsi256_ps(lo##r)); \
    v_store(c + (r)*OZ_Q_NR + OZ_VL, _mm256_castsi256_ps(hi##r));

#define Q8_ROWS_1(X) X(0)
#define Q8_ROWS_2(X) Q8_ROWS_1(X) X(1)
#define Q8_ROWS_3(X) Q8_ROWS_2(X) X(2)
#define Q8_ROWS_4(X) Q8_ROWS_3(X) X(3)
#define Q8_ROWS_5(X) Q8_ROWS_4(X) X(4)
#define Q8_ROWS_6(X) Q8_ROWS_5(X) X(5)

#define Q8_TILE(name, ROWS)                                                        \
    OZ_Q_INLINE void name(const struct oz_qblock *q, const uint8_t *b, float *c)   \
    {                                                                              \
        const uint8_t *a = q->a;                                                   \
        const int64_t row = q->lda * Q8_ELEMENT;                                   \
        ROWS(Q8_BEGIN)                                                             \
        for (int64_t k = 0; k < q->k; k += 4 / Q8_ELEMENT, a += 4, b += Q8_STEP) { \
            __m256i x;                                                             \
            int32_t word;                                                          \
            __m256i b0 = qi_load(b);                                               \
            __m256i b1 = qi_load(b + 32);                                          \
            ROWS(Q8_ROW)                                                           \
        }                                                                          \
        ROWS(Q8_END)                                                               \
    }

Q8_TILE(q8_tile_1, Q8_ROWS_1)
Q8_TILE(q8_tile_2, Q8_ROWS_2)
Q8_TILE(q8_tile_3, Q8_ROWS_3)
Q8_TILE(q8_tile_4, Q8_ROWS_4)
Q8_TILE(q8_tile_5, Q8_ROWS_5)
Q8_TILE(q8_tile_6, Q8_ROWS_6)

static void q8_run(int64_t rows, const struct oz_qblock *q, const void *block)
{
    for (int64_t half = 0; half < OZ_Q_NR; half += Q8_COLS) {
        const uint8_t *b = (const uint8_t *)block + 4 * half;
        float *c = q->c + half;
        switch (rows) {
        case 1: q8_tile_1(q, b, c); break;
        case 2: q8_tile_2(q, b, c); break;
        case 3: q8_tile_3(q, b, c); break;
        case 4: q8_tile_4(q, b, c); break;
        case 5: q8_tile_5(q, b, c); break;
        default: q8_tile_6(q, b, c); break;
        }
    }
}

/* One row, codes as they stream: all columns side by side. */
#define Q8_FEW_BEGIN(v) \
    __m256i sum##v = q->first ? _mm256_setzero_si256() : qi_load(q->c + (v)*OZ_VL);
#define Q8_FEW_STEP(v) sum##v = q8_dot(sum##v, x, qi_load(codes + 32 * (v)));
#define Q8_FEW_END(v) v_store(q->c + (v)*OZ_VL, _mm256_castsi256_ps(sum##v));

static inline void q8_run_few(int64_t rows, const struct oz_qblock *q, enum oz_qcode code,
                              const uint8_t *codes)
{
    const uint8_t *a = q->a;
    (void)rows;
    (void)code;
    Q8_ROWS_4(Q8_FEW_BEGIN)
    for (int64_t k = 0; k < q->k; k += 4 / Q8_ELEMENT, a += 4, codes += Q8_STEP) {
        __m256i x;
        int32_t word;
        memcpy(&word, a, sizeof word);
        x = _mm256_set1_epi32(word);
        q_ahead(codes);
        q_ahead(codes + 64);
        Q8_ROWS_4(Q8_FEW_STEP)
    }
    Q8_ROWS_4(Q8_FEW_END)
}

#endif

#endif
