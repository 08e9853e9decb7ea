/* See late_device.h. */
#include "late_device.h"

#include "test.h"

#include "base/alloc.h"
#include "base/error.h"
#include "dev/ops.h"
#include "num/float.h"
#include "num/noise.h"

#define LATE 64
#define BLOCKS 64

/* A transfer; or rows to be encoded, or drawn, where these have a source or a place. */
struct late {
    void *dst;
    const void *src;
    size_t bytes;
    struct oz_encode_rows_args encode;
    struct oz_weight weight; /* of encode: a copy */
    struct oz_draw_args draw;
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
    queue->late[queue->begun++ % LATE] = (struct late){.dst = dst, .src = host, .bytes = bytes};
    late_device.uploads++;
    return OZ_OK;
}

static enum oz_status download(struct oz_device *dev, struct oz_queue *queue, void *host,
                               const void *src, size_t bytes, struct oz_error *e)
{
    if (queue == NULL) {
        return cpu->download(dev, NULL, host, src, bytes, e);
    }
    assert_true(queue->begun - queue->done < LATE);
    queue->late[queue->begun++ % LATE] = (struct late){.dst = host, .src = src, .bytes = bytes};
    return OZ_OK;
}

/* ---- encoding and drawing ---- */

static const char *row_encoder(const struct oz_device *dev, const struct oz_codec *codec,
                               enum oz_dtype stored)
{
    (void)dev;
    return stored == OZ_DTYPE_BF16 && codec->encode != NULL ? LATE_ENCODER : NULL;
}

static enum oz_status encode_rows(struct oz_device *dev, struct oz_queue *queue,
                                  const struct oz_encode_rows_args *a, struct oz_error *e)
{
    (void)dev;
    if (queue == NULL || late_device.encodes_left-- == 0) {
        return OZ_FAIL(e, OZ_ERR_DEVICE, "The encoder fails.");
    }
    assert_true(queue->begun - queue->done < LATE);
    struct late *l = &queue->late[queue->begun++ % LATE];
    *l = (struct late){.encode = *a, .weight = *a->w};
    late_device.encoded++;
    return OZ_OK;
}

static enum oz_status draw(struct oz_device *dev, struct oz_queue *queue,
                           const struct oz_draw_args *a, struct oz_error *e)
{
    (void)dev;
    (void)e;
    assert_non_null(queue);
    assert_true(queue->begun - queue->done < LATE);
    queue->late[queue->begun++ % LATE] = (struct late){.draw = *a};
    late_device.drawn++;
    return OZ_OK;
}

static void encode_now(struct late *l)
{
    const struct oz_encode_rows_args *a = &l->encode;
    const struct oz_codec *codec = l->weight.codec;
    const uint16_t *rows = a->src;
    struct oz_encode_state state = a->state;
    int64_t cols = l->weight.cols;
    float *f32 = oz_alloc((size_t)(a->rows * cols) * sizeof *f32);
    assert_non_null(f32);
    for (int64_t i = 0; i < a->rows * cols; i++) {
        f32[i] = oz_bf16_to_f32(rows[i]);
    }
    if (codec->begin != NULL) {
        codec->begin(&l->weight, a->slice, &state);
    }
    if (codec->encode(&l->weight, a->slice, a->row0, f32, a->rows, cols, &state) != OZ_OK) {
        uint64_t at = (uint64_t)(state.bad_row * cols + state.bad_col);
        *a->bad = at < *a->bad ? at : *a->bad;
    }
    oz_free(f32);
}

static void catch_up(struct oz_queue *q, int64_t uploads)
{
    for (; q->done < uploads; q->done++) {
        struct late *l = &q->late[q->done % LATE];
        if (l->encode.src != NULL) {
            encode_now(l);
        } else if (l->draw.dst != NULL) {
            oz_noise_fill(l->draw.table, l->draw.state, l->draw.first, l->draw.count, l->draw.dst);
        } else {
            memcpy(l->dst, l->src, l->bytes);
        }
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
    late_device = (struct late_figures){.uploads_left = -1, .encodes_left = -1};
    *far = *of;
    far->host_memory = false;
    far->name = "far";
    far->alloc = take;
    far->free = give;
    far->alloc_host = take_host;
    far->free_host = give_host;
    far->upload = upload;
    far->download = download;
    far->queue_create = queue_create;
    far->queue_destroy = queue_destroy;
    far->wait = queue_wait;
    far->record = queue_record;
    far->await = queue_await;
    far->event_destroy = event_destroy;
}

void late_device_encodes(struct oz_device *far)
{
    static struct oz_op_table ops;
    ops = *far->ops;
    ops.row_encoder = row_encoder;
    ops.encode_rows = encode_rows;
    ops.draw = draw;
    far->ops = &ops;
}
