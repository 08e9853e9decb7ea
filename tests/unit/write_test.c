/*
 * pipe/write.h and quant/dialect: the bundled model written with quantized weights and read back. Its
 * planes must be those of quantizing while loading, byte for byte; what is not quantized must be the
 * source's bytes; what no format holds, or what a config gets wrong, must be refused by name; and the
 * folder must be a model or not be there.
 */
#include "test.h"

#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "ckpt/writer.h"
#include "dev/backends.h"
#include "num/group.h"
#include "pipe/quantize.h"
#include "pipe/write.h"
#include "scalar_device.h"

/* A model, assigned. config NULL: nothing is asked. */
static enum oz_status try_open(struct oz_pipeline **p, const char *folder, const char *config,
                               enum oz_keep keep)
{
    struct oz_request *q = NULL;
    struct oz_request_text text = {.config = config};
    err.message[0] = '\0';
    enum oz_status status = oz_pipeline_open(p, folder, NULL, &err);
    if (status == OZ_OK) {
        ok(oz_request_create(&q, &text, &err));
        status = oz_pipeline_assign(*p, dev, q, keep, false, &err);
    }
    oz_request_destroy(&q);
    if (status != OZ_OK) {
        oz_pipeline_close(p);
    }
    return status;
}

static enum oz_status write_as(const char *output, const char *config, enum oz_keep keep,
                               const struct oz_write_options *options)
{
    struct oz_pipeline *p;
    struct oz_write_options o = options != NULL ? *options : (struct oz_write_options){0};
    ok(try_open(&p, bundled(), config, keep));
    o.output = output;
    o.dev = dev;
    enum oz_status status = oz_pipeline_write(p, &o, &err);
    oz_pipeline_close(&p);
    return status;
}

/* ---- the same planes ---- */

static void expect_same_param(const struct oz_layer *layer, const struct oz_weight *a,
                              const struct oz_weight *b)
{
    assert_string_equal(a->codec->name, b->codec->name);
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        const struct oz_plane_view *x = &a->planes[i];
        const struct oz_plane_view *y = &b->planes[i];
        assert_int_equal(x->present, y->present);
        if (!x->present) {
            continue;
        }
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->bytes, y->bytes);
        if (memcmp(x->data, y->data, (size_t)x->bytes) != 0) {
            print_error("%s: plane %d differs\n", layer->name, i);
            fail();
        }
    }
}

