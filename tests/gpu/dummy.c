/* Weights without files; see dummy.h. */
#include "dummy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "num/float8.h"
#include "ops/param.h"
#include "quant/scheme.h"

#define NOISE_VALUES ((size_t)8 << 20)
#define ALIGN 256

enum { NOISE_BF16, NOISE_E4M3, NOISE_BYTES, NOISE_F32 };
static const size_t value_bytes[] = {2, 1, 1, 4};

static uint64_t state = 88172645463325252U;

static uint64_t draw(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1DU;
}

static void fill_noise(int kind, uint8_t *to)
{
    for (size_t i = 0; i < NOISE_VALUES; i++) {
        double u = ((double)(draw() >> 11) + 0.5) * 0x1p-53;
        float x =
            (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * (double)(draw() >> 11) * 0x1p-53));
        uint16_t half = oz_f32_to_bf16(x * 0.02F);
        float scale = 0.0002F * (1 + (float)fabs((double)x));
        switch (kind) {
        case NOISE_BF16: memcpy(to + 2 * i, &half, 2); break;
        case NOISE_E4M3: to[i] = oz_f32_to_e4m3(x * 100); break;
        case NOISE_BYTES: to[i] = (uint8_t)draw(); break;
        default: memcpy(to + 4 * i, &scale, 4); break;
        }
    }
}

enum oz_status dummy_open(struct dummy *d, struct oz_device *dev, struct oz_error *err)
{
    *d = (struct dummy){.dev = dev};
    uint8_t *host = malloc(NOISE_VALUES * 4);
    enum oz_status status = host != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "noise");
    for (int i = 0; i < 4 && status == OZ_OK; i++) {
        fill_noise(i, host);
        status = dev->alloc(dev, NOISE_VALUES * value_bytes[i], &d->noise[i], err);
        if (status == OZ_OK) {
            status = dev->upload(dev, NULL, d->noise[i], host, NOISE_VALUES * value_bytes[i], err);
        }
        if (status == OZ_OK) {
            status = dev->wait(dev, NULL, err);
        }
    }
    free(host);
    return status;
}

enum oz_status dummy_share(struct dummy *d, const struct dummy *first)
{
    *d = (struct dummy){.dev = first->dev, .borrows = true};
    memcpy(d->noise, first->noise, sizeof d->noise);
    return OZ_OK;
}

void dummy_empty(struct dummy *d)
{
    d->dev->free(d->dev, d->weights);
    d->weights = NULL;
    d->bytes = 0;
}

void dummy_close(struct dummy *d)
{
    dummy_empty(d);
    for (int i = 0; i < 4 && !d->borrows; i++) {
        d->dev->free(d->dev, d->noise[i]);
    }
}

static int noise_of(enum oz_dtype dtype)
{
    return dtype == OZ_DTYPE_BF16      ? NOISE_BF16
           : dtype == OZ_DTYPE_F8_E4M3 ? NOISE_E4M3
           : dtype == OZ_DTYPE_F32     ? NOISE_F32
                                       : NOISE_BYTES;
}

/* Copies noise over a plane. Exponents (e8m0) are the bytes of one value: noise would be too wide. */
static enum oz_status cover(struct dummy *d, enum oz_dtype dtype, uint8_t *to, size_t bytes,
                            struct oz_error *err)
{
    int kind = noise_of(dtype);
    size_t size = NOISE_VALUES * value_bytes[kind];
    if (dtype == OZ_DTYPE_F8_E8M0) {
        uint8_t exponents[4096];
        memset(exponents, 0x75, sizeof exponents); /* 2^-10 */
        for (size_t at = 0; at < bytes; at += sizeof exponents) {
            size_t n = bytes - at < sizeof exponents ? bytes - at : sizeof exponents;
            if (at == 0) {
                OZ_TRY(d->dev->upload(d->dev, NULL, to, exponents, n, err));
                OZ_TRY(d->dev->wait(d->dev, NULL, err));
            } else {
                OZ_TRY(d->dev->copy(d->dev, NULL, to + at, to, n, err));
            }
        }
        return OZ_OK;
    }
    for (size_t at = 0; at < bytes;) {
        size_t first = (size_t)(draw() % (size / 2)) / ALIGN * ALIGN;
        size_t n = bytes - at < size - first ? bytes - at : size - first;
        OZ_TRY(d->dev->copy(d->dev, NULL, to + at, (uint8_t *)d->noise[kind] + first, n, err));
        at += n;
    }
    return OZ_OK;
}

