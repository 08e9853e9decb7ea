#include "study/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "load/load.h"
#include "ops/param.h"
#include "study/hash.h"

static const char *const fault_names[OZ_DISPATCH_FAULTS] = {
    [OZ_DISPATCH_NOT_QUANTIZED] = "missing_from_model",
    [OZ_DISPATCH_UNPLANNED] = "missing_from_plan",
    [OZ_DISPATCH_NEVER_RAN] = "never_ran",
    [OZ_DISPATCH_OTHER_INPUT] = "other_activations",
    [OZ_DISPATCH_OTHER_KERNEL] = "other_kernel",
};

const char *oz_dispatch_fault_name(enum oz_dispatch_fault fault)
{
    return fault_names[fault];
}

bool oz_dispatch_agrees(const struct oz_dispatch *d)
{
    for (int i = 0; i < OZ_DISPATCH_FAULTS; i++) {
        if (d->faults[i].count > 0) {
            return false;
        }
    }
    return true;
}

void oz_dispatch_deinit(struct oz_dispatch *d)
{
    for (int i = 0; i < OZ_DISPATCH_FAULTS; i++) {
        for (int k = 0; k < OZ_DISPATCH_NAMES; k++) {
            oz_free(d->faults[i].names[k]);
        }
    }
    for (int k = 0; k < OZ_DISPATCH_NAMES; k++) {
        oz_free(d->unused.names[k]);
    }
    *d = (struct oz_dispatch){0};
}

/* ---- watching ---- */

static bool is_watched(const struct oz_layer *l)
{
    return (l->kind == OZ_LAYER_LINEAR || l->kind == OZ_LAYER_EXPERTS) && l->bind != NULL &&
           oz_param_exists(l->bind);
}

static int by_param(const void *a, const void *b)
{
    const struct oz_dispatch_layer *x = a, *y = b;
    return (x->param > y->param) - (x->param < y->param);
}

enum oz_status oz_dispatch_watch_init(struct oz_dispatch_watch *w, const struct oz_pipeline *p,
                                      struct oz_error *err)
{
    size_t most = 0;
    *w = (struct oz_dispatch_watch){.pipeline = p};
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        most += (size_t)p->components[i].table.count;
    }
    w->layers = oz_alloc_zero(most + 1, sizeof *w->layers);
    if (w->layers == NULL) {
        return OZ_FAIL_NOMEM(err, "the dispatch check");
    }
    for (int32_t i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_layer_table *t = &p->components[i].table;
        for (int32_t k = 0; k < t->count; k++) {
            if (is_watched(&t->rows[k])) {
                w->layers[w->count++] =
                    (struct oz_dispatch_layer){.param = t->rows[k].bind, .component = i, .row = k};
            }
        }
    }
    qsort(w->layers, (size_t)w->count, sizeof *w->layers, by_param);
    return OZ_OK;
}

void oz_dispatch_watch_deinit(struct oz_dispatch_watch *w)
{
    oz_free(w->layers);
    *w = (struct oz_dispatch_watch){0};
}

/* A parameter ran with an input (NULL: it is the operator's own); several rows may share a parameter
 * (parts of a stack). */
static void see(struct oz_dispatch_watch *w, const struct oz_param *param, const struct oz_act *x,
                int32_t mode)
{
    const struct oz_dispatch_layer key = {.param = param};
    struct oz_dispatch_layer *l =
        bsearch(&key, w->layers, (size_t)w->count, sizeof *w->layers, by_param);
    if (l == NULL) {
        return;
    }
    while (l > w->layers && l[-1].param == param) {
        l--;
    }
    bool other = false;
    if (x == NULL) {
        other = false;
    } else if (param->act_count > 0) {
        other = !oz_act_spec_equal(&x->spec, &param->acts[oz_param_mode(param, mode)]);
    } else {
        other = x->spec.scale_count > 0; /* plain weights take plain rows */
    }
    for (; l < w->layers + w->count && l->param == param; l++) {
        l->runs++;
        l->other_input = l->other_input || other;
    }
}

void oz_dispatch_watch_op(void *ctx, enum oz_op op, const void *args)
{
    struct oz_dispatch_watch *w = ctx;
    if (op == OZ_OP_LINEAR) {
        const struct oz_linear_args *a = args;
        see(w, &a->w->w, a->x, a->mode);
        if (a->up != NULL) {
            see(w, &a->up->w, a->x, a->mode);
        }
    } else if (op == OZ_OP_TIME_EMBED) {
        const struct oz_time_embed_args *a = args;
        if (a->linear_1 != NULL) {
            see(w, &a->linear_1->w, NULL, 0);
            see(w, &a->linear_2->w, NULL, 0);
        }
    } else if (op == OZ_OP_EXPERTS) {
        const struct oz_experts_args *a = args;
        see(w, a->up, a->x, a->mode);
        const struct oz_act hidden = {.spec = a->hidden};
        see(w, a->down, &hidden, a->mode);
    }
}

/* ---- judging ---- */

