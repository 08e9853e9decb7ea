#include "pipe/generate.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "pipe/mod_rows.h"
#include "pipe/stages.h"

/* One call of oz_run_generate. */
struct run {
    const struct oz_run *args;
    const struct oz_pipeline *p;
    struct oz_device *dev;
    struct oz_error *err;
    struct oz_run_stats *stats;

    struct oz_sequence *sequences; /* [count] */
    int32_t count, joined, done;
    struct oz_sequence **active; /* [max_batch] */
    int32_t active_count, max_batch;
    int64_t steps_done, steps_total;
    int32_t texts_done, texts_total;

    struct oz_mod_rows rows; /* the distinct timesteps of all schedules */
    struct oz_act *mod_acts;
    struct oz_qwen_image_mod mod;
    struct oz_batch batch;

    void *step_memory, *plan_memory;
    struct oz_arena step, plan;
    size_t plan_mark; /* the composition's part begins here */
    float *device_timesteps;
    struct oz_latent_scale latents;
    void *text_host;         /* staging of the text encoder's inputs */
    struct oz_progress told; /* what was reported last */
    double told_s;           /* and when */
    float **pictures;
};

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

#define ASK_SECONDS 0.1 /* between two questions within a step */

/* A step of a large picture takes minutes: whoever watches is asked within it, too, with the figures
 * as they were. */
static bool wants_stop(void *ctx)
{
    struct run *r = ctx;
    double now = oz_clock_seconds();
    if (r->args->progress == NULL || now - r->told_s < ASK_SECONDS) {
        return false;
    }
    r->told_s = now;
    return r->args->progress(r->args->progress_ctx, &r->told) != 0;
}

static struct oz_exec begin(struct run *r, enum oz_exec_mode mode, struct oz_arena *step)
{
    struct oz_exec x;
    oz_exec_init(&x, r->dev, mode, step, r->err);
    if (mode == OZ_EXEC_RUN) {
        x.trace = r->args->trace;
        x.dump = r->args->dump;
        x.dump_ctx = r->args->dump_ctx;
        x.watch = r->args->watch;
        x.watch_ctx = r->args->watch_ctx;
        x.stop = wants_stop;
        x.stop_ctx = r;
    }
    return x;
}

static enum oz_status report(struct run *r, enum oz_stage stage, int32_t picture, int64_t done,
                             int64_t total)
{
    OZ_TRY(oz_pipeline_check_files(r->p, r->err)); /* what was computed came from whole files */
    r->told = (struct oz_progress){.struct_size = sizeof r->told,
                                   .stage = stage,
                                   .picture = picture,
                                   .done = done,
                                   .total = total};
    r->told_s = oz_clock_seconds();
    if (r->args->progress != NULL && r->args->progress(r->args->progress_ctx, &r->told) != 0) {
        return OZ_FAIL(r->err, OZ_ERR_CANCELLED, "Interrupted; nothing was written.");
    }
    return OZ_OK;
}

/* ---- text ---- */

/* Host bytes of the staging of all texts, one at a time. */
static size_t text_host_bytes(const struct run *r)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < r->count; i++) {
        bytes = most(bytes, oz_stage_text_host_bytes(&r->sequences[i], r->p));
    }
    return bytes;
}

static enum oz_status join(struct run *r)
{
    struct oz_sequence *s = &r->sequences[r->joined];
    double start = oz_clock_seconds();
    OZ_TRY(oz_sequence_join(s, r->p, r->err));
    for (int j = 0; j < s->branches; j++) {
        struct oz_exec x = begin(r, OZ_EXEC_RUN, &r->step);
        oz_stage_text(&x, r->p, s, j, r->text_host);
        OZ_TRY(oz_stage_finish(&x));
        if (r->args->hooks != NULL && r->args->hooks->text != NULL) {
            r->args->hooks->text(r->args->hooks->ctx, s, j);
        }
        OZ_TRY(report(r, OZ_STAGE_TEXT, s->index, ++r->texts_done, r->texts_total));
    }
    r->active[r->active_count++] = s;
    r->joined++;
    r->stats->text_s += oz_clock_seconds() - start;
    return OZ_OK;
}

/* ---- the modulation table ---- */

