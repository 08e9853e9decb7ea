/* quantize.c: `ounce quantize` and `ounce convert`: the library writes a model whose weights are quantized,
 * or are not any more. */
#define OZ_UNSTABLE
#include <ounce/ounce.h>
#include <string.h>

#include "command.h"
#include "common/words.h"
#include "interrupt.h"
#include "messages.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "text.h"

/* What a run that goes on says of it shows without --verbose as well. */
static void say(void *ctx, enum oz_log_level level, const char *topic, const char *message)
{
    const struct settings *s = ctx;
    bool verbose = s->verbose;
    if (level == OZ_LOG_INFO && strcmp(topic, "write") == 0 && !verbose && !s->quiet) {
        cli_say("%s", message);
    } else {
        cli_log(&verbose, level, topic, message);
    }
}

static void fill(struct oz_quantize_options *options, const struct settings *s,
                 const struct oz_engine_options *words)
{
    oz_quantize_options_default(options);
    options->model = words->model;
    options->quantization = words->quantization;
    options->quantization_config = words->quantization_config;
    options->quantization_keys = words->quantization_keys;
    options->quantization_key_count = words->quantization_key_count;
    options->ignored_layers = words->ignored_layers;
    options->ignored_layer_count = words->ignored_layer_count;
    options->keep = words->keep;
    options->allow_unmatched = words->allow_unmatched;
    options->threads = words->threads;
    options->max_header_bytes = words->max_header_bytes;
    options->max_shard_bytes =
        s->max_shard_bytes > INT64_MAX ? INT64_MAX : (int64_t)s->max_shard_bytes;
    options->overwrite = s->overwrite;
    options->transformer = words->transformer;
    options->loras = words->loras;
    options->lora_count = words->lora_count;
    options->log = say;
    options->log_ctx = (void *)(uintptr_t)s;
}

static bool has_output(const struct settings *s)
{
    return s->output != NULL && *s->output != '\0';
}

enum oz_status cli_quantize(const struct settings *s)
{
    struct oz_engine_options words;
    struct oz_quantize_options options;
    struct oz_error err;
    struct progress progress;
    struct text_list ignored = {0};
    double began_s = words_seconds();
    if (!has_output(s)) {
        return cli_fail(OZ_ERR_ARG, "Where to? --output FOLDER is missing.");
    }
    cli_interrupt_catch();
    cli_progress_init(&progress, s->quiet);
    cli_model_options(&words, s, &ignored);
    fill(&options, s, &words);
    options.progress = cli_progress;
    options.progress_ctx = &progress;
    enum oz_status status = oz_model_quantize(s->output, &options, &err);
    cli_progress_end(&progress);
    cli_model_options_free(&ignored);
    return status == OZ_OK ? cli_output_written(s->output, s->quiet, began_s) : cli_fail_with(&err);
}

enum oz_status cli_convert(const struct settings *s)
{
    struct oz_convert_options options;
    struct oz_error err;
    struct progress progress;
    double began_s = words_seconds();
    if (!has_output(s)) {
        return cli_fail(OZ_ERR_ARG, "Where to? --output FOLDER is missing.");
    }
    cli_interrupt_catch();
    cli_progress_init(&progress, s->quiet);
    oz_convert_options_default(&options);
    options.model = s->model;
    options.transformer = s->transformer;
    options.to = s->to;
    options.threads = s->threads;
    options.max_header_bytes = s->max_header_bytes;
    options.max_shard_bytes =
        s->max_shard_bytes > INT64_MAX ? INT64_MAX : (int64_t)s->max_shard_bytes;
    options.overwrite = s->overwrite;
    options.log = say;
    options.log_ctx = (void *)(uintptr_t)s;
    options.progress = cli_progress;
    options.progress_ctx = &progress;
    enum oz_status status = oz_model_convert(s->output, &options, &err);
    cli_progress_end(&progress);
    return status == OZ_OK ? cli_output_written(s->output, s->quiet, began_s) : cli_fail_with(&err);
}
