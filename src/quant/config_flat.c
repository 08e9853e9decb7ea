/* config_flat.c: flat configs: a method and its parameters (vllm-omni 1.2 to 1.4). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "quant/config_read.h"

/* What has been read of the parameters that depend on one another. */
struct flat {
    struct oz_component_request *c;
    const char *where;            /* "quantization_config" */
    struct oz_strings ignored[2]; /* ignored_layers, modules_to_not_convert */
    bool fp4, nested, alg_given, rule_given;
};

static enum oz_status fail_type(struct oz_config_reader *r, const struct flat *f,
                                const struct oz_method_param_info *p, const char *want,
                                const struct oz_json *v)
{
    return OZ_FAIL(r->err, OZ_ERR_ARG, "%s.%s must be %s, not %s.", f->where, p->name, want,
                   oz_json_type_name(v));
}

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a;
    int32_t y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum oz_status read_steps(struct oz_config_reader *r, const struct flat *f,
                                 const struct oz_method_param_info *p, const struct oz_json *v)
{
    void *items = NULL;
    size_t count = oz_json_count(v);
    if (oz_json_type(v) != OZ_JSON_ARRAY || count > OZ_CONFIG_MAX_ITEMS) {
        return fail_type(r, f, p, "a list of non-negative integers (at most 4096)", v);
    }
    if (oz_arena_push(r->arena, count * sizeof(int32_t), &items) != OZ_OK) {
        return OZ_FAIL_NOMEM(r->err, p->name);
    }
    int32_t *steps = items;
    int32_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct oz_json *entry = oz_json_at(v, i);
        int64_t step = oz_json_integer(entry, -1);
        if (oz_json_type(entry) != OZ_JSON_INTEGER || step < 0 || step > INT32_MAX) {
            return OZ_FAIL(
                r->err, OZ_ERR_ARG, "%s.%s: entry %zu is no non-negative integer but %s.", f->where,
                p->name, i,
                oz_json_type(entry) == OZ_JSON_INTEGER ? "out of range" : oz_json_type_name(entry));
        }
        steps[i] = (int32_t)step;
    }
    qsort(steps, count, sizeof *steps, by_number);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || steps[kept - 1] != steps[i]) {
            steps[kept++] = steps[i];
        }
    }
    f->c->w4a8_fallback_steps = steps;
    f->c->w4a8_fallback_step_count = kept;
    return OZ_OK;
}

static enum oz_status read_names(struct oz_config_reader *r, const struct flat *f,
                                 const char *where, const struct oz_json *v)
{
    struct oz_strings list;
    int32_t kept = 0;
    OZ_TRY(oz_config_strings(r, v, where, false, &list));
    const char **items = (const char **)(uintptr_t)list.items; /* ours: they were copied there */
    if (list.count > 0) {
        qsort((void *)items, (size_t)list.count, sizeof *items, by_text);
    }
    for (int32_t i = 0; i < list.count; i++) {
        if (kept == 0 || strcmp(items[kept - 1], items[i]) != 0) {
            items[kept++] = items[i];
        }
    }
    f->c->w4a8_fallback_layers = (struct oz_strings){items, kept};
    return OZ_OK;
}

/* ---- values by type ---- */

static enum oz_status read_choice(struct oz_config_reader *r, const struct flat *f,
                                  const struct oz_method_param_info *p, const struct oz_json *v,
                                  const char **out)
{
    const char *names[8];
    char words[8][32];
    char where[300];
    size_t count = 0;
    *out = oz_json_string(v, NULL);
    if (*out == NULL) {
        return fail_type(r, f, p, "a string", v);
    }
    for (const char *at = p->values; *at != '\0' && count < 8;) {
        size_t n = strcspn(at, ",");
        (void)snprintf(words[count], sizeof words[count], "%.*s", (int)n, at);
        names[count] = words[count];
        if (strcmp(words[count], *out) == 0) {
            return OZ_OK;
        }
        count++;
        at += n;
        at += strspn(at, ", ");
    }
    bool scheme = strcmp(p->name, "activation_scheme") == 0;
    (void)snprintf(where, sizeof where, "%.200s.%s: %s", f->where, p->name,
                   scheme ? "Unsupported activation scheme" : "there is no");
    return oz_config_fail_choice(r, where, *out, names, count);
}

