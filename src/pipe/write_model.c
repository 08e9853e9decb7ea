/* The folder: where the model grows, what is copied, how it gets its name. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "pipe/write.h"

#define MARK ".ounce-part" /* the file that says whose the folder is */
#define INDEX "model_index.json"

struct job {
    struct oz_pipeline *p;
    const struct oz_write_options *o;
    char *output;     /* without slashes at its end */
    char *part, *old; /* beside it: where the model grows, where the replaced one waits */
    int lock;         /* the mark's descriptor; -1: the part is not ours */
    bool there;       /* a model that is replaced */
    struct oz_write_progress progress;
    bool counting; /* the first walk of the source */
};

static char *with_ending(const char *path, const char *ending)
{
    size_t n = strlen(path) + strlen(ending) + 1;
    char *text = oz_alloc(n);
    if (text != NULL) {
        (void)snprintf(text, n, "%s%s", path, ending);
    }
    return text;
}

static bool holds(const char *folder, const char *file)
{
    char *path = oz_file_join(folder, file);
    bool there = path != NULL && oz_file_exists(path);
    oz_free(path);
    return there;
}

/* ---- what may be written to ---- */

/* Does `path`, which need not be there, lie in the source or is it the source? */
static enum oz_status check_apart(const struct job *j, struct oz_error *err)
{
    char source[PATH_MAX];
    char target[PATH_MAX];
    const char *slash = strrchr(j->output, '/');
    char *parent = slash == NULL        ? oz_strdup(".")
                   : slash == j->output ? oz_strdup("/")
                                        : oz_strndup(j->output, (size_t)(slash - j->output));
    if (parent == NULL) {
        return OZ_FAIL_NOMEM(err, j->output);
    }
    bool known = realpath(j->p->path, source) != NULL &&
                 (realpath(j->output, target) != NULL || realpath(parent, target) != NULL);
    enum oz_status status = OZ_OK;
    size_t n = strlen(source);
    if (!known) {
        status = OZ_FAIL(err, OZ_ERR_IO, "Cannot write to %s: %s: %s.", j->output, parent,
                         strerror(errno));
    } else if (strncmp(source, target, n) == 0 && (target[n] == '\0' || target[n] == '/')) {
        status = OZ_FAIL(err, OZ_ERR_ARG,
                         "%s is the model that is read, or lies in it (%s); write to a folder "
                         "beside it.",
                         j->output, j->p->path);
    }
    oz_free(parent);
    return status;
}

static enum oz_status check_output(struct job *j, struct oz_error *err)
{
    struct stat st;
    if (j->output[0] == '\0') {
        return OZ_FAIL(err, OZ_ERR_ARG, "A folder to write the model to is missing.");
    }
    OZ_TRY(check_apart(j, err));
    if (lstat(j->output, &st) != 0 || oz_folder_is_empty(j->output)) {
        return OZ_OK;
    }
    j->there = S_ISDIR(st.st_mode) && holds(j->output, INDEX);
    if (!j->there) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "%s is there already and is no model (it has no " INDEX
                       "); it is never replaced. Write to another folder.",
                       j->output);
    }
    return j->o->overwrite
               ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_ARG,
                         "%s holds a model already. Write to another folder, or ask for it to be "
                         "replaced (--overwrite).",
                         j->output);
}

/* Takes the folder beside the output: a new one, or what an interrupted process left. */
static enum oz_status open_part(struct job *j, struct oz_error *err)
{
    char *mark = oz_file_join(j->part, MARK);
    if (mark == NULL) {
        return OZ_FAIL_NOMEM(err, j->part);
    }
    enum oz_status status = OZ_OK;
    if (oz_file_exists(j->part) && !oz_file_exists(mark) && !oz_folder_is_empty(j->part)) {
        status = OZ_FAIL(err, OZ_ERR_ARG,
                         "%s is in the way: ounce writes there, but has not made it. Move it away.",
                         j->part);
    }
    if (status == OZ_OK) {
        status = oz_file_make_folder(j->part, err);
    }
    if (status == OZ_OK) {
        j->lock = open(mark, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (j->lock < 0) {
            status = OZ_FAIL(err, OZ_ERR_IO, "Cannot write %s: %s.", mark, strerror(errno));
        } else if (flock(j->lock, LOCK_EX | LOCK_NB) != 0) {
            (void)close(j->lock);
            j->lock = -1;
            status = OZ_FAIL(err, OZ_ERR_IO, "Another process is writing %s.", j->output);
        }
    }
    oz_free(mark);
    if (status != OZ_OK) {
        (void)rmdir(j->part); /* where nothing is in it: it was made just now */
    }
    return status;
}

/* ---- copying ---- */

/* The component whose folder an entry lies in, and the name within it. */
static struct oz_component *component_of(const struct job *j, const char *relative,
                                         const char **within)
{
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        struct oz_component *c = &j->p->components[i];
        size_t n = strlen(c->name);
        if (strncmp(relative, c->name, n) == 0 && relative[n] == '/') {
            *within = relative + n + 1;
            return c;
        }
    }
    return NULL;
}

