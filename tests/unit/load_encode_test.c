/*
 * Loads onto a device that encodes rows itself (late_device.h): byte for byte what the host would have made,
 * whatever the ring, the shards and the transforms; NaN and infinity by name; faults leave nothing behind.
 * Dummy weights that such a device draws are those of the host.
 */
#include "load_model.h"

#include <math.h>

#include "base/alloc.h"
#include "ckpt/drawn.h"
#include "late_device.h"
#include "load/load.h"
#include "num/float.h"
#include "scratch.h"

static struct oz_device far;

static void begin(int threads)
{
    late_device_init(&far, devices[threads]);
    late_device_encodes(&far);
}

static void expect_nothing_held(void)
{
    assert_int_equal(late_device.queues, 0);
    assert_int_equal(late_device_pinned(), 0);
    assert_int_equal(late_device_taken(), 0);
}

/* Does the report name the device's encoder for the row, as it should? */
static void expect_encoder(const struct loaded *l, const char *tensor, bool on_device)
{
    for (int64_t i = 0; i < l->report.count; i++) {
        const struct oz_load_entry *e = &l->report.entries[i];
        if (strcmp(e->tensor->name, tensor) == 0) {
            assert_non_null(e->encoder);
            assert_int_equal(strcmp(e->encoder, LATE_ENCODER) == 0, on_device);
            return;
        }
    }
    fail_msg("%s is not in the report", tensor);
}

static void same_bytes_as_the_host(void **state)
{
    for (size_t c = 0; c < CODECS; c++) {
        for (int fused = 0; fused < 2; fused++) {
            load_model_blocks(codecs[c], fused);
            for (int threads = 1; threads < 4; threads++) {
                for (int64_t ring = 1 << 18; ring <= OZ_LOAD_RING_BYTES; ring *= 16) {
                    struct loaded l;
                    begin(threads);
                    load_model_ok(load_model_load(&l, &far, ring));
                    load_model_expect_all();
                    expect_encoder(&l, "experts.weight", true);
                    expect_encoder(&l, "wide.weight", false); /* f32 */
                    expect_encoder(&l, "half.weight", false);
                    assert_true(late_device.encoded > 0);
                    assert_true(l.schedule.rooms_bytes > 0);
                    load_model_unload(&l);
                    expect_nothing_held();
                }
            }
            load_model_close_model();
        }
    }
}

/* The least ring: one chunk at a time, scopes read again for each pass. */
static void tiny_rings(void **state)
{
    for (size_t c = 0; c < CODECS; c++) {
        struct loaded l;
        load_model_blocks(codecs[c], true);
        begin(3);
        assert_int_equal(load_model_load(&l, &far, 1), OZ_ERR_ARG);
        const char *give = strstr(err.message, "give it ");
        assert_non_null(give);
        load_model_ok(load_model_load(&l, &far, strtoll(give + 8, NULL, 10)));
        load_model_expect_all();
        load_model_unload(&l);
        expect_nothing_held();
        load_model_close_model();
    }
}

static void moved_rows(void **state)
{
    static int32_t order[24];
    for (int i = 0; i < 24; i++) {
        order[i] = (i * 7) % 24;
    }
    for (uint32_t k = 0; k < 16; k++) {
        for (size_t c = 0; c < CODECS; c++) {
            struct loaded l;
            struct oz_layer e = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {3, 24, 40}};
            e.permutation = order;
            e.transform =
                (k & 1 ? OZ_TRANSFORM_PERMUTE : 0U) | (k & 2 ? OZ_TRANSFORM_SWAP_HALVES : 0U) |
                (k & 4 ? OZ_TRANSFORM_TRANSPOSE : 0U) | (k & 8 ? OZ_TRANSFORM_ADD_ONE : 0U);
            if (k & 4) {
                e.file_rank = 3;
                memcpy(e.file_shape, (const int64_t[]){3, 40, 24}, 24);
            }
            load_model_new_model();
            load_model_add("e", e, OZ_DTYPE_BF16, &params[0], codecs[c]);
            load_model_write_model(0);
            load_model_open_model();
            begin(2);
            load_model_ok(load_model_load(&l, &far, 0));
            load_model_expect_all();
            expect_encoder(&l, "e", (k & 8) == 0); /* values that change are the host's */
            load_model_unload(&l);
            load_model_close_model();
        }
    }
}

