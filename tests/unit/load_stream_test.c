/*
 * The quantizing loader: what it leaves in memory is, byte for byte, what the codec makes of the whole
 * canonical tensor at once, whatever the threads, the ring, the shards and the transforms; a measuring
 * load says what the real one takes; faults are errors by name, and leave nothing behind.
 */
#include "test.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/pool.h"
#include "ckpt/writer.h"
#include "cpu/kernel.h"
#include "dev/ops.h"
#include "fill.h"
#include "load/load.h"
#include "num/float.h"
#include "ops/param.h"
#include "scratch.h"

#define MAX_TENSORS 64

static struct oz_error err;
static struct oz_pool *pools[4]; /* of so many threads */
static struct oz_device *devices[4];

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static int start(void **state)
{
    if (scratch_open(state) != 0) {
        return -1;
    }
    for (int i = 1; i < 4; i++) {
        ok(oz_pool_create(&pools[i], i, &err));
        ok(oz_cpu_open(&devices[i], 0, pools[i], "scalar", NULL, &err));
    }
    return 0;
}

static int stop(void **state)
{
    for (int i = 1; i < 4; i++) {
        oz_device_close(&devices[i]);
        oz_pool_destroy(&pools[i]);
    }
    return scratch_close(state);
}

/* ---- a model: tensors in shards, rows, parameters, an assignment ---- */

static struct oz_ckpt_spec specs[MAX_TENSORS];
static int32_t tensor_count;
static float odd_value; /* takes the place of element odd_at of tensor odd_tensor */
static int32_t odd_tensor;
static int64_t odd_at;

static struct oz_arena host;
static struct oz_layer_table table;
static struct oz_ckpt *ckpt;
static struct oz_match *match;
static struct oz_param params[MAX_TENSORS];
static struct oz_choice choices[MAX_TENSORS];
static struct oz_assignment assignment;

static int64_t elements_of(const struct oz_ckpt_spec *s)
{
    int64_t n = 1;
    for (int32_t i = 0; i < s->rank; i++) {
        n *= s->shape[i];
    }
    return n;
}

/* Element j of tensor i: of very different sizes, as weights are. */
static float value(int32_t i, int64_t j)
{
    if (i == odd_tensor && j == odd_at) {
        return odd_value;
    }
    double v = fill_value((uint32_t)i, (uint32_t)j);
    double size = fill_value((uint32_t)i + 7000, (uint32_t)j / 37);
    return oz_bf16_to_f32(oz_f32_to_bf16((float)(v * exp2(12 * size))));
}

static void new_model(void)
{
    ok(oz_arena_init_host(&host, "table", 1 << 22, &err));
    ok(oz_layer_table_init(&table, &host, "test", MAX_TENSORS, 4));
    memset(params, 0, sizeof params);
    memset(choices, 0, sizeof choices);
    assignment = (struct oz_assignment){.table = &table, .choices = choices};
    tensor_count = 0;
    odd_tensor = -1;
}

static int32_t add_tensor(const char *name, enum oz_dtype dtype, int32_t rank, const int64_t *shape)
{
    struct oz_ckpt_spec *s = &specs[tensor_count];
    *s = (struct oz_ckpt_spec){.name = oz_arena_string(&host, name), .dtype = dtype, .rank = rank};
    memcpy(s->shape, shape, (size_t)rank * sizeof *shape);
    return tensor_count++;
}

/* A row with a tensor of its own name and file shape, and the codec that it is given (NULL: none). */
static void add(const char *name, struct oz_layer row, enum oz_dtype dtype, struct oz_param *param,
                const char *codec)
{
    struct oz_choice *choice = &choices[table.count];
    row.bind = param;
    (void)add_tensor(name, dtype, row.file_rank > 0 ? row.file_rank : row.rank,
                     row.file_rank > 0 ? row.file_shape : row.shape);
    choice->scheme.name = "as stored";
    choice->rule = "a rule";
    if (codec != NULL) {
        choice->scheme = (struct oz_scheme){
            .name = codec, .codec = oz_codec_find(codec), .mode_count = 1};
        assert_non_null(choice->scheme.codec);
    }
    oz_layer_add(&table, &row, "%s", name);
}

