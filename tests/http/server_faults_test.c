/*
 * Every allocation of the server's own code failing once, and that one and all after it. The server runs in
 * this process, compiled so that its allocations go through `fails` (CMakeLists.txt renames them), those of
 * jansson and of libmicrohttpd's replies too; the library's have their sweep in tests/faults. Counted from
 * the moment a request is sent, the n-th call of any of the server's threads fails, for n = 1, 2, 3 ... until
 * the request needs no more. A reply is then the undisturbed one, or a refusal that says why, or the
 * connection closes without one; never a part, never another. The next request works. At the end SIGTERM:
 * nothing is left, says the sanitizer. OUNCE_FAULTS=full: all of them (of the start the first 200, then a
 * sample), else a sample.
 */
#include "http/client.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "server/jobs.h"
#include "server/server.h"

#define KEY "Authorization: Bearer secret\r\n"
#define SMALL "\"prompt\":\"red apple\",\"size\":\"32x32\",\"num_inference_steps\":1,\"seed\":3"

/* ---- what fails ---- */

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static long fault_left; /* calls until the one that fails; 0: none does */
static bool fault_sticky, fault_hit;

static bool fails(void)
{
    pthread_mutex_lock(&fault_lock);
    bool now = fault_left == 1;
    fault_left -= fault_left > 1 || (now && !fault_sticky);
    fault_hit = fault_hit || now;
    pthread_mutex_unlock(&fault_lock);
    return now;
}

/* The n-th call from now fails; 0: none. True: one did since the last n that was not 0. */
static bool fault_set(long n, bool sticky)
{
    pthread_mutex_lock(&fault_lock);
    bool hit = fault_hit;
    fault_left = n;
    fault_sticky = sticky;
    fault_hit = fault_hit && n == 0;
    pthread_mutex_unlock(&fault_lock);
    return hit;
}

/* The names that the server's sources are compiled with. */
void *fault_malloc(size_t bytes);
void *fault_calloc(size_t count, size_t bytes);
void *fault_realloc(void *data, size_t bytes);
void *fault_reallocarray(void *data, size_t count, size_t bytes);
int fault_vasprintf(char **text, const char *format, va_list args);
int fault_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                         void *arg);
void *fault_dlsym(void *library, const char *name);

void *fault_malloc(size_t bytes)
{
    return fails() ? NULL : malloc(bytes);
}

void *fault_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : calloc(count, bytes);
}

void *fault_realloc(void *data, size_t bytes)
{
    return fails() ? NULL : realloc(data, bytes);
}

void *fault_reallocarray(void *data, size_t count, size_t bytes)
{
    return fails() ? NULL : reallocarray(data, count, bytes);
}

__attribute__((format(printf, 2, 0))) int fault_vasprintf(char **text, const char *format,
                                                          va_list args)
{
    *text = NULL;
    return fails() ? -1 : vasprintf(text, format, args);
}

int fault_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                         void *arg)
{
    return fails() ? EAGAIN : pthread_create(thread, attributes, run, arg);
}

/* libmicrohttpd's own allocations for replies. */
static __typeof__(MHD_create_response_from_buffer) *real_from_buffer;
static __typeof__(MHD_create_response_from_callback) *real_from_callback;
static __typeof__(MHD_add_response_header) *real_add_header;
static __typeof__(MHD_queue_response) *real_queue;

static struct MHD_Response *from_buffer(size_t bytes, void *data, enum MHD_ResponseMemoryMode mode)
{
    return fails() ? NULL : real_from_buffer(bytes, data, mode);
}

static struct MHD_Response *from_callback(uint64_t bytes, size_t block,
                                          MHD_ContentReaderCallback read, void *ctx,
                                          MHD_ContentReaderFreeCallback done)
{
    return fails() ? NULL : real_from_callback(bytes, block, read, ctx, done);
}

