/*
 * svdquant.c: SVDQuant: 4-bit codes of what a low-rank branch leaves, activations divided by a smoothing
 * vector: out = Q (x / smooth) * wtscale * wcscales + (x proj_down) proj_up^T. nunchaku's files ("qweight",
 * "wscales" ...) have everything in the order in which its kernels' lanes read; vLLM-Omni's of NVFP4
 * (the metadata key "conversion") row by row. Scales of int4 are 16-bit for 64 of a row, those of
 * NVFP4 e4m3 for 16. Layers are expanded: the branch is added to the weight. N and K are multiples of
 * 128 in nunchaku's order, and ranks of 16.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "quant/dialect/form.h"

/* ---- places in nunchaku's order ---- */

static int64_t at_codes(int64_t n, int64_t k, int64_t rows, int64_t cols)
{
    (void)rows;
    int64_t index = n / 128 * (cols / 64) + k / 64;
    index = index * 8 + n % 128 / 16;
    index = index * 8 + n % 8;
    index = index * 4 + k % 32 / 8;
    index = index * 2 + n % 16 / 8;
    index = index * 2 + k % 64 / 32;
    return index * 8 + k % 8;
}

/* A vector, or scales [rows, groups] of 16 bits. */
static int64_t at_scales(int64_t n, int64_t group, int64_t rows, int64_t groups)
{
    (void)rows;
    return (n / 128 * groups + group) * 128 + n % 128 / 16 * 16 + n % 8 / 2 * 4 + n % 16 / 8 * 2 +
           n % 2;
}

static int64_t at_vector(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)row;
    (void)rows;
    return at_scales(col, 0, cols, 1);
}

static int64_t at_column(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)col;
    (void)cols;
    return at_scales(row, 0, rows, 1);
}

static int64_t at_micro_scales(int64_t n, int64_t group, int64_t rows, int64_t groups)
{
    (void)rows;
    int64_t index = n / 128 * (groups / 4) + group / 4;
    index = index * 8 + n % 8;
    index = index * 4 + n % 32 / 8;
    index = index * 4 + n % 128 / 32;
    return index * 4 + group % 4;
}

/* Place of [row, col] of a tile of 16 x 16. */
static int64_t in_tile(int64_t row, int64_t col)
{
    return (((row % 8 * 4 + col % 8 / 2) * 2 + row / 8) * 2 + col / 8) * 2 + col % 2;
}

/* A [rank, cols] of the branch: rank in the rows of the tiles. */
static int64_t at_down(int64_t rank, int64_t c, int64_t ranks, int64_t cols)
{
    (void)cols;
    return (c / 16 * (ranks / 16) + rank / 16) * 256 + in_tile(rank % 16, c % 16);
}

/* B [rows, rank]: rank in the columns of the tiles. */
static int64_t at_up(int64_t c, int64_t rank, int64_t rows, int64_t ranks)
{
    (void)rows;
    return (c / 16 * (ranks / 16) + rank / 16) * 256 + in_tile(c % 16, rank % 16);
}

/* ---- layers ---- */

struct reader {
    const struct oz_dialect_reader *r;
    bool row_major; /* vLLM-Omni's */
};

static enum oz_status take_codes(const struct reader *s, int32_t row, bool fp4, int64_t group)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    struct oz_stored_weight *w = &r->out->weights[row];
    int64_t rows = layer->shape[0];
    int64_t cols = layer->shape[1];
    const struct oz_dialect_tensor codes = {.plane = OZ_PLANE_CODES,
                                            .suffix = "qweight",
                                            .dtype = OZ_DTYPE_U8,
                                            .rank = 2,
                                            .shape = {rows, cols / 2},
                                            .move = fp4 ? OZ_MOVE_BYTES : OZ_MOVE_SIGNED,
                                            .at = s->row_major ? NULL : at_codes};
    const struct oz_dialect_tensor scales = {.plane = OZ_PLANE_SCALES,
                                             .suffix = "wscales",
                                             .dtype = fp4 ? OZ_DTYPE_F8_E4M3 : OZ_DTYPE_F32,
                                             .rank = 2,
                                             .shape = {cols / group, rows},
                                             .at = s->row_major ? oz_at_transposed
                                                   : fp4        ? at_micro_scales
                                                                : at_scales};
    OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &codes, r->err));
    return oz_stored_take(w, r->ckpt, r->path, layer, &scales, r->err);
}

/* NVFP4's third level, by rows, and second, of the tensor. */
static enum oz_status take_fp4_levels(const struct reader *s, int32_t row)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    struct oz_stored_weight *w = &r->out->weights[row];
    const struct oz_dialect_tensor tensor = {.plane = OZ_PLANE_SCALES2,
                                             .suffix = "wtscale",
                                             .dtype = OZ_DTYPE_F32,
                                             .rank = 1,
                                             .shape = {1}};
    OZ_TRY(oz_stored_take(w, r->ckpt, r->path, layer, &tensor, r->err));
    const struct oz_dialect_tensor channels = {.plane = OZ_PLANE_SCALES3,
                                               .suffix = "wcscales",
                                               .dtype = OZ_DTYPE_F32,
                                               .rank = 1,
                                               .shape = {layer->shape[0]},
                                               .at = s->row_major ? NULL : at_column};
    return oz_stored_take(w, r->ckpt, r->path, layer, &channels, r->err);
}

