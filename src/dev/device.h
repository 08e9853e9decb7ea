/*
 * dev/device.h: CONTRACT. What a device is: memory, queues, transfers, and an operator table. A
 * backend (src/cpu, src/cuda) provides devices; everything above is device-neutral.
 *
 * Threads: memory and transfers may be used from any thread; the operators of one queue from one
 * thread at a time. Work on one queue runs in order; queues are ordered against each other only by
 * events.
 */
#ifndef OZ_DEV_DEVICE_H
#define OZ_DEV_DEVICE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oz_bench_request;
struct oz_kernel_report;
struct oz_op_table;
struct oz_pool;
struct oz_queue; /* the backend's: a stream of work. NULL is the device's default queue */
struct oz_event; /* the backend's: a point in a queue */

/* Alignment of device memory and of every push to an arena. */
#define OZ_DEVICE_ALIGN 256

/* Flags of oz_device_open. */
enum oz_device_flag {
    /* No hardware is touched: planning and scratch_bytes work, the rest fails with OZ_ERR_DEVICE. */
    OZ_DEVICE_PLAN_ONLY = 1,
    /* Plain weights are multiplied in f32, whatever they are stored in. Without it bf16 weights are
     * multiplied with bf16 activations where the device has kernels for that. */
    OZ_DEVICE_F32 = 2,
    /* Whose kernels multiply in linear layers; none of these: the best of all. A device that has none
     * of the kind refuses to open (OZ_ERR_ARG). */
    OZ_DEVICE_LINEAR_REF = 4,     /* the scalar reference */
    OZ_DEVICE_LINEAR_CPU = 8,     /* the processor's kernels */
    OZ_DEVICE_LINEAR_VENDOR = 16, /* the vendor's library */
    OZ_DEVICE_LINEAR_OWN = 32,    /* our own kernels of an accelerator */
};

/*
 * A device. Created by a backend's open(), immutable afterwards except for `impl`. `host_memory`
 * says that device pointers may be read and written by the host (CPU): then views of a file map
 * can serve as weights.
 */
struct oz_device {
    const char *name; /* "cpu", "cuda:0" */
    const char *tier; /* "scalar", "avx512", "sm_90a" */
    bool host_memory, plan_only;
    bool f32_math;  /* OZ_DEVICE_F32 */
    bool half_rows; /* rows that operators round to bf16 anyway are best kept so between them */
    /* A gated residual is best added by the norm behind it (norm_mod's y), not by the product before. */
    bool adds_late;
    /* qk_norm_rope takes an out of bf16, and attention takes joined rows of it as they lie. */
    bool rope_out;
    /* There is (or, but for plan_only, would be) a second queue for small work beside the first: `side`,
     * the device's own; NULL: none. */
    bool has_side;
    struct oz_queue *side;
    void *impl;           /* the backend's own */
    struct oz_pool *pool; /* host threads for the backend's use; borrowed */
    const struct oz_op_table *ops;

    /* Memory aligned to OZ_DEVICE_ALIGN, uninitialised; *out is NULL after a failure (OZ_ERR_NOMEM
     * with the bytes asked and free, or OZ_ERR_DEVICE). bytes > 0. alloc_host: host memory that
     * transfers fastest (pinned). Freeing NULL is fine. */
    OZ_MUST_USE enum oz_status (*alloc)(struct oz_device *dev, size_t bytes, void **out,
                                        struct oz_error *err);
    void (*free)(struct oz_device *dev, void *memory);
    OZ_MUST_USE enum oz_status (*alloc_host)(struct oz_device *dev, size_t bytes, void **out,
                                             struct oz_error *err);
    void (*free_host)(struct oz_device *dev, void *memory);

    /* Bytes free and in all, as the device tells. */
    OZ_MUST_USE enum oz_status (*memory)(struct oz_device *dev, int64_t *free_bytes,
                                         int64_t *total_bytes, struct oz_error *err);

