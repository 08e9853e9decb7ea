#include "cpu/gemm.h"

#include <assert.h>
#include <string.h>

#include "base/pool.h"

#define ROWS 96     /* rows of a task, a multiple of every mr in use (6, 12, 32 divide 96) */
#define FEW_ROWS 48 /* of gathered rows, where there would be few tasks */
#define ALIGN 64

static size_t element(enum oz_dtype dtype)
{
    return (size_t)oz_dtype_bits(dtype) / 8;
}

/* ---- packing ---- */

static int64_t padded_depth(const struct oz_gemm_kernel *g, int64_t k)
{
    return oz_gemm_pad(k, g->k_multiple);
}

/* Bytes of one panel. */
static size_t panel_bytes(const struct oz_gemm_kernel *g, enum oz_dtype stored, int64_t k)
{
    return (size_t)padded_depth(g, k) * (size_t)g->nr * element(stored);
}

size_t oz_gemm_packed_bytes(const struct oz_gemm_kernel *g, enum oz_dtype stored, int64_t n,
                            int64_t k)
{
    size_t bytes;
    size_t panels = (size_t)(oz_gemm_pad(n, g->nr) / g->nr);
    return __builtin_mul_overflow(panels, panel_bytes(g, stored, k), &bytes) ? SIZE_MAX : bytes;
}

/* Feature `f` of a panel, in chunks of its row. */
static void pack_feature(const struct oz_gemm_kernel *g, enum oz_dtype stored,
                         const struct oz_weight *w, int64_t slice, int64_t row, int64_t f,
                         uint8_t *panel)
{
    float values[256];
    const struct oz_plane_view *codes = &w->planes[OZ_PLANE_CODES];
    const uint8_t *raw = (const uint8_t *)codes->data + slice * codes->slice_stride_bytes +
                         row * codes->row_stride_bytes;
    for (int64_t k0 = 0; k0 < w->cols; k0 += 256) {
        int64_t count = w->cols - k0 < 256 ? w->cols - k0 : 256;
        if (stored == OZ_DTYPE_F32) {
            w->codec->decode(w, slice, row, k0, count, values);
        }
        for (int64_t i = 0; i < count; i++) {
            int64_t k = k0 + i;
            int64_t at = (k / g->kr * g->nr + f) * g->kr + k % g->kr;
            if (stored == OZ_DTYPE_F32) {
                memcpy(panel + at * 4, &values[i], 4);
            } else {
                memcpy(panel + at * 2, raw + k * 2, 2);
            }
        }
    }
}

void oz_gemm_pack(const struct oz_gemm_kernel *g, enum oz_dtype stored, const struct oz_weight *w,
                  int64_t slice, int64_t row0, int64_t rows, void *packed)
{
    size_t bytes = panel_bytes(g, stored, w->cols);
    assert(row0 % g->nr == 0);
    for (int64_t r = row0; r < row0 + rows; r += g->nr) {
        uint8_t *panel = (uint8_t *)packed + (size_t)(r / g->nr) * bytes;
        int64_t features = row0 + rows - r < g->nr ? row0 + rows - r : g->nr;
        if (features < g->nr || padded_depth(g, w->cols) != w->cols) {
            memset(panel, 0, bytes);
        }
        for (int64_t f = 0; f < features; f++) {
            pack_feature(g, stored, w, slice, r + f, f, panel);
        }
    }
}

/* ---- the product ---- */

/* Scratch of a thread: sums of one or two products, a decoded block, gathered rows, a row of f32. */
struct layout {
    size_t sums, block, rows, room, total;
    int64_t task_rows;
    bool gathers;
};

