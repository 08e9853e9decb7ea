/* routes_info.c: what there is: models, health, the plan, the web page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"

static void put_model(const struct sv_app *app, struct sv_text *out, const char *name)
{
    sv_json_open(out, NULL, '{');
    sv_json_put_string(out, "id", name);
    sv_json_put_string(out, "object", "model");
    sv_json_put_integer(out, "created", (int64_t)app->started);
    sv_json_put_string(out, "owned_by", "ounce");
    sv_json_put_string(out, "root", app->info.name);
    sv_json_close(out, '}');
}

SV_HANDLER(sv_models_list)
{
    struct sv_text out = {0};
    (void)match;
    sv_json_open(&out, NULL, '{');
    sv_json_put_string(&out, "object", "list");
    sv_json_open(&out, "data", '[');
    for (size_t i = 0; i < app->name_count; i++) {
        put_model(app, &out, app->names[i]);
    }
    sv_json_close(&out, ']');
    sv_json_close(&out, '}');
    sv_reply_json(x, 200, &out);
}

SV_HANDLER(sv_models_get)
{
    for (size_t i = 0; i < app->name_count; i++) {
        if (strcmp(app->names[i], match->part[0]) == 0) {
            struct sv_text out = {0};
            put_model(app, &out, app->names[i]);
            sv_reply_json(x, 200, &out);
            return;
        }
    }
    sv_fail(x, 404, "model", "model_not_found", "There is no model '%.80s' here; it is '%.200s'.",
            match->part[0], app->names[0]);
}

SV_HANDLER(sv_health)
{
    static const char text[] = "{\"status\":\"alive\"}\n";
    (void)app;
    (void)match;
    sv_reply_fixed(x, 200, "application/json", text, sizeof text - 1);
}

SV_HANDLER(sv_ready)
{
    static const char text[] = "{\"status\":\"ready\"}\n";
    (void)match;
    int stage = atomic_load(&app->stage);
    if (stage == SV_READY) {
        sv_reply_fixed(x, 200, "application/json", text, sizeof text - 1);
        return;
    }
    sv_reply_header(x, "Retry-After", "2");
    sv_fail(x, 503, NULL, stage == SV_LOADING ? "loading" : "shutting_down",
            stage == SV_LOADING ? "The model is being loaded." : "The server is shutting down.");
}

SV_HANDLER(sv_plan)
{
    (void)match;
    sv_reply_fixed(x, 200, "application/json", app->plan.data, app->plan.bytes);
}

SV_HANDLER(sv_loaded)
{
    (void)match;
    sv_reply_fixed(x, 200, "application/json", app->loaded.data, app->loaded.bytes);
}

SV_HANDLER(sv_openapi)
{
    (void)match;
    sv_reply_fixed(x, 200, "application/json", app->openapi.data, app->openapi.bytes);
}

SV_HANDLER(sv_page)
{
    const char *path = strcmp(x->path, "/") == 0       ? "index.html"
                       : strcmp(x->path, "/docs") == 0 ? "docs.html"
                                                       : match->part[0];
    const struct sv_web_file *file = NULL;
    (void)app;
    for (size_t i = 0; i < sv_web_file_count; i++) {
        if (strcmp(sv_web_files[i].path, path) == 0) {
            file = &sv_web_files[i];
        }
    }
    if (file == NULL) {
        sv_fail(x, 404, NULL, "not_found", "The page has no part '%.80s'.", path);
        return;
    }
    sv_reply_header(x, "Content-Security-Policy",
                    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: "
                    "data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'");
    sv_reply_header(x, "Referrer-Policy", "no-referrer");
    sv_reply_header(x, "ETag", file->etag);
    const char *known = sv_header(x, "If-None-Match");
    if (known != NULL && strcmp(known, file->etag) == 0) {
        sv_reply_fixed(x, 304, NULL, "", 0);
    } else {
        sv_reply_fixed(x, 200, file->type, file->data, file->bytes);
    }
}

/* ---- /v1/loaded, once ---- */

static void copy_number(struct sv_text *out, const struct sv_json *from, const char *name)
{
    sv_json_put_integer(out, name, sv_json_integer(sv_json_get(from, name)));
}

static void put_schemes(struct sv_text *out, const struct sv_json *schemes)
{
    sv_json_open(out, "by_scheme", '[');
    for (size_t i = 0; schemes != NULL && i < sv_json_count(schemes); i++) {
        const struct sv_json *row = sv_json_at(schemes, i);
        sv_json_open(out, NULL, '{');
        sv_json_put_string(out, "name", sv_json_string(sv_json_get(row, "name")));
        copy_number(out, row, "tensors");
        copy_number(out, row, "parameters");
        copy_number(out, row, "file_bytes");
        copy_number(out, row, "resident_bytes");
        copy_number(out, row, "mapped_bytes");
        sv_json_close(out, '}');
    }
    sv_json_close(out, ']');
}

