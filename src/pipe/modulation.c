#include "pipe/modulation.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/names.h"
#include "num/float.h"
#include "pipe/pipeline.h"

static const char *const names[OZ_MODULATION_COUNT] = {
#define OZ_MODULATION_NAME(id, name) [id] = (name),
    OZ_MODULATION_MAP(OZ_MODULATION_NAME)
#undef OZ_MODULATION_NAME
};

const char *oz_modulation_name(enum oz_modulation_mode mode)
{
    return (unsigned)mode < OZ_MODULATION_COUNT ? names[mode] : "?";
}

enum oz_status oz_modulation_parse(enum oz_modulation_mode *mode, const char *name,
                                   struct oz_error *err)
{
    *mode = OZ_MODULATION_RESIDENT;
    if (name == NULL || *name == '\0') {
        return OZ_OK;
    }
    for (int i = 0; i < OZ_MODULATION_COUNT; i++) {
        if (oz_names_same(name, names[i])) {
            *mode = (enum oz_modulation_mode)i;
            return OZ_OK;
        }
    }
    const char *near = oz_names_nearest(name, names, OZ_MODULATION_COUNT);
    return OZ_FAIL(err, OZ_ERR_ARG,
                   "There is no modulation mode \"%.100s\"%s%s%s; there are resident, schedule and "
                   "grid.",
                   name, near != NULL ? " (did you mean \"" : "", near != NULL ? near : "",
                   near != NULL ? "\"?)" : "");
}

bool oz_modulation_stays(const struct oz_pipeline *p)
{
    return p->modulation->mode == OZ_MODULATION_RESIDENT;
}

bool oz_modulation_leaves_in(const void *ctx, const struct oz_layer *layer)
{
    const struct oz_pipeline *p = ctx;
    return oz_modulation_stays(p) || oz_qwen_image_mod_part(&p->transformer, layer) < 0;
}

/* ---- loading a part ---- */

struct part {
    const struct oz_pipeline *p;
    int32_t index;
};

static bool is_of_part(const void *ctx, const struct oz_layer *layer)
{
    const struct part *part = ctx;
    return oz_qwen_image_mod_part(&part->p->transformer, layer) == part->index;
}

/* Measures a part (report != NULL), or makes it resident in the arena. */
static enum oz_status load_part(const struct oz_pipeline *p, int32_t index, struct oz_arena *model,
                                struct oz_load_report *report, struct oz_load_stats *stats,
                                struct oz_load_ring *ring, struct oz_error *err)
{
    const struct oz_component *c = &p->components[OZ_COMPONENT_TRANSFORMER];
    const struct part part = {p, index};
    return oz_load_component(
        &(struct oz_load_args){.match = c->match,
                               .dev = p->dev,
                               .model = model,
                               .assignment = c->assignment.table != NULL ? &c->assignment : NULL,
                               .lora = c->lora,
                               .takes = is_of_part,
                               .takes_ctx = &part,
                               .passing = true,
                               .ring = ring,
                               .report = report,
                               .stats = stats},
        err);
}

enum oz_status oz_modulation_plan(struct oz_pipeline *p, struct oz_error *err)
{
    struct oz_modulation *m = p->modulation;
    struct oz_component *c = &p->components[OZ_COMPONENT_TRANSFORMER];
    m->room_bytes = 0;
    m->staging_bytes = m->weight_bytes = 0;
    for (int32_t i = 0; i < oz_qwen_image_mod_parts(&p->transformer); i++) {
        struct oz_arena room;
        struct oz_load_stats stats = {0};
        oz_arena_init_measure(&room, "modulation");
        OZ_TRY(load_part(p, i, &room, &c->report, &stats, NULL, err));
        m->room_bytes = room.used_bytes > m->room_bytes ? room.used_bytes : m->room_bytes;
        m->staging_bytes =
            stats.staging_bytes > m->staging_bytes ? stats.staging_bytes : m->staging_bytes;
        m->weight_bytes += stats.arena_bytes + stats.mapped_bytes;
    }
    return OZ_OK;
}

/* ---- timesteps ---- */

float oz_modulation_time(const struct oz_modulation *m, float time)
{
    return m->mode == OZ_MODULATION_GRID ? oz_bf16_to_f32(oz_f32_to_bf16(time)) : time;
}

int64_t oz_modulation_row(const struct oz_modulation *m, float time)
{
    for (int64_t i = 0; i < m->count; i++) {
        if (m->times[i] == time) {
            return i;
        }
    }
    return -1;
}

/* bf16's numbers from 1 down, as their bits go. */
static void list_grid(float *times)
{
    uint16_t one = oz_f32_to_bf16(1.0F);
    for (int32_t i = 0; i < OZ_MODULATION_GRID_ROWS; i++) {
        times[i] = oz_bf16_to_f32((uint16_t)(one - i));
    }
}

