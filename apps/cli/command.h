/* command.h: the commands of the program. Each parses its arguments, works, and has said what went
 * wrong when it returns anything but OZ_OK; argv[0] is its name. */
#ifndef OUNCE_CLI_COMMAND_H
#define OUNCE_CLI_COMMAND_H

#include <ounce/status.h>

struct command {
    const char *name;
    unsigned bit; /* COMMAND_ of options.h */
    enum oz_status (*run)(int argc, char **argv);
    const char *usage;   /* behind "ounce " */
    const char *summary; /* one line */
    const char *more;    /* paragraphs for its help, examples last */
};

/* The command of that name or bit, or NULL. */
const struct command *cli_command_named(const char *name);
const struct command *cli_command_of(unsigned bit);
void cli_command_help(const struct command *command);

enum oz_status cli_bench(int argc, char **argv);
enum oz_status cli_generate(int argc, char **argv);
enum oz_status cli_inspect(int argc, char **argv);
enum oz_status cli_kernels(int argc, char **argv);
enum oz_status cli_plan(int argc, char **argv);
enum oz_status cli_quantize(int argc, char **argv);
enum oz_status cli_random_model(int argc, char **argv);

#endif
