/* assign.c: the decision for each row of a layer table. What a scheme becomes under a request's
 * settings is assign_scheme.c's, what is said about patterns assign_notes.c's. */
#include "quant/assign.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/assign_work.h"

/* ---- request against checkpoint ---- */

static bool holds_quantized(const struct oz_assign_input *in)
{
    for (int32_t i = 0; in->stored != NULL && i < in->table->count; i++) {
        if (in->stored[i].codec != NULL) {
            return true;
        }
    }
    return false;
}

static enum oz_status check_plain(const struct oz_component_request *q, const char *component,
                                  struct oz_error *err)
{
    if (q->method != NULL) {
        OZ_TRY(oz_method_check_online(q->method, err));
    }
    if (q->serialized) {
        return OZ_FAIL(
            err, OZ_ERR_ARG,
            "The request says that the checkpoint is quantized already "
            "(is_checkpoint_..._serialized), but the %s is stored plain. Leave it out to "
            "quantize while loading.",
            component);
    }
    if (q->static_acts) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "activation_scheme \"static\" takes its scales from a quantized checkpoint, "
                       "but the %s is stored plain; the scheme is \"dynamic\" then.",
                       component);
    }
    return OZ_OK;
}

/* Online parts of a request may be laid over a quantized checkpoint; a method must be its own. */
static enum oz_status check_checkpoint(struct oz_assign_work *w)
{
    const struct oz_assign_input *in = w->in;
    const struct oz_component_request *q = in->request;
    const char *declared =
        in->checkpoint_method != NULL ? in->checkpoint_method : "quantized, of no declared method";
    if (q->method == NULL) {
        return OZ_OK;
    }
    if (in->checkpoint_method != NULL && oz_method_adopts(q->method, in->checkpoint_method)) {
        w->adopted = true;
        return OZ_OK;
    }
    return OZ_FAIL(w->err, OZ_ERR_ARG,
                   "Quantization method specified in the model config (%s) does not match the "
                   "`quantization` argument (%s). The %s conflicts with checkpoint: leave the "
                   "method out to load what the file holds, or take a plain checkpoint.",
                   declared, q->asked != NULL ? q->asked : q->method->name, in->table->component);
}

static bool has_experts(const struct oz_layer_table *t)
{
    for (int32_t i = 0; i < t->count; i++) {
        if (t->rows[i].kind == OZ_LAYER_EXPERTS) {
            return true;
        }
    }
    return false;
}

static enum oz_status check_request(struct oz_assign_work *w)
{
    const struct oz_assign_input *in = w->in;
    w->quantized_file = in->checkpoint_method != NULL || holds_quantized(in);
    OZ_TRY(w->quantized_file ? check_checkpoint(w)
                             : check_plain(in->request, in->table->component, w->err));
    if (in->request->moe.given && !has_experts(in->table)) {
        return OZ_FAIL(w->err, OZ_ERR_ARG,
                       "quantization_config.moe is given, but the %s has no experts; leave it out.",
                       in->table->component);
    }
    return OZ_OK;
}

/* ---- one row ---- */

static const struct oz_slot *slot_of(const struct oz_layer *row, const struct oz_slot *linear,
                                     const struct oz_slot *moe)
{
    return row->kind == OZ_LAYER_EXPERTS ? moe : linear;
}

static void set(struct oz_choice *c, enum oz_source source, const char *rule)
{
    c->scheme = oz_scheme_as_stored();
    c->source = source;
    c->rule = rule;
}

static enum oz_status fail_prequantized(const struct oz_assign_work *w, const struct oz_layer *row,
                                        const char *by)
{
    return OZ_FAIL(
        w->err, OZ_ERR_ARG,
        "%s is a pre-quantized layer (%s), and %s asks to quantize it again. Narrow the "
        "request, or add the layer to ignore.",
        row->module,
        w->in->checkpoint_method != NULL ? w->in->checkpoint_method : "of no declared method", by);
}

