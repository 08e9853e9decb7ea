/*
 * quant/config.h: requests of every shape, as tables: what is asked for, and the one form that it is
 * read into, or the error. Rows are called after the tables of the specs that they are about.
 */
#include "test.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/yaml.h"
#include "quant/config.h"
#include "quant/rules.h"
#include "scratch.h"

static struct oz_error err;

/* ---- a request in one line ---- */

static void put_slot(struct oz_buf *b, const char *what, const struct oz_slot *s)
{
    if (!s->weight_set && !s->act_set) {
        return;
    }
    oz_buf_printf(b, " %s%s=%s", what, s->given ? "!" : "",
                  !s->weight_set      ? "?"
                  : s->weight != NULL ? s->weight->name
                                      : "null");
    if (s->act_set) {
        oz_buf_printf(b, "/%s", oz_act_mode_name(s->act));
    }
}

static void put_strings(struct oz_buf *b, const char *what, const struct oz_strings *s)
{
    for (int32_t i = 0; i < s->count; i++) {
        oz_buf_printf(b, "%s%s%s", i == 0 ? " " : ",", i == 0 ? what : "", s->items[i]);
    }
}

static void put_settings(struct oz_buf *b, const struct oz_component_request *c)
{
    if (c->num_bf16_fallback_layers != 0) {
        oz_buf_printf(b, " bf16=%d", c->num_bf16_fallback_layers);
    }
    for (int32_t i = 0; i < c->w4a8_fallback_step_count; i++) {
        oz_buf_printf(b, "%s%d", i == 0 ? " steps=" : ",", c->w4a8_fallback_steps[i]);
    }
    put_strings(b, "layers=", &c->w4a8_fallback_layers);
    if (c->exponent_rule != OZ_EXPONENT_DEFAULT) {
        oz_buf_printf(b, " rule=%d/%d", (int)c->exponent_rule, (int)c->act_exponent_rule);
    }
    oz_buf_puts(b, c->scope == OZ_SCOPE_FUSED ? " fused" : "");
    oz_buf_puts(b, c->serialized ? " serialized" : "");
    oz_buf_puts(b, c->static_acts ? " static" : "");
    oz_buf_puts(b, c->smooth_required ? " smooth" : "");
    oz_buf_puts(b, c->ignored_substring ? " substring" : "");
}

static void put_request(struct oz_buf *b, const struct oz_request *q)
{
    for (int32_t i = 0; q != NULL && i < q->count; i++) {
        const struct oz_component_request *c = &q->components[i];
        oz_buf_printf(b, "%s%s:", i > 0 ? " | " : "", c->component != NULL ? c->component : "*");
        if (c->leave) {
            oz_buf_puts(b, " leave");
            continue;
        }
        oz_buf_printf(b, " %s", c->method != NULL ? c->method->name : "-");
        put_slot(b, "linear", &c->linear);
        put_slot(b, "moe", &c->moe);
        for (int32_t t = 0; t < c->target_count; t++) {
            oz_buf_printf(b, " %s->", c->targets[t].pattern);
            put_slot(b, "linear", &c->targets[t].linear);
            put_slot(b, "moe", &c->targets[t].moe);
        }
        put_strings(b, "ignore=", &c->ignore);
        put_strings(b, "ignored=", &c->ignored_layers);
        put_settings(b, c);
    }
}

struct request_case {
    const char *quantization, *config;
    const char *want;  /* the line, or */
    const char *error; /* parts of the message, " ... " between */
    const char *keys[4];
};

static void parts_are_there(const char *message, const char *parts, const char *what)
{
    while (*parts != '\0') {
        char part[200];
        const char *gap = strstr(parts, " ... ");
        size_t n = gap != NULL ? (size_t)(gap - parts) : strlen(parts);
        assert_true(n < sizeof part);
        memcpy(part, parts, n);
        part[n] = '\0';
        if (strstr(message, part) == NULL) {
            print_error("%s\n  says: %s\n  without: %s\n", what, message, part);
        }
        assert_non_null(strstr(message, part));
        parts += n + (gap != NULL ? 5 : 0);
    }
}

