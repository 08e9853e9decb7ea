/*
 * plan/plan.h: what a load is going to do and what a run will take, from headers alone. The load
 * executes the same decisions: assignment, kernels and read schedule are those of oz_pipeline_plan.
 *
 * Memory is told in three kinds. Anonymous memory: weights in the model arena, staging, arenas of the
 * run; it is what the peaks count. Mapped weights: read where they lie in the files; the system takes
 * their pages back when it needs them. The bare process: what it holds before a load.
 */
#ifndef OZ_PLAN_PLAN_H
#define OZ_PLAN_PLAN_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "pipe/generate.h"
#include "pipe/pipeline.h"
#include "pipe/task.h"

/* A better kernel that declined, and why. Strings are the device's. */
struct oz_plan_decline {
    const char *kernel, *reason;
};

/* A kernel that will read weights, with those before it that declined: layers for which the reasons
 * differ have different rows. */
struct oz_plan_kernel {
    const char *name;
    int32_t first_decline, decline_count;
    int32_t tensors;        /* that it reads in their own activation mode */
    int64_t resident_bytes; /* theirs */
    int32_t fallbacks;      /* tensors that it reads in their second mode */
};

/* One tensor of a file and what becomes of it; one that two parameters read has two rows. */
struct oz_plan_layer {
    enum oz_component_id component;
    const struct oz_load_entry *entry; /* of the component's load report */
    const struct oz_layer *layer;      /* NULL: no parameter reads it */
    const struct oz_choice *choice;    /* NULL: likewise */
    int32_t kernel;                    /* of kernels; -1: none */
    int32_t fallback; /* that of the second activation mode, in fallback steps; -1: it has none */
    bool beside; /* scales and the like of a weight that the file holds quantized, not its codes */
};

/* Layers that are shown as one: equal but for the number of their block; or of a kind that is never
 * quantized while loading, whatever their names and shapes (oz_plan_folds). */
struct oz_plan_group {
    int32_t first;   /* of layers */
    int32_t tensors; /* how many they are */
    int32_t beside;  /* tensors of scales and the like of these, whose bytes are in the sums */
    int64_t file_bytes, resident_bytes;
};

/* A sum over a component, or over all. */
struct oz_plan_sum {
    const char *name; /* of the scheme, or of the fate */
    int32_t tensors;
    int64_t elements;
    int64_t file_bytes, read_bytes, resident_bytes, mapped_bytes;
};

#define OZ_PLAN_MAX_SUMS 64

struct oz_plan_sums {
    struct oz_plan_sum items[OZ_PLAN_MAX_SUMS];
    int32_t count;
};

/* Peaks in bytes. `load` and `run` are anonymous memory beside the bare process. */
struct oz_plan_memory {
    int64_t process;     /* anonymous memory of this process as it planned; 0: unknown */
    int64_t resident;    /* weights in the model arena, exactly; of offloaded ones what is on the
                            device at a time */
    int64_t pinned;      /* offloaded weights in host memory; in no peak */
    int64_t mapped;      /* weights that are read from the files' maps */
    int64_t staging;     /* of the component that needs most */
    int64_t bookkeeping; /* schedules and reports, which stay as long as the model */
    struct oz_run_bytes run_parts;
    int64_t load, run;
};

struct oz_plan {
    const struct oz_pipeline *pipeline;             /* borrowed, as all strings are from it */
    const struct oz_device *dev;                    /* borrowed */
    const struct oz_request *request;               /* borrowed; NULL: none */
    const struct oz_linear_backend *linear_backend; /* borrowed; NULL: auto */
    const struct oz_load_format *load_format;       /* borrowed; NULL: auto */
    int32_t threads, max_batch;
    struct oz_plan_layer *layers; /* component by component, in the order of the parameters */
    int32_t count;
    struct oz_plan_group *groups; /* in the order of their first layers */
    int32_t group_count;
    struct oz_plan_kernel *kernels;
    int32_t kernel_count, kernel_capacity;
    struct oz_plan_decline *declines;
    int32_t decline_count, decline_capacity;
    struct oz_task *tasks; /* resolved */
    int32_t task_count;
    struct oz_plan_memory memory;
};

struct oz_plan_args {
    struct oz_pipeline *pipeline; /* opened and assigned (oz_pipeline_assign); kept by the plan */
    struct oz_device *dev;        /* may be plan-only; must outlive the pipeline */
    const struct oz_request *request;
    const struct oz_task *tasks; /* pictures of one call, as a caller asks for them; at least one */
    int32_t task_count;
    int32_t max_batch;     /* sequences denoised together */
    int64_t process_bytes; /* anonymous memory of the bare process; 0: this one's now */
};

/*
 * Plans the load and measures the run. Reads no weight. Errors of oz_pipeline_plan, oz_task_resolve
 * and oz_run_measure. After a failure the plan is zero.
 */
OZ_MUST_USE enum oz_status oz_plan_make(struct oz_plan *plan, const struct oz_plan_args *args,
                                        struct oz_error *err);
void oz_plan_deinit(struct oz_plan *plan); /* zeroes are fine */

/* What a limit on memory is held against: the larger peak, mapped weights and the bare process. */
int64_t oz_plan_need(const struct oz_plan_memory *m);

/* Sums over a component's layers (OZ_COMPONENT_COUNT: all), by scheme or by fate. */
void oz_plan_sum_by_scheme(const struct oz_plan *plan, enum oz_component_id component,
                           struct oz_plan_sums *sums);
void oz_plan_sum_by_fate(const struct oz_plan *plan, enum oz_component_id component,
                         struct oz_plan_sums *sums);

/* What layers of this one's kind are called together; NULL: they are shown by name. */
const char *oz_plan_folds(const struct oz_layer *layer);

/* The number of a block within a module's name: its first byte and its length. False: the layer
 * stands outside of blocks. */
bool oz_plan_block_number(const struct oz_layer *layer, size_t *at, size_t *length);

/* A row's module as text before its block's number and behind it. */
struct oz_plan_parts {
    const char *module;
    size_t before;    /* bytes; 0 outside of blocks */
    const char *type; /* "attn.to_q"; outside of blocks the whole name */
};
struct oz_plan_parts oz_plan_parts_of(const struct oz_layer *layer);

#endif
