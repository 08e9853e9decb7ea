#include "ckpt/table.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/map.h"
#include "base/names.h"
#include "ckpt/container.h"
#include "num/gguf.h"

#define MAX_INDEX_BYTES (64U << 20)
#define MAX_FILES 10000
#define MAX_LIST_BYTES (1U << 20)
#define SHOWN_MISSING 50 /* shards in one message */

/* Room for one more of a growing list of the table. */
static bool grow(void **list, int64_t count, int64_t *capacity, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    int64_t more = *capacity + *capacity / 2 + 16;
    void *data = oz_realloc(*list, (size_t)more * size);
    if (data == NULL) {
        return false;
    }
    *list = data;
    *capacity = more;
    return true;
}

static bool grow32(void **list, int32_t count, int32_t *capacity, size_t size)
{
    int64_t wide = *capacity;
    bool ok = grow(list, count, &wide, size);
    *capacity = (int32_t)wide;
    return ok;
}

const char *oz_ckpt_own(struct oz_ckpt *c, const char *text)
{
    void *list = c->strings;
    if (!grow(&list, c->string_count, &c->string_capacity, sizeof *c->strings)) {
        return NULL;
    }
    c->strings = list;
    char *copy = oz_strdup(text);
    if (copy != NULL) {
        c->strings[c->string_count++] = copy;
    }
    return copy;
}

struct oz_tensor_view *oz_ckpt_add_tensor(struct oz_ckpt *c)
{
    void *list = c->tensors;
    if (!grow(&list, c->count, &c->capacity, sizeof *c->tensors)) {
        return NULL;
    }
    c->tensors = list;
    c->tensors[c->count] = (struct oz_tensor_view){0};
    return &c->tensors[c->count++];
}

enum oz_status oz_ckpt_add_meta(struct oz_ckpt *c, const char *key, const char *value)
{
    void *list = c->meta;
    if (!grow32(&list, c->meta_count, &c->meta_capacity, sizeof *c->meta)) {
        return OZ_ERR_NOMEM;
    }
    c->meta = list;
    struct oz_ckpt_meta m = {oz_ckpt_own(c, key), oz_ckpt_own(c, value)};
    if (m.key == NULL || m.value == NULL) {
        return OZ_ERR_NOMEM;
    }
    c->meta[c->meta_count++] = m;
    return OZ_OK;
}

enum oz_status oz_ckpt_add_file(struct oz_ckpt *c, const char *path, int32_t *index,
                                struct oz_error *err)
{
    void *files = c->files;
    void *maps = c->maps;
    int32_t capacity = c->file_capacity;
    if (!grow32(&files, c->file_count, &capacity, sizeof *c->files)) {
        return OZ_FAIL_NOMEM(err, path);
    }
    c->files = files;
    if (!grow32(&maps, c->file_count, &c->file_capacity, sizeof *c->maps)) {
        return OZ_FAIL_NOMEM(err, path);
    }
    c->maps = maps;
    const char *copy = oz_ckpt_own(c, path);
    if (copy == NULL) {
        return OZ_FAIL_NOMEM(err, path);
    }
    struct oz_filemap *map = &c->maps[c->file_count];
    OZ_TRY(oz_filemap_open(map, path, err));
    c->files[c->file_count] =
        (struct oz_ckpt_file){.path = copy, .fd = map->fd, .bytes = map->bytes, .map = map->data};
    *index = c->file_count++;
    return OZ_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct oz_tensor_view *x = a;
    const struct oz_tensor_view *y = b;
    return strcmp(x->name, y->name);
}

/* Twice is in two shards. */
enum oz_status oz_ckpt_sort(struct oz_ckpt *c, struct oz_error *err)
{
    if (c->count > 0) {
        qsort(c->tensors, (size_t)c->count, sizeof *c->tensors, by_name);
    }
    for (int64_t i = 1; i < c->count; i++) {
        const struct oz_tensor_view *a = &c->tensors[i - 1];
        const struct oz_tensor_view *b = &c->tensors[i];
        if (strcmp(a->name, b->name) != 0) {
            continue;
        }
        if (strcmp(oz_tensor_file_name(a), oz_tensor_file_name(b)) != 0) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "Tensors %s and %s of %s are one parameter under the names of two "
                           "conventions, %s.",
                           oz_tensor_file_name(a), oz_tensor_file_name(b), c->files[a->file].path,
                           a->name);
        }
        return OZ_FAIL(err, OZ_ERR_FORMAT, "Tensor %s is in both %s and %s.", a->name,
                       c->files[a->file].path, c->files[b->file].path);
    }
    return OZ_OK;
}

