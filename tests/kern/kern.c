/* What kernel tests share; see kern.h. */
#include "kern.h"

#include "base/pool.h"
#include "cpu/gemm.h"
#include "cpu/kernel.h"
#include "cpu/qgemm.h"
#include "op_call.h"

#define GUARD_BYTES 64 /* before and after a block's data; keeps 64-byte alignment */
#define CANARY 0xA5

/* Memory of one operand: rows of row_bytes, `stride_bytes` apart; the rest is canary. */
struct block {
    struct block *next;
    uint8_t *memory, *data;
    uint8_t *saved, *result; /* copies of `bytes` */
    size_t bytes;            /* of memory */
    size_t rows, row_bytes, stride_bytes;
    bool output;
};

static struct block *blocks;
static void *loose[1 << 14]; /* freed at teardown */
static size_t loose_count;
static uint64_t state_of_random;
static const int thread_counts[] = {1, 2, 5};
static struct oz_pool *pools[3];
static struct oz_device *devices[3];

static void *keep(void *memory)
{
    assert_non_null(memory);
    assert_true(loose_count < sizeof loose / sizeof *loose);
    loose[loose_count++] = memory;
    return memory;
}

static void *keep_zeroed(size_t bytes)
{
    return keep(calloc(1, bytes ? bytes : 1));
}

static void *aligned(size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, bytes ? bytes : 1), 0);
    return keep(memory);
}

/* ---- set-up ---- */

static bool idle; /* kern_setup_panels found nothing to emulate */

bool kern_idle(void)
{
    return idle;
}

int kern_setup(void **state)
{
    idle = false;
    const char *text = getenv("OUNCE_SEED");
    (void)state;
    state_of_random = text != NULL ? strtoull(text, NULL, 0) : 20240607;
    print_message("seed %llu\n", (unsigned long long)state_of_random);
    state_of_random = state_of_random * 0x9E3779B97F4A7C15U + 1;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(oz_pool_create(&pools[i], thread_counts[i], NULL), OZ_OK);
    }
    kern_force(NULL);
    return 0;
}

void kern_forget(void)
{
    for (size_t i = 0; i < loose_count; i++) {
        free(loose[i]);
    }
    loose_count = 0;
    blocks = NULL;
}

static const struct oz_cpu_kernel *always; /* before all others, or NULL */
static void install(const struct oz_cpu_kernel *k);

void kern_force(const char *kernel)
{
    struct oz_error err;
    for (int i = 0; i < 3; i++) {
        oz_device_close(&devices[i]);
        if (oz_cpu_open(&devices[i], 0, pools[i], getenv("OUNCE_CPU"),
                        kernel != NULL ? kernel : getenv("OUNCE_FORCE"), &err) != OZ_OK) {
            fail_msg("%s", err.message);
        }
    }
    if (always != NULL) {
        install(always);
    }
}

#define PANEL_KERNELS 8
static struct oz_param_plan panel_plans[PANEL_KERNELS]; /* of emulated ones; no kernel ends them */

int kern_teardown(void **state)
{
    (void)state;
    panel_plans[0].kernel = NULL;
    for (int i = 0; i < 3; i++) {
        oz_device_close(&devices[i]);
        oz_pool_destroy(&pools[i]);
    }
    kern_forget();
    return 0;
}

/* ---- one kernel after the other ---- */

#if defined(KERN_EMULATED)
#define EMULATED(X)                                \
    X(oz_kernel_linear_f32__avx512_emulated)       \
    X(oz_kernel_conv_f32__avx512_emulated)         \
    X(oz_kernel_linear_bf16__avx512_emulated)      \
    X(oz_kernel_conv_bf16__avx512_emulated)        \
    X(oz_kernel_linear_bf16__avx512bf16_emulated)  \
    X(oz_kernel_conv_bf16__avx512bf16_emulated)    \
    X(oz_kernel_linear_bf16__amx_emulated)         \
    X(oz_kernel_conv_bf16__amx_emulated)           \
    X(oz_kernel_linear_s8__amx_emulated)           \
    X(oz_kernel_linear_codes__amx_emulated)        \
    X(oz_kernel_linear_s8__avxvnni_emulated)       \
    X(oz_kernel_linear_s8__avx512_emulated)        \
    X(oz_kernel_linear_e2m1__avx512_emulated)      \
    X(oz_kernel_linear_codes__avx512_emulated)     \
    X(oz_kernel_linear_codes__avx512bf16_emulated) \
    X(oz_kernel_attention_bf16__amx_emulated)
