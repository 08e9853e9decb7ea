/*
 * study/scratch.h: a file without a name, for what a study must keep and memory should not hold: the
 * reference's latents at every step, the pictures of all candidates.
 */
#ifndef OZ_STUDY_SCRATCH_H
#define OZ_STUDY_SCRATCH_H

#include <ounce/status.h>
#include <stdint.h>

/* Caller's storage; zeroes are closed. The file is gone when the process is. */
struct oz_scratch {
    int fd_plus_1; /* 0: closed */
    char *folder;  /* for messages */
};

/* In `folder`, or where that is NULL in $TMPDIR, else in /tmp. OZ_ERR_IO, OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_scratch_open(struct oz_scratch *s, const char *folder,
                                           struct oz_error *err);
void oz_scratch_close(struct oz_scratch *s);

/* Whole blocks at an offset, behind the end too. OZ_ERR_IO says what was wanted, and where else the
 * file could be. */
OZ_MUST_USE enum oz_status oz_scratch_write(const struct oz_scratch *s, const void *data,
                                            int64_t bytes, int64_t offset, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_scratch_read(const struct oz_scratch *s, void *data, int64_t bytes,
                                           int64_t offset, struct oz_error *err);

#endif
