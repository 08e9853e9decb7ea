/*
 * pipe/write_list.h: what a component's files will hold: its tensors in their order, and for each whether
 * it is copied, comes through the loader, or is known before. Internal to src/pipe.
 */
#ifndef OZ_PIPE_WRITE_LIST_H
#define OZ_PIPE_WRITE_LIST_H

#include "ckpt/writer.h"
#include "load/sink.h"
#include "pipe/pipeline.h"

/* A row whose tensors come through the loader: encoded, expanded, or plain with an adapter merged. */
struct oz_write_row {
    int32_t row;    /* of the component's table */
    int64_t tensor; /* of its checkpoint */
    int32_t first_spec, spec_count;
    struct oz_sink_weight to; /* param: NULL */
};

/* Bytes of a tensor that do not wait for its weight. */
struct oz_write_fixed {
    const void *data; /* NULL: none */
    char *text;       /* owned; NULL: data is static */
};

struct oz_write_list {
    const struct oz_component *c;         /* borrowed */
    struct oz_ckpt_spec *specs;           /* [spec_count] */
    const struct oz_tensor_view **copies; /* [spec_count]: what is copied there; NULL: not copied */
    struct oz_write_fixed *fixed;         /* [spec_count] */
    char **names;                         /* [spec_count]: of specs that are not the checkpoint's */
    int32_t spec_count;
    struct oz_write_row *rows; /* [row_count], in the order of their specs */
    int32_t row_count;
};

/* Is a row encoded by its scheme? */
bool oz_write_is_encoded(const struct oz_component *c, int32_t row);
/* Does a row that the file holds quantized become plain? */
bool oz_write_is_expanded(const struct oz_component *c, int32_t row);
/* Is a tensor, of none of our rows, in a form that is of no use beside converted weights? It is left out. */
bool oz_write_is_dropped(const struct oz_component *c, int64_t tensor);
/* Does an adapter change a row that stays plain? */
bool oz_write_is_merged(const struct oz_component *c, int32_t row);

/* The dtype of a row's plain tensor: of one without a tensor F32, of one that the file holds quantized
 * BF16. */
enum oz_dtype oz_write_dtype(const struct oz_component *c, int64_t tensor);

/* Lists an assigned component. OZ_ERR_UNSUPPORTED, OZ_ERR_NOMEM. Deinit after either. */
OZ_MUST_USE enum oz_status oz_write_list_init(struct oz_write_list *list,
                                              const struct oz_component *c, struct oz_error *err);
void oz_write_list_deinit(struct oz_write_list *list);

/* Goes on with a hash over all that it holds, and how each row is made. */
uint64_t oz_write_list_hash(const struct oz_write_list *list, uint64_t hash);

/* ---- write_tensors.c ---- */

struct oz_write_progress;

/* Writes the list's files into a folder, those that the journal has not got already. */
OZ_MUST_USE enum oz_status oz_write_tensors(const struct oz_write_list *list, const char *folder,
                                            struct oz_write_progress *progress,
                                            struct oz_error *err);

#endif
