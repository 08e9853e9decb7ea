#include "load/cells.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "load/columns.h"
#include "num/float4.h"
#include "num/float8.h"
#include "num/gguf.h"
#include "num/plane.h"

/* Bits of a cell of a plane of the weight. */
static int64_t cell_bits_of(const struct oz_weight *w, enum oz_plane plane)
{
    const struct oz_plane_spec *spec = oz_codec_plane(w->codec, plane);
    return w->planes[plane].dtype == spec->dtype ? spec->cell_bits
                                                 : oz_dtype_bits(w->planes[plane].dtype);
}

/* ---- from anywhere in the tensor ---- */

static void copy_unit(const uint8_t *from, int64_t at, uint8_t *to, int64_t index, int64_t bits)
{
    if (bits == 4) {
        uint8_t code = (uint8_t)(from[at / 2] >> (at % 2 * 4) & 15);
        uint8_t kept = (uint8_t)(index % 2 == 0 ? 0 : to[index / 2] & 15);
        to[index / 2] = (uint8_t)(kept | code << (index % 2 * 4));
        return;
    }
    memcpy(to + index * (bits / 8), from + at * (bits / 8), (size_t)bits / 8);
}

/* A plane of cells, as units of the file. */
struct grid {
    int64_t bits, rows, cols;
    int64_t stride; /* from one row to the next where they are put, in units */
};

/* Units [row, col] of some rows, from where the file has them. */
static enum oz_status gather(const struct oz_ckpt *ckpt, const struct oz_tensor_view *t,
                             oz_dialect_at_fn at, const struct grid *g, int64_t row0, int64_t count,
                             uint8_t *dst, struct oz_error *err)
{
    int64_t bits = g->bits;
    uint8_t *all = oz_alloc((size_t)t->bytes);
    if (all == NULL) {
        return OZ_FAIL_NOMEM(err, t->name);
    }
    enum oz_status status = oz_ckpt_read(ckpt, t, 0, t->bytes, all, err);
    int64_t limit = t->bytes * 8 / bits;
    for (int64_t r = 0; r < count && status == OZ_OK; r++) {
        for (int64_t c = 0; c < g->cols && status == OZ_OK; c++) {
            int64_t from = at(row0 + r, c, g->rows, g->cols);
            if (from < 0 || from >= limit) {
                status = OZ_FAIL(err, OZ_ERR_FORMAT,
                                 "Tensor %s has no element %" PRId64 ", which would be [%" PRId64
                                 ", %" PRId64 "] of its layer.",
                                 t->name, from, row0 + r, c);
            } else {
                copy_unit(all, from, dst, r * g->stride + c, bits);
            }
        }
    }
    oz_free(all);
    return status;
}

/* ---- moves ---- */

/* bf16 or f16 in the upper half of dst to f32, from the front: reading stays ahead of writing. */
static void widen(enum oz_dtype from, uint8_t *dst, int64_t count)
{
    const uint8_t *src = dst + count * 2;
    for (int64_t i = 0; i < count; i++) {
        float x;
        oz_plane_read(from, src, i, 1, &x);
        memcpy(dst + i * 4, &x, sizeof x);
    }
}

/* The codes of values that are exactly those of codes. */
static enum oz_status code_values(const struct oz_tensor_view *t, const struct oz_plane_view *plane,
                                  const uint8_t *raw, int64_t count, uint8_t *dst,
                                  struct oz_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        float x;
        float back;
        oz_plane_read(t->dtype, raw, i, 1, &x);
        uint8_t code = plane->dtype == OZ_DTYPE_F4 ? oz_f32_to_e2m1(x) : oz_f32_to_e4m3(x);
        back = plane->dtype == OZ_DTYPE_F4 ? oz_e2m1_to_f32(code) : oz_e4m3_to_f32(code);
        if (!(x == back)) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "Tensor %s has the value %g, which is none of %s; it is said to hold "
                           "the values of such codes.",
                           t->name, (double)x, oz_dtype_name(plane->dtype));
        }
        if (plane->dtype == OZ_DTYPE_F4) {
            uint8_t kept = (uint8_t)(i % 2 == 0 ? 0 : dst[i / 2] & 15);
            dst[i / 2] = (uint8_t)(kept | (code & 15) << (i % 2 * 4));
        } else {
            dst[i] = code;
        }
    }
    return OZ_OK;
}