static void write_model(int64_t max_shard_bytes)
{
    struct oz_ckpt_writer *w;
    scratch_remove("m");
    scratch_folder("m");
    const struct oz_ckpt_writer_options options = {
        .folder = scratch_path("m"), .stem = "model", .max_shard_bytes = max_shard_bytes};
    ok(oz_ckpt_writer_create(&w, &options, specs, tensor_count, &err));
    for (int32_t i; (i = oz_ckpt_writer_next(w)) >= 0;) {
        int64_t n = elements_of(&specs[i]);
        size_t size = (size_t)oz_dtype_bits(specs[i].dtype) / 8;
        uint8_t *data = oz_alloc((size_t)n * size);
        for (int64_t j = 0; j < n; j++) {
            float x = value(i, j);
            uint16_t h = specs[i].dtype == OZ_DTYPE_F16 ? oz_f32_to_f16(x) : oz_f32_to_bf16(x);
            memcpy(data + (size_t)j * size, size == 4 ? (void *)&x : (void *)&h, size);
        }
        ok(oz_ckpt_writer_put(w, data, (size_t)n * size, &err));
        oz_free(data);
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
}

static void open_model(void)
{
    ok(oz_layer_table_finish(&table, &err));
    oz_params_describe(&table);
    ok(oz_ckpt_open(&ckpt, scratch_path("m"), NULL, &err));
    ok(oz_match_create(&match, ckpt, &table, &err));
    ok(oz_match_check(match, "m", &err));
}

static void close_model(void)
{
    oz_match_destroy(&match);
    oz_ckpt_close(&ckpt);
    oz_arena_deinit(&host);
}

/* ---- loading ---- */

struct loaded {
    struct oz_arena model;
    struct oz_load_schedule schedule;
    struct oz_load_stats stats;
    struct oz_load_report report;
};

static struct oz_load_args args_of(struct oz_device *dev, int64_t ring, struct oz_arena *model)
{
    return (struct oz_load_args){.match = match,
                                 .dev = dev,
                                 .model = model,
                                 .assignment = &assignment,
                                 .ring_bytes = ring,
                                 .total_bytes = oz_load_bytes(match)};
}

static void unload(struct loaded *l)
{
    oz_arena_deinit(&l->model);
    oz_load_schedule_deinit(&l->schedule);
    oz_load_report_deinit(&l->report);
}

/* Measures, loads into exactly that. The measured schedule must be the executed one. */
static enum oz_status load(struct loaded *l, struct oz_device *dev, int64_t ring)
{
    struct oz_arena measure;
    struct oz_load_schedule planned;
    *l = (struct loaded){0};
    oz_arena_init_measure(&measure, "model");
    struct oz_load_args args = args_of(dev, ring, &measure);
    args.schedule = &planned;
    enum oz_status status = oz_load_component(&args, &err);
    if (status == OZ_OK) {
        ok(oz_arena_init_host(&l->model, "model", measure.used_bytes, &err));
        args.model = &l->model;
        args.schedule = &l->schedule;
        args.stats = &l->stats;
        args.report = &l->report;
        status = oz_load_component(&args, &err);
        assert_int_equal(l->model.used_bytes, measure.used_bytes);
        assert_int_equal(planned.count, l->schedule.count);
        assert_memory_equal(planned.steps, l->schedule.steps,
                            (size_t)planned.count * sizeof *planned.steps);
        assert_int_equal(planned.staging_bytes, l->schedule.staging_bytes);
        assert_true(planned.staging_bytes <= (ring > 0 ? ring : OZ_LOAD_RING_BYTES));
    }
    oz_load_schedule_deinit(&planned);
    return status;
}

/* ---- what it should be ---- */

/* A canonical row of a tensor in f32, by the definition of the transforms. */
static void canonical(const struct oz_layer *row, int64_t slice, int64_t r, int64_t rows,
                      int64_t cols, float *dst)
{
    int32_t t = 0;
    while (strcmp(specs[t].name, row->name) != 0) {
        t++;
    }
    if (row->transform & OZ_TRANSFORM_PERMUTE) {
        r = row->permutation[r];
    }
    if (row->transform & OZ_TRANSFORM_SWAP_HALVES) {
        r = (r + rows / 2) % rows;
    }
    r += row->file_row;
    for (int64_t c = 0; c < cols; c++) {
        int64_t at = row->transform & OZ_TRANSFORM_TRANSPOSE ? c * rows + r : r * cols + c;
        dst[c] = value(t, slice * rows * cols + at) +
                 (row->transform & OZ_TRANSFORM_ADD_ONE ? 1.0F : 0.0F);
    }
}

/* The whole parameter [slices, rows, cols] in f32, from all rows that bind it. */
static float *whole_param(const struct oz_param *p)
{
    const struct oz_weight *w = &p->weight;
    float *all = oz_alloc((size_t)(w->slices * w->rows * w->cols) * sizeof *all);
    for (int32_t i = 0; i < table.count; i++) {
        const struct oz_layer *row = &table.rows[i];
        if (row->bind != p) {
            continue;
        }
        int64_t slices = row->rank > 2 ? row->shape[0] : 1;
        int64_t rows = row->shape[row->rank - 2];
        int64_t step = row->bind_row_stride > 0 ? row->bind_row_stride : 1;
        for (int64_t s = 0; s < slices; s++) {
            for (int64_t r = 0; r < rows; r++) {
                int64_t to = (row->bind_slice + s) * w->rows + row->bind_row + r * step;
                canonical(row, s, r, rows, w->cols, all + to * w->cols);
            }
        }
    }
    return all;
}

/* amax over the fused group of a row, or 0 where it has a scale of its own. */
static void observe_whole(const struct oz_weight *w, const float *all, int64_t slice,
                          struct oz_encode_state *state)
{
    ok(w->codec->observe(w, 0, all + slice * w->rows * w->cols, w->rows, w->cols, state));
}

/* Planes of the parameter as its codec makes them of the whole at once. */
static void expect_planes(const struct oz_param *p, const struct oz_layer *row)
{
    struct oz_weight want = p->weight;
    const struct oz_choice *choice = &choices[row - table.rows];
    float *all = whole_param(p);
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        if (want.planes[i].present) {
            want.planes[i].data = oz_alloc_zero(1, (size_t)want.planes[i].bytes);
        }
    }
    for (int64_t s = 0; s < want.slices; s++) {
        struct oz_encode_state state;
        oz_encode_state_init(&state);
        if (want.codec->observe_passes > 0) {
            observe_whole(&want, all, s, &state);
            for (int32_t i = 0; i < table.count && choice->scheme.scope == OZ_SCOPE_FUSED; i++) {
                const struct oz_layer *other = &table.rows[i];
                if (other->bind != p && other->fused != NULL && row->fused != NULL &&
                    strcmp(other->fused, row->fused) == 0) {
                    float *more = whole_param(other->bind);
                    observe_whole(&other->bind->weight, more, s, &state);
                    oz_free(more);
                }
            }
            want.codec->begin(&want, s, &state);
        }
        ok(want.codec->encode(&want, s, 0, all + s * want.rows * want.cols, want.rows, want.cols,
                              &state));
    }
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        if (want.planes[i].present) {
            if (memcmp(want.planes[i].data, p->weight.planes[i].data,
                       (size_t)want.planes[i].bytes) != 0) {
                fail_msg("%s: plane %d as %s is not what the whole tensor gives", row->name, i,
                         want.codec->name);
            }
            oz_free(want.planes[i].data);
        }
    }
    oz_free(all);
}

