/*
 * Malformed safetensors files and indexes, one rule at a time: the status, and a phrase of the
 * message, which also names the file. Every file is made here.
 */
#include "test.h"

#include <unistd.h>

#include "base/log.h"
#include "ckpt/table.h"
#include "scratch.h"

static struct oz_error err;

/* Writes <length> <header> <data_bytes zeros>; the length is the header's unless given. */
static void write_file(const char *name, const char *header, size_t header_bytes, uint64_t length,
                       size_t data_bytes)
{
    size_t bytes = 8 + header_bytes + data_bytes;
    uint8_t *file = calloc(1, bytes);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) {
        file[i] = (uint8_t)(length >> 8 * i);
    }
    memcpy(file + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++) {
        file[8 + header_bytes + i] = (uint8_t)(i * 7 + 1);
    }
    scratch_write(name, file, bytes);
    free(file);
}

static void put(const char *name, const char *header, size_t data_bytes)
{
    write_file(name, header, strlen(header), strlen(header), data_bytes);
}

static void is_refused(const char *path, enum oz_status status, const char *phrase)
{
    struct oz_ckpt *c = (struct oz_ckpt *)&err;
    enum oz_status got = oz_ckpt_open(&c, path, NULL, &err);
    if (got == OZ_OK) {
        oz_ckpt_close(&c);
        fail_msg("%s was opened", path);
    }
    assert_null(c);
    if (got != status || strstr(err.message, phrase) == NULL) {
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.message, status, phrase);
    }
    assert_int_equal(err.code, status);
}

