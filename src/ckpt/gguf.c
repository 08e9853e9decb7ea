/*
 * The GGUF container, version 3 (and 2, which differs in nothing that is read here): metadata, tensor
 * infos, data. Every rule that a safe reader must enforce is enforced here (checkpoint formats:
 * container rules): counts and lengths against the bytes that are left, before memory is taken;
 * checked arithmetic; types, alignment and offsets; a file in parts as a whole.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "base/unicode.h"
#include "ckpt/container.h"
#include "num/float.h"
#include "num/gguf.h"

#define MAX_RANK 5 /* ggml's own is 4; weights of video convolutions have 5 in the wild */
#define MAX_KEYS 65536
#define MAX_PARTS 1000
#define MAX_ALIGNMENT (1 << 20)
#define DEFAULT_ALIGNMENT 32
#define MAX_ARRAY (INT64_C(1) << 30) /* elements; ggml's own limit */
#define SHOWN_ELEMENTS 16            /* of an array that is kept as text */
#define WINDOW_BYTES 65536
#define SHAPE_KEY "comfy.gguf.orig_shape."

/* Types of metadata values. */
enum kv_type {
    KV_U8,
    KV_I8,
    KV_U16,
    KV_I16,
    KV_U32,
    KV_I32,
    KV_F32,
    KV_BOOL,
    KV_STRING,
    KV_ARRAY,
    KV_U64,
    KV_I64,
    KV_F64,
    KV_COUNT
};

static const struct {
    const char *name;
    int32_t bytes; /* of one; of strings and arrays what is there in any case */
} kv_types[KV_COUNT] = {
    [KV_U8] = {"u8", 1},   [KV_I8] = {"i8", 1},        [KV_U16] = {"u16", 2},
    [KV_I16] = {"i16", 2}, [KV_U32] = {"u32", 4},      [KV_I32] = {"i32", 4},
    [KV_F32] = {"f32", 4}, [KV_BOOL] = {"bool", 1},    [KV_STRING] = {"string", 8},
    [KV_U64] = {"u64", 8}, [KV_ARRAY] = {"array", 12}, [KV_I64] = {"i64", 8},
    [KV_F64] = {"f64", 8},
};

/* The header as it is read, a window at a time: what has been checked is a copy of what is there. */
struct cursor {
    const struct oz_ckpt_file *f;
    int64_t at, most; /* most: of bytes of the header that are read */
    int64_t window_at, window_bytes;
    uint8_t *window; /* [WINDOW_BYTES] */
    struct oz_error *err;
};

/* What one file says of itself. */
struct header {
    int64_t tensors, keys;
    uint32_t alignment;
    int64_t part, parts, all_tensors; /* of a file in parts; parts 0: it is whole */
    int64_t first;                    /* of its tensors in the table */
    int64_t data_begin;
};

/* ---- bytes ---- */

static int64_t left(const struct cursor *c)
{
    return c->f->bytes - c->at;
}

/* `bytes` more must be there, and within the limit; `what` is being read. */
static enum oz_status need(const struct cursor *c, uint64_t bytes, const char *what)
{
    if (bytes > (uint64_t)left(c)) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: the file ends within %s: %" PRIu64 " bytes at byte %" PRId64
                       " are too many for its %" PRId64 " (is the download complete?).",
                       c->f->path, what, bytes, c->at, c->f->bytes);
    }
    if (bytes > (uint64_t)(c->most - c->at)) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: the header has more than %" PRId64 " bytes; at most so many are read. "
                       "If you trust the file, raise max_header_bytes (--max-header-bytes).",
                       c->f->path, c->most);
    }
    return OZ_OK;
}

