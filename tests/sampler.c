#include "sampler.h"

#include <stdbool.h>
#include <time.h>

#include "base/memory.h"
#include "test.h"

static void *sample(void *ctx)
{
    struct sampler *s = ctx;
    while (!atomic_load(&s->stop)) {
        int64_t now = oz_memory_anonymous("");
        s->peak = now > s->peak ? now : s->peak;
        (void)nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
    return NULL;
}

void sampler_start(struct sampler *s)
{
    *s = (struct sampler){.peak = 0};
    assert_int_equal(pthread_create(&s->thread, NULL, sample, s), 0);
}

int64_t sampler_stop(struct sampler *s)
{
    int64_t now = oz_memory_anonymous("");
    atomic_store(&s->stop, true);
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    return s->peak > now ? s->peak : now;
}
