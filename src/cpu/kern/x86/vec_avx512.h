/*
 * cpu/kern/x86/vec_avx512.h: vectors of 16 f32 lanes. The same names as vec_avx2.h; a unit includes
 * exactly one of the two. `n` of partial loads and stores is in 0..OZ_VL.
 */
#ifndef OZ_CPU_KERN_X86_VEC_AVX512_H
#define OZ_CPU_KERN_X86_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define OZ_VL 16
typedef __m512 vf;

static inline vf v_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
static inline __mmask16 v_mask_(int64_t n)
{
    return (__mmask16)((1U << n) - 1U);
}
static inline vf v_load_n(const float *p, int64_t n) /* lanes from n on are 0 */
{
    return _mm512_maskz_loadu_ps(v_mask_(n), p);
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, v_mask_(n), x);
}
static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static inline vf v_fma(vf a, vf b, vf c) /* a b + c, one rounding */
{
    return _mm512_fmadd_ps(a, b, c);
}
/* *a b + c, with the broadcast in the instruction: compilers take it out when it has two uses. */
static inline vf v_fma_at(const float *a, vf b, vf c)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
}
static inline vf v_fnma(vf a, vf b, vf c) /* c - a b, one rounding */
{
    return _mm512_fnmadd_ps(a, b, c);
}
/* Where a lane is NaN these give b. */
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf v_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
/* GCC's macro passes its mask, all ones, as a signed number. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
static inline vf v_round(vf a) /* to the nearest integer, ties to even */
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#pragma GCC diagnostic pop
/* a 2^n for integral n; denormal results are right. */
static inline vf v_scale(vf a, vf n)
{
    return _mm512_scalef_ps(a, n);
}
/* Sum and largest of the lanes, halves folded. */
static inline float v_sum(vf a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_shuffle_ps(s, s, 1));
    return _mm_cvtss_f32(s);
}
static inline float v_largest(vf a)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_shuffle_ps(s, s, 1));
    return _mm_cvtss_f32(s);
}
/* Swaps neighbours: lanes 1 0 3 2 ... */
static inline vf v_swap(vf a)
{
    return _mm512_permute_ps(a, 0xB1);
}
static inline vf v_fmaddsub(vf a, vf b, vf c) /* even lanes a b - c, odd lanes a b + c */
{
    return _mm512_fmaddsub_ps(a, b, c);
}
/* p[0], p[0], p[1], p[1] ...: half a vector, each twice. */
static inline vf v_load_twice(const float *p)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}

/* ---- sums in double: 8 lanes, half a vf ---- */

typedef __m512d vd;

static inline vd vd_set(double x)
{
    return _mm512_set1_pd(x);
}
static inline vd vd_load(const float *p) /* OZ_VL / 2 elements, widened */
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}
static inline vd vd_add(vd a, vd b)
{
    return _mm512_add_pd(a, b);
}
static inline vd vd_sub(vd a, vd b)
{
    return _mm512_sub_pd(a, b);
}
static inline vd vd_fma(vd a, vd b, vd c)
{
    return _mm512_fmadd_pd(a, b, c);
}
static inline double vd_sum(vd a) /* halves folded */
{
    __m256d h = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* ---- bf16 ---- */

static inline vf v_load_bf16(const uint16_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
/* To nearest, ties to even; NaN stays NaN (quiet). Denormals are kept, as vcvtneps2bf16 does not. */
static inline __m256i v_to_bf16_(vf a)
{
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
static inline void v_store_bf16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v_to_bf16_(a));
}

#endif
