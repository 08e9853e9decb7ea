/* One component: its quantized weights by a load onto the files (load/sink.h), its other tensors byte
 * for byte, its config with what the format's makers want to know. */
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

/* A row whose tensors come through the loader: encoded, or plain with an adapter merged. */
struct made {
    int32_t row;    /* of the component's table */
    int64_t tensor; /* of its checkpoint */
    int32_t first_spec, spec_count;
    struct oz_sink_weight to;
    bool done;
};

/* Bytes of a tensor that do not wait for its weight. */
struct fixed {
    const void *data; /* NULL: none */
    char *text;       /* ours; NULL: data is static */
};

/* What is loaded together: a table of its own, each row a parameter as the file has it. */
struct batch {
    struct oz_layer *rows; /* [made_count], as all of it */
    struct oz_param *params;
    struct oz_choice *choices;
    struct oz_sink_weight *weights;
    int64_t *row_tensor;
    int32_t *lora_first;
    int32_t count;
};

/* A component while it is written. */
struct job {
    struct oz_component *c;
    const struct oz_write_options *options;
    struct oz_write_progress *progress;
    struct oz_ckpt_spec *specs;           /* [spec_count] */
    const struct oz_tensor_view **copies; /* [spec_count]: what is copied there; NULL: made */
    char **names;                         /* [spec_count]: of specs that are encoded */
    struct fixed *fixed;                  /* [spec_count]: of those, what is known before */
    int32_t spec_count;
    struct made *made; /* [made_count] */
    int32_t made_count;
    bool *wanted; /* [made_count]: by the batch that is put together */
    struct batch batch;
    struct oz_ckpt_writer *writer;
    char *folder;
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

/* Does an adapter change a row that stays plain? */
static bool is_merged(const struct oz_component *c, int32_t row)
{
    return !is_encoded(c, row) && oz_lora_rank(c->lora, row) > 0;
}

bool oz_write_is_quantized(const struct oz_component *c)
{
    return c->assignment.quantized > 0;
}

bool oz_write_is_made(const struct oz_component *c)
{
    return oz_write_is_quantized(c) || c->replaced || c->lora != NULL;
}

static enum oz_status check_merged(const struct oz_component *c, const struct oz_layer *row,
                                   struct oz_error *err)
{
    bool whole = (row->transform & ~(uint32_t)OZ_TRANSFORM_RESHAPE) == 0 && row->file_rows == 0 &&
                 row->file_row == 0;
    return whole ? OZ_OK
                 : OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s: its tensor in %s is not the layer's matrix as it stands, and "
                           "cannot be written with a LoRA merged into it; generate with --lora.",
                           row->module, c->folder);
}

static enum oz_dtype dtype_of(const struct oz_component *c, int64_t tensor)
{
    return tensor >= 0 ? oz_ckpt_tensor(c->ckpt, tensor)->dtype : OZ_DTYPE_F32;
}

enum oz_status oz_write_check_component(const struct oz_component *c, struct oz_error *err)
{
    struct oz_dialect_tensor tensors[OZ_DIALECT_TENSORS];
    int32_t count;
    if (c->stored.method != NULL && oz_write_is_made(c)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "The %s in %s is quantized already (%s); %s cannot be added to that. Start "
                       "from the checkpoint that is not quantized.",
                       c->name, c->folder, c->stored.method,
                       c->lora != NULL ? "a LoRA" : "what is plain in it");
    }
    for (int32_t i = 0; i < c->table.count; i++) {
        const struct oz_layer *row = &c->table.rows[i];
        if (is_merged(c, i)) {
            OZ_TRY(check_merged(c, row, err));
        }
        if (!is_encoded(c, i)) {
            continue;
        }
        int64_t tensor = c->match->row_tensor[i];
        OZ_TRY(oz_dialect_layout(tensors, &count, &c->assignment.choices[i].scheme, row,
                                 dtype_of(c, tensor), err));
        if (tensor >= 0 && strcmp(oz_ckpt_tensor(c->ckpt, tensor)->name, row->name) != 0) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s shares the tensor %s, which stays as it is: no format holds it "
                           "quantized besides. Add %s to ignored_layers.",
                           row->module, oz_ckpt_tensor(c->ckpt, tensor)->name, row->module);
        }
    }
    return oz_dialect_check(&c->assignment, c->ckpt, c->of_transformers, err);
}

