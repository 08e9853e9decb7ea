/*
 * cpu/kern/x86/q_end_vec.h: what kernels of quantized panels share on every tier, over vec_avx2.h or
 * vec_avx512.h: lanes of codes, scales of panels, the end of a sum, list entries.
 */
#ifndef OZ_CPU_KERN_X86_Q_END_VEC_H
#define OZ_CPU_KERN_X86_Q_END_VEC_H

#include "cpu/kern/x86/store_vec.h"
#include "cpu/qgemm.h"
#include "num/float8.h"

#define OZ_Q_INLINE static inline __attribute__((always_inline))

/* Asks for codes that will be read soon, where they stream. */
#define Q_AHEAD 8192
OZ_Q_INLINE void q_ahead(const uint8_t *codes)
{
    _mm_prefetch(codes + Q_AHEAD, _MM_HINT_T1);
}

/* The same where panels stream side by side, each at a part of the pace: four streams come faster than one
 * (docs/performance.md). */
#define Q_NEAR 1024
OZ_Q_INLINE void q_near(const uint8_t *codes)
{
    _mm_prefetch(codes + Q_NEAR, _MM_HINT_T0);
}
#define Q_PANELS 4

/* ---- lanes of integers ---- */

#if OZ_VL == 16
#define QI(name) _mm512_##name
#define QI_N(n) ((unsigned)(n)) /* a count of bits to shift by */
typedef __m512i qi_i;
OZ_Q_INLINE qi_i qi_widen(__m128i bytes) /* the first OZ_VL of them */
{
    return _mm512_cvtepu8_epi32(bytes);
}
OZ_Q_INLINE qi_i qi_widen_signed(__m128i bytes)
{
    return _mm512_cvtepi8_epi32(bytes);
}
OZ_Q_INLINE __m128i qi_bytes(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
OZ_Q_INLINE qi_i qi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
OZ_Q_INLINE vf qi_cast(qi_i x)
{
    return _mm512_castsi512_ps(x);
}
OZ_Q_INLINE qi_i qi_or(qi_i a, qi_i b)
{
    return _mm512_or_si512(a, b);
}
OZ_Q_INLINE qi_i qi_and(qi_i a, uint32_t b)
{
    return _mm512_and_si512(a, _mm512_set1_epi32((int32_t)b));
}
OZ_Q_INLINE vf qi_int(qi_i x)
{
    return _mm512_cvtepi32_ps(x);
}
/* NaN where a magnitude of e4m3 is 0x7F. */
OZ_Q_INLINE vf qi_nan(vf value, qi_i rest)
{
    __mmask16 nan = _mm512_cmpeq_epi32_mask(rest, _mm512_set1_epi32(0x7F));
    return _mm512_mask_mov_ps(value, nan, qi_cast(_mm512_set1_epi32(0x7FC00000)));
}
/* The value of a code in the low four bits of a lane. */
OZ_Q_INLINE vf qi_book(const float *values, qi_i code)
{
    return _mm512_permutexvar_ps(code, _mm512_loadu_ps(values));
}
#else
#define QI(name) _mm256_##name
#define QI_N(n) (n)
typedef __m256i qi_i;
OZ_Q_INLINE qi_i qi_widen(__m128i bytes)
{
    return _mm256_cvtepu8_epi32(bytes);
}
OZ_Q_INLINE qi_i qi_widen_signed(__m128i bytes)
{
    return _mm256_cvtepi8_epi32(bytes);
}
OZ_Q_INLINE __m128i qi_bytes(const uint8_t *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}
OZ_Q_INLINE qi_i qi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
OZ_Q_INLINE vf qi_cast(qi_i x)
{
    return _mm256_castsi256_ps(x);
}
OZ_Q_INLINE qi_i qi_or(qi_i a, qi_i b)
{
    return _mm256_or_si256(a, b);
}
OZ_Q_INLINE qi_i qi_and(qi_i a, uint32_t b)
{
    return _mm256_and_si256(a, _mm256_set1_epi32((int32_t)b));
}
OZ_Q_INLINE vf qi_int(qi_i x)
{
    return _mm256_cvtepi32_ps(x);
}
OZ_Q_INLINE vf qi_nan(vf value, qi_i rest)
{
    __m256i nan = _mm256_cmpeq_epi32(rest, _mm256_set1_epi32(0x7F));
    return _mm256_blendv_ps(value, qi_cast(_mm256_set1_epi32(0x7FC00000)), qi_cast(nan));
}
/* As above: what is under bit 3 by shuffles, which of the halves by that bit. */
OZ_Q_INLINE vf qi_book(const float *values, qi_i code)
{
    vf low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), code);
    vf high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values + 8), code);
    return _mm256_blendv_ps(low, high, qi_cast(_mm256_slli_epi32(code, 28)));
}
/* e2m1's magnitudes by the low three bits of a lane. */
OZ_Q_INLINE vf qi_e2m1_magnitude(qi_i code)
{
    const vf table = _mm256_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6);
    return _mm256_permutevar8x32_ps(table, code);
}
#endif

