#include "cpu/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/pool.h"

#define CEILING_S 0.25
#define CEILING_NEAR_S 0.01 /* the same beside the samples of one shape */
#define MAX_REPEATS 64
#define MAX_RUNS 100000
#define MAX_WARM 1024      /* runs of a product that stays in a cache */
#define REFERENCE_WORK 6.0 /* 10^9 operations that the scalar reference is asked for at most */

struct bench {
    struct oz_device *dev;
    const struct oz_bench_request *request;
    struct oz_cpu only;  /* a copy of the device whose lists are changed */
    struct oz_cpu alone; /* another, whose products run on the thread that asks */
    struct oz_ceiling_memory *memory;
    double updates[OZ_TIER_COUNT]; /* of this pass; 0: not measured yet */
    int32_t pass;
    int64_t done, total;
};

/* ---- what is measured ---- */

static bool has_word(const char *text, const char *word, size_t bytes)
{
    size_t n = strlen(text);
    for (size_t i = 0; i + bytes <= n; i++) {
        if (strncmp(text + i, word, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Every word of the filter (with commas between) is a part of one of the names. Large shapes are
 * taken only when a word is a part of their own. */
static bool wanted(const char *filter, const struct oz_bench_shape *s, const char *kernel,
                   const char *op)
{
    char shape[OZ_BENCH_NAME_BYTES];
    bool named = false;
    oz_bench_shape_name(s, shape);
    for (const char *p = filter != NULL ? filter : ""; *p != '\0';) {
        size_t n = strcspn(p, ",");
        bool in_shape = has_word(shape, p, n);
        if (n > 0 && !in_shape && !has_word(kernel, p, n) && !has_word(op, p, n)) {
            return false;
        }
        named = named || (n > 0 && in_shape);
        p += n + (p[n] == ',');
    }
    return !s->large || named;
}

static double operations(const struct oz_bench_shape *s)
{
    double mnk = 2e-9 * (double)s->m * (double)s->n;
    switch (s->op) {
    case OZ_OP_LINEAR: return mnk * (double)s->k;
    case OZ_OP_CONV: return mnk * (double)s->k * s->c * s->c;
    case OZ_OP_ATTENTION: return 2 * mnk * (double)s->m;
    default: return 0;
    }
}

static void skip(const struct bench *b, const struct oz_cpu_kernel *k, const char *shape,
                 const char *reason)
{
    if (b->pass == 0 && b->request->skip != NULL) {
        b->request->skip(b->request->ctx, k->name, shape, reason);
    }
}

/* ---- measuring ---- */

/* Products by all threads at once, each over what stays in its own caches. */
struct decoding {
    const struct oz_bench_case *c;
    struct oz_device *dev;
    double seconds;
    size_t scratch_bytes; /* of one */
    uint8_t *scratch;
    double *rates; /* 0: it failed */
};

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_of(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

/* The rate at which features are taken beyond the first ones: medians of runs of both, by turns. */
static enum oz_status decode_warm(const struct decoding *d, const struct oz_op_ctx *op,
                                  const struct oz_bench_warm *w, double *rate)
{
    double start = oz_clock_seconds();
    double now = start;
    double first[MAX_WARM];
    double all[MAX_WARM];
    int64_t runs = 0;
    for (; runs == 0 || (runs < MAX_WARM && now - start < d->seconds); runs++) {
        double begin = now;
        OZ_TRY(d->c->kernel->run(op, w->first));
        double middle = oz_clock_seconds();
        OZ_TRY(d->c->kernel->run(op, w->args));
        now = oz_clock_seconds();
        first[runs] = middle - begin;
        all[runs] = now - middle;
    }
    double took = median_of(all, runs);
    double less = median_of(first, runs);
    bool more = w->work > w->first_work && took > less;
    *rate = more ? (w->work - w->first_work) / (took - less) : w->work / took;
    return OZ_OK;
}

static void decode(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct decoding *d = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const struct oz_op_ctx op = {.dev = d->dev,
                                     .scratch = d->scratch + (size_t)i * d->scratch_bytes,
                                     .scratch_bytes = d->scratch_bytes};
        if (decode_warm(d, &op, &d->c->warm[i], &d->rates[i]) != OZ_OK) {
            d->rates[i] = 0;
        }
    }
}

/* What a kernel takes of weights that need not come from memory; 0: could not be measured. */
static double decoding_rate(struct bench *b, const struct oz_bench_case *c)
{
    const struct oz_cpu_kernel *k = c->kernel;
    size_t bytes = k->scratch(&b->alone.dev, c->warm[0].args);
    struct decoding d = {.c = c, .dev = &b->alone.dev, .seconds = b->request->sample_s};
    double sum = 0;
    bool all = true;
    d.scratch_bytes = (bytes + OZ_DEVICE_ALIGN) / OZ_DEVICE_ALIGN * OZ_DEVICE_ALIGN;
    d.scratch = oz_alloc_large(d.scratch_bytes * (size_t)c->warm_count, OZ_DEVICE_ALIGN);
    d.rates = oz_alloc_zero((size_t)c->warm_count, sizeof *d.rates);
    if (d.scratch != NULL && d.rates != NULL) {
        oz_pool_for(b->dev->pool, c->warm_count, 1, decode, &d);
    }
    for (int32_t i = 0; i < c->warm_count && d.rates != NULL; i++) {
        all = all && d.rates[i] > 0;
        sum += d.rates[i];
    }
    oz_free(d.scratch);
    oz_free(d.rates);
    return all ? sum : 0;
}

static double reading_rate(struct bench *b, enum oz_tier tier)
{
    if (b->memory == NULL) {
        b->memory = oz_ceiling_memory_open(b->dev->pool);
    }
    return b->memory != NULL
               ? oz_ceiling_memory_rate(b->memory, tier, OZ_CEILING_READ, b->request->sample_s)
               : 0;
}

/* Beside each sample anew, since other users of the processor slow it down for seconds (matrix units by
 * more than half, memory by a third), and a share is of what could be had just then. But that of changing
 * memory once a pass. */
static double ceiling(struct bench *b, const struct oz_bench_case *c, enum oz_ceiling kind)
{
    enum oz_tier tier = c->kernel->tier;
    switch (kind) {
    case OZ_CEILING_DECODE: return decoding_rate(b, c);
    case OZ_CEILING_READ: return reading_rate(b, tier);
    case OZ_CEILING_UPDATE:
        if (b->updates[tier] <= 0) {
            b->updates[tier] = oz_cpu_ceiling_pool(b->dev->pool, tier, kind, CEILING_S);
        }
        return b->updates[tier];
    default: return oz_cpu_ceiling_pool(b->dev->pool, tier, kind, CEILING_NEAR_S);
    }
}

/* Seconds of a run, the mean of `runs`. */
static enum oz_status time_runs(struct oz_bench_case *c, const struct oz_op_ctx *ctx, int64_t runs,
                                int64_t *turn, double *seconds)
{
    double start = oz_clock_seconds();
    for (int64_t i = 0; i < runs; i++) {
        if (c->turn != NULL) {
            c->turn(c, (*turn)++);
        }
        OZ_TRY(c->kernel->run(ctx, c->args));
    }
    *seconds = (oz_clock_seconds() - start) / (double)runs;
    return OZ_OK;
}

/* Samples of a kernel, and its ceilings before the first and behind each. */
struct samples {
    double seconds[MAX_REPEATS];
    enum oz_ceiling kinds[OZ_BENCH_CEILINGS];
    int32_t kind_count;
    double near[OZ_BENCH_CEILINGS][MAX_REPEATS + 1];
};

static void look(struct bench *b, const struct oz_bench_case *c, struct samples *s, int32_t at)
{
    for (int32_t i = 0; i < s->kind_count; i++) {
        s->near[i][at] = ceiling(b, c, s->kinds[i]);
    }
}

static enum oz_status take_samples(struct bench *b, struct oz_bench_case *c,
                                   const struct oz_op_ctx *ctx, struct samples *s)
{
    const struct oz_bench_request *r = b->request;
    int64_t turn = 0;
    double first = 0;
    OZ_TRY(time_runs(c, ctx, 1, &turn, &first));
    OZ_TRY(time_runs(c, ctx, 1, &turn, &first)); /* the one before was cold */
    int64_t runs = first > 0 ? (int64_t)(r->sample_s / first) : 1;
    runs = runs < 1 ? 1 : runs > MAX_RUNS ? MAX_RUNS : runs;
    s->kinds[s->kind_count++] = c->ceiling;
    if (c->warm_count > 0) {
        s->kinds[s->kind_count++] = OZ_CEILING_DECODE;
    }
    look(b, c, s, 0);
    for (int32_t i = 0; i < r->repeats; i++) {
        OZ_TRY(time_runs(c, ctx, runs, &turn, &s->seconds[i]));
        look(b, c, s, i + 1);
    }
    return OZ_OK;
}

static enum oz_status report(const struct bench *b, const struct oz_bench_case *c,
                             const char *shape, struct samples *s, struct oz_error *err)
{
    const struct oz_bench_request *r = b->request;
    struct oz_bench_sample sample = {
        .op = oz_cpu_op_name(c->kernel->op),
        .kernel = c->kernel->name,
        .shape = shape,
        .unit = oz_ceiling_unit(c->ceiling),
        .work = c->work,
        .seconds = s->seconds,
        .count = r->repeats,
    };
    for (int32_t i = 0; i < s->kind_count; i++) {
        double *near = s->near[i];
        for (int32_t j = 0; j < r->repeats; j++) { /* the better one around the sample */
            near[j] = near[j] > near[j + 1] ? near[j] : near[j + 1];
        }
        sample.ceilings[i] = (struct oz_bench_ceiling){oz_ceiling_name(s->kinds[i]), near};
    }
    return r->sample(r->ctx, &sample, err);
}

static enum oz_status measure(struct bench *b, struct oz_bench_case *c, const char *shape,
                              struct oz_error *err)
{
    size_t bytes = c->kernel->scratch(c->dev, c->args);
    void *scratch =
        bytes < SIZE_MAX / 2
            ? oz_alloc_large((bytes + OZ_DEVICE_ALIGN) / OZ_DEVICE_ALIGN * OZ_DEVICE_ALIGN,
                             OZ_DEVICE_ALIGN)
            : NULL;
    if (scratch == NULL) {
        return OZ_FAIL_NOMEM(err, shape);
    }
    const struct oz_op_ctx ctx = {.dev = c->dev, .scratch = scratch, .scratch_bytes = bytes};
    struct samples s = {.kind_count = 0};
    enum oz_status status = take_samples(b, c, &ctx, &s);
    oz_free(scratch);
    if (status != OZ_OK) {
        return OZ_FAIL(err, status, "%s failed on %s.", c->kernel->name, shape);
    }
    return report(b, c, shape, &s, err);
}

static enum oz_status run_case(struct bench *b, const struct oz_cpu_kernel *k,
                               const struct oz_bench_shape *s, struct oz_error *err)
{
    char shape[OZ_BENCH_NAME_BYTES];
    struct oz_bench_case c = {.dev = &b->only.dev, .kernel = k};
    oz_bench_shape_name(s, shape);
    if (k->tier == OZ_TIER_SCALAR && operations(s) > REFERENCE_WORK) {
        skip(b, k, shape, "too much work for the reference");
        return OZ_OK;
    }
    b->only.usable[k->op][0] = k;
    b->only.usable[k->op][1] = NULL;
    enum oz_status status = oz_bench_case_make(&c, s, err);
    if (status == OZ_OK && c.declined != NULL) {
        skip(b, k, shape, c.declined);
    } else if (status == OZ_OK) {
        status = measure(b, &c, shape, err);
    }
    oz_bench_case_free(&c);
    return status;
}

static enum oz_status step(struct bench *b, const struct oz_cpu_kernel *k,
                           const struct oz_bench_shape *s, bool counting, struct oz_error *err)
{
    if (counting) {
        b->total += b->request->passes;
        return OZ_OK;
    }
    if (b->request->progress != NULL &&
        b->request->progress(b->request->ctx, b->done, b->total) != 0) {
        return OZ_FAIL(err, OZ_ERR_CANCELLED, "The measurement was interrupted.");
    }
    b->done++;
    return run_case(b, k, s, err);
}

/* Once through all lists. */
static enum oz_status walk(struct bench *b, bool counting, struct oz_error *err)
{
    const struct oz_cpu *cpu = oz_cpu_of(b->dev);
    for (int op = 0; op < OZ_OP_COUNT; op++) {
        const char *op_name = oz_cpu_op_name((enum oz_op)op);
        const struct oz_cpu_kernel *const *k = oz_cpu_kernels((enum oz_op)op);
        for (; *k != NULL; k++) {
            const char *unusable = oz_cpu_unusable(cpu, *k);
            bool any = false;
            for (int32_t i = 0; i < oz_bench_shape_count; i++) {
                const struct oz_bench_shape *s = &oz_bench_shapes[i];
                if (s->op != (enum oz_op)op) {
                    continue;
                }
                any = true;
                if (unusable == NULL && wanted(b->request->filter, s, (*k)->name, op_name)) {
                    OZ_TRY(step(b, *k, s, counting, err));
                }
            }
            if (!counting && b->request->filter == NULL && (unusable != NULL || !any)) {
                skip(b, *k, "", unusable != NULL ? unusable : "its operator has no shapes here");
            }
        }
    }
    return OZ_OK;
}

enum oz_status oz_cpu_bench(struct oz_device *dev, const struct oz_bench_request *request,
                            struct oz_error *err)
{
    if (dev->plan_only) {
        return OZ_FAIL(err, OZ_ERR_DEVICE, "Device %s was opened for planning only.", dev->name);
    }
    if (request->repeats < 1 || request->repeats > MAX_REPEATS || request->passes < 1) {
        return OZ_FAIL(err, OZ_ERR_ARG, "A pass takes 1 to %d samples of a kernel, not %d.",
                       MAX_REPEATS, request->repeats);
    }
    struct bench b = {
        .dev = dev, .request = request, .only = *oz_cpu_of(dev), .alone = *oz_cpu_of(dev)};
    b.only.dev.impl = &b.only;
    b.alone.dev.impl = &b.alone;
    b.alone.dev.pool = NULL;
    enum oz_status status = walk(&b, true, err);
    if (status == OZ_OK && b.total == 0) {
        status = OZ_FAIL(err, OZ_ERR_ARG,
                         "No usable kernel or shape matches \"%s\"; \"ounce kernels\" lists the "
                         "kernels.",
                         request->filter != NULL ? request->filter : "");
    }
    for (b.pass = 0; b.pass < request->passes && status == OZ_OK; b.pass++) {
        memset(b.updates, 0, sizeof b.updates);
        status = walk(&b, false, err);
    }
    oz_ceiling_memory_close(&b.memory);
    return status;
}
