/* models_json.c: a comparison of models as one JSON document; also what an interrupted run goes on
 * from. Where vLLM-Omni's comparison has a member, it has the same name and nesting. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "study/models.h"

static void text(struct oz_buf *b, const char *key, const char *value)
{
    oz_buf_printf(b, "\"%s\": ", key);
    if (value != NULL) {
        oz_study_json_text(b, value);
    } else {
        oz_buf_puts(b, "null");
    }
}

static const char *boolean(bool value)
{
    return value ? "true" : "false";
}

/* ---- what was asked ---- */

/* A request that is an object is embedded as one; what only looks like one is a text. */
static bool is_object(const char *request)
{
    struct oz_json *root;
    if (request == NULL || request[0] != '{' ||
        oz_json_parse(&root, request, strlen(request), "request", NULL) != OZ_OK) {
        return false;
    }
    oz_json_free(root);
    return true;
}

static void put_variant(struct oz_buf *b, const struct oz_variant *v)
{
    bool object = is_object(v->quantization);
    oz_buf_puts(b, "{");
    text(b, "label", v->label);
    oz_buf_puts(b, ", ");
    text(b, "model", v->model);
    oz_buf_puts(b, ", ");
    text(b, "quantization", object ? NULL : v->quantization);
    oz_buf_puts(b, ", \"quantization_config\": ");
    oz_buf_puts(b, object ? v->quantization : "null");
    oz_buf_printf(b, ", \"keep\": \"%s\", \"ignored_layers\": [", oz_keep_name(v->keep));
    for (int32_t i = 0; i < v->ignored_count; i++) {
        oz_buf_puts(b, i > 0 ? ", " : "");
        oz_study_json_text(b, v->ignored_layers[i]);
    }
    oz_buf_puts(b, "], \"diffusion_load_format\": \"default\"}");
}

static void put_configs(struct oz_buf *b, const struct oz_model_comparison *c)
{
    oz_buf_puts(b, " \"variant_configs\": {\"reference\": ");
    put_variant(b, &c->reference.asked);
    if (c->args->count == 1) {
        oz_buf_puts(b, ",\n  \"candidate\": ");
        put_variant(b, &c->candidates[0].asked);
    }
    oz_buf_puts(b, ",\n  \"candidates\": [");
    for (int32_t i = 0; i < c->args->count; i++) {
        oz_buf_puts(b, i > 0 ? ",\n   " : "\n   ");
        put_variant(b, &c->candidates[i].asked);
    }
    oz_buf_puts(b, "]},\n");
}

static void put_sampling(struct oz_buf *b, const struct oz_model_comparison *c)
{
    const struct oz_task *t = &c->tasks[0];
    oz_buf_printf(b,
                  " \"sampling_kwargs\": {\"task\": \"t2i\", \"width\": %d, \"height\": %d, "
                  "\"num_frames\": 1, \"num_inference_steps\": %d, ",
                  t->width, t->height, t->steps);
    oz_study_json_number(b, "guidance_scale", t->scale);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "cfg_scale", t->scale);
    oz_buf_puts(b,
                ", \"guidance_scale_2\": null, \"flow_shift\": null, \"num_images_per_prompt\": 1, "
                "\"step_execution\": true},\n");
}

/* ---- what was measured ---- */

static void put_times(struct oz_buf *b, const struct oz_model_comparison *c,
                      const struct oz_model_result *r, const char *key)
{
    double sum = 0;
    bool comma = false;
    oz_buf_printf(b, "\"%s\": {", key);
    oz_study_json_number(b, "generation_time_s", r->total_s);
    oz_buf_puts(b, ", \"per_run_generation_time_s\": [");
    for (int32_t i = 0; i < c->args->task_count; i++) {
        const struct oz_model_picture *p = &r->pictures[i];
        if (p->done) {
            oz_buf_puts(b, comma ? ", " : "");
            oz_buf_number(b, p->text_s + p->denoise_s + p->decode_s);
            sum += p->text_s + p->denoise_s + p->decode_s;
            comma = true;
        }
    }
    oz_buf_puts(b, "], ");
    oz_study_json_number(b, "avg_generation_time_s", r->done > 0 ? sum / r->done : (double)NAN);
    const char *const memory[] = {"peak_memory_mb", "avg_peak_memory_mb", "max_peak_memory_mb"};
    double mb = r->bytes.peak > 0 ? (double)r->bytes.peak / (1024 * 1024) : (double)NAN;
    for (int i = 0; i < 3; i++) {
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, memory[i], mb);
    }
    oz_buf_puts(b, ",\n    \"stage_time_s\": {");
    oz_study_json_number(b, "load", r->load_s);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "text", r->text_s);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "denoise", r->denoise_s);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "step", r->denoise_s / c->shape.steps);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "decode", r->decode_s);
    oz_buf_printf(
        b,
        "},\n    \"bytes\": {\"disk\": %" PRId64 ", \"resident\": %" PRId64
        ", \"transformer_resident\": %" PRId64 ", \"transformer_modulation\": %" PRId64
        ", \"run\": %" PRId64 ", \"peak_resident_set\": %" PRId64 ", \"peak_is_of_process\": %s}}",
        r->bytes.disk, r->bytes.resident, r->bytes.transformer, r->bytes.transformer_modulation,
        r->bytes.run, r->bytes.peak, boolean(r->bytes.peak_of_process));
}

