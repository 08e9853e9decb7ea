/*
 * linear and conv in f32 on AVX2: 6 rows by 16 columns, twelve accumulators. Panels are f32, or bf16
 * that is widened (exactly) as it is read.
 */
#include "cpu/kern/x86/vec_avx2.h"

#include "cpu/kern/x86/linear_entry.h"
#include "cpu/kern/x86/store_vec.h"

#define MR 6
#define NR 16

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE vf load_panel(const void *b, int64_t at, bool bf16)
{
    return bf16 ? v_load_bf16((const uint16_t *)b + at) : v_load((const float *)b + at);
}

/*
 * One tile of a given number of rows. The accumulators are named variables: GCC keeps an array of them
 * on the stack and writes it back in every step, which costs two thirds of the speed.
 */
#define ROWS_1(X) X(0)
#define ROWS_2(X) ROWS_1(X) X(1)
#define ROWS_3(X) ROWS_2(X) X(2)
#define ROWS_4(X) ROWS_3(X) X(3)
#define ROWS_5(X) ROWS_4(X) X(4)
#define ROWS_6(X) ROWS_5(X) X(5)

#define BEGIN(r)                                       \
    vf lo##r = first ? v_zero() : v_load(c + r * ldc); \
    vf hi##r = first ? v_zero() : v_load(c + r * ldc + 8);
#define STEP(r)                               \
    x = _mm256_broadcast_ss(a + r * lda + i); \
    lo##r = v_fma(x, b0, lo##r);              \
    hi##r = v_fma(x, b1, hi##r);
#define END(r)                   \
    v_store(c + r * ldc, lo##r); \
    v_store(c + r * ldc + 8, hi##r);

#define TILE(name, ROWS)                                                                     \
    ALWAYS_INLINE void name(int64_t k, const float *a, int64_t lda, const void *b, float *c, \
                            int64_t ldc, bool first, bool bf16)                              \
    {                                                                                        \
        vf x;                                                                                \
        ROWS(BEGIN)                                                                          \
        for (int64_t i = 0; i < k; i++) {                                                    \
            vf b0 = load_panel(b, i * NR, bf16);                                             \
            vf b1 = load_panel(b, i * NR + 8, bf16);                                         \
            ROWS(STEP)                                                                       \
        }                                                                                    \
        ROWS(END)                                                                            \
    }

TILE(tile_1, ROWS_1)
TILE(tile_2, ROWS_2)
TILE(tile_3, ROWS_3)
TILE(tile_4, ROWS_4)
TILE(tile_5, ROWS_5)
TILE(tile_6, ROWS_6)

ALWAYS_INLINE void run_any(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b,
                           float *c, int64_t ldc, bool first, bool bf16)
{
    switch (rows) {
    case 1: tile_1(k, a, lda, b, c, ldc, first, bf16); break;
    case 2: tile_2(k, a, lda, b, c, ldc, first, bf16); break;
    case 3: tile_3(k, a, lda, b, c, ldc, first, bf16); break;
    case 4: tile_4(k, a, lda, b, c, ldc, first, bf16); break;
    case 5: tile_5(k, a, lda, b, c, ldc, first, bf16); break;
    default: tile_6(k, a, lda, b, c, ldc, first, bf16); break;
    }
}

static void run_f32(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                    int64_t ldc, bool first)
{
    run_any(rows, k, a, lda, b, c, ldc, first, false);
}

static void run_bf16(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                     int64_t ldc, bool first)
{
    run_any(rows, k, a, lda, b, c, ldc, first, true);
}

static const struct oz_gemm_kernel micro = {
    .mr = MR,
    .nr = NR,
    .kr = 1,
    .k_multiple = 1,
    .a_dtype = OZ_DTYPE_F32,
    .k_block = 256,
    .run = run_f32,
    .run_bf16 = run_bf16,
    .decode = v_decode_bf16,
    .store = v_store_tile,
    .convert = NULL,
};

OZ_LINEAR_ENTRY(oz_kernel_linear_f32__avx2, "oz_linear_f32_any_f32__avx2_6x16", OZ_TIER_AVX2,
                "AMD EPYC (Zen 3)", micro)
OZ_CONV_ENTRY(oz_kernel_conv_f32__avx2, "oz_conv_f32_any_f32__avx2_6x16", OZ_TIER_AVX2,
              "AMD EPYC (Zen 3)", micro)
