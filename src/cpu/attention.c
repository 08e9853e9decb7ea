#include "cpu/attention.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"

#define TILE OZ_ATTENTION_TILE
#define ALIGN 64
#define MAX_UNITS 64
#define PACKED_BYTES ((size_t)16 << 20) /* of a wave, unless one unit is larger */
#define BLOCK_BYTES INT64_C(196608) /* queries and sums of a block: what the second cache takes */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- shapes ---- */

static const struct oz_gemm_kernel *products(const struct oz_attention_kernel *k)
{
    return k->gemm != NULL ? k->gemm : k->linear->gemm;
}

static int64_t segment_rows(const struct oz_ragged *rows, int32_t s)
{
    return rows->offsets[s + 1] - rows->offsets[s];
}

/* Keys of a sequence; of pages, their bound when `bound`. */
static int64_t count_keys(const struct oz_attention_args *a, int32_t s, bool bound)
{
    if (a->paged != NULL) {
        return bound ? a->paged->max_length : a->paged->lengths[s];
    }
    int64_t keys = 0;
    for (int32_t i = 0; i < a->segment_count; i++) {
        keys += a->segments[i].k != NULL ? segment_rows(a->segments[i].rows, s) : 0;
    }
    return keys;
}

/* Sizes that follow from the kernel and head_dim, and the scratch: packed units, then the threads'
 * rooms. */
struct layout {
    const struct oz_gemm_kernel *g;
    int64_t element;         /* bytes */
    int64_t depth, features; /* head_dim padded, for q k^T and for the values */
    int64_t key_multiple;
    int64_t rows;                         /* of a block */
    size_t q, out, scores, stage, thread; /* a thread's room; stage also holds a panel, */
    size_t line, sums;                    /* these one row's weights and sums of a panel */
    size_t packed_bytes, rooms, total;    /* total SIZE_MAX: too much */
};

/* A unit's memory: flags of its tiles (1: all values are finite), keys, values. */
struct unit {
    int32_t sequence, kv_head;
    int64_t keys, padded, tiles;
    uint8_t *flags, *k, *v;
    int64_t first_tile, first_task; /* in the wave's phases */
};

static size_t unit_bytes(const struct layout *l, int64_t keys)
{
    int64_t tiles = (keys + TILE - 1) / TILE;
    size_t flags = (size_t)oz_gemm_pad(tiles, ALIGN);
    size_t line = (size_t)((l->depth + l->features) * l->element);
    size_t bytes;
    if (__builtin_mul_overflow((size_t)oz_gemm_pad(keys, TILE), line, &bytes) ||
        bytes > SIZE_MAX / 2) {
        return SIZE_MAX;
    }
    return bytes + flags;
}

static size_t reserve(size_t *total, int64_t bytes)
{
    size_t at = *total;
    *total += (size_t)oz_gemm_pad(bytes, ALIGN);
    return at;
}

/* Room for packed units: all of them if they are few, else a wave's. */
static size_t packed_room(const struct layout *l, const struct oz_attention_args *a)
{
    size_t all = 0;
    size_t largest = 0;
    for (int32_t s = 0; s < a->segments[0].rows->count; s++) {
        size_t bytes = unit_bytes(l, count_keys(a, s, true));
        size_t heads;
        largest = bytes > largest ? bytes : largest;
        if (__builtin_mul_overflow(bytes, (size_t)a->kv_heads, &heads) ||
            __builtin_add_overflow(all, heads, &all)) {
            all = SIZE_MAX;
        }
    }
    size_t wave = largest > PACKED_BYTES ? largest : PACKED_BYTES;
    return all < wave ? all : wave;
}

