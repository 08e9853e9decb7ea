/*
 * pipe/offload.h: weights that are on the device only while somebody reads them. All of them lie in host
 * memory, as the device reads them (quantized, in final layout), and their parameters point into one room
 * on the device that the components share:
 *   STAGE  the room holds the weights of one component: each stage (text, denoising, decoding) begins
 *          with an upload of its component's, if another's are there.
 *   BLOCK  likewise, but of a component's blocks it holds two at a time: while one computes, the next is
 *          uploaded beside it, on a queue of its own.
 * The bytes that operators read, and so the pictures, are the same in all modes. Loading goes through the
 * room as well: the device's memory never holds more than it.
 * A device whose memory is the host's has nothing to gain and refuses.
 */
#ifndef OZ_PIPE_OFFLOAD_H
#define OZ_PIPE_OFFLOAD_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/exec.h"

struct oz_pipeline;

#define OZ_OFFLOAD_MAP(X)        \
    X(OZ_OFFLOAD_NONE, "none")   \
    X(OZ_OFFLOAD_STAGE, "stage") \
    X(OZ_OFFLOAD_BLOCK, "block")

enum oz_offload_mode {
#define OZ_OFFLOAD_ENUM(id, name) id,
    OZ_OFFLOAD_MAP(OZ_OFFLOAD_ENUM)
#undef OZ_OFFLOAD_ENUM
        OZ_OFFLOAD_COUNT
};

#define OZ_OFFLOAD_SLOTS 2

/* A component's weights in parts: what lies outside of blocks, then its blocks; by STAGE one part, all. */
struct oz_offload_parts {
    int32_t count;
    size_t *bytes;     /* [count] */
    size_t *at;        /* [count]: of part i in `host` */
    size_t slot_bytes; /* of a block's place in the room; behind part 0 */
    void *host;        /* all parts, pinned; NULL until loaded */
};

/* Of a pipeline. Zeroes are NONE. */
struct oz_offload {
    enum oz_offload_mode mode;
    /* From oz_offload_plan: */
    size_t room_bytes, pinned_bytes; /* on the device, in host memory */
    struct oz_offload_parts *parts;  /* by component */
    /* What is there: */
    void *room;
    int32_t resident;               /* component whose part 0 is in the room; -1: none */
    int32_t held[OZ_OFFLOAD_SLOTS]; /* blocks (from 0) in the slots; -1: none */
    struct oz_queue *copies;
    struct oz_event *ready[OZ_OFFLOAD_SLOTS]; /* a slot's upload is done */
    struct oz_event *passed;                  /* the block before has been computed */
    double upload_s;                          /* waited for uploads of part 0, so far */
};

const char *oz_offload_name(enum oz_offload_mode mode); /* "?" outside the enum */
/* NULL and "": NONE. OZ_ERR_ARG names the modes. */
OZ_MUST_USE enum oz_status oz_offload_parse(enum oz_offload_mode *mode, const char *name,
                                            struct oz_error *err);

/* Are weights offloaded? Then the rest of this file is needed. */
bool oz_offload_is_on(const struct oz_pipeline *p);

/* Part of planning, after the components have been measured: sizes. Reads no weight. OZ_ERR_ARG: the
 * device's memory is the host's; errors of oz_load_component. */
OZ_MUST_USE enum oz_status oz_offload_plan(struct oz_pipeline *p, struct oz_error *err);

/* Loads all components, in turn through the room, which is taken here, to pinned host memory; the
 * transformer's are in the room afterwards. Errors of oz_load_component; OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_offload_load(struct oz_pipeline *p, oz_progress_fn progress,
                                           void *progress_ctx, struct oz_error *err);

/* Before operators that read a component's weights (an enum oz_component_id): uploads them unless they
 * are there; a failure is the exec's. Nothing while measuring, or where nothing is offloaded. */
void oz_offload_need(const struct oz_pipeline *p, int32_t component, struct oz_exec *x);

void oz_offload_deinit(struct oz_offload *o, struct oz_device *dev);

#endif
