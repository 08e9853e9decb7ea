#include "ckpt/drawn.h"

#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "ckpt/container.h"

/* What a tensor is drawn from, by its place in the sorted table. */
struct source {
    const uint16_t *table;
    uint64_t state;
};

struct oz_ckpt_drawn {
    struct oz_noise noise;
    struct source *sources; /* [count] */
};

bool oz_ckpt_is_drawn(const struct oz_ckpt *ckpt)
{
    return ckpt->drawn != NULL;
}

void oz_ckpt_drawn_source(const struct oz_ckpt *c, const struct oz_tensor_view *t,
                          const uint16_t **table, uint64_t *state)
{
    int64_t index = 0;
    (void)oz_ckpt_find(c, t->name, &index);
    *table = c->drawn->sources[index].table;
    *state = c->drawn->sources[index].state;
}

void oz_ckpt_drawn_destroy(struct oz_ckpt_drawn *d)
{
    if (d != NULL) {
        oz_noise_deinit(&d->noise);
        oz_free(d->sources);
        oz_free(d);
    }
}

void oz_ckpt_drawn_read(const struct oz_ckpt *c, const struct oz_tensor_view *t, int64_t offset,
                        int64_t bytes, void *dst)
{
    int64_t index;
    if (oz_ckpt_find(c, t->name, &index) == NULL || bytes == 0) {
        return;
    }
    const struct source *s = &c->drawn->sources[index];
    uint8_t *to = dst;
    int64_t end = offset + bytes;
    if (offset % 2 != 0) { /* in the midst of an element */
        uint8_t pair[2];
        oz_noise_fill(s->table, s->state, offset / 2, 1, pair);
        *to++ = pair[1];
        offset++;
    }
    int64_t whole = (end - offset) / 2;
    oz_noise_fill(s->table, s->state, offset / 2, whole, to);
    if ((end - offset) % 2 != 0) {
        uint8_t pair[2];
        oz_noise_fill(s->table, s->state, end / 2, 1, pair);
        to[2 * whole] = pair[0];
    }
}

static enum oz_status add_tensor(struct oz_ckpt *c, const struct oz_ckpt_spec *spec,
                                 struct oz_error *err)
{
    struct oz_tensor_view *t = oz_ckpt_add_tensor(c);
    const char *name = oz_ckpt_own(c, spec->name);
    if (t == NULL || name == NULL) {
        return OZ_FAIL_NOMEM(err, spec->name);
    }
    if (spec->dtype != OZ_DTYPE_BF16) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL, "%s cannot be drawn as %s.", spec->name,
                       oz_dtype_name(spec->dtype));
    }
    t->name = name;
    t->dtype = spec->dtype;
    t->rank = spec->rank;
    t->elements = 1;
    for (int32_t i = 0; i < spec->rank; i++) {
        t->shape[i] = spec->shape[i];
        if (__builtin_mul_overflow(t->elements, spec->shape[i], &t->elements)) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "The shape of %s is too large.", spec->name);
        }
    }
    struct oz_ckpt_file *f = &c->files[0];
    t->file_offset = f->bytes;
    if (__builtin_mul_overflow(t->elements, INT64_C(2), &t->bytes) ||
        __builtin_add_overflow(f->bytes, t->bytes, &f->bytes)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "The shape of %s is too large.", spec->name);
    }
    return OZ_OK;
}

/* The one file that stands for all. */
static enum oz_status add_file(struct oz_ckpt *c, const char *of, struct oz_error *err)
{
    struct oz_buf b;
    oz_buf_init(&b, OZ_CKPT_MAX_NAME_BYTES);
    oz_buf_printf(&b, "dummy weights of %s", of);
    const char *path = b.status == OZ_OK ? oz_ckpt_own(c, oz_buf_text(&b)) : NULL;
    oz_buf_deinit(&b);
    c->files = oz_alloc_zero(1, sizeof *c->files);
    c->maps = oz_alloc_zero(1, sizeof *c->maps);
    if (path == NULL || c->files == NULL || c->maps == NULL) {
        return OZ_FAIL_NOMEM(err, of);
    }
    c->files[0] = (struct oz_ckpt_file){.path = path, .fd = -1};
    c->maps[0].fd = -1;
    c->file_count = c->file_capacity = 1;
    return OZ_OK;
}

static enum oz_status fill(struct oz_ckpt *c, const struct oz_ckpt_drawing *d, struct oz_error *err)
{
    OZ_TRY(add_file(c, d->name, err));
    for (int32_t i = 0; i < d->count; i++) {
        OZ_TRY(add_tensor(c, &d->specs[i], err));
    }
    OZ_TRY(oz_ckpt_sort(c, err));
    c->drawn = oz_alloc_zero(1, sizeof *c->drawn);
    struct source *sources = oz_alloc_zero((size_t)d->count, sizeof *sources);
    if (c->drawn == NULL || sources == NULL) {
        oz_free(sources);
        return OZ_FAIL_NOMEM(err, d->name);
    }
    c->drawn->sources = sources;
    for (int32_t i = 0; i < d->count; i++) {
        int64_t index = 0;
        (void)oz_ckpt_find(c, d->specs[i].name, &index);
        sources[index].table = oz_noise_table(&c->drawn->noise, d->fillings[i]);
        sources[index].state = oz_noise_state(d->seed, d->specs[i].name);
        if (sources[index].table == NULL) {
            return OZ_FAIL_NOMEM(err, d->name);
        }
    }
    oz_noise_trim(&c->drawn->noise);
    return OZ_OK;
}

enum oz_status oz_ckpt_draw(struct oz_ckpt **out, const struct oz_ckpt_drawing *drawing,
                            struct oz_error *err)
{
    struct oz_ckpt *c = oz_alloc_zero(1, sizeof *c);
    *out = NULL;
    if (c == NULL) {
        return OZ_FAIL_NOMEM(err, drawing->name);
    }
    enum oz_status status = fill(c, drawing, err);
    if (status != OZ_OK) {
        oz_ckpt_close(&c);
        return status;
    }
    *out = c;
    return OZ_OK;
}
