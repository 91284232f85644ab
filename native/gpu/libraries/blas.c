/* Products by cuBLAS and by hipBLAS, whose functions differ in names and numbers alone. */
#include "gpu/libraries/backend.h"

static bool is_cublas(const bcfg_device_library *library) { return library->kind == BCFG_CUBLAS; }

/* Calls a function of `library`: `cublas` or `hipblas`, the symbols of that `name`, which is left in
 * *function. Success is 0 in both. */
#define CALL(name, cublas, hipblas, ...)                                                           \
    (is_cublas(library) ? (*function = "cublas" name, bcfg_cublas(library)->cublas(__VA_ARGS__))   \
                        : (*function = "hipblas" name, bcfg_hipblas(library)->hipblas(__VA_ARGS__)))

static const char *name_of(const bcfg_device_library *library, int status) {
    return is_cublas(library) ? bcfg_cublas(library)->cublasGetStatusName(status)
                              : bcfg_hipblas(library)->hipblasStatusToString(status);
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    int status = CALL("Create", cublasCreate_v2, hipblasCreate, handle);
    if (status != 0) return status;
    status = CALL("SetStream", cublasSetStream_v2, hipblasSetStream, *handle, stream);
    if (status != 0 && is_cublas(library)) (void)bcfg_cublas(library)->cublasDestroy_v2(*handle);
    if (status != 0 && !is_cublas(library)) (void)bcfg_hipblas(library)->hipblasDestroy(*handle);
    return status;
}

static void destroy(const bcfg_handle *handle) {
    if (is_cublas(handle->library))
        (void)bcfg_cublas(handle->library)->cublasDestroy_v2(handle->handle);
    else
        (void)bcfg_hipblas(handle->library)->hipblasDestroy(handle->handle);
}

/* Before version 3 hipBLAS has memory of its own, which no call can change. */
static bool borrows(const bcfg_device_library *library) {
    return is_cublas(library) || bcfg_hipblas(library)->hipblasSetWorkspace != NULL;
}

static int lend(const bcfg_handle *handle, void *memory, size_t bytes, const char **function) {
    const bcfg_device_library *library = handle->library;
    return CALL("SetWorkspace", cublasSetWorkspace_v2, hipblasSetWorkspace, handle->handle, memory,
                bytes);
}

static int set(bcfg_handle *handle, const bcfg_recipe *recipe, const char **function) {
    const bcfg_device_library *library = handle->library;
    int status = 0;
    if (handle->math_mode != recipe->is.math_mode) {
        status = CALL("SetMathMode", cublasSetMathMode, hipblasSetMathMode, handle->handle,
                      recipe->is.math_mode);
        if (status != 0) return status;
        handle->math_mode = recipe->is.math_mode;
    }
    if (handle->atomics != recipe->is.atomics) {
        status = CALL("SetAtomicsMode", cublasSetAtomicsMode, hipblasSetAtomicsMode, handle->handle,
                      recipe->is.atomics);
        if (status == 0) handle->atomics = recipe->is.atomics;
    }
    return status;
}

static int operation_of(const bcfg_device_library *library, int transposes) {
    if (is_cublas(library)) return transposes ? BCFG_CUBLAS_OP_T : BCFG_CUBLAS_OP_N;
    return transposes ? BCFG_HIPBLAS_OP_T : BCFG_HIPBLAS_OP_N;
}

static int multiply(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                    const void *beta, const char **function) {
    const bcfg_recipe_content *is = &lease->recipe->is;
    const bcfg_device_library *library = is->library;
    int transpose_a = operation_of(library, call->transpose_a);
    int transpose_b = operation_of(library, call->transpose_b);
    if (call->batch == 1)
        return CALL("GemmEx", cublasGemmEx_64, hipblasGemmEx_64, lease->handle->handle, transpose_a,
                    transpose_b, call->m, call->n, call->k, alpha, call->a, is->data_type,
                    call->a_leading, call->b, is->data_type, call->b_leading, beta, call->c,
                    is->data_type, call->c_leading, is->compute_type, is->algorithm);
    return CALL("GemmStridedBatchedEx", cublasGemmStridedBatchedEx_64,
                hipblasGemmStridedBatchedEx_64, lease->handle->handle, transpose_a, transpose_b,
                call->m, call->n, call->k, alpha, call->a, is->data_type, call->a_leading,
                call->a_stride, call->b, is->data_type, call->b_leading, call->b_stride, beta,
                call->c, is->data_type, call->c_leading, call->c_stride, call->batch,
                is->compute_type, is->algorithm);
}

const bcfg_vendor bcfg_blas_vendor = {name_of, create, destroy};
const bcfg_backend bcfg_blas_backend = {borrows, lend, set, multiply, 0};
