#include "study/fit_by.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "pipe/quantize.h"
#include "quant/config.h"
#include "study/assignment_text.h"
#include "study/search.h"

#define MAX_DOCUMENT_BYTES ((size_t)256 << 20)
#define MAX_CONFIG_BYTES ((size_t)OZ_CONFIG_MAX_BYTES)
/* For each size of the text encoders; and of the limit so much may be left. */
#define TRIES 4
#define NEAR 0.005

/* A result as it was measured. */
struct costs {
    const char *path;
    struct oz_json *document;
    const struct oz_json *units;
    int32_t unit_count, scheme_count;
    const char *labels[OZ_SEARCH_OPTIONS];
    char *values[OZ_SEARCH_OPTIONS];  /* of a target: "\"int8\"" */
    struct oz_search_option *options; /* [units][1 + schemes] */
    int32_t *chosen;                  /* [units] */
};

static void costs_deinit(struct costs *c)
{
    for (int32_t k = 0; k < c->scheme_count; k++) {
        oz_free(c->values[k]);
    }
    oz_free(c->options);
    oz_free(c->chosen);
    oz_json_free(c->document);
}

static enum oz_status malformed(const struct costs *c, const char *what, struct oz_error *err)
{
    return OZ_FAIL(err, OZ_ERR_FORMAT,
                   "%s is no complete result of a sensitivity study (%s); make one with ounce "
                   "compare MODEL --sensitivity --output-json FILE.",
                   c->path, what);
}

/* The text of a target's value: a method, or a method and its activations. */
static char *value_text(const struct oz_json *v)
{
    char text[256];
    const char *name = oz_json_string(v, NULL);
    if (name == NULL) {
        const struct oz_json *act = oz_json_get(v, "activation");
        const char *of = oz_json_string(act, NULL);
        name = oz_json_string(oz_json_get(v, "weight"), "");
        (void)snprintf(text, sizeof text, "{\"weight\": \"%.60s\", \"activation\": %s%.60s%s}",
                       name, of != NULL ? "\"" : "", of != NULL ? of : "null",
                       of != NULL ? "\"" : "");
    } else {
        (void)snprintf(text, sizeof text, "\"%.60s\"", name);
    }
    return oz_strdup(text);
}

static enum oz_status read_schemes(struct costs *c, struct oz_error *err)
{
    const struct oz_json *schemes = oz_json_get(c->document, "schemes");
    for (void *it = oz_json_first(schemes); it != NULL; it = oz_json_next(schemes, it)) {
        if (c->scheme_count + 1 == OZ_SEARCH_OPTIONS) {
            return malformed(c, "too many schemes", err);
        }
        c->labels[c->scheme_count] = oz_json_key(it);
        c->values[c->scheme_count] = value_text(oz_json_value(it));
        if (c->values[c->scheme_count] == NULL) {
            return OZ_FAIL_NOMEM(err, "a scheme");
        }
        c->scheme_count++;
    }
    return c->scheme_count > 0 ? OZ_OK : malformed(c, "no schemes", err);
}

/* Bytes and costs; cells without numbers are schemes that a unit does not take. */
static enum oz_status read_units(struct costs *c, struct oz_error *err)
{
    int32_t width = 1 + c->scheme_count;
    c->units = oz_json_get(c->document, "units");
    size_t count = oz_json_count(c->units);
    if (count == 0 || count > INT32_MAX / OZ_SEARCH_OPTIONS) {
        return malformed(c, "no units", err);
    }
    c->unit_count = (int32_t)count;
    c->options = oz_alloc_zero(count * (size_t)width, sizeof *c->options);
    c->chosen = oz_alloc_zero(count, sizeof *c->chosen);
    if (c->options == NULL || c->chosen == NULL) {
        return OZ_FAIL_NOMEM(err, "a sensitivity result");
    }
    for (int32_t i = 0; i < c->unit_count; i++) {
        const struct oz_json *u = oz_json_at(c->units, (size_t)i);
        const struct oz_json *cells = oz_json_get(u, "schemes");
        struct oz_search_option *o = &c->options[(int64_t)i * width];
        o[0].bytes = oz_json_number(oz_json_get(u, "stored_bytes"), (double)NAN);
        if (!(o[0].bytes >= 0) || oz_json_string(oz_json_get(u, "unit"), NULL) == NULL) {
            return malformed(c, "a unit without a name or stored_bytes", err);
        }
        for (int32_t k = 0; k < c->scheme_count; k++) {
            const struct oz_json *cell = oz_json_get(cells, c->labels[k]);
            o[1 + k].bytes = oz_json_number(oz_json_get(cell, "bytes"), (double)NAN);
            o[1 + k].error = oz_json_number(oz_json_get(cell, "cost"), (double)NAN);
        }
    }
    return OZ_OK;
}

