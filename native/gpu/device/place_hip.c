/* A device of AMD's as a place: HIP has a current device for each thread, and no contexts. */
#include "gpu/device/place_calls.h"

static const char *name_of(const bcfg_device_library *driver, int status) {
    return bcfg_hip(driver)->hipGetErrorName(status);
}

static int start(const bcfg_device_library *driver, int32_t index, void **context,
                 const char **function) {
    (void)index;
    *context = NULL;
    *function = "hipInit";
    return bcfg_hip(driver)->hipInit(0);
}

static int enter(const bcfg_device_library *driver, int32_t index, void *context, bcfg_visit *visit,
                 const char **function) {
    (void)context;
    *function = "hipGetDevice";
    int status = bcfg_hip(driver)->hipGetDevice(&visit->before);
    if (status != BCFG_hipSuccess || visit->before == index) return status;
    *function = "hipSetDevice";
    status = bcfg_hip(driver)->hipSetDevice(index);
    visit->changed = status == BCFG_hipSuccess;
    return status;
}

static void leave(const bcfg_device_library *driver, const bcfg_visit *visit) {
    (void)bcfg_hip(driver)->hipSetDevice(visit->before);
}

static int order(const bcfg_device_library *driver, void *before, void *after,
                 const char **function) {
    const bcfg_hip_table *hip = bcfg_hip(driver);
    void *event = NULL;
    *function = "hipEventCreateWithFlags";
    int status = hip->hipEventCreateWithFlags(&event, BCFG_hipEventDisableTiming);
    if (status != BCFG_hipSuccess) return status;
    *function = "hipEventRecord";
    status = hip->hipEventRecord(event, before);
    if (status == BCFG_hipSuccess) {
        *function = "hipStreamWaitEvent";
        status = hip->hipStreamWaitEvent(after, event, 0);
    }
    (void)hip->hipEventDestroy(event);
    return status;
}

static int settle(const bcfg_device_library *driver, void *stream, const char **function) {
    *function = "hipStreamSynchronize";
    return bcfg_hip(driver)->hipStreamSynchronize(stream);
}

static bool captures(const bcfg_device_library *driver, void *stream) {
    int status = BCFG_hipStreamCaptureStatusNone;
    if (stream == NULL) return false; /* the legacy stream is never captured */
    return bcfg_hip(driver)->hipStreamIsCapturing(stream, &status) != BCFG_hipSuccess ||
           status != BCFG_hipStreamCaptureStatusNone;
}

static int clear(const bcfg_device_library *driver, void *memory, size_t bytes, void *stream,
                 const char **function) {
    *function = "hipMemsetAsync";
    return bcfg_hip(driver)->hipMemsetAsync(memory, 0, bytes, stream);
}

static int allocate(const bcfg_device_library *driver, size_t bytes, void **memory,
                    const char **function) {
    *function = "hipMalloc";
    return bcfg_hip(driver)->hipMalloc(memory, bytes);
}

static void give_back(const bcfg_device_library *driver, void *memory) {
    (void)bcfg_hip(driver)->hipFree(memory);
}

const bcfg_place_calls bcfg_hip_calls = {name_of, start,    enter, leave,    order,
                                         settle,  captures, clear, allocate, give_back};
