/* A plan as tables for people. */
#include "plan/describe.h"

#include <inttypes.h>
#include <string.h>

#include "dev/linear_backend.h"
#include "pipe/load_format.h"
#include "quant/config.h"

#define NAME_WIDTH 52

void oz_plan_acts(const struct oz_plan_layer *l, struct oz_buf *out)
{
    const struct oz_scheme *s = l->choice != NULL ? &l->choice->scheme : NULL;
    if (s == NULL || s->codec == NULL) {
        oz_buf_puts(out, "none");
        return;
    }
    oz_buf_puts(out, oz_act_mode_name(s->acts[0]));
    if (s->mode_count > 1) {
        oz_buf_printf(out, ", %s in fallback steps", oz_act_mode_name(s->acts[1]));
    }
}

static void put_bytes(struct oz_buf *b, int64_t bytes)
{
    if (bytes < (INT64_C(1) << 30)) {
        oz_buf_printf(b, "%9.2f MiB", (double)bytes / (1024 * 1024));
    } else {
        oz_buf_printf(b, "%9.2f GiB", (double)bytes / (1024.0 * 1024 * 1024));
    }
}

/* Letters of a kernel's row: a to z, then aa ... Returns how many. */
static int put_letters(struct oz_buf *b, int32_t kernel)
{
    char text[8] = "-";
    size_t n = 0;
    for (int32_t k = kernel; k >= 0 && n + 1 < sizeof text; k = k / 26 - 1) {
        text[n++] = (char)('a' + k % 26);
    }
    for (size_t i = 0; i < n / 2; i++) {
        char t = text[i];
        text[i] = text[n - 1 - i];
        text[n - 1 - i] = t;
    }
    oz_buf_puts(b, text);
    return (int)strlen(text);
}

/* "a", or "a/b" where fallback steps have another. */
static void put_kernel(struct oz_buf *b, int32_t kernel, int32_t fallback)
{
    int width = put_letters(b, kernel);
    if (fallback >= 0 && fallback != kernel) {
        oz_buf_puts(b, "/");
        width += 1 + put_letters(b, fallback);
    }
    oz_buf_printf(b, "%*s", width < 3 ? 3 - width : 0, "");
}

/* ---- layers ---- */

static void put_shape(struct oz_buf *b, const struct oz_layer *layer)
{
    size_t begin = b->bytes;
    oz_buf_puts(b, "[");
    for (int32_t i = 0; i < layer->rank; i++) {
        oz_buf_printf(b, "%s%" PRId64, i > 0 ? "," : "", layer->shape[i]);
    }
    oz_buf_puts(b, "]");
    oz_buf_printf(b, "%*s", b->bytes - begin < 14 ? (int)(14 - (b->bytes - begin)) : 0, "");
}

/* "method: fp8", or what became of a tensor that nobody asked to be quantized. */
static void put_why(struct oz_buf *b, const struct oz_plan_layer *l)
{
    oz_buf_puts(b, oz_fate_name(l->entry->fate));
    if (l->choice != NULL && l->choice->source != OZ_SOURCE_STORED) {
        oz_buf_printf(b, "; %s: %s", oz_source_name(l->choice->source), l->choice->rule);
    }
}

/* The name of one layer, or of several blocks': "transformer_blocks.*.attn.to_q.weight". */
static void put_name(struct oz_buf *b, const struct oz_plan_layer *l, int32_t tensors)
{
    const char *name = l->layer->name;
    size_t at;
    size_t length;
    size_t begin = b->bytes;
    if (tensors > 1 && oz_plan_block_number(l->layer, &at, &length)) {
        oz_buf_append(b, name, at);
        oz_buf_printf(b, "*%s", name + at + length);
    } else {
        oz_buf_puts(b, name);
    }
    size_t width = b->bytes - begin;
    oz_buf_printf(b, "%*s", width < NAME_WIDTH ? (int)(NAME_WIDTH - width) : 0, "");
}

