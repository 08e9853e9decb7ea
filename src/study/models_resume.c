/* models_resume.c: what an earlier run of the same comparison has left, and how it is known to be the
 * same. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/log.h"
#include "pipe/find.h"
#include "study/hash.h"
#include "study/models.h"

#define MAX_DOCUMENT_BYTES ((size_t)512 << 20)

/* ---- fingerprints ---- */

struct stamp {
    const char *root;
    uint64_t hash;
};

static enum oz_status add_stamp(void *ctx, const char *relative, enum oz_entry_kind kind,
                                int64_t bytes, struct oz_error *err)
{
    struct stamp *s = ctx;
    struct stat st;
    if (kind != OZ_ENTRY_FILE) {
        return OZ_OK;
    }
    char *path = oz_file_join(s->root, relative);
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, "the names of a model's files");
    }
    s->hash = oz_hash_integer(oz_hash_text(s->hash, relative), bytes);
    if (stat(path, &st) == 0) {
        s->hash = oz_hash_integer(s->hash, (int64_t)st.st_mtim.tv_sec);
        s->hash = oz_hash_integer(s->hash, (int64_t)st.st_mtim.tv_nsec);
    }
    oz_free(path);
    return OZ_OK;
}

/* Names, sizes and times of a model's files; a model that cannot be found has none, and fails later. */
static uint64_t stamp_model(const char *model, uint64_t hash)
{
    struct oz_error ignored;
    char *path;
    if (oz_model_find(model, &path, &ignored) != OZ_OK) {
        return oz_hash_text(hash, model);
    }
    struct stamp s = {.root = path, .hash = hash};
    if (oz_folder_walk(path, add_stamp, &s, &ignored) != OZ_OK) {
        s.hash = oz_hash_text(s.hash, "unreadable");
    }
    oz_free(path);
    return s.hash;
}

static uint64_t stamp_variant(const struct oz_model_comparison *c, const struct oz_variant *v)
{
    uint64_t hash = stamp_model(v->model, oz_hash_integer(c->fingerprint, (int64_t)v->keep));
    hash = oz_hash_text(hash, v->quantization);
    for (int32_t i = 0; i < v->ignored_count; i++) {
        hash = oz_hash_text(hash, v->ignored_layers[i]);
    }
    struct oz_error ignored;
    char *text;
    size_t bytes; /* a config in a file counts with what it says */
    if (v->quantization != NULL && v->quantization[0] != '{' && oz_file_exists(v->quantization) &&
        oz_file_read(v->quantization, OZ_CONFIG_MAX_BYTES, &text, &bytes, &ignored) == OZ_OK) {
        hash = oz_hash_bytes(hash, text, bytes);
        oz_free(text);
    }
    return hash;
}

void oz_model_comparison_stamp(struct oz_model_comparison *c)
{
    uint64_t hash = oz_hash_text(OZ_HASH_START, c->args->version);
    hash = oz_hash_text(hash, c->tier);
    hash = oz_hash_integer(hash, c->f32_math);
    hash = oz_hash_integer(hash, (int64_t)c->args->how.modulation);
    hash = oz_hash_integer(hash, c->args->warmup_runs);
    hash = oz_hash_integer(hash, c->args->measure_runs);
    hash = stamp_model(c->args->reference.model, hash);
    for (int32_t i = 0; i < c->args->task_count; i++) {
        const struct oz_task *t = &c->tasks[i];
        hash = oz_hash_text(oz_hash_text(hash, t->prompt), t->negative_prompt);
        hash = oz_hash_integer(oz_hash_integer(hash, t->width), t->height);
        hash = oz_hash_integer(oz_hash_integer(hash, t->steps), (int64_t)t->seed);
        hash = oz_hash_bytes(hash, &t->scale, sizeof t->scale);
    }
    c->fingerprint = hash;
    c->reference.fingerprint = stamp_variant(c, &c->reference.asked);
    for (int32_t i = 0; i < c->args->count; i++) {
        c->candidates[i].fingerprint = stamp_variant(c, &c->candidates[i].asked);
    }
}

/* ---- an earlier document ---- */