/* A row that the file holds quantized: it stays so; its activations may be asked for. */
static enum oz_status take_stored(struct oz_assign_work *w, int32_t row, int32_t target,
                                  const struct oz_slot *slot, bool ignored, bool w4a8)
{
    const struct oz_layer *layer = &w->in->table->rows[row];
    struct oz_choice *c = &w->out->choices[row];
    if (ignored || w->in->request->target_count > 0) {
        return target >= 0 ? fail_prequantized(w, layer, "a pattern of targets") : OZ_OK;
    }
    if (w->in->request->online && slot->weight_set && slot->weight != NULL && !w->adopted) {
        return fail_prequantized(
            w, layer, layer->kind == OZ_LAYER_EXPERTS ? "the moe slot" : "the linear slot");
    }
    if (w->adopted) {
        OZ_TRY(oz_assign_stored_policy(w, slot, row, w4a8));
    }
    if (!slot->act_set || slot->act == c->scheme.acts[0] || w->in->request->fallback_given) {
        return OZ_OK;
    }
    if ((oz_scheme_allowed_acts(c->scheme.name) & OZ_ACT_BIT(slot->act)) == 0) {
        return OZ_FAIL(w->err, OZ_ERR_ARG,
                       "The checkpoint holds %s as %s with %s activations, which cannot be %s; "
                       "remove the override or align it with the checkpoint.",
                       layer->module, c->scheme.name, oz_act_mode_name(c->scheme.acts[0]),
                       oz_act_mode_name(slot->act));
    }
    OZ_TRY(oz_assign_check_act(w, slot->act, layer->module));
    c->scheme.acts[0] = slot->act;
    w->overridden++;
    return OZ_OK;
}

static enum oz_status take_target(struct oz_assign_work *w, int32_t row, int32_t target)
{
    const struct oz_layer *layer = &w->in->table->rows[row];
    const struct oz_target *t = &w->in->request->targets[target];
    const struct oz_slot *slot = slot_of(layer, &t->linear, &t->moe);
    struct oz_choice *c = &w->out->choices[row];
    if (!slot->weight_set) {
        return OZ_FAIL(w->err, OZ_ERR_ARG,
                       "targets pattern %.200s = %s does not define a QuantSpec for %s layers "
                       "(matched at %s).",
                       t->pattern, t->name, layer->kind == OZ_LAYER_EXPERTS ? "expert" : "linear",
                       layer->module);
    }
    set(c, OZ_SOURCE_TARGETS, w->targets.items[target].text);
    return slot->weight != NULL ? oz_assign_scheme(w, slot, row, false) : OZ_OK;
}

static enum oz_status take_slot(struct oz_assign_work *w, int32_t row, bool w4a8)
{
    const struct oz_component_request *q = w->in->request;
    const struct oz_layer *layer = &w->in->table->rows[row];
    struct oz_choice *c = &w->out->choices[row];
    const struct oz_slot *slot = slot_of(layer, &q->linear, &q->moe);
    enum oz_source source = !slot->given                      ? OZ_SOURCE_METHOD
                            : layer->kind == OZ_LAYER_EXPERTS ? OZ_SOURCE_MOE
                                                              : OZ_SOURCE_LINEAR;
    if (!slot->weight_set || (w->adopted && !slot->given)) {
        set(c, OZ_SOURCE_STORED, q->target_count > 0 ? "no pattern of targets" : "nothing asks");
        return OZ_OK;
    }
    if (slot->weight == NULL) {
        set(c, source, "null");
        return OZ_OK;
    }
    if (oz_keep_has(w->in->keep, layer->role)) {
        set(c, OZ_SOURCE_KEEP, oz_assign_keep_rule(w, layer->role));
        return c->rule != NULL ? OZ_OK : OZ_FAIL_NOMEM(w->err, "the assignment");
    }
    if (layer->block_number > 0 && layer->block_number <= q->num_bf16_fallback_layers) {
        set(c, OZ_SOURCE_FALLBACK, w->fallback_rule);
        return OZ_OK;
    }
    bool experts = layer->kind == OZ_LAYER_EXPERTS;
    const char *name = slot->given ? w->slot_names[experts] : w->asked;
    set(c, source, name != NULL ? name : slot->weight->name);
    return oz_assign_scheme(w, slot, row, w4a8);
}

/* ---- one unit ---- */

