/* num: codecs with block scales: printed vectors of the specifications, edge cases, properties. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "num/codec.h"
#include "num/codec_list.h"
#include "num/float.h"
#include "num/group.h"

static const struct oz_codec *const all[] = {
#define OZ_CODEC(obj) &obj,
#include "num/codec.inc"
#undef OZ_CODEC
};

/* A weight with its planes in one block of memory, filled with 0x5A. */
static struct oz_weight make(const struct oz_codec *codec, int64_t slices, int64_t rows,
                             int64_t cols)
{
    struct oz_weight w = oz_weight_shape(codec, slices, rows, cols);
    for (int p = 0; p < OZ_PLANE_COUNT; p++) {
        struct oz_plane_view *v = &w.planes[p];
        if (v->present) {
            assert_int_equal(
                oz_weight_plane_bytes(&w, (enum oz_plane)p, &v->bytes, &v->row_stride_bytes),
                OZ_OK);
            v->slice_stride_bytes = v->bytes / slices;
            v->data = malloc((size_t)v->bytes + 1);
            memset(v->data, 0x5A, (size_t)v->bytes + 1);
        }
    }
    return w;
}

static void drop(struct oz_weight *w)
{
    for (int p = 0; p < OZ_PLANE_COUNT; p++) {
        if (w->planes[p].present) { /* nothing was written behind a plane */
            assert_int_equal(((uint8_t *)w->planes[p].data)[w->planes[p].bytes], 0x5A);
            free(w->planes[p].data);
        }
    }
}

static uint8_t *bytes_of(const struct oz_weight *w, enum oz_plane plane)
{
    return w->planes[plane].data;
}

static float f32_at(const struct oz_weight *w, enum oz_plane plane, int64_t i)
{
    float x;
    memcpy(&x, bytes_of(w, plane) + 4 * i, 4);
    return x;
}

/* All passes over a slice in bands of `band` rows, rounded up to whole scopes. */
static enum oz_status encode_slice(struct oz_weight *w, int64_t slice, const float *src,
                                   int64_t stride, int64_t band, struct oz_encode_state *state)
{
    int64_t scope = oz_weight_scope_rows(w);
    enum oz_status status = OZ_OK;
    band = (band + scope - 1) / scope * scope;
    for (state->pass = 0; state->pass < w->codec->observe_passes; state->pass++) {
        for (int64_t r = 0; r < w->rows && status == OZ_OK; r += band) {
            int64_t rows = r + band < w->rows ? band : w->rows - r;
            status = w->codec->observe(w, r, src + r * stride, rows, stride, state);
        }
    }
    if (w->codec->begin != NULL && status == OZ_OK) {
        w->codec->begin(w, slice, state);
    }
    for (int64_t r = 0; r < w->rows && status == OZ_OK; r += band) {
        int64_t rows = r + band < w->rows ? band : w->rows - r;
        status = w->codec->encode(w, slice, r, src + r * stride, rows, stride, state);
    }
    return status;
}

static struct oz_weight encoded(const char *name, int64_t rows, int64_t cols, const float *src,
                                enum oz_exponent_rule rule)
{
    struct oz_weight w = make(oz_codec_find(name), 1, rows, cols);
    struct oz_encode_state state;
    oz_encode_state_init(&state);
    state.exponent_rule = rule;
    assert_int_equal(encode_slice(&w, 0, src, cols, rows, &state), OZ_OK);
    return w;
}

static float bf16(float x)
{
    return oz_bf16_to_f32(oz_f32_to_bf16(x));
}

/* Deterministic, roughly normal, times a scale that varies from column to column. */
static void fill(float *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525U + 1013904223U;
            sum += (float)(seed >> 8) * 0x1p-24F - 0.5F;
        }
        x[i] = bf16(sum * ldexpf(1, (int)(i % 7) - 5));
    }
}

/* ---- vectors printed in the specifications (vLLM's formulas over bf16 inputs) ---- */

static const float r0[] = {0.10009765625F, -0.5F, 1, 2};
static const float r1[] = {0.0030059814453125F, -0.003997802734375F, 0, 7};

