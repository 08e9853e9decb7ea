/* The driver of products over tiles: cpu/tiles.h says how they are cut. */
#include "cpu/tiles.h"

#include <string.h>

#include "base/pool.h"
#include "cpu/kern/ref/ref.h"
#include "cpu/kernel.h"

#define ALIGN 64
#define LINE_BYTES 64
#define TASKS_PER_THREAD 4      /* so that the last ones do not keep the others waiting */
#define FEW_TASKS_PER_THREAD 16 /* of a single strip: what it takes is to read the weight */
#define LEAST_PANELS 4          /* of a task, before its rows are cut */
#define LEAST_ROWS 64           /* of a task */
#define ALONE_BYTES (32 << 10)  /* rows that are not worth waking threads to bring */
#define FINISH_ROWS 8           /* written together */

static int64_t ceil_div(int64_t count, int64_t each)
{
    return count / each + (count % each != 0);
}

static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

/* ---- the shape of tasks ---- */

struct layout {
    size_t rows, row_scales;                 /* for all threads */
    size_t sums, block, scales, stage, room; /* of a thread, from its own begin */
    size_t shared, total;                    /* shared bytes; bytes of a thread */
    int64_t chunk_rows;                      /* in tiles at a time */
    int64_t task_rows, group, panels;        /* rows and panels of a task; all panels */
    int64_t depth, k_block;                  /* of K, whole steps */
    int64_t row_tiles;                       /* of a strip: 1 where all rows fit into one */
    int64_t scale_ld;                        /* groups of a row */
    bool whole;                              /* panels outside, blocks of K inside */
};

static size_t reserve(size_t *total, int64_t bytes)
{
    size_t at = *total;
    *total += (size_t)round_up(bytes, ALIGN);
    return at;
}

/* Rows and panels of a task of a chunk: as large as caches like, but several for each thread. */
static void cut(const struct oz_tiles *p, int64_t threads, struct layout *l)
{
    const struct oz_tile_tuning *t = &p->kernel->tuning;
    int64_t each = p->m <= OZ_TILE_STRIP ? FEW_TASKS_PER_THREAD : TASKS_PER_THREAD;
    int64_t wanted = threads > 1 ? threads * each : 1;
    int64_t rows = t->row_block;
    int64_t group = oz_ref_max(1, oz_ref_min(t->col_block / OZ_TILE_STRIP / p->weights, l->panels));
    for (;;) {
        int64_t row_tasks = ceil_div(l->chunk_rows, rows);
        if (row_tasks * ceil_div(l->panels, group) >= wanted) {
            break;
        }
        if (group > LEAST_PANELS) {
            group = oz_ref_max(LEAST_PANELS, group / 2);
        } else if (rows / 2 >= LEAST_ROWS) {
            rows = round_up(rows / 2, OZ_TILE_STRIP);
        } else if (group > 1) {
            group--;
        } else {
            break;
        }
    }
    l->group = ceil_div(l->panels, ceil_div(l->panels, group));
    l->task_rows = round_up(ceil_div(l->chunk_rows, ceil_div(l->chunk_rows, rows)), OZ_TILE_STRIP);
}

static struct layout lay_out(const struct oz_tiles *p, int64_t threads)
{
    const struct oz_tile_kernel *k = p->kernel;
    const struct oz_tile_tuning *t = &k->tuning;
    struct layout l = {.panels = ceil_div(p->n, OZ_TILE_STRIP),
                       .depth = round_up(p->k, k->k_step),
                       .row_tiles = p->m <= OZ_TILE_SIDE ? 1 : 2};
    int64_t unit = p->group > 0 ? oz_ref_max(p->group, k->k_step) : k->k_step;
    int64_t row_bytes = l.depth * k->element;
    l.k_block = oz_ref_min(round_up((int64_t)t->steps * k->k_step, unit), l.depth);
    l.chunk_rows =
        oz_ref_max(t->row_block, t->pack_bytes / row_bytes / t->row_block * t->row_block);
    l.chunk_rows = oz_ref_min(l.chunk_rows, oz_ref_max(p->m, 1));
    l.scale_ld = p->group > 0 ? ceil_div(l.depth, p->group) : 0;
    cut(p, threads, &l);
    l.whole = l.task_rows * row_bytes <= t->whole_bytes || l.k_block >= l.depth;
    int64_t tile_rows = l.row_tiles == 1 ? OZ_TILE_SIDE : round_up(l.chunk_rows, OZ_TILE_STRIP);
    l.rows = reserve(&l.shared, tile_rows * row_bytes);
    l.row_scales =
        reserve(&l.shared, p->row_scales ? l.chunk_rows * l.scale_ld * (int64_t)sizeof(float) : 0);
    int64_t sums = l.task_rows * (l.whole ? t->panels : l.group) * OZ_TILE_STRIP;
    l.sums = reserve(&l.total, p->weights * sums * (int64_t)sizeof(float));
    l.block = reserve(&l.total, p->decodes ? t->panels * l.k_block / k->k_step * OZ_TILE_STEP : 0);
    int64_t groups = p->group > 0 ? ceil_div(l.k_block, p->group) : 0;
    l.scales = reserve(&l.total, t->panels * groups * OZ_TILE_STRIP * (int64_t)sizeof(float));
    l.stage = reserve(&l.total, OZ_TILE_SIDE * l.k_block * k->element);
    l.room = reserve(&l.total, (int64_t)p->room_bytes);
    return l;
}

