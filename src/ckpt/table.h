/*
 * ckpt/table.h: CONTRACT. Containers (safetensors, sharded safetensors, GGUF) as one table of
 * borrowed tensor views.
 *
 * Opening reads headers only. Every claim of a file (counts, lengths, offsets, shapes) is checked
 * against the file's real size before it is used; checkpoint-formats.md section 13 is the list.
 * A table is immutable after opening and may be read from several threads. Where another process cuts
 * a file short while it is mapped, `data` reads zeros (base/mapguard.h): oz_ckpt_check says so.
 */
#ifndef OZ_CKPT_TABLE_H
#define OZ_CKPT_TABLE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "num/dtype.h"

struct oz_codec;

#define OZ_CKPT_MAX_RANK 8

/* Limits that a hostile file meets; all are checked before memory is taken. That of headers is the
 * default; the format's own is the highest. */
#define OZ_CKPT_MAX_HEADER_BYTES (INT64_C(16) << 20)
#define OZ_CKPT_HIGHEST_HEADER_BYTES INT64_C(100000000)
#define OZ_CKPT_MAX_TENSORS 1000000
#define OZ_CKPT_MAX_NAME_BYTES 4096

/* One file of a checkpoint. */
struct oz_ckpt_file {
    const char *path;   /* as opened; for messages */
    int fd;             /* for pread; owned by the table */
    int64_t bytes;      /* size when opened */
    const uint8_t *map; /* whole file, read-only and private */
};

/*
 * A tensor as stored. Borrowed from the table; valid until oz_ckpt_close. Two ways to its bytes,
 * the same bytes: `data` in the map (page faults on use; counts as file-backed memory), or pread
 * at file_offset (for quantizing loads that must not keep pages).
 */
struct oz_tensor_view {
    const char *name;      /* as in the file, or oz_ckpt_rename's; UTF-8, unique in the table */
    const char *file_name; /* as in the file, where oz_ckpt_rename gave it another; NULL: `name` */
    enum oz_dtype dtype;
    const struct oz_codec
        *codec;   /* of block formats (GGUF), where dtype is U8; NULL: plain dtype */
    int32_t rank; /* 0 for a scalar */
    int64_t shape[OZ_CKPT_MAX_RANK]; /* row-major, outermost first; a 0 dim means no elements */
    int64_t elements;                /* product of shape, 1 for rank 0 */
    int64_t bytes;
    int32_t file; /* index into the table's files */
    int64_t file_offset;
    const uint8_t *data; /* unaligned; NULL when bytes is 0, and where there is no file (drawn.h) */
};

struct oz_ckpt;

/*
 * Opens a checkpoint: a .safetensors file, an .index.json, a .gguf file (of several parts the first:
 * the others are found beside it), or a folder that holds one of
 * `<stem>.safetensors.index.json`, `<stem>.safetensors` for the given stems in order (NULL ends the
 * list; NULL list: "diffusion_pytorch_model", "model"), or else one index of any other stem, or one file
 * of any name that ends in .safetensors or .gguf. The index wins over files beside it. Index and shards are compared both ways. Shapes of a GGUF file are row-major here,
 * as "comfy.gguf.orig_shape.<tensor>" says where it does.
 * On success *out is the caller's to close. OZ_ERR_IO: cannot be read; OZ_ERR_FORMAT: malformed, or
 * index and shards disagree; OZ_ERR_UNSUPPORTED: a container or dtype that ounce does not read;
 * OZ_ERR_NOMEM. On failure *out is NULL.
 */
OZ_MUST_USE enum oz_status oz_ckpt_open(struct oz_ckpt **out, const char *path,
                                        const char *const *stems, struct oz_error *err);
/* The same with headers of at most max_header_bytes (0: OZ_CKPT_MAX_HEADER_BYTES). */
OZ_MUST_USE enum oz_status oz_ckpt_open_limited(struct oz_ckpt **out, const char *path,
                                                const char *const *stems, int64_t max_header_bytes,
                                                struct oz_error *err);
void oz_ckpt_close(struct oz_ckpt **ckpt); /* NULL is fine; sets *ckpt to NULL */

/*
 * Gives tensors other names, before anything else has looked at them: those of another convention. fn
 * writes a tensor's name to `out` and returns true, or returns false: it stays. The table is sorted anew.
 * OZ_ERR_FORMAT: two tensors would have one name, or none; OZ_ERR_NOMEM.
 */
