/*
 * cpu/kern/x86/q_f32_vec.h: linear of quantized panels in f32, over vec_avx2.h or vec_avx512.h and
 * tile_vec.h: rows and weights are decoded to the reference's values, codes times group scales, and
 * multiplied by the f32 tile. For tiers without products of their codes, and for f32 precision.
 */
#ifndef OZ_CPU_KERN_X86_Q_F32_VEC_H
#define OZ_CPU_KERN_X86_Q_F32_VEC_H

#include "cpu/kern/ref/ref.h"
#include "cpu/kern/x86/q_end_vec.h"
#include "cpu/kern/x86/tile_vec.h"
#if OZ_VL == 16
#include "cpu/kern/x86/e4m3_avx512.h"
#endif

/* Where the tile finds column f of a decoded step k: panels of TILE_NR columns, one after the other. */
#define QF_AT(block, k_all, k, f) \
    ((block) + (f) / TILE_NR * TILE_NR * (k_all) + (k)*TILE_NR + (f) % TILE_NR)

/* The value of a nibble in each lane; zero: of U4, its zero point. */
TILE_INLINE vf qf_nibble(enum oz_qcode code, const float *book, qi_i lanes, int shift, vf zero)
{
    qi_i x = QI(srli_epi32)(lanes, QI_N(shift));
    return code == OZ_QCODE_NF4  ? qi_book(book, x)
           : code == OZ_QCODE_U4 ? v_sub(qi_int(qi_and(x, 15)), zero)
                                 : qi_e2m1(x);
}

TILE_INLINE void qf_put(float *block, int64_t k_all, int64_t k, int64_t f, vf value,
                        const float *scales)
{
    v_store(QF_AT(block, k_all, k, f), scales != NULL ? v_mul(value, v_load(scales + f)) : value);
}

/* Eight (four, two) of K of all features. */
TILE_INLINE void qf_step(enum oz_qcode code, const float *book, const uint8_t *codes, float *block,
                         int64_t k_all, int64_t k, const float *scales)
{
    for (int64_t f = 0; f < OZ_Q_NR; f += OZ_VL) {
        qi_i x = qi_load(codes + 4 * f);
        vf zero = code == OZ_QCODE_U4 ? v_load(scales + OZ_Q_NR + f) : v_zero();
        for (int i = 0; i < 4; i++) {
            if (code == OZ_QCODE_S8) {
                vf v = qi_int(QI(srai_epi32)(QI(slli_epi32)(x, QI_N(24 - 8 * i)), 24));
                qf_put(block, k_all, k + i, f, v, scales);
            } else {
                vf even = qf_nibble(code, book, x, 4 * i, zero);
                vf odd = qf_nibble(code, book, x, 16 + 4 * i, zero);
                qf_put(block, k_all, k + 2 * i, f, even, scales);
                qf_put(block, k_all, k + 2 * i + 1, f, odd, scales);
            }
        }
    }
}

/* Two of K, in the order of pairs (cpu/qgemm.h), so that a vector of features of one of them can be had. */
#if OZ_VL == 16
struct qf_columns {
    __m512i of[2]; /* bf16 of pairs: of features 0 to 15, 16 to 31 */
};
typedef struct e4m3_tables qf_tables;

TILE_INLINE qf_tables qf_tables_of(void)
{
    return e4m3_tables();
}

TILE_INLINE struct qf_columns qf_pairs_apart(const qf_tables *t, const uint8_t *codes)
{
    struct qf_columns c;
    e4m3_pairs(t, qi_load(codes), &c.of[0], &c.of[1]);
    return c;
}

/* Features from f on, a multiple of the lanes, of one of K. */
TILE_INLINE vf qf_pair_values(const struct qf_columns *columns, int64_t k, int64_t f, bool nan)
{
    __m512i pairs = columns->of[f / 16];
    (void)nan;
    return qi_cast(k == 0 ? _mm512_slli_epi32(pairs, 16) : qi_and(pairs, 0xFFFF0000U));
}

