/* A plan as one JSON document. */
#include <inttypes.h>

#include "dev/linear_backend.h"
#include "pipe/load_format.h"
#include "plan/describe.h"
#include "quant/config.h"

static void member(struct oz_buf *b, const char *name, const char *text)
{
    oz_buf_printf(b, ",\"%s\":", name);
    if (text != NULL) {
        oz_buf_json(b, text);
    } else {
        oz_buf_puts(b, "null");
    }
}

static void number(struct oz_buf *b, const char *name, int64_t value)
{
    oz_buf_printf(b, ",\"%s\":%" PRId64, name, value);
}

/* ---- layers ---- */

static void put_acts(struct oz_buf *b, const struct oz_plan_layer *l)
{
    const struct oz_scheme *s = l->choice != NULL ? &l->choice->scheme : NULL;
    int32_t modes = s != NULL && s->codec != NULL ? s->mode_count : 0;
    oz_buf_puts(b, ",\"activations\":[");
    for (int32_t i = 0; i < modes; i++) {
        oz_buf_puts(b, i > 0 ? "," : "");
        oz_buf_json(b, oz_act_mode_name(s->acts[i]));
    }
    oz_buf_puts(b, "]");
}

static void put_layer(struct oz_buf *b, const struct oz_plan *p, const struct oz_plan_layer *l)
{
    const struct oz_load_entry *e = l->entry;
    oz_buf_puts(b, "{\"name\":");
    oz_buf_json(b, l->layer != NULL ? l->layer->name : e->tensor->name);
    member(b, "tensor", e->tensor->name);
    member(b, "fate", oz_fate_name(e->fate));
    member(b, "role", l->layer != NULL ? oz_role_name(l->layer->role) : NULL);
    const int64_t *shape = l->layer != NULL ? l->layer->shape : e->tensor->shape;
    int32_t rank = l->layer != NULL ? l->layer->rank : e->tensor->rank;
    oz_buf_puts(b, ",\"shape\":[");
    for (int32_t i = 0; i < rank; i++) {
        oz_buf_printf(b, "%s%" PRId64, i > 0 ? "," : "", shape[i]);
    }
    oz_buf_puts(b, "]");
    member(b, "dtype", oz_tensor_format(e->tensor));
    member(b, "scheme", e->scheme);
    member(b, "source", l->choice != NULL ? oz_source_name(l->choice->source) : NULL);
    member(b, "rule", e->rule);
    put_acts(b, l);
    member(b, "kernel", l->kernel >= 0 ? p->kernels[l->kernel].name : NULL);
    if (l->kernel >= 0) {
        number(b, "kernel_index", l->kernel);
    }
    if (l->fallback >= 0) {
        member(b, "fallback_kernel", p->kernels[l->fallback].name);
        number(b, "fallback_kernel_index", l->fallback);
    }
    member(b, "encoder", e->encoder);
    if (e->lora != NULL) {
        oz_buf_puts(b, ",\"lora\":");
        oz_lora_json(e->lora, e->row, b);
    }
    number(b, "file_bytes", e->tensor->bytes);
    number(b, "read_bytes", e->read_bytes);
    number(b, "resident_bytes", e->resident_bytes);
    oz_buf_puts(b, "}");
}

static void put_sums(struct oz_buf *b, const char *name, const struct oz_plan_sums *sums)
{
    oz_buf_printf(b, ",\"%s\":[", name);
    for (int32_t i = 0; i < sums->count; i++) {
        const struct oz_plan_sum *s = &sums->items[i];
        oz_buf_puts(b, i > 0 ? ",{\"name\":" : "{\"name\":");
        oz_buf_json(b, s->name);
        number(b, "tensors", s->tensors);
        number(b, "parameters", s->elements);
        number(b, "file_bytes", s->file_bytes);
        number(b, "read_bytes", s->read_bytes);
        number(b, "resident_bytes", s->resident_bytes);
        number(b, "mapped_bytes", s->mapped_bytes);
        oz_buf_puts(b, "}");
    }
    oz_buf_puts(b, "]");
}

