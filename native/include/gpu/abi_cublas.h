/* abi_cublas.h - what we use of cuBLAS, libcublas.so.12 and libcublas.so.13.
 *
 * Source: cublas_api.h of cuBLAS 13.10 and 12.9 (and library_types.h of CUDA 13.0 for the element
 * types). `native/abi/check.py` compares this file with the vendor's headers. Handles and streams
 * are `void *`, enumerations int.
 *
 * The `_64` functions take sizes and leading dimensions as int64_t; cuBLAS has them since 12.0.
 */
#ifndef BACKENDCFG_DEVICE_ABI_CUBLAS_H
#define BACKENDCFG_DEVICE_ABI_CUBLAS_H

#include <stddef.h>
#include <stdint.h>

/* Element types; hipDataType has the same numbers. */
#define BCFG_CUDA_TYPE_CONSTANTS(CONSTANT)                                                         \
    CONSTANT(CUDA_R_32F, 0)                                                                        \
    CONSTANT(CUDA_R_64F, 1)                                                                        \
    CONSTANT(CUDA_R_16F, 2)                                                                        \
    CONSTANT(CUDA_C_32F, 4)                                                                        \
    CONSTANT(CUDA_C_64F, 5)                                                                        \
    CONSTANT(CUDA_R_16BF, 14)

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_CUBLAS_CONSTANTS(CONSTANT)                                                            \
    CONSTANT(CUBLAS_STATUS_SUCCESS, 0)                                                             \
    CONSTANT(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                     \
    CONSTANT(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                        \
    CONSTANT(CUBLAS_STATUS_INVALID_VALUE, 7)                                                       \
    CONSTANT(CUBLAS_STATUS_ARCH_MISMATCH, 8)                                                       \
    CONSTANT(CUBLAS_STATUS_MAPPING_ERROR, 11)                                                      \
    CONSTANT(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                   \
    CONSTANT(CUBLAS_STATUS_INTERNAL_ERROR, 14)                                                     \
    CONSTANT(CUBLAS_STATUS_NOT_SUPPORTED, 15)                                                      \
    CONSTANT(CUBLAS_STATUS_LICENSE_ERROR, 16)                                                      \
    CONSTANT(CUBLAS_OP_N, 0)                                                                       \
    CONSTANT(CUBLAS_OP_T, 1)                                                                       \
    CONSTANT(CUBLAS_OP_C, 2)                                                                       \
    CONSTANT(CUBLAS_ATOMICS_NOT_ALLOWED, 0)                                                        \
    CONSTANT(CUBLAS_ATOMICS_ALLOWED, 1)                                                            \
    CONSTANT(CUBLAS_GEMM_DEFAULT, -1)                                                              \
    CONSTANT(CUBLAS_GEMM_DEFAULT_TENSOR_OP, 99)                                                    \
    CONSTANT(CUBLAS_DEFAULT_MATH, 0)                                                               \
    CONSTANT(CUBLAS_TF32_TENSOR_OP_MATH, 3)                                                        \
    CONSTANT(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 16)                                 \
    CONSTANT(CUBLAS_COMPUTE_16F, 64)                                                               \
    CONSTANT(CUBLAS_COMPUTE_16F_PEDANTIC, 65)                                                      \
    CONSTANT(CUBLAS_COMPUTE_32F, 68)                                                               \
    CONSTANT(CUBLAS_COMPUTE_32F_PEDANTIC, 69)                                                      \
    CONSTANT(CUBLAS_COMPUTE_64F, 70)                                                               \
    CONSTANT(CUBLAS_COMPUTE_64F_PEDANTIC, 71)                                                      \
    CONSTANT(CUBLAS_COMPUTE_32F_FAST_16F, 74)                                                      \
    CONSTANT(CUBLAS_COMPUTE_32F_FAST_16BF, 75)                                                     \
    CONSTANT(CUBLAS_COMPUTE_32F_FAST_TF32, 77)

/* Emulation came with 12.9: an older library has no such numbers. */
#define BCFG_CUBLAS_SINCE_12_9_CONSTANTS(CONSTANT)                                                 \
    CONSTANT(CUBLAS_FP32_EMULATED_BF16X9_MATH, 4)                                                  \
    CONSTANT(CUBLAS_COMPUTE_32F_EMULATED_16BFX9, 78)

/* Emulated double precision came with 13.0. */
#define BCFG_CUBLAS_SINCE_13_0_CONSTANTS(CONSTANT)                                                \
    CONSTANT(CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT, 79)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_CUDA_TYPE_CONSTANTS(CONSTANT)
    BCFG_CUBLAS_CONSTANTS(CONSTANT)
    BCFG_CUBLAS_SINCE_12_9_CONSTANTS(CONSTANT)
    BCFG_CUBLAS_SINCE_13_0_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table. */
#define BCFG_CUBLAS_SYMBOLS(REQUIRED, OPTIONAL)                                                    \
    REQUIRED(int, cublasCreate_v2, (void **handle))                                                \
    REQUIRED(int, cublasDestroy_v2, (void *handle))                                                \
    REQUIRED(int, cublasGetProperty, (int property, int *value))                                   \
    REQUIRED(int, cublasSetStream_v2, (void *handle, void *stream))                                \
    REQUIRED(int, cublasSetWorkspace_v2, (void *handle, void *workspace, size_t bytes))            \
    REQUIRED(int, cublasSetAtomicsMode, (void *handle, int mode))                                  \
    REQUIRED(int, cublasSetMathMode, (void *handle, int mode))                                     \
    REQUIRED(const char *, cublasGetStatusName, (int status))                                      \
    REQUIRED(int, cublasGemmEx_64,                                                                 \
             (void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k,               \
              const void *alpha, const void *a, int a_type, int64_t lda, const void *b,            \
              int b_type, int64_t ldb, const void *beta, void *c, int c_type, int64_t ldc,         \
              int compute_type, int algorithm))                                                    \
    REQUIRED(int, cublasGemmStridedBatchedEx_64,                                                   \
             (void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k,               \
              const void *alpha, const void *a, int a_type, int64_t lda, long long a_stride,       \
              const void *b, int b_type, int64_t ldb, long long b_stride, const void *beta,        \
              void *c, int c_type, int64_t ldc, long long c_stride, int64_t batch,                 \
              int compute_type, int algorithm))                                                    \
    REQUIRED(int, cublasSgetrfBatched,                                                             \
             (void *handle, int n, void *const *a, int lda, int *pivots, int *info, int batch))    \
    REQUIRED(int, cublasSgetrsBatched,                                                             \
             (void *handle, int trans, int n, int nrhs, const void *const *a, int lda,             \
              const int *pivots, void *const *b, int ldb, int *info, int batch))                   \
    REQUIRED(int, cublasDgetrfBatched,                                                             \
             (void *handle, int n, void *const *a, int lda, int *pivots, int *info, int batch))    \
    REQUIRED(int, cublasDgetrsBatched,                                                             \
             (void *handle, int trans, int n, int nrhs, const void *const *a, int lda,             \
              const int *pivots, void *const *b, int ldb, int *info, int batch))                   \
    REQUIRED(int, cublasCgetrfBatched,                                                             \
             (void *handle, int n, void *const *a, int lda, int *pivots, int *info, int batch))    \
    REQUIRED(int, cublasCgetrsBatched,                                                             \
             (void *handle, int trans, int n, int nrhs, const void *const *a, int lda,             \
              const int *pivots, void *const *b, int ldb, int *info, int batch))                   \
    REQUIRED(int, cublasZgetrfBatched,                                                             \
             (void *handle, int n, void *const *a, int lda, int *pivots, int *info, int batch))    \
    REQUIRED(int, cublasZgetrsBatched,                                                             \
             (void *handle, int trans, int n, int nrhs, const void *const *a, int lda,             \
              const int *pivots, void *const *b, int ldb, int *info, int batch))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_CUBLAS_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_cublas_table;

#endif
