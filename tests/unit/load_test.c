/*
 * load/match.h and load/load.h: what is missing, unexpected or of the wrong shape is named; what is
 * loaded is what a plain loop makes of the file; memory is what measuring said.
 */
#include "test.h"

#include "base/log.h"
#include "base/pool.h"
#include "load/load.h"
#include "load/match.h"
#include "num/float.h"
#include "ops/param.h"
#include "scratch.h"

static struct oz_error err;
static struct oz_pool *pool;
static struct oz_device *dev;
static struct oz_arena host;

static int start(void **state)
{
    /* The tier whose kernels read planes: what the loader made of the file can be looked at. */
    (void)setenv("OUNCE_CPU", "scalar", 1);
    return scratch_open(state) != 0 || oz_pool_create(&pool, 1, &err) != OZ_OK ||
           oz_device_open(&dev, "cpu", 0, pool, &err) != OZ_OK ||
           oz_arena_init_host(&host, "table", 1 << 22, &err) != OZ_OK;
}

static int stop(void **state)
{
    oz_arena_deinit(&host);
    oz_device_close(&dev);
    oz_pool_destroy(&pool);
    return scratch_close(state);
}

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

/* ---- a checkpoint and a table ---- */

struct tensor {
    const char *name;
    enum oz_dtype dtype;
    int32_t rank;
    int64_t shape[8];
};

static struct oz_ckpt *ckpt;
static struct oz_layer_table table;
static struct oz_match *match;
static struct oz_param params[16];

/* Element i of every tensor: exact in BF16 and F16 too. */
static float value(int64_t i)
{
    return (float)(i % 61) * 0.25F - 7.0F;
}

static void put_value(uint8_t *dst, enum oz_dtype dtype, int64_t i)
{
    float f = value(i);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (dtype == OZ_DTYPE_F32) {
        memcpy(dst + 4 * i, &bits, 4);
    } else if (dtype == OZ_DTYPE_BF16) {
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy(dst + 2 * i, &half, 2);
    }
}