/* Loads both and compares every parameter; returns how many are quantized. */
static int32_t expect_same(const char *folder, const char *config, enum oz_keep keep)
{
    struct oz_pipeline *online;
    struct oz_pipeline *written;
    int32_t count = 0;
    ok(try_open(&online, bundled(), config, keep));
    ok(try_open(&written, folder, NULL, OZ_KEEP_STANDARD));
    ok(oz_pipeline_load(online, dev, NULL, NULL, &err));
    ok(oz_pipeline_load(written, dev, NULL, NULL, &err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *a = &online->components[i];
        const struct oz_component *b = &written->components[i];
        assert_int_equal(a->table.count, b->table.count);
        assert_int_equal(b->loaded.encoded, 0); /* it is only loaded */
        assert_int_equal(b->stored.count, a->assignment.quantized);
        for (int32_t r = 0; r < a->table.count; r++) {
            const struct oz_layer *layer = &a->table.rows[r];
            const struct oz_choice *x = &a->assignment.choices[r];
            const struct oz_choice *y = &b->assignment.choices[r];
            assert_string_equal(x->scheme.name, y->scheme.name);
            assert_int_equal(x->scheme.acts[0], y->scheme.acts[0]);
            if (x->scheme.codec != NULL) {
                assert_int_equal(y->source, OZ_SOURCE_CHECKPOINT);
                count++;
            }
            if (layer->bind != NULL && a->match->row_tensor[r] >= 0) {
                expect_same_param(layer, &layer->bind->weight, &b->table.rows[r].bind->weight);
            }
        }
    }
    oz_pipeline_close(&online);
    oz_pipeline_close(&written);
    return count;
}

static void every_scheme(void **state)
{
    static const char *const methods[] = {
        "fp8_per_tensor\"",
        "fp8_per_channel\"",
        "fp8_per_block\"",
        "int8\"",
        "mxfp8\"",
        "mxfp4\"",
        "nvfp4\"",
        "bitsandbytes\"",
        "bitsandbytes\",\"quant_type\":\"fp4\"",
        "bitsandbytes\",\"compress_statistics\":true",
        "bitsandbytes\",\"quant_type\":\"fp4\",\"compress_statistics\":true"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char config[128];
        const char *folder = scratch_path("one");
        (void)snprintf(config, sizeof config, "{\"method\":\"%s}", methods[i]);
        ok(write_as(folder, config, OZ_KEEP_NONE, NULL));
        assert_true(expect_same(folder, config, OZ_KEEP_NONE) > 80);
        scratch_remove("one");
    }
}

/* Several schemes, activations that are not the default, both towers. */
static void mixed(void **state)
{
    static const char config[] =
        "{\"transformer\":{\"targets\":{\"re:.*\\\\.attn\\\\..*\":\"fp8_per_channel\","
        "\"re:.*mlp.*\":\"nvfp4\"}},"
        "\"text_encoder\":{\"method\":\"int8\",\"ignored_layers\":[\"mlp\"]}}";
    static const char acts[] = "{\"linear\":{\"weight\":\"mxfp4\",\"activation\":\"mxfp8\"}}";
    const char *folder = scratch_path("mixed");
    ok(write_as(folder, config, OZ_KEEP_STANDARD, NULL));
    assert_true(expect_same(folder, config, OZ_KEEP_STANDARD) > 80);
    char *text = scratch_read("mixed/transformer/config.json");
    assert_non_null(strstr(text, "\"format\": \"mixed-precision\""));
    free(text);
    scratch_remove("mixed");
    ok(write_as(folder, acts, OZ_KEEP_STANDARD, NULL));
    (void)expect_same(folder, acts, OZ_KEEP_STANDARD);
    scratch_remove("mixed");
}

/* Weight-only forms of what has activations by default. */
static void plain_activations(void **state)
{
    static const char *const methods[] = {"fp8_per_channel", "fp8_per_block", "int8"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char config[96];
        (void)snprintf(config, sizeof config,
                       "{\"linear\":{\"weight\":\"%s\",\"activation\":null}}", methods[i]);
        const char *folder = scratch_path("plain");
        ok(write_as(folder, config, OZ_KEEP_STANDARD, NULL));
        (void)expect_same(folder, config, OZ_KEEP_STANDARD);
        scratch_remove("plain");
    }
}

/* Shards with an index; every plain tensor as it was. */
static void shards(void **state)
{
    const char *folder = scratch_path("shards");
    const struct oz_write_options o = {.max_shard_bytes = 3000000};
    struct oz_pipeline *source;
    struct oz_pipeline *written;
    ok(write_as(folder, "{\"method\":\"mxfp8\"}", OZ_KEEP_STANDARD, &o));
    (void)expect_same(folder, "{\"method\":\"mxfp8\"}", OZ_KEEP_STANDARD);
    ok(try_open(&source, bundled(), NULL, OZ_KEEP_STANDARD));
    ok(try_open(&written, folder, NULL, OZ_KEEP_STANDARD));
    const struct oz_ckpt *from = source->components[OZ_COMPONENT_TRANSFORMER].ckpt;
    const struct oz_component *to = &written->components[OZ_COMPONENT_TRANSFORMER];
    assert_true(oz_ckpt_file_count(to->ckpt) > 4);
    assert_string_equal(oz_ckpt_metadata(to->ckpt, "format"), "pt");
    int32_t plain = 0;
    for (int64_t i = 0; i < oz_ckpt_count(from); i++) {
        const struct oz_tensor_view *a = oz_ckpt_tensor(from, i);
        const struct oz_tensor_view *b = oz_ckpt_find(to->ckpt, a->name, NULL);
        if (b == NULL || b->dtype != a->dtype) {
            continue;
        }
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, (size_t)a->bytes);
        plain++;
    }
    assert_int_equal(plain, (int)oz_ckpt_count(from) - to->stored.count);
    oz_pipeline_close(&source);
    oz_pipeline_close(&written);
    scratch_remove("shards");
}