#define DECLARE(name) extern const struct oz_cpu_kernel name;
#define ADDRESS(name) &name,
EMULATED(DECLARE)
static const struct oz_cpu_kernel *const emulated[] = {EMULATED(ADDRESS) NULL};
#else
static const struct oz_cpu_kernel *const emulated[] = {NULL};
#endif

static const struct oz_cpu_kernel *in_turn;
static struct oz_param_plan plans_in_turn[2]; /* for panels in f32 and in bf16 */

const struct oz_cpu_kernel *kern_kernel(void)
{
    return in_turn;
}

static void take_turn(const struct oz_cpu_kernel *k, void (*body)(void))
{
    in_turn = k;
    plans_in_turn[0] = (struct oz_param_plan){.kernel = k, .stored = OZ_DTYPE_F32};
    plans_in_turn[1] = (struct oz_param_plan){.kernel = k, .stored = OZ_DTYPE_BF16};
    body();
    kern_forget();
    in_turn = NULL;
    kern_force(NULL);
}

/* A kernel that is in no list. */
static void install(const struct oz_cpu_kernel *k)
{
    for (int i = 0; i < 3; i++) {
        const struct oz_cpu_kernel **list = ((struct oz_cpu *)devices[i]->impl)->usable[k->op];
        memmove(list + 1, list, sizeof *list * OZ_CPU_MAX_KERNELS);
        list[0] = k;
        list[OZ_CPU_MAX_KERNELS] = NULL;
    }
}

const struct oz_cpu_kernel *kern_emulate(enum oz_op op)
{
    always = NULL;
    for (const struct oz_cpu_kernel *const *k = emulated; *k != NULL && always == NULL; k++) {
        always = (*k)->op == op ? *k : NULL;
    }
    return always;
}

/* ---- emulated kernels of panels ---- */

static bool emulates(void)
{
    const char *tier = getenv("OUNCE_CPU");
    return oz_cpu_of(devices[0])->tiers & (1U << OZ_TIER_AVX2) &&
           (tier == NULL || strcmp(tier, "avx2") == 0);
}

int kern_setup_panels(void **state)
{
    const char *tier = *state;
    int count = 0;
    int status = kern_setup(state);
    for (const struct oz_cpu_kernel *const *k = emulated; emulates() && *k != NULL; k++) {
        if ((*k)->q != NULL && strcmp(tier, oz_tier_name((*k)->tier)) == 0 &&
            count + 1 < PANEL_KERNELS) {
            print_message("%s, emulated\n", (*k)->name);
            panel_plans[count++] = (struct oz_param_plan){.kernel = *k, .panels = true};
        }
    }
    for (int i = count - 1; i >= 0;
         i--) { /* so that the first of them is the device's first, too */
        install(panel_plans[i].kernel);
    }
    panel_plans[count].kernel = NULL;
    idle = count == 0;
    return status;
}

/* As the plan's own choice (cpu/plan.c), of them. NULL: none takes the weight. */
static const struct oz_param_plan *plan_emulated(const struct oz_param *p, struct oz_qlayout *l,
                                                 struct oz_act_spec *wants)
{
    for (const struct oz_param_plan *plan = panel_plans; plan->kernel != NULL; plan++) {
        *wants = p->act_count > 0 ? p->acts[0] : (struct oz_act_spec){.dtype = OZ_DTYPE_F32};
        if (wants->dtype == OZ_DTYPE_F32 && plan->kernel->q->rows == OZ_QROWS_FOLDED) {
            wants->dtype = OZ_DTYPE_BF16;
        }
        if (oz_codec_plain(p->weight.planes[OZ_PLANE_CODES].dtype) != p->weight.codec &&
            oz_qlayout_of(&p->weight, l) && oz_qgemm_decline(plan->kernel->q, wants, l) == NULL) {
            return plan;
        }
    }
    return NULL;
}

