/* Checkpoints of other toolchains, as their makers wrote them (tests/golden/dialects): what is found out, and
 * what the layers are worth. */
#include "test.h"

#include <math.h>

#include "base/error.h"
#include "dialect_model.h"
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
        cmocka_unit_test(rotation),
    };
    return cmocka_run_group_tests_name("dialect", tests, scratch_open, scratch_close);
}
