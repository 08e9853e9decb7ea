/*
 * The bundled model under the names of other conventions: files as ComfyUI ships them, one for each
 * component or one for all, and Wan's own names of the VAE. Pictures have the same bytes; what is in no
 * table, or there twice under two names, is refused by its name in the file.
 */
#include "test.h"

#include <ounce/ounce.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/writer.h"
#include "model/qwen_vae/qwen_vae.h"
#include "scratch.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"
enum { SIDE = 64, MOST_TENSORS = 1024, NAME_BYTES = 256 };

static struct oz_error err;

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

/* ---- files under other names ---- */

/* A tensor's name in the file; false: it is left out. */
typedef bool (*name_fn)(const char *name, char out[NAME_BYTES]);

struct part {
    const char *component;
    name_fn name;
};

struct file {
    struct oz_ckpt *ckpts[3];
    struct oz_ckpt_spec specs[MOST_TENSORS];
    const struct oz_tensor_view *views[MOST_TENSORS];
    char names[MOST_TENSORS][NAME_BYTES];
    int32_t count;
};

static void add(struct file *f, const struct oz_tensor_view *t, const char *name)
{
    assert_true(f->count < MOST_TENSORS);
    struct oz_ckpt_spec *s = &f->specs[f->count];
    if (name != f->names[f->count]) {
        (void)snprintf(f->names[f->count], NAME_BYTES, "%s", name);
    }
    *s = (struct oz_ckpt_spec){.name = f->names[f->count], .dtype = t->dtype, .rank = t->rank};
    memcpy(s->shape, t->shape, sizeof s->shape);
    f->views[f->count++] = t;
}

