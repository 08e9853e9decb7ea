/* dev/backends.h: the backends that this build knows, as registry.c lists them. */
#ifndef OZ_DEV_BACKENDS_H
#define OZ_DEV_BACKENDS_H

#include <stdbool.h>

#include "dev/device.h"
#include "dev/ops.h"

extern const struct oz_backend oz_cpu_backend; /* src/cpu/device.c */

/* What a plug-in borrows of the core, so that a process has one heap and one log. All are thread safe
 * and outlive it. */
struct oz_backend_host {
    void *(*alloc_zero)(size_t count, size_t size);
    void (*free)(void *memory);
    bool (*log_wants)(enum oz_log_level level, const char *topic);
    void (*log)(enum oz_log_level level, const char *topic, const char *format, ...);
    enum oz_status (*fail)(struct oz_error *err, enum oz_status code, const char *file, int line,
                           const char *format, ...);
    /* The host's encoders of weights, for a device that lets the host encode. */
    const struct oz_encoder *(*find_encoder)(const struct oz_codec *codec, enum oz_dtype stored);
};

/* The one symbol of a plug-in, by the name OZ_BACKEND_ENTRY: its backend, whose abi is looked at before
 * anything else. */
typedef const struct oz_backend *(*oz_backend_entry_fn)(const struct oz_backend_host *host);
#define OZ_BACKEND_ENTRY "oz_backend_entry"

/*
 * Opens the plug-in lib<name of the library>.so: in the folder that OUNCE_PLUGINS names and there
 * alone, else in ../lib/ounce beside the program, where `make install` puts it, else where the system
 * looks. Once for a process; it stays. OZ_ERR_DEVICE says where it was looked for, or why it did not
 * open.
 */
OZ_MUST_USE enum oz_status oz_plugin_open(const char *file, const struct oz_backend **out,
                                          struct oz_error *err);

#endif
