/*
 * linear of e2m1 rows by e2m1 weights in groups (MXFP4, dual scale, NVFP4) on AVX2: 4 rows by 16 columns,
 * as linear_e2m1__avx512.c: doubled codes are integers, weights are given as 2 w + 12, and sums begin
 * at -12 times the sum of the row's codes. VPMADDUBSW adds pairs of products in 16 bits: of at most
 * 24 x 12 each, so that the eight of a group that a lane adds up come nowhere near saturating.
 */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/q_end_vec.h"

#define E_STEP 128 /* bytes of four of K of a decoded block, of eight of K in codes */
#define E_MR 4

OZ_Q_INLINE __m256i e_pair(const uint8_t *row) /* four of K, in every lane */
{
    int32_t x;
    memcpy(&x, row, sizeof x);
    return _mm256_set1_epi32(x);
}

OZ_Q_INLINE __m256i e_dot(__m256i sum, __m256i row, __m256i weights)
{
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, row));
}

/* Eight of K of 8 features to 2 w + 12: two quads. */
OZ_Q_INLINE void decode_step(const uint8_t *codes, __m256i *low, __m256i *high)
{
    const __m256i table = _mm256_broadcastsi128_si256(qi_doubled_12());
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i x = qi_load(codes);
    *low = _mm256_shuffle_epi8(table, _mm256_and_si256(x, nibble));
    *high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble));
}

static void decode(const struct oz_qlayout *l, const float *scales, const uint8_t *codes, int64_t k,
                   void *block)
{
    uint8_t *to = block;
    (void)l;
    (void)scales;
    for (int64_t i = 0; i < k; i += 8, codes += E_STEP, to += 2 * E_STEP) {
        for (int64_t f = 0; f < E_STEP; f += 32) {
            __m256i low;
            __m256i high;
            decode_step(codes + f, &low, &high);
            _mm256_storeu_si256((__m256i *)(void *)(to + f), low);
            _mm256_storeu_si256((__m256i *)(void *)(to + E_STEP + f), high);
        }
    }
}

/* ---- products ---- */

/* before + what group g of a row adds to 8 features from f on. */
OZ_Q_INLINE vf group_added(const struct oz_qblock *q, int64_t row, int64_t g, int64_t f,
                           __m256i partial, vf before)
{
    int64_t at = row * q->scale_ld + g;
    __m256i sum = _mm256_madd_epi16(partial, _mm256_set1_epi16(1));
    sum = _mm256_add_epi32(sum, _mm256_set1_epi32(q->a_offsets[at]));
    vf value = v_mul(_mm256_cvtepi32_ps(sum), v_set(q->a_scales[at]));
    return v_fma(value, v_load(q->w_scales + g * OZ_Q_NR + f), before);
}

/* The same to c. */
OZ_Q_INLINE void add_group(const struct oz_qblock *q, int64_t row, int64_t g, int64_t f,
                           __m256i partial)
{
    float *c = q->c + row * OZ_Q_NR + f;
    vf before = q->first && g == 0 ? v_zero() : v_load(c);
    v_store(c, group_added(q, row, g, f, partial, before));
}

#define E_TIMES_1(X) X(0)
#define E_TIMES_2(X) E_TIMES_1(X) X(1)
#define E_TIMES_3(X) E_TIMES_2(X) X(2)
#define E_TIMES_4(X) E_TIMES_3(X) X(3)

#define E_BEGIN(r)                          \
    __m256i lo##r = _mm256_setzero_si256(); \
    __m256i hi##r = lo##r;
#define E_ROW(r)                 \
    x = e_pair(a + (r)*q->lda);  \
    lo##r = e_dot(lo##r, x, b0); \
    hi##r = e_dot(hi##r, x, b1);
