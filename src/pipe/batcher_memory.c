/*
 * What a batcher's sequences take together, and the memory for it: three rooms (step arena, modulation
 * table, composition), each replaced as a whole when more is needed, while nothing is in it that cannot
 * be made again; and what each sequence brings along.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "pipe/batcher_inner.h"

#define FILL_ROWS 64 /* of the table that are computed at once */
#define NO_ROWS 1    /* of a table that nobody reads, for the pipeline has the grid */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- measuring ---- */

/* The table's part of the memory; the same code measures and does. */
static enum oz_status lay_out_table(const struct oz_pipeline *p, int64_t rows, struct oz_act *acts,
                                    struct oz_arena *arena, struct oz_qwen_image_mod *mod,
                                    struct oz_latent_scale *latents, float **times)
{
    void *memory;
    OZ_TRY(oz_arena_push(arena, (size_t)rows * sizeof(float), &memory));
    *times = memory;
    OZ_TRY(oz_latent_scale_init(latents, p, arena));
    return oz_qwen_image_mod_init(mod, &p->transformer, rows, acts, arena);
}

/* A view of `count` rows of the table. acts: [2 * layers]. */
static struct oz_qwen_image_mod table_rows(const struct oz_qwen_image_mod *mod, int32_t layers,
                                           int64_t first, int64_t count, struct oz_act *acts)
{
    for (int32_t i = 0; i < layers; i++) {
        acts[i] = oz_act_rows(&mod->image[i], first, count);
        acts[layers + i] = oz_act_rows(&mod->text[i], first, count);
    }
    return (struct oz_qwen_image_mod){.rows = count,
                                      .image = acts,
                                      .text = acts + layers,
                                      .final = oz_act_rows(&mod->final, first, count)};
}

/* Things that only measuring needs. */
struct probe {
    struct oz_arena step, table, plan;
    struct oz_batch batch;
    struct oz_act *acts; /* [4 * layers]: of the table, and of a view of it */
    struct oz_qwen_image_mod mod;
    struct oz_latent_scale latents;
    float *times;
    struct oz_exec x;
};

static void close_probe(struct probe *m)
{
    oz_batch_deinit(&m->batch);
    oz_free(m->acts);
}

static enum oz_status open_probe(struct probe *m, const struct oz_batcher *b, int32_t capacity,
                                 int64_t mod_rows, struct oz_error *err)
{
    memset(m, 0, sizeof *m);
    oz_arena_init_measure(&m->step, "step");
    oz_arena_init_measure(&m->table, "table");
    oz_arena_init_measure(&m->plan, "plan");
    m->acts = oz_alloc_zero(4 * (size_t)b->p->transformer.config.layers, sizeof *m->acts);
    enum oz_status status = m->acts != NULL ? oz_batch_init(&m->batch, b->p, capacity, 0, 0, err)
                                            : OZ_FAIL_NOMEM(err, "measuring");
    if (status == OZ_OK && lay_out_table(b->p, mod_rows, m->acts, &m->table, &m->mod, &m->latents,
                                         &m->times) != OZ_OK) {
        status = OZ_FAIL_NOMEM(err, "the modulation table");
    }
    if (status != OZ_OK) {
        close_probe(m);
        return status;
    }
    m->batch.mod = &m->mod;
    oz_exec_init(&m->x, b->dev, OZ_EXEC_MEASURE, &m->step, err);
    return OZ_OK;
}

/* What a set takes; stages apart. */
static enum oz_status measure_set(const struct oz_batcher *b, struct oz_sequence *const *members,
                                  int32_t count, int64_t mod_rows, struct oz_batch_need *need,
                                  struct oz_error *err)
{
    struct probe m;
    *need = (struct oz_batch_need){.mod_rows = mod_rows};
    for (int32_t i = 0; i < count; i++) {
        need->image_rows += members[i]->image_rows * members[i]->branches;
        need->text_rows += members[i]->text_rows[0] + members[i]->text_rows[1];
    }
    if (need->image_rows > INT32_MAX || need->text_rows > INT32_MAX) {
        return OZ_FAIL(err, OZ_ERR_NOMEM, "%d such pictures together have too many tokens.", count);
    }
    OZ_TRY(open_probe(&m, b, count, mod_rows, err));
    int64_t fill = mod_rows < FILL_ROWS ? mod_rows : FILL_ROWS;
    int32_t layers = b->p->transformer.config.layers;
    struct oz_qwen_image_mod part =
        table_rows(&m.mod, layers, 0, fill, m.acts + 2 * (size_t)layers);
    oz_qwen_image_mod_fill(&m.x, &b->p->transformer, &part, m.times);
    oz_batch_compose(&m.x, &m.batch, members, count, &m.plan);
    oz_batch_step(&m.x, &m.batch);
    need->step = m.step.peak_bytes;
    need->table = m.table.used_bytes;
    need->plan = m.plan.peak_bytes;
    close_probe(&m);
    return m.x.status;
}

