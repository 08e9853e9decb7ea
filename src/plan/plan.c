#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/pool.h"
#include "dev/ops.h"

/* ---- kernels ---- */

/* Where a device's report of one parameter goes. */
struct declines {
    struct oz_plan *plan;
    enum oz_status status;
};

static bool grow(void **list, int32_t count, int32_t *capacity, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    int32_t more = *capacity * 2 + 64;
    void *data = oz_realloc(*list, (size_t)more * size);
    if (data == NULL) {
        return false;
    }
    *list = data;
    *capacity = more;
    return true;
}

static void add_decline(void *ctx, const char *kernel, const char *reason)
{
    struct declines *d = ctx;
    struct oz_plan *p = d->plan;
    void *list = p->declines;
    if (!grow(&list, p->decline_count, &p->decline_capacity, sizeof *p->declines)) {
        d->status = OZ_ERR_NOMEM;
        return;
    }
    p->declines = list;
    p->declines[p->decline_count++] = (struct oz_plan_decline){kernel, reason};
}

/* Do the declines from `first` on say the same as those of a kernel's row? */
static bool same_declines(const struct oz_plan *p, const struct oz_plan_kernel *k, int32_t first)
{
    if (k->decline_count != p->decline_count - first) {
        return false;
    }
    for (int32_t i = 0; i < k->decline_count; i++) {
        const struct oz_plan_decline *a = &p->declines[k->first_decline + i];
        const struct oz_plan_decline *b = &p->declines[first + i];
        if (strcmp(a->kernel, b->kernel) != 0 || strcmp(a->reason, b->reason) != 0) {
            return false;
        }
    }
    return true;
}

/* The row of the kernel that reads a layer's parameter in a mode; asks the device again why better ones
 * declined. The parameter has been planned: its weight has shape and codec. */
static enum oz_status find_kernel(struct oz_plan *p, const struct oz_plan_layer *l, int32_t mode,
                                  int32_t *out, struct oz_error *err)
{
    int32_t first = p->decline_count;
    struct declines d = {.plan = p};
    const struct oz_plan_request request = {
        .use = oz_load_use(l->layer), .mode = mode, .report = add_decline, .report_ctx = &d};
    struct oz_plan_answer answer;
    struct oz_device *dev = p->pipeline->dev;
    OZ_TRY(dev->ops->plan_param(dev, l->layer->bind, &request, &answer, err));
    void *list = p->kernels;
    if (d.status != OZ_OK ||
        !grow(&list, p->kernel_count, &p->kernel_capacity, sizeof *p->kernels)) {
        return OZ_FAIL_NOMEM(err, "the plan");
    }
    p->kernels = list;
    int32_t i = 0;
    while (i < p->kernel_count && (strcmp(p->kernels[i].name, answer.kernel) != 0 ||
                                   !same_declines(p, &p->kernels[i], first))) {
        i++;
    }
    if (i == p->kernel_count) {
        p->kernels[p->kernel_count++] =
            (struct oz_plan_kernel){.name = answer.kernel,
                                    .first_decline = first,
                                    .decline_count = p->decline_count - first};
    } else {
        p->decline_count = first;
    }
    *out = i;
    return OZ_OK;
}

static enum oz_status find_kernels(struct oz_plan *p, struct oz_plan_layer *l, struct oz_error *err)
{
    OZ_TRY(find_kernel(p, l, 0, &l->kernel, err));
    p->kernels[l->kernel].tensors++;
    p->kernels[l->kernel].resident_bytes += l->entry->resident_bytes;
    if (l->entry->fallback != NULL) {
        OZ_TRY(find_kernel(p, l, 1, &l->fallback, err));
        p->kernels[l->fallback].fallbacks++;
    }
    return OZ_OK;
}

/* ---- layers ---- */

static int by_row(const void *a, const void *b)
{
    const struct oz_plan_layer *x = a;
    const struct oz_plan_layer *y = b;
    int32_t i = x->entry->row;
    int32_t k = y->entry->row;
    if (i != k && (i < 0 || k < 0)) {
        return i < 0 ? 1 : -1; /* what no parameter reads comes last */
    }
    if (i == k && x->beside != y->beside) {
        return x->beside ? 1 : -1; /* codes come first */
    }
    if (i == k) {
        return strcmp(x->entry->tensor->name, y->entry->tensor->name);
    }
    return i < k ? -1 : 1;
}

