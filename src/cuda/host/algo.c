/*
 * The algorithm of a product: those that cuBLASLt's heuristic proposes, of which only such count as sum K
 * in one piece and give a row the same bytes among any number of rows (tried on random data), are timed,
 * and the fastest is the layer's for good. What was chosen is kept in a file for the card and the
 * library's version, so that the next run chooses alike and at once. Products whose shape a picture's size
 * makes, not a layer, take the heuristic's first.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cuda/host/gemm.h"

#define CANDIDATES 16
#define MOST_CANDIDATES 48
#define TIMED_RUNS 3
#define CACHE_ROTATED (INT64_C(192) << 20) /* of weights, so that they come from memory */

/* Rows that an algorithm must take; those of its class that it is compared at. */
#define CHOSEN_ROWS 4096
#define CHOSEN_FEW 64
static const int64_t rows_to_take[] = {1, 2, 13, 64, 257, CHOSEN_ROWS};
static const int64_t rows_few[] = {1, 2, 13, 64, OZ_CUDA_FEW_ROWS};
static const int64_t rows_many[] = {257, 1000, CHOSEN_ROWS};

static bool same_key(const struct oz_cuda_algo *a, const struct oz_cuda_algo *b)
{
    return a->n == b->n && a->k == b->k && a->x_type == b->x_type && a->w_type == b->w_type &&
           a->y_type == b->y_type && a->kind == b->kind;
}

static int32_t config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what)
{
    int32_t value = -1;
    size_t written;
    (void)cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, sizeof value, &written);
    return value;
}

/* Does it sum K in one piece, for any number of rows? */
static bool is_steady(struct oz_cuda *c, const struct oz_cuda_gemm *g,
                      const cublasLtMatmulAlgo_t *algo)
{
    if (config(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1 ||
        config(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) > 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof rows_to_take / sizeof *rows_to_take; i++) {
        struct oz_cuda_problem p;
        cublasLtMatmulHeuristicResult_t result;
        if (oz_cuda_gemm_set_up(g, rows_to_take[i], &p) != CUBLAS_STATUS_SUCCESS ||
            cublasLtMatmulAlgoCheck(c->lt, &p.op, &p.w, &p.x, &p.y, &p.y, algo, &result) !=
                CUBLAS_STATUS_SUCCESS ||
            result.workspaceSize > (size_t)OZ_CUDA_WORKSPACE_BYTES) {
            return false;
        }
    }
    return true;
}

static cublasStatus_t ask(struct oz_cuda *c, struct oz_cuda_problem *p,
                          cublasLtMatmulHeuristicResult_t *results, int *count)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    size_t workspace = (size_t)OZ_CUDA_WORKSPACE_BYTES;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
    uint32_t align = 16;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    *count = 0;
    cublasStatus_t s = cublasLtMatmulPreferenceInit(&preference);
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = cublasLtMatmulPreferenceSetAttribute(
            &preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    }
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = cublasLtMatmulPreferenceSetAttribute(
            &preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    }
    for (size_t i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++) {
        s = cublasLtMatmulPreferenceSetAttribute(&preference, alignments[i], &align, sizeof align);
    }
    return s != CUBLAS_STATUS_SUCCESS
               ? s
               : cublasLtMatmulAlgoGetHeuristic(c->lt, &p->op, &p->w, &p->x, &p->y, &p->y,
                                                &preference, CANDIDATES, results, count);
}

struct candidate {
    cublasLtMatmulAlgo_t algo;
    float ms;
};

/* The heuristic's steady algorithms for so many rows, in its order, that are not in the list yet. */
static int propose(struct oz_cuda *c, const struct oz_cuda_gemm *g, int64_t rows,
                   struct candidate *list, int count)
{
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    struct oz_cuda_problem p;
    int proposed = 0;
    cublasStatus_t s = oz_cuda_gemm_set_up(g, rows, &p);
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = ask(c, &p, results, &proposed);
    }
    for (int i = 0; s == CUBLAS_STATUS_SUCCESS && i < proposed && count < MOST_CANDIDATES; i++) {
        bool known = results[i].state != CUBLAS_STATUS_SUCCESS;
        for (int j = 0; j < count && !known; j++) {
            known = memcmp(&list[j].algo, &results[i].algo, sizeof results[i].algo) == 0;
        }
        if (!known && is_steady(c, g, &results[i].algo)) {
            list[count++] = (struct candidate){.algo = results[i].algo};
        }
    }
    return count;
}

