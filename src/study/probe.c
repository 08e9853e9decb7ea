#include "study/probe.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "num/float.h"
#include "ops/ops.h"
#include "study/assignment_text.h"
#include "study/metrics.h"

#define KEPT_BYTES (INT64_C(256) << 20) /* of all units' inputs */
#define KEPT_ROWS 192                   /* of one unit's */
#define KEPT_LEAST 8
#define MAX_CONFIG_BYTES ((size_t)OZ_CONFIG_MAX_BYTES)

static struct oz_component *transformer(const struct oz_variant_run *v)
{
    return &v->pipeline->components[OZ_COMPONENT_TRANSFORMER];
}

/* ---- units ---- */

/* Nothing where modulation weights will not stay (pipe/modulation.h). */
static int64_t resident_bytes(const struct oz_probe *p, const struct oz_component *c, int32_t row)
{
    const struct oz_qwen_image *model = &p->reference.pipeline->transformer;
    if (p->args->how.modulation != OZ_MODULATION_RESIDENT &&
        oz_qwen_image_mod_part(model, &c->table.rows[row]) >= 0) {
        return 0;
    }
    for (int64_t i = 0; i < c->report.count; i++) {
        const struct oz_load_entry *e = &c->report.entries[i];
        if (e->row == row) {
            return e->fate == OZ_FATE_MAPPED ? e->tensor->bytes : e->resident_bytes;
        }
    }
    return 0;
}

static void add_unit(struct oz_probe *p, const struct oz_component *c, int32_t row)
{
    const struct oz_layer *l = &c->table.rows[row];
    struct oz_probe_unit *u = NULL;
    for (int32_t i = 0; i < p->count && l->fused != NULL; i++) {
        if (strcmp(p->units[i].name, l->fused) == 0) {
            u = &p->units[i];
        }
    }
    if (u == NULL || u->parts == OZ_PROBE_PARTS) {
        u = &p->units[p->count++];
        *u = (struct oz_probe_unit){.name = l->fused != NULL ? l->fused : l->module,
                                    .role = l->role,
                                    .block = l->block_number - 1,
                                    .cols = l->shape[1]};
    }
    u->rows[u->parts++] = row;
    u->elements += l->shape[0] * l->shape[1];
    u->stored_bytes += resident_bytes(p, c, row);
}

static enum oz_status list_units(struct oz_probe *p, struct oz_error *err)
{
    const struct oz_component *c = transformer(&p->reference);
    int64_t cols = 0;
    p->units = oz_alloc_zero((size_t)c->table.count + 1, sizeof *p->units);
    p->takes = oz_alloc_zero((size_t)c->table.count + 1, sizeof *p->takes);
    if (p->units == NULL || p->takes == NULL) {
        return OZ_FAIL_NOMEM(err, "the units of a search");
    }
    for (int32_t i = 0; i < c->table.count; i++) {
        const struct oz_layer *l = &c->table.rows[i];
        if (l->kind == OZ_LAYER_LINEAR && l->bind != NULL && l->bind->weight.codec != NULL &&
            c->assignment.choices[i].scheme.codec == NULL) {
            add_unit(p, c, i);
        }
    }
    for (int32_t i = 0; i < p->count; i++) {
        cols += p->units[i].cols;
    }
    int64_t rows = KEPT_BYTES / (int64_t)sizeof(float) / (cols > 0 ? cols : 1);
    rows = rows > KEPT_ROWS ? KEPT_ROWS : rows < KEPT_LEAST ? KEPT_LEAST : rows;
    for (int32_t i = 0; i < p->count; i++) {
        struct oz_probe_unit *u = &p->units[i];
        u->input_room = rows;
        u->inputs = oz_alloc_zero((size_t)(rows * u->cols), sizeof *u->inputs);
        if (u->inputs == NULL) {
            return OZ_FAIL_NOMEM(err, "the inputs of layers");
        }
    }
    return OZ_OK;
}

