/*
 * load/sink.h: a device whose memory is the files of a checkpoint that is being written. A load onto it
 * reads, encodes and checks as any load does, chunk by chunk; what it uploads are the planes of quantized
 * weights, which go to their tensors. Nothing can run on it.
 */
#ifndef OZ_LOAD_SINK_H
#define OZ_LOAD_SINK_H

#include <ounce/status.h>
#include <stdint.h>

#include "ckpt/writer.h"
#include "dev/device.h"
#include "dev/ops.h"
#include "quant/dialect/dialect.h"

/* Where a weight's planes go. */
struct oz_sink_weight {
    struct oz_param *param;        /* that the load fills; planes lie in the sink's addresses */
    int32_t index[OZ_PLANE_COUNT]; /* of the writer's tensors; -1: the weight has no such plane */
    enum oz_plane_move moves[OZ_PLANE_COUNT];
    int64_t number_at; /* of the plane that is moved by OZ_MOVE_NUMBER, in its tensor */
};

struct oz_sink {
    struct oz_device dev; /* to load onto */
    struct oz_op_table ops;
    struct oz_device *host; /* borrowed: its pool and its encoders */
    struct oz_ckpt_writer *writer;
    const struct oz_sink_weight *weights; /* [count], in the order in which the load places them */
    int32_t count;
};

/* Caller's storage; nothing to deinit. All is borrowed. */
void oz_sink_init(struct oz_sink *sink, struct oz_device *host, struct oz_ckpt_writer *writer,
                  const struct oz_sink_weight *weights, int32_t count);

/* Base address of the arena to load into: not to be followed. */
void *oz_sink_base(void);

#endif
