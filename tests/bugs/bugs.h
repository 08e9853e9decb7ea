/*
 * What happened when a bug of the field was put to ounce, in four classes. Each check ends in one of
 * them; the program fails when one of the last two is met.
 *   passed            it works, and the result was looked at
 *   refused rightly   an error of the right status, in the right words
 *   wrong but loud    an error where it should work, or another error than the right one
 *   wrong and silent  it went through with a wrong result, or without the refusal or the warning
 */
#ifndef OZ_TESTS_BUGS_H
#define OZ_TESTS_BUGS_H

#include <ounce/status.h>
#include <stdbool.h>

enum outcome { PASSED, REFUSED, LOUD, SILENT, OUTCOMES };

/* Counts an outcome of the running entry; the text is printed for the wrong ones. */
void bugs_count(enum outcome outcome, const char *format, ...) OZ_PRINTF(2, 3);
/* The result is right, or wrong without anybody having said so. */
void bugs_right(bool right, const char *what);
/* What must work did not fail. Returns whether it did not. */
bool bugs_works(enum oz_status status, const struct oz_error *err, const char *what);
/* What must be refused was, so and in these words. */
void bugs_refused(enum oz_status got, const struct oz_error *err, enum oz_status want,
                  const char *phrase, const char *what);
/* The path of a file that `make` wrote; valid until the eighth call from now. */
const char *bugs_file(const char *name);

/* The entries, in files by subject. */
void b11_index_names_a_tensor_that_no_shard_has(void);
void b12_stray_and_stale_files(void);
void b13_tie_flag_and_file_disagree(void);
void b14_zero_elements_and_rank_0(void);
void b15_trailing_bytes_holes_overlaps(void);
void b16_new_dtypes(void);
void b56_sizes_are_not_trusted(void);
void b57_unknown_dtype_skips_no_check(void);
void b43_prompts_beyond_ascii(void);
void b44_characters_over_several_tokens(void);
void b45_prompts_of_any_length(void);
void b47_odd_sizes(void);
void b48_seeds_inside_a_batch(void);
void b59_lora_on_quantized_weights(void);
void b28_block_bytes_are_not_elements(void);
void b29_lost_unit_dimensions(void);
void b30_rows_shorter_than_a_block(void);
void b31_shape_errors_name_the_right_shapes(void);
void b32_zero_points_keep_their_convention(void);
void b58_headers_of_gguf(void);
void b01_both_spellings_of_a_scale(void);
void b02_scales_are_not_dropped(void);
void b03_hints_in_two_places(void);
void b04_scales_without_elements(void);
void b05_order_of_nibbles(void);
void b06_fp8_is_not_widened(void);
void b07_layouts_of_fused_layers(void);
void b08_halves_the_other_way_round(void);
void b09_the_golden_set(void);
void b10_one_sentence_for_what_is_not_read(void);
void b22_config_in_four_places(void);
void b23_tensors_outrank_configs(void);
void b33_bitsandbytes_without_a_config(void);
void b34_kinds_of_svdquant(void);
void b35_msmodelslim_descriptions(void);
void b36_scalars_of_rank_0_and_1(void);
void bugs_close_engine(void);

#endif
