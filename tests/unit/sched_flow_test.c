/* Schedules against published values and against diffusers' own sigmas and timesteps. */
#include "test.h"

#include <math.h>

#include "base/json.h"
#include "base/log.h"
#include "ckpt/table.h"
#include "num/float.h"
#include "pipe/sched_flow.h"

#define CLASS "\"_class_name\": \"FlowMatchEulerDiscreteScheduler\""
#define QWEN                                                                      \
    CLASS ", \"_diffusers_version\": \"0.40.0\", \"num_train_timesteps\": 1000, " \
          "\"shift\": 1.0, \"use_dynamic_shifting\": true, \"base_shift\": 0.5, " \
          "\"max_shift\": 0.9, \"base_image_seq_len\": 256, "                     \
          "\"max_image_seq_len\": 8192, \"time_shift_type\": \"exponential\", "   \
          "\"invert_sigmas\": false, \"stochastic_sampling\": false, "            \
          "\"use_karras_sigmas\": false, \"use_beta_sigmas\": null, \"other\": null"
#define TERMINAL ", \"shift_terminal\": 0.02"

static struct oz_error err;

static enum oz_status read_config(struct oz_sched_flow_config *c, const char *members)
{
    char text[2048];
    struct oz_json *root;
    int n = snprintf(text, sizeof text, "{%s}", members);
    assert_int_equal(oz_json_parse(&root, text, (size_t)n, "test.json", &err), OZ_OK);
    enum oz_status status = oz_sched_flow_config_read(c, root, "test.json", &err);
    oz_json_free(root);
    return status;
}

