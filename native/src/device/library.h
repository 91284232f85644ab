/* An opened library of a device, and typed access to its functions. */
#ifndef BACKENDCFG_DEVICE_LIBRARY_H
#define BACKENDCFG_DEVICE_LIBRARY_H

#include "backendcfg_device.h"
#include "core/core.h"
#include "device/abi_cublas.h"
#include "device/abi_cublaslt.h"
#include "device/abi_cuda.h"
#include "device/abi_cudnn.h"
#include "device/abi_hip.h"
#include "device/abi_hipblas.h"
#include "device/abi_hipblaslt.h"

struct bcfg_device_library {
    int32_t kind;
    int64_t version;                               /* 10000 * major + 100 * minor + patch */
    char *path;
    void *table;                                   /* bcfg_<kind>_table */
    const struct bcfg_device_library *_Atomic next; /* in the list of all, oldest first */
};

/* The tables, each for a library of its kind. `bcfg_cublas(library)->cublasCreate_v2(...)` */
static inline const bcfg_cuda_table *bcfg_cuda(const bcfg_device_library *library) {
    return library->table;
}
static inline const bcfg_cublas_table *bcfg_cublas(const bcfg_device_library *library) {
    return library->table;
}
static inline const bcfg_cublaslt_table *bcfg_cublaslt(const bcfg_device_library *library) {
    return library->table;
}
static inline const bcfg_hip_table *bcfg_hip(const bcfg_device_library *library) {
    return library->table;
}
static inline const bcfg_hipblas_table *bcfg_hipblas(const bcfg_device_library *library) {
    return library->table;
}
static inline const bcfg_hipblaslt_table *bcfg_hipblaslt(const bcfg_device_library *library) {
    return library->table;
}
static inline const bcfg_cudnn_table *bcfg_cudnn(const bcfg_device_library *library) {
    return library->table;
}

/* soname.c: what a loaded library calls itself, by its handle; NULL when it says nothing. */
const char *bcfg_soname_of(void *handle);

#endif
