#include "ckpt/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/unicode.h"

struct entry {
    struct oz_ckpt_spec spec; /* its name is ours */
    int64_t bytes, offset;    /* in the shard, behind its header */
    int64_t done;             /* bytes from its beginning that are there, by put_at */
    int32_t index, shard;     /* as declared; its file */
};

struct shard {
    struct oz_file_writer file;
    char name[256];
    char *header; /* its text, with the 8 bytes of its length in front */
    int64_t header_bytes;
    int64_t bytes;        /* of tensors */
    int32_t first, count; /* entries */
    bool open;            /* has been, for writing */
    bool whole;           /* under its name: kept from before, or committed */
};

struct oz_ckpt_writer {
    char *folder, *stem;
    struct entry *entries; /* [count], in the order of the files */
    int32_t count;
    struct shard *shards; /* [shard_count] */
    int32_t shard_count;
    int32_t at;      /* entry that is being written */
    int64_t done;    /* bytes of it */
    int32_t *places; /* [count]: the entry of each declared tensor */
    bool scattered;  /* by put_at */
};

/* Where the reference writer puts a dtype: the higher, the earlier. Its list, lowest first. */
static int32_t rank_of(enum oz_dtype dtype)
{
    static const enum oz_dtype order[] = {
        OZ_DTYPE_BOOL,        OZ_DTYPE_F4,          OZ_DTYPE_F6_E2M3, OZ_DTYPE_F6_E3M2,
        OZ_DTYPE_U8,          OZ_DTYPE_I8,          OZ_DTYPE_F8_E5M2, OZ_DTYPE_F8_E4M3,
        OZ_DTYPE_F8_E5M2FNUZ, OZ_DTYPE_F8_E4M3FNUZ, OZ_DTYPE_F8_E8M0, OZ_DTYPE_I16,
        OZ_DTYPE_U16,         OZ_DTYPE_F16,         OZ_DTYPE_BF16,    OZ_DTYPE_I32,
        OZ_DTYPE_U32,         OZ_DTYPE_F32,         OZ_DTYPE_C64,     OZ_DTYPE_F64,
        OZ_DTYPE_I64,         OZ_DTYPE_U64,
    };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (order[i] == dtype) {
            return (int32_t)i;
        }
    }
    return -1;
}

static int by_file_order(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    if (x->shard != y->shard) {
        return x->shard < y->shard ? -1 : 1;
    }
    int32_t p = rank_of(x->spec.dtype);
    int32_t q = rank_of(y->spec.dtype);
    return p != q ? (p > q ? -1 : 1) : strcmp(x->spec.name, y->spec.name);
}

static int by_name(const void *a, const void *b)
{
    const struct entry *const *x = a;
    const struct entry *const *y = b;
    return strcmp((*x)->spec.name, (*y)->spec.name);
}

/* ---- declaring ---- */

static enum oz_status take_spec(struct entry *e, const struct oz_ckpt_spec *spec, int32_t index,
                                struct oz_error *err)
{
    int64_t elements = 1;
    size_t length = spec->name != NULL ? strlen(spec->name) : 0;
    if (length == 0 || length > OZ_CKPT_MAX_NAME_BYTES || strcmp(spec->name, "__metadata__") == 0) {
        return OZ_FAIL(err, OZ_ERR_ARG, "\"%s\" cannot be a tensor's name.",
                       length > 0 && length <= OZ_CKPT_MAX_NAME_BYTES ? spec->name : "");
    }
    size_t bad;
    if (!oz_utf8_valid(spec->name, length, &bad)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The name of tensor %d is not UTF-8.", index);
    }
    if (spec->rank < 0 || spec->rank > OZ_CKPT_MAX_RANK) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Tensor %s: %d dimensions; at most %d are possible.",
                       spec->name, spec->rank, OZ_CKPT_MAX_RANK);
    }
    for (int32_t i = 0; i < spec->rank; i++) {
        if (spec->shape[i] < 0 || __builtin_mul_overflow(elements, spec->shape[i], &elements)) {
            return OZ_FAIL(err, OZ_ERR_ARG, "Tensor %s: dimension %d is %" PRId64 ".", spec->name,
                           i, spec->shape[i]);
        }
    }
    if (rank_of(spec->dtype) < 0 || !oz_dtype_bytes(spec->dtype, elements, &e->bytes)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Tensor %s: %" PRId64 " elements of %s cannot be stored.",
                       spec->name, elements, oz_dtype_name(spec->dtype));
    }
    e->spec = *spec;
    e->index = index;
    e->spec.name = oz_strdup(spec->name);
    return e->spec.name != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a tensor's name");
}

