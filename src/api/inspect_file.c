/* `inspect` of a lone checkpoint: what the container says, without a model that it would belong to. */
#include <inttypes.h>
#include <string.h>

#include "api/engine.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"

#define MAX_TEXT_BYTES ((size_t)512 << 20)
#define MAX_FORMATS 64  /* types of elements and blocks */
#define SHOWN_BYTES 200 /* of a value of the metadata, for people */

/* Sums over the tensors of one format. */
struct format {
    const char *name;
    int64_t tensors, elements, bytes;
};

static int count_formats(const struct oz_ckpt *ckpt, struct format list[MAX_FORMATS])
{
    int count = 0;
    for (int64_t i = 0; i < oz_ckpt_count(ckpt); i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(ckpt, i);
        const char *name = oz_tensor_format(t);
        int at = 0;
        while (at < count && strcmp(list[at].name, name) != 0) {
            at++;
        }
        if (at == MAX_FORMATS) {
            continue; /* there are fewer in all */
        }
        if (at == count) {
            list[count++] = (struct format){.name = name};
        }
        list[at].tensors++;
        list[at].elements += t->elements;
        list[at].bytes += t->bytes;
    }
    return count;
}

static void put_shape(struct oz_buf *b, const struct oz_tensor_view *t)
{
    oz_buf_puts(b, "[");
    for (int32_t i = 0; i < t->rank; i++) {
        oz_buf_printf(b, "%s%" PRId64, i > 0 ? "," : "", t->shape[i]);
    }
    oz_buf_puts(b, "]");
}

static void put_text(struct oz_buf *b, const char *path, const struct oz_ckpt *ckpt, bool tensors)
{
    struct format list[MAX_FORMATS];
    int count = count_formats(ckpt, list);
    int32_t files = oz_ckpt_file_count(ckpt);
    const char *key;
    const char *value;
    oz_buf_printf(b, "%s: %" PRId64 " tensors, %d file%s\n", path, oz_ckpt_count(ckpt), (int)files,
                  files == 1 ? "" : "s");
    for (int32_t i = 0; oz_ckpt_metadata_at(ckpt, i, &key, &value); i++) {
        bool cut = strlen(value) > SHOWN_BYTES;
        oz_buf_printf(b, "  %s = %.*s%s\n", key, SHOWN_BYTES, value, cut ? " ..." : "");
    }
    for (int i = 0; i < count; i++) {
        oz_buf_printf(
            b, "  %-8s %5" PRId64 " tensors  %12" PRId64 " parameters  %.1f MiB  %.3f bits\n",
            list[i].name, list[i].tensors, list[i].elements, (double)list[i].bytes / (1024 * 1024),
            list[i].elements > 0 ? 8 * (double)list[i].bytes / (double)list[i].elements : 0);
    }
    for (int64_t i = 0; i < oz_ckpt_count(ckpt) && tensors; i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(ckpt, i);
        oz_buf_printf(b, "  %-60s %-5s ", t->name, oz_tensor_format(t));
        put_shape(b, t);
        oz_buf_printf(b, " %" PRId64 " bytes\n", t->bytes);
    }
}

static void put_json(struct oz_buf *b, const char *path, const struct oz_ckpt *ckpt, bool tensors)
{
    struct format list[MAX_FORMATS];
    int count = count_formats(ckpt, list);
    const char *key;
    const char *value;
    oz_buf_puts(b, "{\"path\":");
    oz_buf_json(b, path);
    oz_buf_printf(b, ",\"tensors\":%" PRId64 ",\"metadata\":{", oz_ckpt_count(ckpt));
    for (int32_t i = 0; oz_ckpt_metadata_at(ckpt, i, &key, &value); i++) {
        oz_buf_puts(b, i > 0 ? ",\n" : "\n");
        oz_buf_json(b, key);
        oz_buf_puts(b, ":");
        oz_buf_json(b, value);
    }
    oz_buf_puts(b, "},\"formats\":[");
    for (int i = 0; i < count; i++) {
        oz_buf_printf(b,
                      "%s{\"name\":\"%s\",\"tensors\":%" PRId64 ",\"parameters\":%" PRId64
                      ",\"bytes\":%" PRId64 "}",
                      i > 0 ? "," : "", list[i].name, list[i].tensors, list[i].elements,
                      list[i].bytes);
    }
    oz_buf_puts(b, tensors ? "],\"tensor_list\":[" : "]");
    for (int64_t i = 0; i < oz_ckpt_count(ckpt) && tensors; i++) {
        const struct oz_tensor_view *t = oz_ckpt_tensor(ckpt, i);
        oz_buf_puts(b, i > 0 ? ",\n{\"name\":" : "\n{\"name\":");
        oz_buf_json(b, t->name);
        oz_buf_printf(b, ",\"dtype\":\"%s\",\"shape\":", oz_tensor_format(t));
        put_shape(b, t);
        oz_buf_printf(b, ",\"bytes\":%" PRId64 "}", t->bytes);
    }
    oz_buf_puts(b, tensors ? "]}\n" : "}\n");
}

bool oz_api_is_checkpoint(const char *path)
{
    static const char *const endings[] = {".safetensors", ".gguf", ".safetensors.index.json"};
    size_t n = path != NULL ? strlen(path) : 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t m = strlen(endings[i]);
        if (n > m && strcmp(path + n - m, endings[i]) == 0) {
            return !oz_file_is_folder(path);
        }
    }
    return false;
}

enum oz_status oz_api_inspect_file(const char *path, const struct oz_inspect_options *options,
                                   oz_write_fn write, void *ctx, struct oz_error *err)
{
    struct oz_ckpt *ckpt;
    struct oz_buf b;
    if (options->transformer != NULL && options->transformer[0] != '\0') {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%s is a lone checkpoint, which has no transformer to be replaced; give a "
                       "model, or leave --transformer out.",
                       path);
    }
    OZ_TRY(oz_ckpt_open_limited(&ckpt, path, NULL, options->max_header_bytes, err));
    oz_buf_init(&b, MAX_TEXT_BYTES);
    if (options->json) {
        put_json(&b, path, ckpt, options->tensors != 0);
    } else {
        put_text(&b, path, ckpt, options->tensors != 0);
        oz_api_replace_controls(&b);
    }
    enum oz_status status = OZ_OK;
    if (b.status != OZ_OK) {
        status = OZ_FAIL(err, b.status, "The description of %s is too large.", path);
    } else if (write(ctx, b.data, b.bytes) != 0) {
        status = OZ_FAIL(err, OZ_ERR_IO, "The description could not be written.");
    }
    oz_buf_deinit(&b);
    oz_ckpt_close(&ckpt);
    return status;
}