/* Numbers of f32 out of I64 whose low halves they are. */
static enum oz_status read_words(const struct oz_ckpt *ckpt, const struct oz_tensor_view *t,
                                 struct oz_load_cells cells, uint8_t *dst, struct oz_error *err)
{
    uint8_t words[4096];
    for (int64_t at = 0; at < cells.bytes;) {
        int64_t left = 2 * (cells.bytes - at);
        int64_t n = left < (int64_t)sizeof words ? left : (int64_t)sizeof words;
        OZ_TRY(oz_ckpt_read(ckpt, t, 2 * (cells.first + at), n, words, err));
        for (int64_t i = 0; i < n; i += 8, at += 4) {
            uint32_t high;
            memcpy(&high, words + i + 4, sizeof high);
            if (high != 0) {
                return OZ_FAIL(err, OZ_ERR_FORMAT,
                               "Tensor %s: element %" PRId64
                               " is no number of 32 bits, widened; the file is damaged.",
                               t->name, (cells.first + at) / 4);
            }
            memcpy(dst + at, words + i, 4);
        }
    }
    return OZ_OK;
}

static void move_floats(enum oz_plane_move move, float factor, uint8_t *dst, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 4) {
        float x;
        memcpy(&x, dst + i, sizeof x);
        x = move == OZ_MOVE_RECIPROCAL ? 1.0F / x : x * factor;
        memcpy(dst + i, &x, sizeof x);
    }
}

/* Cells of a row of a plane. */
static int64_t cells_of_row(const struct oz_weight *w, enum oz_plane plane, int64_t line)
{
    const struct oz_plane_spec *spec = oz_codec_plane(w->codec, plane);
    int64_t bits = cell_bits_of(w, plane);
    int64_t cell = spec->cell_cols == OZ_CELL_GROUP ? w->group_cols : spec->cell_cols;
    return bits < 8 && cell > 0 ? (w->cols + cell - 1) / cell : line * 8 / bits;
}

/* Cells whose bytes are not simply the file's from there on: through memory of their own. */
static enum oz_status read_apart(const struct oz_ckpt *ckpt, const struct oz_stored_weight *stored,
                                 const struct oz_weight *w, enum oz_plane plane,
                                 struct oz_load_cells cells, uint8_t *dst, struct oz_error *err)
{
    const struct oz_tensor_view *t = stored->planes[plane].tensor;
    const struct oz_plane_view *v = &w->planes[plane];
    oz_dialect_at_fn at = stored->planes[plane].at;
    bool values = stored->planes[plane].move == OZ_MOVE_VALUES;
    int64_t all;
    int64_t line;
    if (oz_weight_plane_bytes(w, plane, &all, &line) != OZ_OK || line == 0) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL, "Tensor %s: a plane has no size.", t->name);
    }
    int64_t cell_bits = cell_bits_of(w, plane); /* codes and zero points may lie in words */
    int64_t rows = cells.bytes / line;
    struct grid g = {.bits = cell_bits <= 8 && !values ? cell_bits : oz_dtype_bits(t->dtype),
                     .rows = all / line / (w->slices > 0 ? w->slices : 1),
                     .cols = cells_of_row(w, plane, line)};
    bool same = !values && g.bits == cell_bits;
    g.stride = same ? line * 8 / cell_bits : g.cols;
    if (values && cell_bits == 4 && g.cols % 2 != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "Tensor %s: %" PRId64 " codes of 4 bits in a row are no whole bytes.",
                       t->name, g.cols);
    }
    if (__builtin_mul_overflow(rows, g.cols, &all) || __builtin_mul_overflow(all, g.bits, &all)) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "Tensor %s: its size overflows.", t->name);
    }
    uint8_t *raw = same ? dst : oz_alloc((size_t)(all / 8 + 1));
    if (raw == NULL) {
        return OZ_FAIL_NOMEM(err, t->name);
    }
    enum oz_status status =
        at != NULL
            ? gather(ckpt, t, at, &g, cells.first / line, rows, raw, err)
            : oz_ckpt_read(ckpt, t, cells.first / line * g.cols * g.bits / 8, all / 8, raw, err);
    if (status == OZ_OK && values) {
        status = code_values(t, v, raw, rows * g.cols, dst, err);
    } else if (status == OZ_OK && !same) {
        for (int64_t i = 0; i < rows * g.cols; i++) {
            float x;
            oz_plane_read(t->dtype, raw, i, 1, &x);
            memcpy(dst + i * 4, &x, sizeof x);
        }
    }
    if (!same) {
        oz_free(raw);
    }
    return status;
}