    /* Transfers in the order of the queue. They may return before they are done: the host side
     * must stay as it is until the queue has been waited for. Ranges must not overlap. */
    OZ_MUST_USE enum oz_status (*upload)(struct oz_device *dev, struct oz_queue *queue, void *dst,
                                         const void *host, size_t bytes, struct oz_error *err);
    OZ_MUST_USE enum oz_status (*download)(struct oz_device *dev, struct oz_queue *queue,
                                           void *host, const void *src, size_t bytes,
                                           struct oz_error *err);
    OZ_MUST_USE enum oz_status (*copy)(struct oz_device *dev, struct oz_queue *queue, void *dst,
                                       const void *src, size_t bytes, struct oz_error *err);

    OZ_MUST_USE enum oz_status (*queue_create)(struct oz_device *dev, struct oz_queue **out,
                                               struct oz_error *err);
    void (*queue_destroy)(struct oz_device *dev, struct oz_queue *queue);
    /* Waits for all that the queue was given; OZ_ERR_DEVICE when something of it failed (sticky).
     */
    OZ_MUST_USE enum oz_status (*wait)(struct oz_device *dev, struct oz_queue *queue,
                                       struct oz_error *err);
    /* Marks the queue's present end; later work of another queue can be made to wait for it. *event is
     * NULL and becomes a new event, or is one, which then marks this end in place of the one before
     * (those that wait already wait for that) and is made of nothing new. The caller's to destroy, after
     * failures too. */
    OZ_MUST_USE enum oz_status (*record)(struct oz_device *dev, struct oz_queue *queue,
                                         struct oz_event **event, struct oz_error *err);
    OZ_MUST_USE enum oz_status (*await)(struct oz_device *dev, struct oz_queue *queue,
                                        struct oz_event *event, struct oz_error *err);
    void (*event_destroy)(struct oz_device *dev, struct oz_event *event);

    /* Tells its tiers and kernels; measures its kernels (dev/report.h). NULL: it has no lists.
     * bench: OZ_ERR_DEVICE with plan_only; OZ_ERR_CANCELLED; OZ_ERR_NOMEM; what sample returned. */
    void (*describe)(struct oz_device *dev, const struct oz_kernel_report *report);
    OZ_MUST_USE enum oz_status (*bench)(struct oz_device *dev,
                                        const struct oz_bench_request *request,
                                        struct oz_error *err);

    void (*close)(struct oz_device *dev);
};

/* Version of this contract between the engine and a backend that is a plug-in; raised with every
 * change of struct oz_device, struct oz_op_table or an operator's arguments. */
#define OZ_BACKEND_ABI 9U

/* A backend as the registry lists it. */
struct oz_backend {
    uint32_t abi;     /* OZ_BACKEND_ABI that it was built with; checked before anything else */
    const char *name; /* "cpu" */
    /* Is there hardware that open() would take, index 0? NULL: always. OZ_ERR_DEVICE says why not. */
    OZ_MUST_USE enum oz_status (*present)(struct oz_error *err);
    /* Opens device number `index`. The pool is borrowed for the device's life. */
    OZ_MUST_USE enum oz_status (*open)(struct oz_device **out, int32_t index, uint32_t flags,
                                       struct oz_pool *pool, struct oz_error *err);
};

/*
 * Opens a device by name: "cpu", "cuda", "cuda:1", or "auto", the first of cuda and cpu that there is
 * (the log says which, and why not the other). OZ_ERR_ARG lists the names that exist; OZ_ERR_DEVICE:
 * no such hardware, driver or plug-in. The device is the caller's to close.
 */
OZ_MUST_USE enum oz_status oz_device_open(struct oz_device **out, const char *name, uint32_t flags,
                                          struct oz_pool *pool, struct oz_error *err);
void oz_device_close(struct oz_device **dev); /* NULL is fine; sets *dev to NULL */

#endif
