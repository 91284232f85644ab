/* A device of NVIDIA's as a place: its primary context, which every library of a process shares. */
#include "gpu/device/place_calls.h"

static const char *name_of(const bcfg_device_library *driver, int status) {
    const char *name = NULL;
    (void)bcfg_cuda(driver)->cuGetErrorName(status, &name);
    return name;
}

/* The context is retained for ever: handles live in it. */
static int start(const bcfg_device_library *driver, int32_t index, void **context,
                 const char **function) {
    const bcfg_cuda_table *cuda = bcfg_cuda(driver);
    int device = 0, status;
    *function = "cuInit";
    if ((status = cuda->cuInit(0)) != BCFG_CUDA_SUCCESS) return status;
    *function = "cuDeviceGet";
    if ((status = cuda->cuDeviceGet(&device, index)) != BCFG_CUDA_SUCCESS) return status;
    *function = "cuDevicePrimaryCtxRetain";
    return cuda->cuDevicePrimaryCtxRetain(context, device);
}

static int enter(const bcfg_device_library *driver, int32_t index, void *context, bcfg_visit *visit,
                 const char **function) {
    (void)index;
    void *current = NULL;
    *function = "cuCtxGetCurrent";
    int status = bcfg_cuda(driver)->cuCtxGetCurrent(&current);
    if (status != BCFG_CUDA_SUCCESS || current == context) return status;
    *function = "cuCtxPushCurrent";
    status = bcfg_cuda(driver)->cuCtxPushCurrent_v2(context);
    visit->changed = status == BCFG_CUDA_SUCCESS;
    return status;
}

static void leave(const bcfg_device_library *driver, const bcfg_visit *visit) {
    void *ignored;
    (void)visit;
    (void)bcfg_cuda(driver)->cuCtxPopCurrent_v2(&ignored);
}

static int order(const bcfg_device_library *driver, void *before, void *after,
                 const char **function) {
    const bcfg_cuda_table *cuda = bcfg_cuda(driver);
    void *event = NULL;
    *function = "cuEventCreate";
    int status = cuda->cuEventCreate(&event, BCFG_CU_EVENT_DISABLE_TIMING);
    if (status != BCFG_CUDA_SUCCESS) return status;
    *function = "cuEventRecord";
    status = cuda->cuEventRecord(event, before);
    if (status == BCFG_CUDA_SUCCESS) {
        *function = "cuStreamWaitEvent";
        status = cuda->cuStreamWaitEvent(after, event, 0);
    }
    (void)cuda->cuEventDestroy_v2(event); /* the driver frees it once it has happened */
    return status;
}

static int settle(const bcfg_device_library *driver, void *stream, const char **function) {
    *function = "cuStreamSynchronize";
    return bcfg_cuda(driver)->cuStreamSynchronize(stream);
}

static bool captures(const bcfg_device_library *driver, void *stream) {
    int status = BCFG_CU_STREAM_CAPTURE_STATUS_NONE;
    /* The legacy stream is never captured, and asking for it fails while another one is. */
    if (stream == NULL || stream == BCFG_CUDA_STREAM_LEGACY) return false;
    return bcfg_cuda(driver)->cuStreamIsCapturing(stream, &status) != BCFG_CUDA_SUCCESS ||
           status != BCFG_CU_STREAM_CAPTURE_STATUS_NONE;
}

static int clear(const bcfg_device_library *driver, void *memory, size_t bytes, void *stream,
                 const char **function) {
    *function = "cuMemsetD8Async";
    return bcfg_cuda(driver)->cuMemsetD8Async((uint64_t)(uintptr_t)memory, 0, bytes, stream);
}

static int allocate(const bcfg_device_library *driver, size_t bytes, void **memory,
                    const char **function) {
    uint64_t pointer = 0;
    *function = "cuMemAlloc";
    int status = bcfg_cuda(driver)->cuMemAlloc_v2(&pointer, bytes);
    *memory = (void *)(uintptr_t)pointer;
    return status;
}

static void give_back(const bcfg_device_library *driver, void *memory) {
    (void)bcfg_cuda(driver)->cuMemFree_v2((uint64_t)(uintptr_t)memory);
}

const bcfg_place_calls bcfg_cuda_calls = {name_of, start,    enter, leave,    order,
                                          settle,  captures, clear, allocate, give_back};