/* Rows of integers in groups, which are columns of the file. */
static enum oz_status read_columns(const struct oz_ckpt *ckpt,
                                   const struct oz_stored_weight *stored, const struct oz_weight *w,
                                   enum oz_plane plane, struct oz_load_cells cells, uint8_t *dst,
                                   struct oz_error *err)
{
    int64_t all;
    int64_t line;
    if (oz_weight_plane_bytes(w, plane, &all, &line) != OZ_OK || line == 0) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL, "Tensor %s: a plane has no size.",
                       stored->planes[plane].tensor->name);
    }
    const struct oz_load_columns c = {
        .ckpt = ckpt,
        .t = stored->planes[plane].tensor,
        .move = stored->planes[plane].move,
        .bits = oz_codec_plane(w->codec, OZ_PLANE_CODES)->cell_bits,
        .row0 = cells.first / line,
        .rows = cells.bytes / line,
        .dst = dst,
        .stride = line,
    };
    return oz_load_read_columns(&c, err);
}

static enum oz_status move_cells(const struct oz_ckpt *ckpt, const struct oz_stored_weight *stored,
                                 const struct oz_weight *w, enum oz_plane plane,
                                 struct oz_load_cells cells, uint8_t *dst, struct oz_error *err)
{
    const struct oz_tensor_view *t = stored->planes[plane].tensor;
    enum oz_plane_move move = stored->planes[plane].move;
    if (oz_load_is_columns(move)) {
        return read_columns(ckpt, stored, w, plane, cells, dst, err);
    }
    if (plane == OZ_PLANE_ZEROS && move == OZ_MOVE_REPEAT) { /* of unsigned codes: 0 */
        memset(dst, 0, (size_t)cells.bytes);
        return OZ_OK;
    }
    if (move == OZ_MOVE_NUMBER || (move == OZ_MOVE_REPEAT && t == NULL)) {
        for (int64_t i = 0; i < cells.bytes; i += 4) {
            memcpy(dst + i, &stored->number, sizeof stored->number);
        }
        return OZ_OK;
    }
    if (move == OZ_MOVE_REPEAT) {
        float x;
        OZ_TRY(oz_load_read_matrix(ckpt, stored, plane, 1, 1, &x, err));
        for (int64_t i = 0; i < cells.bytes; i += 4) {
            memcpy(dst + i, &x, sizeof x);
        }
        return OZ_OK;
    }
    if (move == OZ_MOVE_VALUES || stored->planes[plane].at != NULL) {
        OZ_TRY(read_apart(ckpt, stored, w, plane, cells, dst, err));
    } else if (move == OZ_MOVE_WIDEN) {
        int64_t half = cells.bytes / 2;
        OZ_TRY(oz_ckpt_read(ckpt, t, cells.first / 2, half, dst + half, err));
        widen(t->dtype, dst, cells.bytes / 4);
    } else if (move == OZ_MOVE_WORDS) {
        OZ_TRY(read_words(ckpt, t, cells, dst, err));
    } else {
        OZ_TRY(oz_ckpt_read(ckpt, t, cells.first, cells.bytes, dst, err));
    }
    for (int64_t i = 0; move == OZ_MOVE_NIBBLES && i < cells.bytes; i++) {
        dst[i] = (uint8_t)(dst[i] << 4 | dst[i] >> 4);
    }
    const uint8_t signs = cell_bits_of(w, plane) == 8 ? 0x80 : 0x88;
    for (int64_t i = 0; move == OZ_MOVE_SIGNED && i < cells.bytes; i++) {
        dst[i] ^= signs;
    }
    if (move == OZ_MOVE_RECIPROCAL || move == OZ_MOVE_TIMES || move == OZ_MOVE_WORDS) {
        move_floats(move, stored->number, dst, cells.bytes);
    }
    return OZ_OK;
}

