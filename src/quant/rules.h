/*
 * quant/rules.h: patterns over the names of layers, and which layers of a table they mean.
 *
 * A pattern is a regular expression behind "re:" (anchored at the start alone), else a whole name,
 * else a glob when it has any of * ? [ (over the whole name; * crosses dots). The dialect SEGMENTS
 * (ignored_layers) also takes a run of whole dotted segments; SUBSTRING any part of the name. Names
 * are a module's name within its component, or with the component in front.
 *
 * Layers that fuse (rows with the same `fused`) are one unit, which has the fused name too. In the
 * dialect ONLINE (ignore, targets) a pattern that matches the fused name means all parts; otherwise
 * all parts must agree, or it is an error (vllm-online 3.2). In the other dialects a pattern means
 * the parts that it matches. Experts are one layer: their parts have no names of their own.
 */
#ifndef OZ_QUANT_RULES_H
#define OZ_QUANT_RULES_H

#include <ounce/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "quant/config.h"
#include "quant/layer.h"

enum oz_rule_dialect {
    OZ_RULES_ONLINE,
    OZ_RULES_SEGMENTS,
    OZ_RULES_SUBSTRING,
    OZ_RULES_EXACT, /* whole names, no patterns (w4a8_fallback_layers) */
};

struct oz_regex;

struct oz_rule {
    const char *text; /* as the user wrote it */
    struct oz_regex *re;
    bool hit; /* it has matched something */
};

struct oz_rules {
    const char *what;      /* "ignored_layers": for messages */
    const char *component; /* "transformer" */
    enum oz_rule_dialect dialect;
    struct oz_rule *items;
    int32_t count;
};

/* Rows of a table that rules mean together: a fused group, the parts of experts, or one row. */
struct oz_rule_unit {
    const char *name;        /* fused name, or the module's */
    bool fused;              /* its parts have names of their own */
    enum oz_layer_kind kind; /* of its rows */
    int32_t first, count;    /* of order[] */
};

struct oz_rule_units {
    const struct oz_layer_table *table;
    int32_t *order; /* rows, unit by unit; parts in their order */
    struct oz_rule_unit *units;
    int32_t count;
};

/* Glob over a whole text, as fnmatch of Python: * ? [seq] [!seq], no escapes; ? and sets take one
 * code point. */
bool oz_glob_match(const char *pattern, const char *text);

/* Is `run` equal to some whole dotted segments of name, one after the other? */
bool oz_segments_match(const char *run, const char *name);

/* OZ_ERR_ARG: the pattern is empty, or its regular expression is wrong; `where` begins the message. */
OZ_MUST_USE enum oz_status oz_rule_check(const char *pattern, const char *where,
                                         struct oz_error *err);

/* Compiles patterns (borrowed); memory is the arena's but for what deinit frees. Zeroed rules may be
 * deinitialised. */
OZ_MUST_USE enum oz_status oz_rules_init(struct oz_rules *rules, const char *what,
                                         enum oz_rule_dialect dialect,
                                         const struct oz_strings *patterns, const char *component,
                                         struct oz_arena *arena, struct oz_error *err);
void oz_rules_deinit(struct oz_rules *rules);

/* The first rule that matches a name (-1: none) and how many do. Marks them as hit. */
OZ_MUST_USE enum oz_status oz_rules_find(struct oz_rules *rules, const char *name, int32_t *first,
                                         int32_t *count, struct oz_error *err);

/* Units of the rows that are LINEAR, EXPERTS or EMBED. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_rule_units_build(struct oz_rule_units *units,
                                               const struct oz_layer_table *table,
                                               struct oz_arena *arena, struct oz_error *err);

/* The rule of `ignore` that ignores a unit, or -1. OZ_ERR_ARG: it ignores some parts. */
OZ_MUST_USE enum oz_status oz_rules_ignored(struct oz_rules *rules,
                                            const struct oz_rule_units *units, int32_t unit,
                                            int32_t *rule, struct oz_error *err);

/* The rule of `targets` that names a unit, or -1. values[i] tells apart what rule i asks for.
 * OZ_ERR_ARG: several rules, some parts, or parts that would differ. */
OZ_MUST_USE enum oz_status oz_rules_target(struct oz_rules *rules, const char *const *values,
                                           const struct oz_rule_units *units, int32_t unit,
                                           int32_t *rule, struct oz_error *err);

/* The rule of the dialects SEGMENTS, SUBSTRING and EXACT that means part `row` of a unit, or -1. */
OZ_MUST_USE enum oz_status oz_rules_part(struct oz_rules *rules, const struct oz_rule_units *units,
                                         int32_t unit, int32_t row, int32_t *rule,
                                         struct oz_error *err);

/* Appends what a pattern that matched nothing was meant to be: the nearest name of a layer or of a
 * run of segments ("; did you mean ...?"), else the list of the layers, folded. */
void oz_rules_suggest(struct oz_buf *b, const char *pattern, const struct oz_layer_table *table);

#endif
