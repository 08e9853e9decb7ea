/*
 * ckpt/writer against what the field's own libraries wrote (tests/golden/ckpt): read a checkpoint,
 * write it again, compare the files. Then what it refuses, and that nothing is left behind.
 */
#include "test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "ckpt/writer.h"

#define GOLDEN OZ_TEST_DIR "/golden/ckpt"
#define MAX_BYTES ((size_t)1 << 20)

static char folder[64];
static const char *const metadata[][2] = {{"format", "pt"}};

static int make_folder(void **state)
{
    (void)snprintf(folder, sizeof folder, "/tmp/ounce-writer-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

/* Files in the folder, which are removed. */
static int empty_folder(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            char *path = oz_file_join(folder, e->d_name);
            assert_int_equal(unlink(path), 0);
            oz_free(path);
            count++;
        }
    }
    closedir(dir);
    return count;
}

static int drop_folder(void **state)
{
    (void)empty_folder();
    return rmdir(folder);
}

static void require(enum oz_status status, const struct oz_error *err)
{
    if (status != OZ_OK) {
        fail_msg("%s (%s:%d)", err->message, err->file, err->line);
    }
}

static struct oz_ckpt_spec spec_of(const struct oz_tensor_view *t)
{
    struct oz_ckpt_spec s = {.name = t->name, .dtype = t->dtype, .rank = t->rank};
    memcpy(s.shape, t->shape, sizeof s.shape);
    return s;
}

static void assert_same_file(const char *golden, const char *name)
{
    struct oz_error err;
    char *a;
    char *b;
    size_t a_bytes;
    size_t b_bytes;
    char *path = oz_file_join(folder, name);
    require(oz_file_read(golden, MAX_BYTES, &a, &a_bytes, &err), &err);
    require(oz_file_read(path, MAX_BYTES, &b, &b_bytes, &err), &err);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    oz_free(a);
    oz_free(b);
    oz_free(path);
}

/* Writes tensors of `from` in pieces of `piece` bytes. */
static enum oz_status write_all(struct oz_ckpt_writer *w, const struct oz_ckpt *from,
                                const struct oz_ckpt_spec *specs, size_t piece,
                                struct oz_error *err)
{
    for (int32_t i = oz_ckpt_writer_next(w); i >= 0; i = oz_ckpt_writer_next(w)) {
        const struct oz_tensor_view *t = oz_ckpt_find(from, specs[i].name, NULL);
        for (size_t at = 0; at < (size_t)t->bytes; at += piece) {
            size_t rest = (size_t)t->bytes - at;
            assert_int_equal(oz_ckpt_writer_next(w), i);
            enum oz_status status =
                oz_ckpt_writer_put(w, t->data + at, rest < piece ? rest : piece, err);
            if (status != OZ_OK) {
                return status;
            }
        }
    }
    return oz_ckpt_writer_finish(w, err);
}

static void test_one_file(void **state)
{
    struct oz_error err;
    struct oz_ckpt *golden;
    struct oz_ckpt *again;
    struct oz_ckpt_spec specs[64];
    struct oz_ckpt_writer *w;
    require(oz_ckpt_open(&golden, GOLDEN "/all.safetensors", NULL, &err), &err);
    int32_t count = (int32_t)oz_ckpt_count(golden);
    assert_in_range(count, 30, 64);
    for (int32_t i = 0; i < count; i++) {
        specs[count - 1 - i] = spec_of(oz_ckpt_tensor(golden, i)); /* the order does not matter */
    }
    const struct oz_ckpt_writer_options o = {
        .folder = folder, .stem = "model", .metadata = metadata, .metadata_count = 1};
    require(oz_ckpt_writer_create(&w, &o, specs, count, &err), &err);
    require(write_all(w, golden, specs, 5, &err), &err);
    oz_ckpt_writer_destroy(&w);
    assert_same_file(GOLDEN "/all.safetensors", "model.safetensors");

    static const char *const stems[] = {"model", NULL};
    require(oz_ckpt_open(&again, folder, stems, &err), &err);
    assert_int_equal(oz_ckpt_count(again), count);
    for (int32_t i = 0; i < count; i++) {
        const struct oz_tensor_view *a = oz_ckpt_tensor(golden, i);
        const struct oz_tensor_view *b = oz_ckpt_tensor(again, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->dtype, b->dtype);
        assert_memory_equal(a->shape, b->shape, sizeof a->shape);
        assert_int_equal(a->bytes, b->bytes);
        assert_true(a->bytes == 0 || memcmp(a->data, b->data, (size_t)a->bytes) == 0);
    }
    assert_string_equal(oz_ckpt_metadata(again, "format"), "pt");
    oz_ckpt_close(&again);
    oz_ckpt_close(&golden);
    assert_int_equal(empty_folder(), 1);
}

