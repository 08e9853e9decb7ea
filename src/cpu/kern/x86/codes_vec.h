/*
 * cpu/kern/x86/codes_vec.h: numbers to codes and scales, over vec_avx2.h or vec_avx512.h: to the same bits
 * as num/. Elements are bf16, f32 with OZ_ENCODE_F32. Scales are computed by num/ itself; here are the
 * largest element of a group and the codes. What encodes weights (encode_vec.h) and rows of activations
 * (act_row_vec.h) shares it.
 *
 * NaN and infinity, and inverse scales that overflow, are left to num/: functions that may meet them
 * return false.
 */
#ifndef OZ_CPU_KERN_X86_CODES_VEC_H
#define OZ_CPU_KERN_X86_CODES_VEC_H

#include <math.h>
#include <string.h>

#include "num/group.h"
#include "num/plane.h"

#define OZ_ALWAYS static inline __attribute__((always_inline))
#define MX 32
#define NV 16
#define DUAL 512
#define GROUPS 64 /* whose scales are computed together */

/* Where tests of what is made of this have run. */
#if OZ_VL == 16
#define OZ_CODES_PROVEN "Intel Xeon (Emerald Rapids)"
#else
#define OZ_CODES_PROVEN "Intel Xeon (Emerald Rapids), AMD EPYC (Zen 3)"
#endif

/* ---- vectors of integers ---- */

#if OZ_VL == 16
typedef __m512i vi;
#define I_(name) _mm512_##name
#define I_BITS(name) _mm512_##name##_si512
#else
typedef __m256i vi;
#define I_(name) _mm256_##name
#define I_BITS(name) _mm256_##name##_si256
#endif

