/*
 * What large models do most, 16 bytes an access and rows in registers: norm and modulation, rows to
 * codes, residuals behind a product, rotation of heads. Each says whether it takes the call, from
 * layouts alone; rows.cu and small.cu do the rest, to the same numbers but for the order of sums.
 */
#include "cuda/device/eight.cuh"

#define THREADS 256
#define MOST_PARTS 8 /* of a row, 8 elements each, in a thread */

/* Codes under one scale of the row, which an f32 plane holds. */
static bool by_row(const struct oz_act_spec *s)
{
    return (s->dtype == OZ_DTYPE_F8_E4M3 || s->dtype == OZ_DTYPE_I8) && s->scale_count == 1 &&
           s->scale[0].dtype == OZ_DTYPE_F32 && s->scale[0].group_cols == 0 &&
           s->scale[0].layout == OZ_SCALE_ROWS && s->smooth == NULL && s->static_scale == NULL;
}

static bool fits(int64_t cols)
{
    return cols % 8 == 0 && cols > 1024 && cols <= (int64_t)MOST_PARTS * 8 * THREADS;
}

/* x / scale, rounded once: an exact reciprocal's product, corrected by its remainder (Markstein). Finite x,
 * and scale and inverse = 1 / scale well inside f32's range. */
static __device__ inline float quotient(float x, float scale, float inverse)
{
    float q = x * inverse;
    return __fmaf_rn(__fmaf_rn(-q, scale, x), inverse, q);
}

/* Codes of two, as oz_fp8_divide makes them, by the unit that rounds alike. */
static __device__ inline uint32_t e4m3_pair(float low, float high, float scale, float inverse)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(pair)
        : "f"(quotient(high, scale, inverse)), "f"(quotient(low, scale, inverse)));
    return pair;
#else
    return oz_f32_to_e4m3(quotient(low, scale, inverse)) |
           (uint32_t)oz_f32_to_e4m3(quotient(high, scale, inverse)) << 8;
#endif
}

/* A row in registers to its format: parts [8] each, THREADS * 8 apart. A row that holds something that is
 * not finite goes element by element. */
template <int PARTS>
static __device__ inline void put_parts(const struct oz_act &out, int64_t row, float x[PARTS][8],
                                        double *room)
{
    if (out.spec.scale_count == 0) {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
            if (col < out.cols) {
                oz_store_8(out, row, col, x[p]);
            }
        }
        return;
    }
    float amax = 0;
    bool finite = true;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        if ((int64_t)(p * THREADS + threadIdx.x) * 8 < out.cols) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                amax = fmaxf(amax, fabsf(x[p][i]));
                finite = finite && fabsf(x[p][i]) <= 3.4028235e38F;
            }
        }
    }
    bool whole = __syncthreads_and(finite) != 0;
    if (!whole) {
        amax = 0;
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            bool bad = false;
            if ((int64_t)(p * THREADS + threadIdx.x) * 8 < out.cols) {
                amax = fmaxf(amax, oz_group_amax(x[p], 8, &bad));
            }
        }
    }
    amax = oz_row_reduce<THREADS, float, true>(amax, (float *)room);
    bool e4m3 = out.spec.dtype == OZ_DTYPE_F8_E4M3;
    float scale = e4m3 ? oz_fp8_channel_scale(amax) : whole ? amax / 127.0F : NAN;
    float inverse = 1.0F / scale;
    if (threadIdx.x == 0) {
        ((float *)out.scales[0])[row] = scale;
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        uint8_t *to = (uint8_t *)out.data + row * out.stride + col;
        uint32_t pairs[4];
        if (col >= out.cols) {
            continue;
        }
        if (e4m3 && !whole) {
            oz_fp8_divide(x[p], 8, scale, to);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float low = x[p][2 * i];
            float high = x[p][2 * i + 1];
            pairs[i] = e4m3 ? e4m3_pair(low, high, scale, inverse)
                            : (uint8_t)oz_int8_code(low, amax) |
                                  (uint32_t)(uint8_t)oz_int8_code(high, amax) << 8;
        }
        *(uint2 *)to = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
    }
}

