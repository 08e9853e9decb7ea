/*
 * ounce.h: the public interface of ounce, a C engine for image (later video and language) models.
 *
 * The short way, complete but for error handling:
 *
 *     struct oz_engine_options options;
 *     struct oz_image_request request;
 *     struct oz_engine *engine;
 *     struct oz_image *image;
 *     struct oz_error err;
 *
 *     oz_engine_options_default(&options);            // the bundled emoji model, on the CPU
 *     oz_engine_open(&engine, &options, &err);
 *     oz_image_request_default(&request);
 *     request.prompt = "red apple";
 *     oz_image_generate(engine, &request, 1, &image, &err);
 *     oz_image_write_png(image, "apple.png", NULL, &err);
 *     oz_image_destroy(&image);
 *     oz_engine_close(&engine);
 *
 * Rules for the whole interface
 *  - A fallible function returns enum oz_status, OZ_OK on success. With an error record it fills it
 *    (status, a message of whole sentences); the record is the last parameter and may be NULL.
 *  - ounce never exits, aborts or prints. It writes to files only where asked.
 *  - A model's files are mapped. So that one that is cut short meanwhile is an error and no SIGBUS,
 *    ounce installs a handler of that signal when it maps the first file; faults outside of its maps go
 *    on to the handler that was there before.
 *  - Strings are UTF-8, zero-terminated. Strings and structs that you pass are read during the call
 *    only, unless their comment says otherwise.
 *  - Options and requests begin with struct_size and are filled by their _default macro. It tells
 *    the library the size that you compiled with: code built against an older header keeps
 *    working. In an array all elements have the first one's struct_size. Zero or NULL in a member
 *    means "the model's own default", unless the member's comment says otherwise.
 *  - An engine may be used by one thread at a time, except for oz_engine_info, oz_engine_stats and
 *    oz_image_check, which may be called from any thread at any time. Different engines are
 *    independent; the log callback is the process's (the last engine opened sets it).
 *  - Everything that ends in _create, _open or comes back through an `out` pointer is yours to give
 *    back by the matching _destroy or _close, which accept NULL and pointers to NULL, and
 *    leave NULL. After a failure *out is NULL.
 */
#ifndef OUNCE_OUNCE_H
#define OUNCE_OUNCE_H

#include <ounce/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OZ_VERSION_MAJOR 0
#define OZ_VERSION_MINOR 1
#define OZ_VERSION_PATCH 0

/* "0.1.0", of the library that runs (the macros are of the header that was compiled). */
OZ_API const char *oz_version(void);

/* ---- engine: an opened model ---- */

struct oz_engine;

enum oz_precision {
    OZ_PRECISION_F32 = 1, /* f32 arithmetic; bf16 weights are widened exactly, on use */
    /* bf16 weights are multiplied with activations rounded to bf16, f32 accumulation. Weights that
     * are stored otherwise, and everything that is no product with a weight, are computed as with
     * F32; so are bf16 weights where the device has no kernel for bf16 inputs. */
    OZ_PRECISION_BF16 = 2,
};

struct oz_engine_options {
    size_t struct_size;

    /* A folder in the diffusers layout, or "org/name" of a model in the Hugging Face cache on disk
     * (nothing is downloaded). NULL or "": the bundled emoji model, looked for in $OUNCE_MODELS, then
     * in the data folder relative to the program (installed or in the build tree), then in the data
     * folder that the library was configured with. */
    const char *model;

    const char *device;          /* "cpu" (default) */
    enum oz_precision precision; /* default OZ_PRECISION_BF16 */

    /* Threads that compute. 0: as many as this process may use (affinity and cgroup quota). The
     * number never changes a result. */
    int32_t threads;

    /* Most pictures that are denoised together; more wait. 0: 4. Never changes a result. */
    int32_t max_batch;

    oz_log_fn log; /* NULL: silence. Kept until oz_engine_close */
    void *log_ctx;
    oz_progress_fn progress; /* NULL: none. Kept until oz_engine_close */
    void *progress_ctx;

    /* Quantization while loading: docs/quantization tells methods and configs. All NULL or 0: weights
     * stay as the files store them. */
    const char *quantization;        /* a method ("fp8_per_channel"), or a config as JSON object */
    const char *quantization_config; /* a JSON object, or the path of a JSON or YAML file */
    /* "linear.activation=mxfp8": members laid over the config, in order. */
    const char *const *quantization_keys;
    int32_t quantization_key_count;
    int32_t ignored_layer_count;
    const char *const *ignored_layers; /* patterns of layers that stay as stored */
    const char *keep; /* layers kept by role: "standard" (NULL too), "none", "conservative" */
    int32_t allow_unmatched; /* nonzero: a pattern that matches nothing is a warning, no error */