/* Every matrix that is bound holds what it should. */
static void expect_all(void)
{
    for (int32_t i = 0; i < table.count; i++) {
        const struct oz_layer *row = &table.rows[i];
        if (row->bind != NULL && row->rank > 1 && row->bind->packed == NULL) {
            assert_non_null(row->bind->weight.codec);
            expect_planes(row->bind, row);
        }
    }
}

/* ---- models ---- */

static const char *const codecs[] = {
    "f16",    "fp8_tensor", "fp8_channel",     "fp8_block", "int8_channel", "int8_channel_bf16",
    "mxfp8",  "mxfp4",      "mxfp4_dualscale", "nvfp4",     "nf4",          "nf4_nested",
    "fp4_bnb",
};
#define CODECS (sizeof codecs / sizeof *codecs)

static struct oz_layer matrix(enum oz_layer_kind kind, int64_t rows, int64_t cols)
{
    return (struct oz_layer){.kind = kind, .rank = 2, .shape = {rows, cols}};
}

/* Blocks whose q, k and v lie in different shards, an embedding larger than all of them, a fused 3-D
 * tensor, vectors. */
static void blocks(const char *codec, bool fused_scope)
{
    static const char *const parts[] = {"q", "k", "v"};
    int at = 0;
    new_model();
    for (int part = 0; part < 3; part++) {
        for (int block = 0; block < 3; block++) {
            char name[64];
            struct oz_layer row = matrix(OZ_LAYER_LINEAR, part == 0 ? 200 : 72, 96);
            row.fused = oz_layer_string(&table, "blocks.%d.qkv", block);
            row.fused_index = part;
            (void)snprintf(name, sizeof name, "blocks.%d.%s.weight", block, parts[part]);
            choices[table.count].scheme.scope = OZ_SCOPE_OWN;
            add(name, row, OZ_DTYPE_BF16, &params[at++], codec);
            choices[table.count - 1].scheme.scope = fused_scope ? OZ_SCOPE_FUSED : OZ_SCOPE_OWN;
        }
    }
    struct oz_layer experts = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {4, 136, 64}};
    add("experts.weight", experts, OZ_DTYPE_BF16, &params[at++], codec);
    add("embed.weight", matrix(OZ_LAYER_EMBED, 3000, 40), OZ_DTYPE_BF16, &params[at++], NULL);
    add("wide.weight", matrix(OZ_LAYER_LINEAR, 5, 1100), OZ_DTYPE_F32, &params[at++], codec);
    add("half.weight", matrix(OZ_LAYER_LINEAR, 33, 70), OZ_DTYPE_F16, &params[at++], codec);
    add("kept.weight", matrix(OZ_LAYER_LINEAR, 16, 32), OZ_DTYPE_BF16, &params[at++], NULL);
    struct oz_layer norm = {.kind = OZ_LAYER_NORM, .rank = 1, .shape = {96}};
    add("norm.weight", norm, OZ_DTYPE_BF16, &params[at++], NULL);
    add("listed.weight", norm, OZ_DTYPE_BF16, NULL, NULL);
    write_model(120000);
    open_model();
    assert_true(oz_ckpt_file_count(ckpt) > 3);
}

static void bytes_are_those_of_the_whole(void **state)
{
    static const int64_t rings[] = {0, 1 << 19};
    for (size_t c = 0; c < CODECS; c++) {
        for (int fused = 0; fused < 2; fused++) {
            blocks(codecs[c], fused);
            for (int threads = 1; threads < 4; threads++) {
                for (size_t r = 0; r < sizeof rings / sizeof *rings; r++) {
                    struct loaded l;
                    ok(load(&l, devices[threads], rings[r]));
                    expect_all();
                    assert_int_equal(l.stats.encoded, 12);
                    unload(&l);
                }
            }
            close_model();
        }
    }
}

