/*
 * tests/kern/words_emulation.h: the AVX-512 instructions on integers that kernels of quantized panels are
 * made of, over two vectors of AVX2 or in C, beside vec_emulation.h (forced into units with -include), so
 * that these kernels run where there is no AVX-512. As the Intel SDM gives them; what no kernel uses is
 * not here, and fails to compile.
 */
#ifndef OZ_TESTS_KERN_WORDS_EMULATION_H
#define OZ_TESTS_KERN_WORDS_EMULATION_H

#include "vec_emulation.h"

#define OZ_CPU_KERN_X86_QUADS_AVX512_H /* the guard of the real one, which then stays empty */

typedef vp words;
#define __m512i words
#undef _mm512_setr_epi64 /* macros of the compiler's header */
#undef _mm512_setr_epi32

#define WORDS_HALVES(value)       \
    words r;                      \
    for (int i = 0; i < 2; i++) { \
        r.half[i] = (value);      \
    }                             \
    return r

/* ---- moves ---- */

static inline words w_load(const void *p)
{
    return vp_load(p);
}
static inline void w_store(void *p, words x)
{
    memcpy(p, &x, sizeof x);
}
static inline words w_zero(void)
{
    WORDS_HALVES(_mm256_setzero_si256());
}
static inline words w_set8(char x)
{
    WORDS_HALVES(_mm256_set1_epi8(x));
}
static inline words w_set16(short x)
{
    WORDS_HALVES(_mm256_set1_epi16(x));
}
static inline words w_set32(int x)
{
    WORDS_HALVES(_mm256_set1_epi32(x));
}
static inline words w_setr64(long long a, long long b, long long c, long long d, long long e,
                             long long f, long long g, long long h)
{
    return (words){{_mm256_setr_epi64x(a, b, c, d), _mm256_setr_epi64x(e, f, g, h)}};
}
static inline words w_of_floats(vf x)
{
    WORDS_HALVES(_mm256_castps_si256(x.half[i]));
}
static inline vf w_floats(words x)
{
    EACH_HALF(_mm256_castsi256_ps(x.half[i]));
}
static inline words w_twice(__m128i x) /* in each of four lanes */
{
    WORDS_HALVES(_mm256_broadcastsi128_si256(x));
}
/* `count` elements of `bytes` each, those of a mask. */
static inline void w_store_some(void *p, uint64_t mask, words x, int count, size_t bytes)
{
    uint8_t all[64];
    w_store(all, x);
    for (int i = 0; i < count; i++) {
        if (mask >> i & 1U) {
            memcpy((uint8_t *)p + (size_t)i * bytes, all + (size_t)i * bytes, bytes);
        }
    }
}
static inline words w_load_some8(uint64_t mask, const void *p)
{
    uint8_t all[64] = {0};
    for (int i = 0; i < 64; i++) {
        if (mask >> i & 1U) {
            all[i] = ((const uint8_t *)p)[i];
        }
    }
    return w_load(all);
}

#define _mm512_loadu_si512 w_load
#define _mm512_storeu_si512 w_store
#define _mm512_setzero_si512 w_zero
#define _mm512_set1_epi8 w_set8
#define _mm512_set1_epi16 w_set16
#define _mm512_set1_epi32 w_set32
#define _mm512_setr_epi64 w_setr64
#define _mm512_castps_si512 w_of_floats
#define _mm512_castsi512_ps w_floats
#define _mm512_broadcast_i32x4 w_twice
#define _mm512_loadu_ps v_load
#define _mm512_mask_storeu_epi8(p, mask, x) w_store_some(p, mask, x, 64, 1)
#define _mm512_mask_storeu_epi16(p, mask, x) w_store_some(p, mask, x, 32, 2)
#define _mm512_mask_storeu_epi32(p, mask, x) w_store_some(p, mask, x, 16, 4)
#define _mm512_maskz_loadu_epi8 w_load_some8

/* ---- conversions ---- */

