/* Checkpoints of other toolchains, as their makers wrote them (tests/golden/dialects): what is found out, and
 * what the layers are worth. */
#include "test.h"

#include <math.h>

#include "base/error.h"
#include "dialect_file.h"
#include "dialect_model.h"
#include "num/float.h"
#include "num/plane.h"
#include "num/rotate.h"
#include "scratch.h"

#define GOLDEN OZ_TEST_DIR "/golden/dialects"

static struct oz_error err;

/* Each fixture: the method that is concluded, schemes by module, and a part of what is said of it. */
static const struct fixture {
    const char *name, *method;
    const char *schemes; /* "module=scheme/activations ..." */
    const char *note;
} fixtures[] = {
#include "dialect_cases.inc"
};

static const char *scheme_text(const struct dialect_model *m)
{
    static char text[1024];
    size_t n = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < m->table.count; i++) {
        const struct oz_scheme *s = &m->stored.schemes[i];
        if (m->stored.schemes != NULL && s->codec != NULL && s->mode_count > 0) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s=%s/%s", n > 0 ? " " : "",
                                  m->table.rows[i].module, s->name, oz_act_mode_name(s->acts[0]));
        }
    }
    return text;
}

static void makers_values(void **state)
{
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        const struct fixture *f = &fixtures[i];
        struct dialect_model m;
        char weights[512];
        char expected[512];
        double worst;
        (void)snprintf(weights, sizeof weights, GOLDEN "/%s", f->name);
        (void)snprintf(expected, sizeof expected, GOLDEN "/%s/expected.safetensors", f->name);
        if (dialect_open(&m, weights, expected, &err) != OZ_OK || dialect_load(&m, &err) != OZ_OK) {
            print_error("%s: %s\n", f->name, err.message);
            dialect_close(&m);
            wrong++;
            continue;
        }
        bool note = false;
        for (int32_t k = 0; k < m.stored.note_count; k++) {
            note = note || strstr(m.stored.notes[k], f->note) != NULL;
        }
        const char *bad = dialect_compare(&m, &worst);
        printf("%-24s %-18s worst %.3g units\n", f->name, m.stored.method, worst);
        if (bad != NULL || !note || strcmp(m.stored.method, f->method) != 0 ||
            strcmp(scheme_text(&m), f->schemes) != 0) {
            print_error("%s: %s differs, by %g units; %s; %s; notes %s\n", f->name,
                        bad != NULL ? bad : "nothing", worst, m.stored.method, scheme_text(&m),
                        note ? "fine" : "without the one that is wanted");
            wrong++;
        }
        dialect_close(&m);
    }
    assert_int_equal(wrong, 0);
}

/* ---- rows of the file in another order ---- */

enum { MOST_ROWS = 256 };

static float value_at(const struct oz_weight *w, int64_t row, int64_t col)
{
    float x;
    w->codec->decode(w, 0, row, col, 1, &x);
    return x;
}

/* Linear layers as a model of another convention asks for them; how many rows were compared. */
static int64_t moved_rows(const char *name, uint32_t transform, bool *refused)
{
    static int32_t backwards[DIALECT_MAX_ROWS][MOST_ROWS];
    struct dialect_model plain;
    struct dialect_model moved;
    char weights[512];
    char expected[512];
    int64_t compared = 0;
    (void)snprintf(weights, sizeof weights, GOLDEN "/%s", name);
    (void)snprintf(expected, sizeof expected, GOLDEN "/%s/expected.safetensors", name);
    assert_int_equal(dialect_open(&plain, weights, expected, &err), OZ_OK);
    assert_int_equal(dialect_load(&plain, &err), OZ_OK);
    assert_int_equal(dialect_expect(&moved, expected, &err), OZ_OK);
    for (int32_t i = 0; i < moved.table.count; i++) {
        struct oz_layer *l = &moved.table.rows[i];
        if (oz_stored_is_matrix(l)) {
            l->transform = transform;
            l->permutation = backwards[i];
            assert_true(l->shape[0] <= MOST_ROWS);
            for (int64_t r = 0; r < l->shape[0]; r++) {
                backwards[i][r] = (int32_t)(l->shape[0] - 1 - r);
            }
        }
    }
    assert_int_equal(dialect_open_weights(&moved, weights, &err), OZ_OK);
    enum oz_status status = dialect_load(&moved, &err);
    *refused = status == OZ_ERR_UNSUPPORTED && strstr(err.message, "rows would have to be moved");
    assert_true(status == OZ_OK || *refused);
    for (int32_t i = 0; i < moved.table.count && status == OZ_OK; i++) {
        const struct oz_weight *a = &plain.table.rows[i].bind->weight;
        const struct oz_weight *b = &moved.table.rows[i].bind->weight;
        int64_t half = a->rows / 2;
        for (int64_t r = 0; r < a->rows && moved.table.rows[i].transform != 0; r++, compared++) {
            int64_t from = transform & OZ_TRANSFORM_PERMUTE ? backwards[i][r] : r;
            from = transform & OZ_TRANSFORM_SWAP_HALVES ? (from + half) % (2 * half) : from;
            for (int64_t c = 0; c < a->cols; c++) {
                if (value_at(a, from, c) != value_at(b, r, c)) {
                    fail_msg("%s: row %d of %s is not row %d of the file", name, (int)r,
                             moved.table.rows[i].name, (int)from);
                }
            }
        }
    }
    dialect_close(&moved);
    dialect_close(&plain);
    return compared;
}