static enum oz_status check_unique(const struct oz_ckpt_writer *w, struct oz_error *err)
{
    size_t n = (size_t)w->count;
    const struct entry **sorted = oz_alloc_zero(n, sizeof *sorted);
    if (sorted == NULL) {
        return OZ_FAIL_NOMEM(err, "the tensors' names");
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &w->entries[i];
    }
    qsort((void *)sorted, n, sizeof *sorted, by_name);
    enum oz_status status = OZ_OK;
    for (size_t i = 1; i < n && status == OZ_OK; i++) {
        if (strcmp(sorted[i - 1]->spec.name, sorted[i]->spec.name) == 0) {
            status = OZ_FAIL(err, OZ_ERR_ARG, "Tensor %s is declared twice.", sorted[i]->spec.name);
        }
    }
    oz_free((void *)sorted);
    return status;
}

/* Numbers the entries of [begin, end) that wait for a shard. */
static void close_shard(struct oz_ckpt_writer *w, int32_t begin, int32_t end)
{
    bool any = false;
    for (int32_t i = begin; i < end; i++) {
        if (w->entries[i].shard < 0) {
            w->entries[i].shard = w->shard_count;
            any = true;
        }
    }
    w->shard_count += any;
}

/* Greedy, in the declared order; a shard has its number when it is full, and a tensor that is too
 * large for any has one at once. */
static void assign_shards(struct oz_ckpt_writer *w, int64_t most)
{
    int64_t filled = 0;
    int32_t begin = 0; /* of the shard that is being filled */
    w->shard_count = 0;
    for (int32_t i = 0; i < w->count; i++) {
        struct entry *e = &w->entries[i];
        e->shard = -1;
        if (most > 0 && e->bytes > most) {
            e->shard = w->shard_count++;
            continue;
        }
        if (most > 0 && filled + e->bytes > most) {
            close_shard(w, begin, i);
            begin = i;
            filled = 0;
        }
        filled += e->bytes;
    }
    close_shard(w, begin, w->count);
    w->shard_count = w->shard_count > 0 ? w->shard_count : 1;
}

/* ---- headers ---- */

static void put_metadata(struct oz_buf *b, const struct oz_ckpt_writer_options *o)
{
    for (int32_t i = 0; i < o->metadata_count; i++) {
        oz_buf_puts(b, i > 0 ? "," : "{\"__metadata__\":{");
        oz_buf_json(b, o->metadata[i][0]);
        oz_buf_puts(b, ":");
        oz_buf_json(b, o->metadata[i][1]);
    }
    oz_buf_puts(b, o->metadata_count > 0 ? "}" : "{");
}

/* The shard's header, and the places of its entries behind it. */
static void put_header(struct oz_buf *b, struct oz_ckpt_writer *w, struct shard *s,
                       const struct oz_ckpt_writer_options *o)
{
    int64_t at = 0;
    bool comma = o->metadata_count > 0;
    oz_buf_append(b, "\0\0\0\0\0\0\0", 8);
    put_metadata(b, o);
    for (int32_t k = s->first; k < s->first + s->count; k++) {
        struct entry *e = &w->entries[k];
        e->offset = at;
        oz_buf_puts(b, comma ? "," : "");
        oz_buf_json(b, e->spec.name);
        oz_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", oz_dtype_name(e->spec.dtype));
        for (int32_t i = 0; i < e->spec.rank; i++) {
            oz_buf_printf(b, "%s%" PRId64, i > 0 ? "," : "", e->spec.shape[i]);
        }
        oz_buf_printf(b, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + e->bytes);
        at += e->bytes;
        comma = true;
    }
    oz_buf_puts(b, "}");
    while (b->status == OZ_OK && b->bytes % 8 != 0) {
        oz_buf_puts(b, " ");
    }
    s->bytes = at;
}