static inline words w_widen_unsigned(__m128i x)
{
    return (words){{_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))}};
}
static inline words w_widen_signed(__m128i x)
{
    return (words){{_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))}};
}
static inline words w_widen_to16(__m256i x)
{
    return (words){{_mm256_cvtepu8_epi16(_mm256_castsi256_si128(x)),
                    _mm256_cvtepu8_epi16(_mm256_extracti128_si256(x, 1))}};
}
static inline vf w_to_floats(words x)
{
    EACH_HALF(_mm256_cvtepi32_ps(x.half[i]));
}

#define _mm512_cvtepu8_epi32 w_widen_unsigned
#define _mm512_cvtepi8_epi32 w_widen_signed
#define _mm512_cvtepu8_epi16 w_widen_to16
#define _mm512_cvtepi32_ps w_to_floats

/* ---- within lanes ---- */

#define WORDS_BINARY(name, op)                  \
    static inline words name(words a, words b)  \
    {                                           \
        WORDS_HALVES(op(a.half[i], b.half[i])); \
    }
#define WORDS_SHIFT(name, op)                         \
    static inline words name(words a, unsigned count) \
    {                                                 \
        WORDS_HALVES(op(a.half[i], (int)count));      \
    }

WORDS_BINARY(w_and, _mm256_and_si256)
WORDS_BINARY(w_or, _mm256_or_si256)
WORDS_BINARY(w_xor, _mm256_xor_si256)
WORDS_BINARY(w_add32, _mm256_add_epi32)
WORDS_BINARY(w_sub32, _mm256_sub_epi32)
WORDS_BINARY(w_mul32, _mm256_mullo_epi32)
WORDS_BINARY(w_shuffle8, _mm256_shuffle_epi8)
WORDS_BINARY(w_unpacklo8, _mm256_unpacklo_epi8)
WORDS_BINARY(w_unpackhi8, _mm256_unpackhi_epi8)
WORDS_SHIFT(w_slli16, _mm256_slli_epi16)
WORDS_SHIFT(w_srli16, _mm256_srli_epi16)
WORDS_SHIFT(w_slli32, _mm256_slli_epi32)
WORDS_SHIFT(w_srli32, _mm256_srli_epi32)
WORDS_SHIFT(w_srai32, _mm256_srai_epi32)

#define _mm512_and_si512 w_and
#define _mm512_or_si512 w_or
#define _mm512_xor_si512 w_xor
#define _mm512_add_epi32 w_add32
#define _mm512_sub_epi32 w_sub32
#define _mm512_mullo_epi32 w_mul32
#define _mm512_shuffle_epi8 w_shuffle8
#define _mm512_unpacklo_epi8 w_unpacklo8
#define _mm512_unpackhi_epi8 w_unpackhi8
#define _mm512_slli_epi16 w_slli16
#define _mm512_srli_epi16 w_srli16
#define _mm512_slli_epi32 w_slli32
#define _mm512_srli_epi32 w_srli32
#define _mm512_srai_epi32 w_srai32
#define _mm512_shuffle_epi32(a, order)                         \
    ((words){{_mm256_shuffle_epi32((a).half[0], (int)(order)), \
              _mm256_shuffle_epi32((a).half[1], (int)(order))}})
/* a | (b & c), the one function that is used */
#define _mm512_ternarylogic_epi32(a, b, c, function) w_or(a, w_and(b, c))

/* ---- across lanes ---- */

#define WORDS_ELEMENTS(type, count) \
    type x[count];                  \
    type r[count];                  \
    memcpy(x, &a, sizeof x)

