#include "text/vocab.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/unicode.h"

/* The byte that a character of the alphabet stands for, or -1. Printable bytes stand for themselves;
 * the other 68 follow from U+0100 on in ascending order: 0..32, 127..160, 173. */
static int byte_of(uint32_t c)
{
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 255 && c != 173)) {
        return (int)c;
    }
    if (c < 0x100 || c >= 0x100 + 68) {
        return -1;
    }
    uint32_t n = c - 0x100;
    return (int)(n <= 32 ? n : n <= 66 ? n - 33 + 127 : 173);
}

/* Decodes valid UTF-8 written in the alphabet; out may be as long as the text. False: another
 * character is in it. */
static bool decode_written(const char *text, size_t bytes, char *out, size_t *out_bytes)
{
    size_t n = 0;
    for (size_t i = 0, used; i < bytes; i += used) {
        int b = byte_of(oz_utf8_decode(text + i, bytes - i, &used));
        if (b < 0) {
            return false;
        }
        out[n++] = (char)b;
    }
    *out_bytes = n;
    return true;
}

enum oz_status oz_vocab_count(struct oz_vocab_need *need, const char *written, int64_t id,
                              const char *file, struct oz_error *err)
{
    if (id < 0 || id > OZ_VOCAB_MAX_ID) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the token \"%s\" has id %lld; ids lie in 0 to %d.",
                       file, written, (long long)id, OZ_VOCAB_MAX_ID);
    }
    need->max_id = id > need->max_id ? id : need->max_id;
    need->entries++;
    need->bytes += strlen(written);
    if (need->bytes > UINT32_MAX / 2) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the vocabulary has more than 2 GiB.", file);
    }
    return OZ_OK;
}

enum oz_status oz_vocab_init(struct oz_vocab *v, const struct oz_vocab_need *need,
                             struct oz_error *err)
{
    *v = (struct oz_vocab){.count = (int32_t)(need->entries > 0 ? need->max_id + 1 : 0)};
    memset(v->byte_id, 0xFF, sizeof v->byte_id);
    v->pool_capacity = need->bytes;
    v->pool = oz_alloc(need->bytes);
    v->tokens = oz_alloc_zero((size_t)v->count, sizeof *v->tokens);
    if (v->pool == NULL || v->tokens == NULL) {
        return OZ_FAIL_NOMEM(err, "a vocabulary");
    }
    OZ_TRY(oz_string_map_init(&v->by_bytes, need->entries, err));
    return oz_string_map_init(&v->by_content, need->entries, err);
}

void oz_vocab_deinit(struct oz_vocab *v)
{
    oz_string_map_deinit(&v->by_bytes);
    oz_string_map_deinit(&v->by_content);
    oz_free(v->tokens);
    oz_free(v->pool);
    *v = (struct oz_vocab){0};
}

/* Takes a free id for the bytes at the end of the pool. */
static enum oz_status take_id(struct oz_vocab *v, const char *written, int32_t id, size_t bytes,
                              const char *file, struct oz_error *err)
{
    struct oz_vocab_token *t = &v->tokens[id];
    if (t->known) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: id %d is given to two tokens; the second is \"%s\".", file, id,
                       written);
    }
    *t = (struct oz_vocab_token){
        .begin = (uint32_t)v->pool_bytes, .bytes = (uint32_t)bytes, .known = true};
    v->pool_bytes += bytes;
    return OZ_OK;
}

enum oz_status oz_vocab_add(struct oz_vocab *v, const char *written, int32_t id, const char *file,
                            struct oz_error *err)
{
    size_t bytes = strlen(written);
    char *text = v->pool + v->pool_bytes;
    struct oz_string_map *map = &v->by_bytes;
    if (!decode_written(written, bytes, text, &bytes)) {
        memcpy(text, written, bytes);
        map = &v->by_content;
    }
    OZ_TRY(take_id(v, written, id, bytes, file, err));
    if (!oz_string_map_put(map, text, bytes, id)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the token \"%s\" stands twice.", file, written);
    }
    return OZ_OK;
}

enum oz_status oz_vocab_add_added(struct oz_vocab *v, const char *content, int32_t id,
                                  const char *file, struct oz_error *err)
{
    size_t bytes = strlen(content);
    char *text = v->pool + v->pool_bytes;
    if (bytes == 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the added token %d is empty.", file, id);
    }
    int32_t old = oz_vocab_find_written(v, content, bytes, text);
    if (old >= 0 && (old != id || v->tokens[old].added)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s: the added token \"%s\" has id %d, but id %d has the same content.",
                       file, content, id, old);
    }
    memcpy(text, content, bytes);
    if (old >= 0) {
        /* It decodes as the content that it matches. */
        v->tokens[id].begin = (uint32_t)v->pool_bytes;
        v->tokens[id].bytes = (uint32_t)bytes;
        v->pool_bytes += bytes;
    } else {
        OZ_TRY(take_id(v, content, id, bytes, file, err));
    }
    v->tokens[id].added = true;
    (void)oz_string_map_put(&v->by_content, text, bytes, id);
    return OZ_OK;
}

enum oz_status oz_vocab_seal(struct oz_vocab *v, const char *file, struct oz_error *err)
{
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        v->byte_id[b] = oz_string_map_get(&v->by_bytes, &byte, 1, -1);
        bool in_utf8 = b < 0xC0 || (b > 0xC1 && b < 0xF5);
        if (v->byte_id[b] < 0 && in_utf8) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: the vocabulary has no token for the byte 0x%02X; a byte-level "
                           "vocabulary has one for each.",
                           file, b);
        }
    }
    return OZ_OK;
}

int32_t oz_vocab_find_written(const struct oz_vocab *v, const char *written, size_t bytes,
                              char *spare)
{
    size_t n;
    if (decode_written(written, bytes, spare, &n)) {
        int32_t id = oz_string_map_get(&v->by_bytes, spare, n, -1);
        if (id >= 0) {
            return id;
        }
    }
    return oz_string_map_get(&v->by_content, written, bytes, -1);
}
