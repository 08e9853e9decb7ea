/* attention in bf16 on AVX512-BF16: queries, keys, weights and values in bf16, sums and softmax in
 * f32. f32 inputs are rounded as they are packed. */
#include "cpu/kern/x86/vec_avx512.h"

#define OZ_ATTENTION_BF16 1
#include "cpu/kern/x86/attention_vec.h"

typedef uint16_t tile_element;
typedef __m512i vx;
#define TILE_KR 2
#define TILE_LOAD(at) _mm512_loadu_si512(b + (at))
#define TILE_BROADCAST(at) pair_at(a + (at))
#define TILE_MULTIPLY(c, x, y) _mm512_dpbf16_ps(c, (__m512bh)(x), (__m512bh)(y))

static inline __m512i pair_at(const uint16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

#include "cpu/kern/x86/tile_avx512.h"

static const struct oz_gemm_kernel micro = {.mr = TILE_MR,
                                            .nr = TILE_NR,
                                            .kr = TILE_KR,
                                            .k_multiple = TILE_KR,
                                            .a_dtype = OZ_DTYPE_BF16,
                                            .k_block = 256,
                                            .run = tile_run};

OZ_ATTENTION_ENTRY(oz_kernel_attention_bf16__avx512bf16, "oz_attention_bf16__avx512bf16_12x32",
                   OZ_TIER_AVX512BF16, "Intel Xeon (Emerald Rapids)", .gemm = &micro)
