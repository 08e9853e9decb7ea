/*
 * jobs.c: the desk. Locks, in this order: desk->lock (jobs), http's own; desk->changes_lock (the list of
 * jobs that the service has news of) stands alone, for the service calls from anywhere.
 */
#include "jobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/words.h"
#include "desk.h"
#include "json.h"

enum {
    KEPT_BYTES = 256 * 1024 * 1024, /* of results; the oldest go first */
    KEPT_JOBS = 1024,               /* that have ended */
    TICK_MS = 500,
    KEEP_ALIVE_TICKS = 30, /* between comments in a silent stream */
    PREVIEW_QUALITY = 80,
};

/* ---- changes ---- */

void sv_desk_changed(void *ctx, uint64_t id)
{
    struct sv_desk *desk = ctx;
    pthread_mutex_lock(&desk->changes_lock);
    size_t i = 0;
    while (i < desk->change_count && desk->changes[i] != id) {
        i++;
    }
    if (i == desk->change_count && i == desk->change_room) {
        size_t room = 2 * i + 64;
        uint64_t *changes = reallocarray(desk->changes, room, sizeof *changes);
        if (changes == NULL) {
            desk->lost = true;
        } else {
            desk->changes = changes;
            desk->change_room = room;
        }
    }
    if (i == desk->change_count && i < desk->change_room) {
        desk->changes[desk->change_count++] = id;
    }
    pthread_cond_signal(&desk->changed);
    pthread_mutex_unlock(&desk->changes_lock);
}

/* The next change; 0: none came within a tick. *look_at_all, *stop: what else is to be done. */
static uint64_t next_change(struct sv_desk *desk, double until_s, bool *look_at_all, bool *stop)
{
    struct timespec until = {.tv_sec = (time_t)until_s};
    until.tv_nsec = (long)((until_s - (double)until.tv_sec) * 1e9);
    uint64_t id = 0;
    pthread_mutex_lock(&desk->changes_lock);
    int code = 0;
    while (desk->change_count == 0 && !desk->stopping && !desk->lost && code == 0) {
        code = pthread_cond_timedwait(&desk->changed, &desk->changes_lock, &until);
    }
    if (desk->change_count > 0) {
        id = desk->changes[0];
        desk->change_count--;
        memmove(desk->changes, desk->changes + 1, desk->change_count * sizeof id);
    }
    *look_at_all = desk->lost;
    desk->lost = false;
    *stop = desk->stopping;
    pthread_mutex_unlock(&desk->changes_lock);
    return id;
}

/* ---- jobs, with the desk locked ---- */

void sv_job_free(struct sv_desk *desk, struct sv_job *job)
{
    if (job->last != NULL || desk->jobs == job) {
        *(job->last != NULL ? &job->last->next : &desk->jobs) = job->next;
        if (job->next != NULL) {
            job->next->last = job->last;
        }
    }
    if (job->ended && job->keep) {
        desk->kept_jobs--;
    }
    for (int i = 0; i < job->n; i++) {
        struct sv_picture *p = &job->pictures[i];
        if (job->ended && job->keep) {
            desk->kept_bytes -= (int64_t)p->file.bytes;
        }
        free(p->error);
        sv_text_free(&p->file);
        sv_text_free(&p->preview);
    }
    for (size_t i = 0; i < job->listener_count; i++) {
        sv_release(job->listeners[i]);
    }
    free(job->listeners);
    sv_release(job->waiter);
    sv_ask_free(&job->ask);
    free(job);
}

void sv_job_cancel(struct sv_desk *desk, struct sv_job *job)
{
    if (job->ended) {
        return;
    }
    job->cancelled = true;
    for (int i = 0; i < job->n; i++) {
        struct sv_picture *p = &job->pictures[i];
        if (!p->ended && p->id != 0 && oz_service_cancel(desk->service, p->id, NULL) != OZ_OK) {
            sv_desk_changed(desk, p->id); /* it has gone: let the thread find out */
        }
    }
}

/* ---- events ---- */

static void send(struct sv_job *job, const struct sv_text *event)
{
    for (size_t i = 0; i < job->listener_count && !event->failed; i++) {
        (void)sv_stream_write(job->listeners[i], event->data, event->bytes);
    }
}