/* Each factor that an amax gives comes back from its reciprocal as one with the same reciprocal. */
static void reciprocals(void **state)
{
    uint32_t bits = 1;
    for (int i = 0; i < 4000000; i++) {
        float amax;
        bits = bits * 1664525U + 1013904223U;
        uint32_t u = bits & 0x7FFFFFFFU;
        memcpy(&amax, &u, sizeof amax);
        float scale2 = 1.0F / oz_nvfp4_global(isfinite(amax) && amax < 1e30F ? amax : 1.0F);
        assert_true(1.0F / oz_nvfp4_global_of(scale2) == scale2);
    }
}

/* ---- refused ---- */

static void refuse(const char *config, enum oz_status status, const char *words)
{
    const char *folder = scratch_path("refused");
    assert_int_equal(write_as(folder, config, OZ_KEEP_STANDARD, NULL), status);
    if (strstr(err.message, words) == NULL) {
        print_error("%s\n", err.message);
        fail();
    }
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(access(scratch_path("refused.ounce-part"), F_OK), -1);
}

static void what_no_format_holds(void **state)
{
    refuse("{\"method\":\"mxfp4_dualscale\",\"num_bf16_fallback_layers\":0}", OZ_ERR_UNSUPPORTED,
           "no format holds mxfp4_dualscale. Linear layers can be written as fp8_per_tensor, ");
    refuse("{\"transformer\":{\"targets\":{\"re:.*\\\\.attn\\\\..*\":\"bitsandbytes\","
           "\"re:.*mlp.*\":\"nvfp4\"}}}",
           OZ_ERR_UNSUPPORTED, "cannot be in one component's files");
    refuse("{\"method\":\"mxfp4\",\"w4a8_fallback_steps\":[1]}", OZ_ERR_UNSUPPORTED,
           "w4a8_fallback_steps");
    refuse("{\"linear\":{\"weight\":\"nvfp4\",\"activation\":\"nvfp4\"}}", OZ_ERR_UNSUPPORTED,
           "nvfp4 activations");
    refuse(NULL, OZ_ERR_ARG, "Nothing of the model would be quantized");
}

/* ---- the folder ---- */

static const char fp8[] = "{\"method\":\"fp8\",\"num_bf16_fallback_layers\":5}";

static void folders(void **state)
{
    const struct oz_write_options replace = {.overwrite = true};
    const char *folder = scratch_path("model");
    ok(write_as(folder, fp8, OZ_KEEP_STANDARD, NULL));
    assert_int_equal(access(scratch_path("model.ounce-part"), F_OK), -1);
    assert_int_equal(access(scratch_path("model/.ounce-part"), F_OK), -1);
    assert_int_equal(write_as(folder, fp8, OZ_KEEP_STANDARD, NULL), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "holds a model already"));
    /* replaced, with a slash behind */
    scratch_text("model/stale.txt", "x");
    ok(write_as(scratch_path("model/"), fp8, OZ_KEEP_STANDARD, &replace));
    assert_int_equal(access(scratch_path("model/stale.txt"), F_OK), -1);
    assert_int_equal(access(scratch_path("model.ounce-old"), F_OK), -1);
    /* what is no model is never replaced */
    scratch_folder("other");
    scratch_text("other/file", "x");
    assert_int_equal(write_as(scratch_path("other"), fp8, OZ_KEEP_STANDARD, &replace), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "is no model"));
    /* an empty folder is a place */
    scratch_folder("empty");
    ok(write_as(scratch_path("empty"), fp8, OZ_KEEP_STANDARD, NULL));
    /* a model that is quantized already */
    struct oz_pipeline *p;
    struct oz_write_options o = {.output = scratch_path("twice"), .dev = dev};
    ok(try_open(&p, scratch_path("empty"), NULL, OZ_KEEP_STANDARD));
    assert_int_equal(oz_pipeline_write(p, &o, &err), OZ_ERR_ARG);
    oz_pipeline_close(&p);
    ok(try_open(&p, scratch_path("empty"), "{\"text_encoder\":\"int8\"}", OZ_KEEP_STANDARD));
    ok(oz_pipeline_write(p, &o, &err)); /* the transformer as it is, the text encoder besides */
    oz_pipeline_close(&p);
    ok(try_open(&p, scratch_path("twice"), NULL, OZ_KEEP_STANDARD));
    assert_true(p->components[OZ_COMPONENT_TRANSFORMER].stored.count > 0);
    assert_true(p->components[OZ_COMPONENT_TEXT_ENCODER].stored.count > 0);
    /* into the model that is read */
    o.output = scratch_path("twice/transformer/x");
    oz_pipeline_close(&p);
    ok(try_open(&p, scratch_path("twice"), "{\"text_encoder\":null}", OZ_KEEP_STANDARD));
    assert_int_equal(oz_pipeline_write(p, &o, &err), OZ_ERR_ARG);
    oz_pipeline_close(&p);
    scratch_copy("source", bundled());
    ok(try_open(&p, scratch_path("source"), fp8, OZ_KEEP_STANDARD));
    o.overwrite = true;
    o.output = scratch_path("source");
    assert_int_equal(oz_pipeline_write(p, &o, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "is the model that is read"));
    o.output = scratch_path("source/new");
    assert_int_equal(oz_pipeline_write(p, &o, &err), OZ_ERR_ARG);
    oz_pipeline_close(&p);
}

