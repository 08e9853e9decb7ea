/*
 * A device that stands for one with memory of its own: the CPU's kernels, and transfers that are late.
 * What the default queue is given is done at once; uploads of another queue are done when somebody waits
 * for them or for an event behind them, and not before. So what is read before its upload was awaited is
 * not there yet, and a source that is overwritten too early arrives wrong. Of a queue that has
 * events each upload must wait for the latest mark of the default queue: asserted. One such device at a
 * time.
 */
#ifndef OZ_TESTS_LATE_DEVICE_H
#define OZ_TESTS_LATE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dev/device.h"

struct late_figures {
    int32_t queues, events; /* that there are */
    int32_t uploads;        /* that were late, in all */
    int32_t uploads_left;   /* before one fails (OZ_ERR_DEVICE); negative: none does */
    int32_t encodes_left;   /* likewise */
    int32_t encoded, drawn; /* chunks */
};
extern struct late_figures late_device;

/* A copy of the CPU device `of`, which must outlive it; figures begin anew. */
void late_device_init(struct oz_device *far, struct oz_device *of);

/* Has it encode rows of bf16 itself, late too, and draw dummies. */
#define LATE_ENCODER "late_encoder"
void late_device_encodes(struct oz_device *far);

/* Bytes that are held of device and of pinned memory. */
size_t late_device_taken(void);
size_t late_device_pinned(void);

#endif