/* Step bytes of a ticket's own stages. */
static enum oz_status measure_stages(const struct oz_batcher *b, struct oz_ticket *t,
                                     struct oz_error *err)
{
    struct oz_arena step;
    struct oz_exec x;
    struct oz_latent_scale scale;
    struct oz_sequence *s = &t->sequence;
    oz_arena_init_measure(&step, "step");
    if (oz_latent_scale_init(&scale, b->p, &step) != OZ_OK) {
        return OZ_FAIL_NOMEM(err, "the plan");
    }
    oz_arena_reset(&step, 0);
    oz_exec_init(&x, b->dev, OZ_EXEC_MEASURE, &step, err);
    for (int j = 0; j < s->branches; j++) {
        oz_stage_text(&x, b->p, s, j, NULL);
    }
    size_t mark = oz_exec_mark(&x);
    struct oz_act pixels = oz_exec_act(&x, (int64_t)t->task.width * t->task.height, 3);
    oz_stage_decode(&x, b->p, s, &scale, &pixels);
    oz_exec_reset(&x, mark);
    if (t->preview_every > 0) {
        oz_stage_measure_preview(&x, b->p, s);
    }
    t->stage_bytes = step.peak_bytes;
    return x.status;
}

static size_t total(const struct oz_batch_need *n)
{
    return n->step + n->table + n->plan + n->sequences + n->pictures;
}

static enum oz_status fail_too_large(const struct oz_batcher *b, const struct oz_task *t,
                                     const struct oz_batch_need *n, struct oz_error *err)
{
    return OZ_FAIL(
        err, OZ_ERR_NOMEM,
        "Out of memory on %s: a picture of %d x %d in %d steps takes %zu bytes even "
        "alone (%zu for one step, %zu for the plan, %zu for what is under way, %zu for the "
        "picture), this service may take %zu. Ask for a smaller picture or fewer steps.",
        b->dev->name, t->width, t->height, t->steps, total(n), n->step, n->table + n->plan,
        n->sequences, n->pictures, b->limit);
}

enum oz_status oz_batcher_measure_ticket(const struct oz_batcher *b, struct oz_ticket *t,
                                         struct oz_error *err)
{
    struct oz_batch_need need;
    struct oz_sequence *s = &t->sequence;
    oz_stage_sketch(s, b->p);
    OZ_TRY(measure_stages(b, t, err));
    bool own = oz_modulation_stays(b->p);
    for (int32_t k = 0; k < t->task.steps; k++) {
        float time = oz_sched_flow_model_time(&b->p->scheduler, s->sigmas[k]);
        OZ_TRY(oz_modulation_check(b->p->modulation, &time, 1, err));
    }
    OZ_TRY(measure_set(b, &s, 1, own ? t->task.steps : NO_ROWS, &need, err));
    t->sequence_bytes = oz_sequence_bytes(s, b->p);
    /* Twice while it is decoded. */
    t->picture_bytes = b->dev->host_memory ? 2 * oz_stage_picture_bytes(&t->task) : 0;
    t->rows = need.image_rows + need.text_rows;
    need.step = larger(need.step, t->stage_bytes);
    need.sequences = t->sequence_bytes;
    need.pictures = t->picture_bytes;
    return total(&need) <= b->limit ? OZ_OK : fail_too_large(b, &t->task, &need, err);
}

