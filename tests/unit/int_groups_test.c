/*
 * Layers of GPTQ, AWQ and AutoRound as the makers' tools pack them (tests/golden/int_groups, made by
 * tools/golden/int_groups.py): found by their config, loaded, and decoded to the makers' own values, bit
 * for bit in halves; damaged ones refused.
 */
#include "test.h"

#include "base/json.h"
#include "base/log.h"
#include "ckpt/writer.h"
#include "dev/backends.h"
#include "load/load.h"
#include "num/codec_list.h"
#include "num/float.h"
#include "num/unpack.h"
#include "ops/param.h"
#include "scalar_device.h"

enum { N = 32, K = 128, GROUPS = 4 };

#define GPTQ "\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32"
#define BITS(n) "\"quant_method\": \"gptq\", \"group_size\": 32, \"bits\": " #n
#define ROUND "\"quant_method\": \"auto-round\", \"group_size\": 32"

static const struct {
    const char *name, *config, *codec;
    bool columns; /* a g_idx */
} cases[] = {
    {"auto_round_v1", ROUND ", \"bits\": 4, \"packing_format\": \"auto_round:auto_gptq\"",
     "u4_group", false},
    {"auto_round_v1_8", ROUND ", \"bits\": 8, \"packing_format\": \"auto_round:gptq\"", "u8_group",
     false},
    {"auto_round_v2", ROUND ", \"bits\": 4, \"packing_format\": \"auto_round\"", "u4_group", false},
    {"auto_round_v2_2", ROUND ", \"bits\": 2, \"backend\": \"auto_round:exllamav2\"", "u2_group",
     false},
    {"awq", "\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32, \"version\": \"gemm\"",
     "u4_group", false},
    {"awq", "\"quant_method\": \"awq\", \"w_bit\": 4, \"q_group_size\": 32", "u4_group", false},
    {"awq", ROUND ", \"bits\": 4, \"packing_format\": \"auto_round:auto_awq\"", "u4_group", false},
    {"gptqmodel_v2", GPTQ ", \"checkpoint_format\": \"gptq_v2\"", "u4_group", true},
    {"gptqmodel_v2", ROUND ", \"bits\": 4, \"packing_format\": \"auto_round:gptqmodel\"",
     "u4_group", true},
    {"gptqmodel_v1", GPTQ ", \"format\": \"gptq\"", "u4_group", true},
    {"gptqmodel_act_order", GPTQ ", \"desc_act\": true", "u4_group", true},
    {"gptqmodel_3", BITS(3) ", \"checkpoint_format\": \"gptq_v2\"", "u3_group", true},
    {"gptqmodel_3_v1", BITS(3), "u3_group", true},
    {"gptqmodel_3_p", BITS(3) ", \"format\": \"gptq_p\"", "u3_group", true},
    {"gptqmodel_5_p", BITS(5) ", \"format\": \"gptq_p\"", "u5_group", true},
    {"gptqmodel_6_p", BITS(6) ", \"format\": \"gptq_p\"", "u6_group", true},
    {"gptqmodel_7_p", BITS(7) ", \"format\": \"gptq_p\"", "u7_group", true},
    {"gptqmodel_v2", GPTQ ", \"format\": \"gptq_p\"", "u4_group", true}, /* one plane */
    {"awq_gemv",
     "\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32, \"version\": \"gemv\"",
     "u4_group", false},
};
enum { CASES = sizeof cases / sizeof *cases };

static struct oz_ckpt *golden, *bits_golden;
static struct oz_arena host;
static struct oz_arena stored_memory;
static struct oz_layer_table table;
static struct oz_param param;
static struct oz_ckpt *ckpt;
static struct oz_stored stored;

static int start_golden(void **state)
{
    if (start(state) != 0) {
        return -1;
    }
    ok(oz_arena_init_host(&host, "table", 1 << 16, &err));
    ok(oz_arena_init_host(&stored_memory, "stored", 1 << 16, &err));
    ok(oz_ckpt_open(&golden, OZ_TEST_DIR "/golden/int_groups/int_groups.safetensors", NULL, &err));
    ok(oz_ckpt_open(&bits_golden, OZ_TEST_DIR "/golden/int_groups/bits.safetensors", NULL, &err));
    return 0;
}

static int stop_golden(void **state)
{
    oz_ckpt_close(&golden);
    oz_ckpt_close(&bits_golden);
    oz_arena_deinit(&stored_memory);
    oz_arena_deinit(&host);
    return stop(state);
}

