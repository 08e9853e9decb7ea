/* deploy.c: deploy configs; the one file of the server that knows libyaml. */
#include "server.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/words.h"
#include "json.h"
#include "text.h"

void sv_deploy_free(struct sv_deploy *deploy)
{
    free(deploy->model);
    free(deploy->quantization);
    free(deploy->quantization_config);
    free(deploy->device);
    free(deploy->default_sampling_params);
    *deploy = (struct sv_deploy){0};
}

#if OZ_SERVER_YAML

#include <yaml.h>

enum { FILE_BYTES = 64 * 1024, JSON_BYTES = 64 * 1024, DEPTH = 8 };

struct reader {
    struct sv_deploy *deploy;
    const char *path;
    yaml_document_t document;
    struct oz_error *err;
};

static const char *scalar(const yaml_node_t *node)
{
    return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value
                                                          : NULL;
}

/* ---- YAML as JSON ---- */

static void put_scalar(struct sv_text *out, const yaml_node_t *node)
{
    const char *text = scalar(node);
    char *end = NULL;
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    double number = strtod(text, &end);
    if (plain && sv_one_of(text, "true True TRUE")) {
        sv_json_put_bool(out, NULL, true);
    } else if (plain && sv_one_of(text, "false False FALSE")) {
        sv_json_put_bool(out, NULL, false);
    } else if (plain && (text[0] == '\0' || sv_one_of(text, "null Null NULL ~"))) {
        sv_json_put_string(out, NULL, NULL);
    } else if (plain && *end == '\0' && isfinite(number) &&
               text[strspn(text, "+-0123456789.eE")] == '\0') {
        if (text[strspn(text, "-0123456789")] == '\0') {
            sv_json_put_integer(out, NULL, strtoll(text, NULL, 10));
        } else {
            sv_json_put_number(out, NULL, number);
        }
    } else {
        sv_json_put_string(out, NULL, text);
    }
}

/* False: too deep, too long or a key that is no scalar. Aliases may say much with little. */
static bool put_node(struct reader *r, struct sv_text *out, int index, int depth)
{
    yaml_node_t *node = yaml_document_get_node(&r->document, index);
    if (node == NULL || depth > DEPTH || out->bytes > JSON_BYTES) {
        return false;
    }
    if (node->type == YAML_SEQUENCE_NODE) {
        sv_json_open(out, NULL, '[');
        for (yaml_node_item_t *i = node->data.sequence.items.start;
             i < node->data.sequence.items.top; i++) {
            if (!put_node(r, out, *i, depth + 1)) {
                return false;
            }
        }
        sv_json_close(out, ']');
    } else if (node->type == YAML_MAPPING_NODE) {
        sv_json_open(out, NULL, '{');
        for (yaml_node_pair_t *i = node->data.mapping.pairs.start; i < node->data.mapping.pairs.top;
             i++) {
            const char *key = scalar(yaml_document_get_node(&r->document, i->key));
            if (key == NULL) {
                return false;
            }
            sv_json_put_raw(out, key, "");
            if (!put_node(r, out, i->value, depth + 1)) {
                return false;
            }
        }
        sv_json_close(out, '}');
    } else {
        put_scalar(out, node);
    }
    return true;
}

/* ---- keys ---- */

static enum oz_status take_text(struct reader *r, char **slot, const char *key, int index)
{
    const char *text = scalar(yaml_document_get_node(&r->document, index));
    if (text == NULL || text[0] == '\0') {
        return sv_error(r->err, OZ_ERR_ARG, "%s: %s must be a text.", r->path, key);
    }
    if (*slot != NULL) {
        return sv_error(r->err, OZ_ERR_ARG, "%s: %s is given twice.", r->path, key);
    }
    *slot = sv_copy(text);
    return *slot != NULL ? OZ_OK : sv_error(r->err, OZ_ERR_NOMEM, "Out of memory.");
}

static enum oz_status take_json(struct reader *r, char **slot, const char *key, int index)
{
    struct sv_text out = {0};
    const yaml_node_t *node = yaml_document_get_node(&r->document, index);
    if (node == NULL || node->type != YAML_MAPPING_NODE || !put_node(r, &out, index, 0) ||
        out.failed || *slot != NULL) {
        sv_text_free(&out);
        return sv_error(r->err, OZ_ERR_ARG,
                        "%s: %s must be one mapping of at most %d bytes and %d levels.", r->path,
                        key, JSON_BYTES, DEPTH);
    }
    *slot = out.data;
    return OZ_OK;
}

static enum oz_status take_count(struct reader *r, const char *key, int index)
{
    const char *text = scalar(yaml_document_get_node(&r->document, index));
    size_t n = text != NULL ? strspn(text, "0123456789") : 0;
    long number = n > 0 && n < 5 && text[n] == '\0' ? strtol(text, NULL, 10) : 0;
    if (number < 1 || number > 64) {
        return sv_error(r->err, OZ_ERR_ARG, "%s: %s must be a whole number from 1 to 64.", r->path,
                        key);
    }
    r->deploy->max_num_seqs = (int)number;
    return OZ_OK;
}

