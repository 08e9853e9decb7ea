/* oz_bench_kernels: asks the device to measure, and prints what comes. */
#include <ounce/ounce.h>

#include "api/bench_table.h"
#include "api/engine.h"
#include "base/error.h"
#include "base/json.h"
#include "dev/report.h"

#define PASSES 3
#define MAX_SAMPLES 192
#define SAMPLE_S 0.02
#define MAX_OLD_BYTES ((size_t)64 << 20)
#define MAX_TEXT_BYTES ((size_t)64 << 20)

struct job {
    struct oz_bench_options options;
    const char *against; /* NULL: none */
    struct oz_json *old;
    struct oz_pool *pool;
    struct oz_device *dev;
    struct oz_bench_table table;
    struct oz_bench_head head;
};

static const struct oz_bench_options defaults = {
    .struct_size = sizeof defaults, .device = "cpu", .max_slowdown_percent = -1};

void oz_bench_options_init(struct oz_bench_options *options, size_t struct_size)
{
    oz_api_fill(options, struct_size, &defaults, sizeof defaults);
}

static enum oz_status take_sample(void *ctx, const struct oz_bench_sample *sample,
                                  struct oz_error *err)
{
    struct job *job = ctx;
    return oz_bench_table_add(&job->table, sample, err);
}

static void take_skip(void *ctx, const char *kernel, const char *shape, const char *reason)
{
    struct job *job = ctx;
    oz_bench_table_skip(&job->table, kernel, shape, reason);
}

static int tell_progress(void *ctx, int64_t done, int64_t total)
{
    const struct job *job = ctx;
    if (job->options.progress == NULL) {
        return 0;
    }
    const struct oz_progress p = {.struct_size = sizeof p,
                                  .stage = OZ_STAGE_BENCH,
                                  .picture = -1,
                                  .done = done,
                                  .total = total};
    return job->options.progress(job->options.progress_ctx, &p);
}

static enum oz_status measure(struct job *job, struct oz_error *err)
{
    struct oz_bench_options *o = &job->options;
    int32_t samples = o->samples > 0 ? o->samples : 9;
    int32_t passes = samples < PASSES ? samples : PASSES;
    if (o->samples < 0 || o->samples > MAX_SAMPLES) {
        return OZ_FAIL(err, OZ_ERR_ARG, "%d samples: there may be 1 to %d.", o->samples,
                       MAX_SAMPLES);
    }
    OZ_TRY(oz_pool_create(&job->pool, o->threads, err));
    OZ_TRY(oz_device_open(&job->dev, o->device != NULL ? o->device : "cpu", 0, job->pool, err));
    job->head = (struct oz_bench_head){
        .device = job->dev->name, .tier = job->dev->tier, .threads = oz_pool_threads(job->pool)};
    if (job->dev->bench == NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "Device %s cannot measure its kernels.",
                       job->dev->name);
    }
    if (job->against != NULL) {
        OZ_TRY(oz_json_parse_file(&job->old, job->against, MAX_OLD_BYTES, err));
        OZ_TRY(oz_bench_table_check(job->old, job->against, &job->head, err));
    }
    const struct oz_bench_request request = {
        .filter = o->filter != NULL && o->filter[0] != '\0' ? o->filter : NULL,
        .passes = passes,
        .repeats = (samples + passes - 1) / passes,
        .sample_s = SAMPLE_S,
        .sample = take_sample,
        .skip = take_skip,
        .progress = tell_progress,
        .ctx = job,
    };
    OZ_TRY(job->dev->bench(job->dev, &request, err));
    oz_bench_table_finish(&job->table);
    if (job->old != NULL) {
        oz_bench_table_compare(&job->table, job->old);
    }
    return OZ_OK;
}

static enum oz_status print(const struct job *job, oz_write_fn write, void *ctx,
                            struct oz_error *err)
{
    struct oz_buf b;
    oz_buf_init(&b, MAX_TEXT_BYTES);
    if (job->options.json) {
        oz_bench_table_json(&job->table, &job->head, job->against, &b);
    } else {
        oz_bench_table_text(&job->table, &job->head, job->against, &b);
    }
    enum oz_status status = oz_api_write(&b, "results", "are", write, ctx, err);
    oz_buf_deinit(&b);
    return status;
}

static enum oz_status judge(const struct job *job, struct oz_error *err)
{
    double most = job->options.max_slowdown_percent;
    double worst = 100 * job->table.worst_slowdown;
    if (job->against == NULL || !(most >= 0) || !(worst > most)) {
        return OZ_OK;
    }
    return OZ_FAIL(err, OZ_ERR_THRESHOLD,
                   "%d of %d kernels and shapes got slower than in %s beyond noise, the worst by "
                   "%.1f %%; at most %g %% were allowed.",
                   job->table.slower, job->table.compared, job->against, worst, most);
}

enum oz_status oz_bench_kernels(const struct oz_bench_options *options, oz_write_fn write,
                                void *ctx, struct oz_error *err)
{
    struct job job = {.options = defaults};
    if (options != NULL) {
        OZ_TRY(
            oz_api_copy_options(&job.options, sizeof job.options, options, "bench options", err));
    }
    job.against =
        job.options.against != NULL && job.options.against[0] != '\0' ? job.options.against : NULL;
    oz_bench_table_init(&job.table);
    enum oz_status status = measure(&job, err);
    if (status == OZ_OK) {
        status = print(&job, write, ctx, err);
    }
    if (status == OZ_OK) {
        status = judge(&job, err);
    }
    oz_bench_table_deinit(&job.table);
    oz_json_free(job.old);
    oz_device_close(&job.dev);
    oz_pool_destroy(&job.pool);
    return status;
}
