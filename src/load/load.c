#include "load/load.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "dev/ops.h"
#include "num/codec.h"

/* A parameter as a matrix of one slice or more: what operators read (dev/ops.h, struct oz_param). */
struct matrix {
    int64_t slices, rows, cols;
};

static struct matrix matrix_of(const struct oz_layer *row)
{
    struct matrix m = {.slices = 1, .rows = 1, .cols = 1};
    int32_t first = 0; /* dims before the columns */
    switch (row->kind) {
    case OZ_LAYER_EXPERTS:
        m.slices = row->shape[0];
        m.rows = row->shape[1];
        first = 2;
        break;
    case OZ_LAYER_LINEAR:
    case OZ_LAYER_EMBED:
    case OZ_LAYER_CONV:
        m.rows = row->shape[0];
        first = 1;
        break;
    case OZ_LAYER_NORM:
    case OZ_LAYER_VECTOR: break;
    }
    for (int32_t i = first; i < row->rank; i++) {
        m.cols *= row->shape[i];
    }
    return m;
}

static bool is_vector(const struct oz_layer *row)
{
    return row->kind == OZ_LAYER_NORM || row->kind == OZ_LAYER_VECTOR;
}

/* Can the operators read the tensor where it lies in the map? */
static bool readable_in_place(const struct oz_load_args *a, const struct oz_layer *row,
                              const struct oz_tensor_view *t)
{
    uintptr_t element = (uintptr_t)oz_dtype_bits(t->dtype) / 8;
    return a->dev->host_memory && !is_vector(row) && row->kind != OZ_LAYER_CONV &&
           (row->transform & ~(uint32_t)OZ_TRANSFORM_RESHAPE) == 0 && row->file_rows == 0 &&
           t->data != NULL && (uintptr_t)t->data % element == 0;
}

/* File row that goes to canonical row r. */
static int64_t source_row(const struct oz_layer *row, int64_t r, int64_t rows)
{
    if (row->transform & OZ_TRANSFORM_PERMUTE) {
        r = row->permutation[r];
    }
    if (row->transform & OZ_TRANSFORM_SWAP_HALVES) {
        r = r < rows / 2 ? r + rows / 2 : r - rows / 2;
    }
    return row->file_row + r;
}

/* Convolution kernel [out, in, (kt,) kh, kw] to [out, taps, in], keeping the last temporal tap where
 * asked. */
static void move_conv(const struct oz_layer *row, const uint8_t *src, size_t size, uint8_t *dst)
{
    int64_t out = row->shape[0];
    int64_t in = row->shape[1];
    int64_t taps = 1;
    int64_t file_taps = 1;
    for (int32_t i = 2; i < row->rank; i++) {
        taps *= row->shape[i];
    }
    for (int32_t i = 2; i < row->file_rank; i++) {
        file_taps *= row->file_shape[i];
    }
    int64_t skip = file_taps - taps; /* time is the outermost kernel dim */
    for (int64_t o = 0; o < out; o++) {
        for (int64_t tap = 0; tap < taps; tap++) {
            for (int64_t c = 0; c < in; c++) {
                const uint8_t *from = src + (size_t)((o * in + c) * file_taps + skip + tap) * size;
                memcpy(dst, from, size);
                dst += size;
            }
        }
    }
}

/* Rows of a matrix, with the transforms that move them. */
static void move_rows(const struct oz_layer *row, struct matrix m, const uint8_t *src, size_t size,
                      uint8_t *dst)
{
    size_t line = (size_t)m.cols * size;
    for (int64_t s = 0; s < m.slices; s++) {
        const uint8_t *slice = src + (size_t)s * (size_t)m.rows * line;
        for (int64_t r = 0; r < m.rows; r++, dst += line) {
            int64_t from = source_row(row, r, m.rows);
            if (!(row->transform & OZ_TRANSFORM_TRANSPOSE)) {
                memcpy(dst, slice + (size_t)from * line, line);
                continue;
            }
            for (int64_t c = 0; c < m.cols; c++) {
                memcpy(dst + (size_t)c * size, slice + (size_t)(c * m.rows + from) * size, size);
            }
        }
    }
}