static void put_layer(struct oz_buf *b, const struct oz_plan_layer *l,
                      const struct oz_plan_group *g)
{
    int32_t tensors = g->tensors;
    const char *folded = tensors > 1 && l->layer != NULL ? oz_plan_folds(l->layer) : NULL;
    oz_buf_printf(b, "  %4d ", (int)tensors);
    if (l->beside || (l->layer == NULL && tensors == 1)) {
        oz_buf_printf(b, "%-*s ", NAME_WIDTH, l->entry->tensor->name);
    } else if (l->layer == NULL) {
        oz_buf_printf(b, "%-*s ", NAME_WIDTH, "not read");
    } else if (folded != NULL) {
        oz_buf_printf(b, "%-*s ", NAME_WIDTH, folded);
    } else {
        put_name(b, l, tensors);
        oz_buf_printf(b, " %-11s ", oz_role_name(l->layer->role));
        put_shape(b, l->layer);
    }
    if (l->layer == NULL || folded != NULL || l->beside) {
        oz_buf_printf(b, "%26s", "");
    }
    oz_buf_printf(b, " %-16s ", l->entry->scheme != NULL ? l->entry->scheme : "-");
    put_kernel(b, l->kernel, l->fallback);
    put_bytes(b, g->file_bytes);
    put_bytes(b, g->resident_bytes);
    oz_buf_puts(b, "  ");
    if (l->layer == NULL) {
        oz_buf_printf(b, "%s: %s", oz_fate_name(l->entry->fate),
                      l->entry->rule != NULL ? l->entry->rule : "nobody asks for it");
    } else {
        put_why(b, l);
    }
    if (l->choice != NULL && l->choice->scheme.codec != NULL) {
        oz_buf_puts(b, "; activations ");
        oz_plan_acts(l, b);
    }
    if (g->beside > 0) {
        oz_buf_printf(b, "; with %d tensors of scales and the like", (int)g->beside);
    }
    oz_buf_puts(b, l->entry->lora != NULL ? "; LoRA merged first\n" : "\n");
}

static void put_sums(struct oz_buf *b, const char *what, const struct oz_plan_sums *sums)
{
    for (int32_t i = 0; i < sums->count; i++) {
        const struct oz_plan_sum *s = &sums->items[i];
        oz_buf_printf(b, "  %s %-18s %5d tensors %14" PRId64 " parameters, on disk", what, s->name,
                      (int)s->tensors, s->elements);
        put_bytes(b, s->file_bytes);
        oz_buf_puts(b, ", resident");
        put_bytes(b, s->resident_bytes);
        if (s->mapped_bytes > 0) {
            oz_buf_puts(b, ", mapped");
            put_bytes(b, s->mapped_bytes);
        }
        oz_buf_puts(b, "\n");
    }
}

static void put_schedule(struct oz_buf *b, const struct oz_load_schedule *s)
{
    if (s->count == 0) {
        return;
    }
    oz_buf_printf(b, "  read schedule:%*s", 1, "");
    put_bytes(b, s->read_bytes);
    oz_buf_printf(b, " in %" PRId64 " bands by %d threads through", s->count, (int)s->workers);
    put_bytes(b, s->staging_bytes);
    oz_buf_printf(b, " of staging; %" PRId64 " scopes are read twice\n", s->twice);
}

