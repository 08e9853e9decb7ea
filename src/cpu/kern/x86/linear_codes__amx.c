/*
 * linear of bf16, e4m3 and e2m1 rows by e4m3, s8 and e2m1 weights with AMX, in bf16: 32 rows by 32
 * columns. Codes are decoded block by block, times the scales of their groups where that is exact
 * (cpu/qgemm_tiles.h). A product of code and scale below the normal numbers counts as zero, as AMX counts
 * it. The order of sums is tile_amx.h's.
 */
#if defined(__AVX512F__)
#include "cpu/kern/x86/vec_avx512.h"
#else /* the tests' emulation */
#include "cpu/kern/x86/vec_avx2.h"
#endif

#include <string.h>

#include "cpu/kern/x86/q_avx512.h"
#include "cpu/kern/x86/strip_amx.h"
#include "cpu/qgemm_tiles.h"
#include "num/float4.h"

#define BF16_STEP 32   /* of K in a step */
#define PAIR_BYTES 128 /* of two of K of a panel in bf16 */
#define DUAL 512

/* Vectors of 64 bytes in the compiler's own terms: the same text for every tier. All functions that pass
 * them are put inline, so it does not matter how they would be passed. */
#if defined(__GNUC__) && !defined(__AVX512F__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
typedef uint16_t u16s __attribute__((vector_size(64), aligned(1), may_alias));
typedef uint32_t u32s __attribute__((vector_size(64), aligned(1), may_alias));
typedef int32_t s32s __attribute__((vector_size(64), aligned(1), may_alias));
typedef float f32s __attribute__((vector_size(64), aligned(1), may_alias));

/* ---- codes to bf16 ---- */

/* bf16 of e2m1 codes, twice: an index has a fifth bit, which is the next code's. */
struct tables {
    u16s e2m1;
    u16s small; /* of e4m3: m 2^-9 */
};

/* Of this thread, filled before each task: from the formats' own definition. */
static _Thread_local struct tables thread_tables;

static void begin(void)
{
    for (unsigned i = 0; i < 32; i++) {
        thread_tables.e2m1[i] = oz_f32_to_bf16(oz_e2m1_to_f32((uint8_t)(i & 15U)));
        thread_tables.small[i] = oz_f32_to_bf16(oz_e4m3_to_f32((uint8_t)(i & 7U)));
    }
    amx_begin();
}

/* table[index % 32] in each lane. */
OZ_Q_INLINE u16s pick(u16s table, u16s index)
{
#if defined(__AVX512BW__)
    return (u16s)_mm512_permutexvar_epi16((__m512i)index, (__m512i)table);
#else
    u16s r;
    for (int i = 0; i < 32; i++) {
        r[i] = table[index[i] & 31U];
    }
    return r;
#endif
}

OZ_Q_INLINE u16s choose(u16s mask, u16s yes, u16s no)
{
    return (mask & yes) | (~mask & no);
}

/* bf16 of the low byte of each lane. */
OZ_Q_INLINE u16s e4m3(const struct tables *t, u16s x)
{
    u16s rest = x & 0x7FU;
    u16s value = (rest << 4) + (120U << 7);
    value = choose((u16s)(rest < 8), pick(t->small, rest & 7U), value);
    value = choose((u16s)(rest == OZ_E4M3_NAN), value * 0 + 0x7FC0U, value);
    return value | (x & 0x80U) << 8;
}

/* Pairs of K: lanes of `even` and `odd`, four features and four of those 16 behind them in turn. */
OZ_Q_INLINE void pairs(u16s even, u16s odd, u32s out[2])
{
#define LANE(i)                                                                               \
    8 * (i), 8 * (i) + 32, 8 * (i) + 1, 8 * (i) + 33, 8 * (i) + 2, 8 * (i) + 34, 8 * (i) + 3, \
        8 * (i) + 35
    out[0] = (u32s)__builtin_shufflevector(even, odd, LANE(0), LANE(1), LANE(2), LANE(3));
#undef LANE
#define LANE(i)                                                                                   \
    8 * (i) + 4, 8 * (i) + 36, 8 * (i) + 5, 8 * (i) + 37, 8 * (i) + 6, 8 * (i) + 38, 8 * (i) + 7, \
        8 * (i) + 39
    out[1] = (u32s)__builtin_shufflevector(even, odd, LANE(0), LANE(1), LANE(2), LANE(3));
#undef LANE
}