static struct layout lay_out(const struct oz_device *dev, const struct oz_attention_args *a,
                             const struct oz_attention_kernel *k)
{
    struct layout l = {.g = products(k)};
    l.element = oz_dtype_bits(l.g->a_dtype) / 8;
    l.depth = oz_gemm_pad(a->head_dim, l.g->k_multiple);
    l.features = oz_gemm_pad(a->head_dim, l.g->nr);
    l.key_multiple = most(l.g->nr, l.g->k_multiple); /* both are powers of two */
    int64_t rows = BLOCK_BYTES / (l.depth * l.element + l.features * (int64_t)sizeof(float));
    l.rows = most(least(rows, OZ_ATTENTION_MAX_ROWS) / l.g->mr, 1) * l.g->mr;
    l.q = reserve(&l.thread, l.rows * l.depth * l.element);
    l.out = reserve(&l.thread, l.rows * l.features * (int64_t)sizeof(float));
    l.scores = reserve(&l.thread, l.rows * TILE * (int64_t)sizeof(float));
    l.stage = reserve(&l.thread, l.g->nr * most(most(l.depth, l.features), TILE) * l.element);
    int64_t single = most(l.g->row_multiple, 1);
    l.line = reserve(&l.thread, single * TILE * l.element);
    l.sums = reserve(&l.thread, single * l.g->nr * (int64_t)sizeof(float));
    l.packed_bytes = packed_room(&l, a);
    size_t rooms = l.thread * (size_t)oz_pool_threads(dev->pool);
    l.rooms = l.packed_bytes;
    l.total = l.packed_bytes > SIZE_MAX / 2 ? SIZE_MAX : l.packed_bytes + rooms;
    return l;
}

size_t oz_attention_scratch(const struct oz_device *dev, const struct oz_attention_args *a,
                            const struct oz_attention_kernel *k)
{
    return lay_out(dev, a, k).total;
}

static bool plain(const struct oz_act *x)
{
    const struct oz_act_spec *spec = x != NULL ? &x->spec : NULL;
    return spec == NULL || ((spec->dtype == OZ_DTYPE_F32 || spec->dtype == OZ_DTYPE_BF16) &&
                            spec->scale_count == 0 && spec->smooth == NULL &&
                            spec->rotate_cols == 0 && spec->low_rank_a == NULL);
}

const char *oz_attention_reject(const struct oz_device *dev, const struct oz_attention_args *a,
                                const struct oz_attention_kernel *k)
{
    if (products(k)->a_dtype == OZ_DTYPE_BF16 && dev->f32_math) {
        return "the device multiplies in f32";
    }
    if (a->head_dim > OZ_ATTENTION_MAX_DIM) {
        return "heads are wider than 1024";
    }
    for (int32_t i = 0; i < a->segment_count; i++) {
        if (!plain(a->segments[i].q) || !plain(a->segments[i].k) || !plain(a->segments[i].v) ||
            !plain(a->segments[i].out)) {
            return "it reads and writes f32 and bf16 only";
        }
    }
    if (a->paged != NULL && (!plain(a->paged->k) || !plain(a->paged->v))) {
        return "its pages are f32 and bf16 only";
    }
    return NULL;
}

/* ---- a wave ---- */

struct job {
    const struct oz_attention_args *a;
    const struct oz_attention_kernel *k;
    struct layout l;
    uint8_t *scratch;
    const float *sinks; /* [heads] or NULL */
    int64_t units, tiles, tasks;
    struct unit unit[MAX_UNITS];
};

/* What the queries of a segment see of a sequence. */
struct queries {
    int32_t segment;
    int64_t rows;
    int64_t first_position;
};

static struct queries queries_of(const struct oz_attention_args *a, int32_t sequence,
                                 int32_t segment)
{
    struct queries q = {.segment = segment};
    if (a->segments[segment].q == NULL) {
        return q;
    }
    q.rows = segment_rows(a->segments[segment].rows, sequence);
    if (a->paged != NULL) {
        q.first_position = count_keys(a, sequence, false) - q.rows;
        return q;
    }
    for (int32_t i = 0; i < segment && a->segments[segment].k != NULL; i++) {
        q.first_position +=
            a->segments[i].k != NULL ? segment_rows(a->segments[i].rows, sequence) : 0;
    }
    return q;
}

static int64_t blocks_of(const struct job *job, const struct queries *q)
{
    return (q->rows + job->l.rows - 1) / job->l.rows;
}

