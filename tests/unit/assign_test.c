/*
 * quant/assign.h: the decision for each layer of a small diffusion transformer and a small language
 * model with experts, and every error that needs a model to be seen.
 */
#include "test.h"

#include "quant/assign.h"

static struct oz_error err;
static struct oz_arena arena, tables;
static struct oz_layer_table image, text;

enum { BLOCKS = 6 };

static void add(struct oz_layer_table *t, enum oz_layer_kind kind, enum oz_role role, int32_t block,
                const char *fused, int32_t index, const char *name)
{
    struct oz_layer row = {.kind = kind,
                           .role = role,
                           .rank = kind == OZ_LAYER_EXPERTS ? 3
                                   : kind == OZ_LAYER_NORM  ? 1
                                                            : 2,
                           .shape = {64, 64, 64},
                           .block_number = block,
                           .fused = fused,
                           .fused_index = index};
    oz_layer_add(t, &row, "%s", name);
}

static void add_block(struct oz_layer_table *t, int32_t block)
{
    static const struct {
        const char *name;
        enum oz_role role;
        enum oz_layer_kind kind;
    } rows[] = {
        {"img_mod.1.weight", OZ_ROLE_MODULATION, OZ_LAYER_LINEAR},
        {"img_mod.1.bias", OZ_ROLE_MODULATION, OZ_LAYER_VECTOR},
        {"attn.to_q.weight", OZ_ROLE_ATTN_QKV, OZ_LAYER_LINEAR},
        {"attn.to_k.weight", OZ_ROLE_ATTN_QKV, OZ_LAYER_LINEAR},
        {"attn.to_v.weight", OZ_ROLE_ATTN_QKV, OZ_LAYER_LINEAR},
        {"attn.norm_q.weight", OZ_ROLE_NORM, OZ_LAYER_NORM},
        {"attn.to_out.0.weight", OZ_ROLE_ATTN_OUT, OZ_LAYER_LINEAR},
        {"img_mlp.net.0.proj.weight", OZ_ROLE_MLP_UP, OZ_LAYER_LINEAR},
        {"img_mlp.net.2.weight", OZ_ROLE_MLP_DOWN, OZ_LAYER_LINEAR},
    };
    const char *fused = oz_layer_string(t, "transformer_blocks.%d.attn.to_qkv", block);
    for (int32_t i = 0; i < (int32_t)(sizeof rows / sizeof *rows); i++) {
        bool qkv = rows[i].role == OZ_ROLE_ATTN_QKV;
        add(t, rows[i].kind, rows[i].role, block + 1, qkv ? fused : NULL, qkv ? i : 0,
            oz_layer_string(t, "transformer_blocks.%d.%s", block, rows[i].name));
    }
}

static int open_tables(void **state)
{
    if (oz_arena_init_host(&tables, "tables", 1 << 22, &err) != OZ_OK ||
        oz_arena_init_host(&arena, "assignment", 1 << 24, &err) != OZ_OK ||
        oz_layer_table_init(&image, &tables, "transformer", 128, 0) != OZ_OK ||
        oz_layer_table_init(&text, &tables, "language_model", 64, 0) != OZ_OK) {
        return 1;
    }
    add(&image, OZ_LAYER_LINEAR, OZ_ROLE_EMBEDDER, 0, NULL, 0, "img_in.weight");
    for (int32_t i = 0; i < BLOCKS; i++) {
        add_block(&image, i);
    }
    add(&image, OZ_LAYER_LINEAR, OZ_ROLE_MODULATION, 0, NULL, 0, "norm_out.linear.weight");
    add(&image, OZ_LAYER_LINEAR, OZ_ROLE_FINAL, 0, NULL, 0, "proj_out.weight");

    static const char layer[] = "model.layers.0.mlp.experts";
    add(&text, OZ_LAYER_EMBED, OZ_ROLE_TOKEN_EMBED, 0, NULL, 0, "model.embed_tokens.weight");
    add(&text, OZ_LAYER_LINEAR, OZ_ROLE_ATTN_OUT, 1, NULL, 0,
        "model.layers.0.self_attn.o_proj.weight");
    add(&text, OZ_LAYER_LINEAR, OZ_ROLE_ROUTER, 1, NULL, 0, "model.layers.0.mlp.gate.weight");
    for (int i = 0; i < 2; i++) {
        add(&text, OZ_LAYER_EXPERTS, OZ_ROLE_EXPERT_UP, 1, layer, 0,
            oz_layer_string(&text, "%s.%d.up_proj.weight", layer, i));
        add(&text, OZ_LAYER_EXPERTS, OZ_ROLE_EXPERT_DOWN, 1, layer, 1,
            oz_layer_string(&text, "%s.%d.down_proj.weight", layer, i));
    }
    add(&text, OZ_LAYER_LINEAR, OZ_ROLE_LM_HEAD, 0, NULL, 0, "lm_head.weight");
    return oz_layer_table_finish(&image, &err) != OZ_OK ||
           oz_layer_table_finish(&text, &err) != OZ_OK;
}

static int close_tables(void **state)
{
    oz_arena_deinit(&arena);
    oz_arena_deinit(&tables);
    return 0;
}

#define ALL_ACTS ((1U << OZ_ACT_MODE_COUNT) - 1)

/* The CPU: every mode has a kernel, none is native. */
static const struct oz_assign_input cpu = {.acts = {0, ALL_ACTS}};

static struct oz_assignment a;

/* Reads a request and makes the assignment, in the arena; the request is gone afterwards, as in an
 * engine. */
