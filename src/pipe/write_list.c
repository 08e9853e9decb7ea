#include "pipe/write_list.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "pipe/write_journal.h"
#include "quant/dialect/dialect.h"

bool oz_write_is_encoded(const struct oz_component *c, int32_t row)
{
    const struct oz_choice *choice = &c->assignment.choices[row];
    return choice->scheme.codec != NULL && choice->source != OZ_SOURCE_CHECKPOINT;
}

bool oz_write_is_expanded(const struct oz_component *c, int32_t row)
{
    return c->converted && c->assignment.choices[row].scheme.codec == NULL &&
           oz_match_stored(c->match, row) != NULL;
}

static bool is_plain(const struct oz_tensor_view *t)
{
    return t->codec == NULL && oz_codec_plain(t->dtype) != NULL;
}

bool oz_write_is_dropped(const struct oz_component *c, int64_t tensor)
{
    const struct oz_tensor_view *t = oz_ckpt_tensor(c->ckpt, tensor);
    if (!c->converted || c->match->tensor_row[tensor] >= 0) {
        return false;
    }
    for (int64_t i = 0; i < oz_ckpt_count(c->ckpt); i++) { /* codes, and what is named after them */
        const struct oz_tensor_view *codes = oz_ckpt_tensor(c->ckpt, i);
        if (c->match->tensor_row[i] < 0 && !is_plain(codes) &&
            strncmp(t->name, codes->name, strlen(codes->name)) == 0) {
            return true;
        }
    }
    return false;
}

bool oz_write_is_merged(const struct oz_component *c, int32_t row)
{
    return !oz_write_is_encoded(c, row) && oz_lora_rank(c->lora, row) > 0;
}

enum oz_dtype oz_write_dtype(const struct oz_component *c, int64_t tensor)
{
    const struct oz_tensor_view *t = tensor >= 0 ? oz_ckpt_tensor(c->ckpt, tensor) : NULL;
    return t == NULL ? OZ_DTYPE_F32 : is_plain(t) ? t->dtype : OZ_DTYPE_BF16;
}

/* ---- the list ---- */

static void add_spec(struct oz_write_list *l, const struct oz_ckpt_spec *spec,
                     const struct oz_tensor_view *copy)
{
    l->copies[l->spec_count] = copy;
    l->specs[l->spec_count++] = *spec;
}

static struct oz_write_row *add_row(struct oz_write_list *l, int32_t row, int64_t tensor)
{
    struct oz_write_row *m = &l->rows[l->row_count++];
    *m = (struct oz_write_row){.row = row, .tensor = tensor, .first_spec = l->spec_count};
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        m->to.index[i] = -1;
    }
    return m;
}

static enum oz_status add_tensor(struct oz_write_list *l, const struct oz_layer *layer,
                                 const struct oz_dialect_tensor *t, struct oz_error *err)
{
    struct oz_sink_weight *w = &l->rows[l->row_count - 1].to;
    struct oz_write_fixed *f = &l->fixed[l->spec_count];
    struct oz_ckpt_spec spec = {.dtype = t->dtype, .rank = t->rank};
    struct oz_buf name;
    memcpy(spec.shape, t->shape, sizeof t->shape);
    oz_buf_init(&name, 2 * (size_t)OZ_CKPT_MAX_NAME_BYTES);
    oz_buf_printf(&name, "%s.%s", layer->module, t->suffix);
    spec.name = l->names[l->spec_count] = oz_buf_take(&name);
    if (t->fixed == t->text) {
        f->text = oz_strdup(t->text);
    }
    f->data = f->text != NULL ? f->text : t->fixed;
    if (spec.name == NULL || (t->fixed == t->text && f->text == NULL)) {
        return OZ_FAIL_NOMEM(err, layer->name);
    }
    if (t->plane != OZ_PLANE_COUNT) {
        w->index[t->plane] = l->spec_count;
        w->moves[t->plane] = t->move;
        w->number_at = t->move == OZ_MOVE_NUMBER ? t->number_at : w->number_at;
    }
    add_spec(l, &spec, NULL);
    l->rows[l->row_count - 1].spec_count++;
    return OZ_OK;
}

static enum oz_status add_planes(struct oz_write_list *l, int32_t row, int64_t tensor,
                                 struct oz_error *err)
{
    struct oz_dialect_tensor tensors[OZ_DIALECT_TENSORS];
    int32_t count;
    const struct oz_layer *layer = &l->c->table.rows[row];
    (void)add_row(l, row, tensor);
    OZ_TRY(oz_dialect_layout(tensors, &count, &l->c->assignment.choices[row].scheme, layer,
                             oz_write_dtype(l->c, tensor), err));
    for (int32_t i = 0; i < count; i++) {
        OZ_TRY(add_tensor(l, layer, &tensors[i], err));
    }
    return OZ_OK;
}

/* A row's matrix as a plain tensor of its own. */
static void add_expanded(struct oz_write_list *l, int32_t row, int64_t tensor)
{
    const struct oz_layer *layer = &l->c->table.rows[row];
    struct oz_ckpt_spec spec = {.name = layer->name,
                                .dtype = l->c->stored.schemes[row].codec->planes[0].dtype,
                                .rank = layer->file_rank};
    memcpy(spec.shape, layer->file_shape, (size_t)layer->file_rank * sizeof *spec.shape);
    struct oz_write_row *made = add_row(l, row, tensor);
    made->to.index[OZ_PLANE_CODES] = l->spec_count;
    made->spec_count = 1;
    add_spec(l, &spec, NULL);
}

/* The row that a tensor with codes is written for; -1: it is another plane of one. Of tied rows the one
 * that has the name. */