/* Is the tensor another than the one that feeds its row, codes or elements? */
static bool is_beside(const struct oz_component *c, const struct oz_load_entry *e)
{
    int64_t codes = e->row >= 0 ? c->match->row_tensor[e->row] : -1;
    return codes >= 0 && oz_ckpt_tensor(c->ckpt, codes) != e->tensor;
}

static enum oz_status list_layers(struct oz_plan *p, struct oz_error *err)
{
    size_t most = 0;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        most += (size_t)p->pipeline->components[i].report.count;
    }
    p->layers = oz_alloc_zero(most + 1, sizeof *p->layers);
    p->groups = oz_alloc_zero(most + 1, sizeof *p->groups);
    if (p->layers == NULL || p->groups == NULL) {
        return OZ_FAIL_NOMEM(err, "the plan");
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *c = &p->pipeline->components[i];
        int32_t begin = p->count;
        for (int64_t k = 0; k < c->report.count; k++) {
            const struct oz_load_entry *e = &c->report.entries[k];
            p->layers[p->count++] = (struct oz_plan_layer){.component = (enum oz_component_id)i,
                                                           .entry = e,
                                                           .kernel = -1,
                                                           .fallback = -1,
                                                           .beside = is_beside(c, e)};
        }
        qsort(p->layers + begin, (size_t)(p->count - begin), sizeof *p->layers, by_row);
        for (int32_t k = begin; k < p->count; k++) {
            struct oz_plan_layer *l = &p->layers[k];
            if (l->entry->row < 0) {
                continue;
            }
            l->layer = &c->table.rows[l->entry->row];
            l->choice = c->assignment.table != NULL ? &c->assignment.choices[l->entry->row] : NULL;
            if (l->entry->kernel != NULL) {
                OZ_TRY(find_kernels(p, l, err));
            }
        }
    }
    return OZ_OK;
}

/* ---- groups ---- */

bool oz_plan_block_number(const struct oz_layer *layer, size_t *at, size_t *length)
{
    for (const char *s = layer->module; layer->block_number > 0 && s != NULL;) {
        size_t digits = strspn(s, "0123456789");
        if (digits > 0 && s[digits] == '.') {
            *at = (size_t)(s - layer->module);
            *length = digits;
            return true;
        }
        s = strchr(s, '.');
        s = s != NULL ? s + 1 : NULL;
    }
    return false;
}

struct oz_plan_parts oz_plan_parts_of(const struct oz_layer *layer)
{
    size_t at;
    size_t length;
    struct oz_plan_parts p = {.module = layer->module, .type = layer->module};
    if (oz_plan_block_number(layer, &at, &length)) {
        p.before = at;
        p.type = layer->module + at + length + 1;
    }
    return p;
}

const char *oz_plan_folds(const struct oz_layer *layer)
{
    static const char *const vectors = "norms, biases and other vectors";
    static const char *const convolutions = "convolutions";
    return oz_load_is_vector(layer) ? vectors : layer->kind == OZ_LAYER_CONV ? convolutions : NULL;
}

static bool equal_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool equal_names(const struct oz_layer *a, const struct oz_layer *b)
{
    size_t at[2];
    size_t length[2];
    if (!oz_plan_block_number(a, &at[0], &length[0]) ||
        !oz_plan_block_number(b, &at[1], &length[1])) {
        return strcmp(a->name, b->name) == 0;
    }
    return at[0] == at[1] && memcmp(a->name, b->name, at[0]) == 0 &&
           strcmp(a->name + at[0] + length[0], b->name + at[1] + length[1]) == 0;
}

