#include "http/client.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scratch.h"

extern char **environ;

/* Longest wait for anything; under the thread sanitizer on a busy machine a picture takes a minute. */
#if defined(__SANITIZE_THREAD__)
enum { WAIT_MS = 240000 };
#else
enum { WAIT_MS = 60000 };
#endif

static int port;

double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void sleep_ms(int ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&time, NULL);
}

/* ---- the server ---- */

void server_use(const struct server *server)
{
    port = server->port;
}

char *server_log(const struct server *server)
{
    FILE *file = fopen(server->log, "re");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 20) - 1, file);
    text[n] = '\0';
    (void)fclose(file);
    return text;
}

static void read_port(struct server *server, int fd)
{
    char line[256] = "";
    size_t n = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (n + 1 < sizeof line && strchr(line, '\n') == NULL && poll(&wait, 1, WAIT_MS) > 0) {
        ssize_t got = read(fd, line + n, sizeof line - 1 - n);
        if (got <= 0) {
            break;
        }
        n += (size_t)got;
        line[n] = '\0';
    }
    const char *colon = strrchr(line, ':');
    if (colon == NULL) {
        char *log = server_log(server);
        fail_msg("the server did not start: %s", log);
    }
    server->port = (int)strtol(colon + 1, NULL, 10);
    assert_true(server->port > 0);
}

void server_start(struct server *server, bool ready, const char *const *arguments)
{
    static int number;
    char *argv[40] = {(char *)(uintptr_t)OZ_PROGRAM, (char *)(uintptr_t) "serve",
                      (char *)(uintptr_t) "--port", (char *)(uintptr_t) "0"};
    int count = 4, out[2];
    for (; *arguments != NULL; arguments++) {
        argv[count++] = (char *)(uintptr_t)*arguments;
    }
    (void)snprintf(server->log, sizeof server->log, "%s", scratch_path("log%d", ++number));
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, server->log, O_WRONLY | O_CREAT | O_TRUNC,
                                           0600);
    assert_int_equal(posix_spawn(&server->pid, OZ_PROGRAM, &actions, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(out[1]);
    read_port(server, out[0]);
    (void)close(out[0]);
    server_use(server);
    for (double until = seconds() + WAIT_MS / 1000; ready; sleep_ms(10)) {
        struct reply r = call("GET", "/ready", NULL, NULL);
        int status = r.status;
        reply_free(&r);
        if (status == 200) {
            break;
        }
        assert_true(seconds() < until);
    }
}

void server_stop(struct server *server)
{
    int status = 0;
    assert_int_equal(kill(server->pid, SIGTERM), 0);
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        char *log = server_log(server);
        fail_msg("the server ended with %x: %s", (unsigned)status, log);
    }
}

/* ---- bytes ---- */

static _Thread_local const char *source;

void client_from(const char *address)
{
    source = address;
}

int client_open(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (source != NULL) {
        struct sockaddr_in from = {.sin_family = AF_INET};
        assert_int_equal(inet_pton(AF_INET, source, &from.sin_addr), 1);
        assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&from, sizeof from), 0);
    }
    if (connect(fd, (const struct sockaddr *)(const void *)&name, sizeof name) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

void client_send(int fd, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);
        if (n <= 0) {
            return; /* the server closed: what it said stands in the reply */
        }
        p += n;
        bytes -= (size_t)n;
    }
}

void client_text(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

struct bytes {
    char *data;
    size_t count, room;
};

/* Reads once; false at the end. */
static bool read_more(int fd, struct bytes *b)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (b->room < b->count + 65536) {
        b->room = 2 * b->room + 131072;
        b->data = realloc(b->data, b->room);
        assert_non_null(b->data);
    }
    if (poll(&wait, 1, WAIT_MS) <= 0) {
        fail_msg("nothing came within %d ms", WAIT_MS);
    }
    ssize_t n = read(fd, b->data + b->count, 65535);
    b->count += n > 0 ? (size_t)n : 0;
    b->data[b->count] = '\0';
    return n > 0;
}

bool client_wait(int fd, const char *text, char **all)
{
    struct bytes b = {0};
    bool found = false, more = true;
    while (more && !found) {
        more = read_more(fd, &b);
        found = strstr(b.data, text) != NULL;
    }
    if (all != NULL) {
        *all = b.data;
    } else {
        free(b.data);
    }
    return found;
}

