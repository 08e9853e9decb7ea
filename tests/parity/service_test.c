/*
 * A service: its pictures are those of oz_image_generate to the byte, whoever else
 * is served; jobs end where they are told to, one by one; turns, room, memory and figures.
 */
#include "test.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include "base/alloc.h"
#include "scratch.h"

#define MODEL OZ_TEST_DIR "/../models/emoji"

/* A sanitizer makes every number slow and none of what is tested here different: there a model that is
 * tiny draws, but where it matters what is in the picture. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TINY true
#else
#define TINY false
#endif

static struct oz_error err;
static struct oz_engine *engine;

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static void says(enum oz_status got, enum oz_status want, const char *phrase)
{
    if (got != want || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, want, phrase);
    }
}

static enum oz_status open_engine(struct oz_engine **out, const char *model)
{
    struct oz_engine_options o;
    oz_engine_options_default(&o);
    o.model = model;
    o.threads = 2;
    return oz_engine_open(out, &o, &err);
}

static enum oz_status open_tiny(struct oz_engine **out)
{
    struct oz_random_options o;
    oz_random_options_default(&o);
    o.layers = 2;
    o.heads = 2;
    o.head_dim = 16;
    o.text_layers = 1;
    o.vae_base_dim = 4;
    enum oz_status status = oz_model_random(scratch_path("tiny"), &o, &err);
    return status == OZ_OK ? open_engine(out, scratch_path("tiny")) : status;
}

static int start(void **state)
{
    if (scratch_open(state) != 0 ||
        (TINY ? open_tiny(&engine) : open_engine(&engine, MODEL)) != OZ_OK) {
        print_error("%s\n", err.message);
        return 1;
    }
    return 0;
}

static int stop(void **state)
{
    oz_engine_close(&engine);
    return scratch_close(state);
}

static struct oz_image_request request(const char *prompt, int32_t width, int32_t height,
                                       int32_t steps, double scale, uint64_t seed)
{
    struct oz_image_request r;
    oz_image_request_default(&r);
    r.prompt = prompt;
    r.width = width;
    r.height = height;
    r.num_inference_steps = steps;
    r.true_cfg_scale = scale;
    r.seed = seed;
    return r;
}

static struct oz_image *alone(const struct oz_image_request *r)
{
    struct oz_image *image;
    ok(oz_image_generate(engine, r, 1, &image, &err));
    return image;
}

static void same(const struct oz_image *a, const struct oz_image *b)
{
    size_t values = 3 * (size_t)oz_image_width(a) * (size_t)oz_image_height(a);
    assert_int_equal(oz_image_width(a), oz_image_width(b));
    assert_int_equal(oz_image_height(a), oz_image_height(b));
    assert_memory_equal(oz_image_floats(a), oz_image_floats(b), values * sizeof(float));
    assert_memory_equal(oz_image_pixels(a), oz_image_pixels(b), values);
    assert_string_equal(oz_image_metadata(a), oz_image_metadata(b));
}

/* ---- a service whose thread can be held ---- */

/* What the thread tells of a job, in order: text, steps, one for each step, decode, its end. */
enum { AT_TEXT = 1, AT_STEPS = 2, AFTER_STEP = 2 /* + n */ };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    pthread_t main;
    uint64_t order[64]; /* jobs as they began */
    int order_count;
    int told[64];        /* by the thread, of each job */
    uint64_t job;        /* that is held; 0: none */
    int at;              /* at what it is told */
    bool held, go;       /* it is; it may go on */
    uint64_t allocs[64]; /* calls when the held job was told its n-th */
    uint64_t fail_job;   /* the next allocation after its text has begun fails */
} stage = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};

