/*
 * The driver of packed products. A task is some rows by some neighbouring panels. It walks K in
 * blocks; in a block the rows are brought into a form that the kernel reads (where they are not),
 * each panel's piece is read once from far and then serves all rows from the first cache, and sums
 * wait in the second.
 */
#include "cpu/gemm.h"

#include <string.h>

#include "base/pool.h"

#define ALIGN 64
#define LINE_BYTES 64
#define TASK_COLS 256   /* of sums in a task, about */
#define GATHER_COLS 512 /* the same where rows are brought: each bringing serves more */
#define GATHER_ROWS 8   /* that are gathered before they are converted */
#define FEW_TILES 6     /* so many tiles of rows are few: panels stream past them as they are, */
#define FEW_DEPTH 1024  /* in blocks of K so long; */
#define ONE_DEPTH 4096  /* or so, past a single tile */
#define SMALL_PRODUCT \
    64e6 /* multiply-adds: a millisecond or less, where tasks cost more than waiting */
#define TASKS_PER_THREAD 4 /* so that the last ones do not keep the others waiting */

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

/* ---- the shape of tasks ---- */

/* Bytes of an element of the rows as the kernel reads them. */
static size_t run_element(const struct oz_gemm_kernel *g)
{
    return g->widen_a ? sizeof(float) : oz_gemm_element_bytes(g->a_dtype);
}

static bool is_few(const struct oz_gemm *p)
{
    return p->kernel->run_few != NULL && p->m <= FEW_TILES * p->kernel->mr;
}

/* Rows that are read where they lie: as the kernel reads them, and not so many that it pays to bring
 * them (rows of a power of two apart would fall into the same sets of the first cache, each in a page
 * of its own). */
static bool direct(const struct oz_gemm *p)
{
    return p->fetch == NULL && !p->kernel->widen_a && p->k % p->kernel->k_multiple == 0 &&
           (is_few(p) || p->kernel->run_few == NULL);
}

/* Scratch of a thread, and how the product is cut. Which rows share a task, which panels, and where
 * K is cut changes no sum. */
struct layout {
    size_t sums, up, block, rows, room, total; /* room: gathered rows in f32 */
    int64_t task_rows, group;                  /* rows and panels of a task */
    int64_t panels, row_tasks;
    int64_t k_block;
    int64_t lda; /* of rows in scratch */
    bool few;    /* so few rows that panels are read once, as they are stored */
};

