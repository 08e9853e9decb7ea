/* Config and layer table of the Qwen2.5-VL text tower; its numbers are tests/parity's. */
#include "test.h"

#include "base/arena.h"
#include "base/json.h"
#include "ckpt/table.h"
#include "load/match.h"
#include "model/qwen25_vl/qwen25_vl.h"

#define MODEL OZ_TEST_DIR "/../models/emoji/text_encoder"
#define GOLDEN OZ_TEST_DIR "/golden/text_tower"

static struct oz_error err;

static enum oz_status read_text(struct oz_qwen25_vl_config *c, const char *text)
{
    struct oz_json *root;
    assert_int_equal(oz_json_parse(&root, text, strlen(text), "config.json", &err), OZ_OK);
    enum oz_status status = oz_qwen25_vl_config_read(c, root, "config.json", &err);
    oz_json_free(root);
    return status;
}

static struct oz_qwen25_vl_config read_file(const char *path)
{
    struct oz_qwen25_vl_config c;
    struct oz_json *root;
    assert_int_equal(oz_json_parse_file(&root, path, 1 << 20, &err), OZ_OK);
    if (oz_qwen25_vl_config_read(&c, root, path, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    oz_json_free(root);
    return c;
}

static void real_configs(void **state)
{
    struct oz_qwen25_vl_config c = read_file(MODEL "/config.json");
    assert_int_equal(c.hidden, 256);
    assert_int_equal(c.intermediate, 768);
    assert_int_equal(c.layers, 4);
    assert_int_equal(c.vocab, 4096);
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.mrope_section[0], 8);
    assert_int_equal(c.mrope_section[1], 12);
    assert_int_equal(c.mrope_section[2], 12);
    assert_true(c.rope_theta == 1e6 && c.eps == 1e-6F && c.tied && !c.need_head);
    assert_true(read_file(GOLDEN "/tied.config.json").tied);
    assert_true(read_file(GOLDEN "/tied.config_flat.json").tied);
    assert_false(read_file(GOLDEN "/untied.config.json").tied);
    assert_false(read_file(GOLDEN "/untied.config_flat.json").tied);
}

static void nested_and_flat_are_one(void **state)
{
    struct oz_qwen25_vl_config nested = read_file(GOLDEN "/tied.config.json");
    struct oz_qwen25_vl_config flat = read_file(GOLDEN "/tied.config_flat.json");
    assert_int_equal(nested.max_positions, flat.max_positions);
    assert_int_equal(nested.hidden, flat.hidden);
    assert_int_equal(nested.kv_heads, flat.kv_heads);
    assert_int_equal(nested.mrope_section[2], flat.mrope_section[2]);
    assert_true(nested.rope_theta == flat.rope_theta && nested.eps == flat.eps);
}

/* A small flat config with the members that cases replace. */
#define CONFIG(model_type, act, eps, rope, more)                                       \
    "{\"model_type\": " model_type ", \"hidden_act\": " act ", \"rms_norm_eps\": " eps \
    ", \"rope_scaling\": " rope ", \"hidden_size\": 64, \"intermediate_size\": 128, "  \
    "\"num_hidden_layers\": 2, \"vocab_size\": 128, \"num_attention_heads\": 4" more "}"
#define QWEN "\"qwen2_5_vl\""
#define SILU "\"silu\""
#define ROPE "{\"type\": \"mrope\", \"mrope_section\": [2, 3, 3]}"
#define THETA ", \"rope_theta\": 1e6"

static void accepted(void **state)
{
    static const char *const texts[] = {
        CONFIG(QWEN, SILU, "1e-6", ROPE, THETA),
        CONFIG(QWEN, SILU, "1e-6", ROPE, THETA ", \"use_sliding_window\": true"),
        CONFIG(QWEN, SILU, "1e-6", ROPE,
               THETA ", \"use_sliding_window\": true, \"sliding_window\": 9, "
                     "\"max_window_layers\": 2"),
        CONFIG(QWEN, SILU, "1e-6", ROPE, THETA ", \"head_dim\": 16, \"num_key_value_heads\": 1"),
        CONFIG(QWEN, SILU, "1e-6",
               "{\"rope_type\": \"default\", \"type\": \"default\", \"mrope_section\": [2, 3, 3], "
               "\"rope_theta\": 5e5}",
               ""),
    };
    struct oz_qwen25_vl_config c;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (read_text(&c, texts[i]) != OZ_OK) {
            fail_msg("%s", err.message);
        }
    }
    assert_true(c.rope_theta == 5e5);
    assert_int_equal(c.kv_heads, 4);
    /* Both levels at once: the inner one is the model, but for the tie. */
    const char *both =
        "{\"tie_word_embeddings\": true, \"hidden_size\": 1, \"text_config\": " CONFIG(
            QWEN, SILU, "1e-6", ROPE, THETA ", \"tie_word_embeddings\": false") "}";
    assert_int_equal(read_text(&c, both), OZ_OK);
    assert_int_equal(c.hidden, 64);
    assert_true(c.tied);
}