static void told(void *ctx, uint64_t job)
{
    if (pthread_equal(pthread_self(), stage.main)) {
        return; /* a submit's or a cancel's own */
    }
    pthread_mutex_lock(&stage.lock);
    int n = job < 64 ? ++stage.told[job] : 0;
    if (n == AT_TEXT && stage.order_count < 64) {
        stage.order[stage.order_count++] = job;
    }
    if (n < 64) {
        stage.allocs[n] = oz_alloc_calls();
    }
    if (job == stage.job && n == stage.at) {
        stage.held = true;
        pthread_cond_broadcast(&stage.turn);
        while (!stage.go) {
            pthread_cond_wait(&stage.turn, &stage.lock);
        }
        stage.held = stage.go = false;
        stage.job = 0;
    }
    if (n == AT_TEXT && job == stage.fail_job) {
        oz_alloc_fail_at(1, 0);
    }
    pthread_mutex_unlock(&stage.lock);
}

static void hold(uint64_t job, int at)
{
    pthread_mutex_lock(&stage.lock);
    stage.job = job;
    stage.at = at;
    pthread_mutex_unlock(&stage.lock);
}

static void wait_until_held(void)
{
    pthread_mutex_lock(&stage.lock);
    while (!stage.held) {
        pthread_cond_wait(&stage.turn, &stage.lock);
    }
    pthread_mutex_unlock(&stage.lock);
}

static void go_on(void)
{
    pthread_mutex_lock(&stage.lock);
    stage.go = true;
    pthread_cond_broadcast(&stage.turn);
    while (stage.go) {
        pthread_mutex_unlock(&stage.lock);
        (void)usleep(100);
        pthread_mutex_lock(&stage.lock);
    }
    pthread_mutex_unlock(&stage.lock);
}

static struct oz_service_options options(int32_t max_num_seqs)
{
    struct oz_service_options o;
    oz_service_options_default(&o);
    o.max_num_seqs = max_num_seqs;
    o.changed = told;
    pthread_mutex_lock(&stage.lock);
    stage.main = pthread_self();
    stage.order_count = 0;
    stage.job = stage.fail_job = 0;
    memset(stage.told, 0, sizeof stage.told);
    pthread_mutex_unlock(&stage.lock);
    return o;
}

static struct oz_service *open_service(int32_t max_num_seqs)
{
    struct oz_service *s;
    struct oz_service_options o = options(max_num_seqs);
    ok(oz_service_open(&s, engine, &o, &err));
    return s;
}

static uint64_t submit(struct oz_service *s, const struct oz_image_request *r, const char *client)
{
    uint64_t id;
    struct oz_job_options o;
    oz_job_options_default(&o);
    o.client = client;
    ok(oz_service_submit(s, r, 1, &o, &id, &err));
    return id;
}

static struct oz_job_status status_of(struct oz_service *s, uint64_t id)
{
    struct oz_job_status status = {.struct_size = sizeof status};
    ok(oz_service_status(s, id, &status, &err));
    return status;
}

static struct oz_service_stats stats_of(struct oz_service *s)
{
    struct oz_service_stats stats = {.struct_size = sizeof stats};
    ok(oz_service_stats_read(s, &stats, &err));
    return stats;
}

static struct oz_image *take(struct oz_service *s, uint64_t id)
{
    struct oz_image *image;
    ok(oz_service_wait(s, id, -1, &err));
    ok(oz_service_take(s, id, &image, &err));
    return image;
}

/* It ends with the very picture of the request alone; `want` is given back. */
static void ends_as(struct oz_service *s, uint64_t id, struct oz_image *want)
{
    struct oz_image *image = take(s, id);
    same(image, want);
    oz_image_destroy(&image);
    oz_image_destroy(&want);
}

static void ends_with(struct oz_service *s, uint64_t id, enum oz_job_state state,
                      enum oz_status status, const char *phrase)
{
    struct oz_image *image;
    ok(oz_service_wait(s, id, -1, &err));
    assert_int_equal(status_of(s, id).state, state);
    says(oz_service_take(s, id, &image, &err), status, phrase);
    assert_null(image);
    says(oz_service_take(s, id, &image, &err), OZ_ERR_ARG, "There is no job");
}

/* ---- the same bytes ---- */

