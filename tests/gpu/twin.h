/*
 * tests/gpu/twin.h: operands that exist twice, at equal offsets of host and device memory. A case
 * builds its arguments once for each side: the first time values are drawn, the second time only
 * addresses are made. Needs no test library: it runs on bare machines with a card.
 */
#ifndef OZ_TESTS_GPU_TWIN_H
#define OZ_TESTS_GPU_TWIN_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/device.h"
#include "dev/ops.h"

struct twin {
    struct oz_device *cpu, *gpu;
    uint8_t *host, *back, *device; /* equal sizes; back is what the device held */
    size_t bytes, used;
    int side;      /* 0: host, 1: device */
    uint8_t *base; /* of the side */
    uint64_t random;
    struct oz_act acts[32];
    struct oz_param params[16];
    struct oz_linear linears[4];
    struct oz_ragged ragged[4];
    int32_t offsets[4][16];
    int act_count, param_count, linear_count, ragged_count;
};

bool twin_open(struct twin *t, struct oz_device *cpu, struct oz_device *gpu, size_t bytes);
void twin_close(struct twin *t);
/* Begins the arguments of a side; values follow from the seed. */
void twin_begin(struct twin *t, int side, uint64_t seed);

uint64_t twin_random(struct twin *t);
double twin_normal(struct twin *t);
void *twin_take(struct twin *t, size_t bytes);        /* of the side; host memory is zeroed */
void *twin_host(const struct twin *t, const void *p); /* where a side's address is on the host */

/* Rows of normal values; `gap` elements between rows. */
struct oz_act *twin_act(struct twin *t, int64_t rows, int64_t cols, int64_t gap,
                        enum oz_dtype dtype, double deviation);
/* Rows to be written, of any spec. */
struct oz_act *twin_out(struct twin *t, int64_t rows, int64_t cols, const struct oz_act_spec *spec);
/* Rows of a quantized spec: normal values through the CPU's act_quant. */
struct oz_act *twin_quantized(struct twin *t, int64_t rows, int64_t cols,
                              const struct oz_act_spec *spec);
/* Normal values under a codec; where it has no encoder random codes, under small factors. Behind the codec's
 * name planes that it need not have: "u4_group+zeros+mins+perm". */
struct oz_param *twin_weight(struct twin *t, const char *codec, int64_t rows, int64_t cols,
                             double deviation);
struct oz_param *twin_vector(struct twin *t, int64_t n, double deviation);
struct oz_linear *twin_linear(struct twin *t, const char *codec, int64_t n, int64_t k, bool bias);
struct oz_ragged *twin_ragged(struct twin *t, int count, const int32_t *lengths);
int32_t *twin_ids(struct twin *t, int64_t count, int64_t below);

/* Runs an operator. */
enum oz_status twin_run(struct oz_device *dev, enum oz_op op, const void *args);
/* Uploads all, runs the device's side and brings all back. */
enum oz_status twin_upload(struct twin *t);
enum oz_status twin_download(struct twin *t);

/* Relative L2 and largest distance of what the device wrote (in `back`) to the CPU's (in `host`), for
 * the device's view of some rows. NaN where either has one. */
struct twin_distance {
    double relative, largest;
    int64_t different; /* elements */
};
struct twin_distance twin_compare(const struct twin *t, const struct oz_act *device_act);

#endif
