#include "pipe/find.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"

#define MAX_PATH_BYTES 65536U

/* "<folder of the program>/../share/ounce/models", or an empty string where that is unknown. */
static void append_program_folder(struct oz_buf *b)
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) {
        return;
    }
    program[n] = '\0';
    char *slash = strrchr(program, '/');
    if (slash != NULL) {
        *slash = '\0';
        oz_buf_printf(b, "%s/../share/ounce/models", program);
    }
}

/* Looks for `name` in the folders where bundled models live; *path stays NULL when it is nowhere.
 * `places` gets what was looked at. */
static enum oz_status find_bundled(const char *name, char **path, struct oz_buf *places,
                                   struct oz_error *err)
{
    const char *variable = getenv("OUNCE_MODELS");
    for (int i = 0; i < 3 && *path == NULL; i++) {
        struct oz_buf b;
        oz_buf_init(&b, MAX_PATH_BYTES);
        if (i == 0 && variable != NULL) {
            oz_buf_puts(&b, variable);
        } else if (i == 1) {
            append_program_folder(&b);
        } else if (i == 2) {
            oz_buf_puts(&b, OUNCE_DATA_DIR "/models");
        }
        if (b.bytes > 0) {
            oz_buf_printf(&b, "/%s", name);
            oz_buf_printf(places, "%s%s", places->bytes > 0 ? ", " : "", oz_buf_text(&b));
        }
        bool found = b.bytes > 0 && oz_file_is_folder(oz_buf_text(&b));
        enum oz_status status = b.status;
        if (found) {
            *path = oz_buf_take(&b);
            status = *path != NULL ? OZ_OK : OZ_ERR_NOMEM;
        }
        oz_buf_deinit(&b);
        if (status != OZ_OK) {
            return OZ_FAIL_NOMEM(err, "a path");
        }
    }
    return OZ_OK;
}

static enum oz_status check_given(const char *name, bool *is_folder, struct oz_error *err)
{
    *is_folder = oz_file_is_folder(name);
    if (!*is_folder && oz_file_exists(name)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s is a file; a model is a folder in the diffusers layout (with a "
                       "model_index.json). To take a transformer from a file, name the model's "
                       "folder and add --transformer %s.",
                       name, name);
    }
    return OZ_OK;
}

/* ---- the Hugging Face cache on disk ---- */

/* Is it "org/name", as the Hub has it: two parts of letters, digits, '-', '_' and '.', none of which
 * begins with a point? */
static bool is_hub_name(const char *name)
{
    int slashes = 0;
    for (const char *p = name; *p != '\0'; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '-' || *p == '_' || *p == '.';
        bool first = p == name || p[-1] == '/';
        if (*p == '/' ? first || p[1] == '\0' : !plain || (first && *p == '.')) {
            return false;
        }
        slashes += *p == '/';
    }
    return slashes == 1 && strlen(name) <= 256;
}

/* The folder of the cache: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or
 * HOME/.cache/huggingface/hub. Empty without any of them. */
static void append_cache_folder(struct oz_buf *b)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof *places && b->bytes == 0; i++) {
        const char *value = getenv(places[i].variable);
        if (value != NULL && value[0] != '\0') {
            oz_buf_printf(b, "%s%s", value, places[i].below);
        }
    }
}

/* The revision that refs/main names, checked: it becomes part of a path. */
static enum oz_status read_revision(const char *repository, char revision[65], struct oz_error *err)
{
    char *path = oz_file_join(repository, "refs/main");
    char *text = NULL;
    size_t bytes = 0;
    if (path == NULL) {
        return OZ_FAIL_NOMEM(err, "a path");
    }
    enum oz_status status = oz_file_read(path, 4096, &text, &bytes, err);
    if (status == OZ_OK) {
        size_t n = strspn(text, "0123456789abcdef");
        if (n == 0 || n > 64 || text[n + strspn(text + n, " \r\n")] != '\0') {
            status =
                OZ_FAIL(err, OZ_ERR_FORMAT,
                        "%s does not hold the name of a revision. Download the model again.", path);
        } else {
            memcpy(revision, text, n);
            revision[n] = '\0';
        }
    }
    oz_free(text);
    oz_free(path);
    return status;
}

/* Says how a model gets into the cache. */
static enum oz_status fail_hub(const char *name, const char *cache, const char *what,
                               struct oz_error *err)
{
    return OZ_FAIL(err, OZ_ERR_NO_MODEL,
                   "%s %s %s. ounce does not download; this command does: hf download %s. Or give "
                   "the folder that holds the model_index.json.",
                   name, what, cache[0] != '\0' ? cache : "(there is no cache: set HF_HOME)", name);
}

/* "<cache>/models--org--name" */
static void append_repository(struct oz_buf *b, const char *cache, const char *name)
{
    const char *slash = strchr(name, '/');
    oz_buf_printf(b, "%s/models--%.*s--%s", cache, (int)(slash - name), name, slash + 1);
}

