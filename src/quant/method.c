#include "quant/method.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/names.h"

/* ---- parameters ---- */

static const struct oz_method_param_info params[] = {
#define OZ_METHOD_PARAM(id, name, type, values, initial) {name, type, values, initial},
#include "quant/param.inc"
#undef OZ_METHOD_PARAM
};

const struct oz_method_param_info *oz_method_param_at(enum oz_method_param param)
{
    return &params[param];
}

enum oz_method_param oz_method_param_find(uint64_t mask, const char *name)
{
    for (int i = 0; i < OZ_METHOD_PARAM_COUNT; i++) {
        if ((mask & OZ_METHOD_PARAM_BIT(i)) != 0 && strcmp(params[i].name, name) == 0) {
            return (enum oz_method_param)i;
        }
    }
    return OZ_METHOD_PARAM_COUNT;
}

/* ---- the list ---- */

#define BIT OZ_METHOD_PARAM_BIT
#define COMMON                                                                       \
    (BIT(OZ_MP_IGNORED_LAYERS) | BIT(OZ_MP_NOT_CONVERT) | BIT(OZ_MP_IGNORED_MATCH) | \
     BIT(OZ_MP_BF16_LAYERS) | BIT(OZ_MP_ACTIVATION) | BIT(OZ_MP_SCALE_SCOPE) | BIT(OZ_MP_RULE))
#define FP8                                                                      \
    (BIT(OZ_MP_ACT_SCHEME) | BIT(OZ_MP_FP8_SERIALIZED) | BIT(OZ_MP_BLOCK_SIZE) | \
     BIT(OZ_MP_ONLINE_BLOCK) | BIT(OZ_MP_STORE_DTYPE))
#define INT8 (BIT(OZ_MP_ACT_DYNAMIC) | BIT(OZ_MP_INT8_SERIALIZED))
#define MXFP8 BIT(OZ_MP_MXFP8_SERIALIZED)
#define W4A8 (BIT(OZ_MP_W4A8_STEPS) | BIT(OZ_MP_W4A8_LAYERS))
#define MXFP4 (W4A8 | BIT(OZ_MP_MXFP4_SERIALIZED) | BIT(OZ_MP_SMOOTH) | BIT(OZ_MP_SCALE_ALG))
#define DUAL (W4A8 | BIT(OZ_MP_DUAL_SERIALIZED))
#define BNB (BIT(OZ_MP_QUANT_TYPE) | BIT(OZ_MP_NESTED))

