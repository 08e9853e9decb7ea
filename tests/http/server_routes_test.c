/* Every route of the server, the fields of requests, errors in OpenAI's shape. */
#include "http/client.h"
#include "test.h"

#include "scratch.h"

static struct server server;

#define GENERATIONS "/v1/images/generations"
#define SMALL "\"prompt\":\"red apple\",\"size\":\"64x64\",\"num_inference_steps\":2"

static int start(void **state)
{
    static const char *const arguments[] = {
        "--result-ttl", "30", "--served-model-name", "emoji", "--served-model-name",
        "gpt-image-1",  NULL};
    (void)scratch_open(state);
    server_start(&server, true, arguments);
    return 0;
}

static int stop(void **state)
{
    server_stop(&server);
    return scratch_close(state);
}

static void what_there_is(void **state)
{
    call_says("GET", "/health", NULL, 200, "alive", NULL);
    call_says("GET", "/ready", NULL, 200, "ready", NULL);
    call_says("GET", "/v1/models", NULL, 200, "\"id\":\"emoji\"", "\"id\":\"gpt-image-1\"",
              "\"object\":\"list\"", NULL);
    call_says("GET", "/v1/models/gpt-image-1", NULL, 200, "\"root\":\"emoji\"", NULL);
    call_says("GET", "/v1/models/other", NULL, 404, "model_not_found", NULL);
    call_says("GET", "/v1/loaded", NULL, 200, "\"by_scheme\":[{",
              "\"run_peak_bytes\":", "\"size_multiple\":16", "\"num_inference_steps\":20", NULL);
    call_says("GET", "/v1/plan", NULL, 200, "\"components\":", "transformer", "\"kernel\":", NULL);
    call_says("GET", "/openapi.json", NULL, 200, "\"openapi\":\"3.1.0\"",
              "\"/v1/jobs/{id}/pictures/{index}\":{\"get\":", "\"ImagesRequest\"", NULL);
    call_says("GET", "/sdapi/v1/sd-models", NULL, 200, "\"title\":\"emoji\"", NULL);
    call_says("GET", "/sdapi/v1/samplers", NULL, 200, "Euler", NULL);
    call_says("GET", "/sdapi/v1/options", NULL, 200, "\"sd_model_checkpoint\":\"emoji\"", NULL);
}

static void no_route(void **state)
{
    static const char *const paths[] = {
        "/nope",        "/v1",         "/v1/",        "/v1/models/",  "/v1/jobs//events",
        "//health",     "/health/",    "/HEALTH",     "/web/../etc",  "/web/%2e%2e%2fapp.js",
        "/web/none.js", "/v1/files/x", "/v1/jobs/no", "/v1/jobs/%00", "/v1/files/..%2f..%2fetc"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        call_says("GET", paths[i], NULL, 404, "\"error\":{\"message\":", "invalid_request_error",
                  NULL);
    }
}

static void wrong_methods(void **state)
{
    static const char *const methods[] = {"GET", "PUT", "DELETE", "PATCH", "BREW"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct reply r = call(methods[i], GENERATIONS, NULL, NULL);
        assert_int_equal(r.status, 405);
        assert_string_equal(reply_header(&r, "Allow"), "POST");
        reply_free(&r);
    }
    struct reply r = call("POST", "/v1/jobs/x", NULL, "{}");
    assert_int_equal(r.status, 405);
    assert_string_equal(reply_header(&r, "Allow"), "GET, DELETE");
    reply_free(&r);
    r = call("HEAD", "/health", NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.bytes, 0);
    reply_free(&r);
}

