/*
 * The Qwen2.5-VL text tower on the CPU against transformers: a tiny tower layer by layer, with
 * every kind of position (tests/golden/text_tower), and the bundled model's prompt embeddings
 * (reference.safetensors). Also: MEASURE takes what RUN takes, and a sequence's bytes depend
 * neither on its neighbours nor on the number of threads.
 */
#include "test.h"

#include <math.h>

#include "base/json.h"
#include "base/pool.h"
#include "ckpt/table.h"
#include "load/load.h"
#include "model/qwen25_vl/qwen25_vl.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"
#define GOLDEN OZ_TEST_DIR "/golden/text_tower"
#define REFERENCE OZ_TEST_DIR "/parity/reference.safetensors"

#define MAX_ROWS 256
#define MAX_COLS 256
#define MAX_LAYERS 4
#define DROPPED 34 /* rows of the prompt template before the user's words */

/*
 * Both sides sum products of O(1) in f32 in their own order. A sum of K = 128 terms wanders by
 * about sqrt(K) 2^-24 |h|, 3e-6 for |h| = 4; six such sums follow one another in two layers.
 */
#define GOLDEN_BOUND 2e-5
/* K up to 768, four layers: a factor of sqrt(6) more a sum, twice the sums, |h| the same. */
#define EMOJI_BOUND 5e-5

static struct oz_error err;
static struct oz_pool *pools[2]; /* 1 and 2 threads */
static struct oz_device *devices[2];

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static int open_devices(void **state)
{
    for (int i = 0; i < 2; i++) {
        if (oz_pool_create(&pools[i], i + 1, &err) != OZ_OK ||
            oz_device_open(&devices[i], "cpu", OZ_DEVICE_F32, pools[i], &err) != OZ_OK) {
            print_error("%s\n", err.message);
            return 1;
        }
    }
    return 0;
}

static int close_devices(void **state)
{
    for (int i = 0; i < 2; i++) {
        oz_device_close(&devices[i]);
        oz_pool_destroy(&pools[i]);
    }
    return 0;
}

/* ---- a loaded tower ---- */

struct tower {
    struct oz_ckpt *ckpt;
    struct oz_arena host, memory;
    struct oz_layer_table table;
    struct oz_match *match;
    struct oz_qwen25_vl m;
};

static struct oz_qwen25_vl_config read_config(const char *path)
{
    struct oz_qwen25_vl_config c;
    struct oz_json *root;
    ok(oz_json_parse_file(&root, path, 1 << 20, &err));
    ok(oz_qwen25_vl_config_read(&c, root, path, &err));
    oz_json_free(root);
    c.need_head = true;
    return c;
}

static void load(struct tower *w, struct oz_arena *memory)
{
    const struct oz_load_args args = {.match = w->match, .dev = devices[0], .model = memory};
    ok(oz_load_component(&args, &err));
}

/* Built in w's place, where it must stay; without weights. */
static void build_tower(struct tower *w, const char *config, const char *weights)
{
    char prefix[OZ_QWEN25_VL_PREFIX_BYTES];
    struct oz_qwen25_vl_config c = read_config(config);
    ok(oz_ckpt_open(&w->ckpt, weights, NULL, &err));
    ok(oz_qwen25_vl_find_prefix(w->ckpt, prefix, &err));
    ok(oz_arena_init_host(&w->host, "host", oz_qwen25_vl_host_bytes(&c), &err));
    ok(oz_qwen25_vl_build(&w->m, &c, &w->host, &w->table, prefix, &err));
    ok(oz_match_create(&w->match, w->ckpt, &w->table, NULL, &err));
    w->memory = (struct oz_arena){0};
}

static void open_tower(struct tower *w, const char *config, const char *weights)
{
    struct oz_arena measure;
    build_tower(w, config, weights);
    oz_arena_init_measure(&measure, "model");
    load(w, &measure);
    ok(oz_arena_init_host(&w->memory, "model", measure.peak_bytes, &err));
    load(w, &w->memory);
    assert_int_equal(w->memory.used_bytes, measure.peak_bytes);
}

static void close_tower(struct tower *w)
{
    oz_match_destroy(&w->match);
    oz_arena_deinit(&w->memory);
    oz_arena_deinit(&w->host);
    oz_ckpt_close(&w->ckpt);
}

/* ---- a run ---- */

struct input {
    int32_t count; /* sequences */
    int32_t offsets[8];
    int32_t ids[MAX_ROWS];
    int32_t positions[3 * MAX_ROWS];
};

