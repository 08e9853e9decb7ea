/* Operands that exist twice; see twin.h. */
#include "twin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/act.h"
#include "num/codec.h"
#include "num/float.h"
#include "num/gguf.h"
#include "num/plane.h"
#include "op_call.h"

#define ALIGN 256

bool twin_open(struct twin *t, struct oz_device *cpu, struct oz_device *gpu, size_t bytes)
{
    struct oz_error err;
    void *device = NULL;
    *t = (struct twin){.cpu = cpu, .gpu = gpu, .bytes = bytes};
    if (gpu->alloc(gpu, bytes, &device, &err) != OZ_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        return false;
    }
    t->device = device;
    t->host = aligned_alloc(ALIGN, bytes);
    t->back = aligned_alloc(ALIGN, bytes);
    return t->host != NULL && t->back != NULL;
}

void twin_close(struct twin *t)
{
    t->gpu->free(t->gpu, t->device);
    free(t->host);
    free(t->back);
}

void twin_begin(struct twin *t, int side, uint64_t seed)
{
    t->side = side;
    t->base = side == 0 ? t->host : t->device;
    t->used = 0;
    t->random = seed * 0x9E3779B97F4A7C15U + 1;
    t->act_count = t->param_count = t->linear_count = t->ragged_count = 0;
}

uint64_t twin_random(struct twin *t)
{
    t->random ^= t->random >> 12;
    t->random ^= t->random << 25;
    t->random ^= t->random >> 27;
    return t->random * 0x2545F4914F6CDD1DU;
}

