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

#if defined(__AVX512VBMI__)
#include "cpu/kern/x86/e4m3_avx512.h"
#endif
#include "cpu/kern/x86/q_avx512.h"
#include "cpu/kern/x86/strip_amx.h"
#include "cpu/qgemm_tiles.h"
#include "num/float4.h"

#define BF16_STEP 32   /* of K in a step */
#define PAIR_BYTES 128 /* of two of K of a panel in bf16 */
#define DUAL 512

/* Powers of two by which every code stays a normal number: e4m3 goes from 2^-9 to 448. */
#define LEAST_POWER (-117)
#define MOST_POWER 119

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

struct tables {
    bool ready;
    u16s e2m1; /* bf16 of the codes, twice: an index has a fifth bit, which is the next code's */
#if defined(__AVX512VBMI__)
    struct e4m3_tables e4m3;
#else
    u16s small; /* of e4m3: m 2^-9 */
#endif
};

/* Of this thread, filled when it first asks: from the formats' own definition. */
static _Thread_local struct tables thread_tables;

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

/* Two of K of a panel to pairs, of features 0 to 15 and 16 to 31. NaN codes are NaN. */
#if defined(__AVX512VBMI__)
static void begin_e4m3(struct tables *t)
{
    t->e4m3 = e4m3_tables();
}

