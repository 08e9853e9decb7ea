/*
 * Stored codes as they are multiplied, or all at once: products with few rows of bf16, whose weights are
 * decoded in registers and read once for 64 rows, and whole weights to bf16 for products with many rows.
 */
#include "cuda/device/codes.cuh"

#define THREADS 256
#define FEATURES 64   /* of a block, two warps' */
#define PARTS 4       /* of K, added up in order */
#define PIECE 64      /* of K, a part's at a time: 16 for each of four lanes */
#define TILE 8        /* rows of one product of tensor cores */
#define ROW_BYTES 144 /* of a piece of a row in shared memory: lanes meet in no bank */

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
    const unsigned per_row = (unsigned)w.cols / 16;
    const unsigned unit = blockIdx.x * THREADS + threadIdx.x;
    const unsigned row = unit / per_row;
    const unsigned col = unit % per_row * 16;
    uint32_t pairs[8];
    if (row >= w.rows) {
        return;
    }
    oz_decode_16<CODES>(w, codes_only, oz_fetch_codes<CODES>(w, codes_only, row, col), pairs);
    uint4 *to = (uint4 *)(dst + row * stride + col);
    to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    to[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
}

bool oz_codes_take_decode(const struct oz_cuda_weight *w)
{
    return oz_codes_of(w) != OZ_CODES_OTHER && w->rows > 0 &&
           w->rows * (w->cols / 16) < (int64_t)INT32_MAX;
}

int oz_codes_decode(oz_cuda_stream stream, const struct oz_cuda_weight *w, bool codes_only,
                    void *dst, int64_t stride)
{
    const unsigned blocks = (unsigned)((w->rows * (w->cols / 16) + THREADS - 1) / THREADS);
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

/* A piece of all rows, by the 64 threads of a part; rows behind the last are the last again. */
template <int TILES>
static __device__ inline void fetch_piece(const struct few_args &a, int64_t first, int64_t k,
                                          uint8_t *to)
{
    const unsigned thread = threadIdx.x % 64;
    if (k < a.w.cols) {
#pragma unroll
        for (int i = 0; i < TILES; i++) { /* a row's 128 bytes by 8 threads */
            const int64_t row = first + i * TILE + thread / 8;
            const int64_t there = row < a.rows ? row : a.rows - 1;
            oz_fetch_16(to + (i * TILE + thread / 8) * ROW_BYTES + thread % 8 * 16,
                        a.x + there * a.x_stride + k + thread % 8 * 8);
        }
    }
    oz_fetched();
}

/* Until the 64 threads of a part have come. */
static __device__ inline void meet(int part)
{
    asm volatile("bar.sync %0, 64;" ::"r"(part + 1) : "memory");
}

/* The products of a piece: 32 features of a warp by all rows. */
template <int TILES>
static __device__ inline void multiply_piece(const uint32_t w[4][8], const uint8_t *x,
                                             float sums[2][TILES][4])
{
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const uint4 *from = (const uint4 *)(x + t * TILE * ROW_BYTES);
        const uint4 v[2] = {from[0], from[1]};
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t *low = w[2 * h] + 4 * i;
                const uint32_t *high = w[2 * h + 1] + 4 * i;
                multiply(sums[h][t], low[0], high[0], low[1], high[1], v[i].x, v[i].y);
                multiply(sums[h][t], low[2], high[2], low[3], high[3], v[i].z, v[i].w);
            }
        }
    }
}

/*
 * Warps: two halves of the features by PARTS of K. A lane holds 16 neighbours of four features, and the same
 * 16 of a row: in which order K runs within a piece does not matter, as both agree. What a row gets depends
 * on nothing but it and the weight.
 */