/* A shard's name must be a plain file name: no folders, no way out. */
static bool plain_name(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* The names of the shards, each once, in the order of the index. */
struct shards {
    const char **names; /* [count] */
    size_t count;
    struct oz_string_map known;
};

static void free_shards(struct shards *s)
{
    oz_string_map_deinit(&s->known);
    oz_free((void *)s->names);
}

/* All must be plain names, and not too many. */
static enum oz_status list_shards(struct shards *s, const struct oz_json *map,
                                  const char *index_path, struct oz_error *err)
{
    size_t entries = oz_json_count(map);
    size_t most = entries < MAX_FILES ? entries : MAX_FILES;
    s->names = oz_alloc_zero(most, sizeof *s->names);
    if (s->names == NULL) {
        return OZ_FAIL_NOMEM(err, index_path);
    }
    OZ_TRY(oz_string_map_init(&s->known, most, err));
    for (void *it = oz_json_first(map); it != NULL; it = oz_json_next(map, it)) {
        const char *name = oz_json_string(oz_json_value(it), NULL);
        if (name == NULL || !plain_name(name)) {
            return OZ_FAIL(err, OZ_ERR_FORMAT,
                           "%s: tensor %s is said to be in \"%s\", which is not a plain file name.",
                           index_path, oz_json_key(it),
                           name != NULL ? name : oz_json_type_name(oz_json_value(it)));
        }
        if (oz_string_map_get(&s->known, name, strlen(name), -1) >= 0) {
            continue;
        }
        if (s->count == most) {
            return OZ_FAIL(err, OZ_ERR_FORMAT, "%s names more than %d files.", index_path,
                           MAX_FILES);
        }
        (void)oz_string_map_put(&s->known, name, strlen(name), (int32_t)s->count);
        s->names[s->count++] = name;
    }
    return OZ_OK;
}

/* The missing ones are named before anything is read. */
static enum oz_status check_shards(const struct shards *s, const char *folder,
                                   const char *index_path, struct oz_error *err)
{
    const char *missing[SHOWN_MISSING];
    size_t count = 0;
    for (size_t i = 0; i < s->count && count < SHOWN_MISSING; i++) {
        char *path = oz_file_join(folder, s->names[i]);
        if (path == NULL) {
            return OZ_FAIL_NOMEM(err, s->names[i]);
        }
        if (!oz_file_exists(path)) {
            missing[count++] = s->names[i];
        }
        oz_free(path);
    }
    if (count == 0) {
        return OZ_OK;
    }
    struct oz_buf list;
    oz_buf_init(&list, MAX_LIST_BYTES);
    oz_names_fold(&list, missing, count);
    enum oz_status status = OZ_FAIL(
        err, OZ_ERR_FORMAT, "%s names shards that are not there (is the download complete?): %s%s.",
        index_path, oz_buf_text(&list), count == SHOWN_MISSING ? " and perhaps more" : "");
    oz_buf_deinit(&list);
    return status;
}

/* Opens the shards that the index names, each once. */
static enum oz_status open_shards(struct oz_ckpt *c, const struct oz_json *map, const char *folder,
                                  const char *index_path, struct oz_error *err)
{
    struct shards s = {0};
    enum oz_status status = list_shards(&s, map, index_path, err);
    if (status == OZ_OK) {
        status = check_shards(&s, folder, index_path, err);
    }
    for (size_t i = 0; i < s.count && status == OZ_OK; i++) {
        char *path = oz_file_join(folder, s.names[i]);
        int32_t file;
        status =
            path != NULL ? oz_ckpt_add_file(c, path, &file, err) : OZ_FAIL_NOMEM(err, s.names[i]);
        oz_free(path);
        if (status == OZ_OK) {
            status = oz_safetensors_read(c, file, err);
        }
    }
    free_shards(&s);
    return status;
}

/* Index against headers, both ways; every disagreement is named. */
static enum oz_status compare_index(const struct oz_ckpt *c, const struct oz_json *map,
                                    const char *index_path, struct oz_error *err)
{
    size_t entries = oz_json_count(map);
    const char **wrong = oz_alloc_zero(entries + (size_t)c->count, sizeof *wrong);
    if (wrong == NULL) {
        return OZ_FAIL_NOMEM(err, index_path);
    }
    size_t absent = 0;
    const char *shard = ""; /* where the first of them should be */
    for (void *it = oz_json_first(map); it != NULL; it = oz_json_next(map, it)) {
        const struct oz_tensor_view *t = oz_ckpt_find(c, oz_json_key(it), NULL);
        const char *file = oz_json_string(oz_json_value(it), "");
        const char *path = t != NULL ? c->files[t->file].path : "";
        const char *slash = strrchr(path, '/');
        if (t == NULL || strcmp(slash != NULL ? slash + 1 : path, file) != 0) {
            shard = absent == 0 ? file : shard;
            wrong[absent++] = oz_json_key(it);
        }
    }
    size_t extra = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (oz_json_get(map, c->tensors[i].name) == NULL) {
            wrong[absent + extra++] = c->tensors[i].name;
        }
    }
    enum oz_status status = OZ_OK;
    if (absent + extra > 0) {
        struct oz_buf text;
        oz_buf_init(&text, MAX_LIST_BYTES);
        if (absent > 0) {
            oz_buf_puts(&text, " Not in the shard that the index names: ");
            oz_names_fold(&text, wrong, absent);
            oz_buf_printf(&text, " (%s%s).", absent == 1 ? "" : "the first: ", shard);
        }
        if (extra > 0) {
            oz_buf_puts(&text, " In a shard but not in the index: ");
            oz_names_fold(&text, wrong + absent, extra);
            oz_buf_puts(&text, ".");
        }
        status = OZ_FAIL(err, OZ_ERR_FORMAT, "%s and its shards disagree.%s", index_path,
                         oz_buf_text(&text));
        if (text.bytes + strlen(index_path) + 64 > OZ_ERROR_MESSAGE_BYTES) {
            oz_log(OZ_LOG_ERROR, "ckpt", "%s:%s", index_path, oz_buf_text(&text));
        }
        oz_buf_deinit(&text);
    }
    oz_free(wrong);
    return status;
}

