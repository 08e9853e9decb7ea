/*
 * Attention, two forms. In f32: a warp for each query, one key after the other; the reference of the
 * other and what f32 arithmetic uses. In bf16: tiles of 64 queries by 64 keys on tensor cores, sums and
 * softmax in f32; keys in position order, so a query's bytes depend on its own sequence alone.
 */
#include "cuda/device/attention.cuh"

/* ---- f32 ---- */

#define F32_WARPS 8

__global__ void attention_f32(const __grid_constant__ struct oz_cuda_attention a)
{
    extern __shared__ float rows[]; /* [warps, 2 * head_dim]: query, sum */
    struct oz_sequence_view v = oz_view_sequence(a, a.first_sequence + (int32_t)blockIdx.z);
    int64_t q = (int64_t)blockIdx.x * F32_WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    int dim = a.head_dim;
    int64_t head = blockIdx.y;
    int64_t kv_first = head / (a.heads / a.kv_heads) * dim;
    float *query = rows + threadIdx.x / 32 * 2 * dim;
    float *sum = query + dim;
    if (q >= v.queries) {
        return;
    }
    for (int c = lane; c < dim; c += 32) {
        query[c] = oz_get(a.segments[a.asking].q, v.query_row + q, head * dim + c);
        sum[c] = 0;
    }
    float most = a.sinks != NULL ? a.sinks[head] : -INFINITY;
    float total = a.sinks != NULL ? 1.0F : 0.0F;
    int64_t begin;
    int64_t end;
    oz_visible(a, v.keys, v.first_position + q, &begin, &end);
    for (int64_t key = begin; key < end; key++) {
        int64_t row;
        const struct oz_act &k = oz_key_rows(a, v, false, key, &row);
        const struct oz_act &values = oz_key_rows(a, v, true, key, &row);
        float dot = 0;
        for (int c = lane; c < dim; c += 32) {
            dot += query[c] * oz_get(k, row, kv_first + c);
        }
        dot = oz_row_reduce<32, float, false>(dot, NULL);
        float score = dot * a.scale + oz_score_bias(a, head, key, v.first_position + q);
        float next = score > most ? score : most;
        float fade = most == -INFINITY ? 0.0F : expf(most - next);
        float weight = expf(score - next);
        most = next;
        total = total * fade + weight;
        for (int c = lane; c < dim; c += 32) {
            sum[c] = sum[c] * fade + weight * oz_get(values, row, kv_first + c);
        }
    }
    for (int c = lane; c < dim; c += 32) { /* a query that sees nothing gets zeros */
        oz_put(a.segments[a.asking].out, v.query_row + q, head * dim + c,
               total == 0 ? 0.0F : sum[c] / total);
    }
}

int oz_launch_attention_f32(oz_cuda_stream stream, const struct oz_cuda_attention *a)
{
    dim3 grid((unsigned)((a->most_queries + F32_WARPS - 1) / F32_WARPS), (unsigned)a->heads,
              (unsigned)a->sequences);
    size_t bytes = (size_t)F32_WARPS * 2 * (size_t)a->head_dim * sizeof(float);
    if (a->most_queries == 0 || a->sequences == 0) {
        return 0;
    }
    if (bytes > 48 * 1024) {
        cudaError_t error = cudaFuncSetAttribute(
            attention_f32, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (error != cudaSuccess) {
            return (int)error;
        }
    }
    attention_f32<<<grid, F32_WARPS * 32, bytes, stream>>>(*a);
    return (int)cudaGetLastError();
}

/* ---- rows as bf16 ---- */

static __device__ inline uint32_t pack(float low, float high)
{
    return (uint32_t)oz_f32_to_bf16(low) | (uint32_t)oz_f32_to_bf16(high) << 16;
}

/* Elements [col, col + 8) of a row, as bf16, to shared memory; zeros where the row is not there. */
static __device__ inline void stage_8(uint16_t *dst, const struct oz_act *x, int64_t row,
                                      int64_t col)
{
    uint4 word = {0, 0, 0, 0};
    if (x == NULL) {
        *(uint4 *)dst = word;
    } else if (x->spec.dtype == OZ_DTYPE_BF16) {
        const uint16_t *from = (const uint16_t *)x->data + row * x->stride + col;
        if ((uintptr_t)from % 16 == 0) {
            word = *(const uint4 *)from;
        } else {
            for (int i = 0; i < 4; i++) {
                ((uint32_t *)&word)[i] = (uint32_t)from[2 * i] | (uint32_t)from[2 * i + 1] << 16;
            }
        }
        *(uint4 *)dst = word;
    } else {
        const float *from = (const float *)x->data + row * x->stride + col;
        word.x = pack(from[0], from[1]);
        word.y = pack(from[2], from[3]);
        word.z = pack(from[4], from[5]);
        word.w = pack(from[6], from[7]);
        *(uint4 *)dst = word;
    }
}

/* ---- joined rows ---- */

/* Row `i` of the joined queries, keys or values; NULL: behind the end. */
static __device__ inline const struct oz_act *joined_row(const struct oz_cuda_attention &a,
                                                         int part, int64_t i, int64_t *row)
{
    for (int s = 0; s < a.segment_count; s++) {
        const struct oz_act *x = part == 0   ? &a.segments[s].q
                                 : part == 1 ? &a.segments[s].k
                                             : &a.segments[s].v;
        int64_t first = a.segments[s].offsets[a.first_sequence];
        int64_t rows = a.segments[s].offsets[a.first_sequence + 1] - first;
        if (x->data == NULL) {
            continue;
        }
        if (i < rows) {
            *row = first + i;
            return x;
        }
        i -= rows;
    }
    return NULL;
}

/* Eight elements a thread; blockIdx.y: queries, keys, values. */
__global__ void join(const __grid_constant__ struct oz_cuda_attention a, uint16_t *q, uint16_t *k,
                     uint16_t *v, int64_t queries, int64_t keys)
{
    int part = blockIdx.y;
    int64_t width = (int64_t)a.heads * a.head_dim;
    uint16_t *to = part == 0 ? q : part == 1 ? k : v;
    int64_t total = (part == 0 ? queries : keys) * width / 8;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t row = 0;
        const struct oz_act *x = joined_row(a, part, i * 8 / width, &row);
        stage_8(to + i * 8, x, row, i * 8 % width);
    }
}

