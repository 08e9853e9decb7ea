/* Items that are moved at once, from the map where there is one: vectors, convolutions, and weights that are packed from
 * where they lie. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "load/cells.h"
#include "num/gguf.h"

#define PACK_BYTES (INT64_C(16) << 20) /* of a mapped weight between two looks at its pages */

/* Convolution kernel [out, in, (kt,) kh, kw] to [out, taps, in], keeping the last temporal tap where
 * asked. */
static void move_conv(const struct oz_layer *layer, const uint8_t *src, size_t size, uint8_t *dst)
{
    int64_t out = layer->shape[0];
    int64_t in = layer->shape[1];
    int64_t taps = 1;
    int64_t file_taps = 1;
    for (int32_t i = 2; i < layer->rank; i++) {
        taps *= layer->shape[i];
    }
    for (int32_t i = 2; i < layer->file_rank; i++) {
        file_taps *= layer->file_shape[i];
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

/* A norm or vector, or a part of one, as f32. */
static void move_vector(const struct oz_load_part *part, const uint8_t *data, float *dst)
{
    const struct oz_tensor_view *t = part->tensor;
    struct oz_weight file = oz_weight_plain(t->dtype, 1, 1, t->elements, (void *)(uintptr_t)data);
    for (int64_t i = 0; i < part->shape.cols; i++) {
        float *to = &dst[part->first_row + i * part->row_stride];
        file.codec->decode(&file, 0, 0, oz_load_source_row(part, i), 1, to);
        if (part->layer->transform & OZ_TRANSFORM_ADD_ONE) {
            *to += 1.0F;
        }
    }
}

static void move_part(const struct oz_load_item *item, const struct oz_load_part *part,
                      const uint8_t *data, void *dst)
{
    if (item->use == OZ_USE_VECTOR) {
        move_vector(part, data, dst);
    } else {
        move_conv(part->layer, data, (size_t)oz_dtype_bits(item->stored) / 8, dst);
    }
}

/* A tensor that no map shows, by way of a buffer. */
static enum oz_status move_read(const struct oz_load_args *a, const struct oz_load_item *item,
                                const struct oz_load_part *part, void *dst, struct oz_error *err)
{
    const struct oz_tensor_view *t = part->tensor;
    void *data = oz_alloc((size_t)t->bytes);
    if (data == NULL) {
        return OZ_FAIL_NOMEM(err, t->name);
    }
    enum oz_status status = oz_ckpt_read(a->match->ckpt, t, 0, t->bytes, data, err);
    if (status == OZ_OK) {
        move_part(item, part, data, dst);
    }
    oz_free(data);
    return status;
}

static enum oz_status move(const struct oz_load_args *a, const struct oz_load_item *item, void *dst,
                           struct oz_error *err)
{
    for (int32_t i = 0; i < item->part_count; i++) {
        const struct oz_load_part *part = &item->parts[i];
        if (part->tensor->elements == 0) {
            continue;
        }
        if (part->tensor->data != NULL) {
            move_part(item, part, part->tensor->data, dst);
        } else {
            OZ_TRY(move_read(a, item, part, dst, err));
        }
    }
    return OZ_OK;
}

int64_t oz_load_whole_staging(const struct oz_load_item *item)
{
    int64_t bytes = 0;
    bool whole = item->way == OZ_WAY_WHOLE || item->way == OZ_WAY_PACK_WHOLE;
    for (int32_t i = 0; i < item->part_count && whole; i++) {
        const struct oz_tensor_view *t = item->parts[i].tensor;
        bytes = t->data == NULL && t->bytes > bytes ? t->bytes : bytes;
    }
    return bytes;
}

/* Straight into the arena, or by way of a host buffer to a device. */
static enum oz_status place(const struct oz_load_args *a, const struct oz_load_item *item,
                            struct oz_error *err)
{
    void *memory = item->weight.planes[OZ_PLANE_CODES].data;
    size_t bytes = (size_t)item->plane_bytes;
    item->param->weight = item->weight;
    if (a->dev->host_memory || bytes == 0) {
        return move(a, item, memory, err);
    }
    bool in_ring = a->ring != NULL && bytes <= a->ring->bytes;
    void *staging = in_ring ? a->ring->memory : NULL;
    if (!in_ring) {
        OZ_TRY(a->dev->alloc_host(a->dev, bytes, &staging, err));
    }
    enum oz_status status = move(a, item, staging, err);
    if (status == OZ_OK) {
        status = a->dev->upload(a->dev, NULL, memory, staging, bytes, err);
    }
    if (status == OZ_OK) {
        status = a->dev->wait(a->dev, NULL, err);
    }
    if (!in_ring) {
        a->dev->free_host(a->dev, staging);
    }
    return status;
}

/* A convolution: moved, packed, given back. */
static enum oz_status pack_moved(const struct oz_load_args *a, const struct oz_load_item *item,
                                 struct oz_error *err)
{
    const struct oz_load_matrix m = item->shape;
    void *moved = oz_alloc((size_t)item->parts[0].tensor->bytes);
    if (moved == NULL) {
        return OZ_FAIL_NOMEM(err, item->parts[0].layer->name);
    }
    enum oz_status status = move(a, item, moved, err);
    struct oz_weight whole = oz_weight_plain(item->stored, m.slices, m.rows, m.cols, moved);
    item->param->packed = item->packed;
    if (status == OZ_OK) {
        status = a->dev->ops->pack_band(a->dev, NULL, item->param, 0, 0, m.rows, &whole, err);
    }
    oz_free(moved);
    return status;
}

/* From the map, whose pages are given back; the planes stay readable there. */
static enum oz_status pack_mapped(const struct oz_load_args *a, const struct oz_load_item *item,
                                  struct oz_error *err)
{
    const struct oz_tensor_view *t = item->parts[0].tensor;
    const struct oz_load_matrix m = item->shape;
    struct oz_weight whole =
        oz_weight_plain(item->stored, m.slices, m.rows, m.cols, (void *)(uintptr_t)t->data);
    int64_t row_bytes = whole.planes[OZ_PLANE_CODES].row_stride_bytes;
    int64_t unit = oz_load_scope_rows(item);
    int64_t band = row_bytes > 0 ? PACK_BYTES / row_bytes / unit * unit : 0;
    band = band > 0 ? band : unit;
    item->param->packed = item->packed;
    item->param->weight = whole;
    for (int64_t s = 0; s < m.slices; s++) {
        for (int64_t r = 0; r < m.rows; r += band) {
            int64_t rows = m.rows - r < band ? m.rows - r : band;
            OZ_TRY(a->dev->ops->pack_band(a->dev, NULL, item->param, s, r, rows, &whole, err));
        }
    }
    oz_ckpt_forget(a->match->ckpt, t);
    return OZ_OK;
}

/* Elements, or blocks that the file holds: the weight is a view of them. */
static struct oz_weight mapped_weight(const struct oz_load_item *item)
{
    const struct oz_load_matrix m = item->shape;
    const struct oz_tensor_view *t = item->parts[0].tensor;
    void *data = (void *)(uintptr_t)t->data;
    if (item->planes == NULL) {
        return oz_weight_plain(item->stored, m.slices, m.rows, m.cols, data);
    }
    struct oz_weight w = item->weight;
    w.planes[OZ_PLANE_CODES].data = data;
    w.planes[OZ_PLANE_CODES].bytes = t->bytes;
    w.planes[OZ_PLANE_CODES].row_stride_bytes = m.rows > 0 ? t->bytes / m.rows : 0;
    w.planes[OZ_PLANE_CODES].slice_stride_bytes = t->bytes;
    return w;
}

/* Blocks are decoded where they lie, again and again: what cannot be decoded is found now. */
static enum oz_status check_blocks(const struct oz_load_args *a, const struct oz_load_item *item,
                                   struct oz_error *err)
{
    const struct oz_tensor_view *t = item->parts[0].tensor;
    const struct oz_gguf_type *type = oz_gguf_type_of(t->codec);
    int64_t count = type != NULL ? t->bytes / type->bytes : 0;
    int64_t piece = type != NULL ? PACK_BYTES / type->bytes : 1;
    for (int64_t i = 0; i < count && !a->keep_nonfinite; i += piece) {
        int64_t n = count - i < piece ? count - i : piece;
        oz_ckpt_advise(a->match->ckpt, t->file, t->file_offset + i * type->bytes, n * type->bytes);
        int64_t bad = oz_gguf_find_bad(type, t->data + i * type->bytes, n);
        if (bad >= 0) {
            return oz_load_fail_block(t, i + bad, err);
        }
    }
    return OZ_OK;
}

enum oz_status oz_load_whole(const struct oz_load_args *a, const struct oz_load_item *item,
                             struct oz_error *err)
{
    switch (item->way) {
    case OZ_WAY_MAPPED:
        item->param->weight = mapped_weight(item);
        return check_blocks(a, item, err);
    case OZ_WAY_PACK_MAP: return pack_mapped(a, item, err);
    case OZ_WAY_PACK_WHOLE: return pack_moved(a, item, err);
    case OZ_WAY_PLANES: return oz_load_planes(a, item, err);
    case OZ_WAY_WHOLE:
    case OZ_WAY_STREAM: break;
    }
    return place(a, item, err);
}
