#include "quant/dialect/form.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "num/plane.h"

static int64_t fill_up(int64_t extent, int64_t multiple)
{
    return multiple > 1 ? (extent + multiple - 1) / multiple * multiple : extent;
}

static int64_t cells(int64_t extent, int64_t cell)
{
    return (extent + cell - 1) / cell;
}

/* ---- places ---- */

int64_t oz_at_swizzled(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)rows;
    return (row / 128 * cells(cols, 4) + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 +
           col % 4;
}

int64_t oz_at_transposed(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)cols;
    return col * rows + row;
}

/* ---- finding ---- */

const struct oz_tensor_view *oz_form_find(const struct oz_dialect_reader *r, int32_t row,
                                          const char *suffix)
{
    return oz_stored_find(r->ckpt, &r->table->rows[row], suffix, NULL);
}

bool oz_form_has(const struct oz_dialect_reader *r, int32_t row, const char *suffix,
                 enum oz_dtype dtype)
{
    const struct oz_tensor_view *t = oz_form_find(r, row, suffix);
    return oz_stored_is_matrix(&r->table->rows[row]) && t != NULL &&
           (dtype == OZ_DTYPE_COUNT || t->dtype == dtype);
}

bool oz_form_spend(const struct oz_dialect_reader *r, int32_t row, const char *suffix)
{
    struct oz_stored_weight *w = &r->out->weights[row];
    int64_t index;
    if (oz_stored_find(r->ckpt, &r->table->rows[row], suffix, &index) == NULL) {
        return false;
    }
    if (w->spent_count < OZ_STORED_SPENT) {
        w->spent[w->spent_count++] = index;
    }
    return true;
}

/* ---- forms ---- */

static enum oz_status take_scales(const struct oz_dialect_reader *r, int32_t row,
                                  const struct oz_form *f)
{
    const struct oz_layer *layer = &r->table->rows[row];
    int64_t rows = layer->shape[0];
    int64_t cols = layer->shape[1];
    struct oz_dialect_tensor want = {.plane = OZ_PLANE_SCALES,
                                     .suffix = f->scales,
                                     .dtype = f->scale_dtype,
                                     .rank = 2,
                                     .shape = {rows, 1},
                                     .move = f->scale_move};
    switch (f->scope) {
    case OZ_FORM_TENSOR: want.shape[0] = 1; break;
    case OZ_FORM_ROW: break;
    case OZ_FORM_BLOCK:
        want.shape[0] = cells(rows, 128);
        want.shape[1] = cells(cols, 128);
        break;
    case OZ_FORM_GROUP: want.shape[1] = cells(cols, f->group); break;
    }
    if (f->swizzled) {
        want.at = oz_at_swizzled;
        const struct oz_tensor_view *t = oz_form_find(r, row, f->scales);
        int64_t tiles = cells(want.shape[0], 128); /* the same bytes as [tiles * 32, ...], too */
        bool flat = t != NULL && t->rank == 2 && t->shape[0] == tiles * 32;
        want.shape[0] = flat ? tiles * 32 : tiles * 128;
        want.shape[1] = fill_up(want.shape[1], 4) * (flat ? 4 : 1);
    } else if (f->transposed) {
        int64_t groups = want.shape[1];
        want.at = oz_at_transposed;
        want.shape[1] = want.shape[0];
        want.shape[0] = groups;
    }
    return oz_stored_take(&r->out->weights[row], r->ckpt, r->path, layer, &want, r->err);
}

enum oz_status oz_form_take(const struct oz_dialect_reader *r, int32_t row, const struct oz_form *f)
{
    const struct oz_layer *layer = &r->table->rows[row];
    int64_t cols = layer->shape[1];
    struct oz_stored_weight *w = &r->out->weights[row];
    if (f->per_byte == 2 && cols % 2 != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s has %" PRId64
                       " input features; rows of 4-bit codes that do not end with "
                       "a byte are not read.",
                       layer->module, cols);
    }
    const struct oz_dialect_tensor codes = {
        .plane = OZ_PLANE_CODES,
        .suffix = f->codes,
        .dtype = f->code_dtype,
        .rank = 2,
        .shape = {fill_up(layer->shape[0], f->row_multiple), cols / f->per_byte},
        .move = f->code_move};
    OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &codes, r->err));
    OZ_TRY(take_scales(r, row, f));
    if (f->scales2 != NULL) {
        const struct oz_dialect_tensor want = {.plane = OZ_PLANE_SCALES2,
                                               .suffix = f->scales2,
                                               .dtype = OZ_DTYPE_F32,
                                               .rank = 1,
                                               .shape = {1},
                                               .move = f->scale2_move};
        OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &want, r->err));
    }
    OZ_TRY(oz_stored_scheme(&r->out->schemes[row], f->scheme, f->mode, r->err));
    r->out->count++;
    return OZ_OK;
}

