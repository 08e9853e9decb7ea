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

/* ---- clients that leave in each stage ---- */

/* Another client, whose picture nobody's leaving may touch. */
struct bystander {
    pthread_t thread;
    struct reply reply;
};

static void *stand_by(void *arg)
{
    struct bystander *b = arg;
    b->reply = call("POST", GENERATIONS, NULL,
                    "{\"prompt\":\"owl\",\"size\":\"64x64\",\"num_inference_steps\":60,\"seed\":5,"
                    "\"true_cfg_scale\":3,\"response_format\":\"file\",\"user\":\"bystander\"}");
    return NULL;
}

static void stand_begin(struct bystander *b)
{
    assert_int_equal(pthread_create(&b->thread, NULL, stand_by, b), 0);
}

/* Its picture is that of one who was alone. */
static void stand_end(struct bystander *b, const struct reply *alone)
{
    (void)pthread_join(b->thread, NULL);
    assert_int_equal(b->reply.status, 200);
    assert_int_equal(b->reply.bytes, alone->bytes);
    assert_memory_equal(b->reply.body, alone->body, alone->bytes);
    reply_free(&b->reply);
}

/* The job of that user, which is the newest: its stage, its steps, its id; false: not there. */
static bool newest(const char *user, char stage[32], long long *step, char id[64])
{
    struct reply r = call("GET", "/v1/jobs", NULL, NULL);
    assert_int_equal(r.status, 200);
    const char *first = strstr(r.body, "\"data\":[");
    const char *whose = first != NULL ? json_text(first, "user") : NULL;
    bool found = whose != NULL && strcmp(whose, user) == 0;
    if (found) {
        (void)snprintf(stage, 32, "%s", json_text(first, "stage"));
        (void)snprintf(id, 64, "%s", json_text(first, "id"));
        *step = json_number(first, "step");
    }
    reply_free(&r);
    return found;
}

/* Hands in a picture and leaves when it is in that stage; with a url, so that it is in the list. False: it
 * was seen too late. Else it was cancelled there, after so many steps. */
static bool leave_in(const char *stage, int attempt, const char *body, long long least,
                     long long most)
{
    static char request[24576];
    char user[64], is[32] = "", id[64] = "";
    long long step = 0;
    (void)snprintf(user, sizeof user, "%s-%d", stage, attempt);
    size_t bytes = strlen(body) + strlen(user) + strlen("{\"user\":\"\",}");
    (void)snprintf(request, sizeof request,
                   "POST " GENERATIONS
                   " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n\r\n{\"user\":\"%s\",%s}",
                   bytes, user, body);
    int fd = client_open();
    client_text(fd, request);
    bool there = false;
    for (double until = seconds() + 60;;) {
        assert_true(seconds() < until);
        there = newest(user, is, &step, id);
        if (there && (strcmp(is, stage) == 0 || strcmp(is, "done") == 0)) {
            break;
        }
        sleep_ms(there && strcmp(is, "queued") != 0 ? 0 : 1);
    }
    (void)close(fd);
    for (double until = seconds() + 60; strcmp(is, "done") != 0 && strcmp(is, "cancelled") != 0;) {
        assert_true(seconds() < until);
        assert_true(newest(user, is, &step, id));
        sleep_ms(1);
    }
    if (strcmp(is, "done") == 0) {
        return false;
    }
    job_becomes(id, "cancelled");
    if (step < least || step > most) {
        fail_msg("left in stage %s, and cancelled after %lld steps", stage, step);
    }
    return true;
}

