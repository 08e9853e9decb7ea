/*
 * cpu/bench.h: how fast each kernel of the lists is. bench.c drives: lists, shapes, passes, clocks,
 * ceilings; bench_shapes.c has the shapes, from real models, and makes operands for them.
 */
#ifndef OZ_CPU_BENCH_H
#define OZ_CPU_BENCH_H

#include "cpu/ceiling.h"
#include "cpu/kernel.h"
#include "dev/report.h"

/* Member `bench` of struct oz_device. */
OZ_MUST_USE enum oz_status
oz_cpu_bench(struct oz_device *dev, const struct oz_bench_request *request, struct oz_error *err);

/* ---- between the two files ---- */

#define OZ_BENCH_NAME_BYTES 96
#define OZ_BENCH_BLOCKS 20

/* What linear does behind its product. */
enum oz_bench_tail { OZ_BENCH_BIAS, OZ_BENCH_GELU, OZ_BENCH_RESIDUAL };

/* A shape: rows, columns, depth; other operators read them as bench_shapes.c says. */
struct oz_bench_shape {
    enum oz_op op;
    const char *where; /* "qwen.mlp.up": model and layer */
    int64_t m, n, k;
    int32_t a, b, c;     /* linear: tail; attention: heads, head size; conv: height, width, side */
    enum oz_dtype dtype; /* of weights or outputs */
    bool large;          /* only when the filter names it */
    enum oz_ceiling ceiling; /* READ, UPDATE, or F32 for "what its inputs multiply at" */
    const char *codec; /* linear of such weights, by rows in `act`; NULL: plain ones of dtype */
    enum oz_act_mode act;
};

extern const struct oz_bench_shape oz_bench_shapes[];
extern const int32_t oz_bench_shape_count;

/* "qwen.mlp.up m256 n12288 k3072 bf16" */
void oz_bench_shape_name(const struct oz_bench_shape *s, char name[OZ_BENCH_NAME_BYTES]);

/* The same product over so few features of its weight that they stay in a second cache, and over the first
 * panel of these alone: the row is brought for each, and what it takes is no decoding. */
struct oz_bench_warm {
    const void *args, *first;
    double work, first_work; /* equal where one panel is all */
};

/* One kernel on one shape, ready to run. Begin with zeroes; oz_bench_case_free after either. */
struct oz_bench_case {
    struct oz_device *dev; /* whose lists hold this kernel alone */
    const struct oz_cpu_kernel *kernel;
    void *blocks[OZ_BENCH_BLOCKS];
    int32_t block_count;
    const void *args;
    double work;             /* 10^9 operations or bytes of a run */
    enum oz_ceiling ceiling; /* what bounds it */
    void (*turn)(struct oz_bench_case *c,
                 int64_t); /* before each run: the next copies of operands; NULL */
    void *turn_ctx;
    struct oz_bench_warm *warm; /* one for each thread, where weights are decoded as they stream */
    int32_t warm_count;
    const char *declined; /* why the kernel does not run this; then nothing else is set */
};

/* Makes the operands. OZ_ERR_NOMEM, or what the plan says. */
OZ_MUST_USE enum oz_status oz_bench_case_make(struct oz_bench_case *c,
                                              const struct oz_bench_shape *s, struct oz_error *err);
void oz_bench_case_free(struct oz_bench_case *c);

#endif