static void add(const struct oz_stored_weight *stored, const struct oz_weight *w,
                enum oz_plane plane, struct oz_load_cells cells, uint8_t *dst)
{
    oz_dialect_plus_fn plus = stored->planes[plane].plus;
    for (int64_t i = 0; plus != NULL && i < cells.bytes / 4; i++) {
        float x;
        int64_t cell = cells.first / 4 + i;
        memcpy(&x, dst + i * 4, sizeof x);
        x += plus(cell / w->cols, cell % w->cols, w->rows, w->cols);
        memcpy(dst + i * 4, &x, sizeof x);
    }
}

/* ---- checks ---- */

/* The first cell that is not finite, or -1. */
static int64_t find_bad(enum oz_dtype dtype, const uint8_t *cells, int64_t bytes)
{
    if (dtype == OZ_DTYPE_F32) {
        for (int64_t i = 0; i < bytes / 4; i++) {
            float x;
            memcpy(&x, cells + i * 4, sizeof x);
            if (!isfinite(x)) {
                return i;
            }
        }
    }
    for (int64_t i = 0; dtype == OZ_DTYPE_F8_E4M3 && i < bytes; i++) {
        if ((cells[i] & 0x7F) == 0x7F) {
            return i;
        }
    }
    for (int64_t i = 0; dtype == OZ_DTYPE_F8_E8M0 && i < bytes; i++) {
        if (cells[i] == 255) {
            return i;
        }
    }
    return -1;
}

/* Groups of columns: what does not name one would be read out of the scales' bounds. */
static enum oz_status check_groups(const struct oz_weight *w, const char *name,
                                   const uint8_t *groups, struct oz_error *err)
{
    int64_t count = (w->cols + w->group_cols - 1) / w->group_cols;
    for (int64_t i = 0; i < w->cols; i++) {
        int32_t g;
        memcpy(&g, groups + 4 * i, sizeof g);
        if (g < 0 || g >= count) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "Tensor %s: column %" PRId64 " is in group %d; there are %" PRId64 ".",
                           name, i, (int)g, count);
        }
    }
    return OZ_OK;
}

enum oz_status oz_load_fail_block(const struct oz_tensor_view *t, int64_t block,
                                  struct oz_error *err)
{
    return OZ_FAIL(err, OZ_ERR_FORMAT,
                   "Tensor %s: the scale of block %" PRId64
                   " (of %s) is NaN, infinite or too large; the file is damaged.",
                   oz_tensor_file_name(t), block, oz_tensor_format(t));
}

enum oz_status oz_load_read_cells(const struct oz_ckpt *ckpt, const struct oz_stored_weight *stored,
                                  const struct oz_weight *w, enum oz_plane plane,
                                  struct oz_load_cells cells, bool keep_nonfinite, uint8_t *dst,
                                  struct oz_error *err)
{
    const struct oz_tensor_view *t = stored->planes[plane].tensor;
    if (t == NULL && stored->planes[plane].move != OZ_MOVE_REPEAT) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL, "A weight of %s has no tensor for plane %d.",
                       w->codec->name, (int)plane);
    }
    OZ_TRY(move_cells(ckpt, stored, w, plane, cells, dst, err));
    add(stored, w, plane, cells, dst);
    if (plane == OZ_PLANE_PERM) {
        return check_groups(w, t->name, dst, err);
    }
    bool codes = plane == OZ_PLANE_CODES;
    const struct oz_gguf_type *blocks = codes && t != NULL ? oz_gguf_type_of(t->codec) : NULL;
    if (blocks != NULL && !keep_nonfinite) {
        int64_t found = oz_gguf_find_bad(blocks, dst, cells.bytes / blocks->bytes);
        return found < 0 ? OZ_OK : oz_load_fail_block(t, cells.first / blocks->bytes + found, err);
    }
    int64_t bad = codes && keep_nonfinite ? -1 : find_bad(w->planes[plane].dtype, dst, cells.bytes);
    if (bad < 0) {
        return OZ_OK;
    }
    int64_t first = cells.first * 8 / cell_bits_of(w, plane);
    return OZ_FAIL(err, OZ_ERR_FORMAT,
                   "Tensor %s: the %s %" PRId64 " is NaN or infinite; the file is damaged.",
                   t != NULL ? t->name : "(none)", codes ? "code" : "scale", first + bad);
}

