/* kernels.c: `ounce kernels`: the library's lists of kernels, on standard output. */
#include <ounce/ounce.h>

#include "command.h"
#include "messages.h"
#include "options.h"

enum oz_status cli_kernels(const struct settings *s)
{
    struct oz_error err;
    if (s->model != NULL) {
        return cli_fail(OZ_ERR_ARG, "`ounce kernels` takes no argument, but there is '%s'.",
                        s->model);
    }
    enum oz_status status = oz_kernels_describe(s->device, s->json, cli_write, NULL, &err);
    return cli_print_done(status, &err);
}
