/*
 * bench.c: `ounce bench`: how long the parts of drawing a picture take, or, with --kernels, what each
 * kernel reaches of what the machine can do.
 */
#include <ounce/ounce.h>
#include <string.h>

#include "command.h"
#include "interrupt.h"
#include "messages.h"
#include "model.h"
#include "options.h"
#include "progress.h"
#include "text.h"

/* ---- kernels ---- */

static enum oz_status check_kernels(const struct settings *s)
{
    const char *foreign = s->width != 0                            ? "width"
                          : s->height != 0                         ? "height"
                          : s->num_inference_steps != 0            ? "num-inference-steps"
                          : s->true_cfg_scale >= 0                 ? "true-cfg-scale"
                          : strcmp(s->precision, "bf16") != 0      ? "precision"
                          : s->transformer != NULL                 ? "transformer"
                          : s->loras.count > 0                     ? "lora"
                          : strcmp(s->modulation, "resident") != 0 ? "modulation"
                          : s->load_format != NULL                 ? "load-format"
                          : strcmp(s->offload, "none") != 0        ? "offload"
                          : s->linear_backend != NULL              ? "linear-backend"
                          : s->moe_backend != NULL                 ? "moe-backend"
                          : s->quantization != NULL                ? "quantization"
                          : s->quantization_config != NULL         ? "quantization-config"
                          : s->quantization_keys.count > 0         ? "quantization-config"
                          : s->ignored_layers.count > 0            ? "ignored-layers"
                          : strcmp(s->keep, "standard") != 0       ? "keep"
                          : s->allow_unmatched                     ? "allow-unmatched"
                          : s->report != NULL                      ? "report"
                                                                   : NULL;
    if (foreign != NULL) {
        return cli_fail(OZ_ERR_ARG,
                        "--%s has no effect with --kernels: kernels have shapes of their own.",
                        foreign);
    }
    if (s->max_slowdown >= 0 && s->against == NULL) {
        return cli_fail(OZ_ERR_ARG, "--max-slowdown needs --against FILE.");
    }
    return OZ_OK;
}

static enum oz_status bench_kernels(const struct settings *s, struct progress *progress)
{
    struct oz_bench_options options;
    struct oz_error err;
    enum oz_status status = check_kernels(s);
    if (status != OZ_OK) {
        return status;
    }
    oz_bench_options_default(&options);
    options.device = s->device;
    options.filter = s->model;
    options.threads = s->threads;
    options.samples = s->repeat;
    options.json = s->json;
    options.against = s->against;
    options.max_slowdown_percent = s->max_slowdown;
    options.progress = cli_progress;
    options.progress_ctx = progress;
    cli_progress_begin(progress, 0, 1, 1);
    status = oz_bench_kernels(&options, cli_write, NULL, &err);
    cli_progress_end(progress);
    if (status == OZ_ERR_CANCELLED) {
        return cli_fail(OZ_ERR_CANCELLED, "Interrupted; nothing was written.");
    }
    return cli_print_done(status, &err);
}

/* ---- a model ---- */

static enum oz_status bench_model(const struct settings *s, struct progress *progress)
{
    struct oz_bench_model_options options;
    struct oz_engine_options engine;
    struct oz_error err;
    struct text_list ignored = {0};
    bool verbose = false;
    if (s->max_slowdown >= 0 && s->against == NULL) {
        return cli_fail(OZ_ERR_ARG, "--max-slowdown needs --against FILE.");
    }
    if (s->report != NULL && !cli_ends_with(s->report, ".html")) {
        return cli_fail(OZ_ERR_ARG, "--report must be a name that ends in .html, not '%s'.",
                        s->report);
    }
    cli_model_options(&engine, s, &ignored);
    engine.log = cli_log;
    engine.log_ctx = &verbose;
    engine.progress = cli_progress;
    engine.progress_ctx = progress;
    oz_bench_model_options_default(&options);
    options.engine = &engine;
    cli_model_request(&options.request, s);
    options.request.seed = 42;
    options.repeats = s->repeat;
    options.requests = s->requests;
    options.json = s->json;
    options.report = s->report;
    options.against = s->against;
    options.max_slowdown_percent = s->max_slowdown;
    enum oz_status status = oz_bench_model(&options, cli_write, NULL, &err);
    cli_model_options_free(&ignored);
    cli_progress_end(progress);
    if (status == OZ_ERR_CANCELLED) {
        return cli_fail(OZ_ERR_CANCELLED, "Interrupted; nothing was written.");
    }
    return cli_print_done(status, &err);
}

enum oz_status cli_bench(const struct settings *s)
{
    struct progress progress;
    cli_interrupt_catch();
    cli_progress_init(&progress, s->quiet);
    return s->kernels ? bench_kernels(s, &progress) : bench_model(s, &progress);
}
