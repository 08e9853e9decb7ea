/* Where the rows of a band lie in the files, and reading them. */
#include <string.h>

#include "base/error.h"
#include "load/item.h"

/* Consecutive rows of a band that lie together in the file: rows of the file, or of a transposed part
 * its columns. */
struct run {
    const struct oz_load_part *part;
    int64_t slice;      /* of the part */
    int64_t first_file; /* file row of the first; the others follow it */
    int64_t rows;
};

static bool is_transposed(const struct oz_load_part *part)
{
    return (part->layer->transform & OZ_TRANSFORM_TRANSPOSE) != 0;
}

/* The run that begins at row r of a slice, of at most `limit` rows. Every row has a part: checked
 * when the items were made. */
static struct run find_run(const struct oz_load_item *item, int64_t slice, int64_t r, int64_t limit)
{
    int64_t at;
    struct run run = {.part = oz_load_find_part(item, slice, r, &at)};
    const struct oz_layer *layer = run.part->layer;
    run.slice = slice - run.part->slice;
    run.first_file = oz_load_source_row(run.part, at);
    run.rows = 1;
    int64_t left = run.part->shape.rows - at;
    left = left < limit ? left : limit;
    if (run.part->row_stride != 1) {
        return run;
    }
    if ((layer->transform & (OZ_TRANSFORM_PERMUTE | OZ_TRANSFORM_SWAP_HALVES)) == 0) {
        run.rows = left;
        return run;
    }
    while (run.rows < left &&
           oz_load_source_row(run.part, at + run.rows) == run.first_file + run.rows) {
        run.rows++;
    }
    return run;
}

/* First byte of a run within its tensor. */
static int64_t run_offset(const struct oz_load_item *item, const struct run *run)
{
    int64_t size = oz_dtype_bits(item->stored) / 8;
    int64_t elements = run->part->shape.rows * run->part->shape.cols;
    int64_t first = is_transposed(run->part) ? run->first_file : run->first_file * item->shape.cols;
    return (run->slice * elements + first) * size;
}

int64_t oz_load_count_reads(const struct oz_load_item *item, int64_t slice, int64_t row0,
                            int64_t rows)
{
    int64_t count = 0;
    for (int64_t r = 0; r < rows;) {
        struct run run = find_run(item, slice, row0 + r, rows - r);
        count += is_transposed(run.part) ? item->shape.cols : 1;
        r += run.rows;
    }
    return count;
}

void oz_load_band_origin(const struct oz_load_item *item, int64_t slice, int64_t row0, int64_t rows,
                         int32_t *file, int64_t *offset)
{
    struct run run = find_run(item, slice, row0, rows);
    *file = run.part->tensor->file;
    *offset = run.part->tensor->file_offset + run_offset(item, &run);
}

bool oz_load_is_one_run(const struct oz_load_item *item, int64_t slice, int64_t row0, int64_t rows,
                        const struct oz_tensor_view **tensor, int64_t *first)
{
    struct run run = find_run(item, slice, row0, rows);
    *tensor = run.part->tensor;
    *first = run_offset(item, &run) / (oz_dtype_bits(item->stored) / 8);
    return run.rows == rows && !is_transposed(run.part);
}

/* Rows of a transposed part: for each column a piece of a file row, dealt out to the band's rows. */
static enum oz_status read_transposed(const struct oz_ckpt *ckpt, const struct oz_load_item *item,
                                      const struct run *run, uint8_t *dst, uint8_t *piece,
                                      struct oz_error *err)
{
    size_t size = (size_t)oz_dtype_bits(item->stored) / 8;
    size_t line = (size_t)item->shape.cols * size;
    int64_t offset = run_offset(item, run);
    for (int64_t c = 0; c < item->shape.cols; c++) {
        OZ_TRY(oz_ckpt_read(ckpt, run->part->tensor,
                            offset + c * run->part->shape.rows * (int64_t)size,
                            run->rows * (int64_t)size, piece, err));
        uint8_t *to = dst + (size_t)c * size;
        if (size == 2) {
            for (int64_t r = 0; r < run->rows; r++) {
                memcpy(to + (size_t)r * line, piece + 2 * r, 2);
            }
        } else {
            for (int64_t r = 0; r < run->rows; r++) {
                memcpy(to + (size_t)r * line, piece + (size_t)r * size, size);
            }
        }
    }
    return OZ_OK;
}

enum oz_status oz_load_read_band(const struct oz_ckpt *ckpt, const struct oz_load_item *item,
                                 int64_t slice, int64_t row0, int64_t rows, uint8_t *dst,
                                 uint8_t *piece, struct oz_error *err)
{
    int64_t line = item->shape.cols * (oz_dtype_bits(item->stored) / 8);
    for (int64_t r = 0; r < rows;) {
        struct run run = find_run(item, slice, row0 + r, rows - r);
        if (is_transposed(run.part)) {
            OZ_TRY(read_transposed(ckpt, item, &run, dst, piece, err));
        } else {
            OZ_TRY(oz_ckpt_read(ckpt, run.part->tensor, run_offset(item, &run), run.rows * line,
                                dst, err));
        }
        dst += run.rows * line;
        r += run.rows;
    }
    return OZ_OK;
}
