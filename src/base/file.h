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
 * map. */
struct oz_filemap {
    int fd;
    int64_t bytes;
    const uint8_t *data;
};
OZ_MUST_USE enum oz_status oz_filemap_open(struct oz_filemap *map, const char *path,
                                           struct oz_error *err);
void oz_filemap_close(struct oz_filemap *map); /* a map that failed to open is fine */

/*
 * Writes bytes to a temporary file in path's folder, flushes it, and renames it onto path; on
 * failure removes it and leaves path as it was. A symbolic link stays, and its target is replaced.
 * Keeps the permissions of a file that is replaced; what is there and is no regular file (a folder,
 * a device, a pipe) is refused, for it would be replaced.
 */
OZ_MUST_USE enum oz_status oz_file_write(const char *path, const void *data, size_t bytes,
                                         struct oz_error *err);

#endif
