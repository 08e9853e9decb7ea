/* tokenizer.json, the format of the `tokenizers` library. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "text/tokenizer_impl.h"

/* The file being read. */
struct source {
    struct oz_tokenizer *tok;
    const char *file;
    struct oz_error *err;
};

static enum oz_status unsupported(const struct source *s, const char *what, const char *name)
{
    return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED, "%s: the %s \"%s\" is not supported.", s->file, what,
                   name);
}

/* The "type" of a part; OZ_ERR_FORMAT when it is no object that has one. */
static enum oz_status type_of(const struct source *s, const struct oz_json *v, const char *what,
                              const char **type)
{
    *type = oz_json_string(oz_json_get(v, "type"), NULL);
    return *type != NULL ? OZ_OK
                         : OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: the %s has no type.", s->file, what);
}

/* A member that must be absent, null, false, zero or the empty string. */
static enum oz_status refuse_set(const struct source *s, const struct oz_json *v, const char *key,
                                 const char *where)
{
    const struct oz_json *m = oz_json_get(v, key);
    const char *text = oz_json_string(m, NULL);
    bool set = false;
    switch (oz_json_type(m)) {
    case OZ_JSON_NULL: break;
    case OZ_JSON_BOOL: set = oz_json_bool(m, false); break;
    case OZ_JSON_STRING: set = text != NULL && text[0] != '\0'; break;
    case OZ_JSON_INTEGER:
    case OZ_JSON_REAL: set = oz_json_number(m, 1) < 0 || oz_json_number(m, 1) > 0; break;
    case OZ_JSON_ARRAY:
    case OZ_JSON_OBJECT: set = true; break;
    }
    return !set ? OZ_OK
                : OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED, "%s: \"%s\" of the %s is not supported.",
                          s->file, key, where);
}

static enum oz_status read_normalizer(const struct source *s, const struct oz_json *v, bool nested)
{
    const char *type;
    if (oz_json_type(v) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    OZ_TRY(type_of(s, v, "normalizer", &type));
    if (strcmp(type, "NFC") == 0) {
        static const char *const keys[] = {"type"};
        s->tok->nfc = true;
        return oz_tokenizer_check_keys(v, keys, 1, "the normalizer", s->file, s->err);
    }
    if (strcmp(type, "Sequence") != 0 || nested) {
        return unsupported(s, "normalizer", type);
    }
    const struct oz_json *list = oz_json_get(v, "normalizers");
    if (oz_json_type(list) != OZ_JSON_ARRAY) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: \"normalizers\" must be a list, not %s.",
                       s->file, oz_json_type_name(list));
    }
    for (size_t i = 0; i < oz_json_count(list); i++) {
        OZ_TRY(read_normalizer(s, oz_json_at(list, i), true));
    }
    return OZ_OK;
}

static enum oz_status read_split(const struct source *s, const struct oz_json *v)
{
    static const char *const keys[] = {"type", "pattern", "behavior", "invert"};
    static const char *const pattern_keys[] = {"Regex"};
    const char *behavior;
    const char *pattern;
    OZ_TRY(oz_tokenizer_check_keys(v, keys, 4, "the Split pre-tokenizer", s->file, s->err));
    OZ_TRY(oz_json_get_string(v, "behavior", "", &behavior, s->file, s->err));
    if (strcmp(behavior, "Isolated") != 0) {
        return unsupported(s, "Split behavior", behavior);
    }
    OZ_TRY(refuse_set(s, v, "invert", "Split pre-tokenizer"));
    const struct oz_json *p = oz_json_get(v, "pattern");
    OZ_TRY(oz_tokenizer_check_keys(p, pattern_keys, 1, "the pattern of Split", s->file, s->err));
    OZ_TRY(oz_json_get_string(p, "Regex", NULL, &pattern, s->file, s->err));
    if (pattern == NULL) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: a Split pre-tokenizer has no pattern.", s->file);
    }
    return oz_pretokenizer_add(&s->tok->pre, pattern, s->file, s->err);
}

