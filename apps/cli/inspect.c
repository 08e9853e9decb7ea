/* inspect.c: `ounce inspect`: the library's description of a model, on standard output. */
#include <ounce/ounce.h>

#include "command.h"
#include "messages.h"
#include "options.h"

enum oz_status cli_inspect(const struct settings *s)
{
    struct oz_inspect_options options;
    struct oz_error err;
    oz_inspect_options_default(&options);
    options.json = s->json;
    options.tensors = s->tensors;
    options.max_header_bytes = s->max_header_bytes;
    options.transformer = s->transformer;
    enum oz_status status = oz_model_inspect(s->model, &options, cli_write, NULL, &err);
    return cli_print_done(status, &err);
}
