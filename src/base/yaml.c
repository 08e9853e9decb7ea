#include "base/yaml.h"

#include "base/error.h"

#if OZ_HAVE_YAML

#include <stdbool.h>
#include <string.h>
#include <yaml.h>

#include "base/buf.h"

enum { MAX_DEPTH = 64, MAX_JSON_BYTES = 8 << 20 };

struct level {
    bool mapping, value; /* value: the next node is a member's value, not its key */
    bool empty;
};

struct converter {
    yaml_parser_t parser;
    struct oz_buf out;
    struct level levels[MAX_DEPTH];
    int depth;
    const char *name;
    struct oz_error *err;
};

static enum oz_status fail_at(const struct converter *c, const yaml_event_t *event,
                              const char *what)
{
    return OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s: %s (line %zu).", c->name, what,
                   event->start_mark.line + 1);
}

/* A number as JSON writes it. */
static bool is_number(const char *s)
{
    s += *s == '-';
    size_t digits = strspn(s, "0123456789");
    if (digits == 0 || (digits > 1 && *s == '0')) {
        return false;
    }
    s += digits;
    if (*s == '.') {
        digits = strspn(s + 1, "0123456789");
        if (digits == 0) {
            return false;
        }
        s += 1 + digits;
    }
    if (*s == 'e' || *s == 'E') {
        s += 1 + (s[1] == '+' || s[1] == '-');
        digits = strspn(s, "0123456789");
        s += digits;
        return digits > 0 && *s == '\0';
    }
    return *s == '\0';
}

static bool is_word(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(text, *words) == 0) {
            return true;
        }
    }
    return false;
}

static void put_scalar(struct converter *c, const yaml_event_t *event, bool key)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    const char *text = (const char *)event->data.scalar.value;
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !key;
    if (plain && is_word(text, nulls)) {
        oz_buf_puts(&c->out, "null");
    } else if (plain && is_word(text, trues)) {
        oz_buf_puts(&c->out, "true");
    } else if (plain && is_word(text, falses)) {
        oz_buf_puts(&c->out, "false");
    } else if (plain && is_number(text)) {
        oz_buf_puts(&c->out, text);
    } else {
        oz_buf_json(&c->out, text);
    }
}

/* What stands before a node: a comma, or nothing. Then it is a key, or a value. */
static bool before(struct converter *c)
{
    if (c->depth == 0) {
        return false;
    }
    struct level *l = &c->levels[c->depth - 1];
    bool key = l->mapping && !l->value;
    if (!l->empty && (key || !l->mapping)) {
        oz_buf_puts(&c->out, ",");
    }
    l->empty = false;
    if (l->mapping) {
        l->value = !l->value;
    }
    return key;
}

static enum oz_status open_level(struct converter *c, const yaml_event_t *event, bool mapping)
{
    if (before(c)) {
        return fail_at(c, event, "a key must be a text");
    }
    if (c->depth == MAX_DEPTH) {
        return fail_at(c, event, "nested too deep");
    }
    c->levels[c->depth++] = (struct level){.mapping = mapping, .empty = true};
    oz_buf_puts(&c->out, mapping ? "{" : "[");
    return OZ_OK;
}

static enum oz_status convert_event(struct converter *c, const yaml_event_t *event, int *documents)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return ++*documents > 1 ? fail_at(c, event, "a second document begins") : OZ_OK;
    case YAML_ALIAS_EVENT: return fail_at(c, event, "aliases are not taken");
    case YAML_SCALAR_EVENT: {
        if (event->data.scalar.anchor != NULL || event->data.scalar.tag != NULL) {
            return fail_at(c, event, "anchors and tags are not taken");
        }
        if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length) {
            return fail_at(c, event, "a text holds a zero byte");
        }
        bool key = before(c);
        put_scalar(c, event, key);
        oz_buf_puts(&c->out, key ? ":" : "");
        return OZ_OK;
    }
    case YAML_SEQUENCE_START_EVENT:
        if (event->data.sequence_start.anchor != NULL || event->data.sequence_start.tag != NULL) {
            return fail_at(c, event, "anchors and tags are not taken");
        }
        return open_level(c, event, false);
    case YAML_MAPPING_START_EVENT:
        if (event->data.mapping_start.anchor != NULL || event->data.mapping_start.tag != NULL) {
            return fail_at(c, event, "anchors and tags are not taken");
        }
        return open_level(c, event, true);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        oz_buf_puts(&c->out, c->levels[--c->depth].mapping ? "}" : "]");
        return OZ_OK;
    default: return OZ_OK;
    }
}

static enum oz_status convert(struct converter *c)
{
    int documents = 0;
    for (bool done = false; !done;) {
        yaml_event_t event;
        if (yaml_parser_parse(&c->parser, &event) == 0) {
            return OZ_FAIL(c->err, OZ_ERR_FORMAT,
                           "%s is not valid YAML: %s (line %zu, column %zu).", c->name,
                           c->parser.problem != NULL ? c->parser.problem : "unreadable",
                           c->parser.problem_mark.line + 1, c->parser.problem_mark.column + 1);
        }
        done = event.type == YAML_STREAM_END_EVENT;
        enum oz_status status = convert_event(c, &event, &documents);
        yaml_event_delete(&event);
        OZ_TRY(status);
        if (c->out.status != OZ_OK) {
            return c->out.status == OZ_ERR_NOMEM
                       ? OZ_FAIL_NOMEM(c->err, c->name)
                       : OZ_FAIL(c->err, OZ_ERR_FORMAT, "%s is too large.", c->name);
        }
    }
    if (documents == 0) {
        oz_buf_puts(&c->out, "null");
    }
    return c->out.status == OZ_OK ? OZ_OK : OZ_FAIL_NOMEM(c->err, c->name);
}

enum oz_status oz_yaml_to_json(const char *text, size_t bytes, const char *name, char **out,
                               struct oz_error *err)
{
    struct converter c = {.name = name, .err = err};
    *out = NULL;
    if (yaml_parser_initialize(&c.parser) == 0) {
        return OZ_FAIL_NOMEM(err, name);
    }
    oz_buf_init(&c.out, MAX_JSON_BYTES);
    yaml_parser_set_input_string(&c.parser, (const unsigned char *)text, bytes);
    enum oz_status status = convert(&c);
    yaml_parser_delete(&c.parser);
    if (status == OZ_OK) {
        *out = oz_buf_take(&c.out);
        status = *out != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, name);
    }
    oz_buf_deinit(&c.out);
    return status;
}

#else

enum oz_status oz_yaml_to_json(const char *text, size_t bytes, const char *name, char **out,
                               struct oz_error *err)
{
    (void)text;
    (void)bytes;
    *out = NULL;
    return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                   "%s: this build reads no YAML (libyaml was not found when it was configured); "
                   "write the config as JSON.",
                   name);
}

#endif