static void refused(void **state)
{
    static const struct {
        const char *text;
        enum oz_status status;
        const char *says;
    } cases[] = {
        {CONFIG("\"qwen2_vl\"", SILU, "1e-6", ROPE, THETA), OZ_ERR_UNSUPPORTED, "qwen2_vl"},
        {CONFIG("null", SILU, "1e-6", ROPE, THETA), OZ_ERR_FORMAT, "model_type"},
        {CONFIG(QWEN, "\"gelu\"", "1e-6", ROPE, THETA), OZ_ERR_UNSUPPORTED, "hidden_act"},
        {CONFIG(QWEN, SILU, "null", ROPE, THETA), OZ_ERR_FORMAT, "rms_norm_eps"},
        {CONFIG(QWEN, SILU, "2", ROPE, THETA), OZ_ERR_FORMAT, "rms_norm_eps"},
        {CONFIG(QWEN, SILU, "1e-6", "null", THETA), OZ_ERR_FORMAT, "mrope_section"},
        {CONFIG(QWEN, SILU, "1e-6", "{}", THETA), OZ_ERR_FORMAT, "mrope_section"},
        {CONFIG(QWEN, SILU, "1e-6", "{\"mrope_section\": [2, 2, 2]}", THETA), OZ_ERR_FORMAT,
         "adds up to 6"},
        {CONFIG(QWEN, SILU, "1e-6", "{\"mrope_section\": [2, -1, 7]}", THETA), OZ_ERR_FORMAT,
         "entry 1"},
        {CONFIG(QWEN, SILU, "1e-6", ROPE, ""), OZ_ERR_FORMAT, "rope_theta"},
        {CONFIG(QWEN, SILU, "1e-6", ROPE, ", \"rope_theta\": 0"), OZ_ERR_FORMAT, "rope_theta"},
        {CONFIG(QWEN, SILU, "1e-6",
                "{\"rope_type\": \"yarn\", \"factor\": 4, \"mrope_section\": [2, 3, 3]}", THETA),
         OZ_ERR_UNSUPPORTED, "yarn"},
        {CONFIG(QWEN, SILU, "1e-6", "{\"mrope_interleaved\": true, \"mrope_section\": [2, 3, 3]}",
                THETA),
         OZ_ERR_UNSUPPORTED, "mrope_interleaved"},
        {CONFIG(QWEN, SILU, "1e-6",
                "{\"partial_rotary_factor\": 0.5, \"mrope_section\": [2, 3, 3]}", THETA),
         OZ_ERR_UNSUPPORTED, "partial_rotary_factor"},
        {CONFIG(QWEN, SILU, "1e-6", ROPE,
                THETA ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]"),
         OZ_ERR_UNSUPPORTED, "sliding_attention"},
        {CONFIG(QWEN, SILU, "1e-6", ROPE, THETA ", \"layer_types\": [\"full_attention\"]"),
         OZ_ERR_FORMAT, "layer_types"},
        {CONFIG(QWEN, SILU, "1e-6", ROPE,
                THETA ", \"use_sliding_window\": true, \"sliding_window\": 9, "
                      "\"max_window_layers\": 1"),
         OZ_ERR_UNSUPPORTED, "use_sliding_window"},
        {CONFIG(QWEN, SILU, "1e-6", ROPE, THETA ", \"head_dim\": 32"), OZ_ERR_UNSUPPORTED,
         "head_dim"},
        {CONFIG(QWEN, SILU, "1e-6", ROPE, THETA ", \"num_key_value_heads\": 3"), OZ_ERR_FORMAT,
         "num_key_value_heads"},
        {CONFIG(QWEN, SILU, "1e-6", ROPE, THETA ", \"tie_word_embeddings\": 1"), OZ_ERR_FORMAT,
         "tie_word_embeddings"},
        {"{\"text_config\": {\"model_type\": \"qwen2_5_vl_text\"}}", OZ_ERR_FORMAT,
         "(text_config): \"hidden_size\" is missing"},
        {"[]", OZ_ERR_FORMAT, "must be an object"},
    };
    struct oz_qwen25_vl_config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_text(&c, cases[i].text), cases[i].status);
        if (strstr(err.message, cases[i].says) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].says);
        }
    }
}

