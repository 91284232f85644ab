/* A libcublas that computes on memory of the host. See recorded.h and products.h.
 *
 * VERSION is what it says of itself: 130100 is 13.1.0. Like cuBLAS, it refuses a leading dimension
 * that is too small and combinations of types outside its tables, and a new stream takes a handle's
 * workspace away. A product's record ends with the state of its handle: stream, math_mode, atomics,
 * workspace, workspace_bytes.
 *
 * Settings: split_k, the parts into which sums over k are divided where results of 16 bits may be
 * reduced in their own precision.
 */
#ifndef VERSION
#define VERSION 130100
#endif
#define SETTINGS SETTING(split_k, 1)
#include "recorded.h"

#include "blas_rules.h"
#include "stacks.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_CUBLAS_SYMBOLS(DECLARE, DECLARE)
#undef DECLARE

#define GEMM cublasGemmEx_64
#define GEMM_STRIDED cublasGemmStridedBatchedEx_64
#define OPERATION_N BCFG_CUBLAS_OP_N
#define STRIDE long long
#define GIVEN(handle)
#include "gemm.h"

int cublasCreate_v2(void **handle) {
    ENTER("cublasCreate_v2", P(handle))
    return create_handle(handle, BCFG_CUBLAS_ATOMICS_NOT_ALLOWED);
}

int cublasDestroy_v2(void *handle) {
    ENTER("cublasDestroy_v2", P(handle))
    return destroy_handle(handle);
}

int cublasGetProperty(int property, int *value) {
    ENTER("cublasGetProperty", I(property), P(value))
    const int parts[] = {VERSION / 10000, VERSION / 100 % 100, VERSION % 100};
    NEED(property >= 0 && property < 3, INVALID_VALUE)
    *value = parts[property];
    return 0;
}

int cublasSetStream_v2(void *handle, void *stream) {
    ENTER("cublasSetStream_v2", P(handle), P(stream))
    HANDLE(handle)
    known->stream = stream;
    known->workspace = NULL;
    known->workspace_bytes = 0;
    return 0;
}

int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes) {
    ENTER("cublasSetWorkspace_v2", P(handle), P(workspace), I(bytes))
    HANDLE(handle)
    NEED((uintptr_t)workspace % 256 == 0, INVALID_VALUE)
    known->workspace = workspace;
    known->workspace_bytes = bytes;
    return 0;
}

static int is_math_mode(int mode) {
    int kind = mode & ~BCFG_CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    return (kind >= 0 && kind <= 4) || (kind == 8 && VERSION >= 130000);
}

int cublasSetAtomicsMode(void *handle, int mode) {
    ENTER("cublasSetAtomicsMode", P(handle), I(mode))
    HANDLE(handle)
    NEED((mode & ~1) == 0, INVALID_VALUE)
    known->atomics = mode;
    return 0;
}

int cublasSetMathMode(void *handle, int mode) {
    ENTER("cublasSetMathMode", P(handle), I(mode))
    HANDLE(handle)
    NEED(is_math_mode(mode), INVALID_VALUE)
    known->math_mode = mode;
    return 0;
}

const char *cublasGetStatusName(int status) { return status_name(status); }

static int compute_of(int compute) { return compute; }

static int check_numbers(const call *it) {
    NEED(it->transa >= 0 && it->transa <= 2 && it->transb >= 0 && it->transb <= 2, INVALID_VALUE)
    NEED(it->algorithm == BCFG_CUBLAS_GEMM_DEFAULT ||
             it->algorithm == BCFG_CUBLAS_GEMM_DEFAULT_TENSOR_OP, INVALID_VALUE)
    NEED(is_supported(it->compute, it->a_type, it->b_type, it->c_type), NOT_SUPPORTED)
    NEED(VERSION >= 120900 || it->compute < BCFG_CUBLAS_COMPUTE_32F_EMULATED_16BFX9, NOT_SUPPORTED)
    return 0;
}

/* A mode speaks for computations that say nothing themselves. */
static enum rounding how_of(const call *it) {
    int mode = it->handle->math_mode & ~BCFG_CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    if (mode == BCFG_CUBLAS_TF32_TENSOR_OP_MATH && it->compute == BCFG_CUBLAS_COMPUTE_32F &&
        (it->a_type == R_32F || it->a_type == C_32F))
        return TO_TF32;
    return rounding_of(it->compute);
}

static division division_of(const call *it) {
    int allowed =
        !(it->handle->math_mode & BCFG_CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) &&
        (it->compute == BCFG_CUBLAS_COMPUTE_32F) && (it->c_type == R_16F || it->c_type == R_16BF);
    return allowed ? (division){(int)setting_split_k, it->c_type} : UNDIVIDED;
}

/* LU of stacks, of each type. */
#define STACK(letter, type)                                                                        \
    int cublas##letter##getrfBatched(void *handle, int n, void *const *a, int lda, int *pivots,    \
                                     int *info, int batch) {                                       \
        BEGIN                                                                                      \
        int status = RECORD_WITH(STATE, STATE_WORDS, "cublas" #letter "getrfBatched", P(handle),   \
                                 I(n), P(a), I(lda), P(pivots), P(info), I(batch));                \
        if (status != 0) return status;                                                            \
        NEED(known, NOT_INITIALIZED)                                                               \
        NEED(n > 0 && lda >= n && a && pivots && info && batch > 0, INVALID_VALUE)                 \
        stack_lu(a, type, n, lda, pivots, info, batch);                                            \
        return 0;                                                                                  \
    }                                                                                              \
    int cublas##letter##getrsBatched(void *handle, int trans, int n, int nrhs,                     \
                                     const void *const *a, int lda, const int *pivots,             \
                                     void *const *b, int ldb, int *info, int batch) {              \
        BEGIN                                                                                      \
        int status = RECORD_WITH(STATE, STATE_WORDS, "cublas" #letter "getrsBatched", P(handle),   \
                                 I(trans), I(n), I(nrhs), P(a), I(lda), P(pivots), P(b), I(ldb),   \
                                 P(info), I(batch));                                               \
        if (status != 0) return status;                                                            \
        NEED(known, NOT_INITIALIZED)                                                               \
        *info = 0;                                                                                 \
        NEED(trans >= 0 && trans < 3 && n > 0 && nrhs > 0 && lda >= n && ldb >= n, INVALID_VALUE)  \
        NEED(a && pivots && b && batch > 0, INVALID_VALUE)                                         \
        for (int64_t at = 0; at < (int64_t)n * batch; at++)                                        \
            NEED(pivots[at] >= 1 && pivots[at] <= n, INTERNAL_ERROR)                               \
        stack_solve_lu(a, type,                                                                    \
                       trans == BCFG_CUBLAS_OP_N   ? AS_IS                                         \
                       : trans == BCFG_CUBLAS_OP_T ? TRANSPOSED                                    \
                                                   : ADJOINT,                                      \
                       n, nrhs, lda, pivots, b, ldb, batch);                                       \
        return 0;                                                                                  \
    }
STACK(S, R_32F)
STACK(D, R_64F)
STACK(C, C_32F)
STACK(Z, C_64F)
