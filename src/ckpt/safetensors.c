/*
 * The safetensors container: u64 header length, JSON header, data. Every rule that a safe reader
 * must enforce is enforced here (checkpoint formats: container rules).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/unicode.h"
#include "ckpt/container.h"

struct header {
    const char *path;
    int32_t file;
    int64_t data_begin, data_bytes;
};

/* "shape": a list of non-negative integers whose product fits. */
static enum oz_status read_shape(const struct header *h, struct oz_tensor_view *t,
                                 const struct oz_json *shape, struct oz_error *err)
{
    size_t rank = oz_json_count(shape);
    if (oz_json_type(shape) != OZ_JSON_ARRAY || rank > OZ_CKPT_MAX_RANK) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: tensor %s: \"shape\" must be a list of at most %d integers.", h->path,
                       t->name, OZ_CKPT_MAX_RANK);
    }
    t->rank = (int32_t)rank;
    t->elements = 1;
    bool empty = false;
    for (size_t i = 0; i < rank; i++) {
        const struct oz_json *v = oz_json_at(shape, i);
        int64_t dim = oz_json_integer(v, -1);
        if (oz_json_type(v) != OZ_JSON_INTEGER || dim < 0) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: tensor %s: dimension %zu of \"shape\" is not a size.", h->path,
                           t->name, i);
        }
        t->shape[i] = dim;
        empty = empty || dim == 0;
        if (dim > 0 && __builtin_mul_overflow(t->elements, dim, &t->elements)) {
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: tensor %s: the shape's product overflows.",
                           h->path, t->name);
        }
    }
    if (empty) {
        t->elements = 0;
    }
    int64_t bits;
    int32_t element = oz_dtype_bits(t->dtype);
    if (__builtin_mul_overflow(t->elements, (int64_t)element, &bits)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: tensor %s: the shape's product overflows.", h->path,
                       t->name);
    }
    /* Rows of packed types fill whole bytes: an odd row would share one with its neighbour. */
    if (element % 8 != 0 && rank > 0 && t->shape[rank - 1] % 8 * element % 8 != 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: tensor %s: rows of %" PRId64 " elements of %s do not fill whole bytes.",
                       h->path, t->name, t->shape[rank - 1], oz_dtype_name(t->dtype));
    }
    return OZ_OK;
}

/* "data_offsets": [begin, end] inside the data. */
static enum oz_status read_range(const struct header *h, struct oz_tensor_view *t,
                                 const struct oz_json *range, struct oz_error *err)
{
    const struct oz_json *a = oz_json_at(range, 0);
    const struct oz_json *b = oz_json_at(range, 1);
    int64_t begin = oz_json_integer(a, -1);
    int64_t end = oz_json_integer(b, -1);
    if (oz_json_count(range) != 2 || oz_json_type(a) != OZ_JSON_INTEGER ||
        oz_json_type(b) != OZ_JSON_INTEGER || begin < 0 || end < begin) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: tensor %s: \"data_offsets\" must be two integers, begin <= end.",
                       h->path, t->name);
    }
    if (end > h->data_bytes) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: tensor %s ends at byte %" PRId64
                       " of the data, but the file holds only %" PRId64
                       " (is the download complete?).",
                       h->path, t->name, end, h->data_bytes);
    }
    t->bytes = end - begin;
    t->file = h->file;
    t->file_offset = h->data_begin + begin;
    return OZ_OK;
}

/* The range must have exactly the shape's bytes. */
static enum oz_status check_size(const struct header *h, const struct oz_tensor_view *t,
                                 struct oz_error *err)
{
    int64_t need;
    if (!oz_dtype_bytes(t->dtype, t->elements, &need)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: tensor %s: %" PRId64 " elements of %s do not fill whole bytes.",
                       h->path, t->name, t->elements, oz_dtype_name(t->dtype));
    }
    if (need != t->bytes) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: tensor %s: its shape needs %" PRId64
                       " bytes, its data_offsets span %" PRId64 ".",
                       h->path, t->name, need, t->bytes);
    }
    return OZ_OK;
}

