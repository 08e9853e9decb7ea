/*
 * linear of s8 rows by s8 weights, a scale for each row of both, with AVX-VNNI: 6 rows by 16 columns. As
 * linear_s8__avx512.c: rows are given as code + 128, and 128 times the sum of a column's codes comes
 * off at the end.
 */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/q_end_vec.h"
#include "cpu/kern/x86/quads_avxvnni.h"

#define Q8_ELEMENT 1

OZ_Q_INLINE __m256i q8_dot(__m256i sum, __m256i x, __m256i b)
{
    return vnni_dot(sum, x, b);
}

#include "cpu/kern/x86/q_s8_avx2.h"

static void bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets)
{
    const uint8_t *src = (const uint8_t *)x->data + row * x->stride + k0;
    uint8_t *to = dst;
    (void)group;
    (void)scales;
    (void)offsets;
    for (int64_t i = 0; i < n; i++) {
        to[i] = src[i] ^ 0x80U;
    }
    memset(to + n, 0x80, (size_t)(padded - n));
}

static const struct oz_qgemm_kernel micro = {
    .mr = Q8_MR,
    .k_block = 512,
    .row_block = 192,
    .rows = OZ_QROWS_U8,
    .step_bytes = Q8_STEP,
    .run = q8_run,
    .few = 1,
    .run_few = q8_run_few,
    .bring = bring,
    .scales = qe_scales,
    .finish = qe_finish_u8,
    .store = v_store_tile,
};

OZ_Q_ENTRY(oz_kernel_linear_s8__avxvnni, "oz_linear_s8_s8_f32__avxvnni_6x16", OZ_TIER_AVXVNNI,
           "Intel Xeon (Emerald Rapids)", micro)
