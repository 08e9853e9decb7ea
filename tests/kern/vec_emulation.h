/*
 * tests/kern/vec_emulation.h: vectors of 16 lanes in C, in the place of cpu/kern/x86/vec_avx512.h and
 * pairs_avx512bf16.h (forced into units with -include), so that what is written over them runs
 * everywhere. VDPBF16PS as the Intel SDM gives it.
 */
#ifndef OZ_CPU_KERN_X86_VEC_AVX512_H /* the guards of the real ones, which then stay empty */
#define OZ_CPU_KERN_X86_VEC_AVX512_H
#define OZ_CPU_KERN_X86_PAIRS_AVX512BF16_H

#include <float.h>
#include <immintrin.h> /* _mm_prefetch */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "num/float.h"

/* Two vectors of 8 lanes, and not an array of floats: of that GCC makes a minute of compiling for each
 * unit, and code that takes many times as long to run. */
#define OZ_VL 16
typedef struct {
    __m256 half[2];
} vf;

#define EACH_HALF(value)          \
    vf r;                         \
    for (int i = 0; i < 2; i++) { \
        r.half[i] = (value);      \
    }                             \
    return r

static inline vf v_set(float x)
{
    EACH_HALF(_mm256_set1_ps(x));
}
static inline vf v_zero(void)
{
    return v_set(0);
}
static inline vf v_load(const float *p)
{
    EACH_HALF(_mm256_loadu_ps(p + (ptrdiff_t)8 * i));
}
static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x.half[0]);
    _mm256_storeu_ps(p + 8, x.half[1]);
}
static inline vf v_load_n(const float *p, int64_t n)
{
    float lanes[OZ_VL] = {0};
    for (int64_t i = 0; i < n; i++) {
        lanes[i] = p[i];
    }
    return v_load(lanes);
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    memcpy(p, &x, (size_t)n * sizeof *p);
}
static inline vf v_add(vf a, vf b)
{
    EACH_HALF(_mm256_add_ps(a.half[i], b.half[i]));
}
static inline vf v_sub(vf a, vf b)
{
    EACH_HALF(_mm256_sub_ps(a.half[i], b.half[i]));
}
static inline vf v_mul(vf a, vf b)
{
    EACH_HALF(_mm256_mul_ps(a.half[i], b.half[i]));
}
static inline vf v_div(vf a, vf b)
{
    EACH_HALF(_mm256_div_ps(a.half[i], b.half[i]));
}
static inline vf v_fma(vf a, vf b, vf c)
{
    EACH_HALF(_mm256_fmadd_ps(a.half[i], b.half[i], c.half[i]));
}
static inline vf v_fma_at(const float *a, vf b, vf c)
{
    return v_fma(v_set(*a), b, c);
}
static inline vf v_fnma(vf a, vf b, vf c)
{
    EACH_HALF(_mm256_fnmadd_ps(a.half[i], b.half[i], c.half[i]));
}
static inline vf v_max(vf a, vf b)
{
    EACH_HALF(_mm256_max_ps(a.half[i], b.half[i]));
}
static inline vf v_min(vf a, vf b)
{
    EACH_HALF(_mm256_min_ps(a.half[i], b.half[i]));
}
static inline vf v_round(vf a)
{
    EACH_HALF(_mm256_round_ps(a.half[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf v_scale(vf a, vf n)
{
    float lanes[OZ_VL];
    float exponents[OZ_VL];
    v_store(lanes, a);
    v_store(exponents, n);
    for (int i = 0; i < OZ_VL; i++) {
        lanes[i] = isnan(exponents[i]) ? exponents[i] : ldexpf(lanes[i], (int)exponents[i]);
    }
    return v_load(lanes);
}
static inline vf v_load_bf16(const uint16_t *p)
{
    EACH_HALF(_mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + (ptrdiff_t)8 * i))), 16)));
}
static inline void v_store_bf16(uint16_t *p, vf a)
{
    float lanes[OZ_VL];
    v_store(lanes, a);
    for (int i = 0; i < OZ_VL; i++) {
        p[i] = oz_f32_to_bf16(lanes[i]);
    }
}

/* ---- pairs of bf16 ---- */

typedef struct {
    __m256i half[2];
} vp;

static inline vp vp_load(const void *p)
{
    vp x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline vp vp_set(const void *pair)
{
    int both;
    memcpy(&both, pair, sizeof both);
    return (vp){{_mm256_set1_epi32(both), _mm256_set1_epi32(both)}};
}
static inline __m256 flushed(__m256 x) /* denormal numbers count as zero */
{
    __m256 sign = _mm256_set1_ps(-0.0F);
    __m256 small = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), _mm256_set1_ps(FLT_MIN), _CMP_LT_OQ);
    return _mm256_blendv_ps(x, _mm256_and_ps(x, sign), small);
}
static inline __m256 product(__m256i a, __m256i b,
                             __m256 sum) /* of the bf16 above; below is zero */
{
    return flushed(_mm256_fmadd_ps(flushed(_mm256_castsi256_ps(a)), flushed(_mm256_castsi256_ps(b)),
                                   flushed(sum)));
}
static inline __m256i above(__m256i pairs)
{
    return _mm256_and_si256(pairs, _mm256_set1_epi32((int)0xFFFF0000));
}
static inline __m256i below(__m256i pairs)
{
    return _mm256_slli_epi32(pairs, 16);
}
static inline vf vp_dot(vf sum, vp a, vp b)
{
    EACH_HALF(product(below(a.half[i]), below(b.half[i]),
                      product(above(a.half[i]), above(b.half[i]), sum.half[i])));
}
static inline vf vp_dot_at(vf sum, const void *pair, vp b)
{
    return vp_dot(sum, vp_set(pair), b);
}

#endif
