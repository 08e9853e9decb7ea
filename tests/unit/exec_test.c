/* ops/exec.h and ops/trace.h: views, sticky failures, and a trace that viewers can open. */
#include "test.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/pool.h"
#include "ops/exec.h"
#include "ops/ops.h"
#include "ops/trace.h"
#include "scratch.h"

static struct oz_error err;

static void views_of_rows_and_columns(void **state)
{
    float data[6][8];
    struct oz_act a = oz_act_f32(data, 6, 8);
    assert_true(a.stride == 8 && oz_act_is_f32(&a));
    struct oz_act rows = oz_act_rows(&a, 2, 3);
    assert_ptr_equal(rows.data, data[2]);
    assert_true(rows.rows == 3 && rows.cols == 8 && rows.stride == 8);
    struct oz_act cols = oz_act_cols(&rows, 5, 2);
    assert_ptr_equal(cols.data, &data[2][5]);
    assert_true(cols.rows == 3 && cols.cols == 2 && cols.stride == 8);
    struct oz_act both = oz_act_rows(&cols, 1, 1);
    assert_ptr_equal(both.data, &data[3][5]);
    struct oz_act flat = oz_act_reshape(&a, 3, 16);
    assert_ptr_equal(flat.data, data);
    assert_true(flat.rows == 3 && flat.cols == 16 && flat.stride == 16);
    a.spec.dtype = OZ_DTYPE_BF16;
    assert_false(oz_act_is_f32(&a));
    assert_ptr_equal(oz_act_rows(&a, 1, 1).data, (char *)data + 16);
    a.spec.dtype = OZ_DTYPE_F4;
    assert_ptr_equal(oz_act_rows(&a, 1, 1).data, (char *)data + 4);
    assert_ptr_equal(oz_act_cols(&a, 2, 2).data, (char *)data + 1);
}

static void specs_are_equal_in_every_member(void **state)
{
    const float smooth = 0;
    const struct oz_act_spec base = {
        .dtype = OZ_DTYPE_I8, .scale_count = 1, .scale = {{OZ_DTYPE_F32, 128, OZ_SCALE_ROWS}}};
    struct oz_act_spec s = base;
    assert_true(oz_act_spec_equal(&base, &s));
    s.scale[1].group_cols = 7; /* beyond scale_count: no part of it */
    assert_true(oz_act_spec_equal(&base, &s));
#define DIFFERS(change)                             \
    do {                                            \
        s = base;                                   \
        change;                                     \
        assert_false(oz_act_spec_equal(&base, &s)); \
    } while (0)
    DIFFERS(s.dtype = OZ_DTYPE_F8_E4M3);
    DIFFERS(s.scale_count = 0);
    DIFFERS(s.scale[0].dtype = OZ_DTYPE_F8_E8M0);
    DIFFERS(s.scale[0].group_cols = 32);
    DIFFERS(s.scale[0].layout = OZ_SCALE_COLS);
    DIFFERS(s.smooth = &smooth);
    DIFFERS(s.rotate_cols = 64);
    DIFFERS(s.static_scale = &smooth);
    DIFFERS(s.static_offset = &smooth);
    DIFFERS(s.low_rank_a = (const struct oz_weight *)&smooth);
    const struct oz_act_spec f32 = oz_act_spec_f32();
    assert_true(f32.dtype == OZ_DTYPE_F32 && f32.scale_count == 0);
}

static size_t bytes_of(const struct oz_act_spec *spec, int64_t rows, int64_t cols)
{
    struct oz_arena arena;
    struct oz_exec x;
    oz_arena_init_measure(&arena, "step");
    oz_exec_init(&x, NULL, OZ_EXEC_MEASURE, &arena, &err);
    struct oz_act a = oz_exec_act_as(&x, rows, cols, spec);
    assert_true(oz_exec_ok(&x) && a.data != NULL && a.rows == rows && a.cols == cols);
    for (int32_t i = 0; i < spec->scale_count; i++) {
        assert_non_null(a.scales[i]);
    }
    return arena.used_bytes;
}

