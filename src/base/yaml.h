/*
 * base/yaml.h: the door to the YAML library, which is optional. Reads one document of plain data
 * (mappings with string keys, sequences, scalars) and gives it as JSON text, so that configs have
 * one reader. Aliases, anchors, tags, several documents and nesting beyond 64 are refused.
 */
#ifndef OZ_BASE_YAML_H
#define OZ_BASE_YAML_H

#include <ounce/status.h>
#include <stddef.h>

/*
 * Plain scalars are null, booleans (true, false), numbers as JSON writes them, else strings; quoted
 * ones are strings. *out is zero-terminated UTF-8, freed with oz_free. `name` (a path) begins
 * errors. OZ_ERR_FORMAT with the line; OZ_ERR_UNSUPPORTED in a build without the library; OZ_ERR_NOMEM.
 */
OZ_MUST_USE enum oz_status oz_yaml_to_json(const char *text, size_t bytes, const char *name,
                                           char **out, struct oz_error *err);

#endif
