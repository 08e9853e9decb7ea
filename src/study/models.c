#include "study/models.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "media/png.h"
#include "media/rgb.h"
#include "study/hash.h"
#include "study/ssim.h"

#define EARLY_STEPS 5    /* decisions: fidelity is judged first after five */
#define WARMUP_STEPS 2   /* of a warm-up picture: enough to touch everything once */
#define SAVE_SECONDS 5.0 /* between two writes of partial results */
#define MAX_PNG_BYTES ((size_t)INT32_MAX)
#define MAX_DOCUMENT_BYTES ((size_t)512 << 20)

/* ---- where things lie in the scratch file ---- */

static int64_t pixels(const struct oz_model_comparison *c)
{
    return (int64_t)c->tasks[0].width * c->tasks[0].height;
}

static int64_t prediction_offset(const struct oz_model_comparison *c, int32_t task)
{
    int64_t values = c->shape.values * (1 + (int64_t)c->shape.steps) + 3 * pixels(c);
    int64_t pictures = c->args->keep_pictures ? (1 + (int64_t)c->args->count) * 3 * pixels(c) : 0;
    return task * (values * (int64_t)sizeof(float) + pictures);
}

static int64_t latents_offset(const struct oz_model_comparison *c, int32_t task, int32_t step)
{
    return prediction_offset(c, task) +
           c->shape.values * (1 + (int64_t)step) * (int64_t)sizeof(float);
}

static int64_t floats_offset(const struct oz_model_comparison *c, int32_t task)
{
    return latents_offset(c, task, c->shape.steps);
}

/* variant -1: the reference. */
static int64_t picture_offset(const struct oz_model_comparison *c, int32_t variant, int32_t task)
{
    return floats_offset(c, task) + 3 * pixels(c) * (int64_t)sizeof(float) +
           (1 + (int64_t)variant) * 3 * pixels(c);
}

enum oz_status oz_model_comparison_picture(const struct oz_model_comparison *c, int32_t variant,
                                           int32_t task, uint8_t *rgb, struct oz_error *err)
{
    return oz_scratch_read(&c->scratch, rgb, 3 * pixels(c), picture_offset(c, variant, task), err);
}

/* ---- progress and partial results ---- */

struct telling {
    struct oz_model_comparison *c;
    bool counts; /* steps; a warm-up's do not */
};

static int tell(void *ctx, const struct oz_progress *now)
{
    const struct telling *t = ctx;
    const struct oz_model_comparison *c = t->c;
    if (c->args->progress == NULL) {
        return 0;
    }
    int64_t steps = t->counts && now->stage == OZ_STAGE_DENOISE ? now->done : 0;
    steps = t->counts && now->stage == OZ_STAGE_DECODE ? c->shape.steps : steps;
    const struct oz_progress p = {.struct_size = sizeof p,
                                  .stage = OZ_STAGE_STUDY,
                                  .picture = -1,
                                  .done = c->steps_done + steps,
                                  .total = c->steps_total};
    return c->args->progress(c->args->progress_ctx, &p);
}

static enum oz_status save_document(struct oz_model_comparison *c, struct oz_error *err)
{
    struct oz_buf b;
    if (c->args->output_json == NULL) {
        return OZ_OK;
    }
    oz_buf_init(&b, MAX_DOCUMENT_BYTES);
    oz_model_comparison_json(c, &b);
    enum oz_status status =
        b.status == OZ_OK ? oz_file_write(c->args->output_json, b.data, b.bytes, err)
                          : OZ_FAIL(err, b.status, "The comparison is too large for a document.");
    oz_buf_deinit(&b);
    c->saved_s = oz_clock_seconds();
    return status;
}

/* ---- pictures as files ---- */

char *oz_model_picture_path(const struct oz_model_comparison *c, const struct oz_model_result *r,
                            int32_t task)
{
    struct oz_buf b;
    oz_buf_init(&b, 1U << 16);
    oz_buf_printf(&b, "%s/%s/image_%d.png", c->args->save_folder, r->asked.label, task);
    char *path = oz_buf_take(&b);
    oz_buf_deinit(&b);
    return path;
}

