#include "encode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dev/ops.h"
#include "num/float.h"
#include "num/noise.h"

#define MOST_BYTES ((size_t)16 << 20)
#define SOURCE_AT ((size_t)8 << 20) /* planes, then rows, then the mark */
#define MARK_AT (MOST_BYTES - 256)

static const char *const codecs[] = {"fp8_tensor", "fp8_channel", "fp8_block",       "int8_channel",
                                     "mxfp8",      "mxfp4",       "mxfp4_dualscale", "nvfp4"};
static const struct {
    int64_t slices, rows, cols, chunk; /* rows that are sent at once: whole blocks of 128 */
} shapes[] = {{1, 256, 512, 128},
              {3, 300, 1000, 128},
              {1, 131, 77, 131},
              {1, 4, 12288, 4},
              {2, 128, 33, 128}};
static const enum oz_exponent_rule rules[] = {OZ_EXPONENT_DEFAULT, OZ_EXPONENT_FLOOR,
                                              OZ_EXPONENT_CEIL, OZ_EXPONENT_EVEN};
enum { CODECS = sizeof codecs / sizeof *codecs, SHAPES = sizeof shapes / sizeof *shapes };

struct bench {
    struct oz_device *gpu;
    gpu_tell_fn tell;
    uint8_t *device, *back, *host; /* MOST_BYTES each */
    uint16_t *rows;
    float *f32;
    uint64_t random;
};

static uint64_t next(struct bench *b)
{
    b->random = b->random * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return b->random >> 33;
}

/* Of ordinary size; a row of zeros, one of each end of the range, some halves that round to even. */
static void fill_rows(struct bench *b, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        float size = r % 16 == 3 ? 0 : r % 16 == 5 ? 0x1p120F : r % 16 == 7 ? 0x1p-130F : 0.02F;
        for (int64_t c = 0; c < cols; c++) {
            float x = (float)((int64_t)(next(b) % 2001) - 1000) * 0.003F * size;
            b->rows[r * cols + c] = oz_f32_to_bf16(r % 16 == 9 ? (float)(c % 15 - 7) * 0.25F : x);
            b->f32[r * cols + c] = oz_bf16_to_f32(b->rows[r * cols + c]);
        }
    }
}

/* Planes one after the other at `base`; the bytes of all. */
static size_t lay_planes(struct oz_weight *w, uint8_t *base)
{
    size_t at = 0;
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *v = &w->planes[i];
        if (v->present &&
            oz_weight_plane_bytes(w, (enum oz_plane)i, &v->bytes, &v->row_stride_bytes) == OZ_OK) {
            v->slice_stride_bytes = v->bytes / w->slices;
            v->data = base + at;
            at += ((size_t)v->bytes + 255) / 256 * 256;
        }
    }
    return at;
}

static struct oz_encode_state observed(const struct bench *b, const struct oz_weight *w,
                                       int64_t slice, enum oz_exponent_rule rule, bool keep)
{
    struct oz_encode_state s;
    oz_encode_state_init(&s);
    s.exponent_rule = rule;
    s.keep_nonfinite = keep;
    if (w->codec->observe_passes > 0) {
        enum oz_status status =
            w->codec->observe(w, 0, b->f32 + slice * w->rows * w->cols, w->rows, w->cols, &s);
        (void)status; /* what is not finite is marked later */
    }
    return s;
}

static enum oz_status on_host(const struct bench *b, struct oz_weight *w,
                              enum oz_exponent_rule rule, bool keep)
{
    enum oz_status status = OZ_OK;
    for (int64_t s = 0; s < w->slices && status == OZ_OK; s++) {
        struct oz_encode_state state = observed(b, w, s, rule, keep);
        if (w->codec->begin != NULL) {
            w->codec->begin(w, s, &state);
        }
        status =
            w->codec->encode(w, s, 0, b->f32 + s * w->rows * w->cols, w->rows, w->cols, &state);
    }
    return status;
}