static int32_t row_of_codes(const struct oz_match *m, int64_t tensor)
{
    int32_t row = 0;
    while (row < m->table->count && m->row_tensor[row] != tensor) {
        row++;
    }
    return row < m->table->count ? row : -1;
}

static enum oz_status list_tensor(struct oz_write_list *l, int64_t i, struct oz_error *err)
{
    const struct oz_match *m = l->c->match;
    const struct oz_tensor_view *t = oz_ckpt_tensor(m->ckpt, i);
    int32_t row = m->tensor_row[i];
    bool coded = row >= 0 && oz_match_stored(m, row) != NULL;
    if (oz_write_is_dropped(l->c, i)) {
        return OZ_OK;
    }
    row = coded ? row_of_codes(m, i) : row;
    if (coded && row < 0) {
        return OZ_OK; /* comes with the codes */
    }
    if (row >= 0 && oz_write_is_encoded(l->c, row)) {
        return add_planes(l, row, i, err);
    }
    if (row >= 0 && oz_write_is_expanded(l->c, row)) {
        add_expanded(l, row, i);
        return OZ_OK;
    }
    struct oz_ckpt_spec spec = {.name = t->name, .dtype = t->dtype, .rank = t->rank};
    memcpy(spec.shape, t->shape, sizeof spec.shape);
    bool merged = row >= 0 && oz_write_is_merged(l->c, row);
    if (merged) {
        struct oz_write_row *made = add_row(l, row, i);
        made->to.index[OZ_PLANE_CODES] = l->spec_count;
        made->spec_count = 1;
    }
    add_spec(l, &spec, merged ? NULL : t);
    return OZ_OK;
}

static enum oz_status list_tensors(struct oz_write_list *l, struct oz_error *err)
{
    for (int64_t i = 0; i < oz_ckpt_count(l->c->ckpt); i++) {
        OZ_TRY(list_tensor(l, i, err));
    }
    return OZ_OK;
}

static enum oz_status allocate(struct oz_write_list *l, struct oz_error *err)
{
    size_t rows = 0;
    for (int32_t i = 0; i < l->c->table.count; i++) {
        rows += oz_write_is_encoded(l->c, i) || oz_write_is_merged(l->c, i) ||
                oz_write_is_expanded(l->c, i);
    }
    size_t specs = (size_t)oz_ckpt_count(l->c->ckpt) + rows * (OZ_DIALECT_TENSORS - 1);
    l->specs = oz_alloc_zero(specs, sizeof *l->specs);
    l->copies = oz_alloc_zero(specs, sizeof *l->copies);
    l->names = oz_alloc_zero(specs, sizeof *l->names);
    l->fixed = oz_alloc_zero(specs, sizeof *l->fixed);
    l->rows = oz_alloc_zero(rows, sizeof *l->rows);
    bool memory = l->specs != NULL && l->copies != NULL && l->names != NULL && l->fixed != NULL &&
                  l->rows != NULL;
    return memory ? OZ_OK : OZ_FAIL_NOMEM(err, l->c->name);
}

enum oz_status oz_write_list_init(struct oz_write_list *l, const struct oz_component *c,
                                  struct oz_error *err)
{
    *l = (struct oz_write_list){.c = c};
    OZ_TRY(allocate(l, err));
    return list_tensors(l, err);
}

void oz_write_list_deinit(struct oz_write_list *l)
{
    for (int32_t i = 0; i < l->spec_count; i++) {
        oz_free(l->names[i]);
        oz_free(l->fixed[i].text);
    }
    oz_free(l->specs);
    oz_free((void *)l->copies);
    oz_free((void *)l->names);
    oz_free(l->fixed);
    oz_free(l->rows);
    *l = (struct oz_write_list){0};
}

/* ---- its hash ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return oz_write_hash(hash, text != NULL ? text : "", strlen(text != NULL ? text : "") + 1);
}

static uint64_t hash_number(uint64_t hash, int64_t x)
{
    return oz_write_hash(hash, &x, sizeof x);
}

static uint64_t hash_row(uint64_t h, const struct oz_write_list *l, const struct oz_write_row *r)
{
    const struct oz_component *c = l->c;
    const struct oz_scheme *s = &c->assignment.choices[r->row].scheme;
    const struct oz_layer *layer = &c->table.rows[r->row];
    h = hash_text(h, layer->name);
    h = hash_text(h, s->name);
    h = hash_text(h, s->codec != NULL ? s->codec->name : NULL);
    h = hash_number(h, s->exponent_rule);
    h = hash_number(h, s->scope);
    h = hash_text(h, s->scope == OZ_SCOPE_FUSED ? layer->fused : NULL);
    for (int32_t i = c->lora != NULL ? c->lora->first[r->row] : -1; i >= 0;
         i = c->lora->pairs[i].next) {
        const struct oz_lora_pair *p = &c->lora->pairs[i];
        h = hash_number(h, p->file);
        h = oz_write_hash(h, &p->factor, sizeof p->factor);
    }
    return h;
}

uint64_t oz_write_list_hash(const struct oz_write_list *l, uint64_t hash)
{
    for (int32_t i = 0; i < l->spec_count; i++) {
        const struct oz_ckpt_spec *s = &l->specs[i];
        hash = hash_text(hash, s->name);
        hash = hash_number(hash, s->dtype);
        hash = oz_write_hash(hash, s->shape, (size_t)s->rank * sizeof *s->shape);
        hash = hash_number(hash, l->copies[i] != NULL);
    }
    for (int32_t i = 0; i < l->row_count; i++) {
        hash = hash_row(hash, l, &l->rows[i]);
    }
    return hash;
}