static void leave_each_stage(void **state)
{
    enum { ATTEMPTS = 100 };
    static char text[16384];
    struct bystander alone, others[2];
    idle();
    stand_begin(&alone);
    (void)pthread_join(alone.thread, NULL);
    assert_int_equal(alone.reply.status, 200);
    /* A long prompt keeps the text encoder, a large picture the VAE. */
    size_t n = (size_t)snprintf(text, sizeof text, "%s",
                                "\"response_format\":\"url\",\"size\":\"32x32\","
                                "\"num_inference_steps\":100,\"true_cfg_scale\":1,\"prompt\":\"");
    while (n + 16 < sizeof text / 4) {
        n += (size_t)snprintf(text + n, sizeof text - n, "a red apple, ");
    }
    (void)snprintf(text + n, sizeof text - n, "\"");
    const struct {
        const char *stage, *body;
        long long least, most; /* steps */
        int bystanders;
    } stages[] = {
        {"queued", "\"response_format\":\"url\"," LONG, 0, 0, 2},
        {"text", text, 0, 0, 1},
        {"steps", "\"response_format\":\"url\"," LONG, 0, 199, 1},
        {"decode",
         "\"response_format\":\"url\",\"prompt\":\"owl\",\"size\":\"256x256\","
         "\"num_inference_steps\":1,\"true_cfg_scale\":1",
         1, 1, 1},
    };
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        bool left = false;
        int attempt = 0;
        for (; attempt < ATTEMPTS && !left; attempt++) {
            for (int j = 0; j < stages[i].bystanders; j++) {
                stand_begin(&others[j]);
            }
            for (double until = seconds() + 60;
                 metric("ounce_running_pictures") < stages[i].bystanders; sleep_ms(1)) {
                assert_true(seconds() < until);
            }
            left =
                leave_in(stages[i].stage, attempt, stages[i].body, stages[i].least, stages[i].most);
            for (int j = 0; j < stages[i].bystanders; j++) {
                stand_end(&others[j], &alone.reply);
            }
            idle();
            call_status("POST", GENERATIONS, "{" SMALL "}", 200);
        }
        print_message("%s: left at attempt %d\n", stages[i].stage, attempt);
        assert_true(left);
    }
    reply_free(&alone.reply);
}

static void one_address_has_its_share(void **state)
{
    static const char *const arguments[] = {"--max-num-seqs", "1", "--max-per-client", "3", NULL};
    struct server other;
    char ids[4][64];
    server_start(&other, true, arguments);
    call_says("GET", "/v1/loaded", NULL, 200, "\"max_per_client\":3", NULL);
    call_says("POST", "/v1/jobs", "{" LONG ",\"n\":4}", 400, "4 pictures at once",
              "one address may have 3 at a time", "--max-per-client", "\"param\":\"n\"", NULL);
    submit("{" LONG ",\"n\":2}", ids[0]);
    call_says("POST", "/v1/jobs", "{" LONG ",\"n\":2}", 429, "2 pictures of your address",
              "it may have 3", "\"code\":\"rate_limit_exceeded\"", NULL); /* all or none */
    submit("{" LONG ",\"user\":\"somebody else\"}", ids[1]);              /* a name is no address */
    struct reply r = call("POST", GENERATIONS, NULL, "{" SMALL ",\"user\":\"a third\"}");
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.body, "3 pictures of your address wait or are being drawn"));
    assert_true(strtol(reply_header(&r, "Retry-After"), NULL, 10) >= 1);
    reply_free(&r);
    client_from("127.0.0.7");
    submit("{" LONG ",\"n\":3}", ids[2]); /* another address has its own share */
    call_status("POST", "/v1/jobs", "{" SMALL "}", 429);
    client_from(NULL);
    assert_int_equal(metric("ounce_pictures_total{outcome=\"refused\"}"), 2 + 1 + 1);
    cancel(ids[1]);
    job_becomes(ids[1], "cancelled");
    submit("{" SMALL "}", ids[3]); /* its place is free */
    cancel(ids[0]);
    cancel(ids[2]);
    job_becomes(ids[3], "done");
    call_status("POST", GENERATIONS, "{" SMALL ",\"n\":3}",
                200); /* what has ended does not count */
    server_stop(&other);
    server_use(&server);
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
        cmocka_unit_test(leave_each_stage),
        cmocka_unit_test(one_address_has_its_share),
        cmocka_unit_test(interrupt_is_ones_own),
        cmocka_unit_test(many_at_a_time),
        cmocka_unit_test(sigterm_under_load),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