static bool ends_with(const char *text, const char *ending)
{
    size_t n = strlen(text);
    size_t m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

static bool is_hidden(const char *relative)
{
    return relative[0] == '.' || strstr(relative, "/.") != NULL;
}

/* Is the file made anew: a quantized component's weights and config? Other weights in its folder would
 * be a second truth beside them. */
static bool is_made(const struct job *j, const char *relative)
{
    const char *within = NULL;
    const struct oz_component *c = component_of(j, relative, &within);
    return c != NULL && oz_write_is_quantized(c) &&
           (strcmp(within, "config.json") == 0 || ends_with(within, ".safetensors") ||
            ends_with(within, ".safetensors.index.json"));
}

static enum oz_status copy_entry(void *ctx, const char *relative, enum oz_entry_kind kind,
                                 int64_t bytes, struct oz_error *err)
{
    struct job *j = ctx;
    if (is_hidden(relative) || is_made(j, relative) || strcmp(relative, INDEX) == 0) {
        return OZ_OK;
    }
    if (kind == OZ_ENTRY_OTHER) {
        if (j->counting) {
            oz_log(OZ_LOG_WARN, "write", "%s/%s is neither a file nor a folder: not copied.",
                   j->p->path, relative);
        }
        return OZ_OK;
    }
    if (j->counting) {
        j->progress.total += bytes;
        return OZ_OK;
    }
    char *from = oz_file_join(j->p->path, relative);
    char *to = oz_file_join(j->part, relative);
    enum oz_status status = from == NULL || to == NULL ? OZ_FAIL_NOMEM(err, relative)
                            : kind == OZ_ENTRY_FOLDER
                                ? oz_file_make_folder(to, err)
                                : oz_folder_copy_file(from, to, oz_write_count, &j->progress, err);
    oz_free(from);
    oz_free(to);
    return status;
}

/* After all else: with it the folder is a model. */
static enum oz_status copy_index(struct job *j, struct oz_error *err)
{
    char *from = oz_file_join(j->p->path, INDEX);
    char *to = oz_file_join(j->part, INDEX);
    enum oz_status status = from != NULL && to != NULL
                                ? oz_folder_copy_file(from, to, NULL, NULL, err)
                                : OZ_FAIL_NOMEM(err, INDEX);
    oz_free(from);
    oz_free(to);
    return status;
}

static enum oz_status sync_entry(void *ctx, const char *relative, enum oz_entry_kind kind,
                                 int64_t bytes, struct oz_error *err)
{
    const struct job *j = ctx;
    (void)bytes;
    if (kind != OZ_ENTRY_FOLDER) {
        return OZ_OK;
    }
    char *path = oz_file_join(j->part, relative);
    enum oz_status status = path != NULL ? oz_folder_sync(path, err) : OZ_FAIL_NOMEM(err, relative);
    oz_free(path);
    return status;
}

/* ---- the whole ---- */

static enum oz_status write_components(struct job *j, struct oz_error *err)
{
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        struct oz_component *c = &j->p->components[i];
        if (!oz_write_is_quantized(c)) {
            continue;
        }
        char *folder = oz_file_join(j->part, c->name);
        enum oz_status status =
            folder != NULL ? oz_file_make_folder(folder, err) : OZ_FAIL_NOMEM(err, c->name);
        if (status == OZ_OK) {
            status = oz_write_component(c, folder, &j->progress, err);
        }
        oz_free(folder);
        OZ_TRY(status);
    }
    return OZ_OK;
}

