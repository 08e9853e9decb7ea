/* sensitivity_search.c: from measurements to a proposal that meets a budget, and its proof. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "media/rgb.h"
#include "study/assignment_text.h"
#include "study/search.h"
#include "study/sensitivity.h"

#define MARGIN_DB 0.3 /* that a proposal aims above its budget: other seeds differ */
#define WIDTH_DB 0.5  /* above that it is near enough */
#define MAX_CONFIG_BYTES ((size_t)OZ_CONFIG_MAX_BYTES)

/* ---- judging a config on the search's own pictures ---- */

struct judge {
    struct oz_sensitivity *s;
    struct oz_task *tasks; /* resolved */
    uint8_t *pictures;     /* [tasks][3 pixels]: the reference's */
    uint8_t *rgb;
    int64_t values; /* 3 pixels */
    struct oz_drawing drawing;
    int64_t steps_done, steps_total;
};

static int tell(void *ctx, const struct oz_progress *now)
{
    const struct judge *j = ctx;
    const struct oz_sensitivity_args *a = j->s->args;
    if (a->progress == NULL) {
        return 0;
    }
    const struct oz_progress out = {.struct_size = sizeof out,
                                    .stage = OZ_STAGE_STUDY,
                                    .picture = -1,
                                    .done = j->steps_done +
                                            (now->stage == OZ_STAGE_DENOISE ? now->done : 0),
                                    .total = j->steps_total};
    return a->progress(a->progress_ctx, &out);
}

static void judge_deinit(struct judge *j)
{
    oz_free(j->tasks);
    oz_free(j->pictures);
    oz_free(j->rgb);
    oz_free(j->drawing.prediction);
    oz_free(j->drawing.latents);
    oz_free(j->drawing.picture);
}

static enum oz_status draw(struct judge *j, struct oz_variant_run *v, int32_t task, uint8_t *rgb,
                           struct oz_error *err)
{
    OZ_TRY(oz_variant_draw(v, &j->tasks[task], &j->drawing, tell, j, err));
    oz_rgb_from_planes(j->drawing.picture, (size_t)(j->values / 3), rgb);
    j->steps_done += j->drawing.shape.steps;
    return OZ_OK;
}

static enum oz_status judge_init(struct judge *j, struct oz_error *err)
{
    const struct oz_sensitivity_args *a = j->s->args;
    struct oz_variant_run *v = &j->s->probe.reference;
    j->tasks = oz_alloc_zero((size_t)a->task_count, sizeof *j->tasks);
    if (j->tasks == NULL) {
        return OZ_FAIL_NOMEM(err, "the prompts");
    }
    for (int32_t i = 0; i < a->task_count; i++) {
        j->tasks[i] = a->tasks[i];
        OZ_TRY(oz_task_resolve(&j->tasks[i], v->pipeline, a->task_count > 1 ? i + 1 : 0, err));
    }
    struct oz_trajectory_shape *shape = &j->drawing.shape;
    OZ_TRY(oz_variant_shape(v->pipeline, &j->tasks[0], shape, err));
    j->values = 3 * (int64_t)j->tasks[0].width * j->tasks[0].height;
    j->steps_total = (int64_t)(1 + OZ_SENSITIVITY_ROUNDS / 2) * a->task_count * shape->steps;
    j->drawing.prediction = oz_alloc_zero((size_t)shape->values, sizeof(float));
    j->drawing.latents = oz_alloc_zero((size_t)(shape->values * shape->steps), sizeof(float));
    j->pictures = oz_alloc_zero((size_t)a->task_count, (size_t)j->values);
    j->rgb = oz_alloc((size_t)j->values);
    if (j->drawing.prediction == NULL || j->drawing.latents == NULL || j->pictures == NULL ||
        j->rgb == NULL) {
        return OZ_FAIL_NOMEM(err, "the pictures of a search");
    }
    for (int32_t i = 0; i < a->task_count; i++) {
        OZ_TRY(draw(j, v, i, j->pictures + i * j->values, err));
    }
    return OZ_OK;
}

static enum oz_status judge_config(struct judge *j, const char *config,
                                   struct oz_sensitivity_round *round, struct oz_error *err)
{
    const struct oz_sensitivity_args *a = j->s->args;
    const struct oz_variant asked = {
        .label = "proposal", .model = a->model, .quantization = config};
    struct oz_variant_run v;
    int32_t differing = 0;
    double psnr = 0, relative = 0;
    enum oz_status status = oz_variant_open(&v, &asked, &a->how, err);
    for (int32_t i = 0; i < a->task_count && status == OZ_OK; i++) {
        struct oz_distance d = {0};
        status = draw(j, &v, i, j->rgb, err);
        oz_distance_add_u8(&d, j->pictures + i * j->values, j->rgb, (size_t)j->values);
        struct oz_metrics m = oz_distance_metrics(&d, 255);
        psnr += m.identical ? 0 : m.psnr_db;
        relative += m.relative_l2;
        differing += !m.identical;
    }
    round->psnr_db = differing > 0 ? psnr / differing : (double)INFINITY;
    round->relative_l2 = relative / a->task_count;
    round->bytes = status == OZ_OK ? (double)v.bytes.transformer : 0;
    oz_variant_close(&v);
    return status;
}

