/* Bands with adapters: read, widened, merged, and rounded where they stay as they are stored. */
#include <math.h>

#include "base/error.h"
#include "load/item.h"
#include "num/dtype.h"

/* What rounds to infinity in a dtype: half a unit above its largest number, which ties to even. */
static float limit_of(enum oz_dtype dtype)
{
    return dtype == OZ_DTYPE_F16    ? 65520.0F
           : dtype == OZ_DTYPE_BF16 ? 0x1.FFp127F
                                    : (float)INFINITY;
}

/* Merges what one part of the band has; `wide` is the band in f32. */
static enum oz_status merge_part(const struct oz_load_args *a, const struct oz_load_item *item,
                                 const struct oz_load_part *part, int64_t slice, int64_t row0,
                                 int64_t rows, float *wide, const struct oz_load_room *room,
                                 uint8_t *memory, struct oz_error *err)
{
    int64_t *up_rows = (int64_t *)(void *)(memory + room->down + room->up);
    float **w = (float **)(void *)(up_rows + rows);
    struct oz_lora_rows r = {.row = part->row,
                             .cols = item->shape.cols,
                             .up_rows = up_rows,
                             .w = w,
                             .down = (float *)(void *)memory,
                             .up = (float *)(void *)(memory + room->down),
                             .limit = limit_of(item->staged),
                             .stored_name = oz_dtype_name(item->staged)};
    for (int64_t i = 0; i < rows; i++) {
        int64_t at;
        if (oz_load_find_part(item, slice, row0 + i, &at) == part) {
            up_rows[r.count] = oz_load_source_row(part, at);
            w[r.count++] = wide + i * item->shape.cols;
        }
    }
    return r.count > 0 ? oz_lora_merge(a->lora, &r, err) : OZ_OK;
}

enum oz_status oz_load_read_merged(const struct oz_load_args *a, const struct oz_load_item *item,
                                   int64_t slice, int64_t row0, int64_t rows, uint8_t *dst,
                                   uint8_t *piece, uint8_t *memory, struct oz_error *err)
{
    const struct oz_load_room room = oz_load_room_of(a, item, rows);
    int64_t cols = item->shape.cols;
    uint8_t *raw = item->encodes ? memory : dst;
    float *wide = (float *)(void *)(item->encodes ? dst : memory);
    OZ_TRY(oz_load_read_band(a->match->ckpt, item, slice, row0, rows, raw, piece, err));
    struct oz_weight band = oz_weight_plain(item->stored, 1, rows, cols, raw);
    for (int64_t r = 0; r < rows; r++) {
        band.codec->decode(&band, 0, r, 0, cols, wide + r * cols);
    }
    for (int32_t i = 0; i < item->part_count; i++) {
        const struct oz_load_part *part = &item->parts[i];
        if (oz_lora_rank(a->lora, part->row) > 0) {
            OZ_TRY(merge_part(a, item, part, slice, row0, rows, wide, &room, memory + room.other,
                              err));
        }
    }
    if (item->encodes) {
        return OZ_OK;
    }
    struct oz_encode_state state;
    oz_encode_state_init(&state);
    state.keep_nonfinite = true; /* the checkpoint's own stay as they are */
    return band.codec->encode(&band, 0, 0, wide, rows, cols, &state);
}
