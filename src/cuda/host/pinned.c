/*
 * Pinned host memory. Large pieces are mapped in huge pages, filled by several threads and then registered:
 * the driver's own allocation takes and clears pages one by one, which is three times as slow.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cuda/host/cuda.h"

#define LARGE ((size_t)64 << 20)
#define HUGE_PAGE ((size_t)2 << 20)
#define MOST_FILLERS 16
#if !defined(MADV_POPULATE_WRITE) /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* A piece that was mapped here. */
struct oz_cuda_pinned {
    struct oz_cuda_pinned *next;
    void *memory;
    size_t bytes;
};

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

struct filler {
    uint8_t *from;
    size_t bytes;
    bool failed; /* there is no memory */
};

/* Touching each page is what older systems get. */
static void *fill(void *arg)
{
    struct filler *f = arg;
    if (madvise(f->from, f->bytes, MADV_POPULATE_WRITE) == 0) {
        return NULL;
    }
    f->failed = errno != EINVAL;
    for (size_t at = 0; at < f->bytes && !f->failed; at += 4096) {
        ((volatile uint8_t *)f->from)[at] = 0;
    }
    return NULL;
}

static bool fill_all(uint8_t *memory, size_t bytes)
{
    pthread_t threads[MOST_FILLERS];
    struct filler fillers[MOST_FILLERS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t count = cores < 1 ? 1 : cores > MOST_FILLERS ? MOST_FILLERS : (size_t)cores;
    size_t each = round_up(bytes / count + 1, HUGE_PAGE);
    size_t begun = 0;
    size_t used = 0;
    bool failed = false;
    for (size_t i = 0; i < count && i * each < bytes; i++) {
        size_t left = bytes - i * each;
        fillers[i] = (struct filler){memory + i * each, left < each ? left : each, false};
        used++;
        if (pthread_create(&threads[begun], NULL, fill, &fillers[i]) == 0) {
            begun++;
        } else {
            (void)fill(&fillers[i]);
        }
    }
    for (size_t i = 0; i < begun; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < used; i++) {
        failed = failed || fillers[i].failed;
    }
    return !failed;
}

/* Mapped, filled, registered; NULL: not this way. */
static void *map_large(struct oz_cuda *c, size_t bytes)
{
    struct oz_cuda_pinned *p = oz_alloc_zero(1, sizeof *p);
    size_t all = round_up(bytes, HUGE_PAGE);
    uint8_t *memory = p != NULL ? mmap(NULL, all + HUGE_PAGE, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                : MAP_FAILED;
    if (memory == MAP_FAILED) {
        oz_free(p);
        return NULL;
    }
    size_t before = round_up((uintptr_t)memory, HUGE_PAGE) - (uintptr_t)memory;
    if (before > 0) {
        (void)munmap(memory, before);
    }
    (void)munmap(memory + before + all, HUGE_PAGE - before);
    memory += before;
    (void)madvise(memory, all, MADV_HUGEPAGE);
    if (!fill_all(memory, all) ||
        cudaHostRegister(memory, all, cudaHostRegisterDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        (void)munmap(memory, all);
        oz_free(p);
        return NULL;
    }
    *p = (struct oz_cuda_pinned){.memory = memory, .bytes = all};
    pthread_mutex_lock(&c->lock);
    p->next = c->pinned;
    c->pinned = p;
    pthread_mutex_unlock(&c->lock);
    return memory;
}

enum oz_status oz_cuda_pin(struct oz_device *dev, size_t bytes, void **out, struct oz_error *err)
{
    *out = NULL;
    OZ_TRY(oz_cuda_choose(dev, err));
    if (bytes >= LARGE) {
        *out = map_large(oz_cuda_of(dev), bytes);
    }
    cudaError_t error = *out != NULL ? cudaSuccess : cudaMallocHost(out, bytes);
    if (error != cudaSuccess) {
        *out = NULL;
        (void)cudaGetLastError();
        return OZ_FAIL(err, OZ_ERR_NOMEM, "Out of pinned host memory for %s: %zu bytes asked (%s).",
                       dev->name, bytes, cudaGetErrorName(error));
    }
    return OZ_OK;
}

void oz_cuda_unpin(struct oz_device *dev, void *memory)
{
    struct oz_cuda *c = oz_cuda_of(dev);
    struct oz_cuda_pinned *found = NULL;
    if (memory == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    for (struct oz_cuda_pinned **p = &c->pinned; *p != NULL && found == NULL; p = &(*p)->next) {
        if ((*p)->memory == memory) {
            found = *p;
            *p = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (found == NULL) {
        (void)cudaFreeHost(memory);
        return;
    }
    (void)cudaHostUnregister(memory);
    (void)munmap(memory, found->bytes);
    oz_free(found);
}
