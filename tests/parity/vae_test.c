#include "test.h"

#include <math.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pool.h"
#include "ckpt/table.h"
#include "dev/device.h"
#include "fill.h"
#include "load/load.h"
#include "model/qwen_vae/qwen_vae.h"
#include "ops/ops.h"

/*
 * Figures of models.md are printed to six places and come from another order of summation. A value
 * passes through some thirty convolutions of K <= 288 products; each adds about sqrt(K) eps, and
 * norms keep the scale at 1: 30 sqrt(288) 2^-24 = 3e-5.
 */
#define TOLERANCE 3e-5

static struct oz_pool *pool;
static struct oz_device *device;

static int setup(void **state)
{
    struct oz_error err;
    assert_int_equal(oz_pool_create(&pool, 0, &err), OZ_OK);
    assert_int_equal(oz_device_open(&device, "cpu", OZ_DEVICE_F32, pool, &err), OZ_OK);
    return 0;
}

static int teardown(void **state)
{
    oz_device_close(&device);
    oz_pool_destroy(&pool);
    return 0;
}

static void require(enum oz_status status, const struct oz_error *err)
{
    if (status != OZ_OK) {
        fail_msg("%s (%s:%d)", err->message, err->file, err->line);
    }
}

/* ---- a model ---- */

struct model {
    struct oz_qwen_vae vae;
    struct oz_layer_table table;
    struct oz_arena host, planes;
};

/* A model on a host arena of exactly the promised size. */
static struct model *build(const struct oz_qwen_vae_config *c, bool keep_time_taps)
{
    struct oz_error err;
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    require(oz_arena_init_host(&m->host, "host", oz_qwen_vae_host_bytes(c), &err), &err);
    require(oz_qwen_vae_build(&m->vae, c, &m->host, &m->table, keep_time_taps, &err), &err);
    return m;
}

static void drop(struct model *m)
{
    oz_arena_deinit(&m->planes);
    oz_arena_deinit(&m->host);
    free(m);
}

static struct oz_qwen_vae_config parse(const char *text)
{
    struct oz_error err;
    struct oz_json *json;
    struct oz_qwen_vae_config c;
    require(oz_json_parse(&json, text, strlen(text), "config.json", &err), &err);
    enum oz_status status = oz_qwen_vae_config_read(&c, json, "config.json", &err);
    oz_json_free(json);
    require(status, &err);
    return c;
}

static const char tiny[] = "{\"base_dim\": 8, \"z_dim\": 4, \"dim_mult\": [1, 2, 4, 4],"
                           "\"num_res_blocks\": 2, \"temperal_downsample\": [false, true, true],"
                           "\"latents_mean\": [0, 0, 0, 0], \"latents_std\": [1, 1, 1, 1]}";

static const char *const tiny_time_convs[] = {
    "encoder.down_blocks.5.time_conv.weight",
    "encoder.down_blocks.5.time_conv.bias",
    "encoder.down_blocks.8.time_conv.weight",
    "encoder.down_blocks.8.time_conv.bias",
    "decoder.up_blocks.0.upsamplers.0.time_conv.weight",
    "decoder.up_blocks.0.upsamplers.0.time_conv.bias",
    "decoder.up_blocks.1.upsamplers.0.time_conv.weight",
    "decoder.up_blocks.1.upsamplers.0.time_conv.bias",
};
#define TINY_TIME_CONVS (sizeof tiny_time_convs / sizeof tiny_time_convs[0])

static struct model *build_filled(const struct oz_qwen_vae_config *c, bool keep_time_taps)
{
    struct oz_error err;
    struct model *m = build(c, keep_time_taps);
    require(oz_arena_init_host(&m->planes, "planes", fill_bytes(&m->table), &err), &err);
    fill_table(&m->table, tiny_time_convs, TINY_TIME_CONVS, &m->planes);
    return m;
}

/* ---- a run ---- */

typedef void (*coder_fn)(struct oz_exec *x, const struct oz_qwen_vae *m, const struct oz_act *in,
                         int32_t frames, int32_t h, int32_t w, struct oz_act *out);

