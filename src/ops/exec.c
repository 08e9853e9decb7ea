#include "ops/exec.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

void oz_exec_init(struct oz_exec *x, struct oz_device *dev, enum oz_exec_mode mode,
                  struct oz_arena *step, struct oz_error *err)
{
    *x = (struct oz_exec){.dev = dev, .mode = mode, .step = step, .err = err, .label = ""};
}

void oz_exec_fail(struct oz_exec *x, enum oz_status status, const char *format, ...)
{
    if (x->status != OZ_OK) {
        return;
    }
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    x->status = OZ_FAIL(x->err, status, "%s", text);
}

void *oz_exec_push(struct oz_exec *x, size_t bytes)
{
    void *memory = NULL;
    if (x->status == OZ_OK && oz_arena_push(x->step, bytes, &memory) != OZ_OK) {
        oz_exec_fail(x, OZ_ERR_NOMEM,
                     "The %s arena is full: %zu bytes more at %s, %zu of %zu in use.",
                     x->step->name, bytes, x->label, x->step->used_bytes, x->step->capacity_bytes);
    }
    return memory;
}

void oz_exec_reset(struct oz_exec *x, size_t mark)
{
    oz_arena_reset(x->step, mark);
}

void oz_exec_upload(struct oz_exec *x, void *dst, const void *host, size_t bytes)
{
    if (x->status != OZ_OK || x->mode == OZ_EXEC_MEASURE || bytes == 0) {
        return;
    }
    x->status = x->dev->upload(x->dev, x->queue, dst, host, bytes, x->err);
}

struct oz_act_spec oz_act_spec_f32(void)
{
    return (struct oz_act_spec){.dtype = OZ_DTYPE_F32};
}

bool oz_act_spec_equal(const struct oz_act_spec *a, const struct oz_act_spec *b)
{
    if (a->dtype != b->dtype || a->scale_count != b->scale_count ||
        a->exponent_rule != b->exponent_rule || a->second_by_row != b->second_by_row ||
        a->smooth != b->smooth || a->rotate_cols != b->rotate_cols ||
        a->static_scale != b->static_scale || a->static_offset != b->static_offset ||
        a->low_rank_a != b->low_rank_a) {
        return false;
    }
    for (int32_t i = 0; i < a->scale_count; i++) {
        if (a->scale[i].dtype != b->scale[i].dtype ||
            a->scale[i].group_cols != b->scale[i].group_cols ||
            a->scale[i].layout != b->scale[i].layout) {
            return false;
        }
    }
    return true;
}

bool oz_act_is_f32(const struct oz_act *a)
{
    return a->spec.dtype == OZ_DTYPE_F32 && a->spec.scale_count == 0;
}

struct oz_act oz_act_f32(void *data, int64_t rows, int64_t cols)
{
    return (struct oz_act){
        .data = data, .rows = rows, .cols = cols, .stride = cols, .spec = oz_act_spec_f32()};
}

struct oz_act oz_exec_act(struct oz_exec *x, int64_t rows, int64_t cols)
{
    return oz_act_f32(oz_exec_push(x, (size_t)rows * (size_t)cols * sizeof(float)), rows, cols);
}

struct oz_act oz_exec_act_half(struct oz_exec *x, int64_t rows, int64_t cols)
{
    const struct oz_act_spec spec = {.dtype = x->dev->half_rows ? OZ_DTYPE_BF16 : OZ_DTYPE_F32};
    return oz_exec_act_as(x, rows, cols, &spec);
}

struct oz_act oz_exec_act_as(struct oz_exec *x, int64_t rows, int64_t cols,
                             const struct oz_act_spec *spec)
{
    size_t bits = (size_t)oz_dtype_bits(spec->dtype) * (size_t)cols;
    int64_t stride = bits % 8 == 0 ? cols : cols + 1; /* rows of 4-bit codes begin at a byte */
    struct oz_act a = {.rows = rows, .cols = cols, .stride = stride, .spec = *spec};
    a.data = oz_exec_push(x, (bits + 7) / 8 * (size_t)rows);
    for (int32_t i = 0; i < spec->scale_count; i++) {
        int64_t group = spec->scale[i].group_cols;
        size_t groups = group > 0 ? (size_t)((cols + group - 1) / group) : 1;
        size_t lines = (size_t)rows;
        if (spec->scale[i].layout == OZ_SCALE_SWIZZLE_128X4) {
            lines = (lines + 127) / 128 * 128;
            groups = (groups + 3) / 4 * 4;
        }
        a.scales[i] =
            oz_exec_push(x, lines * groups * (size_t)oz_dtype_bits(spec->scale[i].dtype) / 8);
    }
    return a;
}

struct oz_act oz_act_cols(const struct oz_act *a, int64_t first, int64_t count)
{
    struct oz_act view = *a;
    view.data = oz_act_at(a->data, a->spec.dtype, first);
    view.cols = count;
    return view;
}

struct oz_act oz_act_reshape(const struct oz_act *a, int64_t rows, int64_t cols)
{
    struct oz_act view = *a;
    view.rows = rows;
    view.cols = cols;
    view.stride = cols;
    return view;
}
