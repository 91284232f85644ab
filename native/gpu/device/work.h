/* One call on a device: between bcfg_work_begin and bcfg_work_end the device is current, the
 * streams are ordered and the library's handle is borrowed. */
#ifndef BACKENDCFG_DEVICE_WORK_H
#define BACKENDCFG_DEVICE_WORK_H

#include "gpu/device/handle.h"

typedef struct {
    const bcfg_device_library *library; /* whose handle is borrowed; NULL for none */
    const bcfg_device_library *driver;
    int32_t index;                      /* of the device */
    bool synchronizes;                  /* the host waits until it is done */
    void *stream;                       /* that the work is put on */
    void *const *others;                /* streams whose work it must wait for, and they for it */
    int other_count;
} bcfg_work;

typedef struct {
    const bcfg_work *work;
    bcfg_handle *handle;                /* NULL where no library was named */
    bcfg_visit visit;
} bcfg_session;

/* Makes the device current, makes the stream wait for the others, and borrows the handle. On
 * success bcfg_work_end must follow, on the same thread; on failure all is as before. */
bcfg_outcome bcfg_work_begin(const bcfg_work *work, bcfg_session *session, bcfg_fault *fault);

/* Makes the other streams wait for this one, synchronizes if asked, returns the handle and restores
 * the current device. Returns `outcome`, of the work in between, or what failed here. */
bcfg_outcome bcfg_work_end(bcfg_session *session, bcfg_outcome outcome, bcfg_fault *fault);

/* The order of streams alone, for a call that has made the device current itself. */
bcfg_outcome bcfg_work_gather(const bcfg_work *work, bcfg_fault *fault);
bcfg_outcome bcfg_work_scatter(const bcfg_work *work, bcfg_outcome outcome, bcfg_fault *fault);

#endif
