/* The CUDA device: memory, transfers, streams, events, and what is wrong when there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cuda/host/gemm.h"

/* Architectures on which the kernels of this tree have run (tests/gpu/last.json). */
static const int tried[] = {90};

static enum oz_status fail_cuda(struct oz_error *err, const struct oz_device *dev, const char *what,
                                cudaError_t error)
{
    enum oz_status status = error == cudaErrorMemoryAllocation ? OZ_ERR_NOMEM : OZ_ERR_DEVICE;
    return OZ_FAIL(err, status, "%s: %s failed: %s (%s).", dev->name, what, cudaGetErrorName(error),
                   cudaGetErrorString(error));
}

enum oz_status oz_cuda_check(const struct oz_device *dev, const char *what, int error)
{
    if (error == (int)cudaSuccess) {
        return OZ_OK;
    }
    oz_log(OZ_LOG_ERROR, "dispatch", "%s on %s: %s (%s).", what, dev->name,
           cudaGetErrorName((cudaError_t)error), cudaGetErrorString((cudaError_t)error));
    return OZ_ERR_DEVICE;
}

enum oz_status oz_cuda_report(const struct oz_device *dev, const char *what, int error,
                              struct oz_error *err)
{
    return error == (int)cudaSuccess ? OZ_OK : fail_cuda(err, dev, what, (cudaError_t)error);
}

enum oz_status oz_cuda_choose(struct oz_device *dev, struct oz_error *err)
{
    if (dev->plan_only) {
        return OZ_FAIL(err, OZ_ERR_DEVICE,
                       "Device %s was opened for planning only; it has no memory and runs nothing.",
                       dev->name);
    }
    cudaError_t error = cudaSetDevice(oz_cuda_of(dev)->index);
    return error == cudaSuccess ? OZ_OK : fail_cuda(err, dev, "choosing the device", error);
}

/* ---- memory ---- */

static enum oz_status device_memory(struct oz_device *dev, int64_t *free_bytes,
                                    int64_t *total_bytes, struct oz_error *err)
{
    size_t available;
    size_t total;
    OZ_TRY(oz_cuda_choose(dev, err));
    cudaError_t error = cudaMemGetInfo(&available, &total);
    if (error != cudaSuccess) {
        return fail_cuda(err, dev, "asking for its memory", error);
    }
    *free_bytes = (int64_t)available;
    *total_bytes = (int64_t)total;
    return OZ_OK;
}

static enum oz_status device_alloc(struct oz_device *dev, size_t bytes, void **out,
                                   struct oz_error *err)
{
    size_t available = 0;
    size_t total = 0;
    *out = NULL;
    OZ_TRY(oz_cuda_choose(dev, err));
    cudaError_t error = cudaMalloc(out, bytes);
    if (error == cudaSuccess) {
        oz_cuda_halves_forget(oz_cuda_of(dev), *out, bytes);
        return OZ_OK;
    }
    *out = NULL;
    (void)cudaGetLastError(); /* it is told, and does not stick */
    (void)cudaMemGetInfo(&available, &total);
    if (error == cudaErrorMemoryAllocation) {
        return OZ_FAIL(err, OZ_ERR_NOMEM,
                       "Out of memory on %s: %zu bytes asked, %zu available of %zu. Quantize more, "
                       "ask for smaller pictures, or use --device cpu.",
                       dev->name, bytes, available, total);
    }
    return fail_cuda(err, dev, "taking memory", error);
}

static void device_free(struct oz_device *dev, void *memory)
{
    if (memory != NULL && cudaSetDevice(oz_cuda_of(dev)->index) == cudaSuccess) {
        (void)cudaFree(memory);
    }
}

/* ---- transfers ---- */

