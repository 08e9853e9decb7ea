#include "pipe/sched_flow.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/names.h"

#define MAX_SHIFT 100   /* of base_shift and max_shift, either sign */
#define MAX_FACTOR 1e30 /* of shift */

/* ---- config ---- */

/* Keys that are read. */
static const char *const read_keys[] = {
    "num_train_timesteps", "use_dynamic_shifting",
    "time_shift_type",     "shift",
    "base_shift",          "max_shift",
    "base_image_seq_len",  "max_image_seq_len",
    "shift_terminal",
};

/* Keys that must be off, with what they would do. */
static const struct {
    const char *key, *what;
} refused_keys[] = {
    {"use_karras_sigmas", "the Karras spacing of sigmas"},
    {"use_exponential_sigmas", "the exponential spacing of sigmas"},
    {"use_beta_sigmas", "the beta spacing of sigmas"},
    {"invert_sigmas", "the inverted schedule"},
    {"stochastic_sampling", "steps that add noise"},
};

static bool is_read(const char *key)
{
    for (size_t i = 0; i < sizeof read_keys / sizeof *read_keys; i++) {
        if (strcmp(key, read_keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static const char *refusal(const char *key)
{
    for (size_t i = 0; i < sizeof refused_keys / sizeof *refused_keys; i++) {
        if (strcmp(key, refused_keys[i].key) == 0) {
            return refused_keys[i].what;
        }
    }
    return NULL;
}

/* Every key is read, off, bookkeeping ("_..."), refused by name, or, where the reference would not
 * know it either, reported. */
static enum oz_status check_keys(const struct oz_json *root, const char *name, struct oz_error *err)
{
    for (void *it = oz_json_first(root); it != NULL; it = oz_json_next(root, it)) {
        const char *key = oz_json_key(it);
        const struct oz_json *value = oz_json_value(it);
        if (key[0] == '_' || is_read(key) || oz_json_type(value) == OZ_JSON_NULL) {
            continue;
        }
        bool off = oz_json_type(value) == OZ_JSON_BOOL && !oz_json_bool(value, true);
        const char *what = refusal(key);
        if (what != NULL && oz_json_type(value) != OZ_JSON_BOOL) {
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" must be true or false, not %s.", name,
                           key, oz_json_type_name(value));
        }
        if (off) {
            continue;
        }
        if (what != NULL) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s: \"%s\" asks for %s, which ounce does not have. Set it to false to "
                           "use the plain schedule.",
                           name, key, what);
        }
        oz_log(OZ_LOG_WARN, "load", "%s: the key \"%s\" is not known and has no effect.", name,
               key);
    }
    return OZ_OK;
}

static enum oz_status read_time_shift(struct oz_sched_flow_config *c, const struct oz_json *root,
                                      const char *name, struct oz_error *err)
{
    const char *type;
    const char *now = c->time_shift == OZ_TIME_SHIFT_LINEAR ? "linear" : "exponential";
    OZ_TRY(oz_json_get_string(root, "time_shift_type", now, &type, name, err));
    if (strcmp(type, "exponential") == 0) {
        c->time_shift = OZ_TIME_SHIFT_EXPONENTIAL;
    } else if (strcmp(type, "linear") == 0) {
        c->time_shift = OZ_TIME_SHIFT_LINEAR;
    } else {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: \"time_shift_type\" is \"%s\"; ounce has \"exponential\" and "
                       "\"linear\".",
                       name, type);
    }
    return OZ_OK;
}

static enum oz_status check_values(const struct oz_sched_flow_config *c, const char *name,
                                   struct oz_error *err)
{
    if (!(c->shift > 0.0 && c->shift <= MAX_FACTOR)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"shift\" is %g; it must be above 0, to %g.", name,
                       c->shift, MAX_FACTOR);
    }
    if (!(c->shift_terminal >= 0.0 && c->shift_terminal < 1.0)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: \"shift_terminal\" is %g; it must be null or lie in 0 to 1.", name,
                       c->shift_terminal);
    }
    const double shifts[] = {c->base_shift, c->max_shift};
    for (int i = 0; i < 2; i++) {
        if (!(fabs(shifts[i]) <= MAX_SHIFT)) { /* sigma takes its exponential */
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"%s\" is %g; it must lie in -%d to %d.", name,
                           i == 0 ? "base_shift" : "max_shift", shifts[i], MAX_SHIFT, MAX_SHIFT);
        }
    }
    if (c->use_dynamic_shifting && c->base_image_seq_len == c->max_image_seq_len) {
        return OZ_FAIL(
            err, OZ_ERR_FORMAT,
            "%s: \"base_image_seq_len\" and \"max_image_seq_len\" are both %d; the shift "
            "is a line through both and needs two points.",
            name, c->base_image_seq_len);
    }
    return OZ_OK;
}