/* A norm or vector as f32. */
static void move_vector(const struct oz_layer *row, struct matrix m, const struct oz_tensor_view *t,
                        float *dst)
{
    struct oz_weight file =
        oz_weight_plain(t->dtype, 1, 1, t->elements, (void *)(uintptr_t)t->data);
    for (int64_t i = 0; i < m.cols; i++) {
        file.codec->decode(&file, 0, 0, source_row(row, i, m.cols), 1, &dst[i]);
        if (row->transform & OZ_TRANSFORM_ADD_ONE) {
            dst[i] += 1.0F;
        }
    }
}

/* Moves a tensor into `dst` (host memory) in its final layout. */
static void move(const struct oz_layer *row, struct matrix m, const struct oz_tensor_view *t,
                 void *dst)
{
    size_t size = (size_t)oz_dtype_bits(t->dtype) / 8;
    if (t->elements == 0) {
        return;
    }
    if (is_vector(row)) {
        move_vector(row, m, t, dst);
    } else if (row->kind == OZ_LAYER_CONV) {
        move_conv(row, t->data, size, dst);
    } else {
        move_rows(row, m, t->data, size, dst);
    }
}

static void *push(const struct oz_load_args *a, const struct oz_layer *row, size_t bytes,
                  enum oz_status *status, struct oz_error *err)
{
    void *memory = NULL;
    *status = oz_arena_push(a->model, bytes, &memory);
    if (*status != OZ_OK) {
        *status =
            OZ_FAIL(err, OZ_ERR_NOMEM, "The model arena is full at %s: %zu bytes, %zu of %zu used.",
                    row->name, bytes, a->model->used_bytes, a->model->capacity_bytes);
    } else if (a->stats != NULL) {
        a->stats->arena_bytes += (int64_t)bytes;
    }
    return memory;
}

/* Moves a tensor into the arena: straight there, or by way of a host buffer to a device. */
static enum oz_status place(const struct oz_load_args *a, const struct oz_layer *row,
                            struct matrix m, const struct oz_tensor_view *t, enum oz_dtype dtype,
                            struct oz_error *err)
{
    enum oz_status status;
    size_t bytes = (size_t)(m.slices * m.rows * m.cols) * (size_t)oz_dtype_bits(dtype) / 8;
    void *memory = push(a, row, bytes, &status, err);
    if (status != OZ_OK || a->model->measuring) {
        return status;
    }
    if (a->dev->host_memory) {
        move(row, m, t, memory);
    } else {
        void *staging;
        OZ_TRY(a->dev->alloc_host(a->dev, bytes, &staging, err));
        move(row, m, t, staging);
        status = a->dev->upload(a->dev, NULL, memory, staging, bytes, err);
        if (status == OZ_OK) {
            status = a->dev->wait(a->dev, NULL, err);
        }
        a->dev->free_host(a->dev, staging);
        OZ_TRY(status);
    }
    row->bind->weight = oz_weight_plain(dtype, m.slices, m.rows, m.cols, memory);
    return OZ_OK;
}

/* Is all that the row asks for built? What is not must not be ignored. */
static bool is_built(const struct oz_layer *row)
{
    const uint32_t rows = OZ_TRANSFORM_SWAP_HALVES | OZ_TRANSFORM_PERMUTE;
    uint32_t built = OZ_TRANSFORM_RESHAPE | rows;
    bool parts = row->file_rows != 0 || row->file_row != 0;
    if (is_vector(row)) {
        built |= OZ_TRANSFORM_ADD_ONE;
    } else if (row->kind == OZ_LAYER_CONV) {
        built = OZ_TRANSFORM_RESHAPE | OZ_TRANSFORM_LAST_TAP;
    } else {
        built |= OZ_TRANSFORM_TRANSPOSE;
    }
    /* The file's dim 0 is the canonical rows only where nothing stands in between. */
    bool parts_built =
        row->kind == OZ_LAYER_LINEAR || row->kind == OZ_LAYER_EMBED || is_vector(row);
    if (parts && (!parts_built || (row->transform & OZ_TRANSFORM_TRANSPOSE) != 0)) {
        return false;
    }
    return (row->transform & ~built) == 0 && row->bind_row_stride == 0 && row->bind_row == 0 &&
           row->bind_slice == 0;
}

