#include "load/stream.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/pool.h"
#include "ckpt/drawn.h"
#include "load/stage.h"
#include "num/float.h"

struct loader {
    const struct oz_load_args *args;
    struct oz_load_items *items;
    const struct oz_load_schedule *schedule;
    struct oz_pool *pool, *own_pool;
    struct oz_load_ring *ring;
    uint8_t *staging; /* the ring: workers' staging, then what is kept */
    uint8_t *kept;
    struct oz_encode_state *states; /* of the steps of an observing phase */
    struct oz_encode_state learnt;  /* by the scope that is open */
    const struct oz_load_phase *phase;
    struct oz_weight view; /* of the chunk that is open */
    bool draws;            /* the open chunk, on the device */
    struct {
        const struct oz_load_phase *phase; /* whose rows the device encodes; NULL: none */
        const uint16_t *table;             /* that lies in its room */
    } uploads[OZ_LOAD_UPLOADS];
    oz_load_report_fn report;
    void *report_ctx;
    atomic_int_fast64_t unreported; /* bytes */
    atomic_int_fast64_t advised;    /* steps about which the system has been told */
    atomic_bool stop;
    pthread_mutex_t lock;
    int64_t failed_step; /* INT64_MAX: none */
    enum oz_status status;
    struct oz_error *err;
};

/* Keeps the failure of the lowest step: all steps below it have been begun, so it is the same one
 * whatever the threads do. */
static void fail(struct loader *l, int64_t step, enum oz_status status, const struct oz_error *err)
{
    pthread_mutex_lock(&l->lock);
    if (step < l->failed_step) {
        l->failed_step = step;
        l->status = status;
        if (l->err != NULL) {
            *l->err = *err;
        }
    }
    pthread_mutex_unlock(&l->lock);
    atomic_store(&l->stop, true);
}

/* ---- NaN and infinity ---- */

/* The element (row, col) of a slice, that a pass has met in `raw`, by the names and indices of the
 * file. */
static enum oz_status refuse(const struct loader *l, const struct oz_load_item *item,
                             const struct oz_load_step *step, const struct oz_encode_state *state,
                             float value, struct oz_error *err)
{
    int64_t at;
    const struct oz_load_part *part = oz_load_find_part(item, step->slice, state->bad_row, &at);
    int64_t row = oz_load_source_row(part, at);
    int64_t col = state->bad_col;
    char slice[32] = "";
    if (part->shape.slices > 1) {
        (void)snprintf(slice, sizeof slice, "%" PRId64 ", ", step->slice - part->slice);
    }
    if (part->layer->transform & OZ_TRANSFORM_TRANSPOSE) {
        col = row;
        row = state->bad_col;
    }
    return OZ_FAIL(err, OZ_ERR_FORMAT,
                   "Tensor %s of %s is %s at [%s%" PRId64 ", %" PRId64
                   "]: %s needs finite weights. Leave the layer as it is stored (ignored_layers: "
                   "\"%s\"), or ask for such values to be kept.",
                   part->tensor->name, oz_ckpt_file(l->args->match->ckpt, part->tensor->file)->path,
                   isnan(value) ? "NaN" : (value > 0 ? "infinite" : "-infinite"), slice, row, col,
                   item->scheme, part->layer->module);
}

/* ---- bands ---- */

/* Rows [row, row + rows) of a band (counted from the band's first) in f32. */
static const float *to_f32(const struct oz_load_item *item, const struct oz_load_step *step,
                           const uint8_t *raw, int64_t row, int64_t rows, float *f32)
{
    int64_t cols = item->shape.cols;
    struct oz_weight band =
        oz_weight_plain(item->staged, 1, step->rows, cols, (void *)(uintptr_t)raw);
    for (int64_t r = 0; r < rows; r++) {
        float *dst = f32 + r * cols;
        band.codec->decode(&band, 0, row + r, 0, cols, dst);
        if (item->adds_one) {
            int64_t at;
            const struct oz_load_part *part =
                oz_load_find_part(item, step->slice, step->first_row + row + r, &at);
            bool adds = (part->layer->transform & OZ_TRANSFORM_ADD_ONE) != 0;
            for (int64_t c = 0; c < cols && adds; c++) {
                dst[c] += 1.0F;
            }
        }
    }
    return f32;
}

