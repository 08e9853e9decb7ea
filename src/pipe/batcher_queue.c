/* Tickets: how they come, wait, are told about, end and go. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "pipe/batcher_inner.h"

/* ---- one ticket ---- */

static void free_ticket(struct oz_batcher *b, struct oz_ticket *t)
{
    oz_sequence_deinit(&t->sequence, b->dev);
    if (t->result != NULL) {
        b->options.discard(t->result);
    }
    oz_free((char *)(uintptr_t)t->task.prompt);
    oz_free((char *)(uintptr_t)t->task.negative_prompt);
    oz_free(t->client);
    oz_free(t->preview);
    oz_free(t);
}

/* A ticket with a copy of all that the task points to. */
static enum oz_status make_ticket(struct oz_batcher *b, const struct oz_task *task,
                                  const struct oz_ticket_options *o, struct oz_ticket **out,
                                  struct oz_error *err)
{
    struct oz_ticket *t = oz_alloc_zero(1, sizeof *t);
    if (t == NULL) {
        return OZ_FAIL_NOMEM(err, "a request");
    }
    t->task = *task;
    t->task.prompt = oz_strdup(task->prompt);
    t->task.negative_prompt = oz_strdup(task->negative_prompt);
    t->client = oz_strdup(o->client);
    t->preview_every = o->preview_every;
    t->timeout = o->timeout_seconds;
    t->state = OZ_TICKET_QUEUED;
    enum oz_status status =
        t->task.prompt != NULL && t->task.negative_prompt != NULL && t->client != NULL
            ? oz_sequence_init(&t->sequence, b->p, &t->task, 0, err)
            : OZ_FAIL_NOMEM(err, "a request");
    if (status == OZ_OK) {
        status = oz_batcher_measure_ticket(b, t, err);
    }
    if (status != OZ_OK) {
        free_ticket(b, t);
        return status;
    }
    *out = t;
    return OZ_OK;
}

void oz_batcher_tell(const struct oz_batcher *b, uint64_t id)
{
    if (b->options.changed != NULL) {
        b->options.changed(b->options.changed_ctx, id);
    }
}

/* ---- under the lock ---- */

static struct oz_ticket *find(const struct oz_batcher *b, uint64_t id)
{
    struct oz_ticket *t = b->tickets;
    while (t != NULL && t->id != id) {
        t = t->next;
    }
    return t;
}

static enum oz_status find_or_fail(const struct oz_batcher *b, uint64_t id, struct oz_ticket **out,
                                   struct oz_error *err)
{
    *out = find(b, id);
    return *out != NULL ? OZ_OK
                        : OZ_FAIL(err, OZ_ERR_ARG,
                                  "There is no job %llu: it never was, or has been taken, or is "
                                  "forgotten (%d that have ended are kept).",
                                  (unsigned long long)id, b->options.max_ended);
}

/* Takes it out of the list, and frees it unless the thread is at it. */
static void forget(struct oz_batcher *b, struct oz_ticket *t)
{
    struct oz_ticket **at = &b->tickets;
    while (*at != t) {
        at = &(*at)->next;
    }
    *at = t->next;
    b->ended_count -= oz_ticket_has_ended(t);
    t->forgotten = true;
    if (!t->held) {
        free_ticket(b, t);
    }
}

static void forget_oldest(struct oz_batcher *b)
{
    struct oz_ticket *oldest = NULL;
    for (struct oz_ticket *t = b->tickets; t != NULL; t = t->next) {
        if (oz_ticket_has_ended(t) && (oldest == NULL || t->ended_s < oldest->ended_s)) {
            oldest = t;
        }
    }
    forget(b, oldest);
}

void oz_batcher_let_go(struct oz_batcher *b, struct oz_ticket *t)
{
    t->held = false;
    if (t->forgotten) {
        free_ticket(b, t);
    }
}

/* The end of the queue: behind its client's others, or with a turn of its own, the last. */
static void enqueue(struct oz_batcher *b, struct oz_ticket *t)
{
    struct oz_ticket **at = &b->tickets;
    t->ahead = 0;
    t->turn = 0;
    for (; *at != NULL; at = &(*at)->next) {
        if ((*at)->state == OZ_TICKET_QUEUED && strcmp((*at)->client, t->client) == 0) {
            t->turn = (*at)->turn;
            t->ahead++;
        }
    }
    if (t->turn == 0) {
        t->turn = ++b->last_turn;
    }
    *at = t;
    b->queued++;
}

