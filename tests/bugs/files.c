/* Entries about files: index and shards, tied weights, odd tensors, sizes and dtypes. */
#include "bugs/bugs.h"
#include "test.h"

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "ckpt/table.h"
#include "load/load.h"
#include "load/match.h"
#include "model/qwen25_vl/qwen25_vl.h"
#include "scratch.h"

#define GOLDEN OZ_TEST_DIR "/golden/text_tower"

static struct oz_error err;

static enum oz_status open_file(const char *name, struct oz_ckpt **c)
{
    scratch_log_clear();
    uint64_t number = oz_log_set(scratch_log_line, NULL);
    enum oz_status status = oz_ckpt_open(c, bugs_file(name), NULL, &err);
    oz_log_unset(number);
    return status;
}

static void refused(const char *name, enum oz_status want, const char *phrase)
{
    struct oz_ckpt *c;
    enum oz_status got = open_file(name, &c);
    bugs_refused(got, &err, want, phrase, name);
    oz_ckpt_close(&c);
}

void b11_index_names_a_tensor_that_no_shard_has(void)
{
    refused("b11", OZ_ERR_FORMAT, "mtp.fc.weight (model-00002-of-00002.safetensors)");
    refused("b11/model.safetensors.index.json", OZ_ERR_FORMAT, "mtp.fc.weight");
}

void b12_stray_and_stale_files(void)
{
    struct oz_ckpt *c;
    if (bugs_works(open_file("b12", &c), &err, "two shards beside a stray file")) {
        const struct oz_tensor_view *a = oz_ckpt_find(c, "a", NULL);
        bugs_right(a != NULL && a->dtype == OZ_DTYPE_U8 && a->bytes == 4,
                   "the index decides, not the stray file");
        bugs_right(oz_ckpt_count(c) == 2 && oz_ckpt_find(c, "c", NULL) == NULL,
                   "nothing of the strays is merged in");
        bugs_right(oz_ckpt_stray_count(c) == 2 &&
                       strcmp(oz_ckpt_stray(c, 0), "extra.safetensors") == 0 &&
                       strcmp(oz_ckpt_stray(c, 1), "model.safetensors") == 0,
                   "the strays are named");
    }
    oz_ckpt_close(&c);
    refused("b12_stale", OZ_ERR_FORMAT, "In a shard but not in the index: c.");
}

/* Matches a tower's config with a checkpoint. The caller frees. */
struct tower {
    struct oz_ckpt *ckpt;
    struct oz_arena host;
    struct oz_layer_table table;
    struct oz_match *match;
    struct oz_qwen25_vl m;
};

static enum oz_status match_tower(struct tower *w, const char *config, const char *weights)
{
    char prefix[OZ_QWEN25_VL_PREFIX_BYTES];
    struct oz_qwen25_vl_config c;
    struct oz_json *root;
    memset(w, 0, sizeof *w);
    OZ_TRY(oz_json_parse_file(&root, config, 1 << 20, &err));
    enum oz_status status = oz_qwen25_vl_config_read(&c, root, config, &err);
    oz_json_free(root);
    OZ_TRY(status);
    c.need_head = true;
    OZ_TRY(oz_ckpt_open(&w->ckpt, weights, NULL, &err));
    OZ_TRY(oz_qwen25_vl_find_prefix(w->ckpt, prefix, &err));
    OZ_TRY(oz_arena_init_host(&w->host, "host", oz_qwen25_vl_host_bytes(&c), &err));
    OZ_TRY(oz_qwen25_vl_build(&w->m, &c, &w->host, &w->table, prefix, &err));
    OZ_TRY(oz_match_create(&w->match, w->ckpt, &w->table, NULL, &err));
    return oz_match_check(w->match, weights, &err);
}

static void free_tower(struct tower *w)
{
    oz_match_destroy(&w->match);
    oz_arena_deinit(&w->host);
    oz_ckpt_close(&w->ckpt);
}

