/* assign_notes.c: patterns that matched nothing, requests without effect, advice; the room that an
 * assignment takes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/assign_work.h"

enum { MAX_ADVICE = 64, SPARE_NOTES = 8 };

const char *oz_assign_printf(struct oz_assign_work *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = oz_arena_vprintf(w->arena, format, args);
    va_end(args);
    return text;
}

const char *oz_assign_keep_rule(struct oz_assign_work *w, enum oz_role role)
{
    if (w->keep_rules[role] == NULL) {
        w->keep_rules[role] =
            oz_assign_printf(w, "%s: %s", oz_keep_name(w->in->keep), oz_role_name(role));
    }
    return w->keep_rules[role];
}

static int32_t pattern_count(const struct oz_component_request *q)
{
    return q->ignore.count + q->target_count + q->ignored_layers.count +
           q->w4a8_fallback_layers.count;
}

enum oz_status oz_assign_begin_notes(struct oz_assign_work *w)
{
    void *notes = NULL;
    w->out->note_capacity = 2 * pattern_count(w->in->request) + MAX_ADVICE + SPARE_NOTES;
    if (oz_arena_push(w->arena, (size_t)w->out->note_capacity * sizeof *w->out->notes, &notes) !=
        OZ_OK) {
        return OZ_FAIL_NOMEM(w->err, "the notes of an assignment");
    }
    w->out->notes = notes;
    return OZ_OK;
}

void oz_assign_note(struct oz_assign_work *w, const char *what, const char *why)
{
    if (w->out->note_count < w->out->note_capacity) {
        w->out->notes[w->out->note_count++] = (struct oz_note){what, why};
    }
}

/* ---- patterns ---- */

static const char *kind_name(enum oz_layer_kind kind)
{
    switch (kind) {
    case OZ_LAYER_EMBED: return "an embedding";
    case OZ_LAYER_CONV: return "a convolution";
    case OZ_LAYER_NORM: return "a norm";
    case OZ_LAYER_VECTOR: return "a vector";
    default: return "this kind of layer";
    }
}

enum oz_status oz_assign_fail_kind(const struct oz_assign_work *w, int32_t target, const char *name,
                                   enum oz_layer_kind kind)
{
    return OZ_FAIL(w->err, OZ_ERR_ARG,
                   "Layer %s was matched by quantization_config.targets (%.200s), but online "
                   "quantization is not supported for %s; narrow the pattern to linear layers and "
                   "experts.",
                   name, w->targets.items[target].text, kind_name(kind));
}

/* Marks rules that match rows outside of the units: norms, convolutions, biases. */
static enum oz_status match_others(struct oz_assign_work *w, struct oz_rules *rules)
{
    bool targets = rules == &w->targets;
    for (int32_t i = 0; i < w->in->table->count; i++) {
        const struct oz_layer *row = &w->in->table->rows[i];
        for (int32_t k = 0; k < rules->count; k++) {
            struct oz_rules one = *rules;
            int32_t first;
            int32_t count;
            /* a part of experts has no name of its own: such a pattern means nothing */
            if (rules->items[k].hit || (row->kind == OZ_LAYER_EXPERTS && row->fused != NULL)) {
                continue;
            }
            one.items = &rules->items[k];
            one.count = 1;
            OZ_TRY(oz_rules_find(&one, row->module, &first, &count, w->err));
            if (count > 0 && targets) {
                return oz_assign_fail_kind(w, k, row->module, row->kind);
            }
        }
    }
    return OZ_OK;
}

static enum oz_status report_unmatched(struct oz_assign_work *w, const struct oz_rules *rules,
                                       const struct oz_rule *rule)
{
    struct oz_buf b;
    const char *component = w->in->table->component;
    if (w->in->allow_unmatched || w->in->request->by_default) {
        const char *what = oz_assign_printf(w, "%s entry \"%s\"", rules->what, rule->text);
        const char *why = oz_assign_printf(w, "matches no layer of the %s", component);
        if (what == NULL || why == NULL) {
            return OZ_FAIL_NOMEM(w->err, "the notes of an assignment");
        }
        oz_assign_note(w, what, why);
        return OZ_OK;
    }
    oz_buf_init(&b, OZ_ERROR_MESSAGE_BYTES);
    oz_rules_suggest(&b, rule->text, w->in->table);
    (void)OZ_FAIL(w->err, OZ_ERR_ARG,
                  "%s entry \"%.200s\" matches no layer of the %s%s To go on all the same, allow "
                  "unmatched patterns.",
                  rules->what, rule->text, component, oz_buf_text(&b));
    oz_buf_deinit(&b);
    return OZ_ERR_ARG;
}

/* w4a8_fallback_layers that are not quantized at all have no effect. */
static void note_idle_layers(struct oz_assign_work *w)
{
    for (int32_t i = 0; i < w->in->table->count && w->w4a8.count > 0; i++) {
        const struct oz_layer *row = &w->in->table->rows[i];
        const struct oz_choice *c = &w->out->choices[i];
        for (int32_t k = 0; k < w->w4a8.count && row->kind == OZ_LAYER_LINEAR; k++) {
            if (c->scheme.codec == NULL && strcmp(w->w4a8.items[k].text, row->module) == 0) {
                const char *why =
                    oz_assign_printf(w, "has no effect on %s, which stays as stored (%s: %s)",
                                     row->module, oz_source_name(c->source), c->rule);
                oz_assign_note(w, "w4a8_fallback_layers", why != NULL ? why : "has no effect");
            }
        }
    }
}