/* The part gets the model's name; what has it waits until then, and goes. */
static enum oz_status rename_part(struct job *j, struct oz_error *err)
{
    if (j->there) {
        OZ_TRY(oz_folder_remove(j->old, err)); /* of an earlier one that was stopped right here */
        if (rename(j->output, j->old) != 0) {
            return OZ_FAIL(err, OZ_ERR_IO, "Cannot rename %s: %s.", j->output, strerror(errno));
        }
    }
    if (rename(j->part, j->output) != 0) {
        int error = errno;
        if (j->there && rename(j->old, j->output) != 0) {
            oz_log(OZ_LOG_ERROR, "write", "The model that was %s is now %s.", j->output, j->old);
        }
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot rename %s to %s: %s.", j->part, j->output,
                       strerror(error));
    }
    char *mark = oz_file_join(j->output, MARK);
    if (mark != NULL) {
        (void)unlink(mark); /* it says nothing under that name */
    }
    oz_free(mark);
    return j->there ? oz_folder_remove(j->old, err) : OZ_OK;
}

static enum oz_status fill_part(struct job *j, struct oz_error *err)
{
    OZ_TRY(oz_folder_clear(j->part, MARK, err)); /* what another one left */
    j->counting = true;
    OZ_TRY(oz_folder_walk(j->p->path, copy_entry, j, err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *c = &j->p->components[i];
        for (int64_t k = 0; oz_write_is_quantized(c) && k < oz_ckpt_count(c->ckpt); k++) {
            j->progress.total += oz_ckpt_tensor(c->ckpt, k)->bytes;
        }
        for (int32_t k = 0; oz_write_is_quantized(c) && k < oz_ckpt_stray_count(c->ckpt); k++) {
            oz_log(OZ_LOG_WARN, "write", "%s/%s is not part of the model and is not copied.",
                   c->folder, oz_ckpt_stray(c->ckpt, k));
        }
    }
    j->counting = false;
    OZ_TRY(write_components(j, err));
    OZ_TRY(oz_folder_walk(j->p->path, copy_entry, j, err));
    OZ_TRY(copy_index(j, err));
    OZ_TRY(oz_write_count(&j->progress, 0, err)); /* the last moment at which it can be stopped */
    OZ_TRY(oz_folder_walk(j->part, sync_entry, j, err));
    return oz_folder_sync(j->part, err);
}

static enum oz_status check_model(const struct job *j, struct oz_error *err)
{
    bool any = false;
    OZ_TRY(oz_pipeline_check(j->p, err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        OZ_TRY(oz_write_check_component(&j->p->components[i], err));
        any = any || oz_write_is_quantized(&j->p->components[i]);
    }
    return any ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_ARG,
                         "Nothing of the model would be quantized; say how (--quantization fp8).");
}

static enum oz_status run(struct job *j, struct oz_error *err)
{
    OZ_TRY(check_model(j, err));
    OZ_TRY(check_output(j, err));
    OZ_TRY(open_part(j, err));
    enum oz_status status = fill_part(j, err);
    if (status == OZ_OK) {
        status = rename_part(j, err);
    }
    if (status != OZ_OK) {
        struct oz_error second;
        if (oz_folder_remove(j->part, &second) != OZ_OK) {
            oz_log(OZ_LOG_ERROR, "write", "%s", second.message);
        }
    }
    (void)close(j->lock);
    return status;
}

enum oz_status oz_pipeline_write(struct oz_pipeline *p, const struct oz_write_options *options,
                                 struct oz_error *err)
{
    struct job j = {.p = p, .o = options, .lock = -1, .progress = {.options = options}};
    size_t n = strlen(options->output);
    while (n > 1 && options->output[n - 1] == '/') {
        n--;
    }
    j.output = oz_strndup(options->output, n);
    j.part = j.output != NULL ? with_ending(j.output, MARK) : NULL;
    j.old = j.output != NULL ? with_ending(j.output, ".ounce-old") : NULL;
    enum oz_status status =
        j.part != NULL && j.old != NULL ? run(&j, err) : OZ_FAIL_NOMEM(err, options->output);
    oz_free(j.output);
    oz_free(j.part);
    oz_free(j.old);
    return status;
}
