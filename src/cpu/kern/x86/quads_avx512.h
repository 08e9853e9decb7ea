/* cpu/kern/x86/quads_avx512.h: vectors of 16 quads of bytes, beside vec_avx512.h: u8 by s8 (VNNI). Sums
 * are s32 in the lanes of a vf: loads, stores and zeros move bits. */
#ifndef OZ_CPU_KERN_X86_QUADS_AVX512_H
#define OZ_CPU_KERN_X86_QUADS_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m512i vq;

static inline vq vq_set(const void *quad) /* one quad, any alignment, in every lane */
{
    int32_t x;
    memcpy(&x, quad, sizeof x);
    return _mm512_set1_epi32(x);
}
static inline vq vq_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
/* sum + the four products of each lane; `a` unsigned, `b` signed. In assembly: GCC 12 spills the sums
 * around its own form. */
static inline vf vq_dot(vf sum, vq a, vq b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

#endif