static void put_component(struct oz_buf *b, const struct oz_plan *p, enum oz_component_id id,
                          bool tensors)
{
    const struct oz_component *c = &p->pipeline->components[id];
    const struct oz_assignment *a = &c->assignment;
    struct oz_plan_sums sums;
    oz_buf_printf(b, "\n%s (%s)\n", c->name, c->class_name);
    if (a->table != NULL && a->quantized > 0) {
        struct oz_arena memory = c->assign_memory; /* a copy: the line is given back */
        const char *line;
        enum oz_status status = oz_assignment_summary(a, &memory, &line, NULL);
        if (status == OZ_OK) {
            oz_buf_printf(b, "  %s\n", line);
        } else { /* a plan without the line would pass for a whole one */
            b->status = status;
        }
    }
    for (int32_t i = 0; c->lora != NULL && i < c->lora->file_count; i++) {
        const struct oz_lora_file *f = &c->lora->files[i];
        oz_buf_printf(b, "  LoRA %s: merged into %d layers, scale %g\n", f->path, (int)f->layers,
                      f->scale);
    }
    for (int32_t i = 0; i < a->note_count; i++) {
        oz_buf_printf(b, "  %s: %s: %s.\n", a->notes[i].advice ? "note" : "warning",
                      a->notes[i].what, a->notes[i].why);
    }
    oz_buf_printf(b, "  %4s %-*s %-11s %-14s %-16s %-3s%13s%13s  %s\n", "", NAME_WIDTH, "tensors",
                  "role", "shape", "scheme", "k", "on disk", "resident", "decided by");
    for (int32_t i = 0; i < p->count && tensors; i++) {
        const struct oz_plan_layer *l = &p->layers[i];
        if (l->component == id) {
            const struct oz_plan_group alone = {.first = i,
                                                .tensors = 1,
                                                .file_bytes = l->entry->tensor->bytes,
                                                .resident_bytes = l->entry->resident_bytes};
            put_layer(b, l, &alone);
        }
    }
    for (int32_t i = 0; i < p->group_count && !tensors; i++) {
        const struct oz_plan_group *g = &p->groups[i];
        if (p->layers[g->first].component == id) {
            put_layer(b, &p->layers[g->first], g);
        }
    }
    oz_plan_sum_by_scheme(p, id, &sums);
    put_sums(b, "scheme", &sums);
    oz_plan_sum_by_fate(p, id, &sums);
    put_sums(b, "fate  ", &sums);
    put_schedule(b, &c->schedule);
}

static void put_kernels(struct oz_buf *b, const struct oz_plan *p)
{
    oz_buf_puts(b, "\nkernels\n");
    for (int32_t i = 0; i < p->kernel_count; i++) {
        const struct oz_plan_kernel *k = &p->kernels[i];
        oz_buf_puts(b, "  ");
        put_kernel(b, i, -1);
        oz_buf_printf(b, "%s: %d tensors,", k->name, (int)k->tensors);
        put_bytes(b, k->resident_bytes);
        if (k->fallbacks > 0) {
            oz_buf_printf(b, "; %d in fallback steps", (int)k->fallbacks);
        }
        oz_buf_puts(b, "\n");
        for (int32_t d = 0; d < k->decline_count; d++) {
            const struct oz_plan_decline *x = &p->declines[k->first_decline + d];
            oz_buf_printf(b, "       %s declines: %s\n", x->kernel, x->reason);
        }
    }
}

/* ---- memory ---- */

static void put_line(struct oz_buf *b, const char *what, int64_t load, int64_t run)
{
    oz_buf_printf(b, "  %-44s", what);
    for (int i = 0; i < 2; i++) {
        int64_t bytes = i == 0 ? load : run;
        if (bytes < 0) {
            oz_buf_printf(b, "%13s", "-");
        } else {
            put_bytes(b, bytes);
        }
    }
    oz_buf_puts(b, "\n");
}

