/* quant/layer.h: building, finding, and rules that ignore whole dotted segments only. */
#include "test.h"

#include "quant/layer.h"

static struct oz_error err;
static struct oz_arena arena;

static int open_arena(void **state)
{
    return oz_arena_init_host(&arena, "table", 1 << 16, &err) != OZ_OK;
}

static int close_arena(void **state)
{
    oz_arena_deinit(&arena);
    return 0;
}

static const struct oz_layer linear = {
    .kind = OZ_LAYER_LINEAR, .role = OZ_ROLE_MLP_UP, .rank = 2, .shape = {8, 4}};

static void begin(struct oz_layer_table *t, int32_t rows, int32_t rules)
{
    oz_arena_reset(&arena, 0);
    assert_int_equal(oz_layer_table_init(t, &arena, "transformer", rows, rules), OZ_OK);
}

static void rows_are_found(void **state)
{
    struct oz_layer_table t;
    begin(&t, 10, 0);
    for (int i = 9; i >= 0; i--) {
        struct oz_layer row = linear;
        row.block_number = i + 1;
        oz_layer_add(&t, &row, "blocks.%d.up.weight", i);
    }
    assert_int_equal(oz_layer_table_finish(&t, &err), OZ_OK);
    for (int i = 0; i < 10; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blocks.%d.up.weight", i);
        const struct oz_layer *row = oz_layer_find(&t, name);
        assert_true(row != NULL && row->block_number == i + 1);
        assert_string_equal(row->name, name);
        assert_int_equal(strlen(row->module), strlen("blocks.0.up"));
        assert_true(row->file_rank == 2 && row->file_shape[0] == 8 && row->file_shape[1] == 4);
    }
    assert_null(oz_layer_find(&t, "blocks.10.up.weight"));
    assert_null(oz_layer_find(&t, "blocks.0.up"));
    assert_null(oz_layer_find(&t, ""));
}

static void names_without_dots(void **state)
{
    struct oz_layer_table t;
    begin(&t, 1, 0);
    oz_layer_add(&t, &linear, "scale");
    assert_int_equal(oz_layer_table_finish(&t, &err), OZ_OK);
    assert_string_equal(t.rows[0].module, "scale");
}

static void a_shape_of_its_own_in_the_file(void **state)
{
    struct oz_layer_table t;
    struct oz_layer row = linear;
    row.file_rank = 1;
    row.file_shape[0] = 32;
    begin(&t, 1, 0);
    oz_layer_add(&t, &row, "w");
    assert_int_equal(oz_layer_table_finish(&t, &err), OZ_OK);
    assert_true(t.rows[0].file_rank == 1 && t.rows[0].file_shape[0] == 32);
}

static void empty(void **state)
{
    struct oz_layer_table t;
    begin(&t, 0, 0);
    assert_int_equal(oz_layer_table_finish(&t, &err), OZ_OK);
    assert_null(oz_layer_find(&t, "w"));
    assert_null(oz_layer_ignored(&t, "w"));
}

static void the_same_name_twice(void **state)
{
    struct oz_layer_table t;
    begin(&t, 3, 0);
    oz_layer_add(&t, &linear, "a.w");
    oz_layer_add(&t, &linear, "b.w");
    oz_layer_add(&t, &linear, "a.w");
    assert_int_equal(oz_layer_table_finish(&t, &err), OZ_ERR_INTERNAL);
    assert_non_null(strstr(err.message, "transformer has a.w twice"));
}

static void more_rows_or_rules_than_room(void **state)
{
    static const struct oz_ignore rule = {.name = "x", .prefix = "x", .reason = "unused"};
    struct oz_layer_table t;
    begin(&t, 1, 1);
    oz_layer_add(&t, &linear, "a.w");
    oz_layer_add(&t, &linear, "b.w");
    assert_int_equal(t.count, 1);
    assert_null(oz_layer_string(&t, "nothing more is taken"));
    assert_int_equal(oz_layer_table_finish(&t, &err), OZ_ERR_INTERNAL);
    assert_non_null(strstr(err.message, "room for 1 rows and 1 rules"));
    begin(&t, 1, 1);
    oz_layer_ignore(&t, &rule);
    oz_layer_ignore(&t, &rule);
    assert_int_equal(t.ignore_count, 1);
    oz_layer_add(&t, &linear, "a.w");
    assert_int_equal(t.count, 0);
    assert_int_equal(oz_layer_table_finish(&t, &err), OZ_ERR_INTERNAL);
}

