/* Loops that measure what AVX2 can do at most (cpu/ceiling.h). */
#include <immintrin.h>

#include "cpu/ceiling.h"

/* Zeros that the compiler takes to differ: it would make one sum of equal ones. */
// clang-format off
#define EACH(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) \
    X(8) X(9) X(10) X(11)
// clang-format on
#define COUNT 12

#define ZERO_PS(i)                     \
    __m256 s##i = _mm256_setzero_ps(); \
    __asm__ volatile("" : "+x"(s##i));
#define FMA(i) s##i = _mm256_fmadd_ps(s##i, x, y);
#define SUM_PS(i) t = _mm256_add_ps(t, s##i);

double oz_ceiling_f32__avx2(int64_t count)
{
    __m256 x = _mm256_set1_ps(0.5F);
    __m256 y = _mm256_set1_ps(1.0F);
    EACH(ZERO_PS)
    for (int64_t i = 0; i < count; i++) {
        EACH(FMA)
        __asm__ volatile("" : "+x"(x));
    }
    __m256 t = y;
    EACH(SUM_PS)
    return _mm256_cvtss_f32(t) > 0 ? 2.0 * 8 * COUNT * (double)count : 0;
}

#define ZERO_SI(i)                         \
    __m256i s##i = _mm256_setzero_si256(); \
    __asm__ volatile("" : "+x"(s##i));
#define DOT(i) s##i = _mm256_add_epi32(s##i, _mm256_madd_epi16(_mm256_maddubs_epi16(x, s##i), y));
#define OR_SI(i) t = _mm256_or_si256(t, s##i);

double oz_ceiling_s8__avx2(int64_t count)
{
    __m256i x = _mm256_set1_epi8(1);
    __m256i y = _mm256_set1_epi16(1);
    EACH(ZERO_SI)
    for (int64_t i = 0; i < count; i++) {
        EACH(DOT)
        __asm__ volatile("" : "+x"(x));
    }
    __m256i t = y;
    EACH(OR_SI)
    return _mm256_cvtsi256_si32(t) != 0 ? 2.0 * 32 * COUNT * (double)count : 0;
}

/* Two vectors, a line, of a stream. */
#define LINE(s, p) \
    s = _mm256_or_si256(s, _mm256_or_si256(_mm256_loadu_si256(p), _mm256_loadu_si256((p) + 1)))
#define AHEAD 1024 /* bytes */

uint64_t oz_ceiling_read__avx2(const void *memory, int64_t bytes)
{
    const __m256i *p = memory;
    int64_t quarter = bytes / 128;
    __m256i a = _mm256_setzero_si256();
    __m256i b = a;
    __m256i c = a;
    __m256i d = a;
    for (const __m256i *end = p + quarter; p < end; p += 2) {
        _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + quarter) + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + 2 * quarter) + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(p + 3 * quarter) + AHEAD, _MM_HINT_T0);
        LINE(a, p);
        LINE(b, p + quarter);
        LINE(c, p + 2 * quarter);
        LINE(d, p + 3 * quarter);
    }
    a = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
    return (uint64_t)(_mm256_extract_epi64(a, 0) | _mm256_extract_epi64(a, 1) |
                      _mm256_extract_epi64(a, 2) | _mm256_extract_epi64(a, 3));
}

#define CHANGE_HALF(p) _mm256_storeu_si256(p, _mm256_xor_si256(_mm256_loadu_si256(p), one))
#define CHANGE(p)   \
    CHANGE_HALF(p); \
    CHANGE_HALF((p) + 1)

void oz_ceiling_update__avx2(void *memory, int64_t bytes)
{
    const __m256i one = _mm256_set1_epi8(1);
    __m256i *p = memory;
    int64_t quarter = bytes / 128;
    for (const __m256i *end = p + quarter; p < end; p += 2) {
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
