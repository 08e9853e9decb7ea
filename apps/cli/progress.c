#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/words.h"
#include "interrupt.h"
#include "messages.h"
#include "text.h"

static const double redraw_s = 0.1;  /* between two drawings of a stage */
static const double settled_s = 0.5; /* a rate over less than this jumps about */

static const struct {
    const char *name, *unit;
} stages[CLI_STAGES] = {
    [OZ_STAGE_LOAD] = {"load", "MiB"},
    [OZ_STAGE_TEXT] = {"text", "prompts"},
    [OZ_STAGE_DENOISE] = {"denoise", "steps"},
    [OZ_STAGE_DECODE] = {"decode", "pictures"},
    [OZ_STAGE_BENCH] = {"bench", "measurements"},
    [OZ_STAGE_WRITE] = {"write", "MiB"},
    [OZ_STAGE_STUDY] = {"study", "steps"},
};

void cli_progress_init(struct progress *progress, bool quiet)
{
    *progress = (struct progress){
        .shown = !quiet && cli_status_line_works(),
        .drawn_stage = OZ_STAGE_DECODE,
    };
    cli_progress_begin(progress, 0, 1, 1);
}

void cli_progress_begin(struct progress *progress, int64_t first, int64_t count, int64_t pictures)
{
    progress->first = first;
    progress->count = count;
    progress->pictures = pictures;
    progress->last_s = words_seconds();
}

void cli_progress_end(struct progress *progress)
{
    if (progress->shown) {
        cli_status_line(NULL);
    }
}

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* "12/160 steps  18.2 steps/s  0:08 left" */
static void write_figures(char *text, size_t bytes, enum oz_stage stage, double done, double total,
                          double spent_s)
{
    bool bytes_count = stage == OZ_STAGE_LOAD || stage == OZ_STAGE_WRITE;
    double scale = bytes_count ? 1.0 / (1024 * 1024) : 1;
    int decimals = bytes_count ? 1 : 0;
    int n = snprintf(text, bytes, "%.*f/%.*f %s", decimals, done * scale, decimals, total * scale,
                     stages[stage].unit);
    if ((stage != OZ_STAGE_DENOISE && stage != OZ_STAGE_STUDY) || spent_s < settled_s ||
        done <= 0) {
        return;
    }
    double rate = done / spent_s;
    double left_s = (total - done) / rate;
    n += snprintf(text + n, bytes - (size_t)n, rate < 10 ? "  %.2g steps/s" : "  %.0f steps/s",
                  rate);
    if (left_s < 3600) {
        (void)snprintf(text + n, bytes - (size_t)n, "  %d:%02d left", (int)left_s / 60,
                       (int)left_s % 60);
    } else {
        (void)snprintf(text + n, bytes - (size_t)n, "  %.0f h %02.0f min left",
                       (double)(int64_t)(left_s / 3600),
                       (left_s - 3600.0 * (double)(int64_t)(left_s / 3600)) / 60);
    }
}

static void draw(enum oz_stage stage, double done, double total, double spent_s)
{
    char figures[128], line[256], bar[41];
    write_figures(figures, sizeof figures, stage, done, total, spent_s);
    int columns = terminal_columns() - 1;
    int room = columns - (int)strlen(figures) - (int)strlen("denoise  []  ");
    int width = room < (int)sizeof bar - 1 ? room : (int)sizeof bar - 1;
    if (width >= 8) {
        double share = total > 0 ? done / total : 0;
        int filled = (int)((double)width * (share < 1 ? share : 1));
        memset(bar, '#', (size_t)filled);
        memset(bar + filled, '.', (size_t)(width - filled));
        bar[width] = '\0';
        (void)snprintf(line, sizeof line, "%-7s  [%s]  %s", stages[stage].name, bar, figures);
    } else {
        (void)snprintf(line, sizeof line, "%s  %s", stages[stage].name, figures);
    }
    if (columns > 0 && columns < (int)sizeof line) {
        line[columns] = '\0';
    }
    cli_status_line(line);
}

int cli_progress(void *ctx, const struct oz_progress *now)
{
    struct progress *progress = ctx;
    if ((unsigned)now->stage < CLI_STAGES) {
        double time_s = words_seconds();
        progress->spent_s[now->stage] += time_s - progress->last_s;
        progress->last_s = time_s;
        if (progress->shown &&
            (now->stage != progress->drawn_stage || time_s - progress->drawn_s >= redraw_s)) {
            /* A call is a part of the whole; its pictures cost the same as all others. */
            double parts = (double)progress->count, total = (double)now->total;
            draw(now->stage, (double)progress->first * total / parts + (double)now->done,
                 (double)progress->pictures * total / parts, progress->spent_s[now->stage]);
            progress->drawn_s = time_s;
            progress->drawn_stage = now->stage;
        }
    }
    return cli_interrupted();
}
