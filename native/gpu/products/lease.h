/* Borrows the handle of a library of products for one call, with a workspace and with the modes
 * that the recipe asks for. The workspace stays with the handle, and so with its stream. */
#ifndef BACKENDCFG_DEVICE_LEASE_H
#define BACKENDCFG_DEVICE_LEASE_H

#include "gpu/device/handle.h"
#include "gpu/products/recipe.h"

/* Where workspaces come from. `get` returns false when there is no memory; `release` frees what
 * `get` put into *holder. Where `get` is NULL the driver allocates. */
typedef struct {
    bool (*get)(void *context, int64_t bytes, void **memory, void **holder);
    void (*release)(void *holder);
    void *context;
} bcfg_allocator;

typedef struct {
    const bcfg_recipe *recipe;
    bcfg_handle *handle;
    bcfg_visit visit;
} bcfg_lease;

/* Makes the device current and borrows a handle. Only the first call on a stream allocates a
 * workspace. Waits as bcfg_handle_take does. On success bcfg_lease_end must follow, on the same
 * thread. */
bcfg_outcome bcfg_lease_begin(const bcfg_recipe *recipe, int32_t index, void *stream,
                              const bcfg_allocator *allocator, bcfg_lease *lease,
                              bcfg_fault *fault);
void bcfg_lease_end(bcfg_lease *lease);

#endif
