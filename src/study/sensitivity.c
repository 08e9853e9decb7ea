#include "study/sensitivity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "study/hash.h"

#define FAST_TASKS 1 /* pictures that are measured */
#define FULL_TASKS 4
#define SAVE_SECONDS 5.0
#define MAX_DOCUMENT_BYTES ((size_t)256 << 20)

struct oz_sensitivity_cell *oz_sensitivity_at(const struct oz_sensitivity *s, int32_t unit,
                                              int32_t scheme)
{
    return &s->cells[(int64_t)unit * s->args->scheme_count + scheme];
}

/* ---- budgets ---- */

static bool read_amount(const char *text, double *value)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},
                 {"K", 1024.0},
                 {"KiB", 1024.0},
                 {"M", 1048576.0},
                 {"MiB", 1048576.0},
                 {"G", 1073741824.0},
                 {"GiB", 1073741824.0},
                 {"kB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9}};
    char *end;
    *value = strtod(text, &end);
    if (end == text || !isfinite(*value)) {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) == 0) {
            *value *= units[i].factor;
            return true;
        }
    }
    return false;
}

enum oz_status oz_budget_parse(struct oz_budget *out, const char *text, struct oz_error *err)
{
    static const struct {
        const char *name;
        enum oz_budget_kind kind;
        double least, most;
    } kinds[] = {{"psnr=", OZ_BUDGET_PSNR, 1, 120},
                 {"rel-l2=", OZ_BUDGET_REL_L2, 1e-9, 1},
                 {"bytes=", OZ_BUDGET_BYTES, 1, 1e15}};
    *out = (struct oz_budget){.kind = OZ_BUDGET_NONE};
    if (text == NULL) {
        return OZ_OK;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].name);
        if (strncmp(text, kinds[i].name, n) == 0 && read_amount(text + n, &out->value) &&
            out->value >= kinds[i].least && out->value <= kinds[i].most) {
            out->kind = kinds[i].kind;
            return OZ_OK;
        }
    }
    return OZ_FAIL(
        err, OZ_ERR_ARG,
        "A budget is psnr=DB (1 to 120), rel-l2=X (up to 1) or bytes=N (12MiB, 20GiB ...), "
        "not \"%.100s\".",
        text);
}

/* ---- schemes ---- */

/* A request that is a method and its activations becomes the value of a target. */
static enum oz_status read_scheme(const struct oz_variant *v, struct oz_sensitivity_scheme *out,
                                  struct oz_error *err)
{
    struct oz_request *r;
    const struct oz_request_text text = {.quantization = v->quantization};
    char value[128];
    OZ_TRY(oz_request_create(&r, &text, err));
    const struct oz_component_request *c = r != NULL ? &r->components[0] : NULL;
    bool plain = c != NULL && r->count == 1 && c->component == NULL && !c->leave &&
                 c->method != NULL && c->method->linear != NULL && c->target_count == 0 &&
                 c->ignore.count == 0 && c->ignored_layers.count == 0 && !c->fallback_given &&
                 c->exponent_rule == OZ_EXPONENT_DEFAULT &&
                 c->act_exponent_rule == OZ_EXPONENT_DEFAULT && c->scope == OZ_SCOPE_OWN;
    if (!plain || c->linear.weight == NULL ||
        strcmp(c->linear.weight->name, c->method->linear) != 0) {
        oz_request_destroy(&r);
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%s: a search takes methods for linear layers, with an activation at most "
                       "({\"method\": \"fp8_per_channel\", \"activation\": null}).",
                       v->label);
    }
    out->info = c->linear.weight;
    if (c->linear.act_set) {
        bool none = c->linear.act == OZ_ACT_NONE;
        (void)snprintf(value, sizeof value, "{\"weight\": \"%s\", \"activation\": %s%s%s}",
                       c->method->name, none ? "" : "\"",
                       none ? "null" : oz_act_mode_name(c->linear.act), none ? "" : "\"");
    } else {
        (void)snprintf(value, sizeof value, "\"%s\"", c->method->name);
    }
    out->value = oz_strdup(value);
    oz_request_destroy(&r);
    return out->value != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a scheme");
}

