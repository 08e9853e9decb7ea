#include "load_model.h"

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

struct oz_error err;
struct oz_pool *pools[4]; /* of so many threads */
struct oz_device *devices[4];

void load_model_ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

int load_model_start(void **state)
{
    if (scratch_open(state) != 0) {
        return -1;
    }
    for (int i = 1; i < 4; i++) {
        load_model_ok(oz_pool_create(&pools[i], i, &err));
        load_model_ok(oz_cpu_open(&devices[i], 0, pools[i], "scalar", NULL, &err));
    }
    return 0;
}

int load_model_stop(void **state)
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
float odd_value; /* takes the place of element odd_at of tensor odd_tensor */
int32_t odd_tensor;
int64_t odd_at;

struct oz_arena host;
struct oz_layer_table table;
struct oz_ckpt *ckpt;
struct oz_match *match;
struct oz_param params[MAX_TENSORS];
struct oz_choice choices[MAX_TENSORS];
const struct oz_lora *lora_used;
float (*lora_merged)(const struct oz_layer *row, int64_t r, int64_t c, float w);
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
static float make_value(int32_t i, int64_t j)
{
    double v = fill_value((uint32_t)i, (uint32_t)j);
    double size = fill_value((uint32_t)i + 7000, (uint32_t)j / 37);
    return oz_bf16_to_f32(oz_f32_to_bf16((float)(v * exp2(12 * size))));
}

/* The same, made once: values depend on the numbers alone, and every load is held against them. */
static float kept_value(int32_t i, int64_t j)
{
    enum { KEPT = 1 << 16 };
    static float *kept[MAX_TENSORS];
    if (j >= KEPT) {
        return make_value(i, j);
    }
    if (kept[i] == NULL) {
        kept[i] = malloc(KEPT * sizeof *kept[i]);
        assert_non_null(kept[i]);
        for (int64_t k = 0; k < KEPT; k++) {
            kept[i][k] = make_value(i, k);
        }
    }
    return kept[i][j];
}

float load_model_value(int32_t i, int64_t j)
{
    if (i == odd_tensor && j == odd_at) {
        return odd_value;
    }
    return kept_value(i, j);
}

void load_model_new_model(void)
{
    load_model_ok(oz_arena_init_host(&host, "table", 1 << 22, &err));
    load_model_ok(oz_layer_table_init(&table, &host, "test", MAX_TENSORS, 4));
    memset(params, 0, sizeof params);
    memset(choices, 0, sizeof choices);
    assignment = (struct oz_assignment){.table = &table, .choices = choices};
    tensor_count = 0;
    odd_tensor = -1;
}

int32_t load_model_add_tensor(const char *name, enum oz_dtype dtype, int32_t rank,
                              const int64_t *shape)
{
    struct oz_ckpt_spec *s = &specs[tensor_count];
    *s = (struct oz_ckpt_spec){.name = oz_arena_string(&host, name), .dtype = dtype, .rank = rank};
    memcpy(s->shape, shape, (size_t)rank * sizeof *shape);
    return tensor_count++;
}

/* A row with a tensor of its own name and file shape, and the codec that it is given (NULL: none). */
void load_model_add(const char *name, struct oz_layer row, enum oz_dtype dtype,
                    struct oz_param *param, const char *codec)
{
    struct oz_choice *choice = &choices[table.count];
    row.bind = param;
    (void)load_model_add_tensor(name, dtype, row.file_rank > 0 ? row.file_rank : row.rank,
                                row.file_rank > 0 ? row.file_shape : row.shape);
    choice->scheme.name = "as stored";
    choice->rule = "a rule";
    if (codec != NULL) {
        choice->scheme =
            (struct oz_scheme){.name = codec, .codec = oz_codec_find(codec), .mode_count = 1};
        assert_non_null(choice->scheme.codec);
    }
    oz_layer_add(&table, &row, "%s", name);
}

void load_model_write_model(int64_t max_shard_bytes)
{
    struct oz_ckpt_writer *w;
    scratch_remove("m");
    scratch_folder("m");
    const struct oz_ckpt_writer_options options = {
        .folder = scratch_path("m"), .stem = "model", .max_shard_bytes = max_shard_bytes};
    load_model_ok(oz_ckpt_writer_create(&w, &options, specs, tensor_count, &err));
    for (int32_t i; (i = oz_ckpt_writer_next(w)) >= 0;) {
        int64_t n = elements_of(&specs[i]);
        size_t size = (size_t)oz_dtype_bits(specs[i].dtype) / 8;
        uint8_t *data = oz_alloc((size_t)n * size);
        for (int64_t j = 0; j < n; j++) {
            float x = load_model_value(i, j);
            uint16_t h = specs[i].dtype == OZ_DTYPE_F16 ? oz_f32_to_f16(x) : oz_f32_to_bf16(x);
            memcpy(data + (size_t)j * size, size == 4 ? (void *)&x : (void *)&h, size);
        }
        load_model_ok(oz_ckpt_writer_put(w, data, (size_t)n * size, &err));
        oz_free(data);
    }
    load_model_ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
}