static void page(void **state)
{
    struct reply r = call("GET", "/", NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(reply_header(&r, "Content-Security-Policy"),
                           "default-src 'none'; script-src 'self'"));
    assert_string_equal(reply_header(&r, "X-Content-Type-Options"), "nosniff");
    assert_string_equal(reply_header(&r, "Content-Type"), "text/html; charset=utf-8");
    char tag[128], line[160];
    (void)snprintf(tag, sizeof tag, "%s", reply_header(&r, "ETag"));
    reply_free(&r);
    (void)snprintf(line, sizeof line, "If-None-Match: %s\r\n", tag);
    r = call("GET", "/", line, NULL);
    assert_int_equal(r.status, 304);
    reply_free(&r);
    call_says("GET", "/web/app.js", NULL, 200, "import", NULL);
    call_says("GET", "/web/style.css", NULL, 200, "prefers-color-scheme", NULL);
    call_says("GET", "/docs", NULL, 200, "docs.js", NULL);
}

static void pictures(void **state)
{
    call_says("POST", GENERATIONS, "{" SMALL ",\"n\":2,\"seed\":7}", 200,
              "\"created\":", "\"b64_json\":\"iVBORw0KGgo", "\"seed\":7", "\"seed\":8",
              "\"size\":\"64x64\"", "\"output_format\":\"png\"", "\"revised_prompt\":null", NULL);
    struct reply r = call("POST", GENERATIONS, NULL, "{" SMALL "}");
    assert_int_equal(r.status, 200);
    assert_true(json_number(r.body, "seed") >= 0);
    char seed[32];
    (void)snprintf(seed, sizeof seed, "%lld", json_number(r.body, "seed"));
    assert_string_equal(reply_header(&r, "X-Ounce-Seed"), seed);
    assert_non_null(reply_header(&r, "X-Request-Id"));
    reply_free(&r);
}

/* The bytes of a file are those that `ounce generate` writes. */
static void same_as_generate(void **state)
{
    char command[2048];
    (void)snprintf(command, sizeof command,
                   "'%s' generate --quiet -p 'red apple' --width 64 --height 80 "
                   "--num-inference-steps 3 --seed 11 --true-cfg-scale 2.5 -o '%s' >/dev/null",
                   OZ_PROGRAM, scratch_path("x.png"));
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): our own program */
    FILE *file = fopen(scratch_path("x.png"), "re");
    assert_non_null(file);
    static char want[1 << 20];
    size_t bytes = fread(want, 1, sizeof want, file);
    (void)fclose(file);
    struct reply r = call("POST", GENERATIONS, NULL,
                          "{\"prompt\":\"red apple\",\"size\":\"64x80\",\"num_inference_steps\":3,"
                          "\"seed\":11,\"true_cfg_scale\":2.5,\"response_format\":\"file\"}");
    assert_int_equal(r.status, 200);
    assert_string_equal(reply_header(&r, "Content-Type"), "image/png");
    assert_int_equal(r.bytes, bytes);
    assert_memory_equal(r.body, want, bytes);
    reply_free(&r);
}

static void metadata(void **state)
{
    struct reply r = call("POST", GENERATIONS, NULL, "{" SMALL ",\"response_format\":\"file\"}");
    assert_int_equal(r.status, 200);
    assert_non_null(memmem(r.body, r.bytes, "red apple", 9));
    reply_free(&r);
    r = call("POST", GENERATIONS, NULL,
             "{" SMALL ",\"response_format\":\"file\",\"no_metadata\":true}");
    assert_int_equal(r.status, 200);
    assert_null(memmem(r.body, r.bytes, "red apple", 9));
    reply_free(&r);
}

static void formats(void **state)
{
    struct reply r = call("POST", GENERATIONS, NULL,
                          "{" SMALL ",\"response_format\":\"file\",\"output_format\":\"jpeg\","
                          "\"output_compression\":60}");
    if (r.status == 400) { /* a build without it says so */
        assert_non_null(strstr(r.body, "\"param\":\"output_format\""));
    } else {
        assert_int_equal(r.status, 200);
        assert_string_equal(reply_header(&r, "Content-Type"), "image/jpeg");
        assert_memory_equal(r.body, "\xff\xd8\xff", 3);
    }
    reply_free(&r);
    r = call("POST", GENERATIONS, NULL,
             "{" SMALL ",\"response_format\":\"file\",\"output_format\":\"webp\"}");
    if (r.status != 400) {
        assert_int_equal(r.status, 200);
        assert_string_equal(reply_header(&r, "Content-Type"), "image/webp");
        assert_memory_equal(r.body, "RIFF", 4);
    }
    reply_free(&r);
}