static size_t reserve(size_t *total, size_t bytes)
{
    size_t at = *total;
    *total += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* Rows that must be copied before they can be read: gathered ones, and rows whose K is padded. */
static bool gathers(const struct oz_gemm *p)
{
    return p->fetch != NULL || padded_depth(p->kernel, p->k) != p->k;
}

/* Does a task decode panels before it multiplies? With few rows the kernel widens as it goes; both
 * give the same bytes. */
static bool decodes(const struct oz_gemm *p, int64_t rows)
{
    return p->stored == OZ_DTYPE_BF16 && p->kernel->decode != NULL && rows > 2 * p->kernel->mr;
}

static struct layout lay_out(const struct oz_gemm *p)
{
    const struct oz_gemm_kernel *g = p->kernel;
    struct layout l = {.gathers = gathers(p)};
    l.task_rows = l.gathers && p->m < 8 * ROWS ? FEW_ROWS : ROWS;
    size_t sums = (size_t)l.task_rows * (size_t)g->nr * sizeof(float);
    l.sums = reserve(&l.total, p->packed_up != NULL ? 2 * sums : sums);
    l.block = reserve(&l.total, g->decode != NULL && p->stored == OZ_DTYPE_BF16
                                    ? (size_t)g->k_block * (size_t)g->nr * sizeof(float)
                                    : 0);
    if (l.gathers) {
        size_t depth = (size_t)padded_depth(g, p->k);
        l.rows = reserve(&l.total, (size_t)l.task_rows * depth * element(g->a_dtype));
        l.room = reserve(&l.total, depth * sizeof(float));
    }
    return l;
}

size_t oz_gemm_scratch(const struct oz_device *dev, const struct oz_gemm *p)
{
    size_t bytes;
    return __builtin_mul_overflow(lay_out(p).total, (size_t)oz_pool_threads(dev->pool), &bytes)
               ? SIZE_MAX
               : bytes;
}

struct job {
    const struct oz_gemm *p;
    struct layout l;
    uint8_t *scratch;
    int64_t panels, row_tasks, panel_group;
};

/* sums = rows x one panel, block by block of K. */
static void multiply(const struct oz_gemm *p, int64_t rows, const uint8_t *a, int64_t lda,
                     const uint8_t *panel, float *block, float *sums)
{
    const struct oz_gemm_kernel *g = p->kernel;
    int64_t depth = padded_depth(g, p->k);
    bool decode = decodes(p, rows);
    for (int64_t k0 = 0; k0 < depth; k0 += g->k_block) {
        int64_t count = depth - k0 < g->k_block ? depth - k0 : g->k_block;
        const void *b = panel + (size_t)(k0 * g->nr) * element(p->stored);
        void (*run)(int64_t, int64_t, const void *, int64_t, const void *, float *, int64_t, bool) =
            p->stored == OZ_DTYPE_BF16 && g->run_bf16 != NULL ? g->run_bf16 : g->run;
        if (decode) {
            g->decode(b, count * g->nr, block);
            b = block;
            run = g->run;
        }
        for (int64_t r = 0; r < rows; r += g->mr) {
            int64_t n = rows - r < g->mr ? rows - r : g->mr;
            run(n, count, a + (size_t)(r * lda + k0) * element(g->a_dtype), lda, b,
                sums + r * g->nr, g->nr, k0 == 0);
        }
    }
}

/* Rows [row0, row0 + rows) of the task as the kernel can read them. */
static const uint8_t *rows_of(const struct job *job, int64_t row0, int64_t rows, uint8_t *room,
                              int64_t *lda)
{
    const struct oz_gemm *p = job->p;
    size_t size = element(p->kernel->a_dtype);
    int64_t depth = padded_depth(p->kernel, p->k);
    uint8_t *dst = room + job->l.rows;
    if (!job->l.gathers) {
        *lda = p->lda;
        return (const uint8_t *)p->a + (size_t)(row0 * p->lda) * size;
    }
    *lda = depth;
    if (p->fetch != NULL) {
        p->fetch(p->fetch_ctx, p->kernel, row0, rows, dst, depth,
                 (float *)(void *)(room + job->l.room));
        return dst;
    }
    for (int64_t r = 0; r < rows; r++) {
        uint8_t *line = dst + (size_t)(r * depth) * size;
        memcpy(line, (const uint8_t *)p->a + (size_t)((row0 + r) * p->lda) * size,
               (size_t)p->k * size);
        memset(line + (size_t)p->k * size, 0, (size_t)(depth - p->k) * size);
    }
    return dst;
}

static void run_panels(const struct job *job, int64_t row0, int64_t rows, const uint8_t *a,
                       int64_t lda, int64_t first, int64_t last, uint8_t *room)
{
    const struct oz_gemm *p = job->p;
    const struct oz_gemm_kernel *g = p->kernel;
    float *sums = (float *)(void *)(room + job->l.sums);
    float *up = p->packed_up != NULL ? sums + job->l.task_rows * g->nr : NULL;
    float *block = (float *)(void *)(room + job->l.block);
    size_t bytes = panel_bytes(g, p->stored, p->k);
    for (int64_t panel = first; panel < last; panel++) {
        int64_t col0 = panel * g->nr;
        int64_t cols = p->n - col0 < g->nr ? p->n - col0 : g->nr;
        multiply(p, rows, a, lda, (const uint8_t *)p->packed + (size_t)panel * bytes, block, sums);
        if (up != NULL) {
            multiply(p, rows, a, lda, (const uint8_t *)p->packed_up + (size_t)panel * bytes, block,
                     up);
        }
        g->store(p->epilogue, row0, rows, col0, cols, sums, up, g->nr);
    }
}

/* A task: some rows, and a group of panels (all of them where rows are gathered). */
static void run_task(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    uint8_t *room = job->scratch + (size_t)thread * job->l.total;
    for (int64_t task = begin; task < end; task++) {
        int64_t row0 = task % job->row_tasks * job->l.task_rows;
        int64_t rows = job->p->m - row0 < job->l.task_rows ? job->p->m - row0 : job->l.task_rows;
        int64_t first = task / job->row_tasks * job->panel_group;
        int64_t last =
            first + job->panel_group < job->panels ? first + job->panel_group : job->panels;
        int64_t lda;
        const uint8_t *a = rows_of(job, row0, rows, room, &lda);
        run_panels(job, row0, rows, a, lda, first, last, room);
    }
}

void oz_gemm_run(const struct oz_op_ctx *ctx, const struct oz_gemm *p)
{
    struct job job = {.p = p, .l = lay_out(p), .scratch = ctx->scratch};
    job.panels = oz_gemm_pad(p->n, p->kernel->nr) / p->kernel->nr;
    job.row_tasks = (p->m + job.l.task_rows - 1) / job.l.task_rows;
    /* Gathered rows are gathered once. Else groups of panels, so that every thread has some. */
    job.panel_group = job.l.gathers && job.row_tasks > 1 ? job.panels : 4;
    int64_t groups = (job.panels + job.panel_group - 1) / job.panel_group;
    oz_pool_for(ctx->dev->pool, groups * job.row_tasks, 1, run_task, &job);
}

/* ---- linear ---- */

static const float *vector(const struct oz_param *p)
{
    return p != NULL && p->name != NULL ? p->weight.planes[OZ_PLANE_CODES].data : NULL;
}

static struct oz_gemm linear_product(const struct oz_linear_args *a, const struct oz_cpu_kernel *k,
                                     struct oz_gemm_epilogue *e)
{
    *e = (struct oz_gemm_epilogue){.bias = vector(&a->w->b),
                                   .up_bias = a->up != NULL ? vector(&a->up->b) : NULL,
                                   .fn = a->fn,
                                   .gate = a->gate.table != NULL ? &a->gate : NULL,
                                   .mod_index = a->mod_index,
                                   .residual = a->residual,
                                   .out = a->out};
    return (struct oz_gemm){.kernel = k->gemm,
                            .m = a->x->rows,
                            .n = a->w->w.shape[0],
                            .k = a->x->cols,
                            .stored = a->w->w.plan != NULL ? a->w->w.plan->stored : OZ_DTYPE_F32,
                            .packed = a->w->w.packed,
                            .packed_up = a->up != NULL ? a->up->w.packed : NULL,
                            .a = a->x->data,
                            .lda = a->x->stride,
                            .epilogue = e};
}

size_t oz_gemm_linear_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k)
{
    struct oz_gemm_epilogue e;
    struct oz_gemm p = linear_product(a, k, &e);
    p.packed_up = a->up != NULL ? a->up : NULL; /* only whether it is there counts */
    return oz_gemm_scratch(dev, &p);
}