enum { CROWD = 50, CALLERS = 8 };

static struct {
    struct oz_service *service;
    struct oz_image_request requests[CROWD];
    struct oz_image *images[CROWD];
    enum oz_status status[CROWD];
} crowd;

static struct oz_image_request crowd_request(int i)
{
    static const char *const prompts[] = {"red apple", "a cat that looks at the moon", "",
                                          "green tree, blue sky, a small house"};
    return request(prompts[i % 4], 64 + 16 * (i * 5 % 7), 64 + 16 * (i * 3 % 7), 2 + i % 7,
                   i % 3 == 0 ? 4 : 1, (uint64_t)i);
}

/* Requests i, i + CALLERS, ...: some one by one, some two together. */
static void *call(void *first)
{
    char client[2] = {(char)('a' + (int)(intptr_t)first % 3), '\0'};
    for (int i = (int)(intptr_t)first; i < CROWD; i += CALLERS) {
        struct oz_error e;
        struct oz_job_options o;
        uint64_t id;
        oz_job_options_default(&o);
        o.client = client;
        o.preview_every = i % 4;
        crowd.status[i] = oz_service_submit(crowd.service, &crowd.requests[i], 1, &o, &id, &e);
        if (crowd.status[i] == OZ_OK) {
            crowd.status[i] = oz_service_wait(crowd.service, id, -1, &e);
        }
        if (crowd.status[i] == OZ_OK) {
            crowd.status[i] = oz_service_take(crowd.service, id, &crowd.images[i], &e);
        }
    }
    return NULL;
}

static void same_bytes_in_a_crowd(void **state)
{
    struct oz_image *want[CROWD];
    pthread_t threads[CALLERS];
    struct oz_service_options o;
    for (int i = 0; i < CROWD; i++) {
        crowd.requests[i] = crowd_request(i);
        want[i] = alone(&crowd.requests[i]);
    }
    oz_service_options_default(&o);
    o.max_num_seqs = 3;
    ok(oz_service_open(&crowd.service, engine, &o, &err));
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call, (void *)(intptr_t)i), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
    }
    struct oz_service_stats stats = stats_of(crowd.service);
    int64_t counted = 0;
    for (int i = 0; i < OZ_SERVICE_BUCKETS; i++) {
        counted += stats.step_count[i];
        assert_true(i == 0 || stats.step_bound[i] > stats.step_bound[i - 1]);
    }
    assert_true(stats.submitted == CROWD && stats.done == CROWD && stats.failed == 0);
    assert_true(stats.queued == 0 && stats.running == 0 && counted == stats.steps);
    assert_true(stats.steps > 0 && stats.step_pictures > stats.steps); /* they were together */
    assert_true(stats.step_pictures <= 3 * stats.steps && stats.peak_bytes > 0);
    assert_true(stats.step_seconds > 0 && stats.text_seconds > 0 && stats.decode_seconds > 0);
    oz_service_close(&crowd.service);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(crowd.status[i], OZ_OK);
        same(crowd.images[i], want[i]);
        oz_image_destroy(&crowd.images[i]);
        oz_image_destroy(&want[i]);
    }
}

static void joins_half_way(void **state)
{
    struct oz_image_request first = request("red apple", 96, 64, 8, 4, 1);
    struct oz_image_request second = request("a blue fish", 128, 80, 5, 1, 2);
    struct oz_image_request third = request("sun", 64, 64, 8, 4, 3); /* the first's timesteps */
    struct oz_image *want[3] = {alone(&first), alone(&second), alone(&third)};
    struct oz_service *s = open_service(3);
    hold(1, AFTER_STEP + 3);
    uint64_t a = submit(s, &first, "x");
    wait_until_held();
    assert_true(a == 1 && status_of(s, a).step == 3 && status_of(s, a).state == OZ_JOB_STEPS);
    assert_true(status_of(s, a).seconds_left >= 0);
    uint64_t b = submit(s, &second, "x");
    uint64_t c = submit(s, &third, "x");
    assert_true(status_of(s, b).position == 1 && status_of(s, c).position == 2);
    go_on();
    ends_as(s, a, want[0]);
    ends_as(s, b, want[1]);
    ends_as(s, c, want[2]);
    struct oz_service_stats stats = stats_of(s);
    assert_true(stats.steps < 8 + 5 + 8 && stats.step_pictures == 8 + 5 + 8);
    oz_service_close(&s);
}