bool oz_tiles_pay(const struct oz_tile_kernel *k, int64_t rows, int64_t cols, int64_t depth)
{
    return rows > 0 &&
           ((double)rows * (double)cols * (double)depth >= (double)k->tuning.least_work ||
            (double)cols * (double)depth >= (double)k->tuning.least_weights);
}

size_t oz_tiles_scratch(const struct oz_device *dev, const struct oz_tiles *p)
{
    size_t bytes;
    int64_t threads = oz_pool_threads(dev->pool);
    struct layout l = lay_out(p, threads);
    return __builtin_mul_overflow(l.total, (size_t)threads, &bytes) ||
                   __builtin_add_overflow(bytes, l.shared, &bytes)
               ? SIZE_MAX
               : bytes;
}

/* ---- rows into tiles ---- */

struct job {
    const struct oz_tiles *p;
    struct layout l;
    int64_t row0, rows; /* of the chunk */
    uint8_t *scratch;
};

static uint8_t *room_of(const struct job *job, int32_t thread)
{
    return job->scratch + job->l.shared + (size_t)thread * job->l.total;
}

/* Tiles of a chunk: [block of K][strip][step][tiles of a strip]. */
static uint8_t *tiles_at(const struct job *job, int64_t k0, int64_t strip)
{
    const struct layout *l = &job->l;
    int64_t k_step = job->p->kernel->k_step;
    int64_t strips = ceil_div(job->rows, OZ_TILE_STRIP);
    int64_t steps = oz_ref_min(l->k_block, l->depth - k0) / k_step;
    return job->scratch + l->rows +
           (size_t)((strips * (k0 / k_step) + strip * steps) * l->row_tiles) * OZ_TILE_BYTES;
}

static float *row_scales_at(const struct job *job, int64_t row)
{
    return (float *)(void *)(job->scratch + job->l.row_scales) + row * job->l.scale_ld;
}

/* Rows [16 tile, 16 tile + 16) of the chunk. */
static void bring_tile(const struct job *job, int64_t tile, uint8_t *room)
{
    const struct oz_tiles *p = job->p;
    const struct layout *l = &job->l;
    int64_t row0 = tile * OZ_TILE_SIDE;
    int64_t rows = oz_ref_max(0, oz_ref_min(job->rows - row0, OZ_TILE_SIDE));
    uint8_t *stage = room + l->stage;
    for (int64_t k0 = 0; k0 < l->depth; k0 += l->k_block) {
        int64_t count = oz_ref_min(l->k_block, l->depth - k0);
        int64_t stride = count * p->kernel->element;
        float *scales = p->row_scales ? row_scales_at(job, row0) + k0 / p->group : NULL;
        if (rows > 0) {
            p->bring(p->ctx, job->row0 + row0, rows, k0, count, stage, stride, scales, l->scale_ld,
                     room + l->room);
        }
        memset(stage + rows * stride, 0, (size_t)((OZ_TILE_SIDE - rows) * stride));
        uint8_t *to =
            tiles_at(job, k0, tile / l->row_tiles) + (size_t)(tile % l->row_tiles) * OZ_TILE_BYTES;
        for (int64_t s = 0; s < stride / LINE_BYTES; s++) {
            for (int64_t r = 0; r < OZ_TILE_SIDE; r++) {
                memcpy(to + r * LINE_BYTES, stage + r * stride + s * LINE_BYTES, LINE_BYTES);
            }
            to += l->row_tiles * OZ_TILE_BYTES;
        }
    }
}

static void bring_tiles(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    for (int64_t i = begin; i < end; i++) {
        bring_tile(job, i, room_of(job, thread));
    }
}

/* ---- products ---- */

struct task {
    int64_t row, rows;   /* of the chunk */
    int64_t first, last; /* panels */
    uint8_t *room;
};

/* A block of some panels of a weight, which all strips of a task pass; one after the other. */
struct item {
    int64_t panel, panels; /* first of them; how many */
    int64_t k0, count;
    int32_t weight;
};