static void expect_row(const char *name, const float *x, int64_t n, enum oz_exponent_rule rule,
                       uint32_t scale, const uint8_t *codes, int64_t code_bytes)
{
    struct oz_weight w = encoded(name, 1, n, x, rule);
    if (w.planes[OZ_PLANE_SCALES].dtype == OZ_DTYPE_F32) {
        assert_int_equal(oz_f32_bits(f32_at(&w, OZ_PLANE_SCALES, 0)), scale);
    } else {
        assert_int_equal(bytes_of(&w, OZ_PLANE_SCALES)[0], scale);
    }
    assert_int_equal(w.planes[OZ_PLANE_CODES].bytes, code_bytes);
    assert_memory_equal(bytes_of(&w, OZ_PLANE_CODES), codes, (size_t)code_bytes);
    drop(&w);
}

#define EXPECT(name, x, scale, ...)                                          \
    expect_row(name, x, sizeof(x) / sizeof *(x), OZ_EXPONENT_DEFAULT, scale, \
               (const uint8_t[]){__VA_ARGS__}, sizeof(const uint8_t[]){__VA_ARGS__})

static void vectors_fp8_int8(void **state)
{
    float both[8];
    memcpy(both, r0, sizeof r0);
    memcpy(both + 4, r1, sizeof r1);
    struct oz_weight w = encoded("fp8_tensor", 2, 4, both, OZ_EXPONENT_DEFAULT);
    assert_int_equal(oz_f32_bits(f32_at(&w, OZ_PLANE_SCALES, 0)), 0x3C800000U);
    assert_memory_equal(bytes_of(&w, OZ_PLANE_CODES), "\x4D\xE0\x68\x70\x24\xA8\x00\x7E", 8);
    drop(&w);
    EXPECT("fp8_channel", r0, 0x3B924925U, 0x5B, 0xEE, 0x76, 0x7E);
    EXPECT("fp8_channel", r1, 0x3C800000U, 0x24, 0xA8, 0x00, 0x7E);
    EXPECT("int8_channel_bf16", r0, 0x3C810000U, 6, (uint8_t)-32, 64, 127);
    EXPECT("int8_channel_bf16", r1, 0x3D620000U, 0, 0, 0, 127);
    /* the quotient, not the product with the inverse */
    static const float division[] = {1.625F, 1.21875F};
    struct oz_weight d = encoded("fp8_channel", 1, 2, division, OZ_EXPONENT_DEFAULT);
    assert_int_equal(bytes_of(&d, OZ_PLANE_CODES)[1], 0x7A);
    drop(&d);
    static const float pairs[] = {0, 0, -1.3984375F, 2.796875F};
    w = encoded("int8_channel", 2, 2, pairs, OZ_EXPONENT_DEFAULT);
    assert_memory_equal(bytes_of(&w, OZ_PLANE_CODES), "\x00\x00\xC0\x7F", 4);
    assert_true(f32_at(&w, OZ_PLANE_SCALES, 0) == 0);
    assert_true(f32_at(&w, OZ_PLANE_SCALES, 1) == 2.796875F / 127);
    drop(&w);
}

static void vectors_mx(void **state)
{
    static const float a[] = {0.10009765625F, -0.5F, 1, 2, 3.5F, 7, 0.0030059814453125F, -448};
    static const float b[] = {0.10009765625F, -0.5F, 1, 2, 3.5F, 7, 0.0030059814453125F};
    static const float c[] = {450};
    static const float zeros[] = {0};
    EXPECT("mxfp8", a, 127, 0x1D, 0xB0, 0x38, 0x40, 0x46, 0x4E, 0x02, 0xFE);
    EXPECT("mxfp8", b, 121, 0x4D, 0xE0, 0x68, 0x70, 0x76, 0x7E, 0x24);
    EXPECT("mxfp8", c, 128, 0x76);
    EXPECT("mxfp8", zeros, 0, 0);
    static const float under[] = {0.10009765625F, -0.5F, 1, 1.7421875F};
    static const float at[] = {0.10009765625F, -0.5F, 1, 1.75F};
    static const float d[] = {6, 4, 3, 2};
    static const float e[] = {7, 5, 2.5F, 0.25F};
    EXPECT("mxfp4", r0, 126, 0xA0, 0x64);
    EXPECT("mxfp4", under, 125, 0xC1, 0x76);
    EXPECT("mxfp4", at, 126, 0xA0, 0x64);
    EXPECT("mxfp4", d, 127, 0x67, 0x45);
    EXPECT("mxfp4", e, 128, 0x46, 0x02);
    EXPECT("mxfp4", zeros, 0, 0);
}