/* Do lengths fit the scratch, and distances the bias table? */
static enum oz_status check_lengths(const struct job *job, int32_t sequence)
{
    const struct oz_attention_args *a = job->a;
    int64_t keys = count_keys(a, sequence, false);
    int64_t room = count_keys(a, sequence, true);
    int64_t reach = a->bias != NULL ? (a->bias->cols + 1) / 2 : INT64_MAX;
    for (int32_t i = 0; i < a->segment_count; i++) {
        struct queries q = queries_of(a, sequence, i);
        if (q.rows > 0 && (keys > room || q.first_position < 0 ||
                           most(keys, q.first_position + q.rows) > reach)) {
            oz_log(OZ_LOG_ERROR, "dispatch",
                   "attention: sequence %d has %lld keys and queries from position %lld; room for "
                   "%lld keys and a bias that reaches %lld.",
                   (int)sequence, (long long)keys, (long long)q.first_position, (long long)room,
                   (long long)reach);
            return OZ_ERR_ARG;
        }
    }
    return OZ_OK;
}

/* Fills the wave with units from number `first` on (sequence * kv_heads + head); returns the next. */
static int64_t fill_wave(struct job *job, int64_t first)
{
    const struct oz_attention_args *a = job->a;
    int64_t all = (int64_t)a->segments[0].rows->count * a->kv_heads;
    size_t used = 0;
    job->units = job->tiles = job->tasks = 0;
    for (; first < all && job->units < MAX_UNITS; first++) {
        struct unit u = {.sequence = (int32_t)(first / a->kv_heads),
                         .kv_head = (int32_t)(first % a->kv_heads)};
        int64_t tasks = 0;
        for (int32_t i = 0; i < a->segment_count; i++) {
            struct queries q = queries_of(a, u.sequence, i);
            tasks += blocks_of(job, &q) * (a->heads / a->kv_heads);
        }
        if (tasks == 0) {
            continue;
        }
        u.keys = count_keys(a, u.sequence, false);
        u.padded = oz_gemm_pad(u.keys, job->l.key_multiple);
        u.tiles = (u.keys + TILE - 1) / TILE;
        size_t bytes = unit_bytes(&job->l, u.keys);
        if (bytes > job->l.packed_bytes - used) {
            break;
        }
        u.flags = job->scratch + used;
        u.k = u.flags + oz_gemm_pad(u.tiles, ALIGN);
        u.v = u.k + u.padded * job->l.depth * job->l.element;
        u.first_tile = job->tiles;
        u.first_task = job->tasks;
        used += bytes;
        job->tiles += u.tiles;
        job->tasks += tasks;
        job->unit[job->units++] = u;
    }
    return first;
}

static uint8_t *room_of(const struct job *job, int32_t thread)
{
    return job->scratch + job->l.rooms + (size_t)thread * job->l.thread;
}

/* ---- phase 1: packing ---- */

/* Rows of keys (or values) at positions [first, first + count), staged with zeros behind. */
static void stage_rows(const struct job *job, const struct unit *u, bool values, int64_t first,
                       int64_t count, uint8_t *dst)
{
    const struct oz_attention_args *a = job->a;
    int64_t padded = values ? job->l.features : job->l.depth;
    int64_t line = padded * job->l.element;
    int64_t col = (int64_t)u->kv_head * a->head_dim;
    if (a->paged != NULL) {
        const struct oz_paged_kv *p = a->paged;
        const int32_t *table = p->tables + u->sequence * p->table_stride;
        for (int64_t i = first; i < first + count; i++, dst += line) {
            int64_t row = (int64_t)table[i / p->page_rows] * p->page_rows + i % p->page_rows;
            job->k->load(values ? p->v : p->k, row, col, a->head_dim, padded, dst);
        }
        return;
    }
    int64_t begin = 0; /* position of the segment's first key */
    for (int32_t s = 0; s < a->segment_count; s++) {
        const struct oz_act *x = values ? a->segments[s].v : a->segments[s].k;
        if (x == NULL) {
            continue;
        }
        int64_t rows = segment_rows(a->segments[s].rows, u->sequence);
        int64_t row0 = a->segments[s].rows->offsets[u->sequence];
        int64_t to = least(first + count, begin + rows);
        for (int64_t i = most(first, begin); i < to; i++) {
            job->k->load(x, row0 + i - begin, col, a->head_dim, padded, dst + (i - first) * line);
        }
        begin += rows;
    }
}