/* ---- saving ---- */

enum oz_status oz_sensitivity_save(struct oz_sensitivity *s, struct oz_error *err)
{
    struct oz_buf b;
    if (s->args->output_json == NULL) {
        return OZ_OK;
    }
    oz_buf_init(&b, MAX_DOCUMENT_BYTES);
    oz_sensitivity_json(s, &b);
    enum oz_status status = b.status == OZ_OK
                                ? oz_file_write(s->args->output_json, b.data, b.bytes, err)
                                : OZ_FAIL(err, b.status, "The result is too large for a document.");
    oz_buf_deinit(&b);
    s->saved_s = oz_clock_seconds();
    return status;
}

static enum oz_status save_sometimes(struct oz_sensitivity *s, struct oz_error *err)
{
    return oz_clock_seconds() - s->saved_s > SAVE_SECONDS ? oz_sensitivity_save(s, err) : OZ_OK;
}

/* ---- measuring ---- */

static bool *units_where(struct oz_sensitivity *s, bool *in, int32_t unit, int32_t role)
{
    for (int32_t i = 0; i < s->probe.count; i++) {
        in[i] = unit >= 0 ? i == unit : role < 0 || (int32_t)s->probe.units[i].role == role;
    }
    return in;
}

static bool *all_but(struct oz_sensitivity *s, bool *in)
{
    for (int32_t i = 0; i < s->probe.count; i++) {
        in[i] = !in[i];
    }
    return in;
}

static bool has_role(const struct oz_sensitivity *s, int32_t role)
{
    for (int32_t i = 0; i < s->probe.count; i++) {
        if ((int32_t)s->probe.units[i].role == role) {
            return true;
        }
    }
    return false;
}

/* Alone and kept of a set, unless they are known. */
static enum oz_status measure_set(struct oz_sensitivity *s, struct oz_sensitivity_cell *cell,
                                  bool *in, bool kept, struct oz_error *err)
{
    if (isnan(cell->alone)) {
        OZ_TRY(oz_probe_whole(&s->probe, in, &cell->alone, err));
    }
    if (kept && isnan(cell->kept)) {
        OZ_TRY(oz_probe_whole(&s->probe, all_but(s, in), &cell->kept, err));
    }
    return save_sometimes(s, err);
}

static enum oz_status measure_unit(struct oz_sensitivity *s, int32_t scheme, int32_t unit,
                                   bool whole, bool *in, struct oz_error *err)
{
    struct oz_sensitivity_cell *cell = oz_sensitivity_at(s, unit, scheme);
    const struct oz_probe_unit *u = &s->probe.units[unit];
    if (!s->probe.takes[unit]) {
        return OZ_OK;
    }
    cell->bytes = (double)oz_probe_scheme_bytes(&s->probe, unit);
    if (isnan(cell->local)) {
        OZ_TRY(oz_probe_local(&s->probe, unit, &cell->local, err));
    }
    if (!u->ran) {
        cell->alone = cell->kept = 0;
        return OZ_OK;
    }
    /* Where the input was not seen nothing can be reckoned: the whole is measured in every scheme. */
    bool unseen = isnan(cell->local);
    return whole || unseen ? measure_set(s, cell, units_where(s, in, unit, -1),
                                         whole && scheme == s->coarsest, err)
                           : OZ_OK;
}