static enum MHD_Result add_header(struct MHD_Response *response, const char *name,
                                  const char *value)
{
    return fails() ? MHD_NO : real_add_header(response, name, value);
}

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response)
{
    return fails() ? MHD_NO : real_queue(connection, status, response);
}

void *fault_dlsym(void *library, const char *name)
{
    const struct {
        const char *name;
        void *real;
        uintptr_t instead;
    } ours[] = {
        {"MHD_create_response_from_buffer", &real_from_buffer, (uintptr_t)from_buffer},
        {"MHD_create_response_from_callback", &real_from_callback, (uintptr_t)from_callback},
        {"MHD_add_response_header", &real_add_header, (uintptr_t)add_header},
        {"MHD_queue_response", &real_queue, (uintptr_t)queue},
    };
    void *symbol = dlsym(library, name);
    for (size_t i = 0; symbol != NULL && i < sizeof ours / sizeof *ours; i++) {
        if (strcmp(name, ours[i].name) == 0) {
            memcpy(ours[i].real, &symbol, sizeof symbol);
            return (void *)ours[i].instead; /* NOLINT(performance-no-int-to-ptr): a function */
        }
    }
    return symbol;
}

/* ---- the server, in a thread of this process ---- */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    int port, lines;
    bool ended;
    enum oz_status status;
    struct oz_error err;
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_line(void *ctx, const char *line)
{
    (void)ctx;
    (void)line;
    pthread_mutex_lock(&live.lock);
    live.lines++;
    pthread_mutex_unlock(&live.lock);
}

static void on_listening(void *ctx, const char *url)
{
    (void)ctx;
    pthread_mutex_lock(&live.lock);
    live.port = (int)strtol(strrchr(url, ':') + 1, NULL, 10);
    pthread_mutex_unlock(&live.lock);
}

static void *serve(void *arg)
{
    static const char *const keys[] = {"secret"}, *const origins[] = {"https://example.org"};
    struct oz_engine_options engine;
    (void)arg;
    oz_engine_options_default(&engine);
    engine.threads = 1;
    const struct sv_options options = {
        .engine = &engine,
        .host = "127.0.0.1",
        .cors_origins = origins,
        .cors_origin_count = 1,
        .api_keys = keys,
        .api_key_count = 1,
        .max_num_seqs = 2,
        .max_queue = 32,
        .max_per_client = 30,
        .max_connections = 64,
        .max_pixels = 128 * 128,
        .result_ttl = 600,
        .read_timeout = 60,
        .shutdown_timeout = 20,
        .default_sampling_params = "{\"negative_prompt\":\"grey\",\"true_cfg_scale\":1}",
        .log_prompts = true,
        .say = on_line,
        .listening = on_listening,
    };
    struct oz_error err = {0};
    enum oz_status status = sv_serve(&options, &err);
    pthread_mutex_lock(&live.lock);
    live.status = status;
    live.err = err;
    live.ended = true;
    pthread_mutex_unlock(&live.lock);
    return NULL;
}

/* Until it has said a line, which is that it is ready, or has ended. True: it runs. */
static bool live_start(void)
{
    live.port = live.lines = 0;
    live.ended = false;
    assert_int_equal(pthread_create(&live.thread, NULL, serve, NULL), 0);
    for (double until = seconds() + 60;; sleep_ms(2)) {
        pthread_mutex_lock(&live.lock);
        bool ended = live.ended, runs = live.lines > 0;
        struct server server = {.port = live.port};
        pthread_mutex_unlock(&live.lock);
        if (runs || ended) {
            server_use(&server);
            return !ended;
        }
        assert_true(seconds() < until);
    }
}

static void live_stop(bool runs)
{
    if (runs) {
        assert_int_equal(kill(getpid(), SIGTERM), 0); /* blocked in all threads; one waits for it */
    }
    assert_int_equal(pthread_join(live.thread, NULL), 0);
    if (runs && live.status != OZ_OK) {
        fail_msg("the server ended with %d: %s", live.status, live.err.message);
    }
}

/* ---- requests ---- */

