/*
 * cuda/device/rows.cuh: rows of any format to f32 and back. A row is worked on by `TPR` threads (a
 * warp, or a block of 256), and waits in shared memory. Every number is num/'s own code.
 */
#ifndef OZ_CUDA_DEVICE_ROWS_CUH
#define OZ_CUDA_DEVICE_ROWS_CUH

#include <math.h>

#include "cuda/launch/launch.h"
#include "num/float8.h"
#include "num/group.c" /* the one definition of scales and codes, for the device */

#define OZ_ROW_THREADS 256

/* Element i of a row of cells. */
static __device__ inline float oz_cell(enum oz_dtype dtype, const void *row, int64_t i)
{
    switch (dtype) {
    case OZ_DTYPE_F32: return ((const float *)row)[i];
    case OZ_DTYPE_F64: return (float)((const double *)row)[i];
    case OZ_DTYPE_F16: return oz_f16_to_f32(((const uint16_t *)row)[i]);
    case OZ_DTYPE_BF16: return oz_bf16_to_f32(((const uint16_t *)row)[i]);
    case OZ_DTYPE_F8_E4M3: return oz_e4m3_to_f32(((const uint8_t *)row)[i]);
    case OZ_DTYPE_F8_E5M2: return oz_e5m2_to_f32(((const uint8_t *)row)[i]);
    case OZ_DTYPE_F8_E8M0: return oz_e8m0_to_f32(((const uint8_t *)row)[i]);
    case OZ_DTYPE_I8: return (float)((const int8_t *)row)[i];
    case OZ_DTYPE_F4: return oz_e2m1_to_f32(oz_nibble_get((const uint8_t *)row, i));
    default: return (float)((const uint8_t *)row)[i];
    }
}

/* Index of a scale of an activation. */
static __device__ inline int64_t oz_scale_at(const struct oz_act &a, int level, int64_t row,
                                             int64_t group)
{
    int64_t cols = a.spec.scale[level].group_cols;
    int64_t groups = cols > 0 ? (a.cols + cols - 1) / cols : 1;
    return a.spec.scale[level].layout == OZ_SCALE_COLS ? group * a.rows + row
                                                       : row * groups + group;
}

/* Value (row, col) of rows in any format. */
static __device__ inline float oz_get(const struct oz_act &a, int64_t row, int64_t col)
{
    int64_t at = row * a.stride + col;
    if (a.spec.dtype == OZ_DTYPE_F32) {
        return ((const float *)a.data)[at];
    }
    if (a.spec.dtype == OZ_DTYPE_BF16) {
        return oz_bf16_to_f32(((const uint16_t *)a.data)[at]);
    }
    float value = oz_cell(a.spec.dtype, a.data, at);
    for (int i = 0; i < a.spec.scale_count; i++) {
        int64_t group = a.spec.scale[i].group_cols > 0 ? col / a.spec.scale[i].group_cols : 0;
        value *= oz_cell(a.spec.scale[i].dtype, a.scales[i], oz_scale_at(a, i, row, group));
    }
    if (a.spec.static_scale != NULL) {
        float offset = a.spec.static_offset != NULL ? *a.spec.static_offset : 0.0F;
        value = (a.spec.dtype == OZ_DTYPE_I8 ? value - offset : value) * *a.spec.static_scale;
    }
    return value;
}

/* To F32 and BF16. */
static __device__ inline void oz_put(const struct oz_act &a, int64_t row, int64_t col, float x)
{
    int64_t at = row * a.stride + col;
    if (a.spec.dtype == OZ_DTYPE_F32) {
        ((float *)a.data)[at] = x;
    } else {
        ((uint16_t *)a.data)[at] = oz_f32_to_bf16(x);
    }
}

static __device__ inline float oz_fn(enum oz_fn fn, float x)
{
    switch (fn) {
    case OZ_FN_NONE: return x;
    case OZ_FN_SILU: return x / (1.0F + expf(-x));
    case OZ_FN_GELU_TANH:
        return 0.5F * x * (1.0F + tanhf(0.7978845608028654F * (x + 0.044715F * x * x * x)));
    case OZ_FN_GELU_ERF: return 0.5F * x * (1.0F + erff(x * 0.7071067811865476F));
    case OZ_FN_SIGMOID: return 1.0F / (1.0F + expf(-x));
    }
    return x;
}

