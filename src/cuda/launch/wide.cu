/*
 * What large models do most, 16 bytes an access and rows in registers: norm and modulation, rows to
 * codes, residuals behind a product, rotation of heads. Each says whether it takes the call, from
 * layouts alone; rows.cu and small.cu do the rest, to the same numbers but for the order of sums.
 */
#include "cuda/device/rows.cuh"

#define THREADS 256
#define MOST_PARTS 8 /* of a row, 8 elements each, in a thread */

static bool aligned(const struct oz_act *a)
{
    return (uintptr_t)a->data % 16 == 0 && a->stride % 8 == 0;
}

static bool plain(const struct oz_act_spec *s)
{
    return (s->dtype == OZ_DTYPE_F32 || s->dtype == OZ_DTYPE_BF16) && s->scale_count == 0 &&
           s->smooth == NULL;
}

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

/* ---- eight elements ---- */

static __device__ inline void load_8(const struct oz_act &a, int64_t row, int64_t col, float x[8])
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

static __device__ inline void load_f32(const float *from, float x[8])
{
    float4 low = ((const float4 *)from)[0];
    float4 high = ((const float4 *)from)[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

static __device__ inline void store_8(const struct oz_act &a, int64_t row, int64_t col,
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
            pairs[i] = oz_f32_to_bf16(x[2 * i]) | (uint32_t)oz_f32_to_bf16(x[2 * i + 1]) << 16;
        }
        *(uint4 *)((uint16_t *)a.data + at) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

/* A row in registers to its format: parts [8] each, THREADS * 8 apart. */
template <int PARTS>
static __device__ inline void put_parts(const struct oz_act &out, int64_t row, float x[PARTS][8],
                                        double *room)
{
    if (out.spec.scale_count == 0) {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
            if (col < out.cols) {
                store_8(out, row, col, x[p]);
            }
        }
        return;
    }
    float amax = 0;
    float worst = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        if ((int64_t)(p * THREADS + threadIdx.x) * 8 < out.cols) {
            bool bad = false;
            float part = oz_group_amax(x[p], 8, &bad);
            amax = part > amax ? part : amax;
            worst = bad ? 1.0F : worst;
        }
    }
    amax = oz_row_reduce<THREADS, float, true>(amax, (float *)room);
    worst = oz_row_reduce<THREADS, float, true>(worst, (float *)room);
    bool e4m3 = out.spec.dtype == OZ_DTYPE_F8_E4M3;
    float scale = e4m3 ? oz_fp8_channel_scale(amax) : worst > 0 ? NAN : amax / 127.0F;
    if (threadIdx.x == 0) {
        ((float *)out.scales[0])[row] = scale;
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        uint8_t codes[8];
        if (col < out.cols) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                if (e4m3) {
                    oz_fp8_divide(&x[p][i], 1, scale, &codes[i]);
                } else {
                    codes[i] = (uint8_t)oz_int8_code(x[p][i], amax);
                }
            }
            uint2 word;
            word.x = codes[0] | codes[1] << 8 | codes[2] << 16 | (uint32_t)codes[3] << 24;
            word.y = codes[4] | codes[5] << 8 | codes[6] << 16 | (uint32_t)codes[7] << 24;
            *(uint2 *)((uint8_t *)out.data + row * out.stride + col) = word;
        }
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
            load_8(from, blockIdx.x, col, x[p]);
        }
    }
    put_parts<PARTS>(to, blockIdx.x, x, room);
}

