/*
 * serve_load: clients of a server that runs, for bench/serve.sh.
 *   serve_load PORT same ROUNDS          50 mixed pictures one after the other, then 8 at a time: are the
 *                                        bytes the same, and how long does each way take
 *   serve_load PORT lone COUNT           pictures of the model's size, one at a time; /health beside them
 *   serve_load PORT load CLIENTS SECONDS PID   everybody asks for small pictures again and again
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PICTURES = 50, TOGETHER = 8, MOST = 1000000, REPLY_BYTES = 4 * 1024 * 1024 };

static int port;

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int connect_to(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(fd, (const struct sockaddr *)(const void *)&name, sizeof name) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* The status of a reply on a connection that stays; its body in *body (NULL: not wanted). -1: none. */
static int ask(int fd, const char *path, const char *json, char *buffer, size_t *bytes, char **body)
{
    char request[2048];
    int n =
        json != NULL
            ? snprintf(request, sizeof request,
                       "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\n\r\n%s",
                       path, strlen(json), json)
            : snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    if (send(fd, request, (size_t)n, MSG_NOSIGNAL) != n) {
        return -1;
    }
    size_t have = 0, want = REPLY_BYTES - 1;
    char *end = NULL;
    while (have < want) {
        ssize_t got = recv(fd, buffer + have, REPLY_BYTES - 1 - have, 0);
        if (got <= 0) {
            return -1;
        }
        have += (size_t)got;
        buffer[have] = '\0';
        if (end == NULL && (end = strstr(buffer, "\r\n\r\n")) != NULL) {
            const char *length = strcasestr(buffer, "\r\nContent-Length: ");
            if (length == NULL) {
                return -1;
            }
            want = (size_t)(end + 4 - buffer) + strtoul(length + 18, NULL, 10);
        }
    }
    if (body != NULL) {
        *body = end + 4;
        *bytes = have - (size_t)(end + 4 - buffer);
    }
    return (int)strtol(buffer + 9, NULL, 10);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints the median and what 95 and 99 of 100 do not exceed. */
static void print_times(const char *what, double *times, size_t count)
{
    if (count == 0) {
        printf("%s: none\n", what);
        return;
    }
    qsort(times, count, sizeof *times, by_value);
    printf("%s: %zu, p50 %.2f ms, p95 %.2f ms, p99 %.2f ms, longest %.2f ms\n", what, count,
           times[count / 2] * 1e3, times[count * 95 / 100] * 1e3, times[count * 99 / 100] * 1e3,
           times[count - 1] * 1e3);
}

/* ---- same ---- */

static char *pictures[PICTURES];
static size_t picture_bytes[PICTURES];
static double picture_times[PICTURES];
static atomic_int next_picture, differ, failed;

static void draw(int fd, char *buffer, int i, bool first)
{
    static const char *const sizes[] = {"64x64", "128x128", "96x64", "64x128", "160x96"};
    char json[512], *body = NULL;
    size_t bytes = 0;
    (void)snprintf(json, sizeof json,
                   "{\"prompt\":\"%s\",\"size\":\"%s\",\"num_inference_steps\":%d,\"seed\":%d,"
                   "\"true_cfg_scale\":%d,\"response_format\":\"file\",\"no_metadata\":true}",
                   i % 3 ? "red apple" : "a snow leopard that sleeps", sizes[i % 5], 4 + i % 7, i,
                   i % 4 == 0 ? 1 : 4);
    double began = seconds();
    int status = ask(fd, "/v1/images/generations", json, buffer, &bytes, &body);
    picture_times[i] = seconds() - began;
    if (status != 200) {
        failed++;
    } else if (first) {
        pictures[i] = malloc(bytes);
        picture_bytes[i] = bytes;
        if (pictures[i] != NULL) {
            memcpy(pictures[i], body, bytes);
        }
    } else if (bytes != picture_bytes[i] || memcmp(pictures[i], body, bytes) != 0) {
        differ++;
    }
}

static void *draw_many(void *arg)
{
    char *buffer = malloc(REPLY_BYTES);
    int fd = connect_to();
    (void)arg;
    for (int i; buffer != NULL && (i = next_picture++) < PICTURES;) {
        draw(fd, buffer, i, false);
    }
    (void)close(fd);
    free(buffer);
    return NULL;
}

static int same(int rounds)
{
    char *buffer = malloc(REPLY_BYTES);
    for (int round = 0; round < rounds && buffer != NULL; round++) {
        int fd = connect_to();
        double began = seconds();
        for (int i = 0; i < PICTURES; i++) {
            draw(fd, buffer, i, round == 0);
        }
        double alone = seconds() - began;
        (void)close(fd);
        pthread_t threads[TOGETHER];
        next_picture = 0;
        began = seconds();
        for (int i = 0; i < TOGETHER; i++) {
            (void)pthread_create(&threads[i], NULL, draw_many, NULL);
        }
        for (int i = 0; i < TOGETHER; i++) {
            (void)pthread_join(threads[i], NULL);
        }
        double together = seconds() - began;
        printf("one after the other %.3f s, 8 at a time %.3f s: %.3f x the throughput\n", alone,
               together, alone / together);
        print_times("latency, 8 at a time", picture_times, PICTURES);
    }
    printf("%d differ, %d failed, of %d pictures in %d rounds\n", (int)differ, (int)failed,
           PICTURES, rounds);
    free(buffer);
    return differ + failed > 0;
}

/* ---- lone ---- */

static int lone(int count)
{
    char *buffer = malloc(REPLY_BYTES);
    double *times = calloc((size_t)count, sizeof *times), *health = calloc(1000, sizeof *health);
    int fd = connect_to(), bad = 0;
    for (int i = 0; i < count && buffer != NULL && times != NULL; i++) {
        char json[256];
        (void)snprintf(json, sizeof json, "{\"prompt\":\"red apple\",\"seed\":%d}", i + 42);
        double began = seconds();
        bad += ask(fd, "/v1/images/generations", json, buffer, NULL, NULL) != 200;
        times[i] = seconds() - began;
    }
    for (int i = 0; i < 1000 && buffer != NULL && health != NULL; i++) {
        double began = seconds();
        bad += ask(fd, "/health", NULL, buffer, NULL, NULL) != 200;
        health[i] = seconds() - began;
    }
    print_times("a picture", times, (size_t)count);
    print_times("/health", health, 1000);
    free(buffer);
    free(times);
    free(health);
    return bad;
}

/* ---- load ---- */

static atomic_int stop, done, refused, others;
static double *latencies;
static atomic_int latency_count;

static void *ask_again(void *arg)
{
    char *buffer = malloc(REPLY_BYTES);
    int fd = -1;
    unsigned number = (unsigned)(uintptr_t)arg;
    while (!stop && buffer != NULL) {
        char json[256];
        if (fd < 0 && (fd = connect_to()) < 0) {
            others++;
            break;
        }
        number = number * 1664525U + 1013904223U;
        (void)snprintf(
            json, sizeof json,
            "{\"prompt\":\"red apple\",\"size\":\"%dx64\",\"num_inference_steps\":%d,\"seed\":%u}",
            32 + 16 * (int)(number >> 30), 1 + (int)(number >> 28 & 3), number >> 8);
        double began = seconds();
        int status = ask(fd, "/v1/images/generations", json, buffer, NULL, NULL);
        int place = status == 200 ? latency_count++ : MOST;
        if (place < MOST) {
            latencies[place] = seconds() - began;
        }
        done += status == 200;
        refused += status == 429;
        others += status != 200 && status != 429;
        if (status < 0) {
            (void)close(fd);
            fd = -1;
        } else if (status == 429) {
            (void)usleep(100000); /* sooner than Retry-After says, on purpose */
        }
    }
    (void)close(fd);
    free(buffer);
    return NULL;
}

static double resident_mib(int pid)
{
    char path[64];
    long all = 0, pages = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &all, &pages) != 2) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1024 * 1024);
}

