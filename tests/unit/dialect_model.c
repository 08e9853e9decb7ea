#include "dialect_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/pool.h"
#include "cpu/kernel.h"
#include "num/plane.h"
#include "ops/param.h"

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* What models say of such layers: their roles, and that q, k and v may be one layer in the file. */
static void describe(struct oz_layer *row, struct oz_layer_table *t, const char *name)
{
    static const char *const fused[] = {"attn.to_q.", "attn.to_k.", "attn.to_v."};
    row->role = has(name, "_mod.1.")      ? OZ_ROLE_MODULATION
                : has(name, "mlp.net.2.") ? OZ_ROLE_MLP_DOWN
                                          : OZ_ROLE_OTHER;
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(name, fused[i]);
        if (at != NULL) {
            row->fused = oz_layer_string(t, "%.*sattn.to_qkv", (int)(at - name), name);
            row->fused_index = i;
        }
    }
}

static enum oz_status build_table(struct dialect_model *m, struct oz_error *err)
{
    OZ_TRY(oz_arena_init_host(&m->host, "table", 1 << 20, err));
    OZ_TRY(oz_layer_table_init(&m->table, &m->host, "test", DIALECT_MAX_ROWS, 0));
    for (int64_t i = 0; i < oz_ckpt_count(m->expected) && i < DIALECT_MAX_ROWS; i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(m->expected, i);
        struct oz_layer row = {.kind = t->rank == 1   ? OZ_LAYER_VECTOR
                                       : t->rank == 2 ? OZ_LAYER_LINEAR
                                                      : OZ_LAYER_EXPERTS,
                               .rank = t->rank,
                               .bind = &m->params[i]};
        memcpy(row.shape, t->shape, (size_t)t->rank * sizeof *t->shape);
        describe(&row, &m->table, t->name);
        oz_layer_add(&m->table, &row, "%s", t->name);
    }
    OZ_TRY(oz_layer_table_finish(&m->table, err));
    oz_params_describe(&m->table);
    return OZ_OK;
}

static enum oz_status read_stored(struct dialect_model *m, const char *weights,
                                  struct oz_error *err)
{
    bool folder = oz_file_is_folder(weights);
    char path[4096];
    struct oz_json *config = NULL;
    (void)snprintf(path, sizeof path, "%s/config.json", weights);
    if (folder && oz_file_exists(path)) {
        OZ_TRY(oz_json_parse_file(&config, path, 1 << 20, err));
    }
    const struct oz_stored_input in = {.config = config,
                                       .path = config != NULL ? path : weights,
                                       .folder = folder ? weights : NULL,
                                       .ckpt = m->ckpt,
                                       .table = &m->table,
                                       .arena = &m->stored_memory};
    enum oz_status status =
        oz_arena_init_host(&m->stored_memory, "stored", oz_stored_bytes(&m->table), err);
    status = status == OZ_OK ? oz_stored_read(&m->stored, &in, err) : status;
    oz_json_free(config);
    return status;
}

enum oz_status dialect_expect(struct dialect_model *m, const char *expected, struct oz_error *err)
{
    memset(m, 0, sizeof *m);
    OZ_TRY(oz_ckpt_open(&m->expected, expected, NULL, err));
    return build_table(m, err);
}

enum oz_status dialect_open_weights(struct dialect_model *m, const char *weights,
                                    struct oz_error *err)
{
    static const char *const stems[] = {"model", NULL};
    OZ_TRY(oz_ckpt_open(&m->ckpt, weights, stems, err));
    OZ_TRY(oz_stored_prepare(m->ckpt, &m->table, err));
    OZ_TRY(read_stored(m, weights, err));
    OZ_TRY(oz_match_create(&m->match, m->ckpt, &m->table, &m->stored, err));
    return oz_match_check(m->match, weights, err);
}

enum oz_status dialect_open(struct dialect_model *m, const char *weights, const char *expected,
                            struct oz_error *err)
{
    OZ_TRY(dialect_expect(m, expected, err));
    return dialect_open_weights(m, weights, err);
}

enum oz_status dialect_open_device(struct dialect_model *m, struct oz_error *err)
{
    OZ_TRY(oz_pool_create(&m->pool, 1, err));
    return oz_cpu_open(&m->dev, 0, m->pool, "scalar", NULL, err);
}