/* ---- what is written ---- */

static void add_spec(struct job *j, const struct oz_ckpt_spec *spec,
                     const struct oz_tensor_view *copy)
{
    j->copies[j->spec_count] = copy;
    j->specs[j->spec_count++] = *spec;
}

static struct made *add_made(struct job *j, int32_t row, int64_t tensor)
{
    struct made *m = &j->made[j->made_count++];
    *m = (struct made){.row = row, .tensor = tensor, .first_spec = j->spec_count};
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        m->to.index[i] = -1;
    }
    return m;
}

static enum oz_status add_tensor(struct job *j, const struct oz_layer *layer,
                                 const struct oz_dialect_tensor *t, struct oz_error *err)
{
    struct oz_sink_weight *w = &j->made[j->made_count - 1].to;
    struct fixed *f = &j->fixed[j->spec_count];
    struct oz_ckpt_spec spec = {.dtype = t->dtype, .rank = t->rank};
    struct oz_buf name;
    memcpy(spec.shape, t->shape, sizeof t->shape);
    oz_buf_init(&name, 2 * (size_t)OZ_CKPT_MAX_NAME_BYTES);
    oz_buf_printf(&name, "%s.%s", layer->module, t->suffix);
    spec.name = j->names[j->spec_count] = oz_buf_take(&name);
    if (t->fixed == t->text) {
        f->text = oz_strdup(t->text);
    }
    f->data = f->text != NULL ? f->text : t->fixed;
    if (spec.name == NULL || (t->fixed == t->text && f->text == NULL)) {
        return OZ_FAIL_NOMEM(err, layer->name);
    }
    if (t->plane != OZ_PLANE_COUNT) {
        w->index[t->plane] = j->spec_count;
        w->moves[t->plane] = t->move;
        w->number_at = t->move == OZ_MOVE_NUMBER ? t->number_at : w->number_at;
    }
    add_spec(j, &spec, NULL);
    j->made[j->made_count - 1].spec_count++;
    return OZ_OK;
}

static enum oz_status add_planes(struct job *j, int32_t row, int64_t tensor, struct oz_error *err)
{
    struct oz_dialect_tensor tensors[OZ_DIALECT_TENSORS];
    int32_t count;
    const struct oz_layer *layer = &j->c->table.rows[row];
    (void)add_made(j, row, tensor);
    OZ_TRY(oz_dialect_layout(tensors, &count, &j->c->assignment.choices[row].scheme, layer,
                             dtype_of(j->c, tensor), err));
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(add_tensor(j, layer, &tensors[i], err));
    }
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
        bool merged = row >= 0 && is_merged(j->c, row);
        if (merged) {
            struct made *made = add_made(j, row, i);
            made->to.index[OZ_PLANE_CODES] = j->spec_count;
            made->spec_count = 1;
        }
        add_spec(j, &spec, merged ? NULL : t);
    }
    return OZ_OK;
}