static const struct oz_method methods[] = {
#define OZ_METHOD(name, kind, linear, experts, params, adopts, serialized, layers, note) \
    {name, OZ_METHOD_##kind, linear, experts, params, adopts, serialized, layers, false, 0, note},
#define OZ_METHOD_ALIAS(alias, name)
#include "quant/method.inc"
#undef OZ_METHOD
#undef OZ_METHOD_ALIAS
};
#define METHODS ((int32_t)(sizeof methods / sizeof *methods))

static const struct {
    const char *alias, *name;
} aliases[] = {
#define OZ_METHOD(...)
#define OZ_METHOD_ALIAS(alias, name) {alias, name},
#include "quant/method.inc"
#undef OZ_METHOD
#undef OZ_METHOD_ALIAS
};
#define ALIASES ((int32_t)(sizeof aliases / sizeof *aliases))

/* What programs added: only ever appended to, under the lock; `added_count` is published last, so
 * that readers need none. */
enum { MAX_ADDED = 64, MAX_NAME = 64, MAX_NOTE = 160 };
static struct {
    struct oz_method method;
    char name[MAX_NAME], note[MAX_NOTE];
} added[MAX_ADDED];
static atomic_int added_count;
static pthread_mutex_t added_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct oz_method *at(int32_t index)
{
    if (index < METHODS) {
        return &methods[index];
    }
    index -= METHODS;
    return index < atomic_load_explicit(&added_count, memory_order_acquire) ? &added[index].method
                                                                            : NULL;
}

const struct oz_method *oz_method_find(const char *name)
{
    for (int32_t i = 0; i < ALIASES; i++) {
        if (oz_names_same(aliases[i].alias, name)) {
            name = aliases[i].name;
        }
    }
    const struct oz_method *m;
    for (int32_t i = 0; (m = at(i)) != NULL; i++) {
        if (oz_names_same(m->name, name)) {
            return m;
        }
    }
    return NULL;
}

const struct oz_method *oz_method_at(enum oz_method_kind kind, int32_t index)
{
    const struct oz_method *m;
    for (int32_t i = 0; (m = at(i)) != NULL; i++) {
        if (m->kind == kind && index-- == 0) {
            return m;
        }
    }
    return NULL;
}

const char *oz_method_alias(int32_t index, const char **stands_for)
{
    if (index < 0 || index >= ALIASES) {
        return NULL;
    }
    *stands_for = aliases[index].name;
    return aliases[index].alias;
}

/* ---- messages ---- */

static void list_online(struct oz_buf *b)
{
    const struct oz_method *m;
    for (int32_t i = 0; (m = oz_method_at(OZ_METHOD_ONLINE, i)) != NULL; i++) {
        oz_buf_printf(b, "%s%s", i > 0 ? ", " : "", m->name);
    }
}

static const char *nearest(const char *name)
{
    const char
        *names[sizeof methods / sizeof *methods + sizeof aliases / sizeof *aliases + MAX_ADDED];
    size_t count = 0;
    const struct oz_method *m;
    for (int32_t i = 0; (m = at(i)) != NULL; i++) {
        names[count++] = m->name;
    }
    for (int32_t i = 0; i < ALIASES; i++) {
        if (strlen(aliases[i].alias) > 3) { /* "fp4", "inc": near to any two or three letters */
            names[count++] = aliases[i].alias;
        }
    }
    return oz_names_nearest(name, names, count);
}

enum oz_status oz_method_get(const struct oz_method **out, const char *name, struct oz_error *err)
{
    *out = oz_method_find(name);
    if (*out != NULL) {
        return OZ_OK;
    }
    struct oz_buf list;
    oz_buf_init(&list, OZ_ERROR_MESSAGE_BYTES);
    list_online(&list);
    const char *near = nearest(name);
    (void)OZ_FAIL(
        err, OZ_ERR_ARG,
        "Unknown quantization method: \"%.100s\"%s%s%s Weights are quantized while loading by one "
        "of: %s.",
        name, near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
        near != NULL ? "\"?" : ".", oz_buf_text(&list));
    oz_buf_deinit(&list);
    return OZ_ERR_ARG;
}

enum oz_status oz_method_check_online(const struct oz_method *m, struct oz_error *err)
{
    if (m->kind != OZ_METHOD_CHECKPOINT && m->kind != OZ_METHOD_ABSENT) {
        return OZ_OK;
    }
    struct oz_buf list;
    oz_buf_init(&list, OZ_ERROR_MESSAGE_BYTES);
    list_online(&list);
    (void)OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                  "The method %s %s%s. Weights are quantized while loading by one of: %s.", m->name,
                  m->note,
                  m->kind == OZ_METHOD_CHECKPOINT ? " and cannot make one: it needs a checkpoint "
                                                    "that is quantized already, and this one is "
                                                    "not"
                                                  : "",
                  oz_buf_text(&list));
    oz_buf_deinit(&list);
    return OZ_ERR_UNSUPPORTED;
}

bool oz_method_adopts(const struct oz_method *m, const char *checkpoint)
{
    const struct oz_method *declared = oz_method_find(checkpoint);
    const char *name = declared != NULL ? declared->name : checkpoint;
    size_t n = strlen(name);
    for (const char *p = m->adopts; *p != '\0';) {
        size_t word = strcspn(p, " ");
        if (word == n && strncmp(p, name, n) == 0) {
            return true;
        }
        p += word;
        p += strspn(p, " ");
    }
    return false;
}

/* ---- programs' own ---- */

