/* base/memory.h: how much memory this process can still have. */
#ifndef OZ_BASE_MEMORY_H
#define OZ_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Bytes that can be taken without swapping, and the most there could be: the machine's, cut by the
 * limits of the control groups (version 2 or 1) that the process is in and of those above them. -1:
 * unknown. Page cache that would be given back counts as available. `root` is the prefix of /proc and
 * /sys: "" but in tests.
 */
void oz_memory_read(const char *root, int64_t *available_bytes, int64_t *total_bytes);

/* Anonymous memory of this process that is resident (no file's pages), in bytes; -1: unknown. `root` as
 * above. */
int64_t oz_memory_anonymous(const char *root);

/* The largest resident set that this process has had, in bytes; -1: unknown. `root` as above. */
int64_t oz_memory_peak(const char *root);

/* Makes oz_memory_peak begin anew from what is resident now. False: the system cannot, and the peak
 * stays that of the whole process. `root` as above. */
bool oz_memory_peak_reset(const char *root);

#endif
