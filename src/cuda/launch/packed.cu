/*
 * Weights whose scales lie with their codes: integers in groups with zero points, and GGUF's blocks. A
 * thread decodes eight neighbours of a row, by num/'s own functions, to f32, or to bf16 rounded once.
 */
#include "cuda/device/rows.cuh"
#include "num/gguf_run.h"
#include "num/int_group.h"

#define THREADS 256
#define LANES 32 /* eights of a row that a block has side by side */
#define LINES (THREADS / LANES)

bool oz_packed_takes(const struct oz_cuda_weight *w)
{
    return w->group.bits > 0 || w->gguf.elements > 0;
}

/* ---- eights ---- */

/* BITS: 0 where they are not known while compiling. */
template <int BITS>
static __device__ inline struct oz_int_group_row group_row(const struct oz_cuda_weight &w,
                                                           int64_t row)
{
    struct oz_int_group_row r;
    r.codes = w.codes + row * w.row_bytes;
    r.zeros = w.group.zeros != NULL ? w.group.zeros + row * w.group.zero_bytes : NULL;
    r.scales = w.group.scales + row * w.group.scale_stride;
    r.mins = w.group.mins != NULL ? w.group.mins + row * w.group.min_stride : NULL;
    r.groups = w.group.of_cols;
    r.group_cols = w.group.cols;
    r.bits = BITS > 0 ? BITS : w.group.bits;
    return r;
}

/* NUMBER: of GGUF's type, whose blocks are ELEMENTS in BYTES; -1: integers of BYTES bits in groups. Columns
 * beyond the row are 0. */
template <int NUMBER, int ELEMENTS, int BYTES>
static __device__ inline void eight_of(const struct oz_cuda_weight &w, int64_t row, int64_t col,
                                       float *y)
{
    if (NUMBER >= 0) { /* rows are whole blocks, and blocks whole eights */
        int at = (int)(col % ELEMENTS);
        const uint8_t *b = w.codes + row * w.row_bytes + col / ELEMENTS * BYTES;
        oz_gguf_run((uint32_t)NUMBER, b, at, 8, y);
        return;
    }
    const struct oz_int_group_row r = group_row<BYTES>(w, row);
    if (col + 8 <= w.cols) {
        oz_int_group_eight(&r, col, y);
        return;
    }
    for (int i = 0; i < 8; i++) {
        y[i] = 0;
        if (col + i < w.cols) {
            const struct oz_int_group g = oz_int_group_of(&r, col + i);
            y[i] = oz_int_group_get(&r, &g, col + i);
        }
    }
}

/* ---- decoding ---- */

static __device__ inline void store_eight(enum oz_dtype dtype, void *dst, int64_t at, int64_t count,
                                          const float *y)
{
    bool whole =
        count == 8 && ((uintptr_t)dst + (uintptr_t)at * (dtype == OZ_DTYPE_F32 ? 4 : 2)) % 16 == 0;
    if (dtype == OZ_DTYPE_F32) {
        float *to = (float *)dst + at;
        if (whole) {
            ((float4 *)to)[0] = make_float4(y[0], y[1], y[2], y[3]);
            ((float4 *)to)[1] = make_float4(y[4], y[5], y[6], y[7]);
            return;
        }
        for (int i = 0; i < 8; i++) {
            if (i < count) {
                to[i] = y[i];
            }
        }
        return;
    }
    uint16_t *to = (uint16_t *)dst + at;
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = oz_f32_to_bf16(y[2 * i]) | (uint32_t)oz_f32_to_bf16(y[2 * i + 1]) << 16;
    }
    if (whole) {
        *(uint4 *)to = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        return;
    }
    for (int i = 0; i < 8; i++) {
        if (i < count) {
            to[i] = oz_f32_to_bf16(y[i]);
        }
    }
}

template <int NUMBER, int ELEMENTS, int BYTES>
__global__ void __launch_bounds__(THREADS)
    decode_packed(const __grid_constant__ struct oz_cuda_weight w, enum oz_dtype dtype, void *dst,
                  int64_t out_rows, int64_t out_cols, int64_t stride)
{
    int64_t col = ((int64_t)blockIdx.x * LANES + threadIdx.x) * 8;
    int64_t count = out_cols - col < 8 ? out_cols - col : 8;
    if (col >= out_cols) {
        return;
    }
    for (int64_t row = (int64_t)blockIdx.y * LINES + threadIdx.y; row < out_rows;
         row += (int64_t)gridDim.y * LINES) {
        float y[8] = {0};
        if (row < w.rows && col < w.cols) {
            eight_of<NUMBER, ELEMENTS, BYTES>(w, row, col, y);
        }
        store_eight(dtype, dst, row * stride + col, count, y);
    }
}