static enum oz_status read_bool(struct oz_config_reader *r, const struct flat *f,
                                const struct oz_method_param_info *p, const struct oz_json *v,
                                bool *out)
{
    if (oz_json_type(v) != OZ_JSON_BOOL) {
        return fail_type(r, f, p, "a boolean", v);
    }
    *out = oz_json_bool(v, false);
    return OZ_OK;
}

static enum oz_status read_count(struct oz_config_reader *r, const struct flat *f,
                                 const struct oz_method_param_info *p, const struct oz_json *v)
{
    int64_t value = oz_json_integer(v, -1);
    if (oz_json_type(v) != OZ_JSON_INTEGER) {
        return fail_type(r, f, p, "an integer", v);
    }
    if (value < 0 || value > INT32_MAX) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "%s.%s is %lld; it must be 0 or more.", f->where,
                       p->name, (long long)value);
    }
    f->c->num_bf16_fallback_layers = (int32_t)value;
    return OZ_OK;
}

static enum oz_status read_scale_alg(struct oz_config_reader *r, struct flat *f,
                                     const struct oz_method_param_info *p, const struct oz_json *v)
{
    int64_t alg = oz_json_integer(v, -1);
    if (oz_json_type(v) != OZ_JSON_INTEGER) {
        return fail_type(r, f, p, "the integer 0 or 2", v);
    }
    if (alg != 0 && alg != 2) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s.%s is %lld; it must be 0 (the rule floor) or 2 (the rule alg2).",
                       f->where, p->name, (long long)alg);
    }
    f->alg_given = true;
    f->c->exponent_rule = alg == 0 ? OZ_EXPONENT_FLOOR : OZ_EXPONENT_ALG2;
    f->c->act_exponent_rule = f->c->exponent_rule;
    return OZ_OK;
}

static enum oz_status read_activation(struct oz_config_reader *r, const struct flat *f,
                                      const struct oz_method_param_info *p, const struct oz_json *v)
{
    char where[300];
    enum oz_act_mode act = OZ_ACT_NONE;
    const char *name = oz_json_string(v, NULL);
    struct oz_slot *slots[] = {&f->c->linear, &f->c->moe};
    if (name == NULL && oz_json_type(v) != OZ_JSON_NULL) {
        return fail_type(r, f, p, "a string or null", v);
    }
    (void)snprintf(where, sizeof where, "%.200s.activation", f->where);
    if (name != NULL) {
        OZ_TRY(oz_config_activation(r, name, where, &act));
    }
    for (int i = 0; i < 2; i++) {
        if (slots[i]->weight_set) {
            slots[i]->act_set = true;
            slots[i]->act = act;
            OZ_TRY(oz_config_check_slot(r, slots[i], where));
        }
    }
    return OZ_OK;
}

static enum oz_status take_choice(struct oz_config_reader *r, struct flat *f,
                                  enum oz_method_param id, const struct oz_json *v)
{
    static const char *const rules[] = {"default", "ceil", "even", "floor", "alg2"};
    const char *word;
    OZ_TRY(read_choice(r, f, oz_method_param_at(id), v, &word));
    switch (id) {
    case OZ_MP_ACT_SCHEME:
    case OZ_MP_ACT_DYNAMIC: f->c->static_acts = strcmp(word, "static") == 0; break;
    case OZ_MP_IGNORED_MATCH: f->c->ignored_substring = strcmp(word, "substring") == 0; break;
    case OZ_MP_QUANT_TYPE: f->fp4 = strcmp(word, "fp4") == 0; break;
    case OZ_MP_SCALE_SCOPE:
        f->c->scope = strcmp(word, "fused") == 0 ? OZ_SCOPE_FUSED : OZ_SCOPE_OWN;
        break;
    case OZ_MP_RULE:
        f->rule_given = true;
        for (int i = OZ_EXPONENT_CEIL; i <= OZ_EXPONENT_ALG2; i++) {
            if (strcmp(rules[i], word) == 0) {
                f->c->exponent_rule = (enum oz_exponent_rule)i;
            }
        }
        break;
    default: break;
    }
    return OZ_OK;
}

