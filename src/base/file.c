#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/mapguard.h"

bool oz_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool oz_file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *oz_file_join(const char *folder, const char *name)
{
    size_t a = strlen(folder);
    size_t b = strlen(name);
    size_t slash = a > 0 && folder[a - 1] != '/';
    char *path = oz_alloc(a + slash + b + 1);
    if (path == NULL) {
        return NULL;
    }
    memcpy(path, folder, a);
    if (slash) {
        path[a] = '/';
    }
    memcpy(path + a + slash, name, b + 1);
    return path;
}

static int64_t modified_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* Opens a regular file for reading and gives its size. */
static enum oz_status open_regular(const char *path, int *fd, int64_t *bytes, struct oz_error *err)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    if (*fd < 0) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot open %s: %s.", path, strerror(errno));
    }
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        *fd = -1;
        return OZ_FAIL(err, OZ_ERR_IO, "%s is not a regular file.", path);
    }
    *bytes = (int64_t)st.st_size;
    return OZ_OK;
}

enum oz_status oz_file_read(const char *path, size_t max_bytes, char **out, size_t *bytes,
                            struct oz_error *err)
{
    int fd;
    int64_t size;
    *out = NULL;
    *bytes = 0;
    OZ_TRY(open_regular(path, &fd, &size, err));
    if ((uint64_t)size > max_bytes) {
        close(fd);
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s has %lld bytes; at most %zu are read.", path,
                       (long long)size, max_bytes);
    }
    char *data = oz_alloc((size_t)size + 1);
    if (data == NULL) {
        close(fd);
        return OZ_FAIL_NOMEM(err, path);
    }
    size_t got = 0;
    while (got < (size_t)size) {
        ssize_t n = read(fd, data + got, (size_t)size - got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            int error = errno;
            close(fd);
            oz_free(data);
            return OZ_FAIL(err, OZ_ERR_IO, "Cannot read %s: %s at byte %zu of %lld.", path,
                           n < 0 ? strerror(error) : "it ended", got, (long long)size);
        }
        got += (size_t)n;
    }
    close(fd);
    data[got] = '\0';
    *out = data;
    *bytes = got;
    return OZ_OK;
}

enum oz_status oz_filemap_open(struct oz_filemap *map, const char *path, struct oz_error *err)
{
    struct stat st;
    *map = (struct oz_filemap){.fd = -1};
    OZ_TRY(open_regular(path, &map->fd, &map->bytes, err));
    if (fstat(map->fd, &st) == 0) {
        map->modified_ns = modified_ns(&st);
    }
    if (map->bytes > 0) {
        void *data = mmap(NULL, (size_t)map->bytes, PROT_READ, MAP_PRIVATE, map->fd, 0);
        if (data == MAP_FAILED) {
            int error = errno;
            int64_t bytes = map->bytes;
            oz_filemap_close(map);
            return OZ_FAIL(err, error == ENOMEM ? OZ_ERR_NOMEM : OZ_ERR_IO,
                           "Cannot map %s (%lld bytes): %s.", path, (long long)bytes,
                           strerror(error));
        }
        map->data = data;
        map->guard = oz_mapguard_add(data, (size_t)map->bytes);
        if (map->guard == 0) {
            oz_filemap_close(map);
            return OZ_FAIL(err, OZ_ERR_IO, "Cannot map %s: %d files are mapped already.", path,
                           OZ_MAPGUARD_MAX);
        }
    }
    return OZ_OK;
}

void oz_filemap_close(struct oz_filemap *map)
{
    oz_mapguard_remove(map->guard);
    if (map->data != NULL) {
        munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    }
    if (map->fd >= 0) {
        close(map->fd);
    }
    *map = (struct oz_filemap){.fd = -1};
}

enum oz_status oz_filemap_check(const struct oz_filemap *map, const char *path,
                                struct oz_error *err)
{
    struct stat st;
    if (fstat(map->fd, &st) != 0) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot look at %s again: %s.", path, strerror(errno));
    }
    if (st.st_size != map->bytes) {
        return OZ_FAIL(err, OZ_ERR_IO,
                       "%s was changed while it was in use: it had %lld bytes and has %lld. Do not "
                       "write to a model's files while it is loaded; load it again.",
                       path, (long long)map->bytes, (long long)st.st_size);
    }
    if (oz_mapguard_lost(map->guard)) {
        return OZ_FAIL(
            err, OZ_ERR_IO,
            "%s could not be read: the disk reported an error, or the file was cut short "
            "for a while. Check the disk, and load the model again.",
            path);
    }
    if (modified_ns(&st) != map->modified_ns) {
        return OZ_FAIL(err, OZ_ERR_IO,
                       "%s was changed while it was in use: it was written to. Do not write to a "
                       "model's files while it is loaded; load it again.",
                       path);
    }
    return OZ_OK;
}

bool oz_file_pread(int fd, void *dst, int64_t bytes, int64_t offset)
{
    uint8_t *to = dst;
    while (bytes > 0) {
        ssize_t n = pread(fd, to, (size_t)bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n < 0 ? errno : 0;
            return false;
        }
        to += n;
        offset += n;
        bytes -= n;
    }
    return true;
}

static bool write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* The name that a write to `path` really means: a symbolic link stays one, and what it leads to is
 * replaced. NULL: no memory. */
static char *follow(const char *path)
{
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
        char whole[PATH_MAX];
        if (realpath(path, whole) != NULL) {
            return oz_strdup(whole);
        }
    }
    return oz_strdup(path);
}

/* A fresh file in the folder of `path`, whose name does not grow with path's. *name is fresh memory.
 * -1: errno says why. */
