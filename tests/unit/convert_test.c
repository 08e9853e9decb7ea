/*
 * pipe/convert.h and oz_model_convert: the bundled model, quantized in several forms, and converted. Every
 * tensor must be what the codec decodes, rounded to BF16; plain ones and configs must be the original's
 * bytes; with "codes" the files must be those that were quantized. What is expanded while loading must draw
 * the same picture before and after.
 */
#include "test.h"

#define OZ_UNSTABLE
#include <math.h>
#include <ounce/ounce.h>
#include <sys/stat.h>

#include "base/log.h"
#include "ckpt/writer.h"
#include "num/float.h"
#include "pipe/quantize.h"
#include "scalar_device.h"

static void quantized(const char *name, const char *config)
{
    struct oz_quantize_options o;
    oz_quantize_options_default(&o);
    o.model = bundled();
    o.quantization_config = config;
    o.keep = "none";
    o.overwrite = 1; /* of a test that has failed */
    ok(oz_model_quantize(scratch_path("%s", name), &o, &err));
}

static enum oz_status convert(const char *model, const char *transformer, const char *to,
                              const char *name)
{
    struct oz_convert_options o;
    oz_convert_options_default(&o);
    o.model = model;
    o.transformer = transformer;
    o.to = to;
    o.overwrite = 1;
    o.log = scratch_log_line;
    scratch_log_clear();
    return oz_model_convert(scratch_path("%s", name), &o, &err);
}

static void is_refused(enum oz_status got, enum oz_status status, const char *phrase)
{
    if (got != status || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, status, phrase);
    }
}

static bool is_there(const char *name)
{
    struct stat st;
    return stat(scratch_path("%s", name), &st) == 0;
}

/* ---- the values ---- */

static struct oz_pipeline *loaded(const char *folder, const char *transformer)
{
    struct oz_pipeline *p;
    const struct oz_pipeline_options o = {.transformer = transformer};
    ok(oz_pipeline_open(&p, folder, &o, &err));
    ok(oz_pipeline_check(p, &err));
    ok(oz_pipeline_assign(p, dev, NULL, OZ_KEEP_STANDARD, false, &err));
    ok(oz_pipeline_load(p, dev, NULL, NULL, &err));
    return p;
}

static void is_decoded(const struct oz_tensor_view *t, const struct oz_weight *w)
{
    float *line = malloc((size_t)w->cols * sizeof *line);
    assert_non_null(line);
    assert_int_equal(t->dtype, OZ_DTYPE_BF16);
    assert_int_equal(t->elements, w->rows * w->cols);
    for (int64_t r = 0; r < w->rows; r++) {
        w->codec->decode(w, 0, r, 0, w->cols, line);
        for (int64_t c = 0; c < w->cols; c++) {
            uint16_t want = oz_f32_to_bf16(line[c]);
            if (memcmp(&want, t->data + 2 * (r * w->cols + c), 2) != 0) {
                fail_msg("%s differs at [%lld, %lld]", t->name, (long long)r, (long long)c);
            }
        }
    }
    free(line);
}

/* The component of a converted model against its source: returns how many layers were expanded. */
static int32_t is_expanded(const struct oz_component *from, const struct oz_component *to)
{
    int32_t count = 0;
    assert_null(to->stored.method);
    assert_int_equal(to->stored.count, 0);
    for (int32_t r = 0; r < from->table.count; r++) {
        const struct oz_layer *layer = &from->table.rows[r];
        const struct oz_tensor_view *t = oz_ckpt_find(to->ckpt, layer->name, NULL);
        const struct oz_tensor_view *source = oz_ckpt_find(from->ckpt, layer->name, NULL);
        if (from->assignment.choices[r].scheme.codec != NULL) {
            assert_non_null(t);
            is_decoded(t, &layer->bind->weight);
            count++;
        } else if (source != NULL) {
            assert_non_null(t);
            assert_int_equal(t->dtype, source->dtype);
            assert_int_equal(t->bytes, source->bytes);
            assert_memory_equal(t->data, source->data, (size_t)t->bytes);
        }
    }
    return count;
}

static void same_file(const char *a, const char *b)
{
    char path[512];
    size_t bytes[2] = {0};
    const char *names[2] = {a, b};
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s", scratch_path("%s", names[i]));
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        (void)fseek(f, 0, SEEK_END);
        bytes[i] = (size_t)ftell(f);
        (void)fclose(f);
        texts[i] = scratch_read(names[i]);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(texts[0], texts[1], bytes[0]);
    free(texts[0]);
    free(texts[1]);
}