#define LARGEST_SCALE 16.0F /* of FP8 weights of up to 7168 */

/* A scale and its reciprocal are worlds apart for weights: one that is read for the other is seen. */
static enum oz_status check_size(const struct oz_dialect_reader *r, const struct oz_tensor_view *t,
                                 bool inverse)
{
    uint8_t bytes[8];
    float x = 0;
    if (t == NULL || t->elements == 0 || oz_codec_plain(t->dtype) == NULL) {
        return OZ_OK;
    }
    OZ_TRY(oz_ckpt_read(r->ckpt, t, 0, oz_dtype_bits(t->dtype) / 8, bytes, r->err));
    oz_plane_read(t->dtype, bytes, 0, 1, &x);
    if (inverse ? x < 1 : x > LARGEST_SCALE) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "Tensor %s begins with %g, which %s: weights would reach %g. It is a factor "
                       "that %s; a config says so by \"weight_scale_semantics\"%s.",
                       t->name, (double)x, inverse ? "would divide" : "would multiply",
                       (double)(inverse ? 448 / x : 448 * x), inverse ? "multiplies" : "divides",
                       inverse ? ", which is wrong here" : " \"inverse\"");
    }
    return OZ_OK;
}

enum oz_status oz_form_take_int8(const struct oz_dialect_reader *r, int32_t row, const char *codes,
                                 const char *scales, enum oz_act_mode mode)
{
    const struct oz_tensor_view *t = oz_form_find(r, row, scales);
    bool one = t != NULL && t->elements == 1 && r->table->rows[row].shape[0] != 1;
    const struct oz_form f = {.scheme = "int8",
                              .codes = codes,
                              .scales = scales,
                              .code_dtype = OZ_DTYPE_I8,
                              .scale_dtype = OZ_DTYPE_F32,
                              .per_byte = 1,
                              .scope = one ? OZ_FORM_TENSOR : OZ_FORM_ROW,
                              .scale_move = one ? OZ_MOVE_REPEAT : OZ_MOVE_BYTES,
                              .mode = mode};
    return oz_form_take(r, row, &f);
}

enum oz_status oz_form_take_fp8(const struct oz_dialect_reader *r, int32_t row, const char *codes,
                                const char *scales, bool inverse)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_form_find(r, row, scales);
    struct oz_form f = {.scheme = "fp8_per_tensor",
                        .codes = codes,
                        .scales = scales,
                        .code_dtype = OZ_DTYPE_F8_E4M3,
                        .scale_dtype = OZ_DTYPE_F32,
                        .per_byte = 1,
                        .scope = OZ_FORM_TENSOR,
                        .scale_move = inverse ? OZ_MOVE_RECIPROCAL : OZ_MOVE_BYTES,
                        .mode = OZ_ACT_FP8_TOKEN};
    int64_t blocks = cells(layer->shape[0], 128) * cells(layer->shape[1], 128);
    OZ_TRY(check_size(r, t, inverse));
    bool grid = t != NULL && t->rank >= 2 && t->shape[0] == cells(layer->shape[0], 128) &&
                t->elements == blocks && (t->rank > 2 || t->shape[1] > 1 || t->shape[0] > 1);
    if (t == NULL || t->elements == 1) {
        return oz_form_take(r, row, &f);
    }
    if (grid && !(t->elements == layer->shape[0] && t->shape[0] == layer->shape[0])) {
        f.scheme = "fp8_per_block";
        f.scope = OZ_FORM_BLOCK;
        f.mode = OZ_ACT_FP8_GROUP;
        return oz_form_take(r, row, &f);
    }
    f.scheme = "fp8_per_channel";
    f.scope = OZ_FORM_ROW;
    if (t->elements != layer->shape[0]) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "Tensor %s has %" PRId64 " elements; scales of %s [%" PRId64 ", %" PRId64
                       "] are 1, one for each row, or one for each 128x128.",
                       t->name, t->elements, layer->module, layer->shape[0], layer->shape[1]);
    }
    return oz_form_take(r, row, &f);
}

static struct oz_dialect_tensor int4_scales(const struct oz_layer *layer,
                                            const struct oz_form_int4 *f, enum oz_plane plane,
                                            const char *suffix)
{
    int64_t groups = cells(layer->shape[1], f->group);
    struct oz_dialect_tensor want = {.plane = plane,
                                     .suffix = suffix,
                                     .dtype = OZ_DTYPE_F32,
                                     .rank = 2,
                                     .shape = {layer->shape[0], groups}};
    if (f->transposed || f->scales_at != NULL) {
        want.at = f->scales_at != NULL ? f->scales_at : oz_at_transposed;
        want.shape[0] = groups;
        want.shape[1] = layer->shape[0];
    }
    return want;
}