static enum oz_status save_picture(const struct oz_model_comparison *c,
                                   const struct oz_model_result *r, int32_t task,
                                   const uint8_t *rgb, struct oz_error *err)
{
    struct oz_buf png;
    char *path = oz_model_picture_path(c, r, task);
    char *folder = oz_file_join(c->args->save_folder, r->asked.label);
    oz_buf_init(&png, MAX_PNG_BYTES);
    enum oz_status status = path != NULL && folder != NULL
                                ? oz_file_make_folder(c->args->save_folder, err)
                                : OZ_FAIL_NOMEM(err, "a picture");
    if (status == OZ_OK) {
        status = oz_file_make_folder(folder, err);
    }
    if (status == OZ_OK) {
        status = oz_png_encode(rgb, (uint32_t)c->tasks[task].width, (uint32_t)c->tasks[task].height,
                               NULL, 0, &png, err);
    }
    if (status == OZ_OK) {
        status = oz_file_write(path, png.data, png.bytes, err);
    }
    oz_buf_deinit(&png);
    oz_free(path);
    oz_free(folder);
    return status;
}

/* A picture of an earlier run into the scratch file. False: it is not there, or another's. */
static bool take_saved(const struct oz_model_comparison *c, const struct oz_model_result *r,
                       int32_t variant, int32_t task)
{
    struct oz_error ignored;
    struct oz_png png = {0};
    char *path = c->args->save_folder != NULL ? oz_model_picture_path(c, r, task) : NULL;
    bool taken = path != NULL && oz_file_exists(path) &&
                 oz_picture_read(path, &png, &ignored) == OZ_OK &&
                 (int64_t)png.width * png.height == pixels(c) &&
                 oz_hash_bytes(OZ_HASH_START, png.rgb, (size_t)(3 * pixels(c))) ==
                     r->pictures[task].picture_hash &&
                 oz_scratch_write(&c->scratch, png.rgb, 3 * pixels(c),
                                  picture_offset(c, variant, task), &ignored) == OZ_OK;
    oz_png_deinit(&png);
    oz_free(path);
    return taken;
}

/* ---- one picture ---- */

/* Buffers of the pictures of one variant. */
struct work {
    struct oz_model_comparison *c;
    struct oz_model_result *result;
    int32_t variant; /* -1: the reference */
    struct oz_variant_run run;
    struct oz_drawing drawing;
    float *other;     /* [values] or [3 pixels], whichever is more: the reference's */
    uint8_t *rgb[2];  /* [3 pixels]: the variant's, the reference's */
    double *times[3]; /* [runs] of text, denoising, decoding */
    bool own;         /* a failure now is the variant's and not the study's */
};

static void work_deinit(struct work *w)
{
    oz_variant_close(&w->run);
    oz_free(w->drawing.prediction);
    oz_free(w->drawing.latents);
    oz_free(w->drawing.picture);
    oz_free(w->other);
    oz_free(w->rgb[0]);
    oz_free(w->rgb[1]);
    for (int i = 0; i < 3; i++) {
        oz_free(w->times[i]);
    }
}

static enum oz_status work_init(struct work *w, struct oz_error *err)
{
    const struct oz_model_comparison *c = w->c;
    size_t values = (size_t)c->shape.values;
    size_t planes = 3 * (size_t)pixels(c);
    w->drawing.shape = c->shape;
    w->drawing.prediction = oz_alloc_zero(values, sizeof(float));
    w->drawing.latents = oz_alloc_zero(values * (size_t)c->shape.steps, sizeof(float));
    w->other = oz_alloc_zero(values > planes ? values : planes, sizeof(float));
    w->rgb[0] = oz_alloc(planes);
    w->rgb[1] = oz_alloc(planes);
    bool there = w->drawing.prediction != NULL && w->drawing.latents != NULL && w->other != NULL &&
                 w->rgb[0] != NULL && w->rgb[1] != NULL;
    for (int i = 0; i < 3; i++) {
        w->times[i] = oz_alloc_zero((size_t)c->args->measure_runs, sizeof(double));
        there = there && w->times[i] != NULL;
    }
    return there ? OZ_OK : OZ_FAIL_NOMEM(err, "a variant's latents");
}

