/*
 * tests/kern/vec_emulation.h: vectors of 16 lanes in C, in the place of cpu/kern/x86/vec_avx512.h and
 * pairs_avx512bf16.h (forced into units with -include), so that what is written over them runs
 * everywhere. VDPBF16PS as the Intel SDM gives it.
 */
#ifndef OZ_CPU_KERN_X86_VEC_AVX512_H /* the guards of the real ones, which then stay empty */
#define OZ_CPU_KERN_X86_VEC_AVX512_H
#define OZ_CPU_KERN_X86_PAIRS_AVX512BF16_H

#include <float.h>
#include <immintrin.h> /* _mm_prefetch */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "num/float.h"

#define OZ_VL 16
typedef struct {
    float lane[OZ_VL];
} vf;

#define EACH_LANE(value)              \
    vf r;                             \
    for (int i = 0; i < OZ_VL; i++) { \
        r.lane[i] = (float)(value);   \
    }                                 \
    return r

static inline vf v_set(float x)
{
    EACH_LANE(x);
}
static inline vf v_zero(void)
{
    return v_set(0);
}
static inline vf v_load(const float *p)
{
    EACH_LANE(p[i]);
}
static inline vf v_load_n(const float *p, int64_t n)
{
    EACH_LANE(i < n ? p[i] : 0);
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    memcpy(p, x.lane, (size_t)n * sizeof *p);
}
static inline void v_store(float *p, vf x)
{
    v_store_n(p, x, OZ_VL);
}
static inline vf v_add(vf a, vf b)
{
    EACH_LANE(a.lane[i] + b.lane[i]);
}
static inline vf v_sub(vf a, vf b)
{
    EACH_LANE(a.lane[i] - b.lane[i]);
}
static inline vf v_mul(vf a, vf b)
{
    EACH_LANE(a.lane[i] * b.lane[i]);
}
static inline vf v_div(vf a, vf b)
{
    EACH_LANE(a.lane[i] / b.lane[i]);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    EACH_LANE(fmaf(a.lane[i], b.lane[i], c.lane[i]));
}
static inline vf v_fma_at(const float *a, vf b, vf c)
{
    return v_fma(v_set(*a), b, c);
}
static inline vf v_fnma(vf a, vf b, vf c)
{
    EACH_LANE(fmaf(-a.lane[i], b.lane[i], c.lane[i]));
}
static inline vf v_max(vf a, vf b)
{
    EACH_LANE(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}
static inline vf v_min(vf a, vf b)
{
    EACH_LANE(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}
static inline vf v_round(vf a)
{
    EACH_LANE(rintf(a.lane[i]));
}
static inline vf v_scale(vf a, vf n)
{
    EACH_LANE(isnan(n.lane[i]) ? n.lane[i] : ldexpf(a.lane[i], (int)n.lane[i]));
}
static inline vf v_load_bf16(const uint16_t *p)
{
    EACH_LANE(oz_bf16_to_f32(p[i]));
}
static inline void v_store_bf16(uint16_t *p, vf a)
{
    for (int i = 0; i < OZ_VL; i++) {
        p[i] = oz_f32_to_bf16(a.lane[i]);
    }
}

/* ---- pairs of bf16 ---- */

typedef struct {
    uint16_t half[2 * OZ_VL];
} vp;

static inline vp vp_load(const void *p)
{
    vp x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline vp vp_set(const void *pair)
{
    vp x;
    for (int i = 0; i < OZ_VL; i++) {
        memcpy(x.half + (ptrdiff_t)2 * i, pair, 2 * sizeof x.half[0]);
    }
    return x;
}
static inline float flushed(float x) /* denormal numbers count as zero */
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}
static inline float product(uint16_t a, uint16_t b, float sum)
{
    return flushed(fmaf(flushed(oz_bf16_to_f32(a)), flushed(oz_bf16_to_f32(b)), flushed(sum)));
}
static inline vf vp_dot(vf sum, vp a, vp b)
{
    EACH_LANE(product(a.half[2 * i], b.half[2 * i],
                      product(a.half[2 * i + 1], b.half[2 * i + 1], sum.lane[i])));
}
static inline vf vp_dot_at(vf sum, const void *pair, vp b)
{
    return vp_dot(sum, vp_set(pair), b);
}

#endif
