/* sampler.h: the largest anonymous memory of this process between two calls (cmocka tests). */
#ifndef OZ_TESTS_SAMPLER_H
#define OZ_TESTS_SAMPLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct sampler {
    atomic_bool stop;
    int64_t peak;
    pthread_t thread;
};

void sampler_start(struct sampler *s);
int64_t sampler_stop(struct sampler *s); /* bytes; what is resident at the end counts too */

#endif
