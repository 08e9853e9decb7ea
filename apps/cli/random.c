/* random.c: `ounce random-model`: the library writes a model with random weights. */
#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "command.h"
#include "common/words.h"
#include "interrupt.h"
#include "messages.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "text.h"

enum oz_status cli_random_model(const struct settings *s)
{
    struct oz_random_options options;
    struct oz_error err;
    struct progress progress;
    double began_s = words_seconds();
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
    return status == OZ_OK ? cli_output_written(s->output, s->quiet, began_s) : cli_fail_with(&err);
}
