#include "pipe/batcher.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "pipe/batcher_inner.h"

static enum oz_status find_limit(struct oz_batcher *b, struct oz_error *err)
{
    int64_t free_bytes;
    int64_t total_bytes;
    OZ_TRY(b->dev->memory(b->dev, &free_bytes, &total_bytes, err));
    b->limit = free_bytes >= 0 ? (size_t)free_bytes : SIZE_MAX;
    if (b->options.max_memory_bytes > 0) {
        b->limit = (size_t)b->options.max_memory_bytes;
    }
    b->stats.limit_bytes = b->limit != SIZE_MAX ? b->limit : 0;
    return OZ_OK;
}

static void init_locks(struct oz_batcher *b)
{
    pthread_condattr_t clock;
    pthread_mutex_init(&b->submit_lock, NULL);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->work, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* as oz_clock_seconds */
    pthread_cond_init(&b->ended, &clock);
    pthread_condattr_destroy(&clock);
}

static enum oz_status start(struct oz_batcher *b, struct oz_error *err)
{
    size_t n = (size_t)b->options.max_num_seqs;
    b->active = oz_alloc_zero(n, sizeof *b->active);
    b->members = oz_alloc_zero(n, sizeof *b->members);
    b->wanted = oz_alloc_zero(n, sizeof *b->wanted);
    b->mod_acts = oz_alloc_zero(2 * (size_t)b->p->transformer.config.layers, sizeof *b->mod_acts);
    if (b->active == NULL || b->members == NULL || b->wanted == NULL || b->mod_acts == NULL) {
        return OZ_FAIL_NOMEM(err, "a service");
    }
    OZ_TRY(find_limit(b, err));
    int failed = pthread_create(&b->thread, NULL, oz_batcher_thread, b);
    return failed == 0 ? OZ_OK
                       : OZ_FAIL(err, OZ_ERR_NOMEM, "A service's thread could not be started (%s).",
                                 strerror(failed));
}

static void free_all(struct oz_batcher *b)
{
    oz_batcher_free_tickets(b);
    oz_batcher_free_rooms(b);
    pthread_cond_destroy(&b->work);
    pthread_cond_destroy(&b->ended);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->submit_lock);
    oz_free(b->mod_acts);
    oz_free((void *)b->wanted);
    oz_free((void *)b->members);
    oz_free((void *)b->active);
    oz_free(b);
}

enum oz_status oz_batcher_open(struct oz_batcher **out, const struct oz_batcher_options *options,
                               struct oz_error *err)
{
    struct oz_batcher *b = oz_alloc_zero(1, sizeof *b);
    *out = NULL;
    if (b == NULL) {
        return OZ_FAIL_NOMEM(err, "a service");
    }
    b->options = *options;
    b->p = options->pipeline;
    b->dev = b->p->dev;
    b->next_deadline = INFINITY;
    b->step.name = "step";
    b->table.name = "table";
    b->plan.name = "plan";
    init_locks(b);
    enum oz_status status = start(b, err);
    if (status != OZ_OK) {
        free_all(b);
        return status;
    }
    *out = b;
    return OZ_OK;
}

void oz_batcher_stop(struct oz_batcher *b)
{
    oz_batcher_end_all(b);
    if (!b->stopped) {
        pthread_join(b->thread, NULL);
        b->stopped = true;
    }
}

void oz_batcher_close(struct oz_batcher **batcher)
{
    struct oz_batcher *b = *batcher;
    if (b == NULL) {
        return;
    }
    oz_batcher_stop(b);
    free_all(b);
    *batcher = NULL;
}
