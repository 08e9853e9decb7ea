/* ops/check.h: each operator's arguments, right and with one thing wrong at a time. */
#include "test.h"

#include "ops/check.h"
#include "ops/exec.h"

static struct oz_act act(int64_t rows, int64_t cols)
{
    return oz_act_f32(NULL, rows, cols);
}

static struct oz_param param(int32_t rank, int64_t a, int64_t b, int64_t c)
{
    return (struct oz_param){.name = "w", .rank = rank, .shape = {a, b, c}};
}

static void same(const char *got, const char *want)
{
    if ((got == NULL) != (want == NULL) || (got != NULL && strstr(got, want) == NULL)) {
        fail_msg("\"%s\" instead of \"%s\"", got != NULL ? got : "fine",
                 want != NULL ? want : "fine");
    }
}

/* With the change `how` to a copy of the arguments `a`, the check says `want` (NULL: fine). */
#define WITH(op, how, want)            \
    do {                               \
        struct oz_##op##_args c = a;   \
        how;                           \
        same(oz_check_##op(&c), want); \
    } while (0)

static void embed(void **state)
{
    struct oz_param table = param(2, 100, 8, 0);
    struct oz_param vector = param(1, 8, 0, 0);
    struct oz_act out = act(3, 8);
    struct oz_act wide = act(3, 9);
    int32_t ids[3] = {0};
    struct oz_embed_args a = {.table = &table, .ids = ids, .scale = 1, .out = &out};
    WITH(embed, (void)0, NULL);
    WITH(embed, c.out = &wide, "not as wide");
    WITH(embed, c.table = &vector, "not as wide");
    WITH(embed, c.ids = NULL, "no ids");
}

static void linear(void **state)
{
    struct oz_act x = act(5, 4);
    struct oz_act y = act(5, 6);
    struct oz_act short_y = act(4, 6);
    struct oz_act wide_x = act(5, 3);
    struct oz_act wide_y = act(5, 7);
    struct oz_act mods = act(2, 12);
    struct oz_linear w = {.w = param(2, 6, 4, 0), .b = param(1, 6, 0, 0)};
    struct oz_linear bias = {.w = param(2, 6, 4, 0), .b = param(1, 5, 0, 0)};
    struct oz_linear plain = {.w = param(2, 6, 4, 0)};
    struct oz_linear rank3 = {.w = param(3, 6, 4, 1)};
    struct oz_linear_args a = {.x = &x, .w = &w, .out = &y};
    WITH(linear, (void)0, NULL);
    WITH(linear, c.w = &plain, NULL);
    WITH(linear, c.up = &w, NULL);
    WITH(linear, (c.out = NULL, c.residual = &y), NULL);
    WITH(linear, c.out = NULL, "either an output or a residual");
    WITH(linear, c.residual = &y, "either an output or a residual");
    WITH(linear, (c.out = NULL, c.residual = &y, c.up = &w), "either an output or a residual");
    WITH(linear, c.out = &short_y, "numbers of rows");
    WITH(linear, c.x = &wide_x, "in features");
    WITH(linear, c.w = &rank3, "in features");
    WITH(linear, c.out = &wide_y, "out features");
    WITH(linear, c.w = &bias, "the bias");
    WITH(linear, c.up = &bias, "the bias");
    WITH(linear, (c.gate.table = &mods, c.gate.col = 6), NULL);
    WITH(linear, (c.gate.table = &mods, c.gate.col = 7), "outside its table");
    WITH(linear, (c.gate.table = &mods, c.gate.col = -1), "outside its table");
}

static void route(void **state)
{
    struct oz_act logits = act(3, 8);
    struct oz_param bias = param(1, 8, 0, 0);
    struct oz_param wrong = param(1, 7, 0, 0);
    struct oz_route_args a = {.logits = &logits, .k = 8, .bias = &bias};
    WITH(route, (void)0, NULL);
    WITH(route, c.bias = NULL, NULL);
    WITH(route, c.k = 0, "k is not between");
    WITH(route, c.k = 9, "k is not between");
    WITH(route, c.bias = &wrong, "one value an expert");
}

static void experts(void **state)
{
    struct oz_act x = act(3, 4);
    struct oz_act out = act(3, 4);
    struct oz_act more = act(4, 4);
    struct oz_act wide = act(3, 5);
    struct oz_param up = param(3, 8, 12, 4);
    struct oz_param down = param(3, 8, 4, 6);
    struct oz_param odd = param(3, 8, 13, 4);
    struct oz_param few = param(3, 7, 4, 6);
    struct oz_experts_args a = {.x = &x, .up = &up, .down = &down, .k = 2, .out = &out};
    WITH(experts, (void)0, NULL);
    WITH(experts, c.up = &odd, "up is not");
    WITH(experts, c.down = &few, "up is not");
    WITH(experts, c.x = &wide, "do not fit the experts");
    WITH(experts, c.out = &wide, "do not fit the experts");
    WITH(experts, c.out = &more, "do not fit the experts");
    WITH(experts, c.k = 0, "k is not between");
    WITH(experts, c.k = 9, "k is not between");
}

static void attention(void **state)
{
    static const int32_t offsets[] = {0, 2, 5};
    static const int32_t short_offsets[] = {0, 2, 4};
    const struct oz_ragged rows = {.count = 2, .offsets = offsets};
    const struct oz_ragged one = {.count = 1, .offsets = offsets};
    const struct oz_ragged too_short = {.count = 2, .offsets = short_offsets};
    const struct oz_paged_kv paged = {0};
    struct oz_act q = act(5, 32);
    struct oz_act kv = act(5, 16);
    struct oz_act wide = act(5, 17);
    struct oz_act out = act(5, 32);
    struct oz_attention_args a = {.segment_count = 1, .heads = 4, .kv_heads = 2, .head_dim = 8};
    a.segments[0].q = &q;
    a.segments[0].k = &kv;
    a.segments[0].v = &kv;
    a.segments[0].rows = &rows;
    a.segments[0].out = &out;
    a.segments[1] = a.segments[0];
    WITH(attention, (void)0, NULL);
    WITH(attention, c.segment_count = 2, NULL);
    WITH(attention, c.segment_count = 0, "one or two segments");
    WITH(attention, c.segment_count = 3, "one or two segments");
    WITH(attention, c.kv_heads = 3, "no multiple");
    WITH(attention, c.kv_heads = 0, "no multiple");
    WITH(attention, (c.paged = &paged, c.segment_count = 2), "pages of keys");
    WITH(attention, c.mask = OZ_MASK_CAUSAL, NULL);
    WITH(attention, (c.mask = OZ_MASK_CAUSAL, c.segment_count = 2), "a mask goes with");
    WITH(attention, (c.mask = OZ_MASK_WINDOW, c.window = 4), NULL);
    WITH(attention, c.mask = OZ_MASK_WINDOW, "the window");
    struct oz_param sinks = param(1, 4, 0, 0);
    struct oz_param few_sinks = param(1, 2, 0, 0);
    struct oz_act bias = act(4, 9);
    struct oz_act even_bias = act(4, 8);
    WITH(attention, (c.sinks = &sinks, c.bias = &bias), NULL);
    WITH(attention, c.sinks = &few_sinks, "one value a head");
    WITH(attention, c.bias = &even_bias, "2 * reach - 1");
    WITH(attention, c.segments[0].q = NULL, "only one of q and out");
    WITH(attention, c.segments[0].v = NULL, "only one of q and out");
    WITH(attention, (c.segments[0].q = NULL, c.segments[0].out = NULL), NULL);
    WITH(attention,
         (c.segments[0].q = NULL, c.segments[0].out = NULL, c.segments[0].k = NULL,
          c.segments[0].v = NULL),
         "neither queries nor keys");
    WITH(attention, c.segments[0].q = &kv, "q or out are not");
    WITH(attention, c.segments[0].out = &kv, "q or out are not");
    WITH(attention, (c.segments[0].k = &wide, c.segments[0].v = &wide), "k or v are not");
    WITH(attention, c.segments[0].k = &q, "k or v are not");
    WITH(attention, c.segments[0].rows = &too_short, "do not cover");
    WITH(attention, c.segments[0].rows = NULL, "number of sequences");
    WITH(attention, (c.segment_count = 2, c.segments[1].rows = &one), "number of sequences");
    WITH(attention, (c.segment_count = 2, c.segments[1].rows = NULL), "number of sequences");
}

static void norm_mod(void **state)
{
    struct oz_act x = act(5, 4);
    struct oz_act y = act(5, 4);
    struct oz_act narrow = act(5, 3);
    struct oz_act column = act(5, 1);
    struct oz_act table = act(2, 8);
    struct oz_param w = param(1, 4, 0, 0);
    struct oz_param wrong = param(1, 5, 0, 0);
    struct oz_norm_mod_args a = {.x = &x, .norm = OZ_NORM_RMS, .weight = &w, .out = &y};
    WITH(norm_mod, (void)0, NULL);
    WITH(norm_mod, (c.y = &y, c.out = NULL), NULL);
    WITH(norm_mod, c.out = NULL, "nothing to do");
    WITH(norm_mod, c.y = &narrow, "x and y");
    WITH(norm_mod, c.out = &narrow, "x and out");
    WITH(norm_mod, c.weight = &wrong, "weight or bias");
    WITH(norm_mod, c.bias = &wrong, "weight or bias");
    WITH(norm_mod, (c.scale.table = &table, c.scale.col = 4), NULL);
    WITH(norm_mod, (c.scale.table = &table, c.scale.col = 5), "outside its table");
    WITH(norm_mod, (c.shift.table = &table, c.shift.col = 5), "outside its table");
    WITH(norm_mod, (c.gate.table = &table, c.gate.col = -1), "outside its table");
    WITH(norm_mod, (c.y = &y, c.mul = &y), NULL);
    WITH(norm_mod, (c.y = &y, c.mul = &column), NULL);
    WITH(norm_mod, (c.y = &y, c.mul = &narrow), "neither of x's shape");
    WITH(norm_mod, c.mul = &y, "a factor of y");
}

static void qk_norm_rope(void **state)
{
    struct oz_act x = act(5, 32);
    struct oz_act narrow = act(5, 31);
    struct oz_act table = act(5, 4);
    struct oz_act short_table = act(4, 4);
    struct oz_act wide_table = act(5, 5);
    struct oz_param w = param(1, 8, 0, 0);
    struct oz_param wrong = param(1, 4, 0, 0);
    int32_t rows[5] = {0};
    struct oz_qk_norm_rope_args a = {.x = &x,
                                     .heads = 4,
                                     .head_dim = 8,
                                     .weight = &w,
                                     .rope = OZ_ROPE_PAIRS,
                                     .cosine = &table,
                                     .sine = &table};
    WITH(qk_norm_rope, (void)0, NULL);
    WITH(qk_norm_rope, (c.rope = OZ_ROPE_NONE, c.cosine = NULL, c.sine = NULL), NULL);
    WITH(qk_norm_rope, c.x = &narrow, "x is not");
    WITH(qk_norm_rope, c.weight = &wrong, "as long as a head");
    WITH(qk_norm_rope, (c.cosine = &wide_table, c.sine = &wide_table), "more angles");
    WITH(qk_norm_rope, c.sine = &wide_table, "more angles");
    WITH(qk_norm_rope, (c.cosine = &short_table, c.sine = &short_table), "lack rows");
    WITH(qk_norm_rope, (c.cosine = &short_table, c.sine = &short_table, c.table_rows = rows), NULL);
}

static void act_quant(void **state)
{
    struct oz_act x = act(5, 4);
    struct oz_act out = act(3, 4);
    struct oz_act wide = act(3, 5);
    int32_t rows[5] = {0};
    struct oz_act_quant_args a = {.x = &x, .out = &out, .rows = 3};
    WITH(act_quant, (void)0, NULL);
    WITH(act_quant, c.out = &wide, "different widths");
    WITH(act_quant, c.rows = 4, "more rows");
    WITH(act_quant, (c.rows = 4, c.out_rows = rows), NULL);
    WITH(act_quant, (c.rows = 6, c.out_rows = rows), "more rows");
}

static void conv(void **state)
{
    struct oz_act x = act(2 * 6 * 8, 3);
    struct oz_act out = act(2 * 6 * 8, 5);
    struct oz_act half = act(2 * 3 * 4, 5);
    struct oz_act small = act(7, 5);
    struct oz_param w = {.name = "w", .rank = 5, .shape = {5, 3, 3, 3, 3}};
    struct oz_param b = param(1, 5, 0, 0);
    struct oz_param wrong = param(1, 4, 0, 0);
    struct oz_conv_args a = {.x = &x,
                             .frames = 2,
                             .height = 6,
                             .width = 8,
                             .w = &w,
                             .b = &b,
                             .kt = 3,
                             .kh = 3,
                             .kw = 3,
                             .stride = 1,
                             .stride_t = 1,
                             .pad_top = 1,
                             .pad_bottom = 1,
                             .pad_left = 1,
                             .pad_right = 1,
                             .out = &out};
    WITH(conv, (void)0, NULL);
    WITH(conv, (c.stride = 2, c.out = &half), NULL);
    WITH(conv, c.residual = &out, NULL);
    WITH(conv, c.frames = 3, "frames * height * width");
    WITH(conv, c.stride = 0, "stride");
    WITH(conv, c.stride_t = 0, "stride");
    WITH(conv, c.kt = 1, "[out, kernel, in]");
    WITH(conv, c.out = &small, "do not follow");
    WITH(conv, c.pad_top = 0, "do not follow");
    WITH(conv, c.residual = &half, "residual");
    WITH(conv, c.b = &wrong, "one value a channel");
    struct oz_act past = act(2 * 6 * 8, 3);
    struct oz_act short_past = act(6 * 8, 3);
    WITH(conv, c.past = &past, NULL);
    WITH(conv, c.past = &short_past, "past");
}

static void resample(void **state)
{
    struct oz_act x = act(6, 8);
    struct oz_act big = act(24, 8);
    struct oz_act dup = act(24, 4);
    struct oz_act avg = act(6, 16);
    struct oz_resample_args a = {.x = &x,
                                 .kind = OZ_RESAMPLE_NEAREST,
                                 .frames = 1,
                                 .height = 2,
                                 .width = 3,
                                 .factor_t = 1,
                                 .factor_y = 2,
                                 .factor_x = 2,
                                 .out = &big};
    WITH(resample, (void)0, NULL);
    WITH(resample, c.height = 3, "frames * height * width");
    WITH(resample, c.factor_x = 0, "frames * height * width");
    WITH(resample, (c.factor_x = -2, c.factor_y = -2), "frames * height * width");
    WITH(resample, c.factor_x = 1, "enlarged input");
    WITH(resample, c.out = &dup, "enlarged input");
    WITH(resample, (c.kind = OZ_RESAMPLE_DUP_UP, c.out = &dup), NULL);
    WITH(resample, (c.kind = OZ_RESAMPLE_DUP_UP, c.out = &avg), "do not divide");
    WITH(resample,
         (c.kind = OZ_RESAMPLE_AVG_DOWN, c.x = &big, c.height = 4, c.width = 6, c.out = &avg),
         NULL);
    WITH(resample,
         (c.kind = OZ_RESAMPLE_AVG_DOWN, c.x = &big, c.height = 4, c.width = 6, c.out = &dup),
         "do not divide");
    struct oz_act line = act(24, 8);
    WITH(resample,
         (c.kind = OZ_RESAMPLE_AVG_DOWN, c.x = &line, c.height = 3, c.width = 8, c.out = &avg),
         "sides");
}

static void time_embed(void **state)
{
    struct oz_linear one = {.w = param(2, 64, 16, 0)};
    struct oz_linear two = {.w = param(2, 32, 64, 0)};
    struct oz_linear wrong = {.w = param(2, 32, 63, 0)};
    struct oz_act out = act(3, 32);
    struct oz_act narrow = act(3, 31);
    struct oz_time_embed_args a = {
        .rows = 3, .dim = 16, .linear_1 = &one, .linear_2 = &two, .out = &out, .silu_out = &out};
    WITH(time_embed, (void)0, NULL);
    WITH(time_embed, c.out = NULL, NULL);
    WITH(time_embed, c.dim = 15, "do not fit the embedding");
    WITH(time_embed, c.dim = 0, "do not fit the embedding");
    WITH(time_embed, c.linear_2 = &wrong, "do not fit the embedding");
    WITH(time_embed, c.out = &narrow, "[rows, width]");
    WITH(time_embed, c.silu_out = &narrow, "[rows, width]");
    WITH(time_embed, c.rows = 4, "[rows, width]");
}

static void patch(void **state)
{
    struct oz_act tokens = act(6, 64);
    struct oz_act wrong = act(6, 63);
    struct oz_patch_args a = {
        .channels = 16, .frames = 1, .height = 4, .width = 6, .patch = 2, .tokens = &tokens};
    WITH(patch, (void)0, NULL);
    WITH(patch, c.height = 5, "no multiples");
    WITH(patch, c.width = 5, "no multiples");
    WITH(patch, c.patch = 0, "no multiples");
    WITH(patch, c.tokens = &wrong, "do not fit the picture");
    WITH(patch, c.frames = 2, "do not fit the picture");
}

static void unpatch(void **state)
{
    struct oz_act tokens = act(6, 64);
    struct oz_act planes = act(16, 24);
    struct oz_act pixels = act(24, 16);
    struct oz_unpatch_args a = {.channels = 16,
                                .frames = 1,
                                .height = 4,
                                .width = 6,
                                .patch = 2,
                                .tokens = &tokens,
                                .out = &planes};
    WITH(unpatch, (void)0, NULL);
    WITH(unpatch, (c.channel_last = true, c.out = &pixels), NULL);
    WITH(unpatch, c.channel_last = true, "picture's shape");
    WITH(unpatch, c.out = &pixels, "picture's shape");
    WITH(unpatch, c.height = 3, "no multiples");
}

static void cfg_combine(void **state)
{
    struct oz_act p = act(4, 8);
    struct oz_act fewer = act(3, 8);
    struct oz_cfg_combine_args a = {.positive = &p, .negative = &p, .out = &p};
    WITH(cfg_combine, (void)0, NULL);
    WITH(cfg_combine, c.negative = &fewer, "different shapes");
    WITH(cfg_combine, c.out = &fewer, "different shapes");
}

static void sched_step(void **state)
{
    struct oz_act x = act(4, 8);
    struct oz_act fewer = act(3, 8);
    struct oz_sched_step_args a = {.x = &x, .count = 2, .terms = {&x, &x}};
    WITH(sched_step, (void)0, NULL);
    WITH(sched_step, c.count = 0, NULL);
    WITH(sched_step, c.count = -1, "too many terms");
    WITH(sched_step, c.count = OZ_SCHED_TERMS + 1, "too many terms");
    WITH(sched_step, c.terms[1] = &fewer, "sample's shape");
}

static void sample(void **state)
{
    struct oz_act logits = act(2, 8);
    struct oz_act none = act(2, 0);
    struct oz_sample_row rows[2] = {{0}};
    int32_t ids[2];
    struct oz_sample_args a = {.logits = &logits, .rows = rows, .ids = ids};
    WITH(sample, (void)0, NULL);
    WITH(sample, c.rows = NULL, "nothing to draw from");
    WITH(sample, c.ids = NULL, "nothing to draw from");
    WITH(sample, c.logits = &none, "nothing to draw from");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed),        cmocka_unit_test(linear),      cmocka_unit_test(route),
        cmocka_unit_test(experts),      cmocka_unit_test(attention),   cmocka_unit_test(norm_mod),
        cmocka_unit_test(qk_norm_rope), cmocka_unit_test(act_quant),   cmocka_unit_test(conv),
        cmocka_unit_test(resample),     cmocka_unit_test(time_embed),  cmocka_unit_test(patch),
        cmocka_unit_test(unpatch),      cmocka_unit_test(cfg_combine), cmocka_unit_test(sched_step),
        cmocka_unit_test(sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
