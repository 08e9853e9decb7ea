/*
 * bitsandbytes' 4-bit formats: codes of a 16-value table (nf4, fp4) under one absmax for each
 * group_cols (64) elements of the flat slice, across rows. Value = table[code] * absmax. The nested
 * forms code the absmax in 8 bits: absmax = map[code] * nested + offset, one `nested` for 256
 * blocks, one offset (the mean absmax) for the slice. Planes: SCALES is absmax, f32 or the 8-bit
 * codes; SCALES2 nested; OFFSETS the offset; CODEBOOK and CODEBOOK2 a file's own tables, the
 * standard ones where absent. Codes are canonical here: element 0 of a row in the low nibble.
 */
#include "num/bnb.h"
#include "num/codec_list.h"
#include "num/group.h"
#include "num/plane.h"

#define NESTED 256 /* blocks under one nested scale */
#define MIN_ABSMAX 1e-38F

static bool is_nested(const struct oz_weight *w)
{
    return w->planes[OZ_PLANE_SCALES2].present;
}

bool oz_bnb_is(const struct oz_codec *codec)
{
    return codec == &oz_codec_nf4 || codec == &oz_codec_nf4_nested || codec == &oz_codec_fp4_bnb ||
           codec == &oz_codec_fp4_bnb_nested;
}

const struct oz_codebook *oz_bnb_book(const struct oz_codec *codec)
{
    return codec == &oz_codec_nf4 || codec == &oz_codec_nf4_nested ? &oz_codebook_nf4
                                                                   : &oz_codebook_fp4_bnb;
}

/* ---- decode ---- */

static float table_value(const struct oz_weight *w, enum oz_plane plane, int64_t slice,
                         const struct oz_codebook *standard, uint8_t code)
{
    if (!w->planes[plane].present) {
        return standard->values[code];
    }
    return oz_plane_get(w->planes[plane].dtype, oz_plane_row(w, plane, slice, 0), code);
}

float oz_bnb_absmax(const struct oz_weight *w, int64_t slice, int64_t block)
{
    const uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, 0);
    if (!is_nested(w)) {
        return oz_plane_get(w->planes[OZ_PLANE_SCALES].dtype, scales, block);
    }
    float absmax =
        table_value(w, OZ_PLANE_CODEBOOK2, slice, &oz_codebook_dynamic8, scales[block]) *
        oz_plane_get(OZ_DTYPE_F32, oz_plane_row(w, OZ_PLANE_SCALES2, slice, 0), block / NESTED);
    return absmax + oz_plane_get(OZ_DTYPE_F32, oz_plane_row(w, OZ_PLANE_OFFSETS, slice, 0), 0);
}

void oz_bnb_values(const struct oz_weight *w, int64_t slice, float values[16])
{
    for (uint8_t i = 0; i < 16; i++) {
        values[i] = table_value(w, OZ_PLANE_CODEBOOK, slice, oz_bnb_book(w->codec), i);
    }
}

static void decode(const struct oz_weight *w, int64_t slice, int64_t row, int64_t col,
                   int64_t count, float *dst)
{
    assert(row >= 0 && row < w->rows && col >= 0 && count <= w->cols - col);
    const uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row);
    float values[16];
    oz_bnb_values(w, slice, values);
    int64_t done = 0;
    while (done < count) {
        int64_t flat = row * w->cols + col + done;
        int64_t end = oz_min_count(count, done + w->group_cols - flat % w->group_cols);
        float absmax = oz_bnb_absmax(w, slice, flat / w->group_cols);
        for (; done < end; done++) {
            dst[done] = values[oz_nibble_get(codes, col + done)] * absmax;
        }
    }
}

/* ---- encode ---- */

/* One block of the flat slice: `count` elements from (row, col), rows counted from the band's. */
struct block {
    int64_t row, col, count;
};

/* The block after the one in *b: true while there is one. Begin with count 0. */
static bool next_block(const struct oz_weight *w, int64_t rows, struct block *b)
{
    int64_t flat = b->row * w->cols + b->col + b->count;
    *b = (struct block){flat / w->cols, flat % w->cols,
                        oz_min_count(w->group_cols, rows * w->cols - flat)};
    return b->count > 0;
}