/* ---- keeping inputs ---- */

struct keeping {
    struct oz_probe *p;
    enum oz_status status;
};

/* The unit that a parameter is a part of, and which. */
static struct oz_probe_unit *unit_of(struct oz_probe *p, const struct oz_param *param,
                                     int32_t *part)
{
    const struct oz_layer_table *t = &transformer(&p->reference)->table;
    for (int32_t i = 0; i < p->count; i++) {
        for (int32_t k = 0; k < p->units[i].parts; k++) {
            if (t->rows[p->units[i].rows[k]].bind == param) {
                *part = k;
                return &p->units[i];
            }
        }
    }
    return NULL;
}

/* Row `row` of a plain activation as f32. */
static enum oz_status fetch_row(struct oz_probe *p, const struct oz_act *x, int64_t row, float *to)
{
    struct oz_device *dev = p->reference.pipeline->dev;
    size_t size = x->spec.dtype == OZ_DTYPE_BF16 ? 2 : 4;
    const char *from = (const char *)x->data + (size_t)(row * x->stride) * size;
    enum oz_status status = dev->download(dev, NULL, to, from, (size_t)x->cols * size, NULL);
    if (status == OZ_OK) {
        status = dev->wait(dev, NULL, NULL);
    }
    for (int64_t i = x->cols; size == 2 && i-- > 0;) { /* from the end: in place */
        uint16_t narrow;
        memcpy(&narrow, (const char *)to + 2 * i, sizeof narrow);
        to[i] = oz_bf16_to_f32(narrow);
    }
    return status;
}

/* Keeps rows evenly: the stride doubles, and every other row goes, whenever there is no more room. So no
 * step, prompt or token is preferred, and the choice depends on nothing but the order. */
static void keep_rows(struct keeping *k, struct oz_probe_unit *u, const struct oz_act *x)
{
    for (int64_t r = 0; r < x->rows && k->status == OZ_OK; r++, u->input_seen++) {
        int64_t stride = 1;
        while ((u->input_seen + stride) / stride > u->input_room) {
            stride *= 2;
        }
        if (u->input_seen % stride != 0) {
            continue;
        }
        int64_t at = u->input_seen / stride;
        if (at < u->input_rows) { /* the stride has doubled just now */
            for (int64_t i = 0; i < at; i++) {
                memmove(u->inputs + i * u->cols, u->inputs + 2 * i * u->cols,
                        (size_t)u->cols * sizeof *u->inputs);
            }
        }
        k->status = fetch_row(k->p, x, r, u->inputs + at * u->cols);
        u->input_rows = at + 1;
    }
}

static void keep_input(void *ctx, enum oz_op op, const void *args)
{
    struct keeping *k = ctx;
    int32_t part;
    if (op == OZ_OP_TIME_EMBED) {
        const struct oz_time_embed_args *a = args;
        const struct oz_linear *const both[] = {a->linear_1, a->linear_2};
        for (int i = 0; i < 2 && both[i] != NULL; i++) { /* its inputs are the operator's own */
            struct oz_probe_unit *u = unit_of(k->p, &both[i]->w, &part);
            if (u != NULL) {
                u->ran = true;
            }
        }
    }
    if (op != OZ_OP_LINEAR) {
        return;
    }
    const struct oz_linear_args *a = args;
    struct oz_probe_unit *u = unit_of(k->p, &a->w->w, &part);
    if (u == NULL) {
        return;
    }
    if (!u->ran) { /* its parts have one input; the first that runs need not be the first of all */
        u->ran = true;
        u->input_part = part;
    }
    if (part != u->input_part) {
        return;
    }
    bool plain = a->x->spec.scale_count == 0 &&
                 (a->x->spec.dtype == OZ_DTYPE_F32 || a->x->spec.dtype == OZ_DTYPE_BF16);
    if (plain && a->x->cols == u->cols) {
        keep_rows(k, u, a->x);
    }
}

/* ---- running ---- */

