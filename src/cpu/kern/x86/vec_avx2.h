/*
 * cpu/kern/x86/vec_avx2.h: vectors of 8 f32 lanes. The same names as vec_avx512.h; a unit includes
 * exactly one of the two. `n` of partial loads and stores is in 0..OZ_VL.
 */
#ifndef OZ_CPU_KERN_X86_VEC_AVX2_H
#define OZ_CPU_KERN_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define OZ_VL 8
typedef __m256 vf;

static inline vf v_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vf v_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
static inline __m256i v_mask_(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf v_load_n(const float *p, int64_t n) /* lanes from n on are 0 */
{
    return _mm256_maskload_ps(p, v_mask_(n));
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, v_mask_(n), x);
}
static inline vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
static inline vf v_fma(vf a, vf b, vf c) /* a b + c, one rounding */
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf v_fma_at(const float *a, vf b, vf c) /* *a b + c */
{
    return _mm256_fmadd_ps(_mm256_broadcast_ss(a), b, c);
}
static inline vf v_fnma(vf a, vf b, vf c) /* c - a b, one rounding */
{
    return _mm256_fnmadd_ps(a, b, c);
}
/* Where a lane is NaN these give b. */
static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf v_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
static inline vf v_round(vf a) /* to the nearest integer, ties to even */
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a 2^n for integral n in -252..254 (in two factors, so that denormal results are right). */
static inline vf v_scale(vf a, vf n)
{
    __m256i i = _mm256_cvtps_epi32(n);
    __m256i half = _mm256_srai_epi32(i, 1);
    __m256i rest = _mm256_sub_epi32(i, half);
    __m256i bias = _mm256_set1_epi32(127);
    vf x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vf y = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, x), y);
}
/* Sum and largest of the lanes, halves folded: ((0+4)+(2+6))+((1+5)+(3+7)). */
static inline float v_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_shuffle_ps(s, s, 1));
    return _mm_cvtss_f32(s);
}
static inline float v_largest(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_shuffle_ps(s, s, 1));
    return _mm_cvtss_f32(s);
}
/* Swaps neighbours: lanes 1 0 3 2 ... */
static inline vf v_swap(vf a)
{
    return _mm256_permute_ps(a, 0xB1);
}
/* The even lanes doubled (0 0 2 2 ...), and lanes -0 +1 ...: a with even lanes subtracted. */
static inline vf v_fmaddsub(vf a, vf b, vf c) /* even lanes a b - c, odd lanes a b + c */
{
    return _mm256_fmaddsub_ps(a, b, c);
}
/* p[0], p[0], p[1], p[1] ...: half a vector, each twice. */
static inline vf v_load_twice(const float *p)
{
    __m128 x = _mm_loadu_ps(p);
    return _mm256_set_m128(_mm_unpackhi_ps(x, x), _mm_unpacklo_ps(x, x));
}

/* ---- sums in double: 4 lanes, half a vf ---- */

typedef __m256d vd;

static inline vd vd_set(double x)
{
    return _mm256_set1_pd(x);
}
static inline vd vd_load(const float *p) /* OZ_VL / 2 elements, widened */
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}
static inline vd vd_add(vd a, vd b)
{
    return _mm256_add_pd(a, b);
}
static inline vd vd_sub(vd a, vd b)
{
    return _mm256_sub_pd(a, b);
}
static inline vd vd_fma(vd a, vd b, vd c)
{
    return _mm256_fmadd_pd(a, b, c);
}
static inline double vd_sum(vd a) /* (0+2)+(1+3) */
{
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* ---- bf16 ---- */

static inline vf v_load_bf16(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
/* To nearest, ties to even; NaN stays NaN (quiet). */
static inline __m128i v_to_bf16_(vf a)
{
    __m256i u = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    r = _mm256_srli_epi32(_mm256_blendv_epi8(r, quiet, nan), 16);
    __m256i packed = _mm256_packus_epi32(r, r);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
static inline void v_store_bf16(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)(void *)p, v_to_bf16_(a));
}

#endif