static void neutral_fields(void **state)
{
    struct reply r = call("POST", GENERATIONS, NULL,
                          "{" SMALL ",\"quality\":\"auto\",\"style\":null,\"stream\":false,"
                          "\"background\":\"opaque\",\"partial_images\":0,\"guidance_scale\":1.0,"
                          "\"moderation\":\"low\",\"model\":\"gpt-image-1\",\"user\":\"u\"}");
    assert_int_equal(r.status, 200);
    assert_string_equal(
        reply_header(&r, "X-Ounce-Ignored"),
        "quality, style, stream, background, partial_images, guidance_scale, moderation");
    reply_free(&r);
}

static void a1111(void **state)
{
    struct reply r = call("POST", "/sdapi/v1/txt2img", NULL,
                          "{\"prompt\":\"owl\",\"negative_prompt\":\"\",\"width\":64,\"height\":64,"
                          "\"steps\":2,\"cfg_scale\":3,\"seed\":-1,\"batch_size\":2,\"n_iter\":1,"
                          "\"sampler_name\":\"Euler\",\"styles\":[],\"enable_hr\":false,"
                          "\"hr_scale\":2,\"override_settings\":{},\"alwayson_scripts\":{},"
                          "\"denoising_strength\":0.7,\"send_images\":true}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "{\"images\":[\"iVBORw0KGgo"));
    assert_non_null(strstr(r.body, "\"info\":\"{\\\"prompt\\\":\\\"owl\\\",\\\"all_seeds\\\":["));
    assert_non_null(strstr(reply_header(&r, "X-Ounce-Ignored"), "hr_scale"));
    reply_free(&r);
    call_says("POST", "/sdapi/v1/txt2img", "{\"prompt\":\"x\",\"enable_hr\":true}", 400,
              "\"param\":\"enable_hr\"", NULL);
    call_says("POST", "/sdapi/v1/txt2img", "{\"prompt\":\"x\",\"batch_size\":4,\"n_iter\":3}", 400,
              "\"param\":\"batch_size\"", NULL);
    call_says("POST", "/sdapi/v1/txt2img", "{\"prompt\":\"x\",\"sampler_name\":\"DPM++ 2M\"}", 400,
              "\"param\":\"sampler_name\"", NULL);
    call_says("GET", "/sdapi/v1/progress", NULL, 200, "\"progress\":0", "\"current_image\":null",
              NULL);
    call_says("POST", "/sdapi/v1/interrupt", "{}", 200, "{}", NULL);
}

static void metrics(void **state)
{
    call_says(
        "GET", "/metrics", NULL, 200, "ounce_ready 1",
        "ounce_requests_total{route=\"/v1/images/generations\",method=\"POST\",status=\"200\"}",
        "ounce_pictures_total{outcome=\"done\"}", "ounce_step_seconds_bucket{le=\"+Inf\"}",
        "ounce_batch_fill", "ounce_memory_bytes{kind=\"peak\"}",
        "ounce_tensors{scheme=\"as stored\"}", "ounce_queue_limit 64", NULL);
}

