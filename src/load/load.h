/*
 * load/load.h: from a matched checkpoint to resident parameters.
 *
 * Weights for which the device's plan asks are packed into the model arena, and their pages of the
 * file are given back to the system. Plain weights that a device can read where they lie (host
 * memory, aligned, no transform) stay in the file map; everything else is moved into the model arena
 * in its final layout: convolutions tap-major and channel-last in their stored dtype, norms and
 * vectors as f32.
 */
#ifndef OZ_LOAD_LOAD_H
#define OZ_LOAD_LOAD_H

#include <ounce/status.h>
#include <stdint.h>

#include "base/arena.h"
#include "dev/device.h"
#include "load/match.h"

/* What a load took. */
struct oz_load_stats {
    int64_t arena_bytes;  /* in the model arena */
    int64_t mapped_bytes; /* read from the file map while running */
    int64_t tensors, ignored;
};

/*
 * Puts every bound row's tensor into its parameter. With a measuring arena nothing is read: the
 * arena advances by exactly what the load will take, and parameters learn their codec and plan, so
 * that forwards can be measured from headers alone. The checkpoint must outlive
 * the parameters. Call oz_match_check first.
 * OZ_ERR_UNSUPPORTED: a dtype or a part of a row that this loader does not handle, by name;
 * OZ_ERR_NOMEM; OZ_ERR_CANCELLED. `done_bytes` (may be NULL) is advanced by the tensors' bytes, and
 * progress is reported against total_bytes.
 */
struct oz_load_args {
    const struct oz_match *match;
    struct oz_device *dev;
    struct oz_arena *model;
    oz_progress_fn progress; /* NULL: none */
    void *progress_ctx;
    int64_t *done_bytes, total_bytes;
    struct oz_load_stats *stats; /* added to; may be NULL */
};
OZ_MUST_USE enum oz_status oz_load_component(const struct oz_load_args *args, struct oz_error *err);

/* Bytes of the tensors that a load will read. */
int64_t oz_load_bytes(const struct oz_match *match);

#endif
