#include "load/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/pool.h"
#include "ckpt/drawn.h"
#include "load/item.h"
#include "load/stage.h"
#include "load/stream.h"

#define BAND_BYTES (INT64_C(1) << 20) /* of a band as stored */
#define SLAB_BYTES \
    (INT64_C(192) << 10) /* of a slab as staged: with its codes half of a second cache */
#define TRANSPOSED_BYTES (INT64_C(8) << 20) /* wider: each column of it is a read of its own */
#define SENT_BAND_BYTES \
    (INT64_C(512) << 10) /* of one that only waits to be sent: threads end together */
#define CHUNK_BYTES \
    (INT64_C(24) << 20) /* of rows that are packed or sent together: a square of 3072 */

/* A scale scope of all rows, or a parameter whose bands are scopes: items order[first ..] in turn. */
struct unit {
    int64_t first, count;
    int32_t file;
    int64_t offset;
};

struct build {
    struct oz_load_schedule *s;
    const struct oz_load_args *args;
    const struct oz_load_items *items;
    int32_t *order;
    int64_t *band_rows; /* [items] */
    struct unit *units;
    int64_t unit_count;
    int64_t ring_bytes, kept_limit;
    int64_t chunks; /* so far */
    int64_t step_capacity, phase_capacity;
    enum oz_status status; /* of growing lists */
};

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t oz_load_file_line(const struct oz_load_item *item)
{
    return item->shape.cols * (oz_dtype_bits(item->stored) / 8);
}

int64_t oz_load_staged_line(const struct oz_load_item *item)
{
    return item->shape.cols * (oz_dtype_bits(item->staged) / 8);
}

static bool is_staged(const struct build *b, const struct oz_load_item *item)
{
    return !b->args->dev->host_memory ||
           (item->packed_bytes > 0 && !oz_load_packs_slabs(b->args, item));
}

bool oz_load_packs_slabs(const struct oz_load_args *args, const struct oz_load_item *item)
{
    return args->dev->host_memory && item->encodes && item->packed_bytes > 0;
}

int64_t oz_load_slab_rows(const struct oz_load_item *item, int64_t rows)
{
    int64_t scope = oz_load_scope_rows(item);
    int64_t line = max64(oz_load_staged_line(item), 1);
    return item->lora_rank > 0 ? rows : min64(rows, max64(SLAB_BYTES / line / scope, 1) * scope);
}

bool oz_load_device_draws(const struct oz_load_args *args)
{
    return !args->dev->host_memory && args->dev->ops->draw != NULL &&
           oz_ckpt_is_drawn(args->match->ckpt);
}

static bool observes(const struct oz_load_item *item)
{
    return item->encodes && item->codec->observe_passes > 0;
}

static bool is_transposed(const struct oz_load_item *item)
{
    for (int32_t i = 0; i < item->part_count; i++) {
        if (item->parts[i].layer->transform & OZ_TRANSFORM_TRANSPOSE) {
            return true;
        }
    }
    return false;
}

/* ---- budgets ---- */

/* Staging of a worker for bands of so many rows. */
static int64_t worker_bytes(const struct build *b, const struct oz_load_item *item, int64_t rows)
{
    struct oz_load_room room = oz_load_room_of(b->args, item, rows);
    return room.raw + room.f32 + room.planes + room.piece + room.other + room.down + room.up +
           room.lists;
}