/* As many parts as the row has. */
#define LAUNCH_PARTS(kernel, rows, cols, ...)                                               \
    do {                                                                                    \
        int parts_ = (int)(((cols) + 8 * THREADS - 1) / (8 * THREADS));                     \
        switch (parts_) {                                                                   \
        case 1: kernel<1><<<(unsigned)(rows), THREADS, 0, stream>>>(__VA_ARGS__); break;    \
        case 2: kernel<2><<<(unsigned)(rows), THREADS, 0, stream>>>(__VA_ARGS__); break;    \
        case 3:                                                                             \
        case 4: kernel<4><<<(unsigned)(rows), THREADS, 0, stream>>>(__VA_ARGS__); break;    \
        case 5:                                                                             \
        case 6: kernel<6><<<(unsigned)(rows), THREADS, 0, stream>>>(__VA_ARGS__); break;    \
        default: kernel<MOST_PARTS><<<(unsigned)(rows), THREADS, 0, stream>>>(__VA_ARGS__); \
        }                                                                                   \
        return (int)cudaGetLastError();                                                     \
    } while (0)

/* ---- rows to codes ---- */

template <int PARTS>
__global__ void __launch_bounds__(THREADS) quantize_row(const __grid_constant__ struct oz_act from,
                                                        const __grid_constant__ struct oz_act to)
{
    __shared__ double room[8];
    float x[PARTS][8];
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        if (col < from.cols) {
            oz_load_8(from, blockIdx.x, col, x[p]);
        }
    }
    put_parts<PARTS>(to, blockIdx.x, x, room);
}

bool oz_wide_takes_quant(const struct oz_act *x, const struct oz_act *out)
{
    return fits(x->cols) && oz_plain(&x->spec) && oz_aligned(x) && oz_aligned(out) &&
           (by_row(&out->spec) || oz_plain(&out->spec));
}

int oz_wide_quant(oz_cuda_stream stream, const struct oz_act *x, const struct oz_act *out,
                  int64_t rows)
{
    LAUNCH_PARTS(quantize_row, rows, x->cols, *x, *out);
}

/* ---- norm_mod ---- */

template <int PARTS>
__global__ void __launch_bounds__(THREADS)
    norm_row(const __grid_constant__ struct oz_cuda_norm_mod a)
{
    __shared__ double room[8];
    float x[PARTS][8];
    int64_t row = blockIdx.x;
    int64_t cols = a.x.cols;
    int64_t place = a.index != NULL ? a.index[row] : 0;
    bool half = a.x.spec.dtype == OZ_DTYPE_BF16; /* what is stored is what is normed */
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        if (col >= cols) {
            continue;
        }
        oz_load_8(a.x, row, col, x[p]);
        if (a.y.data != NULL) {
            float y[8], gate[8];
            oz_load_8(a.y, row, col, y);
            if (a.gate.data != NULL) {
                oz_load_f32(a.gate.data + place * a.gate.stride + col, gate);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x[p][i] += a.gate.data != NULL ? y[i] * gate[i] : y[i];
                x[p][i] = half ? oz_bf16_to_f32(oz_f32_to_bf16(x[p][i])) : x[p][i];
            }
            oz_store_8(a.x, row, col, x[p]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum += x[p][i];
        }
    }
    /* In f32: a thread adds few elements, the rest is a tree; the mean leaves before squares are taken. */
    float mean = 0;
    if (a.norm == OZ_NORM_LAYER) {
        mean = oz_row_reduce<THREADS, float, false>(sum, (float *)room) / (float)cols;
    }
    float squares = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        if ((int64_t)(p * THREADS + threadIdx.x) * 8 < cols) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float d = x[p][i] - mean;
                squares += d * d;
            }
        }
    }
    squares = oz_row_reduce<THREADS, float, false>(squares, (float *)room);
    float factor = 1.0F / sqrtf(squares / (float)cols + a.eps);
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        float weight[8], scale[8], shift[8];
        if (col >= cols) {
            continue;
        }
        if (a.weight != NULL) {
            oz_load_f32(a.weight + col, weight);
        }
        if (a.scale.data != NULL) {
            oz_load_f32(a.scale.data + place * a.scale.stride + col, scale);
        }
        if (a.shift.data != NULL) {
            oz_load_f32(a.shift.data + place * a.shift.stride + col, shift);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float n = (x[p][i] - mean) * factor;
            n = a.weight != NULL ? n * weight[i] : n;
            n = a.scale.data != NULL ? n * (1.0F + scale[i]) : n;
            x[p][i] = a.shift.data != NULL ? n + shift[i] : n;
        }
    }
    put_parts<PARTS>(a.out, row, x, room);
}

