/*
 * The matrix product of the reference kernels. Weight rows are decoded once per task; every output
 * element is the same sum whatever block it falls into.
 */
#include "cpu/int8.h"
#include "cpu/kern/ref/ref.h"

/* Four of the eight partial sums. A notation for lanes, not an instruction set: the compiler maps
 * it to what the target has, and every lane is an ordinary f32 sum. */
typedef float lanes __attribute__((vector_size(16)));

static inline lanes load_lanes(const float *p)
{
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Adds the tail of a piece, fewer than eight terms, and the partial sums pairwise. */
static float finish(lanes low, lanes high, const float *x, const float *w, int64_t count)
{
    float s[8];
    memcpy(s, &low, sizeof low);
    memcpy(s + 4, &high, sizeof high);
    for (int64_t j = 0; j < count; j++) {
        s[j] += x[j] * w[j];
    }
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void dot_1(const float *x, const float *w, int64_t count, float *out)
{
    lanes low = {0};
    lanes high = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        low += load_lanes(x + i) * load_lanes(w + i);
        high += load_lanes(x + i + 4) * load_lanes(w + i + 4);
    }
    *out = finish(low, high, x + i, w + i, count - i);
}

/* Four weight rows at once share the loads of x. */
static void dot_4(const float *x, const float *w, int64_t stride, int64_t count, float *out)
{
    const float *w0 = w;
    const float *w1 = w + stride;
    const float *w2 = w + 2 * stride;
    const float *w3 = w + 3 * stride;
    lanes low0 = {0}, low1 = {0}, low2 = {0}, low3 = {0};
    lanes high0 = {0}, high1 = {0}, high2 = {0}, high3 = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        lanes a = load_lanes(x + i);
        lanes b = load_lanes(x + i + 4);
        low0 += a * load_lanes(w0 + i);
        low1 += a * load_lanes(w1 + i);
        low2 += a * load_lanes(w2 + i);
        low3 += a * load_lanes(w3 + i);
        high0 += b * load_lanes(w0 + i + 4);
        high1 += b * load_lanes(w1 + i + 4);
        high2 += b * load_lanes(w2 + i + 4);
        high3 += b * load_lanes(w3 + i + 4);
    }
    out[0] = finish(low0, high0, x + i, w0 + i, count - i);
    out[1] = finish(low1, high1, x + i, w1 + i, count - i);
    out[2] = finish(low2, high2, x + i, w2 + i, count - i);
    out[3] = finish(low3, high3, x + i, w3 + i, count - i);
}

void oz_ref_dots(const float *x, const float *w, int64_t stride, int64_t n, int64_t count,
                 float *out)
{
    int64_t c = 0;
    for (; c + 4 <= n; c += 4) {
        dot_4(x, w + c * stride, stride, count, out + c);
    }
    for (; c < n; c++) {
        dot_1(x, w + c * stride, count, out + c);
    }
}

static void store_lanes(float *p, lanes v)
{
    memcpy(p, &v, sizeof v);
}

void oz_ref_add_weighted(const float *weights, const float *rows, int64_t stride, int64_t n,
                         int64_t count, float *dst)
{
    int64_t c = 0;
    for (; c + 16 <= count; c += 16) { /* sixteen columns at once */
        lanes sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};
        for (int64_t i = 0; i < n; i++) {
            const float *row = rows + i * stride + c;
            sum0 += weights[i] * load_lanes(row);
            sum1 += weights[i] * load_lanes(row + 4);
            sum2 += weights[i] * load_lanes(row + 8);
            sum3 += weights[i] * load_lanes(row + 12);
        }
        store_lanes(dst + c, load_lanes(dst + c) + sum0);
        store_lanes(dst + c + 4, load_lanes(dst + c + 4) + sum1);
        store_lanes(dst + c + 8, load_lanes(dst + c + 8) + sum2);
        store_lanes(dst + c + 12, load_lanes(dst + c + 12) + sum3);
    }
    for (; c < count; c++) {
        float sum = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += weights[i] * rows[i * stride + c];
        }
        dst[c] += sum;
    }
}