static void acts_take_data_and_scales(void **state)
{
    struct oz_act_spec s = oz_act_spec_f32();
    assert_int_equal(bytes_of(&s, 64, 100), 64 * 400);
    s = (struct oz_act_spec){.dtype = OZ_DTYPE_F4};
    assert_int_equal(bytes_of(&s, 256, 3), 256 * 2); /* rows begin on whole bytes */
    s = (struct oz_act_spec){
        .dtype = OZ_DTYPE_I8, .scale_count = 1, .scale = {{OZ_DTYPE_F32, 0, 0}}};
    assert_int_equal(bytes_of(&s, 64, 100), 6400 + 256);
    s.scale[0].group_cols = 32; /* 100 columns: four groups, the last one short */
    assert_int_equal(bytes_of(&s, 64, 100), 6400 + 4 * 256);
    s.scale[0].dtype = OZ_DTYPE_F8_E8M0;
    s.scale[0].layout = OZ_SCALE_SWIZZLE_128X4;
    s.scale[0].group_cols = 16; /* seven groups: eight; 64 rows: 128 */
    assert_int_equal(bytes_of(&s, 64, 100), 6400 + 128 * 8);
}

static void failures_are_sticky(void **state)
{
    struct oz_arena arena;
    struct oz_exec x;
    assert_int_equal(oz_arena_init_host(&arena, "step", 512, &err), OZ_OK);
    oz_exec_init(&x, NULL, OZ_EXEC_RUN, &arena, &err);
    x.label = "blocks.3.attn";
    size_t mark = oz_exec_mark(&x);
    assert_non_null(oz_exec_push(&x, 256));
    struct oz_act a = oz_exec_act(&x, 10, 10);
    assert_true(a.data == NULL && a.rows == 10 && a.cols == 10 && !oz_exec_ok(&x));
    assert_int_equal(x.status, OZ_ERR_NOMEM);
    assert_non_null(strstr(err.message, "step arena is full: 400 bytes more at blocks.3.attn"));
    assert_null(oz_exec_push(&x, 1)); /* although it would fit */
    oz_exec_fail(&x, OZ_ERR_ARG, "a later one");
    assert_int_equal(x.status, OZ_ERR_NOMEM);
    oz_exec_upload(&x, NULL, NULL, 5);
    oz_exec_reset(&x, mark);
    assert_int_equal(arena.used_bytes, 0);
    oz_arena_deinit(&arena);
    oz_exec_init(&x, NULL, OZ_EXEC_RUN, NULL, NULL);
    oz_exec_fail(&x, OZ_ERR_FORMAT, "without a record");
    assert_int_equal(x.status, OZ_ERR_FORMAT);
}

/* ---- the trace ---- */

static void a_trace_is_json(void **state)
{
    struct oz_trace *t;
    const char *path = scratch_path("trace.json");
    assert_int_equal(oz_trace_create(&t, path, &err), OZ_OK);
    oz_trace_add(t, OZ_OP_LINEAR, "blocks.0.\"up\"", 5, 64, 10.0, 10.5);
    oz_trace_add(t, OZ_OP_ATTENTION,
                 "a.very.long.label.that.does.not.fit.into.an.event.blocks.12.attn", 7, 8, 10.5,
                 10.75);
    assert_int_equal(oz_trace_finish(&t, &err), OZ_OK);
    assert_null(t);
    struct oz_json *v;
    assert_int_equal(oz_json_parse_file(&v, path, 1 << 20, &err), OZ_OK);
    const struct oz_json *events = oz_json_get(v, "traceEvents");
    assert_int_equal(oz_json_count(events), 2);
    const struct oz_json *e = oz_json_at(events, 0);
    const struct oz_json *args = oz_json_get(e, "args");
    assert_string_equal(oz_json_string(oz_json_get(e, "name"), ""), "linear");
    assert_string_equal(oz_json_string(oz_json_get(e, "ph"), ""), "X");
    assert_true(oz_json_number(oz_json_get(e, "ts"), -1) == 0);
    assert_true(oz_json_number(oz_json_get(e, "dur"), -1) == 5e5);
    assert_string_equal(oz_json_string(oz_json_get(args, "at"), ""), "blocks.0.\"up\"");
    assert_int_equal(oz_json_integer(oz_json_get(args, "rows"), 0), 5);
    assert_int_equal(oz_json_integer(oz_json_get(args, "cols"), 0), 64);
    e = oz_json_at(events, 1);
    const char *label = oz_json_string(oz_json_get(oz_json_get(e, "args"), "at"), "");
    assert_int_equal(strlen(label), 47);
    assert_string_equal(label + 47 - 14, "blocks.12.attn"); /* the end of it is kept */
    assert_true(oz_json_number(oz_json_get(e, "ts"), -1) == 5e5);
    assert_int_equal(
        oz_json_integer(oz_json_get(oz_json_get(v, "otherData"), "events_left_out"), -1), 0);
    oz_json_free(v);
}

