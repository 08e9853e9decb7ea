/*
 * The scenarios with faults of the system: one call of read, pread, write, fsync, rename, open, mmap or
 * pthread_create fails, is interrupted, or does half of what it was asked. The linker puts the
 * functions of this file in front of the C library's (--wrap), so ounce itself is as it is shipped.
 * A failed call is an error that names its cause; an interrupted or a short one changes nothing. A
 * picture or a file is whole under its name or not there, and nothing is left beside it.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults/scenarios.h"
#include "scratch.h"

#define CALLS(X) \
    X(read) X(pread) X(write) X(pwrite) X(fsync) X(rename) X(open) X(mmap) X(pthread_create)

enum call {
#define X(name) CALL_##name,
    CALLS(X)
#undef X
        CALL_COUNT
};
static const char *const call_names[] = {
#define X(name) #name,
    CALLS(X)
#undef X
};

enum mode { FAIL, SHORT };

static atomic_int counts[CALL_COUNT];
static enum call faulty;
static int faulty_at; /* 0: none */
static int faulty_errno;
static enum mode faulty_mode;

/* Counts a call; true when it is the faulty one. */
static bool is_faulty(enum call c)
{
    int n = atomic_fetch_add(&counts[c], 1) + 1;
    return faulty_at == n && faulty == c;
}

/* What a call that moves bytes does: as asked, half, or nothing. */
static bool spoil(enum call c, size_t *bytes)
{
    if (!is_faulty(c)) {
        return false;
    }
    if (faulty_mode == SHORT) {
        *bytes = *bytes > 1 ? *bytes / 2 : *bytes;
        return false;
    }
    errno = faulty_errno;
    return true;
}

ssize_t __real_read(int fd, void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *data, size_t bytes)
{
    return spoil(CALL_read, &bytes) ? -1 : __real_read(fd, data, bytes);
}

ssize_t __real_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at)
{
    return spoil(CALL_pread, &bytes) ? -1 : __real_pread(fd, data, bytes, at);
}

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    return spoil(CALL_write, &bytes) ? -1 : __real_write(fd, data, bytes);
}

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return spoil(CALL_pwrite, &bytes) ? -1 : __real_pwrite(fd, data, bytes, at);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    size_t none = 0;
    return spoil(CALL_fsync, &none) ? -1 : __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    size_t none = 0;
    return spoil(CALL_rename, &none) ? -1 : __real_rename(from, to);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    size_t none = 0;
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return spoil(CALL_open, &none) ? -1 : __real_open(path, flags, mode);
}

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    size_t none = 0;
    return spoil(CALL_mmap, &none) ? MAP_FAILED
                                   : __real_mmap(at, bytes, protection, flags, fd, offset);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
    size_t none = 0;
    return spoil(CALL_pthread_create, &none) ? faulty_errno
                                             : __real_pthread_create(thread, attr, fn, arg);
}

static struct oz_error err;

static enum oz_status run_with(const struct scenario *s, enum call c, int at, enum mode mode,
                               int error, uint64_t *digest)
{
    for (int i = 0; i < CALL_COUNT; i++) {
        atomic_store(&counts[i], 0);
    }
    memset(&err, 0, sizeof err);
    *digest = 0;
    faulty = c;
    faulty_mode = mode;
    faulty_errno = error;
    faulty_at = at;
    enum oz_status status = s->run(digest, &err);
    faulty_at = 0;
    return status;
}

/* Temporary files are gone. */
static void nothing_beside(const char *what)
{
    if (scratch_count("out") > 3) {
        fail_msg("%s left something behind", what);
    }
}

/* What a failure has left is taken up by the next run, to the same result. */
static void goes_on_afterwards(const struct scenario *s, uint64_t want)
{
    uint64_t digest;
    scenarios_resume = true;
    enum oz_status status = run_with(s, CALL_read, 0, FAIL, 0, &digest);
    scenarios_resume = false;
    if (status != OZ_OK || digest != want) {
        fail_msg("%s, once more: status %d, \"%s\"", s->name, status,
                 status == OZ_OK ? "another result" : err.message);
    }
}

/* A failed call: an error of input and output (or of memory, for maps and threads) that says why; or,
 * where ounce has another way, the same result. */
static void fails(const struct scenario *s, enum call c, int at, int error, uint64_t want)
{
    uint64_t digest;
    enum oz_status status = run_with(s, c, at, FAIL, error, &digest);
    bool memory = c == CALL_pthread_create || error == ENOMEM;
    if (status == OZ_OK ? digest != want
                        : status != (memory ? OZ_ERR_NOMEM : OZ_ERR_IO) ||
                              strstr(err.message, strerror(error)) == NULL) {
        fail_msg("%s, %s %d fails with %s: status %d, \"%s\"", s->name, call_names[c], at,
                 strerror(error), status, status == OZ_OK ? "another result" : err.message);
    }
    if (status != OZ_OK) {
        goes_on_afterwards(s, want);
    }
    nothing_beside(call_names[c]);
}

/* A short or an interrupted call changes nothing. */
static void goes_on(const struct scenario *s, enum call c, int at, enum mode mode, uint64_t want)
{
    uint64_t digest;
    enum oz_status status = run_with(s, c, at, mode, EINTR, &digest);
    if (status != OZ_OK || digest != want) {
        fail_msg("%s, %s %d %s: status %d, \"%s\"", s->name, call_names[c], at,
                 mode == SHORT ? "is short" : "is interrupted", status,
                 status == OZ_OK ? "another result" : err.message);
    }
}

static int errno_of(enum call c)
{
    switch (c) {
    case CALL_write:
    case CALL_pwrite:
    case CALL_fsync: return ENOSPC;
    case CALL_open: return EMFILE;
    case CALL_mmap: return ENOMEM;
    case CALL_pthread_create: return EAGAIN;
    default: return EIO;
    }
}

/* The next call that fails: all at first, then ever fewer; OUNCE_TEST_FEW (sanitizers): fewer still. */
static int next_call(const struct scenario *s, int at)
{
    bool few = getenv("OUNCE_TEST_FEW") != NULL;
    if (scenarios_full() || at < (few ? 2 : s->large ? 4 : 16)) {
        return at + 1;
    }
    return at + 1 + (few ? 2 * at : s->large ? at / 2 : at / 8);
}

static void every_call(void **state)
{
    int tried = 0;
    for (int i = 0; i < scenario_count; i++) {
        const struct scenario *s = &scenarios[i];
        int before = tried;
        int calls = 0;
        int most[CALL_COUNT];
        uint64_t want;
        assert_int_equal(run_with(s, CALL_read, 0, FAIL, 0, &want), OZ_OK);
        for (int c = 0; c < CALL_COUNT; c++) {
            most[c] = atomic_load(&counts[c]);
            calls += most[c];
        }
        for (int c = 0; c < CALL_COUNT; c++) {
            for (int at = 1; at <= most[c]; at = next_call(s, at)) {
                fails(s, c, at, errno_of(c), want);
                tried++;
                if (c == CALL_read || c == CALL_pread || c == CALL_write || c == CALL_pwrite) {
                    goes_on(s, c, at, SHORT, want);
                    goes_on(s, c, at, FAIL, want);
                }
            }
        }
        print_message("%s: %d calls, %d tried\n", s->name, calls, tried - before);
    }
    assert_true(tried > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call)};
    return cmocka_run_group_tests(tests, scenarios_open, scenarios_close);
}
