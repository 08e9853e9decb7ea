#include "pipe/find.h"

#include <limits.h>
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
                       "%s is a file; this version opens folders in the diffusers layout (with a "
                       "model_index.json).",
                       name);
    }
    return OZ_OK;
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