static enum oz_status take(struct cursor *c, void *dst, int64_t bytes, const char *what)
{
    uint8_t *to = dst;
    OZ_TRY(need(c, (uint64_t)bytes, what));
    while (bytes > 0) {
        int64_t from = c->at - c->window_at;
        if (from < 0 || from >= c->window_bytes) {
            int64_t n = left(c) < WINDOW_BYTES ? left(c) : WINDOW_BYTES;
            if (!oz_file_pread(c->f->fd, c->window, n, c->at)) {
                return OZ_FAIL(c->err, OZ_ERR_IO, "Cannot read the header of %s: %s.", c->f->path,
                               errno != 0 ? strerror(errno) : "the file has become shorter");
            }
            c->window_at = c->at;
            c->window_bytes = n;
            from = 0;
        }
        int64_t n = c->window_bytes - from < bytes ? c->window_bytes - from : bytes;
        memcpy(to, c->window + from, (size_t)n);
        to += n;
        c->at += n;
        bytes -= n;
    }
    return OZ_OK;
}

static enum oz_status skip(struct cursor *c, uint64_t bytes, const char *what)
{
    OZ_TRY(need(c, bytes, what));
    c->at += (int64_t)bytes;
    return OZ_OK;
}

static uint64_t little(const uint8_t *b, int bytes)
{
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        n = n << 8 | b[i];
    }
    return n;
}

static enum oz_status take_u32(struct cursor *c, uint32_t *out, const char *what)
{
    uint8_t b[4];
    OZ_TRY(take(c, b, 4, what));
    *out = (uint32_t)little(b, 4);
    return OZ_OK;
}

static enum oz_status take_u64(struct cursor *c, uint64_t *out, const char *what)
{
    uint8_t b[8];
    OZ_TRY(take(c, b, 8, what));
    *out = little(b, 8);
    return OZ_OK;
}

/* A string of at most `most` bytes in fresh memory (oz_free); *bytes without the zero behind it. */
static enum oz_status take_string(struct cursor *c, char **out, size_t *bytes, int64_t most,
                                  const char *what)
{
    uint64_t n;
    *out = NULL;
    OZ_TRY(take_u64(c, &n, what));
    OZ_TRY(need(c, n, what));
    if (n > (uint64_t)most) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: %s has %" PRIu64 " bytes; at most %" PRId64 " are read.", c->f->path,
                       what, n, most);
    }
    char *text = oz_alloc((size_t)n + 1);
    if (text == NULL) {
        return OZ_FAIL_NOMEM(c->err, what);
    }
    enum oz_status status = take(c, text, (int64_t)n, what);
    if (status != OZ_OK) {
        oz_free(text);
        return status;
    }
    text[n] = '\0';
    *out = text;
    *bytes = (size_t)n;
    return OZ_OK;
}

static bool is_text(const char *text, size_t bytes)
{
    size_t at;
    return memchr(text, 0, bytes) == NULL && oz_utf8_valid(text, bytes, &at);
}

/* A key or a tensor's name: 1 to OZ_CKPT_MAX_NAME_BYTES bytes of UTF-8. */
static enum oz_status take_name(struct cursor *c, char **out, const char *what)
{
    size_t bytes = 0;
    OZ_TRY(take_string(c, out, &bytes, OZ_CKPT_MAX_NAME_BYTES, what));
    if (bytes > 0 && is_text(*out, bytes)) {
        return OZ_OK;
    }
    oz_free(*out);
    *out = NULL;
    return OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s: %s before byte %" PRId64 " is %s.", c->f->path, what,
                   c->at, bytes == 0 ? "empty" : "no UTF-8 text");
}

/* ---- metadata ---- */

static void put_scalar(struct oz_buf *b, enum kv_type type, const uint8_t *raw)
{
    uint64_t n = little(raw, kv_types[type].bytes);
    switch (type) {
    case KV_I8: oz_buf_printf(b, "%d", (int)(int8_t)n); break;
    case KV_I16: oz_buf_printf(b, "%d", (int)(int16_t)n); break;
    case KV_I32: oz_buf_printf(b, "%" PRId32, (int32_t)n); break;
    case KV_I64: oz_buf_printf(b, "%" PRId64, (int64_t)n); break;
    case KV_F32: oz_buf_number(b, (double)oz_f32_from_bits((uint32_t)n)); break;
    case KV_F64: {
        double x;
        memcpy(&x, &n, sizeof x);
        oz_buf_number(b, x);
        break;
    }
    case KV_BOOL: oz_buf_puts(b, n != 0 ? "true" : "false"); break;
    default: oz_buf_printf(b, "%" PRIu64, n); break;
    }
}

