/*
 * http.c: the one file that calls libmicrohttpd. What it leaves to us:
 *  - A suspended connection does not notice that its client left: the watcher polls for that.
 *  - All must be resumed before the daemon stops, and none suspended after.
 *  - Its timeout is of silence: a client that sends a byte now and then has it begin again. The watcher
 *    counts from the end of the last exchange.
 * Order of locks: a caller's own, then http->lock. `gone` is called without ours.
 */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/words.h"
#include "mhd.h"

enum {
    HEAD_BYTES = 32 * 1024,      /* of a request's line and headers, and our buffers for it */
    STREAM_BEHIND = 1024 * 1024, /* bytes that a client may be behind in a stream */
    SILENT_SECONDS = 60, /* after which a connection that neither sends nor reads is closed */
    SEND_SECONDS = 600,  /* for a client to take a reply that is no stream */
    WATCH_MS = 250,
};

/* A TCP connection: where it is, and since when. */
struct link {
    int fd;
    enum { READING, WORKING, SENDING } at;
    double since_s;
    bool streams;
    struct link *next, *last;
};

struct sv_http {
    struct sv_http_options options;
    struct MHD_Daemon *daemon;
    int listens, port, epoll;
    pthread_t watcher;
    bool watches, quiesced;
    pthread_mutex_t lock;
    bool stopping;              /* all below under the lock */
    struct sv_exchange *parked; /* or streaming */
    struct link *links;
    uint64_t numbers;
    int pending;
};

/* Set by sv_http_open, before there is a thread. */
static const struct sv_mhd *mhd;

static const char no_memory[] =
    "{\"error\":{\"message\":\"Out of memory.\",\"type\":\"server_error\",\"param\":null,"
    "\"code\":\"out_of_memory\"}}\n";

/* ---- addresses ---- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

bool sv_http_resolve(const char *host, int port, struct sv_address *address, const char **why)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char number[16], bare[256];
    size_t length = strlen(host);
    (void)snprintf(number, sizeof number, "%d", port);
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    if (length > 2 && length < sizeof bare && host[0] == '[' && host[length - 1] == ']') {
        (void)snprintf(bare, sizeof bare, "%.*s", (int)length - 2, host + 1);
        host = bare;
    }
    int code = getaddrinfo(host, number, &hints, &found);
    if (code != 0 || found->ai_addrlen > sizeof address->bytes) {
        *why = code != 0 ? gai_strerror(code) : "its address is too long";
        if (code == 0) {
            freeaddrinfo(found);
        }
        return false;
    }
    memcpy(address->bytes, found->ai_addr, found->ai_addrlen);
    address->length = found->ai_addrlen;
    address->loopback = true;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        address->loopback = address->loopback && is_loopback(at->ai_addr);
    }
    freeaddrinfo(found);
    return true;
}

static void name_peer(char peer[48], const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN] = "?";
    if (address != NULL && address->sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr,
                        text, sizeof text);
    } else if (address != NULL && address->sa_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr,
                        text, sizeof text);
    }
    (void)snprintf(peer, 48, "%s", text);
}

/* ---- exchanges ---- */

void sv_release(struct sv_exchange *x)
{
    if (x == NULL || atomic_fetch_sub(&x->refs, 1) > 1) {
        return;
    }
    for (size_t i = 0; i < x->headers; i++) {
        free(x->header_values[i]);
    }
    free(x->path);
    sv_text_free(&x->body);
    sv_text_free(&x->out);
    sv_text_free(&x->stream);
    free(x);
}