static void pack_tile(const struct job *job, const struct unit *u, int64_t tile, uint8_t *stage)
{
    const struct layout *l = &job->l;
    int64_t nr = l->g->nr;
    int64_t last = least((tile + 1) * TILE, u->padded);
    bool finite = true;
    for (int64_t k0 = tile * TILE; k0 < last; k0 += nr) {
        int64_t count = most(least(nr, u->keys - k0), 0);
        for (int values = 0; values < 2; values++) {
            int64_t padded = values ? l->features : l->depth;
            stage_rows(job, u, values, k0, count, stage);
            memset(stage + count * padded * l->element, 0,
                   (size_t)((nr - count) * padded * l->element));
            if (values) {
                finite = job->k->pack_values(stage, padded, u->padded * nr,
                                             u->v + k0 * nr * l->element) &&
                         finite;
            } else {
                job->k->pack_keys(stage, padded, u->k + k0 * padded * l->element);
            }
        }
    }
    u->flags[tile] = finite;
}

static void run_tiles(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct unit *u = job->unit;
    for (int64_t tile = begin; tile < end; tile++) {
        while (tile >= u->first_tile + u->tiles) {
            u++;
        }
        pack_tile(job, u, tile - u->first_tile, room_of(job, thread) + job->l.stage);
    }
}

/* ---- phase 2: blocks of queries ---- */

struct block {
    const struct job *job;
    const struct unit *u;
    struct queries q;
    int32_t head;
    int64_t q0, rows; /* in the sequence's rows of the segment */
    uint8_t *queries, *stage, *line;
    float *out, *scores, *sums;
    float largest[OZ_ATTENTION_MAX_ROWS], sum[OZ_ATTENTION_MAX_ROWS];
    int32_t begin[OZ_ATTENTION_MAX_ROWS], end[OZ_ATTENTION_MAX_ROWS]; /* of the present tile */
};

/* Positions [*begin, *end) that a query of the block sees. */
static void visible(const struct block *b, int64_t row, int64_t *begin, int64_t *end)
{
    const struct oz_attention_args *a = b->job->a;
    int64_t position = b->q.first_position + b->q0 + row;
    *begin = 0;
    *end = b->u->keys;
    if (a->mask != OZ_MASK_NONE) {
        *end = least(position + 1, *end);
    }
    if (a->mask == OZ_MASK_WINDOW) {
        *begin = least(most(position + 1 - a->window, 0), *end);
    }
}

/* Fills begin and end for keys [k0, k0 + count); is there a key that one query sees and another does
 * not? */
static bool see_tile(struct block *b, int64_t k0, int64_t count)
{
    bool partial = false;
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t begin;
        int64_t end;
        visible(b, r, &begin, &end);
        b->begin[r] = (int32_t)least(most(begin - k0, 0), count);
        b->end[r] = (int32_t)least(most(end - k0, 0), count);
        partial = partial || b->begin[r] > 0 || b->end[r] < count;
    }
    return partial;
}

/* c[rows, nr] (+)= a b, a few rows at a time. */
static void multiply(const struct layout *l, int64_t rows, int64_t k, const uint8_t *a, int64_t lda,
                     const uint8_t *b, float *c, int64_t ldc, bool first)
{
    const struct oz_gemm_kernel *g = l->g;
    for (int64_t r = 0; r < rows; r += g->mr) {
        g->run(least(g->mr, rows - r), k, a + r * lda * l->element, lda, b, c + r * ldc, ldc,
               first);
    }
}

/*
 * The weighted sum of a tile where some value is infinite or NaN and some query does not see it: zero
 * times that would be NaN. Each row gets a copy of the panel without what it does not see; the sums
 * are the same otherwise.
 */
