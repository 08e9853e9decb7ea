/*
 * Writing a quantized model that is stopped halfway: killed or cancelled at points spread over the whole
 * of it, many times in a row, with files in its working folder that were torn, changed or removed
 * meanwhile. The same call again keeps what is whole and ends in the bytes of an uninterrupted one;
 * another call, or one of a changed model, begins anew and says so.
 */
#include "test.h"

#define OZ_UNSTABLE
#include <ounce/ounce.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/folder.h"
#include "ckpt/writer.h"
#include "scratch.h"

#define PART "out.ounce-part"
#define JOURNAL PART "/.ounce-part"

static struct oz_error err;

/* What is asked for, and where it stops. */
struct run {
    const char *config, *output;
    int64_t shard_bytes;
    int32_t threads;
    int64_t stop_at; /* the call of progress that ends it; 0: none */
    bool kills;      /* by SIGKILL, else by asking to cancel */
    int64_t calls;
};

static int on_progress(void *ctx, const struct oz_progress *progress)
{
    struct run *r = ctx;
    assert_true(progress->done >= 0 && progress->done <= progress->total);
    r->calls++;
    if (r->stop_at == 0 || r->calls < r->stop_at) {
        return 0;
    }
    if (r->kills) {
        (void)raise(SIGKILL);
    }
    return 1;
}

static enum oz_status quantize(struct run *r)
{
    static char lora[300];
    static const char *const loras[] = {lora};
    struct oz_quantize_options o;
    oz_quantize_options_default(&o);
    (void)snprintf(lora, sizeof lora, "%s:0.25", scratch_path("lora.safetensors"));
    o.model = scratch_path("model");
    o.quantization_config = r->config;
    o.keep = "none";
    o.max_shard_bytes = r->shard_bytes;
    o.threads = r->threads;
    o.loras = loras;
    o.lora_count = access(scratch_path("lora.safetensors"), F_OK) == 0 ? 1 : 0;
    o.log = scratch_log_line;
    o.progress = on_progress;
    o.progress_ctx = r;
    r->calls = 0;
    scratch_log_clear();
    return oz_model_quantize(scratch_path("%s", r->output), &o, &err);
}

/* In a child that ends by SIGKILL, or because it was done before. */
static bool was_killed(struct run *r)
{
    int result = -1;
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0};
        (void)setrlimit(RLIMIT_CORE, &none);
        _exit(quantize(r) == OZ_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) ? WEXITSTATUS(result) == 0 : WTERMSIG(result) == SIGKILL);
    return !WIFEXITED(result);
}

static void ok(enum oz_status status)
{
    if (status != OZ_OK) {
        fail_msg("%s", err.message);
    }
}

/* ---- comparing ---- */

struct comparison {
    const char *with;
    int files;
};

static enum oz_status compare(void *ctx, const char *relative, enum oz_entry_kind kind,
                              int64_t bytes, struct oz_error *error)
{
    struct comparison *c = ctx;
    (void)error;
    c->files++;
    if (kind == OZ_ENTRY_FOLDER) {
        return OZ_OK;
    }
    char a[300];
    char b[300];
    (void)snprintf(a, sizeof a, "out/%s", relative);
    (void)snprintf(b, sizeof b, "%s/%s", c->with, relative);
    if (access(scratch_path("%s", b), F_OK) != 0) {
        fail_msg("%s should not be there", a);
    }
    char *x = scratch_read(a);
    char *y = scratch_read(b);
    struct stat st;
    assert_int_equal(stat(scratch_path("%s", b), &st), 0);
    if (st.st_size != bytes || memcmp(x, y, (size_t)bytes) != 0) {
        fail_msg("%s and %s differ", a, b);
    }
    free(x);
    free(y);
    return OZ_OK;
}

static enum oz_status count(void *ctx, const char *relative, enum oz_entry_kind kind, int64_t bytes,
                            struct oz_error *error)
{
    int *n = ctx;
    (void)relative, (void)kind, (void)bytes, (void)error;
    ++*n;
    return OZ_OK;
}

