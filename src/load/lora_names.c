#include "load/lora_names.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/names.h"
#include "ckpt/table.h"

#define WEIGHT ".weight"

/* ---- what a key is ---- */

static const struct {
    const char *suffix;
    enum oz_lora_half half;
} suffixes[] = {
    {".lora_A.weight", OZ_LORA_DOWN},    {".lora_B.weight", OZ_LORA_UP},
    {".lora_down.weight", OZ_LORA_DOWN}, {".lora_up.weight", OZ_LORA_UP},
    {".lora.down.weight", OZ_LORA_DOWN}, {".lora.up.weight", OZ_LORA_UP},
    {".alpha", OZ_LORA_ALPHA},
};

/* PEFT puts the adapter's name, one segment, between these and ".weight". */
static const struct {
    const char *infix;
    enum oz_lora_half half;
} infixes[] = {{".lora_A.", OZ_LORA_DOWN}, {".lora_B.", OZ_LORA_UP}};

static const struct {
    const char *part, *what;
} refused[] = {
    {".dora_scale", "DoRA (a magnitude for each row beside the low-rank pair)"},
    {".lora_magnitude_vector", "DoRA (a magnitude for each row beside the low-rank pair)"},
    {".magnitude", "DoRA (a magnitude for each row beside the low-rank pair)"},
    {".lokr_", "LoKr (a Kronecker product)"},
    {".hada_", "LoHa (a Hadamard product)"},
    {".lora_mid", "a convolution's LoRA (a core tensor between the pair)"},
    {".lora_embedding_", "a LoRA for an embedding"},
    {".lora_A.bias", "a LoRA with a bias"},
    {".lora_B.bias", "a LoRA with a bias"},
    {".lora_down.bias", "a LoRA with a bias"},
    {".lora_up.bias", "a LoRA with a bias"},
    {".diff_b", "a full difference of a bias"},
    {".diff", "a full difference of a weight"},
    {".set_weight", "a replacement of a weight"},
    {".w_norm", "a full difference of a norm"},
    {".b_norm", "a full difference of a norm's bias"},
    {".oft_", "OFT (an orthogonal factor)"},
    {".boft_", "BOFT (orthogonal factors)"},
    {".ia3_", "IA3 (a scale for each feature)"},
    {".reshape_weight", "a LoRA that changes the shape of a weight"},
};

static bool ends_with(const char *text, size_t bytes, const char *suffix)
{
    size_t n = strlen(suffix);
    return bytes > n && memcmp(text + bytes - n, suffix, n) == 0;
}

/* Where the part stands as a whole segment, or, when it ends in '_', as the beginning of one. */
static const char *find_part(const char *key, const char *part)
{
    size_t n = strlen(part);
    for (const char *at = strstr(key, part); at != NULL; at = strstr(at + 1, part)) {
        if (part[n - 1] == '_' || at[n] == '\0' || at[n] == '.') {
            return at;
        }
    }
    return NULL;
}

struct oz_lora_key oz_lora_read_key(const char *key)
{
    size_t bytes = strlen(key);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *at = find_part(key, refused[i].part);
        if (at != NULL) {
            return (struct oz_lora_key){OZ_LORA_REFUSED, (size_t)(at - key), refused[i].what};
        }
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (ends_with(key, bytes, suffixes[i].suffix)) {
            return (struct oz_lora_key){suffixes[i].half, bytes - strlen(suffixes[i].suffix), NULL};
        }
    }
    for (size_t i = 0; i < sizeof infixes / sizeof *infixes; i++) {
        const char *at = strstr(key, infixes[i].infix);
        const char *name = at != NULL ? at + strlen(infixes[i].infix) : NULL;
        if (name != NULL && name[0] != '.' && strcmp(name + strcspn(name, "."), WEIGHT) == 0) {
            return (struct oz_lora_key){infixes[i].half, (size_t)(at - key), NULL};
        }
    }
    return (struct oz_lora_key){OZ_LORA_UNKNOWN, bytes, NULL};
}

/* ---- which layer it means ---- */

static const char *const prefixes[] = {"base_model.model.", "model.diffusion_model.",
                                       "diffusion_model.", "transformer.", "unet."};
static const char *const flat_prefixes[] = {"lora_unet_", "lora_transformer_", "lycoris_"};
static const char *const flat_inner[] = {"", "transformer_", "diffusion_model_",
                                         "model_diffusion_model_"};
static const char *const other_models[] = {"text_encoder.", "text_encoder_2.", "text_model.",
                                           "lora_te", "text_encoders."};

/* Bytes of the prefix that begins text, or 0. */
static size_t prefix_of(const char *text, size_t bytes, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(list[i]);
        if (bytes > n && memcmp(text, list[i], n) == 0) {
            return n;
        }
    }
    return 0;
}
#define PREFIX_OF(text, bytes, list) prefix_of(text, bytes, list, sizeof(list) / sizeof *(list))

