/* Backends that are plug-ins: where they lie, and opening them. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "dev/backends.h"

#define PATH_BYTES (PATH_MAX + 256)

/* Encoders are constant: the device that finds them serves for that alone. */
static struct oz_device *encoding;
static pthread_once_t encoding_once = PTHREAD_ONCE_INIT;

static void open_encoding(void)
{
    if (oz_cpu_backend.open(&encoding, 0, OZ_DEVICE_PLAN_ONLY, NULL, NULL) != OZ_OK) {
        encoding = NULL; /* then the codecs' own functions encode */
    }
}

static const struct oz_encoder *find_encoder(const struct oz_codec *codec, enum oz_dtype stored)
{
    (void)pthread_once(&encoding_once, open_encoding);
    return encoding != NULL ? encoding->ops->find_encoder(encoding, codec, stored) : NULL;
}

static const struct oz_backend_host host = {
    .alloc_zero = oz_alloc_zero,
    .free = oz_free,
    .log_wants = oz_log_wants,
    .log = oz_log,
    .fail = oz_error_fail,
    .find_encoder = find_encoder,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct oz_backend *opened; /* there is one plug-in */

/* "<folder of the program>/../lib/ounce/<file>"; false where the program's folder is unknown. */
static bool beside_program(const char *file, char path[PATH_BYTES])
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) {
        return false;
    }
    program[n] = '\0';
    char *slash = strrchr(program, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    int length = snprintf(path, PATH_BYTES, "%s/../lib/ounce/%s", program, file);
    return length > 0 && length < PATH_BYTES;
}

/* The file to open; a bare name is the system's to find. */
static void choose_path(const char *file, char path[PATH_BYTES])
{
    const char *folder = getenv("OUNCE_PLUGINS");
    if (folder != NULL) {
        (void)snprintf(path, PATH_BYTES, "%s/%s", folder, file);
    } else if (!beside_program(file, path) || !oz_file_exists(path)) {
        (void)snprintf(path, PATH_BYTES, "%s", file);
    }
}

static enum oz_status open_library(const char *file, struct oz_error *err)
{
    char path[PATH_BYTES];
    char beside[PATH_BYTES];
    oz_backend_entry_fn entry = NULL;
    choose_path(file, path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        bool absent = !oz_file_exists(path);
        return OZ_FAIL(err, OZ_ERR_DEVICE,
                       absent ? "The plug-in %s is not installed (%s). Build ounce with "
                                "-DOUNCE_CUDA=ON, name its folder with OUNCE_PLUGINS, or use "
                                "--device cpu."
                              : "The plug-in %s does not open: %s. Install the libraries that it "
                                "needs (CUDA with cuBLASLt, cuDNN), or use --device cpu.",
                       getenv("OUNCE_PLUGINS") != NULL || !beside_program(file, beside) ? path
                       : absent                                                         ? beside
                                                                                        : path,
                       why != NULL ? why : "no reason was given");
    }
    void *symbol = dlsym(library, OZ_BACKEND_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    if (entry == NULL) {
        (void)dlclose(library);
        return OZ_FAIL(err, OZ_ERR_DEVICE, "%s is no plug-in of ounce: it has no %s.", path,
                       OZ_BACKEND_ENTRY);
    }
    opened = entry(&host); /* and it stays: its code may be running when the last device goes */
    return OZ_OK;
}

enum oz_status oz_plugin_open(const char *file, const struct oz_backend **out, struct oz_error *err)
{
    enum oz_status status = OZ_OK;
    pthread_mutex_lock(&lock);
    if (opened == NULL) {
        status = open_library(file, err);
    }
    *out = opened;
    pthread_mutex_unlock(&lock);
    return status;
}
