#include "pipe/write_journal.h"

#include <errno.h>
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
#include "base/folder.h"
#include "base/json.h"

#define MAX_JOURNAL_BYTES ((size_t)16 << 20) /* what lies behind does not count */
#define MAX_LINE_BYTES ((size_t)1 << 16)

uint64_t oz_write_hash(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ p[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

static int64_t modified_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* ---- the list ---- */

static struct oz_write_file *find(const struct oz_write_journal *j, const char *name)
{
    for (int32_t i = 0; i < j->count; i++) {
        if (strcmp(j->files[i].name, name) == 0) {
            return &j->files[i];
        }
    }
    return NULL;
}

bool oz_write_journal_has(const struct oz_write_journal *j, const char *file)
{
    return find(j, file) != NULL;
}

/* A line of it, whether the file is listed already or not. */
static enum oz_status append_file(struct oz_write_journal *j, const char *name, int64_t bytes,
                                  int64_t ns, struct oz_error *err)
{
    if (j->count == j->capacity) {
        int32_t more = 2 * j->capacity + 16;
        struct oz_write_file *files = oz_realloc(j->files, (size_t)more * sizeof *files);
        if (files == NULL) {
            return OZ_FAIL_NOMEM(err, name);
        }
        j->files = files;
        j->capacity = more;
    }
    char *copy = oz_strdup(name);
    if (copy == NULL) {
        return OZ_FAIL_NOMEM(err, name);
    }
    j->files[j->count] = (struct oz_write_file){copy, j->count, bytes, ns};
    j->count++;
    return OZ_OK;
}

int64_t oz_write_journal_bytes(const struct oz_write_journal *j)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < j->count; i++) {
        if (__builtin_add_overflow(sum, j->files[i].bytes, &sum)) {
            return INT64_MAX;
        }
    }
    return sum;
}

static enum oz_status list(struct oz_write_journal *j, const char *name, int64_t bytes, int64_t ns,
                           struct oz_error *err)
{
    struct oz_write_file *f = find(j, name);
    if (f == NULL) {
        return append_file(j, name, bytes, ns, err);
    }
    f->bytes = bytes;
    f->modified_ns = ns;
    return OZ_OK;
}

