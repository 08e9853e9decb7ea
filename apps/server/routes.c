/* routes.c: the table of routes, and what happens to every request before and after its handler. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "app.h"
#include "common/words.h"

const struct sv_route sv_routes[] = {
    {"POST", "/v1/images/generations", sv_images_generations, SV_MODEL | SV_BODY, SV_API_IMAGES,
     "Draws pictures and replies when they are done."},
    {"GET", "/v1/files/{}", sv_files_get, SV_OPEN, 0,
     "A picture of response_format url, by its unguessable name, for a while."},
    {"POST", "/v1/jobs", sv_jobs_post, SV_MODEL | SV_BODY, SV_API_JOBS,
     "Queues pictures and replies at once."},
    {"GET", "/v1/jobs", sv_jobs_list, SV_MODEL, 0, "The jobs of this key."},
    {"GET", "/v1/jobs/{}", sv_jobs_get, SV_MODEL, 0,
     "A job: position in the queue, progress, time left."},
    {"DELETE", "/v1/jobs/{}", sv_jobs_delete, SV_MODEL, 0,
     "Cancels a job under way; forgets one that has ended."},
    {"GET", "/v1/jobs/{}/events", sv_jobs_events, SV_MODEL, 0,
     "Server-sent events: progress, preview, end."},
    {"GET", "/v1/jobs/{}/result", sv_jobs_result, SV_MODEL, 0,
     "What /v1/images/generations would have replied; 409 while the job runs."},
    {"GET", "/v1/jobs/{}/pictures/{}", sv_jobs_picture, SV_MODEL, 0,
     "Picture i of a job, as a file."},
    {"GET", "/v1/jobs/{}/previews/{}", sv_jobs_preview, SV_MODEL, 0,
     "The newest preview of picture i, as a file."},
    {"GET", "/v1/models", sv_models_list, SV_MODEL, 0, "The model, by all its names."},
    {"GET", "/v1/models/{}", sv_models_get, SV_MODEL, 0, "One of them."},
    {"GET", "/v1/loaded", sv_loaded, SV_MODEL, 0,
     "What is loaded: schemes, bytes, peaks, defaults, limits."},
    {"GET", "/v1/plan", sv_plan, SV_MODEL, 0, "The whole plan: every layer's scheme and kernel."},
    {"POST", "/sdapi/v1/txt2img", sv_sdapi_txt2img, SV_MODEL | SV_BODY, SV_API_SDAPI,
     "Draws pictures, for clients of the A1111 API."},
    {"GET", "/sdapi/v1/progress", sv_sdapi_progress, SV_MODEL, 0,
     "Progress of this client's txt2img."},
    {"POST", "/sdapi/v1/interrupt", sv_sdapi_interrupt, SV_MODEL, 0,
     "Cancels this client's txt2img."},
    {"GET", "/sdapi/v1/sd-models", sv_sdapi_models, SV_MODEL, 0, "The model."},
    {"GET", "/sdapi/v1/samplers", sv_sdapi_samplers, SV_MODEL, 0, "The sampler."},
    {"GET", "/sdapi/v1/options", sv_sdapi_options, SV_MODEL, 0, "The model's name, as an option."},
    {"GET", "/health", sv_health, SV_OPEN, 0, "200: the process is alive."},
    {"GET", "/ready", sv_ready, SV_OPEN, 0,
     "200: the model can be used; 503: not yet, or no more."},
    {"GET", "/metrics", sv_metrics, 0, 0, "Figures for Prometheus."},
    {"GET", "/openapi.json", sv_openapi, SV_OPEN, 0, "This description."},
    {"GET", "/", sv_page, SV_OPEN, 0, "The web page."},
    {"GET", "/web/{}", sv_page, SV_OPEN, 0, "Its parts."},
    {"GET", "/docs", sv_page, SV_OPEN, 0, "A page for /openapi.json."},
};
const size_t sv_route_count = sizeof sv_routes / sizeof *sv_routes;
_Static_assert(sizeof sv_routes / sizeof *sv_routes < SV_ROUTES_MOST,
               "the last counter is for no route");

/* ---- replies ---- */