/* Writes and opens a file of the tensors, whose data begin `shift` bytes off alignment. */
static void open_file(const struct tensor *tensors, size_t count, int shift)
{
    static char header[1 << 20];
    static uint8_t data[1 << 20];
    size_t n = 8;
    size_t at = 0;
    n += (size_t)snprintf(header + n, sizeof header - n, "{\"__metadata__\":{\"a\":\"b\"}");
    for (size_t k = 0; k < count; k++) {
        const struct tensor *t = &tensors[k];
        int64_t elements = 1;
        int64_t bytes;
        n +=
            (size_t)snprintf(header + n, sizeof header - n, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                             t->name, oz_dtype_name(t->dtype));
        for (int32_t i = 0; i < t->rank; i++) {
            elements *= t->shape[i];
            n += (size_t)snprintf(header + n, sizeof header - n, "%s%d", i > 0 ? "," : "",
                                  (int)t->shape[i]);
        }
        assert_true(oz_dtype_bytes(t->dtype, elements, &bytes));
        for (int64_t i = 0; i < elements; i++) {
            put_value(data + at, t->dtype, i);
        }
        n += (size_t)snprintf(header + n, sizeof header - n, "],\"data_offsets\":[%d,%d]}", (int)at,
                              (int)(at + (size_t)bytes));
        at += (size_t)bytes;
    }
    header[n++] = '}';
    while (n % 8 != (size_t)shift) {
        header[n++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        header[i] = (char)((n - 8) >> 8 * i);
    }
    static char file[1 << 21];
    memcpy(file, header, n);
    memcpy(file + n, data, at);
    scratch_write("file.safetensors", file, n + at);
    ok(oz_ckpt_open(&ckpt, scratch_path("file.safetensors"), NULL, &err));
}

static void begin(void)
{
    oz_arena_reset(&host, 0);
    memset(params, 0, sizeof params);
    ok(oz_layer_table_init(&table, &host, "test", 1000, 4));
}

static void matched(void)
{
    ok(oz_layer_table_finish(&table, &err));
    oz_params_describe(&table);
    ok(oz_match_create(&match, ckpt, &table, NULL, &err));
}

static void done(void)
{
    oz_match_destroy(&match);
    oz_match_destroy(&match);
    oz_ckpt_close(&ckpt);
}

static void add(const char *name, struct oz_layer row, int param)
{
    row.bind = param >= 0 ? &params[param] : NULL;
    oz_layer_add(&table, &row, "%s", name);
}

static const struct oz_layer linear = {.kind = OZ_LAYER_LINEAR, .rank = 2, .shape = {4, 6}};
static const struct oz_layer vector = {.kind = OZ_LAYER_VECTOR, .rank = 1, .shape = {6}};

/* ---- what does not fit ---- */

static void everything_wrong_is_named(void **state)
{
    static const struct tensor tensors[] = {
        {"b.0.w", OZ_DTYPE_F32, 2, {4, 6}},    {"b.1.w", OZ_DTYPE_F32, 2, {6, 4}},
        {"visual.x", OZ_DTYPE_F32, 1, {3}},    {"visualizer.x", OZ_DTYPE_F32, 1, {3}},
        {"extra.0.w", OZ_DTYPE_F32, 1, {3}},   {"extra.1.w", OZ_DTYPE_F32, 1, {3}},
        {"b.0.bias", OZ_DTYPE_F32, 2, {6, 1}},
    };
    static const struct oz_ignore rule = {
        .name = "vision tower", .prefix = "visual", .reason = "not used"};
    struct oz_layer optional = linear;
    optional.optional = true;
    open_file(tensors, 7, 0);
    begin();
    for (int i = 0; i < 5; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "b.%d.w", i);
        add(name, linear, -1);
    }
    add("b.0.bias", vector, -1);
    add("norm", vector, -1);
    add("head.w", optional, -1);
    oz_layer_ignore(&table, &rule);
    matched();
    assert_int_equal(oz_match_check(match, "some/folder", &err), OZ_ERR_FORMAT);
    assert_string_equal(
        err.message,
        "some/folder does not fit its config. 4 tensors are missing: b.{2..4}.w, norm. 3 tensors "
        "are unexpected: extra.{0..1}.w, visualizer.x. 2 tensors have the wrong shape: b.1.w is "
        "[6, 4] "
        "where the config asks for [4, 6], b.0.bias is [6, 1] where the config asks for [6].");
    assert_int_equal(match->row_tensor[7], -1);
    int64_t at;
    assert_non_null(oz_ckpt_find(ckpt, "visual.x", &at));
    assert_string_equal(match->tensor_rule[at]->name, "vision tower");
    done();
}

static void one_of_each_is_singular(void **state)
{
    static const struct tensor tensors[] = {{"x", OZ_DTYPE_F32, 1, {3}},
                                            {"v", OZ_DTYPE_F32, 0, {0}}};
    open_file(tensors, 2, 0);
    begin();
    add("w", linear, -1);
    add("v", vector, -1);
    matched();
    assert_int_equal(oz_match_check(match, "m", &err), OZ_ERR_FORMAT);
    assert_string_equal(
        err.message, "m does not fit its config. 1 tensor is missing: w. 1 tensor is unexpected: "
                     "x. 1 tensor has the wrong shape: v is [] where the config asks for [6].");
    done();
}

static void all_well(void **state)
{
    static const struct tensor tensors[] = {{"e.w", OZ_DTYPE_F32, 2, {4, 6}}};
    struct oz_layer head = linear;
    head.tied_to = "e.w";
    open_file(tensors, 1, 0);
    begin();
    add("e.w", linear, 0);
    add("head.w", head, 1);
    matched();
    ok(oz_match_check(match, "m", &err));
    assert_true(match->row_tensor[0] == 0 && match->row_tensor[1] == 0);
    assert_int_equal(match->tensor_row[0], 0);
    assert_int_equal(oz_load_bytes(&(struct oz_load_args){.match = match}), 2 * 96);
    done();
}