static struct oz_ckpt *opened(const char *path)
{
    struct oz_ckpt *c;
    if (oz_ckpt_open(&c, path, NULL, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    return c;
}

/* ---- what stands before the header ---- */

static void length_of_the_header(void **state)
{
    static const char empty[] = "{}";
    const char *path = scratch_path("a.safetensors");
    scratch_text("a.safetensors", "");
    is_refused(path, OZ_ERR_FORMAT, "has 0 bytes");
    scratch_text("a.safetensors", "1234567");
    is_refused(path, OZ_ERR_FORMAT, "has 7 bytes");
    write_file("a.safetensors", empty, 2, 3, 0);
    is_refused(path, OZ_ERR_FORMAT, "claims a header of 3 bytes but has only 10");
    write_file("a.safetensors", empty, 2, 16U << 20, 0);
    is_refused(path, OZ_ERR_FORMAT, "is the download complete?");
    write_file("a.safetensors", empty, 2, (16U << 20) + 1, 0);
    is_refused(path, OZ_ERR_FORMAT, "at most 16777216 are read. Not a safetensors file?");
    write_file("a.safetensors", empty, 2, UINT64_MAX, 0);
    is_refused(path, OZ_ERR_FORMAT, "claims a header of 18446744073709551615 bytes");
    write_file("a.safetensors", empty, 2, UINT64_C(1) << 63, 0);
    is_refused(path, OZ_ERR_FORMAT, "claims a header");
    write_file("a.safetensors", empty, 2, 0, 0);
    is_refused(path, OZ_ERR_FORMAT, "does not begin with '{'");
    write_file("a.safetensors", empty, 2, 1, 0);
    is_refused(path, OZ_ERR_FORMAT, "does not begin with '{'");
    assert_non_null(strstr(err.message, "a.safetensors"));
}

/* The limit can be moved; a header that is really there is worth saying so. */
static void another_limit(void **state)
{
    struct oz_ckpt *c;
    const char *path = scratch_path("limit.safetensors");
    put("limit.safetensors", "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    assert_int_equal(oz_ckpt_open_limited(&c, path, NULL, 53, &err), OZ_OK);
    oz_ckpt_close(&c);
    assert_int_equal(oz_ckpt_open_limited(&c, path, NULL, 52, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "a header of 53 bytes; at most 52 are read. If you trust"));
    assert_non_null(strstr(err.message, "--max-header-bytes"));
    assert_null(c);
    /* 17 MiB of blanks, as some writers pad. */
    size_t bytes = 17U << 20;
    char *header = malloc(bytes);
    assert_non_null(header);
    memset(header, ' ', bytes);
    memcpy(header, "{}", 2);
    write_file("limit.safetensors", header, bytes, bytes, 0);
    free(header);
    is_refused(path, OZ_ERR_FORMAT, "raise max_header_bytes");
    assert_int_equal(oz_ckpt_open_limited(&c, path, NULL, 18 << 20, &err), OZ_OK);
    oz_ckpt_close(&c);
}

static void other_kinds_of_files(void **state)
{
    const char *path = scratch_path("b.safetensors");
    scratch_text("b.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n"
                                  "size 123456\n");
    is_refused(path, OZ_ERR_FORMAT, "git lfs pull");
    scratch_write("b.safetensors", "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
    is_refused(path, OZ_ERR_FORMAT, "the file ends within the number of keys");
    scratch_write("b.safetensors", "PK\3\4\0\0\0\0\0\0", 10);
    is_refused(path, OZ_ERR_UNSUPPORTED, "pickles can run code");
    scratch_write("b.safetensors", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    is_refused(path, OZ_ERR_UNSUPPORTED, "is a Python pickle");
    scratch_text("b.safetensors", "<!DOCTYPE html><html>");
    is_refused(path, OZ_ERR_FORMAT, "is a web page");
    is_refused(scratch_path("none.safetensors"), OZ_ERR_IO, "No such file");
    scratch_folder("nothing");
    is_refused(scratch_path("nothing"), OZ_ERR_IO, "holds no checkpoint");
    is_refused("/dev/null", OZ_ERR_IO, "not a regular file");
}

/* ---- the header ---- */

#define T(name, dtype, shape, begin, end)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end \
    "]}"
#define SCALAR(shape) "{" T("w", "F32", shape, "0", "4") "}"
#define RANGE(begin, end) "{" T("w", "U8", "[4]", begin, end) "}"

static const struct {
    const char *what, *header;
    size_t data_bytes;
    enum oz_status status;
    const char *phrase;
} headers[] = {
    {"no object", "[{}]", 0, OZ_ERR_FORMAT, "does not begin with '{'"},
    {"a blank in front", " {}", 0, OZ_ERR_FORMAT, "does not begin with '{'"},
    {"cut short", "{\"w\":", 0, OZ_ERR_FORMAT, "not valid JSON"},
    {"something behind", "{}x", 0, OZ_ERR_FORMAT, "end of file expected"},
    {"bad UTF-8", "{\"\xFF\":{}}", 0, OZ_ERR_FORMAT, "unable to decode byte"},
    {"bad UTF-8 in a value", "{\"__metadata__\":{\"a\":\"\xC3\"}}", 0, OZ_ERR_FORMAT,
     "decode byte"},
    {"a zero in a name", "{\"a\\u0000b\":{}}", 0, OZ_ERR_FORMAT, "\\u0000"},
    {"the same name twice", "{" T("w", "U8", "[2]", "0", "2") "," T("w", "U8", "[2]", "2", "4") "}",
     4, OZ_ERR_FORMAT, "duplicate"},
    {"the same key twice", "{\"w\":{\"dtype\":\"U8\",\"dtype\":\"I8\"}}", 0, OZ_ERR_FORMAT,
     "duplicate"},
    {"no name", "{" T("", "U8", "[4]", "0", "4") "}", 4, OZ_ERR_FORMAT, "1 to 4096 bytes, not 0"},
    {"an entry that is a list", "{\"w\":[]}", 0, OZ_ERR_FORMAT, "exactly dtype, shape and"},
    {"an entry that is null", "{\"w\":null}", 0, OZ_ERR_FORMAT, "exactly dtype, shape and"},
    {"no dtype", "{\"w\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, OZ_ERR_FORMAT,
     "exactly dtype"},
    {"no shape", "{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4, OZ_ERR_FORMAT, "exactly"},
    {"no offsets", "{\"w\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, OZ_ERR_FORMAT, "exactly dtype"},
    {"another key", "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"x\":1}}", 4,
     OZ_ERR_FORMAT, "exactly dtype"},
    {"another key instead", "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"offsets\":[0,4]}}", 4,
     OZ_ERR_FORMAT, "data_offsets"},
    {"a dtype that is a number", "{\"w\":{\"dtype\":3,\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
     OZ_ERR_FORMAT, "exactly dtype"},
    {"an unknown dtype", "{" T("w", "F7", "[4]", "0", "4") "}", 4, OZ_ERR_UNSUPPORTED,
     "tensor w has the unknown dtype \"F7\""},
    {"a dtype in small letters", "{" T("w", "f32", "[1]", "0", "4") "}", 4, OZ_ERR_UNSUPPORTED,
     "unknown dtype \"f32\""},
    {"a shape that is a number", SCALAR("1"), 4, OZ_ERR_FORMAT, "must be a list of at most 8"},
    {"a shape that is an object", SCALAR("{\"0\":1}"), 4, OZ_ERR_FORMAT, "must be a list"},
    {"rank 9", SCALAR("[1,1,1,1,1,1,1,1,1]"), 4, OZ_ERR_FORMAT, "at most 8"},
    {"a negative dim", SCALAR("[-1]"), 4, OZ_ERR_FORMAT, "dimension 0 of \"shape\" is not a size"},
    {"a fraction for a dim", SCALAR("[1,1.0]"), 4, OZ_ERR_FORMAT, "dimension 1 of \"shape\""},
    {"an exponent for a dim", SCALAR("[1e0]"), 4, OZ_ERR_FORMAT, "is not a size"},
    {"a text for a dim", SCALAR("[\"1\"]"), 4, OZ_ERR_FORMAT, "is not a size"},
    {"a dim with a zero in front", SCALAR("[01]"), 4, OZ_ERR_FORMAT, "not valid JSON"},
    {"a dim beyond 64 bits", SCALAR("[99999999999999999999]"), 4, OZ_ERR_FORMAT, "too big integer"},
    {"a product beyond 64 bits", SCALAR("[4294967296,4294967296]"), 4, OZ_ERR_FORMAT,
     "product overflows"},
    {"bits beyond 64 bits", SCALAR("[4611686018427387904]"), 4, OZ_ERR_FORMAT, "product overflows"},
    {"a product of bits that wraps to 32", SCALAR("[576460752303423489]"), 4, OZ_ERR_FORMAT,
     "product overflows"},
    {"half a byte", "{" T("w", "F4", "[3]", "0", "2") "}", 2, OZ_ERR_FORMAT,
     "rows of 3 elements of F4 do not fill whole bytes"},
    {"odd rows of F4 that make whole bytes", "{" T("w", "F4", "[2,7]", "0", "7") "}", 7,
     OZ_ERR_FORMAT, "rows of 7 elements of F4"},
    {"F6 rows of 6", "{" T("w", "F6_E2M3", "[2,6]", "0", "9") "}", 9, OZ_ERR_FORMAT, "rows of 6"},
    {"an F4 scalar", "{" T("w", "F4", "[]", "0", "1") "}", 1, OZ_ERR_FORMAT, "do not fill"},
    {"offsets of one number", "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4]}}", 4,
     OZ_ERR_FORMAT, "must be two integers"},
    {"offsets of three", "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]}}", 4,
     OZ_ERR_FORMAT, "must be two integers"},
    {"offsets that are no list", "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":4}}", 4,
     OZ_ERR_FORMAT, "must be two integers"},
    {"a negative begin", RANGE("-4", "0"), 4, OZ_ERR_FORMAT, "must be two integers"},
    {"begin behind end", RANGE("4", "0"), 4, OZ_ERR_FORMAT, "begin <= end"},
    {"a fraction", RANGE("0", "4.0"), 4, OZ_ERR_FORMAT, "must be two integers"},
    {"texts", RANGE("\"0\"", "\"4\""), 4, OZ_ERR_FORMAT, "must be two integers"},
    {"a zero in front", RANGE("00", "4"), 4, OZ_ERR_FORMAT, "not valid JSON"},
    {"beyond the file", RANGE("0", "4"), 3, OZ_ERR_FORMAT,
     "ends at byte 4 of the data, but the file holds only 3"},
    {"far beyond the file", RANGE("0", "9223372036854775807"), 4, OZ_ERR_FORMAT, "holds only 4"},
    {"beyond the file and empty", "{" T("w", "U8", "[0]", "5", "5") "}", 4, OZ_ERR_FORMAT,
     "holds only 4"},
    {"too few bytes for the shape", RANGE("0", "3"), 4, OZ_ERR_FORMAT,
     "its shape needs 4 bytes, its data_offsets span 3"},
    {"too many bytes for the shape", RANGE("0", "5"), 5, OZ_ERR_FORMAT, "needs 4 bytes"},
    {"an overlap", "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[4]", "2", "6") "}", 6,
     OZ_ERR_FORMAT, "the data overlap"},
    {"the same bytes twice",
     "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[4]", "0", "4") "}", 4, OZ_ERR_FORMAT,
     "the data overlap"},
    {"a hole", "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[4]", "8", "12") "}", 12,
     OZ_ERR_FORMAT, "the data have a hole"},
    {"a hole at the beginning", RANGE("4", "8"), 8, OZ_ERR_FORMAT, "the data have a hole"},
    {"an empty tensor inside another",
     "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[0]", "2", "2") "}", 4, OZ_ERR_FORMAT,
     "the data overlap"},
    {"metadata that are a list", "{\"__metadata__\":[]}", 0, OZ_ERR_FORMAT,
     "__metadata__ must be an object, not a list"},
    {"a number in the metadata", "{\"__metadata__\":{\"a\":\"b\",\"n\":1}}", 0, OZ_ERR_FORMAT,
     "__metadata__ \"n\" must be a string, not an integer"},
    {"null in the metadata", "{\"__metadata__\":{\"n\":null}}", 0, OZ_ERR_FORMAT, "not null"},
};

static void malformed_headers(void **state)
{
    const char *path = scratch_path("c.safetensors");
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        print_message("%s\n", headers[i].what);
        put("c.safetensors", headers[i].header, headers[i].data_bytes);
        is_refused(path, headers[i].status, headers[i].phrase);
        assert_non_null(strstr(err.message, "c.safetensors"));
    }
}