static struct oz_sched_flow_config config(const char *members)
{
    struct oz_sched_flow_config c;
    if (read_config(&c, members) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    return c;
}

/* Sigmas are differences from 1, and other tools round in other places: three roundings near 1. */
static const double three_roundings = 3 * 0x1p-24;

/* The values that `want` lists, NAN where it does not say, to the digits printed. */
static void expect(const struct oz_sched_flow_config *c, int64_t tokens, int32_t steps,
                   const double *want, int count)
{
    float s[101];
    assert_int_equal(oz_sched_flow_sigmas(c, tokens, steps, s, &err), OZ_OK);
    assert_true(s[0] == 1.0F && s[steps] == 0.0F);
    for (int i = 0; i < count; i++) {
        if (!isnan(want[i]) && fabs((double)s[i] - want[i]) > three_roundings) {
            fail_msg("%d steps, sigma %d: %.9g, not %.9g", steps, i, (double)s[i], want[i]);
        }
    }
}

static void published_values(void **state)
{
    struct oz_sched_flow_config c = config(QWEN TERMINAL);
    assert_true(fabs(oz_sched_flow_mu(&c, 4096) - 0.693548) < 5e-7);
    assert_true(fabs(oz_sched_flow_mu(&c, 6889) - 0.834325) < 5e-7);
    const double n50[] = {1, 0.9897009, 0.9791915, 0.9684653};
    expect(&c, 4096, 50, n50, 4);
    float s[51];
    assert_int_equal(oz_sched_flow_sigmas(&c, 4096, 50, s, &err), OZ_OK);
    assert_true(fabs((double)s[47] - 0.0954985) < three_roundings);
    assert_true(fabs((double)s[48] - 0.05847579) < three_roundings);
    assert_true(fabs((double)s[49] - 0.02) < three_roundings);
    const double n20[] = {1,   0.9722365, 0.94301116, 0.91220546, NAN,        NAN,  NAN,
                          NAN, NAN,       NAN,        NAN,        NAN,        NAN,  NAN,
                          NAN, NAN,       NAN,        0.1994583,  0.11381072, 0.02, 0};
    expect(&c, 4096, 20, n20, 21);
    const double n8[] = {1,          0.91602397, 0.82004577, 0.70929456, NAN,
                         0.42734694, 0.2440539,  0.02,       0};
    expect(&c, 4096, 8, n8, 9);
    const double large[] = {1, 0.9909883, 0.98176795};
    expect(&c, 6889, 50, large, 3);
}

static void lightning(void **state)
{
    struct oz_sched_flow_config c = config(QWEN TERMINAL);
    oz_sched_flow_set_lightning(&c);
    const double n8[] = {1, 0.9545455, 0.9, 0.8333333, 0.75, 0.6428571, 0.5, 0.3, 0};
    const double n4[] = {1, 0.9, 0.75, 0.5, 0};
    expect(&c, 4096, 8, n8, 9);
    expect(&c, 64, 8, n8, 9);
    expect(&c, 4096, 4, n4, 5);
    struct oz_sched_flow_config written =
        config(CLASS ", \"use_dynamic_shifting\": true, \"base_shift\": 1.0986122886681098, "
                     "\"max_shift\": 1.0986122886681098, \"shift_terminal\": null");
    expect(&written, 4096, 4, n4, 5);
}

static void constant_shift(void **state)
{
    const double plain[] = {1, 0.75, 0.5, 0.25, 0};
    const double three[] = {1, 0.9, 0.75, 0.5, 0};
    struct oz_sched_flow_config c = config(CLASS);
    expect(&c, 4096, 4, plain, 5);
    c = config(CLASS ", \"shift\": 3.0");
    expect(&c, 4096, 4, three, 5);
    c = config(CLASS ", \"use_dynamic_shifting\": true, \"time_shift_type\": \"linear\", "
                     "\"base_shift\": 3, \"max_shift\": 3");
    expect(&c, 4096, 4, three, 5);
}

static void one_step(void **state)
{
    const double want[] = {1, 0};
    struct oz_sched_flow_config c = config(QWEN TERMINAL);
    expect(&c, 64, 1, want, 2);
    c = config(CLASS ", \"shift\": 3.0");
    expect(&c, 64, 1, want, 2);
}

static int64_t ulps(float a, float b)
{
    return llabs((int64_t)oz_f32_bits(a) - (int64_t)oz_f32_bits(b));
}

/* diffusers' sigmas and timesteps for the three parity cases. */
static void reference(void **state)
{
    struct oz_sched_flow_config c = config(QWEN TERMINAL);
    struct oz_ckpt *file;
    const struct {
        int64_t tokens;
        int32_t steps;
    } cases[] = {{64, 20}, {64, 20}, {60, 8}};
    int64_t worst = 0;
    assert_int_equal(oz_ckpt_open(&file, OZ_TEST_DIR "/parity/reference.safetensors", NULL, &err),
                     OZ_OK);
    for (int i = 0; i < 3; i++) {
        char name[64];
        float got[21];
        float sigmas[21];
        float timesteps[20];
        int32_t n = cases[i].steps;
        (void)snprintf(name, sizeof name, "f32.case%d.sigmas", i);
        const struct oz_tensor_view *t = oz_ckpt_find(file, name, NULL);
        assert_true(t != NULL && t->elements == n + 1);
        memcpy(sigmas, t->data, (size_t)t->bytes);
        (void)snprintf(name, sizeof name, "f32.case%d.timesteps", i);
        t = oz_ckpt_find(file, name, NULL);
        assert_true(t != NULL && t->elements == n);
        memcpy(timesteps, t->data, (size_t)t->bytes);
        assert_int_equal(oz_sched_flow_sigmas(&c, cases[i].tokens, n, got, &err), OZ_OK);
        for (int32_t k = 0; k <= n; k++) {
            int64_t d = ulps(got[k], sigmas[k]);
            worst = d > worst ? d : worst;
        }
        for (int32_t k = 0; k < n; k++) {
            int64_t d = ulps(oz_sched_flow_timestep(&c, got[k]), timesteps[k]);
            worst = d > worst ? d : worst;
        }
    }
    oz_ckpt_close(&file);
    print_message("sigmas and timesteps: at most %d ulp from the reference\n", (int)worst);
    assert_int_equal(worst, 0);
}

static void take_line(void *ctx, enum oz_log_level level, const char *topic, const char *message)
{
    if (level == OZ_LOG_WARN) {
        (void)snprintf(ctx, 256, "%s", message);
    }
}

static void unknown_keys_are_named(void **state)
{
    char line[256] = "";
    oz_log_set(take_line, line);
    (void)config(CLASS ", \"sigma_max\": 2.0, \"other\": null");
    oz_log_set(NULL, NULL);
    assert_non_null(strstr(line, "\"sigma_max\""));
}

/* The reference's pipeline divides the timestep by 1000, whatever the scheduler counts to. */
static void the_model_sees_thousandths(void **state)
{
    struct oz_sched_flow_config c = config(CLASS);
    assert_true(oz_sched_flow_model_time(&c, 0.7F) == 0.7F);
    c = config(CLASS ", \"num_train_timesteps\": 500");
    assert_true(oz_sched_flow_model_time(&c, 0.5F) == 0.25F);
}

static void refused(void **state)
{
    static const struct {
        const char *members;
        enum oz_status status;
        const char *says;
    } cases[] = {
        {CLASS ", \"use_karras_sigmas\": true", OZ_ERR_UNSUPPORTED, "use_karras_sigmas"},
        {CLASS ", \"use_exponential_sigmas\": true", OZ_ERR_UNSUPPORTED, "use_exponential_sigmas"},
        {CLASS ", \"use_beta_sigmas\": true", OZ_ERR_UNSUPPORTED, "use_beta_sigmas"},
        {CLASS ", \"invert_sigmas\": true", OZ_ERR_UNSUPPORTED, "invert_sigmas"},
        {CLASS ", \"stochastic_sampling\": true", OZ_ERR_UNSUPPORTED, "stochastic_sampling"},
        {CLASS ", \"stochastic_sampling\": 1", OZ_ERR_FORMAT, "stochastic_sampling"},
        {CLASS ", \"time_shift_type\": \"cubic\"", OZ_ERR_UNSUPPORTED, "cubic"},
        {CLASS ", \"shift\": \"3\"", OZ_ERR_FORMAT, "shift"},
        {CLASS ", \"shift\": 0", OZ_ERR_FORMAT, "shift"},
        {CLASS ", \"shift\": 1e300", OZ_ERR_FORMAT, "\"shift\" is 1e+300"},
        {CLASS ", \"base_shift\": 1e300", OZ_ERR_FORMAT,
         "\"base_shift\" is 1e+300; it must lie in"},
        {CLASS ", \"max_shift\": -101", OZ_ERR_FORMAT,
         "\"max_shift\" is -101; it must lie in -100"},
        {CLASS ", \"shift_terminal\": 1.0", OZ_ERR_FORMAT, "shift_terminal"},
        {CLASS ", \"num_train_timesteps\": 0", OZ_ERR_FORMAT, "num_train_timesteps"},
        {CLASS ", \"use_dynamic_shifting\": true, \"max_image_seq_len\": 256", OZ_ERR_FORMAT,
         "max_image_seq_len"},
        {"\"_class_name\": \"UniPCMultistepScheduler\"", OZ_ERR_UNSUPPORTED, "UniPC"},
        {"\"shift\": 3.0", OZ_ERR_FORMAT, "_class_name"},
    };
    struct oz_sched_flow_config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_config(&c, cases[i].members), cases[i].status);
        assert_non_null(strstr(err.message, cases[i].says));
    }
    float s[21];
    c = config(QWEN TERMINAL);
    assert_int_equal(oz_sched_flow_sigmas(&c, 64, 0, s, &err), OZ_ERR_ARG);
    assert_int_equal(oz_sched_flow_sigmas(&c, 0, 8, s, &err), OZ_ERR_ARG);
    assert_int_equal(oz_sched_flow_sigmas(&c, 2000000, 20, s, &err), OZ_ERR_ARG);
}