/* A band through the codec's observe, or its encode into w: scope by scope in f32. */
static enum oz_status code_slowly(const struct loader *l, const struct oz_load_item *item,
                                  const struct oz_load_step *step, const uint8_t *raw, float *f32,
                                  struct oz_weight *w, struct oz_encode_state *state,
                                  struct oz_error *err)
{
    int64_t scope = oz_weight_scope_rows(w);
    int64_t cols = item->shape.cols;
    for (int64_t r = 0; r < step->rows; r += scope) {
        int64_t rows = step->rows - r < scope ? step->rows - r : scope;
        const float *src = to_f32(item, step, raw, r, rows, f32);
        int64_t row0 = step->first_row + r;
        enum oz_status status =
            l->phase->kind == OZ_PHASE_OBSERVE
                ? item->codec->observe(w, row0, src, rows, cols, state)
                : item->codec->encode(w, step->slice, row0, src, rows, cols, state);
        if (status != OZ_OK) {
            return refuse(l, item, step, state,
                          src[(state->bad_row - row0) * cols + state->bad_col], err);
        }
    }
    return OZ_OK;
}

static enum oz_status code_band(const struct loader *l, const struct oz_load_item *item,
                                const struct oz_load_step *step, const uint8_t *raw, float *f32,
                                struct oz_weight *w, struct oz_encode_state *state,
                                struct oz_error *err)
{
    int64_t cols = item->shape.cols;
    const struct oz_encoder *e = item->encoder;
    if (e != NULL && l->phase->kind == OZ_PHASE_OBSERVE && e->observe != NULL &&
        e->observe(w, step->first_row, raw, step->rows, cols, state)) {
        return OZ_OK;
    }
    if (e != NULL && l->phase->kind != OZ_PHASE_OBSERVE &&
        e->encode(w, step->slice, step->first_row, raw, step->rows, cols, state)) {
        return OZ_OK;
    }
    return code_slowly(l, item, step, raw, f32, w, state, err);
}

/* Address of rows in plain planes. */
static uint8_t *plain_rows(const struct oz_weight *w, int64_t slice, int64_t row)
{
    const struct oz_plane_view *codes = &w->planes[OZ_PLANE_CODES];
    return (uint8_t *)((uintptr_t)codes->data + (uintptr_t)(slice * codes->slice_stride_bytes) +
                       (uintptr_t)(row * codes->row_stride_bytes));
}

static struct oz_encode_state fresh_state(const struct loader *l, const struct oz_load_item *item,
                                          int32_t pass)
{
    struct oz_encode_state state;
    oz_encode_state_init(&state);
    state.exponent_rule = item->exponent_rule;
    state.keep_nonfinite = l->args->keep_nonfinite;
    state.pass = pass;
    return state;
}

static enum oz_status pack_rows(const struct loader *l, const struct oz_load_item *item,
                                const struct oz_load_step *slab, const struct oz_weight *view,
                                struct oz_error *err)
{
    struct oz_device alone = *l->args->dev;
    alone.pool = NULL; /* its threads are here already */
    return alone.ops->pack_band(&alone, NULL, item->param, slab->slice, slab->first_row, slab->rows,
                                view, err);
}

/* A worker's memory for a band. */
struct desk {
    uint8_t *raw, *planes, *piece, *lora;
    float *f32;
};

