/*
 * http.h: requests in, replies out, over libmicrohttpd, which http.c alone calls. One thread speaks
 * with all clients and never computes; a second one watches: it notices clients that left while their
 * request was parked, and closes connections that take too long to say what they want.
 *
 * An exchange is a request and its reply. It goes through `begin` (its head is there; may reply at
 * once), `handle` (its body is there: replies, or parks it and replies later) and `ended` (for the
 * log), all on the one thread. Other threads may touch an exchange that they hold.
 */
#ifndef OUNCE_SERVER_HTTP_H
#define OUNCE_SERVER_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

struct sv_http;
struct MHD_Connection;
struct sv_exchange;

/* A client left. */
typedef void (*sv_gone_fn)(void *ctx, struct sv_exchange *x);

enum { SV_REPLY_HEADERS = 12 };

struct sv_exchange {
    /* The request. `begin` may read all of it but the body. */
    const char *method; /* in capital letters; "HEAD" has become "GET" */
    char *path;         /* decoded, without the query */
    char id[65];        /* of the request: the client's own, or random */
    char peer[48];      /* address of the client */
    struct sv_text body;
    double began_s;

    /* The reply: sv_reply and its kin set it. */
    int status; /* 0: none yet */
    const char *type;
    struct sv_text out;
    const void *fixed; /* instead of out: lives for ever */
    size_t fixed_bytes;
    const char *header_names[SV_REPLY_HEADERS]; /* live for ever */
    char *header_values[SV_REPLY_HEADERS];
    size_t headers;
    bool lacks_memory; /* for a header: the reply becomes a 503 */
    size_t sent_bytes; /* of the body, for the log */

    const void *route; /* the handlers' own */
    int key;           /* likewise: which API key it came with, -1: none */

    /* http.c's own. */
    struct sv_http *http;
    struct MHD_Connection *connection;
    int fd;
    uint64_t number;
    atomic_int refs;
    bool handled, awaits, streams, too_long, head_only, aborted;
    bool parked, stream_ended, finished; /* under its lock */
    struct sv_text stream;               /* not yet sent, from stream_at */
    size_t stream_at;
    sv_gone_fn gone;
    void *gone_ctx;
    struct sv_exchange *next, *last; /* among those that are parked or stream */
};

struct sv_http_options {
    const char *tls_cert, *tls_key; /* PEM; NULL: no TLS */
    int max_connections;
    double read_seconds; /* for a connection to deliver its next request whole */
    size_t body_bytes;   /* most of a request */
    void *ctx;
    void (*begin)(void *ctx, struct sv_exchange *x);
    void (*handle)(void *ctx, struct sv_exchange *x);
    void (*ended)(void *ctx, struct sv_exchange *x);
    void (*complain)(void *ctx, const char *message); /* of libmicrohttpd */
};

/* The address that host and port mean; *loopback: nobody else can reach it. *why: a sentence's end. */
struct sv_address {
    _Alignas(8) unsigned char bytes[128]; /* a struct sockaddr */
    unsigned length;
    bool loopback;
};
bool sv_http_resolve(const char *host, int port, struct sv_address *address, const char **why);

/* Opens libmicrohttpd, before anything else here; what is missing stands in *err. */
bool sv_http_open(struct oz_error *err);

/* Listens and serves. NULL: why. The options' texts are the caller's and stay. */
struct sv_http *sv_http_start(const struct sv_http_options *options,
                              const struct sv_address *address, char *why, size_t room);
int sv_http_port(const struct sv_http *http);
/* Takes no new connections from now on; exchanges under way go on, new ones still reach `begin`. */
void sv_http_quiesce(struct sv_http *http);
/* Exchanges that have not ended. */
int sv_http_pending(struct sv_http *http);
/* Ends everything that is under way (parked ones with 503, streams where they are) and frees. */
void sv_http_stop(struct sv_http **http);

/* Of the request, within begin and handle; NULL: none. */
const char *sv_header(const struct sv_exchange *x, const char *name);

/* `type` and header names live for ever. The text is taken over. A reply, or one of its headers, that there
 * is no memory for becomes a 503: nothing goes out in part. */
void sv_reply(struct sv_exchange *x, int status, const char *type, struct sv_text *out);
void sv_reply_fixed(struct sv_exchange *x, int status, const char *type, const void *data,
                    size_t bytes);
void sv_reply_header(struct sv_exchange *x, const char *name, const char *value);

/* Within handle, in place of a reply, which comes later, from any thread: sv_claim, and where that is
 * true the reply and sv_unpark. `gone` is told, from any thread and once at most, when the client has
 * left, not after sv_claim. The caller holds the exchange until it calls sv_release. False: the server
 * ends; a reply has been set. */
bool sv_park(struct sv_exchange *x, sv_gone_fn gone, void *gone_ctx);
bool sv_claim(struct sv_exchange *x); /* false: nobody waits for a reply any more */
void sv_unpark(struct sv_exchange *x);

/* Within handle: a reply whose body comes in pieces (server-sent events); the first is taken over. As
 * sv_park otherwise. */
bool sv_stream_begin(struct sv_exchange *x, const char *type, struct sv_text *first,
                     sv_gone_fn gone, void *gone_ctx);
/* From any thread. False: nothing was sent, for the client has left or is a megabyte behind. */
bool sv_stream_write(struct sv_exchange *x, const void *data, size_t bytes);
void sv_stream_end(struct sv_exchange *x);

void sv_release(struct sv_exchange *x);

#endif