static enum oz_status move(struct oz_device *dev, struct oz_queue *queue, void *dst,
                           const void *src, size_t bytes, enum cudaMemcpyKind kind,
                           const char *what, struct oz_error *err)
{
    OZ_TRY(oz_cuda_choose(dev, err));
    if (bytes == 0) {
        return OZ_OK;
    }
    if (kind != cudaMemcpyDeviceToHost) {
        oz_cuda_halves_forget(oz_cuda_of(dev), dst, bytes);
    }
    cudaError_t error = cudaMemcpyAsync(dst, src, bytes, kind, oz_cuda_stream_of(dev, queue));
    return error == cudaSuccess ? OZ_OK : fail_cuda(err, dev, what, error);
}

static enum oz_status upload(struct oz_device *dev, struct oz_queue *queue, void *dst,
                             const void *host, size_t bytes, struct oz_error *err)
{
    return move(dev, queue, dst, host, bytes, cudaMemcpyHostToDevice, "an upload", err);
}

static enum oz_status download(struct oz_device *dev, struct oz_queue *queue, void *host,
                               const void *src, size_t bytes, struct oz_error *err)
{
    return move(dev, queue, host, src, bytes, cudaMemcpyDeviceToHost, "a download", err);
}

static enum oz_status copy(struct oz_device *dev, struct oz_queue *queue, void *dst,
                           const void *src, size_t bytes, struct oz_error *err)
{
    return move(dev, queue, dst, src, bytes, cudaMemcpyDeviceToDevice, "a copy", err);
}

/* ---- queues ---- */

static enum oz_status queue_create(struct oz_device *dev, struct oz_queue **out,
                                   struct oz_error *err)
{
    *out = NULL;
    OZ_TRY(oz_cuda_choose(dev, err));
    struct oz_queue *q = oz_alloc_zero(1, sizeof *q);
    if (q == NULL) {
        return OZ_FAIL_NOMEM(err, "a queue");
    }
    cudaError_t error = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        oz_free(q);
        return fail_cuda(err, dev, "making a stream", error);
    }
    *out = q;
    return OZ_OK;
}

static void queue_destroy(struct oz_device *dev, struct oz_queue *queue)
{
    (void)dev;
    if (queue != NULL) {
        (void)cudaStreamDestroy(queue->stream);
        oz_free(queue);
    }
}

static enum oz_status queue_wait(struct oz_device *dev, struct oz_queue *queue,
                                 struct oz_error *err)
{
    OZ_TRY(oz_cuda_choose(dev, err));
    cudaError_t error = cudaStreamSynchronize(oz_cuda_stream_of(dev, queue));
    return error == cudaSuccess ? OZ_OK : fail_cuda(err, dev, "waiting for the device", error);
}

static enum oz_status queue_record(struct oz_device *dev, struct oz_queue *queue,
                                   struct oz_event **out, struct oz_error *err)
{
    OZ_TRY(oz_cuda_choose(dev, err));
    struct oz_event *e = *out;
    cudaError_t error = cudaSuccess;
    if (e == NULL) {
        e = oz_alloc_zero(1, sizeof *e);
        if (e == NULL) {
            return OZ_FAIL_NOMEM(err, "an event");
        }
        error = cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming);
        if (error != cudaSuccess) {
            oz_free(e);
            return fail_cuda(err, dev, "making an event", error);
        }
        *out = e;
    }
    error = cudaEventRecord(e->event, oz_cuda_stream_of(dev, queue));
    return error == cudaSuccess ? OZ_OK : fail_cuda(err, dev, "recording an event", error);
}

static enum oz_status queue_await(struct oz_device *dev, struct oz_queue *queue,
                                  struct oz_event *event, struct oz_error *err)
{
    OZ_TRY(oz_cuda_choose(dev, err));
    cudaError_t error = cudaStreamWaitEvent(oz_cuda_stream_of(dev, queue), event->event, 0);
    return error == cudaSuccess ? OZ_OK : fail_cuda(err, dev, "waiting for an event", error);
}

static void event_destroy(struct oz_device *dev, struct oz_event *event)
{
    (void)dev;
    if (event != NULL) {
        (void)cudaEventDestroy(event->event);
        oz_free(event);
    }
}

/* ---- opening ---- */

