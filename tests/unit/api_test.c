/*
 * The public interface on the bundled model: versioned structs, defaults, refusals, pictures that
 * do not depend on threads or company, PNG and its metadata, cancelling, and memory that runs out.
 */
#include "test.h"

#include <math.h>
#include <ounce/ounce.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "media/png.h"
#include "scratch.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"

static struct oz_error err;

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static void says(enum oz_status got, enum oz_status want, const char *phrase)
{
    if (got != want || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, want, phrase);
    }
}

static struct oz_engine_options options_for(int32_t threads)
{
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.model = MODEL;
    o.threads = threads;
    return o;
}

static struct oz_engine *engine; /* one thread; for tests that need no other */

static int start(void **state)
{
    struct oz_engine_options o = options_for(1);
    if (scratch_open(state) != 0 || oz_engine_open(&engine, &o, &err) != OZ_OK) {
        print_error("%s\n", err.message);
        return 1;
    }
    return 0;
}

static int stop(void **state)
{
    oz_engine_close(&engine);
    oz_engine_close(&engine);
    oz_engine_close(NULL);
    return scratch_close(state);
}

/* ---- versioned structs ---- */

static void defaults(void **state)
{
    struct oz_engine_options o;
    struct oz_image_request r;
    struct oz_png_options p;
    struct oz_inspect_options i;
    memset(&o, 0xFF, sizeof o);
    memset(&r, 0xFF, sizeof r);
    memset(&p, 0xFF, sizeof p);
    memset(&i, 0xFF, sizeof i);
    oz_engine_options_default(&o);
    oz_image_request_default(&r);
    oz_png_options_default(&p);
    oz_inspect_options_default(&i);
    assert_true(o.struct_size == sizeof o && o.model == NULL && o.threads == 0);
    assert_true(o.precision == OZ_PRECISION_BF16 && o.log == NULL && o.progress == NULL);
    assert_string_equal(o.device, "cpu");
    assert_true(r.struct_size == sizeof r && r.prompt == NULL && r.width == 0 && r.seed == 0);
    assert_true(r.negative_prompt == NULL && r.true_cfg_scale == 0);
    assert_true(p.struct_size == sizeof p && p.no_metadata == 0);
    assert_true(i.struct_size == sizeof i && i.json == 0 && i.tensors == 0);
    struct oz_plan_options l;
    memset(&l, 0xFF, sizeof l);
    oz_plan_options_default(&l);
    assert_true(l.struct_size == sizeof l && l.json == 0 && l.tensors == 0 && l.fit_bytes == 0);
    assert_true(l.requests == NULL && l.request_count == 0);
    assert_string_equal(oz_version(), "0.1.0");
}

/* A program that was compiled against an older header, or a newer one. */
static void smaller_and_larger_structs(void **state)
{
    struct {
        struct oz_engine_options known;
        char later[64];
    } newer;
    memset(&newer, 0xFF, sizeof newer);
    oz_engine_options_init(&newer.known, sizeof newer);
    assert_int_equal(newer.known.struct_size, sizeof newer);
    for (size_t i = 0; i < sizeof newer.later; i++) {
        assert_int_equal(newer.later[i], 0);
    }
    struct oz_engine_options older;
    size_t old_size = offsetof(struct oz_engine_options, threads);
    memset(&older, 0xFF, sizeof older);
    oz_engine_options_init(&older, old_size);
    assert_int_equal(older.struct_size, old_size);
    assert_int_equal(older.threads, -1); /* not the library's to touch */
    struct oz_engine *e;
    older.model = newer.known.model = MODEL;
    newer.known.threads = 1;
    ok(oz_engine_open(&e, &older, &err));
    oz_engine_close(&e);
    ok(oz_engine_open(&e, &newer.known, &err));
    oz_engine_close(&e);
    older.struct_size = 0;
    says(oz_engine_open(&e, &older, &err), OZ_ERR_ARG, "have no struct_size");
    assert_null(e);
}