/* Rings in which no scope of all rows fits: read, observe, read again, encode. */
static void tiny_rings(void **state)
{
    for (size_t c = 0; c < CODECS; c++) {
        blocks(codecs[c], true);
        for (int threads = 1; threads < 4; threads++) {
            struct loaded l;
            enum oz_status status = load(&l, devices[threads], 1);
            assert_int_equal(status, OZ_ERR_ARG);
            const char *give = strstr(err.message, "give it ");
            assert_non_null(give);
            int64_t least = strtoll(give + 8, NULL, 10);
            assert_true(least > 0);
            ok(load(&l, devices[threads], least));
            expect_all();
            bool observes = oz_codec_find(codecs[c])->observe_passes > 0;
            assert_int_equal(l.schedule.twice > 0, observes);
            assert_int_equal(l.schedule.workers, 1);
            int64_t twice = l.schedule.read_bytes - l.schedule.tensor_bytes;
            assert_true(observes ? twice > 0 : twice == 0);
            unload(&l);
            assert_int_equal(load(&l, devices[threads], least - 1), OZ_ERR_ARG);
        }
        close_model();
    }
}

static void a_device_of_its_own_memory(void **state)
{
    struct oz_device far = *devices[2];
    far.host_memory = false;
    for (size_t c = 0; c < CODECS; c++) {
        struct loaded l;
        blocks(codecs[c], true);
        ok(load(&l, &far, 0));
        expect_all();
        unload(&l);
        ok(load(&l, &far, 1 << 18));
        expect_all();
        unload(&l);
        close_model();
    }
}

/* ---- transforms and parts ---- */

static void moved_rows(void **state)
{
    static int32_t order[24];
    for (int i = 0; i < 24; i++) {
        order[i] = (i * 7) % 24;
    }
    for (uint32_t k = 0; k < 16; k++) {
        for (size_t c = 0; c < CODECS; c++) {
            struct loaded l;
            struct oz_layer w = matrix(OZ_LAYER_LINEAR, 24, 40);
            struct oz_layer e = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {3, 24, 40}};
            w.permutation = e.permutation = order;
            w.transform = e.transform = (k & 1 ? OZ_TRANSFORM_PERMUTE : 0U) |
                                        (k & 2 ? OZ_TRANSFORM_SWAP_HALVES : 0U) |
                                        (k & 4 ? OZ_TRANSFORM_TRANSPOSE : 0U) |
                                        (k & 8 ? OZ_TRANSFORM_ADD_ONE : 0U);
            if (k & 4) {
                w.file_rank = 2;
                memcpy(w.file_shape, (const int64_t[]){40, 24}, 16);
                e.file_rank = 3;
                memcpy(e.file_shape, (const int64_t[]){3, 40, 24}, 24);
            }
            new_model();
            add("w", w, OZ_DTYPE_BF16, &params[0], codecs[c]);
            add("e", e, OZ_DTYPE_BF16, &params[1], codecs[c]);
            struct oz_layer part = matrix(OZ_LAYER_LINEAR, 10, 40);
            part.file_rank = 2;
            memcpy(part.file_shape, (const int64_t[]){30, 40}, 16);
            part.file_row = 13;
            part.file_rows = 10;
            add("part", part, OZ_DTYPE_F32, &params[2], codecs[c]);
            write_model(0);
            open_model();
            for (int threads = 1; threads < 4; threads++) {
                ok(load(&l, devices[threads], 0));
                expect_all();
                unload(&l);
            }
            close_model();
        }
    }
}

static void whole(struct oz_param *p, const char *name, int32_t rank, const int64_t *shape)
{
    p->name = name;
    p->rank = rank;
    memcpy(p->shape, shape, (size_t)rank * sizeof *shape);
}

/* q, k and v of three shards into one parameter; experts of single files with gate and up
 * interleaved; gate before up from two 3-D tensors; biases of parts. */
