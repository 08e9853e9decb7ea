/*
 * routes_sdapi.c: what clients of the A1111 API call. There a progress has no name: here it is that of
 * the caller's own newest txt2img (by key and address), and interrupt cancels those alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"

static void put_info(struct sv_text *out, const struct sv_job *job)
{
    struct sv_text info = {0};
    sv_json_open(&info, NULL, '{');
    sv_json_put_string(&info, "prompt", job->ask.prompt);
    sv_json_open(&info, "all_seeds", '[');
    for (int i = 0; i < job->n; i++) {
        sv_json_put_unsigned(&info, NULL, job->pictures[i].now.seed);
    }
    sv_json_close(&info, ']');
    sv_json_put_unsigned(&info, "seed", job->pictures[0].now.seed);
    sv_json_put_integer(&info, "width", job->pictures[0].now.width);
    sv_json_put_integer(&info, "height", job->pictures[0].now.height);
    sv_json_put_integer(&info, "steps", job->pictures[0].now.steps);
    sv_json_put_integer(&info, "batch_size", job->n);
    sv_json_close(&info, '}');
    sv_json_put_string(out, "info", info.failed ? NULL : info.data);
    out->failed = out->failed || info.failed;
    sv_text_free(&info);
}

static void finish(void *ctx, struct sv_job *job, struct sv_exchange *x)
{
    struct sv_text out = {0};
    if (sv_job_failure(job) != NULL) {
        sv_finish_failed(ctx, x, job);
        return;
    }
    sv_json_open(&out, NULL, '{');
    sv_json_open(&out, "images", '[');
    for (int i = 0; i < job->n; i++) {
        sv_json_put_base64(&out, NULL, job->pictures[i].file.data, job->pictures[i].file.bytes);
    }
    sv_json_close(&out, ']');
    sv_json_open(&out, "parameters", '{');
    sv_json_put_string(&out, "prompt", job->ask.prompt);
    sv_json_put_string(&out, "negative_prompt", job->ask.negative_prompt);
    sv_json_put_integer(&out, "seed", job->ask.seed);
    sv_json_put_integer(&out, "steps", job->pictures[0].now.steps);
    sv_json_put_integer(&out, "width", job->pictures[0].now.width);
    sv_json_put_integer(&out, "height", job->pictures[0].now.height);
    sv_json_put_integer(&out, "batch_size", job->ask.batch_size);
    sv_json_put_integer(&out, "n_iter", job->ask.n_iter);
    sv_json_close(&out, '}');
    put_info(&out, job);
    sv_json_close(&out, '}');
    sv_reply_json(x, 200, &out);
}

SV_HANDLER(sv_sdapi_txt2img)
{
    char id[40];
    (void)match;
    (void)sv_submit(app, x, SV_API_SDAPI, false, finish, id);
}

/* ---- the caller's own jobs ---- */

struct mine {
    struct sv_app *app;
    char client[400];
    bool cancel;
    int64_t step, steps, running;
    double left;
    char id[40];
    time_t created;
    struct sv_text preview;
};

static void look(void *ctx, struct sv_job *job)
{
    struct mine *mine = ctx;
    if (!job->sdapi || job->ended || strcmp(job->client, mine->client) != 0) {
        return;
    }
    mine->running++;
    if (mine->cancel) {
        sv_job_cancel(mine->app->desk, job);
        return;
    }
    if (mine->id[0] != '\0') {
        return; /* the newest came first */
    }
    sv_job_refresh(mine->app->desk, job);
    (void)snprintf(mine->id, sizeof mine->id, "%s", job->id);
    mine->created = job->created;
    for (int i = 0; i < job->n; i++) {
        const struct sv_picture *p = &job->pictures[i];
        mine->step += p->ended ? p->now.steps : p->now.step;
        mine->steps += p->now.steps;
        mine->left = p->now.seconds_left > mine->left ? p->now.seconds_left : mine->left;
        if (p->preview.bytes > 0 && mine->preview.bytes == 0) {
            sv_text_base64(&mine->preview, p->preview.data, p->preview.bytes);
        }
    }
}

SV_HANDLER(sv_sdapi_progress)
{
    struct sv_ask nobody;
    struct mine mine = {.app = app};
    struct sv_text out = {0};
    char stamp[32];
    (void)match;
    sv_ask_init(&nobody);
    sv_client(x, &nobody, mine.client);
    sv_desk_each(app->desk, x->key, look, &mine);
    struct tm utc;
    (void)gmtime_r(&mine.created, &utc);
    (void)strftime(stamp, sizeof stamp, "%Y%m%d%H%M%S", &utc);
    sv_json_open(&out, NULL, '{');
    sv_json_put_number(&out, "progress",
                       mine.steps > 0 ? (double)mine.step / (double)mine.steps : 0);
    sv_json_put_number(&out, "eta_relative", mine.left);
    sv_json_open(&out, "state", '{');
    sv_json_put_bool(&out, "skipped", false);
    sv_json_put_bool(&out, "interrupted", false);
    sv_json_put_string(&out, "job", mine.id);
    sv_json_put_integer(&out, "job_count", mine.running);
    sv_json_put_string(&out, "job_timestamp", mine.running > 0 ? stamp : "0");
    sv_json_put_integer(&out, "job_no", 0);
    sv_json_put_integer(&out, "sampling_step", mine.step);
    sv_json_put_integer(&out, "sampling_steps", mine.steps);
    sv_json_close(&out, '}');
    sv_json_put_string(&out, "current_image", mine.preview.bytes > 0 ? mine.preview.data : NULL);
    out.failed = out.failed || mine.preview.failed;
    sv_json_put_string(&out, "textinfo", NULL);
    sv_json_close(&out, '}');
    sv_text_free(&mine.preview);
    sv_reply_json(x, 200, &out);
}

SV_HANDLER(sv_sdapi_interrupt)
{
    struct sv_ask nobody;
    struct mine mine = {.app = app, .cancel = true};
    struct sv_text out = {0};
    (void)match;
    sv_ask_init(&nobody);
    sv_client(x, &nobody, mine.client);
    sv_desk_each(app->desk, x->key, look, &mine);
    sv_json_open(&out, NULL, '{');
    sv_json_close(&out, '}');
    sv_reply_json(x, 200, &out);
}

SV_HANDLER(sv_sdapi_models)
{
    struct sv_text out = {0};
    (void)match;
    sv_json_open(&out, NULL, '[');
    sv_json_open(&out, NULL, '{');
    sv_json_put_string(&out, "title", app->names[0]);
    sv_json_put_string(&out, "model_name", app->names[0]);
    sv_json_put_string(&out, "hash", NULL);
    sv_json_put_string(&out, "sha256", NULL);
    sv_json_put_string(&out, "filename", app->names[0]);
    sv_json_put_string(&out, "config", NULL);
    sv_json_close(&out, '}');
    sv_json_close(&out, ']');
    sv_reply_json(x, 200, &out);
}

SV_HANDLER(sv_sdapi_samplers)
{
    struct sv_text out = {0};
    (void)app;
    (void)match;
    sv_text_put(&out, "[{\"name\":\"Euler\",\"aliases\":[\"euler\"],\"options\":{}}]");
    sv_reply_json(x, 200, &out);
}

SV_HANDLER(sv_sdapi_options)
{
    struct sv_text out = {0};
    (void)match;
    sv_json_open(&out, NULL, '{');
    sv_json_put_string(&out, "sd_model_checkpoint", app->names[0]);
    sv_json_close(&out, '}');
    sv_reply_json(x, 200, &out);
}
