/* Keys, hosts, origins; sizes; slow and broken clients. After each the next good request works. */
#include "http/client.h"
#include "test.h"

#include <sys/socket.h>
#include <unistd.h>

#include "scratch.h"

#define GENERATIONS "/v1/images/generations"
#define SMALL "{\"prompt\":\"x\",\"size\":\"32x32\",\"num_inference_steps\":1}"
#define KEY "Authorization: Bearer key-of-the-line-4711\r\n"
#define FILE_KEY "Authorization: bearer  key-of-the-file-1234\r\n"

static struct server open_one, keyed;

static int start(void **state)
{
    static const char *const plain[] = {"--read-timeout", "1", "--max-pixels", "4096", NULL};
    (void)scratch_open(state);
    scratch_text("keys", "# keys\nkey-of-the-file-1234\r\n\nkey-of-the-file-5678\n");
    const char *const with_keys[] = {"--api-key",
                                     "key-of-the-line-4711",
                                     "--api-key-file",
                                     scratch_path("keys"),
                                     "--cors-origin",
                                     "https://app.example.org",
                                     NULL};
    server_start(&open_one, true, plain);
    server_start(&keyed, true, with_keys);
    return 0;
}

static int stop(void **state)
{
    server_stop(&open_one);
    server_stop(&keyed);
    return scratch_close(state);
}

/* The server still draws. */
static void works(void)
{
    call_status("POST", GENERATIONS, SMALL, 200);
}

static int status_of(const char *method, const char *path, const char *headers, const char *body)
{
    struct reply r = call(method, path, headers, body);
    int status = r.status;
    reply_free(&r);
    return status;
}

static void keys(void **state)
{
    server_use(&keyed);
    static const char *const wrong[] = {
        NULL,
        "Authorization: Bearer wrong\r\n",
        "Authorization: Bearer key-of-the-line-471\r\n",
        "Authorization: Bearer key-of-the-line-47111\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Basic key-of-the-line-4711\r\n",
        "Authorization: key-of-the-line-4711\r\n",
        "X-Api-Key: key-of-the-line-4711\r\n",
        "Authorization: Bearer # keys\r\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct reply r = call("POST", GENERATIONS, wrong[i], SMALL);
        assert_int_equal(r.status, 401);
        assert_string_equal(reply_header(&r, "WWW-Authenticate"), "Bearer");
        assert_non_null(strstr(r.body, "\"code\":\"invalid_api_key\""));
        reply_free(&r);
        assert_int_equal(status_of("GET", "/v1/models", wrong[i], NULL), 401);
        assert_int_equal(status_of("GET", "/metrics", wrong[i], NULL), 401);
    }
    assert_int_equal(status_of("POST", GENERATIONS, KEY, SMALL), 200);
    assert_int_equal(status_of("POST", GENERATIONS, FILE_KEY, SMALL), 200);
    assert_int_equal(status_of("GET", "/health", NULL, NULL), 200);
    assert_int_equal(status_of("GET", "/", NULL, NULL), 200);
    assert_int_equal(status_of("GET", "/openapi.json", NULL, NULL), 200);
    char *log = server_log(&keyed);
    assert_null(strstr(log, "key-of-the"));
    free(log);
}

static void jobs_belong_to_keys(void **state)
{
    server_use(&keyed);
    struct reply r = call("POST", "/v1/jobs", KEY, SMALL);
    assert_int_equal(r.status, 202);
    char path[96];
    (void)snprintf(path, sizeof path, "/v1/jobs/%.64s", json_text(r.body, "id"));
    reply_free(&r);
    assert_int_equal(status_of("GET", path, KEY, NULL), 200);
    assert_int_equal(status_of("GET", path, FILE_KEY, NULL), 404);
    assert_int_equal(status_of("DELETE", path, FILE_KEY, NULL), 404);
    r = call("GET", "/v1/jobs", FILE_KEY, NULL);
    assert_null(strstr(r.body, path + strlen("/v1/jobs/")));
    reply_free(&r);
}