/* ---- proposals ---- */

/* options [units][1 + schemes] */
static struct oz_search_option *list_options(const struct oz_sensitivity *s)
{
    int32_t count = 1 + s->args->scheme_count;
    struct oz_search_option *o = oz_alloc_zero((size_t)s->probe.count * (size_t)count, sizeof *o);
    for (int32_t i = 0; o != NULL && i < s->probe.count; i++) {
        o[(int64_t)i * count] =
            (struct oz_search_option){(double)s->probe.units[i].stored_bytes, 0};
        for (int32_t k = 0; k < s->args->scheme_count; k++) {
            const struct oz_sensitivity_cell *c = oz_sensitivity_at(s, i, k);
            o[(int64_t)i * count + 1 + k] = (struct oz_search_option){c->bytes, c->cost};
        }
    }
    return o;
}

/* The config of an assignment (options 1 .. are schemes); NULL when nothing is quantized. */
static enum oz_status make_config(const struct oz_sensitivity *s, const int32_t *chosen, char **out,
                                  struct oz_error *err)
{
    const struct oz_layer_table *t =
        &s->probe.reference.pipeline->components[OZ_COMPONENT_TRANSFORMER].table;
    struct oz_buf b;
    const char **values = oz_alloc_zero((size_t)t->count + 1, sizeof *values);
    *out = NULL;
    if (values == NULL) {
        return OZ_FAIL_NOMEM(err, "a quantization config");
    }
    for (int32_t i = 0; i < s->probe.count; i++) {
        for (int32_t k = 0; k < s->probe.units[i].parts && chosen[i] > 0; k++) {
            values[s->probe.units[i].rows[k]] = s->schemes[chosen[i] - 1].value;
        }
    }
    oz_buf_init(&b, MAX_CONFIG_BYTES);
    enum oz_status status = oz_assignment_text(&b, t, values, err);
    if (status == OZ_OK) {
        *out = oz_buf_take(&b);
        status = *out != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a quantization config");
    }
    oz_buf_deinit(&b);
    oz_free((void *)values);
    return status;
}

/* Larger is better, in dB. */
static double score_of(const struct oz_sensitivity *s, const struct oz_sensitivity_round *r)
{
    return s->args->budget.kind == OZ_BUDGET_REL_L2 ? -20 * log10(r->relative_l2) : r->psnr_db;
}

/* One round: search, config, pictures. Keeps the proposal when it is the best so far. */
static enum oz_status propose(struct judge *j, struct oz_search *search, double most_error,
                              double most_bytes, struct oz_error *err)
{
    struct oz_sensitivity *s = j->s;
    const struct oz_budget *budget = &s->args->budget;
    struct oz_sensitivity_round *r = &s->rounds[s->round_count];
    char *config;
    OZ_TRY(oz_search_run(search, most_error, most_bytes, err));
    OZ_TRY(make_config(s, search->chosen, &config, err));
    enum oz_status status = judge_config(j, config, r, err);
    r->error = search->error;
    double target = budget->kind == OZ_BUDGET_PSNR ? budget->value : -20 * log10(budget->value);
    bool meets = status == OZ_OK && (budget->kind == OZ_BUDGET_BYTES ? r->bytes <= budget->value
                                                                     : score_of(s, r) >= target);
    if (meets && (s->best < 0 || r->bytes < s->rounds[s->best].bytes)) {
        s->best = s->round_count;
        oz_free(s->config);
        s->config = config;
        config = NULL;
        for (int32_t i = 0; i < s->probe.count; i++) {
            s->chosen[i] = search->chosen[i] - 1;
        }
    }
    oz_free(config);
    s->round_count += status == OZ_OK;
    return status;
}

/* Error that a score stands for: score = offset - 10 log10(error); the offset is learnt in each round. */
static enum oz_status search_quality(struct judge *j, struct oz_search *search,
                                     struct oz_error *err)
{
    struct oz_sensitivity *s = j->s;
    const struct oz_budget *b = &s->args->budget;
    double target = b->kind == OZ_BUDGET_PSNR ? b->value : -20 * log10(b->value);
    double error = INFINITY;
    for (int32_t k = 0; k < s->args->scheme_count; k++) { /* begin at the best single scheme */
        double sum = 0;
        for (int32_t i = 0; i < s->probe.count; i++) {
            double cost = oz_sensitivity_at(s, i, k)->cost;
            sum += isnan(cost) ? 0 : cost;
        }
        error = sum < error ? sum : error;
    }
    for (int32_t i = 0; i < OZ_SENSITIVITY_ROUNDS; i++) {
        OZ_TRY(propose(j, search, error, 0, err));
        const struct oz_sensitivity_round *r = &s->rounds[s->round_count - 1];
        double score = score_of(s, r);
        if (score >= target && score <= target + MARGIN_DB + WIDTH_DB) {
            break;
        }
        double offset = score + 10 * log10(r->error > 0 ? r->error : 1e-30);
        error = pow(10, (offset - target - MARGIN_DB) / 10);
    }
    return OZ_OK;
}