static enum oz_status check_scheme(const struct oz_method *m, const char *scheme, bool experts,
                                   struct oz_error *err)
{
    if (scheme == NULL) {
        return OZ_OK;
    }
    const struct oz_scheme_info *info = oz_scheme_find(scheme);
    const char *kind = experts ? "experts" : "linear";
    if (info == NULL) {
        const char *names[64];
        size_t count = 0;
        struct oz_buf list;
        oz_buf_init(&list, OZ_ERROR_MESSAGE_BYTES);
        for (int32_t i = 0; i < 64 && oz_scheme_at(i) != NULL; i++) {
            names[count++] = oz_scheme_at(i)->name;
            oz_buf_printf(&list, "%s%s", i > 0 ? ", " : "", oz_scheme_at(i)->name);
        }
        const char *near = oz_names_nearest(scheme, names, count);
        (void)OZ_FAIL(err, OZ_ERR_ARG,
                      "Method %s: there is no scheme \"%.100s\"%s%s%s There are: %s.", m->name,
                      scheme, near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                      near != NULL ? "\"?" : ".", oz_buf_text(&list));
        oz_buf_deinit(&list);
        return OZ_ERR_ARG;
    }
    if (!(experts ? info->experts : info->linear)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Method %s: the scheme %s is not defined for %s layers.",
                       m->name, scheme, kind);
    }
    if (m->act_set && (info->acts & OZ_ACT_BIT(m->act)) == 0) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Method %s: the scheme %s takes no %s activations.",
                       m->name, scheme, oz_act_mode_name(m->act));
    }
    return OZ_OK;
}

static enum oz_status check_added(const struct oz_method *m, struct oz_error *err)
{
    size_t n = m->name != NULL ? strlen(m->name) : 0;
    if (n == 0 || n >= MAX_NAME) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A method's name has 1 to %d letters, digits, '_' or '-'.",
                       MAX_NAME - 1);
    }
    for (size_t i = 0; i < n; i++) {
        if (isalnum((unsigned char)m->name[i]) == 0 && strchr("_-", m->name[i]) == NULL) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "\"%s\" is no name for a method: letters, digits, '_' and '-' only.",
                           m->name);
        }
    }
    if (m->linear == NULL && m->experts == NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Method %s names no scheme.", m->name);
    }
    if ((unsigned)m->act >= OZ_ACT_MODE_COUNT || m->act == OZ_ACT_FP8_STATIC) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Method %s: activation mode %d does not exist, or takes its scales from a "
                       "file.",
                       m->name, (int)m->act);
    }
    if (m->bf16_fallback < 0) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Method %s: %d blocks cannot be kept; 0 or more can.",
                       m->name, m->bf16_fallback);
    }
    OZ_TRY(check_scheme(m, m->linear, false, err));
    return check_scheme(m, m->experts, true, err);
}

static enum oz_status append(const struct oz_method *m, struct oz_error *err)
{
    int count = atomic_load_explicit(&added_count, memory_order_relaxed);
    if (oz_method_find(m->name) != NULL) {
        return OZ_FAIL(err, OZ_ERR_ARG, "There is a method %s already.", m->name);
    }
    if (count == MAX_ADDED) {
        return OZ_FAIL(err, OZ_ERR_NOMEM, "%d methods have been added; there is room for no more.",
                       MAX_ADDED);
    }
    struct oz_method *copy = &added[count].method;
    for (size_t i = 0; i <= strlen(m->name); i++) {
        added[count].name[i] = oz_names_letter(m->name[i]);
    }
    const char *note = m->note != NULL ? m->note : "added by the program";
    (void)snprintf(added[count].note, MAX_NOTE, "%s", note);
    *copy = (struct oz_method){.name = added[count].name,
                               .kind = OZ_METHOD_ONLINE,
                               .params = COMMON | W4A8 | BIT(OZ_MP_SCALE_ALG),
                               .adopts = "",
                               .bf16_fallback = m->bf16_fallback,
                               .act_set = m->act_set,
                               .act = m->act,
                               .note = added[count].note};
    if (m->linear != NULL) {
        copy->linear = oz_scheme_find(m->linear)->name;
    }
    if (m->experts != NULL) {
        copy->experts = oz_scheme_find(m->experts)->name;
    }
    atomic_store_explicit(&added_count, count + 1, memory_order_release);
    return OZ_OK;
}

enum oz_status oz_method_add(const struct oz_method *method, struct oz_error *err)
{
    OZ_TRY(check_added(method, err));
    pthread_mutex_lock(&added_lock);
    enum oz_status status = append(method, err);
    pthread_mutex_unlock(&added_lock);
    return status;
}