/* ---- ends ---- */

/* Cancelled at each point of its way, with a neighbour that goes on. */
static void cancel_anywhere(void **state)
{
    static const struct {
        int at;
        enum oz_job_state state;
    } points[] = {{AT_TEXT, OZ_JOB_TEXT},
                  {AT_STEPS, OZ_JOB_STEPS},
                  {AFTER_STEP + 2, OZ_JOB_STEPS},
                  {AFTER_STEP + 5, OZ_JOB_DECODE}};
    struct oz_image_request r = request("red apple", 64, 80, 4, 4, 1);
    struct oz_image_request n = request("neighbour", 80, 64, 9, 1, 2);
    struct oz_image *want = alone(&n);
    for (int with = 0; with < 2; with++) {
        for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
            struct oz_service *s = open_service(2);
            uint64_t neighbour = with ? submit(s, &n, "n") : 0;
            hold(neighbour + 1, points[i].at);
            uint64_t job = submit(s, &r, "x");
            wait_until_held();
            assert_int_equal(status_of(s, job).state, points[i].state);
            ok(oz_service_cancel(s, job, &err));
            assert_int_equal(status_of(s, job).state, OZ_JOB_CANCELLED); /* at once */
            ok(oz_service_cancel(s, job, &err));
            go_on();
            ends_with(s, job, OZ_JOB_CANCELLED, OZ_ERR_CANCELLED, "The job was cancelled");
            if (with) {
                struct oz_image *image = take(s, neighbour);
                same(image, want);
                oz_image_destroy(&image);
            }
            assert_int_equal(stats_of(s).cancelled, 1);
            oz_service_close(&s);
        }
    }
    oz_image_destroy(&want);
}

static void cancel_in_the_queue(void **state)
{
    struct oz_image_request r = request("red apple", 64, 64, 3, 1, 1);
    struct oz_service *s = open_service(1);
    hold(1, AT_STEPS);
    uint64_t a = submit(s, &r, "x");
    wait_until_held();
    uint64_t b = submit(s, &r, "x");
    uint64_t c = submit(s, &r, "x");
    assert_int_equal(status_of(s, c).position, 2);
    assert_true(status_of(s, b).seconds_left < 0); /* no step has been measured */
    ok(oz_service_cancel(s, b, &err));
    assert_int_equal(status_of(s, c).position, 1);
    assert_int_equal(status_of(s, b).state, OZ_JOB_CANCELLED);
    go_on();
    ends_as(s, a, take(s, c));
    ends_with(s, b, OZ_JOB_CANCELLED, OZ_ERR_CANCELLED, "after 0 of 3 steps");
    oz_service_close(&s);
}

/* Cancels that come at any time, within operators too: the others do not feel it. */
static void cancels_at_random(void **state)
{
    struct oz_image_request kept = request("kept", 96, 96, 10, 4, 5);
    struct oz_image_request other = request("other", 160, 160, 10, 4, 6);
    struct oz_image *want = alone(&kept);
    struct oz_service *s = open_service(3);
    for (unsigned i = 0; i < 6; i++) {
        uint64_t a = submit(s, &other, "a");
        uint64_t id = submit(s, &kept, "b");
        uint64_t b = submit(s, &other, "c");
        (void)usleep(i * 13000);
        ok(oz_service_cancel(s, a, &err));
        (void)usleep(i * 7000);
        ok(oz_service_cancel(s, b, &err));
        struct oz_image *image = take(s, id);
        same(image, want);
        oz_image_destroy(&image);
    }
    oz_image_destroy(&want);
    oz_service_close(&s);
}