void oz_batcher_dequeue(struct oz_batcher *b, struct oz_ticket *t)
{
    b->queued--;
    /* Served, its client goes behind all others; who only gives up his place does not. */
    uint64_t turn = t->ahead == 0 && !oz_ticket_has_ended(t) ? ++b->last_turn : t->turn;
    for (struct oz_ticket *u = b->tickets; u != NULL; u = u->next) {
        if (u != t && u->state == OZ_TICKET_QUEUED && strcmp(u->client, t->client) == 0) {
            u->turn = turn;
            u->ahead -= u->ahead > t->ahead;
        }
    }
}

struct oz_ticket *oz_batcher_next(const struct oz_batcher *b)
{
    struct oz_ticket *next = NULL;
    for (struct oz_ticket *t = b->tickets; t != NULL; t = t->next) {
        if (t->state == OZ_TICKET_QUEUED && t->ahead == 0 &&
            (next == NULL || t->turn < next->turn)) {
            next = t;
        }
    }
    return next;
}

/* Will `u` be served before `t`, if nobody else comes? */
static bool comes_before(const struct oz_ticket *u, const struct oz_ticket *t)
{
    return u->ahead < t->ahead || (u->ahead == t->ahead && u->turn < t->turn);
}

static void note_deadline(struct oz_batcher *b, const struct oz_ticket *t)
{
    if (t->timeout > 0) {
        b->next_deadline = fmin(b->next_deadline, t->submitted_s + t->timeout);
    }
}

void oz_batcher_end(struct oz_batcher *b, struct oz_ticket *t, enum oz_ticket_state state,
                    enum oz_status status, const struct oz_error *err)
{
    bool waits = t->state == OZ_TICKET_QUEUED;
    t->state = state;
    if (waits) {
        oz_batcher_dequeue(b, t);
    }
    t->ended_s = oz_clock_seconds();
    t->status = status;
    if (err != NULL) {
        t->error = *err;
    }
    b->stats.done += state == OZ_TICKET_DONE;
    b->stats.failed += state == OZ_TICKET_FAILED;
    b->stats.cancelled += state == OZ_TICKET_CANCELLED;
    b->ended_count++;
    while (b->ended_count > b->options.max_ended) {
        forget_oldest(b);
    }
    pthread_cond_broadcast(&b->ended);
}

static void cancel(struct oz_batcher *b, struct oz_ticket *t, const char *how)
{
    struct oz_error err;
    (void)OZ_FAIL(&err, OZ_ERR_CANCELLED, "The job was cancelled%s after %d of %d steps.", how,
                  t->step, t->task.steps);
    oz_batcher_end(b, t, OZ_TICKET_CANCELLED, OZ_ERR_CANCELLED, &err);
}

/* Ends the first that is late and returns its number; 0: none, and the next deadline is known. */
static uint64_t end_late(struct oz_batcher *b, double now)
{
    b->next_deadline = INFINITY;
    for (struct oz_ticket *t = b->tickets; t != NULL; t = t->next) {
        if (oz_ticket_has_ended(t) || t->timeout <= 0) {
            continue;
        }
        if (now >= t->submitted_s + t->timeout) {
            struct oz_error err;
            uint64_t id = t->id;
            (void)OZ_FAIL(&err, OZ_ERR_CANCELLED,
                          "The job took longer than its timeout of %g seconds: %d of %d steps were "
                          "done.",
                          t->timeout, t->step, t->task.steps);
            oz_batcher_end(b, t, OZ_TICKET_FAILED, OZ_ERR_CANCELLED, &err);
            return id;
        }
        note_deadline(b, t);
    }
    return 0;
}

void oz_batcher_expire(struct oz_batcher *b)
{
    double now = oz_clock_seconds();
    uint64_t id;
    do {
        id = 0;
        pthread_mutex_lock(&b->lock);
        if (now >= b->next_deadline) {
            id = end_late(b, now);
            b->next_deadline = id != 0 ? now : b->next_deadline; /* there may be more */
        }
        pthread_mutex_unlock(&b->lock);
        if (id != 0) {
            oz_batcher_tell(b, id);
        }
    } while (id != 0);
}

