#include "study/role_errors.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "num/codec.h"
#include "study/compare.h"

#define BAND_ELEMENTS ((int64_t)1 << 16) /* of a weight; its share of error hardly varies beyond */

/* ---- one weight ---- */

struct band {
    const struct oz_layer *layer;
    const struct oz_scheme *scheme;
    const struct oz_tensor_view *tensor; /* NULL: cannot be measured */
    int64_t elements;
    double error2, reference2;
    enum oz_status status;
    struct oz_error err;
};

struct job {
    const struct oz_component *c;
    struct band *bands;
    int64_t count;
};

/* Rows move, and shapes are read otherwise; nothing else happens to a weight that is measured. */
static bool is_plain(const struct oz_layer *l, const struct oz_tensor_view *t)
{
    uint32_t moves = OZ_TRANSFORM_RESHAPE | OZ_TRANSFORM_SWAP_HALVES | OZ_TRANSFORM_PERMUTE;
    int64_t end = (l->file_row + l->shape[0]) * l->shape[1];
    return l->rank == 2 && (l->transform & ~moves) == 0 && t->codec == NULL &&
           oz_codec_plain(t->dtype) != NULL && l->shape[0] > 0 && l->shape[1] > 0 &&
           end <= t->elements;
}

/* Rows in the middle of the weight, whole scopes where they fit. */
static void choose(const struct band *b, int64_t *row0, int64_t *rows)
{
    int64_t all = b->layer->shape[0], cols = b->layer->shape[1];
    struct oz_weight whole = oz_weight_shape(b->scheme->codec, 1, all, cols);
    int64_t scope = oz_weight_scope_rows(&whole);
    int64_t most = BAND_ELEMENTS / cols > 1 ? BAND_ELEMENTS / cols : 1;
    scope = scope > most ? 1 : scope; /* its scale is the band's own */
    *rows = most >= all ? all : most / scope * scope;
    *row0 = (all - *rows) / 2 / scope * scope;
}

static enum oz_status alloc_planes(struct oz_weight *w, struct oz_error *err)
{
    for (int32_t i = 0; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *v = &w->planes[i];
        if (!v->present) {
            continue;
        }
        if (oz_weight_plane_bytes(w, (enum oz_plane)i, &v->bytes, &v->row_stride_bytes) != OZ_OK) {
            return OZ_FAIL(err, OZ_ERR_INTERNAL, "A band does not have its codec's shape.");
        }
        v->data = oz_alloc_zero((size_t)v->bytes, 1);
        v->slice_stride_bytes = v->bytes;
        if (v->data == NULL) {
            return OZ_FAIL_NOMEM(err, "a band of a weight");
        }
    }
    return OZ_OK;
}

static enum oz_status encode(struct oz_weight *w, const struct band *b, const float *values,
                             struct oz_error *err)
{
    struct oz_encode_state state;
    enum oz_status status = OZ_OK;
    oz_encode_state_init(&state);
    state.exponent_rule = b->scheme->exponent_rule;
    for (; state.pass < w->codec->observe_passes && status == OZ_OK; state.pass++) {
        status = w->codec->observe(w, 0, values, w->rows, w->cols, &state);
    }
    if (status == OZ_OK && w->codec->observe_passes > 0) {
        w->codec->begin(w, 0, &state);
    }
    if (status == OZ_OK) {
        status = w->codec->encode(w, 0, 0, values, w->rows, w->cols, &state);
    }
    return status == OZ_OK ? OZ_OK
                           : OZ_FAIL(err, status, "%s: a band of it cannot be encoded as %s.",
                                     b->layer->name, w->codec->name);
}

/* values [rows, cols] of the file; line [cols] is scratch. */
static void add_errors(const struct oz_weight *w, struct band *b, const float *values, float *line)
{
    for (int64_t r = 0; r < w->rows; r++) {
        w->codec->decode(w, 0, r, 0, w->cols, line);
        for (int64_t i = 0; i < w->cols; i++) {
            double was = values[r * w->cols + i], lost = line[i] - was;
            b->error2 += lost * lost;
            b->reference2 += was * was;
        }
    }
    b->elements = w->rows * w->cols;
}

static enum oz_status measure(const struct oz_component *c, struct band *b, struct oz_error *err)
{
    int64_t row0, rows, cols = b->layer->shape[1];
    choose(b, &row0, &rows);
    struct oz_weight w = oz_weight_shape(b->scheme->codec, 1, rows, cols);
    int64_t line_bytes;
    if (!oz_dtype_bytes(b->tensor->dtype, cols, &line_bytes)) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL, "%s: its rows are too long.", b->layer->name);
    }
    void *raw = oz_alloc((size_t)(rows * line_bytes));
    float *values = oz_alloc((size_t)((rows + 1) * cols) * sizeof *values);
    enum oz_status status =
        raw != NULL && values != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a band of a weight");
    if (status == OZ_OK) {
        status = alloc_planes(&w, err);
    }
    if (status == OZ_OK) {
        status = oz_ckpt_read(c->ckpt, b->tensor, (b->layer->file_row + row0) * line_bytes,
                              rows * line_bytes, raw, err);
    }
    if (status == OZ_OK) {
        const struct oz_weight stored = oz_weight_plain(b->tensor->dtype, 1, rows, cols, raw);
        for (int64_t r = 0; r < rows; r++) {
            stored.codec->decode(&stored, 0, r, 0, cols, values + r * cols);
        }
        status = encode(&w, b, values, err);
    }
    if (status == OZ_OK) {
        add_errors(&w, b, values, values + rows * cols);
    }
    for (int32_t i = 0; i < OZ_PLANE_COUNT; i++) {
        oz_free(w.planes[i].data);
    }
    oz_free(values);
    oz_free(raw);
    return status;
}