static void put_notes(struct oz_buf *b, const struct oz_note *notes, int32_t count)
{
    oz_buf_puts(b, ",\"notes\":[");
    for (int32_t i = 0; i < count; i++) {
        oz_buf_puts(b, i > 0 ? ",{\"what\":" : "{\"what\":");
        oz_buf_json(b, notes[i].what);
        member(b, "why", notes[i].why);
        oz_buf_printf(b, ",\"advice\":%s}", notes[i].advice ? "true" : "false");
    }
    oz_buf_puts(b, "]");
}

static void put_component(struct oz_buf *b, const struct oz_plan *p, enum oz_component_id id)
{
    const struct oz_component *c = &p->pipeline->components[id];
    const struct oz_assignment *a = &c->assignment;
    struct oz_plan_sums sums;
    bool comma = false;
    oz_buf_printf(b, "{\"name\":\"%s\",\"class\":\"%s\"", c->name, c->class_name);
    number(b, "quantized", a->quantized);
    oz_buf_puts(b, ",\"fallback_steps\":[");
    for (int32_t i = 0; i < a->fallback_step_count; i++) {
        oz_buf_printf(b, "%s%d", i > 0 ? "," : "", (int)a->fallback_steps[i]);
    }
    oz_buf_puts(b, "]");
    put_notes(b, a->notes, a->note_count);
    oz_buf_puts(b, ",\"layers\":[");
    for (int32_t i = 0; i < p->count; i++) {
        if (p->layers[i].component == id) {
            oz_buf_puts(b, comma ? ",\n" : "\n");
            comma = true;
            put_layer(b, p, &p->layers[i]);
        }
    }
    oz_buf_puts(b, "]");
    oz_plan_sum_by_scheme(p, id, &sums);
    put_sums(b, "by_scheme", &sums);
    oz_plan_sum_by_fate(p, id, &sums);
    put_sums(b, "by_fate", &sums);
    oz_buf_puts(b, ",\n\"schedule\":");
    oz_load_schedule_json(&c->schedule, c->match, b);
    oz_buf_puts(b, "}");
}

static void put_kernels(struct oz_buf *b, const struct oz_plan *p)
{
    oz_buf_puts(b, ",\"kernels\":[");
    for (int32_t i = 0; i < p->kernel_count; i++) {
        const struct oz_plan_kernel *k = &p->kernels[i];
        oz_buf_puts(b, i > 0 ? ",\n{\"name\":" : "\n{\"name\":");
        oz_buf_json(b, k->name);
        number(b, "tensors", k->tensors);
        number(b, "resident_bytes", k->resident_bytes);
        number(b, "fallback_tensors", k->fallbacks);
        oz_buf_puts(b, ",\"declined\":[");
        for (int32_t d = 0; d < k->decline_count; d++) {
            const struct oz_plan_decline *x = &p->declines[k->first_decline + d];
            oz_buf_puts(b, d > 0 ? ",{\"name\":" : "{\"name\":");
            oz_buf_json(b, x->kernel);
            member(b, "reason", x->reason);
            oz_buf_puts(b, "}");
        }
        oz_buf_puts(b, "]}");
    }
    oz_buf_puts(b, "]");
}

/* ---- memory ---- */

