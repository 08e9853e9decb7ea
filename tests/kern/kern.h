/*
 * tests/kern/kern.h: what kernel tests share. Every operand lies in a block between canaries;
 * kern_run runs an operator with 1, 2 and 5 threads and checks what must hold of any kernel: equal
 * bytes for any number of threads, inputs untouched, outputs untouched outside their elements,
 * scratch not passed, no dependence on what scratch held.
 *
 * Random data come from one generator; its seed is printed, OUNCE_SEED=<n> sets it.
 */
#ifndef OZ_TESTS_KERN_KERN_H
#define OZ_TESTS_KERN_KERN_H

#include "test.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "cpu/kernel.h"
#include "dev/device.h"
#include "dev/ops.h"
#include "num/float.h"

/* Unit roundoff: half a unit in the last place of 1. */
#define KERN_U32 0x1p-24
#define KERN_U16 0x1p-8 /* of bf16 */

/* Setup and teardown of a test: devices, seed; frees every block. */
int kern_setup(void **state);
int kern_teardown(void **state);
/* Frees every block so far: for tests of many problems. */
void kern_forget(void);
#define KERN_TEST(fn) cmocka_unit_test_setup_teardown(fn, kern_setup, kern_teardown)
/* The same with the emulated kernels of panels (cpu/qgemm.h) of a tier before all others, which kern_pack
 * and kern_wants then plan for. Such a test begins with KERN_SKIP_IDLE: where nothing is emulated it would
 * be what KERN_TEST has run already. */
int kern_setup_panels(void **state);
bool kern_idle(void);
#define KERN_SKIP_IDLE() \
    if (kern_idle()) {   \
        skip();          \
    }
#define KERN_TEST_PANELS(fn, tier)                                                                 \
    {                                                                                              \
#fn ", " tier " emulated", fn, kern_setup_panels, kern_teardown, (void *)(uintptr_t)(tier) \
    }

/* Of loops over cases: 1, or what OUNCE_TEST_FEW says, where one case of so many is enough: under an
 * emulated processor (tests/noavx), which looks for an instruction that is not there, and under sanitizers. */
size_t kern_stride(void);

/* A device of 1, 2 or 5 threads. */
struct oz_device *kern_device(int threads);
/* Opens the devices anew with one kernel before all others of its operator (NULL: as they were). */
void kern_force(const char *kernel);

/*
 * body with one kernel of an operator after the other before all others: those of the tier that
 * OUNCE_CPU names, else all that this processor can run; for linear and conv those of the
 * higher tiers too, over emulated instructions (with tier avx2). Blocks are freed in between. kern_kernel: whose turn it is,
 * or NULL.
 */
void kern_each(enum oz_op op, void (*body)(void));
const struct oz_cpu_kernel *kern_kernel(void);
/* From the next kern_setup on the first emulated kernel of an operator comes before all others;
 * returns it, or NULL (then none does). */
const struct oz_cpu_kernel *kern_emulate(enum oz_op op);

uint64_t kern_random(void);
int64_t kern_below(int64_t n); /* [0, n) */
bool kern_coin(void);
double kern_normal(void);

/* Blocks. Operands are inputs unless marked as outputs. */
void *kern_array(size_t bytes); /* canaries around; filled with a pattern */
int32_t *kern_ids(int64_t count, int64_t below);
float *kern_floats(int64_t count, double deviation);
void kern_output(const void *data);

/* rows x cols with `gap` elements of canary between rows, normally distributed (F32 or BF16). */
struct oz_act *kern_act(int64_t rows, int64_t cols, int64_t gap, enum oz_dtype dtype,
                        double deviation);
struct oz_act *kern_out(int64_t rows, int64_t cols, int64_t gap, enum oz_dtype dtype);
double kern_get(const struct oz_act *a, int64_t row, int64_t col);
void kern_set(const struct oz_act *a, int64_t row, int64_t col, double value);
/* A view of rows [first, first + count). */
struct oz_act kern_rows(const struct oz_act *a, int64_t first, int64_t count);
/* A copy of what rows hold now, as doubles [rows, cols]; freed at teardown. */
double *kern_doubles(const struct oz_act *a);

/* Parameters: random plain weights; a vector is [1, n] F32. */
struct oz_param *kern_param(const char *name, enum oz_dtype dtype, int64_t slices, int64_t rows,
                            int64_t cols, double deviation);
struct oz_param *kern_vector(const char *name, int64_t n, double deviation);
/* Plans a weight and packs it where its kernel wants that, as a load does. Before that a parameter is
 * read by the reference. */
void kern_pack(struct oz_param *p, enum oz_param_use use);
/* What the plan of a packed weight wants of its rows. */
struct oz_act_spec kern_wants(const struct oz_param *p);
double kern_weight(const struct oz_param *p, int64_t slice, int64_t row, int64_t col);

struct oz_ragged *kern_ragged(int32_t count, const int32_t *lengths);

/* Runs with 1, 2 and 5 threads; fails the test unless all is as said above. */
void kern_run(enum oz_op op, const void *args);
/* One run with so many threads; the status is the caller's to check. */
enum oz_status kern_run_once(int threads, enum oz_op op, const void *args);

/* Does the kernel that will run these arguments read packed weights; and bf16-rounded inputs? */
bool kern_packed(enum oz_op op, const void *args);
bool kern_rounds(enum oz_op op, const void *args);

/* |got - want| <= bound + the rounding of the store; says where and the numbers if not. */
void kern_near(const char *what, const struct oz_act *a, int64_t row, int64_t col, double want,
               double bound);

/* The functions of enum oz_fn in double. */
double kern_fn(enum oz_fn fn, double x);

/* Are elements [0, cols) of two rows the same bytes? */
bool kern_same_row(const struct oz_act *a, int64_t row_a, const struct oz_act *b, int64_t row_b);

/* Bound on the error of a dot product of n terms by the reference's order (ref.h): each term passes
 * its product's rounding, at most 128 + 3 additions in its piece, and one for each piece. */
static inline double kern_dot_bound(int64_t n, double sum_of_magnitudes)
{
    int64_t piece = n < 1024 ? n : 1024;
    double roundings = 1 + (double)(piece + 7) / 8 + 3 + (double)(n + 1023) / 1024;
    return roundings * KERN_U32 * sum_of_magnitudes * 1.01;
}

/* The same for any order: a term passes n - 1 additions at most, and its product's rounding. A kernel
 * may take numbers below the normal ones for zero. */
static inline double kern_sum_bound(int64_t n, double sum_of_magnitudes)
{
    return (double)n * (KERN_U32 * sum_of_magnitudes * 1.01 + 0x1p-125);
}

#endif
