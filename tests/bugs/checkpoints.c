/* Entries about what other toolchains have quantized: scales, names, hints, configs in the wrong place. The
 * good files are tests/golden/dialects, which stay for ever (B09). */
#include "bugs/bugs.h"
#include "test.h"

#include "base/error.h"
#include "scratch.h"
#include "unit/dialect_file.h"
#include "unit/dialect_model.h"

#define GOLDEN OZ_TEST_DIR "/golden/dialects"

static struct oz_error err;
static const char *fixture;
static char concluded[64]; /* the method of what was opened last */
static char noted[4096];   /* and what was said of it */
static uint32_t transform; /* of the matrices, as another convention has them */

/* Opens and loads scratch "model", against what the fixture's layers are worth. */
static enum oz_status try_load(const char **differs)
{
    struct dialect_model m;
    char expected[512];
    size_t n = 0;
    (void)snprintf(expected, sizeof expected, GOLDEN "/%s/expected.safetensors", fixture);
    enum oz_status status = dialect_expect(&m, expected, &err);
    for (int32_t i = 0; i < m.table.count; i++) {
        struct oz_layer *row = &m.table.rows[i];
        row->transform = oz_stored_is_matrix(row) ? transform : row->transform;
    }
    status = status == OZ_OK ? dialect_open_weights(&m, scratch_path("model"), &err) : status;
    status = status == OZ_OK ? dialect_load(&m, &err) : status;
    *differs = status == OZ_OK ? dialect_compare(&m, NULL) : "nothing was loaded";
    (void)snprintf(concluded, sizeof concluded, "%s",
                   m.stored.method != NULL ? m.stored.method : "");
    noted[0] = '\0';
    for (int32_t i = 0; i < m.stored.note_count && n < sizeof noted; i++) {
        n += (size_t)snprintf(noted + n, sizeof noted - n, "%s\n", m.stored.notes[i]);
    }
    dialect_close(&m);
    return status;
}

static void loads(const char *what)
{
    const char *differs;
    if (bugs_works(try_load(&differs), &err, what)) {
        bugs_right(differs == NULL, what);
    }
}

static void is_refused(enum oz_status want, const char *phrase, const char *what)
{
    const char *differs;
    enum oz_status got = try_load(&differs);
    bugs_refused(got, &err, want, phrase, what);
}

static void take(const char *name)
{
    char path[512];
    fixture = name;
    (void)snprintf(path, sizeof path, GOLDEN "/%s", name);
    scratch_remove("model");
    scratch_copy("model", path);
    scratch_remove("model/expected.safetensors");
}

static void read_model(struct dialect_file *f)
{
    char path[512];
    (void)snprintf(path, sizeof path, GOLDEN "/%s/model.safetensors", fixture);
    dialect_file_read(f, path);
}

static void write_model(struct dialect_file *f)
{
    dialect_file_write(f, 0, f->count, "model/model.safetensors");
}

static void rename_piece(struct dialect_file *f, const char *old, const char *new_name)
{
    struct dialect_piece *p = dialect_file_find(f, old);
    assert_non_null(p);
    (void)snprintf(p->name, sizeof p->name, "%s", new_name);
}

void b01_both_spellings_of_a_scale(void)
{
    struct dialect_file f;
    take("comfy_fp8_old");
    loads("scale_weight");
    read_model(&f);
    rename_piece(&f, "attn.to_q.scale_weight", "attn.to_q.weight_scale");
    rename_piece(&f, "attn.to_q.scale_input", "attn.to_q.input_scale");
    write_model(&f);
    loads("weight_scale beside scale_weight");
    rename_piece(&f, "mlp.up.scale_input", "mlp.up.scale_of_something");
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "mlp.up.scale_of_something", "a scale of no known name");
    dialect_file_free(&f);
    take("hf_fp8_static");
    loads("the activation's hint is taken");
    bugs_right(strstr(noted, "2 static scales of activations are in the file") != NULL,
               "and told of");
}

