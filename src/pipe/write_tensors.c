/* A component's files, one by one: those that an earlier run has written are kept, and the rows of the
 * others are loaded together, file by file, onto them (load/sink.h). */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "load/load.h"
#include "pipe/write.h"
#include "pipe/write_list.h"

#define COPY_BYTES (INT64_C(4) << 20)

/* What is loaded together: a table of its own, each row a parameter as the file has it. */
struct batch {
    struct oz_layer *rows; /* [row_count of the list], as all of it */
    struct oz_param *params;
    struct oz_choice *choices;
    struct oz_sink_weight *weights;
    int64_t *row_tensor;
    int32_t *lora_first;
    struct oz_scheme *schemes; /* of what the file holds quantized; codec NULL: plain */
    struct oz_stored_weight *stored;
    int32_t stored_count;
    int32_t count;
};

struct job {
    const struct oz_write_list *list;
    struct oz_write_progress *progress;
    bool *done;   /* [row_count]: made, or kept */
    bool *wanted; /* [row_count]: by the batch that is put together */
    struct batch batch;
    struct oz_ckpt_writer *writer;
    uint8_t *buffer;
};

/* ---- what is made together ---- */

static const struct oz_choice *choice_of(const struct job *j, const struct oz_write_row *m)
{
    return &j->list->c->assignment.choices[m->row];
}

/* Do two rows share a scale? Then one load makes both. */
static bool is_fused(const struct job *j, const struct oz_write_row *a,
                     const struct oz_write_row *b)
{
    const char *x = j->list->c->table.rows[a->row].fused;
    const char *y = j->list->c->table.rows[b->row].fused;
    return x != NULL && y != NULL && choice_of(j, a)->scheme.scope == OZ_SCOPE_FUSED &&
           choice_of(j, b)->scheme.scope == OZ_SCOPE_FUSED && strcmp(x, y) == 0;
}

/* Wants the rows that share a scale with one that is wanted. */
static void want_fused(struct job *j)
{
    for (int32_t i = 0; i < j->list->row_count; i++) {
        const struct oz_write_row *row = &j->list->rows[i];
        bool fused = choice_of(j, row)->scheme.scope == OZ_SCOPE_FUSED;
        for (int32_t k = 0; k < j->list->row_count && fused && !j->wanted[i]; k++) {
            j->wanted[i] = j->wanted[k] && is_fused(j, row, &j->list->rows[k]);
        }
    }
}

/* Has a row a tensor in a shard for which `in` is true? */
static bool lies_in(const struct job *j, const struct oz_write_row *m, const bool *in)
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
    for (int32_t i = 0; i < j->list->row_count; i++) {
        j->wanted[i] = lies_in(j, &j->list->rows[i], in);
    }
    want_fused(j);
}

/* What is fixed of a row: the loader puts numbers into it. */
static enum oz_status put_fixed(struct job *j, const struct oz_write_row *m, struct oz_error *err)
{
    for (int32_t i = m->first_spec; i < m->first_spec + m->spec_count; i++) {
        if (j->list->fixed[i].data != NULL) {
            int64_t bytes;
            int64_t elements = j->list->specs[i].shape[0]; /* they are vectors */
            if (!oz_dtype_bytes(j->list->specs[i].dtype, elements, &bytes)) {
                return OZ_FAIL(err, OZ_ERR_INTERNAL, "%s has no size.", j->list->specs[i].name);
            }
            OZ_TRY(
                oz_ckpt_writer_put_at(j->writer, i, 0, j->list->fixed[i].data, (size_t)bytes, err));
        }
    }
    return OZ_OK;
}

/* What the file holds quantized of a row. */
static void fill_stored(struct job *j, int32_t row, int32_t at)
{
    struct batch *b = &j->batch;
    const struct oz_component *c = j->list->c;
    const struct oz_stored_weight *stored = oz_match_stored(c->match, row);
    b->schemes[at] = oz_scheme_as_stored();
    if (stored != NULL) {
        b->schemes[at] = c->stored.schemes[row];
        b->stored[at] = *stored;
        b->stored_count++;
    }
    if (oz_write_is_expanded(c, row)) {
        b->choices[at].scheme = b->schemes[at];
    }
}