static int by_name_and_line(const void *a, const void *b)
{
    const struct oz_write_file *x = a;
    const struct oz_write_file *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

/* Of several lines of a file the last one counts. */
static void drop_earlier_lines(struct oz_write_journal *j)
{
    int32_t kept = 0;
    if (j->count > 0) {
        qsort(j->files, (size_t)j->count, sizeof *j->files, by_name_and_line);
    }
    for (int32_t i = 0; i < j->count; i++) {
        if (i + 1 < j->count && strcmp(j->files[i].name, j->files[i + 1].name) == 0) {
            oz_free(j->files[i].name);
        } else {
            j->files[kept++] = j->files[i];
        }
    }
    j->count = kept;
}

static void forget_all(struct oz_write_journal *j)
{
    while (j->count > 0) {
        oz_free(j->files[--j->count].name);
    }
}

void oz_write_journal_deinit(struct oz_write_journal *j)
{
    forget_all(j);
    oz_free(j->files);
    *j = (struct oz_write_journal){.fd = -1};
}

/* ---- reading ---- */

static bool is_hash(const struct oz_json *line, const char *key, uint64_t hash)
{
    char text[20];
    (void)snprintf(text, sizeof text, "%016" PRIx64, hash);
    return strcmp(oz_json_string(oz_json_get(line, key), ""), text) == 0;
}

/* Is it the path of a file below the folder, in the one way to write it? */
static bool is_below(const char *path)
{
    for (const char *at = path;; at++) {
        size_t n = strcspn(at, "/");
        if (n == 0 || (at[0] == '.' && (n == 1 || (n == 2 && at[1] == '.')))) {
            return false;
        }
        at += n;
        if (*at == '\0') {
            return true;
        }
    }
}

/* One line. *good: it says what a line says. */
static enum oz_status read_line(struct oz_write_journal *j, const char *text, size_t bytes,
                                bool first, const struct oz_write_identity *identity, bool *good,
                                struct oz_error *err)
{
    struct oz_json *line;
    struct oz_error bad;
    *good = false;
    enum oz_status status = oz_json_parse(&line, text, bytes, OZ_WRITE_MARK, &bad);
    if (status != OZ_OK) { /* whatever it is, it is not ours */
        return status == OZ_ERR_NOMEM ? OZ_FAIL(err, status, "%s", bad.message) : OZ_OK;
    }
    const char *name = oz_json_string(oz_json_get(line, "file"), NULL);
    int64_t size = oz_json_integer(oz_json_get(line, "bytes"), -1);
    if (first) {
        j->another_plan = !is_hash(line, "plan", identity->plan);
        j->another_source = !j->another_plan && !is_hash(line, "source", identity->source);
        *good = oz_json_type(oz_json_get(line, "plan")) == OZ_JSON_STRING;
    } else if (name != NULL && is_below(name) && size >= 0) {
        *good = true;
        status =
            append_file(j, name, size, oz_json_integer(oz_json_get(line, "modified_ns"), 0), err);
    }
    oz_json_free(line);
    return status;
}

/* All whole lines; j->end is behind the last. */
static enum oz_status read_lines(struct oz_write_journal *j, const char *text, size_t bytes,
                                 const struct oz_write_identity *identity, struct oz_error *err)
{
    size_t at = 0;
    bool good = true;
    j->another_plan = true; /* without a first line nothing is known */
    while (good && at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        if (end == NULL) {
            break;
        }
        size_t length = (size_t)(end - text) - at;
        OZ_TRY(read_line(j, text + at, length, at == 0, identity, &good, err));
        at += good ? length + 1 : 0;
    }
    j->end = (int64_t)at;
    drop_earlier_lines(j);
    return OZ_OK;
}

static enum oz_status read_journal(struct oz_write_journal *j,
                                   const struct oz_write_identity *identity, struct oz_error *err)
{
    struct stat st;
    if (fstat(j->fd, &st) != 0) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot look at %s/" OZ_WRITE_MARK ": %s.", j->folder,
                       strerror(errno));
    }
    size_t bytes = (size_t)st.st_size < MAX_JOURNAL_BYTES ? (size_t)st.st_size : MAX_JOURNAL_BYTES;
    char *text = oz_alloc(bytes + 1);
    if (text == NULL) {
        return OZ_FAIL_NOMEM(err, j->folder);
    }
    enum oz_status status = oz_file_pread(j->fd, text, (int64_t)bytes, 0)
                                ? read_lines(j, text, bytes, identity, err)
                                : OZ_FAIL(err, OZ_ERR_IO, "Cannot read %s/" OZ_WRITE_MARK ": %s.",
                                          j->folder, strerror(errno));
    oz_free(text);
    return status;
}

/* ---- the folder ---- */

static enum oz_status look_at(const struct oz_write_journal *j, const char *name, struct stat *st,
                              bool *there, struct oz_error *err)
{
    char *path = oz_file_join(j->folder, name);
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, name);
    }
    *there = lstat(path, st) == 0 && S_ISREG(st->st_mode);
    oz_free(path);
    return OZ_OK;
}

/* Takes from the list what is not there as it was recorded. */
static enum oz_status verify(struct oz_write_journal *j, struct oz_error *err)
{
    for (int32_t i = j->count; i-- > 0;) {
        struct stat st;
        bool there;
        const struct oz_write_file *f = &j->files[i];
        OZ_TRY(look_at(j, f->name, &st, &there, err));
        if (!there || st.st_size != f->bytes || modified_ns(&st) != f->modified_ns) {
            oz_free(j->files[i].name);
            j->files[i] = j->files[--j->count];
            j->changed++;
        }
    }
    j->kept = j->count;
    j->kept_bytes = oz_write_journal_bytes(j);
    return OZ_OK;
}

