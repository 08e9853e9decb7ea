/* Quantized weights over tiles: what cpu/tiles.h asks for, from rows in any format and panels of codes. */
#include "cpu/qgemm_tiles.h"

#include "base/pool.h"
#include "cpu/int8.h"
#include "cpu/kern/ref/ref.h"
#include "num/float.h"

#define DUAL 512 /* of K under a second scale */

/* ---- what can be multiplied ---- */

int oz_qtiles_row_level(const struct oz_act_spec *x)
{
    for (int i = 0; i < x->scale_count; i++) {
        if (x->scale[i].group_cols > 0 && x->scale[i].dtype == OZ_DTYPE_F32) {
            return i;
        }
    }
    return -1;
}

int64_t oz_qtiles_group(const struct oz_act_spec *x, const struct oz_qlayout *l)
{
    int level = oz_qtiles_row_level(x);
    int64_t rows = level >= 0 ? x->scale[level].group_cols : 0;
    int64_t weight = l->dual ? DUAL : l->group > 0 && l->scale == OZ_DTYPE_F32 ? l->group : 0;
    return rows == 0 || weight == 0 || rows == weight ? oz_ref_max(rows, weight) : -1;
}

/* Codes times their scales are exact in bf16. */
static bool folds(enum oz_dtype codes, const struct oz_act_spec *x)
{
    bool exact = true;
    for (int i = 0; i < x->scale_count; i++) {
        enum oz_dtype scale = x->scale[i].dtype;
        exact = exact &&
                (scale == OZ_DTYPE_F32 || scale == OZ_DTYPE_F8_E8M0 ||
                 (scale == OZ_DTYPE_F8_E4M3 && codes == OZ_DTYPE_F4)) &&
                (x->scale[i].group_cols > 0 || scale == OZ_DTYPE_F32);
    }
    return exact;
}

static const char *decline_rows(const struct oz_qgemm_kernel *k, const struct oz_act_spec *x,
                                const struct oz_qlayout *l)
{
    if (k->rows == OZ_QROWS_S8) {
        return l->code == OZ_QCODE_S8 && x->dtype == OZ_DTYPE_I8 && x->static_scale == NULL &&
                       x->scale_count == 1 && x->scale[0].group_cols == 0
                   ? NULL
                   : "it multiplies s8 rows by s8 weights";
    }
    if (l->code != OZ_QCODE_E4M3 && l->code != OZ_QCODE_S8 && l->code != OZ_QCODE_E2M1) {
        return "it decodes no codes by tables";
    }
    bool taken = (x->dtype == OZ_DTYPE_BF16 && x->scale_count == 0) ||
                 (x->dtype == OZ_DTYPE_F8_E4M3 && x->scale_count <= 1) ||
                 (x->dtype == OZ_DTYPE_F4 && x->scale_count >= 1 && x->static_scale == NULL);
    return taken && folds(x->dtype, x) ? NULL : "it takes rows of bf16, e4m3 and e2m1";
}

const char *oz_qtiles_decline(const struct oz_qgemm_kernel *k, const struct oz_act_spec *x,
                              const struct oz_qlayout *l)
{
    const char *reason = decline_rows(k, x, l);
    if (reason != NULL) {
        return reason;
    }
    if (x->rotate_cols != 0 || x->low_rank_a != NULL || oz_ref_act_problem(x) != NULL) {
        return "its rows have scales or transforms that it does not know";
    }
    if (k->rows == OZ_QROWS_S8) {
        return l->cols < OZ_INT8_MOST_DEPTH ? NULL : "sums would leave 32 bits";
    }
    int64_t group = oz_qtiles_group(x, l);
    return group < 0                       ? "rows and weight have groups of different lengths"
           : group % k->tiles->k_step != 0 ? "the groups do not divide its blocks"
                                           : NULL;
}

/* ---- what the driver asks for ---- */

struct product {
    const struct oz_qgemm_kernel *kernel;
    struct oz_qlayout weight;
    const uint8_t *packed[2];
    const struct oz_act *x;
    int64_t n, group;
    struct oz_gemm_epilogue epilogue;
};

static void bring(const void *ctx, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                  uint8_t *dst, int64_t stride, float *scales, int64_t scale_ld, void *room)
{
    const struct product *p = ctx;
    int64_t n = oz_ref_max(0, oz_ref_min(p->x->cols - k0, count));
    (void)room;
    for (int64_t r = 0; r < rows; r++) {
        p->kernel->bring(p->x, row0 + r, k0, n, count, p->group, dst + r * stride,
                         scales != NULL ? scales + r * scale_ld : NULL, NULL);
    }
}