/* The rows that are wanted and not done, as a table. */
static enum oz_status fill_batch(struct job *j, struct oz_error *err)
{
    struct batch *b = &j->batch;
    b->count = 0;
    b->stored_count = 0;
    for (int32_t i = 0; i < j->list->row_count; i++) {
        const struct oz_write_row *m = &j->list->rows[i];
        const struct oz_layer *layer = &j->list->c->table.rows[m->row];
        if (!j->wanted[i] || j->done[i]) {
            continue;
        }
        int32_t at = b->count++;
        j->done[i] = true;
        b->params[at] = (struct oz_param){.name = layer->name, .rank = layer->rank};
        memcpy(b->params[at].shape, layer->shape, sizeof layer->shape);
        b->rows[at] = *layer;
        b->rows[at].bind = &b->params[at];
        b->choices[at] = *choice_of(j, m);
        fill_stored(j, m->row, at);
        b->weights[at] = m->to;
        b->weights[at].param = &b->params[at];
        b->row_tensor[at] = m->tensor;
        b->lora_first[at] = j->list->c->lora != NULL ? j->list->c->lora->first[m->row] : -1;
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
        .rows = b->rows, .count = b->count, .component = j->list->c->name};
    const struct oz_stored stored = {
        .schemes = b->schemes, .weights = b->stored, .count = b->stored_count};
    const struct oz_match match = {
        .ckpt = j->list->c->ckpt, .table = &table, .row_tensor = b->row_tensor, .stored = &stored};
    const struct oz_assignment assignment = {
        .table = &table, .choices = b->choices, .quantized = b->count};
    struct oz_lora lora;
    struct oz_load_args args = {.match = &match,
                                .dev = &sink.dev,
                                .model = &memory,
                                .assignment = &assignment,
                                .total_bytes = j->progress->total};
    if (j->list->c->lora != NULL) { /* the same adapters, by this table's rows */
        lora = *j->list->c->lora;
        lora.table = &table;
        lora.first = b->lora_first;
        args.lora = &lora;
    }
    oz_sink_init(&sink, j->progress->options->dev, j->writer, b->weights, b->count);
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
    const struct oz_tensor_view *t = j->list->copies[index];
    for (int64_t at = 0; at < t->bytes; at += COPY_BYTES) {
        int64_t bytes = t->bytes - at < COPY_BYTES ? t->bytes - at : COPY_BYTES;
        OZ_TRY(oz_ckpt_read(j->list->c->ckpt, t, at, bytes, j->buffer, err));
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
    for (int32_t i = 0; i < j->list->spec_count; i++) {
        if (j->list->copies[i] != NULL && oz_ckpt_writer_shard_of(j->writer, i) == shard) {
            OZ_TRY(copy_tensor(j, i, err));
        }
    }
    OZ_TRY(oz_ckpt_check(j->list->c->ckpt, err));
    OZ_TRY(oz_lora_check(j->list->c->lora, err));
    return oz_ckpt_writer_commit(j->writer, shard, err);
}

static enum oz_status file_name(const struct job *j, int32_t shard, char **name,
                                struct oz_error *err)
{
    *name = oz_file_join(j->list->c->name, oz_ckpt_writer_shard_name(j->writer, shard));
    return *name != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, j->list->c->name);
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
    for (int32_t i = 0; i < j->list->row_count; i++) {
        j->done[i] = !j->wanted[i];
        bytes += j->wanted[i] ? 0 : oz_match_row_bytes(j->list->c->match, j->list->rows[i].row);
    }
    for (int32_t i = 0; i < j->list->spec_count; i++) {
        bool kept = j->list->copies[i] != NULL && !missing[oz_ckpt_writer_shard_of(j->writer, i)];
        bytes += kept ? j->list->copies[i]->bytes : 0;
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

/* ---- the whole ---- */

static enum oz_status allocate(struct job *j, struct oz_error *err)
{
    struct batch *b = &j->batch;
    size_t rows = (size_t)j->list->row_count;
    j->done = oz_alloc_zero(rows, sizeof *j->done);
    j->wanted = oz_alloc_zero(rows, sizeof *j->wanted);
    j->buffer = oz_alloc((size_t)COPY_BYTES);
    b->rows = oz_alloc_zero(rows, sizeof *b->rows);
    b->params = oz_alloc_zero(rows, sizeof *b->params);
    b->choices = oz_alloc_zero(rows, sizeof *b->choices);
    b->weights = oz_alloc_zero(rows, sizeof *b->weights);
    b->row_tensor = oz_alloc_zero(rows, sizeof *b->row_tensor);
    b->lora_first = oz_alloc_zero(rows, sizeof *b->lora_first);
    b->schemes = oz_alloc_zero(rows, sizeof *b->schemes);
    b->stored = oz_alloc_zero(rows, sizeof *b->stored);
    bool memory = j->done != NULL && j->wanted != NULL && j->buffer != NULL && b->rows != NULL &&
                  b->params != NULL && b->choices != NULL && b->weights != NULL &&
                  b->row_tensor != NULL && b->lora_first != NULL && b->schemes != NULL &&
                  b->stored != NULL;
    return memory ? OZ_OK : OZ_FAIL_NOMEM(err, j->list->c->name);
}

static void job_deinit(struct job *j)
{
    oz_ckpt_writer_destroy(&j->writer);
    oz_free(j->done);
    oz_free(j->wanted);
    oz_free(j->buffer);
    oz_free(j->batch.rows);
    oz_free(j->batch.params);
    oz_free(j->batch.choices);
    oz_free(j->batch.weights);
    oz_free(j->batch.row_tensor);
    oz_free(j->batch.lora_first);
    oz_free(j->batch.schemes);
    oz_free(j->batch.stored);
}

static enum oz_status run(struct job *j, const char *folder, struct oz_error *err)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    const struct oz_write_list *l = j->list;
    int64_t most = j->progress->options->max_shard_bytes;
    const struct oz_ckpt_writer_options options = {.folder = folder,
                                                   .stem = l->c->stem,
                                                   .max_shard_bytes =
                                                       most > 0 ? most : OZ_WRITE_SHARD_BYTES,
                                                   .metadata = metadata,
                                                   .metadata_count = 1,
                                                   .resumes = true};
    OZ_TRY(allocate(j, err));
    OZ_TRY(oz_ckpt_writer_create(&j->writer, &options, l->specs, l->spec_count, err));
    size_t shards = (size_t)oz_ckpt_writer_shards(j->writer);
    bool *missing = oz_alloc_zero(2 * shards, sizeof *missing);
    if (missing == NULL) {
        return OZ_FAIL_NOMEM(err, l->c->name);
    }
    enum oz_status status = write_shards(j, missing, missing + shards, err);
    oz_free(missing);
    return status;
}

enum oz_status oz_write_tensors(const struct oz_write_list *list, const char *folder,
                                struct oz_write_progress *progress, struct oz_error *err)
{
    struct job j = {.list = list, .progress = progress};
    enum oz_status status = run(&j, folder, err);
    job_deinit(&j);
    return status;
}
