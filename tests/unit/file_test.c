/* base/file.h: reading with limits, and writing that is whole or nothing. */
#include "test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "scratch.h"

static struct oz_error err;

static void joined(const char *folder, const char *name, const char *want)
{
    char *path = oz_file_join(folder, name);
    assert_string_equal(path, want);
    oz_free(path);
}

static void paths(void **state)
{
    joined("a", "b", "a/b");
    joined("a/", "b", "a/b");
    joined("", "b", "b");
    joined("/", "b", "/b");
    scratch_folder("paths");
    scratch_text("paths/file", "x");
    assert_true(oz_file_exists(scratch_path("paths")));
    assert_true(oz_file_is_folder(scratch_path("paths")));
    assert_true(oz_file_exists(scratch_path("paths/file")));
    assert_false(oz_file_is_folder(scratch_path("paths/file")));
    assert_false(oz_file_exists(scratch_path("paths/none")));
    assert_false(oz_file_is_folder(scratch_path("paths/none")));
}

static void reads(void **state)
{
    char *data;
    size_t bytes;
    scratch_write("five", "ab\0de", 5);
    assert_int_equal(oz_file_read(scratch_path("five"), 5, &data, &bytes, &err), OZ_OK);
    assert_int_equal(bytes, 5);
    assert_memory_equal(data, "ab\0de", 6);
    oz_free(data);
    scratch_text("none", "");
    assert_int_equal(oz_file_read(scratch_path("none"), 0, &data, &bytes, &err), OZ_OK);
    assert_string_equal(data, "");
    oz_free(data);
}

static void refused(const char *path, size_t max_bytes, enum oz_status status, const char *phrase)
{
    char *data = (char *)&err;
    size_t bytes = 77;
    assert_int_equal(oz_file_read(path, max_bytes, &data, &bytes, &err), status);
    assert_true(data == NULL && bytes == 0);
    assert_non_null(strstr(err.message, phrase));
    assert_non_null(strstr(err.message, path));
}

static void reads_refused(void **state)
{
    scratch_text("six", "123456");
    refused(scratch_path("six"), 5, OZ_ERR_FORMAT, "6 bytes; at most 5");
    refused(scratch_path("absent"), 5, OZ_ERR_IO, "No such file");
    refused(scratch_path("."), 5, OZ_ERR_IO, "not a regular file");
    refused("/dev/null", 5, OZ_ERR_IO, "not a regular file");
    oz_alloc_fail_at(1, 0);
    refused(scratch_path("six"), 100, OZ_ERR_NOMEM, "Out of memory");
    oz_alloc_fail_at(0, 0);
}

static void maps(void **state)
{
    struct oz_filemap m;
    scratch_text("map", "mapped");
    assert_int_equal(oz_filemap_open(&m, scratch_path("map"), &err), OZ_OK);
    assert_int_equal(m.bytes, 6);
    assert_memory_equal(m.data, "mapped", 6);
    oz_filemap_close(&m);
    oz_filemap_close(&m);
    scratch_text("empty", "");
    assert_int_equal(oz_filemap_open(&m, scratch_path("empty"), &err), OZ_OK);
    assert_true(m.bytes == 0 && m.data == NULL);
    oz_filemap_close(&m);
    assert_int_equal(oz_filemap_open(&m, scratch_path("absent"), &err), OZ_ERR_IO);
    oz_filemap_close(&m);
}

static void holds(const char *name, const char *want)
{
    char *text = scratch_read(name);
    assert_string_equal(text, want);
    free(text);
}

static void writes(void **state)
{
    struct stat st;
    scratch_folder("out");
    const char *path = scratch_path("out/file");
    assert_int_equal(oz_file_write(path, "first", 5, &err), OZ_OK);
    holds("out/file", "first");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(oz_file_write(path, "second", 6, &err), OZ_OK);
    holds("out/file", "second");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(oz_file_write(path, NULL, 0, &err), OZ_OK);
    holds("out/file", "");
    assert_int_equal(scratch_count("out"), 1); /* nothing temporary is left */
}

static void new_files_follow_the_umask(void **state)
{
    struct stat st;
    mode_t old = umask(027);
    assert_int_equal(oz_file_write(scratch_path("masked"), "x", 1, &err), OZ_OK);
    (void)umask(old);
    assert_int_equal(stat(scratch_path("masked"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

/* A disk that fills up half-way: the old file stays, the new one goes. */
static void a_failed_write_leaves_the_old_file(void **state)
{
    static char large[1 << 16];
    struct rlimit limit;
    scratch_folder("fail");
    scratch_text("fail/file", "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = limit.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum oz_status status = oz_file_write(scratch_path("fail/file"), large, sizeof large, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, OZ_ERR_IO);
    assert_non_null(strstr(err.message, "65536 bytes"));
    holds("fail/file", "old");
    assert_int_equal(scratch_count("fail"), 1);
}

static void targets_that_are_no_files(void **state)
{
    struct stat st;
    scratch_folder("kinds/folder");
    assert_int_equal(oz_file_write(scratch_path("kinds/folder"), "x", 1, &err), OZ_ERR_IO);
    assert_non_null(strstr(err.message, "kinds/folder"));
    assert_int_equal(oz_file_write(scratch_path("kinds/no/file"), "x", 1, &err), OZ_ERR_IO);
    assert_non_null(strstr(err.message, "No such file"));
    /* Renaming onto a device or a pipe would put a plain file in its place. */
    const char *pipe = scratch_path("kinds/pipe");
    assert_int_equal(mkfifo(pipe, 0666), 0);
    assert_int_equal(oz_file_write(pipe, "x", 1, &err), OZ_ERR_IO);
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_true(stat(pipe, &st) == 0 && S_ISFIFO(st.st_mode));
    assert_int_equal(scratch_count("kinds"), 2);
}

/* A link stays one; a name as long as the system allows is no problem; nor is what a process of the
 * same number left behind. */
static void links_and_names(void **state)
{
    char name[256];
    struct stat st;
    scratch_folder("links");
    scratch_text("links/target", "old");
    assert_int_equal(symlink("target", scratch_path("links/link")), 0);
    assert_int_equal(oz_file_write(scratch_path("links/link"), "new", 3, &err), OZ_OK);
    assert_int_equal(lstat(scratch_path("links/link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    holds("links/target", "new");
    assert_int_equal(scratch_count("links"), 2);
    memset(name, 'n', 255);
    name[255] = '\0';
    assert_int_equal(oz_file_write(scratch_path("links/%s", name), "x", 1, &err), OZ_OK);
    for (int i = 0; i < 50; i++) {
        (void)snprintf(name, sizeof name, "links/.ounce-%ld.%d.part", (long)getpid(), i);
        scratch_text(name, "left over");
    }
    assert_int_equal(oz_file_write(scratch_path("links/more"), "x", 1, &err), OZ_OK);
    holds("links/more", "x");
}

/* Opening a pipe for reading would wait for somebody to write into it. */
static void a_pipe_is_not_waited_for(void **state)
{
    assert_int_equal(mkfifo(scratch_path("waits"), 0666), 0);
    (void)alarm(20);
    refused(scratch_path("waits"), 10, OZ_ERR_IO, "not a regular file");
    (void)alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),
        cmocka_unit_test(reads),
        cmocka_unit_test(reads_refused),
        cmocka_unit_test(maps),
        cmocka_unit_test(writes),
        cmocka_unit_test(new_files_follow_the_umask),
        cmocka_unit_test(a_failed_write_leaves_the_old_file),
        cmocka_unit_test(targets_that_are_no_files),
        cmocka_unit_test(links_and_names),
        cmocka_unit_test(a_pipe_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