enum oz_status dialect_load(struct dialect_model *m, struct oz_error *err)
{
    struct oz_load_schedule schedule = {0};
    struct oz_load_args args = {.match = m->match, .schedule = &schedule};
    struct oz_arena measure;
    if (m->dev == NULL) {
        OZ_TRY(dialect_open_device(m, err));
    }
    oz_arena_init_measure(&measure, "model");
    args.dev = m->dev;
    args.model = &measure;
    enum oz_status status = oz_load_component(&args, err);
    m->staging_bytes = schedule.staging_bytes;
    oz_load_schedule_deinit(&schedule);
    OZ_TRY(status);
    OZ_TRY(oz_arena_init_host(&m->model, "model", measure.used_bytes, err));
    args.model = &m->model;
    args.schedule = NULL;
    return oz_load_component(&args, err);
}

void dialect_close_weights(struct dialect_model *m)
{
    oz_match_destroy(&m->match);
    oz_arena_deinit(&m->model);
    oz_arena_deinit(&m->stored_memory);
    oz_ckpt_close(&m->ckpt);
    m->stored = (struct oz_stored){0};
    memset(m->params, 0, sizeof m->params);
    oz_params_describe(&m->table);
}

void dialect_close(struct dialect_model *m)
{
    oz_match_destroy(&m->match);
    oz_arena_deinit(&m->model);
    oz_arena_deinit(&m->stored_memory);
    oz_arena_deinit(&m->host);
    oz_ckpt_close(&m->ckpt);
    oz_ckpt_close(&m->expected);
    oz_device_close(&m->dev);
    oz_pool_destroy(&m->pool);
}

/* How far apart, in units of the last place of the dtype. */
static double units(float got, float want, enum oz_dtype dtype)
{
    int exponent;
    int bits = dtype == OZ_DTYPE_F32 ? 24 : dtype == OZ_DTYPE_F16 ? 11 : 8;
    if (got == want) {
        return 0;
    }
    if (!isfinite(got) || !isfinite(want)) {
        return INFINITY;
    }
    (void)frexp(fmax(fabs((double)want), 1e-30), &exponent);
    return fabs((double)got - (double)want) / ldexp(1, exponent - bits);
}

/* Where units are allowed, sums were made in f32: what cancels in them leaves an error of the size of
 * the row's largest number. */
#define CANCELLED 0x1p-20

static double compare_row(const struct oz_weight *w, const struct oz_tensor_view *t, int64_t slice,
                          int64_t row, bool sums)
{
    double worst = 0;
    double largest = 0;
    for (int64_t c = 0; c < w->cols && sums; c++) {
        float want;
        oz_plane_read(t->dtype, t->data, (slice * w->rows + row) * w->cols + c, 1, &want);
        largest = fmax(largest, fabs((double)want));
    }
    float *line = malloc((size_t)(w->cols + 1) * sizeof *line);
    w->codec->decode(w, slice, row, 0, w->cols, line);
    for (int64_t c = 0; c < w->cols; c++) {
        float want;
        oz_plane_read(t->dtype, t->data, (slice * w->rows + row) * w->cols + c, 1, &want);
        if (!(fabs((double)line[c] - (double)want) <= largest * CANCELLED)) {
            worst = fmax(worst, units(line[c], want, t->dtype));
        }
    }
    free(line);
    return worst;
}

const char *dialect_compare(const struct dialect_model *m, double *worst)
{
    const char *text = oz_ckpt_metadata(m->expected, "units");
    double allowed = text != NULL ? strtod(text, NULL) : 0;
    double most = 0;
    const char *first = NULL;
    for (int64_t i = 0; i < oz_ckpt_count(m->expected); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(m->expected, i);
        const struct oz_layer *row = oz_layer_find(&m->table, t->name);
        const struct oz_weight *w = &row->bind->weight;
        double own = w->codec == NULL ? INFINITY : 0;
        for (int64_t s = 0; w->codec != NULL && s < w->slices; s++) {
            for (int64_t r = 0; r < w->rows; r++) {
                own = fmax(own, compare_row(w, t, s, r, allowed > 0));
            }
        }
        first = first == NULL && !(own <= allowed) ? t->name : first;
        most = fmax(most, own);
    }
    if (worst != NULL) {
        *worst = most;
    }
    return first;
}