static size_t reserve(size_t *total, size_t bytes)
{
    size_t at = *total;
    *total += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static int64_t tasks_of(const struct layout *l)
{
    return l->row_tasks * ceil_div(l->panels, l->group);
}

/* Rows and panels of a task: as large as caches like, but several tasks for each thread. First the
 * number of panels shrinks, then that of rows; the other way round where rows are gathered, as each
 * group of panels gathers them anew. */
static void cut(const struct oz_gemm *p, int64_t threads, struct layout *l)
{
    const struct oz_gemm_kernel *g = p->kernel;
    bool by_rows = p->fetch != NULL;
    int64_t most = max64(1, (direct(p) ? TASK_COLS : GATHER_COLS) / g->nr);
    if (is_few(p) && p->m <= min64(g->mr, OZ_GEMM_FEW) && g->few_panels[p->m] > 0) {
        most = g->few_panels[p->m]; /* they stream: small tasks end together */
    }
    bool small = (double)p->m * (double)p->n * (double)p->k < SMALL_PRODUCT;
    int64_t wanted = threads > 1 ? threads * (small ? 2 : TASKS_PER_THREAD) : 1;
    int64_t rows = g->row_block;
    l->panels = ceil_div(p->n, g->nr);
    for (;;) {
        l->row_tasks = max64(1, ceil_div(p->m, rows));
        l->group = by_rows ? most : l->panels * l->row_tasks / wanted;
        l->group = max64(1, min64(l->group, min64(most, l->panels)));
        if (tasks_of(l) >= (by_rows ? wanted : min64(wanted, 2 * threads)) || rows <= 4 * g->mr) {
            break;
        }
        rows = max64(4 * g->mr, rows / 2 / g->mr * g->mr);
    }
    while (tasks_of(l) < min64(wanted, 2 * threads) && l->group > 1) {
        l->group--;
    }
    l->group = ceil_div(l->panels, ceil_div(l->panels, l->group));
    l->task_rows = max64(g->mr, oz_gemm_pad(ceil_div(p->m, l->row_tasks), g->mr));
    l->row_tasks = ceil_div(p->m, l->task_rows);
}

static struct layout lay_out(const struct oz_gemm *p, int64_t threads)
{
    const struct oz_gemm_kernel *g = p->kernel;
    struct layout l = {.few = is_few(p)};
    int64_t depth = oz_gemm_pad(p->k, g->k_multiple);
    cut(p, threads, &l);
    l.k_block = min64(depth, !l.few ? g->k_block : p->m <= g->mr ? ONE_DEPTH : FEW_DEPTH);
    size_t sums = (size_t)(l.task_rows * l.group * g->nr) * sizeof(float);
    l.sums = reserve(&l.total, sums);
    l.up = reserve(&l.total, p->packed_up != NULL ? sums : 0);
    if (g->decode != NULL && p->stored == OZ_DTYPE_BF16 && !l.few) {
        l.block = reserve(&l.total, (size_t)(l.k_block * g->nr) * sizeof(float));
    }
    /* An odd number of lines or near it, or rows would fall into the same sets of the cache. */
    l.lda = oz_gemm_pad(l.k_block, 64) + 32;
    if (!direct(p)) {
        l.rows = reserve(&l.total, (size_t)(l.task_rows * l.lda) * run_element(g));
    } else if (g->row_multiple > 1) {
        l.rows = reserve(&l.total, (size_t)(g->mr * l.lda) * run_element(g));
    }
    if (p->fetch != NULL && run_element(g) != sizeof(float)) {
        l.room = reserve(&l.total, (size_t)(GATHER_ROWS * l.lda) * sizeof(float));
    }
    return l;
}

size_t oz_gemm_scratch(const struct oz_device *dev, const struct oz_gemm *p)
{
    size_t bytes;
    int64_t threads = oz_pool_threads(dev->pool);
    if (oz_gemm_tiled(p)) {
        return oz_gemm_tiles_scratch(dev, p);
    }
    return __builtin_mul_overflow(lay_out(p, threads).total, (size_t)threads, &bytes) ? SIZE_MAX
                                                                                      : bytes;
}

/* ---- rows ---- */

struct job {
    const struct oz_gemm *p;
    struct layout l;
    uint8_t *scratch;
};

/* The next block's rows, which are copied when it opens. Each call of the kernel asks for some lines of
 * them, piece after piece. */
struct ahead {
    const uint8_t *piece;
    size_t stride, bytes; /* of pieces */
    size_t at;            /* in the piece */
    int64_t pieces, each; /* pieces left; lines of a call */
};

/* One block of K in a task. Rows from `tail` on lie at tail_a. */
struct block {
    int64_t k0, count;
    const uint8_t *a, *tail_a;
    int64_t lda, tail, tail_lda;
    struct ahead *ahead;
};

/* Rows [row0, row0 + rows), n columns of them, gathered into dst. */
static void gather(const struct job *job, int64_t row0, int64_t rows, int64_t k0, int64_t n,
                   uint8_t *room, uint8_t *dst)
{
    const struct oz_gemm *p = job->p;
    const struct oz_gemm_kernel *g = p->kernel;
    bool in_place = run_element(g) == sizeof(float);
    size_t stride = (size_t)job->l.lda * run_element(g);
    for (int64_t r = 0; r < rows; r += GATHER_ROWS) {
        int64_t some = min64(rows - r, GATHER_ROWS);
        uint8_t *to = dst + (size_t)r * stride;
        float *values = (float *)(void *)(in_place ? to : room + job->l.room);
        p->fetch(p->fetch_ctx, row0 + r, some, k0, n, values, job->l.lda);
        for (int64_t i = 0; i < some && g->convert != NULL; i++) {
            g->convert(values + i * job->l.lda, n, to + (size_t)i * stride);
        }
    }
}

/* The same of rows that lie in memory. */
static void copy(const struct job *job, int64_t row0, int64_t rows, int64_t k0, int64_t n,
                 uint8_t *dst)
{
    const struct oz_gemm *p = job->p;
    const struct oz_gemm_kernel *g = p->kernel;
    size_t size = oz_gemm_element_bytes(g->a_dtype);
    size_t stride = (size_t)job->l.lda * run_element(g);
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *src = (const uint8_t *)p->a + (size_t)((row0 + r) * p->lda + k0) * size;
        uint8_t *to = dst + (size_t)r * stride;
        if (g->widen_a) {
            g->decode((const uint16_t *)(const void *)src, n, (float *)(void *)to);
        } else {
            memcpy(to, src, (size_t)n * size);
        }
    }
}

