/* What is put on a stream in one call: the device, the order of streams, and the handle of a library,
 * for the time between bcfg_work_begin and bcfg_work_end. */
#ifndef BACKENDCFG_DEVICE_WORK_H
#define BACKENDCFG_DEVICE_WORK_H

#include "gpu/device/handle.h"

typedef struct {
    const bcfg_device_library *library; /* whose handle is taken; NULL for none */
    const bcfg_device_library *driver;
    int32_t index;                      /* of the device */
    bool settles;                       /* wait until it is done */
    void *stream;                       /* that it is put on */
    void *const *others;                /* streams whose work it must wait for, and they for it */
    int other_count;
} bcfg_work;

typedef struct {
    const bcfg_work *work;
    bcfg_handle *handle;                /* NULL where no library was named */
    bcfg_visit visit;
} bcfg_session;

/* Makes the device current, the stream wait for the others, and takes the handle. On success
 * bcfg_work_end must follow, on the same thread; otherwise all is as it was. */
bcfg_outcome bcfg_work_begin(const bcfg_work *work, bcfg_session *session, bcfg_fault *fault);

/* Makes the others wait, waits if that is wanted, and takes everything back. Returns `outcome`, of
 * what was done in between, or what failed here. */
bcfg_outcome bcfg_work_end(bcfg_session *session, bcfg_outcome outcome, bcfg_fault *fault);

/* The order of streams alone, for a call that has made the device current itself. */
bcfg_outcome bcfg_work_gather(const bcfg_work *work, bcfg_fault *fault);
bcfg_outcome bcfg_work_scatter(const bcfg_work *work, bcfg_outcome outcome, bcfg_fault *fault);

#endif