struct oz_load_room oz_load_room_of(const struct oz_load_args *args,
                                    const struct oz_load_item *item, int64_t rows)
{
    struct oz_load_room room = {0};
    if (item->encodes && (item->row_encoder == NULL || observes(item))) {
        int64_t scope = oz_weight_scope_rows(&item->weight);
        int64_t slab = oz_load_slab_rows(item, rows);
        room.raw = oz_load_round(slab * oz_load_staged_line(item));
        if (oz_load_packs_slabs(args, item)) {
            room.planes = oz_load_stage_bytes(&item->weight, 0, min64(slab, item->shape.rows));
        }
        room.f32 = oz_load_round(min64(scope, item->shape.rows) * item->shape.cols * 4);
    }
    if (is_transposed(item)) {
        room.piece = oz_load_round(rows * (oz_dtype_bits(item->stored) / 8));
    }
    if (item->lora_rank > 0) {
        int64_t line = item->encodes ? oz_load_file_line(item) : item->shape.cols * 4;
        room.other = oz_load_round(rows * line);
        room.down = oz_load_round(oz_lora_down_elements(item->lora_rank, item->shape.cols) * 4);
        room.up = oz_load_round(rows * item->lora_rank * 4);
        room.lists = oz_load_round(rows * (int64_t)(sizeof(int64_t) + sizeof(float *)));
    }
    return room;
}

/* Rows of a band: near the wanted bytes, whole scopes, within a worker's share. */
static int64_t choose_band(const struct build *b, const struct oz_load_item *item, int64_t share)
{
    int64_t scope = oz_load_scope_rows(item);
    int64_t line = max64(oz_load_staged_line(item), 1);
    bool sent = is_staged(b, item) && (item->row_encoder != NULL || !item->encodes);
    int64_t wanted = (is_transposed(item) ? TRANSPOSED_BYTES
                      : sent              ? SENT_BAND_BYTES
                                          : BAND_BYTES) /
                     line;
    int64_t rows = max64(wanted / scope, 1) * scope;
    while (rows > scope && worker_bytes(b, item, rows) > share) {
        rows = max64(rows / 2 / scope, 1) * scope;
    }
    return rows;
}

/* Rows that wait to be sent: what they were encoded to, or for the device's encoder as they came. */
static int64_t chunk_bytes(const struct oz_load_item *item, int64_t rows)
{
    rows = min64(rows, item->shape.rows);
    return item->row_encoder != NULL ? oz_load_round(rows * oz_load_staged_line(item))
                                     : oz_load_stage_bytes(&item->weight, 0, rows);
}

/* How many workers, what each needs, what is left for scopes and chunks that wait. */
static enum oz_status share_out(struct build *b, struct oz_error *err)
{
    struct oz_load_schedule *s = b->s;
    const struct oz_load_item *widest = NULL;
    int64_t chunk = 0; /* the least that staged items need */
    int64_t threads = oz_pool_threads(b->args->dev->pool);
    int64_t streamed = 0;
    for (int32_t i = 0; i < b->items->count; i++) {
        const struct oz_load_item *item = &b->items->items[i];
        if (item->way != OZ_WAY_STREAM) {
            continue;
        }
        streamed++;
        b->band_rows[i] = choose_band(b, item, b->ring_bytes / 2 / threads);
        int64_t bytes = worker_bytes(b, item, min64(b->band_rows[i], item->shape.rows));
        if (widest == NULL || bytes > s->worker_bytes) {
            widest = item;
            s->worker_bytes = bytes;
        }
        chunk = max64(chunk, is_staged(b, item) ? chunk_bytes(item, oz_load_scope_rows(item)) : 0);
    }
    if (s->worker_bytes + chunk > b->ring_bytes) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "The loader's ring of %" PRId64 " bytes has no room for a band of %s (%s, "
                       "%d rows at once); give it %" PRId64 " bytes or more.",
                       b->ring_bytes, widest->parts[0].layer->name, widest->scheme,
                       (int)oz_load_scope_rows(widest), s->worker_bytes + chunk);
    }
    s->workers = streamed > 0 ? (int32_t)threads : 0;
    if (s->worker_bytes > 0 && streamed > 0) {
        s->workers = (int32_t)min64(threads, (b->ring_bytes - chunk) / s->worker_bytes);
    }
    b->kept_limit = b->ring_bytes - s->workers * s->worker_bytes;
    return OZ_OK;
}

/* ---- lists ---- */

