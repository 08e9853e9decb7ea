#include "pipe/offload.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "pipe/pipeline.h"

static const char *const names[OZ_OFFLOAD_COUNT] = {
#define OZ_OFFLOAD_NAME(id, name) [id] = (name),
    OZ_OFFLOAD_MAP(OZ_OFFLOAD_NAME)
#undef OZ_OFFLOAD_NAME
};

const char *oz_offload_name(enum oz_offload_mode mode)
{
    return (unsigned)mode < OZ_OFFLOAD_COUNT ? names[mode] : "?";
}

enum oz_status oz_offload_parse(enum oz_offload_mode *mode, const char *name, struct oz_error *err)
{
    *mode = OZ_OFFLOAD_NONE;
    if (name == NULL || *name == '\0') {
        return OZ_OK;
    }
    for (int i = 0; i < OZ_OFFLOAD_COUNT; i++) {
        if (oz_names_same(name, names[i])) {
            *mode = (enum oz_offload_mode)i;
            return OZ_OK;
        }
    }
    return OZ_FAIL(err, OZ_ERR_ARG,
                   "There is no offload mode \"%.100s\"; there are none, stage and "
                   "block.",
                   name);
}

bool oz_offload_is_on(const struct oz_pipeline *p)
{
    return p->offload->mode != OZ_OFFLOAD_NONE;
}

/* ---- parts ---- */

static size_t round_up(size_t bytes)
{
    return (bytes + OZ_DEVICE_ALIGN - 1) / OZ_DEVICE_ALIGN * OZ_DEVICE_ALIGN;
}

struct part {
    const struct oz_pipeline *p;
    bool blocks; /* are parts of their own */
    int32_t index;
};

static bool is_of_part(const void *ctx, const struct oz_layer *layer)
{
    const struct part *part = ctx;
    return oz_modulation_leaves_in(part->p, layer) &&
           (!part->blocks || layer->block_number == part->index);
}

static int32_t count_parts(const struct oz_pipeline *p, const struct oz_component *c)
{
    int32_t blocks = 0;
    for (int32_t i = 0; i < c->table.count && p->offload->mode == OZ_OFFLOAD_BLOCK; i++) {
        int32_t number = c->table.rows[i].block_number;
        blocks = number > blocks ? number : blocks;
    }
    return 1 + blocks;
}

/* Measures a part, or makes it resident in the arena. */
static enum oz_status load_part(const struct oz_pipeline *p, enum oz_component_id id, int32_t index,
                                const struct oz_load_args *with, struct oz_error *err)
{
    const struct part part = {p, p->offload->parts[id].count > 1, index};
    struct oz_load_args args = *with;
    args.takes = is_of_part;
    args.takes_ctx = &part;
    return oz_load_component(&args, err);
}

/* A part's place in the room. */
static size_t place_of(const struct oz_offload_parts *parts, int32_t index)
{
    return index == 0 ? 0
                      : round_up(parts->bytes[0]) +
                            (size_t)((index - 1) % OZ_OFFLOAD_SLOTS) * parts->slot_bytes;
}

static void free_parts(struct oz_offload *o)
{
    for (int i = 0; i < OZ_COMPONENT_COUNT && o->parts != NULL; i++) {
        oz_free(o->parts[i].bytes);
        oz_free(o->parts[i].at);
    }
    oz_free(o->parts);
    o->parts = NULL;
}

/* A component's parts, and what it takes of room and host memory. */
static enum oz_status measure_component(struct oz_pipeline *p, enum oz_component_id id,
                                        struct oz_error *err)
{
    struct oz_offload *o = p->offload;
    struct oz_offload_parts *parts = &o->parts[id];
    struct oz_component *c = &p->components[id];
    size_t slots = 0;
    parts->count = count_parts(p, c);
    parts->bytes = oz_alloc_zero((size_t)parts->count, sizeof *parts->bytes);
    parts->at = oz_alloc_zero((size_t)parts->count, sizeof *parts->at);
    if (parts->bytes == NULL || parts->at == NULL) {
        return OZ_FAIL_NOMEM(err, c->name);
    }
    size_t host = 0;
    for (int32_t i = 0; i < parts->count; i++) {
        struct oz_arena room;
        struct oz_load_args args = oz_pipeline_load_args(p, c);
        oz_arena_init_measure(&room, "offload");
        args.model = &room;
        OZ_TRY(load_part(p, id, i, &args, err));
        parts->bytes[i] = room.used_bytes;
        parts->at[i] = host;
        host += round_up(room.used_bytes);
        bool larger = i > 0 && round_up(room.used_bytes) > parts->slot_bytes;
        parts->slot_bytes = larger ? round_up(room.used_bytes) : parts->slot_bytes;
    }
    slots = parts->count > OZ_OFFLOAD_SLOTS ? OZ_OFFLOAD_SLOTS : (size_t)parts->count - 1;
    size_t room = round_up(parts->bytes[0]) + slots * parts->slot_bytes;
    o->room_bytes = room > o->room_bytes ? room : o->room_bytes;
    o->pinned_bytes += host;
    return OZ_OK;
}

