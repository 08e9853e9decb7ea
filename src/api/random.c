#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "api/engine.h"
#include "base/error.h"
#include "pipe/random_model.h"

static const struct oz_random_options defaults = {.struct_size = sizeof defaults, .seed = 42};

void oz_random_options_init(struct oz_random_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &defaults, sizeof defaults);
}

enum oz_status oz_model_random(const char *folder, const struct oz_random_options *options,
                               struct oz_error *err)
{
    struct oz_random_options o = defaults;
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(&o, sizeof o, options, "random model options", err));
    }
    if (folder == NULL || folder[0] == '\0') {
        return OZ_FAIL(err, OZ_ERR_ARG, "A folder for the random model is missing.");
    }
    const struct oz_random_model m = {.like = o.like,
                                      .layers = o.layers,
                                      .heads = o.heads,
                                      .head_dim = o.head_dim,
                                      .text_layers = o.text_layers,
                                      .vae_base_dim = o.vae_base_dim,
                                      .seed = o.seed,
                                      .max_shard_bytes = o.max_shard_bytes,
                                      .progress = o.progress,
                                      .progress_ctx = o.progress_ctx};
    return oz_random_model_write(folder, &m, err);
}