/* What an interrupted process left is replaced, and nothing else is. */
static void leftovers(void **state)
{
    scratch_folder("left.ounce-part");
    scratch_text("left.ounce-part/file", "x");
    assert_int_equal(write_as(scratch_path("left"), fp8, OZ_KEEP_STANDARD, NULL), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "is in the way"));
    scratch_text("left.ounce-part/.ounce-part", "");
    scratch_folder("left.ounce-part/transformer");
    scratch_text("left.ounce-part/transformer/config.json", "{");
    int fd = open(scratch_path("left.ounce-part/.ounce-part"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    assert_int_equal(write_as(scratch_path("left"), fp8, OZ_KEEP_STANDARD, NULL), OZ_ERR_IO);
    assert_non_null(strstr(err.message, "Another process is writing"));
    close(fd);
    ok(write_as(scratch_path("left"), fp8, OZ_KEEP_STANDARD, NULL));
    assert_int_equal(access(scratch_path("left/file"), F_OK), -1);
    assert_int_equal(access(scratch_path("left.ounce-part"), F_OK), -1);
    (void)expect_same(scratch_path("left"), fp8, OZ_KEEP_STANDARD);
}

static int stop_after(void *ctx, const struct oz_progress *now)
{
    int *calls = ctx;
    assert_int_equal(now->stage, OZ_STAGE_WRITE);
    assert_true(now->done >= 0 && now->done <= now->total);
    return --*calls <= 0;
}

/* Interrupted anywhere: no model is there, and nothing beside it but what is whole. Not interrupted: progress ends at its total. */
static void interrupted(void **state)
{
    bool cancelled = true;
    int left = 0;
    for (int n = 1; cancelled; n = n < 8 ? n + 1 : n + 97) {
        left = n;
        const struct oz_write_options o = {.progress = stop_after, .progress_ctx = &left};
        enum oz_status status = write_as(scratch_path("stopped"), fp8, OZ_KEEP_STANDARD, &o);
        cancelled = status == OZ_ERR_CANCELLED;
        assert_true(cancelled || status == OZ_OK);
        bool kept = cancelled && strstr(err.message, "kept in") != NULL;
        assert_int_equal(access(scratch_path("stopped"), F_OK), cancelled ? -1 : 0);
        assert_int_equal(access(scratch_path("stopped.ounce-part"), F_OK), kept ? 0 : -1);
    }
}

/* ---- reading what does not fit ---- */

/* The config of the bundled model's transformer with a quantization_config. */
static void configure(const char *folder, const char *q)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/transformer/config.json", folder);
    scratch_remove("source");
    scratch_copy("source", bundled());
    char *text = scratch_read("source/transformer/config.json");
    char *end = strrchr(text, '}');
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fprintf(f, "%.*s, \"quantization_config\": %s}\n", (int)(end - text), text, q);
    assert_int_equal(fclose(f), 0);
    free(text);
}

