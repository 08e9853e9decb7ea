/*
 * Rows of up to 1024 elements, as pictures have them: half a warp or a whole one for each, 16 bytes an
 * access. As wide.cu, each says whether it takes the call; rows.cu and pixels.cu do the rest.
 */
#include "cuda/device/eight.cuh"

#define THREADS 256

/* ---- norm ---- */

/* LANES of a row, PARTS of eight elements in each. */
template <int LANES, int PARTS>
__global__ void __launch_bounds__(THREADS)
    norm_narrow(const __grid_constant__ struct oz_cuda_norm_mod a)
{
    int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
    int lane = threadIdx.x % LANES;
    int64_t cols = a.x.cols;
    float x[PARTS][8];
    bool there = row < a.x.rows; /* whole warps stay for the exchanges */
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * LANES + lane) * 8;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[p][i] = 0;
        }
        if (there && col < cols) {
            oz_load_8(a.x, row, col, x[p]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum += x[p][i];
        }
    }
    float mean = 0;
    if (a.norm == OZ_NORM_LAYER) {
        for (int step = LANES / 2; step > 0; step >>= 1) {
            sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
        }
        mean = sum / (float)cols;
    }
    float squares = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        if ((int64_t)(p * LANES + lane) * 8 < cols) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float d = x[p][i] - mean;
                squares += d * d;
            }
        }
    }
    for (int step = LANES / 2; step > 0; step >>= 1) {
        squares += __shfl_xor_sync(0xFFFFFFFFU, squares, step);
    }
    float length = sqrtf(squares);
    float factor = a.norm == OZ_NORM_CHANNEL_L2
                       ? sqrtf((float)cols) / (length < a.eps ? a.eps : length)
                       : 1.0F / sqrtf(squares / (float)cols + a.eps);
    if (!there) {
        return;
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t col = (int64_t)(p * LANES + lane) * 8;
        float weight[8];
        if (col >= cols) {
            continue;
        }
        if (a.weight != NULL) {
            oz_load_f32(a.weight + col, weight);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float n = (x[p][i] - mean) * factor;
            n = a.weight != NULL ? n * weight[i] : n;
            x[p][i] = oz_fn(a.fn, n);
        }
        oz_store_8(a.out, row, col, x[p]);
    }
}

bool oz_narrow_takes_norm(const struct oz_cuda_norm_mod *a)
{
    return a->x.cols % 8 == 0 && a->x.cols <= 1024 && a->y.data == NULL && a->out.data != NULL &&
           a->bias == NULL && !a->weight_plus_one && a->norm != OZ_NORM_NONE &&
           a->scale.data == NULL && a->shift.data == NULL && (uintptr_t)a->weight % 16 == 0 &&
           oz_plain(&a->x.spec) && oz_plain(&a->out.spec) && oz_aligned(&a->x) &&
           oz_aligned(&a->out);
}

int oz_narrow_norm(oz_cuda_stream stream, const struct oz_cuda_norm_mod *a)
{
    int64_t lanes = a->x.cols <= 128 ? 16 : 32;
    unsigned blocks = (unsigned)((a->x.rows * lanes + THREADS - 1) / THREADS);
    if (a->x.cols <= 128) {
        norm_narrow<16, 1><<<blocks, THREADS, 0, stream>>>(*a);
    } else if (a->x.cols <= 256) {
        norm_narrow<32, 1><<<blocks, THREADS, 0, stream>>>(*a);
    } else if (a->x.cols <= 512) {
        norm_narrow<32, 2><<<blocks, THREADS, 0, stream>>>(*a);
    } else {
        norm_narrow<32, 4><<<blocks, THREADS, 0, stream>>>(*a);
    }
    return (int)cudaGetLastError();
}

/* ---- enlargement ---- */

/* Of one frame by factors, nearest: eight channels a thread. */
__global__ void __launch_bounds__(THREADS)
    enlarge(const __grid_constant__ struct oz_act x, const __grid_constant__ struct oz_act out,
            unsigned width, unsigned out_width, unsigned fy, unsigned fx)
{
    unsigned eights = (unsigned)out.cols / 8;
    unsigned total = (unsigned)out.rows * eights;
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < total; i += gridDim.x * THREADS) {
        unsigned row = i / eights;
        unsigned col = i % eights * 8;
        unsigned from = row / out_width / fy * width + row % out_width / fx;
        float v[8];
        oz_load_8(x, from, col, v);
        oz_store_8(out, row, col, v);
    }
}

bool oz_narrow_takes_enlarge(const struct oz_resample_args *a)
{
    return a->kind == OZ_RESAMPLE_NEAREST && a->frames == 1 && a->factor_t == 1 &&
           a->out->cols % 8 == 0 && oz_plain(&a->x->spec) && oz_plain(&a->out->spec) &&
           oz_aligned(a->x) && oz_aligned(a->out) && a->out->rows * (a->out->cols / 8) < INT32_MAX;
}

int oz_narrow_enlarge(oz_cuda_stream stream, const struct oz_resample_args *a)
{
    enlarge<<<oz_blocks_for(a->out->rows * a->out->cols / 8), THREADS, 0, stream>>>(
        *a->x, *a->out, (unsigned)a->width, (unsigned)(a->width * a->factor_x),
        (unsigned)a->factor_y, (unsigned)a->factor_x);
    return (int)cudaGetLastError();
}
