/* Operators over rows: formats, embeddings, norms, and what follows a product. */
#include "cuda/device/rows.cuh"
#include "cuda/device/weight.cuh"

/* Rows of a block, its row's place in shared memory, and the room of reductions. */
#define ROW_SET_UP(cols)                                                          \
    extern __shared__ float shared_rows[];                                        \
    __shared__ double room[8];                                                    \
    int64_t r = (int64_t)blockIdx.x * (OZ_ROW_THREADS / TPR) + threadIdx.x / TPR; \
    float *x = shared_rows + threadIdx.x / TPR * (cols);                          \
    int lane = threadIdx.x % TPR

/* A row to a block or to a warp, with room for it in shared memory. */
#define LAUNCH_ROWS(kernel, rows, cols, ...)                                                 \
    do {                                                                                     \
        bool wide_ = oz_wide_row(cols);                                                      \
        size_t bytes_ = (size_t)(cols) * sizeof(float) * (wide_ ? 1 : OZ_ROW_THREADS / 32);  \
        int64_t blocks_ =                                                                    \
            wide_ ? (rows) : ((rows) + OZ_ROW_THREADS / 32 - 1) / (OZ_ROW_THREADS / 32);     \
        if ((rows) == 0 || (cols) == 0) {                                                    \
            return 0;                                                                        \
        }                                                                                    \
        if (bytes_ > 47 * 1024) { /* a little more is taken for reductions */                \
            cudaError_t error_ = cudaFuncSetAttribute(                                       \
                kernel<256>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes_);      \
            if (error_ != cudaSuccess) {                                                     \
                return (int)error_;                                                          \
            }                                                                                \
        }                                                                                    \
        if (wide_) {                                                                         \
            kernel<256><<<(unsigned)blocks_, OZ_ROW_THREADS, bytes_, stream>>>(__VA_ARGS__); \
        } else {                                                                             \
            kernel<32><<<(unsigned)blocks_, OZ_ROW_THREADS, bytes_, stream>>>(__VA_ARGS__);  \
        }                                                                                    \
        return (int)cudaGetLastError();                                                      \
    } while (0)

/* ---- formats ---- */

template <int TPR>
__global__ void act_quant(const __grid_constant__ struct oz_act from,
                          const __grid_constant__ struct oz_act to, int64_t rows,
                          const int32_t *x_rows, const int32_t *out_rows, const float *amax)
{
    ROW_SET_UP(from.cols);
    if (r >= rows) {
        return;
    }
    int64_t source = x_rows != NULL ? x_rows[r] : r;
    int64_t target = out_rows != NULL ? out_rows[r] : r;
    for (int64_t c = lane; c < from.cols; c += TPR) {
        x[c] = oz_get(from, source, c);
    }
    oz_put_row<TPR>(to, target, x, amax != NULL ? amax[source] : NAN, room);
}

int oz_launch_act_quant(oz_cuda_stream stream, const struct oz_act *x, const struct oz_act *out,
                        int64_t rows, const int32_t *x_rows, const int32_t *out_rows,
                        const float *amax)
{
    if (rows > 0 && x_rows == NULL && out_rows == NULL && oz_wide_takes_quant(x, out)) {
        return oz_wide_quant(stream, x, out, rows);
    }
    LAUNCH_ROWS(act_quant, rows, x->cols, *x, *out, rows, x_rows, out_rows, amax);
}

/* The largest finite magnitude of each row, as bits; then of each sequence, by one thread a row. */
template <int TPR>
__global__ void row_amax(const __grid_constant__ struct oz_act from, const float *smooth,
                         float *amax)
{
    ROW_SET_UP(from.cols);
    if (r >= from.rows) {
        return;
    }
    for (int64_t c = lane; c < from.cols; c += TPR) {
        float value = oz_get(from, r, c);
        x[c] = smooth != NULL ? value / smooth[c] : value;
    }
    oz_row_sync<TPR>();
    bool bad;
    float most = oz_row_amax<TPR>(x, from.cols, &bad, room);
    if (lane == 0) {
        amax[r] = most;
    }
}

