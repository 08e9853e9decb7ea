#include "prompts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "interrupt.h"
#include "messages.h"
#include "text.h"

static void add(struct prompts *prompts, const char *text)
{
    struct text_list *list = &prompts->list;
    list->items = cli_grow(list->items, list->count + 1, sizeof *list->items);
    list->items[list->count++] = text;
}

/* Reads the lines that are not blank; `name` is for messages. */
static enum oz_status read_lines(struct prompts *prompts, FILE *file, const char *name)
{
    char *line = NULL;
    size_t room = 0;
    for (size_t number = 1;; number++) {
        errno = 0;
        ssize_t length = getline(&line, &room, file);
        int error = errno;
        if (length < 0) {
            bool whole = feof(file) && !ferror(file);
            free(line);
            if (cli_interrupted()) {
                return cli_fail(OZ_ERR_CANCELLED, "Interrupted; no picture was written.");
            }
            return whole ? OZ_OK
                         : cli_fail(OZ_ERR_IO, "Cannot read %s: %s.", name, strerror(error));
        }
        if (memchr(line, '\0', (size_t)length) != NULL) {
            free(line);
            return cli_fail(OZ_ERR_ARG, "%s is not a text file: line %zu holds a zero byte.", name,
                            number);
        }
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
            line[--length] = '\0';
        }
        static const char mark[] = "\xef\xbb\xbf"; /* some editors begin a file with it */
        const char *text = line;
        if (number == 1 && strncmp(text, mark, sizeof mark - 1) == 0) {
            text += sizeof mark - 1;
        }
        if (text[strspn(text, " \t")] == '\0') {
            continue;
        }
        prompts->lines = cli_grow(prompts->lines, prompts->line_count + 1, sizeof *prompts->lines);
        char *copy = cli_format("%s", text);
        prompts->lines[prompts->line_count++] = copy;
        add(prompts, copy);
    }
}

static enum oz_status read_file(struct prompts *prompts, const char *path)
{
    bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    FILE *file = standard ? stdin : fopen(path, "re");
    if (file == NULL) {
        return cli_fail(OZ_ERR_IO, "Cannot open the prompts file %s: %s.", path, strerror(errno));
    }
    enum oz_status status = read_lines(prompts, file, name);
    if (!standard) {
        (void)fclose(file);
    }
    if (status == OZ_OK && prompts->line_count == 0) {
        status = cli_fail(OZ_ERR_ARG, "There is no prompt in %s; it should hold one on each line.",
                          name);
    }
    return status;
}

enum oz_status cli_prompts_read(struct prompts *prompts, const struct settings *settings)
{
    *prompts = (struct prompts){0};
    for (size_t i = 0; i < settings->prompts.count; i++) {
        add(prompts, settings->prompts.items[i]);
    }
    if (settings->prompts_file != NULL) {
        return read_file(prompts, settings->prompts_file);
    }
    if (prompts->list.count == 0) {
        /* Who writes the prompt where the model goes gets it back in its place. */
        const char *model = settings->model;
        bool likely = model != NULL && (strchr(model, ' ') != NULL || strchr(model, '/') == NULL);
        return cli_fail(OZ_ERR_ARG,
                        "There is no prompt. Say what to draw with --prompt or --prompts-file, for "
                        "example: ounce generate --prompt \"%s\"",
                        likely ? model : "red apple");
    }
    return OZ_OK;
}

void cli_prompts_free(struct prompts *prompts)
{
    for (size_t i = 0; i < prompts->line_count; i++) {
        free(prompts->lines[i]);
    }
    free(prompts->lines);
    free(prompts->list.items);
    *prompts = (struct prompts){0};
}