/* An array: short ones of numbers become "[1,2]", others "17 of string". */
static enum oz_status take_array(struct cursor *c, const char *key, struct oz_buf *text)
{
    uint32_t type;
    uint64_t count;
    OZ_TRY(take_u32(c, &type, key));
    OZ_TRY(take_u64(c, &count, key));
    if (type >= KV_COUNT || type == KV_ARRAY) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: the array %s has elements of type %" PRIu32 ", which %s.", c->f->path,
                       key, type, type == KV_ARRAY ? "is an array again" : "is none");
    }
    if (count > (uint64_t)MAX_ARRAY) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: the array %s has %" PRIu64 " elements; at most %" PRId64 " are read.",
                       c->f->path, key, count, MAX_ARRAY);
    }
    int32_t bytes = kv_types[type].bytes;
    OZ_TRY(need(c, count * (uint64_t)bytes, key));
    bool shown = type != KV_STRING && count <= SHOWN_ELEMENTS;
    oz_buf_puts(text, shown ? "[" : "");
    for (uint64_t i = 0; i < count && (shown || type == KV_STRING); i++) {
        uint8_t raw[8];
        OZ_TRY(take(c, raw, bytes, key));
        if (type == KV_STRING) {
            OZ_TRY(skip(c, little(raw, 8), key));
            continue;
        }
        oz_buf_puts(text, i > 0 ? "," : "");
        put_scalar(text, (enum kv_type)type, raw);
    }
    if (shown) {
        oz_buf_puts(text, "]");
        return OZ_OK;
    }
    oz_buf_printf(text, "%" PRIu64 " of %s", count, kv_types[type].name);
    return type == KV_STRING ? OZ_OK : skip(c, count * (uint64_t)bytes, key);
}

/* A value as text. */
static enum oz_status take_value(struct cursor *c, const char *key, enum kv_type type,
                                 struct oz_buf *text)
{
    if (type == KV_ARRAY) {
        return take_array(c, key, text);
    }
    if (type != KV_STRING) {
        uint8_t raw[8];
        OZ_TRY(take(c, raw, kv_types[type].bytes, key));
        put_scalar(text, type, raw);
        return OZ_OK;
    }
    char *value;
    size_t bytes = 0;
    OZ_TRY(take_string(c, &value, &bytes, c->most, key));
    if (is_text(value, bytes)) {
        oz_buf_puts(text, value);
    } else {
        oz_log(OZ_LOG_WARN, "ckpt", "%s: the value of %s is no UTF-8 text and is left out.",
               c->f->path, key);
    }
    oz_free(value);
    return OZ_OK;
}

/* A number that the reader itself goes by. */
static enum oz_status to_number(const struct cursor *c, const char *key, enum kv_type type,
                                const char *text, int64_t *out)
{
    bool whole = type != KV_F32 && type != KV_F64 && type != KV_BOOL && type != KV_STRING &&
                 type != KV_ARRAY;
    errno = 0;
    *out = whole ? strtoll(text, NULL, 10) : -1;
    if (!whole || errno != 0 || *out < 0) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s: %s must be a number, not %s (%s).", c->f->path,
                       key, text, kv_types[type].name);
    }
    return OZ_OK;
}

static enum oz_status note_value(const struct cursor *c, struct header *h, const char *key,
                                 enum kv_type type, const char *text)
{
    int64_t *const parts[] = {&h->part, &h->parts, &h->all_tensors};
    static const char *const keys[] = {"split.no", "split.count", "split.tensors.count"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(key, keys[i]) == 0) {
            OZ_TRY(to_number(c, key, type, text, parts[i]));
        }
    }
    if (strcmp(key, "general.alignment") != 0) {
        return OZ_OK;
    }
    int64_t n;
    OZ_TRY(to_number(c, key, type, text, &n));
    if (n < 1 || n > MAX_ALIGNMENT || (n & (n - 1)) != 0) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: %s is %" PRId64 "; it must be a power of two up to %d.", c->f->path,
                       key, n, MAX_ALIGNMENT);
    }
    h->alignment = (uint32_t)n;
    return OZ_OK;
}

