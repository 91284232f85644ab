/* Where a call happens: a device's primary context, made current for the call and then taken back,
 * so that nothing is left for the framework to stumble over. */
#ifndef BACKENDCFG_DEVICE_PLACE_H
#define BACKENDCFG_DEVICE_PLACE_H

#include "device/library.h"

/* What a failing call of a device's library left: which function, and its status. */
typedef struct {
    const char *function;
    int status;
    const char *name;                  /* of the status, static; "" where the library has none */
} bcfg_fault;

typedef enum {
    BCFG_DEVICE_OK = 0,
    BCFG_DEVICE_MEMORY,                /* the host's memory */
    BCFG_DEVICE_FORKED,                /* the parent of this process had used the device */
    BCFG_DEVICE_FAULT                  /* see the bcfg_fault */
} bcfg_outcome;

/* Makes the primary context of device `index` current. *pushed says whether it was not: then
 * bcfg_place_leave takes it back. */
bcfg_outcome bcfg_place_enter(const bcfg_device_library *driver, int32_t index, bool *pushed,
                              bcfg_fault *fault);
void bcfg_place_leave(const bcfg_device_library *driver, bool pushed);

/* Makes what comes on one stream wait for what is on another. */
bcfg_outcome bcfg_place_order(const bcfg_device_library *driver, void *before, void *after,
                              bcfg_fault *fault);
/* Waits until all that is on a stream is done. */
bcfg_outcome bcfg_place_settle(const bcfg_device_library *driver, void *stream, bcfg_fault *fault);

/* Fills in a fault of the driver and returns BCFG_DEVICE_FAULT. */
bcfg_outcome bcfg_driver_fault(const bcfg_device_library *driver, const char *function, int status,
                               bcfg_fault *fault);

#endif