static void long_lists_go_to_the_log(void **state)
{
    static const struct tensor tensors[] = {{"x", OZ_DTYPE_F32, 1, {3}}};
    open_file(tensors, 1, 0);
    begin();
    for (int i = 0; i < 676; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%c%c.weight", 'a' + i / 26, 'a' + i % 26);
        add(name, linear, -1);
    }
    matched();
    scratch_log_clear();
    oz_log_set(scratch_log_line, NULL);
    assert_int_equal(oz_match_check(match, "m", &err), OZ_ERR_FORMAT);
    oz_log_set(NULL, NULL);
    assert_non_null(strstr(err.message, "676 tensors are missing: aa.weight, ab.weight"));
    assert_non_null(
        strstr(err.message, "... (the whole list is in the log). 1 tensor is unexpected"));
    assert_non_null(strstr(scratch_log, "error load: 676 tensors are missing: aa.weight"));
    assert_non_null(strstr(scratch_log, "zy.weight, zz.weight"));
    done();
}

/* ---- loading ---- */

/* Measures, loads into exactly that, and leaves the arena to the caller. */
static enum oz_status load(struct oz_arena *model, struct oz_load_stats *stats)
{
    struct oz_arena measure;
    struct oz_load_args args = {.match = match, .dev = dev, .model = &measure};
    oz_arena_init_measure(&measure, "model");
    *model = (struct oz_arena){0};
    enum oz_status status = oz_load_component(&args, &err);
    if (status != OZ_OK) {
        return status;
    }
    for (int i = 0; i < 16; i++) {
        assert_null(params[i].weight.planes[OZ_PLANE_CODES].data); /* measuring binds nothing */
    }
    ok(oz_arena_init_host(model, "model", measure.peak_bytes, &err));
    *stats = (struct oz_load_stats){0};
    args.model = model;
    args.stats = stats;
    status = oz_load_component(&args, &err);
    assert_int_equal(model->used_bytes, measure.used_bytes);
    return status;
}

/* Is element (row, col) of a loaded parameter the file's element number `want`, plus `more`? */
static void holds(const struct oz_param *p, int64_t slice, int64_t row, int64_t col, int64_t want,
                  float more)
{
    float got;
    assert_non_null(p->weight.codec);
    p->weight.codec->decode(&p->weight, slice, row, col, 1, &got);
    if (got != value(want) + more) {
        fail_msg("%s: [%d, %d, %d] is %g instead of %g", p->name, (int)slice, (int)row, (int)col,
                 (double)got, (double)(value(want) + more));
    }
}

static bool in_map(const struct oz_param *p, const char *tensor)
{
    return p->weight.planes[OZ_PLANE_CODES].data == oz_ckpt_find(ckpt, tensor, NULL)->data;
}

static void plain_weights_stay_in_the_map(void **state)
{
    static const struct tensor tensors[] = {{"w", OZ_DTYPE_F32, 2, {4, 6}},
                                            {"h", OZ_DTYPE_BF16, 2, {4, 6}},
                                            {"v", OZ_DTYPE_BF16, 1, {6}},
                                            {"n", OZ_DTYPE_F32, 1, {6}}};
    for (int shift = 0; shift < 4; shift++) { /* 2: BF16 lies well, F32 does not; 1, 3: neither */
        struct oz_arena model;
        struct oz_load_stats stats;
        open_file(tensors, 4, shift);
        begin();
        add("w", linear, 0);
        add("h", linear, 1);
        add("v", vector, 2);
        add("n", vector, 3);
        matched();
        ok(load(&model, &stats));
        assert_true(in_map(&params[0], "w") == (shift == 0));
        assert_true(in_map(&params[1], "h") == (shift % 2 == 0));
        for (int i = 0; i < 24; i++) {
            holds(&params[0], 0, i / 6, i % 6, i, 0);
            holds(&params[1], 0, i / 6, i % 6, i, 0);
        }
        for (int i = 0; i < 6; i++) { /* vectors are f32, whatever the file says */
            assert_true(((const float *)params[2].weight.planes[OZ_PLANE_CODES].data)[i] ==
                        value(i));
            holds(&params[3], 0, 0, i, i, 0);
        }
        int64_t mapped = (shift == 0 ? 96 : 0) + (shift % 2 == 0 ? 48 : 0);
        assert_int_equal(stats.mapped_bytes, mapped);
        assert_int_equal(stats.arena_bytes, 96 + 48 - mapped + 24 + 24);
        assert_int_equal(stats.tensors, 4);
        oz_arena_deinit(&model);
        done();
    }
}