static void send_progress(struct sv_desk *desk, struct sv_job *job)
{
    if (job->listener_count == 0) {
        return;
    }
    struct sv_text event = {0};
    sv_text_put(&event, job->ended ? "event: end\ndata: " : "event: progress\ndata: ");
    sv_job_describe(desk, job, &event, NULL);
    sv_text_put(&event, "\n\n");
    send(job, &event);
    sv_text_free(&event);
}

static void put_preview(const struct sv_job *job, int i, struct sv_text *event)
{
    const struct sv_picture *p = &job->pictures[i];
    sv_text_put(event, "event: preview\ndata: ");
    sv_json_open(event, NULL, '{');
    sv_json_put_string(event, "id", job->id);
    sv_json_put_integer(event, "index", i);
    sv_json_put_integer(event, "number", p->preview_number);
    sv_json_put_string(event, "type", p->preview_type);
    sv_json_put_base64(event, "b64_json", p->preview.data, p->preview.bytes);
    sv_json_close(event, '}');
    sv_text_put(event, "\n\n");
}

static void end_streams(struct sv_job *job)
{
    for (size_t i = 0; i < job->listener_count; i++) {
        sv_stream_end(job->listeners[i]);
        sv_release(job->listeners[i]);
    }
    job->listener_count = 0;
}

static void listener_gone(void *ctx, struct sv_exchange *x)
{
    struct sv_desk *desk = ctx;
    pthread_mutex_lock(&desk->lock);
    for (struct sv_job *job = desk->jobs; job != NULL; job = job->next) {
        for (size_t i = 0; i < job->listener_count; i++) {
            if (job->listeners[i] == x) {
                job->listeners[i] = job->listeners[--job->listener_count];
                sv_release(x);
            }
        }
    }
    pthread_mutex_unlock(&desk->lock);
}

bool sv_job_listen(struct sv_desk *desk, struct sv_job *job, struct sv_exchange *x)
{
    struct sv_text event = {0};
    struct sv_exchange **listeners =
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers is meant */
        reallocarray(job->listeners, job->listener_count + 1, sizeof *listeners);
    if (listeners == NULL) {
        return false;
    }
    job->listeners = listeners;
    sv_text_put(&event, job->ended ? "event: end\ndata: " : "event: progress\ndata: ");
    sv_job_describe(desk, job, &event, NULL);
    sv_text_put(&event, "\n\n");
    for (int i = 0; i < job->n && !job->ended; i++) {
        if (job->pictures[i].preview_number > 0) {
            put_preview(job, i, &event);
        }
    }
    if (event.failed) {
        sv_text_free(&event);
        return false;
    }
    if (!sv_stream_begin(x, "text/event-stream", &event, listener_gone, desk)) {
        return true; /* it has its reply */
    }
    if (job->ended) {
        sv_stream_end(x);
        sv_release(x);
    } else {
        job->listeners[job->listener_count++] = x;
    }
    return true;
}

/* ---- the thread ---- */

static enum oz_status encode(const struct oz_image *image, const struct sv_ask *ask,
                             struct sv_text *file, struct oz_error *err)
{
    struct oz_encode_options options;
    oz_encode_options_default(&options);
    options.format = ask->format == SV_FORMAT_JPEG   ? OZ_IMAGE_JPEG
                     : ask->format == SV_FORMAT_WEBP ? OZ_IMAGE_WEBP
                                                     : OZ_IMAGE_PNG;
    options.no_metadata = ask->no_metadata;
    if (options.format != OZ_IMAGE_PNG && ask->quality >= 0) {
        options.quality = ask->quality > 0 ? ask->quality : 1;
    }
    enum oz_status status = oz_image_encode(image, &options, sv_text_write, file, err);
    if (file->failed) {
        err->code = status = OZ_ERR_NOMEM;
        (void)snprintf(err->message, sizeof err->message, "Out of memory for the picture's file.");
    }
    return status;
}

