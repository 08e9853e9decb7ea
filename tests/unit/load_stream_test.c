/*
 * The quantizing loader: what it leaves in memory is, byte for byte, what the codec makes of the whole
 * canonical tensor at once, whatever the threads, the ring, the shards and the transforms; a measuring
 * load says what the real one takes; faults are errors by name, and leave nothing behind.
 */
#include "load_model.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/pool.h"
#include "ckpt/writer.h"
#include "cpu/kernel.h"
#include "dev/ops.h"
#include "fill.h"
#include "late_device.h"
#include "load/load.h"
#include "num/float.h"
#include "ops/param.h"
#include "scratch.h"

static void bytes_are_those_of_the_whole(void **state)
{
    static const int64_t rings[] = {0, 1 << 19};
    for (size_t c = 0; c < CODECS; c++) {
        for (int fused = 0; fused < 2; fused++) {
            load_model_blocks(codecs[c], fused);
            for (int threads = 1; threads < 4; threads++) {
                for (size_t r = 0; r < sizeof rings / sizeof *rings; r++) {
                    struct loaded l;
                    load_model_ok(load_model_load(&l, devices[threads], rings[r]));
                    load_model_expect_all();
                    assert_int_equal(l.stats.encoded, 12);
                    load_model_unload(&l);
                }
            }
            load_model_close_model();
        }
    }
}

/* Rings in which no scope of all rows fits: read, observe, read again, encode. */
static void tiny_rings(void **state)
{
    for (size_t c = 0; c < CODECS; c++) {
        load_model_blocks(codecs[c], true);
        for (int threads = 1; threads < 4; threads++) {
            struct loaded l;
            enum oz_status status = load_model_load(&l, devices[threads], 1);
            assert_int_equal(status, OZ_ERR_ARG);
            const char *give = strstr(err.message, "give it ");
            assert_non_null(give);
            int64_t least = strtoll(give + 8, NULL, 10);
            assert_true(least > 0);
            load_model_ok(load_model_load(&l, devices[threads], least));
            load_model_expect_all();
            bool observes = oz_codec_find(codecs[c])->observe_passes > 0;
            assert_int_equal(l.schedule.twice > 0, observes);
            assert_int_equal(l.schedule.workers, 1);
            int64_t twice = l.schedule.read_bytes - l.schedule.tensor_bytes;
            assert_true(observes ? twice > 0 : twice == 0);
            load_model_unload(&l);
            assert_int_equal(load_model_load(&l, devices[threads], least - 1), OZ_ERR_ARG);
        }
        load_model_close_model();
    }
}

static void a_device_of_its_own_memory(void **state)
{
    struct oz_device far = *devices[2];
    far.host_memory = false;
    for (size_t c = 0; c < CODECS; c++) {
        struct loaded l;
        load_model_blocks(codecs[c], true);
        load_model_ok(load_model_load(&l, &far, 0));
        load_model_expect_all();
        load_model_unload(&l);
        load_model_ok(load_model_load(&l, &far, 1 << 18));
        load_model_expect_all();
        load_model_unload(&l);
        load_model_close_model();
    }
}

/* Uploads that go on while the next chunk is made: to the same bytes, in a ring that has room for two
 * chunks and in one that has not; and kept for the next load. */
static void a_device_whose_uploads_are_late(void **state)
{
    struct oz_device far;
    late_device_init(&far, devices[2]);
    for (size_t c = 0; c < CODECS; c++) {
        struct loaded l;
        load_model_blocks(codecs[c], true);
        for (int64_t ring = 1 << 18; ring <= OZ_LOAD_RING_BYTES; ring *= 4) {
            late_device.uploads = 0;
            load_model_ok(load_model_load(&l, &far, ring));
            load_model_expect_all();
            load_model_unload(&l);
            assert_int_equal(late_device.queues, 0);
            assert_int_equal(late_device_pinned(), 0);
        }
        load_model_close_model();
    }
    assert_true(late_device.uploads > 0);
}

/* ---- transforms and parts ---- */