static void vectors_nvfp4(void **state)
{
    static const float in[] = {.1F,  -.5F, 1,     2,   .3F,  -.7F,  .9F,  -1.3F,
                               .05F, .02F, -.01F, .6F, 1.7F, -1.9F, .25F, 0};
    static const uint8_t want[] = {1, 11, 5, 7, 2, 12, 5, 14, 0, 0, 8, 4, 7, 15, 2, 0};
    struct oz_weight w = make(&oz_codec_nvfp4, 1, 1, 16);
    for (int wide = 0; wide < 2; wide++) { /* the amax of the expert: 2, then 4 */
        struct oz_encode_state encoding;
        float x[16];
        for (int i = 0; i < 16; i++) {
            x[i] = bf16(in[i]);
        }
        oz_encode_state_init(&encoding);
        assert_int_equal(w.codec->observe(&w, 0, x, 1, 16, &encoding), OZ_OK);
        encoding.amax *= wide ? 2 : 1;
        w.codec->begin(&w, 0, &encoding);
        assert_int_equal(w.codec->encode(&w, 0, 0, x, 1, 16, &encoding), OZ_OK);
        assert_true(f32_at(&w, OZ_PLANE_SCALES2, 0) == 1.0F / (wide ? 672.0F : 1344.0F));
        assert_int_equal(bytes_of(&w, OZ_PLANE_SCALES)[0], wide ? 0x76 : 0x7E);
        for (int i = 0; i < 16; i++) {
            assert_int_equal(oz_nibble_get(bytes_of(&w, OZ_PLANE_CODES), i), want[i]);
        }
    }
    drop(&w);
}

/* ---- exponent rules ---- */

/* The formulas in double, where log2 of these inputs cannot be mistaken for an integer's. */
static int exponent(bool e4m3, enum oz_exponent_rule rule, double amax)
{
    double largest = e4m3 ? 448 : 6;
    int e = (int)floor(log2(amax));
    double half = e4m3 ? ldexp(1, -4) : ldexp(1, -2); /* half a unit in the last place of 1.m */
    switch (rule) {
    case OZ_EXPONENT_CEIL: return (int)ceil(log2(amax / largest));
    case OZ_EXPONENT_ALG2: return (int)ceil(log2(amax / 7.25));
    case OZ_EXPONENT_EVEN: return (int)floor(log2(amax + ldexp(half, e))) - (e4m3 ? 8 : 2);
    default: return e - (e4m3 ? 8 : 2);
    }
}

static void rules(void **state)
{
    for (int e4m3 = 0; e4m3 < 2; e4m3++) {
        enum oz_dtype element = e4m3 ? OZ_DTYPE_F8_E4M3 : OZ_DTYPE_F4;
        for (int rule = OZ_EXPONENT_CEIL; rule <= OZ_EXPONENT_ALG2; rule++) {
            if (!oz_mx_rule_known(element, (enum oz_exponent_rule)rule)) {
                assert_true(e4m3 && rule == OZ_EXPONENT_ALG2);
                continue;
            }
            for (int e = -110; e <= 120; e += 5) { /* every bf16 mantissa */
                for (int m = 128; m < 256; m++) {
                    double amax = ldexp(m, e - 7);
                    assert_int_equal(oz_mx_scale(element, (enum oz_exponent_rule)rule, (float)amax),
                                     127 + exponent(e4m3, (enum oz_exponent_rule)rule, amax));
                }
            }
            assert_int_equal(oz_mx_scale(element, (enum oz_exponent_rule)rule, 0), 0);
            assert_int_equal(oz_mx_scale(element, (enum oz_exponent_rule)rule, FLT_TRUE_MIN), 0);
            assert_true(oz_mx_scale(element, (enum oz_exponent_rule)rule, FLT_MAX) >= 246);
        }
    }
    assert_int_equal(oz_mx_scale(OZ_DTYPE_F4, OZ_EXPONENT_CEIL, nextafterf(6, 7)), 128);
    assert_int_equal(oz_mx_scale(OZ_DTYPE_F4, OZ_EXPONENT_ALG2, 7.25F), 127);
    assert_int_equal(oz_mx_scale(OZ_DTYPE_F4, OZ_EXPONENT_ALG2, nextafterf(7.25F, 8)), 128);
    assert_int_equal(oz_mx_scale(OZ_DTYPE_F8_E4M3, OZ_EXPONENT_CEIL, nextafterf(448, 449)), 128);
    assert_false(oz_mx_rule_known(OZ_DTYPE_I8, OZ_EXPONENT_CEIL));
}

