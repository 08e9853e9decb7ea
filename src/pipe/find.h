/*
 * pipe/find.h: where a model is. A name is a folder, or "org/name" in the Hugging Face cache on disk
 * (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME; the revision that refs/main names). Nothing is
 * downloaded. The bundled model (no name, or its own) is
 * looked for in $OUNCE_MODELS, then in the data folder relative to the program (installed or in the
 * build tree), then in the data folder that the library was configured with.
 */
#ifndef OZ_PIPE_FIND_H
#define OZ_PIPE_FIND_H

#include <ounce/status.h>

#define OZ_BUNDLED_MODEL "emoji"

/* The model's folder in fresh memory (oz_free). name NULL or "": the bundled model. OZ_ERR_NO_MODEL
 * says what was looked for and where. */
OZ_MUST_USE enum oz_status oz_model_find(const char *name, char **path, struct oz_error *err);

/* In a snapshot of the Hugging Face cache files are links; OZ_ERR_FORMAT when one leads out of its
 * repository. Elsewhere links are the user's own, and fine. */
OZ_MUST_USE enum oz_status oz_model_check_links(const char *path, struct oz_error *err);

#endif