static void test_shards(void **state)
{
    static const char *const order[] = {"b00", "b01", "b02", "b03", "b04", "b05",     "b06",
                                        "b07", "b08", "b09", "b10", "b11", "a_large", "z"};
    enum { COUNT = sizeof order / sizeof *order };
    static const char *const stems[] = {"model", NULL};
    struct oz_error err;
    struct oz_ckpt *golden;
    struct oz_ckpt *again;
    struct oz_ckpt_spec specs[COUNT];
    struct oz_ckpt_writer *w;
    require(oz_ckpt_open(&golden, GOLDEN "/shards", stems, &err), &err);
    assert_int_equal(oz_ckpt_count(golden), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        specs[i] = spec_of(oz_ckpt_find(golden, order[i], NULL));
    }
    const struct oz_ckpt_writer_options o = {.folder = folder,
                                             .stem = "model",
                                             .max_shard_bytes = 600,
                                             .metadata = metadata,
                                             .metadata_count = 1};
    require(oz_ckpt_writer_create(&w, &o, specs, COUNT, &err), &err);
    require(write_all(w, golden, specs, 1000, &err), &err);
    oz_ckpt_writer_destroy(&w);
    static const char *const files[] = {
        "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < 4; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s/shards/%s", GOLDEN, files[i]);
        assert_same_file(path, files[i]);
    }
    require(oz_ckpt_open(&again, folder, stems, &err), &err);
    assert_int_equal(oz_ckpt_count(again), COUNT);
    assert_int_equal(oz_ckpt_file_count(again), 3);
    oz_ckpt_close(&again);
    oz_ckpt_close(&golden);
    assert_int_equal(empty_folder(), 4);
}

static const struct oz_ckpt_spec two[] = {
    {.name = "a", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {2}},
    {.name = "b", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {1}},
};

static void test_misuse(void **state)
{
    struct oz_error err;
    struct oz_ckpt_writer *w;
    const float values[4] = {1, 2, 3, 4};
    const struct oz_ckpt_writer_options o = {.folder = folder, .stem = "model"};
    require(oz_ckpt_writer_create(&w, &o, two, 2, &err), &err);
    assert_int_equal(oz_ckpt_writer_next(w), 0);
    assert_int_equal(oz_ckpt_writer_put(w, values, 12, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "only 8 of 8"));
    require(oz_ckpt_writer_put(w, values, 8, &err), &err);
    assert_int_equal(oz_ckpt_writer_finish(w, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "Tensor b has 0 of its 4 bytes"));
    oz_ckpt_writer_destroy(&w);
    assert_int_equal(empty_folder(), 0); /* nothing is left */

    require(oz_ckpt_writer_create(&w, &o, two, 2, &err), &err);
    require(oz_ckpt_writer_put(w, values, 8, &err), &err);
    require(oz_ckpt_writer_put(w, values, 4, &err), &err);
    assert_int_equal(oz_ckpt_writer_next(w), -1);
    assert_int_equal(oz_ckpt_writer_put(w, values, 1, &err), OZ_ERR_ARG);
    require(oz_ckpt_writer_finish(w, &err), &err);
    oz_ckpt_writer_destroy(&w);
    assert_int_equal(oz_ckpt_writer_create(&w, &o, two, 2, &err), OZ_ERR_ARG); /* it is there */
    assert_non_null(strstr(err.message, "not replaced"));
    assert_int_equal(empty_folder(), 1);

    const struct oz_ckpt_writer_options nowhere = {.folder = "/nonexistent/x", .stem = "model"};
    assert_int_equal(oz_ckpt_writer_create(&w, &nowhere, two, 2, &err), OZ_ERR_IO);
    assert_null(w);
    require(oz_ckpt_writer_create(&w, &o, two, 0, &err), &err);
    require(oz_ckpt_writer_finish(w, &err), &err);
    oz_ckpt_writer_destroy(&w);
    oz_ckpt_writer_destroy(&w); /* NULL is fine */
    assert_int_equal(empty_folder(), 1);
}

