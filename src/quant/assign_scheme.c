/* assign_scheme.c: what a scheme becomes for one row under the request's settings. */
#include <string.h>

#include "base/error.h"
#include "quant/assign_work.h"

enum oz_status oz_assign_check_act(struct oz_assign_work *w, enum oz_act_mode act,
                                   const char *layer)
{
    if (act == OZ_ACT_NONE || (w->in->acts.possible & OZ_ACT_BIT(act)) != 0) {
        return OZ_OK;
    }
    return OZ_FAIL(w->err, OZ_ERR_UNSUPPORTED,
                   "%s: the device has no kernel for %s activations; ask for others, or for none "
                   "(\"activation\": null).",
                   layer, oz_act_mode_name(act));
}

enum oz_status oz_scheme_check_shape(const struct oz_scheme *s, const struct oz_layer *layer,
                                     struct oz_error *err)
{
    int64_t cols = layer->shape[layer->rank - 1];
    if (s->codec == NULL || cols % s->codec->col_multiple == 0) {
        return OZ_OK;
    }
    return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                   "%s has %lld input features; %s needs a multiple of %d. Add the layer to "
                   "ignored_layers, or choose another method for it.",
                   layer->module, (long long)cols, s->name, s->codec->col_multiple);
}

/* Activations that are as narrow as the weight. */
static enum oz_act_mode narrow(const struct oz_scheme_info *info)
{
    return strcmp(info->name, "mxfp4") == 0             ? OZ_ACT_MXFP4
           : strcmp(info->name, "mxfp4_dualscale") == 0 ? OZ_ACT_MXFP4_DUALSCALE
                                                        : OZ_ACT_NONE;
}

/* w4a8_fallback_*: W4A4, but for the layers or steps that are listed. `weight` is what it is laid on. */
static enum oz_status apply_fallback(struct oz_assign_work *w, const struct oz_slot *slot,
                                     const struct oz_scheme_info *weight, const char *layer,
                                     bool listed, struct oz_scheme *s)
{
    const struct oz_component_request *q = w->in->request;
    enum oz_act_mode base = narrow(weight);
    if (base == OZ_ACT_NONE) {
        return OZ_FAIL(w->err, OZ_ERR_ARG,
                       "w4a8_fallback_steps and w4a8_fallback_layers raise the precision of "
                       "W4A4; %s takes %s, which has no such activations.",
                       layer, weight->name);
    }
    if (slot->act_set && slot->act != base) {
        return OZ_FAIL(w->err, OZ_ERR_ARG,
                       "w4a8_fallback_steps and w4a8_fallback_layers raise the precision of %s "
                       "activations, but %s are asked for; give one or the other.",
                       oz_act_mode_name(base), oz_act_mode_name(slot->act));
    }
    OZ_TRY(oz_assign_check_act(w, base, layer));
    OZ_TRY(oz_assign_check_act(w, OZ_ACT_MXFP8, layer));
    s->acts[0] = listed ? OZ_ACT_MXFP8 : base;
    if (!listed && q->w4a8_fallback_step_count > 0) {
        s->acts[1] = OZ_ACT_MXFP8;
        s->mode_count = 2;
    }
    return OZ_OK;
}

enum oz_status oz_assign_stored_policy(struct oz_assign_work *w, const struct oz_slot *slot,
                                       int32_t row, bool w4a8)
{
    const struct oz_component_request *q = w->in->request;
    const struct oz_layer *layer = &w->in->table->rows[row];
    struct oz_scheme *s = &w->out->choices[row].scheme;
    const struct oz_scheme_info *info = oz_scheme_find(s->name);
    if (q->exponent_rule != OZ_EXPONENT_DEFAULT) { /* the weight's own is in its codes */
        s->act_exponent_rule = q->act_exponent_rule;
    }
    if (!q->fallback_given) {
        return OZ_OK;
    }
    if (info == NULL) {
        return OZ_FAIL(w->err, OZ_ERR_ARG,
                       "w4a8_fallback_steps and w4a8_fallback_layers raise the precision of W4A4; "
                       "the checkpoint holds %s as %s, which has no such activations.",
                       layer->module, s->name);
    }
    return apply_fallback(w, slot, info, layer->module, w4a8, s);
}

enum oz_status oz_assign_scheme(struct oz_assign_work *w, const struct oz_slot *slot, int32_t row,
                                bool w4a8)
{
    const struct oz_component_request *q = w->in->request;
    const struct oz_layer *layer = &w->in->table->rows[row];
    struct oz_scheme *s = &w->out->choices[row].scheme;
    OZ_TRY(oz_scheme_make(s, slot->weight, &w->in->acts, w->err));
    if (q->fallback_given) {
        OZ_TRY(apply_fallback(w, slot, slot->weight, layer->module, w4a8, s));
    } else if (slot->act_set) {
        if (slot->act == OZ_ACT_FP8_STATIC) {
            return OZ_FAIL(w->err, OZ_ERR_ARG,
                           "%s: static activation scales come from a quantized checkpoint; this "
                           "layer is stored plain.",
                           layer->module);
        }
        OZ_TRY(oz_assign_check_act(w, slot->act, layer->module));
        s->acts[0] = slot->act;
    } else if (s->acts[0] == OZ_ACT_NONE && slot->weight->act != OZ_ACT_NONE && !w->act_noted) {
        w->act_noted = true;
        oz_assign_note(w, slot->weight->name,
                       "is weight-only: the device has no kernel for its activations");
    }
    if (q->exponent_rule != OZ_EXPONENT_DEFAULT) {
        s->exponent_rule = q->exponent_rule;
        s->act_exponent_rule = q->act_exponent_rule;
    }
    s->scope = q->scope;
    return oz_scheme_check_shape(s, layer, w->err);
}