/* Distinct timesteps of all that run and of `t`, at most. */
static int64_t rows_needed(const struct oz_batcher *b, const struct oz_ticket *t)
{
    int64_t rows = 0;
    if (!oz_modulation_stays(b->p)) {
        return NO_ROWS;
    }
    for (int64_t i = 0; i < b->rows.count; i++) {
        rows += b->rows.users[i] > 0;
    }
    for (int32_t k = 0; k < t->task.steps; k++) {
        float time = oz_sched_flow_model_time(&b->p->scheduler, t->sequence.sigmas[k]);
        int64_t i = 0;
        while (i < b->rows.count && (b->rows.times[i] != time || b->rows.users[i] == 0)) {
            i++;
        }
        rows += i == b->rows.count;
    }
    return rows;
}

/* All that run and `t` together. */
static enum oz_status measure_with(struct oz_batcher *b, struct oz_ticket *t,
                                   struct oz_batch_need *need, struct oz_error *err)
{
    int32_t n = b->active_count;
    size_t stages = t->stage_bytes;
    size_t sequences = b->sequences + t->sequence_bytes;
    size_t pictures = t->picture_bytes;
    for (int32_t i = 0; i < n; i++) {
        b->wanted[i] = &b->active[i]->sequence;
        stages = larger(stages, b->active[i]->stage_bytes);
        pictures += b->active[i]->picture_bytes;
    }
    b->wanted[n] = &t->sequence;
    OZ_TRY(measure_set(b, b->wanted, n + 1, rows_needed(b, t), need, err));
    need->step = larger(need->step, stages);
    need->sequences = sequences;
    need->pictures = pictures;
    return OZ_OK;
}

/* ---- rooms ---- */

static void close_room(struct oz_batcher *b, struct oz_room *r)
{
    oz_arena_deinit(&r->arena);
    b->dev->free(b->dev, r->memory);
    r->memory = NULL;
    r->arena = (struct oz_arena){0};
}

static size_t room_bytes(const struct oz_room *r)
{
    return r->arena.capacity_bytes;
}

/* The bytes that are held now, into the figures. */
void oz_batcher_note_bytes(struct oz_batcher *b, size_t also)
{
    size_t step = room_bytes(&b->step);
    size_t plan = room_bytes(&b->table) + room_bytes(&b->plan);
    pthread_mutex_lock(&b->lock);
    b->stats.step_bytes = step;
    b->stats.plan_bytes = plan;
    b->stats.sequence_bytes = b->sequences;
    b->stats.peak_bytes = larger(b->stats.peak_bytes, step + plan + b->sequences + also);
    pthread_mutex_unlock(&b->lock);
}

/* Takes a new memory before the old one goes, which stays after a failure. */
static enum oz_status replace_room(struct oz_batcher *b, struct oz_room *r, size_t bytes,
                                   struct oz_error *err)
{
    void *memory;
    OZ_TRY(b->dev->alloc(b->dev, bytes, &memory, err));
    oz_batcher_note_bytes(b, bytes);
    close_room(b, r);
    r->memory = memory;
    oz_arena_init_view(&r->arena, r->name, memory, bytes, b->dev->host_memory);
    oz_batcher_note_bytes(b, 0);
    return OZ_OK;
}

static enum oz_status grow_room(struct oz_batcher *b, struct oz_room *r, size_t bytes,
                                struct oz_error *err)
{
    return bytes <= room_bytes(r) ? OZ_OK : replace_room(b, r, bytes, err);
}

enum oz_status oz_batcher_reserve_step(struct oz_batcher *b, size_t bytes, struct oz_error *err)
{
    return grow_room(b, &b->step, bytes, err);
}

static void close_table(struct oz_batcher *b)
{
    close_room(b, &b->table);
    oz_mod_rows_deinit(&b->rows);
    b->mod = (struct oz_qwen_image_mod){0};
}

void oz_batcher_free_rooms(struct oz_batcher *b)
{
    close_room(b, &b->step);
    close_room(b, &b->plan);
    close_table(b);
    oz_batch_deinit(&b->batch);
}

