/* Loops that measure what AVX512-BF16 can do at most (cpu/ceiling.h). */
#include <immintrin.h>

#include "cpu/ceiling.h"

#define LOW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define HIGH(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define EACH(X) LOW(X) HIGH(X)
#define COUNT 24

#define ZERO(i) __m512 s##i = _mm512_setzero_ps();
#define DOT(i) __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(s##i) : "v"(x));
#define SUM(i) t = _mm512_add_ps(t, s##i);

double oz_ceiling_bf16__avx512bf16(int64_t count)
{
    __m512i x = _mm512_set1_epi16(0x3F80); /* 1 */
    EACH(ZERO)
    for (int64_t i = 0; i < count; i++) {
        EACH(DOT)
    }
    __m512 t = _mm512_setzero_ps();
    EACH(SUM)
    return _mm512_cvtss_f32(t) > 0 ? 2.0 * 32 * COUNT * (double)count : 0;
}