static void what_is_told(void **state)
{
    struct oz_model_info info = {.struct_size = sizeof info};
    ok(oz_engine_info(engine, &info, &err));
    assert_string_equal(info.name, "emoji");
    assert_string_equal(info.path, MODEL);
    assert_string_equal(info.pipeline, "QwenImagePipeline");
    assert_true(info.width == 128 && info.height == 128 && info.num_inference_steps == 20);
    assert_true(info.true_cfg_scale == 4.0 && info.size_multiple == 16);
    assert_string_equal(info.negative_prompt, " ");
    assert_int_equal(info.struct_size, sizeof info);
    memset(&info, 0xFF, sizeof info);
    info.struct_size = offsetof(struct oz_model_info, width);
    ok(oz_engine_info(engine, &info, &err));
    assert_true(info.width == -1 && strcmp(info.name, "emoji") == 0);
    info.struct_size = 0;
    says(oz_engine_info(engine, &info, &err), OZ_ERR_ARG, "struct_size of the model info");
    struct oz_stats stats = {0};
    says(oz_engine_stats(engine, &stats, &err), OZ_ERR_ARG, "struct_size of the stats");
    stats.struct_size = sizeof stats;
    ok(oz_engine_stats(engine, &stats, &err));
    assert_true(stats.load_s > 0 && stats.weight_bytes > 20000000);
    assert_true(stats.peak_resident_bytes > 1 << 20);
}

/* In an array all elements have the first one's size. */
static void arrays_of_larger_structs(void **state)
{
    struct {
        struct oz_image_request known;
        char later[24];
    } two[2];
    for (int i = 0; i < 2; i++) {
        oz_image_request_init(&two[i].known, sizeof two[i]);
        two[i].known.prompt = "red apple";
    }
    two[1].known.width = 100;
    says(oz_image_check(engine, &two[0].known, 2, &err), OZ_ERR_ARG, "Request 2: the width is 100");
    two[1].known.width = 96;
    ok(oz_image_check(engine, &two[0].known, 2, &err));
}

/* ---- refusals ---- */

static struct oz_image_request request(const char *prompt)
{
    struct oz_image_request r;
    oz_image_request_default(&r);
    r.prompt = prompt;
    r.width = r.height = 32;
    r.num_inference_steps = 2;
    r.true_cfg_scale = 1;
    r.seed = 5;
    return r;
}

#define REFUSED(change, phrase)                                                   \
    do {                                                                          \
        struct oz_image_request r = request("red apple");                         \
        change;                                                                   \
        says(oz_image_check(engine, &r, 1, &err), OZ_ERR_ARG, phrase);            \
        struct oz_image *image = (struct oz_image *)&err;                         \
        says(oz_image_generate(engine, &r, 1, &image, &err), OZ_ERR_ARG, phrase); \
        assert_null(image);                                                       \
    } while (0)

static void wrong_requests(void **state)
{
    REFUSED(r.prompt = NULL, "no prompt");
    REFUSED(r.prompt = "\xFF", "The prompt is not valid UTF-8 at byte 0");
    REFUSED(r.negative_prompt = "ab\xED\xA0\x80", "negative prompt is not valid UTF-8 at byte 2");
    REFUSED(r.width = 100, "The width is 100; it must be a multiple of 16. The nearest is 96.");
    REFUSED(r.width = 105, "The nearest is 112.");
    REFUSED(r.height = 127, "The height is 127; it must be a multiple of 16. The nearest is 128.");
    REFUSED(r.height = 15, "The height is 15; it must lie in 16 to");
    REFUSED(r.height = -16, "The height is -16");
    REFUSED(r.width = INT32_MIN, "The width is -2147483648");
    REFUSED(r.width = INT32_MAX, "The width is 2147483647");
    REFUSED(r.num_inference_steps = -1, "The number of steps is -1; it must lie in 1 to");
    REFUSED(r.num_inference_steps = 1000000, "The number of steps is 1000000");
    REFUSED(r.true_cfg_scale = (double)NAN, "The guidance scale is");
    REFUSED(r.true_cfg_scale = (double)INFINITY, "The guidance scale is inf");
    REFUSED(r.true_cfg_scale = -1, "The guidance scale is -1");
    REFUSED(r.struct_size = 0, "no struct_size");
    struct oz_image_request r = request("");
    ok(oz_image_check(engine, &r, 1, &err));
    r.width = r.height = r.num_inference_steps = 0; /* the model's */
    r.true_cfg_scale = 0;
    ok(oz_image_check(engine, &r, 1, &err));
    says(oz_image_check(engine, &r, 0, &err), OZ_ERR_ARG, "0 requests");
    says(oz_image_check(engine, &r, -1, &err), OZ_ERR_ARG, "-1 requests");
    assert_int_equal(oz_image_check(engine, &r, -1, NULL), OZ_ERR_ARG);
}

