/*
 * tests/gpu/dummy.h: models of a family's full size with random weights that lie on a device alone, so
 * that timings need no file. Noise is drawn once and copied to every plane, from another place of it
 * each time.
 */
#ifndef OZ_TESTS_GPU_DUMMY_H
#define OZ_TESTS_GPU_DUMMY_H

#include "dev/device.h"
#include "quant/layer.h"

struct dummy {
    struct oz_device *dev;
    void *noise[4]; /* device: bf16, e4m3, bytes, f32 */
    bool borrows;   /* the noise */
    void *weights;  /* of the last fill */
    size_t bytes;
};

OZ_MUST_USE enum oz_status dummy_open(struct dummy *d, struct oz_device *dev, struct oz_error *err);
/* Another that draws from the first one's noise, which must outlive it. */
OZ_MUST_USE enum oz_status dummy_share(struct dummy *d, const struct dummy *first);
void dummy_close(struct dummy *d);

/* Gives every bound parameter of the table planes with noise: block linears by the scheme of that name
 * (NULL: bf16), what keep-lists keep and the rest in bf16, vectors in f32. Modulation layers get nothing. */
OZ_MUST_USE enum oz_status dummy_fill(struct dummy *d, const struct oz_layer_table *t,
                                      const char *scheme, struct oz_error *err);
void dummy_empty(struct dummy *d);

#endif