static void timeouts(void **state)
{
    struct oz_image_request r = request("red apple", 64, 64, 3, 1, 1);
    struct oz_job_options o;
    uint64_t waits;
    uint64_t runs;
    struct oz_service *s = open_service(1);
    oz_job_options_default(&o);
    o.timeout_seconds = 0.05;
    hold(1, AT_STEPS);
    ok(oz_service_submit(s, &r, 1, &o, &runs, &err));
    wait_until_held();
    ok(oz_service_submit(s, &r, 1, &o, &waits, &err));
    uint64_t patient = submit(s, &r, "y");
    (void)usleep(100000);
    go_on();
    ends_with(s, runs, OZ_JOB_FAILED, OZ_ERR_CANCELLED, "longer than its timeout of 0.05 seconds");
    ends_with(s, waits, OZ_JOB_FAILED, OZ_ERR_CANCELLED, "0 of 3 steps");
    ends_as(s, patient, take(s, submit(s, &r, "")));
    oz_service_close(NULL);
    o.timeout_seconds = -1;
    says(oz_service_submit(s, &r, 1, &o, &waits, &err), OZ_ERR_ARG, "timeout of -1 seconds");
    assert_true(stats_of(s).failed == 2 && stats_of(s).done == 2);
    oz_service_close(&s);
}

/* An allocation fails while one joins: that one fails, who runs already goes on. */
static void failure_of_one(void **state)
{
    struct oz_image_request r = request("red apple", 64, 80, 6, 4, 1);
    struct oz_image_request n = request("large", 160, 160, 7, 1, 2);
    struct oz_image *want = alone(&r);
    struct oz_service *s = open_service(2);
    hold(1, AFTER_STEP + 2);
    uint64_t a = submit(s, &r, "x");
    wait_until_held();
    pthread_mutex_lock(&stage.lock);
    stage.fail_job = 2;
    pthread_mutex_unlock(&stage.lock);
    uint64_t b = submit(s, &n, "x");
    go_on();
    ends_with(s, b, OZ_JOB_FAILED, OZ_ERR_NOMEM, "ut of memory");
    oz_alloc_fail_at(0, 0);
    ends_as(s, a, want);
    want = take(s, submit(s, &n, "x")); /* the next one is as ever */
    oz_service_close(&s);
    struct oz_image *again = alone(&n);
    same(want, again);
    oz_image_destroy(&again);
    oz_image_destroy(&want);
}

static void *wait_for_first(void *service)
{
    struct oz_error e;
    return (void *)(intptr_t)oz_service_wait(service, 1, -1, &e);
}

static void close_while_busy(void **state)
{
    struct oz_image_request r = request("red apple", 160, 160, 500, 4, 1);
    struct oz_image_request list[3] = {r, r, r};
    uint64_t ids[3];
    pthread_t waiter;
    void *result;
    struct oz_service *s = open_service(2);
    ok(oz_service_submit(s, list, 3, NULL, ids, &err));
    assert_true(ids[0] == 1 && ids[1] == 2 && ids[2] == 3);
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_first, s), 0);
    while (status_of(s, 2).step < 1) {
        (void)usleep(1000);
    }
    oz_service_close(&s);
    assert_null(s);
    pthread_join(waiter, &result);
    s = open_service(1); /* nothing has happened to it yet */
    oz_service_close(&s);
}

/* ---- turns and room ---- */

static void clients_in_turn(void **state)
{
    struct oz_image_request r = request("red apple", 64, 64, 2, 1, 1);
    struct oz_service *s = open_service(1);
    static const char *const clients[] = {"a", "a", "a", "a", "b", "b", "c", "a"};
    /*  job:                               1    2    3    4    5    6    7    8  */
    static const uint64_t order[] = {1, 2, 5, 7, 3, 6, 4, 8};
    hold(1, AT_TEXT);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(submit(s, &r, clients[i]), i + 1);
        if (i == 0) {
            wait_until_held();
        }
    }
    for (int i = 1; i < 8; i++) {
        assert_int_equal(status_of(s, order[i]).position, i);
    }
    go_on();
    for (uint64_t i = 1; i <= 8; i++) {
        struct oz_image *image = take(s, i);
        oz_image_destroy(&image);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(stage.order[i], order[i]);
    }
    oz_service_close(&s);
}