static const char *out_reject(const struct oz_act *out)
{
    return out == NULL || ((out->spec.dtype == OZ_DTYPE_F32 || out->spec.dtype == OZ_DTYPE_BF16) &&
                           out->spec.scale_count == 0)
               ? NULL
               : "it writes f32 and bf16 only";
}

const char *oz_gemm_linear_reject(const struct oz_linear_args *a, const struct oz_cpu_kernel *k)
{
    if (a->w->w.plan == NULL || a->w->w.plan->kernel != k) {
        return "the weight is not packed for it";
    }
    if (a->up != NULL && (a->up->w.plan == NULL || a->up->w.plan->kernel != k ||
                          a->up->w.plan->stored != a->w->w.plan->stored)) {
        return "the second weight is not packed like the first";
    }
    if (a->x->spec.dtype != k->gemm->a_dtype || a->x->spec.scale_count != 0) {
        return "the input has another format";
    }
    if (a->residual != NULL && a->residual->spec.dtype != OZ_DTYPE_F32) {
        return "the residual is not f32";
    }
    return out_reject(a->out);
}

enum oz_status oz_gemm_linear(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                              const struct oz_cpu_kernel *k)
{
    struct oz_gemm_epilogue e;
    struct oz_gemm p = linear_product(a, k, &e);
    oz_gemm_run(ctx, &p);
    return OZ_OK;
}

