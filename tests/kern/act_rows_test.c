/*
 * Rows of activations in every format, to the byte: act_quant of the tier under test against num/'s row by
 * row, with rows of all lengths, sizes and zeros, NaN and infinity among them, smoothed, from F32 and
 * BF16, scales by rows and by columns; and operators that write the format themselves, or band by band,
 * against their f32 rows and act_quant.
 */
#include "kern.h"

#include "cpu/kern/ref/ref.h"
#include "dev/act_spec.h"

#define ROWS 9

/* ---- planes ---- */

static int64_t groups_of(const struct oz_act *a, int i)
{
    int64_t group = a->spec.scale[i].group_cols;
    return group > 0 ? (a->cols + group - 1) / group : 1;
}

static size_t data_bytes(const struct oz_act *a)
{
    return (size_t)(a->rows * a->stride * oz_dtype_bits(a->spec.dtype)) / 8;
}

static size_t scale_bytes(const struct oz_act *a, int i)
{
    return (size_t)(a->rows * groups_of(a, i) * oz_dtype_bits(a->spec.scale[i].dtype)) / 8;
}

/* Room for rows in a format, between canaries. */
static struct oz_act room_for(int64_t rows, int64_t cols, const struct oz_act_spec *spec)
{
    struct oz_act a = {.rows = rows, .cols = cols, .stride = cols, .spec = *spec};
    a.stride += spec->dtype == OZ_DTYPE_F4 ? cols % 2 : 0;
    a.data = kern_array(data_bytes(&a));
    kern_output(a.data);
    for (int i = 0; i < spec->scale_count; i++) {
        a.scales[i] = kern_array(scale_bytes(&a, i));
        kern_output(a.scales[i]);
    }
    return a;
}

static void same_planes(const char *what, const struct oz_act *a, const struct oz_act *b)
{
    size_t row = ((size_t)(oz_dtype_bits(a->spec.dtype) * a->cols) + 7) / 8;
    size_t next = (size_t)(oz_dtype_bits(a->spec.dtype) * a->stride) / 8;
    for (int64_t r = 0; r < a->rows; r++) {
        if (memcmp((char *)a->data + (size_t)r * next, (char *)b->data + (size_t)r * next, row) !=
            0) {
            fail_msg("%s: %s of %d columns: codes of row %d differ", what,
                     oz_dtype_name(a->spec.dtype), (int)a->cols, (int)r);
        }
    }
    for (int i = 0; i < a->spec.scale_count; i++) {
        if (memcmp(a->scales[i], b->scales[i], scale_bytes(a, i)) != 0) {
            fail_msg("%s: %s of %d columns: scales %d differ", what, oz_dtype_name(a->spec.dtype),
                     (int)a->cols, i);
        }
    }
}

/* What num/ makes of rows; a second scale for each of them. */
static struct oz_act expected(const struct oz_act *x, const struct oz_act_spec *spec)
{
    struct oz_act out = room_for(x->rows, x->cols, spec);
    float *row = kern_floats(x->cols, 0);
    for (int64_t r = 0; r < x->rows; r++) {
        oz_ref_load(x, r, 0, x->cols, row);
        oz_ref_smooth(spec, row, x->cols);
        oz_ref_store_row(&out, r, oz_ref_amax(row, x->cols), row);
    }
    return out;
}

/* ---- formats ---- */

static const float given_scale = 0.02F, no_scale = 0, given_offset = -3;