/* May there be NaN among the codes of a step, which qf_pair_values has to mind? */
TILE_INLINE bool qf_minds_nan(const uint8_t *codes)
{
    (void)codes;
    return false;
}
#else
/* 32 bytes hold two of K of features f .. f + 7 and of 16 + f .. 23 + f: bytes are taken to the upper ends of
 * lanes. */
struct qf_columns {
    __m256i of[2]; /* of f = 0, 8 */
};
typedef struct {
    char none;
} qf_tables;

TILE_INLINE qf_tables qf_tables_of(void)
{
    return (qf_tables){0};
}

TILE_INLINE struct qf_columns qf_pairs_apart(const qf_tables *t, const uint8_t *codes)
{
    (void)t;
    return (struct qf_columns){{qi_load(codes), qi_load(codes + 32)}};
}

/* Features from f on, a multiple of the lanes, of one of K. nan: may there be such codes? */
TILE_INLINE vf qf_pair_values(const struct qf_columns *columns, int64_t k, int64_t f, bool nan)
{
    const __m128i even = _mm_setr_epi8(-1, -1, -1, 0, -1, -1, -1, 2, -1, -1, -1, 4, -1, -1, -1, 6);
    const __m128i place = _mm_set1_epi32((int32_t)((uint32_t)(k + f / 16 * 8) << 24));
    const __m256i at = _mm256_broadcastsi128_si256(_mm_add_epi8(even, place));
    qi_i x = _mm256_shuffle_epi8(columns->of[f / 8 % 2], at);
    qi_i bits = qi_and(_mm256_srai_epi32(x, 4), 0x87F00000U);
    vf value = v_mul(qi_cast(bits), v_set(0x1p120F));
    return nan ? qi_nan(value, qi_and(_mm256_srli_epi32(x, 24), 0x7F)) : value;
}

TILE_INLINE bool qf_minds_nan(const uint8_t *codes)
{
    return qi_any_nan(codes, 64);
}
#endif

TILE_INLINE void qf_pairs(const qf_tables *t, const uint8_t *codes, float *block, int64_t k_all,
                          int64_t k, const float *scales)
{
    struct qf_columns columns = qf_pairs_apart(t, codes);
    bool nan = qf_minds_nan(codes);
    for (int i = 0; i < 2; i++) {
        for (int64_t f = 0; f < OZ_Q_NR; f += OZ_VL) {
            qf_put(block, k_all, k + i, f, qf_pair_values(&columns, i, f, nan), scales);
        }
    }
}

static void qf_decode(const struct oz_qlayout *l, const float *scales, const uint8_t *codes,
                      int64_t k, void *block)
{
    int64_t step = l->code == OZ_QCODE_E4M3 ? 2 : l->code == OZ_QCODE_S8 ? 4 : 8;
    const qf_tables t = qf_tables_of();
    for (int64_t i = 0; i < k; i += step) {
        const float *s =
            scales != NULL ? scales + i / l->group * oz_qcode_scale_floats(l->code) : NULL;
        const uint8_t *at = codes + i * OZ_Q_NR * l->code_bits / 8;
        if (l->code == OZ_QCODE_E4M3) {
            qf_pairs(&t, at, block, k, i, s);
        } else if (l->code == OZ_QCODE_S8) {
            qf_step(OZ_QCODE_S8, NULL, at, block, k, i, s);
        } else if (oz_qcode_has_book(l->code)) {
            qf_step(OZ_QCODE_NF4, l->values->f32, at, block, k, i, s);
        } else if (l->code == OZ_QCODE_U4) {
            qf_step(OZ_QCODE_U4, NULL, at, block, k, i, s);
        } else {
            qf_step(OZ_QCODE_E2M1, NULL, at, block, k, i, s);
        }
    }
}