static enum oz_status assign(const struct oz_layer_table *t, const char *config,
                             const struct oz_assign_input *base)
{
    struct oz_request *q;
    struct oz_assign_input in = *base;
    struct oz_request_text words = {0};
    *(*config == '{' ? &words.config : &words.quantization) = config;
    oz_arena_reset(&arena, 0);
    if (oz_request_create(&q, &words, &err) != OZ_OK) {
        print_error("%s: %s\n", config, err.message);
        fail();
    }
    in.table = t;
    in.request = oz_request_for(q, t->component, true);
    size_t room = oz_assign_bytes(t, in.request);
    err.message[0] = '\0';
    enum oz_status status = oz_assign(&a, &in, &arena, &err);
    if (status == OZ_OK) {
        const char *line;
        assert_int_equal(oz_assignment_summary(&a, &arena, &line, &err), OZ_OK);
        assert_true(arena.peak_bytes <= room || arena.used_bytes <= room);
    }
    oz_request_destroy(&q);
    return status;
}

static const struct oz_choice *choice(const char *name)
{
    const struct oz_layer *row = oz_layer_find(a.table, name);
    assert_non_null(row);
    return &a.choices[row - a.table->rows];
}

/* "source scheme act rule" of a row. */
static void is(const char *name, const char *want)
{
    char got[256];
    const struct oz_choice *c = choice(name);
    (void)snprintf(got, sizeof got, "%s, %s, %s%s%s, %s", oz_source_name(c->source), c->scheme.name,
                   oz_act_mode_name(c->scheme.acts[0]), c->scheme.mode_count == 2 ? "+" : "",
                   c->scheme.mode_count == 2 ? oz_act_mode_name(c->scheme.acts[1]) : "", c->rule);
    assert_string_equal(got, want);
    assert_true((c->scheme.codec == NULL) == (strcmp(c->scheme.name, "as stored") == 0));
}

#define B0 "transformer_blocks.0."
#define B5 "transformer_blocks.5."

static void nothing_asked(void **state)
{
    struct oz_assign_input in = cpu;
    in.table = &image;
    oz_arena_reset(&arena, 0);
    assert_int_equal(oz_assign(&a, &in, &arena, &err), OZ_OK);
    is(B0 "attn.to_q.weight", "stored, as stored, none, nothing asks");
    is(B0 "attn.norm_q.weight", "stored, as stored, none, not a linear layer");
    assert_int_equal(a.quantized, 0);
    assert_int_equal(assign(&image, "none", &cpu), OZ_OK);
    is(B0 "attn.to_q.weight", "stored, as stored, none, nothing asks");
    const char *line;
    assert_int_equal(oz_assignment_summary(&a, &arena, &line, &err), OZ_OK);
    assert_string_equal(line, "Quantized 0 layers.");
}

static void a_name_and_the_keep_lists(void **state)
{
    static const struct {
        enum oz_keep keep;
        int32_t quantized;
    } lists[] = {
        {OZ_KEEP_NONE, 3 + 7 * BLOCKS},
        {OZ_KEEP_STANDARD, 6 * BLOCKS},
        {OZ_KEEP_CONSERVATIVE, 4 * BLOCKS},
    };
    for (int i = 0; i < 3; i++) {
        struct oz_assign_input in = cpu;
        in.keep = lists[i].keep;
        assert_int_equal(assign(&image, "fp8", &in), OZ_OK);
        assert_int_equal(a.quantized, lists[i].quantized);
        is(B0 "attn.to_q.weight", "method, fp8_per_tensor, fp8_per_token, fp8");
        is(B0 "img_mod.1.bias", "stored, as stored, none, not a linear layer");
    }
    is(B0 "attn.to_out.0.weight", "keep, as stored, none, conservative: attn_out");
    is(B0 "img_mlp.net.2.weight", "keep, as stored, none, conservative: mlp_down");
    is("img_in.weight", "keep, as stored, none, conservative: embedder");
    is("proj_out.weight", "keep, as stored, none, conservative: final");
    is(B0 "img_mod.1.weight", "keep, as stored, none, conservative: modulation");
    assert_int_equal(assign(&text, "mxfp8", &cpu), OZ_OK);
    is("lm_head.weight", "keep, as stored, none, standard: lm_head");
    is("model.layers.0.mlp.gate.weight", "keep, as stored, none, standard: router");
    is("model.layers.0.mlp.experts.1.down_proj.weight", "method, mxfp8, none, mxfp8");
    enum oz_keep keep;
    assert_int_equal(oz_keep_parse(&keep, "Conservative", &err), OZ_OK);
    assert_int_equal(keep, OZ_KEEP_CONSERVATIVE);
    assert_int_equal(oz_keep_parse(&keep, NULL, &err), OZ_OK);
    assert_int_equal(keep, OZ_KEEP_STANDARD);
    assert_int_equal(oz_keep_parse(&keep, "standart", &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "did you mean \"standard\"?"));
}