/* The tensor that the head of a matched tower takes. */
static const char *head_of(const struct tower *w)
{
    for (int32_t r = 0; r < w->table.count; r++) {
        if (w->table.rows[r].role == OZ_ROLE_LM_HEAD && w->match->row_tensor[r] >= 0) {
            return oz_ckpt_tensor(w->ckpt, w->match->row_tensor[r])->name;
        }
    }
    return "";
}

void b13_tie_flag_and_file_disagree(void)
{
    struct tower w;
    scratch_folder("b13");
    scratch_copy("b13/untied", GOLDEN);
    scratch_copy("b13/tied", GOLDEN);
    scratch_edit("b13/untied/tied.config.json", "\"tie_word_embeddings\": true",
                 "\"tie_word_embeddings\": false");
    scratch_log_clear();
    uint64_t number = oz_log_set(scratch_log_line, NULL);
    /* tied, no head in the file */
    if (bugs_works(match_tower(&w, GOLDEN "/tied.config.json", GOLDEN "/tied.safetensors"), &err,
                   "tied, no head")) {
        bugs_right(strstr(head_of(&w), "embed_tokens") != NULL, "the head is the embedding");
    }
    free_tower(&w);
    /* untied, no head in the file */
    enum oz_status got =
        match_tower(&w, scratch_path("b13/untied/tied.config.json"), GOLDEN "/tied.safetensors");
    bugs_refused(got, &err, OZ_ERR_FORMAT, "lm_head.weight", "untied, no head");
    bugs_refused(got, &err, OZ_ERR_FORMAT, "set \"tie_word_embeddings\" to true",
                 "untied, no head: the remedy");
    free_tower(&w);
    /* tied, but the file has a head: it is taken, with a notice. tests/parity/text_tower_test.c holds
     * the numbers of both cases. */
    static const char header[] =
        "{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[128,64],\"data_offsets\":[0,32768]}}";
    uint8_t *head = calloc(1, 8 + sizeof header - 1 + 32768);
    assert_non_null(head);
    head[0] = sizeof header - 1;
    memcpy(head + 8, header, sizeof header - 1);
    scratch_write("b13/tied/model-2.safetensors", head, 8 + sizeof header - 1 + 32768);
    free(head);
    char *index = calloc(1, 1 << 16);
    assert_non_null(index);
    struct oz_ckpt *c;
    size_t n = (size_t)snprintf(index, 1 << 16,
                                "{\"weight_map\":{\"lm_head.weight\":"
                                "\"model-2.safetensors\"");
    if (bugs_works(oz_ckpt_open(&c, GOLDEN "/tied.safetensors", NULL, &err), &err, "the body")) {
        for (int64_t i = 0; i < oz_ckpt_count(c); i++) {
            n += (size_t)snprintf(index + n, (1 << 16) - n, ",\"%s\":\"tied.safetensors\"",
                                  oz_ckpt_tensor(c, i)->name);
        }
    }
    oz_ckpt_close(&c);
    (void)snprintf(index + n, (1 << 16) - n, "}}");
    scratch_text("b13/tied/model.safetensors.index.json", index);
    free(index);
    if (bugs_works(match_tower(&w, GOLDEN "/tied.config.json",
                               scratch_path("b13/tied/model.safetensors.index.json")),
                   &err, "tied, with a head of its own")) {
        bugs_right(strcmp(head_of(&w), "lm_head.weight") == 0, "the head of the file wins");
        bugs_right(strstr(scratch_log, "The config ties lm_head.weight") != NULL, "with a notice");
    }
    free_tower(&w);
    oz_log_unset(number);
}

