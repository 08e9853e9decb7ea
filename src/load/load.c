#include "load/load.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/log.h"
#include "load/item.h"
#include "load/stream.h"

/* A load, and how much of it has been reported. */
struct progress {
    const struct oz_load_args *args;
    int64_t done_bytes;
};

static enum oz_status report(void *ctx, int64_t bytes, struct oz_error *err)
{
    struct progress *p = ctx;
    const struct oz_load_args *a = p->args;
    p->done_bytes += bytes;
    if (a->done_bytes != NULL) {
        *a->done_bytes += bytes;
    }
    if (a->progress == NULL || a->model->measuring || bytes == 0) {
        return OZ_OK;
    }
    struct oz_progress progress = {.struct_size = sizeof progress,
                                   .stage = OZ_STAGE_LOAD,
                                   .picture = -1,
                                   .done = a->done_bytes != NULL ? *a->done_bytes : p->done_bytes,
                                   .total = a->total_bytes};
    if (a->progress(a->progress_ctx, &progress) != 0) {
        return OZ_FAIL(err, OZ_ERR_CANCELLED, "Loading was interrupted.");
    }
    return OZ_OK;
}

/* Planes that come from the file: all have their place before the first one is moved there, for a device
 * may find out by the place whose they are (load/sink.h). */
static void bind_planes(const struct oz_load_items *items)
{
    for (int32_t i = 0; i < items->count; i++) {
        const struct oz_load_item *item = &items->items[i];
        if (item->way == OZ_WAY_PLANES) {
            item->param->weight = item->weight;
            item->param->packed = item->packed;
        }
    }
}

/* Everything that is not streamed. */
static enum oz_status load_whole_items(const struct oz_load_args *a,
                                       const struct oz_load_items *items, struct progress *p,
                                       struct oz_error *err)
{
    for (int32_t i = 0; i < items->count; i++) {
        const struct oz_load_item *item = &items->items[i];
        if (item->way == OZ_WAY_STREAM) {
            continue;
        }
        OZ_TRY(oz_load_whole(a, item, err));
        int64_t bytes = 0;
        for (int32_t k = 0; k < item->part_count; k++) {
            bytes += oz_match_row_bytes(a->match, item->parts[k].row);
        }
        OZ_TRY(report(p, bytes, err));
    }
    return OZ_OK;
}

/* After a failure nothing points to what the caller is about to give back. */
static void unbind(const struct oz_load_items *items)
{
    for (int32_t i = 0; i < items->count; i++) {
        const struct oz_load_item *item = &items->items[i];
        item->param->weight =
            oz_weight_shape(item->codec, item->shape.slices, item->shape.rows, item->shape.cols);
        item->param->packed = NULL;
    }
}

static enum oz_status check_files(const struct oz_load_args *a, struct oz_error *err)
{
    OZ_TRY(oz_ckpt_check(a->match->ckpt, err));
    return oz_lora_check(a->lora, err);
}

static enum oz_status load_items(const struct oz_load_args *a, struct oz_load_items *items,
                                 const struct oz_load_schedule *schedule, struct oz_error *err)
{
    struct progress p = {.args = a};
    enum oz_status status = check_files(a, err);
    if (status == OZ_OK && a->ring != NULL) {
        status = oz_load_ring_reserve(a->ring, a->dev, (size_t)schedule->staging_bytes,
                                      (size_t)schedule->room_bytes, err);
    }
    if (status == OZ_OK) {
        bind_planes(items);
        status = load_whole_items(a, items, &p, err);
    }
    if (status == OZ_OK) {
        status = oz_load_stream(a, items, schedule, report, &p, err);
    }
    if (status == OZ_OK) { /* rows that nobody binds, and parts of tensors that nobody reads */
        status = report(&p, oz_load_bytes(a) - p.done_bytes, err);
    }
    if (status == OZ_OK) {
        status = check_files(a, err);
    }
    if (status != OZ_OK) {
        unbind(items);
    }
    return status;
}

static void count(const struct oz_load_args *a, const struct oz_load_items *items,
                  const struct oz_load_schedule *schedule)
{
    const struct oz_match *m = a->match;
    struct oz_load_stats *s = a->stats;
    for (int32_t r = 0; r < m->table->count; r++) {
        const struct oz_layer *layer = &m->table->rows[r];
        if (m->row_tensor[r] < 0 && layer->bind != NULL) {
            layer->bind->name = NULL; /* optional and absent */
        }
    }
    if (s == NULL) {
        return;
    }
    for (int32_t r = 0; r < m->table->count; r++) {
        s->tensors += m->row_tensor[r] >= 0 && oz_load_takes(a, &m->table->rows[r]);
    }
    for (int64_t i = 0; i < oz_ckpt_count(m->ckpt); i++) {
        s->ignored += m->tensor_rule[i] != NULL;
    }
    for (int32_t i = 0; i < items->count; i++) {
        const struct oz_load_item *item = &items->items[i];
        if (item->encodes) {
            s->encoded += item->part_count;
            s->encoded_bytes += item->packed_bytes + item->plane_bytes;
        }
    }
    int64_t staging = schedule->staging_bytes + schedule->rooms_bytes;
    s->staging_bytes = staging > s->staging_bytes ? staging : s->staging_bytes;
}

static enum oz_status load_with(const struct oz_load_args *a, struct oz_load_items *items,
                                struct oz_load_schedule *schedule, struct oz_error *err)
{
    OZ_TRY(oz_load_items_init(items, a, err));
    OZ_TRY(oz_load_schedule_init(schedule, a, items, err));
    count(a, items, schedule);
    if (a->model->measuring) {
        if (a->done_bytes != NULL) {
            *a->done_bytes += oz_load_bytes(a);
        }
    } else {
        OZ_TRY(load_items(a, items, schedule, err));
    }
    if (a->report != NULL) {
        OZ_TRY(oz_load_report_add(a->report, a, items, schedule, err));
    }
    oz_log(OZ_LOG_DEBUG, "load",
           "%" PRId64 " bytes read in %" PRId64 " bands by %d threads through %" PRId64
           " bytes; %" PRId64 " scopes read twice",
           schedule->read_bytes, schedule->count, (int)schedule->workers, schedule->staging_bytes,
           schedule->twice);
    return OZ_OK;
}

enum oz_status oz_load_component(const struct oz_load_args *a, struct oz_error *err)
{
    struct oz_load_items items = {0};
    struct oz_load_schedule own = {0};
    struct oz_load_schedule *schedule = a->schedule != NULL ? a->schedule : &own;
    *schedule = (struct oz_load_schedule){0};
    enum oz_status status = load_with(a, &items, schedule, err);
    oz_load_items_deinit(&items);
    oz_load_schedule_deinit(&own);
    return status;
}

int64_t oz_load_bytes(const struct oz_load_args *a)
{
    int64_t bytes = 0;
    for (int32_t r = 0; r < a->match->table->count; r++) {
        bytes += oz_load_takes(a, &a->match->table->rows[r]) ? oz_match_row_bytes(a->match, r) : 0;
    }
    return bytes;
}