/* A small picture for the eye: JPEG where this build has it. */
static const char *encode_preview(const struct oz_image *image, struct sv_text *file)
{
    struct oz_encode_options options;
    oz_encode_options_default(&options);
    options.no_metadata = 1;
    options.format = OZ_IMAGE_JPEG;
    options.quality = PREVIEW_QUALITY;
    if (oz_image_encode(image, &options, sv_text_write, file, NULL) == OZ_OK && !file->failed) {
        return "image/jpeg";
    }
    sv_text_free(file);
    options.format = OZ_IMAGE_PNG;
    options.quality = 0;
    enum oz_status status = oz_image_encode(image, &options, sv_text_write, file, NULL);
    return status == OZ_OK && !file->failed ? "image/png" : NULL;
}

static struct sv_job *find_picture(struct sv_desk *desk, uint64_t id, int *index)
{
    for (struct sv_job *job = desk->jobs; job != NULL; job = job->next) {
        for (int i = 0; i < job->n; i++) {
            if (job->pictures[i].id == id) {
                *index = i;
                return job;
            }
        }
    }
    return NULL;
}

/* The last picture has ended: tells everybody. */
static void finish(struct sv_desk *desk, struct sv_job *job)
{
    job->ended = true;
    job->ended_s = words_seconds();
    if (job->keep) {
        desk->kept_jobs++;
        for (int i = 0; i < job->n; i++) {
            desk->kept_bytes += (int64_t)job->pictures[i].file.bytes;
            sv_text_free(&job->pictures[i].preview);
        }
    }
    send_progress(desk, job);
    end_streams(job);
    if (job->waiter != NULL) {
        if (sv_claim(job->waiter)) {
            job->finish(desk->options.finish_ctx, job, job->waiter);
            sv_unpark(job->waiter);
        }
        sv_release(job->waiter);
        job->waiter = NULL;
    }
    if (!job->keep) {
        sv_job_free(desk, job);
    }
}

/* A picture has ended. The desk is unlocked while its file is made. */
static void picture_ended(struct sv_desk *desk, struct sv_job *job, struct sv_picture *p)
{
    struct oz_error err = {0};
    struct oz_image *image = NULL;
    struct sv_text file = {0};
    enum oz_status status = oz_service_take(desk->service, p->id, &image, &err);
    if (status == OZ_OK && job->waiter == NULL && !job->keep) {
        oz_image_destroy(&image); /* nobody wants it */
    }
    if (image != NULL) {
        pthread_mutex_unlock(&desk->lock);
        status = encode(image, &job->ask, &file, &err);
        oz_image_destroy(&image);
        pthread_mutex_lock(&desk->lock);
    }
    p->id = 0;
    p->ended = true;
    p->status = status;
    p->file = file;
    if (status != OZ_OK) {
        p->error = sv_copy(err.message);
        sv_text_free(&p->file);
        bool cancelled = job->cancelled;
        sv_job_cancel(desk, job); /* the others of a request that failed are of no use */
        job->cancelled = cancelled;
    } else if (job->ask.answer == SV_ANSWER_URL && !sv_random_id(p->file_id)) {
        p->file_id[0] = '\0';
    }
    bool all = true;
    for (int i = 0; i < job->n; i++) {
        all = all && job->pictures[i].ended;
    }
    if (all) {
        finish(desk, job);
    } else {
        send_progress(desk, job);
    }
}

static void update_preview(struct sv_desk *desk, struct sv_job *job, int i)
{
    struct sv_picture *p = &job->pictures[i];
    struct oz_image *image = NULL;
    struct sv_text file = {0};
    int32_t number = 0;
    if (oz_service_preview(desk->service, p->id, &image, &number, NULL) != OZ_OK || image == NULL) {
        return;
    }
    pthread_mutex_unlock(&desk->lock);
    const char *type = encode_preview(image, &file);
    oz_image_destroy(&image);
    pthread_mutex_lock(&desk->lock);
    if (type == NULL) {
        sv_text_free(&file);
        return;
    }
    sv_text_free(&p->preview);
    p->preview = file;
    p->preview_number = number;
    p->preview_type = type;
    if (job->listener_count > 0) {
        struct sv_text event = {0};
        put_preview(job, i, &event);
        send(job, &event);
        sv_text_free(&event);
    }
}

