/*
 * linear: the rows in the product's format, the product, and one kernel for all that follows it. Where
 * nothing follows but scales, bias and gelu, and cuBLASLt can do those, the product writes its place
 * itself; rows to be quantized then pass through bf16.
 */
#include <string.h>

#include "base/log.h"
#include "cuda/host/cuda.h"

#define MOST_COLS 49152 /* that the kernel behind a product holds in shared memory */

/* How one call goes; from shapes alone. */
struct course {
    enum oz_cuda_kind kind;
    enum oz_dtype operand;  /* of both operands */
    int64_t n, k;           /* padded */
    bool converts, decodes; /* x; the weight */
    bool scales_wait;       /* the weight's scales come behind the sums */
    bool may_fuse;          /* nothing follows that cuBLASLt cannot do */
    bool apart;             /* out is quantized from f32 rows: a scale spans its sequence */
    bool few_apart; /* sequences of few rows go through a kernel that decodes as it multiplies */
    size_t x, w, up, sums, up_sums, rows, amax, bias, scales, total;
};

static enum oz_dtype operand_of(enum oz_cuda_kind kind)
{
    return kind == OZ_CUDA_FP8        ? OZ_DTYPE_F8_E4M3
           : kind == OZ_CUDA_INT8     ? OZ_DTYPE_I8
           : kind == OZ_CUDA_GEMM_F32 ? OZ_DTYPE_F32
                                      : OZ_DTYPE_BF16;
}

/* Is nothing to be done behind the product but scales, bias and gelu? */
static bool ends_at_once(const struct oz_linear_args *a)
{
    if (a->residual != NULL) {
        return a->gate.table == NULL && a->residual->stride % 8 == 0;
    }
    return a->up == NULL && (a->fn == OZ_FN_NONE || a->fn == OZ_FN_GELU_TANH) &&
           (!oz_cuda_plain(&a->out->spec) || a->out->stride % 8 == 0);
}

/* One scale for each row of both operands, as cuBLASLt takes them. */
static bool has_row_scales(const struct oz_weight *w, const struct oz_act_spec *x)
{
    struct oz_cuda_weight view;
    return oz_cuda_weight_of(w, &view) && view.level[0].cell_rows == 1 && x->scale_count == 1;
}

/* Is x something else than the product's operand? */
static bool converts(const struct oz_act *x, const struct course *c)
{
    bool coded = c->kind == OZ_CUDA_FP8 || c->kind == OZ_CUDA_INT8;
    return x->spec.dtype != c->operand || x->cols != c->k || x->stride % 16 != 0 ||
           (!coded && x->spec.scale_count > 0);
}

/* Can rows of it be written by themselves? */
static bool is_sliceable(const struct oz_act *out)
{
    bool yes = out == NULL || !oz_cuda_spans_sequence(&out->spec);
    for (int32_t i = 0; out != NULL && i < out->spec.scale_count; i++) {
        yes = yes && out->spec.scale[i].layout == OZ_SCALE_ROWS;
    }
    return yes;
}

/* Is there a kernel for few rows that takes the weight as it is stored? From the layer alone. */
static bool takes_codes(const struct oz_device *dev, const struct oz_linear_args *a,
                        const struct course *c)
{
    struct oz_cuda_weight view;
    return !oz_cuda_of(dev)->vendor_only && c->kind == OZ_CUDA_DECODE_BF16 &&
           c->n == a->w->w.shape[0] && c->k == a->w->w.shape[1] && is_sliceable(a->out) &&
           oz_cuda_weight_of(&a->w->w.weight, &view) && oz_few_takes(&view) &&
           (a->up == NULL || (oz_cuda_weight_of(&a->up->w.weight, &view) && oz_few_takes(&view)));
}