static void parts_of_parameters(void **state)
{
    for (size_t c = 0; c <= CODECS; c++) { /* the last time: as stored */
        const char *codec = c < CODECS ? codecs[c] : NULL;
        static const char *const names[] = {"q", "k", "v"};
        int64_t row0 = 0;
        new_model();
        whole(&params[0], "qkv", 2, (const int64_t[]){300, 48});
        whole(&params[1], "experts", 3, (const int64_t[]){3, 20, 48});
        whole(&params[2], "stacked", 3, (const int64_t[]){2, 22, 48});
        whole(&params[3], "bias", 1, (const int64_t[]){9});
        for (int i = 0; i < 3; i++) {
            struct oz_layer row = matrix(OZ_LAYER_LINEAR, 50 * (i + 1), 48);
            row.bind_row = row0;
            row.bind_row_stride = 1;
            row0 += row.shape[0];
            add(names[i], row, OZ_DTYPE_BF16, &params[0], codec);
        }
        for (int i = 0; i < 6; i++) {
            char name[32];
            struct oz_layer row = matrix(OZ_LAYER_EXPERTS, 10, 48);
            row.bind_slice = (5 - i) / 2;
            row.bind_row = i % 2;
            row.bind_row_stride = 2;
            (void)snprintf(name, sizeof name, "expert.%d", i);
            add(name, row, OZ_DTYPE_BF16, &params[1], codec);
        }
        for (int i = 0; i < 2; i++) {
            struct oz_layer row = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {2, 8 + 6 * i, 48}};
            row.bind_row = 8 * i;
            row.bind_row_stride = 1;
            add(i == 0 ? "gate" : "up", row, OZ_DTYPE_BF16, &params[2], codec);
        }
        for (int i = 0; i < 3; i++) {
            char name[32];
            struct oz_layer row = {.kind = OZ_LAYER_VECTOR, .rank = 1, .shape = {3}};
            row.bind_row = i;
            row.bind_row_stride = 3;
            (void)snprintf(name, sizeof name, "bias.%d", i);
            add(name, row, OZ_DTYPE_BF16, &params[3], NULL);
        }
        write_model(8000);
        open_model();
        for (int threads = 1; threads < 4; threads++) {
            struct loaded l;
            ok(load(&l, devices[threads], 0));
            expect_all();
            const float *bias = params[3].weight.planes[OZ_PLANE_CODES].data;
            for (int i = 0; i < 9; i++) {
                assert_true(bias[i] == value(11 + i % 3, i / 3));
            }
            unload(&l);
        }
        close_model();
    }
}

static void parts_that_do_not_fit(void **state)
{
    static const struct {
        int64_t row0, rows, stride, cols;
        const char *second_codec;
        const char *phrase;
    } cases[] = {
        {8, 8, 1, 32, "f16", "[16, 32]"},          /* in order: no error */
        {7, 8, 1, 32, "f16", "leave rows empty"},  /* overlap */
        {9, 8, 1, 32, "f16", "does not lie"},      /* beyond the end */
        {8, 4, 2, 32, "f16", "leave rows empty"},  /* gaps */
        {8, 8, 1, 32, "f32", "differ in scheme"},
        {8, 8, 1, 32, NULL, "differ in scheme: f16 and as stored"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct loaded l;
        new_model();
        whole(&params[0], "both", 2, (const int64_t[]){16, 32});
        struct oz_layer a = matrix(OZ_LAYER_LINEAR, 8, 32);
        struct oz_layer b = matrix(OZ_LAYER_LINEAR, cases[i].rows, cases[i].cols);
        a.bind_row_stride = 1;
        b.bind_row = cases[i].row0;
        b.bind_row_stride = cases[i].stride;
        add("a", a, OZ_DTYPE_BF16, &params[0], "f16");
        add("b", b, OZ_DTYPE_BF16, &params[0], cases[i].second_codec);
        write_model(0);
        open_model();
        enum oz_status status = load(&l, devices[1], 0);
        if (i == 0) {
            ok(status);
            expect_all();
        } else {
            assert_int_not_equal(status, OZ_OK);
            if (strstr(err.message, cases[i].phrase) == NULL) {
                fail_msg("\"%s\" is not in \"%s\"", cases[i].phrase, err.message);
            }
        }
        unload(&l);
        close_model();
    }
}

/* Weights that are packed by way of bands are the bytes of those that are packed from the map. */
static void packed_in_bands(void **state)
{
    struct oz_device *dev;
    struct oz_layer w = matrix(OZ_LAYER_LINEAR, 300, 1000);
    struct oz_layer moved = w;
    struct loaded l;
    static int32_t identity[300];
    for (int i = 0; i < 300; i++) {
        identity[i] = i;
    }
    moved.transform = OZ_TRANSFORM_PERMUTE;
    moved.permutation = identity;
    ok(oz_cpu_open(&dev, 0, pools[2], NULL, NULL, &err));
    new_model();
    add("w", w, OZ_DTYPE_BF16, &params[0], NULL);
    write_model(0);
    open_model();
    ok(load(&l, dev, 0));
    bool packs = params[0].packed != NULL;
    uint8_t *want = oz_alloc(l.model.used_bytes);
    size_t bytes = l.model.used_bytes;
    memcpy(want, l.model.base, bytes);
    unload(&l);
    close_model();
    for (int tiny = 0; tiny < 2 && packs; tiny++) {
        new_model();
        add("w", moved, OZ_DTYPE_BF16, &params[0], NULL);
        write_model(0);
        open_model();
        ok(load(&l, dev, tiny ? 200000 : 0));
        assert_int_equal(l.model.used_bytes, bytes);
        assert_memory_equal(l.model.base, want, bytes);
        assert_int_equal(l.report.entries[0].fate, OZ_FATE_PACKED);
        unload(&l);
        close_model();
    }
    oz_free(want);
    oz_device_close(&dev);
}

/* ---- NaN and infinity ---- */

static void what_is_not_finite(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    static const char *const says[] = {"is NaN at [1, 29, 3]", "is infinite at [1, 29, 3]",
                                       "is -infinite at [1, 29, 3]"};
    for (size_t c = 0; c < CODECS; c++) {
        for (int i = 0; i < 3; i++) {
            struct oz_layer e = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {2, 24, 40}};
            struct loaded l;
            new_model();
            e.transform = OZ_TRANSFORM_TRANSPOSE; /* the place is the file's */
            e.file_rank = 3;
            memcpy(e.file_shape, (const int64_t[]){2, 40, 24}, 24);
            add("some.experts", e, OZ_DTYPE_BF16, &params[0], codecs[c]);
            odd_tensor = 0;
            odd_at = (1 * 40 + 29) * 24 + 3;
            odd_value = odd[i];
            write_model(0);
            open_model();
            for (int threads = 1; threads < 4; threads++) {
                assert_int_equal(load(&l, devices[threads], 0), OZ_ERR_FORMAT);
                assert_non_null(strstr(err.message, "Tensor some.experts of "));
                assert_non_null(strstr(err.message, says[i]));
                assert_non_null(strstr(err.message, "ignored_layers: \"some\""));
                assert_null(params[0].weight.planes[OZ_PLANE_CODES].data);
                unload(&l);
            }
            struct oz_arena measure;
            oz_arena_init_measure(&measure, "model");
            struct oz_load_args args = args_of(devices[2], 0, &measure);
            args.keep_nonfinite = true;
            ok(oz_load_component(&args, &err));
            struct oz_arena model;
            ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
            args.model = &model;
            ok(oz_load_component(&args, &err));
            float got;
            params[0].weight.codec->decode(&params[0].weight, 1, 3, 29, 1, &got);
            assert_true(isnan(got) || isinf(got));
            oz_arena_deinit(&model);
            close_model();
        }
    }
}