/* The name of a request: the client's, where it is plain, else a random one. */
static void name_request(struct sv_exchange *x)
{
    const char *own = sv_header(x, "X-Request-Id");
    size_t n = own != NULL ? strlen(own) : 0;
    if (n > 0 && n < sizeof x->id &&
        own[strspn(own, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")] ==
            '\0') {
        memcpy(x->id, own, n + 1);
    } else if (sv_random_id(x->id)) {
        x->id[16] = '\0';
    }
}

static struct sv_exchange *exchange_new(struct sv_http *http, struct MHD_Connection *connection,
                                        const char *path, const char *method)
{
    struct sv_exchange *x = calloc(1, sizeof *x);
    if (x == NULL || (x->path = sv_copy(path)) == NULL) {
        free(x);
        return NULL;
    }
    x->http = http;
    x->connection = connection;
    x->head_only = strcmp(method, "HEAD") == 0;
    x->method = x->head_only ? "GET" : method;
    x->key = -1;
    x->began_s = words_seconds();
    atomic_init(&x->refs, 1);
    const union MHD_ConnectionInfo *info =
        mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    name_peer(x->peer, info != NULL ? info->client_addr : NULL);
    info = mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->fd = info != NULL ? info->connect_fd : -1;
    name_request(x);
    pthread_mutex_lock(&http->lock);
    x->number = ++http->numbers;
    http->pending++;
    pthread_mutex_unlock(&http->lock);
    return x;
}

const char *sv_header(const struct sv_exchange *x, const char *name)
{
    return mhd->lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static void link_at(const struct sv_exchange *x, int at)
{
    const union MHD_ConnectionInfo *info =
        mhd->get_connection_info(x->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct link *link = info != NULL ? info->socket_context : NULL;
    if (link != NULL) {
        pthread_mutex_lock(&x->http->lock);
        link->at = at;
        link->since_s = words_seconds();
        link->streams = at == SENDING && x->streams;
        pthread_mutex_unlock(&x->http->lock);
    }
}

/* ---- replies ---- */

void sv_reply(struct sv_exchange *x, int status, const char *type, struct sv_text *out)
{
    sv_text_free(&x->out);
    x->out = *out;
    *out = (struct sv_text){0};
    x->fixed = NULL;
    x->status = status;
    x->type = type;
    if (x->out.failed) {
        sv_text_free(&x->out);
        sv_reply_fixed(x, 503, "application/json", no_memory, sizeof no_memory - 1);
    }
}

void sv_reply_fixed(struct sv_exchange *x, int status, const char *type, const void *data,
                    size_t bytes)
{
    sv_text_free(&x->out);
    x->fixed = data;
    x->fixed_bytes = bytes;
    x->status = status;
    x->type = type;
}

void sv_reply_header(struct sv_exchange *x, const char *name, const char *value)
{
    char *copy = x->headers < SV_REPLY_HEADERS ? sv_copy(value) : NULL;
    if (copy == NULL) {
        x->lacks_memory = true;
    } else {
        x->header_names[x->headers] = name;
        x->header_values[x->headers++] = copy;
    }
}

static ssize_t stream_read(void *cls, uint64_t position, char *buffer, size_t room)
{
    struct sv_exchange *x = cls;
    (void)position;
    pthread_mutex_lock(&x->http->lock);
    size_t n = x->stream.bytes - x->stream_at;
    n = n < room ? n : room;
    ssize_t result = (ssize_t)n;
    if (n > 0) {
        memcpy(buffer, x->stream.data + x->stream_at, n);
        x->stream_at += n;
        x->sent_bytes += n;
        if (x->stream_at == x->stream.bytes) {
            x->stream.bytes = x->stream_at = 0;
        }
    } else if (x->stream_ended || x->http->stopping) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->parked = true;
        mhd->suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->http->lock);
    return result;
}

static void release_cls(void *cls)
{
    sv_release(cls);
}

static struct MHD_Response *make_response(struct sv_exchange *x)
{
    if (x->streams) {
        atomic_fetch_add(&x->refs, 1);
        struct MHD_Response *stream =
            mhd->create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, stream_read, x, release_cls);
        if (stream == NULL) {
            sv_release(x);
        }
        return stream;
    }
    if (x->fixed != NULL || x->out.data == NULL) {
        x->sent_bytes = x->fixed != NULL ? x->fixed_bytes : 0;
        return mhd->create_response_from_buffer(x->sent_bytes, (void *)(uintptr_t)x->fixed,
                                                MHD_RESPMEM_PERSISTENT);
    }
    struct MHD_Response *response =
        mhd->create_response_from_buffer(x->out.bytes, x->out.data, MHD_RESPMEM_MUST_FREE);
    if (response != NULL) {
        x->sent_bytes = x->out.bytes;
        x->out = (struct sv_text){0};
    }
    return response;
}

/* MHD_NO, which ends the connection, where there is no memory for the least of replies. */
static enum MHD_Result queue_reply(struct sv_exchange *x)
{
    if (x->lacks_memory && !x->streams) {
        sv_reply_fixed(x, 503, "application/json", no_memory, sizeof no_memory - 1);
    }
    struct MHD_Response *response = make_response(x);
    if (response == NULL) {
        return MHD_NO;
    }
    enum MHD_Result result = x->lacks_memory && x->streams ? MHD_NO : MHD_YES;
    if (result == MHD_YES && x->type != NULL) {
        result = mhd->add_response_header(response, "Content-Type", x->type);
    }
    if (result == MHD_YES) {
        result = mhd->add_response_header(response, "X-Request-Id", x->id);
    }
    for (size_t i = 0; i < x->headers && result == MHD_YES; i++) {
        result = mhd->add_response_header(response, x->header_names[i], x->header_values[i]);
    }
    link_at(x, SENDING);
    if (result == MHD_YES) {
        result = mhd->queue_response(x->connection, (unsigned)x->status, response);
    }
    mhd->destroy_response(response);
    return result;
}

/* ---- parking ---- */

/* Under the lock. */
static void list_add(struct sv_exchange *x)
{
    struct sv_http *http = x->http;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = x->number};
    x->next = http->parked;
    if (x->next != NULL) {
        x->next->last = x;
    }
    http->parked = x;
    (void)epoll_ctl(http->epoll, EPOLL_CTL_ADD, x->fd, &event);
}

/* Under the lock. */
static bool list_has(const struct sv_exchange *x)
{
    return x->last != NULL || x->http->parked == x;
}

/* Under the lock; nothing where it is not in the list. */
static void list_remove(struct sv_exchange *x)
{
    struct sv_http *http = x->http;
    if (!list_has(x)) {
        return;
    }
    *(x->last != NULL ? &x->last->next : &http->parked) = x->next;
    if (x->next != NULL) {
        x->next->last = x->last;
    }
    x->next = x->last = NULL;
    (void)epoll_ctl(http->epoll, EPOLL_CTL_DEL, x->fd, NULL);
}

static void reply_stopping(struct sv_exchange *x)
{
    static const char text[] =
        "{\"error\":{\"message\":\"The server is shutting down.\",\"type\":\"server_error\","
        "\"param\":null,\"code\":\"shutting_down\"}}\n";
    sv_reply_fixed(x, 503, "application/json", text, sizeof text - 1);
}

/* Under the lock. */
static void resume(struct sv_exchange *x)
{
    if (x->parked && !x->finished) {
        x->parked = false;
        mhd->resume_connection(x->connection);
    }
}

static bool enlist(struct sv_exchange *x, sv_gone_fn gone, void *gone_ctx)
{
    struct sv_http *http = x->http;
    pthread_mutex_lock(&http->lock);
    bool ok = !http->stopping;
    if (ok) {
        atomic_fetch_add(&x->refs, 1);
        x->gone = gone;
        x->gone_ctx = gone_ctx;
        if (!x->streams) {
            x->parked = x->awaits = true;
            mhd->suspend_connection(x->connection);
        }
        list_add(x);
    }
    pthread_mutex_unlock(&http->lock);
    if (!ok) {
        x->streams = false;
        reply_stopping(x);
    }
    return ok;
}

bool sv_park(struct sv_exchange *x, sv_gone_fn gone, void *gone_ctx)
{
    link_at(x, WORKING);
    return enlist(x, gone, gone_ctx);
}

bool sv_claim(struct sv_exchange *x)
{
    pthread_mutex_lock(&x->http->lock);
    bool ours = x->parked && !x->finished && list_has(x);
    if (ours) {
        x->gone = NULL;
        list_remove(x);
    }
    pthread_mutex_unlock(&x->http->lock);
    return ours;
}

void sv_unpark(struct sv_exchange *x)
{
    pthread_mutex_lock(&x->http->lock);
    resume(x);
    pthread_mutex_unlock(&x->http->lock);
}

bool sv_stream_begin(struct sv_exchange *x, const char *type, struct sv_text *first,
                     sv_gone_fn gone, void *gone_ctx)
{
    x->streams = true;
    x->stream = *first;
    *first = (struct sv_text){0};
    x->status = 200;
    x->type = type;
    return enlist(x, gone, gone_ctx);
}

bool sv_stream_write(struct sv_exchange *x, const void *data, size_t bytes)
{
    pthread_mutex_lock(&x->http->lock);
    bool ok = !x->finished && x->stream.bytes - x->stream_at <= STREAM_BEHIND;
    if (ok) {
        sv_text_add(&x->stream, data, bytes);
        ok = !x->stream.failed;
        x->stream.failed = false;
        resume(x);
    }
    pthread_mutex_unlock(&x->http->lock);
    return ok;
}

void sv_stream_end(struct sv_exchange *x)
{
    pthread_mutex_lock(&x->http->lock);
    x->stream_ended = true;
    x->gone = NULL;
    list_remove(x);
    resume(x);
    pthread_mutex_unlock(&x->http->lock);
}

/* ---- what libmicrohttpd calls ---- */

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **slot)
{
    struct sv_http *http = cls;
    struct sv_exchange *x = *slot;
    (void)version;
    if (x == NULL) {
        x = exchange_new(http, connection, url, method);
        *slot = x;
        if (x == NULL) {
            return MHD_NO;
        }
        http->options.begin(http->options.ctx, x);
        /* A reply before the body ends the connection, so it waits where there is no body. */
        bool body =
            sv_header(x, "Content-Length") != NULL || sv_header(x, "Transfer-Encoding") != NULL;
        return x->status != 0 && body ? queue_reply(x) : MHD_YES;
    }
    if (*bytes > 0) {
        /* What is too much is read and dropped, so that the client comes to read the answer. */
        x->too_long = x->too_long || *bytes > http->options.body_bytes - x->body.bytes;
        if (!x->too_long) {
            sv_text_add(&x->body, data, *bytes);
        }
        *bytes = 0;
        return MHD_YES;
    }
    if (!x->handled && x->status == 0) {
        x->handled = true;
        http->options.handle(http->options.ctx, x);
    }
    if (x->awaits) {
        /* It may have been resumed already: then we are called again, and the reply is there. */
        x->awaits = false;
        return MHD_YES;
    }
    return x->status != 0 ? queue_reply(x) : MHD_NO;
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **slot,
                         enum MHD_RequestTerminationCode code)
{
    struct sv_http *http = cls;
    struct sv_exchange *x = *slot;
    (void)connection;
    if (x == NULL) {
        return;
    }
    *slot = NULL;
    x->aborted = code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    http->options.ended(http->options.ctx, x);
    link_at(x, READING);
    pthread_mutex_lock(&http->lock);
    list_remove(x);
    x->finished = true;
    sv_gone_fn gone = x->gone;
    x->gone = NULL;
    http->pending--;
    pthread_mutex_unlock(&http->lock);
    if (gone != NULL) {
        gone(x->gone_ctx, x);
    }
    sv_release(x);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    struct sv_http *http = cls;
    struct link *link = *slot;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        link = calloc(1, sizeof *link);
        if (link == NULL || info == NULL) {
            if (info != NULL) { /* nobody would see whether it is slow */
                (void)shutdown(info->connect_fd, SHUT_RDWR);
            }
            free(link);
            return;
        }
        link->fd = info->connect_fd;
        link->since_s = words_seconds();
        pthread_mutex_lock(&http->lock);
        link->next = http->links;
        if (link->next != NULL) {
            link->next->last = link;
        }
        http->links = link;
        pthread_mutex_unlock(&http->lock);
        *slot = link;
    } else if (link != NULL) {
        pthread_mutex_lock(&http->lock);
        *(link->last != NULL ? &link->last->next : &http->links) = link->next;
        if (link->next != NULL) {
            link->next->last = link->last;
        }
        pthread_mutex_unlock(&http->lock);
        free(link);
        *slot = NULL;
    }
}

