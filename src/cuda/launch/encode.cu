/*
 * Weights encoded while they are loaded, and dummy weights drawn, where they will lie. Every number is
 * num/'s own code (rows.cuh includes it), so the bytes are those that the host would have made.
 */
#include "cuda/device/rows.cuh"
#include "num/noise.h"

#define THREADS 256
#define MX 32
#define NV 16
#define DUAL 512
#define BLOCK 128

typedef unsigned long long place;

/* Element (r, c) of the rows that came; what is not finite is told, but where it is kept. */
static __device__ inline float take(const struct oz_cuda_encode &a, int64_t r, int64_t c)
{
    const uint16_t bits = a.src[r * a.cols + c];
    if ((bits & 0x7F80U) == 0x7F80U && !a.keep_nonfinite) {
        atomicMin((place *)a.bad, (place)((a.row0 + r) * a.cols + c));
    }
    return oz_bf16_to_f32(bits);
}

static __device__ inline uint8_t *code_row(const struct oz_cuda_encode &a, int64_t r)
{
    return a.codes + (a.row0 + r) * a.code_bytes;
}

static __device__ inline uint8_t *scale_row(const struct oz_cuda_encode &a, int level, int64_t r)
{
    return a.scales[level] + (a.row0 + r) * a.scale_bytes[level];
}

/* ---- a scale for a row, a block of threads each ---- */

template <bool FP8>
__global__ void __launch_bounds__(THREADS)
    encode_row(const __grid_constant__ struct oz_cuda_encode a)
{
    __shared__ float room[8];
    __shared__ float bad_room[8];
    const int64_t r = blockIdx.x;
    bool bad = false;
    float amax = 0;
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
        const float x = take(a, r, c);
        amax = fmaxf(amax, oz_group_amax(&x, 1, &bad));
    }
    amax = oz_row_reduce<THREADS, float, true>(amax, room);
    bad = oz_row_reduce<THREADS, float, true>(bad ? 1.0F : 0.0F, bad_room) > 0;
    const float scale = FP8 ? oz_fp8_channel_scale(amax) : bad ? NAN : amax / 127.0F;
    uint8_t *codes = code_row(a, r);
    if (threadIdx.x == 0) {
        *(float *)scale_row(a, 0, r) = scale;
    }
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
        const float x = oz_bf16_to_f32(a.src[r * a.cols + c]);
        if (FP8) {
            oz_fp8_divide(&x, 1, scale, codes + c);
        } else {
            codes[c] = (uint8_t)oz_int8_code(x, amax);
        }
    }
}

/* ---- a scale for the slice, which the passes have learnt ---- */

__global__ void __launch_bounds__(THREADS)
    encode_tensor(const __grid_constant__ struct oz_cuda_encode a)
{
    const int64_t r = blockIdx.x;
    const float scale = oz_fp8_tensor_scale(a.amax);
    uint8_t *codes = code_row(a, r);
    if (r == 0 && threadIdx.x == 0) {
        *(float *)a.scales[0] = scale;
    }
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
        const float x = take(a, r, c);
        oz_fp8_multiply(&x, 1, scale, codes + c);
    }
}

/* ---- a scale for 128 x 128 ---- */

__global__ void __launch_bounds__(THREADS)
    encode_block(const __grid_constant__ struct oz_cuda_encode a)
{
    __shared__ float room[8];
    const int64_t first = (int64_t)blockIdx.y * BLOCK; /* whole blocks come */
    const int64_t end = first + BLOCK < a.rows ? first + BLOCK : a.rows;
    const int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x % BLOCK;
    bool bad = false;
    float amax = 0;
    for (int64_t r = first + threadIdx.x / BLOCK; r < end && c < a.cols; r += THREADS / BLOCK) {
        const float x = take(a, r, c);
        amax = fmaxf(amax, oz_group_amax(&x, 1, &bad));
    }
    const float scale = oz_fp8_block_scale(oz_row_reduce<THREADS, float, true>(amax, room));
    if (threadIdx.x == 0) {
        ((float *)(a.scales[0] + (a.row0 + first) / BLOCK * a.scale_bytes[0]))[blockIdx.x] = scale;
    }
    for (int64_t r = first + threadIdx.x / BLOCK; r < end && c < a.cols; r += THREADS / BLOCK) {
        const float x = oz_bf16_to_f32(a.src[r * a.cols + c]);
        oz_fp8_multiply(&x, 1, scale, code_row(a, r) + c);
    }
}

