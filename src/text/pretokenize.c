#include "text/pretokenize.h"

#include <string.h>

#include "base/buf.h"
#include "base/error.h"

/* Unicode's White_Space, as the inside of a character class. */
#define WHITE_SPACE                                                           \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}" \
    "\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

const char oz_pattern_qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                                " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                                "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char oz_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* A pattern while it is rewritten. */
struct rewrite {
    const char *pattern;
    size_t at;
    struct oz_buf out;
    const char *file;
    struct oz_error *err;
};

static enum oz_status refuse(struct rewrite *r, size_t bytes)
{
    return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                   "%s: the pattern \"%s\" has \"%.*s\" at byte %zu, which is not supported.",
                   r->file, r->pattern, (int)bytes, r->pattern + r->at, r->at);
}

static void copy(struct rewrite *r, size_t bytes)
{
    oz_buf_append(&r->out, r->pattern + r->at, bytes);
    r->at += bytes;
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* At a backslash. Accepted are classes that mean the same, and characters by themselves. */
static enum oz_status rewrite_escape(struct rewrite *r, bool in_class)
{
    const char *p = r->pattern + r->at;
    switch (p[1]) {
    case 's':
        oz_buf_puts(&r->out, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
        r->at += 2;
        return OZ_OK;
    case 'S':
        if (in_class) {
            return refuse(r, 2);
        }
        oz_buf_puts(&r->out, "[^" WHITE_SPACE "]");
        r->at += 2;
        return OZ_OK;
    case 'p':
    case 'P': {
        size_t n = p[2] == '{' ? strcspn(p, "}") + 1 : 0;
        if (n == 0 || p[n - 1] != '}') {
            return refuse(r, strnlen(p, 3));
        }
        copy(r, n);
        return OZ_OK;
    }
    case 'd':
    case 'D':
    case 'n':
    case 'r':
    case 't':
    case 'f': copy(r, 2); return OZ_OK;
    default:
        if (p[1] == '\0' || is_word(p[1]) || (unsigned char)p[1] >= 0x80) {
            return refuse(r, p[1] == '\0' ? 1 : 2);
        }
        copy(r, 2);
        return OZ_OK;
    }
}

/* At a bracket. Nested sets, intersections and "]" as a member differ between engines. */
static enum oz_status rewrite_class(struct rewrite *r)
{
    copy(r, r->pattern[r->at + 1] == '^' ? 2 : 1);
    if (r->pattern[r->at] == ']') {
        return refuse(r, 1);
    }
    for (char c; (c = r->pattern[r->at]) != ']';) {
        if (c == '\0') {
            return OZ_OK; /* compiling will say so */
        }
        if (c == '\\') {
            OZ_TRY(rewrite_escape(r, true));
        } else if (c == '[' || (c == '&' && r->pattern[r->at + 1] == '&')) {
            return refuse(r, c == '[' ? 1 : 2);
        } else {
            copy(r, 1);
        }
    }
    copy(r, 1);
    return OZ_OK;
}

/* At a parenthesis: plain groups, (?i: alone of the options, and what looks around. */
static enum oz_status rewrite_group(struct rewrite *r)
{
    static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const char *p = r->pattern + r->at;
    if (p[1] == '*') {
        return refuse(r, 2);
    }
    if (p[1] != '?') {
        copy(r, 1);
        return OZ_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i]);
        if (strncmp(p, known[i], n) == 0) {
            copy(r, n);
            return OZ_OK;
        }
    }
    return refuse(r, strnlen(p, 4));
}

/* At a brace: {n}, {n,} or {n,m}, and nothing that makes it lazy or possessive: {n}? and {n,m}+ do
 * not mean the same everywhere. */
static enum oz_status rewrite_repeat(struct rewrite *r)
{
    const char *p = r->pattern + r->at;
    size_t digits = strspn(p + 1, "0123456789");
    size_t n = 1 + digits;
    if (p[n] == ',') {
        n += 1 + strspn(p + n + 1, "0123456789");
    }
    if (digits == 0 || p[n] != '}' || p[n + 1] == '?' || p[n + 1] == '+') {
        return refuse(r, strnlen(p, n + 2));
    }
    copy(r, n + 1);
    return OZ_OK;
}