static enum oz_status open_index(struct oz_ckpt *c, const char *path, const char *folder,
                                 struct oz_error *err)
{
    struct oz_json *root = NULL;
    OZ_TRY(oz_json_parse_file(&root, path, MAX_INDEX_BYTES, err));
    const struct oz_json *map = oz_json_get(root, "weight_map");
    enum oz_status status = OZ_OK;
    if (oz_json_type(map) != OZ_JSON_OBJECT || oz_json_count(map) == 0) {
        status = OZ_FAIL(err, OZ_ERR_FORMAT, "%s has no \"weight_map\" with tensors.", path);
    }
    if (status == OZ_OK) {
        status = open_shards(c, map, folder, path, err);
    }
    if (status == OZ_OK) {
        status = oz_ckpt_sort(c, err);
    }
    if (status == OZ_OK) {
        status = compare_index(c, map, path, err);
    }
    oz_json_free(root);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The kind is told by the first bytes, whatever the name is. */
static bool is_gguf(const struct oz_ckpt_file *f)
{
    char magic[4];
    return f->bytes >= 4 && oz_file_pread(f->fd, magic, 4, 0) && memcmp(magic, "GGUF", 4) == 0;
}

static enum oz_status open_single(struct oz_ckpt *c, const char *path, struct oz_error *err)
{
    int32_t file;
    OZ_TRY(oz_ckpt_add_file(c, path, &file, err));
    bool gguf = is_gguf(&c->files[file]) || ends_with(path, ".gguf");
    OZ_TRY(gguf ? oz_gguf_read(c, file, err) : oz_safetensors_read(c, file, err));
    OZ_TRY(oz_ckpt_sort(c, err));
    return gguf ? oz_gguf_restore_shapes(c, err) : OZ_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Checkpoint files in the folder that the table does not use, in byte order. */
static enum oz_status find_strays(struct oz_ckpt *c, const char *folder, struct oz_error *err)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return OZ_OK; /* readable files in a folder that cannot be listed: nothing to say */
    }
    int32_t capacity = 0;
    enum oz_status status = OZ_OK;
    for (struct dirent *e = readdir(dir); e != NULL && status == OZ_OK; e = readdir(dir)) {
        if (!ends_with(e->d_name, ".safetensors") && !ends_with(e->d_name, ".gguf")) {
            continue;
        }
        bool used = false;
        for (int32_t i = 0; i < c->file_count; i++) {
            const char *slash = strrchr(c->files[i].path, '/');
            const char *name = slash != NULL ? slash + 1 : c->files[i].path;
            used = used || strcmp(name, e->d_name) == 0;
        }
        if (used) {
            continue;
        }
        void *list = c->strays;
        if (!grow32(&list, c->stray_count, &capacity, sizeof *c->strays)) {
            status = OZ_FAIL_NOMEM(err, folder);
            break;
        }
        c->strays = list;
        char *copy = oz_strdup(e->d_name);
        if (copy == NULL) {
            status = OZ_FAIL_NOMEM(err, folder);
            break;
        }
        c->strays[c->stray_count++] = copy;
    }
    closedir(dir);
    if (c->stray_count > 0) {
        qsort(c->strays, (size_t)c->stray_count, sizeof *c->strays, by_text);
    }
    return status;
}

