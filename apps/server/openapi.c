/* openapi.c: /openapi.json, made once out of the table of routes and the list of fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

static const char *const parts[] = {"id", "index"};

static const char *schema_name(unsigned api)
{
    return api == SV_API_IMAGES ? "ImagesRequest"
           : api == SV_API_JOBS ? "JobRequest"
                                : "Txt2ImgRequest";
}

/* "/v1/jobs/{}" with names for its parts. */
static void put_path(char path[128], const char *pattern)
{
    size_t n = 0, part = 0;
    for (const char *p = pattern; *p != '\0' && n < 100; p++) {
        path[n++] = *p;
        if (*p == '{') {
            n += (size_t)snprintf(path + n, 16, "%s", parts[part++]);
        }
    }
    path[n] = '\0';
}

static void put_parameters(struct sv_text *out, const char *pattern)
{
    size_t part = 0;
    if (strchr(pattern, '{') == NULL) {
        return;
    }
    sv_json_open(out, "parameters", '[');
    for (const char *p = pattern; *p != '\0'; p++) {
        if (*p == '{') {
            sv_json_open(out, NULL, '{');
            sv_json_put_string(out, "name", parts[part++]);
            sv_json_put_string(out, "in", "path");
            sv_json_put_bool(out, "required", true);
            sv_json_put_raw(out, "schema", "{\"type\":\"string\"}");
            sv_json_close(out, '}');
        }
    }
    sv_json_close(out, ']');
}

static void put_operation(struct sv_text *out, const struct sv_route *route, bool keys)
{
    sv_json_open(out,
                 route->method[0] == 'G'   ? "get"
                 : route->method[0] == 'P' ? "post"
                                           : "delete",
                 '{');
    sv_json_put_string(out, "summary", route->summary);
    put_parameters(out, route->path);
    if (route->schema != 0) {
        char *body = sv_format("{\"required\":true,\"content\":{\"application/json\":{\"schema\":{"
                               "\"$ref\":\"#/components/schemas/%s\"}}}}",
                               schema_name(route->schema));
        if (body == NULL) {
            out->failed = true;
        } else {
            sv_json_put_raw(out, "requestBody", body);
        }
        free(body);
    }
    if (keys && (route->flags & SV_OPEN) == 0) {
        sv_json_put_raw(out, "security", "[{\"key\":[]}]");
    }
    sv_json_put_raw(out, "responses",
                    "{\"default\":{\"description\":\"errors are {\\\"error\\\": {message, type, "
                    "param, code}}\"},\"200\":{\"description\":\"see docs/serving.md\"}}");
    sv_json_close(out, '}');
}

void sv_openapi_make(struct sv_text *out, bool keys)
{
    sv_json_open(out, NULL, '{');
    sv_json_put_string(out, "openapi", "3.1.0");
    sv_json_open(out, "info", '{');
    sv_json_put_string(out, "title", "ounce");
    sv_json_put_string(out, "version", oz_version());
    sv_json_close(out, '}');
    sv_json_open(out, "paths", '{');
    for (size_t i = 0; i < sv_route_count; i++) {
        char path[128];
        bool first = true;
        for (size_t j = 0; j < i; j++) {
            first = first && strcmp(sv_routes[i].path, sv_routes[j].path) != 0;
        }
        if (!first) {
            continue;
        }
        put_path(path, sv_routes[i].path);
        sv_json_open(out, path, '{');
        for (size_t j = i; j < sv_route_count; j++) {
            if (strcmp(sv_routes[i].path, sv_routes[j].path) == 0) {
                put_operation(out, &sv_routes[j], keys);
            }
        }
        sv_json_close(out, '}');
    }
    sv_json_close(out, '}');
    sv_json_open(out, "components", '{');
    if (keys) {
        sv_json_put_raw(out, "securitySchemes",
                        "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}");
    }
    sv_json_open(out, "schemas", '{');
    for (unsigned api = SV_API_IMAGES; api <= SV_API_SDAPI; api *= 2) {
        sv_ask_schema(out, schema_name(api), api);
    }
    sv_json_close(out, '}');
    sv_json_close(out, '}');
    sv_json_close(out, '}');
    sv_text_put(out, "\n");
}