const char *reply_header(const struct reply *reply, const char *name)
{
    static _Thread_local char value[512];
    size_t length = strlen(name);
    for (const char *line = reply->head; line != NULL; line = strstr(line, "\r\n")) {
        line += strncmp(line, "\r\n", 2) == 0 ? 2 : 0;
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            const char *from = line + length + 1 + strspn(line + length + 1, " ");
            (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(from, "\r"), from);
            return value;
        }
    }
    return NULL;
}

void reply_free(struct reply *reply)
{
    free(reply->head);
    free(reply->body);
    *reply = (struct reply){0};
}

/* Chunks out of the body; true when the last one is there. */
static bool join_chunks(char *body, size_t *bytes)
{
    size_t from = 0, to = 0;
    while (from < *bytes) {
        char *end;
        size_t length = strtoul(body + from, &end, 16);
        size_t at = (size_t)(end - body) + 2;
        if (strncmp(end, "\r\n", 2) != 0 || at + length + 2 > *bytes) {
            return false;
        }
        if (length == 0) {
            *bytes = to;
            body[to] = '\0';
            return true;
        }
        memmove(body + to, body + at, length);
        to += length;
        from = at + length + 2;
    }
    return false;
}

struct reply client_read(int fd)
{
    struct reply r = {0};
    struct bytes b = {0};
    char *end = NULL;
    bool more = true;
    while (more && end == NULL) {
        more = read_more(fd, &b);
        end = strstr(b.data, "\r\n\r\n");
        if (end != NULL && strncmp(b.data + 9, "100", 3) == 0) {
            b.count -= (size_t)(end + 4 - b.data);
            memmove(b.data, end + 4, b.count + 1);
            end = strstr(b.data, "\r\n\r\n");
        }
    }
    if (end == NULL) {
        free(b.data);
        return r;
    }
    size_t head = (size_t)(end + 4 - b.data);
    r.head = strndup(b.data, head);
    r.status = (int)strtol(b.data + 9, NULL, 10);
    const char *length = reply_header(&r, "Content-Length");
    size_t want = length != NULL ? strtoul(length, NULL, 10) : SIZE_MAX;
    while (more && b.count - head < want) {
        more = read_more(fd, &b);
    }
    r.bytes = b.count - head;
    memmove(b.data, b.data + head, r.bytes + 1);
    r.body = b.data;
    if (reply_header(&r, "Transfer-Encoding") != NULL) {
        (void)join_chunks(r.body, &r.bytes);
    }
    return r;
}

struct reply call(const char *method, const char *path, const char *headers, const char *body)
{
    int fd = client_open();
    if (fd < 0) {
        return (struct reply){0};
    }
    char head[8192];
    size_t bytes = body != NULL ? strlen(body) : 0;
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n%s", method,
                     path, port, headers != NULL ? headers : "");
    if (body != NULL) {
        n += snprintf(head + n, sizeof head - (size_t)n, "%sContent-Length: %zu\r\n",
                      headers != NULL && strstr(headers, "Content-Type") != NULL
                          ? ""
                          : "Content-Type: application/json\r\n",
                      bytes);
    }
    client_send(fd, head, (size_t)n);
    client_text(fd, "\r\n");
    client_send(fd, body != NULL ? body : "", bytes);
    struct reply r = client_read(fd);
    (void)close(fd);
    return r;
}

void call_status(const char *method, const char *path, const char *body, int status)
{
    call_says(method, path, body, status, NULL);
}

void call_says(const char *method, const char *path, const char *body, int status, ...)
{
    struct reply r = call(method, path, NULL, body);
    if (r.status != status) {
        fail_msg("%s %s %s: status %d, not %d: %s", method, path, body != NULL ? body : "",
                 r.status, status, r.body != NULL ? r.body : "");
    }
    va_list args;
    va_start(args, status);
    for (const char *part = va_arg(args, const char *); part != NULL;
         part = va_arg(args, const char *)) {
        if (strstr(r.body, part) == NULL) {
            fail_msg("%s %s %s: '%s' is not in %s", method, path, body != NULL ? body : "", part,
                     r.body);
        }
    }
    va_end(args);
    reply_free(&r);
}

/* ---- JSON ---- */

const char *json_text(const char *json, const char *name)
{
    static _Thread_local char values[4][1024];
    static _Thread_local int next;
    char key[80], *value = values[next++ % 4];
    (void)snprintf(key, sizeof key, "\"%s\":\"", name);
    const char *at = strstr(json, key);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(key);
    (void)snprintf(value, sizeof values[0], "%.*s", (int)strcspn(at, "\""), at);
    return value;
}

long long json_number(const char *json, const char *name)
{
    char key[80];
    (void)snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(json, key);
    return at != NULL ? strtoll(at + strlen(key), NULL, 10) : -1;
}