static enum oz_status keep_reference(const struct work *w, int32_t task, struct oz_error *err)
{
    const struct oz_model_comparison *c = w->c;
    const struct oz_drawing *d = &w->drawing;
    int64_t bytes = c->shape.values * (int64_t)sizeof(float);
    OZ_TRY(oz_scratch_write(&c->scratch, d->prediction, bytes, prediction_offset(c, task), err));
    OZ_TRY(oz_scratch_write(&c->scratch, d->latents, bytes * c->shape.steps,
                            latents_offset(c, task, 0), err));
    return oz_scratch_write(&c->scratch, d->picture, 3 * pixels(c) * (int64_t)sizeof(float),
                            floats_offset(c, task), err);
}

static enum oz_status compare_latents(const struct work *w, int32_t task,
                                      struct oz_model_picture *p, struct oz_error *err)
{
    const struct oz_model_comparison *c = w->c;
    const struct oz_drawing *d = &w->drawing;
    size_t values = (size_t)c->shape.values;
    int64_t bytes = c->shape.values * (int64_t)sizeof(float);
    OZ_TRY(oz_scratch_read(&c->scratch, w->other, bytes, prediction_offset(c, task), err));
    oz_distance_add_f32(&p->prediction, w->other, d->prediction, values);
    for (int32_t k = 0; k < c->shape.steps; k++) {
        struct oz_distance step = {0};
        OZ_TRY(oz_scratch_read(&c->scratch, w->other, bytes, latents_offset(c, task, k), err));
        oz_distance_add_f32(&step, w->other, d->latents + (size_t)k * values, values);
        p->step_relative_l2[k] = oz_distance_metrics(&step, 0).relative_l2;
        oz_distance_add(&p->trajectory, &step);
        if (k + 1 == EARLY_STEPS || (k + 1 == c->shape.steps && k + 1 < EARLY_STEPS)) {
            p->early = step;
        }
        if (k + 1 == c->shape.steps) {
            p->latents = step;
        }
    }
    return OZ_OK;
}

static enum oz_status compare_pixels(const struct work *w, int32_t task, struct oz_model_picture *p,
                                     struct oz_error *err)
{
    const struct oz_model_comparison *c = w->c;
    int64_t height = c->tasks[task].height, width = c->tasks[task].width;
    size_t planes = 3 * (size_t)pixels(c);
    OZ_TRY(oz_scratch_read(&c->scratch, w->other, (int64_t)(planes * sizeof(float)),
                           floats_offset(c, task), err));
    oz_rgb_from_planes(w->other, planes / 3, w->rgb[1]);
    oz_distance_add_u8(&p->bytes, w->rgb[1], w->rgb[0], planes);
    oz_distance_add_f32(&p->floats, w->other, w->drawing.picture, planes);
    struct oz_pixels a = oz_pixels_rgb(w->rgb[1], height, width);
    struct oz_pixels b = oz_pixels_rgb(w->rgb[0], height, width);
    OZ_TRY(oz_ssim(&a, &b, OZ_SSIM_GAUSSIAN, &p->ssim, err));
    OZ_TRY(oz_ssim(&a, &b, OZ_SSIM_UNIFORM, &p->ssim_uniform, err));
    a = oz_pixels_planes(w->other, height, width);
    b = oz_pixels_planes(w->drawing.picture, height, width);
    return oz_ssim(&a, &b, OZ_SSIM_GAUSSIAN, &p->ssim_float, err);
}

