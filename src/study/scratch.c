#include "study/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

enum oz_status oz_scratch_open(struct oz_scratch *s, const char *folder, struct oz_error *err)
{
    const char *temporary = getenv("TMPDIR");
    if (folder == NULL) {
        folder = temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp";
    }
    *s = (struct oz_scratch){.folder = oz_strdup(folder)};
    char *path = oz_file_join(folder, "ounce-study-XXXXXX");
    if (s->folder == NULL || path == NULL) {
        oz_free(path);
        oz_scratch_close(s);
        return OZ_FAIL_NOMEM(err, "the study's scratch file");
    }
    int fd = mkostemp(path, O_CLOEXEC);
    int error = errno;
    if (fd >= 0) {
        (void)unlink(path); /* it lives as long as its descriptor */
    }
    oz_free(path);
    if (fd < 0) {
        enum oz_status status = OZ_FAIL(
            err, OZ_ERR_IO, "Cannot make a scratch file in %s: %s. TMPDIR names another folder.",
            folder, strerror(error));
        oz_scratch_close(s);
        return status;
    }
    s->fd_plus_1 = fd + 1;
    return OZ_OK;
}

void oz_scratch_close(struct oz_scratch *s)
{
    if (s->fd_plus_1 > 0) {
        (void)close(s->fd_plus_1 - 1);
    }
    oz_free(s->folder);
    *s = (struct oz_scratch){0};
}

enum oz_status oz_scratch_write(const struct oz_scratch *s, const void *data, int64_t bytes,
                                int64_t offset, struct oz_error *err)
{
    int64_t done = 0;
    while (done < bytes) {
        ssize_t n = pwrite(s->fd_plus_1 - 1, (const char *)data + done, (size_t)(bytes - done),
                           (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return OZ_FAIL(err, OZ_ERR_IO,
                           "Cannot write %lld bytes of the study's scratch file in %s: %s. TMPDIR "
                           "names another folder.",
                           (long long)bytes, s->folder, strerror(n == 0 ? ENOSPC : errno));
        }
        done += n;
    }
    return OZ_OK;
}

enum oz_status oz_scratch_read(const struct oz_scratch *s, void *data, int64_t bytes,
                               int64_t offset, struct oz_error *err)
{
    if (!oz_file_pread(s->fd_plus_1 - 1, data, bytes, offset)) {
        return OZ_FAIL(err, OZ_ERR_IO,
                       "Cannot read %lld bytes of the study's scratch file in %s: %s.",
                       (long long)bytes, s->folder, errno != 0 ? strerror(errno) : "it ended");
    }
    return OZ_OK;
}