static void convolutions(void **state)
{
    static const struct tensor tensors[] = {{"c2", OZ_DTYPE_BF16, 4, {3, 2, 3, 3}},
                                            {"c3", OZ_DTYPE_BF16, 5, {3, 2, 3, 3, 3}},
                                            {"last", OZ_DTYPE_F32, 5, {3, 2, 3, 3, 3}}};
    const struct oz_layer conv2 = {.kind = OZ_LAYER_CONV, .rank = 4, .shape = {3, 2, 3, 3}};
    const struct oz_layer conv3 = {.kind = OZ_LAYER_CONV, .rank = 5, .shape = {3, 2, 3, 3, 3}};
    struct oz_layer last = conv2;
    struct oz_arena model;
    struct oz_load_stats stats;
    last.file_rank = 5;
    memcpy(last.file_shape, conv3.shape, sizeof last.file_shape);
    last.transform = OZ_TRANSFORM_LAST_TAP;
    open_file(tensors, 3, 0);
    begin();
    add("c2", conv2, 0);
    add("c3", conv3, 1);
    add("last", last, 2);
    matched();
    ok(load(&model, &stats));
    for (int o = 0; o < 3; o++) {
        for (int i = 0; i < 2; i++) {
            for (int tap = 0; tap < 27; tap++) {
                holds(&params[1], 0, o, tap * 2 + i, (o * 2 + i) * 27 + tap, 0);
            }
            for (int tap = 0; tap < 9; tap++) {
                holds(&params[0], 0, o, tap * 2 + i, (o * 2 + i) * 9 + tap, 0);
                holds(&params[2], 0, o, tap * 2 + i, (o * 2 + i) * 27 + 18 + tap, 0);
            }
        }
    }
    assert_true(params[2].weight.codec != NULL && params[2].shape[2] == 3);
    oz_arena_deinit(&model);
    done();
}

/* file [rows, cols] -> canonical, by definition: transpose, swap halves, permute, in this order. */
static int64_t naive(uint32_t transform, const int32_t *order, int64_t rows, int64_t cols,
                     int64_t r, int64_t c)
{
    if (transform & OZ_TRANSFORM_PERMUTE) {
        r = order[r];
    }
    if (transform & OZ_TRANSFORM_SWAP_HALVES) {
        r = (r + rows / 2) % rows;
    }
    return transform & OZ_TRANSFORM_TRANSPOSE ? c * rows + r : r * cols + c;
}

static void moves_of_rows(void **state)
{
    static const int32_t order[] = {2, 0, 3, 1, 5, 4};
    static const struct tensor tensors[] = {{"w", OZ_DTYPE_BF16, 2, {4, 6}},
                                            {"t", OZ_DTYPE_BF16, 2, {6, 4}},
                                            {"e", OZ_DTYPE_BF16, 3, {2, 4, 6}},
                                            {"et", OZ_DTYPE_BF16, 3, {2, 6, 4}},
                                            {"v", OZ_DTYPE_BF16, 1, {6}}};
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t transform = (k & 1 ? OZ_TRANSFORM_PERMUTE : 0) |
                             (k & 2 ? OZ_TRANSFORM_SWAP_HALVES : 0) |
                             (k & 4 ? OZ_TRANSFORM_TRANSPOSE : 0);
        bool turned = k & 4;
        struct oz_layer w = linear;
        struct oz_layer e = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {2, 4, 6}};
        struct oz_layer v = vector;
        struct oz_arena model;
        struct oz_load_stats stats;
        w.transform = e.transform = transform;
        w.permutation = e.permutation = v.permutation = order;
        v.transform = (transform & ~(uint32_t)OZ_TRANSFORM_TRANSPOSE) | OZ_TRANSFORM_ADD_ONE;
        if (turned) {
            w.file_rank = 2;
            w.file_shape[0] = 6;
            w.file_shape[1] = 4;
            e.file_rank = 3;
            e.file_shape[0] = 2;
            e.file_shape[1] = 6;
            e.file_shape[2] = 4;
        }
        open_file(tensors, 5, 0);
        begin();
        add(turned ? "t" : "w", w, 0);
        add(turned ? "et" : "e", e, 1);
        add("v", v, 2);
        matched();
        ok(load(&model, &stats));
        for (int r = 0; r < 4; r++) {
            for (int c = 0; c < 6; c++) {
                int64_t from = naive(transform, order, 4, 6, r, c);
                holds(&params[0], 0, r, c, from, 0);
                holds(&params[1], 0, r, c, from, 0);
                holds(&params[1], 1, r, c, 24 + from, 0);
            }
        }
        for (int i = 0; i < 6; i++) {
            holds(&params[2], 0, 0, i, naive(v.transform, order, 6, 1, i, 0), 1);
        }
        oz_arena_deinit(&model);
        done();
    }
}