/* Draws a task, as often as it is measured, and takes what there is to be taken. */
static enum oz_status draw(struct work *w, int32_t task, struct oz_error *err)
{
    struct oz_model_comparison *c = w->c;
    struct oz_model_picture fresh = {
        .done = true, .step_relative_l2 = w->result->steps + (int64_t)task * c->shape.steps};
    struct telling telling = {.c = c, .counts = true};
    w->own = true;
    for (int32_t i = 0; i < c->args->measure_runs; i++) {
        OZ_TRY(oz_variant_draw(&w->run, &c->tasks[task], &w->drawing, tell, &telling, err));
        w->times[0][i] = w->drawing.text_s;
        w->times[1][i] = w->drawing.denoise_s;
        w->times[2][i] = w->drawing.decode_s;
        c->steps_done += c->shape.steps;
    }
    w->own = false;
    fresh.text_s = oz_median(w->times[0], c->args->measure_runs);
    fresh.denoise_s = oz_median(w->times[1], c->args->measure_runs);
    fresh.decode_s = oz_median(w->times[2], c->args->measure_runs);
    oz_rgb_from_planes(w->drawing.picture, (size_t)pixels(c), w->rgb[0]);
    fresh.picture_hash = oz_hash_bytes(OZ_HASH_START, w->rgb[0], (size_t)(3 * pixels(c)));
    fresh.trajectory_hash =
        oz_hash_bytes(OZ_HASH_START, w->drawing.latents,
                      (size_t)(c->shape.values * c->shape.steps) * sizeof(float));
    if (w->variant < 0) {
        OZ_TRY(keep_reference(w, task, err));
    } else {
        OZ_TRY(compare_latents(w, task, &fresh, err));
        OZ_TRY(compare_pixels(w, task, &fresh, err));
    }
    if (c->args->keep_pictures) {
        OZ_TRY(oz_scratch_write(&c->scratch, w->rgb[0], 3 * pixels(c),
                                picture_offset(c, w->variant, task), err));
    }
    if (c->args->save_folder != NULL) {
        OZ_TRY(save_picture(c, w->result, task, w->rgb[0], err));
    }
    w->result->done += !w->result->pictures[task].done;
    w->result->pictures[task] = fresh;
    return OZ_OK;
}

static enum oz_status warm_up(struct work *w, int32_t task, struct oz_error *err)
{
    struct oz_task t = w->c->tasks[task];
    struct telling telling = {.c = w->c};
    t.steps = t.steps < WARMUP_STEPS ? t.steps : WARMUP_STEPS;
    for (int32_t i = 0; i < w->c->args->warmup_runs; i++) {
        OZ_TRY(oz_variant_draw(&w->run, &t, &w->drawing, tell, &telling, err));
    }
    return OZ_OK;
}

/* ---- one variant ---- */

/* Must it be drawn? A reference's picture is needed for every candidate that lacks the task. */
static bool is_wanted(const struct oz_model_comparison *c, int32_t variant, int32_t task)
{
    const struct oz_model_result *r = variant < 0 ? &c->reference : &c->candidates[variant];
    if (!r->pictures[task].done) {
        return true;
    }
    for (int32_t i = 0; variant < 0 && i < c->args->count; i++) {
        if (!c->candidates[i].pictures[task].done) {
            return true;
        }
    }
    return false;
}

/* Facts that an opened variant has before it draws. */
static enum oz_status take_opened(struct work *w, struct oz_error *err)
{
    struct oz_model_result *r = w->result;
    oz_free(r->summary);
    r->summary = w->run.summary;
    w->run.summary = NULL;
    r->load_s = w->run.load_s;
    r->bytes = w->run.bytes;
    r->opened = true;
    const struct oz_qwen_image_config *a = &w->run.pipeline->transformer.config;
    struct oz_trajectory_shape shape;
    if (w->variant < 0) {
        return OZ_OK;
    }
    OZ_TRY(oz_role_errors_measure(&r->roles, &w->run.pipeline->components[OZ_COMPONENT_TRANSFORMER],
                                  w->run.pipeline->dev->pool, err));
    OZ_TRY(oz_variant_shape(w->run.pipeline, &w->c->tasks[0], &shape, err));
    if (shape.values != w->c->shape.values) {
        return OZ_FAIL(
            err, OZ_ERR_ARG,
            "Its latents have %lld values (%d channels), the reference's %lld; only models "
            "with the same latents can be compared.",
            (long long)shape.values, a->in_channels, (long long)w->c->shape.values);
    }
    return OZ_OK;
}

/* What has been seen once all pictures are drawn. */
static enum oz_status take_finished(struct work *w, struct oz_error *err)
{
    struct oz_model_result *r = w->result;
    oz_variant_read_peak(&w->run);
    r->bytes = w->run.bytes;
    oz_dispatch_deinit(&r->dispatch);
    if (w->variant < 0) {
        oz_free(w->c->idle.hashes);
        OZ_TRY(oz_dispatch_list_idle(&w->run.watch, &w->c->idle, err));
    }
    OZ_TRY(oz_dispatch_judge(&w->run.watch, &w->c->idle, &r->dispatch, err));
    r->dispatched = true;
    return OZ_OK;
}

