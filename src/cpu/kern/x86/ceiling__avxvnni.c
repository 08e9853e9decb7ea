/* Loops that measure what AVX-VNNI can do at most (cpu/ceiling.h). */
#include <immintrin.h>

#include "cpu/ceiling.h"

// clang-format off
#define EACH(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) \
    X(8) X(9) X(10) X(11)
// clang-format on
#define COUNT 12

#define ZERO(i) __m256i s##i = _mm256_setzero_si256();
#define DOT(i) __asm__ volatile("%{vex%} vpdpbusd %1, %1, %0" : "+x"(s##i) : "x"(x));
#define OR(i) t = _mm256_or_si256(t, s##i);

double oz_ceiling_s8__avxvnni(int64_t count)
{
    __m256i x = _mm256_set1_epi8(1);
    EACH(ZERO)
    for (int64_t i = 0; i < count; i++) {
        EACH(DOT)
    }
    __m256i t = x;
    EACH(OR)
    return _mm256_cvtsi256_si32(t) != 0 ? 2.0 * 32 * COUNT * (double)count : 0;
}