static inline words w_permute16(words index, words a)
{
    uint16_t at[32];
    WORDS_ELEMENTS(uint16_t, 32);
    memcpy(at, &index, sizeof at);
    for (int i = 0; i < 32; i++) {
        r[i] = x[at[i] & 31U];
    }
    return w_load(r);
}
static inline words w_permute64(words index, words a)
{
    uint64_t at[8];
    WORDS_ELEMENTS(uint64_t, 8);
    memcpy(at, &index, sizeof at);
    for (int i = 0; i < 8; i++) {
        r[i] = x[at[i] & 7U];
    }
    return w_load(r);
}
static inline vf w_permute_floats(words index, vf a)
{
    uint32_t at[16];
    WORDS_ELEMENTS(float, 16);
    memcpy(at, &index, sizeof at);
    for (int i = 0; i < 16; i++) {
        r[i] = x[at[i] & 15U];
    }
    return v_load(r);
}
static inline words w_permute_two8(words a, words index, words b)
{
    uint8_t at[64];
    uint8_t y[64];
    WORDS_ELEMENTS(uint8_t, 64);
    memcpy(at, &index, sizeof at);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 64; i++) {
        r[i] = at[i] & 64U ? y[at[i] & 63U] : x[at[i] & 63U];
    }
    return w_load(r);
}
/* 128 bits each: the first two of a, the others of b */
static inline words w_shuffle_lanes(words a, words b, unsigned order)
{
    __m128i x[4];
    __m128i y[4];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    const __m128i r[4] = {x[order & 3U], x[order >> 2 & 3U], y[order >> 4 & 3U],
                          y[order >> 6 & 3U]};
    return w_load(r);
}
static inline words w_compress32(unsigned mask, words a)
{
    int n = 0;
    WORDS_ELEMENTS(uint32_t, 16);
    memset(r, 0, sizeof r);
    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1U) {
            r[n++] = x[i];
        }
    }
    return w_load(r);
}

#define _mm512_permutexvar_epi16 w_permute16
#define _mm512_permutexvar_epi64 w_permute64
#define _mm512_permutexvar_ps w_permute_floats
#define _mm512_permutex2var_epi8 w_permute_two8
#define _mm512_shuffle_i32x4 w_shuffle_lanes
#define _mm512_maskz_compress_epi32 w_compress32

/* ---- masks ---- */

static inline __mmask16 w_equal32(words a, words b)
{
    unsigned r = 0;
    for (int i = 0; i < 2; i++) {
        __m256i same = _mm256_cmpeq_epi32(a.half[i], b.half[i]);
        r |= (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(same)) << 8 * i;
    }
    return (__mmask16)r;
}
static inline words w_choose(words no, uint64_t mask, words yes, int count, size_t bytes)
{
    w_store_some(&no, mask, yes, count, bytes);
    return no;
}
static inline vf w_choose_floats(vf no, unsigned mask, vf yes)
{
    return w_floats(w_choose(w_of_floats(no), mask, w_of_floats(yes), 16, 4));
}

#define _mm512_cmpeq_epi32_mask w_equal32
#define _mm512_testn_epi32_mask(a, b) w_equal32(w_and(a, b), w_zero())
#define _mm512_mask_mov_epi32(no, mask, yes) w_choose(no, mask, yes, 16, 4)
#define _mm512_mask_blend_epi16(mask, no, yes) w_choose(no, mask, yes, 32, 2)
#define _mm512_mask_mov_ps w_choose_floats

/* ---- products of bytes ---- */

/* Four products of a byte without sign by one with sign, to a sum of 32 bits that wraps. */
static inline words w_dot(words sum, words a, words b)
{
    uint32_t s[16];
    uint8_t x[64];
    int8_t y[64];
    memcpy(s, &sum, sizeof s);
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 64; i++) {
        s[i / 4] += (uint32_t)((int32_t)x[i] * y[i]);
    }
    return w_load(s);
}

#define _mm512_dpbusd_epi32 w_dot

typedef words vq;

static inline vq vq_set(const void *quad)
{
    return vp_set(quad);
}
static inline vq vq_load(const void *p)
{
    return w_load(p);
}
static inline vf vq_dot(vf sum, vq a, vq b)
{
    return w_floats(w_dot(w_of_floats(sum), a, b));
}

#endif