/* Chunk by chunk, as a load sends them. */
static enum oz_status on_device(const struct bench *b, const struct oz_weight *w, int64_t chunk,
                                enum oz_exponent_rule rule, bool keep, uint64_t *mark)
{
    struct oz_error err;
    struct oz_device *d = b->gpu;
    *mark = UINT64_MAX;
    OZ_TRY(d->upload(d, NULL, b->device + MARK_AT, mark, sizeof *mark, &err));
    for (int64_t s = 0; s < w->slices; s++) {
        for (int64_t r = 0; r < w->rows; r += chunk) {
            int64_t rows = w->rows - r < chunk ? w->rows - r : chunk;
            const struct oz_encode_rows_args a = {.w = w,
                                                  .slice = s,
                                                  .row0 = r,
                                                  .rows = rows,
                                                  .src = b->device + SOURCE_AT,
                                                  .state = observed(b, w, s, rule, keep),
                                                  .bad = (uint64_t *)(void *)(b->device + MARK_AT)};
            OZ_TRY(d->upload(d, NULL, b->device + SOURCE_AT, b->rows + (s * w->rows + r) * w->cols,
                             (size_t)(rows * w->cols) * 2, &err));
            OZ_TRY(d->ops->encode_rows(d, NULL, &a, &err));
        }
    }
    OZ_TRY(d->download(d, NULL, mark, b->device + MARK_AT, sizeof *mark, &err));
    OZ_TRY(d->download(d, NULL, b->back, b->device, SOURCE_AT, &err));
    return d->wait(d, NULL, &err);
}

static void encode_case(struct bench *b, const char *codec, size_t shape,
                        enum oz_exponent_rule rule, bool keep)
{
    char text[160];
    struct oz_weight here = oz_weight_shape(oz_codec_find(codec), shapes[shape].slices,
                                            shapes[shape].rows, shapes[shape].cols);
    struct oz_weight there = here;
    uint64_t mark;
    memset(b->host, 0, SOURCE_AT);
    size_t bytes = lay_planes(&here, b->host);
    (void)lay_planes(&there, b->device);
    struct oz_error err;
    enum oz_status status = b->gpu->upload(b->gpu, NULL, b->device, b->host, SOURCE_AT, &err);
    enum oz_status host = on_host(b, &here, rule, keep);
    status =
        status == OZ_OK ? on_device(b, &there, shapes[shape].chunk, rule, keep, &mark) : status;
    size_t differ = 0;
    for (size_t i = 0; i < bytes; i++) {
        differ += b->host[i] != b->back[i];
    }
    bool good = status == OZ_OK && host == OZ_OK && differ == 0 && mark == UINT64_MAX;
    (void)snprintf(
        text, sizeof text, "%s %lldx%lldx%lld rule %d%s: %zu of %zu bytes differ, mark %llx, %s",
        codec, (long long)here.slices, (long long)here.rows, (long long)here.cols, (int)rule,
        keep ? " with NaN" : "", differ, bytes, (unsigned long long)mark, oz_status_text(status));
    b->tell(good, "encode", (int)shape, text);
}

/* The first of two is marked. */
static void marked(struct bench *b, const char *codec)
{
    char text[160];
    const int64_t at = 200 * 512 + 17;
    struct oz_weight w = oz_weight_shape(oz_codec_find(codec), 1, 256, 512);
    uint64_t mark = 0;
    fill_rows(b, 256, 512);
    (void)lay_planes(&w, b->device);
    b->rows[at] = 0xFF80;
    b->rows[at + 5000] = 0x7FC1;
    enum oz_status status = on_device(b, &w, 128, OZ_EXPONENT_DEFAULT, false, &mark);
    (void)snprintf(text, sizeof text, "%s: mark %lld of %lld, %s", codec, (long long)mark,
                   (long long)at, oz_status_text(status));
    b->tell(status == OZ_OK && mark == (uint64_t)at, "mark", 0, text);
}

