#include "num/group.h"

#include <assert.h>
#include <float.h>
#include <math.h>

OZ_GROUP_FN int64_t oz_group_bad(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return i;
        }
    }
    return -1;
}

OZ_GROUP_FN float oz_group_amax(const float *x, int64_t n, bool *bad)
{
    uint32_t amax = 0;
    for (int64_t i = 0; i < n; i++) { /* bits of positive floats order as they do */
        uint32_t u = oz_f32_bits(x[i]) & 0x7FFFFFFFU;
        if (u >= 0x7F800000U) {
            *bad = true;
            continue;
        }
        amax = u > amax ? u : amax;
    }
    return oz_f32_from_bits(amax);
}

OZ_INLINE float at_least(float x, float low)
{
    return x > low ? x : low;
}

/* ---- FP8 ---- */

OZ_GROUP_FN float oz_fp8_tensor_scale(float amax)
{
    return amax > 0 ? at_least(amax / OZ_E4M3_MAX, FLT_TRUE_MIN) : 0.0F;
}

OZ_GROUP_FN float oz_fp8_channel_scale(float amax)
{
    return at_least(amax / OZ_E4M3_MAX, 1.0F / (448.0F * 512.0F));
}

OZ_GROUP_FN float oz_fp8_block_scale(float amax)
{
    return at_least(amax, 1e-4F) / OZ_E4M3_MAX;
}

OZ_GROUP_FN float oz_fp8_group_scale(float amax)
{
    return at_least(amax, 1e-10F) / OZ_E4M3_MAX;
}

OZ_GROUP_FN void oz_fp8_multiply(const float *x, int64_t n, float scale, uint8_t *codes)
{
    float inverse = 1.0F / scale;
    if (scale > 0 && !isfinite(inverse)) {
        oz_fp8_divide(x, n, scale, codes);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float y = scale == 0 ? 0.0F : x[i] * inverse;
        codes[i] = isfinite(x[i]) ? oz_f32_to_e4m3(y) : (uint8_t)OZ_E4M3_NAN;
    }
}

OZ_GROUP_FN void oz_fp8_divide(const float *x, int64_t n, float scale, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++) {
        codes[i] = isfinite(x[i]) ? oz_f32_to_e4m3(x[i] / scale) : (uint8_t)OZ_E4M3_NAN;
    }
}

/* ---- INT8 ---- */

OZ_GROUP_FN int8_t oz_int8_code(float x, float amax)
{
    float scale = amax / 127.0F;
    float inverse = amax == 0 ? 0.0F : 127.0F / amax;
    float y = isfinite(inverse) ? x * inverse : scale == 0 ? 0.0F : x / scale;
    return oz_f32_to_s8(y);
}

OZ_GROUP_FN float oz_int8_encode(const float *x, int64_t n, int8_t *codes)
{
    bool bad = false;
    float amax = oz_group_amax(x, n, &bad);
    for (int64_t i = 0; i < n; i++) {
        codes[i] = oz_int8_code(x[i], amax);
    }
    return bad ? NAN : amax / 127.0F;
}

/* Rounded to bf16; what is finite stays so. */
OZ_INLINE float bf16(float x)
{
    float y = oz_bf16_to_f32(oz_f32_to_bf16(x));
    return isinf(y) ? copysignf(oz_bf16_to_f32(0x7F7F), x) : y;
}

OZ_GROUP_FN float oz_int8_bf16_encode(const float *x, int64_t n, int8_t *codes)
{
    bool bad = false;
    float amax = bf16(oz_group_amax(x, n, &bad));
    float scale = bf16(amax / 127.0F);
    for (int64_t i = 0; i < n; i++) {
        codes[i] = scale == 0 ? 0 : oz_f32_to_s8(bf16(bf16(x[i]) / scale));
    }
    return bad ? NAN : scale;
}

/* ---- MX ---- */

OZ_GROUP_FN bool oz_mx_rule_known(enum oz_dtype element, enum oz_exponent_rule rule)
{
    switch (rule) {
    case OZ_EXPONENT_DEFAULT:
    case OZ_EXPONENT_CEIL:
    case OZ_EXPONENT_EVEN:
    case OZ_EXPONENT_FLOOR: return element == OZ_DTYPE_F8_E4M3 || element == OZ_DTYPE_F4;
    case OZ_EXPONENT_ALG2: return element == OZ_DTYPE_F4;
    }
    return false;
}

/* The smallest 23-bit mantissa that rounds up to the next power of two; 2^23 for never. */
OZ_INLINE uint32_t round_up_from(bool e4m3, enum oz_exponent_rule rule)
{
    switch (rule) {
    case OZ_EXPONENT_CEIL: return e4m3 ? 0x600001U : 0x400001U;
    case OZ_EXPONENT_EVEN: return e4m3 ? 0x780000U : 0x600000U;
    case OZ_EXPONENT_ALG2: return 0x680001U;
    case OZ_EXPONENT_FLOOR:
    case OZ_EXPONENT_DEFAULT: break;
    }
    return 0x800000U;
}