static void wrong_options(void **state)
{
    struct oz_engine *e;
    struct oz_engine_options o = options_for(-1);
    says(oz_engine_open(&e, &o, &err), OZ_ERR_ARG, "-1 threads");
    o = options_for(1);
    o.max_batch = -1;
    says(oz_engine_open(&e, &o, &err), OZ_ERR_ARG, "max_batch is -1");
    o = options_for(1);
    o.precision = (enum oz_precision)9;
    says(oz_engine_open(&e, &o, &err), OZ_ERR_ARG, "Precision 9");
    o = options_for(1);
    o.device = "gpu9";
    says(oz_engine_open(&e, &o, &err), OZ_ERR_ARG, "gpu9");
    assert_non_null(strstr(err.message, "cpu"));
    assert_null(e);
}

/* ---- pictures ---- */

static void draw(struct oz_engine *e, const struct oz_image_request *r, int32_t n,
                 struct oz_image **images)
{
    ok(oz_image_generate(e, r, n, images, &err));
}

static void same_picture(const struct oz_image *a, const struct oz_image *b)
{
    size_t n = (size_t)oz_image_width(a) * (size_t)oz_image_height(a) * 3;
    assert_int_equal(oz_image_width(a), oz_image_width(b));
    assert_int_equal(oz_image_height(a), oz_image_height(b));
    assert_memory_equal(oz_image_floats(a), oz_image_floats(b), n * sizeof(float));
    assert_memory_equal(oz_image_pixels(a), oz_image_pixels(b), n);
}

static void threads_and_company_change_nothing(void **state)
{
    struct oz_engine *two;
    struct oz_engine_options o = options_for(2);
    struct oz_image_request r[3] = {request("red apple"), request("pizza"), request("fire")};
    struct oz_image *alone;
    struct oz_image *many[3];
    r[1].true_cfg_scale = 3;
    r[1].width = 48;
    r[2].num_inference_steps = 3;
    o.max_batch = 2;
    ok(oz_engine_open(&two, &o, &err));
    draw(two, r, 3, many);
    for (int i = 0; i < 3; i++) {
        draw(engine, &r[i], 1, &alone);
        same_picture(alone, many[i]);
        assert_true(oz_image_width(alone) == (i == 1 ? 48 : 32) && oz_image_height(alone) == 32);
        oz_image_destroy(&alone);
        oz_image_destroy(&many[i]);
    }
    oz_engine_close(&two);
}

static void floats_become_pixels(void **state)
{
    struct oz_image_request r = request("green heart");
    struct oz_image *image;
    draw(engine, &r, 1, &image);
    const float *f = oz_image_floats(image);
    const uint8_t *p = oz_image_pixels(image);
    for (size_t i = 0; i < 32 * 32; i++) {
        for (size_t c = 0; c < 3; c++) {
            double v = (double)f[c * 32 * 32 + i];
            assert_true(v >= 0 && v <= 1 && fabs(v * 255 - p[3 * i + c]) <= 0.5001);
        }
    }
    oz_image_destroy(&image);
    oz_image_destroy(&image);
}