/* "out" has the files of `whole`, byte for byte, and nothing else is left; it goes. */
static void expect_same(const char *whole)
{
    struct comparison c = {.with = whole};
    int files = 0;
    char root[300]; /* scratch_path's own is used again before the walk is over */
    (void)snprintf(root, sizeof root, "%s", scratch_path("out"));
    ok(oz_folder_walk(root, compare, &c, &err));
    ok(oz_folder_walk(scratch_path("%s", whole), count, &files, &err));
    assert_int_equal(c.files, files);
    assert_int_equal(access(scratch_path(PART), F_OK), -1);
    assert_int_equal(access(scratch_path("out/.ounce-part"), F_OK), -1);
    scratch_remove("out");
}

/* Files that the journal has as whole. */
static int whole_files(void)
{
    int n = 0;
    if (access(scratch_path(JOURNAL), F_OK) != 0) {
        return 0;
    }
    char *text = scratch_read(JOURNAL);
    for (const char *at = text; (at = strstr(at, "{\"file\"")) != NULL; at++) {
        n++;
    }
    free(text);
    return n;
}

static void expect_said(const char *words)
{
    if (strstr(scratch_log, words) == NULL) {
        fail_msg("the log does not say \"%s\" but: %s", words, scratch_log);
    }
}

/* ---- the model ---- */

#define MXFP4 "{\"transformer\":\"mxfp4\",\"text_encoder\":\"int8\"}"
#define NESTED "{\"method\":\"bitsandbytes\",\"compress_statistics\":true}"
#define FUSED "{\"method\":\"fp8\",\"scale_scope\":\"fused\"}"

/* A LoRA of rank 2 for two layers. */
static enum oz_status write_adapter(void)
{
    static const char *const layers[] = {"transformer_blocks.0.attn.to_q",
                                         "transformer_blocks.1.attn.to_k"};
    static float values[2 * 64];
    struct oz_ckpt_spec specs[4] = {0};
    char names[4][80];
    struct oz_ckpt_writer *w;
    const struct oz_ckpt_writer_options o = {.folder = scratch_path("adapter"), .stem = "plain"};
    scratch_folder("adapter");
    for (int i = 0; i < 4; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s.lora_%c.weight", layers[i / 2],
                       i % 2 == 0 ? 'A' : 'B');
        specs[i] = (struct oz_ckpt_spec){.name = names[i],
                                         .dtype = OZ_DTYPE_F32,
                                         .rank = 2,
                                         .shape = {i % 2 == 0 ? 2 : 64, i % 2 == 0 ? 64 : 2}};
    }
    for (int i = 0; i < 2 * 64; i++) {
        values[i] = (float)((i * 37) % 64 - 32) / 64.0F;
    }
    OZ_TRY(oz_ckpt_writer_create(&w, &o, specs, 4, &err));
    enum oz_status status = OZ_OK;
    while (status == OZ_OK && oz_ckpt_writer_next(w) >= 0) {
        status = oz_ckpt_writer_put(w, values, sizeof values, &err);
    }
    if (status == OZ_OK) {
        status = oz_ckpt_writer_finish(w, &err);
    }
    oz_ckpt_writer_destroy(&w);
    return status;
}

static int start(void **state)
{
    struct oz_random_options o;
    if (scratch_open(state) != 0) {
        return 1;
    }
    oz_random_options_default(&o);
    o.layers = 2;
    o.heads = 2;
    o.head_dim = 32;
    o.text_layers = 1;
    o.vae_base_dim = 4;
    if (oz_model_random(scratch_path("model"), &o, &err) != OZ_OK || write_adapter() != OZ_OK) {
        print_error("%s\n", err.message);
        return 1;
    }
    return 0;
}

/* An uninterrupted one, in `output`. Returns the calls of progress. */
static int64_t write_whole(const struct run *how, const char *output)
{
    struct run r = *how;
    r.output = output;
    scratch_remove(output);
    ok(quantize(&r));
    assert_null(strstr(scratch_log, "resuming"));
    return r.calls;
}