static void drawn(struct bench *b, int64_t first, int64_t count)
{
    char text[96];
    struct oz_error err;
    struct oz_noise noise = {0};
    const uint16_t *table = oz_noise_table(&noise, (struct oz_filling){0.5F, 0.02F});
    uint64_t state = oz_noise_state(9, "some.weight");
    const struct oz_draw_args a = {.table = (const uint16_t *)(void *)(b->device + SOURCE_AT),
                                   .state = state,
                                   .first = first,
                                   .count = count,
                                   .dst = b->device};
    oz_noise_fill(table, state, first, count, b->host);
    enum oz_status status = b->gpu->upload(b->gpu, NULL, b->device + SOURCE_AT, table,
                                           OZ_NOISE_NUMBERS * sizeof *table, &err);
    status = status == OZ_OK ? b->gpu->ops->draw(b->gpu, NULL, &a, &err) : status;
    status = status == OZ_OK
                 ? b->gpu->download(b->gpu, NULL, b->back, b->device, (size_t)count * 2, &err)
                 : status;
    status = status == OZ_OK ? b->gpu->wait(b->gpu, NULL, &err) : status;
    bool good = status == OZ_OK && memcmp(b->back, b->host, (size_t)count * 2) == 0;
    (void)snprintf(text, sizeof text, "[%lld, %lld) %s", (long long)first,
                   (long long)(first + count), oz_status_text(status));
    b->tell(good, "draw", 0, text);
    oz_noise_deinit(&noise);
}

static void run_all(struct bench *b)
{
    for (int c = 0; c < CODECS; c++) {
        const struct oz_codec *codec = oz_codec_find(codecs[c]);
        if (b->gpu->ops->row_encoder(b->gpu, codec, OZ_DTYPE_BF16) == NULL) {
            b->tell(false, "encode", c, "is not encoded there");
            continue;
        }
        for (size_t s = 0; s < SHAPES; s++) {
            fill_rows(b, shapes[s].slices * shapes[s].rows, shapes[s].cols);
            size_t count = strncmp(codecs[c], "mx", 2) == 0 && strlen(codecs[c]) == 5 ? 4 : 1;
            for (size_t r = 0; r < count; r++) {
                encode_case(b, codecs[c], s, rules[r], false);
            }
        }
        fill_rows(b, shapes[1].slices * shapes[1].rows, shapes[1].cols);
        for (int64_t i = 0; i < 40; i++) {
            int64_t at =
                (int64_t)(next(b) % (uint64_t)(shapes[1].slices * shapes[1].rows * shapes[1].cols));
            b->rows[at] = i % 2 ? 0x7FC0 : 0x7F80;
            b->f32[at] = oz_bf16_to_f32(b->rows[at]);
        }
        encode_case(b, codecs[c], 1, OZ_EXPONENT_DEFAULT, true);
        marked(b, codecs[c]);
    }
    drawn(b, 0, 4096);
    drawn(b, 8, 1001);
    drawn(b, 7, 9);
    drawn(b, 1000003, 70001);
}

void gpu_encode_all(struct oz_device *gpu, gpu_tell_fn tell)
{
    struct oz_error err;
    void *device = NULL;
    struct bench b = {.gpu = gpu,
                      .tell = tell,
                      .back = malloc(MOST_BYTES),
                      .host = malloc(MOST_BYTES),
                      .rows = malloc(MOST_BYTES),
                      .f32 = malloc(MOST_BYTES),
                      .random = 3};
    if (b.back == NULL || b.host == NULL || b.rows == NULL || b.f32 == NULL ||
        gpu->alloc(gpu, MOST_BYTES, &device, &err) != OZ_OK) {
        tell(false, "encode", 0, "no memory");
    } else {
        b.device = device;
        run_all(&b);
    }
    gpu->free(gpu, device);
    free(b.back);
    free(b.host);
    free(b.rows);
    free(b.f32);
}
