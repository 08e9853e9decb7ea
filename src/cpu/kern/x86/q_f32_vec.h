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

/* Where the tile finds column f of a decoded step k: panels of TILE_NR columns, one after the other. */
#define QF_AT(block, k_all, k, f) \
    ((block) + (f) / TILE_NR * TILE_NR * (k_all) + (k)*TILE_NR + (f) % TILE_NR)

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
        if (code == OZ_QCODE_NF4) {
            qi_i x = qi_load(codes + 4 * f);
            for (int i = 0; i < 4; i++) {
                qf_put(block, k_all, k + 2 * i, f, qi_book(book, QI(srli_epi32)(x, QI_N(4 * i))),
                       scales);
                qf_put(block, k_all, k + 2 * i + 1, f,
                       qi_book(book, QI(srli_epi32)(x, QI_N(16 + 4 * i))), scales);
            }
        } else if (code == OZ_QCODE_E2M1) {
            qi_i x = qi_load(codes + 4 * f);
            for (int i = 0; i < 4; i++) {
                qf_put(block, k_all, k + 2 * i, f, qi_e2m1(QI(srli_epi32)(x, QI_N(4 * i))), scales);
                qf_put(block, k_all, k + 2 * i + 1, f, qi_e2m1(QI(srli_epi32)(x, QI_N(16 + 4 * i))),
                       scales);
            }
        } else {
            qi_i x = qi_load(codes + 4 * f);
            for (int i = 0; i < 4; i++) {
                vf v = qi_int(QI(srai_epi32)(QI(slli_epi32)(x, QI_N(24 - 8 * i)), 24));
                qf_put(block, k_all, k + i, f, v, scales);
            }
        }
    }
}

/* Two of K, in the order of pairs (cpu/qgemm.h): sixteen features of one of them are a transpose away. */
TILE_INLINE void qf_pairs(const uint8_t *codes, float *block, int64_t k_all, int64_t k,
                          const float *scales)
{
    const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    __m128i s[4];
    for (int i = 0; i < 4; i++) {
        s[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(codes + 16 * i)),
                                apart);
    }
    __m128i t0 = _mm_unpacklo_epi32(s[0], s[1]);
    __m128i t1 = _mm_unpackhi_epi32(s[0], s[1]);
    __m128i t2 = _mm_unpacklo_epi32(s[2], s[3]);
    __m128i t3 = _mm_unpackhi_epi32(s[2], s[3]);
    const __m128i columns[2][2] = {{_mm_unpacklo_epi64(t0, t2), _mm_unpacklo_epi64(t1, t3)},
                                   {_mm_unpackhi_epi64(t0, t2), _mm_unpackhi_epi64(t1, t3)}};
    for (int i = 0; i < 2; i++) {
        for (int64_t f = 0; f < OZ_Q_NR; f += OZ_VL) {
            __m128i c = columns[i][f / 16];
            c = f % 16 != 0 ? _mm_srli_si128(c, 8) : c;
            qf_put(block, k_all, k + i, f, qi_e4m3(qi_widen(c)), scales);
        }
    }
}

static void qf_decode(const struct oz_qlayout *l, const float *scales, const uint8_t *codes,
                      int64_t k, void *block)
{
    int64_t step = l->code == OZ_QCODE_E4M3 ? 2 : l->code == OZ_QCODE_S8 ? 4 : 8;
    for (int64_t i = 0; i < k; i += step) {
        const float *s = scales != NULL ? scales + i / l->group * OZ_Q_NR : NULL;
        const uint8_t *at = codes + i * OZ_Q_NR * l->code_bits / 8;
        if (l->code == OZ_QCODE_E4M3) {
            qf_pairs(at, block, k, i, s);
        } else if (l->code == OZ_QCODE_S8) {
            qf_step(OZ_QCODE_S8, NULL, at, block, k, i, s);
        } else if (oz_qcode_has_book(l->code)) {
            qf_step(OZ_QCODE_NF4, l->values->f32, at, block, k, i, s);
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

static void qf_bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                     int64_t group, void *dst, float *scales, int32_t *offsets)
{
    float *to = dst;
    (void)group;
    (void)scales;
    (void)offsets;
    oz_ref_load(x, row, k0, n, to);
    memset(to + n, 0, (size_t)(padded - n) * sizeof *to);
}

#define QF_KERNEL(block_)                                                                       \
    {                                                                                           \
        .mr = TILE_MR, .k_block = (block_), .row_block = 192, .rows = OZ_QROWS_F32,             \
        .step_bytes = 4 * OZ_Q_NR * (int32_t)sizeof(float), .books = true, .decode = qf_decode, \
        .run = qf_run, .bring = qf_bring, .scales = qe_scales, .finish = qe_finish,             \
        .store = v_store_tile,                                                                  \
    }

#endif
