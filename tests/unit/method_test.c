/* quant/method.h and quant/scheme.h: every name of both specs is known, says what it is, and what it
 * takes; programs add their own from many threads. */
#include "test.h"

#include <pthread.h>

#include "quant/method.h"

static struct oz_error err;

/* Every name that vLLM and vLLM-Omni accept, and what it stands for here. */
static const struct {
    const char *name, *canonical;
    enum oz_method_kind kind;
    const char *linear, *experts;
} known[] = {
    {"fp8", "fp8", OZ_METHOD_ONLINE, "fp8_per_tensor", "fp8_per_tensor"},
    {"FP8", "fp8", OZ_METHOD_ONLINE, "fp8_per_tensor", "fp8_per_tensor"},
    {"fp8_per_tensor", "fp8_per_tensor", OZ_METHOD_ONLINE, "fp8_per_tensor", "fp8_per_tensor"},
    {"fp8-per-channel", "fp8_per_channel", OZ_METHOD_ONLINE, "fp8_per_channel", "fp8_per_channel"},
    {"Fp8_Per-Block", "fp8_per_block", OZ_METHOD_ONLINE, "fp8_per_block", "fp8_per_block"},
    {"int8", "int8", OZ_METHOD_ONLINE, "int8", NULL},
    {"int8_per_channel_weight_only", "int8_per_channel_weight_only", OZ_METHOD_ONLINE, NULL,
     "int8_per_channel_weight_only"},
    {"experts_int8", "int8_per_channel_weight_only", OZ_METHOD_ONLINE, NULL,
     "int8_per_channel_weight_only"},
    {"mxfp8", "mxfp8", OZ_METHOD_ONLINE, "mxfp8", "mxfp8"},
    {"mxfp4", "mxfp4", OZ_METHOD_ONLINE, "mxfp4", "mxfp4"},
    {"mxfp4_dualscale", "mxfp4_dualscale", OZ_METHOD_ONLINE, "mxfp4_dualscale", NULL},
    {"nvfp4", "nvfp4", OZ_METHOD_ONLINE, "nvfp4", NULL},
    {"nvfp4_per_token", "nvfp4_per_token", OZ_METHOD_ONLINE, NULL, "nvfp4_per_token"},
    {"bitsandbytes", "bitsandbytes", OZ_METHOD_ONLINE, "bitsandbytes_nf4", NULL},
    {"online", "online", OZ_METHOD_CONFIG, NULL, NULL},
    {"none", "none", OZ_METHOD_NONE, NULL, NULL},
    {"awq", "awq", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"auto_awq", "awq", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"awq_marlin", "awq", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"gptq", "gptq", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"auto_gptq", "gptq", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"gptq_marlin", "gptq", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"moe_wna16", "moe_wna16", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"inc", "inc", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"auto-round", "inc", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"auto_round", "inc", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"compressed-tensors", "compressed_tensors", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"modelopt", "modelopt", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"modelopt_fp4", "modelopt_fp4", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"fp4", "modelopt_fp4", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"modelopt_mxfp8", "modelopt_mxfp8", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"modelopt_mixed", "modelopt_mixed", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"quark", "quark", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"torchao", "torchao", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"torchao_float8_weight_only", "torchao_float8_weight_only", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"svdquant", "svdquant", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"gguf", "gguf", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"ascend", "ascend", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"comfy_nvfp4", "comfy_nvfp4", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"int8_convrot", "int8_convrot", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"gpt_oss_mxfp4", "gpt_oss_mxfp4", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"comfy", "comfy", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"deepseek_v4_fp8", "deepseek_v4_fp8", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"fbgemm_fp8", "fbgemm_fp8", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"fp_quant", "fp_quant", OZ_METHOD_CHECKPOINT, NULL, NULL},
    {"humming", "humming", OZ_METHOD_ABSENT, NULL, NULL},
    {"lut_b_moe", "lut_b_moe", OZ_METHOD_ABSENT, NULL, NULL},
    {"quark_w4a8", "quark_w4a8", OZ_METHOD_ABSENT, NULL, NULL},
    {"quark-w4a8", "quark_w4a8", OZ_METHOD_ABSENT, NULL, NULL},
    {"quark_svdquant", "quark_svdquant", OZ_METHOD_ABSENT, NULL, NULL},
};
#define KNOWN ((int)(sizeof known / sizeof *known))

