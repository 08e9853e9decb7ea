/*
 * load/report.h: what a load made of every tensor of every file. From a measuring load the same as
 * from the real one.
 */
#ifndef OZ_LOAD_REPORT_H
#define OZ_LOAD_REPORT_H

#include <ounce/status.h>
#include <stdint.h>

#include "base/buf.h"

struct oz_load_args;
struct oz_load_items;
struct oz_lora;
struct oz_load_schedule;
struct oz_tensor_view;

#define OZ_FATE_MAP(X)                                                                   \
    X(OZ_FATE_ENCODED, "encoded")      /* by its scheme */                               \
    X(OZ_FATE_PACKED, "packed")        /* its elements, for the kernel */                \
    X(OZ_FATE_STORED, "stored")        /* its elements, in the model's memory */         \
    X(OZ_FATE_MAPPED, "mapped")        /* read where it lies in the file */              \
    X(OZ_FATE_PASSING, "passing")      /* used once, to make a table, then given back */ \
    X(OZ_FATE_LISTED, "listed")        /* a row that the model does not bind */          \
    X(OZ_FATE_IGNORED, "ignored")      /* by a rule of the family */                     \
    X(OZ_FATE_UNEXPECTED, "unclaimed") /* nobody asks: oz_match_check refuses it */

enum oz_fate {
#define OZ_FATE_ENUM(id, name) id,
    OZ_FATE_MAP(OZ_FATE_ENUM)
#undef OZ_FATE_ENUM
        OZ_FATE_COUNT
};

const char *oz_fate_name(enum oz_fate fate); /* "?" outside the enum */

/* One use of a tensor; a tensor that two rows read has two entries. Strings are borrowed from the
 * table, the assignment and the registry. */
struct oz_load_entry {
    const struct oz_tensor_view *tensor; /* borrowed from the checkpoint */
    enum oz_fate fate;
    int32_t row;                /* of the layer table; -1: none */
    const char *scheme;         /* "as stored", or the scheme's name; NULL: not loaded */
    const char *rule;           /* that chose the scheme, or that ignores the tensor; NULL */
    const char *kernel;         /* that will read it; NULL: not loaded */
    const char *fallback;       /* kernel in the second activation mode; NULL: it has none */
    const char *encoder;        /* the fast one's name, or OZ_ENCODER_OF_CODEC; NULL: not encoded */
    const struct oz_lora *lora; /* what is merged into the row (oz_lora_json); NULL: nothing */
    int64_t read_bytes;         /* from the file, second passes included */
    int64_t resident_bytes;     /* its share of its parameter, in the model arena */
};

/* Caller's storage; zeroes are an empty report. Components may follow one another in it. */
struct oz_load_report {
    struct oz_load_entry *entries;
    int64_t count;
};

/* Appends a component's entries, in the order of the tensors' names. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_load_report_add(struct oz_load_report *report,
                                              const struct oz_load_args *args,
                                              const struct oz_load_items *items,
                                              const struct oz_load_schedule *schedule,
                                              struct oz_error *err);
void oz_load_report_deinit(struct oz_load_report *report);

/* [{"tensor": "..", "fate": "..", "shape": [..], "dtype": "..", "file_bytes": .., ..}, ..] */
void oz_load_report_json(const struct oz_load_report *report, struct oz_buf *out);

#endif