static void deep_headers(void **state)
{
    static char header[100000];
    size_t n = (size_t)snprintf(header, sizeof header, "{\"w\":");
    memset(header + n, '[', 40000);
    write_file("d.safetensors", header, n + 40000, n + 40000, 0);
    is_refused(scratch_path("d.safetensors"), OZ_ERR_FORMAT, "depth");
}

static void long_names(void **state)
{
    static char name[4098];
    static char header[5000];
    for (size_t bytes = 4096; bytes <= 4097; bytes++) {
        memset(name, 'n', bytes);
        name[bytes] = '\0';
        (void)snprintf(header, sizeof header,
                       "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
        put("e.safetensors", header, 1);
        if (bytes == 4096) {
            struct oz_ckpt *c = opened(scratch_path("e.safetensors"));
            assert_non_null(oz_ckpt_find(c, name, NULL));
            oz_ckpt_close(&c);
        } else {
            is_refused(scratch_path("e.safetensors"), OZ_ERR_FORMAT, "1 to 4096 bytes, not 4097");
        }
    }
}

/* ---- what is unusual and fine ---- */

/* Lengths whose bytes look like the beginning of something else. */
static void any_length(void **state)
{
    static char header[1024];
    for (size_t bytes = 2; bytes < sizeof header; bytes++) {
        struct oz_ckpt *c;
        memset(header, ' ', bytes);
        memcpy(header, "{}", 2);
        write_file("any.safetensors", header, bytes, bytes, 0);
        c = opened(scratch_path("any.safetensors"));
        assert_int_equal(oz_ckpt_count(c), 0);
        oz_ckpt_close(&c);
    }
}

static void without_tensors(void **state)
{
    static const char *const texts[] = {"{}", "{}      ", "{\"__metadata__\":{}}"};
    for (int i = 0; i < 3; i++) {
        put("f.safetensors", texts[i], 0);
        struct oz_ckpt *c = opened(scratch_path("f.safetensors"));
        assert_int_equal(oz_ckpt_count(c), 0);
        assert_null(oz_ckpt_find(c, "w", NULL));
        oz_ckpt_close(&c);
        oz_ckpt_close(&c);
    }
}

/* Bug log B14: scalars and tensors without elements. */
static void scalars_and_empty_tensors(void **state)
{
    put("g.safetensors",
        "{" T("a", "F32", "[]", "0", "4") "," T("b", "F32", "[0]", "4", "4") "," T(
            "c", "F32", "[2,0]", "4", "4") "," T("d", "F4", "[3,0]", "0", "0") "}",
        4);
    struct oz_ckpt *c = opened(scratch_path("g.safetensors"));
    static const struct {
        const char *name;
        int32_t rank;
        int64_t elements, bytes;
    } want[] = {{"a", 0, 1, 4}, {"b", 1, 0, 0}, {"c", 2, 0, 0}, {"d", 2, 0, 0}};
    for (int i = 0; i < 4; i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(c, i);
        assert_string_equal(t->name, want[i].name);
        assert_true(t->rank == want[i].rank && t->elements == want[i].elements);
        assert_int_equal(t->bytes, want[i].bytes);
        assert_true((t->data != NULL) == (t->bytes > 0));
        assert_int_equal(oz_ckpt_read(c, t, 0, t->bytes, (uint8_t[4]){0}, &err), OZ_OK);
    }
    oz_ckpt_close(&c);
}

/* Bug log B16, and the worked example of the format's description. */
static void every_dtype(void **state)
{
    for (int d = 0; d < OZ_DTYPE_COUNT; d++) {
        char header[200];
        int bytes = 8 * oz_dtype_bits((enum oz_dtype)d) / 8 * 2;
        (void)snprintf(header, sizeof header,
                       "{\"w\":{\"dtype\":\"%s\",\"shape\":[2,8],\"data_offsets\":[0,%d]}}",
                       oz_dtype_name((enum oz_dtype)d), bytes);
        put("h.safetensors", header, (size_t)bytes);
        struct oz_ckpt *c = opened(scratch_path("h.safetensors"));
        const struct oz_tensor_view *t = oz_ckpt_find(c, "w", NULL);
        assert_true(t->dtype == (enum oz_dtype)d && t->bytes == bytes && t->elements == 16);
        assert_true(t->shape[0] == 2 && t->shape[1] == 8 && t->codec == NULL);
        oz_ckpt_close(&c);
    }
    static const char worked[] =
        "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[0,4]}}    ";
    assert_int_equal(strlen(worked), 64);
    put("h.safetensors", worked, 4);
    struct oz_ckpt *c = opened(scratch_path("h.safetensors"));
    assert_int_equal(oz_ckpt_find(c, "w", NULL)->file_offset, 72);
    oz_ckpt_close(&c);
}

/* Bug log B15: trailing bytes are a warning, on every path. */
static void trailing_bytes(void **state)
{
    put("model.safetensors", RANGE("0", "4"), 4 + 16);
    const char *paths[] = {scratch_path("model.safetensors"), scratch_path(".")};
    for (int i = 0; i < 2; i++) {
        static const char *const stems[] = {"model", NULL};
        struct oz_ckpt *c;
        scratch_log_clear();
        oz_log_set(scratch_log_line, NULL);
        assert_int_equal(oz_ckpt_open(&c, paths[i], stems, &err), OZ_OK);
        oz_log_set(NULL, NULL);
        assert_non_null(strstr(scratch_log, "16 bytes after the last tensor are ignored"));
        assert_non_null(strstr(scratch_log, "warn ckpt:"));
        oz_ckpt_close(&c);
    }
    scratch_remove("model.safetensors");
}

static void unaligned_data_and_odd_order(void **state)
{
    put("i.safetensors",
        "{" T("b", "F32", "[1]", "1", "5") "," T("a", "U8", "[1]", "0", "1") ",\"__metadata__\":{"
                                                                             "\"k\":\"v\"}}",
        5);
    struct oz_ckpt *c = opened(scratch_path("i.safetensors"));
    int64_t at;
    assert_int_equal(oz_ckpt_count(c), 2);
    assert_string_equal(oz_ckpt_tensor(c, 0)->name, "a");
    const struct oz_tensor_view *b = oz_ckpt_find(c, "b", &at);
    assert_int_equal(at, 1);
    assert_memory_equal(b->data, "\x08\x0F\x16\x1D", 4);
    assert_string_equal(oz_ckpt_metadata(c, "k"), "v");
    assert_null(oz_ckpt_metadata(c, "none"));
    oz_ckpt_close(&c);
}

static void reading(void **state)
{
    uint8_t got[6] = {0};
    put("j.safetensors", "{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[4]", "2", "6") "}",
        6);
    struct oz_ckpt *c = opened(scratch_path("j.safetensors"));
    const struct oz_tensor_view *b = oz_ckpt_find(c, "b", NULL);
    assert_int_equal(oz_ckpt_read(c, b, 1, 2, got, &err), OZ_OK);
    assert_memory_equal(got, b->data + 1, 2);
    assert_int_equal(got[2], 0);
    assert_int_equal(oz_ckpt_read(c, b, 4, 0, got, &err), OZ_OK);
    static const int64_t bad[][2] = {{-1, 2}, {0, 5}, {4, 1}, {5, 0}, {0, -1}, {INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(oz_ckpt_read(c, b, bad[i][0], bad[i][1], got, &err), OZ_ERR_ARG);
        assert_non_null(strstr(err.message, "Tensor b has 4 bytes"));
    }
    assert_int_equal(truncate(scratch_path("j.safetensors"), 40), 0);
    assert_int_equal(oz_ckpt_read(c, b, 0, 4, got, &err), OZ_ERR_IO);
    assert_non_null(strstr(err.message, "become shorter"));
    assert_non_null(strstr(err.message, "j.safetensors"));
    oz_ckpt_close(&c);
}

/* ---- shards ---- */

#define INDEX "s/model.safetensors.index.json"
#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"

static void shards(const char *index)
{
    scratch_remove("s");
    scratch_folder("s");
    put("s/" SHARD_1, "{" T("a", "U8", "[4]", "0", "4") "}", 4);
    put("s/" SHARD_2, "{" T("b", "U8", "[4]", "0", "4") "}", 4);
    scratch_text(INDEX, index);
}

#define MAP(a, b) "{\"weight_map\":{\"a\":\"" a "\",\"b\":\"" b "\"}}"

static void opened_three_ways(void **state)
{
    shards(MAP(SHARD_1, SHARD_2));
    struct oz_ckpt *c = opened(scratch_path("s"));
    assert_true(oz_ckpt_count(c) == 2 && oz_ckpt_file_count(c) == 2);
    assert_int_equal(oz_ckpt_stray_count(c), 0);
    assert_non_null(strstr(oz_ckpt_file(c, oz_ckpt_find(c, "b", NULL)->file)->path, SHARD_2));
    oz_ckpt_close(&c);
    c = opened(scratch_path(INDEX));
    assert_int_equal(oz_ckpt_count(c), 2);
    oz_ckpt_close(&c);
    c = opened(scratch_path("s/" SHARD_1));
    assert_true(oz_ckpt_count(c) == 1 && oz_ckpt_stray_count(c) == 0);
    oz_ckpt_close(&c);
}

static void opened_from_the_folder_itself(void **state)
{
    char back[4096];
    shards(MAP(SHARD_1, SHARD_2));
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(scratch_path("s")), 0);
    struct oz_ckpt *c = opened("model.safetensors.index.json");
    assert_int_equal(oz_ckpt_count(c), 2);
    oz_ckpt_close(&c);
    c = opened(".");
    oz_ckpt_close(&c);
    assert_int_equal(chdir(back), 0);
}