static void same_text(const char *a, const char *b)
{
    assert_true((a == NULL) == (b == NULL));
    if (a != NULL) {
        assert_string_equal(a, b);
    }
}

static void every_name_is_known(void **state)
{
    for (int i = 0; i < KNOWN; i++) {
        const struct oz_method *m;
        assert_int_equal(oz_method_get(&m, known[i].name, &err), OZ_OK);
        assert_string_equal(m->name, known[i].canonical);
        assert_int_equal(m->kind, known[i].kind);
        same_text(m->linear, known[i].linear);
        same_text(m->experts, known[i].experts);
        bool online = m->kind != OZ_METHOD_CHECKPOINT && m->kind != OZ_METHOD_ABSENT;
        assert_int_equal(oz_method_check_online(m, &err), online ? OZ_OK : OZ_ERR_UNSUPPORTED);
        if (!online) {
            assert_non_null(strstr(err.message, m->name));
            assert_non_null(strstr(err.message, "fp8_per_channel")); /* what works instead */
        }
        if (m->kind == OZ_METHOD_CHECKPOINT) {
            assert_non_null(strstr(err.message, "quantized already"));
            assert_true(oz_method_adopts(m, m->name));
        }
    }
    /* The list above is complete: nothing in the table was left out of it. */
    for (int kind = 0; kind <= OZ_METHOD_ABSENT; kind++) {
        const struct oz_method *m;
        for (int32_t i = 0; (m = oz_method_at((enum oz_method_kind)kind, i)) != NULL; i++) {
            bool listed = false;
            for (int k = 0; k < KNOWN; k++) {
                listed = listed || strcmp(known[k].canonical, m->name) == 0;
            }
            assert_true(listed);
        }
    }
    const char *name;
    for (int32_t i = 0; oz_method_alias(i, &name) != NULL; i++) {
        assert_string_equal(oz_method_find(oz_method_alias(i, &name))->name, name);
    }
}

static void unknown_names(void **state)
{
    const struct oz_method *m;
    assert_null(oz_method_find(""));
    assert_null(oz_method_find("fp8 "));
    assert_int_equal(oz_method_get(&m, "fp8_per_chanel", &err), OZ_ERR_ARG);
    assert_null(m);
    assert_non_null(strstr(err.message, "Unknown quantization method: \"fp8_per_chanel\""));
    assert_non_null(strstr(err.message, "did you mean \"fp8_per_channel\"?"));
    assert_non_null(strstr(err.message, "mxfp4_dualscale, nvfp4"));
    assert_int_equal(oz_method_get(&m, "zzzzzzzzzzzzzzzzzzzz", &err), OZ_ERR_ARG);
    assert_null(strstr(err.message, "did you mean"));
    /* Not "fp4", which names a kind of checkpoint and would be refused. */
    assert_int_equal(oz_method_get(&m, "q4", &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "\"q4\". Weights are quantized"));
}

static void schemes_are_whole(void **state)
{
    const struct oz_scheme_info *info;
    for (int32_t i = 0; (info = oz_scheme_at(i)) != NULL; i++) {
        assert_ptr_equal(oz_scheme_find(info->name), info);
        assert_non_null(oz_codec_find(info->codec));
        assert_non_null(oz_codec_find(info->codec)->encode);
        assert_true(info->linear || info->experts);
        assert_true((info->acts & OZ_ACT_BIT(OZ_ACT_NONE)) != 0);
        assert_true((info->acts & OZ_ACT_BIT(info->act)) != 0);
        assert_true((info->acts & OZ_ACT_BIT(info->native_act)) != 0);
        assert_int_equal(oz_scheme_allowed_acts(info->name), info->acts);
    }
    assert_null(oz_scheme_at(-1));
    assert_null(oz_scheme_find("fp8"));
    assert_int_equal(oz_scheme_allowed_acts("fp8"), 0);
    for (int i = 0; i < KNOWN; i++) {
        if (known[i].linear != NULL) {
            assert_true(oz_scheme_find(known[i].linear)->linear);
        }
        if (known[i].experts != NULL) {
            assert_true(oz_scheme_find(known[i].experts)->experts);
        }
    }
    struct oz_scheme stored = oz_scheme_as_stored();
    assert_null(stored.codec);
    assert_string_equal(stored.name, "as stored");
    assert_true(oz_scheme_equal(&stored, &stored));
    struct oz_scheme other = stored;
    other.acts[0] = OZ_ACT_MXFP8;
    assert_false(oz_scheme_equal(&stored, &other));
    assert_string_equal(oz_act_mode_name(OZ_ACT_MXFP4_DUALSCALE), "mxfp4_dualscale");
    assert_string_equal(oz_act_mode_name((enum oz_act_mode)99), "?");
}

