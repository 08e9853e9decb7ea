/* vocab.json, merges.txt, added_tokens.json, tokenizer_config.json: how the Python tokenizers of
 * transformers store a Qwen2 tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer_impl.h"

/* The four files, and what is read from them. */
struct source {
    struct oz_tokenizer *tok;
    char *vocab_path, *merges_path, *added_path, *config_path;
    struct oz_json *vocab, *added, *config;
    struct oz_added_token *tokens;
    size_t token_count;
    struct oz_error *err;
};

static void close_source(struct source *s)
{
    oz_json_free(s->vocab);
    oz_json_free(s->added);
    oz_json_free(s->config);
    oz_free(s->tokens);
    oz_free(s->vocab_path);
    oz_free(s->merges_path);
    oz_free(s->added_path);
    oz_free(s->config_path);
}

static enum oz_status open_source(struct source *s, const char *folder)
{
    s->vocab_path = oz_file_join(folder, "vocab.json");
    s->merges_path = oz_file_join(folder, "merges.txt");
    s->added_path = oz_file_join(folder, "added_tokens.json");
    s->config_path = oz_file_join(folder, "tokenizer_config.json");
    if (s->vocab_path == NULL || s->merges_path == NULL || s->added_path == NULL ||
        s->config_path == NULL) {
        return OZ_FAIL_NOMEM(s->err, "file names");
    }
    if (!oz_file_exists(s->vocab_path)) {
        return OZ_FAIL(s->err, OZ_ERR_IO, "%s has neither tokenizer.json nor vocab.json.", folder);
    }
    OZ_TRY(oz_json_parse_file(&s->vocab, s->vocab_path, OZ_TOKENIZER_MAX_FILE_BYTES, s->err));
    if (oz_file_exists(s->added_path)) {
        OZ_TRY(oz_json_parse_file(&s->added, s->added_path, OZ_TOKENIZER_MAX_FILE_BYTES, s->err));
    }
    if (oz_file_exists(s->config_path)) {
        OZ_TRY(oz_json_parse_file(&s->config, s->config_path, OZ_TOKENIZER_MAX_FILE_BYTES, s->err));
    }
    return OZ_OK;
}

/* Of tokenizer_config.json only what changes ids matters here; templates and the like have other
 * readers. */
static enum oz_status check_config(const struct source *s)
{
    static const char *const unset[] = {"add_prefix_space", "add_bos_token", "add_eos_token",
                                        "split_special_tokens"};
    const char *class;
    if (s->config == NULL) {
        return OZ_OK;
    }
    OZ_TRY(oz_json_get_string(s->config, "tokenizer_class", "Qwen2Tokenizer", &class,
                              s->config_path, s->err));
    if (strcmp(class, "Qwen2Tokenizer") != 0 && strcmp(class, "Qwen2TokenizerFast") != 0) {
        return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED,
                       "%s: the tokenizer_class \"%s\" is not supported without a tokenizer.json; "
                       "only \"Qwen2Tokenizer\" is.",
                       s->config_path, class);
    }
    for (size_t i = 0; i < sizeof unset / sizeof unset[0]; i++) {
        bool set;
        OZ_TRY(oz_json_get_bool(s->config, unset[i], false, &set, s->config_path, s->err));
        if (set) {
            return OZ_FAIL(s->err, OZ_ERR_UNSUPPORTED, "%s: \"%s\": true is not supported.",
                           s->config_path, unset[i]);
        }
    }
    return OZ_OK;
}

/* added_tokens_decoder: {"id": {content, ...}}. */
static enum oz_status read_described(struct source *s, const struct oz_json *decoder)
{
    if (decoder != NULL && oz_json_type(decoder) != OZ_JSON_OBJECT) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: added_tokens_decoder must be an object, not %s.",
                       s->config_path, oz_json_type_name(decoder));
    }
    for (void *it = oz_json_first(decoder); it != NULL; it = oz_json_next(decoder, it)) {
        const char *key = oz_json_key(it);
        char *end;
        long id = strtol(key, &end, 10);
        if (key[0] < '0' || key[0] > '9' || *end != '\0' || id > OZ_VOCAB_MAX_ID) {
            return OZ_FAIL(s->err, OZ_ERR_FORMAT,
                           "%s: \"%s\" in added_tokens_decoder is not an id (0 to %d).",
                           s->config_path, key, OZ_VOCAB_MAX_ID);
        }
        OZ_TRY(oz_tokenizer_read_added(&s->tokens[s->token_count], oz_json_value(it), (int32_t)id,
                                       s->config_path, s->err));
        s->token_count++;
    }
    return OZ_OK;
}