static void add_guarded(struct block *b, int64_t count, const uint8_t *panel, float *out,
                        bool first)
{
    const struct layout *l = &b->job->l;
    int64_t nr = l->g->nr;
    int64_t kr = l->g->kr;
    int64_t step = nr * kr * l->element; /* bytes of kr keys */
    int64_t lda = TILE * (int64_t)sizeof(float) / l->element;
    for (int64_t r = 0; r < b->rows; r++) {
        memcpy(b->stage, panel, (size_t)(count * nr * l->element));
        for (int64_t j = 0; j < count; j++) {
            uint8_t *at = b->stage + j / kr * step + j % kr * l->element;
            bool seen = j >= b->begin[r] && j < b->end[r];
            for (int64_t f = 0; f < nr && !seen; f++) {
                memset(at + f * kr * l->element, 0, (size_t)l->element);
            }
        }
        memcpy(b->line, (uint8_t *)b->scores + r * lda * l->element, (size_t)(count * l->element));
        memcpy(b->sums, out + r * l->features, (size_t)nr * sizeof *out);
        l->g->run(1, count, b->line, TILE, b->stage, b->sums, nr, first);
        memcpy(out + r * l->features, b->sums, (size_t)nr * sizeof *out);
    }
}

/* Scores of the keys from k0 on, a panel at a time, in pieces of the depth that stay in the first
 * cache. */
static void score_keys(struct block *b, int64_t k0, int64_t padded)
{
    const struct layout *l = &b->job->l;
    int64_t nr = l->g->nr;
    for (int64_t c = 0; c < padded; c += nr) {
        const uint8_t *panel = b->u->k + (k0 + c) * l->depth * l->element;
        for (int64_t d = 0; d < l->depth; d += l->g->k_block) {
            multiply(l, b->rows, least(l->g->k_block, l->depth - d), b->queries + d * l->element,
                     l->depth, panel + d * nr * l->element, b->scores + c, TILE, d == 0);
        }
    }
}

/* Keys [k0, k0 + count), of one tile: scores, weights, sum of values. */
static void pass_keys(struct block *b, int64_t k0, int64_t count, bool first)
{
    const struct job *job = b->job;
    const struct layout *l = &job->l;
    const struct oz_attention_args *a = job->a;
    int64_t nr = l->g->nr;
    int64_t padded = oz_gemm_pad(count, l->key_multiple);
    int64_t weights = oz_gemm_pad(count, l->g->k_multiple);
    bool partial = see_tile(b, k0, count);
    score_keys(b, k0, padded);
    struct oz_attention_tile t = {
        .rows = b->rows,
        .padded = padded,
        .count = count,
        .begin = b->begin,
        .end = b->end,
        .scores = b->scores,
        .factor = a->scale * 1.44269504088896341F,
        .largest = b->largest,
        .sum = b->sum,
        .out = b->out,
        .out_ld = l->features,
        .out_cols = l->features,
        .first = first,
    };
    if (a->bias != NULL) {
        int64_t reach = (a->bias->cols + 1) / 2;
        t.bias = (const float *)a->bias->data + b->head * a->bias->stride + k0 -
                 (b->q.first_position + b->q0) + reach - 1;
    }
    job->k->soften(&t);
    bool guard = partial && !b->u->flags[k0 / TILE];
    for (int64_t c = 0; c < l->features; c += nr) {
        const uint8_t *panel = b->u->v + (c * b->u->padded + k0 * nr) * l->element;
        if (guard) {
            add_guarded(b, weights, panel, b->out + c, first);
        } else {
            multiply(l, b->rows, weights, (uint8_t *)b->scores,
                     TILE * (int64_t)sizeof(float) / l->element, panel, b->out + c, l->features,
                     first);
        }
    }
}

/* The divisor of a query's sums. Without any weight: it saw nothing (zeros), or only scores of minus
 * infinity (NaN, as their softmax is). */
static float divisor(const struct block *b, int64_t row)
{
    int64_t begin;
    int64_t end;
    visible(b, row, &begin, &end);
    return b->sum[row] != 0 ? b->sum[row] : (begin < end ? NAN : 1);
}

