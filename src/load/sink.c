#include "load/sink.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "num/group.h"

void *oz_sink_base(void)
{
    return (void *)(uintptr_t)(UINT64_C(1) << 20); /* aligned, and in no use as an address */
}

static uintptr_t address(const struct oz_sink_weight *w, enum oz_plane plane)
{
    return (uintptr_t)w->param->weight.planes[plane].data;
}

/* The last weight that begins at or before an address; codes are its first plane. */
static const struct oz_sink_weight *find_weight(const struct oz_sink *sink, uintptr_t at)
{
    int32_t low = 0;
    int32_t high = sink->count;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (address(&sink->weights[middle], OZ_PLANE_CODES) <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &sink->weights[low];
}

static enum oz_status write_reciprocal(const struct oz_sink *sink, const struct oz_sink_weight *w,
                                       int32_t index, int64_t offset, const void *host,
                                       size_t bytes, struct oz_error *err)
{
    for (size_t i = 0; i < bytes; i += 4) {
        float x;
        memcpy(&x, (const uint8_t *)host + i, sizeof x);
        float factor = oz_nvfp4_global_of(x);
        if (!(1.0F / factor == x)) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s: its second scale %.9g is the reciprocal of no f32 number, as the "
                           "format stores it: the codes do not carry over exactly. Convert the "
                           "model to bf16 (--to bf16).",
                           w->param->name, (double)x);
        }
        x = factor;
        OZ_TRY(oz_ckpt_writer_put_at(sink->writer, index, offset + (int64_t)i, &x, sizeof x, err));
    }
    return OZ_OK;
}

static enum oz_status write_nibbles(const struct oz_sink *sink, int32_t index, int64_t offset,
                                    const void *host, size_t bytes, struct oz_error *err)
{
    const uint8_t *from = host;
    uint8_t piece[4096];
    for (size_t at = 0; at < bytes; at += sizeof piece) {
        size_t n = bytes - at < sizeof piece ? bytes - at : sizeof piece;
        for (size_t i = 0; i < n; i++) {
            piece[i] = (uint8_t)(from[at + i] << 4 | from[at + i] >> 4);
        }
        OZ_TRY(oz_ckpt_writer_put_at(sink->writer, index, offset + (int64_t)at, piece, n, err));
    }
    return OZ_OK;
}

/* Into the text that is there already. */
static enum oz_status write_number(const struct oz_sink *sink, const struct oz_sink_weight *w,
                                   int32_t index, const void *host, struct oz_error *err)
{
    char text[OZ_DIALECT_NUMBER_BYTES + 8];
    float x;
    memcpy(&x, host, sizeof x);
    (void)snprintf(text, sizeof text, OZ_DIALECT_NUMBER, (double)x);
    return oz_ckpt_writer_put_at(sink->writer, index, w->number_at, text, OZ_DIALECT_NUMBER_BYTES,
                                 err);
}

static enum oz_status write_moved(const struct oz_sink *sink, const struct oz_sink_weight *w,
                                  int plane, int64_t offset, const void *host, size_t bytes,
                                  struct oz_error *err)
{
    int32_t index = w->index[plane];
    switch (w->moves[plane]) {
    case OZ_MOVE_RECIPROCAL: return write_reciprocal(sink, w, index, offset, host, bytes, err);
    case OZ_MOVE_NIBBLES: return write_nibbles(sink, index, offset, host, bytes, err);
    case OZ_MOVE_NUMBER: return write_number(sink, w, index, host, err);
    case OZ_MOVE_BYTES: break;
    case OZ_MOVE_WIDEN: /* the others are only read */
    case OZ_MOVE_REPEAT:
    case OZ_MOVE_TIMES:
    case OZ_MOVE_WORDS:
    case OZ_MOVE_SIGNED:
    case OZ_MOVE_VALUES:
    case OZ_MOVE_WORD_COLUMNS:
    case OZ_MOVE_PLANAR_COLUMNS:
    case OZ_MOVE_PLANAR_ZEROS:
    case OZ_MOVE_COLUMNS:
    case OZ_MOVE_GPTQ_ZEROS:
    case OZ_MOVE_GPTQ_ZEROS_LESS_ONE:
    case OZ_MOVE_AWQ_CODES:
    case OZ_MOVE_AWQ_ZEROS: break;
    }
    return oz_ckpt_writer_put_at(sink->writer, index, offset, host, bytes, err);
}

static enum oz_status upload(struct oz_device *dev, struct oz_queue *queue, void *dst,
                             const void *host, size_t bytes, struct oz_error *err)
{
    const struct oz_sink *sink = dev->impl;
    uintptr_t at = (uintptr_t)dst;
    const struct oz_sink_weight *w = find_weight(sink, at);
    (void)queue;
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        const struct oz_plane_view *plane = &w->param->weight.planes[i];
        uintptr_t begin = address(w, (enum oz_plane)i);
        if (!plane->present || at < begin || at - begin >= (uintptr_t)plane->bytes) {
            continue;
        }
        return write_moved(sink, w, i, (int64_t)(at - begin), host, bytes, err);
    }
    return OZ_FAIL(err, OZ_ERR_INTERNAL, "%zu bytes for no plane of %s.", bytes, w->param->name);
}

static enum oz_status wait(struct oz_device *dev, struct oz_queue *queue, struct oz_error *err)
{
    (void)dev;
    (void)queue;
    (void)err;
    return OZ_OK;
}

/* Nothing is packed: planes are what is written. */
static enum oz_status plan_param(struct oz_device *dev, const struct oz_param *param,
                                 const struct oz_plan_request *request,
                                 struct oz_plan_answer *answer, struct oz_error *err)
{
    (void)dev;
    (void)param;
    (void)request;
    (void)err;
    *answer = (struct oz_plan_answer){.kernel = "checkpoint"};
    return OZ_OK;
}

static const struct oz_encoder *find_encoder(const struct oz_device *dev,
                                             const struct oz_codec *codec, enum oz_dtype stored)
{
    const struct oz_sink *sink = dev->impl;
    const struct oz_op_table *ops = sink->host->ops;
    return ops->find_encoder != NULL ? ops->find_encoder(sink->host, codec, stored) : NULL;
}

void oz_sink_init(struct oz_sink *sink, struct oz_device *host, struct oz_ckpt_writer *writer,
                  const struct oz_sink_weight *weights, int32_t count)
{
    *sink = (struct oz_sink){.host = host, .writer = writer, .weights = weights, .count = count};
    sink->ops.plan_param = plan_param;
    sink->ops.find_encoder = find_encoder;
    sink->dev.name = "checkpoint";
    sink->dev.tier = host->tier;
    sink->dev.pool = host->pool;
    sink->dev.impl = sink;
    sink->dev.ops = &sink->ops;
    sink->dev.upload = upload;
    sink->dev.wait = wait;
}