static struct desk desk_of(const struct loader *l, const struct oz_load_item *item, int64_t rows,
                           int32_t worker)
{
    struct oz_load_room room = oz_load_room_of(l->args, item, rows);
    struct desk d = {.raw = l->staging + worker * l->schedule->worker_bytes};
    d.f32 = (float *)(void *)(d.raw + room.raw);
    d.planes = d.raw + room.raw + room.f32;
    d.piece = d.planes + room.planes;
    d.lora = d.piece + room.piece;
    return d;
}

static enum oz_status read_rows(const struct loader *l, const struct oz_load_item *item,
                                const struct oz_load_step *slab, const struct desk *d, uint8_t *raw,
                                struct oz_error *err)
{
    if (slab->bytes == 0) {
        return OZ_OK;
    }
    if (item->lora_rank > 0) {
        return oz_load_read_merged(l->args, item, slab->slice, slab->first_row, slab->rows, raw,
                                   d->piece, d->lora, err);
    }
    return oz_load_read_band(l->args->match->ckpt, item, slab->slice, slab->first_row, slab->rows,
                             raw, d->piece, err);
}

/* Part of a band: to the weight's planes or the chunk's, or to planes on the desk and from there
 * packed. */
static enum oz_status encode_slab(const struct loader *l, const struct oz_load_item *item,
                                  const struct oz_load_step *slab, const uint8_t *raw,
                                  const struct desk *d, struct oz_error *err)
{
    bool observed = item->codec->observe_passes > 0;
    struct oz_encode_state state = observed ? l->learnt : fresh_state(l, item, slab->pass);
    struct oz_weight w = l->phase->kind == OZ_PHASE_STAGED ? l->view : item->weight;
    if (!oz_load_packs_slabs(l->args, item)) {
        return code_band(l, item, slab, raw, d->f32, &w, &state, err);
    }
    w = oz_load_stage_view(&item->weight, slab->slice, slab->first_row, slab->rows, d->planes);
    if (observed) {
        item->codec->begin(&w, slab->slice, &state);
    }
    OZ_TRY(code_band(l, item, slab, raw, d->f32, &w, &state, err));
    return pack_rows(l, item, slab, &w, err);
}

static enum oz_status observe_slab(const struct loader *l, struct oz_load_item *item,
                                   const struct oz_load_step *slab, const uint8_t *raw,
                                   const struct desk *d, struct oz_encode_state *band,
                                   struct oz_error *err)
{
    struct oz_encode_state state = fresh_state(l, item, slab->pass);
    state.amax = slab->pass > 0 ? l->learnt.amax : 0; /* by the pass before */
    OZ_TRY(code_band(l, item, slab, raw, d->f32, &item->weight, &state, err));
    oz_encode_state_merge(band, &state);
    return OZ_OK;
}

/* Does a phase send rows as they are staged? */
static bool sends_rows(const struct loader *l, const struct oz_load_phase *p)
{
    const struct oz_load_step *step = &l->schedule->steps[p->first];
    return p->kind == OZ_PHASE_STAGED && l->items->items[step->item].row_encoder != NULL;
}

/* Where a step's rows wait in such a phase: still from the passes, or in its chunk. */
static uint8_t *rows_at(const struct loader *l, const struct oz_load_phase *p,
                        const struct oz_load_step *step)
{
    const struct oz_load_item *item = &l->items->items[step->item];
    int64_t before = step->first_row - l->schedule->steps[p->first].first_row;
    return l->kept +
           (step->kept_at >= 0 ? step->kept_at : p->chunk_at + before * oz_load_staged_line(item));
}

