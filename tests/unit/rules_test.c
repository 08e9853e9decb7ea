/* quant/rules.h: globs, runs of segments, and the worked examples of vllm-online 3.4 as a table. */
#include "test.h"

#include "quant/rules.h"

static struct oz_error err;
static struct oz_arena arena;
static struct oz_layer_table table;
static struct oz_rule_units units;

static void globs(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool match;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "a.b.c", true},
        {"a*c", "a.b.c", true},
        {"a*c", "a.b.cd", false},
        {"*a*b*", "xaxxbx", true},
        {"*a*b*", "xbxxax", false},
        {"a?c", "a.c", true},
        {"a?c", "ac", false},
        {"?", "\xC3\xA9", true},
        {"??", "\xC3\xA9", false},
        {"[qkv]_proj", "q_proj", true},
        {"[qkv]_proj", "o_proj", false},
        {"[!qkv]_proj", "o_proj", true},
        {"[!qkv]_proj", "q_proj", false},
        {"[a-c]", "b", true},
        {"[a-c]", "d", false},
        {"[c-a]", "b", false},
        {"[]a]", "]", true},
        {"[!]a]", "]", false},
        {"[a-]", "-", true},
        {"[", "[", true},
        {"a[b", "a[b", true},
        {"[]", "[]", true},
        {"*[0-9].x", "blocks.7.x", true},
        {"[\xC3\xA0-\xC3\xBF]", "\xC3\xA9", true},
        {"\\*", "\\x", true},
        {"\\*", "*", false},
        {"A*", "abc", false},
        {"a**", "a", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(oz_glob_match(cases[i].pattern, cases[i].text), cases[i].match);
    }
    /* Linear in each star: no pattern takes for ever. */
    char text[4001];
    memset(text, 'a', 4000);
    text[4000] = '\0';
    assert_false(oz_glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*b", text));
}

static void runs_of_segments(void **state)
{
    assert_true(oz_segments_match("img_mlp", "blocks.0.img_mlp.net.2"));
    assert_true(oz_segments_match("attn.to_out", "blocks.0.attn.to_out.0"));
    assert_true(oz_segments_match("blocks.0", "blocks.0.attn"));
    assert_false(oz_segments_match("blocks.1", "blocks.10.attn"));
    assert_false(oz_segments_match("img", "blocks.0.img_mlp"));
    assert_false(oz_segments_match("mlp", "blocks.0.img_mlp"));
    assert_true(oz_segments_match("a", "b_a.a"));
    assert_true(oz_segments_match("a.a", "a.b.a.a"));
    assert_false(oz_segments_match("", "a"));
}

/* ---- a language model's layer: q, k, v and gate, up fuse; experts are one layer ---- */

static void linear(const char *fused, int32_t index, const char *module)
{
    struct oz_layer row = {.kind = OZ_LAYER_LINEAR,
                           .role = OZ_ROLE_MLP_UP,
                           .rank = 2,
                           .shape = {64, 64},
                           .block_number = 1,
                           .fused = fused,
                           .fused_index = index};
    oz_layer_add(&table, &row, "model.layers.0.%s.weight", module);
    row.kind = OZ_LAYER_VECTOR;
    row.rank = 1;
    oz_layer_add(&table, &row, "model.layers.0.%s.bias", module);
}

static int open_table(void **state)
{
    static const char qkv[] = "model.layers.0.self_attn.qkv_proj";
    static const char gate_up[] = "model.layers.0.mlp.gate_up_proj";
    struct oz_layer experts = {.kind = OZ_LAYER_EXPERTS,
                               .role = OZ_ROLE_EXPERT_UP,
                               .rank = 3,
                               .shape = {4, 64, 64},
                               .fused = "model.layers.0.mlp.experts"};
    struct oz_layer head = {.kind = OZ_LAYER_EMBED, .rank = 2, .shape = {100, 64}};
    if (oz_arena_init_host(&arena, "rules test", 1 << 22, &err) != OZ_OK ||
        oz_layer_table_init(&table, &arena, "transformer", 64, 0) != OZ_OK) {
        return 1;
    }
    linear(gate_up, 1, "mlp.up_proj"); /* parts in any order of the table */
    linear(qkv, 2, "self_attn.v_proj");
    linear(qkv, 0, "self_attn.q_proj");
    linear(qkv, 1, "self_attn.k_proj");
    linear(NULL, 0, "self_attn.o_proj");
    linear(gate_up, 0, "mlp.gate_proj");
    for (int i = 0; i < 4; i++) {
        oz_layer_add(&table, &experts, "model.layers.0.mlp.experts.%d.down_proj.weight", i);
    }
    oz_layer_add(&table, &head, "lm_head.weight");
    return oz_layer_table_finish(&table, &err) != OZ_OK ||
           oz_rule_units_build(&units, &table, &arena, &err) != OZ_OK;
}

