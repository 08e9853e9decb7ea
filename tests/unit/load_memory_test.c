/*
 * The loader's memory on a synthetic checkpoint: q, k and v of every block in different shards, one
 * giant embedding, one fused 3-D tensor. Anonymous memory at its peak is what arena and schedule say,
 * within 5 % + 8 MiB both ways, and at most the quantized bytes + 256 MiB.
 *
 * load_memory_test [MIB [rates [CODEC]]]: the checkpoint's size (96), and instead of the test the
 * rates of loading from the page cache: the load, reading alone, encoding alone.
 */
#include "test.h"

#include <malloc.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/pool.h"
#include "ckpt/writer.h"
#include "dev/ops.h"
#include "fill.h"
#include "load/load.h"
#include "num/float.h"
#include "ops/param.h"
#include "sampler.h"
#include "scratch.h"

#define MIB (INT64_C(1) << 20)
#define WIDTH 1536
#define MAX_ROWS 2048
#define PATTERN_ELEMENTS ((1 << 19) + 24)
#define REPEATS 7
#define MAX_BAND (4 << 20)

static struct oz_error err;
static struct oz_pool *pool;
static struct oz_device *dev;
static int64_t total_bytes = 96 * MIB;

static struct oz_arena host;
static struct oz_layer_table table;
static struct oz_ckpt *ckpt;
static struct oz_match *match;
static struct oz_param params[MAX_ROWS];
static struct oz_choice choices[MAX_ROWS];
static struct oz_ckpt_spec specs[MAX_ROWS];

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

static void add(struct oz_layer row, const char *name)
{
    row.bind = &params[table.count];
    struct oz_ckpt_spec *s = &specs[table.count];
    oz_layer_add(&table, &row, "%s", name);
    *s = (struct oz_ckpt_spec){
        .name = table.rows[table.count - 1].name, .dtype = OZ_DTYPE_BF16, .rank = row.rank};
    memcpy(s->shape, row.shape, (size_t)row.rank * sizeof *row.shape);
}

/* A fifth each for the embedding and the fused tensor, the rest for blocks. */
static void make_table(void)
{
    static const char *const parts[] = {"q", "k", "v", "out"};
    int64_t fifth = total_bytes / 5 / (2 * WIDTH);
    int blocks = (int)(total_bytes * 3 / 5 / (4 * 2 * WIDTH * WIDTH));
    for (int part = 0; part < 4; part++) {
        for (int block = 0; block < blocks; block++) {
            char name[64];
            struct oz_layer row = {
                .kind = OZ_LAYER_LINEAR, .rank = 2, .shape = {WIDTH, WIDTH}, .fused_index = part};
            row.fused = part < 3 ? oz_layer_string(&table, "blocks.%d.qkv", block) : NULL;
            (void)snprintf(name, sizeof name, "blocks.%d.%s.weight", block, parts[part]);
            add(row, name);
        }
    }
    add((struct oz_layer){.kind = OZ_LAYER_EMBED, .rank = 2, .shape = {fifth, WIDTH}},
        "embed.weight");
    add((struct oz_layer){.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {8, fifth / 8, WIDTH}},
        "experts.weight");
}