/* ---- timing ---- */

/* Operands of random values on the card, and room for two results. */
struct bench {
    void *x, *w, *y[2], *scales;
    int64_t w_bytes, w_count, y_row_bytes;
    cudaEvent_t events[2];
};

/* Values of moderate size in every format: bytes that are numbers as s8, e4m3, bf16 and f32. */
static bool fill(void *to, int64_t bytes)
{
    static uint8_t pattern[1 << 16];
    uint32_t seed = 0x1234567U;
    int64_t done = bytes < (int64_t)sizeof pattern ? bytes : (int64_t)sizeof pattern;
    for (size_t i = 0; i < sizeof pattern; i += 2) {
        seed = seed * 1664525U + 1013904223U;
        pattern[i] = (uint8_t)(seed >> 16 & 0xBFU);            /* e4m3 up to 2^1 */
        pattern[i + 1] = (uint8_t)((seed >> 31 << 7) | 0x3FU); /* bf16 of 2^-1 to 2^1 */
    }
    if (cudaMemcpy(to, pattern, (size_t)done, cudaMemcpyHostToDevice) != cudaSuccess) {
        return false;
    }
    while (done < bytes) { /* doubling what is there */
        int64_t some = bytes - done < done ? bytes - done : done;
        if (cudaMemcpy((uint8_t *)to + done, to, (size_t)some, cudaMemcpyDeviceToDevice) !=
            cudaSuccess) {
            return false;
        }
        done += some;
    }
    return true;
}

static void close_bench(struct bench *b)
{
    (void)cudaFree(b->x);
    (void)cudaFree(b->w);
    (void)cudaFree(b->y[0]);
    (void)cudaFree(b->y[1]);
    (void)cudaFree(b->scales);
    for (int i = 0; i < 2; i++) {
        if (b->events[i] != NULL) {
            (void)cudaEventDestroy(b->events[i]);
        }
    }
}

/* g with the bench's operands in place of its own; false: no memory. */
static bool open_bench(struct bench *b, const struct oz_cuda_gemm *g, int64_t rows,
                       struct oz_cuda_gemm *with)
{
    *b = (struct bench){0};
    *with = *g;
    int64_t x_bytes = rows * g->x_stride * (oz_dtype_bits(g->x_dtype) / 8);
    int64_t longest = g->n > g->k ? g->n : g->k;
    b->w_bytes = (g->w_by_k ? g->k : g->n) * g->w_stride * (oz_dtype_bits(g->w_dtype) / 8);
    b->w_count = CACHE_ROTATED / b->w_bytes;
    b->w_count = b->w_count < 1 ? 1 : b->w_count > 8 ? 8 : b->w_count;
    b->y_row_bytes = g->y_stride * (oz_dtype_bits(g->y_dtype) / 8);
    longest = longest > rows ? longest : rows;
    bool there = cudaMalloc(&b->x, (size_t)x_bytes) == cudaSuccess &&
                 cudaMalloc(&b->w, (size_t)(b->w_bytes * b->w_count)) == cudaSuccess &&
                 cudaMalloc(&b->y[0], (size_t)(b->y_row_bytes * rows)) == cudaSuccess &&
                 cudaMalloc(&b->y[1], (size_t)(b->y_row_bytes * rows)) == cudaSuccess &&
                 cudaMalloc(&b->scales, (size_t)longest * 4) == cudaSuccess &&
                 cudaEventCreate(&b->events[0]) == cudaSuccess &&
                 cudaEventCreate(&b->events[1]) == cudaSuccess && fill(b->x, x_bytes) &&
                 fill(b->w, b->w_bytes * b->w_count) && fill(b->scales, longest * 4) &&
                 cudaMemset(b->y[0], 0, (size_t)(b->y_row_bytes * rows)) == cudaSuccess &&
                 cudaMemset(b->y[1], 0, (size_t)(b->y_row_bytes * rows)) == cudaSuccess;
    if (!there) {
        (void)cudaGetLastError();
        close_bench(b);
        return false;
    }
    with->x = b->x;
    with->w = b->w;
    with->y = b->y[0];
    with->bias = g->bias != NULL ? b->scales : NULL;
    with->w_scales = g->w_scales != NULL ? b->scales : NULL;
    with->x_scales = g->x_scales != NULL ? b->scales : NULL;
    with->add = g->add != NULL ? b->y[0] : NULL;
    return true;
}

