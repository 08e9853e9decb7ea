/*
 * linear of bf16 or e4m3 rows by e4m3, s8, e2m1 and table weights with AVX512-BF16: 12 rows by 32
 * columns, 6 with groups. Codes of both sides are exact in bf16, values of tables rounded to it; scales come after the products (cpu/qgemm.h).
 * Within a group the order of a sum is that of linear_bf16__avx512bf16.c.
 */
#include "cpu/kern/x86/vec_avx512.h"

#define TILE_PAIRS 1
#define TILE_ANY_ONLY 1

#include "cpu/kern/x86/tile_vec.h"

#define Q_GROUPS 1
#define Q_KR 2
typedef vp q_v;

static inline __attribute__((always_inline)) q_v q_set(const uint8_t *a)
{
    return vp_set(a);
}
static inline __attribute__((always_inline)) q_v q_get(const uint8_t *b, int half)
{
    return vp_load(b + 64 * half);
}
static inline __attribute__((always_inline)) vf q_dot(vf sum, q_v a, q_v b)
{
    return vp_dot(sum, a, b);
}
static inline __attribute__((always_inline)) vf q_begin(const int32_t *offset)
{
    (void)offset;
    return v_zero();
}
static inline __attribute__((always_inline)) vf q_value(vf sum)
{
    return sum;
}

#include "cpu/kern/x86/q_avx512.h"

#include "cpu/kern/x86/e4m3_avx512.h"

/* ---- codes to bf16 ---- */

/* bf16 of e2m1, twice: an index has a fifth bit, which is the next code's. */
#define E2M1_ROW                                                                            \
    0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, 0x8000, 0xBF00, 0xBF80, \
        0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0
static const uint16_t e2m1_table[32] = {E2M1_ROW, E2M1_ROW};

struct tables {
    struct e4m3_tables e4m3;
    __m512i words; /* of 4-bit codes */
};

OZ_Q_INLINE struct tables tables(const struct oz_qbook *book)
{
    return (struct tables){e4m3_tables(),
                           _mm512_loadu_si512(book != NULL ? book->bf16 : e2m1_table)};
}

/* [16][4] s8 to pairs: integers up to 128 are the upper halves of their f32. */
OZ_Q_INLINE __m512i upper(__m512i even, __m512i odd)
{
    __m512i a = _mm512_castps_si512(_mm512_cvtepi32_ps(even));
    __m512i b = _mm512_castps_si512(_mm512_cvtepi32_ps(odd));
    return _mm512_mask_blend_epi16(0xAAAAAAAAU, _mm512_srli_epi32(a, 16), b);
}

OZ_Q_INLINE void s8_pairs(__m512i x, __m512i *first, __m512i *second)
{
    *first = upper(_mm512_srai_epi32(_mm512_slli_epi32(x, 24), 24),
                   _mm512_srai_epi32(_mm512_slli_epi32(x, 16), 24));
    *second = upper(_mm512_srai_epi32(_mm512_slli_epi32(x, 8), 24), _mm512_srai_epi32(x, 24));
}

#define STEP(code) ((code) == OZ_QCODE_E2M1 ? 8 : 4) /* of K that a call decodes: 128 bytes */

/* A step: out[2 i], out[2 i + 1] are pair i of features 0 to 15 and 16 to 31. */
OZ_Q_INLINE void decode_step(enum oz_qcode code, const struct tables *t, const uint8_t *codes,
                             __m512i *out)
{
    __m512i x = _mm512_loadu_si512(codes);
    __m512i y = _mm512_loadu_si512(codes + 64);
    if (code == OZ_QCODE_E4M3) {
        e4m3_pairs(&t->e4m3, x, &out[0], &out[1]);
        e4m3_pairs(&t->e4m3, y, &out[2], &out[3]);
    } else if (code == OZ_QCODE_S8) {
        s8_pairs(x, &out[0], &out[2]);
        s8_pairs(y, &out[1], &out[3]);
    } else {
        out[0] = _mm512_permutexvar_epi16(x, t->words);
        out[1] = _mm512_permutexvar_epi16(y, t->words);
        out[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 4), t->words);
        out[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(y, 4), t->words);
        out[4] = _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 8), t->words);
        out[5] = _mm512_permutexvar_epi16(_mm512_srli_epi16(y, 8), t->words);
        out[6] = _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 12), t->words);
        out[7] = _mm512_permutexvar_epi16(_mm512_srli_epi16(y, 12), t->words);
    }
}

OZ_Q_INLINE void decode_as(enum oz_qcode code, const struct oz_qbook *book, const uint8_t *codes,
                           int64_t k, uint8_t *to)
{
    struct tables t = tables(book);
    for (int64_t i = 0; i < k; i += STEP(code), codes += 128, to += 64 * STEP(code)) {
        __m512i out[8];
        decode_step(code, &t, codes, out);
        for (int j = 0; j < STEP(code); j++) {
            _mm512_storeu_si512(to + 64 * j, out[j]);
        }
    }
}

