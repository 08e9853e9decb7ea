/* One component: what may be written, its files (write_tensors.c), its config with what the format's
 * makers want to know. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "pipe/write.h"
#include "pipe/write_list.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

enum oz_status oz_write_count(void *ctx, int64_t bytes, struct oz_error *err)
{
    struct oz_write_progress *p = ctx;
    p->done += bytes;
    if (p->options->progress == NULL) {
        return OZ_OK;
    }
    struct oz_progress progress = {.struct_size = sizeof progress,
                                   .stage = OZ_STAGE_WRITE,
                                   .picture = -1,
                                   .done = p->done,
                                   .total = p->total};
    return p->options->progress(p->options->progress_ctx, &progress) == 0
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_CANCELLED, "Writing was interrupted.");
}

bool oz_write_is_quantized(const struct oz_component *c)
{
    return c->assignment.quantized > 0;
}

bool oz_write_is_made(const struct oz_component *c)
{
    return oz_write_is_quantized(c) || c->replaced || c->lora != NULL;
}

static enum oz_status check_merged(const struct oz_component *c, const struct oz_layer *row,
                                   struct oz_error *err)
{
    bool whole = (row->transform & ~(uint32_t)OZ_TRANSFORM_RESHAPE) == 0 && row->file_rows == 0 &&
                 row->file_row == 0;
    return whole ? OZ_OK
                 : OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s: its tensor in %s is not the layer's matrix as it stands, and "
                           "cannot be written with a LoRA merged into it; generate with --lora.",
                           row->module, c->folder);
}

enum oz_status oz_write_check_component(const struct oz_component *c, struct oz_error *err)
{
    struct oz_dialect_tensor tensors[OZ_DIALECT_TENSORS];
    int32_t count;
    if (c->stored.method != NULL && oz_write_is_made(c)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "The %s in %s is quantized already (%s); %s cannot be added to that. Start "
                       "from the checkpoint that is not quantized.",
                       c->name, c->folder, c->stored.method,
                       c->lora != NULL ? "a LoRA" : "what is plain in it");
    }
    for (int32_t i = 0; i < c->table.count; i++) {
        const struct oz_layer *row = &c->table.rows[i];
        if (oz_write_is_merged(c, i)) {
            OZ_TRY(check_merged(c, row, err));
        }
        if (!oz_write_is_encoded(c, i)) {
            continue;
        }
        int64_t tensor = c->match->row_tensor[i];
        OZ_TRY(oz_dialect_layout(tensors, &count, &c->assignment.choices[i].scheme, row,
                                 oz_write_dtype(c, tensor), err));
        if (tensor >= 0 && strcmp(oz_ckpt_tensor(c->ckpt, tensor)->name, row->name) != 0) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s shares the tensor %s, which stays as it is: no format holds it "
                           "quantized besides. Add %s to ignored_layers.",
                           row->module, oz_ckpt_tensor(c->ckpt, tensor)->name, row->module);
        }
    }
    return oz_dialect_check(&c->assignment, c->ckpt, c->of_transformers, err);
}

/* ---- the config ---- */

/* Its text with one member more at the end, where weights are quantized: everything else stays byte for
 * byte. */
static enum oz_status extend(struct oz_buf *out, const struct oz_component *c, const char *path,
                             const char *text, size_t bytes, struct oz_error *err)
{
    struct oz_json *json;
    OZ_TRY(oz_json_parse(&json, text, bytes, path, err));
    bool object = oz_json_type(json) == OZ_JSON_OBJECT && oz_json_count(json) > 0;
    bool has = oz_json_get(json, "quantization_config") != NULL;
    oz_json_free(json);
    if (!object || has) {
        return OZ_FAIL(err, OZ_ERR_FORMAT, "%s: %s.", path,
                       has ? "it has a \"quantization_config\", but the weights are plain"
                           : "a config must be an object");
    }
    if (!oz_write_is_quantized(c)) {
        oz_buf_append(out, text, bytes);
        return out->status == OZ_OK ? OZ_OK : OZ_FAIL_NOMEM(err, path);
    }
    size_t end = bytes; /* of the last member: what was parsed ends with a brace, and blanks */
    while (text[end - 1] != '}') {
        end--;
    }
    end--;
    while (strchr(" \t\r\n", text[end - 1]) != NULL) {
        end--;
    }
    oz_buf_append(out, text, end);
    oz_buf_puts(out, ",\n  \"quantization_config\": ");
    oz_dialect_config(out, &c->assignment, c->ckpt, c->of_transformers);
    oz_buf_puts(out, "\n}\n");
    return out->status == OZ_OK ? OZ_OK : OZ_FAIL_NOMEM(err, path);
}

static enum oz_status print_config(struct oz_buf *out, const struct oz_component *c,
                                   const char *folder, struct oz_error *err)
{
    char *text = NULL;
    size_t bytes;
    char *from = oz_file_join(folder, "config.json");
    enum oz_status status = from != NULL ? oz_file_read(from, MAX_CONFIG_BYTES, &text, &bytes, err)
                                         : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        status = extend(out, c, from, text, bytes, err);
    }
    oz_free(text);
    oz_free(from);
    return status;
}

static enum oz_status write_config(const struct oz_component *c, const char *folder,
                                   struct oz_error *err)
{
    struct oz_buf out;
    char *to = oz_file_join(folder, "config.json");
    oz_buf_init(&out, MAX_CONFIG_BYTES);
    enum oz_status status =
        to != NULL ? print_config(&out, c, c->config_folder, err) : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        status = oz_file_write(to, out.data, out.bytes, err);
    }
    oz_buf_deinit(&out);
    oz_free(to);
    return status;
}

enum oz_status oz_write_component(struct oz_component *c, struct oz_write_progress *progress,
                                  struct oz_error *err)
{
    struct oz_write_list list = {0};
    char *folder = oz_file_join(progress->journal->folder, c->name);
    enum oz_status status =
        folder != NULL ? oz_write_list_init(&list, c, err) : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        status = oz_write_tensors(&list, folder, progress, err);
    }
    if (status == OZ_OK) {
        status = write_config(c, folder, err);
    }
    oz_write_list_deinit(&list);
    oz_free(folder);
    return status;
}

enum oz_status oz_write_hash_component(uint64_t *hash, const struct oz_component *c,
                                       struct oz_error *err)
{
    struct oz_write_list list;
    struct oz_buf config;
    oz_buf_init(&config, MAX_CONFIG_BYTES);
    enum oz_status status = oz_write_list_init(&list, c, err);
    if (status == OZ_OK) {
        status = print_config(&config, c, c->config_folder, err);
    }
    if (status == OZ_OK) {
        *hash = oz_write_hash(*hash, c->stem, strlen(c->stem) + 1);
        *hash = oz_write_list_hash(&list, *hash);
        *hash = oz_write_hash(*hash, config.data, config.bytes);
    }
    oz_buf_deinit(&config);
    oz_write_list_deinit(&list);
    return status;
}