/* exact: in f32 whatever the weight is stored in. */
static struct course plan_course(const struct oz_device *dev, const struct oz_linear_args *a,
                                 bool exact)
{
    const struct oz_weight *w = &a->w->w.weight;
    struct course c = {.kind = OZ_CUDA_GEMM_F32};
    int64_t m = a->x->rows;
    int64_t n = a->w->w.shape[0];
    int64_t k = a->w->w.shape[1];
    if (w->codec != NULL && !exact) {
        c.kind = oz_cuda_kind_of(dev, w, &a->x->spec, OZ_USE_LINEAR);
    }
    c.operand = operand_of(c.kind);
    size_t size = (size_t)oz_dtype_bits(c.operand) / 8;
    c.n = oz_cuda_round(n, 16);
    c.k = oz_cuda_round(k, 16);
    c.converts = converts(a->x, &c);
    c.decodes = w->planes[OZ_PLANE_CODES].dtype != c.operand || n != c.n || k != c.k;
    c.scales_wait = w->codec != NULL && oz_cuda_scales_wait(w);
    c.may_fuse = ends_at_once(a) && c.n == n && c.kind != OZ_CUDA_INT8 &&
                 (!c.scales_wait || (c.kind == OZ_CUDA_FP8 && has_row_scales(w, &a->x->spec)));
    c.apart = a->out != NULL && oz_cuda_spans_sequence(&a->out->spec);
    c.few_apart = takes_codes(dev, a, &c);
    c.x = oz_cuda_reserve(&c.total, c.converts ? m : 0, c.k, size);
    c.w = oz_cuda_reserve(&c.total, c.decodes ? c.n : 0, c.k, size);
    c.up = oz_cuda_reserve(&c.total, c.decodes && a->up != NULL ? c.n : 0, c.k, size);
    c.sums = oz_cuda_reserve(&c.total, m, c.n, sizeof(float));
    c.up_sums = oz_cuda_reserve(&c.total, a->up != NULL ? m : 0, c.n, sizeof(float));
    c.rows = oz_cuda_reserve(&c.total, c.apart ? m : 0, n, sizeof(float));
    c.amax = oz_cuda_reserve(&c.total, c.apart ? m : 0, 1, sizeof(float));
    c.bias = oz_cuda_reserve(&c.total, c.may_fuse ? n : 0, 1, 2);
    c.scales = oz_cuda_reserve(&c.total, c.may_fuse && c.scales_wait ? m : 0, 1, sizeof(float));
    return c;
}

size_t oz_cuda_scratch_linear(const struct oz_device *dev, const struct oz_linear_args *a)
{
    return plan_course(dev, a, false).total;
}

static enum oz_status check(const struct oz_linear_args *a, const struct course *c)
{
    const struct oz_weight *w = &a->w->w.weight;
    const char *problem = NULL;
    if (w->codec == NULL || w->planes[OZ_PLANE_CODES].data == NULL) {
        problem = "the weight is not loaded";
    } else if (a->up != NULL &&
               (a->up->w.weight.codec != w->codec ||
                a->up->w.weight.planes[OZ_PLANE_CODES].dtype != w->planes[OZ_PLANE_CODES].dtype)) {
        problem = "gate and up are stored in different formats";
    } else if (a->out != NULL) {
        problem = oz_cuda_act_problem(&a->out->spec);
    }
    if (problem == NULL && !c->converts && (uintptr_t)a->x->data % 16 != 0) {
        problem = "rows do not begin at 16 bytes";
    }
    if (problem != NULL) {
        oz_log(OZ_LOG_ERROR, "dispatch", "linear %s: %s.", a->w->w.name, problem);
        return OZ_ERR_UNSUPPORTED;
    }
    return OZ_OK;
}

/* The weight as the product's operand: its planes, or decoded at `room`. */
static enum oz_status operand(const struct oz_op_ctx *ctx, const struct oz_weight *w,
                              const struct course *c, void *room, const void **out)
{
    struct oz_cuda_weight view;
    *out = w->planes[OZ_PLANE_CODES].data;
    if (!c->decodes) {
        return OZ_OK;
    }
    if (!oz_cuda_weight_of(w, &view)) {
        return OZ_ERR_UNSUPPORTED;
    }
    *out = room;
    return oz_cuda_check(ctx->dev, "decoding a weight",
                         oz_launch_decode(oz_cuda_stream_of(ctx->dev, ctx->queue), &view,
                                          c->scales_wait, c->operand, room, c->n, c->k, c->k));
}