struct job {
    coder_fn fn;
    int32_t frames, h, w;
    int64_t in_rows, in_cols, out_rows, out_cols;
};

static struct job decode_job(const struct oz_qwen_vae_config *c, int32_t frames, int32_t h,
                             int32_t w)
{
    int64_t area = (int64_t)frames * h * w;
    return (struct job){
        oz_qwen_vae_decode, frames, h, w, area, c->z_dim, area << (2 * (c->levels - 1)), 3};
}

static struct job encode_job(const struct oz_qwen_vae_config *c, int32_t h, int32_t w)
{
    int64_t area = (int64_t)h * w;
    return (struct job){oz_qwen_vae_encode, 1, h, w, area, 3, area >> (2 * (c->levels - 1)),
                        2 * c->z_dim};
}

/* The step arena's peak. */
static size_t measure(const struct model *m, const struct job *j)
{
    struct oz_error err;
    struct oz_arena step;
    struct oz_exec x;
    oz_arena_init_measure(&step, "step");
    oz_exec_init(&x, device, OZ_EXEC_MEASURE, &step, &err);
    const struct oz_act in = oz_exec_act(&x, j->in_rows, j->in_cols);
    struct oz_act out = oz_exec_act(&x, j->out_rows, j->out_cols);
    const size_t before = step.used_bytes;
    j->fn(&x, &m->vae, &in, j->frames, j->h, j->w, &out);
    require(x.status, &err);
    assert_int_equal(step.used_bytes, before);
    return step.peak_bytes;
}

/* Measures, runs in exactly that much, and returns the packed output (free). in: [rows, cols]. */
static float *compute(const struct model *m, const struct job *j, const float *in)
{
    struct oz_error err;
    struct oz_arena step;
    struct oz_exec x;
    const size_t bytes = measure(m, j);
    require(oz_arena_init_host(&step, "step", bytes, &err), &err);
    oz_exec_init(&x, device, OZ_EXEC_RUN, &step, &err);
    const struct oz_act from = oz_exec_act(&x, j->in_rows, j->in_cols);
    struct oz_act to = oz_exec_act(&x, j->out_rows, j->out_cols);
    assert_true(oz_exec_ok(&x));
    memcpy(from.data, in, (size_t)(j->in_rows * j->in_cols) * sizeof *in);
    const uint64_t calls = oz_alloc_calls();
    j->fn(&x, &m->vae, &from, j->frames, j->h, j->w, &to);
    require(x.status, &err);
    assert_int_equal(oz_alloc_calls(), calls);
    assert_int_equal(step.peak_bytes, bytes);
    float *out = malloc((size_t)(j->out_rows * j->out_cols) * sizeof *out);
    assert_non_null(out);
    memcpy(out, to.data, (size_t)(j->out_rows * j->out_cols) * sizeof *out);
    oz_arena_deinit(&step);
    return out;
}

/* dst[c][r] = src[r][c] */
static float *transposed(const float *src, int64_t rows, int64_t cols)
{
    float *dst = malloc((size_t)(rows * cols) * sizeof *dst);
    assert_non_null(dst);
    for (int64_t i = 0; i < rows * cols; i++) {
        dst[i % cols * rows + i / cols] = src[i];
    }
    return dst;
}

/* Input number m of the golden rows, [channels, pixels] there, [pixels, channels] here. */
static float *golden_input(uint32_t m, int64_t pixels, int64_t channels)
{
    float *planar = malloc((size_t)(pixels * channels) * sizeof *planar);
    assert_non_null(planar);
    fill_input(planar, pixels * channels, m);
    float *rows = transposed(planar, channels, pixels);
    free(planar);
    return rows;
}

static double largest_difference(const float *a, const float *b, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}

static double largest(const float *a, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        const double v = fabs((double)a[i]);
        most = v > most || isnan(v) ? v : most;
    }
    return most;
}

/* ---- tests ---- */