bool oz_wide_takes_quant(const struct oz_act *x, const struct oz_act *out)
{
    return fits(x->cols) && plain(&x->spec) && aligned(x) && aligned(out) &&
           (by_row(&out->spec) || plain(&out->spec));
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
    double sum = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        if (col < cols) {
            load_8(a.x, row, col, x[p]);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum += (double)x[p][i];
            }
        }
    }
    double mean = 0;
    if (a.norm == OZ_NORM_LAYER) {
        mean = oz_row_reduce<THREADS, double, false>(sum, room) / (double)cols;
    }
    double squares = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        if ((int64_t)(p * THREADS + threadIdx.x) * 8 < cols) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                double d = (double)x[p][i] - mean;
                squares += d * d;
            }
        }
    }
    squares = oz_row_reduce<THREADS, double, false>(squares, room);
    double factor = 1 / sqrt(squares / (double)cols + (double)a.eps);
    int64_t place = a.index != NULL ? a.index[row] : 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * THREADS + threadIdx.x) * 8;
        float weight[8], scale[8], shift[8];
        if (col >= cols) {
            continue;
        }
        if (a.weight != NULL) {
            load_f32(a.weight + col, weight);
        }
        if (a.scale.data != NULL) {
            load_f32(a.scale.data + place * a.scale.stride + col, scale);
        }
        if (a.shift.data != NULL) {
            load_f32(a.shift.data + place * a.shift.stride + col, shift);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float n = (float)(((double)x[p][i] - mean) * factor);
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
    return fits(a->x.cols) && a->y.data == NULL && a->bias == NULL && !a->weight_plus_one &&
           a->fn == OZ_FN_NONE && (a->norm == OZ_NORM_LAYER || a->norm == OZ_NORM_RMS) &&
           plain(&a->x.spec) && aligned(&a->x) && aligned(&a->out) &&
           (by_row(&a->out.spec) || plain(&a->out.spec)) && (uintptr_t)a->weight % 16 == 0 &&
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
    load_f32((const float *)a.sums + row * a.sum_stride + col, y);
    if (a.col_scale != NULL) {
        float row_scale = a.row_scale != NULL ? a.row_scale[row * a.row_scale_stride] : 1.0F;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[i] = a.col_scale[(col + i) * a.col_scale_stride] * y[i];
            y[i] = a.row_scale != NULL ? row_scale * y[i] : y[i];
        }
    }
    if (a.bias != NULL) {
        load_f32(a.bias + col, other);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[i] += other[i];
        }
    }
    if (a.gate.data != NULL) {
        load_f32(a.gate.data + (a.index != NULL ? a.index[row] : 0) * a.gate.stride + col, other);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[i] *= other[i];
        }
    }
    load_8(a.residual, row, col, other);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        other[i] += y[i];
    }
    store_8(a.residual, row, col, other);
}

bool oz_wide_takes_residual(const struct oz_cuda_linear_end *a)
{
    return a->residual.data != NULL && !a->residual_added && !a->integer && a->cols % 8 == 0 &&
           a->sum_stride % 8 == 0 && (uintptr_t)a->sums % 16 == 0 && plain(&a->residual.spec) &&
           aligned(&a->residual) && mod_aligned(&a->gate) && (uintptr_t)a->bias % 16 == 0 &&
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

/* ---- rotation of heads ---- */

/* A warp for a head of 32 * PER features, PER of them in a lane; neighbours turn together. */
template <int PER>
__global__ void __launch_bounds__(THREADS) rope_pairs(const __grid_constant__ struct oz_cuda_rope a)
{
    int64_t unit = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (unit >= a.x.rows * a.heads) {
        return;
    }
    int64_t row = unit / a.heads;
    int64_t at = row * a.x.stride + unit % a.heads * a.head_dim + lane * PER;
    bool bf16 = a.x.spec.dtype == OZ_DTYPE_BF16;
    float x[PER];
    double squares = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        x[i] = bf16 ? oz_bf16_to_f32(((const uint16_t *)a.x.data)[at + i])
                    : ((const float *)a.x.data)[at + i];
        squares += (double)x[i] * (double)x[i];
    }
    if (a.weight != NULL) {
        squares = oz_row_reduce<32, double, false>(squares, NULL);
        double factor = 1 / sqrt(squares / (double)a.head_dim + (double)a.eps);
#pragma unroll
        for (int i = 0; i < PER; i++) {
            float w = a.weight[lane * PER + i];
            x[i] = (float)((double)x[i] * factor) * (a.plus_one ? w + 1.0F : w);
        }
    }
    int64_t table = a.table_rows != NULL ? a.table_rows[row] : row;
#pragma unroll
    for (int i = 0; i < PER / 2; i++) {
        int64_t pair = lane * (PER / 2) + i;
        if (pair < a.pairs) {
            float cosine = ((const float *)a.cosine.data)[table * a.cosine.stride + pair];
            float sine = ((const float *)a.sine.data)[table * a.sine.stride + pair];
            float turned = x[2 * i] * cosine - x[2 * i + 1] * sine;
            x[2 * i + 1] = x[2 * i] * sine + x[2 * i + 1] * cosine;
            x[2 * i] = turned;
        }
    }
    if (!bf16) {
#pragma unroll
        for (int i = 0; i < PER; i++) {
            ((float *)a.x.data)[at + i] = x[i];
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < PER / 2; i++) {
        ((uint32_t *)((uint16_t *)a.x.data + at))[i] =
            oz_f32_to_bf16(x[2 * i]) | (uint32_t)oz_f32_to_bf16(x[2 * i + 1]) << 16;
    }
}

bool oz_wide_takes_rope(const struct oz_cuda_rope *a)
{
    return (a->head_dim == 64 || a->head_dim == 128) && a->kind == OZ_ROPE_PAIRS &&
           aligned(&a->x) && a->cosine.spec.dtype == OZ_DTYPE_F32 &&
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
