/*
 * Block-scaled formats: mxfp8 (e4m3) and mxfp4 (e2m1) under an e8m0 scale per 32, OCP MX 1.0;
 * mxfp4_dualscale, the latter under one f32 per 512 besides; nvfp4, e2m1 under an e4m3 scale per 16
 * and one f32 for the slice. Value = (code * scale) * second scale. A last group may be short: it
 * is what zeros in the missing places would give.
 */
#include "num/codec_list.h"
#include "num/group.h"
#include "num/plane.h"

#define MX 32
#define DUAL 512
#define NV 16

OZ_DECODE_SCALED(decode_one_level, OZ_PLANE_SCALES)
OZ_DECODE_SCALED(decode_two_levels, OZ_PLANE_SCALES, OZ_PLANE_SCALES2)

static void mxfp8_row(struct oz_weight *w, int64_t slice, int64_t row, const float *x,
                      const struct oz_encode_state *state)
{
    uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row);
    for (int64_t c = 0; c < w->cols; c += MX) {
        scales[c / MX] =
            oz_mxfp8_encode(x + c, oz_min_count(MX, w->cols - c), state->exponent_rule, codes + c);
    }
}

static void mxfp4_row(struct oz_weight *w, int64_t slice, int64_t row, const float *x,
                      const struct oz_encode_state *state)
{
    uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row);
    for (int64_t c = 0; c < w->cols; c += MX) {
        scales[c / MX] = oz_mxfp4_encode(x + c, oz_min_count(MX, w->cols - c), state->exponent_rule,
                                         codes + c / 2);
    }
}

static void dual_row(struct oz_weight *w, int64_t slice, int64_t row, const float *x,
                     const struct oz_encode_state *state)
{
    uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row);
    uint8_t *scales2 = oz_plane_row(w, OZ_PLANE_SCALES2, slice, row);
    (void)state;
    for (int64_t c = 0; c < w->cols; c += DUAL) {
        int64_t end = oz_min_count(c + DUAL, w->cols);
        bool bad = false;
        float dual = oz_dual_scale(oz_group_amax(x + c, end - c, &bad));
        oz_plane_put_f32(scales2, c / DUAL, dual);
        for (int64_t g = c; g < end; g += MX) {
            scales[g / MX] = oz_dual_encode(x + g, oz_min_count(MX, end - g), dual, codes + g / 2);
        }
    }
}

static void begin_nvfp4(struct oz_weight *w, int64_t slice, const struct oz_encode_state *state)
{
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES2, slice, 0), 0,
                     1.0F / oz_nvfp4_global(state->amax));
}

static void nvfp4_row(struct oz_weight *w, int64_t slice, int64_t row, const float *x,
                      const struct oz_encode_state *state)
{
    uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, row);
    float g = oz_nvfp4_global(state->amax);
    assert(oz_plane_get(OZ_DTYPE_F32, oz_plane_row(w, OZ_PLANE_SCALES2, slice, 0), 0) == 1.0F / g);
    for (int64_t c = 0; c < w->cols; c += NV) {
        scales[c / NV] = oz_nvfp4_encode(x + c, oz_min_count(NV, w->cols - c), g, codes + c / 2);
    }
}

OZ_ENCODE_ROWS(encode_mxfp8, mxfp8_row)
OZ_ENCODE_ROWS(encode_mxfp4, mxfp4_row)
OZ_ENCODE_ROWS(encode_dual, dual_row)
OZ_ENCODE_ROWS(encode_nvfp4, nvfp4_row)

#define CELL(plane_, dtype_, rows_, cols_, bits_)                                         \
    {                                                                                     \
        .plane = (plane_), .dtype = (dtype_), .cell_rows = (rows_), .cell_cols = (cols_), \
        .cell_bits = (bits_)                                                              \
    }

static const struct oz_plane_spec mxfp8_planes[] = {
    CELL(OZ_PLANE_CODES, OZ_DTYPE_F8_E4M3, 1, 1, 8),
    CELL(OZ_PLANE_SCALES, OZ_DTYPE_F8_E8M0, 1, MX, 8),
};
static const struct oz_plane_spec mxfp4_planes[] = {
    CELL(OZ_PLANE_CODES, OZ_DTYPE_F4, 1, 1, 4),
    CELL(OZ_PLANE_SCALES, OZ_DTYPE_F8_E8M0, 1, MX, 8),
};
static const struct oz_plane_spec dual_planes[] = {
    CELL(OZ_PLANE_CODES, OZ_DTYPE_F4, 1, 1, 4),
    CELL(OZ_PLANE_SCALES, OZ_DTYPE_F8_E8M0, 1, MX, 8),
    CELL(OZ_PLANE_SCALES2, OZ_DTYPE_F32, 1, DUAL, 32),
};
static const struct oz_plane_spec nvfp4_planes[] = {
    CELL(OZ_PLANE_CODES, OZ_DTYPE_F4, 1, 1, 4),
    CELL(OZ_PLANE_SCALES, OZ_DTYPE_F8_E4M3, 1, NV, 8),
    CELL(OZ_PLANE_SCALES2, OZ_DTYPE_F32, OZ_CELL_ALL, OZ_CELL_ALL, 32),
};

#define PLANES(list) .plane_count = sizeof(list) / sizeof *(list), .planes = (list)

const struct oz_codec oz_codec_mxfp8 = {.name = "mxfp8",
                                        .scope_rows = 1,
                                        .col_multiple = 1,
                                        PLANES(mxfp8_planes),
                                        .decode = decode_one_level,
                                        .encode = encode_mxfp8};
const struct oz_codec oz_codec_mxfp4 = {.name = "mxfp4",
                                        .scope_rows = 1,
                                        .col_multiple = 1,
                                        PLANES(mxfp4_planes),
                                        .decode = decode_one_level,
                                        .encode = encode_mxfp4};
const struct oz_codec oz_codec_mxfp4_dualscale = {.name = "mxfp4_dualscale",
                                                  .scope_rows = 1,
                                                  .col_multiple = 1,
                                                  PLANES(dual_planes),
                                                  .decode = decode_two_levels,
                                                  .encode = encode_dual};
const struct oz_codec oz_codec_nvfp4 = {.name = "nvfp4",
                                        .scope_rows = OZ_CELL_ALL,
                                        .col_multiple = 1,
                                        .observe_passes = 1,
                                        PLANES(nvfp4_planes),
                                        .decode = decode_two_levels,
                                        .observe = oz_band_observe_amax,
                                        .begin = begin_nvfp4,
                                        .encode = encode_nvfp4};