static int tell(void *ctx, const struct oz_progress *now)
{
    const struct oz_probe *p = ctx;
    if (p->args->progress == NULL) {
        return 0;
    }
    const struct oz_progress out = {.struct_size = sizeof out,
                                    .stage = OZ_STAGE_STUDY,
                                    .picture = -1,
                                    .done = p->steps_done +
                                            (now->stage == OZ_STAGE_DENOISE ? now->done : 0),
                                    .total = p->steps_total};
    return p->args->progress(p->args->progress_ctx, &out);
}

static const float *draw(struct oz_probe *p, struct oz_variant_run *v, int32_t task,
                         enum oz_status *status, struct oz_error *err)
{
    struct oz_drawing *d = &p->drawing;
    *status = oz_variant_draw(v, &p->tasks[task], d, tell, p, err);
    p->steps_done += d->shape.steps;
    return d->picture;
}

static enum oz_status draw_expected(struct oz_probe *p, struct oz_error *err)
{
    struct keeping k = {.p = p};
    for (int32_t i = 0; i < p->args->task_count; i++) {
        enum oz_status status;
        p->drawing.watch = keep_input;
        p->drawing.watch_ctx = &k;
        const float *values = draw(p, &p->reference, i, &status, err);
        p->drawing.watch = NULL;
        OZ_TRY(status);
        if (k.status != OZ_OK) {
            return OZ_FAIL(err, k.status, "The inputs of a layer could not be read.");
        }
        memcpy(p->expected + i * p->expected_values, values,
               (size_t)p->expected_values * sizeof *values);
    }
    return OZ_OK;
}

static enum oz_status resolve(struct oz_probe *p, struct oz_error *err)
{
    int32_t count = p->args->task_count;
    p->tasks = oz_alloc_zero((size_t)count, sizeof *p->tasks);
    if (p->tasks == NULL) {
        return OZ_FAIL_NOMEM(err, "the prompts");
    }
    for (int32_t i = 0; i < count; i++) {
        p->tasks[i] = p->args->tasks[i];
        OZ_TRY(oz_task_resolve(&p->tasks[i], p->reference.pipeline, count > 1 ? i + 1 : 0, err));
    }
    struct oz_drawing *d = &p->drawing;
    OZ_TRY(oz_variant_shape(p->reference.pipeline, &p->tasks[0], &d->shape, err));
    p->expected_values = 3 * (int64_t)p->tasks[0].width * p->tasks[0].height;
    d->prediction = oz_alloc_zero((size_t)d->shape.values, sizeof(float));
    d->latents = oz_alloc_zero((size_t)(d->shape.values * d->shape.steps), sizeof(float));
    p->expected = oz_alloc_zero((size_t)(p->expected_values * count), sizeof(float));
    return d->prediction != NULL && d->latents != NULL && p->expected != NULL
               ? OZ_OK
               : OZ_FAIL_NOMEM(err, "the latents of a search");
}

enum oz_status oz_probe_open(struct oz_probe *p, const struct oz_probe_args *args,
                             struct oz_error *err)
{
    const struct oz_variant asked = {.label = "reference", .model = args->model};
    int64_t steps_total = p->steps_total;
    *p = (struct oz_probe){.args = args, .steps_total = steps_total};
    p->how = args->how;
    p->how.modulation =
        OZ_MODULATION_RESIDENT; /* weights that pass by cannot be lent or looked at */
    OZ_TRY(oz_variant_open(&p->reference, &asked, &p->how, err));
    OZ_TRY(list_units(p, err));
    OZ_TRY(resolve(p, err));
    return draw_expected(p, err);
}

void oz_probe_close(struct oz_probe *p)
{
    oz_probe_close_scheme(p);
    oz_variant_close(&p->reference);
    for (int32_t i = 0; i < p->count; i++) {
        oz_free(p->units[i].inputs);
    }
    oz_free(p->units);
    oz_free(p->takes);
    oz_free(p->tasks);
    oz_free(p->drawing.prediction);
    oz_free(p->drawing.latents);
    oz_free(p->drawing.picture);
    oz_free(p->expected);
    *p = (struct oz_probe){0};
}