/* A code of e4m3 in each lane, sign-extended; NaN codes give +-480. Denormal numbers come out of the product. */
OZ_Q_INLINE vf qi_e4m3_number(qi_i x)
{
    return v_mul(qi_cast(qi_and(QI(slli_epi32)(x, 20), 0x87F00000U)), v_set(0x1p120F));
}
/* The same of all codes. */
OZ_Q_INLINE vf qi_e4m3(qi_i x)
{
    return qi_nan(qi_e4m3_number(x), qi_and(x, 0x7F));
}
/* A code of e2m1 in the low bits of each lane; what is above does not count. */
OZ_Q_INLINE vf qi_e2m1(qi_i x)
{
#if OZ_VL == 16
    static const float values[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                     -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    return qi_book(values, x);
#else
    qi_i sign = qi_and(_mm256_slli_epi32(x, 28), 0x80000000U);
    return qi_cast(qi_or(_mm256_castps_si256(qi_e2m1_magnitude(x)), sign));
#endif
}

/* 2^(code - 127); 0 is a denormal, 255 NaN. */
OZ_Q_INLINE vf qi_e8m0(qi_i x)
{
#if OZ_VL == 16
    __m512i bits = _mm512_slli_epi32(x, 23);
    bits =
        _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(x, x), _mm512_set1_epi32(0x00400000));
    bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(x, _mm512_set1_epi32(255)),
                                 _mm512_set1_epi32(0x7FC00000));
#else
    __m256i bits = _mm256_slli_epi32(x, 23);
    bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x00400000),
                              _mm256_cmpeq_epi32(x, _mm256_setzero_si256()));
    bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7FC00000),
                              _mm256_cmpeq_epi32(x, _mm256_set1_epi32(255)));
#endif
    return qi_cast(bits);
}

/* ---- scales ---- */

#define Q_DUAL 512

/* Is there NaN among `count` codes of e4m3 (a multiple of 32); or what is no power of two among such of
 * e8m0: 0, a denormal number, and 255, NaN? */
OZ_Q_INLINE bool qi_any_nan(const uint8_t *codes, int64_t count)
{
    __m256i any = _mm256_setzero_si256();
    for (int64_t i = 0; i < count; i += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(codes + i));
        x = _mm256_and_si256(x, _mm256_set1_epi8(0x7F));
        any = _mm256_or_si256(any, _mm256_cmpeq_epi8(x, _mm256_set1_epi8(0x7F)));
    }
    return !_mm256_testz_si256(any, any);
}
OZ_Q_INLINE bool qi_any_odd(const uint8_t *codes) /* of 32 */
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    __m256i y = _mm256_add_epi8(x, _mm256_set1_epi8(1)); /* 255 and 0 become 0 and 1 */
    __m256i odd = _mm256_cmpeq_epi8(_mm256_min_epu8(y, _mm256_set1_epi8(1)), y);
    return !_mm256_testz_si256(odd, odd);
}

/* Are 32 codes all in [least, most]? */
OZ_Q_INLINE bool qi_all_within(const uint8_t *codes, int least, int most)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    __m256i y = _mm256_sub_epi8(x, _mm256_set1_epi8((char)least));
    __m256i within =
        _mm256_cmpeq_epi8(_mm256_min_epu8(y, _mm256_set1_epi8((char)(most - least))), y);
    return _mm256_movemask_epi8(within) == -1;
}

/* The scales of a group, of each feature. They take a good part of what 4-bit codes take, so they are
 * converted without regard to what is rare where it is not there. */
