#include "pipe/load_format.h"

#include <stddef.h>

#include "base/error.h"
#include "base/names.h"

#define AS_AUTO "auto: a file's first bytes say what it is"

static const struct oz_load_format rows[] = {
    {.name = "auto"},
    {.name = "dummy", .dummy = true},
    {.name = "default", .meaning = AS_AUTO},
    {.name = "hf", .meaning = AS_AUTO},
    {.name = "diffusers", .meaning = AS_AUTO},
    {.name = "safetensors", .meaning = AS_AUTO},
    {.name = "fastsafetensors", .meaning = AS_AUTO},
    {.name = "gguf", .meaning = AS_AUTO},
    {.name = "bitsandbytes", .meaning = AS_AUTO},
};
#define ROWS (sizeof rows / sizeof *rows)

static const struct {
    const char *name, *why;
} refused[] = {
    {"pt", "a pickle is a program, which ounce does not run; convert the weights to safetensors"},
    {"npcache", "it is made of pickles; convert the weights to safetensors"},
    {"tensorizer", "convert the weights to safetensors"},
    {"sharded_state", "such files hold one rank's part each; take the whole checkpoint"},
    {"runai_streamer", "ounce reads folders, not object stores; copy the checkpoint to one"},
    {"runai_streamer_sharded",
     "ounce reads folders, not object stores; copy the checkpoint to one"},
    {"mistral", "convert the weights to the layout of Hugging Face"},
    {"custom_pipeline", "it is code of the model's own, which ounce does not run"},
};

enum oz_status oz_load_format_find(const struct oz_load_format **out, const char *name,
                                   struct oz_error *err)
{
    const char *names[ROWS];
    *out = &rows[0];
    if (name == NULL || name[0] == '\0') {
        return OZ_OK;
    }
    for (size_t i = 0; i < ROWS; i++) {
        names[i] = rows[i].name;
        if (oz_names_same(name, rows[i].name)) {
            *out = &rows[i];
            return OZ_OK;
        }
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (oz_names_same(name, refused[i].name)) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "Load format %s is not read: %s.",
                           refused[i].name, refused[i].why);
        }
    }
    return oz_names_unknown("Load format", name, names, ROWS, err);
}