static enum oz_status take_key(struct cursor *c, struct oz_ckpt *ckpt, struct header *h,
                               struct oz_string_map *known)
{
    char *key;
    uint32_t type;
    struct oz_buf text;
    OZ_TRY(take_name(c, &key, "a key of the metadata"));
    enum oz_status status = take_u32(c, &type, key);
    oz_buf_init(&text, (size_t)c->most);
    if (status == OZ_OK && type >= KV_COUNT) {
        status =
            OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s: the value of %s has the unknown type %" PRIu32 ".",
                    c->f->path, key, type);
    }
    if (status == OZ_OK) {
        status = take_value(c, key, (enum kv_type)type, &text);
    }
    if (status == OZ_OK && text.status != OZ_OK) {
        status =
            OZ_FAIL(c->err, text.status, "%s: no memory for the value of %s.", c->f->path, key);
    }
    if (status == OZ_OK) {
        status = note_value(c, h, key, (enum kv_type)type, oz_buf_text(&text));
    }
    if (status == OZ_OK && oz_ckpt_add_meta(ckpt, key, oz_buf_text(&text)) != OZ_OK) {
        status = OZ_FAIL_NOMEM(c->err, c->f->path);
    }
    if (status == OZ_OK) {
        const char *own = ckpt->meta[ckpt->meta_count - 1].key;
        if (!oz_string_map_put(known, own, strlen(own), 0)) {
            status =
                OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s: the key %s is there twice.", c->f->path, key);
        }
    }
    oz_buf_deinit(&text);
    oz_free(key);
    return status;
}

static enum oz_status read_metadata(struct cursor *c, struct oz_ckpt *ckpt, struct header *h)
{
    struct oz_string_map known;
    OZ_TRY(oz_string_map_init(&known, (size_t)h->keys, c->err));
    enum oz_status status = OZ_OK;
    for (int64_t i = 0; i < h->keys && status == OZ_OK; i++) {
        status = take_key(c, ckpt, h, &known);
    }
    oz_string_map_deinit(&known);
    return status;
}

/* ---- tensor infos ---- */

/* Sizes, the fastest first; the view has them in row-major order. */
static enum oz_status take_shape(struct cursor *c, struct oz_tensor_view *t)
{
    uint32_t rank;
    OZ_TRY(take_u32(c, &rank, t->name));
    if (rank > MAX_RANK) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: tensor %s has %" PRIu32 " dimensions; at most %d are read.", c->f->path,
                       t->name, rank, MAX_RANK);
    }
    t->rank = (int32_t)rank;
    t->elements = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        uint64_t dim;
        OZ_TRY(take_u64(c, &dim, t->name));
        if (dim == 0 || dim > INT64_MAX ||
            __builtin_mul_overflow(t->elements, (int64_t)dim, &t->elements)) {
            return OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s: tensor %s: a dimension of %" PRIu64 " %s.",
                           c->f->path, t->name, dim,
                           dim == 0 ? "is no size" : "makes its size overflow");
        }
        t->shape[i] = (int64_t)dim;
    }
    return OZ_OK;
}

