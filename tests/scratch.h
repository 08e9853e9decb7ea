/*
 * A folder of this run for tests that need files, and a log that keeps what was said. The folder is
 * made in $TMPDIR and removed with all it holds. Failures fail the running test. A program with this file
 * has an fsync that waits for no disk.
 */
#ifndef OZ_TESTS_SCRATCH_H
#define OZ_TESTS_SCRATCH_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stddef.h>

/* Group fixtures of cmocka. */
int scratch_open(void **state);
int scratch_close(void **state);

/* "<folder>/<name>"; valid until the eighth call from now. */
const char *scratch_path(const char *format, ...) OZ_PRINTF(1, 2);
/* Makes a folder, with those above it. */
void scratch_folder(const char *name);
void scratch_write(const char *name, const void *data, size_t bytes);
void scratch_text(const char *name, const char *text);
/* A whole file, zero-terminated, for free(). */
char *scratch_read(const char *name);
/* Entries in a folder, "." and ".." apart. */
int scratch_count(const char *name);
void scratch_remove(const char *name); /* file or folder with all it holds; absent is fine */
/* Copies a folder from anywhere; large files become links to their original. */
void scratch_copy(const char *name, const char *from);
/* Replaces the first `old` in a text file; it must be there. */
void scratch_edit(const char *name, const char *old, const char *new_text);

/* A sink for oz_log_set; the lines are in scratch_log, "warn ckpt: ...\n" each. */
#define SCRATCH_LOG_BYTES (1U << 20)
extern char scratch_log[SCRATCH_LOG_BYTES];
void scratch_log_line(void *ctx, enum oz_log_level level, const char *topic, const char *message);
void scratch_log_clear(void);

#endif