static enum oz_status costs_read(struct costs *c, struct oz_error *err)
{
    OZ_TRY(oz_json_parse_file(&c->document, c->path, MAX_DOCUMENT_BYTES, err));
    if (strcmp(oz_json_string(oz_json_get(c->document, "document"), ""), "sensitivity") != 0) {
        return malformed(c, "another document", err);
    }
    if (!oz_json_bool(oz_json_get(c->document, "complete"), false)) {
        return malformed(c, "it was interrupted", err);
    }
    OZ_TRY(read_schemes(c, err));
    return read_units(c, err);
}

/* ---- from the costs to a config ---- */

static const struct oz_layer_table *main_table(const struct oz_pipeline *p)
{
    return &p->components[OZ_COMPONENT_TRANSFORMER].table;
}

static bool is_of_unit(const struct oz_layer *row, const char *unit)
{
    bool fused = row->fused != NULL && strcmp(row->fused, unit) == 0;
    return row->kind == OZ_LAYER_LINEAR && (fused || strcmp(row->module, unit) == 0);
}

static enum oz_status other_model(const struct costs *c, const struct oz_layer_table *t,
                                  const char *layer, const char *what, struct oz_error *err)
{
    return OZ_FAIL(err, OZ_ERR_FORMAT, "%s is about another model: %.200s %s this one's %s.",
                   c->path, layer, what, t->component);
}

static const char *unit_name(const struct costs *c, int32_t unit)
{
    return oz_json_string(oz_json_get(oz_json_at(c->units, (size_t)unit), "unit"), "");
}

/* Has each of the model's linears been measured? */
static enum oz_status check_cover(const struct costs *c, const struct oz_layer_table *t,
                                  struct oz_error *err)
{
    for (int32_t r = 0; r < t->count; r++) {
        const struct oz_layer *row = &t->rows[r];
        bool found = row->kind != OZ_LAYER_LINEAR || row->bind == NULL;
        for (int32_t i = 0; i < c->unit_count && !found; i++) {
            found = is_of_unit(row, unit_name(c, i));
        }
        if (!found) {
            return other_model(c, t, row->module, "was not measured, a layer of", err);
        }
    }
    return OZ_OK;
}

/* The value of each row by the units' choices. OZ_ERR_FORMAT: a unit that the model does not have. */
static enum oz_status assign_rows(const struct costs *c, const struct oz_layer_table *t,
                                  const char **values, int32_t *taken, struct oz_error *err)
{
    for (int32_t i = 0; i < c->unit_count; i++) {
        const char *unit = unit_name(c, i);
        bool found = false;
        for (int32_t r = 0; r < t->count; r++) {
            if (is_of_unit(&t->rows[r], unit)) {
                found = true;
                values[r] = c->chosen[i] > 0 ? c->values[c->chosen[i] - 1] : NULL;
            }
        }
        if (!found) {
            return OZ_FAIL(
                err, OZ_ERR_FORMAT,
                "%s is about another model: its unit %.200s is no layer of this one's %s.", c->path,
                unit, t->component);
        }
        *taken += c->chosen[i] > 0;
    }
    return OZ_OK;
}

/* What a search has chosen, and the text encoders in so many bits (0: as stored). NULL: nothing. */
static enum oz_status make_config(const struct costs *c, const struct oz_pipeline *p, int32_t bits,
                                  char **config, int32_t *taken, struct oz_error *err)
{
    const struct oz_layer_table *t = main_table(p);
    struct oz_buf b;
    const char **values = oz_alloc_zero((size_t)t->count + 1, sizeof *values);
    *config = NULL;
    *taken = 0;
    if (values == NULL) {
        return OZ_FAIL_NOMEM(err, "a quantization config");
    }
    oz_buf_init(&b, MAX_CONFIG_BYTES);
    oz_buf_puts(&b, "{");
    enum oz_status status = assign_rows(c, t, values, taken, err);
    if (status == OZ_OK && *taken > 0) {
        oz_buf_printf(&b, "\"%s\": ", t->component);
        status = oz_assignment_text(&b, t, values, err);
    }
    if (status == OZ_OK && bits > 0) {
        status = oz_plan_fit_put_text(&b, p, bits, err);
    }
    oz_buf_puts(&b, "}");
    if (status == OZ_OK && b.bytes > 2) {
        *config = oz_buf_take(&b);
        status = *config != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a quantization config");
    }
    oz_buf_deinit(&b);
    oz_free((void *)values);
    return status;
}

/* ---- the search ---- */

struct fitting {
    struct oz_plan *plan;
    struct oz_plan_fit *fit;
    struct oz_pipeline **pipeline;
    struct oz_request **request;
    const struct oz_plan_fit_args *args;
    struct costs costs;
};