void b02_scales_are_not_dropped(void)
{
    struct dialect_file f;
    take("modelopt_fp8");
    loads("a per-tensor scale");
    read_model(&f);
    dialect_file_find(&f, "mlp.up.weight_scale")->gone = true;
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "mlp.up.weight_scale is missing", "a scale is missing");
    dialect_file_free(&f);
}

void b03_hints_in_two_places(void)
{
    struct dialect_file f;
    take("comfy_fp8"); /* one hint as a tensor, one in the header under the prefix net. */
    loads("hints in the header and in tensors");
    bugs_right(strcmp(concluded, "comfy") == 0, "both are ComfyUI's");
    read_model(&f);
    char *good = f.metadata;
    f.metadata = strdup("{\"_quantization_metadata\":\"{\\\"layers\\\":{\\\"net.mlp.down\\\":"
                        "{\\\"format\\\":\\\"float8_e4m3fn\\\"}}}\"}");
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "_quantization_metadata", "a hint for no layer");
    free(f.metadata);
    f.metadata = strdup("{\"_quantization_metadata\":\"{\\\"layers\\\":{\\\"attn.to_q\\\":"
                        "\\\"nvfp4\\\",\\\"mlp.up\\\":\\\"float8_e4m3fn\\\"}}\"}");
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "attn.to_q is nvfp4 by", "two hints that differ");
    free(f.metadata);
    f.metadata = good;
    dialect_file_free(&f);
}

void b04_scales_without_elements(void)
{
    struct dialect_file f;
    take("comfy_fp8_old");
    loads("a mark without elements");
    bugs_right(strstr(noted, "the mark scaled_fp8") != NULL, "it is the mark");
    read_model(&f);
    struct dialect_piece *p = dialect_file_find(&f, "attn.to_q.scale_weight");
    p->rank = 1;
    p->shape[0] = 0;
    p->bytes = 0;
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "attn.to_q", "a scale without elements");
    p->gone = true;
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "attn.to_q.scale_weight", "a layer without its scale");
    dialect_file_free(&f);
}

void b05_order_of_nibbles(void)
{
    struct dialect_file f;
    take("comfy_nvfp4");
    loads("the first code high, scales in tiles");
    read_model(&f);
    dialect_file_find(&f, "attn.to_q.input_scale")->gone = true;
    write_model(&f);
    loads("no input_scale: never 1");
    dialect_file_free(&f);
    take("modelopt_nvfp4");
    loads("the first code low, scales in rows");
    read_model(&f);
    scratch_remove("model/config.json");
    is_refused(OZ_ERR_FORMAT, "nothing says by which", "nobody says whose NVFP4 it is");
    scratch_text("model/config.json", "{\"quantization_config\":{\"quant_method\":\"comfy\"}}");
    is_refused(OZ_ERR_FORMAT, "attn.to_q", "ModelOpt's under ComfyUI's name");
    dialect_file_free(&f);
}

/* q, k and v in one tensor, one behind the other, is how nunchaku's kernels have them, and said to be; who
 * does not say how they lie is not read. */
/* What is resident is what the file holds, within a quarter. */
void b06_fp8_is_not_widened(void)
{
    static const char *const fixtures[] = {"modelopt_fp8_blocks", "hf_fp8_block", "comfy_fp8"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        struct dialect_model m;
        char expected[512];
        int64_t stored = 0;
        take(fixtures[i]);
        (void)snprintf(expected, sizeof expected, GOLDEN "/%s/expected.safetensors", fixture);
        enum oz_status status = dialect_open(&m, scratch_path("model"), expected, &err);
        status = status == OZ_OK ? dialect_load(&m, &err) : status;
        if (bugs_works(status, &err, fixtures[i])) {
            for (int64_t k = 0; k < oz_ckpt_count(m.ckpt); k++) {
                stored += oz_ckpt_tensor(m.ckpt, k)->bytes;
            }
            bugs_right(m.stored.count > 0 && (int64_t)m.model.used_bytes < stored + stored / 4,
                       "FP8 stays FP8 in memory");
        }
        dialect_close(&m);
    }
}