static void every_scheme(void **state)
{
    static const char *const configs[] = {
        "\"fp8_per_tensor\"",
        "\"fp8_per_channel\"",
        "\"fp8_per_block\"",
        "\"int8\"",
        "\"mxfp8\"",
        "\"mxfp4\"",
        "\"nvfp4\"",
        "{\"method\":\"bitsandbytes\"}",
        "{\"method\":\"bitsandbytes\",\"quant_type\":\"fp4\",\"compress_statistics\":true}"};
    scratch_copy("original", bundled());
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char config[256];
        (void)snprintf(config, sizeof config, "{\"transformer\":%s,\"text_encoder\":%s}",
                       configs[i], i == 0 ? "\"int8\"" : "null");
        quantized("q", config);
        ok(convert(scratch_path("q"), NULL, NULL, "plain"));
        struct oz_pipeline *q = loaded(scratch_path("q"), NULL);
        struct oz_pipeline *p = loaded(scratch_path("plain"), NULL);
        assert_int_equal(is_expanded(&q->components[OZ_COMPONENT_TRANSFORMER],
                                     &p->components[OZ_COMPONENT_TRANSFORMER]),
                         90);
        (void)is_expanded(&q->components[OZ_COMPONENT_TEXT_ENCODER],
                          &p->components[OZ_COMPONENT_TEXT_ENCODER]);
        oz_pipeline_close(&q);
        oz_pipeline_close(&p);
        same_file("plain/transformer/config.json", "original/transformer/config.json");
        same_file("plain/text_encoder/config.json", "original/text_encoder/config.json");
        ok(convert(scratch_path("q"), NULL, "codes", "codes"));
        same_file("codes/transformer/config.json", "q/transformer/config.json");
        same_file("codes/transformer/diffusion_pytorch_model.safetensors",
                  "q/transformer/diffusion_pytorch_model.safetensors");
        same_file("codes/text_encoder/model.safetensors", "q/text_encoder/model.safetensors");
        scratch_remove("q");
        scratch_remove("plain");
        scratch_remove("codes");
    }
    scratch_remove("original");
}

/* ---- other toolchains' files, made of ours ---- */

#define STEM "diffusion_pytorch_model"
#define VISION "visual.blocks.0.attn.qkv."

/* What becomes of a tensor of the source: another name, dtype and bytes; NULL: it is left out. */
typedef const char *(*rename_fn)(const char *name);

static const char *same_name(const char *name)
{
    return name;
}

