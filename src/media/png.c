#include "media/png.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/unicode.h"

#define MAX_SIDE 1000000U
#define MAX_TEXTS 64
#define COMPRESSION_LEVEL 6

/*
 * One encoding or decoding. The library leaves by longjmp: everything that must survive one lives
 * here, behind a pointer, and no function that calls setjmp has locals that change after it.
 */
struct work {
    png_structp png;
    png_infop info;
    jmp_buf back;
    bool no_memory;
    char message[200];
    /* encoding */
    const uint8_t *in_rgb;
    uint32_t width, height;
    png_text *chunks;
    size_t chunk_count;
    struct oz_buf *out;
    /* decoding */
    const uint8_t *data;
    size_t left;
    uint64_t max_pixels;
    bool too_large;
    struct oz_png *picture;
};

static void on_error(png_structp png, png_const_charp message)
{
    struct work *w = png_get_error_ptr(png);
    (void)snprintf(w->message, sizeof w->message, "%s", message);
    longjmp(w->back, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message; /* what can be decoded is decoded */
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t bytes)
{
    struct work *w = png_get_mem_ptr(png);
    void *memory = oz_alloc(bytes);
    w->no_memory = w->no_memory || memory == NULL;
    return memory;
}

static void on_free(png_structp png, png_voidp memory)
{
    (void)png;
    oz_free(memory);
}

static void on_write(png_structp png, png_bytep bytes, size_t count)
{
    struct work *w = png_get_io_ptr(png);
    oz_buf_append(w->out, bytes, count);
    if (w->out->status != OZ_OK) {
        png_error(png, "the output is full");
    }
}

static void on_flush(png_structp png)
{
    (void)png;
}

static void on_read(png_structp png, png_bytep bytes, size_t count)
{
    struct work *w = png_get_io_ptr(png);
    if (count > w->left) {
        png_error(png, "the data ends too early");
    }
    memcpy(bytes, w->data, count);
    w->data += count;
    w->left -= count;
}

/* ---- encoding ---- */

/* All calls that may jump. False: w->message says why, or w->out->status, or w->no_memory. */
static bool write_all(struct work *w)
{
    if (setjmp(w->back) != 0) {
        return false;
    }
    w->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, w, on_error, on_warning, w, on_alloc,
                                       on_free);
    w->info = w->png != NULL ? png_create_info_struct(w->png) : NULL;
    if (w->info == NULL) {
        return false;
    }
    png_set_write_fn(w->png, w, on_write, on_flush);
    png_set_IHDR(w->png, w->info, w->width, w->height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(w->png, COMPRESSION_LEVEL);
    if (w->chunk_count > 0) {
        png_set_text(w->png, w->info, w->chunks, (int)w->chunk_count);
    }
    png_write_info(w->png, w->info);
    for (uint32_t y = 0; y < w->height; y++) {
        png_write_row(w->png, w->in_rgb + (size_t)y * w->width * 3);
    }
    png_write_end(w->png, w->info);
    return true;
}

static bool keyword_is_good(const char *keyword)
{
    size_t n = strlen(keyword);
    if (n == 0 || n > 79 || keyword[0] == ' ' || keyword[n - 1] == ' ') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (keyword[i] < ' ' || keyword[i] > '~' || (keyword[i] == ' ' && keyword[i + 1] == ' ')) {
            return false;
        }
    }
    return true;
}

/* One text as the library wants it. The library's own checks warn and change things. */
static enum oz_status make_chunk(const struct oz_png_text *text, png_text *chunk,
                                 struct oz_error *err)
{
    static char none[1]; /* no language, no translated keyword */
    size_t n = strlen(text->text);
    bool ascii = true;
    if (!keyword_is_good(text->keyword)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "\"%s\" cannot be the keyword of a text in a PNG.",
                       text->keyword);
    }
    if (n > OZ_PNG_MAX_TEXT_BYTES) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The text \"%s\" has %zu bytes; a PNG gets at most %zu.",
                       text->keyword, n, OZ_PNG_MAX_TEXT_BYTES);
    }
    if (!oz_utf8_valid(text->text, n, NULL)) {
        return OZ_FAIL(err, OZ_ERR_ARG, "The text \"%s\" is not valid UTF-8.", text->keyword);
    }
    for (size_t i = 0; i < n; i++) {
        ascii = ascii && (unsigned char)text->text[i] < 0x80;
    }
    /* The library copies and does not write; its structure just lacks the const. */
    *chunk =
        (png_text){.compression = ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE,
                   .key = (char *)(uintptr_t)text->keyword,
                   .text = (char *)(uintptr_t)text->text,
                   .text_length = ascii ? n : 0,
                   .itxt_length = ascii ? 0 : n,
                   .lang = none,
                   .lang_key = none};
    return OZ_OK;
}

