/*
 * quant/dialect/dialect.h: CONTRACT. How checkpoints of other toolchains hold quantized weights: which
 * tensors, under which names, of which dtype and shape, are which planes of which codec. Both ways: a
 * dialect lays out what is written, and finds what is to be read. It maps names, planes and packings;
 * it computes nothing: where a maker stores something else than our plane, the move says which
 * function of num/ makes one of the other.
 */
#ifndef OZ_QUANT_DIALECT_DIALECT_H
#define OZ_QUANT_DIALECT_DIALECT_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "ckpt/table.h"
#include "quant/assign.h"
#include "quant/layer.h"
#include "quant/scheme.h"

/* From a file's tensor to a plane, and back. */
enum oz_plane_move {
    OZ_MOVE_BYTES,      /* the same bytes */
    OZ_MOVE_WIDEN,      /* bf16 or f16 in the file, f32 in the plane: exact; only read */
    OZ_MOVE_RECIPROCAL, /* NVFP4: the file has the factor, the plane 1 / it (oz_nvfp4_global_of) */
    OZ_MOVE_NIBBLES,    /* two codes in a byte: the file has the first one high, the plane low */
    OZ_MOVE_NUMBER,     /* one f32, in the file as OZ_DIALECT_NUMBER within a text */
    OZ_MOVE_REPEAT,     /* one f32 in the file, the same in every cell of the plane; only read */
    OZ_MOVE_TIMES,      /* f32 in the file, times oz_stored_weight.number in the plane; only read */
    OZ_MOVE_WORDS,      /* the same of f32 that are the low halves of I64; only read */
    OZ_MOVE_SIGNED, /* 4 or 8 bits: two's complement in the file, the zero in the middle in the plane; only read */
    OZ_MOVE_VALUES, /* the values of the codes, in a wider dtype: exact; only read */
    /* Of integers in groups, input features (or their groups) down, output features across; only read
     * (num/unpack.h). */
    OZ_MOVE_WORD_COLUMNS,   /* GPTQ's codes [K bits / 32, N] */
    OZ_MOVE_PLANAR_COLUMNS, /* the same of the format gptq_p */
    OZ_MOVE_COLUMNS,        /* scales [G, N] of F16, BF16 or F32 to f32 */
    OZ_MOVE_GPTQ_ZEROS,     /* [G, N bits / 32] */
    OZ_MOVE_GPTQ_ZEROS_LESS_ONE,
    OZ_MOVE_PLANAR_ZEROS,
    OZ_MOVE_AWQ_CODES, /* [K, N / 8] */
    OZ_MOVE_AWQ_ZEROS, /* [G, N / 8] */
};

/* Where the file has the cell [row, col] of a plane of [rows, cols] cells, counted in cells from the
 * tensor's begin. Codes of 4 bits: two in a byte, the even one low. */
typedef int64_t (*oz_dialect_at_fn)(int64_t row, int64_t col, int64_t rows, int64_t cols);

/* What is to be added to the cell [row, col] of a plane of f32. */
typedef float (*oz_dialect_plus_fn)(int64_t row, int64_t col, int64_t rows, int64_t cols);

#define OZ_DIALECT_TENSORS 6        /* that hold one weight, at most */
#define OZ_DIALECT_TEXT_BYTES 320   /* of a text in one of them */
#define OZ_DIALECT_NUMBER "%24.16e" /* of a double: always 24 characters, and exact for f32 */
#define OZ_DIALECT_NUMBER_BYTES 24

/* A tensor that holds a plane of a weight [rows, cols], or something that goes with it. */
struct oz_dialect_tensor {
    enum oz_plane plane; /* OZ_PLANE_COUNT: none, all of it is fixed */
    const char *suffix;  /* behind the module's name and a dot: "weight_scale" */
    enum oz_dtype dtype;
    int32_t rank;
    int64_t shape[2];
    enum oz_plane_move move;
    oz_dialect_at_fn at; /* NULL: row by row, as the plane; only read */
    /* Its bytes, where they are known before the weight is: borrowed, static or `text` (whose owner must
     * not move then); NULL: they are not. With NUMBER the plane's value is put in at `number_at`. */
    const void *fixed;
    int64_t number_at;
    char text[OZ_DIALECT_TEXT_BYTES];
};

/* ---- writing: write.c ---- */

#define OZ_DIALECT_WRITES                                                           \
    "fp8_per_tensor, fp8_per_channel, fp8_per_block, int8, mxfp8, mxfp4 and nvfp4 " \
    "(compressed-tensors), and bitsandbytes"