static enum oz_status read_tensor(struct oz_ckpt *c, const struct header *h, const char *name,
                                  const struct oz_json *entry, struct oz_error *err)
{
    if (name[0] == '\0' || strlen(name) > OZ_CKPT_MAX_NAME_BYTES) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: a tensor's name must have 1 to %d bytes, not %zu.",
                       h->path, OZ_CKPT_MAX_NAME_BYTES, strlen(name));
    }
    struct oz_tensor_view *t = oz_ckpt_add_tensor(c);
    if (t == NULL || (t->name = oz_ckpt_own(c, name)) == NULL) {
        return OZ_FAIL_NOMEM(err, h->path);
    }
    const char *dtype = oz_json_string(oz_json_get(entry, "dtype"), NULL);
    if (oz_json_type(entry) != OZ_JSON_OBJECT || dtype == NULL || oz_json_count(entry) != 3) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: tensor %s must have exactly dtype, shape and data_offsets.", h->path,
                       name);
    }
    /* The range first: an unknown dtype must not be a way around it. */
    OZ_TRY(read_range(h, t, oz_json_get(entry, "data_offsets"), err));
    if (!oz_dtype_find(dtype, &t->dtype)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: tensor %s has the unknown dtype \"%s\"; a newer version may know it.",
                       h->path, name, dtype);
    }
    OZ_TRY(read_shape(h, t, oz_json_get(entry, "shape"), err));
    OZ_TRY(check_size(h, t, err));
    if (t->bytes > 0) {
        t->data = c->files[h->file].map + t->file_offset;
    }
    return OZ_OK;
}

static enum oz_status read_metadata(struct oz_ckpt *c, const struct header *h,
                                    const struct oz_json *meta, struct oz_error *err)
{
    if (oz_json_type(meta) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: __metadata__ must be an object, not %s.", h->path,
                       oz_json_type_name(meta));
    }
    for (void *it = oz_json_first(meta); it != NULL; it = oz_json_next(meta, it)) {
        const char *value = oz_json_string(oz_json_value(it), NULL);
        if (value == NULL) {
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: __metadata__ \"%s\" must be a string, not %s.",
                           h->path, oz_json_key(it), oz_json_type_name(oz_json_value(it)));
        }
        if (oz_ckpt_add_meta(c, oz_json_key(it), value) != OZ_OK) {
            return OZ_FAIL_NOMEM(err, h->path);
        }
    }
    return OZ_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct oz_tensor_view *x = a;
    const struct oz_tensor_view *y = b;
    if (x->file_offset != y->file_offset) {
        return x->file_offset < y->file_offset ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors of this file must cover its data without gap or overlap. Sorts them by offset. */
static enum oz_status check_cover(struct oz_ckpt *c, const struct header *h, int64_t first,
                                  struct oz_error *err)
{
    int64_t at = h->data_begin;
    if (c->count > first) {
        qsort(c->tensors + first, (size_t)(c->count - first), sizeof *c->tensors, by_offset);
    }
    for (int64_t i = first; i < c->count; i++) {
        const struct oz_tensor_view *t = &c->tensors[i];
        if (t->file_offset != at) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: tensor %s begins at byte %" PRId64 " of the file where %" PRId64
                           " was expected: the data %s. The file is damaged, or its writer is "
                           "at fault; download or convert it again.",
                           h->path, t->name, t->file_offset, at,
                           t->file_offset < at ? "overlap" : "have a hole");
        }
        at += t->bytes;
    }
    int64_t rest = h->data_begin + h->data_bytes - at;
    if (rest > 0) {
        oz_log(OZ_LOG_WARN, "ckpt", "%s: %" PRId64 " bytes after the last tensor are ignored.",
               h->path, rest);
    }
    return OZ_OK;
}

#define HEAD_BYTES 32 /* of a file, enough to tell its kind */

/* Files of other kinds that people hand over, by their first bytes. */
static enum oz_status check_kind(const struct oz_ckpt_file *f, const uint8_t *head,
                                 struct oz_error *err)
{
    static const struct {
        const char *magic, *what;
        enum oz_status status;
    } kinds[] = {
        {"version https://git-lfs",
         "is a Git LFS pointer, not the file itself; fetch it with \"git lfs pull\"",
         OZ_ERR_FORMAT},
        {"GGUF", "is a GGUF file and cannot be one of several safetensors files", OZ_ERR_FORMAT},
        {"PK\x03\x04",
         "is a PyTorch or zip archive; convert it to safetensors (pickles can run code and are not "
         "read)",
         OZ_ERR_UNSUPPORTED},
        /* A torch.save of old: protocol 2, then its magic number; "\x80\x02" alone is also the
         * length of a header. */
        {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20",
         "is a Python pickle; convert it to safetensors (pickles can run code and are not read)",
         OZ_ERR_UNSUPPORTED},
        {"<!DOCTYPE", "is a web page, not a checkpoint: the download went wrong", OZ_ERR_FORMAT},
        {"<html", "is a web page, not a checkpoint: the download went wrong", OZ_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].magic);
        if ((uint64_t)f->bytes >= n && memcmp(head, kinds[i].magic, n) == 0) {
            return OZ_FAIL(err, kinds[i].status, "%s %s.", f->path, kinds[i].what);
        }
    }
    return OZ_OK;
}