/* One block for each sequence: its largest, written to all of its rows. */
__global__ void sequence_amax(const int32_t *offsets, float *amax)
{
    __shared__ double room[8];
    int64_t begin = offsets[blockIdx.x];
    int64_t end = offsets[blockIdx.x + 1];
    float most = 0;
    for (int64_t r = begin + threadIdx.x; r < end; r += OZ_ROW_THREADS) {
        most = amax[r] > most ? amax[r] : most;
    }
    most = oz_row_reduce<OZ_ROW_THREADS, float, true>(most, (float *)room);
    for (int64_t r = begin + threadIdx.x; r < end; r += OZ_ROW_THREADS) {
        amax[r] = most;
    }
}

static int launch_row_amax(oz_cuda_stream stream, const struct oz_act *x, const float *smooth,
                           float *amax)
{
    LAUNCH_ROWS(row_amax, x->rows, x->cols, *x, smooth, amax);
}

int oz_launch_amax(oz_cuda_stream stream, const struct oz_act *x, const float *smooth,
                   const int32_t *offsets, int32_t count, float *amax)
{
    int error = launch_row_amax(stream, x, smooth, amax);
    if (error != 0 || offsets == NULL || count == 0) {
        return error;
    }
    sequence_amax<<<(unsigned)count, OZ_ROW_THREADS, 0, stream>>>(offsets, amax);
    return (int)cudaGetLastError();
}

__global__ void convert(const __grid_constant__ struct oz_act x, enum oz_dtype dtype, void *dst,
                        int64_t pad_cols)
{
    int64_t total = x.rows * pad_cols;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t col = i % pad_cols;
        float value = col < x.cols ? oz_get(x, i / pad_cols, col) : 0.0F;
        if (dtype == OZ_DTYPE_F32) {
            ((float *)dst)[i] = value;
        } else {
            ((uint16_t *)dst)[i] = oz_f32_to_bf16(value);
        }
    }
}

int oz_launch_convert(oz_cuda_stream stream, const struct oz_act *x, enum oz_dtype dtype, void *dst,
                      int64_t pad_cols)
{
    if (x->rows == 0 || pad_cols == 0) {
        return 0;
    }
    convert<<<oz_blocks_for(x->rows * pad_cols), 256, 0, stream>>>(*x, dtype, dst, pad_cols);
    return (int)cudaGetLastError();
}

/* ---- weights ---- */

__global__ void decode(const __grid_constant__ struct oz_cuda_weight w, bool codes_only,
                       enum oz_dtype dtype, void *dst, int64_t out_rows, int64_t out_cols,
                       int64_t stride)
{
    int64_t total = out_rows * out_cols;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t row = i / out_cols;
        int64_t col = i % out_cols;
        float value = row < w.rows && col < w.cols ? oz_weight_get(w, row, col, codes_only) : 0.0F;
        if (dtype == OZ_DTYPE_F32) {
            ((float *)dst)[row * stride + col] = value;
        } else {
            ((uint16_t *)dst)[row * stride + col] = oz_f32_to_bf16(value);
        }
    }
}

int oz_launch_decode(oz_cuda_stream stream, const struct oz_cuda_weight *w, bool codes_only,
                     enum oz_dtype dtype, void *dst, int64_t out_rows, int64_t out_cols,
                     int64_t stride)
{
    if (oz_packed_takes(w)) {
        return oz_packed_decode(stream, w, dtype, dst, out_rows, out_cols, stride);
    }
    if (dtype == OZ_DTYPE_BF16 && out_rows == w->rows && out_cols == w->cols && stride % 8 == 0 &&
        oz_codes_take_decode(w)) {
        return oz_codes_decode(stream, w, codes_only, dst, stride);
    }
    if (out_rows == 0 || out_cols == 0) {
        return 0;
    }
    decode<<<oz_blocks_for(out_rows * out_cols), 256, 0, stream>>>(*w, codes_only, dtype, dst,
                                                                   out_rows, out_cols, stride);
    return (int)cudaGetLastError();
}

