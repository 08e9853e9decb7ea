#include "request.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/words.h"

enum kind { PROMPT, TEXT, INTEGER, NUMBER, FLAG, CHOICE, SIZE, SEED, NEUTRAL };

struct field {
    const char *name;
    size_t offset; /* in struct sv_ask */
    enum kind kind;
    unsigned apis;
    double least, most;
    const char *choices;
    const char *about;
};

enum { I = SV_API_IMAGES, J = SV_API_JOBS, S = SV_API_SDAPI, D = SV_API_DEFAULTS };

static const struct field fields[] = {
#define FIELD(name, member, kind, apis, least, most, choices, about) \
    {name, offsetof(struct sv_ask, member), kind, apis, least, most, choices, about},
#include "request_fields.inc"
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

void sv_ask_init(struct sv_ask *ask)
{
    *ask = (struct sv_ask){
        .n = 1, .batch_size = 1, .n_iter = 1, .quality = -1, .guidance = -1, .seed = -1};
}

void sv_ask_free(struct sv_ask *ask)
{
    free(ask->prompt);
    free(ask->negative_prompt);
    free(ask->model);
    free(ask->user);
    sv_text_free(&ask->ignored);
    sv_ask_init(ask);
}

/* Always false. */
__attribute__((format(printf, 5, 6))) static bool refuse(struct sv_problem *problem, int status,
                                                         const char *param, const char *code,
                                                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    problem->status = status;
    problem->code = code;
    (void)snprintf(problem->param, sizeof problem->param, "%s", param);
    (void)vsnprintf(problem->message, sizeof problem->message, format, args);
    va_end(args);
    return false;
}

static bool fail_type(struct sv_problem *problem, const struct field *field, const char *wanted,
                      const struct sv_json *value)
{
    return refuse(problem, 400, field->name, "invalid_type", "'%s' must be %s, not %s.",
                  field->name, wanted, sv_json_type_name(sv_json_type(value)));
}

/* ---- values ---- */

static bool store_text(char **slot, const struct field *field, const struct sv_json *value,
                       struct sv_problem *problem)
{
    const char *text = sv_json_string(value);
    if (text == NULL) {
        return fail_type(problem, field, "a string", value);
    }
    size_t length = strlen(text);
    if ((double)length > field->most) {
        return refuse(problem, 400, field->name, "string_above_max_length",
                      "'%s' has %zu bytes; at most %.0f are read.", field->name, length,
                      field->most);
    }
    if (field->kind == PROMPT && text[strspn(text, " \t\r\n\f\v")] == '\0') {
        return refuse(problem, 400, field->name, "invalid_value", "'%s' is blank.", field->name);
    }
    free(*slot);
    *slot = sv_copy(text);
    return *slot != NULL || refuse(problem, 503, "", "out_of_memory", "Out of memory.");
}

static bool store_integer(int32_t *slot, const struct field *field, const struct sv_json *value,
                          struct sv_problem *problem)
{
    if (sv_json_type(value) != SV_JSON_INTEGER) {
        return fail_type(problem, field, "a whole number", value);
    }
    int64_t number = sv_json_integer(value);
    if (number < (int64_t)field->least || number > (int64_t)field->most) {
        return refuse(problem, 400, field->name, "invalid_value",
                      "'%s' must be a whole number from %.0f to %.0f, not %lld.", field->name,
                      field->least, field->most, (long long)number);
    }
    *slot = (int32_t)number;
    return true;
}

static bool store_number(double *slot, const struct field *field, const struct sv_json *value,
                         struct sv_problem *problem)
{
    enum sv_json_type type = sv_json_type(value);
    if (type != SV_JSON_INTEGER && type != SV_JSON_REAL) {
        return fail_type(problem, field, "a number", value);
    }
    double number = sv_json_number(value);
    if (!(number >= field->least && number <= field->most)) {
        return refuse(problem, 400, field->name, "invalid_value",
                      "'%s' must be a number from %g to %g, not %g.", field->name, field->least,
                      field->most, number);
    }
    *slot = number;
    return true;
}

static bool store_choice(int32_t *slot, const struct field *field, const struct sv_json *value,
                         struct sv_problem *problem)
{
    const char *text = sv_json_string(value);
    if (text == NULL) {
        return fail_type(problem, field, "a string", value);
    }
    if (!sv_one_of(text, field->choices)) {
        return refuse(problem, 400, field->name, "invalid_value",
                      "'%s' must be one of %s, not '%.100s'.", field->name, field->choices, text);
    }
    int32_t place = 0;
    for (const char *p = field->choices; strncmp(p, text, strlen(text)) != 0 ||
                                         (p[strlen(text)] != ' ' && p[strlen(text)] != '\0');) {
        p = strchr(p, ' ') + 1;
        place++;
    }
    *slot = place;
    return true;
}

/* Digits, at most five, not all zero. */
static const char *read_side(const char *text, int32_t *side)
{
    size_t n = strspn(text, "0123456789");
    *side = n > 0 && n <= 5 ? (int32_t)strtol(text, NULL, 10) : 0;
    return *side > 0 ? text + n : NULL;
}

static bool store_size(struct sv_ask *ask, const struct field *field, const struct sv_json *value,
                       struct sv_problem *problem)
{
    const char *text = sv_json_string(value);
    if (text == NULL) {
        return fail_type(problem, field, "a string", value);
    }
    if (strcmp(text, "auto") == 0) {
        ask->width = ask->height = 0;
        return true;
    }
    int32_t width = 0, height = 0;
    const char *rest = read_side(text, &width);
    rest = rest != NULL && *rest == 'x' ? read_side(rest + 1, &height) : NULL;
    if (rest == NULL || *rest != '\0') {
        return refuse(problem, 400, field->name, "invalid_value",
                      "'%s' must be WIDTHxHEIGHT in pixels, as in \"512x768\", or \"auto\", not "
                      "'%.100s'.",
                      field->name, text);
    }
    ask->width = width;
    ask->height = height;
    return true;
}

/* Does the value ask for nothing? */
static bool is_neutral(const struct field *field, const struct sv_json *value)
{
    if (field->choices != NULL && strcmp(field->choices, "*") == 0) {
        return true;
    }
    switch (sv_json_type(value)) {
    case SV_JSON_NULL: return true;
    case SV_JSON_BOOL: return !sv_json_true(value);
    case SV_JSON_INTEGER:
    case SV_JSON_REAL:
        return sv_json_number(value) >= field->least && sv_json_number(value) <= field->least;
    case SV_JSON_STRING:
        return sv_json_string(value)[0] == '\0' ||
               (field->choices != NULL && sv_one_of(sv_json_string(value), field->choices));
    default: return sv_json_count(value) == 0;
    }
}

static bool note_neutral(struct sv_ask *ask, const struct field *field, const struct sv_json *value,
                         struct sv_problem *problem)
{
    if (!is_neutral(field, value)) {
        return refuse(problem, 400, field->name, "unsupported_parameter",
                      "'%s' has no effect here, and this value asks for one. %s", field->name,
                      field->about);
    }
    sv_text_printf(&ask->ignored, "%s%s", ask->ignored.bytes > 0 ? ", " : "", field->name);
    return true;
}

static bool store_seed(int64_t *slot, const struct field *field, unsigned api,
                       const struct sv_json *value, struct sv_problem *problem)
{
    if (sv_json_type(value) != SV_JSON_INTEGER) {
        return fail_type(problem, field, "a whole number", value);
    }
    int64_t seed = sv_json_integer(value);
    if (seed < (api == S ? -1 : 0) || seed > INT64_MAX - SV_MOST_PICTURES) {
        return refuse(problem, 400, field->name, "invalid_value",
                      "'seed' must be a whole number from 0 to %lld, not %lld%s.",
                      (long long)(INT64_MAX - SV_MOST_PICTURES), (long long)seed,
                      seed == -1 ? "; leave it out for a random one" : "");
    }
    *slot = seed;
    return true;
}

static bool store(struct sv_ask *ask, const struct field *field, unsigned api,
                  const struct sv_json *value, struct sv_problem *problem)
{
    void *slot = (char *)ask + field->offset;
    if (field->kind == NEUTRAL) {
        return note_neutral(ask, field, value, problem);
    }
    if (sv_json_type(value) == SV_JSON_NULL) {
        return true; /* as if it were not there: some clients send all fields */
    }
    switch (field->kind) {
    case PROMPT:
    case TEXT: return store_text(slot, field, value, problem);
    case INTEGER: return store_integer(slot, field, value, problem);
    case NUMBER: return store_number(slot, field, value, problem);
    case CHOICE: return store_choice(slot, field, value, problem);
    case SIZE: return store_size(ask, field, value, problem);
    case SEED: return store_seed(slot, field, api, value, problem);
    default: break;
    }
    if (sv_json_type(value) != SV_JSON_BOOL) {
        return fail_type(problem, field, "true or false", value);
    }
    *(bool *)slot = sv_json_true(value);
    return true;
}

/* ---- the whole ---- */

static bool fail_unknown(const char *name, unsigned api, struct sv_problem *problem)
{
    const char *names[FIELDS];
    size_t count = 0;
    for (size_t i = 0; i < FIELDS; i++) {
        if ((fields[i].apis & api) != 0) {
            names[count++] = fields[i].name;
        }
    }
    const char *nearest = words_nearest(name, names, count);
    return refuse(problem, 400, name, "unknown_parameter", "There is no field '%.100s'%s%s%s", name,
                  nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                  nearest != NULL ? "'?" : ".");
}

static int32_t nearest_multiple(int32_t side, int32_t multiple)
{
    int32_t down = side / multiple * multiple;
    return down == 0 || side - down > multiple / 2 ? down + multiple : down;
}

static bool check_size(struct sv_ask *ask, unsigned api, const struct sv_limits *limits,
                       struct sv_problem *problem)
{
    int32_t width = ask->width > 0 ? ask->width : limits->width;
    int32_t height = ask->height > 0 ? ask->height : limits->height;
    int32_t multiple = limits->size_multiple > 0 ? limits->size_multiple : 1;
    const char *param = api == S ? width % multiple != 0 ? "width" : "height" : "size";
    if (width % multiple != 0 || height % multiple != 0) {
        return refuse(problem, 400, param, "invalid_value",
                      "Width and height must be multiples of %d; the nearest to %dx%d is %dx%d.",
                      multiple, width, height, nearest_multiple(width, multiple),
                      nearest_multiple(height, multiple));
    }
    if ((int64_t)width * height > limits->max_pixels) {
        return refuse(problem, 400, param, "invalid_value",
                      "%dx%d are %lld pixels; this server draws at most %lld (--max-pixels).",
                      width, height, (long long)width * height, (long long)limits->max_pixels);
    }
    return true;
}

static bool check_model(const struct sv_ask *ask, const struct sv_limits *limits,
                        struct sv_problem *problem)
{
    if (ask->model == NULL || ask->model[0] == '\0') {
        return true;
    }
    for (size_t i = 0; i < limits->model_count; i++) {
        if (strcmp(ask->model, limits->models[i]) == 0) {
            return true;
        }
    }
    return refuse(problem, 404, "model", "model_not_found",
                  "There is no model '%.200s' here; this server has '%.200s'.", ask->model,
                  limits->model_count > 0 ? limits->models[0] : "");
}

static bool check(struct sv_ask *ask, unsigned api, const struct sv_limits *limits,
                  struct sv_problem *problem)
{
    if (ask->prompt == NULL) {
        return refuse(problem, 400, "prompt", "missing_required_parameter",
                      "'prompt' is missing: what to draw.");
    }
    if (api == S) {
        ask->n = ask->batch_size * ask->n_iter;
        if (ask->n > SV_MOST_PICTURES) {
            return refuse(problem, 400, "batch_size", "invalid_value",
                          "'batch_size' times 'n_iter' is %d; at most %d pictures are drawn.",
                          ask->n, SV_MOST_PICTURES);
        }
    }
    if (ask->format == SV_FORMAT_JPG) {
        ask->format = SV_FORMAT_JPEG;
    }
    if (ask->format == SV_FORMAT_PNG && ask->quality >= 0 && ask->quality != 100) {
        return refuse(problem, 400, "output_compression", "invalid_value",
                      "'output_compression' is for \"jpeg\" and \"webp\"; a PNG loses nothing.");
    }
    if (ask->answer == SV_ANSWER_FILE && ask->n != 1) {
        return refuse(problem, 400, "response_format", "invalid_value",
                      "'response_format' \"file\" is one picture, and 'n' is %d.", ask->n);
    }
    return check_size(ask, api, limits, problem) && check_model(ask, limits, problem);
}

static bool take_initial(struct sv_ask *ask, const struct sv_ask *initial)
{
    *ask = *initial;
    ask->prompt = ask->model = ask->user = NULL;
    ask->ignored = (struct sv_text){0};
    if (initial->negative_prompt != NULL) {
        ask->negative_prompt = sv_copy(initial->negative_prompt);
    }
    return initial->negative_prompt == NULL || ask->negative_prompt != NULL;
}

bool sv_ask_read(struct sv_ask *ask, unsigned api, const struct sv_json *object,
                 const struct sv_limits *limits, struct sv_problem *problem)
{
    sv_ask_init(ask);
    *problem = (struct sv_problem){0};
    if (limits != NULL && limits->initial != NULL && !take_initial(ask, limits->initial)) {
        return refuse(problem, 503, "", "out_of_memory", "Out of memory.");
    }
    if (sv_json_type(object) != SV_JSON_OBJECT) {
        return refuse(problem, 400, "", "invalid_type", "A JSON object is expected, not %s.",
                      sv_json_type_name(sv_json_type(object)));
    }
    const char *name;
    const struct sv_json *value;
    for (size_t i = 0; sv_json_member(object, i, &name, &value); i++) {
        size_t j = 0;
        while (j < FIELDS && ((fields[j].apis & api) == 0 || strcmp(fields[j].name, name) != 0)) {
            j++;
        }
        if (j == FIELDS) {
            return fail_unknown(name, api, problem);
        }
        if (!store(ask, &fields[j], api, value, problem)) {
            return false;
        }
    }
    if (ask->ignored.failed) {
        return refuse(problem, 503, "", "out_of_memory", "Out of memory.");
    }
    return api == D || check(ask, api, limits, problem);
}

bool sv_ask_parse(struct sv_ask *ask, unsigned api, const char *text, size_t bytes,
                  const struct sv_limits *limits, struct sv_problem *problem)
{
    char why[256];
    sv_ask_init(ask);
    struct sv_json *document =
        sv_json_parse(bytes > 0 ? text : "", bytes, SV_JSON_DEPTH_REQUEST, why, sizeof why);
    if (document == NULL) {
        bool memory = strcmp(why, SV_JSON_NO_MEMORY) == 0;
        *problem = (struct sv_problem){0};
        return refuse(problem, memory ? 503 : 400, "", memory ? "out_of_memory" : "invalid_json",
                      "%s", why);
    }
    bool ok = sv_ask_read(ask, api, document, limits, problem);
    sv_json_free(document);
    return ok;
}

/* ---- the schema ---- */

static void put_choices(struct sv_text *out, const char *choices)
{
    sv_json_open(out, "enum", '[');
    for (const char *p = choices; *p != '\0';) {
        size_t n = strcspn(p, " ");
        char word[64];
        (void)snprintf(word, sizeof word, "%.*s", (int)n, p);
        sv_json_put_string(out, NULL, word);
        p += n;
        p += strspn(p, " ");
    }
    sv_json_close(out, ']');
}

static void put_field(struct sv_text *out, const struct field *f)
{
    static const char *const types[] = {"string",  "string", "integer", "number",
                                        "boolean", "string", "string",  "integer"};
    sv_json_open(out, f->name, '{');
    if (f->kind == NEUTRAL) {
        char *about = sv_format("Without effect; only its neutral value is taken. %s", f->about);
        sv_json_put_string(out, "description", about);
        out->failed = out->failed || about == NULL;
        free(about);
    } else {
        sv_json_put_string(out, "type", types[f->kind]);
        sv_json_put_string(out, "description", f->about);
    }
    if (f->kind == INTEGER || f->kind == NUMBER) {
        sv_json_put_number(out, "minimum", f->least);
        sv_json_put_number(out, "maximum", f->most);
    } else if (f->kind == PROMPT || f->kind == TEXT) {
        sv_json_put_number(out, "maxLength", f->most);
    } else if (f->kind == SEED) {
        sv_json_put_number(out, "minimum", 0);
    } else if (f->kind == SIZE) {
        sv_json_put_string(out, "pattern", "^([1-9][0-9]{0,4}x[1-9][0-9]{0,4}|auto)$");
    } else if (f->kind == CHOICE) {
        put_choices(out, f->choices);
    }
    sv_json_close(out, '}');
}

void sv_ask_schema(struct sv_text *out, const char *name, unsigned api)
{
    sv_json_open(out, name, '{');
    sv_json_put_string(out, "type", "object");
    sv_json_put_raw(out, "required", "[\"prompt\"]");
    sv_json_put_bool(out, "additionalProperties", false);
    sv_json_open(out, "properties", '{');
    for (size_t i = 0; i < FIELDS; i++) {
        if ((fields[i].apis & api) != 0) {
            put_field(out, &fields[i]);
        }
    }
    sv_json_close(out, '}');
    sv_json_close(out, '}');
}