/* The distinct timesteps of all schedules; every sequence learns its rows. */
static enum oz_status collect_timesteps(struct run *r)
{
    int64_t most_rows = 0;
    for (int32_t i = 0; i < r->count; i++) {
        most_rows += r->sequences[i].task.steps;
    }
    OZ_TRY(oz_mod_rows_init(&r->rows, most_rows, r->err));
    r->mod_acts = oz_alloc_zero(2 * (size_t)r->p->transformer.config.layers, sizeof *r->mod_acts);
    if (r->mod_acts == NULL) {
        return OZ_FAIL_NOMEM(r->err, "schedules");
    }
    for (int32_t i = 0; i < r->count; i++) {
        struct oz_sequence *s = &r->sequences[i];
        if (!oz_mod_rows_take(&r->rows, &r->p->scheduler, s)) {
            return OZ_FAIL(r->err, OZ_ERR_INTERNAL, "The timesteps do not fit their table.");
        }
    }
    return OZ_OK;
}

/* The part of the plan arena that lives as long as the run. */
static enum oz_status lay_out_plan(struct run *r, struct oz_arena *plan)
{
    void *memory;
    OZ_TRY(oz_arena_push(plan, (size_t)r->rows.count * sizeof(float), &memory));
    r->device_timesteps = memory;
    OZ_TRY(oz_latent_scale_init(&r->latents, r->p, plan));
    if (oz_modulation_stays(r->p)) {
        OZ_TRY(
            oz_qwen_image_mod_init(&r->mod, &r->p->transformer, r->rows.count, r->mod_acts, plan));
    }
    r->plan_mark = oz_arena_mark(plan);
    return OZ_OK;
}

static enum oz_status fill_plan(struct run *r)
{
    double start = oz_clock_seconds();
    struct oz_exec x = begin(r, OZ_EXEC_RUN, &r->step);
    oz_exec_upload(&x, r->device_timesteps, r->rows.times, (size_t)r->rows.count * sizeof(float));
    oz_latent_scale_fill(&x, &r->latents, r->p);
    if (oz_modulation_stays(r->p)) {
        oz_offload_need(r->p, OZ_COMPONENT_TRANSFORMER, &x);
        oz_qwen_image_mod_fill(&x, &r->p->transformer, &r->mod, r->device_timesteps);
    }
    enum oz_status status = oz_stage_finish(&x);
    r->stats->denoise_s += oz_clock_seconds() - start;
    return status;
}

static struct oz_exec begin_table(void *ctx, enum oz_exec_mode mode, struct oz_arena *step)
{
    return begin(ctx, mode, step);
}

/* Where the weights do not stay: the table that the pipeline keeps, made anew if need be. */
static enum oz_status take_table(struct run *r)
{
    const struct oz_modulation *m = r->p->modulation;
    double start = oz_clock_seconds();
    OZ_TRY(oz_modulation_prepare(r->p, r->rows.times, r->rows.count, begin_table, r, r->err));
    for (int32_t i = 0; i < r->count; i++) {
        struct oz_sequence *s = &r->sequences[i];
        for (int32_t k = 0; k < s->task.steps; k++) {
            float time = oz_modulation_time(m, r->rows.times[s->mod_rows[k]]);
            s->mod_rows[k] = (int32_t)oz_modulation_row(m, time);
        }
    }
    r->stats->denoise_s += oz_clock_seconds() - start;
    return OZ_OK;
}

/* ---- decoding ---- */

static enum oz_status deliver(struct run *r, struct oz_sequence *s)
{
    double start = oz_clock_seconds();
    struct oz_exec x = begin(r, OZ_EXEC_RUN, &r->step);
    enum oz_status status = oz_stage_draw(&x, r->p, s, &r->latents, &r->pictures[s->index]);
    if (status == OZ_OK) {
        r->done++;
        r->stats->pictures++;
        status = report(r, OZ_STAGE_DECODE, s->index, r->done, r->count);
    }
    oz_sequence_leave(s, r->dev);
    r->stats->decode_s += oz_clock_seconds() - start;
    return status;
}

/* ---- measuring ---- */

/* Step bytes of text, modulation and decoding. */
static enum oz_status measure_stages(struct run *r, size_t *bytes)
{
    struct oz_arena step;
    oz_arena_init_measure(&step, "step");
    struct oz_exec x = begin(r, OZ_EXEC_MEASURE, &step);
    if (oz_modulation_stays(r->p)) {
        oz_qwen_image_mod_fill(&x, &r->p->transformer, &r->mod, r->device_timesteps);
    }
    for (int32_t i = 0; i < r->count && oz_exec_ok(&x); i++) {
        struct oz_sequence *s = &r->sequences[i];
        for (int j = 0; j < s->branches; j++) {
            oz_stage_text(&x, r->p, s, j, r->text_host);
        }
        size_t mark = oz_exec_mark(&x);
        struct oz_act pixels = oz_exec_act(&x, (int64_t)s->task.width * s->task.height, 3);
        oz_stage_decode(&x, r->p, s, &r->latents, &pixels);
        oz_exec_reset(&x, mark);
    }
    *bytes = most(*bytes, step.peak_bytes);
    return x.status;
}