static void reshapes_and_parts(void **state)
{
    static const struct tensor tensors[] = {{"patch", OZ_DTYPE_BF16, 4, {4, 6, 1, 1}},
                                            {"gamma", OZ_DTYPE_BF16, 4, {6, 1, 1, 1}},
                                            {"qkv", OZ_DTYPE_BF16, 2, {12, 6}},
                                            {"bias", OZ_DTYPE_BF16, 1, {18}}};
    struct oz_arena model;
    struct oz_load_stats stats;
    struct oz_layer patch = linear;
    struct oz_layer gamma = vector;
    struct oz_layer k = linear;
    struct oz_layer bias = vector;
    patch.transform = gamma.transform = OZ_TRANSFORM_RESHAPE;
    patch.file_rank = gamma.file_rank = 4;
    memcpy(patch.file_shape, (const int64_t[]){4, 6, 1, 1}, 32);
    memcpy(gamma.file_shape, (const int64_t[]){6, 1, 1, 1}, 32);
    k.file_rank = 2;
    memcpy(k.file_shape, (const int64_t[]){12, 6}, 16);
    k.file_row = 4;
    k.file_rows = 4;
    bias.file_rank = 1;
    bias.file_shape[0] = 18;
    bias.file_row = 6;
    bias.file_rows = 6;
    open_file(tensors, 4, 0);
    begin();
    add("patch", patch, 0);
    add("gamma", gamma, 1);
    add("qkv", k, 2);
    add("bias", bias, 3);
    matched();
    ok(oz_match_check(match, "m", &err));
    ok(load(&model, &stats));
    assert_true(in_map(&params[0], "patch"));
    for (int i = 0; i < 24; i++) {
        holds(&params[0], 0, i / 6, i % 6, i, 0);
        holds(&params[2], 0, i / 6, i % 6, 24 + i, 0);
    }
    for (int i = 0; i < 6; i++) {
        holds(&params[1], 0, 0, i, i, 0);
        holds(&params[3], 0, 0, i, 6 + i, 0);
    }
    oz_arena_deinit(&model);
    done();
}

static void scalars_and_nothing(void **state)
{
    static const struct tensor tensors[] = {{"s", OZ_DTYPE_BF16, 0, {0}},
                                            {"none", OZ_DTYPE_BF16, 2, {0, 6}}};
    const struct oz_layer scalar = {.kind = OZ_LAYER_VECTOR, .rank = 0};
    struct oz_layer none = linear;
    struct oz_layer absent = linear;
    struct oz_arena model;
    struct oz_load_stats stats;
    none.shape[0] = 0;
    absent.optional = true;
    open_file(tensors, 2, 0);
    begin();
    add("s", scalar, 0);
    add("none", none, 1);
    add("absent", absent, 2);
    matched();
    assert_non_null(params[2].name);
    ok(oz_match_check(match, "m", &err));
    ok(load(&model, &stats));
    holds(&params[0], 0, 0, 0, 0, 0);
    assert_non_null(params[1].weight.codec);
    assert_null(params[2].name); /* so that the model knows */
    oz_arena_deinit(&model);
    done();
}

static void refused(struct oz_layer row, const struct tensor *t, const char *phrase)
{
    struct oz_arena model;
    struct oz_load_stats stats;
    open_file(t, 1, 0);
    begin();
    add(t->name, row, 0);
    matched();
    assert_int_equal(load(&model, &stats), OZ_ERR_UNSUPPORTED);
    if (strstr(err.message, phrase) == NULL || strstr(err.message, t->name) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", phrase, err.message);
    }
    oz_arena_deinit(&model);
    done();
}

