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
        cmocka_unit_test(rotation),
    };
    return cmocka_run_group_tests_name("dialect", tests, scratch_open, scratch_close);
}
