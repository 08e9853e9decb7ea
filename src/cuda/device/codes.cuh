/*
 * cuda/device/codes.cuh: 16 neighbours of a stored row as pairs of bf16, for codes of one kind that is known
 * when the kernel is compiled. The values are oz_weight_get's, rounded once.
 */
#ifndef OZ_CUDA_DEVICE_CODES_CUH
#define OZ_CUDA_DEVICE_CODES_CUH

#include "cuda/device/eight.cuh"
#include "cuda/device/weight.cuh"

enum oz_code_kind { OZ_CODES_E2M1, OZ_CODES_TABLE, OZ_CODES_E4M3, OZ_CODES_S8, OZ_CODES_OTHER };

/* Of a scale of a level, where one holds for whole pieces of 16. */
static inline bool oz_scale_suits(enum oz_dtype dtype, int32_t cell_rows, int32_t cell_cols)
{
    return (dtype == OZ_DTYPE_F32 || dtype == OZ_DTYPE_F8_E8M0 || dtype == OZ_DTYPE_F8_E4M3) &&
           cell_cols % 16 == 0 && (cell_cols & (cell_cols - 1)) == 0 &&
           (cell_rows & (cell_rows - 1)) == 0;
}

/* Which kind, if pieces of 16 lie under one scale of each level, and their codes where loads reach them. */
static inline enum oz_code_kind oz_codes_of(const struct oz_cuda_weight *w)
{
    if (w->cols % 16 != 0 || w->row_bytes % 16 != 0 || (uintptr_t)w->codes % 16 != 0) {
        return OZ_CODES_OTHER;
    }
    if (w->block > 0) {
        return w->block % 16 == 0 && w->cols % w->block == 0 ? OZ_CODES_TABLE : OZ_CODES_OTHER;
    }
    for (int i = 0; i < w->levels; i++) {
        if (!oz_scale_suits(w->level[i].dtype, w->level[i].cell_rows, w->level[i].cell_cols)) {
            return OZ_CODES_OTHER;
        }
    }
    return w->dtype == OZ_DTYPE_F4        ? OZ_CODES_E2M1
           : w->dtype == OZ_DTYPE_F8_E4M3 ? OZ_CODES_E4M3
           : w->dtype == OZ_DTYPE_I8      ? OZ_CODES_S8
                                          : OZ_CODES_OTHER;
}

/* The codes of 16, 8 or 16 bytes, and their scales, as they lie there: nothing waits for them before they are
 * decoded. */
struct oz_raw_16 {
    uint32_t words[4];
    uint32_t scales[2];
};

/* The scale that oz_weight_scale gives, cells being powers of two. */
static __device__ inline uint32_t oz_fetch_scale(const struct oz_cuda_weight &w, int level,
                                                 unsigned row, unsigned col)
{
    const unsigned cell_row =
        w.level[level].cell_rows > 0 ? row >> (31 - __clz(w.level[level].cell_rows)) : 0;
    const unsigned cell_col =
        w.level[level].cell_cols > 0 ? col >> (31 - __clz(w.level[level].cell_cols)) : 0;
    const uint8_t *at = w.level[level].data + cell_row * w.level[level].row_bytes;
    return w.level[level].dtype == OZ_DTYPE_F32 ? ((const uint32_t *)at)[cell_col] : at[cell_col];
}

static __device__ inline float oz_scale_value(const struct oz_cuda_weight &w, int level,
                                              uint32_t bits)
{
    return w.level[level].dtype == OZ_DTYPE_F32       ? oz_f32_from_bits(bits)
           : w.level[level].dtype == OZ_DTYPE_F8_E8M0 ? oz_e8m0_to_f32((uint8_t)bits)
                                                      : oz_e4m3_to_f32((uint8_t)bits);
}

template <enum oz_code_kind CODES>
static __device__ inline struct oz_raw_16
oz_fetch_codes(const struct oz_cuda_weight &w, bool codes_only, unsigned row, unsigned col)
{
    struct oz_raw_16 raw;
    if (CODES == OZ_CODES_E4M3 || CODES == OZ_CODES_S8) {
        const uint4 v = *(const uint4 *)(w.codes + row * w.row_bytes + col);
        raw.words[0] = v.x, raw.words[1] = v.y, raw.words[2] = v.z, raw.words[3] = v.w;
    } else {
        const uint2 v = *(const uint2 *)(w.codes + row * w.row_bytes + col / 2);
        raw.words[0] = v.x, raw.words[1] = v.y;
    }
    if (CODES == OZ_CODES_TABLE) {
        raw.scales[0] = oz_f32_bits(oz_weight_absmax(w, row, col));
    } else if (!codes_only && w.levels > 0) {
        raw.scales[0] = oz_fetch_scale(w, 0, row, col);
        if (w.levels > 1) {
            raw.scales[1] = oz_fetch_scale(w, 1, row, col);
        }
    }
    return raw;
}

/* Sign, exponent and mantissa of e2m1 where f32 has its own; the power that is then missing is exact. */
static __device__ inline float oz_e2m1_value(uint32_t code)
{
    return oz_f32_from_bits((code & 8U) << 28 | (code & 7U) << 22) * 0x1p126F;
}

template <enum oz_code_kind CODES>
static __device__ inline float oz_code_value(const struct oz_cuda_weight &w, uint32_t word, int at)
{
    const uint32_t code = CODES == OZ_CODES_E4M3 || CODES == OZ_CODES_S8 ? word >> (8 * at) & 255U
                                                                         : word >> (4 * at) & 15U;
    return CODES == OZ_CODES_E2M1    ? oz_e2m1_value(code)
           : CODES == OZ_CODES_TABLE ? oz_weight_value(w, (uint8_t)code)
           : CODES == OZ_CODES_S8    ? (float)(int8_t)(uint8_t)code
                                     : oz_e4m3_to_f32((uint8_t)code);
}

/* Element 2 i in the low half of pairs[i]. */
template <enum oz_code_kind CODES>
static __device__ inline void oz_decode_16(const struct oz_cuda_weight &w, bool codes_only,
                                           const struct oz_raw_16 &raw, uint32_t pairs[8])
{
    const bool table = CODES == OZ_CODES_TABLE;
    const float first = table                        ? oz_f32_from_bits(raw.scales[0])
                        : codes_only || w.levels < 1 ? 1.0F
                                                     : oz_scale_value(w, 0, raw.scales[0]);
    const float second =
        table || codes_only || w.levels < 2 ? 1.0F : oz_scale_value(w, 1, raw.scales[1]);
    const int per_word = CODES == OZ_CODES_E4M3 || CODES == OZ_CODES_S8 ? 4 : 8;
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        const uint32_t word = raw.words[i / per_word];
        float low = oz_code_value<CODES>(w, word, i % per_word);
        float high = oz_code_value<CODES>(w, word, i % per_word + 1);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        if (CODES == OZ_CODES_E4M3) {
            uint32_t halves;
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
                : "=r"(halves)
                : "h"((uint16_t)(word >> (8 * (i % per_word)) & 0xFFFFU)));
            low = oz_f16_to_f32((uint16_t)(halves & 0xFFFFU));
            high = oz_f16_to_f32((uint16_t)(halves >> 16));
        }
#endif
        pairs[i / 2] = oz_bf16_pair(low * first * second, high * first * second);
    }
}

#endif
