/* client.h: a server under test, and a client that sends what it is told to. Failures fail the running
 * test. Replies stay valid until reply_free. */
#ifndef OZ_TESTS_HTTP_CLIENT_H
#define OZ_TESTS_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct server {
    pid_t pid;
    int port;
    char log[256]; /* path of its stderr */
};

/* Starts `ounce serve --port 0 ...`; the arguments end with NULL. Waits until it listens, and with
 * `ready` until /ready says so. It is the one that calls go to until another is started. */
void server_start(struct server *server, bool ready, const char *const *arguments);
/* SIGTERM, and the exit status must be 0. */
void server_stop(struct server *server);
/* Calls go to this one from now on. */
void server_use(const struct server *server);
char *server_log(const struct server *server); /* free() */

struct reply {
    int status; /* 0: the connection was closed without one */
    char *head; /* zero-terminated */
    char *body; /* without chunks, zero-terminated */
    size_t bytes;
};
void reply_free(struct reply *reply);
/* Value of a header in a buffer of its own; NULL: none. */
const char *reply_header(const struct reply *reply, const char *name);

int client_open(void);
/* Connections of this thread come from that address, 127.0.0.x, from now on; NULL: as they are. */
void client_from(const char *address);
void client_send(int fd, const void *data, size_t bytes);
void client_text(int fd, const char *text);
/* Until the server closes, or the reply is whole. */
struct reply client_read(int fd);
/* Reads until `text` has come; false: it ended before. The bytes so far are in *all (free()). */
bool client_wait(int fd, const char *text, char **all);

/* One call on a connection of its own. `headers`: whole lines, or NULL; a body is JSON. */
struct reply call(const char *method, const char *path, const char *headers, const char *body);
/* The same without looking at the reply but for its status, which is checked; body is freed. */
void call_status(const char *method, const char *path, const char *body, int status);
/* And the parts that the reply's body must have; the list ends with NULL. */
void call_says(const char *method, const char *path, const char *body, int status, ...);

/* The text behind "name":" in JSON, in a buffer that the fourth next call takes again. */
const char *json_text(const char *json, const char *name);
/* The number behind "name":; -1: none. */
long long json_number(const char *json, const char *name);

double seconds(void);
void sleep_ms(int ms);

#endif
