/*
 * Adapters merged while loading: every tool's names lead to the same layer; alphas; the merged weights
 * are, byte for byte, what the definition gives, whatever the codec, the threads, the ring and the
 * transforms, and lie within the rounding of one evaluation in double; what is wrong is told by name.
 */
#include "load_model.h"

#include <math.h>

#include "base/alloc.h"
#include "fill.h"
#include "load/lora.h"
#include "num/float.h"
#include "scratch.h"

/* ---- files ---- */

#define MOST 32

struct spec {
    const char *name;
    int32_t rank;
    int64_t shape[4];
    uint32_t seed; /* of the values; 0: all are `value` */
    float value;
    enum oz_dtype dtype;
};

/* Element j of a factor: F16 holds it exactly. */
static float factor_value(uint32_t seed, int64_t j)
{
    return oz_f16_to_f32(oz_f32_to_f16((float)fill_value(seed, (uint32_t)j)));
}

static struct spec matrix(const char *name, int64_t rows, int64_t cols, uint32_t seed)
{
    return (struct spec){.name = name,
                         .rank = 2,
                         .shape = {rows, cols},
                         .seed = seed,
                         .dtype = seed % 2 ? OZ_DTYPE_F32 : OZ_DTYPE_F16};
}

static struct spec number(const char *name, float value)
{
    return (struct spec){.name = name, .value = value, .dtype = OZ_DTYPE_F32};
}

/* NaN or another value in the place of one element. */
static float odd_factor;
static int64_t odd_place = -1;

static void write_file(const char *folder, const char *stem, const struct spec *list, int32_t count,
                       const char *metadata)
{
    struct oz_ckpt_writer *w;
    struct oz_ckpt_spec specs[MOST] = {0};
    const char *const pair[1][2] = {{"lora_adapter_metadata", metadata}};
    assert_true(count <= MOST);
    scratch_remove(folder);
    scratch_folder(folder);
    for (int32_t i = 0; i < count; i++) {
        specs[i] = (struct oz_ckpt_spec){
            .name = list[i].name, .dtype = list[i].dtype, .rank = list[i].rank};
        memcpy(specs[i].shape, list[i].shape, sizeof list[i].shape);
    }
    const struct oz_ckpt_writer_options options = {.folder = scratch_path("%s", folder),
                                                   .stem = stem,
                                                   .metadata = metadata != NULL ? pair : NULL,
                                                   .metadata_count = metadata != NULL};
    load_model_ok(oz_ckpt_writer_create(&w, &options, specs, count, &err));
    for (int32_t i; (i = oz_ckpt_writer_next(w)) >= 0;) {
        int64_t n = 1;
        for (int32_t d = 0; d < list[i].rank; d++) {
            n *= list[i].shape[d];
        }
        for (int64_t j = 0; j < n; j++) {
            float x = list[i].seed != 0 ? factor_value(list[i].seed, j) : list[i].value;
            x = i == 0 && j == odd_place ? odd_factor : x;
            uint16_t h = oz_f32_to_f16(x);
            size_t size = (size_t)oz_dtype_bits(list[i].dtype) / 8;
            load_model_ok(oz_ckpt_writer_put(w, size == 4 ? (void *)&x : (void *)&h, size, &err));
        }
    }
    load_model_ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
}

static enum oz_status open_one(struct oz_lora **lora, const char *suffix)
{
    char text[512];
    const char *list[1] = {text};
    (void)snprintf(text, sizeof text, "%s/x.safetensors%s", scratch_path("l"), suffix);
    return oz_lora_open(lora, match, list, 1, 0, &err);
}

/* ---- a model with names as Qwen-Image has them ---- */