static void flatten(char *text)
{
    for (; *text != '\0'; text++) {
        *text = *text == '.' ? '_' : *text;
    }
}

enum oz_status oz_lora_names_init(struct oz_lora_names *n, const struct oz_layer_table *table,
                                  struct oz_error *err)
{
    size_t count = (size_t)table->count;
    *n = (struct oz_lora_names){.table = table};
    OZ_TRY(oz_string_map_init(&n->flat, count, err));
    n->texts = oz_alloc_zero(count, sizeof *n->texts);
    if (n->texts == NULL) {
        return OZ_FAIL_NOMEM(err, "names of layers");
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = table->rows[i].name;
        size_t bytes = strlen(name);
        if (!ends_with(name, bytes, WEIGHT)) {
            continue;
        }
        bytes -= strlen(WEIGHT);
        n->texts[i] = oz_strndup(name, bytes);
        if (n->texts[i] == NULL) {
            return OZ_FAIL_NOMEM(err, "names of layers");
        }
        flatten(n->texts[i]);
        if (!oz_string_map_put(&n->flat, n->texts[i], bytes, (int32_t)i)) {
            size_t at = 0; /* the first of that name tells that there are two */
            while (n->texts[at] == NULL || strcmp(n->texts[at], n->texts[i]) != 0) {
                at++;
            }
            for (size_t s = 0; s <= n->flat.mask; s++) {
                if (n->flat.slots[s].text == n->texts[at]) {
                    n->flat.slots[s].value = OZ_LORA_TWO_ROWS;
                }
            }
        }
    }
    return OZ_OK;
}

void oz_lora_names_deinit(struct oz_lora_names *n)
{
    for (int32_t i = 0; n->texts != NULL && i < n->table->count; i++) {
        oz_free(n->texts[i]);
    }
    oz_free((void *)n->texts);
    oz_string_map_deinit(&n->flat);
    *n = (struct oz_lora_names){0};
}

/* A module by its dotted name. */
static int32_t find_dotted(const struct oz_lora_names *n, const char *text, size_t bytes)
{
    char name[OZ_CKPT_MAX_NAME_BYTES];
    if (bytes + sizeof WEIGHT > sizeof name) {
        return OZ_LORA_NO_ROW;
    }
    memcpy(name, text, bytes);
    memcpy(name + bytes, WEIGHT, sizeof WEIGHT);
    const struct oz_layer *row = oz_layer_find(n->table, name);
    return row != NULL ? (int32_t)(row - n->table->rows) : OZ_LORA_NO_ROW;
}

static int32_t find_flat(const struct oz_lora_names *n, const char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof flat_inner / sizeof *flat_inner; i++) {
        size_t skip = strlen(flat_inner[i]);
        if (bytes > skip && memcmp(text, flat_inner[i], skip) == 0) {
            int32_t row = oz_string_map_get(&n->flat, text + skip, bytes - skip, OZ_LORA_NO_ROW);
            if (row != OZ_LORA_NO_ROW) {
                return row;
            }
        }
    }
    return OZ_LORA_NO_ROW;
}

int32_t oz_lora_find_row(const struct oz_lora_names *n, const char *key, size_t module_bytes)
{
    for (;;) {
        int32_t row = find_dotted(n, key, module_bytes);
        if (row != OZ_LORA_NO_ROW) {
            return row;
        }
        size_t flat = PREFIX_OF(key, module_bytes, flat_prefixes);
        if (flat > 0) {
            return find_flat(n, key + flat, module_bytes - flat);
        }
        size_t skip = PREFIX_OF(key, module_bytes, prefixes);
        if (skip == 0) {
            bool other = PREFIX_OF(key, module_bytes, other_models) > 0;
            return other ? OZ_LORA_OTHER_MODEL : OZ_LORA_NO_ROW;
        }
        key += skip;
        module_bytes -= skip;
    }
}

const char *oz_lora_nearest(const struct oz_lora_names *n, const char *key, size_t module_bytes)
{
    const char *const *names = (const char *const *)n->texts;
    const char *list[4096];
    size_t count = 0;
    for (size_t skip; (skip = PREFIX_OF(key, module_bytes, prefixes)) > 0;) {
        key += skip;
        module_bytes -= skip;
    }
    size_t flat = PREFIX_OF(key, module_bytes, flat_prefixes);
    char *wrong = oz_strndup(key + flat, module_bytes - flat);
    if (wrong == NULL) {
        return NULL;
    }
    flatten(wrong);
    for (int32_t i = 0; i < n->table->count && count < sizeof list / sizeof *list; i++) {
        if (names[i] != NULL && n->table->rows[i].kind == OZ_LAYER_LINEAR) {
            list[count++] = names[i];
        }
    }
    const char *near = oz_names_nearest(wrong, list, count);
    oz_free(wrong);
    int32_t row = near != NULL ? oz_string_map_get(&n->flat, near, strlen(near), -1) : -1;
    return row >= 0 ? n->table->rows[row].module : NULL;
}