static void misread(const char *old, const char *new_text, enum oz_status status, const char *words)
{
    struct oz_pipeline *p;
    char good[512];
    (void)snprintf(good, sizeof good, "%s", scratch_path("good"));
    scratch_remove("bad");
    scratch_copy("bad", good);
    scratch_edit("bad/transformer/config.json", old, new_text);
    enum oz_status got = try_open(&p, scratch_path("bad"), NULL, OZ_KEEP_STANDARD);
    if (got == OZ_OK) {
        got = oz_pipeline_check(p, &err);
        oz_pipeline_close(&p);
    }
    if (got != status || strstr(err.message, words) == NULL) {
        print_error("%s -> %s: %d %s\n", old, new_text, (int)got, err.message);
        fail();
    }
}

static void contradictions(void **state)
{
    struct oz_pipeline *p;
    ok(write_as(scratch_path("good"), "{\"method\":\"fp8_per_channel\"}", OZ_KEEP_STANDARD, NULL));
    misread("\"compressed-tensors\"", "\"gptq\"", OZ_ERR_FORMAT, "quantized by gptq, but");
    misread("\"quant_method\"", "\"method\": \"mxfp4\", \"q\"", OZ_ERR_FORMAT, "asks for U8");
    misread("\"quant_method\"", "\"quantity\"", OZ_ERR_FORMAT, "names no method");
    misread("\"channel\"", "\"tensor\"", OZ_ERR_FORMAT, "weight_scale is F32");
    misread("\"channel\"", "\"attn_head\"", OZ_ERR_UNSUPPORTED, "attn_head");
    misread("\"img_in\"", "\"re:.*to_q$\"", OZ_ERR_FORMAT, "ignores it");
    misread("\"img_in\"", "\"re:(\"", OZ_ERR_ARG, "(");
    misread("\"Linear\"", "\"Conv2d\"", OZ_ERR_FORMAT, "no group that targets it");
    misread("\"Linear\"", "7", OZ_ERR_FORMAT, "not a name");
    misread("\"dynamic\": true", "\"dynamic\": false", OZ_ERR_UNSUPPORTED, "static");
    /* no config: the tensors say enough */
    misread("\"quantization_config\"", "\"quantisation_config\"", OZ_OK, "");
    /* another toolchain's config over them */
    configure(scratch_path("good"), "\"int8\"");
    assert_int_equal(try_open(&p, scratch_path("good"), NULL, OZ_KEEP_STANDARD), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "quantized by int8, but"));
    scratch_remove("good");
    ok(write_as(scratch_path("good"), "{\"method\":\"fp8_per_channel\"}", OZ_KEEP_STANDARD, NULL));
    /* a request that is not the checkpoint's */
    assert_int_equal(try_open(&p, scratch_path("good"), "{\"method\":\"int8\"}", OZ_KEEP_STANDARD),
                     OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "compressed_tensors"));
    /* its own name is fine, and so are other activations */
    ok(try_open(&p, scratch_path("good"), "{\"method\":\"compressed-tensors\"}", OZ_KEEP_STANDARD));
    oz_pipeline_close(&p);
    ok(try_open(&p, scratch_path("good"), "{\"linear\":{\"activation\":null}}", OZ_KEEP_STANDARD));
    oz_pipeline_close(&p);
}

/* The text of every layer's state, edited: places have the same length. */
static void edit_states(const char *folder, const char *old, const char *new_text)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/transformer/diffusion_pytorch_model.safetensors", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && strlen(old) == strlen(new_text));
    char *data = malloc((size_t)st.st_size);
    assert_non_null(data);
    assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
    int edited = 0;
    for (char *at = data;
         (at = memmem(at, (size_t)(data + st.st_size - at), old, strlen(old))) != NULL; at++) {
        assert_int_equal(pwrite(fd, new_text, strlen(old), at - data), (ssize_t)strlen(old));
        edited++;
    }
    assert_true(edited > 0);
    free(data);
    (void)close(fd);
}

static void misstated(const char *old, const char *new_text, enum oz_status status,
                      const char *words)
{
    struct oz_pipeline *p;
    edit_states(scratch_path("bnb"), old, new_text);
    enum oz_status got = try_open(&p, scratch_path("bnb"), NULL, OZ_KEEP_STANDARD);
    if (got != status || strstr(err.message, words) == NULL) {
        print_error("%s -> %s: %d %s\n", old, new_text, (int)got, err.message);
        fail();
    }
    if (got == OZ_OK) {
        oz_pipeline_close(&p);
    }
    edit_states(scratch_path("bnb"), new_text, old);
}