static enum oz_param_use use_of(const struct oz_layer *row)
{
    switch (row->kind) {
    case OZ_LAYER_LINEAR: return OZ_USE_LINEAR;
    case OZ_LAYER_EXPERTS: return OZ_USE_EXPERTS;
    case OZ_LAYER_EMBED: return OZ_USE_EMBED;
    case OZ_LAYER_CONV: return OZ_USE_CONV;
    case OZ_LAYER_NORM:
    case OZ_LAYER_VECTOR: break;
    }
    return OZ_USE_VECTOR;
}

static void log_declined(void *ctx, const char *kernel, const char *reason)
{
    const struct oz_layer *row = ctx;
    oz_log(OZ_LOG_DEBUG, "dispatch", "%s: %s declines: %s", row->name, kernel, reason);
}

/* What the device wants to make of the tensor. OUNCE_LOG=dispatch tells, once for each tensor. */
static enum oz_status ask_plan(const struct oz_load_args *a, const struct oz_layer *row,
                               struct matrix m, const struct oz_tensor_view *t,
                               struct oz_plan_answer *answer, struct oz_error *err)
{
    struct oz_param shape = *row->bind;
    bool tell = !a->model->measuring && !is_vector(row) && oz_log_wants(OZ_LOG_DEBUG, "dispatch");
    const struct oz_plan_request request = {.use = use_of(row),
                                            .report = tell ? log_declined : NULL,
                                            .report_ctx = (void *)(uintptr_t)row};
    enum oz_dtype dtype = is_vector(row) ? OZ_DTYPE_F32 : t->dtype;
    shape.weight = oz_weight_shape(oz_codec_plain(dtype), m.slices, m.rows, m.cols);
    OZ_TRY(a->dev->ops->plan_param(a->dev, &shape, &request, answer, err));
    if (tell) {
        oz_log(OZ_LOG_DEBUG, "dispatch", "%s: %s, %zu bytes packed", row->name, answer->kernel,
               answer->packed_bytes);
    }
    return OZ_OK;
}

/* Packs a weight into the arena. Its planes stay readable where they lie in the map; what had to be
 * moved first is given back. */
static enum oz_status pack(const struct oz_load_args *a, const struct oz_layer *row,
                           struct matrix m, const struct oz_tensor_view *t, bool in_place,
                           const struct oz_plan_answer *answer, struct oz_error *err)
{
    enum oz_status status;
    size_t bytes = (size_t)(m.slices * m.rows * m.cols) * (size_t)oz_dtype_bits(t->dtype) / 8;
    void *packed = push(a, row, answer->packed_bytes, &status, err);
    if (status != OZ_OK || a->model->measuring) {
        return status;
    }
    void *moved = in_place ? NULL : oz_alloc(bytes);
    if (!in_place) {
        if (moved == NULL) {
            return OZ_FAIL_NOMEM(err, row->name);
        }
        move(row, m, t, moved);
    }
    struct oz_weight whole = oz_weight_plain(t->dtype, m.slices, m.rows, m.cols,
                                             in_place ? (void *)(uintptr_t)t->data : moved);
    row->bind->packed = packed;
    row->bind->weight = whole;
    for (int64_t s = 0; s < m.slices && status == OZ_OK; s++) {
        status = a->dev->ops->pack_band(a->dev, NULL, row->bind, s, 0, m.rows, &whole, err);
    }
    if (!in_place) {
        row->bind->weight.planes[OZ_PLANE_CODES].data = NULL;
        oz_free(moved);
    } else {
        oz_ckpt_forget(a->match->ckpt, t);
    }
    return status;
}