static int open_temporary(const char *path, char **name)
{
    static atomic_uint serial;
    const char *slash = strrchr(path, '/');
    size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    size_t n = folder + 64;
    *name = oz_alloc(n);
    if (*name == NULL) {
        errno = ENOMEM;
        return -1;
    }
    int fd = -1;
    errno = EEXIST;
    /* Another machine or container may have left a file of the same number. */
    for (int i = 0; i < 1000 && fd < 0 && errno == EEXIST; i++) {
        (void)snprintf(*name, n, "%.*s.ounce-%ld.%u.part", (int)folder, path, (long)getpid(),
                       atomic_fetch_add(&serial, 1));
        fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (fd < 0) {
        int error = errno;
        oz_free(*name);
        *name = NULL;
        errno = error;
    }
    return fd;
}

/* ---- writing beside, then renaming ---- */

enum oz_status oz_file_writer_open(struct oz_file_writer *w, const char *path, struct oz_error *err)
{
    struct stat st;
    *w = (struct oz_file_writer){.fd = -1, .path = follow(path)};
    if (w->path == NULL) {
        return OZ_FAIL_NOMEM(err, "a file name");
    }
    bool replaces = stat(w->path, &st) == 0;
    enum oz_status status = OZ_OK;
    if (replaces && !S_ISREG(st.st_mode)) {
        status = OZ_FAIL(err, OZ_ERR_IO, "Cannot write %s: it is not a regular file.", path);
    } else {
        w->fd = open_temporary(w->path, &w->temporary);
        if (w->fd < 0) {
            status = errno == ENOMEM ? OZ_FAIL_NOMEM(err, "a file name")
                                     : OZ_FAIL(err, OZ_ERR_IO, "Cannot write beside %s: %s.", path,
                                               strerror(errno));
        }
    }
    if (status != OZ_OK) {
        oz_file_writer_deinit(w);
    } else if (replaces) {
        (void)fchmod(w->fd, st.st_mode & 07777);
    }
    return status;
}

enum oz_status oz_file_writer_append(struct oz_file_writer *w, const void *data, size_t bytes,
                                     struct oz_error *err)
{
    if (w->fd < 0 || !write_all(w->fd, data, bytes)) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot write %s (%zu bytes at %lld): %s.",
                       w->path != NULL ? w->path : "a file", bytes, (long long)w->bytes,
                       w->fd < 0 ? "it is closed" : strerror(errno));
    }
    w->bytes += (int64_t)bytes;
    return OZ_OK;
}

enum oz_status oz_file_writer_write_at(const struct oz_file_writer *w, const void *data,
                                       size_t bytes, int64_t offset, struct oz_error *err)
{
    const char *from = data;
    size_t left = bytes;
    errno = EBADF;
    while (w->fd >= 0 && left > 0) {
        ssize_t n = pwrite(w->fd, from, left, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        from += n;
        offset += n;
        left -= (size_t)n;
    }
    return left == 0 ? OZ_OK
                     : OZ_FAIL(err, OZ_ERR_IO, "Cannot write %s (%zu bytes at %lld): %s.",
                               w->path != NULL ? w->path : "a file", left, (long long)offset,
                               w->fd < 0 ? "it is closed" : strerror(errno));
}

enum oz_status oz_file_writer_close(struct oz_file_writer *w, struct oz_error *err)
{
    if (w->fd < 0) {
        return OZ_OK;
    }
    bool ok = fsync(w->fd) == 0;
    int error = errno;
    if (close(w->fd) != 0 && ok) {
        ok = false;
        error = errno;
    }
    w->fd = -1;
    return ok ? OZ_OK
              : OZ_FAIL(err, OZ_ERR_IO, "Cannot write %s (%lld bytes): %s.", w->path,
                        (long long)w->bytes, strerror(error));
}

enum oz_status oz_file_writer_commit(struct oz_file_writer *w, struct oz_error *err)
{
    OZ_TRY(oz_file_writer_close(w, err));
    if (rename(w->temporary, w->path) != 0) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot write %s (%lld bytes): %s.", w->path,
                       (long long)w->bytes, strerror(errno));
    }
    oz_free(w->temporary);
    w->temporary = NULL;
    return OZ_OK;
}

void oz_file_writer_deinit(struct oz_file_writer *w)
{
    if (w->temporary != NULL) {
        if (w->fd >= 0) {
            (void)close(w->fd);
        }
        (void)unlink(w->temporary);
    }
    oz_free(w->temporary);
    oz_free(w->path);
    *w = (struct oz_file_writer){.fd = -1};
}

enum oz_status oz_file_write(const char *path, const void *data, size_t bytes, struct oz_error *err)
{
    struct oz_file_writer w;
    OZ_TRY(oz_file_writer_open(&w, path, err));
    enum oz_status status = oz_file_writer_append(&w, data, bytes, err);
    if (status == OZ_OK) {
        status = oz_file_writer_commit(&w, err);
    }
    oz_file_writer_deinit(&w);
    return status;
}

enum oz_status oz_file_make_folder(const char *path, struct oz_error *err)
{
    if (mkdir(path, 0777) != 0 && !(errno == EEXIST && oz_file_is_folder(path))) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot make the folder %s: %s.", path, strerror(errno));
    }
    return OZ_OK;
}

enum oz_status oz_file_copy(const char *from, const char *to, size_t max_bytes,
                            struct oz_error *err)
{
    char *data;
    size_t bytes;
    OZ_TRY(oz_file_read(from, max_bytes, &data, &bytes, err));
    enum oz_status status = oz_file_write(to, data, bytes, err);
    oz_free(data);
    return status;
}