static const uint8_t *panel_at(const struct product *p, int32_t weight, int64_t panel)
{
    return p->packed[weight] + (size_t)panel * p->weight.panel_bytes;
}

static const uint8_t *block(const void *ctx, int32_t weight, int64_t panel, int64_t k0,
                            int64_t count, bool streams, uint8_t *room, float *scales)
{
    const struct product *p = ctx;
    return p->kernel->block(&p->weight, panel_at(p, weight, panel), k0, count, p->group, streams,
                            room, scales);
}

static const uint8_t *stored(const void *ctx, int32_t weight, int64_t panel, int64_t k0)
{
    const struct product *p = ctx;
    return panel_at(p, weight, panel) + p->weight.codes +
           (size_t)(k0 * OZ_Q_NR * p->weight.code_bits / 8);
}

/* What multiplies whole rows, one a row; NULL: ones. `fill`: room for as many as there are rows. */
static const float *row_scales(const struct product *p, int64_t row0, int64_t rows, float *fill)
{
    const struct oz_act_spec *x = &p->x->spec;
    for (int i = 0; i < x->scale_count; i++) {
        if (x->scale[i].group_cols == 0) {
            return (const float *)p->x->scales[i] + row0;
        }
    }
    for (int64_t r = 0; r < rows && x->static_scale != NULL; r++) {
        fill[r] = *x->static_scale;
    }
    return x->static_scale != NULL ? fill : NULL;
}

static void finish(const void *ctx, int64_t row0, int64_t rows, int64_t panel, float *y, float *up)
{
    const struct product *p = ctx;
    float fill[OZ_TILE_STRIP];
    float *sums[2] = {y, up};
    const float *scales = row_scales(p, row0, rows, fill);
    for (int32_t i = 0; i < 2 && sums[i] != NULL; i++) {
        const uint8_t *at = panel_at(p, i, panel);
        const float *columns = p->weight.column_scales ? (const float *)(const void *)at : NULL;
        if (scales != NULL || columns != NULL || p->kernel->rows == OZ_QROWS_S8) {
            p->kernel->finish(rows, scales, columns, NULL, sums[i]);
        }
    }
    int64_t col0 = panel * OZ_Q_NR;
    p->kernel->store(&p->epilogue, row0, rows, col0, oz_ref_min(p->n - col0, OZ_Q_NR), y, up,
                     OZ_Q_NR);
}

static struct product product_of(const struct oz_linear_args *a, const struct oz_cpu_kernel *k)
{
    struct product p = {.kernel = k->q, .x = a->x, .n = a->w->w.shape[0]};
    if (!oz_qlayout_of(&a->w->w.weight, &p.weight)) {
        p.weight = (struct oz_qlayout){.rows = 1, .cols = 1}; /* rejected before it runs */
    }
    p.group = k->q->rows == OZ_QROWS_S8 ? 0 : oz_qtiles_group(&a->x->spec, &p.weight);
    p.group = oz_ref_max(p.group, 0);
    return p;
}

static struct oz_tiles tiles_of(const struct oz_linear_args *a, const struct product *p)
{
    bool s8 = p->kernel->rows == OZ_QROWS_S8;
    bool padded = p->weight.depth % p->kernel->tiles->k_step != 0;
    return (struct oz_tiles){.kernel = p->kernel->tiles,
                             .m = a->x->rows,
                             .n = p->n,
                             .k = p->weight.cols,
                             .group = p->group,
                             .row_scales = p->group > 0 && oz_qtiles_row_level(&a->x->spec) >= 0,
                             .decodes = !s8 || padded,
                             .weights = a->up != NULL ? 2 : 1,
                             .k_bytes = OZ_Q_NR * p->weight.code_bits / 8,
                             .ctx = p,
                             .bring = bring,
                             .panel = block,
                             .stored = stored,
                             .finish = finish};
}

/* ---- one row ---- */

#define ALIGN 64
#define ROW_PANELS 4 /* of a task, which stream side by side */
#define ROW_TASKS 2  /* of a thread, at least */

/* Parts of scratch, in floats: the row (and while it is brought its bf16 behind it), its scales; for each
 * thread room, sums of both weights. */
struct row_layout {
    int64_t depth, groups; /* whole steps; one group at least */
    int64_t scales, threads, thread, total;
    int64_t panels; /* of a task */
};