/* Looks for "<stem><suffix>" in the folder; path is fresh memory or NULL when absent. */
static enum oz_status look_for(const char *folder, const char *stem, const char *suffix,
                               char **path, struct oz_error *err)
{
    struct oz_buf b;
    oz_buf_init(&b, 1U << 16);
    oz_buf_printf(&b, "%s/%s%s", folder, stem, suffix);
    *path = oz_buf_take(&b);
    if (*path == NULL) {
        return OZ_FAIL_NOMEM(err, folder);
    }
    if (!oz_file_exists(*path)) {
        oz_free(*path);
        *path = NULL;
    }
    return OZ_OK;
}

/* Is it a part of a GGUF file in parts, but the first? */
static bool is_later_part(const char *name)
{
    size_t n = strlen(name);
    static const char first[] = "-00001-of-00000.gguf";
    size_t tail = sizeof first - 1;
    return n > tail && name[n - tail] == '-' && strncmp(name + n - tail + 6, "-of-", 4) == 0 &&
           strncmp(name + n - tail, first, 6) != 0;
}

#define INDEX ".safetensors.index.json"

/* The one index of a folder without the usual names, or its one file, whatever their own names: GGUF files,
 * msModelSlim's and those that ComfyUI uses have names of their own. */
static enum oz_status open_lone_file(struct oz_ckpt *c, const char *folder, const char *stem,
                                     struct oz_error *err)
{
    char *name = NULL;
    int files = 0;
    int indexes = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        bool index = ends_with(e->d_name, INDEX);
        bool file = ends_with(e->d_name, ".safetensors") ||
                    (ends_with(e->d_name, ".gguf") && !is_later_part(e->d_name));
        if (index || (file && indexes == 0)) {
            oz_free(name);
            name = oz_strdup(e->d_name);
        }
        indexes += index;
        files += file;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (indexes > 1 || (indexes == 0 && files != 1)) {
        oz_free(name);
        return OZ_FAIL(err, OZ_ERR_IO,
                       "%s holds no checkpoint that ounce reads: neither %s" INDEX
                       ", nor %s.safetensors, nor one index, .safetensors or .gguf file of another "
                       "name (but %d).",
                       folder, stem, stem, indexes > 1 ? indexes : files);
    }
    char *path = name != NULL ? oz_file_join(folder, name) : NULL;
    oz_free(name);
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, folder);
    }
    enum oz_status status =
        indexes > 0 ? open_index(c, path, folder, err) : open_single(c, path, err);
    oz_free(path);
    OZ_TRY(status);
    return indexes > 0 ? find_strays(c, folder, err) : OZ_OK;
}

static enum oz_status open_folder(struct oz_ckpt *c, const char *folder, const char *const *stems,
                                  struct oz_error *err)
{
    static const char *const usual[] = {"diffusion_pytorch_model", "model", NULL};
    static const char *const suffixes[] = {INDEX, ".safetensors"};
    for (const char *const *stem = stems != NULL ? stems : usual; *stem != NULL; stem++) {
        for (int i = 0; i < 2; i++) {
            char *path;
            OZ_TRY(look_for(folder, *stem, suffixes[i], &path, err));
            if (path == NULL) {
                continue;
            }
            enum oz_status status =
                i == 0 ? open_index(c, path, folder, err) : open_single(c, path, err);
            oz_free(path);
            OZ_TRY(status);
            return find_strays(c, folder, err);
        }
    }
    return open_lone_file(c, folder, stems != NULL ? stems[0] : usual[0], err);
}

enum oz_status oz_ckpt_open(struct oz_ckpt **out, const char *path, const char *const *stems,
                            struct oz_error *err)
{
    return oz_ckpt_open_limited(out, path, stems, 0, err);
}