/* One run of `rows` rows, with copy `turn` of the weights, into result `which`. */
static bool run_once(struct oz_cuda *c, struct bench *b, struct oz_cuda_gemm *g, int64_t rows,
                     const cublasLtMatmulAlgo_t *algo, int64_t turn, int which)
{
    struct oz_cuda_problem p;
    g->m = rows;
    g->w = (const uint8_t *)b->w + turn % b->w_count * b->w_bytes;
    g->y = b->y[which];
    return oz_cuda_gemm_set_up(g, rows, &p) == CUBLAS_STATUS_SUCCESS &&
           oz_cuda_gemm_launch(c, g, &p, algo, c->stream, c->workspace) == CUBLAS_STATUS_SUCCESS;
}

/* Milliseconds of a run: the least of a few, the first apart; HUGE where it fails. */
static float time_algo(struct oz_cuda *c, struct bench *b, struct oz_cuda_gemm *g, int64_t rows,
                       const cublasLtMatmulAlgo_t *algo)
{
    const float never = 1e30F;
    float best = never;
    for (int i = 0; i <= TIMED_RUNS; i++) {
        float ms = never;
        if (cudaEventRecord(b->events[0], c->stream) != cudaSuccess ||
            !run_once(c, b, g, rows, algo, i, 0) ||
            cudaEventRecord(b->events[1], c->stream) != cudaSuccess ||
            cudaEventSynchronize(b->events[1]) != cudaSuccess ||
            cudaEventElapsedTime(&ms, b->events[0], b->events[1]) != cudaSuccess) {
            (void)cudaGetLastError();
            return never;
        }
        best = i > 0 && ms < best ? ms : best;
    }
    return best;
}

/* Has a row the same bytes among few and among many? What is added to is zeros. */
static bool same_bytes(struct oz_cuda *c, struct bench *b, struct oz_cuda_gemm g,
                       const cublasLtMatmulAlgo_t *algo)
{
    const int64_t *rows = g.few ? rows_few : rows_many;
    size_t count =
        g.few ? sizeof rows_few / sizeof *rows_few : sizeof rows_many / sizeof *rows_many;
    int64_t most = rows[count - 1];
    bool same =
        cudaMemsetAsync(b->y[0], 0, (size_t)(b->y_row_bytes * most), c->stream) == cudaSuccess &&
        run_once(c, b, &g, most, algo, 0, 0);
    for (size_t i = 0; i + 1 < count && same; i++) {
        size_t bytes = (size_t)(b->y_row_bytes * rows[i]);
        void *host[2] = {oz_alloc_zero(1, bytes), oz_alloc_zero(1, bytes)};
        g.add = g.add != NULL ? b->y[1] : NULL;
        same = host[0] != NULL && host[1] != NULL &&
               cudaMemsetAsync(b->y[1], 0, bytes, c->stream) == cudaSuccess &&
               run_once(c, b, &g, rows[i], algo, 0, 1) &&
               cudaStreamSynchronize(c->stream) == cudaSuccess &&
               cudaMemcpy(host[0], b->y[0], bytes, cudaMemcpyDeviceToHost) == cudaSuccess &&
               cudaMemcpy(host[1], b->y[1], bytes, cudaMemcpyDeviceToHost) == cudaSuccess &&
               memcmp(host[0], host[1], bytes) == 0;
        oz_free(host[0]);
        oz_free(host[1]);
    }
    return same;
}

static int by_time(const void *a, const void *b)
{
    float x = ((const struct candidate *)a)->ms;
    float y = ((const struct candidate *)b)->ms;
    return (x > y) - (x < y);
}