/* Components as folder/stem.safetensors, with a tensor more (`extra`; NULL: without). */
static void write_file(const char *folder, const char *stem, const struct part *parts, int count,
                       const char *extra)
{
    static struct file f;
    struct oz_ckpt_writer *w;
    const struct oz_ckpt_writer_options o = {.folder = scratch_path("%s", folder), .stem = stem};
    memset(&f, 0, sizeof f);
    for (int k = 0; k < count; k++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", MODEL, parts[k].component);
        ok(oz_ckpt_open(&f.ckpts[k], path, NULL, &err));
        for (int64_t i = 0; i < oz_ckpt_count(f.ckpts[k]); i++) {
            const struct oz_tensor_view *t = oz_ckpt_tensor(f.ckpts[k], i);
            if (parts[k].name(t->name, f.names[f.count])) {
                add(&f, t, f.names[f.count]);
            }
        }
    }
    if (extra != NULL) {
        add(&f, f.views[0], extra);
    }
    ok(oz_ckpt_writer_create(&w, &o, f.specs, f.count, &err));
    for (int32_t i = oz_ckpt_writer_next(w); i >= 0; i = oz_ckpt_writer_next(w)) {
        ok(oz_ckpt_writer_put(w, f.views[i]->data, (size_t)f.views[i]->bytes, &err));
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
    for (int k = 0; k < count; k++) {
        oz_ckpt_close(&f.ckpts[k]);
    }
}

static bool as_is(const char *name, char out[NAME_BYTES])
{
    (void)snprintf(out, NAME_BYTES, "%s", name);
    return true;
}

static const char *front; /* of what follows */

static bool with_front(const char *name, char out[NAME_BYTES])
{
    (void)snprintf(out, NAME_BYTES, "%s%s", front, name);
    return true;
}

static bool in_program(const char *name, char out[NAME_BYTES])
{
    (void)snprintf(out, NAME_BYTES, "model.diffusion_model.%s", name);
    return true;
}

static bool as_encoder(const char *name, char out[NAME_BYTES])
{
    (void)snprintf(out, NAME_BYTES, "text_encoders.qwen25_7b.transformer.%s", name);
    return true;
}

/* transformers 5: model.language_model.layers, model.visual. */
static bool new_layout(const char *name, char out[NAME_BYTES])
{
    bool visual = strncmp(name, "visual.", 7) == 0;
    (void)snprintf(out, NAME_BYTES, "model.%s%s", visual ? "" : "language_model.",
                   visual ? name : name + strlen("model."));
    return true;
}

/* Wan's names, from those of diffusers, of a VAE with `blocks` residual blocks in a level of the decoder. */
static int blocks = 2;

static const char *residual(const char *part)
{
    static const char *const pairs[][2] = {{"norm1", "residual.0"},
                                           {"conv1", "residual.2"},
                                           {"norm2", "residual.3"},
                                           {"conv2", "residual.6"},
                                           {"conv_shortcut", "shortcut"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (strncmp(part, pairs[i][0], strlen(pairs[i][0])) == 0) {
            return pairs[i][1];
        }
    }
    return NULL;
}

static bool wan(const char *name, char out[NAME_BYTES])
{
    int level;
    int block;
    int at = 0;
    const char *kind = strrchr(name, '.');
    const char *rest = strchr(name, '.') + 1;
    char side[16];
    (void)snprintf(side, sizeof side, "%.*s", (int)(rest - 1 - name), name);
    if (strcmp(side, "quant_conv") == 0 || strcmp(side, "post_quant_conv") == 0) {
        (void)snprintf(out, NAME_BYTES, "conv%d%s", side[0] == 'q' ? 1 : 2, kind);
    } else if (strncmp(rest, "conv_in", 7) == 0) {
        (void)snprintf(out, NAME_BYTES, "%s.conv1%s", side, kind);
    } else if (strncmp(rest, "conv_out", 8) == 0 || strncmp(rest, "norm_out", 8) == 0) {
        (void)snprintf(out, NAME_BYTES, "%s.head.%d%s", side, rest[0] == 'c' ? 2 : 0, kind);
    } else if (sscanf(rest, "mid_block.attentions.%d.%n", &block, &at) == 1 && at > 0) {
        (void)snprintf(out, NAME_BYTES, "%s.middle.1.%s", side, rest + at);
    } else if (sscanf(rest, "mid_block.resnets.%d.%n", &block, &at) == 1 && at > 0) {
        (void)snprintf(out, NAME_BYTES, "%s.middle.%d.%s%s", side, 2 * block, residual(rest + at),
                       kind);
    } else if (sscanf(rest, "up_blocks.%d.resnets.%d.%n", &level, &block, &at) == 2) {
        (void)snprintf(out, NAME_BYTES, "%s.upsamples.%d.%s%s", side, level * (blocks + 1) + block,
                       residual(rest + at), kind);
    } else if (sscanf(rest, "up_blocks.%d.upsamplers.0.%n", &level, &at) == 1) {
        (void)snprintf(out, NAME_BYTES, "%s.upsamples.%d.%s", side, level * (blocks + 1) + blocks,
                       rest + at);
    } else if (sscanf(rest, "down_blocks.%d.%n", &block, &at) == 1) {
        const char *part = residual(rest + at);
        (void)snprintf(out, NAME_BYTES, "%s.downsamples.%d.%s%s", side, block,
                       part != NULL ? part : rest + at, part != NULL ? kind : "");
    } else {
        fail_msg("%s has no name in Wan", name);
    }
    return true;
}

static bool wan_of_checkpoint(const char *name, char out[NAME_BYTES])
{
    char own[NAME_BYTES];
    (void)wan(name, own);
    (void)snprintf(out, NAME_BYTES, "vae.%.200s", own);
    return true;
}

/* ---- pictures ---- */

static struct oz_image *expected;

static enum oz_status draw(const char *model, const char *transformer, struct oz_image **image)
{
    struct oz_engine *engine;
    struct oz_engine_options o;
    struct oz_image_request r;
    *image = NULL;
    oz_engine_options_default(&o);
    oz_image_request_default(&r);
    o.model = model;
    o.transformer = transformer;
    r.prompt = "red apple";
    r.width = r.height = SIDE;
    r.num_inference_steps = 2;
    r.seed = 7;
    enum oz_status status = oz_engine_open(&engine, &o, &err);
    if (status == OZ_OK) {
        status = oz_image_generate(engine, &r, 1, image, &err);
    }
    oz_engine_close(&engine);
    return status;
}

static void is_same(const char *model, const char *transformer)
{
    struct oz_image *image;
    ok(draw(model, transformer, &image));
    assert_memory_equal(oz_image_pixels(image), oz_image_pixels(expected), SIDE * SIDE * 3);
    oz_image_destroy(&image);
}

static void is_refused(const char *model, const char *transformer, enum oz_status status,
                       const char *phrase)
{
    struct oz_image *image;
    enum oz_status got = draw(model, transformer, &image);
    oz_image_destroy(&image);
    if (got != status || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, status, phrase);
    }
}

static int start(void **state)
{
    if (scratch_open(state) != 0) {
        return 1;
    }
    ok(draw(MODEL, NULL, &expected));
    return 0;
}

static int stop(void **state)
{
    oz_image_destroy(&expected);
    return scratch_close(state);
}

/* ---- tests ---- */

static void transformer(void **state)
{
    static const char *const fronts[] = {
        "", "model.diffusion_model.", "diffusion_model.", "model.", "net.", "transformer."};
    (void)state;
    for (size_t i = 0; i < sizeof fronts / sizeof *fronts; i++) {
        const struct part part = {"transformer", with_front};
        front = fronts[i];
        scratch_folder("t");
        write_file("t", "any", &part, 1, NULL);
        is_same(MODEL, scratch_path("t/any.safetensors"));
        scratch_remove("t");
    }
    const struct part part = {"transformer", in_program};
    scratch_folder("t");
    write_file("t", "unknown", &part, 1,
               "model.diffusion_model.transformer_blocks.0.to_qkv.weight");
    is_refused(MODEL, scratch_path("t/unknown.safetensors"), OZ_ERR_FORMAT,
               "1 tensor is unexpected: model.diffusion_model.transformer_blocks.0.to_qkv.weight");
    write_file("t", "twice", &part, 1, "img_in.bias");
    is_refused(MODEL, scratch_path("t/twice.safetensors"), OZ_ERR_FORMAT,
               "are one parameter under the names of two conventions, img_in.bias");
    scratch_remove("t");
}

/* A component's folder that holds one file of another name. */
static void text_encoder(void **state)
{
    static const name_fn names[] = {as_is, new_layout, as_encoder};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct part part = {"text_encoder", names[i]};
        scratch_copy("m", MODEL);
        scratch_remove("m/text_encoder/model.safetensors");
        write_file("m/text_encoder", "qwen_2.5_vl_7b", &part, 1,
                   i == 2 ? "text_encoders.qwen25_7b.logit_scale" : NULL);
        is_same(scratch_path("m"), NULL);
        write_file("m/text_encoder", "another", &part, 1, NULL);
        is_refused(scratch_path("m"), NULL, OZ_ERR_IO, "of another name (but 2)");
        scratch_remove("m");
    }
}