static void what_is_not_built_is_refused(void **state)
{
    static const int32_t order[] = {0, 1, 2, 3};
    static const enum oz_dtype dtypes[] = {OZ_DTYPE_I8,   OZ_DTYPE_F8_E4M3, OZ_DTYPE_F4,
                                           OZ_DTYPE_BOOL, OZ_DTYPE_I64,     OZ_DTYPE_C64};
    struct tensor t = {"some.weight", OZ_DTYPE_I8, 2, {4, 6}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char phrase[64];
        t.dtype = dtypes[i];
        (void)snprintf(phrase, sizeof phrase, "is stored as %s:", oz_dtype_name(t.dtype));
        refused(linear, &t, phrase);
    }
    t.dtype = OZ_DTYPE_BF16;
    struct oz_layer row = linear;
    row.transform = OZ_TRANSFORM_ADD_ONE;
    refused(row, &t, "not built");
    row.transform = OZ_TRANSFORM_LAST_TAP;
    refused(row, &t, "not built");
    row = linear;
    row.bind_slice = 1;
    refused(row, &t, "not built");
    row = linear;
    row.file_rows = 2;
    row.transform = OZ_TRANSFORM_TRANSPOSE;
    refused(row, &t, "not built");
    row = (struct oz_layer){.kind = OZ_LAYER_CONV, .rank = 4, .shape = {4, 6, 1, 1}};
    struct tensor conv = {"conv.weight", OZ_DTYPE_BF16, 4, {4, 6, 1, 1}};
    row.transform = OZ_TRANSFORM_PERMUTE;
    row.permutation = order;
    refused(row, &conv, "not built");
    row.transform = OZ_TRANSFORM_NONE;
    row.file_rows = 2;
    refused(row, &conv, "not built");
    row = vector;
    row.transform = OZ_TRANSFORM_TRANSPOSE;
    struct tensor v = {"v", OZ_DTYPE_BF16, 1, {6}};
    refused(row, &v, "not built");
}

/* ---- progress and small arenas ---- */

static int stop_at(void *ctx, const struct oz_progress *p)
{
    int *calls = ctx;
    assert_true(p->stage == OZ_STAGE_LOAD && p->total == 4 * 96 && p->struct_size == sizeof *p);
    assert_true(p->done == (*calls + 1) * 96);
    return ++*calls == 2;
}

static void progress_and_cancelling(void **state)
{
    static const struct tensor tensors[] = {{"a", OZ_DTYPE_F32, 2, {4, 6}},
                                            {"b", OZ_DTYPE_F32, 2, {4, 6}},
                                            {"c", OZ_DTYPE_F32, 2, {4, 6}},
                                            {"d", OZ_DTYPE_F32, 2, {4, 6}}};
    struct oz_arena model;
    int calls = 0;
    int64_t bytes = 0;
    open_file(tensors, 4, 1);
    begin();
    for (int i = 0; i < 4; i++) {
        add(tensors[i].name, linear, i);
    }
    matched();
    ok(oz_arena_init_host(&model, "model", 4 * 256, &err));
    struct oz_load_args args = {.match = match,
                                .dev = dev,
                                .model = &model,
                                .progress = stop_at,
                                .progress_ctx = &calls,
                                .done_bytes = &bytes,
                                .total_bytes =
                                    oz_load_bytes(&(struct oz_load_args){.match = match})};
    assert_int_equal(oz_load_component(&args, &err), OZ_ERR_CANCELLED);
    assert_int_equal(calls, 2);
    oz_arena_deinit(&model);
    ok(oz_arena_init_host(&model, "model", 3 * 256, &err));
    args.progress = NULL;
    assert_int_equal(oz_load_component(&args, &err), OZ_ERR_NOMEM);
    assert_non_null(strstr(err.message, "full at d: 96 bytes, 768 of 768 used"));
    oz_arena_deinit(&model);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_wrong_is_named),
        cmocka_unit_test(one_of_each_is_singular),
        cmocka_unit_test(all_well),
        cmocka_unit_test(long_lists_go_to_the_log),
        cmocka_unit_test(plain_weights_stay_in_the_map),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(moves_of_rows),
        cmocka_unit_test(reshapes_and_parts),
        cmocka_unit_test(scalars_and_nothing),
        cmocka_unit_test(what_is_not_built_is_refused),
        cmocka_unit_test(progress_and_cancelling),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