static void write_checkpoint(void)
{
    struct oz_ckpt_writer *w;
    uint16_t *pattern = oz_alloc(PATTERN_ELEMENTS * sizeof *pattern);
    for (uint32_t i = 0; i < PATTERN_ELEMENTS; i++) {
        pattern[i] = oz_f32_to_bf16((float)fill_value(1, i));
    }
    const struct oz_ckpt_writer_options options = {
        .folder = scratch_path("m"), .stem = "model", .max_shard_bytes = total_bytes * 3 / 20};
    scratch_folder("m");
    ok(oz_ckpt_writer_create(&w, &options, specs, table.count, &err));
    for (int32_t i; (i = oz_ckpt_writer_next(w)) >= 0;) {
        int64_t bytes = 2;
        for (int32_t d = 0; d < specs[i].rank; d++) {
            bytes *= specs[i].shape[d];
        }
        for (int64_t at = 0; at < bytes; at += PATTERN_ELEMENTS * 2) {
            int64_t n = bytes - at < PATTERN_ELEMENTS * 2 ? bytes - at : PATTERN_ELEMENTS * 2;
            ok(oz_ckpt_writer_put(w, pattern, (size_t)n, &err));
        }
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
    oz_free(pattern);
}

/* An adapter of rank 8 for every linear layer. */
static void write_lora(void)
{
    struct oz_ckpt_writer *w;
    static struct oz_ckpt_spec factors[2 * MAX_ROWS];
    static char names[2 * MAX_ROWS][64];
    static const char *const halves[] = {"lora_A", "lora_B"};
    static uint16_t values[8 * WIDTH];
    int32_t count = 0;
    for (int32_t i = 0; i < 8 * WIDTH; i++) {
        values[i] = oz_f32_to_bf16((float)fill_value(2, (uint32_t)i) / 64.0F);
    }
    for (int32_t i = 0; i < table.count; i++) {
        for (int half = 0; half < 2 && table.rows[i].kind == OZ_LAYER_LINEAR; half++) {
            struct oz_ckpt_spec *s = &factors[count];
            (void)snprintf(names[count], sizeof *names, "%s.%s.weight", table.rows[i].module,
                           halves[half]);
            *s = (struct oz_ckpt_spec){.name = names[count++],
                                       .dtype = OZ_DTYPE_BF16,
                                       .rank = 2,
                                       .shape = {half == 0 ? 8 : WIDTH, half == 0 ? WIDTH : 8}};
        }
    }
    const struct oz_ckpt_writer_options options = {.folder = scratch_path("l"), .stem = "x"};
    scratch_folder("l");
    ok(oz_ckpt_writer_create(&w, &options, factors, count, &err));
    while (oz_ckpt_writer_next(w) >= 0) {
        ok(oz_ckpt_writer_put(w, values, sizeof values, &err));
    }
    ok(oz_ckpt_writer_finish(w, &err));
    oz_ckpt_writer_destroy(&w);
}

static int start(void **state)
{
    /* What is given back goes back to the system, whatever was given back before. A sanitizer's
     * allocator has no such option. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 17);
    if (scratch_open(state) != 0) {
        return -1;
    }
    ok(oz_pool_create(&pool, 2, &err));
    ok(oz_device_open(&dev, "cpu", 0, pool, &err));
    ok(oz_arena_init_host(&host, "table", 1 << 22, &err));
    ok(oz_layer_table_init(&table, &host, "test", MAX_ROWS, 1));
    make_table();
    write_checkpoint();
    ok(oz_layer_table_finish(&table, &err));
    oz_params_describe(&table);
    ok(oz_ckpt_open(&ckpt, scratch_path("m"), NULL, &err));
    ok(oz_match_create(&match, ckpt, &table, NULL, &err));
    ok(oz_match_check(match, "m", &err));
    return 0;
}

static int stop(void **state)
{
    oz_match_destroy(&match);
    oz_ckpt_close(&ckpt);
    oz_arena_deinit(&host);
    oz_device_close(&dev);
    oz_pool_destroy(&pool);
    return scratch_close(state);
}

static struct oz_assignment assign(const char *codec, bool fused)
{
    for (int32_t i = 0; i < table.count; i++) {
        bool quantized = table.rows[i].kind != OZ_LAYER_EMBED;
        choices[i].rule = codec;
        choices[i].scheme = (struct oz_scheme){.name = quantized ? codec : "as stored",
                                               .codec = quantized ? oz_codec_find(codec) : NULL,
                                               .scope = fused ? OZ_SCOPE_FUSED : OZ_SCOPE_OWN,
                                               .mode_count = 1};
    }
    return (struct oz_assignment){.table = &table, .choices = choices};
}

/* ---- memory ---- */

static void peak_is_as_predicted(const char *codec, bool fused, const struct oz_lora *lora)
{
    struct oz_assignment assignment = assign(codec, fused);
    struct oz_load_stats stats = {0};
    struct oz_load_schedule schedule;
    struct oz_arena measure;
    struct oz_arena model;
    struct sampler sampler;
    oz_arena_init_measure(&measure, "model");
    struct oz_load_args args = {.match = match,
                                .dev = dev,
                                .model = &measure,
                                .assignment = &assignment,
                                .lora = lora,
                                .schedule = &schedule};
    ok(oz_load_component(&args, &err));
    int64_t predicted =
        (int64_t)measure.used_bytes + schedule.staging_bytes + schedule.bookkeeping_bytes;
    oz_load_schedule_deinit(&schedule);
    ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
    args.model = &model;
    args.stats = &stats;
    int64_t before = oz_memory_anonymous("");
    sampler_start(&sampler);
    ok(oz_load_component(&args, &err));
    int64_t peak = sampler_stop(&sampler) - before;
    int64_t allowed = predicted / 20 + 8 * MIB;
    print_message("%s%s: anonymous peak %.1f MiB, predicted %.1f (arena %.1f, staging %.1f); read "
                  "%.1f MiB, of which %.1f again\n",
                  codec, lora != NULL ? " with an adapter" : "", (double)peak / (double)MIB,
                  (double)predicted / (double)MIB, (double)measure.used_bytes / (double)MIB,
                  (double)stats.staging_bytes / (double)MIB,
                  (double)schedule.read_bytes / (double)MIB,
                  (double)(schedule.read_bytes - schedule.tensor_bytes) / (double)MIB);
    assert_true(peak <= predicted + allowed && peak >= predicted - allowed);
    assert_true(peak <= stats.encoded_bytes + 256 * MIB);
    oz_load_schedule_deinit(&schedule);
    oz_arena_deinit(&model);
}

static void memory(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their shadows are anonymous memory too */
#endif
    peak_is_as_predicted("int8_channel", false, NULL);
    peak_is_as_predicted("mxfp4", false, NULL);
    peak_is_as_predicted("fp8_tensor", true, NULL);
    peak_is_as_predicted("fp8_block", false, NULL);
    peak_is_as_predicted("nvfp4", false, NULL);
    peak_is_as_predicted("nf4_nested", false, NULL);
    struct oz_lora *lora;
    const char *file = scratch_path("l/x.safetensors");
    write_lora();
    ok(oz_lora_open(&lora, match, &file, 1, 0, &err));
    peak_is_as_predicted("mxfp4", false, lora);
    peak_is_as_predicted("fp8_tensor", true, lora);
    oz_lora_close(&lora);
}

/* ---- rates ---- */

struct rates {
    const struct oz_load_schedule *schedule;
    uint8_t *buffers; /* a band for each thread, or all tensors one after the other */
    int64_t *places;  /* of steps in buffers */
};

static atomic_bool failed;

static void read_steps(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    struct rates *r = ctx;
    for (int64_t i = begin; i < end; i++) {
        const struct oz_load_step *s = &r->schedule->steps[i];
        const struct oz_tensor_view *t = oz_ckpt_tensor(ckpt, match->row_tensor[s->row]);
        uint8_t *to =
            r->places != NULL ? r->buffers + r->places[i] : r->buffers + (int64_t)thread * MAX_BAND;
        if (s->bytes > 0) {
            struct oz_error e;
            if (oz_ckpt_read(ckpt, t, s->offset - t->file_offset, s->bytes, to, &e) != OZ_OK) {
                atomic_store(&failed, true);
            }
        }
    }
}

static void encode_steps(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    struct rates *r = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const struct oz_load_step *s = &r->schedule->steps[i];
        struct oz_weight w = params[s->row].weight;
        const struct oz_encoder *e = dev->ops->find_encoder(dev, w.codec, OZ_DTYPE_BF16);
        const uint8_t *src = r->buffers + r->places[i];
        struct oz_encode_state state;
        oz_encode_state_init(&state);
        bool observes = s->pass < w.codec->observe_passes;
        state.amax = 1; /* learnt, where a pass learns it */
        if (e != NULL && w.codec->begin != NULL && !observes) {
            w.codec->begin(&w, s->slice, &state);
        }
        if (e == NULL ||
            !(observes ? e->observe(&w, s->first_row, src, s->rows, w.cols, &state)
                       : e->encode(&w, s->slice, s->first_row, src, s->rows, w.cols, &state))) {
            atomic_store(&failed, true);
        }
    }
}

/* Fresh planes for all weights that are encoded, in the kind of memory that models have: what is packed
 * has none of its own. */
static void *own_planes(void)
{
    int64_t total = 0;
    uint8_t *memory = NULL;
    for (int pass = 0; pass < 2; pass++) {
        int64_t at = 0;
        for (int32_t i = 0; i < table.count; i++) {
            struct oz_weight *w = &params[i].weight;
            for (int p = 0; p < OZ_PLANE_COUNT && table.rows[i].kind != OZ_LAYER_EMBED; p++) {
                struct oz_plane_view *plane = &w->planes[p];
                if (!plane->present) {
                    continue;
                }
                ok(oz_weight_plane_bytes(w, (enum oz_plane)p, &plane->bytes,
                                         &plane->row_stride_bytes));
                plane->slice_stride_bytes = plane->bytes / w->slices;
                plane->data = memory != NULL ? memory + at : NULL;
                at += (plane->bytes + 63) / 64 * 64;
            }
        }
        total = at;
        memory = pass == 0 ? oz_alloc_large((size_t)total, 64) : memory;
        assert_non_null(memory);
    }
    return memory;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, REPEATS, sizeof *values, by_value);
    return values[REPEATS / 2];
}

