#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#define COPY_BYTES ((int64_t)4 << 20)
#define MAX_DEPTH 32

struct names {
    char **items; /* [count] */
    size_t count, capacity;
};

static void names_free(struct names *n)
{
    for (size_t i = 0; i < n->count; i++) {
        oz_free(n->items[i]);
    }
    oz_free((void *)n->items);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool names_add(struct names *n, const char *name)
{
    if (n->count == n->capacity) {
        size_t more = n->capacity * 2 + 16;
        char **items = oz_realloc((void *)n->items, more * sizeof *items);
        if (items == NULL) {
            return false;
        }
        n->items = items;
        n->capacity = more;
    }
    n->items[n->count] = oz_strdup(name);
    return n->items[n->count] != NULL && ++n->count > 0;
}

static enum oz_status names_read(struct names *n, const char *path, struct oz_error *err)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot look into %s: %s.", path, strerror(errno));
    }
    enum oz_status status = OZ_OK;
    errno = 0;
    for (struct dirent *e = readdir(dir); e != NULL && status == OZ_OK; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            !names_add(n, e->d_name)) {
            status = OZ_FAIL_NOMEM(err, path);
        }
        errno = 0;
    }
    if (status == OZ_OK && errno != 0) {
        status = OZ_FAIL(err, OZ_ERR_IO, "Cannot look into %s: %s.", path, strerror(errno));
    }
    closedir(dir);
    if (status == OZ_OK && n->count > 0) {
        qsort((void *)n->items, n->count, sizeof *n->items, by_bytes);
    }
    return status;
}

/* ---- walking ---- */

static enum oz_entry_kind kind_of(const char *path, int64_t *bytes)
{
    struct stat st;
    *bytes = 0;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return OZ_ENTRY_FOLDER;
    }
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        *bytes = (int64_t)st.st_size;
        return OZ_ENTRY_FILE;
    }
    return OZ_ENTRY_OTHER;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as MAX_DEPTH */
static enum oz_status walk(const char *root, const char *below, int depth, oz_folder_fn fn,
                           void *ctx, struct oz_error *err)
{
    struct names names = {0};
    char *folder = below != NULL ? oz_file_join(root, below) : oz_strdup(root);
    if (folder == NULL) {
        return OZ_FAIL_NOMEM(err, root);
    }
    enum oz_status status =
        depth < MAX_DEPTH ? names_read(&names, folder, err)
                          : OZ_FAIL(err, OZ_ERR_IO, "%s lies too deep below %s.", folder, root);
    for (size_t i = 0; i < names.count && status == OZ_OK; i++) {
        int64_t bytes;
        char *path = oz_file_join(folder, names.items[i]);
        char *relative =
            below != NULL ? oz_file_join(below, names.items[i]) : oz_strdup(names.items[i]);
        if (path == NULL || relative == NULL) {
            status = OZ_FAIL_NOMEM(err, folder);
        } else {
            enum oz_entry_kind kind = kind_of(path, &bytes);
            status = fn(ctx, relative, kind, bytes, err);
            if (status == OZ_OK && kind == OZ_ENTRY_FOLDER) {
                status = walk(root, relative, depth + 1, fn, ctx, err);
            }
        }
        oz_free(path);
        oz_free(relative);
    }
    names_free(&names);
    oz_free(folder);
    return status;
}

enum oz_status oz_folder_walk(const char *root, oz_folder_fn fn, void *ctx, struct oz_error *err)
{
    return walk(root, NULL, 0, fn, ctx, err);
}

/* ---- copying ---- */

static enum oz_status copy_pieces(int fd, const char *from, struct oz_file_writer *w,
                                  uint8_t *buffer, oz_copy_fn fn, void *ctx, struct oz_error *err)
{
    for (;;) {
        ssize_t n = read(fd, buffer, (size_t)COPY_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return OZ_FAIL(err, OZ_ERR_IO, "Cannot read %s: %s.", from, strerror(errno));
        }
        if (n == 0) {
            return oz_file_writer_commit(w, err);
        }
        OZ_TRY(oz_file_writer_append(w, buffer, (size_t)n, err));
        if (fn != NULL) {
            OZ_TRY(fn(ctx, n, err));
        }
    }
}

enum oz_status oz_folder_copy_file(const char *from, const char *to, oz_copy_fn fn, void *ctx,
                                   struct oz_error *err)
{
    struct oz_file_writer w = {.fd = -1};
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot read %s: %s.", from, strerror(errno));
    }
    uint8_t *buffer = oz_alloc((size_t)COPY_BYTES);
    enum oz_status status =
        buffer != NULL ? oz_file_writer_open(&w, to, err) : OZ_FAIL_NOMEM(err, from);
    if (status == OZ_OK) {
        status = copy_pieces(fd, from, &w, buffer, fn, ctx, err);
        oz_file_writer_deinit(&w);
    }
    oz_free(buffer);
    close(fd);
    return status;
}

/* ---- removing ---- */

/* NOLINTNEXTLINE(misc-no-recursion): as deep as MAX_DEPTH */
static enum oz_status remove_tree(const char *path, int depth, struct oz_error *err)
{
    struct names names = {0};
    struct stat st;
    enum oz_status status = OZ_OK;
    if (lstat(path, &st) != 0) {
        return errno == ENOENT
                   ? OZ_OK
                   : OZ_FAIL(err, OZ_ERR_IO, "Cannot remove %s: %s.", path, strerror(errno));
    }
    bool folder = S_ISDIR(st.st_mode);
    if (folder && depth < MAX_DEPTH) {
        status = names_read(&names, path, err);
    }
    for (size_t i = 0; i < names.count && status == OZ_OK; i++) {
        char *inner = oz_file_join(path, names.items[i]);
        status = inner != NULL ? remove_tree(inner, depth + 1, err) : OZ_FAIL_NOMEM(err, path);
        oz_free(inner);
    }
    names_free(&names);
    if (status == OZ_OK && (folder ? rmdir(path) : unlink(path)) != 0) {
        status = OZ_FAIL(err, OZ_ERR_IO, "Cannot remove %s: %s.", path, strerror(errno));
    }
    return status;
}

enum oz_status oz_folder_remove(const char *path, struct oz_error *err)
{
    return remove_tree(path, 0, err);
}

enum oz_status oz_folder_clear(const char *path, const char *except, struct oz_error *err)
{
    struct names names = {0};
    enum oz_status status = names_read(&names, path, err);
    for (size_t i = 0; i < names.count && status == OZ_OK; i++) {
        if (strcmp(names.items[i], except) == 0) {
            continue;
        }
        char *inner = oz_file_join(path, names.items[i]);
        status = inner != NULL ? oz_folder_remove(inner, err) : OZ_FAIL_NOMEM(err, path);
        oz_free(inner);
    }
    names_free(&names);
    return status;
}

bool oz_folder_is_empty(const char *path)
{
    struct names names = {0};
    bool empty =
        oz_file_is_folder(path) && names_read(&names, path, NULL) == OZ_OK && names.count == 0;
    names_free(&names);
    return empty;
}

enum oz_status oz_folder_sync(const char *path, struct oz_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return ok ? OZ_OK
              : OZ_FAIL(err, OZ_ERR_IO, "Cannot write the folder %s: %s.", path, strerror(error));
}
