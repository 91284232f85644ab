/* The handles of the process, and lending them. */
#include "device/handle.h"

#include <stdlib.h>

static bcfg_handle *all; /* under the lock; never freed, because a stream may still use its memory */

static const bcfg_vendor *const vendors[BCFG_DEVICE_KINDS] = {
    [BCFG_CUBLAS] = &bcfg_cublas_vendor,
    [BCFG_CUBLASLT] = &bcfg_cublaslt_vendor,
    [BCFG_HIPBLAS] = &bcfg_hipblas_vendor,
    [BCFG_CUDNN] = &bcfg_cudnn_vendor,
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

bcfg_outcome bcfg_handle_take(const bcfg_device_library *library, const bcfg_device_library *driver,
                              int32_t index, void *stream, bcfg_handle **taken, bcfg_fault *fault) {
    *taken = find(library, index, stream);
    if (*taken != NULL) return BCFG_DEVICE_OK;
    bcfg_handle *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return BCFG_DEVICE_MEMORY;
    fresh->library = library;
    fresh->driver = driver;
    fresh->index = index;
    fresh->stream = stream;
    fresh->busy = true;
    fresh->math_mode = fresh->atomics = -1;
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
    bcfg_unlock();
}
