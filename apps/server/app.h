/*
 * app.h: what the routes share: the server's state, the table of routes, errors in OpenAI's shape.
 * Handlers run on the thread that speaks HTTP: one at a time, and they never wait.
 */
#ifndef OUNCE_SERVER_APP_H
#define OUNCE_SERVER_APP_H

#include <ounce/ounce.h>
#include <stdatomic.h>

#include "http.h"
#include "jobs.h"
#include "json.h"
#include "request.h"
#include "server.h"
#include "text.h"

enum {
    SV_BODY_BYTES = 256 * 1024, /* most of a request's body */
    SV_KEY_BYTES = 512,         /* longest API key */
    SV_ROUTES_MOST = 40,
    SV_STATUSES = 24,
};

enum sv_stage { SV_LOADING, SV_READY, SV_STOPPING };

struct sv_keys {
    unsigned char (*keys)[SV_KEY_BYTES + 1]; /* padded with zeros */
    size_t count;
};

/* How often a route was asked, by status, and how long that took. */
struct sv_counter {
    int64_t by_status[SV_STATUSES];
    double seconds;
};

struct sv_app {
    const struct sv_options *options;
    struct sv_http *http;
    struct sv_desk *desk;
    struct oz_engine *engine;
    struct oz_service *service;
    atomic_int stage; /* enum sv_stage; what follows is set before SV_READY and not changed after */
    struct oz_model_info info;
    struct sv_limits limits;
    const char **names; /* that the model goes by */
    size_t name_count;
    struct sv_ask initial;
    struct sv_text plan;    /* JSON of oz_model_plan */
    struct sv_text loaded;  /* JSON of /v1/loaded */
    struct sv_text layers;  /* lines of /metrics that do not change */
    struct sv_text openapi; /* from the start */
    struct sv_keys keys;
    time_t started;
    struct sv_counter counters[SV_ROUTES_MOST]; /* of the HTTP thread */
};

/* The parts of a path that stand for {} in a route. */
struct sv_match {
    char part[2][80];
};

enum {
    SV_OPEN = 1,  /* needs no key */
    SV_MODEL = 2, /* needs the model */
    SV_BODY = 4,  /* takes JSON */
};

struct sv_route {
    const char *method, *path;
    void (*handle)(struct sv_app *app, struct sv_exchange *x, const struct sv_match *match);
    unsigned flags;
    unsigned schema;     /* SV_API_ of its request; 0: none */
    const char *summary; /* for /openapi.json */
};
extern const struct sv_route sv_routes[];
extern const size_t sv_route_count;

/* The server's part of http.h's options. */
void sv_begin(void *app, struct sv_exchange *x);
void sv_handle(void *app, struct sv_exchange *x);
void sv_ended(void *app, struct sv_exchange *x);

/* Replies. `param` and `code` may be NULL. */
void sv_fail(struct sv_exchange *x, int status, const char *param, const char *code,
             const char *format, ...) OZ_PRINTF(5, 6);
void sv_fail_with(struct sv_exchange *x, const struct sv_problem *problem);
void sv_reply_json(struct sv_exchange *x, int status, struct sv_text *out); /* taken over */

/* Log: "time=... level=... event=..." and what follows, "key=value" with values quoted by need. */
struct sv_line {
    struct sv_text text;
};
void sv_line_begin(struct sv_line *line, const char *level, const char *event);
void sv_line_put(struct sv_line *line, const char *key, const char *value);
void sv_line_printf(struct sv_line *line, const char *key, const char *format, ...) OZ_PRINTF(3, 4);
void sv_line_end(struct sv_line *line, const struct sv_options *options); /* says and frees */

/* Keys, hosts and origins (auth.c). */
bool sv_keys_read(struct sv_keys *keys, const struct sv_options *options, struct oz_error *err);
void sv_keys_free(struct sv_keys *keys);
/* Which key the request brings; -1: none that is right. Takes as long whatever they are. */
int sv_keys_match(const struct sv_keys *keys, const char *authorization);
/* May this Host be meant? Without a key a page elsewhere must not reach us by a name of its own. */
bool sv_host_ok(const struct sv_options *options, const char *host);
bool sv_origin_same(const char *origin, const char *host);
/* The origin as it was configured, or NULL. */
const char *sv_origin_allowed(const struct sv_options *options, const char *origin);

/* Pictures (routes_images.c). */
/* Whose turn it is for: a key and who it says it is for, else an address. */
void sv_client(const struct sv_exchange *x, const struct sv_ask *ask, char client[400]);
/* Parses and queues; a failure has its reply. */
bool sv_submit(struct sv_app *app, struct sv_exchange *x, unsigned api, bool keep,
               void (*finish)(void *ctx, struct sv_job *job, struct sv_exchange *x), char id[40]);
/* Where files are: "https://host"; false: the request does not say. */
bool sv_base_url(const struct sv_app *app, const struct sv_exchange *x, char url[512]);
/* The reply of a job that has ended: its pictures or its failure. `base`: for urls. */
void sv_finish_images(struct sv_app *app, struct sv_job *job, struct sv_exchange *x,
                      const char *base);
void sv_finish_failed(struct sv_app *app, struct sv_exchange *x, const struct sv_job *job);

#define SV_HANDLER(name) \
    void name(struct sv_app *app, struct sv_exchange *x, const struct sv_match *match)
SV_HANDLER(sv_images_generations);
SV_HANDLER(sv_files_get);
SV_HANDLER(sv_jobs_post);
SV_HANDLER(sv_jobs_list);
SV_HANDLER(sv_jobs_get);
SV_HANDLER(sv_jobs_delete);
SV_HANDLER(sv_jobs_events);
SV_HANDLER(sv_jobs_result);
SV_HANDLER(sv_jobs_picture);
SV_HANDLER(sv_jobs_preview);
SV_HANDLER(sv_sdapi_txt2img);
SV_HANDLER(sv_sdapi_progress);
SV_HANDLER(sv_sdapi_interrupt);
SV_HANDLER(sv_sdapi_models);
SV_HANDLER(sv_sdapi_samplers);
SV_HANDLER(sv_sdapi_options);
SV_HANDLER(sv_models_list);
SV_HANDLER(sv_models_get);
SV_HANDLER(sv_health);
SV_HANDLER(sv_ready);
SV_HANDLER(sv_plan);
SV_HANDLER(sv_loaded);
SV_HANDLER(sv_metrics);
SV_HANDLER(sv_openapi);
SV_HANDLER(sv_page);

/* At the start and once the model is there. */
void sv_openapi_make(struct sv_text *out, bool keys);
bool sv_loaded_make(struct sv_app *app, struct oz_error *err);

/* The page's files, made by the build out of web/. */
struct sv_web_file {
    const char *path, *type, *etag;
    const unsigned char *data;
    size_t bytes;
};
extern const struct sv_web_file sv_web_files[];
extern const size_t sv_web_file_count;

/* Place of a status among the counted ones, and back (metrics.c). */
size_t sv_status_index(int status);

#endif