OZ_Q_INLINE void qe_e8m0(const uint8_t *codes, float *dst)
{
    bool odd = qi_any_odd(codes);
    for (int64_t f = 0; f < OZ_Q_NR; f += OZ_VL) {
        qi_i x = qi_widen(qi_bytes(codes + f));
        v_store(dst + f, odd ? qi_e8m0(x) : qi_cast(QI(slli_epi32)(x, 23)));
    }
}
OZ_Q_INLINE void qe_e4m3(const uint8_t *codes, float *dst)
{
    bool nan = qi_any_nan(codes, OZ_Q_NR);
    for (int64_t f = 0; f < OZ_Q_NR; f += OZ_VL) {
        qi_i x = qi_widen_signed(qi_bytes(codes + f));
        v_store(dst + f, nan ? qi_e4m3(x) : qi_e4m3_number(x));
    }
}

/* Scales of integers in groups, and behind those of each group its zero points. */
OZ_Q_INLINE void qe_integers(const struct oz_qlayout *l, const uint8_t *panel, int64_t first,
                             int64_t count, float *dst)
{
    const float *scales = (const float *)(const void *)(panel + l->scales) + first * OZ_Q_NR;
    const uint8_t *zeros = panel + l->zeros + first * OZ_Q_NR;
    for (int64_t i = 0; i < count * OZ_Q_NR; i += OZ_VL) {
        float *to = dst + i / OZ_Q_NR * OZ_Q_NR + i;
        v_store(to, v_load(scales + i));
        v_store(to + OZ_Q_NR, qi_int(qi_widen(qi_bytes(zeros + i))));
    }
}

static void qe_scales(const struct oz_qlayout *l, const uint8_t *panel, int64_t first,
                      int64_t count, float *dst)
{
    if (l->code == OZ_QCODE_U4) {
        qe_integers(l, panel, first, count, dst);
        return;
    }
    const float *f32 = (const float *)(const void *)(panel + l->scales);
    const float *second = (const float *)(const void *)(panel + l->scales2);
    const uint8_t *codes = panel + l->scales + first * OZ_Q_NR;
    if (l->shared_scale) {
        for (int64_t i = 0; i < count * OZ_Q_NR; i += OZ_VL) {
            v_store(dst + i, v_set(f32[first + i / OZ_Q_NR]));
        }
    } else if (l->scale == OZ_DTYPE_F32) {
        memcpy(dst, f32 + first * OZ_Q_NR, (size_t)(count * OZ_Q_NR) * sizeof *dst);
    } else if (l->scale == OZ_DTYPE_F8_E8M0) {
        for (int64_t i = 0; i < count * OZ_Q_NR; i += OZ_Q_NR) {
            qe_e8m0(codes + i, dst + i);
        }
    } else {
        for (int64_t i = 0; i < count * OZ_Q_NR; i += OZ_Q_NR) {
            qe_e4m3(codes + i, dst + i);
        }
    }
    for (int64_t g = 0; l->dual && g < count; g++) {
        const float *by = second + (first + g) * l->group / Q_DUAL * OZ_Q_NR;
        for (int64_t f = 0; f < OZ_Q_NR; f += OZ_VL) {
            float *to = dst + g * OZ_Q_NR + f;
            v_store(to, v_mul(v_load(to), v_load(by + f)));
        }
    }
}

/* ---- the end of a sum ---- */

/* s32 in the lanes of a vf, less what rows of code + 128 added: 128 times the sum of a column's codes. */
OZ_Q_INLINE vf qi_value(vf sum, const int32_t *col_sums)
{
#if OZ_VL == 16
    __m512i x = _mm512_castps_si512(sum);
    if (col_sums != NULL) {
        x = _mm512_sub_epi32(x, _mm512_slli_epi32(_mm512_loadu_si512(col_sums), 7));
    }
    return _mm512_cvtepi32_ps(x);
#else
    __m256i x = _mm256_castps_si256(sum);
    if (col_sums != NULL) {
        x = _mm256_sub_epi32(x, _mm256_slli_epi32(qi_load(col_sums), 7));
    }
    return _mm256_cvtepi32_ps(x);
#endif
}