static enum oz_status take_row(struct oz_assign_work *w, int32_t unit, int32_t row, int32_t ignore,
                               int32_t target)
{
    const struct oz_component_request *q = w->in->request;
    const struct oz_layer *layer = &w->in->table->rows[row];
    int32_t ignored;
    int32_t w4a8;
    OZ_TRY(oz_rules_part(&w->ignored, &w->units, unit, row, &ignored, w->err));
    OZ_TRY(oz_rules_part(&w->w4a8, &w->units, unit, row, &w4a8, w->err));
    if (w->out->choices[row].source == OZ_SOURCE_CHECKPOINT) {
        return take_stored(w, row, target, slot_of(layer, &q->linear, &q->moe),
                           ignore >= 0 || ignored >= 0, w4a8 >= 0);
    }
    if (w->adopted && !q->online) {
        return OZ_OK; /* what the checkpoint left plain stays plain */
    }
    if (target >= 0 && ignored >= 0) {
        return OZ_FAIL(
            w->err, OZ_ERR_ARG,
            "Layer %s matches both %s (%.200s) and quantization_config.targets (%.200s); "
            "a layer may not be referenced by both.",
            layer->module, w->ignored.what, w->ignored.items[ignored].text,
            w->targets.items[target].text);
    }
    if (ignore >= 0 || ignored >= 0) {
        set(&w->out->choices[row], OZ_SOURCE_IGNORE,
            ignore >= 0 ? w->ignore.items[ignore].text : w->ignored.items[ignored].text);
        return OZ_OK;
    }
    return target >= 0 ? take_target(w, row, target) : take_slot(w, row, w4a8 >= 0);
}

static enum oz_status take_unit(struct oz_assign_work *w, int32_t index)
{
    const struct oz_rule_unit *unit = &w->units.units[index];
    int32_t ignore;
    int32_t target;
    OZ_TRY(oz_rules_ignored(&w->ignore, &w->units, index, &ignore, w->err));
    OZ_TRY(oz_rules_target(&w->targets, w->target_names, &w->units, index, &target, w->err));
    if (ignore >= 0 && target >= 0) {
        return OZ_FAIL(w->err, OZ_ERR_ARG,
                       "Layer %s matches both quantization_config.ignore (%.200s) and "
                       "quantization_config.targets (%.200s); a layer may not be referenced by "
                       "both.",
                       unit->name, w->ignore.items[ignore].text, w->targets.items[target].text);
    }
    if (unit->kind == OZ_LAYER_EMBED) {
        int32_t rule;
        OZ_TRY(oz_rules_part(&w->ignored, &w->units, index, w->units.order[unit->first], &rule,
                             w->err));
        return target >= 0 ? oz_assign_fail_kind(w, target, unit->name, unit->kind) : OZ_OK;
    }
    for (int32_t i = 0; i < unit->count; i++) {
        OZ_TRY(take_row(w, index, w->units.order[unit->first + i], ignore, target));
    }
    return OZ_OK;
}

/* ---- the whole ---- */

static enum oz_status begin(struct oz_assign_work *w)
{
    const struct oz_assign_input *in = w->in;
    void *choices = NULL;
    if (oz_arena_push(w->arena, (size_t)in->table->count * sizeof *w->out->choices, &choices) !=
        OZ_OK) {
        return OZ_FAIL_NOMEM(w->err, "the assignment");
    }
    w->out->choices = choices;
    for (int32_t i = 0; i < in->table->count; i++) {
        enum oz_layer_kind kind = in->table->rows[i].kind;
        struct oz_choice *c = &w->out->choices[i];
        set(c, OZ_SOURCE_STORED,
            kind == OZ_LAYER_LINEAR || kind == OZ_LAYER_EXPERTS ? "nothing asks"
                                                                : "not a linear layer");
        if (in->stored != NULL && in->stored[i].codec != NULL) {
            c->scheme = in->stored[i];
            c->source = OZ_SOURCE_CHECKPOINT;
            c->rule = in->checkpoint_method != NULL ? in->checkpoint_method : "the file";
        }
    }
    return OZ_OK;
}

/* Patterns and names are copied: the assignment outlives the request. */
static const char *copy(struct oz_assign_work *w, const char *text)
{
    return text != NULL ? oz_arena_string(w->arena, text) : NULL;
}

