/*
 * int_groups.c: what GPTQ, AWQ and AutoRound have in common: integers of 2 to 8 bits in groups of input
 * features, each with a scale and a zero point: "qweight", "qzeros", "scales", and with GPTQ perhaps
 * "g_idx". Input features run down, so that planes are gathered by columns; but in AWQ's version gemv,
 * whose rows are those of our planes and padded. Read only.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/dialect.h"

/* What a layer turned out to be. */
struct shape {
    int64_t rows, cols, bits, groups, group_cols;
};

struct reader {
    const struct oz_int_groups *g;
    const char *path;
    const struct oz_ckpt *ckpt;
    struct oz_error *err;
};

static bool has_shape(const struct oz_tensor_view *t, enum oz_dtype dtype, int64_t rows,
                      int64_t cols)
{
    return t->dtype == dtype && t->codec == NULL && t->rank == 2 && t->shape[0] == rows &&
           t->shape[1] == cols;
}

static enum oz_status fail_tensor(const struct reader *r, const struct oz_tensor_view *t,
                                  const char *wanted, int64_t rows, int64_t cols)
{
    return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                   "Tensor %s is %s with %" PRId64 " elements [%" PRId64 ", ...], but %s asks for "
                   "%s [%" PRId64 ", %" PRId64 "].",
                   t->name, oz_dtype_name(t->dtype), t->elements, t->rank > 0 ? t->shape[0] : 1,
                   r->path, wanted, rows, cols);
}

static enum oz_status take(struct oz_stored_weight *w, enum oz_plane plane, enum oz_plane_move move,
                           const struct oz_layer *layer, const char *suffix,
                           const struct oz_tensor_view **t, const struct reader *r)
{
    int64_t index;
    *t = oz_stored_find(r->ckpt, layer, suffix, &index);
    if (*t == NULL) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s has %s.qweight, but the tensor %s.%s is missing.",
                       oz_ckpt_file(r->ckpt, 0)->path, layer->module, layer->module, suffix);
    }
    w->planes[plane].tensor = *t;
    w->planes[plane].index = index;
    w->planes[plane].move = move;
    return OZ_OK;
}

/* Codes of so many bits fill words, or have a layout besides that makers write. */
static bool is_read(const struct oz_int_groups *g, int64_t bits)
{
    bool any = bits == 2 || bits == 3 || bits == 4 || bits == 8;
    return g->awq ? bits == 4 : any || (g->planar && bits > 4 && bits < 8);
}

#define WHICH(g)                \
    ((g)->awq      ? "of AWQ 4" \
     : (g)->planar ? "2 to 8"   \
                   : "2, 3, 4 and 8, and in the format gptq_p 5 to 7")

/* Bits from the words of the codes, groups from the lines of the scales: the config must agree. */
static enum oz_status measure(struct shape *s, const struct oz_layer *layer,
                              const struct oz_tensor_view *codes,
                              const struct oz_tensor_view *scales, const struct reader *r)
{
    const struct oz_int_groups *g = r->g;
    int64_t words = codes->rank == 2 ? codes->shape[0] : 0;
    s->rows = layer->shape[0];
    s->cols = layer->shape[1];
    s->bits = g->awq ? g->bits : s->cols > 0 ? words * 32 / s->cols : 0;
    if (!g->overrides || g->awq) {
        s->bits = g->bits;
    }
    s->group_cols = g->group_cols > 0 ? g->group_cols : s->cols;
    s->groups = scales->rank == 2 ? scales->shape[0] : 0;
    if (g->gemv) {
        s->groups = (s->cols + s->group_cols - 1) / (s->group_cols > 0 ? s->group_cols : 1);
    }
    bool agree = s->groups > 0 && (s->cols + s->group_cols - 1) / s->group_cols == s->groups;
    if (!agree && g->overrides && s->groups > 0 && s->cols % s->groups == 0) {
        s->group_cols = s->cols / s->groups;
        agree = true;
    }
    if (!agree || s->group_cols > INT32_MAX) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "Tensor %s has %" PRId64 " groups of %" PRId64
                       " columns, but %s says groups of %" PRId64 ".",
                       scales->name, s->groups, s->cols, r->path, g->group_cols);
    }
    if (!is_read(g, s->bits)) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "Tensor %s has codes of %" PRId64 " bits; %s are read.", codes->name,
                       s->bits, WHICH(g));
    }
    if (s->cols * s->bits % 32 != 0 || s->rows * s->bits % 32 != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s [%" PRId64 ", %" PRId64 "] does not fill words of 32 bits in codes of "
                       "%" PRId64 "; such layers are not read.",
                       layer->module, s->rows, s->cols, s->bits);
    }
    return OZ_OK;
}