static enum oz_status read_byte_level(const struct source *s, const struct oz_json *v)
{
    static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex"};
    bool use_regex;
    bool prefix;
    OZ_TRY(oz_tokenizer_check_keys(v, keys, 4, "the ByteLevel pre-tokenizer", s->file, s->err));
    OZ_TRY(oz_json_get_bool(v, "use_regex", true, &use_regex, s->file, s->err));
    OZ_TRY(oz_json_get_bool(v, "add_prefix_space", true, &prefix, s->file, s->err));
    if (prefix) {
        return OZ_FAIL(
            s->err, OZ_ERR_UNSUPPORTED,
            "%s: the ByteLevel pre-tokenizer's \"add_prefix_space\": true (which is also "
            "its default) is not supported.",
            s->file);
    }
    return use_regex ? oz_pretokenizer_add(&s->tok->pre, oz_pattern_gpt2, s->file, s->err) : OZ_OK;
}

/* ByteLevel, or a Sequence of Splits that ends with it. */
static enum oz_status read_pretokenizer(const struct source *s, const struct oz_json *v)
{
    const char *type = "null";
    if (oz_json_type(v) != OZ_JSON_NULL) {
        OZ_TRY(type_of(s, v, "pre-tokenizer", &type));
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return read_byte_level(s, v);
    }
    if (strcmp(type, "Sequence") != 0) {
        return unsupported(s, "pre-tokenizer", type);
    }
    const struct oz_json *list = oz_json_get(v, "pretokenizers");
    size_t count = oz_json_type(list) == OZ_JSON_ARRAY ? oz_json_count(list) : 0;
    for (size_t i = 0; i < count; i++) {
        OZ_TRY(type_of(s, oz_json_at(list, i), "pre-tokenizer", &type));
        bool last = i + 1 == count;
        if (strcmp(type, last ? "ByteLevel" : "Split") != 0) {
            return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED,
                           "%s: part %zu of the pre-tokenizer is \"%s\"; supported are parts "
                           "\"Split\" and a last one \"ByteLevel\".",
                           s->file, i + 1, type);
        }
        OZ_TRY(last ? read_byte_level(s, oz_json_at(list, i)) : read_split(s, oz_json_at(list, i)));
    }
    return count > 0
               ? OZ_OK
               : OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: the pre-tokenizer has no parts.", s->file);
}

/* A post-processor may do nothing to ids. */
static enum oz_status check_post_processor(const struct source *s, const struct oz_json *v)
{
    const char *type;
    if (oz_json_type(v) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    OZ_TRY(type_of(s, v, "post_processor", &type));
    if (strcmp(type, "ByteLevel") == 0) {
        return OZ_OK;
    }
    if (strcmp(type, "TemplateProcessing") != 0) {
        return unsupported(s, "post_processor", type);
    }
    const struct oz_json *single = oz_json_get(v, "single");
    if (oz_json_count(single) != 1 || oz_json_get(oz_json_at(single, 0), "Sequence") == NULL) {
        return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED,
                       "%s: a post_processor that adds tokens is not supported.", s->file);
    }
    return OZ_OK;
}

static enum oz_status check_decoder(const struct source *s, const struct oz_json *v)
{
    const char *type;
    if (oz_json_type(v) == OZ_JSON_NULL) {
        return OZ_OK;
    }
    OZ_TRY(type_of(s, v, "decoder", &type));
    return strcmp(type, "ByteLevel") == 0 ? OZ_OK : unsupported(s, "decoder", type);
}

/* "a b" or ["a", "b"]. */
static enum oz_status read_merge(const struct source *s, const struct oz_json *v, size_t number)
{
    const char *left = oz_json_string(v, NULL);
    const char *right;
    size_t left_bytes;
    if (left != NULL) {
        const char *space = strchr(left, ' ');
        right = space != NULL && strchr(space + 1, ' ') == NULL ? space + 1 : NULL;
        left_bytes = space != NULL ? (size_t)(space - left) : 0;
    } else {
        left = oz_json_string(oz_json_at(v, 0), NULL);
        right = oz_json_count(v) == 2 ? oz_json_string(oz_json_at(v, 1), NULL) : NULL;
        left_bytes = left != NULL ? strlen(left) : 0;
    }
    if (left == NULL || right == NULL) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: merge %zu is not a pair of tokens.", s->file,
                       number);
    }
    return oz_bpe_add(&s->tok->bpe, &s->tok->vocab, left, left_bytes, right, strlen(right), s->file,
                      s->err);
}