/* One order of precedence: ignore, targets, keep, fallback, slot. */
static void rules_and_sources(void **state)
{
    assert_int_equal(assign(&image,
                            "{\"method\":\"mxfp4\",\"ignored_layers\":[\"img_mlp\",\"to_k\","
                            "\"transformer.proj_out\"],\"num_bf16_fallback_layers\":2}",
                            &cpu),
                     OZ_OK);
    is(B0 "attn.to_q.weight", "bf16_fallback, as stored, none, num_bf16_fallback_layers 2");
    is(B0 "img_mlp.net.2.weight", "ignore, as stored, none, img_mlp");
    is(B5 "attn.to_q.weight", "method, mxfp4, none, mxfp4");
    is(B5 "attn.to_k.weight", "ignore, as stored, none, to_k"); /* the group is split */
    is("proj_out.weight", "ignore, as stored, none, transformer.proj_out");
    assert_int_equal(a.quantized, 4 * 3);

    assert_int_equal(assign(&image,
                            "{\"linear\":{\"weight\":\"mxfp4\",\"activation\":\"mxfp8\"},"
                            "\"ignore\":[\"*.attn.to_*\",\"re:img_in\"]}",
                            &cpu),
                     OZ_OK);
    is(B0 "attn.to_q.weight", "ignore, as stored, none, *.attn.to_*");
    is(B0 "img_mlp.net.2.weight", "linear, mxfp4, mxfp8, mxfp4");

    /* targets beat the keep-list; what they do not name stays */
    assert_int_equal(
        assign(&image,
               "{\"targets\":{\"*.to_qkv\":\"int8\",\"re:.*img_mod\":\"fp8_per_block\","
               "\"*.img_mlp.net.2\":{\"weight\":null}}}",
               &cpu),
        OZ_OK);
    is(B0 "attn.to_v.weight", "targets, int8, int8_per_token, *.to_qkv");
    is(B0 "img_mod.1.weight", "targets, fp8_per_block, fp8_per_block, re:.*img_mod");
    is(B0 "img_mlp.net.2.weight", "targets, as stored, none, *.img_mlp.net.2");
    is(B0 "attn.to_out.0.weight", "stored, as stored, none, no pattern of targets");

    assert_int_equal(assign(&text, "{\"moe\":\"int8_per_channel_weight_only\"}", &cpu), OZ_OK);
    is("model.layers.0.mlp.experts.0.up_proj.weight",
       "moe, int8_per_channel_weight_only, none, int8_per_channel_weight_only");
    is("model.layers.0.self_attn.o_proj.weight", "stored, as stored, none, nothing asks");
    assert_int_equal(assign(&text, "{\"method\":\"mxfp4\",\"linear\":{\"weight\":null}}", &cpu),
                     OZ_OK);
    is("model.layers.0.self_attn.o_proj.weight", "linear, as stored, none, null");
    is("model.layers.0.mlp.experts.0.up_proj.weight", "method, mxfp4, none, mxfp4");
    assert_int_equal(assign(&text,
                            "{\"method\":\"mxfp4\",\"ignored_layers\":"
                            "[\"model.layers.0.mlp.experts.0.up_proj\"]}",
                            &cpu),
                     OZ_OK);
    is("model.layers.0.mlp.experts.1.up_proj.weight",
       "ignore, as stored, none, model.layers.0.mlp.experts.0.up_proj");
}

static void settings_of_schemes(void **state)
{
    assert_int_equal(assign(&image,
                            "{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[3,0,3],"
                            "\"w4a8_fallback_layers\":[\"transformer_blocks.5.attn.to_qkv\","
                            "\"transformer_blocks.5.img_mlp.net.2\",\"proj_out\"],"
                            "\"mxfp4_scale_alg\":2}",
                            &cpu),
                     OZ_OK);
    is(B0 "attn.to_q.weight", "method, mxfp4, mxfp4+mxfp8, mxfp4");
    is(B5 "attn.to_v.weight", "method, mxfp4, mxfp8, mxfp4");
    is(B5 "img_mlp.net.2.weight", "method, mxfp4, mxfp8, mxfp4");
    assert_int_equal(choice(B0 "attn.to_q.weight")->scheme.exponent_rule, OZ_EXPONENT_ALG2);
    assert_int_equal(choice(B0 "attn.to_q.weight")->scheme.act_exponent_rule, OZ_EXPONENT_ALG2);
    assert_int_equal(a.fallback_step_count, 2);
    assert_true(a.fallback_steps[0] == 0 && a.fallback_steps[1] == 3);
    assert_int_equal(a.note_count, 1); /* proj_out is kept: the entry has no effect */
    assert_non_null(strstr(a.notes[0].why, "no effect on proj_out"));

    assert_int_equal(assign(&image, "{\"method\":\"fp8\",\"scale_scope\":\"fused\"}", &cpu), OZ_OK);
    assert_int_equal(choice(B0 "attn.to_q.weight")->scheme.scope, OZ_SCOPE_FUSED);
    assert_int_equal(assign(&image, "mxfp4_dualscale", &cpu), OZ_OK);
    is("transformer_blocks.4.attn.to_q.weight",
       "bf16_fallback, as stored, none, num_bf16_fallback_layers 5");
    is(B5 "attn.to_q.weight", "method, mxfp4_dualscale, mxfp4_dualscale, mxfp4_dualscale");
    assert_int_equal(assign(&image, "{\"method\":\"bitsandbytes\",\"quant_type\":\"fp4\"}", &cpu),
                     OZ_OK);
    is(B0 "attn.to_q.weight", "method, bitsandbytes_fp4, none, bitsandbytes");
    assert_int_equal(assign(&image, "{\"method\":\"fp8\",\"activation\":null}", &cpu), OZ_OK);
    is(B0 "attn.to_q.weight", "method, fp8_per_tensor, none, fp8");
}

