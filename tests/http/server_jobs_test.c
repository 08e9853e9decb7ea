/* Jobs: progress, events, previews, cancelling; clients that leave; many at a time; SIGTERM under load. */
#include "http/client.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"

#define GENERATIONS "/v1/images/generations"
#define LONG "\"prompt\":\"owl\",\"size\":\"128x128\",\"num_inference_steps\":200"
#define SMALL "\"prompt\":\"red apple\",\"size\":\"64x64\",\"num_inference_steps\":2"

static struct server server;

static int start(void **state)
{
    static const char *const arguments[] = {"--max-num-seqs", "2", "--max-queue", "4", NULL};
    (void)scratch_open(state);
    server_start(&server, true, arguments);
    return 0;
}

static int stop(void **state)
{
    server_stop(&server);
    return scratch_close(state);
}

/* A job of that body; its id in `id`. */
static void submit(const char *body, char id[64])
{
    struct reply r = call("POST", "/v1/jobs", NULL, body);
    if (r.status != 202) {
        fail_msg("status %d: %s", r.status, r.body);
    }
    assert_int_equal(strlen(json_text(r.body, "id")), 36);
    memcpy(id, json_text(r.body, "id"), 37);
    char place[96];
    (void)snprintf(place, sizeof place, "/v1/jobs/%s", id);
    assert_string_equal(reply_header(&r, "Location"), place);
    reply_free(&r);
}

static struct reply job_get(const char *id, const char *rest)
{
    char path[192];
    (void)snprintf(path, sizeof path, "/v1/jobs/%s%s", id, rest);
    return call("GET", path, NULL, NULL);
}

/* Waits until the job's status is this. */
static void job_becomes(const char *id, const char *status)
{
    for (double until = seconds() + 60;; sleep_ms(10)) {
        struct reply r = job_get(id, "");
        assert_int_equal(r.status, 200);
        bool is = strcmp(json_text(r.body, "status"), status) == 0;
        if (!is && seconds() > until) {
            fail_msg("not %s: %s", status, r.body);
        }
        reply_free(&r);
        if (is) {
            return;
        }
    }
}

static void cancel(const char *id)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/v1/jobs/%.100s", id);
    call_status("DELETE", path, NULL, 200);
}

/* A value of /metrics. */
static long long metric(const char *name)
{
    struct reply r = call("GET", "/metrics", NULL, NULL);
    char key[128];
    (void)snprintf(key, sizeof key, "\n%s ", name);
    const char *at = strstr(r.body, key);
    assert_non_null(at);
    long long value = strtoll(at + strlen(key), NULL, 10);
    reply_free(&r);
    return value;
}

static void idle(void)
{
    for (double until = seconds() + 60;
         metric("ounce_running_pictures") + metric("ounce_queue_pictures") > 0;) {
        assert_true(seconds() < until);
        sleep_ms(10);
    }
}

static void life(void **state)
{
    char id[64];
    submit("{" SMALL ",\"seed\":3,\"n\":2,\"user\":\"me\"}", id);
    job_becomes(id, "done");
    struct reply r = job_get(id, "");
    assert_non_null(strstr(r.body, "\"object\":\"job\""));
    assert_non_null(strstr(r.body, "\"user\":\"me\""));
    assert_non_null(strstr(r.body, "\"progress\":1,"));
    assert_non_null(strstr(r.body, "\"expires\":"));
    reply_free(&r);
    struct reply whole = job_get(id, "/result");
    assert_int_equal(whole.status, 200);
    assert_non_null(strstr(whole.body, "\"seed\":4"));
    reply_free(&whole);
    r = job_get(id, "/pictures/1");
    assert_int_equal(r.status, 200);
    struct reply alone =
        call("POST", GENERATIONS, NULL, "{" SMALL ",\"seed\":4,\"response_format\":\"file\"}");
    assert_int_equal(alone.status, 200);
    assert_int_equal(r.bytes, alone.bytes);
    assert_memory_equal(r.body, alone.body, r.bytes); /* picture i is that of seed + i */
    reply_free(&alone);
    reply_free(&r);
    r = job_get(id, "/pictures/2");
    assert_int_equal(r.status, 404);
    reply_free(&r);
    cancel(id); /* it has ended: forgotten */
    r = job_get(id, "");
    assert_int_equal(r.status, 404);
    reply_free(&r);
}

static void results_expire(void **state)
{
    static const char *const arguments[] = {"--result-ttl", "0.5", NULL};
    struct server other;
    char id[64];
    server_start(&other, true, arguments);
    submit("{" SMALL "}", id);
    int status = 200;
    for (double until = seconds() + 60; status == 200; sleep_ms(20)) {
        struct reply r = job_get(id, "");
        status = r.status;
        assert_true(status == 200 || strstr(r.body, "--result-ttl") != NULL);
        reply_free(&r);
        assert_true(seconds() < until);
    }
    assert_int_equal(status, 404);
    assert_int_equal(metric("ounce_pictures_total{outcome=\"done\"}"), 1);
    assert_int_equal(metric("ounce_results_bytes"), 0);
    server_stop(&other);
    server_use(&server);
}