/* Of several, the first of the first band: whatever the threads do. */
static void the_first_of_several_is_named(void **state)
{
    struct loaded l;
    char first[512] = "";
    new_model();
    add("a", matrix(OZ_LAYER_LINEAR, 4000, 512), OZ_DTYPE_BF16, &params[0], "f16");
    write_model(0);
    open_model();
    FILE *f = fopen(scratch_path("m/model.safetensors"), "r+b");
    assert_non_null(f);
    const struct oz_tensor_view *t = oz_ckpt_find(ckpt, "a", NULL);
    for (int i = 0; i < 8; i++) { /* in eight bands */
        const uint16_t nan = 0x7FC0;
        assert_int_equal(fseek(f, (long)t->file_offset + (300 + 400 * i) * 1024L + 34, SEEK_SET), 0);
        assert_int_equal(fwrite(&nan, 2, 1, f), 1);
    }
    (void)fclose(f);
    oz_match_destroy(&match);
    oz_ckpt_close(&ckpt);
    ok(oz_ckpt_open(&ckpt, scratch_path("m"), NULL, &err));
    ok(oz_match_create(&match, ckpt, &table, &err));
    for (int i = 0; i < 30; i++) {
        assert_int_equal(load(&l, devices[1 + i % 3], 0), OZ_ERR_FORMAT);
        assert_non_null(strstr(err.message, "at [300, 17]"));
        if (i == 0) {
            (void)snprintf(first, sizeof first, "%.500s", err.message);
        }
        assert_string_equal(err.message, first);
        unload(&l);
    }
    close_model();
}

/* ---- faults ---- */

static atomic_int reads, fail_at;