/* What a run of a scenario saw; NULL while none is kept. */
struct seen {
    char *text;
    size_t bytes;
    bool refused;
};

static struct seen now;

/* What differs between two runs of the same: 32 hexadecimal digits, times, the seconds in names. */
static void mask(char *text, size_t bytes)
{
    static const char *const numbers[] = {
        "\"created\":", "\"expires\":", "\"seconds_left\":", "\nDate:", NULL};
    for (size_t i = 0; i < bytes; i++) {
        size_t n = 0;
        while (n < 32 && i + n < bytes && strchr("0123456789abcdef", text[i + n]) != NULL &&
               text[i + n] != '\0') {
            n++;
        }
        if (n == 32) {
            memset(text + i, '#', 32);
        }
        for (const char *const *name = numbers; *name != NULL; name++) {
            size_t length = strlen(*name);
            if (i + length < bytes && memcmp(text + i, *name, length) == 0) {
                const char *ends = text[i] == '\n' ? "\r" : ",}";
                for (size_t j = i + length; j < bytes && strchr(ends, text[j]) == NULL; j++) {
                    text[j] = '#';
                }
            }
        }
    }
}

static void keep(const char *data, size_t bytes)
{
    now.text = realloc(now.text, now.bytes + bytes + 1);
    assert_non_null(now.text);
    memcpy(now.text + now.bytes, data, bytes);
    mask(now.text + now.bytes, bytes);
    now.bytes += bytes;
    now.text[now.bytes] = '\0';
}

enum { LOOSE = 1 }; /* the body is not always the same */

/* One call. False: refused for want of memory. */
static bool ask(struct reply *r, const char *method, const char *path, const char *headers,
                const char *body, int status, int flags)
{
    char all[512];
    (void)snprintf(all, sizeof all, "X-Request-Id: x\r\n%s", headers);
    *r = call(method, path, all, body);
    const char *length = r->head != NULL ? reply_header(r, "Content-Length") : NULL;
    if (length != NULL && strtoul(length, NULL, 10) != r->bytes && strcmp(method, "HEAD") != 0) {
        fail_msg("%s %s: a part of a reply, %zu of %s bytes", method, path, r->bytes, length);
    }
    if (r->status == 0 || r->status == 503 || r->status == 507) {
        if (r->status != 0 && strcmp(method, "HEAD") != 0 && strstr(r->body, "emory") == NULL) {
            fail_msg("%s %s: status %d without its reason: %s", method, path, r->status, r->body);
        }
        now.refused = true;
        reply_free(r);
        return false;
    }
    if (r->status != status) {
        fail_msg("%s %s: status %d, not %d: %s", method, path, r->status, status, r->body);
    }
    if ((flags & LOOSE) == 0) {
        keep(r->head, strlen(r->head));
        keep(r->body, r->bytes);
    } else if (r->bytes == 0 || r->body[r->bytes - 1] != '\n') {
        fail_msg("%s %s: its end is missing", method, path);
    }
    return true;
}

static bool plain(const char *method, const char *path, const char *headers, const char *body,
                  int status, int flags)
{
    struct reply r;
    bool ok = ask(&r, method, path, headers, body, status, flags);
    if (ok) {
        reply_free(&r);
    }
    return ok;
}

/* ---- scenarios ---- */

#define IMAGES "/v1/images/generations"
#define ORIGIN "Origin: https://example.org\r\n"

static void pictures(void)
{
    (void)plain("POST", IMAGES, KEY ORIGIN,
                "{" SMALL ",\"n\":2,\"user\":\"me\",\"background\":\"auto\",\"style\":\"vivid\","
                "\"negative_prompt\":\"blue \\\"sky\\\"\",\"model\":\"\",\"no_metadata\":true}",
                200, 0);
}

static void picture_file(void)
{
    (void)plain("POST", IMAGES, KEY,
                "{" SMALL ",\"response_format\":\"file\",\"output_format\":\"jpeg\"}", 200, 0);
}