static enum oz_status add_name(struct oz_dispatch_list *list, const struct oz_component *c,
                               const struct oz_layer *layer, struct oz_error *err)
{
    if (list->count < OZ_DISPATCH_NAMES) {
        size_t bytes = strlen(c->name) + strlen(layer->module) + 2;
        char *name = oz_alloc(bytes);
        if (name == NULL) {
            return OZ_FAIL_NOMEM(err, "the dispatch check");
        }
        (void)snprintf(name, bytes, "%s.%s", c->name, layer->module);
        list->names[list->count] = name;
    }
    list->count++;
    return OZ_OK;
}

static enum oz_status blame(struct oz_dispatch *d, enum oz_dispatch_fault fault,
                            const struct oz_component *c, const struct oz_layer *layer,
                            struct oz_error *err)
{
    return add_name(&d->faults[fault], c, layer, err);
}

static uint64_t name_hash(const struct oz_dispatch_watch *w, const struct oz_dispatch_layer *l)
{
    const struct oz_component *c = &w->pipeline->components[l->component];
    return oz_hash_text(oz_hash_text(OZ_HASH_START, c->name), c->table.rows[l->row].module);
}

static int by_hash(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

enum oz_status oz_dispatch_list_idle(const struct oz_dispatch_watch *w,
                                     struct oz_dispatch_idle *idle, struct oz_error *err)
{
    *idle = (struct oz_dispatch_idle){
        .hashes = oz_alloc_zero((size_t)w->count + 1, sizeof *idle->hashes)};
    if (idle->hashes == NULL) {
        return OZ_FAIL_NOMEM(err, "the dispatch check");
    }
    for (int32_t i = 0; i < w->count; i++) {
        if (w->layers[i].runs == 0) {
            idle->hashes[idle->count++] = name_hash(w, &w->layers[i]);
        }
    }
    qsort(idle->hashes, (size_t)idle->count, sizeof *idle->hashes, by_hash);
    return OZ_OK;
}

static bool is_idle(const struct oz_dispatch_idle *idle, uint64_t hash)
{
    return bsearch(&hash, idle->hashes, (size_t)idle->count, sizeof hash, by_hash) != NULL;
}

/* The kernel that the load report planned for a row; NULL: none. */
static const char *planned_kernel(const struct oz_component *c, int32_t row)
{
    for (int64_t i = 0; i < c->report.count; i++) {
        if (c->report.entries[i].row == row) {
            return c->report.entries[i].kernel;
        }
    }
    return NULL;
}

static enum oz_status judge_layer(const struct oz_dispatch_watch *w,
                                  const struct oz_dispatch_idle *reference,
                                  const struct oz_dispatch_layer *l, struct oz_dispatch *d,
                                  struct oz_error *err)
{
    const struct oz_component *c = &w->pipeline->components[l->component];
    const struct oz_layer *layer = &c->table.rows[l->row];
    const struct oz_codec *planned =
        c->assignment.table != NULL ? c->assignment.choices[l->row].scheme.codec : NULL;
    planned = oz_codec_is_plain(planned) ? NULL : planned; /* expanded while loading */
    const struct oz_codec *loaded = l->param->weight.codec;
    bool plain = loaded == NULL || l->param->act_count == 0;
    if (planned != NULL && plain) {
        OZ_TRY(blame(d, OZ_DISPATCH_NOT_QUANTIZED, c, layer, err));
    } else if (planned != NULL && loaded != planned) {
        OZ_TRY(blame(d, OZ_DISPATCH_UNPLANNED, c, layer, err));
    } else if (planned == NULL && !plain) {
        OZ_TRY(blame(d, OZ_DISPATCH_UNPLANNED, c, layer, err));
    } else {
        d->quantized_in_both += planned != NULL;
        d->unquantized_in_both += planned == NULL;
    }
    if (l->runs == 0 && is_idle(reference, name_hash(w, l))) {
        return add_name(&d->unused, c, layer, err);
    }
    if (l->runs == 0) {
        return blame(d, OZ_DISPATCH_NEVER_RAN, c, layer, err);
    }
    if (l->other_input) {
        OZ_TRY(blame(d, OZ_DISPATCH_OTHER_INPUT, c, layer, err));
    }
    const char *kernel = planned_kernel(c, l->row);
    struct oz_device *dev = w->pipeline->dev;
    struct oz_plan_answer answer = {0};
    const struct oz_plan_request request = {.use = oz_load_use(layer)};
    OZ_TRY(dev->ops->plan_param(dev, l->param, &request, &answer, err));
    if (kernel != NULL && (answer.kernel == NULL || strcmp(kernel, answer.kernel) != 0)) {
        return blame(d, OZ_DISPATCH_OTHER_KERNEL, c, layer, err);
    }
    return OZ_OK;
}

enum oz_status oz_dispatch_judge(const struct oz_dispatch_watch *w,
                                 const struct oz_dispatch_idle *reference, struct oz_dispatch *out,
                                 struct oz_error *err)
{
    *out = (struct oz_dispatch){0};
    for (int32_t i = 0; i < w->count; i++) {
        enum oz_status status = judge_layer(w, reference, &w->layers[i], out, err);
        if (status != OZ_OK) {
            oz_dispatch_deinit(out);
            return status;
        }
    }
    return OZ_OK;
}