static void decode(const struct oz_qlayout *l, const float *scales, const uint8_t *codes, int64_t k,
                   void *block)
{
    (void)scales;
    switch (l->code) {
    case OZ_QCODE_E4M3: decode_as(OZ_QCODE_E4M3, NULL, codes, k, block); break;
    case OZ_QCODE_S8: decode_as(OZ_QCODE_S8, NULL, codes, k, block); break;
    default: decode_as(OZ_QCODE_E2M1, l->values, codes, k, block); break;
    }
}

/* ---- products ---- */

static void run(int64_t rows, const struct oz_qblock *q, const void *b)
{
    if (q->group > 0) {
        q_run_groups(rows, q, b);
    } else {
        tile_any(rows, q->k, q->a, q->lda, b, q->c, OZ_Q_NR, q->first, false);
    }
}

/* A step of one row: the sums of its pairs, first to last. */
OZ_Q_INLINE void few_step(enum oz_qcode code, const struct tables *t, const uint8_t *codes,
                          const uint8_t *a, vf *lo, vf *hi)
{
    __m512i out[8];
    decode_step(code, t, codes, out);
    for (int j = 0; j < STEP(code) / 2; j++) {
        *lo = vp_dot(*lo, vp_set(a + 4 * j), out[2 * j]);
        *hi = vp_dot(*hi, vp_set(a + 4 * j), out[2 * j + 1]);
    }
}

#define FEW_STEP(name, code)                                                                     \
    OZ_Q_INLINE void name(const void *t, const uint8_t *codes, const uint8_t *a, vf *lo, vf *hi) \
    {                                                                                            \
        few_step(code, t, codes, a, lo, hi);                                                     \
    }

FEW_STEP(few_e4m3, OZ_QCODE_E4M3)
FEW_STEP(few_s8, OZ_QCODE_S8)
FEW_STEP(few_nibbles, OZ_QCODE_E2M1)

/* One row, codes as they stream: the same sums as q_group_1 and tile_1. */
OZ_Q_INLINE void few_as(const struct oz_qblock *q, enum oz_qcode code, q_step_fn step,
                        const uint8_t *codes)
{
    struct tables t = tables(q->values);
    if (q->group > 0) {
        q_few_groups(q, codes, 32 / STEP(code), false, step, &t);
    } else {
        q_few_whole(q, codes, STEP(code), step, &t);
    }
}

static void run_few(int64_t rows, const struct oz_qblock *q, enum oz_qcode code,
                    const uint8_t *codes)
{
    (void)rows;
    switch (code) {
    case OZ_QCODE_E4M3: few_as(q, OZ_QCODE_E4M3, few_e4m3, codes); break;
    case OZ_QCODE_S8: few_as(q, OZ_QCODE_S8, few_s8, codes); break;
    default: few_as(q, OZ_QCODE_E2M1, few_nibbles, codes); break;
    }
}

/* ---- rows ---- */

static void bring_e4m3(const uint8_t *src, int64_t n, uint16_t *dst)
{
    const __m512i spread = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    struct e4m3_tables t = e4m3_tables();
    for (int64_t i = 0; i < n; i += 64) {
        __mmask64 mask = n - i >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << (n - i)) - 1U;
        __m512i a; /* the first eight of each lane: 0 to 31 */
        __m512i b;
        __m512i x = _mm512_maskz_loadu_epi8(mask, src + i);
        e4m3_pairs(&t, _mm512_permutexvar_epi64(spread, x), &a, &b);
        _mm512_mask_storeu_epi16(dst + i, (__mmask32)mask, a);
        _mm512_mask_storeu_epi16(dst + i + 32, (__mmask32)(mask >> 32), b);
    }
}

static void bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets)
{
    uint16_t *to = dst;
    int64_t at = row * x->stride + k0;
    (void)offsets;
    if (x->spec.dtype == OZ_DTYPE_BF16) {
        memcpy(to, (const uint16_t *)x->data + at, (size_t)n * sizeof *to);
    } else {
        bring_e4m3((const uint8_t *)x->data + at, n, to);
    }
    memset(to + n, 0, (size_t)(padded - n) * sizeof *to);
    if (scales != NULL) {
        q_row_scales(x, row, k0, padded, group, 1, scales);
    }
}

static const struct oz_qgemm_kernel micro = {
    .mr = TILE_MR,
    .group_mr = Q_GROUP_MR,
    .k_block = 256,
    .row_block = 192,
    .rows = OZ_QROWS_BF16,
    .step_bytes = 256,
    .books = true,
    .decode = decode,
    .run = run,
    .few = 1,
    .few_panels = Q_PANELS,
    .run_few = run_few,
    .bring = bring,
    .scales = qe_scales,
    .finish = qe_finish,
    .store = v_store_tile,
};

OZ_Q_ENTRY(oz_kernel_linear_codes__avx512bf16, "oz_linear_bf16_codes_f32__avx512bf16_12x32",
           OZ_TIER_AVX512BF16, "AMD EPYC (Zen 4)", micro)
