/*
 * cuda/device/wide.cuh: wide rows in registers, a block for each: which thread holds what, what a block
 * shares, rows to codes, and rows on their way to shared memory while others are worked on.
 */
#ifndef OZ_CUDA_DEVICE_WIDE_CUH
#define OZ_CUDA_DEVICE_WIDE_CUH

#include "cuda/device/eight.cuh"

#define OZ_WIDE_MOST_COLS 16384 /* of a row in registers */

/* Codes under one scale of the row, which an f32 plane holds. */
static inline bool oz_codes_by_row(const struct oz_act_spec *s)
{
    return (s->dtype == OZ_DTYPE_F8_E4M3 || s->dtype == OZ_DTYPE_I8) && s->scale_count == 1 &&
           s->scale[0].dtype == OZ_DTYPE_F32 && s->scale[0].group_cols == 0 &&
           s->scale[0].layout == OZ_SCALE_ROWS && s->smooth == NULL && s->static_scale == NULL;
}

static inline bool oz_wide_fits(int64_t cols)
{
    return cols % 8 == 0 && cols > 1024 && cols <= OZ_WIDE_MOST_COLS;
}

/* A block for a row of so many units, and how many of them a thread takes: `threads` apart. */
struct oz_shape {
    unsigned threads;
    int parts;
};

/* All threads busy where the row divides so; else some of the last part are idle. */
static struct oz_shape oz_shape_of(int64_t units, int64_t most_threads)
{
    static const int tried[] = {3, 2, 4, 1, 6};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        int64_t threads = units / tried[i];
        if (units % tried[i] == 0 && threads % 32 == 0 && threads >= 128 &&
            threads <= most_threads) {
            return (struct oz_shape){(unsigned)threads, tried[i]};
        }
    }
    return (struct oz_shape){(unsigned)most_threads,
                             (int)((units + most_threads - 1) / most_threads)};
}

/* ---- what a block shares ---- */

/* Largest of a block's values. room [32]: not to be used again before another barrier. */
static __device__ inline uint32_t oz_block_max(uint32_t x, uint32_t *room)
{
    x = __reduce_max_sync(0xFFFFFFFFU, x);
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = x;
    }
    __syncthreads();
    return __reduce_max_sync(0xFFFFFFFFU,
                             threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : 0);
}

/* Sum of a block's values, in one order. room as above. */
static __device__ inline float oz_block_sum(float x, float *room)
{
    x = oz_row_reduce<32, float, false>(x, NULL);
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = x;
    }
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : 0;
    return oz_row_reduce<32, float, false>(x, NULL);
}

/* 4 or 8 neighbours of a row of F32 or BF16. */
template <int UNIT>
static __device__ inline void oz_store_unit(uint8_t *row, bool half, unsigned col,
                                            const float x[UNIT])
{
    if (!half) {
#pragma unroll
        for (int i = 0; i < UNIT / 4; i++) {
            ((float4 *)(row + col * 4))[i] =
                make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
        }
        return;
    }
    uint32_t pairs[UNIT / 2];
#pragma unroll
    for (int i = 0; i < UNIT / 2; i++) {
        pairs[i] = oz_bf16_pair(x[2 * i], x[2 * i + 1]);
    }
    if (UNIT == 8) {
        *(uint4 *)(row + col * 2) =
            make_uint4(pairs[0], pairs[1], pairs[UNIT / 2 - 2], pairs[UNIT / 2 - 1]);
    } else {
        *(uint2 *)(row + col * 2) = make_uint2(pairs[0], pairs[1]);
    }
}

/* ---- rows to codes ---- */

/* x / scale, rounded once: an exact reciprocal's product, corrected by its remainder (Markstein). Finite x,
 * and scale and inverse = 1 / scale well inside f32's range. */
static __device__ inline float oz_quotient(float x, float scale, float inverse)
{
    float q = x * inverse;
    return __fmaf_rn(__fmaf_rn(-q, scale, x), inverse, q);
}

/* Codes of two, by the unit that rounds as oz_fp8_divide does. */
static __device__ inline uint32_t oz_e4m3_pair(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return oz_f32_to_e4m3(low) | (uint32_t)oz_f32_to_e4m3(high) << 8;
#endif
}

/* As oz_f32_to_s8 rounds what is within its range. */
static __device__ inline uint32_t oz_s8_pair(float low, float high)
{
    return (uint32_t)(uint8_t)__float2int_rn(low) | (uint32_t)(uint8_t)__float2int_rn(high) << 8;
}