static enum oz_status measure_roles(struct oz_sensitivity *s, int32_t scheme, bool *in,
                                    struct oz_error *err)
{
    if (isnan(s->all[scheme])) {
        OZ_TRY(oz_probe_whole(&s->probe, units_where(s, in, -1, -1), &s->all[scheme], err));
    }
    for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
        struct oz_sensitivity_cell *cell = &s->roles[role][scheme];
        if (!has_role(s, role)) {
            continue;
        }
        OZ_TRY(measure_set(s, cell, units_where(s, in, -1, role), true, err));
        cell->bytes = 0;
        for (int32_t i = 0; i < s->probe.count; i++) {
            bool takes = s->probe.takes[i];
            if ((int32_t)s->probe.units[i].role == role) {
                cell->bytes += takes ? oz_sensitivity_at(s, i, scheme)->bytes
                                     : (double)s->probe.units[i].stored_bytes;
            }
        }
    }
    return OZ_OK;
}

/* Everything of a scheme: `first` what all schemes are asked, then what the coarsest is (or, on pictures,
 * all). */
static enum oz_status measure_scheme(struct oz_sensitivity *s, int32_t scheme, bool first,
                                     struct oz_error *err)
{
    bool *in = oz_alloc_zero((size_t)s->probe.count + 1, sizeof *in);
    if (in == NULL) {
        return OZ_FAIL_NOMEM(err, "a search");
    }
    enum oz_status status =
        oz_probe_open_scheme(&s->probe, s->schemes[scheme].value, s->schemes[scheme].info, err);
    for (int32_t i = 0; i < s->probe.count && status == OZ_OK; i++) {
        status = measure_unit(s, scheme, i, !first || s->args->full, in, err);
    }
    if (status == OZ_OK && first) {
        status = measure_roles(s, scheme, in, err);
    }
    oz_probe_close_scheme(&s->probe);
    oz_free(in);
    return status;
}

static int32_t find_coarsest(const struct oz_sensitivity *s)
{
    int32_t worst = 0;
    for (int32_t k = 1; k < s->args->scheme_count; k++) {
        worst = s->all[k] > s->all[worst] ? k : worst;
    }
    return worst;
}

/* The error that changing one layer has at least, however little is changed: where activations are
 * rounded, a last bit anywhere makes other roundings everywhere. It does not add up over layers. */
static double find_floor(const struct oz_sensitivity *s)
{
    double least = INFINITY;
    for (int32_t i = 0; i < s->probe.count; i++) {
        for (int32_t k = 0; k < s->args->scheme_count && s->probe.units[i].ran; k++) {
            double v = oz_sensitivity_at(s, i, k)->alone;
            least = v < least ? v : least;
        }
    }
    return isfinite(least) ? least : 0;
}

static double above(double value, double floor)
{
    return value > floor ? value - floor : 0;
}

/* What the search reckons with. */
static void reckon(struct oz_sensitivity *s)
{
    s->floor = find_floor(s);
    for (int32_t i = 0; i < s->probe.count; i++) {
        const struct oz_sensitivity_cell *base = oz_sensitivity_at(s, i, s->coarsest);
        for (int32_t k = 0; k < s->args->scheme_count; k++) {
            struct oz_sensitivity_cell *cell = oz_sensitivity_at(s, i, k);
            if (!isnan(cell->alone)) {
                cell->cost = above(cell->alone, s->floor);
            } else if (base->local > 0) {
                cell->cost = above(base->alone, s->floor) * cell->local / base->local;
            } else {
                cell->cost = cell->local > 0 ? (double)NAN : 0; /* nothing to reckon from */
            }
            cell->cost = isnan(cell->bytes) ? (double)NAN : cell->cost;
        }
    }
}

static enum oz_status measure(struct oz_sensitivity *s, struct oz_error *err)
{
    double start = oz_clock_seconds();
    s->coarsest = -1;
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        OZ_TRY(measure_scheme(s, k, true, err));
        OZ_TRY(oz_sensitivity_save(s, err));
    }
    s->coarsest = find_coarsest(s);
    OZ_TRY(measure_scheme(s, s->coarsest, false, err));
    reckon(s);
    s->measured_s += oz_clock_seconds() - start;
    return oz_sensitivity_save(s, err);
}