/* Where each step's rows lie among all: those of a later pass where the first one's do. Bytes of all. */
static int64_t find_places(const struct oz_load_schedule *s, int64_t *places)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const struct oz_load_step *step = &s->steps[i];
        int64_t first = 0;
        while (s->steps[first].row != step->row || s->steps[first].slice != step->slice ||
               s->steps[first].first_row != step->first_row) {
            first++;
        }
        places[i] = first < i ? places[first] : bytes;
        bytes += first < i ? 0 : step->rows * WIDTH * 2;
        assert_true(step->bytes <= MAX_BAND);
    }
    return bytes;
}

/* Seconds of reading bands, of loading, of encoding bands from memory to fresh memory. */
static void time_once(const struct rates *bench, size_t model_bytes, struct oz_load_args *args,
                      uint8_t *bands, double seconds[3])
{
    struct rates r = {.schedule = bench->schedule, .buffers = bands};
    double t = oz_clock_seconds();
    oz_pool_for(pool, r.schedule->count, 1, read_steps, &r);
    seconds[0] = oz_clock_seconds() - t;
    struct oz_arena model;
    struct oz_load_schedule mine;
    void *memory;
    args->schedule = &mine;
    t = oz_clock_seconds();
    ok(dev->alloc(dev, model_bytes, &memory, &err));
    oz_arena_init_view(&model, "model", memory, model_bytes, true);
    args->model = &model;
    ok(oz_load_component(args, &err));
    seconds[1] = oz_clock_seconds() - t;
    oz_load_schedule_deinit(&mine);
    oz_arena_deinit(&model);
    dev->free(dev, memory);
    r = *bench;
    t = oz_clock_seconds();
    void *owned = own_planes();
    oz_pool_for(pool, r.schedule->count, 1, encode_steps, &r);
    seconds[2] = oz_clock_seconds() - t;
    oz_free(owned);
}

