/* The primary contexts of devices, each retained once and kept. */
#include "device/place.h"

#include <pthread.h>
#include <stdlib.h>

/* Oldest first; appended to under the lock. */
typedef struct place {
    const bcfg_device_library *driver;
    int32_t index;
    void *context;
    struct place *_Atomic next;
} place;

static place *_Atomic first;
static _Atomic bool forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* No driver survives a fork: its state is there, its connection to the device is not. */
static void after_fork(void) {
    if (atomic_load(&first) != NULL) atomic_store(&forked, true);
}
static void watch_fork(void) { (void)pthread_atfork(NULL, NULL, after_fork); }

bcfg_outcome bcfg_driver_fault(const bcfg_device_library *driver, const char *function, int status,
                               bcfg_fault *fault) {
    const char *name = NULL;
    (void)bcfg_cuda(driver)->cuGetErrorName(status, &name);
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

static bcfg_outcome make(const bcfg_device_library *driver, int32_t index, place **made,
                         bcfg_fault *fault) {
    const bcfg_cuda_table *cuda = bcfg_cuda(driver);
    void *context = NULL;
    int device = 0, status;
    (void)pthread_once(&once, watch_fork);
    if ((status = cuda->cuInit(0)) != BCFG_CUDA_SUCCESS)
        return bcfg_driver_fault(driver, "cuInit", status, fault);
    if ((status = cuda->cuDeviceGet(&device, index)) != BCFG_CUDA_SUCCESS)
        return bcfg_driver_fault(driver, "cuDeviceGet", status, fault);
    if ((status = cuda->cuDevicePrimaryCtxRetain(&context, device)) != BCFG_CUDA_SUCCESS)
        return bcfg_driver_fault(driver, "cuDevicePrimaryCtxRetain", status, fault);
    place *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        (void)cuda->cuDevicePrimaryCtxRelease_v2(device);
        return BCFG_DEVICE_MEMORY;
    }
    fresh->driver = driver;
    fresh->index = index;
    fresh->context = context;
    bcfg_lock();
    *made = find(driver, index); /* another thread may have been faster; the context is the same */
    if (*made == NULL) append(*made = fresh);
    bcfg_unlock();
    if (*made != fresh) {
        (void)cuda->cuDevicePrimaryCtxRelease_v2(device);
        free(fresh);
    }
    return BCFG_DEVICE_OK;
}

bcfg_outcome bcfg_place_enter(const bcfg_device_library *driver, int32_t index, bool *pushed,
                              bcfg_fault *fault) {
    const bcfg_cuda_table *cuda = bcfg_cuda(driver);
    void *current = NULL;
    int status;
    *pushed = false;
    if (atomic_load_explicit(&forked, memory_order_relaxed)) return BCFG_DEVICE_FORKED;
    place *at = find(driver, index);
    if (at == NULL) {
        bcfg_outcome outcome = make(driver, index, &at, fault);
        if (outcome != BCFG_DEVICE_OK) return outcome;
    }
    if ((status = cuda->cuCtxGetCurrent(&current)) != BCFG_CUDA_SUCCESS)
        return bcfg_driver_fault(driver, "cuCtxGetCurrent", status, fault);
    if (current == at->context) return BCFG_DEVICE_OK;
    if ((status = cuda->cuCtxPushCurrent_v2(at->context)) != BCFG_CUDA_SUCCESS)
        return bcfg_driver_fault(driver, "cuCtxPushCurrent", status, fault);
    *pushed = true;
    return BCFG_DEVICE_OK;
}

void bcfg_place_leave(const bcfg_device_library *driver, bool pushed) {
    void *ignored;
    if (pushed) (void)bcfg_cuda(driver)->cuCtxPopCurrent_v2(&ignored);
}

bcfg_outcome bcfg_place_order(const bcfg_device_library *driver, void *before, void *after,
                              bcfg_fault *fault) {
    const bcfg_cuda_table *cuda = bcfg_cuda(driver);
    void *event = NULL;
    const char *function = "cuEventCreate";
    int status = cuda->cuEventCreate(&event, BCFG_CU_EVENT_DISABLE_TIMING);
    if (status == BCFG_CUDA_SUCCESS) {
        function = "cuEventRecord";
        status = cuda->cuEventRecord(event, before);
        if (status == BCFG_CUDA_SUCCESS) {
            function = "cuStreamWaitEvent";
            status = cuda->cuStreamWaitEvent(after, event, 0);
        }
        (void)cuda->cuEventDestroy_v2(event); /* the driver frees it once it has happened */
    }
    if (status == BCFG_CUDA_SUCCESS) return BCFG_DEVICE_OK;
    return bcfg_driver_fault(driver, function, status, fault);
}

bcfg_outcome bcfg_place_settle(const bcfg_device_library *driver, void *stream, bcfg_fault *fault) {
    int status = bcfg_cuda(driver)->cuStreamSynchronize(stream);
    if (status == BCFG_CUDA_SUCCESS) return BCFG_DEVICE_OK;
    return bcfg_driver_fault(driver, "cuStreamSynchronize", status, fault);
}