__attribute__((format(printf, 2, 0))) static void on_complaint(void *cls, const char *format,
                                                               va_list args)
{
    struct sv_http *http = cls;
    char text[512];
    (void)vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    http->options.complain(http->options.ctx, text);
}

/* ---- the watcher ---- */

/* A parked exchange's client left: tells its holder, and lets the connection find out itself. */
static void left(struct sv_http *http, uint64_t number)
{
    struct sv_exchange *found = NULL;
    sv_gone_fn gone = NULL;
    pthread_mutex_lock(&http->lock);
    for (struct sv_exchange *x = http->parked; x != NULL; x = x->next) {
        if (x->number == number) {
            found = x;
            gone = x->gone;
            x->gone = NULL;
            atomic_fetch_add(&x->refs, 1);
            x->stream_ended = true;
            list_remove(x);
            if (!x->streams) {
                x->status = 499; /* never read; for the log */
                x->fixed = "";
                x->fixed_bytes = 0;
            }
            resume(x);
            break;
        }
    }
    pthread_mutex_unlock(&http->lock);
    if (gone != NULL) {
        gone(found->gone_ctx, found);
    }
    sv_release(found);
}

static void close_slow(struct sv_http *http)
{
    double now = words_seconds();
    pthread_mutex_lock(&http->lock);
    for (struct link *link = http->links; link != NULL; link = link->next) {
        double most = link->at == READING ? http->options.read_seconds : SEND_SECONDS;
        if (link->at != WORKING && !link->streams && now - link->since_s > most) {
            (void)shutdown(link->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&http->lock);
}

static void *watch(void *arg)
{
    struct sv_http *http = arg;
    double looked_s = words_seconds();
    for (bool stopping = false; !stopping;) {
        struct epoll_event events[64];
        int n = epoll_wait(http->epoll, events, 64, WATCH_MS);
        for (int i = 0; i < n; i++) {
            left(http, events[i].data.u64);
        }
        if (words_seconds() - looked_s > WATCH_MS * 1e-3) {
            looked_s = words_seconds();
            close_slow(http);
        }
        pthread_mutex_lock(&http->lock);
        stopping = http->stopping;
        pthread_mutex_unlock(&http->lock);
    }
    return NULL;
}

/* ---- life ---- */

static int listen_on(const struct sv_address *address, int *port)
{
    const struct sockaddr *name = (const void *)address->bytes;
    int yes = 1, fd = socket(name->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, name, address->length) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &length) != 0) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
        return -1;
    }
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)&bound)->sin_port);
    return fd;
}

