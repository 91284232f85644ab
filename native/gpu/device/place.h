/* Makes a device current for one call, and restores what was current before, so that a framework
 * never sees a changed device. */
#ifndef BACKENDCFG_DEVICE_PLACE_H
#define BACKENDCFG_DEVICE_PLACE_H

#include "gpu/device/library.h"

/* A failed call of a device's library: which function, and its status. */
typedef struct {
    const char *function;
    int status;
    const char *name;                  /* of the status, static; "" where the library has none */
} bcfg_fault;

typedef enum {
    BCFG_DEVICE_OK = 0,
    BCFG_DEVICE_MEMORY,                /* the host's memory */
    BCFG_DEVICE_FORKED,                /* a parent of this process used the device before the fork */
    BCFG_DEVICE_FAULT,                 /* see the bcfg_fault */
    BCFG_DEVICE_UNSUPPORTED            /* see the bcfg_fault; the library has no algorithm for the call */
} bcfg_outcome;

/* What was current before a call, if that was another device. */
typedef struct {
    bool changed;
    int before;                        /* HIP's device; CUDA keeps a stack itself */
} bcfg_visit;

/* Makes device `index` current. After success bcfg_place_leave must follow, on the same thread. */
bcfg_outcome bcfg_place_enter(const bcfg_device_library *driver, int32_t index, bcfg_visit *visit,
                              bcfg_fault *fault);
void bcfg_place_leave(const bcfg_device_library *driver, const bcfg_visit *visit);

/* The following need the device to be current. */

/* Makes later work on the stream `after` wait for the work now on `before`. */
bcfg_outcome bcfg_place_order(const bcfg_device_library *driver, void *before, void *after,
                              bcfg_fault *fault);
/* Waits until all work on a stream is done. */
bcfg_outcome bcfg_place_synchronize(const bcfg_device_library *driver, void *stream, bcfg_fault *fault);
/* Whether a stream is being captured into a graph; true also where the driver does not say. */
bool bcfg_place_captures(const bcfg_device_library *driver, void *stream);
/* Sets bytes to zero, in order on a stream. */
bcfg_outcome bcfg_place_clear(const bcfg_device_library *driver, void *memory, size_t bytes,
                              void *stream, bcfg_fault *fault);
/* Memory of the driver's own. Giving it back waits for the device. */
bcfg_outcome bcfg_place_allocate(const bcfg_device_library *driver, size_t bytes, void **memory,
                                 bcfg_fault *fault);
void bcfg_place_free(const bcfg_device_library *driver, void *memory);

#endif