static int64_t last_need(const struct fitting *f)
{
    return f->fit->rungs[f->fit->count - 1].need;
}

/* The assignment of least error that has so many bytes, or that of the fewest; returns what it has. */
static enum oz_status search(struct fitting *f, double bytes, double *got, struct oz_error *err)
{
    struct costs *c = &f->costs;
    struct oz_search s = {.options = c->options,
                          .units = c->unit_count,
                          .count = 1 + c->scheme_count,
                          .chosen = c->chosen};
    enum oz_status status = oz_search_run(&s, -1, bytes, err);
    *got = s.bytes;
    return status == OZ_ERR_THRESHOLD ? OZ_OK : status;
}

/* One rung: what has been chosen, and the text encoders in `bits`. */
static enum oz_status plan_chosen(struct fitting *f, int32_t bits, struct oz_error *err)
{
    char gives[160];
    char *config;
    int32_t taken;
    OZ_TRY(make_config(&f->costs, *f->pipeline, bits, &config, &taken, err));
    (void)snprintf(gives, sizeof gives, "%" PRId32 " of %" PRId32 " units by their errors%s", taken,
                   f->costs.unit_count,
                   bits == 8   ? ", the text encoder at 8 bits"
                   : bits == 4 ? ", the text encoder at 4 bits"
                               : "");
    return oz_plan_fit_try(f->plan, f->fit, f->pipeline, f->request, config, gives, f->args, err);
}

/* With the text encoders in `bits`: a plan counts more than weights (staging, scratch), so what the units
 * may have is learnt from what the last assignment came to, both ways; what fits is kept.
 * OZ_ERR_THRESHOLD without a message: nothing fits. */
static enum oz_status fit_with_text(struct fitting *f, int32_t bits, double *bytes,
                                    struct oz_error *err)
{
    double before = -1;
    double fits = -1;
    double got = -1;
    for (int32_t i = 0; i < TRIES; i++) {
        OZ_TRY(search(f, *bytes, &got, err));
        if (got == before) { /* nothing lies between, or it has the fewest */
            break;
        }
        OZ_TRY(plan_chosen(f, bits, err));
        int64_t over = last_need(f) - f->args->limit;
        fits = over <= 0 && got > fits ? got : fits;
        if (over <= 0 && (double)-over <= NEAR * (double)f->args->limit) {
            return OZ_OK;
        }
        before = got;
        *bytes = got - (double)over;
    }
    if (fits < 0) {
        return OZ_ERR_THRESHOLD;
    }
    if (last_need(f) <= f->args->limit) {
        return OZ_OK;
    }
    OZ_TRY(search(f, fits, &got, err));
    return plan_chosen(f, bits, err);
}

static enum oz_status fit_all(struct fitting *f, struct oz_error *err)
{
    double bytes = 0;
    OZ_TRY(oz_plan_fit_try(f->plan, f->fit, f->pipeline, f->request, NULL,
                           "nothing: all weights as they are stored", f->args, err));
    OZ_TRY(check_cover(&f->costs, main_table(*f->pipeline), err));
    if (last_need(f) <= f->args->limit) {
        return OZ_OK;
    }
    for (int32_t i = 0; i < f->costs.unit_count; i++) {
        bytes += f->costs.options[(int64_t)i * (1 + f->costs.scheme_count)].bytes;
    }
    bytes -= (double)(last_need(f) - f->args->limit);
    static const int32_t text_bits[] = {0, 8, 4};
    for (size_t i = 0; i < sizeof text_bits / sizeof *text_bits; i++) {
        enum oz_status status = fit_with_text(f, text_bits[i], &bytes, err);
        if (status != OZ_ERR_THRESHOLD) {
            return status;
        }
    }
    oz_plan_deinit(f->plan);
    return oz_plan_fit_fail(f->fit, err);
}

enum oz_status oz_plan_make_fit_by(struct oz_plan *plan, struct oz_plan_fit *fit,
                                   struct oz_pipeline **pipeline, struct oz_request **request,
                                   const char *path, const struct oz_plan_fit_args *args,
                                   struct oz_error *err)
{
    struct fitting f = {.plan = plan,
                        .fit = fit,
                        .pipeline = pipeline,
                        .request = request,
                        .args = args,
                        .costs = {.path = path}};
    *plan = (struct oz_plan){0};
    *fit = (struct oz_plan_fit){.limit = args->limit};
    *pipeline = NULL;
    *request = NULL;
    enum oz_status status = costs_read(&f.costs, err);
    if (status == OZ_OK) {
        status = fit_all(&f, err);
    }
    costs_deinit(&f.costs);
    return status;
}