    /* Longest header of a safetensors file that is read, up to 100,000,000. 0: 16 MiB, far above any
     * model's; a longer one is refused before memory is taken for it. */
    int64_t max_header_bytes;

    /* A checkpoint (file, .index.json or folder) to take the transformer's weights from; its config
     * and all else are the model's. NULL or "": the model's own. */
    const char *transformer;

    /* Adapters merged into the transformer's linear layers while they are loaded, in this order:
     * "FILE" or "FILE:scale" (docs/howto/use-a-lora.md). */
    const char *const *loras;
    int32_t lora_count;

    /* Members laid over the model's scheduler config: a JSON object, or the path of a file that holds
     * one. NULL or "": the model's own. */
    const char *scheduler_config;

    /* Whose kernels multiply in linear layers: "auto" (NULL and "" too), "ref", "cpu", "cublaslt",
     * "own", or a name of vLLM's that says the kind of product (docs/options/linear-backend.md). */
    const char *linear_backend;
    const char
        *moe_backend; /* likewise in experts; an error where the model has none. NULL: auto */

    /* What becomes of the weights that make the transformer's modulation, a third of Qwen-Image's:
     * "resident" (NULL and "" too): they stay; "schedule": they are read block by block whenever a
     * call needs timesteps that the last one's table lacks, and given back; "grid": likewise, once,
     * for every timestep that bf16 knows (timesteps are rounded to it).
     * "schedule" never changes a result. (docs/options/modulation.md) */
    const char *modulation;

    /* Where weights come from: "auto" (NULL and "" too): the model's files, which say what they are;
     * "dummy": nowhere: they are drawn, and the model's folder needs its configs and tokenizer only.
     * Pictures are noise, and say so in their metadata. Of vLLM's other names those that ounce reads
     * anyway mean auto, the others are refused (docs/options/load-format.md). */
    const char *load_format;

    /* Which weights are on a device with memory of its own: "none" (NULL and "" too): all, always;
     * "stage": those of the text encoder, the transformer or the VAE, while their stage runs; "block":
     * likewise, but of a stage's blocks two at a time. The others wait in pinned host memory. Never
     * changes a picture. An error on a device whose memory is the host's (docs/options/offload.md). */
    const char *offload;
};

OZ_API void oz_engine_options_init(struct oz_engine_options *options, size_t struct_size);
#define oz_engine_options_default(options) oz_engine_options_init((options), sizeof *(options))

/*
 * Opens a model and loads its weights.
 * OZ_ERR_NO_MODEL: nothing there; OZ_ERR_FORMAT: files are malformed, or tensors are missing,
 * unexpected or of the wrong shape (all are named, families of names folded; what does not fit the
 * message is in the log); OZ_ERR_UNSUPPORTED: a valid model or quantization that this
 * version does not run; OZ_ERR_ARG: also a request for quantization that is wrong, or wrong for this
 * model (says which layer, pattern or name, and the nearest valid one); OZ_ERR_NOMEM; OZ_ERR_IO; OZ_ERR_CANCELLED.
 */
OZ_API OZ_MUST_USE enum oz_status oz_engine_open(struct oz_engine **out,
                                                 const struct oz_engine_options *options,
                                                 struct oz_error *err);
OZ_API void oz_engine_close(struct oz_engine **engine);

/* What an opened model is and takes by default. Strings live as long as the engine. */
struct oz_model_info {
    size_t struct_size;   /* set before the call */
    const char *path;     /* folder */
    const char *name;     /* last part of the path, or what the model's card says */
    const char *pipeline; /* "QwenImagePipeline" */
    int32_t width, height, num_inference_steps;
    double true_cfg_scale;
    const char *negative_prompt;
    int32_t size_multiple; /* width and height must be multiples of it */
};
OZ_API OZ_MUST_USE enum oz_status oz_engine_info(const struct oz_engine *engine,
                                                 struct oz_model_info *info, struct oz_error *err);

/* ---- pictures ---- */

struct oz_image_request {
    size_t struct_size;
    const char *prompt;          /* must be set; "" is a prompt. Any text; control tokens in it are
                                    text */
    const char *negative_prompt; /* NULL: the model's; used only with guidance */
    int32_t width, height;       /* pixels; 0: the model's */
    int32_t num_inference_steps; /* 0: the model's */
    double true_cfg_scale; /* classifier-free guidance; <= 1 but > 0 is off, one forward a step
                              instead of two; 0: the model's */
    uint64_t seed;         /* as torch.Generator("cpu").manual_seed(seed); low 32 bits count */
};
OZ_API void oz_image_request_init(struct oz_image_request *request, size_t struct_size);
#define oz_image_request_default(request) oz_image_request_init((request), sizeof *(request))

