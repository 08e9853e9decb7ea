/*
 * dev/device.h: CONTRACT. What a device is: memory, transfers, and an operator table. A backend
 * (src/cpu, src/cuda) provides devices; everything above is device-neutral.
 */
#ifndef OZ_DEV_DEVICE_H
#define OZ_DEV_DEVICE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oz_op_table;
struct oz_pool;

/*
 * A device. Created by a backend's open(), immutable afterwards except for `impl`; one forward runs
 * on it at a time. `host_memory` says that device pointers may be read and written by the host
 * (CPU): then views of a file map can serve as weights.
 */
struct oz_device {
    const char *name;     /* "cpu", "cuda:0" */
    const char *tier;     /* "scalar", "avx512", "sm_90a" */
    bool host_memory;
    void *impl;           /* the backend's own */
    struct oz_pool *pool; /* host threads for the backend's use; borrowed */
    const struct oz_op_table *ops;

    /* Memory of at least 64-byte alignment, uninitialised; *out is NULL after a failure
     * (OZ_ERR_NOMEM with the bytes asked and free, or OZ_ERR_DEVICE). bytes > 0. */
    enum oz_status (*alloc)(struct oz_device *dev, size_t bytes, void **out, struct oz_error *err);
    void (*free)(struct oz_device *dev, void *memory); /* NULL is fine */

    /* Transfers, ordered with the operators; upload and download return when the host side may be
     * reused. Ranges must not overlap. */
    enum oz_status (*upload)(struct oz_device *dev, void *dst, const void *host, size_t bytes);
    enum oz_status (*download)(struct oz_device *dev, void *host, const void *src, size_t bytes);
    enum oz_status (*copy)(struct oz_device *dev, void *dst, const void *src, size_t bytes);

    /* Waits for all that was started; OZ_ERR_DEVICE when something of it failed (sticky). */
    enum oz_status (*sync)(struct oz_device *dev);

    void (*close)(struct oz_device *dev);
};

/* A backend as the registry lists it. */
struct oz_backend {
    const char *name; /* "cpu" */
    /* Opens device number `index`. The pool is borrowed for the device's life. */
    enum oz_status (*open)(struct oz_device **out, int32_t index, struct oz_pool *pool,
                           struct oz_error *err);
};

/*
 * Opens a device by name ("cpu"; later "cuda", "cuda:1", "auto"). OZ_ERR_ARG lists the names that
 * exist. The device is the caller's to close.
 */
OZ_MUST_USE enum oz_status oz_device_open(struct oz_device **out, const char *name,
                                          struct oz_pool *pool, struct oz_error *err);
void oz_device_close(struct oz_device **dev); /* NULL is fine; sets *dev to NULL */

#endif