/* Finds "org/name" in the cache; *path is its snapshot. */
static enum oz_status find_hub(const char *name, char **path, struct oz_error *err)
{
    struct oz_buf cache;
    struct oz_buf b;
    char revision[65];
    oz_buf_init(&cache, MAX_PATH_BYTES);
    oz_buf_init(&b, MAX_PATH_BYTES);
    append_cache_folder(&cache);
    append_repository(&b, oz_buf_text(&cache), name);
    enum oz_status status = OZ_OK;
    if (cache.bytes == 0 || !oz_file_is_folder(oz_buf_text(&b))) {
        status = fail_hub(name, oz_buf_text(&cache), "is no folder here, and is not in", err);
    } else {
        status = read_revision(oz_buf_text(&b), revision, err);
    }
    if (status == OZ_OK) {
        oz_buf_printf(&b, "/snapshots/%s", revision);
        if (!oz_file_is_folder(oz_buf_text(&b))) {
            status = fail_hub(name, oz_buf_text(&b), "is only begun: there is no", err);
        }
    }
    if (status == OZ_OK) {
        *path = oz_buf_take(&b);
        status = *path != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a path");
    }
    oz_buf_deinit(&cache);
    oz_buf_deinit(&b);
    return status;
}

enum oz_status oz_model_find(const char *name, char **path, struct oz_error *err)
{
    bool bundled = name == NULL || name[0] == '\0';
    *path = NULL;
    if (!bundled) {
        bool is_folder;
        OZ_TRY(check_given(name, &is_folder, err));
        if (is_folder) {
            *path = oz_strdup(name);
            return *path != NULL ? OZ_OK : OZ_FAIL_NOMEM(err, "a path");
        }
    }
    if (!bundled && is_hub_name(name)) {
        return find_hub(name, path, err);
    }
    struct oz_buf places;
    oz_buf_init(&places, MAX_PATH_BYTES);
    enum oz_status status = OZ_OK;
    if (bundled || strchr(name, '/') == NULL) {
        status = find_bundled(bundled ? OZ_BUNDLED_MODEL : name, path, &places, err);
    }
    if (status == OZ_OK && *path == NULL) {
        status = bundled ? OZ_FAIL(err, OZ_ERR_NO_MODEL,
                                   "The bundled model is not installed; looked for %s. Set "
                                   "OUNCE_MODELS to the folder that holds it, or name a model.",
                                   oz_buf_text(&places))
                         : OZ_FAIL(err, OZ_ERR_NO_MODEL,
                                   "No such model: there is no folder %s%s%s. Give the folder that "
                                   "holds the model_index.json, or no name for the bundled model.",
                                   name, places.bytes > 0 ? ", nor " : "", oz_buf_text(&places));
    }
    oz_buf_deinit(&places);
    return status;
}

/* Is the path `path`, all links followed, within the folder? */
static enum oz_status check_within(const char *path, const char *folder, struct oz_error *err)
{
    char whole[PATH_MAX];
    if (realpath(path, whole) == NULL) {
        return OZ_OK; /* what is not there is said by whoever opens it */
    }
    size_t n = strlen(folder);
    if (strncmp(whole, folder, n) != 0 || whole[n] != '/') {
        return OZ_FAIL(err, OZ_ERR_FORMAT,
                       "%s leads to %s, out of its repository %s. Download the model again.", path,
                       whole, folder);
    }
    return OZ_OK;
}

static enum oz_status check_folder(const char *path, const char *repository, int depth,
                                   struct oz_error *err)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return OZ_OK;
    }
    enum oz_status status = OZ_OK;
    for (struct dirent *e = readdir(dir); e != NULL && status == OZ_OK; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        char *one = oz_file_join(path, e->d_name);
        status = one != NULL ? check_within(one, repository, err) : OZ_FAIL_NOMEM(err, "a path");
        if (status == OZ_OK && depth > 0 && oz_file_is_folder(one)) {
            status = check_folder(one, repository, depth - 1, err);
        }
        oz_free(one);
    }
    (void)closedir(dir);
    return status;
}

enum oz_status oz_model_check_links(const char *path, struct oz_error *err)
{
    static const char middle[] = "/snapshots/";
    char whole[PATH_MAX];
    if (realpath(path, whole) == NULL) {
        return OZ_OK;
    }
    char *snapshots = strstr(whole, middle);
    for (char *p = snapshots; p != NULL; p = strstr(p + 1, middle)) {
        snapshots = p;
    }
    if (snapshots == NULL) {
        return OZ_OK;
    }
    char repository[PATH_MAX];
    (void)snprintf(repository, sizeof repository, "%.*s", (int)(snapshots - whole), whole);
    const char *name = strrchr(repository, '/');
    if (name == NULL || strncmp(name + 1, "models--", 8) != 0) {
        return OZ_OK;
    }
    return check_folder(whole, repository, 4, err);
}