/* A text for each module whose weight is I8; NULL: none. */
static void rewrite(const char *from, const char *stem, const char *to, rename_fn rename,
                    const char *hint, float scale2)
{
    enum { MOST = 600 };
    static char names[MOST][256];
    static struct oz_ckpt_spec specs[MOST];
    static const struct oz_tensor_view *views[MOST];
    struct oz_ckpt *c;
    struct oz_ckpt_writer *w;
    int32_t count = 0;
    ok(oz_ckpt_open(&c, scratch_path("%s", from), NULL, &err));
    for (int64_t i = 0; i < oz_ckpt_count(c); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(c, i);
        assert_true(count + 2 <= MOST);
        (void)snprintf(names[count], sizeof names[0], "%s", rename(t->name));
        specs[count] =
            (struct oz_ckpt_spec){.name = names[count], .dtype = t->dtype, .rank = t->rank};
        memcpy(specs[count].shape, t->shape, sizeof t->shape);
        if (strstr(names[count], VISION "weight") != NULL) { /* as a toolchain leaves it */
            specs[count].dtype = OZ_DTYPE_I8;
            specs[count].rank = 1;
            specs[count].shape[0] = t->bytes;
        }
        views[count++] = t;
        if (hint != NULL && t->dtype == OZ_DTYPE_I8) {
            (void)snprintf(names[count], sizeof names[0], "%.*scomfy_quant",
                           (int)strlen(t->name) - 6, t->name);
            specs[count] = (struct oz_ckpt_spec){.name = names[count],
                                                 .dtype = OZ_DTYPE_U8,
                                                 .rank = 1,
                                                 .shape = {(int64_t)strlen(hint)}};
            views[count++] = NULL;
        }
    }
    const struct oz_ckpt_writer_options o = {.folder = scratch_path("%s", to), .stem = stem};
    scratch_remove(to);
    scratch_folder(to);
    ok(oz_ckpt_writer_create(&w, &o, specs, count, &err));
    for (int32_t i = 0; i < count; i++) {
        const struct oz_tensor_view *t = views[i];
        bool second = strstr(names[i], "weight_scale_2") != NULL;
        const void *data = t == NULL ? hint : second ? (const void *)&scale2 : t->data;
        ok(oz_ckpt_writer_put_at(w, i, 0, data, t != NULL ? (size_t)t->bytes : strlen(hint), &err));
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
    oz_ckpt_close(&c);
}

static void picture(const char *model, const char *transformer, uint8_t out[32 * 32 * 3])
{
    struct oz_engine_options options;
    struct oz_image_request request;
    struct oz_engine *engine;
    struct oz_image *image;
    oz_engine_options_default(&options);
    options.model = model;
    options.transformer = transformer;
    oz_image_request_default(&request);
    request.prompt = "red apple";
    request.width = request.height = 32;
    request.num_inference_steps = 1;
    ok(oz_engine_open(&engine, &options, &err));
    ok(oz_image_generate(engine, &request, 1, &image, &err));
    memcpy(out, oz_image_pixels(image), (size_t)32 * 32 * 3);
    oz_image_destroy(&image);
    oz_engine_close(&engine);
}

/* ComfyUI's rotated integers: expanded while loading, and so the same picture on every kernel. */
static void rotated(void **state)
{
    static const char hint[] =
        "{\"format\":\"int8_tensorwise\",\"convrot\":true,\"convrot_groupsize\":64}";
    uint8_t before[32 * 32 * 3];
    uint8_t after[32 * 32 * 3];
    quantized("q", "{\"transformer\":\"int8\"}");
    rewrite("q/transformer", STEM, "r", same_name, hint, 0);
    const char *file = scratch_path("r/diffusion_pytorch_model.safetensors");
    ok(convert(bundled(), file, "bf16", "plain"));
    assert_non_null(strstr(scratch_log,
                           "info write: transformer (int8_convrot): 90 layers (int8_channel "
                           "90) become bf16, 115 tensors are copied; "));
    struct oz_pipeline *r = loaded(bundled(), file);
    struct oz_pipeline *p = loaded(scratch_path("plain"), NULL);
    assert_int_equal(is_expanded(&r->components[OZ_COMPONENT_TRANSFORMER],
                                 &p->components[OZ_COMPONENT_TRANSFORMER]),
                     90);
    oz_pipeline_close(&r);
    oz_pipeline_close(&p);
    picture(bundled(), file, before);
    picture(scratch_path("plain"), NULL, after);
    assert_memory_equal(before, after, sizeof before);
    ok(convert(bundled(), file, "codes", "codes")); /* no operator applies them: they expand */
    same_file("codes/transformer/diffusion_pytorch_model.safetensors",
              "plain/transformer/diffusion_pytorch_model.safetensors");
    scratch_remove("codes");
    scratch_remove("plain");
    scratch_remove("r");
    scratch_remove("q");
}

static const char *modelopt_name(const char *name)
{
    static const char *const endings[][2] = {{".weight_packed", ".weight"},
                                             {".weight_global_scale", ".weight_scale_2"}};
    static char text[256];
    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(name, endings[i][0]);
        if (at != NULL) {
            (void)snprintf(text, sizeof text, "%.*s%s", (int)(at - name), name, endings[i][1]);
            return text;
        }
    }
    return name;
}

/* Has any f32 number this reciprocal? */
static bool is_reciprocal(float x)
{
    float low = 1.0F / x;
    float high = low;
    for (int i = 0; i < 8; i++) {
        if (1.0F / low == x || 1.0F / high == x) {
            return true;
        }
        low = nextafterf(low, 0);
        high = nextafterf(high, INFINITY);
    }
    return false;
}