/* Step and plan bytes of one composition. */
static enum oz_status measure_composition(struct run *r, struct oz_sequence **members,
                                          int32_t count, struct oz_run_bytes *bytes)
{
    struct oz_arena step;
    struct oz_arena plan;
    oz_arena_init_measure(&step, "step");
    oz_arena_init_measure(&plan, "plan");
    struct oz_exec x = begin(r, OZ_EXEC_MEASURE, &step);
    oz_batch_compose(&x, &r->batch, members, count, &plan);
    oz_batch_step(&x, &r->batch);
    bytes->step = most(bytes->step, step.peak_bytes);
    bytes->plan = most(bytes->plan, plan.peak_bytes);
    return x.status;
}

/* Walks through the run's compositions: first come, first served, at most max_batch together. */
static enum oz_status measure_compositions(struct run *r, struct oz_run_bytes *bytes)
{
    int32_t joined = 0;
    int32_t count = 0;
    struct oz_sequence **members = r->active;
    enum oz_status status = OZ_OK;
    do {
        while (count < r->max_batch && joined < r->count) {
            members[count++] = &r->sequences[joined++];
        }
        int32_t steps = members[0]->task.steps - members[0]->step;
        size_t sequences = 0;
        for (int32_t i = 0; i < count; i++) {
            int32_t left = members[i]->task.steps - members[i]->step;
            steps = left < steps ? left : steps;
            sequences += oz_sequence_bytes(members[i], r->p);
        }
        bytes->sequences = most(bytes->sequences, sequences);
        status = measure_composition(r, members, count, bytes);
        int32_t kept = 0;
        for (int32_t i = 0; i < count; i++) {
            members[i]->step += steps;
            if (members[i]->step < members[i]->task.steps) {
                members[kept++] = members[i];
            }
        }
        count = kept;
    } while (status == OZ_OK && (count > 0 || joined < r->count));
    for (int32_t i = 0; i < r->count; i++) {
        r->sequences[i].step = 0;
    }
    return status;
}

static enum oz_status init_batch(struct run *r)
{
    int64_t image_rows = 0;
    int64_t text_rows = 0;
    for (int32_t i = 0; i < r->count; i++) { /* any max_batch of them may meet */
        const struct oz_sequence *s = &r->sequences[i];
        int64_t image = s->image_rows * s->branches;
        int64_t text = s->text_rows[0] + s->text_rows[1];
        image_rows = image > image_rows ? image : image_rows;
        text_rows = text > text_rows ? text : text_rows;
    }
    if (image_rows > INT32_MAX / r->max_batch || text_rows > INT32_MAX / r->max_batch) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "A batch of %d such pictures has too many tokens.",
                       r->max_batch);
    }
    OZ_TRY(oz_batch_init(&r->batch, r->p, r->max_batch, image_rows * r->max_batch,
                         text_rows * r->max_batch, r->err));
    r->batch.mod = &r->mod;
    r->batch.hooks = r->args->hooks != NULL ? &r->args->hooks->batch : NULL;
    return OZ_OK;
}

/* The system may promise more memory than there is and end the process when it is used, so what the
 * run takes is held against what there is before anything is taken. */
static enum oz_status check_memory(const struct run *r, const struct oz_run_bytes *bytes)
{
    int64_t free_bytes;
    int64_t total_bytes;
    OZ_TRY(r->dev->memory(r->dev, &free_bytes, &total_bytes, r->err));
    size_t device = bytes->step + bytes->plan + bytes->sequences;
    size_t need = device + (r->dev->host_memory ? bytes->pictures : 0);
    if (free_bytes < 0 || need <= (size_t)free_bytes) {
        return OZ_OK;
    }
    return OZ_FAIL(r->err, OZ_ERR_NOMEM,
                   "Out of memory on %s: the run takes %zu bytes (%zu for one step, %zu for the "
                   "plan, %zu for what is under way, %zu for pictures), %lld are available of "
                   "%lld. Ask for smaller pictures, or for fewer together.",
                   r->dev->name, need, bytes->step, bytes->plan, bytes->sequences, need - device,
                   (long long)free_bytes, (long long)total_bytes);
}