static enum oz_status encode_with(struct work *w, const struct oz_png_text *texts,
                                  struct oz_error *err)
{
    for (size_t i = 0; i < w->chunk_count; i++) {
        OZ_TRY(make_chunk(&texts[i], &w->chunks[i], err));
    }
    size_t before = w->out->bytes;
    bool done = write_all(w);
    png_destroy_write_struct(&w->png, &w->info);
    if (done && !w->no_memory) {
        return OZ_OK;
    }
    enum oz_status status = w->out->status;
    w->out->bytes = before;
    if (w->out->data != NULL) {
        w->out->data[before] = '\0';
    }
    w->out->status = OZ_OK;
    if (status == OZ_ERR_NOMEM || w->no_memory) {
        return OZ_FAIL_NOMEM(err, "a PNG");
    }
    if (status != OZ_OK) {
        return OZ_FAIL(err, status, "A PNG of %u x %u pixels is larger than %zu bytes.", w->width,
                       w->height, w->out->max_bytes);
    }
    return OZ_FAIL(err, OZ_ERR_INTERNAL, "A PNG of %u x %u pixels cannot be written: %s.", w->width,
                   w->height, w->message);
}

enum oz_status oz_png_encode(const uint8_t *rgb, uint32_t width, uint32_t height,
                             const struct oz_png_text *texts, size_t count, struct oz_buf *out,
                             struct oz_error *err)
{
    if (width == 0 || height == 0 || width > MAX_SIDE || height > MAX_SIDE) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "A PNG of %u x %u pixels cannot be written; sides are 1 to %u.", width,
                       height, MAX_SIDE);
    }
    if (count > MAX_TEXTS) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A PNG gets at most %d texts, not %zu.", MAX_TEXTS, count);
    }
    if (out->status != OZ_OK) {
        return OZ_FAIL(err, out->status, "The output of a PNG has failed before.");
    }
    struct work w = {.in_rgb = rgb,
                     .width = width,
                     .height = height,
                     .chunk_count = count,
                     .out = out,
                     .chunks = oz_alloc_zero(count, sizeof *w.chunks)};
    if (w.chunks == NULL) {
        return OZ_FAIL_NOMEM(err, "a PNG");
    }
    enum oz_status status = encode_with(&w, texts, err);
    oz_free(w.chunks);
    return status;
}

/* ---- decoding ---- */

/* Up to and with the header. The picture's memory is taken outside. */
static bool read_header(struct work *w)
{
    if (setjmp(w->back) != 0) {
        return false;
    }
    w->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, w, on_error, on_warning, w, on_alloc,
                                      on_free);
    w->info = w->png != NULL ? png_create_info_struct(w->png) : NULL;
    if (w->info == NULL) {
        return false;
    }
    png_set_read_fn(w->png, w, on_read);
    png_set_user_limits(w->png, MAX_SIDE, MAX_SIDE);
    png_set_chunk_cache_max(w->png, MAX_TEXTS + 2); /* it stops at two */
    png_set_chunk_malloc_max(w->png, OZ_PNG_MAX_TEXT_BYTES + 1024);
    png_read_info(w->png, w->info);
    w->width = png_get_image_width(w->png, w->info);
    w->height = png_get_image_height(w->png, w->info);
    w->too_large = (uint64_t)w->width * w->height > w->max_pixels;
    if (w->too_large) {
        return false;
    }
    png_set_expand(w->png);
    png_set_scale_16(w->png);
    png_set_strip_alpha(w->png);
    png_set_gray_to_rgb(w->png);
    (void)png_set_interlace_handling(w->png);
    png_read_update_info(w->png, w->info);
    if (png_get_rowbytes(w->png, w->info) != (size_t)w->width * 3) {
        png_error(w->png, "it does not become RGB");
    }
    return true;
}

static bool read_pixels(struct work *w)
{
    if (setjmp(w->back) != 0) {
        return false;
    }
    /* Interlaced pictures come in passes over all rows. */
    int passes = png_get_interlace_type(w->png, w->info) == PNG_INTERLACE_NONE ? 1 : 7;
    for (int pass = 0; pass < passes; pass++) {
        for (uint32_t y = 0; y < w->height; y++) {
            png_read_row(w->png, w->picture->rgb + (size_t)y * w->width * 3, NULL);
        }
    }
    png_read_end(w->png, w->info);
    return true;
}