int oz_launch_join(oz_cuda_stream stream, const struct oz_cuda_attention *a, void *q, void *k,
                   void *v, int64_t queries, int64_t keys)
{
    int64_t most = queries > keys ? queries : keys;
    int64_t blocks = (most * a->heads * a->head_dim / 8 + 255) / 256;
    dim3 grid((unsigned)(blocks < 65535 ? blocks : 65535), 3);
    join<<<grid, 256, 0, stream>>>(*a, (uint16_t *)q, (uint16_t *)k, (uint16_t *)v, queries, keys);
    return (int)cudaGetLastError();
}

/* ---- softmax between two products ---- */

#define SOFTMAX_THREADS 256

__global__ void __launch_bounds__(SOFTMAX_THREADS)
    softmax(const float *scores, int64_t keys, int64_t padded, float scale, uint16_t *weights)
{
    __shared__ float room[8];
    const float *from = scores + blockIdx.x * padded;
    uint16_t *to = weights + blockIdx.x * padded;
    float most = -INFINITY;
    float sum = 0;
    for (int64_t c = threadIdx.x; c < keys; c += SOFTMAX_THREADS) {
        float x = from[c] * scale;
        most = x > most ? x : most;
    }
    most = oz_row_reduce<SOFTMAX_THREADS, float, true>(most, room);
    for (int64_t c = threadIdx.x; c < keys; c += SOFTMAX_THREADS) {
        sum += __expf(from[c] * scale - most);
    }
    float factor = 1.0F / oz_row_reduce<SOFTMAX_THREADS, float, false>(sum, room);
    for (int64_t c = threadIdx.x; c < padded; c += SOFTMAX_THREADS) {
        to[c] = c < keys ? oz_f32_to_bf16(__expf(from[c] * scale - most) * factor) : 0;
    }
}

int oz_launch_softmax(oz_cuda_stream stream, const float *scores, int64_t rows, int64_t keys,
                      int64_t padded, float scale, void *weights)
{
    softmax<<<(unsigned)rows, SOFTMAX_THREADS, 0, stream>>>(scores, keys, padded, scale,
                                                            (uint16_t *)weights);
    return (int)cudaGetLastError();
}

/* ---- bf16 ---- */

#define TILE_QUERIES 64 /* 16 for each of 4 warps */
#define TILE_KEYS 64
#define TILE_THREADS 128
#define GAP 8 /* elements behind a row in shared memory: no bank conflicts */