void kern_each(enum oz_op op, void (*body)(void))
{
    const char *tier = getenv("OUNCE_CPU");
    uint32_t tiers = oz_cpu_of(devices[0])->tiers;
    for (const struct oz_cpu_kernel *const *k = oz_cpu_kernels(op); *k != NULL; k++) {
        if (tiers & (1U << (*k)->tier) &&
            (tier == NULL || strcmp(tier, oz_tier_name((*k)->tier)) == 0)) {
            print_message("%s\n", (*k)->name);
            kern_force((*k)->name);
            take_turn(*k, body);
        }
    }
    for (const struct oz_cpu_kernel *const *k = emulated; *k != NULL; k++) {
        if (emulates() && (*k)->op == op) {
            print_message("%s, emulated\n", (*k)->name);
            install(*k);
            take_turn(*k, body);
        }
    }
}

size_t kern_stride(void)
{
    const char *few = getenv("OUNCE_TEST_FEW");
    size_t n = few != NULL ? (size_t)strtoul(few, NULL, 10) : 1;
    return n > 1 ? n : 1;
}

struct oz_device *kern_device(int threads)
{
    for (int i = 0; i < 3; i++) {
        if (thread_counts[i] == threads) {
            return devices[i];
        }
    }
    fail_msg("no device of %d threads", threads);
    return NULL;
}

/* ---- random numbers ---- */

uint64_t kern_random(void)
{
    state_of_random ^= state_of_random >> 12;
    state_of_random ^= state_of_random << 25;
    state_of_random ^= state_of_random >> 27;
    return state_of_random * 0x2545F4914F6CDD1DU;
}

int64_t kern_below(int64_t n)
{
    return (int64_t)(kern_random() % (uint64_t)n);
}

bool kern_coin(void)
{
    return (kern_random() >> 40) % 2 != 0;
}

double kern_normal(void)
{
    double u = ((double)(kern_random() >> 11) + 0.5) * 0x1p-53;
    double v = (double)(kern_random() >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* ---- blocks ---- */

static struct block *new_block(size_t rows, size_t row_bytes, size_t stride_bytes)
{
    struct block *b = keep_zeroed(sizeof *b);
    size_t body = rows == 0 ? 0 : (rows - 1) * stride_bytes + row_bytes;
    b->bytes = body + (size_t)2 * GUARD_BYTES;
    b->memory = aligned(b->bytes);
    b->saved = aligned(b->bytes);
    b->result = aligned(b->bytes);
    memset(b->memory, CANARY, b->bytes);
    b->data = b->memory + GUARD_BYTES;
    b->rows = rows;
    b->row_bytes = row_bytes;
    b->stride_bytes = stride_bytes;
    b->next = blocks;
    blocks = b;
    return b;
}

void *kern_array(size_t bytes)
{
    return new_block(1, bytes, bytes)->data;
}

int32_t *kern_ids(int64_t count, int64_t below)
{
    int32_t *ids = kern_array((size_t)count * sizeof *ids);
    for (int64_t i = 0; i < count; i++) {
        ids[i] = (int32_t)kern_below(below);
    }
    return ids;
}

float *kern_floats(int64_t count, double deviation)
{
    float *x = kern_array((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)(kern_normal() * deviation);
    }
    return x;
}

void kern_output(const void *data)
{
    for (struct block *b = blocks; b != NULL; b = b->next) {
        if (b->data == data) {
            b->output = true;
            return;
        }
    }
    fail_msg("not a block");
}

static size_t dtype_bytes(enum oz_dtype dtype)
{
    return (size_t)oz_dtype_bits(dtype) / 8;
}

struct oz_act *kern_out(int64_t rows, int64_t cols, int64_t gap, enum oz_dtype dtype)
{
    struct oz_act *a = keep_zeroed(sizeof *a);
    size_t size = dtype_bytes(dtype);
    struct block *b = new_block((size_t)rows, (size_t)cols * size, (size_t)(cols + gap) * size);
    a->data = b->data;
    a->rows = rows;
    a->cols = cols;
    a->stride = cols + gap;
    a->spec.dtype = dtype;
    b->output = true;
    return a;
}

struct oz_act *kern_act(int64_t rows, int64_t cols, int64_t gap, enum oz_dtype dtype,
                        double deviation)
{
    struct oz_act *a = kern_out(rows, cols, gap, dtype);
    blocks->output = false;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            kern_set(a, r, c, kern_normal() * deviation);
        }
    }
    return a;
}