static void vae(void **state)
{
    static const name_fn names[] = {wan, wan_of_checkpoint};
    static const struct {
        const char *extra, *phrase;
    } bad[] = {
        {"decoder.upsamples.11.residual.0.gamma", "unexpected: decoder.upsamples.11.residual.0"},
        {"decoder.upsamples.2.residual.0.gamma", "unexpected: decoder.upsamples.2.residual.0"},
        {"decoder.upsamples.1.resample.1.bias", "unexpected: decoder.upsamples.1.resample.1.bias"},
        {"decoder.middle.0.residual.4.bias", "unexpected: decoder.middle.0.residual.4.bias"},
        {"encoder.downsamples.99999999999.shortcut.bias", "unexpected: encoder.downsamples.99999"},
        {"decoder.conv_in.bias", "ensors decoder.conv1.bias and decoder.conv_in.bias of "},
    };
    struct part part = {"vae", wan};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        part.name = names[i];
        scratch_copy("m", MODEL);
        scratch_remove("m/vae/diffusion_pytorch_model.safetensors");
        write_file("m/vae", "qwen_image_vae", &part, 1, NULL);
        is_same(scratch_path("m"), NULL);
        scratch_remove("m");
    }
    part.name = wan;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scratch_copy("m", MODEL);
        scratch_remove("m/vae/diffusion_pytorch_model.safetensors");
        write_file("m/vae", "qwen_image_vae", &part, 1, bad[i].extra);
        is_refused(scratch_path("m"), NULL, OZ_ERR_FORMAT, bad[i].phrase);
        scratch_remove("m");
    }
}

