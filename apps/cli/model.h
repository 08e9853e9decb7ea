/* model.h: what the options that say how a model is opened and what is drawn mean to the library. */
#ifndef OUNCE_CLI_MODEL_H
#define OUNCE_CLI_MODEL_H

#include <ounce/ounce.h>

#include "options.h"

/* Fills options from the settings; log and progress stay the defaults. `ignored` holds the patterns
 * of --ignored-layers, for as long as the options are used; free after. */
void cli_model_options(struct oz_engine_options *options, const struct settings *settings,
                       struct text_list *ignored);
void cli_model_options_free(struct text_list *ignored);

/* A picture's request but for its prompt and seed. */
void cli_model_request(struct oz_image_request *request, const struct settings *settings);

#endif