static enum oz_status read_model(const struct source *s, const struct oz_json *model,
                                 const struct oz_added_token *added, size_t added_count)
{
    /* Every byte has a token, so what concerns unknown ones has no effect. */
    static const char *const keys[] = {
        "type",     "dropout",       "unk_token",     "continuing_subword_prefix",
        "fuse_unk", "byte_fallback", "ignore_merges", "end_of_word_suffix",
        "vocab",    "merges"};
    static const char *const unset[] = {"dropout", "continuing_subword_prefix",
                                        "end_of_word_suffix", "byte_fallback"};
    const char *type;
    OZ_TRY(oz_json_get_string(model, "type", "BPE", &type, s->file, s->err));
    if (strcmp(type, "BPE") != 0) {
        return unsupported(s, "model type", type);
    }
    OZ_TRY(oz_tokenizer_check_keys(model, keys, sizeof keys / sizeof keys[0], "the model", s->file,
                                   s->err));
    for (size_t i = 0; i < sizeof unset / sizeof unset[0]; i++) {
        OZ_TRY(refuse_set(s, model, unset[i], "model"));
    }
    OZ_TRY(oz_tokenizer_build_vocab(s->tok, oz_json_get(model, "vocab"), added, added_count,
                                    s->file, s->err));
    const struct oz_json *merges = oz_json_get(model, "merges");
    if (oz_json_type(merges) != OZ_JSON_ARRAY) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: \"merges\" must be a list, not %s.", s->file,
                       oz_json_type_name(merges));
    }
    size_t count = oz_json_count(merges);
    OZ_TRY(oz_bpe_init(&s->tok->bpe, count, s->err));
    for (size_t i = 0; i < count; i++) {
        OZ_TRY(read_merge(s, oz_json_at(merges, i), i + 1));
    }
    return oz_json_get_bool(model, "ignore_merges", false, &s->tok->bpe.ignore_merges, s->file,
                            s->err);
}

/* `added` has room for all of them. */
static enum oz_status read_added(const struct source *s, const struct oz_json *list,
                                 struct oz_added_token *added)
{
    for (size_t i = 0; i < oz_json_count(list); i++) {
        int64_t id;
        const struct oz_json *v = oz_json_at(list, i);
        OZ_TRY(oz_json_get_integer(v, "id", -1, 0, OZ_VOCAB_MAX_ID, &id, s->file, s->err));
        if (id < 0) {
            return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: the added token %zu has no id.", s->file,
                           i + 1);
        }
        OZ_TRY(oz_tokenizer_read_added(&added[i], v, (int32_t)id, s->file, s->err));
    }
    return OZ_OK;
}

static enum oz_status read_root(const struct source *s, const struct oz_json *root)
{
    static const char *const keys[] = {"version",      "truncation",     "padding",
                                       "added_tokens", "normalizer",     "pre_tokenizer",
                                       "model",        "post_processor", "decoder"};
    OZ_TRY(oz_tokenizer_check_keys(root, keys, sizeof keys / sizeof keys[0], "the tokenizer",
                                   s->file, s->err));
    OZ_TRY(read_normalizer(s, oz_json_get(root, "normalizer"), false));
    OZ_TRY(read_pretokenizer(s, oz_json_get(root, "pre_tokenizer")));
    OZ_TRY(check_post_processor(s, oz_json_get(root, "post_processor")));
    OZ_TRY(check_decoder(s, oz_json_get(root, "decoder")));
    const struct oz_json *list = oz_json_get(root, "added_tokens");
    if (oz_json_type(list) != OZ_JSON_ARRAY && oz_json_type(list) != OZ_JSON_NULL) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: \"added_tokens\" must be a list, not %s.",
                       s->file, oz_json_type_name(list));
    }
    struct oz_added_token *added = oz_alloc_zero(oz_json_count(list), sizeof *added);
    if (added == NULL) {
        return OZ_FAIL_NOMEM(s->err, "added tokens");
    }
    enum oz_status status = read_added(s, list, added);
    if (status == OZ_OK) {
        status = read_model(s, oz_json_get(root, "model"), added, oz_json_count(list));
    }
    oz_free(added);
    return status;
}

enum oz_status oz_tokenizer_read_json(struct oz_tokenizer *tok, const char *path,
                                      struct oz_error *err)
{
    struct source s = {.tok = tok, .file = path, .err = err};
    struct oz_json *root;
    OZ_TRY(oz_json_parse_file(&root, path, OZ_TOKENIZER_MAX_FILE_BYTES, err));
    enum oz_status status = read_root(&s, root);
    oz_json_free(root);
    return status;
}