static void work(void *ctx, int64_t begin, int64_t end, int32_t thread)
{
    const struct job *job = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        struct band *b = &job->bands[i];
        b->status = b->tensor != NULL ? measure(job->c, b, &b->err) : OZ_OK;
    }
}

/* ---- all of them ---- */

static void list(struct job *job)
{
    const struct oz_component *c = job->c;
    for (int32_t row = 0; row < c->table.count; row++) {
        const struct oz_scheme *scheme = &c->assignment.choices[row].scheme;
        if (scheme->codec == NULL) {
            continue;
        }
        struct band *b = &job->bands[job->count++];
        *b = (struct band){.layer = &c->table.rows[row], .scheme = scheme};
        for (int64_t i = 0; i < c->report.count && scheme->codec->encode != NULL; i++) {
            const struct oz_load_entry *e = &c->report.entries[i];
            if (e->row == row && e->fate == OZ_FATE_ENCODED && is_plain(b->layer, e->tensor)) {
                b->tensor = e->tensor;
            }
        }
    }
}

enum oz_status oz_role_errors_measure(struct oz_role_errors *out, const struct oz_component *c,
                                      struct oz_pool *pool, struct oz_error *err)
{
    struct job job = {.c = c};
    *out = (struct oz_role_errors){0};
    job.bands = oz_alloc_zero((size_t)c->table.count + 1, sizeof *job.bands);
    if (job.bands == NULL) {
        return OZ_FAIL_NOMEM(err, "the errors of layers");
    }
    list(&job);
    oz_pool_for(pool, job.count, 1, work, &job);
    enum oz_status status = OZ_OK;
    for (int64_t i = 0; i < job.count && status == OZ_OK; i++) {
        const struct band *b = &job.bands[i];
        struct oz_role_error *role = &out->roles[b->layer->role];
        out->quantized++;
        status = b->status;
        if (status != OZ_OK && err != NULL) {
            *err = b->err;
        }
        if (b->tensor != NULL) {
            out->measured++;
            role->layers++;
            role->elements += b->elements;
            role->error2 += b->error2;
            role->reference2 += b->reference2;
        }
    }
    oz_free(job.bands);
    return status;
}

double oz_role_errors_relative(const struct oz_role_error *role)
{
    return role->reference2 > 0 ? sqrt(role->error2 / role->reference2) : (double)NAN;
}

/* ---- in a document ---- */

void oz_role_errors_json(const struct oz_role_errors *e, struct oz_buf *b)
{
    const char *comma = "";
    oz_buf_printf(b, "{\"quantized\": %d, \"measured\": %d, \"roles\": [", e->quantized,
                  e->measured);
    for (int i = 0; i < OZ_ROLE_COUNT; i++) {
        const struct oz_role_error *r = &e->roles[i];
        if (r->layers == 0) {
            continue;
        }
        oz_buf_printf(b, "%s\n     {\"role\": \"%s\", \"layers\": %d, \"elements\": %" PRId64 ", ",
                      comma, oz_role_name((enum oz_role)i), r->layers, r->elements);
        oz_study_json_number(b, "relative_l2", oz_role_errors_relative(r));
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "error_squares", r->error2);
        oz_buf_puts(b, ", ");
        oz_study_json_number(b, "reference_squares", r->reference2);
        oz_buf_puts(b, "}");
        comma = ",";
    }
    oz_buf_puts(b, "]}");
}

void oz_role_errors_read(struct oz_role_errors *e, const struct oz_json *v)
{
    const struct oz_json *roles = oz_json_get(v, "roles");
    *e = (struct oz_role_errors){
        .quantized = (int32_t)oz_json_integer(oz_json_get(v, "quantized"), 0),
        .measured = (int32_t)oz_json_integer(oz_json_get(v, "measured"), 0)};
    for (size_t k = 0; k < oz_json_count(roles); k++) {
        const struct oz_json *r = oz_json_at(roles, k);
        const char *name = oz_json_string(oz_json_get(r, "role"), "");
        for (int i = 0; i < OZ_ROLE_COUNT; i++) {
            if (strcmp(name, oz_role_name((enum oz_role)i)) == 0) {
                e->roles[i] = (struct oz_role_error){
                    .layers = (int32_t)oz_json_integer(oz_json_get(r, "layers"), 0),
                    .elements = oz_json_integer(oz_json_get(r, "elements"), 0),
                    .error2 = oz_json_number(oz_json_get(r, "error_squares"), 0),
                    .reference2 = oz_json_number(oz_json_get(r, "reference_squares"), 0)};
            }
        }
    }
}