static void qf_run(int64_t rows, const struct oz_qblock *q, const void *b)
{
    for (int64_t half = 0; half < OZ_Q_NR / TILE_NR; half++) {
        tile_any(rows, q->k, q->a, q->lda, (const char *)b + half * q->k * TILE_NR * 4,
                 q->c + half * TILE_NR, OZ_Q_NR, q->first, false);
    }
}

/* ---- one row ---- */

#define QF_UNROLL _Pragma("GCC unroll 8")

/* sum + a (value scale), as the tile adds decoded values. */
TILE_INLINE vf qf_add(vf sum, const float *a, vf value, vf scale, bool scaled)
{
    return v_fma_at(a, scaled ? v_mul(value, scale) : value, sum);
}

#if OZ_VL == 8
/* e2m1 by the low nibbles of bytes: the upper halves of their f32 values, since the lower ones are zeros, in
 * pairs of neighbouring bytes. Lookups of bytes cost a quarter of what permuting lanes does. */
TILE_INLINE void qf_e2m1_halves(__m256i nibbles, __m256i *first, __m256i *second)
{
    const __m256i high = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, -0x80, -0x41, -0x41, -0x41,
                      -0x40, -0x40, -0x40, -0x40));
    const __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 0, -0x80, -0x40, 0, 0x40, -0x80, -0x40, 0, 0, -0x80, -0x40, 0, 0x40, -0x80, -0x40));
    nibbles = qi_and(nibbles, 0x0F0F0F0FU);
    __m256i upper = _mm256_shuffle_epi8(high, nibbles);
    __m256i lower = _mm256_shuffle_epi8(low, nibbles);
    vf a = qi_cast(_mm256_unpacklo_epi8(lower, upper)); /* features 0 and 1, 4 and 5 */
    vf b = qi_cast(_mm256_unpackhi_epi8(lower, upper));
    *first = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    *second = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
}

/* Eight of K of twice 8 features, side by side, as the sums of either wait for one another; in the order of
 * a packed word's nibbles (cpu/qgemm.h). */