static void stems(void **state)
{
    static const char *const first[] = {"other", "model", NULL};
    static const char *const none[] = {"absent", NULL};
    struct oz_ckpt *c;
    shards(MAP(SHARD_1, SHARD_2));
    put("s/other.safetensors", "{" T("o", "U8", "[4]", "0", "4") "}", 4);
    assert_int_equal(oz_ckpt_open(&c, scratch_path("s"), first, &err), OZ_OK);
    assert_non_null(oz_ckpt_find(c, "o", NULL));
    oz_ckpt_close(&c);
    /* an index of another name, as msModelSlim's quant_model_weights has; not one of two */
    assert_int_equal(oz_ckpt_open(&c, scratch_path("s"), none, &err), OZ_OK);
    assert_non_null(oz_ckpt_find(c, "b", NULL));
    assert_int_equal(oz_ckpt_stray_count(c), 1);
    oz_ckpt_close(&c);
    scratch_text("s/more.safetensors.index.json", MAP(SHARD_1, SHARD_2));
    assert_int_equal(oz_ckpt_open(&c, scratch_path("s"), none, &err), OZ_ERR_IO);
    assert_non_null(strstr(err.message, "absent.safetensors"));
    assert_non_null(strstr(err.message, "(but 2)"));
}

static void bad_indexes(void **state)
{
    static const struct {
        const char *index, *phrase;
    } cases[] = {
        {"{", "not valid JSON"},
        {"[]", "no \"weight_map\""},
        {"{}", "no \"weight_map\""},
        {"{\"weight_map\":{}}", "no \"weight_map\""},
        {"{\"weight_map\":[\"a\"]}", "no \"weight_map\""},
        {"{\"weight_map\":{\"a\":1}}", "tensor a is said to be in \"an integer\""},
        {MAP("../" SHARD_1, SHARD_2), "\"../" SHARD_1 "\", which is not a plain file name"},
        {MAP("/etc/passwd", SHARD_2), "not a plain file name"},
        {MAP("x/" SHARD_1, SHARD_2), "not a plain file name"},
        {MAP("..\\\\x", SHARD_2), "not a plain file name"},
        {MAP("..", SHARD_2), "not a plain file name"},
        {MAP(".", SHARD_2), "not a plain file name"},
        {MAP("", SHARD_2), "not a plain file name"},
        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\":\"" SHARD_1 "\\u0000.x\"}}", "\\u0000"},
        {"{\"weight_map\":{\"a\":\"" SHARD_1 "\"}}", ""}, /* the second shard is a stray: fine */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shards(cases[i].index);
        if (cases[i].phrase[0] != '\0') {
            is_refused(scratch_path("s"), OZ_ERR_FORMAT, cases[i].phrase);
            assert_non_null(strstr(err.message, "index.json"));
        } else {
            struct oz_ckpt *c = opened(scratch_path("s"));
            assert_int_equal(oz_ckpt_stray_count(c), 1);
            oz_ckpt_close(&c);
        }
    }
}