static void devices(void **state)
{
    struct oz_assign_input blackwell = {
        .acts = {OZ_ACT_BIT(OZ_ACT_MXFP8) | OZ_ACT_BIT(OZ_ACT_MXFP4), ALL_ACTS}};
    struct oz_assign_input plain = {.acts = {0, OZ_ACT_BIT(OZ_ACT_NONE)}};
    assert_int_equal(assign(&image, "mxfp8", &blackwell), OZ_OK);
    is(B0 "attn.to_q.weight", "method, mxfp8, mxfp8, mxfp8");
    assert_int_equal(assign(&image, "mxfp4_dualscale", &plain), OZ_OK);
    is(B5 "attn.to_q.weight", "method, mxfp4_dualscale, none, mxfp4_dualscale");
    assert_int_equal(a.note_count, 1);
    assert_non_null(strstr(a.notes[0].why, "weight-only"));
    assert_int_equal(assign(&image, "{\"method\":\"mxfp4\",\"activation\":\"mxfp8\"}", &plain),
                     OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "no kernel for mxfp8 activations"));
    assert_int_equal(assign(&image, "{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[0]}", &plain),
                     OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "no kernel for mxfp4 activations"));
}

/* ---- errors ---- */

static void errors(void **state)
{
    static const struct {
        bool text; /* the language model; else the transformer */
        enum oz_status status;
        const char *config, *part;
    } cases[] = {
        /* what the model does not have */
        {false, OZ_ERR_ARG, "{\"moe\":\"mxfp4\"}",
         "quantization_config.moe is given, but the transformer has no experts"},
        {false, OZ_ERR_ARG, "{\"method\":\"mxfp4\",\"moe\":{\"activation\":\"mxfp8\"}}",
         "has no experts"},
        {false, OZ_ERR_ARG, "nvfp4_per_token", "it is for experts, which this model does not have"},
        {false, OZ_ERR_ARG, "int8_per_channel_weight_only",
         "(int8_per_channel_weight_only) quantizes nothing"},
        /* methods of checkpoints, on a plain one */
        {false, OZ_ERR_UNSUPPORTED, "awq",
         "The method awq describes an AWQ checkpoint and cannot make one"},
        {false, OZ_ERR_UNSUPPORTED,
         "{\"quant_method\":\"compressed-tensors\",\"ignore\":[\"lm_head\"]}",
         "compressed_tensors describes"},
        {false, OZ_ERR_UNSUPPORTED, "humming", "names a kernel library"},
        {false, OZ_ERR_ARG, "{\"method\":\"fp8\",\"is_checkpoint_fp8_serialized\":true}",
         "the transformer is stored plain"},
        {false, OZ_ERR_ARG, "{\"method\":\"fp8\",\"activation_scheme\":\"static\"}",
         "scales from a quantized checkpoint"},
        {false, OZ_ERR_ARG, "{\"method\":\"fp8\",\"activation\":\"fp8_per_tensor_static\"}",
         "static activation scales come from"},
        /* patterns */
        {false, OZ_ERR_ARG, "{\"method\":\"fp8\",\"ignored_layers\":[\"img_mlpp\"]}",
         "ignored_layers entry \"img_mlpp\" matches no layer of the transformer; did you mean "
         "\"img_mlp\"?"},
        {false, OZ_ERR_ARG, "{\"method\":\"fp8\",\"modules_to_not_convert\":[\"to_p\"]}",
         "modules_to_not_convert entry \"to_p\""},
        {false, OZ_ERR_ARG, "{\"linear\":\"fp8\",\"ignore\":[\"to_q\"]}",
         "ignore entry \"to_q\" matches no layer"}, /* whole names only */
        {false, OZ_ERR_ARG, "{\"linear\":\"fp8\",\"ignore\":[\"vae.*\"]}",
         "ignore entry \"vae.*\" matches no layer"},
        {false, OZ_ERR_ARG, "{\"linear\":\"fp8\",\"ignore\":[\"*.to_q\"]}",
         "Found different quantization schemes for the shards of transformer_blocks.0.attn.to_qkv"},
        {false, OZ_ERR_ARG, "{\"method\":\"mxfp4\",\"w4a8_fallback_layers\":[\"attn.to_qkv\"]}",
         "w4a8_fallback_layers entry \"attn.to_qkv\" matches no layer"},
        {false, OZ_ERR_ARG, "{\"targets\":{\"*.to_p\":\"fp8\"}}",
         "targets entry \"*.to_p\" matches no layer of the transformer; did you mean"},
        {false, OZ_ERR_ARG, "{\"targets\":{\"*.to_q\":\"fp8\"}}",
         "Found unmatched shards for transformer_blocks.0.attn.to_qkv"},
        {false, OZ_ERR_ARG, "{\"targets\":{\"*.norm_q\":\"fp8\"}}",
         "Layer transformer_blocks.0.attn.norm_q was matched by quantization_config.targets "
         "(*.norm_q), but online quantization is not supported for a norm"},
        {true, OZ_ERR_ARG, "{\"targets\":{\"*embed_tokens\":\"fp8\"}}",
         "but online quantization is not supported for an embedding"},
        {true, OZ_ERR_ARG, "{\"targets\":{\"*\":\"fp8\"}}", "not supported for an embedding"},
        {true, OZ_ERR_ARG, "{\"targets\":{\"*experts\":\"int8\"}}",
         "targets pattern *experts = int8 does not define a QuantSpec for expert layers (matched "
         "at model.layers.0.mlp.experts.0"},
        {true, OZ_ERR_ARG, "{\"targets\":{\"*o_proj\":\"nvfp4_per_token\"}}",
         "does not define a QuantSpec for linear layers (matched at "
         "model.layers.0.self_attn.o_proj)"},
        {false, OZ_ERR_ARG, "{\"targets\":{\"*.to_qkv\":\"fp8\"},\"ignore\":[\"*.to_qkv\"]}",
         "matches both quantization_config.ignore (*.to_qkv) and quantization_config.targets "
         "(*.to_qkv)"},
        {false, OZ_ERR_ARG, "{\"targets\":{\"*.to_qkv\":\"fp8\",\"re:.*to_qkv\":\"fp8\"}}",
         "Found multiple quantization_config.targets matches"},
        {true, OZ_ERR_ARG,
         "{\"moe\":\"mxfp4\",\"ignore\":[\"model.layers.0.mlp.experts.0.up_proj\"]}",
         "matches no layer"},
        /* contradictions and requests without effect */
        {false, OZ_ERR_ARG,
         "{\"method\":\"mxfp4\",\"activation\":\"mxfp8\",\"w4a8_fallback_steps\":[0]}",
         "give one or the other"},
        {false, OZ_ERR_ARG, "{\"method\":\"fp8\",\"ignored_layers\":[\"re:.*\"]}",
         "quantizes nothing: of the 45 linear layers of the transformer all stay as stored (45 by "
         "ignore)"},
        {false, OZ_ERR_ARG, "{\"method\":\"fp8\",\"num_bf16_fallback_layers\":6}",
         "9 by keep, 36 by bf16_fallback"},
        {false, OZ_ERR_ARG, "{\"linear\":{\"activation\":\"mxfp8\"}}", "quantizes nothing"},
        {false, OZ_ERR_ARG, "{\"linear\":{\"weight\":null}}", "quantizes nothing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum oz_status status = assign(cases[i].text ? &text : &image, cases[i].config, &cpu);
        if (status != cases[i].status || strstr(err.message, cases[i].part) == NULL) {
            print_error("%s\n  says: %s\n", cases[i].config, err.message);
        }
        assert_int_equal(status, cases[i].status);
        assert_non_null(strstr(err.message, cases[i].part));
    }
}

static void unmatched_patterns_may_be_allowed(void **state)
{
    struct oz_assign_input in = cpu;
    in.allow_unmatched = true;
    assert_int_equal(
        assign(&image, "{\"method\":\"fp8\",\"ignored_layers\":[\"img_mpl\",\"to_q\"]}", &in),
        OZ_OK);
    assert_int_equal(a.note_count, 1);
    assert_string_equal(a.notes[0].what, "ignored_layers entry \"img_mpl\"");
    assert_string_equal(a.notes[0].why, "matches no layer of the transformer");
    /* what "default" says to a component that has no such layers is a note too */
    assert_int_equal(
        assign(&text, "{\"default\":{\"method\":\"int8\",\"ignored_layers\":[\"x\"]}}", &cpu),
        OZ_OK);
    assert_int_equal(a.note_count, 1);
    assert_int_equal(assign(&image, "{\"default\":\"nvfp4_per_token\"}", &cpu), OZ_OK);
    assert_int_equal(a.quantized, 0);
    assert_int_equal(a.note_count, 1);
}

/* sglang#24929: entries with a wrapper's suffix match nothing, and that is said. */
static void b24_wrapper_suffix(void **state)
{
    assert_int_equal(assign(&image,
                            "{\"method\":\"fp8\",\"ignored_layers\":["
                            "\"transformer_blocks.0.attn.to_q.linear\"]}",
                            &cpu),
                     OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "did you mean \"transformer_blocks.0.attn.to_q\"?"));
}