/* Gives each step of a sequence its row. False: there is no room. */
static bool take_rows(struct oz_batcher *b, struct oz_sequence *s)
{
    if (oz_modulation_stays(b->p)) {
        return oz_mod_rows_take(&b->rows, &b->p->scheduler, s);
    }
    for (int32_t k = 0; k < s->task.steps; k++) {
        float time = oz_sched_flow_model_time(&b->p->scheduler, s->sigmas[k]);
        s->mod_rows[k] = (int32_t)oz_modulation_row(b->p->modulation,
                                                    oz_modulation_time(b->p->modulation, time));
    }
    return room_bytes(&b->table) > 0;
}

void oz_batcher_release_rows(struct oz_batcher *b, struct oz_ticket *t)
{
    if (oz_modulation_stays(b->p)) {
        oz_mod_rows_release(&b->rows, &t->sequence);
    }
}

/* Behind a table that has been laid out: the grid is there already, but for what decoding takes. */
static enum oz_status take_grid(struct oz_batcher *b, struct oz_error *err)
{
    struct oz_exec x = oz_batcher_begin(b, NULL, err);
    b->mod = b->p->modulation->mod;
    oz_latent_scale_fill(&x, &b->latents, b->p);
    return oz_stage_finish(&x);
}

/* A table with so many rows; those that run get theirs anew, and none is filled. */
static enum oz_status replace_table(struct oz_batcher *b, const struct oz_batch_need *need,
                                    struct oz_error *err)
{
    struct oz_mod_rows rows;
    OZ_TRY(oz_mod_rows_init(&rows, need->mod_rows, err));
    enum oz_status status = replace_room(b, &b->table, need->table, err);
    if (status != OZ_OK) {
        oz_mod_rows_deinit(&rows);
        return status;
    }
    oz_mod_rows_deinit(&b->rows);
    b->rows = rows;
    status = lay_out_table(b->p, need->mod_rows, b->mod_acts, &b->table.arena, &b->mod, &b->latents,
                           &b->device_times);
    for (int32_t i = 0; i < b->active_count && status == OZ_OK; i++) {
        bool fits = take_rows(b, &b->active[i]->sequence);
        status = fits ? OZ_OK : OZ_ERR_INTERNAL;
    }
    if (status != OZ_OK) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL, "The modulation table was measured wrong.");
    }
    return oz_modulation_stays(b->p) ? OZ_OK : take_grid(b, err);
}

/* What would be held when `need` has room, each room as large as it is if that is enough; and the most
 * on the way there, when an old room still is beside the new one. */
static size_t held_on_the_way(const struct oz_batcher *b, const struct oz_batch_need *need)
{
    const struct oz_room *rooms[] = {&b->step, &b->table, &b->plan};
    const size_t needs[] = {need->step, need->table, need->plan};
    size_t held = need->sequences + need->pictures;
    size_t old = 0;
    for (int i = 0; i < 3; i++) {
        size_t have = room_bytes(rooms[i]);
        held += larger(have, needs[i]);
        old = larger(old, have < needs[i] ? have : 0);
    }
    return held + old;
}

/* Nothing runs: rooms that are in the way go first. */
static bool clear_for(struct oz_batcher *b, const struct oz_batch_need *need)
{
    if (held_on_the_way(b, need) > b->limit) {
        close_room(b, &b->step);
        close_room(b, &b->plan);
        close_table(b);
        oz_batcher_note_bytes(b, 0);
    }
    return held_on_the_way(b, need) <= b->limit;
}

enum oz_status oz_batcher_fit(struct oz_batcher *b, struct oz_ticket *t, enum oz_batcher_fit *fit,
                              struct oz_error *err)
{
    struct oz_batch_need *need = &b->need;
    *fit = OZ_FITS;
    OZ_TRY(measure_with(b, t, need, err));
    if (b->active_count == 0) {
        return clear_for(b, need) ? OZ_OK : fail_too_large(b, &t->task, need, err);
    }
    *fit = held_on_the_way(b, need) <= b->limit ? OZ_FITS : OZ_WAITS;
    return OZ_OK;
}

/* Host arrays for compositions of so many rows. */
static enum oz_status grow_batch(struct oz_batcher *b, const struct oz_batch_need *need,
                                 struct oz_error *err)
{
    struct oz_batch batch;
    if (b->batch.members != NULL && need->image_rows <= b->batch.max_image_rows &&
        need->text_rows <= b->batch.max_text_rows) {
        return OZ_OK;
    }
    OZ_TRY(oz_batch_init(&batch, b->p, b->options.max_num_seqs, need->image_rows, need->text_rows,
                         err));
    batch.mod = &b->mod;
    oz_batch_deinit(&b->batch);
    b->batch = batch;
    return OZ_OK;
}

