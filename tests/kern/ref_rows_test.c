/* embed and act_quant: rows moved and converted. */
#include "kern.h"

#include "cpu/kern/ref/ref.h"
#include "num/act.h"

static void embed(void **state)
{
    static const enum oz_dtype dtypes[] = {OZ_DTYPE_F32, OZ_DTYPE_BF16, OZ_DTYPE_F16};
    static const int64_t rows[] = {1, 2, 3, 17, 300};
    for (int i = 0; i < 15; i++) {
        enum oz_dtype to = i % 2 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32;
        int64_t cols = 1 + kern_below(i < 10 ? 70 : 300);
        int64_t m = rows[i % 5];
        struct oz_embed_args a = {
            .table = kern_param("embed", dtypes[i % 3], 1, 11, cols, 1),
            .ids = kern_ids(m, 11),
            .scale = i % 4 ? 1 : 7.25F,
            .out = kern_out(m, cols, 3, to),
        };
        kern_run(OZ_OP_EMBED, &a);
        for (int64_t e = 0; e < m * cols; e++) {
            kern_near("embed", a.out, e / cols, e % cols,
                      a.scale * kern_weight(a.table, 0, a.ids[e / cols], e % cols), 0);
        }
    }
}

static void embed_refuses_ids(void **state)
{
    int32_t *ids = kern_ids(3, 5);
    struct oz_embed_args a = {.table = kern_param("embed", OZ_DTYPE_F32, 1, 5, 4, 1),
                              .ids = ids,
                              .scale = 1,
                              .out = kern_out(3, 4, 0, OZ_DTYPE_F32)};
    ids[2] = 5;
    assert_int_equal(kern_run_once(1, OZ_OP_EMBED, &a), OZ_ERR_ARG);
    ids[2] = -1;
    assert_int_equal(kern_run_once(1, OZ_OP_EMBED, &a), OZ_ERR_ARG);
    ids[2] = 0;
    a.out->spec.dtype = OZ_DTYPE_F4;
    assert_int_equal(kern_run_once(1, OZ_OP_EMBED, &a), OZ_ERR_UNSUPPORTED);
}

static void check_moved(const struct oz_act_quant_args *a, int64_t i)
{
    int64_t from = a->x_rows != NULL ? a->x_rows[i] : i;
    int64_t to = a->out_rows != NULL ? a->out_rows[i] : i;
    for (int64_t c = 0; c < a->x->cols; c++) {
        double x = kern_get(a->x, from, c);
        double want =
            a->out->spec.dtype == OZ_DTYPE_BF16 ? oz_bf16_to_f32(oz_f32_to_bf16((float)x)) : x;
        assert_true(kern_get(a->out, to, c) == want);
    }
}

static void act_quant(void **state)
{
    enum { ROWS = 12, X_ROWS = 20, OUT_ROWS = 30, COLS = 601 };
    for (int i = 0; i < 16; i++) {
        struct oz_act *x = kern_act(X_ROWS, COLS, 1, i & 1 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32, 1);
        int32_t *out_rows = kern_ids(ROWS, OUT_ROWS);
        struct oz_act_quant_args a = {
            .x = x,
            .out = kern_act(OUT_ROWS, COLS, 2, i & 2 ? OZ_DTYPE_BF16 : OZ_DTYPE_F32, 1),
            .rows = ROWS,
            .x_rows = i & 4 ? kern_ids(ROWS, X_ROWS) : NULL,
            .out_rows = i & 8 ? out_rows : NULL,
        };
        bool written[OUT_ROWS] = {false};
        for (int32_t r = 0; r < ROWS; r++) { /* distinct, not in order */
            out_rows[r] = (r * 7 + 3) % OUT_ROWS;
            written[a.out_rows != NULL ? out_rows[r] : r] = true;
        }
        double *before = kern_doubles(a.out);
        kern_output(a.out->data);
        kern_run(OZ_OP_ACT_QUANT, &a);
        for (int64_t r = 0; r < ROWS; r++) {
            check_moved(&a, r);
        }
        for (int64_t e = 0; e < OUT_ROWS * COLS; e++) { /* rows not named stay */
            if (!written[e / COLS]) {
                assert_true(kern_get(a.out, e / COLS, e % COLS) == before[e]);
            }
        }
    }
}

