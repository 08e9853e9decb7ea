/* The batcher's thread: lets in, steps, decodes. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/exec.h"
#include "pipe/batcher_inner.h"

#define ASK_SECONDS 0.02 /* between two questions within a step */
#define SMOOTHING 0.2    /* weight of the newest time in those that estimates are made of */

const double oz_batcher_bounds[OZ_BATCHER_BUCKETS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5,   1,      2.5,   5,    10,    30,   120, __builtin_inf()};

/* ---- stopping ---- */

static bool has_ended(struct oz_batcher *b, const struct oz_ticket *t)
{
    pthread_mutex_lock(&b->lock);
    bool ended = oz_ticket_has_ended(t);
    pthread_mutex_unlock(&b->lock);
    return ended;
}

/* Nobody waits for what is being computed any more? */
static bool is_in_vain(struct oz_batcher *b)
{
    bool vain = true;
    pthread_mutex_lock(&b->lock);
    if (b->alone != NULL) {
        vain = oz_ticket_has_ended(b->alone);
    }
    for (int32_t i = 0; b->alone == NULL && i < b->active_count; i++) {
        vain = vain && oz_ticket_has_ended(b->active[i]);
    }
    pthread_mutex_unlock(&b->lock);
    return vain;
}

static bool wants_stop(void *ctx)
{
    struct oz_batcher *b = ctx;
    double now = oz_clock_seconds();
    if (now - b->asked_s < ASK_SECONDS) {
        return false;
    }
    b->asked_s = now;
    oz_batcher_expire(b);
    return is_in_vain(b);
}

struct oz_exec oz_batcher_begin(struct oz_batcher *b, struct oz_ticket *alone, struct oz_error *err)
{
    struct oz_exec x;
    oz_exec_init(&x, b->dev, OZ_EXEC_RUN, &b->step.arena, err);
    x.trace = b->options.trace;
    x.stop = wants_stop;
    x.stop_ctx = b;
    b->alone = alone;
    return x;
}

/* ---- one ticket's state ---- */

/* False: it has ended meanwhile. */
static bool set_state(struct oz_batcher *b, struct oz_ticket *t, enum oz_ticket_state state)
{
    uint64_t id = t->id;
    pthread_mutex_lock(&b->lock);
    bool goes_on = !oz_ticket_has_ended(t);
    t->state = goes_on ? state : t->state;
    pthread_mutex_unlock(&b->lock);
    if (goes_on) {
        oz_batcher_tell(b, id);
    }
    return goes_on;
}

static void fail(struct oz_batcher *b, struct oz_ticket *t, enum oz_status status,
                 const struct oz_error *err)
{
    pthread_mutex_lock(&b->lock);
    bool ends = !oz_ticket_has_ended(t);
    if (ends) {
        oz_batcher_end(b, t, OZ_TICKET_FAILED, status, err);
    }
    pthread_mutex_unlock(&b->lock);
    if (ends) {
        oz_batcher_tell(b, t->id);
    }
}

/* Gives its device memory and rows back; it may be gone afterwards. */
static void leave(struct oz_batcher *b, struct oz_ticket *t)
{
    if (t->sequence.memory != NULL) {
        b->sequences -= t->sequence_bytes;
        oz_sequence_leave(&t->sequence, b->dev);
    }
    oz_mod_rows_release(&b->rows, &t->sequence);
    oz_batcher_note_bytes(b, 0);
}

/* Takes those that have ended out of the batch; the others stay in their order. */
static void drop_ended(struct oz_batcher *b)
{
    int32_t i = 0;
    while (i < b->active_count) {
        struct oz_ticket *t = b->active[i];
        if (!has_ended(b, t)) {
            i++;
            continue;
        }
        leave(b, t);
        pthread_mutex_lock(&b->lock);
        memmove((void *)&b->active[i], (void *)&b->active[i + 1],
                (size_t)(b->active_count - i - 1) * sizeof(struct oz_ticket *));
        b->active_count--;
        oz_batcher_let_go(b, t);
        pthread_mutex_unlock(&b->lock);
        b->composed = false;
        b->blocked = 0;
    }
}

/* ---- letting in ---- */

/* Memory, first latents, text states. */
static enum oz_status encode(struct oz_batcher *b, struct oz_ticket *t, struct oz_error *err)
{
    struct oz_sequence *s = &t->sequence;
    OZ_TRY(oz_sequence_join(s, b->p, err));
    b->sequences += t->sequence_bytes;
    oz_batcher_note_bytes(b, 0);
    void *host = oz_alloc(oz_stage_text_host_bytes(s, b->p));
    enum oz_status status =
        host != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "the text encoder's positions");
    for (int j = 0; j < s->branches && status == OZ_OK; j++) {
        struct oz_exec x = oz_batcher_begin(b, t, err);
        oz_stage_text(&x, b->p, s, j, host);
        status = oz_stage_finish(&x);
    }
    oz_free(host);
    return status == OZ_OK ? oz_pipeline_check_files(b->p, err) : status;
}