int oz_packed_decode(oz_cuda_stream stream, const struct oz_cuda_weight *w, enum oz_dtype dtype,
                     void *dst, int64_t out_rows, int64_t out_cols, int64_t stride)
{
    if (out_rows == 0 || out_cols == 0) {
        return 0;
    }
    int64_t lines = (out_rows + LINES - 1) / LINES;
    dim3 blocks((unsigned)((out_cols + LANES * 8 - 1) / (LANES * 8)),
                (unsigned)(lines < 65535 ? lines : 65535));
    dim3 threads(LANES, LINES);
    switch (w->group.bits) { /* a kernel for each size and type: they differ in all that they do */
#define OZ_BITS(bits)                                                                     \
    case (bits):                                                                          \
        decode_packed<-1, 8, (bits)>                                                      \
            <<<blocks, threads, 0, stream>>>(*w, dtype, dst, out_rows, out_cols, stride); \
        return (int)cudaGetLastError();
        OZ_BITS(2)
        OZ_BITS(3)
        OZ_BITS(4)
        OZ_BITS(5)
        OZ_BITS(6)
        OZ_BITS(7)
        OZ_BITS(8)
#undef OZ_BITS
    default: break;
    }
    switch (w->gguf.number) {
#define OZ_GGUF_PLAIN(number_, name_, dtype_, bytes_)
#define OZ_GGUF_BLOCK(number_, name_, codec_, elements_, bytes_, first_, second_)         \
    case (number_):                                                                       \
        decode_packed<(number_), (elements_), (bytes_)>                                   \
            <<<blocks, threads, 0, stream>>>(*w, dtype, dst, out_rows, out_cols, stride); \
        break;
#include "num/gguf.inc"
#undef OZ_GGUF_PLAIN
#undef OZ_GGUF_BLOCK
    default: return (int)cudaErrorInvalidValue;
    }
    return (int)cudaGetLastError();
}

/* ---- rows of a table ---- */

/* A block for a row, which few rows are: the type is looked up for each eight. */
__global__ void __launch_bounds__(THREADS)
    embed_packed(const __grid_constant__ struct oz_cuda_weight w, const int32_t *ids, float scale,
                 const __grid_constant__ struct oz_act out)
{
    extern __shared__ float x[];
    __shared__ double room[8];
    int64_t r = blockIdx.x;
    int32_t id = ids[r];
    bool inside = id >= 0 && id < w.rows;
    for (int64_t c = (int64_t)threadIdx.x * 8; c < out.cols; c += THREADS * 8) {
        float y[8];
        if (inside && w.group.bits > 0) {
            eight_of<-1, 8, 0>(w, id, c, y);
        } else if (inside) {
            int at = (int)(c % w.gguf.elements);
            oz_gguf_run(w.gguf.number,
                        w.codes + id * w.row_bytes + c / w.gguf.elements * w.gguf.bytes, at, 8, y);
        }
        for (int i = 0; i < 8 && c + i < out.cols; i++) {
            x[c + i] = inside ? y[i] * scale : NAN;
        }
    }
    oz_put_row<THREADS>(out, r, x, NAN, room);
}

int oz_packed_embed(oz_cuda_stream stream, const struct oz_cuda_weight *w, const int32_t *ids,
                    float scale, const struct oz_act *out)
{
    size_t bytes = (size_t)out->cols * sizeof(float);
    if (out->rows == 0 || out->cols == 0) {
        return 0;
    }
    if (bytes > 47 * 1024) { /* a little more is taken for reductions */
        cudaError_t error = cudaFuncSetAttribute(
            embed_packed, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (error != cudaSuccess) {
            return (int)error;
        }
    }
    embed_packed<<<(unsigned)out->rows, THREADS, bytes, stream>>>(*w, ids, scale, *out);
    return (int)cudaGetLastError();
}