static enum oz_status fail_read(const struct oz_ckpt_file *f, struct oz_error *err)
{
    return OZ_FAIL(err, OZ_ERR_IO, "Cannot read the header of %s: %s.", f->path,
                   errno != 0 ? strerror(errno) : "the file has become shorter");
}

/* Header length, checked against the file and the limit. */
static enum oz_status header_length(const struct oz_ckpt *c, const struct oz_ckpt_file *f,
                                    int64_t *bytes, struct oz_error *err)
{
    uint64_t n = 0;
    uint8_t head[HEAD_BYTES] = {0};
    if (!oz_file_pread(f->fd, head, f->bytes < HEAD_BYTES ? f->bytes : HEAD_BYTES, 0)) {
        return fail_read(f, err);
    }
    OZ_TRY(check_kind(f, head, err));
    if (f->bytes < 8) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s has %" PRId64
                       " bytes: not a safetensors file (is the download complete?).",
                       f->path, f->bytes);
    }
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | head[i];
    }
    if (n > (uint64_t)c->max_header_bytes) {
        /* Only a length that could be one is worth a higher limit. */
        bool real = n <= (uint64_t)OZ_CKPT_HIGHEST_HEADER_BYTES && (int64_t)n <= f->bytes - 8;
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s claims a header of %" PRIu64 " bytes; at most %" PRId64 " are read. %s",
                       f->path, n, c->max_header_bytes,
                       real ? "If you trust the file, raise max_header_bytes (--max-header-bytes)."
                            : "Not a safetensors file?");
    }
    if ((int64_t)n > f->bytes - 8) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s claims a header of %" PRIu64 " bytes but has only %" PRId64
                       " (is the download complete?).",
                       f->path, n, f->bytes);
    }
    *bytes = (int64_t)n;
    return OZ_OK;
}

static enum oz_status read_entries(struct oz_ckpt *c, const struct header *h,
                                   const struct oz_json *root, struct oz_error *err)
{
    if (oz_json_type(root) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the header is %s, not an object.", h->path,
                       oz_json_type_name(root));
    }
    if (oz_json_count(root) > OZ_CKPT_MAX_TENSORS) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the header lists %zu tensors; at most %d are read.",
                       h->path, oz_json_count(root), OZ_CKPT_MAX_TENSORS);
    }
    int64_t first = c->count;
    for (void *it = oz_json_first(root); it != NULL; it = oz_json_next(root, it)) {
        const char *name = oz_json_key(it);
        if (strcmp(name, "__metadata__") == 0) {
            OZ_TRY(read_metadata(c, h, oz_json_value(it), err));
        } else {
            OZ_TRY(read_tensor(c, h, name, oz_json_value(it), err));
        }
    }
    return check_cover(c, h, first, err);
}

enum oz_status oz_safetensors_read(struct oz_ckpt *c, int32_t file, struct oz_error *err)
{
    const struct oz_ckpt_file *f = &c->files[file];
    int64_t bytes = 0;
    OZ_TRY(header_length(c, f, &bytes, err));
    /* A copy, so that a file that changes under us cannot change what has been checked. */
    char *text = oz_alloc((size_t)bytes);
    if (text == NULL) {
        return OZ_FAIL_NOMEM(err, f->path);
    }
    enum oz_status status = OZ_OK;
    struct oz_json *root = NULL;
    if (!oz_file_pread(f->fd, text, bytes, 8)) {
        status = fail_read(f, err);
    } else if (bytes < 2 || text[0] != '{') {
        status = OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the header does not begin with '{'.", f->path);
    }
    struct header h = {
        .path = f->path, .file = file, .data_begin = 8 + bytes, .data_bytes = f->bytes - 8 - bytes};
    if (status == OZ_OK) {
        status = oz_json_parse(&root, text, (size_t)bytes, f->path, err);
    }
    oz_free(text);
    if (status == OZ_OK) {
        status = read_entries(c, &h, root, err);
    }
    oz_json_free(root);
    return status;
}
