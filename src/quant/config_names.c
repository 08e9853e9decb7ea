/* config_names.c: names of weights and activations in slots, copied strings, lists and messages. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/names.h"
#include "quant/config_read.h"
#include "quant/rules.h"

enum oz_status oz_config_string(struct oz_config_reader *r, const char *text, const char **out)
{
    *out = oz_arena_string(r->arena, text);
    return *out != NULL ? OZ_OK : OZ_FAIL_NOMEM(r->err, "the quantization config");
}

void oz_config_note(struct oz_config_reader *r, const char *what, const char *why)
{
    const char *copy = oz_arena_string(r->arena, what);
    if (copy != NULL && r->note_count < OZ_CONFIG_MAX_NOTES) {
        r->notes[r->note_count++] = (struct oz_note){copy, why};
    }
}

enum oz_status oz_config_fail_choice(struct oz_config_reader *r, const char *where,
                                     const char *wrong, const char *const *names, size_t count)
{
    struct oz_buf list;
    const char *near = oz_names_nearest(wrong, names, count);
    oz_buf_init(&list, OZ_ERROR_MESSAGE_BYTES / 2);
    for (size_t i = 0; i < count; i++) {
        oz_buf_printf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    (void)OZ_FAIL(r->err, OZ_ERR_ARG, "%s \"%.200s\"%s%s%s; expected one of: %s.", where, wrong,
                  near != NULL ? " (did you mean \"" : "", near != NULL ? near : "",
                  near != NULL ? "\"?)" : "", oz_buf_text(&list));
    oz_buf_deinit(&list);
    return OZ_ERR_ARG;
}

/* Exact names: letters, digits and '_' in dotted segments, the first not a digit. */
static bool is_layer_name(const char *text)
{
    static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    bool valid = strspn(text, "0123456789") == 0;
    for (;;) {
        size_t n = strspn(text, word);
        valid = valid && n > 0;
        if (text[n] != '.' || !valid) {
            return valid && text[n] == '\0';
        }
        text += n + 1;
    }
}

enum oz_status oz_config_strings(struct oz_config_reader *r, const struct oz_json *v,
                                 const char *where, bool pattern, struct oz_strings *out)
{
    void *items = NULL;
    size_t count = oz_json_count(v);
    *out = (struct oz_strings){0};
    if (oz_json_type(v) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    if (oz_json_type(v) != OZ_JSON_ARRAY) {
        return OZ_FAIL(r->err, OZ_ERR_ARG, "%s must be a list of strings, not %s.", where,
                       oz_json_type_name(v));
    }
    if (count > OZ_CONFIG_MAX_ITEMS) {
        return OZ_FAIL(r->err, OZ_ERR_ARG,
                       "%s has %zu entries; at most %d are taken. Use patterns.", where, count,
                       OZ_CONFIG_MAX_ITEMS);
    }
    if (oz_arena_push(r->arena, count * sizeof *out->items, &items) != OZ_OK) {
        return OZ_FAIL_NOMEM(r->err, where);
    }
    const char **copies = items;
    for (size_t i = 0; i < count; i++) {
        const struct oz_json *entry = oz_json_at(v, i);
        const char *text = oz_json_string(entry, NULL);
        if (text == NULL) {
            return OZ_FAIL(r->err, OZ_ERR_ARG, "%s must be a list of strings; entry %zu is %s.",
                           where, i, oz_json_type_name(entry));
        }
        if (pattern) {
            OZ_TRY(oz_rule_check(text, where, r->err));
        } else if (!is_layer_name(text)) {
            return OZ_FAIL(r->err, OZ_ERR_ARG,
                           "%s: \"%.200s\" is no exact layer name (letters, digits and '_', with "
                           "dots between); patterns are not taken here.",
                           where, text);
        }
        OZ_TRY(oz_config_string(r, text, &copies[i]));
    }
    *out = (struct oz_strings){copies, (int32_t)count};
    return OZ_OK;
}

/* ---- weights: vLLM's names of quantized types, then ours ---- */

static const struct {
    const char *name, *linear, *experts; /* NULL, NULL: a type of activations only */
} keys[] = {
    {"fp8_per_tensor_static", "fp8_per_tensor", "fp8_per_tensor"},
    {"fp8_per_tensor_dynamic", NULL, NULL},
    {"fp8_per_token", NULL, NULL},
    {"fp8_per_channel_static", "fp8_per_channel", "fp8_per_channel"},
    {"fp8_per_block_static", "fp8_per_block", "fp8_per_block"},
    {"fp8_per_block_dynamic", NULL, NULL},
    {"mxfp8", "mxfp8", "mxfp8"},
    {"mxfp4", "mxfp4", "mxfp4"},
    {"int8_per_channel_static", "int8", "int8_per_channel_weight_only"},
};
#define KEYS (sizeof keys / sizeof *keys)

static size_t weight_names(const char **names, size_t max, bool experts)
{
    size_t count = 0;
    const struct oz_method *m;
    for (size_t i = 0; i < KEYS; i++) {
        if (keys[i].linear != NULL) {
            names[count++] = keys[i].name;
        }
    }
    for (int32_t i = 0; count < max && (m = oz_method_at(OZ_METHOD_ONLINE, i)) != NULL; i++) {
        bool listed = strcmp(m->name, "mxfp8") == 0 || strcmp(m->name, "mxfp4") == 0;
        if (!listed && (experts ? m->experts : m->linear) != NULL) {
            names[count++] = m->name;
        }
    }
    return count;
}

enum oz_status oz_config_weight(struct oz_config_reader *r, const char *name, bool experts,
                                const char *where, const struct oz_scheme_info **out)
{
    const char *names[KEYS + 128];
    char text[300];
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, name) != 0) {
            continue;
        }
        const char *scheme = experts ? keys[i].experts : keys[i].linear;
        if (scheme != NULL) {
            *out = oz_scheme_find(scheme);
            return OZ_OK;
        }
        (void)snprintf(text, sizeof text,
                       "%.200s: online quantization with weight=%s is not supported, it is a type "
                       "of activations;",
                       where, name);
        return oz_config_fail_choice(r, text, name, names,
                                     weight_names(names, KEYS + 128, experts));
    }
    const struct oz_method *m = oz_method_find(name);
    if (m != NULL && m->kind == OZ_METHOD_ONLINE) {
        const char *scheme = experts ? m->experts : m->linear;
        if (scheme == NULL) {
            return OZ_FAIL(r->err, OZ_ERR_ARG,
                           "%s: online shorthand '%s' does not define a %s spec; it is for %s.",
                           where, m->name, experts ? "moe" : "linear",
                           experts ? "linear layers" : "experts");
        }
        *out = oz_scheme_find(scheme);
        return OZ_OK;
    }
    (void)snprintf(text, sizeof text, "%.200s: unknown quantization name", where);
    return oz_config_fail_choice(r, text, name, names, weight_names(names, KEYS + 128, experts));
}