/* Computes `count` rows of the table from `first` on. */
static enum oz_status fill_rows(struct oz_batcher *b, int64_t first, int64_t count,
                                struct oz_act *acts, struct oz_error *err)
{
    struct oz_exec x;
    struct oz_arena measure;
    int32_t layers = b->p->transformer.config.layers;
    struct oz_qwen_image_mod part = table_rows(&b->mod, layers, first, count, acts);
    float *times = (float *)((uintptr_t)b->device_times + (size_t)first * sizeof *times);
    oz_arena_init_measure(&measure, "step");
    oz_exec_init(&x, b->dev, OZ_EXEC_MEASURE, &measure, err);
    oz_qwen_image_mod_fill(&x, &b->p->transformer, &part, times);
    OZ_TRY(x.status);
    OZ_TRY(oz_batcher_reserve_step(b, measure.peak_bytes, err));
    x = oz_batcher_begin(b, NULL, err);
    oz_latent_scale_fill(&x, &b->latents, b->p);
    oz_exec_upload(&x, times, b->rows.times + first, (size_t)count * sizeof *times);
    oz_offload_need(b->p, OZ_COMPONENT_TRANSFORMER, &x);
    oz_qwen_image_mod_fill(&x, &b->p->transformer, &part, times);
    OZ_TRY(oz_stage_finish(&x));
    memset(b->rows.filled + first, true, (size_t)count);
    return OZ_OK;
}

/* Computes all rows that are needed and not there. */
static enum oz_status fill_table(struct oz_batcher *b, struct oz_error *err)
{
    struct oz_act *acts = oz_alloc_zero(2 * (size_t)b->p->transformer.config.layers, sizeof *acts);
    enum oz_status status = acts != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "the modulation table");
    int64_t row = 0;
    while (status == OZ_OK && row < b->rows.count) {
        int64_t end = row;
        while (end < b->rows.count && end - row < FILL_ROWS && !b->rows.filled[end] &&
               b->rows.users[end] > 0) {
            end++;
        }
        if (end > row) {
            status = fill_rows(b, row, end - row, acts, err);
        }
        row = end > row ? end : row + 1;
    }
    oz_free(acts);
    return status;
}

enum oz_status oz_batcher_make_room(struct oz_batcher *b, struct oz_ticket *t, struct oz_error *err)
{
    const struct oz_batch_need *need = &b->need;
    b->composed = false; /* its memory may go */
    OZ_TRY(grow_room(b, &b->step, need->step, err));
    OZ_TRY(grow_room(b, &b->plan, need->plan, err));
    OZ_TRY(grow_batch(b, need, err));
    if (!take_rows(b, &t->sequence)) {
        OZ_TRY(replace_table(b, need, err));
        if (!take_rows(b, &t->sequence)) {
            return OZ_FAIL(err, OZ_ERR_INTERNAL, "The modulation table was measured wrong.");
        }
    }
    return OZ_OK;
}

enum oz_status oz_batcher_fit_members(struct oz_batcher *b, struct oz_error *err)
{
    struct oz_batch_need need;
    OZ_TRY(measure_set(b, b->members, b->member_count, b->rows.capacity, &need, err));
    for (int32_t i = 0; i < b->active_count; i++) {
        need.step = larger(need.step, b->active[i]->stage_bytes);
        need.pictures += b->active[i]->picture_bytes;
    }
    need.sequences = b->sequences;
    if (held_on_the_way(b, &need) > b->limit && b->member_count > 1) {
        return OZ_FAIL(err, OZ_ERR_NOMEM,
                       "%d pictures together take %zu bytes of memory; there may be %zu.",
                       b->member_count, held_on_the_way(b, &need), b->limit);
    }
    OZ_TRY(grow_room(b, &b->step, need.step, err));
    OZ_TRY(grow_room(b, &b->plan, need.plan, err));
    OZ_TRY(grow_batch(b, &need, err));
    return fill_table(b, err);
}