static const struct oz_tensor_view *find_golden(const char *name)
{
    const struct oz_tensor_view *t = oz_ckpt_find(golden, name, NULL);
    return t != NULL ? t : oz_ckpt_find(bits_golden, name, NULL);
}

/* ---- a checkpoint of one layer, as the golden one has it or damaged ---- */

struct damage {
    const char *drop;    /* this tensor is not there */
    const char *turned;  /* this one's sizes are exchanged */
    const char *retyped; /* this one has another dtype of the same size */
    uint16_t scale;      /* scales[7] becomes it; 0: stays */
    int32_t group;       /* g_idx[5] becomes it; 0: stays */
    const char *extra;   /* one more of that name, F32 [1] */
};

static const char *const suffixes[] = {"qweight", "qzeros", "scales", "g_idx"};

static bool is(const char *a, const char *b)
{
    return b != NULL && strcmp(a, b) == 0;
}

static void write_layer(const char *name, const struct damage *d)
{
    const struct oz_tensor_view *views[5] = {0};
    struct oz_ckpt_spec specs[5] = {0};
    static const float one = 1;
    int32_t count = 0;
    char full[5][64];
    for (int i = 0; i < 4; i++) {
        (void)snprintf(full[count], sizeof full[count], "%s.%s", name, suffixes[i]);
        const struct oz_tensor_view *t = find_golden(full[count]);
        if (t == NULL || is(suffixes[i], d->drop)) {
            continue;
        }
        (void)snprintf(full[count], sizeof full[count], "m.%s", suffixes[i]);
        bool turned = is(suffixes[i], d->turned);
        specs[count] =
            (struct oz_ckpt_spec){.name = full[count],
                                  .dtype = !is(suffixes[i], d->retyped) ? t->dtype
                                           : t->dtype == OZ_DTYPE_F16   ? OZ_DTYPE_I16
                                                                        : OZ_DTYPE_F32,
                                  .rank = t->rank,
                                  .shape = {t->shape[turned], t->rank > 1 ? t->shape[!turned] : 0}};
        views[count++] = t;
    }
    if (d->extra != NULL) {
        specs[count++] =
            (struct oz_ckpt_spec){.name = d->extra, .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {1}};
    }
    struct oz_ckpt_writer *w;
    scratch_remove("layer");
    const struct oz_ckpt_writer_options o = {.folder = scratch_path("layer"), .stem = "model"};
    scratch_folder("layer");
    ok(oz_ckpt_writer_create(&w, &o, specs, count, &err));
    for (int32_t i = oz_ckpt_writer_next(w); i >= 0; i = oz_ckpt_writer_next(w)) {
        uint8_t copy[1 << 15];
        const struct oz_tensor_view *t = views[i];
        size_t bytes = t != NULL ? (size_t)t->bytes : sizeof one;
        assert_true(bytes <= sizeof copy);
        memcpy(copy, t != NULL ? (const void *)t->data : &one, bytes);
        if (t != NULL && d->group != 0 && strstr(t->name, "g_idx") != NULL) {
            memcpy(copy + 5 * 4L, &d->group, 4);
        }
        if (t != NULL && d->scale != 0 && strstr(t->name, "scales") != NULL) {
            memcpy(copy + 7 * 2L, &d->scale, 2);
        }
        ok(oz_ckpt_writer_put(w, copy, bytes, &err));
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
}

static enum oz_status read_config(const char *members)
{
    struct oz_json *json;
    char text[512];
    (void)snprintf(text, sizeof text, "{\"quantization_config\": {%s}}", members);
    ok(oz_json_parse(&json, text, strlen(text), "config.json", &err));
    err.message[0] = '\0';
    const struct oz_stored_input in = {.config = json,
                                       .path = "config.json",
                                       .ckpt = ckpt,
                                       .table = &table,
                                       .arena = &stored_memory};
    enum oz_status status = oz_stored_read(&stored, &in, &err);
    oz_json_free(json);
    return status;
}

static void open_layer(const char *name, const struct damage *d)
{
    const struct oz_layer row = {
        .kind = OZ_LAYER_LINEAR, .rank = 2, .shape = {N, K}, .bind = &param};
    write_layer(name, d);
    oz_arena_reset(&host, 0);
    oz_arena_reset(&stored_memory, 0);
    memset(&param, 0, sizeof param);
    ok(oz_layer_table_init(&table, &host, "test", 4, 1));
    oz_layer_add(&table, &row, "m.weight");
    ok(oz_layer_table_finish(&table, &err));
    oz_params_describe(&table);
    ok(oz_ckpt_open(&ckpt, scratch_path("layer"), NULL, &err));
}

/* Loads into memory of exactly the measured size; the caller frees *memory. */
static enum oz_status load_layer(struct oz_match **match, void **memory)
{
    struct oz_arena model;
    struct oz_load_args a = {.dev = dev, .model = &model};
    ok(oz_match_create(match, ckpt, &table, &stored, &err));
    ok(oz_match_check(*match, "layer", &err));
    a.match = *match;
    oz_arena_init_measure(&model, "model");
    ok(oz_load_component(&a, &err));
    size_t bytes = model.used_bytes;
    ok(dev->alloc(dev, bytes, memory, &err));
    oz_arena_init_view(&model, "model", *memory, bytes, false);
    enum oz_status status = oz_load_component(&a, &err);
    assert_true(status != OZ_OK || model.used_bytes == bytes);
    return status;
}

/* ---- good ones ---- */

static void expect_values(const char *name)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s.values", name);
    const struct oz_tensor_view *values = find_golden(full);
    assert_true(values != NULL && values->dtype == OZ_DTYPE_F16 && values->elements == N * K);
    for (int64_t r = 0; r < N; r++) {
        float got[K];
        param.weight.codec->decode(&param.weight, 0, r, 0, 50, got);
        param.weight.codec->decode(&param.weight, 0, r, 50, K - 50, got + 50);
        for (int64_t c = 0; c < K; c++) {
            uint16_t want;
            memcpy(&want, values->data + 2 * (r * K + c), 2);
            if (oz_f16_to_f32(oz_f32_to_f16(got[c])) != oz_f16_to_f32(want)) {
                fail_msg("%s: [%d, %d] is %g instead of %g", name, (int)r, (int)c, (double)got[c],
                         (double)oz_f16_to_f32(want));
            }
        }
    }
}

