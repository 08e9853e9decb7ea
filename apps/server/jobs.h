/*
 * jobs.h: the desk between requests and the service. A job is a request's pictures, 1 to 10; each is a
 * job of the service. One thread follows them: it encodes pictures as files when they are done, tells
 * who waits or listens, and forgets results when their time is over. The thread that speaks HTTP never
 * waits for the service nor for a file.
 *
 * Fields of a job are under the desk's lock; only the desk's thread frees one.
 */
#ifndef OUNCE_SERVER_JOBS_H
#define OUNCE_SERVER_JOBS_H

#include <ounce/ounce.h>
#include <stdbool.h>
#include <time.h>

#include "http.h"
#include "request.h"
#include "text.h"

struct sv_desk;

struct sv_picture {
    uint64_t id; /* of the service; 0: has been taken */
    struct oz_job_status now;
    bool ended;
    enum oz_status status; /* how, when it has ended */
    char *error;           /* a message; NULL: none, or no memory for it */
    struct sv_text file;
    char file_id[33]; /* with response_format url; "": none */
    struct sv_text preview;
    int32_t preview_number;
    const char *preview_type; /* "image/jpeg" */
};

struct sv_job {
    char id[40];
    struct sv_ask ask;
    int key;          /* whose it is: index of the API key, -1: nobody's */
    char client[400]; /* who is served in turn */
    char peer[48];    /* the address it came from */
    char base[512];   /* of its urls: "https://host" */
    struct sv_picture pictures[SV_MOST_PICTURES];
    int n;
    time_t created;
    double began_s, ended_s;
    bool keep; /* for who asks later */
    bool ended, cancelled, dropped;
    bool sdapi; /* its progress is what /sdapi/v1/progress tells */
    struct sv_exchange *waiter;
    /* Fills the reply of the one who waits. */
    void (*finish)(void *ctx, struct sv_job *job, struct sv_exchange *x);
    struct sv_exchange **listeners;
    size_t listener_count;
    struct sv_job *next, *last;
};

struct sv_desk_options {
    double request_timeout; /* seconds; 0: none */
    double result_ttl;
    int max_per_client; /* pictures of one address that have not ended; 0: no limit */
    void *finish_ctx;
};

/* NULL: no memory or no thread. The service comes later. */
struct sv_desk *sv_desk_open(const struct sv_desk_options *options);
/* The `changed` of the service; ctx is the desk. */
void sv_desk_changed(void *desk, uint64_t job);
void sv_desk_serve(struct sv_desk *desk, struct oz_service *service);
/* Ends the desk's thread: nothing is claimed, encoded or freed after. Before sv_http_stop. */
void sv_desk_stop(struct sv_desk *desk);
void sv_desk_close(struct sv_desk **desk); /* after sv_http_stop */

/* What a job is made of beside the request. */
struct sv_order {
    int key;
    const char *client, *base;
    bool keep, sdapi;
    void (*finish)(void *ctx, struct sv_job *job, struct sv_exchange *x); /* NULL: nobody waits */
};
/*
 * Queues what `ask` asks for and takes it over; within a handler. With `finish` the exchange is parked.
 * False: *problem (an exchange that was parked meanwhile is not touched), or, where its status is 0, the
 * exchange has its reply already. retry_s: for a status of 429.
 */
bool sv_desk_submit(struct sv_desk *desk, struct sv_exchange *x, struct sv_ask *ask,
                    const struct sv_order *order, char id[40], struct sv_problem *problem,
                    int *retry_s);

/* A job of that key, with the desk locked until sv_desk_unlock; NULL: none, and not locked. */
struct sv_job *sv_desk_find(struct sv_desk *desk, const char *id, int key);
void sv_desk_unlock(struct sv_desk *desk);
/* The newest jobs of a key first, each once; `each` is called with the desk locked. */
void sv_desk_each(struct sv_desk *desk, int key, void (*each)(void *ctx, struct sv_job *job),
                  void *ctx);

/* With the desk locked: */
void sv_job_cancel(struct sv_desk *desk, struct sv_job *job);
void sv_job_refresh(struct sv_desk *desk, struct sv_job *job); /* positions, steps, times */
const char *sv_job_status(const struct sv_job *job);           /* "queued" ... */
void sv_job_describe(struct sv_desk *desk, struct sv_job *job, struct sv_text *out,
                     const char *name);
/* Sends the job's events to an exchange until it ends; of a job that has ended the last one. */
bool sv_job_listen(struct sv_desk *desk, struct sv_job *job, struct sv_exchange *x);
/* Forgets a job that has ended. */
void sv_job_drop(struct sv_job *job);

/* The first picture that failed, or NULL. */
const struct sv_picture *sv_job_failure(const struct sv_job *job);

/* Why a picture has failed. */
const char *sv_picture_error(const struct sv_picture *picture);

/* A file by its id into *out; *type is set. False: none, or its time is over. */
bool sv_desk_file(struct sv_desk *desk, const char *file_id, struct sv_text *out,
                  const char **type);

/* Cancels what still waits for its turn (all: also what runs). Returns how many jobs have not ended. */
int sv_desk_cancel_all(struct sv_desk *desk, bool all);

/* Bytes of results that are kept, and jobs. */
void sv_desk_kept(struct sv_desk *desk, int64_t *bytes, int64_t *jobs);

/* An address as a host, for shares: of IPv6 the first 64 bits, for one host may have all of the rest; IPv4
 * as it is mapped into IPv6; zeros for what is no address. */
void sv_host_of(const char *peer, unsigned char host[16]);

/* Pictures that were refused because their address had its share; beside those that the service refused. */
int64_t sv_desk_refused(struct sv_desk *desk);

const char *sv_format_type(int32_t format); /* "image/png" */
const char *sv_format_name(int32_t format); /* "png" */

#endif