OZ_ALWAYS vi i_set(uint32_t x)
{
    return I_(set1_epi32)((int)x);
}
#if OZ_VL == 16
OZ_ALWAYS vi i_bits(vf x)
{
    return _mm512_castps_si512(x);
}
OZ_ALWAYS vf i_float(vi x)
{
    return _mm512_castsi512_ps(x);
}
OZ_ALWAYS vi i_select_less(vi a, vi b, vi x, vi y) /* a < b ? x : y */
{
    return _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), y, x);
}
OZ_ALWAYS vi i_round(vf x)
{
    return _mm512_cvtps_epi32(x);
}
OZ_ALWAYS void i_store_bytes(uint8_t *p, vi x) /* the low byte of each lane */
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(x));
}
OZ_ALWAYS void i_store_nibbles(uint8_t *p, vi x) /* the low nibble of each, even lanes low */
{
    __m512i pairs = _mm512_or_si512(x, _mm512_srli_epi64(x, 28));
    _mm_storel_epi64((__m128i *)(void *)p, _mm512_cvtepi64_epi8(pairs));
}
#else
OZ_ALWAYS vi i_bits(vf x)
{
    return _mm256_castps_si256(x);
}
OZ_ALWAYS vf i_float(vi x)
{
    return _mm256_castsi256_ps(x);
}
OZ_ALWAYS vi i_select_less(vi a, vi b, vi x, vi y) /* a < b ? x : y */
{
    return _mm256_blendv_epi8(y, x, _mm256_cmpgt_epi32(b, a));
}
OZ_ALWAYS vi i_round(vf x)
{
    return _mm256_cvtps_epi32(x);
}
OZ_ALWAYS void i_store_bytes(uint8_t *p, vi x) /* the low byte of each lane */
{
    x = _mm256_and_si256(x, i_set(0xFF));
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(words, words));
}
OZ_ALWAYS void i_store_nibbles(uint8_t *p, vi x) /* the low nibble of each, even lanes low */
{
    const __m128i pick =
        _mm_setr_epi8(0, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i pairs = _mm256_or_si256(x, _mm256_srli_epi64(x, 28));
    __m128i low = _mm_shuffle_epi8(_mm256_castsi256_si128(pairs), pick);
    __m128i high = _mm_shuffle_epi8(_mm256_extracti128_si256(pairs, 1), pick);
    uint32_t bytes = (uint32_t)_mm_cvtsi128_si32(_mm_unpacklo_epi16(low, high));
    memcpy(p, &bytes, sizeof bytes);
}
#endif

/* ---- the largest element ---- */

#if defined(OZ_ENCODE_F32)
typedef float stored;       /* an element as it is stored */
typedef uint32_t magnitude; /* bits without the sign: ordered like the values, NaN above infinity */
#define STORED f32
#define STORED_DTYPE OZ_DTYPE_F32
#define INFINITE 0x7F800000U

OZ_ALWAYS float value(stored x)
{
    return x;
}
OZ_ALWAYS float value_of(magnitude m)
{
    float x;
    memcpy(&x, &m, sizeof x);
    return x;
}
OZ_ALWAYS vf load(const stored *p)
{
    return v_load(p);
}

OZ_ALWAYS vi load_magnitudes(const stored *p)
{
    return I_BITS(and)(i_bits(v_load(p)), i_set(0x7FFFFFFF));
}

OZ_ALWAYS magnitude largest_lane(vi x)
{
#if OZ_VL == 16
    return _mm512_reduce_max_epu32(x);
#else
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(m);
#endif
}

/* Of n elements, a multiple of the lanes. */
OZ_ALWAYS magnitude largest_whole(const stored *p, int64_t n)
{
    vi most = load_magnitudes(p);
    for (int64_t i = OZ_VL; i < n; i += OZ_VL) {
        most = I_(max_epu32)(most, load_magnitudes(p + i));
    }
    return largest_lane(most);
}

OZ_ALWAYS magnitude largest_16(const stored *p)
{
    return largest_whole(p, 16);
}

OZ_ALWAYS magnitude largest_32(const stored *p)
{
    return largest_whole(p, 32);
}

/* Largest magnitude of n elements. */
static magnitude largest(const stored *p, int64_t n)
{
    int64_t i = n / OZ_VL * OZ_VL;
    magnitude most = i > 0 ? largest_whole(p, i) : 0;
    for (; i < n; i++) {
        magnitude x;
        memcpy(&x, p + i, sizeof x);
        x &= 0x7FFFFFFFU;
        most = x > most ? x : most;
    }
    return most;
}
#else
typedef uint16_t stored;    /* an element as it is stored */
typedef uint16_t magnitude; /* bits without the sign: ordered like the values, NaN above infinity */
#define STORED bf16
#define STORED_DTYPE OZ_DTYPE_BF16
#define INFINITE 0x7F80U

OZ_ALWAYS float value(stored x)
{
    return oz_bf16_to_f32(x);
}
OZ_ALWAYS float value_of(magnitude m)
{
    return oz_bf16_to_f32(m);
}
OZ_ALWAYS vf load(const stored *p)
{
    return v_load_bf16(p);
}

OZ_ALWAYS __m128i max_8(__m256i x)
{
    return _mm_max_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

OZ_ALWAYS __m256i load_magnitudes(const stored *p) /* of 16 */
{
    return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)p),
                            _mm256_set1_epi16(0x7FFF));
}

/* The largest of eight: the smallest of their complements. */
OZ_ALWAYS magnitude largest_8(__m128i x)
{
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(x, _mm_set1_epi16(-1)));
    return (magnitude) ~(uint32_t)_mm_extract_epi16(least, 0);
}

OZ_ALWAYS magnitude largest_16(const stored *p)
{
    return largest_8(max_8(load_magnitudes(p)));
}

OZ_ALWAYS magnitude largest_32(const stored *p)
{
    return largest_8(max_8(_mm256_max_epu16(load_magnitudes(p), load_magnitudes(p + 16))));
}

