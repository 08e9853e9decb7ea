#include "plan/fit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "pipe/quantize.h"
#include "quant/config.h"

#define MAX_CONFIG_BYTES ((size_t)OZ_CONFIG_MAX_BYTES)

/* What a rung changes: how many bits the linears of some roles have. */
struct rung {
    const char *gives;
    bool main;         /* of the main model; else of the text encoders */
    int32_t bits;      /* 0: as stored */
    enum oz_keep keep; /* 8 bits: which roles stay */
    int32_t role;      /* 4 bits: of this role; -1: all that have 8 */
};

static const struct rung rungs[] = {
    {"nothing: all weights as they are stored", true, 0, OZ_KEEP_CONSERVATIVE, -1},
    {"the main model's linears at 8 bits, keep-list conservative", true, 8, OZ_KEEP_CONSERVATIVE,
     -1},
    {"also attention output and MLP down at 8 bits: keep-list standard", true, 8, OZ_KEEP_STANDARD,
     -1},
    {"the text encoder's linears at 8 bits", false, 8, OZ_KEEP_STANDARD, -1},
    {"the main model's attn_qkv at 4 bits", true, 4, OZ_KEEP_STANDARD, OZ_ROLE_ATTN_QKV},
    {"its expert_up at 4 bits", true, 4, OZ_KEEP_STANDARD, OZ_ROLE_EXPERT_UP},
    {"its mlp_up at 4 bits", true, 4, OZ_KEEP_STANDARD, OZ_ROLE_MLP_UP},
    {"its attn_out at 4 bits", true, 4, OZ_KEEP_STANDARD, OZ_ROLE_ATTN_OUT},
    {"its expert_down at 4 bits", true, 4, OZ_KEEP_STANDARD, OZ_ROLE_EXPERT_DOWN},
    {"its mlp_down at 4 bits", true, 4, OZ_KEEP_STANDARD, OZ_ROLE_MLP_DOWN},
    {"the text encoder's linears at 4 bits", false, 4, OZ_KEEP_STANDARD, -1},
};
enum { RUNGS = sizeof rungs / sizeof *rungs };
_Static_assert((int)RUNGS <= OZ_PLAN_MAX_RUNGS, "a fit has room for every rung");

/* ---- which scheme a layer has on a rung ---- */

static const char *scheme_name(const struct oz_layer *layer, int32_t bits)
{
    bool experts = layer->kind == OZ_LAYER_EXPERTS;
    return bits == 8 ? (experts ? "fp8_per_channel" : "int8") : (experts ? "mxfp4" : "nvfp4");
}

static bool takes(const struct oz_layer *layer, const char *name)
{
    static const struct oz_act_support none = {0};
    const struct oz_scheme_info *info = oz_scheme_find(name);
    struct oz_scheme scheme;
    return info != NULL && oz_scheme_make(&scheme, info, &none, NULL) == OZ_OK &&
           oz_scheme_check_shape(&scheme, layer, NULL) == OZ_OK;
}

/* The method of a layer after the rungs up to `last`; NULL: as stored. */
static const char *method_of(const struct oz_layer *layer, bool main, int32_t last)
{
    const char *method = NULL;
    if (layer->kind != OZ_LAYER_LINEAR && layer->kind != OZ_LAYER_EXPERTS) {
        return NULL;
    }
    for (int32_t i = 0; i <= last; i++) {
        const struct rung *r = &rungs[i];
        bool all = r->role < 0 || r->role == (int32_t)layer->role;
        bool from = r->bits == 8 || method != NULL;
        if (r->main == main && r->bits > 0 && all && from && !oz_keep_has(r->keep, layer->role) &&
            takes(layer, scheme_name(layer, r->bits))) {
            method = scheme_name(layer, r->bits);
        }
    }
    return method;
}

static bool is_main(int component)
{
    return component == OZ_COMPONENT_TRANSFORMER;
}

/* Does a rung change any layer? */
static bool changes(const struct oz_pipeline *p, int32_t rung)
{
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_layer_table *t = &p->components[i].table;
        for (int32_t r = 0; r < t->count && i != OZ_COMPONENT_VAE; r++) {
            if (t->rows[r].bind != NULL && method_of(&t->rows[r], is_main(i), rung) !=
                                               method_of(&t->rows[r], is_main(i), rung - 1)) {
                return true;
            }
        }
    }
    return rung == 0;
}

/* ---- as a config ---- */