static void run_cases(const struct request_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct request_case *c = &cases[i];
        struct oz_request_text text = {
            .quantization = c->quantization, .config = c->config, .keys = c->keys};
        char what[600];
        struct oz_request *q;
        struct oz_buf b;
        while (text.key_count < 4 && c->keys[text.key_count] != NULL) {
            text.key_count++;
        }
        (void)snprintf(what, sizeof what, "-q %s %s %s",
                       c->quantization != NULL ? c->quantization : "",
                       c->config != NULL ? c->config : "", c->keys[0] != NULL ? c->keys[0] : "");
        enum oz_status status = oz_request_create(&q, &text, &err);
        oz_buf_init(&b, 1 << 20);
        put_request(&b, q);
        if (c->error != NULL) {
            if (status != OZ_ERR_ARG) {
                print_error("%s: %s\n", what, oz_buf_text(&b));
            }
            assert_int_equal(status, OZ_ERR_ARG);
            assert_int_equal(err.code, OZ_ERR_ARG);
            assert_null(q);
            parts_are_there(err.message, c->error, what);
        } else {
            if (status != OZ_OK || strcmp(oz_buf_text(&b), c->want) != 0) {
                print_error("%s\n  is:   %s\n  want: %s\n  %s\n", what, oz_buf_text(&b), c->want,
                            status != OZ_OK ? err.message : "");
            }
            assert_int_equal(status, OZ_OK);
            assert_string_equal(oz_buf_text(&b), c->want);
        }
        oz_buf_deinit(&b);
        oz_request_destroy(&q);
    }
}
#define RUN(cases) run_cases((cases), sizeof(cases) / sizeof *(cases))

#define FP8 "*: fp8 linear=fp8_per_tensor moe=fp8_per_tensor"
#define MX4 "*: mxfp4 linear=mxfp4 moe=mxfp4"
#include "config_cases.inc"

/* ---- vllm-omni 2.1: forms of the request ---- */

static void forms(void **state)
{
    RUN(forms_cases);
}

/* ---- decisions 1, vllm-omni 2.2: components ---- */

static void components(void **state)
{
    RUN(components_cases);
}

static void components_of_the_model(void **state)
{
    static const char *const names[] = {"text_encoder", "transformer", "vae"};
    static const struct {
        const char *config, *error; /* NULL: fine */
        const char *transformer, *transformer_2,
            *text_encoder; /* methods; NULL: nothing; "-": leave */
    } cases[] = {
        {"{\"method\":\"fp8\"}", NULL, "fp8", "fp8", NULL},
        {"{\"transformer\":\"fp8\"}", NULL, "fp8", NULL, NULL},
        {"{\"text_encoder\":\"int8\"}", NULL, NULL, NULL, "int8"},
        {"{\"default\":\"int8\",\"text_encoder\":null}", NULL, "int8", "int8", "-"},
        {"{\"default\":\"int8\",\"transformer\":\"fp8\"}", NULL, "fp8", "int8", "int8"},
        {"{\"transfomer\":\"fp8\"}", "called \"transfomer\" (did you mean \"transformer\"?)", NULL,
         NULL, NULL},
        {"{\"unet\":\"fp8\"}", "expected one of: text_encoder, transformer, vae, default", NULL,
         NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_request *q;
        struct oz_request_text text = {.config = cases[i].config};
        assert_int_equal(oz_request_create(&q, &text, &err), OZ_OK);
        enum oz_status status = oz_request_check_components(q, names, 3, &err);
        assert_int_equal(status, cases[i].error != NULL ? OZ_ERR_ARG : OZ_OK);
        if (cases[i].error != NULL) {
            parts_are_there(err.message, cases[i].error, cases[i].config);
        } else {
            const char *want[3] = {cases[i].transformer, cases[i].transformer_2,
                                   cases[i].text_encoder};
            const char *ask[3] = {"transformer", "transformer_2", "text_encoder"};
            for (int k = 0; k < 3; k++) {
                const struct oz_component_request *c = oz_request_for(q, ask[k], k < 2);
                assert_true((c == NULL) == (want[k] == NULL));
                if (c != NULL) {
                    assert_string_equal(c->leave ? "-" : c->method->name, want[k]);
                }
            }
        }
        oz_request_destroy(&q);
    }
    assert_null(oz_request_for(NULL, "transformer", true));
}

/* ---- vllm-omni 1.2, 1.3: parameters of methods ---- */

static void parameters(void **state)
{
    RUN(parameters_cases);
}

/* ---- vllm-online 2: slots, targets, ignore ---- */

static void online_configs(void **state)
{
    RUN(online_configs_cases);
}

/* ---- vllm-online 1.2: dotted keys ---- */

static void dotted_keys(void **state)
{
    RUN(dotted_keys_cases);
    struct oz_request *q;
    static const char *const twice[] = {"linear=mxfp4", "linear=mxfp8"};
    struct oz_request_text text = {.keys = twice, .key_count = 2};
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_OK);
    assert_int_equal(q->note_count, 1);
    assert_non_null(strstr(q->notes[0].why, "duplicate keys"));
    oz_request_destroy(&q);
}