/* "cpu", "cuda:1", or the number of a card as vLLM has it; a list of one. */
static enum oz_status take_devices(struct reader *r, const char *key, int index)
{
    yaml_node_t *node = yaml_document_get_node(&r->document, index);
    if (node != NULL && node->type == YAML_SEQUENCE_NODE &&
        node->data.sequence.items.top - node->data.sequence.items.start == 1) {
        node = yaml_document_get_node(&r->document, node->data.sequence.items.start[0]);
    }
    const char *text = scalar(node);
    if (text == NULL || text[0] == '\0' || strchr(text, ',') != NULL) {
        return sv_error(r->err, OZ_ERR_ARG, "%s: %s must be one device; ounce runs a stage on one.",
                        r->path, key);
    }
    bool number = text[strspn(text, "0123456789")] == '\0';
    free(r->deploy->device);
    r->deploy->device = sv_format("%s%s", number ? "cuda:" : "", text);
    return r->deploy->device != NULL ? OZ_OK : sv_error(r->err, OZ_ERR_NOMEM, "Out of memory.");
}

static enum oz_status take_stage(struct reader *r, int index);

static enum oz_status take_stages(struct reader *r, int index)
{
    const yaml_node_t *node = yaml_document_get_node(&r->document, index);
    if (node == NULL || node->type != YAML_SEQUENCE_NODE ||
        node->data.sequence.items.top - node->data.sequence.items.start != 1) {
        return sv_error(r->err, OZ_ERR_UNSUPPORTED,
                        "%s: stages must be a list of one; pipelines of several are not supported.",
                        r->path);
    }
    return take_stage(r, node->data.sequence.items.start[0]);
}

static enum oz_status take(struct reader *r, const char *key, int index, bool top)
{
    struct sv_deploy *d = r->deploy;
    if (top && strcmp(key, "stages") == 0) {
        return take_stages(r, index);
    }
    if (!top && strcmp(key, "stage_id") == 0) {
        return OZ_OK; /* its name among one */
    }
    if (strcmp(key, "model") == 0) {
        return take_text(r, &d->model, key, index);
    }
    if (strcmp(key, "quantization") == 0) {
        return take_text(r, &d->quantization, key, index);
    }
    if (strcmp(key, "quantization_config") == 0) {
        return take_json(r, &d->quantization_config, key, index);
    }
    if (strcmp(key, "max_num_seqs") == 0) {
        return take_count(r, key, index);
    }
    if (strcmp(key, "devices") == 0) {
        return take_devices(r, key, index);
    }
    if (strcmp(key, "default_sampling_params") == 0) {
        return take_json(r, &d->default_sampling_params, key, index);
    }
    static const char *const names[] = {"model",        "quantization", "quantization_config",
                                        "max_num_seqs", "devices",      "default_sampling_params",
                                        "stages"};
    const char *nearest = words_nearest(key, names, sizeof names / sizeof *names);
    return sv_error(
        r->err, OZ_ERR_ARG,
        "%s: ounce has no key '%.100s'%s%s%s It takes model, "
        "quantization, quantization_config, max_num_seqs, devices, default_sampling_params, "
        "and stages with one stage.",
        r->path, key, nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
        nearest != NULL ? "'?" : ".");
}

static enum oz_status take_mapping(struct reader *r, int index, bool top)
{
    const yaml_node_t *node = yaml_document_get_node(&r->document, index);
    enum oz_status status = OZ_OK;
    if (node == NULL || node->type != YAML_MAPPING_NODE) {
        return sv_error(r->err, OZ_ERR_ARG, "%s: keys with values are expected.", r->path);
    }
    for (yaml_node_pair_t *i = node->data.mapping.pairs.start;
         status == OZ_OK && i < node->data.mapping.pairs.top; i++) {
        const char *key = scalar(yaml_document_get_node(&r->document, i->key));
        status = take(r, key != NULL ? key : "", i->value, top);
    }
    return status;
}

static enum oz_status take_stage(struct reader *r, int index)
{
    return take_mapping(r, index, false);
}

enum oz_status sv_deploy_read(struct sv_deploy *deploy, const char *path, struct oz_error *err)
{
    struct sv_text text = {0};
    struct reader r = {.deploy = deploy, .path = path, .err = err};
    yaml_parser_t parser;
    const char *why = NULL;
    *deploy = (struct sv_deploy){0};
    if (!sv_read_file(&text, path, FILE_BYTES, &why)) {
        sv_text_free(&text);
        return sv_error(err, OZ_ERR_IO, "--deploy-config %s cannot be read: %s.", path, why);
    }
    if (!yaml_parser_initialize(&parser)) {
        sv_text_free(&text);
        return sv_error(err, OZ_ERR_NOMEM, "Out of memory.");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.data, text.bytes);
    enum oz_status status;
    if (!yaml_parser_load(&parser, &r.document)) {
        status =
            sv_error(err, OZ_ERR_FORMAT, "%s, line %zu: %s.", path, parser.problem_mark.line + 1,
                     parser.problem != NULL ? parser.problem : "this is no YAML");
    } else {
        status = yaml_document_get_root_node(&r.document) == NULL
                     ? sv_error(err, OZ_ERR_ARG, "%s is empty.", path)
                     : take_mapping(&r, 1, true);
        yaml_document_delete(&r.document);
    }
    yaml_parser_delete(&parser);
    sv_text_free(&text);
    if (status != OZ_OK) {
        sv_deploy_free(deploy);
    }
    return status;
}

#else

enum oz_status sv_deploy_read(struct sv_deploy *deploy, const char *path, struct oz_error *err)
{
    *deploy = (struct sv_deploy){0};
    return sv_error(err, OZ_ERR_UNSUPPORTED,
                    "--deploy-config %s: this build reads no YAML; configure it with libyaml "
                    "(-DOUNCE_YAML=ON).",
                    path);
}

#endif