/* A tensor with several values that are not finite: the message is the host's. */
static void what_is_not_finite(void **state)
{
    for (size_t c = 0; c < CODECS; c++) {
        struct loaded l;
        char host_says[sizeof err.message];
        load_model_new_model();
        load_model_add("a.weight", load_model_matrix(OZ_LAYER_LINEAR, 4096, 512), OZ_DTYPE_BF16,
                       &params[0], codecs[c]);
        load_model_write_model(0);
        load_model_open_model();
        FILE *f = fopen(scratch_path("m/model.safetensors"), "r+b");
        assert_non_null(f);
        const struct oz_tensor_view *t = oz_ckpt_find(ckpt, "a.weight", NULL);
        for (int i = 0; i < 8; i++) {
            const uint16_t bits = i == 0 ? 0xFF80 : 0x7FC0; /* -infinity, NaN */
            assert_int_equal(
                fseek(f, (long)t->file_offset + (300 + 400 * i) * 1024L + 34, SEEK_SET), 0);
            assert_int_equal(fwrite(&bits, 2, 1, f), 1);
        }
        (void)fclose(f);
        oz_match_destroy(&match);
        oz_ckpt_close(&ckpt);
        load_model_ok(oz_ckpt_open(&ckpt, scratch_path("m"), NULL, &err));
        load_model_ok(oz_match_create(&match, ckpt, &table, NULL, &err));
        assert_int_equal(load_model_load(&l, devices[2], 0), OZ_ERR_FORMAT);
        assert_non_null(strstr(err.message, "is -infinite at [300, 17]"));
        memcpy(host_says, err.message, sizeof host_says);
        load_model_unload(&l);
        for (int64_t ring = 1 << 19; ring <= OZ_LOAD_RING_BYTES; ring *= 16) {
            begin(3);
            assert_int_equal(load_model_load(&l, &far, ring), OZ_ERR_FORMAT);
            assert_string_equal(err.message, host_says);
            assert_null(params[0].weight.planes[OZ_PLANE_CODES].data);
            load_model_unload(&l);
            expect_nothing_held();
        }
        load_model_close_model();
    }
}

static void a_device_that_fails(void **state)
{
    load_model_blocks("mxfp8", true);
    for (int what = 0; what < 2; what++) {
        enum oz_status status = OZ_ERR_DEVICE;
        int32_t left = 0;
        for (; status != OZ_OK; left++) {
            struct loaded l;
            begin(2);
            *(what == 0 ? &late_device.uploads_left : &late_device.encodes_left) = left;
            status = load_model_load(&l, &far, 1 << 18);
            assert_true(status == OZ_OK || status == OZ_ERR_DEVICE);
            load_model_unload(&l);
            expect_nothing_held();
        }
        assert_true(left > 4);
    }
    load_model_close_model();
}

/* ---- dummies ---- */

static void draw(const char *codec)
{
    static const struct oz_filling filling = {.scale = 0.02F};
    const struct oz_ckpt_spec specs[] = {
        {.name = "a.weight", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {301, 77}},
        {.name = "b.weight", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {64, 512}},
        {.name = "c.weight", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {40, 24}},
        {.name = "d.weight", .dtype = OZ_DTYPE_BF16, .rank = 2, .shape = {500, 40}},
    };
    enum { COUNT = sizeof specs / sizeof *specs };
    struct oz_filling fillings[COUNT] = {filling, {.constant = 1, .scale = 0.5F}, filling, filling};
    load_model_new_model();
    for (int i = 0; i < COUNT; i++) {
        struct oz_layer row = load_model_matrix(i == 3 ? OZ_LAYER_EMBED : OZ_LAYER_LINEAR,
                                                specs[i].shape[0], specs[i].shape[1]);
        if (i == 2) { /* not as it lies */
            row = load_model_matrix(OZ_LAYER_LINEAR, 24, 40);
            row.transform = OZ_TRANSFORM_TRANSPOSE;
            row.file_rank = 2;
            memcpy(row.file_shape, specs[i].shape, 16);
        }
        load_model_add(specs[i].name, row, OZ_DTYPE_BF16, &params[i], i < 3 ? codec : NULL);
    }
    const struct oz_ckpt_drawing drawing = {
        .specs = specs, .fillings = fillings, .count = COUNT, .seed = 5, .name = "m"};
    load_model_ok(oz_ckpt_draw(&ckpt, &drawing, &err));
    load_model_ok(oz_match_create(&match, ckpt, &table, NULL, &err));
}

static void dummies_are_the_hosts(void **state)
{
    for (size_t c = 0; c < CODECS; c++) {
        struct loaded here;
        struct loaded there;
        draw(codecs[c]);
        struct oz_device near = *devices[2];
        near.host_memory = false;
        load_model_ok(load_model_load(&here, &near, 0));
        for (int64_t ring = 1 << 18; ring <= OZ_LOAD_RING_BYTES; ring *= 16) {
            begin(2);
            load_model_ok(load_model_load(&there, &far, ring));
            assert_true(late_device.drawn > 0);
            assert_int_equal(here.model.used_bytes, there.model.used_bytes);
            assert_memory_equal(here.model.base, there.model.base, here.model.used_bytes);
            load_model_unload(&there);
            expect_nothing_held();
        }
        load_model_unload(&here);
        load_model_close_model();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_as_the_host),
        cmocka_unit_test(tiny_rings),
        cmocka_unit_test(moved_rows),
        cmocka_unit_test(what_is_not_finite),
        cmocka_unit_test(a_device_that_fails),
        cmocka_unit_test(dummies_are_the_hosts),
    };
    return cmocka_run_group_tests(tests, load_model_start, load_model_stop);
}