static enum oz_status copy_strings(struct oz_assign_work *w, struct oz_strings *s)
{
    void *memory = NULL;
    if (oz_arena_push(w->arena, (size_t)s->count * sizeof(const char *), &memory) != OZ_OK) {
        return OZ_FAIL_NOMEM(w->err, "the rules of an assignment");
    }
    const char **items = memory;
    for (int32_t i = 0; i < s->count; i++) {
        items[i] = copy(w, s->items[i]);
        if (items[i] == NULL) {
            return OZ_FAIL_NOMEM(w->err, "the rules of an assignment");
        }
    }
    s->items = items;
    return OZ_OK;
}

static enum oz_status begin_rule_set(struct oz_assign_work *w, struct oz_rules *rules,
                                     const char *what, enum oz_rule_dialect dialect,
                                     const struct oz_strings *patterns)
{
    struct oz_strings own = *patterns;
    OZ_TRY(copy_strings(w, &own));
    return oz_rules_init(rules, what, dialect, &own, w->in->table->component, w->arena, w->err);
}

static enum oz_status begin_rules(struct oz_assign_work *w)
{
    const struct oz_component_request *q = w->in->request;
    void *patterns = NULL;
    void *names = NULL;
    size_t bytes = (size_t)q->target_count * sizeof(const char *);
    if (oz_arena_push(w->arena, bytes, &patterns) != OZ_OK ||
        oz_arena_push(w->arena, bytes, &names) != OZ_OK) {
        return OZ_FAIL_NOMEM(w->err, "targets");
    }
    const char **items = patterns;
    w->target_names = names;
    for (int32_t i = 0; i < q->target_count; i++) {
        items[i] = q->targets[i].pattern;
        w->target_names[i] = q->targets[i].name;
    }
    const struct oz_strings targets = {items, q->target_count};
    OZ_TRY(begin_rule_set(w, &w->ignore, "ignore", OZ_RULES_ONLINE, &q->ignore));
    OZ_TRY(begin_rule_set(w, &w->targets, "targets", OZ_RULES_ONLINE, &targets));
    OZ_TRY(begin_rule_set(
        w, &w->ignored, q->ignored_key != NULL ? q->ignored_key : "ignored_layers",
        q->ignored_substring ? OZ_RULES_SUBSTRING : OZ_RULES_SEGMENTS, &q->ignored_layers));
    OZ_TRY(begin_rule_set(w, &w->w4a8, "w4a8_fallback_layers", OZ_RULES_EXACT,
                          &q->w4a8_fallback_layers));
    w->asked = copy(w, q->asked);
    w->slot_names[0] = copy(w, q->linear.name);
    w->slot_names[1] = copy(w, q->moe.name);
    w->fallback_rule =
        oz_assign_printf(w, "num_bf16_fallback_layers %d", q->num_bf16_fallback_layers);
    return w->fallback_rule != NULL ? OZ_OK : OZ_FAIL_NOMEM(w->err, "the assignment");
}

static enum oz_status decide(struct oz_assign_work *w)
{
    struct oz_assignment *out = w->out;
    OZ_TRY(check_request(w));
    OZ_TRY(begin_rules(w));
    OZ_TRY(oz_rule_units_build(&w->units, w->in->table, w->arena, w->err));
    OZ_TRY(oz_assign_begin_notes(w));
    for (int32_t i = 0; i < w->units.count; i++) {
        OZ_TRY(take_unit(w, i));
    }
    for (int32_t i = 0; i < w->in->table->count; i++) {
        out->quantized +=
            out->choices[i].scheme.codec != NULL && out->choices[i].source != OZ_SOURCE_CHECKPOINT;
    }
    OZ_TRY(oz_assign_check_patterns(w));
    OZ_TRY(oz_assign_check_effect(w));
    return oz_assign_end_notes(w);
}

enum oz_status oz_assign(struct oz_assignment *out, const struct oz_assign_input *in,
                         struct oz_arena *arena, struct oz_error *err)
{
    struct oz_assign_work w = {.in = in, .out = out, .arena = arena, .err = err};
    *out = (struct oz_assignment){.table = in->table};
    enum oz_status status = begin(&w);
    if (status == OZ_OK && in->request != NULL && !in->request->leave) {
        status = decide(&w);
    }
    oz_rules_deinit(&w.ignore);
    oz_rules_deinit(&w.targets);
    oz_rules_deinit(&w.ignored);
    oz_rules_deinit(&w.w4a8);
    return status;
}
