/* What a library of products implements besides a bcfg_vendor: blas.c and lt.c. Each function
 * returns the library's status, 0 for success, and writes the name of the last function that it
 * called to *function. */
#ifndef BACKENDCFG_DEVICE_BACKEND_H
#define BACKENDCFG_DEVICE_BACKEND_H

#include "gpu/products/gemm.h"

typedef struct {
    /* Whether a handle can be given a workspace, and giving it one. NULL where each call passes its
     * workspace. */
    bool (*borrows)(const bcfg_device_library *library);
    int (*lend)(const bcfg_handle *handle, void *memory, size_t bytes, const char **function);
    /* Sets a handle's modes as a recipe says. NULL where there is nothing to set. */
    int (*set)(bcfg_handle *handle, const bcfg_recipe *recipe, const char **function);
    int (*multiply)(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                    const void *beta, const char **function);
    /* The status of a call that the library has no algorithm for; 0 where every call has one. Only
     * libraries with such a status can add a bias. */
    int unsupported;
} bcfg_backend;

extern const bcfg_backend bcfg_blas_backend, bcfg_cublaslt_backend, bcfg_hipblaslt_backend;

static inline const bcfg_backend *bcfg_backend_of(const bcfg_device_library *library) {
    switch (library->kind) {
    case BCFG_CUBLASLT: return &bcfg_cublaslt_backend;
    case BCFG_HIPBLASLT: return &bcfg_hipblaslt_backend;
    default: return &bcfg_blas_backend;
    }
}

#endif
