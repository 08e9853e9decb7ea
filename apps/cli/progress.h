/* progress.h: the library's progress as one line on a terminal: stage, bar, steps, rate, time left.
 * Draws nothing when stderr is no terminal or when quiet. Cancels the work after Ctrl-C. */
#ifndef OUNCE_CLI_PROGRESS_H
#define OUNCE_CLI_PROGRESS_H

#include <ounce/ounce.h>
#include <stdbool.h>

enum { CLI_STAGES = OZ_STAGE_STUDY + 1 };

struct progress {
    bool shown;
    int64_t first, count, pictures; /* the call draws pictures first .. first + count of all */
    double spent_s[CLI_STAGES];     /* in calls so far */
    double last_s, drawn_s;         /* when we were called, when we drew */
    enum oz_stage drawn_stage;
};

void cli_progress_init(struct progress *progress, bool quiet);

/* Says what the next call to the library is a part of. */
void cli_progress_begin(struct progress *progress, int64_t first, int64_t count, int64_t pictures);

/* An oz_progress_fn; ctx is a struct progress. */
int cli_progress(void *ctx, const struct oz_progress *now);

/* Takes the line away. */
void cli_progress_end(struct progress *progress);

#endif