static void table_against_the_real_checkpoint(void **state)
{
    struct oz_qwen25_vl_config c = read_file(MODEL "/config.json");
    struct oz_ckpt *ckpt;
    char prefix[OZ_QWEN25_VL_PREFIX_BYTES];
    assert_int_equal(oz_ckpt_open(&ckpt, MODEL, NULL, &err), OZ_OK);
    assert_int_equal(oz_qwen25_vl_find_prefix(ckpt, prefix, &err), OZ_OK);
    assert_string_equal(prefix, "model");
    for (int head = 0; head < 2; head++) {
        struct oz_arena host;
        struct oz_layer_table t;
        struct oz_match *match;
        struct oz_qwen25_vl m;
        c.need_head = head == 1;
        assert_int_equal(oz_arena_init_host(&host, "host", oz_qwen25_vl_host_bytes(&c), &err),
                         OZ_OK);
        assert_int_equal(oz_qwen25_vl_build(&m, &c, &host, &t, prefix, &err), OZ_OK);
        assert_int_equal(t.count, 4 * 12 + 2 + head);
        assert_int_equal(oz_match_create(&match, ckpt, &t, NULL, &err), OZ_OK);
        if (oz_match_check(match, "model", &err) != OZ_OK) {
            fail_msg("%s", err.message);
        }
        oz_match_destroy(&match);

        const struct oz_layer *k = oz_layer_find(&t, "model.layers.3.self_attn.k_proj.weight");
        assert_non_null(k);
        assert_string_equal(k->module, "model.layers.3.self_attn.k_proj");
        assert_string_equal(k->fused, "model.layers.3.self_attn.qkv_proj");
        assert_int_equal(k->fused_index, 1);
        assert_int_equal(k->role, OZ_ROLE_ATTN_QKV);
        assert_int_equal(k->block_number, 4);
        assert_ptr_equal(k->bind, &m.layers[3].k.w);
        assert_int_equal(m.layers[3].k.w.shape[0], 128);
        assert_int_equal(m.layers[3].k.b.shape[0], 128);
        assert_null(m.layers[3].o.b.name);
        const struct oz_ignore *rule = oz_layer_ignored(&t, "visual.blocks.0.attn.qkv.bias");
        assert_non_null(rule);
        assert_string_equal(rule->name, "vision tower");
        assert_non_null(oz_layer_ignored(&t, "model.visual.merger.ln_q.weight"));
        rule = oz_layer_ignored(&t, "lm_head.weight");
        assert_true((rule == NULL) == (head == 1));
        const struct oz_layer *tied = oz_layer_find(&t, "lm_head.weight");
        assert_true((tied != NULL) == (head == 1));
        if (tied != NULL) {
            assert_string_equal(tied->tied_to, "model.embed_tokens.weight");
            assert_true(tied->optional);
        }
        oz_arena_deinit(&host);
    }
    oz_ckpt_close(&ckpt);
}

/* The longest prefix and none, within the promised memory. */
static void prefixes(void **state)
{
    char longest[OZ_QWEN25_VL_PREFIX_BYTES];
    struct oz_qwen25_vl_config c = read_file(GOLDEN "/untied.config.json");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const names[] = {"", "model.language_model", longest};
    c.need_head = true;
    c.layers = 1024;
    for (int i = 0; i < 3; i++) {
        struct oz_arena host;
        struct oz_layer_table t;
        struct oz_qwen25_vl m;
        char name[256];
        assert_int_equal(oz_arena_init_host(&host, "host", oz_qwen25_vl_host_bytes(&c), &err),
                         OZ_OK);
        assert_int_equal(oz_qwen25_vl_build(&m, &c, &host, &t, names[i], &err), OZ_OK);
        (void)snprintf(name, sizeof name, "%s%slayers.1023.mlp.down_proj.weight", names[i],
                       i > 0 ? "." : "");
        assert_non_null(oz_layer_find(&t, name));
        const struct oz_layer *head = oz_layer_find(&t, "lm_head.weight");
        assert_true(head != NULL && head->tied_to == NULL && !head->optional);
        oz_arena_deinit(&host);
    }
}

/* A host arena that is too small fails cleanly, wherever it ends. */
static void small_arena(void **state)
{
    struct oz_qwen25_vl_config c = read_file(GOLDEN "/tied.config.json");
    struct oz_layer_table t;
    struct oz_qwen25_vl m;
    c.need_head = true;
    for (size_t bytes = OZ_ARENA_ALIGN;; bytes += OZ_ARENA_ALIGN) {
        struct oz_arena host;
        assert_int_equal(oz_arena_init_host(&host, "host", bytes, &err), OZ_OK);
        enum oz_status status = oz_qwen25_vl_build(&m, &c, &host, &t, "model", &err);
        oz_arena_deinit(&host);
        if (status == OZ_OK) {
            break;
        }
        assert_int_equal(status, OZ_ERR_NOMEM);
        assert_true(bytes < oz_qwen25_vl_host_bytes(&c));
    }
}

static void no_tower(void **state)
{
    struct oz_ckpt *ckpt;
    char prefix[OZ_QWEN25_VL_PREFIX_BYTES];
    assert_int_equal(oz_ckpt_open(&ckpt, GOLDEN "/untied.safetensors", NULL, &err), OZ_OK);
    assert_int_equal(oz_qwen25_vl_find_prefix(ckpt, prefix, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "no Qwen2.5-VL language model"));
    oz_ckpt_close(&ckpt);
}

static void text_positions(void **state)
{
    const int32_t offsets[] = {0, 3, 3, 5};
    const struct oz_ragged r = {.count = 3, .offsets = offsets};
    const int32_t want[] = {0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 0, 1, 2, 0, 1};
    int32_t got[15];
    oz_qwen25_vl_text_positions(&r, got);
    assert_memory_equal(got, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_configs),
        cmocka_unit_test(nested_and_flat_are_one),
        cmocka_unit_test(accepted),
        cmocka_unit_test(refused),
        cmocka_unit_test(table_against_the_real_checkpoint),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(small_arena),
        cmocka_unit_test(no_tower),
        cmocka_unit_test(text_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
