/*
 * cuda/device/codes.cuh: 32 neighbours of a stored row as pairs of bf16, for codes of one kind that is known
 * when the kernel is compiled. The values are oz_weight_get's, rounded once.
 */
#ifndef OZ_CUDA_DEVICE_CODES_CUH
#define OZ_CUDA_DEVICE_CODES_CUH

#include "cuda/device/eight.cuh"
#include "cuda/device/weight.cuh"

enum oz_code_kind { OZ_CODES_E2M1, OZ_CODES_TABLE, OZ_CODES_E4M3, OZ_CODES_S8, OZ_CODES_OTHER };

/* Which kind, if whole pieces of 32 lie under one scale of each level, and their codes at 16 bytes. */
static inline enum oz_code_kind oz_codes_of(const struct oz_cuda_weight *w)
{
    if (w->cols % 32 != 0 || w->row_bytes % 16 != 0 || (uintptr_t)w->codes % 16 != 0) {
        return OZ_CODES_OTHER;
    }
    if (w->block > 0) {
        return w->block % 32 == 0 && w->cols % w->block == 0 ? OZ_CODES_TABLE : OZ_CODES_OTHER;
    }
    for (int i = 0; i < w->levels; i++) { /* halves of 32 may have scales of their own */
        if (w->level[i].cell_cols % 16 != 0) {
            return OZ_CODES_OTHER;
        }
    }
    return w->dtype == OZ_DTYPE_F4        ? OZ_CODES_E2M1
           : w->dtype == OZ_DTYPE_F8_E4M3 ? OZ_CODES_E4M3
           : w->dtype == OZ_DTYPE_I8      ? OZ_CODES_S8
                                          : OZ_CODES_OTHER;
}

/* The codes of 32: 16 bytes, or 32. */
template <enum oz_code_kind CODES> struct oz_raw_codes {
    uint4 words[CODES == OZ_CODES_E4M3 || CODES == OZ_CODES_S8 ? 2 : 1];
};

template <enum oz_code_kind CODES>
static __device__ inline struct oz_raw_codes<CODES> oz_fetch_codes(const struct oz_cuda_weight &w,
                                                                   int64_t row, int64_t col) {
    const int size = CODES == OZ_CODES_E4M3 || CODES == OZ_CODES_S8 ? 2 : 1;
    const uint4 *from = (const uint4 *)(w.codes + row * w.row_bytes + (size == 2 ? col : col / 2));
    struct oz_raw_codes<CODES> raw;
#pragma unroll
    for (int i = 0; i < size; i++) {
        raw.words[i] = from[i];
    }
    return raw;
}

/* The scales of each half of 32, level by level. */
struct oz_code_scales {
    float first[2], second[2];
};

template <enum oz_code_kind CODES>
static __device__ inline struct oz_code_scales
oz_fetch_scales(const struct oz_cuda_weight &w, bool codes_only, int64_t row, int64_t col)
{
    struct oz_code_scales s = {{1.0F, 1.0F}, {1.0F, 1.0F}};
    if (CODES == OZ_CODES_TABLE) {
        s.first[0] = oz_weight_absmax(w, row, col);
        s.first[1] = s.first[0];
        return s;
    }
    if (!codes_only && w.levels > 0) {
        s.first[0] = oz_weight_scale(w, 0, row, col);
        s.first[1] = w.level[0].cell_cols == 16 ? oz_weight_scale(w, 0, row, col + 16) : s.first[0];
    }
    if (!codes_only && w.levels > 1) {
        s.second[0] = oz_weight_scale(w, 1, row, col);
        s.second[1] =
            w.level[1].cell_cols == 16 ? oz_weight_scale(w, 1, row, col + 16) : s.second[0];
    }
    return s;
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
static __device__ inline void oz_decode_32(const struct oz_cuda_weight &w,
                                           const struct oz_raw_codes<CODES> &raw,
                                           const struct oz_code_scales &s, uint32_t pairs[16])
{
    const int per_word = CODES == OZ_CODES_E4M3 || CODES == OZ_CODES_S8 ? 4 : 8;
#pragma unroll
    for (int i = 0; i < 32 / per_word; i++) {
        const uint4 v = raw.words[i / 4];
        const uint32_t word = i % 4 == 0 ? v.x : i % 4 == 1 ? v.y : i % 4 == 2 ? v.z : v.w;
#pragma unroll
        for (int j = 0; j < per_word; j += 2) {
            const int at = i * per_word + j;
            float low = oz_code_value<CODES>(w, word, j);
            float high = oz_code_value<CODES>(w, word, j + 1);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
            if (CODES == OZ_CODES_E4M3) {
                uint32_t halves;
                asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
                    : "=r"(halves)
                    : "h"((uint16_t)(word >> (8 * j) & 0xFFFFU)));
                low = oz_f16_to_f32((uint16_t)(halves & 0xFFFFU));
                high = oz_f16_to_f32((uint16_t)(halves >> 16));
            }
#endif
            low = low * s.first[at / 16] * s.second[at / 16];
            high = high * s.first[at / 16] * s.second[at / 16];
            pairs[at / 2] = oz_bf16_pair(low, high);
        }
    }
}

#endif