static void named_model(void)
{
    const struct oz_layer norm = {.kind = OZ_LAYER_NORM, .rank = 1, .shape = {40}};
    const struct oz_layer conv = {.kind = OZ_LAYER_CONV, .rank = 4, .shape = {4, 4, 3, 3}};
    load_model_new_model();
    load_model_add("transformer_blocks.0.attn.to_q.weight",
                   load_model_matrix(OZ_LAYER_LINEAR, 24, 40), OZ_DTYPE_BF16, &params[0], NULL);
    load_model_add("transformer_blocks.0.attn.to_out.0.weight",
                   load_model_matrix(OZ_LAYER_LINEAR, 40, 24), OZ_DTYPE_BF16, &params[1], NULL);
    load_model_add("norm.weight", norm, OZ_DTYPE_BF16, &params[2], NULL);
    load_model_add("conv.weight", conv, OZ_DTYPE_BF16, &params[3], NULL);
    load_model_add("spare.weight", load_model_matrix(OZ_LAYER_LINEAR, 8, 8), OZ_DTYPE_BF16, NULL,
                   NULL);
    load_model_add("a_b.c.weight", load_model_matrix(OZ_LAYER_LINEAR, 8, 8), OZ_DTYPE_BF16,
                   &params[4], NULL);
    load_model_add("a.b_c.weight", load_model_matrix(OZ_LAYER_LINEAR, 8, 8), OZ_DTYPE_BF16,
                   &params[5], NULL);
    load_model_write_model(0);
    load_model_open_model();
}

static void every_style_means_one_layer(void **state)
{
    static const struct {
        const char *module, *down, *up;
    } styles[] = {
        {"transformer_blocks.0.attn.to_q", ".lora_A.weight", ".lora_B.weight"},
        {"transformer.transformer_blocks.0.attn.to_q", ".lora_A.weight", ".lora_B.weight"},
        {"transformer.transformer_blocks.0.attn.to_q", ".lora_A.default.weight",
         ".lora_B.default.weight"},
        {"transformer_blocks.0.attn.to_q", ".lora_A.default_0.weight", ".lora_B.default_0.weight"},
        {"base_model.model.transformer_blocks.0.attn.to_q", ".lora_A.weight", ".lora_B.weight"},
        {"base_model.model.transformer.transformer_blocks.0.attn.to_q", ".lora_A.weight",
         ".lora_B.weight"},
        {"transformer_blocks.0.attn.to_q", ".lora_down.weight", ".lora_up.weight"},
        {"transformer_blocks.0.attn.to_q", ".lora.down.weight", ".lora.up.weight"},
        {"unet.transformer_blocks.0.attn.to_q", ".lora.down.weight", ".lora.up.weight"},
        {"diffusion_model.transformer_blocks.0.attn.to_q", ".lora_A.weight", ".lora_B.weight"},
        {"diffusion_model.transformer_blocks.0.attn.to_q", ".lora_down.weight", ".lora_up.weight"},
        {"model.diffusion_model.transformer_blocks.0.attn.to_q", ".lora_down.weight",
         ".lora_up.weight"},
        {"lora_unet_transformer_blocks_0_attn_to_q", ".lora_down.weight", ".lora_up.weight"},
        {"lora_unet_transformer_transformer_blocks_0_attn_to_q", ".lora_down.weight",
         ".lora_up.weight"},
        {"lora_unet_diffusion_model_transformer_blocks_0_attn_to_q", ".lora_down.weight",
         ".lora_up.weight"},
        {"lora_transformer_transformer_blocks_0_attn_to_q", ".lora_down.weight", ".lora_up.weight"},
        {"lycoris_transformer_blocks_0_attn_to_q", ".lora_down.weight", ".lora_up.weight"},
    };
    named_model();
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        struct oz_lora *lora;
        char down[128];
        char up[128];
        char alpha[128];
        (void)snprintf(down, sizeof down, "%s%s", styles[i].module, styles[i].down);
        (void)snprintf(up, sizeof up, "%s%s", styles[i].module, styles[i].up);
        (void)snprintf(alpha, sizeof alpha, "%s.alpha", styles[i].module);
        const struct spec list[] = {matrix(down, 3, 40, 11), matrix(up, 24, 3, 12),
                                    number(alpha, 6)};
        write_file("l", "x", list, 3, NULL);
        load_model_ok(open_one(&lora, ":0.5"));
        assert_int_equal(lora->pair_count, 1);
        assert_int_equal(lora->first[0], 0);
        assert_int_equal(oz_lora_rank(lora, 0), 3);
        assert_int_equal(oz_lora_rank(lora, 1), 0);
        assert_true(lora->pairs[0].factor == 1.0F); /* 0.5 * 6 / 3 */
        assert_string_equal(lora->pairs[0].down->name, down);
        assert_string_equal(lora->pairs[0].up->name, up);
        oz_lora_close(&lora);
    }
    load_model_close_model();
}

