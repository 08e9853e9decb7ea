/*
 * detect.c: which toolchain quantized a component. Places that may declare it, in order: the component's
 * config, hf_quant_config.json and quant_model_description*.json beside the weights, the metadata in the
 * files' headers; then what the tensors are called and made of, which outranks all of them: a toolchain
 * is declared and its tensors are not there, or those of another one are, is an error that names both.
 */
#include "quant/dialect/detect.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "quant/method.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define DESCRIPTION_FILE "quant_model_description"

/* ---- tensors ---- */

/* What only some toolchains write: the end of a tensor's name, its dtype, and beside it another one of
 * the module. `methods`: who writes that; the first one is concluded where nothing is declared (NULL
 * there: nothing can be). */
static const struct trace {
    const char *suffix;
    enum oz_dtype dtype; /* COUNT: any */
    const char *beside;  /* of the same module; NULL: nothing */
    enum oz_dtype beside_dtype;
    const char *what;
    const char *concluded;
    const char *methods;
} traces[] = {
    {".comfy_quant", OZ_DTYPE_U8, NULL, OZ_DTYPE_COUNT, "comfy_quant", "comfy",
     "comfy comfy_nvfp4 int8_convrot"},
    {".scale_weight", OZ_DTYPE_COUNT, NULL, OZ_DTYPE_COUNT, "scale_weight", "comfy", "comfy"},
    {"scaled_fp8", OZ_DTYPE_COUNT, NULL, OZ_DTYPE_COUNT, "the mark scaled_fp8", "comfy", "comfy"},
    {".weight.quant_state.bitsandbytes__nf4", OZ_DTYPE_U8, NULL, OZ_DTYPE_COUNT,
     "quant_state.bitsandbytes__nf4", "bitsandbytes", "bitsandbytes"},
    {".weight.quant_state.bitsandbytes__fp4", OZ_DTYPE_U8, NULL, OZ_DTYPE_COUNT,
     "quant_state.bitsandbytes__fp4", "bitsandbytes", "bitsandbytes"},
    {".SCB", OZ_DTYPE_COUNT, NULL, OZ_DTYPE_COUNT, "SCB", "bitsandbytes", "bitsandbytes"},
    {".qweight", OZ_DTYPE_COUNT, "wscales", OZ_DTYPE_COUNT, "qweight and wscales", "svdquant",
     "svdquant"},
    {".qweight", OZ_DTYPE_I32, "qzeros", OZ_DTYPE_COUNT, "qweight and qzeros", NULL,
     "gptq awq inc moe_wna16"},
    {".weight_packed", OZ_DTYPE_COUNT, "weight_scale", OZ_DTYPE_COUNT,
     "weight_packed and weight_scale", OZ_METHOD_INFERRED, "compressed_tensors inc"},
    {"_blocks", OZ_DTYPE_U8, NULL, OZ_DTYPE_COUNT, "_blocks of U8", "gpt_oss_mxfp4",
     "gpt_oss_mxfp4 mxfp4"},
    {".weight_offset", OZ_DTYPE_COUNT, NULL, OZ_DTYPE_COUNT, "weight_offset", NULL, "ascend"},
    {".deq_scale", OZ_DTYPE_COUNT, NULL, OZ_DTYPE_COUNT, "deq_scale", NULL, "ascend"},
    {".weight_quantizer.scale", OZ_DTYPE_COUNT, NULL, OZ_DTYPE_COUNT, "weight_quantizer.scale",
     NULL, "quark"},
    {".weight_quantizer.0.scale", OZ_DTYPE_COUNT, NULL, OZ_DTYPE_COUNT, "weight_quantizer.0.scale",
     NULL, "quark"},
    {".weight_dual_scale", OZ_DTYPE_COUNT, NULL, OZ_DTYPE_COUNT, "weight_dual_scale", NULL,
     "ascend mxfp4_dualscale"},
    {".weight", OZ_DTYPE_U8, "weight_scale_2", OZ_DTYPE_COUNT,
     "weight of U8, weight_scale and weight_scale_2", NULL,
     "modelopt modelopt_fp4 modelopt_mixed comfy comfy_nvfp4 quark"},
    {".weight", OZ_DTYPE_F8_E4M3, "weight_scale_inv", OZ_DTYPE_COUNT,
     "weight of F8_E4M3 and weight_scale_inv", OZ_METHOD_INFERRED, "fp8 deepseek_v4_fp8 inc"},
    {".weight", OZ_DTYPE_F8_E4M3, "weight_scale", OZ_DTYPE_COUNT,
     "weight of F8_E4M3 and weight_scale", OZ_METHOD_INFERRED,
     "fp8 deepseek_v4_fp8 fbgemm_fp8 modelopt modelopt_mxfp8 modelopt_mixed compressed_tensors inc "
     "comfy comfy_nvfp4 quark ascend mxfp8 mxfp4_dualscale mxfp4"},
    {".weight", OZ_DTYPE_F8_E4M3, NULL, OZ_DTYPE_COUNT, "weight of F8_E4M3", OZ_METHOD_INFERRED,
     "fp8 deepseek_v4_fp8 fbgemm_fp8 modelopt modelopt_mxfp8 modelopt_mixed modelopt_fp4 "
     "compressed_tensors inc comfy comfy_nvfp4 quark ascend mxfp8 mxfp4_dualscale mxfp4"},
    {".weight", OZ_DTYPE_I8, "weight_scale", OZ_DTYPE_COUNT, "weight of I8 and weight_scale",
     OZ_METHOD_INFERRED,
     "int8 compressed_tensors comfy int8_convrot quark ascend modelopt modelopt_mixed"},
    {".weight", OZ_DTYPE_U8, "weight_scale", OZ_DTYPE_U8, "weight and weight_scale of U8",
     OZ_METHOD_INFERRED, "modelopt quark ascend mxfp4 gpt_oss_mxfp4"},
};
enum { TRACES = sizeof traces / sizeof *traces };