/* vllm#12617: unequal rules on parts keep the parts apart. */
static void b26_parts_of_a_fused_layer(void **state)
{
    assert_int_equal(assign(&image, "{\"method\":\"fp8\",\"ignored_layers\":[\"to_v\"]}", &cpu),
                     OZ_OK);
    is(B0 "attn.to_q.weight", "method, fp8_per_tensor, fp8_per_token, fp8");
    is(B0 "attn.to_k.weight", "method, fp8_per_tensor, fp8_per_token, fp8");
    is(B0 "attn.to_v.weight", "ignore, as stored, none, to_v");
}

/* auto-round#2168: an override is seen in the assignment, lm_head's too. */
static void b27_overrides_have_effect(void **state)
{
    assert_int_equal(
        assign(&text, "{\"targets\":{\"lm_head\":\"mxfp4\",\"*o_proj\":\"int8\"}}", &cpu), OZ_OK);
    is("lm_head.weight", "targets, mxfp4, none, lm_head");
    is("model.layers.0.self_attn.o_proj.weight", "targets, int8, int8_per_token, *o_proj");
    is("model.layers.0.mlp.gate.weight", "stored, as stored, none, no pattern of targets");
}

/* vllm-omni#2728: FP8 on every linear gives noise; the default keeps what is sensitive. */
static void b37_sensitive_layers_are_kept(void **state)
{
    assert_int_equal(assign(&image, "fp8", &cpu), OZ_OK);
    for (int32_t i = 0; i < image.count; i++) {
        enum oz_role role = image.rows[i].role;
        bool sensitive =
            role == OZ_ROLE_MODULATION || role == OZ_ROLE_EMBEDDER || role == OZ_ROLE_FINAL;
        assert_true(!sensitive || a.choices[i].scheme.codec == NULL);
    }
}

/* ---- checkpoints that are quantized ---- */

static struct oz_scheme stored[256];

/* The attention of block 0 is held in a scheme; the rest is plain. */
static struct oz_assign_input checkpoint(const struct oz_layer_table *t, const char *method,
                                         const char *scheme)
{
    struct oz_assign_input in = cpu;
    const struct oz_act_support support = {0, ALL_ACTS};
    struct oz_scheme s;
    assert_int_equal(oz_scheme_make(&s, oz_scheme_find(scheme), &support, &err), OZ_OK);
    for (int32_t i = 0; i < t->count; i++) {
        bool held = strstr(t->rows[i].name, ".0.attn.to_") != NULL ||
                    strstr(t->rows[i].name, "experts") != NULL;
        stored[i] = held ? s : oz_scheme_as_stored();
    }
    in.stored = stored;
    in.checkpoint_method = method;
    return in;
}

