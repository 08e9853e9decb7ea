/* config_online.c: online configs: slots, targets, ignore (vllm-online 2). */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/config_read.h"
#include "quant/rules.h"

/* weight and activation of an object, each over what was inherited. */
static enum oz_status read_spec(struct oz_config_reader *r, const struct oz_json *v,
                                const char *where, bool experts, struct oz_slot *slot)
{
    static const char *const fields[] = {"weight", "activation"};
    char text[300];
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        const char *key = oz_json_key(it);
        const struct oz_json *value = oz_json_value(it);
        bool weight = strcmp(key, fields[0]) == 0;
        if (!weight && strcmp(key, fields[1]) != 0) {
            (void)snprintf(text, sizeof text, "%.200s: there is no field", where);
            return oz_config_fail_choice(r, text, key, fields, 2);
        }
        const char *name = oz_json_string(value, NULL);
        if (name == NULL && oz_json_type(value) != OZ_JSON_NULL) {
            return OZ_FAIL(r->err, OZ_ERR_ARG, "%s.%s: expected str or null, got %s.", where, key,
                           oz_json_type_name(value));
        }
        (void)snprintf(text, sizeof text, "%.200s.%s", where, key);
        if (weight) {
            slot->weight_set = true;
            slot->weight = NULL;
            slot->name = NULL;
            if (name != NULL) {
                OZ_TRY(oz_config_weight(r, name, experts, text, &slot->weight));
                OZ_TRY(oz_config_string(r, name, &slot->name));
            }
        } else {
            slot->act_set = true;
            slot->act = OZ_ACT_NONE;
            if (name != NULL) {
                OZ_TRY(oz_config_activation(r, name, text, &slot->act));
            }
        }
    }
    return OZ_OK;
}

static enum oz_status read_slot(struct oz_config_reader *r, const struct oz_json *v,
                                const char *where, bool experts, struct oz_slot *slot)
{
    const char *name = oz_json_string(v, NULL);
    if (name != NULL) {
        const struct oz_method *m = oz_method_find(name);
        *slot = (struct oz_slot){.weight_set = true};
        OZ_TRY(oz_config_weight(r, name, experts, where, &slot->weight));
        OZ_TRY(oz_config_string(r, name, &slot->name));
        if (m != NULL && m->act_set) {
            slot->act_set = true;
            slot->act = m->act;
        }
    } else if (oz_json_type(v) == OZ_JSON_OBJECT) {
        OZ_TRY(read_spec(r, v, where, experts, slot));
    } else {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s must be a name or an object with weight and activation, not %s.", where,
                       oz_json_type_name(v));
    }
    slot->given = true;
    return oz_config_check_slot(r, slot, where);
}

/* A scheme may be defined for one kind of layer alone; which kind the pattern meets is seen later. */
static enum oz_status read_target_spec(struct oz_config_reader *r, const struct oz_json *v,
                                       const char *where, struct oz_target *out)
{
    struct oz_config_reader quiet = *r;
    quiet.err = NULL;
    if (read_spec(&quiet, v, where, true, &out->moe) != OZ_OK ||
        oz_config_check_slot(&quiet, &out->moe, where) != OZ_OK) {
        out->moe = (struct oz_slot){0};
    }
    if (out->moe.weight_set && out->moe.weight != NULL &&
        read_spec(&quiet, v, where, false, &out->linear) != OZ_OK) {
        out->linear = (struct oz_slot){0};
        out->name = out->moe.name;
        return OZ_OK;
    }
    OZ_TRY(read_spec(r, v, where, false, &out->linear));
    OZ_TRY(oz_config_check_slot(r, &out->linear, where));
    out->name = out->linear.name != NULL ? out->linear.name : "null";
    if (!out->linear.weight_set) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "%s names no weight.", where);
    }
    return OZ_OK;
}

