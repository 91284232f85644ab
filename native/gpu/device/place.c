/* The devices that this process computes on, each started once and kept.
 *
 * CUDA keeps a stack of contexts for each thread: ours is the primary context of a device, which every
 * library of a process shares. HIP has a current device for each thread, and no contexts. */
#include "gpu/device/place.h"

#include <pthread.h>
#include <stdlib.h>

/* Oldest first; appended to under the lock. */
typedef struct place {
    const bcfg_device_library *driver;
    int32_t index;
    void *context;                     /* CUDA's */
    struct place *_Atomic next;
} place;

static place *_Atomic first;
static _Atomic bool forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A driver cannot be used after a fork: its memory is copied, its connection to the device is not. */
static void after_fork(void) {
    if (atomic_load(&first) != NULL) atomic_store(&forked, true);
}
static void watch_fork(void) { (void)pthread_atfork(NULL, NULL, after_fork); }

static bool is_cuda(const bcfg_device_library *driver) { return driver->kind == BCFG_CUDA; }

/* Calls a function of `driver`, CUDA's or HIP's, and leaves its name in `function`. Success is 0 in both. */
#define CALL(cuda, hip, ...)                                                                       \
    (is_cuda(driver) ? (function = #cuda, bcfg_cuda(driver)->cuda(__VA_ARGS__))                    \
                     : (function = #hip, bcfg_hip(driver)->hip(__VA_ARGS__)))

static bcfg_outcome said(const bcfg_device_library *driver, const char *function, int status,
                         bcfg_fault *fault) {
    if (status == 0) return BCFG_DEVICE_OK;
    const char *name = NULL;
    if (is_cuda(driver))
        (void)bcfg_cuda(driver)->cuGetErrorName(status, &name);
    else
        name = bcfg_hip(driver)->hipGetErrorName(status);
    *fault = (bcfg_fault){function, status, name != NULL ? name : ""};
    return BCFG_DEVICE_FAULT;
}

static place *find(const bcfg_device_library *driver, int32_t index) {
    place *at = atomic_load_explicit(&first, memory_order_acquire);
    while (at != NULL && (at->driver != driver || at->index != index))
        at = atomic_load_explicit(&at->next, memory_order_acquire);
    return at;
}

static void append(place *fresh) {
    place *_Atomic *at = &first;
    for (place *one; (one = atomic_load_explicit(at, memory_order_relaxed)) != NULL;)
        at = &one->next;
    atomic_store_explicit(at, fresh, memory_order_release);
}

/* Initialises the driver. CUDA's context is retained for ever: handles live in it. */
static bcfg_outcome start(const bcfg_device_library *driver, int32_t index, void **context,
                          bcfg_fault *fault) {
    const char *function = "";
    int device = 0, status = CALL(cuInit, hipInit, 0);
    if (status == 0 && is_cuda(driver)) {
        function = "cuDeviceGet";
        status = bcfg_cuda(driver)->cuDeviceGet(&device, index);
    }
    if (status == 0 && is_cuda(driver)) {
        function = "cuDevicePrimaryCtxRetain";
        status = bcfg_cuda(driver)->cuDevicePrimaryCtxRetain(context, device);
    }
    return said(driver, function, status, fault);
}

static bcfg_outcome make(const bcfg_device_library *driver, int32_t index, place **made,
                         bcfg_fault *fault) {
    (void)pthread_once(&once, watch_fork);
    place *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return BCFG_DEVICE_MEMORY;
    fresh->driver = driver;
    fresh->index = index;
    bcfg_outcome outcome = start(driver, index, &fresh->context, fault);
    if (outcome != BCFG_DEVICE_OK) {
        free(fresh);
        return outcome;
    }
    bcfg_lock();
    /* Another thread may have been faster; the context is the same, and retained once more. */
    *made = find(driver, index);
    if (*made == NULL) append(*made = fresh);
    bcfg_unlock();
    if (*made != fresh) free(fresh);
    return BCFG_DEVICE_OK;
}

static int enter_cuda(const bcfg_cuda_table *cuda, void *context, bcfg_visit *visit,
                      const char **function) {
    void *current = NULL;
    *function = "cuCtxGetCurrent";
    int status = cuda->cuCtxGetCurrent(&current);
    if (status != BCFG_CUDA_SUCCESS || current == context) return status;
    *function = "cuCtxPushCurrent";
    status = cuda->cuCtxPushCurrent_v2(context);
    visit->changed = status == BCFG_CUDA_SUCCESS;
    return status;
}

static int enter_hip(const bcfg_hip_table *hip, int32_t index, bcfg_visit *visit,
                     const char **function) {
    *function = "hipGetDevice";
    int status = hip->hipGetDevice(&visit->before);
    if (status != BCFG_hipSuccess || visit->before == index) return status;
    *function = "hipSetDevice";
    status = hip->hipSetDevice(index);
    visit->changed = status == BCFG_hipSuccess;
    return status;
}

bcfg_outcome bcfg_place_enter(const bcfg_device_library *driver, int32_t index, bcfg_visit *visit,
                              bcfg_fault *fault) {
    *visit = (bcfg_visit){false, 0};
    if (atomic_load_explicit(&forked, memory_order_relaxed)) return BCFG_DEVICE_FORKED;
    place *at = find(driver, index);
    if (at == NULL) {
        bcfg_outcome outcome = make(driver, index, &at, fault);
        if (outcome != BCFG_DEVICE_OK) return outcome;
    }
    const char *function = "";
    int status = is_cuda(driver) ? enter_cuda(bcfg_cuda(driver), at->context, visit, &function)
                                 : enter_hip(bcfg_hip(driver), index, visit, &function);
    return said(driver, function, status, fault);
}

void bcfg_place_leave(const bcfg_device_library *driver, const bcfg_visit *visit) {
    void *ignored;
    if (!visit->changed) return;
    if (is_cuda(driver))
        (void)bcfg_cuda(driver)->cuCtxPopCurrent_v2(&ignored);
    else
        (void)bcfg_hip(driver)->hipSetDevice(visit->before);
}

bcfg_outcome bcfg_place_order(const bcfg_device_library *driver, void *before, void *after,
                              bcfg_fault *fault) {
    const char *function = "";
    void *event = NULL;
    const unsigned int untimed =
        is_cuda(driver) ? BCFG_CU_EVENT_DISABLE_TIMING : BCFG_hipEventDisableTiming;
    int status = CALL(cuEventCreate, hipEventCreateWithFlags, &event, untimed);
    if (status != 0) return said(driver, function, status, fault);
    status = CALL(cuEventRecord, hipEventRecord, event, before);
    if (status == 0) status = CALL(cuStreamWaitEvent, hipStreamWaitEvent, after, event, 0);
    bcfg_outcome outcome = said(driver, function, status, fault);
    (void)CALL(cuEventDestroy_v2, hipEventDestroy, event); /* the driver frees it once it has happened */
    return outcome;
}

bcfg_outcome bcfg_place_synchronize(const bcfg_device_library *driver, void *stream,
                                    bcfg_fault *fault) {
    const char *function = "";
    int status = CALL(cuStreamSynchronize, hipStreamSynchronize, stream);
    return said(driver, function, status, fault);
}

bool bcfg_place_captures(const bcfg_device_library *driver, void *stream) {
    const char *function = "";
    const int none = is_cuda(driver) ? BCFG_CU_STREAM_CAPTURE_STATUS_NONE
                                     : BCFG_hipStreamCaptureStatusNone;
    int capturing = none;
    /* The legacy stream is never captured, and asking CUDA for it fails while another one is. */
    if (stream == NULL || (is_cuda(driver) && stream == BCFG_CUDA_STREAM_LEGACY)) return false;
    int status = CALL(cuStreamIsCapturing, hipStreamIsCapturing, stream, &capturing);
    (void)function; /* nobody is told of a failure */
    return status != 0 || capturing != none;
}

bcfg_outcome bcfg_place_clear(const bcfg_device_library *driver, void *memory, size_t bytes,
                              void *stream, bcfg_fault *fault) {
    const bool cuda = is_cuda(driver);
    int status = cuda ? bcfg_cuda(driver)->cuMemsetD8Async((uint64_t)(uintptr_t)memory, 0, bytes,
                                                           stream)
                      : bcfg_hip(driver)->hipMemsetAsync(memory, 0, bytes, stream);
    return said(driver, cuda ? "cuMemsetD8Async" : "hipMemsetAsync", status, fault);
}

bcfg_outcome bcfg_place_allocate(const bcfg_device_library *driver, size_t bytes, void **memory,
                                 bcfg_fault *fault) {
    if (!is_cuda(driver))
        return said(driver, "hipMalloc", bcfg_hip(driver)->hipMalloc(memory, bytes), fault);
    uint64_t pointer = 0;
    int status = bcfg_cuda(driver)->cuMemAlloc_v2(&pointer, bytes);
    *memory = (void *)(uintptr_t)pointer;
    return said(driver, "cuMemAlloc", status, fault);
}

void bcfg_place_free(const bcfg_device_library *driver, void *memory) {
    if (is_cuda(driver))
        (void)bcfg_cuda(driver)->cuMemFree_v2((uint64_t)(uintptr_t)memory);
    else
        (void)bcfg_hip(driver)->hipFree(memory);
}
