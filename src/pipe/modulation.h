/*
 * pipe/modulation.h: where the modulation of the transformer's blocks comes from. It depends on the
 * timestep alone, so it is a table: a row for each timestep. What differs is how long its weights (a
 * third of Qwen-Image's) stay:
 *   RESIDENT  with the others; each call fills a table for its own timesteps.
 *   SCHEDULE  never: a table of the timesteps that a call needs is made before it, from weights that are
 *             read and given back block by block. The next call with no other timesteps keeps it.
 *   GRID      never, likewise, but the table has a row for each timestep that bf16 knows, and timesteps
 *             are rounded to those: one table for every size and step count.
 * Tables are the same bytes in all modes (row independence); GRID rounds what goes in.
 */
#ifndef OZ_PIPE_MODULATION_H
#define OZ_PIPE_MODULATION_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/qwen_image/qwen_image.h"
#include "ops/exec.h"

struct oz_pipeline;

#define OZ_MODULATION_MAP(X)              \
    X(OZ_MODULATION_RESIDENT, "resident") \
    X(OZ_MODULATION_SCHEDULE, "schedule") \
    X(OZ_MODULATION_GRID, "grid")

enum oz_modulation_mode {
#define OZ_MODULATION_ENUM(id, name) id,
    OZ_MODULATION_MAP(OZ_MODULATION_ENUM)
#undef OZ_MODULATION_ENUM
        OZ_MODULATION_COUNT
};

/* The grid is bf16's numbers from 1 down to this one, both included. */
#define OZ_MODULATION_GRID_LEAST 0x1p-6F
#define OZ_MODULATION_GRID_ROWS (6 * 128 + 1)

/* Of a pipeline. Zeroes are RESIDENT without a table. */
struct oz_modulation {
    enum oz_modulation_mode mode;
    /* From oz_modulation_plan, where the weights do not stay: */
    size_t room_bytes;     /* of the part that takes most: all that of the weights is ever there */
    int64_t staging_bytes; /* while one is loaded */
    int64_t weight_bytes;  /* that staying would take */
    /* The table that is there: */
    float *times;
    int64_t count; /* rows; 0: none */
    struct oz_act *acts;
    struct oz_qwen_image_mod mod;
    void *memory; /* device */
    size_t bytes;
};

const char *oz_modulation_name(enum oz_modulation_mode mode); /* "?" outside the enum */
/* NULL and "": RESIDENT. OZ_ERR_ARG names the modes. */
OZ_MUST_USE enum oz_status oz_modulation_parse(enum oz_modulation_mode *mode, const char *name,
                                               struct oz_error *err);

/* Do the pipeline's modulation weights stay? Then the rest of this file is not needed. */
bool oz_modulation_stays(const struct oz_pipeline *p);
/* For oz_load_args.takes: all rows that stay. ctx is the pipeline. */
bool oz_modulation_leaves_in(const void *ctx, const struct oz_layer *layer);

/* Part of planning: the parameters that do not stay learn their plan, the component's report its
 * entries. Reads no weight. Errors of oz_load_component. */
OZ_MUST_USE enum oz_status oz_modulation_plan(struct oz_pipeline *p, struct oz_error *err);

/* The timestep that a time (sigma in 0..1) counts as: itself, or by GRID the nearest of the grid. */
float oz_modulation_time(const struct oz_modulation *m, float time);
/* Row of a timestep in the table that is there; -1: none. */
int64_t oz_modulation_row(const struct oz_modulation *m, float time);

/* OZ_ERR_ARG: one of these timesteps lies outside of the grid. Other modes have none. */
OZ_MUST_USE enum oz_status oz_modulation_check(const struct oz_modulation *m, const float *times,
                                               int64_t count, struct oz_error *err);

/* Bytes that a table for so many distinct timesteps takes (by GRID for all of the grid), and that
 * making it takes besides, which is given back. */
struct oz_modulation_bytes {
    size_t table, making;
};
OZ_MUST_USE enum oz_status oz_modulation_measure(const struct oz_pipeline *p, int64_t timesteps,
                                                 struct oz_modulation_bytes *bytes,
                                                 struct oz_error *err);

/*
 * Sees to it that the table has a row for each of these distinct timesteps: makes it anew unless it has.
 * `begin` starts an exec for RUN with the caller's hooks. What is computed from files that change
 * meanwhile is thrown away. OZ_ERR_NOMEM says how much was needed; OZ_ERR_ARG: a timestep that the grid
 * does not reach; errors of oz_load_component; OZ_ERR_CANCELLED. After a failure there is no table.
 */
typedef struct oz_exec (*oz_modulation_begin_fn)(void *ctx, enum oz_exec_mode mode,
                                                 struct oz_arena *step);
OZ_MUST_USE enum oz_status oz_modulation_prepare(const struct oz_pipeline *p, const float *times,
                                                 int64_t count, oz_modulation_begin_fn begin,
                                                 void *ctx, struct oz_error *err);

void oz_modulation_deinit(struct oz_modulation *m, struct oz_device *dev);

#endif
