/* api/bench_table.h: results of `bench --kernels`: collected, compared with an earlier run's, and
 * printed. Internal to src/api. */
#ifndef OZ_API_BENCH_TABLE_H
#define OZ_API_BENCH_TABLE_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "dev/report.h"

/* Median and quartiles. */
struct oz_quartiles {
    double q1, median, q3;
};

enum oz_verdict { OZ_VERDICT_NONE, OZ_VERDICT_SAME, OZ_VERDICT_FASTER, OZ_VERDICT_SLOWER };

/* What bounds a kernel. */
struct oz_bench_bound {
    char *name;    /* NULL: none */
    double *rates; /* [count], one beside each sample */
    double median, best;
};

struct oz_bench_result {
    char *op, *kernel, *shape, *unit;
    double *rates, *shares; /* [count] samples: in the unit; over the lowest ceiling beside them */
    int32_t count;
    struct oz_bench_bound bounds[OZ_BENCH_CEILINGS];
    const struct oz_bench_bound *least; /* the one that binds: that of the lowest median */
    double best;                        /* rate */
    struct oz_quartiles rate, share;
    enum oz_verdict verdict;  /* against the earlier run */
    double old_share, change; /* its median; new / old - 1 */
};

/* What a kernel was not measured on, for one reason. */
struct oz_bench_skipped {
    char *kernel, *reason;
    int32_t shapes; /* 0: the kernel was not measured at all */
};

struct oz_bench_table {
    struct oz_bench_result *results;
    int32_t count, capacity;
    struct oz_bench_skipped *skipped;
    int32_t skipped_count, skipped_capacity;
    struct oz_buf skipped_json; /* an object for each shape */
    int32_t compared, faster, slower, fresh, gone;
    double worst_slowdown; /* of those beyond noise; 0: none */
};

/* What stands above the results. */
struct oz_bench_head {
    const char *device, *tier;
    int32_t threads;
};

void oz_bench_table_init(struct oz_bench_table *t);
void oz_bench_table_deinit(struct oz_bench_table *t);

OZ_MUST_USE enum oz_status oz_bench_table_add(struct oz_bench_table *t,
                                              const struct oz_bench_sample *sample,
                                              struct oz_error *err);
/* shape "": none of the kernel's. Out of memory the list of reasons stays short. */
void oz_bench_table_skip(struct oz_bench_table *t, const char *kernel, const char *shape,
                         const char *reason);

/* Medians, quartiles, bests. */
void oz_bench_table_finish(struct oz_bench_table *t);

/* Quartiles of values (sorted in place), interpolated. */
struct oz_quartiles oz_quartiles_of(double *values, int32_t count);

/*
 * Did something move beyond noise? When each median lies outside of the other's fences (quartiles,
 * and one and a half times their distance beyond them), and by more than one percent.
 */
enum oz_verdict oz_bench_verdict(const struct oz_quartiles *old_share,
                                 const struct oz_quartiles *new_share);

/* Compares with an earlier run's document, whose path begins messages. OZ_ERR_FORMAT; OZ_ERR_ARG: it
 * had another number of threads. */
struct oz_json;
OZ_MUST_USE enum oz_status oz_bench_table_check(const struct oz_json *old, const char *path,
                                                const struct oz_bench_head *head,
                                                struct oz_error *err);
void oz_bench_table_compare(struct oz_bench_table *t, const struct oz_json *old);

void oz_bench_table_text(const struct oz_bench_table *t, const struct oz_bench_head *head,
                         const char *against, struct oz_buf *b);
void oz_bench_table_json(const struct oz_bench_table *t, const struct oz_bench_head *head,
                         const char *against, struct oz_buf *b);

#endif