static void metadata_and_png(void **state)
{
    struct oz_image_request r = request("a \"red\"\n\xF0\x9F\x8D\x8E");
    struct oz_image *image;
    r.true_cfg_scale = 2.5;
    r.seed = 18446744073709551615U;
    draw(engine, &r, 1, &image);
    struct oz_json *v;
    const char *text = oz_image_metadata(image);
    ok(oz_json_parse(&v, text, strlen(text), "metadata", &err));
    assert_string_equal(oz_json_string(oz_json_get(v, "prompt"), ""), r.prompt);
    assert_string_equal(oz_json_string(oz_json_get(v, "negative_prompt"), ""), " ");
    assert_int_equal(oz_json_integer(oz_json_get(v, "width"), 0), 32);
    assert_int_equal(oz_json_integer(oz_json_get(v, "height"), 0), 32);
    assert_int_equal(oz_json_integer(oz_json_get(v, "seed"), 0), UINT32_MAX); /* all that counts */
    assert_int_equal(oz_json_integer(oz_json_get(v, "num_inference_steps"), 0), 2);
    assert_true(oz_json_number(oz_json_get(v, "true_cfg_scale"), 0) == 2.5);
    assert_string_equal(oz_json_string(oz_json_get(v, "model"), ""), "emoji");
    assert_string_equal(oz_json_string(oz_json_get(v, "version"), ""), oz_version());
    oz_json_free(v);

    char *whole = oz_strdup(text);
    struct oz_png_options plain;
    oz_png_options_default(&plain);
    plain.no_metadata = 1;
    ok(oz_image_write_png(image, scratch_path("with.png"), NULL, &err));
    ok(oz_image_write_png(image, scratch_path("without.png"), &plain, &err));
    for (int i = 0; i < 2; i++) {
        struct oz_png png;
        char *data;
        size_t bytes;
        ok(oz_file_read(scratch_path(i == 0 ? "with.png" : "without.png"), 1 << 20, &data, &bytes,
                        &err));
        ok(oz_png_decode(data, bytes, 1 << 20, &png, &err));
        assert_true(png.width == 32 && png.height == 32);
        assert_memory_equal(png.rgb, oz_image_pixels(image), 32 * 32 * 3);
        assert_int_equal(png.text_count, 1 - i);
        if (i == 0) {
            assert_string_equal(oz_png_find_text(&png, "ounce"), whole);
        }
        oz_png_deinit(&png);
        oz_free(data);
    }
    oz_free(whole);
    says(oz_image_write_png(image, scratch_path("no/such.png"), NULL, &err), OZ_ERR_IO,
         "no/such.png");
    plain.struct_size = 0;
    says(oz_image_write_png(image, scratch_path("x.png"), &plain, &err), OZ_ERR_ARG, "struct_size");
    oz_image_destroy(&image);
}

static void tiles(void **state)
{
    struct oz_image_request r[3] = {request("red apple"), request("pizza"), request("fire")};
    struct oz_image *images[3];
    struct oz_image *sheet;
    r[1].width = 48;
    draw(engine, r, 3, images);
    ok(oz_image_tile(&sheet, images, 3, 2, 4, &err));
    int32_t width = oz_image_width(sheet);
    assert_int_equal(width, 4 + 48 + 4 + 48 + 4);
    assert_int_equal(oz_image_height(sheet), 4 + 32 + 4 + 32 + 4);
    const uint8_t *p = oz_image_pixels(sheet);
    for (int32_t y = 0; y < 76; y++) {
        for (int32_t x = 0; x < width; x++) {
            const uint8_t *got = p + 3 * (y * width + x);
            uint8_t white[3] = {255, 255, 255};
            const uint8_t *want = white;
            for (int i = 0; i < 3; i++) {
                int32_t dx = x - (4 + i % 2 * 52);
                int32_t dy = y - (4 + i / 2 * 36);
                if (dx >= 0 && dy >= 0 && dx < oz_image_width(images[i]) && dy < 32) {
                    want = oz_image_pixels(images[i]) + 3 * (dy * oz_image_width(images[i]) + dx);
                }
            }
            assert_memory_equal(got, want, 3);
        }
    }
    assert_null(oz_image_floats(sheet));
    assert_string_equal(oz_image_metadata(sheet), "");
    oz_image_destroy(&sheet);
    ok(oz_image_tile(&sheet, images, 1, 50, 0, &err)); /* no wider than there are pictures */
    assert_int_equal(oz_image_width(sheet), 32);
    oz_image_destroy(&sheet);
    says(oz_image_tile(&sheet, images, 0, 1, 0, &err), OZ_ERR_ARG, "at least one of each");
    says(oz_image_tile(&sheet, images, 1, 0, 0, &err), OZ_ERR_ARG, "at least one of each");
    says(oz_image_tile(&sheet, images, 1, 1, -1, &err), OZ_ERR_ARG, "gaps of 0 to 1024");
    assert_null(sheet);
    for (int i = 0; i < 3; i++) {
        oz_image_destroy(&images[i]);
    }
}

/* ---- cancelling ---- */

struct cancel {
    enum oz_stage stage;
    int calls, stop_at; /* counted in the stage */
};