static void ignored_layers_beside_a_config(void **state)
{
    static const char *const patterns[] = {"img_mlp", "re:.*to_out"};
    struct oz_request *q;
    struct oz_buf b;
    struct oz_request_text text = {.quantization = "fp8",
                                   .config = "{\"ignored_layers\":[\"a\"]}",
                                   .ignored_layers = patterns,
                                   .ignored_count = 2};
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_OK);
    oz_buf_init(&b, 1 << 12);
    put_request(&b, q);
    assert_string_equal(oz_buf_text(&b), FP8 " ignored=a,img_mlp,re:.*to_out");
    oz_buf_deinit(&b);
    oz_request_destroy(&q);
    text.config = NULL;
    text.quantization = NULL;
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "nothing is to be quantized"));
    text.config = "{\"transformer\":\"fp8\",\"vae\":\"fp8\"}";
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "several components"));
    text.config = "{\"transformer\":\"fp8\",\"vae\":null}";
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_OK);
    assert_int_equal(q->components[0].ignored_layers.count, 2);
    oz_request_destroy(&q);
    text.ignored_layers = (const char *const[]){"re:("};
    text.ignored_count = 1;
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_ARG);
    assert_null(q);
}

/* ---- files ---- */

static void files(void **state)
{
    struct oz_request *q;
    struct oz_request_text text = {.config = NULL};
    text.config = scratch_path("config.json");
    scratch_text("config.json", " {\"linear\": \"mxfp8\"}");
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_OK);
    assert_string_equal(q->components[0].linear.weight->name, "mxfp8");
    oz_request_destroy(&q);
    scratch_text("config.json", "{\"linear\": }");
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "config.json"));
    scratch_text("config.json", "[1]");
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "must be an object, not a list"));
}

static void yaml_files(void **state)
{
    struct oz_request *q;
    struct oz_buf b;
    struct oz_request_text text = {.config = NULL};
    text.config = scratch_path("config.yaml");
    scratch_text("config.yaml", "# half of it\n"
                                "transformer:\n"
                                "  method: mxfp4\n"
                                "  w4a8_fallback_steps: [0, 1]\n"
                                "  ignored_layers:\n"
                                "    - img_mlp\n"
                                "    - \"re:.*to_out\"\n"
                                "vae: null\n");
    enum oz_status status = oz_request_create(&q, &text, &err);
#if OZ_HAVE_YAML
    assert_int_equal(status, OZ_OK);
    oz_buf_init(&b, 1 << 12);
    put_request(&b, q);
    assert_string_equal(oz_buf_text(&b), "transformer: mxfp4 linear=mxfp4 moe=mxfp4 "
                                         "ignored=img_mlp,re:.*to_out steps=0,1 | vae: leave");
    oz_buf_deinit(&b);
    oz_request_destroy(&q);
    static const char *const bad[][2] = {
        {"a: &x 1\nb: *x\n", "anchors"}, {"a: *x\n", "aliases"},  {"a: [1\n", "not valid YAML"},
        {"a: 1\n---\nb: 2\n", "second"}, {"? [a]\n: 1\n", "key"}, {"a: !!int 3\n", "tags"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scratch_text("config.yaml", bad[i][0]);
        assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_FORMAT);
        parts_are_there(err.message, bad[i][1], bad[i][0]);
    }
#else
    (void)b;
    assert_int_equal(status, OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "JSON"));
#endif
}

#if OZ_HAVE_YAML
static void yaml_becomes_json(void **state)
{
    static const char *const cases[][2] = {
        {"", "null"},
        {"a", "\"a\""},
        {"[~, null, true, False, 1, -2.5e3, 01, 1., .5, '1', \"\\u00e9\", a b]",
         "[null,null,true,false,1,-2.5e3,\"01\",\"1.\",\".5\",\"1\",\"\xC3\xA9\",\"a b\"]"},
        {"{a: {b: []}, true: 1, c: }", "{\"a\":{\"b\":[]},\"true\":1,\"c\":null}"},
        {"- a: 1\n  b: 2\n- - x\n  - y\n", "[{\"a\":1,\"b\":2},[\"x\",\"y\"]]"},
        {"a: |\n  x\n  y\n", "{\"a\":\"x\\ny\\n\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json;
        assert_int_equal(oz_yaml_to_json(cases[i][0], strlen(cases[i][0]), "x", &json, &err),
                         OZ_OK);
        assert_string_equal(json, cases[i][1]);
        oz_free(json);
    }
    char deep[200];
    char *json;
    memset(deep, '[', sizeof deep);
    assert_int_equal(oz_yaml_to_json(deep, sizeof deep, "x", &json, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "deep"));
}
#endif

/* ---- hostile input ---- */

static void bounds(void **state)
{
    struct oz_request *q;
    struct oz_buf b;
    struct oz_request_text text = {0};
    oz_buf_init(&b, 4U << 20);
    oz_buf_puts(&b, "{\"method\":\"fp8\",\"ignored_layers\":[\"a\"");
    for (int i = 0; i < OZ_CONFIG_MAX_ITEMS; i++) {
        oz_buf_puts(&b, ",\"a\"");
    }
    oz_buf_puts(&b, "]}");
    text.config = oz_buf_text(&b);
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "4097 entries; at most 4096"));
    oz_buf_deinit(&b);

    oz_buf_init(&b, 4U << 20);
    oz_buf_puts(&b, "{\"a\":");
    for (int i = 0; i < 2 * OZ_CONFIG_MAX_DEPTH; i++) {
        oz_buf_puts(&b, "[");
    }
    for (int i = 0; i < 2 * OZ_CONFIG_MAX_DEPTH; i++) {
        oz_buf_puts(&b, "]");
    }
    oz_buf_puts(&b, "}");
    text.config = oz_buf_text(&b);
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_ARG);
    static const char *const keys[] = {"b=1"};
    text.keys = keys;
    text.key_count = 1;
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_ARG);
    text.key_count = 0;
    oz_buf_deinit(&b);

    oz_buf_init(&b, 4U << 20);
    oz_buf_puts(&b, "{\"a\":\"");
    while (b.bytes < OZ_CONFIG_MAX_BYTES) {
        oz_buf_puts(&b, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    }
    oz_buf_puts(&b, "\"}");
    text.config = oz_buf_text(&b);
    assert_int_equal(oz_request_create(&q, &text, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "at most 1048576"));
    oz_buf_deinit(&b);
}

