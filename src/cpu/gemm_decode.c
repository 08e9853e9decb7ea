/*
 * linear of weights in any codec over a micro-kernel that multiplies f32: a band of the weight is
 * decoded into panels in scratch, multiplied by all rows, and the next one takes its place. Rows are
 * decoded where they are gathered. The numbers are the reference's (kern/ref/ref_linear.c): f32
 * products of decoded values in the order of K; s8 by s8 sums are exact.
 */
#include "cpu/gemm.h"
#include "cpu/int8.h"
#include "cpu/kern/ref/ref.h"

#define BAND_BYTES ((int64_t)4 * 1024 * 1024) /* of panels, about: they stay in a cache */
#define BAND_FEATURES 512

struct layout {
    size_t scales, up_scales, panels, up_panels, product, total;
    int64_t band; /* features */
    bool int8;
};

static int64_t features(const struct oz_linear_args *a)
{
    return a->residual != NULL ? a->residual->cols : a->out->cols;
}

/* Rows that the kernel reads as they lie. */
static bool direct(const struct oz_act *x)
{
    return x->spec.dtype == OZ_DTYPE_F32;
}

static void fetch_values(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                         float *dst, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++) {
        oz_ref_load(ctx, row0 + r, k0, count, dst + r * ld);
    }
}

static void fetch_codes(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                        float *dst, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++) {
        oz_int8_load(ctx, row0 + r, k0, count, dst + r * ld);
    }
}

static struct oz_gemm band_product(const struct oz_linear_args *a, const struct oz_cpu_kernel *k,
                                   const struct layout *l)
{
    return (struct oz_gemm){.kernel = k->gemm,
                            .m = a->x->rows,
                            .n = l->band,
                            .k = a->x->cols,
                            .stored = OZ_DTYPE_F32,
                            .packed_up = a->up, /* only whether it is there counts yet */
                            .a = a->x->data,
                            .lda = a->x->stride,
                            .fetch = l->int8        ? fetch_codes
                                     : direct(a->x) ? NULL
                                                    : fetch_values,
                            .fetch_ctx = a->x,
                            .row_scales = l->int8 ? a->x->scales[0] : NULL};
}

static struct layout lay_out(const struct oz_device *dev, const struct oz_linear_args *a,
                             const struct oz_cpu_kernel *k)
{
    struct layout l = {.int8 = oz_int8_product(&a->x->spec, &a->w->w.weight)};
    int64_t n = features(a);
    int64_t nr = k->gemm->nr;
    int64_t most = BAND_BYTES / (int64_t)sizeof(float) / oz_ref_max(a->x->cols, 1) / nr * nr;
    l.band = oz_ref_min(oz_ref_max(nr, oz_ref_min(most, BAND_FEATURES)), oz_gemm_pad(n, nr));
    size_t bytes = oz_gemm_packed_bytes(k->gemm, OZ_DTYPE_F32, l.band, a->x->cols);
    int64_t scales = l.int8 ? n : 0;
    l.scales = oz_ref_reserve(&l.total, scales, sizeof(float));
    l.up_scales = oz_ref_reserve(&l.total, a->up != NULL ? scales : 0, sizeof(float));
    l.panels = oz_ref_reserve(&l.total, 1, bytes);
    l.up_panels = oz_ref_reserve(&l.total, a->up != NULL, bytes);
    struct oz_gemm p = band_product(a, k, &l);
    size_t product = oz_gemm_scratch(dev, &p);
    p.n = n % l.band; /* the last band is cut in its own way */
    size_t last = p.n > 0 ? oz_gemm_scratch(dev, &p) : 0;
    l.product = oz_ref_reserve(&l.total, 1, last > product ? last : product);
    return l;
}

size_t oz_gemm_decode_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k)
{
    return lay_out(dev, a, k).total;
}

const char *oz_gemm_decode_reject(const struct oz_linear_args *a)
{
    bool int8 = oz_int8_product(&a->x->spec, &a->w->w.weight);
    if (a->up != NULL && oz_int8_product(&a->x->spec, &a->up->w.weight) != int8) {
        return "the second weight is not stored like the first";
    }
    return int8 && a->x->cols > OZ_INT8_EXACT_DEPTH
               ? "its f32 sums of int8 products would not be exact"
               : NULL;
}

