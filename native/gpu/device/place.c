/* The devices that this process computes on, each started once and kept. */
#include "gpu/device/place_calls.h"

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

/* No driver survives a fork: its state is there, its connection to the device is not. */
static void after_fork(void) {
    if (atomic_load(&first) != NULL) atomic_store(&forked, true);
}
static void watch_fork(void) { (void)pthread_atfork(NULL, NULL, after_fork); }

static const bcfg_place_calls *calls_of(const bcfg_device_library *driver) {
    return driver->kind == BCFG_CUDA ? &bcfg_cuda_calls : &bcfg_hip_calls;
}

static bcfg_outcome said(const bcfg_device_library *driver, const char *function, int status,
                         bcfg_fault *fault) {
    if (status == 0) return BCFG_DEVICE_OK;
    const char *name = calls_of(driver)->name_of(driver, status);
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
    const char *function = "";
    (void)pthread_once(&once, watch_fork);
    place *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return BCFG_DEVICE_MEMORY;
    fresh->driver = driver;
    fresh->index = index;
    int status = calls_of(driver)->start(driver, index, &fresh->context, &function);
    if (status != 0) {
        free(fresh);
        return said(driver, function, status, fault);
    }
    bcfg_lock();
    /* Another thread may have been faster; the context is the same, and retained once more. */
    *made = find(driver, index);
    if (*made == NULL) append(*made = fresh);
    bcfg_unlock();
    if (*made != fresh) free(fresh);
    return BCFG_DEVICE_OK;
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
    int status = calls_of(driver)->enter(driver, index, at->context, visit, &function);
    return said(driver, function, status, fault);
}

void bcfg_place_leave(const bcfg_device_library *driver, const bcfg_visit *visit) {
    if (visit->changed) calls_of(driver)->leave(driver, visit);
}

bcfg_outcome bcfg_place_order(const bcfg_device_library *driver, void *before, void *after,
                              bcfg_fault *fault) {
    const char *function = "";
    int status = calls_of(driver)->order(driver, before, after, &function);
    return said(driver, function, status, fault);
}

bcfg_outcome bcfg_place_settle(const bcfg_device_library *driver, void *stream, bcfg_fault *fault) {
    const char *function = "";
    int status = calls_of(driver)->settle(driver, stream, &function);
    return said(driver, function, status, fault);
}

bool bcfg_place_captures(const bcfg_device_library *driver, void *stream) {
    return calls_of(driver)->captures(driver, stream);
}

bcfg_outcome bcfg_place_clear(const bcfg_device_library *driver, void *memory, size_t bytes,
                              void *stream, bcfg_fault *fault) {
    const char *function = "";
    int status = calls_of(driver)->clear(driver, memory, bytes, stream, &function);
    return said(driver, function, status, fault);
}

bcfg_outcome bcfg_place_allocate(const bcfg_device_library *driver, size_t bytes, void **memory,
                                 bcfg_fault *fault) {
    const char *function = "";
    int status = calls_of(driver)->allocate(driver, bytes, memory, &function);
    return said(driver, function, status, fault);
}

void bcfg_place_free(const bcfg_device_library *driver, void *memory) {
    calls_of(driver)->give_back(driver, memory);
}
