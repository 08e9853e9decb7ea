#include <inttypes.h>
#include <string.h>

#include "api/engine.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "pipe/find.h"

#define MAX_TEXT_BYTES ((size_t)512 << 20)

static const char *const kind_names[] = {
    [OZ_LAYER_LINEAR] = "linear", [OZ_LAYER_EXPERTS] = "experts", [OZ_LAYER_EMBED] = "embed",
    [OZ_LAYER_CONV] = "conv",     [OZ_LAYER_NORM] = "norm",       [OZ_LAYER_VECTOR] = "vector",
};

/* Sums over the tensors of a component. */
struct sums {
    int64_t tensors, elements, bytes;
};

static void add(struct sums *s, const struct oz_tensor_view *t)
{
    s->tensors++;
    s->elements += t->elements;
    s->bytes += t->bytes;
}

static void print_bytes(struct oz_buf *b, int64_t bytes)
{
    if (bytes < (INT64_C(1) << 20)) {
        oz_buf_printf(b, "%.1f KiB", (double)bytes / 1024);
    } else if (bytes < (INT64_C(1) << 30)) {
        oz_buf_printf(b, "%.1f MiB", (double)bytes / (1024 * 1024));
    } else {
        oz_buf_printf(b, "%.2f GiB", (double)bytes / (1024.0 * 1024 * 1024));
    }
}

static void print_shape(struct oz_buf *b, const struct oz_tensor_view *t)
{
    oz_buf_puts(b, "[");
    for (int32_t i = 0; i < t->rank; i++) {
        oz_buf_printf(b, "%s%" PRId64, i > 0 ? "," : "", t->shape[i]);
    }
    oz_buf_puts(b, "]");
}

/* Who takes a tensor: its row, the rule that ignores it, or nobody. */
struct consumer {
    const struct oz_layer *row;
    const struct oz_ignore *rule;
    bool fits; /* its shape is what the row asks for */
};

static struct consumer consumer_of(const struct oz_match *m, int64_t index)
{
    int32_t row = m->tensor_row[index];
    struct consumer c = {.row = row >= 0 ? &m->table->rows[row] : NULL,
                         .rule = m->tensor_rule[index]};
    c.fits = c.row == NULL || oz_match_stored(m, m->tensor_row[index]) != NULL ||
             oz_match_shape_ok(c.row, oz_ckpt_tensor(m->ckpt, index));
    return c;
}

/* ---- for people ---- */

static void print_tensor(struct oz_buf *b, const struct oz_match *m, int64_t index)
{
    const struct oz_tensor_view *t = oz_ckpt_tensor(m->ckpt, index);
    struct consumer c = consumer_of(m, index);
    oz_buf_printf(b, "  %-60s %-5s ", t->name, oz_dtype_name(t->dtype));
    print_shape(b, t);
    oz_buf_printf(b, " %" PRId64 " bytes: ", t->bytes);
    if (c.row != NULL) {
        oz_buf_printf(b, "%s, role %s%s", kind_names[c.row->kind], oz_role_name(c.row->role),
                      c.fits ? "" : ", WRONG SHAPE");
        if (c.row->fused != NULL) {
            oz_buf_printf(b, ", part %d of %s", c.row->fused_index, c.row->fused);
        }
    } else if (c.rule != NULL) {
        oz_buf_printf(b, "ignored: %s (%s)", c.rule->name, c.rule->reason);
    } else {
        oz_buf_puts(b, "UNEXPECTED: nothing consumes it");
    }
    oz_buf_puts(b, "\n");
}

/* Has a rule before this one its name? */
static bool named_before(const struct oz_layer_table *t, int32_t rule)
{
    for (int32_t i = 0; i < rule; i++) {
        if (strcmp(t->ignores[i].name, t->ignores[rule].name) == 0) {
            return true;
        }
    }
    return false;
}

/* Consumed tensors by role, and ignored ones by rule. */
static void print_consumers(struct oz_buf *b, const struct oz_match *m)
{
    struct sums roles[OZ_ROLE_COUNT] = {0};
    for (int64_t i = 0; i < oz_ckpt_count(m->ckpt); i++) {
        struct consumer c = consumer_of(m, i);
        if (c.row != NULL) {
            add(&roles[c.row->role], oz_ckpt_tensor(m->ckpt, i));
        }
    }
    for (int i = 0; i < OZ_ROLE_COUNT; i++) {
        if (roles[i].tensors > 0) {
            oz_buf_printf(b, "  %-12s %5" PRId64 " tensors  %12" PRId64 " parameters  ",
                          oz_role_name((enum oz_role)i), roles[i].tensors, roles[i].elements);
            print_bytes(b, roles[i].bytes);
            oz_buf_puts(b, "\n");
        }
    }
    for (int32_t r = 0; r < m->table->ignore_count; r++) {
        const struct oz_ignore *rule = &m->table->ignores[r];
        struct sums s = {0};
        if (named_before(m->table, r)) {
            continue; /* several patterns of one rule are one line */
        }
        for (int64_t i = 0; i < oz_ckpt_count(m->ckpt); i++) {
            if (m->tensor_rule[i] != NULL && strcmp(m->tensor_rule[i]->name, rule->name) == 0) {
                add(&s, oz_ckpt_tensor(m->ckpt, i));
            }
        }
        if (s.tensors > 0) {
            oz_buf_printf(b, "  ignored by rule \"%s\" (%s): %" PRId64 " tensors, ", rule->name,
                          rule->reason, s.tensors);
            print_bytes(b, s.bytes);
            oz_buf_puts(b, "\n");
        }
    }
}

