#include "scratch.h"

#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define LINKED_BYTES (1 << 16) /* larger files are linked, not copied */

char scratch_log[SCRATCH_LOG_BYTES];
static size_t log_used;

static char root[PATH_BYTES / 2];

/* In the place of the C library's: what a test writes need not outlive a loss of power, and thousands of
 * waits for a disk are most of what some tests take. */
int fsync(int fd)
{
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

int scratch_open(void **state)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(root, sizeof root, "%s/ounce-test-XXXXXX",
                   folder != NULL && folder[0] != '\0' ? folder : P_tmpdir);
    return mkdtemp(root) == NULL;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int scratch_close(void **state)
{
    remove_tree(root);
    return 0;
}

const char *scratch_path(const char *format, ...)
{
    static char paths[8][PATH_BYTES];
    static int turn;
    char name[PATH_BYTES / 2];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    char *path = paths[turn++ % 8];
    if (snprintf(path, PATH_BYTES, "%s/%s", root, name) >= PATH_BYTES) {
        fail_msg("a path is too long");
    }
    return path;
}

void scratch_folder(const char *name)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s/", root, name) >= PATH_BYTES) {
        fail_msg("a path is too long");
    }
    for (char *p = path + strlen(root) + 1; *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(path, 0777);
            *p = '/';
        }
    }
}

void scratch_write(const char *name, const void *data, size_t bytes)
{
    struct stat st;
    const char *path = scratch_path("%s", name);
    if (lstat(path, &st) == 0 &&
        S_ISLNK(st.st_mode)) { /* of scratch_copy: never write through it */
        assert_int_equal(unlink(path), 0);
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

void scratch_text(const char *name, const char *text)
{
    scratch_write(name, text, strlen(text));
}

char *scratch_read(const char *name)
{
    struct stat st;
    const char *path = scratch_path("%s", name);
    assert_int_equal(stat(path, &st), 0);
    char *text = calloc(1, (size_t)st.st_size + 1);
    FILE *f = fopen(path, "rb");
    assert_true(text != NULL && f != NULL);
    assert_int_equal(fread(text, 1, (size_t)st.st_size, f), st.st_size);
    (void)fclose(f);
    return text;
}

int scratch_count(const char *name)
{
    int n = 0;
    DIR *dir = opendir(scratch_path("%s", name));
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    (void)closedir(dir);
    return n;
}

void scratch_remove(const char *name)
{
    remove_tree(scratch_path("%s", name));
}

static void copy_file(const char *to, const char *from, const struct stat *st)
{
    char real[PATH_BYTES];
    if (st->st_size > LINKED_BYTES) {
        assert_true(realpath(from, real) != NULL && symlink(real, to) == 0);
        return;
    }
    static char data[LINKED_BYTES];
    FILE *in = fopen(from, "rb");
    FILE *out = fopen(to, "wb");
    assert_true(in != NULL && out != NULL);
    size_t n = fread(data, 1, sizeof data, in);
    assert_int_equal(fwrite(data, 1, n, out), n);
    (void)fclose(in);
    assert_int_equal(fclose(out), 0);
}

void scratch_copy(const char *name, const char *from)
{
    scratch_folder(name);
    DIR *dir = opendir(from);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char source[PATH_BYTES];
        char target[PATH_BYTES];
        struct stat st;
        if (e->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(source, sizeof source, "%s/%s", from, e->d_name);
        (void)snprintf(target, sizeof target, "%s/%s", name, e->d_name);
        assert_int_equal(stat(source, &st), 0);
        if (S_ISDIR(st.st_mode)) {
            scratch_copy(target, source);
        } else {
            copy_file(scratch_path("%s", target), source, &st);
        }
    }
    (void)closedir(dir);
}

void scratch_edit(const char *name, const char *old, const char *new_text)
{
    char *text = scratch_read(name);
    char *at = strstr(text, old);
    if (at == NULL) {
        fail_msg("%s holds no %s", name, old);
    }
    size_t head = (size_t)(at - text);
    size_t bytes = strlen(text) - strlen(old) + strlen(new_text);
    char *edited = calloc(1, bytes + 1);
    assert_non_null(edited);
    memcpy(edited, text, head);
    (void)snprintf(edited + head, bytes + 1 - head, "%s%s", new_text, at + strlen(old));
    scratch_write(name, edited, bytes);
    free(edited);
    free(text);
}

void scratch_log_line(void *ctx, enum oz_log_level level, const char *topic, const char *message)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    int n = snprintf(scratch_log + log_used, sizeof scratch_log - log_used, "%s %s: %s\n",
                     names[level], topic, message);
    if (n > 0 && (size_t)n < sizeof scratch_log - log_used) {
        log_used += (size_t)n;
    }
}

void scratch_log_clear(void)
{
    log_used = 0;
    scratch_log[0] = '\0';
}