/* Stops at call n, goes on, compares. Returns how many files were kept. */
static int stop_and_go_on(const struct run *how, int64_t n, bool kills)
{
    struct run r = *how;
    int kept;
    r.stop_at = n;
    r.kills = kills;
    r.output = "out";
    if (kills) {
        (void)was_killed(&r);
        kept = whole_files();
    } else {
        assert_int_equal(quantize(&r), OZ_ERR_CANCELLED);
        kept = whole_files();
        assert_non_null(strstr(err.message, kept > 0 ? "kept in" : "nothing was written"));
        assert_int_equal(access(scratch_path(PART), F_OK), kept > 0 ? 0 : -1);
    }
    r.stop_at = 0;
    ok(quantize(&r));
    if (kept > 0) {
        char words[64];
        (void)snprintf(words, sizeof words, "resuming an interrupted run: %d whole file", kept);
        expect_said(words);
    }
    return kept;
}

/* ---- tests ---- */

static void at_points(int points, const char *config, int64_t shard_bytes, bool kills)
{
    const struct run how = {.config = config, .shard_bytes = shard_bytes, .threads = 1};
    int64_t calls = write_whole(&how, "whole");
    int most = 0;
    int64_t step = calls / points > 0 ? calls / points : 1;
    assert_true(calls > points);
    for (int64_t n = 1; n <= calls; n += step) {
        int kept = stop_and_go_on(&how, n, kills);
        most = kept > most ? kept : most;
        expect_same("whole");
    }
    assert_true(most > 4);
}

static void killed(void **state)
{
    at_points(7, MXFP4, 40000, true);
}

static void cancelled(void **state)
{
    at_points(4, MXFP4, 40000, false);
}

/* Files so small that the tensors of a layer, and layers with one scale, lie in several. */
static void scales_that_span_files(void **state)
{
    at_points(4, FUSED, 9000, true);
}

/* Tables and texts beside a weight, and a number that is put into a text when all of it is known. */
static void tensors_that_hold_no_plane(void **state)
{
    at_points(4, NESTED, 9000, true);
}

/* With another number of threads each time, and never for long. */
static void again_and_again(void **state)
{
    struct run r = {.config = MXFP4, .shard_bytes = 40000, .threads = 1};
    int before = 0;
    int times = 0;
    (void)write_whole(&r, "whole");
    r.output = "out";
    r.stop_at = 4;
    r.kills = true;
    while (was_killed(&r)) {
        int kept = whole_files();
        assert_true(kept >= before && times < 200);
        r.threads = 1 + times % 3;
        r.stop_at = kept > before ? 4 : r.stop_at + 2;
        before = kept;
        times++;
    }
    assert_true(times > 4 && before > 4);
    expect_same("whole");
}

/* Leaves a working folder with several whole files. */
static struct run leave_part(void)
{
    struct run r = {.config = MXFP4,
                    .shard_bytes = 40000,
                    .threads = 1,
                    .output = "out",
                    .stop_at = write_whole(&r, "whole") * 3 / 4,
                    .kills = true};
    assert_true(was_killed(&r));
    assert_true(whole_files() > 6);
    r.stop_at = 0;
    return r;
}

/* The name of the n-th whole file, in the scratch folder. */
static const char *whole_file(int n)
{
    static char name[300];
    char *text = scratch_read(JOURNAL);
    const char *at = text;
    for (int i = 0; i <= n; i++) {
        at = strstr(at, "{\"file\": \"");
        assert_non_null(at);
        at += strlen("{\"file\": \"");
    }
    (void)snprintf(name, sizeof name, PART "/%.*s", (int)strcspn(at, "\""), at);
    free(text);
    return name;
}