struct oz_image;

/*
 * Draws `count` pictures, one for each request, together as far as max_batch allows. A picture's
 * bytes do not depend on the others in the call, nor on the number of threads.
 * On success images[0 .. count) are yours to destroy. On failure all are NULL.
 * OZ_ERR_ARG: a request is wrong (the message says which, and the nearest valid value);
 * OZ_ERR_NOMEM: says how much was needed; OZ_ERR_CANCELLED: the progress callback asked for it;
 * OZ_ERR_BUSY: the engine is a service's (ounce/service.h).
 */
OZ_API OZ_MUST_USE enum oz_status oz_image_generate(struct oz_engine *engine,
                                                    const struct oz_image_request *requests,
                                                    int32_t count, struct oz_image **images,
                                                    struct oz_error *err);

/* Checks requests as oz_image_generate does, and computes nothing. */
OZ_API OZ_MUST_USE enum oz_status oz_image_check(const struct oz_engine *engine,
                                                 const struct oz_image_request *requests,
                                                 int32_t count, struct oz_error *err);

OZ_API void oz_image_destroy(struct oz_image **image);

OZ_API int32_t oz_image_width(const struct oz_image *image);
OZ_API int32_t oz_image_height(const struct oz_image *image);
/* RGB, 8 bits, [height, width, 3]; borrowed from the image. */
OZ_API const uint8_t *oz_image_pixels(const struct oz_image *image);
/* Before rounding: [3, height, width] f32 in 0..1; borrowed from the image. NULL for images not made
 * by oz_image_generate. */
OZ_API const float *oz_image_floats(const struct oz_image *image);
/* The request that made it, as a JSON object (prompt, negative_prompt, width, height,
 * num_inference_steps, true_cfg_scale,
 * seed, model, quantization, loras, scheduler_config, modulation grid and load_format dummy if there are any, precision, version); borrowed. Empty string for images not made by oz_image_generate. */
OZ_API const char *oz_image_metadata(const struct oz_image *image);

struct oz_png_options {
    size_t struct_size;
    int32_t no_metadata; /* nonzero: the request is not embedded (a text chunk "ounce") */
};
OZ_API void oz_png_options_init(struct oz_png_options *options, size_t struct_size);
#define oz_png_options_default(options) oz_png_options_init((options), sizeof *(options))

/* Writes a PNG beside `path`, then renames it onto it: the file is whole or untouched. options may
 * be NULL. OZ_ERR_IO, OZ_ERR_NOMEM. */
OZ_API OZ_MUST_USE enum oz_status oz_image_write_png(const struct oz_image *image, const char *path,
                                                     const struct oz_png_options *options,
                                                     struct oz_error *err);

/* Pastes pictures into one, row by row, `columns` a row, on white, `gap` pixels between and around
 * them. Cells are as large as the largest picture. OZ_ERR_ARG, OZ_ERR_NOMEM. */
OZ_API OZ_MUST_USE enum oz_status oz_image_tile(struct oz_image **out,
                                                struct oz_image *const *images, int32_t count,
                                                int32_t columns, int32_t gap, struct oz_error *err);

/* ---- figures ---- */

/* Wall time by stage in seconds, and memory, since the engine was opened. */
struct oz_stats {
    size_t struct_size; /* set before the call */
    double load_s, text_s, denoise_s, decode_s;
    int64_t steps; /* denoising steps of pictures */
    int64_t pictures;
    int64_t weight_bytes;        /* resident parameters, mapped ones included */
    int64_t plan_bytes;          /* arenas for running, as measured before the first step */
    int64_t peak_resident_bytes; /* of the process, from the operating system; 0: unknown */
    double
        upload_s; /* within text_s, denoise_s and decode_s: uploads of offloaded stages' weights */
};
OZ_API OZ_MUST_USE enum oz_status oz_engine_stats(const struct oz_engine *engine,
                                                  struct oz_stats *stats, struct oz_error *err);

/* ---- looking into files ---- */

/* Receives text; returns nonzero to stop (the call then returns OZ_ERR_IO). */
typedef int (*oz_write_fn)(void *ctx, const char *text, size_t bytes);

struct oz_inspect_options {
    size_t struct_size;
    int32_t json;    /* nonzero: one JSON document instead of a table for people */
    int32_t tensors; /* nonzero: a line for each tensor (name, dtype, shape, bytes, consumer) */