struct seen {
    int64_t count;
    const char *first; /* a tensor of it */
};

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name);
    size_t k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

static bool is_trace(const struct oz_ckpt *ckpt, const struct oz_tensor_view *t,
                     const struct trace *k)
{
    char name[OZ_CKPT_MAX_NAME_BYTES + 64];
    if (!ends_with(t->name, k->suffix) || (k->dtype != OZ_DTYPE_COUNT && t->dtype != k->dtype)) {
        return false;
    }
    if (k->beside == NULL) {
        return true;
    }
    (void)snprintf(name, sizeof name, "%.*s.%s", (int)(strlen(t->name) - strlen(k->suffix)),
                   t->name, k->beside);
    const struct oz_tensor_view *other = oz_ckpt_find(ckpt, name, NULL);
    return other != NULL && (k->beside_dtype == OZ_DTYPE_COUNT || other->dtype == k->beside_dtype ||
                             other->dtype == OZ_DTYPE_F8_E8M0);
}

/* Each tensor is counted once: by the first that it is a trace of. */
static void look(struct seen seen[TRACES], const struct oz_ckpt *ckpt)
{
    memset(seen, 0, TRACES * sizeof *seen);
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(ckpt, i);
        for (size_t k = 0; k < TRACES; k++) {
            if (is_trace(ckpt, t, &traces[k])) {
                seen[k].first = seen[k].count++ == 0 ? t->name : seen[k].first;
                break;
            }
        }
    }
}

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; *p != '\0';) {
        size_t k = strcspn(p, " ");
        if (k == n && strncmp(p, word, n) == 0) {
            return true;
        }
        p += k;
        p += strspn(p, " ");
    }
    return false;
}

/* ---- declarations ---- */

enum { DESCRIPTION = 2 }; /* among the declarations */

struct declared {
    const struct oz_json *q;
    const char *path;
    const char *method; /* static */
    const char *said;   /* as it is written there */
};

/* ModelOpt's files name their producer where others name a method. */
static const char *method_of(const struct oz_json *q, const char **said)
{
    const char *name = oz_json_string(q, NULL); /* "int8" alone */
    if (name == NULL) {
        name = oz_json_string(oz_json_get(q, "quant_method"), NULL);
    }
    if (name == NULL) {
        name = oz_json_string(oz_json_get(q, "method"), NULL);
    }
    const char *producer = oz_json_string(oz_json_get(oz_json_get(q, "producer"), "name"), NULL);
    if (name == NULL && producer != NULL && strcmp(producer, "modelopt") == 0) {
        name = producer;
    }
    *said = name;
    return name;
}