static void read_distance(const struct oz_json *sums, const char *key, struct oz_distance *d)
{
    const struct oz_json *v = oz_json_get(sums, key);
    *d = (struct oz_distance){.elements = (int64_t)oz_json_number(oz_json_at(v, 0), 0),
                              .sum_abs = oz_json_number(oz_json_at(v, 1), (double)NAN),
                              .sum_squares = oz_json_number(oz_json_at(v, 2), (double)NAN),
                              .dot = oz_json_number(oz_json_at(v, 3), (double)NAN),
                              .reference2 = oz_json_number(oz_json_at(v, 4), (double)NAN),
                              .candidate2 = oz_json_number(oz_json_at(v, 5), (double)NAN),
                              .max_abs = oz_json_number(oz_json_at(v, 6), (double)NAN),
                              .differs = oz_json_number(oz_json_at(v, 7), 1) != 0};
}

static uint64_t read_hash(const struct oz_json *v, const char *key)
{
    uint64_t hash = 0;
    const char *text = oz_json_string(oz_json_get(v, key), "");
    return sscanf(text, "%16" SCNx64, &hash) == 1 ? hash : 0;
}

static double read_number(const struct oz_json *v, const char *key)
{
    return oz_json_number(oz_json_get(v, key), (double)NAN);
}

static void read_picture(const struct oz_model_comparison *c, struct oz_model_result *r,
                         const struct oz_json *v, int32_t task)
{
    struct oz_model_picture *p = &r->pictures[task];
    const struct oz_json *steps = oz_json_get(v, "step_relative_l2");
    const struct oz_json *metrics = oz_json_get(v, "metrics");
    const struct oz_json *sums = oz_json_get(v, "sums");
    *p = (struct oz_model_picture){.done = true,
                                   .step_relative_l2 = p->step_relative_l2,
                                   .trajectory_hash = read_hash(v, "trajectory_hash"),
                                   .picture_hash = read_hash(v, "picture_hash"),
                                   .text_s = read_number(v, "text_s"),
                                   .denoise_s = read_number(v, "denoise_s"),
                                   .decode_s = read_number(v, "decode_s")};
    r->done++;
    r->resumed = true;
    if (r == &c->reference) {
        return;
    }
    p->ssim = read_number(metrics, "ssim");
    p->ssim_uniform = read_number(metrics, "ssim_uniform");
    p->ssim_float = read_number(oz_json_get(v, "float_metrics"), "ssim");
    read_distance(sums, "bytes", &p->bytes);
    read_distance(sums, "floats", &p->floats);
    read_distance(sums, "first_prediction", &p->prediction);
    read_distance(sums, "early_latents", &p->early);
    read_distance(sums, "latents", &p->latents);
    read_distance(sums, "trajectory", &p->trajectory);
    for (int32_t k = 0; k < c->shape.steps; k++) {
        p->step_relative_l2[k] = oz_json_number(oz_json_at(steps, (size_t)k), (double)NAN);
    }
}

static enum oz_status read_names(struct oz_dispatch_list *list, const struct oz_json *v,
                                 struct oz_error *err)
{
    list->count = (int32_t)oz_json_integer(oz_json_get(v, "count"), 0);
    for (int k = 0; k < OZ_DISPATCH_NAMES && k < list->count; k++) {
        list->names[k] =
            oz_strdup(oz_json_string(oz_json_at(oz_json_get(v, "names"), (size_t)k), "?"));
        if (list->names[k] == NULL) {
            return OZ_FAIL_NOMEM(err, "the dispatch check");
        }
    }
    return OZ_OK;
}

static enum oz_status read_dispatch(struct oz_model_result *r, const struct oz_json *v,
                                    struct oz_error *err)
{
    struct oz_dispatch *d = &r->dispatch;
    if (v == NULL) {
        return OZ_OK;
    }
    d->quantized_in_both = (int32_t)oz_json_integer(oz_json_get(v, "quantized_in_both"), 0);
    d->unquantized_in_both = (int32_t)oz_json_integer(oz_json_get(v, "unquantized_in_both"), 0);
    for (int i = 0; i < OZ_DISPATCH_FAULTS; i++) {
        const char *key = oz_dispatch_fault_name((enum oz_dispatch_fault)i);
        OZ_TRY(read_names(&d->faults[i], oz_json_get(v, key), err));
    }
    OZ_TRY(read_names(&d->unused, oz_json_get(v, "not_needed"), err));
    r->dispatched = true;
    return OZ_OK;
}