static bool start_daemon(struct sv_http *http)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     (http->options.tls_cert != NULL ? (unsigned)MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)http->options.tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)http->options.tls_key},
        {MHD_OPTION_END, 0, NULL},
    };
    if (http->options.tls_cert == NULL) {
        tls[0] = tls[2];
    }
    http->daemon = mhd->start_daemon(
        flags, 0, NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_complaint, http,
        MHD_OPTION_LISTEN_SOCKET, http->listens, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)http->options.max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)SILENT_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
    return http->daemon != NULL;
}

bool sv_http_open(struct oz_error *err)
{
    mhd = sv_mhd_open(err);
    return mhd != NULL;
}

struct sv_http *sv_http_start(const struct sv_http_options *options,
                              const struct sv_address *address, char *why, size_t room)
{
    struct sv_http *http = calloc(1, sizeof *http);
    if (http == NULL) {
        (void)snprintf(why, room, "out of memory");
        return NULL;
    }
    http->options = *options;
    http->epoll = -1;
    (void)pthread_mutex_init(&http->lock, NULL);
    http->listens = listen_on(address, &http->port);
    if (http->listens < 0) {
        (void)snprintf(why, room, "%s", strerror(errno));
        sv_http_stop(&http);
        return NULL;
    }
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    http->watches = http->epoll >= 0 && pthread_create(&http->watcher, NULL, watch, http) == 0;
    if (!http->watches || !start_daemon(http)) {
        (void)snprintf(why, room, "%s",
                       !http->watches              ? "no thread could be started"
                       : options->tls_cert != NULL ? "is the certificate or its key no PEM?"
                                                   : "libmicrohttpd refused");
        sv_http_stop(&http);
        return NULL;
    }
    return http;
}