static void run_block(struct block *b)
{
    const struct job *job = b->job;
    const struct layout *l = &job->l;
    const struct oz_attention_args *a = job->a;
    int64_t dim = a->head_dim;
    int64_t row0 = a->segments[b->q.segment].rows->offsets[b->u->sequence] + b->q0;
    float sink = job->sinks != NULL ? job->sinks[b->head] : -INFINITY;
    for (int64_t r = 0; r < b->rows; r++) {
        job->k->load(a->segments[b->q.segment].q, row0 + r, b->head * dim, dim, l->depth,
                     b->queries + r * l->depth * l->element);
        b->largest[r] = sink * 1.44269504088896341F;
        b->sum[r] = sink == -INFINITY ? 0 : expf(sink - sink); /* NaN for a sink of infinity */
    }
    int64_t first;
    int64_t last;
    int64_t unused;
    visible(b, 0, &first, &unused);
    visible(b, b->rows - 1, &unused, &last);
    first = first / l->key_multiple * l->key_multiple;
    for (int64_t k0 = first; k0 < last; k0 = (k0 / TILE + 1) * TILE) {
        pass_keys(b, k0, least((k0 / TILE + 1) * TILE, last) - k0, k0 == first);
    }
    if (first >= last) {
        memset(b->out, 0, (size_t)(b->rows * l->features) * sizeof *b->out);
    }
    for (int64_t r = 0; r < b->rows; r++) {
        job->k->store(a->segments[b->q.segment].out, row0 + r, b->head * dim, dim,
                      b->out + r * l->features, divisor(b, r));
    }
}

static void run_tasks(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    const struct oz_attention_args *a = job->a;
    uint8_t *room = room_of(job, thread);
    struct block b = {.job = job,
                      .queries = room + job->l.q,
                      .stage = room + job->l.stage,
                      .line = room + job->l.line,
                      .sums = (float *)(void *)(room + job->l.sums),
                      .out = (float *)(void *)(room + job->l.out),
                      .scores = (float *)(void *)(room + job->l.scores)};
    int64_t unit = 0;
    if (job->l.g->begin != NULL) {
        job->l.g->begin();
    }
    for (int64_t task = begin; task < end; task++) {
        while (unit + 1 < job->units && task >= job->unit[unit + 1].first_task) {
            unit++;
        }
        b.u = &job->unit[unit];
        int64_t rest = task - b.u->first_task;
        int64_t group = a->heads / a->kv_heads;
        for (int32_t i = 0; i < a->segment_count; i++) {
            b.q = queries_of(a, b.u->sequence, i);
            int64_t blocks = blocks_of(job, &b.q);
            if (rest < blocks * group) {
                b.head = (int32_t)(b.u->kv_head * group + rest / blocks);
                b.q0 = rest % blocks * job->l.rows;
                b.rows = least(job->l.rows, b.q.rows - b.q0);
                run_block(&b);
                break;
            }
            rest -= blocks * group;
        }
    }
    if (job->l.g->end != NULL) {
        job->l.g->end();
    }
}

enum oz_status oz_attention_run(const struct oz_op_ctx *ctx, const struct oz_attention_args *a,
                                const struct oz_attention_kernel *k)
{
    struct job job = {.a = a, .k = k, .l = lay_out(ctx->dev, a, k), .scratch = ctx->scratch};
    int64_t all = (int64_t)a->segments[0].rows->count * a->kv_heads;
    if (ctx->scratch_bytes < job.l.total) {
        return OZ_ERR_INTERNAL;
    }
    for (int32_t s = 0; s < a->segments[0].rows->count; s++) {
        OZ_TRY(check_lengths(&job, s));
    }
    if (a->sinks != NULL && a->sinks->name != NULL) {
        job.sinks = a->sinks->weight.planes[OZ_PLANE_CODES].data;
    }
    for (int64_t unit = 0; unit < all;) {
        unit = fill_wave(&job, unit);
        oz_pool_for(ctx->dev->pool, job.tiles, 1, run_tiles, &job);
        oz_pool_for(ctx->dev->pool, job.tasks, 1, run_tasks, &job);
    }
    return OZ_OK;
}
