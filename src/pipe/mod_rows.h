/*
 * pipe/mod_rows.h: which timestep has which row of the modulation table. Rows that a sequence on its way
 * needs are kept; the others keep what they hold until another timestep needs the room.
 */
#ifndef OZ_PIPE_MOD_ROWS_H
#define OZ_PIPE_MOD_ROWS_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "pipe/sched_flow.h"
#include "pipe/sequence.h"

struct oz_mod_rows {
    float *times;   /* host [count]: distinct */
    int32_t *users; /* steps of sequences that need the row */
    bool *filled;   /* the table has it; the caller's to set. New rows are not */
    int64_t count, capacity;
};

OZ_MUST_USE enum oz_status oz_mod_rows_init(struct oz_mod_rows *m, int64_t capacity,
                                            struct oz_error *err);
void oz_mod_rows_deinit(struct oz_mod_rows *m); /* zeroes are fine */

/* Gives each step of a sequence its row (s->mod_rows), by its schedule. False: there is no room, and
 * nothing has changed. */
bool oz_mod_rows_take(struct oz_mod_rows *m, const struct oz_sched_flow_config *c,
                      struct oz_sequence *s);
/* The sequence needs its rows no longer: they become -1. Steps that have none (-1) are passed over. */
void oz_mod_rows_release(struct oz_mod_rows *m, struct oz_sequence *s);

#endif