typedef bool (*oz_ckpt_name_fn)(void *ctx, const char *name, struct oz_buf *out);
OZ_MUST_USE enum oz_status oz_ckpt_rename(struct oz_ckpt *ckpt, oz_ckpt_name_fn fn, void *ctx,
                                          struct oz_error *err);

/* oz_ckpt_rename: takes a prefix off every name that has it. */
OZ_MUST_USE enum oz_status oz_ckpt_strip(struct oz_ckpt *ckpt, const char *prefix,
                                         struct oz_error *err);

/* A part of a tensor that becomes one of its own: bytes [first_byte, first_byte + bytes) of it. */
struct oz_ckpt_part {
    int64_t tensor;   /* index in the table; several parts may have bytes in common */
    const char *name; /* copied */
    int64_t first_byte, bytes;
    int32_t rank;
    int64_t shape[OZ_CKPT_MAX_RANK]; /* which is as many bytes */
};

/*
 * Tensors that parts are of give way to these, as oz_ckpt_rename gives way to names: layouts of another
 * convention. OZ_ERR_ARG: a part lies outside of its tensor or has other bytes than its shape;
 * OZ_ERR_FORMAT: two tensors would have one name; OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_ckpt_divide(struct oz_ckpt *ckpt, const struct oz_ckpt_part *parts,
                                          int64_t count, struct oz_error *err);

int64_t oz_ckpt_count(const struct oz_ckpt *ckpt);
/* Tensors sorted by name in byte order; index in [0, count). */
const struct oz_tensor_view *oz_ckpt_tensor(const struct oz_ckpt *ckpt, int64_t index);
/* By exact name; NULL when absent. *index (may be NULL) gets its position. */
const struct oz_tensor_view *oz_ckpt_find(const struct oz_ckpt *ckpt, const char *name,
                                          int64_t *index);

/* Is there a tensor whose name is those two texts? */
bool oz_ckpt_has(const struct oz_ckpt *ckpt, const char *prefix, const char *name);

int32_t oz_ckpt_file_count(const struct oz_ckpt *ckpt);
const struct oz_ckpt_file *oz_ckpt_file(const struct oz_ckpt *ckpt, int32_t index);

/* Its name in the file: what messages tell people who look for it there. */
const char *oz_tensor_file_name(const struct oz_tensor_view *t);

/* The type of its elements or blocks as its container's makers write it: "BF16", "Q4_K". */
const char *oz_tensor_format(const struct oz_tensor_view *t);

/* Value of a key in the files' __metadata__ (the first file that has it), or NULL. Of GGUF's metadata:
 * numbers in decimal, "true" and "false", short arrays of numbers as "[1,2]"; of others "17 of string". */
const char *oz_ckpt_metadata(const struct oz_ckpt *ckpt, const char *key);
/* The i-th entry of all files' metadata, in their order; false behind the last. */
bool oz_ckpt_metadata_at(const struct oz_ckpt *ckpt, int32_t index, const char **key,
                         const char **value);

/* Files in the folder with a checkpoint's suffix that the table does not use (stale or stray):
 * their count, and the i-th one's name in byte order. `inspect` and the plan name them. None for a
 * table that was opened by the name of one .safetensors file. */
int32_t oz_ckpt_stray_count(const struct oz_ckpt *ckpt);
const char *oz_ckpt_stray(const struct oz_ckpt *ckpt, int32_t index);

/*
 * Reads `bytes` bytes of a tensor from byte `offset` of it into dst by pread, retrying short reads.
 * OZ_ERR_IO names the file, the tensor and errno, and also covers a file that has become shorter.
 */
OZ_MUST_USE enum oz_status oz_ckpt_read(const struct oz_ckpt *ckpt, const struct oz_tensor_view *t,
                                        int64_t offset, int64_t bytes, void *dst,
                                        struct oz_error *err);

/* Says that bytes of a file will be read soon: the system may fetch them meanwhile. */
void oz_ckpt_advise(const struct oz_ckpt *ckpt, int32_t file, int64_t offset, int64_t bytes);

/* OZ_ERR_IO when a file is not what was opened any more: shorter, longer, written to, or unreadable
 * in a place that was read through `data`. Whoever has read through `data` asks before the result is
 * used. */
OZ_MUST_USE enum oz_status oz_ckpt_check(const struct oz_ckpt *ckpt, struct oz_error *err);

/* Says that a tensor's mapped pages will hardly be read again: the system may drop them. They come
 * back from the file when they are. */
void oz_ckpt_forget(const struct oz_ckpt *ckpt, const struct oz_tensor_view *t);

#endif
