/* kernels.c: `ounce kernels`: the library's lists of kernels, on standard output. */
#include <ounce/ounce.h>

#include "command.h"
#include "messages.h"
#include "options.h"

enum oz_status cli_kernels(int argc, char **argv)
{
    struct settings settings;
    enum oz_status status = cli_options_parse(&settings, COMMAND_KERNELS, argc, argv);
    if (status == OZ_OK && settings.help) {
        cli_command_help(cli_command_of(COMMAND_KERNELS));
    } else if (status == OZ_OK && settings.model != NULL) {
        status = cli_fail(OZ_ERR_ARG, "`ounce kernels` takes no argument, but there is '%s'.",
                          settings.model);
    } else if (status == OZ_OK) {
        struct oz_error err;
        status = oz_kernels_describe(settings.device, settings.json, cli_write, NULL, &err);
        status = cli_print_done(status, &err);
    }
    cli_settings_free(&settings);
    return status;
}
