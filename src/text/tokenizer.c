#include "text/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/unicode.h"
#include "text/tokenizer_impl.h"

void oz_token_list_init(struct oz_token_list *list, size_t max_count)
{
    *list = (struct oz_token_list){.max_count = max_count};
}

void oz_token_list_deinit(struct oz_token_list *list)
{
    oz_free(list->ids);
    *list = (struct oz_token_list){.max_count = list->max_count};
}

enum oz_status oz_token_list_push(struct oz_token_list *list, int32_t id, struct oz_error *err)
{
    if (list->count >= list->max_count) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The text has more than %zu tokens.", list->max_count);
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity + list->capacity / 2 + 64;
        int32_t *ids = capacity <= SIZE_MAX / sizeof *ids
                           ? oz_realloc(list->ids, capacity * sizeof *ids)
                           : NULL;
        if (ids == NULL) {
            return OZ_FAIL_NOMEM(err, "tokens");
        }
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return OZ_OK;
}

enum oz_status oz_tokenizer_check_keys(const struct oz_json *v, const char *const *known,
                                       size_t count, const char *where, const char *file,
                                       struct oz_error *err)
{
    if (oz_json_type(v) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: %s must be an object, not %s.", file, where,
                       oz_json_type_name(v));
    }
    for (void *it = oz_json_first(v); it != NULL; it = oz_json_next(v, it)) {
        const char *key = oz_json_key(it);
        size_t i = 0;
        while (i < count && strcmp(key, known[i]) != 0) {
            i++;
        }
        if (i == count) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "%s: %s has \"%s\", which is not supported.",
                           file, where, key);
        }
    }
    return OZ_OK;
}

enum oz_status oz_tokenizer_read_added(struct oz_added_token *out, const struct oz_json *v,
                                       int32_t id, const char *file, struct oz_error *err)
{
    static const char *const keys[] = {"id",          "content",    "lstrip",  "rstrip",
                                       "single_word", "normalized", "special", "__type"};
    bool single_word;
    bool normalized;
    OZ_TRY(oz_tokenizer_check_keys(v, keys, sizeof keys / sizeof keys[0], "an added token", file,
                                   err));
    *out = (struct oz_added_token){.id = id};
    OZ_TRY(oz_json_get_string(v, "content", NULL, &out->content, file, err));
    if (out->content == NULL || out->content[0] == '\0') {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the added token %d has no content.", file, id);
    }
    OZ_TRY(oz_json_get_bool(v, "lstrip", false, &out->lstrip, file, err));
    OZ_TRY(oz_json_get_bool(v, "rstrip", false, &out->rstrip, file, err));
    OZ_TRY(oz_json_get_bool(v, "single_word", false, &single_word, file, err));
    OZ_TRY(oz_json_get_bool(v, "normalized", false, &normalized, file, err));
    if (single_word || normalized) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: the added token \"%s\" has \"%s\": true, which is not supported.", file,
                       out->content, single_word ? "single_word" : "normalized");
    }
    return OZ_OK;
}

enum oz_status oz_tokenizer_build_vocab(struct oz_tokenizer *tok, const struct oz_json *entries,
                                        const struct oz_added_token *added, size_t added_count,
                                        const char *file, struct oz_error *err)
{
    struct oz_vocab_need need = {0};
    if (oz_json_type(entries) != OZ_JSON_OBJECT) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: the vocabulary must be an object, not %s.", file,
                       oz_json_type_name(entries));
    }
    for (void *it = oz_json_first(entries); it != NULL; it = oz_json_next(entries, it)) {
        const struct oz_json *id = oz_json_value(it);
        if (oz_json_type(id) != OZ_JSON_INTEGER) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: the id of the token \"%s\" must be an integer, not %s.", file,
                           oz_json_key(it), oz_json_type_name(id));
        }
        OZ_TRY(oz_vocab_count(&need, oz_json_key(it), oz_json_integer(id, -1), file, err));
    }
    for (size_t i = 0; i < added_count; i++) {
        OZ_TRY(oz_vocab_count(&need, added[i].content, added[i].id, file, err));
    }
    OZ_TRY(oz_vocab_init(&tok->vocab, &need, err));
    for (void *it = oz_json_first(entries); it != NULL; it = oz_json_next(entries, it)) {
        int32_t id = (int32_t)oz_json_integer(oz_json_value(it), -1);
        OZ_TRY(oz_vocab_add(&tok->vocab, oz_json_key(it), id, file, err));
    }
    OZ_TRY(oz_vocab_seal(&tok->vocab, file, err));
    for (size_t i = 0; i < added_count; i++) {
        OZ_TRY(oz_vocab_add_added(&tok->vocab, added[i].content, added[i].id, file, err));
    }
    return oz_added_init(&tok->added, added, added_count, err);
}

enum oz_status oz_tokenizer_open(struct oz_tokenizer **out, const char *folder,
                                 struct oz_error *err)
{
    *out = NULL;
    char *path = oz_file_join(folder, "tokenizer.json");
    struct oz_tokenizer *tok = oz_alloc_zero(1, sizeof *tok);
    enum oz_status status = OZ_OK;
    if (path == NULL || tok == NULL) {
        status = OZ_FAIL_NOMEM(err, "a tokenizer");
    } else if (oz_file_exists(path)) {
        status = oz_tokenizer_read_json(tok, path, err);
    } else {
        status = oz_tokenizer_read_slow(tok, folder, err);
    }
    oz_free(path);
    if (status != OZ_OK) {
        oz_tokenizer_close(&tok);
        return status;
    }
    *out = tok;
    return OZ_OK;
}

