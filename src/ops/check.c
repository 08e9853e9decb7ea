#include "ops/check.h"

#include "ops/param.h"

static bool same_shape(const struct oz_act *a, const struct oz_act *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

/* Elements of a vector parameter. */
static int64_t length(const struct oz_param *p)
{
    int64_t n = 1;
    for (int32_t i = 0; i < p->rank; i++) {
        n *= p->shape[i];
    }
    return n;
}

static bool vector_of(const struct oz_param *p, int64_t n)
{
    return !oz_param_exists(p) || length(p) == n;
}

static bool mod_fits(const struct oz_mod *m, int64_t cols)
{
    return m->table == NULL || (m->col >= 0 && m->col + cols <= m->table->cols);
}

const char *oz_check_embed(const struct oz_embed_args *a)
{
    if (a->table->rank != 2 || a->out->cols != a->table->shape[1]) {
        return "the output is not as wide as the table";
    }
    return a->ids == NULL ? "no ids" : NULL;
}

static const char *check_weight(const struct oz_linear *w, const struct oz_act *x, int64_t n)
{
    if (w->w.rank != 2 || w->w.shape[1] != x->cols) {
        return "the weight's in features are not the input's columns";
    }
    if (w->w.shape[0] != n) {
        return "the weight's out features are not the output's columns";
    }
    return vector_of(&w->b, n) ? NULL : "the bias is not as long as the output is wide";
}

const char *oz_check_linear(const struct oz_linear_args *a)
{
    const struct oz_act *y = a->residual != NULL ? a->residual : a->out;
    if (y == NULL || (a->residual != NULL && (a->out != NULL || a->up != NULL))) {
        return "it must have either an output or a residual";
    }
    if (y->rows != a->x->rows) {
        return "input and output have different numbers of rows";
    }
    const char *problem = check_weight(a->w, a->x, y->cols);
    if (problem == NULL && a->up != NULL) {
        problem = check_weight(a->up, a->x, y->cols);
    }
    return problem != NULL               ? problem
           : mod_fits(&a->gate, y->cols) ? NULL
                                         : "the gate is outside its table";
}

const char *oz_check_route(const struct oz_route_args *a)
{
    if (a->k < 1 || a->k > a->logits->cols) {
        return "k is not between 1 and the number of experts";
    }
    return vector_of(a->bias, a->logits->cols) ? NULL : "the bias has not one value an expert";
}

const char *oz_check_experts(const struct oz_experts_args *a)
{
    const int64_t *up = a->up->shape;
    const int64_t *down = a->down->shape;
    if (a->up->rank != 3 || a->down->rank != 3 || up[0] != down[0] || up[1] != 2 * down[2]) {
        return "up is not [experts, 2 f, d] to down's [experts, d, f]";
    }
    if (up[2] != a->x->cols || down[1] != a->out->cols || a->out->rows != a->x->rows) {
        return "input or output do not fit the experts";
    }
    return a->k >= 1 && a->k <= up[0] ? NULL : "k is not between 1 and the number of experts";
}

static const char *check_segment(const struct oz_attention_args *a, int32_t i)
{
    const struct oz_act *q = a->segments[i].q;
    const struct oz_act *k = a->segments[i].k;
    const struct oz_act *v = a->segments[i].v;
    const struct oz_act *out = a->segments[i].out;
    if ((q == NULL) != (out == NULL) || (k == NULL) != (v == NULL)) {
        return "a segment has only one of q and out, or of k and v";
    }
    if (q == NULL && k == NULL) {
        return "a segment has neither queries nor keys";
    }
    if (q != NULL && (!same_shape(q, out) || q->cols != (int64_t)a->heads * a->head_dim)) {
        return "q or out are not [rows, heads * head_dim]";
    }
    if (k != NULL && (!same_shape(k, v) || k->cols != (int64_t)a->kv_heads * a->head_dim)) {
        return "k or v are not [rows, kv_heads * head_dim]";
    }
    const struct oz_ragged *r = a->segments[i].rows;
    if (r == NULL || r->count != a->segments[0].rows->count) {
        return "segments differ in their number of sequences";
    }
    int64_t rows = q != NULL ? q->rows : k->rows;
    return r->offsets[r->count] == rows ? NULL : "the sequences do not cover a segment's rows";
}

const char *oz_check_attention(const struct oz_attention_args *a)
{
    if (a->segment_count < 1 || a->segment_count > OZ_ATTENTION_SEGMENTS) {
        return "it must have one or two segments";
    }
    if (a->kv_heads < 1 || a->heads % a->kv_heads != 0) {
        return "the query heads are no multiple of the key-value heads";
    }
    if (a->paged != NULL && a->segment_count != 1) {
        return "pages of keys go with one segment";
    }
    if (a->mask != OZ_MASK_NONE && a->segment_count != 1) {
        return "a mask goes with queries and keys in one segment";
    }
    if (a->mask == OZ_MASK_WINDOW && a->window < 1) {
        return "the window is less than 1";
    }
    if (!vector_of(a->sinks, a->heads)) {
        return "the sinks have not one value a head";
    }
    if (a->bias != NULL && (a->bias->rows != a->heads || a->bias->cols % 2 != 1)) {
        return "the bias is not [heads, 2 * reach - 1]";
    }
    for (int32_t i = 0; i < a->segment_count; i++) {
        const char *problem = check_segment(a, i);
        if (problem != NULL) {
            return problem;
        }
    }
    return NULL;
}

const char *oz_check_norm_mod(const struct oz_norm_mod_args *a)
{
    int64_t n = a->x->cols;
    if (a->y != NULL && !same_shape(a->x, a->y)) {
        return "x and y have different shapes";
    }
    if (a->y == NULL && a->out == NULL) {
        return "it has nothing to do";
    }
    if (a->out != NULL && !same_shape(a->x, a->out)) {
        return "x and out have different shapes";
    }
    if (a->mul != NULL && a->y == NULL) {
        return "mul is a factor of y, which is not there";
    }
    if (a->mul != NULL &&
        (a->mul->rows != a->x->rows || (a->mul->cols != n && a->mul->cols != 1))) {
        return "mul is neither of x's shape nor one value a row";
    }
    if (!vector_of(a->weight, n) || !vector_of(a->bias, n)) {
        return "weight or bias are not as long as x is wide";
    }
    if (!mod_fits(&a->gate, n) || !mod_fits(&a->scale, n) || !mod_fits(&a->shift, n)) {
        return "a modulation vector is outside its table";
    }
    return NULL;
}

const char *oz_check_qk_norm_rope(const struct oz_qk_norm_rope_args *a)
{
    if (a->x->cols != (int64_t)a->heads * a->head_dim) {
        return "x is not [rows, heads * head_dim]";
    }
    if (!vector_of(a->weight, a->head_dim)) {
        return "the weight is not as long as a head";
    }
    if (a->out != NULL && !same_shape(a->out, a->x)) {
        return "x and out have different shapes";
    }
    if (a->rope == OZ_ROPE_NONE) {
        return NULL;
    }
    if (!same_shape(a->cosine, a->sine) || 2 * a->cosine->cols > a->head_dim) {
        return "the tables have more angles than a head has pairs";
    }
    return a->table_rows != NULL || a->cosine->rows == a->x->rows ? NULL : "the tables lack rows";
}

const char *oz_check_act_quant(const struct oz_act_quant_args *a)
{
    if (a->x->cols != a->out->cols) {
        return "x and out have different widths";
    }
    if ((a->x_rows == NULL && a->rows > a->x->rows) ||
        (a->out_rows == NULL && a->rows > a->out->rows)) {
        return "more rows are asked for than there are";
    }
    return NULL;
}

const char *oz_check_conv(const struct oz_conv_args *a)
{
    int64_t pixels = (int64_t)a->frames * a->height * a->width;
    int64_t taps = (int64_t)a->kt * a->kh * a->kw;
    if (a->x->rows != pixels) {
        return "the input's rows are not frames * height * width";
    }
    if (a->stride < 1 || a->stride_t < 1) {
        return "a stride is less than 1";
    }
    if (a->w->shape[0] != a->out->cols || length(a->w) != a->out->cols * taps * a->x->cols) {
        return "the weight is not [out, kernel, in]";
    }
    if (a->past != NULL && (a->past->rows != (int64_t)(a->kt - 1) * a->height * a->width ||
                            a->past->cols != a->x->cols)) {
        return "the past is not [(kt - 1) * height * width, in]";
    }
    int64_t h = (a->height + a->pad_top + a->pad_bottom - a->kh) / a->stride + 1;
    int64_t w = (a->width + a->pad_left + a->pad_right - a->kw) / a->stride + 1;
    int64_t t = (a->frames - 1) / a->stride_t + 1;
    if (h < 1 || w < 1 || a->out->rows != t * h * w) {
        return "the output's rows do not follow from the input's size";
    }
    if (a->residual != NULL && !same_shape(a->residual, a->out)) {
        return "the residual is not of the output's shape";
    }
    return vector_of(a->b, a->out->cols) ? NULL : "the bias has not one value a channel";
}

const char *oz_check_resample(const struct oz_resample_args *a)
{
    int64_t pixels = (int64_t)a->frames * a->height * a->width;
    int64_t factor = (int64_t)a->factor_t * a->factor_y * a->factor_x;
    if (a->x->rows != pixels || a->factor_t < 1 || a->factor_y < 1 || a->factor_x < 1) {
        return "the input's rows are not frames * height * width";
    }
    if (a->kind == OZ_RESAMPLE_NEAREST) {
        return a->out->rows == pixels * factor && a->out->cols == a->x->cols
                   ? NULL
                   : "the output is not the enlarged input";
    }
    bool up = a->kind == OZ_RESAMPLE_DUP_UP;
    if (!up && (a->frames % a->factor_t != 0 || a->height % a->factor_y != 0 ||
                a->width % a->factor_x != 0)) {
        return "the sides are no multiples of their factors";
    }
    int64_t rows = up ? pixels * factor : pixels / factor;
    int64_t many = up ? a->out->cols * factor : a->x->cols * factor;
    int64_t few = up ? a->x->cols : a->out->cols;
    return a->out->rows == rows && many % few == 0 ? NULL : "channels or rows do not divide";
}

const char *oz_check_time_embed(const struct oz_time_embed_args *a)
{
    if (a->linear_1 == NULL && a->linear_2 == NULL) {
        return a->dim < 2 || a->dim % 2 != 0 || a->silu_out != NULL || a->out == NULL ||
                       a->out->rows != a->rows || a->out->cols != a->dim
                   ? "the sinusoids alone are [rows, dim] in one output"
                   : NULL;
    }
    int64_t hidden = a->linear_1->w.shape[0];
    int64_t n = a->linear_2->w.shape[0];
    if (a->dim < 2 || a->dim % 2 != 0 || a->linear_1->w.shape[1] != a->dim ||
        a->linear_2->w.shape[1] != hidden) {
        return "the two linears do not fit the embedding";
    }
    if ((a->out != NULL && (a->out->rows != a->rows || a->out->cols != n)) ||
        (a->silu_out != NULL && (a->silu_out->rows != a->rows || a->silu_out->cols != n))) {
        return "an output is not [rows, width]";
    }
    return NULL;
}

static const char *check_patching(int32_t channels, int32_t frames, int32_t height, int32_t width,
                                  int32_t patch, const struct oz_act *tokens)
{
    if (patch < 1 || height % patch != 0 || width % patch != 0) {
        return "the picture's sides are no multiples of the patch";
    }
    int64_t rows = (int64_t)frames * (height / patch) * (width / patch);
    return tokens->rows == rows && tokens->cols == (int64_t)channels * patch * patch
               ? NULL
               : "the tokens do not fit the picture";
}

const char *oz_check_patch(const struct oz_patch_args *a)
{
    return check_patching(a->channels, a->frames, a->height, a->width, a->patch, a->tokens);
}

const char *oz_check_unpatch(const struct oz_unpatch_args *a)
{
    const char *problem =
        check_patching(a->channels, a->frames, a->height, a->width, a->patch, a->tokens);
    if (problem != NULL) {
        return problem;
    }
    int64_t pixels = (int64_t)a->frames * a->height * a->width;
    int64_t rows = a->channel_last ? pixels : a->channels;
    int64_t cols = a->channel_last ? a->channels : pixels;
    return a->out->rows == rows && a->out->cols == cols ? NULL
                                                        : "the output is not the picture's shape";
}

const char *oz_check_cfg_combine(const struct oz_cfg_combine_args *a)
{
    return same_shape(a->positive, a->negative) && same_shape(a->positive, a->out)
               ? NULL
               : "the predictions have different shapes";
}

const char *oz_check_sched_step(const struct oz_sched_step_args *a)
{
    if (a->count < 0 || a->count > OZ_SCHED_TERMS) {
        return "too many terms";
    }
    for (int32_t i = 0; i < a->count; i++) {
        if (!same_shape(a->terms[i], a->x)) {
            return "a term is not of the sample's shape";
        }
    }
    return NULL;
}

const char *oz_check_sample(const struct oz_sample_args *a)
{
    return a->rows != NULL && a->ids != NULL && a->logits->cols > 0 ? NULL : "nothing to draw from";
}