/* Random changes to valid configs: whatever comes, an error with a message, or a request whose every
 * part can be read. Seed and round are printed by a failing assertion's neighbour. */
static void mutations(void **state)
{
    static const char *const seeds[] = {
        "{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[0,1],\"ignored_layers\":[\"re:a.*b\"]}",
        "{\"linear\":{\"weight\":\"mxfp4\",\"activation\":null},\"ignore\":[\"*.x\",\"re:.*[qkv]\"]"
        "}",
        "{\"targets\":{\"*.q\":\"fp8_per_tensor\",\"re:.*k\":{\"weight\":\"int8\"}}}",
        "{\"transformer\":{\"method\":\"bitsandbytes\",\"quant_type\":\"fp4\"},\"default\":null}",
    };
    static const char *const bits[] = {"{",       "}",    "[",      "]",      "\"",    ":",
                                       ",",       "null", "true",   "-1",     "1e9",   "\"re:(\"",
                                       "\\u0000", "\xFF", "linear", "method", "mxfp8", "."};
    uint64_t x = 88172645463325252U;
    /* A sanitizer clears an arena's shadow for each. */
    int rounds = getenv("OUNCE_TEST_FEW") != NULL ? 1200 : 6000;
    for (int round = 0; round < rounds; round++) {
        char text[1024];
        char key[256] = "";
        (void)snprintf(text, sizeof text, "%s", seeds[round % 4]);
        for (int edit = 0; edit < 1 + round % 5; edit++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            size_t n = strlen(text);
            size_t at = n > 0 ? (size_t)(x % n) : 0;
            const char *bit = bits[(x >> 20) % (sizeof bits / sizeof *bits)];
            size_t cut = (x >> 30) % 6;
            char tail[1024];
            cut = cut < n - at ? cut : n - at;
            (void)snprintf(tail, sizeof tail, "%s", text + at + cut);
            (void)snprintf(text + at, sizeof text - at, "%s%s", bit, tail);
        }
        if (round % 3 == 0) {
            (void)snprintf(key, sizeof key, "%.100s%s%.100s", text + x % (strlen(text) + 1),
                           (x & 1024) != 0 ? "+=" : "=", text);
        }
        const char *const keys[] = {key};
        struct oz_request_text request = {
            .config = text, .keys = keys, .key_count = round % 3 == 0 ? 1 : 0};
        struct oz_request *q;
        err.message[0] = '\0';
        enum oz_status status = oz_request_create(&q, &request, &err);
        if (status != OZ_OK) {
            assert_null(q);
            assert_true(status == OZ_ERR_ARG || status == OZ_ERR_IO);
            assert_true(err.message[0] != '\0');
        } else {
            struct oz_buf b;
            oz_buf_init(&b, 1 << 20);
            put_request(&b, q);
            assert_int_equal(b.status, OZ_OK);
            oz_buf_deinit(&b);
            oz_request_destroy(&q);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(components),
        cmocka_unit_test(components_of_the_model),
        cmocka_unit_test(parameters),
        cmocka_unit_test(online_configs),
        cmocka_unit_test(dotted_keys),
        cmocka_unit_test(ignored_layers_beside_a_config),
        cmocka_unit_test(files),
        cmocka_unit_test(yaml_files),
#if OZ_HAVE_YAML
        cmocka_unit_test(yaml_becomes_json),
#endif
        cmocka_unit_test(bounds),
        cmocka_unit_test(mutations),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
