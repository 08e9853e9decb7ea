/* plan.c: `ounce plan`: the library's plan of a load and a run, on standard output. */
#include <ctype.h>
#include <ounce/ounce.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "messages.h"
#include "model.h"
#include "options.h"
#include "text.h"

/* The factor of a unit behind a number of bytes: "", "B", "K", "KiB", "KB" ...; 0: there is none. */
static double unit_of(const char *text)
{
    static const char letters[] = "KMGT";
    if (*text == '\0' || strcmp(text, "B") == 0) {
        return 1;
    }
    const char *letter = strchr(letters, toupper((unsigned char)*text));
    if (letter == NULL) {
        return 0;
    }
    bool decimal = strcmp(text + 1, "B") == 0;
    if (!decimal && text[1] != '\0' && strcmp(text + 1, "iB") != 0) {
        return 0;
    }
    double factor = 1;
    for (const char *p = letters; p <= letter; p++) {
        factor *= decimal ? 1000 : 1024;
    }
    return factor;
}

static enum oz_status read_bytes(const char *text, int64_t *bytes)
{
    static const double most = 1e18;
    size_t digits = strspn(text, "0123456789.");
    char *end;
    char *number = cli_format("%.*s", (int)digits, text);
    double value = strtod(number, &end);
    bool good = digits > 0 && *end == '\0';
    double factor = unit_of(text + digits);
    free(number);
    value *= factor;
    if (!good || factor == 0 || value < 1 || value > most) {
        return cli_fail(OZ_ERR_ARG,
                        "--fit must be a number of bytes, with or without a unit (512M, 20GiB, "
                        "16GB), not '%s'.",
                        text);
    }
    *bytes = (int64_t)value;
    return OZ_OK;
}

static int by_length(const void *a, const void *b)
{
    size_t x = strlen(*(const char *const *)a);
    size_t y = strlen(*(const char *const *)b);
    return (x < y) - (x > y);
}

/* The pictures that `ounce generate` draws together; where there are more prompts than that, the
 * longest, which need most. */
static struct oz_image_request *make_requests(const struct settings *s, int32_t *count)
{
    size_t prompts = s->prompts.count;
    int64_t all = (int64_t)(prompts > 0 ? prompts : 1) * s->num_images;
    *count = (int32_t)(all < s->max_batch ? all : s->max_batch);
    struct oz_image_request *requests = cli_alloc((size_t)*count, sizeof *requests);
    const char **texts = cli_alloc(prompts + 1, sizeof *texts);
    if (prompts > 0) {
        memcpy(texts, s->prompts.items, prompts * sizeof *texts);
        qsort(texts, prompts, sizeof *texts, by_length);
    }
    for (int32_t i = 0; i < *count; i++) {
        cli_model_request(&requests[i], s);
        requests[i].prompt = texts[i / s->num_images];
    }
    free(texts);
    return requests;
}

enum oz_status cli_plan(const struct settings *s)
{
    struct oz_engine_options engine;
    struct oz_plan_options options;
    struct oz_error err;
    struct text_list ignored = {0};
    bool verbose = false;
    oz_plan_options_default(&options);
    options.fit_by = s->fit_by;
    enum oz_status status = s->fit != NULL ? read_bytes(s->fit, &options.fit_bytes) : OZ_OK;
    if (status != OZ_OK) {
        return status;
    }
    cli_model_options(&engine, s, &ignored);
    engine.log = cli_log;
    engine.log_ctx = &verbose;
    options.json = s->json;
    options.tensors = s->tensors;
    struct oz_image_request *requests = make_requests(s, &options.request_count);
    options.requests = requests;
    status = oz_model_plan(&engine, &options, cli_write, NULL, &err);
    status = cli_print_done(status, &err);
    free(requests);
    cli_model_options_free(&ignored);
    return status;
}
