/* Products by cuBLAS. */
#include "gpu/libraries/backend.h"

static const char *name_of(const bcfg_device_library *library, int status) {
    return bcfg_cublas(library)->cublasGetStatusName(status);
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    const bcfg_cublas_table *cublas = bcfg_cublas(library);
    *function = "cublasCreate";
    int status = cublas->cublasCreate_v2(handle);
    if (status != BCFG_CUBLAS_STATUS_SUCCESS) return status;
    *function = "cublasSetStream";
    status = cublas->cublasSetStream_v2(*handle, stream);
    if (status != BCFG_CUBLAS_STATUS_SUCCESS) (void)cublas->cublasDestroy_v2(*handle);
    return status;
}

static void destroy(const bcfg_handle *handle) {
    (void)bcfg_cublas(handle->library)->cublasDestroy_v2(handle->handle);
}

static bool borrows(const bcfg_device_library *library) {
    (void)library;
    return true;
}

static int lend(const bcfg_handle *handle, void *memory, size_t bytes, const char **function) {
    *function = "cublasSetWorkspace";
    return bcfg_cublas(handle->library)->cublasSetWorkspace_v2(handle->handle, memory, bytes);
}

static int set(bcfg_handle *handle, const bcfg_recipe *recipe, const char **function) {
    const bcfg_cublas_table *cublas = bcfg_cublas(handle->library);
    int status = BCFG_CUBLAS_STATUS_SUCCESS;
    if (handle->math_mode != recipe->is.math_mode) {
        *function = "cublasSetMathMode";
        status = cublas->cublasSetMathMode(handle->handle, recipe->is.math_mode);
        if (status != BCFG_CUBLAS_STATUS_SUCCESS) return status;
        handle->math_mode = recipe->is.math_mode;
    }
    if (handle->atomics != recipe->is.atomics) {
        *function = "cublasSetAtomicsMode";
        status = cublas->cublasSetAtomicsMode(handle->handle, recipe->is.atomics);
        if (status == BCFG_CUBLAS_STATUS_SUCCESS) handle->atomics = recipe->is.atomics;
    }
    return status;
}

static int multiply(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                    const void *beta, const char **function) {
    const bcfg_recipe_content *is = &lease->recipe->is;
    const bcfg_cublas_table *cublas = bcfg_cublas(is->library);
    int transpose_a = call->transpose_a ? BCFG_CUBLAS_OP_T : BCFG_CUBLAS_OP_N;
    int transpose_b = call->transpose_b ? BCFG_CUBLAS_OP_T : BCFG_CUBLAS_OP_N;
    if (call->batch == 1) {
        *function = "cublasGemmEx";
        return cublas->cublasGemmEx_64(
            lease->handle->handle, transpose_a, transpose_b, call->m, call->n, call->k, alpha,
            call->a, is->data_type, call->a_leading, call->b, is->data_type, call->b_leading, beta,
            call->c, is->data_type, call->c_leading, is->compute_type, is->algorithm);
    }
    *function = "cublasGemmStridedBatchedEx";
    return cublas->cublasGemmStridedBatchedEx_64(
        lease->handle->handle, transpose_a, transpose_b, call->m, call->n, call->k, alpha, call->a,
        is->data_type, call->a_leading, call->a_stride, call->b, is->data_type, call->b_leading,
        call->b_stride, beta, call->c, is->data_type, call->c_leading, call->c_stride, call->batch,
        is->compute_type, is->algorithm);
}

const bcfg_vendor bcfg_cublas_vendor = {name_of, create, destroy};
const bcfg_backend bcfg_cublas_backend = {borrows, lend, set, multiply, 0};
