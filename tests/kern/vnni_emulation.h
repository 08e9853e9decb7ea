/*
 * tests/kern/vnni_emulation.h: VPDPBUSD in C, in the place of cpu/kern/x86/quads_avxvnni.h (forced into
 * the unit of the AVX-VNNI kernel with -include). As the Intel SDM gives it: four products of a byte
 * without sign by one with sign, each exact in 16 bits, added to a sum of 32 bits that wraps.
 */
#ifndef OZ_CPU_KERN_X86_QUADS_AVXVNNI_H /* the guard of the real one, which then stays empty */
#define OZ_CPU_KERN_X86_QUADS_AVXVNNI_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline __m256i vnni_dot(__m256i sum, __m256i a, __m256i b)
{
    uint32_t s[8];
    uint8_t x[32];
    int8_t y[32];
    memcpy(s, &sum, sizeof s);
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 32; i++) {
        s[i / 4] += (uint32_t)((int32_t)x[i] * y[i]);
    }
    memcpy(&sum, s, sizeof s);
    return sum;
}

#endif
