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
#include "load/lora.h"
#include "pipe/write.h"
#include "pipe/write_list.h"

#define MARK OZ_WRITE_MARK
#define INDEX "model_index.json"

struct job {
    struct oz_pipeline *p;
    const struct oz_write_options *o;
    char *output;     /* without slashes at its end */
    char *part, *old; /* beside it: where the model grows, where the replaced one waits */
    int lock;         /* the mark's descriptor; -1: the part is not ours */
    bool there;       /* a model that is replaced */
    bool known;       /* the part is new, or its journal has been read */
    struct oz_write_identity identity;
    struct oz_write_journal journal;
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
        } else {
            struct stat st;
            j->known = fstat(j->lock, &st) == 0 && st.st_size == 0;
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

/* Is the file made anew: such a component's weights and config? Other weights in its folder would
 * be a second truth beside them. */
static bool is_made(const struct job *j, const char *relative)
{
    const char *within = NULL;
    const struct oz_component *c = component_of(j, relative, &within);
    return c != NULL && oz_write_is_made(c) &&
           (strcmp(within, "config.json") == 0 || ends_with(within, ".safetensors") ||
            ends_with(within, ".safetensors.index.json") ||
            (c->converted && (ends_with(within, ".gguf") || oz_stored_describes(within))));
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
    if (oz_write_journal_has(&j->journal, relative)) {
        return oz_write_count(&j->progress, bytes, err);
    }
    char *from = oz_file_join(j->p->path, relative);
    char *to = oz_file_join(j->part, relative);
    enum oz_status status = from == NULL || to == NULL ? OZ_FAIL_NOMEM(err, relative)
                            : kind == OZ_ENTRY_FOLDER
                                ? oz_file_make_folder(to, err)
                                : oz_folder_copy_file(from, to, oz_write_count, &j->progress, err);
    oz_free(from);
    oz_free(to);
    return status == OZ_OK && kind == OZ_ENTRY_FILE
               ? oz_write_journal_add(&j->journal, relative, err)
               : status;
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
        if (!oz_write_is_made(c)) {
            continue;
        }
        char *folder = oz_file_join(j->part, c->name);
        enum oz_status status =
            folder != NULL ? oz_file_make_folder(folder, err) : OZ_FAIL_NOMEM(err, c->name);
        if (status == OZ_OK) {
            status = oz_write_component(c, &j->progress, err);
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

/* ---- the identity ---- */

static enum oz_status hash_file(uint64_t *hash, const char *path, const char *name,
                                struct oz_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return OZ_FAIL(err, OZ_ERR_IO, "Cannot look at %s: %s.", path, strerror(errno));
    }
    const int64_t numbers[] = {(int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec,
                               (int64_t)st.st_mtim.tv_nsec};
    *hash = oz_write_hash(*hash, name, strlen(name) + 1);
    *hash = oz_write_hash(*hash, numbers, sizeof numbers);
    return OZ_OK;
}

struct source {
    const struct job *job;
    uint64_t hash;
};

static enum oz_status hash_entry(void *ctx, const char *relative, enum oz_entry_kind kind,
                                 int64_t bytes, struct oz_error *err)
{
    struct source *s = ctx;
    (void)bytes;
    if (kind != OZ_ENTRY_FILE || is_hidden(relative)) {
        return OZ_OK;
    }
    char *path = oz_file_join(s->job->p->path, relative);
    enum oz_status status =
        path != NULL ? hash_file(&s->hash, path, relative, err) : OZ_FAIL_NOMEM(err, relative);
    oz_free(path);
    return status;
}

/* Files of a checkpoint, by their names alone: the same ones may be called by another path. */
static enum oz_status hash_ckpt(uint64_t *hash, const struct oz_ckpt *ckpt, struct oz_error *err)
{
    for (int32_t i = 0; i < oz_ckpt_file_count(ckpt); i++) {
        const char *path = oz_ckpt_file(ckpt, i)->path;
        const char *slash = strrchr(path, '/');
        OZ_TRY(hash_file(hash, path, slash != NULL ? slash + 1 : path, err));
    }
    return OZ_OK;
}

static enum oz_status identify(struct job *j, struct oz_error *err)
{
    const char *by = j->o->made_by != NULL ? j->o->made_by : "";
    struct source source = {.job = j, .hash = OZ_WRITE_HASH};
    uint64_t plan = oz_write_hash(OZ_WRITE_HASH, by, strlen(by) + 1);
    plan = oz_write_hash(plan, &j->o->max_shard_bytes, sizeof j->o->max_shard_bytes);
    OZ_TRY(oz_folder_walk(j->p->path, hash_entry, &source, err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *c = &j->p->components[i];
        if (c->replaced) {
            OZ_TRY(hash_ckpt(&source.hash, c->ckpt, err));
        }
        for (int32_t k = 0; c->lora != NULL && k < c->lora->file_count; k++) {
            OZ_TRY(hash_ckpt(&source.hash, c->lora->files[k].ckpt, err));
        }
        if (oz_write_is_made(c)) {
            plan = oz_write_hash(plan, c->name, strlen(c->name) + 1);
            OZ_TRY(oz_write_hash_component(&plan, c, err));
        }
    }
    j->identity = (struct oz_write_identity){.plan = plan, .source = source.hash};
    return OZ_OK;
}

/* What the working folder holds already. */
static enum oz_status open_journal(struct job *j, struct oz_error *err)
{
    struct oz_write_journal *w = &j->journal;
    OZ_TRY(oz_write_journal_open(w, j->part, j->lock, &j->identity, err));
    j->known = true;
    if (w->another_plan || w->another_source) {
        oz_log(OZ_LOG_WARN, "write",
               "%s holds an interrupted run that does not fit this one, because %s: it is begun "
               "anew.",
               j->part,
               w->another_plan ? "it was asked for something else, or by another version"
                               : "the model's files have been changed since");
    }
    if (w->changed > 0) {
        oz_log(OZ_LOG_WARN, "write",
               "%s: %d file%s of an interrupted run %s changed afterwards, and %s written again.",
               j->part, (int)w->changed, w->changed == 1 ? "" : "s",
               w->changed == 1 ? "was" : "were", w->changed == 1 ? "is" : "are");
    }
    if (w->kept > 0) {
        oz_log(OZ_LOG_INFO, "write",
               "%s: resuming an interrupted run: %d whole file%s of it, %.1f MB, %s kept.",
               j->output, (int)w->kept, w->kept == 1 ? "" : "s", (double)w->kept_bytes / 1e6,
               w->kept == 1 ? "is" : "are");
    }
    return OZ_OK;
}

static enum oz_status count_source(struct job *j, struct oz_error *err)
{
    j->counting = true;
    OZ_TRY(oz_folder_walk(j->p->path, copy_entry, j, err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        const struct oz_component *c = &j->p->components[i];
        for (int64_t k = 0; oz_write_is_made(c) && k < oz_ckpt_count(c->ckpt); k++) {
            bool dropped = oz_write_is_dropped(c, k);
            j->progress.total += dropped ? 0 : oz_ckpt_tensor(c->ckpt, k)->bytes;
        }
        for (int32_t k = 0; oz_write_is_made(c) && k < oz_ckpt_stray_count(c->ckpt); k++) {
            oz_log(OZ_LOG_WARN, "write", "%s/%s is not part of the model and is not copied.",
                   c->folder, oz_ckpt_stray(c->ckpt, k));
        }
    }
    j->counting = false;
    return OZ_OK;
}

static enum oz_status fill_part(struct job *j, struct oz_error *err)
{
    OZ_TRY(open_journal(j, err));
    OZ_TRY(count_source(j, err));
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
        any = any || oz_write_is_quantized(&j->p->components[i]) || j->p->components[i].converted;
    }
    return any ? OZ_OK
               : OZ_FAIL(err, OZ_ERR_ARG,
                         "Nothing of the model would be quantized; say how (--quantization fp8).");
}

/* Does it pay to go on where a run stopped with that error? */
static bool is_kept(const struct job *j, enum oz_status status)
{
    return j->journal.count > 0 && oz_file_exists(j->part) &&
           (status == OZ_ERR_CANCELLED || status == OZ_ERR_IO || status == OZ_ERR_NOMEM);
}

/* Leaves the working folder, or takes it away; the message tells which. */
static enum oz_status stop(struct job *j, enum oz_status status, struct oz_error *err)
{
    struct oz_error first = {.code = status};
    struct oz_error second;
    const struct oz_write_journal *w = &j->journal;
    first = err != NULL ? *err : first;
    if (!j->known) { /* who knows what an earlier run has left there */
        return status;
    }
    if (!is_kept(j, status)) {
        if (oz_folder_remove(j->part, &second) != OZ_OK) {
            oz_log(OZ_LOG_ERROR, "write", "%s", second.message);
        }
        return status == OZ_ERR_CANCELLED
                   ? OZ_FAIL(err, status, "Interrupted; nothing was written to %s.", j->output)
                   : status;
    }
    return OZ_FAIL(err, status,
                   "%s %d whole file%s (%.1f MB) %s kept in %s: the same command goes on from "
                   "there.",
                   status == OZ_ERR_CANCELLED ? "Interrupted;" : first.message, (int)w->count,
                   w->count == 1 ? "" : "s", (double)oz_write_journal_bytes(w) / 1e6,
                   w->count == 1 ? "is" : "are", j->part);
}

static enum oz_status run(struct job *j, struct oz_error *err)
{
    OZ_TRY(check_model(j, err));
    OZ_TRY(check_output(j, err));
    for (int i = 0; i < OZ_COMPONENT_COUNT; i++) {
        OZ_TRY(oz_write_tell_component(&j->p->components[i], err));
    }
    OZ_TRY(identify(j, err));
    OZ_TRY(open_part(j, err));
    enum oz_status status = fill_part(j, err);
    if (status == OZ_OK) {
        status = rename_part(j, err);
    }
    if (status != OZ_OK) {
        status = stop(j, status, err);
    }
    (void)close(j->lock);
    oz_write_journal_deinit(&j->journal);
    return status;
}

enum oz_status oz_pipeline_write(struct oz_pipeline *p, const struct oz_write_options *options,
                                 struct oz_error *err)
{
    struct job j = {.p = p, .o = options, .lock = -1, .progress = {.options = options}};
    j.progress.journal = &j.journal;
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