int sv_http_port(const struct sv_http *http)
{
    return http->port;
}

void sv_http_quiesce(struct sv_http *http)
{
    if (!http->quiesced) {
        int fd = (int)mhd->quiesce_daemon(http->daemon);
        http->quiesced = true;
        if (fd >= 0) {
            (void)close(fd);
            http->listens = -1;
        }
    }
}

int sv_http_pending(struct sv_http *http)
{
    pthread_mutex_lock(&http->lock);
    int pending = http->pending;
    pthread_mutex_unlock(&http->lock);
    return pending;
}

static void resume_all(struct sv_http *http)
{
    pthread_mutex_lock(&http->lock);
    http->stopping = true;
    while (http->parked != NULL) {
        struct sv_exchange *x = http->parked;
        list_remove(x);
        x->stream_ended = true;
        if (!x->streams && x->status == 0) {
            reply_stopping(x);
        }
        resume(x);
    }
    pthread_mutex_unlock(&http->lock);
}

void sv_http_stop(struct sv_http **slot)
{
    struct sv_http *http = *slot;
    if (http == NULL) {
        return;
    }
    *slot = NULL;
    if (http->daemon != NULL) {
        sv_http_quiesce(http);
    }
    resume_all(http);
    if (http->watches) {
        (void)pthread_join(http->watcher, NULL);
    }
    if (http->daemon != NULL) {
        /* The replies that were just set deserve a moment to leave. */
        for (int i = 0; i < 50 && sv_http_pending(http) > 0; i++) {
            (void)usleep(10000);
        }
        mhd->stop_daemon(http->daemon);
    }
    if (http->listens >= 0) {
        (void)close(http->listens);
    }
    if (http->epoll >= 0) {
        (void)close(http->epoll);
    }
    (void)pthread_mutex_destroy(&http->lock);
    free(http);
}