enum oz_status oz_offload_plan(struct oz_pipeline *p, struct oz_error *err)
{
    struct oz_offload *o = p->offload;
    if (p->dev->host_memory) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Offload \"%s\" has nothing to do on device %s, whose memory is the host's: "
                       "weights lie there already. Leave it out; to take less memory, quantize "
                       "more, or let modulation weights pass by.",
                       oz_offload_name(o->mode), p->dev->name);
    }
    free_parts(o);
    o->room_bytes = o->pinned_bytes = 0;
    o->parts = oz_alloc_zero(OZ_COMPONENT_COUNT, sizeof *o->parts);
    if (o->parts == NULL) {
        return OZ_FAIL_NOMEM(err, "the parts of the model");
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        OZ_TRY(measure_component(p, (enum oz_component_id)i, err));
    }
    return OZ_OK;
}

/* ---- loading ---- */

static enum oz_status load_component(struct oz_pipeline *p, enum oz_component_id id,
                                     const struct oz_load_args *with, struct oz_error *err)
{
    struct oz_offload *o = p->offload;
    struct oz_device *dev = p->dev;
    struct oz_offload_parts *parts = &o->parts[id];
    int32_t last = parts->count - 1;
    size_t host = parts->at[last] + round_up(parts->bytes[last]);
    if (host > 0) {
        OZ_TRY(dev->alloc_host(dev, host, &parts->host, err));
    }
    for (int32_t i = 0; i < parts->count; i++) {
        struct oz_arena room;
        struct oz_load_args args = *with;
        uint8_t *base = (uint8_t *)o->room + place_of(parts, i);
        oz_arena_init_view(&room, "offload", base, parts->bytes[i], dev->host_memory);
        args.model = &room;
        args.ring = oz_pipeline_ring(p, &p->ring);
        enum oz_status status = load_part(p, id, i, &args, err);
        oz_arena_deinit(&room);
        if (status == OZ_OK && parts->bytes[i] > 0) {
            status = dev->download(dev, NULL, (uint8_t *)parts->host + parts->at[i], base,
                                   parts->bytes[i], err);
        }
        OZ_TRY(status);
        OZ_TRY(dev->wait(dev, NULL, err));
    }
    o->resident = (int32_t)id;
    return OZ_OK;
}

static enum oz_status make_queue(struct oz_offload *o, struct oz_device *dev, struct oz_error *err)
{
    OZ_TRY(dev->queue_create(dev, &o->copies, err));
    OZ_TRY(
        dev->record(dev, NULL, &o->passed, err)); /* events are made once: steps allocate nothing */
    for (int i = 0; i < OZ_OFFLOAD_SLOTS; i++) {
        OZ_TRY(dev->record(dev, o->copies, &o->ready[i], err));
    }
    return OZ_OK;
}

enum oz_status oz_offload_load(struct oz_pipeline *p, oz_progress_fn progress, void *progress_ctx,
                               struct oz_error *err)
{
    /* first what is needed last: the modulation table may need the transformer before all else */
    static const enum oz_component_id order[OZ_COMPONENT_COUNT] = {
        OZ_COMPONENT_VAE, OZ_COMPONENT_TEXT_ENCODER, OZ_COMPONENT_TRANSFORMER};
    struct oz_offload *o = p->offload;
    int64_t done = 0;
    int64_t total = 0;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_load_args args = oz_pipeline_load_args(p, &p->components[i]);
        total += oz_load_bytes(&args);
    }
    o->resident = -1;
    for (int i = 0; i < OZ_OFFLOAD_SLOTS; i++) {
        o->held[i] = -1;
    }
    if (o->room_bytes > 0) {
        OZ_TRY(p->dev->alloc(p->dev, o->room_bytes, &o->room, err));
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        struct oz_load_args args = oz_pipeline_load_args(p, &p->components[order[i]]);
        args.progress = progress;
        args.progress_ctx = progress_ctx;
        args.done_bytes = &done;
        args.total_bytes = total;
        OZ_TRY(load_component(p, order[i], &args, err));
    }
    return o->mode == OZ_OFFLOAD_BLOCK ? make_queue(o, p->dev, err) : OZ_OK;
}

/* ---- running ---- */

static enum oz_status upload(const struct oz_pipeline *p, const struct oz_offload_parts *parts,
                             int32_t index, struct oz_queue *queue, struct oz_error *err)
{
    struct oz_device *dev = p->dev;
    if (parts->bytes[index] == 0) {
        return OZ_OK;
    }
    return dev->upload(dev, queue, (uint8_t *)p->offload->room + place_of(parts, index),
                       (const uint8_t *)parts->host + parts->at[index], parts->bytes[index], err);
}

