/*
 * compare_models.c: `ounce compare MODEL --candidate-quantization ...`: variants of a model. Everything
 * that can be wrong about the request is found before a model is opened.
 */
#define OZ_UNSTABLE
#include <ounce/ounce.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "interrupt.h"
#include "messages.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "prompts.h"
#include "text.h"

enum { PICTURES_MOST = 10000 };

struct job {
    const struct settings *settings;
    struct prompts prompts;
    struct text_list ignored; /* owned texts */
    struct output sheet;
    struct progress progress;
    struct oz_image_request *requests;
    int32_t count;
    bool verbose;
};

static enum oz_status check_names(const struct settings *s)
{
    const struct {
        const char *option, *value, *ending;
    } names[] = {{"output-json", s->output_json, NULL},
                 {"save-output-dir", s->save_output_dir, NULL},
                 {"report", s->report, ".html"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].value != NULL && names[i].value[0] == '\0') {
            return cli_fail(OZ_ERR_ARG, "--%s is an empty text; it must name a %s.",
                            names[i].option, i == 1 ? "folder" : "file");
        }
        if (names[i].value != NULL && names[i].ending != NULL &&
            !cli_ends_with(names[i].value, names[i].ending)) {
            return cli_fail(OZ_ERR_ARG, "--%s must be a name that ends in %s, not '%s'.",
                            names[i].option, names[i].ending, names[i].value);
        }
    }
    return OZ_OK;
}

/* Picture k has the seed that is given plus k: prompts of a file are drawn with seeds of their own. */
static enum oz_status read_requests(struct job *job)
{
    const struct settings *s = job->settings;
    if (s->prompts.count == 0 && s->prompts_file == NULL) {
        return cli_fail(OZ_ERR_ARG, "There is no prompt. Say what to draw with --prompt or "
                                    "--prompts-file; some eight prompts tell more than one.");
    }
    enum oz_status status = cli_prompts_read(&job->prompts, s);
    if (status != OZ_OK) {
        return status;
    }
    size_t count = job->prompts.list.count * (size_t)s->num_images;
    if (count > PICTURES_MOST) {
        return cli_fail(OZ_ERR_ARG,
                        "%zu pictures of each variant are asked for; at most %d are drawn.", count,
                        PICTURES_MOST);
    }
    job->count = (int32_t)count;
    job->requests = cli_alloc(count, sizeof *job->requests);
    for (size_t i = 0; i < count; i++) {
        cli_model_request(&job->requests[i], s);
        job->requests[i].prompt = job->prompts.list.items[i / (size_t)s->num_images];
        job->requests[i].seed = s->seed + i;
    }
    return OZ_OK;
}

/* Options of comparisons that a search has not, and the other way round. */
static enum oz_status check_mode(const struct settings *s)
{
    const struct {
        bool given;
        const char *name;
    } comparing[] = {
        {s->candidate_models.count > 0, "candidate-model"},
        {s->reference_model != NULL, "reference-model"},
        {s->save_output_dir != NULL, "save-output-dir"},
        {s->contact_sheet != NULL, "contact-sheet"},
        {s->ignored_layers.count > 0, "ignored-layers"},
        {s->allow_unmatched, "allow-unmatched"},
        {s->repeat > 0, "repeat"},
        {s->min_psnr >= 0, "min-psnr"},
        {s->min_ssim >= 0, "min-ssim"},
        {s->min_cosine >= 0, "min-cosine"},
        {s->max_memory_ratio >= 0, "max-memory-ratio"},
        {s->max_time_ratio >= 0, "max-time-ratio"},
        {s->assert_different, "assert-different"},
    };
    for (size_t i = 0; i < sizeof comparing / sizeof *comparing && s->sensitivity; i++) {
        if (comparing[i].given) {
            return cli_fail(OZ_ERR_ARG, "--%s has no effect with --sensitivity.",
                            comparing[i].name);
        }
    }
    if (!s->sensitivity && (s->full || s->budget != NULL)) {
        return cli_fail(OZ_ERR_ARG, "--%s needs --sensitivity.", s->full ? "full" : "budget");
    }
    if (s->sensitivity && s->report != NULL && s->budget == NULL) {
        return cli_fail(OZ_ERR_ARG,
                        "--report with --sensitivity shows a proposal: it needs --budget.");
    }
    return OZ_OK;
}

