/* oz_kernels_describe: a device's report as a table or as JSON. */
#include <ounce/ounce.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "dev/device.h"
#include "dev/report.h"

#define MAX_TEXT_BYTES ((size_t)4 << 20)

struct text {
    struct oz_buf buf;
    bool json;
    int64_t tiers, kernels;
    char op[64]; /* of the kernel before */
};

static void json_or_null(struct oz_buf *b, const char *text)
{
    if (text != NULL) {
        oz_buf_json(b, text);
    } else {
        oz_buf_puts(b, "null");
    }
}

static void add_tier(void *ctx, const struct oz_tier_row *row)
{
    struct text *t = ctx;
    if (t->json) {
        oz_buf_printf(&t->buf, "%s{\"name\":", t->tiers > 0 ? ",\n" : "\n");
        oz_buf_json(&t->buf, row->name);
        oz_buf_puts(&t->buf, ",\"what\":");
        oz_buf_json(&t->buf, row->what);
        oz_buf_printf(&t->buf, ",\"present\":%s,\"in_use\":%s}", row->present ? "true" : "false",
                      row->in_use ? "true" : "false");
    } else {
        oz_buf_printf(&t->buf, "  %-12s %-42s %s\n", row->name, row->what,
                      row->in_use    ? "yes"
                      : row->present ? "left out by OUNCE_CPU"
                                     : "no");
    }
    t->tiers++;
}

static void add_kernel(void *ctx, const struct oz_kernel_row *row)
{
    struct text *t = ctx;
    struct oz_buf *b = &t->buf;
    bool first = strncmp(t->op, row->op, sizeof t->op - 1) != 0;
    if (first) {
        t->op[0] = '\0';
        strncat(t->op, row->op, sizeof t->op - 1);
    }
    if (t->json) {
        if (first) {
            oz_buf_printf(b, "%s{\"name\":", t->kernels > 0 ? "]},\n" : "],\"operators\":[\n");
            oz_buf_json(b, row->op);
            oz_buf_puts(b, ",\"kernels\":[");
        }
        oz_buf_puts(b, first ? "\n{\"name\":" : ",\n{\"name\":");
        oz_buf_json(b, row->name);
        oz_buf_puts(b, ",\"tier\":");
        oz_buf_json(b, row->tier);
        oz_buf_printf(b, ",\"usable\":%s,\"reason\":", row->unusable == NULL ? "true" : "false");
        json_or_null(b, row->unusable);
        oz_buf_puts(b, ",\"proven\":");
        json_or_null(b, row->proven);
        oz_buf_puts(b, "}");
    } else {
        oz_buf_printf(b, "%s%s%s", first ? "\n" : "", first ? row->op : "", first ? "\n" : "");
        oz_buf_printf(b, "  %-48s %-12s %-8s", row->name, row->tier,
                      row->unusable == NULL ? "usable" : "no");
        oz_buf_printf(b, " %s%s\n", row->unusable == NULL ? "proven: " : row->unusable,
                      row->unusable != NULL ? ""
                      : row->proven != NULL ? row->proven
                                            : "not yet; it was asked for");
    }
    t->kernels++;
}

static void describe(struct text *t, struct oz_device *dev)
{
    const struct oz_kernel_report report = {.tier = add_tier, .kernel = add_kernel, .ctx = t};
    if (t->json) {
        oz_buf_puts(&t->buf, "{\"device\":");
        oz_buf_json(&t->buf, dev->name);
        oz_buf_puts(&t->buf, ",\"tier\":");
        oz_buf_json(&t->buf, dev->tier);
        oz_buf_puts(&t->buf, ",\"tiers\":[");
    } else {
        oz_buf_printf(&t->buf, "%s, tier %s\n", dev->name, dev->tier);
    }
    dev->describe(dev, &report);
    if (t->json) {
        oz_buf_puts(&t->buf, t->kernels > 0 ? "]}]}\n" : "],\"operators\":[]}\n");
    }
}

enum oz_status oz_kernels_describe(const char *device, int32_t json, oz_write_fn write, void *ctx,
                                   struct oz_error *err)
{
    struct oz_device *dev;
    struct text t = {.json = json != 0};
    enum oz_status status = OZ_OK;
    OZ_TRY(oz_device_open(&dev, device != NULL ? device : "cpu", OZ_DEVICE_PLAN_ONLY, NULL, err));
    oz_buf_init(&t.buf, MAX_TEXT_BYTES);
    if (dev->describe == NULL) {
        status = OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "Device %s has no lists of kernels.", dev->name);
    } else {
        describe(&t, dev);
    }
    if (status == OZ_OK && t.buf.status != OZ_OK) {
        status = OZ_FAIL(err, t.buf.status, "The lists of device %s are too large.", dev->name);
    } else if (status == OZ_OK && write(ctx, t.buf.data, t.buf.bytes) != 0) {
        status = OZ_FAIL(err, OZ_ERR_IO, "The lists of kernels could not be written.");
    }
    oz_buf_deinit(&t.buf);
    oz_device_close(&dev);
    return status;
}