/* ModelOpt's second scale multiplies, that of compressed-tensors divides: not every one is there. */
static void factors(void **state)
{
    static const char description[] =
        "{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"NVFP4\","
        "\"group_size\":16,\"exclude_modules\":[]}}";
    float odd = 0x1p-9F * 1.75F;
    while (is_reciprocal(odd)) {
        odd = nextafterf(odd, 1);
    }
    quantized("q", "{\"transformer\":\"nvfp4\"}");
    rewrite("q/transformer", STEM, "m", modelopt_name, NULL, 0x1p-9F);
    scratch_text("m/hf_quant_config.json", description);
    ok(convert(bundled(), scratch_path("m"), "codes", "codes"));
    struct oz_pipeline *m = loaded(bundled(), scratch_path("m"));
    struct oz_pipeline *c = loaded(scratch_path("codes"), NULL);
    const struct oz_layer *a = m->components[OZ_COMPONENT_TRANSFORMER].table.rows;
    const struct oz_layer *b = c->components[OZ_COMPONENT_TRANSFORMER].table.rows;
    int32_t count = 0;
    for (int32_t i = 0; i < m->components[OZ_COMPONENT_TRANSFORMER].table.count; i++) {
        const struct oz_weight *x = &a[i].bind->weight;
        const struct oz_weight *y = &b[i].bind->weight;
        assert_ptr_equal(x->codec, y->codec);
        for (int k = 0; k < OZ_PLANE_COUNT && strcmp(x->codec->name, "nvfp4") == 0; k++) {
            count += k == OZ_PLANE_CODES;
            assert_memory_equal(x->planes[k].data, y->planes[k].data, (size_t)x->planes[k].bytes);
        }
    }
    assert_int_equal(count, 90);
    oz_pipeline_close(&m);
    oz_pipeline_close(&c);
    scratch_remove("codes");
    rewrite("q/transformer", STEM, "m", modelopt_name, NULL, odd);
    scratch_text("m/hf_quant_config.json", description);
    is_refused(convert(bundled(), scratch_path("m"), "codes", "codes"), OZ_ERR_UNSUPPORTED,
               "is the reciprocal of no f32 number");
    assert_false(is_there("codes") || is_there("codes.ounce-part"));
    ok(convert(bundled(), scratch_path("m"), NULL, "plain"));
    scratch_remove("plain");
    scratch_remove("m");
    scratch_remove("q");
}

/* ---- configs ---- */

#define MEMBER ",\n  \"quantization_config\": "

/* With the member between the original's and `tail`: the rest stays. */
static void a_config(const char *original, const char *between, const char *tail)
{
    static char text[16384];
    const char *begin = strstr(original, MEMBER);
    assert_non_null(begin);
    int members = (int)(begin - original);
    const char *value = begin + strlen(MEMBER);
    int bytes = (int)(strrchr(value, '}') - value);
    while (strchr(" \n", value[bytes - 1]) != NULL) {
        bytes--;
    }
    (void)snprintf(text, sizeof text, "%.*s%s%.*s%s", members, original, between, bytes, value,
                   tail);
    scratch_text("q/transformer/config.json", text);
    ok(convert(scratch_path("q"), NULL, NULL, "plain"));
    (void)snprintf(text, sizeof text, "%.*s%s", members, original, tail);
    char *got = scratch_read("plain/transformer/config.json");
    assert_string_equal(got, text);
    free(got);
    scratch_remove("plain");
}

/* Wherever the member stands, everything else keeps its bytes. */
static void configs(void **state)
{
    quantized("q", "{\"transformer\":\"int8\"}");
    char *original = scratch_read("q/transformer/config.json");
    a_config(original, MEMBER, "\n}\n");
    a_config(original, MEMBER, ",\n  \"_x\": \"a\\\"}{\"\n}\n");
    a_config(original,
             ",\"quantization_config\":", ",\"_x\":[1,{\"quantization_config\":2}],\"_y\":{}}");
    free(original);
    scratch_remove("q");
}

/* The first member. */
static void first_member(void **state)
{
    quantized("q", "{\"transformer\":\"int8\"}");
    char *text = scratch_read("q/transformer/config.json");
    static char moved[16384];
    char *at = strstr(text, MEMBER);
    assert_non_null(at);
    char *end = strrchr(text, '}');
    (void)snprintf(moved, sizeof moved, "{%.*s,%.*s\n}\n", (int)(end - at - 2), at + 1,
                   (int)(at - text - 1), text + 1);
    scratch_text("q/transformer/config.json", moved);
    free(text);
    ok(convert(scratch_path("q"), NULL, NULL, "plain"));
    scratch_copy("original", bundled());
    same_file("plain/transformer/config.json", "original/transformer/config.json");
    scratch_remove("original");
    scratch_remove("plain");
    scratch_remove("q");
}

/* ---- what is left out, refused and interrupted ---- */