static int64_t items_of(const struct job *job, const struct task *t)
{
    const struct layout *l = &job->l;
    return ceil_div(t->last - t->first, job->p->kernel->tuning.panels) *
           ceil_div(l->depth, l->k_block) * job->p->weights;
}

static struct item item_at(const struct job *job, const struct task *t, int64_t i)
{
    const struct layout *l = &job->l;
    int64_t panels = job->p->kernel->tuning.panels;
    int64_t places = ceil_div(t->last - t->first, panels);
    int64_t blocks = ceil_div(l->depth, l->k_block);
    int64_t weights = job->p->weights;
    int64_t place = l->whole ? i / (blocks * weights) : i / weights % places;
    int64_t block = l->whole ? i % blocks : i / (weights * places);
    struct item it = {.panel = t->first + place * panels,
                      .k0 = block * l->k_block,
                      .weight = (int32_t)(l->whole ? i / blocks % weights : i % weights)};
    it.panels = oz_ref_min(panels, t->last - it.panel);
    it.count = oz_ref_min(l->k_block, l->depth - it.k0);
    return it;
}

/* Sums of a panel of a task. Walked outside, panels take the place of those before them. */
static float *sums_at(const struct job *job, const struct task *t, int32_t weight, int64_t panel)
{
    const struct layout *l = &job->l;
    int64_t kept = l->whole ? job->p->kernel->tuning.panels : l->group;
    int64_t place = (panel - t->first) % kept;
    return (float *)(void *)(t->room + l->sums) +
           (weight * kept + place) * l->task_rows * OZ_TILE_STRIP;
}

/* What a call of an item asks for: the next item's stored blocks, its share of them. */
static struct oz_tile_ask share(const struct job *job, const struct item *next, int64_t steps,
                                int64_t call, int64_t calls)
{
    int64_t lines = next->count * job->p->k_bytes / LINE_BYTES; /* of a panel */
    int64_t each = ceil_div(lines * next->panels, calls * steps);
    int64_t at = call * steps * each;
    if (lines < 1 || at >= lines * next->panels) {
        return (struct oz_tile_ask){.from = NULL};
    }
    return (struct oz_tile_ask){
        job->p->stored(job->p->ctx, next->weight, next->panel + at / lines, next->k0) +
            at % lines * LINE_BYTES,
        each};
}

/* The same of the task's rows in the next block of K, over all items of this one. */
static struct oz_tile_ask share_rows(const struct job *job, const struct task *t,
                                     const struct item *it, int64_t call, int64_t calls)
{
    const struct layout *l = &job->l;
    int64_t k0 = it->k0 + l->k_block;
    if (l->whole || !job->p->kernel->tuning.ask_rows || k0 >= l->depth || it->weight != 0) {
        return (struct oz_tile_ask){.from = NULL};
    }
    int64_t steps = it->count / job->p->kernel->k_step;
    int64_t bytes = oz_ref_min(l->k_block, l->depth - k0) * t->rows * job->p->kernel->element;
    int64_t places = ceil_div(t->last - t->first, job->p->kernel->tuning.panels);
    int64_t place = (it->panel - t->first) / job->p->kernel->tuning.panels;
    int64_t each = ceil_div(bytes / LINE_BYTES, places * calls * steps);
    int64_t at = (place * calls + call) * steps * each * LINE_BYTES;
    if (at >= bytes) {
        return (struct oz_tile_ask){.from = NULL};
    }
    return (struct oz_tile_ask){tiles_at(job, k0, t->row / OZ_TILE_STRIP) + at, each};
}