/* Type and bytes. Blocks run along the rows. */
static enum oz_status take_type(struct cursor *c, struct oz_tensor_view *t)
{
    uint32_t number;
    OZ_TRY(take_u32(c, &number, t->name));
    const struct oz_gguf_type *type = oz_gguf_type_find(number);
    if (type == NULL) {
        return OZ_FAIL(c->err, OZ_ERR_UNSUPPORTED,
                       "%s: tensor %s has the type %" PRIu32
                       ", which was taken back or is unknown; a newer version may know it.",
                       c->f->path, t->name, number);
    }
    int64_t cols = t->rank > 0 ? t->shape[t->rank - 1] : 1;
    if (cols % type->elements != 0) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: tensor %s: rows of %" PRId64
                       " elements are no whole blocks of %s (%d).",
                       c->f->path, t->name, cols, type->name, (int)type->elements);
    }
    t->dtype = type->dtype;
    t->codec = type->codec;
    if (__builtin_mul_overflow(t->elements / type->elements, (int64_t)type->bytes, &t->bytes)) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s: tensor %s: its size overflows.", c->f->path,
                       t->name);
    }
    return OZ_OK;
}

static enum oz_status take_tensor(struct cursor *c, struct oz_ckpt *ckpt, int32_t file)
{
    char *name;
    uint64_t offset;
    OZ_TRY(take_name(c, &name, "a tensor's name"));
    struct oz_tensor_view *t = oz_ckpt_add_tensor(ckpt);
    if (t != NULL) {
        t->name = oz_ckpt_own(ckpt, name);
    }
    oz_free(name);
    if (t == NULL || t->name == NULL) {
        return OZ_FAIL_NOMEM(c->err, c->f->path);
    }
    t->file = file;
    OZ_TRY(take_shape(c, t));
    OZ_TRY(take_type(c, t));
    OZ_TRY(take_u64(c, &offset, t->name));
    if (offset > (uint64_t)c->f->bytes) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s: tensor %s begins at byte %" PRIu64 " of the data, behind the file's "
                       "end (is the download complete?).",
                       c->f->path, t->name, offset);
    }
    t->file_offset = (int64_t)offset; /* of the data, until its begin is known */
    return OZ_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct oz_tensor_view *x = a;
    const struct oz_tensor_view *y = b;
    return (x->file_offset > y->file_offset) - (x->file_offset < y->file_offset);
}

/* n to the next multiple of a power of two; n is at most a file's size. */
static int64_t pad(int64_t n, uint32_t alignment)
{
    return (n + (int64_t)alignment - 1) & ~((int64_t)alignment - 1);
}

/* The data begin behind the header, and each tensor where the one before it ends, padded. */
static enum oz_status place_tensors(const struct cursor *c, struct oz_ckpt *ckpt,
                                    const struct header *h)
{
    int64_t begin = pad(c->at, h->alignment);
    int64_t at = begin;
    struct oz_tensor_view *tensors = ckpt->tensors + h->first;
    qsort(tensors, (size_t)h->tensors, sizeof *tensors, by_offset);
    for (int64_t i = 0; i < h->tensors; i++) {
        struct oz_tensor_view *t = &tensors[i];
        t->file_offset += begin;
        if (t->file_offset != at) {
            return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                           "%s: tensor %s begins at byte %" PRId64 " of the file where %" PRId64
                           " was expected (alignment %" PRIu32 "): the data %s. The file is "
                           "damaged, or its writer is at fault; download or convert it again.",
                           c->f->path, t->name, t->file_offset, at, h->alignment,
                           t->file_offset < at ? "overlap" : "have a hole");
        }
        if (t->bytes > c->f->bytes - at) {
            return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                           "%s: tensor %s needs %" PRId64 " bytes from byte %" PRId64
                           ", but the file has only %" PRId64 " (is the download complete?).",
                           c->f->path, t->name, t->bytes, at, c->f->bytes);
        }
        t->data = ckpt->files[t->file].map + t->file_offset;
        at = pad(at + t->bytes, h->alignment);
    }
    if (c->f->bytes > at) {
        oz_log(OZ_LOG_WARN, "ckpt", "%s: %" PRId64 " bytes after the last tensor are ignored.",
               c->f->path, c->f->bytes - at);
    }
    return OZ_OK;
}

/* ---- one file ---- */

