/* random.c: `ounce random-model`: the library writes a model with random weights. */
#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "command.h"
#include "interrupt.h"
#include "messages.h"
#include "options.h"
#include "progress.h"
#include "text.h"

static enum oz_status write_model(const struct settings *s)
{
    struct oz_random_options options;
    struct oz_error err;
    struct progress progress;
    double began_s = cli_seconds();
    if (s->model != NULL) {
        return cli_fail(OZ_ERR_ARG,
                        "`ounce random-model` takes no argument, but there is '%s'; the folder is "
                        "--output '%s'.",
                        s->model, s->model);
    }
    if (s->output == NULL || *s->output == '\0') {
        return cli_fail(OZ_ERR_ARG, "Where to? --output FOLDER is missing.");
    }
    cli_interrupt_catch();
    cli_progress_init(&progress, s->quiet);
    oz_random_options_default(&options);
    options.like = s->like;
    options.layers = s->layers;
    options.heads = s->heads;
    options.head_dim = s->head_dim;
    options.text_layers = s->text_layers;
    options.vae_base_dim = s->vae_base_dim;
    options.seed = s->seed;
    options.progress = cli_progress;
    options.progress_ctx = &progress;
    enum oz_status status = oz_model_random(s->output, &options, &err);
    cli_progress_end(&progress);
    if (status == OZ_ERR_CANCELLED) {
        return cli_fail(status, "Interrupted; what is in %s is no model yet.", s->output);
    }
    if (status != OZ_OK) {
        return cli_fail_with(&err);
    }
    (void)cli_printf("%s\n", s->output);
    if (!s->quiet) {
        cli_say("written in %.1f s", cli_seconds() - began_s);
    }
    return OZ_OK;
}

enum oz_status cli_random_model(int argc, char **argv)
{
    struct settings settings;
    enum oz_status status = cli_options_parse(&settings, COMMAND_RANDOM_MODEL, argc, argv);
    if (status == OZ_OK && settings.help) {
        cli_command_help(cli_command_of(COMMAND_RANDOM_MODEL));
    } else if (status == OZ_OK) {
        status = write_model(&settings);
    }
    cli_settings_free(&settings);
    return status;
}
