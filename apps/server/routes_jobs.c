/* routes_jobs.c: /v1/jobs: pictures that are handed in now and fetched later, watched and cancelled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

/* The job of that name, with the desk locked; NULL with the reply set. */
static struct sv_job *find(struct sv_app *app, struct sv_exchange *x, const struct sv_match *match)
{
    struct sv_job *job = sv_desk_find(app->desk, match->part[0], x->key);
    if (job == NULL) {
        sv_fail(x, 404, NULL, "not_found",
                "There is no job %.60s: it never was, was forgotten, or its time is over "
                "(--result-ttl).",
                match->part[0]);
    }
    return job;
}

SV_HANDLER(sv_jobs_post)
{
    char id[40], place[64];
    struct sv_text out = {0};
    (void)match;
    if (!sv_submit(app, x, SV_API_JOBS, true, NULL, id)) {
        return;
    }
    struct sv_job *job = sv_desk_find(app->desk, id, x->key);
    if (job != NULL) {
        sv_job_describe(app->desk, job, &out, NULL);
        sv_desk_unlock(app->desk);
    }
    (void)snprintf(place, sizeof place, "/v1/jobs/%s", id);
    sv_reply_header(x, "Location", place);
    sv_reply_json(x, 202, &out);
    if (x->status != 202 || x->lacks_memory) {
        /* Nobody will know of it. */
        job = sv_desk_find(app->desk, id, x->key);
        if (job != NULL) {
            sv_job_cancel(app->desk, job);
            sv_desk_unlock(app->desk);
        }
    }
}

struct list {
    struct sv_app *app;
    struct sv_text out;
};

static void list_one(void *ctx, struct sv_job *job)
{
    struct list *list = ctx;
    if (job->keep) {
        sv_job_describe(list->app->desk, job, &list->out, NULL);
    }
}

SV_HANDLER(sv_jobs_list)
{
    struct list list = {.app = app};
    (void)match;
    sv_json_open(&list.out, NULL, '{');
    sv_json_put_string(&list.out, "object", "list");
    sv_json_open(&list.out, "data", '[');
    sv_desk_each(app->desk, x->key, list_one, &list);
    sv_json_close(&list.out, ']');
    sv_json_close(&list.out, '}');
    sv_reply_json(x, 200, &list.out);
}

static void reply_job(struct sv_app *app, struct sv_exchange *x, struct sv_job *job)
{
    struct sv_text out = {0};
    sv_job_describe(app->desk, job, &out, NULL);
    sv_desk_unlock(app->desk);
    sv_reply_json(x, 200, &out);
}

SV_HANDLER(sv_jobs_get)
{
    struct sv_job *job = find(app, x, match);
    if (job != NULL) {
        reply_job(app, x, job);
    }
}

SV_HANDLER(sv_jobs_delete)
{
    struct sv_job *job = find(app, x, match);
    if (job == NULL) {
        return;
    }
    if (job->ended) {
        sv_job_drop(job);
    } else {
        sv_job_cancel(app->desk, job);
    }
    reply_job(app, x, job);
}

SV_HANDLER(sv_jobs_events)
{
    struct sv_job *job = find(app, x, match);
    if (job == NULL) {
        return;
    }
    sv_reply_header(x, "X-Accel-Buffering", "no");
    if (!sv_job_listen(app->desk, job, x)) {
        sv_fail(x, 503, NULL, "out_of_memory", "Out of memory.");
    }
    sv_desk_unlock(app->desk);
}

static void fail_running(struct sv_exchange *x)
{
    sv_reply_header(x, "Retry-After", "1");
    sv_fail(x, 409, NULL, "not_ready", "The job has not ended yet.");
}

SV_HANDLER(sv_jobs_result)
{
    struct sv_job *job = find(app, x, match);
    if (job == NULL) {
        return;
    }
    if (job->ended) {
        sv_finish_images(app, job, x, job->base);
    } else {
        fail_running(x);
    }
    sv_desk_unlock(app->desk);
}

/* Picture i of a job, by the second part of the path; NULL with the reply set. */
static const struct sv_picture *picture(struct sv_exchange *x, const struct sv_job *job,
                                        const struct sv_match *match)
{
    const char *text = match->part[1];
    size_t n = strspn(text, "0123456789");
    long i = n > 0 && n < 4 && text[n] == '\0' ? strtol(text, NULL, 10) : -1;
    if (i < 0 || i >= job->n) {
        sv_fail(x, 404, NULL, "not_found", "The job has pictures 0 to %d, not '%.20s'.", job->n - 1,
                text);
        return NULL;
    }
    return &job->pictures[i];
}

SV_HANDLER(sv_jobs_picture)
{
    struct sv_job *job = find(app, x, match);
    if (job == NULL) {
        return;
    }
    const struct sv_picture *p = picture(x, job, match);
    if (p != NULL && !p->ended) {
        fail_running(x);
    } else if (p != NULL && p->status != OZ_OK) {
        sv_finish_failed(app, x, job);
    } else if (p != NULL) {
        struct sv_text out = {0};
        sv_text_add(&out, p->file.data, p->file.bytes);
        sv_reply(x, 200, sv_format_type(job->ask.format), &out);
    }
    sv_desk_unlock(app->desk);
}

SV_HANDLER(sv_jobs_preview)
{
    struct sv_job *job = find(app, x, match);
    if (job == NULL) {
        return;
    }
    const struct sv_picture *p = picture(x, job, match);
    if (p != NULL && p->preview.bytes == 0) {
        sv_fail(x, 404, NULL, "no_preview",
                "There is no preview: none yet, none was asked for (preview_every), or the job has "
                "ended.");
    } else if (p != NULL) {
        struct sv_text out = {0};
        sv_text_add(&out, p->preview.data, p->preview.bytes);
        sv_reply(x, 200, p->preview_type, &out);
    }
    sv_desk_unlock(app->desk);
}