static const char *type_of(int status)
{
    return status == 401   ? "authentication_error"
           : status == 403 ? "permission_error"
           : status == 429 ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

void sv_reply_json(struct sv_exchange *x, int status, struct sv_text *out)
{
    sv_text_put(out, "\n");
    sv_reply(x, status, "application/json", out);
}

static void reply_error(struct sv_exchange *x, int status, const char *param, const char *code,
                        const char *message)
{
    struct sv_text out = {0};
    sv_json_open(&out, NULL, '{');
    sv_json_open(&out, "error", '{');
    sv_json_put_string(&out, "message", message);
    sv_json_put_string(&out, "type", type_of(status));
    sv_json_put_string(&out, "param", param != NULL && param[0] != '\0' ? param : NULL);
    sv_json_put_string(&out, "code", code);
    sv_json_close(&out, '}');
    sv_json_close(&out, '}');
    sv_reply_json(x, status, &out);
}

void sv_fail(struct sv_exchange *x, int status, const char *param, const char *code,
             const char *format, ...)
{
    char message[OZ_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    reply_error(x, status, param, code, message);
}

void sv_fail_with(struct sv_exchange *x, const struct sv_problem *problem)
{
    reply_error(x, problem->status, problem->param, problem->code, problem->message);
}

/* ---- which route ---- */

static bool matches(const char *pattern, const char *path, struct sv_match *match)
{
    int part = 0;
    while (*pattern != '\0') {
        if (strncmp(pattern, "{}", 2) != 0) {
            if (*pattern++ != *path++) {
                return false;
            }
            continue;
        }
        size_t n = strcspn(path, "/");
        if (n == 0 || n >= sizeof match->part[0]) {
            return false;
        }
        memcpy(match->part[part], path, n);
        match->part[part++][n] = '\0';
        pattern += 2;
        path += n;
    }
    return *path == '\0';
}

/* The route, or NULL with the reply set. */
static const struct sv_route *find_route(struct sv_exchange *x)
{
    struct sv_text allow = {0};
    struct sv_match match;
    for (size_t i = 0; i < sv_route_count; i++) {
        if (matches(sv_routes[i].path, x->path, &match)) {
            if (strcmp(sv_routes[i].method, x->method) == 0) {
                sv_text_free(&allow);
                return &sv_routes[i];
            }
            sv_text_printf(&allow, "%s%s", allow.bytes > 0 ? ", " : "", sv_routes[i].method);
        }
    }
    if (allow.failed) {
        sv_text_free(&allow);
        sv_fail(x, 503, NULL, "out_of_memory", "Out of memory.");
        return NULL;
    }
    if (allow.data == NULL) {
        sv_fail(x, 404, NULL, "not_found", "There is no route %.200s; /docs lists them.", x->path);
        return NULL;
    }
    sv_reply_header(x, "Allow", allow.data);
    if (strcmp(x->method, "OPTIONS") == 0) {
        sv_reply_header(x, "Access-Control-Allow-Methods", allow.data);
        sv_reply_header(x, "Access-Control-Allow-Headers",
                        "authorization, content-type, x-request-id");
        sv_reply_header(x, "Access-Control-Max-Age", "600");
        sv_reply_fixed(x, 204, NULL, "", 0);
    } else {
        sv_fail(x, 405, NULL, "method_not_allowed", "%.200s takes %s, not %.20s.", x->path,
                allow.data, x->method);
    }
    sv_text_free(&allow);
    return NULL;
}

/* ---- before the handler ---- */

static bool check_sender(const struct sv_app *app, struct sv_exchange *x)
{
    const char *host = sv_header(x, "Host"), *origin = sv_header(x, "Origin");
    if (app->keys.count == 0 && !app->options->allow_no_key && !sv_host_ok(app->options, host)) {
        sv_fail(x, 403, NULL, "host_not_allowed",
                "This server asks for no key and is therefore reached by localhost or an address "
                "alone, not as '%.100s'.",
                host != NULL ? host : "");
        return false;
    }
    const char *allowed = origin != NULL ? sv_origin_allowed(app->options, origin) : NULL;
    if (allowed != NULL) {
        sv_reply_header(x, "Access-Control-Allow-Origin", strcmp(allowed, "*") == 0 ? "*" : origin);
        sv_reply_header(x, "Access-Control-Expose-Headers",
                        "X-Request-Id, X-Ounce-Ignored, Retry-After");
        sv_reply_header(x, "Vary", "Origin");
    }
    if (origin != NULL && allowed == NULL && strcmp(x->method, "GET") != 0 &&
        !sv_origin_same(origin, host)) {
        sv_fail(x, 403, NULL, "origin_not_allowed",
                "Pages of '%.100s' may not use this server (--cors-origin).", origin);
        return false;
    }
    return true;
}

static bool check_key(const struct sv_app *app, struct sv_exchange *x, const struct sv_route *route)
{
    if (app->keys.count == 0) {
        return true;
    }
    x->key = sv_keys_match(&app->keys, sv_header(x, "Authorization"));
    if (x->key < 0 && (route->flags & SV_OPEN) == 0) {
        sv_reply_header(x, "WWW-Authenticate", "Bearer");
        sv_fail(x, 401, NULL, "invalid_api_key",
                "This server asks for an API key: Authorization: Bearer KEY.");
        return false;
    }
    return true;
}

static bool check_stage(struct sv_app *app, struct sv_exchange *x, const struct sv_route *route)
{
    int stage = atomic_load(&app->stage);
    if ((route->flags & SV_MODEL) == 0 || stage == SV_READY) {
        return true;
    }
    if (stage == SV_STOPPING && (route->flags & SV_BODY) == 0) {
        return true; /* who waits for a job may still look */
    }
    sv_reply_header(x, "Retry-After", "2");
    sv_fail(x, 503, NULL, stage == SV_LOADING ? "loading" : "shutting_down",
            stage == SV_LOADING ? "The model is being loaded; /ready tells when it can be used."
                                : "The server is shutting down.");
    return false;
}

static bool check_body(struct sv_exchange *x, const struct sv_route *route)
{
    const char *length = sv_header(x, "Content-Length"), *type = sv_header(x, "Content-Type");
    bool chunked = sv_header(x, "Transfer-Encoding") != NULL;
    if (length != NULL && chunked) {
        sv_fail(x, 400, NULL, "bad_framing",
                "A request has Content-Length or Transfer-Encoding, not both.");
        return false;
    }
    if (length != NULL && strtoull(length, NULL, 10) > SV_BODY_BYTES) {
        sv_fail(x, 413, NULL, "request_too_large", "A request has at most %d bytes, not %.20s.",
                SV_BODY_BYTES, length);
        return false;
    }
    size_t n = type != NULL ? strcspn(type, "; \t") : 0;
    if ((route->flags & SV_BODY) != 0 &&
        (n != strlen("application/json") || strncasecmp(type, "application/json", n) != 0)) {
        sv_fail(x, 415, NULL, "unsupported_media_type",
                "The request's Content-Type must be application/json, not '%.100s'.",
                type != NULL ? type : "");
        return false;
    }
    return true;
}

void sv_begin(void *ctx, struct sv_exchange *x)
{
    struct sv_app *app = ctx;
    sv_reply_header(x, "X-Content-Type-Options", "nosniff");
    sv_reply_header(x, "Cache-Control", "no-store");
    if (!check_sender(app, x)) {
        return;
    }
    const struct sv_route *route = find_route(x);
    x->route = route;
    if (route != NULL && check_key(app, x, route) && check_stage(app, x, route)) {
        (void)check_body(x, route);
    }
}

void sv_handle(void *ctx, struct sv_exchange *x)
{
    struct sv_app *app = ctx;
    const struct sv_route *route = x->route;
    struct sv_match match = {0};
    if (x->too_long) {
        sv_fail(x, 413, NULL, "request_too_large", "A request has at most %d bytes.",
                SV_BODY_BYTES);
    } else if (x->body.failed) {
        sv_fail(x, 503, NULL, "out_of_memory", "Out of memory.");
    } else if (matches(route->path, x->path, &match) && check_stage(app, x, route)) {
        route->handle(app, x, &match);
    }
}

/* ---- after it ---- */

void sv_ended(void *ctx, struct sv_exchange *x)
{
    struct sv_app *app = ctx;
    const struct sv_route *route = x->route;
    double seconds = words_seconds() - x->began_s;
    size_t place = route != NULL ? (size_t)(route - sv_routes) : SV_ROUTES_MOST - 1;
    int status = x->aborted && x->status == 0 ? 499 : x->status;
    app->counters[place].by_status[sv_status_index(status)]++;
    app->counters[place].seconds += seconds;
    bool probe = sv_one_of(x->path, "/health /ready /metrics") && status == 200;
    if (app->options->quiet || probe) {
        return;
    }
    struct sv_line line;
    sv_line_begin(&line, "info", "request");
    sv_line_put(&line, "id", x->id);
    sv_line_put(&line, "peer", x->peer);
    sv_line_put(&line, "method", x->head_only ? "HEAD" : x->method);
    sv_line_put(&line, "path", x->path);
    sv_line_printf(&line, "status", "%d", status);
    sv_line_printf(&line, "ms", "%.1f", seconds * 1e3);
    sv_line_printf(&line, "bytes", "%zu", x->sent_bytes);
    if (app->keys.count > 0) {
        sv_line_printf(&line, "key", "%d", x->key);
    }
    if (x->aborted) {
        sv_line_put(&line, "left", "true");
    }
    sv_line_end(&line, app->options);
}