static void origins(void **state)
{
    server_use(&keyed);
    struct reply r = call("OPTIONS", GENERATIONS, "Origin: https://app.example.org\r\n", NULL);
    assert_int_equal(r.status, 204);
    assert_string_equal(reply_header(&r, "Access-Control-Allow-Origin"), "https://app.example.org");
    assert_non_null(strstr(reply_header(&r, "Access-Control-Allow-Headers"), "authorization"));
    reply_free(&r);
    assert_int_equal(
        status_of("POST", GENERATIONS, KEY "Origin: https://app.example.org\r\n", SMALL), 200);
    assert_int_equal(status_of("POST", GENERATIONS, KEY "Origin: https://evil.example\r\n", SMALL),
                     403);
    server_use(&open_one);
    r = call("OPTIONS", GENERATIONS, "Origin: https://app.example.org\r\n", NULL);
    assert_null(reply_header(&r, "Access-Control-Allow-Origin"));
    reply_free(&r);
    assert_int_equal(status_of("POST", GENERATIONS, "Origin: null\r\n", SMALL), 403);
    char own[64];
    (void)snprintf(own, sizeof own, "Origin: http://localhost:%d\r\n", open_one.port);
    assert_int_equal(status_of("POST", GENERATIONS, own, SMALL), 200);
    /* What a form of another page can send, needs no preflight and is therefore refused. */
    assert_int_equal(status_of("POST", GENERATIONS, "Content-Type: text/plain\r\n", SMALL), 415);
    assert_int_equal(
        status_of("POST", GENERATIONS, "Content-Type: application/json; charset=utf-8\r\n", SMALL),
        200);
}

/* Sends it as it is; the status, 0: closed without a reply. */
static int raw(const char *text)
{
    int fd = client_open();
    client_text(fd, text);
    struct reply r = client_read(fd);
    int status = r.status;
    reply_free(&r);
    (void)close(fd);
    return status;
}

