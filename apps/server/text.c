#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Room for so many more bytes and a zero. */
static bool reserve(struct sv_text *text, size_t more)
{
    if (text->failed || more >= SIZE_MAX / 4 - text->bytes) {
        text->failed = true;
        return false;
    }
    size_t need = text->bytes + more + 1;
    if (need <= text->room) {
        return true;
    }
    size_t room = text->room < 128 ? 256 : 2 * text->room;
    room = room < need ? need : room;
    char *data = realloc(text->data, room);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->room = room;
    return true;
}

void sv_text_add(struct sv_text *text, const void *data, size_t bytes)
{
    if (reserve(text, bytes)) {
        if (bytes > 0) {
            memcpy(text->data + text->bytes, data, bytes);
        }
        text->bytes += bytes;
        text->data[text->bytes] = '\0';
    }
}

void sv_text_put(struct sv_text *text, const char *string)
{
    sv_text_add(text, string, strlen(string));
}

void sv_text_printf(struct sv_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n < 0 || !reserve(text, (size_t)n)) {
        text->failed = true;
    } else {
        (void)vsnprintf(text->data + text->bytes, (size_t)n + 1, format, again);
        text->bytes += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void sv_text_base64(struct sv_text *text, const void *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    if (bytes > SIZE_MAX / 8 || !reserve(text, (bytes + 2) / 3 * 4)) {
        text->failed = true;
        return;
    }
    char *out = text->data + text->bytes;
    for (size_t i = 0; i < bytes; i += 3) {
        size_t left = bytes - i;
        uint32_t three = (uint32_t)p[i] << 16;
        three |= left > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        three |= left > 2 ? p[i + 2] : 0;
        *out++ = digits[three >> 18];
        *out++ = digits[three >> 12 & 63];
        *out++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[three & 63] : '=';
    }
    *out = '\0';
    text->bytes = (size_t)(out - text->data);
}

void sv_text_free(struct sv_text *text)
{
    free(text->data);
    *text = (struct sv_text){0};
}

int sv_text_write(void *ctx, const char *data, size_t bytes)
{
    struct sv_text *text = ctx;
    sv_text_add(text, data, bytes);
    return text->failed;
}

enum oz_status sv_error(struct oz_error *err, enum oz_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->code = status;
    (void)vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return status;
}

char *sv_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0) {
        text = NULL;
    }
    va_end(args);
    return text;
}

char *sv_copy(const char *string)
{
    return sv_format("%s", string);
}

bool sv_read_file(struct sv_text *text, const char *path, size_t most, const char **why)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        *why = strerror(errno);
        return false;
    }
    char part[4096];
    size_t n;
    while ((n = fread(part, 1, sizeof part, file)) > 0 && text->bytes <= most) {
        sv_text_add(text, part, n);
    }
    bool ok = ferror(file) == 0 && text->bytes <= most && !text->failed;
    *why = text->failed ? "no memory" : text->bytes > most ? "it is too long" : strerror(errno);
    (void)fclose(file);
    return ok;
}

bool sv_one_of(const char *string, const char *words)
{
    size_t n = string != NULL ? strlen(string) : 0;
    for (const char *p = words; n > 0 && *p != '\0';) {
        size_t word = strcspn(p, " ");
        if (word == n && strncmp(p, string, n) == 0) {
            return true;
        }
        p += word;
        p += strspn(p, " ");
    }
    return false;
}

bool sv_random_id(char id[33])
{
    unsigned char bits[16];
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
        return false;
    }
    for (size_t i = 0; i < sizeof bits; i++) {
        (void)snprintf(id + 2 * i, 3, "%02x", bits[i]);
    }
    return true;
}

bool sv_random_seed(uint32_t *seed)
{
    return getrandom(seed, sizeof *seed, 0) == (ssize_t)sizeof *seed;
}
