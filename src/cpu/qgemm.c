/*
 * The driver of products of quantized weights. A task is some rows by some neighbouring panels. It
 * walks K in blocks: the rows' codes are brought into the form that the kernel multiplies, each panel's
 * codes are decoded once into the first cache and serve all rows; or, where the rows are few, stream
 * past them as they are stored.
 */
#include "cpu/qgemm.h"

#include <string.h>

#include "base/error.h"
#include "base/pool.h"
#include "cpu/int8.h"
#include "cpu/kern/ref/ref.h"
#include "cpu/qgemm_tiles.h"

#define ALIGN 64
#define LINE_BYTES 64
#define TASK_PANELS 16
#define FEW_PANELS 2
#define FEW_DEPTH 4096 /* of K in a block that streams */
#define FEW_GROUPS 256
#define FEW_SCALES \
    16 /* groups whose scales are converted together while codes stream, of all panels */
#define FEW_HEAD 1024  /* bytes of the next panels' codes that are asked for with their scales */
#define FEW_AHEAD 8192 /* what kernels of few rows ask for ahead themselves (Q_AHEAD) */
#define TASKS_PER_THREAD 4
#define ROWS_AHEAD 4
#define FEW_TASKS_PER_THREAD 2

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- what can be multiplied ---- */

/* Columns of a row that share a scale; 0: all. */
static int64_t rows_group(const struct oz_act_spec *x)
{
    return x->scale_count > 0 ? x->scale[0].group_cols : 0;
}

static int64_t common_group(const struct oz_act_spec *x, const struct oz_qlayout *l)
{
    return l->group > 0 ? l->group : rows_group(x);
}

static const char *decline_format(const struct oz_qgemm_kernel *k, const struct oz_act_spec *x,
                                  const struct oz_qlayout *l)
{
    bool s8 = l->code == OZ_QCODE_S8;
    switch (k->rows) {
    case OZ_QROWS_F32:
        return x->dtype == OZ_DTYPE_I8 && s8 ? "it would sum products of s8 in f32" : NULL;
    case OZ_QROWS_S16:
    case OZ_QROWS_U8:
        return s8 && x->dtype == OZ_DTYPE_I8 && x->static_scale == NULL && x->scale_count == 1
                   ? NULL
                   : "it multiplies s8 rows by s8 weights";
    case OZ_QROWS_DOUBLE:
        return l->code == OZ_QCODE_E2M1 && x->dtype == OZ_DTYPE_F4 && x->static_scale == NULL
                   ? NULL
                   : "it multiplies e2m1 rows by e2m1 weights";
    case OZ_QROWS_S8: /* over tiles */
    case OZ_QROWS_FOLDED:
    case OZ_QROWS_BF16: break;
    }
    return (x->dtype == OZ_DTYPE_BF16 && x->scale_count == 0) ||
                   (x->dtype == OZ_DTYPE_F8_E4M3 && x->scale_count <= 1)
               ? NULL
               : "it takes rows of bf16 and e4m3";
}

const char *oz_qgemm_decline(const struct oz_qgemm_kernel *k, const struct oz_act_spec *x,
                             const struct oz_qlayout *l)
{
    if (k->tiles != NULL) {
        return oz_qtiles_decline(k, x, l);
    }
    const char *reason = decline_format(k, x, l);
    if (reason != NULL) {
        return reason;
    }
    if (oz_qcode_has_book(l->code) && !k->books) {
        return "it decodes no codes by tables";
    }
    if (l->code == OZ_QCODE_U4 && k->rows != OZ_QROWS_F32) {
        return "it takes no zero points";
    }
    if (x->rotate_cols != 0 || x->low_rank_a != NULL || oz_ref_act_problem(x) != NULL) {
        return "its rows have scales or transforms that it does not know";
    }
    if (k->rows == OZ_QROWS_F32) {
        return NULL;
    }
    int64_t group = common_group(x, l);
    if (group > 0 && k->group_mr == 0) {
        return "it takes no groups of scales";
    }
    if (k->rows == OZ_QROWS_U8 || k->rows == OZ_QROWS_S16) {
        return l->cols < OZ_INT8_MOST_DEPTH ? NULL : "sums would leave 32 bits";
    }
    if (rows_group(x) != 0 && rows_group(x) != group) {
        return "rows and weight have groups of different lengths";
    }
    return group > 0 && (l->depth % group != 0 || k->k_block % group != 0)
               ? "the groups do not divide its blocks"
               : NULL;
}

