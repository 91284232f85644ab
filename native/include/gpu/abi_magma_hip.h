/* abi_magma_hip.h - what only a build of MAGMA for HIP has. See abi_magma.h. */
#ifndef BACKENDCFG_DEVICE_ABI_MAGMA_HIP_H
#define BACKENDCFG_DEVICE_ABI_MAGMA_HIP_H

#include "gpu/abi_magma.h"

#define BCFG_MAGMA_HIP_SYMBOLS(REQUIRED)                                                           \
    REQUIRED(void, magma_queue_create_from_hip_internal,                                           \
             (int device, void *stream, void *hipblas, void *hipsparse, void **queue,              \
              const char *function, const char *file, int line))                                   \
    REQUIRED(void *, magma_queue_get_hipblas_handle, (void *queue))

/* Begins as bcfg_magma_table does. */
typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_MAGMA_SYMBOLS(MEMBER)
    BCFG_MAGMA_HIP_SYMBOLS(MEMBER)
#undef MEMBER
} bcfg_magma_hip_table;

#endif