enum oz_status oz_ckpt_open_limited(struct oz_ckpt **out, const char *path,
                                    const char *const *stems, int64_t max_header_bytes,
                                    struct oz_error *err)
{
    *out = NULL;
    struct oz_ckpt *c = oz_alloc_zero(1, sizeof *c);
    if (c == NULL) {
        return OZ_FAIL_NOMEM(err, path);
    }
    c->max_header_bytes = max_header_bytes > 0 ? max_header_bytes : OZ_CKPT_MAX_HEADER_BYTES;
    enum oz_status status;
    if (oz_file_is_folder(path)) {
        status = open_folder(c, path, stems, err);
    } else if (ends_with(path, ".index.json")) {
        const char *slash = strrchr(path, '/');
        char *folder = slash != NULL ? oz_strndup(path, (size_t)(slash - path)) : oz_strdup(".");
        status = folder != NULL ? open_index(c, path, folder, err) : OZ_FAIL_NOMEM(err, path);
        if (status == OZ_OK) {
            status = find_strays(c, folder, err);
        }
        oz_free(folder);
    } else {
        status = open_single(c, path, err);
    }
    if (status != OZ_OK) {
        oz_ckpt_close(&c);
        return status;
    }
    *out = c;
    return OZ_OK;
}

void oz_ckpt_close(struct oz_ckpt **ckpt)
{
    struct oz_ckpt *c = *ckpt;
    if (c == NULL) {
        return;
    }
    for (int32_t i = 0; i < c->file_count; i++) {
        oz_filemap_close(&c->maps[i]);
    }
    oz_ckpt_drawn_destroy(c->drawn);
    for (int64_t i = 0; i < c->string_count; i++) {
        oz_free(c->strings[i]);
    }
    for (int32_t i = 0; i < c->stray_count; i++) {
        oz_free(c->strays[i]);
    }
    oz_free(c->strays);
    oz_free(c->strings);
    oz_free(c->meta);
    oz_free(c->tensors);
    oz_free(c->maps);
    oz_free(c->files);
    oz_free(c);
    *ckpt = NULL;
}

static enum oz_status rename_one(struct oz_ckpt *c, struct oz_tensor_view *t, oz_ckpt_name_fn fn,
                                 void *ctx, struct oz_error *err)
{
    struct oz_buf text;
    enum oz_status status = OZ_OK;
    oz_buf_init(&text, OZ_CKPT_MAX_NAME_BYTES);
    if (fn(ctx, t->name, &text)) {
        if (text.status != OZ_OK || text.bytes == 0) {
            status = text.status == OZ_ERR_NOMEM
                         ? OZ_FAIL_NOMEM(err, t->name)
                         : OZ_FAIL(err, OZ_ERR_FORMAT,
                                   "Tensor %s: nothing or too much is left of its name.", t->name);
        } else {
            const char *name = oz_ckpt_own(c, oz_buf_text(&text));
            status = name != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, t->name);
            t->file_name = oz_tensor_file_name(t);
            t->name = name != NULL ? name : t->name;
        }
    }
    oz_buf_deinit(&text);
    return status;
}

enum oz_status oz_ckpt_rename(struct oz_ckpt *c, oz_ckpt_name_fn fn, void *ctx,
                              struct oz_error *err)
{
    for (int64_t i = 0; i < c->count; i++) {
        OZ_TRY(rename_one(c, &c->tensors[i], fn, ctx, err));
    }
    return oz_ckpt_sort(c, err);
}

/* A part of a tensor as a view of its own. */
static enum oz_status part_of(struct oz_ckpt *c, const struct oz_ckpt_part *p,
                              struct oz_tensor_view *out, struct oz_error *err)
{
    const struct oz_tensor_view *t = &c->tensors[p->tensor];
    int64_t elements = 1;
    int64_t bytes = 0;
    bool fits = p->rank >= 0 && p->rank <= OZ_CKPT_MAX_RANK && t->codec == NULL;
    for (int32_t i = 0; i < p->rank && fits; i++) {
        fits = p->shape[i] >= 0 && !__builtin_mul_overflow(elements, p->shape[i], &elements);
    }
    if (!fits || !oz_dtype_bytes(t->dtype, elements, &bytes) || bytes != p->bytes ||
        p->first_byte < 0 || p->first_byte > t->bytes - bytes) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Tensor %s has no part %s.", t->name, p->name);
    }
    *out = *t;
    out->name = oz_ckpt_own(c, p->name);
    out->file_name = oz_tensor_file_name(t);
    out->rank = p->rank;
    memcpy(out->shape, p->shape, sizeof out->shape);
    out->elements = elements;
    out->bytes = bytes;
    out->file_offset = t->file_offset + p->first_byte;
    out->data = bytes > 0 ? t->data + p->first_byte : NULL;
    return out->name != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, t->name);
}