static void moved_rows(void **state)
{
    static int32_t order[24];
    for (int i = 0; i < 24; i++) {
        order[i] = (i * 7) % 24;
    }
    for (uint32_t k = 0; k < 16; k++) {
        for (size_t c = 0; c < CODECS; c++) {
            struct loaded l;
            struct oz_layer w = load_model_matrix(OZ_LAYER_LINEAR, 24, 40);
            struct oz_layer e = {.kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {3, 24, 40}};
            w.permutation = e.permutation = order;
            w.transform = e.transform =
                (k & 1 ? OZ_TRANSFORM_PERMUTE : 0U) | (k & 2 ? OZ_TRANSFORM_SWAP_HALVES : 0U) |
                (k & 4 ? OZ_TRANSFORM_TRANSPOSE : 0U) | (k & 8 ? OZ_TRANSFORM_ADD_ONE : 0U);
            if (k & 4) {
                w.file_rank = 2;
                memcpy(w.file_shape, (const int64_t[]){40, 24}, 16);
                e.file_rank = 3;
                memcpy(e.file_shape, (const int64_t[]){3, 40, 24}, 24);
            }
            load_model_new_model();
            load_model_add("w", w, OZ_DTYPE_BF16, &params[0], codecs[c]);
            load_model_add("e", e, OZ_DTYPE_BF16, &params[1], codecs[c]);
            struct oz_layer part = load_model_matrix(OZ_LAYER_LINEAR, 10, 40);
            part.file_rank = 2;
            memcpy(part.file_shape, (const int64_t[]){30, 40}, 16);
            part.file_row = 13;
            part.file_rows = 10;
            load_model_add("part", part, OZ_DTYPE_F32, &params[2], codecs[c]);
            load_model_write_model(0);
            load_model_open_model();
            for (int threads = 1; threads < 4; threads++) {
                load_model_ok(load_model_load(&l, devices[threads], 0));
                load_model_expect_all();
                load_model_unload(&l);
            }
            load_model_close_model();
        }
    }
}

static void whole(struct oz_param *p, const char *name, int32_t rank, const int64_t *shape)
{
    p->name = name;
    p->rank = rank;
    memcpy(p->shape, shape, (size_t)rank * sizeof *shape);
}

/* q, k and v of three shards into one parameter; experts of single files with gate and up
 * interleaved; gate before up from two 3-D tensors; biases of parts. */
static void parts_of_parameters(void **state)
{
    for (size_t c = 0; c <= CODECS; c++) { /* the last time: as stored */
        const char *codec = c < CODECS ? codecs[c] : NULL;
        static const char *const names[] = {"q", "k", "v"};
        int64_t row0 = 0;
        load_model_new_model();
        whole(&params[0], "qkv", 2, (const int64_t[]){300, 48});
        whole(&params[1], "experts", 3, (const int64_t[]){3, 20, 48});
        whole(&params[2], "stacked", 3, (const int64_t[]){2, 22, 48});
        whole(&params[3], "bias", 1, (const int64_t[]){9});
        for (int i = 0; i < 3; i++) {
            struct oz_layer row = load_model_matrix(OZ_LAYER_LINEAR, 50 * (i + 1), 48);
            row.bind_row = row0;
            row.bind_row_stride = 1;
            row0 += row.shape[0];
            load_model_add(names[i], row, OZ_DTYPE_BF16, &params[0], codec);
        }
        for (int i = 0; i < 6; i++) {
            char name[32];
            struct oz_layer row = load_model_matrix(OZ_LAYER_EXPERTS, 10, 48);
            row.bind_slice = (5 - i) / 2;
            row.bind_row = i % 2;
            row.bind_row_stride = 2;
            (void)snprintf(name, sizeof name, "expert.%d", i);
            load_model_add(name, row, OZ_DTYPE_BF16, &params[1], codec);
        }
        for (int i = 0; i < 2; i++) {
            struct oz_layer row = {
                .kind = OZ_LAYER_EXPERTS, .rank = 3, .shape = {2, 8 + 6 * i, 48}};
            row.bind_row = 8 * i;
            row.bind_row_stride = 1;
            load_model_add(i == 0 ? "gate" : "up", row, OZ_DTYPE_BF16, &params[2], codec);
        }
        for (int i = 0; i < 3; i++) {
            char name[32];
            struct oz_layer row = {.kind = OZ_LAYER_VECTOR, .rank = 1, .shape = {3}};
            row.bind_row = i;
            row.bind_row_stride = 3;
            (void)snprintf(name, sizeof name, "bias.%d", i);
            load_model_add(name, row, OZ_DTYPE_BF16, &params[3], NULL);
        }
        load_model_write_model(8000);
        load_model_open_model();
        for (int threads = 1; threads < 4; threads++) {
            struct loaded l;
            load_model_ok(load_model_load(&l, devices[threads], 0));
            load_model_expect_all();
            const float *bias = params[3].weight.planes[OZ_PLANE_CODES].data;
            for (int i = 0; i < 9; i++) {
                assert_true(bias[i] == load_model_value(11 + i % 3, i / 3));
            }
            load_model_unload(&l);
        }
        load_model_close_model();
    }
}