static void test_fill_is_the_published_hash(void **state)
{
    static const double want[] = {0.45400967, 0.16093584, 0.49432255, -0.39614543};
    for (uint32_t j = 0; j < 4; j++) {
        assert_true(fabs(fill_value(0, j) - want[j]) < 1e-8);
    }
    assert_true(fabs(fill_value(3, 0) - 0.35202647) < 1e-8);
    assert_true(fabs(fill_value(3, 1) - 0.04398813) < 1e-8);
}

struct golden {
    const char *name;
    double first[8], last[4], sum, squares;
};

/* values: [count], as the reference numbers them. */
static void check_golden(const struct golden *g, const float *values, int64_t count)
{
    double sum = 0;
    double squares = 0;
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += values[i];
        squares += (double)values[i] * values[i];
    }
    for (int32_t i = 0; i < 8; i++) {
        worst = fmax(worst, fabs(values[i] - g->first[i]));
    }
    for (int32_t i = 0; i < 4; i++) {
        worst = fmax(worst, fabs(values[count - 4 + i] - g->last[i]));
    }
    print_message("%s: worst of 12 %.2e, sum off by %.2e, sum of squares by %.2e\n", g->name, worst,
                  fabs(sum - g->sum), fabs(squares - g->squares));
    assert_true(worst <= TOLERANCE);
    /* Errors of the elements may all have one sign; |sum x dx| <= sqrt(count sum x^2) |dx|. */
    assert_true(fabs(sum - g->sum) <= (double)count * TOLERANCE);
    assert_true(fabs(squares - g->squares) <=
                2 * sqrt((double)count * g->squares) * TOLERANCE + 1e-5);
}

// clang-format off
static const struct golden golden_decode = {
    "decode",
    {0.095840, -0.041650, -0.061372, -0.188774, -0.150853, -0.069412, -0.034796, -0.090631},
    {0.296032, 0.163612, 0.160824, 0.103292}, 21.62681, 61.63743};
static const struct golden golden_encode = {
    "encode",
    {-0.041261, -0.175526, -0.117758, -0.136765, -0.114497, -0.012577, -0.028173, -0.103541},
    {-0.013042, -0.035637, 0.026121, 0.078733}, 1.05798, 0.37003};
// clang-format on

/* One golden row, with the last taps and with all of them. */
static void run_golden(const struct golden *g, const struct job *j, uint32_t input)
{
    const struct oz_qwen_vae_config c = parse(tiny);
    const int64_t count = j->out_rows * j->out_cols;
    float *in = golden_input(input, j->in_rows, j->in_cols);
    float *out[2];
    for (int32_t taps = 0; taps < 2; taps++) {
        struct model *m = build_filled(&c, taps != 0);
        assert_int_equal(m->table.count + (int32_t)TINY_TIME_CONVS, 194);
        out[taps] = compute(m, j, in);
        float *planar = transposed(out[taps], j->out_rows, j->out_cols);
        check_golden(g, planar, count);
        free(planar);
        drop(m);
    }
    /* The zeros of the past add nothing to a sum. */
    assert_true(largest_difference(out[0], out[1], count) <= 1e-6 * largest(out[0], count));
    free(out[0]);
    free(out[1]);
    free(in);
}

static void test_golden_decode(void **state)
{
    const struct oz_qwen_vae_config c = parse(tiny);
    const struct job j = decode_job(&c, 1, 3, 4);
    run_golden(&golden_decode, &j, 2);
}

static void test_golden_encode(void **state)
{
    const struct oz_qwen_vae_config c = parse(tiny);
    const struct job j = encode_job(&c, 16, 24);
    run_golden(&golden_encode, &j, 3);
}

/* Bands change no byte, and bring the peak down. */
static void test_bands_change_nothing(void **state)
{
    const struct oz_qwen_vae_config c = parse(tiny);
    const struct job jobs[] = {decode_job(&c, 1, 9, 5), encode_job(&c, 72, 40)};
    static const int64_t bands[] = {1, 5000, 40000};
    struct model *m = build_filled(&c, false);
    for (size_t i = 0; i < 2; i++) {
        const struct job *j = &jobs[i];
        const size_t bytes = (size_t)(j->out_rows * j->out_cols) * sizeof(float);
        float *in = golden_input(9, j->in_rows, j->in_cols);
        m->vae.band_bytes = INT64_C(1) << 40;
        const size_t peak = measure(m, j);
        float *want = compute(m, j, in);
        for (size_t b = 0; b < sizeof bands / sizeof bands[0]; b++) {
            m->vae.band_bytes = bands[b];
            assert_true(measure(m, j) <= peak);
            float *got = compute(m, j, in);
            assert_memory_equal(got, want, bytes);
            free(got);
        }
        free(want);
        free(in);
    }
    drop(m);
}