/* Some ticket that has not ended; 0: none. It ends. */
static uint64_t end_one(struct oz_batcher *b)
{
    struct oz_ticket *t = b->tickets;
    while (t != NULL && oz_ticket_has_ended(t)) {
        t = t->next;
    }
    if (t == NULL) {
        return 0;
    }
    uint64_t id = t->id;
    cancel(b, t, ", for the service is being closed,");
    return id;
}

void oz_batcher_end_all(struct oz_batcher *b)
{
    uint64_t id;
    do {
        pthread_mutex_lock(&b->lock);
        b->closing = true;
        id = end_one(b);
        pthread_cond_signal(&b->work);
        pthread_mutex_unlock(&b->lock);
        if (id != 0) {
            oz_batcher_tell(b, id);
        }
    } while (id != 0);
    pthread_mutex_lock(&b->lock);
    while (b->waiters > 0) {
        pthread_cond_wait(&b->ended, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

void oz_batcher_free_tickets(struct oz_batcher *b)
{
    while (b->tickets != NULL) {
        struct oz_ticket *next = b->tickets->next;
        free_ticket(b, b->tickets);
        b->tickets = next;
    }
}

/* ---- submitting ---- */

static enum oz_status check(const struct oz_batcher *b, const struct oz_task *tasks, int32_t count,
                            const struct oz_ticket_options *o, struct oz_error *err)
{
    if (o->preview_every < 0 || !isfinite(o->timeout_seconds) || o->timeout_seconds < 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Previews every %d steps and a timeout of %g seconds: both must be finite "
                       "and not negative (0: none).",
                       o->preview_every, o->timeout_seconds);
    }
    for (int32_t i = 0; i < count; i++) {
        const struct oz_task *t = &tasks[i];
        if ((int64_t)t->width * t->height > b->options.max_pixels) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "A picture of %d x %d has %lld pixels; this service draws at most %lld. "
                           "Ask for a smaller one.",
                           t->width, t->height, (long long)t->width * t->height,
                           (long long)b->options.max_pixels);
        }
    }
    return OZ_OK;
}

/* Those that are being served; not those that have ended and are on their way out of the batch. */
static int32_t running(const struct oz_batcher *b)
{
    int32_t count = 0;
    for (const struct oz_ticket *t = b->tickets; t != NULL; t = t->next) {
        count += t->state != OZ_TICKET_QUEUED && !oz_ticket_has_ended(t);
    }
    return count;
}

/* The lock is held. */
static enum oz_status check_room(struct oz_batcher *b, int32_t count, struct oz_error *err)
{
    if (b->closing) {
        return OZ_FAIL(err, OZ_ERR_CANCELLED, "The service is being closed.");
    }
    int32_t idle = b->options.max_num_seqs - running(b); /* who gets these hardly waits */
    if (count > b->options.max_queue + idle - b->queued) {
        return OZ_FAIL(
            err, OZ_ERR_BUSY,
            "The queue is full: %d pictures run, %d wait and at most %d may, and %d more "
            "were asked for. Try again later.",
            running(b), b->queued, b->options.max_queue, count);
    }
    return OZ_OK;
}