/* ---- activations ---- */

static const struct {
    const char *name;
    enum oz_act_mode mode;
} acts[] = {
    {"none", OZ_ACT_NONE},
    {"fp8_per_token", OZ_ACT_FP8_TOKEN},
    {"fp8_per_tensor_dynamic", OZ_ACT_FP8_TOKEN},
    {"fp8_per_tensor_static", OZ_ACT_FP8_STATIC},
    {"fp8_per_block_dynamic", OZ_ACT_FP8_GROUP},
    {"fp8_per_block", OZ_ACT_FP8_GROUP},
    {"int8_per_token", OZ_ACT_INT8_TOKEN},
    {"mxfp8", OZ_ACT_MXFP8},
    {"mxfp4", OZ_ACT_MXFP4},
    {"mxfp4_dualscale", OZ_ACT_MXFP4_DUALSCALE},
    {"nvfp4", OZ_ACT_NVFP4},
    {"nvfp4_per_token", OZ_ACT_NVFP4_TOKEN},
};
#define ACTS (sizeof acts / sizeof *acts)

enum oz_status oz_config_activation(struct oz_config_reader *r, const char *name, const char *where,
                                    enum oz_act_mode *out)
{
    const char *names[ACTS];
    char text[300];
    for (size_t i = 0; i < ACTS; i++) {
        names[i] = acts[i].name;
        if (strcmp(acts[i].name, name) == 0) {
            *out = acts[i].mode;
            if (strcmp(name, "fp8_per_tensor_dynamic") == 0) {
                oz_config_note(r, "activation fp8_per_tensor_dynamic",
                               "is taken per token: a scale over all rows would tie a request to "
                               "its neighbours");
            }
            return OZ_OK;
        }
    }
    (void)snprintf(text, sizeof text, "%.200s: unknown activation", where);
    return oz_config_fail_choice(r, text, name, names, ACTS);
}

/* ---- slots ---- */

static void inherit_slot(struct oz_slot *slot, const struct oz_method *m, const char *scheme)
{
    if (scheme == NULL) {
        return;
    }
    *slot = (struct oz_slot){.weight_set = true,
                             .weight = oz_scheme_find(scheme),
                             .act_set = m->act_set,
                             .act = m->act,
                             .name = scheme};
}

void oz_config_inherit(struct oz_component_request *c, const struct oz_method *m)
{
    c->method = m;
    c->num_bf16_fallback_layers = m->bf16_fallback;
    inherit_slot(&c->linear, m, m->linear);
    inherit_slot(&c->moe, m, m->experts);
}

enum oz_status oz_config_check_slot(struct oz_config_reader *r, const struct oz_slot *slot,
                                    const char *where)
{
    if (!slot->act_set || slot->weight == NULL ||
        (slot->weight->acts & OZ_ACT_BIT(slot->act)) != 0) {
        return OZ_OK;
    }
    struct oz_buf list;
    oz_buf_init(&list, OZ_ERROR_MESSAGE_BYTES / 2);
    for (int mode = 0; mode < OZ_ACT_MODE_COUNT; mode++) {
        if ((slot->weight->acts & OZ_ACT_BIT(mode)) != 0) {
            oz_buf_printf(&list, "%s%s", list.bytes > 0 ? ", " : "",
                          oz_act_mode_name((enum oz_act_mode)mode));
        }
    }
    (void)OZ_FAIL(r->err, OZ_ERR_ARG, "%s: %s weights take no %s activations; they take: %s.",
                  where, slot->weight->name, oz_act_mode_name(slot->act), oz_buf_text(&list));
    oz_buf_deinit(&list);
    return OZ_ERR_ARG;
}