double kern_get(const struct oz_act *a, int64_t row, int64_t col)
{
    int64_t at = row * a->stride + col;
    return a->spec.dtype == OZ_DTYPE_F32 ? ((const float *)a->data)[at]
                                         : oz_bf16_to_f32(((const uint16_t *)a->data)[at]);
}

void kern_set(const struct oz_act *a, int64_t row, int64_t col, double value)
{
    int64_t at = row * a->stride + col;
    if (a->spec.dtype == OZ_DTYPE_F32) {
        ((float *)a->data)[at] = (float)value;
    } else {
        ((uint16_t *)a->data)[at] = oz_f32_to_bf16((float)value);
    }
}

struct oz_act kern_rows(const struct oz_act *a, int64_t first, int64_t count)
{
    struct oz_act view = *a;
    view.data = (uint8_t *)a->data + (size_t)(first * a->stride) * dtype_bytes(a->spec.dtype);
    view.rows = count;
    return view;
}

double *kern_doubles(const struct oz_act *a)
{
    double *copy = keep_zeroed((size_t)(a->rows * a->cols) * sizeof *copy);
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t c = 0; c < a->cols; c++) {
            copy[r * a->cols + c] = kern_get(a, r, c);
        }
    }
    return copy;
}

/* ---- parameters ---- */

struct oz_param *kern_param(const char *name, enum oz_dtype dtype, int64_t slices, int64_t rows,
                            int64_t cols, double deviation)
{
    struct oz_param *p = keep_zeroed(sizeof *p);
    struct oz_act *elements = kern_act(slices * rows, cols, 0, OZ_DTYPE_F32, deviation);
    const float *from = elements->data;
    size_t count = (size_t)(slices * rows * cols);
    uint16_t *half = dtype == OZ_DTYPE_F32 ? NULL : kern_array(count * sizeof *half);
    for (size_t i = 0; half != NULL && i < count; i++) {
        half[i] = dtype == OZ_DTYPE_BF16 ? oz_f32_to_bf16(from[i]) : oz_f32_to_f16(from[i]);
    }
    p->name = name;
    p->rank = slices > 1 ? 3 : 2;
    p->shape[0] = slices > 1 ? slices : rows;
    p->shape[1] = slices > 1 ? rows : cols;
    p->shape[2] = slices > 1 ? cols : 0;
    p->weight =
        oz_weight_plain(dtype, slices, rows, cols, half != NULL ? (void *)half : elements->data);
    return p;
}

struct oz_param *kern_vector(const char *name, int64_t n, double deviation)
{
    struct oz_param *p = kern_param(name, OZ_DTYPE_F32, 1, 1, n, deviation);
    p->rank = 1;
    p->shape[0] = n;
    return p;
}