/* Lays a shard out; its entries begin at *first, which moves behind them. */
static enum oz_status lay_out(struct oz_ckpt_writer *w, int32_t shard,
                              const struct oz_ckpt_writer_options *o, int32_t *first,
                              struct oz_error *err)
{
    struct shard *s = &w->shards[shard];
    struct oz_buf header;
    if (w->shard_count > 1) {
        (void)snprintf(s->name, sizeof s->name, "%s-%05d-of-%05d.safetensors", w->stem, shard + 1,
                       w->shard_count);
    } else {
        (void)snprintf(s->name, sizeof s->name, "%s.safetensors", w->stem);
    }
    s->file.fd = -1;
    s->first = *first;
    while (*first < w->count && w->entries[*first].shard == shard) {
        ++*first;
    }
    s->count = *first - s->first;
    oz_buf_init(&header, 8 + (size_t)OZ_CKPT_MAX_HEADER_BYTES);
    put_header(&header, w, s, o);
    enum oz_status status = header.status;
    s->header_bytes = (int64_t)header.bytes;
    if (status == OZ_OK) {
        for (size_t i = 0; i < 8; i++) {
            header.data[i] = (char)(uint8_t)((uint64_t)(s->header_bytes - 8) >> (8 * i));
        }
        s->header = oz_buf_take(&header);
    } else {
        status = OZ_FAIL(err, status, "%s: its header has no room in %" PRId64 " bytes.", s->name,
                         OZ_CKPT_MAX_HEADER_BYTES);
    }
    oz_buf_deinit(&header);
    return status;
}

/* Makes a shard's file, under a temporary name, with its header. */
static enum oz_status open_shard(struct oz_ckpt_writer *w, int32_t shard, struct oz_error *err)
{
    struct shard *s = &w->shards[shard];
    if (s->open || s->whole) {
        return OZ_OK;
    }
    char *path = oz_file_join(w->folder, s->name);
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, s->name);
    }
    enum oz_status status = oz_file_writer_open(&s->file, path, err);
    oz_free(path);
    OZ_TRY(status);
    s->open = true;
    return oz_file_writer_append(&s->file, s->header, (size_t)s->header_bytes, err);
}

/* A checkpoint of the stem must not be there: an old index would win over a new file. */
static enum oz_status check_free(const struct oz_ckpt_writer *w, struct oz_error *err)
{
    static const char *const endings[] = {".safetensors", ".safetensors.index.json"};
    for (size_t i = 0; i < 2; i++) {
        char name[300];
        (void)snprintf(name, sizeof name, "%s%s", w->stem, endings[i]);
        char *path = oz_file_join(w->folder, name);
        if (path == NULL) {
            return OZ_FAIL_NOMEM(err, name);
        }
        bool there = oz_file_exists(path);
        enum oz_status status =
            there ? OZ_FAIL(err, OZ_ERR_ARG,
                            "%s is there already; checkpoints are not replaced. Remove it, or "
                            "write to another folder.",
                            path)
                  : OZ_OK;
        oz_free(path);
        OZ_TRY(status);
    }
    return OZ_OK;
}

