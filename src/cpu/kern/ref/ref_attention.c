/*
 * attention: two passes over the keys of a sequence. A task is one head of one sequence and
 * BLOCK_ROWS of its queries: all scores, softmax, then the sum of values in position order, TILE
 * keys at a time (tiles begin at multiples of TILE positions, so a query's bytes depend on its own
 * sequence alone).
 */
#include "base/log.h"
#include "cpu/kern/ref/ref.h"

#define BLOCK_ROWS 16
#define TILE 64

struct layout {
    size_t sinks, rows, total;
    int64_t max_keys;
    int64_t thread_floats;
};

/* What the tasks of one sequence share. */
struct job {
    const struct oz_attention_args *a;
    int32_t sequence;
    int32_t segment; /* of the queries */
    int64_t queries, keys;
    int64_t first_position; /* of the queries */
    const float *sinks;     /* [heads] or NULL */
    float *rows;
    struct layout l;
};

/* Room of a thread. */
struct room {
    float *q;      /* [BLOCK_ROWS, head_dim] */
    float *sum;    /* [BLOCK_ROWS, head_dim] */
    float *tile;   /* [TILE, head_dim]: keys or values */
    float *scores; /* [BLOCK_ROWS, max_keys] */
};

static int64_t segment_rows(const struct oz_ragged *rows, int32_t s)
{
    return rows->offsets[s + 1] - rows->offsets[s];
}

static int64_t count_keys(const struct oz_attention_args *a, int32_t s)
{
    if (a->paged != NULL) {
        return a->paged->lengths[s];
    }
    int64_t keys = 0;
    for (int32_t i = 0; i < a->segment_count; i++) {
        keys += a->segments[i].k != NULL ? segment_rows(a->segments[i].rows, s) : 0;
    }
    return keys;
}

static int64_t longest_keys(const struct oz_attention_args *a)
{
    int64_t longest = a->paged != NULL ? a->paged->max_length : 0;
    for (int32_t s = 0; a->paged == NULL && s < a->segments[0].rows->count; s++) {
        longest = oz_ref_max(longest, count_keys(a, s));
    }
    return longest;
}

static struct layout lay_out(const struct oz_device *dev, const struct oz_attention_args *a)
{
    struct layout l = {.max_keys = longest_keys(a)};
    l.thread_floats = oz_ref_plus((2 * BLOCK_ROWS + TILE) * (int64_t)a->head_dim,
                                  oz_ref_times(BLOCK_ROWS, l.max_keys));
    l.sinks = oz_ref_reserve(&l.total, a->heads, sizeof(float));
    l.rows =
        oz_ref_reserve(&l.total, oz_ref_times(oz_ref_threads(dev), l.thread_floats), sizeof(float));
    return l;
}

size_t oz_ref_scratch_attention(const struct oz_device *dev, const void *args)
{
    return lay_out(dev, args).total;
}

static struct room room_of(const struct job *job, int32_t thread)
{
    int64_t dim = job->a->head_dim;
    struct room room;
    room.q = job->rows + thread * job->l.thread_floats;
    room.sum = room.q + BLOCK_ROWS * dim;
    room.tile = room.sum + BLOCK_ROWS * dim;
    room.scores = room.tile + TILE * dim;
    return room;
}

/* Keys (or values) of positions [first, first + count) of one kv head, as f32 rows. */
static void gather(const struct job *job, int32_t kv_head, bool values, int64_t first,
                   int64_t count, float *dst)
{
    const struct oz_attention_args *a = job->a;
    int64_t dim = a->head_dim;
    if (a->paged != NULL) {
        const struct oz_paged_kv *p = a->paged;
        const int32_t *table = p->tables + job->sequence * p->table_stride;
        for (int64_t i = first; i < first + count; i++, dst += dim) {
            int64_t row = (int64_t)table[i / p->page_rows] * p->page_rows + i % p->page_rows;
            oz_ref_load(values ? p->v : p->k, row, kv_head * dim, dim, dst);
        }
        return;
    }
    int64_t begin = 0; /* position of the segment's first key */
    for (int32_t s = 0; s < a->segment_count; s++) {
        const struct oz_act *x = values ? a->segments[s].v : a->segments[s].k;
        if (x == NULL) {
            continue;
        }
        int64_t rows = segment_rows(a->segments[s].rows, job->sequence);
        int64_t row0 = a->segments[s].rows->offsets[job->sequence];
        int64_t from = oz_ref_max(first, begin);
        int64_t to = oz_ref_min(first + count, begin + rows);
        for (int64_t i = from; i < to; i++) {
            oz_ref_load(x, row0 + i - begin, kv_head * dim, dim, dst + (i - first) * dim);
        }
        begin += rows;
    }
}