static int cancel_in_stage(void *ctx, const struct oz_progress *p)
{
    struct cancel *c = ctx;
    assert_true(p->struct_size == sizeof *p && p->done >= 0 && p->done <= p->total);
    return p->stage == c->stage && ++c->calls == c->stop_at;
}

static void cancelled(void **state)
{
    struct cancel c = {.stage = OZ_STAGE_LOAD, .stop_at = 5};
    struct oz_engine_options o = options_for(1);
    struct oz_engine *e;
    struct oz_image_request r[2] = {request("red apple"), request("pizza")};
    struct oz_image *images[2] = {(struct oz_image *)&err, (struct oz_image *)&err};
    o.progress = cancel_in_stage;
    o.progress_ctx = &c;
    says(oz_engine_open(&e, &o, &err), OZ_ERR_CANCELLED, "interrupted");
    assert_null(e);
    c = (struct cancel){0};
    ok(oz_engine_open(&e, &o, &err));
    static const enum oz_stage stages[] = {OZ_STAGE_TEXT, OZ_STAGE_DENOISE, OZ_STAGE_DECODE};
    for (int i = 0; i < 3; i++) {
        c = (struct cancel){.stage = stages[i], .stop_at = 1};
        says(oz_image_generate(e, r, 2, images, &err), OZ_ERR_CANCELLED, "nterrupted");
        assert_true(images[0] == NULL && images[1] == NULL && c.calls == 1);
    }
    c = (struct cancel){.stage = OZ_STAGE_DENOISE}; /* and it can go on afterwards */
    draw(e, r, 2, images);
    assert_true(c.calls >= 2);
    for (int i = 0; i < 2; i++) {
        struct oz_image *again;
        draw(engine, &r[i], 1, &again);
        same_picture(again, images[i]);
        oz_image_destroy(&again);
        oz_image_destroy(&images[i]);
    }
    oz_engine_close(&e);
}

/* ---- memory that runs out ---- */

/* Opening with the n-th allocation failing, and with all from the n-th on. Nothing may leak (the
 * sanitizer says so) and nothing may be half open. Beyond the first hundred only some are tried: a
 * list that grows item by item fails alike at each. */
static void opening_without_memory(void **state)
{
    struct oz_engine_options o = options_for(1);
    uint64_t before = oz_alloc_calls();
    struct oz_engine *e;
    ok(oz_engine_open(&e, &o, &err));
    oz_engine_close(&e);
    uint64_t calls = oz_alloc_calls() - before;
    int tried = 0;
    for (uint64_t n = 1; n <= calls; n += n < 100 ? 1 : n / 16) {
        for (int sticky = 0; sticky < 2; sticky++, tried++) {
            memset(&err, 0, sizeof err);
            oz_alloc_fail_at(n, sticky);
            enum oz_status status = oz_engine_open(&e, &o, &err);
            oz_alloc_fail_at(0, 0);
            if (status != OZ_ERR_NOMEM || e != NULL || err.message[0] == '\0') {
                fail_msg("allocation %d of %d: status %d, \"%s\"", (int)n, (int)calls, status,
                         err.message);
            }
        }
    }
    print_message("%d allocations, %d failures tried\n", (int)calls, tried);
    ok(oz_engine_open(&e, &o, &err));
    oz_engine_close(&e);
}

static void drawing_without_memory(void **state)
{
    struct oz_image_request r = request("red apple");
    struct oz_image *want;
    struct oz_image *image;
    uint64_t before = oz_alloc_calls();
    draw(engine, &r, 1, &want);
    uint64_t calls = oz_alloc_calls() - before;
    for (uint64_t n = 1; n <= calls; n += n < 30 ? 1 : 1 + n / 16) {
        oz_alloc_fail_at(n, 0);
        enum oz_status status = oz_image_generate(engine, &r, 1, &image, &err);
        oz_alloc_fail_at(0, 0);
        if (status != OZ_ERR_NOMEM || image != NULL) {
            fail_msg("allocation %d of %d: status %d, \"%s\"", (int)n, (int)calls, status,
                     err.message);
        }
    }
    print_message("%d allocations\n", (int)calls);
    draw(engine, &r, 1, &image);
    same_picture(image, want);
    oz_image_destroy(&image);
    oz_image_destroy(&want);
}