/* Requests and how they are refused: body, status, field, a part of the message. */
static const struct {
    const char *body;
    int status;
    const char *param, *part;
} refused[] = {
    {"", 400, NULL, "JSON"},
    {"{", 400, NULL, "not valid JSON: line 1"},
    {"[]", 400, NULL, "A JSON object is expected, not an array"},
    {"\"x\"", 400, NULL, "JSON"},
    {"{} {}", 400, NULL, "JSON"},
    {"{\"prompt\":\"a\",\"prompt\":\"b\"}", 400, NULL, "duplicate"},
    {"{\"prompt\":\"a\\u0000b\"}", 400, NULL, "JSON"},
    {"{\"prompt\":\"\xff\"}", 400, NULL, "JSON"},
    {"{\"prompt\":\"x\",\"n\":[[[[[[[[[[1]]]]]]]]]]}", 400, NULL, "nests deeper than 8"},
    {"{\"prompt\":\"x\",\"seed\":99999999999999999999}", 400, NULL, "JSON"},
    {"{}", 400, "prompt", "'prompt' is missing"},
    {"{\"prompt\":null}", 400, "prompt", "missing"},
    {"{\"prompt\":7}", 400, "prompt", "must be a string, not a whole number"},
    {"{\"prompt\":\"x\",\"sede\":1}", 400, "sede", "did you mean 'seed'?"},
    {"{\"prompt\":\"x\",\"zzzzzz\":1}", 400, "zzzzzz", "no field 'zzzzzz'."},
    {"{\"prompt\":\"x\",\"model\":\"dall-e-3\"}", 404, "model", "'emoji'"},
    {"{\"prompt\":\"x\",\"quality\":\"hd\"}", 400, "quality", "num_inference_steps"},
    {"{\"prompt\":\"x\",\"stream\":true}", 400, "stream", "/v1/jobs has events"},
    {"{\"prompt\":\"x\",\"guidance_scale\":3.5}", 400, "guidance_scale", "true_cfg_scale"},
    {"{\"prompt\":\"x\",\"response_format\":\"file\",\"n\":2}", 400, "response_format",
     "one picture"},
    {"{\"prompt\":\"x\",\"output_format\":\"gif\"}", 400, "output_format", "one of png jpeg webp"},
    {"{\"prompt\":\"x\",\"output_compression\":50}", 400, "output_compression", "PNG"},
    {"{\"prompt\":\"x\",\"output_compression\":101}", 400, "output_compression", "from 0 to 100"},
    {"{\"prompt\":\"x\",\"no_metadata\":1}", 400, "no_metadata", "true or false"},
    {"{\"prompt\":\"x\",\"negative_prompt\":[]}", 400, "negative_prompt", "an array"},
    {"{\"prompt\":\"x\",\"preview_every\":1}", 400, "preview_every", "no field"},
    {"{\"prompt\":\"x\",\"width\":64}", 400, "width", "no field"},
};

static void errors(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char param[128];
        (void)snprintf(param, sizeof param,
                       refused[i].param != NULL ? "\"param\":\"%s\"" : "\"param\":null",
                       refused[i].param);
        call_says("POST", GENERATIONS, refused[i].body, refused[i].status,
                  "{\"error\":{\"message\":\"", param, refused[i].part, "\"code\":\"", NULL);
    }
}

static void request_ids(void **state)
{
    struct reply r = call("GET", "/health", "X-Request-Id: my.request-7\r\n", NULL);
    assert_string_equal(reply_header(&r, "X-Request-Id"), "my.request-7");
    reply_free(&r);
    r = call("GET", "/health", "X-Request-Id: bad id\"\r\n", NULL);
    assert_int_equal(strlen(reply_header(&r, "X-Request-Id")), 16);
    reply_free(&r);
}

static void log_lines(void **state)
{
    call_status(
        "POST", GENERATIONS,
        "{\"prompt\":\"a very secret prompt\",\"size\":\"32x32\",\"num_inference_steps\":1}", 200);
    sleep_ms(50);
    char *log = server_log(&server);
    assert_null(strstr(log, "secret prompt"));
    assert_non_null(strstr(log, "event=request id="));
    assert_non_null(strstr(log, "path=/v1/images/generations status=200 ms="));
    free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_there_is),  cmocka_unit_test(no_route),
        cmocka_unit_test(wrong_methods),  cmocka_unit_test(page),
        cmocka_unit_test(pictures),       cmocka_unit_test(same_as_generate),
        cmocka_unit_test(metadata),       cmocka_unit_test(formats),
        cmocka_unit_test(neutral_fields), cmocka_unit_test(a1111),
        cmocka_unit_test(metrics),        cmocka_unit_test(errors),
        cmocka_unit_test(request_ids),    cmocka_unit_test(log_lines),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
