/*
 * load/item.h: what a load makes of each parameter, decided from headers alone: where its rows come
 * from, in which way they go, what they take in the model arena. Internal to src/load.
 */
#ifndef OZ_LOAD_ITEM_H
#define OZ_LOAD_ITEM_H

#include "dev/ops.h"
#include "load/load.h"

/* A parameter, or a part of one, as slices of matrices. */
struct oz_load_matrix {
    int64_t slices, rows, cols;
};

enum oz_load_way {
    OZ_WAY_MAPPED,     /* operators read it where it lies in the map */
    OZ_WAY_PACK_MAP,   /* packed from where it lies in the map */
    OZ_WAY_WHOLE,      /* small, or of a shape of its own: moved from the map at once */
    OZ_WAY_PACK_WHOLE, /* the same, then packed */
    OZ_WAY_STREAM,     /* read band by band */
    OZ_WAY_PLANES,     /* quantized in the file: its planes, as they are */
};

/* Rows of one tensor within a parameter: row i of slice s of the part is row first_row + i *
 * row_stride of slice `slice` + s. */
struct oz_load_part {
    const struct oz_layer *layer;
    const struct oz_tensor_view *tensor;
    int32_t row; /* of the layer table */
    struct oz_load_matrix shape;
    int64_t slice, first_row, row_stride;
};

struct oz_load_item {
    struct oz_param *param;
    enum oz_load_way way;
    enum oz_param_use use;
    enum oz_dtype stored; /* of the parts' elements */
    enum oz_dtype staged; /* of bands: `stored`, or F32 where a LoRA is merged before encoding */
    int64_t lora_rank;    /* the largest that is merged; 0: none */
    struct oz_load_matrix shape;
    const struct oz_load_part *parts; /* by slice and first row */
    int32_t part_count;
    const struct oz_codec *codec; /* of the resident weight */
    bool encodes;                 /* by a scheme; else the elements stay as they are stored */
    const struct oz_stored_weight *planes; /* that the file holds quantized; else NULL */
    bool adds_one;                         /* of some part */
    enum oz_exponent_rule exponent_rule;
    const struct oz_scheme *assigned; /* NULL: as stored */
    const char *scheme;               /* "as stored", or the scheme's name */
    const char *fused;                /* items of equal names share one scale; NULL */
    int32_t fused_index;              /* within the group */
    const struct oz_encoder *encoder; /* NULL: the codec's own */
    const char *
        row_encoder; /* of the device, which gets rows as they are staged; NULL: the host encodes */
    const char
        *kernels[OZ_SCHEME_MODES]; /* that read it in each activation mode; NULL: no such mode */
    int32_t pack_rows;             /* bands to be packed begin at multiples of it */
    void *packed;                  /* in the model arena; NULL: operators read planes */
    bool keeps_planes;             /* besides what is packed */
    int64_t packed_bytes, plane_bytes;
    struct oz_weight weight; /* planes in the model arena where plane_bytes > 0 */
};

struct oz_load_items {
    struct oz_load_item *items; /* in the order of their first rows */
    struct oz_load_part *parts;
    int32_t count;
};

/*
 * Decides, and takes the model arena's memory: the same with a measuring arena as with a real one.
 * Parameters learn their plan and the shape of their weight. The list is the caller's to deinit,
 * after failures too.
 */
OZ_MUST_USE enum oz_status oz_load_items_init(struct oz_load_items *list,
                                              const struct oz_load_args *args,
                                              struct oz_error *err);
void oz_load_items_deinit(struct oz_load_items *list);

/* File row (of the slice) of a part's row r. */
int64_t oz_load_source_row(const struct oz_load_part *part, int64_t r);

/* The part that holds row r of a slice, and which of its rows that is; NULL: none. */
const struct oz_load_part *oz_load_find_part(const struct oz_load_item *item, int64_t slice,
                                             int64_t r, int64_t *part_row);