static void put_memory(struct oz_buf *b, const struct oz_plan *p)
{
    const struct oz_plan_memory *m = &p->memory;
    const struct oz_run_bytes *r = &m->run_parts;
    oz_buf_puts(b, ",\"pictures\":[");
    for (int32_t i = 0; i < p->task_count; i++) {
        const struct oz_task *t = &p->tasks[i];
        oz_buf_printf(b,
                      "%s{\"width\":%d,\"height\":%d,\"num_inference_steps\":%d,"
                      "\"true_cfg_scale\":",
                      i > 0 ? "," : "", t->width, t->height, t->steps);
        oz_buf_number(b, t->scale);
        member(b, "prompt", t->prompt);
        oz_buf_puts(b, "}");
    }
    oz_buf_printf(b, "],\"memory\":{\"process_bytes\":%" PRId64, m->process);
    number(b, "mapped_bytes", m->mapped);
    number(b, "resident_bytes", m->resident);
    number(b, "pinned_bytes", m->pinned);
    number(b, "staging_bytes", m->staging);
    number(b, "bookkeeping_bytes", m->bookkeeping);
    number(b, "step_bytes", (int64_t)r->step);
    number(b, "plan_bytes", (int64_t)r->plan);
    number(b, "sequence_bytes", (int64_t)r->sequences);
    number(b, "picture_bytes", (int64_t)r->pictures);
    number(b, "modulation_table_bytes", (int64_t)r->table);
    number(b, "modulation_making_bytes", (int64_t)r->making);
    number(b, "load_peak_bytes", m->load);
    number(b, "run_peak_bytes", m->run);
    oz_buf_puts(b, "}");
}

static void put_fit(struct oz_buf *b, const struct oz_plan_fit *fit)
{
    oz_buf_printf(b, ",\"fit\":{\"limit_bytes\":%" PRId64 ",\"given_up\":[", fit->limit);
    for (int32_t i = 0; i < fit->count; i++) {
        const struct oz_plan_rung *r = &fit->rungs[i];
        oz_buf_puts(b, i > 0 ? ",\n{\"what\":" : "\n{\"what\":");
        oz_buf_json(b, r->gives);
        number(b, "need_bytes", r->need);
        number(b, "load_peak_bytes", r->load);
        number(b, "run_peak_bytes", r->run);
        oz_buf_puts(b, "}");
    }
    oz_buf_printf(b, "],\"quantization_config\":%s}", fit->config != NULL ? fit->config : "null");
}

void oz_plan_json(const struct oz_plan *p, const struct oz_plan_fit *fit, struct oz_buf *b)
{
    const struct oz_pipeline *m = p->pipeline;
    struct oz_plan_sums sums;
    oz_buf_puts(b, "{\"name\":");
    oz_buf_json(b, m->name);
    member(b, "path", m->path);
    member(b, "pipeline", m->class_name);
    member(b, "device", p->dev->name);
    member(b, "tier", p->dev->tier);
    number(b, "threads", p->threads);
    const struct oz_linear_backend *backend = p->linear_backend;
    member(b, "modulation", oz_modulation_name(p->pipeline->modulation->mode));
    member(b, "offload", oz_offload_name(p->pipeline->offload->mode));
    member(b, "load_format", p->load_format != NULL ? p->load_format->name : "auto");
    if (p->load_format != NULL && p->load_format->meaning != NULL) {
        member(b, "load_format_means", p->load_format->meaning);
    }
    member(b, "linear_backend", backend != NULL ? backend->name : "auto");
    if (backend != NULL && backend->meaning != NULL) {
        member(b, "linear_backend_means", backend->meaning);
    }
    number(b, "max_batch", p->max_batch);
    put_notes(b, p->request != NULL ? p->request->notes : NULL,
              p->request != NULL ? p->request->note_count : 0);
    oz_buf_puts(b, ",\"components\":[");
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        oz_buf_puts(b, i > 0 ? ",\n" : "\n");
        put_component(b, p, (enum oz_component_id)i);
    }
    oz_buf_puts(b, "]");
    oz_plan_sum_by_scheme(p, OZ_COMPONENT_COUNT, &sums);
    put_sums(b, "by_scheme", &sums);
    oz_plan_sum_by_fate(p, OZ_COMPONENT_COUNT, &sums);
    put_sums(b, "by_fate", &sums);
    put_kernels(b, p);
    put_memory(b, p);
    if (fit != NULL) {
        put_fit(b, fit);
    }
    oz_buf_puts(b, "}\n");
}