/* ---- groups, a thread each ---- */

/* A group's elements; zeros, which no scale sees, behind the row's end. */
template <int WIDTH>
static __device__ inline int take_group(const struct oz_cuda_encode &a, int64_t r, int64_t c,
                                        float *x)
{
    const int n = a.cols - c < WIDTH ? (int)(a.cols - c) : WIDTH;
    for (int i = 0; i < n; i++) {
        x[i] = take(a, r, c + i);
    }
    return n;
}

/* A group's codes leave together: single bytes would each be a transaction. */
template <int WIDTH, int BITS>
static __device__ inline void put_codes(const struct oz_cuda_encode &a, int64_t r, int64_t c, int n,
                                        const uint32_t *codes)
{
    uint8_t *to = code_row(a, r) + c * BITS / 8;
    if (n == WIDTH && (uintptr_t)to % 4 == 0) {
#pragma unroll
        for (int i = 0; i < WIDTH * BITS / 32; i++) {
            ((uint32_t *)to)[i] = codes[i];
        }
        return;
    }
    for (int i = 0; i < (n * BITS + 7) / 8; i++) {
        to[i] = ((const uint8_t *)codes)[i];
    }
}

template <enum oz_encode_kind KIND>
__global__ void __launch_bounds__(THREADS)
    encode_groups(const __grid_constant__ struct oz_cuda_encode a)
{
    const int width = KIND == OZ_ENCODE_NVFP4 ? NV : MX;
    const int bits = KIND == OZ_ENCODE_MXFP8 ? 8 : 4;
    const int64_t groups = (a.cols + width - 1) / width;
    const int64_t unit = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t r = unit / groups;
    const int64_t g = unit % groups;
    float x[width];
    uint32_t codes[width * bits / 32] = {};
    if (r >= a.rows) {
        return;
    }
    if (KIND == OZ_ENCODE_NVFP4 && unit == 0) {
        *(float *)a.scales[1] = 1.0F / oz_nvfp4_global(a.amax);
    }
    const int n = take_group<width>(a, r, g * width, x);
    uint8_t *to = (uint8_t *)codes;
    scale_row(a, 0, r)[g] = KIND == OZ_ENCODE_MXFP8 ? oz_mxfp8_encode(x, n, a.rule, to)
                            : KIND == OZ_ENCODE_MXFP4
                                ? oz_mxfp4_encode(x, n, a.rule, to)
                                : oz_nvfp4_encode(x, n, oz_nvfp4_global(a.amax), to);
    put_codes<width, bits>(a, r, g * width, n, codes);
}

/* ---- groups under an f32 of 512, sixteen threads each ---- */

__global__ void __launch_bounds__(THREADS)
    encode_dual(const __grid_constant__ struct oz_cuda_encode a)
{
    const int64_t blocks = (a.cols + DUAL - 1) / DUAL;
    const int64_t unit = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / (DUAL / MX);
    const int64_t r = unit / blocks;
    const int64_t b = unit % blocks;
    const int64_t c = b * DUAL + threadIdx.x % (DUAL / MX) * MX;
    const bool there = r < a.rows && c < a.cols;
    float x[MX];
    uint32_t codes[MX / 8] = {};
    bool bad = false;
    const int n = there ? take_group<MX>(a, r, c, x) : 0;
    float amax = oz_group_amax(x, n, &bad);
    for (int step = 1; step < DUAL / MX; step *= 2) {
        amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, step));
    }
    if (!there) {
        return;
    }
    const float dual = oz_dual_scale(amax);
    if (threadIdx.x % (DUAL / MX) == 0) {
        ((float *)scale_row(a, 1, r))[b] = dual;
    }
    scale_row(a, 0, r)[c / MX] = oz_dual_encode(x, n, dual, (uint8_t *)codes);
    put_codes<MX, 4>(a, r, c, n, codes);
}

