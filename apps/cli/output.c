#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/words.h"
#include "messages.h"
#include "text.h"

static const char png[] = ".png";
enum { PNG_LENGTH = sizeof png - 1 };

char *cli_output_path(const struct output *output, int64_t index)
{
    if (output->digits == 0) {
        return cli_format("%s%s%s", output->folder, output->stem, output->ending);
    }
    return cli_format("%s%s-%0*lld%s", output->folder, output->stem, output->digits,
                      (long long)index + 1, output->ending);
}

/* The folder as a path that can be opened. */
static const char *folder_of(const struct output *output)
{
    return *output->folder != '\0' ? output->folder : ".";
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Splits text into folder, stem and ending. */
static enum oz_status name_files(struct output *output, const char *text)
{
    const char *slash = strrchr(text, '/');
    const char *name = slash != NULL ? slash + 1 : text;
    if (strcmp(text, "-") == 0) {
        return cli_fail(OZ_ERR_ARG,
                        "%s must be a file or a folder; pictures do not go to standard "
                        "output.",
                        output->option);
    }
    if (*text != '\0' && (*name == '\0' || is_folder(text))) {
        output->folder = cli_format("%s%s", text, *name == '\0' ? "" : "/");
        output->stem = cli_format("ounce");
        output->ending = cli_format(png);
        return OZ_OK;
    }
    size_t length = strlen(name);
    if (!cli_ends_with(name, png) || length == PNG_LENGTH) {
        return cli_fail(OZ_ERR_ARG,
                        "%s must be a name that ends in .png, or a folder (ending in /), "
                        "not '%s'.",
                        output->option, text);
    }
    output->folder = cli_format("%.*s", (int)(name - text), text);
    output->stem = cli_format("%.*s", (int)(length - PNG_LENGTH), name);
    output->ending = cli_format("%s", name + length - PNG_LENGTH);
    return OZ_OK;
}

/* Makes a file beside the pictures and removes it: nothing else tells a read-only disk, a missing
 * right and a full one apart from what works. */
static enum oz_status try_folder(struct output *output)
{
    char *last = cli_output_path(output, output->count - 1);
    char *trial = cli_format("%s.ounce-XXXXXX", output->folder);
    struct stat st;
    bool named = lstat(last, &st) == 0 || errno != ENAMETOOLONG;
    int file = named ? mkstemp(trial) : -1;
    int error = errno;
    if (file >= 0) {
        (void)close(file);
        (void)unlink(trial);
    }
    free(trial);
    enum oz_status status = OZ_OK;
    if (file < 0 && !is_folder(folder_of(output))) {
        status =
            cli_fail(OZ_ERR_IO, "Cannot write %s: there is no folder %s.", last, folder_of(output));
    } else if (file < 0) {
        status = cli_fail(OZ_ERR_IO, "Cannot write %s: %s.", last, strerror(error));
    }
    free(last);
    return status;
}

/* Renaming onto something that is no file would fail, or replace it. */
static enum oz_status try_files(const struct output *output)
{
    enum oz_status status = OZ_OK;
    for (int64_t i = 0; i < output->count && status == OZ_OK; i++) {
        struct stat st;
        char *path = cli_output_path(output, i);
        if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
            status =
                cli_fail(OZ_ERR_IO, "Cannot write %s: it is there, and is no ordinary file.", path);
        }
        free(path);
    }
    return status;
}

enum oz_status cli_output_open(struct output *output, const char *option, const char *text,
                               int64_t count)
{
    *output = (struct output){.option = option, .count = count};
    for (int64_t rest = count; count > 1 && rest > 0; rest /= 10) {
        output->digits++;
    }
    enum oz_status status = name_files(output, text);
    if (status != OZ_OK) {
        return status;
    }
    if (cli_ends_with(text, "/")) {
        output->made_folder = mkdir(text, 0777) == 0;
        if (!output->made_folder && errno != EEXIST) {
            return cli_fail(OZ_ERR_IO, "Cannot make the folder %s: %s.", text, strerror(errno));
        }
    }
    status = try_folder(output);
    return status == OZ_OK ? try_files(output) : status;
}

void cli_output_close(struct output *output)
{
    if (output->made_folder) {
        (void)rmdir(output->folder); /* fails when something is in it */
    }
    free(output->folder);
    free(output->stem);
    free(output->ending);
    *output = (struct output){0};
}

bool cli_output_collides(const struct output *a, const struct output *b)
{
    struct stat in_a, in_b;
    if (stat(folder_of(a), &in_a) != 0 || stat(folder_of(b), &in_b) != 0 ||
        in_a.st_dev != in_b.st_dev || in_a.st_ino != in_b.st_ino) {
        return false;
    }
    bool found = false;
    for (int64_t i = 0; i < a->count && !found; i++) {
        for (int64_t j = 0; j < b->count && !found; j++) {
            char *x = cli_output_path(a, i), *y = cli_output_path(b, j);
            found = strcmp(x + strlen(a->folder), y + strlen(b->folder)) == 0;
            free(x);
            free(y);
        }
    }
    return found;
}

enum oz_status cli_output_written(const char *folder, bool quiet, double began_s)
{
    (void)cli_printf("%s\n", folder);
    if (!quiet) {
        cli_say("written in %.1f s", words_seconds() - began_s);
    }
    return OZ_OK;
}