static enum oz_status check_shape(const struct reader *s, int32_t row, int64_t group)
{
    const struct oz_layer *layer = &s->r->table->rows[row];
    int64_t multiple = s->row_major ? group : 128;
    bool rows = s->row_major || layer->shape[0] % 128 == 0;
    return rows && layer->shape[1] % multiple == 0
               ? OZ_OK
               : OZ_FAIL(s->r->err, OZ_ERR_UNSUPPORTED,
                         "%s is [%" PRId64 ", %" PRId64 "]; SVDQuant's weights are read in "
                         "multiples of %" PRId64 ".",
                         layer->module, layer->shape[0], layer->shape[1], multiple);
}

/* ---- AWQ: W = code * scale + zero, in the order of 16-bit words of four codes ---- */

static int64_t at_awq_codes(int64_t n, int64_t k, int64_t rows, int64_t cols)
{
    (void)rows;
    int64_t word = n / 4 * cols + k / 64 * 64 + n % 4 * 16 + k % 64 / 32 * 8 + k % 8;
    return word * 4 + k % 32 / 8;
}

/* Of a modulation the six parts (shift, scale and gate, twice) go feature by feature. */
#define PARTS 6

static int64_t in_parts(int64_t n, int64_t rows)
{
    int64_t features = rows / PARTS;
    return n % features * PARTS + n / features;
}

static int64_t at_parts_codes(int64_t n, int64_t k, int64_t rows, int64_t cols)
{
    return at_awq_codes(in_parts(n, rows), k, rows, cols);
}

static int64_t at_parts_scales(int64_t n, int64_t group, int64_t rows, int64_t groups)
{
    return oz_at_transposed(in_parts(n, rows), group, rows, groups);
}

static int64_t at_parts_vector(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)row;
    (void)rows;
    return in_parts(col, cols);
}

static int64_t at_plain_vector(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)rows;
    return row * cols + col;
}

/* The 1 of "1 + scale" is in the bias. */
static float less_one(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    (void)row;
    (void)rows;
    int64_t part = col / (cols / PARTS);
    return part == 1 || part == 4 ? -1.0F : 0.0F;
}

/* ---- biases ---- */

/* In an order of its own; NULL: the bias is as everywhere. *found: the row, or -1. */
static enum oz_status take_bias(const struct reader *s, int32_t row, oz_dialect_at_fn at,
                                int64_t *found)
{
    const struct oz_dialect_reader *r = s->r;
    char name[OZ_CKPT_MAX_NAME_BYTES + 8];
    int64_t index;
    const struct oz_tensor_view *t = oz_stored_find(r->ckpt, &r->table->rows[row], "bias", &index);
    (void)snprintf(name, sizeof name, "%s.bias", r->table->rows[row].module);
    const struct oz_layer *bias = oz_layer_find(r->table, name);
    *found = -1;
    if (s->row_major || t == NULL || bias == NULL) {
        return OZ_OK;
    }
    *found = bias - r->table->rows;
    if (t->elements != r->table->rows[row].shape[0] || bias->transform != 0 ||
        (t->dtype != OZ_DTYPE_BF16 && t->dtype != OZ_DTYPE_F16)) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT,
                       "Tensor %s is no vector of %" PRId64 " 16-bit numbers, as nunchaku has it.",
                       t->name, r->table->rows[row].shape[0]);
    }
    r->out->schemes[*found] =
        (struct oz_scheme){.name = "in nunchaku's order", .codec = oz_codec_plain(OZ_DTYPE_F32)};
    r->out->weights[*found].planes[OZ_PLANE_CODES].tensor = t;
    r->out->weights[*found].planes[OZ_PLANE_CODES].index = index;
    r->out->weights[*found].planes[OZ_PLANE_CODES].at = at;
    return OZ_OK;
}

/* Behind a GELU activations of int4 are unsigned: SHIFT, more than the least of a GELU, is added to them,
 * and what comes of it in the codes (the branch sees plain ones) was taken off the bias. */
#define SHIFT 0.171875F

static enum oz_status take_shift(const struct reader *s, int32_t row, int64_t bias)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    if (layer->role != OZ_ROLE_MLP_DOWN) {
        return OZ_OK;
    }
    if (!oz_svdquant_is_nunchaku(r->ckpt) || bias < 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: whether the activations of %s are shifted is told by nunchaku's own "
                       "metadata and a bias; the file has %s.",
                       r->path, layer->module, bias < 0 ? "no bias of it" : "none of these");
    }
    r->out->weights[bias].shifted = &r->out->weights[row];
    r->out->weights[bias].shifted_cols = layer->shape[1];
    r->out->weights[bias].shift = SHIFT;
    return OZ_OK;
}