/* From the queue into the batch, which has a place for it. It ends if that fails. */
static void admit(struct oz_batcher *b, struct oz_ticket *t)
{
    struct oz_error err;
    double start = oz_clock_seconds();
    oz_batcher_tell(b, t->id);
    for (int32_t k = 0; k < t->task.steps; k++) {
        t->sequence.mod_rows[k] = -1; /* none taken yet */
    }
    enum oz_status status = oz_batcher_make_room(b, t, &err);
    if (status == OZ_OK) {
        status = encode(b, t, &err);
    }
    pthread_mutex_lock(&b->lock);
    b->stats.text_s += oz_clock_seconds() - start;
    b->active[b->active_count++] = t;
    pthread_mutex_unlock(&b->lock);
    b->composed = false;
    b->blocked = 0;
    if (status != OZ_OK) {
        fail(b, t, status, &err);
    } else {
        (void)set_state(b, t, OZ_TICKET_STEPS);
    }
}

/* Takes the next from the queue if it fits, and holds it; NULL: not now. */
static struct oz_ticket *pick(struct oz_batcher *b)
{
    struct oz_error err;
    enum oz_batcher_fit fit = OZ_FITS;
    pthread_mutex_lock(&b->lock);
    struct oz_ticket *t = b->active_count < b->options.max_num_seqs ? oz_batcher_next(b) : NULL;
    bool tried = t != NULL && t->id != b->blocked;
    if (tried) {
        t->held = true;
    }
    pthread_mutex_unlock(&b->lock);
    if (!tried) {
        return NULL;
    }
    enum oz_status status = oz_batcher_fit(b, t, &fit, &err);
    if (status != OZ_OK) {
        fail(b, t, status, &err);
    }
    b->blocked = fit == OZ_WAITS ? t->id : 0;
    pthread_mutex_lock(&b->lock);
    bool goes = status == OZ_OK && fit == OZ_FITS && !oz_ticket_has_ended(t);
    if (goes) {
        oz_batcher_dequeue(b, t);
        t->state = OZ_TICKET_TEXT;
        t->started_s = oz_clock_seconds();
    } else {
        oz_batcher_let_go(b, t);
    }
    pthread_mutex_unlock(&b->lock);
    return goes ? t : NULL;
}

/* ---- steps ---- */

/* Lays the composition out: all that run, or, if that is too much by now, those that joined first (the
 * others go on when there is room). */
static enum oz_status compose(struct oz_batcher *b, struct oz_error *err)
{
    enum oz_status status = OZ_ERR_NOMEM;
    b->member_count = b->active_count;
    for (int32_t i = 0; i < b->active_count; i++) {
        b->members[i] = &b->active[i]->sequence;
    }
    while (status != OZ_OK && b->member_count > 0) {
        status = oz_batcher_fit_members(b, err);
        b->member_count -= status != OZ_OK;
    }
    if (status != OZ_OK) {
        b->member_count = 1; /* it could not run even alone */
        return status;
    }
    struct oz_exec x = oz_batcher_begin(b, NULL, err);
    oz_arena_reset(&b->plan.arena, 0);
    oz_batch_compose(&x, &b->batch, b->members, b->member_count, &b->plan.arena);
    b->composed = oz_stage_finish(&x) == OZ_OK;
    return x.status;
}

static void count_step(struct oz_batcher *b, double seconds)
{
    int64_t rows = 0;
    int bucket = 0;
    while (seconds > oz_batcher_bounds[bucket]) {
        bucket++;
    }
    for (int32_t i = 0; i < b->member_count; i++) {
        rows += b->active[i]->rows;
    }
    double row_s = seconds / (double)rows;
    pthread_mutex_lock(&b->lock);
    b->stats.steps++;
    b->stats.step_pictures += b->member_count;
    b->stats.step_s += seconds;
    b->stats.step_counts[bucket]++;
    b->row_s += (row_s - b->row_s) * (b->row_s > 0 ? SMOOTHING : 1);
    for (int32_t i = 0; i < b->member_count; i++) {
        b->active[i]->step = b->active[i]->sequence.step;
    }
    pthread_mutex_unlock(&b->lock);
}

/* One step of all members, which are the first of the active ones. */
static enum oz_status step(struct oz_batcher *b, struct oz_error *err)
{
    if (!b->composed) {
        OZ_TRY(compose(b, err));
    }
    double start = oz_clock_seconds();
    uint64_t allocs = oz_alloc_calls();
    struct oz_exec x = oz_batcher_begin(b, NULL, err);
    oz_batch_step(&x, &b->batch);
    OZ_TRY(oz_stage_finish(&x));
    allocs = oz_alloc_calls() - allocs;
    OZ_TRY(oz_pipeline_check_files(b->p, err)); /* what was computed came from whole files */
    count_step(b, oz_clock_seconds() - start);
    pthread_mutex_lock(&b->lock);
    b->stats.step_allocs += allocs;
    pthread_mutex_unlock(&b->lock);
    return OZ_OK;
}