struct output {
    const struct tower *w;
    float norm[MAX_ROWS * MAX_COLS];
    float logits[MAX_ROWS * MAX_COLS];
    float layers[MAX_LAYERS][MAX_ROWS * MAX_COLS]; /* the residual stream after each layer */
    size_t peak_bytes;
};

static struct output result, other; /* too large for a stack */

static int64_t rows_of(const struct input *in)
{
    return in->offsets[in->count];
}

/* The residual stream is what a layer's down projection writes. */
static void keep_layers(void *ctx, enum oz_op op, const char *label, const struct oz_act *act)
{
    struct output *out = ctx;
    const struct oz_qwen25_vl *m = &out->w->m;
    for (int32_t i = 0; i < m->config.layers && op == OZ_OP_LINEAR; i++) {
        if (strcmp(label, m->layers[i].mlp_label) == 0 && act->cols == m->config.hidden) {
            memcpy(out->layers[i], act->data,
                   (size_t)(act->rows * act->cols) * sizeof *out->layers[i]);
        }
    }
}

/* One forward, and logits of all rows, in a step arena; true while it goes well. */
static void forward(const struct tower *w, const struct input *in, struct oz_device *dev,
                    struct oz_arena *step, enum oz_exec_mode mode, struct output *out)
{
    static float cosine[MAX_ROWS * MAX_COLS];
    static float sine[MAX_ROWS * MAX_COLS];
    int64_t rows = rows_of(in);
    int32_t pairs = w->m.config.head_dim / 2;
    const struct oz_ragged ragged = {
        .count = in->count, .offsets = in->offsets, .device_offsets = in->offsets};
    oz_qwen25_vl_rope(&w->m.config, in->positions, rows, cosine, sine);
    struct oz_act cos_act = oz_act_f32(cosine, rows, pairs);
    struct oz_act sin_act = oz_act_f32(sine, rows, pairs);
    struct oz_act norm = oz_act_f32(out->norm, rows, w->m.config.hidden);
    const struct oz_qwen25_vl_batch batch = {
        .rows = rows, .ids = in->ids, .sequences = &ragged, .cosine = &cos_act, .sine = &sin_act};
    struct oz_exec x;
    oz_exec_init(&x, dev, mode, step, &err);
    out->w = w;
    x.dump = keep_layers;
    x.dump_ctx = out;
    oz_qwen25_vl_forward(&x, &w->m, &batch, &norm);
    if (w->m.config.vocab <= MAX_COLS) {
        struct oz_act logits = oz_act_f32(out->logits, rows, w->m.config.vocab);
        oz_qwen25_vl_logits(&x, &w->m, &norm, NULL, rows, &logits);
    }
    ok(x.status);
    ok(dev->wait(dev, NULL, &err));
    assert_int_equal(step->used_bytes, 0);
    out->peak_bytes = step->peak_bytes;
}

/* Measures, then runs in exactly the measured memory. */
static void run(const struct tower *w, const struct input *in, int device, struct output *out)
{
    struct oz_arena step;
    oz_arena_init_measure(&step, "step");
    forward(w, in, devices[device], &step, OZ_EXEC_MEASURE, out);
    size_t measured = out->peak_bytes;
    ok(oz_arena_init_host(&step, "step", measured, &err));
    forward(w, in, devices[device], &step, OZ_EXEC_RUN, out);
    oz_arena_deinit(&step);
    assert_int_equal(out->peak_bytes, measured);
}

/* ---- reference tensors ---- */

static const struct oz_tensor_view *tensor(const struct oz_ckpt *file, const char *name,
                                           enum oz_dtype dtype)
{
    const struct oz_tensor_view *t = oz_ckpt_find(file, name, NULL);
    if (t == NULL || t->dtype != dtype) {
        fail_msg("no tensor %s of that type", name);
    }
    return t;
}

static int32_t integers(const struct oz_ckpt *file, const char *name, int32_t *out)
{
    const struct oz_tensor_view *t = tensor(file, name, OZ_DTYPE_I64);
    for (int64_t i = 0; i < t->elements; i++) {
        int64_t v;
        memcpy(&v, t->data + (size_t)i * sizeof v, sizeof v);
        out[i] = (int32_t)v;
    }
    return (int32_t)t->elements;
}