/* Draws what is wanted. */
static enum oz_status draw_all(struct work *w, struct oz_error *err)
{
    struct oz_model_comparison *c = w->c;
    bool warm = false;
    for (int32_t i = 0; i < c->args->task_count; i++) {
        if (!is_wanted(c, w->variant, i)) {
            continue;
        }
        if (!warm) {
            w->own = true;
            OZ_TRY(warm_up(w, i, err));
            warm = true;
        }
        OZ_TRY(draw(w, i, err));
        if (oz_clock_seconds() - c->saved_s > SAVE_SECONDS && i + 1 < c->args->task_count) {
            OZ_TRY(take_finished(w, err));
            oz_model_result_sum(w->result, c->args->task_count);
            OZ_TRY(save_document(c, err));
        }
    }
    return OZ_OK;
}

/* The scheduler is the reference's, whatever a model's folder says. */
static void share_scheduler(struct work *w, struct oz_sched_flow_config *scheduler)
{
    if (w->variant < 0) {
        *scheduler = w->run.pipeline->scheduler;
    } else {
        w->run.pipeline->scheduler = *scheduler;
    }
}

static bool anything_wanted(const struct oz_model_comparison *c, int32_t variant)
{
    for (int32_t i = 0; i < c->args->task_count; i++) {
        if (is_wanted(c, variant, i)) {
            return true;
        }
    }
    return false;
}

static enum oz_status run_opened(struct work *w, struct oz_sched_flow_config *scheduler,
                                 struct oz_error *err)
{
    share_scheduler(w, scheduler);
    if (!anything_wanted(w->c, w->variant)) {
        return OZ_OK;
    }
    w->own = true;
    OZ_TRY(take_opened(w, err));
    w->own = false;
    OZ_TRY(work_init(w, err));
    OZ_TRY(draw_all(w, err));
    return take_finished(w, err);
}

/* A candidate's own failure is noted. */
static enum oz_status note_failure(struct oz_model_result *r, enum oz_status status,
                                   const struct oz_error *why, struct oz_error *err)
{
    r->status = status;
    r->error = oz_strdup(why->message);
    oz_log(OZ_LOG_WARN, "compare", "%s failed: %s", r->asked.label, why->message);
    return r->error != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a candidate's error");
}

static enum oz_status run_candidate(struct oz_model_comparison *c, int32_t index,
                                    struct oz_sched_flow_config *scheduler, struct oz_error *err)
{
    struct work w = {.c = c, .result = &c->candidates[index], .variant = index, .own = true};
    struct telling telling = {.c = c};
    struct oz_variant_setting how = c->args->how;
    struct oz_error why;
    if (!anything_wanted(c, index)) { /* all of it is from an earlier run */
        oz_model_result_sum(w.result, c->args->task_count);
        return OZ_OK;
    }
    how.progress = tell;
    how.progress_ctx = &telling;
    enum oz_status status = oz_variant_open(&w.run, &w.result->asked, &how, &why);
    if (status == OZ_OK) {
        status = run_opened(&w, scheduler, &why);
    }
    work_deinit(&w);
    oz_model_result_sum(w.result, c->args->task_count);
    if (status == OZ_OK || status == OZ_ERR_CANCELLED || !w.own) {
        if (status != OZ_OK && err != NULL) {
            *err = why;
        }
        return status;
    }
    return note_failure(w.result, status, &why, err);
}

/* ---- the reference, which also says what everything is ---- */

