/*
 * The layouts that transformers have in every block, with nothing left to decide while a kernel runs: rows
 * that divide evenly among a block's threads, a modulated layer norm of f32 rows with a late residual of
 * bf16, bf16 rows to codes with or without gelu. wide.cu asks here first, and does what is not so usual to
 * the same numbers, but for the order of sums.
 */
#include "cuda/device/wide.cuh"

#define THREADS 256
#define END_THREADS 512

enum format { HALF, E4M3, S8 };

static bool format_of(const struct oz_act *a, enum format *out)
{
    *out = a->spec.dtype == OZ_DTYPE_BF16 ? HALF : a->spec.dtype == OZ_DTYPE_F8_E4M3 ? E4M3 : S8;
    return oz_aligned(a) && ((oz_plain(&a->spec) && *out == HALF) || oz_codes_by_row(&a->spec));
}

/* ---- rows in registers to their format ---- */

/* UNIT neighbours. */
template <int UNIT, enum format OUT, bool NEAR>
static __device__ inline void put_unit(const struct oz_scaling &s, const float *x, uint8_t *to)
{
    uint32_t words[UNIT / 2];
    if (OUT != HALF && !s.usual) {
        float copy[UNIT];
#pragma unroll
        for (int i = 0; i < UNIT; i++) {
            copy[i] = x[i];
        }
        oz_unusual_codes(&s, copy, UNIT, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < UNIT / 2; i++) {
        float low = x[2 * i];
        float high = x[2 * i + 1];
        words[i] = OUT == HALF ? oz_bf16_pair(low, high)
                   : OUT == S8 ? oz_s8_pair(low * s.inverse, high * s.inverse)
                   : NEAR      ? oz_e4m3_pair(low * s.inverse, high * s.inverse)
                               : oz_e4m3_pair(oz_quotient(low, s.scale, s.inverse),
                                              oz_quotient(high, s.scale, s.inverse));
    }
    if (OUT == HALF && UNIT == 8) {
        *(uint4 *)to = make_uint4(words[0], words[1], words[UNIT / 2 - 2], words[UNIT / 2 - 1]);
    } else if (OUT == HALF) {
        *(uint2 *)to = make_uint2(words[0], words[1]);
    } else if (UNIT == 8) {
        *(uint2 *)to =
            make_uint2(words[0] | words[1] << 16, words[UNIT / 2 - 2] | words[UNIT / 2 - 1] << 16);
    } else {
        *(uint32_t *)to = words[0] | words[1] << 16;
    }
}

/* A row, UNIT elements in each of PARTS pieces that lie a block apart. */
template <int PARTS, int UNIT, enum format OUT, bool NEAR>
static __device__ inline void put_row(const struct oz_act &out, int64_t row, const float *x,
                                      uint32_t *room, uint32_t *room_again)
{
    const int size = OUT == HALF ? 2 : 1;
    uint8_t *to = (uint8_t *)out.data + (row * out.stride + threadIdx.x * UNIT) * size;
    struct oz_scaling s;
    if (OUT != HALF) {
        s = oz_scale_row<PARTS, UNIT, true>(out, row, x, OUT == E4M3, room, room_again);
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        put_unit<UNIT, OUT, NEAR>(s, x + p * UNIT, to + p * blockDim.x * UNIT * size);
    }
}

/* ---- norm_mod ---- */

static __device__ inline void put_floats(float4 v, float *x)
{
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

/* x, and gate y added to it and stored again; all loads are under way before any is used. */
template <int PARTS, bool LATE>
static __device__ inline void take_row(const struct oz_cuda_norm_mod &a, int64_t row, int64_t place,
                                       float *x)
{
    float4 *at = (float4 *)a.x.data + row * (a.x.stride / 4) + threadIdx.x;
    const uint2 *y = (const uint2 *)a.y.data + row * (a.y.stride / 4) + threadIdx.x;
    const float4 *gate = (const float4 *)(a.gate.data + place * a.gate.stride) + threadIdx.x;
    float4 v[PARTS];
    uint2 w[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        v[p] = at[p * blockDim.x];
    }
#pragma unroll
    for (int p = 0; p < PARTS && LATE; p++) {
        w[p] = y[p * blockDim.x];
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        if (LATE) {
            float4 g = gate[p * blockDim.x];
            v[p].x = __fmaf_rn(oz_f32_from_bits(w[p].x << 16), g.x, v[p].x);
            v[p].y = __fmaf_rn(oz_f32_from_bits(w[p].x & 0xFFFF0000U), g.y, v[p].y);
            v[p].z = __fmaf_rn(oz_f32_from_bits(w[p].y << 16), g.z, v[p].z);
            v[p].w = __fmaf_rn(oz_f32_from_bits(w[p].y & 0xFFFF0000U), g.w, v[p].w);
            at[p * blockDim.x] = v[p];
        }
        put_floats(v[p], x + 4 * p);
    }
}

template <int PARTS, bool LATE, enum format OUT>
__global__ void __launch_bounds__(THREADS)
    norm_usual(const __grid_constant__ struct oz_cuda_norm_mod a)
{
    __shared__ float sums[2][32];
    __shared__ uint32_t room[2][32];
    const int64_t row = blockIdx.x;
    const int64_t place = a.index != NULL ? a.index[row] : 0;
    const float4 *scale = (const float4 *)(a.scale.data + place * a.scale.stride) + threadIdx.x;
    const float4 *shift = (const float4 *)(a.shift.data + place * a.shift.stride) + threadIdx.x;
    const float part = 1.0F / (float)(PARTS * 4 * blockDim.x);
    float x[PARTS * 4];
    take_row<PARTS, LATE>(a, row, place, x);
    /* In f32: a thread adds few elements, the rest is a tree; the mean leaves before squares are taken. */
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PARTS * 4; i += 4) {
        sum += (x[i] + x[i + 1]) + (x[i + 2] + x[i + 3]);
    }
    const float mean = oz_block_sum(sum, sums[0]) * part;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < PARTS * 4; i++) {
        x[i] -= mean;
        squares = __fmaf_rn(x[i], x[i], squares);
    }
    squares = oz_block_sum(squares, sums[1]);
    const float factor = 1.0F / sqrtf(squares * part + a.eps);
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        float by[4];
        float plus[4];
        put_floats(scale[p * blockDim.x], by);
        put_floats(shift[p * blockDim.x], plus);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[4 * p + i] = __fmaf_rn(x[4 * p + i] * factor, 1.0F + by[i], plus[i]);
        }
    }
    put_row<PARTS, 4, OUT, false>(a.out, row, x, room[0], room[1]);
}