static void alphas(void **state)
{
    static const struct {
        const char *metadata, *config, *suffix;
        bool own; /* the file has alpha 6 for the layer */
        float factor;
    } cases[] = {
        {NULL, NULL, "", false, 1.0F},
        {NULL, NULL, ":-0.25", false, -0.25F},
        {NULL, NULL, ":2e-1", false, 0.2F},
        {NULL, NULL, "", true, 1.5F}, /* 6 / 4 */
        {"{\"transformer.lora_alpha\": 8, \"transformer.r\": 4}", NULL, "", false, 2.0F},
        {"{\"lora_alpha\": 8}", NULL, ":0.5", false, 1.0F},
        {"{\"lora_alpha\": 8}", NULL, "", true, 1.5F},
        {"{\"lora_alpha\": 8, \"use_rslora\": true}", NULL, "", false, 4.0F}, /* 8 / sqrt(4) */
        {"{\"lora_alpha\": 8, \"alpha_pattern\": {\"attn.to_q\": 12}}", NULL, "", false, 3.0F},
        {"{\"lora_alpha\": 8, \"alpha_pattern\": {\"n.to_q\": 12}}", NULL, "", false, 2.0F},
        {NULL, "{\"lora_alpha\": 16, \"r\": 4}", "", false, 4.0F},
    };
    named_model();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_lora *lora;
        const struct spec list[] = {
            matrix("transformer_blocks.0.attn.to_q.lora_A.weight", 4, 40, 1),
            matrix("transformer_blocks.0.attn.to_q.lora_B.weight", 24, 4, 2),
            number("transformer_blocks.0.attn.to_q.alpha", 6)};
        bool beside = cases[i].config != NULL;
        write_file("l", beside ? "adapter_model" : "x", list, cases[i].own ? 3 : 2,
                   cases[i].metadata);
        if (beside) { /* by its folder */
            scratch_text("l/adapter_config.json", cases[i].config);
            const char *folder = scratch_path("l");
            load_model_ok(oz_lora_open(&lora, match, &folder, 1, 0, &err));
        } else {
            load_model_ok(open_one(&lora, cases[i].suffix));
        }
        if (lora->pairs[0].factor != cases[i].factor) {
            fail_msg("case %zu: the factor is %g", i, (double)lora->pairs[0].factor);
        }
        oz_lora_close(&lora);
    }
    load_model_close_model();
}

/* ---- merging, by the definition ---- */

/* Adapters of two files: which tensors, by the rows' names. */
static const struct adapter {
    const char *module;
    int64_t out, in, rank;
    uint32_t seed;
    float factor;
    int file;
} adapters[] = {
    {"blocks.0.q", 200, 96, 3, 21, 2.0F, 0}, {"blocks.1.k", 72, 96, 5, 23, 1.0F, 0},
    {"wide", 5, 1100, 4, 25, 0.3F, 0},       {"half", 33, 70, 9, 27, 1.0F, 0},
    {"kept", 16, 32, 1, 29, 0.7F, 0},        {"blocks.0.q", 200, 96, 8, 31, -0.5F, 1},
    {"kept", 16, 32, 6, 33, -1.0F, 1},
};
#define ADAPTERS (sizeof adapters / sizeof *adapters)

