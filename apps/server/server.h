/*
 * server.h: `ounce serve`, as the program calls it. The one header of this folder that apps/cli sees.
 */
#ifndef OUNCE_SERVER_SERVER_H
#define OUNCE_SERVER_SERVER_H

#include <ounce/ounce.h>
#include <stdbool.h>
#include <stddef.h>

struct sv_options {
    const struct oz_engine_options *engine; /* its progress is the server's own */

    const char *host;               /* name or address to listen on */
    int port;                       /* 0: any that is free */
    const char *tls_cert, *tls_key; /* PEM files; NULL: plain HTTP */
    const char *public_url;         /* what clients reach it by; NULL: what they say in Host */
    const char *const *cors_origins;
    size_t cors_origin_count;

    const char *const *api_keys;
    size_t api_key_count;
    const char *api_key_file; /* a key on each line; NULL: none */
    bool allow_no_key;        /* on an address that others reach */

    const char *const *served_names; /* none: the model's own */
    size_t served_name_count;

    int max_num_seqs, max_queue, max_connections;
    int max_per_client; /* pictures of one address that wait or run; 0: no limit */
    int64_t max_pixels;
    double request_timeout, result_ttl, read_timeout,
        shutdown_timeout;                /* seconds; request 0: none */
    const char *default_sampling_params; /* a JSON object; NULL: the model's */

    bool log_prompts, quiet;
    void (*say)(void *ctx, const char *line); /* log lines, from any thread */
    void (*listening)(void *ctx, const char *url);
    void *ctx;
};

/*
 * Serves until SIGTERM or SIGINT: then no new request is let in, waiting ones are refused, running ones
 * may end within shutdown_timeout, and it returns OZ_OK. A second signal cancels those. Blocks both
 * signals (and SIGHUP, which counts as SIGTERM) for the process.
 * OZ_ERR_ARG: options that are wrong together; OZ_ERR_IO: cannot listen; else as oz_engine_open.
 */
OZ_MUST_USE enum oz_status sv_serve(const struct sv_options *options, struct oz_error *err);

/* A deploy config: a YAML file as vLLM-Omni has them, of one stage. Texts are owned; NULL or 0: not in
 * the file. Other keys are an error that names them. */
struct sv_deploy {
    char *model, *quantization, *quantization_config, *device, *default_sampling_params;
    int max_num_seqs;
};
OZ_MUST_USE enum oz_status sv_deploy_read(struct sv_deploy *deploy, const char *path,
                                          struct oz_error *err);
void sv_deploy_free(struct sv_deploy *deploy);

#endif
