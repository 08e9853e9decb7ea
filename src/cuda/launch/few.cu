/*
 * Stored codes as they are multiplied, or all at once: products with few rows of bf16, whose weights are
 * decoded in registers and read once for 64 rows, and whole weights to bf16 for products with many rows.
 */
#include "cuda/device/codes.cuh"

#define THREADS 256
#define FEATURES 32  /* of a block */
#define PARTS 4      /* of K, each two warps', added up in order */
#define PIECE 128    /* of K, a warp's at a time: 32 for each of four lanes */
#define TILE 8       /* rows of one product of tensor cores */
#define MOST_TILES 8 /* of a block */

/* A few kernels, one for each kind of codes. */
#define FOR_CODES(codes, CALL)                            \
    do {                                                  \
        switch (codes) {                                  \
        case OZ_CODES_E2M1: CALL(OZ_CODES_E2M1); break;   \
        case OZ_CODES_TABLE: CALL(OZ_CODES_TABLE); break; \
        case OZ_CODES_E4M3: CALL(OZ_CODES_E4M3); break;   \
        default: CALL(OZ_CODES_S8); break;                \
        }                                                 \
    } while (0)

/* ---- whole weights ---- */

template <enum oz_code_kind CODES>
__global__ void __launch_bounds__(THREADS)
    decode_weight(const __grid_constant__ struct oz_cuda_weight w, bool codes_only, uint16_t *dst,
                  int64_t stride)
{
    const unsigned per_row = (unsigned)w.cols / 32;
    const unsigned unit = blockIdx.x * THREADS + threadIdx.x;
    const int64_t row = unit / per_row;
    const int64_t col = (int64_t)(unit % per_row) * 32;
    uint32_t pairs[16];
    if (row >= w.rows) {
        return;
    }
    oz_decode_32<CODES>(w, oz_fetch_codes<CODES>(w, row, col),
                        oz_fetch_scales<CODES>(w, codes_only, row, col), pairs);
    uint4 *to = (uint4 *)(dst + row * stride + col);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[i] = make_uint4(pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]);
    }
}

bool oz_codes_take_decode(const struct oz_cuda_weight *w)
{
    return oz_codes_of(w) != OZ_CODES_OTHER && w->rows > 0 &&
           w->rows * (w->cols / 32) < (int64_t)INT32_MAX;
}

int oz_codes_decode(oz_cuda_stream stream, const struct oz_cuda_weight *w, bool codes_only,
                    void *dst, int64_t stride)
{
    const unsigned blocks = (unsigned)((w->rows * (w->cols / 32) + THREADS - 1) / THREADS);
#define DECODE(codes) \
    decode_weight<codes><<<blocks, THREADS, 0, stream>>>(*w, codes_only, (uint16_t *)dst, stride)
    FOR_CODES(oz_codes_of(w), DECODE);
    return (int)cudaGetLastError();
}

/* ---- products with few rows ---- */

