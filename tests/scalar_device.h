/*
 * tests/scalar_device.h: what tests of models on the CPU begin with: a device of the scalar tier, whose
 * operators read planes, a scratch folder, and the bundled model. For one test program: all is static.
 */
#ifndef OZ_TESTS_SCALAR_DEVICE_H
#define OZ_TESTS_SCALAR_DEVICE_H

#include "base/pool.h"
#include "cpu/kernel.h"
#include "scratch.h"

static struct oz_error err;
static struct oz_pool *pool;
static struct oz_device *dev;

static inline const char *bundled(void)
{
    return OZ_TEST_DIR "/../models/emoji";
}

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static int start(void **state)
{
    ok(oz_pool_create(&pool, 2, &err));
    ok(oz_cpu_open(&dev, 0, pool, "scalar", NULL, &err));
    return scratch_open(state);
}

static int stop(void **state)
{
    oz_device_close(&dev);
    oz_pool_destroy(&pool);
    return scratch_close(state);
}

#endif