/*
 * The tensors of a layer under a scheme, codes first, in the format of the toolchain that holds it:
 * bitsandbytes for its own, else compressed-tensors. `stored`: the plain weight's dtype.
 * OZ_ERR_UNSUPPORTED, by the layer's name: no format holds the scheme (with those that are held), its
 * activations or its shape.
 */
OZ_MUST_USE enum oz_status oz_dialect_layout(struct oz_dialect_tensor out[OZ_DIALECT_TENSORS],
                                             int32_t *count, const struct oz_scheme *scheme,
                                             const struct oz_layer *layer, enum oz_dtype stored,
                                             struct oz_error *err);

/* OZ_ERR_UNSUPPORTED unless one config describes all rows that are assigned. any_prefix as in
 * oz_dialect_config. */
OZ_MUST_USE enum oz_status oz_dialect_check(const struct oz_assignment *assignment,
                                            const struct oz_ckpt *ckpt, bool any_prefix,
                                            struct oz_error *err);

/*
 * The value of "quantization_config" of a component whose assigned rows are written so; a member of an
 * object that is indented by two. `ckpt` is the plain checkpoint: its other matrices are named as plain.
 * any_prefix: for models of transformers, whose modules have other prefixes than the tensors in their
 * files ("model.language_model.layers.0 ..." and "model.layers.0 ..."): names match both then, and
 * lm_head is plain where the table has none.
 */
void oz_dialect_config(struct oz_buf *out, const struct oz_assignment *assignment,
                       const struct oz_ckpt *ckpt, bool any_prefix);

/* For the dialects. Does the assignment quantize a row? */
bool oz_dialect_is_written(const struct oz_assignment *assignment, int32_t row);
/* Without prefixes that transformers changes. */
const char *oz_dialect_bare_module(const char *module);
/* Every module that may be a linear and stays plain: those of the table, and matrices that it ignores.
 * Names are `length` bytes; without those prefixes where any_prefix. */
typedef void (*oz_dialect_module_fn)(void *ctx, const char *module, size_t length);
void oz_dialect_each_plain(const struct oz_assignment *assignment, const struct oz_ckpt *ckpt,
                           bool any_prefix, oz_dialect_module_fn fn, void *ctx);

/* ---- compressed_tensors.c ---- */

#define OZ_CT_METHOD "compressed_tensors"

/* oz_dialect_layout, of every scheme that is not bitsandbytes'. */
OZ_MUST_USE enum oz_status oz_ct_layout(struct oz_dialect_tensor out[OZ_DIALECT_TENSORS],
                                        int32_t *count, const struct oz_scheme *scheme,
                                        const struct oz_layer *layer, struct oz_error *err);

/* oz_dialect_config; names are expressions with any_prefix. */
void oz_ct_config(struct oz_buf *out, const struct oz_assignment *assignment,
                  const struct oz_ckpt *ckpt, bool any_prefix);

/* ---- bitsandbytes.c ---- */

#define OZ_BNB_METHOD "bitsandbytes"

bool oz_bnb_writes(const char *scheme);
/* oz_dialect_layout, oz_dialect_check and oz_dialect_config, of its schemes. */
OZ_MUST_USE enum oz_status oz_bnb_layout(struct oz_dialect_tensor out[OZ_DIALECT_TENSORS],
                                         int32_t *count, const struct oz_scheme *scheme,
                                         const struct oz_layer *layer, enum oz_dtype stored,
                                         struct oz_error *err);
OZ_MUST_USE enum oz_status oz_bnb_check(const struct oz_assignment *assignment,
                                        const struct oz_ckpt *ckpt, bool any_prefix,
                                        struct oz_error *err);
void oz_bnb_config(struct oz_buf *out, const struct oz_assignment *assignment,
                   const struct oz_ckpt *ckpt, bool any_prefix);

/* ---- reading ---- */

#define OZ_METHOD_INFERRED "inferred" /* no config: the tensors alone */
#define OZ_STORED_SPENT 8
#define OZ_STORED_NOTES 12