/* A copy keeps every bit, NaN payloads too. */
static void copy_is_exact(void **state)
{
    struct oz_act *x = kern_act(4, 64, 0, OZ_DTYPE_F32, 1);
    struct oz_act *out = kern_out(4, 64, 7, OZ_DTYPE_F32);
    uint32_t *bits = x->data;
    for (int i = 0; i < 4 * 64; i++) {
        bits[i] = (uint32_t)kern_random();
    }
    bits[5] = 0x7F800001U;
    struct oz_act_quant_args a = {.x = x, .out = out, .rows = 4};
    kern_run(OZ_OP_ACT_QUANT, &a);
    for (int64_t r = 0; r < 4; r++) {
        assert_true(kern_same_row(x, r, out, r));
    }
    out->spec.dtype = OZ_DTYPE_F8_E4M3; /* without a scale */
    assert_int_equal(kern_run_once(1, OZ_OP_ACT_QUANT, &a), OZ_ERR_UNSUPPORTED);
}

/* Conversions give the bits of num/float.h: every BF16, and F32 of any bits, NaN among them. */
static void conversions(void **state)
{
    enum { ROWS = 128, COLS = 512 };
    struct oz_act *wide = kern_out(ROWS, COLS, 3, OZ_DTYPE_F32);
    struct oz_act *narrow = kern_out(ROWS, COLS, 1, OZ_DTYPE_BF16);
    struct oz_act *x = kern_act(ROWS, COLS, 0, OZ_DTYPE_BF16, 1);
    struct oz_act *y = kern_act(ROWS, COLS, 0, OZ_DTYPE_F32, 1);
    for (int i = 0; i < ROWS * COLS; i++) {
        ((uint16_t *)x->data)[i] = (uint16_t)i;
        ((uint32_t *)y->data)[i] = i % 3 ? (uint32_t)kern_random() : (uint32_t)i << 16 | 0x8000U;
    }
    kern_run(OZ_OP_ACT_QUANT, &(struct oz_act_quant_args){.x = x, .out = wide, .rows = ROWS});
    kern_run(OZ_OP_ACT_QUANT, &(struct oz_act_quant_args){.x = y, .out = narrow, .rows = ROWS});
    for (int i = 0; i < ROWS * COLS; i++) {
        int64_t r = i / COLS;
        int64_t c = i % COLS;
        float from = ((const float *)y->data)[i];
        assert_int_equal(((const uint32_t *)wide->data)[r * wide->stride + c], (uint32_t)i << 16);
        assert_int_equal(((const uint16_t *)narrow->data)[r * narrow->stride + c],
                         oz_f32_to_bf16(from));
    }
}

/* A format with its buffers; `amax` for formats whose second scale spans a sequence. */
static struct oz_act *quantized(int64_t rows, int64_t cols, const struct oz_act_spec *spec)
{
    struct oz_act *a = kern_array(sizeof *a);
    *a = (struct oz_act){.rows = rows, .cols = cols, .stride = (cols + 1) / 2 * 2, .spec = *spec};
    a->data = kern_array((size_t)(rows * a->stride));
    for (int i = 0; i < spec->scale_count; i++) {
        a->scales[i] = kern_array((size_t)(rows * cols) * 4);
        kern_output(a->scales[i]);
    }
    kern_output(a->data);
    return a;
}

static void expect_row(const struct oz_act_format *f, const struct oz_act *x,
                       const struct oz_act *out, int64_t r, float amax)
{
    bool cols = out->spec.scale[0].layout == OZ_SCALE_COLS;
    float *row = kern_floats(x->cols, 0);
    uint8_t *codes = kern_array((size_t)x->cols);
    uint8_t *scales[2] = {kern_array((size_t)x->cols * 4), kern_array((size_t)x->cols * 4)};
    struct oz_act_given given = {.amax = amax};
    struct oz_act_row want = {codes, {scales[0], scales[1]}, {1, 1}};
    for (int64_t c = 0; c < x->cols; c++) {
        row[c] = (float)kern_get(x, r, c);
    }
    oz_act_encode_row(f, &given, row, x->cols, &want);
    int64_t bits = oz_dtype_bits(f->element);
    assert_memory_equal((uint8_t *)out->data + r * out->stride * bits / 8, codes,
                        (size_t)(x->cols * bits / 8));
    for (int i = 0; i < f->scale_count; i++) {
        size_t size = (size_t)oz_dtype_bits(f->scale[i].dtype) / 8;
        int64_t groups = oz_act_groups(f, i, x->cols);
        for (int64_t g = 0; g < groups; g++) {
            int64_t at = cols ? g * out->rows + r : r * groups + g;
            assert_memory_equal((uint8_t *)out->scales[i] + (size_t)at * size,
                                scales[i] + (size_t)g * size, size);
        }
    }
}