static void test_refused(void **state)
{
    static const struct {
        struct oz_ckpt_spec spec;
        const char *text;
    } cases[] = {
        {{.name = "", .dtype = OZ_DTYPE_F32}, "cannot be a tensor's name"},
        {{.name = "__metadata__", .dtype = OZ_DTYPE_F32}, "cannot be a tensor's name"},
        {{.name = "\xff", .dtype = OZ_DTYPE_F32}, "not UTF-8"},
        {{.name = "x", .dtype = OZ_DTYPE_F32, .rank = 9}, "9 dimensions"},
        {{.name = "x", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {-1}}, "dimension 0 is -1"},
        {{.name = "x", .dtype = OZ_DTYPE_F32, .rank = 2, .shape = {INT64_MAX, 2}}, "dimension 1"},
        {{.name = "x", .dtype = OZ_DTYPE_F4, .rank = 1, .shape = {3}}, "3 elements of F4"},
        {{.name = "a", .dtype = OZ_DTYPE_F32, .rank = 0}, "declared twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oz_error err = {0};
        struct oz_ckpt_writer *w;
        const struct oz_ckpt_spec specs[] = {two[0], cases[i].spec};
        const struct oz_ckpt_writer_options o = {.folder = folder, .stem = "model"};
        assert_int_equal(oz_ckpt_writer_create(&w, &o, specs, 2, &err), OZ_ERR_ARG);
        assert_null(w);
        if (strstr(err.message, cases[i].text) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].text);
        }
        assert_int_equal(empty_folder(), 0);
    }
}

/* At whatever allocation it fails: a status, and nothing left behind. */
static void test_allocation_failures(void **state)
{
    const float values[3] = {1, 2, 3};
    for (uint64_t n = 1;; n++) {
        struct oz_error err = {0};
        struct oz_ckpt_writer *w;
        const struct oz_ckpt_writer_options o = {.folder = folder,
                                                 .stem = "model",
                                                 .max_shard_bytes = 8,
                                                 .metadata = metadata,
                                                 .metadata_count = 1};
        oz_alloc_fail_at(n, 0);
        enum oz_status status = oz_ckpt_writer_create(&w, &o, two, 2, &err);
        if (status == OZ_OK) {
            status = oz_ckpt_writer_put(w, values, 8, &err);
            status = status == OZ_OK ? oz_ckpt_writer_put(w, values, 4, &err) : status;
            status = status == OZ_OK ? oz_ckpt_writer_finish(w, &err) : status;
        }
        oz_alloc_fail_at(0, 0);
        oz_ckpt_writer_destroy(&w);
        int files = empty_folder();
        if (status == OZ_OK) {
            assert_int_equal(files, 3);
            assert_true(n > 10);
            return;
        }
        assert_int_equal(status, OZ_ERR_NOMEM);
        assert_int_equal(files, 0);
    }
}

/* Tensors side by side, in pieces, in any order: the same bytes as one after the other. */
static void test_scattered(void **state)
{
    static const uint8_t values[2][12] = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                                          {21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32}};
    const struct oz_ckpt_spec specs[] = {
        {.name = "b", .dtype = OZ_DTYPE_U8, .rank = 1, .shape = {12}},
        {.name = "a", .dtype = OZ_DTYPE_F32, .rank = 1, .shape = {3}}};
    const struct oz_ckpt_writer_options o = {.folder = folder, .stem = "model"};
    struct oz_error err;
    struct oz_ckpt_writer *w;
    struct oz_ckpt *c;
    assert_int_equal(oz_ckpt_writer_create(&w, &o, specs, 2, &err), OZ_OK);
    assert_int_equal(oz_ckpt_writer_put_at(w, 0, 0, values[0], 5, &err), OZ_OK);
    assert_int_equal(oz_ckpt_writer_put_at(w, 1, 0, values[1], 12, &err), OZ_OK);
    assert_int_equal(oz_ckpt_writer_put_at(w, 0, 6, values[0] + 6, 6, &err),
                     OZ_ERR_ARG); /* a gap */
    assert_int_equal(oz_ckpt_writer_put_at(w, 0, 5, values[0], 8, &err), OZ_ERR_ARG);
    assert_int_equal(oz_ckpt_writer_put_at(w, 2, 0, values[0], 1, &err), OZ_ERR_ARG);
    assert_int_equal(oz_ckpt_writer_finish(w, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "Tensor b has 5 of its 12 bytes"));
    assert_int_equal(oz_ckpt_writer_put_at(w, 0, 3, values[0] + 3, 9, &err), OZ_OK); /* again */
    assert_int_equal(oz_ckpt_writer_finish(w, &err), OZ_OK);
    oz_ckpt_writer_destroy(&w);
    assert_int_equal(oz_ckpt_open(&c, folder, NULL, &err), OZ_OK);
    assert_memory_equal(oz_ckpt_find(c, "b", NULL)->data, values[0], 12);
    assert_memory_equal(oz_ckpt_find(c, "a", NULL)->data, values[1], 12);
    oz_ckpt_close(&c);
}