static __device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ inline void load_matrices(uint32_t r[4], const uint16_t *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

static __device__ inline void load_transposed(uint32_t r[4], const uint16_t *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

/* c [16, 8] += a [16, 16] b [16, 8] */
static __device__ inline void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Keys (or values) [first, first + TILE_KEYS) of columns [col, col + width) to shared memory. */
static __device__ inline void stage_keys(uint16_t *dst, const struct oz_cuda_attention &a,
                                         const struct oz_sequence_view &v, bool values,
                                         int64_t first, int64_t col, int width)
{
    int chunks = width / 8;
    for (int i = threadIdx.x; i < TILE_KEYS * chunks; i += TILE_THREADS) {
        int r = i / chunks;
        int c = i % chunks * 8;
        int64_t row = 0;
        const struct oz_act *x = NULL;
        if (first + r < v.keys) {
            x = &oz_key_rows(a, v, values, first + r, &row);
        }
        stage_8(dst + r * (width + GAP) + c, x, row, col + c);
    }
}

/* Scores of a warp's 16 queries by 64 keys. */
static __device__ inline void score_tile(const uint16_t *q, const uint16_t *k, int dim,
                                         float s[TILE_KEYS / 8][4])
{
    int lane = threadIdx.x % 32;
    int stride = dim + GAP;
#pragma unroll
    for (int j = 0; j < TILE_KEYS / 8; j++) {
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
    }
    const uint16_t *qa = q + (lane % 8 + (lane / 8 & 1) * 8) * stride + (lane / 16) * 8;
    const uint16_t *ka = k + (lane % 8 + (lane / 16) * 8) * stride + (lane / 8 & 1) * 8;
    for (int d = 0; d < dim; d += 16) {
        uint32_t left[4];
        load_matrices(left, qa + d);
#pragma unroll
        for (int j = 0; j < TILE_KEYS / 16; j++) {
            uint32_t right[4];
            load_matrices(right, ka + j * 16 * stride + d);
            multiply(s[2 * j], left, right[0], right[1]);
            multiply(s[2 * j + 1], left, right[2], right[3]);
        }
    }
}

/* What a thread keeps of its two queries (rows lane / 4 and lane / 4 + 8 of the warp's). */
struct running {
    float most[2], total[2]; /* total: of this thread's columns alone */
};

/* Scores to weights in place, masked; gives by how much older sums fade. */
static __device__ inline void soften(const struct oz_cuda_attention &a,
                                     const struct oz_sequence_view &v, int64_t head, int64_t query,
                                     int64_t first, float s[TILE_KEYS / 8][4], struct running *run,
                                     float fade[2])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t position = v.first_position + query + half * 8;
        int64_t begin;
        int64_t end;
        oz_visible(a, v.keys, position, &begin, &end);
        float most = run->most[half];
#pragma unroll
        for (int j = 0; j < TILE_KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int64_t key = first + j * 8 + lane % 4 * 2 + i;
                float *score = &s[j][half * 2 + i];
                bool seen = key >= begin && key < end;
                *score =
                    seen ? *score * a.scale + oz_score_bias(a, head, key, position) : -INFINITY;
                most = *score > most ? *score : most;
            }
        }
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, 2));
        float base = most == -INFINITY ? 0.0F : most;
        fade[half] = run->most[half] == -INFINITY
                         ? 0.0F
                         : exp2f((run->most[half] - base) * 1.4426950408889634F);
        run->most[half] = most;
        float total = 0;
#pragma unroll
        for (int j = 0; j < TILE_KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float *score = &s[j][half * 2 + i];
                *score = exp2f((*score - base) * 1.4426950408889634F);
                total += *score;
            }
        }
        run->total[half] = run->total[half] * fade[half] + total;
    }
}