/* The product without its end. */
static enum oz_status sum_up(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                             const struct course *c, const struct oz_linear *w, void *room,
                             void *sums, struct oz_cuda_gemm *g)
{
    const void *weight;
    OZ_TRY(operand(ctx, &w->w.weight, c, room, &weight));
    *g = (struct oz_cuda_gemm){.m = a->x->rows,
                               .n = c->n,
                               .k = c->k,
                               .x = a->x->data,
                               .w = weight,
                               .y = sums,
                               .x_stride = a->x->stride,
                               .w_stride = c->k,
                               .y_stride = c->n,
                               .x_dtype = c->operand,
                               .w_dtype = c->operand,
                               .y_dtype = c->kind == OZ_CUDA_INT8 ? OZ_DTYPE_I32 : OZ_DTYPE_F32};
    return OZ_OK;
}

/* All that follows the sums. */
static struct oz_cuda_linear_end ending(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                                        const struct course *c)
{
    struct oz_cuda_linear_end e = {.sums = oz_cuda_at(ctx, c->sums),
                                   .integer = c->kind == OZ_CUDA_INT8,
                                   .rows = a->x->rows,
                                   .cols = a->w->w.shape[0],
                                   .sum_stride = c->n,
                                   .bias = oz_cuda_vector(&a->w->b),
                                   .fn = a->fn,
                                   .gate = oz_cuda_mod_of(&a->gate),
                                   .index = a->mod_index};
    if (c->kind == OZ_CUDA_FP8 || c->kind == OZ_CUDA_INT8) {
        e.row_scale = a->x->spec.static_scale != NULL ? a->x->spec.static_scale : a->x->scales[0];
        e.row_scale_stride = a->x->spec.static_scale != NULL ? 0 : 1;
    }
    if (c->scales_wait) {
        struct oz_cuda_weight w;
        (void)oz_cuda_weight_of(&a->w->w.weight, &w);
        e.col_scale = (const float *)(const void *)w.level[0].data;
        e.col_scale_stride = w.level[0].cell_rows > 0 ? 1 : 0;
    }
    if (a->up != NULL) {
        e.up_sums = oz_cuda_at(ctx, c->up_sums);
        e.up_bias = oz_cuda_vector(&a->up->b);
        e.up_col_scale = c->scales_wait ? a->up->w.weight.planes[OZ_PLANE_SCALES].data : NULL;
    }
    if (a->residual != NULL) {
        e.residual = *a->residual;
    } else {
        e.out = *a->out;
    }
    return e;
}

/* Rows of `from`, which lies in scratch, to out's format. */
static enum oz_status quantize(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                               const struct course *c, const struct oz_act *from)
{
    oz_cuda_stream stream = oz_cuda_stream_of(ctx->dev, ctx->queue);
    float *amax = c->apart ? oz_cuda_at(ctx, c->amax) : NULL;
    if (c->apart) {
        OZ_TRY(
            oz_cuda_check(ctx->dev, "linear",
                          oz_launch_amax(stream, from, a->out->spec.smooth,
                                         a->sequences != NULL ? a->sequences->device_offsets : NULL,
                                         a->sequences != NULL ? a->sequences->count : 0, amax)));
    }
    return oz_cuda_check(ctx->dev, "linear",
                         oz_launch_act_quant(stream, from, a->out, from->rows, NULL, NULL, amax));
}

static enum oz_status finish(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                             const struct course *c)
{
    struct oz_cuda_linear_end e = ending(ctx, a, c);
    if (e.cols > MOST_COLS) {
        oz_log(OZ_LOG_ERROR, "dispatch",
               "linear %s: what follows the product holds %d features in shared memory, not %lld.",
               a->w->w.name, MOST_COLS, (long long)e.cols);
        return OZ_ERR_UNSUPPORTED;
    }
    if (c->apart) {
        e.out = (struct oz_act){.data = oz_cuda_at(ctx, c->rows),
                                .rows = e.rows,
                                .cols = e.cols,
                                .stride = e.cols,
                                .spec = {.dtype = OZ_DTYPE_F32}};
    }
    OZ_TRY(oz_cuda_check(ctx->dev, "linear",
                         oz_launch_linear_end(oz_cuda_stream_of(ctx->dev, ctx->queue), &e)));
    return c->apart ? quantize(ctx, a, c, &e.out) : OZ_OK;
}

