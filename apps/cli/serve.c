/* serve.c: `ounce serve`. What the options and the deploy config mean to the server. */
#include "command.h"

#include "messages.h"

#ifdef OZ_HAVE_SERVER

#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "server/server.h"
#include "text.h"

static void say(void *ctx, const char *line)
{
    (void)ctx;
    cli_say("%s", line);
}

static void listening(void *ctx, const char *url)
{
    (void)ctx;
    (void)cli_printf("%s\n", url);
    (void)cli_print_end(); /* the log says that it runs, too */
}

static void say_without_effect(const struct settings *s)
{
    const struct {
        bool given;
        const char *name, *why;
    } flags[] = {
        {s->omni, "omni", "ounce has one kind of server"},
        {s->step_execution, "step-execution", "requests always join and leave between steps"},
        {s->trust_remote_code, "trust-remote-code", "no code of a model is ever run"},
        {s->enforce_eager, "enforce-eager", "nothing is compiled or captured"},
        {s->force_cutlass_fp8, "force-cutlass-fp8", "--linear-backend chooses kernels"},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags && !s->quiet; i++) {
        if (flags[i].given) {
            cli_say("ounce: --%s has no effect: %s.", flags[i].name, flags[i].why);
        }
    }
}

static void fill(struct sv_options *o, const struct settings *s, const struct sv_deploy *deploy)
{
    *o = (struct sv_options){
        .host = s->host != NULL ? s->host : "127.0.0.1",
        .port = s->port,
        .tls_cert = s->tls_cert,
        .tls_key = s->tls_key,
        .public_url = s->public_url,
        .cors_origins = s->cors_origins.items,
        .cors_origin_count = s->cors_origins.count,
        .api_keys = s->api_keys.items,
        .api_key_count = s->api_keys.count,
        .api_key_file = s->api_key_file,
        .allow_no_key = s->allow_no_key,
        .served_names = s->served_names.items,
        .served_name_count = s->served_names.count,
        .max_num_seqs = s->max_num_seqs > 0        ? s->max_num_seqs
                        : deploy->max_num_seqs > 0 ? deploy->max_num_seqs
                                                   : 4,
        .max_queue = s->max_queue,
        .max_per_client = s->max_per_client,
        .max_connections = s->max_connections,
        .max_pixels = s->max_pixels,
        .request_timeout = s->request_timeout,
        .result_ttl = s->result_ttl,
        .read_timeout = s->read_timeout,
        .shutdown_timeout = s->shutdown_timeout,
        .default_sampling_params = s->default_sampling_params != NULL
                                       ? s->default_sampling_params
                                       : deploy->default_sampling_params,
        .log_prompts = s->log_prompts,
        .quiet = s->quiet,
        .say = say,
        .listening = listening,
    };
}

static enum oz_status serve(const struct settings *s, const struct sv_deploy *deploy,
                            struct oz_error *err)
{
    struct oz_engine_options engine;
    struct sv_options options;
    struct text_list ignored = {0};
    bool verbose = s->verbose;
    cli_model_options(&engine, s, &ignored);
    engine.log = cli_log;
    engine.log_ctx = &verbose;
    if (engine.model == NULL) {
        engine.model = deploy->model;
    }
    if (engine.device == NULL) {
        engine.device = deploy->device;
    }
    if (engine.quantization == NULL && engine.quantization_config == NULL &&
        engine.quantization_key_count == 0) {
        engine.quantization = deploy->quantization;
        engine.quantization_config = deploy->quantization_config;
    }
    fill(&options, s, deploy);
    options.engine = &engine;
    enum oz_status status = sv_serve(&options, err);
    cli_model_options_free(&ignored);
    return status;
}

enum oz_status cli_serve(const struct settings *s)
{
    struct sv_deploy deploy = {0};
    struct oz_error err = {0};
    if (s->quiet && s->verbose) {
        return cli_fail(OZ_ERR_ARG, "--quiet and --verbose exclude each other.");
    }
    enum oz_status status =
        s->deploy_config != NULL ? sv_deploy_read(&deploy, s->deploy_config, &err) : OZ_OK;
    if (status == OZ_OK) {
        say_without_effect(s);
        status = serve(s, &deploy, &err);
    }
    sv_deploy_free(&deploy);
    return status == OZ_OK ? OZ_OK : cli_fail_with(&err);
}

#else

enum oz_status cli_serve(const struct settings *s)
{
    (void)s;
    return cli_fail(OZ_ERR_UNSUPPORTED,
                    "This build has no server: it was configured without libmicrohttpd-dev or "
                    "libjansson-dev, or with OUNCE_SERVER=OFF.");
}

#endif
