/*
 * load/columns.h: planes whose rows are columns of the file's tensor (integers in groups, num/unpack.h).
 * Internal to src/load.
 */
#ifndef OZ_LOAD_COLUMNS_H
#define OZ_LOAD_COLUMNS_H

#include "ckpt/table.h"
#include "quant/dialect/dialect.h"

/* Rows [row0, row0 + rows) of a plane, whose row `row0` is at dst, from a tensor that has them as columns. */
struct oz_load_columns {
    const struct oz_ckpt *ckpt;
    const struct oz_tensor_view *t;
    enum oz_plane_move move;
    int bits; /* of a code */
    bool keep_nonfinite;
    int64_t row0, rows;
    uint8_t *dst;
    int64_t stride; /* from one of them to the next */
};

/* Does a move go by columns? */
bool oz_load_is_columns(enum oz_plane_move move);

/* OZ_ERR_FORMAT: a scale that is not finite. Zero points that makers do not agree about are told. */
OZ_MUST_USE enum oz_status oz_load_read_columns(const struct oz_load_columns *c,
                                                struct oz_error *err);

#endif