/* Into a slot that nobody reads any more once what `passed` marks is done. */
static enum oz_status fetch_block(const struct oz_pipeline *p, const struct oz_offload_parts *parts,
                                  int32_t block, struct oz_error *err)
{
    struct oz_offload *o = p->offload;
    struct oz_device *dev = p->dev;
    int32_t slot = block % OZ_OFFLOAD_SLOTS;
    OZ_TRY(dev->await(dev, o->copies, o->passed, err));
    OZ_TRY(upload(p, parts, block + 1, o->copies, err));
    OZ_TRY(dev->record(dev, o->copies, &o->ready[slot], err));
    o->held[slot] = block;
    return OZ_OK;
}

static enum oz_status enter_block(const struct oz_pipeline *p, int32_t block,
                                  const struct oz_exec *x)
{
    struct oz_offload *o = p->offload;
    struct oz_device *dev = p->dev;
    const struct oz_offload_parts *parts = &o->parts[o->resident];
    int32_t blocks = parts->count - 1;
    int32_t next = (block + 1) % blocks; /* the first again: of the next step */
    int32_t slot = block % OZ_OFFLOAD_SLOTS;
    if (block < 0 || block >= blocks) {
        return OZ_FAIL(x->err, OZ_ERR_INTERNAL, "Block %d of %d is not offloaded.", (int)block,
                       (int)blocks);
    }
    OZ_TRY(dev->record(dev, x->queue, &o->passed, x->err)); /* all blocks before this one */
    if (o->held[slot] != block) {
        OZ_TRY(fetch_block(p, parts, block, x->err));
    }
    OZ_TRY(dev->await(dev, x->queue, o->ready[slot], x->err));
    if (next % OZ_OFFLOAD_SLOTS != slot && o->held[next % OZ_OFFLOAD_SLOTS] != next) {
        OZ_TRY(fetch_block(p, parts, next, x->err));
    }
    return OZ_OK;
}

static void on_block(void *ctx, struct oz_exec *x, int32_t block)
{
    enum oz_status status = enter_block(ctx, block, x);
    if (status != OZ_OK && x->status == OZ_OK) {
        x->status = status;
    }
}

/* The room for a component's part 0, whatever is on its way there. */
static enum oz_status enter_component(const struct oz_pipeline *p, int32_t component,
                                      const struct oz_exec *x)
{
    struct oz_offload *o = p->offload;
    struct oz_device *dev = p->dev;
    double start = oz_clock_seconds();
    o->resident = -1;
    for (int i = 0; i < OZ_OFFLOAD_SLOTS; i++) {
        o->held[i] = -1;
    }
    OZ_TRY(dev->wait(dev, x->queue, x->err)); /* nobody reads what was there */
    if (o->copies != NULL) {
        OZ_TRY(dev->wait(dev, o->copies, x->err));
    }
    OZ_TRY(upload(p, &o->parts[component], 0, x->queue, x->err));
    OZ_TRY(dev->wait(dev, x->queue, x->err));
    o->resident = component;
    o->upload_s += oz_clock_seconds() - start;
    return OZ_OK;
}

void oz_offload_need(const struct oz_pipeline *p, int32_t component, struct oz_exec *x)
{
    struct oz_offload *o = p->offload;
    if (x->mode != OZ_EXEC_RUN || x->status != OZ_OK || !oz_offload_is_on(p)) {
        return;
    }
    if (o->resident != component) {
        x->status = enter_component(p, component, x);
    }
    bool blocks = o->parts[component].count > 1;
    x->block = blocks ? on_block : NULL;
    x->block_ctx = blocks ? (void *)(uintptr_t)p : NULL;
}

void oz_offload_deinit(struct oz_offload *o, struct oz_device *dev)
{
    struct oz_error err;
    if (o->copies != NULL && dev->wait(dev, o->copies, &err) != OZ_OK) {
        oz_log(OZ_LOG_WARN, "load", "%s", err.message); /* the last upload, which nobody needs */
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT && o->parts != NULL && dev != NULL; i++) {
        dev->free_host(dev, o->parts[i].host);
    }
    for (int i = 0; i < OZ_OFFLOAD_SLOTS && dev != NULL; i++) {
        dev->event_destroy(dev, o->ready[i]);
    }
    if (dev != NULL) {
        dev->event_destroy(dev, o->passed);
        if (o->copies != NULL) {
            dev->queue_destroy(dev, o->copies);
        }
        dev->free(dev, o->room);
    }
    free_parts(o);
    *o = (struct oz_offload){0};
}
