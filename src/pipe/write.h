/*
 * pipe/write.h: writes an assigned pipeline as a model whose weights are quantized already, or a converted
 * one (pipe/convert.h) as a plain one: what would be encoded while loading is encoded into files (compressed-tensors or bitsandbytes, quant/dialect), everything else
 * of the model's folder is copied byte for byte. Bounded: the loader's ring and one copying buffer.
 *
 * Adapters are merged, and a transformer that was taken from elsewhere becomes the model's own.
 *
 * The model grows in a folder beside its name, "<output>.ounce-part", and is renamed when it is whole
 * and on the disk; model_index.json comes last. What stops halfway (cancelled, killed, a full disk)
 * leaves that folder: the next run of the same plan and the same source keeps the files that are whole
 * (pipe/write_journal.h) and ends in the bytes of an uninterrupted one; another plan or source begins
 * anew, and says so. The folder is locked while it is written to: two at once are refused.
 */
#ifndef OZ_PIPE_WRITE_H
#define OZ_PIPE_WRITE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "pipe/pipeline.h"
#include "pipe/write_journal.h"

#define OZ_WRITE_SHARD_BYTES INT64_C(5000000000)

struct oz_write_options {
    const char *output;      /* a folder */
    bool overwrite;          /* a model that is there is replaced */
    int64_t max_shard_bytes; /* of tensors in a file; 0: OZ_WRITE_SHARD_BYTES */
    const char *made_by;     /* "ounce 0.1.0": another one does not go on with this one's; NULL */
    struct oz_device *dev;   /* whose pool and encoders are used */
    oz_progress_fn progress; /* OZ_STAGE_WRITE, in bytes of the source; NULL: none */
    void *progress_ctx;
};

/*
 * Writes. The pipeline is opened and assigned, not loaded; afterwards it can only be closed.
 * OZ_ERR_ARG: nothing is quantized, or the output is in the way (a model without `overwrite`, another
 * folder, the source itself); OZ_ERR_UNSUPPORTED: what no format holds, by layer and scheme; OZ_ERR_FORMAT:
 * NaN or infinity in a weight; OZ_ERR_IO; OZ_ERR_NOMEM; OZ_ERR_CANCELLED. After a failure what was
 * there before is as it was; after the last three the working folder stays if a file in it is whole, and
 * the message says so, else nothing is left.
 */
OZ_MUST_USE enum oz_status oz_pipeline_write(struct oz_pipeline *p,
                                             const struct oz_write_options *options,
                                             struct oz_error *err);

/* ---- write_component.c ---- */

/* How far the whole is. */
struct oz_write_progress {
    const struct oz_write_options *options;
    struct oz_write_journal *journal;
    int64_t done, total; /* bytes */
};

/* Counts bytes that are done; OZ_ERR_CANCELLED. As oz_copy_fn; ctx is the progress. */
OZ_MUST_USE enum oz_status oz_write_count(void *ctx, int64_t bytes, struct oz_error *err);

/* Does the assignment quantize anything in it? */
bool oz_write_is_quantized(const struct oz_component *c);

/* Are its weights made anew: quantized, merged, converted or taken from elsewhere? Else its files are
 * copied. */
bool oz_write_is_made(const struct oz_component *c);

/* OZ_ERR_UNSUPPORTED unless a format holds all that is assigned. */
OZ_MUST_USE enum oz_status oz_write_check_component(const struct oz_component *c,
                                                    struct oz_error *err);

/* Tells the log, topic "write", what becomes of a component that is converted. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_write_tell_component(const struct oz_component *c,
                                                   struct oz_error *err);

/* Goes on with *hash over all that decides the component's bytes, but its source's. */
OZ_MUST_USE enum oz_status oz_write_hash_component(uint64_t *hash, const struct oz_component *c,
                                                   struct oz_error *err);

/* Writes its checkpoint and config into a folder of its name, which exists, in the journal's. */
OZ_MUST_USE enum oz_status oz_write_component(struct oz_component *c,
                                              struct oz_write_progress *progress,
                                              struct oz_error *err);

#endif