static void missing_shards_are_all_named(void **state)
{
    shards("{\"weight_map\":{\"a\":\"x1.safetensors\",\"b\":\"" SHARD_2
           "\",\"c\":\"x1.safetensors\",\"d\":\"y.safetensors\"}}");
    is_refused(scratch_path("s"), OZ_ERR_FORMAT, "x1.safetensors, y.safetensors.");
    assert_non_null(strstr(err.message, "is the download complete?"));
    assert_null(strstr(err.message, SHARD_2));
}

static void a_broken_shard_is_named(void **state)
{
    shards(MAP(SHARD_1, SHARD_2));
    put("s/" SHARD_2, RANGE("0", "4"), 3);
    is_refused(scratch_path("s"), OZ_ERR_FORMAT, SHARD_2);
}

/* Bug log B11: the index and the headers are compared both ways, and all that differ are named. */
static void index_and_shards_disagree(void **state)
{
    shards("{\"weight_map\":{\"a\":\"" SHARD_1 "\",\"b\":\"" SHARD_2 "\",\"mtp.0.w\":\"" SHARD_2
           "\",\"mtp.1.w\":\"" SHARD_2 "\"}}");
    is_refused(scratch_path("s"), OZ_ERR_FORMAT,
               "Not in the shard that the index names: mtp.{0..1}.w (the first: " SHARD_2 ").");
    shards(MAP(SHARD_1, SHARD_2));
    put("s/" SHARD_2, "{" T("b", "U8", "[4]", "0", "4") "," T("c", "U8", "[1]", "4", "5") "}", 5);
    is_refused(scratch_path("s"), OZ_ERR_FORMAT, "In a shard but not in the index: c.");
    shards(MAP(SHARD_2, SHARD_1)); /* each in the other one */
    is_refused(scratch_path("s"), OZ_ERR_FORMAT,
               "Not in the shard that the index names: a, b (the first: " SHARD_2 ").");
    shards(MAP(SHARD_1, SHARD_2));
    put("s/" SHARD_2, "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[1]", "4", "5") "}", 5);
    is_refused(scratch_path("s"), OZ_ERR_FORMAT, "Tensor a is in both");
    assert_non_null(strstr(err.message, SHARD_1));
    assert_non_null(strstr(err.message, SHARD_2));
}