static enum oz_status take_bool(struct oz_config_reader *r, struct flat *f, enum oz_method_param id,
                                const struct oz_json *v)
{
    bool value;
    OZ_TRY(read_bool(r, f, oz_method_param_at(id), v, &value));
    switch (id) {
    case OZ_MP_SMOOTH: f->c->smooth_required = value; break;
    case OZ_MP_NESTED: f->nested = value; break;
    default: f->c->serialized = f->c->serialized || value; break;
    }
    return OZ_OK;
}

static enum oz_status take(struct oz_config_reader *r, struct flat *f, enum oz_method_param id,
                           const struct oz_json *v)
{
    const struct oz_method_param_info *p = oz_method_param_at(id);
    char where[300];
    (void)snprintf(where, sizeof where, "%.200s.%s", f->where, p->name);
    if (id == OZ_MP_ACTIVATION) {
        return read_activation(r, f, p, v);
    }
    bool list = p->type == OZ_MPT_STEPS || p->type == OZ_MPT_NAMES || p->type == OZ_MPT_PATTERNS;
    if (oz_json_type(v) == OZ_JSON_NULL && (list || p->type == OZ_MPT_REFUSED)) {
        return OZ_OK;
    }
    switch (p->type) {
    case OZ_MPT_BOOL: return take_bool(r, f, id, v);
    case OZ_MPT_COUNT: return read_count(r, f, p, v);
    case OZ_MPT_CHOICE: return take_choice(r, f, id, v);
    case OZ_MPT_NUMBER: return read_scale_alg(r, f, p, v);
    case OZ_MPT_STEPS: return read_steps(r, f, p, v);
    case OZ_MPT_NAMES: return read_names(r, f, where, v);
    case OZ_MPT_PATTERNS:
        return oz_config_strings(r, v, where, true, &f->ignored[id == OZ_MP_NOT_CONVERT]);
    case OZ_MPT_REFUSED:
    default: return OZ_FAIL(r->err, OZ_ERR_ARG, "%s is not taken: %s.", where, p->values);
    }
}

/* ---- what depends on several ---- */

static bool takes_rule(const struct oz_scheme_info *s, enum oz_exponent_rule rule)
{
    bool four_bits = s->rule == OZ_EXPONENT_EVEN; /* alg2's boundary is one of e2m1 */
    return s->rule != OZ_EXPONENT_DEFAULT && (rule != OZ_EXPONENT_ALG2 || four_bits);
}

static enum oz_status check_rule(struct oz_config_reader *r, const struct flat *f)
{
    const struct oz_slot *slots[] = {&f->c->linear, &f->c->moe};
    if (f->alg_given && f->rule_given) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s: mxfp4_scale_alg and exponent_rule name the same thing; give one.",
                       f->where);
    }
    for (int i = 0; i < 2 && f->c->exponent_rule != OZ_EXPONENT_DEFAULT; i++) {
        const struct oz_scheme_info *s = slots[i]->weight;
        if (s != NULL && !takes_rule(s, f->c->exponent_rule)) {
            return OZ_FAIL(r->err, OZ_ERR_ARG, "%s: the scheme %s has no such exponent rule%s.",
                           f->where, s->name,
                           s->rule == OZ_EXPONENT_DEFAULT ? ": its scales are no powers of two"
                                                          : "; ceil, even and floor are its rules");
        }
    }
    return OZ_OK;
}