/* Halves of the out features are exchanged, and rows re-ordered, with all that goes along with them, whatever
 * the toolchain; but for what rows share that would part. */
static void other_orders(void **state)
{
    static const uint32_t orders[] = {OZ_TRANSFORM_SWAP_HALVES, OZ_TRANSFORM_PERMUTE,
                                      OZ_TRANSFORM_PERMUTE | OZ_TRANSFORM_SWAP_HALVES};
    (void)state;
    for (int k = 0; k < 3; k++) {
        int moved = 0;
        int refusals = 0;
        for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
            bool refused;
            moved += moved_rows(fixtures[i].name, orders[k], &refused) > 0;
            refusals += refused;
        }
        print_message("order %d: moved in %d, refused in %d\n", k, moved, refusals);
        assert_int_equal(moved + refusals, sizeof fixtures / sizeof *fixtures);
        assert_true(moved > 35 && refusals < 8);
    }
}

/* ---- integers of 4 bits stay packed ---- */

static bool is_packed(const struct dialect_model *m, int32_t row)
{
    return m->stored.schemes[row].codec != NULL &&
           strcmp(m->stored.schemes[row].codec->name, "u4_group") == 0;
}

/* The layer takes its codes and a few scales; each value, rounded, is the bits that expanding leaves, and,
 * where they are given in bf16, the maker's. */
static void same_as_expanded(const char *name, const struct oz_weight *w, const struct oz_weight *x,
                             const struct oz_tensor_view *want)
{
    int64_t bytes;
    int64_t groups = (w->cols + w->group_cols - 1) / w->group_cols;
    assert_string_equal(w->codec->name, "u4_group");
    assert_string_equal(x->codec->name, "bf16");
    assert_int_equal(oz_weight_bytes(w, &bytes), OZ_OK);
    int64_t scales = w->rows * groups * (w->planes[OZ_PLANE_MINS].present ? 8 : 4);
    int64_t zeros = w->planes[OZ_PLANE_ZEROS].present ? w->rows * ((groups + 1) / 2) : 0;
    assert_int_equal(bytes, w->rows * w->cols / 2 + scales + zeros);
    for (int64_t i = 0; i < w->rows * w->cols; i++) {
        uint16_t got = oz_f32_to_bf16(value_at(w, i / w->cols, i % w->cols));
        uint16_t left = oz_f32_to_bf16(value_at(x, i / w->cols, i % w->cols));
        float y;
        oz_plane_read(want->dtype, want->data, i, 1, &y);
        if (got != left || (want->dtype == OZ_DTYPE_BF16 && got != oz_f32_to_bf16(y))) {
            fail_msg("%s: element %d is 0x%04x, expanded 0x%04x, the maker's %g", name, (int)i, got,
                     left, (double)y);
        }
    }
}

/* The same values through the staging of a device of its own memory. */
static void same_as_staged(const char *name, const struct oz_weight *w, const struct oz_weight *x)
{
    assert_ptr_equal(w->codec, x->codec);
    for (int64_t i = 0; i < w->rows * w->cols; i++) {
        if (value_at(w, i / w->cols, i % w->cols) != value_at(x, i / w->cols, i % w->cols)) {
            fail_msg("%s: element %d is another one where it is staged", name, (int)i);
        }
    }
}