/* What a value of targets asks for: a method's name, or an object with weight and activation. */
static enum oz_status read_target(struct oz_config_reader *r, const char *pattern,
                                  const struct oz_json *v, struct oz_target *out)
{
    char where[300];
    const char *name = oz_json_string(v, NULL);
    (void)snprintf(where, sizeof where, "targets[%.200s]", pattern);
    *out = (struct oz_target){0};
    OZ_TRY(oz_config_string(r, pattern, &out->pattern));
    if (strncmp(pattern, "re:", 3) == 0 || *pattern == '\0') {
        OZ_TRY(oz_rule_check(pattern, "targets key", r->err));
    }
    if (name == NULL && oz_json_type(v) == OZ_JSON_OBJECT) {
        return read_target_spec(r, v, where, out);
    }
    if (name == NULL) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "%s must be the name of a method, not %s.", where,
                       oz_json_type_name(v));
    }
    const struct oz_method *m = oz_method_find(name);
    if (m == NULL || m->kind != OZ_METHOD_ONLINE) {
        const char *names[128];
        size_t count = 0;
        const struct oz_method *online;
        for (int32_t i = 0; (online = oz_method_at(OZ_METHOD_ONLINE, i)) != NULL; i++) {
            names[count++] = online->name;
        }
        (void)snprintf(where, sizeof where,
                       "targets[%.200s]: not a valid online shorthand name:", pattern);
        return oz_config_fail_choice(r, where, name, names, count);
    }
    struct oz_component_request slots = {0};
    oz_config_inherit(&slots, m);
    out->linear = slots.linear;
    out->moe = slots.moe;
    return oz_config_string(r, name, &out->name);
}

static enum oz_status read_targets(struct oz_config_reader *r, const struct oz_json *v,
                                   struct oz_component_request *c)
{
    void *items = NULL;
    size_t count = oz_json_count(v);
    if (oz_json_type(v) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    if (oz_json_type(v) != OZ_JSON_OBJECT) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "targets must be a dict from patterns to names, got %s.",
                       oz_json_type_name(v));
    }
    if (count > OZ_CONFIG_MAX_ITEMS) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "targets has %zu entries; at most %d are taken.", count,
                       OZ_CONFIG_MAX_ITEMS);
    }
    if (oz_arena_push(r->arena, count * sizeof *c->targets, &items) != OZ_OK) {
        return OZ_FAIL_NOMEM(r->err, "targets");
    }
    struct oz_target *targets = items;
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        OZ_TRY(read_target(r, oz_json_key(it), oz_json_value(it), &targets[c->target_count]));
        c->target_count++;
    }
    c->targets = targets;
    return OZ_OK;
}

static enum oz_status read_member(struct oz_config_reader *r, const char *key,
                                  const struct oz_json *v, const char *where,
                                  struct oz_component_request *c)
{
    static const char *const keys[] = {"linear",  "moe",    "ignore",
                                       "targets", "method", "quant_method"};
    bool null = oz_json_type(v) == OZ_JSON_NULL;
    char text[300];
    (void)snprintf(text, sizeof text, "%.200s.%.64s", where, key);
    if (strcmp(key, "method") == 0 || strcmp(key, "quant_method") == 0) {
        return OZ_OK;
    }
    if (strcmp(key, "linear") == 0) {
        return null ? OZ_OK : read_slot(r, v, text, false, &c->linear);
    }
    if (strcmp(key, "moe") == 0) {
        return null ? OZ_OK : read_slot(r, v, text, true, &c->moe);
    }
    if (strcmp(key, "ignore") == 0) {
        return oz_config_strings(r, v, text, true, &c->ignore);
    }
    if (strcmp(key, "targets") == 0) {
        return read_targets(r, v, c);
    }
    (void)snprintf(text, sizeof text, "%.200s: an online config has no field", where);
    return oz_config_fail_choice(r, text, key, keys, 5);
}

static const char *slot_text(const struct oz_slot *slot)
{
    return slot->weight != NULL           ? slot->weight->name
           : slot->given || slot->act_set ? "given"
                                          : "none";
}

enum oz_status oz_config_read_online(struct oz_config_reader *r, const struct oz_json *v,
                                     const char *where, struct oz_component_request *c)
{
    c->online = true;
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        OZ_TRY(read_member(r, oz_json_key(it), oz_json_value(it), where, c));
    }
    bool slots = c->linear.weight_set || c->linear.act_set || c->moe.weight_set || c->moe.act_set;
    if (c->target_count > 0 && slots) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s.targets is mutually exclusive with %s.linear/moe, got targets=%d "
                       "patterns, linear=%s, moe=%s. With targets, use the method \"online\" or "
                       "none.",
                       where, where, c->target_count, slot_text(&c->linear), slot_text(&c->moe));
    }
    bool checkpoint = c->method != NULL && c->method->kind == OZ_METHOD_CHECKPOINT;
    if (c->target_count == 0 && !slots && !checkpoint) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s requires at least one of quantization_config.linear, "
                       "quantization_config.moe, or quantization_config.targets to be set.",
                       where);
    }
    return OZ_OK;
}