static enum oz_status run_step(struct loader *l, int64_t index, int32_t worker,
                               struct oz_error *err)
{
    const struct oz_load_step *step = &l->schedule->steps[index];
    struct oz_load_item *item = &l->items->items[step->item];
    struct desk d = desk_of(l, item, step->rows, worker);
    if (l->phase->kind == OZ_PHASE_STAGED && l->draws) {
        return OZ_OK;
    }
    if (sends_rows(l, l->phase)) {
        return read_rows(l, item, step, &d, rows_at(l, l->phase, step), err);
    }
    if (!item->encodes) {
        struct oz_weight *w = l->phase->kind == OZ_PHASE_STAGED ? &l->view : &item->weight;
        return read_rows(l, item, step, &d, plain_rows(w, step->slice, step->first_row), err);
    }
    int64_t rows = oz_load_slab_rows(item, step->rows);
    for (int64_t r = 0; r < step->rows; r += rows) {
        struct oz_load_step slab = *step;
        slab.first_row += r;
        slab.rows = step->rows - r < rows ? step->rows - r : rows;
        uint8_t *raw =
            step->kept_at < 0 ? d.raw : l->kept + step->kept_at + r * oz_load_staged_line(item);
        OZ_TRY(read_rows(l, item, &slab, &d, raw, err));
        if (l->phase->kind == OZ_PHASE_OBSERVE) {
            struct oz_encode_state *band = &l->states[index - l->phase->first];
            if (r == 0) {
                *band = fresh_state(l, item, step->pass);
            }
            OZ_TRY(observe_slab(l, item, &slab, raw, &d, band, err));
        } else {
            OZ_TRY(encode_slab(l, item, &slab, raw, &d, err));
        }
    }
    return OZ_OK;
}

/* ---- phases ---- */

/* Tells the system what will be read after what is under way: enough for a disk that likes long queues. */
static void advise(struct loader *l, int64_t index)
{
    const struct oz_load_schedule *s = l->schedule;
    int64_t window = l->args->ring_bytes > 0 ? l->args->ring_bytes : OZ_LOAD_AHEAD_BYTES;
    int64_t ahead = 0;
    int64_t end = index;
    while (end < s->count && ahead < window) {
        ahead += s->steps[end++].bytes;
    }
    int_fast64_t from = atomic_load(&l->advised);
    while (from < end && !atomic_compare_exchange_weak(&l->advised, &from, end)) {
    }
    for (int64_t i = from; i < end; i++) {
        if (s->steps[i].bytes > 0 && s->steps[i].reads == 1) {
            oz_ckpt_advise(l->args->match->ckpt, s->steps[i].file, s->steps[i].offset,
                           s->steps[i].bytes);
        }
    }
}

static void report(struct loader *l, int64_t step)
{
    struct oz_error err;
    int64_t bytes = atomic_exchange(&l->unreported, 0);
    enum oz_status status = bytes > 0 ? l->report(l->report_ctx, bytes, &err) : OZ_OK;
    if (status != OZ_OK) {
        fail(l, step, status, &err);
    }
}

static void run_steps(void *ctx, int64_t begin, int64_t end, int32_t worker)
{
    struct loader *l = ctx;
    for (int64_t i = l->phase->first + begin; i < l->phase->first + end; i++) {
        struct oz_error err;
        if (atomic_load(&l->stop)) {
            return;
        }
        advise(l, i);
        enum oz_status status = run_step(l, i, worker, &err);
        if (status != OZ_OK) {
            fail(l, i, status, &err);
            return;
        }
        atomic_fetch_add(&l->unreported, l->schedule->steps[i].progress_bytes);
        if (worker == 0) { /* the thread that called */
            report(l, i);
        }
    }
}

/* The passes of a scope are over: its wide planes are written, for every item of the group. */
static void begin_scope(struct loader *l)
{
    const struct oz_load_step *steps = l->schedule->steps + l->phase->first;
    for (int64_t i = 0; i < l->phase->count; i++) {
        struct oz_load_item *item = &l->items->items[steps[i].item];
        bool first = i == 0 || steps[i].item != steps[i - 1].item;
        if (first && !oz_load_packs_slabs(l->args, item)) {
            item->codec->begin(&item->weight, steps[i].slice, &l->learnt);
        }
    }
}

/* Joins what the bands learnt, in their order. */
static void join_states(struct loader *l)
{
    l->learnt = l->states[0];
    for (int64_t i = 1; i < l->phase->count; i++) {
        oz_encode_state_merge(&l->learnt, &l->states[i]);
    }
}

