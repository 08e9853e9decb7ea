/* Weights that the file holds in a form that no operator takes as it is: smoothed, rotated, with a
 * low-rank branch. They are decoded band by band, what the operators do not apply is applied to the
 * weight, and bf16 stays. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "load/cells.h"
#include "load/expand.h"
#include "num/float.h"
#include "num/float8.h"
#include "num/rotate.h"

#define BAND_ELEMENTS (INT64_C(1) << 20) /* of rows that are expanded together */

struct oz_weight oz_load_expand_weight(const struct oz_load_item *item)
{
    struct oz_weight w =
        oz_weight_shape(item->planes->codec, 1, item->shape.rows, item->shape.cols);
    w.group_cols = item->planes->group_cols > 0 ? item->planes->group_cols : w.group_cols;
    for (int32_t i = 0; i < w.codec->plane_count; i++) {
        const struct oz_plane_spec *spec = &w.codec->planes[i];
        const enum oz_plane_move move = item->planes->planes[spec->plane].move;
        if (spec->optional &&
            (item->planes->planes[spec->plane].tensor != NULL || move == OZ_MOVE_REPEAT)) {
            w.planes[spec->plane].present = true;
            w.planes[spec->plane].dtype = spec->dtype;
        }
    }
    return w;
}

int64_t oz_load_expand_rows(const struct oz_load_item *item, int64_t scope)
{
    struct oz_weight w = oz_load_expand_weight(item);
    int64_t own = oz_weight_scope_rows(&w);
    int64_t unit = scope;
    while (unit % own != 0) { /* scopes are small, and mostly 1 */
        unit += scope;
    }
    int64_t rows = item->shape.cols > 0 ? BAND_ELEMENTS / item->shape.cols / unit * unit : 0;
    return rows > unit ? rows : unit;
}

/* What goes along with all bands: the smoothing vector and the factors, in f32. */
static int64_t shared_floats(const struct oz_load_item *item)
{
    const struct oz_stored_weight *s = item->planes;
    int64_t floats = item->shape.cols; /* a row */
    if (s->planes[OZ_PLANE_SMOOTH].tensor != NULL) {
        floats += item->shape.cols;
    }
    if (s->planes[OZ_PLANE_SCALES3].tensor != NULL) {
        floats += item->shape.rows;
    }
    if (s->rotate_rows > 0) {
        int64_t cols = item->shape.cols / s->rotate_rows;
        floats += (int64_t)s->rotate_rows * s->rotate_rows + cols * cols + item->shape.cols;
    }
    return floats + s->rank * (item->shape.cols + item->shape.rows);
}

int64_t oz_load_expand_staging(const struct oz_load_item *item, int64_t rows)
{
    struct oz_weight w = oz_load_expand_weight(item);
    rows = rows < item->shape.rows ? rows : item->shape.rows;
    int64_t side = 0;
    for (int i = OZ_PLANE_FIRST_SIDE; i < OZ_PLANE_COUNT; i++) {
        const struct oz_tensor_view *t = item->planes->planes[i].tensor;
        side = t != NULL && t->bytes > side ? t->bytes : side;
    }
    return oz_load_round(shared_floats(item) * 4) + oz_load_stage_bytes(&w, 0, rows) +
           oz_load_cells_staging(item->planes, &w, rows) + side;
}

struct parts {
    float *row, *smooth, *channels, *down, *up;
    float *left, *right, *between; /* of the factors: a row that one of them is in */
};

/* The parts' places in the memory: they follow from the shape. */
static struct parts parts_at(const struct oz_load_item *item, uint8_t *memory)
{
    const struct oz_stored_weight *s = item->planes;
    struct parts p = {.row = (float *)(void *)memory};
    float *at = p.row + item->shape.cols;
    if (s->planes[OZ_PLANE_SMOOTH].tensor != NULL) {
        p.smooth = at;
        at += item->shape.cols;
    }
    if (s->planes[OZ_PLANE_SCALES3].tensor != NULL) {
        p.channels = at;
        at += item->shape.rows;
    }
    if (s->rotate_rows > 0) {
        int64_t cols = item->shape.cols / s->rotate_rows;
        p.left = at;
        p.right = p.left + (int64_t)s->rotate_rows * s->rotate_rows;
        p.between = p.right + cols * cols;
        at = p.between + item->shape.cols;
    }
    if (s->rank > 0) {
        p.down = at;
        p.up = at + s->rank * item->shape.cols;
    }
    return p;
}