static bool grow(struct build *b, void **list, int64_t count, int64_t *capacity, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    int64_t more = *capacity * 2 + 64;
    void *data = b->status == OZ_OK ? oz_realloc(*list, (size_t)more * size) : NULL;
    if (data == NULL) {
        b->status = OZ_ERR_NOMEM;
        return false;
    }
    *list = data;
    *capacity = more;
    return true;
}

/* Bands of one kind that follow one another share a phase when they do not wait for each other. */
static void open_phase(struct build *b, enum oz_load_phase_kind kind, int64_t chunk_at)
{
    struct oz_load_schedule *s = b->s;
    void *list = s->phases;
    if (s->phase_count > 0 && kind == OZ_PHASE_DIRECT &&
        s->phases[s->phase_count - 1].kind == kind) {
        return;
    }
    if (grow(b, &list, s->phase_count, &b->phase_capacity, sizeof *s->phases)) {
        s->phases = list;
        s->phases[s->phase_count++] =
            (struct oz_load_phase){.kind = kind, .first = s->count, .chunk_at = chunk_at};
    }
}

static void add_step(struct build *b, struct oz_load_step step)
{
    struct oz_load_schedule *s = b->s;
    const struct oz_load_item *item = &b->items->items[step.item];
    int64_t at;
    void *list = s->steps;
    if (!grow(b, &list, s->count, &b->step_capacity, sizeof *s->steps)) {
        return;
    }
    s->steps = list;
    step.row = oz_load_find_part(item, step.slice, step.first_row, &at)->row;
    if (step.bytes > 0) {
        oz_load_band_origin(item, step.slice, step.first_row, step.rows, &step.file, &step.offset);
        step.reads = oz_load_count_reads(item, step.slice, step.first_row, step.rows);
        s->read_bytes += step.bytes;
    }
    s->tensor_bytes += step.pass == 0 ? step.rows * oz_load_file_line(item) : 0;
    s->steps[s->count++] = step;
    s->phases[s->phase_count - 1].count++;
}

/* ---- the order ---- */

/* How often a scope's bytes come from the file, and where they wait. */
struct visit {
    int32_t pass, passes; /* of reading */
    bool read;
    int64_t *kept_at; /* advanced; NULL: not kept */
};

/* Bands of rows [row0, end) of a slice. */
static void add_bands(struct build *b, int32_t item_index, int64_t slice, int64_t row0, int64_t end,
                      const struct visit *v)
{
    const struct oz_load_item *item = &b->items->items[item_index];
    int64_t line = oz_load_file_line(item);
    for (int64_t r = row0; r < end && b->status == OZ_OK; r += b->band_rows[item_index]) {
        int64_t rows = min64(b->band_rows[item_index], end - r);
        int64_t bytes = rows * line;
        struct oz_load_step step = {.item = item_index,
                                    .pass = v->pass,
                                    .bytes = v->read ? bytes : 0,
                                    .slice = slice,
                                    .first_row = r,
                                    .rows = rows,
                                    .kept_at = -1};
        if (v->read) {
            step.progress_bytes = bytes * (v->pass + 1) / v->passes - bytes * v->pass / v->passes;
        }
        if (v->kept_at != NULL) {
            step.kept_at = *v->kept_at;
            *v->kept_at += oz_load_round(rows * oz_load_staged_line(item));
        }
        add_step(b, step);
    }
}

/* Chunks of rows that are packed or sent when they are whole; they wait at `chunk_at` of the ring's
 * kept part. */
