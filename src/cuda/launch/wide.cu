/*
 * What large models do most, 8 or 16 bytes an access and rows in registers: norm and modulation, rows to
 * codes, residuals and gelu behind a product. Each says whether it takes the call, from layouts alone;
 * rows.cu does the rest, to the same numbers but for the order of sums.
 */
#include "cuda/device/wide.cuh"

#define THREADS 256

/* ---- norm_mod ---- */

/* 4 neighbours of a row of F32 or BF16, as they lie there. */
static __device__ inline uint4 raw_4(const uint8_t *row, bool half, unsigned unit)
{
    uint4 v;
    if (half) {
        uint2 pair = ((const uint2 *)row)[unit];
        v.x = pair.x, v.y = pair.y;
    } else {
        v = ((const uint4 *)row)[unit];
    }
    return v;
}

static __device__ inline void floats_4(uint4 v, bool half, float x[4])
{
    if (half) {
        x[0] = oz_f32_from_bits(v.x << 16), x[1] = oz_f32_from_bits(v.x & 0xFFFF0000U);
        x[2] = oz_f32_from_bits(v.y << 16), x[3] = oz_f32_from_bits(v.y & 0xFFFF0000U);
    } else {
        x[0] = oz_f32_from_bits(v.x), x[1] = oz_f32_from_bits(v.y);
        x[2] = oz_f32_from_bits(v.z), x[3] = oz_f32_from_bits(v.w);
    }
}

static __device__ inline void load_4(const float *from, unsigned unit, float x[4])
{
    float4 v = ((const float4 *)from)[unit];
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

/* A row, and y added to it and stored again; all loads are under way before any is used. */
template <int PARTS>
static __device__ inline void take_row(const struct oz_cuda_norm_mod &a, int64_t row, int64_t place,
                                       float x[PARTS][4])
{
    const bool half = a.x.spec.dtype == OZ_DTYPE_BF16; /* what is stored is what is normed */
    const bool y_half = a.y.spec.dtype == OZ_DTYPE_BF16;
    const unsigned units = (unsigned)a.x.cols / 4;
    uint8_t *x_row = (uint8_t *)a.x.data + row * a.x.stride * (half ? 2 : 4);
    const uint8_t *y_row = (const uint8_t *)a.y.data + row * a.y.stride * (y_half ? 2 : 4);
    uint4 raw[PARTS];
    uint4 y_raw[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        unsigned unit = p * blockDim.x + threadIdx.x;
        if (unit < units) {
            raw[p] = raw_4(x_row, half, unit);
        }
    }
    if (a.y.data != NULL) {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            unsigned unit = p * blockDim.x + threadIdx.x;
            if (unit < units) {
                y_raw[p] = raw_4(y_row, y_half, unit);
            }
        }
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        unsigned unit = p * blockDim.x + threadIdx.x;
        float gate[4] = {1.0F, 1.0F, 1.0F, 1.0F};
        float y[4];
        if (unit >= units) {
            continue;
        }
        floats_4(raw[p], half, x[p]);
        if (a.y.data == NULL) {
            continue;
        }
        floats_4(y_raw[p], y_half, y);
        if (a.gate.data != NULL) {
            load_4(a.gate.data + place * a.gate.stride, unit, gate);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[p][i] = __fmaf_rn(y[i], gate[i], x[p][i]);
            x[p][i] = half ? oz_bf16_to_f32(oz_f32_to_bf16(x[p][i])) : x[p][i];
        }
        oz_store_unit<4>(x_row, half, unit * 4, x[p]);
    }
}

/* Mean and one over the deviation of a row. In f32: a thread adds few elements, the rest is a tree; the mean
 * leaves before squares are taken. */
template <int PARTS>
static __device__ inline void row_moments(const struct oz_cuda_norm_mod &a, const float x[PARTS][4],
                                          float *mean, float *factor)
{
    __shared__ float room[2][32];
    const unsigned units = (unsigned)a.x.cols / 4;
    const float part = 1.0F / (float)a.x.cols;
    *mean = 0;
    if (a.norm == OZ_NORM_LAYER) {
        float sum = 0;
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            if (p * blockDim.x + threadIdx.x < units) {
                sum += (x[p][0] + x[p][1]) + (x[p][2] + x[p][3]);
            }
        }
        *mean = oz_block_sum(sum, room[0]) * part;
    }
    float squares = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        if (p * blockDim.x + threadIdx.x < units) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float d = x[p][i] - *mean;
                squares = __fmaf_rn(d, d, squares);
            }
        }
    }
    squares = oz_block_sum(squares, room[1]);
    *factor = 1.0F / sqrtf(squares * part + a.eps);
}