static int close_table(void **state)
{
    oz_arena_deinit(&arena);
    return 0;
}

static int32_t unit_called(const char *name)
{
    for (int32_t i = 0; i < units.count; i++) {
        if (strncmp(units.units[i].name, "model.layers.0.", 15) == 0 &&
            strcmp(units.units[i].name + 15, name) == 0) {
            return i;
        }
    }
    fail();
    return -1;
}

static void units_of_the_table(void **state)
{
    assert_int_equal(units.count, 5); /* qkv, gate_up, o, experts, lm_head */
    const struct oz_rule_unit *qkv = &units.units[unit_called("self_attn.qkv_proj")];
    assert_true(qkv->fused && qkv->count == 3);
    assert_string_equal(table.rows[units.order[qkv->first]].module,
                        "model.layers.0.self_attn.q_proj");
    assert_string_equal(table.rows[units.order[qkv->first + 2]].module,
                        "model.layers.0.self_attn.v_proj");
    const struct oz_rule_unit *experts = &units.units[unit_called("mlp.experts")];
    assert_true(!experts->fused && experts->count == 4);
}

#define L "model.layers.0."
#define Q L "self_attn.q_proj"
#define K L "self_attn.k_proj"
#define V L "self_attn.v_proj"

enum outcome { NO, YES, ERROR };

/* vllm-online 3.4, first table, column [B]. */
static const struct {
    const char *layer;
    const char *ignore[4];
    enum outcome want;
} ignore_cases[] = {
    {"self_attn.o_proj", {L "self_attn.o_proj"}, YES},
    {"self_attn.o_proj", {"o_proj"}, NO},
    {"self_attn.o_proj", {"*o_proj"}, YES},
    {"self_attn.o_proj", {"re:o_proj"}, NO},
    {"self_attn.o_proj", {"re:.*o_pro"}, YES},
    {"self_attn.o_proj", {"model.layers.?.self_attn.o_proj"}, YES},
    {"self_attn.o_proj", {"RE:.*o_proj"}, NO},
    {"self_attn.qkv_proj", {"re:.*[qkv]_proj"}, YES},
    {"self_attn.qkv_proj", {"re:.*q_proj"}, ERROR},
    {"self_attn.qkv_proj", {"re:.*v_proj"}, YES},
    {"self_attn.qkv_proj", {"re:.*\\.v_proj"}, ERROR},
    {"self_attn.qkv_proj", {L "self_attn.qkv_proj"}, YES},
    {"self_attn.qkv_proj", {Q, K, V}, YES},
    {"self_attn.qkv_proj", {Q, K}, ERROR},
    {"self_attn.qkv_proj", {"re:.*qkv_proj.*"}, YES},
    {"self_attn.qkv_proj", {"*.[qkv]_proj"}, YES},
    {"self_attn.qkv_proj", {"*q_proj"}, ERROR},
    {"self_attn.qkv_proj", {"*v_proj"}, YES},
    {"mlp.gate_up_proj", {"*up_proj"}, YES},
    {"mlp.gate_up_proj", {"*.up_proj"}, ERROR},
    {"mlp.gate_up_proj", {"re:.*gate_proj"}, ERROR},
    {"mlp.experts", {"*mlp.experts*"}, YES},
    {"mlp.experts", {"re:.*mlp\\.experts"}, YES},
    {"mlp.experts", {"re:.*experts\\.0\\."}, NO},
    {"mlp.experts", {L "mlp.experts.0.down_proj"}, NO},
    /* ours: the component may stand in front */
    {"self_attn.o_proj", {"transformer." L "self_attn.o_proj"}, YES},
    {"self_attn.o_proj", {"transformer.*o_proj"}, YES},
    {"self_attn.o_proj", {"re:transformer\\..*o_proj"}, YES},
    {"self_attn.o_proj", {"re:tr.*"}, NO},
};

static struct oz_strings strings(const char *const *items)
{
    struct oz_strings s = {items, 0};
    while (s.count < 4 && items[s.count] != NULL) {
        s.count++;
    }
    return s;
}

static void begin(struct oz_rules *rules, enum oz_rule_dialect dialect, const char *const *items)
{
    struct oz_strings patterns = strings(items);
    assert_int_equal(oz_rules_init(rules, dialect == OZ_RULES_ONLINE ? "ignore" : "ignored_layers",
                                   dialect, &patterns, "transformer", &arena, &err),
                     OZ_OK);
}