/* Formats of the modes, and those that only num/act.h has; false: no more. */
static bool format(int index, struct oz_act_spec *spec)
{
    enum oz_exponent_rule rule = (enum oz_exponent_rule)(index % 5);
    int mode = index / 5 + 1;
    if (mode < OZ_ACT_MODE_COUNT) {
        *spec = oz_act_spec_of((enum oz_act_mode)mode, rule, NULL, &given_scale);
        if (spec->dtype == OZ_DTYPE_F8_E4M3 && rule == OZ_EXPONENT_ALG2) {
            spec->exponent_rule = OZ_EXPONENT_DEFAULT; /* of e2m1 alone */
        }
        return true;
    }
    switch (index - (OZ_ACT_MODE_COUNT - 1) * 5) {
    case 0: *spec = (struct oz_act_spec){.dtype = OZ_DTYPE_I8, .static_scale = &given_scale}; break;
    case 1:
        *spec = (struct oz_act_spec){
            .dtype = OZ_DTYPE_I8, .static_scale = &given_scale, .static_offset = &given_offset};
        break;
    case 2:
        *spec = (struct oz_act_spec){.dtype = OZ_DTYPE_F8_E4M3, .static_scale = &no_scale};
        break;
    case 3:
        *spec = oz_act_spec_of(OZ_ACT_NVFP4, OZ_EXPONENT_DEFAULT, NULL, NULL);
        spec->scale_count = 1;
        spec->static_scale = &given_scale;
        break;
    case 4:
        *spec = oz_act_spec_of(OZ_ACT_FP8_GROUP, OZ_EXPONENT_DEFAULT, NULL, NULL);
        spec->scale[0].group_cols = 24;
        break;
    case 5: *spec = (struct oz_act_spec){.dtype = OZ_DTYPE_BF16}; break;
    default: return false;
    }
    return true;
}

/* ---- rows ---- */

/* Rows of one size, of sizes that differ by column, huge, tiny, of zeros of both signs, and, when asked
 * for, with something that is no number. */
static struct oz_act *rows_of(int64_t cols, enum oz_dtype dtype, bool odd)
{
    struct oz_act *x = kern_act(ROWS, cols, 3, dtype, 1);
    for (int64_t c = 0; c < cols; c++) {
        kern_set(x, 1, c, kern_get(x, 1, c) * exp2((double)(c / 7 % 40) - 20));
        kern_set(x, 2, c, kern_get(x, 2, c) * 0x1p120);
        kern_set(x, 3, c, kern_get(x, 3, c) * 0x1p-130);
        kern_set(x, 4, c, c % 2 == 0 ? 0.0 : -0.0);
        kern_set(x, 5, c, c == cols / 2 ? 1 : 0);
        kern_set(x, 6, c, kern_get(x, 6, c) * 0x1p-149);
    }
    if (odd) {
        kern_set(x, 7, kern_below(cols), NAN);
        kern_set(x, 8, kern_below(cols), kern_coin() ? INFINITY : -INFINITY);
    }
    return x;
}

static void check_format(struct oz_act_spec spec, int64_t cols, bool smoothed, bool by_columns)
{
    enum oz_dtype dtype = smoothed ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
    struct oz_act *x = rows_of(cols, dtype, true);
    float *smooth = kern_floats(cols, 0.1);
    for (int64_t c = 0; c < cols; c++) {
        smooth[c] = fabsf(smooth[c]) + 0.5F;
    }
    spec.smooth = smoothed ? smooth : NULL;
    for (int i = 0; i < spec.scale_count; i++) {
        spec.scale[i].layout = by_columns ? OZ_SCALE_COLS : OZ_SCALE_ROWS;
    }
    struct oz_act want = expected(x, &spec);
    struct oz_act got = room_for(ROWS, cols, &spec);
    kern_run(OZ_OP_ACT_QUANT, &(struct oz_act_quant_args){.x = x, .out = &got, .rows = ROWS});
    same_planes("act_quant", &got, &want);
    kern_forget();
}

static void rows_to_codes(void **state)
{
    static const int64_t cols[] = {1,  2,   15,  16,  17,  31,  32,  33,  48,   63,
                                   65, 128, 129, 257, 511, 512, 513, 576, 1100, 2080};
    struct oz_act_spec spec;
    for (int i = 0; format(i, &spec); i++) {
        for (size_t c = (size_t)i % kern_stride(); c < sizeof cols / sizeof *cols;
             c += kern_stride()) {
            check_format(spec, cols[c], false, false);
            check_format(spec, cols[c], true, false);
            check_format(spec, cols[c], false, true);
        }
    }
}

/* ---- operators that write codes ---- */