/* Positions [*begin, *end) that a query may see. */
static void visible(const struct job *job, int64_t position, int64_t *begin, int64_t *end)
{
    const struct oz_attention_args *a = job->a;
    *begin = 0;
    *end = job->keys;
    if (a->mask != OZ_MASK_NONE) {
        *end = oz_ref_min(position + 1, job->keys);
    }
    if (a->mask == OZ_MASK_WINDOW) {
        *begin = oz_ref_min(oz_ref_max(position + 1 - a->window, 0), *end);
    }
}

static void score_block(const struct job *job, int32_t head, int64_t q0, int64_t rows,
                        const struct room *room)
{
    const struct oz_attention_args *a = job->a;
    int64_t dim = a->head_dim;
    int64_t first;
    int64_t last;
    int64_t unused;
    visible(job, job->first_position + q0, &first, &unused);
    visible(job, job->first_position + q0 + rows - 1, &unused, &last);
    for (int64_t k0 = first / TILE * TILE; k0 < last; k0 += TILE) {
        int64_t count = oz_ref_min(TILE, last - k0);
        gather(job, head / (a->heads / a->kv_heads), false, k0, count, room->tile);
        for (int64_t r = 0; r < rows; r++) {
            float *to = room->scores + r * job->l.max_keys + k0;
            int64_t position = job->first_position + q0 + r;
            oz_ref_dots(room->q + r * dim, room->tile, dim, count, dim, to);
            for (int64_t i = 0; i < count; i++) {
                to[i] *= a->scale;
            }
            for (int64_t i = 0; a->bias != NULL && i < count; i++) {
                int64_t reach = (a->bias->cols + 1) / 2;
                to[i] += *oz_ref_f32(a->bias, head, k0 + i - position + reach - 1);
            }
        }
    }
}

/* Scores to unnormalised weights; returns the denominator. */
static float soften(float *scores, int64_t begin, int64_t end, const float *sink)
{
    float largest = sink != NULL ? *sink : -INFINITY;
    for (int64_t i = begin; i < end; i++) {
        largest = scores[i] > largest ? scores[i] : largest;
    }
    double sum = sink != NULL ? expf(*sink - largest) : 0;
    for (int64_t i = begin; i < end; i++) {
        scores[i] = expf(scores[i] - largest);
        sum += scores[i];
    }
    return (float)sum;
}

static void sum_block(const struct job *job, int32_t head, int64_t q0, int64_t rows,
                      const struct room *room)
{
    const struct oz_attention_args *a = job->a;
    int64_t dim = a->head_dim;
    int64_t first;
    int64_t last;
    int64_t unused;
    visible(job, job->first_position + q0, &first, &unused);
    visible(job, job->first_position + q0 + rows - 1, &unused, &last);
    memset(room->sum, 0, (size_t)(rows * dim) * sizeof *room->sum);
    for (int64_t k0 = first / TILE * TILE; k0 < last; k0 += TILE) {
        int64_t count = oz_ref_min(TILE, last - k0);
        gather(job, head / (a->heads / a->kv_heads), true, k0, count, room->tile);
        for (int64_t r = 0; r < rows; r++) {
            int64_t begin;
            int64_t end;
            visible(job, job->first_position + q0 + r, &begin, &end);
            begin = oz_ref_max(begin, k0);
            end = oz_ref_min(end, k0 + count);
            if (begin < end) {
                oz_ref_add_weighted(room->scores + r * job->l.max_keys + begin,
                                    room->tile + (begin - k0) * dim, dim, end - begin, dim,
                                    room->sum + r * dim);
            }
        }
    }
}