/* Rows [row0, row0 + rows) of a block in scratch, as the kernel reads them: zero behind K, and rows of
 * zeros up to the kernel's row_multiple. */
static void bring_rows(const struct job *job, int64_t row0, int64_t rows, const struct block *b,
                       uint8_t *room)
{
    const struct oz_gemm *p = job->p;
    size_t size = run_element(p->kernel);
    size_t stride = (size_t)job->l.lda * size;
    uint8_t *dst = room + job->l.rows;
    int64_t n = min64(p->k - b->k0, b->count);
    if (p->fetch != NULL) {
        gather(job, row0, rows, b->k0, n, room, dst);
    } else {
        copy(job, row0, rows, b->k0, n, dst);
    }
    for (int64_t r = 0; r < rows && n < b->count; r++) {
        memset(dst + (size_t)r * stride + (size_t)n * size, 0, (size_t)(b->count - n) * size);
    }
    for (int64_t r = rows; r < oz_gemm_pad(rows, p->kernel->row_multiple); r++) {
        memset(dst + (size_t)r * stride, 0, (size_t)b->count * size);
    }
}

static struct block open_block(const struct job *job, int64_t row0, int64_t rows, int64_t k0,
                               uint8_t *room)
{
    const struct oz_gemm *p = job->p;
    const struct oz_gemm_kernel *g = p->kernel;
    int64_t depth = oz_gemm_pad(p->k, g->k_multiple);
    struct block b = {.k0 = k0, .count = min64(depth - k0, job->l.k_block), .tail = rows};
    if (!direct(p)) {
        bring_rows(job, row0, rows, &b, room);
        b.a = room + job->l.rows;
        b.lda = job->l.lda;
        return b;
    }
    b.a = (const uint8_t *)p->a + (size_t)(row0 * p->lda + k0) * run_element(g);
    b.lda = p->lda;
    if (rows % g->row_multiple != 0) {
        b.tail = rows / g->mr * g->mr;
        bring_rows(job, row0 + b.tail, rows - b.tail, &b, room);
        b.tail_a = room + job->l.rows;
        b.tail_lda = job->l.lda;
    }
    return b;
}

/* ---- products ---- */

struct task {
    int64_t row0, rows;
    int64_t first, last; /* panels */
    uint8_t *room;
};

static const uint8_t *panel_at(const struct oz_gemm *p, const void *packed, int64_t panel,
                               int64_t k0)
{
    return (const uint8_t *)packed +
           (size_t)panel * oz_gemm_panel_bytes(p->kernel, p->stored, p->k) +
           (size_t)(k0 * p->kernel->nr) * oz_gemm_element_bytes(p->stored);
}

/* Row r of a task as the kernel reads it, and what the next one is apart. */
static const uint8_t *row_at(const struct oz_gemm_kernel *g, const struct block *b, int64_t r,
                             int64_t *lda)
{
    bool tail = r >= b->tail;
    *lda = tail ? b->tail_lda : b->lda;
    return (tail ? b->tail_a : b->a) + (size_t)((tail ? r - b->tail : r) * *lda) * run_element(g);
}

/* What the next block will copy, and how much of it each of a block's calls asks for. */
static struct ahead look_ahead(const struct job *job, const struct task *t, int64_t k0)
{
    const struct oz_gemm *p = job->p;
    size_t size = oz_gemm_element_bytes(p->kernel->a_dtype);
    int64_t count = min64(p->k - k0, job->l.k_block);
    struct ahead ahead = {.pieces = 0};
    if (direct(p) || p->fetch != NULL || job->l.few || count <= 0) {
        return ahead;
    }
    int64_t calls = ceil_div(t->rows, p->kernel->mr) * (t->last - t->first);
    ahead.piece = (const uint8_t *)p->a + (size_t)(t->row0 * p->lda + k0) * size;
    ahead.stride = (size_t)p->lda * size;
    ahead.bytes = (size_t)count * size;
    ahead.pieces = t->rows;
    ahead.each = ceil_div(t->rows * ceil_div((int64_t)ahead.bytes, LINE_BYTES), calls);
    return ahead;
}