    int64_t max_header_bytes; /* as in oz_engine_options, and so is transformer */
    const char *transformer;
};
OZ_API void oz_inspect_options_init(struct oz_inspect_options *options, size_t struct_size);
#define oz_inspect_options_default(options) oz_inspect_options_init((options), sizeof *(options))

/*
 * Describes a model from headers alone: components, tensors, dtypes, bytes, and for each tensor
 * what consumes it, which named rule ignores it, or that nothing does. Reads no weights. `model` as
 * in oz_engine_options. Problems that would make loading fail are part of the description, and make
 * the call return OZ_ERR_FORMAT after it has been written.
 */
OZ_API OZ_MUST_USE enum oz_status oz_model_inspect(const char *model,
                                                   const struct oz_inspect_options *options,
                                                   oz_write_fn write, void *ctx,
                                                   struct oz_error *err);

/* ---- the plan ---- */

struct oz_plan_options {
    size_t struct_size;
    int32_t json;    /* nonzero: one JSON document, with every layer and the whole read schedule */
    int32_t tensors; /* nonzero: in the table a line for each tensor; else blocks are folded */

    /* Pictures that one call draws, for the peak of running; a prompt that is NULL is one of 24 words.
     * NULL, 0: one picture with the model's defaults. */
    const struct oz_image_request *requests;
    int32_t request_count;

    /* Finds the quantization instead of being told: gives way in a fixed order (docs/quantization,
     * plan.md) until the larger of the peaks, the bare process and the mapped weights together are at
     * most so many bytes, and says what was given up and the quantization_config of the result. Then
     * the engine options must not ask for any. 0: no limit. */
    int64_t fit_bytes;
    /* With fit_bytes: the file of a sensitivity result (oz_sensitivity_options.output_json), by whose
     * measured errors the main model's layers give way. NULL or "": by their roles. */
    const char *fit_by;
};
OZ_API void oz_plan_options_init(struct oz_plan_options *options, size_t struct_size);
#define oz_plan_options_default(options) oz_plan_options_init((options), sizeof *(options))

/*
 * Says from headers alone what oz_engine_open with the same options would do, and what memory that
 * and drawing take: for each tensor its scheme, the rule that chose it, the kernel and why better
 * ones declined, bytes on disk and resident; sums, notes, the read schedule, the peaks. Reads no
 * weight; engine->progress is not called. The load executes the same decisions. `options` may be NULL.
 * Errors of oz_engine_open and oz_image_check; OZ_ERR_THRESHOLD: nothing fits into fit_bytes (says the
 * least that would); OZ_ERR_IO: `write` stopped.
 */
OZ_API OZ_MUST_USE enum oz_status oz_model_plan(const struct oz_engine_options *engine,
                                                const struct oz_plan_options *options,
                                                oz_write_fn write, void *ctx, struct oz_error *err);

/* ---- kernels ---- */

/*
 * Lists a device's kernels, operator by operator, best first: name, tier, where the kernel's tests
 * have run, and why it is not usable here, where it is not; then, as those of "encode", what makes
 * quantized weights while they are loaded; before that the tiers that the processor has. `device` as in oz_engine_options (NULL: "cpu"); OUNCE_CPU and OUNCE_FORCE count as in
 * oz_engine_open. json: nonzero for one JSON document instead of a table for people.
 * OZ_ERR_ARG: no such device, or OUNCE_CPU or OUNCE_FORCE name what does not exist;
 * OZ_ERR_UNSUPPORTED: the device has no lists; OZ_ERR_IO: `write` stopped; OZ_ERR_NOMEM.
 */
OZ_API OZ_MUST_USE enum oz_status oz_kernels_describe(const char *device, int32_t json,
                                                      oz_write_fn write, void *ctx,
                                                      struct oz_error *err);

struct oz_bench_options {
    size_t struct_size;
    const char *device; /* as in oz_engine_options */

    /* Words with commas between; each must be a part of an operator's, a kernel's or a shape's name.
     * NULL or "": all. The largest shapes are measured only when a word is a part of their own. */
    const char *filter;

    int32_t threads; /* 0: as many as this process may use */
    int32_t samples; /* of each kernel and shape, 1 to 192, in three passes; 0: 9 */
    int32_t json;    /* nonzero: one JSON document instead of a table for people */

    /* A file that holds the JSON document of an earlier run with the same number of threads: the
     * result then says what moved beyond the noise of both runs. NULL or "": none. */
    const char *against;

    /* With `against`: OZ_ERR_THRESHOLD when a kernel got slower beyond noise and by more than so many
     * percent. Negative (default): never. */
    double max_slowdown_percent;

