/* load/stage.h: cells of some rows of a weight, in staging. Internal to src/load. */
#ifndef OZ_LOAD_STAGE_H
#define OZ_LOAD_STAGE_H

#include "load/item.h"

#define OZ_LOAD_ALIGN 64

static inline int64_t oz_load_round(int64_t bytes)
{
    return (bytes + OZ_LOAD_ALIGN - 1) / OZ_LOAD_ALIGN * OZ_LOAD_ALIGN;
}

/* Cells of a plane that rows [row0, row0 + rows) of a slice own: first byte within the slice, and
 * bytes. Cells that span the slice belong to every band. */
struct oz_load_cells {
    int64_t first, bytes;
};
struct oz_load_cells oz_load_cells(const struct oz_weight *w, enum oz_plane plane, int64_t row0,
                                   int64_t rows);

/* Bytes of the staged cells of all planes of those rows. */
int64_t oz_load_stage_bytes(const struct oz_weight *w, int64_t row0, int64_t rows);

/* The weight with those rows' cells of one slice at `base`, addressed as the whole one is; nothing
 * else of it may be touched. */
struct oz_weight oz_load_stage_view(const struct oz_weight *w, int64_t slice, int64_t row0,
                                    int64_t rows, uint8_t *base);

#endif