/* Sorts the list by time and gives the first whose rows keep their bytes; -1: none was timed. */
static int fastest(struct oz_cuda *c, const struct oz_cuda_gemm *g, struct candidate *list,
                   int count)
{
    struct bench b;
    struct oz_cuda_gemm with;
    int64_t rows = g->few ? CHOSEN_FEW : CHOSEN_ROWS;
    float first = 0;
    int chosen = -1;
    if (count == 0) {
        return -1;
    }
    if (!open_bench(&b, g, g->few ? OZ_CUDA_FEW_ROWS : CHOSEN_ROWS, &with)) {
        oz_log(
            OZ_LOG_INFO, "dispatch",
            "No memory on %s to time the algorithms of a product; the heuristic's first is taken.",
            c->name);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        list[i].ms = time_algo(c, &b, &with, rows, &list[i].algo);
        first = i == 0 ? list[0].ms : first;
    }
    qsort(list, (size_t)count, sizeof *list, by_time);
    for (int i = 0; i < count && chosen < 0; i++) {
        chosen = list[i].ms < 1e30F && same_bytes(c, &b, with, &list[i].algo) ? i : -1;
    }
    if (chosen >= 0) {
        oz_log(OZ_LOG_DEBUG, "dispatch",
               "gemm n %lld k %lld types %d %d %d, %lld rows: algorithm %d, tile %d, stages %d: "
               "%.1f us, fastest of %d %.1f, the heuristic's first %.1f",
               (long long)g->n, (long long)g->k, (int)g->x_dtype, (int)g->w_dtype, (int)g->y_dtype,
               (long long)rows, config(&list[chosen].algo, CUBLASLT_ALGO_CONFIG_ID),
               config(&list[chosen].algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
               config(&list[chosen].algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
               1e3 * (double)list[chosen].ms, count, 1e3 * (double)list[0].ms, 1e3 * (double)first);
    }
    close_bench(&b);
    return chosen;
}

/* Fills key->algo, or key->none. */
static void choose(struct oz_cuda *c, const struct oz_cuda_gemm *g, struct oz_cuda_algo *key)
{
    struct candidate list[MOST_CANDIDATES];
    int count = propose(c, g, g->few ? CHOSEN_FEW : CHOSEN_ROWS, list, 0);
    int chosen = count > 0 ? 0 : -1;
    if (!g->unique) {
        if (g->few) { /* where K is long, its list for 64 rows holds old kernels of large tiles */
            count = propose(c, g, 16, list, count);
            count = propose(c, g, OZ_CUDA_FEW_ROWS, list, count);
        }
        chosen = fastest(c, g, list, count);
        c->algos_changed = c->algos_changed || chosen >= 0;
    }
    key->none = chosen < 0;
    if (!key->none) {
        key->algo = list[chosen].algo;
        return;
    }
    oz_log(OZ_LOG_DEBUG, "dispatch",
           "cuBLASLt has no algorithm that sums K in one piece for n %lld, k %lld (strides %lld "
           "%lld %lld), %s by %s to %s, kind %d.",
           (long long)g->n, (long long)g->k, (long long)g->x_stride, (long long)g->w_stride,
           (long long)g->y_stride, oz_dtype_name(g->x_dtype), oz_dtype_name(g->w_dtype),
           oz_dtype_name(g->y_dtype), key->kind);
}

bool oz_cuda_find_algo(struct oz_cuda *c, const struct oz_cuda_gemm *g, struct oz_cuda_algo *key)
{
    bool found = false;
    pthread_mutex_lock(&c->lock);
    if (!c->algos_read) {
        c->algos_read = true;
        oz_cuda_read_algos(c);
    }
    for (int32_t i = 0; i < c->algo_count && !found; i++) {
        struct oz_cuda_algo *a = &c->algos[i];
        if (!same_key(a, key)) {
            continue;
        }
        if (a->from_file && !is_steady(c, g, &a->algo)) {
            choose(c, g, a); /* another library wrote it, or somebody's editor */
        }
        a->from_file = false;
        *key = *a;
        found = true;
    }
    if (!found) {
        choose(c, g, key);
        if (c->algo_count < OZ_CUDA_MOST_ALGOS) {
            key->passing = g->unique;
            c->algos[c->algo_count++] = *key;
        }
    }
    pthread_mutex_unlock(&c->lock);
    return !key->none;
}