static void picture_url(void)
{
    struct reply r;
    if (!ask(&r, "POST", IMAGES, KEY, "{" SMALL ",\"response_format\":\"url\"}", 200, 0)) {
        return;
    }
    const char *url = json_text(r.body, "url"), *path = strstr(url, "/v1/files/");
    char place[256];
    assert_non_null(path);
    (void)snprintf(place, sizeof place, "%s", path);
    reply_free(&r);
    (void)plain("GET", place, "", NULL, 200, 0);
}

/* Waits for the end of a job; its reply is kept. False: it was refused, or failed for want of memory. */
static bool job_ends(const char *id, const char *status)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/v1/jobs/%.64s", id);
    for (double until = seconds() + 60; seconds() < until; sleep_ms(1)) {
        struct reply r;
        if (!ask(&r, "GET", path, KEY, NULL, 200, LOOSE)) {
            return false;
        }
        const char *is = json_text(r.body, "status");
        bool ended = strcmp(is, "queued") != 0 && strcmp(is, "running") != 0;
        if (ended && strcmp(is, status) != 0) {
            if (strcmp(is, "failed") != 0 || strstr(r.body, "emory") == NULL) {
                fail_msg("the job is not %s: %s", status, r.body);
            }
            now.refused = true;
        }
        reply_free(&r);
        if (ended) {
            return !now.refused;
        }
    }
    fail_msg("the job does not end");
    return false;
}

static bool submit(const char *body, char id[64])
{
    struct reply r;
    bool ok = ask(&r, "POST", "/v1/jobs", KEY, body, 202, LOOSE);
    if (ok) {
        (void)snprintf(id, 64, "%s", json_text(r.body, "id"));
        assert_non_null(reply_header(&r, "Location"));
        reply_free(&r);
    }
    return ok;
}

static void job(void)
{
    char id[64], path[128];
    struct reply r;
    if (!submit(
            "{\"prompt\":\"owl\",\"size\":\"32x32\",\"seed\":3,\"n\":2,\"num_inference_steps\":3,"
            "\"preview_every\":1,\"user\":\"me\"}",
            id)) {
        return;
    }
    (void)snprintf(path, sizeof path, "/v1/jobs/%s/events", id);
    r = call("GET", path, KEY, NULL);
    now.refused = r.status != 200 || strstr(r.body, "event: end\ndata: ") == NULL;
    reply_free(&r);
    if (!job_ends(id, "done")) {
        return;
    }
    static const char *const parts[] = {"", "/result", "/pictures/1", "/previews/0", "/events"};
    static const int statuses[] = {200, 200, 200, 404, 200};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        (void)snprintf(path, sizeof path, "/v1/jobs/%s%s", id, parts[i]);
        if (!plain("GET", path, KEY, NULL, statuses[i], i == 4 ? LOOSE : 0)) {
            return;
        }
    }
    (void)snprintf(path, sizeof path, "/v1/jobs/%s", id);
    (void)(plain("GET", "/v1/jobs", KEY, NULL, 200, LOOSE) &&
           plain("DELETE", path, KEY, NULL, 200, 0));
}

/* Short enough that one whose id is lost with its reply does not keep the others waiting. */
static void job_cancelled(void)
{
    char id[64], path[128];
    struct reply r;
    if (!submit("{\"prompt\":\"owl\",\"size\":\"32x32\",\"num_inference_steps\":60,"
                "\"preview_every\":10}",
                id)) {
        return;
    }
    (void)snprintf(path, sizeof path, "/v1/jobs/%s", id);
    if (ask(&r, "DELETE", path, KEY, NULL, 200, LOOSE)) {
        const char *is = json_text(r.body, "status");
        bool forgotten = strcmp(is, "done") == 0; /* it was too quick */
        if (strcmp(is, "failed") == 0) {
            assert_non_null(strstr(r.body, "emory"));
            now.refused = forgotten = true;
        }
        reply_free(&r);
        (void)(forgotten || job_ends(id, "cancelled"));
    }
}