static void refused(void **state)
{
    is_refused(convert(bundled(), NULL, NULL, "x"), OZ_ERR_ARG, "there is nothing to convert");
    is_refused(convert(bundled(), NULL, "fp8", "x"), OZ_ERR_ARG,
               "\"fp8\" is nothing that weights are converted to: bf16 or codes.");
    is_refused(oz_model_convert(NULL, NULL, &err), OZ_ERR_ARG, "is missing");
    assert_false(is_there("x") || is_there("x.ounce-part"));
}

/* A plain transformer of another folder becomes the model's own. */
static void replaced(void **state)
{
    char folder[512];
    (void)snprintf(folder, sizeof folder, "%s/transformer", bundled());
    ok(convert(bundled(), folder, NULL, "plain"));
    scratch_copy("original", bundled());
    same_file("plain/transformer/config.json", "original/transformer/config.json");
    assert_non_null(strstr(scratch_log, "transformer (plain): 205 tensors are copied; "));
    scratch_remove("plain");
    scratch_remove("original");
}

/* A vision tower, which nothing of ounce reads, quantized: it cannot be expanded, and codes without
 * their scales would be worse than nothing. */
static void left_out(void **state)
{
    struct oz_ckpt *c;
    quantized("q", "{\"text_encoder\":\"int8\",\"transformer\":null}");
    rewrite("q/text_encoder", "model", "v", same_name, NULL, 0);
    scratch_remove("q/text_encoder/model.safetensors");
    assert_int_equal(rename(scratch_path("v/model.safetensors"),
                            scratch_path("q/text_encoder/model.safetensors")),
                     0);
    ok(convert(scratch_path("q"), NULL, NULL, "plain"));
    assert_non_null(strstr(scratch_log, "warn write: text_encoder: "));
    assert_non_null(strstr(scratch_log, VISION "weight is quantized in the file and nothing of "));
    ok(oz_ckpt_open(&c, scratch_path("plain/text_encoder"), NULL, &err));
    int32_t found = 0;
    for (int64_t i = 0; i < oz_ckpt_count(c); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(c, i);
        assert_true(t->dtype == OZ_DTYPE_BF16 || t->dtype == OZ_DTYPE_F32);
        assert_null(strstr(t->name, VISION "weight"));
        found += strstr(t->name, VISION "bias") != NULL;
    }
    assert_int_equal(found, 1); /* plain: it is copied */
    oz_ckpt_close(&c);
    scratch_remove("plain");
    scratch_remove("v");
    scratch_remove("q");
}

static int cancel(void *ctx, const struct oz_progress *progress)
{
    int *left = ctx;
    assert_true(progress->done >= 0 && progress->done <= progress->total);
    return --*left < 0;
}

/* Stopped again and again, it ends in the bytes of an uninterrupted run. */
static void interrupted(void **state)
{
    struct oz_convert_options o;
    int stops = 0;
    quantized("q", "{\"transformer\":\"nvfp4\"}");
    oz_convert_options_default(&o);
    o.model = scratch_path("q");
    o.max_shard_bytes = 6000000;
    ok(oz_model_convert(scratch_path("whole"), &o, &err));
    for (int steps = 20;; steps += 20) {
        int left = steps;
        o.progress = cancel;
        o.progress_ctx = &left;
        enum oz_status status = oz_model_convert(scratch_path("part"), &o, &err);
        if (status == OZ_OK) {
            break;
        }
        assert_int_equal(status, OZ_ERR_CANCELLED);
        stops++;
    }
    assert_true(stops > 2);
    int files = scratch_count("whole/transformer");
    assert_true(files > 5);
    assert_int_equal(scratch_count("part/transformer"), files);
    for (int i = 1; i <= files - 2; i++) {
        char name[2][128];
        for (int k = 0; k < 2; k++) {
            (void)snprintf(name[k], sizeof name[k],
                           "%s/transformer/diffusion_pytorch_model-%05d-of-%05d.safetensors",
                           k == 0 ? "whole" : "part", i, files - 2);
        }
        same_file(name[0], name[1]);
    }
    scratch_remove("whole");
    scratch_remove("part");
    scratch_remove("q");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_scheme), cmocka_unit_test(rotated),
                                       cmocka_unit_test(factors),      cmocka_unit_test(configs),
                                       cmocka_unit_test(first_member), cmocka_unit_test(refused),
                                       cmocka_unit_test(replaced),     cmocka_unit_test(left_out),
                                       cmocka_unit_test(interrupted)};
    return cmocka_run_group_tests(tests, start, stop);
}