static void event_stream(void **state)
{
    char id[64], long_one[64], request[256], *all;
    submit("{" LONG ",\"n\":2}", long_one); /* so that the other waits until we listen */
    job_becomes(long_one, "running");
    submit("{\"prompt\":\"owl\",\"size\":\"64x64\",\"num_inference_steps\":24,\"preview_every\":4}",
           id);
    int fd = client_open();
    (void)snprintf(request, sizeof request,
                   "GET /v1/jobs/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id);
    client_text(fd, request);
    assert_true(client_wait(fd, "\"status\":\"queued\"", &all));
    assert_non_null(strstr(all, "Content-Type: text/event-stream"));
    assert_non_null(strstr(all, "event: progress\ndata: {\"id\":\"job-"));
    free(all);
    cancel(long_one);
    assert_true(client_wait(fd, "\r\n0\r\n\r\n", &all));
    (void)close(fd);
    assert_non_null(strstr(all, "event: preview\ndata: {\"id\":\"job-"));
    const char *end = strstr(all, "event: end\ndata: ");
    assert_non_null(end);
    assert_non_null(strstr(end, "\"status\":\"done\""));
    /* Steps only go up. */
    long long last = 0;
    for (const char *at = strstr(all, "event: progress"); at != NULL;
         at = strstr(at + 1, "event: progress")) {
        long long step = json_number(at, "step");
        assert_true(step >= last && step <= 24);
        last = step;
    }
    free(all);
    struct reply r = job_get(id, "/events"); /* of one that has ended: the last event at once */
    assert_int_equal(r.status, 200);
    assert_int_equal(strncmp(r.body, "event: end\n", 11), 0);
    reply_free(&r);
}

static void preview_file(void **state)
{
    char id[64];
    submit("{" LONG ",\"preview_every\":1}", id);
    int status = 0;
    for (double until = seconds() + 60; status != 200 && seconds() < until; sleep_ms(20)) {
        struct reply r = job_get(id, "/previews/0");
        status = r.status;
        if (status == 200) {
            assert_int_equal(strncmp(reply_header(&r, "Content-Type"), "image/", 6), 0);
        } else {
            assert_int_equal(status, 404);
        }
        reply_free(&r);
    }
    assert_int_equal(status, 200);
    struct reply r = job_get(id, "/result");
    assert_int_equal(r.status, 409);
    reply_free(&r);
    cancel(id);
    job_becomes(id, "cancelled");
    r = job_get(id, "/result");
    assert_int_equal(r.status, 499);
    assert_non_null(strstr(r.body, "cancelled"));
    reply_free(&r);
    idle();
}

static void queue_and_cancel(void **state)
{
    char ids[6][64];
    for (int i = 0; i < 6; i++) {
        submit("{" LONG "}", ids[i]);
        if (i == 1) {
            job_becomes(ids[0], "running");
            job_becomes(ids[1], "running");
        }
    }
    struct reply r = job_get(ids[4], "");
    assert_string_equal(json_text(r.body, "status"), "queued");
    assert_true(json_number(r.body, "position") == 3);
    reply_free(&r);
    r = call("POST", "/v1/jobs", NULL, "{" SMALL "}");
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.body, "\"code\":\"queue_full\""));
    assert_non_null(strstr(r.body, "rate_limit_error"));
    assert_true(strtol(reply_header(&r, "Retry-After"), NULL, 10) >= 1);
    reply_free(&r);
    call_status("POST", "/v1/jobs", "{" SMALL ",\"n\":5}", 429); /* all or none */
    cancel(ids[3]);
    job_becomes(ids[3], "cancelled");
    cancel(ids[0]);
    job_becomes(ids[0], "cancelled");
    job_becomes(ids[2], "running"); /* its place is taken */
    call_says("GET", "/v1/jobs", NULL, 200, ids[1], ids[5], "\"object\":\"list\"", NULL);
    for (int i = 0; i < 6; i++) {
        if (i != 0 && i != 3) {
            cancel(ids[i]);
        }
    }
    idle();
    call_status("POST", GENERATIONS, "{" SMALL "}", 200);
}

/* Sends a request and leaves after so many ms. */
static void leave_after(int ms)
{
    char request[512];
    const char *body = "{" LONG "}";
    int fd = client_open();
    (void)snprintf(request, sizeof request,
                   "POST " GENERATIONS
                   " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n\r\n%s",
                   strlen(body), body);
    client_text(fd, request);
    sleep_ms(ms);
    (void)close(fd);
}

