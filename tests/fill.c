#include "test.h"

#include "fill.h"

#include <math.h>
#include <stdbool.h>

#include "dev/ops.h"
#include "num/codec.h"

double fill_value(uint32_t i, uint32_t j)
{
    uint32_t x = i * 0x9E3779B9U + j * 0x85EBCA6BU + 0xC2B2AE35U;
    x ^= x >> 15;
    x *= 0x2C1B3C6DU;
    x ^= x >> 12;
    x *= 0x297A2D39U;
    x ^= x >> 15;
    return x / 4294967296.0 - 0.5;
}

void fill_input(float *dst, int64_t count, uint32_t m)
{
    for (int64_t j = 0; j < count; j++) {
        dst[j] = (float)(2 * fill_value(1000 + m, (uint32_t)j));
    }
}

static int64_t product(const int64_t *shape, int32_t first, int32_t rank)
{
    int64_t n = 1;
    for (int32_t i = first; i < rank; i++) {
        n *= shape[i];
    }
    return n;
}

/* How values of a tensor are made from the hash. */
struct recipe {
    uint32_t number;
    double base, scale;
};

static struct recipe recipe_of(const struct oz_layer *row, uint32_t number)
{
    static const char *const norms[] = {"norm_q.weight",
                                        "norm_k.weight",
                                        "norm_added_q.weight",
                                        "norm_added_k.weight",
                                        "txt_norm.weight",
                                        "norm2.weight",
                                        "gamma"};
    size_t n = strlen(row->name);
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
        size_t m = strlen(norms[i]);
        if (n >= m && strcmp(row->name + n - m, norms[i]) == 0) {
            return (struct recipe){number, 1, 0.2};
        }
    }
    if (row->file_rank < 2) {
        return (struct recipe){number, 0, 0.1};
    }
    double fan = (double)product(row->file_shape, 1, row->file_rank);
    return (struct recipe){number, 0, 2 / sqrt(fan)};
}

/* A parameter as slices of matrices, as operators read it. */
struct matrix {
    int64_t slices, rows, cols;
};

static struct matrix matrix_of(enum oz_layer_kind kind, const int64_t *shape, int32_t rank)
{
    switch (kind) {
    case OZ_LAYER_EXPERTS: return (struct matrix){shape[0], shape[1], product(shape, 2, rank)};
    case OZ_LAYER_NORM:
    case OZ_LAYER_VECTOR: return (struct matrix){1, 1, product(shape, 0, rank)};
    case OZ_LAYER_LINEAR:
    case OZ_LAYER_EMBED:
    case OZ_LAYER_CONV:
    default: return (struct matrix){1, shape[0], product(shape, 1, rank)};
    }
}

/* Out feature of the file (of the row's part of it) that becomes out feature r of `count`. */
static int64_t source_row(const struct oz_layer *row, int64_t r, int64_t count)
{
    if (row->transform & OZ_TRANSFORM_PERMUTE) {
        r = row->permutation[r];
    }
    if (row->transform & OZ_TRANSFORM_SWAP_HALVES) {
        r = r < count / 2 ? r + count / 2 : r - count / 2;
    }
    return row->file_row + r;
}

/* Row-major index in the file's tensor of element (slice, r, c) of the row's canonical matrix. */
static int64_t source(const struct oz_layer *row, struct matrix m, int64_t slice, int64_t r,
                      int64_t c)
{
    if (row->kind == OZ_LAYER_NORM || row->kind == OZ_LAYER_VECTOR) {
        return source_row(row, c, m.cols);
    }
    r = source_row(row, r, m.rows);
    if (row->kind == OZ_LAYER_CONV) {
        /* c = tap * in + channel; time is the outermost kernel dim, so a cut kernel is the end. */
        const int64_t in = row->shape[1];
        const int64_t taps = product(row->shape, 2, row->rank);
        const int64_t file_taps = product(row->file_shape, 2, row->file_rank);
        return (r * in + c % in) * file_taps + file_taps - taps + c / in;
    }
    if (row->transform & OZ_TRANSFORM_TRANSPOSE) {
        return (slice * m.cols + c) * m.rows + r;
    }
    return (slice * m.rows + r) * m.cols + c;
}

static void bind(const struct oz_layer *row, struct recipe how, struct oz_arena *memory)
{
    struct oz_param *p = row->bind;
    const struct matrix part = matrix_of(row->kind, row->shape, row->rank);
    struct matrix whole = part;
    if (row->bind_row_stride != 0) {
        assert_true(p->rank > 0);
        whole = matrix_of(row->kind, p->shape, p->rank);
    }
    if (p->weight.codec == NULL) {
        void *data;
        size_t bytes = (size_t)(whole.slices * whole.rows * whole.cols) * sizeof(float);
        assert_int_equal(oz_arena_push(memory, bytes, &data), OZ_OK);
        p->weight = oz_weight_plain(OZ_DTYPE_F32, whole.slices, whole.rows, whole.cols, data);
    }
    const int64_t stride = row->bind_row_stride != 0 ? row->bind_row_stride : 1;
    const float one = row->transform & OZ_TRANSFORM_ADD_ONE ? 1.0F : 0.0F;
    float *plane = p->weight.planes[OZ_PLANE_CODES].data;
    for (int64_t s = 0; s < part.slices; s++) {
        for (int64_t r = 0; r < part.rows; r++) {
            const int64_t to = (row->bind_slice + s) * whole.rows + row->bind_row + r * stride;
            assert_true(to < whole.slices * whole.rows && part.cols == whole.cols);
            for (int64_t c = 0; c < part.cols; c++) {
                const int64_t j = source(row, part, s, r, c);
                const double v = fill_value(how.number, (uint32_t)j);
                plane[to * whole.cols + c] = (float)(how.base + how.scale * v) + one;
            }
        }
    }
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

size_t fill_bytes(const struct oz_layer_table *t)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < t->count; i++) {
        const struct oz_layer *row = &t->rows[i];
        if (row->bind != NULL) {
            bytes += oz_arena_round((size_t)product(row->shape, 0, row->rank) * sizeof(float));
        }
    }
    return bytes;
}

void fill_table(const struct oz_layer_table *t, const char *const *extra, size_t extra_count,
                struct oz_arena *memory)
{
    size_t count = 0;
    const char **names = malloc(((size_t)t->count + extra_count) * sizeof *names);
    assert_non_null(names);
    for (int32_t i = 0; i < t->count; i++) {
        if (t->rows[i].tied_to == NULL) {
            names[count++] = t->rows[i].name;
        }
    }
    for (size_t i = 0; i < extra_count; i++) {
        names[count++] = extra[i];
    }
    qsort(names, count, sizeof *names, by_bytes);
    for (int32_t i = 0; i < t->count; i++) {
        const struct oz_layer *row = &t->rows[i];
        if (row->bind == NULL || row->tied_to != NULL) {
            continue;
        }
        const char **at = bsearch(&row->name, names, count, sizeof *names, by_bytes);
        assert_non_null(at);
        bind(row, recipe_of(row, (uint32_t)(at - names)), memory);
    }
    for (int32_t i = 0; i < t->count; i++) {
        const struct oz_layer *row = &t->rows[i];
        if (row->bind != NULL && row->tied_to != NULL) {
            const struct oz_layer *other = oz_layer_find(t, row->tied_to);
            assert_true(other != NULL && other->bind != NULL);
            row->bind->weight = other->bind->weight;
        }
    }
    free(names);
}