static void run_block(const struct job *job, int32_t head, int64_t q0, int64_t rows,
                      const struct room *room)
{
    const struct oz_attention_args *a = job->a;
    int64_t dim = a->head_dim;
    int64_t row0 = a->segments[job->segment].rows->offsets[job->sequence] + q0;
    float denominator[BLOCK_ROWS];
    for (int64_t r = 0; r < rows; r++) {
        oz_ref_load(a->segments[job->segment].q, row0 + r, head * dim, dim, room->q + r * dim);
    }
    score_block(job, head, q0, rows, room);
    for (int64_t r = 0; r < rows; r++) {
        int64_t begin;
        int64_t end;
        visible(job, job->first_position + q0 + r, &begin, &end);
        denominator[r] = soften(room->scores + r * job->l.max_keys, begin, end,
                                job->sinks != NULL ? &job->sinks[head] : NULL);
    }
    sum_block(job, head, q0, rows, room);
    for (int64_t r = 0; r < rows; r++) {
        float *sum = room->sum + r * dim;
        for (int64_t c = 0; c < dim; c++) { /* a query that sees nothing gets zeros */
            sum[c] = denominator[r] == 0 ? 0 : sum[c] / denominator[r];
        }
        oz_ref_store(a->segments[job->segment].out, row0 + r, head * dim, dim, sum);
    }
}

static void run_tasks(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    int64_t blocks = (job->queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    struct room room = room_of(job, thread);
    for (int64_t task = begin; task < end; task++) {
        int64_t q0 = task % blocks * BLOCK_ROWS;
        run_block(job, (int32_t)(task / blocks), q0, oz_ref_min(BLOCK_ROWS, job->queries - q0),
                  &room);
    }
}

static enum oz_status check_args(const struct oz_attention_args *a)
{
    for (int32_t i = 0; i < a->segment_count; i++) {
        OZ_TRY(oz_ref_check_act("attention", a->segments[i].q));
        OZ_TRY(oz_ref_check_act("attention", a->segments[i].k));
        OZ_TRY(oz_ref_check_act("attention", a->segments[i].v));
        OZ_TRY(oz_ref_check_act("attention", a->segments[i].out));
    }
    if (a->paged != NULL) {
        OZ_TRY(oz_ref_check_act("attention", a->paged->k));
        OZ_TRY(oz_ref_check_act("attention", a->paged->v));
    }
    return oz_ref_check_param("attention", oz_ref_param(a->sinks), 1, 1, a->heads);
}

/* Do lengths fit the scratch, and distances the bias table? */
static enum oz_status check_lengths(const struct oz_attention_args *a, const struct job *job)
{
    int64_t reach = a->bias != NULL ? (a->bias->cols + 1) / 2 : INT64_MAX;
    int64_t longest = oz_ref_max(job->keys, job->first_position + job->queries);
    if (job->keys > job->l.max_keys || job->first_position < 0 || longest > reach) {
        oz_log(OZ_LOG_ERROR, "dispatch",
               "attention: sequence %d has %lld keys and queries from position %lld; room for %lld "
               "keys and a bias that reaches %lld.",
               (int)job->sequence, (long long)job->keys, (long long)job->first_position,
               (long long)job->l.max_keys, (long long)reach);
        return OZ_ERR_ARG;
    }
    return OZ_OK;
}

enum oz_status oz_attention_f32__scalar(const struct oz_op_ctx *ctx,
                                        const struct oz_attention_args *a)
{
    struct job job = {.a = a, .l = lay_out(ctx->dev, a)};
    OZ_TRY(oz_ref_begin(ctx, job.l.total));
    OZ_TRY(check_args(a));
    job.sinks = oz_ref_vector(a->sinks, a->heads, oz_ref_at(ctx, job.l.sinks));
    job.rows = oz_ref_at(ctx, job.l.rows);
    for (job.sequence = 0; job.sequence < a->segments[0].rows->count; job.sequence++) {
        int64_t position = 0;
        job.keys = count_keys(a, job.sequence);
        for (job.segment = 0; job.segment < a->segment_count; job.segment++) {
            bool offers = a->segments[job.segment].k != NULL;
            job.queries = segment_rows(a->segments[job.segment].rows, job.sequence);
            job.first_position =
                a->paged != NULL ? job.keys - job.queries : (offers ? position : 0);
            position += offers ? job.queries : 0;
            if (a->segments[job.segment].q == NULL || job.queries == 0) {
                continue;
            }
            OZ_TRY(check_lengths(a, &job));
            oz_pool_for(ctx->dev->pool, a->heads * ((job.queries + BLOCK_ROWS - 1) / BLOCK_ROWS), 1,
                        run_tasks, &job);
        }
    }
    return OZ_OK;
}