/* All strips of a task by an item. `next` comes after it, or NULL. */
static void multiply(const struct job *job, const struct task *t, const struct item *it,
                     const struct item *next)
{
    const struct oz_tiles *p = job->p;
    const struct oz_tile_tuning *tuning = &p->kernel->tuning;
    const struct layout *l = &job->l;
    const uint8_t *blocks[OZ_TILE_PANELS];
    int64_t steps = it->count / p->kernel->k_step;
    int64_t groups = p->group > 0 ? ceil_div(l->k_block, p->group) : 0;
    float *scales = (float *)(void *)(t->room + l->scales);
    int64_t calls = ceil_div(t->rows, OZ_TILE_STRIP) * it->panels;
    /* With a single strip decoding takes longer than multiplying: it asks for what it reads itself. */
    bool streams = p->decodes && l->whole && t->rows <= OZ_TILE_STRIP;
    for (int64_t q = 0; q < it->panels; q++) {
        blocks[q] = p->panel(p->ctx, it->weight, it->panel + q, it->k0, it->count, streams,
                             t->room + l->block + q * l->k_block / p->kernel->k_step * OZ_TILE_STEP,
                             scales + q * groups * OZ_TILE_STRIP);
    }
    struct oz_tile_call c = {.steps = steps,
                             .a_step = l->row_tiles * OZ_TILE_BYTES,
                             .first = it->k0 == 0,
                             .scale_ld = l->scale_ld,
                             .group_steps = p->group / p->kernel->k_step};
    for (int64_t call = 0; call < calls; call++) {
        int64_t row = call / it->panels * OZ_TILE_STRIP;
        int64_t q = call % it->panels;
        float *sums = sums_at(job, t, it->weight, it->panel + q);
        c.rows = oz_ref_min(OZ_TILE_STRIP, t->rows - row);
        c.a = tiles_at(job, it->k0, (t->row + row) / OZ_TILE_STRIP);
        c.b = blocks[q];
        c.c = sums + row * OZ_TILE_STRIP;
        c.w_scales = scales + q * groups * OZ_TILE_STRIP;
        c.a_scales = p->row_scales ? row_scales_at(job, t->row + row) + it->k0 / p->group : NULL;
        c.far = (struct oz_tile_ask){.from = NULL};
        if (!streams && next != NULL) {
            c.far = share(job, next, steps, call, calls);
        }
        c.rows_far = share_rows(job, t, it, call, calls);
        c.c_next = NULL;
        if (tuning->ask_sums && !c.first && call + 1 < calls) {
            c.c_next = sums_at(job, t, it->weight, it->panel + (call + 1) % it->panels) +
                       (call + 1) / it->panels * OZ_TILE_SUMS;
        }
        p->kernel->run(&c);
    }
}

/* A few rows at a time, panel after panel: what is written to each lies together. */
static void finish(const struct job *job, const struct task *t, int64_t first, int64_t last)
{
    const struct oz_tiles *p = job->p;
    for (int64_t row = 0; row < t->rows; row += FINISH_ROWS) {
        for (int64_t panel = first; panel < last; panel++) {
            float *y = sums_at(job, t, 0, panel) + row * OZ_TILE_STRIP;
            float *up = p->weights > 1 ? sums_at(job, t, 1, panel) + row * OZ_TILE_STRIP : NULL;
            p->finish(p->ctx, job->row0 + t->row + row, oz_ref_min(FINISH_ROWS, t->rows - row),
                      panel, y, up);
        }
    }
}

static void run_task(const struct job *job, const struct task *t)
{
    int64_t items = items_of(job, t);
    int64_t each = ceil_div(job->l.depth, job->l.k_block) * job->p->weights; /* of a place */
    job->p->kernel->begin();
    for (int64_t i = 0; i < items; i++) {
        struct item it = item_at(job, t, i);
        struct item next = item_at(job, t, i + 1 < items ? i + 1 : i);
        multiply(job, t, &it, i + 1 < items ? &next : NULL);
        if (job->l.whole && (i + 1) % each == 0) {
            finish(job, t, it.panel, it.panel + it.panels);
        }
    }
    job->p->kernel->end();
    if (!job->l.whole) {
        finish(job, t, t->first, t->last);
    }
}

static void run_tasks(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct layout *l = &job->l;
    int64_t row_tasks = ceil_div(job->rows, l->task_rows);
    for (int64_t i = begin; i < end; i++) { /* neighbours in time share their panels */
        struct task t = {.row = i % row_tasks * l->task_rows,
                         .first = i / row_tasks * l->group,
                         .room = room_of(job, thread)};
        t.rows = oz_ref_min(job->rows - t.row, l->task_rows);
        t.last = oz_ref_min(t.first + l->group, l->panels);
        run_task(job, &t);
    }
}

void oz_tiles_run(const struct oz_op_ctx *ctx, const struct oz_tiles *p)
{
    struct oz_pool *pool = ctx->dev->pool;
    struct job job = {.p = p, .l = lay_out(p, oz_pool_threads(pool)), .scratch = ctx->scratch};
    const struct layout *l = &job.l;
    for (job.row0 = 0; job.row0 < p->m; job.row0 += l->chunk_rows) {
        job.rows = oz_ref_min(p->m - job.row0, l->chunk_rows);
        int64_t strips = ceil_div(job.rows, OZ_TILE_STRIP);
        bool alone = job.rows * l->depth * p->kernel->element <= ALONE_BYTES;
        oz_pool_for(alone ? NULL : pool, strips * l->row_tiles, 1, bring_tiles, &job);
        int64_t tasks = ceil_div(job.rows, l->task_rows) * ceil_div(l->panels, l->group);
        if (p->m <= OZ_TILE_STRIP) {
            oz_pool_stream(pool, tasks, run_tasks, &job);
        } else {
            oz_pool_for(pool, tasks, 1, run_tasks, &job);
        }
    }
}
