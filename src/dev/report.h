/*
 * dev/report.h: CONTRACT. What a device tells about its kernels, for people: the lists, and how fast
 * each entry is. Reports are callbacks, so that one place formats them for every device.
 * Strings in them are borrowed for the call.
 */
#ifndef OZ_DEV_REPORT_H
#define OZ_DEV_REPORT_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- the lists ---- */

/* A bundle of instructions. */
struct oz_tier_row {
    const char *name, *what; /* "avx512", "AVX-512 F, BW, ..." */
    bool present, in_use;    /* the hardware has it; kernels of it may run */
};

/* One kernel of an operator's list; they come operator by operator, best first. Encoders of weights
 * (dev/ops.h) come last, as those of "encode". */
struct oz_kernel_row {
    const char *op, *name, *tier;
    const char *proven;   /* where its tests have run; NULL: nowhere yet */
    const char *unusable; /* why it is never taken here; NULL: it may be */
};

struct oz_kernel_report {
    void (*tier)(void *ctx, const struct oz_tier_row *row);
    void (*kernel)(void *ctx, const struct oz_kernel_row *row);
    void *ctx;
};

/* ---- how fast they are ---- */

#define OZ_BENCH_CEILINGS 2

/* What bounds a kernel, measured beside each of its samples. */
struct oz_bench_ceiling {
    const char *name;    /* "bf16"; NULL: none */
    const double *rates; /* [count], in the samples' unit; 0: could not be measured */
};

/* A kernel's runs of one shape in one pass. */
struct oz_bench_sample {
    const char *op, *kernel, *shape; /* "linear", its name, "mlp.up m256 n12288 k3072 bf16" */
    const char *unit;                /* "GFLOP/s" */
    double work;                     /* of one run, in the unit times a second */
    const double *seconds;           /* [count] of single runs */
    int32_t count;
    struct oz_bench_ceiling ceilings[OZ_BENCH_CEILINGS]; /* the lowest binds */
};

/*
 * Every usable kernel that `filter` takes (a part of its name, of the operator's, or of a shape's;
 * NULL: all), over its operator's shapes: `passes` times through the whole list, `repeats` samples
 * each time; a sample is the mean of as many runs as last `sample_s`. What is not measured is said
 * once (skip; shape "": none of the kernel's). progress may be NULL; it returns nonzero to cancel.
 */
struct oz_bench_request {
    const char *filter;
    int32_t passes, repeats;
    double sample_s;
    OZ_MUST_USE enum oz_status (*sample)(void *ctx, const struct oz_bench_sample *sample,
                                         struct oz_error *err);
    void (*skip)(void *ctx, const char *kernel, const char *shape, const char *reason);
    int (*progress)(void *ctx, int64_t done, int64_t total);
    void *ctx;
};

#endif