/* added_tokens.json: {"content": id}; what added_tokens_decoder says again is not taken twice. */
static enum oz_status read_listed(struct source *s)
{
    size_t described = s->token_count;
    if (s->added != NULL && oz_json_type(s->added) != OZ_JSON_OBJECT) {
        return OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s must hold an object, not %s.", s->added_path,
                       oz_json_type_name(s->added));
    }
    struct oz_string_map known;
    OZ_TRY(oz_string_map_init(&known, described, s->err));
    for (size_t i = 0; i < described; i++) {
        const struct oz_added_token *t = &s->tokens[i];
        (void)oz_string_map_put(&known, t->content, strlen(t->content), t->id);
    }
    enum oz_status status = OZ_OK;
    for (void *it = oz_json_first(s->added); it != NULL; it = oz_json_next(s->added, it)) {
        const char *content = oz_json_key(it);
        int64_t id = oz_json_integer(oz_json_value(it), -1);
        int32_t other = oz_string_map_get(&known, content, strlen(content), -1);
        if (id < 0 || id > OZ_VOCAB_MAX_ID || content[0] == '\0' || (other >= 0 && other != id)) {
            status =
                OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s: the id of \"%s\" is wrong%s.", s->added_path,
                        content, other >= 0 ? ": tokenizer_config.json gives another" : "");
            break;
        }
        if (other < 0) {
            s->tokens[s->token_count++] =
                (struct oz_added_token){.content = content, .id = (int32_t)id};
        }
    }
    oz_string_map_deinit(&known);
    return status;
}

static enum oz_status read_merges(const struct source *s, const char *text)
{
    size_t lines = 1;
    for (const char *p = text; *p != '\0'; p++) {
        lines += *p == '\n';
    }
    OZ_TRY(oz_bpe_init(&s->tok->bpe, lines, s->err));
    size_t number = 0;
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        const char *next = line + n + (line[n] == '\n');
        number++;
        while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == ' ')) {
            n--;
        }
        if (n > 0 && !(number == 1 && strncmp(line, "#version", 8) == 0)) {
            const char *space = memchr(line, ' ', n);
            size_t left = space != NULL ? (size_t)(space - line) : 0;
            if (left == 0 || memchr(space + 1, ' ', n - left - 1) != NULL) {
                return OZ_FAIL(s->err, OZ_ERR_FORMAT,
                               "%s: line %zu is not two tokens with a space between.",
                               s->merges_path, number);
            }
            OZ_TRY(oz_bpe_add(&s->tok->bpe, &s->tok->vocab, line, left, space + 1, n - left - 1,
                              s->merges_path, s->err));
        }
        line = next;
    }
    return OZ_OK;
}

static enum oz_status read_all(struct source *s, const char *folder)
{
    OZ_TRY(open_source(s, folder));
    OZ_TRY(check_config(s));
    const struct oz_json *decoder = oz_json_get(s->config, "added_tokens_decoder");
    s->tokens = oz_alloc_zero(oz_json_count(decoder) + oz_json_count(s->added), sizeof *s->tokens);
    if (s->tokens == NULL) {
        return OZ_FAIL_NOMEM(s->err, "added tokens");
    }
    OZ_TRY(read_described(s, decoder));
    OZ_TRY(read_listed(s));
    OZ_TRY(oz_tokenizer_build_vocab(s->tok, s->vocab, s->tokens, s->token_count, s->vocab_path,
                                    s->err));
    s->tok->nfc = true;
    OZ_TRY(oz_pretokenizer_add(&s->tok->pre, oz_pattern_qwen2, s->vocab_path, s->err));
    char *text;
    size_t bytes;
    OZ_TRY(oz_file_read(s->merges_path, OZ_TOKENIZER_MAX_FILE_BYTES, &text, &bytes, s->err));
    enum oz_status status;
    if (strlen(text) == bytes) {
        status = read_merges(s, text);
    } else {
        status = OZ_FAIL(s->err, OZ_ERR_FORMAT, "%s has a zero byte at %zu.", s->merges_path,
                         strlen(text));
    }
    oz_free(text);
    return status;
}

enum oz_status oz_tokenizer_read_slow(struct oz_tokenizer *tok, const char *folder,
                                      struct oz_error *err)
{
    struct source s = {.tok = tok, .err = err};
    enum oz_status status = read_all(&s, folder);
    close_source(&s);
    return status;
}
