/* tests/kern/math_body.h: a struct kern_math over the vec_*.h that was included before it. */
#ifndef OZ_TESTS_KERN_MATH_BODY_H
#define OZ_TESTS_KERN_MATH_BODY_H

#include "cpu/kern/x86/math_vec.h"
#include "math_vec.h"

static void exp_row(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += OZ_VL) {
        int64_t n = count - i < OZ_VL ? count - i : OZ_VL;
        v_store_n(x + i, v_exp(v_load_n(x + i, n)), n);
    }
}

static void sigmoid_row(float *x, int64_t count)
{
    v_fn_row(OZ_FN_SIGMOID, x, count);
}

static void silu_row(float *x, int64_t count)
{
    v_fn_row(OZ_FN_SILU, x, count);
}

static void gelu_tanh_row(float *x, int64_t count)
{
    v_fn_row(OZ_FN_GELU_TANH, x, count);
}

#endif