/* Largest distance of `got` from a tensor. */
static double distance(const struct oz_ckpt *file, const char *name, const float *got)
{
    const struct oz_tensor_view *t = tensor(file, name, OZ_DTYPE_F32);
    double worst = 0;
    for (int64_t i = 0; i < t->elements; i++) {
        float want;
        memcpy(&want, t->data + (size_t)i * sizeof want, sizeof want);
        double d = fabs((double)got[i] - (double)want);
        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

static double check(const struct oz_ckpt *file, const char *name, const float *got, double bound)
{
    double d = distance(file, name, got);
    if (!(d < bound)) {
        fail_msg("%s: off by %.3g, more than %.3g", name, d, bound);
    }
    return d;
}

/* ---- the tiny tower ---- */

static void golden_case(const struct tower *w, const struct oz_ckpt *golden, const char *kind,
                        const char *head_of)
{
    static struct input in;
    char name[64];
    in.count = 1;
    in.offsets[1] = integers(golden, "input_ids", in.ids);
    (void)snprintf(name, sizeof name, "%s.position_ids", kind);
    assert_int_equal(integers(golden, name, in.positions), 3 * rows_of(&in));
    run(w, &in, 1, &result);
    double layers[2];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(name, sizeof name, "%s.layers.%d", kind, i);
        layers[i] = check(golden, name, result.layers[i], GOLDEN_BOUND);
    }
    (void)snprintf(name, sizeof name, "%s.norm", kind);
    double norm = check(golden, name, result.norm, GOLDEN_BOUND);
    (void)snprintf(name, sizeof name, "%s.%s.logits", kind, head_of);
    double head = check(golden, name, result.logits, GOLDEN_BOUND);
    print_message("%s: layers %.2g %.2g, norm %.2g, logits %.2g\n", kind, layers[0], layers[1],
                  norm, head);
}

static void all_cases(const struct tower *w, const char *head_of)
{
    struct oz_ckpt *golden;
    ok(oz_ckpt_open(&golden, GOLDEN "/golden.safetensors", NULL, &err));
    golden_case(w, golden, "plain", head_of);
    golden_case(w, golden, "image", head_of);
    golden_case(w, golden, "scattered", head_of);
    oz_ckpt_close(&golden);
}

static void golden_tied(void **state)
{
    static const char *const configs[] = {GOLDEN "/tied.config.json",
                                          GOLDEN "/tied.config_flat.json"};
    for (int i = 0; i < 2; i++) {
        struct tower w;
        open_tower(&w, configs[i], GOLDEN "/tied.safetensors");
        ok(oz_match_check(w.match, "tied.safetensors", &err));
        all_cases(&w, "tied");
        close_tower(&w);
    }
}

/* The body of the tied file with a head of its own. */
static void golden_untied(void **state)
{
    static const char *const configs[] = {GOLDEN "/untied.config.json",
                                          GOLDEN "/untied.config_flat.json"};
    static uint16_t head[128 * 64];
    struct oz_ckpt *file;
    ok(oz_ckpt_open(&file, GOLDEN "/untied.safetensors", NULL, &err));
    const struct oz_tensor_view *t = tensor(file, "lm_head.weight", OZ_DTYPE_BF16);
    assert_int_equal(t->bytes, sizeof head);
    memcpy(head, t->data, sizeof head);
    for (int i = 0; i < 2; i++) {
        struct tower w;
        open_tower(&w, configs[i], GOLDEN "/tied.safetensors");
        assert_null(w.m.lm_head.w.name); /* not in that file */
        w.m.lm_head.w.name = "lm_head.weight";
        w.m.lm_head.w.weight = oz_weight_plain(OZ_DTYPE_BF16, 1, 128, 64, head);
        all_cases(&w, "untied");
        close_tower(&w);
    }
    oz_ckpt_close(&file);
}

/* ---- the bundled model ---- */

/* The id of " " alone, from the tokenizer's vocabulary. */
static int32_t id_of_space(void)
{
    struct oz_json *root;
    ok(oz_json_parse_file(&root, MODEL "/tokenizer/tokenizer.json", 64 << 20, &err));
    const struct oz_json *vocab = oz_json_get(oz_json_get(root, "model"), "vocab");
    int32_t id = (int32_t)oz_json_integer(oz_json_get(vocab, "\xC4\xA0"), -1);
    oz_json_free(root);
    assert_true(id >= 0);
    return id;
}

/* The reference's prompts of a case: given, or " " in the place of its two words. */
static int32_t prompt(const struct oz_ckpt *reference, int k, bool negative, int32_t *ids)
{
    char name[64];
    (void)snprintf(name, sizeof name, "f32.case%d.input_ids", k);
    int32_t n = integers(reference, name, ids);
    if (negative) {
        ids[DROPPED] = id_of_space();
        memmove(&ids[DROPPED + 1], &ids[DROPPED + 2], (size_t)(n - DROPPED - 2) * sizeof *ids);
        n--;
    }
    return n;
}

static void emoji_embeddings(void **state)
{
    static struct input in;
    struct tower w;
    struct oz_ckpt *reference;
    open_tower(&w, MODEL "/text_encoder/config.json", MODEL "/text_encoder");
    ok(oz_match_check(w.match, "text_encoder", &err));
    ok(oz_ckpt_open(&reference, REFERENCE, NULL, &err));
    for (int i = 0; i < 5; i++) { /* three prompts, and the negative one of two cases */
        int k = i < 3 ? i : i - 2;
        char name[64];
        in.count = 1;
        in.offsets[1] = prompt(reference, k, i >= 3, in.ids);
        const struct oz_ragged r = {.count = 1, .offsets = in.offsets};
        oz_qwen25_vl_text_positions(&r, in.positions);
        run(&w, &in, 1, &result);
        (void)snprintf(name, sizeof name, "f32.case%d.%sprompt_embeds", k,
                       i < 3 ? "" : "negative_");
        assert_int_equal(tensor(reference, name, OZ_DTYPE_F32)->shape[1], in.offsets[1] - DROPPED);
        print_message("%s: %.2g, step memory %zu bytes\n", name,
                      check(reference, name, result.norm + DROPPED * 256, EMOJI_BOUND),
                      result.peak_bytes);
    }
    oz_ckpt_close(&reference);
    close_tower(&w);
}

/* The plan measures a model of which only headers have been read. */
static void measured_before_loading(void **state)
{
    static struct input in;
    struct oz_arena step;
    struct tower w;
    in.count = 2;
    in.offsets[1] = 17;
    in.offsets[2] = 58;
    build_tower(&w, MODEL "/text_encoder/config.json", MODEL "/text_encoder");
    struct oz_arena model;
    oz_arena_init_measure(&model, "model");
    load(&w, &model);
    oz_arena_init_measure(&step, "step");
    forward(&w, &in, devices[1], &step, OZ_EXEC_MEASURE, &result);
    size_t measured = result.peak_bytes;
    close_tower(&w);
    open_tower(&w, MODEL "/text_encoder/config.json", MODEL "/text_encoder");
    run(&w, &in, 1, &result);
    assert_int_equal(result.peak_bytes, measured);
    close_tower(&w);
}

/* A sequence alone, first, in the middle and last of several, with 1 and 2 threads. */
static void same_bytes_in_company(void **state)
{
    static struct input alone;
    static struct input batch;
    struct tower w;
    struct oz_ckpt *reference;
    open_tower(&w, MODEL "/text_encoder/config.json", MODEL "/text_encoder");
    ok(oz_ckpt_open(&reference, REFERENCE, NULL, &err));
    int32_t ids[MAX_ROWS];
    const int32_t lengths[] = {prompt(reference, 0, false, ids), 1, 13, 40};
    batch.count = 4;
    for (int s = 0; s < 4; s++) {
        int32_t first = batch.offsets[s];
        (void)prompt(reference, s % 3, s == 3, &batch.ids[first]);
        batch.offsets[s + 1] = first + lengths[s];
    }
    const struct oz_ragged all = {.count = 4, .offsets = batch.offsets};
    oz_qwen25_vl_text_positions(&all, batch.positions);
    run(&w, &batch, 1, &result);
    run(&w, &batch, 0, &other);
    assert_memory_equal(result.norm, other.norm, (size_t)rows_of(&batch) * 256 * sizeof(float));
    for (int s = 0; s < 4; s++) {
        int32_t first = batch.offsets[s];
        alone.count = 1;
        alone.offsets[1] = batch.offsets[s + 1] - first;
        memcpy(alone.ids, &batch.ids[first], (size_t)alone.offsets[1] * sizeof *alone.ids);
        const struct oz_ragged r = {.count = 1, .offsets = alone.offsets};
        oz_qwen25_vl_text_positions(&r, alone.positions);
        for (int threads = 0; threads < 2; threads++) {
            run(&w, &alone, threads, &other);
            assert_memory_equal(other.norm, result.norm + first * 256,
                                (size_t)alone.offsets[1] * 256 * sizeof(float));
        }
    }
    oz_ckpt_close(&reference);
    close_tower(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_tied),           cmocka_unit_test(golden_untied),
        cmocka_unit_test(emoji_embeddings),      cmocka_unit_test(measured_before_loading),
        cmocka_unit_test(same_bytes_in_company),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