static void put_names(struct oz_buf *b, const char *key, const struct oz_dispatch_list *list)
{
    oz_buf_printf(b, ", \"%s\": {\"count\": %d, \"names\": [", key, list->count);
    for (int k = 0; k < OZ_DISPATCH_NAMES && k < list->count && list->names[k] != NULL; k++) {
        oz_buf_puts(b, k > 0 ? ", " : "");
        oz_study_json_text(b, list->names[k]);
    }
    oz_buf_puts(b, "]}");
}

static void put_dispatch(struct oz_buf *b, const struct oz_dispatch *d)
{
    oz_buf_printf(b,
                  "\"dispatch\": {\"agrees\": %s, \"quantized_in_both\": %d, "
                  "\"unquantized_in_both\": %d",
                  boolean(oz_dispatch_agrees(d)), d->quantized_in_both, d->unquantized_in_both);
    for (int i = 0; i < OZ_DISPATCH_FAULTS; i++) {
        put_names(b, oz_dispatch_fault_name((enum oz_dispatch_fault)i), &d->faults[i]);
    }
    put_names(b, "not_needed", &d->unused);
    oz_buf_puts(b, "}");
}

/* The sums, from which everything can be computed again, exactly. */
static void put_distance(struct oz_buf *b, const char *key, const struct oz_distance *d)
{
    const double values[] = {(double)d->elements, d->sum_abs,    d->sum_squares, d->dot,
                             d->reference2,       d->candidate2, d->max_abs,     d->differs};
    oz_buf_printf(b, "\"%s\": [", key);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        oz_buf_puts(b, i > 0 ? ", " : "");
        oz_buf_number(b, values[i]);
    }
    oz_buf_puts(b, "]");
}

static void put_against(struct oz_buf *b, const struct oz_model_comparison *c,
                        const struct oz_model_picture *p)
{
    const struct oz_figures f = {.metrics = oz_distance_metrics(&p->bytes, 255),
                                 .ssim = p->ssim,
                                 .ssim_uniform = p->ssim_uniform};
    const struct oz_figures floats = {.metrics = oz_distance_metrics(&p->floats, 1),
                                      .ssim = p->ssim_float,
                                      .ssim_uniform = (double)NAN};
    const struct {
        const char *key;
        const struct oz_distance *d;
    } lists[] = {{"first_prediction", &p->prediction},
                 {"early_latents", &p->early},
                 {"latents", &p->latents},
                 {"trajectory", &p->trajectory}};
    oz_buf_puts(b, ",\n      \"metrics\": ");
    oz_figures_json(b, &f);
    oz_buf_puts(b, ",\n      \"float_metrics\": ");
    oz_figures_json(b, &floats);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct oz_metrics m = oz_distance_metrics(lists[i].d, 0);
        oz_buf_printf(b, ",\n      \"%s_metrics\": ", lists[i].key);
        oz_metrics_json(b, &m);
    }
    oz_buf_puts(b, ",\n      \"step_relative_l2\": [");
    for (int32_t k = 0; k < c->shape.steps; k++) {
        oz_buf_puts(b, k > 0 ? ", " : "");
        oz_buf_number(b, p->step_relative_l2[k]);
    }
    oz_buf_puts(b, "],\n      \"sums\": {");
    put_distance(b, "bytes", &p->bytes);
    oz_buf_puts(b, ", ");
    put_distance(b, "floats", &p->floats);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        oz_buf_puts(b, ", ");
        put_distance(b, lists[i].key, lists[i].d);
    }
    oz_buf_puts(b, "}");
}