/* Queues all of a list, which is empty afterwards, or none. */
static enum oz_status enqueue_all(struct oz_batcher *b, struct oz_ticket **list, int32_t count,
                                  uint64_t *ids, struct oz_error *err)
{
    pthread_mutex_lock(&b->lock);
    enum oz_status status = check_room(b, count, err);
    double now = oz_clock_seconds();
    for (int32_t i = 0; status == OZ_OK && *list != NULL; i++) {
        struct oz_ticket *t = *list;
        *list = t->next;
        t->next = NULL;
        t->submitted_s = now;
        t->id = ids[i] = ++b->last_id;
        enqueue(b, t);
        note_deadline(b, t);
        b->stats.submitted++;
    }
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* The submit lock is held. */
static enum oz_status submit(struct oz_batcher *b, const struct oz_task *tasks, int32_t count,
                             const struct oz_ticket_options *o, uint64_t *ids, struct oz_error *err)
{
    struct oz_ticket *list = NULL;
    struct oz_ticket **end = &list;
    pthread_mutex_lock(&b->lock); /* before anything is computed: a full queue is refused cheaply */
    enum oz_status status = check_room(b, count, err);
    pthread_mutex_unlock(&b->lock);
    for (int32_t i = 0; i < count && status == OZ_OK; i++) {
        status = make_ticket(b, &tasks[i], o, end, err);
        if (status == OZ_OK) {
            end = &(*end)->next;
        }
    }
    if (status == OZ_OK) {
        status = enqueue_all(b, &list, count, ids, err);
    }
    while (list != NULL) {
        struct oz_ticket *next = list->next;
        free_ticket(b, list);
        list = next;
    }
    return status;
}

enum oz_status oz_batcher_submit(struct oz_batcher *b, const struct oz_task *tasks, int32_t count,
                                 const struct oz_ticket_options *options, uint64_t *ids,
                                 struct oz_error *err)
{
    OZ_TRY(check(b, tasks, count, options, err));
    pthread_mutex_lock(&b->submit_lock);
    enum oz_status status = submit(b, tasks, count, options, ids, err);
    pthread_mutex_unlock(&b->submit_lock);
    if (status == OZ_ERR_BUSY || status == OZ_ERR_NOMEM) {
        pthread_mutex_lock(&b->lock);
        b->stats.refused += count;
        pthread_mutex_unlock(&b->lock);
    }
    for (int32_t i = 0; i < count && status == OZ_OK; i++) {
        oz_batcher_tell(b, ids[i]);
    }
    return status;
}

/* ---- telling ---- */

/* Seconds until it is done: what is before it, and itself, at the rate of the steps so far. */
static double seconds_left(const struct oz_batcher *b, const struct oz_ticket *t)
{
    double rows = 0;
    double pixels = 0;
    if (b->row_s <= 0) {
        return -1;
    }
    for (const struct oz_ticket *u = b->tickets; u != NULL; u = u->next) {
        bool runs = u->state != OZ_TICKET_QUEUED;
        if (oz_ticket_has_ended(u) || (!runs && u != t && t->state != OZ_TICKET_QUEUED) ||
            (!runs && u != t && !comes_before(u, t))) {
            continue;
        }
        /* Those that run with it share its steps, but only as long as both have some. */
        int32_t left = u->task.steps - u->step;
        int32_t mine = t->task.steps - t->step;
        bool together = runs && t->state != OZ_TICKET_QUEUED;
        rows += (double)u->rows * (together && mine < left ? mine : left);
        pixels += together && mine < left ? 0 : (double)u->task.width * u->task.height;
    }
    return rows * b->row_s + pixels * b->pixel_s;
}

static void tell_status(const struct oz_batcher *b, const struct oz_ticket *t,
                        struct oz_ticket_status *s)
{
    double now = oz_ticket_has_ended(t) ? t->ended_s : oz_clock_seconds();
    bool started = t->started_s > 0;
    *s =
        (struct oz_ticket_status){.state = t->state,
                                  .step = t->step,
                                  .steps = t->task.steps,
                                  .preview = t->preview_number,
                                  .width = t->task.width,
                                  .height = t->task.height,
                                  .seed = t->task.seed,
                                  .queued_seconds = (started ? t->started_s : now) - t->submitted_s,
                                  .running_seconds = started ? now - t->started_s : 0};
    if (t->state == OZ_TICKET_QUEUED) {
        s->position = 1;
        for (const struct oz_ticket *u = b->tickets; u != NULL; u = u->next) {
            s->position += u->state == OZ_TICKET_QUEUED && comes_before(u, t);
        }
    }
    s->seconds_left = oz_ticket_has_ended(t) ? 0 : seconds_left(b, t);
}

enum oz_status oz_batcher_status(struct oz_batcher *b, uint64_t id, struct oz_ticket_status *status,
                                 struct oz_error *err)
{
    struct oz_ticket *t;
    *status = (struct oz_ticket_status){0};
    pthread_mutex_lock(&b->lock);
    enum oz_status found = find_or_fail(b, id, &t, err);
    if (found == OZ_OK) {
        tell_status(b, t, status);
    }
    pthread_mutex_unlock(&b->lock);
    return found;
}

enum oz_status oz_batcher_cancel(struct oz_batcher *b, uint64_t id, struct oz_error *err)
{
    struct oz_ticket *t;
    bool ends = false;
    pthread_mutex_lock(&b->lock);
    enum oz_status found = find_or_fail(b, id, &t, err);
    if (found == OZ_OK && !oz_ticket_has_ended(t)) {
        ends = true;
        cancel(b, t, "");
    }
    pthread_mutex_unlock(&b->lock);
    if (ends) {
        oz_batcher_tell(b, id);
    }
    return found;
}

enum oz_status oz_batcher_wait(struct oz_batcher *b, uint64_t id, double seconds,
                               struct oz_error *err)
{
    struct oz_ticket *t;
    struct timespec until = {0};
    bool bounded = seconds >= 0 && seconds < 1e8; /* three years */
    if (bounded) {
        double end = oz_clock_seconds() + seconds;
        until.tv_sec = (time_t)end;
        until.tv_nsec = (long)((end - (double)until.tv_sec) * 1e9);
    }
    pthread_mutex_lock(&b->lock);
    b->waiters++;
    enum oz_status found = find_or_fail(b, id, &t, err);
    int timed = 0;
    while (found == OZ_OK && !oz_ticket_has_ended(t) && timed != ETIMEDOUT) {
        timed = bounded ? pthread_cond_timedwait(&b->ended, &b->lock, &until)
                        : pthread_cond_wait(&b->ended, &b->lock);
        found = find_or_fail(b, id, &t, err);
    }
    b->waiters--;
    if (b->closing) {
        pthread_cond_broadcast(&b->ended);
    }
    pthread_mutex_unlock(&b->lock);
    return found;
}

/* The lock is held. */
static enum oz_status take(struct oz_batcher *b, uint64_t id, void **result, struct oz_error *err)
{
    struct oz_ticket *t;
    OZ_TRY(find_or_fail(b, id, &t, err));
    if (!oz_ticket_has_ended(t)) {
        return OZ_FAIL(err, OZ_ERR_BUSY, "Job %llu has not ended; wait for it, or cancel it.",
                       (unsigned long long)id);
    }
    enum oz_status status = t->status;
    if (status != OZ_OK && err != NULL) {
        *err = t->error;
    }
    *result = t->result;
    t->result = NULL;
    forget(b, t);
    return status;
}

enum oz_status oz_batcher_take(struct oz_batcher *b, uint64_t id, void **result,
                               struct oz_error *err)
{
    *result = NULL;
    pthread_mutex_lock(&b->lock);
    enum oz_status status = take(b, id, result, err);
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* The lock is held. */
static enum oz_status copy_preview(const struct oz_ticket *t, float **picture, int32_t *width,
                                   int32_t *height, int32_t *number, struct oz_error *err)
{
    if (t->preview == NULL) {
        return OZ_OK;
    }
    size_t bytes = 3 * (size_t)t->preview_width * (size_t)t->preview_height * sizeof(float);
    *picture = oz_alloc(bytes);
    if (*picture == NULL) {
        return OZ_FAIL_NOMEM(err, "a preview");
    }
    memcpy(*picture, t->preview, bytes);
    *width = t->preview_width;
    *height = t->preview_height;
    *number = t->preview_number;
    return OZ_OK;
}

enum oz_status oz_batcher_preview(struct oz_batcher *b, uint64_t id, float **picture,
                                  int32_t *width, int32_t *height, int32_t *number,
                                  struct oz_error *err)
{
    struct oz_ticket *t;
    *picture = NULL;
    *width = *height = *number = 0;
    pthread_mutex_lock(&b->lock);
    enum oz_status status = find_or_fail(b, id, &t, err);
    if (status == OZ_OK) {
        status = copy_preview(t, picture, width, height, number, err);
    }
    pthread_mutex_unlock(&b->lock);
    return status;
}

void oz_batcher_stats(struct oz_batcher *b, struct oz_batcher_stats *stats)
{
    pthread_mutex_lock(&b->lock);
    *stats = b->stats;
    stats->queued = b->queued;
    stats->running = running(b);
    pthread_mutex_unlock(&b->lock);
}
