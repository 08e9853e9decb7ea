/*
 * ounce: the program. This file holds the table of commands and their help; each command has a file
 * of its own.
 */
#include <ounce/ounce.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "common/words.h"
#include "messages.h"
#include "options.h"
#include "text.h"

static const struct command commands[] = {
    {"generate", COMMAND_GENERATE, cli_generate, "generate [MODEL] --prompt TEXT [options]",
     "draw pictures from prompts",
     "MODEL is a folder in the diffusers layout, or org/name in the Hugging Face cache on disk; "
     "without\n"
     "one the bundled emoji model draws.\n"
     "The paths of the pictures go to standard output, one a line, all else to standard error.\n"
     "Ctrl-C stops within a step and leaves no unfinished file; what was written stays.\n"
     "\n"
     "Examples:\n"
     "  ounce generate --prompt \"red apple\" -o apple.png\n"
     "  ounce generate --prompt \"pizza\" -n 4 --seed 7 -o pizzas/\n"
     "  ounce generate --prompts-file prompts.txt --contact-sheet all.png\n"},
    {"serve", COMMAND_SERVE, cli_serve, "serve [MODEL] [options]",
     "serve a model over HTTP: OpenAI's images API, jobs with previews, a web page",
     "MODEL as for generate. The address goes to standard output, log lines to standard error.\n"
     "Open it in a browser for a page; POST /v1/images/generations draws, /docs lists all routes.\n"
     "Only this machine reaches it unless --host says otherwise, and then it asks for an API key.\n"
     "Many people share one model: their pictures join and leave between steps, and each has the\n"
     "bytes that it has alone. SIGTERM and Ctrl-C let pictures under way end; a second one does "
     "not.\n"
     "\n"
     "Examples:\n"
     "  ounce serve\n"
     "  ounce serve MODEL -q fp8_per_channel --max-num-seqs 8\n"
     "  ounce serve --host 0.0.0.0 --api-key-file keys --tls-cert cert.pem --tls-key key.pem\n"},
    {"plan", COMMAND_PLAN, cli_plan, "plan [MODEL] [options]",
     "say what a load would do and what memory it takes, before anything is loaded",
     "MODEL is a folder in the diffusers layout, or org/name in the Hugging Face cache on disk; "
     "without\n"
     "one it is the bundled emoji model.\n"
     "For each layer its scheme, the rule that chose it, the kernel and why better ones declined, "
     "and\n"
     "its bytes on disk and resident; sums; the read schedule; the peaks of loading and of "
     "drawing.\n"
     "Equal blocks are folded. Only headers are read. `ounce generate` with the same options does "
     "what\n"
     "the plan says.\n"
     "With --fit it finds the quantization instead of being told, and gives way in a fixed order; "
     "the\n"
     "exit status is 7 when nothing fits.\n"
     "\n"
     "Examples:\n"
     "  ounce plan -q int8\n"
     "  ounce plan --json -q mxfp4 --width 256 --height 256 -n 4\n"
     "  ounce plan MODEL --fit 20GiB\n"},
    {"inspect", COMMAND_INSPECT, cli_inspect, "inspect [MODEL] [options]",
     "describe a model from the headers of its files",
     "MODEL is a folder in the diffusers layout, or org/name in the Hugging Face cache on disk; "
     "without\n"
     "one it is the bundled emoji model.\n"
     "Components, tensors, dtypes and bytes, and what consumes each tensor; no weights are read.\n"
     "A model that would not load is described as far as it goes, and the exit status is 3.\n"
     "\n"
     "Examples:\n"
     "  ounce inspect\n"
     "  ounce inspect --json --tensors MODEL\n"},
    {"kernels", COMMAND_KERNELS, cli_kernels, "kernels [options]",
     "list the kernels of each operator, and what is usable here",
     "The processor's tiers, then each operator's kernels, best first: name, tier, where its "
     "tests\n"
     "have run, and why it is not usable here. OUNCE_CPU and OUNCE_FORCE count.\n"
     "\n"
     "Examples:\n"
     "  ounce kernels\n"
     "  OUNCE_CPU=avx2 ounce kernels --json\n"},
    {"bench", COMMAND_BENCH, cli_bench,
     "bench [MODEL] [options], or ounce bench --kernels [FILTER] [options]",
     "measure a model, or each kernel against the machine's limits",
     "With a MODEL, or without one for the bundled emoji model: the times of loading, text, a "
     "step,\n"
     "decoding and all together, for a size and a number of steps; each repeat opens the model "
     "anew.\n"
     "Then pictures a second with up to 1, 4 and 8 drawn together.\n"
     "With --kernels: the rate of each kernel over shapes of real models, as a share of what the\n"
     "machine can do at most, measured in the same run. FILTER is words with commas between; each\n"
     "must be a part of an operator's, a kernel's or a shape's name. The largest shapes (m4096,\n"
     "s4160) are measured only when a word names them.\n"
     "\n"
     "Examples:\n"
     "  ounce bench --num-inference-steps 10\n"
     "  ounce bench --kernels linear --json > before.json\n"
     "  ounce bench --kernels linear --against before.json\n"},
    {"quantize", COMMAND_QUANTIZE, cli_quantize,
     "quantize [MODEL] --output FOLDER --quantization METHOD [options]",
     "write a model whose weights are quantized already",
     "MODEL as for generate. What `ounce generate` with the same options would quantize while "
     "loading\n"
     "is quantized into files, as compressed-tensors or bitsandbytes has them; everything else of\n"
     "the model's folder is copied. The new folder draws the same pictures, and is only loaded.\n"
     "It appears when it is whole. A run that is stopped, by Ctrl-C too, leaves the files that it "
     "has\n"
     "written in FOLDER.ounce-part; the same command goes on from there.\n"
     "The formats hold fp8 (by tensor, channel or block), int8, mxfp8, mxfp4, nvfp4, "
     "bitsandbytes.\n"
     "\n"
     "Examples:\n"
     "  ounce quantize -q fp8_per_channel -o emoji-fp8\n"
     "  ounce quantize Qwen/Qwen-Image -q mxfp4 --ignored-layers img_mlp -o qwen-image-mxfp4\n"},
    {"convert", COMMAND_CONVERT, cli_convert, "convert [MODEL] --output FOLDER [options]",
     "write a model that others have quantized as plain safetensors",
     "MODEL as for generate: quantized by any toolchain that ounce reads, with GGUF files in it, "
     "or "
     "with\n"
     "weights of other names; or a base model whose transformer --transformer replaces. Layers "
     "become\n"
     "BF16; tensors that are plain keep their bytes; configs tell of no quantization any more. "
     "With\n"
     "--to codes nothing is expanded: codes and scales carry over bit for bit to what `ounce "
     "quantize`\n"
     "writes, or are refused.\n"
     "The folder appears when it is whole, and what is stopped goes on, as with quantize.\n"
     "\n"
     "Examples:\n"
     "  ounce convert ./qwen-image-modelopt-fp8 -o qwen-image-bf16\n"
     "  ounce convert Qwen/Qwen-Image --transformer qwen-image-Q4_K_M.gguf -o "
     "qwen-image-q4km-bf16\n"},
    {"compare", COMMAND_COMPARE, cli_compare,
     "compare [MODEL] --candidate-quantization REQUEST... --prompt TEXT [options], or ounce "
     "compare "
     "REFERENCE CANDIDATE... [options]",
     "measure what a quantization, a model or a change costs in quality",
     "Of a MODEL (without one the bundled emoji model): draws the same pictures with the model as "
     "it is\n"
     "stored and with each candidate, and compares pictures, latents step by step, times and "
     "memory; "
     "and\n"
     "checks that every layer ran as planned. Ctrl-C keeps what is done in --output-json, from "
     "where "
     "the\n"
     "same command goes on. With --sensitivity: which layers bear which scheme, and for a --budget "
     "the\n"
     "cheapest --quantization-config that meets it.\n"
     "Of pictures: REFERENCE and each CANDIDATE are PNG files of one size, or folders whose PNG "
     "files "
     "have\n"
     "the same names; PSNR, SSIM, mean absolute error, relative L2 and cosine similarity of the "
     "8-bit\n"
     "pictures.\n"
     "With thresholds the exit status is 7 when a candidate misses one.\n"
     "\n"
     "Examples:\n"
     "  ounce compare --prompts-file prompts.txt --candidate-quantization int8 --report int8.html\n"
     "  ounce compare --sensitivity --prompts-file prompts.txt --budget psnr=42\n"
     "  ounce compare reference/ int8/ --min-psnr 40 --output-json int8.json\n"},
    {"random-model", COMMAND_RANDOM_MODEL, cli_random_model,
     "random-model --output FOLDER [options]", "write a model with random weights, of any size",
     "A complete folder in the diffusers layout, with the bundled model's tokenizer, for measuring "
     "and\n"
     "testing on shapes of real models. Weights are N(0, 1) / sqrt(fan-in) in bf16, norms 1, "
     "biases\n"
     "small: activations stay of order one. Values depend on the seed and the parameters' names "
     "alone.\n"
     "\n"
     "Examples:\n"
     "  ounce random-model -o tiny --layers 2 --heads 2\n"
     "  ounce random-model -o wide --like qwen-image --layers 2 --text-layers 2\n"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command *command_named(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

const struct command *cli_command_of(unsigned bit)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (commands[i].bit == bit) {
            return &commands[i];
        }
    }
    return NULL;
}

static void command_help(const struct command *command)
{
    (void)cli_printf("ounce %s: %s\n\nUsage: ounce %s\n\n%s\nOptions:\n", command->name,
                     command->summary, command->usage, command->more);
    cli_options_help(command->bit);
    (void)cli_printf("\nEach option has a page in docs/options.\n");
}

static void print_usage(void)
{
    (void)cli_printf("ounce %s: image and language models, fewer ounces\n\n"
                     "Usage: ounce COMMAND [options]\n\nCommands:\n",
                     oz_version());
    for (size_t i = 0; i < COMMANDS; i++) {
        (void)cli_printf("  %-13s %s\n", commands[i].name, commands[i].summary);
    }
    (void)cli_printf("\nOptions:\n");
    cli_options_help(COMMAND_TOP);
    (void)cli_printf(
        "\n`ounce help COMMAND` says all about one. A first picture:\n"
        "  ounce generate --prompt \"red apple\" -o apple.png\n\n"
        "Exit status: 0 done, 1 internal error, 2 usage, 3 malformed file, 4 valid but not\n"
        "supported, 5 out of memory, 6 input or output, 7 a threshold was missed, 8 no such\n"
        "model, 9 device absent or lost, 11 busy, 130 interrupted.\n");
}

static enum oz_status fail_command(const char *name)
{
    const char *names[COMMANDS + 1] = {"help"};
    for (size_t i = 0; i < COMMANDS; i++) {
        names[i + 1] = commands[i].name;
    }
    const char *nearest = words_nearest(name, names, COMMANDS + 1);
    if (nearest != NULL) {
        return cli_fail(OZ_ERR_ARG, "There is no command '%s'; did you mean `ounce %s`?", name,
                        nearest);
    }
    return cli_fail(OZ_ERR_ARG, "There is no command '%s'; `ounce --help` lists them.", name);
}

static enum oz_status help(int argc, char **argv)
{
    if (argc < 2) {
        print_usage();
        return OZ_OK;
    }
    if (argc > 2) {
        return cli_fail(OZ_ERR_ARG, "`ounce help` takes one command.");
    }
    const struct command *command = command_named(argv[1]);
    if (command == NULL) {
        return fail_command(argv[1]);
    }
    command_help(command);
    return OZ_OK;
}

/* argv[0] is the command's name. */
static enum oz_status run(const struct command *command, int argc, char **argv)
{
    struct settings settings;
    enum oz_status status = cli_options_parse(&settings, command->bit, argc, argv);
    if (status == OZ_OK && settings.help) {
        command_help(command);
    } else if (status == OZ_OK) {
        status = command->run(&settings);
    }
    cli_settings_free(&settings);
    return status;
}

/* The program's own options, given instead of a command. */
static enum oz_status top(int argc, char **argv)
{
    struct settings settings;
    enum oz_status status = cli_options_parse(&settings, COMMAND_TOP, argc, argv);
    if (status == OZ_OK && settings.help) {
        print_usage();
    } else if (status == OZ_OK && settings.version) {
        (void)cli_printf("ounce %s\n", oz_version());
    } else if (status == OZ_OK) {
        status = cli_fail(OZ_ERR_ARG, "A command must follow: `ounce --help` lists them.");
    }
    cli_settings_free(&settings);
    return status;
}

int main(int argc, char **argv)
{
    cli_streams_init();
    enum oz_status status;
    const struct command *command = argc > 1 ? command_named(argv[1]) : NULL;
    if (command != NULL) {
        status = run(command, argc - 1, argv + 1);
    } else if (argc > 1 && strcmp(argv[1], "help") == 0) {
        status = help(argc - 1, argv + 1);
    } else if (argc > 1 && argv[1][0] != '-') {
        status = fail_command(argv[1]);
    } else {
        status = top(argc, argv);
    }
    enum oz_status flushed = cli_print_end();
    return cli_exit_code(status != OZ_OK ? status : flushed);
}