    oz_progress_fn progress; /* NULL: none */
    void *progress_ctx;
};
OZ_API void oz_bench_options_init(struct oz_bench_options *options, size_t struct_size);
#define oz_bench_options_default(options) oz_bench_options_init((options), sizeof *(options))

/*
 * Measures the device's kernels over shapes of real models, and for each the rate as a share of what
 * the machine can do at most (multiply-adds, or reading memory), which is measured in the same run.
 * Takes minutes. Then writes the result, all at once.
 * OZ_ERR_ARG: a wrong option, or nothing matches the filter; OZ_ERR_UNSUPPORTED: the device has no
 * lists; OZ_ERR_FORMAT, OZ_ERR_IO: `against`; OZ_ERR_THRESHOLD, after the result has been written;
 * OZ_ERR_NOMEM; OZ_ERR_CANCELLED.
 */
OZ_API OZ_MUST_USE enum oz_status oz_bench_kernels(const struct oz_bench_options *options,
                                                   oz_write_fn write, void *ctx,
                                                   struct oz_error *err);

struct oz_bench_model_options {
    size_t struct_size;
    const struct oz_engine_options *engine; /* log and progress too; max_batch is not looked at */
    struct oz_image_request
        request;     /* what is drawn: size, steps, guidance, seed; prompt NULL: one of ours */
    int32_t repeats; /* pictures of the first part, each with a fresh engine; 0: 3 */

    /* Requests of each point of the second part, which draws them in ragged batches of up to 1, 4 and 8.
     * 0: no second part. Default 16. */
    int32_t requests;
    int32_t json;
    const char *report; /* one HTML file with charts; NULL: none */

    /* As in struct oz_bench_options; the earlier run must be of the same model, size, steps, guidance,
     * precision and number of threads. */
    const char *against;
    double max_slowdown_percent;
};
OZ_API void oz_bench_model_options_init(struct oz_bench_model_options *options, size_t struct_size);
#define oz_bench_model_options_default(options) \
    oz_bench_model_options_init((options), sizeof *(options))

/*
 * Measures a model: seconds of loading, text, a step, decoding and all together, as medians over repeats;
 * the rate of loading beside that of reading the same files, which is measured in the same run; pictures a
 * second with 1, 4 and 8 together; memory. Then writes the result, all at once.
 * OZ_ERR_THRESHOLD, after that: slower than `against` beyond noise and by more than was allowed.
 * OZ_ERR_ARG; OZ_ERR_FORMAT, OZ_ERR_IO: `against`; else as oz_engine_open and oz_image_generate.
 */
OZ_API OZ_MUST_USE enum oz_status oz_bench_model(const struct oz_bench_model_options *options,
                                                 oz_write_fn write, void *ctx,
                                                 struct oz_error *err);

/* ---- not stable yet: define OZ_UNSTABLE to see it, and expect it to change ---- */

#ifdef OZ_UNSTABLE

struct oz_random_options {
    size_t struct_size;
    const char *like; /* whose sizes: "emoji" (NULL too) or "qwen-image" */

    /* 0: as `like` has it. Features in a head: a multiple of 4. */
    int32_t layers, heads, head_dim; /* of the transformer */
    int32_t text_layers, vae_base_dim;

    uint64_t seed;           /* default 42 */
    int64_t max_shard_bytes; /* of a weights file; 0: 4 GiB */
    oz_progress_fn progress; /* NULL: none; OZ_STAGE_WRITE */
    void *progress_ctx;
};
OZ_API void oz_random_options_init(struct oz_random_options *options, size_t struct_size);
#define oz_random_options_default(options) oz_random_options_init((options), sizeof *(options))

/*
 * Writes a model of the Qwen-Image family with random weights (bf16) into a folder, in the diffusers
 * layout, with the bundled model's tokenizer. Values depend on the seed and the parameters' names
 * alone; weights are N(0, 1) / sqrt(fan-in), norms 1, biases 0.02 N(0, 1), so that activations stay of
 * order one. Holds one buffer of values.
 * OZ_ERR_ARG: a size that the family does not have, or the folder holds a model already; OZ_ERR_IO;
 * OZ_ERR_NO_MODEL: the bundled model is missing; OZ_ERR_NOMEM; OZ_ERR_CANCELLED.
 */
OZ_API OZ_MUST_USE enum oz_status
oz_model_random(const char *folder, const struct oz_random_options *options, struct oz_error *err);

