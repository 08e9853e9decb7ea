/* Rows in quantized formats: see ref.h. What the numbers become is num/act.h's. */
#include "base/log.h"
#include "cpu/kern/ref/ref.h"
#include "num/act.h"

static struct oz_act_format format_of(const struct oz_act_spec *spec)
{
    struct oz_act_format f = {.element = spec->dtype,
                              .scale_count = spec->scale_count,
                              .exponent_rule = spec->exponent_rule,
                              .static_scale = spec->static_scale != NULL};
    for (int i = 0; i < 2; i++) {
        f.scale[i].dtype = spec->scale[i].dtype;
        f.scale[i].group_cols = spec->scale[i].group_cols;
    }
    return f;
}

static struct oz_act_given given_of(const struct oz_act_spec *spec, float amax)
{
    return (struct oz_act_given){
        .amax = amax,
        .scale = spec->static_scale != NULL ? *spec->static_scale : 0,
        .offset = spec->static_offset != NULL ? *spec->static_offset : 0,
    };
}

static struct oz_act_row row_of(const struct oz_act *a, const struct oz_act_format *f, int64_t row)
{
    int64_t bits = row * a->stride * oz_dtype_bits(a->spec.dtype);
    struct oz_act_row r = {.codes = (uint8_t *)a->data + bits / 8};
    for (int i = 0; i < a->spec.scale_count; i++) {
        bool cols = a->spec.scale[i].layout == OZ_SCALE_COLS;
        int64_t first = cols ? row : row * oz_act_groups(f, i, a->cols);
        r.scales[i] = (uint8_t *)a->scales[i] + first * (oz_dtype_bits(f->scale[i].dtype) / 8);
        r.scale_stride[i] = cols ? a->rows : 1;
    }
    return r;
}

static bool is_float(const struct oz_act_spec *spec)
{
    return spec->dtype == OZ_DTYPE_F32 || spec->dtype == OZ_DTYPE_BF16;
}

const char *oz_ref_act_problem(const struct oz_act_spec *spec)
{
    struct oz_act_format f = format_of(spec);
    if (spec->rotate_cols != 0) {
        return "rotations are not applied";
    }
    if (spec->low_rank_a != NULL) {
        return "low-rank branches are not applied";
    }
    for (int i = 0; i < spec->scale_count; i++) {
        if (spec->scale[i].layout == OZ_SCALE_SWIZZLE_128X4) {
            return "scales in tiles are not read";
        }
    }
    bool known = is_float(spec) ? spec->scale_count == 0 && spec->static_scale == NULL
                                : oz_act_format_known(&f);
    return known ? NULL : "its elements and scales belong to no activation mode";
}

bool oz_ref_spans_sequence(const struct oz_act_spec *spec)
{
    struct oz_act_format f = format_of(spec);
    return oz_act_needs_amax(&f);
}

enum oz_status oz_ref_check_rows(const char *op, const struct oz_act *a)
{
    const char *problem = a != NULL ? oz_ref_act_problem(&a->spec) : NULL;
    if (problem == NULL) {
        return OZ_OK;
    }
    oz_log(OZ_LOG_ERROR, "dispatch", "%s: an activation in %s: %s.", op,
           oz_dtype_name(a->spec.dtype), problem);
    return OZ_ERR_UNSUPPORTED;
}

static void smooth(const struct oz_act_spec *spec, float *x, int64_t cols)
{
    for (int64_t c = 0; spec->smooth != NULL && c < cols; c++) {
        x[c] /= spec->smooth[c];
    }
}

float oz_ref_row_amax(const struct oz_act_spec *spec, const float *x, int64_t cols)
{
    float amax = 0;
    for (int64_t c = 0; c < cols; c++) {
        float v = fabsf(spec->smooth != NULL ? x[c] / spec->smooth[c] : x[c]);
        amax = v > amax && isfinite(v) ? v : amax;
    }
    return amax;
}

void oz_ref_quantize(const struct oz_act *a, int64_t row, float *x, float sequence_amax)
{
    smooth(&a->spec, x, a->cols);
    if (is_float(&a->spec)) {
        oz_ref_store(a, row, 0, a->cols, x);
        return;
    }
    struct oz_act_format f = format_of(&a->spec);
    struct oz_act_given given = given_of(&a->spec, sequence_amax);
    struct oz_act_row r = row_of(a, &f, row);
    oz_act_encode_row(&f, &given, x, a->cols, &r);
}

void oz_ref_load_quantized(const struct oz_act *a, int64_t row, int64_t col, int64_t count,
                           float *dst)
{
    struct oz_act_format f = format_of(&a->spec);
    struct oz_act_given given = given_of(&a->spec, 0);
    struct oz_act_row r = row_of(a, &f, row);
    oz_act_decode_row(&f, &given, &r, col, count, dst);
}