static void add_chunks(struct build *b, int32_t item_index, int64_t slice, const struct visit *v,
                       int64_t chunk_at)
{
    const struct oz_load_item *item = &b->items->items[item_index];
    int64_t scope = oz_load_scope_rows(item);
    bool overlaps = item->packed_bytes == 0 && oz_load_ring_overlaps(b->args->dev);
    int64_t slots = overlaps ? OZ_LOAD_UPLOADS : 1; /* one is made while the other is sent */
    bool kept = item->row_encoder != NULL && v->kept_at != NULL; /* and sent from there */
    int64_t limit = kept ? CHUNK_BYTES : min64((b->kept_limit - chunk_at) / slots, CHUNK_BYTES);
    int64_t rows = (item->shape.rows + scope - 1) / scope * scope;
    while (rows > scope && chunk_bytes(item, rows) > limit) {
        rows = max64(rows / 2 / scope, 1) * scope;
    }
    int64_t bytes = kept ? 0 : chunk_bytes(item, rows);
    if (item->row_encoder != NULL) {
        b->s->room_bytes = max64(b->s->room_bytes, chunk_bytes(item, rows));
    }
    if (chunk_at + slots * bytes > b->kept_limit) {
        slots = 1; /* of a scope that leaves no room for two */
    }
    for (int64_t r = 0; r < item->shape.rows && b->status == OZ_OK; r += rows) {
        int64_t at = chunk_at + b->chunks++ % slots * bytes; /* of neighbours that are alike, too */
        b->s->kept_bytes = max64(b->s->kept_bytes, at + bytes);
        open_phase(b, OZ_PHASE_STAGED, at);
        add_bands(b, item_index, slice, r, min64(r + rows, item->shape.rows), v);
    }
}

static void add_direct(struct build *b, int32_t item_index)
{
    const struct oz_load_item *item = &b->items->items[item_index];
    const struct visit once = {.passes = 1, .read = true};
    for (int64_t slice = 0; slice < item->shape.slices; slice++) {
        if (is_staged(b, item)) {
            add_chunks(b, item_index, slice, &once, 0);
        } else {
            open_phase(b, OZ_PHASE_DIRECT, 0);
            add_bands(b, item_index, slice, 0, item->shape.rows, &once);
        }
    }
}

/* Bytes of the ring in which all rows of a slice of the unit's items wait together; -1: there is no
 * room for them and for a chunk of what is made of them. */
static int64_t waiting_bytes(const struct build *b, const struct unit *u)
{
    int64_t bytes = 0;
    int64_t chunk = 0;
    for (int64_t i = 0; i < u->count; i++) {
        int32_t index = b->order[u->first + i];
        const struct oz_load_item *item = &b->items->items[index];
        int64_t bands = (item->shape.rows + b->band_rows[index] - 1) / b->band_rows[index];
        bytes +=
            oz_load_round(item->shape.rows * oz_load_staged_line(item)) + bands * OZ_LOAD_ALIGN;
        if (is_staged(b, item) && item->row_encoder == NULL) {
            chunk = max64(chunk, chunk_bytes(item, oz_load_scope_rows(item)));
        }
        if (bytes + chunk > b->kept_limit) {
            return -1;
        }
    }
    return bytes;
}

/* A scope of all rows: one slice of the unit's items. */
static void add_scope(struct build *b, const struct unit *u, int64_t slice)
{
    const struct oz_load_item *first = &b->items->items[b->order[u->first]];
    int32_t passes = first->codec->observe_passes;
    int64_t waiting = waiting_bytes(b, u);
    bool kept = waiting >= 0;
    b->s->twice += !kept;
    for (int32_t pass = 0; pass <= passes; pass++) {
        int64_t at = 0;
        const struct visit v = {.pass = pass,
                                .passes = kept ? 1 : passes + 1,
                                .read = !kept || pass == 0,
                                .kept_at = kept ? &at : NULL};
        bool staged = pass == passes && is_staged(b, first);
        if (!staged) {
            open_phase(b, pass < passes ? OZ_PHASE_OBSERVE : OZ_PHASE_ENCODE, 0);
        }
        for (int64_t i = 0; i < u->count && b->status == OZ_OK; i++) {
            int32_t index = b->order[u->first + i];
            if (staged) {
                add_chunks(b, index, slice, &v, kept ? waiting : 0);
            } else {
                add_bands(b, index, slice, 0, b->items->items[index].shape.rows, &v);
            }
        }
        if (b->status == OZ_OK && pass < passes) {
            b->s->band_states = max64(b->s->band_states, b->s->phases[b->s->phase_count - 1].count);
        }
    }
    b->s->kept_bytes = max64(b->s->kept_bytes, waiting);
}

