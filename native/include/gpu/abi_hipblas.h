/* abi_hipblas.h - what we use of hipBLAS, libhipblas.so.2 and libhipblas.so.3.
 *
 * Source: hipblas.h of hipBLAS 2.4 (ROCm/hipBLAS 27cf7be) and 3 (ROCm/rocm-libraries 07f33d2),
 * hipblas-common.h (ROCm/hipBLAS-common 9666c57). `native/abi/check.py` compares this file with the
 * vendor's headers. Handles and streams are `void *`, enumerations int.
 *
 * The trap: in hipBLAS 2 `hipblasGemmEx_64` and its kin take hipBLAS's own numbers for element and
 * compute types, and `hipblasGemmEx_v2_64` those below; in hipBLAS 3 only the first name is left, with
 * the meaning of the second. Both have the same parameters, so that a wrong choice goes unseen.
 */
#ifndef BACKENDCFG_DEVICE_ABI_HIPBLAS_H
#define BACKENDCFG_DEVICE_ABI_HIPBLAS_H

#include <stddef.h>
#include <stdint.h>

/* hipDataType: the numbers of cudaDataType. */
#define BCFG_HIP_TYPE_CONSTANTS(CONSTANT)                                                          \
    CONSTANT(HIP_R_32F, 0)                                                                         \
    CONSTANT(HIP_R_64F, 1)                                                                         \
    CONSTANT(HIP_R_16F, 2)                                                                         \
    CONSTANT(HIP_C_32F, 4)                                                                         \
    CONSTANT(HIP_C_64F, 5)                                                                         \
    CONSTANT(HIP_R_16BF, 14)

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. Nearly all are other
 * numbers than cuBLAS's. */
#define BCFG_HIPBLAS_CONSTANTS(CONSTANT)                                                           \
    CONSTANT(HIPBLAS_STATUS_SUCCESS, 0)                                                            \
    CONSTANT(HIPBLAS_STATUS_NOT_INITIALIZED, 1)                                                    \
    CONSTANT(HIPBLAS_STATUS_ALLOC_FAILED, 2)                                                       \
    CONSTANT(HIPBLAS_STATUS_INVALID_VALUE, 3)                                                      \
    CONSTANT(HIPBLAS_STATUS_MAPPING_ERROR, 4)                                                      \
    CONSTANT(HIPBLAS_STATUS_EXECUTION_FAILED, 5)                                                   \
    CONSTANT(HIPBLAS_STATUS_INTERNAL_ERROR, 6)                                                     \
    CONSTANT(HIPBLAS_STATUS_NOT_SUPPORTED, 7)                                                      \
    CONSTANT(HIPBLAS_STATUS_ARCH_MISMATCH, 8)                                                      \
    CONSTANT(HIPBLAS_STATUS_HANDLE_IS_NULLPTR, 9)                                                  \
    CONSTANT(HIPBLAS_STATUS_INVALID_ENUM, 10)                                                      \
    CONSTANT(HIPBLAS_STATUS_UNKNOWN, 11)                                                           \
    CONSTANT(HIPBLAS_OP_N, 111)                                                                    \
    CONSTANT(HIPBLAS_OP_T, 112)                                                                    \
    CONSTANT(HIPBLAS_OP_C, 113)                                                                    \
    CONSTANT(HIPBLAS_COMPUTE_16F, 0)                                                               \
    CONSTANT(HIPBLAS_COMPUTE_16F_PEDANTIC, 1)                                                      \
    CONSTANT(HIPBLAS_COMPUTE_32F, 2)                                                               \
    CONSTANT(HIPBLAS_COMPUTE_32F_PEDANTIC, 3)                                                      \
    CONSTANT(HIPBLAS_COMPUTE_32F_FAST_16F, 4)                                                      \
    CONSTANT(HIPBLAS_COMPUTE_32F_FAST_16BF, 5)                                                     \
    CONSTANT(HIPBLAS_COMPUTE_32F_FAST_TF32, 6)                                                     \
    CONSTANT(HIPBLAS_COMPUTE_64F, 7)                                                               \
    CONSTANT(HIPBLAS_COMPUTE_64F_PEDANTIC, 8)

/* Of hipblas.h, where those above are of hipblas-common.h. */
#define BCFG_HIPBLAS_OWN_CONSTANTS(CONSTANT)                                                       \
    CONSTANT(HIPBLAS_ATOMICS_NOT_ALLOWED, 0)                                                       \
    CONSTANT(HIPBLAS_ATOMICS_ALLOWED, 1)                                                           \
    CONSTANT(HIPBLAS_DEFAULT_MATH, 0)                                                              \
    CONSTANT(HIPBLAS_XF32_XDL_MATH, 1)                                                             \
    CONSTANT(HIPBLAS_GEMM_DEFAULT, 160)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_HIP_TYPE_CONSTANTS(CONSTANT)
    BCFG_HIPBLAS_CONSTANTS(CONSTANT)
    BCFG_HIPBLAS_OWN_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table.
 * VERSIONED(result, name, name before hipBLAS 3, parameters): see above. */
#define BCFG_HIPBLAS_SYMBOLS(REQUIRED, OPTIONAL, VERSIONED)                                        \
    REQUIRED(int, hipblasCreate, (void **handle))                                                  \
    REQUIRED(int, hipblasDestroy, (void *handle))                                                  \
    REQUIRED(int, hipblasSetStream, (void *handle, void *stream))                                  \
    REQUIRED(int, hipblasSetAtomicsMode, (void *handle, int mode))                                 \
    REQUIRED(int, hipblasGetAtomicsMode, (void *handle, int *mode))                                \
    REQUIRED(int, hipblasSetMathMode, (void *handle, int mode))                                    \
    REQUIRED(const char *, hipblasStatusToString, (int status))                                    \
    OPTIONAL(int, hipblasSetWorkspace, (void *handle, void *workspace, size_t bytes))              \
    VERSIONED(int, hipblasGemmEx_64, hipblasGemmEx_v2_64,                                          \
              (void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k,              \
               const void *alpha, const void *a, int a_type, int64_t lda, const void *b,           \
               int b_type, int64_t ldb, const void *beta, void *c, int c_type, int64_t ldc,        \
               int compute_type, int algorithm))                                                   \
    VERSIONED(int, hipblasGemmStridedBatchedEx_64, hipblasGemmStridedBatchedEx_v2_64,              \
              (void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k,              \
               const void *alpha, const void *a, int a_type, int64_t lda, int64_t a_stride,        \
               const void *b, int b_type, int64_t ldb, int64_t b_stride, const void *beta,         \
               void *c, int c_type, int64_t ldc, int64_t c_stride, int64_t batch,                  \
               int compute_type, int algorithm))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
#define VERSIONED(result, name, before, parameters) result(*name) parameters;
    BCFG_HIPBLAS_SYMBOLS(MEMBER, MEMBER, VERSIONED)
#undef MEMBER
#undef VERSIONED
} bcfg_hipblas_table;

#endif