static bool is_of(const struct adapter *a, const struct oz_layer *row)
{
    size_t n = strlen(a->module);
    return strncmp(row->name, a->module, n) == 0 && strcmp(row->name + n, ".weight") == 0;
}

static float merged(const struct oz_layer *row, int64_t r, int64_t c, float w)
{
    static char last[64]; /* the row whose adapters are known */
    static bool of_last[ADAPTERS];
    if (strcmp(row->name, last) != 0) {
        (void)snprintf(last, sizeof last, "%s", row->name);
        for (size_t i = 0; i < ADAPTERS; i++) {
            of_last[i] = is_of(&adapters[i], row);
        }
    }
    for (size_t i = 0; i < ADAPTERS; i++) {
        const struct adapter *a = &adapters[i];
        if (!of_last[i]) {
            continue;
        }
        float sum = 0;
        for (int64_t k = 0; k < a->rank; k++) {
            sum = sum +
                  factor_value(a->seed + 1, r * a->rank + k) * factor_value(a->seed, k * a->in + c);
        }
        w = w + a->factor * sum;
    }
    return w;
}

/* Writes both files and opens them; the second's scale is -0.5, the first's 1. */
static struct oz_lora *open_adapters(void)
{
    struct oz_lora *lora;
    char names[ADAPTERS][3][64];
    char texts[2][512];
    const char *list[2] = {texts[0], texts[1]};
    for (int file = 0; file < 2; file++) {
        struct spec specs[MOST];
        int32_t count = 0;
        double scale = file == 0 ? 1 : -0.5;
        for (size_t i = 0; i < ADAPTERS; i++) {
            const struct adapter *a = &adapters[i];
            if (a->file != file) {
                continue;
            }
            (void)snprintf(names[i][0], 64, "%s.lora_down.weight", a->module);
            (void)snprintf(names[i][1], 64, "%s.lora_up.weight", a->module);
            (void)snprintf(names[i][2], 64, "%s.alpha", a->module);
            specs[count++] = matrix(names[i][0], a->rank, a->in, a->seed);
            specs[count++] = matrix(names[i][1], a->out, a->rank, a->seed + 1);
            specs[count++] =
                number(names[i][2], (float)((double)a->factor / scale * (double)a->rank));
        }
        const char *folder = file == 0 ? "l1" : "l2";
        write_file(folder, "x", specs, count, NULL);
        (void)snprintf(texts[file], sizeof *texts, "%s/x.safetensors:%g",
                       scratch_path("%s", folder), scale);
    }
    load_model_ok(oz_lora_open(&lora, match, list, 2, 0, &err));
    for (int32_t i = 0; i < lora->pair_count; i++) { /* the definition's own factors */
        bool same = false;
        for (size_t k = 0; k < ADAPTERS; k++) {
            same |= strncmp(lora->pairs[i].down->name, adapters[k].module,
                            strlen(adapters[k].module)) == 0 &&
                    lora->pairs[i].file == adapters[k].file &&
                    fabsf(lora->pairs[i].factor - adapters[k].factor) < 1e-6F;
            if (same && lora->pairs[i].file == adapters[k].file &&
                fabsf(lora->pairs[i].factor - adapters[k].factor) < 1e-6F) {
                lora->pairs[i].factor = adapters[k].factor; /* alpha was rounded to f32 */
                break;
            }
        }
        assert_true(same);
    }
    return lora;
}

static const struct oz_load_entry *entry_of(const struct loaded *l, const char *name)
{
    for (int64_t i = 0; i < l->report.count; i++) {
        if (strcmp(l->report.entries[i].tensor->name, name) == 0) {
            return &l->report.entries[i];
        }
    }
    fail_msg("%s is not in the report", name);
    return NULL;
}