/* Largest magnitude of n elements. */
static magnitude largest(const stored *p, int64_t n)
{
    __m256i a = _mm256_setzero_si256();
    __m256i b = a;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a = _mm256_max_epu16(a, load_magnitudes(p + i));
        b = _mm256_max_epu16(b, load_magnitudes(p + i + 16));
    }
    magnitude most = largest_8(max_8(_mm256_max_epu16(a, b)));
    for (; i < n; i++) {
        magnitude x = p[i] & 0x7FFFU;
        most = x > most ? x : most;
    }
    return most;
}
#endif

/* ---- codes ---- */

/* As oz_f32_to_e4m3, of what is not NaN: in the low byte of each lane. */
OZ_ALWAYS vi e4m3(vf x)
{
    vi u = i_bits(x);
    vi sign = I_BITS(and)(I_(srli_epi32)(u, 24), i_set(0x80));
    u = I_BITS(and)(u, i_set(0x7FFFFFFF));
    u = I_(min_epi32)(u, i_set(0x43E00000)); /* 448 */
    vi small = I_(sub_epi32)(i_bits(v_add(i_float(u), v_set(0x1p14F))), i_set(0x46800000));
    vi odd = I_BITS(and)(I_(srli_epi32)(u, 20), i_set(1));
    vi sum = I_(add_epi32)(I_(add_epi32)(u, odd), i_set(0x7FFFFU - (120U << 23)));
    vi code = i_select_less(u, i_set(0x3C800000), small, I_(srli_epi32)(sum, 20));
    return I_BITS(or)(code, sign);
}

/* As oz_f32_to_e2m1, of what is not NaN: in the low nibble of each lane. */
OZ_ALWAYS vi e2m1(vf x)
{
    vi u = i_bits(x);
    vi sign = I_BITS(and)(I_(srli_epi32)(u, 28), i_set(8));
    u = I_BITS(and)(u, i_set(0x7FFFFFFF));
    u = I_(min_epi32)(u, i_set(0x40C00000)); /* 6 */
    vi small = I_(sub_epi32)(i_bits(v_add(i_float(u), v_set(0x1p22F))), i_set(0x4A800000));
    vi odd = I_BITS(and)(I_(srli_epi32)(u, 22), i_set(1));
    vi sum = I_(add_epi32)(I_(add_epi32)(u, odd), i_set(0x1FFFFFU - (126U << 23)));
    vi code = i_select_less(u, i_set(0x3F800000), small, I_(srli_epi32)(sum, 22));
    return I_BITS(or)(code, sign);
}

/* codes[i] = e4m3(x[i] * factor). */
OZ_ALWAYS void fp8_multiply(const stored *x, int64_t n, float factor, uint8_t *codes)
{
    vf f = v_set(factor);
    int64_t i = 0;
    for (; i + OZ_VL <= n; i += OZ_VL) {
        i_store_bytes(codes + i, e4m3(v_mul(load(x + i), f)));
    }
    for (; i < n; i++) {
        codes[i] = oz_f32_to_e4m3(value(x[i]) * factor);
    }
}

OZ_ALWAYS void fp8_divide(const stored *x, int64_t n, float scale, uint8_t *codes)
{
    vf s = v_set(scale);
    int64_t i = 0;
    for (; i + OZ_VL <= n; i += OZ_VL) {
        i_store_bytes(codes + i, e4m3(v_div(load(x + i), s)));
    }
    for (; i < n; i++) {
        codes[i] = oz_f32_to_e4m3(value(x[i]) / scale);
    }
}

/* As bf16 rounds it, of what is finite. */
OZ_ALWAYS vf as_bf16(vf x)
{
    vi u = i_bits(x);
    vi odd = I_BITS(and)(I_(srli_epi32)(u, 16), i_set(1));
    u = I_(add_epi32)(u, I_(add_epi32)(odd, i_set(0x7FFF)));
    return i_float(I_BITS(and)(u, i_set(0xFFFF0000U)));
}