/* How a row becomes codes. usual: every element is finite, and so is the inverse. */
struct oz_scaling {
    bool e4m3, usual;
    float amax, scale, inverse;
};

/* Element by element, with num/'s own code. */
static __device__ __noinline__ void oz_unusual_codes(const struct oz_scaling *s, const float *x,
                                                     int count, uint8_t *codes)
{
    if (s->e4m3) {
        oz_fp8_divide(x, count, s->scale, codes);
        return;
    }
    for (int i = 0; i < count; i++) {
        codes[i] = (uint8_t)oz_int8_code(x[i], s->amax);
    }
}

static __device__ __noinline__ float oz_finite_amax(const float *x, int count)
{
    bool bad = false;
    return oz_group_amax(x, count, &bad);
}

/* Of a row in registers, UNIT elements in each of PARTS pieces; writes its scale too. WHOLE: no thread is idle. */
template <int PARTS, int UNIT, bool WHOLE>
static __device__ inline struct oz_scaling oz_scale_row(const struct oz_act &out, int64_t row,
                                                        const float *x, bool e4m3, uint32_t *room,
                                                        uint32_t *room_again)
{
    struct oz_scaling s;
    uint32_t most = 0; /* bits of the largest magnitude; infinity's or more: not all is finite */
    s.e4m3 = e4m3;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        if (WHOLE || (p * blockDim.x + threadIdx.x) * UNIT < out.cols) {
#pragma unroll
            for (int i = 0; i < UNIT; i++) {
                most = max(oz_f32_bits(x[p * UNIT + i]) & 0x7FFFFFFFU, most);
            }
        }
    }
    most = oz_block_max(most, room);
    s.usual = most < 0x7F800000U;
    s.amax = oz_f32_from_bits(most);
    if (!s.usual) {
        float copy[PARTS * UNIT]; /* zeros where there is nothing */
#pragma unroll
        for (int i = 0; i < PARTS * UNIT; i++) {
            bool there = WHOLE || (i / UNIT * blockDim.x + threadIdx.x) * UNIT < out.cols;
            copy[i] = there ? x[i] : 0;
        }
        s.amax = oz_f32_from_bits(
            oz_block_max(oz_f32_bits(oz_finite_amax(copy, PARTS * UNIT)), room_again));
    }
    s.scale = e4m3 ? oz_fp8_channel_scale(s.amax) : s.amax / 127.0F;
    s.inverse = e4m3 ? 1.0F / s.scale : s.amax == 0 ? 0.0F : 127.0F / s.amax;
    if (threadIdx.x == 0) {
        ((float *)out.scales[0])[row] = e4m3 || s.usual ? s.scale : NAN;
    }
    s.usual = s.usual && s.inverse <= 3.4028235e38F;
    return s;
}

/* A row in registers to its format. near: by the reciprocal alone, for values that are approximate already. */
template <int PARTS, int UNIT>
static __device__ inline void oz_put_parts(const struct oz_act &out, int64_t row,
                                           const float x[PARTS][UNIT], bool near, uint32_t *room,
                                           uint32_t *room_again)
{
    if (out.spec.scale_count == 0) {
        bool half = out.spec.dtype == OZ_DTYPE_BF16;
        uint8_t *to = (uint8_t *)out.data + row * out.stride * (half ? 2 : 4);
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            unsigned col = (p * blockDim.x + threadIdx.x) * UNIT;
            if (col < out.cols) {
                oz_store_unit<UNIT>(to, half, col, x[p]);
            }
        }
        return;
    }
    const bool to_e4m3 = out.spec.dtype == OZ_DTYPE_F8_E4M3;
    struct oz_scaling s =
        oz_scale_row<PARTS, UNIT, false>(out, row, x[0], to_e4m3, room, room_again);
    uint8_t *to = (uint8_t *)out.data + row * out.stride;
    if (!s.usual) {
        float copy[UNIT];
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            unsigned col = (p * blockDim.x + threadIdx.x) * UNIT;
            if (col < out.cols) {
#pragma unroll
                for (int i = 0; i < UNIT; i++) {
                    copy[i] = x[p][i];
                }
                oz_unusual_codes(&s, copy, UNIT, to + col);
            }
        }
        return;
    }
    uint32_t pairs[PARTS][UNIT / 2];
    if (!s.e4m3) {
#pragma unroll
        for (int i = 0; i < PARTS * UNIT; i += 2) {
            const float *v = &x[i / UNIT][i % UNIT];
            pairs[i / UNIT][i % UNIT / 2] = oz_s8_pair(v[0] * s.inverse, v[1] * s.inverse);
        }
    } else if (near) {
#pragma unroll
        for (int i = 0; i < PARTS * UNIT; i += 2) {
            const float *v = &x[i / UNIT][i % UNIT];
            pairs[i / UNIT][i % UNIT / 2] = oz_e4m3_pair(v[0] * s.inverse, v[1] * s.inverse);
        }
    } else {
#pragma unroll
        for (int i = 0; i < PARTS * UNIT; i += 2) {
            const float *v = &x[i / UNIT][i % UNIT];
            pairs[i / UNIT][i % UNIT / 2] = oz_e4m3_pair(oz_quotient(v[0], s.scale, s.inverse),
                                                         oz_quotient(v[1], s.scale, s.inverse));
        }
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        unsigned col = (p * blockDim.x + threadIdx.x) * UNIT;
        if (col < out.cols) {
#pragma unroll
            for (int i = 0; i < UNIT / 4; i++) {
                ((uint32_t *)(to + col))[i] = pairs[p][2 * i] | pairs[p][2 * i + 1] << 16;
            }
        }
    }
}