/* Part of a regular expression that matches text: a dot in brackets needs no escape in JSON or shell. */
static void put_pattern(struct oz_buf *b, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '.') {
            oz_buf_puts(b, "[.]");
        } else if (strchr("\\^$|()[]{}*+?\"", text[i]) != NULL) {
            oz_buf_printf(b, "[%c]", text[i]);
        } else {
            oz_buf_append(b, &text[i], 1);
        }
    }
}

/* A component's table on a rung, and the rows that have been written. */
struct writing {
    const struct oz_layer_table *table;
    bool main;
    int32_t rung;
    bool *done; /* [rows] */
};

/* Is row i of the same method and block list as row `first`? */
static bool together(const struct writing *w, int32_t first, int32_t i, const char *method)
{
    const struct oz_layer *row = &w->table->rows[i];
    struct oz_plan_parts a = oz_plan_parts_of(&w->table->rows[first]);
    struct oz_plan_parts b = oz_plan_parts_of(row);
    return row->bind != NULL && !w->done[i] && a.before == b.before &&
           memcmp(a.module, b.module, a.before) == 0 && method_of(row, w->main, w->rung) == method;
}

/* One pattern for all types of layers of a block list that have one method. */
static void put_target(struct oz_buf *b, const struct writing *w, int32_t first, const char *method)
{
    struct oz_plan_parts head = oz_plan_parts_of(&w->table->rows[first]);
    bool bar = false;
    oz_buf_puts(b, "\"re:");
    put_pattern(b, head.module, head.before);
    oz_buf_puts(b, head.before > 0 ? "[0-9]+[.](" : "(");
    for (int32_t i = first; i < w->table->count; i++) {
        if (!together(w, first, i, method)) {
            continue;
        }
        struct oz_plan_parts p = oz_plan_parts_of(&w->table->rows[i]);
        w->done[i] = true;
        oz_buf_puts(b, bar ? "|" : "");
        put_pattern(b, p.type, strlen(p.type));
        bar = true;
        for (int32_t k = i + 1; k < w->table->count; k++) { /* the other blocks' */
            if (together(w, first, k, method) &&
                strcmp(oz_plan_parts_of(&w->table->rows[k]).type, p.type) == 0) {
                w->done[k] = true;
            }
        }
    }
    oz_buf_printf(b, ")$\": \"%s\"", method);
}

static enum oz_status put_component(struct oz_buf *b, const struct oz_component *c,
                                    struct writing *w, struct oz_error *err)
{
    bool any = false;
    w->table = &c->table;
    w->done = oz_alloc_zero((size_t)c->table.count + 1, sizeof *w->done);
    if (w->done == NULL) {
        return OZ_FAIL_NOMEM(err, "a quantization config");
    }
    for (int32_t i = 0; i < c->table.count; i++) {
        const struct oz_layer *row = &c->table.rows[i];
        const char *method = row->bind != NULL ? method_of(row, w->main, w->rung) : NULL;
        if (method == NULL || w->done[i]) {
            continue;
        }
        if (any) {
            oz_buf_puts(b, ", ");
        } else {
            oz_buf_printf(b, "%s\"%s\": {\"targets\": {", b->bytes > 1 ? ", " : "", c->name);
        }
        any = true;
        put_target(b, w, i, method);
    }
    oz_buf_puts(b, any ? "}}" : "");
    oz_free(w->done);
    return OZ_OK;
}

/* The config of a rung; NULL for the first. */
static enum oz_status make_config(const struct oz_pipeline *p, int32_t rung, char **config,
                                  struct oz_error *err)
{
    struct oz_buf b;
    *config = NULL;
    if (rung == 0) {
        return OZ_OK;
    }
    oz_buf_init(&b, MAX_CONFIG_BYTES);
    oz_buf_puts(&b, "{");
    enum oz_status status = OZ_OK;
    for (int i = 0; i < OZ_COMPONENT_COUNT && status == OZ_OK; i++) {
        struct writing w = {.main = is_main(i), .rung = rung};
        if (i != OZ_COMPONENT_VAE) {
            status = put_component(&b, &p->components[i], &w, err);
        }
    }
    oz_buf_puts(&b, "}");
    *config = status == OZ_OK ? oz_buf_take(&b) : NULL;
    oz_buf_deinit(&b);
    if (status == OZ_OK && *config == NULL) {
        return OZ_FAIL_NOMEM(err, "a quantization config");
    }
    return status;
}

/* ---- the search ---- */

