/* Bugs of the field, one function for each entry of the list in README.md. Last line: the classes. */
#include "bugs/bugs.h"

#include "test.h"

#include <sys/wait.h>

#include "scratch.h"

static const struct {
    const char *name;
    void (*run)(void);
} entries[] = {
#define ENTRY(f) \
    {            \
#f, f    \
    }
    ENTRY(b11_index_names_a_tensor_that_no_shard_has),
    ENTRY(b12_stray_and_stale_files),
    ENTRY(b13_tie_flag_and_file_disagree),
    ENTRY(b14_zero_elements_and_rank_0),
    ENTRY(b15_trailing_bytes_holes_overlaps),
    ENTRY(b16_new_dtypes),
    ENTRY(b28_block_bytes_are_not_elements),
    ENTRY(b29_lost_unit_dimensions),
    ENTRY(b30_rows_shorter_than_a_block),
    ENTRY(b31_shape_errors_name_the_right_shapes),
    ENTRY(b32_zero_points_keep_their_convention),
    ENTRY(b43_prompts_beyond_ascii),
    ENTRY(b44_characters_over_several_tokens),
    ENTRY(b45_prompts_of_any_length),
    ENTRY(b47_odd_sizes),
    ENTRY(b48_seeds_inside_a_batch),
    ENTRY(b56_sizes_are_not_trusted),
    ENTRY(b57_unknown_dtype_skips_no_check),
    ENTRY(b58_headers_of_gguf),
    ENTRY(b59_lora_on_quantized_weights),
    ENTRY(b01_both_spellings_of_a_scale),
    ENTRY(b02_scales_are_not_dropped),
    ENTRY(b03_hints_in_two_places),
    ENTRY(b04_scales_without_elements),
    ENTRY(b05_order_of_nibbles),
    ENTRY(b06_fp8_is_not_widened),
    ENTRY(b07_layouts_of_fused_layers),
    ENTRY(b08_halves_the_other_way_round),
    ENTRY(b09_the_golden_set),
    ENTRY(b10_one_sentence_for_what_is_not_read),
    ENTRY(b22_config_in_four_places),
    ENTRY(b23_tensors_outrank_configs),
    ENTRY(b33_bitsandbytes_without_a_config),
    ENTRY(b34_kinds_of_svdquant),
    ENTRY(b35_msmodelslim_descriptions),
    ENTRY(b36_scalars_of_rank_0_and_1),
#undef ENTRY
};

static const char *const words[OUTCOMES] = {"passed", "refused rightly", "wrong but loud",
                                            "wrong and silent"};
static int counts[OUTCOMES];
static const char *running;

void bugs_count(enum outcome outcome, const char *format, ...)
{
    counts[outcome]++;
    if (outcome == PASSED || outcome == REFUSED) {
        return;
    }
    va_list args;
    printf("%s: %s: ", running, words[outcome]);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    printf("\n");
}

void bugs_right(bool right, const char *what)
{
    bugs_count(right ? PASSED : SILENT, "%s", what);
}

bool bugs_works(enum oz_status status, const struct oz_error *err, const char *what)
{
    if (status != OZ_OK) {
        bugs_count(LOUD, "%s: %s", what, err->message);
    }
    return status == OZ_OK;
}

void bugs_refused(enum oz_status got, const struct oz_error *err, enum oz_status want,
                  const char *phrase, const char *what)
{
    if (got == OZ_OK) {
        bugs_count(SILENT, "%s: it went through", what);
    } else if (got != want || strstr(err->message, phrase) == NULL) {
        bugs_count(LOUD, "%s: status %d, \"%s\" instead of %d, \"%s\"", what, got, err->message,
                   want, phrase);
    } else {
        bugs_count(REFUSED, "%s", what);
    }
}

const char *bugs_file(const char *name)
{
    return scratch_path("made/%s", name);
}

int main(void)
{
    char command[8192];
    if (scratch_open(NULL) != 0) {
        printf("no scratch folder\n");
        return 1;
    }
    (void)snprintf(command, sizeof command, "'%s/bugs/make' '%s'", OZ_TEST_DIR,
                   scratch_path("made"));
    if (system(command) != 0) { /* NOLINT(cert-env33-c): our own script */
        printf("the files could not be made\n");
        return 1;
    }
    size_t count = sizeof entries / sizeof *entries;
    for (size_t i = 0; i < count; i++) {
        int before[OUTCOMES];
        memcpy(before, counts, sizeof before);
        running = entries[i].name;
        entries[i].run();
        int passed = counts[PASSED] - before[PASSED];
        int refused = counts[REFUSED] - before[REFUSED];
        printf("%-50s %3d passed %3d refused\n", running, passed, refused);
        if (passed + refused == 0) {
            bugs_count(SILENT, "nothing was checked");
        }
    }
    bugs_close_engine();
    (void)scratch_close(NULL);
    printf("%zu entries: %d passed, %d refused rightly, %d wrong but loud, %d wrong and silent\n",
           count, counts[PASSED], counts[REFUSED], counts[LOUD], counts[SILENT]);
    return counts[LOUD] + counts[SILENT] > 0;
}
