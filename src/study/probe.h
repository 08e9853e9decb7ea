/*
 * study/probe.h: what quantizing one part of a model does to the whole. Two variants are loaded, the
 * model as it is stored and one scheme for every layer that takes it; a layer is quantized alone by
 * lending the one its parameter from the other, and kept alone by lending the other way: nothing is
 * loaded again. What comes out is compared on whole pictures.
 */
#ifndef OZ_STUDY_PROBE_H
#define OZ_STUDY_PROBE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "study/variant.h"

#define OZ_PROBE_PARTS 4 /* rows of a unit at most: q, k, v */

/* What gets a scheme together: a linear of the transformer, or a group that fuses. */
struct oz_probe_unit {
    const char *name; /* the module's, or the group's; borrowed from the reference's table */
    enum oz_role role;
    int32_t block;                       /* from 0; -1: outside of blocks */
    int32_t parts, rows[OZ_PROBE_PARTS]; /* of the layer table */
    int64_t elements;
    int64_t stored_bytes; /* resident, as stored */
    bool ran;             /* some part of it was needed */
    int32_t input_part;   /* whose inputs are kept */
    /* Inputs on the way of the reference: [input_rows, cols] f32. */
    float *inputs;
    int64_t input_rows, input_room, cols, input_seen;
};

struct oz_probe_args {
    struct oz_variant_setting how;
    const char *model;
    const struct oz_task *tasks; /* as asked */
    int32_t task_count;
    oz_progress_fn progress;
    void *progress_ctx;
};

struct oz_probe {
    struct oz_variant_setting how;    /* the caller's, but that all weights stay */
    const struct oz_probe_args *args; /* borrowed */
    struct oz_variant_run reference, scheme;
    bool *takes; /* [units]: the open scheme has it */
    struct oz_task *tasks;
    struct oz_drawing drawing;
    float *expected; /* [tasks][3 pixels] */
    int64_t expected_values;
    struct oz_probe_unit *units;
    int32_t count;
    int64_t steps_done, steps_total; /* for progress; the caller's to set */
};

/* Opens the reference, draws with it, keeps some inputs of each unit. oz_probe_close after either. */
OZ_MUST_USE enum oz_status oz_probe_open(struct oz_probe *p, const struct oz_probe_args *args,
                                         struct oz_error *err);
void oz_probe_close(struct oz_probe *p);

/* Loads a scheme for all units that take it: `value` is the JSON value of a target ("\"int8\""). */
OZ_MUST_USE enum oz_status oz_probe_open_scheme(struct oz_probe *p, const char *value,
                                                const struct oz_scheme_info *info,
                                                struct oz_error *err);
void oz_probe_close_scheme(struct oz_probe *p);

/* Resident bytes of a unit in the open scheme. */
int64_t oz_probe_scheme_bytes(const struct oz_probe *p, int32_t unit);

/*
 * The relative squared error of a unit's own output in the open scheme, on the inputs that were kept:
 * |y' - y|^2 / |y|^2, both without bias. NaN: no input was kept, or the scheme does not take it.
 */
OZ_MUST_USE enum oz_status oz_probe_local(struct oz_probe *p, int32_t unit, double *error,
                                          struct oz_error *err);

/*
 * The error of the whole when just the units for which `in` is true are in the open scheme, all others
 * as stored: the mean squared error of all tasks' pictures in 0..1.
 */
OZ_MUST_USE enum oz_status oz_probe_whole(struct oz_probe *p, const bool *in, double *error,
                                          struct oz_error *err);

#endif