/* Defaults of decisions.md 9: on a device without block-scaled units, on one with them, and on one
 * without a W4A4 kernel. */
static void default_activations(void **state)
{
    const uint32_t all = (1U << OZ_ACT_MODE_COUNT) - 1;
    const uint32_t block = OZ_ACT_BIT(OZ_ACT_MXFP8) | OZ_ACT_BIT(OZ_ACT_MXFP4);
    const struct oz_act_support cpu = {0, all};
    const struct oz_act_support gpu = {block, all};
    const struct oz_act_support bare = {0, OZ_ACT_BIT(OZ_ACT_NONE)};
    static const struct {
        const char *scheme;
        enum oz_act_mode cpu, gpu, bare;
    } want[] = {
        {"fp8_per_tensor", OZ_ACT_FP8_TOKEN, OZ_ACT_FP8_TOKEN, OZ_ACT_NONE},
        {"fp8_per_channel", OZ_ACT_FP8_TOKEN, OZ_ACT_FP8_TOKEN, OZ_ACT_NONE},
        {"fp8_per_block", OZ_ACT_FP8_GROUP, OZ_ACT_FP8_GROUP, OZ_ACT_NONE},
        {"int8", OZ_ACT_INT8_TOKEN, OZ_ACT_INT8_TOKEN, OZ_ACT_NONE},
        {"mxfp8", OZ_ACT_NONE, OZ_ACT_MXFP8, OZ_ACT_NONE},
        {"mxfp4", OZ_ACT_NONE, OZ_ACT_MXFP4, OZ_ACT_NONE},
        {"mxfp4_dualscale", OZ_ACT_MXFP4_DUALSCALE, OZ_ACT_MXFP4_DUALSCALE, OZ_ACT_NONE},
        {"nvfp4", OZ_ACT_NONE, OZ_ACT_NONE, OZ_ACT_NONE},
        {"bitsandbytes_nf4", OZ_ACT_NONE, OZ_ACT_NONE, OZ_ACT_NONE},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct oz_scheme s;
        const struct oz_scheme_info *info = oz_scheme_find(want[i].scheme);
        enum oz_status status = oz_scheme_make(&s, info, &cpu, &err);
        assert_int_equal(status, OZ_OK);
        assert_string_equal(s.codec->name, info->codec);
        assert_int_equal(s.acts[0], want[i].cpu);
        (void)!oz_scheme_make(&s, info, &gpu, &err);
        assert_int_equal(s.acts[0], want[i].gpu);
        (void)!oz_scheme_make(&s, info, &bare, &err);
        assert_int_equal(s.acts[0], want[i].bare);
    }
}

static void adoption(void **state)
{
    assert_true(oz_method_adopts(oz_method_find("fp8"), "modelopt"));
    assert_true(oz_method_adopts(oz_method_find("fp8"), "FP8"));
    assert_false(oz_method_adopts(oz_method_find("fp8"), "modelopt_fp4"));
    assert_false(oz_method_adopts(oz_method_find("fp8_per_tensor"), "fp8"));
    assert_true(oz_method_adopts(oz_method_find("nvfp4"), "modelopt_fp4"));
    assert_true(oz_method_adopts(oz_method_find("fp4"), "modelopt_fp4"));
    assert_true(oz_method_adopts(oz_method_find("auto-round"), "auto_round"));
    assert_false(oz_method_adopts(oz_method_find("modelopt_mixed"), "fp8"));
}

static void parameters(void **state)
{
    uint64_t fp8 = oz_method_find("fp8")->params;
    uint64_t shorthand = oz_method_find("fp8_per_tensor")->params;
    uint64_t mxfp4 = oz_method_find("mxfp4")->params;
    assert_int_not_equal(oz_method_param_find(fp8, "activation_scheme"), OZ_METHOD_PARAM_COUNT);
    assert_int_equal(oz_method_param_find(shorthand, "activation_scheme"), OZ_METHOD_PARAM_COUNT);
    assert_int_not_equal(oz_method_param_find(shorthand, "ignored_layers"), OZ_METHOD_PARAM_COUNT);
    enum oz_method_param alg = oz_method_param_find(mxfp4, "mxfp4_scale_alg");
    assert_int_equal(oz_method_param_at(alg)->type, OZ_MPT_NUMBER);
    assert_int_equal(oz_method_param_find(fp8, "mxfp4_scale_alg"), OZ_METHOD_PARAM_COUNT);
    assert_int_equal(oz_method_find("mxfp4_dualscale")->bf16_fallback, 5);
    assert_int_equal(oz_method_find("mxfp4")->bf16_fallback, 0);
}

