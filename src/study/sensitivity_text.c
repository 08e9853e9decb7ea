/* sensitivity_text.c: ranks and a proposal for people, as JSON, and read back from an interrupted run. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "study/sensitivity.h"

#define MIB (1024.0 * 1024.0)
#define SHOWN 12 /* units at each end of the table */
#define MAX_DOCUMENT_BYTES ((size_t)256 << 20)

/* ---- for people ---- */

static double root(double squared)
{
    return squared >= 0 ? sqrt(squared) : (double)NAN;
}

static void or_dash(struct oz_buf *b, int width, double value)
{
    if (isfinite(value)) {
        oz_buf_printf(b, " %*.5f", width, value);
    } else {
        oz_buf_printf(b, " %*s", width, "-");
    }
}

static void print_names(const struct oz_sensitivity *s, struct oz_buf *b)
{
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        oz_buf_printf(b, " %17.17s", s->args->schemes[k].label);
    }
    oz_buf_puts(b, "\n");
}

static void print_roles(const struct oz_sensitivity *s, struct oz_buf *b)
{
    oz_buf_printf(b, "%-34s", "role (alone, and kept alone)");
    print_names(s, b);
    for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
        if (isnan(s->roles[role][0].alone) && isnan(s->roles[role][0].bytes)) {
            continue;
        }
        oz_buf_printf(b, "%-34s", oz_role_name((enum oz_role)role));
        for (int32_t k = 0; k < s->args->scheme_count; k++) {
            or_dash(b, 8, root(s->roles[role][k].alone));
            or_dash(b, 8, root(s->roles[role][k].kept));
        }
        oz_buf_puts(b, "\n");
    }
    oz_buf_printf(b, "%-34s", "all");
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        or_dash(b, 8, root(s->all[k]));
        oz_buf_printf(b, " %8s", "");
    }
    oz_buf_puts(b, "\n");
}

static void print_units(const struct oz_sensitivity *s, struct oz_buf *b)
{
    int32_t *order = oz_alloc_zero((size_t)s->probe.count + 1, sizeof *order);
    if (order == NULL) {
        b->status = OZ_ERR_NOMEM;
        return;
    }
    oz_sensitivity_rank(s, order);
    oz_buf_printf(b, "\n%-34s", "layer, worst first (cost)");
    print_names(s, b);
    for (int32_t i = 0; i < s->probe.count; i++) {
        const struct oz_probe_unit *u = &s->probe.units[order[i]];
        if (i == SHOWN && s->probe.count > 2 * SHOWN) {
            oz_buf_printf(b, "... %d more, and the least:\n", s->probe.count - 2 * SHOWN);
            i = s->probe.count - SHOWN;
            u = &s->probe.units[order[i]];
        }
        oz_buf_printf(b, "%-34s", u->name);
        for (int32_t k = 0; k < s->args->scheme_count; k++) {
            or_dash(b, 17, root(oz_sensitivity_at(s, order[i], k)->cost));
        }
        oz_buf_puts(b, u->ran ? "\n" : "  (no picture needs it)\n");
    }
    oz_free(order);
}

static void print_proof(const struct oz_sensitivity *s, struct oz_buf *b)
{
    const struct oz_sensitivity_round *r = &s->rounds[s->best];
    oz_buf_printf(
        b,
        "\nproposal: %.2f dB, relative L2 %.5f, transformer %.2f MiB (%.0f %% of %.2f), found "
        "in %d rounds, %.0f s\n\n",
        r->psnr_db, r->relative_l2, r->bytes / MIB, 100.0 * r->bytes / (double)s->transformer_bytes,
        (double)s->transformer_bytes / MIB, s->round_count, s->searched_s);
    oz_buf_printf(b, "--quantization-config '%s'\n", s->config);
    if (s->proof != NULL) {
        oz_buf_printf(b,
                      "\nproof, on seeds that are %llu further; each scheme with the keep-list "
                      "standard, and for "
                      "all layers:\n",
                      (unsigned long long)s->args->verify_offset);
        oz_model_comparison_print(s->proof, b);
    }
}

void oz_sensitivity_print(const struct oz_sensitivity *s, struct oz_buf *b)
{
    const struct oz_pipeline *p = s->probe.reference.pipeline;
    oz_buf_printf(
        b,
        "%s: %d linears and fused groups, measured in %.0f s (%s); errors as %s; of any change at "
        "least %.5f\n\n",
        p->name, s->probe.count, s->measured_s, s->args->full ? "full" : "fast",
        "RMS of pictures in 0..1", root(s->floor));
    print_roles(s, b);
    print_units(s, b);
    if (s->best >= 0) {
        print_proof(s, b);
    }
}