void load_model_open_model(void)
{
    load_model_ok(oz_layer_table_finish(&table, &err));
    oz_params_describe(&table);
    load_model_ok(oz_ckpt_open(&ckpt, scratch_path("m"), NULL, &err));
    load_model_ok(oz_match_create(&match, ckpt, &table, NULL, &err));
    load_model_ok(oz_match_check(match, "m", &err));
}

void load_model_close_model(void)
{
    oz_match_destroy(&match);
    oz_ckpt_close(&ckpt);
    oz_arena_deinit(&host);
}

/* ---- loading ---- */

struct oz_load_args load_model_args_of(struct oz_device *dev, int64_t ring, struct oz_arena *model)
{
    return (struct oz_load_args){.match = match,
                                 .dev = dev,
                                 .model = model,
                                 .assignment = &assignment,
                                 .lora = lora_used,
                                 .ring_bytes = ring,
                                 .total_bytes =
                                     oz_load_bytes(&(struct oz_load_args){.match = match})};
}

void load_model_unload(struct loaded *l)
{
    oz_arena_deinit(&l->model);
    oz_load_schedule_deinit(&l->schedule);
    oz_load_report_deinit(&l->report);
}

/* Measures, loads into exactly that. The measured schedule must be the executed one. */
enum oz_status load_model_load(struct loaded *l, struct oz_device *dev, int64_t ring)
{
    struct oz_arena measure;
    struct oz_load_schedule planned;
    *l = (struct loaded){0};
    oz_arena_init_measure(&measure, "model");
    struct oz_load_args args = load_model_args_of(dev, ring, &measure);
    args.schedule = &planned;
    enum oz_status status = oz_load_component(&args, &err);
    if (status == OZ_OK) {
        load_model_ok(oz_arena_init_host(&l->model, "model", measure.used_bytes, &err));
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
        float w = load_model_value(t, slice * rows * cols + at);
        w = lora_merged != NULL ? lora_merged(row, r, c, w) : w;
        dst[c] = w + (row->transform & OZ_TRANSFORM_ADD_ONE ? 1.0F : 0.0F);
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
    load_model_ok(
        w->codec->observe(w, 0, all + slice * w->rows * w->cols, w->rows, w->cols, state));
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
        load_model_ok(want.codec->encode(&want, s, 0, all + s * want.rows * want.cols, want.rows,
                                         want.cols, &state));
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
void load_model_expect_all(void)
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

const char *const codecs[CODECS] = {
    "f16",     "fp8_tensor", "fp8_channel",     "fp8_block", "int8_channel", "int8_channel_bf16",
    "mxfp8",   "mxfp4",      "mxfp4_dualscale", "nvfp4",     "nf4",          "nf4_nested",
    "fp4_bnb",
};

struct oz_layer load_model_matrix(enum oz_layer_kind kind, int64_t rows, int64_t cols)
{
    return (struct oz_layer){.kind = kind, .rank = 2, .shape = {rows, cols}};
}

/* Blocks whose q, k and v lie in different shards, an embedding larger than all of them, a fused 3-D
 * tensor, vectors. */
void load_model_blocks(const char *codec, bool fused_scope)
{
    static const char *const parts[] = {"q", "k", "v"};
    int at = 0;
    load_model_new_model();
    for (int part = 0; part < 3; part++) {
        for (int block = 0; block < 3; block++) {
            char name[64];
            struct oz_layer row = load_model_matrix(OZ_LAYER_LINEAR, part == 0 ? 200 : 72, 96);
            row.fused = oz_layer_string(&table, "blocks.%d.qkv", block);
            row.fused_index = part;
            (void)snprintf(name, sizeof name, "blocks.%d.%s.weight", block, parts[part]);
            choices[table.count].scheme.scope = OZ_SCOPE_OWN;
            load_model_add(name, row, OZ_DTYPE_BF16, &params[at++], codec);
            choices[table.count - 1].scheme.scope = fused_scope ? OZ_SCOPE_FUSED : OZ_SCOPE_OWN;
        }
    }
    struct oz_layer experts = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {4, 136, 64}};
    load_model_add("experts.weight", experts, OZ_DTYPE_BF16, &params[at++], codec);
    load_model_add("embed.weight", load_model_matrix(OZ_LAYER_EMBED, 3000, 40), OZ_DTYPE_BF16,
                   &params[at++], NULL);
    load_model_add("wide.weight", load_model_matrix(OZ_LAYER_LINEAR, 5, 1100), OZ_DTYPE_F32,
                   &params[at++], codec);
    load_model_add("half.weight", load_model_matrix(OZ_LAYER_LINEAR, 33, 70), OZ_DTYPE_F16,
                   &params[at++], codec);
    load_model_add("kept.weight", load_model_matrix(OZ_LAYER_LINEAR, 16, 32), OZ_DTYPE_BF16,
                   &params[at++], NULL);
    struct oz_layer norm = {.kind = OZ_LAYER_NORM, .rank = 1, .shape = {96}};
    load_model_add("norm.weight", norm, OZ_DTYPE_BF16, &params[at++], NULL);
    load_model_add("listed.weight", norm, OZ_DTYPE_BF16, NULL, NULL);
    load_model_write_model(120000);
    load_model_open_model();
    assert_true(oz_ckpt_file_count(ckpt) > 3);
}
