#include "load/stage.h"

/* Weights whose planes have their strides: see push_planes in item.c; those of weights that are packed
 * have none and are computed. */
static int64_t row_bytes_of(const struct oz_weight *w, enum oz_plane plane)
{
    int64_t bytes = 0;
    int64_t row_bytes = 0;
    if (oz_weight_plane_bytes(w, plane, &bytes, &row_bytes) != OZ_OK) {
        return 0; /* sizes were checked when the item was made */
    }
    return row_bytes;
}

struct oz_load_cells oz_load_cells(const struct oz_weight *w, enum oz_plane plane, int64_t row0,
                                   int64_t rows)
{
    const struct oz_plane_spec *spec = oz_codec_plane(w->codec, plane);
    int64_t row_bytes = row_bytes_of(w, plane);
    if (spec->flat_cells != 0) { /* whole scopes are whole cells */
        int64_t cell = spec->flat_cells == OZ_CELL_GROUP ? w->group_cols : spec->flat_cells;
        cell *= spec->flat_times > 0 ? spec->flat_times : 1;
        int64_t first = row0 * w->cols / cell * spec->cell_bits / 8;
        int64_t end = ((row0 + rows) * w->cols + cell - 1) / cell * spec->cell_bits / 8;
        return (struct oz_load_cells){first, end - first};
    }
    if (spec->fixed_elements > 0 || spec->cell_rows <= 0) {
        return (struct oz_load_cells){0, row_bytes};
    }
    int64_t first = row0 / spec->cell_rows;
    int64_t end = (row0 + rows + spec->cell_rows - 1) / spec->cell_rows;
    return (struct oz_load_cells){first * row_bytes, (end - first) * row_bytes};
}

int64_t oz_load_stage_bytes(const struct oz_weight *w, int64_t row0, int64_t rows)
{
    int64_t bytes = 0;
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        if (w->planes[i].present) {
            bytes += oz_load_round(oz_load_cells(w, (enum oz_plane)i, row0, rows).bytes);
        }
    }
    return bytes;
}

struct oz_weight oz_load_stage_view(const struct oz_weight *w, int64_t slice, int64_t row0,
                                    int64_t rows, uint8_t *base)
{
    struct oz_weight view = *w;
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *plane = &view.planes[i];
        int64_t all;
        if (!plane->present ||
            oz_weight_plane_bytes(w, (enum oz_plane)i, &all, &plane->row_stride_bytes) != OZ_OK) {
            continue;
        }
        struct oz_load_cells cells = oz_load_cells(w, (enum oz_plane)i, row0, rows);
        plane->bytes = all;
        plane->slice_stride_bytes = w->slices > 0 ? all / w->slices : 0;
        /* An address outside what is staged, that indices of these rows bring back into it. */
        plane->data = (void *)((uintptr_t)base - (uintptr_t)(slice * plane->slice_stride_bytes) -
                               (uintptr_t)cells.first);
        base += oz_load_round(cells.bytes);
    }
    return view;
}
