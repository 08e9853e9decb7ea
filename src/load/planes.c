/* Weights that the file holds quantized: their planes go to where they stay, or chunk by chunk to the
 * packing or the device. Bits are moved; what a dialect's move asks for beyond that is num's. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "load/columns.h"
#include "load/item.h"
#include "load/stage.h"

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

int64_t oz_load_planes_staging(const struct oz_load_args *a, const struct oz_load_item *item)
{
    return item->planes != NULL && is_staged(a, item) && item->shape.rows > 0
               ? chunk_bytes(item, chunk_rows(item))
               : 0;
}

/* bf16 or f16 in the upper half of dst to f32, from the front: reading stays ahead of writing. */
static void widen(enum oz_dtype from, uint8_t *dst, int64_t count)
{
    const uint8_t *src = dst + count * 2;
    struct oz_weight row = oz_weight_plain(from, 1, 1, count, (void *)(uintptr_t)src);
    for (int64_t i = 0; i < count; i++) {
        float x;
        row.codec->decode(&row, 0, 0, i, 1, &x);
        memcpy(dst + i * 4, &x, sizeof x);
    }
}

/* The file's bytes of some cells of a plane. */
static enum oz_status read_cells(const struct oz_load_args *a, const struct oz_load_item *item,
                                 enum oz_plane plane, struct oz_load_cells cells, uint8_t *dst,
                                 struct oz_error *err)
{
    const struct oz_tensor_view *t = item->planes->planes[plane].tensor;
    enum oz_plane_move move = item->planes->planes[plane].move;
    if (move == OZ_MOVE_WIDEN) {
        int64_t half = cells.bytes / 2;
        OZ_TRY(oz_ckpt_read(a->match->ckpt, t, cells.first / 2, half, dst + half, err));
        widen(t->dtype, dst, cells.bytes / 4);
        return OZ_OK;
    }
    if (move == OZ_MOVE_NUMBER) {
        memcpy(dst, &item->planes->number, sizeof item->planes->number);
        return OZ_OK;
    }
    OZ_TRY(oz_ckpt_read(a->match->ckpt, t, cells.first, cells.bytes, dst, err));
    for (int64_t i = 0; move == OZ_MOVE_NIBBLES && i < cells.bytes; i++) {
        dst[i] = (uint8_t)(dst[i] << 4 | dst[i] >> 4);
    }
    for (int64_t i = 0; move == OZ_MOVE_RECIPROCAL && i < cells.bytes; i += 4) {
        float x;
        memcpy(&x, dst + i, sizeof x);
        x = 1.0F / x;
        memcpy(dst + i, &x, sizeof x);
    }
    return OZ_OK;
}

/* Groups of columns: what does not name one would be read out of the scales' bounds. */
static enum oz_status check_groups(const struct oz_load_item *item, const uint8_t *groups,
                                   struct oz_error *err)
{
    int64_t count = (item->weight.cols + item->weight.group_cols - 1) / item->weight.group_cols;
    for (int64_t i = 0; i < item->weight.cols; i++) {
        int32_t g;
        memcpy(&g, groups + 4 * i, sizeof g);
        if (g < 0 || g >= count) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "Tensor %s: column %" PRId64 " is in group %d; there are %" PRId64 ".",
                           item->planes->planes[OZ_PLANE_PERM].tensor->name, i, (int)g, count);
        }
    }
    return OZ_OK;
}

static enum oz_status read_rows(const struct oz_load_args *a, const struct oz_load_item *item,
                                const struct oz_weight *to, int64_t row0, int64_t rows,
                                struct oz_error *err)
{
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        if (!item->weight.planes[i].present) {
            continue;
        }
        struct oz_load_cells cells = oz_load_cells(&item->weight, (enum oz_plane)i, row0, rows);
        uint8_t *dst = (uint8_t *)((uintptr_t)to->planes[i].data + (uintptr_t)cells.first);
        const enum oz_plane_move move = item->planes->planes[i].move;
        if (oz_load_is_columns(move)) {
            const struct oz_load_columns c = {
                .ckpt = a->match->ckpt,
                .t = item->planes->planes[i].tensor,
                .move = move,
                .bits = oz_codec_plane(item->codec, OZ_PLANE_CODES)->cell_bits,
                .keep_nonfinite = a->keep_nonfinite,
                .row0 = row0,
                .rows = rows,
                .dst = dst,
                .stride = to->planes[i].row_stride_bytes,
            };
            OZ_TRY(oz_load_read_columns(&c, err));
            continue;
        }
        OZ_TRY(read_cells(a, item, (enum oz_plane)i, cells, dst, err));
        if (i == OZ_PLANE_PERM) {
            OZ_TRY(check_groups(item, dst, err));
        }
    }
    return OZ_OK;
}

/* Staged cells to the device's planes. */
static enum oz_status send_rows(const struct oz_load_args *a, const struct oz_load_item *item,
                                const struct oz_weight *from, int64_t row0, int64_t rows,
                                struct oz_error *err)
{
    struct oz_device *dev = a->dev;
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        const struct oz_plane_view *to = &item->weight.planes[i];
        if (!to->present) {
            continue;
        }
        struct oz_load_cells cells = oz_load_cells(&item->weight, (enum oz_plane)i, row0, rows);
        OZ_TRY(dev->upload(dev, NULL, (void *)((uintptr_t)to->data + (uintptr_t)cells.first),
                           (const void *)((uintptr_t)from->planes[i].data + (uintptr_t)cells.first),
                           (size_t)cells.bytes, err));
    }
    return dev->wait(dev, NULL, err);
}

static enum oz_status load_chunks(const struct oz_load_args *a, const struct oz_load_item *item,
                                  uint8_t *staging, struct oz_error *err)
{
    int64_t chunk = chunk_rows(item);
    for (int64_t r = 0; r < item->shape.rows; r += chunk) {
        int64_t rows = item->shape.rows - r < chunk ? item->shape.rows - r : chunk;
        struct oz_weight view = oz_load_stage_view(&item->weight, 0, r, rows, staging);
        OZ_TRY(read_rows(a, item, &view, r, rows, err));
        OZ_TRY(item->packed_bytes > 0
                   ? a->dev->ops->pack_band(a->dev, NULL, item->param, 0, r, rows, &view, err)
                   : send_rows(a, item, &view, r, rows, err));
    }
    return OZ_OK;
}

enum oz_status oz_load_planes(const struct oz_load_args *a, const struct oz_load_item *item,
                              struct oz_error *err)
{
    item->param->weight = item->weight;
    item->param->packed = item->packed;
    if (item->shape.rows == 0 || item->shape.cols == 0) {
        return OZ_OK;
    }
    if (!is_staged(a, item)) {
        return read_rows(a, item, &item->weight, 0, item->shape.rows, err);
    }
    int64_t bytes = oz_load_planes_staging(a, item);
    uint8_t *staging = oz_alloc_aligned((size_t)bytes, OZ_LOAD_ALIGN);
    if (staging == NULL) {
        return OZ_FAIL_NOMEM(err, item->parts[0].layer->name);
    }
    enum oz_status status = load_chunks(a, item, staging, err);
    oz_free(staging);
    return status;
}
