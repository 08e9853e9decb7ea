#include "base/unicode.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/error.h"

bool oz_utf8_valid(const char *text, size_t bytes, size_t *at)
{
    size_t i = 0;
    while (i < bytes) {
        utf8proc_int32_t c;
        size_t left = bytes - i;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + i,
                                              (utf8proc_ssize_t)(left < 4 ? left : 4), &c);
        if (n <= 0) {
            if (at != NULL) {
                *at = i;
            }
            return false;
        }
        i += (size_t)n;
    }
    return true;
}

size_t oz_utf8_encode(uint32_t code_point, char out[4])
{
    utf8proc_uint8_t bytes[4];
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
        return 0;
    }
    utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)code_point, bytes);
    memcpy(out, bytes, (size_t)n);
    return (size_t)n;
}

uint32_t oz_utf8_decode(const char *text, size_t bytes, size_t *used)
{
    utf8proc_int32_t c = 0;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text,
                                          (utf8proc_ssize_t)(bytes < 4 ? bytes : 4), &c);
    *used = n > 0 ? (size_t)n : 1;
    return n > 0 ? (uint32_t)c : 0xFFFD;
}

enum oz_status oz_unicode_nfc(const char *text, size_t bytes, char **out, size_t *out_bytes,
                              struct oz_error *err)
{
    utf8proc_uint8_t *result = NULL;
    *out = NULL;
    *out_bytes = 0;
    if (bytes > INT_MAX) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A text of %zu bytes is too long.", bytes);
    }
    utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &result,
                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (n < 0) {
        return OZ_FAIL(err, n == UTF8PROC_ERROR_NOMEM ? OZ_ERR_NOMEM : OZ_ERR_FORMAT,
                       "A text of %zu bytes cannot be normalised: %s.", bytes, utf8proc_errmsg(n));
    }
    *out = oz_strndup((const char *)result, (size_t)n);
    free(result); /* the library's own memory */
    if (*out == NULL) {
        return OZ_FAIL_NOMEM(err, "a text");
    }
    *out_bytes = (size_t)n;
    return OZ_OK;
}
