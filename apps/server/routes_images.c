/* routes_images.c: /v1/images/generations, and the files of response_format url. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"

void sv_client(const struct sv_exchange *x, const struct sv_ask *ask, char client[400])
{
    (void)snprintf(client, 400, "%d/%s", x->key,
                   ask->user != NULL && ask->user[0] != '\0' ? ask->user : x->peer);
}

/* prompt: NULL where there was no memory to remember it. */
static void log_job(const struct sv_app *app, const struct sv_exchange *x, const char *id,
                    const char *prompt)
{
    struct sv_line line;
    if (app->options->quiet) {
        return;
    }
    sv_line_begin(&line, "info", "job");
    sv_line_put(&line, "id", x->id);
    sv_line_put(&line, "job", id);
    if (app->options->log_prompts) {
        sv_line_put(&line, "prompt", prompt != NULL ? prompt : "(no memory)");
    }
    sv_line_end(&line, app->options);
}

bool sv_submit(struct sv_app *app, struct sv_exchange *x, unsigned api, bool keep,
               void (*finish)(void *ctx, struct sv_job *job, struct sv_exchange *x), char id[40])
{
    struct sv_ask ask;
    struct sv_problem problem;
    char client[400];
    int retry_s = 0;
    if (!sv_ask_parse(&ask, api, x->body.data, x->body.bytes, &app->limits, &problem)) {
        sv_ask_free(&ask);
        sv_fail_with(x, &problem);
        return false;
    }
    char base[512] = "";
    if (ask.answer == SV_ANSWER_URL && !sv_base_url(app, x, base)) {
        sv_ask_free(&ask);
        sv_fail(x, 400, "response_format", "invalid_value",
                "A url needs a Host header that is a plain name.");
        return false;
    }
    sv_client(x, &ask, client);
    if (ask.ignored.bytes > 0) {
        sv_reply_header(x, "X-Ounce-Ignored", ask.ignored.data);
    }
    char *prompt = app->options->log_prompts ? sv_copy(ask.prompt) : NULL;
    struct sv_order order = {
        .key = x->key, .client = client, .base = base, .keep = keep, .finish = finish};
    order.sdapi = api == SV_API_SDAPI;
    bool ok = sv_desk_submit(app->desk, x, &ask, &order, id, &problem, &retry_s);
    if (ok) {
        log_job(app, x, id, prompt);
    } else if (problem.status != 0) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", retry_s > 0 ? retry_s : 1);
        if (problem.status == 429 || problem.status == 503) {
            sv_reply_header(x, "Retry-After", text);
        }
        sv_fail_with(x, &problem);
    }
    free(prompt);
    sv_ask_free(&ask);
    return ok;
}

