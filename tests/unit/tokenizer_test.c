/* Tokenizers: the golden files in both formats, and small tokenizers made here for the edges. */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/unicode.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

#define GOLDEN OZ_TEST_DIR "/golden/tokenizer"
#define MODEL OZ_TEST_DIR "/../models/emoji/tokenizer"
#define NO_LIMIT OZ_TOKENIZER_MAX_TEXT_BYTES

static struct oz_error err;

static struct oz_tokenizer *must_open(const char *folder)
{
    struct oz_tokenizer *tok;
    if (oz_tokenizer_open(&tok, folder, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    return tok;
}

static void must_encode(const struct oz_tokenizer *tok, const char *text, size_t bytes,
                        struct oz_token_list *out)
{
    out->count = 0;
    if (oz_tokenizer_encode(tok, text, bytes, NULL, 0, out, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

/* ---- golden files ---- */

/* The JSON door takes no zero bytes, and texts have some: U+E0FF, which none of them has, stands for
 * zero in between. */
static struct oz_json *read_golden(const char *name)
{
    struct oz_json *root;
    char *text;
    size_t bytes;
    char *path = oz_file_join(GOLDEN, name);
    assert_int_equal(oz_file_read(path, 1 << 20, &text, &bytes, &err), OZ_OK);
    for (char *p = text; (p = strstr(p, "\\u0000")) != NULL;) {
        memcpy(p, "\\ue0ff", 6);
    }
    if (oz_json_parse(&root, text, bytes, path, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    oz_free(text);
    oz_free(path);
    return root;
}

/* A string of a golden file in fresh memory, zeros put back. Works within spans only if no zero comes
 * before one: offsets would shift, and none does. */
static char *golden_text(const struct oz_json *v, size_t *bytes)
{
    const char *in = oz_json_string(v, NULL);
    assert_non_null(in);
    char *out = oz_alloc(strlen(in) + 1);
    size_t n = 0;
    while (*in != '\0') {
        bool zero = strncmp(in, "\xEE\x83\xBF", 3) == 0;
        out[n++] = zero ? '\0' : *in;
        in += zero ? 3 : 1;
    }
    out[n] = '\0';
    *bytes = n;
    return out;
}

static void check_ids(const struct oz_token_list *got, const struct oz_json *want, size_t number)
{
    bool equal = got->count == oz_json_count(want);
    for (size_t i = 0; equal && i < got->count; i++) {
        equal = got->ids[i] == oz_json_integer(oz_json_at(want, i), -1);
    }
    if (!equal) {
        for (size_t i = 0; i < got->count; i++) {
            print_message("%d ", got->ids[i]);
        }
        fail_msg("case %zu: %zu ids, %zu wanted, or others", number, got->count,
                 oz_json_count(want));
    }
}

static void check_decoded(const struct oz_tokenizer *tok, const struct oz_token_list *ids,
                          const char *want, size_t bytes, size_t number)
{
    struct oz_buf out;
    oz_buf_init(&out, NO_LIMIT);
    assert_int_equal(oz_tokenizer_decode(tok, ids->ids, ids->count, &out, &err), OZ_OK);
    if (out.bytes != bytes || memcmp(oz_buf_text(&out), want, bytes) != 0) {
        fail_msg("case %zu decodes as \"%s\"", number, oz_buf_text(&out));
    }
    oz_buf_deinit(&out);
}

/* Pieces as they come, against the list of a case. */
struct pieces {
    const struct oz_json *want;
    struct oz_buf all;
    size_t next;
};

static enum oz_status take_piece(void *ctx, const char *piece, size_t bytes, struct oz_error *e)
{
    struct pieces *p = ctx;
    size_t n;
    (void)e;
    char *want = golden_text(oz_json_at(p->want, p->next++), &n);
    bool equal = n == bytes && memcmp(want, piece, n) == 0;
    oz_free(want);
    oz_buf_append(&p->all, piece, bytes);
    return equal ? OZ_OK : OZ_ERR_THRESHOLD;
}

static enum oz_status split_plain(const struct oz_tokenizer *tok, struct pieces *p,
                                  const char *text, size_t bytes)
{
    char *normal;
    assert_int_equal(oz_unicode_nfc(text, bytes, &normal, &bytes, &err), OZ_OK);
    enum oz_status status = oz_pretokenizer_split(&tok->pre, normal, bytes, take_piece, p, &err);
    oz_free(normal);
    return status;
}

static void check_pieces(const struct oz_tokenizer *tok, struct pieces *p, const char *text,
                         size_t bytes, size_t number)
{
    struct oz_added_match m;
    size_t at = 0;
    enum oz_status status = OZ_OK;
    while (status == OZ_OK && oz_added_find(&tok->added, text, at, bytes, &m)) {
        status = split_plain(tok, p, text + at, m.begin - at);
        if (status == OZ_OK) {
            status = take_piece(p, text + m.begin, m.end - m.begin, &err);
        }
        at = m.end;
    }
    if (status == OZ_OK) {
        status = split_plain(tok, p, text + at, bytes - at);
    }
    if (status != OZ_OK || p->next != oz_json_count(p->want)) {
        fail_msg("case %zu: piece %zu of %zu is another", number, p->next, oz_json_count(p->want));
    }
}

static void run_cases(const char *folder)
{
    struct oz_tokenizer *tok = must_open(folder);
    struct oz_json *root = read_golden("cases.json");
    struct oz_token_list ids;
    oz_token_list_init(&ids, NO_LIMIT);
    assert_true(oz_json_count(root) > 300);
    for (size_t i = 0; i < oz_json_count(root); i++) {
        const struct oz_json *c = oz_json_at(root, i);
        size_t bytes;
        char *text = golden_text(oz_json_get(c, "text"), &bytes);
        struct pieces p = {.want = oz_json_get(c, "pieces")};
        oz_buf_init(&p.all, NO_LIMIT);
        must_encode(tok, text, bytes, &ids);
        check_ids(&ids, oz_json_get(c, "ids"), i);
        check_pieces(tok, &p, text, bytes, i);
        check_decoded(tok, &ids, oz_buf_text(&p.all), p.all.bytes, i);
        oz_buf_deinit(&p.all);
        oz_free(text);
    }
    oz_token_list_deinit(&ids);
    oz_json_free(root);
    oz_tokenizer_close(&tok);
    assert_null(tok);
}

static void run_exempt(const char *folder)
{
    struct oz_tokenizer *tok = must_open(folder);
    struct oz_json *root = read_golden("exempt.json");
    struct oz_token_list ids;
    oz_token_list_init(&ids, NO_LIMIT);
    assert_true(oz_json_count(root) > 40);
    for (size_t i = 0; i < oz_json_count(root); i++) {
        const struct oz_json *c = oz_json_at(root, i);
        const struct oz_json *list = oz_json_get(c, "exempt");
        struct oz_text_span spans[8];
        size_t bytes;
        size_t count = oz_json_count(list);
        char *text = golden_text(oz_json_get(c, "text"), &bytes);
        assert_true(count <= 8);
        for (size_t k = 0; k < count; k++) {
            const struct oz_json *span = oz_json_at(list, k);
            spans[k].begin = (size_t)oz_json_integer(oz_json_at(span, 0), -1);
            spans[k].end = (size_t)oz_json_integer(oz_json_at(span, 1), -1);
        }
        ids.count = 0;
        assert_int_equal(oz_tokenizer_encode(tok, text, bytes, spans, count, &ids, &err), OZ_OK);
        check_ids(&ids, oz_json_get(c, "ids"), i);
        oz_free(text);
    }
    oz_token_list_deinit(&ids);
    oz_json_free(root);
    oz_tokenizer_close(&tok);
}

static void test_golden_json(void **state)
{
    run_cases(MODEL);
}

static void test_golden_slow(void **state)
{
    run_cases(GOLDEN "/qwen2_files");
}

static void test_golden_exempt_json(void **state)
{
    run_exempt(MODEL);
}

static void test_golden_exempt_slow(void **state)
{
    run_exempt(GOLDEN "/qwen2_files");
}

static void test_find_and_count(void **state)
{
    struct oz_tokenizer *tok = must_open(MODEL);
    assert_int_equal(oz_tokenizer_count(tok), 4096);
    assert_int_equal(oz_tokenizer_find(tok, "<|im_start|>"), 4083);
    assert_int_equal(oz_tokenizer_find(tok, " apple"), 2463);
    assert_int_equal(oz_tokenizer_find(tok, "\n"), 198);
    assert_int_equal(oz_tokenizer_find(tok, "no such token"), -1);
    oz_tokenizer_close(&tok);
}

/* What would be quadratic with a scan for the best pair, an insertion sort of marks, or a search that
 * starts anew: each would take minutes. */
static void test_long_texts(void **state)
{
    static const char *const units[] = {"a",
                                        " ",
                                        "\n",
                                        "!",
                                        "<",
                                        "9",
                                        "\xCC\xA3\xCC\x81",
                                        "<|im_start|",
                                        "A",
                                        " \n",
                                        "\xE7\x8C\xAB",
                                        "<|im_end|>",
                                        "ab",
                                        "a ",
                                        "\xEA\xB0\x80\xE1\x86\xA7",
                                        "'s",
                                        "\t "};
    const size_t bytes = 1 << 20;
    struct oz_tokenizer *tok = must_open(MODEL);
    struct oz_token_list ids;
    oz_token_list_init(&ids, NO_LIMIT);
    char *text = oz_alloc(bytes);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t n = strlen(units[u]);
        size_t whole = bytes / n * n;
        for (size_t i = 0; i < whole; i++) {
            text[i] = units[u][i % n];
        }
        must_encode(tok, text, whole, &ids);
        assert_true(ids.count > 0);
    }
    oz_free(text);
    oz_token_list_deinit(&ids);
    oz_tokenizer_close(&tok);
}

static void test_bad_arguments(void **state)
{
    struct oz_tokenizer *tok = must_open(MODEL);
    struct oz_token_list ids;
    oz_token_list_init(&ids, 3);
    assert_int_equal(oz_tokenizer_encode(tok, "ab\xFFz", 4, NULL, 0, &ids, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "byte 2 (0xFF)"));
    assert_int_equal(oz_tokenizer_encode(tok, "ab\xE7\x8C", 4, NULL, 0, &ids, &err), OZ_ERR_ARG);
    assert_int_equal(oz_tokenizer_encode(tok, "\xED\xA0\x80", 3, NULL, 0, &ids, &err), OZ_ERR_ARG);
    assert_int_equal(oz_tokenizer_encode(tok, "\n! \t", 4, NULL, 0, &ids, NULL), OZ_ERR_ARG);
    assert_int_equal(ids.count, 0);

    const struct oz_text_span bad[][2] = {{{2, 1}, {3, 3}}, {{0, 2}, {1, 3}}, {{0, 1}, {2, 5}}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(oz_tokenizer_encode(tok, "abcd", 4, bad[i], 2, &ids, &err), OZ_ERR_ARG);
        assert_non_null(strstr(err.message, "out of order"));
    }
    struct oz_buf out;
    oz_buf_init(&out, 4);
    assert_int_equal(oz_tokenizer_decode(tok, (int32_t[]){4096}, 1, &out, &err), OZ_ERR_ARG);
    assert_int_equal(oz_tokenizer_decode(tok, (int32_t[]){-1}, 1, &out, &err), OZ_ERR_ARG);
    assert_int_equal(oz_tokenizer_decode(tok, (int32_t[]){4083}, 1, &out, &err), OZ_ERR_ARG);
    oz_buf_deinit(&out);
    oz_token_list_deinit(&ids);
    oz_tokenizer_close(&tok);
}

/* ---- small tokenizers ---- */

#define WORD_SPLIT                                                                             \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+|[a-z]+\"},\"behavior\":\"Isolated\"," \
    "\"invert\":false}"
#define BYTES_ONLY "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"

/* Parts of a tokenizer.json; NULL: the default. */
struct small {
    const char *vocab; /* entries behind the 256 bytes, ids from 256 on */
    const char *merges, *added, *normalizer, *pre, *model, *root;
};

/* The alphabet of bytes, written apart from the code under test: what is printable is itself. */
static void put_bytes(struct oz_buf *b)
{
    uint32_t moved = 0x100;
    for (uint32_t c = 0; c < 256; c++) {
        char utf8[5] = "";
        bool printable = (c > 32 && c < 127) || (c > 160 && c != 173);
        (void)oz_utf8_encode(printable ? c : moved++, utf8);
        oz_buf_printf(b, c > 0 ? "," : "");
        oz_buf_json(b, utf8);
        oz_buf_printf(b, ":%u", c);
    }
}

static const char * or (const char *text, const char *fallback)
{
    return text != NULL ? text : fallback;
}

static char folder[64];

static void put_file(const char *name, const char *text)
{
    char *path = oz_file_join(folder, name);
    assert_int_equal(oz_file_write(path, text, strlen(text), &err), OZ_OK);
    oz_free(path);
}

static void make_small(const struct small *s)
{
    struct oz_buf b;
    oz_buf_init(&b, 1 << 20);
    oz_buf_printf(&b, "{\"version\":\"1.0\",\"added_tokens\":[%s],\"normalizer\":%s,",
                  or (s->added, ""), or (s->normalizer, "null"));
    oz_buf_printf(&b, "\"pre_tokenizer\":%s,%s\"model\":{", or (s->pre, BYTES_ONLY),
                  or (s->root, ""));
    oz_buf_printf(&b, "%s\"vocab\":{", or (s->model, "\"type\":\"BPE\","));
    put_bytes(&b);
    oz_buf_puts(&b, or (s->vocab, ",\"ab\":256,\"abc\":257,\"bc\":258"));
    oz_buf_printf(&b, "},\"merges\":%s}}", or (s->merges, "[\"a b\",[\"ab\",\"c\"],\"b c\"]"));
    assert_int_equal(b.status, OZ_OK);
    put_file("tokenizer.json", oz_buf_text(&b));
    oz_buf_deinit(&b);
}

/* Encodes with a small tokenizer and compares with a list that ends with -1. */
static void check_small(const struct small *s, const char *text, const int32_t *want)
{
    struct oz_token_list ids;
    make_small(s);
    struct oz_tokenizer *tok = must_open(folder);
    oz_token_list_init(&ids, NO_LIMIT);
    must_encode(tok, text, strlen(text), &ids);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(ids.ids[i], want[i]);
    }
    assert_int_equal(want[ids.count], -1);
    oz_token_list_deinit(&ids);
    oz_tokenizer_close(&tok);
}

#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})

static void test_merges(void **state)
{
    check_small(&(struct small){0}, "abcbcab", IDS(257, 258, 256));
    /* The first of equal pairs: aaa is aa + a. */
    struct small aa = {.vocab = ",\"aa\":300,\"aaaa\":301", .merges = "[\"a a\",\"aa aa\"]"};
    check_small(&aa, "aaa", IDS(300, 'a'));
    check_small(&aa, "aaaaaaa", IDS(301, 300, 'a'));
    /* Rank decides, not length or place; a pair listed twice counts where it is last. */
    struct small rank = {.merges = "[\"b c\",\"a b\",\"ab c\"]"};
    check_small(&rank, "abc", IDS('a', 258));
    rank.merges = "[\"b c\",\"a b\",\"ab c\",\"b c\"]";
    check_small(&rank, "abc", IDS(257));
    /* Without merges nothing merges, unless whole pieces are looked up. */
    struct small whole = {.merges = "[]"};
    check_small(&whole, "abc", IDS('a', 'b', 'c'));
    whole.model = "\"type\":\"BPE\",\"ignore_merges\":true,";
    check_small(&whole, "abc", IDS(257));
    check_small(&whole, "abcd", IDS('a', 'b', 'c', 'd'));
}

static void test_pretokenizers(void **state)
{
    struct small s = {.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" WORD_SPLIT "," BYTES_ONLY
                             "]}",
                      .vocab = ",\"ab\":256,\"b\xC4\xA0\":257,\"1a\":258",
                      .merges = "[\"b \xC4\xA0\",\"1 a\",\"a b\"]"};
    check_small(&s, "ab 1ab", IDS(256, ' ', '1', 256));
    s.pre = BYTES_ONLY;
    check_small(&s, "ab 1ab", IDS('a', 257, 258, 'b'));
    s.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}";
    check_small(&s, "ab 1ab", IDS(256, ' ', '1', 256));
    /* Two stages: the second sees only the pieces of the first. */
    s.pre = "{\"type\":\"Sequence\",\"pretokenizers\":["
            "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[0-9]\"},\"behavior\":\"Isolated\"},"
            "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?<=1)a\"},\"behavior\":\"Isolated\"}"
            "," BYTES_ONLY "]}";
    check_small(&s, "1ab", IDS('1', 256));
    /* NFC in a sequence: e + acute is one letter of two bytes. */
    s.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}";
    check_small(&s, "e\xCC\x81", IDS(0xC3, 0xA9));
}

#define ADDED(id, content, more) "{\"id\":" #id ",\"content\":\"" content "\"" more "}"

static void test_added_tokens(void **state)
{
    struct small s = {
        .added = ADDED(300, "<x>", "") "," ADDED(301, "<x><x>", ",\"special\":true") "," ADDED(
            302, "<l>", ",\"lstrip\":true") "," ADDED(303, "<r>", ",\"rstrip\":true")};
    /* Leftmost, then longest. */
    check_small(&s, "<<x>", IDS('<', 300));
    check_small(&s, "<x><x><x>", IDS(301, 300));
    /* White space of any kind goes along, on one side. */
    check_small(&s, " <x> ", IDS(' ', 300, ' '));
    check_small(&s, "a \t\xE3\x80\x80<l> ", IDS('a', 302, ' '));
    check_small(&s, "a <r> \xC2\xA0 b", IDS('a', ' ', 303, 'b'));
    check_small(&s, "<r>  <l>", IDS(303, 302));
    /* What an exempt span holds is not taken along. */
    struct oz_token_list ids;
    struct oz_tokenizer *tok = must_open(folder);
    struct oz_text_span span = {0, 1};
    oz_token_list_init(&ids, NO_LIMIT);
    assert_int_equal(oz_tokenizer_encode(tok, "  <l>", 5, &span, 1, &ids, &err), OZ_OK);
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.ids[0], ' ');
    assert_int_equal(ids.ids[1], 302);
    oz_token_list_deinit(&ids);
    /* An unused id is a hole. */
    struct oz_buf out;
    oz_buf_init(&out, 100);
    assert_int_equal(oz_tokenizer_count(tok), 304);
    assert_int_equal(oz_tokenizer_decode(tok, (int32_t[]){290}, 1, &out, &err), OZ_ERR_ARG);
    oz_tokenizer_close(&tok);
    /* An added token may also stand in the vocabulary, with the same id. */
    struct small both = {.added = ADDED(256, "ab", "")};
    check_small(&both, "abc", IDS(256, 'c'));
    both.vocab = ",\"ab\":256,\"abc\":257,\"bc\":258,\"\xE7\x8C\xAB\":259";
    both.added = ADDED(259, "\xE7\x8C\xAB", "");
    check_small(&both, "\xE7\x8C\xAB", IDS(259));
}

static const struct {
    struct small s;
    enum oz_status status;
    const char *message;
} refused[] = {
    {{.model = "\"type\":\"Unigram\","}, OZ_ERR_UNSUPPORTED, "model type \"Unigram\""},
    {{.model = "\"byte_fallback\":true,"}, OZ_ERR_UNSUPPORTED, "\"byte_fallback\""},
    {{.model = "\"dropout\":0.1,"}, OZ_ERR_UNSUPPORTED, "\"dropout\""},
    {{.model = "\"end_of_word_suffix\":\"</w>\","}, OZ_ERR_UNSUPPORTED, "end_of_word_suffix"},
    {{.model = "\"what\":1,"}, OZ_ERR_UNSUPPORTED, "\"what\""},
    {{.root = "\"what\":1,"}, OZ_ERR_UNSUPPORTED, "\"what\""},
    {{.root = "\"decoder\":{\"type\":\"WordPiece\"},"},
     OZ_ERR_UNSUPPORTED,
     "decoder \"WordPiece\""},
    {{.root =
          "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{}},"
          "{\"Sequence\":{}}]},"},
     OZ_ERR_UNSUPPORTED,
     "adds tokens"},
    {{.normalizer = "{\"type\":\"NFKC\"}"}, OZ_ERR_UNSUPPORTED, "normalizer \"NFKC\""},
    {{.normalizer = "7"}, OZ_ERR_FORMAT, "normalizer has no type"},
    {{.pre = "null"}, OZ_ERR_UNSUPPORTED, "pre-tokenizer \"null\""},
    {{.pre = "{\"type\":\"Metaspace\"}"}, OZ_ERR_UNSUPPORTED, "\"Metaspace\""},
    {{.pre = "{\"type\":\"ByteLevel\"}"}, OZ_ERR_UNSUPPORTED, "add_prefix_space"},
    {{.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" WORD_SPLIT "]}"},
     OZ_ERR_UNSUPPORTED,
     "part 1 of the pre-tokenizer is \"Split\""},
    {{.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[]}"}, OZ_ERR_FORMAT, "no parts"},
    {{.added = ADDED(300, "<x>", ",\"single_word\":true")}, OZ_ERR_UNSUPPORTED, "\"single_word\""},
    {{.added = ADDED(300, "<x>", ",\"normalized\":true")}, OZ_ERR_UNSUPPORTED, "\"<x>\""},
    {{.added = ADDED(300, "", "")}, OZ_ERR_FORMAT, "no content"},
    {{.added = ADDED(300, "<x>", "") "," ADDED(300, "<y>", "")}, OZ_ERR_FORMAT, "id 300"},
    {{.added = ADDED(300, "<x>", "") "," ADDED(301, "<x>", "")}, OZ_ERR_FORMAT, "same content"},
    {{.added = ADDED(300, "<x>", "") "," ADDED(300, "<x>", "")}, OZ_ERR_FORMAT, "same content"},
    {{.added = ADDED(300, "ab", "")}, OZ_ERR_FORMAT, "id 256 has the same content"},
    {{.added = ADDED(256, "<x>", "")}, OZ_ERR_FORMAT, "\"<x>\""},
    {{.added = ADDED(99999999, "<x>", "")}, OZ_ERR_FORMAT, "99999999"},
    {{.added = ADDED(-1, "<x>", "")}, OZ_ERR_FORMAT, "-1"},
    {{.vocab = ",\"ab\":256,\"abc\":256"}, OZ_ERR_FORMAT, "id 256 is given to two"},
    {{.vocab = ",\"ab\":4294967552"}, OZ_ERR_FORMAT, "4294967552"},
    {{.vocab = ",\"ab\":-3"}, OZ_ERR_FORMAT, "-3"},
    {{.vocab = ",\"ab\":\"x\""}, OZ_ERR_FORMAT, "must be an integer, not a string"},
    {{.vocab = ",\"ab\":256,\"ab\":257"}, OZ_ERR_FORMAT, "duplicate"},
    {{.vocab = ",\"ab\":256"}, OZ_ERR_FORMAT, "merge 2, \"ab\" + \"c\": its result"},
    {{.merges = "[\"a zz\"]"}, OZ_ERR_FORMAT, "merge 1, \"a\" + \"zz\": its right half"},
    {{.merges = "[\"ab\"]"}, OZ_ERR_FORMAT, "merge 1 is not a pair"},
    {{.merges = "[\"a b c\"]"}, OZ_ERR_FORMAT, "merge 1 is not a pair"},
    {{.merges = "[[\"a\",\"b\",\"c\"]]"}, OZ_ERR_FORMAT, "merge 1 is not a pair"},
    {{.merges = "[[\"a\",1]]"}, OZ_ERR_FORMAT, "merge 1 is not a pair"},
    {{.merges = "{}"}, OZ_ERR_FORMAT, "\"merges\" must be a list"},
};

static void test_refusals(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct oz_tokenizer *tok = NULL;
        make_small(&refused[i].s);
        enum oz_status status = oz_tokenizer_open(&tok, folder, &err);
        if (status != refused[i].status || strstr(err.message, refused[i].message) == NULL ||
            strstr(err.message, "tokenizer.json") == NULL) {
            fail_msg("refusal %zu: status %d, \"%s\" wanted, got \"%s\"", i, (int)status,
                     refused[i].message, status != OZ_OK ? err.message : "");
        }
        assert_null(tok);
        assert_int_equal(oz_tokenizer_open(&tok, folder, NULL), status);
    }
}

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern;
        enum oz_status status;
        const char *message;
    } cases[] = {
        {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}]*[\\p{Ll}\\p{M}]+(?i:'s|'t)?|\\p{N}{1,3}| "
         "?[^\\s\\p{L}]+[\\r\\n/]*|\\s+(?!\\S)|\\s+",
         OZ_OK, ""},
        {"\\p{N}{1,3}", OZ_OK, ""},
        {"[\\-\\[\\]a]+|(ab)|a++|b?+c|\\.|.", OZ_OK, ""},
        {"(?<=a)b|(?<!a)b|(?=a)a|(?>a+)", OZ_OK, ""},
        {"a*", OZ_ERR_UNSUPPORTED, "empty text"},
        {"^a", OZ_ERR_UNSUPPORTED, "\"^\" at byte 0"},
        {"a$", OZ_ERR_UNSUPPORTED, "\"$\" at byte 1"},
        {"\\w+", OZ_ERR_UNSUPPORTED, "\"\\w\""},
        {"\\v", OZ_ERR_UNSUPPORTED, "\"\\v\""},
        {"(a)\\1", OZ_ERR_UNSUPPORTED, "\"\\1\""},
        {"\\x41", OZ_ERR_UNSUPPORTED, "\"\\x\""},
        {"[\\S]", OZ_ERR_UNSUPPORTED, "\"\\S\""},
        {"[a[b]]", OZ_ERR_UNSUPPORTED, "\"[\""},
        {"[a&&b]", OZ_ERR_UNSUPPORTED, "\"&&\""},
        {"[]a]", OZ_ERR_UNSUPPORTED, "\"]\""},
        {"(?i)a", OZ_ERR_UNSUPPORTED, "\"(?i)\""},
        {"(?<n>a)", OZ_ERR_UNSUPPORTED, "\"(?<n\""},
        {"(*ACCEPT)a", OZ_ERR_UNSUPPORTED, "\"(*\""},
        {"a{,3}", OZ_ERR_UNSUPPORTED, "\"{,3}\""},
        {"a{2}?", OZ_ERR_UNSUPPORTED, "\"{2}?\""},
        {"a{2,3}+", OZ_ERR_UNSUPPORTED, "\"{2,3}+\""},
        {"a\\", OZ_ERR_UNSUPPORTED, "\"\\\""},
        {"\\pL", OZ_ERR_UNSUPPORTED, "\"\\pL\""},
        {"\\p{L", OZ_ERR_UNSUPPORTED, "\\p{"},
        {"\\p{Nonsense}", OZ_ERR_FORMAT, "x.json: "},
        {"(a", OZ_ERR_FORMAT, "x.json: "},
        {"[a", OZ_ERR_FORMAT, "x.json: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct oz_pretokenizer p = {.count = 0};
        enum oz_status status = oz_pretokenizer_add(&p, cases[i].pattern, "x.json", &err);
        if (status != cases[i].status ||
            (status != OZ_OK && strstr(err.message, cases[i].message) == NULL)) {
            fail_msg("pattern %s: %d %s", cases[i].pattern, (int)status,
                     status != OZ_OK ? err.message : "");
        }
        assert_int_equal(oz_pretokenizer_add(&p, cases[i].pattern, "x.json", NULL), status);
        oz_pretokenizer_deinit(&p);
    }
}