static enum oz_status build(struct oz_ckpt_writer *w, const struct oz_ckpt_writer_options *o,
                            const struct oz_ckpt_spec *specs, int32_t count, struct oz_error *err)
{
    w->folder = oz_strdup(o->folder);
    w->stem = oz_strdup(o->stem);
    w->entries = oz_alloc_zero((size_t)count, sizeof *w->entries);
    w->places = oz_alloc_zero((size_t)count, sizeof *w->places);
    if (w->folder == NULL || w->stem == NULL || w->entries == NULL || w->places == NULL) {
        return OZ_FAIL_NOMEM(err, "the writer of a checkpoint");
    }
    w->count = count;
    if (!oz_file_is_folder(w->folder)) { /* said before anything is computed */
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot write to %s: there is no such folder.", w->folder);
    }
    if (!o->resumes) {
        OZ_TRY(check_free(w, err));
    }
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(take_spec(&w->entries[i], &specs[i], i, err));
    }
    OZ_TRY(check_unique(w, err));
    assign_shards(w, o->max_shard_bytes);
    if (w->shard_count > 99999) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%d shards are more than names can count; allow larger ones.",
                       w->shard_count);
    }
    w->shards = oz_alloc_zero((size_t)w->shard_count, sizeof *w->shards);
    if (w->shards == NULL) {
        return OZ_FAIL_NOMEM(err, "the writer of a checkpoint");
    }
    qsort(w->entries, (size_t)count, sizeof *w->entries, by_file_order);
    for (int32_t i = 0; i < count; i++) {
        w->places[w->entries[i].index] = i;
    }
    int32_t first = 0;
    for (int32_t i = 0; i < w->shard_count; i++) {
        OZ_TRY(lay_out(w, i, o, &first, err));
    }
    return OZ_OK;
}

/* Passes over what has no bytes, and flushes the files that are whole. */
static enum oz_status settle(struct oz_ckpt_writer *w, struct oz_error *err)
{
    while (w->at < w->count && w->done == w->entries[w->at].bytes) {
        int32_t shard = w->entries[w->at].shard;
        w->at++;
        w->done = 0;
        if (w->at == w->count || w->entries[w->at].shard != shard) {
            OZ_TRY(open_shard(w, shard, err));
            OZ_TRY(oz_file_writer_close(&w->shards[shard].file, err));
        }
    }
    return OZ_OK;
}

enum oz_status oz_ckpt_writer_create(struct oz_ckpt_writer **out,
                                     const struct oz_ckpt_writer_options *options,
                                     const struct oz_ckpt_spec *specs, int32_t count,
                                     struct oz_error *err)
{
    *out = NULL;
    if (count < 0 || count > OZ_CKPT_MAX_TENSORS || strlen(options->stem) > 128) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%d tensors under the name \"%s\" cannot be written.",
                       count, options->stem);
    }
    struct oz_ckpt_writer *w = oz_alloc_zero(1, sizeof *w);
    if (w == NULL) {
        return OZ_FAIL_NOMEM(err, "the writer of a checkpoint");
    }
    enum oz_status status = build(w, options, specs, count, err);
    if (status == OZ_OK) {
        status = settle(w, err);
    }
    if (status != OZ_OK) {
        oz_ckpt_writer_destroy(&w);
        return status;
    }
    *out = w;
    return OZ_OK;
}

/* ---- writing ---- */

int32_t oz_ckpt_writer_next(const struct oz_ckpt_writer *w)
{
    return w->at < w->count ? w->entries[w->at].index : -1;
}

enum oz_status oz_ckpt_writer_put(struct oz_ckpt_writer *w, const void *data, size_t bytes,
                                  struct oz_error *err)
{
    if (w->at >= w->count) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%zu bytes more than the checkpoint's tensors have.",
                       bytes);
    }
    const struct entry *e = &w->entries[w->at];
    if (bytes > (uint64_t)(e->bytes - w->done)) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Tensor %s: %zu bytes were given, but only %" PRId64 " of %" PRId64
                       " are missing.",
                       e->spec.name, bytes, e->bytes - w->done, e->bytes);
    }
    OZ_TRY(open_shard(w, e->shard, err));
    OZ_TRY(oz_file_writer_append(&w->shards[e->shard].file, data, bytes, err));
    w->done += (int64_t)bytes;
    return settle(w, err);
}

enum oz_status oz_ckpt_writer_put_at(struct oz_ckpt_writer *w, int32_t index, int64_t offset,
                                     const void *data, size_t bytes, struct oz_error *err)
{
    if (index < 0 || index >= w->count || (w->at < w->count && w->done > 0)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Tensor %d cannot be written there.", (int)index);
    }
    struct entry *e = &w->entries[w->places[index]];
    if (offset < 0 || offset > e->done || bytes > (uint64_t)(e->bytes - offset)) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Tensor %s: %zu bytes at %" PRId64 " were given, but %" PRId64 " of %" PRId64
                       " are there.",
                       e->spec.name, bytes, offset, e->done, e->bytes);
    }
    const struct shard *s = &w->shards[e->shard];
    w->scattered = true;
    if (s->whole) {
        return OZ_OK; /* what is there already */
    }
    OZ_TRY(open_shard(w, e->shard, err));
    OZ_TRY(
        oz_file_writer_write_at(&s->file, data, bytes, s->header_bytes + e->offset + offset, err));
    int64_t end = offset + (int64_t)bytes;
    e->done = end > e->done ? end : e->done;
    return OZ_OK;
}

