/* What a library of products is asked besides: cublas.c, cublaslt.c, hipblas.c. Each function returns the
 * library's status, 0 for success, and leaves the name of what it called last in *function. */
#ifndef BACKENDCFG_DEVICE_BACKEND_H
#define BACKENDCFG_DEVICE_BACKEND_H

#include "device/gemm.h"

typedef struct {
    /* Whether workspaces can be lent, and lending one. NULL where each call takes its own. */
    bool (*borrows)(const bcfg_device_library *library);
    int (*lend)(const bcfg_handle *handle, void *memory, size_t bytes, const char **function);
    /* Brings a handle to what a recipe says. NULL where there is nothing to set. */
    int (*set)(bcfg_handle *handle, const bcfg_recipe *recipe, const char **function);
    int (*multiply)(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                    const void *beta, const char **function);
} bcfg_backend;

extern const bcfg_backend bcfg_cublas_backend, bcfg_cublaslt_backend, bcfg_hipblas_backend;

static inline const bcfg_backend *bcfg_backend_of(const bcfg_device_library *library) {
    switch (library->kind) {
    case BCFG_CUBLAS: return &bcfg_cublas_backend;
    case BCFG_CUBLASLT: return &bcfg_cublaslt_backend;
    default: return &bcfg_hipblas_backend;
    }
}

#endif