template <int PARTS>
__global__ void __launch_bounds__(THREADS)
    norm_row(const __grid_constant__ struct oz_cuda_norm_mod a)
{
    __shared__ uint32_t room[2][32];
    const unsigned units = (unsigned)a.x.cols / 4;
    int64_t row = blockIdx.x;
    int64_t place = a.index != NULL ? a.index[row] : 0;
    float x[PARTS][4];
    float mean;
    float factor;
    take_row<PARTS>(a, row, place, x);
    row_moments<PARTS>(a, x, &mean, &factor);
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        unsigned unit = p * blockDim.x + threadIdx.x;
        float scale[4] = {0};
        float shift[4] = {0};
        if (unit >= units) {
            continue;
        }
        if (a.scale.data != NULL) {
            load_4(a.scale.data + place * a.scale.stride, unit, scale);
        }
        if (a.shift.data != NULL) {
            load_4(a.shift.data + place * a.shift.stride, unit, shift);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[p][i] = (x[p][i] - mean) * factor;
        }
        if (a.weight != NULL) {
            float weight[4];
            load_4(a.weight, unit, weight);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[p][i] *= weight[i];
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[p][i] = __fmaf_rn(x[p][i], 1.0F + scale[i], shift[i]);
        }
    }
    oz_put_parts<PARTS, 4>(a.out, row, x, false, room[0], room[1]);
}

static bool mod_aligned(const struct oz_cuda_mod *m)
{
    return m->data == NULL || ((uintptr_t)m->data % 16 == 0 && m->stride % 4 == 0);
}

bool oz_wide_takes_norm(const struct oz_cuda_norm_mod *a)
{
    bool late = a->y.data == NULL || (a->mul.data == NULL && oz_plain(&a->y.spec) &&
                                      oz_aligned(&a->y) && mod_aligned(&a->gate));
    return oz_wide_fits(a->x.cols) && late && a->out.data != NULL && a->bias == NULL &&
           !a->weight_plus_one && a->fn == OZ_FN_NONE &&
           (a->norm == OZ_NORM_LAYER || a->norm == OZ_NORM_RMS) && oz_plain(&a->x.spec) &&
           oz_aligned(&a->x) && oz_aligned(&a->out) &&
           (oz_codes_by_row(&a->out.spec) || oz_plain(&a->out.spec)) &&
           (uintptr_t)a->weight % 16 == 0 && mod_aligned(&a->scale) && mod_aligned(&a->shift);
}

#define LAUNCH_NORM(parts) norm_row<parts><<<(unsigned)a->x.rows, s.threads, 0, stream>>>(*a)

int oz_wide_norm(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a)
{
    if (oz_usual_takes_norm(a)) {
        return oz_usual_norm(stream, a);
    }
    const struct oz_shape s = oz_shape_of(a->x.cols / 4, THREADS);
    switch (s.parts) {
    case 1: LAUNCH_NORM(1); break;
    case 2: LAUNCH_NORM(2); break;
    case 3: LAUNCH_NORM(3); break;
    case 4: LAUNCH_NORM(4); break;
    case 5:
    case 6: LAUNCH_NORM(6); break;
    case 7:
    case 8: LAUNCH_NORM(8); break;
    default: LAUNCH_NORM(16); break;
    }
    return (int)cudaGetLastError();
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

#define END_THREADS 512

/* Asks for a row of sums, where there is one; an empty group counts too. */
template <int PARTS>
static __device__ inline void fetch_row(const struct oz_cuda_linear_end &a, int64_t row, uint4 *to)
{
    const int pieces = a.half_sums ? 1 : 2; /* of 16 bytes, for 8 elements */
    if (row < a.rows) {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            unsigned unit = p * blockDim.x + threadIdx.x;
            int64_t at = row * a.sum_stride + unit * 8;
            if (unit * 8 >= a.cols) {
                continue;
            }
            const uint4 *from = a.half_sums ? (const uint4 *)((const uint16_t *)a.sums + at)
                                            : (const uint4 *)((const uint32_t *)a.sums + at);
            for (int i = 0; i < pieces; i++) {
                oz_fetch_16(to + (p * pieces + i) * blockDim.x + threadIdx.x, from + i);
            }
        }
    }
    oz_fetched();
}

/* 8 sums of a part that has come. */
static __device__ inline void take_sums(const struct oz_cuda_linear_end &a, const uint4 *from,
                                        int part, float x[8])
{
    if (a.half_sums) {
        uint4 v = from[part * blockDim.x + threadIdx.x];
        const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = oz_f32_from_bits(pairs[i] << 16);
            x[2 * i + 1] = oz_f32_from_bits(pairs[i] & 0xFFFF0000U);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint4 v = from[(2 * part + j) * blockDim.x + threadIdx.x];
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[4 * j + i] = a.integer ? (float)(int32_t)words[i] : oz_f32_from_bits(words[i]);
        }
    }
}