static enum oz_status allocate(struct job *j, struct oz_error *err)
{
    const struct oz_component *c = j->c;
    size_t rows = 0;
    for (int32_t i = 0; i < c->table.count; i++) {
        rows += is_encoded(c, i) || is_merged(c, i);
    }
    size_t specs = (size_t)oz_ckpt_count(c->ckpt) + rows * (OZ_DIALECT_TENSORS - 1);
    struct batch *b = &j->batch;
    j->specs = oz_alloc_zero(specs, sizeof *j->specs);
    j->copies = oz_alloc_zero(specs, sizeof *j->copies);
    j->names = oz_alloc_zero(specs, sizeof *j->names);
    j->fixed = oz_alloc_zero(specs, sizeof *j->fixed);
    j->made = oz_alloc_zero(rows, sizeof *j->made);
    j->wanted = oz_alloc_zero(rows, sizeof *j->wanted);
    b->rows = oz_alloc_zero(rows, sizeof *b->rows);
    b->params = oz_alloc_zero(rows, sizeof *b->params);
    b->choices = oz_alloc_zero(rows, sizeof *b->choices);
    b->weights = oz_alloc_zero(rows, sizeof *b->weights);
    b->row_tensor = oz_alloc_zero(rows, sizeof *b->row_tensor);
    b->lora_first = oz_alloc_zero(rows, sizeof *b->lora_first);
    j->buffer = oz_alloc((size_t)COPY_BYTES);
    bool memory = j->specs != NULL && j->copies != NULL && j->names != NULL && j->fixed != NULL &&
                  j->made != NULL && j->wanted != NULL && b->rows != NULL && b->params != NULL &&
                  b->choices != NULL && b->weights != NULL && b->row_tensor != NULL &&
                  b->lora_first != NULL && j->buffer != NULL;
    return memory ? OZ_OK : OZ_FAIL_NOMEM(err, c->name);
}

static void job_deinit(struct job *j)
{
    oz_ckpt_writer_destroy(&j->writer);
    for (int32_t i = 0; i < j->spec_count; i++) {
        oz_free(j->names[i]);
        oz_free(j->fixed[i].text);
    }
    oz_free(j->fixed);
    oz_free(j->specs);
    oz_free((void *)j->copies);
    oz_free((void *)j->names);
    oz_free(j->made);
    oz_free(j->wanted);
    oz_free(j->batch.rows);
    oz_free(j->batch.params);
    oz_free(j->batch.choices);
    oz_free(j->batch.weights);
    oz_free(j->batch.row_tensor);
    oz_free(j->batch.lora_first);
    oz_free(j->folder);
    oz_free(j->buffer);
}

/* ---- what is made together ---- */

static const struct oz_choice *choice_of(const struct job *j, const struct made *m)
{
    return &j->c->assignment.choices[m->row];
}

/* Do two rows share a scale? Then one load makes both. */
static bool is_fused(const struct job *j, const struct made *a, const struct made *b)
{
    const char *x = j->c->table.rows[a->row].fused;
    const char *y = j->c->table.rows[b->row].fused;
    return x != NULL && y != NULL && choice_of(j, a)->scheme.scope == OZ_SCOPE_FUSED &&
           choice_of(j, b)->scheme.scope == OZ_SCOPE_FUSED && strcmp(x, y) == 0;
}

/* Wants the rows that share a scale with one that is wanted. */
static void want_fused(struct job *j)
{
    for (int32_t i = 0; i < j->made_count; i++) {
        for (int32_t k = 0; k < j->made_count && !j->wanted[i]; k++) {
            j->wanted[i] = j->wanted[k] && is_fused(j, &j->made[i], &j->made[k]);
        }
    }
}

/* Has a row a tensor in a shard for which `in` is true? */
static bool lies_in(const struct job *j, const struct made *m, const bool *in)
{
    for (int32_t i = m->first_spec; i < m->first_spec + m->spec_count; i++) {
        if (in[oz_ckpt_writer_shard_of(j->writer, i)]) {
            return true;
        }
    }
    return false;
}

static void want(struct job *j, const bool *in)
{
    for (int32_t i = 0; i < j->made_count; i++) {
        j->wanted[i] = lies_in(j, &j->made[i], in);
    }
    want_fused(j);
}

