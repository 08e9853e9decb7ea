/* One component: what may be written, its files (write_tensors.c), its config with what the format's
 * makers want to know. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
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
    return oz_write_is_quantized(c) || c->replaced || c->lora != NULL || c->converted;
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
    if (c->stored.method != NULL && oz_write_is_made(c) && !c->converted) {
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
        bool coded = oz_match_stored(c->match, i) != NULL; /* its tensors have names of their own */
        if (tensor >= 0 && !coded &&
            strcmp(oz_ckpt_tensor(c->ckpt, tensor)->name, row->name) != 0) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s shares the tensor %s, which stays as it is: no format holds it "
                           "quantized besides. Add %s to ignored_layers.",
                           row->module, oz_ckpt_tensor(c->ckpt, tensor)->name, row->module);
        }
    }
    return oz_dialect_check(&c->assignment, c->ckpt, c->of_transformers, err);
}

/* ---- the config ---- */

/* Behind a JSON value, string or blank that begins at `at`; of a text that has been parsed. */
static size_t skip_value(const char *text, size_t bytes, size_t at)
{
    int depth = 0;
    bool quoted = false;
    for (; at < bytes; at++) {
        char x = text[at];
        if (quoted) {
            at += x == '\\';
            quoted = x != '"';
        } else if (depth == 0 && strchr(",}]", x) != NULL) {
            break;
        } else {
            quoted = x == '"';
            depth += (x == '{' || x == '[') - (x == '}' || x == ']');
        }
    }
    return at < bytes ? at : bytes;
}

/* Takes a member out of an object's text, which has been parsed and has others besides; returns its
 * length then. Everything else stays byte for byte. */
static size_t cut_member(char *text, size_t bytes, const char *key)
{
    size_t n = strlen(key);
    size_t at = (size_t)(strchr(text, '{') - text) + 1;
    size_t before = at; /* the comma that stands before a member */
    while (at < bytes && text[at] != '}') {
        size_t name = at + strspn(text + at, " \t\r\n");
        size_t end = skip_value(text, bytes, name);
        if (text[name] == '"' && strncmp(text + name + 1, key, n) == 0 &&
            text[name + 1 + n] == '"') {
            bool first = text[before] != ',';
            size_t from = first ? at : before;
            size_t to = first && text[end] == ',' ? end + 1 : end;
            if (text[end] == '}') { /* the blanks before the brace stay */
                while (strchr(" \t\r\n", text[to - 1]) != NULL) {
                    to--;
                }
            }
            memmove(text + from, text + to, bytes - to + 1);
            return bytes - (to - from);
        }
        before = end;
        at = text[end] == ',' ? end + 1 : end;
    }
    return bytes;
}

/* Its text with one member more at the end, where weights are quantized, and without those that told how
 * they were, where they are converted: everything else stays byte for byte. */
static enum oz_status extend(struct oz_buf *out, const struct oz_component *c, const char *path,
                             char *text, size_t bytes, struct oz_error *err)
{
    static const char *const told[] = {"quantization_config", "compression_config"};
    struct oz_json *json;
    OZ_TRY(oz_json_parse(&json, text, bytes, path, err));
    bool has = oz_json_get(json, told[0]) != NULL;
    bool object = oz_json_type(json) == OZ_JSON_OBJECT && oz_json_count(json) > (has ? 1 : 0);
    for (size_t i = 0; i < sizeof told / sizeof *told && object && c->converted; i++) {
        bytes = oz_json_get(json, told[i]) != NULL ? cut_member(text, bytes, told[i]) : bytes;
        has = false;
    }
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

/* ---- what becomes of it ---- */

#define CODECS 24 /* that are told of */

struct tally {
    const struct oz_codec *codecs[CODECS];
    int32_t counts[CODECS], count;
    int32_t rows;
};

static void count_codec(struct tally *t, const struct oz_codec *codec)
{
    int32_t i = 0;
    while (i < t->count && t->codecs[i] != codec) {
        i++;
    }
    t->rows++;
    if (i < CODECS) {
        t->codecs[i] = codec;
        t->counts[i]++;
        t->count = i == t->count ? i + 1 : t->count;
    }
}

/* "72 layers (q4_k 60, q6_k 12) are expanded to bf16, " */
static void put_tally(struct oz_buf *out, const struct tally *t, const char *what)
{
    if (t->rows == 0) {
        return;
    }
    oz_buf_printf(out, "%d layer%s (", (int)t->rows, t->rows == 1 ? "" : "s");
    for (int32_t i = 0; i < t->count; i++) {
        oz_buf_printf(out, "%s%s %d", i > 0 ? ", " : "", t->codecs[i]->name, (int)t->counts[i]);
    }
    oz_buf_printf(out, ") %s, ", what);
}

static enum oz_status tell_list(const struct oz_write_list *l, struct oz_error *err)
{
    const struct oz_component *c = l->c;
    struct tally expanded = {0};
    struct tally kept = {0};
    struct oz_buf text;
    int32_t copies = 0;
    int64_t dropped = 0;
    int64_t before = 0;
    int64_t after = 0;
    for (int32_t i = 0; i < l->row_count; i++) {
        int32_t row = l->rows[i].row;
        const struct oz_stored_weight *stored = oz_match_stored(c->match, row);
        if (stored != NULL) { /* a plain codec: its elements in another order */
            count_codec(oz_write_is_expanded(c, row) ? &expanded : &kept,
                        stored->codec != NULL ? stored->codec : c->stored.schemes[row].codec);
        }
    }
    for (int32_t i = 0; i < l->spec_count; i++) {
        int64_t elements = 1;
        int64_t bytes = 0;
        for (int32_t k = 0; k < l->specs[i].rank; k++) {
            elements *= l->specs[i].shape[k];
        }
        copies += l->copies[i] != NULL;
        after += oz_dtype_bytes(l->specs[i].dtype, elements, &bytes) ? bytes : 0;
    }
    for (int64_t i = 0; i < oz_ckpt_count(c->ckpt); i++) {
        bool gone = oz_write_is_dropped(c, i);
        if (gone && dropped++ == 0) {
            oz_log(OZ_LOG_WARN, "write",
                   "%s: %s is quantized in the file and nothing of ounce reads it: it and its like "
                   "are left out, and other programs may miss them.",
                   c->name, oz_ckpt_tensor(c->ckpt, i)->name);
        }
        before += oz_ckpt_tensor(c->ckpt, i)->bytes;
    }
    oz_buf_init(&text, 4096);
    put_tally(&text, &expanded, "become bf16");
    put_tally(&text, &kept, "keep their codes");
    oz_buf_printf(&text, "%d tensors are copied; %.1f MB become %.1f MB", (int)copies,
                  (double)before / 1e6, (double)after / 1e6);
    enum oz_status status = text.status == OZ_OK ? OZ_OK : OZ_FAIL_NOMEM(err, c->name);
    if (status == OZ_OK) {
        oz_log(OZ_LOG_INFO, "write", "%s (%s): %s.", c->name,
               c->stored.method != NULL ? c->stored.method : "plain", oz_buf_text(&text));
    }
    oz_buf_deinit(&text);
    return status;
}

enum oz_status oz_write_tell_component(const struct oz_component *c, struct oz_error *err)
{
    struct oz_write_list list;
    if (!c->converted) {
        return OZ_OK;
    }
    enum oz_status status = oz_write_list_init(&list, c, err);
    if (status == OZ_OK) {
        status = tell_list(&list, err);
    }
    oz_write_list_deinit(&list);
    return status;
}
