/*
 * The loader on bad weights, bad disks, files that change and memory that ends: errors by name, the
 * same whatever the threads do, and nothing left behind; progress, cancelling, and the report.
 */
#include "load_model.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/pool.h"
#include "ckpt/writer.h"
#include "cpu/kernel.h"
#include "dev/ops.h"
#include "fill.h"
#include "load/load.h"
#include "num/float.h"
#include "ops/param.h"
#include "scratch.h"

/* ---- NaN and infinity ---- */

static void what_is_not_finite(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    static const char *const says[] = {"is NaN at [1, 29, 3]", "is infinite at [1, 29, 3]",
                                       "is -infinite at [1, 29, 3]"};
    for (size_t c = 0; c < CODECS; c++) {
        for (int i = 0; i < 3; i++) {
            struct oz_layer e = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {2, 24, 40}};
            struct loaded l;
            load_model_new_model();
            e.transform = OZ_TRANSFORM_TRANSPOSE; /* the place is the file's */
            e.file_rank = 3;
            memcpy(e.file_shape, (const int64_t[]){2, 40, 24}, 24);
            load_model_add("some.experts", e, OZ_DTYPE_BF16, &params[0], codecs[c]);
            odd_tensor = 0;
            odd_at = (1 * 40 + 29) * 24 + 3;
            odd_value = odd[i];
            load_model_write_model(0);
            load_model_open_model();
            for (int threads = 1; threads < 4; threads++) {
                assert_int_equal(load_model_load(&l, devices[threads], 0), OZ_ERR_FORMAT);
                assert_non_null(strstr(err.message, "Tensor some.experts of "));
                assert_non_null(strstr(err.message, says[i]));
                assert_non_null(strstr(err.message, "ignored_layers: \"some\""));
                assert_null(params[0].weight.planes[OZ_PLANE_CODES].data);
                load_model_unload(&l);
            }
            struct oz_arena measure;
            oz_arena_init_measure(&measure, "model");
            struct oz_load_args args = load_model_args_of(devices[2], 0, &measure);
            args.keep_nonfinite = true;
            load_model_ok(oz_load_component(&args, &err));
            struct oz_arena model;
            load_model_ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
            args.model = &model;
            load_model_ok(oz_load_component(&args, &err));
            float got;
            params[0].weight.codec->decode(&params[0].weight, 1, 3, 29, 1, &got);
            assert_true(isnan(got) || isinf(got));
            oz_arena_deinit(&model);
            load_model_close_model();
        }
    }
}

/* Of several, the first of the first band: whatever the threads do. */
static void the_first_of_several_is_named(void **state)
{
    struct loaded l;
    char first[512] = "";
    load_model_new_model();
    load_model_add("a", load_model_matrix(OZ_LAYER_LINEAR, 4000, 512), OZ_DTYPE_BF16, &params[0],
                   "f16");
    load_model_write_model(0);
    load_model_open_model();
    FILE *f = fopen(scratch_path("m/model.safetensors"), "r+b");
    assert_non_null(f);
    const struct oz_tensor_view *t = oz_ckpt_find(ckpt, "a", NULL);
    for (int i = 0; i < 8; i++) { /* in eight bands */
        const uint16_t nan = 0x7FC0;
        assert_int_equal(fseek(f, (long)t->file_offset + (300 + 400 * i) * 1024L + 34, SEEK_SET),
                         0);
        assert_int_equal(fwrite(&nan, 2, 1, f), 1);
    }
    (void)fclose(f);
    oz_match_destroy(&match);
    oz_ckpt_close(&ckpt);
    load_model_ok(oz_ckpt_open(&ckpt, scratch_path("m"), NULL, &err));
    load_model_ok(oz_match_create(&match, ckpt, &table, NULL, &err));
    for (int i = 0; i < 30; i++) {
        assert_int_equal(load_model_load(&l, devices[1 + i % 3], 0), OZ_ERR_FORMAT);
        assert_non_null(strstr(err.message, "at [300, 17]"));
        if (i == 0) {
            (void)snprintf(first, sizeof first, "%.500s", err.message);
        }
        assert_string_equal(err.message, first);
        load_model_unload(&l);
    }
    load_model_close_model();
}

/* ---- faults ---- */

static atomic_int reads, fail_at;

/* In the place of the system's pread (the linker's --wrap). */
typedef ssize_t (*pread_fn)(int fd, void *dst, size_t bytes, off_t offset);
static _Atomic(pread_fn) instead; /* NULL: the system's */