static int load(int clients, double length, int pid)
{
    pthread_t *threads = calloc((size_t)clients, sizeof *threads);
    double *health = calloc(100000, sizeof *health), middle = 0;
    char *buffer = malloc(REPLY_BYTES);
    size_t asked = 0;
    latencies = calloc(MOST, sizeof *latencies);
    if (threads == NULL || health == NULL || buffer == NULL || latencies == NULL) {
        return 1;
    }
    for (int i = 0; i < clients; i++) {
        (void)pthread_create(&threads[i], NULL, ask_again, (void *)(uintptr_t)(i + 1));
    }
    double began = seconds();
    int fd = connect_to();
    while (seconds() - began < length && asked < 100000) {
        double now = seconds();
        if (ask(fd, "/health", NULL, buffer, NULL, NULL) != 200) {
            others++;
            break;
        }
        health[asked++] = seconds() - now;
        if (middle <= 0 && seconds() - began > length / 3) {
            middle = resident_mib(pid);
        }
        (void)usleep(10000);
    }
    stop = 1;
    for (int i = 0; i < clients; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    double end = resident_mib(pid);
    printf("%d clients, %.0f s: %d pictures, %d refused with 429, %d others\n", clients,
           seconds() - began, (int)done, (int)refused, (int)others);
    print_times("pictures", latencies, (size_t)(latency_count < MOST ? latency_count : MOST));
    print_times("/health meanwhile", health, asked);
    printf("resident: %.1f MiB after a third, %.1f MiB at the end: %+.2f %%\n", middle, end,
           middle > 0 ? (end / middle - 1) * 100 : 0);
    free(threads);
    free(health);
    free(buffer);
    free(latencies);
    return others > 0;
}

int main(int argc, char **argv)
{
    port = argc > 3 ? (int)strtol(argv[1], NULL, 10) : 0;
    if (argc == 4 && strcmp(argv[2], "same") == 0) {
        return same((int)strtol(argv[3], NULL, 10));
    }
    if (argc == 4 && strcmp(argv[2], "lone") == 0) {
        return lone((int)strtol(argv[3], NULL, 10));
    }
    if (argc == 6 && strcmp(argv[2], "load") == 0) {
        return load((int)strtol(argv[3], NULL, 10), strtod(argv[4], NULL),
                    (int)strtol(argv[5], NULL, 10));
    }
    fprintf(stderr, "usage: serve_load PORT same ROUNDS | lone COUNT | load CLIENTS SECONDS PID\n");
    return 2;
}