/* ---- JSON ---- */

static void put_cell(const struct oz_sensitivity *s, struct oz_buf *b, int32_t scheme,
                     const struct oz_sensitivity_cell *c)
{
    oz_buf_puts(b, scheme > 0 ? ", " : "");
    oz_study_json_text(b, s->args->schemes[scheme].label);
    oz_buf_puts(b, ": {");
    oz_study_json_number(b, "bytes", c->bytes);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "local", c->local);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "alone", c->alone);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "kept", c->kept);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "cost", c->cost);
    oz_buf_puts(b, "}");
}

static void put_roles(const struct oz_sensitivity *s, struct oz_buf *b)
{
    bool comma = false;
    oz_buf_puts(b, " \"roles\": [");
    for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
        if (isnan(s->roles[role][0].alone)) {
            continue;
        }
        oz_buf_printf(b, "%s\n  {\"role\": \"%s\", \"schemes\": {", comma ? "," : "",
                      oz_role_name((enum oz_role)role));
        for (int32_t k = 0; k < s->args->scheme_count; k++) {
            put_cell(s, b, k, &s->roles[role][k]);
        }
        oz_buf_puts(b, "}}");
        comma = true;
    }
    oz_buf_puts(b, "],\n \"all\": {");
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        oz_buf_puts(b, k > 0 ? ", " : "");
        oz_study_json_text(b, s->args->schemes[k].label);
        oz_buf_puts(b, ": ");
        oz_buf_number(b, s->all[k]);
    }
    oz_buf_puts(b, "},\n");
}

static void put_units(const struct oz_sensitivity *s, struct oz_buf *b)
{
    oz_buf_puts(b, " \"units\": [");
    for (int32_t i = 0; i < s->probe.count; i++) {
        const struct oz_probe_unit *u = &s->probe.units[i];
        oz_buf_printf(b, "%s\n  {\"unit\": ", i > 0 ? "," : "");
        oz_study_json_text(b, u->name);
        oz_buf_printf(b,
                      ", \"role\": \"%s\", \"elements\": %" PRId64 ", \"stored_bytes\": %" PRId64
                      ", \"needed\": %s, \"proposal\": ",
                      oz_role_name(u->role), u->elements, u->stored_bytes,
                      u->ran ? "true" : "false");
        if (s->best >= 0 && s->chosen[i] >= 0) {
            oz_study_json_text(b, s->args->schemes[s->chosen[i]].label);
        } else {
            oz_buf_puts(b, "null");
        }
        oz_buf_puts(b, ",\n   \"schemes\": {");
        for (int32_t k = 0; k < s->args->scheme_count; k++) {
            put_cell(s, b, k, oz_sensitivity_at(s, i, k));
        }
        oz_buf_puts(b, "}}");
    }
    oz_buf_puts(b, "],\n");
}

static void put_rounds(const struct oz_sensitivity *s, struct oz_buf *b)
{
    oz_buf_puts(b, " \"rounds\": [");
    for (int32_t i = 0; i < s->round_count; i++) {
        const struct oz_sensitivity_round *r = &s->rounds[i];
        oz_buf_puts(b, i > 0 ? ", {" : "{");
        oz_study_json_number(b, "reckoned_error", r->error);
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "transformer_bytes", r->bytes);
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "psnr_db", r->psnr_db);
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "relative_l2", r->relative_l2);
        oz_buf_puts(b, "}");
    }
    oz_buf_puts(b, "]");
}