static void a1111(void)
{
    (void)(plain("POST", "/sdapi/v1/txt2img", KEY,
                 "{\"prompt\":\"red apple\",\"width\":32,\"height\":32,\"steps\":1,\"seed\":3,"
                 "\"batch_size\":2,\"styles\":[]}",
                 200, 0) &&
           plain("GET", "/sdapi/v1/progress", KEY, NULL, 200, LOOSE) &&
           plain("POST", "/sdapi/v1/interrupt", KEY, "{}", 200, 0) &&
           plain("GET", "/sdapi/v1/sd-models", KEY, NULL, 200, 0) &&
           plain("GET", "/sdapi/v1/samplers", KEY, NULL, 200, 0) &&
           plain("GET", "/sdapi/v1/options", KEY, NULL, 200, 0));
}

static void about(void)
{
    (void)(plain("GET", "/v1/models", KEY, NULL, 200, 0) &&
           plain("GET", "/v1/models/none", KEY, NULL, 404, 0) &&
           plain("GET", "/v1/loaded", KEY, NULL, 200, 0) &&
           plain("GET", "/v1/plan", KEY, NULL, 200, 0) &&
           plain("GET", "/metrics", KEY, NULL, 200, LOOSE) &&
           plain("GET", "/openapi.json", KEY, NULL, 200, 0) &&
           plain("GET", "/health", "", NULL, 200, 0) && plain("GET", "/ready", "", NULL, 200, 0) &&
           plain("GET", "/", "", NULL, 200, 0) && plain("HEAD", "/docs", "", NULL, 200, 0));
}

static void errors(void)
{
    (void)(plain("GET", "/nowhere", KEY, NULL, 404, 0) &&
           plain("PUT", "/v1/jobs", KEY, "{}", 405, 0) &&
           plain("OPTIONS", "/v1/jobs", ORIGIN, NULL, 204, 0) &&
           plain("GET", "/v1/models", "", NULL, 401, 0) &&
           plain("POST", IMAGES, KEY "Content-Type: text/plain\r\n", "{}", 415, 0) &&
           plain("POST", IMAGES, KEY, "{\"prompt\":", 400, 0) &&
           plain("POST", IMAGES, KEY, "{" SMALL ",\"num_inference_step\":3}", 400, 0) &&
           plain("POST", IMAGES, KEY, "{" SMALL ",\"model\":\"other\"}", 404, 0) &&
           plain("POST", IMAGES, KEY, "{\"prompt\":[\"a\",{\"b\":1.5}]}", 400, 0) &&
           plain("GET", "/v1/jobs/none", KEY, NULL, 404, 0) &&
           plain("GET", "/v1/files/none.png", "", NULL, 404, 0));
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {{"pictures", pictures},
                 {"picture file", picture_file},
                 {"picture url", picture_url},
                 {"job", job},
                 {"job cancelled", job_cancelled},
                 {"A1111", a1111},
                 {"about", about},
                 {"errors", errors}};

/* ---- the sweep ---- */

static bool full(void)
{
    const char *value = getenv("OUNCE_FAULTS");
    return value != NULL && strcmp(value, "full") == 0;
}

/* A long sweep can be cut into parts: OUNCE_FAULTS_PART names one. */
static bool is_wanted(const char *part)
{
    const char *value = getenv("OUNCE_FAULTS_PART");
    return value == NULL || strcmp(value, part) == 0;
}

/* Runs it with the n-th call failing; what it saw is the caller's. */
static struct seen run_once(size_t i, long n, bool sticky, bool *hit)
{
    now = (struct seen){0};
    (void)fault_set(n, sticky);
    scenarios[i].run();
    *hit = fault_set(0, false);
    return now;
}

/* An undisturbed picture, and the same as at first. */
static void still_works(void)
{
    static char *first;
    static size_t bytes;
    struct reply r = call("POST", IMAGES, KEY, "{" SMALL ",\"response_format\":\"file\"}");
    if (r.status != 200) {
        fail_msg("the next request: status %d, %s", r.status, r.body != NULL ? r.body : "");
    }
    if (first == NULL) {
        bytes = r.bytes;
        first = malloc(bytes);
        assert_non_null(first);
        memcpy(first, r.body, bytes);
    }
    assert_int_equal(r.bytes, bytes);
    assert_memory_equal(r.body, first, bytes);
    reply_free(&r);
}

static void sweep(size_t i)
{
    bool hit;
    struct seen want = run_once(i, 0, false, &hit);
    int tried = 0, refused = 0, missed = 0;
    assert_false(want.refused);
    /* The order of threads may take a call more or less: over when two in a row are not reached. */
    for (long n = 1; missed < 2; n += full() ? 1 : 1 + n / 3) {
        bool reached = false;
        for (int sticky = full() ? 0 : (int)(n % 2); sticky < (full() ? 2 : 1 + (int)(n % 2));
             sticky++) {
            struct seen got = run_once(i, n, sticky != 0, &hit);
            bool whole = got.refused ? got.bytes <= want.bytes : got.bytes == want.bytes;
            if (!whole || (got.bytes > 0 && memcmp(got.text, want.text, got.bytes) != 0)) {
                fail_msg("%s, allocation %d: other replies:\n%s\n---\n%s", scenarios[i].name,
                         (int)n, got.text != NULL ? got.text : "",
                         want.text != NULL ? want.text : "");
            }
            free(got.text);
            still_works();
            tried += hit;
            refused += hit && got.refused;
            reached = reached || hit;
        }
        missed = reached ? 0 : missed + 1;
    }
    free(want.text);
    print_message("%s: %d faults, %d of them refused a request\n", scenarios[i].name, tried,
                  refused);
    assert_true(refused > 0);
}

static void every_request(void)
{
    assert_true(live_start());
    still_works();
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (is_wanted(scenarios[i].name)) {
            sweep(i);
        }
    }
    live_stop(true);
}