/* ---- previews and pictures ---- */

static void make_preview(struct oz_batcher *b, struct oz_ticket *t)
{
    struct oz_error err;
    float *picture;
    int32_t height;
    int32_t width;
    double start = oz_clock_seconds();
    struct oz_exec x = oz_batcher_begin(b, t, &err);
    enum oz_status status = oz_stage_preview(&x, b->p, &t->sequence, &picture, &height, &width);
    if (status != OZ_OK && status != OZ_ERR_CANCELLED) {
        oz_log(OZ_LOG_WARN, "service", "A preview was left out: %s", err.message);
    }
    pthread_mutex_lock(&b->lock);
    b->stats.preview_s += oz_clock_seconds() - start;
    if (status == OZ_OK) {
        oz_free(t->preview);
        t->preview = picture;
        t->preview_height = height;
        t->preview_width = width;
        t->preview_number++;
    }
    pthread_mutex_unlock(&b->lock);
}

/* Tells of a step, with a preview if it is time for one. */
static void tell_step(struct oz_batcher *b, struct oz_ticket *t)
{
    int32_t done = t->sequence.step;
    if (has_ended(b, t)) {
        return;
    }
    if (t->preview_every > 0 && done % t->preview_every == 0 && done < t->task.steps) {
        make_preview(b, t);
    }
    oz_batcher_tell(b, t->id);
}

static enum oz_status decode(struct oz_batcher *b, struct oz_ticket *t, void **result,
                             struct oz_error *err)
{
    float *picture;
    struct oz_exec x = oz_batcher_begin(b, t, err);
    OZ_TRY(oz_stage_draw(&x, b->p, &t->sequence, &b->latents, &picture));
    enum oz_status status = oz_pipeline_check_files(b->p, err);
    if (status == OZ_OK) {
        status = b->options.finish(b->options.finish_ctx, &t->task, picture, result, err);
    }
    if (status != OZ_OK) {
        oz_free(picture);
    }
    return status;
}

static void deliver(struct oz_batcher *b, struct oz_ticket *t)
{
    struct oz_error err;
    void *result = NULL;
    double start = oz_clock_seconds();
    if (!set_state(b, t, OZ_TICKET_DECODE)) {
        return;
    }
    enum oz_status status = decode(b, t, &result, &err);
    double seconds = oz_clock_seconds() - start;
    if (status != OZ_OK) {
        fail(b, t, status, &err);
        return;
    }
    pthread_mutex_lock(&b->lock);
    double pixel_s = seconds / ((double)t->task.width * t->task.height);
    b->stats.decode_s += seconds;
    b->pixel_s += (pixel_s - b->pixel_s) * (b->pixel_s > 0 ? SMOOTHING : 1);
    bool ends = !oz_ticket_has_ended(t);
    if (ends) {
        t->result = result;
        oz_batcher_end(b, t, OZ_TICKET_DONE, OZ_OK, NULL);
    }
    pthread_mutex_unlock(&b->lock);
    if (ends) {
        oz_batcher_tell(b, t->id);
    } else {
        b->options.discard(result);
    }
}

/* ---- the loop ---- */

/* A step, then what follows from it for each member. A failure ends those that were in it. */
static void advance(struct oz_batcher *b)
{
    struct oz_error err;
    enum oz_status status = step(b, &err);
    for (int32_t i = 0; i < b->member_count; i++) {
        struct oz_ticket *t = b->active[i];
        if (status != OZ_OK) {
            fail(b, t, status, &err);
            continue;
        }
        tell_step(b, t);
        if (t->sequence.step == t->task.steps) {
            deliver(b, t);
        }
    }
}

/* False: the service closes, and nothing runs. */
static bool wait_for_work(struct oz_batcher *b)
{
    pthread_mutex_lock(&b->lock);
    while (!b->closing && b->queued == 0 && b->active_count == 0) {
        pthread_cond_wait(&b->work, &b->lock);
    }
    bool goes_on = !b->closing || b->active_count > 0;
    pthread_mutex_unlock(&b->lock);
    return goes_on;
}

void *oz_batcher_thread(void *batcher)
{
    struct oz_batcher *b = batcher;
    while (wait_for_work(b)) {
        struct oz_ticket *t;
        oz_batcher_expire(b);
        drop_ended(b);
        while ((t = pick(b)) != NULL) {
            admit(b, t);
            drop_ended(b);
        }
        if (b->active_count > 0) {
            advance(b);
            drop_ended(b);
        }
    }
    return NULL;
}