/*
 * Medians over rounds, GB/s of bf16 input: the load; reading its bands alone; encoding them alone. The
 * load's share of the slower one, and of doing one after the other on the same threads: there is no
 * third to overlap them with, so that is what can be reached.
 */
static void rate_of(const char *codec)
{
    struct oz_assignment assignment = assign(codec, false);
    double gbs[3][REPEATS];
    double share[2][REPEATS];
    double seconds[3];
    struct oz_load_schedule schedule;
    struct oz_arena measure;
    oz_arena_init_measure(&measure, "model");
    struct oz_load_args args = {.match = match,
                                .dev = dev,
                                .model = &measure,
                                .assignment = &assignment,
                                .schedule = &schedule};
    ok(oz_load_component(&args, &err));
    int64_t *places = oz_alloc((size_t)schedule.count * sizeof *places);
    uint8_t *all = oz_alloc_large((size_t)find_places(&schedule, places), 64);
    uint8_t *bands = oz_alloc_zero(2, MAX_BAND);
    struct rates r = {.schedule = &schedule, .places = places, .buffers = all};
    oz_pool_for(pool, schedule.count, 1, read_steps, &r);
    for (int i = 0; i < REPEATS; i++) {
        time_once(&r, measure.used_bytes, &args, bands, seconds);
        double slower = seconds[0] > seconds[2] ? seconds[0] : seconds[2];
        share[0][i] = 100 * slower / seconds[1];
        share[1][i] = 100 * (seconds[0] + seconds[2]) / seconds[1];
        for (int k = 0; k < 3; k++) {
            gbs[k][i] = (double)schedule.tensor_bytes / seconds[k] * 1e-9;
        }
    }
    assert_false(atomic_load(&failed));
    print_message("%-13s load %5.2f GB/s, read %5.2f, encode %5.2f: %3.0f %% of the slower one, "
                  "%3.0f %% of both in turn\n",
                  codec, median(gbs[1]), median(gbs[0]), median(gbs[2]), median(share[0]),
                  median(share[1]));
    oz_free(places);
    oz_free(all);
    oz_free(bands);
    oz_load_schedule_deinit(&schedule);
}

static const char *wanted; /* codec; NULL: all */

static void rates(void **state)
{
    static const char *const codecs[] = {"int8_channel", "mxfp4",      "mxfp8", "fp8_channel",
                                         "fp8_block",    "fp8_tensor", "nvfp4"};
    (void)state;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        if (wanted == NULL || strcmp(wanted, codecs[i]) == 0) {
            rate_of(codecs[i]);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory)};
    const struct CMUnitTest benches[] = {cmocka_unit_test(rates)};
    if (argc > 1) {
        total_bytes = strtoll(argv[1], NULL, 10) * MIB;
    }
    wanted = argc > 3 ? argv[3] : NULL;
    return argc > 2 ? cmocka_run_group_tests(benches, start, stop)
                    : cmocka_run_group_tests(tests, start, stop);
}