void oz_sensitivity_json(const struct oz_sensitivity *s, struct oz_buf *b)
{
    static const char *const budgets[] = {"none", "psnr", "rel-l2", "bytes"};
    oz_buf_printf(b,
                  "{\"document\": \"sensitivity\", \"complete\": %s, \"fingerprint\": \"%016" PRIx64
                  "\", \"version\": \"%s\",\n \"model\": ",
                  s->complete ? "true" : "false", s->fingerprint, s->args->version);
    oz_study_json_text(b, s->probe.reference.pipeline->name);
    oz_buf_printf(b,
                  ", \"measure\": \"%s\", \"transformer_bytes\": %" PRId64
                  ", \"budget\": {\"kind\": \"%s\", ",
                  "mean squared error of pictures in 0..1", s->transformer_bytes,
                  budgets[s->args->budget.kind]);
    oz_study_json_number(b, "value", s->args->budget.value);
    oz_buf_printf(b, "}, \"full\": %s, ", s->args->full ? "true" : "false");
    oz_study_json_number(b, "floor", s->floor);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "measured_s", s->measured_s);
    oz_buf_puts(b, ", ");
    oz_study_json_number(b, "searched_s", s->searched_s);
    oz_buf_puts(b, ",\n \"schemes\": {");
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        oz_buf_puts(b, k > 0 ? ", " : "");
        oz_study_json_text(b, s->args->schemes[k].label);
        oz_buf_printf(b, ": %s", s->schemes[k].value);
    }
    oz_buf_puts(b, "}, \"coarsest\": ");
    if (s->coarsest >= 0) {
        oz_study_json_text(b, s->args->schemes[s->coarsest].label);
    } else {
        oz_buf_puts(b, "null");
    }
    oz_buf_puts(b, ",\n");
    put_roles(s, b);
    put_units(s, b);
    put_rounds(s, b);
    oz_buf_printf(b, ",\n \"best_round\": %s%d, \"quantization_config\": %s", "", s->best,
                  s->config != NULL ? s->config : "null");
    if (s->proof != NULL) {
        oz_buf_puts(b, ",\n \"proof\": ");
        oz_model_comparison_json(s->proof, b);
    }
    oz_buf_puts(b, "}\n");
}

/* ---- an earlier document ---- */

static void read_cell(const struct oz_json *schemes, const char *label,
                      struct oz_sensitivity_cell *c)
{
    const struct oz_json *v = oz_json_get(schemes, label);
    c->local = oz_json_number(oz_json_get(v, "local"), (double)NAN);
    c->alone = oz_json_number(oz_json_get(v, "alone"), (double)NAN);
    c->kept = oz_json_number(oz_json_get(v, "kept"), (double)NAN);
}

static int32_t read_all(struct oz_sensitivity *s, const struct oz_json *root_value)
{
    const struct oz_json *units = oz_json_get(root_value, "units");
    const struct oz_json *roles = oz_json_get(root_value, "roles");
    int32_t taken = 0;
    for (int32_t k = 0; k < s->args->scheme_count; k++) {
        const char *label = s->args->schemes[k].label;
        s->all[k] = oz_json_number(oz_json_get(oz_json_get(root_value, "all"), label), (double)NAN);
        for (size_t r = 0; r < oz_json_count(roles); r++) {
            const struct oz_json *v = oz_json_at(roles, r);
            for (int32_t role = 0; role < OZ_ROLE_COUNT; role++) {
                if (strcmp(oz_json_string(oz_json_get(v, "role"), ""),
                           oz_role_name((enum oz_role)role)) == 0) {
                    read_cell(oz_json_get(v, "schemes"), label, &s->roles[role][k]);
                }
            }
        }
        for (size_t u = 0; u < oz_json_count(units) && u < (size_t)s->probe.count; u++) {
            const struct oz_json *v = oz_json_at(units, u);
            struct oz_sensitivity_cell *c = oz_sensitivity_at(s, (int32_t)u, k);
            read_cell(oz_json_get(v, "schemes"), label, c);
            taken += !isnan(c->local) || !isnan(c->alone);
        }
    }
    s->measured_s = oz_json_number(oz_json_get(root_value, "measured_s"), 0);
    return taken;
}

enum oz_status oz_sensitivity_resume(struct oz_sensitivity *s, struct oz_error *err)
{
    const char *path = s->args->output_json;
    struct oz_json *document;
    struct oz_error why;
    char fingerprint[32];
    (void)err;
    (void)snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, s->fingerprint);
    if (oz_json_parse_file(&document, path, MAX_DOCUMENT_BYTES, &why) != OZ_OK) {
        oz_log(OZ_LOG_WARN, "study", "%s is no earlier result and will be replaced: %s", path,
               why.message);
        return OZ_OK;
    }
    if (strcmp(oz_json_string(oz_json_get(document, "fingerprint"), ""), fingerprint) == 0) {
        int32_t taken = read_all(s, document);
        s->resumed = true;
        oz_log(OZ_LOG_WARN, "study",
               "%s: going on with what an earlier run has measured: %d of %d layers and schemes.",
               path, taken, s->probe.count * s->args->scheme_count);
    } else {
        oz_log(OZ_LOG_WARN, "study",
               "%s holds the result of another study, or of a changed model; it will be replaced.",
               path);
    }
    oz_json_free(document);
    return OZ_OK;
}