/* Rows of a chunk: the first of its first band, to the end of its last. */
static void chunk_rows(const struct loader *l, int64_t *row0, int64_t *rows)
{
    const struct oz_load_step *first = &l->schedule->steps[l->phase->first];
    const struct oz_load_step *last = first + l->phase->count - 1;
    *row0 = first->first_row;
    *rows = last->first_row + last->rows - first->first_row;
}

/* Are the rows of the chunk dummies that nobody but the device needs to see? */
static bool is_drawn(const struct loader *l, const struct oz_load_item *item,
                     const struct oz_load_step *step, int64_t row0, int64_t rows)
{
    const struct oz_tensor_view *tensor;
    int64_t first;
    bool raw =
        item->row_encoder != NULL || (!item->encodes && !item->adds_one && item->lora_rank == 0);
    return raw && oz_load_device_draws(l->args) && step->bytes > 0 && item->packed_bytes == 0 &&
           item->stored == OZ_DTYPE_BF16 &&
           oz_load_is_one_run(item, step->slice, row0, rows, &tensor, &first);
}

static void open_chunk(struct loader *l)
{
    const struct oz_load_step *step = &l->schedule->steps[l->phase->first];
    const struct oz_load_item *item = &l->items->items[step->item];
    int64_t row0;
    int64_t rows;
    chunk_rows(l, &row0, &rows);
    l->draws = is_drawn(l, item, step, row0, rows);
    if (l->draws || sends_rows(l, l->phase)) {
        return;
    }
    l->view =
        oz_load_stage_view(&item->weight, step->slice, row0, rows, l->kept + l->phase->chunk_at);
    if (item->encodes && item->codec->begin != NULL) {
        item->codec->begin(&l->view, step->slice, &l->learnt);
    }
}

/* The part of the ring that rows which are sent as they are staged lie in. */
static void lies_in(const struct loader *l, size_t *begin, size_t *end)
{
    *begin = SIZE_MAX;
    *end = 0;
    for (int64_t i = l->phase->first; i < l->phase->first + l->phase->count; i++) {
        const struct oz_load_step *step = &l->schedule->steps[i];
        int64_t bytes = step->rows * oz_load_staged_line(&l->items->items[step->item]);
        size_t from = (size_t)(rows_at(l, l->phase, step) - l->staging);
        *begin = from < *begin ? from : *begin;
        *end = from + (size_t)bytes > *end ? from + (size_t)bytes : *end;
    }
}

/* The part of the ring that a phase writes besides workers' staging: its chunk, or what waits for the
 * scope to end. */
static void written_by(const struct loader *l, size_t *begin, size_t *end)
{
    const struct oz_load_phase *p = l->phase;
    size_t kept = (size_t)(l->kept - l->staging);
    *begin = *end = 0;
    if (sends_rows(l, p)) {
        if (l->schedule->steps[p->first].kept_at < 0) { /* else the passes wrote them */
            lies_in(l, begin, end);
        }
        return;
    }
    if (p->kind == OZ_PHASE_STAGED) {
        const struct oz_load_item *item = &l->items->items[l->schedule->steps[p->first].item];
        int64_t row0;
        int64_t rows;
        chunk_rows(l, &row0, &rows);
        *begin = kept + (size_t)p->chunk_at;
        *end = *begin + (size_t)oz_load_stage_bytes(&item->weight, row0, rows);
        return;
    }
    for (int64_t i = p->first; i < p->first + p->count; i++) {
        const struct oz_load_step *step = &l->schedule->steps[i];
        if (step->kept_at < 0 || step->bytes == 0) {
            continue;
        }
        size_t from = kept + (size_t)step->kept_at;
        size_t to = from + (size_t)(step->rows * oz_load_staged_line(&l->items->items[step->item]));
        *begin = *end == 0 || from < *begin ? from : *begin;
        *end = to > *end ? to : *end;
    }
}