/* Cut short, written to, removed, and replaced by another of the same size and time. */
static void files_that_were_changed(void **state)
{
    struct run r = leave_part();
    struct stat st;
    int whole = whole_files();
    assert_int_equal(truncate(scratch_path("%s", whole_file(0)), 100), 0);
    int fd = open(scratch_path("%s", whole_file(1)), O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 1000), 1);
    (void)close(fd);
    scratch_remove(whole_file(2));
    fd = open(scratch_path("%s", whole_file(3)), O_WRONLY);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, "{ ", 2, 8), 2);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    (void)close(fd);
    ok(quantize(&r));
    char words[64];
    (void)snprintf(words, sizeof words, "%d whole files of it", whole - 3);
    expect_said("3 files of an interrupted run were changed afterwards");
    expect_said(words);
    expect_same("whole");
}

/* What has no place in the journal does not count: torn lines, files beside it, links. */
static void torn_journal(void **state)
{
    struct run r = leave_part();
    int whole = whole_files();
    char *text = scratch_read(JOURNAL);
    scratch_write(JOURNAL, text, strlen(text) - 5);
    free(text);
    scratch_text(PART "/transformer/.ounce-1.0.part", "half of a file");
    scratch_text(PART "/model_index.json", "{}");
    assert_int_equal(symlink("/nowhere", scratch_path(PART "/link")), 0);
    ok(quantize(&r));
    char words[64];
    (void)snprintf(words, sizeof words, "%d whole files of it", whole - 1);
    expect_said(words);
    expect_same("whole");
    /* nothing of it can be read */
    r = leave_part();
    scratch_text(JOURNAL, "no journal\n{\"file\": \"x\"}\n");
    ok(quantize(&r));
    assert_null(strstr(scratch_log, "resuming"));
    expect_same("whole");
}

/* Its first line, then what somebody else has written there; # in a line is its number. */
static void put_journal(const char *first, const char *line, int times)
{
    struct oz_buf b;
    oz_buf_init(&b, (size_t)16 << 20);
    oz_buf_append(&b, first, strcspn(first, "\n") + 1);
    for (int i = 0; i < times; i++) {
        for (const char *p = line; *p != '\0'; p++) {
            if (*p == '#') {
                oz_buf_printf(&b, "%d", i);
            } else {
                oz_buf_append(&b, p, 1);
            }
        }
    }
    assert_int_equal(b.status, OZ_OK);
    scratch_write(JOURNAL, b.data, b.bytes);
    oz_buf_deinit(&b);
}

/* Sizes whose sum overflows, ways out of the folder, more lines than there can be files: none counts,
 * nothing outside is touched, and reading them takes a moment. */
static void hostile_journal(void **state)
{
    static const struct {
        const char *line;
        int times;
    } cases[] = {
        {"{\"file\": \"x#\", \"bytes\": 9223372036854775807, \"modified_ns\": #}\n", 3},
        {"{\"file\": \"x#\", \"bytes\": -9223372036854775808, \"modified_ns\": #}\n", 3},
        {"{\"file\": \"../precious\", \"bytes\": 8, \"modified_ns\": ##}\n", 1},
        {"{\"file\": \"./transformer/#/../config.json\", \"bytes\": #}\n", 3},
        {"{\"file\": \"\", \"bytes\": ##}\n", 2},
        {"{\"file\": \"transformer\", \"bytes\": ##}\n", 2},
        {"{\"file\": \"x#\", \"bytes\": #}\n", 100000},
    };
    scratch_text("precious", "precious");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r = leave_part();
        char *text = scratch_read(JOURNAL);
        put_journal(text, cases[i].line, cases[i].times);
        free(text);
        ok(quantize(&r));
        assert_null(strstr(scratch_log, "whole files of it"));
        expect_same("whole");
    }
    char *kept = scratch_read("precious");
    assert_string_equal(kept, "precious");
    free(kept);
    /* Of two lines of a file the later one counts. */
    struct run r = leave_part();
    int whole = whole_files();
    char *text = scratch_read(JOURNAL);
    char *second = strchr(text, '\n') + 1;
    struct oz_buf b;
    oz_buf_init(&b, (size_t)1 << 20);
    oz_buf_append(&b, text, (size_t)(second - text));
    oz_buf_puts(&b, "{\"file\": \"transformer/config.json\", \"bytes\": 1}\n");
    oz_buf_puts(&b, second);
    oz_buf_puts(&b, second);
    scratch_write(JOURNAL, b.data, b.bytes);
    oz_buf_deinit(&b);
    free(text);
    ok(quantize(&r));
    char words[64];
    (void)snprintf(words, sizeof words, "%d whole files of it", whole);
    expect_said(words);
    expect_same("whole");
}