enum oz_status oz_ckpt_divide(struct oz_ckpt *c, const struct oz_ckpt_part *parts, int64_t count,
                              struct oz_error *err)
{
    struct oz_tensor_view *list = oz_alloc_zero((size_t)(c->count + count), sizeof *list);
    enum oz_status status = list != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "tensors' parts");
    int64_t kept = 0;
    for (int64_t i = 0; i < count && status == OZ_OK; i++) {
        status = part_of(c, &parts[i], &list[kept++], err);
    }
    if (status != OZ_OK) {
        oz_free(list);
        return status;
    }
    for (int64_t i = 0; i < count; i++) {
        c->tensors[parts[i].tensor].name = NULL; /* gone */
    }
    for (int64_t i = 0; i < c->count; i++) {
        if (c->tensors[i].name != NULL) {
            list[kept++] = c->tensors[i];
        }
    }
    oz_free(c->tensors);
    c->tensors = list;
    c->capacity = c->count + count;
    c->count = kept;
    return oz_ckpt_sort(c, err);
}

static bool without_prefix(void *ctx, const char *name, struct oz_buf *out)
{
    const char *prefix = ctx;
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0) {
        return false;
    }
    oz_buf_puts(out, name + n);
    return true;
}

enum oz_status oz_ckpt_strip(struct oz_ckpt *ckpt, const char *prefix, struct oz_error *err)
{
    return oz_ckpt_rename(ckpt, without_prefix, (void *)(uintptr_t)prefix, err);
}

bool oz_ckpt_has(const struct oz_ckpt *ckpt, const char *prefix, const char *name)
{
    char text[OZ_CKPT_MAX_NAME_BYTES + 1];
    int n = snprintf(text, sizeof text, "%s%s", prefix, name);
    return n > 0 && (size_t)n < sizeof text && oz_ckpt_find(ckpt, text, NULL) != NULL;
}

int64_t oz_ckpt_count(const struct oz_ckpt *ckpt)
{
    return ckpt->count;
}

const struct oz_tensor_view *oz_ckpt_tensor(const struct oz_ckpt *ckpt, int64_t index)
{
    return &ckpt->tensors[index];
}

const struct oz_tensor_view *oz_ckpt_find(const struct oz_ckpt *ckpt, const char *name,
                                          int64_t *index)
{
    struct oz_tensor_view key = {.name = name};
    if (ckpt->count == 0) {
        return NULL;
    }
    const struct oz_tensor_view *t =
        bsearch(&key, ckpt->tensors, (size_t)ckpt->count, sizeof key, by_name);
    if (t != NULL && index != NULL) {
        *index = t - ckpt->tensors;
    }
    return t;
}

int32_t oz_ckpt_file_count(const struct oz_ckpt *ckpt)
{
    return ckpt->file_count;
}

const struct oz_ckpt_file *oz_ckpt_file(const struct oz_ckpt *ckpt, int32_t index)
{
    return &ckpt->files[index];
}

const char *oz_ckpt_metadata(const struct oz_ckpt *ckpt, const char *key)
{
    for (int32_t i = 0; i < ckpt->meta_count; i++) {
        if (strcmp(ckpt->meta[i].key, key) == 0) {
            return ckpt->meta[i].value;
        }
    }
    return NULL;
}

bool oz_ckpt_metadata_at(const struct oz_ckpt *ckpt, int32_t index, const char **key,
                         const char **value)
{
    if (index < 0 || index >= ckpt->meta_count) {
        return false;
    }
    *key = ckpt->meta[index].key;
    *value = ckpt->meta[index].value;
    return true;
}

int32_t oz_ckpt_stray_count(const struct oz_ckpt *ckpt)
{
    return ckpt->stray_count;
}

const char *oz_tensor_file_name(const struct oz_tensor_view *t)
{
    return t->file_name != NULL ? t->file_name : t->name;
}

const char *oz_tensor_format(const struct oz_tensor_view *t)
{
    const struct oz_gguf_type *type = oz_gguf_type_of(t->codec);
    return type != NULL ? type->name : oz_dtype_name(t->dtype);
}

const char *oz_ckpt_stray(const struct oz_ckpt *ckpt, int32_t index)
{
    return ckpt->strays[index];
}
