#include "cpu/stage.h"

#include "cpu/kern/ref/ref.h"
#include "cpu/kernel.h"

/* Rows of a linear that wait at once: their f32 values are still in a cache when they are quantized, and
 * its weights, which are read anew for each band, cost little beside what so many rows take. */
#define BAND_BYTES (INT64_C(16) << 20)
#define BAND_ROWS 192 /* a band is a multiple of it: what tasks of most kernels have at most */

/* Outputs of one call that wait in f32, and the arguments with them in place of the real ones. */
struct stage {
    union {
        struct oz_embed_args embed;
        struct oz_linear_args linear;
        struct oz_experts_args experts;
        struct oz_attention_args attention;
        struct oz_norm_mod_args norm_mod;
    } args;
    int count;
    struct oz_act rows[OZ_ATTENTION_SEGMENTS]; /* data is an offset into scratch until bound */
    struct oz_act *out[OZ_ATTENTION_SEGMENTS];
    const struct oz_ragged *sequences[OZ_ATTENTION_SEGMENTS];
    size_t offsets[OZ_ATTENTION_SEGMENTS];
    size_t total; /* of the rows */
    int64_t band; /* rows of a linear that go through them in turn */
};

/* Takes *out's place when the format is not plain; with `rows` of its rows. */
static void divert_rows(struct stage *s, struct oz_act **out, const struct oz_ragged *sequences,
                        int64_t rows)
{
    struct oz_act *real = *out;
    if (real == NULL || oz_ref_is_plain(&real->spec)) {
        return;
    }
    int i = s->count++;
    s->out[i] = real;
    s->sequences[i] = sequences;
    s->rows[i] = (struct oz_act){
        .rows = rows, .cols = real->cols, .stride = real->cols, .spec.dtype = OZ_DTYPE_F32};
    s->offsets[i] = oz_ref_reserve(&s->total, oz_ref_times(rows, real->cols), sizeof(float));
    *out = &s->rows[i];
}

static void divert(struct stage *s, struct oz_act **out, const struct oz_ragged *sequences)
{
    divert_rows(s, out, sequences, *out != NULL ? (*out)->rows : 0);
}

/* Do rows of it begin at addresses that rows before them give? */
static bool has_row_addresses(const struct oz_act *a)
{
    for (int i = 0; i < a->spec.scale_count; i++) {
        if (a->spec.scale[i].layout != OZ_SCALE_ROWS) {
            return false;
        }
    }
    return a->branch == NULL;
}

/* Rows of a linear that may be computed and quantized before the next ones are; all, where a scale spans
 * more than a row. */
static int64_t band_of(const struct oz_linear_args *a)
{
    int64_t rows = a->x->rows;
    if (a->out == NULL || oz_ref_is_plain(&a->out->spec) ||
        oz_ref_by_row_problem(a->out, a->sequences) != NULL || !has_row_addresses(a->x) ||
        !has_row_addresses(a->out)) {
        return rows;
    }
    int64_t line = oz_ref_max(a->out->cols, 1) * (int64_t)sizeof(float);
    int64_t band = oz_ref_max(BAND_BYTES / line / BAND_ROWS, 1) * BAND_ROWS;
    return oz_ref_min(band, rows);
}

/* Fills s; nothing is staged when s->count stays 0. s must not move afterwards. */
static void open_stage(struct stage *s, enum oz_op op, const void *args)
{
    s->count = 0;
    s->total = 0;
    s->band = 0;
    switch (op) {
    case OZ_OP_EMBED:
        s->args.embed = *(const struct oz_embed_args *)args;
        divert(s, &s->args.embed.out, NULL);
        break;
    case OZ_OP_LINEAR:
        s->args.linear = *(const struct oz_linear_args *)args;
        s->band = band_of(&s->args.linear);
        divert_rows(s, &s->args.linear.out, s->args.linear.sequences, s->band);
        break;
    case OZ_OP_EXPERTS:
        s->args.experts = *(const struct oz_experts_args *)args;
        divert(s, &s->args.experts.out, s->args.experts.sequences);
        break;
    case OZ_OP_NORM_MOD:
        s->args.norm_mod = *(const struct oz_norm_mod_args *)args;
        divert(s, &s->args.norm_mod.out, s->args.norm_mod.sequences);
        break;
    case OZ_OP_ATTENTION:
        s->args.attention = *(const struct oz_attention_args *)args;
        for (int32_t i = 0; i < s->args.attention.segment_count; i++) {
            divert(s, &s->args.attention.segments[i].out, s->args.attention.segments[i].rows);
        }
        break;
    default: break;
    }
}