struct oz_quantize_options {
    size_t struct_size;
    const char *model; /* as in oz_engine_options, and so are all up to allow_unmatched */
    const char *quantization;
    const char *quantization_config;
    const char *const *quantization_keys;
    int32_t quantization_key_count;
    int32_t ignored_layer_count;
    const char *const *ignored_layers;
    const char *keep;
    int32_t allow_unmatched;

    int32_t threads;          /* that encode; 0: as many as this process may use */
    int64_t max_header_bytes; /* of a file that is read, as in oz_engine_options */
    int64_t max_shard_bytes;  /* of tensors in a file that is written; 0: 5000000000 */
    int32_t overwrite;        /* nonzero: a model in the folder is replaced */
    oz_log_fn log;            /* NULL: nothing is said. Kept until the call returns */
    void *log_ctx;
    oz_progress_fn progress; /* NULL: none; OZ_STAGE_WRITE */
    void *progress_ctx;

    const char *transformer;  /* as in oz_engine_options; it becomes the model's own */
    const char *const *loras; /* likewise; merged into what is written */
    int32_t lora_count;
};
OZ_API void oz_quantize_options_init(struct oz_quantize_options *options, size_t struct_size);
#define oz_quantize_options_default(options) oz_quantize_options_init((options), sizeof *(options))

/*
 * Writes a model with quantized weights into a folder: what oz_engine_open with these options would make
 * while loading, as a checkpoint of compressed-tensors (of bitsandbytes, for its schemes), and everything
 * else of the model's folder as it is. Opened from there, the same weights are only loaded. Holds bands of weights, never the model. The
 * folder appears when it is whole; until then the model grows in "<folder>.ounce-part". A call that is
 * cancelled, killed or fails for want of space or memory leaves that folder: the same call again keeps
 * the files in it that are whole (their sizes and times are checked, and that neither the plan nor the
 * model's files have changed), tells the log which, topic "write", and ends in the same bytes as a call
 * that was not interrupted. A call for something else, or of a changed model, begins anew with a warning.
 * OZ_ERR_ARG: nothing would be quantized, or the folder is in the way (it is the model itself, no model,
 * or a model without `overwrite`); OZ_ERR_UNSUPPORTED: a scheme that the format does not hold, by layer;
 * OZ_ERR_CANCELLED: says what is kept, if anything is; else as oz_engine_open.
 */
OZ_API OZ_MUST_USE enum oz_status oz_model_quantize(const char *folder,
                                                    const struct oz_quantize_options *options,
                                                    struct oz_error *err);

struct oz_convert_options {
    size_t struct_size;
    const char *model;       /* as in oz_engine_options */
    const char *transformer; /* likewise; it becomes the model's own */
    /* NULL or "bf16": what is quantized is expanded. "codes": it keeps codes and scales, bit for bit, as
     * oz_model_quantize writes them. */
    const char *to;

    int32_t threads; /* these as in oz_quantize_options */
    int64_t max_header_bytes;
    int64_t max_shard_bytes;
    int32_t overwrite;
    oz_log_fn log; /* topic "write" tells what becomes of each component */
    void *log_ctx;
    oz_progress_fn progress;
    void *progress_ctx;
};
OZ_API void oz_convert_options_init(struct oz_convert_options *options, size_t struct_size);
#define oz_convert_options_default(options) oz_convert_options_init((options), sizeof *(options))

/*
 * Writes a model that any toolchain has quantized, or whose weights are GGUF or have other names, into a
 * folder in the diffusers layout: safetensors, and configs that tell of no quantization ("codes": of
 * ours). The values are those that ounce computes with, rounded to BF16; plain tensors keep their bytes.
 * Memory, the folder's growth, what is interrupted and errors are those of oz_model_quantize.
 * OZ_ERR_ARG: there is nothing to convert; OZ_ERR_UNSUPPORTED: what is not read, or with "codes" not
 * written, by layer.
 */
OZ_API OZ_MUST_USE enum oz_status oz_model_convert(const char *folder,
                                                   const struct oz_convert_options *options,
                                                   struct oz_error *err);

/* Pictures that have been compared with those of a reference. */
struct oz_comparison;

/*
 * Compares PNG files with a reference, or folders of PNG files with a folder of the same names: cosine
 * similarity, MAE, MSE, RMSE, greatest difference, L2, relative L2 and PSNR of the 8-bit RGB values in
 * double precision, and SSIM (Gaussian window of 11 x 11; beside it that of scikit-image's defaults,
 * uniform 7 x 7). docs/quality.md says how each is defined. `count` candidates, at least one.
 * OZ_ERR_ARG: pictures of two sizes, names that one folder has alone, files mixed with folders;
 * OZ_ERR_IO; OZ_ERR_FORMAT: no PNG; OZ_ERR_UNSUPPORTED: a picture above 2^28 pixels; OZ_ERR_NOMEM. The
 * file is named.
 */