enum oz_status oz_form_take_int4(const struct oz_dialect_reader *r, int32_t row,
                                 const struct oz_form_int4 *f)
{
    const struct oz_layer *layer = &r->table->rows[row];
    struct oz_stored_weight *w = &r->out->weights[row];
    const char *codec = f->bytes ? "u8_group" : "u4_group";
    if ((layer->shape[1] % 2 != 0 && !f->bytes) || f->group < 1 ||
        layer->shape[1] % f->group != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s has %" PRId64 " input features, which are no whole groups of %" PRId64
                       " codes of %d bits.",
                       layer->module, layer->shape[1], f->group, f->bytes ? 8 : 4);
    }
    const struct oz_dialect_tensor codes = {.plane = OZ_PLANE_CODES,
                                            .suffix = f->codes,
                                            .dtype = f->code_dtype,
                                            .rank = 2,
                                            .shape = {f->code_shape[0], f->code_shape[1]},
                                            .move = f->code_move,
                                            .at = f->at};
    const struct oz_dialect_tensor scales = int4_scales(layer, f, OZ_PLANE_SCALES, f->scales);
    OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &codes, r->err));
    OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &scales, r->err));
    if (f->mins != NULL) {
        const struct oz_dialect_tensor mins = int4_scales(layer, f, OZ_PLANE_MINS, f->mins);
        OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &mins, r->err));
    }
    w->planes[OZ_PLANE_ZEROS].move = f->unsigned_codes ? OZ_MOVE_REPEAT : OZ_MOVE_BYTES;
    w->group_cols = (int32_t)f->group;
    r->out->schemes[row] =
        (struct oz_scheme){.name = codec, .codec = oz_codec_find(codec), .mode_count = 1};
    r->out->count++;
    return OZ_OK;
}

/* ---- beside the weight ---- */

enum oz_status oz_form_zeros(const struct oz_dialect_reader *r, int32_t row, const char *suffix)
{
    uint8_t bytes[4096];
    const struct oz_tensor_view *t = oz_form_find(r, row, suffix);
    int64_t size = t != NULL ? oz_dtype_bits(t->dtype) / 8 : 1;
    for (int64_t at = 0; t != NULL && at < t->bytes;) {
        int64_t n = t->bytes - at < (int64_t)sizeof bytes ? t->bytes - at : (int64_t)sizeof bytes;
        OZ_TRY(oz_ckpt_read(r->ckpt, t, at, n, bytes, r->err));
        for (int64_t i = 0; i < n; i++) {
            bool sign = (i + 1) % size == 0 && oz_codec_plain(t->dtype) != NULL; /* -0.0 */
            if ((bytes[i] & (sign ? 0x7F : 0xFF)) != 0) {
                return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                               "Tensor %s is not zero everywhere; asymmetric weights of this kind "
                               "are not read by this version.",
                               t->name);
            }
        }
        at += n;
    }
    (void)oz_form_spend(r, row, suffix);
    return OZ_OK;
}

enum oz_status oz_form_number(const struct oz_dialect_reader *r, int32_t row, const char *suffix,
                              float *out)
{
    const struct oz_tensor_view *t = oz_form_find(r, row, suffix);
    const char *module = r->table->rows[row].module;
    *out = 0;
    if (t == NULL || t->dtype != OZ_DTYPE_F32 || t->elements != 1) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s: the tensor %s.%s is missing, or is not one F32.",
                       r->path, module, suffix);
    }
    OZ_TRY(oz_ckpt_read(r->ckpt, t, 0, 4, out, r->err));
    return *out > 0 && isfinite(*out)
               ? OZ_OK
               : OZ_FAIL(r->err, OZ_ERR_FORMAT, "Tensor %s is %g; a scale is above 0, and finite.",
                         t->name, (double)*out);
}

enum oz_status oz_form_input_scale(const struct oz_dialect_reader *r, int32_t row,
                                   const char *suffix, bool *found)
{
    const struct oz_tensor_view *t = oz_form_find(r, row, suffix);
    if (found != NULL) {
        *found = t != NULL;
    }
    if (t == NULL) {
        return OZ_OK;
    }
    uint32_t allowed = oz_scheme_allowed_acts(r->out->schemes[row].name);
    const struct oz_dialect_tensor want = {.plane = OZ_PLANE_INPUT_SCALE,
                                           .suffix = suffix,
                                           .dtype = OZ_DTYPE_F32,
                                           .rank = 1,
                                           .shape = {1}};
    if ((allowed & OZ_ACT_BIT(OZ_ACT_FP8_STATIC)) == 0) {
        (void)oz_form_spend(r, row, suffix);
        return OZ_OK;
    }
    return oz_stored_take(&r->out->weights[row], r->ckpt, r->path, &r->table->rows[row], &want,
                          r->err);
}

