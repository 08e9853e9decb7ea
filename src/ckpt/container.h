/*
 * ckpt/container.h: what the container readers share with the table that they fill. Internal to
 * src/ckpt.
 */
#ifndef OZ_CKPT_CONTAINER_H
#define OZ_CKPT_CONTAINER_H

#include "base/arena.h"
#include "base/file.h"
#include "ckpt/table.h"

struct oz_ckpt_meta {
    const char *key, *value;
};

struct oz_ckpt {
    int64_t max_header_bytes;
    struct oz_ckpt_file *files;
    struct oz_filemap *maps; /* [file_count], behind files */
    int32_t file_count, file_capacity;
    struct oz_tensor_view *tensors;
    int64_t count, capacity;
    struct oz_ckpt_meta *meta;
    int32_t meta_count, meta_capacity;
    char **strays;
    int32_t stray_count;
    char **strings; /* every string that the table owns */
    int64_t string_count, string_capacity;
    struct oz_ckpt_drawn *drawn; /* drawn.c; NULL: there are files */
};

/* Copies a string into the table's care; NULL without memory. */
const char *oz_ckpt_own(struct oz_ckpt *c, const char *text);

/* Appends a zeroed tensor; NULL without memory. */
struct oz_tensor_view *oz_ckpt_add_tensor(struct oz_ckpt *c);

/* Adds a metadata entry. */
OZ_MUST_USE enum oz_status oz_ckpt_add_meta(struct oz_ckpt *c, const char *key, const char *value);

/* Maps a file into the table and gives its index. */
OZ_MUST_USE enum oz_status oz_ckpt_add_file(struct oz_ckpt *c, const char *path, int32_t *index,
                                            struct oz_error *err);

/* Sorts by name; the same name twice is an error. */
OZ_MUST_USE enum oz_status oz_ckpt_sort(struct oz_ckpt *c, struct oz_error *err);

/* Bytes of a tensor that is drawn, which it has; NULL is fine to destroy. */
void oz_ckpt_drawn_read(const struct oz_ckpt *c, const struct oz_tensor_view *t, int64_t offset,
                        int64_t bytes, void *dst);
void oz_ckpt_drawn_destroy(struct oz_ckpt_drawn *drawn);

/* Reads the header of a safetensors file of the table and appends its tensors. */
OZ_MUST_USE enum oz_status oz_safetensors_read(struct oz_ckpt *c, int32_t file,
                                               struct oz_error *err);

/* The same of a GGUF file, and of the other parts beside it where it is the first of several. */
OZ_MUST_USE enum oz_status oz_gguf_read(struct oz_ckpt *c, int32_t file, struct oz_error *err);

/* Shapes that the metadata of a GGUF file say, in place of what its tensors have; after sorting. */
OZ_MUST_USE enum oz_status oz_gguf_restore_shapes(struct oz_ckpt *c, struct oz_error *err);

#endif