void b07_layouts_of_fused_layers(void)
{
    struct dialect_file f;
    take("nunchaku_fused_int4");
    loads("a fused layer whose layout is declared");
    read_model(&f);
    char *good = f.metadata;
    f.metadata = NULL;
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "has neither", "the same without its declaration");
    f.metadata = good;
    struct dialect_piece *again =
        dialect_file_find(&f, "transformer_blocks.0.img_mlp.net.2.qweight");
    (void)snprintf(again->name, sizeof again->name, "transformer_blocks.0.attn.to_k.qweight");
    write_model(&f);
    is_refused(OZ_ERR_FORMAT,
               "are one parameter under the names of two conventions, "
               "transformer_blocks.0.attn.to_k.qweight",
               "a layer fused and alone");
    dialect_file_free(&f);
    take("modelopt_fp8");
    read_model(&f);
    rename_piece(&f, "attn.to_q.weight", "attn.to_qkv.weight");
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "attn.to_q", "a fused layer of no declared layout");
    dialect_file_free(&f);
}

static void exchange_halves(struct dialect_piece *p)
{
    size_t half = p->bytes / 2;
    if (p->rank > 0 && p->shape[0] % 2 == 0 && strstr(p->name, ".bias") == NULL) {
        for (size_t i = 0; i < half; i++) {
            uint8_t byte = p->data[i];
            p->data[i] = p->data[half + i];
            p->data[half + i] = byte;
        }
    }
}

/* Halves that another convention has the other way round: codes, scales of rows and groups, plain rows. */
void b08_halves_the_other_way_round(void)
{
    static const char *const names[] = {"ct_int8", "ct_mxfp4", "modelopt_fp8_channel", "bnb_int8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct dialect_file f;
        const char *differs;
        take(names[i]);
        transform = 0;
        loads("as the model has them");
        transform = OZ_TRANSFORM_SWAP_HALVES;
        bugs_right(try_load(&differs) == OZ_OK && differs != NULL, "the other way round, not so");
        read_model(&f);
        for (int k = 0; k < f.count; k++) {
            exchange_halves(&f.pieces[k]);
        }
        write_model(&f);
        loads("the other way round");
        transform = 0;
        dialect_file_free(&f);
    }
    take("hf_fp8_block");
    transform = OZ_TRANSFORM_SWAP_HALVES;
    is_refused(OZ_ERR_UNSUPPORTED, "rows would have to be moved", "a scale that both halves share");
    transform = 0;
}

void b09_the_golden_set(void)
{
    static const char *const names[] = {"comfy_fp8_old", "comfy_fp8",   "comfy_fp8_cast",
                                        "comfy_mxfp8",   "comfy_nvfp4", "comfy_int8",
                                        "comfy_convrot"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        take(names[i]);
        loads(names[i]);
    }
}

void b10_one_sentence_for_what_is_not_read(void)
{
    struct dialect_file f;
    take("comfy_int8");
    read_model(&f);
    struct dialect_piece *p = dialect_file_find(&f, "attn.to_q.comfy_quant");
    static const char text[] = "{\"format\": \"convrot_w4a4\"}";
    free(p->data);
    p->data = (uint8_t *)strdup(text);
    p->bytes = sizeof text - 1;
    p->shape[0] = (int64_t)p->bytes;
    write_model(&f);
    is_refused(OZ_ERR_UNSUPPORTED, "format convrot_w4a4; this version reads float8_e4m3fn",
               "a format that is not read");
    dialect_file_free(&f);
}

void b22_config_in_four_places(void)
{
    static const char in_config[] =
        "{\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}}";
    struct dialect_file f;
    take("modelopt_fp8");
    loads("hf_quant_config.json");
    bugs_right(strstr(noted, "hf_quant_config.json says \"modelopt\"") != NULL, "it is named");
    scratch_remove("model/hf_quant_config.json");
    scratch_text("model/config.json", in_config);
    loads("config.json");
    bugs_right(strstr(noted, "config.json says \"modelopt\"") != NULL, "it is named");
    scratch_remove("model/config.json");
    loads("nowhere: the tensors say it");
    bugs_right(strcmp(concluded, "fp8") == 0 && strstr(noted, "weight of F8_E4M3") != NULL,
               "they are named");
    read_model(&f);
    f.metadata = strdup("{\"quantization_config\":\"{\\\"quant_method\\\":\\\"modelopt\\\","
                        "\\\"quant_algo\\\":\\\"FP8\\\"}\"}");
    write_model(&f);
    loads("the header's metadata");
    bugs_right(strcmp(concluded, "modelopt") == 0, "ModelOpt");
    scratch_text("model/hf_quant_config.json",
                 "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{}}");
    is_refused(OZ_ERR_FORMAT, "by compressed_tensors, and", "two places that differ");
    dialect_file_free(&f);
}