static void update(struct sv_desk *desk, uint64_t id)
{
    int i = 0;
    struct sv_job *job = find_picture(desk, id, &i);
    if (job == NULL) {
        return;
    }
    struct sv_picture *p = &job->pictures[i];
    struct oz_job_status now = {.struct_size = sizeof now};
    if (oz_service_status(desk->service, id, &now, NULL) == OZ_OK) {
        p->now = now;
    } else {
        p->now.state = OZ_JOB_FAILED; /* forgotten: oz_service_take says so */
    }
    if (p->now.state >= OZ_JOB_DONE) {
        picture_ended(desk, job, p);
        return;
    }
    if (p->now.preview > p->preview_number) {
        update_preview(desk, job, i);
    }
    send_progress(desk, job);
}

/* Forgets what is over its time or too much; the oldest stand last. */
static void expire(struct sv_desk *desk)
{
    double now = words_seconds();
    struct sv_job *job = desk->jobs;
    while (job != NULL && job->next != NULL) {
        job = job->next;
    }
    while (job != NULL) {
        struct sv_job *newer = job->last;
        bool over = now - job->ended_s > desk->options.result_ttl ||
                    desk->kept_bytes > KEPT_BYTES || desk->kept_jobs > KEPT_JOBS;
        if (job->ended && (over || job->dropped)) {
            sv_job_free(desk, job);
        }
        job = newer;
    }
}

/* What no change of a job's own brings: its place in the queue, and that we are still here. */
static void tick(struct sv_desk *desk, unsigned count)
{
    for (struct sv_job *job = desk->jobs; job != NULL; job = job->next) {
        if (job->listener_count > 0 && strcmp(sv_job_status(job), "queued") == 0) {
            send_progress(desk, job);
        } else if (job->listener_count > 0 && count % KEEP_ALIVE_TICKS == 0) {
            struct sv_text comment = {0};
            sv_text_put(&comment, ": still here\n\n");
            send(job, &comment);
            sv_text_free(&comment);
        }
    }
    expire(desk);
}

/* Of pictures that have not been taken, that with the least id above this one; 0: none. */
static uint64_t id_after(const struct sv_desk *desk, uint64_t id)
{
    uint64_t least = 0;
    for (const struct sv_job *job = desk->jobs; job != NULL; job = job->next) {
        for (int i = 0; i < job->n; i++) {
            uint64_t other = job->pictures[i].id;
            least = other > id && (least == 0 || other < least) ? other : least;
        }
    }
    return least;
}

/* Without a list: there is no memory for one, and an update may free its job. */
static void look_at_all(struct sv_desk *desk)
{
    for (uint64_t id = id_after(desk, 0); id != 0; id = id_after(desk, id)) {
        update(desk, id);
    }
}

static void *work(void *arg)
{
    struct sv_desk *desk = arg;
    double next_s = words_seconds() + TICK_MS * 1e-3;
    unsigned ticks = 0;
    for (bool stop = false; !stop;) {
        bool all = false;
        uint64_t id = next_change(desk, next_s, &all, &stop);
        pthread_mutex_lock(&desk->lock);
        if (id != 0) {
            update(desk, id);
        }
        if (all) {
            look_at_all(desk);
        }
        if (words_seconds() >= next_s) {
            tick(desk, ++ticks);
            next_s = words_seconds() + TICK_MS * 1e-3;
        }
        pthread_mutex_unlock(&desk->lock);
    }
    return NULL;
}

/* ---- asking ---- */

struct sv_job *sv_desk_find(struct sv_desk *desk, const char *id, int key)
{
    pthread_mutex_lock(&desk->lock);
    for (struct sv_job *job = desk->jobs; job != NULL; job = job->next) {
        if (strcmp(job->id, id) == 0 && job->key == key && !job->dropped) {
            return job;
        }
    }
    pthread_mutex_unlock(&desk->lock);
    return NULL;
}

void sv_desk_unlock(struct sv_desk *desk)
{
    pthread_mutex_unlock(&desk->lock);
}