/* Layers that the file holds quantized, by scheme. */
static void print_stored(struct oz_buf *b, const struct oz_component *c)
{
    for (int32_t i = 0; c->stored.count > 0 && i < c->table.count; i++) {
        const struct oz_scheme *s = &c->stored.schemes[i];
        int32_t layers = 0;
        bool first = s->codec != NULL && s->mode_count > 0; /* else a vector in another order */
        for (int32_t k = 0; first && k < c->table.count; k++) {
            bool same = oz_scheme_equal(s, &c->stored.schemes[k]);
            first = !same || k >= i;
            layers += same;
        }
        if (first) {
            oz_buf_printf(b, "  quantized by %s: %d linear layers as %s, activations %s\n",
                          c->stored.method, (int)layers, s->name, oz_act_mode_name(s->acts[0]));
        }
    }
    for (int32_t i = 0; i < c->stored.note_count; i++) {
        oz_buf_printf(b, "    %s\n", c->stored.notes[i]);
    }
}

static void print_component(struct oz_buf *b, const struct oz_component *c, bool tensors)
{
    struct sums all = {0};
    for (int64_t i = 0; i < oz_ckpt_count(c->ckpt); i++) {
        add(&all, oz_ckpt_tensor(c->ckpt, i));
    }
    oz_buf_printf(b, "\n%s (%s): %" PRId64 " tensors, %" PRId64 " parameters, ", c->name,
                  c->class_name, all.tensors, all.elements);
    print_bytes(b, all.bytes);
    int32_t files = oz_ckpt_file_count(c->ckpt);
    oz_buf_printf(b, ", %d file%s\n", files, files == 1 ? "" : "s");
    print_consumers(b, c->match);
    print_stored(b, c);
    for (int32_t i = 0; i < oz_ckpt_stray_count(c->ckpt); i++) {
        oz_buf_printf(b, "  not part of the model, not read: %s\n", oz_ckpt_stray(c->ckpt, i));
    }
    for (int64_t i = 0; i < oz_ckpt_count(c->ckpt) && tensors; i++) {
        print_tensor(b, c->match, i);
    }
}

static void print_text(struct oz_buf *b, const struct oz_pipeline *p, bool tensors)
{
    const struct oz_pipeline_defaults *d = &p->defaults;
    oz_buf_printf(b, "%s: %s in %s\n", p->name, p->class_name, p->path);
    oz_buf_printf(b, "defaults: %dx%d, %d steps, true CFG scale ", d->width, d->height,
                  d->num_inference_steps);
    oz_buf_number(b, d->true_cfg_scale);
    oz_buf_puts(b, ", negative prompt ");
    oz_buf_json(b, d->negative_prompt);
    oz_buf_printf(b, "; sizes are multiples of %d\n", oz_pipeline_size_multiple(p));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        print_component(b, &p->components[i], tensors);
    }
}

/* ---- for programs ---- */

static void json_tensor(struct oz_buf *b, const struct oz_match *m, int64_t index)
{
    const struct oz_tensor_view *t = oz_ckpt_tensor(m->ckpt, index);
    struct consumer c = consumer_of(m, index);
    oz_buf_puts(b, "{\"name\":");
    oz_buf_json(b, t->name);
    oz_buf_printf(b, ",\"dtype\":\"%s\",\"shape\":", oz_dtype_name(t->dtype));
    print_shape(b, t);
    oz_buf_printf(b, ",\"bytes\":%" PRId64 ",\"file\":", t->bytes);
    oz_buf_json(b, oz_ckpt_file(m->ckpt, t->file)->path);
    if (c.row != NULL) {
        oz_buf_printf(b, ",\"consumer\":{\"kind\":\"%s\",\"role\":\"%s\",\"module\":",
                      kind_names[c.row->kind], oz_role_name(c.row->role));
        oz_buf_json(b, c.row->module);
        oz_buf_puts(b, c.fits ? ",\"fits\":true}" : ",\"fits\":false}");
    } else if (c.rule != NULL) {
        oz_buf_puts(b, ",\"ignored_by\":");
        oz_buf_json(b, c.rule->name);
    } else {
        oz_buf_puts(b, ",\"consumer\":null");
    }
    oz_buf_puts(b, "}");
}