static void bytes_are_those_of_the_definition(void **state)
{
    static const int64_t rings[] = {0, 1 << 19};
    bool few = getenv("OUNCE_TEST_FEW") != NULL; /* under sanitizers */
    struct oz_device far = *devices[2];
    far.host_memory = false;
    for (size_t c = 0; c < CODECS; c++) {
        for (int fused = 0; fused < 2; fused++) {
            load_model_blocks(codecs[c], fused);
            struct oz_lora *lora = open_adapters();
            lora_used = lora;
            lora_merged = merged;
            for (int threads = 1; threads <= 4; threads += few ? 3 : 1) {
                for (size_t r = 0; r < sizeof rings / sizeof *rings; r++) {
                    struct loaded l;
                    load_model_ok(
                        load_model_load(&l, threads < 4 ? devices[threads] : &far, rings[r]));
                    load_model_expect_all();
                    const struct oz_load_entry *kept = entry_of(&l, "kept.weight");
                    assert_int_equal(kept->fate, OZ_FATE_STORED); /* not mapped */
                    assert_ptr_equal(kept->lora, lora);
                    assert_null(entry_of(&l, "blocks.2.q.weight")->lora);
                    assert_ptr_equal(entry_of(&l, "blocks.0.q.weight")->lora, lora);
                    load_model_unload(&l);
                }
            }
            lora_used = NULL;
            lora_merged = NULL;
            oz_lora_close(&lora);
            load_model_close_model();
        }
    }
}

/*
 * Against one evaluation in double, of a layer that stays as it is stored. With u = 2^-24 and R the
 * rank: a sum of R products in f32 is off by at most R u / (1 - R u) times the sum of their absolute
 * values; the factor, its product and the addition add u each, of what they make; then rounding to the
 * stored dtype, half a unit of its last place (at most 2^-8 of the value for BF16, of 8 bits).
 */
static void within_the_bound_of_double(void **state)
{
    load_model_blocks("f16", false);
    struct oz_lora *lora = open_adapters();
    struct loaded l;
    lora_used = lora;
    load_model_ok(load_model_load(&l, devices[2], 0));
    const double u = ldexp(1, -24);
    double moved = 0;
    for (int32_t i = 0; i < table.count; i++) {
        const struct oz_layer *row = &table.rows[i];
        if (strcmp(row->name, "kept.weight") != 0) {
            continue;
        }
        const struct oz_weight *w = &row->bind->weight;
        for (int64_t r = 0; r < 16; r++) {
            float got[32];
            w->codec->decode(w, 0, r, 0, 32, got);
            for (int64_t c = 0; c < 32; c++) {
                double base = (double)load_model_value(i, r * 32 + c);
                double want = base;
                double bound = 0;
                for (size_t k = 0; k < ADAPTERS; k++) {
                    const struct adapter *a = &adapters[k];
                    double sum = 0;
                    double size = 0;
                    for (int64_t j = 0; j < a->rank && is_of(a, row); j++) {
                        double term = (double)factor_value(a->seed + 1, r * a->rank + j) *
                                      (double)factor_value(a->seed, j * a->in + c);
                        sum += term;
                        size += fabs(term);
                    }
                    double factor = fabs((double)a->factor);
                    double ru = (double)a->rank * u;
                    want += (double)a->factor * sum;
                    bound += factor * size * (ru / (1 - ru) + 2 * u) + fabs(want) * u;
                }
                bound = bound * (1 + 4 * u) + (fabs(want) + bound) * ldexp(1, -8);
                moved = fmax(moved, fabs(want - base));
                if (!(fabs((double)got[c] - want) <= bound)) {
                    fail_msg("[%d, %d] is %.9g, in double %.9g; the bound is %g", (int)r, (int)c,
                             (double)got[c], want, bound);
                }
            }
        }
    }
    assert_true(moved > 0.1); /* the adapters do something */
    lora_used = NULL;
    load_model_unload(&l);
    oz_lora_close(&lora);
    load_model_close_model();
}

/* ---- transforms and parts ---- */

static const char *const moved_names[] = {"w", "gate", "up"};