/* ---- a scheme ---- */

static bool takes(const struct oz_probe *p, const struct oz_probe_unit *u,
                  const struct oz_scheme_info *info)
{
    static const struct oz_act_support none = {0};
    const struct oz_layer_table *t = &transformer(&p->reference)->table;
    struct oz_scheme scheme;
    if (!info->linear || oz_scheme_make(&scheme, info, &none, NULL) != OZ_OK) {
        return false;
    }
    for (int32_t k = 0; k < u->parts; k++) {
        if (oz_scheme_check_shape(&scheme, &t->rows[u->rows[k]], NULL) != OZ_OK) {
            return false;
        }
    }
    return true;
}

static enum oz_status scheme_config(struct oz_probe *p, const char *value, struct oz_buf *b,
                                    struct oz_error *err)
{
    const struct oz_layer_table *t = &transformer(&p->reference)->table;
    const char **values = oz_alloc_zero((size_t)t->count + 1, sizeof *values);
    if (values == NULL) {
        return OZ_FAIL_NOMEM(err, "a quantization config");
    }
    for (int32_t i = 0; i < p->count; i++) {
        for (int32_t k = 0; k < p->units[i].parts && p->takes[i]; k++) {
            values[p->units[i].rows[k]] = value;
        }
    }
    enum oz_status status = oz_assignment_text(b, t, values, err);
    oz_free((void *)values);
    return status;
}

enum oz_status oz_probe_open_scheme(struct oz_probe *p, const char *value,
                                    const struct oz_scheme_info *info, struct oz_error *err)
{
    struct oz_buf config;
    oz_probe_close_scheme(p);
    for (int32_t i = 0; i < p->count; i++) {
        p->takes[i] = takes(p, &p->units[i], info);
    }
    oz_buf_init(&config, MAX_CONFIG_BYTES);
    enum oz_status status = scheme_config(p, value, &config, err);
    if (status == OZ_OK) {
        const struct oz_variant asked = {
            .label = info->name, .model = p->args->model, .quantization = oz_buf_text(&config)};
        status = oz_variant_open(&p->scheme, &asked, &p->how, err);
    }
    oz_buf_deinit(&config);
    return status;
}

void oz_probe_close_scheme(struct oz_probe *p)
{
    oz_variant_close(&p->scheme);
}

int64_t oz_probe_scheme_bytes(const struct oz_probe *p, int32_t unit)
{
    const struct oz_probe_unit *u = &p->units[unit];
    int64_t bytes = 0;
    for (int32_t k = 0; k < u->parts; k++) {
        bytes += resident_bytes(p, transformer(&p->scheme), u->rows[k]);
    }
    return bytes;
}

/* ---- errors ---- */

/* y = x W^T on the kept inputs; measures only where the arena does. */
static const struct oz_act *product(struct oz_exec *x, const struct oz_probe_unit *u,
                                    const struct oz_param *param, struct oz_act *y)
{
    const struct oz_linear linear = {.w = *param};
    struct oz_act in = oz_exec_act(x, u->input_rows, u->cols);
    oz_exec_upload(x, in.data, u->inputs, (size_t)(u->input_rows * u->cols) * sizeof *u->inputs);
    struct oz_act_spec wants = oz_linear_wants(x, &linear, 0);
    struct oz_act input = oz_exec_convert(x, &in, &wants, NULL);
    *y = oz_exec_act(x, u->input_rows, param->shape[0]);
    oz_op_linear(x, &(struct oz_linear_args){.x = &input, .w = &linear, .out = y});
    return y;
}

