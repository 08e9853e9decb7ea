/* cpu/kern/x86/quads_avxvnni.h: vectors of 8 quads of bytes, u8 by s8, beside vec_avx2.h; under a name of
 * our own, so that tests can put an emulation in its place (tests/kern/vnni_emulation.h). */
#ifndef OZ_CPU_KERN_X86_QUADS_AVXVNNI_H
#define OZ_CPU_KERN_X86_QUADS_AVXVNNI_H

#include <immintrin.h>

/* sum + the four products of each lane; `a` unsigned, `b` signed. In assembly, as quads_avx512.h. */
static inline __m256i vnni_dot(__m256i sum, __m256i a, __m256i b)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}

#endif