/* ---- every codec ---- */

static bool is_plain(const struct oz_codec *c)
{
    return c->plane_count == 1 || c->encode == NULL; /* or only read */
}

/* |x - decoded| against half the widest gap of the element, times the scale over it. */
static void check_error(const struct oz_weight *w, const float *src)
{
    float *y = malloc((size_t)w->cols * sizeof *y);
    double error = 0;
    double power = 0;
    for (int64_t r = 0; r < w->rows; r++) {
        w->codec->decode(w, 0, r, 0, w->cols, y);
        for (int64_t c = 0; c < w->cols; c++) {
            double d = (double)y[c] - (double)src[r * w->cols + c];
            error += d * d;
            power += (double)src[r * w->cols + c] * (double)src[r * w->cols + c];
        }
    }
    /* Relative half gaps: 2^-4 of e4m3, 2^-2 of e2m1 at most where values are normal; the tables'
     * widest gap over their largest value; whole steps of s8. */
    double bound = w->planes[OZ_PLANE_CODES].dtype == OZ_DTYPE_I8        ? 1.0 / 32
                   : w->planes[OZ_PLANE_CODES].dtype == OZ_DTYPE_F8_E4M3 ? 1.0 / 16
                                                                         : 1.0 / 4;
    assert_true(sqrt(error / power) < bound);
    free(y);
}

/* Bands, strides and ranges make no difference; slices are apart; a tail is zero padding. */
static void check_shape(const struct oz_codec *codec, int64_t rows, int64_t cols)
{
    int64_t padded = (cols + 511) / 512 * 512;
    float *src = calloc((size_t)(rows * padded), sizeof *src);
    float *packed = malloc((size_t)(rows * cols) * sizeof *packed);
    float *got = malloc((size_t)padded * sizeof *got);
    float *part = malloc((size_t)padded * sizeof *part);
    struct oz_weight whole = make(codec, 1, rows, cols);
    struct oz_weight bands = make(codec, 2, rows, cols);
    struct oz_weight wide = make(codec, 1, rows, padded);
    struct oz_encode_state s;
    fill(packed, rows * cols, (uint32_t)(rows * 1000 + cols));
    for (int64_t r = 0; r < rows; r++) {
        memcpy(src + r * padded, packed + r * cols, (size_t)cols * sizeof *src);
    }
    oz_encode_state_init(&s);
    assert_int_equal(encode_slice(&whole, 0, packed, cols, rows, &s), OZ_OK);
    oz_encode_state_init(&s);
    assert_int_equal(encode_slice(&bands, 1, src, padded, 1, &s), OZ_OK);
    oz_encode_state_init(&s);
    assert_int_equal(encode_slice(&wide, 0, src, padded, rows, &s), OZ_OK);
    check_error(&whole, packed);
    for (int p = 0; p < OZ_PLANE_COUNT; p++) {
        struct oz_plane_view *v = &whole.planes[p];
        if (v->present) {
            assert_memory_equal(v->data, bytes_of(&bands, (enum oz_plane)p) + v->bytes,
                                (size_t)v->bytes);
            assert_int_equal(*bytes_of(&bands, (enum oz_plane)p), 0x5A);
        }
    }
    bool flat = codec->scope_rows == OZ_CELL_GROUP || codec == &oz_codec_nf4_nested ||
                codec == &oz_codec_fp4_bnb_nested; /* there padding moves the blocks */
    for (int64_t r = 0; r < rows; r++) {
        codec->decode(&whole, 0, r, 0, cols, got);
        for (int64_t from = 0; from < cols; from += 37) {
            int64_t count = cols - from < 41 ? cols - from : 41;
            codec->decode(&whole, 0, r, from, count, part);
            assert_memory_equal(part, got + from, (size_t)count * sizeof *part);
        }
        if (!flat) {
            codec->decode(&wide, 0, r, 0, padded, part);
            assert_memory_equal(part, got, (size_t)cols * sizeof *part);
        }
    }
    drop(&whole);
    drop(&bands);
    drop(&wide);
    free(src);
    free(packed);
    free(got);
    free(part);
}