static enum oz_status run_product(struct oz_probe *p, const struct oz_probe_unit *u,
                                  const struct oz_param *param, float *out, struct oz_error *err)
{
    struct oz_device *dev = p->reference.pipeline->dev;
    struct oz_arena arena;
    struct oz_act y;
    void *memory;
    oz_arena_init_measure(&arena, "probe");
    struct oz_exec x;
    oz_exec_init(&x, dev, OZ_EXEC_MEASURE, &arena, err);
    (void)product(&x, u, param, &y);
    OZ_TRY(x.status);
    size_t bytes = arena.peak_bytes;
    OZ_TRY(dev->alloc(dev, bytes, &memory, err));
    oz_arena_init_view(&arena, "probe", memory, bytes, dev->host_memory);
    oz_exec_init(&x, dev, OZ_EXEC_RUN, &arena, err);
    (void)product(&x, u, param, &y);
    if (x.status == OZ_OK) {
        x.status =
            dev->download(dev, NULL, out, y.data, (size_t)(y.rows * y.cols) * sizeof *out, err);
    }
    if (x.status == OZ_OK) {
        x.status = dev->wait(dev, NULL, err);
    }
    oz_arena_deinit(&arena);
    dev->free(dev, memory);
    return x.status;
}

static enum oz_status add_part(struct oz_probe *p, const struct oz_probe_unit *u, int32_t row,
                               struct oz_distance *d, struct oz_error *err)
{
    const struct oz_param *a = transformer(&p->reference)->table.rows[row].bind;
    const struct oz_param *b = transformer(&p->scheme)->table.rows[row].bind;
    size_t count = (size_t)(u->input_rows * a->shape[0]);
    float *y = oz_alloc(2 * count * sizeof *y);
    if (y == NULL) {
        return OZ_FAIL_NOMEM(err, "a layer's output");
    }
    enum oz_status status = run_product(p, u, a, y, err);
    if (status == OZ_OK) {
        status = run_product(p, u, b, y + count, err);
    }
    if (status == OZ_OK) {
        oz_distance_add_f32(d, y, y + count, count);
    }
    oz_free(y);
    return status;
}

enum oz_status oz_probe_local(struct oz_probe *p, int32_t unit, double *error, struct oz_error *err)
{
    const struct oz_probe_unit *u = &p->units[unit];
    struct oz_distance d = {0};
    *error = (double)NAN;
    if (!p->takes[unit] || u->input_rows == 0) {
        return OZ_OK;
    }
    for (int32_t k = 0; k < u->parts; k++) {
        OZ_TRY(add_part(p, u, u->rows[k], &d, err));
    }
    *error = d.reference2 > 0 ? d.sum_squares / d.reference2 : 0;
    return OZ_OK;
}

/* Exchanges the parameters of the units that are `in`, in both pipelines; a second time undoes it. */
static void lend(struct oz_probe *p, const bool *in)
{
    struct oz_layer_table *a = &transformer(&p->reference)->table;
    struct oz_layer_table *b = &transformer(&p->scheme)->table;
    for (int32_t i = 0; i < p->count; i++) {
        for (int32_t k = 0; k < p->units[i].parts && in[i] && p->takes[i]; k++) {
            int32_t row = p->units[i].rows[k];
            struct oz_param keep = *a->rows[row].bind;
            *a->rows[row].bind = *b->rows[row].bind;
            *b->rows[row].bind = keep;
        }
    }
}

enum oz_status oz_probe_whole(struct oz_probe *p, const bool *in, double *error,
                              struct oz_error *err)
{
    struct oz_distance d = {0};
    enum oz_status status = OZ_OK;
    lend(p, in);
    for (int32_t i = 0; i < p->args->task_count && status == OZ_OK; i++) {
        const float *values = draw(p, &p->reference, i, &status, err);
        if (status == OZ_OK) {
            oz_distance_add_f32(&d, p->expected + i * p->expected_values, values,
                                (size_t)p->expected_values);
        }
    }
    lend(p, in);
    *error = d.sum_squares / (double)(d.elements > 0 ? d.elements : 1);
    return status;
}