/* ---- the whole ---- */

static int64_t count_steps(const struct oz_sensitivity *s)
{
    const struct oz_sensitivity_args *a = s->args;
    int64_t roles = 0, runs;
    int64_t steps = s->probe_args.task_count * (int64_t)s->probe.drawing.shape.steps;
    for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
        roles += has_role(s, role);
    }
    runs = a->scheme_count * (1 + 2 * roles) +
           (int64_t)s->probe.count * (a->full ? a->scheme_count + 1 : 2);
    return s->probe.steps_done + runs * steps;
}

static enum oz_status open_probe(struct oz_sensitivity *s, struct oz_error *err)
{
    const struct oz_sensitivity_args *a = s->args;
    int32_t most = a->full ? FULL_TASKS : FAST_TASKS;
    s->probe_args =
        (struct oz_probe_args){.how = a->how,
                               .model = a->model,
                               .tasks = a->tasks,
                               .task_count = a->task_count < most ? a->task_count : most,
                               .progress = a->progress,
                               .progress_ctx = a->progress_ctx};
    OZ_TRY(oz_probe_open(&s->probe, &s->probe_args, err));
    const struct oz_variant_bytes *bytes = &s->probe.reference.bytes;
    bool stays = a->how.modulation == OZ_MODULATION_RESIDENT;
    s->transformer_bytes = bytes->transformer - (stays ? 0 : bytes->transformer_modulation);
    if (s->probe.count == 0) {
        return OZ_FAIL(
            err, OZ_ERR_ARG,
            "The transformer has no linear layer that is stored plain: there is nothing to "
            "quantize.");
    }
    size_t cells = (size_t)s->probe.count * (size_t)a->scheme_count;
    s->cells = oz_alloc_zero(cells, sizeof *s->cells);
    s->chosen = oz_alloc_zero((size_t)s->probe.count, sizeof *s->chosen);
    if (s->cells == NULL || s->chosen == NULL) {
        return OZ_FAIL_NOMEM(err, "the results");
    }
    const struct oz_sensitivity_cell unknown = {(double)NAN, (double)NAN, (double)NAN, (double)NAN,
                                                (double)NAN};
    for (size_t i = 0; i < cells; i++) {
        s->cells[i] = unknown;
    }
    for (int32_t i = 0; i < OZ_ROLE_COUNT * OZ_SENSITIVITY_SCHEMES; i++) {
        s->roles[i / OZ_SENSITIVITY_SCHEMES][i % OZ_SENSITIVITY_SCHEMES] = unknown;
    }
    for (int32_t i = 0; i < OZ_SENSITIVITY_SCHEMES; i++) {
        s->all[i] = (double)NAN;
    }
    return OZ_OK;
}

/* Of all that the measurements depend on. */
static void stamp(struct oz_sensitivity *s)
{
    const struct oz_sensitivity_args *a = s->args;
    const struct oz_pipeline *p = s->probe.reference.pipeline;
    uint64_t h = oz_hash_text(oz_hash_text(OZ_HASH_START, a->version), p->dev->tier);
    h = oz_hash_integer(oz_hash_text(h, p->path), s->probe.reference.bytes.disk);
    h = oz_hash_integer(h, (int64_t)s->args->how.modulation);
    h = oz_hash_integer(oz_hash_integer(h, p->dev->f32_math), a->full);
    for (int32_t i = 0; i < a->scheme_count; i++) {
        h = oz_hash_text(h, s->schemes[i].value);
    }
    for (int32_t i = 0; i < s->probe_args.task_count; i++) {
        const struct oz_task *t = &s->probe.tasks[i];
        h = oz_hash_text(oz_hash_text(h, t->prompt), t->negative_prompt);
        h = oz_hash_integer(oz_hash_integer(h, t->width), t->height);
        h = oz_hash_integer(oz_hash_integer(h, t->steps), (int64_t)t->seed);
        h = oz_hash_bytes(h, &t->scale, sizeof t->scale);
    }
    /* The reference's own pictures: another model of the same name and size has others. */
    s->fingerprint = oz_hash_bytes(h, s->probe.expected,
                                   (size_t)(s->probe.expected_values * s->probe_args.task_count) *
                                       sizeof *s->probe.expected);
}