/* What is fixed of a row: the loader puts numbers into it. */
static enum oz_status put_fixed(struct job *j, const struct made *m, struct oz_error *err)
{
    for (int32_t i = m->first_spec; i < m->first_spec + m->spec_count; i++) {
        if (j->fixed[i].data != NULL) {
            int64_t bytes;
            int64_t elements = j->specs[i].shape[0]; /* they are vectors */
            if (!oz_dtype_bytes(j->specs[i].dtype, elements, &bytes)) {
                return OZ_FAIL(err, OZ_ERR_INTERNAL, "%s has no size.", j->specs[i].name);
            }
            OZ_TRY(oz_ckpt_writer_put_at(j->writer, i, 0, j->fixed[i].data, (size_t)bytes, err));
        }
    }
    return OZ_OK;
}

/* The rows that are wanted and not done, as a table. */
static enum oz_status fill_batch(struct job *j, struct oz_error *err)
{
    struct batch *b = &j->batch;
    b->count = 0;
    for (int32_t i = 0; i < j->made_count; i++) {
        struct made *m = &j->made[i];
        const struct oz_layer *layer = &j->c->table.rows[m->row];
        if (!j->wanted[i] || m->done) {
            continue;
        }
        int32_t at = b->count++;
        m->done = true;
        b->params[at] = (struct oz_param){.name = layer->name, .rank = layer->rank};
        memcpy(b->params[at].shape, layer->shape, sizeof layer->shape);
        b->rows[at] = *layer;
        b->rows[at].bind = &b->params[at];
        b->choices[at] = *choice_of(j, m);
        b->weights[at] = m->to;
        b->weights[at].param = &b->params[at];
        b->row_tensor[at] = m->tensor;
        b->lora_first[at] = j->c->lora != NULL ? j->c->lora->first[m->row] : -1;
        OZ_TRY(put_fixed(j, m, err));
    }
    return OZ_OK;
}

/* ---- tensors ---- */

/* The loader's report as progress of the whole. */
static int load_progress(void *ctx, const struct oz_progress *now)
{
    struct oz_write_progress *p = ctx;
    return oz_write_count(p, now->done - p->done, NULL) == OZ_OK ? 0 : 1;
}

static enum oz_status load_batch(struct job *j, struct oz_error *err)
{
    struct oz_sink sink;
    struct oz_arena memory;
    struct oz_arena place;
    struct batch *b = &j->batch;
    int64_t done = j->progress->done;
    const struct oz_layer_table table = {
        .rows = b->rows, .count = b->count, .component = j->c->name};
    const struct oz_match match = {
        .ckpt = j->c->ckpt, .table = &table, .row_tensor = b->row_tensor};
    const struct oz_assignment assignment = {
        .table = &table, .choices = b->choices, .quantized = b->count};
    struct oz_lora lora;
    struct oz_load_args args = {.match = &match,
                                .dev = &sink.dev,
                                .model = &memory,
                                .assignment = &assignment,
                                .total_bytes = j->progress->total};
    if (j->c->lora != NULL) { /* the same adapters, by this table's rows */
        lora = *j->c->lora;
        lora.table = &table;
        lora.first = b->lora_first;
        args.lora = &lora;
    }
    oz_sink_init(&sink, j->options->dev, j->writer, b->weights, b->count);
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

static enum oz_status write_shard(struct job *j, int32_t shard, bool *in, struct oz_error *err)
{
    in[shard] = true;
    want(j, in);
    in[shard] = false;
    OZ_TRY(fill_batch(j, err));
    if (j->batch.count > 0) {
        OZ_TRY(load_batch(j, err));
    }
    for (int32_t i = 0; i < j->spec_count; i++) {
        if (j->copies[i] != NULL && oz_ckpt_writer_shard_of(j->writer, i) == shard) {
            OZ_TRY(copy_tensor(j, i, err));
        }
    }
    OZ_TRY(oz_ckpt_check(j->c->ckpt, err));
    OZ_TRY(oz_lora_check(j->c->lora, err));
    return oz_ckpt_writer_commit(j->writer, shard, err);
}

static enum oz_status file_name(const struct job *j, int32_t shard, char **name,
                                struct oz_error *err)
{
    *name = oz_file_join(j->c->name, oz_ckpt_writer_shard_name(j->writer, shard));
    return *name != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, j->c->name);
}