static void hosts(void **state)
{
    server_use(&open_one);
    assert_int_equal(
        raw("GET /health HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\n\r\n"), 200);
    assert_int_equal(raw("GET /health HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n"), 200);
    assert_int_equal(raw("GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
                     403);
    assert_int_equal(
        raw("GET /health HTTP/1.1\r\nHost: localhost.evil.example\r\nConnection: close\r\n\r\n"),
        403);
    assert_int_equal(raw("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"), 400);
}

static void sizes(void **state)
{
    server_use(&open_one);
    static char big[512 * 1024];
    memset(big, 'a', sizeof big - 1);
    assert_int_equal(status_of("POST", GENERATIONS, NULL, big), 413);
    memcpy(big, "{\"prompt\":\"", 11);
    memcpy(big + 40000, "\"}", 3);
    call_says("POST", GENERATIONS, big, 400, "\"param\":\"prompt\"", "at most 32000", NULL);
    static char head[80 * 1024];
    int n = snprintf(head, sizeof head, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
    memset(head + n, 'x', 60000);
    memcpy(head + n + 60000, "\r\n\r\n", 5);
    assert_int_equal(raw(head), 431);
    n = snprintf(head, sizeof head, "GET /");
    memset(head + n, 'x', 60000);
    memcpy(head + n + 60000, " HTTP/1.1\r\nHost: localhost\r\n\r\n", 31);
    int status = raw(head);
    assert_true(status == 414 || status == 431);
    works();
}

static void content_lengths(void **state)
{
    server_use(&open_one);
#define POST_HEAD \
    "POST " GENERATIONS " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert_int_equal(raw(POST_HEAD "Content-Length: 99999999999\r\n\r\n{}"), 413);
    static const char *const bad[] = {"-1",   "abc", "1e3", "99999999999999999999999999",
                                      "0x10", "1,2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, POST_HEAD "Content-Length: %s\r\n\r\n{}", bad[i]);
        int status = raw(text);
        assert_true(status == 0 || (status >= 400 && status < 500));
    }
    assert_int_equal(
        raw(POST_HEAD
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        400);
    works();
}

static void chunks(void **state)
{
    server_use(&open_one);
    char text[512];
    (void)snprintf(text, sizeof text,
                   POST_HEAD "Transfer-Encoding: chunked\r\nConnection: "
                             "close\r\n\r\n5\r\n%.5s\r\n%zx\r\n%s\r\n0\r\n\r\n",
                   SMALL, strlen(SMALL) - 5, SMALL + 5);
    assert_int_equal(raw(text), 200);
    static const char *const bad[] = {"zz\r\n{}\r\n0\r\n\r\n", "-1\r\n{}\r\n0\r\n\r\n",
                                      "ffffffffffffffffff\r\n{}\r\n", "\r\n\r\n\r\n",
                                      "2\r\n{}garbage\r\n0\r\n\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)snprintf(text, sizeof text,
                       POST_HEAD "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n%s",
                       bad[i]);
        int status = raw(text);
        assert_true(status == 0 || (status >= 400 && status < 500));
    }
    /* More than a request may have, in chunks whose sum nobody announced. */
    int fd = client_open();
    client_text(fd, POST_HEAD "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    static char part[4096 + 16];
    memcpy(part, "1000\r\n", 6);
    memset(part + 6, ' ', 4096);
    memcpy(part + 4102, "\r\n", 2);
    for (int i = 0; i < 100; i++) {
        client_send(fd, part, 4104);
    }
    client_text(fd, "0\r\n\r\n");
    struct reply r = client_read(fd);
    assert_int_equal(r.status, 413);
    reply_free(&r);
    (void)close(fd);
    works();
}

static void not_http(void **state)
{
    server_use(&open_one);
    static const char *const bad[] = {
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "HELLO\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\r\n\r\n",
        "GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nNo colon\r\n\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd = client_open();
        client_text(fd, bad[i]);
        (void)shutdown(fd, SHUT_WR);
        struct reply r = client_read(fd);
        assert_true(r.status == 0 || r.status >= 400);
        reply_free(&r);
        (void)close(fd);
    }
    works();
}

/* A byte now and then keeps a connection no longer than --read-timeout, in the head and in the body. */
static void slow_clients(void **state)
{
    server_use(&open_one);
    static const char *const begins[] = {"GET /health HTTP/1.1\r\nHost: loc",
                                         POST_HEAD "Content-Length: 100\r\n\r\n{\"pro", ""};
    int fds[3];
    double began = seconds();
    for (int i = 0; i < 3; i++) {
        fds[i] = client_open();
        client_text(fds[i], begins[i]);
    }
    int closed = 0;
    while (closed < 3 && seconds() - began < 20) {
        sleep_ms(100);
        closed = 0;
        for (int i = 0; i < 3; i++) {
            char c;
            if (i < 2) {
                client_text(fds[i], "a");
            }
            closed += recv(fds[i], &c, 1, MSG_DONTWAIT | MSG_PEEK) == 0 ||
                      send(fds[i], "", 0, MSG_NOSIGNAL) < 0 ||
                      recv(fds[i], &c, 1, MSG_DONTWAIT) >= 0;
        }
        assert_int_equal(status_of("GET", "/health", NULL, NULL), 200); /* others are served */
    }
    assert_int_equal(closed, 3);
    assert_true(seconds() - began > 0.9);
    for (int i = 0; i < 3; i++) {
        (void)close(fds[i]);
    }
    works();
}

static void one_connection_many_requests(void **state)
{
    server_use(&open_one);
    int fd = client_open();
    for (int i = 0; i < 20; i++) {
        client_text(fd, i % 2 == 0 ? "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                   : "GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n");
        struct reply r = client_read(fd);
        assert_int_equal(r.status, i % 2 == 0 ? 200 : 404);
        reply_free(&r);
    }
    char text[512];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(text, sizeof text, POST_HEAD "Content-Length: %zu\r\n\r\n%s", strlen(SMALL),
                       SMALL);
        client_text(fd, text);
        struct reply r = client_read(fd);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),         cmocka_unit_test(jobs_belong_to_keys),
        cmocka_unit_test(origins),      cmocka_unit_test(hosts),
        cmocka_unit_test(sizes),        cmocka_unit_test(content_lengths),
        cmocka_unit_test(chunks),       cmocka_unit_test(not_http),
        cmocka_unit_test(slow_clients), cmocka_unit_test(one_connection_many_requests),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