/* ---- the plan ---- */

struct text {
    char data[1 << 20];
    size_t bytes;
};

static int keep_text(void *ctx, const char *text, size_t bytes)
{
    struct text *t = ctx;
    assert_true(t->bytes + bytes < sizeof t->data);
    memcpy(t->data + t->bytes, text, bytes);
    t->bytes += bytes;
    t->data[t->bytes] = '\0';
    return 0;
}

static int refuse_text(void *ctx, const char *text, size_t bytes)
{
    return 1;
}

/* The figure behind a name in a plan's document. */
static long long figure(const struct text *t, const char *name)
{
    const char *at = strstr(t->data, name);
    if (at == NULL) {
        fail_msg("no %s", name);
        return -1;
    }
    return strtoll(at + strlen(name), NULL, 10);
}

static void plans(void **state)
{
    static struct text t;
    struct {
        struct oz_image_request known;
        char later[16];
    } requests[2];
    struct oz_engine_options e = options_for(1);
    struct oz_plan_options o;
    oz_plan_options_default(&o);
    o.json = 1;
    memset(requests, 0, sizeof requests);
    for (int i = 0; i < 2; i++) {
        oz_image_request_init(&requests[i].known, sizeof requests[i]);
        requests[i].known.prompt = "red apple";
        requests[i].known.width = 32 << i;
        requests[i].known.height = 64;
        requests[i].known.num_inference_steps = 2;
    }
    o.requests = &requests[0].known;
    o.request_count = 2;
    t.bytes = 0;
    ok(oz_model_plan(&e, &o, keep_text, &t, &err));
    assert_non_null(strstr(t.data, "\"pictures\":[{\"width\":32,\"height\":64,"));
    assert_non_null(strstr(t.data, ",{\"width\":64,\"height\":64,"));

    /* an engine with these options, drawing them, says the same figures */
    struct oz_engine *own;
    struct oz_image *images[2];
    struct oz_stats s = {.struct_size = sizeof s};
    ok(oz_engine_open(&own, &e, &err));
    ok(oz_image_generate(own, &requests[0].known, 2, images, &err));
    ok(oz_engine_stats(own, &s, &err));
    assert_int_equal(s.plan_bytes, figure(&t, "\"step_bytes\":") + figure(&t, "\"plan_bytes\":") +
                                       figure(&t, "\"sequence_bytes\":"));
    for (int i = 0; i < 2; i++) {
        oz_image_destroy(&images[i]);
    }
    oz_engine_close(&own);

    says(oz_model_plan(&e, &o, refuse_text, NULL, &err), OZ_ERR_IO, "could not be written");
    requests[1].known.width = 33;
    says(oz_model_plan(&e, &o, keep_text, &t, &err), OZ_ERR_ARG, "Request 2: the width is 33");
    o.request_count = -1;
    says(oz_model_plan(&e, &o, keep_text, &t, &err), OZ_ERR_ARG, "number of requests is -1");
    o.request_count = 0;
    o.fit_bytes = -1;
    says(oz_model_plan(&e, &o, keep_text, &t, &err), OZ_ERR_ARG, "fit_bytes is -1");
    o.fit_bytes = 1;
    says(oz_model_plan(&e, &o, keep_text, &t, &err), OZ_ERR_THRESHOLD, "Nothing fits 1 bytes");
    e.quantization = "int8";
    says(oz_model_plan(&e, &o, keep_text, &t, &err), OZ_ERR_ARG, "chooses the quantization itself");
    o.struct_size = 0;
    says(oz_model_plan(&e, &o, keep_text, &t, &err), OZ_ERR_ARG, "struct_size");
    t.bytes = 0;
    ok(oz_model_plan(&e, NULL, keep_text, &t, &err));
    assert_non_null(strstr(t.data, "from method: int8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(smaller_and_larger_structs),
        cmocka_unit_test(what_is_told),
        cmocka_unit_test(arrays_of_larger_structs),
        cmocka_unit_test(wrong_requests),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(threads_and_company_change_nothing),
        cmocka_unit_test(floats_become_pixels),
        cmocka_unit_test(metadata_and_png),
        cmocka_unit_test(tiles),
        cmocka_unit_test(plans),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(opening_without_memory),
        cmocka_unit_test(drawing_without_memory),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