void b23_tensors_outrank_configs(void)
{
    struct dialect_file f;
    take("modelopt_fp8");
    scratch_remove("model/hf_quant_config.json");
    scratch_text("model/config.json", "{\"quantization_config\":{\"quant_method\":\"gptq\"}}");
    is_refused(OZ_ERR_FORMAT, "quantized by gptq, but", "F8 weights under gptq");
    scratch_remove("model/config.json");
    loads("F8 weights and no config");
    take("comfy_fp8_cast");
    read_model(&f);
    for (int i = 0; i < f.count; i++) { /* plain weights, and a config that says fp8 */
        f.pieces[i].gone = strcmp(f.pieces[i].name, "proj_out.weight") != 0;
    }
    write_model(&f);
    scratch_text("model/config.json", "{\"quantization_config\":{\"quant_method\":\"fp8\"}}");
    is_refused(OZ_ERR_FORMAT, "no layer of the file is", "plain weights under fp8");
    dialect_file_free(&f);
}

void b33_bitsandbytes_without_a_config(void)
{
    take("bnb_fp4"); /* it has no config */
    loads("fp4, no config");
    take("bnb_nf4_nested");
    loads("nested statistics");
    scratch_remove("model/config.json");
    loads("nested statistics, no config");
    bugs_right(strcmp(concluded, "bitsandbytes") == 0, "bitsandbytes");
    take("bnb_int8");
    scratch_remove("model/config.json");
    loads("8 bits, no config");
}

void b34_kinds_of_svdquant(void)
{
    struct dialect_file f;
    take("nunchaku_int4");
    loads("int4");
    take("nunchaku_fp4");
    loads("fp4");
    bugs_right(strstr(noted, "1 layers are expanded to bf16") != NULL,
               "what becomes of it is said");
    read_model(&f);
    dialect_file_find(&f, "attn.to_q.wcscales")->gone = true;
    write_model(&f);
    is_refused(OZ_ERR_FORMAT, "attn.to_q.wcscales", "fp4 without its scales of rows");
    dialect_file_free(&f);
}

void b35_msmodelslim_descriptions(void)
{
    take("modelslim");
    loads("W8A8, W8A8_DYNAMIC, FLOAT and others in one description");
    scratch_edit("model/quant_model_description.json", "\"a.weight\": \"W8A8_DYNAMIC\"",
                 "\"a.weight\": \"FLOAT\"");
    is_refused(OZ_ERR_FORMAT, "says that a.weight is FLOAT", "FLOAT over a quantized layer");
    take("modelslim");
    scratch_edit("model/quant_model_description.json", "\"proj_out.weight\": \"FLOAT\"",
                 "\"proj_out.weight\": \"W8A8\"");
    is_refused(OZ_ERR_FORMAT, "it is stored plain", "a label over a plain layer");
    take("modelslim");
    scratch_edit("model/quant_model_description.json", "\"W8A8_DYNAMIC\"", "\"W8A8SC\"");
    is_refused(OZ_ERR_UNSUPPORTED, "W8A8SC; of msModelSlim's labels", "a label that is not read");
}

void b36_scalars_of_rank_0_and_1(void)
{
    struct dialect_file f;
    take("modelopt_nvfp4");
    read_model(&f);
    struct dialect_piece *p = dialect_file_find(&f, "attn.to_q.weight_scale_2");
    p->rank = 1 - p->rank;
    p->shape[0] = 1;
    write_model(&f);
    loads("weight_scale_2 of the other rank");
    dialect_file_free(&f);
}
