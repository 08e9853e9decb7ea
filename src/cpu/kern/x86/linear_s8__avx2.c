/*
 * linear of s8 rows by s8 weights, a scale for each row of both, on AVX2: both are widened to s16 and
 * multiplied in pairs (VPMADDWD), 6 rows by 16 columns; exact. VPMADDUBSW, which multiplies bytes,
 * would saturate.
 */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/q_end_vec.h"

#define Q8_ELEMENT 2

OZ_Q_INLINE __m256i q8_dot(__m256i sum, __m256i x, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, b));
}

#include "cpu/kern/x86/q_s8_avx2.h"

/* Quads of bytes to pairs of s16: of 8 features, the first two of K and the other two. */
static void decode(const struct oz_qlayout *l, const float *scales, const uint8_t *codes, int64_t k,
                   void *block)
{
    uint8_t *to = block;
    (void)l;
    (void)scales;
    for (int64_t i = 0; i < k; i += 4, codes += Q8_STEP, to += 2 * Q8_STEP) {
        for (int64_t f = 0; f < OZ_Q_NR; f += 8) {
            const __m128i *from = (const __m128i *)(const void *)(codes + 4 * f);
            __m256 a = _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm_loadu_si128(from)));
            __m256 b = _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1)));
            __m256i first = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
            __m256i second = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
            _mm256_storeu_si256((__m256i *)(void *)(to + 4 * f),
                                _mm256_permute4x64_epi64(first, 0xD8));
            _mm256_storeu_si256((__m256i *)(void *)(to + Q8_STEP + 4 * f),
                                _mm256_permute4x64_epi64(second, 0xD8));
        }
    }
}

/* One row, codes as they stream, four of K of four features a vector: the same sums, as they are exact. */
#define S8_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define S8_BEGIN(v) __m256i sum##v = _mm256_setzero_si256();
#define S8_STEP(v)                                                                                \
    b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(codes + 16 * (v)))); \
    sum##v = q8_dot(sum##v, x, b);

/* Both halves of the sums of eight features, from f on, to one. */
OZ_Q_INLINE void end_few(const struct oz_qblock *q, int64_t f, __m256i low, __m256i high)
{
    __m256i sum = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xD8);
    if (!q->first) {
        sum = _mm256_add_epi32(sum, qi_load(q->c + f));
    }
    v_store(q->c + f, _mm256_castsi256_ps(sum));
}

static void run_few(int64_t rows, const struct oz_qblock *q, enum oz_qcode code,
                    const uint8_t *codes)
{
    const uint8_t *a = q->a;
    (void)rows;
    (void)code;
    S8_EACH(S8_BEGIN)
    for (int64_t k = 0; k < q->k; k += 4, a += 4 * Q8_ELEMENT, codes += Q8_STEP) {
        __m256i b;
        int64_t word;
        memcpy(&word, a, sizeof word);
        __m256i x = _mm256_set1_epi64x(word);
        q_ahead(codes);
        q_ahead(codes + 64);
        S8_EACH(S8_STEP)
    }
    end_few(q, 0, sum0, sum1);
    end_few(q, 8, sum2, sum3);
    end_few(q, 16, sum4, sum5);
    end_few(q, 24, sum6, sum7);
}

static void bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets)
{
    const int8_t *src = (const int8_t *)x->data + row * x->stride + k0;
    int16_t *to = dst;
    int64_t i = 0;
    (void)group;
    (void)scales;
    (void)offsets;
    for (; i + 16 <= n; i += 16) {
        _mm256_storeu_si256(
            (__m256i *)(void *)(to + i),
            _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(src + i))));
    }
    for (; i < n; i++) {
        to[i] = src[i];
    }
    memset(to + n, 0, (size_t)(padded - n) * sizeof *to);
}

static const struct oz_qgemm_kernel micro = {
    .mr = Q8_MR,
    .k_block = 256,
    .row_block = 192,
    .rows = OZ_QROWS_S16,
    .step_bytes = 2 * Q8_STEP,
    .decode = decode,
    .run = q8_run,
    .few = 1,
    .run_few = run_few,
    .bring = bring,
    .scales = qe_scales,
    .finish = qe_finish_s16,
    .store = v_store_tile,
};

OZ_Q_ENTRY(oz_kernel_linear_s8__avx2, "oz_linear_s8_s8_f32__avx2_6x16", OZ_TIER_AVX2,
           "AMD EPYC (Zen 4), AMD EPYC (Zen 3)", micro)