static void another_plan(void **state)
{
    struct run r = leave_part();
    r.config = "{\"method\":\"nvfp4\"}";
    (void)write_whole(&r, "other");
    ok(quantize(&r));
    expect_said("warn write:");
    expect_said("it was asked for something else, or by another version: it is begun anew");
    assert_null(strstr(scratch_log, "resuming"));
    expect_same("other");
    /* as much as the size of a file */
    r = leave_part();
    r.shard_bytes = 60000;
    (void)write_whole(&r, "other");
    ok(quantize(&r));
    expect_said("begun anew");
    expect_same("other");
}

static void a_changed_model(void **state)
{
    struct run r = leave_part();
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    const char *file = scratch_path("model/transformer/diffusion_pytorch_model.safetensors");
    assert_int_equal(utimensat(AT_FDCWD, file, times, 0), 0);
    ok(quantize(&r));
    expect_said("the model's files have been changed since: it is begun anew");
    assert_null(strstr(scratch_log, "resuming"));
    expect_same("whole");
}

/* A run that fails before it knows what is there, or while it looks, takes nothing away. */
static void a_failure_loses_nothing(void **state)
{
    struct run r = leave_part();
    int whole = whole_files();
    enum oz_status status = OZ_ERR_NOMEM;
    int failures = 0;
    for (uint64_t n = 1; status != OZ_OK && whole_files() == whole; n += 1 + n / 40, failures++) {
        oz_alloc_fail_at(n, 0);
        status = quantize(&r);
        oz_alloc_fail_at(0, 0);
        assert_true(status == OZ_OK || status == OZ_ERR_NOMEM);
        assert_true(status == OZ_OK || whole_files() >= whole);
    }
    assert_true(failures > 100);
    if (status != OZ_OK) {
        ok(quantize(&r));
    }
    expect_same("whole");
}

/* Adapters belong to the plan, and their files to the source. */
static void an_adapter(void **state)
{
    struct run r = {.config = "{\"method\":\"mxfp4\",\"ignored_layers\":[\"to_q\"]}",
                    .shard_bytes = 40000,
                    .threads = 1};
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    (void)write_whole(&r, "bare");
    assert_int_equal(
        link(scratch_path("adapter/plain.safetensors"), scratch_path("lora.safetensors")), 0);
    int64_t calls = write_whole(&r, "whole");
    assert_true(stop_and_go_on(&r, calls / 2, true) > 0);
    expect_same("whole");
    r.output = "out";
    r.stop_at = calls / 2;
    r.kills = true;
    assert_true(was_killed(&r));
    assert_int_equal(utimensat(AT_FDCWD, scratch_path("lora.safetensors"), times, 0), 0);
    r.stop_at = 0;
    ok(quantize(&r));
    expect_said("the model's files have been changed since");
    expect_same("whole");
    r.stop_at = calls / 2;
    assert_true(was_killed(&r));
    scratch_remove("lora.safetensors");
    r.stop_at = 0;
    ok(quantize(&r));
    expect_said("it was asked for something else");
    expect_same("bare");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(scales_that_span_files),
        cmocka_unit_test(torn_journal),
        cmocka_unit_test(hostile_journal),
        cmocka_unit_test(files_that_were_changed),
        cmocka_unit_test(another_plan),
        cmocka_unit_test(a_changed_model),
        cmocka_unit_test(a_failure_loses_nothing),
        cmocka_unit_test(an_adapter),
        cmocka_unit_test(tensors_that_hold_no_plane),
    };
    return cmocka_run_group_tests(tests, start, scratch_close);
}
