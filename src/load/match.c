#include "load/match.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/names.h"

#define MAX_LIST_BYTES (1U << 20)
#define SHOWN_BYTES 400 /* of a list, within the message */

/* The tensor of a row: its own name, else the one it is tied to. */
static int64_t find_tensor(const struct oz_ckpt *ckpt, const struct oz_layer *row)
{
    int64_t index;
    if (oz_ckpt_find(ckpt, row->name, &index) != NULL) {
        if (row->tied_to != NULL) {
            oz_log(OZ_LOG_INFO, "load",
                   "The config ties %s to %s, but the file has it: it is used.", row->name,
                   row->tied_to);
        }
        return index;
    }
    if (row->tied_to != NULL && oz_ckpt_find(ckpt, row->tied_to, &index) != NULL) {
        return index;
    }
    return -1;
}

const struct oz_stored_weight *oz_match_stored(const struct oz_match *m, int32_t row)
{
    bool quantized =
        m->stored != NULL && m->stored->count > 0 && m->stored->schemes[row].codec != NULL;
    return quantized ? &m->stored->weights[row] : NULL;
}

int64_t oz_match_row_bytes(const struct oz_match *m, int32_t row)
{
    int64_t bytes = 0;
    const struct oz_stored_weight *w = oz_match_stored(m, row);
    if (w == NULL) {
        return m->row_tensor[row] >= 0 ? oz_ckpt_tensor(m->ckpt, m->row_tensor[row])->bytes : 0;
    }
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        bytes += w->planes[i].tensor != NULL ? w->planes[i].tensor->bytes : 0;
    }
    for (int32_t i = 0; i < w->spent_count; i++) {
        bytes += oz_ckpt_tensor(m->ckpt, w->spent[i])->bytes;
    }
    return bytes;
}

/* Which tensor feeds a row, and which tensors it consumes. */
static void match_row(struct oz_match *m, int32_t row)
{
    const struct oz_stored_weight *w = oz_match_stored(m, row);
    if (w == NULL) {
        m->row_tensor[row] = find_tensor(m->ckpt, &m->table->rows[row]);
        if (m->row_tensor[row] >= 0 && m->tensor_row[m->row_tensor[row]] < 0) {
            m->tensor_row[m->row_tensor[row]] = row;
        }
        return;
    }
    m->row_tensor[row] = w->planes[OZ_PLANE_CODES].index;
    for (int i = 0; i < OZ_PLANE_COUNT; i++) {
        if (w->planes[i].tensor != NULL) {
            m->tensor_row[w->planes[i].index] = row;
        }
    }
    for (int32_t i = 0; i < w->spent_count; i++) {
        m->tensor_row[w->spent[i]] = row;
    }
}

enum oz_status oz_match_create(struct oz_match **out, const struct oz_ckpt *ckpt,
                               const struct oz_layer_table *table, const struct oz_stored *stored,
                               struct oz_error *err)
{
    *out = NULL;
    size_t tensors = (size_t)oz_ckpt_count(ckpt);
    size_t rows = (size_t)table->count;
    struct oz_match *m = oz_alloc_zero(1, sizeof *m);
    if (m == NULL) {
        return OZ_FAIL_NOMEM(err, "matching tensors");
    }
    m->ckpt = ckpt;
    m->table = table;
    m->stored = stored;
    m->row_tensor = oz_alloc_zero(rows, sizeof *m->row_tensor);
    m->tensor_row = oz_alloc_zero(tensors, sizeof *m->tensor_row);
    m->tensor_rule = oz_alloc_zero(tensors, sizeof *m->tensor_rule);
    if (m->row_tensor == NULL || m->tensor_row == NULL || m->tensor_rule == NULL) {
        oz_match_destroy(&m);
        return OZ_FAIL_NOMEM(err, "matching tensors");
    }
    for (size_t i = 0; i < tensors; i++) {
        m->tensor_row[i] = -1;
    }
    for (size_t r = 0; r < rows; r++) {
        match_row(m, (int32_t)r);
    }
    for (size_t i = 0; i < tensors; i++) {
        if (m->tensor_row[i] < 0) {
            m->tensor_rule[i] = oz_layer_ignored(table, oz_ckpt_tensor(ckpt, (int64_t)i)->name);
        }
    }
    *out = m;
    return OZ_OK;
}

void oz_match_destroy(struct oz_match **match)
{
    struct oz_match *m = *match;
    if (m == NULL) {
        return;
    }
    oz_free(m->row_tensor);
    oz_free(m->tensor_row);
    oz_free((void *)m->tensor_rule);
    oz_free(m);
    *match = NULL;
}

bool oz_match_shape_ok(const struct oz_layer *row, const struct oz_tensor_view *t)
{
    if (t->rank != row->file_rank) {
        return false;
    }
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->shape[i] != row->file_shape[i]) {
            return false;
        }
    }
    return true;
}