static float merged_moved(const struct oz_layer *row, int64_t r, int64_t c, float w)
{
    for (uint32_t i = 0; i < 3; i++) {
        size_t n = strlen(moved_names[i]);
        if (strncmp(row->name, moved_names[i], n) == 0 && row->name[n] == '.') {
            float sum = 0;
            for (int64_t k = 0; k < 2; k++) {
                sum = sum +
                      factor_value(42 + 2 * i, r * 2 + k) * factor_value(41 + 2 * i, k * 40 + c);
            }
            w = w + 1.0F * sum;
        }
    }
    return w;
}

static void transforms_and_parts(void **state)
{
    static int32_t order[24];
    char names[3][2][32];
    for (int i = 0; i < 24; i++) {
        order[i] = (i * 7) % 24;
    }
    for (uint32_t k = 0; k < 16; k++) {
        const char *codec = k & 8 ? "fp8_tensor" : NULL;
        struct oz_layer w = load_model_matrix(OZ_LAYER_LINEAR, 24, 40);
        struct oz_layer half = load_model_matrix(OZ_LAYER_LINEAR, 10, 40);
        struct spec specs[6];
        struct loaded l;
        struct oz_lora *lora;
        w.permutation = order;
        w.transform = (k & 1 ? OZ_TRANSFORM_PERMUTE : 0U) |
                      (k & 2 ? OZ_TRANSFORM_SWAP_HALVES : 0U) |
                      (k & 4 ? OZ_TRANSFORM_TRANSPOSE : 0U);
        if (k & 4) {
            w.file_rank = 2;
            memcpy(w.file_shape, (const int64_t[]){40, 24}, 16);
        }
        load_model_new_model();
        load_model_add("w.weight", w, OZ_DTYPE_BF16, &params[0], codec);
        params[1].name = "both"; /* gate and up, interleaved */
        params[1].rank = 2;
        memcpy(params[1].shape, (const int64_t[]){20, 40}, 16);
        half.bind_row_stride = 2;
        load_model_add("gate.weight", half, OZ_DTYPE_BF16, &params[1], codec);
        half.bind_row = 1;
        load_model_add("up.weight", half, OZ_DTYPE_BF16, &params[1], codec);
        load_model_write_model(0);
        load_model_open_model();
        for (uint32_t i = 0; i < 3; i++) {
            (void)snprintf(names[i][0], 32, "%s.lora_A.weight", moved_names[i]);
            (void)snprintf(names[i][1], 32, "%s.lora_B.weight", moved_names[i]);
            specs[2 * i] = matrix(names[i][0], 2, 40, 41 + 2 * i);
            specs[2 * i + 1] = matrix(names[i][1], i == 0 ? 24 : 10, 2, 42 + 2 * i);
        }
        write_file("l", "x", specs, 6, NULL);
        load_model_ok(open_one(&lora, ""));
        lora_used = lora;
        lora_merged = merged_moved;
        for (int threads = 1; threads < 4; threads++) {
            load_model_ok(load_model_load(&l, devices[threads], 0));
            load_model_expect_all();
            load_model_unload(&l);
        }
        lora_used = NULL;
        lora_merged = NULL;
        oz_lora_close(&lora);
        load_model_close_model();
    }
}

/* ---- what is wrong ---- */

#define Q "transformer_blocks.0.attn.to_q"

static void refused_by_name(void **state)
{
    const struct spec down = matrix(Q ".lora_A.weight", 2, 40, 1);
    const struct spec up = matrix(Q ".lora_B.weight", 24, 2, 2);
    const struct spec words = {
        .name = Q ".lora_A.weight", .rank = 2, .shape = {2, 40}, .seed = 1, .dtype = OZ_DTYPE_I16};
    const struct spec conv = {.name = Q ".lora_down.weight",
                              .rank = 4,
                              .shape = {2, 40, 1, 1},
                              .seed = 1,
                              .dtype = OZ_DTYPE_F16};
    const struct {
        enum oz_status status;
        const char *metadata;
        const char *phrase[3];
        int32_t count;
        struct spec list[4];
    } cases[] = {
#include "lora_cases.inc"
    };
    named_model();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_lora *lora;
        write_file("l", "x", cases[i].list, cases[i].count, cases[i].metadata);
        enum oz_status status = open_one(&lora, "");
        assert_null(lora);
        for (int k = 0; k < 3 && cases[i].phrase[k] != NULL; k++) {
            if (status != cases[i].status || strstr(err.message, cases[i].phrase[k]) == NULL) {
                fail_msg("case %zu: \"%s\" is not in %d \"%s\"", i, cases[i].phrase[k], status,
                         status != OZ_OK ? err.message : "");
            }
        }
    }
    load_model_close_model();
}

