/* One component: its quantized weights by a load onto the files (load/sink.h), its other tensors byte
 * for byte, its config with what compressed-tensors wants to know. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "ckpt/writer.h"
#include "load/load.h"
#include "load/sink.h"
#include "pipe/write.h"

#define COPY_BYTES (INT64_C(4) << 20)
#define MAX_CONFIG_BYTES ((size_t)16 << 20)

/* A component while it is written. */
struct job {
    struct oz_component *c;
    struct oz_write_progress *progress;
    struct oz_ckpt_spec *specs;           /* [spec_count] */
    const struct oz_tensor_view **copies; /* [spec_count]: what is copied there; NULL: encoded */
    char **names;                         /* [spec_count]: of specs that are encoded */
    int32_t spec_count;
    /* Of the rows that are encoded: a table of their own, each a parameter as the file has it. */
    struct oz_layer *rows; /* [row_count] */
    struct oz_param *params;
    struct oz_choice *choices;
    struct oz_sink_weight *weights;
    int64_t *row_tensor;
    int32_t row_count;
    struct oz_ckpt_writer *writer;
    uint8_t *buffer;
};

enum oz_status oz_write_count(void *ctx, int64_t bytes, struct oz_error *err)
{
    struct oz_write_progress *p = ctx;
    p->done += bytes;
    if (p->options->progress == NULL) {
        return OZ_OK;
    }
    struct oz_progress progress = {.struct_size = sizeof progress,
                                   .stage = OZ_STAGE_WRITE,
                                   .picture = -1,
                                   .done = p->done,
                                   .total = p->total};
    return p->options->progress(p->options->progress_ctx, &progress) == 0
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_CANCELLED, "Writing was interrupted.");
}

static bool is_encoded(const struct oz_component *c, int32_t row)
{
    const struct oz_choice *choice = &c->assignment.choices[row];
    return choice->scheme.codec != NULL && choice->source != OZ_SOURCE_CHECKPOINT;
}

bool oz_write_is_quantized(const struct oz_component *c)
{
    return c->assignment.quantized > 0;
}

enum oz_status oz_write_check_component(const struct oz_component *c, struct oz_error *err)
{
    struct oz_dialect_tensor tensors[OZ_DIALECT_TENSORS];
    int32_t count;
    if (c->stored.method != NULL && oz_write_is_quantized(c)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "The %s in %s is quantized already (%s); what is plain in it cannot be "
                       "added to that.",
                       c->name, c->folder, c->stored.method);
    }
    for (int32_t i = 0; i < c->table.count; i++) {
        const struct oz_layer *row = &c->table.rows[i];
        if (!is_encoded(c, i)) {
            continue;
        }
        OZ_TRY(oz_ct_layout(tensors, &count, &c->assignment.choices[i].scheme, row, err));
        int64_t tensor = c->match->row_tensor[i];
        if (tensor >= 0 && strcmp(oz_ckpt_tensor(c->ckpt, tensor)->name, row->name) != 0) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s shares the tensor %s, which stays as it is: no format holds it "
                           "quantized besides. Add %s to ignored_layers.",
                           row->module, oz_ckpt_tensor(c->ckpt, tensor)->name, row->module);
        }
    }
    return OZ_OK;
}

/* ---- what is written ---- */

static void add_spec(struct job *j, const struct oz_ckpt_spec *spec,
                     const struct oz_tensor_view *copy)
{
    j->copies[j->spec_count] = copy;
    j->specs[j->spec_count++] = *spec;
}

static enum oz_status add_planes(struct job *j, int32_t row, int64_t tensor, struct oz_error *err)
{
    struct oz_dialect_tensor tensors[OZ_DIALECT_TENSORS];
    int32_t count;
    const struct oz_layer *layer = &j->c->table.rows[row];
    struct oz_sink_weight *w = &j->weights[j->row_count];
    OZ_TRY(oz_ct_layout(tensors, &count, &j->c->assignment.choices[row].scheme, layer, err));
    w->param = &j->params[j->row_count];
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        w->index[i] = -1;
    }
    for (int32_t i = 0; i < count; i++) {
        struct oz_ckpt_spec spec = {.dtype = tensors[i].dtype, .rank = tensors[i].rank};
        struct oz_buf name;
        memcpy(spec.shape, tensors[i].shape, sizeof tensors[i].shape);
        oz_buf_init(&name, 2 * (size_t)OZ_CKPT_MAX_NAME_BYTES);
        oz_buf_printf(&name, "%s.%s", layer->module, tensors[i].suffix);
        spec.name = j->names[j->spec_count] = oz_buf_take(&name);
        if (spec.name == NULL) {
            return OZ_FAIL_NOMEM(err, layer->name);
        }
        w->index[tensors[i].plane] = j->spec_count;
        w->moves[tensors[i].plane] = tensors[i].move;
        add_spec(j, &spec, NULL);
    }
    j->rows[j->row_count] = *layer;
    j->rows[j->row_count].bind = w->param;
    w->param->name = layer->name;
    w->param->rank = layer->rank;
    memcpy(w->param->shape, layer->shape, sizeof layer->shape);
    j->choices[j->row_count] = j->c->assignment.choices[row];
    j->row_tensor[j->row_count++] = tensor;
    return OZ_OK;
}

