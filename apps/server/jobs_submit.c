/* jobs_submit.c: handing in a job: its requests, whose share it is of, and the words of a refusal. */
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/words.h"
#include "desk.h"

static void waiter_gone(void *ctx, struct sv_exchange *x)
{
    struct sv_desk *desk = ctx;
    pthread_mutex_lock(&desk->lock);
    for (struct sv_job *job = desk->jobs; job != NULL; job = job->next) {
        if (job->waiter == x) {
            job->waiter = NULL;
            sv_job_cancel(desk, job);
            sv_release(x);
            break;
        }
    }
    pthread_mutex_unlock(&desk->lock);
}

static void fill_requests(const struct sv_ask *ask, struct oz_image_request *requests)
{
    for (int32_t i = 0; i < ask->n; i++) {
        struct oz_image_request *r = &requests[i];
        oz_image_request_default(r);
        r->prompt = ask->prompt;
        r->negative_prompt = ask->negative_prompt;
        r->width = ask->width;
        r->height = ask->height;
        r->num_inference_steps = ask->steps;
        if (ask->guidance >= 0) {
            r->true_cfg_scale = ask->guidance > 1 ? ask->guidance : 1; /* 1: off */
        }
        r->seed = (uint64_t)ask->seed + (uint64_t)i;
    }
}

/* How long it may take until the queue has room, from what pictures took so far. */
static int guess_wait(struct sv_desk *desk)
{
    struct oz_service_stats stats = {.struct_size = sizeof stats};
    if (oz_service_stats_read(desk->service, &stats, NULL) != OZ_OK || stats.done == 0) {
        return 1;
    }
    double each =
        (stats.step_seconds + stats.text_seconds + stats.decode_seconds) / (double)stats.done;
    double seconds = ceil(each * (stats.queued + stats.running) / 4);
    return seconds < 1 ? 1 : seconds > 60 ? 60 : (int)seconds;
}

static bool fail_submit(const struct oz_error *err, struct sv_problem *problem)
{
    switch (err->code) {
    case OZ_ERR_ARG:
        problem->status = 400;
        problem->code = "invalid_value";
        break;
    case OZ_ERR_BUSY:
        problem->status = 429;
        problem->code = "queue_full";
        break;
    case OZ_ERR_NOMEM:
        problem->status = 507;
        problem->code = "insufficient_memory";
        break;
    case OZ_ERR_UNSUPPORTED:
        problem->status = 400;
        problem->code = "unsupported_value";
        break;
    default:
        problem->status = 500;
        problem->code = "internal_error";
        break;
    }
    (void)snprintf(problem->message, sizeof problem->message, "%s", err->message);
    return false;
}

void sv_host_of(const char *peer, unsigned char host[16])
{
    struct in_addr v4;
    memset(host, 0, 16);
    if (inet_pton(AF_INET, peer, &v4) == 1) {
        host[10] = host[11] = 0xff; /* as it is mapped into IPv6 */
        memcpy(host + 12, &v4, 4);
    } else if (inet_pton(AF_INET6, peer, host) == 1 &&
               !IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)host)) {
        memset(host + 8, 0, 8);
    }
}

/* May the host of this job, which is not in the list yet, have its pictures too? With the desk locked. */
static bool check_share(const struct sv_desk *desk, const struct sv_job *job,
                        struct sv_problem *problem)
{
    int most = desk->options.max_per_client, others = 0;
    unsigned char mine[16], host[16];
    if (most == 0) {
        return true;
    }
    sv_host_of(job->peer, mine);
    for (const struct sv_job *other = desk->jobs; other != NULL; other = other->next) {
        sv_host_of(other->peer, host);
        for (int i = 0; i < other->n && memcmp(host, mine, sizeof host) == 0; i++) {
            others += !other->pictures[i].ended;
        }
    }
    if (job->n <= most && others <= most - job->n) {
        return true;
    }
    *problem = (struct sv_problem){.status = 429, .code = "rate_limit_exceeded"};
    if (job->n > most) {
        problem->status = 400;
        problem->code = "invalid_value";
        (void)snprintf(problem->param, sizeof problem->param, "n");
        (void)snprintf(problem->message, sizeof problem->message,
                       "%d pictures at once: one address may have %d at a time here "
                       "(--max-per-client).",
                       job->n, most);
        return false;
    }
    (void)snprintf(problem->message, sizeof problem->message,
                   "%d pictures of your address wait or are being drawn, and it may have %d at a "
                   "time (--max-per-client): wait for one to end, or cancel one.",
                   others, most);
    return false;
}