static void scales_that_are_none(void **state)
{
    static const struct {
        const char *suffix, *phrase;
        enum oz_status status;
    } cases[] = {
        {":x", "is no scale", OZ_ERR_ARG},          {":", "is no scale", OZ_ERR_ARG},
        {":.5", "is no scale", OZ_ERR_ARG},         {":1,0", "is no scale", OZ_ERR_ARG},
        {":true", "is no scale", OZ_ERR_ARG},       {":0", "the scale 0", OZ_ERR_ARG},
        {":1e300", "the scale 1e+300", OZ_ERR_ARG},
    };
    const struct spec list[] = {matrix(Q ".lora_A.weight", 2, 40, 1),
                                matrix(Q ".lora_B.weight", 24, 2, 2)};
    struct oz_lora *lora;
    named_model();
    write_file("l", "x", list, 2, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(open_one(&lora, cases[i].suffix), cases[i].status);
        assert_null(lora);
        assert_non_null(strstr(err.message, cases[i].phrase));
    }
    const char *none = "";
    assert_int_equal(oz_lora_open(&lora, match, &none, 1, 0, &err), OZ_ERR_ARG);
    const char *absent = "/nowhere/y.safetensors:0.5";
    assert_int_equal(oz_lora_open(&lora, match, &absent, 1, 0, &err), OZ_ERR_IO);
    /* A colon in the file's own name. */
    write_file("l:7", "adapter_model", list, 2, NULL);
    const char *colon = scratch_path("l:7");
    load_model_ok(oz_lora_open(&lora, match, &colon, 1, 0, &err));
    assert_true(lora->files[0].scale == 1);
    oz_lora_close(&lora);
    load_model_close_model();
}

static void expect_load(struct oz_device *dev, enum oz_status status, const char *const *phrases)
{
    struct loaded l;
    assert_int_equal(load_model_load(&l, dev, 0), status);
    for (; *phrases != NULL; phrases++) {
        if (strstr(err.message, *phrases) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *phrases, err.message);
        }
    }
    load_model_unload(&l);
}