/* A whole checkpoint of ComfyUI: each component takes its own of it, and says what of it is not read. */
static void whole_checkpoint(void **state)
{
    static const struct part parts[] = {
        {"transformer", in_program}, {"text_encoder", as_encoder}, {"vae", wan_of_checkpoint}};
    char file[4096];
    (void)state;
    scratch_folder("all");
    write_file("all", "checkpoint", parts, 3, NULL);
    (void)snprintf(file, sizeof file, "%s", scratch_path("all/checkpoint.safetensors"));
    scratch_copy("m", MODEL);
    scratch_remove("m/text_encoder/model.safetensors");
    scratch_remove("m/vae/diffusion_pytorch_model.safetensors");
    assert_int_equal(symlink(file, scratch_path("m/text_encoder/any.safetensors")), 0);
    assert_int_equal(symlink(file, scratch_path("m/vae/any.safetensors")), 0);
    is_same(scratch_path("m"), file);
    scratch_remove("m");
    scratch_remove("all");
}

/* The published VAE has three residual blocks in a level of the decoder; the bundled one has two. */
static void published_vae(void **state)
{
    static const char *const pairs[][2] = {
        {"decoder.conv1.weight", "decoder.conv_in.weight"},
        {"decoder.upsamples.0.residual.0.gamma", "decoder.up_blocks.0.resnets.0.norm1.gamma"},
        {"decoder.upsamples.2.residual.6.bias", "decoder.up_blocks.0.resnets.2.conv2.bias"},
        {"decoder.upsamples.3.time_conv.bias", "decoder.up_blocks.0.upsamplers.0.time_conv.bias"},
        {"decoder.upsamples.4.shortcut.bias", "decoder.up_blocks.1.resnets.0.conv_shortcut.bias"},
        {"decoder.upsamples.7.resample.1.bias", "decoder.up_blocks.1.upsamplers.0.resample.1.bias"},
        {"decoder.upsamples.10.residual.3.gamma", "decoder.up_blocks.2.resnets.2.norm2.gamma"},
        {"decoder.upsamples.11.resample.1.bias",
         "decoder.up_blocks.2.upsamplers.0.resample.1.bias"},
        {"decoder.upsamples.14.residual.2.bias", "decoder.up_blocks.3.resnets.2.conv1.bias"},
        {"decoder.upsamples.15.residual.2.bias", "decoder.upsamples.15.residual.2.bias"},
        {"encoder.downsamples.10.residual.2.bias", "encoder.down_blocks.10.conv1.bias"},
    };
    enum { COUNT = sizeof pairs / sizeof *pairs };
    static const uint8_t zeros[4];
    struct oz_qwen_vae_config c = {.levels = 4, .num_res_blocks = 2};
    struct oz_ckpt_spec specs[COUNT];
    struct oz_ckpt_writer *w;
    struct oz_ckpt *ckpt;
    const char *convention;
    (void)state;
    scratch_folder("v");
    const struct oz_ckpt_writer_options o = {.folder = scratch_path("v"), .stem = "model"};
    for (int i = 0; i < COUNT; i++) {
        specs[i] = (struct oz_ckpt_spec){.name = pairs[i][0], .dtype = OZ_DTYPE_F32};
    }
    ok(oz_ckpt_writer_create(&w, &o, specs, COUNT, &err));
    while (oz_ckpt_writer_next(w) >= 0) {
        ok(oz_ckpt_writer_put(w, zeros, sizeof zeros, &err));
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
    ok(oz_ckpt_open(&ckpt, scratch_path("v"), NULL, &err));
    ok(oz_qwen_vae_rename(ckpt, &c, &convention, &err));
    assert_string_equal(convention, "Wan");
    for (int i = 0; i < COUNT; i++) {
        assert_non_null(oz_ckpt_find(ckpt, pairs[i][1], NULL));
    }
    oz_ckpt_close(&ckpt);
    scratch_remove("v");
}

/* Parts of a tensor are its bytes from there on, under their own names; what is no part is refused. */
static void parts_of_tensors(void **state)
{
    static const struct oz_ckpt_spec specs[] = {
        {.name = "fused", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {6, 4}},
        {.name = "other", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {1}}};
    static const struct {
        struct oz_ckpt_part part;
        enum oz_status status;
        const char *phrase;
    } bad[] = {
        {{0, "x", 40, 16, 2, {2, 4}}, OZ_ERR_ARG, "Tensor fused has no part x"},
        {{0, "x", -8, 16, 2, {2, 4}}, OZ_ERR_ARG, "no part x"},
        {{0, "x", 0, 15, 2, {2, 4}}, OZ_ERR_ARG, "no part x"},
        {{0, "x", 0, 16, 2, {-2, -4}}, OZ_ERR_ARG, "no part x"},
        {{0, "x", 0, 16, 9, {2, 4}}, OZ_ERR_ARG, "no part x"},
        {{0, "x", 0, 0, 3, {INT64_MAX, INT64_MAX, 2}}, OZ_ERR_ARG, "no part x"},
        {{0, "other", 0, 16, 2, {2, 4}}, OZ_ERR_FORMAT, "two conventions, other."},
    };
    uint8_t data[52];
    struct oz_ckpt_writer *w;
    struct oz_ckpt *c;
    (void)state;
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)i;
    }
    scratch_folder("p");
    const struct oz_ckpt_writer_options o = {.folder = scratch_path("p"), .stem = "model"};
    ok(oz_ckpt_writer_create(&w, &o, specs, 2, &err));
    for (int32_t i = oz_ckpt_writer_next(w); i >= 0; i = oz_ckpt_writer_next(w)) {
        ok(oz_ckpt_writer_put(w, i == 0 ? data : data + 48, i == 0 ? 48 : 4, &err));
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ok(oz_ckpt_open(&c, scratch_path("p"), NULL, &err));
        assert_int_equal(oz_ckpt_divide(c, &bad[i].part, 1, &err), bad[i].status);
        assert_non_null(strstr(err.message, bad[i].phrase));
        oz_ckpt_close(&c);
    }
    static const struct oz_ckpt_part good[] = {
        {0, "b", 16, 32, 2, {4, 4}}, {0, "a", 0, 16, 2, {2, 4}}, {0, "all", 0, 48, 1, {24}}};
    ok(oz_ckpt_open(&c, scratch_path("p"), NULL, &err));
    ok(oz_ckpt_divide(c, good, 3, &err));
    assert_int_equal(oz_ckpt_count(c), 4);
    for (int i = 0; i < 3; i++) {
        uint8_t got[48];
        const struct oz_tensor_view *t = oz_ckpt_find(c, good[i].name, NULL);
        assert_true(t != NULL && t->bytes == good[i].bytes && t->elements * 2 == t->bytes);
        assert_string_equal(oz_tensor_file_name(t), "fused");
        ok(oz_ckpt_read(c, t, 0, t->bytes, got, &err));
        assert_memory_equal(got, data + good[i].first_byte, (size_t)t->bytes);
        assert_memory_equal(t->data, got, (size_t)t->bytes);
    }
    assert_true(oz_ckpt_has(c, "oth", "er") && !oz_ckpt_has(c, "", "fused"));
    oz_ckpt_close(&c);
    scratch_remove("p");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transformer),   cmocka_unit_test(text_encoder),
        cmocka_unit_test(vae),           cmocka_unit_test(whole_checkpoint),
        cmocka_unit_test(published_vae), cmocka_unit_test(parts_of_tensors),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
