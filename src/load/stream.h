/* load/stream.h: executes a read schedule. Internal to src/load. */
#ifndef OZ_LOAD_STREAM_H
#define OZ_LOAD_STREAM_H

#include "load/item.h"
#include "load/schedule.h"
#include "num/noise.h"

/* Parts of an upload's room: a mark, the numbers that are drawn from, rows as they are staged. */
#define OZ_ROOM_TABLE OZ_DEVICE_ALIGN
#define OZ_ROOM_RAW (OZ_ROOM_TABLE + OZ_NOISE_NUMBERS * (int64_t)sizeof(uint16_t))

/* Are dummy weights drawn on the device? */
bool oz_load_device_draws(const struct oz_load_args *args);

/* Where bytes that are done are reported; returns an error that stops the load. */
typedef enum oz_status (*oz_load_report_fn)(void *ctx, int64_t bytes, struct oz_error *err);

/*
 * Reads, encodes, packs. On failure nothing of its own is left: memory is freed, threads are done.
 * OZ_ERR_IO, OZ_ERR_NOMEM, OZ_ERR_DEVICE; OZ_ERR_FORMAT: NaN or infinity, by tensor and place; what
 * `report` returned. Which error it is does not depend on the number of threads: the first band's.
 */
OZ_MUST_USE enum oz_status oz_load_stream(const struct oz_load_args *args,
                                          struct oz_load_items *items,
                                          const struct oz_load_schedule *schedule,
                                          oz_load_report_fn report, void *report_ctx,
                                          struct oz_error *err);

#endif
