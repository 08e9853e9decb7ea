#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/regex.h"

#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define MATCH_LIMIT 10000000U
#define DEPTH_LIMIT 100000U
#define HEAP_LIMIT_KIB 65536U

struct oz_regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

void oz_regex_free(struct oz_regex *re)
{
    if (re == NULL) {
        return;
    }
    pcre2_match_data_free(re->match);
    pcre2_match_context_free(re->limits);
    pcre2_code_free(re->code);
    oz_free(re);
}

enum oz_status oz_regex_compile(struct oz_regex **out, const char *pattern, struct oz_error *err)
{
    int code;
    PCRE2_SIZE at;
    *out = NULL;
    struct oz_regex *re = oz_alloc_zero(1, sizeof *re);
    if (re == NULL) {
        return OZ_FAIL_NOMEM(err, "a pattern");
    }
    re->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                             &code, &at, NULL);
    if (re->code == NULL) {
        PCRE2_UCHAR text[256];
        (void)pcre2_get_error_message(code, text, sizeof text);
        oz_regex_free(re);
        return OZ_FAIL(err, OZ_ERR_ARG, "The pattern \"%s\" is wrong at character %zu: %s.",
                       pattern, (size_t)at, (const char *)text);
    }
    re->match = pcre2_match_data_create(1, NULL);
    re->limits = pcre2_match_context_create(NULL);
    if (re->match == NULL || re->limits == NULL) {
        oz_regex_free(re);
        return OZ_FAIL_NOMEM(err, "a pattern");
    }
    pcre2_set_match_limit(re->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(re->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(re->limits, HEAP_LIMIT_KIB);
    *out = re;
    return OZ_OK;
}

enum oz_status oz_regex_match(struct oz_regex *re, const char *text, size_t bytes, size_t from,
                              bool anchored, bool *found, size_t *begin, size_t *end,
                              struct oz_error *err)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | (anchored ? PCRE2_ANCHORED : 0U);
    *found = false;
    int n = pcre2_match(re->code, (PCRE2_SPTR)text, bytes, from, options, re->match, re->limits);
    if (n == PCRE2_ERROR_NOMATCH) {
        return OZ_OK;
    }
    if (n < 0) {
        return OZ_FAIL(err, n == PCRE2_ERROR_NOMEMORY ? OZ_ERR_NOMEM : OZ_ERR_FORMAT,
                       "A pattern gave up at byte %zu of a text of %zu bytes (code %d).", from,
                       bytes, n);
    }
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(re->match);
    *found = true;
    *begin = range[0];
    *end = range[1];
    return OZ_OK;
}