/* Staged planes to the device's, while the next chunk is made. */
static enum oz_status upload(struct loader *l, const struct oz_load_item *item, int64_t slice,
                             int64_t row0, int64_t rows, struct oz_error *err)
{
    struct oz_device *dev = l->args->dev;
    struct oz_queue *queue;
    size_t begin;
    size_t end;
    written_by(l, &begin, &end);
    OZ_TRY(oz_load_ring_send(l->ring, dev, begin, end, &queue, err));
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        const struct oz_plane_view *to = &item->weight.planes[i];
        if (!to->present) {
            continue;
        }
        struct oz_load_cells cells = oz_load_cells(&item->weight, (enum oz_plane)i, row0, rows);
        uintptr_t at = (uintptr_t)(slice * to->slice_stride_bytes) + (uintptr_t)cells.first;
        OZ_TRY(dev->upload(dev, queue, (void *)((uintptr_t)to->data + at),
                           (const void *)((uintptr_t)l->view.planes[i].data + at),
                           (size_t)cells.bytes, err));
    }
    return oz_load_ring_sent(l->ring, dev, err);
}

/* ---- what the device makes of rows ---- */

/* Draws the chunk's rows to `to`, with the numbers in the upload's room. */
static enum oz_status draw_rows(struct loader *l, struct oz_queue *queue,
                                const struct oz_load_item *item, const struct oz_load_step *step,
                                int64_t row0, int64_t rows, void *to, struct oz_error *err)
{
    struct oz_device *dev = l->args->dev;
    const struct oz_tensor_view *tensor;
    const uint16_t *numbers;
    uint8_t *table = oz_load_ring_room(l->ring) + OZ_ROOM_TABLE;
    struct oz_draw_args a = {
        .table = (const uint16_t *)(void *)table, .count = rows * item->shape.cols, .dst = to};
    (void)oz_load_is_one_run(item, step->slice, row0, rows, &tensor, &a.first);
    oz_ckpt_drawn_source(l->args->match->ckpt, tensor, &numbers, &a.state);
    if (l->uploads[l->ring->next].table != numbers) {
        OZ_TRY(dev->upload(dev, queue, table, numbers, OZ_NOISE_NUMBERS * sizeof *numbers, err));
        l->uploads[l->ring->next].table = numbers;
    }
    return dev->ops->draw(dev, queue, &a, err);
}

/* Rows as they are staged to the room of an upload, or drawn there. */
static enum oz_status bring_rows(struct loader *l, struct oz_queue *queue,
                                 const struct oz_load_item *item, int64_t row0, int64_t rows,
                                 struct oz_error *err)
{
    struct oz_device *dev = l->args->dev;
    const struct oz_load_step *steps = l->schedule->steps + l->phase->first;
    uint8_t *raw = oz_load_ring_room(l->ring) + OZ_ROOM_RAW;
    int64_t line = oz_load_staged_line(item);
    if (l->draws) {
        return draw_rows(l, queue, item, steps, row0, rows, raw, err);
    }
    if (steps->kept_at < 0) { /* without gaps */
        return dev->upload(dev, queue, raw, rows_at(l, l->phase, steps), (size_t)(rows * line),
                           err);
    }
    for (int64_t i = 0; i < l->phase->count; i++) {
        OZ_TRY(dev->upload(dev, queue, raw + (steps[i].first_row - row0) * line,
                           rows_at(l, l->phase, &steps[i]), (size_t)(steps[i].rows * line), err));
    }
    return OZ_OK;
}