/* Counts that are worth memory: each entry takes `least` bytes of the file at the least. */
static enum oz_status check_count(const struct cursor *c, uint64_t count, int64_t least,
                                  int64_t most, const char *what)
{
    if (count > (uint64_t)(left(c) / least) || count > (uint64_t)most) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                       "%s claims %" PRIu64 " %s; its %" PRId64 " bytes have room for %" PRId64
                       ", and at most %" PRId64 " are read (is the download complete?).",
                       c->f->path, count, what, c->f->bytes, left(c) / least, most);
    }
    return OZ_OK;
}

static enum oz_status take_counts(struct cursor *c, struct header *h)
{
    uint8_t magic[4];
    uint32_t version;
    uint64_t tensors;
    uint64_t keys;
    OZ_TRY(take(c, magic, 4, "its first bytes"));
    OZ_TRY(take_u32(c, &version, "the version"));
    if (memcmp(magic, "GGUF", 4) != 0) {
        return OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s does not begin with GGUF: not a GGUF file.",
                       c->f->path);
    }
    if ((version & 0xFFFFU) == 0 && version != 0) {
        return OZ_FAIL(c->err, OZ_ERR_UNSUPPORTED,
                       "%s is a GGUF file in big-endian order, which is not read; convert it.",
                       c->f->path);
    }
    if (version != 2 && version != 3) {
        return OZ_FAIL(c->err, OZ_ERR_UNSUPPORTED,
                       "%s is GGUF of version %" PRIu32 "; versions 2 and 3 are read.", c->f->path,
                       version);
    }
    OZ_TRY(take_u64(c, &tensors, "the number of tensors"));
    OZ_TRY(take_u64(c, &keys, "the number of keys"));
    OZ_TRY(check_count(c, tensors, 8 + 1 + 4 + 4 + 8, OZ_CKPT_MAX_TENSORS, "tensors"));
    OZ_TRY(check_count(c, keys, 8 + 1 + 4 + 1, MAX_KEYS, "keys"));
    h->tensors = (int64_t)tensors;
    h->keys = (int64_t)keys;
    return OZ_OK;
}

/* Reads the header of a file of the table and appends its tensors. */
static enum oz_status read_file(struct oz_ckpt *ckpt, int32_t file, struct header *h,
                                struct oz_error *err)
{
    struct cursor c = {.f = &ckpt->files[file], .most = ckpt->max_header_bytes, .err = err};
    *h = (struct header){.alignment = DEFAULT_ALIGNMENT, .first = ckpt->count};
    c.window = oz_alloc(WINDOW_BYTES);
    if (c.window == NULL) {
        return OZ_FAIL_NOMEM(err, c.f->path);
    }
    enum oz_status status = take_counts(&c, h);
    if (status == OZ_OK) {
        status = read_metadata(&c, ckpt, h);
    }
    for (int64_t i = 0; i < h->tensors && status == OZ_OK; i++) {
        status = take_tensor(&c, ckpt, file);
    }
    if (status == OZ_OK && h->tensors > 0) {
        status = place_tensors(&c, ckpt, h);
    }
    oz_free(c.window);
    return status;
}

/* ---- shapes of before ---- */

/* Writers that cannot keep a shape (five dimensions, rows shorter than a block) say it in a key. */
static enum oz_status restore_shape(struct oz_ckpt *ckpt, const struct oz_ckpt_meta *m,
                                    struct oz_error *err)
{
    const char *name = m->key + strlen(SHAPE_KEY);
    const char *at = m->value;
    int64_t index = 0;
    struct oz_tensor_view *t =
        oz_ckpt_find(ckpt, name, &index) != NULL ? &ckpt->tensors[index] : NULL;
    int64_t shape[OZ_CKPT_MAX_RANK];
    int64_t elements = 1;
    int32_t rank = 0;
    bool good = *at == '[';
    while (good && *at != ']' && *at != '\0') {
        char *end;
        errno = 0;
        int64_t dim = strtoll(at + 1, &end, 10);
        good = rank < OZ_CKPT_MAX_RANK && end != at + 1 && errno == 0 && dim > 0 &&
               !__builtin_mul_overflow(elements, dim, &elements) && (*end == ',' || *end == ']');
        if (good) {
            shape[rank++] = dim;
        }
        at = end;
    }
    if (!good || t == NULL || elements != t->elements) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: %s is %s, which %s.", ckpt->files[0].path, m->key,
                       m->value, t == NULL ? "belongs to no tensor" : "is no shape of the tensor");
    }
    t->rank = rank;
    memcpy(t->shape, shape, sizeof shape);
    return OZ_OK;
}

