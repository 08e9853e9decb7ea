/* Rotation, time embedding, guidance, solver and sampling. */
#include "cuda/device/rows.cuh"

/* ---- qk_norm_rope ---- */

/* A warp for each head of a row; it waits in shared memory. */
__global__ void qk_norm_rope(const __grid_constant__ struct oz_cuda_rope a)
{
    extern __shared__ float heads[];
    int64_t unit = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    float *x = heads + threadIdx.x / 32 * a.head_dim;
    if (unit >= a.x.rows * a.heads) {
        return;
    }
    int64_t row = unit / a.heads;
    int64_t first = unit % a.heads * a.head_dim;
    double squares = 0;
    for (int c = lane; c < a.head_dim; c += 32) {
        x[c] = oz_get(a.x, row, first + c);
        squares += (double)x[c] * (double)x[c];
    }
    if (a.weight != NULL) {
        squares = oz_row_reduce<32, double, false>(squares, NULL);
        double factor = 1 / sqrt(squares / (double)a.head_dim + (double)a.eps);
        for (int c = lane; c < a.head_dim; c += 32) {
            x[c] = (float)((double)x[c] * factor) * (a.plus_one ? a.weight[c] + 1.0F : a.weight[c]);
        }
    }
    __syncwarp();
    int64_t at = a.table_rows != NULL ? a.table_rows[row] : row;
    for (int64_t j = lane; j < a.pairs; j += 32) {
        float *p = a.kind == OZ_ROPE_PAIRS ? x + 2 * j : x + j;
        float *q = a.kind == OZ_ROPE_PAIRS ? p + 1 : p + a.pairs;
        float cosine = oz_get(a.cosine, at, j);
        float sine = oz_get(a.sine, at, j);
        float turned = *p * cosine - *q * sine;
        *q = *p * sine + *q * cosine;
        *p = turned;
    }
    __syncwarp();
    for (int c = lane; c < a.head_dim; c += 32) {
        oz_put(a.out, row, first + c, x[c]);
    }
}

int oz_launch_qk_norm_rope(oz_cuda_stream stream, const struct oz_qk_norm_rope_args *a,
                           const float *weight)
{
    struct oz_cuda_rope r = {};
    r.x = *a->x;
    r.out = a->out != NULL ? *a->out : *a->x;
    r.heads = a->heads;
    r.head_dim = a->head_dim;
    r.weight = weight;
    r.plus_one = a->weight_plus_one;
    r.eps = a->eps;
    r.kind = a->rope;
    r.table_rows = a->table_rows;
    if (a->rope != OZ_ROPE_NONE) {
        r.cosine = *a->cosine;
        r.sine = *a->sine;
        r.pairs = a->cosine->cols;
    }
    if (oz_heads_takes_rope(&r)) {
        return oz_heads_rope(stream, &r);
    }
    int64_t units = a->x->rows * a->heads;
    if (units == 0) {
        return 0;
    }
    qk_norm_rope<<<(unsigned)((units + 7) / 8), 256, 8 * (size_t)a->head_dim * sizeof(float),
                   stream>>>(r);
    return (int)cudaGetLastError();
}

/* ---- time_embed ---- */

/* In f32, step by step as the reference kernel. */
__global__ void sinusoids(const float *t, int64_t rows, int32_t dim, float scale, float *phi)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int32_t half = dim / 2;
    if (i >= rows * half) {
        return;
    }
    int64_t row = i / half;
    int32_t k = (int32_t)(i % half);
    float exponent = -9.2103404F * (float)k / (float)half; /* -ln 10000 */
    float angle = scale * (t[row] * expf(exponent));
    phi[row * dim + k] = cosf(angle);
    phi[row * dim + half + k] = sinf(angle);
}

int oz_launch_sinusoids(oz_cuda_stream stream, const float *t, int64_t rows, int32_t dim,
                        float scale, float *phi)
{
    int64_t items = rows * (dim / 2);
    if (items == 0) {
        return 0;
    }
    sinusoids<<<(unsigned)((items + 255) / 256), 256, 0, stream>>>(t, rows, dim, scale, phi);
    return (int)cudaGetLastError();
}

