/*
 * The CPU device: host memory, transfers that are memcpy, queues that are done before they begin.
 * All work runs on the calling thread and the pool; operators of devices that share a pool must
 * come from one thread at a time.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cpu/kern/ref/ref.h"
#include "cpu/plan.h"
#include "dev/backends.h"

/* There is nothing to order: one of each serves everybody. */
struct oz_queue {
    char unused;
};
struct oz_event {
    char unused;
};
static struct oz_queue only_queue;
static struct oz_event only_event;

static enum oz_status need_hardware(const struct oz_device *dev, struct oz_error *err)
{
    if (dev->plan_only) {
        return OZ_FAIL(err, OZ_ERR_DEVICE,
                       "Device %s was opened for planning only; it has no memory and runs nothing.",
                       dev->name);
    }
    return OZ_OK;
}

/* ---- memory ---- */

/* The value in bytes of a line "name:  123 kB" of /proc/meminfo; -1 without. */
static int64_t meminfo_bytes(const char *line, const char *name)
{
    size_t length = strlen(name);
    char *end = NULL;
    if (strncmp(line, name, length) != 0 || line[length] != ':') {
        return -1;
    }
    long long kilobytes = strtoll(line + length + 1, &end, 10);
    return end != line + length + 1 && kilobytes >= 0 ? kilobytes * 1024 : -1;
}

static void read_meminfo(int64_t *free_bytes, int64_t *total_bytes)
{
    char line[256];
    FILE *f = fopen("/proc/meminfo", "re");
    *free_bytes = *total_bytes = -1;
    if (f == NULL) {
        return;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        int64_t value = meminfo_bytes(line, "MemTotal");
        *total_bytes = value >= 0 ? value : *total_bytes;
        value = meminfo_bytes(line, "MemAvailable");
        *free_bytes = value >= 0 ? value : *free_bytes;
    }
    (void)fclose(f);
}

static enum oz_status device_memory(struct oz_device *dev, int64_t *free_bytes,
                                    int64_t *total_bytes, struct oz_error *err)
{
    OZ_TRY(need_hardware(dev, err));
    read_meminfo(free_bytes, total_bytes);
    int64_t page = sysconf(_SC_PAGESIZE);
    if (*total_bytes < 0) {
        *total_bytes = sysconf(_SC_PHYS_PAGES) * page;
    }
    if (*free_bytes < 0) {
        *free_bytes = sysconf(_SC_AVPHYS_PAGES) * page;
    }
    return OZ_OK;
}

static enum oz_status device_alloc(struct oz_device *dev, size_t bytes, void **out,
                                   struct oz_error *err)
{
    *out = NULL;
    OZ_TRY(need_hardware(dev, err));
    if (bytes <= SIZE_MAX - OZ_DEVICE_ALIGN) {
        *out = oz_alloc_aligned((bytes + OZ_DEVICE_ALIGN - 1) / OZ_DEVICE_ALIGN * OZ_DEVICE_ALIGN,
                                OZ_DEVICE_ALIGN);
    }
    if (*out == NULL) {
        int64_t free_bytes;
        int64_t total_bytes;
        read_meminfo(&free_bytes, &total_bytes);
        return OZ_FAIL(err, OZ_ERR_NOMEM,
                       "Out of memory on %s: %zu bytes asked, %lld available of %lld.", dev->name,
                       bytes, (long long)free_bytes, (long long)total_bytes);
    }
    return OZ_OK;
}

static void device_free(struct oz_device *dev, void *memory)
{
    (void)dev;
    oz_free(memory);
}

/* ---- transfers ---- */

static enum oz_status copy_bytes(struct oz_device *dev, struct oz_queue *queue, void *dst,
                                 const void *src, size_t bytes, struct oz_error *err)
{
    (void)queue;
    OZ_TRY(need_hardware(dev, err));
    if (bytes > 0) {
        memcpy(dst, src, bytes);
    }
    return OZ_OK;
}

/* ---- queues ---- */

static enum oz_status queue_create(struct oz_device *dev, struct oz_queue **out,
                                   struct oz_error *err)
{
    *out = NULL;
    OZ_TRY(need_hardware(dev, err));
    *out = &only_queue;
    return OZ_OK;
}

static void queue_destroy(struct oz_device *dev, struct oz_queue *queue)
{
    (void)dev;
    (void)queue;
}

static enum oz_status queue_wait(struct oz_device *dev, struct oz_queue *queue,
                                 struct oz_error *err)
{
    (void)queue;
    return need_hardware(dev, err);
}

static enum oz_status queue_record(struct oz_device *dev, struct oz_queue *queue,
                                   struct oz_event **event, struct oz_error *err)
{
    (void)queue;
    *event = NULL;
    OZ_TRY(need_hardware(dev, err));
    *event = &only_event;
    return OZ_OK;
}

static enum oz_status queue_await(struct oz_device *dev, struct oz_queue *queue,
                                  struct oz_event *event, struct oz_error *err)
{
    (void)queue;
    (void)event;
    return need_hardware(dev, err);
}

static void event_destroy(struct oz_device *dev, struct oz_event *event)
{
    (void)dev;
    (void)event;
}

/* ---- operators ---- */

static size_t (*const scratch_of[OZ_OP_COUNT])(const struct oz_device *dev, const void *args) = {
#define OZ_REF(id, member, type, run, scratch) [id] = scratch,
#include "cpu/kern/ref/ref.inc"
#undef OZ_REF
};

static size_t scratch_bytes(const struct oz_device *dev, enum oz_op op, const void *args)
{
    return op < OZ_OP_COUNT ? scratch_of[op](dev, args) : 0;
}

static const struct oz_op_table operators = {
    .scratch_bytes = scratch_bytes,
    .plan_param = oz_cpu_plan_param,
    .pack_band = oz_cpu_pack_band,
#define OZ_REF(id, member, type, run, scratch) .member = run,
#include "cpu/kern/ref/ref.inc"
#undef OZ_REF
};

/* ---- the device ---- */

static void device_close(struct oz_device *dev)
{
    oz_free(dev);
}

static enum oz_status device_open(struct oz_device **out, int32_t index, uint32_t flags,
                                  struct oz_pool *pool, struct oz_error *err)
{
    *out = NULL;
    if (index != 0) {
        return OZ_FAIL(err, OZ_ERR_DEVICE, "Device cpu:%d does not exist; there is one, \"cpu\".",
                       (int)index);
    }
    struct oz_device *dev = oz_alloc_zero(1, sizeof *dev);
    if (dev == NULL) {
        return OZ_FAIL_NOMEM(err, "the CPU device");
    }
    *dev = (struct oz_device){
        .name = "cpu",
        .tier = "scalar",
        .host_memory = true,
        .plan_only = (flags & OZ_DEVICE_PLAN_ONLY) != 0,
        .pool = pool,
        .ops = &operators,
        .alloc = device_alloc,
        .free = device_free,
        .alloc_host = device_alloc,
        .free_host = device_free,
        .memory = device_memory,
        .upload = copy_bytes,
        .download = copy_bytes,
        .copy = copy_bytes,
        .queue_create = queue_create,
        .queue_destroy = queue_destroy,
        .wait = queue_wait,
        .record = queue_record,
        .await = queue_await,
        .event_destroy = event_destroy,
        .close = device_close,
    };
    *out = dev;
    return OZ_OK;
}

const struct oz_backend oz_cpu_backend = {
    .abi = OZ_BACKEND_ABI,
    .name = "cpu",
    .open = device_open,
};