static void put_pictures(struct oz_buf *b, const struct oz_model_comparison *c,
                         const struct oz_model_result *r)
{
    bool comma = false;
    oz_buf_puts(b, "\"images\": [");
    for (int32_t i = 0; i < c->args->task_count; i++) {
        const struct oz_model_picture *p = &r->pictures[i];
        if (!p->done) {
            continue;
        }
        oz_buf_printf(b, "%s\n     {\"index\": %d, ", comma ? "," : "", i);
        text(b, "prompt", c->tasks[i].prompt);
        oz_buf_printf(b, ", \"seed\": %" PRIu64 ", ", c->tasks[i].seed);
        oz_study_json_number(b, "text_s", p->text_s);
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "denoise_s", p->denoise_s);
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "decode_s", p->decode_s);
        oz_buf_printf(
            b, ", \"trajectory_hash\": \"%016" PRIx64 "\", \"picture_hash\": \"%016" PRIx64 "\"",
            p->trajectory_hash, p->picture_hash);
        if (r != &c->reference) {
            put_against(b, c, p);
        }
        oz_buf_puts(b, "}");
        comma = true;
    }
    oz_buf_puts(b, "]");
}

static struct oz_figures picture_figures(const struct oz_model_picture *p)
{
    return (struct oz_figures){.metrics = oz_distance_metrics(&p->bytes, 255),
                               .ssim = p->ssim,
                               .ssim_uniform = p->ssim_uniform};
}

static void put_output(struct oz_buf *b, const struct oz_model_comparison *c,
                       const struct oz_model_result *r)
{
    int32_t middle = c->args->task_count / 2;
    struct oz_figures first = picture_figures(&r->pictures[0]);
    struct oz_figures mid = picture_figures(&r->pictures[middle]);
    const struct oz_figures floats = {
        .metrics = r->floats, .ssim = r->ssim_float, .ssim_uniform = (double)NAN};
    const struct {
        const char *key;
        const struct oz_metrics *m;
    } latents[] = {{"first_prediction_metrics", &r->prediction},
                   {"early_latents_metrics", &r->early},
                   {"latents_metrics", &r->latents},
                   {"trajectory_metrics", &r->trajectory}};
    oz_buf_printf(b, "\"output_metrics\": {\"num_images\": %d,\n    \"image0_metrics\": ",
                  c->args->task_count);
    oz_figures_json(b, &first);
    oz_buf_printf(b, ",\n    \"mid_image_index\": %d, \"mid_image_metrics\": ", middle);
    oz_figures_json(b, &mid);
    oz_buf_puts(b, ",\n    \"all_images_metrics\": ");
    oz_figures_json(b, &r->all);
    oz_buf_puts(b, ",\n    \"mean_metrics\": ");
    oz_figures_json(b, &r->mean);
    oz_buf_puts(b, ",\n    \"float_metrics\": ");
    oz_figures_json(b, &floats);
    for (size_t i = 0; i < sizeof latents / sizeof *latents; i++) {
        oz_buf_printf(b, ",\n    \"%s\": ", latents[i].key);
        oz_metrics_json(b, latents[i].m);
    }
    oz_buf_printf(b, ",\n    \"num_identical\": %d, \"worst_image_index\": %d}", r->identical,
                  r->worst);
}

static void put_saved(struct oz_buf *b, const struct oz_model_comparison *c,
                      const struct oz_model_result *r)
{
    bool comma = false;
    oz_buf_puts(b, "\"saved_outputs\": [");
    for (int32_t i = 0; i < c->args->task_count && c->args->save_folder != NULL; i++) {
        char *path = r->pictures[i].done ? oz_model_picture_path(c, r, i) : NULL;
        if (path != NULL) {
            oz_buf_puts(b, comma ? ", " : "");
            oz_study_json_text(b, path);
            comma = true;
        }
        oz_free(path);
    }
    oz_buf_puts(b, "]");
}

static void put_candidate(struct oz_buf *b, const struct oz_model_comparison *c,
                          const struct oz_model_result *r)
{
    struct oz_buf why;
    bool whole = r->done == c->args->task_count && r->status == OZ_OK;
    oz_buf_init(&why, OZ_ERROR_MESSAGE_BYTES);
    bool passes = !oz_model_misses(c, r, &why) && r->status == OZ_OK;
    oz_buf_puts(b, "  {");
    text(b, "candidate", r->asked.label);
    oz_buf_printf(b, ", \"fingerprint\": \"%016" PRIx64 "\", \"complete\": %s, ", r->fingerprint,
                  boolean(whole));
    text(b, "error", r->error);
    oz_buf_printf(b, ", \"identical\": %s, \"passes\": %s, ",
                  boolean(whole && r->mean.metrics.identical), whole ? boolean(passes) : "null");
    text(b, "misses", why.bytes > 0 ? oz_buf_text(&why) + 1 : NULL);
    oz_buf_puts(b, ",\n   ");
    text(b, "summary", r->summary);
    if (r->opened) {
        oz_buf_puts(b, ",\n   ");
        put_times(b, c, r, "candidate_generation");
        double time = r->total_s / c->reference.total_s;
        double memory = (double)r->bytes.peak / (double)c->reference.bytes.peak;
        oz_buf_puts(b, ",\n   ");
        oz_study_json_number(b, "time_ratio", r->done > 0 ? time : (double)NAN);
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "memory_ratio", r->bytes.peak > 0 ? memory : (double)NAN);
    }
    if (r->dispatched) {
        oz_buf_puts(b, ",\n   ");
        put_dispatch(b, &r->dispatch);
    }
    if (r->opened) {
        oz_buf_puts(b, ",\n   \"role_errors\": ");
        oz_role_errors_json(&r->roles, b);
    }
    if (whole) {
        oz_buf_puts(b, ",\n   ");
        put_output(b, c, r);
    }
    oz_buf_puts(b, ",\n   ");
    put_saved(b, c, r);
    oz_buf_puts(b, ",\n   ");
    put_pictures(b, c, r);
    oz_buf_puts(b, "}");
    oz_buf_deinit(&why);
}

