/* The handles of the process, and lending them. */
#include "device/lease.h"

#include <stdlib.h>

static bcfg_handle *all; /* under the lock; never freed, because a stream may still use its memory */

bcfg_outcome bcfg_library_fault(const bcfg_device_library *library, const char *function,
                                int status, bcfg_fault *fault) {
    const char *name = library->kind == BCFG_CUBLAS
                           ? bcfg_cublas(library)->cublasGetStatusName(status)
                           : bcfg_cublaslt(library)->cublasLtGetStatusName(status);
    *fault = (bcfg_fault){function, status, name != NULL ? name : ""};
    return BCFG_DEVICE_FAULT;
}

static bcfg_handle *take(const bcfg_recipe *recipe, int32_t index, const void *stream) {
    bcfg_lock();
    bcfg_handle *at = all;
    while (at != NULL && (at->busy || at->library != recipe->is.library || at->index != index ||
                          at->stream != stream))
        at = at->next;
    if (at != NULL) at->busy = true;
    bcfg_unlock();
    return at;
}

static bcfg_outcome make(const bcfg_recipe *recipe, int32_t index, void *stream, bcfg_handle **made,
                         bcfg_fault *fault) {
    const bcfg_device_library *library = recipe->is.library;
    bcfg_handle *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return BCFG_DEVICE_MEMORY;
    fresh->library = library;
    fresh->driver = recipe->is.driver;
    fresh->index = index;
    fresh->stream = stream;
    fresh->busy = true;
    fresh->math_mode = fresh->atomics = -1;
    const char *function = "cublasLtCreate";
    int status;
    if (library->kind == BCFG_CUBLAS) {
        const bcfg_cublas_table *cublas = bcfg_cublas(library);
        function = "cublasCreate";
        status = cublas->cublasCreate_v2(&fresh->handle);
        if (status == BCFG_CUBLAS_STATUS_SUCCESS) {
            function = "cublasSetStream";
            status = cublas->cublasSetStream_v2(fresh->handle, stream);
            if (status != BCFG_CUBLAS_STATUS_SUCCESS) (void)cublas->cublasDestroy_v2(fresh->handle);
        }
    } else {
        status = bcfg_cublaslt(library)->cublasLtCreate(&fresh->handle);
    }
    if (status != BCFG_CUBLAS_STATUS_SUCCESS) {
        free(fresh);
        return bcfg_library_fault(library, function, status, fault);
    }
    bcfg_lock();
    fresh->next = all;
    all = fresh;
    bcfg_unlock();
    *made = fresh;
    return BCFG_DEVICE_OK;
}

static void free_by_driver(void *holder) { (void)holder; }

/* Gets memory of the size that the recipe says. The old one is given back to who lent it: a
 * framework's allocator hands it out again in the order of the stream; the driver waits. */
static bcfg_outcome provide(bcfg_handle *handle, int64_t bytes, const bcfg_allocator *allocator,
                            bcfg_fault *fault) {
    const bcfg_cuda_table *cuda = bcfg_cuda(handle->driver);
    void *memory = NULL, *holder = NULL;
    void (*release)(void *) = free_by_driver;
    if (allocator != NULL && allocator->get != NULL) {
        release = allocator->release;
        if (!allocator->get(allocator->context, bytes, &memory, &holder))
            return bcfg_driver_fault(handle->driver, "workspace", BCFG_CUDA_ERROR_OUT_OF_MEMORY,
                                     fault);
    } else {
        uint64_t pointer = 0;
        int status = cuda->cuMemAlloc_v2(&pointer, (size_t)bytes);
        if (status != BCFG_CUDA_SUCCESS)
            return bcfg_driver_fault(handle->driver, "cuMemAlloc", status, fault);
        memory = (void *)(uintptr_t)pointer;
    }
    if (handle->library->kind == BCFG_CUBLAS) {
        int status = bcfg_cublas(handle->library)
                         ->cublasSetWorkspace_v2(handle->handle, memory, (size_t)bytes);
        if (status != BCFG_CUBLAS_STATUS_SUCCESS) {
            if (release == free_by_driver)
                (void)cuda->cuMemFree_v2((uint64_t)(uintptr_t)memory);
            else
                release(holder);
            return bcfg_library_fault(handle->library, "cublasSetWorkspace", status, fault);
        }
    }
    if (handle->release == free_by_driver)
        (void)cuda->cuMemFree_v2((uint64_t)(uintptr_t)handle->workspace);
    else if (handle->release != NULL)
        handle->release(handle->holder);
    handle->workspace = memory;
    handle->holder = holder;
    handle->release = release;
    handle->workspace_bytes = bytes;
    return BCFG_DEVICE_OK;
}

/* Brings a handle of cuBLAS to what the recipe says; most calls find it there. */
static bcfg_outcome set(bcfg_handle *handle, const bcfg_recipe *recipe, bcfg_fault *fault) {
    const bcfg_cublas_table *cublas = bcfg_cublas(handle->library);
    int status;
    if (handle->math_mode != recipe->is.math_mode) {
        status = cublas->cublasSetMathMode(handle->handle, recipe->is.math_mode);
        if (status != BCFG_CUBLAS_STATUS_SUCCESS)
            return bcfg_library_fault(handle->library, "cublasSetMathMode", status, fault);
        handle->math_mode = recipe->is.math_mode;
    }
    if (handle->atomics != recipe->is.atomics) {
        status = cublas->cublasSetAtomicsMode(handle->handle, recipe->is.atomics);
        if (status != BCFG_CUBLAS_STATUS_SUCCESS)
            return bcfg_library_fault(handle->library, "cublasSetAtomicsMode", status, fault);
        handle->atomics = recipe->is.atomics;
    }
    return BCFG_DEVICE_OK;
}

bcfg_outcome bcfg_lease_begin(const bcfg_recipe *recipe, int32_t index, void *stream,
                              const bcfg_allocator *allocator, bcfg_lease *lease,
                              bcfg_fault *fault) {
    lease->recipe = recipe;
    lease->handle = NULL;
    bcfg_outcome outcome = bcfg_place_enter(recipe->is.driver, index, &lease->pushed, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    lease->handle = take(recipe, index, stream);
    if (lease->handle == NULL) outcome = make(recipe, index, stream, &lease->handle, fault);
    if (outcome == BCFG_DEVICE_OK && lease->handle->workspace_bytes != recipe->is.workspace)
        outcome = provide(lease->handle, recipe->is.workspace, allocator, fault);
    if (outcome == BCFG_DEVICE_OK && lease->handle->library->kind == BCFG_CUBLAS)
        outcome = set(lease->handle, recipe, fault);
    if (outcome != BCFG_DEVICE_OK) bcfg_lease_end(lease);
    return outcome;
}

void bcfg_lease_end(bcfg_lease *lease) {
    if (lease->handle != NULL) {
        bcfg_lock();
        lease->handle->busy = false;
        bcfg_unlock();
    }
    bcfg_place_leave(lease->recipe->is.driver, lease->pushed);
}
