/*
 * compare.c: `ounce compare`: pictures against those of a reference. Without candidates among the options
 * the arguments are pictures, or folders of them, and are compared as they are; with some the argument is
 * a model (compare_models.c).
 */
#define OZ_UNSTABLE
#include <ounce/ounce.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "messages.h"
#include "options.h"
#include "output.h"

/* What is compared is not written over. */
static enum oz_status check_output(const struct settings *s, const char *option, const char *path)
{
    for (size_t i = 0; path != NULL && i < s->arguments.count; i++) {
        if (strcmp(path, s->arguments.items[i]) == 0) {
            return cli_fail(OZ_ERR_ARG, "%s %s is also one of the pictures; choose another name.",
                            option, path);
        }
    }
    return OZ_OK;
}

static enum oz_status check(const struct settings *s)
{
    const struct text_list *a = &s->arguments;
    if (a->count < 2) {
        return cli_fail(
            OZ_ERR_ARG,
            "%s: `ounce compare REFERENCE.png CANDIDATE.png...`, or folders of pictures.",
            a->count == 0 ? "There is nothing to compare"
                          : "There is a reference, but no candidate");
    }
    for (size_t i = 0; i < a->count; i++) {
        if (*a->items[i] == '\0') {
            return cli_fail(OZ_ERR_ARG, "The name of a picture is an empty text.");
        }
    }
    if (s->output_json != NULL && *s->output_json == '\0') {
        return cli_fail(OZ_ERR_ARG, "--output-json is an empty text; it must name a file.");
    }
    enum oz_status status = check_output(s, "--output-json", s->output_json);
    return status == OZ_OK ? check_output(s, "--contact-sheet", s->contact_sheet) : status;
}

static enum oz_status write_sheet(const struct oz_comparison *comparison,
                                  const struct output *output, struct oz_error *err)
{
    struct oz_image *sheet;
    enum oz_status status = oz_comparison_sheet(comparison, &sheet, err);
    if (status == OZ_OK) {
        char *path = cli_output_path(output, 0);
        status = oz_image_write_png(sheet, path, NULL, err);
        free(path);
        oz_image_destroy(&sheet);
    }
    return status;
}

/* Files first: they are there when a threshold is missed. */
static enum oz_status compare(const struct settings *s, const struct output *sheet)
{
    struct oz_comparison *comparison;
    struct oz_compare_options options;
    struct oz_error err;
    oz_compare_options_default(&options);
    options.json = s->json;
    options.min_psnr_db = s->min_psnr;
    options.min_ssim = s->min_ssim;
    enum oz_status status =
        oz_pictures_compare(&comparison, s->arguments.items[0], s->arguments.items + 1,
                            (int32_t)(s->arguments.count - 1), &err);
    if (status == OZ_OK && sheet->count > 0) {
        status = write_sheet(comparison, sheet, &err);
    }
    if (status == OZ_OK && s->output_json != NULL) {
        status = oz_comparison_save(comparison, s->output_json, &options, &err);
    }
    if (status == OZ_OK) {
        status = oz_comparison_describe(comparison, &options, cli_write, NULL, &err);
    }
    oz_comparison_close(&comparison);
    return cli_print_done(status, &err);
}

/* Options of models, of which one is given although there is none. */
static enum oz_status check_foreign(const struct settings *s)
{
    const struct {
        bool given;
        const char *name;
    } options[] = {
        {s->prompts.count > 0, "prompt"},
        {s->prompts_file != NULL, "prompts-file"},
        {s->negative_prompt != NULL, "negative-prompt"},
        {s->width != 0, "width"},
        {s->height != 0, "height"},
        {s->num_inference_steps != 0, "num-inference-steps"},
        {s->true_cfg_scale >= 0, "true-cfg-scale"},
        {s->ignored_layers.count > 0, "ignored-layers"},
        {s->reference_model != NULL, "reference-model"},
        {s->save_output_dir != NULL, "save-output-dir"},
        {s->report != NULL, "report"},
        {s->min_cosine >= 0, "min-cosine"},
        {s->max_memory_ratio >= 0, "max-memory-ratio"},
        {s->max_time_ratio >= 0, "max-time-ratio"},
        {s->assert_different, "assert-different"},
        {s->allow_unmatched, "allow-unmatched"},
        {strcmp(s->modulation, "resident") != 0, "modulation"},
        {s->full, "full"},
        {s->budget != NULL, "budget"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].given) {
            return cli_fail(
                OZ_ERR_ARG,
                "--%s is about models; then candidates are given by "
                "--candidate-quantization or --candidate-model (or --sensitivity asks), and "
                "the argument is the model.",
                options[i].name);
        }
    }
    return OZ_OK;
}

enum oz_status cli_compare(const struct settings *s)
{
    struct output sheet = {0};
    if (s->candidate_quantizations.count > 0 || s->candidate_models.count > 0 || s->sensitivity) {
        return cli_compare_models(s);
    }
    enum oz_status status = check_foreign(s);
    if (status == OZ_OK) {
        status = check(s);
    }
    if (status == OZ_OK && s->contact_sheet != NULL) {
        status = cli_output_open(&sheet, "--contact-sheet", s->contact_sheet, 1);
    }
    if (status == OZ_OK) {
        status = compare(s, &sheet);
    }
    cli_output_close(&sheet);
    return status;
}
