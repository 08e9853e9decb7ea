/*
 * decode_dump MODEL CONFIG FOLDER: quantizes a plain model while loading, as CONFIG (JSON) says, and
 * writes what its quantized weights decode to: FOLDER/<component>.safetensors, a tensor in f32 under each
 * weight's name. For tools/golden/open_written.py, which compares them with what a maker's library makes
 * of the same model written by `ounce quantize`.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/pool.h"
#include "ckpt/writer.h"
#include "cpu/kernel.h"
#include "dev/backends.h"
#include "pipe/quantize.h"

static enum oz_status dump_rows(const struct oz_component *c, struct oz_ckpt_writer *w,
                                const int32_t *rows, struct oz_error *err)
{
    for (int32_t i = oz_ckpt_writer_next(w); i >= 0; i = oz_ckpt_writer_next(w)) {
        const struct oz_weight *weight = &c->table.rows[rows[i]].bind->weight;
        float *line = oz_alloc((size_t)weight->cols * sizeof *line);
        if (line == NULL) {
            return OZ_FAIL_NOMEM(err, "a row");
        }
        enum oz_status status = OZ_OK;
        for (int64_t r = 0; r < weight->rows && status == OZ_OK; r++) {
            weight->codec->decode(weight, 0, r, 0, weight->cols, line);
            status = oz_ckpt_writer_put(w, line, (size_t)weight->cols * sizeof *line, err);
        }
        oz_free(line);
        OZ_TRY(status);
    }
    return oz_ckpt_writer_finish(w, err);
}

static enum oz_status dump(const struct oz_component *c, const char *folder, struct oz_error *err)
{
    size_t most = (size_t)c->table.count;
    struct oz_ckpt_spec *specs = oz_alloc_zero(most, sizeof *specs);
    int32_t *rows = oz_alloc_zero(most, sizeof *rows);
    struct oz_ckpt_writer *w = NULL;
    int32_t count = 0;
    enum oz_status status = specs != NULL && rows != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, c->name);
    for (int32_t i = 0; status == OZ_OK && i < c->table.count; i++) {
        const struct oz_layer *row = &c->table.rows[i];
        if (c->assignment.choices[i].scheme.codec != NULL) {
            specs[count] = (struct oz_ckpt_spec){.name = row->name,
                                                 .dtype = OZ_DTYPE_F32,
                                                 .rank = 2,
                                                 .shape = {row->shape[0], row->shape[1]}};
            rows[count++] = i;
        }
    }
    if (status == OZ_OK && count > 0) {
        const struct oz_ckpt_writer_options o = {.folder = folder, .stem = c->name};
        status = oz_ckpt_writer_create(&w, &o, specs, count, err);
        if (status == OZ_OK) {
            status = dump_rows(c, w, rows, err);
        }
    }
    oz_ckpt_writer_destroy(&w);
    oz_free(rows);
    oz_free(specs);
    return status;
}

struct parts {
    struct oz_pool *pool;
    struct oz_device *dev;
    struct oz_pipeline *pipeline;
    struct oz_request *request;
};

static enum oz_status run(struct parts *p, char **argv, struct oz_error *err)
{
    const struct oz_request_text text = {.config = argv[2]};
    OZ_TRY(oz_pool_create(&p->pool, 0, err));
    OZ_TRY(oz_cpu_open(&p->dev, 0, p->pool, "scalar", NULL, err)); /* its operators read planes */
    OZ_TRY(oz_request_create(&p->request, &text, err));
    OZ_TRY(oz_pipeline_open(&p->pipeline, argv[1], NULL, err));
    OZ_TRY(oz_pipeline_assign(p->pipeline, p->dev, p->request, OZ_KEEP_STANDARD, false, err));
    OZ_TRY(oz_pipeline_load(p->pipeline, p->dev, NULL, NULL, err));
    OZ_TRY(oz_file_make_folder(argv[3], err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        OZ_TRY(dump(&p->pipeline->components[i], argv[3], err));
    }
    return OZ_OK;
}

int main(int argc, char **argv)
{
    struct oz_error err;
    struct parts p = {0};
    if (argc != 4) {
        (void)fprintf(stderr, "usage: decode_dump MODEL CONFIG FOLDER\n");
        return 2;
    }
    enum oz_status status = run(&p, argv, &err);
    if (status != OZ_OK) {
        (void)fprintf(stderr, "decode_dump: %s\n", err.message);
    }
    oz_request_destroy(&p.request);
    oz_pipeline_close(&p.pipeline);
    oz_device_close(&p.dev);
    oz_pool_destroy(&p.pool);
    return status == OZ_OK ? 0 : 1;
}
