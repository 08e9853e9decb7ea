/* Loops that measure what AVX-512 can do at most (cpu/ceiling.h). */
#include <immintrin.h>

#include "cpu/ceiling.h"

/* Zeros that the compiler takes to differ: it would make one sum of equal ones. */
#define LOW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define HIGH(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define EACH(X) LOW(X) HIGH(X)
#define COUNT 24

#define ZERO_PS(i)                     \
    __m512 s##i = _mm512_setzero_ps(); \
    __asm__ volatile("" : "+v"(s##i));
#define FMA(i) s##i = _mm512_fmadd_ps(s##i, x, y);
#define SUM_PS(i) t = _mm512_add_ps(t, s##i);

double oz_ceiling_f32__avx512(int64_t count)
{
    __m512 x = _mm512_set1_ps(0.5F);
    __m512 y = _mm512_set1_ps(1.0F);
    EACH(ZERO_PS)
    for (int64_t i = 0; i < count; i++) {
        EACH(FMA)
        __asm__ volatile("" : "+v"(x));
    }
    __m512 t = y;
    EACH(SUM_PS)
    return _mm512_cvtss_f32(t) > 0 ? 2.0 * 16 * COUNT * (double)count : 0;
}

#define ZERO_SI(i)                         \
    __m512i s##i = _mm512_setzero_si512(); \
    __asm__ volatile("" : "+v"(s##i));
#define DOT(i) __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(s##i) : "v"(x));
#define OR_SI(i) t = _mm512_or_si512(t, s##i);

double oz_ceiling_s8__avx512(int64_t count)
{
    __m512i x = _mm512_set1_epi8(1);
    EACH(ZERO_SI)
    for (int64_t i = 0; i < count; i++) {
        EACH(DOT)
    }
    __m512i t = x;
    EACH(OR_SI)
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(t)) != 0 ? 2.0 * 64 * COUNT * (double)count : 0;
}

#define LINE(s, p) s = _mm512_or_si512(s, _mm512_loadu_si512(p))
#define AHEAD 1024 /* bytes */

uint64_t oz_ceiling_read__avx512(const void *memory, int64_t bytes)
{
    const __m512i *p = memory;
    int64_t quarter = bytes / 256;
    __m512i a = _mm512_setzero_si512();
    __m512i b = a;
    __m512i c = a;
    __m512i d = a;
    for (const __m512i *end = p + quarter; p < end; p++) {
        _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + quarter) + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + 2 * quarter) + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + 3 * quarter) + AHEAD, _MM_HINT_T0);
        LINE(a, p);
        LINE(b, p + quarter);
        LINE(c, p + 2 * quarter);
        LINE(d, p + 3 * quarter);
    }
    a = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
    return (uint64_t)_mm512_reduce_or_epi64(a);
}

#define CHANGE(p) _mm512_storeu_si512(p, _mm512_xor_si512(_mm512_loadu_si512(p), one))

void oz_ceiling_update__avx512(void *memory, int64_t bytes)
{
    const __m512i one = _mm512_set1_epi8(1);
    __m512i *p = memory;
    int64_t quarter = bytes / 256;
    for (const __m512i *end = p + quarter; p < end; p++) {
        _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + quarter) + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + 2 * quarter) + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + 3 * quarter) + AHEAD, _MM_HINT_T0);
        CHANGE(p);
        CHANGE(p + quarter);
        CHANGE(p + 2 * quarter);
        CHANGE(p + 3 * quarter);
    }
}