static enum oz_status list_times(struct oz_modulation *m, const float *times, int64_t count,
                                 struct oz_error *err)
{
    bool grid = m->mode == OZ_MODULATION_GRID;
    int64_t rows = grid ? OZ_MODULATION_GRID_ROWS : count;
    m->times = oz_alloc((size_t)rows * sizeof *m->times);
    if (m->times == NULL) {
        return OZ_FAIL_NOMEM(err, "timesteps");
    }
    m->count = rows;
    if (grid) {
        list_grid(m->times);
    } else {
        memcpy(m->times, times, (size_t)count * sizeof *times);
    }
    return OZ_OK;
}

/* ---- the table ---- */

static void drop(struct oz_modulation *m, struct oz_device *dev)
{
    oz_free(m->times);
    oz_free(m->acts);
    if (dev != NULL) {
        dev->free(dev, m->memory);
    }
    m->times = NULL;
    m->acts = NULL;
    m->memory = NULL;
    m->count = 0;
    m->bytes = 0;
}

void oz_modulation_deinit(struct oz_modulation *m, struct oz_device *dev)
{
    drop(m, dev);
    *m = (struct oz_modulation){0};
}

static struct oz_act *new_acts(const struct oz_pipeline *p)
{
    return oz_alloc_zero(2 * (size_t)p->transformer.config.layers, sizeof(struct oz_act));
}

/* The step arena's peak while a table of so many rows is filled. */
static enum oz_status measure_fill(const struct oz_pipeline *p, const struct oz_qwen_image_mod *mod,
                                   size_t *bytes, struct oz_error *err)
{
    struct oz_arena step;
    struct oz_exec x;
    oz_arena_init_measure(&step, "modulation");
    oz_exec_init(&x, p->dev, OZ_EXEC_MEASURE, &step, err);
    oz_qwen_image_mod_fill(&x, &p->transformer, mod, NULL);
    *bytes = step.peak_bytes;
    return x.status;
}

/* Of what making a table takes besides the table itself. */
struct making {
    size_t step, times; /* and modulation->room_bytes */
};

static size_t making_bytes(const struct oz_modulation *m, const struct making *making)
{
    return making->step + making->times + m->room_bytes;
}

static enum oz_status measure(const struct oz_pipeline *p, int64_t rows, size_t *table,
                              struct making *making, struct oz_error *err)
{
    struct oz_arena arena;
    struct oz_qwen_image_mod mod;
    struct oz_act *acts = new_acts(p);
    oz_arena_init_measure(&arena, "modulation");
    if (acts == NULL ||
        oz_qwen_image_mod_init(&mod, &p->transformer, rows, acts, &arena) != OZ_OK) {
        oz_free(acts);
        return OZ_FAIL_NOMEM(err, "the modulation table");
    }
    *table = arena.used_bytes;
    making->times = (size_t)rows * sizeof(float);
    enum oz_status status = measure_fill(p, &mod, &making->step, err);
    oz_free(acts);
    return status;
}

enum oz_status oz_modulation_measure(const struct oz_pipeline *p, int64_t timesteps,
                                     struct oz_modulation_bytes *bytes, struct oz_error *err)
{
    const struct oz_modulation *m = p->modulation;
    int64_t rows = m->mode == OZ_MODULATION_GRID ? OZ_MODULATION_GRID_ROWS : timesteps;
    struct making making;
    *bytes = (struct oz_modulation_bytes){0};
    OZ_TRY(measure(p, rows, &bytes->table, &making, err));
    bytes->making = making_bytes(m, &making) + (size_t)m->staging_bytes;
    return OZ_OK;
}

/* ---- making it ---- */

/* Memory that is there only while a table is made. */
struct workshop {
    struct oz_load_ring ring;
    void *room, *step, *times; /* device */
    struct making bytes;
    struct oz_arena arena;
};

static enum oz_status open_workshop(struct workshop *w, const struct oz_pipeline *p,
                                    struct oz_error *err)
{
    struct oz_device *dev = p->dev;
    struct oz_modulation *m = p->modulation;
    OZ_TRY(measure(p, m->count, &m->bytes, &w->bytes, err));
    int64_t free_bytes;
    int64_t total_bytes;
    size_t need = m->bytes + making_bytes(m, &w->bytes);
    OZ_TRY(dev->memory(dev, &free_bytes, &total_bytes, err));
    if (free_bytes >= 0 && need > (size_t)free_bytes) {
        return OZ_FAIL(err, OZ_ERR_NOMEM,
                       "Out of memory on %s: a modulation table of %lld timesteps takes %zu bytes, "
                       "and %zu more while it is made; %lld are available of %lld.",
                       dev->name, (long long)m->count, m->bytes, need - m->bytes,
                       (long long)free_bytes, (long long)total_bytes);
    }
    OZ_TRY(dev->alloc(dev, m->bytes, &m->memory, err));
    OZ_TRY(dev->alloc(dev, w->bytes.times, &w->times, err));
    OZ_TRY(dev->alloc(dev, w->bytes.step, &w->step, err));
    if (m->room_bytes > 0) {
        OZ_TRY(dev->alloc(dev, m->room_bytes, &w->room, err));
    }
    m->acts = new_acts(p);
    struct oz_arena table;
    oz_arena_init_view(&table, "modulation", m->memory, m->bytes, dev->host_memory);
    enum oz_status status = m->acts != NULL ? oz_qwen_image_mod_init(&m->mod, &p->transformer,
                                                                     m->count, m->acts, &table)
                                            : OZ_ERR_NOMEM;
    oz_arena_deinit(&table);
    return status == OZ_OK ? OZ_OK : OZ_FAIL(err, status, "There is no room for a table.");
}