static void put_memory(struct oz_buf *b, const struct oz_plan *p)
{
    const struct oz_plan_memory *m = &p->memory;
    const struct oz_run_bytes *r = &m->run_parts;
    const struct oz_task *t = &p->tasks[0];
    oz_buf_printf(b, "\nmemory: %d picture%s, the first %dx%d in %d steps%s, at most %d together\n",
                  (int)p->task_count, p->task_count == 1 ? "" : "s", t->width, t->height, t->steps,
                  oz_task_has_cfg(t) ? " with guidance" : "", (int)p->max_batch);
    oz_buf_printf(b, "  %-44s%13s%13s\n", "", "load", "run");
    bool offloads = oz_offload_is_on(p->pipeline);
    put_line(b, offloads ? "weights, on the device at a time" : "weights, in memory", m->resident,
             m->resident);
    put_line(b, "staging (largest of the components')", m->staging, -1);
    put_line(b, "schedules and lists", m->bookkeeping, m->bookkeeping);
    put_line(b, "scratch of a step", -1, (int64_t)r->step);
    if (r->table > 0) {
        put_line(b, "modulation table, which stays", -1, (int64_t)r->table);
        put_line(b, "making it, before what follows", -1, (int64_t)r->making);
    }
    put_line(b, r->table > 0 ? "batch" : "modulation table and batch", -1, (int64_t)r->plan);
    put_line(b, "pictures under way", -1, (int64_t)r->sequences);
    put_line(b, "pictures that are done", -1, (int64_t)r->pictures);
    put_line(b, "peak (components load one after the other)", m->load, m->run);
    put_line(b, "besides: the bare process", m->process, m->process);
    if (offloads) {
        put_line(b, "besides: weights in pinned host memory", m->pinned, m->pinned);
    }
    put_line(b, "besides: weights mapped from the files", m->mapped, m->mapped);
    oz_buf_puts(b, "  The system takes pages of mapped files back when it needs them.\n");
}

static void put_fit(struct oz_buf *b, const struct oz_plan_fit *fit)
{
    oz_buf_puts(b, "\nto fit");
    put_bytes(b, fit->limit);
    oz_buf_puts(b, " (larger peak, bare process and mapped weights) it gives up\n");
    for (int32_t i = 0; i < fit->count; i++) {
        const struct oz_plan_rung *r = &fit->rungs[i];
        oz_buf_printf(b, "  %-66s", r->gives);
        put_bytes(b, r->need);
        bool fits = r->need <= fit->limit;
        oz_buf_puts(b, !fits                ? ": too much\n"
                       : i + 1 < fit->count ? ": fits, with room to give up less\n"
                                            : ": fits\n");
    }
    if (fit->config == NULL) {
        oz_buf_puts(b, "Nothing is to be quantized.\n");
    } else {
        oz_buf_printf(b, "--quantization-config '%s'\n", fit->config);
    }
}

void oz_plan_print(const struct oz_plan *p, const struct oz_plan_fit *fit, bool tensors,
                   struct oz_buf *b)
{
    const struct oz_pipeline *m = p->pipeline;
    oz_buf_printf(b, "%s: %s in %s, on %s (%s), %d thread%s\n", m->name, m->class_name, m->path,
                  p->dev->name, p->dev->tier, (int)p->threads, p->threads == 1 ? "" : "s");
    if (m->dummy) {
        oz_buf_puts(b, "load format dummy: weights are drawn at random, no file of them is read; "
                       "\"on disk\" is what one in bf16 would hold.\n");
    } else if (p->load_format != NULL && p->load_format->meaning != NULL) {
        oz_buf_printf(b, "load format %s: %s.\n", p->load_format->name, p->load_format->meaning);
    }
    if (p->linear_backend != NULL && p->linear_backend->meaning != NULL) {
        oz_buf_printf(b, "linear backend %s: %s.\n", p->linear_backend->name,
                      p->linear_backend->meaning);
    }
    for (int32_t i = 0; p->request != NULL && i < p->request->note_count; i++) {
        oz_buf_printf(b, "warning: %s %s.\n", p->request->notes[i].what, p->request->notes[i].why);
    }
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        put_component(b, p, (enum oz_component_id)i, tensors);
    }
    struct oz_plan_sums sums;
    oz_buf_puts(b, "\nall components\n");
    oz_plan_sum_by_scheme(p, OZ_COMPONENT_COUNT, &sums);
    put_sums(b, "scheme", &sums);
    oz_plan_sum_by_fate(p, OZ_COMPONENT_COUNT, &sums);
    put_sums(b, "fate  ", &sums);
    put_kernels(b, p);
    put_memory(b, p);
    if (fit != NULL) {
        put_fit(b, fit);
    }
}
