#include "study/variant.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "ckpt/table.h"
#include "pipe/find.h"
#include "pipe/quantize.h"
#include "pipe/sequence.h"

/* ---- opening ---- */

/* A text that is a name or an object goes where names go, a file where configs go. */
static enum oz_status read_request(const struct oz_variant *asked, struct oz_request **out,
                                   struct oz_error *err)
{
    struct oz_request_text text = {.ignored_layers = asked->ignored_layers,
                                   .ignored_count = asked->ignored_count};
    const char *q = asked->quantization;
    *out = NULL;
    if (q == NULL) {
        return OZ_OK;
    }
    if (q[0] != '{' && (strchr(q, '/') != NULL || strchr(q, '.') != NULL)) {
        text.config = q;
    } else {
        text.quantization = q;
    }
    return oz_request_create(out, &text, err);
}

static void count_bytes(struct oz_variant_run *v)
{
    const struct oz_pipeline *p = v->pipeline;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *c = &p->components[i];
        int64_t bytes = c->loaded.arena_bytes + c->loaded.mapped_bytes;
        v->bytes.resident += bytes;
        v->bytes.transformer += i == OZ_COMPONENT_TRANSFORMER ? bytes : 0;
        for (int32_t k = 0; k < oz_ckpt_file_count(c->ckpt); k++) {
            v->bytes.disk += oz_ckpt_file(c->ckpt, k)->bytes;
        }
    }
    const struct oz_component *t = &p->components[OZ_COMPONENT_TRANSFORMER];
    for (int64_t k = 0; k < t->report.count; k++) {
        const struct oz_load_entry *e = &t->report.entries[k];
        if (e->row >= 0 && t->table.rows[e->row].role == OZ_ROLE_MODULATION) {
            v->bytes.transformer_modulation +=
                e->fate == OZ_FATE_MAPPED ? e->tensor->bytes : e->resident_bytes;
        }
    }
}

static enum oz_status take_summary(struct oz_variant_run *v, struct oz_error *err)
{
    struct oz_component *c = &v->pipeline->components[OZ_COMPONENT_TRANSFORMER];
    struct oz_arena memory = c->assign_memory; /* a copy: the line is given back */
    const char *line;
    if (c->assignment.quantized == 0 ||
        oz_assignment_summary(&c->assignment, &memory, &line, NULL) != OZ_OK) {
        return OZ_OK;
    }
    v->summary = oz_strdup(line);
    return v->summary != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a variant's summary");
}

enum oz_status oz_variant_open(struct oz_variant_run *v, const struct oz_variant *asked,
                               const struct oz_variant_setting *how, struct oz_error *err)
{
    char *path;
    oz_alloc_trim(); /* of the one before, which is no part of this one's peak */
    *v = (struct oz_variant_run){.bytes = {.peak_of_process = !oz_memory_peak_reset("")}};
    double start = oz_clock_seconds();
    OZ_TRY(read_request(asked, &v->request, err));
    OZ_TRY(oz_model_find(asked->model, &path, err));
    const struct oz_pipeline_options options = {.max_header_bytes = how->max_header_bytes,
                                                .modulation = how->modulation};
    enum oz_status status = oz_pipeline_open(&v->pipeline, path, &options, err);
    oz_free(path);
    OZ_TRY(status);
    OZ_TRY(oz_pipeline_assign(v->pipeline, how->dev, v->request, asked->keep,
                              asked->allow_unmatched, err));
    oz_pipeline_log_assignments(v->pipeline, v->request);
    OZ_TRY(oz_pipeline_load(v->pipeline, how->dev, how->progress, how->progress_ctx, err));
    v->load_s = oz_clock_seconds() - start;
    count_bytes(v);
    OZ_TRY(take_summary(v, err));
    return oz_dispatch_watch_init(&v->watch, v->pipeline, err);
}

void oz_variant_close(struct oz_variant_run *v)
{
    oz_dispatch_watch_deinit(&v->watch);
    oz_pipeline_close(&v->pipeline);
    oz_request_destroy(&v->request);
    oz_free(v->summary);
    *v = (struct oz_variant_run){0};
}

void oz_variant_read_peak(struct oz_variant_run *v)
{
    int64_t peak = oz_memory_peak("");
    v->bytes.peak = peak > 0 ? peak : 0;
}

/* ---- drawing ---- */

enum oz_status oz_variant_shape(const struct oz_pipeline *p, const struct oz_task *task,
                                struct oz_trajectory_shape *shape, struct oz_error *err)
{
    struct oz_sequence s = {0};
    OZ_TRY(oz_sequence_init(&s, p, task, 0, err));
    *shape = (struct oz_trajectory_shape){
        .values = s.image_rows * p->transformer.config.in_channels, .steps = task->steps};
    oz_sequence_deinit(&s, NULL);
    return OZ_OK;
}

static void take(struct oz_drawing *d, const struct oz_act *from, float *to)
{
    if (d->status != OZ_OK) {
        return;
    }
    if (from->rows * from->cols != d->shape.values || from->stride != from->cols) {
        d->status = OZ_FAIL(
            d->err, OZ_ERR_INTERNAL, "Latents of %lld x %lld values, where %lld were expected.",
            (long long)from->rows, (long long)from->cols, (long long)d->shape.values);
        return;
    }
    d->status = d->dev->download(d->dev, NULL, to, from->data, (size_t)d->shape.values * sizeof *to,
                                 d->err);
    if (d->status == OZ_OK) {
        d->status = d->dev->wait(d->dev, NULL, d->err);
    }
}

static void take_prediction(void *ctx, const struct oz_sequence *s, const struct oz_act *velocity)
{
    struct oz_drawing *d = ctx;
    (void)s;
    if (d->step_predictions++ == 0) {
        take(d, velocity, d->prediction);
    }
}

static void take_latents(void *ctx, const struct oz_sequence *s, const struct oz_act *latents)
{
    struct oz_drawing *d = ctx;
    (void)s;
    if (d->step_latents < d->shape.steps) {
        take(d, latents, d->latents + d->step_latents++ * d->shape.values);
    }
}

enum oz_status oz_variant_draw(struct oz_variant_run *v, const struct oz_task *task,
                               struct oz_drawing *d, oz_progress_fn progress, void *progress_ctx,
                               struct oz_error *err)
{
    struct oz_run_stats stats;
    const struct oz_run_hooks hooks = {
        .batch = {.prediction = take_prediction, .latents = take_latents, .ctx = d}};
    const struct oz_run run = {.pipeline = v->pipeline,
                               .max_batch = 1,
                               .progress = progress,
                               .progress_ctx = progress_ctx,
                               .hooks = &hooks,
                               .watch = d->watch != NULL ? d->watch : oz_dispatch_watch_op,
                               .watch_ctx = d->watch != NULL ? d->watch_ctx : &v->watch};
    oz_free(d->picture);
    d->picture = NULL;
    d->dev = v->pipeline->dev;
    d->step_predictions = d->step_latents = 0;
    d->status = OZ_OK;
    d->err = err;
    OZ_TRY(oz_run_generate(&run, task, 1, &d->picture, &stats, err));
    OZ_TRY(d->status);
    int64_t bytes = (int64_t)(stats.measured.step + stats.measured.plan + stats.measured.sequences);
    v->bytes.run = bytes > v->bytes.run ? bytes : v->bytes.run;
    d->text_s = stats.text_s;
    d->denoise_s = stats.denoise_s;
    d->decode_s = stats.decode_s;
    return OZ_OK;
}
