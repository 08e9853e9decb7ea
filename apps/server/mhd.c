#include "mhd.h"

#include <dlfcn.h>
#include <string.h>

#include "text.h"

const struct sv_mhd *sv_mhd_open(struct oz_error *err)
{
    static struct sv_mhd functions; /* one server at a time starts */
    void *library = dlopen(SV_MHD_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *why = library == NULL ? dlerror() : NULL;
    if (library == NULL) {
        (void)sv_error(err, OZ_ERR_UNSUPPORTED,
                       "`ounce serve` needs libmicrohttpd, and " SV_MHD_LIBRARY
                       " does not open: %s. Install it: on Debian the package libmicrohttpd12.",
                       why != NULL ? why : "no reason was given");
        return NULL;
    }
    const struct {
        const char *name;
        void *slot;
    } wanted[] = {
#define SV_MHD_WANTED(name) {"MHD_" #name, &functions.name},
        SV_MHD_FUNCTIONS(SV_MHD_WANTED)
#undef SV_MHD_WANTED
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(library, wanted[i].name);
        if (symbol == NULL) {
            (void)sv_error(err, OZ_ERR_UNSUPPORTED,
                           "The " SV_MHD_LIBRARY " of this system has no %s. `ounce serve` needs "
                           "libmicrohttpd 0.9.71 or later.",
                           wanted[i].name);
            (void)dlclose(library);
            return NULL;
        }
        memcpy(wanted[i].slot, &symbol, sizeof symbol);
    }
    return &functions; /* and the library stays: its threads may be the last to run */
}
