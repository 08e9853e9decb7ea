/*
 * cpu/kern/x86/attention_vec.h: what a tier gives to attention (cpu/attention.h), over vec_avx2.h or
 * vec_avx512.h. A unit for packed bf16 defines OZ_ATTENTION_BF16 as 1 (else they are f32), one whose
 * panels are not two vectors wide ATT_NR (a multiple of that); it expands OZ_ATTENTION_ENTRY.
 *
 * Elements times kr are always 4 bytes, so that keys are packed by transposing 4-byte words.
 */
#ifndef OZ_CPU_KERN_X86_ATTENTION_VEC_H
#define OZ_CPU_KERN_X86_ATTENTION_VEC_H

#include <math.h>
#include <string.h>

#include "cpu/attention.h"

#ifndef OZ_ATTENTION_BF16
#define OZ_ATTENTION_BF16 0
#endif

/* ---- elements ---- */

#if OZ_ATTENTION_BF16
typedef uint16_t att_element;
static inline void att_put(att_element *p,
                           vf x) /* products take denormals as 0: either form will do */
{
#if defined(__AVX512BF16__) && OZ_VL == 16
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh(x));
#else
    v_store_bf16(p, x);
#endif
}
static inline vf att_get(const att_element *p)
{
    return v_load_bf16(p);
}
#else
typedef float att_element;
static inline void att_put(att_element *p, vf x)
{
    v_store(p, x);
}
static inline vf att_get(const att_element *p)
{
    return v_load(p);
}
#endif

#define ATT_KR ((int64_t)(4 / sizeof(att_element)))
#ifndef ATT_NR
#define ATT_NR ((int64_t)2 * OZ_VL)
#endif

static inline void att_load_f32(const float *from, int64_t count, att_element *to)
{
    att_element lanes[OZ_VL];
    int64_t i = 0;
    for (; i + OZ_VL <= count; i += OZ_VL) {
        att_put(to + i, v_load(from + i));
    }
    if (i < count) {
        att_put(lanes, v_load_n(from + i, count - i));
        memcpy(to + i, lanes, (size_t)(count - i) * sizeof *to);
    }
}

static inline void att_load_bf16(const uint16_t *from, int64_t count, att_element *to)
{
#if OZ_ATTENTION_BF16
    memcpy(to, from, (size_t)count * sizeof *to);
#else
    float lanes[OZ_VL];
    uint16_t tail[OZ_VL] = {0};
    int64_t i = 0;
    for (; i + OZ_VL <= count; i += OZ_VL) {
        v_store(to + i, v_load_bf16(from + i));
    }
    memcpy(tail, from + i, (size_t)(count - i) * sizeof *tail);
    v_store(lanes, v_load_bf16(tail));
    memcpy(to + i, lanes, (size_t)(count - i) * sizeof *to);
#endif
}

static inline void att_load(const struct oz_act *x, int64_t row, int64_t col, int64_t count,
                            int64_t padded, void *dst)
{
    int64_t at = row * x->stride + col;
    if (x->spec.dtype == OZ_DTYPE_F32) {
        att_load_f32((const float *)x->data + at, count, dst);
    } else {
        att_load_bf16((const uint16_t *)x->data + at, count, dst);
    }
    memset((att_element *)dst + count, 0, (size_t)(padded - count) * sizeof(att_element));
}

/* ---- packing ---- */