/* Scales, bias, fn. */
static __device__ inline void finish_8(const struct oz_cuda_linear_end &a, int64_t col,
                                       float row_scale, float x[8])
{
    if (a.col_scale != NULL) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] = a.col_scale[(col + i) * a.col_scale_stride] * x[i];
        }
    }
    if (a.row_scale != NULL) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] = row_scale * x[i];
        }
    }
    if (a.bias != NULL) {
        float bias[8];
        oz_load_f32(a.bias + col, bias);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] += bias[i];
        }
    }
    if (a.fn == OZ_FN_GELU_TANH && a.out.spec.dtype != OZ_DTYPE_F32) {
        oz_quick_gelu(x);
        oz_quick_gelu(x + 4);
    } else if (a.fn != OZ_FN_NONE) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] = oz_fn(a.fn, x[i]);
        }
    }
}

template <int PARTS>
__global__ void __launch_bounds__(END_THREADS, PARTS <= 3 ? 2 : 1)
    end_row(const __grid_constant__ struct oz_cuda_linear_end a, int stages)
{
    extern __shared__ __align__(16) uint8_t waiting[];
    __shared__ uint32_t room[2][2][32];
    const unsigned stage_bytes = (a.half_sums ? 1 : 2) * PARTS * blockDim.x * 16;
    const bool near = a.fn != OZ_FN_NONE;
    int stage = 0;
    int turn = 0;
    for (int i = 0; i < stages - 1; i++) {
        fetch_row<PARTS>(a, blockIdx.x + (int64_t)i * gridDim.x,
                         (uint4 *)(waiting + i * stage_bytes));
    }
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        float x[PARTS][8];
        int last = stage == 0 ? stages - 1 : stage - 1; /* what lay there has been used */
        float row_scale = a.row_scale != NULL ? a.row_scale[row * a.row_scale_stride] : 1.0F;
        fetch_row<PARTS>(a, row + (int64_t)(stages - 1) * gridDim.x,
                         (uint4 *)(waiting + last * stage_bytes));
        oz_wait_for_row(stages);
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            int64_t col = (p * blockDim.x + threadIdx.x) * 8;
            if (col < a.cols) {
                take_sums(a, (const uint4 *)(waiting + stage * stage_bytes), p, x[p]);
                finish_8(a, col, row_scale, x[p]);
            }
        }
        oz_put_parts<PARTS, 8>(a.out, row, x, near, room[turn][0], room[turn][1]);
        stage = stage + 1 < stages ? stage + 1 : 0;
        turn ^= 1;
    }
}

bool oz_wide_takes_end(const struct oz_cuda_linear_end *a)
{
    return a->residual.data == NULL && a->up_sums == NULL && a->out.data != NULL &&
           oz_wide_fits(a->cols) && a->sum_stride % 8 == 0 && (uintptr_t)a->sums % 16 == 0 &&
           (uintptr_t)a->bias % 16 == 0 && oz_aligned(&a->out) &&
           (oz_codes_by_row(&a->out.spec) || oz_plain(&a->out.spec));
}

int oz_wide_end(oz_cuda_stream stream, const struct oz_cuda_linear_end *a)
{
    if (oz_usual_takes_end(a)) {
        return oz_usual_end(stream, a);
    }
    struct oz_shape s = oz_shape_of(a->cols / 8, END_THREADS);
    const int unit_bytes = a->half_sums ? 16 : 32;
    s.parts = s.parts > 4 ? 6 : s.parts;
    switch (s.parts) {
    case 1: OZ_LAUNCH_PIPELINE(end_row<1>, a->rows, s, 1024, unit_bytes, *a);
    case 2: OZ_LAUNCH_PIPELINE(end_row<2>, a->rows, s, 1024, unit_bytes, *a);
    case 3: OZ_LAUNCH_PIPELINE(end_row<3>, a->rows, s, 1024, unit_bytes, *a);
    case 4: OZ_LAUNCH_PIPELINE(end_row<4>, a->rows, s, 512, unit_bytes, *a);
    default: OZ_LAUNCH_PIPELINE(end_row<6>, a->rows, s, 512, unit_bytes, *a);
    }
}

/* ---- rows to codes: an end without anything before it ---- */

bool oz_wide_takes_quant(const struct oz_act *x, const struct oz_act *out)
{
    return oz_wide_fits(x->cols) && oz_plain(&x->spec) && oz_aligned(x) && oz_aligned(out) &&
           (oz_codes_by_row(&out->spec) || oz_plain(&out->spec));
}

int oz_wide_quant(oz_cuda_stream stream, const struct oz_act *x, const struct oz_act *out,
                  int64_t rows)
{
    const struct oz_cuda_linear_end end = {.sums = x->data,
                                           .half_sums = x->spec.dtype == OZ_DTYPE_BF16,
                                           .rows = rows,
                                           .cols = x->cols,
                                           .sum_stride = x->stride,
                                           .out = *out};
    return oz_wide_end(stream, &end);
}