#define E_END(r)                  \
    add_group(q, r, g, f, lo##r); \
    add_group(q, r, g, f + 8, hi##r);

/* Rows by features f to f + 15 of a decoded block, group after group. */
#define E_TILE(name, ROWS)                                                            \
    OZ_Q_INLINE void name(const struct oz_qblock *q, const uint8_t *block, int64_t f) \
    {                                                                                 \
        const uint8_t *a = q->a;                                                      \
        const uint8_t *b = block + 4 * f;                                             \
        int64_t g = 0;                                                                \
        for (int64_t k = 0; k < q->k; k += q->group, g++) {                           \
            ROWS(E_BEGIN)                                                             \
            for (int64_t i = 0; i < q->group; i += 4, a += 4, b += E_STEP) {          \
                __m256i x;                                                            \
                __m256i b0 = qi_load(b);                                              \
                __m256i b1 = qi_load(b + 32);                                         \
                ROWS(E_ROW)                                                           \
            }                                                                         \
            ROWS(E_END)                                                               \
        }                                                                             \
    }

E_TILE(e_tile_1, E_TIMES_1)
E_TILE(e_tile_2, E_TIMES_2)
E_TILE(e_tile_3, E_TIMES_3)
E_TILE(e_tile_4, E_TIMES_4)

static void run(int64_t rows, const struct oz_qblock *q, const void *block)
{
    for (int64_t f = 0; f < OZ_Q_NR; f += 16) {
        switch (rows) {
        case 1: e_tile_1(q, block, f); break;
        case 2: e_tile_2(q, block, f); break;
        case 3: e_tile_3(q, block, f); break;
        default: e_tile_4(q, block, f); break;
        }
    }
}

#define E_FEW_BEGIN(v) __m256i sum##v = _mm256_setzero_si256();
#define E_FEW_STEP(v)                           \
    decode_step(codes + 32 * (v), &low, &high); \
    sum##v = e_dot(sum##v, first, low);         \
    sum##v = e_dot(sum##v, second, high);
#define E_FEW_END(v) c##v = group_added(q, 0, g, 8 * (v), sum##v, c##v);
#define E_FEW_LOAD(v) vf c##v = q->first ? v_zero() : v_load(q->c + 8 * (v));
#define E_FEW_STORE(v) v_store(q->c + 8 * (v), c##v);

/* One row, codes as they stream. The same sums. */
static void run_few(int64_t rows, const struct oz_qblock *q, enum oz_qcode code,
                    const uint8_t *codes)
{
    const uint8_t *a = q->a;
    int64_t g = 0;
    (void)rows;
    (void)code;
    E_TIMES_4(E_FEW_LOAD)
    for (int64_t k = 0; k < q->k; k += q->group, g++) {
        E_TIMES_4(E_FEW_BEGIN)
        for (int64_t i = 0; i < q->group; i += 8, codes += E_STEP, a += 8) {
            __m256i low;
            __m256i high;
            __m256i first = e_pair(a);
            __m256i second = e_pair(a + 4);
            q_ahead(codes);
            q_ahead(codes + 64);
            E_TIMES_4(E_FEW_STEP)
        }
        E_TIMES_4(E_FEW_END)
    }
    E_TIMES_4(E_FEW_STORE)
}

/* ---- rows ---- */

/* -12 times the sums of the codes of groups of 16 (32), of 32 codes. */
OZ_Q_INLINE void put_offsets(__m256i codes, int64_t group, int64_t count, int32_t *offsets)
{
    __m256i t = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    t = _mm256_madd_epi16(t, _mm256_set1_epi16(1));
    t = _mm256_add_epi32(t, _mm256_shuffle_epi32(t, 0xB1));
    t = _mm256_add_epi32(t, _mm256_shuffle_epi32(t, 0x4E));
    int32_t low = -12 * _mm_cvtsi128_si32(_mm256_castsi256_si128(t));
    int32_t high = -12 * _mm_cvtsi128_si32(_mm256_extracti128_si256(t, 1));
    if (group == 32) {
        offsets[0] = low + high;
        return;
    }
    offsets[0] = low;
    if (count > 1) {
        offsets[1] = high;
    }
}

static void bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets)
{
    const __m256i table = _mm256_broadcastsi128_si256(qi_doubled());
    const __m256i order = _mm256_broadcastsi128_si256(qi_word_order());
    const uint8_t *src = (const uint8_t *)x->data + (row * x->stride + k0) / 2;
    uint8_t *to = dst;
    for (int64_t i = 0; i < padded; i += 32) {
        uint8_t part[16];
        uint8_t out[32];
        int64_t count = padded - i < 32 ? padded - i : 32;
        const uint8_t *from = qi_row_nibbles(src + i / 2, n - i, 32, part);
        __m256i w = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
        w = _mm256_and_si256(_mm256_or_si256(w, _mm256_slli_epi16(w, 4)), _mm256_set1_epi8(15));
        w = _mm256_shuffle_epi8(_mm256_shuffle_epi8(table, w), order);
        _mm256_storeu_si256((__m256i *)(void *)out, w);
        memcpy(to + i, out, (size_t)count);
        put_offsets(w, group, count / group, offsets + i / group);
    }
    q_row_scales(x, row, k0, padded, group, 0.25F, scales);
}

static const struct oz_qgemm_kernel micro = {
    .mr = E_MR,
    .group_mr = E_MR,
    .k_block = 512,
    .row_block = 192,
    .rows = OZ_QROWS_DOUBLE,
    .step_bytes = E_STEP,
    .decode = decode,
    .run = run,
    .few = 1,
    .run_few = run_few,
    .bring = bring,
    .scales = qe_scales,
    .finish = qe_finish,
    .store = v_store_tile,
};

OZ_Q_ENTRY(oz_kernel_linear_e2m1__avx2, "oz_linear_e2m1_e2m1_f32__avx2_4x16", OZ_TIER_AVX2,
           "AMD EPYC (Zen 3)", micro)