/* Packs with five threads, and with one: the bytes must be the same, and none behind them. */
static void pack_twice(struct oz_param *p, size_t bytes)
{
    struct oz_error err;
    uint8_t *memory[2];
    for (int i = 0; i < 2; i++) {
        struct oz_device *dev = devices[i == 0 ? 2 : 0];
        memory[i] = kern_array(bytes);
        p->packed = memory[i];
        if (dev->ops->pack_band(dev, NULL, p, 0, 0, p->weight.rows, &p->weight, &err) != OZ_OK) {
            fail_msg("%s", err.message);
        }
        for (int j = 0; j < GUARD_BYTES; j++) {
            assert_int_equal(memory[i][bytes + (size_t)j], CANARY);
            assert_int_equal(memory[i][j - GUARD_BYTES], CANARY);
        }
    }
    assert_memory_equal(memory[0], memory[1], bytes);
}

/* The kernel in turn packs what it can read, also where the plan would not choose it. */
static bool pack_in_turn(struct oz_param *p)
{
    bool bf16 = p->weight.planes[OZ_PLANE_CODES].dtype == OZ_DTYPE_BF16;
    if (in_turn == NULL || in_turn->gemm == NULL ||
        (in_turn->gemm->a_dtype == OZ_DTYPE_BF16 && !bf16)) {
        return false;
    }
    p->plan = &plans_in_turn[bf16];
    pack_twice(
        p, oz_gemm_packed_bytes(in_turn->gemm, p->plan->stored, p->weight.rows, p->weight.cols));
    return true;
}