/* Next run of a block within one row: moves *b past it, gives where it was. */
static bool next_run(const struct oz_weight *w, struct block *b, struct block *run)
{
    *run = *b;
    run->count = oz_min_count(b->count, w->cols - b->col);
    b->count -= run->count;
    b->col = 0;
    b->row++;
    return run->count > 0;
}

static float absmax_of(const struct oz_weight *w, struct block b, const float *src, int64_t stride,
                       bool *bad)
{
    struct block run;
    float absmax = 0;
    while (next_run(w, &b, &run)) {
        float part = oz_group_amax(src + run.row * stride + run.col, run.count, bad);
        absmax = part > absmax ? part : absmax;
    }
    return absmax;
}

static void put_codes(struct oz_weight *w, int64_t slice, int64_t row0, struct block b,
                      const float *src, int64_t stride, float absmax)
{
    const struct oz_codebook *book = oz_bnb_book(w->codec);
    float inverse = 1.0F / (absmax > MIN_ABSMAX ? absmax : MIN_ABSMAX);
    struct block run;
    while (next_run(w, &b, &run)) {
        uint8_t *codes = oz_plane_row(w, OZ_PLANE_CODES, slice, row0 + run.row);
        const float *x = src + run.row * stride;
        for (int64_t c = run.col; c < run.col + run.count; c++) {
            oz_nibble_put(codes, c, oz_codebook_code(book, x[c] * inverse));
        }
    }
}

static void encode_blocks(struct oz_weight *w, int64_t slice, int64_t row0, const float *src,
                          int64_t rows, int64_t stride)
{
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, 0);
    int64_t block = row0 * w->cols / w->group_cols;
    struct block b = {0, 0, 0};
    for (; next_block(w, rows, &b); block++) {
        bool bad = false;
        float absmax = absmax_of(w, b, src, stride, &bad);
        put_codes(w, slice, row0, b, src, stride, absmax);
        oz_plane_put_f32(scales, block, bad ? NAN : absmax);
    }
}

static enum oz_status encode(struct oz_weight *w, int64_t slice, int64_t row0, const float *src,
                             int64_t rows, int64_t stride, struct oz_encode_state *state)
{
    enum oz_status status = oz_band_check(w, row0, src, rows, stride, state);
    assert(row0 % oz_weight_scope_rows(w) == 0);
    if (status == OZ_OK && w->cols > 0) {
        encode_blocks(w, slice, row0, src, rows, stride);
    }
    return status;
}

/* Sums in double of f32 values: exact, so in any order, unless they lie more than 2^29 / count
 * apart. */
static enum oz_status observe_nested(const struct oz_weight *w, int64_t row0, const float *src,
                                     int64_t rows, int64_t stride, struct oz_encode_state *state)
{
    enum oz_status status = oz_band_check(w, row0, src, rows, stride, state);
    struct block b = {0, 0, 0};
    while (status == OZ_OK && w->cols > 0 && next_block(w, rows, &b)) {
        bool bad = false;
        state->sum += (double)absmax_of(w, b, src, stride, &bad);
        state->count++;
    }
    return status;
}

static void begin_nested(struct oz_weight *w, int64_t slice, const struct oz_encode_state *state)
{
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_OFFSETS, slice, 0), 0,
                     state->count > 0 ? (float)(state->sum / (double)state->count) : 0.0F);
}

/* 256 blocks or fewer from *b: their absmax less the offset, coded under the largest. */
static void encode_nest(struct oz_weight *w, int64_t slice, int64_t row0, const float *src,
                        int64_t rows, int64_t stride, int64_t block, struct block *b)
{
    float offset = oz_plane_get(OZ_DTYPE_F32, oz_plane_row(w, OZ_PLANE_OFFSETS, slice, 0), 0);
    uint8_t *scales = oz_plane_row(w, OZ_PLANE_SCALES, slice, 0);
    float centred[NESTED];
    int64_t count = 0;
    bool bad = false;
    while (count < NESTED && next_block(w, rows, b)) {
        float absmax = absmax_of(w, *b, src, stride, &bad);
        put_codes(w, slice, row0, *b, src, stride, absmax);
        centred[count++] = absmax - offset;
    }
    bool unused = false;
    float nested = oz_group_amax(centred, count, &unused);
    float inverse = 1.0F / (nested > MIN_ABSMAX ? nested : MIN_ABSMAX);
    for (int64_t i = 0; i < count; i++) {
        scales[block + i] = oz_codebook_code(&oz_codebook_dynamic8, centred[i] * inverse);
    }
    oz_plane_put_f32(oz_plane_row(w, OZ_PLANE_SCALES2, slice, 0), block / NESTED,
                     bad ? NAN : nested);
}