/* How many layers of a fixture stay packed. `weights`: it, or what became of it. */
static int packed_layers(const char *weights, const char *fixture, size_t *saved)
{
    struct dialect_model packed;
    struct dialect_model expanded;
    struct dialect_model staged;
    char expected[512];
    int layers = 0;
    (void)snprintf(expected, sizeof expected, GOLDEN "/%s/expected.safetensors", fixture);
    assert_int_equal(dialect_open(&staged, weights, expected, &err), OZ_OK);
    assert_int_equal(dialect_open_device(&staged, &err), OZ_OK);
    staged.dev->host_memory = false;
    assert_int_equal(dialect_load(&staged, &err), OZ_OK);
    assert_int_equal(dialect_open(&packed, weights, expected, &err), OZ_OK);
    assert_int_equal(dialect_open(&expanded, weights, expected, &err), OZ_OK);
    for (int32_t i = 0; i < packed.table.count; i++) {
        if (packed.stored.schemes != NULL && is_packed(&packed, i)) {
            oz_stored_expand(&expanded.stored, i);
            layers++;
        }
    }
    assert_int_equal(dialect_load(&packed, &err), OZ_OK);
    assert_int_equal(dialect_load(&expanded, &err), OZ_OK);
    for (int32_t i = 0; i < packed.table.count && layers > 0; i++) {
        const char *name = packed.table.rows[i].name;
        if (is_packed(&packed, i)) {
            same_as_expanded(name, &packed.params[i].weight, &expanded.params[i].weight,
                             oz_ckpt_find(packed.expected, name, NULL));
            same_as_staged(name, &packed.params[i].weight, &staged.params[i].weight);
        }
    }
    *saved = expanded.model.used_bytes - packed.model.used_bytes;
    dialect_close(&staged);
    dialect_close(&expanded);
    dialect_close(&packed);
    return layers;
}