static enum oz_status keep_partial(struct oz_sensitivity *s, enum oz_status status,
                                   struct oz_error *err)
{
    struct oz_error ignored;
    const char *path = s->args->output_json;
    if (status != OZ_ERR_CANCELLED || s->cells == NULL) {
        return status;
    }
    if (path == NULL || oz_sensitivity_save(s, &ignored) != OZ_OK) {
        return OZ_FAIL(
            err, status,
            "Interrupted; nothing is kept. With --output-json FILE the same command goes on "
            "from where it was.");
    }
    return OZ_FAIL(
        err, status,
        "Interrupted; what was measured is kept in %s: the same command goes on from there.", path);
}

static enum oz_status run_all(struct oz_sensitivity *s, struct oz_error *err)
{
    for (int32_t i = 0; i < s->args->scheme_count; i++) {
        OZ_TRY(read_scheme(&s->args->schemes[i], &s->schemes[i], err));
    }
    OZ_TRY(open_probe(s, err));
    stamp(s);
    s->saved_s = oz_clock_seconds();
    s->probe.steps_total = count_steps(s);
    if (s->args->output_json != NULL && oz_file_exists(s->args->output_json)) {
        OZ_TRY(oz_sensitivity_resume(s, err));
    }
    OZ_TRY(measure(s, err));
    OZ_TRY(oz_sensitivity_search(s, err));
    s->complete = true;
    return oz_sensitivity_save(s, err);
}

enum oz_status oz_sensitivity_run(struct oz_sensitivity **out,
                                  const struct oz_sensitivity_args *args, struct oz_error *err)
{
    *out = NULL;
    if (args->scheme_count < 1 || args->scheme_count > OZ_SENSITIVITY_SCHEMES) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A search has 1 to %d schemes, not %d.",
                       OZ_SENSITIVITY_SCHEMES, args->scheme_count);
    }
    struct oz_sensitivity *s = oz_alloc_zero(1, sizeof *s);
    if (s == NULL) {
        return OZ_FAIL_NOMEM(err, "a search");
    }
    s->args = args;
    s->best = -1;
    enum oz_status status = run_all(s, err);
    if (status != OZ_OK && status != OZ_ERR_THRESHOLD) {
        status = keep_partial(s, status, err);
        oz_sensitivity_close(&s);
    }
    *out = s;
    return status;
}

void oz_sensitivity_close(struct oz_sensitivity **sensitivity)
{
    struct oz_sensitivity *s = *sensitivity;
    if (s == NULL) {
        return;
    }
    oz_model_comparison_close(&s->proof);
    oz_probe_close(&s->probe);
    for (int32_t i = 0; i < OZ_SENSITIVITY_SCHEMES; i++) {
        oz_free(s->schemes[i].value);
    }
    oz_free(s->cells);
    oz_free(s->chosen);
    oz_free(s->config);
    oz_free(s->candidates);
    oz_free(s->proof_tasks);
    oz_free(s);
    *sensitivity = NULL;
}

/* ---- ranks ---- */

void oz_sensitivity_rank(const struct oz_sensitivity *s, int32_t *order)
{
    for (int32_t i = 0; i < s->probe.count; i++) {
        int32_t at = i;
        double cost = oz_sensitivity_at(s, i, s->coarsest)->cost;
        cost = isnan(cost) ? -1 : cost;
        while (at > 0) { /* insertion: some hundred units */
            double other = oz_sensitivity_at(s, order[at - 1], s->coarsest)->cost;
            if ((isnan(other) ? -1 : other) >= cost) {
                break;
            }
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}