static void clients_leave(void **state)
{
    long long before = metric("ounce_pictures_total{outcome=\"cancelled\"}");
    static const int times[] = {0, 1, 5, 20, 60, 150};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        leave_after(times[i]);
        idle();
    }
    assert_int_equal(metric("ounce_pictures_total{outcome=\"cancelled\"}") - before,
                     (long long)(sizeof times / sizeof *times));
    /* One that listens to events and leaves does not cancel the job. */
    char id[64], request[256];
    submit("{\"prompt\":\"owl\",\"size\":\"64x64\",\"num_inference_steps\":40}", id);
    int fd = client_open();
    (void)snprintf(request, sizeof request,
                   "GET /v1/jobs/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id);
    client_text(fd, request);
    assert_true(client_wait(fd, "event: progress", NULL));
    (void)close(fd);
    job_becomes(id, "done");
}

static void interrupt_is_ones_own(void **state)
{
    char id[64];
    submit("{" LONG "}", id); /* not of the A1111 API: stays */
    job_becomes(id, "running");
    int fd = client_open();
    char request[512];
    const char *body = "{\"prompt\":\"owl\",\"steps\":200}";
    (void)snprintf(
        request, sizeof request,
        "POST /sdapi/v1/txt2img HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n%s",
        strlen(body), body);
    client_text(fd, request);
    long long total = 0;
    for (double until = seconds() + 60; total == 0 && seconds() < until; sleep_ms(10)) {
        struct reply r = call("GET", "/sdapi/v1/progress", NULL, NULL);
        total = json_number(r.body, "sampling_steps");
        reply_free(&r);
    }
    assert_int_equal(total, 200);
    call_status("POST", "/sdapi/v1/interrupt", "{}", 200);
    struct reply r = client_read(fd);
    assert_int_equal(r.status, 499);
    reply_free(&r);
    (void)close(fd);
    r = job_get(id, "");
    assert_string_equal(json_text(r.body, "status"), "running");
    reply_free(&r);
    cancel(id);
    idle();
}

/* ---- many at a time ---- */

struct client {
    pthread_t thread;
    int index, results, refused, others;
    double worst_health;
};

static void *ask_often(void *arg)
{
    struct client *c = arg;
    for (int i = 0; i < 4; i++) {
        char body[256];
        (void)snprintf(
            body, sizeof body,
            "{\"prompt\":\"red apple\",\"size\":\"%dx%d\",\"num_inference_steps\":%d,\"seed\":%d}",
            32 + 16 * (c->index % 3), 32 + 16 * (i % 2), 1 + i, c->index);
        struct reply r = call("POST", GENERATIONS, NULL, body);
        c->results += r.status == 200;
        c->refused += r.status == 429;
        c->others += r.status != 200 && r.status != 429;
        reply_free(&r);
    }
    return NULL;
}

static void many_at_a_time(void **state)
{
    enum { CLIENTS = 32 };
    static struct client clients[CLIENTS];
    int results = 0, refused = 0;
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.index = i};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, ask_often, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        (void)pthread_join(clients[i].thread, NULL);
        results += clients[i].results;
        refused += clients[i].refused;
        assert_int_equal(clients[i].others, 0);
    }
    assert_int_equal(results + refused, 4 * CLIENTS);
    assert_true(results >= 6); /* that too many are refused: server_bugs, B52 */
    idle();
}

static void sigterm_under_load(void **state)
{
    static const char *const arguments[] = {"--max-num-seqs", "1", "--shutdown-timeout", "0.2",
                                            NULL};
    struct server other;
    server_start(&other, true, arguments);
    char id[64], request[256], *all;
    submit("{" LONG "}", id);
    job_becomes(id, "running");
    submit("{" LONG "}", id);
    int listener = client_open(), waiter = client_open();
    (void)snprintf(request, sizeof request,
                   "GET /v1/jobs/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id);
    client_text(listener, request);
    assert_true(client_wait(listener, "queued", NULL));
    const char *body = "{" LONG "}";
    (void)snprintf(request, sizeof request,
                   "POST " GENERATIONS
                   " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n\r\n",
                   strlen(body));
    client_text(waiter, request);
    client_text(waiter, body);
    sleep_ms(50);
    double began = seconds();
    server_stop(&other);
    assert_true(seconds() - began < 30);
    assert_true(client_wait(listener, "event: end", &all));
    free(all);
    struct reply r = client_read(waiter);
    assert_int_equal(r.status, 503);
    reply_free(&r);
    (void)close(listener);
    (void)close(waiter);
    server_use(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(life),
        cmocka_unit_test(results_expire),
        cmocka_unit_test(event_stream),
        cmocka_unit_test(preview_file),
        cmocka_unit_test(queue_and_cancel),
        cmocka_unit_test(clients_leave),
        cmocka_unit_test(interrupt_is_ones_own),
        cmocka_unit_test(many_at_a_time),
        cmocka_unit_test(sigterm_under_load),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