/* Shapes of a table that is not there yet; what it takes, and making it. */
static enum oz_status measure_table(struct run *r, struct oz_run_bytes *bytes)
{
    struct oz_modulation_bytes m;
    struct oz_arena table;
    OZ_TRY(oz_modulation_measure(r->p, r->rows.count, &m, r->err));
    bytes->table = m.table;
    bytes->making = m.making;
    oz_arena_init_measure(&table, "modulation");
    return oz_qwen_image_mod_init(&r->mod, &r->p->transformer, r->rows.count, r->mod_acts, &table);
}

/* What everything takes, from shapes alone. */
static enum oz_status measure(struct run *r, struct oz_run_bytes *bytes)
{
    struct oz_arena fixed;
    size_t largest = 0;
    *bytes = (struct oz_run_bytes){0};
    oz_arena_init_measure(&fixed, "plan");
    if (lay_out_plan(r, &fixed) != OZ_OK) {
        return OZ_FAIL_NOMEM(r->err, "the plan");
    }
    if (!oz_modulation_stays(r->p)) {
        OZ_TRY(measure_table(r, bytes));
    }
    for (int32_t i = 0; i < r->count; i++) {
        oz_stage_sketch(&r->sequences[i], r->p);
        size_t picture = oz_stage_picture_bytes(&r->sequences[i].task);
        bytes->pictures += picture;
        largest = most(largest, picture);
    }
    OZ_TRY(measure_stages(r, &bytes->step));
    OZ_TRY(measure_compositions(r, bytes));
    bytes->plan += fixed.used_bytes;
    bytes->pictures += largest; /* the pixels of the one that is being decoded */
    return OZ_OK;
}

/* Says first what everything takes, then takes it. */
static enum oz_status reserve(struct run *r)
{
    struct oz_run_bytes bytes;
    OZ_TRY(measure(r, &bytes));
    r->stats->measured = bytes;
    OZ_TRY(check_memory(r, &bytes));
    OZ_TRY(r->dev->alloc(r->dev, bytes.step, &r->step_memory, r->err));
    OZ_TRY(r->dev->alloc(r->dev, bytes.plan, &r->plan_memory, r->err));
    oz_arena_init_view(&r->step, "step", r->step_memory, bytes.step, r->dev->host_memory);
    oz_arena_init_view(&r->plan, "plan", r->plan_memory, bytes.plan, r->dev->host_memory);
    r->text_host = oz_alloc(text_host_bytes(r));
    if (r->text_host == NULL) {
        return OZ_FAIL_NOMEM(r->err, "the text encoder's positions");
    }
    if (lay_out_plan(r, &r->plan) != OZ_OK) {
        return OZ_FAIL_NOMEM(r->err, "the plan");
    }
    return OZ_OK;
}

/* ---- running ---- */

/* Steps until a member is done. Nothing in here allocates. */
static enum oz_status step_until_leave(struct run *r, struct oz_exec *x)
{
    uint64_t allocs = oz_alloc_calls();
    bool leaves = false;
    enum oz_status status = OZ_OK;
    while (!leaves && status == OZ_OK) {
        oz_batch_step(x, &r->batch);
        status = oz_stage_finish(x);
        for (int32_t i = 0; i < r->active_count && status == OZ_OK; i++) {
            leaves = leaves || r->active[i]->step == r->active[i]->task.steps;
            r->steps_done++;
        }
        if (status == OZ_OK) {
            status = report(r, OZ_STAGE_DENOISE, -1, r->steps_done, r->steps_total);
        }
    }
    r->stats->loop_allocs += oz_alloc_calls() - allocs;
    return status;
}

static enum oz_status denoise(struct run *r)
{
    double start = oz_clock_seconds();
    struct oz_exec x = begin(r, OZ_EXEC_RUN, &r->step);
    oz_arena_reset(&r->plan, r->plan_mark);
    oz_batch_compose(&x, &r->batch, r->active, r->active_count, &r->plan);
    enum oz_status status = oz_stage_finish(&x);
    if (status == OZ_OK) {
        status = step_until_leave(r, &x);
    }
    r->stats->denoise_s += oz_clock_seconds() - start;
    return status;
}

/* Decodes those that are done; the others stay in their order. */
static enum oz_status deliver_done(struct run *r)
{
    int32_t kept = 0;
    enum oz_status status = OZ_OK;
    for (int32_t i = 0; i < r->active_count; i++) {
        struct oz_sequence *s = r->active[i];
        if (s->step < s->task.steps || status != OZ_OK) {
            r->active[kept++] = s;
        } else {
            status = deliver(r, s);
        }
    }
    r->active_count = kept;
    return status;
}