/* 8 x 8 words: dst[i][j] = src[j][i]; src_ld and dst_ld in words. */
static inline void att_transpose_8x8(const float *src, int64_t src_ld, float *dst, int64_t dst_ld)
{
    __m256 r0 = _mm256_loadu_ps(src);
    __m256 r1 = _mm256_loadu_ps(src + src_ld);
    __m256 r2 = _mm256_loadu_ps(src + 2 * src_ld);
    __m256 r3 = _mm256_loadu_ps(src + 3 * src_ld);
    __m256 r4 = _mm256_loadu_ps(src + 4 * src_ld);
    __m256 r5 = _mm256_loadu_ps(src + 5 * src_ld);
    __m256 r6 = _mm256_loadu_ps(src + 6 * src_ld);
    __m256 r7 = _mm256_loadu_ps(src + 7 * src_ld);
    __m256 a0 = _mm256_unpacklo_ps(r0, r1);
    __m256 a1 = _mm256_unpackhi_ps(r0, r1);
    __m256 a2 = _mm256_unpacklo_ps(r2, r3);
    __m256 a3 = _mm256_unpackhi_ps(r2, r3);
    __m256 a4 = _mm256_unpacklo_ps(r4, r5);
    __m256 a5 = _mm256_unpackhi_ps(r4, r5);
    __m256 a6 = _mm256_unpacklo_ps(r6, r7);
    __m256 a7 = _mm256_unpackhi_ps(r6, r7);
    r0 = _mm256_shuffle_ps(a0, a2, 0x44);
    r1 = _mm256_shuffle_ps(a0, a2, 0xEE);
    r2 = _mm256_shuffle_ps(a1, a3, 0x44);
    r3 = _mm256_shuffle_ps(a1, a3, 0xEE);
    r4 = _mm256_shuffle_ps(a4, a6, 0x44);
    r5 = _mm256_shuffle_ps(a4, a6, 0xEE);
    r6 = _mm256_shuffle_ps(a5, a7, 0x44);
    r7 = _mm256_shuffle_ps(a5, a7, 0xEE);
    _mm256_storeu_ps(dst, _mm256_permute2f128_ps(r0, r4, 0x20));
    _mm256_storeu_ps(dst + dst_ld, _mm256_permute2f128_ps(r1, r5, 0x20));
    _mm256_storeu_ps(dst + 2 * dst_ld, _mm256_permute2f128_ps(r2, r6, 0x20));
    _mm256_storeu_ps(dst + 3 * dst_ld, _mm256_permute2f128_ps(r3, r7, 0x20));
    _mm256_storeu_ps(dst + 4 * dst_ld, _mm256_permute2f128_ps(r0, r4, 0x31));
    _mm256_storeu_ps(dst + 5 * dst_ld, _mm256_permute2f128_ps(r1, r5, 0x31));
    _mm256_storeu_ps(dst + 6 * dst_ld, _mm256_permute2f128_ps(r2, r6, 0x31));
    _mm256_storeu_ps(dst + 7 * dst_ld, _mm256_permute2f128_ps(r3, r7, 0x31));
}

static inline void att_pack_keys(const void *rows, int64_t depth, void *panel)
{
    const float *src = rows; /* words */
    float *dst = panel;
    int64_t words = depth / ATT_KR;
    int64_t w = 0;
    for (; w + 8 <= words; w += 8) {
        for (int64_t key = 0; key < ATT_NR; key += 8) {
            att_transpose_8x8(src + key * words + w, words, dst + w * ATT_NR + key, ATT_NR);
        }
    }
    for (; w < words; w++) {
        for (int64_t key = 0; key < ATT_NR; key++) {
            memcpy(dst + w * ATT_NR + key, src + key * words + w, sizeof *dst);
        }
    }
}

/* Copies ATT_KR rows of a panel's features, interleaved. */
static inline void att_pack_step(const att_element *rows, int64_t features, att_element *dst)
{
#if OZ_ATTENTION_BF16 && OZ_VL == 8
    for (int64_t f = 0; f < ATT_NR; f += 8) {
        __m128i even = _mm_loadu_si128((const __m128i *)(const void *)(rows + f));
        __m128i odd = _mm_loadu_si128((const __m128i *)(const void *)(rows + features + f));
        _mm_storeu_si128((__m128i *)(void *)(dst + 2 * f), _mm_unpacklo_epi16(even, odd));
        _mm_storeu_si128((__m128i *)(void *)(dst + 2 * f + 8), _mm_unpackhi_epi16(even, odd));
    }
#elif OZ_ATTENTION_BF16
    for (int64_t f = 0; f < ATT_NR; f += 16) {
        __m256i even = _mm256_loadu_si256((const __m256i *)(const void *)(rows + f));
        __m256i odd = _mm256_loadu_si256((const __m256i *)(const void *)(rows + features + f));
        __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
        _mm512_storeu_si512(dst + 2 * f, _mm512_or_si512(_mm512_cvtepu16_epi32(even), high));
    }
#else
    (void)features;
    v_store(dst, v_load(rows));
    v_store(dst + OZ_VL, v_load(rows + OZ_VL));
#endif
}

static inline bool att_pack_values(const void *rows, int64_t features, int64_t panel_elems,
                                   void *dst)
{
    const att_element *src = rows;
    for (int64_t f = 0; f < features; f += ATT_NR) {
        att_element *to = (att_element *)dst + f / ATT_NR * panel_elems;
        for (int64_t key = 0; key < ATT_NR; key += ATT_KR) {
            att_pack_step(src + key * features + f, features, to + key * ATT_NR);
        }
    }
    vf n0 = v_zero(); /* sums of x * 0: NaN where an x is infinite or NaN */
    vf n1 = n0;
    vf n2 = n0;
    vf n3 = n0;
    for (int64_t i = 0; i < ATT_NR * features; i += (int64_t)4 * OZ_VL) {
        n0 = v_fma(att_get(src + i), v_zero(), n0);
        n1 = v_fma(att_get(src + i + OZ_VL), v_zero(), n1);
        n2 = v_fma(att_get(src + i + (int64_t)2 * OZ_VL), v_zero(), n2);
        n3 = v_fma(att_get(src + i + (int64_t)3 * OZ_VL), v_zero(), n3);
    }
    return v_sum(v_add(v_add(n0, n1), v_add(n2, n3))) == 0;
}

