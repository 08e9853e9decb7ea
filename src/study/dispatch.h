/*
 * study/dispatch.h: did every layer run as it was planned? A watch on the operators (ops/exec.h) counts
 * for each linear and expert layer how often it ran and with what input; afterwards that is held
 * against the assignment and the load report. What vLLM-Omni's check_quantized_dispatch asks of names,
 * this asks of the run.
 */
#ifndef OZ_STUDY_DISPATCH_H
#define OZ_STUDY_DISPATCH_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "dev/ops.h"
#include "ops/exec.h"
#include "pipe/pipeline.h"

#define OZ_DISPATCH_NAMES 12 /* that a list shows at most */

/* A layer that did not do as planned. */
enum oz_dispatch_fault {
    OZ_DISPATCH_NOT_QUANTIZED, /* planned in a scheme, resident as stored */
    OZ_DISPATCH_UNPLANNED,     /* the other way round, or in another scheme's codec */
    OZ_DISPATCH_NEVER_RAN,     /* but did in the reference */
    OZ_DISPATCH_OTHER_INPUT,   /* its activations were not in the scheme's format */
    OZ_DISPATCH_OTHER_KERNEL,  /* not the kernel of the load report */
    OZ_DISPATCH_FAULTS
};

struct oz_dispatch_list {
    int32_t count;
    char *names[OZ_DISPATCH_NAMES]; /* "transformer.transformer_blocks.0.attn.to_q"; owned */
};

/* The result: layers of all components. */
struct oz_dispatch {
    int32_t quantized_in_both, unquantized_in_both; /* as planned and so resident */
    struct oz_dispatch_list faults[OZ_DISPATCH_FAULTS];
    /* Layers that no picture needs, in the reference neither: an encoder of pictures, what the last block
     * would do with text. */
    struct oz_dispatch_list unused;
};

const char *oz_dispatch_fault_name(enum oz_dispatch_fault fault); /* "never_ran" */
bool oz_dispatch_agrees(const struct oz_dispatch *d);
void oz_dispatch_deinit(struct oz_dispatch *d); /* zeroes are fine */

/* One watched layer. */
struct oz_dispatch_layer {
    const struct oz_param *param;
    int32_t component, row;
    int64_t runs;
    bool other_input;
};

/* Watches a loaded pipeline, which must outlive it. Caller's storage. */
struct oz_dispatch_watch {
    const struct oz_pipeline *pipeline;
    struct oz_dispatch_layer *layers; /* in order of param */
    int32_t count;
};

OZ_MUST_USE enum oz_status oz_dispatch_watch_init(struct oz_dispatch_watch *w,
                                                  const struct oz_pipeline *p,
                                                  struct oz_error *err);
void oz_dispatch_watch_deinit(struct oz_dispatch_watch *w); /* zeroes are fine */
/* An oz_exec_watch_fn; ctx is a struct oz_dispatch_watch. */
void oz_dispatch_watch_op(void *ctx, enum oz_op op, const void *args);

/* Layers that never ran, by the hashes of their names, ascending. */
struct oz_dispatch_idle {
    uint64_t *hashes; /* oz_free */
    int32_t count;
};
OZ_MUST_USE enum oz_status oz_dispatch_list_idle(const struct oz_dispatch_watch *w,
                                                 struct oz_dispatch_idle *idle,
                                                 struct oz_error *err);

/* What has been seen so far. Layers that are idle in the reference may be idle here. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_dispatch_judge(const struct oz_dispatch_watch *w,
                                             const struct oz_dispatch_idle *reference,
                                             struct oz_dispatch *out, struct oz_error *err);

#endif