/* What was loaded is gone: nothing points to it. */
static void forget_part(const struct oz_pipeline *p, int32_t part)
{
    const struct oz_layer_table *t = &p->components[OZ_COMPONENT_TRANSFORMER].table;
    for (int32_t i = 0; i < t->count; i++) {
        struct oz_param *param = t->rows[i].bind;
        if (oz_qwen_image_mod_part(&p->transformer, &t->rows[i]) == part) {
            const struct oz_weight *w = &param->weight;
            param->weight = oz_weight_shape(w->codec, w->slices, w->rows, w->cols);
            param->packed = NULL;
        }
    }
}

static enum oz_status make_part(struct workshop *w, const struct oz_pipeline *p, int32_t part,
                                oz_modulation_begin_fn begin, void *ctx, struct oz_error *err)
{
    const struct oz_modulation *m = p->modulation;
    struct oz_device *dev = p->dev;
    struct oz_load_stats stats = {0};
    struct oz_arena room;
    oz_arena_init_view(&room, "modulation", w->room, m->room_bytes, dev->host_memory);
    enum oz_status status =
        load_part(p, part, &room, NULL, &stats, oz_pipeline_ring(p, &w->ring), err);
    if (status == OZ_OK) {
        struct oz_exec x = begin(ctx, OZ_EXEC_RUN, &w->arena);
        oz_offload_need(p, OZ_COMPONENT_TRANSFORMER, &x); /* what embeds the timesteps */
        x.block = NULL; /* what is read of blocks has just been loaded */
        oz_exec_upload(&x, w->times, m->times, w->bytes.times);
        oz_qwen_image_mod_fill_part(&x, &p->transformer, &m->mod, w->times, part, 1);
        status = x.status == OZ_OK ? dev->wait(dev, x.queue, err) : x.status;
    }
    oz_arena_deinit(&room);
    forget_part(p, part);
    return status;
}

static enum oz_status make_all(struct workshop *w, const struct oz_pipeline *p,
                               oz_modulation_begin_fn begin, void *ctx, struct oz_error *err)
{
    OZ_TRY(open_workshop(w, p, err));
    oz_arena_init_view(&w->arena, "modulation", w->step, w->bytes.step, p->dev->host_memory);
    for (int32_t i = 0; i < oz_qwen_image_mod_parts(&p->transformer); i++) {
        OZ_TRY(make_part(w, p, i, begin, ctx, err));
    }
    return oz_ckpt_check(p->components[OZ_COMPONENT_TRANSFORMER].ckpt, err);
}

enum oz_status oz_modulation_check(const struct oz_modulation *m, const float *times, int64_t count,
                                   struct oz_error *err)
{
    for (int64_t i = 0; i < count && m->mode == OZ_MODULATION_GRID; i++) {
        float time = oz_modulation_time(m, times[i]);
        if (!(time >= OZ_MODULATION_GRID_LEAST && time <= 1.0F)) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "Timestep %g of the schedule lies outside of the modulation grid, which "
                           "reaches from %g to 1: take fewer steps, or modulation resident or "
                           "schedule.",
                           (double)times[i], (double)OZ_MODULATION_GRID_LEAST);
        }
    }
    return OZ_OK;
}

static bool has_all(const struct oz_modulation *m, const float *times, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (oz_modulation_row(m, oz_modulation_time(m, times[i])) < 0) {
            return false;
        }
    }
    return m->count > 0;
}

enum oz_status oz_modulation_prepare(const struct oz_pipeline *p, const float *times, int64_t count,
                                     oz_modulation_begin_fn begin, void *ctx, struct oz_error *err)
{
    struct oz_modulation *m = p->modulation;
    struct workshop w = {0};
    OZ_TRY(oz_modulation_check(m, times, count, err));
    if (has_all(m, times, count)) {
        return OZ_OK;
    }
    drop(m, p->dev);
    enum oz_status status = list_times(m, times, count, err);
    if (status == OZ_OK) {
        status = make_all(&w, p, begin, ctx, err);
    }
    oz_arena_deinit(&w.arena);
    oz_load_ring_deinit(&w.ring, p->dev);
    p->dev->free(p->dev, w.room);
    p->dev->free(p->dev, w.step);
    p->dev->free(p->dev, w.times);
    if (status != OZ_OK) {
        drop(m, p->dev);
    }
    return status;
}