static enum oz_status list_tensors(struct job *j, struct oz_error *err)
{
    const struct oz_match *m = j->c->match;
    for (int64_t i = 0; i < oz_ckpt_count(m->ckpt); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(m->ckpt, i);
        int32_t row = m->tensor_row[i];
        if (row >= 0 && is_encoded(j->c, row)) {
            OZ_TRY(add_planes(j, row, i, err));
            continue;
        }
        struct oz_ckpt_spec spec = {.name = t->name, .dtype = t->dtype, .rank = t->rank};
        memcpy(spec.shape, t->shape, sizeof spec.shape);
        add_spec(j, &spec, t);
    }
    return OZ_OK;
}

static enum oz_status allocate(struct job *j, struct oz_error *err)
{
    size_t rows = (size_t)j->c->assignment.quantized;
    size_t specs = (size_t)oz_ckpt_count(j->c->ckpt) + rows * (OZ_DIALECT_TENSORS - 1);
    j->specs = oz_alloc_zero(specs, sizeof *j->specs);
    j->copies = oz_alloc_zero(specs, sizeof *j->copies);
    j->names = oz_alloc_zero(specs, sizeof *j->names);
    j->rows = oz_alloc_zero(rows, sizeof *j->rows);
    j->params = oz_alloc_zero(rows, sizeof *j->params);
    j->choices = oz_alloc_zero(rows, sizeof *j->choices);
    j->weights = oz_alloc_zero(rows, sizeof *j->weights);
    j->row_tensor = oz_alloc_zero(rows, sizeof *j->row_tensor);
    j->buffer = oz_alloc((size_t)COPY_BYTES);
    bool memory = j->specs != NULL && j->copies != NULL && j->names != NULL && j->rows != NULL &&
                  j->params != NULL && j->choices != NULL && j->weights != NULL &&
                  j->row_tensor != NULL && j->buffer != NULL;
    return memory ? OZ_OK : OZ_FAIL_NOMEM(err, j->c->name);
}

static void job_deinit(struct job *j)
{
    oz_ckpt_writer_destroy(&j->writer);
    for (int32_t i = 0; i < j->spec_count; i++) {
        oz_free(j->names[i]);
    }
    oz_free(j->specs);
    oz_free((void *)j->copies);
    oz_free((void *)j->names);
    oz_free(j->rows);
    oz_free(j->params);
    oz_free(j->choices);
    oz_free(j->weights);
    oz_free(j->row_tensor);
    oz_free(j->buffer);
}

/* ---- tensors ---- */

/* The loader's report as progress of the whole. */
static int load_progress(void *ctx, const struct oz_progress *now)
{
    struct oz_write_progress *p = ctx;
    return oz_write_count(p, now->done - p->done, NULL) == OZ_OK ? 0 : 1;
}

static enum oz_status encode(struct job *j, struct oz_error *err)
{
    struct oz_sink sink;
    struct oz_arena memory;
    struct oz_arena place;
    int64_t done = j->progress->done;
    const struct oz_layer_table table = {
        .rows = j->rows, .count = j->row_count, .component = j->c->name};
    const struct oz_match match = {
        .ckpt = j->c->ckpt, .table = &table, .row_tensor = j->row_tensor};
    const struct oz_assignment assignment = {
        .table = &table, .choices = j->choices, .quantized = j->row_count};
    struct oz_load_args args = {.match = &match,
                                .dev = &sink.dev,
                                .model = &memory,
                                .assignment = &assignment,
                                .total_bytes = j->progress->total};
    oz_sink_init(&sink, j->progress->options->dev, j->writer, j->weights, j->row_count);
    oz_arena_init_measure(&memory, "checkpoint");
    OZ_TRY(oz_load_component(&args, err));
    oz_arena_init_view(&place, "checkpoint", oz_sink_base(), memory.used_bytes, false);
    args.model = &place;
    args.progress = load_progress;
    args.progress_ctx = j->progress;
    args.done_bytes = &done;
    return oz_load_component(&args, err);
}