/* Latin-1 as fresh UTF-8. */
static char *from_latin1(const char *text, size_t bytes)
{
    char *out = oz_alloc(2 * bytes + 1);
    size_t n = 0;
    for (size_t i = 0; out != NULL && i < bytes; i++) {
        n += oz_utf8_encode((unsigned char)text[i], out + n);
    }
    if (out != NULL) {
        out[n] = '\0';
    }
    return out;
}

/* Copies the texts that are sound. OZ_ERR_NOMEM. */
static enum oz_status take_texts(struct work *w)
{
    png_textp chunks = NULL;
    int n = png_get_text(w->png, w->info, &chunks, NULL);
    w->picture->texts = oz_alloc_zero(n > 0 ? (size_t)n : 0, sizeof *w->picture->texts);
    if (w->picture->texts == NULL) {
        return OZ_ERR_NOMEM;
    }
    for (int i = 0; i < n; i++) {
        const png_text *c = &chunks[i];
        bool utf8 = c->compression >= PNG_ITXT_COMPRESSION_NONE;
        size_t bytes = utf8 ? c->itxt_length : c->text_length;
        if (c->key == NULL || c->text == NULL || memchr(c->text, '\0', bytes) != NULL ||
            (utf8 && !oz_utf8_valid(c->text, bytes, NULL))) {
            continue;
        }
        char *key = from_latin1(c->key, strlen(c->key));
        char *text = utf8 ? oz_strndup(c->text, bytes) : from_latin1(c->text, bytes);
        w->picture->texts[w->picture->text_count++] =
            (struct oz_png_text){.keyword = key, .text = text};
        if (key == NULL || text == NULL) {
            return OZ_ERR_NOMEM;
        }
    }
    return OZ_OK;
}

static enum oz_status decode_with(struct work *w, struct oz_error *err)
{
    bool done = read_header(w);
    if (w->too_large) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "The PNG has %u x %u pixels; at most %llu are read.", w->width, w->height,
                       (unsigned long long)w->max_pixels);
    }
    if (done) {
        w->picture->width = w->width;
        w->picture->height = w->height;
        w->picture->rgb = oz_alloc_zero((size_t)w->width * w->height, 3);
        w->no_memory = w->no_memory || w->picture->rgb == NULL;
        done = !w->no_memory && read_pixels(w);
    }
    /* Without memory for a text the library goes on without it; we do not. */
    if (w->no_memory || (done && take_texts(w) != OZ_OK)) {
        return OZ_FAIL_NOMEM(err, "a PNG");
    }
    return done ? OZ_OK : OZ_FAIL(err, OZ_ERR_FORMAT, "The PNG cannot be read: %s.", w->message);
}

/* Does every chunk lie within the data? The library takes memory for what a chunk says that it has, up to
 * 2 GiB, and writes to all of it before it reads. */
static bool chunks_fit(const uint8_t *data, size_t bytes)
{
    size_t at = 8;
    while (bytes - at >= 8) { /* length, name; and behind the data a checksum */
        const uint8_t *p = data + at;
        size_t length = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | (size_t)p[3];
        if (bytes - at < 12 || length > bytes - at - 12) {
            return false;
        }
        if (memcmp(p + 4, "IEND", 4) == 0) {
            break;
        }
        at += length + 12;
    }
    return true;
}

enum oz_status oz_png_decode(const void *data, size_t bytes, uint64_t max_pixels,
                             struct oz_png *png, struct oz_error *err)
{
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    *png = (struct oz_png){0};
    if (bytes < sizeof signature || memcmp(data, signature, sizeof signature) != 0) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "The picture is not a PNG.");
    }
    if (!chunks_fit(data, bytes)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "The PNG cannot be read: the data ends too early.");
    }
    struct work w = {.data = data, .left = bytes, .max_pixels = max_pixels, .picture = png};
    enum oz_status status = decode_with(&w, err);
    png_destroy_read_struct(&w.png, &w.info, NULL);
    if (status != OZ_OK) {
        oz_png_deinit(png);
    }
    return status;
}

void oz_png_deinit(struct oz_png *png)
{
    for (size_t i = 0; i < png->text_count; i++) {
        oz_free((char *)(uintptr_t)png->texts[i].keyword);
        oz_free((char *)(uintptr_t)png->texts[i].text);
    }
    oz_free(png->texts);
    oz_free(png->rgb);
    *png = (struct oz_png){0};
}

const char *oz_png_find_text(const struct oz_png *png, const char *keyword)
{
    for (size_t i = 0; i < png->text_count; i++) {
        if (strcmp(png->texts[i].keyword, keyword) == 0) {
            return png->texts[i].text;
        }
    }
    return NULL;
}