/* ---- conv ---- */

struct conv {
    const struct oz_conv_args *a;
    int64_t out_height, out_width;
};

/* The patch under one output pixel as f32: taps outside the picture are zero. */
static void gather_patch(const struct conv *c, int64_t pixel, float *dst)
{
    const struct oz_conv_args *a = c->a;
    int64_t channels = a->x->cols;
    size_t bytes = (size_t)channels * sizeof(float);
    int64_t frame = pixel / (c->out_height * c->out_width) * a->stride_t - (a->kt - 1);
    int64_t top = pixel / c->out_width % c->out_height * a->stride - a->pad_top;
    int64_t left = pixel % c->out_width * a->stride - a->pad_left;
    for (int64_t t = frame; t < frame + a->kt; t++) {
        for (int64_t y = top; y < top + a->kh; y++) {
            for (int64_t x = left; x < left + a->kw; x++, dst += channels) {
                const struct oz_act *from = t < 0 ? a->past : a->x;
                if (from == NULL || y < 0 || y >= a->height || x < 0 || x >= a->width) {
                    memset(dst, 0, bytes);
                    continue;
                }
                int64_t f = t < 0 ? t + a->kt - 1 : t;
                int64_t row = (f * a->height + y) * a->width + x;
                memcpy(dst, (const float *)from->data + row * from->stride, bytes);
            }
        }
    }
}

static void fetch_patches(const void *ctx, const struct oz_gemm_kernel *g, int64_t row0,
                          int64_t rows, void *dst, int64_t ld, float *room)
{
    const struct conv *c = ctx;
    int64_t k = (int64_t)c->a->kt * c->a->kh * c->a->kw * c->a->x->cols;
    for (int64_t r = 0; r < rows; r++) {
        if (g->a_dtype == OZ_DTYPE_F32) {
            float *line = (float *)dst + r * ld;
            gather_patch(c, row0 + r, line);
            memset(line + k, 0, (size_t)(ld - k) * sizeof *line);
            continue;
        }
        gather_patch(c, row0 + r, room);
        memset(room + k, 0, (size_t)(ld - k) * sizeof *room);
        g->convert(room, ld, (uint16_t *)dst + r * ld);
    }
}

static struct oz_gemm conv_product(const struct oz_conv_args *a, const struct oz_cpu_kernel *k,
                                   struct conv *c, struct oz_gemm_epilogue *e)
{
    *c = (struct conv){
        .a = a,
        .out_height = (a->height + a->pad_top + a->pad_bottom - a->kh) / a->stride + 1,
        .out_width = (a->width + a->pad_left + a->pad_right - a->kw) / a->stride + 1};
    *e = (struct oz_gemm_epilogue){
        .bias = vector(a->b), .fn = a->fn, .add = a->residual, .out = a->out};
    return (struct oz_gemm){.kernel = k->gemm,
                            .m = a->out->rows,
                            .n = a->out->cols,
                            .k = (int64_t)a->kt * a->kh * a->kw * a->x->cols,
                            .stored = a->w->plan != NULL ? a->w->plan->stored : OZ_DTYPE_F32,
                            .packed = a->w->packed,
                            .fetch = fetch_patches,
                            .fetch_ctx = c,
                            .epilogue = e};
}

size_t oz_gemm_conv_scratch(const struct oz_device *dev, const struct oz_conv_args *a,
                            const struct oz_cpu_kernel *k)
{
    struct conv c;
    struct oz_gemm_epilogue e;
    struct oz_gemm p = conv_product(a, k, &c, &e);
    return oz_gemm_scratch(dev, &p);
}

const char *oz_gemm_conv_reject(const struct oz_conv_args *a, const struct oz_cpu_kernel *k)
{
    if (a->w->plan == NULL || a->w->plan->kernel != k) {
        return "the weight is not packed for it";
    }
    if (a->x->spec.dtype != OZ_DTYPE_F32 ||
        (a->past != NULL && a->past->spec.dtype != OZ_DTYPE_F32) ||
        (a->residual != NULL && a->residual->spec.dtype != OZ_DTYPE_F32)) {
        return "the picture is not f32";
    }
    return out_reject(a->out);
}

enum oz_status oz_gemm_conv(const struct oz_op_ctx *ctx, const struct oz_conv_args *a,
                            const struct oz_cpu_kernel *k)
{
    struct conv c;
    struct oz_gemm_epilogue e;
    struct oz_gemm p = conv_product(a, k, &c, &e);
    oz_gemm_run(ctx, &p);
    return OZ_OK;
}
