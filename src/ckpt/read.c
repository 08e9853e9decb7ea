/* Bytes of tensors by pread, and what the system is told about pages. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "ckpt/container.h"

enum oz_status oz_ckpt_read(const struct oz_ckpt *ckpt, const struct oz_tensor_view *t,
                            int64_t offset, int64_t bytes, void *dst, struct oz_error *err)
{
    const struct oz_ckpt_file *f = &ckpt->files[t->file];
    if (offset < 0 || bytes < 0 || bytes > t->bytes - offset) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Tensor %s has %" PRId64 " bytes; %" PRId64 " from %" PRId64
                       " were asked for.",
                       t->name, t->bytes, bytes, offset);
    }
    if (ckpt->drawn != NULL) {
        oz_ckpt_drawn_read(ckpt, t, offset, bytes, dst);
        return OZ_OK;
    }
    if (!oz_file_pread(f->fd, dst, bytes, t->file_offset + offset)) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot read tensor %s from %s: %s.", t->name, f->path,
                       errno != 0 ? strerror(errno) : "the file has become shorter");
    }
    return OZ_OK;
}

void oz_ckpt_advise(const struct oz_ckpt *ckpt, int32_t file, int64_t offset, int64_t bytes)
{
    if (ckpt->drawn == NULL) {
        (void)posix_fadvise(ckpt->files[file].fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
    }
}

void oz_ckpt_forget(const struct oz_ckpt *ckpt, const struct oz_tensor_view *t)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t map = (uintptr_t)ckpt->files[t->file].map;
    uintptr_t begin = (map + (uintptr_t)t->file_offset + page - 1) / page * page;
    uintptr_t end = (map + (uintptr_t)t->file_offset + (uintptr_t)t->bytes) / page * page;
    if (begin < end && map != 0) {
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
}

enum oz_status oz_ckpt_check(const struct oz_ckpt *ckpt, struct oz_error *err)
{
    for (int32_t i = 0; i < ckpt->file_count && ckpt->drawn == NULL; i++) {
        OZ_TRY(oz_filemap_check(&ckpt->maps[i], ckpt->files[i].path, err));
    }
    return OZ_OK;
}
