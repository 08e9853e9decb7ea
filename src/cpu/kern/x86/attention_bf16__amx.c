/*
 * attention in bf16 with AMX: queries, keys, weights and values in bf16, sums and softmax in f32. f32
 * inputs are rounded as they are packed. 32 queries by 32 keys (or features) in four tiles of sums.
 *
 * Order of a sum (Intel SDM, TDPBF16PS): in steps of 32 from the first feature (or key) on; in a step
 * even and odd ones are summed apart, each in order from zero, then even + odd, then sum + that.
 * Denormal inputs count as zero and denormal results become zero.
 */
#if defined(__AVX512F__)
#include "cpu/kern/x86/vec_avx512.h"
#else /* the tests' emulation */
#include "cpu/kern/x86/vec_avx2.h"
#endif

#define OZ_ATTENTION_BF16 1
#define ATT_NR ((int64_t)32)
#include "cpu/kern/x86/amx.h"
#include "cpu/kern/x86/attention_vec.h"

#define MR 32
#define NR 32
#define TILE 16              /* rows and columns of a tile of sums */
#define DEPTH 32             /* of K in a tile of A */
#define B_BYTES (2 * 2 * NR) /* one pair of K of a panel */

/* Tiles 0 and 1 sum rows 0 to 15, tiles 2 and 3 rows 16 to 31; A is in 4 and 5, B in 6 and 7. */
static void run(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                int64_t ldc, bool first)
{
    const uint16_t *a0 = a;
    const uint16_t *a1 = a0 + TILE * lda;
    const uint8_t *panel = b;
    float *c1 = c + TILE * ldc;
    const int64_t a_step = lda * (int64_t)sizeof *a0;
    const int64_t c_step = ldc * (int64_t)sizeof *c;
    const bool both = rows > TILE;
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    if (!first) {
        AMX_LOAD(0, c, c_step);
        AMX_LOAD(1, c + TILE, c_step);
    }
    if (!first && both) {
        AMX_LOAD(2, c1, c_step);
        AMX_LOAD(3, c1 + TILE, c_step);
    }
    for (int64_t i = 0; i < k; i += DEPTH, panel += DEPTH / 2 * B_BYTES) {
        AMX_LOAD(6, panel, B_BYTES);
        AMX_LOAD(4, a0 + i, a_step);
        AMX_LOAD(7, panel + B_BYTES / 2, B_BYTES);
        AMX_DP_BF16(0, 4, 6);
        AMX_DP_BF16(1, 4, 7);
        if (both) {
            AMX_LOAD(5, a1 + i, a_step);
            AMX_DP_BF16(2, 5, 6);
            AMX_DP_BF16(3, 5, 7);
        }
    }
    AMX_STORE(0, c, c_step);
    AMX_STORE(1, c + TILE, c_step);
    if (both) {
        AMX_STORE(2, c1, c_step);
        AMX_STORE(3, c1 + TILE, c_step);
    }
}

static const struct oz_gemm_kernel micro = {.mr = MR,
                                            .nr = NR,
                                            .kr = 2,
                                            .k_multiple = DEPTH,
                                            .row_multiple = TILE,
                                            .a_dtype = OZ_DTYPE_BF16,
                                            .k_block = OZ_ATTENTION_MAX_DIM,
                                            .run = run,
                                            .begin = amx_begin,
                                            .end = amx_end};

OZ_ATTENTION_ENTRY(oz_kernel_attention_bf16__amx, "oz_attention_bf16__amx_32x32", OZ_TIER_AMX,
                   "Intel Xeon (Emerald Rapids)", .gemm = &micro)
