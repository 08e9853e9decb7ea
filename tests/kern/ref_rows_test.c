/* embed and act_quant: rows moved and converted. */
#include "kern.h"

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
    out->spec.dtype = OZ_DTYPE_F8_E4M3;
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

int main(void)
{
    const struct CMUnitTest tests[] = {KERN_TEST(embed), KERN_TEST(embed_refuses_ids),
                                       KERN_TEST(act_quant), KERN_TEST(copy_is_exact),
                                       KERN_TEST(conversions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