OZ_GROUP_FN uint8_t oz_mx_scale(enum oz_dtype element, enum oz_exponent_rule rule, float amax)
{
    assert(oz_mx_rule_known(element, rule));
    bool e4m3 = element == OZ_DTYPE_F8_E4M3;
    if (rule == OZ_EXPONENT_DEFAULT) {
        rule = e4m3 ? OZ_EXPONENT_CEIL : OZ_EXPONENT_EVEN;
    }
    /* Denormals have exponent field 0 here: their scale is the smallest one in any case. */
    uint32_t u = oz_f32_bits(amax);
    int32_t code =
        (int32_t)(u >> 23) - (e4m3 ? 8 : 2) + ((u & 0x7FFFFFU) >= round_up_from(e4m3, rule));
    return (uint8_t)(code < 0 ? 0 : code);
}

OZ_GROUP_FN void oz_mxfp8_elements(const float *x, int64_t n, uint8_t scale, uint8_t *codes)
{
    float inverse = oz_e8m0_inverse(scale);
    for (int64_t i = 0; i < n; i++) {
        codes[i] = isfinite(x[i]) ? oz_f32_to_e4m3(x[i] * inverse) : (uint8_t)OZ_E4M3_NAN;
    }
}

OZ_GROUP_FN void oz_mxfp4_elements(const float *x, int64_t n, uint8_t scale, uint8_t *codes)
{
    float inverse = oz_e8m0_inverse(scale);
    for (int64_t i = 0; i < n; i++) {
        oz_nibble_put(codes, i, oz_f32_to_e2m1(x[i] * inverse));
    }
}

OZ_GROUP_FN uint8_t oz_mxfp8_encode(const float *x, int64_t n, enum oz_exponent_rule rule,
                                    uint8_t *codes)
{
    bool bad = false;
    uint8_t scale = oz_mx_scale(OZ_DTYPE_F8_E4M3, rule, oz_group_amax(x, n, &bad));
    oz_mxfp8_elements(x, n, scale, codes);
    return scale;
}

OZ_GROUP_FN uint8_t oz_mxfp4_encode(const float *x, int64_t n, enum oz_exponent_rule rule,
                                    uint8_t *codes)
{
    bool bad = false;
    uint8_t scale = oz_mx_scale(OZ_DTYPE_F4, rule, oz_group_amax(x, n, &bad));
    oz_mxfp4_elements(x, n, scale, codes);
    return bad ? (uint8_t)OZ_E8M0_NAN : scale;
}

/* ---- dual scale ---- */

OZ_GROUP_FN float oz_dual_scale(float amax)
{
    return amax > 0 ? at_least(amax / OZ_E2M1_MAX, FLT_TRUE_MIN) : 1.0F;
}

/* e8m0 code of 2^ceil(log2 t), t >= 0. */
OZ_INLINE uint8_t ceil_power(float t)
{
    uint32_t u = oz_f32_bits(t);
    if (u <= 0x400000U) { /* 2^-127, an f32 denormal */
        return 0;
    }
    uint32_t code = (u >> 23) + ((u & 0x7FFFFFU) != 0);
    return (uint8_t)(code > 254 ? 254 : code);
}

OZ_GROUP_FN uint8_t oz_dual_group_scale(float amax, float dual)
{
    return ceil_power(amax / OZ_E2M1_MAX / dual);
}

OZ_GROUP_FN uint8_t oz_dual_encode(const float *x, int64_t n, float dual, uint8_t *codes)
{
    bool bad = false;
    uint8_t scale = oz_dual_group_scale(oz_group_amax(x, n, &bad), dual);
    float inverse = oz_e8m0_inverse(scale);
    for (int64_t i = 0; i < n; i++) {
        oz_nibble_put(codes, i, oz_f32_to_e2m1(x[i] / dual * inverse));
    }
    return bad ? (uint8_t)OZ_E8M0_NAN : scale;
}

/* ---- NVFP4 ---- */

OZ_GROUP_FN float oz_nvfp4_global(float amax)
{
    return OZ_E2M1_MAX * OZ_E4M3_MAX / at_least(amax, 1e-8F);
}

OZ_GROUP_FN float oz_nvfp4_global_of(float scale2)
{
    /* Both quotients are off by half a step at most: a factor of this scale lies within two steps of
     * 1 / scale2. */
    float g = 1.0F / scale2;
    float low = g;
    float high = g;
    for (int i = 0; i < 3; i++) {
        if (1.0F / low == scale2) {
            return low;
        }
        if (1.0F / high == scale2) {
            return high;
        }
        low = nextafterf(low, 0);
        high = nextafterf(high, INFINITY);
    }
    return 0;
}

OZ_GROUP_FN uint8_t oz_nvfp4_encode(const float *x, int64_t n, float g, uint8_t *codes)
{
    bool bad = false;
    uint8_t scale = oz_f32_to_e4m3(g * (oz_group_amax(x, n, &bad) / OZ_E2M1_MAX));
    float s = oz_e4m3_to_f32(scale);
    float factor = s == 0 ? 0.0F : 1.0F / (s * (1.0F / g));
    for (int64_t i = 0; i < n; i++) {
        oz_nibble_put(codes, i, oz_f32_to_e2m1(x[i] * factor));
    }
    return bad ? (uint8_t)OZ_E4M3_NAN : scale;
}