/* Words that the groups of a row fill in AWQ's version gemv are a multiple of it. */
static int64_t padding_of(int64_t group_cols)
{
    return group_cols >= 128 ? 1 : group_cols >= 64 ? 2 : 4;
}

static enum oz_status check_shapes(const struct shape *s, const struct oz_tensor_view *codes,
                                   const struct oz_tensor_view *zeros,
                                   const struct oz_tensor_view *scales, const struct reader *r)
{
    bool awq = r->g->awq;
    int64_t code_rows = awq ? s->cols : s->cols * s->bits / 32;
    int64_t code_cols = awq ? s->rows * s->bits / 32 : s->rows;
    int64_t zero_cols = s->rows * s->bits / 32;
    int64_t scale_rows = s->groups;
    int64_t scale_cols = s->rows;
    int64_t zero_rows = s->groups;
    if (r->g->gemv) {
        int64_t unit = padding_of(s->group_cols);
        code_rows = zero_rows = scale_rows = s->rows;
        code_cols = s->cols / 8;
        zero_cols = ((s->groups + 7) / 8 + unit - 1) / unit * unit;
        scale_cols = zero_cols * 8;
    }
    if (!has_shape(codes, OZ_DTYPE_I32, code_rows, code_cols)) {
        return fail_tensor(r, codes, "I32", code_rows, code_cols);
    }
    if (!has_shape(zeros, OZ_DTYPE_I32, zero_rows, zero_cols)) {
        return fail_tensor(r, zeros, "I32", zero_rows, zero_cols);
    }
    if (!has_shape(scales, OZ_DTYPE_F16, scale_rows, scale_cols) &&
        !has_shape(scales, OZ_DTYPE_BF16, scale_rows, scale_cols) &&
        !has_shape(scales, OZ_DTYPE_F32, scale_rows, scale_cols)) {
        return fail_tensor(r, scales, "F16, BF16 or F32", scale_rows, scale_cols);
    }
    return OZ_OK;
}

/* GPTQ's list of groups, where it is there. */
static enum oz_status take_groups(struct oz_stored_weight *w, const struct shape *s,
                                  const struct oz_layer *layer, const struct reader *r)
{
    int64_t index;
    const struct oz_tensor_view *t = oz_stored_find(r->ckpt, layer, "g_idx", &index);
    if (t == NULL || r->g->awq) {
        return OZ_OK; /* with AWQ the match finds it unexpected */
    }
    if (t->dtype != OZ_DTYPE_I32 || t->rank != 1 || t->shape[0] != s->cols) {
        return fail_tensor(r, t, "I32", s->cols, 1);
    }
    w->planes[OZ_PLANE_PERM].tensor = t;
    w->planes[OZ_PLANE_PERM].index = index;
    w->planes[OZ_PLANE_PERM].move = OZ_MOVE_BYTES;
    return OZ_OK;
}

/* Of a row of AWQ's version gemv: groups in words of 8, padded to 1, 2 or 4 words. */
static int64_t in_words(int64_t row, int64_t col, int64_t cols, int64_t unit)
{
    int64_t words = ((cols + 7) / 8 + unit - 1) / unit * unit;
    return row * words * 8 + col;
}

#define AT(unit)                                                                          \
    static int64_t at_padded_##unit(int64_t row, int64_t col, int64_t rows, int64_t cols) \
    {                                                                                     \
        (void)rows;                                                                       \
        return in_words(row, col, cols, unit);                                            \
    }
AT(1)
AT(2)
AT(4)

static oz_dialect_at_fn at_padded(int64_t group_cols)
{
    int64_t unit = padding_of(group_cols);
    return unit == 1 ? at_padded_1 : unit == 2 ? at_padded_2 : at_padded_4;
}

