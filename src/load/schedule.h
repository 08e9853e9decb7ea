/*
 * load/schedule.h: what a load reads, in which order and through how much memory; computed from
 * headers before anything is read, and then executed as it stands. The plan prints it.
 *
 * A scale scope is what must be seen whole before its first code can be made: a band of rows, or (for
 * scales of a whole tensor, expert or fused group) all rows. Scopes are sorted by their place in the
 * files, and each completes before the next one opens. A scope of all rows that fits the ring is read
 * once and kept there; a larger one is read again for each pass.
 */
#ifndef OZ_LOAD_SCHEDULE_H
#define OZ_LOAD_SCHEDULE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct oz_load_args;
struct oz_load_items;
struct oz_match;

/* Rows of a parameter's slice that one thread handles at once. */
struct oz_load_step {
    int32_t item;                   /* of the load's list */
    int32_t row;                    /* of the layer table: whose tensor the first byte belongs to */
    int32_t file;                   /* of the checkpoint */
    int32_t pass;                   /* 0 .. the codec's observe_passes: the last one encodes */
    int64_t offset, bytes;          /* in the file, of the first read; 0 bytes: still in the ring */
    int64_t reads;                  /* that the bytes lie in; 1: they are consecutive */
    int64_t slice, first_row, rows; /* of the parameter */
    int64_t kept_at;                /* in the ring's kept part; -1: not kept */
    int64_t progress_bytes;         /* that its end reports */
};

/* Steps that may run side by side. */
enum oz_load_phase_kind {
    OZ_PHASE_DIRECT, /* each band is whole in itself: read, encoded, done */
    OZ_PHASE_OBSERVE,
    OZ_PHASE_ENCODE, /* after the scope's passes */
    OZ_PHASE_STAGED, /* a chunk that is then packed, or sent to the device */
};

struct oz_load_phase {
    enum oz_load_phase_kind kind;
    int64_t first, count; /* steps */
    int64_t chunk_at;     /* of a staged chunk, in the ring's kept part */
};

struct oz_load_schedule {
    struct oz_load_step *steps;
    int64_t count;
    struct oz_load_phase *phases;
    int64_t phase_count;
    int32_t workers;       /* threads that read and encode */
    int64_t read_bytes;    /* over all steps */
    int64_t tensor_bytes;  /* of what is streamed, each byte once */
    int64_t twice;         /* scopes that are larger than the ring and read again */
    int64_t worker_bytes;  /* staging of one worker */
    int64_t kept_bytes;    /* scopes and chunks that wait in the ring */
    int64_t staging_bytes; /* workers * worker_bytes + kept_bytes: at most the ring's budget */
    int64_t
        room_bytes; /* of device memory that an upload needs for what is encoded or drawn there */
    int64_t rooms_bytes;       /* of all uploads: beside staging_bytes */
    int64_t bookkeeping_bytes; /* of this schedule and the load's own lists */
    int64_t band_states;       /* most steps of an observing phase */
};

/* OZ_ERR_ARG: a budget in which some scope's band has no room, with the least that would do. The
 * schedule is the caller's to deinit, after failures too. */
OZ_MUST_USE enum oz_status oz_load_schedule_init(struct oz_load_schedule *s,
                                                 const struct oz_load_args *args,
                                                 const struct oz_load_items *items,
                                                 struct oz_error *err);
void oz_load_schedule_deinit(struct oz_load_schedule *s); /* zeroes are fine */

/*
 * {"read_bytes": .., "staging_bytes": .., "workers": .., "steps": [{"file": "..", "tensor": "..",
 * "offset": .., "bytes": .., "rows": [first, end], "slice": .., "pass": ..}, ..]}. Steps that
 * continue one another are one.
 */
void oz_load_schedule_json(const struct oz_load_schedule *s, const struct oz_match *match,
                           struct oz_buf *out);

#endif
