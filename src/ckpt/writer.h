/*
 * ckpt/writer.h: CONTRACT. Writes a safetensors checkpoint: one file, or shards with an index, byte
 * for byte as the field's own library writes it.
 *
 * The header stands first in a file and names every tensor, so all tensors are declared when the
 * writer is made; their bytes then stream through, in the order that the writer asks for. Nothing but
 * names, shapes and headers is held, and no more files are open than are being written. Files are
 * written beside their names and renamed when all are whole: a checkpoint is there entirely or not at
 * all, unless its files are committed one by one.
 *
 * Within a file tensors stand as the reference writer puts them: by dtype (8 bytes first, then
 * 4, 2, 1, below; unsigned, signed, floating as its list has them), then by name in byte order; the
 * header is padded with blanks to 8 bytes. Shards are filled greedily in the declared order, as
 * transformers and diffusers fill them: a tensor larger than the limit is a shard of its own.
 */
#ifndef OZ_CKPT_WRITER_H
#define OZ_CKPT_WRITER_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/table.h"
#include "num/dtype.h"

/* A tensor to be written. The name is copied. */
struct oz_ckpt_spec {
    const char *name;
    enum oz_dtype dtype;
    int32_t rank;
    int64_t shape[OZ_CKPT_MAX_RANK];
};

struct oz_ckpt_writer_options {
    const char *folder; /* exists */
    const char *stem;   /* "model": model.safetensors, or model-00001-of-00002.safetensors ... and
                           model.safetensors.index.json */
    int64_t max_shard_bytes;          /* of tensors in a file; 0: one file */
    const char *const (*metadata)[2]; /* key and value, into every file; NULL: none */
    int32_t metadata_count;
    bool
        resumes; /* files of that stem may be there: those that are kept stay, others are replaced */
};

struct oz_ckpt_writer;

/*
 * Lays out the files; each is made, under a temporary name, when its first byte comes. OZ_ERR_ARG: a
 * name or shape that the container cannot hold, a name twice, a header above OZ_CKPT_MAX_HEADER_BYTES,
 * or a checkpoint of that stem is there already (it is not replaced); OZ_ERR_IO; OZ_ERR_NOMEM. *out is
 * the caller's to destroy; NULL on failure.
 */
OZ_MUST_USE enum oz_status oz_ckpt_writer_create(struct oz_ckpt_writer **out,
                                                 const struct oz_ckpt_writer_options *options,
                                                 const struct oz_ckpt_spec *specs, int32_t count,
                                                 struct oz_error *err);

/* Which of the declared tensors comes next; -1 when all are whole. Tensors without elements are
 * passed over. */
int32_t oz_ckpt_writer_next(const struct oz_ckpt_writer *w);

/* The next bytes of that tensor, little-endian and row-major; any number of them up to its rest
 * (more is OZ_ERR_ARG). OZ_ERR_IO names the file. */
OZ_MUST_USE enum oz_status oz_ckpt_writer_put(struct oz_ckpt_writer *w, const void *data,
                                              size_t bytes, struct oz_error *err);

/*
 * The other way, for one who makes several tensors side by side: bytes of the index-th declared tensor,
 * tensors in any order. Within a tensor they begin at or before the end of what is there already, so
 * that nothing stays empty (else OZ_ERR_ARG), and may be given again. Not together with put.
 */
OZ_MUST_USE enum oz_status oz_ckpt_writer_put_at(struct oz_ckpt_writer *w, int32_t index,
                                                 int64_t offset, const void *data, size_t bytes,
                                                 struct oz_error *err);

/*
 * ---- file by file ----
 * For one who wants to go on where an interrupted writer stopped: a file that is committed is whole,
 * on the disk and under its name, and stays when the writer is destroyed. The writer's layout depends
 * on its declarations alone, so that the next one has the same files.
 */
int32_t oz_ckpt_writer_shards(const struct oz_ckpt_writer *w);
/* The file of the index-th declared tensor. */
int32_t oz_ckpt_writer_shard_of(const struct oz_ckpt_writer *w, int32_t index);
const char *oz_ckpt_writer_shard_name(const struct oz_ckpt_writer *w, int32_t shard);

/* Keeps the file that is there under the shard's name if its size and header are the shard's: put_at
 * then only counts what it is given for it. Before the shard's first byte. OZ_ERR_IO: it cannot be
 * read; one that is not there, or another, is not kept. */
OZ_MUST_USE enum oz_status oz_ckpt_writer_keep(struct oz_ckpt_writer *w, int32_t shard, bool *kept,
                                               struct oz_error *err);

/* Flushes and renames a file whose tensors are whole, by put_at (else OZ_ERR_ARG). */
OZ_MUST_USE enum oz_status oz_ckpt_writer_commit(struct oz_ckpt_writer *w, int32_t shard,
                                                 struct oz_error *err);

/* Flushes, renames, writes the index. OZ_ERR_ARG: tensors are missing. The writer stays the caller's
 * to destroy. */
OZ_MUST_USE enum oz_status oz_ckpt_writer_finish(struct oz_ckpt_writer *w, struct oz_error *err);

/* Without a finish, nothing is left behind but files that were committed or kept. NULL inside is fine; sets it to NULL. */
void oz_ckpt_writer_destroy(struct oz_ckpt_writer **w);

#endif
