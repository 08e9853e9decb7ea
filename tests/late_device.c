/* See late_device.h. */
#include "late_device.h"

#include "test.h"

#include "base/alloc.h"
#include "base/error.h"

#define LATE 64
#define BLOCKS 64

struct late {
    void *dst;
    const void *src;
    size_t bytes;
};

struct oz_queue {
    struct late late[LATE];
    int64_t begun, done; /* uploads */
    int64_t fence;       /* mark of the default queue that it waits for */
    bool ordered;        /* events of it order it against the default queue */
};

struct oz_event {
    struct oz_queue *queue; /* NULL: the default one */
    int64_t uploads, mark;
};

struct block {
    void *memory;
    size_t bytes;
};

struct late_figures late_device;

static struct oz_device *cpu;
static struct block taken[BLOCKS], pinned[BLOCKS]; /* memory that is held */
static int64_t mark;                               /* of the default queue */

static void note(struct block *list, void *memory, size_t bytes)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (list[i].memory == NULL) {
            list[i] = (struct block){memory, bytes};
            return;
        }
    }
    fail_msg("more than %d blocks of memory", BLOCKS);
}

static void forget(struct block *list, const void *memory)
{
    for (int i = 0; i < BLOCKS; i++) {
        list[i] = list[i].memory == memory ? (struct block){0} : list[i];
    }
}

static size_t held(const struct block *list)
{
    size_t bytes = 0;
    for (int i = 0; i < BLOCKS; i++) {
        bytes += list[i].bytes;
    }
    return bytes;
}

size_t late_device_taken(void)
{
    return held(taken);
}

size_t late_device_pinned(void)
{
    return held(pinned);
}

static enum oz_status take(struct oz_device *dev, size_t bytes, void **out, struct oz_error *e)
{
    OZ_TRY(cpu->alloc(dev, bytes, out, e));
    memset(*out, 0x7F, bytes); /* NaN in bf16 and f32: what nobody wrote is noticed */
    note(taken, *out, bytes);
    return OZ_OK;
}

static void give(struct oz_device *dev, void *memory)
{
    forget(taken, memory);
    cpu->free(dev, memory);
}

static enum oz_status take_host(struct oz_device *dev, size_t bytes, void **out, struct oz_error *e)
{
    OZ_TRY(cpu->alloc_host(dev, bytes, out, e));
    note(pinned, *out, bytes);
    return OZ_OK;
}

static void give_host(struct oz_device *dev, void *memory)
{
    forget(pinned, memory);
    cpu->free_host(dev, memory);
}

static enum oz_status upload(struct oz_device *dev, struct oz_queue *queue, void *dst,
                             const void *host, size_t bytes, struct oz_error *e)
{
    if (late_device.uploads_left-- == 0) {
        return OZ_FAIL(e, OZ_ERR_DEVICE, "The upload fails.");
    }
    if (queue == NULL) {
        return cpu->upload(dev, NULL, dst, host, bytes, e);
    }
    assert_true(queue->begun - queue->done < LATE);
    if (queue->ordered) {
        assert_int_equal(queue->fence, mark); /* else what it overwrites may still be read */
    }
    queue->late[queue->begun++ % LATE] = (struct late){dst, host, bytes};
    late_device.uploads++;
    return OZ_OK;
}

static void catch_up(struct oz_queue *q, int64_t uploads)
{
    for (; q->done < uploads; q->done++) {
        const struct late *l = &q->late[q->done % LATE];
        memcpy(l->dst, l->src, l->bytes);
    }
}

static enum oz_status queue_create(struct oz_device *dev, struct oz_queue **out, struct oz_error *e)
{
    (void)dev;
    *out = oz_alloc_zero(1, sizeof **out);
    late_device.queues += *out != NULL;
    return *out != NULL ? OZ_OK : OZ_FAIL_NOMEM(e, "a queue");
}

static void queue_destroy(struct oz_device *dev, struct oz_queue *queue)
{
    (void)dev;
    late_device.queues--;
    oz_free(queue);
}

static enum oz_status queue_wait(struct oz_device *dev, struct oz_queue *queue, struct oz_error *e)
{
    (void)dev;
    (void)e;
    if (queue != NULL) {
        catch_up(queue, queue->begun);
    }
    return OZ_OK;
}

static enum oz_status queue_record(struct oz_device *dev, struct oz_queue *queue,
                                   struct oz_event **event, struct oz_error *e)
{
    (void)dev;
    if (*event == NULL) {
        *event = oz_alloc_zero(1, sizeof **event);
        late_device.events += *event != NULL;
    }
    if (*event == NULL) {
        return OZ_FAIL_NOMEM(e, "an event");
    }
    mark += queue == NULL;
    if (queue != NULL) {
        queue->ordered = true;
    }
    **event = (struct oz_event){queue, queue != NULL ? queue->begun : 0, mark};
    return OZ_OK;
}

static enum oz_status queue_await(struct oz_device *dev, struct oz_queue *queue,
                                  struct oz_event *event, struct oz_error *e)
{
    (void)dev;
    (void)e;
    if (queue != NULL) {
        assert_null(event->queue);
        queue->fence = event->mark;
    } else if (event->queue != NULL) {
        catch_up(event->queue, event->uploads);
    }
    return OZ_OK;
}

static void event_destroy(struct oz_device *dev, struct oz_event *event)
{
    (void)dev;
    late_device.events -= event != NULL;
    oz_free(event);
}

void late_device_init(struct oz_device *far, struct oz_device *of)
{
    cpu = of;
    mark = 0;
    late_device = (struct late_figures){.uploads_left = -1};
    *far = *of;
    far->host_memory = false;
    far->name = "far";
    far->alloc = take;
    far->free = give;
    far->alloc_host = take_host;
    far->free_host = give_host;
    far->upload = upload;
    far->queue_create = queue_create;
    far->queue_destroy = queue_destroy;
    far->wait = queue_wait;
    far->record = queue_record;
    far->await = queue_await;
    far->event_destroy = event_destroy;
}
