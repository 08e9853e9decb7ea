/* Weights that the file holds quantized: their planes go to where they stay, or chunk by chunk to the
 * packing or the device; those that are expanded, their rows. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "load/cells.h"
#include "load/expand.h"
#include "ops/param.h"

#define CHUNK_BYTES (INT64_C(16) << 20) /* of rows that are packed or sent together */

static bool is_staged(const struct oz_load_args *a, const struct oz_load_item *item)
{
    return item->packed_bytes > 0 || !a->dev->host_memory;
}

static int64_t chunk_bytes(const struct oz_load_item *item, int64_t rows)
{
    rows = rows < item->shape.rows ? rows : item->shape.rows;
    return oz_load_stage_bytes(&item->weight, 0, rows);
}

static int64_t chunk_rows(const struct oz_load_item *item)
{
    int64_t scope = oz_load_scope_rows(item);
    int64_t rows = (item->shape.rows + scope - 1) / scope * scope;
    while (rows > scope && chunk_bytes(item, rows) > CHUNK_BYTES) {
        rows = rows / 2 / scope > 0 ? rows / 2 / scope * scope : scope;
    }
    return rows;
}

static bool expands(const struct oz_load_item *item)
{
    return item->planes->codec != NULL;
}

int64_t oz_load_planes_staging(const struct oz_load_args *a, const struct oz_load_item *item)
{
    if (item->planes == NULL || item->shape.rows == 0) {
        return 0;
    }
    if (expands(item)) {
        int64_t rows = oz_load_expand_rows(item, oz_load_scope_rows(item));
        int64_t bytes = is_staged(a, item) ? chunk_bytes(item, rows) : 0;
        return bytes + oz_load_expand_staging(item, rows);
    }
    bool staged = is_staged(a, item);
    int64_t rows = staged ? chunk_rows(item) : item->shape.rows;
    int64_t cells = oz_load_cells_staging(item->planes, &item->weight, rows);
    if (item->planes->shifted != NULL) {
        int64_t unshift = oz_load_unshift_staging(item);
        cells = unshift > cells ? unshift : cells;
    }
    return (staged ? chunk_bytes(item, rows) : 0) + cells;
}

static enum oz_status read_rows(const struct oz_load_args *a, const struct oz_load_item *item,
                                const struct oz_weight *to, int64_t slice, int64_t row0,
                                int64_t rows, struct oz_error *err)
{
    for (int i = 0; i < OZ_PLANE_FIRST_SIDE; i++) {
        if (!item->weight.planes[i].present) {
            continue;
        }
        OZ_TRY(oz_load_read_rows(a->match->ckpt, item, &item->weight, (enum oz_plane)i, slice, row0,
                                 rows, a->keep_nonfinite, to->planes[i].data, err));
        if (item->planes->shifted != NULL) {
            OZ_TRY(oz_load_unshift(a, item, to->planes[i].data, err));
        }
    }
    return OZ_OK;
}

/* Staged cells to the device's planes. */
static enum oz_status send_rows(const struct oz_load_args *a, const struct oz_load_item *item,
                                const struct oz_weight *from, int64_t slice, int64_t row0,
                                int64_t rows, struct oz_error *err)
{
    struct oz_device *dev = a->dev;
    for (int i = 0; i < OZ_PLANE_FIRST_SIDE; i++) {
        const struct oz_plane_view *to = &item->weight.planes[i];
        if (!to->present) {
            continue;
        }
        struct oz_load_cells cells = oz_load_cells(&item->weight, (enum oz_plane)i, row0, rows);
        uintptr_t at = (uintptr_t)(slice * to->slice_stride_bytes + cells.first);
        OZ_TRY(dev->upload(dev, NULL, (void *)((uintptr_t)to->data + at),
                           (const void *)((uintptr_t)from->planes[i].data + at),
                           (size_t)cells.bytes, err));
    }
    return dev->wait(dev, NULL, err);
}

static enum oz_status put_chunk(const struct oz_load_args *a, const struct oz_load_item *item,
                                const struct oz_weight *view, int64_t slice, int64_t row0,
                                int64_t rows, struct oz_error *err)
{
    return item->packed_bytes > 0
               ? a->dev->ops->pack_band(a->dev, NULL, item->param, slice, row0, rows, view, err)
               : send_rows(a, item, view, slice, row0, rows, err);
}

static enum oz_status load_chunks(const struct oz_load_args *a, const struct oz_load_item *item,
                                  uint8_t *staging, struct oz_error *err)
{
    int64_t chunk = chunk_rows(item);
    for (int64_t i = 0; i < item->shape.slices * ((item->shape.rows + chunk - 1) / chunk); i++) {
        int64_t slice = i % item->shape.slices;
        int64_t r = i / item->shape.slices * chunk;
        int64_t rows = item->shape.rows - r < chunk ? item->shape.rows - r : chunk;
        struct oz_weight view = oz_load_stage_view(&item->weight, slice, r, rows, staging);
        OZ_TRY(read_rows(a, item, &view, slice, r, rows, err));
        OZ_TRY(put_chunk(a, item, &view, slice, r, rows, err));
    }
    return OZ_OK;
}

