/* Entries about files that other toolchains have quantized: GGUF, and zero points. */
#include "bugs/bugs.h"
#include "test.h"

#include <string.h>

#include "base/error.h"
#include "ckpt/table.h"
#include "gguf_file.h"
#include "num/gguf.h"
#include "num/unpack.h"
#include "quant/dialect/dialect.h"
#include "scratch.h"

enum { F32 = 0, Q8_0 = 8, Q4_K = 12 };

static struct oz_error err;

/* The written file opened, and its quantized rows found for one row of a table. */
static enum oz_status find(const char *path, const struct oz_layer *row, const char *name,
                           struct oz_stored *stored, struct oz_ckpt **ckpt)
{
    static struct oz_arena memory;
    static struct oz_layer_table table;
    if (memory.base == NULL) {
        OZ_TRY(oz_arena_init_host(&memory, "bugs", 1 << 16, &err));
    }
    oz_arena_reset(&memory, 0);
    enum oz_status status = oz_ckpt_open(ckpt, path, NULL, &err);
    if (status == OZ_OK) {
        status = oz_layer_table_init(&table, &memory, "test", 1, 0);
        oz_layer_add(&table, row, "%s", name);
        status = status == OZ_OK ? oz_layer_table_finish(&table, &err) : status;
    }
    const struct oz_stored_input in = {
        .path = "config.json", .ckpt = *ckpt, .table = &table, .arena = &memory};
    return status == OZ_OK ? oz_stored_read(stored, &in, &err) : status;
}

static const char *one_tensor(const char *name, uint32_t rank, const uint64_t *sizes, uint32_t type,
                              size_t bytes)
{
    gguf_begin(1, 0);
    gguf_tensor(name, rank, sizes, type, 0);
    gguf_pad(32);
    gguf_data(bytes);
    return gguf_write("bug.gguf");
}

/* An embedding [3, 2048] in Q8_0, whose rows have 2176 bytes. */
void b28_block_bytes_are_not_elements(void)
{
    static const uint64_t sizes[] = {2048, 3};
    const struct oz_layer row = {.kind = OZ_LAYER_EMBED, .rank = 2, .shape = {3, 2048}};
    struct oz_stored stored;
    struct oz_ckpt *c = NULL;
    const char *path = one_tensor("e.weight", 2, sizes, Q8_0, 3UL * 2176);
    if (bugs_works(find(path, &row, "e.weight", &stored, &c), &err, "an embedding in blocks")) {
        const struct oz_tensor_view *t = oz_ckpt_find(c, "e.weight", NULL);
        bugs_right(t->shape[1] == 2048 && t->elements == 6144 && t->bytes == 6528, "its shape");
        bugs_right(stored.count == 1 && stored.schemes[0].codec == t->codec,
                   "it is read in blocks");
        struct oz_weight w = oz_weight_shape(t->codec, 1, 3, 2048);
        float last;
        w.planes[OZ_PLANE_CODES].data = (void *)(uintptr_t)t->data;
        w.planes[OZ_PLANE_CODES].row_stride_bytes = 2176;
        w.codec->decode(&w, 0, 2, 2047, 1, &last);
        const uint8_t *block = t->data + 6528 - 34;
        struct oz_weight d = oz_weight_plain(OZ_DTYPE_F16, 1, 1, 1, (void *)(uintptr_t)block);
        float scale;
        d.codec->decode(&d, 0, 0, 0, 1, &scale);
        bugs_right(last == scale * (float)(int8_t)block[33], "its last element");
    }
    oz_ckpt_close(&c);
}

/* [1, 6, 4], [4] and a convolution of five dimensions: all sizes are kept, those of 1 too. */
void b29_lost_unit_dimensions(void)
{
    static const uint64_t three[] = {4, 6, 1};
    static const uint64_t one[] = {4};
    static const uint64_t five[] = {2, 2, 1, 3, 8};
    struct oz_ckpt *c = NULL;
    gguf_begin(3, 0);
    gguf_tensor("three", 3, three, F32, 0);
    gguf_tensor("one", 1, one, F32, 96);
    gguf_tensor("five", 5, five, F32, 128);
    gguf_pad(32);
    gguf_data(96 + 32 + 384);
    if (bugs_works(oz_ckpt_open(&c, gguf_write("units.gguf"), NULL, &err), &err, "the file")) {
        const struct oz_tensor_view *a = oz_ckpt_find(c, "three", NULL);
        const struct oz_tensor_view *b = oz_ckpt_find(c, "one", NULL);
        const struct oz_tensor_view *d = oz_ckpt_find(c, "five", NULL);
        bugs_right(a->rank == 3 && a->shape[0] == 1 && a->shape[1] == 6 && a->shape[2] == 4,
                   "a leading 1");
        bugs_right(b->rank == 1 && b->shape[0] == 4, "one dimension");
        bugs_right(d->rank == 5 && d->shape[0] == 8 && d->shape[2] == 1, "five dimensions");
    }
    oz_ckpt_close(&c);
}