/* Upper halves of two vectors of f32 that have nothing in the lower ones. */
OZ_Q_INLINE u32s upper(f32s even, f32s odd)
{
    return (u32s)even >> 16 | ((u32s)odd & 0xFFFF0000U);
}

OZ_Q_INLINE f32s byte_of(s32s x, int at)
{
    return __builtin_convertvector((s32s)((u32s)x << (24 - 8 * at)) >> 24, f32s);
}

/* Of K that are decoded together, and the bytes of their codes. */
#define STEP(code) ((code) == OZ_QCODE_E4M3 ? 2 : (code) == OZ_QCODE_S8 ? 4 : 8)
#define STEP_BYTES(code) ((code) == OZ_QCODE_E4M3 ? 64 : 128)

/* out[2 i], out[2 i + 1]: pair i of features 0 to 15 and 16 to 31. */
OZ_Q_INLINE void decode_step(enum oz_qcode code, const struct tables *t, const uint8_t *codes,
                             u32s *out)
{
    if (code == OZ_QCODE_E4M3) {
        u16s x = *(const u16s *)(const void *)codes;
        pairs(e4m3(t, x), e4m3(t, x >> 8), out);
        return;
    }
    for (int half = 0; half < 2; half++) {
        if (code == OZ_QCODE_S8) {
            s32s x = *(const s32s *)(const void *)(codes + 64 * half);
            out[half] = upper(byte_of(x, 0), byte_of(x, 1));
            out[2 + half] = upper(byte_of(x, 2), byte_of(x, 3));
        } else {
            u16s x = *(const u16s *)(const void *)(codes + 64 * half);
            for (int i = 0; i < 4; i++) {
                out[2 * i + half] = (u32s)pick(t->e2m1, x >> 4 * i);
            }
        }
    }
}

/* Times the features' scales, exactly. */
OZ_Q_INLINE u32s fold(u32s x, f32s scale)
{
    return upper((f32s)(x << 16) * scale, (f32s)(x & 0xFFFF0000U) * scale);
}

/* k of K, from codes on; scales [32] or NULL. */
OZ_Q_INLINE void decode_as(enum oz_qcode code, const struct tables *t, const uint8_t *codes,
                           int64_t k, const float *scales, bool streams, uint8_t *to)
{
    u32s out[8];
    for (int64_t i = 0; i < k; i += STEP(code)) {
        decode_step(code, t, codes, out);
        for (int64_t line = 0; streams && line < STEP_BYTES(code); line += 64) {
            q_ahead(codes + line);
        }
        for (int j = 0; j < STEP(code); j++) {
            if (scales != NULL) {
                out[j] = fold(out[j], *(const f32s *)(const void *)(scales + j % 2 * 16));
            }
            *(u32s *)(void *)(to + 64 * j) = out[j];
        }
        codes += STEP_BYTES(code);
        to += 64 * STEP(code);
    }
}

static void decode(enum oz_qcode code, const struct tables *t, const uint8_t *codes, int64_t k,
                   const float *scales, bool streams, uint8_t *to)
{
    switch (code) {
    case OZ_QCODE_E4M3: decode_as(OZ_QCODE_E4M3, t, codes, k, scales, streams, to); break;
    case OZ_QCODE_S8: decode_as(OZ_QCODE_S8, t, codes, k, scales, streams, to); break;
    default: decode_as(OZ_QCODE_E2M1, t, codes, k, scales, streams, to); break;
    }
}

/* Scales of the groups that are not folded. */
static void group_scales(const struct oz_qlayout *l, const uint8_t *panel, int64_t k0,
                         int64_t count, int64_t group, float *scales)
{
    for (int64_t k = 0; k < count && k0 + k < l->depth; k += group, scales += OZ_Q_NR) {
        if (l->dual) {
            memcpy(scales,
                   panel + l->scales2 + (size_t)((k0 + k) / DUAL * OZ_Q_NR) * sizeof *scales,
                   OZ_Q_NR * sizeof *scales);
        } else if (l->group > 0 && l->scale == OZ_DTYPE_F32) {
            qe_scales(l, panel, (k0 + k) / l->group, 1, scales);
        } else {
            for (int f = 0; f < OZ_Q_NR; f++) {
                scales[f] = 1;
            }
        }
    }
}