/* A weight that a file holds quantized: the tensor of each plane; NULL: it has none. */
struct oz_stored_weight {
    struct {
        const struct oz_tensor_view *tensor; /* borrowed from the checkpoint */
        int64_t index;                       /* of the tensor in the checkpoint */
        enum oz_plane_move move;
        oz_dialect_at_fn at;
        oz_dialect_plus_fn plus; /* of planes of f32; NULL: nothing */
    } planes[OZ_PLANE_COUNT];
    /* Of a bias: the maker took `shift` times the sums of the rows of this weight off it, the branch apart,
     * for its kernels add `shift` to the inputs. Loading puts it back. NULL: nothing was taken. */
    const struct oz_stored_weight *shifted;
    int64_t shifted_cols;
    float shift;
    float number; /* of the plane that is moved by OZ_MOVE_NUMBER, _TIMES, _WORDS */
    int64_t spent[OZ_STORED_SPENT]; /* tensors of it that hold no plane: what they say is known */
    int32_t spent_count;
    /* What no operator applies is applied while loading, and the layer stays as the scheme's plain codec:
     * `codec` is that of the planes then; e4m3_scale, the rotation, ROTATE_L and _R, SMOOTH, LOW_RANK_A and
     * _B are applied, in this order. NULL: the planes are the scheme's, and stay as they are. */
    const struct oz_codec *codec;
    /* Where not 0: a value that is decoded is a number of e4m3 times this (ModelOpt's W4A8: the integers'
     * values are rounded to FP8, which the product is computed in). */
    float e4m3_scale;
    bool smooth_multiplies; /* activations are multiplied by SMOOTH, not divided */
    bool smooth_last;       /* the branch sees smoothed activations: SMOOTH is applied behind it */
    int32_t group_cols;     /* of the weight or of `codec`, where the codec's own is not meant; 0 */
    int32_t rank;           /* of the low-rank planes */
    /* Of ROTATE_L, L, and ROTATE_R, R: activations are multiplied by them as a matrix X of so many rows,
     * L^T X R (FlatQuant), or one of them, where the other plane has no tensor; 0: none. */
    int32_t rotate_rows;
    int32_t rotate_cols; /* groups of so many columns are stored rotated (num/rotate.h); 0: none */
};

/* What a checkpoint holds quantized; memory is the arena's. All zero: nothing. */
struct oz_stored {
    const char *method;        /* as oz_assign_input.checkpoint_method; NULL: none declared */
    struct oz_scheme *schemes; /* [rows]; codec NULL: plain. NULL: all are */
    struct oz_stored_weight *weights; /* [rows] */
    int32_t count;                    /* of rows that are quantized */
    /* How that was found out, and what is made of it: sentences, for people. */
    const char *notes[OZ_STORED_NOTES];
    int32_t note_count;
};

/* Where to look. */
struct oz_stored_input {
    const struct oz_json *config; /* of the component; NULL: none */
    const char *path;             /* of the config, or of the weights: for messages */
    const char *folder;           /* where other descriptions may lie; NULL: nowhere */
    const struct oz_ckpt *ckpt;
    const struct oz_layer_table *table;
    struct oz_arena *arena;
};

/*
 * Looks for a component's quantization, in this order: the config ("quantization_config"),
 * hf_quant_config.json and quant_model_description*.json in the folder, the metadata of the files, the
 * names, dtypes and shapes of the tensors. What is declared must agree with the tensors, and
 * declarations with each other. Nothing quantized: *out is all zero but for the notes.
 * OZ_ERR_UNSUPPORTED: a toolchain, format, or activations that this version does not read; OZ_ERR_FORMAT:
 * a malformed config, or one that the tensors or another one contradict (both are named); OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_stored_read(struct oz_stored *out, const struct oz_stored_input *in,
                                          struct oz_error *err);

/* Room in bytes that it takes in the arena. */
size_t oz_stored_bytes(const struct oz_layer_table *table);

/* Has a row that is quantized be expanded to bf16 while loading; one that is plain, or is expanded already,
 * stays as it is. */
void oz_stored_expand(struct oz_stored *stored, int32_t row);

/* Is a file of that name, beside weights, a description of how they are quantized? It says nothing of
 * others. */
bool oz_stored_describes(const char *file);

/* A sentence for `notes`; one too many, or one for which the arena has no room, is dropped. */
void oz_stored_note(struct oz_stored *out, struct oz_arena *arena, const char *format, ...)
    OZ_PRINTF(3, 4);

/* What a dialect reads: the quantization_config, the description or the like (NULL: the tensors alone
 * speak), and where it stands. */
struct oz_dialect_reader {
    const struct oz_json *q;
    const char *path;
    const struct oz_ckpt *ckpt;
    const struct oz_layer_table *table;
    struct oz_arena *arena;
    struct oz_stored *out;
    struct oz_error *err;
};

/* For the dialects. The tensor of a layer's module with that suffix, or NULL. */
const struct oz_tensor_view *oz_stored_find(const struct oz_ckpt *ckpt,
                                            const struct oz_layer *layer, const char *suffix,
                                            int64_t *index);
/* A plane's tensor, if it has the dtype and shape that are wanted: else OZ_ERR_FORMAT. F32 may be BF16 or
 * F16 in the file. */