/* Both algorithms of the layer must be there: which way a row goes must not depend on its neighbours. */
static bool can(const struct oz_device *dev, const struct oz_cuda_gemm *g)
{
    struct oz_cuda_gemm few = *g;
    few.few = true;
    return oz_cuda_gemm_can(dev, g) && oz_cuda_gemm_can(dev, &few);
}

/* FP8 rows that pass through bf16 before gelu: cuBLASLt's product with gelu behind FP8 is slow. */
static enum oz_status finish_half(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                                  const struct oz_cuda_gemm *g)
{
    const struct oz_cuda_linear_end e = {.sums = g->y,
                                         .half_sums = true,
                                         .rows = g->m,
                                         .cols = g->n,
                                         .sum_stride = g->y_stride,
                                         .fn = a->fn,
                                         .out = *a->out};
    return oz_cuda_check(ctx->dev, "linear",
                         oz_launch_linear_end(oz_cuda_stream_of(ctx->dev, ctx->queue), &e));
}

/* Can gelu wait for a kernel of its own that quantizes too? */
static bool gelu_waits(const struct oz_linear_args *a, const struct course *c)
{
    const struct oz_cuda_linear_end e = {.half_sums = true,
                                         .cols = c->n,
                                         .sum_stride = c->n,
                                         .fn = a->fn,
                                         .out = a->out != NULL ? *a->out : (struct oz_act){0}};
    return c->kind == OZ_CUDA_FP8 && a->fn == OZ_FN_GELU_TANH && oz_wide_takes_end(&e);
}

/* The product with its end by cuBLASLt; false in *done: it cannot. */
static enum oz_status fuse(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                           const struct course *c, const struct oz_cuda_gemm *sums, bool *done)
{
    const struct oz_act *to = a->residual != NULL ? a->residual : a->out;
    bool waits = gelu_waits(a, c);
    bool plain = oz_cuda_plain(&to->spec) && !waits;
    struct oz_cuda_gemm g = *sums;
    g.bias = oz_cuda_vector(&a->w->b);
    g.gelu = a->fn == OZ_FN_GELU_TANH && !waits;
    g.y_dtype = plain ? to->spec.dtype : OZ_DTYPE_BF16;
    g.add = a->residual != NULL ? a->residual->data : NULL;
    if (plain) {
        g.y = to->data;
        g.y_stride = to->stride;
    }
    if (c->scales_wait) {
        g.w_scales = a->w->w.weight.planes[OZ_PLANE_SCALES].data;
        g.x_scales = a->x->scales[0];
        g.scale_room = oz_cuda_at(ctx, c->scales);
    }
    *done = (uintptr_t)g.y % 16 == 0 && can(ctx->dev, &g);
    if (!*done && g.bias != NULL && (g.y_dtype == OZ_DTYPE_BF16 || c->kind == OZ_CUDA_FP8)) {
        g.bias = oz_cuda_at(ctx, c->bias);
        g.half_bias = true;
        *done = (uintptr_t)g.y % 16 == 0 && can(ctx->dev, &g);
    }
    if (!*done) {
        return OZ_OK;
    }
    if (g.half_bias) { /* checkpoints store it so: nothing is lost then */
        OZ_TRY(oz_cuda_half_of(ctx, &a->w->b, oz_cuda_at(ctx, c->bias), &g.bias));
    }
    OZ_TRY(oz_cuda_gemm_run(ctx, &g, a->sequences));
    if (waits) {
        return finish_half(ctx, a, &g);
    }
    const struct oz_act rows = {.data = g.y,
                                .rows = g.m,
                                .cols = g.n,
                                .stride = g.y_stride,
                                .spec = {.dtype = OZ_DTYPE_BF16}};
    return plain ? OZ_OK : quantize(ctx, a, c, &rows);
}

/* x as the product's operand: itself, or converted in scratch. */
static enum oz_status convert(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                              const struct course *c, struct oz_act *x)
{
    *x = *a->x;
    if (!c->converts) {
        return OZ_OK;
    }
    x->data = oz_cuda_at(ctx, c->x);
    x->stride = c->k;
    return oz_cuda_check(ctx->dev, "linear",
                         oz_launch_convert(oz_cuda_stream_of(ctx->dev, ctx->queue), a->x,
                                           c->operand, x->data, c->k));
}