static enum oz_status run_all(struct run *r)
{
    double uploads = r->p->offload->upload_s;
    if (!oz_modulation_stays(r->p)) { /* first: what making it takes is given back again */
        OZ_TRY(take_table(r));
    }
    OZ_TRY(reserve(r));
    if (!oz_modulation_stays(r->p)) {
        r->mod = r->p->modulation->mod;
        r->stats->used.table = r->p->modulation->bytes;
    }
    size_t held = 0;
    while (r->done < r->count) {
        bool first = r->joined == 0;
        while (r->active_count < r->max_batch && r->joined < r->count) {
            OZ_TRY(join(r));
        }
        if (first) { /* behind the texts: where weights are offloaded, those of the steps read it, too */
            OZ_TRY(fill_plan(r));
        }
        held = 0;
        for (int32_t i = 0; i < r->active_count; i++) {
            held += r->active[i]->arena.peak_bytes;
        }
        r->stats->used.sequences = most(r->stats->used.sequences, held);
        OZ_TRY(denoise(r));
        OZ_TRY(deliver_done(r));
    }
    r->stats->used.step = r->step.peak_bytes;
    r->stats->used.plan = r->plan.peak_bytes;
    r->stats->steps = r->steps_done;
    r->stats->upload_s = r->p->offload->upload_s - uploads;
    return OZ_OK;
}

static enum oz_status start(struct run *r, const struct oz_task *tasks)
{
    r->sequences = oz_alloc_zero((size_t)r->count, sizeof *r->sequences);
    r->active = oz_alloc_zero((size_t)r->max_batch, sizeof *r->active);
    if (r->sequences == NULL || r->active == NULL) {
        return OZ_FAIL_NOMEM(r->err, "the requests");
    }
    for (int32_t i = 0; i < r->count; i++) {
        OZ_TRY(oz_sequence_init(&r->sequences[i], r->p, &tasks[i], i, r->err));
        r->steps_total += tasks[i].steps;
        r->texts_total += r->sequences[i].branches;
    }
    OZ_TRY(collect_timesteps(r));
    return init_batch(r);
}

static void clean_up(struct run *r, enum oz_status status)
{
    for (int32_t i = 0; i < r->count && r->sequences != NULL; i++) {
        oz_sequence_deinit(&r->sequences[i], r->dev);
        if (status != OZ_OK) {
            oz_free(r->pictures[i]);
            r->pictures[i] = NULL;
        }
    }
    oz_batch_deinit(&r->batch);
    oz_arena_deinit(&r->step);
    oz_arena_deinit(&r->plan);
    r->dev->free(r->dev, r->step_memory);
    r->dev->free(r->dev, r->plan_memory);
    oz_free(r->text_host);
    oz_free(r->mod_acts);
    oz_mod_rows_deinit(&r->rows);
    oz_free((void *)r->active);
    oz_free(r->sequences);
}

enum oz_status oz_run_measure(const struct oz_run *args, const struct oz_task *tasks, int32_t count,
                              struct oz_run_bytes *bytes, struct oz_error *err)
{
    struct oz_run_stats stats = {0};
    struct run r = {.args = args,
                    .p = args->pipeline,
                    .dev = args->pipeline->dev,
                    .err = err,
                    .stats = &stats,
                    .count = count,
                    .max_batch = args->max_batch < count ? args->max_batch : count};
    *bytes = (struct oz_run_bytes){0};
    enum oz_status status = start(&r, tasks);
    if (status == OZ_OK) {
        status = measure(&r, bytes);
    }
    clean_up(&r, OZ_OK);
    return status;
}

enum oz_status oz_run_generate(const struct oz_run *args, const struct oz_task *tasks,
                               int32_t count, float **pictures, struct oz_run_stats *stats,
                               struct oz_error *err)
{
    *stats = (struct oz_run_stats){0};
    memset((void *)pictures, 0, (size_t)count * sizeof *pictures);
    struct run r = {.args = args,
                    .p = args->pipeline,
                    .dev = args->pipeline->dev,
                    .err = err,
                    .stats = stats,
                    .count = count,
                    .max_batch = args->max_batch < count ? args->max_batch : count,
                    .pictures = pictures,
                    .told = {.struct_size = sizeof r.told, .stage = OZ_STAGE_TEXT, .picture = -1}};
    r.told_s = oz_clock_seconds();
    enum oz_status status = start(&r, tasks);
    if (status == OZ_OK) {
        status = run_all(&r);
    }
    clean_up(&r, status);
    return status;
}