/* Which shards an earlier run has written; what lies in them alone is done. */
static enum oz_status keep_shards(struct job *j, bool *missing, struct oz_error *err)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < oz_ckpt_writer_shards(j->writer); i++) {
        char *name;
        bool kept = false;
        OZ_TRY(file_name(j, i, &name, err));
        bool listed = oz_write_journal_has(j->progress->journal, name);
        oz_free(name);
        if (listed) {
            OZ_TRY(oz_ckpt_writer_keep(j->writer, i, &kept, err));
        }
        missing[i] = !kept;
    }
    want(j, missing);
    for (int32_t i = 0; i < j->made_count; i++) {
        j->made[i].done = !j->wanted[i];
        bytes += j->wanted[i] ? 0 : oz_ckpt_tensor(j->c->ckpt, j->made[i].tensor)->bytes;
    }
    for (int32_t i = 0; i < j->spec_count; i++) {
        bool kept = j->copies[i] != NULL && !missing[oz_ckpt_writer_shard_of(j->writer, i)];
        bytes += kept ? j->copies[i]->bytes : 0;
    }
    return oz_write_count(j->progress, bytes, err);
}

static enum oz_status write_shards(struct job *j, bool *missing, bool *in, struct oz_error *err)
{
    OZ_TRY(keep_shards(j, missing, err));
    for (int32_t i = 0; i < oz_ckpt_writer_shards(j->writer); i++) {
        char *name;
        if (!missing[i]) {
            continue;
        }
        OZ_TRY(write_shard(j, i, in, err));
        OZ_TRY(file_name(j, i, &name, err));
        enum oz_status status = oz_write_journal_add(j->progress->journal, name, err);
        oz_free(name);
        OZ_TRY(status);
    }
    return oz_ckpt_writer_finish(j->writer, err);
}

static enum oz_status prepare(struct job *j, const char *folder, struct oz_error *err)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    int64_t most = j->options->max_shard_bytes;
    const struct oz_ckpt_writer_options options = {.folder = folder,
                                                   .stem = j->c->stem,
                                                   .max_shard_bytes =
                                                       most > 0 ? most : OZ_WRITE_SHARD_BYTES,
                                                   .metadata = metadata,
                                                   .metadata_count = 1,
                                                   .resumes = true};
    OZ_TRY(allocate(j, err));
    OZ_TRY(list_tensors(j, err));
    return folder == NULL
               ? OZ_OK
               : oz_ckpt_writer_create(&j->writer, &options, j->specs, j->spec_count, err);
}

static enum oz_status write_tensors(struct job *j, struct oz_error *err)
{
    OZ_TRY(prepare(j, j->folder, err));
    size_t shards = (size_t)oz_ckpt_writer_shards(j->writer);
    bool *missing = oz_alloc_zero(2 * shards, sizeof *missing);
    if (missing == NULL) {
        return OZ_FAIL_NOMEM(err, j->c->name);
    }
    enum oz_status status = write_shards(j, missing, missing + shards, err);
    oz_free(missing);
    return status;
}

/* ---- the config ---- */

/* Its text with one member more at the end, where weights are quantized: everything else stays byte for
 * byte. */
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
    if (!oz_write_is_quantized(c)) {
        oz_buf_append(out, text, bytes);
        return out->status == OZ_OK ? OZ_OK : OZ_FAIL_NOMEM(err, path);
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
    oz_dialect_config(out, &c->assignment, c->ckpt, c->of_transformers);
    oz_buf_puts(out, "\n}\n");
    return out->status == OZ_OK ? OZ_OK : OZ_FAIL_NOMEM(err, path);
}