/* Formats of num/act.h: bytes as it defines them, for scales in rows and in columns, and a linear
 * of them is the linear of what they decode to. */
static void quantizes(void **state)
{
    enum { ROWS = 9, COLS = 550, OUT = 33 };
    static const int32_t lengths[] = {2, 0, 4, 3};
    static const struct oz_act_format formats[] = {
        {OZ_DTYPE_F8_E4M3, 1, {{OZ_DTYPE_F32, 0}}, OZ_EXPONENT_DEFAULT, false},
        {OZ_DTYPE_F8_E4M3, 1, {{OZ_DTYPE_F32, 128}}, OZ_EXPONENT_DEFAULT, false},
        {OZ_DTYPE_I8, 1, {{OZ_DTYPE_F32, 0}}, OZ_EXPONENT_DEFAULT, false},
        {OZ_DTYPE_F8_E4M3, 1, {{OZ_DTYPE_F8_E8M0, 32}}, OZ_EXPONENT_DEFAULT, false},
        {OZ_DTYPE_F4, 1, {{OZ_DTYPE_F8_E8M0, 32}}, OZ_EXPONENT_FLOOR, false},
        {OZ_DTYPE_F4, 2, {{OZ_DTYPE_F8_E8M0, 32}, {OZ_DTYPE_F32, 512}}, OZ_EXPONENT_DEFAULT, false},
        {OZ_DTYPE_F4, 2, {{OZ_DTYPE_F8_E4M3, 16}, {OZ_DTYPE_F32, 0}}, OZ_EXPONENT_DEFAULT, false},
    };
    for (int i = 0; i < 14; i++) {
        const struct oz_act_format *f = &formats[i / 2];
        struct oz_act_spec spec = {
            .dtype = f->element, .scale_count = f->scale_count, .exponent_rule = f->exponent_rule};
        for (int k = 0; k < f->scale_count; k++) {
            spec.scale[k].dtype = f->scale[k].dtype;
            spec.scale[k].group_cols = f->scale[k].group_cols;
            spec.scale[k].layout = i % 2 ? OZ_SCALE_COLS : OZ_SCALE_ROWS;
        }
        struct oz_act *x = kern_act(ROWS, COLS, 1, i % 3 ? OZ_DTYPE_F32 : OZ_DTYPE_BF16, 1);
        struct oz_act *out = quantized(ROWS, COLS, &spec);
        struct oz_ragged *sequences = kern_ragged(4, lengths);
        kern_run(OZ_OP_ACT_QUANT, &(struct oz_act_quant_args){
                                      .x = x, .out = out, .rows = ROWS, .sequences = sequences});
        float amax[4] = {0};
        for (int64_t e = 0; e < (int64_t)ROWS * COLS; e++) {
            int s = e / COLS < 2 ? 0 : e / COLS < 6 ? 2 : 3;
            amax[s] = fmaxf(amax[s], fabsf((float)kern_get(x, e / COLS, e % COLS)));
        }
        struct oz_act *decoded = kern_out(ROWS, COLS, 0, OZ_DTYPE_F32);
        for (int64_t r = 0; r < ROWS; r++) {
            expect_row(f, x, out, r, amax[r < 2 ? 0 : r < 6 ? 2 : 3]);
            oz_ref_load(out, r, 0, COLS, (float *)decoded->data + r * COLS);
        }
        struct oz_linear w = {.w = *kern_param("linear", OZ_DTYPE_F32, 1, OUT, COLS, 1)};
        struct oz_act *y[2];
        for (int k = 0; k < 2; k++) {
            y[k] = kern_out(ROWS, OUT, 0, OZ_DTYPE_F32);
            kern_force("oz_linear_f32_any_f32__scalar");
            kern_run(OZ_OP_LINEAR,
                     &(struct oz_linear_args){.x = k ? decoded : out, .w = &w, .out = y[k]});
            kern_force(NULL);
        }
        for (int64_t r = 0; r < ROWS; r++) {
            assert_true(kern_same_row(y[0], r, y[1], r));
        }
        kern_forget();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(quantizes),         KERN_TEST(embed),
                                       KERN_TEST(embed_refuses_ids), KERN_TEST(act_quant),
                                       KERN_TEST(copy_is_exact),     KERN_TEST(conversions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
