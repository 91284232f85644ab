/* A handle of a library of products for the time of one call, with a workspace, and set as the recipe
 * says. The workspace stays with the handle, and so with its stream. */
#ifndef BACKENDCFG_DEVICE_LEASE_H
#define BACKENDCFG_DEVICE_LEASE_H

#include "gpu/device/handle.h"
#include "gpu/products/recipe.h"

/* Where workspaces come from. `get` returns false when there is no memory; `release` gives back
 * what it put into *holder. A `get` of NULL leaves it to the driver. */
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

/* Enters the device and takes a handle. Only the first call of a stream gets a workspace. Waits as
 * bcfg_handle_take does. On success bcfg_lease_end must follow, on the same thread. */
bcfg_outcome bcfg_lease_begin(const bcfg_recipe *recipe, int32_t index, void *stream,
                              const bcfg_allocator *allocator, bcfg_lease *lease,
                              bcfg_fault *fault);
void bcfg_lease_end(bcfg_lease *lease);

#endif