OZ_API OZ_MUST_USE enum oz_status oz_pictures_compare(struct oz_comparison **out,
                                                      const char *reference,
                                                      const char *const *candidates, int32_t count,
                                                      struct oz_error *err);
OZ_API void oz_comparison_close(struct oz_comparison **comparison);

struct oz_compare_options {
    size_t struct_size;
    int32_t json; /* nonzero: one JSON document, with each picture, instead of a table for people */

    /* The least mean over a candidate's pictures that is asked for. Negative (default): none. Of PSNR
     * the mean leaves identical pictures out; a candidate all of whose pictures are identical passes. */
    double min_psnr_db, min_ssim;
};
OZ_API void oz_compare_options_init(struct oz_compare_options *options, size_t struct_size);
#define oz_compare_options_default(options) oz_compare_options_init((options), sizeof *(options))

/*
 * Writes a comparison, all at once. Values without a finite number are null in JSON: PSNR of identical
 * pictures, SSIM of pictures smaller than its window. `options` may be NULL.
 * OZ_ERR_THRESHOLD, after all has been written: a candidate has less than was asked for; OZ_ERR_ARG, likewise: an
 * SSIM is asked for where there is none; OZ_ERR_IO: `write` stopped; OZ_ERR_NOMEM.
 */
OZ_API OZ_MUST_USE enum oz_status oz_comparison_describe(const struct oz_comparison *comparison,
                                                         const struct oz_compare_options *options,
                                                         oz_write_fn write, void *ctx,
                                                         struct oz_error *err);
/* The JSON document into a file, which is whole or untouched. OZ_ERR_IO, OZ_ERR_NOMEM; thresholds are
 * noted in it and not judged. */
OZ_API OZ_MUST_USE enum oz_status oz_comparison_save(const struct oz_comparison *comparison,
                                                     const char *path,
                                                     const struct oz_compare_options *options,
                                                     struct oz_error *err);
/* Pastes all pictures into one: a row for each, the reference's first, then the candidates'. The files
 * are read again, and all are in memory. OZ_ERR_ARG: the sheet would be too large; OZ_ERR_IO,
 * OZ_ERR_FORMAT: a file is not what it was; OZ_ERR_NOMEM. */
OZ_API OZ_MUST_USE enum oz_status oz_comparison_sheet(const struct oz_comparison *comparison,
                                                      struct oz_image **out, struct oz_error *err);

/* Variants of a model against a reference; see oz_models_compare. */
struct oz_models_options {
    size_t struct_size;
    /* The model, and how everything runs: device, precision, threads, header limit, log, progress
     * (OZ_STAGE_STUDY). ignored_layers, keep and allow_unmatched are those of candidate_quantizations.
     * It asks for no quantization, LoRA, transformer or scheduler_config itself. */
    const struct oz_engine_options *engine;
    const char *reference_model; /* in place of the engine's model as it is stored; NULL: that */

    /* Each is a method ("int8"), a config as JSON object, or the path of a file with one; LABEL= before
     * it names it in results ("w8a16={\"method\": ...}"). They quantize the engine's model. */
    const char *const *candidate_quantizations;
    int32_t candidate_quantization_count;
    const char *const *candidate_models; /* folders or org/name, LABEL= before it likewise */
    int32_t candidate_model_count;

    const struct oz_image_request *requests; /* of one size and number of steps */
    int32_t request_count;
    int32_t warmup_runs;  /* short pictures before each variant's first; default 1 */
    int32_t measure_runs; /* times that each picture is drawn, for its times; default 1 */

    /* Files that are written; NULL: not. output_json holds partial results, marked "complete": false,
     * from early on; where it holds those of the same comparison, they are gone on from. */
    const char *output_json;
    const char *save_output_dir; /* <dir>/<label>/image_<i>.png */
    const char *report;          /* one HTML file that needs no other */
    const char *contact_sheet;   /* a PNG: a row for each picture, the reference first */

    /* What is asked of every candidate; negative (default): nothing. Ratios are over the reference's. */
    double min_psnr_db, min_ssim, min_cosine, max_memory_ratio, max_time_ratio;
    int32_t
        assert_different; /* nonzero: no candidate's latents may equal the reference's throughout */
    int32_t json;         /* nonzero: one JSON document instead of a table for people */
};
OZ_API void oz_models_options_init(struct oz_models_options *options, size_t struct_size);
#define oz_models_options_default(options) oz_models_options_init((options), sizeof *(options))