/* The device encodes the chunk, and marks the first place that is not finite. */
static enum oz_status send_rows(struct loader *l, const struct oz_load_item *item,
                                const struct oz_load_step *step, int64_t row0, int64_t rows,
                                struct oz_error *err)
{
    struct oz_device *dev = l->args->dev;
    struct oz_queue *queue;
    size_t begin;
    size_t end;
    lies_in(l, &begin, &end);
    OZ_TRY(oz_load_ring_send(l->ring, dev, begin, end, &queue, err));
    uint8_t *room = oz_load_ring_room(l->ring);
    uint64_t *mark = &l->ring->marks[l->ring->next];
    struct oz_encode_rows_args a = {
        .w = &item->weight,
        .slice = step->slice,
        .row0 = row0,
        .rows = rows,
        .src = room + OZ_ROOM_RAW,
        .state = item->codec->observe_passes > 0 ? l->learnt : fresh_state(l, item, step->pass),
        .bad = (uint64_t *)(void *)room};
    *mark = UINT64_MAX;
    l->uploads[l->ring->next].phase = l->phase;
    OZ_TRY(dev->upload(dev, queue, room, mark, sizeof *mark, err));
    OZ_TRY(bring_rows(l, queue, item, row0, rows, err));
    OZ_TRY(dev->ops->encode_rows(dev, queue, &a, err));
    OZ_TRY(dev->download(dev, queue, mark, room, sizeof *mark, err));
    return oz_load_ring_sent(l->ring, dev, err);
}

/* Refuses what the device has marked in an upload that is over; its rows still lie in the ring. */
static enum oz_status look_at_mark(void *ctx, int32_t upload, struct oz_error *err)
{
    struct loader *l = ctx;
    const struct oz_load_phase *p = l->uploads[upload].phase;
    uint64_t mark = p != NULL ? l->ring->marks[upload] : UINT64_MAX;
    l->uploads[upload].phase = NULL;
    if (mark == UINT64_MAX) {
        return OZ_OK;
    }
    const struct oz_load_step *steps = l->schedule->steps + p->first;
    const struct oz_load_item *item = &l->items->items[steps->item];
    struct oz_encode_state state = {.bad_row = (int64_t)mark / item->shape.cols,
                                    .bad_col = (int64_t)mark % item->shape.cols};
    int64_t i = 0;
    while (i + 1 < p->count && state.bad_row >= steps[i + 1].first_row) {
        i++;
    }
    uint16_t bits;
    int64_t at = (state.bad_row - steps[i].first_row) * item->shape.cols + state.bad_col;
    memcpy(&bits, rows_at(l, p, &steps[i]) + 2 * at, sizeof bits);
    enum oz_status status = refuse(l, item, &steps[i], &state, oz_bf16_to_f32(bits), err);
    fail(l, p->first + i, status, err);
    return status;
}

static enum oz_status close_chunk(struct loader *l, struct oz_error *err)
{
    const struct oz_load_step *step = &l->schedule->steps[l->phase->first];
    const struct oz_load_item *item = &l->items->items[step->item];
    struct oz_device *dev = l->args->dev;
    int64_t row0;
    int64_t rows;
    chunk_rows(l, &row0, &rows);
    if (item->row_encoder != NULL) {
        return send_rows(l, item, step, row0, rows, err);
    }
    if (l->draws) {
        struct oz_queue *queue;
        OZ_TRY(oz_load_ring_send(l->ring, dev, 0, 0, &queue, err));
        OZ_TRY(draw_rows(l, queue, item, step, row0, rows,
                         plain_rows(&item->weight, step->slice, row0), err));
        return oz_load_ring_sent(l->ring, dev, err);
    }
    if (item->packed_bytes > 0) {
        return dev->ops->pack_band(dev, NULL, item->param, step->slice, row0, rows, &l->view, err);
    }
    return upload(l, item, step->slice, row0, rows, err);
}

