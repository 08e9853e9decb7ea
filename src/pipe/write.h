/*
 * pipe/write.h: writes an assigned pipeline as a model whose weights are quantized already: what would
 * be encoded while loading is encoded into files (compressed-tensors, quant/dialect), everything else
 * of the model's folder is copied byte for byte. Bounded: the loader's ring and one copying buffer.
 *
 * The model grows in a folder beside its name, "<output>.ounce-part", and is renamed when it is whole
 * and on the disk; model_index.json comes last. A file .ounce-part in it says whose it is, and is locked
 * while it is written to: what an interrupted process left is replaced by the next one, never taken for
 * a model; two at once are refused.
 */
#ifndef OZ_PIPE_WRITE_H
#define OZ_PIPE_WRITE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "pipe/pipeline.h"

#define OZ_WRITE_SHARD_BYTES INT64_C(5000000000)

struct oz_write_options {
    const char *output;      /* a folder */
    bool overwrite;          /* a model that is there is replaced */
    int64_t max_shard_bytes; /* of tensors in a file; 0: OZ_WRITE_SHARD_BYTES */
    struct oz_device *dev;   /* whose pool and encoders are used */
    oz_progress_fn progress; /* OZ_STAGE_WRITE, in bytes of the source; NULL: none */
    void *progress_ctx;
};

/*
 * Writes. The pipeline is opened and assigned, not loaded; afterwards it can only be closed.
 * OZ_ERR_ARG: nothing is quantized, or the output is in the way (a model without `overwrite`, another
 * folder, the source itself); OZ_ERR_UNSUPPORTED: what no format holds, by layer and scheme; OZ_ERR_FORMAT:
 * NaN or infinity in a weight; OZ_ERR_IO; OZ_ERR_NOMEM; OZ_ERR_CANCELLED. After a failure nothing is
 * left of it, and what was there before is as it was.
 */
OZ_MUST_USE enum oz_status oz_pipeline_write(struct oz_pipeline *p,
                                             const struct oz_write_options *options,
                                             struct oz_error *err);

/* ---- write_component.c ---- */

/* How far the whole is. */
struct oz_write_progress {
    const struct oz_write_options *options;
    int64_t done, total; /* bytes */
};

/* Counts bytes that are done; OZ_ERR_CANCELLED. As oz_copy_fn; ctx is the progress. */
OZ_MUST_USE enum oz_status oz_write_count(void *ctx, int64_t bytes, struct oz_error *err);

/* Does the assignment quantize anything in it? */
bool oz_write_is_quantized(const struct oz_component *c);

/* OZ_ERR_UNSUPPORTED unless a format holds all that is assigned. */
OZ_MUST_USE enum oz_status oz_write_check_component(const struct oz_component *c,
                                                    struct oz_error *err);

/* Writes its checkpoint and config into a folder that exists. */
OZ_MUST_USE enum oz_status oz_write_component(struct oz_component *c, const char *folder,
                                              struct oz_write_progress *progress,
                                              struct oz_error *err);

#endif