/* The rows of a weight that stays as bf16, made from its planes. */
static enum oz_status expand_chunks(const struct oz_load_args *a, const struct oz_load_item *item,
                                    int64_t chunk, uint8_t *memory, uint8_t *staging,
                                    struct oz_error *err)
{
    for (int64_t r = 0; r < item->shape.rows; r += chunk) {
        int64_t rows = item->shape.rows - r < chunk ? item->shape.rows - r : chunk;
        struct oz_weight view = item->weight;
        if (staging != NULL) {
            view = oz_load_stage_view(&item->weight, 0, r, rows, staging);
        }
        struct oz_load_cells cells = oz_load_cells(&item->weight, OZ_PLANE_CODES, r, rows);
        uintptr_t dst = (uintptr_t)view.planes[OZ_PLANE_CODES].data + (uintptr_t)cells.first;
        OZ_TRY(oz_load_expand_band(a, item, r, rows, memory, (uint16_t *)dst, err));
        if (item->keeps_planes) {
            memcpy((uint8_t *)item->weight.planes[OZ_PLANE_CODES].data + cells.first,
                   (const void *)dst, (size_t)cells.bytes);
        }
        if (staging != NULL) {
            OZ_TRY(put_chunk(a, item, &view, 0, r, rows, err));
        }
    }
    return OZ_OK;
}

static enum oz_status load_expanded(const struct oz_load_args *a, const struct oz_load_item *item,
                                    struct oz_error *err)
{
    int64_t chunk = oz_load_expand_rows(item, oz_load_scope_rows(item));
    uint8_t *staging = NULL;
    uint8_t *memory = NULL;
    if (is_staged(a, item)) {
        staging = oz_alloc_aligned((size_t)chunk_bytes(item, chunk), OZ_LOAD_ALIGN);
        if (staging == NULL) {
            return OZ_FAIL_NOMEM(err, item->parts[0].layer->name);
        }
    }
    enum oz_status status = oz_load_expand_open(a, item, chunk, &memory, err);
    if (status == OZ_OK) {
        status = expand_chunks(a, item, chunk, memory, staging, err);
    }
    oz_free(memory);
    oz_free(staging);
    return status;
}

/* Static scales of activations: into the arena in any case, and from there to the operators. */
static enum oz_status load_side_planes(const struct oz_load_args *a,
                                       const struct oz_load_item *item, struct oz_error *err)
{
    const struct oz_plane_view *v = &item->weight.planes[OZ_PLANE_INPUT_SCALE];
    float scale;
    if (!v->present) {
        return OZ_OK;
    }
    OZ_TRY(
        oz_load_read_matrix(a->match->ckpt, item->planes, OZ_PLANE_INPUT_SCALE, 1, 1, &scale, err));
    if (!(scale > 0)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "Tensor %s is %g; a scale of activations is above 0.",
                       item->planes->planes[OZ_PLANE_INPUT_SCALE].tensor->name, (double)scale);
    }
    if (a->dev->host_memory) {
        memcpy(v->data, &scale, sizeof scale);
    } else {
        OZ_TRY(a->dev->upload(a->dev, NULL, v->data, &scale, sizeof scale, err));
        OZ_TRY(a->dev->wait(a->dev, NULL, err));
    }
    item->param->weight = item->weight;
    return oz_param_set_acts(item->param, item->assigned, err);
}

enum oz_status oz_load_planes(const struct oz_load_args *a, const struct oz_load_item *item,
                              struct oz_error *err)
{
    if (item->shape.rows == 0 || item->shape.cols == 0) {
        return OZ_OK;
    }
    OZ_TRY(load_side_planes(a, item, err));
    if (expands(item)) {
        return item->shape.slices == 1
                   ? load_expanded(a, item, err)
                   : OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                             "%s: quantized experts are not expanded by this version.",
                             item->parts[0].layer->name);
    }
    if (!is_staged(a, item)) {
        for (int64_t s = 0; s < item->shape.slices; s++) {
            OZ_TRY(read_rows(a, item, &item->weight, s, 0, item->shape.rows, err));
        }
        return OZ_OK;
    }
    uint8_t *staging = oz_alloc_aligned((size_t)chunk_bytes(item, chunk_rows(item)), OZ_LOAD_ALIGN);
    if (staging == NULL) {
        return OZ_FAIL_NOMEM(err, item->parts[0].layer->name);
    }
    enum oz_status status = load_chunks(a, item, staging, err);
    oz_free(staging);
    return status;
}