/* ---- softmax ---- */

/*
 * 2^x for x up to 126; 0 below -126. x = n + r with |r| <= 1/2, a polynomial of degree 5 in r, exact
 * at 0, times 2^n. Relative error below 2^-22. NaN gives NaN, minus infinity 0.
 */
static inline vf att_exp2(vf x)
{
    vf n = v_round(x);
    vf r = v_sub(x, n);
    vf p = v_set(0x1.5bba14p-10F);
    p = v_fma(p, r, v_set(0x1.3cea88p-7F));
    p = v_fma(p, r, v_set(0x1.c6b752p-5F));
    p = v_fma(p, r, v_set(0x1.ebf9bcp-3F));
    p = v_fma(p, r, v_set(0x1.62e42ap-1F));
    p = v_fma(p, r, v_set(1.0F));
#if OZ_VL == 8
    /* n of NaN becomes 2^31, which leaves p as it is. */
    __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), bits));
    return _mm256_and_ps(y, _mm256_cmp_ps(x, _mm256_set1_ps(-126.0F), _CMP_NLT_UQ));
#else
    __mmask16 some = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(some, p, n);
#endif
}

/*
 * The same for weights. Those that are rounded to bf16 afterwards get by with degree 4: x = n + r with
 * 0 <= r < 1, exact at 0 and 1, relative error below 2^-18, 2^-9 of a rounding to bf16.
 */
static inline vf att_weight(vf x)
{
#if OZ_ATTENTION_BF16 && OZ_VL == 16
    vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
    vf p = v_set(0x1.bc31dap-7F);
    p = v_fma(p, r, v_set(0x1.aa3fcap-5F));
    p = v_fma(p, r, v_set(0x1.ee5884p-3F));
    p = v_fma(p, r, v_set(0x1.62d51cp-1F));
    p = v_fma(p, r, v_set(1.0F));
    __mmask16 some = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(some, p, x); /* times 2^floor(x) */
#else
    return att_exp2(x);
#endif
}

/* Scores with their factor and bias. */
static inline void att_bias_row(const struct oz_attention_tile *t, int64_t row, float *scores)
{
    const float *bias = t->bias != NULL ? t->bias - row : NULL;
    for (int64_t i = 0; i < t->padded; i += OZ_VL) {
        vf x = v_mul(v_load(scores + i), v_set(t->factor));
        int64_t n = t->count - i < OZ_VL ? t->count - i : OZ_VL;
        if (bias != NULL && n > 0) {
            x = v_fma(v_load_n(bias + i, n), v_set(1.44269504088896341F), x);
        }
        v_store(scores + i, x);
    }
}

static inline float att_largest(const float *scores, int64_t count)
{
    vf m0 = v_set(-INFINITY);
    vf m1 = m0;
    for (int64_t i = 0; i < count; i += (int64_t)2 * OZ_VL) {
        m0 = v_max(v_load(scores + i), m0); /* skips NaN: its weight will be NaN */
        m1 = v_max(v_load(scores + i + OZ_VL), m1);
    }
    return v_largest(v_max(m0, m1));
}

/* Weights in place; their sum. */
static inline float att_weights(float *scores, int64_t count, float factor, float base)
{
    att_element *weights = (att_element *)(void *)scores;
    vf s0 = v_zero();
    vf s1 = s0;
    vf f = v_set(factor);
    vf b = v_set(-base);
    for (int64_t i = 0; i < count; i += (int64_t)2 * OZ_VL) {
        vf x0 = att_weight(v_fma(v_load(scores + i), f, b));
        vf x1 = att_weight(v_fma(v_load(scores + i + OZ_VL), f, b));
        att_put(weights + i, x0);
        att_put(weights + i + OZ_VL, x1);
        s0 = v_add(s0, x0);
        s1 = v_add(s1, x1);
    }
    return v_sum(v_add(s0, s1));
}

/* Minus infinity where a row does not see a key. */
static inline void att_hide(const struct oz_attention_tile *t, int64_t row, float *scores)
{
    for (int64_t i = 0; i < t->begin[row]; i++) {
        scores[i] = -INFINITY;
    }
    for (int64_t i = t->end[row]; i < t->padded; i++) {
        scores[i] = -INFINITY;
    }
}