static enum oz_status lay_over(struct oz_sched_flow_config *c, const char *text)
{
    struct oz_json *root;
    assert_int_equal(oz_json_parse(&root, text, strlen(text), "mine", &err), OZ_OK);
    enum oz_status status = oz_sched_flow_config_override(c, root, "mine", &err);
    oz_json_free(root);
    return status;
}

/* Lightning's own recipe, whole or in the members that matter, over the model's config. */
static void overrides(void **state)
{
    static const char *const recipes[] = {
        "{" CLASS ", \"base_image_seq_len\": 256, \"base_shift\": 1.0986122886681098, "
        "\"invert_sigmas\": false, \"max_image_seq_len\": 8192, \"max_shift\": "
        "1.0986122886681098, \"num_train_timesteps\": 1000, \"shift\": 1.0, "
        "\"shift_terminal\": null, \"stochastic_sampling\": false, \"time_shift_type\": "
        "\"exponential\", \"use_beta_sigmas\": false, \"use_dynamic_shifting\": true, "
        "\"use_exponential_sigmas\": false, \"use_karras_sigmas\": false}",
        "{\"base_shift\": 1.0986122886681098, \"max_shift\": 1.0986122886681098, "
        "\"shift_terminal\": null}",
        "{\"use_dynamic_shifting\": false, \"shift\": 3, \"shift_terminal\": null}",
    };
    const double n8[] = {1, 0.9545455, 0.9, 0.8333333, 0.75, 0.6428571, 0.5, 0.3, 0};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        struct oz_sched_flow_config c = config(QWEN TERMINAL);
        if (lay_over(&c, recipes[i]) != OZ_OK) {
            fail_msg("%s", err.message);
        }
        expect(&c, 4096, 8, n8, 9);
        assert_int_equal(c.max_image_seq_len, 8192); /* what is not named stays */
    }
}