/* Is there a driver, new enough, and a card? */
static enum oz_status count_devices(int *count, struct oz_error *err)
{
    int driver = 0;
    int runtime = 0;
    *count = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    cudaError_t error = cudaGetDeviceCount(count);
    (void)cudaGetLastError();
    if (error == cudaSuccess && *count > 0) {
        return OZ_OK;
    }
    *count = 0;
    if (driver == 0) {
        return OZ_FAIL(err, OZ_ERR_DEVICE,
                       "There is no NVIDIA driver on this machine (CUDA says %s). Install one for "
                       "CUDA %d.%d or newer, or use --device cpu.",
                       cudaGetErrorName(error), runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaErrorInsufficientDriver) {
        return OZ_FAIL(err, OZ_ERR_DEVICE,
                       "The NVIDIA driver is for CUDA %d.%d; this build needs %d.%d. Update the "
                       "driver, or use --device cpu.",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaSuccess || error == cudaErrorNoDevice) {
        return OZ_FAIL(err, OZ_ERR_DEVICE,
                       "There is no CUDA card that this process may use. Check nvidia-smi and "
                       "CUDA_VISIBLE_DEVICES, or use --device cpu.");
    }
    return OZ_FAIL(err, OZ_ERR_DEVICE, "The NVIDIA driver does not answer: %s (%s).",
                   cudaGetErrorName(error), cudaGetErrorString(error));
}

enum oz_status oz_cuda_present(struct oz_error *err)
{
    int count;
    return count_devices(&count, err);
}

bool oz_cuda_is_tried(int sm)
{
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        if (tried[i] == sm) {
            return true;
        }
    }
    return false;
}

/* Name, and whether this build's kernels are known to work there. */
static enum oz_status find_card(struct oz_cuda *c, int32_t index, struct oz_error *err)
{
    int count;
    int major = 0;
    int minor = 0;
    OZ_TRY(count_devices(&count, err));
    if (index >= count) {
        return OZ_FAIL(err, OZ_ERR_DEVICE, "Device cuda:%d does not exist; there %s %d, cuda:0%s.",
                       (int)index, count == 1 ? "is" : "are", count, count == 1 ? "" : " and on");
    }
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    }
    if (error != cudaSuccess) {
        return fail_cuda(err, &c->dev, "asking what it is", error);
    }
    c->sm = 10 * major + minor;
    (void)snprintf(c->tier, sizeof c->tier, "sm_%d", c->sm);
    if (oz_cuda_is_tried(c->sm)) {
        return OZ_OK;
    }
    if (c->untried) {
        oz_log(OZ_LOG_WARN, "dispatch", "%s is sm_%d, where these kernels have never run.", c->name,
               c->sm);
        return OZ_OK;
    }
    return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                   "%s is sm_%d, where ounce's kernels have never run. Set OUNCE_UNTRIED=1 to try "
                   "them all the same, or use --device cpu.",
                   c->name, c->sm);
}

static enum oz_status take_resources(struct oz_cuda *c, struct oz_error *err)
{
    cudaError_t error = cudaSetDevice(c->index);
    if (error == cudaSuccess) {
        error = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    }
    if (error == cudaSuccess) {
        error = cudaMalloc(&c->workspace, (size_t)OZ_CUDA_WORKSPACE_BYTES);
    }
    int least = 0;
    int greatest = 0;
    if (error == cudaSuccess) {
        error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    }
    if (error == cudaSuccess) {
        error = cudaStreamCreateWithPriority(&c->side.stream, cudaStreamNonBlocking, greatest);
    }
    if (error == cudaSuccess) {
        error = cudaMalloc(&c->side.workspace, (size_t)OZ_CUDA_WORKSPACE_BYTES);
    }
    if (error == cudaSuccess) {
        error = cudaMalloc((void **)&c->halves.room, OZ_CUDA_HALVES_BYTES);
    }
    if (error != cudaSuccess) {
        return fail_cuda(err, &c->dev, "opening the device", error);
    }
    cublasStatus_t status = cublasLtCreate(&c->lt);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return OZ_FAIL(err, OZ_ERR_DEVICE, "%s: cuBLASLt does not start: %s.", c->name,
                       cublasLtGetStatusName(status));
    }
    c->dev.side = &c->side;
    return OZ_OK;
}