void oz_tokenizer_close(struct oz_tokenizer **tok)
{
    if (*tok != NULL) {
        oz_pretokenizer_deinit(&(*tok)->pre);
        oz_added_deinit(&(*tok)->added);
        oz_bpe_deinit(&(*tok)->bpe);
        oz_vocab_deinit(&(*tok)->vocab);
        oz_free(*tok);
    }
    *tok = NULL;
}

int32_t oz_tokenizer_count(const struct oz_tokenizer *tok)
{
    return tok->vocab.count;
}

int32_t oz_tokenizer_find(const struct oz_tokenizer *tok, const char *content)
{
    size_t bytes = strlen(content);
    int32_t id = oz_string_map_get(&tok->vocab.by_content, content, bytes, -1);
    return id >= 0 ? id : oz_string_map_get(&tok->vocab.by_bytes, content, bytes, -1);
}

/* One call of oz_tokenizer_encode. */
struct encoding {
    const struct oz_tokenizer *tok;
    struct oz_bpe_scratch scratch;
    struct oz_token_list *out;
};

static enum oz_status encode_piece(void *ctx, const char *piece, size_t bytes, struct oz_error *err)
{
    struct encoding *e = ctx;
    return oz_bpe_encode(&e->tok->bpe, &e->tok->vocab, piece, bytes, &e->scratch, e->out, err);
}

/* What lies between two added tokens. */
static enum oz_status encode_plain(struct encoding *e, const char *text, size_t bytes,
                                   struct oz_error *err)
{
    char *normal = NULL;
    if (bytes == 0) {
        return OZ_OK;
    }
    if (e->tok->nfc) {
        OZ_TRY(oz_unicode_nfc(text, bytes, &normal, &bytes, err));
        text = normal;
    }
    enum oz_status status = oz_pretokenizer_split(&e->tok->pre, text, bytes, encode_piece, e, err);
    oz_free(normal);
    return status;
}

/* Encodes up to the last added token within text[begin, end), where added tokens match. *plain is
 * where the text begins that is not encoded yet. */
static enum oz_status encode_window(struct encoding *e, const char *text, size_t begin, size_t end,
                                    size_t *plain, struct oz_error *err)
{
    struct oz_added_match m;
    while (oz_added_find(&e->tok->added, text, begin, end, &m)) {
        OZ_TRY(encode_plain(e, text + *plain, m.begin - *plain, err));
        OZ_TRY(oz_token_list_push(e->out, m.id, err));
        *plain = m.end;
        begin = m.end;
    }
    return OZ_OK;
}

static enum oz_status check_text(const char *text, size_t bytes, const struct oz_text_span *exempt,
                                 size_t exempt_count, struct oz_error *err)
{
    size_t at = 0;
    if (bytes > OZ_TOKENIZER_MAX_TEXT_BYTES) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The text has %zu bytes; at most %zu are encoded.", bytes,
                       OZ_TOKENIZER_MAX_TEXT_BYTES);
    }
    if (!oz_utf8_valid(text, bytes, &at)) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "The text is not valid UTF-8 at byte %zu (0x%02X). Convert it first.", at,
                       (unsigned char)text[at]);
    }
    at = 0;
    for (size_t i = 0; i < exempt_count; i++) {
        if (exempt[i].begin < at || exempt[i].end < exempt[i].begin || exempt[i].end > bytes) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "Span %zu, [%zu, %zu), is out of order in a text of %zu bytes.", i,
                           exempt[i].begin, exempt[i].end, bytes);
        }
        at = exempt[i].end;
    }
    return OZ_OK;
}

enum oz_status oz_tokenizer_encode(const struct oz_tokenizer *tok, const char *text, size_t bytes,
                                   const struct oz_text_span *exempt, size_t exempt_count,
                                   struct oz_token_list *out, struct oz_error *err)
{
    struct encoding e = {.tok = tok, .out = out};
    size_t count_before = out->count;
    size_t window = 0;
    size_t plain = 0;
    OZ_TRY(check_text(text, bytes, exempt, exempt_count, err));
    enum oz_status status = OZ_OK;
    for (size_t i = 0; i <= exempt_count && status == OZ_OK; i++) {
        if (i < exempt_count && exempt[i].begin == exempt[i].end) {
            continue; /* nothing is exempt: the window goes on */
        }
        size_t end = i < exempt_count ? exempt[i].begin : bytes;
        status = encode_window(&e, text, window, end, &plain, err);
        window = i < exempt_count ? exempt[i].end : bytes;
    }
    if (status == OZ_OK) {
        status = encode_plain(&e, text + plain, bytes - plain, err);
    }
    oz_bpe_scratch_deinit(&e.scratch);
    if (status != OZ_OK) {
        out->count = count_before;
    }
    return status;
}

enum oz_status oz_tokenizer_decode(const struct oz_tokenizer *tok, const int32_t *ids, size_t count,
                                   struct oz_buf *out, struct oz_error *err)
{
    const struct oz_vocab *v = &tok->vocab;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= v->count || !v->tokens[ids[i]].known) {
            return OZ_FAIL(err, OZ_ERR_ARG, "There is no token %d; the tokenizer has ids up to %d.",
                           ids[i], v->count - 1);
        }
        oz_buf_append(out, v->pool + v->tokens[ids[i]].begin, v->tokens[ids[i]].bytes);
    }
    if (out->status == OZ_ERR_NOMEM) {
        return OZ_FAIL_NOMEM(err, "a text");
    }
    return out->status == OZ_OK
               ? OZ_OK
               : OZ_FAIL(err, out->status, "The text is longer than %zu bytes.", out->max_bytes);
}