static void a_full_queue(void **state)
{
    struct oz_image_request r = request("red apple", 64, 64, 2, 1, 1);
    struct oz_image_request list[2] = {r, r};
    uint64_t ids[8];
    struct oz_service *s;
    struct oz_service_options o = options(1);
    o.max_queue = 2;
    o.max_ended = 2;
    ok(oz_service_open(&s, engine, &o, &err));
    hold(1, AT_TEXT);
    ok(oz_service_submit(s, &r, 1, NULL, ids, &err));
    wait_until_held();
    ok(oz_service_submit(s, &r, 1, NULL, ids, &err));
    says(oz_service_submit(s, list, 2, NULL, ids, &err), OZ_ERR_BUSY,
         "1 pictures run, 1 wait and at most 2 may, and 2 more were asked for");
    assert_true(stats_of(s).queued == 1 && stats_of(s).running == 1); /* none of the two */
    ok(oz_service_submit(s, &r, 1, NULL, ids, &err));
    says(oz_service_submit(s, &r, 1, NULL, ids, &err), OZ_ERR_BUSY, "The queue is full");
    says(oz_service_submit(s, list, 9, NULL, ids, &err), OZ_ERR_ARG, "at most the 3");
    assert_true(stats_of(s).refused == 3 && stats_of(s).submitted == 3);
    struct oz_image *image;
    says(oz_service_take(s, 1, &image, &err), OZ_ERR_BUSY, "has not ended");
    go_on();
    ok(oz_service_wait(s, 3, -1, &err));
    says(oz_service_wait(s, 1, -1, &err), OZ_ERR_ARG, "forgotten (2 that have ended are kept)");
    ends_as(s, 2, take(s, 3));
    oz_service_close(&s);
}