/* ---- programs' own methods ---- */

static void refused(const struct oz_method *m, const char *part)
{
    assert_int_equal(oz_method_add(m, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, part));
}

static void wrong_methods_are_refused(void **state)
{
    refused(&(struct oz_method){.name = "", .linear = "mxfp4"}, "1 to 63");
    refused(&(struct oz_method){.linear = "mxfp4"}, "1 to 63");
    refused(&(struct oz_method){.name = "a b", .linear = "mxfp4"}, "\"a b\"");
    refused(&(struct oz_method){.name = "mine"}, "no scheme");
    refused(&(struct oz_method){.name = "mine", .linear = "fp8_per_chanel"},
            "did you mean \"fp8_per_channel\"?");
    refused(&(struct oz_method){.name = "mine", .linear = "nvfp4_per_token"}, "linear layers");
    refused(&(struct oz_method){.name = "mine", .experts = "int8"}, "experts layers");
    refused(&(struct oz_method){.name = "Auto-Round", .linear = "mxfp4"}, "already");
    refused(&(struct oz_method){.name = "mine", .linear = "mxfp4", .bf16_fallback = -1}, "-1");
    refused(
        &(struct oz_method){.name = "mine", .linear = "int8", .act_set = true, .act = OZ_ACT_MXFP8},
        "takes no mxfp8");
    refused(
        &(struct oz_method){
            .name = "mine", .linear = "fp8_per_tensor", .act_set = true, .act = OZ_ACT_FP8_STATIC},
        "does not exist");
    assert_null(oz_method_find("mine"));
}

#define THREADS 8
#define EACH 9

/* Adds methods of its own and one that all want. */
static void *add_some(void *arg)
{
    static _Thread_local struct oz_error mine;
    char name[32];
    intptr_t wins = 0;
    for (int i = 0; i < EACH; i++) {
        (void)snprintf(name, sizeof name, "Thread%d-%d", (int)(intptr_t)arg, i);
        enum oz_status status =
            oz_method_add(&(struct oz_method){.name = name, .linear = "mxfp4"}, &mine);
        if (status == OZ_OK && oz_method_find(name) == NULL) {
            return (void *)(intptr_t)-1000;
        }
        status = oz_method_add(&(struct oz_method){.name = "shared",
                                                   .linear = "mxfp4",
                                                   .experts = "mxfp8",
                                                   .act_set = true,
                                                   .act = OZ_ACT_MXFP8,
                                                   .bf16_fallback = 2,
                                                   .note = "W4A8"},
                               &mine);
        wins += status == OZ_OK;
    }
    return (void *)wins;
}

static void methods_of_programs(void **state)
{
    pthread_t threads[THREADS];
    intptr_t wins = 0;
    for (intptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_some, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        wins += (intptr_t)result;
    }
    assert_int_equal(wins, 1);
    const struct oz_method *m = oz_method_find("SHARED");
    assert_true(m != NULL && m->act_set && m->act == OZ_ACT_MXFP8 && m->bf16_fallback == 2);
    assert_string_equal(m->linear, "mxfp4");
    assert_string_equal(m->experts, "mxfp8");
    assert_string_equal(m->note, "W4A8");
    /* 73 were asked for, 64 fit. */
    int32_t count = 0;
    while (oz_method_at(OZ_METHOD_ONLINE, count) != NULL) {
        count++;
    }
    assert_int_equal(count, 12 + 64);
    assert_int_equal(oz_method_add(&(struct oz_method){.name = "late", .linear = "mxfp4"}, &err),
                     OZ_ERR_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_known),
        cmocka_unit_test(unknown_names),
        cmocka_unit_test(schemes_are_whole),
        cmocka_unit_test(default_activations),
        cmocka_unit_test(adoption),
        cmocka_unit_test(parameters),
        cmocka_unit_test(wrong_methods_are_refused),
        cmocka_unit_test(methods_of_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