static void parts_that_do_not_fit(void **state)
{
    static const struct {
        int64_t row0, rows, stride, cols;
        const char *second_codec;
        const char *phrase;
    } cases[] = {
        {8, 8, 1, 32, "f16", "[16, 32]"},         /* in order: no error */
        {7, 8, 1, 32, "f16", "leave rows empty"}, /* overlap */
        {9, 8, 1, 32, "f16", "does not lie"},     /* beyond the end */
        {8, 4, 2, 32, "f16", "leave rows empty"}, /* gaps */
        {8, 8, 1, 32, "f32", "differ in scheme"},
        {8, 8, 1, 32, NULL, "differ in scheme: f16 and as stored"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct loaded l;
        load_model_new_model();
        whole(&params[0], "both", 2, (const int64_t[]){16, 32});
        struct oz_layer a = load_model_matrix(OZ_LAYER_LINEAR, 8, 32);
        struct oz_layer b = load_model_matrix(OZ_LAYER_LINEAR, cases[i].rows, cases[i].cols);
        a.bind_row_stride = 1;
        b.bind_row = cases[i].row0;
        b.bind_row_stride = cases[i].stride;
        load_model_add("a", a, OZ_DTYPE_BF16, &params[0], "f16");
        load_model_add("b", b, OZ_DTYPE_BF16, &params[0], cases[i].second_codec);
        load_model_write_model(0);
        load_model_open_model();
        enum oz_status status = load_model_load(&l, devices[1], 0);
        if (i == 0) {
            load_model_ok(status);
            load_model_expect_all();
        } else {
            assert_int_not_equal(status, OZ_OK);
            if (strstr(err.message, cases[i].phrase) == NULL) {
                fail_msg("\"%s\" is not in \"%s\"", cases[i].phrase, err.message);
            }
        }
        load_model_unload(&l);
        load_model_close_model();
    }
}

/* Weights that are packed by way of bands are the bytes of those that are packed from the map. */
static void packed_in_bands(void **state)
{
    struct oz_device *dev;
    struct oz_layer w = load_model_matrix(OZ_LAYER_LINEAR, 300, 1000);
    struct oz_layer moved = w;
    struct loaded l;
    static int32_t identity[300];
    for (int i = 0; i < 300; i++) {
        identity[i] = i;
    }
    moved.transform = OZ_TRANSFORM_PERMUTE;
    moved.permutation = identity;
    load_model_ok(oz_cpu_open(&dev, 0, pools[2], NULL, NULL, &err));
    load_model_new_model();
    load_model_add("w", w, OZ_DTYPE_BF16, &params[0], NULL);
    load_model_write_model(0);
    load_model_open_model();
    load_model_ok(load_model_load(&l, dev, 0));
    bool packs = params[0].packed != NULL;
    uint8_t *want = oz_alloc(l.model.used_bytes);
    size_t bytes = l.model.used_bytes;
    memcpy(want, l.model.base, bytes);
    load_model_unload(&l);
    load_model_close_model();
    for (int tiny = 0; tiny < 2 && packs; tiny++) {
        load_model_new_model();
        load_model_add("w", moved, OZ_DTYPE_BF16, &params[0], NULL);
        load_model_write_model(0);
        load_model_open_model();
        load_model_ok(load_model_load(&l, dev, tiny ? 200000 : 0));
        assert_int_equal(l.model.used_bytes, bytes);
        assert_memory_equal(l.model.base, want, bytes);
        assert_int_equal(l.report.entries[0].fate, OZ_FATE_PACKED);
        load_model_unload(&l);
        load_model_close_model();
    }
    oz_free(want);
    oz_device_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_whole),
        cmocka_unit_test(tiny_rings),
        cmocka_unit_test(a_device_of_its_own_memory),
        cmocka_unit_test(a_device_whose_uploads_are_late),
        cmocka_unit_test(moved_rows),
        cmocka_unit_test(parts_of_parameters),
        cmocka_unit_test(parts_that_do_not_fit),
        cmocka_unit_test(packed_in_bands),
    };
    return cmocka_run_group_tests(tests, load_model_start, load_model_stop);
}