/* codes[i] = s8(bf16(bf16(x[i]) / scale)), which lies within +-127 1.01; scale > 0. */
OZ_ALWAYS void int8_divide_bf16(const stored *x, int64_t n, float scale, uint8_t *codes)
{
    vf s = v_set(scale);
    int64_t i = 0;
    for (; i + OZ_VL <= n; i += OZ_VL) {
        vf q = as_bf16(v_div(as_bf16(load(x + i)), s));
        i_store_bytes(codes + i, i_round(v_max(v_min(q, v_set(127)), v_set(-127))));
    }
    for (; i < n; i++) {
        float q = oz_bf16_to_f32(oz_f32_to_bf16(value(x[i])));
        codes[i] = (uint8_t)oz_f32_to_s8(oz_bf16_to_f32(oz_f32_to_bf16(q / scale)));
    }
}

OZ_ALWAYS void int8_multiply(const stored *x, int64_t n, float factor, uint8_t *codes)
{
    vf f = v_set(factor);
    int64_t i = 0;
    for (; i + OZ_VL <= n; i += OZ_VL) { /* |x factor| rounds to 127 at most */
        i_store_bytes(codes + i, i_round(v_mul(load(x + i), f)));
    }
    for (; i < n; i++) {
        codes[i] = (uint8_t)oz_f32_to_s8(value(x[i]) * factor);
    }
}

/* ---- MX and NVFP4 ---- */

OZ_ALWAYS void mxfp8_group(const stored *x, float factor, uint8_t *codes)
{
    vf f = v_set(factor);
    for (int64_t i = 0; i < MX; i += OZ_VL) {
        i_store_bytes(codes + i, e4m3(v_mul(load(x + i), f)));
    }
}

OZ_ALWAYS void fp4_group(const stored *x, int64_t n, float factor, uint8_t *codes)
{
    vf f = v_set(factor);
    for (int64_t i = 0; i < n; i += OZ_VL) {
        i_store_nibbles(codes + i / 2, e2m1(v_mul(load(x + i), f)));
    }
}

/* How groups of a row are coded. A constant where it is used, so that each codec gets a loop of its own. */
struct grouping {
    enum oz_dtype codes;        /* F8_E4M3 or F4 */
    int64_t width;              /* elements of a group: MX or NV */
    enum oz_exponent_rule rule; /* MX */
    float global, inverse;      /* NV: the global factor, and 1 over it */
};

OZ_ALWAYS magnitude group_largest(const struct grouping *g, const stored *x)
{
    return g->width == MX ? largest_32(x) : largest_16(x);
}

/* Stores a group's scale; the factor of its elements. NV: oz_nvfp4_encode's, the inverse at hand. */
OZ_ALWAYS float group_factor(const struct grouping *g, magnitude most, uint8_t *scale)
{
    if (g->width == MX) {
        *scale = oz_mx_scale(g->codes, g->rule, value_of(most));
        return oz_e8m0_inverse(*scale);
    }
    *scale = oz_f32_to_e4m3(g->global * (value_of(most) / OZ_E2M1_MAX));
    float s = oz_e4m3_to_f32(*scale);
    return s == 0 ? 0.0F : 1.0F / (s * g->inverse);
}

OZ_ALWAYS void group_codes(const struct grouping *g, const stored *x, float factor, uint8_t *codes)
{
    if (g->codes == OZ_DTYPE_F8_E4M3) {
        mxfp8_group(x, factor, codes);
    } else {
        fp4_group(x, g->width, factor, codes);
    }
}

/* Where the codes and scales of a row go; scales of a level lie so many elements apart. */
struct places {
    uint8_t *codes;
    uint8_t *scales[2];
    int64_t apart[2];
};

/* A last group of n < width elements with zeros in the missing places. */
OZ_ALWAYS void pad_group(const stored *x, int64_t n, stored group[MX])
{
    memset(group, 0, MX * sizeof *group);
    memcpy(group, x, (size_t)n * sizeof *group);
}