static void quantized_checkpoints(void **state)
{
    struct oz_assign_input in = checkpoint(&image, "modelopt", "fp8_per_tensor");
    in.table = &image;
    oz_arena_reset(&arena, 0);
    assert_int_equal(oz_assign(&a, &in, &arena, &err), OZ_OK);
    is(B0 "attn.to_q.weight", "checkpoint, fp8_per_tensor, fp8_per_token, modelopt");
    is(B5 "attn.to_q.weight", "stored, as stored, none, nothing asks");
    assert_int_equal(a.quantized, 0);
    /* fp8 adopts; what the checkpoint left plain stays plain */
    assert_int_equal(assign(&image, "fp8", &in), OZ_OK);
    is(B0 "attn.to_q.weight", "checkpoint, fp8_per_tensor, fp8_per_token, modelopt");
    is(B5 "attn.to_q.weight", "stored, as stored, none, nothing asks");
    assert_int_equal(assign(&image, "{\"method\":\"fp8\",\"activation\":null}", &in), OZ_OK);
    is(B0 "attn.to_q.weight", "checkpoint, fp8_per_tensor, none, modelopt");
    assert_int_equal(assign(&image, "{\"method\":\"fp8\",\"ignored_layers\":[\"to_q\"]}", &in),
                     OZ_OK);
    assert_int_equal(a.note_count, 1);
    /* the shorthand does not, nor does another method */
    static const char *const refused[] = {
        "fp8_per_tensor", "fp8_per_channel", "mxfp4", "int8", "awq", "nvfp4", "modelopt_fp4"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(assign(&image, refused[i], &in), OZ_ERR_ARG);
        assert_non_null(
            strstr(err.message, "(modelopt) does not match the `quantization` argument"));
        assert_non_null(strstr(err.message, "conflicts with checkpoint"));
    }
    /* an online config is laid over it */
    assert_int_equal(assign(&image, "{\"targets\":{\"*.img_mlp.*\":\"mxfp8\"}}", &in), OZ_OK);
    is(B0 "attn.to_q.weight", "checkpoint, fp8_per_tensor, fp8_per_token, modelopt");
    is(B0 "img_mlp.net.2.weight", "targets, mxfp8, none, *.img_mlp.*");
    assert_int_equal(
        assign(&image, "{\"method\":\"modelopt\",\"targets\":{\"*.img_mlp.*\":\"mxfp8\"}}", &in),
        OZ_OK);
    assert_int_equal(assign(&image, "{\"linear\":\"mxfp8\",\"ignore\":[\"*.0.attn.to_*\"]}", &in),
                     OZ_OK);
    is(B0 "attn.to_q.weight", "checkpoint, fp8_per_tensor, fp8_per_token, modelopt");
    is(B5 "attn.to_q.weight", "linear, mxfp8, none, mxfp8");
    assert_int_equal(assign(&image, "{\"linear\":\"mxfp8\"}", &in), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "is a pre-quantized layer (modelopt)"));
    assert_int_equal(assign(&image, "{\"targets\":{\"*.to_qkv\":\"mxfp8\"}}", &in), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "pre-quantized layer"));
    /* an unset weight is the checkpoint's */
    assert_int_equal(assign(&image, "{\"linear\":{\"activation\":null}}", &in), OZ_OK);
    is(B0 "attn.to_q.weight", "checkpoint, fp8_per_tensor, none, modelopt");
    assert_int_equal(assign(&image, "{\"linear\":{\"activation\":\"mxfp8\"}}", &in), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "remove the override or align it with the checkpoint"));
    /* deferred: the names mxfp4 and mxfp8 mean the checkpoint's where it is one */
    in = checkpoint(&text, "mxfp4", "mxfp4");
    assert_int_equal(assign(&text, "mxfp4", &in), OZ_OK);
    is("model.layers.0.mlp.experts.0.up_proj.weight", "checkpoint, mxfp4, none, mxfp4");
    is("model.layers.0.self_attn.o_proj.weight", "stored, as stored, none, nothing asks");
    assert_int_equal(assign(&text, "{\"moe\":{\"activation\":\"mxfp8\"}}", &in), OZ_OK);
    is("model.layers.0.mlp.experts.0.up_proj.weight", "checkpoint, mxfp4, mxfp8, mxfp4");
    assert_int_equal(assign(&text, "mxfp8", &in), OZ_ERR_ARG);
}

/* The table of what a request and a checkpoint make of each other (docs/quantization/configuration.md): a
 * row for each line. "held" is the checkpoint's method and the scheme of its attention in block 0; the
 * result is that row's choice, or the words of the refusal. */