/* f32 rows of an operator to the format, as act_quant makes them. */
static struct oz_act in_two_steps(const struct oz_act *f32, const struct oz_act_spec *spec,
                                  const struct oz_ragged *sequences)
{
    struct oz_act want = room_for(f32->rows, f32->cols, spec);
    const struct oz_act_quant_args a = {
        .x = f32, .out = &want, .rows = f32->rows, .sequences = sequences};
    assert_int_equal(kern_run_once(1, OZ_OP_ACT_QUANT, &a), OZ_OK);
    return want;
}

static void check_norm(const struct oz_act_spec *spec, int64_t cols, bool odd, bool ragged)
{
    static const int32_t lengths[] = {4, 0, 5};
    struct oz_ragged *sequences = ragged ? kern_ragged(3, lengths) : NULL;
    struct oz_act *x = rows_of(cols, OZ_DTYPE_F32, odd);
    struct oz_act *table = kern_act(2, 2 * cols, 0, OZ_DTYPE_F32, 1);
    struct oz_act *f32 = kern_out(ROWS, cols, 0, OZ_DTYPE_F32);
    struct oz_act got = room_for(ROWS, cols, spec);
    struct oz_norm_mod_args a = {.x = x,
                                 .norm = odd ? OZ_NORM_RMS : OZ_NORM_LAYER,
                                 .eps = 1e-6F,
                                 .scale = {.table = table},
                                 .shift = {.table = table, .col = cols},
                                 .mod_index = kern_ids(ROWS, 2),
                                 .out = f32,
                                 .sequences = sequences};
    kern_run(OZ_OP_NORM_MOD, &a);
    a.out = &got;
    kern_run(OZ_OP_NORM_MOD, &a);
    struct oz_act want = in_two_steps(f32, spec, sequences);
    same_planes("norm_mod", &got, &want);
    kern_forget();
}

static void norm_mod_writes_codes(void **state)
{
    static const int64_t cols[] = {2, 31, 64, 544, 1100};
    struct oz_act_spec spec;
    for (int i = 0; format(i, &spec); i++) {
        for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
            check_norm(&spec, cols[c], c % 2 == 0, c % 3 == 0);
        }
        float *smooth = kern_floats(64, 1);
        spec.smooth = smooth;
        check_norm(&spec, 64, false, false);
    }
}

/* More rows than a band has, a number of bands that does not come out even; rows in a format, too. */
static void check_bands(enum oz_act_mode mode, int64_t rows, int64_t cols, bool in_codes)
{
    struct oz_act_spec spec = oz_act_spec_of(mode, OZ_EXPONENT_DEFAULT, NULL, &given_scale);
    struct oz_act_spec rows_spec =
        oz_act_spec_of(in_codes ? OZ_ACT_MXFP4 : OZ_ACT_NONE, OZ_EXPONENT_DEFAULT, NULL, NULL);
    struct oz_act *plain = kern_act(rows, 32, 0, OZ_DTYPE_F32, 1);
    struct oz_act x = in_two_steps(plain, &rows_spec, NULL);
    struct oz_linear w = {.w = *kern_param("w", OZ_DTYPE_F32, 1, cols, 32, 0.2),
                          .b = *kern_vector("b", cols, 1)};
    struct oz_act *f32 = kern_out(rows, cols, 0, OZ_DTYPE_F32);
    struct oz_act got = room_for(rows, cols, &spec);
    struct oz_linear_args a = {.x = &x, .w = &w, .fn = OZ_FN_GELU_TANH, .out = f32};
    assert_int_equal(kern_run_once(2, OZ_OP_LINEAR, &a), OZ_OK);
    a.out = &got;
    kern_run(OZ_OP_LINEAR, &a);
    struct oz_act want = in_two_steps(f32, &spec, NULL);
    same_planes("linear", &got, &want);
    kern_forget();
}

static void linear_writes_codes_in_bands(void **state)
{
    check_bands(OZ_ACT_INT8_TOKEN, 385, 24576, false);
    if (kern_stride() == 1) {
        check_bands(OZ_ACT_MXFP4_DUALSCALE, 193, 24576, true);
        check_bands(OZ_ACT_NVFP4_TOKEN, 193, 24576, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERN_TEST(rows_to_codes),
        KERN_TEST(norm_mod_writes_codes),
        KERN_TEST(linear_writes_codes_in_bands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
