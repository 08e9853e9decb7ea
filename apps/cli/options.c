#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "common/words.h"
#include "messages.h"
#include "text.h"

enum option_type { FLAG, TEXT, LIST, I32, U64, F64, CHOICE };

struct option_row {
    size_t offset; /* in struct settings */
    enum option_type type;
    int letter;                  /* 0: none */
    const char *name, *argument; /* argument NULL: none */
    const char *choices;         /* "a, b" */
    const char *initial;         /* the column `default` */
    const char *help;
    double least, most;
    unsigned commands;
};

static const struct option_row rows[] = {
#define OPTION(member, type, name, letter, argument, commands, least, most, choices, initial, \
               help)                                                                          \
    {offsetof(struct settings, member),                                                       \
     type,                                                                                    \
     letter,                                                                                  \
     name,                                                                                    \
     argument,                                                                                \
     choices,                                                                                 \
     initial,                                                                                 \
     help,                                                                                    \
     least,                                                                                   \
     most,                                                                                    \
     commands},
#include "options.inc"
#undef OPTION
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- values ---- */

/* A whole number in decimal digits, maybe with a minus; errno is ERANGE when it does not fit. */
static bool read_whole(const char *text, bool *negative, uint64_t *value)
{
    *negative = *text == '-';
    const char *digits = text + *negative;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || digits[n] != '\0') {
        return false;
    }
    errno = 0;
    *value = strtoull(digits, NULL, 10);
    return true;
}

/* A decimal number; the program never sets a locale, so the point is a point. */
static bool read_decimal(const char *text, double *value)
{
    if (text[strspn(text, "+-0123456789.eE")] != '\0' || strpbrk(text, "0123456789") == NULL) {
        return false;
    }
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value);
}

/* Is `text` one of "a, b, c"? */
static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = choices; n > 0 && *p != '\0';) {
        size_t word = strcspn(p, ",");
        if (word == n && strncmp(p, text, n) == 0) {
            return true;
        }
        p += word;
        p += strspn(p, ", ");
    }
    return false;
}

/* Words for what an option takes: "a whole number from 1 to 10". free() */
static char *range_of(const struct option_row *row)
{
    switch (row->type) {
    case I32: return cli_format("a whole number from %.0f to %.0f", row->least, row->most);
    case U64:
        return cli_format("a whole number from %.0f to %llu", row->least,
                          (unsigned long long)UINT64_MAX);
    case F64: return cli_format("a number from %g to %g", row->least, row->most);
    case CHOICE:
        return cli_format(strchr(row->choices, ',') != NULL ? "one of %s" : "%s", row->choices);
    default: return NULL;
    }
}

static void append(struct text_list *list, const char *text)
{
    list->items = cli_grow(list->items, list->count + 1, sizeof *list->items);
    list->items[list->count++] = text;
}

static bool store(struct settings *settings, const struct option_row *row, const char *text)
{
    void *member = (char *)settings + row->offset;
    bool negative;
    uint64_t whole;
    switch (row->type) {
    case FLAG: *(bool *)member = true; return true;
    case TEXT: *(const char **)member = text; return true;
    case LIST: append(member, text); return true;
    case I32:
        if (!read_whole(text, &negative, &whole) || errno == ERANGE || (negative && whole != 0) ||
            whole > INT32_MAX || (double)whole < row->least || (double)whole > row->most) {
            return false;
        }
        *(int32_t *)member = (int32_t)whole;
        return true;
    case U64:
        if (!read_whole(text, &negative, &whole) || errno == ERANGE || (negative && whole != 0) ||
            (double)whole < row->least) {
            return false;
        }
        *(uint64_t *)member = whole;
        return true;
    case F64: {
        double value;
        if (!read_decimal(text, &value) || value < row->least || value > row->most) {
            return false;
        }
        *(double *)member = value;
        return true;
    }
    case CHOICE:
        if (!is_choice(row->choices, text)) {
            return false;
        }
        *(const char **)member = text;
        return true;
    }
    return false;
}