static void packed_integers(void **state)
{
    static const struct {
        const char *name;
        int layers;
    } cases[] = {{"ct_int4", 2},
                 {"ct_int4_asym", 2},
                 {"ct_int4_channel", 2},
                 {"modelopt_int4_awq", 0}, /* its rows are multiplied by a vector */
                 {"modelslim", 1},
                 {"modelslim_more", 3},
                 {"nunchaku_fused_int4", 1}, /* the modulation */
                 {"nunchaku_int4", 0},       /* has a branch */
                 {"quark", 1},
                 {"torchao_int4", 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char weights[512];
        size_t saved;
        (void)snprintf(weights, sizeof weights, GOLDEN "/%s", cases[i].name);
        assert_int_equal(packed_layers(weights, cases[i].name, &saved), cases[i].layers);
        assert_true(cases[i].layers == 0 || saved > 0);
    }
}

/* ModelOpt's codes of 4 bits without a vector that rows are multiplied by, where the config says so. */
static void packed_without_vector(void **state)
{
    static const char name[] = "attn.to_q.weight";
    struct dialect_file f;
    struct dialect_model m;
    int32_t row = 0;
    (void)state;
    scratch_copy("w4a16", GOLDEN "/modelopt_int4_awq");
    dialect_file_read(&f, GOLDEN "/modelopt_int4_awq/model.safetensors");
    dialect_file_find(&f, "attn.to_q.pre_quant_scale")->gone = true;
    dialect_file_write(&f, 0, f.count, "w4a16/model.safetensors");
    scratch_edit("w4a16/config.json", "\"W4A16_AWQ\"", "\"W4A16_AWQ\", \"pre_quant_scale\": false");
    assert_int_equal(dialect_open(&m, scratch_path("w4a16"),
                                  GOLDEN "/modelopt_int4_awq/expected.safetensors", &err),
                     OZ_OK);
    assert_int_equal(dialect_load(&m, &err), OZ_OK);
    while (strcmp(m.table.rows[row].name, name) != 0) {
        row++;
    }
    const struct oz_weight *w = &m.params[row].weight;
    const struct dialect_piece *codes = dialect_file_find(&f, name);
    const struct dialect_piece *scales = dialect_file_find(&f, "attn.to_q.weight_scale");
    assert_string_equal(w->codec->name, "u4_group");
    assert_string_equal(scales->dtype, "F32");
    for (int64_t i = 0; i < w->rows * w->cols; i++) {
        int64_t r = i / w->cols;
        int64_t c = i % w->cols;
        int code = codes->data[r / 2 * w->cols + c] >> (r % 2 * 4) & 15;
        float scale;
        memcpy(&scale, scales->data + 4 * (r * scales->shape[1] + c * scales->shape[1] / w->cols),
               sizeof scale);
        assert_true(value_at(w, r, c) == (float)(code < 8 ? code : code - 16) * scale);
    }
    dialect_close(&m);
    dialect_file_free(&f);
}

/* A layer of compressed-tensors whose two groups stand the other way round, as its list of groups says. */
static void turn_groups(struct dialect_file *f, const char *module)
{
    char name[300];
    (void)snprintf(name, sizeof name, "%s.weight_scale", module);
    struct dialect_piece *s = dialect_file_find(f, name);
    struct dialect_piece *order = &f->pieces[f->count++];
    int64_t groups = s->shape[1];
    int64_t cols = 32 * groups;
    assert_string_equal(s->dtype, "F32");
    for (int64_t r = 0; r < s->shape[0]; r++) {
        for (int64_t g = 0; g < groups / 2; g++) {
            uint8_t *row = s->data + 4 * r * groups;
            uint8_t kept[4];
            memcpy(kept, row + 4 * g, 4);
            memcpy(row + 4 * g, row + 4 * (groups - 1 - g), 4);
            memcpy(row + 4 * (groups - 1 - g), kept, 4);
        }
    }
    *order = (struct dialect_piece){
        .dtype = "I32", .rank = 1, .shape = {cols}, .bytes = (size_t)cols * 4};
    (void)snprintf(order->name, sizeof order->name, "%s.weight_g_idx", module);
    order->data = malloc(order->bytes);
    for (int64_t c = 0; c < cols; c++) {
        int32_t group = (int32_t)(groups - 1 - c / 32);
        memcpy(order->data + 4 * c, &group, 4);
    }
}

static void groups_in_an_order(void **state)
{
    static const char expected[] = GOLDEN "/ct_int4/expected.safetensors";
    struct dialect_file f;
    struct dialect_model m;
    (void)state;
    scratch_copy("order", GOLDEN "/ct_int4");
    dialect_file_read(&f, GOLDEN "/ct_int4/model.safetensors");
    turn_groups(&f, "attn.to_q");
    turn_groups(&f, "mlp.up");
    dialect_file_write(&f, 0, f.count, "order/model.safetensors");
    assert_int_equal(dialect_open(&m, scratch_path("order"), expected, &err), OZ_OK);
    assert_int_equal(dialect_load(&m, &err), OZ_OK);
    assert_null(dialect_compare(&m, NULL));
    dialect_close(&m);

    scratch_edit("order/config.json", "\"num_bits\": 4",
                 "\"actorder\": \"group\", \"num_bits\": 4");
    assert_int_equal(dialect_open(&m, scratch_path("order"), expected, &err), OZ_OK);
    dialect_close(&m);
    dialect_file_find(&f, "mlp.up.weight_g_idx")->gone = true;
    dialect_file_write(&f, 0, f.count, "order/model.safetensors");
    assert_int_equal(dialect_open(&m, scratch_path("order"), expected, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "the tensor mlp.up.weight_g_idx is missing"));
    dialect_close(&m);

    dialect_file_find(&f, "mlp.up.weight_g_idx")->gone = false;
    memset(dialect_file_find(&f, "attn.to_q.weight_g_idx")->data, 7, 4);
    dialect_file_write(&f, 0, f.count, "order/model.safetensors");
    assert_int_equal(dialect_open(&m, scratch_path("order"), expected, &err), OZ_OK);
    assert_int_equal(dialect_load(&m, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "attn.to_q.weight_g_idx: column 0 is in group"));
    dialect_close(&m);
    dialect_file_free(&f);
}

/* Integers alone, and integers under a level of FP8, are two algorithms: a file of one is none of the other. */
static void fp8_level_is_named(void **state)
{
    static const struct {
        const char *fixture, *named, *other, *message;
    } cases[] = {
        {"modelopt_w4a8_awq", "\"W4A8_AWQ\"", "\"W4A16_AWQ\"", "attn.to_q.weight_scale_2"},
        {"modelopt_int4_awq", "\"W4A16_AWQ\"", "\"W4A8_AWQ\"",
         "the tensor attn.to_q.weight_scale_2 is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dialect_model m;
        char weights[512];
        char expected[512];
        (void)snprintf(weights, sizeof weights, GOLDEN "/%s", cases[i].fixture);
        (void)snprintf(expected, sizeof expected, GOLDEN "/%s/expected.safetensors",
                       cases[i].fixture);
        scratch_copy("level", weights);
        scratch_edit("level/config.json", cases[i].named, cases[i].other);
        assert_int_equal(dialect_open(&m, scratch_path("level"), expected, &err), OZ_ERR_FORMAT);
        assert_non_null(strstr(err.message, cases[i].message));
        dialect_close(&m);
    }
}

/* msModelSlim's less usual forms, contradicting themselves. */
static void modelslim_contradictions(void **state)
{
    static const struct {
        const char *from, *to, *message; /* of the description */
    } cases[] = {
        {"\"group_size\": 32", "\"group_size\": 64", "\"group_size\" is 64"},
        {"\"group_size\": 32", "\"group_size\": 0", NULL}, /* says nothing */
        {"\"c.weight\": \"W8A16\"", "\"c.weight\": \"W4A16\"",
         NULL}, /* codes of 4 bits are some of 8 */
        {"\"d.weight\": \"W4A16\"", "\"d.weight\": \"W8A16\"", "Tensor d.weight is I8"},
        {"\"d.weight\": \"W4A16\"", "\"d.weight\": \"W4A8_DYNAMIC\"", "which pairs rows"},
        {"\"j.weight\": \"W4A4_FLATQUANT_DYNAMIC\"", "\"j.weight\": \"W4A4_DYNAMIC\"",
         "j.left_trans"},
        {"\"a.quant_bias\": ", "\"a.weight_scale\": \"W8A8\", \"a.quant_bias\": ",
         "a.weight_scale is labelled, but not in the file"},
        {"\"i.linear.weight\": \"W8A8_DYNAMIC\"", "\"i.linear.weight\": \"FLOAT\"",
         "i.weight is FLOAT, but it is I8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dialect_model m;
        scratch_copy("slim", GOLDEN "/modelslim_more");
        scratch_edit("slim/quant_model_description.json", cases[i].from, cases[i].to);
        enum oz_status status = dialect_open(&m, scratch_path("slim"),
                                             GOLDEN "/modelslim_more/expected.safetensors", &err);
        status = status == OZ_OK ? dialect_load(&m, &err) : status;
        assert_int_equal(status == OZ_OK, cases[i].message == NULL);
        if (status != OZ_OK && strstr(err.message, cases[i].message) == NULL) {
            fail_msg("%s: %s", cases[i].to, err.message);
        }
        assert_true(status != OZ_OK || dialect_compare(&m, NULL) == NULL);
        dialect_close(&m);
    }
}

/* An I64 whose upper half says something is none of msModelSlim's. */
static void modelslim_words(void **state)
{
    struct dialect_file f;
    struct dialect_model m;
    (void)state;
    scratch_copy("slim", GOLDEN "/modelslim_more");
    dialect_file_read(&f, GOLDEN "/modelslim_more/model.safetensors");
    struct dialect_piece *p = dialect_file_find(&f, "a.deq_scale");
    assert_string_equal(p->dtype, "I64");
    p->data[8 * 3 + 5] = 1;
    dialect_file_write(&f, 0, f.count, "slim/model.safetensors");
    assert_int_equal(
        dialect_open(&m, scratch_path("slim"), GOLDEN "/modelslim_more/expected.safetensors", &err),
        OZ_OK);
    assert_int_equal(dialect_load(&m, &err), OZ_ERR_FORMAT);
    assert_non_null(strstr(err.message, "a.deq_scale: element 3 is no number of 32 bits"));
    dialect_close(&m);
    dialect_file_free(&f);
}

/* The rotation is its own inverse, and that of its definition. */
static void rotation(void **state)
{
    static const float h4[4][4] = {{1, 1, 1, -1}, {1, 1, -1, 1}, {1, -1, 1, 1}, {-1, 1, 1, 1}};
    (void)state;
    for (int32_t i = 0; i < 16; i++) {
        float x[16] = {0};
        x[i] = 1;
        oz_rotate_row(x, 16, 16);
        for (int32_t k = 0; k < 16; k++) {
            assert_true(x[k] == h4[i / 4][k / 4] * h4[i % 4][k % 4] / 4);
        }
        oz_rotate_row(x, 16, 16);
        for (int32_t k = 0; k < 16; k++) {
            assert_true(x[k] == (float)(i == k));
        }
    }
    assert_true(oz_rotate_known(4) && oz_rotate_known(256) && oz_rotate_known(4096));
    assert_false(oz_rotate_known(2) || oz_rotate_known(8) || oz_rotate_known(512) ||
                 oz_rotate_known(0) || oz_rotate_known(-4) || oz_rotate_known(16384));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makers_values),
        cmocka_unit_test(other_orders),
        cmocka_unit_test(packed_integers),
        cmocka_unit_test(packed_without_vector),
        cmocka_unit_test(groups_in_an_order),
        cmocka_unit_test(fp8_level_is_named),
        cmocka_unit_test(modelslim_contradictions),
        cmocka_unit_test(modelslim_words),
        cmocka_unit_test(rotation),
    };
    return cmocka_run_group_tests_name("dialect", tests, scratch_open, scratch_close);
}