/* Without resampling in time a clip is decoded at once, and its first frame is what it is alone. */
static void test_frames_are_causal(void **state)
{
    const struct oz_qwen_vae_config c =
        parse("{\"base_dim\": 8, \"z_dim\": 4, \"dim_mult\": [1, 2], \"num_res_blocks\": 1,"
              "\"temperal_downsample\": [false],"
              "\"latents_mean\": [0, 0, 0, 0], \"latents_std\": [1, 1, 1, 1]}");
    struct model *m = build_filled(&c, true);
    const struct job one = decode_job(&c, 1, 4, 6);
    const struct job three = decode_job(&c, 3, 4, 6);
    float *in = golden_input(5, three.in_rows, three.in_cols);
    float *first = compute(m, &one, in);
    float *all = compute(m, &three, in);
    const int64_t count = one.out_rows * one.out_cols;
    assert_true(largest_difference(first, all, count) <= 1e-6 * largest(first, count));
    assert_true(largest_difference(first, all + count, count) > 1e-3);
    free(all);
    free(first);
    free(in);
    drop(m);
}

/* One level: nothing is resampled. */
static void test_one_level(void **state)
{
    const struct oz_qwen_vae_config c =
        parse("{\"base_dim\": 8, \"z_dim\": 4, \"dim_mult\": [2], \"num_res_blocks\": 1,"
              "\"temperal_downsample\": [],"
              "\"latents_mean\": [0, 0, 0, 0], \"latents_std\": [1, 1, 1, 1]}");
    struct model *m = build_filled(&c, false);
    const struct job jobs[] = {decode_job(&c, 1, 5, 3), encode_job(&c, 5, 3)};
    for (size_t i = 0; i < 2; i++) {
        float *in = golden_input(7, jobs[i].in_rows, jobs[i].in_cols);
        float *out = compute(m, &jobs[i], in);
        assert_true(isfinite(largest(out, jobs[i].out_rows * jobs[i].out_cols)));
        free(out);
        free(in);
    }
    drop(m);
}

/* The promised host memory is enough for the largest shapes of configs, and less fails cleanly. */
static void test_host_bytes(void **state)
{
    const struct oz_qwen_vae_config c =
        parse("{\"base_dim\": 2, \"dim_mult\": [2, 1, 2, 1, 2, 1, 2, 1], \"num_res_blocks\": 64,"
              "\"temperal_downsample\": [true, true, true, true, true, true, true]}");
    drop(build(&c, true));
    const struct oz_qwen_vae_config small = parse(tiny);
    const size_t full = oz_qwen_vae_host_bytes(&small);
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    bool built = false;
    for (size_t bytes = OZ_ARENA_ALIGN; bytes <= full; bytes += 8 * (size_t)OZ_ARENA_ALIGN) {
        struct oz_error err;
        require(oz_arena_init_host(&m->host, "host", bytes, &err), &err);
        const enum oz_status status =
            oz_qwen_vae_build(&m->vae, &small, &m->host, &m->table, false, &err);
        assert_true(status == OZ_OK || (!built && status == OZ_ERR_NOMEM));
        built = status == OZ_OK;
        oz_arena_deinit(&m->host);
    }
    assert_true(built);
    free(m);
}

/* What a forward refuses; msg is part of the message. */
static void refuse(const struct model *m, const struct job *j, enum oz_status status,
                   const char *msg)
{
    struct oz_error err;
    struct oz_arena step;
    struct oz_exec x;
    oz_arena_init_measure(&step, "step");
    oz_exec_init(&x, device, OZ_EXEC_MEASURE, &step, &err);
    const struct oz_act in = oz_exec_act(&x, j->in_rows, j->in_cols);
    struct oz_act out = oz_exec_act(&x, j->out_rows, j->out_cols);
    j->fn(&x, &m->vae, &in, j->frames, j->h, j->w, &out);
    assert_int_equal(x.status, status);
    if (strstr(err.message, msg) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", err.message, msg);
    }
}

