/* Handles with a workspace, set as a recipe says. */
#include "gpu/libraries/backend.h"

/* Gives the handle a workspace of the size that the recipe asks for. */
static bcfg_outcome provide(bcfg_handle *handle, int64_t bytes, const bcfg_allocator *allocator,
                            bcfg_fault *fault) {
    const bcfg_backend *backend = bcfg_backend_of(handle->library);
    void *memory = NULL, *holder = NULL;
    void (*release)(void *) = NULL;
    if (backend->borrows != NULL && !backend->borrows(handle->library)) {
        handle->workspace_bytes = bytes; /* the library allocates by itself */
        return BCFG_DEVICE_OK;
    }
    if (allocator != NULL && allocator->get != NULL) {
        release = allocator->release;
        if (!allocator->get(allocator->context, bytes, &memory, &holder)) {
            *fault = (bcfg_fault){"the allocator of its workspace", 2, "OUT_OF_MEMORY"};
            return BCFG_DEVICE_FAULT;
        }
    } else {
        bcfg_outcome outcome = bcfg_place_allocate(handle->driver, (size_t)bytes, &memory, fault);
        if (outcome != BCFG_DEVICE_OK) return outcome;
    }
    const char *function = "";
    int status = backend->lend == NULL ? 0
                                       : backend->lend(handle, memory, (size_t)bytes, &function);
    if (status != 0) {
        bcfg_workspace_return(handle->driver, memory, holder, release);
        return bcfg_library_fault(handle->library, function, status, fault);
    }
    /* A captured graph keeps writing into the workspace that it was captured with. */
    if (!handle->workspace_captured)
        bcfg_workspace_return(handle->driver, handle->workspace, handle->holder, handle->release);
    if (handle->workspace != NULL && handle->workspace_captured)
        handle->workspace_captured = bcfg_place_captures(handle->driver, handle->stream);
    handle->workspace = memory;
    handle->holder = holder;
    handle->release = release;
    handle->workspace_bytes = bytes;
    return BCFG_DEVICE_OK;
}

bcfg_outcome bcfg_lease_begin(const bcfg_recipe *recipe, int32_t index, void *stream,
                              const bcfg_allocator *allocator, bcfg_lease *lease,
                              bcfg_fault *fault) {
    lease->recipe = recipe;
    lease->handle = NULL;
    bcfg_outcome outcome = bcfg_place_enter(recipe->is.driver, index, &lease->visit, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    outcome = bcfg_handle_take(recipe->is.library, recipe->is.driver, index, stream,
                               &lease->handle, fault);
    if (outcome == BCFG_DEVICE_OK && lease->handle->workspace_bytes != recipe->is.workspace)
        outcome = provide(lease->handle, recipe->is.workspace, allocator, fault);
    if (outcome == BCFG_DEVICE_OK && bcfg_backend_of(recipe->is.library)->set != NULL) {
        const char *function = "";
        int status = bcfg_backend_of(recipe->is.library)->set(lease->handle, recipe, &function);
        if (status != 0) outcome = bcfg_library_fault(recipe->is.library, function, status, fault);
    }
    if (outcome != BCFG_DEVICE_OK) bcfg_lease_end(lease);
    return outcome;
}

void bcfg_lease_end(bcfg_lease *lease) {
    if (lease->handle != NULL) bcfg_handle_give(lease->handle);
    bcfg_place_leave(lease->recipe->is.driver, &lease->visit);
}
