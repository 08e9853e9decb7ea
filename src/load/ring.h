/*
 * load/ring.h: the memory that a load stages in, and uploads from it that go on while the next chunk is
 * made. Two are on their way at most, each on a queue of its own; a part of the ring that one of them
 * reads is claimed before it is written again. A ring may be kept from load to load: pinned memory is
 * dear to take.
 */
#ifndef OZ_LOAD_RING_H
#define OZ_LOAD_RING_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dev/device.h"

#define OZ_LOAD_UPLOADS 2

/* Zeroes are an empty one. */
struct oz_load_ring {
    uint8_t *memory;
    size_t bytes;
    bool pinned; /* from the device's alloc_host */
    struct {
        struct oz_queue *queue;
        bool busy;
        size_t begin, end; /* what it reads, while busy */
    } uploads[OZ_LOAD_UPLOADS];
    int32_t next; /* upload */
};

/* Do uploads to a device go on beside other work? Else they are waited for: one that has no queues, or
 * no need of uploads. */
bool oz_load_ring_overlaps(const struct oz_device *dev);

/* At least so many bytes, uninitialised, aligned to OZ_DEVICE_ALIGN; queues where uploads overlap. Nothing
 * may be on its way. OZ_ERR_NOMEM; OZ_ERR_DEVICE. */
OZ_MUST_USE enum oz_status oz_load_ring_reserve(struct oz_load_ring *ring, struct oz_device *dev,
                                                size_t bytes, struct oz_error *err);

/* Waits for uploads that read of [begin, end). */
OZ_MUST_USE enum oz_status oz_load_ring_claim(struct oz_load_ring *ring, struct oz_device *dev,
                                              size_t begin, size_t end, struct oz_error *err);

/* Begins an upload of something in [begin, end): for the queue that transfers then take (NULL: the default
 * one), which has been waited for. oz_load_ring_sent when all were given to it. */
OZ_MUST_USE enum oz_status oz_load_ring_send(struct oz_load_ring *ring, struct oz_device *dev,
                                             size_t begin, size_t end, struct oz_queue **queue,
                                             struct oz_error *err);
OZ_MUST_USE enum oz_status oz_load_ring_sent(struct oz_load_ring *ring, struct oz_device *dev,
                                             struct oz_error *err);

/* Waits for all uploads. */
OZ_MUST_USE enum oz_status oz_load_ring_drain(struct oz_load_ring *ring, struct oz_device *dev,
                                              struct oz_error *err);

void oz_load_ring_deinit(struct oz_load_ring *ring, struct oz_device *dev); /* waits first */

#endif