static enum oz_status check(struct job *job)
{
    const struct settings *s = job->settings;
    if (s->quiet && s->verbose) {
        return cli_fail(OZ_ERR_ARG, "--quiet and --verbose exclude each other.");
    }
    if (s->arguments.count > 1) {
        return cli_fail(OZ_ERR_ARG,
                        "`ounce compare` with candidates takes one model, but there are '%s' and "
                        "'%s'; other models are given by --candidate-model.",
                        s->arguments.items[0], s->arguments.items[1]);
    }
    if (s->arguments.count == 1 && s->arguments.items[0][0] == '\0') {
        return cli_fail(OZ_ERR_ARG,
                        "The model is an empty text; leave it out for the bundled one.");
    }
    enum oz_status status = check_names(s);
    if (status == OZ_OK) {
        status = check_mode(s);
    }
    if (status == OZ_OK) {
        status = read_requests(job);
    }
    if (status == OZ_OK && s->contact_sheet != NULL) {
        status = cli_output_open(&job->sheet, "--contact-sheet", s->contact_sheet, 1);
    }
    return status;
}

static void fill_engine(struct job *job, struct oz_engine_options *engine)
{
    const struct settings *s = job->settings;
    cli_model_options(engine, s, &job->ignored);
    engine->model = s->arguments.count > 0 ? s->arguments.items[0] : NULL;
    engine->log = cli_log;
    engine->log_ctx = &job->verbose;
    engine->progress = cli_progress;
    engine->progress_ctx = &job->progress;
}

static enum oz_status search(struct job *job)
{
    const struct settings *s = job->settings;
    struct oz_sensitivity_options options;
    struct oz_engine_options engine;
    struct oz_error err;
    fill_engine(job, &engine);
    oz_sensitivity_options_default(&options);
    options.engine = &engine;
    options.schemes = s->candidate_quantizations.items;
    options.scheme_count = (int32_t)s->candidate_quantizations.count;
    options.requests = job->requests;
    options.request_count = job->count;
    options.full = s->full;
    options.budget = s->budget;
    options.output_json = s->output_json;
    options.report = s->report;
    options.json = s->json;
    enum oz_status status = oz_model_sensitivity(&options, cli_write, NULL, &err);
    cli_progress_end(&job->progress);
    return cli_print_done(status, &err);
}

static enum oz_status compare(struct job *job)
{
    const struct settings *s = job->settings;
    struct oz_models_options options;
    struct oz_engine_options engine;
    struct oz_error err;
    fill_engine(job, &engine);
    oz_models_options_default(&options);
    options.engine = &engine;
    options.reference_model = s->reference_model;
    options.candidate_quantizations = s->candidate_quantizations.items;
    options.candidate_quantization_count = (int32_t)s->candidate_quantizations.count;
    options.candidate_models = s->candidate_models.items;
    options.candidate_model_count = (int32_t)s->candidate_models.count;
    options.requests = job->requests;
    options.request_count = job->count;
    options.warmup_runs = s->warmup_runs;
    options.measure_runs = s->repeat > 0 ? s->repeat : 1;
    options.output_json = s->output_json;
    options.save_output_dir = s->save_output_dir;
    options.report = s->report;
    char *sheet = job->sheet.count > 0 ? cli_output_path(&job->sheet, 0) : NULL;
    options.contact_sheet = sheet;
    options.min_psnr_db = s->min_psnr;
    options.min_ssim = s->min_ssim;
    options.min_cosine = s->min_cosine;
    options.max_memory_ratio = s->max_memory_ratio;
    options.max_time_ratio = s->max_time_ratio;
    options.assert_different = s->assert_different;
    options.json = s->json;
    enum oz_status status = oz_models_compare(&options, cli_write, NULL, &err);
    cli_progress_end(&job->progress);
    free(sheet);
    return cli_print_done(status, &err);
}

enum oz_status cli_compare_models(const struct settings *s)
{
    struct job job = {.settings = s, .verbose = s->verbose};
    cli_interrupt_catch();
    cli_progress_init(&job.progress, s->quiet);
    enum oz_status status = check(&job);
    if (status == OZ_OK) {
        status = s->sensitivity ? search(&job) : compare(&job);
    }
    cli_output_close(&job.sheet);
    cli_prompts_free(&job.prompts);
    cli_model_options_free(&job.ignored);
    free(job.requests);
    return status;
}
