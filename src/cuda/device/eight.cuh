/* cuda/device/eight.cuh: rows of F32 and BF16, 16 bytes an access. */
#ifndef OZ_CUDA_DEVICE_EIGHT_CUH
#define OZ_CUDA_DEVICE_EIGHT_CUH

#include "cuda/device/rows.cuh"

static inline bool oz_aligned(const struct oz_act *a)
{
    return (uintptr_t)a->data % 16 == 0 && a->stride % 8 == 0;
}

static inline bool oz_plain(const struct oz_act_spec *s)
{
    return (s->dtype == OZ_DTYPE_F32 || s->dtype == OZ_DTYPE_BF16) && s->scale_count == 0 &&
           s->smooth == NULL;
}

static __device__ inline void oz_load_8(const struct oz_act &a, int64_t row, int64_t col,
                                        float x[8])
{
    int64_t at = row * a.stride + col;
    if (a.spec.dtype == OZ_DTYPE_F32) {
        const float4 *from = (const float4 *)((const float *)a.data + at);
        float4 low = from[0];
        float4 high = from[1];
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    } else {
        uint4 word = *(const uint4 *)((const uint16_t *)a.data + at);
        const uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = oz_f32_from_bits(pairs[i] << 16);
            x[2 * i + 1] = oz_f32_from_bits(pairs[i] & 0xFFFF0000U);
        }
    }
}

static __device__ inline void oz_load_f32(const float *from, float x[8])
{
    float4 low = ((const float4 *)from)[0];
    float4 high = ((const float4 *)from)[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

/* Rounded to nearest even, as oz_f32_to_bf16 does. */
static __device__ inline uint32_t oz_bf16_pair(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

static __device__ inline void oz_store_8(const struct oz_act &a, int64_t row, int64_t col,
                                         const float x[8])
{
    int64_t at = row * a.stride + col;
    if (a.spec.dtype == OZ_DTYPE_F32) {
        float4 *to = (float4 *)((float *)a.data + at);
        to[0] = make_float4(x[0], x[1], x[2], x[3]);
        to[1] = make_float4(x[4], x[5], x[6], x[7]);
    } else {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            pairs[i] = oz_bf16_pair(x[2 * i], x[2 * i + 1]);
        }
        *(uint4 *)((uint16_t *)a.data + at) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

#endif