static void worked_examples_of_ignore(void **state)
{
    for (size_t i = 0; i < sizeof ignore_cases / sizeof *ignore_cases; i++) {
        struct oz_rules rules;
        int32_t rule;
        begin(&rules, OZ_RULES_ONLINE, ignore_cases[i].ignore);
        enum oz_status status =
            oz_rules_ignored(&rules, &units, unit_called(ignore_cases[i].layer), &rule, &err);
        enum outcome got = status != OZ_OK ? ERROR : rule >= 0 ? YES : NO;
        if (got != ignore_cases[i].want) {
            print_error("%s, %s\n", ignore_cases[i].layer, ignore_cases[i].ignore[0]);
        }
        assert_int_equal(got, ignore_cases[i].want);
        if (got == ERROR) {
            assert_int_equal(status, OZ_ERR_ARG);
            assert_non_null(strstr(err.message, "different quantization schemes for the shards"));
            assert_non_null(strstr(err.message, ignore_cases[i].layer));
        }
        oz_rules_deinit(&rules);
    }
}

/* The second table: patterns, what each asks for, and the pattern that wins or the error. */
static const struct {
    const char *layer;
    const char *patterns[4];
    const char *values[4];
    int32_t rule; /* -1: none */
    const char *error;
} target_cases[] = {
    {"self_attn.qkv_proj", {"re:.*qkv_proj.*"}, {"fp8_per_tensor"}, 0, NULL},
    {"self_attn.qkv_proj", {"re:.*[qkv]_proj"}, {"fp8_per_tensor"}, 0, NULL},
    {"self_attn.qkv_proj", {V, K, Q}, {"mxfp8", "mxfp8", "mxfp8"}, 2, NULL},
    {"self_attn.qkv_proj", {Q, K, V}, {"mxfp8", "mxfp8", "mxfp4"}, 0, "Found different"},
    {"self_attn.qkv_proj", {Q}, {"mxfp8"}, 0, "Found unmatched shards"},
    {"self_attn.qkv_proj", {"*.q_proj", "*.[qkv]_proj"}, {"mxfp8", "mxfp8"}, 0, "Found multiple"},
    {"self_attn.o_proj", {"*o_proj", "re:.*self_attn.*"}, {"mxfp8", "mxfp8"}, 0, "Found multiple"},
    {"self_attn.o_proj", {"*.q_proj"}, {"mxfp8"}, -1, NULL},
    {"self_attn.qkv_proj", {"*o_proj"}, {"mxfp8"}, -1, NULL},
    /* some unmatched is found before several for one */
    {"self_attn.qkv_proj", {"*.q_proj", Q}, {"mxfp8", "mxfp8"}, 0, "Found unmatched shards"},
};

static void worked_examples_of_targets(void **state)
{
    for (size_t i = 0; i < sizeof target_cases / sizeof *target_cases; i++) {
        struct oz_rules rules;
        int32_t rule;
        begin(&rules, OZ_RULES_ONLINE, target_cases[i].patterns);
        enum oz_status status = oz_rules_target(&rules, target_cases[i].values, &units,
                                                unit_called(target_cases[i].layer), &rule, &err);
        if (target_cases[i].error != NULL) {
            assert_int_equal(status, OZ_ERR_ARG);
            assert_non_null(strstr(err.message, target_cases[i].error));
            assert_non_null(strstr(err.message, target_cases[i].layer));
        } else {
            assert_int_equal(status, OZ_OK);
            assert_int_equal(rule, target_cases[i].rule);
        }
        oz_rules_deinit(&rules);
    }
}