/* An id outside the table gives a row of NaN: the host does not see ids here. */
template <int TPR>
__global__ void embed(const __grid_constant__ struct oz_cuda_weight w, const int32_t *ids,
                      float scale, const __grid_constant__ struct oz_act out)
{
    ROW_SET_UP(out.cols);
    if (r >= out.rows) {
        return;
    }
    int32_t id = ids[r];
    bool inside = id >= 0 && id < w.rows;
    for (int64_t c = lane; c < out.cols; c += TPR) {
        x[c] = inside ? oz_weight_get(w, id, c, false) * scale : NAN;
    }
    oz_put_row<TPR>(out, r, x, NAN, room);
}

int oz_launch_embed(oz_cuda_stream stream, const struct oz_cuda_weight *w, const int32_t *ids,
                    float scale, const struct oz_act *out)
{
    if (oz_packed_takes(w)) {
        return oz_packed_embed(stream, w, ids, scale, out);
    }
    LAUNCH_ROWS(embed, out->rows, out->cols, *w, ids, scale, *out);
}

/* ---- norm_mod ---- */

/* The modulation vector of a row, or NULL. */
static __device__ inline const float *mod_row(const struct oz_cuda_mod &m, const int32_t *index,
                                              int64_t row)
{
    return m.data == NULL ? NULL : m.data + (index != NULL ? index[row] : 0) * m.stride;
}

/* x += gate * y * mul_fn(mul), as stored. */
template <int TPR>
static __device__ inline void add_residual(const struct oz_cuda_norm_mod &a, int64_t r, float *x)
{
    const float *gate = mod_row(a.gate, a.index, r);
    for (int64_t c = threadIdx.x % TPR; c < a.x.cols; c += TPR) {
        float y = oz_get(a.y, r, c);
        y = gate != NULL ? y * gate[c] : y;
        if (a.mul.data != NULL) {
            y *= oz_fn(a.mul_fn, oz_get(a.mul, r, a.mul.cols == 1 ? 0 : c));
        }
        oz_put(a.x, r, c, x[c] + y);
        x[c] = oz_get(a.x, r, c);
    }
}

/* Mean to subtract and factor to multiply by. A thread reads what it wrote itself. */
template <int TPR>
static __device__ inline void statistics(const struct oz_cuda_norm_mod &a, const float *x,
                                         double *room, double *mean, double *factor)
{
    int64_t cols = a.x.cols;
    *mean = 0;
    *factor = 1;
    if (a.norm == OZ_NORM_NONE) {
        return;
    }
    if (a.norm == OZ_NORM_LAYER) {
        double sum = 0;
        for (int64_t c = threadIdx.x % TPR; c < cols; c += TPR) {
            sum += (double)x[c];
        }
        *mean = oz_row_reduce<TPR, double, false>(sum, room) / (double)cols;
    }
    double squares = 0;
    for (int64_t c = threadIdx.x % TPR; c < cols; c += TPR) {
        double d = (double)x[c] - *mean;
        squares += d * d;
    }
    squares = oz_row_reduce<TPR, double, false>(squares, room);
    if (a.norm == OZ_NORM_CHANNEL_L2) {
        double length = sqrt(squares);
        *factor = sqrt((double)cols) / (length < (double)a.eps ? (double)a.eps : length);
    } else {
        *factor = 1 / sqrt(squares / (double)cols + (double)a.eps);
    }
}