void sv_desk_each(struct sv_desk *desk, int key, void (*each)(void *ctx, struct sv_job *job),
                  void *ctx)
{
    pthread_mutex_lock(&desk->lock);
    for (struct sv_job *job = desk->jobs; job != NULL; job = job->next) {
        if (job->key == key && !job->dropped) {
            each(ctx, job);
        }
    }
    pthread_mutex_unlock(&desk->lock);
}

void sv_job_drop(struct sv_job *job)
{
    job->dropped = job->ended;
}

bool sv_desk_file(struct sv_desk *desk, const char *file_id, struct sv_text *out, const char **type)
{
    bool found = false;
    pthread_mutex_lock(&desk->lock);
    for (struct sv_job *job = desk->jobs; job != NULL && !found; job = job->next) {
        for (int i = 0; i < job->n && !found; i++) {
            const struct sv_picture *p = &job->pictures[i];
            found = job->ended && !job->dropped && p->file_id[0] != '\0' &&
                    strcmp(p->file_id, file_id) == 0 &&
                    words_seconds() - job->ended_s <= desk->options.result_ttl;
            if (found) {
                sv_text_add(out, p->file.data, p->file.bytes);
                *type = sv_format_type(job->ask.format);
            }
        }
    }
    pthread_mutex_unlock(&desk->lock);
    return found;
}

int sv_desk_cancel_all(struct sv_desk *desk, bool all)
{
    int left = 0;
    pthread_mutex_lock(&desk->lock);
    for (struct sv_job *job = desk->jobs; job != NULL; job = job->next) {
        left += !job->ended;
        if (!job->ended && (all || strcmp(sv_job_status(job), "queued") == 0)) {
            sv_job_cancel(desk, job);
        }
    }
    pthread_mutex_unlock(&desk->lock);
    return left;
}

void sv_desk_kept(struct sv_desk *desk, int64_t *bytes, int64_t *jobs)
{
    pthread_mutex_lock(&desk->lock);
    *bytes = desk->kept_bytes;
    *jobs = desk->kept_jobs;
    pthread_mutex_unlock(&desk->lock);
}

int64_t sv_desk_refused(struct sv_desk *desk)
{
    pthread_mutex_lock(&desk->lock);
    int64_t refused = desk->refused;
    pthread_mutex_unlock(&desk->lock);
    return refused;
}

/* ---- life ---- */

struct sv_desk *sv_desk_open(const struct sv_desk_options *options)
{
    struct sv_desk *desk = calloc(1, sizeof *desk);
    pthread_condattr_t attributes;
    if (desk == NULL) {
        return NULL;
    }
    desk->options = *options;
    (void)pthread_mutex_init(&desk->lock, NULL);
    (void)pthread_mutex_init(&desk->changes_lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&desk->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    desk->runs = pthread_create(&desk->thread, NULL, work, desk) == 0;
    if (!desk->runs) {
        sv_desk_close(&desk);
    }
    return desk;
}

void sv_desk_serve(struct sv_desk *desk, struct oz_service *service)
{
    pthread_mutex_lock(&desk->lock);
    desk->service = service;
    pthread_mutex_unlock(&desk->lock);
}

void sv_desk_stop(struct sv_desk *desk)
{
    if (desk == NULL || !desk->runs) {
        return;
    }
    pthread_mutex_lock(&desk->changes_lock);
    desk->stopping = true;
    pthread_cond_signal(&desk->changed);
    pthread_mutex_unlock(&desk->changes_lock);
    (void)pthread_join(desk->thread, NULL);
    desk->runs = false;
}

void sv_desk_close(struct sv_desk **slot)
{
    struct sv_desk *desk = *slot;
    if (desk == NULL) {
        return;
    }
    *slot = NULL;
    sv_desk_stop(desk);
    while (desk->jobs != NULL) {
        sv_job_free(desk, desk->jobs);
    }
    free(desk->changes);
    (void)pthread_cond_destroy(&desk->changed);
    (void)pthread_mutex_destroy(&desk->changes_lock);
    (void)pthread_mutex_destroy(&desk->lock);
    free(desk);
}
