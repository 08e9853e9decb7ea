/*
 * The list of backends, and opening a device by name: "<backend>", "<backend>:<index>" or "auto"
 * (the first of the list that opens).
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "dev/backends.h"

/* Best first: "auto" takes the first that opens. */
enum { BACKEND_CUDA, BACKEND_CPU, BACKEND_COUNT };
static const struct entry {
    const char *name;
    const struct oz_backend *backend; /* NULL: a plug-in */
    const char *plugin;               /* its file */
} entries[BACKEND_COUNT] = {
    [BACKEND_CUDA] = {.name = "cuda", .plugin = "libounce-cuda.so"},
    [BACKEND_CPU] = {.name = "cpu", .backend = &oz_cpu_backend},
};

static enum oz_status find_backend(const struct entry *e, const struct oz_backend **out,
                                   struct oz_error *err)
{
    *out = e->backend;
    if (e->backend == NULL) {
        OZ_TRY(oz_plugin_open(e->plugin, out, err));
    }
    if ((*out)->abi != OZ_BACKEND_ABI) {
        return OZ_FAIL(
            err, OZ_ERR_DEVICE,
            "Backend %s was built for version %u of the device contract; this engine has "
            "version %u. Install the backend that came with the engine.",
            e->name, (unsigned)(*out)->abi, (unsigned)OZ_BACKEND_ABI);
    }
    return OZ_OK;
}

static enum oz_status open_entry(const struct entry *e, struct oz_device **out, int32_t index,
                                 uint32_t flags, struct oz_pool *pool, struct oz_error *err)
{
    const struct oz_backend *backend;
    OZ_TRY(find_backend(e, &backend, err));
    return backend->open(out, index, flags, pool, err);
}

/* A device for planning only opens without hardware, so what is there is asked first. */
static enum oz_status open_present(const struct entry *e, struct oz_device **out, uint32_t flags,
                                   struct oz_pool *pool, struct oz_error *err)
{
    const struct oz_backend *backend;
    OZ_TRY(find_backend(e, &backend, err));
    if (backend->present != NULL) {
        OZ_TRY(backend->present(err));
    }
    return backend->open(out, 0, flags, pool, err);
}

static enum oz_status open_first(struct oz_device **out, uint32_t flags, struct oz_pool *pool,
                                 struct oz_error *err)
{
    struct oz_error own = {.message = ""};
    struct oz_error *why = err != NULL ? err : &own;
    enum oz_status status = OZ_ERR_DEVICE;
    for (size_t i = 0; i < BACKEND_COUNT; i++) {
        status = open_present(&entries[i], out, flags, pool, why);
        if (status == OZ_OK) {
            oz_log(OZ_LOG_INFO, "device", "auto: %s", (*out)->name);
            break;
        }
        oz_log(i + 1 < BACKEND_COUNT ? OZ_LOG_WARN : OZ_LOG_ERROR, "device", "auto: not %s: %s",
               entries[i].name, why->message);
    }
    return status;
}

static enum oz_status fail_unknown(const char *name, struct oz_error *err)
{
    const char *names[BACKEND_COUNT + 1];
    struct oz_buf list;
    oz_buf_init(&list, 1024);
    for (size_t i = 0; i < BACKEND_COUNT; i++) {
        names[i] = entries[i].name;
        oz_buf_printf(&list, "%s, ", names[i]);
    }
    names[BACKEND_COUNT] = "auto";
    oz_buf_puts(&list, "auto");
    const char *near = oz_names_nearest(name, names, BACKEND_COUNT + 1);
    enum oz_status status =
        OZ_FAIL(err, OZ_ERR_ARG, "No device is named \"%s\"%s%s%s Devices of this build: %s.", name,
                near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                near != NULL ? "\"?" : ".", oz_buf_text(&list));
    oz_buf_deinit(&list);
    return status;
}

/* The number behind "<backend>:"; false when it is none. */
static bool parse_index(const char *text, int32_t *index)
{
    char *end = NULL;
    if (*text < '0' || *text > '9') {
        return false;
    }
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value > 4095) {
        return false;
    }
    *index = (int32_t)value;
    return true;
}

enum oz_status oz_device_open(struct oz_device **out, const char *name, uint32_t flags,
                              struct oz_pool *pool, struct oz_error *err)
{
    *out = NULL;
    const uint32_t all = (uint32_t)OZ_DEVICE_PLAN_ONLY | (uint32_t)OZ_DEVICE_F32;
    if ((flags & ~all) != 0) {
        return OZ_FAIL(err, OZ_ERR_ARG, "Device \"%s\": unknown flags 0x%x.", name,
                       (unsigned)(flags & ~all));
    }
    if (strcmp(name, "auto") == 0) {
        return open_first(out, flags, pool, err);
    }
    size_t length = strcspn(name, ":");
    for (size_t i = 0; i < BACKEND_COUNT; i++) {
        int32_t index = 0;
        if (strlen(entries[i].name) != length || strncmp(entries[i].name, name, length) != 0) {
            continue;
        }
        if (name[length] == ':' && !parse_index(name + length + 1, &index)) {
            return OZ_FAIL(err, OZ_ERR_ARG,
                           "Device \"%s\": a number from 0 is expected behind the colon, as in "
                           "\"%s:0\".",
                           name, entries[i].name);
        }
        return open_entry(&entries[i], out, index, flags, pool, err);
    }
    return fail_unknown(name, err);
}

void oz_device_close(struct oz_device **dev)
{
    if (*dev != NULL) {
        (*dev)->close(*dev);
        *dev = NULL;
    }
}