template <int TPR> __global__ void norm_mod(const __grid_constant__ struct oz_cuda_norm_mod a)
{
    ROW_SET_UP(a.x.cols);
    if (r >= a.x.rows) {
        return;
    }
    for (int64_t c = lane; c < a.x.cols; c += TPR) {
        x[c] = oz_get(a.x, r, c);
    }
    if (a.y.data != NULL) {
        add_residual<TPR>(a, r, x);
    }
    if (a.out.data == NULL) {
        return;
    }
    double mean;
    double factor;
    statistics<TPR>(a, x, room, &mean, &factor);
    const float *scale = mod_row(a.scale, a.index, r);
    const float *shift = mod_row(a.shift, a.index, r);
    for (int64_t c = lane; c < a.x.cols; c += TPR) {
        float n = a.norm == OZ_NORM_NONE ? x[c] : (float)(((double)x[c] - mean) * factor);
        if (a.weight != NULL) {
            n *= a.weight_plus_one ? a.weight[c] + 1.0F : a.weight[c];
        }
        n = a.bias != NULL ? n + a.bias[c] : n;
        n = scale != NULL ? n * (1.0F + scale[c]) : n;
        n = shift != NULL ? n + shift[c] : n;
        x[c] = oz_fn(a.fn, n);
    }
    oz_put_row<TPR>(a.out, r, x, NAN, room);
}

int oz_launch_norm_mod(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a)
{
    if (a->x.rows > 0 && oz_wide_takes_norm(a)) {
        return oz_wide_norm(stream, a);
    }
    if (a->x.rows > 0 && oz_narrow_takes_norm(a)) {
        return oz_narrow_norm(stream, a);
    }
    LAUNCH_ROWS(norm_mod, a->x.rows, a->x.cols, *a);
}

/* ---- behind a product ---- */

static __device__ inline float scaled_sum(const struct oz_cuda_linear_end &a, const void *sums,
                                          const float *col_scale, float row_scale, int64_t at,
                                          int64_t col)
{
    float sum = a.integer ? (float)((const int32_t *)sums)[at] : ((const float *)sums)[at];
    sum = col_scale != NULL ? col_scale[col * a.col_scale_stride] * sum : sum;
    return a.row_scale != NULL ? row_scale * sum : sum;
}

template <int TPR> __global__ void linear_end(const __grid_constant__ struct oz_cuda_linear_end a)
{
    ROW_SET_UP(a.cols);
    if (r >= a.rows) {
        return;
    }
    float row_scale = a.row_scale != NULL ? a.row_scale[r * a.row_scale_stride] : 1.0F;
    const float *gate = mod_row(a.gate, a.index, r);
    for (int64_t c = lane; c < a.cols; c += TPR) {
        int64_t at = r * a.sum_stride + c;
        float y = scaled_sum(a, a.sums, a.col_scale, row_scale, at, c);
        y = a.bias != NULL ? y + a.bias[c] : y;
        if (a.residual.data != NULL && !a.residual_added) {
            float before = oz_get(a.residual, r, c);
            oz_put(a.residual, r, c, before + (gate != NULL ? gate[c] * y : y));
            continue;
        }
        y = a.residual_added ? y + oz_get(a.residual, r, c) : y;
        y = oz_fn(a.fn, y);
        if (a.up_sums != NULL) {
            float up = scaled_sum(a, a.up_sums, a.up_col_scale, row_scale, at, c);
            y *= a.up_bias != NULL ? up + a.up_bias[c] : up;
        }
        x[c] = y;
    }
    if (a.out.data != NULL) {
        oz_put_row<TPR>(a.out, r, x, NAN, room);
    }
}

int oz_launch_linear_end(oz_cuda_stream stream, const struct oz_cuda_linear_end *a)
{
    if (oz_wide_takes_residual(a)) {
        return oz_wide_residual(stream, a);
    }
    if (oz_wide_takes_end(a)) {
        return oz_wide_end(stream, a);
    }
    if (a->half_sums) {
        return (int)cudaErrorInvalidValue; /* only the wide kernel reads them */
    }
    LAUNCH_ROWS(linear_end, a->rows, a->cols, *a);
}