static enum oz_status search_bytes(struct judge *j, struct oz_search *search, struct oz_error *err)
{
    struct oz_sensitivity *s = j->s;
    int64_t fixed = s->transformer_bytes;
    for (int32_t i = 0; i < s->probe.count; i++) {
        fixed -= s->probe.units[i].stored_bytes;
    }
    return propose(j, search, -1, s->args->budget.value - (double)fixed, err);
}

/* ---- the proof ---- */

/* The proposal against every scheme for all layers, with and without the keep-list, on other seeds. */
static enum oz_status prove(struct oz_sensitivity *s, struct oz_error *err)
{
    const struct oz_sensitivity_args *a = s->args;
    int32_t count = 0;
    s->candidates = oz_alloc_zero(1 + 2 * (size_t)a->scheme_count, sizeof *s->candidates);
    s->proof_tasks = oz_alloc_zero((size_t)a->task_count, sizeof *s->proof_tasks);
    if (s->candidates == NULL || s->proof_tasks == NULL) {
        return OZ_FAIL_NOMEM(err, "the proof");
    }
    s->candidates[count++] =
        (struct oz_variant){.label = "proposal", .model = a->model, .quantization = s->config};
    for (int32_t k = 0; k < a->scheme_count; k++) {
        struct oz_variant v = a->schemes[k];
        v.keep = OZ_KEEP_STANDARD;
        s->candidates[count++] = v;
        (void)snprintf(s->labels[k], sizeof s->labels[k], "%s-all", v.label);
        v.label = s->labels[k];
        v.keep = OZ_KEEP_NONE;
        s->candidates[count++] = v;
    }
    for (int32_t i = 0; i < a->task_count; i++) {
        s->proof_tasks[i] = a->tasks[i];
        s->proof_tasks[i].seed += a->verify_offset;
    }
    s->proof_args = (struct oz_model_args){
        .how = a->how,
        .reference = {.label = "reference", .model = a->model},
        .candidates = s->candidates,
        .count = count,
        .tasks = s->proof_tasks,
        .task_count = a->task_count,
        .warmup_runs = 1,
        .measure_runs = 1,
        .keep_pictures = a->keep_pictures,
        .limits = {-1, -1, -1, -1, -1, false},
        .progress = a->progress,
        .progress_ctx = a->progress_ctx,
        .version = a->version,
    };
    return oz_model_comparison_run(&s->proof, &s->proof_args, err);
}

static enum oz_status fail_budget(const struct oz_sensitivity *s, struct oz_error *err)
{
    const struct oz_sensitivity_round *best = &s->rounds[0];
    for (int32_t i = 1; i < s->round_count; i++) {
        best = score_of(s, &s->rounds[i]) > score_of(s, best) ? &s->rounds[i] : best;
    }
    return OZ_FAIL(
        err, OZ_ERR_THRESHOLD,
        "No assignment of these schemes was found that meets the budget; the nearest has "
        "%.2f dB, a relative L2 of %.5f and %.0f bytes.",
        best->psnr_db, best->relative_l2, best->bytes);
}

static enum oz_status search(struct oz_sensitivity *s, struct judge *j, struct oz_error *err)
{
    struct oz_search o = {.units = s->probe.count, .count = 1 + s->args->scheme_count};
    struct oz_search_option *options = list_options(s);
    o.options = options;
    o.chosen = oz_alloc_zero((size_t)s->probe.count, sizeof *o.chosen);
    enum oz_status status =
        options != NULL && o.chosen != NULL ? judge_init(j, err) : OZ_FAIL_NOMEM(err, "a search");
    if (status == OZ_OK) {
        status = s->args->budget.kind == OZ_BUDGET_BYTES ? search_bytes(j, &o, err)
                                                         : search_quality(j, &o, err);
    }
    oz_free(options);
    oz_free(o.chosen);
    return status;
}

enum oz_status oz_sensitivity_search(struct oz_sensitivity *s, struct oz_error *err)
{
    struct judge j = {.s = s};
    double start = oz_clock_seconds();
    if (s->args->budget.kind == OZ_BUDGET_NONE) {
        return OZ_OK;
    }
    enum oz_status status = search(s, &j, err);
    judge_deinit(&j);
    s->searched_s = oz_clock_seconds() - start;
    if (status != OZ_OK) {
        return status;
    }
    return s->best >= 0 ? prove(s, err) : fail_budget(s, err);
}