OZ_Q_INLINE void step_e4m3(const struct tables *t, const uint8_t *codes, u32s out[2])
{
    __m512i first;
    __m512i second;
    e4m3_pairs(&t->e4m3, _mm512_loadu_si512(codes), &first, &second);
    out[0] = (u32s)first;
    out[1] = (u32s)second;
}
#else
static void begin_e4m3(struct tables *t)
{
    for (unsigned i = 0; i < 32; i++) {
        t->small[i] = oz_f32_to_bf16(oz_e4m3_to_f32((uint8_t)(i & 7U)));
    }
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

OZ_Q_INLINE void step_e4m3(const struct tables *t, const uint8_t *codes, u32s out[2])
{
    u16s x = *(const u16s *)(const void *)codes;
    u16s even = e4m3(t, x);
    u16s odd = e4m3(t, x >> 8);
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
#endif

static const struct tables *ready_tables(void)
{
    struct tables *t = &thread_tables;
    for (unsigned i = 0; !t->ready && i < 32; i++) {
        t->e2m1[i] = oz_f32_to_bf16(oz_e2m1_to_f32((uint8_t)(i & 15U)));
    }
    if (!t->ready) {
        begin_e4m3(t);
        t->ready = true;
    }
    return t;
}

static void begin(void)
{
    (void)ready_tables();
    amx_begin();
}

/* Upper halves of two vectors of f32 that have nothing in the lower ones. */
OZ_Q_INLINE u32s upper(f32s even, f32s odd)
{
#if defined(__AVX512BW__)
    return (u32s)_mm512_mask_blend_epi16(0xAAAAAAAAU, (__m512i)((u32s)even >> 16), (__m512i)odd);
#else
    return (u32s)even >> 16 | ((u32s)odd & 0xFFFF0000U);
#endif
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
        step_e4m3(t, codes, out);
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

/* Scales that are multiplied into codes, of each feature of a group. */
struct factors {
    bool powers; /* of two, all of which keep products normal: they are added to exponents */
    _Alignas(64) float by[OZ_Q_NR];
    _Alignas(64) uint32_t add[OZ_Q_NR]; /* to both halves of a lane */
};

OZ_Q_INLINE void find_factors(const struct oz_qlayout *l, const uint8_t *panel, int64_t group,
                              struct factors *f)
{
    const uint8_t *codes = panel + l->scales + group * OZ_Q_NR;
    f->powers =
        l->scale == OZ_DTYPE_F8_E8M0 && qi_all_within(codes, LEAST_POWER + 127, MOST_POWER + 127);
    if (!f->powers) {
        struct oz_qlayout first = *l; /* without a second level */
        first.dual = false;
        qe_scales(&first, panel, group, 1, f->by);
        return;
    }
    for (int64_t i = 0; i < OZ_Q_NR; i += OZ_VL) {
        qi_i power = QI(sub_epi32)(qi_widen(qi_bytes(codes + i)), QI(set1_epi32)(127));
        qi_i add = qi_and(QI(slli_epi32)(power, 7), 0xFFFFU);
        v_store((float *)(void *)(f->add + i), qi_cast(qi_or(add, QI(slli_epi32)(add, 16))));
    }
}

/* Times the features' scales, exactly. */
OZ_Q_INLINE u32s fold(u32s x, f32s scale)
{
    return upper((f32s)(x << 16) * scale, (f32s)(x & 0xFFFF0000U) * scale);
}

/* The same of powers: not of zeros, nor of NaN, which only e4m3 has. */
OZ_Q_INLINE u32s fold_power(enum oz_qcode code, u32s x, u32s add)
{
#if defined(__AVX512BW__)
    __m512i v = (__m512i)x;
    __m512i rest = _mm512_and_si512(v, _mm512_set1_epi16(0x7FFF));
    __mmask32 some = code == OZ_QCODE_E4M3
                         ? _mm512_cmplt_epu16_mask(_mm512_sub_epi16(rest, _mm512_set1_epi16(1)),
                                                   _mm512_set1_epi16(0x7F80))
                         : _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x7FFF));
    return (u32s)_mm512_mask_add_epi16(v, some, v, (__m512i)add);
#else
    u16s rest = (u16s)x & 0x7FFFU;
    (void)code;
    return (u32s)((u16s)x + ((u16s)add & (u16s)(rest - 1 < 0x7F80U)));
#endif
}

/* k of K, from codes on. */
OZ_Q_INLINE void decode_as(enum oz_qcode code, const struct tables *t, const uint8_t *codes,
                           int64_t k, const struct factors *f, bool powers, bool streams,
                           uint8_t *to)
{
    u32s out[8];
    for (int64_t i = 0; i < k; i += STEP(code)) {
        decode_step(code, t, codes, out);
        for (int64_t line = 0; streams && line < STEP_BYTES(code); line += 64) {
            q_ahead(codes + line);
        }
        for (int j = 0; j < STEP(code); j++) {
            if (powers) {
                out[j] =
                    fold_power(code, out[j], *(const u32s *)(const void *)(f->add + j % 2 * 16));
            } else if (f != NULL) {
                out[j] = fold(out[j], *(const f32s *)(const void *)(f->by + j % 2 * 16));
            }
            *(u32s *)(void *)(to + 64 * j) = out[j];
        }
        codes += STEP_BYTES(code);
        to += 64 * STEP(code);
    }
}

/* f: NULL where codes are not scaled. */
OZ_Q_INLINE void decode_group(enum oz_qcode code, const struct tables *t, const uint8_t *codes,
                              int64_t k, const struct factors *f, bool streams, uint8_t *to)
{
    if (f == NULL) {
        decode_as(code, t, codes, k, NULL, false, streams, to);
    } else if (f->powers) {
        decode_as(code, t, codes, k, f, true, streams, to);
    } else {
        decode_as(code, t, codes, k, f, false, streams, to);
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

/* n of K, group by group where they are scaled. */
OZ_Q_INLINE void decode(enum oz_qcode code, const struct oz_qlayout *l, const uint8_t *panel,
                        int64_t k0, int64_t n, bool streams, uint8_t *to)
{
    const struct tables t = thread_tables;
    const uint8_t *codes = panel + l->codes + k0 * OZ_Q_NR * l->code_bits / 8;
    bool folded = l->group > 0 && l->scale != OZ_DTYPE_F32;
    int64_t some = folded ? l->group : n;
    for (int64_t k = 0; k < n; k += some) {
        struct factors f;
        if (folded) {
            find_factors(l, panel, (k0 + k) / some, &f);
        }
        decode_group(code, &t, codes, some, folded ? &f : NULL, streams, to);
        codes += some * OZ_Q_NR * l->code_bits / 8;
        to += some * (PAIR_BYTES / 2);
    }
}

static const uint8_t *block(const struct oz_qlayout *l, const uint8_t *panel, int64_t k0,
                            int64_t count, int64_t group, bool streams, uint8_t *room,
                            float *scales)
{
    int64_t n = l->depth - k0 < count ? l->depth - k0 : count;
    switch (l->code) {
    case OZ_QCODE_E4M3: decode(OZ_QCODE_E4M3, l, panel, k0, n, streams, room); break;
    case OZ_QCODE_S8: decode(OZ_QCODE_S8, l, panel, k0, n, streams, room); break;
    default: decode(OZ_QCODE_E2M1, l, panel, k0, n, streams, room); break;
    }
    memset(room + n * (PAIR_BYTES / 2), 0, (size_t)((count - n) * (PAIR_BYTES / 2)));
    if (group > 0) {
        group_scales(l, panel, k0, count, group, scales);
    }
    return room;
}

/* ---- one row ---- */

/*
 * A product of tiles takes as long for one row as for sixteen, and codes have to be decoded into memory for
 * it. One row is multiplied in registers as they stream, to the same bytes: as TDPBF16PS, each 32 of K have
 * two sums, of even and of odd K, that begin at zero, one fused multiply-add each, and then even + odd is
 * added to the sum; denormal numbers are zeros on both ends, which MXCSR is told. Scales that are folded
 * into codes are exact, so it does not matter that they come when codes are in f32.
 */
#define FLUSH 0x8040U /* denormal operands and results are zeros */

#if OZ_VL == 16
#define R_EACH(X) X(0) X(1)
#else
#define R_EACH(X) X(0) X(1) X(2) X(3)
#endif
#define R_VECTORS (OZ_Q_NR / OZ_VL)
#define R_PANELS 4 /* side by side */

/* A row by panels, one after the other in memory, that stream side by side. */
struct row_job {
    const struct oz_qlayout *l;
    const uint8_t *panel;
    int64_t panels;
    const float *row; /* all of K */
    int64_t group;    /* of K with a sum of their own; 0: all */
    int64_t groups;   /* of those */
    float *sums;      /* [panels][groups][32] */
};

/* sum + a (value scale) */
OZ_Q_INLINE vf row_add(vf sum, const float *a, vf value, vf scale, bool scaled)
{
    return v_fma_at(a, scaled ? v_mul(value, scale) : value, sum);
}

/* Features from v OZ_VL on of pair i of a decoded step: first and second of K, in f32. */
OZ_Q_INLINE qi_i row_pair(const u32s *out, int i, int v)
{
    return qi_load((const float *)(const void *)(out + 2 * i + v * OZ_VL / 16) + v * OZ_VL % 16);
}

OZ_Q_INLINE vf row_byte(const uint8_t *codes, int at, int v)
{
    qi_i x = qi_load(codes + 4 * v * OZ_VL);
    return qi_int(QI(srai_epi32)(QI(slli_epi32)(x, QI_N(24 - 8 * at)), 24));
}

#define R_BEGIN(v)         \
    vf even##v = v_zero(); \
    vf odd##v = v_zero();
#define R_SCALE(v) vf s##v = scaled ? v_load(by + (v)*OZ_VL) : v_set(1);
#define R_PAIR(v)                                                                \
    x = row_pair(out, i, v);                                                     \
    even##v = row_add(even##v, a, qi_cast(QI(slli_epi32)(x, 16)), s##v, scaled); \
    odd##v = row_add(odd##v, a + 1, qi_cast(qi_and(x, 0xFFFF0000U)), s##v, scaled);
#define R_BYTES(v)                                                          \
    even##v = row_add(even##v, a, row_byte(codes, 2 * i, v), s##v, scaled); \
    odd##v = row_add(odd##v, a + 1, row_byte(codes, 2 * i + 1, v), s##v, scaled);
#define R_END(v) sums[v] = v_add(sums[v], v_add(even##v, odd##v));

/* The scales of a group, of which none may be denormal, to by; false: one is. */
OZ_Q_INLINE bool row_scales(const struct oz_qlayout *l, const uint8_t *panel, int64_t group,
                            float *by)
{
    const uint8_t *codes = panel + l->scales + group * OZ_Q_NR;
    if (l->scale == OZ_DTYPE_F8_E8M0) {
        qe_e8m0(codes, by);
        return qi_all_within(codes, LEAST_POWER + 127, 255);
    }
    qe_e4m3(codes, by);
    return true;
}

/* A piece of a group whose scales do not let its products be made where denormal numbers are zeros: the codes
 * of `to` become pairs. Functions of their own, since compilers know nothing of MXCSR. */
static __attribute__((noinline)) void fold_piece(enum oz_qcode code, const uint8_t *codes,
                                                 int64_t k, const struct factors *f, uint8_t *to)
{
    if (code == OZ_QCODE_E4M3) {
        decode_as(OZ_QCODE_E4M3, ready_tables(), codes, k, f, false, false, to);
    } else {
        decode_as(OZ_QCODE_E2M1, ready_tables(), codes, k, f, false, false, to);
    }
}
static __attribute__((noinline)) void fold_with_denormals(const struct oz_qlayout *l,
                                                          const uint8_t *panel, int64_t group,
                                                          const uint8_t *codes, int64_t k,
                                                          uint8_t *to)
{
    struct factors f = {.powers = false};
    struct oz_qlayout first = *l;
    unsigned mode = _mm_getcsr();
    first.dual = false;
    _mm_setcsr(mode & ~FLUSH);
    qe_scales(&first, panel, group, 1, f.by);
    fold_piece(l->code, codes, k, &f, to);
    _mm_setcsr(mode);
}

/* A step of K of a row by one of its panels, to its sums. folded: scales of groups are multiplied into codes. */
OZ_Q_INLINE void row_step(enum oz_qcode code, const struct row_job *j, const struct tables *t,
                          bool folded, bool beside, int64_t k0, const uint8_t *panel, vf *sums)
{
    const struct oz_qlayout *l = j->l;
    const uint8_t *codes = panel + l->codes + k0 * OZ_Q_NR * l->code_bits / 8;
    const int64_t some = folded && l->group < BF16_STEP ? l->group : BF16_STEP;
    const int64_t end = k0 + BF16_STEP < l->depth ? k0 + BF16_STEP : l->depth;
    const float *a = j->row + k0;
    _Alignas(64) float by[OZ_Q_NR];
    u32s pairs[BF16_STEP]; /* of a piece */
    R_EACH(R_BEGIN)
    for (int64_t k = k0; k < end; k += some) {
        bool scaled = folded;
        if (folded && !row_scales(l, panel, k / l->group, by)) {
            fold_with_denormals(j->l, panel, k / l->group, codes, some, (uint8_t *)(void *)pairs);
            R_EACH(R_SCALE)
            for (int64_t n = 0; n < some; n += 2, a += 2) {
                const u32s *out = pairs + n;
                const int i = 0;
                qi_i x;
                scaled = false;
                R_EACH(R_PAIR)
            }
            codes += some * OZ_Q_NR * l->code_bits / 8;
            continue;
        }
        R_EACH(R_SCALE)
        for (int64_t n = 0; n < some; n += STEP(code), codes += STEP_BYTES(code)) {
            u32s out[8];
            for (int64_t line = 0; line < STEP_BYTES(code); line += 64) {
                if (beside) {
                    q_near(codes + line);
                } else {
                    q_ahead(codes + line);
                }
            }
            if (code != OZ_QCODE_S8) {
                decode_step(code, t, codes, out);
            }
            for (int i = 0; i < STEP(code) / 2; i++, a += 2) {
                if (code == OZ_QCODE_S8) {
                    R_EACH(R_BYTES)
                } else {
                    qi_i x;
                    R_EACH(R_PAIR)
                }
            }
        }
    }
    R_EACH(R_END)
}

/* All sums of a row by its panels, which take turns from step to step; of one panel they stay in registers. */
OZ_Q_INLINE void row_sums_as(enum oz_qcode code, const struct row_job *j, bool folded, bool beside)
{
    const struct tables t = *ready_tables();
    const int64_t depth = j->l->depth;
    const int64_t panels = beside ? j->panels : 1;
    vf sums[R_PANELS * R_VECTORS];
    for (int64_t v = 0; v < panels * R_VECTORS; v++) {
        sums[v] = v_zero();
    }
    const int64_t group = j->group > 0 ? j->group : depth; /* whole steps, but at the end */
    int64_t g = 0;
    int64_t last = group;
    for (int64_t k = 0; k < depth; k += BF16_STEP) {
        bool ends = k + BF16_STEP >= last || k + BF16_STEP >= depth;
        for (int64_t p = 0; p < panels; p++) {
            row_step(code, j, &t, folded, beside, k, j->panel + p * (int64_t)j->l->panel_bytes,
                     sums + p * R_VECTORS);
        }
        for (int64_t v = 0; ends && v < panels * R_VECTORS; v++) {
            int64_t at = (v / R_VECTORS * j->groups + g) * OZ_Q_NR + v % R_VECTORS * OZ_VL;
            v_store(j->sums + at, sums[v]);
            sums[v] = v_zero();
        }
        if (ends) {
            g++;
            last += group;
        }
    }
}

/* Side by side where reading is the slower half: of 4-bit codes it is decoding, by far. */
static __attribute__((noinline)) void row_sums(const struct row_job *j)
{
    bool folded = j->l->group > 0 && j->l->scale != OZ_DTYPE_F32;
    if (j->l->code == OZ_QCODE_S8) {
        row_sums_as(OZ_QCODE_S8, j, false, true);
    } else if (j->l->code == OZ_QCODE_E4M3 && folded) {
        row_sums_as(OZ_QCODE_E4M3, j, true, true);
    } else if (j->l->code == OZ_QCODE_E4M3) {
        row_sums_as(OZ_QCODE_E4M3, j, false, true);
    } else if (folded) {
        row_sums_as(OZ_QCODE_E2M1, j, true, false);
    } else {
        row_sums_as(OZ_QCODE_E2M1, j, false, false);
    }
}

/* Sums of groups to one: as strip_scale. */
static void add_groups(const float *sums, const float *row_scales, const float *scales,
                       int64_t groups, float *y)
{
    for (int64_t f = 0; f < OZ_Q_NR; f += OZ_VL) {
        vf sum = v_zero();
        for (int64_t g = 0; g < groups; g++) {
            vf x = v_load(sums + g * OZ_Q_NR + f);
            if (row_scales != NULL) {
                x = v_mul(x, v_set(row_scales[g]));
            }
            sum = v_fma(x, v_load(scales + g * OZ_Q_NR + f), sum);
        }
        v_store(y + f, sum);
    }
}

static void row_by_panels(const struct oz_qlayout *l, const uint8_t *panel, int64_t panels,
                          const float *row, const float *row_scales, int64_t group, float *room,
                          float *y)
{
    int64_t groups = group > 0 ? (l->depth + group - 1) / group : 1;
    float *scales = room;
    float *sums = group > 0 ? scales + groups * OZ_Q_NR : y;
    struct row_job j = {.l = l, .row = row, .group = group, .groups = groups};
    const int64_t most = l->code == OZ_QCODE_E2M1 ? 1 : R_PANELS;
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH);
    for (int64_t p = 0; p < panels; p += most) {
        j.panel = panel + p * (int64_t)l->panel_bytes;
        j.panels = panels - p < most ? panels - p : most;
        j.sums = sums + p * groups * OZ_Q_NR;
        row_sums(&j);
    }
    _mm_setcsr(mode);
    for (int64_t p = 0; group > 0 && p < panels; p++) {
        group_scales(l, panel + p * (int64_t)l->panel_bytes, 0, l->depth, group, scales);
        add_groups(sums + p * groups * OZ_Q_NR, row_scales, scales, groups, y + p * OZ_Q_NR);
    }
}

/* ---- rows ---- */

static void bring_codes(const struct oz_act *x, int64_t row, int64_t k0, int64_t n, int64_t padded,
                        uint16_t *to)
{
    enum oz_dtype dtype = x->spec.dtype;
    int64_t per = dtype == OZ_DTYPE_F4 ? 2 : 1;
    const uint8_t *src = (const uint8_t *)x->data + (row * x->stride + k0) / per;
    bool scaled = x->spec.scale_count > 0 && x->spec.scale[0].dtype != OZ_DTYPE_F32 &&
                  x->spec.scale[0].group_cols > 0;
    struct q_level level = scaled ? q_level_of(x, 0, row) : (struct q_level){.group = 1};
    for (int64_t i = 0; i < padded; i += Q_PART) {
        uint8_t part[Q_PART_BYTES];
        q_row_part(dtype, src + i / per, n - i, part);
        for (int64_t j = 0; j < Q_PART && i + j < padded; j += OZ_VL) {
            vf v = q_row_codes(dtype, part, j);
            if (scaled && i + j < n) {
                v = v_mul(v, v_set(q_level_at(&level, k0 + i + j)));
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
    if (scales == NULL) {
        return;
    }
    struct q_level level = q_level_of(x, oz_qtiles_row_level(&x->spec), row);
    for (int64_t k = 0; k < padded; k += group) {
        *scales++ = k0 + k < x->cols ? q_level_at(&level, k0 + k) : 0;
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
    .row = row_by_panels,
};

OZ_Q_ENTRY(oz_kernel_linear_codes__amx, "oz_linear_bf16_codes_f32__amx_32x32", OZ_TIER_AMX, NULL,
           micro)