static const struct decision {
    const char *line, *held_method, *held_scheme, *request;
    enum oz_status status;
    const char *result;
} decisions[] = {
    {"a plain checkpoint, no request", NULL, NULL, NULL, OZ_OK,
     "stored, as stored, none, nothing asks"},
    {"a plain checkpoint: the request quantizes", NULL, NULL, "int8", OZ_OK,
     "method, int8, int8_per_token, int8"},
    {"a plain checkpoint, said to be quantized", NULL, NULL,
     "{\"method\":\"fp8\",\"is_checkpoint_fp8_serialized\":true}", OZ_ERR_ARG, "is stored plain"},
    {"a plain checkpoint, static activations", NULL, NULL,
     "{\"method\":\"fp8\",\"activation_scheme\":\"static\"}", OZ_ERR_ARG, "is stored plain"},
    {"no request: the checkpoint as it is", "modelopt_fp4", "nvfp4", NULL, OZ_OK,
     "checkpoint, nvfp4, none, modelopt_fp4"},
    {"the checkpoint's own name", "mxfp8", "mxfp8", "mxfp8", OZ_OK,
     "checkpoint, mxfp8, none, mxfp8"},
    {"another method", "mxfp8", "mxfp8", "int8", OZ_ERR_ARG, "(mxfp8) does not match"},
    {"fp8 adopts ModelOpt's FP8", "modelopt", "fp8_per_tensor", "fp8", OZ_OK,
     "checkpoint, fp8_per_tensor, fp8_per_token, modelopt"},
    {"fp8 adopts ComfyUI's FP8", "comfy", "fp8_per_tensor", "fp8", OZ_OK,
     "checkpoint, fp8_per_tensor, fp8_per_token, comfy"},
    {"fp8 does not adopt NVFP4", "modelopt_fp4", "nvfp4", "fp8", OZ_ERR_ARG, "modelopt_fp4"},
    {"nvfp4 and fp4 adopt ModelOpt's NVFP4", "modelopt_fp4", "nvfp4", "nvfp4", OZ_OK,
     "checkpoint, nvfp4, none, modelopt_fp4"},
    {"and fp4", "modelopt_fp4", "nvfp4", "fp4", OZ_OK, "checkpoint, nvfp4, none, modelopt_fp4"},
    {"mixed precision is adopted by its own name alone", "modelopt_mixed", "nvfp4", "nvfp4",
     OZ_ERR_ARG, "modelopt_mixed"},
    {"and by that", "modelopt_mixed", "nvfp4", "modelopt_mixed", OZ_OK,
     "checkpoint, nvfp4, none, modelopt_mixed"},
    {"comfy adopts all of ComfyUI", "comfy_nvfp4", "nvfp4", "comfy", OZ_OK,
     "checkpoint, nvfp4, none, comfy_nvfp4"},
    {"ascend is msModelSlim's alone", "ascend", "int8", "ascend", OZ_OK,
     "checkpoint, int8, int8_per_token, ascend"},
    {"ascend makes nothing", NULL, NULL, "ascend", OZ_ERR_UNSUPPORTED,
     "The method ascend describes an msModelSlim checkpoint and cannot make one"},
    {"ascend takes no other toolchain's", "modelopt", "fp8_per_tensor", "ascend", OZ_ERR_ARG,
     "(modelopt) does not match the `quantization` argument (ascend)"},
    {"the flag of a serialized checkpoint is not the request's to deny", "int8", "int8",
     "{\"method\":\"int8\",\"is_checkpoint_int8_serialized\":false}", OZ_OK,
     "checkpoint, int8, int8_per_token, int8"},
    {"ignored_layers of the request give way to the file's", "mxfp4", "mxfp4",
     "{\"method\":\"mxfp4\",\"ignored_layers\":[\"to_q\"]}", OZ_OK,
     "checkpoint, mxfp4, none, mxfp4"},
    {"the caller's policy goes before the file's: steps", "mxfp4", "mxfp4",
     "{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[0,1]}", OZ_OK,
     "checkpoint, mxfp4, mxfp4+mxfp8, mxfp4"},
    {"layers", "mxfp4", "mxfp4",
     "{\"method\":\"mxfp4\",\"w4a8_fallback_layers\":[\"transformer_blocks.0.attn.to_q\"]}", OZ_OK,
     "checkpoint, mxfp4, mxfp8, mxfp4"},
    {"which are about W4A4", "mxfp4", "int8", "{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[0]}",
     OZ_ERR_ARG, "w4a8_fallback_steps"},
    {"activations are the request's", "modelopt", "fp8_per_tensor",
     "{\"method\":\"fp8\",\"activation\":null}", OZ_OK,
     "checkpoint, fp8_per_tensor, none, modelopt"},
    {"static ones, too", "modelopt", "fp8_per_tensor",
     "{\"linear\":{\"activation\":\"fp8_per_tensor_static\"}}", OZ_OK,
     "checkpoint, fp8_per_tensor, fp8_static, modelopt"},
    {"where the scheme has them", "modelopt_fp4", "nvfp4",
     "{\"linear\":{\"activation\":\"fp8_per_tensor_static\"}}", OZ_ERR_ARG,
     "align it with the checkpoint"},
    {"a deferred name gives way to the checkpoint", "gpt_oss_mxfp4", "mxfp4", "mxfp4", OZ_OK,
     "checkpoint, mxfp4, none, gpt_oss_mxfp4"},
    {"the shorthand does not", "fp8", "fp8_per_tensor", "fp8_per_tensor", OZ_ERR_ARG,
     "conflicts with checkpoint"},
    {"an online config over what is plain", "modelopt", "fp8_per_tensor",
     "{\"targets\":{\"*.img_mlp.*\":\"mxfp8\"}}", OZ_OK,
     "checkpoint, fp8_per_tensor, fp8_per_token, modelopt"},
    {"but not over what is quantized", "modelopt", "fp8_per_tensor", "{\"linear\":\"mxfp8\"}",
     OZ_ERR_ARG, "is a pre-quantized layer (modelopt)"},
    {"none keeps what the file holds", "modelopt", "fp8_per_tensor", "none", OZ_OK,
     "checkpoint, fp8_per_tensor, fp8_per_token, modelopt"},
};