int oz_launch_encode(oz_cuda_stream stream, const struct oz_cuda_encode *a)
{
    const unsigned rows = (unsigned)a->rows;
    const int64_t width = a->kind == OZ_ENCODE_NVFP4 ? NV : a->kind == OZ_ENCODE_DUAL ? DUAL : MX;
    const int64_t threads =
        a->rows * ((a->cols + width - 1) / width) * (a->kind == OZ_ENCODE_DUAL ? DUAL / MX : 1);
    const unsigned blocks = (unsigned)((threads + THREADS - 1) / THREADS);
    const dim3 squares((unsigned)((a->cols + BLOCK - 1) / BLOCK),
                       (unsigned)((a->rows + BLOCK - 1) / BLOCK));
    if (a->rows == 0 || a->cols == 0) {
        return 0;
    }
    switch (a->kind) {
    case OZ_ENCODE_FP8_TENSOR: encode_tensor<<<rows, THREADS, 0, stream>>>(*a); break;
    case OZ_ENCODE_FP8_CHANNEL: encode_row<true><<<rows, THREADS, 0, stream>>>(*a); break;
    case OZ_ENCODE_FP8_BLOCK: encode_block<<<squares, THREADS, 0, stream>>>(*a); break;
    case OZ_ENCODE_INT8: encode_row<false><<<rows, THREADS, 0, stream>>>(*a); break;
    case OZ_ENCODE_MXFP8: encode_groups<OZ_ENCODE_MXFP8><<<blocks, THREADS, 0, stream>>>(*a); break;
    case OZ_ENCODE_MXFP4: encode_groups<OZ_ENCODE_MXFP4><<<blocks, THREADS, 0, stream>>>(*a); break;
    case OZ_ENCODE_NVFP4: encode_groups<OZ_ENCODE_NVFP4><<<blocks, THREADS, 0, stream>>>(*a); break;
    case OZ_ENCODE_DUAL: encode_dual<<<blocks, THREADS, 0, stream>>>(*a); break;
    }
    return (int)cudaGetLastError();
}

/* ---- dummy weights ---- */

/* A thread for a word of four elements, of which a first or last one may be wanted in part. */
__global__ void __launch_bounds__(THREADS) draw(const __grid_constant__ struct oz_draw_args a)
{
    const int64_t word = a.first / 4 + (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t end = a.first + a.count;
    uint16_t *to = (uint16_t *)a.dst;
    if (4 * word >= end) {
        return;
    }
    const uint64_t four = oz_noise_four(a.table, a.state, (uint64_t)word);
    if (a.first % 4 == 0 && 4 * word + 4 <= end) {
        *(uint64_t *)(to + (4 * word - a.first)) = four;
        return;
    }
    for (int i = 0; i < 4; i++) {
        const int64_t at = 4 * word + i;
        if (at >= a.first && at < end) {
            to[at - a.first] = (uint16_t)(four >> 16 * i);
        }
    }
}

int oz_launch_draw(oz_cuda_stream stream, const struct oz_draw_args *a)
{
    const int64_t words = (a->first + a->count + 3) / 4 - a->first / 4;
    if (a->count == 0) {
        return 0;
    }
    draw<<<(unsigned)((words + THREADS - 1) / THREADS), THREADS, 0, stream>>>(*a);
    return (int)cudaGetLastError();
}
