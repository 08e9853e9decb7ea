#include "quant/rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/regex.h"

/* ---- one pattern, one name ---- */

/* Bytes of the code point at p; 1 for what is none. */
static size_t code_point(const char *p)
{
    size_t n = 1;
    while (n < 4 && ((unsigned char)p[n] & 0xC0U) == 0x80U) {
        n++;
    }
    return n;
}

/* Order of two code points in UTF-8 is that of their bytes. */
static int order(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int by_bytes = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return by_bytes != 0 ? by_bytes : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* A set "[...]" at p: its end, or NULL when it has none (then '[' is a letter). */
static const char *set_end(const char *p)
{
    const char *at = p + 1 + (p[1] == '!');
    at += *at == ']';
    while (*at != '\0' && *at != ']') {
        at++;
    }
    return *at == ']' ? at + 1 : NULL;
}

/* Is the code point at text in the set [p, end)? */
static bool in_set(const char *p, const char *end, const char *text)
{
    bool negated = p[1] == '!';
    size_t n = code_point(text);
    const char *at = p + 1 + negated;
    bool found = false;
    while (at < end - 1) {
        size_t low = code_point(at);
        const char *dash = at + low;
        if (dash + 1 < end - 1 && *dash == '-') {
            const char *high = dash + 1;
            size_t high_bytes = code_point(high);
            found =
                found || (order(at, low, text, n) <= 0 && order(text, n, high, high_bytes) <= 0);
            at = high + high_bytes;
        } else {
            found = found || order(at, low, text, n) == 0;
            at += low;
        }
    }
    return found != negated;
}

bool oz_glob_match(const char *pattern, const char *text)
{
    const char *star = NULL; /* behind the last '*', and the text where its trial began */
    const char *trial = NULL;
    while (*text != '\0') {
        const char *end = *pattern == '[' ? set_end(pattern) : NULL;
        if (*pattern == '*') {
            star = ++pattern;
            trial = text;
        } else if (*pattern == '?' || (end != NULL && in_set(pattern, end, text))) {
            pattern = end != NULL ? end : pattern + 1;
            text += code_point(text);
        } else if (end == NULL && *pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star;
            trial += code_point(trial);
            text = trial;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

bool oz_segments_match(const char *run, const char *name)
{
    size_t n = strlen(run);
    if (n == 0) {
        return false;
    }
    for (const char *at = name; (at = strstr(at, run)) != NULL; at++) {
        if ((at == name || at[-1] == '.') && (at[n] == '\0' || at[n] == '.')) {
            return true;
        }
    }
    return false;
}

static bool is_regex(const char *pattern)
{
    return strncmp(pattern, "re:", 3) == 0;
}

enum oz_status oz_rule_check(const char *pattern, const char *where, struct oz_error *err)
{
    struct oz_regex *re;
    if (*pattern == '\0' || strcmp(pattern, "re:") == 0) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%s has an empty pattern, which would match everything or "
                       "nothing; leave it out.",
                       where);
    }
    if (!is_regex(pattern)) {
        return OZ_OK;
    }
    enum oz_status status = oz_regex_compile(&re, pattern + 3, err);
    oz_regex_free(re);
    return status == OZ_OK ? OZ_OK
                           : oz_error_prefix(err, status,
                                             "%s: \"%.200s\" is not a valid regular "
                                             "expression. ",
                                             where, pattern);
}

enum oz_status oz_rules_init(struct oz_rules *rules, const char *what, enum oz_rule_dialect dialect,
                             const struct oz_strings *patterns, const char *component,
                             struct oz_arena *arena, struct oz_error *err)
{
    void *items = NULL;
    *rules = (struct oz_rules){.what = what, .component = component, .dialect = dialect};
    if (oz_arena_push(arena, (size_t)patterns->count * sizeof *rules->items, &items) != OZ_OK) {
        return OZ_FAIL_NOMEM(err, what);
    }
    rules->items = items;
    for (int32_t i = 0; i < patterns->count; i++) {
        struct oz_rule *rule = &rules->items[i];
        *rule = (struct oz_rule){.text = patterns->items[i]};
        rules->count = i + 1;
        OZ_TRY(oz_rule_check(rule->text, what, err));
        if (is_regex(rule->text) && dialect != OZ_RULES_EXACT) {
            OZ_TRY(oz_regex_compile(&rule->re, rule->text + 3, err));
        }
    }
    return OZ_OK;
}

void oz_rules_deinit(struct oz_rules *rules)
{
    for (int32_t i = 0; i < rules->count; i++) {
        oz_regex_free(rules->items[i].re);
    }
    *rules = (struct oz_rules){0};
}

static enum oz_status test_name(const struct oz_rules *rules, const struct oz_rule *rule,
                                const char *name, bool *found, struct oz_error *err)
{
    if (rule->re != NULL) {
        size_t begin;
        size_t end;
        enum oz_status status =
            oz_regex_match(rule->re, name, strlen(name), 0, true, found, &begin, &end, err);
        return status == OZ_OK
                   ? OZ_OK
                   : oz_error_prefix(err, status, "%s entry \"%.200s\" on %s: ", rules->what,
                                     rule->text, name);
    }
    *found = strcmp(rule->text, name) == 0 ||
             (rules->dialect != OZ_RULES_EXACT && oz_glob_match(rule->text, name)) ||
             (rules->dialect == OZ_RULES_SEGMENTS && oz_segments_match(rule->text, name)) ||
             (rules->dialect == OZ_RULES_SUBSTRING && strstr(name, rule->text) != NULL);
    return OZ_OK;
}

/* The same with the component in front of the name. */
static enum oz_status test_rule(const struct oz_rules *rules, const struct oz_rule *rule,
                                const char *name, bool *found, struct oz_error *err)
{
    char full[1024];
    OZ_TRY(test_name(rules, rule, name, found, err));
    if (*found || rules->component == NULL) {
        return OZ_OK;
    }
    size_t component = strlen(rules->component);
    size_t bytes = strlen(name);
    const char *bare = is_regex(rule->text) ? rule->text + 3 : rule->text;
    bare += *bare == '^';
    /* Only a pattern that begins with the component is about it: "re:v.*" does not mean the vae. */
    if (strncmp(bare, rules->component, component) != 0) {
        return OZ_OK;
    }
    if (component + bytes + 2 > sizeof full) {
        return OZ_OK;
    }
    memcpy(full, rules->component, component);
    full[component] = '.';
    memcpy(full + component + 1, name, bytes + 1);
    return test_name(rules, rule, full, found, err);
}

enum oz_status oz_rules_find(struct oz_rules *rules, const char *name, int32_t *first,
                             int32_t *count, struct oz_error *err)
{
    *first = -1;
    *count = 0;
    for (int32_t i = 0; i < rules->count; i++) {
        bool found;
        OZ_TRY(test_rule(rules, &rules->items[i], name, &found, err));
        if (found) {
            rules->items[i].hit = true;
            *first = *count == 0 ? i : *first;
            ++*count;
        }
    }
    return OZ_OK;
}

/* ---- units ---- */

static const char *group_of(const struct oz_layer *row)
{
    return row->fused != NULL ? row->fused : row->module;
}

/* By kind, group, position, row. */
static int by_unit(const void *a, const void *b, void *rows)
{
    int32_t i = *(const int32_t *)a;
    int32_t k = *(const int32_t *)b;
    const struct oz_layer *r = rows;
    if (r[i].kind != r[k].kind) {
        return r[i].kind < r[k].kind ? -1 : 1;
    }
    int by_group = strcmp(group_of(&r[i]), group_of(&r[k]));
    if (by_group != 0) {
        return by_group;
    }
    if (r[i].fused_index != r[k].fused_index) {
        return r[i].fused_index < r[k].fused_index ? -1 : 1;
    }
    return i < k ? -1 : 1;
}

static bool is_subject(const struct oz_layer *row)
{
    return row->kind == OZ_LAYER_LINEAR || row->kind == OZ_LAYER_EXPERTS ||
           row->kind == OZ_LAYER_EMBED;
}

enum oz_status oz_rule_units_build(struct oz_rule_units *u, const struct oz_layer_table *table,
                                   struct oz_arena *arena, struct oz_error *err)
{
    void *rows = NULL;
    void *units = NULL;
    int32_t count = 0;
    size_t n = (size_t)table->count;
    *u = (struct oz_rule_units){.table = table};
    if (oz_arena_push(arena, n * sizeof *u->order, &rows) != OZ_OK ||
        oz_arena_push(arena, n * sizeof *u->units, &units) != OZ_OK) {
        return OZ_FAIL_NOMEM(err, "the layers that rules are about");
    }
    u->order = rows;
    u->units = units;
    for (int32_t i = 0; i < table->count; i++) {
        if (is_subject(&table->rows[i])) {
            u->order[count++] = i;
        }
    }
    qsort_r(u->order, (size_t)count, sizeof *u->order, by_unit, table->rows);
    for (int32_t i = 0; i < count; i++) {
        const struct oz_layer *row = &table->rows[u->order[i]];
        struct oz_rule_unit *last = u->count > 0 ? &u->units[u->count - 1] : NULL;
        if (last != NULL && last->kind == row->kind && strcmp(last->name, group_of(row)) == 0) {
            last->count++;
        } else {
            u->units[u->count++] =
                (struct oz_rule_unit){.name = group_of(row),
                                      .fused = row->fused != NULL && row->kind != OZ_LAYER_EXPERTS,
                                      .kind = row->kind,
                                      .first = i,
                                      .count = 1};
        }
    }
    return OZ_OK;
}

static const char *part_name(const struct oz_rule_units *u, const struct oz_rule_unit *unit,
                             int32_t part)
{
    return u->table->rows[u->order[unit->first + part]].module;
}

/* What each part matches: "to_q: *.to_q; to_k: nothing". */
static void list_parts(struct oz_buf *b, const struct oz_rules *rules,
                       const struct oz_rule_units *u, const struct oz_rule_unit *unit, bool direct)
{
    for (int32_t part = 0; part < (direct ? 1 : unit->count); part++) {
        const char *name = direct ? unit->name : part_name(u, unit, part);
        const char *dot = strrchr(name, '.');
        bool any = false;
        oz_buf_printf(b, "%s%s:", part > 0 ? "; " : "", dot != NULL ? dot + 1 : name);
        for (int32_t i = 0; i < rules->count; i++) {
            bool found = false;
            if (test_rule(rules, &rules->items[i], name, &found, NULL) == OZ_OK && found) {
                oz_buf_printf(b, "%s%.100s", any ? ", " : " ", rules->items[i].text);
                any = true;
            }
        }
        if (!any) {
            oz_buf_puts(b, " nothing");
        }
    }
}

static enum oz_status fail_parts(const struct oz_rules *rules, const struct oz_rule_units *u,
                                 const struct oz_rule_unit *unit, bool direct, const char *before,
                                 const char *after, struct oz_error *err)
{
    struct oz_buf list;
    oz_buf_init(&list, OZ_ERROR_MESSAGE_BYTES / 2);
    list_parts(&list, rules, u, unit, direct);
    (void)OZ_FAIL(err, OZ_ERR_ARG, "%s %s (%s). %s", before, unit->name, oz_buf_text(&list), after);
    oz_buf_deinit(&list);
    return OZ_ERR_ARG;
}

enum oz_status oz_rules_ignored(struct oz_rules *rules, const struct oz_rule_units *u,
                                int32_t index, int32_t *rule, struct oz_error *err)
{
    const struct oz_rule_unit *unit = &u->units[index];
    int32_t count;
    int32_t matched = 0;
    OZ_TRY(oz_rules_find(rules, unit->name, rule, &count, err));
    if (count > 0 || !unit->fused) {
        return OZ_OK;
    }
    for (int32_t part = 0; part < unit->count; part++) {
        int32_t first;
        OZ_TRY(oz_rules_find(rules, part_name(u, unit, part), &first, &count, err));
        *rule = *rule < 0 ? first : *rule;
        matched += count > 0;
    }
    if (matched > 0 && matched < unit->count) {
        return fail_parts(rules, u, unit, false,
                          "Found different quantization schemes for the shards of",
                          "All shards of a fused layer must be ignored or none; ignored_layers "
                          "splits the layer instead.",
                          err);
    }
    return OZ_OK;
}

enum oz_status oz_rules_target(struct oz_rules *rules, const char *const *values,
                               const struct oz_rule_units *u, int32_t index, int32_t *rule,
                               struct oz_error *err)
{
    static const char several[] =
        "Found multiple quantization_config.targets matches for the shards of";
    static const char one[] = "Each shard may match at most one target.";
    const struct oz_rule_unit *unit = &u->units[index];
    int32_t count;
    int32_t matched = 0;
    bool multiple = false;
    bool different = false;
    OZ_TRY(oz_rules_find(rules, unit->name, rule, &count, err));
    if (count > 1) {
        return fail_parts(rules, u, unit, true, several, one, err);
    }
    if (count == 1 || !unit->fused) {
        return OZ_OK;
    }
    for (int32_t part = 0; part < unit->count; part++) {
        int32_t first;
        OZ_TRY(oz_rules_find(rules, part_name(u, unit, part), &first, &count, err));
        *rule = *rule < 0 ? first : *rule;
        matched += count > 0;
        multiple = multiple || count > 1;
        different = different || (first >= 0 && strcmp(values[first], values[*rule]) != 0);
    }
    if (matched > 0 && matched < unit->count) {
        return fail_parts(rules, u, unit, false, "Found unmatched shards for",
                          "All shards of a fused layer must match a target.", err);
    }
    if (multiple) {
        return fail_parts(rules, u, unit, false, several, one, err);
    }
    if (different) {
        return fail_parts(rules, u, unit, false,
                          "Found different quantization_config.targets values for the shards of",
                          "All shards of a fused layer must use the same target.", err);
    }
    return OZ_OK;
}

/* An entry about one expert, or one projection of them, means the layer of experts. */
static bool names_part_of_experts(const struct oz_rules *rules, const struct oz_rule_unit *unit,
                                  int32_t *rule)
{
    for (int32_t i = 0; i < rules->count && rules->dialect != OZ_RULES_EXACT; i++) {
        if (oz_segments_match(unit->name, rules->items[i].text)) {
            rules->items[i].hit = true;
            *rule = *rule < 0 ? i : *rule;
        }
    }
    return *rule >= 0;
}

enum oz_status oz_rules_part(struct oz_rules *rules, const struct oz_rule_units *u, int32_t index,
                             int32_t row, int32_t *rule, struct oz_error *err)
{
    const struct oz_rule_unit *unit = &u->units[index];
    int32_t count;
    OZ_TRY(oz_rules_find(rules, unit->name, rule, &count, err));
    if (*rule < 0 && unit->fused) {
        OZ_TRY(oz_rules_find(rules, u->table->rows[row].module, rule, &count, err));
    }
    if (*rule < 0 && unit->kind == OZ_LAYER_EXPERTS) {
        (void)names_part_of_experts(rules, unit, rule);
    }
    return OZ_OK;
}