OZ_Q_INLINE void qe_finish_as(int64_t rows, const float *row_scales, const float *col_scales,
                              bool integers, const int32_t *col_sums, float *c)
{
    for (int64_t r = 0; r < rows; r++, c += OZ_Q_NR) {
        for (int64_t f = 0; f < OZ_Q_NR; f += OZ_VL) {
            vf y = v_load(c + f);
            if (integers) {
                y = qi_value(y, col_sums != NULL ? col_sums + f : NULL);
            }
            if (col_scales != NULL) {
                y = v_mul(v_load(col_scales + f), y);
            }
            v_store(c + f, row_scales != NULL ? v_mul(v_set(row_scales[r]), y) : y);
        }
    }
}

/* Sums in f32; in s32 of s8 rows; in s32 of rows of code + 128. */
static inline void qe_finish(int64_t rows, const float *row_scales, const float *col_scales,
                             const int32_t *col_sums, float *c)
{
    (void)col_sums;
    qe_finish_as(rows, row_scales, col_scales, false, NULL, c);
}
static inline void qe_finish_s16(int64_t rows, const float *row_scales, const float *col_scales,
                                 const int32_t *col_sums, float *c)
{
    (void)col_sums;
    qe_finish_as(rows, row_scales, col_scales, true, NULL, c);
}
static inline void qe_finish_u8(int64_t rows, const float *row_scales, const float *col_scales,
                                const int32_t *col_sums, float *c)
{
    qe_finish_as(rows, row_scales, col_scales, true, col_sums, c);
}

/* ---- rows ---- */

/* The scales of a level of a row: where the first group's lies, and how far from one to the next. */
struct q_level {
    const void *scales;
    enum oz_dtype dtype;
    int64_t group, first, step;
};

static inline struct q_level q_level_of(const struct oz_act *x, int32_t level, int64_t row)
{
    int64_t group = x->spec.scale[level].group_cols;
    bool by_cols = x->spec.scale[level].layout == OZ_SCALE_COLS;
    return (struct q_level){.scales = x->scales[level],
                            .dtype = x->spec.scale[level].dtype,
                            .group = group,
                            .first = by_cols ? row : row * ((x->cols + group - 1) / group),
                            .step = by_cols ? x->rows : 1};
}

static inline float q_level_get(const struct q_level *l, int64_t at)
{
    const uint8_t *codes = l->scales;
    switch (l->dtype) {
    case OZ_DTYPE_F32: return ((const float *)l->scales)[at];
    case OZ_DTYPE_F8_E8M0: return oz_e8m0_to_f32(codes[at]);
    default: return oz_e4m3_to_f32(codes[at]);
    }
}

/* That of columns from `col` on. */
static inline float q_level_at(const struct q_level *l, int64_t col)
{
    return q_level_get(l, l->first + col / l->group * l->step);
}

/* Scales of `count` groups that lie one after the other, from `at` on, times a factor. */
static inline void q_level_many(const struct q_level *l, int64_t at, int64_t count, float factor,
                                float *scales)
{
    const uint8_t *codes = (const uint8_t *)l->scales + at;
    uint8_t some[16] = {0};
    for (int64_t i = 0; i < count; i += OZ_VL, codes += OZ_VL) {
        int64_t n = count - i < OZ_VL ? count - i : OZ_VL;
        memcpy(some, codes, (size_t)n);
        qi_i x = l->dtype == OZ_DTYPE_F8_E8M0 ? qi_widen(qi_bytes(some))
                                              : qi_widen_signed(qi_bytes(some));
        vf s = l->dtype == OZ_DTYPE_F8_E8M0 ? qi_e8m0(x) : qi_e4m3(x);
        v_store_n(scales + i, v_mul(s, v_set(factor)), n);
    }
}

/* Scales of the groups of [k0, k0 + padded), which those of the first level are; zero behind the row's end. */
static inline void q_row_scales(const struct oz_act *x, int64_t row, int64_t k0, int64_t padded,
                                int64_t group, float factor, float *scales)
{
    bool two = x->spec.scale_count == 2 && x->spec.scale[1].group_cols > 0;
    struct q_level first = q_level_of(x, 0, row);
    struct q_level second = two ? q_level_of(x, 1, row) : first;
    int64_t count = padded / group;
    int64_t there = (x->cols - k0 + group - 1) / group; /* up to the row's end */
    there = there < 0 ? 0 : there < count ? there : count;
    if (first.step == 1 && first.dtype != OZ_DTYPE_F32) {
        q_level_many(&first, first.first + k0 / group, there, factor, scales);
    } else {
        for (int64_t g = 0; g < there; g++) {
            scales[g] = q_level_at(&first, k0 + g * group) * factor;
        }
    }
    for (int64_t g = 0; two && g < there; g++) {
        scales[g] *= q_level_at(&second, k0 + g * group);
    }
    memset(scales + there, 0, (size_t)(count - there) * sizeof *scales);
}