static void makers(void **state)
{
    for (int i = 0; i < CASES; i++) {
        static const struct damage none;
        struct oz_match *match;
        void *memory;
        open_layer(cases[i].name, &none);
        ok(read_config(cases[i].config));
        assert_int_equal(stored.count, 1);
        assert_string_equal(stored.schemes[0].name, cases[i].codec);
        assert_int_equal(stored.weights[0].group_cols, 32);
        ok(load_layer(&match, &memory));
        assert_int_equal(param.weight.planes[OZ_PLANE_PERM].present, cases[i].columns);
        expect_values(cases[i].name);
        oz_match_destroy(&match);
        dev->free(dev, memory);
        oz_ckpt_close(&ckpt);
    }
}

/* Zero points of 0 in the first format of GPTQ: told. */
static void doubtful_zeros(void **state)
{
    static const struct damage none;
    struct oz_match *match;
    void *memory;
    scratch_log_clear();
    oz_log_set(scratch_log_line, NULL);
    open_layer("gptqmodel_v1", &none);
    ok(read_config(GPTQ));
    ok(load_layer(&match, &memory));
    oz_log_set(NULL, NULL);
    assert_non_null(strstr(scratch_log, "zero points are 0"));
    oz_match_destroy(&match);
    dev->free(dev, memory);
    oz_ckpt_close(&ckpt);
}

/* Groups that the config does not say are taken where it says that layers differ. */
static void overrides(void **state)
{
    static const struct damage none;
    open_layer("gptqmodel_v2", &none);
    assert_int_equal(read_config("\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 64, "
                                 "\"dynamic\": {\"+:m\": {\"bits\": 4, \"group_size\": 32}}"),
                     OZ_OK);
    assert_int_equal(stored.weights[0].group_cols, 32);
    assert_string_equal(stored.schemes[0].name, "u4_group");
    oz_ckpt_close(&ckpt);
}

/* ---- refused ---- */

static void is_refused(const char *name, const char *config, const struct damage *d,
                       enum oz_status status, const char *phrase)
{
    open_layer(name, d);
    enum oz_status got = read_config(config);
    if (got != status || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, status, phrase);
    }
    oz_ckpt_close(&ckpt);
}

