/* Products by hipBLAS. */
#include "gpu/libraries/backend.h"

static const char *name_of(const bcfg_device_library *library, int status) {
    return bcfg_hipblas(library)->hipblasStatusToString(status);
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    const bcfg_hipblas_table *hipblas = bcfg_hipblas(library);
    *function = "hipblasCreate";
    int status = hipblas->hipblasCreate(handle);
    if (status != BCFG_HIPBLAS_STATUS_SUCCESS) return status;
    *function = "hipblasSetStream";
    status = hipblas->hipblasSetStream(*handle, stream);
    if (status != BCFG_HIPBLAS_STATUS_SUCCESS) (void)hipblas->hipblasDestroy(*handle);
    return status;
}

static void destroy(const bcfg_handle *handle) {
    (void)bcfg_hipblas(handle->library)->hipblasDestroy(handle->handle);
}

/* Before version 3 it has memory of its own, which no call can change. */
static bool borrows(const bcfg_device_library *library) {
    return bcfg_hipblas(library)->hipblasSetWorkspace != NULL;
}

static int lend(const bcfg_handle *handle, void *memory, size_t bytes, const char **function) {
    *function = "hipblasSetWorkspace";
    return bcfg_hipblas(handle->library)->hipblasSetWorkspace(handle->handle, memory, bytes);
}

static int set(bcfg_handle *handle, const bcfg_recipe *recipe, const char **function) {
    const bcfg_hipblas_table *hipblas = bcfg_hipblas(handle->library);
    int status = BCFG_HIPBLAS_STATUS_SUCCESS;
    if (handle->math_mode != recipe->is.math_mode) {
        *function = "hipblasSetMathMode";
        status = hipblas->hipblasSetMathMode(handle->handle, recipe->is.math_mode);
        if (status != BCFG_HIPBLAS_STATUS_SUCCESS) return status;
        handle->math_mode = recipe->is.math_mode;
    }
    if (handle->atomics != recipe->is.atomics) {
        *function = "hipblasSetAtomicsMode";
        status = hipblas->hipblasSetAtomicsMode(handle->handle, recipe->is.atomics);
        if (status == BCFG_HIPBLAS_STATUS_SUCCESS) handle->atomics = recipe->is.atomics;
    }
    return status;
}

static int multiply(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                    const void *beta, const char **function) {
    const bcfg_recipe_content *is = &lease->recipe->is;
    const bcfg_hipblas_table *hipblas = bcfg_hipblas(is->library);
    int transpose_a = call->transpose_a ? BCFG_HIPBLAS_OP_T : BCFG_HIPBLAS_OP_N;
    int transpose_b = call->transpose_b ? BCFG_HIPBLAS_OP_T : BCFG_HIPBLAS_OP_N;
    if (call->batch == 1) {
        *function = "hipblasGemmEx";
        return hipblas->hipblasGemmEx_64(
            lease->handle->handle, transpose_a, transpose_b, call->m, call->n, call->k, alpha,
            call->a, is->data_type, call->a_leading, call->b, is->data_type, call->b_leading, beta,
            call->c, is->data_type, call->c_leading, is->compute_type, is->algorithm);
    }
    *function = "hipblasGemmStridedBatchedEx";
    return hipblas->hipblasGemmStridedBatchedEx_64(
        lease->handle->handle, transpose_a, transpose_b, call->m, call->n, call->k, alpha, call->a,
        is->data_type, call->a_leading, call->a_stride, call->b, is->data_type, call->b_leading,
        call->b_stride, beta, call->c, is->data_type, call->c_leading, call->c_stride, call->batch,
        is->compute_type, is->algorithm);
}

const bcfg_vendor bcfg_hipblas_vendor = {name_of, create, destroy};
const bcfg_backend bcfg_hipblas_backend = {borrows, lend, set, multiply, 0};