#define QF_HALVES(v, x)                                         \
    qi_i v##0, v##1, v##2, v##3; /* of K i, of K i + 4 above */ \
    qf_e2m1_halves(x, &v##0, &v##1);                            \
    qf_e2m1_halves(_mm256_srli_epi32(x, 4), &v##2, &v##3);
#define QF_LOW(i)                                                                     \
    *s0 = qf_add(*s0, a + (i), qi_cast(_mm256_slli_epi32(x##i, 16)), scale0, scaled); \
    *s1 = qf_add(*s1, a + (i), qi_cast(_mm256_slli_epi32(y##i, 16)), scale1, scaled);
#define QF_HIGH(i)                                                                      \
    *s0 = qf_add(*s0, a + 4 + (i), qi_cast(qi_and(x##i, 0xFFFF0000U)), scale0, scaled); \
    *s1 = qf_add(*s1, a + 4 + (i), qi_cast(qi_and(y##i, 0xFFFF0000U)), scale1, scaled);

TILE_INLINE void qf_few_e2m1(const uint8_t *codes, const float *a, vf *s0, vf *s1, vf scale0,
                             vf scale1, bool scaled)
{
    qi_i first = qi_load(codes);
    qi_i second = qi_load(codes + 32);
    QF_HALVES(x, first)
    QF_HALVES(y, second)
    QF_LOW(0) QF_LOW(1) QF_LOW(2) QF_LOW(3) QF_HIGH(0) QF_HIGH(1) QF_HIGH(2) QF_HIGH(3)
}
#endif

#if OZ_VL == 8
/* Bytes of a table's f32 values. */
struct qf_book {
    __m256i byte[4];
};

TILE_INLINE struct qf_book qf_book_of(const float *values)
{
    struct qf_book b;
    for (int i = 0; i < 4; i++) {
        uint8_t bytes[16];
        for (int v = 0; v < 16; v++) {
            bytes[v] = ((const uint8_t *)(const void *)values)[4 * v + i];
        }
        b.byte[i] =
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)bytes));
    }
    return b;
}

/* Values of nibbles, which lie in bytes by byte of a word and then by feature: halves of them, of which
 * first and second hold bytes 0 and 1 of words, third and fourth 2 and 3. */
struct qf_values {
    __m256i low[2], high[2];
};

TILE_INLINE struct qf_values qf_book_halves(const struct qf_book *b, __m256i nibbles)
{
    __m256i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_shuffle_epi8(b->byte[i], nibbles);
    }
    return (struct qf_values){{_mm256_unpacklo_epi8(v[0], v[1]), _mm256_unpackhi_epi8(v[0], v[1])},
                              {_mm256_unpacklo_epi8(v[2], v[3]), _mm256_unpackhi_epi8(v[2], v[3])}};
}

/* Of byte `at` of words. */
TILE_INLINE vf qf_book_value(const struct qf_values *v, int at)
{
    __m256i low = v->low[at / 2];
    __m256i high = v->high[at / 2];
    return qi_cast(at % 2 == 0 ? _mm256_unpacklo_epi16(low, high)
                               : _mm256_unpackhi_epi16(low, high));
}

/* Eight of K of 8 features. Lookups of bytes, four for each value, cost half of what permuting lanes does. */
TILE_INLINE vf qf_few_book(const struct qf_book *b, const uint8_t *codes, const float *a, vf sum,
                           vf scale, bool scaled)
{
    const __m256i apart = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m256i x = _mm256_shuffle_epi8(qi_load(codes), apart);
    struct qf_values low = qf_book_halves(b, qi_and(x, 0x0F0F0F0FU));
    struct qf_values high = qf_book_halves(b, qi_and(_mm256_srli_epi32(x, 4), 0x0F0F0F0FU));
    for (int i = 0; i < 4;
         i++) { /* K 2 i in nibble i of the low half of a word, 2 i + 1 of the high */
        const struct qf_values *v = i % 2 == 0 ? &low : &high;
        sum = qf_add(sum, a + 2 * i, qf_book_value(v, i / 2), scale, scaled);
        sum = qf_add(sum, a + 2 * i + 1, qf_book_value(v, 2 + i / 2), scale, scaled);
    }
    return sum;
}
#endif

/* One step of K of a vector of features: eight nibbles, four bytes. */
TILE_INLINE vf qf_few_words(enum oz_qcode code, const float *book, const uint8_t *codes,
                            const float *a, vf sum, vf scale, vf zero, bool scaled)
{
    qi_i x = qi_load(codes);
    for (int i = 0; i < 4; i++) {
        if (code == OZ_QCODE_S8) {
            vf v = qi_int(QI(srai_epi32)(QI(slli_epi32)(x, QI_N(24 - 8 * i)), 24));
            sum = qf_add(sum, a + i, v, scale, scaled);
        } else {
            vf even = qf_nibble(code, book, x, 4 * i, zero);
            vf odd = qf_nibble(code, book, x, 16 + 4 * i, zero);
            sum = qf_add(sum, a + 2 * i, even, scale, scaled);
            sum = qf_add(sum, a + 2 * i + 1, odd, scale, scaled);
        }
    }
    return sum;
}

#if OZ_VL == 16
#define QF_EACH(X) X(0) X(1)
#else
#define QF_EACH(X) X(0) X(1) X(2) X(3)
#endif
#define QF_BEGIN(v) vf sum##v = q->first ? v_zero() : v_load(q->c + (v)*OZ_VL);
#define QF_SCALE(v)                                           \
    vf s##v = scaled ? v_load(scales + (v)*OZ_VL) : v_set(1); \
    vf z##v = code == OZ_QCODE_U4 ? v_load(scales + OZ_Q_NR + (v)*OZ_VL) : v_zero();
#define QF_WORDS(v) \
    sum##v = qf_few_words(code, w.book, codes + 4 * (v)*OZ_VL, a, sum##v, s##v, z##v, scaled);
#define QF_PAIRS_AS(v, nan)                                                                \
    sum##v = qf_add(sum##v, a, qf_pair_values(&columns, 0, (v)*OZ_VL, nan), s##v, scaled); \
    sum##v = qf_add(sum##v, a + 1, qf_pair_values(&columns, 1, (v)*OZ_VL, nan), s##v, scaled);
#define QF_PAIRS(v) QF_PAIRS_AS(v, false)
#define QF_PAIRS_NAN(v) QF_PAIRS_AS(v, true)
#if OZ_VL == 8
#define QF_BOOK(v) sum##v = qf_few_book(&words, codes + 4 * (v)*OZ_VL, a, sum##v, s##v, scaled);
#define QF_NIBBLES                                       \
    qf_few_e2m1(codes, a, &sum0, &sum1, s0, s1, scaled); \
    qf_few_e2m1(codes + 64, a, &sum2, &sum3, s2, s3, scaled);
#else
#define QF_BOOK(v) QF_WORDS(v)
#define QF_NIBBLES QF_EACH(QF_WORDS)
#endif
#define QF_END(v) v_store(q->c + (v)*OZ_VL, sum##v);

/* How one row walks through codes of K. */
struct qf_walk {
    int64_t step, bytes; /* of K, and of its codes, decoded at once */
    int64_t group;       /* of K under a scale */
    int64_t scale_floats;
    const float *book;
    qf_tables tables;
};

TILE_INLINE struct qf_walk qf_walk_of(const struct oz_qblock *q, enum oz_qcode code, bool scaled)
{
    return (struct qf_walk){.step = code == OZ_QCODE_E4M3 ? 2
                                    : code == OZ_QCODE_S8 ? 4
                                                          : 8,
                            .bytes = code == OZ_QCODE_E4M3 ? 64 : 128,
                            .group = scaled ? q->w_group : q->k,
                            .scale_floats = oz_qcode_scale_floats(code),
                            .book = q->values != NULL ? q->values->f32 : NULL,
                            .tables = qf_tables_of()};
}

/* Codes as they stream, decoded in registers: the same sums as the tile's. */
TILE_INLINE void qf_few_as(const struct oz_qblock *q, enum oz_qcode code, bool scaled,
                           const uint8_t *codes)
{
    const float *a = q->a;
    const float *scales = q->w_scales;
    const struct qf_walk w = qf_walk_of(q, code, scaled);
#if OZ_VL == 8
    const struct qf_book words = code == OZ_QCODE_NF4 ? qf_book_of(w.book) : (struct qf_book){0};
#endif
    QF_EACH(QF_BEGIN)
    for (int64_t k = 0; k < q->k; k += w.group, scales += w.scale_floats) {
        QF_EACH(QF_SCALE)
        for (int64_t i = 0; i < w.group; i += w.step, codes += w.bytes, a += w.step) {
            q_ahead(codes);
            if (code == OZ_QCODE_E4M3) {
                struct qf_columns columns = qf_pairs_apart(&w.tables, codes);
                if (qf_minds_nan(codes)) {
                    QF_EACH(QF_PAIRS_NAN)
                } else {
                    QF_EACH(QF_PAIRS)
                }
            } else {
                q_ahead(codes + 64);
                if (code == OZ_QCODE_E2M1) {
                    QF_NIBBLES
                } else if (code == OZ_QCODE_NF4) {
                    QF_EACH(QF_BOOK)
                } else {
                    QF_EACH(QF_WORDS)
                }
            }
        }
    }
    QF_EACH(QF_END)
}

#if OZ_VL == 16
#define QF_FEW_PANELS Q_PANELS

/* Four panels side by side; the same sums. */
TILE_INLINE void qf_few_beside(const struct oz_qblock *q, enum oz_qcode code, bool scaled,
                               const uint8_t *codes)
{
    const float *a = q->a;
    const float *scales = q->w_scales;
    const struct qf_walk w = qf_walk_of(q, code, scaled);
    vf sum[2 * Q_PANELS];
    vf by[2 * Q_PANELS];
    vf zero[2 * Q_PANELS];
    QF_UNROLL for (int v = 0; v < 2 * Q_PANELS; v++)
    {
        sum[v] = q->first ? v_zero() : v_load(q->c + v / 2 * q->c_ld + v % 2 * OZ_VL);
    }
    for (int64_t k = 0; k < q->k; k += w.group, scales += w.scale_floats) {
        QF_UNROLL for (int v = 0; v < 2 * Q_PANELS; v++)
        {
            const float *at = scales + v / 2 * q->w_ld + v % 2 * OZ_VL;
            by[v] = scaled ? v_load(at) : v_set(1);
            zero[v] = code == OZ_QCODE_U4 ? v_load(at + OZ_Q_NR) : v_zero();
        }
        for (int64_t i = 0; i < w.group; i += w.step, codes += w.bytes, a += w.step) {
            QF_UNROLL for (int p = 0; p < Q_PANELS; p++)
            {
                const uint8_t *at = codes + p * q->panel_bytes;
                vf *s = sum + 2 * p;
                q_near(at);
                if (code == OZ_QCODE_E4M3) {
                    struct qf_columns columns = qf_pairs_apart(&w.tables, at);
                    for (int j = 0; j < 4; j++) {
                        vf value = qf_pair_values(&columns, j / 2, j % 2 * OZ_VL, false);
                        s[j % 2] = qf_add(s[j % 2], a + j / 2, value, by[2 * p + j % 2], scaled);
                    }
                } else {
                    q_near(at + 64);
                    s[0] = qf_few_words(code, w.book, at, a, s[0], by[2 * p], zero[2 * p], scaled);
                    s[1] = qf_few_words(code, w.book, at + 64, a, s[1], by[2 * p + 1],
                                        zero[2 * p + 1], scaled);
                }
            }
        }
    }
    QF_UNROLL for (int v = 0; v < 2 * Q_PANELS; v++)
    {
        v_store(q->c + v / 2 * q->c_ld + v % 2 * OZ_VL, sum[v]);
    }
}
#else
#define QF_FEW_PANELS 0
#endif

TILE_INLINE void qf_few_scaled(const struct oz_qblock *q, enum oz_qcode code, const uint8_t *codes)
{
#if OZ_VL == 16
    if (q->panels > 1 && q->w_scales != NULL) {
        qf_few_beside(q, code, true, codes);
        return;
    }
    if (q->panels > 1) {
        qf_few_beside(q, code, false, codes);
        return;
    }
#endif
    if (q->w_scales != NULL) {
        qf_few_as(q, code, true, codes);
    } else {
        qf_few_as(q, code, false, codes);
    }
}

static void qf_run_few(int64_t rows, const struct oz_qblock *q, enum oz_qcode code,
                       const uint8_t *codes)
{
    (void)rows;
    switch (code) {
    case OZ_QCODE_E4M3: qf_few_scaled(q, OZ_QCODE_E4M3, codes); break;
    case OZ_QCODE_S8: qf_few_scaled(q, OZ_QCODE_S8, codes); break;
    case OZ_QCODE_E2M1: qf_few_scaled(q, OZ_QCODE_E2M1, codes); break;
    case OZ_QCODE_NF4:
    case OZ_QCODE_FP4: qf_few_scaled(q, OZ_QCODE_NF4, codes); break;
    case OZ_QCODE_U4: qf_few_scaled(q, OZ_QCODE_U4, codes); break;
    }
}

/* A scale of a row as one walks through its columns. */
struct qf_scale {
    struct q_level level;
    int64_t next;  /* where the next one lies, */
    int64_t until; /* and the column where it begins */
    vf now;
};

TILE_INLINE struct qf_scale qf_scale_of(const struct oz_act *x, int32_t level, int64_t row,
                                        int64_t col)
{
    if (x->spec.scale[level].group_cols == 0) {
        return (struct qf_scale){.until = INT64_MAX,
                                 .now = v_set(((const float *)x->scales[level])[row])};
    }
    struct q_level l = q_level_of(x, level, row);
    int64_t cell = col / l.group;
    return (struct qf_scale){.level = l, .next = l.first + cell * l.step, .until = cell * l.group};
}

TILE_INLINE vf qf_scale_at(struct qf_scale *s, int64_t col)
{
    if (col >= s->until) {
        s->now = v_set(q_level_get(&s->level, s->next));
        s->next += s->level.step;
        s->until += s->level.group;
    }
    return s->now;
}

/* Are its scales alike within the vectors of a row? */
static bool qf_brings(const struct oz_act_spec *x)
{
    bool whole = x->scale_count <= 2 && (x->dtype == OZ_DTYPE_F8_E4M3 || x->dtype == OZ_DTYPE_F4);
    for (int i = 0; whole && i < x->scale_count; i++) {
        whole = x->scale[i].group_cols % OZ_VL == 0 &&
                (x->scale[i].group_cols > 0 || x->scale[i].dtype == OZ_DTYPE_F32);
    }
    return whole;
}

/* Codes times one scale after the other, each product rounded, as oz_act_decode_row. */
TILE_INLINE void qf_bring_codes(enum oz_dtype dtype, const struct oz_act *x, int64_t row,
                                int64_t k0, int64_t n, float *to)
{
    const int64_t per = dtype == OZ_DTYPE_F4 ? 2 : 1;
    const uint8_t *src = (const uint8_t *)x->data + (row * x->stride + k0) / per;
    const int32_t levels = x->spec.scale_count;
    const bool given = x->spec.static_scale != NULL;
    const vf by = v_set(given ? *x->spec.static_scale : 1);
    struct qf_scale first = levels > 0 ? qf_scale_of(x, 0, row, k0) : (struct qf_scale){.until = 0};
    struct qf_scale second = levels > 1 ? qf_scale_of(x, 1, row, k0) : first;
    for (int64_t i = 0; i < n; i += Q_PART) {
        uint8_t part[Q_PART_BYTES];
        q_row_part(dtype, src + i / per, n - i, part);
        for (int64_t j = 0; j < Q_PART && i + j < n; j += OZ_VL) {
            vf v = q_row_codes(dtype, part, j);
            v = levels > 0 ? v_mul(v, qf_scale_at(&first, k0 + i + j)) : v;
            v = levels > 1 ? v_mul(v, qf_scale_at(&second, k0 + i + j)) : v;
            v = given ? v_mul(v, by) : v;
            v_store_n(to + i + j, v, n - i - j < OZ_VL ? n - i - j : OZ_VL);
        }
    }
}

static void qf_bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                     int64_t group, void *dst, float *scales, int32_t *offsets)
{
    float *to = dst;
    (void)group;
    (void)scales;
    (void)offsets;
    if (!qf_brings(&x->spec)) {
        oz_ref_load(x, row, k0, n, to);
    } else if (x->spec.dtype == OZ_DTYPE_F4) {
        qf_bring_codes(OZ_DTYPE_F4, x, row, k0, n, to);
    } else {
        qf_bring_codes(OZ_DTYPE_F8_E4M3, x, row, k0, n, to);
    }
    memset(to + n, 0, (size_t)(padded - n) * sizeof *to);
}

#define QF_KERNEL(block_)                                                                       \
    {                                                                                           \
        .mr = TILE_MR, .k_block = (block_), .row_block = 192, .rows = OZ_QROWS_F32,             \
        .step_bytes = 4 * OZ_Q_NR * (int32_t)sizeof(float), .books = true, .decode = qf_decode, \
        .run = qf_run, .few = 1, .few_panels = QF_FEW_PANELS, .run_few = qf_run_few,            \
        .bring = qf_bring, .scales = qe_scales, .finish = qe_finish, .store = v_store_tile,     \
    }

#endif
