/* api/bench_model.h: what measuring a model comes to. Internal to src/api. */
#ifndef OZ_API_BENCH_MODEL_H
#define OZ_API_BENCH_MODEL_H

#include <ounce/ounce.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"

enum oz_bench_part {
    OZ_BENCH_LOAD,
    OZ_BENCH_TEXT,
    OZ_BENCH_STEP,
    OZ_BENCH_DECODE,
    OZ_BENCH_TOTAL,
    OZ_BENCH_PARTS
};

#define OZ_BENCH_POINTS 3

/* Pictures that are drawn at most so many together. */
struct oz_bench_point {
    int32_t concurrency;
    double seconds, pictures_s;
    int64_t peak_bytes, plan_bytes;
};

struct oz_bench_model {
    struct oz_bench_model_options options;
    char *name, *path;
    char *quantization; /* as the engine's, or "none" */
    const char *tier;
    int32_t threads, repeats, width, height, steps;
    double scale;
    bool f32_math, dummy;            /* dummy weights: nothing is read */
    double *seconds[OZ_BENCH_PARTS]; /* [repeats], ascending when measured */
    int64_t load_bytes;              /* of the weight files */
    double read_s; /* that reading them takes, cached as they are: the best of repeats */
    int64_t peak_bytes, weight_bytes, plan_bytes;
    bool peak_of_process;
    struct oz_bench_point points[OZ_BENCH_POINTS];
    int32_t point_count;
    /* against an earlier run: new median / old median, 0: not compared; beyond noise? */
    double change[OZ_BENCH_PARTS + OZ_BENCH_POINTS];
    bool moved[OZ_BENCH_PARTS + OZ_BENCH_POINTS];
};

extern const char *const oz_bench_part_names[OZ_BENCH_PARTS];

double oz_bench_median(const struct oz_bench_model *m, enum oz_bench_part part);

void oz_bench_model_print(const struct oz_bench_model *m, struct oz_buf *b);
void oz_bench_model_json(const struct oz_bench_model *m, struct oz_buf *b);
void oz_bench_model_page(const struct oz_bench_model *m, struct oz_buf *b);

/* Fills change and moved from an earlier document. OZ_ERR_FORMAT: it is no such document; OZ_ERR_ARG: of
 * something else. */
OZ_MUST_USE enum oz_status oz_bench_model_compare(struct oz_bench_model *m,
                                                  const struct oz_json *old, const char *name,
                                                  struct oz_error *err);

#endif