static enum oz_status resolve_tasks(struct oz_model_comparison *c, const struct oz_pipeline *p,
                                    struct oz_error *err)
{
    int32_t count = c->args->task_count;
    for (int32_t i = 0; i < count; i++) {
        struct oz_task t = c->args->tasks[i];
        OZ_TRY(oz_task_resolve(&t, p, count > 1 ? i + 1 : 0, err));
        t.prompt = oz_strdup(t.prompt);
        t.negative_prompt = oz_strdup(t.negative_prompt);
        c->tasks[i] = t;
        if (t.prompt == NULL || t.negative_prompt == NULL) {
            return OZ_FAIL_NOMEM(err, "the prompts");
        }
        const struct oz_task *first = &c->tasks[0];
        if (t.width != first->width || t.height != first->height || t.steps != first->steps) {
            return OZ_FAIL(
                err, OZ_ERR_ARG,
                "Request %d has %d x %d pixels and %d steps, the first %d x %d and %d; a "
                "comparison has one size and one number of steps.",
                i + 1, t.width, t.height, t.steps, first->width, first->height, first->steps);
        }
    }
    return oz_variant_shape(p, &c->tasks[0], &c->shape, err);
}

static enum oz_status alloc_result(const struct oz_model_comparison *c, struct oz_model_result *r,
                                   struct oz_error *err)
{
    size_t tasks = (size_t)c->args->task_count;
    r->pictures = oz_alloc_zero(tasks, sizeof *r->pictures);
    r->steps = oz_alloc_zero(tasks * (size_t)c->shape.steps, sizeof *r->steps);
    if (r->pictures == NULL || r->steps == NULL) {
        return OZ_FAIL_NOMEM(err, "the results");
    }
    for (size_t i = 0; i < tasks; i++) {
        r->pictures[i].step_relative_l2 = r->steps + i * (size_t)c->shape.steps;
    }
    return OZ_OK;
}

/* Pictures that a report needs and that lie nowhere any more are drawn again. */
static void find_saved(struct oz_model_comparison *c)
{
    for (int32_t v = -1; v < c->args->count && c->args->keep_pictures; v++) {
        struct oz_model_result *r = v < 0 ? &c->reference : &c->candidates[v];
        for (int32_t i = 0; i < c->args->task_count; i++) {
            if (r->pictures[i].done && !take_saved(c, r, v, i)) {
                r->pictures[i].done = false;
                r->done--;
            }
        }
    }
}

static void count_steps(struct oz_model_comparison *c)
{
    int64_t runs = 0;
    for (int32_t v = -1; v < c->args->count; v++) {
        for (int32_t i = 0; i < c->args->task_count; i++) {
            runs += is_wanted(c, v, i);
        }
    }
    c->steps_total = runs * c->args->measure_runs * c->shape.steps;
}

/* Everything that needs the reference open but draws nothing. */
static enum oz_status prepare(struct oz_model_comparison *c, struct work *w, struct oz_error *err)
{
    const struct oz_pipeline *p = w->run.pipeline;
    c->model_name = oz_strdup(p->name);
    c->tier = p->dev->tier;
    c->f32_math = p->dev->f32_math;
    c->threads = oz_pool_threads(p->dev->pool);
    if (c->model_name == NULL) {
        return OZ_FAIL_NOMEM(err, "the results");
    }
    OZ_TRY(resolve_tasks(c, p, err));
    OZ_TRY(alloc_result(c, &c->reference, err));
    for (int32_t i = 0; i < c->args->count; i++) {
        OZ_TRY(alloc_result(c, &c->candidates[i], err));
    }
    oz_model_comparison_stamp(c);
    OZ_TRY(oz_scratch_open(&c->scratch,
                           c->args->save_folder != NULL && oz_file_is_folder(c->args->save_folder)
                               ? c->args->save_folder
                               : NULL,
                           err));
    if (c->args->output_json != NULL && oz_file_exists(c->args->output_json)) {
        OZ_TRY(oz_model_comparison_resume(c, err));
        find_saved(c);
    }
    count_steps(c);
    return OZ_OK;
}

static enum oz_status run_reference(struct oz_model_comparison *c,
                                    struct oz_sched_flow_config *scheduler, struct oz_error *err)
{
    struct work w = {.c = c, .result = &c->reference, .variant = -1};
    struct telling telling = {.c = c};
    struct oz_variant_setting how = c->args->how;
    how.progress = tell;
    how.progress_ctx = &telling;
    enum oz_status status = oz_variant_open(&w.run, &c->reference.asked, &how, err);
    if (status == OZ_OK) {
        status = prepare(c, &w, err);
    }
    if (status == OZ_OK) {
        status = run_opened(&w, scheduler, err);
    }
    work_deinit(&w);
    if (status == OZ_OK) {
        oz_model_result_sum(&c->reference, c->args->task_count);
    }
    return status;
}