static void ask_ahead(struct ahead *ahead)
{
    for (int64_t i = 0; i < ahead->each && ahead->pieces > 0; i++) {
        __builtin_prefetch(ahead->piece + ahead->at, 0, 2);
        ahead->at += LINE_BYTES;
        if (ahead->at >= ahead->bytes) {
            ahead->at = 0;
            ahead->piece += ahead->stride;
            ahead->pieces--;
        }
    }
}

/* Asks for bytes that will be read soon, into the second cache. */
static void prefetch(const uint8_t *from, const uint8_t *end)
{
    for (; from < end; from += LINE_BYTES) {
        __builtin_prefetch(from, 0, 2);
    }
}

/* Rows of the next call: a last few would not hide their latency, so two calls share what is left. */
static int64_t tile_rows(const struct oz_gemm_kernel *g, int64_t left)
{
    bool share = left > g->mr && left < 2 * g->mr && g->row_multiple == 1;
    return share ? (left + 1) / 2 : min64(left, g->mr);
}

typedef void (*run_fn)(int64_t rows, int64_t k, const void *a, int64_t lda, const void *b, float *c,
                       int64_t ldc, bool first);

/* sums (+)= rows x one panel's block, from the first cache. `next` is the block that comes after it,
 * or NULL. */
static void multiply(const struct job *job, const struct task *t, const struct block *b,
                     const uint8_t *panel, const uint8_t *next, float *sums)
{
    const struct oz_gemm *p = job->p;
    const struct oz_gemm_kernel *g = p->kernel;
    const void *from = panel;
    run_fn run = p->stored == OZ_DTYPE_BF16 && g->run_bf16 != NULL ? g->run_bf16 : g->run;
    if (p->stored == OZ_DTYPE_BF16 && g->decode != NULL && t->rows > g->mr && !job->l.few) {
        float *block = (float *)(void *)(t->room + job->l.block);
        g->decode((const uint16_t *)from, b->count * g->nr, block);
        from = block;
        run = g->run;
    }
    size_t bytes = (size_t)(b->count * g->nr) * oz_gemm_element_bytes(p->stored);
    size_t step = (bytes / (size_t)ceil_div(t->rows, g->mr) + LINE_BYTES) / LINE_BYTES * LINE_BYTES;
    size_t asked = 0;
    for (int64_t r = 0, n; r < t->rows; r += n) {
        int64_t lda;
        const uint8_t *a = row_at(g, b, r, &lda);
        n = tile_rows(g, t->rows - r);
        if (next != NULL && asked < bytes) {
            prefetch(next + asked, next + (asked + step < bytes ? asked + step : bytes));
            asked += step;
        }
        ask_ahead(b->ahead);
        run(n, b->count, a, lda, from, sums + r * g->nr, g->nr, b->k0 == 0);
    }
}

/* The same for few rows and `panels` panels, as they stream from memory. The caller has seen to it that
 * the kernel takes so many panels with these rows. */
static void multiply_few(const struct job *job, const struct task *t, const struct block *b,
                         const uint8_t *panel, float *sums)
{
    const struct oz_gemm *p = job->p;
    const struct oz_gemm_kernel *g = p->kernel;
    int64_t b_step = (int64_t)oz_gemm_panel_bytes(g, p->stored, p->k);
    for (int64_t r = 0, n; r < t->rows; r += n) {
        int64_t lda;
        const uint8_t *a = row_at(g, b, r, &lda);
        n = tile_rows(g, t->rows - r);
        g->run_few(n, b->count, a, lda, panel, b_step, sums + r * g->nr, g->nr,
                   job->l.task_rows * g->nr, b->k0 == 0, p->stored);
    }
}

/* Panels that the kernel takes at once with these rows, in all their tiles; 0: it has no such form. */
static int64_t panels_at_once(const struct oz_gemm_kernel *g, int64_t rows)
{
    int64_t panels = 0;
    for (int64_t r = 0, n; r < rows; r += n) {
        n = tile_rows(g, rows - r);
        int64_t takes = n <= OZ_GEMM_FEW ? g->few_panels[n] : 0;
        if (takes == 0 || (r > 0 && takes != panels)) {
            return 0;
        }
        panels = takes;
    }
    return panels;
}