/* ---- units ---- */

static bool is_empty(const struct oz_load_item *item)
{
    return item->shape.slices * item->shape.rows * item->shape.cols == 0;
}

/* Members of the fused group of item `first` from there on, by their place in the group. */
static int64_t gather(struct build *b, int32_t first, int64_t at)
{
    const struct oz_load_item *items = b->items->items;
    int64_t count = 0;
    for (int32_t i = first; i < b->items->count; i++) {
        bool same =
            i == first || (items[first].fused != NULL && items[i].fused != NULL &&
                           items[i].way == OZ_WAY_STREAM && items[i].codec == items[first].codec &&
                           strcmp(items[i].fused, items[first].fused) == 0);
        if (!same || is_empty(&items[i])) {
            continue;
        }
        int64_t to = at + count++;
        for (; to > at && items[b->order[to - 1]].fused_index > items[i].fused_index; to--) {
            b->order[to] = b->order[to - 1];
        }
        b->order[to] = i;
    }
    return count;
}

static void make_units(struct build *b)
{
    const struct oz_load_item *items = b->items->items;
    int64_t at = 0;
    for (int32_t i = 0; i < b->items->count; i++) {
        bool member = false; /* of a unit that an earlier item began */
        for (int32_t k = 0; k < i && items[i].fused != NULL && !member; k++) {
            member = items[k].fused != NULL && !is_empty(&items[k]) &&
                     items[k].codec == items[i].codec && items[k].way == OZ_WAY_STREAM &&
                     strcmp(items[k].fused, items[i].fused) == 0;
        }
        if (items[i].way != OZ_WAY_STREAM || is_empty(&items[i]) || member) {
            continue;
        }
        struct unit u = {.first = at, .count = gather(b, i, at), .file = INT32_MAX};
        at += u.count;
        for (int64_t k = 0; k < u.count; k++) {
            int32_t file;
            int64_t offset;
            const struct oz_load_item *item = &items[b->order[u.first + k]];
            oz_load_band_origin(item, 0, 0, item->shape.rows, &file, &offset);
            if (file < u.file || (file == u.file && offset < u.offset)) {
                u.file = file;
                u.offset = offset;
            }
        }
        b->units[b->unit_count++] = u;
    }
}

static int by_place(const void *x, const void *y)
{
    const struct unit *a = x;
    const struct unit *b = y;
    if (a->file != b->file) {
        return a->file < b->file ? -1 : 1;
    }
    return a->offset != b->offset ? (a->offset < b->offset ? -1 : 1)
                                  : (a->first > b->first) - (a->first < b->first);
}

static void add_units(struct build *b)
{
    for (int64_t i = 0; i < b->unit_count; i++) {
        const struct unit *u = &b->units[i];
        const struct oz_load_item *first = &b->items->items[b->order[u->first]];
        if (!observes(first)) {
            add_direct(b, b->order[u->first]);
            continue;
        }
        for (int64_t slice = 0; slice < first->shape.slices; slice++) {
            add_scope(b, u, slice);
        }
    }
}