static const uint8_t *block(const struct oz_qlayout *l, const uint8_t *panel, int64_t k0,
                            int64_t count, int64_t group, bool streams, uint8_t *room,
                            float *scales)
{
    const struct tables t = thread_tables;
    struct oz_qlayout first = *l; /* without a second level */
    _Alignas(64) float factors[OZ_Q_NR];
    int64_t n = l->depth - k0 < count ? l->depth - k0 : count;
    bool folded = l->group > 0 && l->scale != OZ_DTYPE_F32;
    int64_t some = folded ? l->group : n;
    first.dual = false;
    for (int64_t k = 0; k < n; k += some) {
        if (folded) {
            qe_scales(&first, panel, (k0 + k) / some, 1, factors);
        }
        decode(l->code, &t, panel + l->codes + (k0 + k) * OZ_Q_NR * l->code_bits / 8, some,
               folded ? factors : NULL, streams, room + k * (PAIR_BYTES / 2));
    }
    memset(room + n * (PAIR_BYTES / 2), 0, (size_t)((count - n) * (PAIR_BYTES / 2)));
    if (group > 0) {
        group_scales(l, panel, k0, count, group, scales);
    }
    return room;
}

/* ---- rows ---- */

/* OZ_VL codes of a row, from column `at` of it on, as f32. */
OZ_Q_INLINE vf load_codes(enum oz_dtype dtype, const uint8_t *row, int64_t at)
{
    if (dtype == OZ_DTYPE_F8_E4M3) {
        return qi_e4m3(qi_widen_signed(qi_bytes(row + at)));
    }
    __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)(row + at / 2));
    const __m128i low = _mm_set1_epi8(15);
    x = _mm_unpacklo_epi8(_mm_and_si128(x, low), _mm_and_si128(_mm_srli_epi16(x, 4), low));
    return qi_e2m1(qi_widen(x));
}

#define PART 64 /* codes that are brought together, from a copy where the row ends */

static void bring_codes(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                        uint16_t *to)
{
    enum oz_dtype dtype = x->spec.dtype;
    int64_t per = dtype == OZ_DTYPE_F4 ? 2 : 1;
    const uint8_t *src = (const uint8_t *)x->data + (row * x->stride + k0) / per;
    int64_t group = x->spec.scale_count > 0 && x->spec.scale[0].dtype != OZ_DTYPE_F32
                        ? x->spec.scale[0].group_cols
                        : 0;
    for (int64_t i = 0; i < padded; i += PART) {
        uint8_t part[2 * PART] = {0};
        int64_t left = n - i < PART ? n - i : PART;
        if (left > 0) {
            memcpy(part, src + i / per, (size_t)((left + per - 1) / per));
        }
        if (left > 0 && left % per != 0) {
            part[left / 2] &= 15U; /* what is behind an odd end is no code */
        }
        for (int64_t j = 0; j < PART && i + j < padded; j += OZ_VL) {
            vf v = load_codes(dtype, part, j);
            if (group > 0 && i + j < n) {
                v = v_mul(v, v_set(q_row_scale(x, 0, row, k0 + i + j)));
            }
            v_store_bf16(to + i + j, v);
        }
    }
}

static void bring(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                  int64_t group, void *dst, float *scales, int32_t *offsets)
{
    uint16_t *to = dst;
    (void)offsets;
    if (x->spec.dtype == OZ_DTYPE_BF16) {
        memcpy(to, (const uint16_t *)x->data + row * x->stride + k0, (size_t)n * sizeof *to);
        memset(to + n, 0, (size_t)(padded - n) * sizeof *to);
    } else {
        bring_codes(x, row, k0, n, padded, to);
    }
    int level = oz_qtiles_row_level(&x->spec);
    for (int64_t k = 0; scales != NULL && k < padded; k += group) {
        scales[k / group] = k0 + k < x->cols ? q_row_scale(x, level, row, k0 + k) : 0;
    }
}

static const struct oz_tile_kernel tiles = STRIP_KERNEL(BF16_STEP, 2, strip_run_bf16, begin);

static const struct oz_qgemm_kernel micro = {
    .rows = OZ_QROWS_FOLDED,
    .bring = bring,
    .scales = qe_scales,
    .finish = qe_finish,
    .store = v_store_tile,
    .tiles = &tiles,
    .block = block,
};

OZ_Q_ENTRY(oz_kernel_linear_codes__amx, "oz_linear_bf16_codes_f32__amx_32x32", OZ_TIER_AMX, NULL,
           micro)
