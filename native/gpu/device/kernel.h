/* Our own kernels: loading their code into a device's context and launching them. Only for NVIDIA. */
#ifndef BACKENDCFG_DEVICE_KERNEL_H
#define BACKENDCFG_DEVICE_KERNEL_H

#include "gpu/device/work.h"

/* A function on one device. It stays loaded: a stream may still run it. */
typedef struct {
    const bcfg_device_library *driver;
    int32_t index;                     /* of the device */
    void *function;
    uint32_t shared_bytes;             /* dynamic shared memory of a block */
} bcfg_kernel;

typedef struct {
    bcfg_work work;                    /* without a library, on the kernel's device */
    uint32_t grid, threads;            /* blocks, and threads of a block, along x */
    void *argument;                    /* the kernel's one argument, copied by the driver */
} bcfg_kernel_call;

/* Loads code, as cuModuleLoadData takes it, into the primary context of a device. The context that
 * was current is current again, whatever happens. */
bcfg_outcome bcfg_kernel_load(const bcfg_device_library *driver, int32_t index, const void *code,
                              const char *name, uint32_t shared_bytes, bcfg_kernel *made,
                              bcfg_fault *fault);

/* Launches a kernel on a stream. The context that was current is current again. */
bcfg_outcome bcfg_kernel_launch(const bcfg_kernel *kernel, const bcfg_kernel_call *call,
                                bcfg_fault *fault);

#endif