enum oz_status oz_load_schedule_init(struct oz_load_schedule *s, const struct oz_load_args *args,
                                     const struct oz_load_items *items, struct oz_error *err)
{
    size_t count = (size_t)items->count;
    *s = (struct oz_load_schedule){0};
    struct build b = {.s = s,
                      .args = args,
                      .items = items,
                      .order = oz_alloc(count * sizeof *b.order),
                      .band_rows = oz_alloc_zero(count, sizeof *b.band_rows),
                      .units = oz_alloc(count * sizeof *b.units),
                      .ring_bytes = args->ring_bytes > 0 ? args->ring_bytes : OZ_LOAD_RING_BYTES};
    enum oz_status status = OZ_OK;
    if (b.order == NULL || b.band_rows == NULL || b.units == NULL) {
        b.status = OZ_ERR_NOMEM;
    } else {
        status = share_out(&b, err);
    }
    if (status == OZ_OK && b.status == OZ_OK) {
        make_units(&b);
        qsort(b.units, (size_t)b.unit_count, sizeof *b.units, by_place);
        add_units(&b);
    }
    oz_free(b.order);
    oz_free(b.band_rows);
    oz_free(b.units);
    OZ_TRY(status);
    if (b.status != OZ_OK) {
        return OZ_FAIL_NOMEM(err, "the read schedule");
    }
    if (s->count == 0) {
        s->workers = 0;
        s->worker_bytes = 0;
    }
    s->staging_bytes = s->workers * s->worker_bytes + s->kept_bytes;
    if (s->count > 0 && (s->room_bytes > 0 || oz_load_device_draws(args))) {
        s->room_bytes += OZ_ROOM_RAW;
        s->rooms_bytes = oz_load_ring_rooms(s->room_bytes);
    }
    for (int32_t i = 0; i < items->count; i++) { /* before what is streamed */
        s->staging_bytes = max64(s->staging_bytes, oz_load_planes_staging(args, &items->items[i]));
        s->staging_bytes = max64(s->staging_bytes, oz_load_whole_staging(&items->items[i]));
    }
    s->bookkeeping_bytes =
        b.step_capacity * (int64_t)sizeof *s->steps +
        b.phase_capacity * (int64_t)sizeof *s->phases +
        s->band_states * (int64_t)sizeof(struct oz_encode_state) +
        (int64_t)args->match->table->count *
            (int64_t)(sizeof(struct oz_load_item) + sizeof(struct oz_load_part)) +
        oz_lora_bytes(args->lora);
    return OZ_OK;
}

void oz_load_schedule_deinit(struct oz_load_schedule *s)
{
    oz_free(s->steps);
    oz_free(s->phases);
    *s = (struct oz_load_schedule){0};
}

/* ---- JSON ---- */

static bool continues(const struct oz_load_step *a, const struct oz_load_step *b)
{
    return a->item == b->item && a->row == b->row && a->pass == b->pass && a->slice == b->slice &&
           a->file == b->file && a->reads == 1 && b->reads == 1 &&
           b->offset == a->offset + a->bytes && b->first_row == a->first_row + a->rows;
}

void oz_load_schedule_json(const struct oz_load_schedule *s, const struct oz_match *match,
                           struct oz_buf *out)
{
    bool comma = false;
    oz_buf_printf(out,
                  "{\"read_bytes\": %" PRId64 ", \"tensor_bytes\": %" PRId64
                  ", \"staging_bytes\": %" PRId64 ", \"bookkeeping_bytes\": %" PRId64
                  ", \"workers\": %d, \"scopes_read_twice\": %" PRId64 ", \"steps\": [",
                  s->read_bytes, s->tensor_bytes, s->staging_bytes, s->bookkeeping_bytes,
                  (int)s->workers, s->twice);
    for (int64_t i = 0; i < s->count;) {
        struct oz_load_step step = s->steps[i++];
        if (step.bytes == 0) {
            continue;
        }
        while (i < s->count && continues(&step, &s->steps[i])) {
            step.bytes += s->steps[i].bytes;
            step.rows += s->steps[i++].rows;
        }
        oz_buf_puts(out, comma ? ", {\"file\": " : "{\"file\": ");
        comma = true;
        oz_buf_json(out, oz_ckpt_file(match->ckpt, step.file)->path);
        oz_buf_puts(out, ", \"tensor\": ");
        oz_buf_json(out, oz_ckpt_tensor(match->ckpt, match->row_tensor[step.row])->name);
        oz_buf_printf(out,
                      ", \"offset\": %" PRId64 ", \"bytes\": %" PRId64 ", \"reads\": %" PRId64
                      ", \"slice\": %" PRId64 ", \"rows\": [%" PRId64 ", %" PRId64
                      "], \"pass\": %d}",
                      step.offset, step.bytes, step.reads, step.slice, step.first_row,
                      step.first_row + step.rows, (int)step.pass);
    }
    oz_buf_puts(out, "]}");
}