/* All panels of a task for one block of K. */
static void multiply_panels(const struct job *job, const struct task *t, const struct block *b,
                            const void *packed, float *sums)
{
    const struct oz_gemm *p = job->p;
    int64_t c_step = job->l.task_rows * p->kernel->nr;
    int64_t few = job->l.few ? panels_at_once(p->kernel, t->rows) : 0;
    int64_t panel = t->first;
    for (; few > 0 && panel + few <= t->last; panel += few) {
        multiply_few(job, t, b, panel_at(p, packed, panel, b->k0),
                     sums + (panel - t->first) * c_step);
    }
    for (; panel < t->last; panel++) {
        const uint8_t *next =
            panel + 1 < t->last && !job->l.few ? panel_at(p, packed, panel + 1, b->k0) : NULL;
        multiply(job, t, b, panel_at(p, packed, panel, b->k0), next,
                 sums + (panel - t->first) * c_step);
    }
}

/* Sums of integers to values. */
static void scale_sums(const struct oz_gemm *p, int64_t row0, int64_t rows, int64_t col0,
                       int64_t cols, const float *col_scales, float *sums)
{
    int64_t nr = p->kernel->nr;
    for (int64_t r = 0; r < rows; r++) {
        float factor = p->row_scales[row0 + r];
        for (int64_t c = 0; c < cols; c++) {
            sums[r * nr + c] = factor * (col_scales[col0 + c] * sums[r * nr + c]);
        }
    }
}

/* The epilogue of some rows of a task, panel after panel: a few rows at a time, so that what is written
 * to each lies together. */
static void finish(const struct job *job, const struct task *t, int64_t row, int64_t rows,
                   float *sums, float *up)
{
    const struct oz_gemm *p = job->p;
    const struct oz_gemm_kernel *g = p->kernel;
    int64_t row0 = t->row0 + row;
    for (int64_t panel = t->first; panel < t->last; panel++) {
        int64_t at = ((panel - t->first) * job->l.task_rows + row) * g->nr;
        int64_t cols = min64(p->n - panel * g->nr, g->nr);
        if (p->row_scales != NULL) {
            scale_sums(p, row0, rows, panel * g->nr, cols, p->col_scales, sums + at);
        }
        if (p->row_scales != NULL && up != NULL) {
            scale_sums(p, row0, rows, panel * g->nr, cols, p->up_col_scales, up + at);
        }
        g->store(p->epilogue, row0, rows, panel * g->nr, cols, sums + at,
                 up != NULL ? up + at : NULL, g->nr);
    }
}

static void run_task(const struct job *job, const struct task *t)
{
    const struct oz_gemm *p = job->p;
    const struct oz_gemm_kernel *g = p->kernel;
    float *sums = (float *)(void *)(t->room + job->l.sums);
    float *up = p->packed_up != NULL ? (float *)(void *)(t->room + job->l.up) : NULL;
    int64_t depth = oz_gemm_pad(p->k, g->k_multiple);
    if (g->begin != NULL) {
        g->begin();
    }
    for (int64_t k0 = 0; k0 < depth; k0 += job->l.k_block) {
        struct block b = open_block(job, t->row0, t->rows, k0, t->room);
        struct ahead ahead = look_ahead(job, t, k0 + job->l.k_block);
        b.ahead = &ahead;
        multiply_panels(job, t, &b, p->packed, sums);
        if (up != NULL) {
            multiply_panels(job, t, &b, p->packed_up, up);
        }
    }
    if (g->end != NULL) {
        g->end();
    }
    for (int64_t row = 0; row < t->rows; row += g->mr) {
        finish(job, t, row, min64(t->rows - row, g->mr), sums, up);
    }
}

static void run_tasks(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct layout *l = &job->l;
    for (int64_t i = begin; i < end; i++) { /* neighbours in time share their panels */
        struct task t = {.row0 = i % l->row_tasks * l->task_rows,
                         .first = i / l->row_tasks * l->group,
                         .room = job->scratch + (size_t)thread * l->total};
        t.rows = min64(job->p->m - t.row0, l->task_rows);
        t.last = min64(t.first + l->group, l->panels);
        run_task(job, &t);
    }
}

void oz_gemm_run(const struct oz_op_ctx *ctx, const struct oz_gemm *p)
{
    if (oz_gemm_tiled(p)) {
        oz_gemm_tiles_run(ctx, p);
        return;
    }
    struct job job = {
        .p = p, .l = lay_out(p, oz_pool_threads(ctx->dev->pool)), .scratch = ctx->scratch};
    if (p->m > 0) {
        oz_pool_for(ctx->dev->pool, job.l.row_tasks * ceil_div(job.l.panels, job.l.group), 1,
                    run_tasks, &job);
    }
}