/* Would the two be the same line but for the block's number? */
static bool alike(const struct oz_plan_layer *a, const struct oz_plan_layer *b)
{
    const struct oz_load_entry *x = a->entry;
    const struct oz_load_entry *y = b->entry;
    if (a->component != b->component || x->fate != y->fate || a->kernel != b->kernel ||
        a->fallback != b->fallback || !equal_text(x->scheme, y->scheme) ||
        !equal_text(x->rule, y->rule)) {
        return false;
    }
    if (a->layer == NULL || b->layer == NULL) { /* one line for a rule that ignores */
        return a->layer == b->layer;
    }
    if (oz_plan_folds(a->layer) != NULL || oz_plan_folds(b->layer) != NULL) {
        return oz_plan_folds(a->layer) == oz_plan_folds(b->layer);
    }
    bool chosen =
        (a->choice == NULL && b->choice == NULL) ||
        (a->choice != NULL && b->choice != NULL && a->choice->source == b->choice->source &&
         oz_scheme_equal(&a->choice->scheme, &b->choice->scheme));
    return chosen && x->lora == y->lora && a->layer->role == b->layer->role &&
           x->tensor->dtype == y->tensor->dtype && a->layer->rank == b->layer->rank &&
           memcmp(a->layer->shape, b->layer->shape,
                  (size_t)a->layer->rank * sizeof *a->layer->shape) == 0 &&
           equal_names(a->layer, b->layer);
}

static void fold(struct oz_plan *p)
{
    int32_t begin = 0; /* of the component's groups */
    int32_t g = 0;
    for (int32_t i = 0; i < p->count; i++) {
        const struct oz_plan_layer *l = &p->layers[i];
        if (i > 0 && p->layers[i - 1].component != l->component) {
            begin = p->group_count;
        }
        if (l->beside) { /* right behind its codes, which were the last */
            p->groups[g].beside++;
            p->groups[g].file_bytes += l->entry->tensor->bytes;
            continue;
        }
        g = begin;
        while (g < p->group_count && !alike(&p->layers[p->groups[g].first], l)) {
            g++;
        }
        if (g == p->group_count) {
            p->groups[p->group_count++] = (struct oz_plan_group){.first = i};
        }
        p->groups[g].tensors++;
        p->groups[g].file_bytes += l->entry->tensor->bytes;
        p->groups[g].resident_bytes += l->entry->resident_bytes;
    }
}

/* ---- sums ---- */

static void add_to(struct oz_plan_sums *sums, const char *name, const struct oz_plan_layer *l)
{
    int32_t i = 0;
    while (i < sums->count && strcmp(sums->items[i].name, name) != 0) {
        i++;
    }
    if (i ==
        sums->count) { /* there are fewer schemes than items; were there not, the last takes it */
        i = i < OZ_PLAN_MAX_SUMS ? i : OZ_PLAN_MAX_SUMS - 1;
        sums->count = i + 1;
        sums->items[i].name = name;
    }
    struct oz_plan_sum *s = &sums->items[i];
    const struct oz_load_entry *e = l->entry;
    s->tensors++;
    s->elements += e->tensor->elements;
    s->file_bytes += e->tensor->bytes;
    s->read_bytes += e->read_bytes;
    s->resident_bytes += e->resident_bytes;
    s->mapped_bytes += e->fate == OZ_FATE_MAPPED ? e->tensor->bytes : 0;
}

static void sum(const struct oz_plan *p, enum oz_component_id component, bool by_fate,
                struct oz_plan_sums *sums)
{
    *sums = (struct oz_plan_sums){0};
    for (int32_t i = 0; i < p->count; i++) {
        const struct oz_plan_layer *l = &p->layers[i];
        if (component != OZ_COMPONENT_COUNT && l->component != component) {
            continue;
        }
        const char *scheme = l->entry->scheme != NULL ? l->entry->scheme : "not loaded";
        add_to(sums, by_fate ? oz_fate_name(l->entry->fate) : scheme, l);
    }
}

void oz_plan_sum_by_scheme(const struct oz_plan *plan, enum oz_component_id component,
                           struct oz_plan_sums *sums)
{
    sum(plan, component, false, sums);
}

void oz_plan_sum_by_fate(const struct oz_plan *plan, enum oz_component_id component,
                         struct oz_plan_sums *sums)
{
    sum(plan, component, true, sums);
}

/* ---- peaks ---- */

/* A convolution that is packed is moved into memory of its own first. */
static int64_t moved_bytes(const struct oz_component *c)
{
    int64_t most = 0;
    for (int64_t i = 0; i < c->report.count; i++) {
        const struct oz_load_entry *e = &c->report.entries[i];
        bool moved = e->fate == OZ_FATE_PACKED && c->table.rows[e->row].kind == OZ_LAYER_CONV;
        most = moved && e->tensor->bytes > most ? e->tensor->bytes : most;
    }
    return most;
}