/*
 * In passes over all rows: whether a maximum has grown is known late and guessed badly, and must not
 * hold up the next row's weights.
 */
static inline void att_soften(const struct oz_attention_tile *t)
{
    bool plain = t->bias == NULL && t->factor > 0;
    float factor = plain ? t->factor : 1;
    float shrink[OZ_ATTENTION_MAX_ROWS] = {0}; /* log2, then what it says */
    for (int64_t row = 0; row < t->rows; row++) {
        float *scores = t->scores + row * OZ_ATTENTION_TILE;
        if (t->begin[row] < t->end[row]) {
            if (!plain) {
                att_bias_row(t, row, scores);
            }
            att_hide(t, row, scores);
            float largest = att_largest(scores, t->padded) * factor;
            float old = t->largest[row];
            t->largest[row] = largest > old ? largest : old;
            shrink[row] = largest > old ? old - largest : 0;
        }
    }
    for (int64_t row = 0; row < OZ_ATTENTION_MAX_ROWS; row += OZ_VL) {
        v_store(shrink + row, att_exp2(v_load(shrink + row)));
    }
    for (int64_t row = 0; row < t->rows; row++) {
        float *scores = t->scores + row * OZ_ATTENTION_TILE;
        float largest = t->largest[row];
        if (t->begin[row] >= t->end[row]) {
            memset(scores, 0, (size_t)t->padded * sizeof *scores);
            continue;
        }
        float sum = att_weights(scores, t->padded, factor, largest == -INFINITY ? 0 : largest);
        t->sum[row] = fmaf(t->sum[row], shrink[row], sum);
    }
    for (int64_t row = 0; row < t->rows && !t->first; row++) {
        float *out = t->out + row * t->out_ld;
        for (int64_t c = 0; c < t->out_cols && shrink[row] != 1; c += OZ_VL) {
            v_store(out + c, v_mul(v_load(out + c), v_set(shrink[row])));
        }
    }
}

_Static_assert(OZ_ATTENTION_MAX_ROWS % OZ_VL == 0, "whole vectors of rows");

static inline void att_store(const struct oz_act *out, int64_t row, int64_t col, int64_t count,
                             const float *sums, float denominator)
{
    int64_t at = row * out->stride + col;
    for (int64_t c = 0; c < count; c += OZ_VL) {
        int64_t n = count - c < OZ_VL ? count - c : OZ_VL;
        vf x = v_div(v_load(sums + c), v_set(denominator)); /* whole vectors */
        if (out->spec.dtype == OZ_DTYPE_F32) {
            float *to = (float *)out->data + at + c;
            if (n == OZ_VL) { /* masked stores are slow on some processors */
                v_store(to, x);
            } else {
                v_store_n(to, x, n);
            }
            continue;
        }
        uint16_t lanes[OZ_VL];
        v_store_bf16(lanes, x);
        memcpy((uint16_t *)out->data + at + c, lanes, (size_t)n * sizeof *lanes);
    }
}

/* The object's name, the kernel's name as a string, tier, where it has been proven; where products
 * come from: members of struct oz_attention_kernel. */
#define OZ_ATTENTION_ENTRY(object, text, tier_, proven_, ...)                                   \
    static const struct oz_attention_kernel object##_parts = {.load = att_load,                 \
                                                              .pack_keys = att_pack_keys,       \
                                                              .pack_values = att_pack_values,   \
                                                              .soften = att_soften,             \
                                                              .store = att_store,               \
                                                              __VA_ARGS__};                     \
    static size_t object##_scratch(const struct oz_device *dev, const void *a)                  \
    {                                                                                           \
        return oz_attention_scratch(dev, (const struct oz_attention_args *)a, &object##_parts); \
    }                                                                                           \
    static const char *object##_reject(const struct oz_device *dev, const void *a)              \
    {                                                                                           \
        return oz_attention_reject(dev, (const struct oz_attention_args *)a, &object##_parts);  \
    }                                                                                           \
    static enum oz_status object##_run(const struct oz_op_ctx *ctx, const void *a)              \
    {                                                                                           \
        return oz_attention_run(ctx, (const struct oz_attention_args *)a, &object##_parts);     \
    }                                                                                           \
    const struct oz_cpu_kernel object = {.name = (text),                                        \
                                         .op = OZ_OP_ATTENTION,                                 \
                                         .tier = (tier_),                                       \
                                         .proven = (proven_),                                   \
                                         .reject = object##_reject,                             \
                                         .scratch = object##_scratch,                           \
                                         .run = object##_run};

#endif