static enum oz_status declare(struct declared *d, const struct oz_json *q, const char *path,
                              struct oz_error *err)
{
    *d = (struct declared){.q = q, .path = path};
    if (oz_json_type(q) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    if (oz_json_string(q, NULL) == NULL && oz_json_type(q) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: \"quantization_config\" is %s, not an object.",
                       path, oz_json_type_name(q));
    }
    const char *name = method_of(q, &d->said);
    if (name == NULL) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: \"quantization_config\" names no method (\"quant_method\").", path);
    }
    const struct oz_method *m = oz_method_find(name);
    if (m == NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: the checkpoint is quantized by \"%.100s\", which this version does not "
                       "know; take the plain one and quantize it while loading (--quantization).",
                       path, name);
    }
    d->method = m->name;
    return OZ_OK;
}

/* A small JSON file beside the weights, kept in `found`; *out is NULL where there is none. */
static enum oz_status read_file(struct oz_detected *found, int slot, const char *folder,
                                const char *name, const struct oz_json **out, struct oz_error *err)
{
    *out = NULL;
    found->paths[slot] = oz_file_join(folder, name);
    if (found->paths[slot] == NULL) {
        return OZ_FAIL_NOMEM(err, name);
    }
    if (!oz_file_exists(found->paths[slot])) {
        return OZ_OK;
    }
    OZ_TRY(oz_json_parse_file(&found->owned[slot], found->paths[slot], MAX_CONFIG_BYTES, err));
    *out = found->owned[slot];
    return OZ_OK;
}

bool oz_stored_describes(const char *file)
{
    static const char *const names[] = {"hf_quant_config.json", "quantize_config.json",
                                        "quantization_config.json"};
    bool found = strncmp(file, DESCRIPTION_FILE, sizeof DESCRIPTION_FILE - 1) == 0 &&
                 ends_with(file, ".json");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        found = found || strcmp(file, names[i]) == 0;
    }
    return found;
}