static void what_could_never_run(void **state)
{
    struct oz_image_request r = request("red apple", 128, 128, 4, 4, 1);
    struct oz_image_request small = request("red apple", 64, 64, 4, 4, 1);
    struct oz_image_request list[2] = {small, r};
    uint64_t ids[2];
    struct oz_service *s = open_service(2);
    struct oz_image *want = take(s, submit(s, &small, ""));
    oz_service_close(&s);

    struct oz_service_options o = options(4);
    o.max_pixels = 64 * 64;
    ok(oz_service_open(&s, engine, &o, &err));
    says(oz_service_submit(s, list, 2, NULL, ids, &err), OZ_ERR_ARG,
         "A picture of 128 x 128 has 16384 pixels; this service draws at most 4096");
    oz_service_close(&s);

    o.max_pixels = 0;
    o.max_memory_bytes = 1 << 16;
    ok(oz_service_open(&s, engine, &o, &err));
    says(oz_service_submit(s, &small, 1, NULL, ids, &err), OZ_ERR_NOMEM,
         "this service may take 65536");
    oz_service_close(&s);

    /* Just what one takes: they run one after the other, and the limit is kept. */
    const char *number = strstr(err.message, "takes ") + strlen("takes ");
    o.max_memory_bytes = strtoll(number, NULL, 10);
    ok(oz_service_open(&s, engine, &o, &err));
    says(oz_service_submit(s, list, 2, NULL, ids, &err), OZ_ERR_NOMEM, "128 x 128 in 4 steps");
    for (int i = 0; i < 4; i++) {
        ids[0] = submit(s, &small, "");
    }
    for (uint64_t i = 1; i <= 4; i++) {
        struct oz_image *image = take(s, i);
        same(image, want);
        oz_image_destroy(&image);
    }
    struct oz_service_stats stats = stats_of(s);
    assert_true(stats.steps == 16 && stats.step_pictures == 16);
    assert_true(stats.peak_bytes <= o.max_memory_bytes && stats.limit_bytes == o.max_memory_bytes);
    oz_service_close(&s);
    o.max_memory_bytes -= 1;
    ok(oz_service_open(&s, engine, &o, &err));
    says(oz_service_submit(s, &small, 1, NULL, ids, &err), OZ_ERR_NOMEM, "Out of memory");
    oz_service_close(&s);

    /* Sizes and step counts by turns, with room for hardly more than the largest: rooms are replaced,
     * and the table, and nobody sees it. */
    o.max_memory_bytes = 1 << 16;
    ok(oz_service_open(&s, engine, &o, &err));
    says(oz_service_submit(s, &r, 1, NULL, ids, &err), OZ_ERR_NOMEM, "this service may take");
    oz_service_close(&s);
    o.max_memory_bytes =
        strtoll(strstr(err.message, "takes ") + strlen("takes "), NULL, 10) * 5 / 4;
    struct oz_image *large = alone(&r);
    ok(oz_service_open(&s, engine, &o, &err));
    for (int i = 0; i < 12; i++) {
        ids[0] = submit(s, i % 3 == 1 ? &r : &small, i % 2 ? "x" : "y");
    }
    for (uint64_t i = 1; i <= 12; i++) {
        struct oz_image *image = take(s, i);
        same(image, i % 3 == 2 ? large : want);
        oz_image_destroy(&image);
    }
    assert_true(stats_of(s).peak_bytes <= o.max_memory_bytes);
    oz_service_close(&s);
    oz_image_destroy(&large);
    oz_image_destroy(&want);
}

/* ---- the rest ---- */

static void one_master(void **state)
{
    struct oz_image_request r = request("red apple", 64, 64, 2, 1, 1);
    struct oz_image *image;
    struct oz_service *second;
    struct oz_service *s = open_service(0);
    struct oz_service_options o = options(-1);
    says(oz_image_generate(engine, &r, 1, &image, &err), OZ_ERR_BUSY, "The engine is a service's");
    says(oz_service_open(&second, engine, NULL, &err), OZ_ERR_BUSY, "The engine is a service's");
    assert_null(second);
    assert_int_equal(stats_of(s).max_num_seqs, 4); /* the engine's max_batch */
    oz_service_close(&s);
    oz_service_close(&s);
    says(oz_service_open(&s, engine, &o, &err), OZ_ERR_ARG, "max_num_seqs is -1");
    ok(oz_service_open(&s, engine, NULL, &err));
    assert_int_equal(stats_of(s).max_queue, 64);
    struct oz_stats before = {.struct_size = sizeof before};
    struct oz_stats after = {.struct_size = sizeof after};
    ok(oz_engine_stats(engine, &before, &err));
    image = take(s, submit(s, &r, NULL));
    oz_image_destroy(&image);
    oz_service_close(&s);
    ok(oz_engine_stats(engine, &after, &err));
    assert_true(after.pictures == before.pictures + 1 && after.steps == before.steps + 2);
    struct oz_image *want = alone(&r);
    oz_image_destroy(&want);
}