/* [32, 64] as Q4_K of an old tool: blocks of 256 run across its rows. */
void b30_rows_shorter_than_a_block(void)
{
    static const uint64_t flat[] = {256, 8};
    const struct oz_layer row = {.kind = OZ_LAYER_LINEAR, .rank = 2, .shape = {32, 64}};
    struct oz_stored stored;
    struct oz_ckpt *c = NULL;
    for (int keyed = 0; keyed < 2; keyed++) {
        gguf_begin(1, (uint64_t)keyed);
        if (keyed) {
            gguf_key("comfy.gguf.orig_shape.img_in.weight", 9);
            gguf_u32(5);
            gguf_u64(2);
            gguf_u32(32);
            gguf_u32(64);
        }
        gguf_tensor("img_in.weight", 2, flat, Q4_K, 0);
        gguf_pad(32);
        gguf_data(8UL * 144);
        enum oz_status got = find(gguf_write("short.gguf"), &row, "img_in.weight", &stored, &c);
        bugs_refused(got, &err, keyed ? OZ_ERR_UNSUPPORTED : OZ_ERR_FORMAT,
                     keyed ? "shorter than the blocks of Q4_K (256)"
                           : "is [8, 256] (Q4_K), but config.json asks for [32, 64]",
                     "blocks across rows");
        oz_ckpt_close(&c);
    }
}

/* Hidden 64 in the file, 96 in the config. */
void b31_shape_errors_name_the_right_shapes(void)
{
    static const uint64_t sizes[] = {64, 64};
    const struct oz_layer row = {.kind = OZ_LAYER_LINEAR, .rank = 2, .shape = {96, 96}};
    struct oz_stored stored;
    struct oz_ckpt *c = NULL;
    const char *path = one_tensor("q.weight", 2, sizes, Q8_0, 64UL * 68);
    bugs_refused(
        find(path, &row, "q.weight", &stored, &c), &err, OZ_ERR_FORMAT,
        "Tensor q.weight of the file is [64, 64] (Q8_0), but config.json asks for [96, 96]",
        "another variant");
    oz_ckpt_close(&c);
}

/* All zero points from 0 to 15, under each convention. */
void b32_zero_points_keep_their_convention(void)
{
    for (uint32_t n = 0; n < 16; n++) {
        uint32_t same = n * 0x11111111U;
        uint32_t less = same - 0x11111111U; /* from whole words */
        uint8_t bytes[4];
        uint8_t z[8] = {0};
        bool right = true;
        memcpy(bytes, &same, 4);
        oz_unpack_awq_zeros(bytes, 0, 8, 0, z, 1);
        for (int i = 0; i < 8; i++) {
            right = right && z[i] == n;
        }
        (void)oz_unpack_gptq_zeros(bytes, 0, 8, 4, OZ_FIELDS_DENSE, 0, 0, z, 1);
        right = right && z[0] == n && z[7] == n;
        memcpy(bytes, &less, 4);
        int64_t zeros = oz_unpack_gptq_zeros(bytes, 0, 8, 4, OZ_FIELDS_DENSE, 1, 0, z, 1);
        right = right && z[0] == n && z[7] == n && zeros == (n == 0 ? 8 : 0);
        bugs_right(right, "a zero point");
    }
}

/* The five headers of the list. */
void b58_headers_of_gguf(void)
{
    static const uint64_t sizes[] = {32};
    struct oz_ckpt *c = NULL;
    gguf_begin(UINT64_MAX / 64, 0);
    gguf_data(64);
    bugs_refused(oz_ckpt_open(&c, gguf_write("count.gguf"), NULL, &err), &err, OZ_ERR_FORMAT,
                 "tensors; its 88 bytes have room for 2", "a number of tensors that overflows");
    gguf_begin(1, 0);
    gguf_str("t");
    gguf_u32(1000000);
    gguf_data(64);
    bugs_refused(oz_ckpt_open(&c, gguf_write("dims.gguf"), NULL, &err), &err, OZ_ERR_FORMAT,
                 "1000000 dimensions", "a million dimensions");
    gguf_begin(0, 1);
    gguf_key("a", 9);
    gguf_u32(6);
    gguf_u64(24);
    gguf_data(40);
    bugs_refused(oz_ckpt_open(&c, gguf_write("array.gguf"), NULL, &err), &err, OZ_ERR_FORMAT,
                 "the file ends within a", "an array of more bytes than elements");
    bugs_refused(oz_ckpt_open(&c, one_tensor("t", 1, sizes, 77, 34), NULL, &err), &err,
                 OZ_ERR_UNSUPPORTED, "has the type 77", "an unknown type");
    gguf_begin(0, 1);
    gguf_key_u32("general.alignment", 0);
    bugs_refused(oz_ckpt_open(&c, gguf_write("alignment.gguf"), NULL, &err), &err, OZ_ERR_FORMAT,
                 "must be a power of two", "an alignment of 0");
}