/* Of those that are not there the identity. */
static enum oz_status read_factor(const struct oz_ckpt *ckpt, const struct oz_stored_weight *s,
                                  enum oz_plane plane, int64_t n, float *dst, struct oz_error *err)
{
    if (s->planes[plane].tensor != NULL) {
        return oz_load_read_matrix(ckpt, s, plane, n, n, dst, err);
    }
    for (int64_t i = 0; i < n * n; i++) {
        dst[i] = i % (n + 1) == 0 ? 1.0F : 0.0F;
    }
    return OZ_OK;
}

static enum oz_status read_parts(const struct oz_load_args *a, const struct oz_load_item *item,
                                 const struct parts *p, struct oz_error *err)
{
    const struct oz_stored_weight *s = item->planes;
    const struct oz_ckpt *ckpt = a->match->ckpt;
    int64_t cols = item->shape.cols;
    int64_t rows = item->shape.rows;
    if (p->smooth != NULL) {
        OZ_TRY(oz_load_read_matrix(ckpt, s, OZ_PLANE_SMOOTH, 1, cols, p->smooth, err));
        for (int64_t c = 0; c < cols; c++) {
            if (p->smooth[c] == 0) {
                return OZ_FAIL(err, OZ_ERR_FORMAT,
                               "Tensor %s: element %lld is 0, and activations would be lost by it.",
                               s->planes[OZ_PLANE_SMOOTH].tensor->name, (long long)c);
            }
        }
    }
    if (p->channels != NULL) {
        OZ_TRY(oz_load_read_matrix(ckpt, s, OZ_PLANE_SCALES3, rows, 1, p->channels, err));
    }
    if (s->rotate_rows > 0) {
        int64_t n = s->rotate_rows;
        OZ_TRY(read_factor(ckpt, s, OZ_PLANE_ROTATE_L, n, p->left, err));
        OZ_TRY(read_factor(ckpt, s, OZ_PLANE_ROTATE_R, cols / n, p->right, err));
    }
    if (s->rank > 0) {
        OZ_TRY(oz_load_read_matrix(ckpt, s, OZ_PLANE_LOW_RANK_A, s->rank, cols, p->down, err));
        OZ_TRY(oz_load_read_matrix(ckpt, s, OZ_PLANE_LOW_RANK_B, rows, s->rank, p->up, err));
    }
    return OZ_OK;
}

static void smooth(const struct oz_stored_weight *s, const struct parts *p, int64_t cols, float *w)
{
    for (int64_t c = 0; c < cols && p->smooth != NULL; c++) {
        w[c] = s->smooth_multiplies ? w[c] * p->smooth[c] : w[c] / p->smooth[c];
    }
}

/* w is for the activations L^T X R, both as matrices of L's rows: of X it is L w R^T. */
static void apply_factors(const struct parts *p, int64_t rows, int64_t cols, float *w)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t j = 0; j < cols; j++) {
                sum += (double)w[i * cols + j] * (double)p->right[c * cols + j];
            }
            p->between[i * cols + c] = (float)sum;
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t i = 0; i < rows; i++) {
                sum += (double)p->left[r * rows + i] * (double)p->between[i * cols + c];
            }
            w[r * cols + c] = (float)sum;
        }
    }
}

/* One row, decoded, becomes that of y = W x with plain x. */
static void apply(const struct oz_load_item *item, const struct parts *p, int64_t row, float *w)
{
    const struct oz_stored_weight *s = item->planes;
    int64_t cols = item->shape.cols;
    for (int64_t c = 0; c < cols && p->channels != NULL; c++) {
        w[c] *= p->channels[row];
    }
    for (int64_t c = 0; c < cols && s->e4m3_scale != 0; c++) {
        w[c] = oz_e4m3_to_f32(oz_f32_to_e4m3(w[c] / s->e4m3_scale)) * s->e4m3_scale;
    }
    if (s->rotate_cols > 0) {
        oz_rotate_row(w, cols, s->rotate_cols);
    }
    if (s->rotate_rows > 0) {
        apply_factors(p, s->rotate_rows, cols / s->rotate_rows, w);
    }
    if (!s->smooth_last) {
        smooth(s, p, cols, w);
    }
    for (int32_t k = 0; k < s->rank; k++) {
        float factor = p->up[row * s->rank + k];
        const float *down = p->down + k * cols;
        for (int64_t c = 0; c < cols; c++) {
            w[c] += factor * down[c];
        }
    }
    if (s->smooth_last) {
        smooth(s, p, cols, w);
    }
}

