/* Planes whose tensors have input features down and output features across. */
#include "load/columns.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "num/unpack.h"

bool oz_load_is_columns(enum oz_plane_move move)
{
    return move >= OZ_MOVE_WORD_COLUMNS && move <= OZ_MOVE_AWQ_ZEROS;
}

/* Which bytes of each line of the tensor have those rows, and which of the fields there is the first. */
struct piece {
    int64_t offset, bytes, first;
};

static struct piece piece_of(const struct oz_load_columns *c)
{
    bool words = c->move == OZ_MOVE_WORD_COLUMNS || c->move == OZ_MOVE_PLANAR_COLUMNS;
    bool odd = 32 % c->bits != 0; /* only 32 fields fill words */
    int64_t fields = words || c->move == OZ_MOVE_COLUMNS ? 1 : odd ? 32 : 32 / c->bits;
    int64_t size = c->move == OZ_MOVE_COLUMNS ? oz_dtype_bits(c->t->dtype) / 8
                   : fields == 32             ? 4 * (int64_t)c->bits
                                              : 4;
    int64_t begin = c->row0 / fields;
    int64_t end = (c->row0 + c->rows + fields - 1) / fields;
    return (struct piece){begin * size, (end - begin) * size, c->row0 - begin * fields};
}

/* Scales; whether all are finite. */
static bool put_values(const struct oz_load_columns *c, const uint8_t *line, int64_t i)
{
    bool finite = true;
    struct oz_weight row = oz_weight_plain(c->t->dtype, 1, 1, c->rows, (void *)(uintptr_t)line);
    for (int64_t r = 0; r < c->rows; r++) {
        float x;
        row.codec->decode(&row, 0, 0, r, 1, &x);
        finite = finite && isfinite(x);
        memcpy(c->dst + r * c->stride + 4 * i, &x, sizeof x);
    }
    return finite;
}

/* Line i of the tensor; how many zero points makers do not agree about, or -1: a scale is not finite. */
static int64_t put_line(const struct oz_load_columns *c, const uint8_t *line, int64_t first,
                        int64_t i)
{
    switch (c->move) {
    case OZ_MOVE_WORD_COLUMNS:
        oz_unpack_word_column(line, c->rows, c->dst + 4 * i, c->stride);
        return 0;
    case OZ_MOVE_PLANAR_COLUMNS:
        oz_unpack_planar_column(line, c->rows, i, c->bits, c->dst, c->stride);
        return 0;
    case OZ_MOVE_AWQ_CODES:
        oz_unpack_awq_codes(line, first, c->rows, i, c->dst, c->stride);
        return 0;
    case OZ_MOVE_AWQ_ZEROS:
        oz_unpack_awq_zeros(line, first, c->rows, i, c->dst, c->stride);
        return 0;
    case OZ_MOVE_GPTQ_ZEROS:
    case OZ_MOVE_GPTQ_ZEROS_LESS_ONE:
    case OZ_MOVE_PLANAR_ZEROS:
        return oz_unpack_gptq_zeros(line, first, c->rows, c->bits,
                                    c->move == OZ_MOVE_PLANAR_ZEROS ? OZ_FIELDS_PLANAR
                                                                    : OZ_FIELDS_DENSE,
                                    c->move == OZ_MOVE_GPTQ_ZEROS_LESS_ONE, i, c->dst, c->stride);
    default: return put_values(c, line, i) ? 0 : -1;
    }
}

enum oz_status oz_load_read_columns(const struct oz_load_columns *c, struct oz_error *err)
{
    struct piece p = piece_of(c);
    int64_t line_bytes = c->t->shape[0] > 0 ? c->t->bytes / c->t->shape[0] : 0;
    int64_t doubtful = 0;
    enum oz_status status = OZ_OK;
    uint8_t *line = oz_alloc((size_t)p.bytes);
    if (line == NULL) {
        return OZ_FAIL_NOMEM(err, c->t->name);
    }
    for (int64_t i = 0; i < c->t->shape[0] && status == OZ_OK; i++) {
        status = oz_ckpt_read(c->ckpt, c->t, i * line_bytes + p.offset, p.bytes, line, err);
        int64_t found = status == OZ_OK ? put_line(c, line, p.first, i) : 0;
        doubtful += found > 0 ? found : 0;
        if (found < 0 && !c->keep_nonfinite) {
            status = OZ_FAIL(err, OZ_ERR_FORMAT,
                             "Tensor %s: a scale in line %" PRId64 " is NaN or infinite.",
                             c->t->name, i);
        }
    }
    oz_free(line);
    if (doubtful > 0) {
        oz_log(OZ_LOG_WARN, "load",
               "%s: %" PRId64
               " zero points are 0, which tools store in different ways in the first "
               "GPTQ format (here: 1 less, borrowing from the next). If pictures are wrong, take a "
               "file in the format gptq_v2.",
               c->t->name, doubtful);
    }
    return status;
}