static bool fail_memory(struct sv_problem *problem)
{
    struct oz_error err = {.code = OZ_ERR_NOMEM, .message = "Out of memory."};
    (void)fail_submit(&err, problem);
    problem->status = 503;
    return false;
}

/* A job of a request that has not been queued yet. */
static struct sv_job *job_new(struct sv_ask *ask, const struct sv_order *order, const char *peer)
{
    struct sv_job *job = calloc(1, sizeof *job);
    uint32_t seed = 0;
    char id[33];
    if (job == NULL || !sv_random_id(id) || (ask->seed < 0 && !sv_random_seed(&seed))) {
        free(job);
        return NULL;
    }
    (void)snprintf(job->id, sizeof job->id, "job-%s", id);
    job->ask = *ask;
    sv_ask_init(ask);
    if (job->ask.seed < 0) {
        job->ask.seed = seed;
    }
    job->key = order->key;
    (void)snprintf(job->client, sizeof job->client, "%s", order->client);
    (void)snprintf(job->peer, sizeof job->peer, "%s", peer);
    (void)snprintf(job->base, sizeof job->base, "%s", order->base);
    job->keep = order->keep || job->ask.answer == SV_ANSWER_URL;
    job->sdapi = order->sdapi;
    job->finish = order->finish;
    job->n = job->ask.n;
    job->created = time(NULL);
    job->began_s = words_seconds();
    return job;
}

bool sv_desk_submit(struct sv_desk *desk, struct sv_exchange *x, struct sv_ask *ask,
                    const struct sv_order *order, char id[40], struct sv_problem *problem,
                    int *retry_s)
{
    struct oz_image_request requests[SV_MOST_PICTURES];
    struct oz_job_options options;
    uint64_t ids[SV_MOST_PICTURES];
    struct oz_error err = {0};
    *problem = (struct sv_problem){0};
    struct sv_job *job = job_new(ask, order, x->peer);
    if (job == NULL) {
        return fail_memory(problem);
    }
    fill_requests(&job->ask, requests);
    oz_job_options_default(&options);
    options.client = job->client;
    options.preview_every = job->ask.previews;
    options.timeout_seconds = desk->options.request_timeout;
    pthread_mutex_lock(&desk->lock);
    bool ok = check_share(desk, job, problem);
    if (!ok) {
        *retry_s = problem->status == 429 ? 1 : 0;
        desk->refused += problem->status == 429 ? job->n : 0;
        sv_job_free(desk, job);
    } else if (oz_service_submit(desk->service, requests, job->n, &options, ids, &err) != OZ_OK) {
        ok = false;
        *retry_s = err.code == OZ_ERR_BUSY ? guess_wait(desk) : 0;
        (void)fail_submit(&err, problem);
        sv_job_free(desk, job);
    } else {
        (void)snprintf(id, 40, "%s", job->id);
        for (int i = 0; i < job->n; i++) {
            job->pictures[i].id = ids[i];
            job->pictures[i].now.state = OZ_JOB_QUEUED;
        }
        sv_job_refresh(desk, job);
        job->next = desk->jobs;
        if (job->next != NULL) {
            job->next->last = job;
        }
        desk->jobs = job;
        if (order->finish != NULL && sv_park(x, waiter_gone, desk)) {
            job->waiter = x;
        } else if (order->finish != NULL) {
            sv_job_cancel(desk, job);
            ok = false;
        }
    }
    pthread_mutex_unlock(&desk->lock);
    return ok;
}