static enum oz_status read_awq(const struct reader *s, int32_t row)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    int64_t rows = layer->shape[0];
    int64_t cols = layer->shape[1];
    int64_t bias;
    bool parts = layer->role == OZ_ROLE_MODULATION;
    if (s->row_major || rows % (parts ? 4 * PARTS : 4) != 0 || cols % 64 != 0) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s is [%" PRId64 ", %" PRId64 "]; nunchaku's AWQ weights are read in "
                       "multiples of [%d, 64]%s.",
                       layer->module, rows, cols, parts ? 4 * PARTS : 4,
                       s->row_major ? " and in its own order" : "");
    }
    const struct oz_form_int4 form = {.codes = "qweight",
                                      .scales = "wscales",
                                      .mins = "wzeros",
                                      .code_dtype = OZ_DTYPE_I32,
                                      .code_shape = {rows / 4, cols / 2},
                                      .at = parts ? at_parts_codes : at_awq_codes,
                                      .group = 64,
                                      .scales_at = parts ? at_parts_scales : oz_at_transposed,
                                      .unsigned_codes = true};
    OZ_TRY(oz_form_take_int4(r, row, &form));
    OZ_TRY(take_bias(s, row, parts ? at_parts_vector : at_plain_vector, &bias));
    if (bias >= 0 && parts) {
        r->out->weights[bias].planes[OZ_PLANE_CODES].plus = less_one;
    }
    return OZ_OK;
}

static enum oz_status read_row(const struct reader *s, int32_t row)
{
    const struct oz_dialect_reader *r = s->r;
    const struct oz_layer *layer = &r->table->rows[row];
    const struct oz_tensor_view *scales = oz_form_find(r, row, "wscales");
    if (!oz_stored_is_matrix(layer) || oz_form_find(r, row, "qweight") == NULL) {
        return OZ_OK;
    }
    if (scales == NULL) {
        return OZ_FAIL(r->err, OZ_ERR_FORMAT, "%s: %s.wscales is missing.", r->path, layer->module);
    }
    if (oz_form_find(r, row, "wzeros") != NULL) {
        return read_awq(s, row);
    }
    bool fp4 = scales->dtype == OZ_DTYPE_F8_E4M3;
    int64_t group = fp4 ? 16 : 64;
    if (!fp4 && s->row_major) {
        return OZ_FAIL(r->err, OZ_ERR_UNSUPPORTED,
                       "%s: %s is int4 in rows; only SVDQuant of NVFP4 is read so.", r->path,
                       layer->module);
    }
    OZ_TRY(check_shape(s, row, group));
    OZ_TRY(take_codes(s, row, fp4, group));
    r->out->schemes[row] = (struct oz_scheme){.name = fp4 ? "nvfp4" : "int4",
                                              .codec = oz_codec_find(fp4 ? "nvfp4" : "u4_group"),
                                              .mode_count = 1};
    r->out->weights[row].group_cols = (int32_t)group;
    r->out->count++;
    oz_form_expand(r, row);
    if (fp4) {
        OZ_TRY(take_fp4_levels(s, row));
    }
    int64_t bias;
    OZ_TRY(take_bias(s, row, at_vector, &bias));
    if (!fp4) {
        OZ_TRY(take_shift(s, row, bias));
    }
    OZ_TRY(oz_form_smooth(r, row, "smooth_factor", false));
    r->out->weights[row].planes[OZ_PLANE_SMOOTH].at = s->row_major ? NULL : at_vector;
    (void)oz_form_spend(r, row, "smooth_factor_orig");
    OZ_TRY(oz_form_low_rank(r, row, "proj_down", "proj_up", true,
                            s->row_major ? oz_at_transposed : at_down,
                            s->row_major ? NULL : at_up));
    int32_t rank = r->out->weights[row].rank;
    return s->row_major || rank % 16 == 0
               ? OZ_OK
               : OZ_FAIL(r->err, OZ_ERR_FORMAT,
                         "%s: the branch of %s has rank %d; nunchaku's ranks are multiples of 16.",
                         r->path, layer->module, (int)rank);
}

bool oz_svdquant_is_nunchaku(const struct oz_ckpt *ckpt)
{
    const char *model = oz_ckpt_metadata(ckpt, "model_class");
    return (model != NULL && strncmp(model, "Nunchaku", 8) == 0) ||
           oz_ckpt_metadata(ckpt, "quantization_config") != NULL;
}

enum oz_status oz_svdquant_read(const struct oz_dialect_reader *r)
{
    bool nunchaku = oz_svdquant_is_nunchaku(r->ckpt) || oz_json_get(r->q, "svdq_w4a4") != NULL;
    struct reader s = {.r = r, .row_major = oz_ckpt_metadata(r->ckpt, "conversion") != NULL};
    if (nunchaku == s.row_major) {
        return OZ_FAIL(
            r->err, OZ_ERR_FORMAT,
            "%s: SVDQuant's weights are in nunchaku's order where the metadata of the file "
            "name its \"model_class\" or \"quantization_config\", and in rows where they "
            "have \"conversion\"; this file has %s.",
            r->path, nunchaku ? "both" : "neither");
    }
    for (int32_t i = 0; i < r->table->count; i++) {
        OZ_TRY(read_row(&s, i));
    }
    return OZ_OK;
}