/* Rows whose x is the product's operand. */
static enum oz_status run_rows(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                               const struct course *c)
{
    struct oz_cuda_gemm g;
    bool done = false;
    OZ_TRY(sum_up(ctx, a, c, a->w, oz_cuda_at(ctx, c->w), oz_cuda_at(ctx, c->sums), &g));
    if (c->may_fuse) {
        OZ_TRY(fuse(ctx, a, c, &g, &done));
    }
    if (done) {
        return OZ_OK;
    }
    OZ_TRY(oz_cuda_gemm_run(ctx, &g, a->sequences));
    if (a->up != NULL) {
        OZ_TRY(sum_up(ctx, a, c, a->up, oz_cuda_at(ctx, c->up), oz_cuda_at(ctx, c->up_sums), &g));
        OZ_TRY(oz_cuda_gemm_run(ctx, &g, a->sequences));
    }
    return finish(ctx, a, c);
}

/* Sums of few rows, from the codes as they are stored. */
static enum oz_status sum_codes(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                                const struct course *c, const struct oz_linear *w, void *sums)
{
    struct oz_cuda_weight view;
    return oz_cuda_weight_of(&w->w.weight, &view)
               ? oz_cuda_check(ctx->dev, "linear",
                               oz_few_product(oz_cuda_stream_of(ctx->dev, ctx->queue), &view,
                                              c->scales_wait, a->x->data, a->x->stride, a->x->rows,
                                              sums, c->n))
               : OZ_ERR_UNSUPPORTED;
}

static enum oz_status run_few(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                              const struct course *c)
{
    OZ_TRY(sum_codes(ctx, a, c, a->w, oz_cuda_at(ctx, c->sums)));
    if (a->up != NULL) {
        OZ_TRY(sum_codes(ctx, a, c, a->up, oz_cuda_at(ctx, c->up_sums)));
    }
    return finish(ctx, a, c);
}

/* Neighbouring sequences of a class together, class by class: which way a row goes is its own sequence's
 * affair. */
static enum oz_status run_classes(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                                  const struct course *c)
{
    const struct oz_ragged *r = a->sequences;
    const int32_t count = r != NULL ? r->count : 1;
    for (int32_t s = 0; s < count;) {
        int64_t first = r != NULL ? r->offsets[s] : 0;
        bool few = true;
        const int32_t end = r != NULL ? oz_cuda_class_end(r, s, &few) : 1;
        const int64_t rows = (r != NULL ? r->offsets[end] : a->x->rows) - first;
        const int32_t offsets[2] = {0, (int32_t)rows};
        const struct oz_ragged whole = {.count = 1, .offsets = offsets};
        struct oz_linear_args part = *a;
        struct oz_act x = oz_act_rows(a->x, first, rows);
        struct oz_act out;
        part.x = &x;
        part.sequences = &whole;
        part.mod_index = a->mod_index != NULL ? a->mod_index + first : NULL;
        if (a->residual != NULL) {
            out = oz_act_rows(a->residual, first, rows);
            part.residual = &out;
        } else {
            out = oz_act_rows(a->out, first, rows);
            part.out = &out;
        }
        if (rows > 0) {
            OZ_TRY(few ? run_few(ctx, &part, c) : run_rows(ctx, &part, c));
        }
        s = end;
    }
    return OZ_OK;
}

static enum oz_status run(const struct oz_op_ctx *ctx, const struct oz_linear_args *a, bool exact)
{
    struct course c = plan_course(ctx->dev, a, exact);
    struct oz_act x;
    OZ_TRY(check(a, &c));
    OZ_TRY(convert(ctx, a, &c, &x));
    struct oz_linear_args with = *a;
    with.x = &x;
    if (!c.few_apart) { /* scales of x are read behind the product */
        return run_rows(ctx, &with, &c);
    }
    x.spec = (struct oz_act_spec){.dtype = c.operand};
    x.cols = c.k;
    return run_classes(ctx, &with, &c);
}

enum oz_status oz_cuda_linear(const struct oz_op_ctx *ctx, const struct oz_linear_args *a)
{
    return run(ctx, a, false);
}

/* ---- time_embed ---- */