/* ---- the whole ---- */

static int32_t count_done(const struct oz_model_comparison *c)
{
    int32_t done = 0;
    for (int32_t i = 0; i < c->args->count; i++) {
        done += c->candidates[i].done;
    }
    return done;
}

/* What is done stays; says where. */
static enum oz_status keep_partial(struct oz_model_comparison *c, enum oz_status status,
                                   struct oz_error *err)
{
    struct oz_error ignored;
    const char *path = c->args->output_json;
    int32_t all = c->args->count * c->args->task_count;
    if (status != OZ_ERR_CANCELLED || c->reference.pictures == NULL) {
        return status;
    }
    if (path == NULL) {
        return OZ_FAIL(
            err, status,
            "Interrupted; nothing is kept. With --output-json FILE the same command goes "
            "on from where it was.");
    }
    oz_model_result_sum(&c->reference, c->args->task_count);
    if (save_document(c, &ignored) != OZ_OK) {
        return OZ_FAIL(err, status, "Interrupted, and nothing could be kept: %s", ignored.message);
    }
    return OZ_FAIL(
        err, status,
        "Interrupted; %d of %d compared pictures are kept in %s: the same command goes on "
        "from there.",
        count_done(c), all, path);
}

static enum oz_status run_all(struct oz_model_comparison *c, struct oz_error *err)
{
    struct oz_sched_flow_config scheduler;
    c->saved_s = oz_clock_seconds();
    OZ_TRY(run_reference(c, &scheduler, err));
    for (int32_t i = 0; i < c->args->count; i++) {
        OZ_TRY(run_candidate(c, i, &scheduler, err));
        c->complete = i + 1 == c->args->count;
        OZ_TRY(save_document(c, err));
    }
    return OZ_OK;
}

enum oz_status oz_model_comparison_run(struct oz_model_comparison **out,
                                       const struct oz_model_args *args, struct oz_error *err)
{
    *out = NULL;
    struct oz_model_comparison *c = oz_alloc_zero(1, sizeof *c);
    if (c == NULL) {
        return OZ_FAIL_NOMEM(err, "a comparison");
    }
    c->args = args;
    c->reference.asked = args->reference;
    c->tasks = oz_alloc_zero((size_t)args->task_count, sizeof *c->tasks);
    c->candidates = oz_alloc_zero((size_t)args->count, sizeof *c->candidates);
    enum oz_status status =
        c->tasks != NULL && c->candidates != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a comparison");
    for (int32_t i = 0; i < args->count && status == OZ_OK; i++) {
        c->candidates[i].asked = args->candidates[i];
    }
    if (status == OZ_OK) {
        status = run_all(c, err);
    }
    if (status != OZ_OK) {
        status = keep_partial(c, status, err);
        oz_model_comparison_close(&c);
    }
    *out = c;
    return status;
}

static void result_deinit(struct oz_model_result *r)
{
    oz_free(r->error);
    oz_free(r->summary);
    oz_free(r->pictures);
    oz_free(r->steps);
    oz_dispatch_deinit(&r->dispatch);
}

void oz_model_comparison_close(struct oz_model_comparison **comparison)
{
    struct oz_model_comparison *c = *comparison;
    if (c == NULL) {
        return;
    }
    for (int32_t i = 0; c->tasks != NULL && i < c->args->task_count; i++) {
        oz_free((char *)(uintptr_t)c->tasks[i].prompt);
        oz_free((char *)(uintptr_t)c->tasks[i].negative_prompt);
    }
    for (int32_t i = 0; c->candidates != NULL && i < c->args->count; i++) {
        result_deinit(&c->candidates[i]);
    }
    result_deinit(&c->reference);
    oz_scratch_close(&c->scratch);
    oz_free(c->idle.hashes);
    oz_free(c->model_name);
    oz_free(c->tasks);
    oz_free(c->candidates);
    oz_free(c);
    *comparison = NULL;
}