/* ignored_layers: whole names, runs of segments, globs, re:; parts of a group by themselves. */
static void ignored_layers_split_groups(void **state)
{
    static const struct {
        const char *layer, *part, *entry;
        enum oz_rule_dialect dialect;
        bool want;
    } cases[] = {
        {"self_attn.o_proj", "self_attn.o_proj", "o_proj", OZ_RULES_SEGMENTS, true},
        {"self_attn.o_proj", "self_attn.o_proj", "self_attn", OZ_RULES_SEGMENTS, true},
        {"self_attn.o_proj", "self_attn.o_proj", "o_pro", OZ_RULES_SEGMENTS, false},
        {"self_attn.o_proj", "self_attn.o_proj", "o_pro", OZ_RULES_SUBSTRING, true},
        {"self_attn.o_proj", "self_attn.o_proj", "model.layers.0", OZ_RULES_SEGMENTS, true},
        {"self_attn.o_proj", "self_attn.o_proj", "transformer.model", OZ_RULES_SEGMENTS, true},
        {"self_attn.o_proj", "self_attn.o_proj", "transformer", OZ_RULES_SEGMENTS, true},
        {"self_attn.qkv_proj", "self_attn.q_proj", "q_proj", OZ_RULES_SEGMENTS, true},
        {"self_attn.qkv_proj", "self_attn.k_proj", "q_proj", OZ_RULES_SEGMENTS, false},
        {"self_attn.qkv_proj", "self_attn.k_proj", "qkv_proj", OZ_RULES_SEGMENTS, true},
        {"self_attn.qkv_proj", "self_attn.v_proj", "*v_proj", OZ_RULES_SEGMENTS, true},
        {"self_attn.qkv_proj", "self_attn.v_proj", "re:.*\\.v_proj", OZ_RULES_SEGMENTS, true},
        {"self_attn.qkv_proj", "self_attn.v_proj", "v_proj", OZ_RULES_EXACT, false},
        {"self_attn.qkv_proj", "self_attn.v_proj", V, OZ_RULES_EXACT, true},
        {"self_attn.qkv_proj", "self_attn.v_proj", "*", OZ_RULES_EXACT, false},
        {"mlp.experts", "mlp.experts.0.down_proj", L "mlp.experts.0.down_proj", OZ_RULES_SEGMENTS,
         true},
        {"mlp.experts", "mlp.experts.0.down_proj", "experts", OZ_RULES_SEGMENTS, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_rules rules;
        const char *items[4] = {cases[i].entry};
        char name[128];
        int32_t rule;
        (void)snprintf(name, sizeof name, L "%s.weight", cases[i].part);
        begin(&rules, cases[i].dialect, items);
        int32_t row = (int32_t)(oz_layer_find(&table, name) - table.rows);
        assert_int_equal(
            oz_rules_part(&rules, &units, unit_called(cases[i].layer), row, &rule, &err), OZ_OK);
        if ((rule >= 0) != cases[i].want) {
            print_error("%s on %s\n", cases[i].entry, cases[i].part);
        }
        assert_int_equal(rule >= 0, cases[i].want);
        assert_int_equal(rules.items[0].hit, cases[i].want);
        oz_rules_deinit(&rules);
    }
}

/* vllm#48507: a re: entry is an expression, whatever the dialect. */
static void b25_regex_entries(void **state)
{
    static const char *const entry[4] = {"re:.*mlp\\.(gate|up)_proj"};
    static const char *const names[] = {"a.mlp.gate_proj", "a.mlp.up_proj", "a.mlp.down_proj",
                                        "a.attn.gate_proj"};
    for (int dialect = OZ_RULES_ONLINE; dialect <= OZ_RULES_SUBSTRING; dialect++) {
        struct oz_rules rules;
        begin(&rules, (enum oz_rule_dialect)dialect, entry);
        for (int i = 0; i < 4; i++) {
            int32_t first;
            int32_t count;
            assert_int_equal(oz_rules_find(&rules, names[i], &first, &count, &err), OZ_OK);
            assert_int_equal(count, i < 2);
        }
        oz_rules_deinit(&rules);
    }
}

static void wrong_patterns(void **state)
{
    assert_int_equal(oz_rule_check("re:a(b", "targets", &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "targets: \"re:a(b\" is not a valid regular expression"));
    assert_int_equal(oz_rule_check("", "ignore", &err), OZ_ERR_ARG);
    assert_int_equal(oz_rule_check("re:", "ignore", &err), OZ_ERR_ARG);
    assert_int_equal(oz_rule_check("a(b[", "ignore", &err), OZ_OK);
    struct oz_rules rules;
    const char *const slow[4] = {"re:(a+)+$"};
    char text[64];
    int32_t first;
    int32_t count;
    memset(text, 'a', 50);
    memcpy(text + 50, "!", 2);
    begin(&rules, OZ_RULES_ONLINE, slow);
    assert_int_equal(oz_rules_find(&rules, text, &first, &count, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "re:(a+)+$"));
    oz_rules_deinit(&rules);
}

static void suggestions(void **state)
{
    static const char *const cases[][2] = {
        {"o_porj", "did you mean \"o_proj\"?"},
        {"*self_atn*", "did you mean \"self_attn\"?"},
        {"re:.*qkv_prj.*", "did you mean \"qkv_proj\"?"},
        {"transformer.model.layers.0.self_attn.o_prj",
         "did you mean \"model.layers.0.self_attn.o_proj\"?"},
        {"zzzzzz", "Its layers are: model.layers.0.mlp"},
        {"*", "Its layers are:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_buf b;
        oz_buf_init(&b, 1 << 16);
        oz_rules_suggest(&b, cases[i][0], &table);
        if (strstr(oz_buf_text(&b), cases[i][1]) == NULL) {
            print_error("%s: %s\n", cases[i][0], oz_buf_text(&b));
        }
        assert_non_null(strstr(oz_buf_text(&b), cases[i][1]));
        oz_buf_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs),
        cmocka_unit_test(runs_of_segments),
        cmocka_unit_test(units_of_the_table),
        cmocka_unit_test(worked_examples_of_ignore),
        cmocka_unit_test(worked_examples_of_targets),
        cmocka_unit_test(ignored_layers_split_groups),
        cmocka_unit_test(b25_regex_entries),
        cmocka_unit_test(wrong_patterns),
        cmocka_unit_test(suggestions),
    };
    return cmocka_run_group_tests(tests, open_table, close_table);
}
