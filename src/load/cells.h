/* load/cells.h: cells of a plane out of the file, as the dialect says that they lie there. Internal to
 * src/load. */
#ifndef OZ_LOAD_CELLS_H
#define OZ_LOAD_CELLS_H

#include "load/item.h"
#include "load/stage.h"

/* Reads the cells of some rows of a plane of `w` (whose planes are `stored`'s) to dst, moved and checked:
 * OZ_ERR_FORMAT where a scale is not finite, or a code is NaN and `keep_nonfinite` is false. */
OZ_MUST_USE enum oz_status oz_load_read_cells(const struct oz_ckpt *ckpt,
                                              const struct oz_stored_weight *stored,
                                              const struct oz_weight *w, enum oz_plane plane,
                                              struct oz_load_cells cells, bool keep_nonfinite,
                                              uint8_t *dst, struct oz_error *err);

/* The same for the rows [row0, row0 + rows) of a slice of an item, which may lie elsewhere in the file;
 * `base` is the plane's first cell. */
OZ_MUST_USE enum oz_status oz_load_read_rows(const struct oz_ckpt *ckpt,
                                             const struct oz_load_item *item,
                                             const struct oz_weight *w, enum oz_plane plane,
                                             int64_t slice, int64_t row0, int64_t rows,
                                             bool keep_nonfinite, void *base, struct oz_error *err);

/* OZ_ERR_FORMAT: a block of a GGUF tensor has a scale that is no number. */
OZ_MUST_USE enum oz_status oz_load_fail_block(const struct oz_tensor_view *t, int64_t block,
                                              struct oz_error *err);

/* Memory that this takes for a while, at most, for the cells of `rows` rows. */
int64_t oz_load_cells_staging(const struct oz_stored_weight *stored, const struct oz_weight *w,
                              int64_t rows);

/* A tensor's elements as f32, in rows and columns as `at` says: [rows, cols] to dst. */
OZ_MUST_USE enum oz_status oz_load_read_matrix(const struct oz_ckpt *ckpt,
                                               const struct oz_stored_weight *stored,
                                               enum oz_plane plane, int64_t rows, int64_t cols,
                                               float *dst, struct oz_error *err);

#endif