/* Schemes whose scale spans a whole linear. */
static bool spans_tensor(const struct oz_slot *slot)
{
    return slot->weight != NULL && (strcmp(slot->weight->name, "fp8_per_tensor") == 0 ||
                                    strcmp(slot->weight->name, "nvfp4") == 0);
}

static enum oz_status finish(struct oz_config_reader *r, struct flat *f)
{
    struct oz_component_request *c = f->c;
    if (f->ignored[0].count > 0 && f->ignored[1].count > 0) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s: ignored_layers and modules_to_not_convert are two names of one list; "
                       "give one.",
                       f->where);
    }
    bool second = f->ignored[0].count == 0 && f->ignored[1].count > 0;
    c->ignored_layers = f->ignored[second];
    c->ignored_key = second ? "modules_to_not_convert" : "ignored_layers";
    c->fallback_given = c->w4a8_fallback_step_count > 0 || c->w4a8_fallback_layers.count > 0;
    if (c->method != NULL && strcmp(c->method->name, "bitsandbytes") == 0) {
        c->linear.weight =
            oz_scheme_find(f->fp4 ? (f->nested ? "bitsandbytes_fp4_nested" : "bitsandbytes_fp4")
                                  : (f->nested ? "bitsandbytes_nf4_nested" : "bitsandbytes_nf4"));
        c->linear.name = c->linear.weight->name;
    }
    if (c->smooth_required && !c->serialized) {
        return OZ_FAIL(
            r->err, OZ_ERR_ARG,
            "%s.require_smooth_scale is for offline checkpoints, which hold the smoothing "
            "scales: it needs is_checkpoint_mxfp4_serialized too.",
            f->where);
    }
    if (c->static_acts && c->linear.act_set) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s: activation_scheme and activation exclude each other.", f->where);
    }
    if (c->scope == OZ_SCOPE_FUSED && !spans_tensor(&c->linear)) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s.scale_scope \"fused\" is for schemes with one scale for a whole linear "
                       "(fp8_per_tensor, nvfp4), not for %s.",
                       f->where, c->linear.weight != NULL ? c->linear.weight->name : "experts");
    }
    return check_rule(r, f);
}

static enum oz_status fail_key(struct oz_config_reader *r, const struct oz_method *m,
                               const char *where, const char *key)
{
    const char *names[OZ_METHOD_PARAM_COUNT + 1];
    char text[300];
    size_t count = 0;
    names[count++] = "method";
    for (int i = 0; i < OZ_METHOD_PARAM_COUNT; i++) {
        if ((m->params & OZ_METHOD_PARAM_BIT(i)) != 0 &&
            oz_method_param_at((enum oz_method_param)i)->type != OZ_MPT_REFUSED) {
            names[count++] = oz_method_param_at((enum oz_method_param)i)->name;
        }
    }
    (void)snprintf(text, sizeof text, "%.200s: the method %s has no parameter", where, m->name);
    return oz_config_fail_choice(r, text, key, names, count);
}

enum oz_status oz_config_read_flat(struct oz_config_reader *r, const struct oz_json *v,
                                   const char *where, struct oz_component_request *c)
{
    struct flat f = {.c = c, .where = where};
    bool checkpoint = c->method->kind == OZ_METHOD_CHECKPOINT;
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        const char *key = oz_json_key(it);
        if (strcmp(key, "method") == 0 || strcmp(key, "quant_method") == 0) {
            continue;
        }
        enum oz_method_param id = oz_method_param_find(c->method->params, key);
        if (id != OZ_METHOD_PARAM_COUNT) {
            OZ_TRY(take(r, &f, id, oz_json_value(it)));
        } else if (!checkpoint) {
            return fail_key(r, c->method, where, key);
        } else {
            char text[300];
            (void)snprintf(text, sizeof text, "%.200s.%.64s", where, key);
            oz_config_note(r, text, "has no effect: the checkpoint says how it was quantized");
        }
    }
    return finish(r, &f);
}