/* What a bitsandbytes checkpoint says of its weights, in their texts and in the config. */
static void states(void **state)
{
    struct oz_pipeline *p;
    ok(write_as(scratch_path("bnb"), "{\"method\":\"bitsandbytes\",\"compress_statistics\":true}",
                OZ_KEEP_STANDARD, NULL));
    misstated("\"quant_type\": \"nf4\"", "\"quant_type\": \"fp4\"", OZ_ERR_UNSUPPORTED,
              "its values are not bitsandbytes' own");
    misstated("\"quant_type\": \"nf4\"", "\"quant_type\": \"nf5\"", OZ_ERR_UNSUPPORTED, "others");
    misstated("\"blocksize\": 64", "\"blocksize\": 32", OZ_ERR_UNSUPPORTED, "blocks of 64");
    misstated("\"nested_blocksize\": 256", "\"nested_blocksize\": 128", OZ_ERR_UNSUPPORTED, "256");
    misstated("\"shape\": [256", "\"shape\": [255", OZ_ERR_FORMAT, "another shape than");
    misstated("\"nested_offset\": ", "\"nested_offs3t\": ", OZ_ERR_FORMAT, "weight.absmax is U8");
    misstated("{\"quant_type\"", "[\"quant_type\"", OZ_ERR_FORMAT, "quant_state");
    misstated("\"dtype\": \"bfloat16\"", "\"dtype\": \"float32 \"", OZ_OK, "");
    scratch_remove("bnb");
    scratch_remove("good");
    ok(write_as(scratch_path("good"), "{\"method\":\"bitsandbytes\"}", OZ_KEEP_STANDARD, NULL));
    misread("\"load_in_8bit\": false", "\"load_in_8bit\": true", OZ_ERR_FORMAT, "says both");
    misread("\"uint8\"", "\"bfloat16\"", OZ_ERR_UNSUPPORTED, "not as bfloat16");
    ok(try_open(&p, scratch_path("good"), "{\"method\":\"bitsandbytes\"}", OZ_KEEP_STANDARD));
    oz_pipeline_close(&p);
    scratch_remove("good");
}

static void no_plain_module(void *ctx, const char *module, size_t length)
{
    (void)module;
    (void)length;
    ++*(int *)ctx;
}

/* Its config tells modules apart by parts of their names. */
static void names_that_collide(void **state)
{
    struct oz_pipeline *p;
    int plain = 0;
    ok(try_open(&p, bundled(), "{\"method\":\"bitsandbytes\"}", OZ_KEEP_STANDARD));
    const struct oz_component *c = &p->components[OZ_COMPONENT_TRANSFORMER];
    ok(oz_bnb_check(&c->assignment, c->ckpt, false, &err));
    oz_dialect_each_plain(&c->assignment, c->ckpt, false, no_plain_module, &plain);
    assert_int_equal(plain, 18); /* two of each block and six besides */
    /* "to_q" at the top would be skipped in every block */
    char *module = (char *)(uintptr_t)oz_layer_find(&c->table, "proj_out.weight")->module;
    char before[16];
    (void)snprintf(before, sizeof before, "%s", module);
    (void)snprintf(module, strlen(before) + 1, "to_q");
    assert_int_equal(oz_bnb_check(&c->assignment, c->ckpt, false, &err), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "cannot leave to_q plain and have transformer_blocks.0."));
    (void)snprintf(module, strlen(before) + 1, "attn");
    assert_int_equal(oz_bnb_check(&c->assignment, c->ckpt, false, &err), OZ_ERR_UNSUPPORTED);
    (void)snprintf(module, strlen(before) + 1, "to_out");
    assert_int_equal(oz_bnb_check(&c->assignment, c->ckpt, true, &err), OZ_OK);
    (void)snprintf(module, strlen(before) + 1, "net.2");
    assert_int_equal(oz_bnb_check(&c->assignment, c->ckpt, true, &err), OZ_ERR_UNSUPPORTED);
    (void)snprintf(module, strlen(before) + 1, "%s", before);
    oz_pipeline_close(&p);
}