static void append_shape(struct oz_buf *b, const int64_t *shape, int32_t rank)
{
    oz_buf_puts(b, "[");
    for (int32_t i = 0; i < rank; i++) {
        oz_buf_printf(b, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
    }
    oz_buf_puts(b, "]");
}

/* Appends " <count> <what>: <list>." to the message; a long list goes to the log whole. */
static void append_list(struct oz_buf *message, size_t count, const char *what,
                        const struct oz_buf *list)
{
    oz_buf_printf(message, " %zu %s: ", count, what);
    const char *text = oz_buf_text(list);
    size_t n = strlen(text);
    if (n <= SHOWN_BYTES) {
        oz_buf_printf(message, "%s.", text);
        return;
    }
    size_t cut = SHOWN_BYTES;
    while (cut > 0 && text[cut] != ' ') {
        cut--;
    }
    oz_buf_append(message, text, cut);
    oz_buf_puts(message, " ... (the whole list is in the log).");
    oz_log(OZ_LOG_ERROR, "load", "%zu %s: %s", count, what, text);
}

/* Names of one kind of trouble, folded. */
static void append_names(struct oz_buf *message, const char **names, size_t count, const char *what)
{
    if (count == 0) {
        return;
    }
    struct oz_buf list;
    oz_buf_init(&list, MAX_LIST_BYTES);
    oz_names_fold(&list, names, count);
    append_list(message, count, what, &list);
    oz_buf_deinit(&list);
}

static size_t missing_names(const struct oz_match *m, const char **names)
{
    size_t n = 0;
    for (int32_t r = 0; r < m->table->count; r++) {
        if (m->row_tensor[r] < 0 && !m->table->rows[r].optional) {
            names[n++] = m->table->rows[r].name;
        }
    }
    return n;
}

static size_t unexpected_names(const struct oz_match *m, const char **names)
{
    size_t n = 0;
    for (int64_t i = 0; i < oz_ckpt_count(m->ckpt); i++) {
        if (m->tensor_row[i] < 0 && m->tensor_rule[i] == NULL) {
            names[n++] = oz_tensor_file_name(oz_ckpt_tensor(m->ckpt, i));
        }
    }
    return n;
}

static size_t append_shapes(const struct oz_match *m, struct oz_buf *message)
{
    struct oz_buf list;
    size_t n = 0;
    oz_buf_init(&list, MAX_LIST_BYTES);
    for (int32_t r = 0; r < m->table->count; r++) {
        const struct oz_layer *row = &m->table->rows[r];
        if (m->row_tensor[r] < 0 || oz_match_stored(m, r) != NULL) {
            continue; /* the shapes of quantized weights are the dialect's */
        }
        const struct oz_tensor_view *t = oz_ckpt_tensor(m->ckpt, m->row_tensor[r]);
        if (oz_match_shape_ok(row, t)) {
            continue;
        }
        oz_buf_printf(&list, "%s%s is ", n++ > 0 ? ", " : "", oz_tensor_file_name(t));
        append_shape(&list, t->shape, t->rank);
        oz_buf_puts(&list, " where the config asks for ");
        append_shape(&list, row->file_shape, row->file_rank);
    }
    if (n > 0) {
        append_list(message, n,
                    n == 1 ? "tensor has the wrong shape" : "tensors have the wrong shape", &list);
    }
    oz_buf_deinit(&list);
    return n;
}

enum oz_status oz_match_check(const struct oz_match *m, const char *where, struct oz_error *err)
{
    size_t most = (size_t)oz_ckpt_count(m->ckpt) + (size_t)m->table->count;
    const char **names = oz_alloc_zero(most, sizeof *names);
    if (names == NULL) {
        return OZ_FAIL_NOMEM(err, where);
    }
    struct oz_buf message;
    oz_buf_init(&message, MAX_LIST_BYTES);
    size_t trouble = missing_names(m, names);
    append_names(&message, names, trouble,
                 trouble == 1 ? "tensor is missing" : "tensors are missing");
    for (int32_t r = 0; r < m->table->count; r++) {
        if (m->row_tensor[r] < 0 && !m->table->rows[r].optional &&
            m->table->rows[r].role == OZ_ROLE_LM_HEAD) {
            oz_buf_puts(&message, " If the head is the embedding, set \"tie_word_embeddings\" to "
                                  "true in the config.");
        }
    }
    size_t n = unexpected_names(m, names);
    append_names(&message, names, n, n == 1 ? "tensor is unexpected" : "tensors are unexpected");
    trouble += n;
    trouble += append_shapes(m, &message);
    enum oz_status status = OZ_OK;
    if (trouble > 0) {
        status = OZ_FAIL(err, OZ_ERR_FORMAT, "%s does not fit its config.%s", where,
                         oz_buf_text(&message));
    }
    oz_buf_deinit(&message);
    oz_free((void *)names);
    return status;
}