static void shapes(void **state)
{
    static const int64_t sizes[][2] = {{1, 1},  {3, 7},     {5, 80},   {2, 96},
                                       {4, 33}, {130, 129}, {3, 1040}, {257, 200}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes && !is_plain(all[i]); k++) {
            check_shape(all[i], sizes[k][0], sizes[k][1]);
        }
    }
}

/* Zeros store zeros and give exact zeros; one number among them is no NaN; denormals do not become
 * large. */
static void zeros_and_denormals(void **state)
{
    enum { ROWS = 256, COLS = 256 };
    static const float lone[] = {0, 1, -1e-30F, 1e-38F, FLT_TRUE_MIN, -3e-39F, FLT_MAX};
    float *src = malloc(ROWS * COLS * sizeof *src);
    float y[COLS];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (size_t k = 0; k < sizeof lone / sizeof *lone && !is_plain(all[i]); k++) {
            memset(src, 0, ROWS * COLS * sizeof *src);
            src[0] = lone[k];
            struct oz_weight w = encoded(all[i]->name, ROWS, COLS, src, OZ_EXPONENT_DEFAULT);
            bool nested = w.planes[OZ_PLANE_OFFSETS].present; /* a block's absmax is inexact */
            for (int r = 0; r < ROWS; r++) {
                all[i]->decode(&w, 0, r, 0, COLS, y);
                for (int c = r == 0; c < COLS; c++) {
                    assert_true(y[c] == 0);
                }
                float limit = fabsf(lone[k]) * 2 + FLT_TRUE_MIN; /* 0.25 to 0.5 of e2m1 */
                if (r == 0 && !nested) {
                    assert_true(fabsf(y[0]) <= limit || isinf(limit));
                    assert_true(y[0] == 0 || signbit(y[0]) == signbit(lone[k]));
                }
            }
            drop(&w);
        }
    }
    free(src);
}

/* A row of very small numbers keeps its relative precision where the scale may be so small. */
static void small_rows(void **state)
{
    static const char *const names[] = {"fp8_tensor", "int8_channel",    "mxfp8",
                                        "mxfp4",      "mxfp4_dualscale", "nf4"};
    static const float sizes[] = {1e-30F, 1e-36F};
    float src[64];
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 2; k++) {
            fill(src, 64, 5);
            for (int c = 0; c < 64; c++) {
                src[c] *= sizes[k];
            }
            struct oz_weight w = encoded(names[i], 1, 64, src, OZ_EXPONENT_DEFAULT);
            check_error(&w, src);
            drop(&w);
        }
    }
}

static void nonfinite(void **state)
{
    enum { ROWS = 130, COLS = 140 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float *src = malloc(ROWS * COLS * sizeof *src);
    float y[COLS];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (int k = 0; k < 3 && !is_plain(all[i]); k++) {
            struct oz_weight w = make(all[i], 1, ROWS, COLS);
            struct oz_encode_state s;
            fill(src, ROWS * COLS, 9);
            src[129 * COLS + 133] = bad[k];
            oz_encode_state_init(&s);
            assert_int_equal(encode_slice(&w, 0, src, COLS, 64, &s), OZ_ERR_FORMAT);
            assert_int_equal(s.bad_row, 129);
            assert_int_equal(s.bad_col, 133);
            oz_encode_state_init(&s);
            s.keep_nonfinite = true;
            assert_int_equal(encode_slice(&w, 0, src, COLS, ROWS, &s), OZ_OK);
            all[i]->decode(&w, 0, 129, 0, COLS, y);
            assert_true(isnan(y[133]));
            if (w.planes[OZ_PLANE_CODES].dtype == OZ_DTYPE_F8_E4M3) {
                assert_false(isnan(y[132]) || isnan(y[134])); /* alone */
            }
            all[i]->decode(&w, 0, 0, 0, COLS, y);
            for (int c = 0; c < COLS; c++) { /* other groups are as they were, and not zero */
                assert_true(isfinite(y[c]));
            }
            assert_true(fabsf(y[6]) > 0.1F * fabsf(src[6]));
            drop(&w);
        }
    }
    free(src);
}

