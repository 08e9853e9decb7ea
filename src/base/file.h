/*
 * base/file.h: files. Whole small files, read-only maps, and writing beside then renaming.
 */
#ifndef OZ_BASE_FILE_H
#define OZ_BASE_FILE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool oz_file_exists(const char *path); /* anything of that name that can be stat'ed */
bool oz_file_is_folder(const char *path);

/* "folder/name" in fresh memory (oz_free), NULL without memory. */
char *oz_file_join(const char *folder, const char *name);

/* Reads a regular file of at most max_bytes whole. *out is zero-terminated behind *bytes and freed
 * with oz_free. OZ_ERR_IO names the path and errno; OZ_ERR_FORMAT: larger than max_bytes. */
OZ_MUST_USE enum oz_status oz_file_read(const char *path, size_t max_bytes, char **out,
                                        size_t *bytes, struct oz_error *err);

/* A whole file mapped read-only, and its descriptor. Caller's storage. A file of 0 bytes has a NULL
 * map. Where the file has become shorter, or cannot be read, the map reads zeros (base/mapguard.h):
 * ask oz_filemap_check before what was read is used. */
struct oz_filemap {
    int fd;
    int32_t guard;
    int64_t bytes;
    int64_t modified_ns; /* time of the last change when it was opened */
    const uint8_t *data;
};
OZ_MUST_USE enum oz_status oz_filemap_open(struct oz_filemap *map, const char *path,
                                           struct oz_error *err);
void oz_filemap_close(struct oz_filemap *map); /* a map that failed to open is fine */
/* OZ_ERR_IO when the file is not what was opened any more: shorter, longer, written to, or unreadable
 * in a place that was read. */
OZ_MUST_USE enum oz_status oz_filemap_check(const struct oz_filemap *map, const char *path,
                                            struct oz_error *err);

/* Reads exactly `bytes` at `offset`, through short reads and interruptions. False: errno says why, 0
 * when the file ended. */
bool oz_file_pread(int fd, void *dst, int64_t bytes, int64_t offset);

/*
 * A file that is written piece by piece beside its name: whole under it after commit, or never
 * there. Symbolic links and files that are no regular ones are treated as by oz_file_write.
 * Caller's storage, begin with zeroes or open; deinit after either (it removes what was not
 * committed). Errors name the path.
 */
struct oz_file_writer {
    char *path, *temporary;
    int fd; /* -1: closed */
    int64_t bytes;
};
OZ_MUST_USE enum oz_status oz_file_writer_open(struct oz_file_writer *w, const char *path,
                                               struct oz_error *err);
OZ_MUST_USE enum oz_status oz_file_writer_append(struct oz_file_writer *w, const void *data,
                                                 size_t bytes, struct oz_error *err);
/* Writes at an offset, behind the end too; `bytes` of the writer does not move. Any thread. */
OZ_MUST_USE enum oz_status oz_file_writer_write_at(const struct oz_file_writer *w, const void *data,
                                                   size_t bytes, int64_t offset,
                                                   struct oz_error *err);
/* To the disk; nothing can be appended afterwards. */
OZ_MUST_USE enum oz_status oz_file_writer_close(struct oz_file_writer *w, struct oz_error *err);
/* Renames. Closes first where that has not happened. */
OZ_MUST_USE enum oz_status oz_file_writer_commit(struct oz_file_writer *w, struct oz_error *err);
void oz_file_writer_deinit(struct oz_file_writer *w);

/* Makes a folder; one that is there is fine. OZ_ERR_IO. */
OZ_MUST_USE enum oz_status oz_file_make_folder(const char *path, struct oz_error *err);

/* Copies a file's bytes to a new name, at most max_bytes. */
OZ_MUST_USE enum oz_status oz_file_copy(const char *from, const char *to, size_t max_bytes,
                                        struct oz_error *err);

/*
 * Writes bytes to a temporary file in path's folder, flushes it, and renames it onto path; on
 * failure removes it and leaves path as it was. A symbolic link stays, and its target is replaced.
 * Keeps the permissions of a file that is replaced; what is there and is no regular file (a folder,
 * a device, a pipe) is refused, for it would be replaced.
 */
OZ_MUST_USE enum oz_status oz_file_write(const char *path, const void *data, size_t bytes,
                                         struct oz_error *err);

#endif