void b14_zero_elements_and_rank_0(void)
{
    struct oz_ckpt *c;
    if (bugs_works(open_file("b14.safetensors", &c), &err, "rank 0 and zero elements")) {
        const struct oz_tensor_view *a = oz_ckpt_find(c, "a", NULL);
        const struct oz_tensor_view *b = oz_ckpt_find(c, "b", NULL);
        const struct oz_tensor_view *e = oz_ckpt_find(c, "c", NULL);
        float value = 0;
        bugs_right(a != NULL && a->rank == 0 && a->elements == 1, "a scalar is one element");
        if (a != NULL && bugs_works(oz_ckpt_read(c, a, 0, 4, &value, &err), &err, "its value")) {
            bugs_right(value == 2.5F, "its value");
        }
        bugs_right(b != NULL && b->rank == 1 && b->elements == 0 && b->bytes == 0, "[0]");
        bugs_right(e != NULL && e->rank == 2 && e->elements == 0 && e->shape[0] == 2, "[2, 0]");
    }
    oz_ckpt_close(&c);
}

/* One of three ways to the same file: alone, in a folder, as a shard. */
static const char *way(char name[128], int which, const char *file)
{
    static const char *const folders[] = {"b15", "b15_folder", "b15_shards"};
    (void)snprintf(name, 128, "%s/%s%s", folders[which], file, which == 0 ? ".safetensors" : "");
    return name;
}

void b15_trailing_bytes_holes_overlaps(void)
{
    for (int i = 0; i < 3; i++) {
        char name[128];
        struct oz_ckpt *c;
        if (bugs_works(open_file(way(name, i, "trailing"), &c), &err, name)) {
            bugs_right(strstr(scratch_log, "16 bytes after the last tensor are ignored") != NULL,
                       "trailing bytes are told");
            bugs_right(oz_ckpt_count(c) == 2, "the tensors are there");
        }
        oz_ckpt_close(&c);
        refused(way(name, i, "hole"), OZ_ERR_FORMAT, "the data have a hole");
        refused(way(name, i, "overlap"), OZ_ERR_FORMAT, "the data overlap");
    }
}

void b16_new_dtypes(void)
{
    static const struct {
        const char *name;
        enum oz_dtype dtype;
        int64_t elements, bytes;
    } good[] = {
        {"b16_f4.safetensors", OZ_DTYPE_F4, 16, 8},
        {"b16_e8m0.safetensors", OZ_DTYPE_F8_E8M0, 3, 3},
        {"b16_f6.safetensors", OZ_DTYPE_F6_E2M3, 8, 6},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct oz_ckpt *c;
        if (bugs_works(open_file(good[i].name, &c), &err, good[i].name)) {
            const struct oz_tensor_view *t = oz_ckpt_find(c, "w", NULL);
            bugs_right(t != NULL && t->dtype == good[i].dtype && t->elements == good[i].elements &&
                           t->bytes == good[i].bytes,
                       good[i].name);
        }
        oz_ckpt_close(&c);
    }
    refused("b16_f4_odd.safetensors", OZ_ERR_FORMAT, "do not fill whole bytes");
    refused("b16_f6_odd.safetensors", OZ_ERR_FORMAT, "do not fill whole bytes");
}

void b56_sizes_are_not_trusted(void)
{
    refused("b56_shape.safetensors", OZ_ERR_FORMAT, "its shape needs 4000000 bytes");
    refused("b56_offsets.safetensors", OZ_ERR_FORMAT, "the file holds only 4");
    refused("b56_length.safetensors", OZ_ERR_FORMAT, "claims a header of 18446744073709551615");
    refused("b56_length_wraps.safetensors", OZ_ERR_FORMAT, "claims a header of");
    refused("b56_product.safetensors", OZ_ERR_FORMAT, "product overflows");
}

void b57_unknown_dtype_skips_no_check(void)
{
    refused("b57_dtype.safetensors", OZ_ERR_UNSUPPORTED, "unknown dtype \"Z9\"");
    refused("b57_range.safetensors", OZ_ERR_FORMAT, "ends at byte 400 of the data");
    refused("b57_huge.safetensors", OZ_ERR_FORMAT, "too big integer");
    refused("b57_largest.safetensors", OZ_ERR_FORMAT, "ends at byte 9223372036854775807");
}