static enum oz_status print_config(struct oz_buf *out, const struct oz_component *c,
                                   const char *folder, struct oz_error *err)
{
    char *text = NULL;
    size_t bytes;
    char *from = oz_file_join(folder, "config.json");
    enum oz_status status = from != NULL ? oz_file_read(from, MAX_CONFIG_BYTES, &text, &bytes, err)
                                         : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        status = extend(out, c, from, text, bytes, err);
    }
    oz_free(text);
    oz_free(from);
    return status;
}

static enum oz_status write_config(const struct oz_component *c, const char *folder,
                                   struct oz_error *err)
{
    struct oz_buf out;
    char *to = oz_file_join(folder, "config.json");
    oz_buf_init(&out, MAX_CONFIG_BYTES);
    enum oz_status status =
        to != NULL ? print_config(&out, c, c->config_folder, err) : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        status = oz_file_write(to, out.data, out.bytes, err);
    }
    oz_buf_deinit(&out);
    oz_free(to);
    return status;
}

enum oz_status oz_write_component(struct oz_component *c, struct oz_write_progress *progress,
                                  struct oz_error *err)
{
    struct job j = {.c = c,
                    .options = progress->options,
                    .progress = progress,
                    .folder = oz_file_join(progress->journal->folder, c->name)};
    enum oz_status status = j.folder != NULL ? write_tensors(&j, err) : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        status = write_config(c, j.folder, err);
    }
    job_deinit(&j);
    return status;
}

/* ---- the identity ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return oz_write_hash(hash, text != NULL ? text : "", strlen(text != NULL ? text : "") + 1);
}

static uint64_t hash_number(uint64_t hash, int64_t x)
{
    return oz_write_hash(hash, &x, sizeof x);
}

static uint64_t hash_made(uint64_t h, const struct job *j, const struct made *m)
{
    const struct oz_scheme *s = &choice_of(j, m)->scheme;
    const struct oz_layer *layer = &j->c->table.rows[m->row];
    h = hash_text(h, layer->name);
    h = hash_text(h, s->name);
    h = hash_text(h, s->codec != NULL ? s->codec->name : NULL);
    h = hash_number(h, s->exponent_rule);
    h = hash_number(h, s->scope);
    h = hash_text(h, s->scope == OZ_SCOPE_FUSED ? layer->fused : NULL);
    for (int32_t i = j->c->lora != NULL ? j->c->lora->first[m->row] : -1; i >= 0;
         i = j->c->lora->pairs[i].next) {
        const struct oz_lora_pair *p = &j->c->lora->pairs[i];
        h = hash_number(h, p->file);
        h = oz_write_hash(h, &p->factor, sizeof p->factor);
    }
    return h;
}

enum oz_status oz_write_hash_component(uint64_t *hash, struct oz_component *c,
                                       const struct oz_write_options *options, struct oz_error *err)
{
    struct job j = {.c = c, .options = options};
    struct oz_buf config;
    oz_buf_init(&config, MAX_CONFIG_BYTES);
    enum oz_status status = prepare(&j, NULL, err);
    if (status == OZ_OK) {
        status = print_config(&config, c, c->config_folder, err);
    }
    if (status == OZ_OK) {
        uint64_t h = hash_text(*hash, c->stem);
        for (int32_t i = 0; i < j.spec_count; i++) {
            h = hash_text(h, j.specs[i].name);
            h = hash_number(h, j.specs[i].dtype);
            h = oz_write_hash(h, j.specs[i].shape,
                              (size_t)j.specs[i].rank * sizeof *j.specs[i].shape);
            h = hash_number(h, j.copies[i] != NULL);
        }
        for (int32_t i = 0; i < j.made_count; i++) {
            h = hash_made(h, &j, &j.made[i]);
        }
        *hash = oz_write_hash(h, config.data, config.bytes);
    }
    oz_buf_deinit(&config);
    job_deinit(&j);
    return status;
}