/* In 2, 3, 4 or 6 parts, with no thread idle. */
static bool divides(int64_t units, int64_t most_threads, struct oz_shape *s)
{
    *s = oz_shape_of(units, most_threads);
    return s->parts * (int64_t)s->threads == units && s->parts > 1 && s->parts != 5 &&
           s->parts <= 6;
}

bool oz_usual_takes_norm(const struct oz_cuda_norm_mod *a)
{
    enum format out;
    struct oz_shape s;
    return oz_wide_takes_norm(a) && a->norm == OZ_NORM_LAYER && a->weight == NULL &&
           a->scale.data != NULL && a->shift.data != NULL && a->x.spec.dtype == OZ_DTYPE_F32 &&
           (a->y.data == NULL || (a->y.spec.dtype == OZ_DTYPE_BF16 && a->gate.data != NULL)) &&
           format_of(&a->out, &out) && divides(a->x.cols / 4, THREADS, &s);
}

#define NORM(parts, out)                                                                  \
    (a->y.data != NULL ? norm_usual<parts, true, out><<<rows, s.threads, 0, stream>>>(*a) \
                       : norm_usual<parts, false, out><<<rows, s.threads, 0, stream>>>(*a))
#define NORM_OF(out)                  \
    do {                              \
        switch (s.parts) {            \
        case 2: NORM(2, out); break;  \
        case 3: NORM(3, out); break;  \
        case 4: NORM(4, out); break;  \
        default: NORM(6, out); break; \
        }                             \
    } while (0)

int oz_usual_norm(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a)
{
    const unsigned rows = (unsigned)a->x.rows;
    enum format out;
    struct oz_shape s;
    (void)format_of(&a->out, &out);
    (void)divides(a->x.cols / 4, THREADS, &s);
    if (out == HALF) {
        NORM_OF(HALF);
    } else if (out == E4M3) {
        NORM_OF(E4M3);
    } else {
        NORM_OF(S8);
    }
    return (int)cudaGetLastError();
}