/* The members that are there, over what c has. */
static enum oz_status read_values(struct oz_sched_flow_config *c, const struct oz_json *root,
                                  const char *name, struct oz_error *err)
{
    int64_t train;
    int64_t base;
    int64_t max;
    OZ_TRY(oz_json_get_integer(root, "num_train_timesteps", c->num_train_timesteps, 1, 1 << 24,
                               &train, name, err));
    OZ_TRY(oz_json_get_bool(root, "use_dynamic_shifting", c->use_dynamic_shifting,
                            &c->use_dynamic_shifting, name, err));
    OZ_TRY(read_time_shift(c, root, name, err));
    OZ_TRY(oz_json_get_number(root, "shift", c->shift, &c->shift, name, err));
    OZ_TRY(oz_json_get_number(root, "base_shift", c->base_shift, &c->base_shift, name, err));
    OZ_TRY(oz_json_get_number(root, "max_shift", c->max_shift, &c->max_shift, name, err));
    OZ_TRY(oz_json_get_integer(root, "base_image_seq_len", c->base_image_seq_len, 1, 1 << 30, &base,
                               name, err));
    OZ_TRY(oz_json_get_integer(root, "max_image_seq_len", c->max_image_seq_len, 1, 1 << 30, &max,
                               name, err));
    OZ_TRY(oz_json_get_number(root, "shift_terminal", c->shift_terminal, &c->shift_terminal, name,
                              err));
    c->num_train_timesteps = (int32_t)train;
    c->base_image_seq_len = (int32_t)base;
    c->max_image_seq_len = (int32_t)max;
    return check_values(c, name, err);
}

static enum oz_status check_class(const struct oz_json *root, const char *name, bool must,
                                  struct oz_error *err)
{
    static const char wanted[] = "FlowMatchEulerDiscreteScheduler";
    const char *class_name;
    if (oz_json_type(root) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: a scheduler config must be an object, not %s.",
                       name, oz_json_type_name(root));
    }
    OZ_TRY(oz_json_get_string(root, "_class_name", NULL, &class_name, name, err));
    if (class_name == NULL && must) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"_class_name\" is missing.", name);
    }
    if (class_name != NULL && strcmp(class_name, wanted) != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: the scheduler is %s; for this model ounce has %s.", name, class_name,
                       wanted);
    }
    return OZ_OK;
}

enum oz_status oz_sched_flow_config_read(struct oz_sched_flow_config *c, const struct oz_json *root,
                                         const char *name, struct oz_error *err)
{
    *c = (struct oz_sched_flow_config){.num_train_timesteps = 1000,
                                       .time_shift = OZ_TIME_SHIFT_EXPONENTIAL,
                                       .shift = 1.0,
                                       .base_shift = 0.5,
                                       .max_shift = 1.15,
                                       .base_image_seq_len = 256,
                                       .max_image_seq_len = 4096};
    OZ_TRY(check_class(root, name, true, err));
    OZ_TRY(check_keys(root, name, err));
    return read_values(c, root, name, err);
}

/* A user's members: known all of them. */
static enum oz_status check_override(const struct oz_json *root, const char *name,
                                     struct oz_error *err)
{
    const size_t known = sizeof read_keys / sizeof *read_keys;
    size_t effects = 0;
    for (void *it = oz_json_first(root); it != NULL; it = oz_json_next(root, it)) {
        const char *key = oz_json_key(it);
        if (key[0] == '_' || refusal(key) != NULL) {
            continue;
        }
        if (!is_read(key)) {
            const char *near = oz_names_nearest(key, read_keys, known);
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "%s: the scheduler has no member \"%s\"%s%s%s; there are "
                           "num_train_timesteps, use_dynamic_shifting, time_shift_type, shift, "
                           "base_shift, max_shift, base_image_seq_len, max_image_seq_len, "
                           "shift_terminal.",
                           name, key, near != NULL ? " (did you mean \"" : "",
                           near != NULL ? near : "", near != NULL ? "\"?)" : "");
        }
        if (oz_json_type(oz_json_value(it)) == OZ_JSON_NULL && strcmp(key, "shift_terminal") != 0) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "%s: \"%s\" is null; leave it out to keep the model's, or give a value.",
                           name, key);
        }
        effects++;
    }
    return effects > 0 ? OZ_OK
                       : OZ_FAIL(err, OZ_ERR_ARG,
                                 "%s changes nothing: it has no member of the scheduler.", name);
}

