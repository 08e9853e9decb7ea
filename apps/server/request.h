/*
 * request.h: a request for pictures out of JSON. The fields are a list (request_fields.inc): known ones
 * are checked by it, unknown ones refused by name. Knows nothing of HTTP and touches nothing but its
 * arguments, so that it can be fuzzed.
 */
#ifndef OUNCE_SERVER_REQUEST_H
#define OUNCE_SERVER_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "json.h"
#include "text.h"

enum { SV_API_IMAGES = 1, SV_API_JOBS = 2, SV_API_SDAPI = 4, SV_API_DEFAULTS = 8 };

enum { SV_ANSWER_BASE64, SV_ANSWER_URL, SV_ANSWER_FILE };
enum { SV_FORMAT_PNG, SV_FORMAT_JPEG, SV_FORMAT_WEBP, SV_FORMAT_JPG };

enum { SV_MOST_PICTURES = 10 }; /* of one request */

/* What is asked for. */
struct sv_ask {
    char *prompt, *negative_prompt, *model, *user; /* owned; NULL: not given */
    int32_t n, batch_size, n_iter;
    int32_t width, height, steps; /* 0: the model's */
    int32_t quality;              /* percent; -1: not given */
    int32_t previews;
    int32_t answer, format; /* SV_ANSWER_, SV_FORMAT_ */
    double guidance;        /* negative: the model's */
    int64_t seed;           /* negative: random */
    bool no_metadata;
    struct sv_text ignored; /* "style, stream": fields without effect */
};
void sv_ask_init(struct sv_ask *ask);
void sv_ask_free(struct sv_ask *ask);

/* Why a request is refused, in the words of OpenAI's errors. */
struct sv_problem {
    int status;      /* HTTP */
    char param[128]; /* the field; "": none */
    const char *code;
    char message[4096];
};

/* What a request is checked against. */
struct sv_limits {
    int64_t max_pixels;
    int32_t size_multiple;
    int32_t width, height;     /* the model's */
    const char *const *models; /* names that it goes by */
    size_t model_count;
    const struct sv_ask *initial; /* default_sampling_params; NULL: none */
};

/* False: *problem. sv_ask_free after either. `limits` may be NULL for SV_API_DEFAULTS. */
bool sv_ask_parse(struct sv_ask *ask, unsigned api, const char *text, size_t bytes,
                  const struct sv_limits *limits, struct sv_problem *problem);
/* The same of what has been parsed already. */
bool sv_ask_read(struct sv_ask *ask, unsigned api, const struct sv_json *object,
                 const struct sv_limits *limits, struct sv_problem *problem);

/* The JSON schema of an API's requests, for /openapi.json. */
void sv_ask_schema(struct sv_text *out, const char *name, unsigned api);

#endif
