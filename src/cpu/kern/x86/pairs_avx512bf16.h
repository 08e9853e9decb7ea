/* cpu/kern/x86/pairs_avx512bf16.h: vectors of 16 pairs of bf16, beside vec_avx512.h. */
#ifndef OZ_CPU_KERN_X86_PAIRS_AVX512BF16_H
#define OZ_CPU_KERN_X86_PAIRS_AVX512BF16_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m512i vp;

static inline vp vp_set(const void *pair) /* one pair, any alignment, in every lane */
{
    int32_t x;
    memcpy(&x, pair, sizeof x);
    return _mm512_set1_epi32(x);
}
static inline vp vp_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
/* sum + both products of each lane. In assembly: GCC 12 spills the sums around its own form. */
static inline vf vp_dot(vf sum, vp a, vp b)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
/* The same with one pair in every lane, any alignment. */
struct vp_pair {
    char bytes[4];
};
static inline vf vp_dot_at(vf sum, const void *pair, vp b)
{
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(b), "m"(*(const struct vp_pair *)pair));
    return sum;
}

#endif
