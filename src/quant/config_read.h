/* config_read.h: the parts of the reader of requests; internal to src/quant. */
#ifndef OZ_QUANT_CONFIG_READ_H
#define OZ_QUANT_CONFIG_READ_H

#include "base/buf.h"
#include "base/json.h"
#include "quant/config.h"

/* One request being read. Memory is the request's arena. */
struct oz_config_reader {
    struct oz_arena *arena;
    struct oz_note *notes; /* [OZ_CONFIG_MAX_NOTES] */
    int32_t note_count;
    int32_t strings; /* copied so far, of all lists */
    struct oz_error *err;
};

#define OZ_CONFIG_MAX_NOTES 64

/* A copy in the arena. OZ_ERR_NOMEM. */
OZ_MUST_USE enum oz_status oz_config_string(struct oz_config_reader *r, const char *text,
                                            const char **out);
void oz_config_note(struct oz_config_reader *r, const char *what, const char *why);

/* A list of strings (null: none) whose entries are checked by `pattern`: true for rules, false for
 * exact names. `where` begins messages. */
OZ_MUST_USE enum oz_status oz_config_strings(struct oz_config_reader *r, const struct oz_json *v,
                                             const char *where, bool pattern,
                                             struct oz_strings *out);

/* "There is no ...": an unknown word among `names`, with the nearest and the list. `where` is the
 * whole beginning of the sentence. */
enum oz_status oz_config_fail_choice(struct oz_config_reader *r, const char *where,
                                     const char *wrong, const char *const *names, size_t count);

/* What a request's name for a weight or an activation means (vllm-online 2.4). */
OZ_MUST_USE enum oz_status oz_config_weight(struct oz_config_reader *r, const char *name,
                                            bool experts, const char *where,
                                            const struct oz_scheme_info **out);
OZ_MUST_USE enum oz_status oz_config_activation(struct oz_config_reader *r, const char *name,
                                                const char *where, enum oz_act_mode *out);

/* Fills the slots with what a method means by itself. */
void oz_config_inherit(struct oz_component_request *c, const struct oz_method *m);

/* Does the slot's weight take its activation? OZ_ERR_ARG with those that it takes. */
OZ_MUST_USE enum oz_status oz_config_check_slot(struct oz_config_reader *r,
                                                const struct oz_slot *slot, const char *where);

/* The members of a flat object, all but method and quant_method, onto what the method means. */
OZ_MUST_USE enum oz_status oz_config_read_flat(struct oz_config_reader *r, const struct oz_json *v,
                                               const char *where, struct oz_component_request *c);

/* An online config, onto what the method means. */
OZ_MUST_USE enum oz_status oz_config_read_online(struct oz_config_reader *r,
                                                 const struct oz_json *v, const char *where,
                                                 struct oz_component_request *c);

/* The config's text (NULL: none) with the dotted keys applied, as JSON text. */
OZ_MUST_USE enum oz_status oz_config_apply_keys(struct oz_config_reader *r,
                                                const struct oz_json *config,
                                                const char *const *keys, int32_t count,
                                                struct oz_buf *out);

#endif