OZ_ALWAYS bool group_tail(const struct grouping *g, const stored *x, int64_t n, uint8_t *scale,
                          uint8_t *codes)
{
    stored group[MX];
    uint8_t out[MX];
    pad_group(x, n, group);
    magnitude most = group_largest(g, group);
    group_codes(g, group, group_factor(g, most, scale), out);
    memcpy(codes, out, (size_t)(g->codes == OZ_DTYPE_F8_E4M3 ? n : (n + 1) / 2));
    return most < INFINITE;
}

OZ_ALWAYS bool group_row(const stored *x, int64_t cols, const struct grouping *g,
                         const struct places *to)
{
    uint8_t *codes = to->codes;
    uint8_t *scales = to->scales[0];
    int64_t groups = cols / g->width;
    int64_t left = cols % g->width;
    int64_t group_bytes = g->codes == OZ_DTYPE_F8_E4M3 ? g->width : g->width / 2;
    magnitude most[GROUPS];
    float factors[GROUPS];
    for (int64_t g0 = 0; g0 < groups; g0 += GROUPS) {
        int64_t n = oz_min_count(GROUPS, groups - g0);
        magnitude all = 0;
        for (int64_t i = 0; i < n; i++) {
            most[i] = group_largest(g, x + (g0 + i) * g->width);
            all = most[i] > all ? most[i] : all;
        }
        if (all >= INFINITE) {
            return false;
        }
        for (int64_t i = 0; i < n; i++) {
            factors[i] = group_factor(g, most[i], &scales[(g0 + i) * to->apart[0]]);
        }
        for (int64_t i = 0; i < n; i++) {
            group_codes(g, x + (g0 + i) * g->width, factors[i], codes + (g0 + i) * group_bytes);
        }
    }
    return left == 0 || group_tail(g, x + groups * g->width, left, scales + groups * to->apart[0],
                                   codes + groups * group_bytes);
}

/* A group under a dual scale. */
OZ_ALWAYS void dual_group(const stored *x, float dual, float inverse, uint8_t *codes)
{
    vf d = v_set(dual);
    vf f = v_set(inverse);
    for (int64_t i = 0; i < MX; i += OZ_VL) {
        i_store_nibbles(codes + i / 2, e2m1(v_mul(v_div(load(x + i), d), f)));
    }
}

/* Up to 512 elements under one f32, in groups of 32; scales: of the groups, `apart`. */
OZ_ALWAYS bool dual_block(const stored *x, int64_t n, float *dual, uint8_t *scales, int64_t apart,
                          uint8_t *codes)
{
    magnitude most[DUAL / MX];
    stored last[MX];
    uint8_t out[MX / 2];
    magnitude all = 0;
    int64_t groups = (n + MX - 1) / MX;
    int64_t left = n % MX;
    if (left > 0) {
        pad_group(x + n - left, left, last);
    }
    for (int64_t g = 0; g < groups; g++) {
        most[g] = largest_32((g + 1) * MX <= n ? x + g * MX : last);
        all = most[g] > all ? most[g] : all;
    }
    *dual = oz_dual_scale(value_of(all));
    for (int64_t g = 0; g < groups; g++) {
        uint8_t *scale = scales + g * apart;
        *scale = oz_dual_group_scale(value_of(most[g]), *dual);
        if ((g + 1) * MX <= n) {
            dual_group(x + g * MX, *dual, oz_e8m0_inverse(*scale), codes + g * (MX / 2));
        } else {
            dual_group(last, *dual, oz_e8m0_inverse(*scale), out);
            memcpy(codes + g * (MX / 2), out, (size_t)(left + 1) / 2);
        }
    }
    return all < INFINITE;
}

OZ_ALWAYS bool dual_row(const stored *x, int64_t cols, const struct places *to)
{
    for (int64_t c = 0; c < cols; c += DUAL) {
        float dual;
        if (!dual_block(x + c, oz_min_count(DUAL, cols - c), &dual,
                        to->scales[0] + c / MX * to->apart[0], to->apart[0], to->codes + c / 2)) {
            return false;
        }
        oz_plane_put_f32(to->scales[1], c / DUAL * to->apart[1], dual);
    }
    return true;
}

#endif
