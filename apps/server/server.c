/* server.c: the server's life: checks, listens, loads the model while /health answers, serves, ends. */
#include "server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "app.h"
#include "common/words.h"

enum {
    PEM_BYTES = 1024 * 1024,
    FLUSH_SECONDS = 2, /* for last replies to be made and taken */
    LOOK_MS = 20,
};

/* ---- signals ---- */

static void signals_block(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, set, NULL);
}

/* Has one come within so many milliseconds? */
static bool signal_within(const sigset_t *set, int ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    int number;
    do {
        number = sigtimedwait(set, NULL, &time);
    } while (number < 0 && errno == EINTR);
    return number > 0;
}

/* An oz_progress_fn of loading. */
static int stop_loading(void *ctx, const struct oz_progress *now)
{
    sigset_t pending;
    (void)ctx;
    (void)now;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
            sigismember(&pending, SIGHUP) == 1);
}

/* ---- before anything is opened ---- */

static enum oz_status check_address(const struct sv_app *app, struct sv_address *address,
                                    struct oz_error *err)
{
    const struct sv_options *o = app->options;
    const char *why = NULL;
    if (!sv_http_resolve(o->host, o->port, address, &why)) {
        return sv_error(err, OZ_ERR_ARG, "--host %s is no address to listen on: %s.", o->host, why);
    }
    if (!address->loopback && app->keys.count == 0 && !o->allow_no_key) {
        return sv_error(
            err, OZ_ERR_ARG,
            "--host %s can be reached from other machines, and there is no API key. Give one "
            "(--api-key-file FILE), or --allow-no-key if something before this server checks "
            "who asks.",
            o->host);
    }
    if ((o->tls_cert != NULL) != (o->tls_key != NULL)) {
        return sv_error(err, OZ_ERR_ARG, "--tls-cert and --tls-key come together.");
    }
    if (o->public_url != NULL && strncmp(o->public_url, "http://", 7) != 0 &&
        strncmp(o->public_url, "https://", 8) != 0) {
        return sv_error(err, OZ_ERR_ARG,
                        "--public-url must begin with http:// or https://, not '%s'.",
                        o->public_url);
    }
    return OZ_OK;
}

static enum oz_status read_pem(struct sv_text *text, const char *option, const char *path,
                               struct oz_error *err)
{
    const char *why = NULL;
    if (path == NULL || sv_read_file(text, path, PEM_BYTES, &why)) {
        return OZ_OK;
    }
    return sv_error(err, OZ_ERR_IO, "%s %s cannot be read: %s.", option, path, why);
}

static enum oz_status read_defaults(struct sv_app *app, struct oz_error *err)
{
    const char *text = app->options->default_sampling_params;
    struct sv_problem problem;
    sv_ask_init(&app->initial);
    if (text != NULL &&
        !sv_ask_parse(&app->initial, SV_API_DEFAULTS, text, strlen(text), NULL, &problem)) {
        return sv_error(err, problem.status == 503 ? OZ_ERR_NOMEM : OZ_ERR_ARG,
                        "default_sampling_params: %s", problem.message);
    }
    return OZ_OK;
}

/* As many files as connections need. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* ---- HTTP ---- */

static void complain(void *ctx, const char *message)
{
    const struct sv_app *app = ctx;
    if (getenv("OUNCE_LOG") != NULL) {
        struct sv_line line;
        sv_line_begin(&line, "debug", "http");
        sv_line_put(&line, "message", message);
        sv_line_end(&line, app->options);
    }
}

static enum oz_status listen_up(struct sv_app *app, const struct sv_address *address,
                                struct oz_error *err)
{
    const struct sv_options *o = app->options;
    struct sv_text cert = {0}, key = {0};
    char why[256];
    enum oz_status status = read_pem(&cert, "--tls-cert", o->tls_cert, err);
    if (status == OZ_OK) {
        status = read_pem(&key, "--tls-key", o->tls_key, err);
    }
    if (status == OZ_OK) {
        struct sv_http_options http = {
            .tls_cert = cert.data,
            .tls_key = key.data,
            .max_connections = o->max_connections,
            .read_seconds = o->read_timeout,
            .body_bytes = SV_BODY_BYTES,
            .ctx = app,
            .begin = sv_begin,
            .handle = sv_handle,
            .ended = sv_ended,
            .complain = complain,
        };
        app->http = sv_http_start(&http, address, why, sizeof why);
        if (app->http == NULL) {
            status = sv_error(err, OZ_ERR_IO, "Cannot listen on %s, port %d: %s.", o->host, o->port,
                              why);
        }
    }
    if (key.data != NULL) {
        explicit_bzero(key.data, key.bytes);
    }
    sv_text_free(&cert);
    sv_text_free(&key);
    if (status == OZ_OK) {
        bool v6 = strchr(o->host, ':') != NULL && o->host[0] != '[';
        char url[512];
        (void)snprintf(url, sizeof url, "%s://%s%s%s:%d", o->tls_cert != NULL ? "https" : "http",
                       v6 ? "[" : "", o->host, v6 ? "]" : "", sv_http_port(app->http));
        o->listening(o->ctx, url);
    }
    return status;
}

/* ---- the model ---- */