/* Floats of one thread: decoded weight rows (twice with up), room for fetched rows. */
static int64_t thread_floats(int64_t depth, int up)
{
    return oz_ref_plus(oz_ref_times(up ? 2L * OZ_REF_COLS : OZ_REF_COLS, depth),
                       (int64_t)OZ_REF_ROWS * OZ_REF_DEPTH);
}

int64_t oz_ref_product_floats(const struct oz_device *dev, int64_t depth, int up)
{
    return oz_ref_times(oz_ref_threads(dev), thread_floats(depth, up));
}

static void decode_rows(const struct oz_weight *w, int64_t slice, int64_t row0, int64_t rows,
                        int64_t depth, float *dst)
{
    for (int64_t r = 0; r < rows; r++) {
        w->codec->decode(w, slice, row0 + r, 0, depth, dst + r * depth);
    }
}

/* acc [rows, OZ_REF_COLS] += (or =, for the first piece) x w^T over one piece. */
static void add_piece(const float *x, int64_t x_stride, int64_t rows, const float *w,
                      int64_t w_stride, int64_t cols, int64_t count, int first, float *acc)
{
    for (int64_t c = 0; c < cols; c += 4) {
        int64_t n = oz_ref_min(4, cols - c);
        for (int64_t r = 0; r < rows; r++) {
            float *to = acc + r * OZ_REF_COLS + c;
            float sums[4];
            oz_ref_dots(x + r * x_stride, w + c * w_stride, w_stride, n, count, sums);
            for (int64_t j = 0; j < n; j++) {
                to[j] = first ? sums[j] : to[j] + sums[j];
            }
        }
    }
}

_Static_assert(OZ_REF_DEPTH <= OZ_INT8_EXACT_DEPTH, "pieces of integer sums must be exact");

/* The same for codes: each piece is an exact integer, and so is their sum. */
static void add_codes(const float *x, int64_t x_stride, int64_t rows, const float *w,
                      int64_t w_stride, int64_t cols, int64_t count, int32_t *acc)
{
    for (int64_t c = 0; c < cols; c += 4) {
        int64_t n = oz_ref_min(4, cols - c);
        for (int64_t r = 0; r < rows; r++) {
            float sums[4];
            oz_ref_dots(x + r * x_stride, w + c * w_stride, w_stride, n, count, sums);
            for (int64_t j = 0; j < n; j++) {
                acc[r * OZ_REF_COLS + c + j] += (int32_t)sums[j];
            }
        }
    }
}

/* Integer sums and their scales. */
static void scale_codes(const struct oz_ref_product *p, int64_t row0, int64_t rows, int64_t col0,
                        int64_t cols, const float *col_scales, const int32_t *acc, float *y)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            int64_t at = r * OZ_REF_COLS + c;
            y[at] = p->row_scales[row0 + r] * (col_scales[col0 + c] * (float)acc[at]);
        }
    }
}

static void run_codes(const struct oz_ref_product *p, int64_t row0, int64_t rows, int64_t col0,
                      int64_t cols, const float *w, const float *up, float *room)
{
    int32_t sums[OZ_REF_ROWS * OZ_REF_COLS] = {0};
    int32_t up_sums[OZ_REF_ROWS * OZ_REF_COLS] = {0};
    float y[OZ_REF_ROWS * OZ_REF_COLS] = {0};
    float z[OZ_REF_ROWS * OZ_REF_COLS] = {0};
    for (int64_t k0 = 0; k0 < p->depth; k0 += OZ_REF_DEPTH) {
        int64_t count = oz_ref_min(OZ_REF_DEPTH, p->depth - k0);
        int64_t stride;
        const float *x = p->fetch(p->fetch_ctx, row0, rows, k0, count, room, &stride);
        add_codes(x, stride, rows, w + k0, p->depth, cols, count, sums);
        if (up != NULL) {
            add_codes(x, stride, rows, up + k0, p->depth, cols, count, up_sums);
        }
    }
    scale_codes(p, row0, rows, col0, cols, p->col_scales, sums, y);
    if (up != NULL) {
        scale_codes(p, row0, rows, col0, cols, p->up_col_scales, up_sums, z);
    }
    p->store(p->store_ctx, row0, rows, col0, cols, y, up != NULL ? z : NULL);
}