static enum oz_status encode_nested(struct oz_weight *w, int64_t slice, int64_t row0,
                                    const float *src, int64_t rows, int64_t stride,
                                    struct oz_encode_state *state)
{
    enum oz_status status = oz_band_check(w, row0, src, rows, stride, state);
    assert(row0 % oz_weight_scope_rows(w) == 0);
    if (status != OZ_OK || w->cols == 0) {
        return status;
    }
    int64_t first = row0 * w->cols / w->group_cols;
    int64_t blocks = (rows * w->cols + w->group_cols - 1) / w->group_cols;
    struct block b = {0, 0, 0};
    for (int64_t i = 0; i < blocks; i += NESTED) {
        encode_nest(w, slice, row0, src, rows, stride, first + i, &b);
    }
    return OZ_OK;
}

/* ---- the codecs ---- */

#define CODES                                                                          \
    {                                                                                  \
        .plane = OZ_PLANE_CODES, .dtype = OZ_DTYPE_U8, .cell_rows = 1, .cell_cols = 1, \
        .cell_bits = 4                                                                 \
    }
#define FLAT(plane_, dtype_, bits_, times_)                                                      \
    {                                                                                            \
        .plane = (plane_), .dtype = (dtype_), .cell_bits = (bits_), .flat_cells = OZ_CELL_GROUP, \
        .flat_times = (times_)                                                                   \
    }
#define BOOK(plane_, count_)                                                                   \
    {                                                                                          \
        .plane = (plane_), .dtype = OZ_DTYPE_F32, .cell_bits = 32, .fixed_elements = (count_), \
        .optional = true                                                                       \
    }

static const struct oz_plane_spec plain_planes[] = {
    CODES,
    FLAT(OZ_PLANE_SCALES, OZ_DTYPE_F32, 32, 1),
    BOOK(OZ_PLANE_CODEBOOK, 16),
};
static const struct oz_plane_spec nested_planes[] = {
    CODES,
    FLAT(OZ_PLANE_SCALES, OZ_DTYPE_U8, 8, 1),
    FLAT(OZ_PLANE_SCALES2, OZ_DTYPE_F32, 32, NESTED),
    {.plane = OZ_PLANE_OFFSETS, .dtype = OZ_DTYPE_F32, .cell_bits = 32},
    BOOK(OZ_PLANE_CODEBOOK, 16),
    BOOK(OZ_PLANE_CODEBOOK2, 256),
};

#define PLAIN                                                                          \
    .scope_rows = OZ_CELL_GROUP, .col_multiple = 1, .group_cols = 64,                  \
    .plane_count = sizeof plain_planes / sizeof *plain_planes, .planes = plain_planes, \
    .decode = decode, .encode = encode
#define WITH_NESTED                                                                       \
    .scope_rows = OZ_CELL_ALL, .col_multiple = 1, .observe_passes = 1, .group_cols = 64,  \
    .plane_count = sizeof nested_planes / sizeof *nested_planes, .planes = nested_planes, \
    .decode = decode, .observe = observe_nested, .begin = begin_nested, .encode = encode_nested

const struct oz_codec oz_codec_nf4 = {.name = "nf4", PLAIN};
const struct oz_codec oz_codec_nf4_nested = {.name = "nf4_nested", WITH_NESTED};
const struct oz_codec oz_codec_fp4_bnb = {.name = "fp4_bnb", PLAIN};
const struct oz_codec oz_codec_fp4_bnb_nested = {.name = "fp4_bnb_nested", WITH_NESTED};