/* Rows that must be encoded in one call and can be packed: a multiple of both; all scopes are
 * within a slice. */
int64_t oz_load_scope_rows(const struct oz_load_item *item);

/* Is an item encoded slab by slab into planes that only its worker sees, and packed from there? Its
 * codes are still in the core's cache then. */
bool oz_load_packs_slabs(const struct oz_load_args *args, const struct oz_load_item *item);

/* Rows of a band of `rows` that are read, encoded and packed before the next: whole scopes that leave
 * a core's second cache room for their codes; all of the band where a LoRA is merged. */
int64_t oz_load_slab_rows(const struct oz_load_item *item, int64_t rows);

/* Staging that a worker needs for bands of so many rows: a slab as it is staged, one scope of it in
 * f32, the slab's planes (where they are packed from), a piece of a transposed file row; for a LoRA
 * the band as it is stored or in f32 (what `raw` is not), its factors and the lists of rows. */
struct oz_load_room {
    int64_t raw, f32, planes, piece;
    int64_t other, down, up, lists;
};
struct oz_load_room oz_load_room_of(const struct oz_load_args *args,
                                    const struct oz_load_item *item, int64_t rows);

/* Bytes of a row as the file has it, and as it waits in staging. */
int64_t oz_load_file_line(const struct oz_load_item *item);
int64_t oz_load_staged_line(const struct oz_load_item *item);

/* ---- merge.c ---- */

/* Reads a band and merges the LoRA: to dst [rows, cols] of the item's staged dtype. `room` is the
 * worker's memory for room.other and what follows it. Any thread. */
OZ_MUST_USE enum oz_status oz_load_read_merged(const struct oz_load_args *args,
                                               const struct oz_load_item *item, int64_t slice,
                                               int64_t row0, int64_t rows, uint8_t *dst,
                                               uint8_t *piece, uint8_t *room, struct oz_error *err);

/* ---- whole.c ---- */

/* Loads an item that is not streamed. */
OZ_MUST_USE enum oz_status oz_load_whole(const struct oz_load_args *args,
                                         const struct oz_load_item *item, struct oz_error *err);

/* Staging that this takes where there is no map; else 0. */
int64_t oz_load_whole_staging(const struct oz_load_item *item);

/* ---- planes.c ---- */

/* Loads an item that the file holds quantized. */
OZ_MUST_USE enum oz_status oz_load_planes(const struct oz_load_args *args,
                                          const struct oz_load_item *item, struct oz_error *err);

/* Staging that this takes; 0: planes are read to their final place. */
int64_t oz_load_planes_staging(const struct oz_load_args *args, const struct oz_load_item *item);

/* ---- source.c ---- */

/* Most consecutive reads that a band may need; shown in schedules. */
int64_t oz_load_count_reads(const struct oz_load_item *item, int64_t slice, int64_t row0,
                            int64_t rows);

/* File and first byte of a band's first read. */
void oz_load_band_origin(const struct oz_load_item *item, int64_t slice, int64_t row0, int64_t rows,
                         int32_t *file, int64_t *offset);

/* Are rows [row0, row0 + rows) of a slice neighbours in the file, in this order? Then the tensor, and which
 * of its elements is the first. */
bool oz_load_is_one_run(const struct oz_load_item *item, int64_t slice, int64_t row0, int64_t rows,
                        const struct oz_tensor_view **tensor, int64_t *first);

/*
 * Reads rows [row0, row0 + rows) of a slice as the file stores their elements to dst [rows, cols],
 * transforms that move rows applied. `piece` has room for `rows` elements where a part is
 * transposed. Any thread.
 */
OZ_MUST_USE enum oz_status oz_load_read_band(const struct oz_ckpt *ckpt,
                                             const struct oz_load_item *item, int64_t slice,
                                             int64_t row0, int64_t rows, uint8_t *dst,
                                             uint8_t *piece, struct oz_error *err);

#endif