static void run_block(const struct oz_ref_product *p, int64_t row0, int64_t rows, int64_t col0,
                      int64_t cols, const float *w, const float *up, float *room)
{
    float y[OZ_REF_ROWS * OZ_REF_COLS] = {0};
    float z[OZ_REF_ROWS * OZ_REF_COLS] = {0};
    for (int64_t k0 = 0; k0 < p->depth; k0 += OZ_REF_DEPTH) {
        int64_t count = oz_ref_min(OZ_REF_DEPTH, p->depth - k0);
        int64_t stride;
        const float *x = p->fetch(p->fetch_ctx, row0, rows, k0, count, room, &stride);
        add_piece(x, stride, rows, w + k0, p->depth, cols, count, k0 == 0, y);
        if (up != NULL) {
            add_piece(x, stride, rows, up + k0, p->depth, cols, count, k0 == 0, z);
        }
    }
    p->store(p->store_ctx, row0, rows, col0, cols, y, up != NULL ? z : NULL);
}

static void run_task(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct oz_ref_product *p = ctx;
    int64_t bands = (p->rows + OZ_REF_BAND - 1) / OZ_REF_BAND;
    float *w = p->scratch + thread * thread_floats(p->depth, p->up != NULL);
    float *up = p->up != NULL ? w + OZ_REF_COLS * p->depth : NULL;
    float *room = (up != NULL ? up : w) + OZ_REF_COLS * p->depth;
    for (int64_t task = begin; task < end; task++) {
        int64_t col0 = task / bands * OZ_REF_COLS;
        int64_t cols = oz_ref_min(OZ_REF_COLS, p->cols - col0);
        int64_t row0 = task % bands * OZ_REF_BAND;
        int64_t last = oz_ref_min(row0 + OZ_REF_BAND, p->rows);
        decode_rows(p->w, p->slice, col0, cols, p->depth, w);
        if (up != NULL) {
            decode_rows(p->up, p->slice, col0, cols, p->depth, up);
        }
        for (int64_t row = row0; row < last; row += OZ_REF_ROWS) {
            int64_t rows = oz_ref_min(OZ_REF_ROWS, last - row);
            (p->row_scales != NULL ? run_codes : run_block)(p, row, rows, col0, cols, w, up, room);
        }
    }
}

void oz_ref_product_run(struct oz_pool *pool, const struct oz_ref_product *p)
{
    struct oz_ref_product copy = *p;
    int64_t bands = (p->rows + OZ_REF_BAND - 1) / OZ_REF_BAND;
    oz_pool_for(pool, (p->cols + OZ_REF_COLS - 1) / OZ_REF_COLS * bands, 1, run_task, &copy);
}

const float *oz_ref_fetch_act(const void *ctx, int64_t row0, int64_t rows, int64_t k0,
                              int64_t count, float *room, int64_t *stride)
{
    const struct oz_act *x = ctx;
    if (x->spec.dtype == OZ_DTYPE_F32) {
        *stride = x->stride;
        return oz_ref_f32(x, row0, k0);
    }
    for (int64_t r = 0; r < rows; r++) {
        oz_ref_load(x, row0 + r, k0, count, room + r * count);
    }
    *stride = count;
    return room;
}

const float *oz_ref_fetch_codes(const void *ctx, int64_t row0, int64_t rows, int64_t k0,
                                int64_t count, float *room, int64_t *stride)
{
    for (int64_t r = 0; r < rows; r++) {
        oz_int8_load(ctx, row0 + r, k0, count, room + r * count);
    }
    *stride = count;
    return room;
}