/* Adds the product of 16 features and 8 rows over 16 of K. */
static __device__ inline void multiply(float sums[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                       uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

struct few_args {
    struct oz_cuda_weight w;
    bool codes_only;
    const uint16_t *x; /* bf16 [rows, w.cols] */
    int64_t x_stride, rows;
    float *sums; /* [rows, w.rows] */
    int64_t sum_stride;
};

/*
 * Warps: two halves of the features by PARTS of K. A lane holds 32 neighbours of two features, and the same
 * 32 of a row: in which order K runs within a piece does not matter, as both agree. What a row gets depends
 * on nothing but the weight's shape.
 */
template <int TILES, enum oz_code_kind CODES>
__global__ void __launch_bounds__(THREADS) few_rows(const __grid_constant__ struct few_args a)
{
    __shared__ float partial[PARTS][FEATURES][TILES * TILE + 1];
    const int lane = threadIdx.x % 32;
    const int quarter = lane % 4;
    const int group = lane / 4;
    const int part = threadIdx.x / 64;
    const int half = threadIdx.x / 32 % 2;
    const int64_t feature = (int64_t)blockIdx.x * FEATURES + half * 16 + group;
    const int64_t first = (int64_t)blockIdx.y * TILES * TILE;
    float sums[TILES][4] = {};
    for (int64_t k = part * PIECE + quarter * 32; k < a.w.cols; k += PARTS * PIECE) {
        uint32_t low[16];
        uint32_t high[16];
        const struct oz_raw_codes<CODES> low_raw = oz_fetch_codes<CODES>(a.w, feature, k);
        const struct oz_raw_codes<CODES> high_raw = oz_fetch_codes<CODES>(a.w, feature + 8, k);
        oz_decode_32<CODES>(a.w, low_raw, oz_fetch_scales<CODES>(a.w, a.codes_only, feature, k),
                            low);
        oz_decode_32<CODES>(a.w, high_raw,
                            oz_fetch_scales<CODES>(a.w, a.codes_only, feature + 8, k), high);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const int64_t row = first + t * TILE + group;
            uint4 v[4] = {};
            if (row < a.rows) {
                const uint4 *from = (const uint4 *)(a.x + row * a.x_stride + k);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    v[i] = from[i];
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                multiply(sums[t], low[4 * i], high[4 * i], low[4 * i + 1], high[4 * i + 1], v[i].x,
                         v[i].y);
                multiply(sums[t], low[4 * i + 2], high[4 * i + 2], low[4 * i + 3], high[4 * i + 3],
                         v[i].z, v[i].w);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            partial[part][half * 16 + group + i / 2 * 8][t * TILE + quarter * 2 + i % 2] =
                sums[t][i];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < FEATURES * TILES * TILE; i += THREADS) {
        const int n = i % FEATURES;
        const int m = i / FEATURES;
        float sum = partial[0][n][m];
#pragma unroll
        for (int p = 1; p < PARTS; p++) {
            sum += partial[p][n][m];
        }
        if (first + m < a.rows) {
            a.sums[(first + m) * a.sum_stride + (int64_t)blockIdx.x * FEATURES + n] = sum;
        }
    }
}

bool oz_few_takes(const struct oz_cuda_weight *w)
{
    return oz_codes_of(w) != OZ_CODES_OTHER && w->cols % PIECE == 0 && w->rows % FEATURES == 0 &&
           w->rows > 0;
}

int oz_few_product(oz_cuda_stream stream, const struct oz_cuda_weight *w, bool codes_only,
                   const void *x, int64_t x_stride, int64_t rows, float *sums, int64_t sum_stride)
{
    const struct few_args a = {.w = *w,
                               .codes_only = codes_only,
                               .x = (const uint16_t *)x,
                               .x_stride = x_stride,
                               .rows = rows,
                               .sums = sums,
                               .sum_stride = sum_stride};
    const int64_t tiles = (rows + TILE - 1) / TILE;
    const int most = tiles >= MOST_TILES ? MOST_TILES
                     : tiles > 4         ? 8
                     : tiles > 2         ? 4
                     : tiles > 1         ? 2
                                         : 1;
    const dim3 grid((unsigned)(w->rows / FEATURES), (unsigned)((tiles + most - 1) / most));
    if (rows == 0) {
        return 0;
    }
#define FEW_8(codes) few_rows<8, codes><<<grid, THREADS, 0, stream>>>(a)
#define FEW_4(codes) few_rows<4, codes><<<grid, THREADS, 0, stream>>>(a)
#define FEW_2(codes) few_rows<2, codes><<<grid, THREADS, 0, stream>>>(a)
#define FEW_1(codes) few_rows<1, codes><<<grid, THREADS, 0, stream>>>(a)
    switch (most) {
    case 8: FOR_CODES(oz_codes_of(w), FEW_8); break;
    case 4: FOR_CODES(oz_codes_of(w), FEW_4); break;
    case 2: FOR_CODES(oz_codes_of(w), FEW_2); break;
    default: FOR_CODES(oz_codes_of(w), FEW_1); break;
    }
    return (int)cudaGetLastError();
}
