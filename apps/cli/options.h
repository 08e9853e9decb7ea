/*
 * options.h: the options of all commands (options.inc), read from the command line into one struct.
 * Strict on purpose: no abbreviations, nothing twice, every number in its range.
 */
#ifndef OUNCE_CLI_OPTIONS_H
#define OUNCE_CLI_OPTIONS_H

#include <ounce/ounce.h>
#include <stdbool.h>

/* Who takes an option. COMMAND_TOP: the program without a command. */
enum {
    COMMAND_TOP = 1,
    COMMAND_GENERATE = 2,
    COMMAND_INSPECT = 4,
    COMMAND_KERNELS = 8,
    COMMAND_BENCH = 16,
    COMMAND_RANDOM_MODEL = 32,
    COMMAND_PLAN = 64,
    COMMAND_QUANTIZE = 128,
    COMMAND_COMPARE = 256,
    COMMAND_SERVE = 512,
    COMMAND_CONVERT = 1024,
};

struct text_list {
    const char **items; /* borrowed texts in an owned array */
    size_t count;
};

#define OPTION_C_TYPE_FLAG bool
#define OPTION_C_TYPE_TEXT const char *
#define OPTION_C_TYPE_LIST struct text_list
#define OPTION_C_TYPE_I32 int32_t
#define OPTION_C_TYPE_U64 uint64_t
#define OPTION_C_TYPE_F64 double
#define OPTION_C_TYPE_CHOICE const char *

/* What the command line asks for. Texts are borrowed from argv. */
struct settings {
#define OPTION(member, type, ...) OPTION_C_TYPE_##type member;
#include "options.inc"
#undef OPTION
    /* "linear.activation=mxfp8" for each --quantization-config.linear.activation; owned texts. */
    struct text_list quantization_keys;
    const char *model;          /* the one argument that is no option; NULL: the bundled model */
    struct text_list arguments; /* of `compare`, which takes several, in place of model */
};

/*
 * Reads argv[1 ..] of the command named by one COMMAND_ bit; argv[0] is its name. Says what is wrong
 * and returns OZ_ERR_ARG. After --help nothing more is looked at. settings_free after either.
 */
enum oz_status cli_options_parse(struct settings *settings, unsigned command, int argc,
                                 char **argv);
void cli_settings_free(struct settings *settings);

/* Prints the options of a command to stdout. */
void cli_options_help(unsigned command);

#endif