static enum oz_status copy_tensor(struct job *j, int32_t index, struct oz_error *err)
{
    const struct oz_tensor_view *t = j->copies[index];
    for (int64_t at = 0; at < t->bytes; at += COPY_BYTES) {
        int64_t bytes = t->bytes - at < COPY_BYTES ? t->bytes - at : COPY_BYTES;
        OZ_TRY(oz_ckpt_read(j->c->ckpt, t, at, bytes, j->buffer, err));
        OZ_TRY(oz_ckpt_writer_put_at(j->writer, index, at, j->buffer, (size_t)bytes, err));
        OZ_TRY(oz_write_count(j->progress, bytes, err));
    }
    return OZ_OK;
}

static enum oz_status write_tensors(struct job *j, const char *folder, struct oz_error *err)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    int64_t most = j->progress->options->max_shard_bytes;
    const struct oz_ckpt_writer_options options = {.folder = folder,
                                                   .stem = j->c->stem,
                                                   .max_shard_bytes =
                                                       most > 0 ? most : OZ_WRITE_SHARD_BYTES,
                                                   .metadata = metadata,
                                                   .metadata_count = 1};
    OZ_TRY(allocate(j, err));
    OZ_TRY(list_tensors(j, err));
    OZ_TRY(oz_ckpt_writer_create(&j->writer, &options, j->specs, j->spec_count, err));
    OZ_TRY(encode(j, err));
    for (int32_t i = 0; i < j->spec_count; i++) {
        if (j->copies[i] != NULL) {
            OZ_TRY(copy_tensor(j, i, err));
        }
    }
    OZ_TRY(oz_ckpt_check(j->c->ckpt, err));
    return oz_ckpt_writer_finish(j->writer, err);
}

/* ---- the config ---- */

/* Its text with one member more at the end: everything else stays byte for byte. */
static enum oz_status extend(struct oz_buf *out, const struct oz_component *c, const char *path,
                             const char *text, size_t bytes, struct oz_error *err)
{
    struct oz_json *json;
    OZ_TRY(oz_json_parse(&json, text, bytes, path, err));
    bool object = oz_json_type(json) == OZ_JSON_OBJECT && oz_json_count(json) > 0;
    bool has = oz_json_get(json, "quantization_config") != NULL;
    oz_json_free(json);
    if (!object || has) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: %s.", path,
                       has ? "it has a \"quantization_config\", but the weights are plain"
                           : "a config must be an object");
    }
    size_t end = bytes; /* of the last member: what was parsed ends with a brace, and blanks */
    while (text[end - 1] != '}') {
        end--;
    }
    end--;
    while (strchr(" \t\r\n", text[end - 1]) != NULL) {
        end--;
    }
    oz_buf_append(out, text, end);
    oz_buf_puts(out, ",\n  \"quantization_config\": ");
    oz_ct_config(out, &c->assignment, c->ckpt, c->of_transformers);
    oz_buf_puts(out, "\n}\n");
    return out->status == OZ_OK ? OZ_OK : OZ_FAIL_NOMEM(err, path);
}

static enum oz_status write_config(const struct oz_component *c, const char *folder,
                                   struct oz_error *err)
{
    char *text = NULL;
    size_t bytes;
    struct oz_buf out;
    char *from = oz_file_join(c->folder, "config.json");
    char *to = oz_file_join(folder, "config.json");
    oz_buf_init(&out, MAX_CONFIG_BYTES);
    enum oz_status status = from != NULL && to != NULL
                                ? oz_file_read(from, MAX_CONFIG_BYTES, &text, &bytes, err)
                                : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        status = extend(&out, c, from, text, bytes, err);
    }
    if (status == OZ_OK) {
        status = oz_file_write(to, out.data, out.bytes, err);
    }
    oz_buf_deinit(&out);
    oz_free(text);
    oz_free(from);
    oz_free(to);
    return status;
}

enum oz_status oz_write_component(struct oz_component *c, const char *folder,
                                  struct oz_write_progress *progress, struct oz_error *err)
{
    struct job j = {.c = c, .progress = progress};
    enum oz_status status = write_tensors(&j, folder, err);
    job_deinit(&j);
    return status == OZ_OK ? write_config(c, folder, err) : status;
}