static enum oz_status load_row(const struct oz_load_args *a, const struct oz_layer *row,
                               const struct oz_tensor_view *t, struct oz_error *err)
{
    if (oz_codec_plain(t->dtype) == NULL || t->codec != NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "Tensor %s is stored as %s: this version loads F32, F16, BF16 and F64.",
                       t->name, t->codec != NULL ? "a block format" : oz_dtype_name(t->dtype));
    }
    if (!is_built(row)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "%s asks for a transform that is not built yet.",
                       row->name);
    }
    struct matrix m = matrix_of(row);
    struct oz_plan_answer answer;
    bool in_place = readable_in_place(a, row, t);
    OZ_TRY(ask_plan(a, row, m, t, &answer, err));
    row->bind->plan = answer.plan;
    row->bind->weight = oz_weight_shape(oz_codec_plain(is_vector(row) ? OZ_DTYPE_F32 : t->dtype),
                                        m.slices, m.rows, m.cols);
    if (answer.packed_bytes > 0) {
        return pack(a, row, m, t, in_place, &answer, err);
    }
    if (in_place) {
        if (a->stats != NULL) {
            a->stats->mapped_bytes += t->bytes;
        }
        if (!a->model->measuring) {
            row->bind->weight =
                oz_weight_plain(t->dtype, m.slices, m.rows, m.cols, (void *)(uintptr_t)t->data);
        }
        return OZ_OK;
    }
    return place(a, row, m, t, is_vector(row) ? OZ_DTYPE_F32 : t->dtype, err);
}

static enum oz_status report(const struct oz_load_args *a, int64_t bytes, struct oz_error *err)
{
    if (a->done_bytes != NULL) {
        *a->done_bytes += bytes;
    }
    if (a->progress == NULL || a->model->measuring) {
        return OZ_OK;
    }
    struct oz_progress p = {.struct_size = sizeof p,
                            .stage = OZ_STAGE_LOAD,
                            .picture = -1,
                            .done = a->done_bytes != NULL ? *a->done_bytes : bytes,
                            .total = a->total_bytes};
    if (a->progress(a->progress_ctx, &p) != 0) {
        return OZ_FAIL(err, OZ_ERR_CANCELLED, "Loading was interrupted.");
    }
    return OZ_OK;
}

enum oz_status oz_load_component(const struct oz_load_args *a, struct oz_error *err)
{
    const struct oz_match *m = a->match;
    for (int32_t r = 0; r < m->table->count; r++) {
        const struct oz_layer *row = &m->table->rows[r];
        if (m->row_tensor[r] < 0) {
            if (row->bind != NULL) {
                row->bind->name = NULL; /* optional and absent */
            }
            continue;
        }
        const struct oz_tensor_view *t = oz_ckpt_tensor(m->ckpt, m->row_tensor[r]);
        if (row->bind != NULL) {
            OZ_TRY(load_row(a, row, t, err));
        }
        if (a->stats != NULL) {
            a->stats->tensors++;
        }
        OZ_TRY(report(a, t->bytes, err));
    }
    for (int64_t i = 0; i < oz_ckpt_count(m->ckpt) && a->stats != NULL; i++) {
        a->stats->ignored += m->tensor_rule[i] != NULL;
    }
    return OZ_OK;
}

int64_t oz_load_bytes(const struct oz_match *m)
{
    int64_t bytes = 0;
    for (int32_t r = 0; r < m->table->count; r++) {
        if (m->row_tensor[r] >= 0) {
            bytes += oz_ckpt_tensor(m->ckpt, m->row_tensor[r])->bytes;
        }
    }
    return bytes;
}
