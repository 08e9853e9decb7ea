/*
 * cpu/kern/x86/math_vec.h: functions of vectors, over vec_avx2.h or vec_avx512.h. Each lane depends
 * on its own argument only, and a value gives the same bits in any lane. Errors are stated with
 * u = 2^-24; tests/kern/math_vec_test.c measures them against double.
 */
#ifndef OZ_CPU_KERN_X86_MATH_VEC_H
#define OZ_CPU_KERN_X86_MATH_VEC_H

#include <math.h>

#include "dev/ops.h"

/*
 * e^x. x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts), a polynomial of degree 6 in r
 * (Cephes), times 2^n. Arguments are clamped to -104 and 89, beyond which the f32 result is 0 or
 * infinite. NaN gives NaN.
 * Relative error: at most 2.0 u = 2^-23.0 measured (two roundings near 1; 2.14 u is what the test
 * allows). Results below 2^-126: off by less than 2^-149.
 */
static inline vf v_exp(vf x)
{
    vf y = v_min(v_set(89.0F), v_max(v_set(-104.0F), x));
    vf n = v_round(v_mul(y, v_set(1.44269504088896341F)));
    vf r = v_fnma(n, v_set(0.693359375F), y);
    r = v_fnma(n, v_set(-2.12194440e-4F), r);
    vf p = v_set(1.9875691500e-4F);
    p = v_fma(p, r, v_set(1.3981999507e-3F));
    p = v_fma(p, r, v_set(8.3334519073e-3F));
    p = v_fma(p, r, v_set(4.1665795894e-2F));
    p = v_fma(p, r, v_set(1.6666665459e-1F));
    p = v_fma(p, r, v_set(5.0000001201e-1F));
    p = v_fma(p, v_mul(r, r), v_add(r, v_set(1.0F)));
    return v_scale(p, n);
}

/* 1 / (1 + e^-x). Relative error: 3.3 u measured, 4.2 u derived (e^-x, the sum, the quotient). Below
 * -88.7 it is 0: off by less than 2^-127. silu, x times it: 4.1 u measured, 5.2 u derived; there off
 * by less than 2^-121. */
static inline vf v_sigmoid(vf x)
{
    return v_div(v_set(1.0F), v_add(v_set(1.0F), v_exp(v_sub(v_zero(), x))));
}

/* 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3). Error: 2.8 u |x| measured,
 * 4 u |x| allowed. Of the result it is 4.6 u down to x = -1 and 100 u at -8, where 2 u's own error
 * counts. */
static inline vf v_gelu_tanh(vf x)
{
    vf cubic = v_mul(v_mul(v_set(0.044715F), x), v_mul(x, x));
    vf u = v_mul(v_set(2.0F * 0.79788456080286535588F), v_add(x, cubic));
    return v_mul(x, v_sigmoid(u));
}

/* fn of a row in place. GELU_ERF has no vector form: libm's erff. */
static inline void v_fn_row(enum oz_fn fn, float *x, int64_t count)
{
    if (fn == OZ_FN_NONE) {
        return;
    }
    if (fn == OZ_FN_GELU_ERF) {
        for (int64_t i = 0; i < count; i++) {
            x[i] = 0.5F * x[i] * (1.0F + erff(x[i] * 0.70710678118654752440F));
        }
        return;
    }
    for (int64_t i = 0; i < count; i += OZ_VL) {
        int64_t n = count - i < OZ_VL ? count - i : OZ_VL;
        vf v = v_load_n(x + i, n);
        if (fn == OZ_FN_GELU_TANH) {
            v = v_gelu_tanh(v);
        } else {
            vf s = v_sigmoid(v);
            v = fn == OZ_FN_SILU ? v_mul(v, s) : s;
        }
        v_store_n(x + i, v, n);
    }
}

#endif
