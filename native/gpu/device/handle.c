/* All handles of the process. A call borrows one and returns it. */
#include "gpu/device/handle.h"

#include <stdlib.h>

/* Under the lock. */
static bcfg_handle *all;
static uint64_t clock_of_use;

static const bcfg_vendor *const vendors[BCFG_DEVICE_KINDS] = {
    [BCFG_CUBLAS] = &bcfg_blas_vendor,
    [BCFG_CUBLASLT] = &bcfg_lt_vendor,
    [BCFG_HIPBLAS] = &bcfg_blas_vendor,
    [BCFG_HIPBLASLT] = &bcfg_lt_vendor,
};

bcfg_outcome bcfg_library_fault(const bcfg_device_library *library, const char *function,
                                int status, bcfg_fault *fault) {
    const char *name = vendors[library->kind]->name_of(library, status);
    *fault = (bcfg_fault){function, status, name != NULL ? name : ""};
    return BCFG_DEVICE_FAULT;
}

static bcfg_handle *find(const bcfg_device_library *library, int32_t index, const void *stream) {
    bcfg_lock();
    bcfg_handle *at = all;
    while (at != NULL && (at->busy || at->library != library || at->index != index ||
                          at->stream != stream))
        at = at->next;
    if (at != NULL) at->busy = true;
    bcfg_unlock();
    return at;
}

static void keep(bcfg_handle *handle) {
    bcfg_lock();
    handle->captured = true;
    bcfg_unlock();
    handle->workspace_captured = true; /* until it gets another workspace */
}

/* Removes the least recently used idle handle from the list; NULL while few enough are idle. */
static bcfg_handle *spare(const bcfg_device_library *library, int32_t index) {
    bcfg_lock();
    int idle = 0;
    bcfg_handle **oldest = NULL, *found = NULL;
    for (bcfg_handle **at = &all; *at != NULL; at = &(*at)->next) {
        const bcfg_handle *one = *at;
        if (one->busy || one->captured || one->library != library || one->index != index) continue;
        idle++;
        if (oldest == NULL || one->used < (*oldest)->used) oldest = at;
    }
    if (idle >= BCFG_IDLE_HANDLES) {
        found = *oldest;
        *oldest = found->next;
    }
    bcfg_unlock();
    return found;
}

void bcfg_workspace_return(const bcfg_device_library *driver, void *memory, void *holder,
                           void (*release)(void *)) {
    if (release != NULL)
        release(holder);
    else if (memory != NULL)
        bcfg_place_free(driver, memory);
}

/* The library's handle goes first, because it uses the workspace. */
static void discard(bcfg_handle *old) {
    vendors[old->library->kind]->destroy(old);
    bcfg_workspace_return(old->driver, old->workspace, old->holder, old->release);
    free(old);
}

bcfg_outcome bcfg_handle_take(const bcfg_device_library *library, const bcfg_device_library *driver,
                              int32_t index, void *stream, bcfg_handle **taken, bcfg_fault *fault) {
    *taken = find(library, index, stream);
    if (*taken != NULL) {
        if (!(*taken)->workspace_captured && bcfg_place_captures(driver, stream)) keep(*taken);
        return BCFG_DEVICE_OK;
    }
    bcfg_handle *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return BCFG_DEVICE_MEMORY;
    fresh->library = library;
    fresh->driver = driver;
    fresh->index = index;
    fresh->stream = stream;
    fresh->busy = true;
    fresh->math_mode = fresh->atomics = -1;
    fresh->captured = fresh->workspace_captured = bcfg_place_captures(driver, stream);
    /* Destroying a handle waits for the device, which would break a capture. */
    for (bcfg_handle *old; !fresh->captured && (old = spare(library, index)) != NULL;) discard(old);
    const char *function = "";
    int status = vendors[library->kind]->create(library, stream, &fresh->handle, &function);
    if (status != 0) {
        free(fresh);
        return bcfg_library_fault(library, function, status, fault);
    }
    bcfg_lock();
    fresh->next = all;
    all = fresh;
    bcfg_unlock();
    *taken = fresh;
    return BCFG_DEVICE_OK;
}

void bcfg_handle_give(bcfg_handle *handle) {
    bcfg_lock();
    handle->busy = false;
    handle->used = ++clock_of_use;
    bcfg_unlock();
}
