#include "load/ring.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

bool oz_load_ring_overlaps(const struct oz_device *dev)
{
    return !dev->host_memory && dev->queue_create != NULL;
}

static void free_memory(struct oz_load_ring *r, struct oz_device *dev)
{
    if (r->pinned) {
        dev->free_host(dev, r->memory);
    } else {
        oz_free(r->memory);
    }
    r->memory = NULL;
    r->marks = NULL;
    r->bytes = 0;
}

static void free_rooms(struct oz_load_ring *r, struct oz_device *dev)
{
    if (r->rooms != NULL) {
        dev->free(dev, r->rooms);
    }
    r->rooms = NULL;
    r->room_bytes = 0;
}

static size_t round_up(size_t bytes)
{
    return (bytes + OZ_DEVICE_ALIGN - 1) / OZ_DEVICE_ALIGN * OZ_DEVICE_ALIGN;
}

int64_t oz_load_ring_rooms(int64_t room_bytes)
{
    return OZ_LOAD_UPLOADS * (int64_t)round_up((size_t)room_bytes);
}

static enum oz_status take_rooms(struct oz_load_ring *r, struct oz_device *dev, size_t bytes,
                                 struct oz_error *err)
{
    void *rooms;
    free_rooms(r, dev);
    OZ_TRY(dev->alloc(dev, (size_t)oz_load_ring_rooms((int64_t)bytes), &rooms, err));
    r->rooms = rooms;
    r->room_bytes = round_up(bytes);
    return OZ_OK;
}

uint8_t *oz_load_ring_room(const struct oz_load_ring *r)
{
    return r->rooms + (size_t)r->next * r->room_bytes;
}

static enum oz_status take_memory(struct oz_load_ring *r, struct oz_device *dev, size_t bytes,
                                  struct oz_error *err)
{
    free_memory(r, dev);
    bytes = round_up(bytes);
    size_t all = bytes + OZ_DEVICE_ALIGN; /* the marks */
    r->pinned = !dev->host_memory && dev->alloc_host != NULL;
    if (r->pinned) {
        void *memory;
        OZ_TRY(dev->alloc_host(dev, all, &memory, err));
        r->memory = memory;
    } else {
        r->memory = oz_alloc_large(all, OZ_DEVICE_ALIGN);
    }
    if (r->memory == NULL) {
        return OZ_FAIL(err, OZ_ERR_NOMEM, "Out of memory for the loader's ring (%zu bytes).",
                       bytes);
    }
    r->bytes = bytes;
    r->marks = (uint64_t *)(void *)(r->memory + bytes);
    return OZ_OK;
}

enum oz_status oz_load_ring_reserve(struct oz_load_ring *r, struct oz_device *dev, size_t bytes,
                                    size_t room_bytes, struct oz_error *err)
{
    if (bytes > r->bytes || (room_bytes > 0 && r->memory == NULL)) {
        OZ_TRY(take_memory(r, dev, bytes, err));
    }
    if (room_bytes > r->room_bytes) {
        OZ_TRY(take_rooms(r, dev, room_bytes, err));
    }
    for (int i = 0; i < OZ_LOAD_UPLOADS && oz_load_ring_overlaps(dev); i++) {
        if (r->uploads[i].queue == NULL) {
            OZ_TRY(dev->queue_create(dev, &r->uploads[i].queue, err));
        }
    }
    return OZ_OK;
}

static enum oz_status finish(struct oz_load_ring *r, struct oz_device *dev, int32_t i,
                             struct oz_error *err)
{
    if (!r->uploads[i].busy) {
        return OZ_OK;
    }
    OZ_TRY(dev->wait(dev, r->uploads[i].queue, err));
    r->uploads[i].busy = false;
    return r->sent != NULL ? r->sent(r->sent_ctx, i, err) : OZ_OK;
}

enum oz_status oz_load_ring_claim(struct oz_load_ring *r, struct oz_device *dev, size_t begin,
                                  size_t end, struct oz_error *err)
{
    for (int32_t i = 0; i < OZ_LOAD_UPLOADS; i++) {
        if (r->uploads[i].begin < end && begin < r->uploads[i].end) {
            OZ_TRY(finish(r, dev, i, err));
        }
    }
    return OZ_OK;
}

enum oz_status oz_load_ring_send(struct oz_load_ring *r, struct oz_device *dev, size_t begin,
                                 size_t end, struct oz_queue **queue, struct oz_error *err)
{
    int32_t i = r->next;
    OZ_TRY(finish(r, dev, i, err));
    r->uploads[i].busy = true; /* from the first transfer on, whatever becomes of the others */
    r->uploads[i].begin = begin;
    r->uploads[i].end = end;
    *queue = r->uploads[i].queue;
    return OZ_OK;
}

enum oz_status oz_load_ring_sent(struct oz_load_ring *r, struct oz_device *dev,
                                 struct oz_error *err)
{
    int32_t i = r->next;
    r->next = (i + 1) % OZ_LOAD_UPLOADS;
    return r->uploads[i].queue != NULL ? OZ_OK : finish(r, dev, i, err);
}

enum oz_status oz_load_ring_drain(struct oz_load_ring *r, struct oz_device *dev,
                                  struct oz_error *err)
{
    for (int32_t i = 0; i < OZ_LOAD_UPLOADS; i++) {
        OZ_TRY(finish(r, dev, i, err));
    }
    return OZ_OK;
}

void oz_load_ring_deinit(struct oz_load_ring *r, struct oz_device *dev)
{
    struct oz_error err;
    for (int32_t i = 0; i < OZ_LOAD_UPLOADS; i++) {
        if (finish(r, dev, i, &err) != OZ_OK) {
            oz_log(OZ_LOG_WARN, "load", "%s", err.message); /* the load has failed already */
        }
        if (r->uploads[i].queue != NULL) {
            dev->queue_destroy(dev, r->uploads[i].queue);
        }
    }
    free_memory(r, dev);
    free_rooms(r, dev);
    *r = (struct oz_load_ring){0};
}
