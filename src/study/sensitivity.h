/*
 * study/sensitivity.h: which layers of a model bear which scheme. For every unit and every role the error
 * of quantizing it alone and of keeping it alone; then the assignment that meets a budget at least cost,
 * as a quantization_config, proved on pictures of other seeds.
 *
 * The fast way measures each unit's own output on recorded inputs in every scheme, and what such an error
 * does to a picture once, in the scheme that errs most; the two multiply. The full way measures pictures
 * for every unit and scheme. Errors of units add up above a floor, as those of independent noise do; how
 * far they come to the mean PSNR is found on all pictures of the search.
 */
#ifndef OZ_STUDY_SENSITIVITY_H
#define OZ_STUDY_SENSITIVITY_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "study/label.h"
#include "study/models.h"
#include "study/probe.h"

#define OZ_SENSITIVITY_SCHEMES 8
#define OZ_SENSITIVITY_ROUNDS 8 /* of the search */

enum oz_budget_kind { OZ_BUDGET_NONE, OZ_BUDGET_PSNR, OZ_BUDGET_REL_L2, OZ_BUDGET_BYTES };

struct oz_budget {
    enum oz_budget_kind kind;
    double value; /* dB, a relative L2 of pictures, or resident bytes of the transformer */
};

/* "psnr=40", "rel-l2=0.01", "bytes=12MiB". OZ_ERR_ARG; NULL: none. */
OZ_MUST_USE enum oz_status oz_budget_parse(struct oz_budget *out, const char *text,
                                           struct oz_error *err);

struct oz_sensitivity_args {
    struct oz_variant_setting how;
    const char *model;
    const struct oz_variant
        *schemes; /* label and quantization: a method, with activations at most */
    int32_t scheme_count;
    const struct oz_task *tasks; /* of the search; as asked */
    int32_t task_count;
    uint64_t verify_offset; /* of seeds, for the proof */
    bool full;
    struct oz_budget budget;
    const char *output_json; /* NULL: none; kept and gone on from as in a comparison */
    bool keep_pictures;      /* of the proof, for a report */
    oz_progress_fn progress;
    void *progress_ctx;
    const char *version;
};

/* A scheme as the search uses it. */
struct oz_sensitivity_scheme {
    char *value; /* of a target: {"weight": "int8"} */
    const struct oz_scheme_info *info;
};

/* A unit or role in a scheme. NaN: not measured. */
struct oz_sensitivity_cell {
    double bytes;       /* resident; NaN: the unit does not take the scheme */
    double local;       /* relative squared error of its own output */
    double alone, kept; /* error of the whole: it alone quantized; all others quantized */
    double cost;        /* what the search reckons with */
};

/* A round of the search. */
struct oz_sensitivity_round {
    double error, bytes; /* reckoned; bytes of the whole transformer */
    double psnr_db, relative_l2;
};

struct oz_sensitivity {
    const struct oz_sensitivity_args *args; /* borrowed */
    uint64_t fingerprint;
    struct oz_probe_args probe_args;
    struct oz_probe probe;
    struct oz_sensitivity_scheme schemes[OZ_SENSITIVITY_SCHEMES];
    int32_t coarsest; /* the scheme in which `alone` and `kept` of units are measured */
    struct oz_sensitivity_cell *cells; /* [units][schemes] */
    struct oz_sensitivity_cell roles[OZ_ROLE_COUNT][OZ_SENSITIVITY_SCHEMES];
    double all[OZ_SENSITIVITY_SCHEMES]; /* error of the whole with every unit in the scheme */
    double floor;                       /* of the errors: what any change of one layer makes */
    int64_t transformer_bytes;          /* resident, as stored */
    struct oz_sensitivity_round rounds[OZ_SENSITIVITY_ROUNDS];
    int32_t round_count;
    int32_t best;    /* round; -1: none met the budget */
    int32_t *chosen; /* [units]: scheme of the proposal; -1: as stored */
    char *config;    /* quantization_config of the proposal, or NULL */
    double measured_s, searched_s;
    bool complete, resumed;
    double saved_s;
    struct oz_variant *candidates; /* of the proof */
    char labels[OZ_SENSITIVITY_SCHEMES][OZ_LABEL_BYTES + 8];
    struct oz_task *proof_tasks;
    struct oz_model_args proof_args;
    struct oz_model_comparison *proof; /* NULL: no budget */
};

/* Measures, searches, proves. After OZ_ERR_CANCELLED what was measured is in args->output_json, and the
 * same call goes on from there. OZ_ERR_THRESHOLD: nothing meets the budget; *out is whole and the
 * caller's all the same. OZ_ERR_ARG, and errors of opening and drawing. */
OZ_MUST_USE enum oz_status oz_sensitivity_run(struct oz_sensitivity **out,
                                              const struct oz_sensitivity_args *args,
                                              struct oz_error *err);
void oz_sensitivity_close(struct oz_sensitivity **s);

void oz_sensitivity_print(const struct oz_sensitivity *s, struct oz_buf *b);
void oz_sensitivity_json(const struct oz_sensitivity *s, struct oz_buf *b);
/* A part of a report: errors by role and by layer, ranks, the proposal. */
void oz_sensitivity_section(const void *sensitivity, struct oz_buf *b);

/* ---- between the files of this folder ---- */

struct oz_sensitivity_cell *oz_sensitivity_at(const struct oz_sensitivity *s, int32_t unit,
                                              int32_t scheme);
/* Units in the order of what the coarsest scheme costs them, worst first: order [units]. */
void oz_sensitivity_rank(const struct oz_sensitivity *s, int32_t *order);
/* As oz_model_comparison_resume. */
OZ_MUST_USE enum oz_status oz_sensitivity_resume(struct oz_sensitivity *s, struct oz_error *err);
/* The search and the proof: what follows when everything is measured. */
OZ_MUST_USE enum oz_status oz_sensitivity_search(struct oz_sensitivity *s, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_sensitivity_save(struct oz_sensitivity *s, struct oz_error *err);

#endif