static enum oz_status rewrite_pattern(struct rewrite *r)
{
    for (char c; (c = r->pattern[r->at]) != '\0';) {
        switch (c) {
        case '\\': OZ_TRY(rewrite_escape(r, false)); break;
        case '[': OZ_TRY(rewrite_class(r)); break;
        case '(': OZ_TRY(rewrite_group(r)); break;
        case '{': OZ_TRY(rewrite_repeat(r)); break;
        case '^':
        case '$': return refuse(r, 1); /* lines in one engine, the text in the other */
        default: copy(r, 1); break;
        }
    }
    return r->out.status;
}

enum oz_status oz_pretokenizer_add(struct oz_pretokenizer *p, const char *pattern, const char *file,
                                   struct oz_error *err)
{
    struct rewrite r = {.pattern = pattern, .file = file, .err = err};
    bool empty = false;
    size_t begin;
    size_t end;
    if (p->count == OZ_PRETOKENIZER_MAX_STAGES) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "%s: the pre-tokenizer has more than %d patterns.",
                       file, OZ_PRETOKENIZER_MAX_STAGES);
    }
    oz_buf_init(&r.out, (size_t)1 << 20);
    enum oz_status status = rewrite_pattern(&r);
    if (status != OZ_OK && r.out.status != OZ_OK) {
        status = r.out.status == OZ_ERR_NOMEM
                     ? OZ_FAIL_NOMEM(err, "a pattern")
                     : OZ_FAIL(err, OZ_ERR_FORMAT, "%s: a pattern is longer than 1 MiB.", file);
    }
    struct oz_regex *re = NULL;
    if (status == OZ_OK) {
        status = oz_regex_compile(&re, oz_buf_text(&r.out), err);
        if (status == OZ_ERR_ARG) {
            (void)oz_error_prefix(err, status, "%s: ", file);
            status = OZ_ERR_FORMAT; /* the file's fault, not the caller's */
            if (err != NULL) {
                err->code = status;
            }
        }
    }
    oz_buf_deinit(&r.out);
    OZ_TRY(status);
    status = oz_regex_match(re, "", 0, 0, true, &empty, &begin, &end, err);
    if (status == OZ_OK && empty) {
        status = OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                         "%s: the pattern \"%s\" matches the empty text, which is not supported.",
                         file, pattern);
    }
    if (status != OZ_OK) {
        oz_regex_free(re);
        return status;
    }
    p->stages[p->count++] = re;
    return OZ_OK;
}

void oz_pretokenizer_deinit(struct oz_pretokenizer *p)
{
    for (int i = 0; i < p->count; i++) {
        oz_regex_free(p->stages[i]);
    }
    *p = (struct oz_pretokenizer){0};
}

/* Stages from `stage` on; as deep as there are stages. */
static enum oz_status split_from(const struct oz_pretokenizer *p, int stage, const char *text,
                                 size_t bytes, oz_piece_fn piece, void *ctx, struct oz_error *err)
{
    if (bytes == 0) {
        return OZ_OK;
    }
    if (stage == p->count) {
        return piece(ctx, text, bytes, err);
    }
    for (size_t at = 0; at < bytes;) {
        bool found;
        size_t begin = bytes;
        size_t end = bytes;
        OZ_TRY(oz_regex_match(p->stages[stage], text, bytes, at, false, &found, &begin, &end, err));
        if (!found) {
            begin = bytes;
            end = bytes;
        } else if (end <= begin || begin < at) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "A pattern of the tokenizer matched nothing at byte %zu of a text.",
                           begin);
        }
        OZ_TRY(split_from(p, stage + 1, text + at, begin - at, piece, ctx, err));
        OZ_TRY(split_from(p, stage + 1, text + begin, end - begin, piece, ctx, err));
        at = end;
    }
    return OZ_OK;
}

enum oz_status oz_pretokenizer_split(const struct oz_pretokenizer *p, const char *text,
                                     size_t bytes, oz_piece_fn piece, void *ctx,
                                     struct oz_error *err)
{
    return split_from(p, 0, text, bytes, piece, ctx, err);
}
