/*
 * output.h: where pictures go. Every path is settled, and every folder tried, before the work. The
 * library writes beside a file and renames, so a file is whole, new or old.
 */
#ifndef OUNCE_CLI_OUTPUT_H
#define OUNCE_CLI_OUTPUT_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

struct output {
    const char *option; /* for messages: "--output" */
    char *folder;       /* with its slash; "" for the current one */
    char *stem;         /* of the file's name */
    char *ending;       /* ".png" as it was written */
    int digits;         /* of the number behind the stem; 0: none */
    int64_t count;
    bool made_folder;
};

/*
 * `text` is NAME.png, or a folder: it ends in a slash (and is made when it is missing) or is one;
 * its files are then named ounce. A count above 1 numbers them from 1, all with as many digits as the
 * last. Tries out that they can be written. cli_output_close after either.
 */
enum oz_status cli_output_open(struct output *output, const char *option, const char *text,
                               int64_t count);
/* Removes a folder that was made and is still empty. */
void cli_output_close(struct output *output);

/* The path of one file, index from 0. free() */
char *cli_output_path(const struct output *output, int64_t index);

/* Says that a folder has been written: its path on stdout, and the time since began_s. OZ_OK. */
enum oz_status cli_output_written(const char *folder, bool quiet, double began_s);

/* Would a file of one be a file of the other? */
bool cli_output_collides(const struct output *a, const struct output *b);

#endif
