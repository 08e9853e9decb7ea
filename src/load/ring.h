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

/* Is told that an upload is over, before what it read is written again; an error stops the load. */
typedef enum oz_status (*oz_load_sent_fn)(void *ctx, int32_t upload, struct oz_error *err);

/* Zeroes are an empty one. */
struct oz_load_ring {
    uint8_t *memory;
    size_t bytes;
    bool pinned; /* from the device's alloc_host */
    /* Device memory of each upload, for what is made of it there; a number of each that travels back. */
    uint8_t *rooms;
    size_t room_bytes;
    uint64_t *marks; /* [OZ_LOAD_UPLOADS], behind `bytes` */
    struct {
        struct oz_queue *queue;
        bool busy;
        size_t begin, end; /* what it reads, while busy */
    } uploads[OZ_LOAD_UPLOADS];
    int32_t next;         /* upload */
    oz_load_sent_fn sent; /* NULL: nobody is told */
    void *sent_ctx;
};

/* Do uploads to a device go on beside other work? Else they are waited for: one that has no queues, or
 * no need of uploads. */
bool oz_load_ring_overlaps(const struct oz_device *dev);

/* At least so many bytes, uninitialised, aligned to OZ_DEVICE_ALIGN, and of device memory for each upload;
 * queues where uploads overlap. Nothing may be on its way. OZ_ERR_NOMEM; OZ_ERR_DEVICE. */
OZ_MUST_USE enum oz_status oz_load_ring_reserve(struct oz_load_ring *ring, struct oz_device *dev,
                                                size_t bytes, size_t room_bytes,
                                                struct oz_error *err);

/* Device memory that reserve takes for rooms of so many bytes. */
int64_t oz_load_ring_rooms(int64_t room_bytes);

/* Waits for uploads that read of [begin, end). */
OZ_MUST_USE enum oz_status oz_load_ring_claim(struct oz_load_ring *ring, struct oz_device *dev,
                                              size_t begin, size_t end, struct oz_error *err);

/* The room of the upload that has been begun. */
uint8_t *oz_load_ring_room(const struct oz_load_ring *ring);

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