enum oz_status oz_load_expand_open(const struct oz_load_args *a, const struct oz_load_item *item,
                                   int64_t rows, uint8_t **memory, struct oz_error *err)
{
    struct oz_weight w = oz_load_expand_weight(item);
    int64_t floats = oz_load_round(shared_floats(item) * 4);
    rows = rows < item->shape.rows ? rows : item->shape.rows;
    *memory = oz_alloc_aligned((size_t)(floats + oz_load_stage_bytes(&w, 0, rows)), OZ_LOAD_ALIGN);
    if (*memory == NULL) {
        return OZ_FAIL_NOMEM(err, item->parts[0].layer->name);
    }
    const struct parts p = parts_at(item, *memory);
    return read_parts(a, item, &p, err);
}

/* The cells of some rows, into the memory behind what all bands need. */
static enum oz_status read_band(const struct oz_load_args *a, const struct oz_load_item *item,
                                int64_t row0, int64_t rows, uint8_t *memory, struct oz_weight *view,
                                struct oz_error *err)
{
    struct oz_weight w = oz_load_expand_weight(item);
    uint8_t *base = memory + oz_load_round(shared_floats(item) * 4);
    *view = oz_load_stage_view(&w, 0, row0, rows, base);
    for (int i = 0; i < OZ_PLANE_FIRST_SIDE; i++) {
        if (!w.planes[i].present) {
            continue;
        }
        OZ_TRY(oz_load_read_rows(a->match->ckpt, item, &w, (enum oz_plane)i, 0, row0, rows,
                                 a->keep_nonfinite, view->planes[i].data, err));
    }
    return OZ_OK;
}

enum oz_status oz_load_expand_band(const struct oz_load_args *a, const struct oz_load_item *item,
                                   int64_t row0, int64_t rows, uint8_t *memory, uint16_t *dst,
                                   struct oz_error *err)
{
    struct oz_weight view;
    struct parts p = parts_at(item, memory);
    OZ_TRY(read_band(a, item, row0, rows, memory, &view, err));
    for (int64_t r = 0; r < rows; r++) {
        view.codec->decode(&view, 0, row0 + r, 0, item->shape.cols, p.row);
        apply(item, &p, oz_load_source_row(&item->parts[0], row0 + r), p.row);
        for (int64_t c = 0; c < item->shape.cols; c++) {
            uint16_t x = oz_f32_to_bf16(p.row[c]);
            memcpy(dst + r * item->shape.cols + c, &x, sizeof x);
        }
    }
    return OZ_OK;
}

/* The bias' weight without its branch, as an item of its own. */
static struct oz_load_item shifted_item(const struct oz_load_item *bias,
                                        struct oz_stored_weight *residual)
{
    *residual = *bias->planes->shifted;
    residual->rank = 0;
    residual->planes[OZ_PLANE_LOW_RANK_A].tensor = NULL;
    residual->planes[OZ_PLANE_LOW_RANK_B].tensor = NULL;
    struct oz_load_item item = *bias;
    item.planes = residual;
    item.shape = (struct oz_load_matrix){
        .slices = 1, .rows = bias->shape.cols, .cols = bias->planes->shifted_cols};
    return item;
}

int64_t oz_load_unshift_staging(const struct oz_load_item *item)
{
    struct oz_stored_weight residual;
    const struct oz_load_item weight = shifted_item(item, &residual);
    return oz_load_expand_staging(&weight, oz_load_expand_rows(&weight, 1));
}

enum oz_status oz_load_unshift(const struct oz_load_args *a, const struct oz_load_item *bias,
                               float *dst, struct oz_error *err)
{
    struct oz_stored_weight residual;
    const struct oz_load_item item = shifted_item(bias, &residual);
    int64_t chunk = oz_load_expand_rows(&item, 1);
    uint8_t *memory = NULL;
    enum oz_status status = oz_load_expand_open(a, &item, chunk, &memory, err);
    for (int64_t r0 = 0; r0 < item.shape.rows && status == OZ_OK; r0 += chunk) {
        int64_t rows = item.shape.rows - r0 < chunk ? item.shape.rows - r0 : chunk;
        struct parts p = parts_at(&item, memory);
        struct oz_weight view;
        status = read_band(a, &item, r0, rows, memory, &view, err);
        for (int64_t r = r0; r < r0 + rows && status == OZ_OK; r++) {
            double sum = 0;
            view.codec->decode(&view, 0, r, 0, item.shape.cols, p.row);
            apply(&item, &p, r, p.row);
            for (int64_t c = 0; c < item.shape.cols; c++) {
                sum += (double)p.row[c];
            }
            dst[r] = (float)((double)dst[r] + (double)bias->planes->shift * sum);
        }
    }
    oz_free(memory);
    return status;
}