static bool mod_aligned(const struct oz_cuda_mod *m)
{
    return m->data == NULL || ((uintptr_t)m->data % 16 == 0 && m->stride % 4 == 0);
}

bool oz_wide_takes_norm(const struct oz_cuda_norm_mod *a)
{
    bool late = a->y.data == NULL || (a->mul.data == NULL && oz_plain(&a->y.spec) &&
                                      oz_aligned(&a->y) && mod_aligned(&a->gate));
    return fits(a->x.cols) && late && a->out.data != NULL && a->bias == NULL &&
           !a->weight_plus_one && a->fn == OZ_FN_NONE &&
           (a->norm == OZ_NORM_LAYER || a->norm == OZ_NORM_RMS) && oz_plain(&a->x.spec) &&
           oz_aligned(&a->x) && oz_aligned(&a->out) &&
           (by_row(&a->out.spec) || oz_plain(&a->out.spec)) && (uintptr_t)a->weight % 16 == 0 &&
           mod_aligned(&a->scale) && mod_aligned(&a->shift);
}

int oz_wide_norm(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a)
{
    LAUNCH_PARTS(norm_row, a->x.rows, a->x.cols, *a);
}

/* ---- residuals behind a product ---- */

__global__ void __launch_bounds__(THREADS)
    add_to_residual(const __grid_constant__ struct oz_cuda_linear_end a)
{
    int64_t row = blockIdx.y;
    int64_t col = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    float y[8], other[8];
    if (col >= a.cols) {
        return;
    }
    oz_load_f32((const float *)a.sums + row * a.sum_stride + col, y);
    if (a.col_scale != NULL) {
        float row_scale = a.row_scale != NULL ? a.row_scale[row * a.row_scale_stride] : 1.0F;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[i] = a.col_scale[(col + i) * a.col_scale_stride] * y[i];
            y[i] = a.row_scale != NULL ? row_scale * y[i] : y[i];
        }
    }
    if (a.bias != NULL) {
        oz_load_f32(a.bias + col, other);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[i] += other[i];
        }
    }
    if (a.gate.data != NULL) {
        oz_load_f32(a.gate.data + (a.index != NULL ? a.index[row] : 0) * a.gate.stride + col,
                    other);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[i] *= other[i];
        }
    }
    oz_load_8(a.residual, row, col, other);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        other[i] += y[i];
    }
    oz_store_8(a.residual, row, col, other);
}

bool oz_wide_takes_residual(const struct oz_cuda_linear_end *a)
{
    return a->residual.data != NULL && !a->residual_added && !a->integer && a->cols % 8 == 0 &&
           a->sum_stride % 8 == 0 && (uintptr_t)a->sums % 16 == 0 && oz_plain(&a->residual.spec) &&
           oz_aligned(&a->residual) && mod_aligned(&a->gate) && (uintptr_t)a->bias % 16 == 0 &&
           a->rows <= 65535;
}

int oz_wide_residual(oz_cuda_stream stream, const struct oz_cuda_linear_end *a)
{
    dim3 grid((unsigned)((a->cols + 8 * THREADS - 1) / (8 * THREADS)), (unsigned)a->rows);
    if (a->rows == 0 || a->cols == 0) {
        return 0;
    }
    add_to_residual<<<grid, THREADS, 0, stream>>>(*a);
    return (int)cudaGetLastError();
}

