/*
 * GGUF files, good and malformed, one rule at a time: the status, and a phrase of the message. Every
 * file is made here.
 */
#include "test.h"

#include "base/log.h"
#include "ckpt/table.h"
#include "gguf_file.h"
#include "num/codec_list.h"
#include "scratch.h"

static struct oz_error err;

static void is_refused_file(const char *path, enum oz_status status, const char *phrase)
{
    struct oz_ckpt *c = (struct oz_ckpt *)&err;
    enum oz_status got = oz_ckpt_open(&c, path, NULL, &err);
    if (got == OZ_OK) {
        oz_ckpt_close(&c);
        fail_msg("a file was opened that must fail with \"%s\"", phrase);
    }
    assert_null(c);
    if (got != status || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, status, phrase);
    }
}

static void is_refused(enum oz_status status, const char *phrase)
{
    is_refused_file(gguf_write("bad.gguf"), status, phrase);
}

static struct oz_ckpt *opened(const char *path)
{
    struct oz_ckpt *c;
    if (oz_ckpt_open(&c, path, NULL, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    return c;
}

static const uint64_t two_rows[] = {32, 2};

/* The format's printed example: one Q8_0 tensor [2, 32]. */
static void small(void)
{
    gguf_begin(1, 1);
    gguf_key("general.architecture", 8);
    gguf_str("wan");
    gguf_tensor("t", 2, two_rows, 8, 0);
    assert_int_equal(gguf_used, 108);
    gguf_pad(32);
    assert_int_equal(gguf_used, 128);
    gguf_data(68);
}

/* ---- good files ---- */

static void example(void **state)
{
    small();
    struct oz_ckpt *c = opened(gguf_write("example.gguf"));
    const struct oz_tensor_view *t = oz_ckpt_find(c, "t", NULL);
    assert_non_null(t);
    assert_ptr_equal(t->codec, &oz_codec_q8_0);
    assert_true(t->rank == 2 && t->shape[0] == 2 && t->shape[1] == 32);
    assert_true(t->elements == 64 && t->bytes == 68 && t->file_offset == 128);
    uint8_t read[68];
    assert_int_equal(oz_ckpt_read(c, t, 0, 68, read, &err), OZ_OK);
    assert_memory_equal(read, t->data, 68);
    assert_memory_equal(read, gguf_file + 128, 68);
    assert_string_equal(oz_ckpt_metadata(c, "general.architecture"), "wan");
    oz_ckpt_close(&c);
    c = opened(gguf_write("named.bin")); /* the bytes tell what it is */
    oz_ckpt_close(&c);
    gguf_file[4] = 2; /* the same in version 2 */
    c = opened(gguf_write("two.gguf"));
    oz_ckpt_close(&c);
    scratch_folder("one");
    (void)gguf_write("one/model-q8.gguf");
    c = opened(scratch_path("one"));
    assert_int_equal(oz_ckpt_stray_count(c), 0);
    oz_ckpt_close(&c);
    (void)gguf_write("one/model-q4.gguf");
    is_refused_file(scratch_path("one"), OZ_ERR_IO,
                    "nor one index, .safetensors or .gguf file of another name (but 2)");
}

/* Shapes that only the metadata keep: five dimensions, rows shorter than a block. */
static void shapes(void **state)
{
    static const uint64_t flat[] = {256, 8};
    static const uint64_t five[] = {2, 2, 1, 3, 8};
    gguf_begin(2, 1);
    gguf_key("comfy.gguf.orig_shape.in.weight", 9);
    gguf_u32(5);
    gguf_u64(2);
    gguf_u32(32);
    gguf_u32(64);
    gguf_tensor("in.weight", 2, flat, 12, 0);
    gguf_tensor("patch.weight", 5, five, 0, 1152);
    gguf_pad(32);
    gguf_data(1152 + 384);
    struct oz_ckpt *c = opened(gguf_write("shapes.gguf"));
    const struct oz_tensor_view *t = oz_ckpt_find(c, "in.weight", NULL);
    assert_true(t->rank == 2 && t->shape[0] == 32 && t->shape[1] == 64 && t->elements == 2048);
    t = oz_ckpt_find(c, "patch.weight", NULL);
    assert_true(t->rank == 5 && t->shape[0] == 8 && t->shape[1] == 3 && t->shape[2] == 1);
    oz_ckpt_close(&c);
    gguf_file[24 + 8 + 31 + 4 + 12] = 33; /* the first size of the array */
    is_refused(OZ_ERR_FORMAT, "is no shape of the tensor");
    gguf_file[24 + 8] = 'C'; /* the key's first letter: then it is none of ours */
    c = opened(gguf_write("shapes.gguf"));
    oz_ckpt_close(&c);
    gguf_file[24 + 8] = 'c';
    gguf_file[24 + 8 + 30] = 'x'; /* of a tensor that is not there */
    is_refused(OZ_ERR_FORMAT, "belongs to no tensor");
}

/* Two parts: one tensor each. */
static void part(uint16_t number, uint16_t count, int32_t tensors, const char *name,
                 const char *path)
{
    gguf_begin(1, 3);
    gguf_key("split.no", 2);
    gguf_file[gguf_used++] = (uint8_t)number;
    gguf_file[gguf_used++] = (uint8_t)(number >> 8);
    gguf_key("split.count", 2);
    gguf_file[gguf_used++] = (uint8_t)count;
    gguf_file[gguf_used++] = (uint8_t)(count >> 8);
    gguf_key("split.tensors.count", 5);
    gguf_u32((uint32_t)tensors);
    gguf_tensor(name, 2, two_rows, 8, 0);
    gguf_pad(32);
    gguf_data(68);
    (void)gguf_write(path);
}

static void parts(void **state)
{
    part(0, 2, 2, "a", "m-00001-of-00002.gguf");
    const char *first = scratch_path("m-00001-of-00002.gguf");
    is_refused_file(first, OZ_ERR_IO, "m-00002-of-00002.gguf");
    part(1, 2, 2, "b", "m-00002-of-00002.gguf");
    struct oz_ckpt *c = opened(first);
    assert_int_equal(oz_ckpt_count(c), 2);
    assert_int_equal(oz_ckpt_find(c, "b", NULL)->file, 1);
    oz_ckpt_close(&c);
    is_refused_file(scratch_path("m-00002-of-00002.gguf"), OZ_ERR_ARG, "open the first");
    part(1, 2, 2, "a", "m-00002-of-00002.gguf");
    is_refused_file(first, OZ_ERR_FORMAT, "is in both");
    part(1, 2, 0, "b", "m-00002-of-00002.gguf");
    part(0, 2, 3, "a", "m-00001-of-00002.gguf");
    is_refused_file(first, OZ_ERR_FORMAT, "its parts have 3 tensors; they have 2");
    part(0, 2, 2, "a", "m-00001-of-00002.gguf");
    part(2, 3, 2, "b", "m-00002-of-00002.gguf");
    is_refused_file(first, OZ_ERR_FORMAT, "by its name it is part 2 of 2");
    part(0, 2, 2, "a", "one.gguf");
    is_refused_file(scratch_path("one.gguf"), OZ_ERR_FORMAT, "must have a name that says so");
    part(0, 2, 2, "a", "m-00001-of-00003.gguf");
    is_refused_file(scratch_path("m-00001-of-00003.gguf"), OZ_ERR_FORMAT, "must have a name");
    part(5, 2, 2, "a", "m-00006-of-00002.gguf");
    is_refused_file(scratch_path("m-00006-of-00002.gguf"), OZ_ERR_FORMAT, "must have a name");
    part(0, 60000, 2, "a", "m-00001-of-60000.gguf");
    is_refused_file(scratch_path("m-00001-of-60000.gguf"), OZ_ERR_FORMAT, "at most 1000");
    scratch_folder("parts"); /* the folder's first part stands for the file */
    part(0, 2, 2, "a", "parts/m-00001-of-00002.gguf");
    part(1, 2, 2, "b", "parts/m-00002-of-00002.gguf");
    c = opened(scratch_path("parts"));
    assert_int_equal(oz_ckpt_count(c), 2);
    oz_ckpt_close(&c);
}

/* ---- the beginning ---- */

static void heads(void **state)
{
    gguf_begin(0, 0);
    struct oz_ckpt *c = opened(gguf_write("empty.gguf"));
    assert_int_equal(oz_ckpt_count(c), 0);
    oz_ckpt_close(&c);
    gguf_used = 23;
    is_refused(OZ_ERR_FORMAT, "the file ends within the number of keys");
    gguf_used = 3;
    is_refused(OZ_ERR_FORMAT, "the file ends within its first bytes");
    gguf_used = 24;
    gguf_file[0] = 'g';
    is_refused(OZ_ERR_FORMAT, "not a GGUF file");
    gguf_begin(0, 0);
    gguf_file[4] = 1;
    is_refused(OZ_ERR_UNSUPPORTED, "version 1; versions 2 and 3");
    gguf_file[4] = 4;
    is_refused(OZ_ERR_UNSUPPORTED, "version 4");
    gguf_file[4] = 0;
    gguf_file[7] = 3;
    is_refused(OZ_ERR_UNSUPPORTED, "big-endian");
    gguf_begin(UINT64_C(1) << 60, 0);
    is_refused(OZ_ERR_FORMAT, "claims 1152921504606846976 tensors");
    gguf_begin(0, UINT64_C(1) << 63);
    is_refused(OZ_ERR_FORMAT, "claims 9223372036854775808 keys");
    gguf_begin(0, 70000);
    is_refused(OZ_ERR_FORMAT, "claims 70000 keys");
    small();
    scratch_write("bad.gguf", gguf_file, gguf_used);
    for (size_t n = 4; n < 196; n++) { /* every length short of the whole */
        gguf_used = n;
        is_refused(OZ_ERR_FORMAT, "is the download complete?");
        gguf_used = 196;
    }
}

/* ---- metadata ---- */

static void keys(void **state)
{
    gguf_begin(0, 1);
    gguf_u64(UINT64_C(1) << 62);
    gguf_data(64);
    is_refused(OZ_ERR_FORMAT, "ends within a key of the metadata");
    gguf_begin(0, 1);
    gguf_u64(5000);
    gguf_data(6000);
    is_refused(OZ_ERR_FORMAT, "has 5000 bytes; at most 4096");
    gguf_begin(0, 1);
    gguf_key("", 4);
    gguf_u32(1);
    is_refused(OZ_ERR_FORMAT, "is empty");
    gguf_begin(0, 1);
    gguf_key("\xFF\xFE", 4);
    gguf_u32(1);
    is_refused(OZ_ERR_FORMAT, "no UTF-8 text");
    gguf_begin(0, 1);
    gguf_u64(3);
    gguf_put("a\0b", 3);
    gguf_u32(4);
    gguf_u32(1);
    is_refused(OZ_ERR_FORMAT, "no UTF-8 text");
    gguf_begin(0, 2);
    gguf_key_u32("a", 1);
    gguf_key_u32("a", 1);
    is_refused(OZ_ERR_FORMAT, "the key a is there twice");
    gguf_begin(0, 1);
    gguf_key_u32("a", 1);
    gguf_file[24 + 9] = 13; /* the type */
    is_refused(OZ_ERR_FORMAT, "the unknown type 13");
    gguf_begin(0, 1);
    gguf_key("a", 8);
    gguf_u64(UINT64_C(1) << 40);
    gguf_data(16);
    is_refused(OZ_ERR_FORMAT, "ends within a");
    gguf_begin(0, 1);
    gguf_key("a", 8); /* a value that is no text is told and left out */
    gguf_u64(2);
    gguf_put("\xC3\x28", 2);
    struct oz_ckpt *c = opened(gguf_write("value.gguf"));
    assert_string_equal(oz_ckpt_metadata(c, "a"), "");
    assert_non_null(strstr(scratch_log, "value of a is no UTF-8"));
    oz_ckpt_close(&c);
}

static void array(uint32_t type, uint64_t count)
{
    gguf_begin(0, 1);
    gguf_key("a", 9);
    gguf_u32(type);
    gguf_u64(count);
    gguf_data(64);
}

static void arrays(void **state)
{
    array(9, 1);
    is_refused(OZ_ERR_FORMAT, "is an array again");
    array(13, 1);
    is_refused(OZ_ERR_FORMAT, "type 13, which is none");
    array(0, UINT64_MAX);
    is_refused(OZ_ERR_FORMAT, "elements; at most 1073741824");
    array(12, UINT64_C(1) << 29);
    is_refused(OZ_ERR_FORMAT, "ends within a");
    array(6, 24); /* 96 bytes of 64: the count is not of bytes */
    is_refused(OZ_ERR_FORMAT, "ends within a");
    array(8, 8); /* lengths of strings are what they are */
    is_refused(OZ_ERR_FORMAT, "ends within a");
    array(0, 64);
    struct oz_ckpt *c = opened(gguf_write("array.gguf"));
    assert_string_equal(oz_ckpt_metadata(c, "a"), "64 of u8");
    oz_ckpt_close(&c);
}

static void alignments(void **state)
{
    static const uint32_t bad[] = {0, 3, 48, 1U << 21, UINT32_MAX};
    for (int i = 0; i < 5; i++) {
        gguf_begin(0, 1);
        gguf_key_u32("general.alignment", bad[i]);
        is_refused(OZ_ERR_FORMAT, "must be a power of two");
    }
    gguf_begin(0, 1);
    gguf_key("general.alignment", 6);
    gguf_u32(0x42000000);
    is_refused(OZ_ERR_FORMAT, "must be a number, not 32 (f32)");
    gguf_begin(0, 1);
    gguf_key("split.no", 5);
    gguf_u32(UINT32_MAX);
    is_refused(OZ_ERR_FORMAT, "must be a number, not -1 (i32)");
    for (uint32_t n = 1; n <= 256; n *= 16) { /* the data begin there */
        gguf_begin(1, 1);
        gguf_key_u32("general.alignment", n);
        gguf_tensor("t", 2, two_rows, 8, 0);
        gguf_pad(n);
        size_t at = gguf_used;
        gguf_data(68);
        struct oz_ckpt *c = opened(gguf_write("aligned.gguf"));
        assert_int_equal(oz_ckpt_tensor(c, 0)->file_offset, at);
        oz_ckpt_close(&c);
    }
}

static void limits(void **state)
{
    struct oz_ckpt *c;
    gguf_begin(0, 1);
    gguf_key("a", 9);
    gguf_u32(0);
    gguf_u64(4000);
    gguf_data(4000);
    const char *path = gguf_write("large.gguf");
    assert_int_equal(oz_ckpt_open_limited(&c, path, NULL, 2000, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "--max-header-bytes"));
    assert_int_equal(oz_ckpt_open_limited(&c, path, NULL, 5000, &err), OZ_OK);
    oz_ckpt_close(&c);
}

/* ---- tensors ---- */

static void one_tensor(uint32_t rank, const uint64_t *sizes, uint32_t type, uint64_t offset,
                       size_t bytes)
{
    gguf_begin(1, 0);
    gguf_tensor("t", rank, sizes, type, offset);
    gguf_pad(32);
    gguf_data(bytes);
}

static void tensors(void **state)
{
    static const uint64_t huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
    static const uint64_t wide[] = {UINT64_C(1) << 62, 2};
    static const uint64_t zero[] = {32, 0};
    static const uint64_t odd[] = {33, 2};
    static const uint64_t many[6] = {1, 1, 1, 1, 1, 1};
    static const uint64_t negative[] = {UINT64_MAX};
    static const uint64_t large[] = {UINT64_C(1) << 61};
    gguf_begin(1, 0);
    gguf_str("t");
    gguf_u32(1000000);
    gguf_data(64);
    is_refused(OZ_ERR_FORMAT, "has 1000000 dimensions");
    one_tensor(6, many, 0, 0, 4);
    is_refused(OZ_ERR_FORMAT, "has 6 dimensions");
    one_tensor(2, huge, 8, 0, 64);
    is_refused(OZ_ERR_FORMAT, "makes its size overflow");
    one_tensor(2, wide, 0, 0, 64);
    is_refused(OZ_ERR_FORMAT, "makes its size overflow");
    one_tensor(1, negative, 0, 0, 64);
    is_refused(OZ_ERR_FORMAT, "makes its size overflow");
    one_tensor(1, large, 0, 0, 64);
    is_refused(OZ_ERR_FORMAT, "its size overflows");
    one_tensor(2, zero, 8, 0, 64);
    is_refused(OZ_ERR_FORMAT, "is no size");
    one_tensor(2, odd, 8, 0, 128);
    is_refused(OZ_ERR_FORMAT, "rows of 33 elements are no whole blocks of Q8_0 (32)");
    static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, UINT32_MAX};
    for (int i = 0; i < 10; i++) {
        one_tensor(2, two_rows, removed[i], 0, 68);
        is_refused(OZ_ERR_UNSUPPORTED, "was taken back or is unknown");
    }
    one_tensor(2, two_rows, 8, 32, 128);
    is_refused(OZ_ERR_FORMAT, "have a hole");
    one_tensor(2, two_rows, 8, 0, 67);
    is_refused(OZ_ERR_FORMAT, "needs 68 bytes");
    one_tensor(2, two_rows, 8, UINT64_MAX - 100, 68);
    is_refused(OZ_ERR_FORMAT, "behind the file's end");
    gguf_begin(1, 0);
    gguf_u64(4);
    gguf_put("\0abc", 4);
    gguf_data(64);
    is_refused(OZ_ERR_FORMAT, "a tensor's name");
    gguf_begin(2, 0);
    gguf_tensor("t", 2, two_rows, 8, 0);
    gguf_tensor("t", 2, two_rows, 8, 96);
    gguf_pad(32);
    gguf_data(96 + 68);
    is_refused(OZ_ERR_FORMAT, "is in both");
    gguf_begin(2, 0);
    gguf_tensor("a", 2, two_rows, 8, 0);
    gguf_tensor("b", 2, two_rows, 8, 64);
    gguf_pad(32);
    gguf_data(96 + 68);
    is_refused(OZ_ERR_FORMAT, "the data overlap");
    gguf_begin(2, 0);
    gguf_tensor("a", 2, two_rows, 8, 0);
    gguf_tensor("b", 2, two_rows, 8, 0);
    gguf_pad(32);
    gguf_data(96 + 68);
    is_refused(OZ_ERR_FORMAT, "the data overlap");
}

static int setup(void **state)
{
    oz_log_set(scratch_log_line, NULL);
    return scratch_open(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example),    cmocka_unit_test(shapes), cmocka_unit_test(parts),
        cmocka_unit_test(heads),      cmocka_unit_test(keys),   cmocka_unit_test(arrays),
        cmocka_unit_test(alignments), cmocka_unit_test(limits), cmocka_unit_test(tensors),
    };
    return cmocka_run_group_tests(tests, setup, scratch_close);
}