static void configs(void **state)
{
    static const struct damage none;
    static const struct {
        const char *name, *config, *phrase;
    } bad[] = {
        {"gptqmodel_v1", GPTQ ", \"checkpoint_format\": \"marlin\"", "\"marlin\""},
        {"gptqmodel_v1", GPTQ ", \"format\": \"bitblas\"", "\"bitblas\""},
        {"gptqmodel_v1", GPTQ ", \"is_marlin_format\": true", "rearranged for Marlin"},
        {"gptqmodel_v1", GPTQ ", \"pack_dtype\": \"int16\"", "\"int16\""},
        {"gptqmodel_v1", "\"quant_method\": \"gptq\", \"bits\": 5",
         "codes of 5 bits; 2, 3, 4 and 8, and in the format gptq_p 5 to 7 are read"},
        {"awq", "\"quant_method\": \"awq\", \"bits\": 8", "of AWQ 4"},
        {"awq", "\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemv_fast\"",
         "\"gemv_fast\""},
        {"awq", "\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"marlin\"", "\"marlin\""},
        {"awq", "\"quant_method\": \"awq\", \"backend\": \"llm-awq\"", "\"llm-awq\""},
        {"auto_round_v1", ROUND ", \"packing_format\": \"auto_round:llm_compressor\"",
         "llm_compressor"},
        {"auto_round_v1", ROUND ", \"data_type\": \"mx_fp\"", "\"mx_fp\""},
        {"auto_round_v1", ROUND ", \"act_bits\": 8", "activations of 8 bits"},
        {"auto_round_v1", ROUND ", \"rotation_config\": {\"a\": 1}", "rotated"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        is_refused(bad[i].name, bad[i].config, &none, OZ_ERR_UNSUPPORTED, bad[i].phrase);
    }
    is_refused("gptqmodel_v1", "\"quant_method\": \"gptq\", \"group_size\": 64", &none,
               OZ_ERR_FORMAT, "has 4 groups of 128 columns, but config.json says groups of 64");
    is_refused("gptqmodel_v1", "\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 32", &none,
               OZ_ERR_FORMAT, "m.qweight");
    /* AWQ's packing under GPTQ's name, and the other way round */
    is_refused("awq", GPTQ, &none, OZ_ERR_FORMAT, "m.qweight");
    is_refused("auto_round_v1", "\"quant_method\": \"awq\", \"group_size\": 32", &none,
               OZ_ERR_FORMAT, "m.qweight");
}

static void damaged(void **state)
{
    static const struct damage bad[] = {
        {.drop = "qzeros"},     {.drop = "scales"},    {.turned = "qweight"}, {.turned = "scales"},
        {.retyped = "qweight"}, {.retyped = "qzeros"}, {.retyped = "scales"}, {.retyped = "g_idx"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        is_refused("gptqmodel_v1", GPTQ, &bad[i], OZ_ERR_FORMAT, "m.");
    }
    static const struct damage turned = {.turned = "qzeros"}; /* square in 4 bits */
    is_refused("auto_round_v1_8", ROUND ", \"bits\": 8, \"packing_format\": \"gptq\"", &turned,
               OZ_ERR_FORMAT, "m.qzeros");
    static const struct damage all = {.drop = "qweight"};
    is_refused("gptqmodel_v1", GPTQ, &all, OZ_ERR_FORMAT, "no layer of the file is");
}

/* Groups that are none, and a tensor that nobody takes, fail when they are met. */
static void late(void **state)
{
    static const int32_t groups[] = {-1, GROUPS, INT32_MAX, INT32_MIN};
    static const struct damage extra = {.extra = "m.weight_scale"};
    struct oz_match *match;
    for (int i = 0; i < 4; i++) {
        const struct damage d = {.group = groups[i]};
        void *memory;
        open_layer("gptqmodel_act_order", &d);
        ok(read_config(GPTQ));
        assert_int_equal(load_layer(&match, &memory), OZ_ERR_FORMAT);
        assert_non_null(strstr(err.message, "column 5 is in group"));
        oz_match_destroy(&match);
        dev->free(dev, memory);
        oz_ckpt_close(&ckpt);
    }
    static const uint16_t scales[] = {0x7C00, 0xFC00, 0x7E00}; /* infinities, NaN */
    for (int i = 0; i < 3; i++) {
        const struct damage d = {.scale = scales[i]};
        void *memory;
        open_layer("gptqmodel_v1", &d);
        ok(read_config(GPTQ));
        assert_int_equal(load_layer(&match, &memory), OZ_ERR_FORMAT);
        assert_non_null(strstr(err.message, "m.scales: a scale in line 0 is NaN or infinite"));
        oz_match_destroy(&match);
        dev->free(dev, memory);
        oz_ckpt_close(&ckpt);
    }
    open_layer("awq", &extra);
    ok(read_config("\"quant_method\": \"awq\", \"group_size\": 32"));
    ok(oz_match_create(&match, ckpt, &table, &stored, &err));
    assert_int_equal(oz_match_check(match, "layer", &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "unexpected: m.weight_scale"));
    oz_match_destroy(&match);
    oz_ckpt_close(&ckpt);
}

/* ---- words ---- */

/* The printed examples: q[k] = k % 16 down, and q[n] = n across. */
static void words(void **state)
{
    static const uint8_t awq[4] = {0x20, 0x64, 0x31, 0x75};
    static const uint8_t v1[4] = {0x77, 0x77, 0x77, 0x77};
    static const uint8_t borrowed[4] = {0xEF, 0x76, 0x77, 0x77}; /* 88888800 - 11111111 */
    uint8_t rows[8][2] = {{0}};
    uint8_t z[8] = {0};
    oz_unpack_awq_codes(awq, 0, 8, 1, rows[0], 2);
    oz_unpack_awq_zeros(awq, 0, 8, 1, z, 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(rows[i][0], i << 4);
        assert_int_equal(z[i], i << 4);
        z[i] = 0;
    }
    oz_unpack_awq_codes(awq, 3, 2, 0, rows[0], 2);
    assert_int_equal(rows[0][0], 3);
    assert_int_equal(rows[1][0], 1 << 4 | 4);
    assert_int_equal(oz_unpack_gptq_zeros(v1, 0, 8, 4, OZ_FIELDS_DENSE, 1, 0, z, 1), 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(z[i], 8);
    }
    assert_int_equal(oz_unpack_gptq_zeros(v1, 0, 8, 4, OZ_FIELDS_DENSE, 0, 0, z, 1), 0);
    assert_int_equal(z[7], 7);
    assert_int_equal(oz_unpack_gptq_zeros(borrowed, 0, 8, 4, OZ_FIELDS_DENSE, 1, 0, z, 1), 2);
    assert_int_equal(z[0], 0);
    assert_int_equal(z[1], 0);
    assert_int_equal(z[2], 8);
    static const uint8_t column[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    oz_unpack_word_column(column, 2, z, 4);
    assert_memory_equal(z, column, 8);
}

/* Three bits: 32 fields in 3 words, dense or in planes of 2 and 1; two groups beside one another. */
static void odd_words(void **state)
{
    static const uint8_t dense[12] = {0x88, 0xC6, 0xFA, 0x88, 0xC6, 0xFA,
                                      0x88, 0xC6, 0xFA, 0x88, 0xC6, 0xFA}; /* k % 8 */
    static const uint8_t planar[12] = {0xE4, 0xE4, 0xE4, 0xE4, 0xE4, 0xE4,
                                       0xE4, 0xE4, 0xF0, 0xF0, 0xF0, 0xF0};
    uint8_t z[32];
    for (int how = 0; how < 2; how++) {
        const uint8_t *line = how == 0 ? dense : planar;
        enum oz_fields fields = how == 0 ? OZ_FIELDS_DENSE : OZ_FIELDS_PLANAR;
        memset(z, 0, sizeof z);
        assert_int_equal(oz_unpack_gptq_zeros(line, 0, 32, 3, fields, 0, 0, z, 1), 0);
        assert_int_equal(oz_unpack_gptq_zeros(line, 5, 27, 3, fields, 1, 1, z, 1), 4);
        for (int i = 0; i < 32; i++) {
            int second = i < 27 ? (i + 5 + 1) % 8 : 0;
            assert_int_equal(z[i], i % 8 | second << 3);
        }
    }
    uint8_t rows[2][12] = {{0}};
    for (int64_t i = 0; i < 3; i++) { /* two columns of words, equal */
        uint8_t line[8];
        memcpy(line, planar + 4 * i, 4);
        memcpy(line + 4, planar + 4 * i, 4);
        oz_unpack_planar_column(line, 2, i, 3, rows[0], 12);
    }
    assert_memory_equal(rows[0], dense, 12);
    assert_memory_equal(rows[1], dense, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makers),  cmocka_unit_test(doubtful_zeros), cmocka_unit_test(overrides),
        cmocka_unit_test(configs), cmocka_unit_test(damaged),        cmocka_unit_test(late),
        cmocka_unit_test(words),   cmocka_unit_test(odd_words),
    };
    return cmocka_run_group_tests(tests, start_golden, stop_golden);
}