/* Rows of a part from `row` on that follow each other in the file, from *from on. */
static int64_t run_of(const struct oz_load_part *part, int64_t row, int64_t rows, int64_t *from)
{
    int64_t n = 1;
    *from = oz_load_source_row(part, row);
    while (n < rows && oz_load_source_row(part, row + n) == *from + n) {
        n++;
    }
    return n;
}

enum oz_status oz_load_read_rows(const struct oz_ckpt *ckpt, const struct oz_load_item *item,
                                 const struct oz_weight *w, enum oz_plane plane, int64_t slice,
                                 int64_t row0, int64_t rows, bool keep_nonfinite, void *base,
                                 struct oz_error *err)
{
    const struct oz_load_part *part = &item->parts[0];
    bool moved = part->layer->transform != 0;
    int64_t all;
    int64_t line;
    if (oz_weight_plane_bytes(w, plane, &all, &line) != OZ_OK) {
        return OZ_FAIL(err, OZ_ERR_INTERNAL, "%s: a plane has no size.", part->layer->name);
    }
    if (slice > 0 && item->planes->planes[plane].move != OZ_MOVE_BYTES) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: experts are read where the file has their planes as they are.",
                       part->layer->name);
    }
    int64_t before = slice * (w->slices > 0 ? all / w->slices : 0); /* of other slices */
    for (int64_t row = row0; row < row0 + rows;) {
        int64_t from = row;
        int64_t n = moved ? run_of(part, row, row0 + rows - row, &from) : rows;
        struct oz_load_cells to = oz_load_cells(w, plane, row, n);
        struct oz_load_cells cells = oz_load_cells(w, plane, from, n);
        uint8_t *dst = (uint8_t *)((uintptr_t)base + (uintptr_t)(before + to.first));
        cells.first += before;
        OZ_TRY(oz_load_read_cells(ckpt, item->planes, w, plane, cells, keep_nonfinite, dst, err));
        row += n;
    }
    return OZ_OK;
}

int64_t oz_load_cells_staging(const struct oz_stored_weight *stored, const struct oz_weight *w,
                              int64_t rows)
{
    int64_t most = 0;
    for (int i = 0; i < OZ_PLANE_FIRST_SIDE; i++) {
        const struct oz_tensor_view *t = stored->planes[i].tensor;
        bool values = stored->planes[i].move == OZ_MOVE_VALUES;
        if (t != NULL && (stored->planes[i].at != NULL || values)) {
            int64_t part = w->rows > 0 ? t->bytes / w->rows * rows + t->bytes % w->rows : 0;
            int64_t bytes = (stored->planes[i].at != NULL ? t->bytes : 0) + part;
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

enum oz_status oz_load_read_matrix(const struct oz_ckpt *ckpt,
                                   const struct oz_stored_weight *stored, enum oz_plane plane,
                                   int64_t rows, int64_t cols, float *dst, struct oz_error *err)
{
    const struct oz_tensor_view *t = stored->planes[plane].tensor;
    oz_dialect_at_fn at = stored->planes[plane].at;
    uint8_t *raw = oz_alloc((size_t)t->bytes + 1);
    if (raw == NULL) {
        return OZ_FAIL_NOMEM(err, t->name);
    }
    enum oz_status status = oz_ckpt_read(ckpt, t, 0, t->bytes, raw, err);
    for (int64_t i = 0; i < rows * cols && status == OZ_OK; i++) {
        int64_t from = at != NULL ? at(i / cols, i % cols, rows, cols) : i;
        if (from < 0 || from >= t->elements) {
            status = OZ_FAIL(err, OZ_ERR_FORMAT,
                             "Tensor %s has no element %" PRId64 ", which its layer asks for.",
                             t->name, from);
            break;
        }
        oz_plane_read(t->dtype, raw, from, 1, &dst[i]);
        if (!isfinite(dst[i])) {
            status =
                OZ_FAIL(err, OZ_ERR_FORMAT,
                        "Tensor %s: element %" PRId64 " is NaN or infinite; the file is damaged.",
                        t->name, from);
        }
    }
    oz_free(raw);
    return status;
}