enum oz_status oz_assign_check_patterns(struct oz_assign_work *w)
{
    struct oz_rules *all[] = {&w->ignore, &w->targets, &w->ignored, &w->w4a8};
    if (w->adopted && !w->in->request->online && w->ignored.count > 0) {
        oz_assign_note(w, w->ignored.what,
                       "has no effect: the checkpoint says which of its layers are quantized");
        return OZ_OK;
    }
    for (int i = 0; i < 4; i++) {
        if (all[i] != &w->w4a8) {
            OZ_TRY(match_others(w, all[i]));
        }
        for (int32_t k = 0; k < all[i]->count; k++) {
            if (!all[i]->items[k].hit) {
                OZ_TRY(report_unmatched(w, all[i], &all[i]->items[k]));
            }
        }
    }
    note_idle_layers(w);
    return OZ_OK;
}

/* ---- effect ---- */

enum oz_status oz_assign_check_effect(struct oz_assign_work *w)
{
    int32_t by_source[OZ_SOURCE_COUNT] = {0};
    int32_t layers = 0;
    struct oz_buf b;
    const struct oz_component_request *q = w->in->request;
    if (w->out->quantized > 0 || w->overridden > 0 || w->adopted) {
        return OZ_OK;
    }
    for (int32_t i = 0; i < w->in->table->count; i++) {
        enum oz_layer_kind kind = w->in->table->rows[i].kind;
        if (kind == OZ_LAYER_LINEAR || kind == OZ_LAYER_EXPERTS) {
            by_source[w->out->choices[i].source]++;
            layers++;
        }
    }
    if (q->by_default) {
        oz_assign_note(w, "default", "quantizes nothing in this component");
        return OZ_OK;
    }
    oz_buf_init(&b, 1024);
    for (int i = 0; i < OZ_SOURCE_COUNT; i++) {
        if (by_source[i] > 0) {
            oz_buf_printf(&b, "%s%d by %s", b.bytes > 0 ? ", " : "", by_source[i],
                          oz_source_name((enum oz_source)i));
        }
    }
    bool experts_only = q->linear.weight == NULL && q->moe.weight != NULL;
    (void)OZ_FAIL(w->err, OZ_ERR_ARG,
                  "The request (%s) quantizes nothing: of the %d linear layers of the %s all stay "
                  "as stored%s%s%s%s.",
                  q->asked != NULL ? q->asked : "quantization_config", layers,
                  w->in->table->component, layers > 0 ? " (" : "", oz_buf_text(&b),
                  layers > 0 ? ")" : "",
                  experts_only ? "; it is for experts, which this model does not have" : "");
    oz_buf_deinit(&b);
    return OZ_ERR_ARG;
}

/* ---- advice, steps ---- */

static void give_advice(struct oz_assign_work *w, const struct oz_advice *advice)
{
    size_t prefix = advice->schemes != NULL ? strlen(advice->schemes) : 0;
    for (int32_t i = 0; i < w->in->table->count; i++) {
        const struct oz_choice *c = &w->out->choices[i];
        if (c->scheme.codec != NULL && c->source != OZ_SOURCE_CHECKPOINT &&
            (prefix == 0 || strncmp(c->scheme.name, advice->schemes, prefix) == 0) &&
            (advice->layers == NULL ||
             oz_segments_match(advice->layers, w->in->table->rows[i].module))) {
            oz_assign_note(w, advice->layers != NULL ? advice->layers : c->scheme.name,
                           advice->text);
            return;
        }
    }
}

enum oz_status oz_assign_end_notes(struct oz_assign_work *w)
{
    const struct oz_component_request *q = w->in->request;
    void *steps = NULL;
    for (int32_t i = 0; i < w->in->advice_count && i < MAX_ADVICE; i++) {
        give_advice(w, &w->in->advice[i]);
    }
    size_t bytes = (size_t)q->w4a8_fallback_step_count * sizeof *q->w4a8_fallback_steps;
    if (bytes == 0) {
        return OZ_OK;
    }
    if (oz_arena_push(w->arena, bytes, &steps) != OZ_OK) {
        return OZ_FAIL_NOMEM(w->err, "w4a8_fallback_steps");
    }
    memcpy(steps, q->w4a8_fallback_steps, bytes);
    w->out->fallback_steps = steps;
    w->out->fallback_step_count = q->w4a8_fallback_step_count;
    return OZ_OK;
}

/* ---- room ---- */

static size_t strings_bytes(const struct oz_strings *s)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < s->count; i++) {
        bytes += strlen(s->items[i]);
    }
    return bytes;
}

size_t oz_assign_bytes(const struct oz_layer_table *table, const struct oz_component_request *q)
{
    size_t rows = (size_t)table->count;
    /* choices, units, and the summary: at most an entry of a few names for each row */
    size_t bytes =
        rows * (sizeof(struct oz_choice) + sizeof(struct oz_rule_unit) + 512) + (1U << 16);
    if (q != NULL) {
        size_t patterns = (size_t)pattern_count(q);
        bytes += patterns * (sizeof(struct oz_rule) + 2 * sizeof(struct oz_note) + 2048) +
                 strings_bytes(&q->ignore) + strings_bytes(&q->ignored_layers) +
                 strings_bytes(&q->w4a8_fallback_layers) +
                 (size_t)q->w4a8_fallback_step_count * sizeof *q->w4a8_fallback_steps;
        for (int32_t i = 0; i < q->target_count; i++) {
            bytes += strlen(q->targets[i].pattern);
        }
    }
    return bytes;
}