struct embedding {
    struct oz_act phi, hidden;
    size_t phi_at, hidden_at, rest, total;
    struct oz_linear_args first, second;
};

/* phi, then two linears; `out` gets what the second gives before silu. */
static void lay_out(const struct oz_device *dev, const struct oz_time_embed_args *a,
                    struct embedding *e)
{
    int64_t width = a->linear_1->w.shape[0];
    struct oz_act_spec f32 = {.dtype = OZ_DTYPE_F32};
    *e = (struct embedding){
        .phi = {.rows = a->rows, .cols = a->dim, .stride = a->dim, .spec = f32},
        .hidden = {.rows = a->rows, .cols = width, .stride = width, .spec = f32}};
    e->phi_at = oz_cuda_reserve(&e->total, a->rows, a->dim, sizeof(float));
    e->hidden_at = oz_cuda_reserve(&e->total, a->rows, width, sizeof(float));
    e->rest = e->total;
    e->first = (struct oz_linear_args){
        .x = &e->phi, .w = a->linear_1, .fn = OZ_FN_SILU, .out = &e->hidden};
    e->second = (struct oz_linear_args){.x = &e->hidden, .w = a->linear_2, .out = a->out};
    size_t first = plan_course(dev, &e->first, true).total;
    size_t second = 0;
    for (int i = 0; i < 2; i++) {
        e->second.out = i == 0 ? a->out : a->silu_out;
        e->second.fn = i == 0 ? OZ_FN_NONE : OZ_FN_SILU;
        size_t need = e->second.out != NULL ? plan_course(dev, &e->second, true).total : 0;
        second = need > second ? need : second;
    }
    (void)oz_cuda_reserve(&e->total, 1,
                          (int64_t)((first > second ? first : second) & (SIZE_MAX >> 1)), 1);
}

size_t oz_cuda_scratch_time_embed(const struct oz_device *dev, const struct oz_time_embed_args *a)
{
    struct embedding e;
    if (a->linear_1 == NULL) { /* phi alone, to its place */
        return 0;
    }
    lay_out(dev, a, &e);
    return e.total;
}

/* Where a user has had the two linears quantized, or a file has them so: they are operators of their own. */
static enum oz_status sinusoids_alone(const struct oz_op_ctx *ctx,
                                      const struct oz_time_embed_args *a)
{
    const struct oz_act *out = a->out;
    if (out == NULL || out->spec.dtype != OZ_DTYPE_F32 || !oz_cuda_plain(&out->spec) ||
        out->stride != a->dim) {
        oz_log(OZ_LOG_ERROR, "dispatch", "time_embed: its rows alone go to F32, without gaps.");
        return OZ_ERR_UNSUPPORTED;
    }
    return oz_cuda_check(ctx->dev, "time_embed",
                         oz_launch_sinusoids(oz_cuda_stream_of(ctx->dev, ctx->queue), a->t, a->rows,
                                             a->dim, a->scale, out->data));
}

enum oz_status oz_cuda_time_embed(const struct oz_op_ctx *ctx, const struct oz_time_embed_args *a)
{
    struct embedding e;
    struct oz_op_ctx inner = *ctx;
    if (a->linear_1 == NULL) {
        return sinusoids_alone(ctx, a);
    }
    lay_out(ctx->dev, a, &e);
    e.phi.data = oz_cuda_at(ctx, e.phi_at);
    e.hidden.data = oz_cuda_at(ctx, e.hidden_at);
    inner.scratch = oz_cuda_at(ctx, e.rest);
    inner.scratch_bytes = ctx->scratch_bytes - e.rest;
    OZ_TRY(oz_cuda_check(ctx->dev, "time_embed",
                         oz_launch_sinusoids(oz_cuda_stream_of(ctx->dev, ctx->queue), a->t, a->rows,
                                             a->dim, a->scale, e.phi.data)));
    OZ_TRY(run(&inner, &e.first, true));
    for (int i = 0; i < 2; i++) {
        e.second.out = i == 0 ? a->out : a->silu_out;
        e.second.fn = i == 0 ? OZ_FN_NONE : OZ_FN_SILU;
        if (e.second.out != NULL) {
            OZ_TRY(run(&inner, &e.second, true));
        }
    }
    return OZ_OK;
}