/* ---- what the threads of a row share ---- */

template <int TPR> static __device__ inline void oz_row_sync()
{
    if (TPR == 32) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

/* Sum or maximum over a row's threads, in a fixed order; every thread gets it. room: [8] shared. */
template <int TPR, typename T, bool MAX> static __device__ inline T oz_row_reduce(T x, T *room)
{
    for (int step = 16; step > 0; step >>= 1) {
        T other = __shfl_xor_sync(0xFFFFFFFFU, x, step);
        x = MAX ? (other > x ? other : x) : x + other;
    }
    if (TPR == 32) {
        return x;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = x;
    }
    __syncthreads();
    T all = room[0];
    for (int i = 1; i < TPR / 32; i++) {
        all = MAX ? (room[i] > all ? room[i] : all) : all + room[i];
    }
    return all;
}

/* Largest finite magnitude; *bad when there is something else. */
template <int TPR>
static __device__ inline float oz_row_amax(const float *x, int64_t cols, bool *bad, double *room)
{
    float amax = 0;
    float worst = 0;
    for (int64_t c = threadIdx.x % TPR; c < cols; c += TPR) {
        bool here = false;
        float one = oz_group_amax(x + c, 1, &here);
        amax = one > amax ? one : amax;
        worst = here ? 1.0F : worst;
    }
    amax = oz_row_reduce<TPR, float, true>(amax, (float *)room);
    worst = oz_row_reduce<TPR, float, true>(worst, (float *)room);
    *bad = worst > 0;
    return amax;
}

/* ---- quantizing ---- */

/* Codes of a row begin here; F4 rows begin at a byte. */
static __device__ inline uint8_t *oz_codes(const struct oz_act &a, int64_t row)
{
    return (uint8_t *)a.data + (a.spec.dtype == OZ_DTYPE_F4 ? row * a.stride / 2 : row * a.stride);
}

template <int TPR>
static __device__ inline void oz_put_fp8_row(const struct oz_act &a, int64_t row, const float *x,
                                             double *room)
{
    bool bad;
    uint8_t *codes = oz_codes(a, row);
    float scale = oz_fp8_channel_scale(oz_row_amax<TPR>(x, a.cols, &bad, room));
    if (threadIdx.x % TPR == 0) {
        ((float *)a.scales[0])[oz_scale_at(a, 0, row, 0)] = scale;
    }
    for (int64_t c = threadIdx.x % TPR; c < a.cols; c += TPR) {
        oz_fp8_divide(x + c, 1, scale, codes + c);
    }
}

template <int TPR>
static __device__ inline void oz_put_int8_row(const struct oz_act &a, int64_t row, const float *x,
                                              double *room)
{
    bool bad;
    int8_t *codes = (int8_t *)oz_codes(a, row);
    float amax = oz_row_amax<TPR>(x, a.cols, &bad, room);
    if (threadIdx.x % TPR == 0) {
        ((float *)a.scales[0])[oz_scale_at(a, 0, row, 0)] = bad ? NAN : amax / 127.0F;
    }
    for (int64_t c = threadIdx.x % TPR; c < a.cols; c += TPR) {
        codes[c] = oz_int8_code(x[c], amax);
    }
}

/* Groups of a row, one thread each. */
template <int TPR>
static __device__ inline void oz_put_groups(const struct oz_act &a, int64_t row, const float *x,
                                            float amax)
{
    int64_t size = a.spec.scale[0].group_cols;
    uint8_t *codes = oz_codes(a, row);
    bool fp4 = a.spec.dtype == OZ_DTYPE_F4;
    bool dual = a.spec.scale_count == 2 && a.spec.scale[1].group_cols > 0;
    bool nv = a.spec.scale[0].dtype == OZ_DTYPE_F8_E4M3;
    float g = !nv                           ? 0.0F
              : a.spec.static_scale != NULL ? 1.0F / *a.spec.static_scale
                                            : oz_nvfp4_global(amax);
    if (nv && a.spec.static_scale == NULL && threadIdx.x % TPR == 0) {
        ((float *)a.scales[1])[oz_scale_at(a, 1, row, 0)] = 1.0F / g;
    }
    for (int64_t i = threadIdx.x % TPR; i * size < a.cols; i += TPR) {
        const float *from = x + i * size;
        int64_t n = size < a.cols - i * size ? size : a.cols - i * size;
        uint8_t *to = codes + (fp4 ? i * size / 2 : i * size);
        int64_t at = oz_scale_at(a, 0, row, i);
        bool bad = false;
        if (a.spec.scale[0].dtype == OZ_DTYPE_F32) {
            float scale = oz_fp8_group_scale(oz_group_amax(from, n, &bad));
            ((float *)a.scales[0])[at] = scale;
            oz_fp8_divide(from, n, scale, to);
        } else if (dual) {
            int64_t block = i * size / 512 * 512;
            int64_t wide = 512 < a.cols - block ? 512 : a.cols - block;
            float scale = oz_dual_scale(oz_group_amax(x + block, wide, &bad));
            if (i * size == block) {
                ((float *)a.scales[1])[oz_scale_at(a, 1, row, block / 512)] = scale;
            }
            ((uint8_t *)a.scales[0])[at] = oz_dual_encode(from, n, scale, to);
        } else {
            ((uint8_t *)a.scales[0])[at] = nv ? oz_nvfp4_encode(from, n, g, to)
                                           : fp4
                                               ? oz_mxfp4_encode(from, n, a.spec.exponent_rule, to)
                                               : oz_mxfp8_encode(from, n, a.spec.exponent_rule, to);
        }
    }
}

/*
 * A row from shared memory in any format. x is divided by the smoothing vector in place. amax: of
 * the row's sequence where the format needs it; NAN: of the row.
 */
template <int TPR>
static __device__ inline void oz_put_row(const struct oz_act &a, int64_t row, float *x, float amax,
                                         double *room)
{
    const struct oz_act_spec &s = a.spec;
    oz_row_sync<TPR>();
    if (s.smooth != NULL) {
        for (int64_t c = threadIdx.x % TPR; c < a.cols; c += TPR) {
            x[c] /= s.smooth[c];
        }
        oz_row_sync<TPR>();
    }
    if (s.dtype == OZ_DTYPE_F32 || s.dtype == OZ_DTYPE_BF16) {
        for (int64_t c = threadIdx.x % TPR; c < a.cols; c += TPR) {
            oz_put(a, row, c, x[c]);
        }
    } else if (s.scale_count == 0) { /* static e4m3 */
        uint8_t *codes = oz_codes(a, row);
        for (int64_t c = threadIdx.x % TPR; c < a.cols; c += TPR) {
            oz_fp8_multiply(x + c, 1, *s.static_scale, codes + c);
        }
    } else if (s.scale[0].group_cols == 0 && s.dtype == OZ_DTYPE_I8) {
        oz_put_int8_row<TPR>(a, row, x, room);
    } else if (s.scale[0].group_cols == 0) {
        oz_put_fp8_row<TPR>(a, row, x, room);
    } else {
        bool bad;
        bool nv = s.scale[0].dtype == OZ_DTYPE_F8_E4M3 && s.static_scale == NULL;
        float own = nv && isnan(amax) ? oz_row_amax<TPR>(x, a.cols, &bad, room) : amax;
        oz_put_groups<TPR>(a, row, x, own);
    }
}

/* Blocks of 256 threads for so many items; each thread takes as many as it must. */
static inline unsigned oz_blocks_for(int64_t items)
{
    int64_t blocks = (items + 255) / 256;
    return (unsigned)(blocks < 65535 * 8 ? blocks : 65535 * 8);
}

/* Is a row worth a block of its own? */
static inline bool oz_wide_row(int64_t cols)
{
    return cols > 1024;
}

#define OZ_MOST_ROW_COLS 49152 /* that fit in shared memory */

#endif