/* A fresh pipeline, assigned by the rung's config and planned. */
static enum oz_status plan_rung(struct oz_plan *plan, struct oz_pipeline **pipeline,
                                struct oz_request **request, const char *config,
                                const struct oz_plan_fit_args *a, struct oz_error *err)
{
    int64_t first = plan->memory.process; /* freed memory of an earlier rung is no part of it */
    oz_plan_deinit(plan);
    oz_pipeline_close(pipeline);
    oz_request_destroy(request);
    const struct oz_request_text text = {.config = config};
    OZ_TRY(oz_request_create(request, &text, err));
    OZ_TRY(oz_pipeline_open(pipeline, a->folder, a->how, err));
    OZ_TRY(oz_pipeline_assign(*pipeline, a->dev, *request, OZ_KEEP_STANDARD, false, err));
    const struct oz_plan_args args = {.pipeline = *pipeline,
                                      .dev = a->dev,
                                      .request = *request,
                                      .tasks = a->tasks,
                                      .task_count = a->task_count,
                                      .max_batch = a->max_batch,
                                      .process_bytes = first > 0 ? first : a->process_bytes};
    return oz_plan_make(plan, &args, err);
}

enum oz_status oz_plan_fit_fail(const struct oz_plan_fit *fit, struct oz_error *err)
{
    const struct oz_plan_rung *least = &fit->rungs[0];
    for (int32_t i = 1; i < fit->count; i++) {
        least = fit->rungs[i].need < least->need ? &fit->rungs[i] : least;
    }
    return OZ_FAIL(err, OZ_ERR_THRESHOLD,
                   "Nothing fits %" PRId64 " bytes. The least that would is %" PRId64
                   " bytes (%.1f MiB), when it comes to %s; ask for smaller pictures, or for fewer "
                   "together.",
                   fit->limit, least->need, (double)least->need / (1024.0 * 1024), least->gives);
}

enum oz_status oz_plan_fit_try(struct oz_plan *plan, struct oz_plan_fit *fit,
                               struct oz_pipeline **pipeline, struct oz_request **request,
                               char *config, const char *gives, const struct oz_plan_fit_args *args,
                               struct oz_error *err)
{
    oz_free(fit->config);
    fit->config = config;
    if (fit->count == OZ_PLAN_MAX_RUNGS) {
        return oz_plan_fit_fail(fit, err);
    }
    OZ_TRY(plan_rung(plan, pipeline, request, config, args, err));
    struct oz_plan_rung *r = &fit->rungs[fit->count++];
    (void)snprintf(r->gives, sizeof r->gives, "%s", gives);
    r->need = oz_plan_need(&plan->memory);
    r->load = plan->memory.load;
    r->run = plan->memory.run;
    return OZ_OK;
}

enum oz_status oz_plan_fit_put_text(struct oz_buf *b, const struct oz_pipeline *p, int32_t bits,
                                    struct oz_error *err)
{
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        if (i == OZ_COMPONENT_VAE || is_main(i)) {
            continue;
        }
        struct writing w = {.rung = bits == 8 ? RUNGS - 2 : RUNGS - 1};
        while (w.rung > 0 && rungs[w.rung].bits != bits) {
            w.rung--;
        }
        OZ_TRY(put_component(b, &p->components[i], &w, err));
    }
    return OZ_OK;
}

enum oz_status oz_plan_make_fit(struct oz_plan *plan, struct oz_plan_fit *fit,
                                struct oz_pipeline **pipeline, struct oz_request **request,
                                const struct oz_plan_fit_args *a, struct oz_error *err)
{
    *plan = (struct oz_plan){0};
    *fit = (struct oz_plan_fit){.limit = a->limit};
    *pipeline = NULL;
    *request = NULL;
    for (int32_t i = 0; i < RUNGS; i++) {
        if (*pipeline != NULL && !changes(*pipeline, i)) {
            continue;
        }
        char *config = NULL;
        if (*pipeline != NULL) {
            OZ_TRY(make_config(*pipeline, i, &config, err));
        }
        OZ_TRY(oz_plan_fit_try(plan, fit, pipeline, request, config, rungs[i].gives, a, err));
        if (fit->rungs[fit->count - 1].need <= a->limit) {
            return OZ_OK;
        }
    }
    oz_plan_deinit(plan);
    return oz_plan_fit_fail(fit, err);
}

void oz_plan_fit_deinit(struct oz_plan_fit *fit)
{
    oz_free(fit->config);
    *fit = (struct oz_plan_fit){0};
}
