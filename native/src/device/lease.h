/* A handle of a library for the time of one call: bound to one device and one stream, with its
 * workspace, and set as the recipe says. A handle stays with its stream, because its workspace is
 * written by what was put on that stream before. */
#ifndef BACKENDCFG_DEVICE_LEASE_H
#define BACKENDCFG_DEVICE_LEASE_H

#include "device/place.h"
#include "device/recipe.h"

/* Where workspaces come from. `get` returns false when there is no memory; `release` gives back
 * what it put into *holder. A `get` of NULL leaves it to the driver. */
typedef struct {
    bool (*get)(void *context, int64_t bytes, void **memory, void **holder);
    void (*release)(void *holder);
    void *context;
} bcfg_allocator;

struct bcfg_plans; /* cublaslt.c */

typedef struct bcfg_handle {
    struct bcfg_handle *next;          /* in the list of all */
    const bcfg_device_library *library, *driver;
    int32_t index;                     /* of the device */
    void *stream;
    bool busy;                         /* under the lock */
    void *handle;                      /* the library's */
    int32_t math_mode, atomics;        /* what was last set */
    void *workspace, *holder;
    int64_t workspace_bytes;
    void (*release)(void *holder);
    struct bcfg_plans *plans;          /* cuBLASLt's */
} bcfg_handle;

typedef struct {
    const bcfg_recipe *recipe;
    bcfg_handle *handle;
    bcfg_visit visit;
} bcfg_lease;

/* Enters the device and takes a handle. Only the first call of a stream makes one: some
 * milliseconds, and its workspace. On success bcfg_lease_end must follow, on the same thread. */
bcfg_outcome bcfg_lease_begin(const bcfg_recipe *recipe, int32_t index, void *stream,
                              const bcfg_allocator *allocator, bcfg_lease *lease,
                              bcfg_fault *fault);
void bcfg_lease_end(bcfg_lease *lease);

/* Fills in a fault of the recipe's library and returns BCFG_DEVICE_FAULT. */
bcfg_outcome bcfg_library_fault(const bcfg_device_library *library, const char *function,
                                int status, bcfg_fault *fault);

#endif