static void reconciliation(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        const struct decision *d = &decisions[i];
        struct oz_assign_input in = cpu;
        enum oz_status status;
        if (d->held_method != NULL) {
            in = checkpoint(&image, d->held_method, d->held_scheme);
        }
        in.table = &image;
        if (d->request == NULL) {
            oz_arena_reset(&arena, 0);
            status = oz_assign(&a, &in, &arena, &err);
        } else {
            status = assign(&image, d->request, &in);
        }
        bool right = status == d->status && (status == OZ_OK || strstr(err.message, d->result));
        if (right && status == OZ_OK) {
            is(B0 "attn.to_q.weight", d->result);
        }
        if (!right) {
            print_error("%s: %d, %s\n", d->line, (int)status, status == OZ_OK ? "" : err.message);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

/* ---- shapes, advice, the summary ---- */

static void shapes_are_never_passed_over(void **state)
{
    const struct oz_codec whole = {.name = "test", .col_multiple = 48};
    const struct oz_scheme s = {.name = "test48", .codec = &whole};
    struct oz_layer layer = {.module = "a.b", .rank = 2, .shape = {10, 96}};
    assert_int_equal(oz_scheme_check_shape(&s, &layer, &err), OZ_OK);
    layer.shape[1] = 100;
    assert_int_equal(oz_scheme_check_shape(&s, &layer, &err), OZ_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "a.b has 100 input features; test48 needs a multiple of 48. Add "
                        "the layer to ignored_layers, or choose another method for it.");
}

static void advice_becomes_notes(void **state)
{
    static const struct oz_advice advice[] = {
        {"img_mlp", NULL, "the first to keep if quality regresses"},
        {"img_mlp", "mxfp4", "no 4 bit here"},
        {NULL, "fp8", "fine"},
        {"txt_mlp", NULL, "not in this model"},
    };
    struct oz_assign_input in = cpu;
    in.advice = advice;
    in.advice_count = 4;
    assert_int_equal(assign(&image, "fp8", &in), OZ_OK);
    assert_int_equal(a.note_count, 2);
    assert_string_equal(a.notes[0].what, "img_mlp");
    assert_true(a.notes[0].advice && a.notes[1].advice);
    assert_string_equal(a.notes[1].why, "fine");
}

static void the_summary(void **state)
{
    const char *line;
    assert_int_equal(
        assign(&image, "{\"targets\":{\"*.to_qkv\":\"fp8_per_channel\",\"proj_out\":\"mxfp8\"}}",
               &cpu),
        OZ_OK);
    assert_int_equal(oz_assignment_summary(&a, &arena, &line, &err), OZ_OK);
    assert_string_equal(line, "Quantized 19 layers of types: attn.to_k: 6 (from targets: *.to_qkv, "
                              "fp8_per_channel); attn.to_q: 6 (from targets: *.to_qkv, "
                              "fp8_per_channel); attn.to_v: 6 (from targets: *.to_qkv, "
                              "fp8_per_channel); proj_out: 1 (from targets: proj_out, mxfp8)");
    assert_int_equal(
        assign(&image, "{\"method\":\"int8\",\"ignored_layers\":[\"attn\",\"net.2\"]}", &cpu),
        OZ_OK);
    assert_int_equal(oz_assignment_summary(&a, &arena, &line, &err), OZ_OK);
    assert_string_equal(line,
                        "Quantized 6 layers of types: img_mlp.net.0.proj: 6 (from method: int8)");
}

/* An arena that is too small is an error at any point, and nothing is left behind. */
static void small_arenas(void **state)
{
    struct oz_request *q;
    struct oz_request_text words = {
        .config = "{\"method\":\"mxfp4\",\"ignored_layers\":[\"re:.*to_q\",\"img_mlp\"],"
                  "\"w4a8_fallback_steps\":[1],\"num_bf16_fallback_layers\":1}"};
    assert_int_equal(oz_request_create(&q, &words, &err), OZ_OK);
    struct oz_assign_input in = cpu;
    in.table = &image;
    in.request = oz_request_for(q, "transformer", true);
    size_t room = oz_assign_bytes(&image, in.request);
    int failures = 0;
    for (size_t bytes = 0; bytes < room; bytes += room / 97) {
        struct oz_arena small;
        assert_int_equal(oz_arena_init_host(&small, "small", bytes, &err), OZ_OK);
        enum oz_status status = oz_assign(&a, &in, &small, &err);
        assert_true(status == OZ_OK || status == OZ_ERR_NOMEM);
        failures += status == OZ_ERR_NOMEM;
        oz_arena_deinit(&small);
    }
    assert_true(failures > 5);
    oz_request_destroy(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_asked),
        cmocka_unit_test(a_name_and_the_keep_lists),
        cmocka_unit_test(rules_and_sources),
        cmocka_unit_test(settings_of_schemes),
        cmocka_unit_test(devices),
        cmocka_unit_test(errors),
        cmocka_unit_test(unmatched_patterns_may_be_allowed),
        cmocka_unit_test(b24_wrapper_suffix),
        cmocka_unit_test(b26_parts_of_a_fused_layer),
        cmocka_unit_test(b27_overrides_have_effect),
        cmocka_unit_test(b37_sensitive_layers_are_kept),
        cmocka_unit_test(quantized_checkpoints),
        cmocka_unit_test(reconciliation),
        cmocka_unit_test(shapes_are_never_passed_over),
        cmocka_unit_test(advice_becomes_notes),
        cmocka_unit_test(the_summary),
        cmocka_unit_test(small_arenas),
    };
    return cmocka_run_group_tests(tests, open_tables, close_tables);
}