static void settings_init(struct settings *settings)
{
    *settings = (struct settings){0};
    for (size_t i = 0; i < ROWS; i++) {
        const char *initial = rows[i].initial;
        if (rows[i].type == F64) {
            *(double *)(void *)((char *)settings + rows[i].offset) = -1;
        }
        if (rows[i].type == CHOICE ||
            (rows[i].type >= I32 && initial != NULL && isdigit((unsigned char)*initial))) {
            (void)store(settings, &rows[i], initial);
        }
    }
}

void cli_settings_free(struct settings *settings)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].type == LIST) {
            free(((struct text_list *)(void *)((char *)settings + rows[i].offset))->items);
        }
    }
    for (size_t i = 0; i < settings->quantization_keys.count; i++) {
        free((char *)(uintptr_t)settings->quantization_keys.items[i]);
    }
    free(settings->quantization_keys.items);
    free(settings->arguments.items);
    *settings = (struct settings){0};
}

/* ---- the command line ---- */

struct parser {
    struct settings *settings;
    unsigned command;
    const char *title; /* "ounce generate" */
    const char *help;  /* "ounce help generate" */
    bool given[ROWS];
};

/* The row of the option called name[0 .. length). */
static const struct option_row *find(const char *name, size_t length)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (strlen(rows[i].name) == length && strncmp(rows[i].name, name, length) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* An option that this command has not: whose it is, or what it may have been meant to be. */
static enum oz_status fail_foreign(const struct parser *p, const struct option_row *row,
                                   const char *written)
{
    if (row != NULL) {
        const struct command *owner = cli_command_of(row->commands & -row->commands);
        return cli_fail(OZ_ERR_ARG, "--%s is an option of `ounce%s%s`, not of `%s`.", row->name,
                        owner != NULL ? " " : "", owner != NULL ? owner->name : "", p->title);
    }
    const char *names[ROWS];
    size_t count = 0;
    for (size_t i = 0; i < ROWS; i++) {
        if ((rows[i].commands & p->command) != 0) {
            names[count++] = rows[i].name;
        }
    }
    const char *nearest = words_nearest(written + strspn(written, "-"), names, count);
    if (nearest != NULL) {
        return cli_fail(OZ_ERR_ARG, "There is no option %s; did you mean --%s?", written, nearest);
    }
    return cli_fail(OZ_ERR_ARG, "There is no option %s; `%s` lists them all.", written, p->help);
}

/* Looks at an element that begins with a dash before getopt does, who would take abbreviations, an
 * option's name for the value of another, and -height for -h eight. */
static enum oz_status check_element(const struct parser *p, const char *element, const char *next)
{
    size_t length = strcspn(element, "=");
    if (element[0] != '-' || element[1] == '\0' || strcmp(element, "--") == 0) {
        return OZ_OK;
    }
    if (element[1] != '-') {
        if (length > 2 && find(element + 1, length - 1) != NULL) {
            return cli_fail(OZ_ERR_ARG, "There is no option %.*s; long ones have two dashes: -%s.",
                            (int)length, element, element);
        }
        return OZ_OK;
    }
    const struct option_row *row = find(element + 2, length - 2);
    if (row == NULL || (row->commands & p->command) == 0) {
        char *written = cli_format("%.*s", (int)length, element);
        enum oz_status status = fail_foreign(p, row, written);
        free(written);
        return status;
    }
    if (row->argument == NULL && element[length] == '=') {
        return cli_fail(OZ_ERR_ARG, "--%s takes no value.", row->name);
    }
    if (row->argument == NULL || element[length] == '=') {
        return OZ_OK;
    }
    if (next == NULL) {
        return cli_fail(OZ_ERR_ARG, "--%s needs a value: --%s %s.", row->name, row->name,
                        row->argument);
    }
    if (strncmp(next, "--", 2) == 0 && find(next + 2, strcspn(next + 2, "=")) != NULL) {
        return cli_fail(OZ_ERR_ARG,
                        "--%s needs a value, but the option %s follows. If that is the value, "
                        "write --%s=%s.",
                        row->name, next, row->name, next);
    }
    return OZ_OK;
}

#define WHOLE "quantization-config"
#define DOTTED "--" WHOLE "."

/* Takes the dotted options out of argv (argc and argv are of a copy): getopt knows no such names. */
static enum oz_status take_dotted(struct parser *p, int *argc, char **argv)
{
    bool taken = (find(WHOLE, strlen(WHOLE))->commands & p->command) != 0;
    int kept = 1;
    bool value_follows = false;
    for (int i = 1; i < *argc; i++) {
        const char *element = argv[i];
        bool ended = strcmp(element, "--") == 0;
        bool dotted = taken && !value_follows && strncmp(element, DOTTED, strlen(DOTTED)) == 0;
        if (!dotted) {
            const struct option_row *row =
                strncmp(element, "--", 2) == 0 ? find(element + 2, strlen(element + 2)) : NULL;
            value_follows = row != NULL && row->argument != NULL;
            argv[kept++] = argv[i];
            while (ended && ++i < *argc) {
                argv[kept++] = argv[i];
            }
            continue;
        }
        const char *path = element + strlen(DOTTED);
        const char *value = strchr(path, '=');
        int length = value != NULL ? (int)(value - path) : (int)strlen(path);
        value = value != NULL ? value + 1 : i + 1 < *argc ? argv[++i] : NULL;
        if (value == NULL || length == 0) {
            return cli_fail(OZ_ERR_ARG, "%s needs a %s: " DOTTED "linear.activation mxfp8.",
                            element, length == 0 ? "name" : "value");
        }
        struct text_list *keys = &p->settings->quantization_keys;
        append(keys, cli_format("%.*s=%s", length, path, value));
    }
    argv[kept] = NULL;
    *argc = kept;
    return OZ_OK;
}

static enum oz_status take_option(struct parser *p, size_t index, const char *value)
{
    const struct option_row *row = &rows[index];
    if (p->given[index] && row->type != LIST) {
        return cli_fail(OZ_ERR_ARG, "--%s is given twice.", row->name);
    }
    p->given[index] = true;
    if (!store(p->settings, row, value)) {
        char *range = range_of(row);
        enum oz_status status =
            cli_fail(OZ_ERR_ARG, "--%s must be %s, not '%s'.", row->name, range, value);
        free(range);
        return status;
    }
    return OZ_OK;
}

/* An argument that is no option. */
static enum oz_status take_argument(struct parser *p, const char *text)
{
    const struct command *command = cli_command_of(p->command);
    if (command == NULL) {
        return cli_fail(OZ_ERR_ARG,
                        "'%s' has no meaning here; a command comes first: `ounce --help`.", text);
    }
    if (p->command == COMMAND_COMPARE) {
        append(&p->settings->arguments, text);
        return OZ_OK;
    }
    if (p->settings->model != NULL) {
        return cli_fail(
            OZ_ERR_ARG,
            "`%s` takes one model, but there are '%s' and '%s'. A value with blanks needs "
            "quotes: --prompt \"red apple\".",
            p->title, p->settings->model, text);
    }
    if (*text == '\0') {
        return cli_fail(OZ_ERR_ARG,
                        "The model is an empty text; leave it out for the bundled one.");
    }
    p->settings->model = text;
    return OZ_OK;
}

/* What getopt_long gets: the options of one command; val is the row + 256. */
struct getopt_tables {
    struct option longs[ROWS + 1];
    char letters[2 * ROWS + 3];
};

static void tables_init(struct getopt_tables *t, unsigned command)
{
    size_t n = 0, k = 0;
    *t = (struct getopt_tables){0};
    t->letters[k++] = '-'; /* other arguments come in order, as option 1 */
    t->letters[k++] = ':'; /* a missing value is ':' */
    for (size_t i = 0; i < ROWS; i++) {
        if ((rows[i].commands & command) == 0) {
            continue;
        }
        bool takes = rows[i].argument != NULL;
        t->longs[n++] = (struct option){rows[i].name, takes ? required_argument : no_argument, NULL,
                                        (int)i + 256};
        if (rows[i].letter != 0) {
            t->letters[k++] = (char)rows[i].letter;
            if (takes) {
                t->letters[k++] = ':';
            }
        }
    }
}

static size_t row_of_letter(int letter)
{
    size_t i = 0;
    while (i < ROWS && rows[i].letter != letter) {
        i++;
    }
    return i;
}

static enum oz_status take_result(struct parser *p, int result, char *value)
{
    if (result == 1) {
        return take_argument(p, value);
    }
    if (result == '?' || result == ':') {
        size_t row = row_of_letter(optopt);
        char written[3] = {'-', (char)optopt, '\0'};
        if (result == ':' && row < ROWS) {
            return cli_fail(OZ_ERR_ARG, "%s needs a value: %s %s.", written, written,
                            rows[row].argument);
        }
        return fail_foreign(p, row < ROWS ? &rows[row] : NULL, written);
    }
    return take_option(p, result >= 256 ? (size_t)(result - 256) : row_of_letter(result), value);
}

static enum oz_status parse(struct parser *p, int argc, char **argv)
{
    struct getopt_tables tables;
    tables_init(&tables, p->command);
    optind = 0; /* start afresh */
    opterr = 0;
    for (int at = 1; !p->settings->help; at = optind) {
        enum oz_status status = OZ_OK;
        if (at < argc) {
            status = check_element(p, argv[at], at + 1 < argc ? argv[at + 1] : NULL);
        }
        if (status != OZ_OK) {
            return status;
        }
        int result = getopt_long(argc, argv, tables.letters, tables.longs, NULL);
        if (result == -1) {
            break;
        }
        status = take_result(p, result, optarg);
        if (status != OZ_OK) {
            return status;
        }
    }
    for (; !p->settings->help && optind < argc; optind++) {
        enum oz_status status = take_argument(p, argv[optind]); /* behind -- */
        if (status != OZ_OK) {
            return status;
        }
    }
    return OZ_OK;
}

enum oz_status cli_options_parse(struct settings *settings, unsigned command, int argc, char **argv)
{
    settings_init(settings);
    struct parser p = {.settings = settings, .command = command};
    const struct command *named = cli_command_of(command);
    char *title = named != NULL ? cli_format("ounce %s", named->name) : cli_format("ounce");
    char *help =
        named != NULL ? cli_format("ounce help %s", named->name) : cli_format("ounce --help");
    p.title = title;
    p.help = help;
    char **elements = cli_alloc((size_t)argc + 1, sizeof *elements);
    memcpy(elements, argv, (size_t)argc * sizeof *elements);
    enum oz_status status = take_dotted(&p, &argc, elements);
    if (status == OZ_OK) {
        status = parse(&p, argc, elements);
    }
    free(elements);
    free(title);
    free(help);
    return status;
}

/* ---- help ---- */

enum { HELP_COLUMN = 30, HELP_WIDTH = 79 };

/* Prints text word by word, from HELP_COLUMN on. */
static void print_wrapped(const char *text)
{
    size_t column = HELP_COLUMN;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column + 1 + word > HELP_WIDTH) {
            (void)cli_printf("\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            (void)cli_print(" ", 1);
            column++;
        }
        (void)cli_print(text, word);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    (void)cli_print("\n", 1);
}

static void print_option(const struct option_row *row)
{
    char head[80], letter[8] = "    ";
    if (row->letter != 0) {
        (void)snprintf(letter, sizeof letter, "-%c, ", row->letter);
    }
    int n = snprintf(head, sizeof head, "  %s--%s%s%s", letter, row->name,
                     row->argument != NULL ? " " : "", row->argument != NULL ? row->argument : "");
    bool fits = n + 2 <= HELP_COLUMN;
    (void)cli_printf("%s%s%*s", head, fits ? "" : "\n", fits ? HELP_COLUMN - n : HELP_COLUMN, "");
    char *range = range_of(row);
    const char *bounds = range; /* "16 to 16384" of "a whole number from 16 to 16384" */
    if (range != NULL && row->type != CHOICE) {
        bounds = strstr(range, "from ") + strlen("from ");
    }
    const char *initial = row->initial;
    char *text = bounds != NULL && initial != NULL
                     ? cli_format("%s (%s; default: %s)", row->help, bounds, initial)
                 : bounds != NULL  ? cli_format("%s (%s)", row->help, bounds)
                 : initial != NULL ? cli_format("%s (default: %s)", row->help, initial)
                                   : cli_format("%s", row->help);
    print_wrapped(text);
    free(text);
    free(range);
}

void cli_options_help(unsigned command)
{
    for (size_t i = 0; i < ROWS; i++) {
        if ((rows[i].commands & command) != 0) {
            print_option(&rows[i]);
        }
    }
}
