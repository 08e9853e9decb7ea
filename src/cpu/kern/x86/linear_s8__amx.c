/*
 * linear of s8 rows by s8 weights, a scale for each row of both, with AMX: 32 rows by 32 columns, 64 of K
 * at a time (TDPBSSD). Both sides are signed, so codes are multiplied as they are. The sums are exact: s32,
 * which wraps on the way and cannot in the end (cpu/int8.h).
 */
#if defined(__AVX512F__)
#include "cpu/kern/x86/vec_avx512.h"
#else /* the tests' emulation */
#include "cpu/kern/x86/vec_avx2.h"
#endif

#include <string.h>

#include "cpu/kern/x86/q_end_vec.h"
#include "cpu/kern/x86/strip_amx.h"

#define S8_STEP 64 /* of K */

/* Panels are what tiles read: quads of K. Only a last block that is no whole step is copied. */
static const uint8_t *block(const struct oz_qlayout *l, const uint8_t *panel, int64_t k0,
                            int64_t count, int64_t group, bool streams, uint8_t *room,
                            float *scales)
{
    (void)streams;
    const uint8_t *codes = panel + l->codes + k0 * OZ_Q_NR;
    (void)group;
    (void)scales;
    if (k0 + count <= l->depth) {
        return codes;
    }
    size_t bytes = (size_t)((l->depth - k0) * OZ_Q_NR);
    memcpy(room, codes, bytes);
    memset(room + bytes, 0, (size_t)(count * OZ_Q_NR) - bytes);
    return room;
}

static void bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets)
{
    (void)group;
    (void)scales;
    (void)offsets;
    memcpy(dst, (const uint8_t *)x->data + row * x->stride + k0, (size_t)n);
    memset((uint8_t *)dst + n, 0, (size_t)(padded - n));
}

static const struct oz_tile_kernel tiles = STRIP_KERNEL(S8_STEP, 1, strip_run_s8, amx_begin);

static const struct oz_qgemm_kernel micro = {
    .rows = OZ_QROWS_S8,
    .bring = bring,
    .scales = qe_scales,
    .finish = qe_finish_s16,
    .store = v_store_tile,
    .tiles = &tiles,
    .block = block,
};

OZ_Q_ENTRY(oz_kernel_linear_s8__amx, "oz_linear_s8_s8_f32__amx_32x32", OZ_TIER_AMX,
           "Intel Xeon (Emerald Rapids)", micro)