/* ---- scales over more than a row ---- */

/* q, k and v under one scale: each is observed, the states merged, each begun from the whole. */
static void fused_scope(void **state)
{
    static const char *const names[] = {"fp8_tensor", "nvfp4", "nf4_nested"};
    enum { ROWS = 512, COLS = 64 };
    float *src = malloc(3UL * ROWS * COLS * sizeof *src);
    fill(src, 3 * ROWS * COLS, 3);
    src[2 * ROWS * COLS] = 9; /* v is the widest */
    for (int i = 0; i < 3; i++) {
        const struct oz_codec *codec = oz_codec_find(names[i]);
        struct oz_weight stacked = encoded(names[i], 3 * ROWS, COLS, src, OZ_EXPONENT_DEFAULT);
        struct oz_weight parts[3];
        struct oz_encode_state merged;
        oz_encode_state_init(&merged);
        for (int k = 0; k < 3; k++) {
            struct oz_encode_state s;
            oz_encode_state_init(&s);
            parts[k] = make(codec, 1, ROWS, COLS);
            assert_int_equal(codec->observe(&parts[k], 0, src + k * ROWS * COLS, ROWS, COLS, &s),
                             OZ_OK);
            oz_encode_state_merge(&merged, &s);
        }
        for (int k = 0; k < 3; k++) {
            struct oz_encode_state s = merged;
            float want[COLS];
            float got[COLS];
            codec->begin(&parts[k], 0, &s);
            assert_int_equal(codec->encode(&parts[k], 0, 0, src + k * ROWS * COLS, ROWS, COLS, &s),
                             OZ_OK);
            for (int r = 0; r < ROWS; r++) {
                codec->decode(&stacked, 0, k * ROWS + r, 0, COLS, want);
                codec->decode(&parts[k], 0, r, 0, COLS, got);
                assert_memory_equal(got, want, sizeof got);
            }
            drop(&parts[k]);
        }
        drop(&stacked);
    }
    free(src);
}

static void scopes(void **state)
{
    static const struct {
        const char *name;
        int64_t cols, rows;
    } cases[] = {
        {"mxfp4", 96, 1},        {"fp8_tensor", 96, 1},    {"fp8_block", 96, 128},
        {"nf4", 64, 1},          {"nf4", 96, 2},           {"nf4", 33, 64},
        {"nf4_nested", 64, 256}, {"nf4_nested", 3072, 16}, {"nf4_nested", 1, 16384},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_weight w = oz_weight_shape(oz_codec_find(cases[i].name), 1, 7, cases[i].cols);
        assert_int_equal(oz_weight_scope_rows(&w), cases[i].rows);
    }
    struct oz_weight w = oz_weight_shape(oz_codec_find("nf4"), 1, 7, 96);
    int64_t bytes;
    w.group_cols = 128;
    assert_int_equal(oz_weight_scope_rows(&w), 4);
    w.group_cols = 0;
    assert_int_equal(oz_weight_bytes(&w, &bytes), OZ_ERR_ARG);
}