/* ---- rows behind a product ---- */

/* A row of sums, all of it under way before any is used. */
template <int PARTS>
static __device__ inline void load_sums(const struct oz_cuda_linear_end &a, int64_t row,
                                        float x[PARTS][8])
{
    uint4 raw[PARTS][2];
    int64_t at = row * a.sum_stride;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        if (col < a.cols && a.half_sums) {
            raw[p][0] = *(const uint4 *)((const uint16_t *)a.sums + at + col);
        } else if (col < a.cols) {
            raw[p][0] = ((const uint4 *)((const float *)a.sums + at + col))[0];
            raw[p][1] = ((const uint4 *)((const float *)a.sums + at + col))[1];
        }
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        const uint32_t words[8] = {raw[p][0].x, raw[p][0].y, raw[p][0].z, raw[p][0].w,
                                   raw[p][1].x, raw[p][1].y, raw[p][1].z, raw[p][1].w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[p][i] = a.half_sums ? oz_f32_from_bits(i % 2 == 0 ? words[i / 2] << 16
                                                                : words[i / 2] & 0xFFFF0000U)
                      : a.integer ? (float)(int32_t)words[i]
                                  : oz_f32_from_bits(words[i]);
        }
    }
}

/* gelu (tanh) as x / (1 + e^-2u), by the fast units: within 1e-6 of |x|, for rows that are rounded to 16
 * bits or fewer. */
static __device__ inline float quick_gelu(float x)
{
    /* 2 u log2(e) = x (2.3022082 + 0.1029432 x^2) */
    float power = -x * __fmaf_rn(x * x, 0.10294324F, 2.3022082F);
    float e;
    float inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(power));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0F + e));
    return x * inverse;
}

template <int PARTS>
__global__ void __launch_bounds__(THREADS)
    end_row(const __grid_constant__ struct oz_cuda_linear_end a)
{
    __shared__ double room[8];
    float x[PARTS][8];
    int64_t row = blockIdx.x;
    float row_scale = a.row_scale != NULL ? a.row_scale[row * a.row_scale_stride] : 1.0F;
    load_sums<PARTS>(a, row, x);
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        float other[8];
        if (col >= a.cols) {
            continue;
        }
        if (a.col_scale != NULL) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x[p][i] = a.col_scale[(col + i) * a.col_scale_stride] * x[p][i];
            }
        }
        if (a.row_scale != NULL) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x[p][i] = row_scale * x[p][i];
            }
        }
        if (a.bias != NULL) {
            oz_load_f32(a.bias + col, other);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x[p][i] += other[i];
            }
        }
        if (a.fn == OZ_FN_GELU_TANH && a.out.spec.dtype != OZ_DTYPE_F32) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x[p][i] = quick_gelu(x[p][i]);
            }
        } else if (a.fn != OZ_FN_NONE) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x[p][i] = oz_fn(a.fn, x[p][i]);
            }
        }
    }
    put_parts<PARTS>(a.out, row, x, room);
}

bool oz_wide_takes_end(const struct oz_cuda_linear_end *a)
{
    return a->residual.data == NULL && a->up_sums == NULL && a->out.data != NULL && fits(a->cols) &&
           a->sum_stride % 8 == 0 && (uintptr_t)a->sums % 16 == 0 && (uintptr_t)a->bias % 16 == 0 &&
           oz_aligned(&a->out) && (by_row(&a->out.spec) || oz_plain(&a->out.spec));
}

int oz_wide_end(oz_cuda_stream stream, const struct oz_cuda_linear_end *a)
{
    LAUNCH_PARTS(end_row, a->rows, a->cols, *a);
}

/* ---- rotation of heads ---- */