static void found_while_loading(void **state)
{
    static const struct {
        float value;
        int64_t place;
        enum oz_dtype dtype;
        const char *phrases[4], *codec;
    } cases[] = {
        {NAN, 47, OZ_DTYPE_BF16, {"x.safetensors", "w.lora_A.weight is NaN at [1, 7]"}, NULL},
        {INFINITY, 3, OZ_DTYPE_BF16, {"w.lora_A.weight is infinite at [0, 3]"}, "mxfp4"},
        {60000, 3, OZ_DTYPE_F16, {"into w gives", ", 3], which F16 cannot hold", "rank 2"}, NULL},
        {0,
         0,
         OZ_DTYPE_F8_E4M3,
         {"x.safetensors", "LoRA for w", "quantized already", "F8_E4M3"},
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_lora *lora;
        struct spec list[] = {matrix("w.lora_A.weight", 2, 40, 1),
                              matrix("w.lora_B.weight", 24, 2, 3), number("w.alpha", 1000)};
        list[0].dtype = list[1].dtype = OZ_DTYPE_F32;
        load_model_new_model();
        load_model_add("w.weight", load_model_matrix(OZ_LAYER_LINEAR, 24, 40), cases[i].dtype,
                       &params[0], cases[i].codec);
        load_model_write_model(0);
        load_model_open_model();
        odd_place = cases[i].dtype == OZ_DTYPE_F8_E4M3 ? -1 : cases[i].place;
        odd_factor = cases[i].value;
        write_file("l", "x", list, 3, NULL);
        odd_place = -1;
        load_model_ok(open_one(&lora, ""));
        lora_used = lora;
        for (int threads = 1; threads < 4; threads++) {
            expect_load(devices[threads], i < 3 ? OZ_ERR_FORMAT : OZ_ERR_UNSUPPORTED,
                        cases[i].phrases);
        }
        lora_used = NULL;
        oz_lora_close(&lora);
        load_model_close_model();
    }
}

/* ---- the report, memory, failures ---- */

static void reported(void **state)
{
    struct oz_buf b;
    struct loaded l;
    load_model_blocks("mxfp4", false);
    load_model_ok(load_model_load(&l, devices[1], 0));
    int64_t bare = l.schedule.worker_bytes;
    int64_t lists = l.schedule.bookkeeping_bytes;
    load_model_unload(&l);
    struct oz_lora *lora = open_adapters();
    lora_used = lora;
    load_model_ok(load_model_load(&l, devices[1], 0));
    oz_buf_init(&b, 1 << 20);
    oz_load_report_json(&l.report, &b);
    const char *row = strstr(oz_buf_text(&b), "\"tensor\": \"blocks.0.q.weight\"");
    assert_non_null(row);
    const char *list = strstr(row, "\"lora\": [{\"file\": ");
    assert_non_null(list);
    assert_true(list < strstr(row + 1, "\"tensor\""));
    assert_non_null(strstr(list, "\"rank\": 3, \"alpha\": 6, \"scale\": 1, \"factor\": 2}, {"));
    assert_non_null(strstr(list, "\"rank\": 8"));
    oz_buf_deinit(&b);
    /* Staging and lists are the schedule's. */
    assert_true(l.schedule.worker_bytes > bare);
    assert_int_equal(l.schedule.bookkeeping_bytes - lists, oz_lora_bytes(lora));
    lora_used = NULL;
    load_model_unload(&l);
    oz_lora_close(&lora);
    load_model_close_model();
}

static void memory_that_is_missing(void **state)
{
    const struct spec list[] = {
        matrix("lora_unet_transformer_blocks_0_attn_to_q.lora_down.weight", 2, 40, 1),
        matrix(Q ".lora_B.weight", 24, 2, 2), number(Q ".alpha", 6)};
    struct oz_lora *lora = NULL;
    int failed = 0;
    named_model();
    write_file("l", "x", list, 3, "{\"lora_alpha\": 8, \"alpha_pattern\": {\"to_q\": 12}}");
    for (uint64_t n = 1; lora == NULL && n < 1000; n++) {
        oz_alloc_fail_at(n, 0);
        enum oz_status status = open_one(&lora, ":0.5");
        oz_alloc_fail_at(0, 0);
        failed += status == OZ_ERR_NOMEM;
        if (status != OZ_OK && status != OZ_ERR_NOMEM) {
            fail_msg("allocation %d: %s", (int)n, err.message);
        }
    }
    assert_non_null(lora);
    assert_true(failed > 10);
    oz_lora_close(&lora);
    load_model_close_model();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_style_means_one_layer),
        cmocka_unit_test(alphas),
        cmocka_unit_test(bytes_are_those_of_the_definition),
        cmocka_unit_test(within_the_bound_of_double),
        cmocka_unit_test(transforms_and_parts),
        cmocka_unit_test(refused_by_name),
        cmocka_unit_test(scales_that_are_none),
        cmocka_unit_test(found_while_loading),
        cmocka_unit_test(reported),
        cmocka_unit_test(memory_that_is_missing),
    };
    return cmocka_run_group_tests(tests, load_model_start, load_model_stop);
}