/* Components load one after the other: what came before is resident, what comes next is not. */
static void predict_load(struct oz_plan *p, int64_t model_bytes)
{
    struct oz_plan_memory *m = &p->memory;
    int64_t before = 0;
    int64_t lists = 0; /* of the load itself, beside those that the pipeline keeps */
    bool offloads = oz_offload_is_on(p->pipeline);
    m->resident = model_bytes;
    m->pinned = (int64_t)p->pipeline->offload->pinned_bytes;
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *c = &p->pipeline->components[i];
        int64_t moved = moved_bytes(c);
        int64_t streamed = c->schedule.staging_bytes + c->schedule.rooms_bytes;
        int64_t staging = streamed > moved ? streamed : moved;
        bool last = i + 1 == OZ_COMPONENT_COUNT;
        before = last || offloads ? model_bytes : before + c->loaded.arena_bytes;
        m->mapped += c->loaded.mapped_bytes;
        m->staging = staging > m->staging ? staging : m->staging;
        m->load = before + staging > m->load ? before + staging : m->load;
        m->bookkeeping +=
            c->schedule.bookkeeping_bytes + c->report.count * (int64_t)sizeof *c->report.entries;
        lists = c->schedule.bookkeeping_bytes > lists ? c->schedule.bookkeeping_bytes : lists;
    }
    m->load += m->bookkeeping + lists;
}

static enum oz_status predict_run(struct oz_plan *p, const struct oz_plan_args *a,
                                  struct oz_error *err)
{
    struct oz_plan_memory *m = &p->memory;
    p->tasks = oz_alloc((size_t)a->task_count * sizeof *p->tasks);
    if (p->tasks == NULL) {
        return OZ_FAIL_NOMEM(err, "the plan");
    }
    p->task_count = a->task_count;
    for (int32_t i = 0; i < a->task_count; i++) {
        p->tasks[i] = a->tasks[i];
        OZ_TRY(oz_task_resolve(&p->tasks[i], p->pipeline, a->task_count > 1 ? i + 1 : 0, err));
    }
    const struct oz_run run = {.pipeline = p->pipeline, .max_batch = a->max_batch};
    OZ_TRY(oz_run_measure(&run, p->tasks, p->task_count, &m->run_parts, err));
    const struct oz_run_bytes *r = &m->run_parts;
    size_t host = p->dev->host_memory ? r->pictures : 0;
    size_t drawing = r->step + r->plan + r->sequences + host;
    size_t most = drawing > r->making ? drawing : r->making; /* one after the other */
    m->run = m->resident + m->bookkeeping + (int64_t)(r->table + most);
    return OZ_OK;
}

int64_t oz_plan_need(const struct oz_plan_memory *m)
{
    return (m->load > m->run ? m->load : m->run) + m->mapped + m->process;
}

static enum oz_status make(struct oz_plan *p, const struct oz_plan_args *a, struct oz_error *err)
{
    size_t model_bytes;
    int64_t process = a->process_bytes > 0 ? a->process_bytes : oz_memory_anonymous("");
    OZ_TRY(oz_pipeline_plan(a->pipeline, a->dev, &model_bytes, err));
    p->memory.process = process > 0 ? process : 0;
    OZ_TRY(list_layers(p, err));
    fold(p);
    predict_load(p, (int64_t)model_bytes);
    return predict_run(p, a, err);
}

enum oz_status oz_plan_make(struct oz_plan *plan, const struct oz_plan_args *args,
                            struct oz_error *err)
{
    *plan = (struct oz_plan){.pipeline = args->pipeline,
                             .dev = args->dev,
                             .request = args->request,
                             .threads = oz_pool_threads(args->dev->pool),
                             .max_batch = args->max_batch};
    enum oz_status status = make(plan, args, err);
    if (status != OZ_OK) {
        oz_plan_deinit(plan);
    }
    return status;
}

void oz_plan_deinit(struct oz_plan *plan)
{
    oz_free(plan->layers);
    oz_free(plan->groups);
    oz_free(plan->kernels);
    oz_free(plan->declines);
    oz_free(plan->tasks);
    *plan = (struct oz_plan){0};
}