static void run_phase(struct loader *l)
{
    int64_t last = l->phase->first + l->phase->count - 1;
    struct oz_error err;
    size_t begin;
    size_t end;
    written_by(l, &begin, &end);
    enum oz_status claimed = oz_load_ring_claim(l->ring, l->args->dev, begin, end, &err);
    if (claimed != OZ_OK) {
        fail(l, l->phase->first, claimed, &err);
        return;
    }
    if (l->phase->kind == OZ_PHASE_ENCODE) {
        begin_scope(l);
    } else if (l->phase->kind == OZ_PHASE_STAGED) {
        open_chunk(l);
    }
    oz_pool_for(l->pool, l->phase->count, 1, run_steps, l);
    if (l->phase->kind == OZ_PHASE_OBSERVE && !atomic_load(&l->stop)) {
        join_states(l);
    } else if (l->phase->kind == OZ_PHASE_STAGED && !atomic_load(&l->stop)) {
        enum oz_status status = close_chunk(l, &err);
        if (status != OZ_OK) {
            fail(l, last, status, &err);
        }
    }
    if (!atomic_load(&l->stop)) {
        report(l, last);
    }
}

/* ---- the whole ---- */

static enum oz_status prepare(struct loader *l, struct oz_error *err)
{
    const struct oz_load_schedule *s = l->schedule;
    l->pool = l->args->dev->pool;
    if (s->workers != oz_pool_threads(l->pool)) {
        OZ_TRY(oz_pool_create(&l->own_pool, s->workers, err));
        l->pool = l->own_pool;
    }
    OZ_TRY(oz_load_ring_reserve(l->ring, l->args->dev, (size_t)s->staging_bytes,
                                (size_t)s->room_bytes, err));
    l->ring->sent = look_at_mark;
    l->ring->sent_ctx = l;
    static uint8_t nothing[1]; /* an address, for places in no bytes */
    l->staging = l->ring->memory != NULL ? l->ring->memory : nothing;
    l->states = oz_alloc_zero((size_t)s->band_states, sizeof *l->states);
    if (l->states == NULL) {
        return OZ_FAIL_NOMEM(err, "the passes of a load");
    }
    l->kept = l->staging + s->workers * s->worker_bytes;
    return OZ_OK;
}

/* Operators find the weight, or nothing of it. */
static void bind(struct loader *l, bool loaded)
{
    for (int32_t i = 0; i < l->items->count; i++) {
        const struct oz_load_item *item = &l->items->items[i];
        if (item->way == OZ_WAY_STREAM) {
            item->param->weight = loaded ? item->weight
                                         : oz_weight_shape(item->codec, item->shape.slices,
                                                           item->shape.rows, item->shape.cols);
            item->param->packed = loaded ? item->packed : NULL;
        }
    }
}

enum oz_status oz_load_stream(const struct oz_load_args *args, struct oz_load_items *items,
                              const struct oz_load_schedule *schedule, oz_load_report_fn report_fn,
                              void *report_ctx, struct oz_error *err)
{
    struct oz_load_ring own = {0};
    struct loader l = {.args = args,
                       .ring = args->ring != NULL ? args->ring : &own,
                       .items = items,
                       .schedule = schedule,
                       .report = report_fn,
                       .report_ctx = report_ctx,
                       .failed_step = INT64_MAX,
                       .err = err};
    bind(&l, true); /* also what is packed: packing finds its place there */
    if (schedule->count == 0) {
        return OZ_OK;
    }
    pthread_mutex_init(&l.lock, NULL);
    enum oz_status status = prepare(&l, err);
    for (int64_t i = 0; i < schedule->phase_count && status == OZ_OK; i++) {
        l.phase = &schedule->phases[i];
        run_phase(&l);
        status = l.status;
    }
    if (status == OZ_OK) {
        status = oz_load_ring_drain(l.ring, args->dev, err);
    }
    if (status != OZ_OK || args->ring == NULL) { /* what failed may still be on its way */
        oz_load_ring_deinit(l.ring, args->dev);
        status = l.status != OZ_OK ? l.status : status; /* or have been marked before what failed */
    }
    l.ring->sent = NULL;
    oz_pool_destroy(&l.own_pool);
    oz_free(l.states);
    pthread_mutex_destroy(&l.lock);
    if (status != OZ_OK) {
        bind(&l, false);
    }
    return status;
}
