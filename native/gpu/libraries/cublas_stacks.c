/* LU of stacks of small matrices by cuBLAS, one call for a whole stack.
 *
 * The pointers to the matrices are on the device, where Python has put them in stream order. Pivots
 * are int32, those of one matrix right after those of the one before. */
#include "gpu/libraries/factorisation.h"

#include <limits.h>

static bool supports(const bcfg_device_library *library, const bcfg_step *step) {
    (void)library;
    return step->is_together && step->m == step->n && step->n <= INT_MAX && step->k <= INT_MAX &&
           step->matrices <= INT_MAX &&
           (step->kind == BCFG_STEP_LU || step->kind == BCFG_STEP_LU_SOLVE);
}

static int sizes(const bcfg_device_library *library, bcfg_handle *handle, const bcfg_step *step,
                 size_t *workspace_bytes, size_t *host_bytes, const char **function) {
    (void)library, (void)handle, (void)step, (void)function;
    *workspace_bytes = *host_bytes = 0;
    return 0;
}

/* A product may have set a math mode of lower precision on the handle: factorise in full precision. */
static int promise(const bcfg_cublas_table *cublas, bcfg_handle *handle, const char **function) {
    int status = BCFG_CUBLAS_STATUS_SUCCESS;
    if (handle->math_mode != BCFG_CUBLAS_DEFAULT_MATH) {
        *function = "cublasSetMathMode";
        status = cublas->cublasSetMathMode(handle->handle, BCFG_CUBLAS_DEFAULT_MATH);
        if (status != BCFG_CUBLAS_STATUS_SUCCESS) return status;
        handle->math_mode = BCFG_CUBLAS_DEFAULT_MATH;
    }
    if (handle->atomics != BCFG_CUBLAS_ATOMICS_NOT_ALLOWED) {
        *function = "cublasSetAtomicsMode";
        status = cublas->cublasSetAtomicsMode(handle->handle, BCFG_CUBLAS_ATOMICS_NOT_ALLOWED);
        if (status == BCFG_CUBLAS_STATUS_SUCCESS)
            handle->atomics = BCFG_CUBLAS_ATOMICS_NOT_ALLOWED;
    }
    return status;
}

static int factorise(const bcfg_cublas_table *cublas, void *handle, const bcfg_step *step,
                     const char **function) {
    static const char *const names[] = {"cublasSgetrfBatched", "cublasDgetrfBatched",
                                        "cublasCgetrfBatched", "cublasZgetrfBatched"};
    int (*const functions[])(void *, int, void *const *, int, int *, int *, int) = {
        cublas->cublasSgetrfBatched, cublas->cublasDgetrfBatched, cublas->cublasCgetrfBatched,
        cublas->cublasZgetrfBatched};
    const int n = (int)step->n;
    *function = names[step->element];
    return functions[step->element](handle, n, step->a_pointers, n, (int *)(void *)step->pivots,
                                    (int *)(void *)step->info, (int)step->matrices);
}

static int solve(const bcfg_cublas_table *cublas, void *handle, const bcfg_step *step,
                 const char **function) {
    static const char *const names[] = {"cublasSgetrsBatched", "cublasDgetrsBatched",
                                        "cublasCgetrsBatched", "cublasZgetrsBatched"};
    int (*const functions[])(void *, int, int, int, const void *const *, int, const int *,
                             void *const *, int, int *, int) = {
        cublas->cublasSgetrsBatched, cublas->cublasDgetrsBatched, cublas->cublasCgetrsBatched,
        cublas->cublasZgetrsBatched};
    const int n = (int)step->n;
    const int operation = step->transpose == 'N'   ? BCFG_CUBLAS_OP_N
                          : step->transpose == 'T' ? BCFG_CUBLAS_OP_T
                                                   : BCFG_CUBLAS_OP_C;
    int wrong = 0; /* on the host: the number of an argument, which the status says too */
    *function = names[step->element];
    return functions[step->element](handle, operation, n, (int)step->k,
                                    (const void *const *)step->a_pointers, n,
                                    (const int *)(const void *)step->pivots, step->b_pointers, n,
                                    &wrong, (int)step->matrices);
}

static int compute(const bcfg_device_library *library, bcfg_handle *handle, const bcfg_step *step,
                   const char **function) {
    const bcfg_cublas_table *cublas = bcfg_cublas(library);
    int status = promise(cublas, handle, function);
    if (status != BCFG_CUBLAS_STATUS_SUCCESS) return status;
    return step->kind == BCFG_STEP_LU ? factorise(cublas, handle->handle, step, function)
                                      : solve(cublas, handle->handle, step, function);
}

const bcfg_solver bcfg_cublas_solver = {supports, sizes, compute};