static void put_memory(struct sv_text *out, const struct sv_json *memory)
{
    const char *name;
    const struct sv_json *value;
    sv_json_open(out, "memory", '{');
    for (size_t i = 0; memory != NULL && sv_json_member(memory, i, &name, &value); i++) {
        sv_json_put_integer(out, name, sv_json_integer(value));
    }
    sv_json_close(out, '}');
}

static void put_defaults(const struct sv_app *app, struct sv_text *out)
{
    const struct sv_ask *initial = &app->initial;
    sv_json_open(out, "defaults", '{');
    sv_json_put_integer(out, "width", initial->width > 0 ? initial->width : app->info.width);
    sv_json_put_integer(out, "height", initial->height > 0 ? initial->height : app->info.height);
    sv_json_put_integer(out, "num_inference_steps",
                        initial->steps > 0 ? initial->steps : app->info.num_inference_steps);
    sv_json_put_number(out, "true_cfg_scale",
                       initial->guidance >= 0 ? initial->guidance : app->info.true_cfg_scale);
    sv_json_put_string(out, "negative_prompt",
                       initial->negative_prompt != NULL ? initial->negative_prompt
                                                        : app->info.negative_prompt);
    sv_json_close(out, '}');
    sv_json_open(out, "limits", '{');
    sv_json_put_integer(out, "max_pixels", app->limits.max_pixels);
    sv_json_put_integer(out, "size_multiple", app->limits.size_multiple);
    sv_json_put_integer(out, "max_pictures", SV_MOST_PICTURES);
    sv_json_put_integer(out, "max_queue", app->options->max_queue);
    sv_json_put_integer(out, "max_per_client", app->options->max_per_client);
    sv_json_put_integer(out, "max_num_seqs", app->options->max_num_seqs);
    sv_json_put_number(out, "result_ttl", app->options->result_ttl);
    sv_json_close(out, '}');
}

/* A gauge of each scheme: the member of that name. */
static void put_gauge(struct sv_text *out, const struct sv_json *schemes, const char *name,
                      const char *help, const char *member)
{
    sv_text_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    for (size_t i = 0; schemes != NULL && i < sv_json_count(schemes); i++) {
        const struct sv_json *row = sv_json_at(schemes, i);
        sv_text_printf(out, "%s{scheme=\"%s\"} %lld\n", name,
                       sv_json_string(sv_json_get(row, "name")),
                       (long long)sv_json_integer(sv_json_get(row, member)));
    }
}

static void put_layers(struct sv_app *app, const struct sv_json *schemes)
{
    put_gauge(&app->layers, schemes, "ounce_tensors",
              "Tensors of the model by the scheme they are in.", "tensors");
    put_gauge(&app->layers, schemes, "ounce_weight_bytes", "Resident bytes of weights by scheme.",
              "resident_bytes");
}

bool sv_loaded_make(struct sv_app *app, struct oz_error *err)
{
    struct oz_plan_options options;
    char why[256] = "";
    oz_plan_options_default(&options);
    options.json = 1;
    if (oz_model_plan(app->options->engine, &options, sv_text_write, &app->plan, err) != OZ_OK) {
        if (app->plan.failed) { /* all that the library knows is that we did not take it */
            (void)sv_error(err, OZ_ERR_NOMEM, "Out of memory for the plan.");
        }
        return false;
    }
    struct sv_json *plan =
        sv_json_parse(app->plan.data, app->plan.bytes, SV_JSON_DEPTH_OWN, why, sizeof why);
    if (plan == NULL) {
        err->code = strcmp(why, SV_JSON_NO_MEMORY) == 0 ? OZ_ERR_NOMEM : OZ_ERR_INTERNAL;
        (void)snprintf(err->message, sizeof err->message, "The plan cannot be read: %s", why);
        return false;
    }
    struct sv_text *out = &app->loaded;
    sv_json_open(out, NULL, '{');
    sv_json_put_string(out, "model", app->names[0]);
    sv_json_put_string(out, "version", oz_version());
    static const char *const texts[] = {"pipeline", "device", "tier"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sv_json_put_string(out, texts[i], sv_json_string(sv_json_get(plan, texts[i])));
    }
    copy_number(out, plan, "threads");
    sv_json_put_string(out, "quantization", app->options->engine->quantization);
    put_defaults(app, out);
    put_schemes(out, sv_json_get(plan, "by_scheme"));
    put_memory(out, sv_json_get(plan, "memory"));
    sv_json_close(out, '}');
    sv_text_put(out, "\n");
    put_layers(app, sv_json_get(plan, "by_scheme"));
    sv_json_free(plan);
    return !out->failed && !app->layers.failed;
}