/* Features [n0, n0 + n) of a weight as panels. */
static void decode_band(const struct oz_op_ctx *ctx, const struct oz_cpu_kernel *k, bool int8,
                        const struct oz_weight *w, int64_t n0, int64_t n, uint8_t *panels)
{
    struct oz_weight codes = int8 ? oz_int8_codes(w) : *w;
    size_t before =
        (size_t)(n0 / k->gemm->nr) * oz_gemm_panel_bytes(k->gemm, OZ_DTYPE_F32, w->cols);
    /* The packer counts panels from the weight's first. */
    oz_gemm_pack(ctx->dev->pool, k->gemm, OZ_DTYPE_F32, &codes, 0, n0, n,
                 (void *)((uintptr_t)panels - before));
}

static struct oz_act columns(const struct oz_act *a, int64_t first, int64_t count)
{
    struct oz_act view = *a;
    view.data = (uint8_t *)a->data + first * oz_dtype_bits(a->spec.dtype) / 8;
    view.cols = count;
    return view;
}

static const float *from(const float *vector, int64_t first)
{
    return vector != NULL ? vector + first : NULL;
}

enum oz_status oz_gemm_decode_linear(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                                     const struct oz_cpu_kernel *k,
                                     struct oz_gemm_epilogue epilogue)
{
    struct layout l = lay_out(ctx->dev, a, k);
    struct oz_gemm p = band_product(a, k, &l);
    struct oz_op_ctx inner = *ctx;
    float *scales = oz_ref_at(ctx, l.scales);
    float *up_scales = oz_ref_at(ctx, l.up_scales);
    int64_t n = features(a);
    OZ_TRY(oz_ref_begin(ctx, l.total));
    OZ_TRY(oz_ref_check_param("linear", &a->w->w, 1, n, a->x->cols));
    OZ_TRY(oz_ref_check_param("linear", a->up != NULL ? &a->up->w : NULL, 1, n, a->x->cols));
    OZ_TRY(oz_ref_check_quantized("linear", a->x));
    OZ_TRY(oz_ref_check_smooth("linear", &a->x->spec, &a->w->w));
    OZ_TRY(oz_ref_check_smooth("linear", &a->x->spec, a->up != NULL ? &a->up->w : NULL));
    if (l.int8) {
        oz_int8_scales(&a->w->w.weight, 0, 0, n, scales);
    }
    if (l.int8 && a->up != NULL) {
        oz_int8_scales(&a->up->w.weight, 0, 0, n, up_scales);
    }
    inner.scratch = oz_ref_at(ctx, l.product);
    inner.scratch_bytes -= l.product;
    p.packed = oz_ref_at(ctx, l.panels);
    p.packed_up = a->up != NULL ? oz_ref_at(ctx, l.up_panels) : NULL;
    for (int64_t n0 = 0; n0 < n; n0 += l.band) {
        struct oz_act out;
        struct oz_gemm_epilogue e = epilogue;
        struct oz_mod gate = a->gate;
        p.n = oz_ref_min(l.band, n - n0);
        decode_band(ctx, k, l.int8, &a->w->w.weight, n0, p.n, oz_ref_at(ctx, l.panels));
        if (a->up != NULL) {
            decode_band(ctx, k, l.int8, &a->up->w.weight, n0, p.n, oz_ref_at(ctx, l.up_panels));
        }
        out = columns(a->residual != NULL ? a->residual : a->out, n0, p.n);
        gate.col += n0;
        e.bias = from(epilogue.bias, n0);
        e.up_bias = from(epilogue.up_bias, n0);
        e.gate = epilogue.gate != NULL ? &gate : NULL;
        e.residual = a->residual != NULL ? &out : NULL;
        e.out = a->residual != NULL ? NULL : &out;
        p.col_scales = l.int8 ? scales + n0 : NULL;
        p.up_col_scales = l.int8 ? up_scales + n0 : NULL;
        p.epilogue = &e;
        oz_gemm_run(&inner, &p);
    }
    return OZ_OK;
}