/* With put_at: is every byte of these entries there? */
static enum oz_status check_scattered(const struct oz_ckpt_writer *w, int32_t first, int32_t count,
                                      struct oz_error *err)
{
    for (int32_t i = first; i < first + count; i++) {
        const struct entry *e = &w->entries[i];
        if (e->done < e->bytes) {
            return OZ_FAIL(err, OZ_ERR_ARG, "Tensor %s has %" PRId64 " of its %" PRId64 " bytes.",
                           e->spec.name, e->done, e->bytes);
        }
    }
    return OZ_OK;
}

/* ---- file by file ---- */

int32_t oz_ckpt_writer_shards(const struct oz_ckpt_writer *w)
{
    return w->shard_count;
}

int32_t oz_ckpt_writer_shard_of(const struct oz_ckpt_writer *w, int32_t index)
{
    return w->entries[w->places[index]].shard;
}

const char *oz_ckpt_writer_shard_name(const struct oz_ckpt_writer *w, int32_t shard)
{
    return w->shards[shard].name;
}

/* Has a file the shard's size and header? */
static enum oz_status compare_header(const struct shard *s, int fd, const char *path, bool *same,
                                     struct oz_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot look at %s: %s.", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || (int64_t)st.st_size != s->header_bytes + s->bytes) {
        return OZ_OK;
    }
    char *there = oz_alloc((size_t)s->header_bytes);
    if (there == NULL) {
        return OZ_FAIL_NOMEM(err, path);
    }
    enum oz_status status = OZ_OK;
    if (oz_file_pread(fd, there, s->header_bytes, 0)) {
        *same = memcmp(there, s->header, (size_t)s->header_bytes) == 0;
    } else {
        status = OZ_FAIL(err, OZ_ERR_IO, "Cannot read %s: %s.", path, strerror(errno));
    }
    oz_free(there);
    return status;
}

enum oz_status oz_ckpt_writer_keep(struct oz_ckpt_writer *w, int32_t shard, bool *kept,
                                   struct oz_error *err)
{
    struct shard *s = &w->shards[shard];
    *kept = false;
    char *path = oz_file_join(w->folder, s->name);
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, s->name);
    }
    enum oz_status status = OZ_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        status = compare_header(s, fd, path, kept, err);
        (void)close(fd);
    } else if (errno != ENOENT && errno != ELOOP) {
        status = OZ_FAIL(err, OZ_ERR_IO, "Cannot read %s: %s.", path, strerror(errno));
    }
    oz_free(path);
    s->whole = *kept;
    w->scattered = w->scattered || *kept;
    for (int32_t i = s->first; *kept && i < s->first + s->count; i++) {
        w->entries[i].done = w->entries[i].bytes;
    }
    return status;
}

enum oz_status oz_ckpt_writer_commit(struct oz_ckpt_writer *w, int32_t shard, struct oz_error *err)
{
    struct shard *s = &w->shards[shard];
    OZ_TRY(check_scattered(w, s->first, s->count, err));
    OZ_TRY(open_shard(w, shard, err));
    if (!s->whole) {
        OZ_TRY(oz_file_writer_commit(&s->file, err));
    }
    s->whole = w->scattered = true;
    return OZ_OK;
}

/* ---- the end ---- */

