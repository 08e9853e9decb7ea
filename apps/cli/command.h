/* command.h: the commands of the program. Each works from its parsed options, and has said what went
 * wrong when it returns anything but OZ_OK. */
#ifndef OUNCE_CLI_COMMAND_H
#define OUNCE_CLI_COMMAND_H

#include <ounce/status.h>

#include "options.h"

struct command {
    const char *name;
    unsigned bit; /* COMMAND_ of options.h */
    enum oz_status (*run)(const struct settings *s);
    const char *usage;   /* behind "ounce " */
    const char *summary; /* one line */
    const char *more;    /* paragraphs for its help, examples last */
};

/* The command of that bit, or NULL. */
const struct command *cli_command_of(unsigned bit);

enum oz_status cli_bench(const struct settings *s);
enum oz_status cli_compare(const struct settings *s);
enum oz_status cli_compare_models(const struct settings *s); /* `compare` with candidates */
enum oz_status cli_convert(const struct settings *s);
enum oz_status cli_generate(const struct settings *s);
enum oz_status cli_inspect(const struct settings *s);
enum oz_status cli_kernels(const struct settings *s);
enum oz_status cli_plan(const struct settings *s);
enum oz_status cli_quantize(const struct settings *s);
enum oz_status cli_random_model(const struct settings *s);
enum oz_status cli_serve(const struct settings *s);

#endif