struct moves {
    enum oz_plane_move codes, zeros, scales;
};

static struct moves moves_of(const struct oz_int_groups *g)
{
    if (g->gemv) {
        return (struct moves){OZ_MOVE_BYTES, OZ_MOVE_BYTES, OZ_MOVE_BYTES};
    }
    if (g->awq) {
        return (struct moves){OZ_MOVE_AWQ_CODES, OZ_MOVE_AWQ_ZEROS, OZ_MOVE_COLUMNS};
    }
    if (g->planar) {
        return (struct moves){OZ_MOVE_PLANAR_COLUMNS, OZ_MOVE_PLANAR_ZEROS, OZ_MOVE_COLUMNS};
    }
    return (struct moves){OZ_MOVE_WORD_COLUMNS,
                          g->one_less ? OZ_MOVE_GPTQ_ZEROS_LESS_ONE : OZ_MOVE_GPTQ_ZEROS,
                          OZ_MOVE_COLUMNS};
}

static enum oz_status read_row(struct oz_stored *out, int32_t row, const struct oz_layer *layer,
                               const struct reader *r)
{
    const struct oz_int_groups *g = r->g;
    struct oz_stored_weight w = {0};
    struct shape s;
    const struct oz_tensor_view *codes;
    const struct oz_tensor_view *zeros;
    const struct oz_tensor_view *scales;
    size_t n = strlen(layer->name);
    bool weight = n > 7 && strcmp(layer->name + n - 7, ".weight") == 0;
    if (layer->kind != OZ_LAYER_LINEAR || layer->rank != 2 || !weight ||
        oz_stored_find(r->ckpt, layer, "qweight", NULL) == NULL) {
        return OZ_OK; /* plain: what a config lists besides, the tensors say as well */
    }
    const struct moves m = moves_of(g);
    OZ_TRY(take(&w, OZ_PLANE_CODES, m.codes, layer, "qweight", &codes, r));
    OZ_TRY(take(&w, OZ_PLANE_ZEROS, m.zeros, layer, "qzeros", &zeros, r));
    OZ_TRY(take(&w, OZ_PLANE_SCALES, m.scales, layer, "scales", &scales, r));
    OZ_TRY(measure(&s, layer, codes, scales, r));
    OZ_TRY(check_shapes(&s, codes, zeros, scales, r));
    if (g->gemv) {
        w.planes[OZ_PLANE_ZEROS].at = w.planes[OZ_PLANE_SCALES].at = at_padded(s.group_cols);
    }
    OZ_TRY(take_groups(&w, &s, layer, r));
    w.group_cols = (int32_t)s.group_cols;
    static const char *const names[] = {"u2_group", "u3_group", "u4_group", "u5_group",
                                        "u6_group", "u7_group", "u8_group"};
    const char *name = names[s.bits - 2];
    out->weights[row] = w;
    out->schemes[row] = (struct oz_scheme){
        .name = name, .codec = oz_codec_find(name), .mode_count = 1, .acts = {OZ_ACT_NONE}};
    out->count++;
    return OZ_OK;
}

enum oz_status oz_int_groups_read(const struct oz_dialect_reader *d)
{
    struct oz_int_groups g = {0};
    const char *method = d->out->method;
    OZ_TRY(strcmp(method, OZ_AWQ_METHOD) == 0    ? oz_awq_config(&g, d->q, d->path, d->err)
           : strcmp(method, OZ_GPTQ_METHOD) == 0 ? oz_gptq_config(&g, d->q, d->path, d->err)
                                                 : oz_auto_round_config(&g, d->q, d->path, d->err));
    if (!is_read(&g, g.bits)) {
        return OZ_FAIL(d->err, OZ_ERR_UNSUPPORTED, "%s: codes of %" PRId64 " bits; %s are read.",
                       d->path, g.bits, WHICH(&g));
    }
    const struct reader r = {.g = &g, .path = d->path, .ckpt = d->ckpt, .err = d->err};
    for (int32_t i = 0; i < d->table->count; i++) {
        OZ_TRY(read_row(d->out, i, &d->table->rows[i], &r));
    }
    return OZ_OK;
}