static void test_refusals(void **state)
{
    const struct oz_qwen_vae_config c = parse(tiny);
    struct model *m = build(&c, true);
    struct job j = decode_job(&c, 2, 3, 4);
    refuse(m, &j, OZ_ERR_UNSUPPORTED, "decoding of more than one frame");
    j = encode_job(&c, 20, 24);
    refuse(m, &j, OZ_ERR_ARG, "multiples of 8");
    j = decode_job(&c, 1, 3, 4);
    j.in_cols = 16;
    refuse(m, &j, OZ_ERR_ARG, "[12, 4] was expected");
    j = decode_job(&c, 1, 3, 4);
    j.h = 0;
    refuse(m, &j, OZ_ERR_ARG, "0 x 4");
    drop(m);
}

/* The published model can be measured before a byte is loaded, and keeps its promise. */
static void test_published_peak(void **state)
{
    const struct oz_qwen_vae_config c = parse("{}");
    struct model *m = build(&c, false);
    const struct job decode = decode_job(&c, 1, 128, 128);
    const struct job encode = encode_job(&c, 1024, 1024);
    const double mib = 1024.0 * 1024;
    const double map = 1024.0 * 1024 * 96 * 4;
    const double d = (double)measure(m, &decode);
    const double e = (double)measure(m, &encode);
    m->vae.band_bytes = INT64_C(1) << 40;
    print_message(
        "1024 x 1024: decode %.0f MiB, encode %.0f MiB; without bands %.0f and %.0f MiB\n", d / mib,
        e / mib, (double)measure(m, &decode) / mib, (double)measure(m, &encode) / mib);
    assert_true(d < 2.5 * map && e < 2.5 * map);
    drop(m);
}

struct bad_config {
    const char *text;
    enum oz_status status;
    const char *msg;
};

