/* auth.c: who may ask. Keys are compared in a time that does not depend on them. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "app.h"
#include "text.h"

enum { KEY_FILE_BYTES = 1024 * 1024 };

static bool add_key(struct sv_keys *keys, const char *key, size_t length, const char *from,
                    struct oz_error *err)
{
    if (length == 0 || length > SV_KEY_BYTES) {
        sv_error(err, OZ_ERR_ARG, "%s: an API key has 1 to %d characters, not %zu.", from,
                 SV_KEY_BYTES, length);
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (key[i] <= ' ' || key[i] > '~') {
            sv_error(err, OZ_ERR_ARG,
                     "%s: an API key is made of printable ASCII characters without blanks.", from);
            return false;
        }
    }
    void *grown = reallocarray(keys->keys, keys->count + 1, sizeof *keys->keys);
    if (grown == NULL) {
        sv_error(err, OZ_ERR_NOMEM, "Out of memory for the API keys.");
        return false;
    }
    keys->keys = grown;
    memset(keys->keys[keys->count], 0, sizeof *keys->keys);
    memcpy(keys->keys[keys->count++], key, length);
    return true;
}

static bool read_file(struct sv_keys *keys, const char *path, struct oz_error *err)
{
    struct sv_text text = {0};
    const char *why = NULL;
    bool ok = sv_read_file(&text, path, KEY_FILE_BYTES, &why);
    if (!ok) {
        sv_error(err, OZ_ERR_IO, "--api-key-file %s cannot be read: %s.", path, why);
    }
    size_t before = keys->count;
    for (const char *line = text.data; ok && line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\r\n");
        if (length > 0 && line[0] != '#') {
            ok = add_key(keys, line, length, "--api-key-file", err);
        }
        line += length + strspn(line + length, "\r\n");
    }
    if (ok && keys->count == before) {
        sv_error(err, OZ_ERR_ARG, "--api-key-file %s holds no key: one is expected on each line.",
                 path);
        ok = false;
    }
    if (text.data != NULL) {
        explicit_bzero(text.data, text.bytes);
    }
    sv_text_free(&text);
    return ok;
}

bool sv_keys_read(struct sv_keys *keys, const struct sv_options *options, struct oz_error *err)
{
    for (size_t i = 0; i < options->api_key_count; i++) {
        if (!add_key(keys, options->api_keys[i], strlen(options->api_keys[i]), "--api-key", err)) {
            return false;
        }
    }
    const char *variable = getenv("OUNCE_API_KEY");
    if (variable != NULL && variable[0] != '\0' &&
        !add_key(keys, variable, strlen(variable), "OUNCE_API_KEY", err)) {
        return false;
    }
    return options->api_key_file == NULL || read_file(keys, options->api_key_file, err);
}

void sv_keys_free(struct sv_keys *keys)
{
    if (keys->keys != NULL) {
        explicit_bzero(keys->keys, keys->count * sizeof *keys->keys);
    }
    free(keys->keys);
    *keys = (struct sv_keys){0};
}

int sv_keys_match(const struct sv_keys *keys, const char *authorization)
{
    unsigned char given[SV_KEY_BYTES + 1] = {0};
    if (authorization == NULL || strncasecmp(authorization, "Bearer ", 7) != 0) {
        return -1;
    }
    const char *key = authorization + 7;
    key += strspn(key, " ");
    size_t length = strlen(key);
    if (length == 0 || length > SV_KEY_BYTES) {
        return -1;
    }
    memcpy(given, key, length);
    int found = -1;
    for (size_t i = 0; i < keys->count; i++) {
        const volatile unsigned char *wanted = keys->keys[i];
        unsigned differs = 0;
        for (size_t j = 0; j < sizeof given; j++) {
            differs |= (unsigned)(wanted[j] ^ given[j]);
        }
        /* All ones where nothing differs, without a branch on it. */
        int same = -(int)((differs - 1) >> 31);
        found = (found & ~same) | ((int)i & same);
    }
    return found;
}

/* ---- hosts and origins ---- */

/* The host of "name:port" or "[v6]:port", without brackets. */
static void host_name(const char *host, char name[256])
{
    size_t n = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
    size_t from = host[0] == '[';
    (void)snprintf(name, 256, "%.*s", (int)(n - from > 255 ? 255 : n - from), host + from);
}

bool sv_host_ok(const struct sv_options *options, const char *host)
{
    char name[256];
    unsigned char address[16];
    if (host == NULL) {
        return false;
    }
    host_name(host, name);
    size_t length = strlen(name);
    const char *known = options->public_url != NULL ? strstr(options->public_url, "://") : NULL;
    return strcasecmp(name, "localhost") == 0 ||
           (length > 10 && strcasecmp(name + length - 10, ".localhost") == 0) ||
           inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1 ||
           strcasecmp(name, options->host) == 0 ||
           (known != NULL && strcspn(known + 3, "/") == strlen(host) &&
            strncasecmp(known + 3, host, strlen(host)) == 0);
}

bool sv_origin_same(const char *origin, const char *host)
{
    const char *rest = strstr(origin, "://");
    return rest != NULL && host != NULL && strcasecmp(rest + 3, host) == 0;
}

const char *sv_origin_allowed(const struct sv_options *options, const char *origin)
{
    for (size_t i = 0; i < options->cors_origin_count; i++) {
        if (strcmp(options->cors_origins[i], "*") == 0 ||
            strcasecmp(options->cors_origins[i], origin) == 0) {
            return options->cors_origins[i];
        }
    }
    return NULL;
}