static void overrides_refused(void **state)
{
    static const struct {
        const char *text;
        enum oz_status status;
        const char *says;
    } cases[] = {
        {"{}", OZ_ERR_ARG, "mine changes nothing"},
        {"{\"_note\": 1, \"use_karras_sigmas\": false}", OZ_ERR_ARG, "changes nothing"},
        {"{\"base_shit\": 1}", OZ_ERR_ARG, "\"base_shit\" (did you mean \"base_shift\"?)"},
        {"{\"zebra\": null}", OZ_ERR_ARG, "\"zebra\"; there are num_train_timesteps"},
        {"{\"shift\": null}", OZ_ERR_ARG, "\"shift\" is null"},
        {"{\"shift\": \"3\"}", OZ_ERR_FORMAT, "shift"},
        {"{\"shift\": -1}", OZ_ERR_FORMAT, "above 0"},
        {"{\"max_image_seq_len\": 256}", OZ_ERR_FORMAT, "needs two points"},
        {"{\"use_karras_sigmas\": true}", OZ_ERR_UNSUPPORTED, "Karras"},
        {"{\"_class_name\": \"UniPCMultistepScheduler\", \"shift\": 1}", OZ_ERR_UNSUPPORTED,
         "UniPC"},
        {"[]", OZ_ERR_FORMAT, "must be an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_sched_flow_config c = config(QWEN TERMINAL);
        const struct oz_sched_flow_config before = c;
        if (lay_over(&c, cases[i].text) != cases[i].status ||
            strstr(err.message, cases[i].says) == NULL) {
            fail_msg("%s: \"%s\"", cases[i].text, err.message);
        }
        assert_true(c.shift == before.shift && c.base_shift == before.base_shift);
        assert_int_equal(c.max_image_seq_len, before.max_image_seq_len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values), cmocka_unit_test(lightning),
        cmocka_unit_test(constant_shift),   cmocka_unit_test(one_step),
        cmocka_unit_test(reference),        cmocka_unit_test(the_model_sees_thousandths),
        cmocka_unit_test(refused),          cmocka_unit_test(unknown_keys_are_named),
        cmocka_unit_test(overrides),        cmocka_unit_test(overrides_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
