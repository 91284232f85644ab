/* An opened library of a device, and typed access to its functions. */
#ifndef BACKENDCFG_DEVICE_LIBRARY_H
#define BACKENDCFG_DEVICE_LIBRARY_H

#include "backendcfg_device.h"
#include "core/core.h"
#include "gpu/abi_cublas.h"
#include "gpu/abi_cublaslt.h"
#include "gpu/abi_cuda.h"
#include "gpu/abi_hip.h"
#include "gpu/abi_hipblas.h"
#include "gpu/abi_hipblaslt.h"

struct bcfg_device_library {
    int32_t kind;
    int64_t version;                               /* 10000 * major + 100 * minor + patch */
    char *path;
    void *table;                                   /* bcfg_<kind>_table */
    const struct bcfg_device_library *_Atomic next; /* in the list of all, oldest first */
};

/* The tables, each for a library of its kind. `bcfg_cublas(library)->cublasCreate_v2(...)` */
#define ACCESS(kind)                                                                             \
    static inline const bcfg_##kind##_table *bcfg_##kind(const bcfg_device_library *library) {     \
        return library->table;                                                                     \
    }
ACCESS(cuda)
ACCESS(cublas)
ACCESS(cublaslt)
ACCESS(hip)
ACCESS(hipblas)
ACCESS(hipblaslt)
#undef ACCESS

/* soname.c: what a loaded library calls itself, by its handle; NULL when it says nothing. */
const char *bcfg_soname_of(void *handle);

#endif
