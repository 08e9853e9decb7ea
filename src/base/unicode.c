#include "base/unicode.h"

#include <limits.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/error.h"

/* The code point that begins at text (bytes > 0), as the standard's table 3-7 has it: no overlong
 * forms, no surrogates. Returns its bytes; 0: it is none. */
static size_t read_one(const char *text, size_t bytes, uint32_t *code_point)
{
    const unsigned char *t = (const unsigned char *)text;
    size_t n = t[0] < 0x80                   ? 1
               : t[0] >= 0xC2 && t[0] < 0xE0 ? 2
               : t[0] >= 0xE0 && t[0] < 0xF0 ? 3
               : t[0] >= 0xF0 && t[0] < 0xF5 ? 4
                                             : 0;
    if (n == 0 || n > bytes) {
        return 0;
    }
    uint32_t c = n == 1 ? t[0] : t[0] & (0xFFU >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((t[i] & 0xC0) != 0x80) {
            return 0;
        }
        c = c << 6 | (t[i] & 0x3F);
    }
    if ((n == 3 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) ||
        (n == 4 && (c < 0x10000 || c > 0x10FFFF))) {
        return 0;
    }
    *code_point = c;
    return n;
}

bool oz_utf8_valid(const char *text, size_t bytes, size_t *at)
{
    size_t i = 0;
    while (i < bytes) {
        uint64_t eight;
        while (bytes - i >= sizeof eight) { /* ASCII, which most text is */
            memcpy(&eight, text + i, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) != 0) {
                break;
            }
            i += sizeof eight;
        }
        uint32_t c;
        size_t n = i < bytes ? read_one(text + i, bytes - i, &c) : 0;
        if (i < bytes && n == 0) {
            if (at != NULL) {
                *at = i;
            }
            return false;
        }
        i += n;
    }
    return true;
}

size_t oz_utf8_whole(const char *text, size_t bytes)
{
    size_t tail = 0; /* continuation bytes at the end */
    while (tail < 3 && tail < bytes && ((unsigned char)text[bytes - 1 - tail] & 0xC0) == 0x80) {
        tail++;
    }
    if (tail == bytes) {
        return bytes;
    }
    unsigned char first = (unsigned char)text[bytes - 1 - tail];
    size_t need = first >= 0xF0 && first < 0xF5   ? 4
                  : first >= 0xE0 && first < 0xF0 ? 3
                  : first >= 0xC2 && first < 0xE0 ? 2
                                                  : 1;
    return tail + 1 < need ? bytes - tail - 1 : bytes;
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
    uint32_t c = 0;
    size_t n = read_one(text, bytes, &c);
    *used = n > 0 ? n : 1;
    return n > 0 ? c : 0xFFFD;
}

#define NFC_OPTIONS ((utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE))

/* Decomposes into out, which has room for `room` code points (0: only counts). Returns how many
 * there are, or a negative utf8proc error. Marks are not ordered yet. */
static utf8proc_ssize_t decompose(const char *text, size_t bytes, utf8proc_int32_t *out,
                                  size_t room)
{
    size_t n = 0;
    size_t i = 0;
    while (i < bytes) {
        utf8proc_int32_t c;
        utf8proc_int32_t parts[16]; /* a canonical decomposition has at most four */
        int boundary = 0;
        size_t left = bytes - i;
        utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)text + i,
                                                 (utf8proc_ssize_t)(left < 4 ? left : 4), &c);
        if (used <= 0) {
            return UTF8PROC_ERROR_INVALIDUTF8;
        }
        utf8proc_ssize_t k = utf8proc_decompose_char(c, parts, 16, NFC_OPTIONS, &boundary);
        if (k < 0 || k > 16) {
            return UTF8PROC_ERROR_OVERFLOW;
        }
        for (utf8proc_ssize_t j = 0; j < k; j++, n++) {
            if (n < room) {
                out[n] = parts[j];
            }
        }
        i += (size_t)used;
    }
    return (utf8proc_ssize_t)n;
}