/*
 * Draws every request with the reference and with each candidate, from the same first latents, by the
 * reference's scheduler, one picture at a time; and compares first predictions, latents after every step
 * and pictures (8 bits and before rounding), times by stage, memory and bytes; and checks that every
 * layer ran as it was planned (docs/quality.md). Variants are loaded one after the other: memory does
 * not grow with their number. A candidate that fails is a part of the result, and the others go on; its
 * status is returned after everything has been written.
 * OZ_ERR_THRESHOLD, likewise after: a candidate misses what was asked for, equals the reference against
 * assert_different, or has a layer that did not run as planned. OZ_ERR_CANCELLED: says what is kept.
 * OZ_ERR_ARG: no candidate, two with one label, requests of two sizes; OZ_ERR_IO: a file that cannot be
 * written. Else as oz_engine_open for the reference.
 */
OZ_API OZ_MUST_USE enum oz_status oz_models_compare(const struct oz_models_options *options,
                                                    oz_write_fn write, void *ctx,
                                                    struct oz_error *err);

/* Which layers bear which scheme; see oz_model_sensitivity. */
struct oz_sensitivity_options {
    size_t struct_size;
    const struct oz_engine_options
        *engine; /* as in oz_models_options, without its keep-list and patterns */

    /* The schemes to choose from: methods, with activations at most, as in oz_models_options. None: int8,
     * fp8_per_channel with plain activations, nvfp4. At most 8. */
    const char *const *schemes;
    int32_t scheme_count;

    const struct oz_image_request *requests; /* of the search; of one size and number of steps */
    int32_t request_count;
    uint64_t verify_offset; /* of the seeds of the proof; default 1000 */
    int32_t full; /* nonzero: pictures for each layer in each scheme, not recorded activations */

    /* What the proposal must meet at least cost: "psnr=40" (dB, mean), "rel-l2=0.01" (pictures, mean) or
     * "bytes=12MiB" (resident transformer). NULL: layers are ranked, and nothing is proposed. */
    const char *budget;

    const char
        *output_json;   /* as in oz_models_options: what is measured is kept in it from early on */
    const char *report; /* with a budget */
    int32_t json;
};
OZ_API void oz_sensitivity_options_init(struct oz_sensitivity_options *options, size_t struct_size);
#define oz_sensitivity_options_default(options) \
    oz_sensitivity_options_init((options), sizeof *(options))

/*
 * Measures for every linear layer of the transformer (fused ones together) and for every role the error
 * of quantizing it alone and of keeping it alone; with a budget then searches the assignment of schemes
 * to layers that meets it at least cost, writes it as a quantization_config, and proves it on pictures of
 * other seeds beside every scheme for all layers. Two variants are loaded at a time.
 * OZ_ERR_THRESHOLD, after all has been written: nothing was found that meets the budget. OZ_ERR_CANCELLED:
 * says what is kept. OZ_ERR_ARG; OZ_ERR_IO; else as oz_engine_open.
 */
OZ_API OZ_MUST_USE enum oz_status oz_model_sensitivity(const struct oz_sensitivity_options *options,
                                                       oz_write_fn write, void *ctx,
                                                       struct oz_error *err);

/* A quantization method of a program's own: schemes by the names of docs/quantization. */
struct oz_method_options {
    size_t struct_size;
    const char *name;       /* letters, digits, '_' and '-'; case does not count, and '-' is '_' */
    const char *linear;     /* scheme of linear layers: "mxfp4"; NULL: they stay as stored */
    const char *experts;    /* scheme of experts, likewise */
    const char *activation; /* "mxfp8", "none" ...; NULL: the schemes' own */
    int32_t num_bf16_fallback_layers; /* blocks that stay as stored, from the first */
    const char *about;                /* what it is, or NULL */
};
OZ_API void oz_method_options_init(struct oz_method_options *options, size_t struct_size);
#define oz_method_options_default(options) oz_method_options_init((options), sizeof *(options))

/*
 * Makes a method known to the process, for engines that open afterwards; from any thread. At most 64.
 * OZ_ERR_ARG: the name is taken or none, a scheme is unknown or not defined for that kind of layer, or
 * does not take the activations; OZ_ERR_NOMEM: there are 64.
 */
OZ_API OZ_MUST_USE enum oz_status oz_method_register(const struct oz_method_options *options,
                                                     struct oz_error *err);

#endif

#ifdef __cplusplus
}
#endif

#ifdef OZ_UNSTABLE
#include <ounce/service.h> /* many callers, one model; pictures as files in memory */
#endif

#endif