/* {"metadata": {"total_size": n}, "weight_map": {...}}, as the field prints it. */
static enum oz_status print_index(const struct oz_ckpt_writer *w, struct oz_buf *b)
{
    size_t n = (size_t)w->count;
    int64_t total = 0;
    const struct entry **sorted = oz_alloc_zero(n, sizeof *sorted);
    if (sorted == NULL) {
        return OZ_ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &w->entries[i];
        total += w->entries[i].bytes;
    }
    qsort((void *)sorted, n, sizeof *sorted, by_name);
    oz_buf_printf(b, "{\n  \"metadata\": {\n    \"total_size\": %" PRId64 "\n  },\n", total);
    oz_buf_puts(b, "  \"weight_map\": {");
    for (size_t i = 0; i < n; i++) {
        oz_buf_puts(b, i > 0 ? ",\n    " : "\n    ");
        oz_buf_json(b, sorted[i]->spec.name);
        oz_buf_puts(b, ": ");
        oz_buf_json(b, w->shards[sorted[i]->shard].name);
    }
    oz_buf_puts(b, "\n  }\n}\n");
    oz_free((void *)sorted);
    return b->status;
}

/* The index, whole but not yet under its name. */
static enum oz_status write_index(const struct oz_ckpt_writer *w, struct oz_file_writer *file,
                                  struct oz_error *err)
{
    struct oz_buf b;
    char name[300];
    (void)snprintf(name, sizeof name, "%s.safetensors.index.json", w->stem);
    char *path = oz_file_join(w->folder, name);
    oz_buf_init(&b, (size_t)1 << 30);
    enum oz_status status = OZ_OK;
    if (path == NULL || print_index(w, &b) != OZ_OK) {
        status = OZ_FAIL_NOMEM(err, "a checkpoint's index");
    }
    if (status == OZ_OK) {
        status = oz_file_writer_open(file, path, err);
    }
    if (status == OZ_OK) {
        status = oz_file_writer_append(file, b.data, b.bytes, err);
    }
    if (status == OZ_OK) {
        status = oz_file_writer_close(file, err);
    }
    oz_buf_deinit(&b);
    oz_free(path);
    return status;
}

/* All are whole; from here on only renaming can fail. */
static enum oz_status rename_all(struct oz_ckpt_writer *w, struct oz_file_writer *index,
                                 struct oz_error *err)
{
    for (int32_t i = 0; i < w->shard_count; i++) {
        if (!w->shards[i].whole) {
            OZ_TRY(oz_file_writer_commit(&w->shards[i].file, err));
        }
    }
    return w->shard_count > 1 ? oz_file_writer_commit(index, err) : OZ_OK;
}

enum oz_status oz_ckpt_writer_finish(struct oz_ckpt_writer *w, struct oz_error *err)
{
    struct oz_file_writer index = {.fd = -1};
    if (w->scattered) {
        OZ_TRY(check_scattered(w, 0, w->count, err));
    } else if (w->at < w->count) {
        const struct entry *e = &w->entries[w->at];
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Tensor %s has %" PRId64 " of its %" PRId64 " bytes, and %d tensors follow.",
                       e->spec.name, w->done, e->bytes, w->count - w->at - 1);
    }
    enum oz_status status = OZ_OK;
    for (int32_t i = 0; i < w->shard_count && status == OZ_OK; i++) {
        status = open_shard(w, i, err); /* one without a byte */
        if (status == OZ_OK && !w->shards[i].whole) {
            status = oz_file_writer_close(&w->shards[i].file, err);
        }
    }
    if (status == OZ_OK && w->shard_count > 1) {
        status = write_index(w, &index, err);
    }
    if (status == OZ_OK) {
        status = rename_all(w, &index, err);
    }
    oz_file_writer_deinit(&index);
    return status;
}

void oz_ckpt_writer_destroy(struct oz_ckpt_writer **writer)
{
    struct oz_ckpt_writer *w = *writer;
    if (w == NULL) {
        return;
    }
    for (int32_t i = 0; i < w->shard_count && w->shards != NULL; i++) {
        oz_free(w->shards[i].header);
        oz_file_writer_deinit(&w->shards[i].file);
    }
    for (int32_t i = 0; i < w->count; i++) {
        oz_free((void *)(uintptr_t)w->entries[i].spec.name);
    }
    oz_free(w->shards);
    oz_free(w->entries);
    oz_free(w->places);
    oz_free(w->folder);
    oz_free(w->stem);
    oz_free(w);
    *writer = NULL;
}