/* The name of quant_model_description*.json in a folder, the first in byte order; "": there is none. */
static void find_description(const char *folder, char name[256])
{
    DIR *dir = opendir(folder);
    name[0] = '\0';
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        if (strncmp(e->d_name, DESCRIPTION_FILE, sizeof DESCRIPTION_FILE - 1) == 0 &&
            ends_with(e->d_name, ".json") && strlen(e->d_name) < 256 &&
            (name[0] == '\0' || strcmp(e->d_name, name) < 0)) {
            (void)snprintf(name, 256, "%s", e->d_name);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* What the headers of the files say. */
static enum oz_status declare_metadata(struct declared *d, struct oz_detected *found,
                                       const struct oz_stored_input *in, struct oz_error *err)
{
    const char *model = oz_ckpt_metadata(in->ckpt, "model_class");
    const char *config = oz_ckpt_metadata(in->ckpt, "quantization_config");
    *d = (struct declared){.path = "the files' metadata"};
    if (oz_ckpt_metadata(in->ckpt, "_quantization_metadata") != NULL && config == NULL) {
        d->method = d->said = "comfy";
    } else if (config != NULL) {
        OZ_TRY(oz_json_parse(&found->owned[1], config, strlen(config),
                             "\"quantization_config\" of the files' metadata", err));
        OZ_TRY(declare(d, found->owned[1], "the files' metadata", err));
    } else if (oz_ckpt_metadata(in->ckpt, "tensor_names") != NULL) {
        d->method = d->said = "torchao";
    }
    if (model != NULL && strncmp(model, "Nunchaku", 8) == 0) {
        d->method = d->said = "svdquant";
    }
    return OZ_OK;
}

/* Two places that name a toolchain name the same one. modelopt stands for all of its own. */
static bool agree(const char *a, const char *b)
{
    return strcmp(a, b) == 0 ||
           (strncmp(a, "modelopt", 8) == 0 && strncmp(b, "modelopt", 8) == 0) ||
           (strncmp(a, "comfy", 5) == 0 && strcmp(b, "comfy") == 0) ||
           (strncmp(a, "modelopt", 8) == 0 && strcmp(b, "comfy") == 0) ||
           (strcmp(a, "int8_convrot") == 0 && strcmp(b, "comfy") == 0);
}

static enum oz_status choose(struct oz_detected *found, struct oz_stored *out,
                             const struct oz_stored_input *in, const struct declared *list,
                             size_t count, struct oz_error *err)
{
    const struct declared *first = NULL;
    for (size_t i = 0; i < count; i++) {
        if (list[i].method == NULL) {
            continue;
        }
        oz_stored_note(out, in->arena, "%s says \"%.60s\"", list[i].path, list[i].said);
        if (first != NULL && !agree(first->method, list[i].method)) {
            return OZ_FAIL(
                err, OZ_ERR_FORMAT,
                "%s says that the weights are quantized by %s, and %s by %s. One of them "
                "is not of these weights; take it away.",
                first->path, first->method, list[i].path, list[i].method);
        }
        bool lists = first != NULL && i == DESCRIPTION; /* it says more than the config does */
        first = first != NULL && !lists ? first : &list[i];
    }
    if (first != NULL) {
        found->q = first->q;
        found->path = first->path;
        out->method = first->method;
    }
    return OZ_OK;
}

/* ---- both ---- */

static enum oz_status compare(struct oz_detected *found, struct oz_stored *out,
                              const struct oz_stored_input *in, struct oz_error *err)
{
    struct seen seen[TRACES];
    look(seen, in->ckpt);
    for (size_t i = 0; i < TRACES; i++) {
        if (seen[i].count == 0) {
            continue;
        }
        oz_stored_note(out, in->arena, "%" PRId64 " tensor%s: %s (%.100s)", seen[i].count,
                       seen[i].count == 1 ? "" : "s", traces[i].what, seen[i].first);
        if (out->method == NULL && traces[i].concluded != NULL) {
            out->method = traces[i].concluded;
            found->path = in->path;
        }
        bool inferred = out->method != NULL && strcmp(out->method, OZ_METHOD_INFERRED) == 0;
        if (out->method != NULL && !inferred && !has_word(traces[i].methods, out->method)) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s says that the weights are quantized by %s, but %" PRId64
                           " tensors are otherwise: %.200s (%s) is written by %s.",
                           found->path, out->method, seen[i].count, seen[i].first, traces[i].what,
                           traces[i].methods);
        }
        if (out->method == NULL) {
            return OZ_FAIL(
                err, OZ_ERR_FORMAT,
                "%s: %.200s (%s) is written by one of: %s; nothing says by which, and they "
                "differ in their packing. Add the toolchain's own config (\"quantization_config\" "
                "in config.json) to the weights.",
                in->path, seen[i].first, traces[i].what, traces[i].methods);
        }
    }
    return OZ_OK;
}

enum oz_status oz_detect(struct oz_detected *found, struct oz_stored *out,
                         const struct oz_stored_input *in, struct oz_error *err)
{
    struct declared list[4]; /* config, hf_quant_config.json, description, metadata */
    const struct oz_json *q = oz_json_get(in->config, "quantization_config");
    const struct oz_json *file = NULL;
    char name[256] = "";
    *found = (struct oz_detected){.path = in->path};
    memset(list, 0, sizeof list);
    if (q == NULL) {
        q = oz_json_get(in->config, "compression_config"); /* older files */
    }
    OZ_TRY(declare(&list[0], q, in->path, err));
    if (in->folder != NULL) {
        OZ_TRY(read_file(found, 0, in->folder, "hf_quant_config.json", &file, err));
        if (file != NULL) {
            OZ_TRY(declare(&list[1], file, found->paths[0], err));
        } else {
            find_description(in->folder, name);
        }
    }
    if (name[0] != '\0') {
        oz_free(found->paths[0]);
        found->paths[0] = NULL;
        OZ_TRY(read_file(found, 0, in->folder, name, &file, err));
        list[DESCRIPTION] = (struct declared){file, found->paths[0], "ascend", "msModelSlim"};
    }
    OZ_TRY(declare_metadata(&list[3], found, in, err));
    OZ_TRY(choose(found, out, in, list, 4, err));
    return compare(found, out, in, err);
}

void oz_detected_deinit(struct oz_detected *found)
{
    for (int i = 0; i < 2; i++) {
        oz_json_free(found->owned[i]);
        oz_free(found->paths[i]);
    }
    *found = (struct oz_detected){0};
}
