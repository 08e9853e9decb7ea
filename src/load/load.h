/*
 * load/load.h: from a matched checkpoint to resident parameters.
 *
 * What an assignment quantizes is read band by band through a ring of fixed size and encoded straight
 * into its final place: the model arena holds codes and scales, and nothing as large as a layer is
 * ever staged (load/schedule.h). What stays as it is stored is packed where the device's plan asks for
 * it, read from the file map where the device can (host memory, aligned, no transform), or moved into
 * the arena: convolutions tap-major and channel-last in their stored dtype, norms and vectors as f32.
 * Adapters are merged in staging, band by band (load/lora.h); a layer with one is never mapped.
 */
#ifndef OZ_LOAD_LOAD_H
#define OZ_LOAD_LOAD_H

#include <ounce/status.h>
#include <stdint.h>

#include "base/arena.h"
#include "dev/device.h"
#include "dev/ops.h"
#include "load/lora.h"
#include "load/match.h"
#include "load/report.h"
#include "load/ring.h"
#include "load/schedule.h"
#include "quant/assign.h"

#define OZ_LOAD_RING_BYTES (INT64_C(64) << 20) /* default budget of all staging */
#define OZ_LOAD_AHEAD_BYTES \
    (INT64_C(256) << 20) /* that the system is asked to have read, in its cache */

/* What a load took. */
struct oz_load_stats {
    int64_t arena_bytes;   /* in the model arena */
    int64_t mapped_bytes;  /* read from the file map while running */
    int64_t encoded_bytes; /* of arena_bytes: what schemes made */
    int64_t staging_bytes; /* the largest of the components', gone after the load */
    int64_t tensors, ignored, encoded;
};

struct oz_load_args {
    const struct oz_match *match;
    struct oz_device *dev;
    struct oz_arena *model;
    const struct oz_assignment *assignment; /* of the match's table; NULL: all as it is stored */
    const struct oz_lora *lora;             /* of the match's table, to be merged; NULL: none */
    /* Which rows are loaded; the others are passed over, as if nobody bound them. NULL: all. */
    bool (*takes)(const void *ctx, const struct oz_layer *layer);
    const void *takes_ctx;
    bool passing;              /* what is loaded is used and given back: the report says so */
    int64_t ring_bytes;        /* of staging; 0: OZ_LOAD_RING_BYTES */
    struct oz_load_ring *ring; /* kept by the caller for the next load of the device; NULL: none */
    bool keep_nonfinite;       /* NaN and infinity are coded, not refused */
    oz_progress_fn progress;   /* NULL: none */
    void *progress_ctx;
    int64_t *done_bytes, total_bytes;
    struct oz_load_stats *stats;   /* added to; may be NULL */
    struct oz_load_report *report; /* appended to; may be NULL */
    struct oz_load_schedule
        *schedule; /* made; the caller's to deinit, after failures too; or NULL */
};

/*
 * Puts every bound row's tensor into its parameter. With a measuring arena nothing is read: the
 * arena advances by exactly what the load will take, and parameters learn their codec and plan, so
 * that forwards can be measured from headers alone; schedule and report are those of the load. The
 * checkpoint must outlive the parameters. Call oz_match_check first.
 * Rows are read and encoded by the threads of the device's pool, with the same result for any number
 * of them. `done_bytes` (may be NULL) is advanced by the tensors' bytes, and progress is reported
 * against total_bytes, between bands; so is cancelling.
 * OZ_ERR_UNSUPPORTED: a dtype, a part of a row or a scheme that this loader does not handle, by name;
 * OZ_ERR_FORMAT: NaN or infinity where a scheme would hide it, or in a LoRA, by tensor and index; OZ_ERR_IO: a file
 * that cannot be read, or was changed since it was opened; OZ_ERR_ARG: a ring in which some band has no
 * room; OZ_ERR_NOMEM; OZ_ERR_CANCELLED. After a failure parameters hold nothing of the load, and the
 * arena's contents are undefined.
 */
OZ_MUST_USE enum oz_status oz_load_component(const struct oz_load_args *args, struct oz_error *err);

/* Norms and vectors: always f32 and resident. */
bool oz_load_is_vector(const struct oz_layer *layer);

/* The operator that will read a row's parameter. */
enum oz_param_use oz_load_use(const struct oz_layer *layer);

/* Is a row among those that a load takes? */
static inline bool oz_load_takes(const struct oz_load_args *a, const struct oz_layer *layer)
{
    return a->takes == NULL || a->takes(a->takes_ctx, layer);
}

/* Bytes of the tensors that a load will read; only match and takes count. */
int64_t oz_load_bytes(const struct oz_load_args *args);

#endif