static int64_t read_bytes(const struct oz_json *v, const char *key)
{
    return oz_json_integer(oz_json_get(v, key), 0);
}

static enum oz_status read_result(const struct oz_model_comparison *c, struct oz_model_result *r,
                                  const struct oz_json *v, const struct oz_json *generation,
                                  struct oz_error *err)
{
    const struct oz_json *images = oz_json_get(v, "images");
    const struct oz_json *bytes = oz_json_get(generation, "bytes");
    const char *summary = oz_json_string(oz_json_get(v, "summary"), NULL);
    if (read_hash(v, "fingerprint") != r->fingerprint || oz_json_count(images) == 0) {
        return OZ_OK;
    }
    for (size_t i = 0; i < oz_json_count(images); i++) {
        const struct oz_json *image = oz_json_at(images, i);
        int64_t index = oz_json_integer(oz_json_get(image, "index"), -1);
        if (index >= 0 && index < c->args->task_count && !r->pictures[index].done) {
            read_picture(c, r, image, (int32_t)index);
        }
    }
    r->opened = true;
    r->load_s = read_number(oz_json_get(generation, "stage_time_s"), "load");
    r->bytes = (struct oz_variant_bytes){
        .disk = read_bytes(bytes, "disk"),
        .resident = read_bytes(bytes, "resident"),
        .transformer = read_bytes(bytes, "transformer_resident"),
        .transformer_modulation = read_bytes(bytes, "transformer_modulation"),
        .run = read_bytes(bytes, "run"),
        .peak = read_bytes(bytes, "peak_resident_set"),
        .peak_of_process = oz_json_bool(oz_json_get(bytes, "peak_is_of_process"), false)};
    if (summary != NULL) {
        r->summary = oz_strdup(summary);
        if (r->summary == NULL) {
            return OZ_FAIL_NOMEM(err, "a variant's summary");
        }
    }
    oz_role_errors_read(&r->roles, oz_json_get(v, "role_errors"));
    return read_dispatch(r, oz_json_get(v, "dispatch"), err);
}

static enum oz_status read_document(struct oz_model_comparison *c, const struct oz_json *root,
                                    struct oz_error *err)
{
    const struct oz_json *list = oz_json_get(root, "candidates");
    OZ_TRY(read_result(c, &c->reference, oz_json_get(root, "reference"),
                       oz_json_get(root, "reference_generation"), err));
    for (int32_t i = 0; i < c->args->count; i++) {
        for (size_t k = 0; k < oz_json_count(list); k++) {
            const struct oz_json *v = oz_json_at(list, k);
            if (c->candidates[i].done == 0) {
                OZ_TRY(read_result(c, &c->candidates[i], v, oz_json_get(v, "candidate_generation"),
                                   err));
            }
        }
    }
    return OZ_OK;
}

enum oz_status oz_model_comparison_resume(struct oz_model_comparison *c, struct oz_error *err)
{
    const char *path = c->args->output_json;
    struct oz_json *root;
    struct oz_error why;
    int32_t taken = 0;
    if (oz_json_parse_file(&root, path, MAX_DOCUMENT_BYTES, &why) != OZ_OK) {
        oz_log(OZ_LOG_WARN, "compare", "%s is no earlier result and will be replaced: %s", path,
               why.message);
        return OZ_OK;
    }
    const char *document = oz_json_string(oz_json_get(root, "document"), "");
    bool ours = strcmp(document, "comparison of models") == 0;
    enum oz_status status = OZ_OK;
    if (ours && oz_json_bool(oz_json_get(root, "complete"), true)) {
        /* a whole result is made anew: who wants it again measures it again */
    } else if (!ours || read_hash(root, "fingerprint") != c->fingerprint) {
        oz_log(OZ_LOG_WARN, "compare",
               "%s holds the result of another comparison, or of a changed model; it will be "
               "replaced.",
               path);
    } else {
        status = read_document(c, root, err);
        for (int32_t i = 0; i < c->args->count; i++) {
            taken += c->candidates[i].done;
        }
        oz_log(OZ_LOG_WARN, "compare",
               "%s: going on with an interrupted run: %d of %d pictures of it are kept.", path,
               taken, c->args->count * c->args->task_count);
    }
    oz_json_free(root);
    return status;
}