bool sv_base_url(const struct sv_app *app, const struct sv_exchange *x, char url[512])
{
    const char *host = sv_header(x, "Host"), *known = app->options->public_url;
    if (known != NULL) {
        size_t n = strlen(known);
        (void)snprintf(url, 512, "%.*s", (int)(n > 0 && known[n - 1] == '/' ? n - 1 : n), known);
        return true;
    }
    if (host == NULL || host[0] == '\0' || strlen(host) > 255 ||
        host[strspn(host,
                    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.:[]-_")] !=
            '\0') {
        return false;
    }
    (void)snprintf(url, 512, "%s://%s", app->options->tls_cert != NULL ? "https" : "http", host);
    return true;
}

void sv_finish_failed(struct sv_app *app, struct sv_exchange *x, const struct sv_job *job)
{
    const struct sv_picture *bad = sv_job_failure(job);
    const char *message = sv_picture_error(bad);
    if (job->cancelled && atomic_load(&app->stage) == SV_STOPPING) {
        sv_reply_header(x, "Retry-After", "2");
        sv_fail(x, 503, NULL, "shutting_down", "The server is shutting down.");
        return;
    }
    if (job->cancelled) {
        /* No status that OpenAI's clients try again by themselves, as they do with 409. */
        sv_fail(x, 499, NULL, "cancelled", "The request was cancelled.");
        return;
    }
    switch (bad->status) {
    case OZ_ERR_CANCELLED: sv_fail(x, 504, NULL, "timeout", "%s", message); break;
    case OZ_ERR_NOMEM: sv_fail(x, 503, NULL, "insufficient_memory", "%s", message); break;
    case OZ_ERR_UNSUPPORTED:
        sv_fail(x, 400, "output_format", "unsupported_value", "%s", message);
        break;
    case OZ_ERR_ARG: sv_fail(x, 400, NULL, "invalid_value", "%s", message); break;
    default: sv_fail(x, 500, NULL, "internal_error", "%s", message); break;
    }
}

static void put_image(struct sv_text *out, const struct sv_job *job, int i, const char *base)
{
    const struct sv_picture *p = &job->pictures[i];
    sv_json_open(out, NULL, '{');
    if (job->ask.answer == SV_ANSWER_URL) {
        char *url =
            sv_format("%s/v1/files/%s.%s", base, p->file_id, sv_format_name(job->ask.format));
        sv_json_put_string(out, "url", url);
        out->failed = out->failed || url == NULL;
        sv_json_put_string(out, "b64_json", NULL);
        free(url);
    } else {
        sv_json_put_base64(out, "b64_json", p->file.data, p->file.bytes);
        sv_json_put_string(out, "url", NULL);
    }
    sv_json_put_string(out, "revised_prompt", NULL);
    sv_json_put_unsigned(out, "seed", p->now.seed);
    sv_json_close(out, '}');
}

void sv_finish_images(struct sv_app *app, struct sv_job *job, struct sv_exchange *x,
                      const char *base)
{
    if (sv_job_failure(job) != NULL) {
        sv_finish_failed(app, x, job);
        return;
    }
    char text[64];
    struct sv_text out = {0};
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)job->pictures[0].now.seed);
    sv_reply_header(x, "X-Ounce-Seed", text);
    if (job->ask.answer == SV_ANSWER_FILE) {
        sv_text_add(&out, job->pictures[0].file.data, job->pictures[0].file.bytes);
        sv_reply(x, 200, sv_format_type(job->ask.format), &out);
        return;
    }
    sv_json_open(&out, NULL, '{');
    sv_json_put_integer(&out, "created", (int64_t)job->created);
    sv_json_open(&out, "data", '[');
    for (int i = 0; i < job->n; i++) {
        put_image(&out, job, i, base);
    }
    sv_json_close(&out, ']');
    (void)snprintf(text, sizeof text, "%dx%d", (int)job->pictures[0].now.width,
                   (int)job->pictures[0].now.height);
    sv_json_put_string(&out, "size", text);
    sv_json_put_string(&out, "output_format", sv_format_name(job->ask.format));
    sv_json_put_string(&out, "background", "opaque");
    sv_json_close(&out, '}');
    sv_reply_json(x, 200, &out);
}

/* On the desk's thread: headers of the request are not to be had; a url's base was checked before. */
static void finish(void *ctx, struct sv_job *job, struct sv_exchange *x)
{
    sv_finish_images(ctx, job, x, job->base);
}

SV_HANDLER(sv_images_generations)
{
    char id[40];
    (void)match;
    (void)sv_submit(app, x, SV_API_IMAGES, false, finish, id);
}

SV_HANDLER(sv_files_get)
{
    struct sv_text out = {0};
    const char *type = NULL;
    char name[80];
    (void)snprintf(name, sizeof name, "%s", match->part[0]);
    name[strcspn(name, ".")] = '\0';
    if (!sv_desk_file(app->desk, name, &out, &type)) {
        sv_fail(x, 404, NULL, "not_found",
                "There is no such file, or its time is over (--result-ttl).");
        return;
    }
    sv_reply_header(x, "Content-Security-Policy", "default-src 'none'; sandbox");
    sv_reply_header(x, "Content-Disposition", "inline");
    sv_reply(x, 200, type, &out);
}
