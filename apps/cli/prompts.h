/* prompts.h: the prompts of a run: those of the command line, then those of a file. */
#ifndef OUNCE_CLI_PROMPTS_H
#define OUNCE_CLI_PROMPTS_H

#include "options.h"

struct prompts {
    struct text_list list; /* all, in order; borrows from settings and from `lines` */
    char **lines;          /* of the file */
    size_t line_count;
};

/* Says what is wrong (no prompt at all, a file that cannot be read). cli_prompts_free after either. */
enum oz_status cli_prompts_read(struct prompts *prompts, const struct settings *settings);
void cli_prompts_free(struct prompts *prompts);

#endif
