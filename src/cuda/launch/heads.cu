/* Rotation of heads of 64 and 128, for launchers that ask first; small.cu does the rest. */
#include "cuda/device/eight.cuh"

#define THREADS 256

#define ROPE_HEADS 3 /* of a warp: all under way at once, under one row of the tables */

/* A warp for some heads of 32 * PER features, PER of them in a lane; neighbours turn together. */
template <int PER>
__global__ void __launch_bounds__(THREADS) rope_pairs(const __grid_constant__ struct oz_cuda_rope a)
{
    /* In 32 bits: divisions of 64 take more instructions than all the rest. */
    unsigned unit = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    unsigned lane = threadIdx.x % 32;
    unsigned groups = ((unsigned)a.heads + ROPE_HEADS - 1) / ROPE_HEADS;
    unsigned row = unit / groups;
    unsigned first = unit % groups * ROPE_HEADS;
    if (row >= (unsigned)a.x.rows) {
        return;
    }
    alignas(16) float x[ROPE_HEADS][PER];
    alignas(16) float weight[PER];
    float cosines[PER / 2];
    float sines[PER / 2];
#pragma unroll
    for (int h = 0; h < ROPE_HEADS; h++) {
        int64_t at = row * a.x.stride + (first + h) * a.head_dim + lane * PER;
        if (first + h >= (unsigned)a.heads) {
            continue;
        }
        if (a.x.spec.dtype == OZ_DTYPE_BF16) {
#pragma unroll
            for (int i = 0; i < PER; i++) {
                x[h][i] = oz_bf16_to_f32(((const uint16_t *)a.x.data)[at + i]);
            }
        } else if (PER == 4) {
            *(float4 *)x[h] = *(const float4 *)((const float *)a.x.data + at);
        } else {
            *(float2 *)x[h] = *(const float2 *)((const float *)a.x.data + at);
        }
    }
    int64_t table = a.table_rows != NULL ? a.table_rows[row] : row;
#pragma unroll
    for (int i = 0; i < PER / 2; i++) { /* features behind the pairs do not turn */
        int pair = (int)lane * (PER / 2) + i;
        bool turns = pair < a.pairs;
        cosines[i] = turns ? ((const float *)a.cosine.data)[table * a.cosine.stride + pair] : 1.0F;
        sines[i] = turns ? ((const float *)a.sine.data)[table * a.sine.stride + pair] : 0.0F;
    }
    if (a.weight != NULL) {
#pragma unroll
        for (int i = 0; i < PER; i++) {
            weight[i] = a.weight[lane * PER + i] + (a.plus_one ? 1.0F : 0.0F);
        }
    }
#pragma unroll
    for (int h = 0; h < ROPE_HEADS; h++) {
        int64_t to = row * a.out.stride + (first + h) * a.head_dim + lane * PER;
        if (first + h >= (unsigned)a.heads) {
            continue;
        }
        if (a.weight != NULL) {
            float squares = 0;
#pragma unroll
            for (int i = 0; i < PER; i++) {
                squares += x[h][i] * x[h][i];
            }
            squares = oz_row_reduce<32, float, false>(squares, NULL);
            float factor = 1.0F / sqrtf(squares / (float)a.head_dim + a.eps);
#pragma unroll
            for (int i = 0; i < PER; i++) {
                x[h][i] = x[h][i] * factor * weight[i];
            }
        }
#pragma unroll
        for (int i = 0; i < PER / 2; i++) {
            float turned = x[h][2 * i] * cosines[i] - x[h][2 * i + 1] * sines[i];
            x[h][2 * i + 1] = x[h][2 * i] * sines[i] + x[h][2 * i + 1] * cosines[i];
            x[h][2 * i] = turned;
        }
        if (a.out.spec.dtype == OZ_DTYPE_F32) {
            if (PER == 4) {
                *(float4 *)((float *)a.out.data + to) = *(const float4 *)x[h];
            } else {
                *(float2 *)((float *)a.out.data + to) = *(const float2 *)x[h];
            }
            continue;
        }
        if (PER == 4) {
            *(uint2 *)((uint16_t *)a.out.data + to) = make_uint2(
                oz_bf16_pair(x[h][0], x[h][1]), oz_bf16_pair(x[h][PER - 2], x[h][PER - 1]));
        } else {
            *(uint32_t *)((uint16_t *)a.out.data + to) = oz_bf16_pair(x[h][0], x[h][1]);
        }
    }
}

/* PER neighbours of a head, f32 or bf16. */
template <int PER, bool HALF>
static __device__ inline void take_pairs(const void *rows, int64_t at, float *x)
{
    if (HALF) {
        uint32_t pairs[PER / 2];
        if (PER == 4) {
            *(uint2 *)pairs = *(const uint2 *)((const uint16_t *)rows + at);
        } else {
            pairs[0] = *(const uint32_t *)((const uint16_t *)rows + at);
        }
#pragma unroll
        for (int i = 0; i < PER / 2; i++) {
            x[2 * i] = oz_f32_from_bits(pairs[i] << 16);
            x[2 * i + 1] = oz_f32_from_bits(pairs[i] & 0xFFFF0000U);
        }
    } else if (PER == 4) {
        *(float4 *)x = *(const float4 *)((const float *)rows + at);
    } else {
        *(float2 *)x = *(const float2 *)((const float *)rows + at);
    }
}