/* ---- rows of codes ---- */

#define Q_PART 64 /* codes that are brought together, from a copy, as rows end anywhere */
#define Q_PART_BYTES (2 * Q_PART) /* vectors of them may be loaded whole */

/* Codes of e4m3 or e2m1 of which `left` are there, with zeros behind. */
OZ_Q_INLINE void q_row_part(enum oz_dtype dtype, const uint8_t *from, int64_t left, uint8_t *part)
{
    int64_t per = dtype == OZ_DTYPE_F4 ? 2 : 1;
    if (left >= Q_PART) {
        memcpy(part, from, (size_t)(Q_PART / per));
        return;
    }
    memset(part, 0, Q_PART);
    if (left > 0) {
        memcpy(part, from, (size_t)((left + per - 1) / per));
    }
    if (left > 0 && left % per != 0) {
        part[left / 2] &= 15U; /* what is behind an odd end is no code */
    }
}

/* OZ_VL codes of a part, from `at` on, as f32. */
OZ_Q_INLINE vf q_row_codes(enum oz_dtype dtype, const uint8_t *part, int64_t at)
{
    if (dtype == OZ_DTYPE_F8_E4M3) {
        return qi_e4m3(qi_widen_signed(qi_bytes(part + at)));
    }
    __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)(part + at / 2));
    const __m128i low = _mm_set1_epi8(15);
    x = _mm_unpacklo_epi8(_mm_and_si128(x, low), _mm_and_si128(_mm_srli_epi16(x, 4), low));
    return qi_e2m1(qi_widen(x));
}

/* ---- e2m1 as integers ---- */

/* By code: twice the value; the same and 12, unsigned; and of eight of K the order in which nibbles of
 * a packed word come out. */
OZ_Q_INLINE __m128i qi_doubled(void)
{
    return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
}
OZ_Q_INLINE __m128i qi_doubled_12(void)
{
    return _mm_add_epi8(qi_doubled(), _mm_set1_epi8(12));
}
OZ_Q_INLINE __m128i qi_word_order(void)
{
    return _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
}

/* Codes of a row of which `left` are there, as `count`, with zeros behind: where they lie, or copied to
 * part [count / 2]. */
OZ_Q_INLINE const uint8_t *qi_row_nibbles(const uint8_t *from, int64_t left, int64_t count,
                                          uint8_t *part)
{
    if (left >= count) {
        return from;
    }
    memset(part, 0, (size_t)count / 2);
    if (left > 0) {
        memcpy(part, from, (size_t)(left + 1) / 2);
        part[left / 2] &= left % 2 != 0 ? 15U : 0;
    }
    return part;
}

/* ---- list entries ---- */

#define OZ_Q_ENTRY(object, text, tier_, proven_, micro)                            \
    extern const struct oz_cpu_kernel object; /* as in linear_entry.h */           \
    static size_t object##_scratch(const struct oz_device *dev, const void *a)     \
    {                                                                              \
        return oz_qgemm_linear_scratch(dev, a, &object);                           \
    }                                                                              \
    static const char *object##_reject(const struct oz_device *dev, const void *a) \
    {                                                                              \
        return oz_qgemm_linear_reject(dev, a, &object);                            \
    }                                                                              \
    static enum oz_status object##_run(const struct oz_op_ctx *ctx, const void *a) \
    {                                                                              \
        return oz_qgemm_linear(ctx, a, &object);                                   \
    }                                                                              \
    const struct oz_cpu_kernel object = {.name = (text),                           \
                                         .op = OZ_OP_LINEAR,                       \
                                         .tier = (tier_),                          \
                                         .proven = (proven_),                      \
                                         .reject = object##_reject,                \
                                         .scratch = object##_scratch,              \
                                         .run = object##_run,                      \
                                         .q = &(micro)};

#endif