template <int TILES, enum oz_code_kind CODES>
__global__ void __launch_bounds__(THREADS) few_rows(const __grid_constant__ struct few_args a)
{
    extern __shared__ __align__(16) uint8_t room[]; /* [2][PARTS][TILES * TILE] rows; then sums */
    const int lane = threadIdx.x % 32;
    const int quarter = lane % 4;
    const int group = lane / 4;
    const int part = threadIdx.x / 64;
    const int half = threadIdx.x / 32 % 2;
    const unsigned feature = blockIdx.x * FEATURES + half * 32 + group;
    const int64_t first = (int64_t)blockIdx.y * TILES * TILE;
    uint8_t *stages = room + part * TILES * TILE * ROW_BYTES;
    const int stage_bytes = PARTS * TILES * TILE * ROW_BYTES;
    const uint8_t *mine = stages + group * ROW_BYTES + quarter * 32;
    float sums[2][TILES][4] = {};
    struct oz_raw_16 raw[4];
    int stage = 0;
    fetch_piece<TILES>(a, first, part * PIECE, stages);
    if (part * PIECE < a.w.cols) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            raw[i] = oz_fetch_codes<CODES>(a.w, a.codes_only, feature + 8 * i,
                                           part * PIECE + quarter * 16);
        }
    }
    for (int64_t k = part * PIECE; k < a.w.cols; k += PARTS * PIECE) {
        const int64_t next = k + PARTS * PIECE;
        uint32_t w[4][8];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            oz_decode_16<CODES>(a.w, a.codes_only, raw[i], w[i]);
        }
        if (next < a.w.cols) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                raw[i] = oz_fetch_codes<CODES>(a.w, a.codes_only, feature + 8 * i,
                                               (unsigned)next + quarter * 16);
            }
        }
        fetch_piece<TILES>(a, first, next, stages + (stage ^ 1) * stage_bytes);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        meet(part);
        multiply_piece<TILES>(w, mine + stage * stage_bytes, sums);
        meet(part); /* before the next piece but one takes this place */
        stage ^= 1;
    }
    __syncthreads();
    float *partial = (float *)room; /* [PARTS][TILES * TILE][FEATURES + 1] */
    const int row_floats = FEATURES + 1;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int m = t * TILE + quarter * 2 + i % 2;
                const int n = half * 32 + h * 16 + group + i / 2 * 8;
                partial[(part * TILES * TILE + m) * row_floats + n] = sums[h][t][i];
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < FEATURES * TILES * TILE; i += THREADS) {
        const int n = i % FEATURES;
        const int m = i / FEATURES;
        float sum = partial[m * row_floats + n];
#pragma unroll
        for (int p = 1; p < PARTS; p++) {
            sum += partial[(p * TILES * TILE + m) * row_floats + n];
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

template <int TILES, enum oz_code_kind CODES>
static int launch_codes(oz_cuda_stream stream, const struct few_args *a)
{
    const int stages = 2 * PARTS * TILES * TILE * ROW_BYTES;
    const int partial = PARTS * TILES * TILE * (FEATURES + 1) * (int)sizeof(float);
    const int bytes = stages > partial ? stages : partial;
    const dim3 grid((unsigned)(a->w.rows / FEATURES),
                    (unsigned)((a->rows + TILES * TILE - 1) / (TILES * TILE)));
    const cudaError_t error = cudaFuncSetAttribute(
        few_rows<TILES, CODES>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) {
        return (int)error;
    }
    few_rows<TILES, CODES><<<grid, THREADS, (size_t)bytes, stream>>>(*a);
    return (int)cudaGetLastError();
}

template <int TILES>
static int launch_few(oz_cuda_stream stream, const struct few_args *a, enum oz_code_kind codes)
{
    return codes == OZ_CODES_E2M1    ? launch_codes<TILES, OZ_CODES_E2M1>(stream, a)
           : codes == OZ_CODES_TABLE ? launch_codes<TILES, OZ_CODES_TABLE>(stream, a)
           : codes == OZ_CODES_E4M3  ? launch_codes<TILES, OZ_CODES_E4M3>(stream, a)
                                     : launch_codes<TILES, OZ_CODES_S8>(stream, a);
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
    const enum oz_code_kind codes = oz_codes_of(w);
    if (rows == 0) {
        return 0;
    }
    return tiles > 4   ? launch_few<8>(stream, &a, codes)
           : tiles > 2 ? launch_few<4>(stream, &a, codes)
           : tiles > 1 ? launch_few<2>(stream, &a, codes)
                       : launch_few<1>(stream, &a, codes);
}