static struct oz_act_quant_args quantization(struct stage *s, int i)
{
    return (struct oz_act_quant_args){
        .x = &s->rows[i], .out = s->out[i], .rows = s->rows[i].rows, .sequences = s->sequences[i]};
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- bands of a linear ---- */

/* One band: what the linear and act_quant are given. */
struct band {
    struct oz_act x, f32, out;
    struct oz_linear_args linear;
    struct oz_act_quant_args quant;
};

static void open_band(struct stage *s, int64_t first, struct band *b)
{
    const struct oz_linear_args *a = &s->args.linear;
    int64_t rows = oz_ref_min(s->band, a->x->rows - first);
    b->x = oz_act_rows(a->x, first, rows);
    b->f32 = oz_act_rows(&s->rows[0], 0, rows);
    b->out = oz_act_rows(s->out[0], first, rows);
    b->linear = *a;
    b->linear.x = &b->x;
    b->linear.out = &b->f32;
    b->linear.sequences = NULL; /* each row is quantized by itself */
    b->linear.mod_index = a->mod_index != NULL ? a->mod_index + first : NULL;
    b->quant = (struct oz_act_quant_args){.x = &b->f32, .out = &b->out, .rows = rows};
}

static bool is_banded(const struct stage *s, enum oz_op op)
{
    return op == OZ_OP_LINEAR && s->count > 0 && s->band < s->args.linear.x->rows;
}

static size_t band_scratch(const struct oz_device *dev, struct stage *s, int64_t first)
{
    struct band b;
    open_band(s, first, &b);
    return larger(oz_cpu_pick(dev, OZ_OP_LINEAR, &b.linear)->scratch(dev, &b.linear),
                  oz_cpu_pick(dev, OZ_OP_ACT_QUANT, &b.quant)->scratch(dev, &b.quant));
}

static enum oz_status run_bands(const struct oz_op_ctx *ctx, struct stage *s)
{
    struct band b;
    for (int64_t first = 0; first < s->args.linear.x->rows; first += s->band) {
        open_band(s, first, &b);
        OZ_TRY(oz_cpu_pick(ctx->dev, OZ_OP_LINEAR, &b.linear)->run(ctx, &b.linear));
        OZ_TRY(oz_cpu_pick(ctx->dev, OZ_OP_ACT_QUANT, &b.quant)->run(ctx, &b.quant));
    }
    return OZ_OK;
}

/* ---- any operator ---- */

/* The kernel that takes the staged arguments, where it writes the real outputs by itself; or NULL. */
static const struct oz_cpu_kernel *coding_kernel(const struct oz_device *dev, struct stage *s,
                                                 enum oz_op op, const void *args)
{
    const struct oz_cpu_kernel *k = oz_cpu_pick(dev, op, &s->args);
    return k->codes != NULL && k->codes(args) == NULL ? k : NULL;
}

size_t oz_stage_scratch(const struct oz_device *dev, enum oz_op op, const void *args)
{
    struct stage s;
    open_stage(&s, op, args);
    if (s.count == 0) {
        return oz_cpu_pick(dev, op, args)->scratch(dev, args);
    }
    const struct oz_cpu_kernel *coding = coding_kernel(dev, &s, op, args);
    if (coding != NULL) {
        return coding->scratch(dev, args);
    }
    size_t bytes;
    if (is_banded(&s, op)) { /* the last one may be shorter, and cut in another way */
        int64_t last = (s.args.linear.x->rows - 1) / s.band * s.band;
        bytes = larger(band_scratch(dev, &s, 0), band_scratch(dev, &s, last));
    } else {
        bytes = oz_cpu_pick(dev, op, &s.args)->scratch(dev, &s.args);
    }
    for (int i = 0; i < s.count; i++) {
        struct oz_act_quant_args q = quantization(&s, i);
        bytes = larger(bytes, oz_cpu_pick(dev, OZ_OP_ACT_QUANT, &q)->scratch(dev, &q));
    }
    return bytes == SIZE_MAX || __builtin_add_overflow(bytes, s.total, &bytes) ? SIZE_MAX : bytes;
}

enum oz_status oz_stage_run(const struct oz_op_ctx *ctx, enum oz_op op, const void *args)
{
    struct stage s;
    struct oz_op_ctx inner = *ctx;
    open_stage(&s, op, args);
    if (s.count == 0) {
        return oz_cpu_pick(ctx->dev, op, args)->run(ctx, args);
    }
    const struct oz_cpu_kernel *coding = coding_kernel(ctx->dev, &s, op, args);
    if (coding != NULL) {
        return coding->run(ctx, args);
    }
    OZ_TRY(oz_ref_begin(ctx, s.total));
    for (int i = 0; i < s.count; i++) {
        OZ_TRY(oz_ref_check_quantized(oz_cpu_op_name(op), s.out[i]));
        s.rows[i].data = oz_ref_at(ctx, s.offsets[i]);
    }
    inner.scratch = oz_ref_at(ctx, s.total);
    inner.scratch_bytes -= s.total;
    if (is_banded(&s, op)) {
        return run_bands(&inner, &s);
    }
    OZ_TRY(oz_cpu_pick(ctx->dev, op, &s.args)->run(&inner, &s.args));
    for (int i = 0; i < s.count; i++) {
        struct oz_act_quant_args q = quantization(&s, i);
        OZ_TRY(oz_cpu_pick(ctx->dev, OZ_OP_ACT_QUANT, &q)->run(&inner, &q));
    }
    return OZ_OK;
}

const char *oz_stage_reject(const struct oz_act_spec *spec)
{
    return oz_ref_act_problem(spec);
}