static void json_component(struct oz_buf *b, const struct oz_component *c, bool tensors)
{
    struct sums all = {0};
    int64_t consumed = 0;
    int64_t ignored = 0;
    for (int64_t i = 0; i < oz_ckpt_count(c->ckpt); i++) {
        add(&all, oz_ckpt_tensor(c->ckpt, i));
        consumed += c->match->tensor_row[i] >= 0;
        ignored += c->match->tensor_rule[i] != NULL;
    }
    oz_buf_printf(b, "{\"name\":\"%s\",\"class\":\"%s\",\"tensors\":%" PRId64, c->name,
                  c->class_name, all.tensors);
    oz_buf_printf(b, ",\"parameters\":%" PRId64 ",\"bytes\":%" PRId64, all.elements, all.bytes);
    oz_buf_printf(b, ",\"consumed\":%" PRId64 ",\"ignored\":%" PRId64 ",\"stray_files\":[",
                  consumed, ignored);
    for (int32_t i = 0; i < oz_ckpt_stray_count(c->ckpt); i++) {
        oz_buf_puts(b, i > 0 ? "," : "");
        oz_buf_json(b, oz_ckpt_stray(c->ckpt, i));
    }
    oz_buf_puts(b, "],\"quantization\":");
    if (c->stored.method != NULL) {
        oz_buf_printf(b, "{\"method\":\"%s\",\"layers\":%d,\"evidence\":[", c->stored.method,
                      (int)c->stored.count);
        for (int32_t i = 0; i < c->stored.note_count; i++) {
            oz_buf_puts(b, i > 0 ? "," : "");
            oz_buf_json(b, c->stored.notes[i]);
        }
        oz_buf_puts(b, "]}");
    } else {
        oz_buf_puts(b, "null");
    }
    if (tensors) {
        oz_buf_puts(b, ",\"tensor_list\":[");
        for (int64_t i = 0; i < oz_ckpt_count(c->ckpt); i++) {
            oz_buf_puts(b, i > 0 ? ",\n" : "\n");
            json_tensor(b, c->match, i);
        }
        oz_buf_puts(b, "]");
    }
    oz_buf_puts(b, "}");
}

static void print_json(struct oz_buf *b, const struct oz_pipeline *p, bool tensors,
                       const char *problem)
{
    const struct oz_pipeline_defaults *d = &p->defaults;
    oz_buf_puts(b, "{\"name\":");
    oz_buf_json(b, p->name);
    oz_buf_puts(b, ",\"path\":");
    oz_buf_json(b, p->path);
    oz_buf_printf(b, ",\"pipeline\":\"%s\",\"defaults\":{\"width\":%d,\"height\":%d,",
                  p->class_name, d->width, d->height);
    oz_buf_printf(b, "\"num_inference_steps\":%d,\"true_cfg_scale\":", d->num_inference_steps);
    oz_buf_number(b, d->true_cfg_scale);
    oz_buf_puts(b, ",\"negative_prompt\":");
    oz_buf_json(b, d->negative_prompt);
    oz_buf_puts(b, "},\"components\":[");
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        oz_buf_puts(b, i > 0 ? ",\n" : "\n");
        json_component(b, &p->components[i], tensors);
    }
    oz_buf_puts(b, "],\"problem\":");
    if (problem != NULL) {
        oz_buf_json(b, problem);
    } else {
        oz_buf_puts(b, "null");
    }
    oz_buf_puts(b, "}\n");
}

void oz_api_replace_controls(struct oz_buf *b)
{
    for (size_t i = 0; i < b->bytes; i++) {
        unsigned char c = (unsigned char)b->data[i];
        if ((c < 0x20 && c != '\n') || c == 0x7F) {
            b->data[i] = '?';
        }
    }
}

enum oz_status oz_model_inspect(const char *model, const struct oz_inspect_options *options,
                                oz_write_fn write, void *ctx, struct oz_error *err)
{
    struct oz_inspect_options o = {0};
    struct oz_pipeline *p = NULL;
    struct oz_error problem;
    char *path;
    struct oz_buf b;
    if (options != NULL) {
        OZ_TRY(oz_api_copy_options(&o, sizeof o, options, "inspect options", err));
    }
    OZ_TRY(oz_api_check_header_limit(o.max_header_bytes, err));
    OZ_TRY(oz_model_find(model, &path, err));
    const struct oz_pipeline_options how = {.max_header_bytes = o.max_header_bytes,
                                            .transformer = o.transformer};
    enum oz_status status = oz_pipeline_open(&p, path, &how, err);
    oz_free(path);
    OZ_TRY(status);
    oz_buf_init(&b, MAX_TEXT_BYTES);
    status = oz_pipeline_check(p, &problem);
    if (o.json) {
        print_json(&b, p, o.tensors != 0, status != OZ_OK ? problem.message : NULL);
    } else {
        print_text(&b, p, o.tensors != 0);
        oz_api_replace_controls(&b);
    }
    if (status != OZ_OK) {
        (void)OZ_FAIL(err, status, "%s", problem.message);
    }
    if (b.status != OZ_OK) {
        status = OZ_FAIL(err, b.status, "The description of %s is too large.", p->path);
    } else if (write(ctx, b.data, b.bytes) != 0) {
        status = OZ_FAIL(err, OZ_ERR_IO, "The description could not be written.");
    }
    oz_buf_deinit(&b);
    oz_pipeline_close(&p);
    return status;
}