/* A list too long for the message is in the log, whole. */
static void a_long_disagreement(void **state)
{
    static char index[400000];
    shards(MAP(SHARD_1, SHARD_2));
    size_t n = (size_t)snprintf(index, sizeof index, "{\"weight_map\":{\"a\":\"%s\"", SHARD_1);
    for (int i = 0; i < 3000; i++) {
        n += (size_t)snprintf(index + n, sizeof index - n, ",\"%c%c%c.w\":\"%s\"", 'a' + i % 26,
                              'a' + i / 26 % 26, 'a' + i / 676, SHARD_1);
    }
    (void)snprintf(index + n, sizeof index - n, ",\"zzz.last\":\"%s\"}}", SHARD_2);
    scratch_text(INDEX, index);
    scratch_log_clear();
    oz_log_set(scratch_log_line, NULL);
    is_refused(scratch_path("s"), OZ_ERR_FORMAT, "Not in the shard that the index names: aaa.w");
    oz_log_set(NULL, NULL);
    assert_string_equal(err.message + strlen(err.message) - 3, "...");
    assert_non_null(strstr(scratch_log, "zzz.last (the first: " SHARD_1
                                        "). In a shard but not in the index: b."));
}

/* Bug log B12: the index wins; what lies beside is named and not read. */
static void strays(void **state)
{
    shards(MAP(SHARD_1, SHARD_2));
    put("s/model.safetensors", "{" T("a", "F32", "[1]", "0", "4") "}", 4);
    put("s/extra.safetensors", "{" T("a", "F32", "[1]", "0", "4") "}", 4);
    scratch_text("s/old.gguf", "GGUF");
    scratch_text("s/notes.txt", "not a checkpoint");
    const char *paths[] = {scratch_path("s"), scratch_path(INDEX)};
    for (int i = 0; i < 2; i++) {
        struct oz_ckpt *c = opened(paths[i]);
        assert_int_equal(oz_ckpt_find(c, "a", NULL)->dtype, OZ_DTYPE_U8);
        assert_int_equal(oz_ckpt_stray_count(c), 3);
        assert_string_equal(oz_ckpt_stray(c, 0), "extra.safetensors");
        assert_string_equal(oz_ckpt_stray(c, 1), "model.safetensors");
        assert_string_equal(oz_ckpt_stray(c, 2), "old.gguf");
        oz_ckpt_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(length_of_the_header),
        cmocka_unit_test(another_limit),
        cmocka_unit_test(other_kinds_of_files),
        cmocka_unit_test(malformed_headers),
        cmocka_unit_test(deep_headers),
        cmocka_unit_test(long_names),
        cmocka_unit_test(any_length),
        cmocka_unit_test(without_tensors),
        cmocka_unit_test(scalars_and_empty_tensors),
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(trailing_bytes),
        cmocka_unit_test(unaligned_data_and_odd_order),
        cmocka_unit_test(reading),
        cmocka_unit_test(opened_three_ways),
        cmocka_unit_test(opened_from_the_folder_itself),
        cmocka_unit_test(stems),
        cmocka_unit_test(bad_indexes),
        cmocka_unit_test(missing_shards_are_all_named),
        cmocka_unit_test(a_broken_shard_is_named),
        cmocka_unit_test(index_and_shards_disagree),
        cmocka_unit_test(a_long_disagreement),
        cmocka_unit_test(strays),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