/* sum [16, WIDTH] += weights [16, 64] values [64, WIDTH] */
template <int WIDTH>
static __device__ inline void add_values(const uint16_t *values, const float s[TILE_KEYS / 8][4],
                                         float sum[WIDTH / 8][4])
{
    int lane = threadIdx.x % 32;
    const int stride = WIDTH + GAP;
    const uint16_t *va = values + (lane % 8 + (lane / 8 & 1) * 8) * stride + (lane / 16) * 8;
#pragma unroll
    for (int k = 0; k < TILE_KEYS / 16; k++) {
        uint32_t left[4] = {pack(s[2 * k][0], s[2 * k][1]), pack(s[2 * k][2], s[2 * k][3]),
                            pack(s[2 * k + 1][0], s[2 * k + 1][1]),
                            pack(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < WIDTH / 16; n++) {
            uint32_t right[4];
            load_transposed(right, va + k * 16 * stride + n * 16);
            multiply(sum[2 * n], left, right[0], right[1]);
            multiply(sum[2 * n + 1], left, right[2], right[3]);
        }
    }
}

/* Blocks: queries / 64, heads * (head_dim / WIDTH), sequences. A head wider than WIDTH is done in
 * pieces of its values, each with all scores. */
template <int WIDTH>
__global__ void __launch_bounds__(TILE_THREADS)
    attention_bf16(const __grid_constant__ struct oz_cuda_attention a)
{
    extern __shared__ uint4 memory[];
    int dim = a.head_dim;
    int pieces = dim / WIDTH;
    uint16_t *q = (uint16_t *)memory;
    uint16_t *k = q + TILE_QUERIES * (dim + GAP);
    uint16_t *values = k + TILE_KEYS * (dim + GAP);
    struct oz_sequence_view v = oz_view_sequence(a, a.first_sequence + (int32_t)blockIdx.z);
    int64_t q0 = (int64_t)blockIdx.x * TILE_QUERIES;
    int64_t head = blockIdx.y / pieces;
    int64_t piece = blockIdx.y % pieces;
    int64_t kv_first = head / (a.heads / a.kv_heads) * dim;
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;
    if (q0 >= v.queries) {
        return;
    }
    const struct oz_act *asked = &a.segments[a.asking].q;
    for (int i = threadIdx.x; i < TILE_QUERIES * (dim / 8); i += TILE_THREADS) {
        int r = i / (dim / 8);
        int c = i % (dim / 8) * 8;
        stage_8(q + r * (dim + GAP) + c, q0 + r < v.queries ? asked : NULL, v.query_row + q0 + r,
                head * dim + c);
    }
    float sum[WIDTH / 8][4];
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    }
    int64_t query = q0 + warp * 16 + lane / 4;
    struct running run = {{-INFINITY, -INFINITY}, {0, 0}};
    if (a.sinks != NULL) {
        run.most[0] = run.most[1] = a.sinks[head];
    }
    int64_t begin;
    int64_t end;
    int64_t unused;
    oz_visible(a, v.keys, v.first_position + q0, &begin, &unused);
    oz_visible(a, v.keys, v.first_position + q0 + TILE_QUERIES - 1, &unused, &end);
    for (int64_t first = begin / TILE_KEYS * TILE_KEYS; first < end; first += TILE_KEYS) {
        __syncthreads();
        stage_keys(k, a, v, false, first, kv_first, dim);
        stage_keys(values, a, v, true, first, kv_first + piece * WIDTH, WIDTH);
        __syncthreads();
        float s[TILE_KEYS / 8][4];
        float fade[2];
        score_tile(q + warp * 16 * (dim + GAP), k, dim, s);
        soften(a, v, head, query, first, s, &run, fade);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            sum[n][0] *= fade[0];
            sum[n][1] *= fade[0];
            sum[n][2] *= fade[1];
            sum[n][3] *= fade[1];
        }
        add_values<WIDTH>(values, s, sum);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = run.total[half];
        total += __shfl_xor_sync(0xFFFFFFFFU, total, 1);
        total += __shfl_xor_sync(0xFFFFFFFFU, total, 2);
        total += a.sinks != NULL ? expf(a.sinks[head] - run.most[half]) : 0.0F;
        float inverse = total == 0 ? 0.0F : 1.0F / total;
        if (query + half * 8 >= v.queries) {
            continue;
        }
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                oz_put(a.segments[a.asking].out, v.query_row + query + half * 8,
                       head * dim + piece * WIDTH + n * 8 + lane % 4 * 2 + i,
                       sum[n][half * 2 + i] * inverse);
            }
        }
    }
}

template <int WIDTH>
static int launch_tiles(oz_cuda_stream stream, const struct oz_cuda_attention *a)
{
    dim3 grid((unsigned)((a->most_queries + TILE_QUERIES - 1) / TILE_QUERIES),
              (unsigned)(a->heads * (a->head_dim / WIDTH)), (unsigned)a->sequences);
    size_t bytes = 2 * ((size_t)(TILE_QUERIES + TILE_KEYS) * (size_t)(a->head_dim + GAP) +
                        (size_t)TILE_KEYS * (WIDTH + GAP));
    cudaError_t error = cudaFuncSetAttribute(
        attention_bf16<WIDTH>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error != cudaSuccess) {
        return (int)error;
    }
    attention_bf16<WIDTH><<<grid, TILE_THREADS, bytes, stream>>>(*a);
    return (int)cudaGetLastError();
}

int oz_launch_attention_bf16(oz_cuda_stream stream, const struct oz_cuda_attention *a)
{
    if (a->most_queries == 0 || a->sequences == 0) {
        return 0;
    }
    return a->head_dim % 128 == 0  ? launch_tiles<128>(stream, a)
           : a->head_dim % 96 == 0 ? launch_tiles<96>(stream, a)
           : a->head_dim % 64 == 0 ? launch_tiles<64>(stream, a)
           : a->head_dim % 32 == 0 ? launch_tiles<32>(stream, a)
                                   : launch_tiles<16>(stream, a);
}