struct row_product {
    struct product p;
    struct row_layout l;
    float *scratch;
};

static int64_t in_lines(int64_t floats)
{
    return (floats + ALIGN / 4 - 1) / (ALIGN / 4) * (ALIGN / 4);
}

static struct row_layout lay_out_row(const struct product *p, int64_t threads)
{
    int64_t step = p->kernel->tiles->k_step;
    struct row_layout l = {.depth = (p->weight.depth + step - 1) / step * step, .groups = 1};
    if (p->group > 0) {
        l.groups = (l.depth + p->group - 1) / p->group;
    }
    l.scales = in_lines(l.depth + l.depth / 2);
    l.threads = l.scales + in_lines(l.groups);
    int64_t panels = (p->n + OZ_Q_NR - 1) / OZ_Q_NR;
    l.panels = oz_ref_max(1, oz_ref_min(ROW_PANELS, panels / (ROW_TASKS * threads)));
    l.thread = ((1 + l.panels) * l.groups + 2 * l.panels) * OZ_Q_NR;
    l.total = l.threads + threads * l.thread;
    return l;
}

static void run_row_panels(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct row_product *r = ctx;
    const struct product *p = &r->p;
    const int64_t most = r->l.panels;
    float *y = r->scratch + r->l.threads + thread * r->l.thread;
    float *up = y + most * OZ_Q_NR;
    float *room = up + most * OZ_Q_NR;
    const float *scales =
        p->group > 0 && oz_qtiles_row_level(&p->x->spec) >= 0 ? r->scratch + r->l.scales : NULL;
    int64_t last = oz_ref_min(end * most, (p->n + OZ_Q_NR - 1) / OZ_Q_NR);
    for (int64_t panel = begin * most; panel < last; panel += most) {
        int64_t n = oz_ref_min(most, last - panel);
        p->kernel->row(&p->weight, panel_at(p, 0, panel), n, r->scratch, scales, p->group, room, y);
        if (p->packed[1] != NULL) {
            p->kernel->row(&p->weight, panel_at(p, 1, panel), n, r->scratch, scales, p->group, room,
                           up);
        }
        for (int64_t i = 0; i < n * OZ_Q_NR; i += OZ_Q_NR) {
            finish(p, 0, 1, panel + i / OZ_Q_NR, y + i, p->packed[1] != NULL ? up + i : NULL);
        }
    }
}

static void run_row(const struct oz_op_ctx *ctx, const struct product *p)
{
    struct oz_pool *pool = ctx->dev->pool;
    struct row_product r = {
        .p = *p, .l = lay_out_row(p, oz_pool_threads(pool)), .scratch = ctx->scratch};
    uint16_t *bf16 = (uint16_t *)(void *)(r.scratch + r.l.depth);
    p->kernel->bring(p->x, 0, 0, p->x->cols, r.l.depth, p->group, bf16,
                     p->group > 0 && oz_qtiles_row_level(&p->x->spec) >= 0 ? r.scratch + r.l.scales
                                                                           : NULL,
                     NULL);
    for (int64_t i = 0; i < r.l.depth; i++) {
        r.scratch[i] = oz_bf16_to_f32(bf16[i]);
    }
    int64_t panels = (p->n + OZ_Q_NR - 1) / OZ_Q_NR;
    oz_pool_stream(pool, (panels + r.l.panels - 1) / r.l.panels, run_row_panels, &r);
}

static bool takes_row(const struct oz_linear_args *a, const struct product *p)
{
    return p->kernel->row != NULL && a->x->rows == 1;
}

size_t oz_qtiles_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                         const struct oz_cpu_kernel *k)
{
    struct product p = product_of(a, k);
    struct oz_tiles t = tiles_of(a, &p);
    if (takes_row(a, &p)) {
        return (size_t)lay_out_row(&p, oz_pool_threads(dev->pool)).total * sizeof(float);
    }
    return oz_tiles_scratch(dev, &t);
}

void oz_qtiles_run(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                   const struct oz_cpu_kernel *k)
{
    struct product p = product_of(a, k);
    p.packed[0] = a->w->w.packed;
    p.packed[1] = a->up != NULL ? a->up->w.packed : NULL;
    p.epilogue = oz_gemm_linear_epilogue(a);
    struct oz_tiles t = tiles_of(a, &p);
    if (takes_row(a, &p)) {
        run_row(ctx, &p);
    } else {
        oz_tiles_run(ctx, &t);
    }
}