static void test_config_errors(void **state)
{
    static const struct bad_config bad[] = {
        {"[]", OZ_ERR_FORMAT, "an object was expected"},
        {"{\"base_dim\": 0}", OZ_ERR_FORMAT, "\"base_dim\" is 0"},
        {"{\"base_dim\": \"96\"}", OZ_ERR_FORMAT, "\"base_dim\" must be an integer, not a string"},
        {"{\"base_dim\": 4096, \"dim_mult\": [1, 2, 4, 64]}", OZ_ERR_FORMAT, "262144 channels"},
        {"{\"base_dim\": 3, \"dim_mult\": [1, 1, 2, 2]}", OZ_ERR_FORMAT, "must be even"},
        {"{\"z_dim\": 1000}", OZ_ERR_FORMAT, "\"z_dim\" is 1000"},
        {"{\"z_dim\": 4}", OZ_ERR_FORMAT, "\"latents_mean\" has 16 numbers by default"},
        {"{\"dim_mult\": []}", OZ_ERR_FORMAT, "\"dim_mult\" has 0 entries"},
        {"{\"dim_mult\": [1,1,1,1,1,1,1,1,1]}", OZ_ERR_FORMAT, "\"dim_mult\" has 9 entries"},
        {"{\"dim_mult\": [1, 2.5]}", OZ_ERR_FORMAT, "\"dim_mult\" entry 1"},
        {"{\"dim_mult\": 3}", OZ_ERR_FORMAT, "\"dim_mult\" must be a list, not an integer"},
        {"{\"dim_mult\": [1, 2]}", OZ_ERR_FORMAT, "\"temperal_downsample\" has 3 entries by"},
        {"{\"temperal_downsample\": [true]}", OZ_ERR_FORMAT, "has 1 entries"},
        {"{\"temperal_downsample\": [0, 1, 1]}", OZ_ERR_FORMAT, "entry 0 must be true or false"},
        {"{\"num_res_blocks\": -1}", OZ_ERR_FORMAT, "\"num_res_blocks\" is -1"},
        {"{\"latents_std\": [1, 2]}", OZ_ERR_FORMAT, "\"latents_std\" has 2 numbers"},
        {"{\"z_dim\": 1, \"latents_mean\": [1], \"latents_std\": [0]}", OZ_ERR_FORMAT,
         "\"latents_std\" entry 0 must be a finite positive number"},
        {"{\"attn_scales\": [0.5]}", OZ_ERR_UNSUPPORTED, "\"attn_scales\""},
        {"{\"attn_scales\": 1}", OZ_ERR_FORMAT, "\"attn_scales\" must be a list"},
        {"{\"input_channels\": 4}", OZ_ERR_UNSUPPORTED, "\"input_channels\" is 4"},
        {"{\"is_residual\": true}", OZ_ERR_UNSUPPORTED, "\"is_residual\""},
        {"{\"patch_size\": 2}", OZ_ERR_UNSUPPORTED, "\"patch_size\""},
        {"{\"decoder_base_dim\": 256}", OZ_ERR_UNSUPPORTED, "\"decoder_base_dim\" is 256"},
        {"{\"scale_factor_spatial\": 16}", OZ_ERR_UNSUPPORTED, "\"scale_factor_spatial\" is 16"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct oz_error err = {0};
        struct oz_json *json;
        struct oz_qwen_vae_config c;
        require(oz_json_parse(&json, bad[i].text, strlen(bad[i].text), "config.json", &err), &err);
        const enum oz_status status = oz_qwen_vae_config_read(&c, json, "config.json", &err);
        oz_json_free(json);
        if (status != bad[i].status || strstr(err.message, bad[i].msg) == NULL ||
            strncmp(err.message, "config.json: ", 13) != 0) {
            fail_msg("%s gives %d, \"%s\"", bad[i].text, status, err.message);
        }
    }
}

static void keep_log(void *ctx, enum oz_log_level level, const char *topic, const char *message)
{
    (void)snprintf(ctx, 256, "%d %s %s", (int)level, topic, message);
}

static void test_config_skips(void **state)
{
    char logged[256] = "";
    oz_log_set(keep_log, logged);
    const struct oz_qwen_vae_config c = parse(
        "{\"_class_name\": \"AutoencoderKLQwenImage\", \"dropout\": 0.1, \"patch_size\": null,"
        "\"is_residual\": false, \"attn_scales\": [], \"in_channels\": 3,"
        "\"out_channels\": 3, \"scale_factor_spatial\": 8, \"scale_factor_temporal\": 4,"
        "\"decoder_base_dim\": 96, \"something\": null}");
    assert_int_equal(c.base_dim, 96);
    assert_int_equal(c.levels, 4);
    assert_true(c.latents_std[15] == 1.9160F);
    assert_string_equal(logged, "");
    (void)parse("{\"latent_mean\": [1]}");
    oz_log_set(NULL, NULL);
    assert_string_equal(logged,
                        "1 load config.json: the key \"latent_mean\" is not known and has no "
                        "effect (nearest: \"latents_mean\").");
}

/* ---- the bundled model ---- */

/* The bundled VAE, loaded as the engine does; *ckpt must stay open. */
static struct model *load_bundled(struct oz_ckpt **ckpt)
{
    struct oz_error err;
    struct oz_json *json;
    struct oz_qwen_vae_config c;
    struct oz_match *match;
    struct oz_load_stats stats = {0};
    struct oz_arena size;
    const char *models = getenv("OUNCE_MODELS");
    assert_non_null(models);
    char *folder = oz_file_join(models, "emoji/vae");
    char *config = oz_file_join(folder, "config.json");
    require(oz_json_parse_file(&json, config, 1 << 20, &err), &err);
    require(oz_qwen_vae_config_read(&c, json, config, &err), &err);
    oz_json_free(json);
    struct model *m = build(&c, false);
    require(oz_ckpt_open(ckpt, folder, NULL, &err), &err);
    require(oz_match_create(&match, *ckpt, &m->table, NULL, &err), &err);
    require(oz_match_check(match, folder, &err), &err);
    oz_arena_init_measure(&size, "planes");
    struct oz_load_args args = {.match = match, .dev = device, .model = &size};
    require(oz_load_component(&args, &err), &err);
    require(oz_arena_init_host(&m->planes, "planes", size.used_bytes, &err), &err);
    args.model = &m->planes;
    args.stats = &stats;
    require(oz_load_component(&args, &err), &err);
    /* Every tensor is a row's or a time convolution, and no row is without. */
    assert_int_equal(stats.tensors, m->table.count);
    assert_int_equal(stats.ignored, 8);
    assert_int_equal(stats.tensors + stats.ignored, oz_ckpt_count(*ckpt));
    oz_match_destroy(&match);
    oz_free(config);
    oz_free(folder);
    return m;
}

static const float *reference(const struct oz_ckpt *ckpt, const char *name, int64_t elements)
{
    const struct oz_tensor_view *t = oz_ckpt_find(ckpt, name, NULL);
    assert_non_null(t);
    assert_int_equal(t->dtype, OZ_DTYPE_F32);
    assert_int_equal(t->elements, elements);
    return (const float *)(uintptr_t)t->data;
}

/* Latents after the last step of a reference run must give its picture. */
static void check_picture(const struct model *m, const struct oz_ckpt *ckpt, const char *latents,
                          const char *image, int32_t h, int32_t w)
{
    const struct oz_qwen_vae_config *c = &m->vae.config;
    const struct job j = decode_job(c, 1, h, w);
    const int64_t count = j.out_rows * j.out_cols;
    const float *packed = reference(ckpt, latents, j.in_rows * j.in_cols);
    const float *want = reference(ckpt, image, count);
    float *z = malloc((size_t)(j.in_rows * j.in_cols) * sizeof *z);
    assert_non_null(z);
    for (int32_t i = 0; i < h * w * c->z_dim; i++) {
        const int32_t y = i / c->z_dim / w;
        const int32_t px = i / c->z_dim % w;
        const int32_t ch = i % c->z_dim;
        const int32_t token = y / 2 * (w / 2) + px / 2;
        const int32_t feature = ch * 4 + (y & 1) * 2 + (px & 1);
        const float value = packed[token * 4 * c->z_dim + feature];
        z[i] = value * c->latents_std[ch] + c->latents_mean[ch];
    }
    float *out = compute(m, &j, z);
    float *planar = transposed(out, j.out_rows, j.out_cols);
    for (int64_t i = 0; i < count; i++) {
        planar[i] = fminf(fmaxf(planar[i] * 0.5F + 0.5F, 0), 1);
    }
    const double worst = largest_difference(planar, want, count);
    print_message("%s: worst difference %.2e\n", image, worst);
    assert_true(worst <= TOLERANCE);
    free(planar);
    free(out);
    free(z);
}

static void test_bundled_pictures(void **state)
{
    struct oz_error err;
    struct oz_ckpt *weights;
    struct oz_ckpt *tensors;
    struct model *m = load_bundled(&weights);
    require(oz_ckpt_open(&tensors, OZ_TEST_DIR "/parity/reference.safetensors", NULL, &err), &err);
    check_picture(m, tensors, "f32.case0.latents.19", "f32.case0.image", 16, 16);
    check_picture(m, tensors, "f32.case1.latents.19", "f32.case1.image", 16, 16);
    check_picture(m, tensors, "f32.case2.latents.07", "f32.case2.image", 12, 20);
    oz_ckpt_close(&tensors);
    oz_ckpt_close(&weights);
    drop(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill_is_the_published_hash),
        cmocka_unit_test(test_config_errors),
        cmocka_unit_test(test_config_skips),
        cmocka_unit_test(test_golden_decode),
        cmocka_unit_test(test_golden_encode),
        cmocka_unit_test(test_bands_change_nothing),
        cmocka_unit_test(test_frames_are_causal),
        cmocka_unit_test(test_one_level),
        cmocka_unit_test(test_host_bytes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_published_peak),
        cmocka_unit_test(test_bundled_pictures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