ssize_t __real_pread(int fd, void *dst, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset)
{
    pread_fn fn = atomic_load(&instead);
    return (fn != NULL ? fn : __real_pread)(fd, dst, bytes, offset);
}

static ssize_t short_reads(int fd, void *dst, size_t bytes, off_t offset)
{
    if (atomic_fetch_add(&reads, 1) % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return __real_pread(fd, dst, bytes < 700 ? bytes : 700, offset);
}

static ssize_t bad_disk(int fd, void *dst, size_t bytes, off_t offset)
{
    if (atomic_fetch_add(&reads, 1) == atomic_load(&fail_at)) {
        errno = EIO;
        return -1;
    }
    return __real_pread(fd, dst, bytes, offset);
}

static void reads_that_come_in_pieces(void **state)
{
    struct loaded l;
    load_model_blocks(codecs[0], false);
    atomic_store(&instead, short_reads);
    load_model_ok(load_model_load(&l, devices[3], 0));
    atomic_store(&instead, NULL);
    load_model_expect_all();
    load_model_unload(&l);
    load_model_close_model();
}

static void a_disk_that_fails(void **state)
{
    load_model_blocks(codecs[0], false);
    for (int at = 0;; at += 3) {
        struct loaded l;
        atomic_store(&reads, 0);
        atomic_store(&fail_at, at);
        atomic_store(&instead, bad_disk);
        enum oz_status status = load_model_load(&l, devices[1 + at % 3], 0);
        atomic_store(&instead, NULL);
        if (status == OZ_OK) {
            assert_true(at > 9); /* every band was read by itself */
            load_model_unload(&l);
            break;
        }
        assert_int_equal(status, OZ_ERR_IO);
        assert_non_null(strstr(err.message, "Cannot read tensor "));
        assert_non_null(strstr(err.message, ".safetensors: Input/output error"));
        for (int i = 0; i < 10; i++) {
            assert_null(params[i].weight.planes[OZ_PLANE_CODES].data);
        }
        load_model_unload(&l);
    }
    load_model_close_model();
}

static void files_that_change(void **state)
{
    struct oz_arena measure;
    struct oz_arena model;
    for (int how = 0; how < 2; how++) {
        load_model_blocks(codecs[0], false);
        oz_arena_init_measure(&measure, "model");
        struct oz_load_args args = load_model_args_of(devices[2], 0, &measure);
        load_model_ok(oz_load_component(&args, &err));
        load_model_ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
        args.model = &model;
        const char *path = oz_ckpt_file(ckpt, 1)->path;
        /* File systems date a write by the clock's tick. */
        (void)nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        if (how == 0) {
            assert_int_equal(ftruncate(fileno(f), oz_ckpt_file(ckpt, 1)->bytes - 1000), 0);
        } else {
            assert_int_equal(fseek(f, -1, SEEK_END), 0);
            assert_int_equal(fputc(1, f), 1);
        }
        (void)fclose(f);
        assert_int_equal(oz_load_component(&args, &err), OZ_ERR_IO);
        assert_non_null(strstr(err.message, path));
        if (strstr(err.message, "while it was in use") == NULL) {
            fail_msg("%s", err.message);
        }
        oz_arena_deinit(&model);
        load_model_close_model();
    }
}

/* Cut in the middle of the load: the read meets the end. */
static const char *cut_path;

static ssize_t cutting(int fd, void *dst, size_t bytes, off_t offset)
{
    if (atomic_fetch_add(&reads, 1) == 4 && truncate(cut_path, 2000) != 0) {
        return -1;
    }
    return __real_pread(fd, dst, bytes, offset);
}

static void a_file_that_is_cut_while_it_is_read(void **state)
{
    struct loaded l;
    load_model_new_model();
    load_model_add("a", load_model_matrix(OZ_LAYER_LINEAR, 9000, 512), OZ_DTYPE_BF16, &params[0],
                   "f16");
    load_model_write_model(0);
    load_model_open_model();
    cut_path = oz_ckpt_file(ckpt, 0)->path;
    atomic_store(&reads, 0);
    atomic_store(&instead, cutting);
    assert_int_equal(load_model_load(&l, devices[2], 0), OZ_ERR_IO);
    atomic_store(&instead, NULL);
    assert_non_null(strstr(err.message, "Cannot read tensor a from "));
    assert_non_null(strstr(err.message, "the file has become shorter"));
    load_model_unload(&l);
    load_model_close_model();
}

static void no_memory(void **state)
{
    int failures = 0;
    load_model_blocks(codecs[0], true);
    for (uint64_t n = 1;; n++) {
        struct oz_arena measure;
        struct oz_load_report report = {0};
        oz_arena_init_measure(&measure, "model");
        struct oz_load_args args = load_model_args_of(devices[2], 0, &measure);
        load_model_ok(oz_load_component(&args, &err));
        struct oz_arena model;
        load_model_ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
        args.model = &model;
        args.report = &report;
        args.ring_bytes = 3 << 19; /* fewer workers than threads: a pool of its own */
        oz_alloc_fail_at(n, 0);
        enum oz_status status = oz_load_component(&args, &err);
        oz_alloc_fail_at(0, 0);
        oz_load_report_deinit(&report);
        oz_arena_deinit(&model);
        if (status == OZ_OK) {
            break;
        }
        assert_int_equal(status, OZ_ERR_NOMEM);
        failures++;
    }
    assert_true(failures > 8);
    load_model_close_model();
}

/* ---- progress, cancelling, reports ---- */

struct watcher {
    int64_t done, total;
    int calls, stop_at;
};

static int watch(void *ctx, const struct oz_progress *p)
{
    struct watcher *w = ctx;
    assert_true(p->stage == OZ_STAGE_LOAD && p->total == w->total);
    assert_true(p->done > w->done && p->done <= p->total);
    w->done = p->done;
    return ++w->calls == w->stop_at;
}

static void progress_and_cancelling(void **state)
{
    for (size_t c = 0; c < CODECS; c++) {
        load_model_blocks(codecs[c], true);
        for (int stop_at = 0; stop_at < 12; stop_at++) {
            struct oz_arena measure;
            struct oz_arena model;
            int64_t done = 0;
            struct watcher w = {.total = oz_load_bytes(&(struct oz_load_args){.match = match}),
                                .stop_at = stop_at};
            oz_arena_init_measure(&measure, "model");
            struct oz_load_args args =
                load_model_args_of(devices[1 + stop_at % 3], 1 << 18, &measure);
            load_model_ok(oz_load_component(&args, &err));
            load_model_ok(oz_arena_init_host(&model, "model", measure.used_bytes, &err));
            args.model = &model;
            args.progress = watch;
            args.progress_ctx = &w;
            args.done_bytes = &done;
            enum oz_status status = oz_load_component(&args, &err);
            if (stop_at == 0) {
                load_model_ok(status);
                assert_int_equal(w.done, w.total);
                assert_int_equal(done, w.total);
            } else if (status == OZ_ERR_CANCELLED) {
                assert_int_equal(w.calls, stop_at);
                assert_null(params[0].weight.planes[OZ_PLANE_CODES].data);
            } else {
                load_model_ok(status); /* fewer reports than that: other threads took the bands */
            }
            oz_arena_deinit(&model);
        }
        load_model_close_model();
    }
}

static void every_tensor_is_accounted_for(void **state)
{
    static const struct oz_ignore rule = {
        .name = "vision tower", .prefix = "visual", .reason = "not used"};
    for (size_t c = 0; c < CODECS; c++) {
        struct loaded l;
        struct oz_buf json;
        struct oz_json *parsed;
        int fates[OZ_FATE_COUNT] = {0};
        int64_t resident = 0;
        int64_t read = 0;
        load_model_new_model();
        load_model_add("b.q.weight", load_model_matrix(OZ_LAYER_LINEAR, 64, 64), OZ_DTYPE_BF16,
                       &params[0], codecs[c]);
        struct oz_layer tied = load_model_matrix(OZ_LAYER_LINEAR, 64, 64);
        load_model_add("b.kept.weight", tied, OZ_DTYPE_BF16, &params[1], NULL);
        tied.bind = &params[2];
        tied.tied_to = "b.kept.weight";
        oz_layer_add(&table, &tied, "head.weight");
        choices[table.count - 1] = choices[table.count - 2];
        struct oz_layer norm = {.kind = OZ_LAYER_NORM, .rank = 1, .shape = {96}};
        load_model_add("norm.weight", norm, OZ_DTYPE_BF16, &params[3], NULL);
        load_model_add("listed.weight", norm, OZ_DTYPE_BF16, NULL, NULL);
        (void)load_model_add_tensor("visual.x", OZ_DTYPE_BF16, 1, norm.shape);
        oz_layer_ignore(&table, &rule);
        load_model_write_model(0);
        load_model_open_model();
        load_model_ok(load_model_load(&l, devices[2], 0));
        assert_int_equal(l.report.count, 6);
        for (int64_t i = 0; i < l.report.count; i++) {
            const struct oz_load_entry *e = &l.report.entries[i];
            fates[e->fate]++;
            resident += e->resident_bytes;
            read += e->fate == OZ_FATE_ENCODED ? e->read_bytes : 0;
            assert_non_null(e->tensor);
            assert_true((e->fate == OZ_FATE_ENCODED) == (e->encoder != NULL));
        }
        assert_true(fates[OZ_FATE_ENCODED] == 1 && fates[OZ_FATE_MAPPED] == 2 &&
                    fates[OZ_FATE_STORED] == 1 && fates[OZ_FATE_LISTED] == 1 &&
                    fates[OZ_FATE_IGNORED] == 1);
        assert_int_equal(resident, l.stats.arena_bytes);
        assert_int_equal(read, 64 * 64 * 2);
        assert_int_equal(l.stats.mapped_bytes, 2 * 64 * 64 * 2);
        oz_buf_init(&json, 1 << 20);
        oz_buf_puts(&json, "{\"report\": ");
        oz_load_report_json(&l.report, &json);
        oz_buf_puts(&json, ", \"schedule\": ");
        oz_load_schedule_json(&l.schedule, match, &json);
        oz_buf_puts(&json, "}");
        load_model_ok(oz_json_parse(&parsed, json.data, json.bytes, "the report", &err));
        const struct oz_json *list = oz_json_get(parsed, "report");
        assert_int_equal(oz_json_count(list), 6);
        assert_string_equal(oz_json_string(oz_json_get(oz_json_at(list, 5), "rule"), ""),
                            "vision tower");
        const struct oz_json *steps = oz_json_get(oz_json_get(parsed, "schedule"), "steps");
        assert_int_equal(oz_json_count(steps), 1); /* bands that continue one another are one */
        assert_int_equal(oz_json_integer(oz_json_get(oz_json_at(steps, 0), "bytes"), 0),
                         64 * 64 * 2);
        oz_json_free(parsed);
        oz_buf_deinit(&json);
        load_model_unload(&l);
        load_model_close_model();
    }
}

/* Scopes follow one another by their place in the files, whatever the table's order. */
static void reads_are_sorted(void **state)
{
    struct loaded l;
    load_model_blocks(codecs[0], false);
    load_model_ok(load_model_load(&l, devices[1], 0));
    for (int64_t i = 1; i < l.schedule.count; i++) {
        const struct oz_load_step *a = &l.schedule.steps[i - 1];
        const struct oz_load_step *b = &l.schedule.steps[i];
        assert_true(a->file < b->file || (a->file == b->file && a->offset + a->bytes <= b->offset));
    }
    assert_int_equal(l.schedule.read_bytes, l.schedule.tensor_bytes);
    load_model_unload(&l);
    load_model_close_model();
}

static void schemes_that_do_not_apply(void **state)
{
    struct loaded l;
    struct oz_layer conv = {.kind = OZ_LAYER_CONV, .rank = 4, .shape = {4, 6, 3, 3}};
    load_model_new_model();
    load_model_add("c.weight", conv, OZ_DTYPE_BF16, &params[0], "f16");
    load_model_write_model(0);
    load_model_open_model();
    assert_int_equal(load_model_load(&l, devices[1], 0), OZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "c.weight: f16 quantizes linear layers"));
    load_model_unload(&l);
    load_model_close_model();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_finite),
        cmocka_unit_test(the_first_of_several_is_named),
        cmocka_unit_test(reads_that_come_in_pieces),
        cmocka_unit_test(a_disk_that_fails),
        cmocka_unit_test(files_that_change),
        cmocka_unit_test(a_file_that_is_cut_while_it_is_read),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(progress_and_cancelling),
        cmocka_unit_test(every_tensor_is_accounted_for),
        cmocka_unit_test(reads_are_sorted),
        cmocka_unit_test(schemes_that_do_not_apply),
    };
    return cmocka_run_group_tests(tests, load_model_start, load_model_stop);
}