static enum oz_status name_model(struct sv_app *app, struct oz_error *err)
{
    const struct sv_options *o = app->options;
    const char *path = o->engine->model;
    app->names = calloc(o->served_name_count + 2, sizeof *app->names);
    if (app->names == NULL) {
        return sv_error(err, OZ_ERR_NOMEM, "Out of memory.");
    }
    for (size_t i = 0; i < o->served_name_count; i++) {
        app->names[app->name_count++] = o->served_names[i];
    }
    if (app->name_count == 0) {
        app->names[app->name_count++] = app->info.name;
        if (path != NULL && path[0] != '\0' && strcmp(path, app->info.name) != 0) {
            app->names[app->name_count++] = path;
        }
    }
    app->limits = (struct sv_limits){
        .max_pixels = o->max_pixels,
        .size_multiple = app->info.size_multiple,
        .width = app->info.width,
        .height = app->info.height,
        .models = app->names,
        .model_count = app->name_count,
        .initial = &app->initial,
    };
    return OZ_OK;
}

static enum oz_status load(struct sv_app *app, struct oz_error *err)
{
    const struct sv_options *o = app->options;
    struct oz_engine_options engine = *o->engine;
    struct oz_service_options service;
    engine.progress = stop_loading;
    engine.max_batch = o->max_num_seqs;
    enum oz_status status = oz_engine_open(&app->engine, &engine, err);
    if (status != OZ_OK) {
        return status;
    }
    app->info.struct_size = sizeof app->info;
    status = oz_engine_info(app->engine, &app->info, err);
    if (status == OZ_OK) {
        status = name_model(app, err);
    }
    if (status != OZ_OK) {
        return status;
    }
    if (!sv_loaded_make(app, err)) {
        return err->code != OZ_OK ? err->code : sv_error(err, OZ_ERR_NOMEM, "Out of memory.");
    }
    oz_service_options_default(&service);
    service.max_num_seqs = o->max_num_seqs;
    service.max_queue = o->max_queue;
    service.max_pixels = o->max_pixels;
    /* The desk takes what has ended at once; until then nothing may be forgotten. */
    service.max_ended = 2 * (o->max_queue + o->max_num_seqs) + 64;
    service.changed = sv_desk_changed;
    service.changed_ctx = app->desk;
    status = oz_service_open(&app->service, app->engine, &service, err);
    if (status == OZ_OK) {
        sv_desk_serve(app->desk, app->service);
        atomic_store(&app->stage, SV_READY);
    }
    return status;
}

static void say_event(const struct sv_app *app, const char *event, const char *key,
                      const char *value)
{
    struct sv_line line;
    if (!app->options->quiet) {
        sv_line_begin(&line, "info", event);
        sv_line_put(&line, key, value);
        sv_line_end(&line, app->options);
    }
}

/* ---- the end ---- */

static void shut_down(struct sv_app *app, const sigset_t *signals)
{
    double until = words_seconds() + app->options->shutdown_timeout;
    say_event(app, "shutdown", "why", "signal");
    atomic_store(&app->stage, SV_STOPPING);
    sv_http_quiesce(app->http);
    while (sv_desk_cancel_all(app->desk, false) > 0 && words_seconds() < until &&
           !signal_within(signals, LOOK_MS)) {
    }
    until = words_seconds() + FLUSH_SECONDS;
    while (sv_desk_cancel_all(app->desk, true) > 0 && words_seconds() < until) {
        (void)signal_within(signals, LOOK_MS);
    }
}

static void app_free(struct sv_app *app)
{
    sv_desk_stop(app->desk);
    sv_http_stop(&app->http);
    oz_service_close(&app->service);
    sv_desk_close(&app->desk);
    oz_engine_close(&app->engine);
    sv_keys_free(&app->keys);
    sv_ask_free(&app->initial);
    sv_text_free(&app->plan);
    sv_text_free(&app->loaded);
    sv_text_free(&app->layers);
    sv_text_free(&app->openapi);
    free(app->names);
    free(app);
}

static enum oz_status run(struct sv_app *app, struct oz_error *err)
{
    const struct sv_options *o = app->options;
    struct sv_address address;
    sigset_t signals;
    enum oz_status status =
        sv_http_open(err) && sv_keys_read(&app->keys, o, err) ? OZ_OK : err->code;
    if (status == OZ_OK) {
        status = check_address(app, &address, err);
    }
    if (status == OZ_OK) {
        status = read_defaults(app, err);
    }
    if (status != OZ_OK) {
        return status;
    }
    signals_block(&signals);
    raise_limit();
    sv_openapi_make(&app->openapi, app->keys.count > 0);
    struct sv_desk_options desk = {
        .request_timeout = o->request_timeout,
        .result_ttl = o->result_ttl,
        .max_per_client = o->max_per_client,
        .finish_ctx = app,
    };
    app->desk = app->openapi.failed ? NULL : sv_desk_open(&desk);
    if (app->desk == NULL) {
        return sv_error(err, OZ_ERR_NOMEM, "Out of memory, or no thread could be started.");
    }
    status = listen_up(app, &address, err);
    if (status != OZ_OK) {
        return status;
    }
    status = load(app, err);
    if (status == OZ_ERR_CANCELLED) {
        return OZ_OK; /* by a signal, while the model was loaded */
    }
    if (status == OZ_OK) {
        say_event(app, "ready", "model", app->names[0]);
        while (!signal_within(&signals, 1000 * 1000)) {
        }
        shut_down(app, &signals);
    }
    return status;
}

enum oz_status sv_serve(const struct sv_options *options, struct oz_error *err)
{
    struct sv_app *app = calloc(1, sizeof *app);
    if (app == NULL) {
        return sv_error(err, OZ_ERR_NOMEM, "Out of memory.");
    }
    app->options = options;
    app->started = time(NULL);
    atomic_init(&app->stage, SV_LOADING);
    sv_ask_init(&app->initial);
    enum oz_status status = run(app, err);
    app_free(app);
    return status;
}