/* ---- guidance and solver ---- */

__global__ void cfg_combine(struct oz_act positive, struct oz_act negative, struct oz_act out,
                            float guidance, bool rescale)
{
    int64_t r = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (r >= out.rows) {
        return;
    }
    double before = 0;
    double after = 0;
    float factor = 1;
    for (int64_t c = lane; rescale && c < out.cols; c += 32) {
        float p = oz_get(positive, r, c);
        float n = oz_get(negative, r, c);
        float combined = n + guidance * (p - n);
        before += (double)p * (double)p;
        after += (double)combined * (double)combined;
    }
    if (rescale) {
        before = oz_row_reduce<32, double, false>(before, NULL);
        after = oz_row_reduce<32, double, false>(after, NULL);
        factor = after != 0 ? (float)sqrt(before / after) : 1.0F; /* a zero row stays zero */
    }
    for (int64_t c = lane; c < out.cols; c += 32) {
        float p = oz_get(positive, r, c);
        float n = oz_get(negative, r, c);
        float combined = n + guidance * (p - n);
        oz_put(out, r, c, rescale ? combined * factor : combined);
    }
}

int oz_launch_cfg_combine(oz_cuda_stream stream, const struct oz_cfg_combine_args *a)
{
    if (a->out->rows == 0) {
        return 0;
    }
    cfg_combine<<<(unsigned)((a->out->rows + 7) / 8), 256, 0, stream>>>(
        *a->positive, *a->negative, *a->out, a->guidance, a->rescale);
    return (int)cudaGetLastError();
}

struct terms {
    struct oz_act x, term[OZ_SCHED_TERMS];
    const float *factors;
    int32_t count;
    bool keep;
};

__global__ void sched_step(const __grid_constant__ struct terms a)
{
    int64_t total = a.x.rows * a.x.cols;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t r = i / a.x.cols;
        int64_t c = i % a.x.cols;
        float x = oz_get(a.x, r, c);
        x = a.keep ? x : a.factors[0] * x;
        for (int32_t k = 0; k < a.count; k++) {
            x += a.factors[1 + k] * oz_get(a.term[k], r, c);
        }
        oz_put(a.x, r, c, x);
    }
}

int oz_launch_sched_step(oz_cuda_stream stream, const struct oz_sched_step_args *a)
{
    struct terms t = {};
    int64_t items = a->x->rows * a->x->cols;
    t.x = *a->x;
    t.factors = a->factors;
    t.count = a->count;
    t.keep = a->keep;
    for (int32_t i = 0; i < a->count; i++) {
        t.term[i] = *a->terms[i];
    }
    if (items == 0) {
        return 0;
    }
    sched_step<<<(unsigned)((items + 255) / 256), 256, 0, stream>>>(t);
    return (int)cudaGetLastError();
}

/* ---- sample ---- */

/* The largest logit, ties to the lower id; NaN is never larger. A row that wants a draw gets -1: the
 * host has been told that only temperature 0 is done here. */
__global__ void argmax(struct oz_act logits, const struct oz_sample_row *rows, int32_t *ids)
{
    __shared__ float values[256];
    __shared__ int32_t places[256];
    int64_t r = blockIdx.x;
    float best = -INFINITY;
    int32_t place = INT32_MAX;
    for (int64_t c = threadIdx.x; c < logits.cols; c += 256) {
        float value = oz_get(logits, r, c);
        if (value > best) {
            best = value;
            place = (int32_t)c;
        }
    }
    values[threadIdx.x] = best;
    places[threadIdx.x] = place;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 256; i++) {
            bool better = values[i] > best || (values[i] == best && places[i] < place);
            best = better ? values[i] : best;
            place = better ? places[i] : place;
        }
        place = place == INT32_MAX ? 0 : place;
        ids[r] = rows[r].temperature > 0 ? -1 : place;
    }
}

int oz_launch_argmax(oz_cuda_stream stream, const struct oz_sample_args *a)
{
    if (a->logits->rows == 0) {
        return 0;
    }
    argmax<<<(unsigned)a->logits->rows, 256, 0, stream>>>(*a->logits, a->rows, a->ids);
    return (int)cudaGetLastError();
}
