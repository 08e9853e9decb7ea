/* inspect.c: `ounce inspect`: the library's description of a model, on standard output. */
#include <ounce/ounce.h>

#include "command.h"
#include "messages.h"
#include "options.h"

enum oz_status cli_inspect(int argc, char **argv)
{
    struct settings settings;
    enum oz_status status = cli_options_parse(&settings, COMMAND_INSPECT, argc, argv);
    if (status == OZ_OK && settings.help) {
        cli_command_help(cli_command_of(COMMAND_INSPECT));
    } else if (status == OZ_OK) {
        struct oz_inspect_options options;
        struct oz_error err;
        oz_inspect_options_default(&options);
        options.json = settings.json;
        options.tensors = settings.tensors;
        options.max_header_bytes = settings.max_header_bytes;
        options.transformer = settings.transformer;
        status = oz_model_inspect(settings.model, &options, cli_write, NULL, &err);
        status = cli_print_done(status, &err);
    }
    cli_settings_free(&settings);
    return status;
}