enum oz_status oz_gguf_restore_shapes(struct oz_ckpt *ckpt, struct oz_error *err)
{
    for (int32_t i = 0; i < ckpt->meta_count; i++) {
        if (strncmp(ckpt->meta[i].key, SHAPE_KEY, strlen(SHAPE_KEY)) == 0) {
            OZ_TRY(restore_shape(ckpt, &ckpt->meta[i], err));
        }
    }
    return OZ_OK;
}

/* ---- files in parts ---- */

/* "<stem>-00001-of-00003.gguf" to the path of another part; false: it is not called so. */
static bool part_path(const char *path, int64_t part, int64_t parts, char *out, size_t bytes)
{
    static const char pattern[] = "-00000-of-00000.gguf";
    size_t n = strlen(path);
    size_t tail = sizeof pattern - 1;
    if (n <= tail || n >= bytes) {
        return false;
    }
    for (size_t i = 0; i < tail; i++) {
        char c = path[n - tail + i];
        if (pattern[i] == '0' ? (c < '0' || c > '9') : c != pattern[i]) {
            return false;
        }
    }
    (void)snprintf(out, bytes, "%.*s-%05d-of-%05d.gguf", (int)(n - tail), path, (int)part + 1,
                   (int)parts);
    return true;
}

static enum oz_status open_part(struct oz_ckpt *ckpt, const char *path, int64_t part, int64_t parts,
                                struct header *h, struct oz_error *err)
{
    int32_t file;
    OZ_TRY(oz_ckpt_add_file(ckpt, path, &file, err));
    OZ_TRY(read_file(ckpt, file, h, err));
    if (h->part != part || h->parts != parts) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s says that it is part %" PRId64 " of %" PRId64 "; by its name it is part "
                       "%" PRId64 " of %" PRId64 ".",
                       path, h->part + 1, h->parts, part + 1, parts);
    }
    return OZ_OK;
}

/* The first part is known; the others beside it follow. */
static enum oz_status open_parts(struct oz_ckpt *ckpt, const char *path, const struct header *h,
                                 struct oz_error *err)
{
    char next[4096];
    struct header other;
    if (h->parts > MAX_PARTS || h->part >= h->parts ||
        !part_path(path, h->part, h->parts, next, sizeof next) || strcmp(path, next) != 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s says that it is part %" PRId64 " of %" PRId64 " (at most %d); it must "
                       "have a name that says so too: NAME-00001-of-00002.gguf.",
                       path, h->part + 1, h->parts, MAX_PARTS);
    }
    if (h->part != 0) {
        (void)part_path(path, 0, h->parts, next, sizeof next);
        return OZ_FAIL(err, OZ_ERR_ARG, "%s is one part of a file; open the first, %s.", path,
                       next);
    }
    for (int64_t i = 1; i < h->parts; i++) {
        (void)part_path(path, i, h->parts, next, sizeof next);
        OZ_TRY(open_part(ckpt, next, i, h->parts, &other, err));
    }
    if (h->all_tensors > 0 && h->all_tensors != ckpt->count) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s says that its parts have %" PRId64 " tensors; they have %" PRId64 ".",
                       path, h->all_tensors, ckpt->count);
    }
    return OZ_OK;
}

enum oz_status oz_gguf_read(struct oz_ckpt *ckpt, int32_t file, struct oz_error *err)
{
    struct header h;
    const char *path = ckpt->files[file].path;
    OZ_TRY(read_file(ckpt, file, &h, err));
    return h.parts > 1 ? open_parts(ckpt, path, &h, err) : OZ_OK;
}