static int combining_class(utf8proc_int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Stable counting sort of one run of marks by combining class. */
static void sort_marks(utf8proc_int32_t *marks, size_t count, utf8proc_int32_t *spare)
{
    size_t place[257] = {0};
    for (size_t i = 0; i < count; i++) {
        place[(combining_class(marks[i]) & 255) + 1]++;
    }
    for (size_t k = 1; k < 257; k++) {
        place[k] += place[k - 1];
    }
    for (size_t i = 0; i < count; i++) {
        spare[place[combining_class(marks[i]) & 255]++] = marks[i];
    }
    memcpy(marks, spare, count * sizeof *marks);
}

/* Canonical order. The library's own loop is an insertion sort: a prompt of nothing but marks would
 * cost the square of its length. False: no memory. */
static bool order_marks(utf8proc_int32_t *points, size_t count)
{
    utf8proc_int32_t *spare = NULL;
    for (size_t i = 0; i < count;) {
        size_t begin = i;
        bool sorted = true;
        int last = 0;
        for (int class; i < count && (class = combining_class(points[i])) != 0; i++) {
            sorted = sorted && class >= last;
            last = class;
        }
        if (!sorted) {
            spare = spare != NULL ? spare : oz_alloc(count * sizeof *spare);
            if (spare == NULL) {
                return false;
            }
            sort_marks(points + begin, i - begin, spare);
        }
        i += i == begin;
    }
    oz_free(spare);
    return true;
}

/* Composes in place and returns the new count. U+11A7 begins a stretch of its own: the library
 * (2.8) takes it for a Hangul final and loses it behind a syllable. */
static size_t compose(utf8proc_int32_t *points, size_t count)
{
    size_t out = 0;
    for (size_t begin = 0; begin < count;) {
        size_t end = begin + 1;
        while (end < count && points[end] != 0x11A7) {
            end++;
        }
        utf8proc_ssize_t n =
            utf8proc_normalize_utf32(points + begin, (utf8proc_ssize_t)(end - begin), NFC_OPTIONS);
        size_t kept = n > 0 ? (size_t)n : 0;
        memmove(points + out, points + begin, kept * sizeof *points);
        out += kept;
        begin = end;
    }
    return out;
}

/* The code points as fresh zero-terminated UTF-8; NULL without memory. */
static char *to_utf8(const utf8proc_int32_t *points, size_t count, size_t *bytes)
{
    size_t need = 0;
    for (size_t i = 0; i < count; i++) {
        utf8proc_int32_t c = points[i];
        need += c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    }
    char *out = oz_alloc(need + 1);
    if (out == NULL) {
        return NULL;
    }
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        n += (size_t)utf8proc_encode_char(points[i], (utf8proc_uint8_t *)out + n);
    }
    out[n] = '\0';
    *bytes = n;
    return out;
}

static bool is_ascii(const char *text, size_t bytes)
{
    unsigned char all = 0;
    for (size_t i = 0; i < bytes; i++) {
        all |= (unsigned char)text[i];
    }
    return all < 0x80;
}

enum oz_status oz_unicode_nfc(const char *text, size_t bytes, char **out, size_t *out_bytes,
                              struct oz_error *err)
{
    *out = NULL;
    *out_bytes = 0;
    if (bytes > INT_MAX) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A text of %zu bytes is too long.", bytes);
    }
    if (is_ascii(text, bytes)) {
        *out = oz_strndup(text, bytes);
        *out_bytes = *out != NULL ? bytes : 0;
        return *out != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a text");
    }
    utf8proc_ssize_t n = decompose(text, bytes, NULL, 0);
    if (n < 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "A text of %zu bytes cannot be normalised: %s.", bytes,
                       utf8proc_errmsg(n));
    }
    size_t count = (size_t)n;
    utf8proc_int32_t *points = oz_alloc(count * sizeof *points);
    if (points != NULL) {
        (void)decompose(text, bytes, points, count);
        if (order_marks(points, count)) {
            count = compose(points, count);
            *out = to_utf8(points, count, out_bytes);
        }
    }
    oz_free(points);
    return *out != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a text");
}