/* However small the arena is, the end is NOMEM or a whole table. */
static void a_small_arena(void **state)
{
    for (size_t bytes = 0;; bytes += OZ_ARENA_ALIGN) {
        struct oz_arena small;
        struct oz_layer_table t;
        assert_int_equal(oz_arena_init_host(&small, "small", bytes, &err), OZ_OK);
        enum oz_status status = oz_layer_table_init(&t, &small, "vae", 2, 1);
        if (status == OZ_OK) {
            oz_layer_add(&t, &linear, "a.%s", "w");
            oz_layer_add(&t, &linear, "b.%s", "w");
            status = oz_layer_table_finish(&t, &err);
        }
        oz_arena_deinit(&small);
        if (status == OZ_OK) {
            break;
        }
        assert_int_equal(status, OZ_ERR_NOMEM);
        assert_true(bytes < 1 << 16);
    }
}

static void rules_match_whole_segments(void **state)
{
    static const struct oz_ignore rules[] = {
        {.name = "vision tower", .prefix = "visual", .reason = "not used for text to image"},
        {.name = "time", .suffix = "time_conv.weight", .reason = "one frame"},
        {.name = "both", .prefix = "encoder", .suffix = "bias", .reason = "test"},
    };
    static const struct {
        const char *tensor, *rule;
    } cases[] = {
        {"visual.blocks.0.attn.qkv.weight", "vision tower"},
        {"visual", "vision tower"},
        {"visualizer.x", NULL},
        {"visual_x", NULL},
        {"model.visual.x", NULL},
        {"visua", NULL},
        {"time_conv.weight", "time"},
        {"up.0.time_conv.weight", "time"},
        {"up.0.mytime_conv.weight", NULL},
        {"up.0.time_conv.weight_scale", NULL},
        {"conv.weight", NULL},
        {"encoder.a.bias", "both"},
        {"encoder.bias", "both"},
        {"encoder.a.weight", NULL},
        {"decoder.a.bias", NULL},
        {"encoder.a.mybias", NULL},
        {"encoders.a.bias", NULL},
        {"", NULL},
    };
    struct oz_layer_table t;
    begin(&t, 1, 3);
    for (int i = 0; i < 3; i++) {
        oz_layer_ignore(&t, &rules[i]);
    }
    assert_int_equal(oz_layer_table_finish(&t, &err), OZ_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct oz_ignore *rule = oz_layer_ignored(&t, cases[i].tensor);
        if ((rule != NULL) != (cases[i].rule != NULL) ||
            (rule != NULL && strcmp(rule->name, cases[i].rule) != 0)) {
            fail_msg("%s: %s", cases[i].tensor, rule != NULL ? rule->name : "no rule");
        }
    }
}

static void roles_have_names(void **state)
{
    assert_string_equal(oz_role_name(OZ_ROLE_ATTN_QKV), "attn_qkv");
    assert_string_equal(oz_role_name(OZ_ROLE_REFINER), "refiner");
    assert_string_equal(oz_role_name(OZ_ROLE_COUNT), "?");
    assert_string_equal(oz_role_name((enum oz_role) - 1), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found),
        cmocka_unit_test(names_without_dots),
        cmocka_unit_test(a_shape_of_its_own_in_the_file),
        cmocka_unit_test(empty),
        cmocka_unit_test(the_same_name_twice),
        cmocka_unit_test(more_rows_or_rules_than_room),
        cmocka_unit_test(a_small_arena),
        cmocka_unit_test(rules_match_whole_segments),
        cmocka_unit_test(roles_have_names),
    };
    return cmocka_run_group_tests(tests, open_arena, close_arena);
}