enum oz_status oz_sched_flow_config_override(struct oz_sched_flow_config *c,
                                             const struct oz_json *root, const char *name,
                                             struct oz_error *err)
{
    struct oz_sched_flow_config changed = *c;
    const struct oz_json *terminal = oz_json_get(root, "shift_terminal");
    OZ_TRY(check_class(root, name, false, err));
    OZ_TRY(check_keys(root, name, err));
    OZ_TRY(check_override(root, name, err));
    if (terminal != NULL && oz_json_type(terminal) == OZ_JSON_NULL) {
        changed.shift_terminal = 0;
    }
    OZ_TRY(read_values(&changed, root, name, err));
    *c = changed;
    return OZ_OK;
}

void oz_sched_flow_set_lightning(struct oz_sched_flow_config *c)
{
    c->use_dynamic_shifting = true;
    c->time_shift = OZ_TIME_SHIFT_EXPONENTIAL;
    c->base_shift = log(3.0);
    c->max_shift = c->base_shift;
    c->shift_terminal = 0.0;
}

/* ---- the schedule ---- */

double oz_sched_flow_mu(const struct oz_sched_flow_config *c, int64_t image_tokens)
{
    double slope =
        (c->max_shift - c->base_shift) / (double)(c->max_image_seq_len - c->base_image_seq_len);
    double at_zero = c->base_shift - slope * (double)c->base_image_seq_len;
    return (double)image_tokens * slope + at_zero;
}

/* Towards 1 by the configured shift. */
static void shift_sigmas(const struct oz_sched_flow_config *c, int64_t image_tokens, int32_t steps,
                         float *s)
{
    if (c->use_dynamic_shifting) {
        double mu = oz_sched_flow_mu(c, image_tokens);
        float factor = (float)(c->time_shift == OZ_TIME_SHIFT_EXPONENTIAL ? exp(mu) : mu);
        for (int32_t i = 0; i < steps; i++) {
            s[i] = factor / (factor + (1.0F / s[i] - 1.0F));
        }
        return;
    }
    float shift = (float)c->shift;
    float less_one = (float)(c->shift - 1.0);
    for (int32_t i = 0; i < steps; i++) {
        s[i] = shift * s[i] / (1.0F + less_one * s[i]);
    }
}

enum oz_status oz_sched_flow_sigmas(const struct oz_sched_flow_config *c, int64_t image_tokens,
                                    int32_t steps, float *sigmas, struct oz_error *err)
{
    if (steps < 1 || image_tokens < 1) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A schedule of %d steps over %lld image tokens: both must be at least 1.",
                       steps, (long long)image_tokens);
    }
    sigmas[0] = 1.0F;
    sigmas[steps] = 0.0F;
    if (steps == 1) { /* the stretch would divide 0 by 0 */
        return OZ_OK;
    }
    double last = 1.0 / steps;
    double step = (last - 1.0) / (steps - 1);
    for (int32_t i = 1; i < steps - 1; i++) {
        sigmas[i] = (float)(i * step + 1.0);
    }
    sigmas[steps - 1] = (float)last;
    shift_sigmas(c, image_tokens, steps, sigmas);
    if (c->shift_terminal != 0.0) {
        float k = (1.0F - sigmas[steps - 1]) / (float)(1.0 - c->shift_terminal);
        for (int32_t i = 0; i < steps; i++) {
            sigmas[i] = 1.0F - (1.0F - sigmas[i]) / k;
        }
    }
    for (int32_t i = 0; i < steps; i++) {
        if (!(sigmas[i] > sigmas[i + 1])) {
            return OZ_FAIL(
                err, OZ_ERR_ARG,
                "The schedule of %d steps over %lld image tokens does not fall: sigma %d "
                "is %g and sigma %d is %g. Take fewer steps or a smaller picture.",
                steps, (long long)image_tokens, i, (double)sigmas[i], i + 1, (double)sigmas[i + 1]);
        }
    }
    return OZ_OK;
}