static void every_start(void)
{
    int tried = 0, refused = 0, missed = 0;
    /* Most are of one kind: the values of the plan, which is read again as JSON. */
    for (long n = 1; missed < 2; n += !full() ? 1 + n / 3 : n < 200 ? 1 : 1 + n / 16) {
        (void)fault_set(n, false);
        bool runs = live_start();
        bool hit = fault_set(0, false);
        if (!runs && (!hit || (strstr(live.err.message, "emory") == NULL &&
                               strstr(live.err.message, "thread") == NULL))) {
            fail_msg("allocation %d: status %d, '%s'", (int)n, live.status, live.err.message);
        }
        if (runs) {
            still_works();
        }
        live_stop(runs);
        tried += hit;
        refused += hit && !runs;
        missed = hit ? 0 : missed + 1;
    }
    print_message("start: %d faults, %d of them refused to serve\n", tried, refused);
    (void)fflush(stdout);
    assert_true(refused > 0);
}

static void every_site(void **state)
{
    every_request();
    if (is_wanted("start")) {
        every_start();
    }
}

/* Which addresses share one client's limit. */
static void hosts(void **state)
{
    static const struct {
        const char *a, *b;
        bool same;
    } pairs[] = {{"192.0.2.7", "192.0.2.7", true},
                 {"192.0.2.7", "192.0.2.8", false},
                 {"::ffff:192.0.2.7", "192.0.2.7", true},
                 {"::ffff:192.0.2.7", "::ffff:192.0.2.8", false},
                 {"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
                 {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
                 {"::1", "127.0.0.1", false}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        unsigned char a[16], b[16];
        sv_host_of(pairs[i].a, a);
        sv_host_of(pairs[i].b, b);
        assert_int_equal(memcmp(a, b, sizeof a) == 0, pairs[i].same);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hosts), cmocka_unit_test(every_site)};
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