static ssize_t short_reads(int fd, void *dst, size_t bytes, off_t offset)
{
    if (atomic_fetch_add(&reads, 1) % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return pread(fd, dst, bytes < 700 ? bytes : 700, offset);
}

static ssize_t bad_disk(int fd, void *dst, size_t bytes, off_t offset)
{
    if (atomic_fetch_add(&reads, 1) == atomic_load(&fail_at)) {
        errno = EIO;
        return -1;
    }
    return pread(fd, dst, bytes, offset);
}

static void reads_that_come_in_pieces(void **state)
{
    struct loaded l;
    blocks(codecs[0], false);
    oz_ckpt_set_pread(short_reads);
    ok(load(&l, devices[3], 0));
    oz_ckpt_set_pread(NULL);
    expect_all();
    unload(&l);
    close_model();
}

static void a_disk_that_fails(void **state)
{
    blocks(codecs[0], false);
    for (int at = 0;; at += 3) {
        struct loaded l;
        atomic_store(&reads, 0);
        atomic_store(&fail_at, at);
        oz_ckpt_set_pread(bad_disk);
        enum oz_status status = load(&l, devices[1 + at % 3], 0);
        oz_ckpt_set_pread(NULL);
        if (status == OZ_OK) {
            assert_true(at > 9); /* every band was read by itself */
            unload(&l);
            break;
        }
        assert_int_equal(status, OZ_ERR_IO);
        assert_non_null(strstr(err.message, "Cannot read tensor "));
        assert_non_null(strstr(err.message, ".safetensors: Input/output error"));
        for (int i = 0; i < 10; i++) {
            assert_null(params[i].weight.planes[OZ_PLANE_CODES].data);
        }
        unload(&l);
    }
    close_model();
}

static void files_that_change(void **state)
{
    struct oz_arena measure;
    struct oz_arena model;
    for (int how = 0; how < 2; how++) {
        blocks(codecs[0], false);
        oz_arena_init_measure(&measure, "model");
        struct oz_load_args args = args_of(devices[2], 0, &measure);
        ok(oz_load_component(&args, &err));
        ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
        args.model = &model;
        const char *path = oz_ckpt_file(ckpt, 1)->path;
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        if (how == 0) {
            assert_int_equal(ftruncate(fileno(f), oz_ckpt_file(ckpt, 1)->bytes - 1000), 0);
        } else {
            assert_int_equal(fseek(f, -1, SEEK_END), 0);
            assert_int_equal(fputc(1, f), 1);
        }
        (void)fclose(f);
        assert_int_equal(oz_load_component(&args, &err), OZ_ERR_IO);
        assert_non_null(strstr(err.message, path));
        assert_non_null(strstr(err.message, "was changed while"));
        oz_arena_deinit(&model);
        close_model();
    }
}

/* Cut in the middle of the load: the read meets the end. */
static const char *cut_path;

static ssize_t cutting(int fd, void *dst, size_t bytes, off_t offset)
{
    if (atomic_fetch_add(&reads, 1) == 4 && truncate(cut_path, 2000) != 0) {
        return -1;
    }
    return pread(fd, dst, bytes, offset);
}

static void a_file_that_is_cut_while_it_is_read(void **state)
{
    struct loaded l;
    new_model();
    add("a", matrix(OZ_LAYER_LINEAR, 9000, 512), OZ_DTYPE_BF16, &params[0], "f16");
    write_model(0);
    open_model();
    cut_path = oz_ckpt_file(ckpt, 0)->path;
    atomic_store(&reads, 0);
    oz_ckpt_set_pread(cutting);
    assert_int_equal(load(&l, devices[2], 0), OZ_ERR_IO);
    oz_ckpt_set_pread(NULL);
    assert_non_null(strstr(err.message, "Cannot read tensor a from "));
    assert_non_null(strstr(err.message, "the file has become shorter"));
    unload(&l);
    close_model();
}

static void no_memory(void **state)
{
    int failures = 0;
    blocks(codecs[0], true);
    for (uint64_t n = 1;; n++) {
        struct oz_arena measure;
        struct oz_load_report report = {0};
        oz_arena_init_measure(&measure, "model");
        struct oz_load_args args = args_of(devices[2], 0, &measure);
        ok(oz_load_component(&args, &err));
        struct oz_arena model;
        ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
        args.model = &model;
        args.report = &report;
        args.ring_bytes = 3 << 19; /* fewer workers than threads: a pool of its own */
        oz_alloc_fail_at(n, 0);
        enum oz_status status = oz_load_component(&args, &err);
        oz_alloc_fail_at(0, 0);
        oz_load_report_deinit(&report);
        oz_arena_deinit(&model);
        if (status == OZ_OK) {
            break;
        }
        assert_int_equal(status, OZ_ERR_NOMEM);
        failures++;
    }
    assert_true(failures > 8);
    close_model();
}

/* ---- progress, cancelling, reports ---- */

struct watcher {
    int64_t done, total;
    int calls, stop_at;
};

static int watch(void *ctx, const struct oz_progress *p)
{
    struct watcher *w = ctx;
    assert_true(p->stage == OZ_STAGE_LOAD && p->total == w->total);
    assert_true(p->done > w->done && p->done <= p->total);
    w->done = p->done;
    return ++w->calls == w->stop_at;
}

static void progress_and_cancelling(void **state)
{
    for (size_t c = 0; c < CODECS; c++) {
        blocks(codecs[c], true);
        for (int stop_at = 0; stop_at < 12; stop_at++) {
            struct oz_arena measure;
            struct oz_arena model;
            int64_t done = 0;
            struct watcher w = {.total = oz_load_bytes(match), .stop_at = stop_at};
            oz_arena_init_measure(&measure, "model");
            struct oz_load_args args = args_of(devices[1 + stop_at % 3], 1 << 18, &measure);
            ok(oz_load_component(&args, &err));
            ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
            args.model = &model;
            args.progress = watch;
            args.progress_ctx = &w;
            args.done_bytes = &done;
            enum oz_status status = oz_load_component(&args, &err);
            if (stop_at == 0) {
                ok(status);
                assert_int_equal(w.done, w.total);
                assert_int_equal(done, w.total);
            } else if (status == OZ_ERR_CANCELLED) {
                assert_int_equal(w.calls, stop_at);
                assert_null(params[0].weight.planes[OZ_PLANE_CODES].data);
            } else {
                ok(status); /* fewer reports than that: other threads took the bands */
            }
            oz_arena_deinit(&model);
        }
        close_model();
    }
}

static void every_tensor_is_accounted_for(void **state)
{
    static const struct oz_ignore rule = {
        .name = "vision tower", .prefix = "visual", .reason = "not used"};
    for (size_t c = 0; c < CODECS; c++) {
        struct loaded l;
        struct oz_buf json;
        struct oz_json *parsed;
        int fates[OZ_FATE_COUNT] = {0};
        int64_t resident = 0;
        int64_t read = 0;
        new_model();
        add("b.q.weight", matrix(OZ_LAYER_LINEAR, 64, 64), OZ_DTYPE_BF16, &params[0], codecs[c]);
        struct oz_layer tied = matrix(OZ_LAYER_LINEAR, 64, 64);
        add("b.kept.weight", tied, OZ_DTYPE_BF16, &params[1], NULL);
        tied.bind = &params[2];
        tied.tied_to = "b.kept.weight";
        oz_layer_add(&table, &tied, "head.weight");
        choices[table.count - 1] = choices[table.count - 2];
        struct oz_layer norm = {.kind = OZ_LAYER_NORM, .rank = 1, .shape = {96}};
        add("norm.weight", norm, OZ_DTYPE_BF16, &params[3], NULL);
        add("listed.weight", norm, OZ_DTYPE_BF16, NULL, NULL);
        (void)add_tensor("visual.x", OZ_DTYPE_BF16, 1, norm.shape);
        oz_layer_ignore(&table, &rule);
        write_model(0);
        open_model();
        ok(load(&l, devices[2], 0));
        assert_int_equal(l.report.count, 6);
        for (int64_t i = 0; i < l.report.count; i++) {
            const struct oz_load_entry *e = &l.report.entries[i];
            fates[e->fate]++;
            resident += e->resident_bytes;
            read += e->fate == OZ_FATE_ENCODED ? e->read_bytes : 0;
            assert_non_null(e->tensor);
            assert_true((e->fate == OZ_FATE_ENCODED) == (e->encoder != NULL));
        }
        assert_true(fates[OZ_FATE_ENCODED] == 1 && fates[OZ_FATE_MAPPED] == 2 &&
                    fates[OZ_FATE_STORED] == 1 && fates[OZ_FATE_LISTED] == 1 &&
                    fates[OZ_FATE_IGNORED] == 1);
        assert_int_equal(resident, l.stats.arena_bytes);
        assert_int_equal(read, 64 * 64 * 2);
        assert_int_equal(l.stats.mapped_bytes, 2 * 64 * 64 * 2);
        oz_buf_init(&json, 1 << 20);
        oz_buf_puts(&json, "{\"report\": ");
        oz_load_report_json(&l.report, &json);
        oz_buf_puts(&json, ", \"schedule\": ");
        oz_load_schedule_json(&l.schedule, match, &json);
        oz_buf_puts(&json, "}");
        ok(oz_json_parse(&parsed, json.data, json.bytes, "the report", &err));
        const struct oz_json *list = oz_json_get(parsed, "report");
        assert_int_equal(oz_json_count(list), 6);
        assert_string_equal(oz_json_string(oz_json_get(oz_json_at(list, 5), "rule"), ""),
                            "vision tower");
        const struct oz_json *steps = oz_json_get(oz_json_get(parsed, "schedule"), "steps");
        assert_int_equal(oz_json_count(steps), 1); /* bands that continue one another are one */
        assert_int_equal(oz_json_integer(oz_json_get(oz_json_at(steps, 0), "bytes"), 0),
                         64 * 64 * 2);
        oz_json_free(parsed);
        oz_buf_deinit(&json);
        unload(&l);
        close_model();
    }
}

/* Scopes follow one another by their place in the files, whatever the table's order. */
static void reads_are_sorted(void **state)
{
    struct loaded l;
    blocks(codecs[0], false);
    ok(load(&l, devices[1], 0));
    for (int64_t i = 1; i < l.schedule.count; i++) {
        const struct oz_load_step *a = &l.schedule.steps[i - 1];
        const struct oz_load_step *b = &l.schedule.steps[i];
        assert_true(a->file < b->file || (a->file == b->file && a->offset + a->bytes <= b->offset));
    }
    assert_int_equal(l.schedule.read_bytes, l.schedule.tensor_bytes);
    unload(&l);
    close_model();
}

static void schemes_that_do_not_apply(void **state)
{
    struct loaded l;
    struct oz_layer conv = {.kind = OZ_LAYER_CONV, .rank = 4, .shape = {4, 6, 3, 3}};
    new_model();
    add("c.weight", conv, OZ_DTYPE_BF16, &params[0], "f16");
    write_model(0);
    open_model();
    assert_int_equal(load(&l, devices[1], 0), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "c.weight: f16 quantizes linear layers"));
    unload(&l);
    close_model();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_whole),
        cmocka_unit_test(tiny_rings),
        cmocka_unit_test(a_device_of_its_own_memory),
        cmocka_unit_test(moved_rows),
        cmocka_unit_test(parts_of_parameters),
        cmocka_unit_test(parts_that_do_not_fit),
        cmocka_unit_test(packed_in_bands),
        cmocka_unit_test(what_is_not_finite),
        cmocka_unit_test(the_first_of_several_is_named),
        cmocka_unit_test(reads_that_come_in_pieces),
        cmocka_unit_test(a_disk_that_fails),
        cmocka_unit_test(files_that_change),
        cmocka_unit_test(a_file_that_is_cut_while_it_is_read),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(progress_and_cancelling),
        cmocka_unit_test(every_tensor_is_accounted_for),
        cmocka_unit_test(reads_are_sorted),
        cmocka_unit_test(schemes_that_do_not_apply),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