/* ---- the shape of tasks ---- */

struct layout {
    size_t sums, up, block, rows, a_scales, offsets, w_scales, finish, total; /* of a thread */
    size_t shared; /* in front of the threads' parts: few rows, brought once for all tasks */
    int64_t task_rows, group_panels, panels, row_tasks;
    int64_t k_block, lda, scale_ld;
    int64_t group; /* of K that shares scales; 0: none */
    bool few;
};

struct product {
    const struct oz_qgemm_kernel *kernel;
    struct oz_qlayout weight, up; /* alike, but for their tables */
    const uint8_t *packed, *packed_up;
    bool has_up;
    const struct oz_act *x;
    int64_t m, n;
    struct oz_gemm_epilogue epilogue;
    struct layout l;
    uint8_t *scratch;
};

static size_t reserve(size_t *total, int64_t bytes)
{
    size_t at = *total;
    *total += (size_t)(bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static int64_t row_bytes(const struct oz_qgemm_kernel *k)
{
    return k->rows == OZ_QROWS_F32                               ? 4
           : k->rows == OZ_QROWS_BF16 || k->rows == OZ_QROWS_S16 ? 2
                                                                 : 1;
}

/* Are sums scaled group by group, or only at the end? */
static bool sums_groups(const struct oz_qgemm_kernel *k)
{
    return k->rows == OZ_QROWS_BF16 || k->rows == OZ_QROWS_DOUBLE;
}

/* Rows and panels of a task. As cpu/gemm.c: which rows share one changes no sum. */
static void cut(struct product *p, int64_t threads)
{
    struct layout *l = &p->l;
    const struct oz_qgemm_kernel *k = p->kernel;
    int64_t unit = l->group > 0 ? k->group_mr : k->mr;
    bool beside = l->few && k->few_panels > 0;
    int64_t wanted = threads > 1 ? threads * (beside ? FEW_TASKS_PER_THREAD : TASKS_PER_THREAD) : 1;
    int64_t rows = k->row_block;
    int64_t most = beside ? k->few_panels : l->few ? FEW_PANELS : TASK_PANELS; /* of a task */
    l->panels = ceil_div(p->n, OZ_Q_NR);
    for (;;) {
        l->row_tasks = max64(1, ceil_div(p->m, rows));
        l->group_panels = max64(1, min64(most, l->panels * l->row_tasks / wanted));
        if (l->row_tasks * ceil_div(l->panels, l->group_panels) >= min64(wanted, 2 * threads) ||
            rows <= 4 * unit) {
            break;
        }
        rows = max64(4 * unit, rows / 2 / unit * unit);
    }
    if (!beside) {
        l->group_panels = ceil_div(l->panels, ceil_div(l->panels, l->group_panels));
    }
    l->task_rows = max64(unit, oz_gemm_pad(ceil_div(p->m, l->row_tasks), unit));
    l->row_tasks = max64(1, ceil_div(p->m, l->task_rows));
}

static void lay_out(struct product *p, int64_t threads)
{
    struct layout *l = &p->l;
    const struct oz_qgemm_kernel *k = p->kernel;
    *l = (struct layout){.group = common_group(&p->x->spec, &p->weight)};
    if (!sums_groups(k)) {
        l->group = 0;
    }
    l->few = p->m <= k->few;
    cut(p, threads);
    l->k_block = k->k_block;
    if (l->few) { /* in blocks as long as their scales allow */
        int64_t most = l->group > 0 ? min64(FEW_DEPTH, FEW_GROUPS * l->group) : FEW_DEPTH;
        l->k_block = max64(k->k_block, most / k->k_block * k->k_block);
    }
    l->k_block = min64(l->k_block, p->weight.depth);
    l->lda = oz_gemm_pad(l->k_block, 64) + (row_bytes(k) == 1 ? 64 : 32);
    l->scale_ld = l->group > 0 ? l->k_block / l->group : 0;
    int64_t sums = l->task_rows * l->group_panels * OZ_Q_NR * (int64_t)sizeof(float);
    l->sums = reserve(&l->total, sums);
    l->up = reserve(&l->total, p->has_up ? sums : 0);
    l->block = reserve(&l->total, l->few || k->decode == NULL ? 0 : l->k_block / 4 * k->step_bytes);
    size_t *room = l->few ? &l->shared : &l->total;
    int64_t blocks = l->few ? ceil_div(p->weight.depth, l->k_block) : 1;
    l->rows = reserve(room, blocks * l->task_rows * l->lda * row_bytes(k));
    l->a_scales = reserve(room, blocks * l->task_rows * l->scale_ld * (int64_t)sizeof(float));
    l->offsets = reserve(room, blocks * l->task_rows * l->scale_ld * (int64_t)sizeof(int32_t));
    int64_t groups = p->weight.group > 0 ? l->k_block / p->weight.group : 0;
    if (l->few && groups > 0) {
        groups = FEW_SCALES;
    }
    int64_t floats = oz_qcode_scale_floats(p->weight.code);
    l->w_scales = reserve(&l->total, groups * floats * (int64_t)sizeof(float));
    l->finish = reserve(&l->total, l->task_rows * (int64_t)sizeof(float));
}

/* ---- rows ---- */

struct task {
    int64_t row0, rows;
    int64_t first, last; /* panels */
    uint8_t *room;
};

static float *floats(const struct task *t, size_t at)
{
    return (float *)(void *)(t->room + at);
}

/* What multiplies whole rows; NULL: ones. */
static const float *row_scales(const struct product *p, const struct task *t)
{
    const struct oz_act_spec *x = &p->x->spec;
    if (p->kernel->rows == OZ_QROWS_F32) {
        return NULL;
    }
    float *dst = floats(t, p->l.finish);
    int level = x->scale_count == 2 && x->scale[1].group_cols == 0   ? 1
                : x->scale_count == 1 && x->scale[0].group_cols == 0 ? 0
                                                                     : -1;
    if (level < 0 && x->static_scale == NULL) {
        return NULL;
    }
    for (int64_t r = 0; r < t->rows; r++) { /* one a row: both layouts agree */
        dst[r] = level >= 0 ? ((const float *)p->x->scales[level])[t->row0 + r] : *x->static_scale;
    }
    return dst;
}

/* Where a task has its rows of a block of K: few of them for all tasks, blocks one after the other. */
struct place {
    int64_t k; /* of the block, padded */
    uint8_t *rows;
    float *scales;    /* NULL: none */
    int32_t *offsets; /* NULL: none */
};

static struct place place_of(const struct product *p, const struct task *t, int64_t k0)
{
    const struct layout *l = &p->l;
    uint8_t *room = l->few ? p->scratch : t->room;
    int64_t before = l->few ? k0 / l->k_block * l->task_rows : 0; /* rows of earlier blocks */
    bool scaled = l->group > 0 && rows_group(&p->x->spec) > 0;
    float *scales = (float *)(void *)(room + l->a_scales);
    int32_t *offsets = (int32_t *)(void *)(room + l->offsets);
    return (struct place){
        .k = min64(p->weight.depth - k0, l->k_block),
        .rows = room + l->rows + before * l->lda * row_bytes(p->kernel),
        .scales = scaled ? scales + before * l->scale_ld : NULL,
        .offsets = p->kernel->rows == OZ_QROWS_DOUBLE ? offsets + before * l->scale_ld : NULL};
}

static void ask(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE_BYTES) {
        __builtin_prefetch(at + i, 0, 2);
    }
}

/* Columns [k0, k0 + n) of a row that is soon brought: rows lie too far apart for a core to see it coming. */
static void ask_row(const struct oz_act *x, int64_t row, int64_t k0, int64_t n)
{
    int64_t bits = oz_dtype_bits(x->spec.dtype);
    ask((const uint8_t *)x->data + (row * x->stride + k0) * bits / 8, (size_t)(n * bits / 8));
}

static void bring_rows(const struct product *p, const struct task *t, int64_t k0)
{
    const struct layout *l = &p->l;
    struct place at = place_of(p, t, k0);
    int64_t n = max64(0, min64(p->weight.cols - k0, at.k));
    for (int64_t r = 0; r < t->rows; r++) {
        if (r + ROWS_AHEAD < t->rows) {
            ask_row(p->x, t->row0 + r + ROWS_AHEAD, k0, n);
        }
        p->kernel->bring(p->x, t->row0 + r, k0, n, at.k, l->group,
                         at.rows + r * l->lda * row_bytes(p->kernel),
                         at.scales != NULL ? at.scales + r * l->scale_ld : NULL,
                         at.offsets != NULL ? at.offsets + r * l->scale_ld : NULL);
    }
}

/* A block whose rows are there. */
static struct oz_qblock open_block(const struct product *p, const struct task *t, int64_t k0)
{
    const struct layout *l = &p->l;
    struct place at = place_of(p, t, k0);
    return (struct oz_qblock){.k = at.k,
                              .group = l->group,
                              .a = at.rows,
                              .lda = l->lda,
                              .a_scales = at.scales,
                              .a_offsets = at.offsets,
                              .scale_ld = l->scale_ld,
                              .first = k0 == 0};
}

/* ---- products ---- */

static const uint8_t *panel_at(const struct product *p, const uint8_t *packed, int64_t panel)
{
    return packed + (size_t)panel * p->weight.panel_bytes;
}

static const uint8_t *codes_at(const struct product *p, const uint8_t *panel, int64_t k0)
{
    return panel + p->weight.codes + (size_t)(k0 * OZ_Q_NR * p->weight.code_bits / 8);
}

/* The second weight's table may be another. */
static const struct oz_qlayout *layout_of(const struct product *p, const uint8_t *packed)
{
    return packed == p->packed ? &p->weight : &p->up;
}

static void ask_scales(const struct oz_qlayout *weight, const uint8_t *panel, int64_t first,
                       int64_t count)
{
    int64_t wide = weight->scale == OZ_DTYPE_F32 ? (int64_t)sizeof(float) : 1;
    int64_t bytes = (weight->shared_scale ? 1 : OZ_Q_NR) * wide; /* of a group */
    ask(panel + weight->scales + first * bytes, (size_t)(count * bytes));
}

/* Scales of a panel's groups, second level and all, in f32 to `to`; beside other panels, those behind them are
 * asked for. */
static void few_scales(const struct product *p, const struct oz_qblock *q,
                       const struct oz_qlayout *weight, const uint8_t *panel, int64_t first,
                       float *to)
{
    int64_t count = q->k / weight->group;
    if (q->panels > 1) {
        ask_scales(weight, panel, first + 2 * count, count);
    }
    p->kernel->scales(weight, panel, first, count, to);
}

/* Few rows by the blocks of `panels` panels (1, or as many as the kernel takes at once), as they stream:
 * between their codes some scales at a time, so that what was asked for ahead arrives meanwhile and they stay
 * in the first cache. */
static void multiply_few(const struct product *p, const struct task *t,
                         const struct oz_qlayout *weight, const struct oz_qblock *block, int64_t k0,
                         const uint8_t *panel, int64_t panels, float *sums)
{
    const struct oz_qgemm_kernel *k = p->kernel;
    const uint8_t *codes = codes_at(p, panel, k0);
    int64_t some = weight->group > 0 ? FEW_SCALES / panels * weight->group : block->k;
    struct oz_qblock q = *block;
    q.values = weight->values;
    q.w_group = weight->group;
    q.c = sums;
    q.panels = panels;
    q.panel_bytes = (int64_t)weight->panel_bytes;
    q.w_ld = FEW_SCALES / panels * oz_qcode_scale_floats(weight->code);
    q.c_ld = p->l.task_rows * OZ_Q_NR;
    for (int64_t at = 0; at < block->k; at += some) {
        int64_t groups = q.group > 0 ? at / q.group : 0; /* of rows, before */
        q.k = min64(some, block->k - at);
        q.first = block->first && at == 0;
        q.a = (const uint8_t *)block->a + at * row_bytes(k);
        q.a_scales = block->a_scales != NULL ? block->a_scales + groups : NULL;
        q.a_offsets = block->a_offsets != NULL ? block->a_offsets + groups : NULL;
        if (weight->group > 0) {
            float *to = floats(t, p->l.w_scales);
            q.w_scales = to;
            for (int64_t i = 0; i < panels; i++) {
                few_scales(p, &q, weight, panel + i * q.panel_bytes, (k0 + at) / weight->group,
                           to + i * q.w_ld);
            }
        }
        k->run_few(t->rows, &q, weight->code, codes + at * OZ_Q_NR * weight->code_bits / 8);
    }
}

/* What is read first of the panels behind. After a single one: scales, then codes; what its stream of codes runs
 * into, it brings in its pace. */
static void ask_next(const struct product *p, const struct oz_qlayout *weight,
                     const uint8_t *packed, int64_t panel, int64_t panels, int64_t k0)
{
    size_t head = weight->codes + FEW_HEAD;
    if (panels == 1 && panel < p->l.panels && head > FEW_AHEAD) {
        ask(panel_at(p, packed, panel), head);
    }
    for (int64_t i = panel; panels > 1 && i < min64(panel + panels, p->l.panels); i++) {
        const uint8_t *at = panel_at(p, packed, i);
        ask(at, LINE_BYTES);
        if (weight->group > 0) {
            ask_scales(weight, at, k0 / weight->group, FEW_SCALES);
        }
        ask(codes_at(p, at, k0), FEW_HEAD);
    }
}

/* Few rows by all panels of a task. */
static void multiply_streams(const struct product *p, const struct task *t,
                             const struct oz_qblock *b, int64_t k0, const uint8_t *packed,
                             float *sums)
{
    const struct oz_qlayout *weight = layout_of(p, packed);
    int64_t most = p->kernel->few_panels;
    int64_t n;
    for (int64_t panel = t->first; panel < t->last; panel += n) {
        n = most > 0 && panel + most <= t->last ? most : 1;
        ask_next(p, weight, packed, panel + n, n, k0);
        multiply_few(p, t, weight, b, k0, panel_at(p, packed, panel), n,
                     sums + (panel - t->first) * p->l.task_rows * OZ_Q_NR);
    }
}

/* All rows of a task by one panel's block. `next` is what comes after it, of the same size, or NULL. */
static void multiply(const struct product *p, const struct task *t, const struct oz_qlayout *weight,
                     const struct oz_qblock *block, int64_t k0, const uint8_t *panel,
                     const uint8_t *next, float *sums)
{
    const struct oz_qgemm_kernel *k = p->kernel;
    const struct layout *l = &p->l;
    const uint8_t *codes = codes_at(p, panel, k0);
    const void *b = codes;
    struct oz_qblock q = *block;
    q.values = weight->values;
    q.w_group = weight->group;
    if (weight->group > 0) {
        q.w_scales = floats(t, l->w_scales);
        k->scales(weight, panel, k0 / weight->group, q.k / weight->group, floats(t, l->w_scales));
    }
    int64_t most = q.group > 0 ? k->group_mr : k->mr;
    if (k->decode != NULL) {
        k->decode(weight, q.w_scales, codes, q.k, t->room + l->block);
        b = t->room + l->block;
    }
    int64_t bytes = q.k * OZ_Q_NR * weight->code_bits / 8;
    int64_t step = oz_gemm_pad(bytes / ceil_div(t->rows, most), LINE_BYTES);
    int64_t asked = 0;
    for (int64_t r = 0; r < t->rows; r += most) {
        for (int64_t end = min64(bytes, asked + step); next != NULL && asked < end;
             asked += LINE_BYTES) {
            __builtin_prefetch(next + asked, 0, 2);
        }
        q.a = (const uint8_t *)block->a + r * l->lda * row_bytes(k);
        q.a_scales = block->a_scales != NULL ? block->a_scales + r * l->scale_ld : NULL;
        q.a_offsets = block->a_offsets != NULL ? block->a_offsets + r * l->scale_ld : NULL;
        q.c = sums + r * OZ_Q_NR;
        k->run(min64(most, t->rows - r), &q, b);
    }
}

static void multiply_panels(const struct product *p, const struct task *t,
                            const struct oz_qblock *b, int64_t k0, const uint8_t *packed,
                            float *sums)
{
    if (p->l.few) {
        multiply_streams(p, t, b, k0, packed, sums);
        return;
    }
    const struct oz_qlayout *weight = layout_of(p, packed);
    for (int64_t panel = t->first; panel < t->last; panel++) {
        const uint8_t *at = panel_at(p, packed, panel);
        const uint8_t *next = panel + 1 < t->last ? panel_at(p, packed, panel + 1) : NULL;
        float *c = sums + (panel - t->first) * p->l.task_rows * OZ_Q_NR;
        multiply(p, t, weight, b, k0, at, next != NULL ? codes_at(p, next, k0) : NULL, c);
    }
}

/* Sums of some rows of one panel to values. */
static void finish(const struct product *p, const uint8_t *packed, int64_t panel, int64_t row,
                   int64_t rows, const float *row_scales, float *sums)
{
    const uint8_t *at = panel_at(p, packed, panel);
    bool integers = p->kernel->rows == OZ_QROWS_U8 || p->kernel->rows == OZ_QROWS_S16;
    const float *columns = p->weight.column_scales ? (const float *)(const void *)at : NULL;
    if (row_scales == NULL && columns == NULL && !integers) {
        return;
    }
    p->kernel->finish(rows, row_scales != NULL ? row_scales + row : NULL, columns,
                      integers ? (const int32_t *)(const void *)(at + p->weight.sums) : NULL, sums);
}

static void run_task(const struct product *p, const struct task *t)
{
    const struct layout *l = &p->l;
    float *sums = floats(t, l->sums);
    float *up = p->has_up ? floats(t, l->up) : NULL;
    for (int64_t k0 = 0; k0 < p->weight.depth; k0 += l->k_block) {
        if (!l->few) {
            bring_rows(p, t, k0);
        }
        struct oz_qblock b = open_block(p, t, k0);
        multiply_panels(p, t, &b, k0, p->packed, sums);
        if (up != NULL) {
            multiply_panels(p, t, &b, k0, p->packed_up, up);
        }
    }
    const float *scales = row_scales(p, t);
    for (int64_t row = 0; row < t->rows; row += p->kernel->mr) {
        int64_t rows = min64(p->kernel->mr, t->rows - row);
        for (int64_t panel = t->first; panel < t->last; panel++) {
            int64_t at = ((panel - t->first) * l->task_rows + row) * OZ_Q_NR;
            finish(p, p->packed, panel, row, rows, scales, sums + at);
            if (up != NULL) {
                finish(p, p->packed_up, panel, row, rows, scales, up + at);
            }
            p->kernel->store(&p->epilogue, t->row0 + row, rows, panel * OZ_Q_NR,
                             min64(p->n - panel * OZ_Q_NR, OZ_Q_NR), sums + at,
                             up != NULL ? up + at : NULL, OZ_Q_NR);
        }
    }
}

static void run_tasks(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct product *p = ctx;
    const struct layout *l = &p->l;
    for (int64_t i = begin; i < end; i++) {
        struct task t = {.row0 = i % l->row_tasks * l->task_rows,
                         .first = i / l->row_tasks * l->group_panels,
                         .room = p->scratch + l->shared + (size_t)thread * l->total};
        t.rows = min64(p->m - t.row0, l->task_rows);
        t.last = min64(t.first + l->group_panels, l->panels);
        run_task(p, &t);
    }
}

/* ---- linear ---- */

static struct product product_of(const struct oz_device *dev, const struct oz_linear_args *a,
                                 const struct oz_cpu_kernel *k)
{
    struct product p = {.kernel = k->q,
                        .x = a->x,
                        .m = a->x->rows,
                        .n = a->w->w.shape[0],
                        .packed = a->w->w.packed,
                        .has_up = a->up != NULL};
    if (!oz_qlayout_of(&a->w->w.weight, &p.weight)) {
        p.weight =
            (struct oz_qlayout){.rows = 1, .cols = 1, .depth = 8}; /* rejected before it runs */
    }
    lay_out(&p, oz_pool_threads(dev->pool));
    return p;
}

size_t oz_qgemm_linear_scratch(const struct oz_device *dev, const struct oz_linear_args *a,
                               const struct oz_cpu_kernel *k)
{
    size_t bytes;
    if (k->q->tiles != NULL) {
        return oz_qtiles_scratch(dev, a, k);
    }
    struct product p = product_of(dev, a, k);
    return __builtin_mul_overflow(p.l.total, (size_t)oz_pool_threads(dev->pool), &bytes) ||
                   __builtin_add_overflow(bytes, p.l.shared, &bytes)
               ? SIZE_MAX
               : bytes;
}

static const char *reject_weight(const struct oz_linear *w, const struct oz_linear_args *a,
                                 const struct oz_cpu_kernel *k)
{
    struct oz_qlayout l;
    if (w->w.plan == NULL || !w->w.plan->panels || !oz_qlayout_of(&w->w.weight, &l)) {
        return "the weight is not packed for it";
    }
    return oz_qgemm_decline(k->q, &a->x->spec, &l);
}

const char *oz_qgemm_linear_reject(const struct oz_device *dev, const struct oz_linear_args *a,
                                   const struct oz_cpu_kernel *k)
{
    const char *reason = reject_weight(a->w, a, k);
    (void)dev;
    if (reason == NULL && a->up != NULL) {
        reason = reject_weight(a->up, a, k);
        struct oz_qlayout first;
        struct oz_qlayout second;
        if (reason == NULL && oz_qlayout_of(&a->w->w.weight, &first) &&
            oz_qlayout_of(&a->up->w.weight, &second) &&
            (first.code != second.code || first.scale != second.scale ||
             first.panel_bytes != second.panel_bytes)) {
            reason = "the second weight is not stored like the first";
        }
    }
    if (reason != NULL) {
        return reason;
    }
    if (a->residual != NULL && a->residual->spec.dtype != OZ_DTYPE_F32) {
        return "the residual is not f32";
    }
    return oz_gemm_out_reject(a->out);
}

enum oz_status oz_qgemm_linear(const struct oz_op_ctx *ctx, const struct oz_linear_args *a,
                               const struct oz_cpu_kernel *k)
{
    OZ_TRY(oz_ref_begin(ctx, oz_qgemm_linear_scratch(ctx->dev, a, k)));
    OZ_TRY(oz_ref_check_quantized("linear", a->x));
    OZ_TRY(oz_ref_check_smooth("linear", &a->x->spec, &a->w->w));
    OZ_TRY(oz_ref_check_smooth("linear", &a->x->spec, a->up != NULL ? &a->up->w : NULL));
    if (k->q->tiles != NULL) {
        oz_qtiles_run(ctx, a, k);
        return OZ_OK;
    }
    struct product p = product_of(ctx->dev, a, k);
    p.packed_up = a->up != NULL ? a->up->w.packed : NULL;
    p.up = p.weight;
    if (oz_qcode_has_book(p.weight.code)) {
        size_t book = p.weight.book;
        p.weight.values = (const struct oz_qbook *)(const void *)(p.packed + book);
        p.up.values =
            a->up != NULL ? (const struct oz_qbook *)(const void *)(p.packed_up + book) : NULL;
    }
    p.epilogue = oz_gemm_linear_epilogue(a);
    p.scratch = ctx->scratch;
    if (p.l.few) {
        const struct task all = {.rows = p.m};
        for (int64_t k0 = 0; k0 < p.weight.depth; k0 += p.l.k_block) {
            bring_rows(&p, &all, k0);
        }
    }
    int64_t tasks = p.m > 0 ? p.l.row_tasks * ceil_div(p.l.panels, p.l.group_panels) : 0;
    if (p.l.few) {
        oz_pool_stream(ctx->dev->pool, tasks, run_tasks, &p);
    } else {
        oz_pool_for(ctx->dev->pool, tasks, 1, run_tasks, &p);
    }
    return OZ_OK;
}