/* ---- what is expanded ---- */

void oz_stored_expand(struct oz_stored *stored, int32_t row)
{
    struct oz_stored_weight *w = &stored->weights[row];
    struct oz_scheme *s = &stored->schemes[row];
    if (w->codec == NULL && !oz_codec_is_plain(s->codec)) {
        w->codec = s->codec;
        *s = (struct oz_scheme){
            .name = "expanded to bf16", .codec = oz_codec_plain(OZ_DTYPE_BF16), .mode_count = 1};
    }
}

void oz_form_expand(const struct oz_dialect_reader *r, int32_t row)
{
    oz_stored_expand(r->out, row);
}

/* A plane of floats of any dtype, of so many elements in the whole. */
static enum oz_status take_floats(const struct oz_dialect_reader *r, int32_t row,
                                  enum oz_plane plane, const char *suffix, int64_t first,
                                  int64_t second, oz_dialect_at_fn at)
{
    struct oz_stored_weight *w = &r->out->weights[row];
    const struct oz_layer *layer = &r->table->rows[row];
    int64_t index;
    const struct oz_tensor_view *t = oz_stored_find(r->ckpt, layer, suffix, &index);
    bool same = t != NULL && oz_codec_plain(t->dtype) != NULL && t->elements == first * second &&
                t->rank > 0 && (t->shape[0] == first || (first == 1 && t->shape[0] == second));
    if (!same) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: the tensor %s.%s is missing, or is no [%" PRId64 ", %" PRId64
                       "] of floating point.",
                       r->path, layer->module, suffix, first, second);
    }
    w->planes[plane].tensor = t;
    w->planes[plane].index = index;
    w->planes[plane].at = at;
    return OZ_OK;
}

enum oz_status oz_form_smooth(const struct oz_dialect_reader *r, int32_t row, const char *suffix,
                              bool multiplies)
{
    oz_form_expand(r, row);
    r->out->weights[row].smooth_multiplies = multiplies;
    return take_floats(r, row, OZ_PLANE_SMOOTH, suffix, 1, r->table->rows[row].shape[1], NULL);
}

enum oz_status oz_form_low_rank(const struct oz_dialect_reader *r, int32_t row, const char *down,
                                const char *up, bool down_transposed, oz_dialect_at_fn down_at,
                                oz_dialect_at_fn up_at)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *t = oz_form_find(r, row, up);
    int64_t rank = t != NULL && t->rank == 2 ? t->shape[1] : 0;
    int64_t cols = layer->shape[1];
    if (rank < 1 || rank > 4096) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: the tensor %s.%s is missing, or is no [%" PRId64 ", rank].", r->path,
                       layer->module, up, layer->shape[0]);
    }
    oz_form_expand(r, row);
    r->out->weights[row].rank = (int32_t)rank;
    OZ_TRY(take_floats(r, row, OZ_PLANE_LOW_RANK_A, down, down_transposed ? cols : rank,
                       down_transposed ? rank : cols, down_at));
    return take_floats(r, row, OZ_PLANE_LOW_RANK_B, up, layer->shape[0], rank, up_at);
}

#define MOST_FACTOR 4096 /* rows of a factor: they are about the root of the columns */

enum oz_status oz_form_factors(const struct oz_dialect_reader *r, int32_t row, const char *left,
                               const char *right)
{
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *l = oz_form_find(r, row, left);
    const struct oz_tensor_view *t = l != NULL ? l : oz_form_find(r, row, right);
    int64_t size = t != NULL && t->rank == 2 ? t->shape[0] : 0;
    bool small = size > 0 && size <= MOST_FACTOR && layer->shape[1] / size <= MOST_FACTOR;
    if (!small || layer->shape[1] % size != 0) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "%s: %s has no %s and no %s, or they are no square matrices of at most %d "
                       "rows that divide %" PRId64 ".",
                       r->path, layer->module, left, right, MOST_FACTOR, layer->shape[1]);
    }
    int64_t rows = l != NULL ? size : layer->shape[1] / size;
    int64_t cols = layer->shape[1] / rows;
    oz_form_expand(r, row);
    r->out->weights[row].rotate_rows = (int32_t)rows;
    if (l != NULL) {
        OZ_TRY(take_floats(r, row, OZ_PLANE_ROTATE_L, left, rows, rows, NULL));
    }
    return oz_form_find(r, row, right) != NULL
               ? take_floats(r, row, OZ_PLANE_ROTATE_R, right, cols, cols, NULL)
               : OZ_OK;
}