double twin_normal(struct twin *t)
{
    double u = ((double)(twin_random(t) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(twin_random(t) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

void *twin_take(struct twin *t, size_t bytes)
{
    size_t at = t->used;
    t->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (t->used > t->bytes) {
        (void)fprintf(stderr, "twin memory is full: %zu of %zu bytes\n", t->used, t->bytes);
        abort();
    }
    if (t->side == 0) {
        memset(t->host + at, 0xFF, bytes); /* NaN wherever nothing is written */
    }
    return t->base + at;
}

void *twin_host(const struct twin *t, const void *p)
{
    return t->host + ((const uint8_t *)p - t->base);
}

static void put(const struct twin *t, const struct oz_act *a, int64_t row, int64_t col, double x)
{
    if (t->side == 1) {
        return;
    }
    if (a->spec.dtype == OZ_DTYPE_F32) {
        ((float *)a->data)[row * a->stride + col] = (float)x;
    } else {
        ((uint16_t *)a->data)[row * a->stride + col] = oz_f32_to_bf16((float)x);
    }
}

struct oz_act *twin_act(struct twin *t, int64_t rows, int64_t cols, int64_t gap,
                        enum oz_dtype dtype, double deviation)
{
    struct oz_act *a = &t->acts[t->act_count++];
    *a =
        (struct oz_act){.rows = rows, .cols = cols, .stride = cols + gap, .spec = {.dtype = dtype}};
    a->data = twin_take(t, (size_t)(rows * a->stride) * (size_t)oz_dtype_bits(dtype) / 8);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            put(t, a, r, c, twin_normal(t) * deviation);
        }
    }
    return a;
}

struct oz_act *twin_out(struct twin *t, int64_t rows, int64_t cols, const struct oz_act_spec *spec)
{
    struct oz_act *a = &t->acts[t->act_count++];
    *a = (struct oz_act){.rows = rows, .cols = cols, .stride = cols, .spec = *spec};
    a->data = twin_take(t, (size_t)(rows * cols) * (size_t)oz_dtype_bits(spec->dtype) / 8);
    for (int32_t i = 0; i < spec->scale_count; i++) {
        int64_t group = spec->scale[i].group_cols;
        int64_t groups = group > 0 ? (cols + group - 1) / group : 1;
        a->scales[i] =
            twin_take(t, (size_t)(rows * groups) * (size_t)oz_dtype_bits(spec->scale[i].dtype) / 8);
    }
    return a;
}

struct oz_act *twin_quantized(struct twin *t, int64_t rows, int64_t cols,
                              const struct oz_act_spec *spec)
{
    struct oz_act *x = twin_act(t, rows, cols, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = twin_out(t, rows, cols, spec);
    if (t->side == 0) {
        const struct oz_act_quant_args a = {.x = x, .out = out, .rows = rows};
        if (twin_run(t->cpu, OZ_OP_ACT_QUANT, &a) != OZ_OK) {
            (void)fprintf(stderr, "the CPU does not quantize these rows\n");
            abort();
        }
    }
    return out;
}

/* ---- weights ---- */

/* Random bytes, and factors of blocks near 1/64, so that values are numbers. */
static void fill_blocks(const struct oz_gguf_type *type, uint8_t *b)
{
    for (int i = 0; i < 2 && type->factors[i] != OZ_GGUF_NONE; i++) {
        int factor = type->factors[i];
        float one = 0x1p-6F * (1 + (float)(b[3] & 15) / 16);
        uint32_t half = 0x2400U + (b[3] & 0xFFU); /* f16 of 2^-6 and a little more */
        if (factor == OZ_GGUF_F32) {
            memcpy(b, &one, sizeof one);
        } else if (factor == OZ_GGUF_E8M0) {
            b[0] = (uint8_t)(120 + b[0] % 4);
        } else if (factor == OZ_GGUF_WORDS) {
            for (int k = 0; k < 4; k++) {
                uint8_t *top = b + type->bytes - 8 + 2 * k + 1;
                *top = (uint8_t)((*top & 15U) | (half >> 4 * k & 15U) << 4);
            }
        } else {
            b[factor] = (uint8_t)half;
            b[factor + 1] = (uint8_t)(half >> 8);
        }
    }
    if (strcmp(type->name, "NVFP4") == 0) { /* four scales of 1/16 or so */
        for (int k = 0; k < 4; k++) {
            b[k] = (uint8_t)(24 + b[k] % 16);
        }
    }
}

/* A plane of a weight that nobody encodes. Values are drawn on both sides, and written on the host. */
static void fill_plane(struct twin *t, const struct oz_weight *w, enum oz_plane plane)
{
    const struct oz_plane_view *v = &w->planes[plane];
    const struct oz_gguf_type *type = oz_gguf_type_of(w->codec);
    uint32_t groups = w->group_cols > 0 ? (uint32_t)((w->cols - 1) / w->group_cols) + 1 : 1;
    for (int64_t i = 0; v->dtype != OZ_DTYPE_U8 && i < v->bytes / 4; i++) {
        float x = (float)(plane == OZ_PLANE_SCALES ? 0.01 * (1.5 + fabs(twin_normal(t)))
                                                   : 0.02 * twin_normal(t));
        int32_t group = (int32_t)(twin_random(t) % groups);
        if (t->side == 0) {
            memcpy((uint8_t *)v->data + 4 * i, plane == OZ_PLANE_PERM ? (void *)&group : &x, 4);
        }
    }
    for (int64_t i = 0; v->dtype == OZ_DTYPE_U8 && i < v->bytes; i++) {
        uint8_t byte = (uint8_t)(twin_random(t) >> 32);
        if (t->side == 0) {
            ((uint8_t *)v->data)[i] = byte;
        }
    }
    for (int64_t i = 0; type != NULL && t->side == 0 && i < v->bytes; i += type->bytes) {
        fill_blocks(type, (uint8_t *)v->data + i);
    }
}

static void encode_weight(struct twin *t, struct oz_weight *w, double deviation)
{
    const struct oz_codec *c = w->codec;
    struct oz_encode_state state;
    float *values = malloc((size_t)(w->rows * w->cols) * sizeof *values);
    for (int64_t i = 0; values != NULL && i < w->rows * w->cols; i++) {
        values[i] = (float)(twin_normal(t) * deviation);
    }
    oz_encode_state_init(&state);
    if (t->side == 0 && values != NULL) {
        enum oz_status status = OZ_OK;
        for (int32_t pass = 0; pass < c->observe_passes && status == OZ_OK; pass++) {
            state.pass = pass;
            status = c->observe(w, 0, values, w->rows, w->cols, &state);
        }
        if (c->begin != NULL) {
            c->begin(w, 0, &state);
        }
        if (status != OZ_OK || c->encode(w, 0, 0, values, w->rows, w->cols, &state) != OZ_OK) {
            (void)fprintf(stderr, "%s does not encode\n", c->name);
            abort();
        }
    }
    free(values);
}

/* "u4_group+zeros+mins+perm": planes that it need not have. Groups of 32 then. */
static void add_planes(struct oz_weight *w, const char *options)
{
    static const struct {
        const char *name;
        enum oz_plane plane;
    } known[] = {{"+zeros", OZ_PLANE_ZEROS}, {"+mins", OZ_PLANE_MINS}, {"+perm", OZ_PLANE_PERM}};
    for (size_t i = 0; options != NULL && i < sizeof known / sizeof *known; i++) {
        if (strstr(options, known[i].name) != NULL) {
            w->planes[known[i].plane].present = true;
            w->planes[known[i].plane].dtype = oz_codec_plane(w->codec, known[i].plane)->dtype;
            w->group_cols = 32;
        }
    }
}

/* Room for the planes, then the codec's own encoder on the host, or random bytes. */
struct oz_param *twin_weight(struct twin *t, const char *codec, int64_t rows, int64_t cols,
                             double deviation)
{
    struct oz_param *p = &t->params[t->param_count++];
    char name[32];
    const char *options = strchr(codec, '+');
    (void)snprintf(name, sizeof name, "%.*s",
                   (int)(options != NULL ? options - codec : (long)strlen(codec)), codec);
    *p = (struct oz_param){.name = codec, .rank = 2, .shape = {rows, cols}};
    p->weight = oz_weight_shape(oz_codec_find(name), 1, rows, cols);
    add_planes(&p->weight, options);
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *v = &p->weight.planes[i];
        if (v->present && oz_weight_plane_bytes(&p->weight, (enum oz_plane)i, &v->bytes,
                                                &v->row_stride_bytes) == OZ_OK) {
            v->slice_stride_bytes = v->bytes;
            v->data = twin_take(t, (size_t)v->bytes);
        }
    }
    if (p->weight.codec->encode != NULL) {
        encode_weight(t, &p->weight, deviation);
        return p;
    }
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        if (p->weight.planes[i].present) {
            fill_plane(t, &p->weight, (enum oz_plane)i);
        }
    }
    return p;
}

struct oz_param *twin_vector(struct twin *t, int64_t n, double deviation)
{
    struct oz_param *p = twin_weight(t, "f32", 1, n, deviation);
    p->rank = 1;
    p->shape[0] = n;
    return p;
}

struct oz_linear *twin_linear(struct twin *t, const char *codec, int64_t n, int64_t k, bool bias)
{
    struct oz_linear *l = &t->linears[t->linear_count++];
    *l = (struct oz_linear){.w = *twin_weight(t, codec, n, k, 1 / sqrt((double)k))};
    if (bias) {
        l->b = *twin_vector(t, n, 0.5);
    }
    return l;
}

struct oz_ragged *twin_ragged(struct twin *t, int count, const int32_t *lengths)
{
    int i = t->ragged_count++;
    int32_t *at = twin_take(t, ((size_t)count + 1) * sizeof *at);
    t->offsets[i][0] = 0;
    for (int s = 0; s < count; s++) {
        t->offsets[i][s + 1] = t->offsets[i][s] + lengths[s];
    }
    if (t->side == 0) {
        memcpy(at, t->offsets[i], ((size_t)count + 1) * sizeof *at);
    }
    t->ragged[i] =
        (struct oz_ragged){.count = count, .offsets = t->offsets[i], .device_offsets = at};
    return &t->ragged[i];
}

int32_t *twin_ids(struct twin *t, int64_t count, int64_t below)
{
    int32_t *ids = twin_take(t, (size_t)count * sizeof *ids);
    for (int64_t i = 0; i < count; i++) {
        int32_t id = (int32_t)(twin_random(t) % (uint64_t)below);
        if (t->side == 0) {
            ids[i] = id;
        }
    }
    return ids;
}

/* ---- running ---- */

enum oz_status twin_run(struct oz_device *dev, enum oz_op op, const void *args)
{
    struct oz_error err = {.message = ""};
    struct oz_op_ctx ctx = {.dev = dev, .scratch_bytes = dev->ops->scratch_bytes(dev, op, args)};
    if (ctx.scratch_bytes > 0 && dev->alloc(dev, ctx.scratch_bytes, &ctx.scratch, &err) != OZ_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        return OZ_ERR_NOMEM;
    }
    enum oz_status status = op_call(&ctx, op, args);
    if (status == OZ_OK && dev->wait(dev, NULL, &err) != OZ_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        status = OZ_ERR_DEVICE;
    }
    dev->free(dev, ctx.scratch);
    return status;
}

enum oz_status twin_upload(struct twin *t)
{
    struct oz_error err;
    enum oz_status status = t->gpu->upload(t->gpu, NULL, t->device, t->host, t->used, &err);
    return status == OZ_OK ? t->gpu->wait(t->gpu, NULL, &err) : status;
}

enum oz_status twin_download(struct twin *t)
{
    struct oz_error err;
    enum oz_status status = t->gpu->download(t->gpu, NULL, t->back, t->device, t->used, &err);
    return status == OZ_OK ? t->gpu->wait(t->gpu, NULL, &err) : status;
}

/* ---- comparing ---- */

/* Value of rows in any format, from a copy of the device's memory at `base`. */
static float value(const struct twin *t, const uint8_t *base, const struct oz_act *a, int64_t row,
                   int64_t col)
{
    int64_t bits = row * a->stride * oz_dtype_bits(a->spec.dtype);
    const uint8_t *codes = base + ((uint8_t *)a->data - t->device) + bits / 8;
    float x;
    oz_plane_read(a->spec.dtype, codes, col, 1, &x);
    for (int32_t i = 0; i < a->spec.scale_count; i++) {
        int64_t group = a->spec.scale[i].group_cols;
        int64_t groups = group > 0 ? (a->cols + group - 1) / group : 1;
        const uint8_t *scales = base + ((uint8_t *)a->scales[i] - t->device);
        x *= oz_plane_get(a->spec.scale[i].dtype, scales,
                          row * groups + (group > 0 ? col / group : 0));
    }
    return x;
}

struct twin_distance twin_compare(const struct twin *t, const struct oz_act *a)
{
    struct twin_distance d = {0};
    double error = 0;
    double size = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t c = 0; c < a->cols; c++) {
            double want = (double)value(t, t->host, a, r, c);
            double got = (double)value(t, t->back, a, r, c);
            double off = fabs(got - want);
            error += off * off;
            size += want * want;
            d.largest = off > d.largest || isnan(off) ? off : d.largest;
            d.different += got != want;
        }
    }
    d.relative = size > 0 ? sqrt(error / size) : sqrt(error);
    return d;
}