void kern_pack(struct oz_param *p, enum oz_param_use use)
{
    struct oz_error err;
    struct oz_plan_answer answer;
    struct oz_qlayout layout;
    struct oz_act_spec wants;
    if (pack_in_turn(p)) {
        return;
    }
    p->plan = use == OZ_USE_LINEAR ? plan_emulated(p, &layout, &wants) : NULL;
    if (p->plan != NULL) {
        pack_twice(p, oz_qlayout_bytes(&layout));
        return;
    }
    const struct oz_plan_request request = {.use = use};
    if (devices[0]->ops->plan_param(devices[0], p, &request, &answer, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    p->plan = answer.plan;
    if (answer.packed_bytes > 0) {
        pack_twice(p, answer.packed_bytes);
    }
}

struct oz_act_spec kern_wants(const struct oz_param *p)
{
    struct oz_error err;
    struct oz_plan_answer answer;
    struct oz_qlayout layout;
    struct oz_act_spec wants;
    if (plan_emulated(p, &layout, &wants) != NULL) {
        return wants;
    }
    const struct oz_plan_request request = {.use = OZ_USE_LINEAR};
    if (devices[0]->ops->plan_param(devices[0], p, &request, &answer, &err) != OZ_OK) {
        fail_msg("%s", err.message);
    }
    return answer.wants;
}

bool kern_packed(enum oz_op op, const void *args)
{
    return oz_cpu_pick(devices[0], op, args)->gemm != NULL;
}

bool kern_rounds(enum oz_op op, const void *args)
{
    return kern_packed(op, args) &&
           oz_cpu_pick(devices[0], op, args)->gemm->a_dtype == OZ_DTYPE_BF16;
}

double kern_weight(const struct oz_param *p, int64_t slice, int64_t row, int64_t col)
{
    const struct oz_weight *w = &p->weight;
    int64_t at = (slice * w->rows + row) * w->cols + col;
    const void *data = w->planes[OZ_PLANE_CODES].data;
    switch (w->planes[OZ_PLANE_CODES].dtype) {
    case OZ_DTYPE_F32: return ((const float *)data)[at];
    case OZ_DTYPE_BF16: return oz_bf16_to_f32(((const uint16_t *)data)[at]);
    default: return oz_f16_to_f32(((const uint16_t *)data)[at]);
    }
}

struct oz_ragged *kern_ragged(int32_t count, const int32_t *lengths)
{
    struct oz_ragged *r = keep_zeroed(sizeof *r);
    int32_t *offsets = kern_array((size_t)(count + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (int32_t s = 0; s < count; s++) {
        offsets[s + 1] = offsets[s] + lengths[s];
    }
    *r = (struct oz_ragged){.count = count, .offsets = offsets, .device_offsets = offsets};
    return r;
}

/* ---- running ---- */

enum oz_status kern_run_once(int threads, enum oz_op op, const void *args)
{
    struct oz_device *dev = kern_device(threads);
    struct oz_op_ctx ctx = {.dev = dev};
    void *memory = NULL;
    ctx.scratch_bytes = dev->ops->scratch_bytes(dev, op, args);
    assert_true(ctx.scratch_bytes < SIZE_MAX / 2);
    assert_int_equal(posix_memalign(&memory, 64, ctx.scratch_bytes + GUARD_BYTES), 0);
    memset(memory, 0xFF, ctx.scratch_bytes + GUARD_BYTES); /* every f32 of it is NaN */
    ctx.scratch = memory;
    enum oz_status status = op_call(&ctx, op, args);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(((uint8_t *)memory)[ctx.scratch_bytes + i], 0xFF);
    }
    free(memory);
    return status;
}

/* Are all bytes outside the rows still as saved? */
static void check_canaries(const struct block *b)
{
    size_t begin = 0;
    for (size_t r = 0; r < b->rows; r++) {
        size_t row = GUARD_BYTES + r * b->stride_bytes;
        if (memcmp(b->memory + begin, b->saved + begin, row - begin) != 0) {
            fail_msg("bytes before row %zu of an output were written", r);
        }
        begin = row + b->row_bytes;
    }
    if (memcmp(b->memory + begin, b->saved + begin, b->bytes - begin) != 0) {
        fail_msg("bytes behind an output of %zu rows were written", b->rows);
    }
}

static void run_and_check(int threads, enum oz_op op, const void *args, bool first)
{
    assert_int_equal(kern_run_once(threads, op, args), OZ_OK);
    for (struct block *b = blocks; b != NULL; b = b->next) {
        if (!b->output) {
            assert_memory_equal(b->memory, b->saved, b->bytes);
            continue;
        }
        check_canaries(b);
        if (first) {
            memcpy(b->result, b->memory, b->bytes);
        } else if (memcmp(b->result, b->memory, b->bytes) != 0) {
            fail_msg("%d threads give other bytes than one", threads);
        }
    }
}

void kern_run(enum oz_op op, const void *args)
{
    for (struct block *b = blocks; b != NULL; b = b->next) {
        memcpy(b->saved, b->memory, b->bytes);
    }
    for (int i = 0; i < 3; i++) {
        for (struct block *b = blocks; b != NULL; b = b->next) {
            memcpy(b->memory, b->saved, b->bytes);
        }
        run_and_check(thread_counts[i], op, args, i == 0);
    }
}

/* ---- comparing ---- */

void kern_near(const char *what, const struct oz_act *a, int64_t row, int64_t col, double want,
               double bound)
{
    double got = kern_get(a, row, col);
    double unit = a->spec.dtype == OZ_DTYPE_F32 ? KERN_U32 : KERN_U16;
    double allowed = bound + unit * (fabs(want) + bound) + 0x1p-140;
    if (!(fabs(got - want) <= allowed)) {
        fail_msg("%s: element (%lld, %lld) is %.9g, not %.9g; off by %.3g, allowed %.3g", what,
                 (long long)row, (long long)col, got, want, fabs(got - want), allowed);
    }
}

double kern_fn(enum oz_fn fn, double x)
{
    switch (fn) {
    case OZ_FN_NONE: return x;
    case OZ_FN_SILU: return x / (1 + exp(-x));
    case OZ_FN_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case OZ_FN_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.7071067811865476));
    case OZ_FN_SIGMOID: return 1 / (1 + exp(-x));
    }
    return 0;
}

bool kern_same_row(const struct oz_act *a, int64_t row_a, const struct oz_act *b, int64_t row_b)
{
    size_t size = dtype_bytes(a->spec.dtype);
    return memcmp((const uint8_t *)a->data + (size_t)(row_a * a->stride) * size,
                  (const uint8_t *)b->data + (size_t)(row_b * b->stride) * size,
                  (size_t)a->cols * size) == 0;
}