/*
 * The same where nothing is left to decide: whole warps' worth of heads, normed, all of each turning, to
 * bf16.
 */
template <int PER, bool HALF>
__global__ void __launch_bounds__(THREADS) rope_usual(const __grid_constant__ struct oz_cuda_rope a)
{
    const unsigned unit = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const unsigned groups = (unsigned)a.heads / ROPE_HEADS;
    const unsigned row = unit / groups;
    const unsigned first = unit % groups * ROPE_HEADS * 32 * PER + lane * PER;
    alignas(16) float x[ROPE_HEADS][PER];
    alignas(16) float weight[PER];
    alignas(8) float cosines[PER / 2];
    alignas(8) float sines[PER / 2];
    if (row >= (unsigned)a.x.rows) {
        return;
    }
    const int64_t table = a.table_rows != NULL ? a.table_rows[row] : row;
    const int64_t from = row * a.x.stride + first;
    const float *cosine = (const float *)a.cosine.data + table * a.cosine.stride + lane * (PER / 2);
    const float *sine = (const float *)a.sine.data + table * a.sine.stride + lane * (PER / 2);
    uint16_t *to = (uint16_t *)a.out.data + row * a.out.stride + first;
#pragma unroll
    for (int h = 0; h < ROPE_HEADS; h++) {
        take_pairs<PER, HALF>(a.x.data, from + h * 32 * PER, x[h]);
    }
    if (PER == 4) {
        *(float2 *)cosines = *(const float2 *)cosine;
        *(float2 *)sines = *(const float2 *)sine;
        *(float4 *)weight = *(const float4 *)(a.weight + lane * PER);
    } else {
        cosines[0] = *cosine;
        sines[0] = *sine;
        *(float2 *)weight = *(const float2 *)(a.weight + lane * PER);
    }
    const float part = 1.0F / (32 * PER);
#pragma unroll
    for (int h = 0; h < ROPE_HEADS; h++) {
        float squares = 0;
#pragma unroll
        for (int i = 0; i < PER; i++) {
            squares = __fmaf_rn(x[h][i], x[h][i], squares);
        }
        squares = oz_row_reduce<32, float, false>(squares, NULL);
        const float factor = 1.0F / sqrtf(squares * part + a.eps);
        uint32_t pairs[PER / 2];
#pragma unroll
        for (int i = 0; i < PER / 2; i++) {
            const float low = x[h][2 * i] * factor * weight[2 * i];
            const float high = x[h][2 * i + 1] * factor * weight[2 * i + 1];
            pairs[i] = oz_bf16_pair(low * cosines[i] - high * sines[i],
                                    low * sines[i] + high * cosines[i]);
        }
        if (PER == 4) {
            *(uint2 *)(to + h * 32 * PER) = make_uint2(pairs[0], pairs[PER / 2 - 1]);
        } else {
            *(uint32_t *)(to + h * 32 * PER) = pairs[0];
        }
    }
}

static bool is_usual(const struct oz_cuda_rope *a)
{
    return a->heads % ROPE_HEADS == 0 && a->out.spec.dtype == OZ_DTYPE_BF16 && a->weight != NULL &&
           !a->plus_one && (uintptr_t)a->weight % 16 == 0 && a->pairs == a->head_dim / 2 &&
           (uintptr_t)a->cosine.data % 8 == 0 && a->cosine.stride % 2 == 0 &&
           (uintptr_t)a->sine.data % 8 == 0 && a->sine.stride % 2 == 0;
}

bool oz_heads_takes_rope(const struct oz_cuda_rope *a)
{
    return (a->head_dim == 64 || a->head_dim == 128) && a->x.rows * a->heads < INT32_MAX &&
           a->kind == OZ_ROPE_PAIRS && oz_aligned(&a->x) && oz_aligned(&a->out) &&
           oz_plain(&a->x.spec) && oz_plain(&a->out.spec) && a->cosine.spec.dtype == OZ_DTYPE_F32 &&
           a->sine.spec.dtype == OZ_DTYPE_F32;
}

int oz_heads_rope(oz_cuda_stream stream, const struct oz_cuda_rope *a)
{
    int64_t units = a->x.rows * ((a->heads + ROPE_HEADS - 1) / ROPE_HEADS);
    int64_t blocks = (units + THREADS / 32 - 1) / (THREADS / 32);
    if (blocks == 0) {
        return 0;
    }
    if (is_usual(a)) {
        const bool half = a->x.spec.dtype == OZ_DTYPE_BF16;
        if (a->head_dim == 128 && half) {
            rope_usual<4, true><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
        } else if (a->head_dim == 128) {
            rope_usual<4, false><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
        } else if (half) {
            rope_usual<2, true><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
        } else {
            rope_usual<2, false><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
        }
    } else if (a->head_dim == 128) {
        rope_pairs<4><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
    } else {
        rope_pairs<2><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
    }
    return (int)cudaGetLastError();
}
