/*
 * base/folder.h: folders: walking one, copying files of any size, removing one that is ours.
 */
#ifndef OZ_BASE_FOLDER_H
#define OZ_BASE_FOLDER_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

enum oz_entry_kind { OZ_ENTRY_FILE, OZ_ENTRY_FOLDER, OZ_ENTRY_OTHER };

/* Called for each entry: its path below the root ("transformer/config.json"), and its bytes. A folder
 * comes before what it holds. An error stops the walk and is what it returns. */
typedef enum oz_status (*oz_folder_fn)(void *ctx, const char *relative, enum oz_entry_kind kind,
                                       int64_t bytes, struct oz_error *err);

/*
 * Walks a folder, in byte order of the names. Links to files are files; links to folders are OTHER, so
 * that no walk leaves the folder or goes in circles. OZ_ERR_IO; OZ_ERR_NOMEM; what fn returned.
 */
OZ_MUST_USE enum oz_status oz_folder_walk(const char *root, oz_folder_fn fn, void *ctx,
                                          struct oz_error *err);

/* Told how many bytes more are copied; an error stops. */
typedef enum oz_status (*oz_copy_fn)(void *ctx, int64_t bytes, struct oz_error *err);

/* Copies a file of any size through one buffer, flushed to the disk. `fn` may be NULL. */
OZ_MUST_USE enum oz_status oz_folder_copy_file(const char *from, const char *to, oz_copy_fn fn,
                                               void *ctx, struct oz_error *err);

/* Removes a folder and all that is in it; links are removed, not followed. One that is not there is
 * fine. OZ_ERR_IO names what stays. */
OZ_MUST_USE enum oz_status oz_folder_remove(const char *path, struct oz_error *err);

/* Removes what is in a folder, but for the entry `except`. */
OZ_MUST_USE enum oz_status oz_folder_clear(const char *path, const char *except,
                                           struct oz_error *err);

bool oz_folder_is_empty(const char *path); /* false for what is no folder */

/* Flushes the entries of a folder to the disk. */
OZ_MUST_USE enum oz_status oz_folder_sync(const char *path, struct oz_error *err);

#endif
