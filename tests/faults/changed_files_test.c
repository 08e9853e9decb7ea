/*
 * A model's files that another process cuts short, writes to or removes while ounce has them mapped:
 * an error that names the file, never SIGBUS, never a picture of other weights. And the handler of that
 * signal leaves others' faults alone.
 */
#include "test.h"

#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mapguard.h"
#include "ckpt/table.h"
#include "scratch.h"

#define WEIGHTS "model/transformer/diffusion_pytorch_model.safetensors"

static struct oz_error err;

/* Runs a function in a child: cmocka has a handler of SIGBUS of its own for each test, and ounce's is
 * installed once and for all. */
static int run_in_child(void (*fn)(void))
{
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGBUS, SIG_DFL);
        fn();
        (void)fflush(NULL);
        _exit(0);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    return result;
}

static void in_child(void (*fn)(void))
{
    int result = run_in_child(fn);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) {
        fail_msg("the child ended with %s %d", WIFEXITED(result) ? "status" : "signal",
                 WIFEXITED(result) ? WEXITSTATUS(result) : WTERMSIG(result));
    }
}

/* A tiny model of its own, opened. */
static struct oz_engine *fresh(void)
{
    struct oz_random_options o;
    struct oz_engine_options how;
    struct oz_engine *e;
    scratch_remove("model");
    oz_random_options_default(&o);
    o.layers = 2;
    o.heads = 2;
    o.head_dim = 64;
    o.text_layers = 1;
    o.vae_base_dim = 8;
    if (oz_model_random(scratch_path("model"), &o, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    oz_engine_options_default(&how);
    how.model = scratch_path("model");
    how.threads = 2;
    how.precision = OZ_PRECISION_F32;
    assert_int_equal(setenv("OUNCE_CPU", "scalar", 1), 0); /* reads weights where they are mapped */
    if (oz_engine_open(&e, &how, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

static enum oz_status draw(struct oz_engine *e)
{
    struct oz_image *image = NULL;
    struct oz_image_request r;
    oz_image_request_default(&r);
    r.prompt = "red apple";
    r.width = r.height = 32;
    r.num_inference_steps = 2;
    enum oz_status status = oz_image_generate(e, &r, 1, &image, &err);
    assert_true((status == OZ_OK) == (image != NULL));
    oz_image_destroy(&image);
    return status;
}

static void is_told(struct oz_engine *e, const char *phrase)
{
    assert_int_equal(draw(e), OZ_ERR_IO);
    if (strstr(err.message, phrase) == NULL || strstr(err.message, WEIGHTS) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", phrase, err.message);
    }
    oz_engine_close(&e);
}

static void do_cut_short(void)
{
    struct stat st;
    struct oz_engine *e = fresh();
    assert_int_equal(draw(e), OZ_OK);
    assert_int_equal(stat(scratch_path(WEIGHTS), &st), 0);
    assert_int_equal(truncate(scratch_path(WEIGHTS), st.st_size / 3), 0);
    is_told(e, "changed while it was in use");
    e = fresh();
    assert_int_equal(truncate(scratch_path(WEIGHTS), 0), 0);
    is_told(e, "and has 0. Do not write to a model's files");
}

static void do_longer(void)
{
    struct oz_engine *e = fresh();
    int fd = open(scratch_path(WEIGHTS), O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(close(fd), 0);
    is_told(e, "changed while it was in use");
}

static void do_written_to(void)
{
    struct oz_engine *e = fresh();
    struct stat st;
    assert_int_equal(stat(scratch_path(WEIGHTS), &st), 0);
    int fd = open(scratch_path(WEIGHTS), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, st.st_size - 1), 1);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st.st_mtim}; /* a coarse clock's tick */
    times[1].tv_sec++;
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
    is_told(e, "was written to while it was in use");
}

/* Cut short and filled again between two looks: only the fault tells. */
static void do_lost_for_a_while(void)
{
    struct oz_ckpt *c;
    struct oz_engine *e = fresh();
    struct stat st;
    oz_engine_close(&e);
    const char *path = scratch_path(WEIGHTS);
    assert_int_equal(oz_ckpt_open(&c, path, NULL, &err), OZ_OK);
    const struct oz_ckpt_file *f = oz_ckpt_file(c, 0);
    assert_int_equal(oz_ckpt_check(c, &err), OZ_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, 4096), 0);
    volatile const uint8_t *map = f->map;
    assert_int_equal(map[f->bytes - 1], 0); /* no SIGBUS */
    assert_int_equal(truncate(path, st.st_size), 0);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(oz_ckpt_check(c, &err), OZ_ERR_IO);
    assert_non_null(strstr(err.message, "could not be read"));
    oz_ckpt_close(&c);
}

/* Replaced as downloads do it, or removed: the open file is still whole. */
static void do_removed(void)
{
    struct oz_engine *e = fresh();
    assert_int_equal(unlink(scratch_path(WEIGHTS)), 0);
    assert_int_equal(draw(e), OZ_OK);
    oz_engine_close(&e);
}

/* A map of a file of nothing, whose pages fault. */
static volatile uint8_t *faulty_map(void)
{
    scratch_text("empty", "x");
    int fd = open(scratch_path("empty"), O_RDONLY | O_CLOEXEC);
    void *map = mmap(NULL, 1 << 16, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(map != MAP_FAILED);
    close(fd);
    return map;
}

static sigjmp_buf back;

static void jump(int number)
{
    siglongjmp(back, number);
}

static void others_handler(void)
{
    volatile uint8_t *map = faulty_map();
    const struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
    (void)sigaction(SIGBUS, &action, NULL);
    static const uint8_t page[4096];
    int32_t guard = oz_mapguard_add(page, sizeof page);
    if (sigsetjmp(back, 1) == 0) {
        (void)map[1 << 15];
        _exit(1);
    }
    assert_false(oz_mapguard_lost(guard));
}

static void others_fault(void)
{
    volatile uint8_t *map = faulty_map();
    static const uint8_t page[4096];
    (void)oz_mapguard_add(page, sizeof page);
    (void)map[1 << 15];
}

static void handlers_before_ours(void **state)
{
    in_child(others_handler);
}

static void others_faults_still_kill(void **state)
{
    int result = run_in_child(others_fault);
    assert_true(WIFSIGNALED(result));
    assert_int_equal(WTERMSIG(result), SIGBUS);
}

static void cut_short(void **state)
{
    in_child(do_cut_short);
}

static void longer(void **state)
{
    in_child(do_longer);
}

static void written_to(void **state)
{
    in_child(do_written_to);
}

static void lost_for_a_while(void **state)
{
    in_child(do_lost_for_a_while);
}

static void removed(void **state)
{
    in_child(do_removed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handlers_before_ours),
        cmocka_unit_test(others_faults_still_kill),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(longer),
        cmocka_unit_test(written_to),
        cmocka_unit_test(lost_for_a_while),
        cmocka_unit_test(removed),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