/* A label that is cut is still UTF-8, so that the file is still JSON. */
static void labels_are_cut_between_letters(void **state)
{
    struct oz_trace *t;
    struct oz_json *v;
    const char *path = scratch_path("cut.json");
    assert_int_equal(oz_trace_create(&t, path, &err), OZ_OK);
    for (int shift = 0; shift < 4; shift++) {
        char label[200] = "abc";
        label[shift] = '\0';
        for (int i = 0; i < 20; i++) {
            (void)snprintf(label + strlen(label), 5, "\xF0\x9F\x8D\x8E");
        }
        oz_trace_add(t, OZ_OP_LINEAR, label, 1, 1, 0, 1);
        (void)snprintf(label + strlen(label), 3, "%.*s", shift, "xy");
        oz_trace_add(t, OZ_OP_LINEAR, label, 1, 1, 0, 1);
    }
    assert_int_equal(oz_trace_finish(&t, &err), OZ_OK);
    assert_int_equal(oz_json_parse_file(&v, path, 1 << 20, &err), OZ_OK);
    oz_json_free(v);
}

static void empty_full_and_unwritable(void **state)
{
    struct oz_trace *t;
    struct oz_json *v;
    const char *path = scratch_path("full.json");
    assert_int_equal(oz_trace_create(&t, path, &err), OZ_OK);
    assert_int_equal(oz_trace_finish(&t, &err), OZ_OK);
    assert_int_equal(oz_json_parse_file(&v, path, 1 << 20, &err), OZ_OK);
    assert_int_equal(oz_json_count(oz_json_get(v, "traceEvents")), 0);
    oz_json_free(v);

    assert_int_equal(oz_trace_create(&t, path, &err), OZ_OK);
    for (int i = 0; i < (1 << 18) + 3; i++) {
        oz_trace_add(t, OZ_OP_CONV, "x", 1, 1, i, i + 1);
    }
    assert_int_equal(oz_trace_finish(&t, &err), OZ_OK);
    char *text = scratch_read("full.json");
    assert_non_null(strstr(text, "\"events_left_out\":3}"));
    assert_string_equal(text + strlen(text) - 4, "\n]}\n");
    free(text);

    assert_int_equal(oz_trace_create(&t, scratch_path("no/folder.json"), &err), OZ_ERR_IO);
    assert_null(t);
    assert_non_null(strstr(err.message, "no/folder.json"));
    assert_int_equal(oz_trace_finish(&t, &err), OZ_OK); /* NULL is fine */
    for (uint64_t n = 1; n <= 3; n++) {
        oz_alloc_fail_at(n, 0);
        assert_int_equal(oz_trace_create(&t, scratch_path("x"), &err), OZ_ERR_NOMEM);
        oz_alloc_fail_at(0, 0);
        assert_null(t);
    }
}

/* A stop is asked for before each operator, and none runs after it. */
static bool stop_at_second(void *ctx)
{
    int *asked = ctx;
    return ++*asked >= 2;
}

static void stopped_between_operators(void **state)
{
    struct oz_device *dev;
    struct oz_pool *pool;
    struct oz_exec x;
    struct oz_arena step;
    int asked = 0;
    float from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float to[2][8] = {{0}};
    assert_int_equal(oz_pool_create(&pool, 1, &err), OZ_OK);
    assert_int_equal(oz_device_open(&dev, "cpu", 0, pool, &err), OZ_OK);
    assert_int_equal(oz_arena_init_host(&step, "step", 1 << 20, &err), OZ_OK);
    oz_exec_init(&x, dev, OZ_EXEC_RUN, &step, &err);
    x.stop = stop_at_second;
    x.stop_ctx = &asked;
    struct oz_act in = oz_act_f32(from, 1, 8);
    for (int i = 0; i < 2; i++) {
        struct oz_act out = oz_act_f32(to[i], 1, 8);
        oz_op_act_quant(&x, &(struct oz_act_quant_args){.x = &in, .out = &out, .rows = 1});
    }
    assert_int_equal(asked, 2);
    assert_int_equal(x.status, OZ_ERR_CANCELLED);
    assert_memory_equal(to[0], from, sizeof from);
    assert_true(to[1][0] == 0);
    assert_int_equal(step.used_bytes, 0);
    oz_arena_deinit(&step);
    oz_device_close(&dev);
    oz_pool_destroy(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_between_operators),
        cmocka_unit_test(views_of_rows_and_columns),
        cmocka_unit_test(specs_are_equal_in_every_member),
        cmocka_unit_test(acts_take_data_and_scales),
        cmocka_unit_test(failures_are_sticky),
        cmocka_unit_test(a_trace_is_json),
        cmocka_unit_test(labels_are_cut_between_letters),
        cmocka_unit_test(empty_full_and_unwritable),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
