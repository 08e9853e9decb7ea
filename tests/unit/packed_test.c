/*
 * What kernels of devices decode weights by, compiled for this processor, against the codecs: GGUF's blocks
 * and integers in groups, eight elements at a time, on random bytes, bit for bit.
 */
#include "test.h"

#include "num/codec_list.h"
#include "num/float.h"
#include "num/gguf.h"
#include "num/gguf_run.h"
#include "num/int_group.h"

static uint64_t state_ = 1;

static uint32_t draw(void)
{
    state_ = state_ * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state_ >> 33);
}

/* The same bits; which NaN it is, the makers do not say. */
static bool same(float a, float b)
{
    return oz_f32_bits(a) == oz_f32_bits(b) || (a != a && b != b);
}

static void gguf_blocks(void **state)
{
    enum { BLOCKS = 512 };
    static uint8_t bytes[BLOCKS * 292];
    static float want[OZ_GGUF_MOST_ELEMENTS];
    int types = 0;
    (void)state;
    for (uint32_t number = 0; number < 64; number++) {
        const struct oz_gguf_type *t = oz_gguf_type_find(number);
        if (t == NULL || t->codec == NULL) {
            continue;
        }
        struct oz_weight w = oz_weight_shape(t->codec, 1, BLOCKS, t->elements);
        w.planes[OZ_PLANE_CODES].data = bytes;
        w.planes[OZ_PLANE_CODES].row_stride_bytes = t->bytes;
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (uint8_t)draw();
        }
        for (int b = 0; b < BLOCKS; b++) {
            t->codec->decode(&w, 0, b, 0, t->elements, want);
            for (int at = 0; at < t->elements; at += 8) {
                float y[8];
                oz_gguf_run(number, bytes + (int64_t)b * t->bytes, at, 8, y);
                for (int i = 0; i < 8; i++) {
                    if (!same(y[i], want[at + i])) {
                        fail_msg("%s: element %d is %a, the codec's %a", t->name, at + i,
                                 (double)y[i], (double)want[at + i]);
                    }
                }
            }
        }
        types++;
    }
    assert_int_equal(types, 27);
}

enum { ROWS = 3, MOST_COLS = 300 };

/* A weight of random codes, and what a row of it is to a device. */
struct groups {
    struct oz_weight w;
    uint8_t planes[5][ROWS * MOST_COLS * 4];
};

static void add_plane(struct groups *g, int at, enum oz_plane plane)
{
    struct oz_plane_view *v = &g->w.planes[plane];
    v->present = true;
    v->dtype = oz_codec_plane(g->w.codec, plane)->dtype;
    assert_int_equal(oz_weight_plane_bytes(&g->w, plane, &v->bytes, &v->row_stride_bytes), OZ_OK);
    assert_true(v->bytes <= (int64_t)sizeof g->planes[at]);
    v->data = g->planes[at];
    for (int64_t i = 0; i < v->bytes; i++) {
        g->planes[at][i] = (uint8_t)draw();
    }
    for (int64_t i = 0; v->dtype == OZ_DTYPE_F32 && i < v->bytes / 4; i++) {
        float x = (float)((int32_t)(draw() % 2001) - 1000) / 256;
        memcpy(g->planes[at] + 4 * i, &x, sizeof x);
    }
}

static struct oz_int_group_row row_of(const struct groups *g, int64_t row, int bits)
{
    const struct oz_plane_view *p = g->w.planes;
    const struct oz_plane_view *zeros = &p[OZ_PLANE_ZEROS];
    const struct oz_plane_view *mins = &p[OZ_PLANE_MINS];
    const struct oz_plane_view *scales = &p[OZ_PLANE_SCALES];
    return (struct oz_int_group_row){
        .codes = (uint8_t *)p[OZ_PLANE_CODES].data + row * p[OZ_PLANE_CODES].row_stride_bytes,
        .zeros = zeros->present ? (uint8_t *)zeros->data + row * zeros->row_stride_bytes : NULL,
        .scales = (float *)scales->data + row * scales->row_stride_bytes / 4,
        .mins = mins->present ? (float *)mins->data + row * mins->row_stride_bytes / 4 : NULL,
        .groups = p[OZ_PLANE_PERM].present ? p[OZ_PLANE_PERM].data : NULL,
        .group_cols = g->w.group_cols,
        .bits = bits};
}

static void one_weight(int bits, int64_t cols, int32_t group_cols, int with)
{
    static struct groups g;
    static float want[MOST_COLS];
    char name[16];
    (void)snprintf(name, sizeof name, "u%d_group", bits);
    g.w = oz_weight_shape(oz_codec_find(name), 1, ROWS, cols);
    g.w.group_cols = group_cols;
    add_plane(&g, 0, OZ_PLANE_CODES);
    add_plane(&g, 1, OZ_PLANE_SCALES);
    if ((with & 1) != 0) {
        add_plane(&g, 2, OZ_PLANE_ZEROS);
    }
    if ((with & 2) != 0) {
        add_plane(&g, 3, OZ_PLANE_MINS);
    }
    if ((with & 4) != 0) {
        add_plane(&g, 4, OZ_PLANE_PERM);
        int32_t *perm = g.w.planes[OZ_PLANE_PERM].data;
        for (int64_t c = 0; c < cols; c++) {
            perm[c] = (int32_t)(draw() % (uint32_t)((cols + group_cols - 1) / group_cols));
        }
    }
    for (int64_t r = 0; r < ROWS; r++) {
        const struct oz_int_group_row row = row_of(&g, r, bits);
        g.w.codec->decode(&g.w, 0, r, 0, cols, want);
        for (int64_t c = 0; c < cols; c++) {
            const struct oz_int_group group = oz_int_group_of(&row, c);
            float one;
            float y[8];
            g.w.codec->decode(&g.w, 0, r, c, 1, &one); /* wherever it begins */
            assert_true(same(one, want[c]));
            assert_true(same(oz_int_group_get(&row, &group, c), want[c]));
            if (c + 8 > cols) {
                continue;
            }
            oz_int_group_eight(&row, c, y);
            for (int i = 0; i < 8; i++) {
                if (!same(y[i], want[c + i])) {
                    fail_msg("%s of %d in %d with %d: column %d is %a, the codec's %a", name,
                             (int)cols, (int)group_cols, with, (int)c + i, (double)y[i],
                             (double)want[c + i]);
                }
            }
        }
    }
}

static void integers(void **state)
{
    static const struct {
        int64_t cols;
        int32_t group;
    } shapes[] = {{256, 32}, {300, 300}, {299, 128}, {60, 20}, {33, 8}, {7, 3}};
    (void)state;
    for (int bits = 2; bits <= 8; bits++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            for (int with = 0; with < 8; with++) {
                one_weight(bits, shapes[i].cols, shapes[i].group, with);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_blocks),
        cmocka_unit_test(integers),
    };
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