/* A warp for a head of 32 * PER features, PER of them in a lane; neighbours turn together. */
template <int PER>
__global__ void __launch_bounds__(THREADS) rope_pairs(const __grid_constant__ struct oz_cuda_rope a)
{
    /* In 32 bits: divisions of 64 take more instructions than all the rest. */
    unsigned unit = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    unsigned row = unit / (unsigned)a.heads;
    int feature = (int)(unit % (unsigned)a.heads) * a.head_dim + lane * PER;
    if (row >= (unsigned)a.x.rows) {
        return;
    }
    int64_t at = row * a.x.stride + feature;
    int64_t to = row * a.out.stride + feature;
    bool bf16 = a.x.spec.dtype == OZ_DTYPE_BF16;
    alignas(16) float x[PER];
    float squares = 0;
    if (bf16) {
#pragma unroll
        for (int i = 0; i < PER; i++) {
            x[i] = oz_bf16_to_f32(((const uint16_t *)a.x.data)[at + i]);
        }
    } else if (PER == 4) {
        *(float4 *)x = *(const float4 *)((const float *)a.x.data + at);
    } else {
        *(float2 *)x = *(const float2 *)((const float *)a.x.data + at);
    }
#pragma unroll
    for (int i = 0; i < PER; i++) {
        squares += x[i] * x[i];
    }
    if (a.weight != NULL) {
        squares = oz_row_reduce<32, float, false>(squares, NULL);
        float factor = 1.0F / sqrtf(squares / (float)a.head_dim + a.eps);
#pragma unroll
        for (int i = 0; i < PER; i++) {
            float w = a.weight[lane * PER + i];
            x[i] = x[i] * factor * (a.plus_one ? w + 1.0F : w);
        }
    }
    int64_t table = a.table_rows != NULL ? a.table_rows[row] : row;
    const float *cosines = (const float *)a.cosine.data + table * a.cosine.stride;
    const float *sines = (const float *)a.sine.data + table * a.sine.stride;
#pragma unroll
    for (int i = 0; i < PER / 2; i++) {
        int pair = lane * (PER / 2) + i;
        if (pair < a.pairs) {
            float cosine = cosines[pair];
            float sine = sines[pair];
            float turned = x[2 * i] * cosine - x[2 * i + 1] * sine;
            x[2 * i + 1] = x[2 * i] * sine + x[2 * i + 1] * cosine;
            x[2 * i] = turned;
        }
    }
    if (a.out.spec.dtype == OZ_DTYPE_F32) {
        if (PER == 4) {
            *(float4 *)((float *)a.out.data + to) = *(const float4 *)x;
        } else {
            *(float2 *)((float *)a.out.data + to) = *(const float2 *)x;
        }
        return;
    }
    alignas(8) uint32_t pairs[PER / 2];
#pragma unroll
    for (int i = 0; i < PER / 2; i++) {
        pairs[i] = oz_f32_to_bf16(x[2 * i]) | (uint32_t)oz_f32_to_bf16(x[2 * i + 1]) << 16;
    }
    if (PER == 4) {
        *(uint2 *)((uint16_t *)a.out.data + to) = *(const uint2 *)pairs;
    } else {
        *(uint32_t *)((uint16_t *)a.out.data + to) = pairs[0];
    }
}

bool oz_wide_takes_rope(const struct oz_cuda_rope *a)
{
    return (a->head_dim == 64 || a->head_dim == 128) && a->x.rows * a->heads < INT32_MAX &&
           a->kind == OZ_ROPE_PAIRS && oz_aligned(&a->x) && oz_aligned(&a->out) &&
           oz_plain(&a->x.spec) && oz_plain(&a->out.spec) && a->cosine.spec.dtype == OZ_DTYPE_F32 &&
           a->sine.spec.dtype == OZ_DTYPE_F32;
}

int oz_wide_rope(oz_cuda_stream stream, const struct oz_cuda_rope *a)
{
    int64_t blocks = (a->x.rows * a->heads + THREADS / 32 - 1) / (THREADS / 32);
    if (blocks == 0) {
        return 0;
    }
    if (a->head_dim == 128) {
        rope_pairs<4><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
    } else {
        rope_pairs<2><<<(unsigned)blocks, THREADS, 0, stream>>>(*a);
    }
    return (int)cudaGetLastError();
}