/* ---- as transformers, vLLM and vLLM-Omni have it ---- */

/* A written checkpoint with its scales under another name. */
static void rename_scales(const char *folder, const char *suffix)
{
    struct oz_ckpt *from;
    struct oz_ckpt_writer *w;
    static struct oz_ckpt_spec specs[512];
    static char names[512][256];
    const struct oz_ckpt_writer_options o = {.folder = scratch_path("renamed"), .stem = "x"};
    char path[700];
    (void)snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", folder);
    ok(oz_ckpt_open(&from, path, NULL, &err));
    int32_t count = (int32_t)oz_ckpt_count(from);
    assert_true(count <= 512);
    for (int32_t i = 0; i < count; i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(from, i);
        const char *ending = strstr(t->name, ".weight_scale");
        int length = ending != NULL ? (int)(ending - t->name) : (int)strlen(t->name);
        (void)snprintf(names[i], sizeof names[i], "%.*s%s", length, t->name,
                       ending != NULL ? suffix : "");
        specs[i] = (struct oz_ckpt_spec){.name = names[i], .dtype = t->dtype, .rank = t->rank};
        memcpy(specs[i].shape, t->shape, sizeof specs[i].shape);
    }
    scratch_folder("renamed");
    ok(oz_ckpt_writer_create(&w, &o, specs, count, &err));
    for (int32_t i = 0; i < count; i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(from, i);
        ok(oz_ckpt_writer_put_at(w, i, 0, t->data, (size_t)t->bytes, &err));
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
    oz_ckpt_close(&from);
    assert_int_equal(rename(scratch_path("renamed/x.safetensors"), path), 0);
    scratch_remove("renamed");
}

static void of_others(void **state)
{
    static const struct {
        const char *config, *suffix, *q;
        const char *as_static; /* what is said where a config of static FP8 is put over it */
    } cases[] = {
        {"{\"method\":\"fp8_per_block\"}", ".weight_scale_inv",
         "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\","
         "\"weight_block_size\":[128,128]}",
         "weight_scale_inv is not"},
        {"{\"method\":\"int8\"}", ".weight_scale",
         "{\"quant_method\":\"int8\",\"ignored_layers\":[\"img_in\"]}", "is written by int8"},
        {"{\"method\":\"mxfp8\"}", ".weight_scale",
         "{\"method\":\"mxfp8\",\"is_checkpoint_mxfp8_serialized\":true}", "scales of"},
        {"{\"method\":\"fp8_per_tensor\"}", ".weight_scale",
         "{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\"}", "input_scale is missing"},
    };
    char folder[512];
    char transformer[600];
    struct oz_pipeline *p;
    (void)snprintf(folder, sizeof folder, "%s", scratch_path("fp8"));
    (void)snprintf(transformer, sizeof transformer, "%s/transformer", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ok(write_as(folder, cases[i].config, OZ_KEEP_STANDARD, NULL));
        rename_scales(transformer, cases[i].suffix);
        configure(folder, cases[i].q);
        (void)expect_same(folder, cases[i].config, OZ_KEEP_STANDARD);
        if (i == 0) { /* asked for by name as well */
            ok(try_open(&p, folder, "{\"method\":\"fp8\"}", OZ_KEEP_STANDARD));
            oz_pipeline_close(&p);
        }
        configure(folder, "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}");
        assert_int_equal(try_open(&p, folder, NULL, OZ_KEEP_STANDARD), OZ_ERR_FORMAT);
        assert_non_null(strstr(err.message, cases[i].as_static));
        scratch_remove("fp8");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scheme),
        cmocka_unit_test(mixed),
        cmocka_unit_test(shards),
        cmocka_unit_test(plain_activations),
        cmocka_unit_test(reciprocals),
        cmocka_unit_test(what_no_format_holds),
        cmocka_unit_test(folders),
        cmocka_unit_test(leftovers),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(of_others),
        cmocka_unit_test(states),
        cmocka_unit_test(names_that_collide),
    };
    return cmocka_run_group_tests_name("write", tests, start, stop);
}
