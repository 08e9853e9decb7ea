/*
 * linear of e2m1 rows by e2m1 weights in groups (MXFP4, dual scale, NVFP4) with AVX-512 VNNI: 6 rows by
 * 32 columns. Twice an e2m1 value is an integer, so the products of a group are exact; then each
 * group's sum is scaled in f32 (cpu/qgemm.h). Weights are given as 2 w + 12, unsigned as VPDPBUSD
 * wants; sums begin at -12 times the sum of the row's doubled codes. The quarter that the doublings
 * owe is in the rows' scales.
 */
#include "cpu/kern/x86/vec_avx512.h"

#include "cpu/kern/x86/quads_avx512.h"

#define Q_GROUPS 1
#define Q_KR 4
typedef vq q_v;

static inline __attribute__((always_inline)) q_v q_set(const uint8_t *a)
{
    return vq_set(a);
}
static inline __attribute__((always_inline)) q_v q_get(const uint8_t *b, int half)
{
    return vq_load(b + 64 * half);
}
static inline __attribute__((always_inline)) vf q_dot(vf sum, q_v a, q_v b)
{
    return vq_dot(sum, b, a); /* weights are the unsigned side */
}
static inline __attribute__((always_inline)) vf q_begin(const int32_t *offset)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32(*offset));
}
static inline __attribute__((always_inline)) vf q_value(vf sum)
{
    return _mm512_cvtepi32_ps(_mm512_castps_si512(sum));
}

#include "cpu/kern/x86/q_avx512.h"

/* Eight of K of 16 features to 2 w + 12: two quads. */
OZ_Q_INLINE void decode_step(const uint8_t *codes, __m512i *low, __m512i *high)
{
    const __m512i table = _mm512_broadcast_i32x4(qi_doubled_12());
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i x = _mm512_loadu_si512(codes);
    *low = _mm512_shuffle_epi8(table, _mm512_and_si512(x, nibble));
    *high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(x, 4), nibble));
}

static void decode(const struct oz_qlayout *l, const float *scales, const uint8_t *codes, int64_t k,
                   void *block)
{
    (void)scales;
    uint8_t *to = block;
    (void)l;
    for (int64_t i = 0; i < k; i += 8, codes += 128, to += 256) {
        __m512i b[4];
        decode_step(codes, &b[0], &b[2]);
        decode_step(codes + 64, &b[1], &b[3]);
        for (int j = 0; j < 4; j++) {
            _mm512_storeu_si512(to + 64 * j, b[j]);
        }
    }
}

/* Eight of K of one row. */
OZ_Q_INLINE void few_step(const void *tables, const uint8_t *codes, const uint8_t *a, vf *lo,
                          vf *hi)
{
    __m512i b[4];
    (void)tables;
    decode_step(codes, &b[0], &b[2]);
    decode_step(codes + 64, &b[1], &b[3]);
    *lo = q_dot(*lo, q_set(a), b[0]);
    *hi = q_dot(*hi, q_set(a), b[1]);
    *lo = q_dot(*lo, q_set(a + 4), b[2]);
    *hi = q_dot(*hi, q_set(a + 4), b[3]);
}

/* One row, codes as they stream. The same sums as q_group_1. */
static void run_few(int64_t rows, const struct oz_qblock *q, enum oz_qcode code,
                    const uint8_t *codes)
{
    (void)rows;
    (void)code;
    q_few_groups(q, codes, 4, true, few_step, NULL);
}

/* Sums of the codes of groups of 16 (32), times -12, of 64 codes. */
OZ_Q_INLINE void put_offsets(__m512i codes, int64_t group, int64_t count, int32_t *offsets)
{
    __m512i t = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), codes);
    t = _mm512_add_epi32(t, _mm512_shuffle_epi32(t, _MM_PERM_CDAB));
    t = _mm512_add_epi32(t, _mm512_shuffle_epi32(t, _MM_PERM_BADC));
    __mmask16 keep = 0x1111;
    if (group == 32) {
        t = _mm512_add_epi32(t, _mm512_shuffle_i32x4(t, t, 0xB1));
        keep = 0x0101;
    }
    t = _mm512_mullo_epi32(t, _mm512_set1_epi32(-12));
    t = _mm512_maskz_compress_epi32(keep, t);
    _mm512_mask_storeu_epi32(offsets, (__mmask16)((1U << count) - 1U), t);
}

static void bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets)
{
    const __m512i table = _mm512_broadcast_i32x4(qi_doubled());
    const __m512i order = _mm512_broadcast_i32x4(qi_word_order());
    const uint8_t *src = (const uint8_t *)x->data + (row * x->stride + k0) / 2;
    uint8_t *to = dst;
    for (int64_t i = 0; i < padded; i += 64) {
        uint8_t part[32];
        const uint8_t *from = qi_row_nibbles(src + i / 2, n - i, 64, part);
        __m512i w = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)from));
        w = _mm512_and_si512(_mm512_or_si512(w, _mm512_slli_epi16(w, 4)), _mm512_set1_epi8(15));
        w = _mm512_shuffle_epi8(table, w);
        w = _mm512_shuffle_epi8(w, order);
        int64_t count = padded - i < 64 ? padded - i : 64;
        _mm512_mask_storeu_epi8(to + i, ~UINT64_C(0) >> (64 - count), w);
        put_offsets(w, group, count / group, offsets + i / group);
    }
    q_row_scales(x, row, k0, padded, group, 0.25F, scales);
}

static const struct oz_qgemm_kernel micro = {
    .mr = Q_GROUP_MR,
    .group_mr = Q_GROUP_MR,
    .k_block = 512,
    .row_block = 192,
    .rows = OZ_QROWS_DOUBLE,
    .step_bytes = 128,
    .decode = decode,
    .run = q_run_groups,
    .few = 1,
    .few_panels = Q_PANELS,
    .run_few = run_few,
    .bring = bring,
    .scales = qe_scales,
    .finish = qe_finish,
    .store = v_store_tile,
};

OZ_Q_ENTRY(oz_kernel_linear_e2m1__avx512, "oz_linear_e2m1_e2m1_f32__avx512_6x32", OZ_TIER_AVX512,
           "AMD EPYC (Zen 4)", micro)