static bool is_block_linear(const struct oz_layer *l)
{
    return l->kind == OZ_LAYER_LINEAR &&
           (l->role == OZ_ROLE_ATTN_QKV || l->role == OZ_ROLE_ATTN_OUT ||
            l->role == OZ_ROLE_MLP_UP || l->role == OZ_ROLE_MLP_DOWN);
}

static int64_t columns(const struct oz_layer *l)
{
    int64_t n = 1;
    for (int32_t i = l->rank == 1 ? 0 : 1; i < l->rank; i++) {
        n *= l->shape[i];
    }
    return n;
}

/* The weight's shape and what it wants of its rows; nothing of it is there yet. */
static enum oz_status shape(const struct oz_layer *l, const struct oz_scheme *scheme,
                            struct oz_error *err)
{
    struct oz_param *p = l->bind;
    bool coded = scheme->codec != NULL && is_block_linear(l);
    bool vector = l->kind == OZ_LAYER_VECTOR || l->kind == OZ_LAYER_NORM;
    p->weight = oz_weight_shape(coded    ? scheme->codec
                                : vector ? oz_codec_plain(OZ_DTYPE_F32)
                                         : oz_codec_plain(OZ_DTYPE_BF16),
                                1, l->rank == 1 ? 1 : l->shape[0], columns(l));
    p->act_count = 0;
    return coded ? oz_param_set_acts(p, scheme, err) : OZ_OK;
}

/* Modulation is a table that is made before the steps (--modulation schedule). */
static bool stays(const struct oz_layer *l)
{
    return l->role != OZ_ROLE_MODULATION;
}

/* Sizes of all planes; with memory, their places and contents. */
static enum oz_status lay(struct dummy *d, const struct oz_layer_table *t, uint8_t *memory,
                          size_t *total, struct oz_error *err)
{
    *total = 0;
    for (int32_t i = 0; i < t->count; i++) {
        struct oz_param *p = stays(&t->rows[i]) ? t->rows[i].bind : NULL;
        for (int j = 0; p != NULL && j < OZ_PLANE_COUNT; j++) {
            struct oz_plane_view *v = &p->weight.planes[j];
            if (!v->present) {
                continue;
            }
            if (oz_weight_plane_bytes(&p->weight, (enum oz_plane)j, &v->bytes,
                                      &v->row_stride_bytes) != OZ_OK) {
                return OZ_FAIL(err, OZ_ERR_INTERNAL, "%s has no size.", t->rows[i].name);
            }
            v->slice_stride_bytes = v->bytes;
            if (memory != NULL) {
                v->data = memory + *total;
                OZ_TRY(cover(d, v->dtype, v->data, (size_t)v->bytes, err));
            }
            *total += ((size_t)v->bytes + ALIGN - 1) / ALIGN * ALIGN;
        }
    }
    return OZ_OK;
}

enum oz_status dummy_fill(struct dummy *d, const struct oz_layer_table *t, const char *scheme,
                          struct oz_error *err)
{
    struct oz_scheme s = {0};
    if (scheme != NULL) {
        const struct oz_act_support support = d->dev->ops->act_support(d->dev);
        const struct oz_scheme_info *info = oz_scheme_find(scheme);
        if (info == NULL) {
            return OZ_FAIL(err, OZ_ERR_ARG, "No scheme is named %s.", scheme);
        }
        OZ_TRY(oz_scheme_make(&s, info, &support, err));
    }
    dummy_empty(d);
    for (int32_t i = 0; i < t->count; i++) {
        if (t->rows[i].bind != NULL) {
            OZ_TRY(shape(&t->rows[i], &s, err));
        }
    }
    OZ_TRY(lay(d, t, NULL, &d->bytes, err));
    OZ_TRY(d->dev->alloc(d->dev, d->bytes, &d->weights, err));
    OZ_TRY(lay(d, t, d->weights, &d->bytes, err));
    return d->dev->wait(d->dev, NULL, err);
}