/* ---- bf16 rows, through gelu or not, to their format ---- */

/* Asks for a row, where there is one; an empty group counts too. */
template <int PARTS>
static __device__ inline void fetch_row(const struct oz_cuda_linear_end &a, int64_t row, uint4 *to)
{
    if (row < a.rows) {
        const uint4 *from = (const uint4 *)a.sums + row * (a.sum_stride / 8) + threadIdx.x;
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            oz_fetch_16(to + p * blockDim.x, from + p * blockDim.x);
        }
    }
    oz_fetched();
}

template <int PARTS, bool GELU, enum format OUT>
__global__ void __launch_bounds__(END_THREADS, PARTS <= 3 ? 2 : 1)
    end_usual(const __grid_constant__ struct oz_cuda_linear_end a, int stages)
{
    extern __shared__ uint4 waiting[];
    __shared__ uint32_t room[2][2][32];
    const unsigned stage_units = PARTS * blockDim.x;
    int stage = 0;
    int turn = 0;
    for (int i = 0; i < stages - 1; i++) {
        fetch_row<PARTS>(a, blockIdx.x + (int64_t)i * gridDim.x,
                         waiting + i * stage_units + threadIdx.x);
    }
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        float x[PARTS * 8];
        int last = stage == 0 ? stages - 1 : stage - 1; /* what lay there has been used */
        fetch_row<PARTS>(a, row + (int64_t)(stages - 1) * gridDim.x,
                         waiting + last * stage_units + threadIdx.x);
        oz_wait_for_row(stages);
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            uint4 v = waiting[stage * stage_units + p * blockDim.x + threadIdx.x];
            const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[8 * p + 2 * i] = oz_f32_from_bits(pairs[i] << 16);
                x[8 * p + 2 * i + 1] = oz_f32_from_bits(pairs[i] & 0xFFFF0000U);
            }
            if (GELU) {
                oz_quick_gelu(x + 8 * p);
                oz_quick_gelu(x + 8 * p + 4);
            }
        }
        put_row<PARTS, 8, OUT, GELU>(a.out, row, x, room[turn][0], room[turn][1]);
        stage = stage + 1 < stages ? stage + 1 : 0;
        turn ^= 1;
    }
}

bool oz_usual_takes_end(const struct oz_cuda_linear_end *a)
{
    enum format out;
    struct oz_shape s;
    return oz_wide_takes_end(a) && a->half_sums && a->bias == NULL && a->col_scale == NULL &&
           a->row_scale == NULL && (a->fn == OZ_FN_NONE || a->fn == OZ_FN_GELU_TANH) &&
           format_of(&a->out, &out) && divides(a->cols / 8, END_THREADS, &s);
}

template <int PARTS, bool GELU, enum format OUT>
static int launch_end(oz_cuda_stream stream, const struct oz_cuda_linear_end *a, struct oz_shape s)
{
    OZ_LAUNCH_PIPELINE((end_usual<PARTS, GELU, OUT>), a->rows, s, PARTS <= 3 ? 1024 : 512, 16, *a);
}

template <bool GELU, enum format OUT>
static int end_in_parts(oz_cuda_stream stream, const struct oz_cuda_linear_end *a,
                        struct oz_shape s)
{
    switch (s.parts) {
    case 2: return launch_end<2, GELU, OUT>(stream, a, s);
    case 3: return launch_end<3, GELU, OUT>(stream, a, s);
    case 4: return launch_end<4, GELU, OUT>(stream, a, s);
    default: return launch_end<6, GELU, OUT>(stream, a, s);
    }
}

int oz_usual_end(oz_cuda_stream stream, const struct oz_cuda_linear_end *a)
{
    const bool gelu = a->fn == OZ_FN_GELU_TANH;
    enum format out;
    struct oz_shape s;
    (void)format_of(&a->out, &out);
    (void)divides(a->cols / 8, END_THREADS, &s);
    return out == HALF   ? gelu ? end_in_parts<true, HALF>(stream, a, s)
                                : end_in_parts<false, HALF>(stream, a, s)
             : out == E4M3 ? gelu ? end_in_parts<true, E4M3>(stream, a, s)
                                  : end_in_parts<false, E4M3>(stream, a, s)
             : gelu ? end_in_parts<true, S8>(stream, a, s)
                         : end_in_parts<false, S8>(stream, a, s);
}