static void test_missing_byte(void **state)
{
    put_file("tokenizer.json",
             "{\"pre_tokenizer\":" BYTES_ONLY ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    struct oz_tokenizer *tok;
    assert_int_equal(oz_tokenizer_open(&tok, folder, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "no token for the byte 0x00"));
}

/* ---- the files of the Python tokenizers ---- */

static void make_slow(const char *merges, const char *added, const char *config)
{
    struct oz_buf b;
    char *path = oz_file_join(folder, "tokenizer.json");
    (void)unlink(path);
    oz_free(path);
    oz_buf_init(&b, 1 << 20);
    oz_buf_puts(&b, "{");
    put_bytes(&b);
    oz_buf_puts(&b, ",\"ab\":256,\"abc\":257}");
    put_file("vocab.json", oz_buf_text(&b));
    put_file("merges.txt", merges);
    put_file("added_tokens.json", added);
    put_file("tokenizer_config.json", config);
    oz_buf_deinit(&b);
}

static void check_slow(enum oz_status want, const char *message)
{
    struct oz_tokenizer *tok;
    enum oz_status status = oz_tokenizer_open(&tok, folder, &err);
    if (status != want || (want != OZ_OK && strstr(err.message, message) == NULL)) {
        fail_msg("status %d, \"%s\" wanted, got \"%s\"", (int)status, message,
                 status != OZ_OK ? err.message : "");
    }
    oz_tokenizer_close(&tok);
}

static void test_slow_files(void **state)
{
    make_slow(
        "#version: 0.2\na b\r\nab c\n\n", "{\"<x>\":300,\"<y>\":301}",
        "{\"added_tokens_decoder\":{\"300\":{\"content\":\"<x>\"},\"302\":{\"content\":\"<z>\"}}}");
    struct oz_tokenizer *tok = must_open(folder);
    struct oz_token_list ids;
    oz_token_list_init(&ids, NO_LIMIT);
    must_encode(tok, "<x>abc<y><z>", 12, &ids);
    assert_int_equal(ids.count, 4);
    assert_memory_equal(ids.ids, IDS(300, 257, 301, 302), 4 * sizeof(int32_t));
    oz_token_list_deinit(&ids);
    oz_tokenizer_close(&tok);

    make_slow("a b", "{}", "{\"tokenizer_class\":\"GPT2Tokenizer\"}");
    check_slow(OZ_ERR_UNSUPPORTED, "\"GPT2Tokenizer\"");
    make_slow("a b", "{}", "{\"add_prefix_space\":true}");
    check_slow(OZ_ERR_UNSUPPORTED, "add_prefix_space");
    make_slow("a b", "{}", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<x>\"}}}");
    check_slow(OZ_ERR_FORMAT, "\"x\" in added_tokens_decoder");
    make_slow("a b", "{\"<x>\":301}", "{\"added_tokens_decoder\":{\"300\":{\"content\":\"<x>\"}}}");
    check_slow(OZ_ERR_FORMAT, "tokenizer_config.json gives another");
    make_slow("a b", "{\"<x>\":\"y\"}", "{}");
    check_slow(OZ_ERR_FORMAT, "\"<x>\" is wrong");
    make_slow("a b", "[]", "{}");
    check_slow(OZ_ERR_FORMAT, "must hold an object");
    make_slow("a b\nx", "{}", "{}");
    check_slow(OZ_ERR_FORMAT, "line 2");
    make_slow("a b\na b c", "{}", "{}");
    check_slow(OZ_ERR_FORMAT, "line 2");
    make_slow("a zz", "{}", "{}");
    check_slow(OZ_ERR_FORMAT, "its right half is not in the vocabulary");
    make_slow("", "{}", "{}");
    check_slow(OZ_OK, "");
    char *path = oz_file_join(folder, "vocab.json");
    (void)unlink(path);
    oz_free(path);
    check_slow(OZ_ERR_IO, "neither tokenizer.json nor vocab.json");
}

/* ---- no memory ---- */

static void walk_failures(void)
{
    enum oz_status status = OZ_ERR_NOMEM;
    const char *text = "abcabc <x> e\xCC\x81\xCC\xA3\xCC\x81 <x>";
    struct oz_text_span span = {0, 3};
    for (uint64_t n = 1; status != OZ_OK; n++) {
        struct oz_tokenizer *tok = NULL;
        struct oz_token_list ids;
        struct oz_buf out;
        oz_token_list_init(&ids, NO_LIMIT);
        oz_buf_init(&out, 100);
        oz_alloc_fail_at(n, 0);
        status = oz_tokenizer_open(&tok, folder, &err);
        if (status == OZ_OK) {
            status = oz_tokenizer_encode(tok, text, strlen(text), &span, 1, &ids, &err);
            assert_true(status == OZ_OK || ids.count == 0);
        }
        if (status == OZ_OK) {
            status = oz_tokenizer_decode(tok, ids.ids, ids.count, &out, &err);
        }
        oz_alloc_fail_at(0, 0);
        if (status != OZ_OK) {
            assert_int_equal(status, OZ_ERR_NOMEM);
            assert_int_equal(err.code, OZ_ERR_NOMEM);
        } else {
            assert_true(n > 15);
        }
        oz_buf_deinit(&out);
        oz_token_list_deinit(&ids);
        oz_tokenizer_close(&tok);
        assert_true(n < 1000);
    }
}

static void test_out_of_memory(void **state)
{
    make_slow("a b\nab c\n", "{\"<x>\":300,\"<y>\":301}",
              "{\"added_tokens_decoder\":{\"300\":{\"content\":\"<x>\"}}}");
    walk_failures();
    struct small s = {.added = ADDED(300, "<x>", ""),
                      .normalizer = "{\"type\":\"NFC\"}",
                      .pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" WORD_SPLIT "," BYTES_ONLY
                             "]}"};
    make_small(&s);
    walk_failures();
}

static int make_folder(void **state)
{
    (void)snprintf(folder, sizeof folder, "/tmp/ounce-tokenizer-%ld", (long)getpid());
    return mkdir(folder, 0700);
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json", "merges.txt",
                                        "added_tokens.json", "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = oz_file_join(folder, names[i]);
        (void)unlink(path);
        oz_free(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_json),        cmocka_unit_test(test_golden_slow),
        cmocka_unit_test(test_golden_exempt_json), cmocka_unit_test(test_golden_exempt_slow),
        cmocka_unit_test(test_find_and_count),     cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_bad_arguments),      cmocka_unit_test(test_merges),
        cmocka_unit_test(test_pretokenizers),      cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_refusals),           cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_missing_byte),       cmocka_unit_test(test_slow_files),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