static void device_close(struct oz_device *dev)
{
    struct oz_cuda *c = oz_cuda_of(dev);
    if (!dev->plan_only) {
        (void)cudaSetDevice(c->index);
        oz_cuda_keep_algos(c);
        oz_cuda_conv_close(c);
        oz_cuda_sdpa_close(c);
        if (c->lt != NULL) {
            (void)cublasLtDestroy(c->lt);
        }
        if (c->workspace != NULL) {
            (void)cudaFree(c->workspace);
        }
        if (c->side.workspace != NULL) {
            (void)cudaFree(c->side.workspace);
            (void)cudaFree(c->halves.room);
        }
        if (c->side.stream != NULL) {
            (void)cudaStreamDestroy(c->side.stream);
        }
        if (c->stream != NULL) {
            (void)cudaStreamDestroy(c->stream);
        }
    }
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->halves.lock);
    oz_free(c);
}

enum oz_status oz_cuda_open(struct oz_device **out, int32_t index, uint32_t flags,
                            struct oz_pool *pool, struct oz_error *err)
{
    *out = NULL;
    if (flags & (OZ_DEVICE_LINEAR_REF | OZ_DEVICE_LINEAR_CPU | OZ_DEVICE_LINEAR_OWN)) {
        return OZ_FAIL(err, OZ_ERR_ARG,
                       "Linear backend \"%s\" is not one of device cuda; it has \"auto\" and "
                       "\"cublaslt\".",
                       flags & OZ_DEVICE_LINEAR_REF   ? "ref"
                       : flags & OZ_DEVICE_LINEAR_CPU ? "cpu"
                                                      : "own");
    }
    struct oz_cuda *c = oz_alloc_zero(1, sizeof *c);
    if (c == NULL) {
        return OZ_FAIL_NOMEM(err, "the CUDA device");
    }
    (void)snprintf(c->name, sizeof c->name, "cuda:%d", (int)index);
    (void)snprintf(c->tier, sizeof c->tier, "sm_%d", tried[0]);
    c->index = index;
    c->vendor_only = (flags & OZ_DEVICE_LINEAR_VENDOR) != 0;
    c->untried = getenv("OUNCE_UNTRIED") != NULL;
    c->sm = tried[0]; /* what is planned for where there is no card */
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->halves.lock, NULL);
    c->dev = (struct oz_device){
        .name = c->name,
        .tier = c->tier,
        .plan_only = (flags & OZ_DEVICE_PLAN_ONLY) != 0,
        .f32_math = (flags & OZ_DEVICE_F32) != 0,
        .half_rows = (flags & OZ_DEVICE_F32) == 0,
        .adds_late = true,
        .has_side = true,
        .rope_out = (flags & OZ_DEVICE_F32) == 0,
        .impl = c,
        .pool = pool,
        .ops = &oz_cuda_operators,
        .alloc = device_alloc,
        .free = device_free,
        .alloc_host = oz_cuda_pin,
        .free_host = oz_cuda_unpin,
        .memory = device_memory,
        .upload = upload,
        .download = download,
        .copy = copy,
        .queue_create = queue_create,
        .queue_destroy = queue_destroy,
        .wait = queue_wait,
        .record = queue_record,
        .await = queue_await,
        .event_destroy = event_destroy,
        .describe = oz_cuda_describe,
        .close = device_close,
    };
    enum oz_status status = OZ_OK;
    if (!c->dev.plan_only) {
        status = find_card(c, index, err);
        if (status == OZ_OK) {
            status = take_resources(c, err);
        }
    }
    if (status != OZ_OK) {
        device_close(&c->dev);
        return status;
    }
    *out = &c->dev;
    return OZ_OK;
}