/* Files that are committed one by one stay; the next writer of the same layout keeps them. */
static void test_file_by_file(void **state)
{
    static const uint8_t values[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
    const struct oz_ckpt_spec specs[] = {
        {.name = "a", .dtype = OZ_DTYPE_U8, .rank = 1, .shape = {4}},
        {.name = "b", .dtype = OZ_DTYPE_U8, .rank = 1, .shape = {4}},
        {.name = "c", .dtype = OZ_DTYPE_U8, .rank = 1, .shape = {4}}};
    const struct oz_ckpt_writer_options o = {
        .folder = folder, .stem = "model", .max_shard_bytes = 4, .resumes = true};
    struct oz_error err;
    struct oz_ckpt_writer *w;
    struct oz_ckpt *c;
    bool kept;
    require(oz_ckpt_writer_create(&w, &o, specs, 3, &err), &err);
    assert_int_equal(oz_ckpt_writer_shards(w), 3);
    assert_int_equal(oz_ckpt_writer_shard_of(w, 1), 1);
    assert_string_equal(oz_ckpt_writer_shard_name(w, 1), "model-00002-of-00003.safetensors");
    require(oz_ckpt_writer_keep(w, 0, &kept, &err), &err);
    assert_false(kept); /* it is not there */
    require(oz_ckpt_writer_put_at(w, 0, 0, values[0], 4, &err), &err);
    require(oz_ckpt_writer_put_at(w, 1, 0, values[1], 2, &err), &err);
    require(oz_ckpt_writer_commit(w, 0, &err), &err);
    assert_int_equal(oz_ckpt_writer_commit(w, 1, &err), OZ_ERR_ARG);
    assert_non_null(strstr(err.message, "Tensor b has 2 of its 4 bytes"));
    oz_ckpt_writer_destroy(&w);

    require(oz_ckpt_writer_create(&w, &o, specs, 3, &err), &err);
    require(oz_ckpt_writer_keep(w, 0, &kept, &err), &err);
    assert_true(kept);
    require(oz_ckpt_writer_put_at(w, 0, 0, values[2], 4, &err), &err); /* goes nowhere */
    require(oz_ckpt_writer_put_at(w, 1, 0, values[1], 4, &err), &err);
    require(oz_ckpt_writer_put_at(w, 2, 0, values[2], 4, &err), &err);
    require(oz_ckpt_writer_finish(w, &err), &err);
    oz_ckpt_writer_destroy(&w);
    require(oz_ckpt_open(&c, folder, NULL, &err), &err);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(oz_ckpt_find(c, specs[i].name, NULL)->data, values[i], 4);
    }
    oz_ckpt_close(&c);

    /* all of them, and nothing else to do; a file of other names is not kept */
    require(oz_ckpt_writer_create(&w, &o, specs, 3, &err), &err);
    for (int32_t i = 0; i < 3; i++) {
        require(oz_ckpt_writer_keep(w, i, &kept, &err), &err);
        assert_true(kept);
    }
    require(oz_ckpt_writer_finish(w, &err), &err);
    oz_ckpt_writer_destroy(&w);
    struct oz_ckpt_spec others[3];
    memcpy(others, specs, sizeof specs);
    others[1].name = "d";
    require(oz_ckpt_writer_create(&w, &o, others, 3, &err), &err);
    require(oz_ckpt_writer_keep(w, 0, &kept, &err), &err);
    assert_true(kept);
    require(oz_ckpt_writer_keep(w, 1, &kept, &err), &err);
    assert_false(kept);
    oz_ckpt_writer_destroy(&w);
    assert_int_equal(empty_folder(), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_scattered, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_file_by_file, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_one_file, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_shards, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_misuse, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_refused, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_allocation_failures, make_folder, drop_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
