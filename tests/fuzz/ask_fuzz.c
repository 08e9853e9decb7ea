/*
 * A request to the server: the first byte chooses the API, the rest is its body. What is accepted lies in
 * the ranges of request_fields.inc; what is refused says why and with which status; and a prompt comes out
 * of the JSON that we write as it went in.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "json.h"
#include "request.h"
#include "text.h"

enum { MOST_BYTES = 64 * 1024 };

static void check_accepted(const struct sv_ask *ask, unsigned api, const struct sv_limits *limits)
{
    FUZZ_CHECK(ask->n >= 1 && ask->n <= SV_MOST_PICTURES);
    FUZZ_CHECK(ask->steps >= 0 && ask->steps <= 200);
    FUZZ_CHECK(ask->guidance <= 20);
    FUZZ_CHECK(ask->quality >= -1 && ask->quality <= 100);
    FUZZ_CHECK(ask->answer >= 0 && ask->answer <= SV_ANSWER_FILE);
    FUZZ_CHECK(ask->format >= 0 && ask->format <= SV_FORMAT_JPG);
    FUZZ_CHECK(ask->previews >= 0 && ask->previews <= 200);
    FUZZ_CHECK(ask->seed >= -1 && ask->seed <= INT64_MAX - SV_MOST_PICTURES);
    if (api == SV_API_DEFAULTS) {
        return;
    }
    FUZZ_CHECK(ask->prompt != NULL && ask->prompt[0] != '\0' && ask->format != SV_FORMAT_JPG);
    int64_t width = ask->width > 0 ? ask->width : limits->width;
    int64_t height = ask->height > 0 ? ask->height : limits->height;
    FUZZ_CHECK(width % limits->size_multiple == 0 && height % limits->size_multiple == 0);
    FUZZ_CHECK(width * height <= limits->max_pixels);
}

/* The prompt, written and read again. */
static void check_writing(const char *prompt)
{
    struct sv_text out = {0};
    char why[256];
    sv_json_open(&out, NULL, '[');
    sv_json_put_string(&out, NULL, prompt);
    sv_json_put_base64(&out, NULL, prompt, strlen(prompt));
    sv_json_close(&out, ']');
    if (!out.failed) {
        struct sv_json *back = sv_json_parse(out.data, out.bytes, 2, why, sizeof why);
        FUZZ_CHECK(back != NULL && sv_json_count(back) == 2);
        FUZZ_CHECK(strcmp(sv_json_string(sv_json_at(back, 0)), prompt) == 0);
        FUZZ_CHECK(strlen(sv_json_string(sv_json_at(back, 1))) == (strlen(prompt) + 2) / 3 * 4);
        sv_json_free(back);
    }
    sv_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const unsigned apis[] = {SV_API_IMAGES, SV_API_JOBS, SV_API_SDAPI, SV_API_DEFAULTS};
    static const char *const models[] = {"emoji"};
    const struct sv_limits limits = {.max_pixels = 1 << 20,
                                     .size_multiple = 16,
                                     .width = 128,
                                     .height = 128,
                                     .models = models,
                                     .model_count = 1};
    struct sv_ask ask;
    struct sv_problem problem;
    if (bytes < 1 || bytes > MOST_BYTES) {
        return 0;
    }
    unsigned api = apis[data[0] % 4];
    char *body = malloc(bytes); /* of this very size, so that reading behind it is seen */
    if (body == NULL) {
        abort();
    }
    memcpy(body, data + 1, bytes - 1);
    if (sv_ask_parse(&ask, api, body, bytes - 1, &limits, &problem)) {
        check_accepted(&ask, api, &limits);
        if (ask.prompt != NULL) {
            check_writing(ask.prompt);
        }
    } else {
        FUZZ_CHECK(problem.status == 400 || problem.status == 404 || problem.status == 503);
        FUZZ_CHECK(problem.message[0] != '\0' && problem.code != NULL);
    }
    sv_ask_free(&ask);
    free(body);
    return 0;
}