OZ_MUST_USE enum oz_status oz_stored_take(struct oz_stored_weight *weight,
                                          const struct oz_ckpt *ckpt, const char *path,
                                          const struct oz_layer *layer,
                                          const struct oz_dialect_tensor *want,
                                          struct oz_error *err);
/* The scheme of that name, which exists, with those activations. */
OZ_MUST_USE enum oz_status oz_stored_scheme(struct oz_scheme *out, const char *name,
                                            enum oz_act_mode mode, struct oz_error *err);

/* A matrix that a module calls its weight: what toolchains quantize. */
bool oz_stored_is_matrix(const struct oz_layer *layer);

/* What oz_stored_read calls, one for each toolchain: fills the rows of r->out. r->out->method is the
 * method that was found; a reader may say it more exactly. */
OZ_MUST_USE enum oz_status oz_ct_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_bnb_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_hf_fp8_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_vllm_omni_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_modelopt_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_comfy_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_torchao_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_modelslim_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_quark_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_gpt_oss_read(const struct oz_dialect_reader *r);
bool oz_gpt_oss_is(const struct oz_ckpt *ckpt); /* has it tensors in gpt-oss's form? */
OZ_MUST_USE enum oz_status oz_svdquant_read(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_gguf_read_rows(const struct oz_dialect_reader *r);
OZ_MUST_USE enum oz_status oz_int_groups_read(const struct oz_dialect_reader *r);
/* No config: by names, dtypes and shapes. */
OZ_MUST_USE enum oz_status oz_inferred_read(const struct oz_dialect_reader *r);

/*
 * Layouts whose names are not those of the table's rows become theirs, before oz_stored_read: fused layers
 * of nunchaku (oz_svdquant_divide), msModelSlim's wrapped layers (oz_modelslim_unwrap). Errors as theirs.
 */
OZ_MUST_USE enum oz_status
oz_stored_prepare(struct oz_ckpt *ckpt, const struct oz_layer_table *table, struct oz_error *err);

/* ---- modelslim.c ---- */

/* A layer that is smoothed is two modules there: "x.div.mul_scale" and "x.linear.weight" become
 * "x.mul_scale" and "x.weight". Errors as oz_ckpt_rename. */
OZ_MUST_USE enum oz_status
oz_modelslim_unwrap(struct oz_ckpt *ckpt, const struct oz_layer_table *table, struct oz_error *err);

/* ---- svdquant.c, svdquant_fused.c ---- */

/* Do the metadata say that the file is nunchaku's? */
bool oz_svdquant_is_nunchaku(const struct oz_ckpt *ckpt);

/*
 * Fused layers of nunchaku's files become those that the table's rows are: "to_qkv.qweight" three tensors
 * with the names of q, k and v, by oz_ckpt_divide. Before oz_stored_read. OZ_ERR_FORMAT: a tensor has not
 * the rows' out features, or a row is there twice; OZ_ERR_UNSUPPORTED: parts that lie within a block of 128
 * out features.
 */
OZ_MUST_USE enum oz_status
oz_svdquant_divide(struct oz_ckpt *ckpt, const struct oz_layer_table *table, struct oz_error *err);

/* ---- gguf.c ---- */

/* A checkpoint with blocks of GGUF's types, whatever its config says. */
#define OZ_GGUF_METHOD "gguf"
bool oz_gguf_reads(const struct oz_ckpt *ckpt);

/* ---- int_groups.c: integers in groups with zero points, of GPTQ, AWQ and AutoRound ---- */

#define OZ_GPTQ_METHOD "gptq"
#define OZ_AWQ_METHOD "awq"
#define OZ_AUTO_ROUND_METHOD "inc"

/* What a config says of its layers. */
struct oz_int_groups {
    int64_t bits, group_cols; /* 2 to 8; -1: a whole row is one group */
    bool awq;                 /* AWQ's packing, else GPTQ's */
    bool gemv;                /* AWQ: in rows */
    bool planar;              /* GPTQ: the format gptq_p */
    bool one_less;            /* GPTQ: zero points are stored less 1 */
    bool overrides;           /* single layers may have other bits and groups: the tensors say */
};
/* gptq.c, awq.c, auto_round.c */
OZ_MUST_USE enum oz_status oz_gptq_config(struct oz_int_groups *out, const struct oz_json *q,
                                          const char *path, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_awq_config(struct oz_int_groups *out, const struct oz_json *q,
                                         const char *path, struct oz_error *err);
OZ_MUST_USE enum oz_status oz_auto_round_config(struct oz_int_groups *out, const struct oz_json *q,
                                                const char *path, struct oz_error *err);

#endif