/* ---- gelu ---- */

/* 1 + e^-2u of gelu's u, at most 1 + 2^30: a quarter of four such products' range. */
static __device__ inline float oz_gelu_divisor(float x)
{
    /* 2 u log2(e) = x (2.3022082 + 0.1029432 x^2) */
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;"
        : "=f"(e)
        : "f"(fminf(x * __fmaf_rn(x * x, -0.10294324F, -2.3022082F), 30.0F)));
    return 1.0F + e;
}

/* gelu (tanh) as x / (1 + e^-2u), four under one reciprocal: within 1e-6 of |x|, for rows that are rounded
 * to 16 bits or fewer. */
static __device__ inline void oz_quick_gelu(float *x)
{
    float d0 = oz_gelu_divisor(x[0]);
    float d1 = oz_gelu_divisor(x[1]);
    float d2 = oz_gelu_divisor(x[2]);
    float d3 = oz_gelu_divisor(x[3]);
    float low = d0 * d1;
    float high = d2 * d3;
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(low * high));
    float of_low = inverse * high;
    float of_high = inverse * low;
    x[0] *= of_low * d1;
    x[1] *= of_low * d0;
    x[2] *= of_high * d3;
    x[3] *= of_high * d2;
}

/* ---- rows on their way ---- */

/*
 * Blocks stay, and go from row to row; rows that come next are on their way to shared memory meanwhile.
 * Each thread reads there what it asked for itself, so that nobody waits for others until sums or the
 * largest magnitude of a row are wanted.
 */
#define OZ_WIDE_STAGES 3 /* rows of a block that are there or on their way */

static __device__ inline void oz_wait_for_row(int stages)
{
    if (stages == 3) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    } else if (stages == 2) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
}

/* How many blocks, and how many rows each may have under way. */
struct oz_pipeline {
    unsigned blocks, threads;
    int stages, bytes; /* bytes: of shared memory */
    cudaError_t error;
};

static struct oz_pipeline oz_plan_pipeline(const void *kernel, int64_t rows, unsigned threads,
                                           unsigned threads_together, int row_bytes)
{
    struct oz_pipeline p = {.threads = threads, .stages = OZ_WIDE_STAGES};
    int device;
    int processors;
    int room;
    p.error = cudaGetDevice(&device);
    if (p.error == cudaSuccess) {
        p.error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    }
    if (p.error == cudaSuccess) {
        p.error = cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    if (p.error != cudaSuccess) {
        return p;
    }
    while (p.stages > 1 && p.stages * row_bytes > room - 1024) {
        p.stages--; /* beside what is static */
    }
    p.bytes = p.stages * row_bytes;
    int64_t blocks = (int64_t)processors * (threads_together / threads);
    p.blocks = (unsigned)(blocks < rows ? blocks : rows);
    p.error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.bytes);
    return p;
}

/* Launches the kernel for so many parts. */
#define OZ_LAUNCH_PIPELINE(kernel, rows, shape, threads_together, unit_bytes, args)           \
    do {                                                                                      \
        struct oz_pipeline p_ =                                                               \
            oz_plan_pipeline((const void *)(kernel), rows, (shape).threads, threads_together, \
                             (unit_bytes) * (shape).parts * (int)(shape).threads);            \
        if (p_.error == cudaSuccess) {                                                        \
            kernel<<<p_.blocks, p_.threads, (size_t)p_.bytes, stream>>>(args, p_.stages);     \
            p_.error = cudaGetLastError();                                                    \
        }                                                                                     \
        return (int)p_.error;                                                                 \
    } while (0)

#endif