static enum oz_status remove_unlisted(void *ctx, const char *relative, enum oz_entry_kind kind,
                                      int64_t bytes, struct oz_error *err)
{
    const struct oz_write_journal *j = ctx;
    (void)bytes;
    if (kind == OZ_ENTRY_FOLDER || strcmp(relative, OZ_WRITE_MARK) == 0 ||
        oz_write_journal_has(j, relative)) {
        return OZ_OK;
    }
    char *path = oz_file_join(j->folder, relative);
    enum oz_status status = path == NULL        ? OZ_FAIL_NOMEM(err, relative)
                            : unlink(path) == 0 ? OZ_OK
                                                : OZ_FAIL(err, OZ_ERR_IO, "Cannot remove %s: %s.",
                                                          path, strerror(errno));
    oz_free(path);
    return status;
}

/* ---- writing ---- */

static enum oz_status append(struct oz_write_journal *j, const struct oz_buf *line,
                             struct oz_error *err)
{
    const struct oz_file_writer file = {.path = (char *)(uintptr_t)OZ_WRITE_MARK, .fd = j->fd};
    if (line->status != OZ_OK) {
        return OZ_FAIL_NOMEM(err, j->folder);
    }
    OZ_TRY(oz_file_writer_write_at(&file, line->data, line->bytes, j->end, err));
    j->end += (int64_t)line->bytes;
    return OZ_OK;
}

/* For the first line. The others are not flushed: one that a power failure takes away costs its file being written again. */
static enum oz_status flush(const struct oz_write_journal *j, struct oz_error *err)
{
    return fsync(j->fd) == 0 ? OZ_OK
                             : OZ_FAIL(err, OZ_ERR_IO, "Cannot write %s/" OZ_WRITE_MARK ": %s.",
                                       j->folder, strerror(errno));
}

static enum oz_status cut(const struct oz_write_journal *j, int64_t bytes, struct oz_error *err)
{
    return ftruncate(j->fd, (off_t)bytes) == 0
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_IO, "Cannot write %s/" OZ_WRITE_MARK ": %s.", j->folder,
                         strerror(errno));
}

static enum oz_status begin(struct oz_write_journal *j, const struct oz_write_identity *identity,
                            struct oz_error *err)
{
    struct oz_buf line;
    OZ_TRY(oz_folder_clear(j->folder, OZ_WRITE_MARK, err));
    OZ_TRY(cut(j, 0, err));
    j->end = 0;
    oz_buf_init(&line, MAX_LINE_BYTES);
    oz_buf_printf(&line, "{\"plan\": \"%016" PRIx64 "\", \"source\": \"%016" PRIx64 "\"}\n",
                  identity->plan, identity->source);
    enum oz_status status = append(j, &line, err);
    oz_buf_deinit(&line);
    return status == OZ_OK ? flush(j, err) : status;
}

enum oz_status oz_write_journal_add(struct oz_write_journal *j, const char *file,
                                    struct oz_error *err)
{
    struct oz_buf line;
    struct stat st;
    bool there;
    OZ_TRY(look_at(j, file, &st, &there, err));
    if (!there) {
        return OZ_FAIL(err, OZ_ERR_IO, "%s/%s is gone; somebody else has removed it.", j->folder,
                       file);
    }
    oz_buf_init(&line, MAX_LINE_BYTES);
    oz_buf_puts(&line, "{\"file\": ");
    oz_buf_json(&line, file);
    oz_buf_printf(&line, ", \"bytes\": %" PRId64 ", \"modified_ns\": %" PRId64 "}\n",
                  (int64_t)st.st_size, modified_ns(&st));
    enum oz_status status = append(j, &line, err);
    oz_buf_deinit(&line);
    return status == OZ_OK ? list(j, file, (int64_t)st.st_size, modified_ns(&st), err) : status;
}

/* ---- opening ---- */

enum oz_status oz_write_journal_open(struct oz_write_journal *j, const char *folder, int fd,
                                     const struct oz_write_identity *identity, struct oz_error *err)
{
    *j = (struct oz_write_journal){.folder = folder, .fd = fd};
    OZ_TRY(read_journal(j, identity, err));
    if (j->another_plan || j->another_source) {
        bool any = j->count > 0;
        j->another_plan = j->another_plan && any;
        j->another_source = j->another_source && any;
        forget_all(j);
        return begin(j, identity, err);
    }
    OZ_TRY(verify(j, err));
    OZ_TRY(oz_folder_walk(folder, remove_unlisted, j, err));
    return cut(j, j->end, err);
}