/* Bits a weight of [4096, 4096]: what each scheme is sold as. */
static void bits(void **state)
{
    static const struct {
        const char *name;
        double bits;
    } cases[] = {
        {"fp8_tensor", 8}, {"fp8_channel", 8},
        {"fp8_block", 8},  {"int8_channel", 8},
        {"mxfp8", 8.25},   {"mxfp4", 4.25},
        {"nvfp4", 4.5},    {"mxfp4_dualscale", 4.3125},
        {"nf4", 4.5},      {"nf4_nested", 4.126953125},
        {"fp4_bnb", 4.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_weight w = oz_weight_shape(oz_codec_find(cases[i].name), 1, 4096, 4096);
        int64_t bytes;
        assert_int_equal(oz_weight_bytes(&w, &bytes), OZ_OK);
        assert_true(fabs((double)bytes * 8 / (4096.0 * 4096) - cases[i].bits) < 0.008);
    }
}

/* Views of other dtypes than the codec's own: scales in bf16, FP4 numbers stored as e4m3. */
static void other_dtypes(void **state)
{
    float src[64];
    float want[64];
    float got[64];
    uint16_t half[2];
    uint8_t wide[64];
    fill(src, 64, 11);
    struct oz_weight w = encoded("int8_channel", 2, 32, src, OZ_EXPONENT_DEFAULT);
    struct oz_weight other = w;
    for (int r = 0; r < 2; r++) {
        half[r] = oz_f32_to_bf16(f32_at(&w, OZ_PLANE_SCALES, r));
    }
    other.planes[OZ_PLANE_SCALES] = (struct oz_plane_view){
        .data = half, .present = true, .dtype = OZ_DTYPE_BF16, .bytes = 4, .row_stride_bytes = 2};
    other.codec->decode(&other, 0, 1, 5, 1, got);
    assert_true(got[0] ==
                (float)(int8_t)bytes_of(&w, OZ_PLANE_CODES)[37] * oz_bf16_to_f32(half[1]));
    drop(&w);
    w = encoded("mxfp4", 1, 64, src, OZ_EXPONENT_FLOOR);
    w.codec->decode(&w, 0, 0, 0, 64, want);
    other = w;
    for (int i = 0; i < 64; i++) {
        wide[i] = oz_f32_to_e4m3(oz_e2m1_to_f32(oz_nibble_get(bytes_of(&w, OZ_PLANE_CODES), i)));
    }
    other.planes[OZ_PLANE_CODES] = (struct oz_plane_view){
        .data = wide, .present = true, .dtype = OZ_DTYPE_F8_E4M3, .bytes = 64};
    other.codec->decode(&other, 0, 0, 0, 64, got);
    assert_memory_equal(got, want, sizeof got);
    drop(&w);
}

/* Each level of the dual scale does what it says. */
static void dual_scale(void **state)
{
    float src[544] = {0};
    float y[544];
    for (int i = 0; i < 512; i++) {
        src[i] = i % 32 == 0 ? ldexpf(5.3F, -(i / 32) % 11) : 0.3F * ldexpf(1, -(i / 32) % 11);
    }
    src[520] = -40;
    struct oz_weight w = encoded("mxfp4_dualscale", 1, 544, src, OZ_EXPONENT_DEFAULT);
    assert_true(f32_at(&w, OZ_PLANE_SCALES2, 0) == 5.3F / 6);
    assert_true(f32_at(&w, OZ_PLANE_SCALES2, 1) == 40.0F / 6);
    w.codec->decode(&w, 0, 0, 0, 544, y);
    for (int g = 0; g < 16; g++) {
        assert_int_equal(bytes_of(&w, OZ_PLANE_SCALES)[g], 127 - g % 11);
        assert_int_equal(oz_nibble_get(bytes_of(&w, OZ_PLANE_CODES), 32L * g), 7);
    }
    assert_int_equal(bytes_of(&w, OZ_PLANE_SCALES)[16], 127);
    assert_true(y[520] == -6.0F * (40.0F / 6));
    drop(&w);
    memset(src, 0, sizeof src);
    w = encoded("mxfp4_dualscale", 1, 512, src, OZ_EXPONENT_DEFAULT);
    assert_true(f32_at(&w, OZ_PLANE_SCALES2, 0) == 1);
    assert_int_equal(bytes_of(&w, OZ_PLANE_SCALES)[3], 0);
    drop(&w);
    /* whatever amax, the largest element is 6 under exponent 0 */
    for (uint32_t u = 0x3F800000U; u < 0x40000000U; u += 4099) {
        src[3] = oz_f32_from_bits(u);
        w = encoded("mxfp4_dualscale", 1, 32, src, OZ_EXPONENT_DEFAULT);
        assert_int_equal(bytes_of(&w, OZ_PLANE_SCALES)[0], 127);
        assert_int_equal(oz_nibble_get(bytes_of(&w, OZ_PLANE_CODES), 3), 7);
        drop(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_fp8_int8),
        cmocka_unit_test(vectors_mx),
        cmocka_unit_test(vectors_nvfp4),
        cmocka_unit_test(rules),
        cmocka_unit_test(shapes),
        cmocka_unit_test(zeros_and_denormals),
        cmocka_unit_test(small_rows),
        cmocka_unit_test(nonfinite),
        cmocka_unit_test(fused_scope),
        cmocka_unit_test(scopes),
        cmocka_unit_test(bits),
        cmocka_unit_test(other_dtypes),
        cmocka_unit_test(dual_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
