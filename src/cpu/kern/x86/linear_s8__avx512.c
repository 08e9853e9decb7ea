/*
 * linear of s8 rows by s8 weights, a scale for each row of both, with AVX-512 VNNI: 12 rows by 32
 * columns. VPDPBUSD takes one side unsigned: rows are given as code + 128, and 128 times the sum of a
 * column's codes comes off at the end. The sums are exact: s32, which wraps on the way and cannot in the
 * end (cpu/int8.h).
 */
#include "cpu/kern/x86/vec_avx512.h"

#define TILE_QUADS 1
#define TILE_ANY_ONLY 1

#include "cpu/kern/x86/tile_vec.h"

#include "cpu/kern/x86/q_avx512.h"

static void run(int64_t rows, const struct oz_qblock *q, const void *b)
{
    tile_any(rows, q->k, q->a, q->lda, b, q->c, OZ_Q_NR, q->first, false);
}

/* One row, codes as they stream: the same sums as tile_1. */
static void run_few(int64_t rows, const struct oz_qblock *q, enum oz_qcode code,
                    const uint8_t *codes)
{
    const uint8_t *a = q->a;
    vf lo = q->first ? v_zero() : v_load(q->c);
    vf hi = q->first ? v_zero() : v_load(q->c + OZ_VL);
    (void)rows;
    (void)code;
    for (int64_t k = 0; k < q->k; k += 4, codes += 128, a += 4) {
        vq x = vq_set(a);
        lo = vq_dot(lo, x, vq_load(codes));
        hi = vq_dot(hi, x, vq_load(codes + 64));
        q_ahead(codes);
        q_ahead(codes + 64);
    }
    v_store(q->c, lo);
    v_store(q->c + OZ_VL, hi);
}

static void bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets)
{
    const uint8_t *src = (const uint8_t *)x->data + row * x->stride + k0;
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    uint8_t *to = dst;
    int64_t i = 0;
    (void)group;
    (void)scales;
    (void)offsets;
    for (; i + 64 <= n; i += 64) {
        _mm512_storeu_si512(to + i, _mm512_xor_si512(_mm512_loadu_si512(src + i), flip));
    }
    for (; i < n; i++) {
        to[i] = src[i] ^ 0x80U;
    }
    memset(to + n, 0x80, (size_t)(padded - n));
}

static const struct oz_qgemm_kernel micro = {
    .mr = TILE_MR,
    .k_block = 512,
    .row_block = 192,
    .rows = OZ_QROWS_U8,
    .step_bytes = 128,
    .run = run,
    .few = 1,
    .run_few = run_few,
    .bring = bring,
    .scales = qe_scales,
    .finish = qe_finish_u8,
    .store = v_store_tile,
};

OZ_Q_ENTRY(oz_kernel_linear_s8__avx512, "oz_linear_s8_s8_f32__avx512_12x32", OZ_TIER_AVX512,
           "AMD EPYC (Zen 4)", micro)