static void who_is_not_there(void **state)
{
    struct oz_job_status status = {.struct_size = sizeof status};
    struct oz_image *image;
    int32_t number;
    struct oz_service *s = open_service(1);
    says(oz_service_status(s, 7, &status, &err), OZ_ERR_ARG, "There is no job 7");
    says(oz_service_cancel(s, 7, &err), OZ_ERR_ARG, "There is no job 7");
    says(oz_service_wait(s, 7, 0, &err), OZ_ERR_ARG, "There is no job 7");
    says(oz_service_take(s, 7, &image, &err), OZ_ERR_ARG, "There is no job 7");
    says(oz_service_preview(s, 7, &image, &number, &err), OZ_ERR_ARG, "There is no job 7");
    struct oz_image_request r = request("red apple", 64, 72, 2, 1, 1);
    uint64_t id;
    says(oz_service_submit(s, &r, 1, NULL, &id, &err), OZ_ERR_ARG, "The height is 72");
    says(oz_service_submit(s, &r, 0, NULL, &id, &err), OZ_ERR_ARG, "at least one");
    status.struct_size = 0;
    r.height = 64;
    id = submit(s, &r, "");
    says(oz_service_status(s, id, &status, &err), OZ_ERR_ARG, "Set struct_size");
    ok(oz_service_wait(s, id, 0, &err)); /* whether it has ended or not */
    image = take(s, id);
    oz_image_destroy(&image);
    oz_service_close(&s);
}

static void previews(void **state)
{
    struct oz_image_request r = request("red apple", 160, 96, 6, 4, 1);
    struct oz_engine *others = engine;
    ok(open_engine(&engine, MODEL));
    struct oz_image *want = alone(&r);
    struct oz_image *image;
    struct oz_job_options o;
    uint64_t id;
    int32_t number;
    struct oz_service *s = open_service(1);
    oz_job_options_default(&o);
    o.preview_every = 2;
    hold(1, AFTER_STEP + 1);
    ok(oz_service_submit(s, &r, 1, &o, &id, &err));
    wait_until_held();
    ok(oz_service_preview(s, id, &image, &number, &err));
    assert_true(image == NULL && number == 0 && status_of(s, id).preview == 0);
    hold(0, 0);
    go_on();
    hold(1, AFTER_STEP + 7); /* decode */
    wait_until_held();
    assert_int_equal(status_of(s, id).preview,
                     2); /* after steps 2 and 4; the last gives the picture */
    ok(oz_service_preview(s, id, &image, &number, &err));
    assert_true(number == 2 && oz_image_width(image) == 80 && oz_image_height(image) == 48);
    /* Rough, but of this picture: closer to it than grey is. */
    double far = 0;
    double grey = 0;
    for (int32_t i = 0; i < 80 * 48; i++) {
        const uint8_t *p = oz_image_pixels(image) + (ptrdiff_t)3 * i;
        const uint8_t *q =
            oz_image_pixels(want) + (ptrdiff_t)3 * (2 * (i / 80) * 160 + 2 * (i % 80));
        for (int c = 0; c < 3; c++) {
            far += abs(p[c] - q[c]);
            grey += abs(128 - q[c]);
        }
    }
    print_message("preview: mean difference %.1f, grey's %.1f\n", far / (80 * 48 * 3),
                  grey / (80 * 48 * 3));
    assert_true(far < grey);
    oz_image_destroy(&image);
    go_on();
    ends_as(s, id, want);
    oz_service_close(&s);
    oz_engine_close(&engine);
    engine = others;
}

/* Nothing is allocated between two steps of an unchanged batch. */
static void steps_allocate_nothing(void **state)
{
    struct oz_image_request r = request("red apple", 64, 64, 8, 4, 1);
    struct oz_service *s = open_service(1);
    struct oz_image *image = take(s, submit(s, &r, ""));
    for (int i = 2; i <= 8; i++) {
        assert_int_equal(stage.allocs[AFTER_STEP + i], stage.allocs[AFTER_STEP + 1]);
    }
    oz_image_destroy(&image);
    oz_service_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_half_way),
        cmocka_unit_test(cancel_anywhere),
        cmocka_unit_test(cancel_in_the_queue),
        cmocka_unit_test(cancels_at_random),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(failure_of_one),
        cmocka_unit_test(close_while_busy),
        cmocka_unit_test(clients_in_turn),
        cmocka_unit_test(a_full_queue),
        cmocka_unit_test(what_could_never_run),
        cmocka_unit_test(one_master),
        cmocka_unit_test(who_is_not_there),
        cmocka_unit_test(previews),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(same_bytes_in_a_crowd),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