static void put_limits(struct oz_buf *b, const struct oz_model_limits *l)
{
    const struct {
        const char *key;
        double value;
    } members[] = {{"min_psnr_db", l->min_psnr_db},
                   {"min_ssim", l->min_ssim},
                   {"min_cosine", l->min_cosine},
                   {"max_memory_ratio", l->max_memory_ratio},
                   {"max_time_ratio", l->max_time_ratio}};
    oz_buf_puts(b, " \"thresholds\": {");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        oz_study_json_number(b, members[i].key,
                             members[i].value >= 0 ? members[i].value : (double)NAN);
        oz_buf_puts(b, ", ");
    }
    oz_buf_printf(b, "\"assert_different\": %s},\n", boolean(l->different));
}

void oz_model_comparison_json(const struct oz_model_comparison *c, struct oz_buf *b)
{
    const struct oz_model_args *a = c->args;
    oz_buf_printf(b,
                  "{\"document\": \"comparison of models\", \"complete\": %s, \"fingerprint\": "
                  "\"%016" PRIx64 "\", ",
                  boolean(c->complete), c->fingerprint);
    text(b, "version", a->version);
    oz_buf_puts(b, ",\n ");
    text(b, "model", c->model_name);
    oz_buf_puts(b, ", ");
    text(b, "prompt", c->tasks[0].prompt);
    oz_buf_puts(b, ", ");
    text(b, "negative_prompt", c->tasks[0].negative_prompt);
    oz_buf_printf(b, ", \"seed\": %" PRIu64 ", \"warmup_runs\": %d, \"measure_runs\": %d,\n ",
                  c->tasks[0].seed, a->warmup_runs, a->measure_runs);
    text(b, "tier", c->tier);
    oz_buf_printf(b, ", \"precision\": \"%s\", \"threads\": %d,\n", c->f32_math ? "f32" : "bf16",
                  c->threads);
    put_configs(b, c);
    put_sampling(b, c);
    oz_buf_puts(b, " \"metric_guidance\": {");
    oz_guidance_json(b);
    oz_buf_puts(
        b, ", \"time_ratio\": {\"relation\": \"<=\", \"recommended\": 1.1}, "
           "\"memory_ratio\": {\"relation\": \"<=\", \"recommended\": 1.0, \"good\": 0.95}},\n");
    put_limits(b, &a->limits);
    oz_buf_puts(b, " ");
    put_times(b, c, &c->reference, "reference_generation");
    oz_buf_puts(b, ",\n ");
    put_saved(b, c, &c->reference);
    oz_buf_puts(b, ",\n \"reference\": {");
    oz_buf_printf(b, "\"fingerprint\": \"%016" PRIx64 "\", ", c->reference.fingerprint);
    if (c->reference.dispatched) {
        put_dispatch(b, &c->reference.dispatch);
        oz_buf_puts(b, ", ");
    }
    put_pictures(b, c, &c->reference);
    oz_buf_puts(b, "},\n");
    if (a->count == 1 && c->complete && c->candidates[0].done == a->task_count) {
        oz_buf_puts(b, " "); /* where the original has them */
        put_times(b, c, &c->candidates[0], "candidate_generation");
        oz_buf_puts(b, ",\n ");
        put_output(b, c, &c->candidates[0]);
        oz_buf_puts(b, ",\n");
    }
    oz_buf_puts(b, " \"candidates\": [");
    for (int32_t i = 0; i < a->count; i++) {
        oz_buf_puts(b, i > 0 ? ",\n" : "\n");
        put_candidate(b, c, &c->candidates[i]);
    }
    oz_buf_puts(b, "\n]}\n");
}
