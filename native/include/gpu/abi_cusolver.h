/* abi_cusolver.h - what we use of cuSOLVER's dense part, libcusolver.so.11 (CUDA 12) and
 * libcusolver.so.12 (CUDA 13).
 *
 * Source: cusolverDn.h and cusolver_common.h of cuSOLVER 12.4.1 and 11.7.5. `native/abi/check.py`
 * compares this file with the vendor's headers. Handles, parameters and streams are `void *`,
 * enumerations int.
 *
 * The X functions take sizes as int64_t and types as numbers. Q of QR has none: its functions are
 * those of each type, with 32-bit sizes.
 */
#ifndef BACKENDCFG_DEVICE_ABI_CUSOLVER_H
#define BACKENDCFG_DEVICE_ABI_CUSOLVER_H

#include <stddef.h>
#include <stdint.h>

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. Triangles and
 * transposes are cuBLAS's. */
#define BCFG_CUSOLVER_CONSTANTS(CONSTANT)                                                          \
    CONSTANT(CUSOLVER_STATUS_SUCCESS, 0)                                                           \
    CONSTANT(CUSOLVER_STATUS_NOT_INITIALIZED, 1)                                                   \
    CONSTANT(CUSOLVER_STATUS_ALLOC_FAILED, 2)                                                      \
    CONSTANT(CUSOLVER_STATUS_INVALID_VALUE, 3)                                                     \
    CONSTANT(CUSOLVER_STATUS_ARCH_MISMATCH, 4)                                                     \
    CONSTANT(CUSOLVER_STATUS_MAPPING_ERROR, 5)                                                     \
    CONSTANT(CUSOLVER_STATUS_EXECUTION_FAILED, 6)                                                  \
    CONSTANT(CUSOLVER_STATUS_INTERNAL_ERROR, 7)                                                    \
    CONSTANT(CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED, 8)                                         \
    CONSTANT(CUSOLVER_STATUS_NOT_SUPPORTED, 9)                                                     \
    CONSTANT(CUSOLVER_STATUS_INVALID_LICENSE, 11)                                                  \
    CONSTANT(CUSOLVER_EIG_MODE_NOVECTOR, 0)                                                        \
    CONSTANT(CUSOLVER_EIG_MODE_VECTOR, 1)                                                          \
    CONSTANT(CUBLAS_FILL_MODE_LOWER, 0)                                                            \
    CONSTANT(CUBLAS_FILL_MODE_UPPER, 1)

/* cusolverDnSetDeterministicMode came with CUDA 12.2. */
#define BCFG_CUSOLVER_SINCE_12_2_CONSTANTS(CONSTANT)                                               \
    CONSTANT(CUSOLVER_DETERMINISTIC_RESULTS, 1)                                                    \
    CONSTANT(CUSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS, 2)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_CUSOLVER_CONSTANTS(CONSTANT)
    BCFG_CUSOLVER_SINCE_12_2_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table. */
#define BCFG_CUSOLVER_SYMBOLS(REQUIRED, OPTIONAL)                                                  \
    REQUIRED(int, cusolverDnCreate, (void **handle))                                               \
    REQUIRED(int, cusolverDnDestroy, (void *handle))                                               \
    REQUIRED(int, cusolverDnSetStream, (void *handle, void *stream))                               \
    REQUIRED(int, cusolverGetProperty, (int property, int *value))                                 \
    REQUIRED(int, cusolverDnCreateParams, (void **params))                                         \
    REQUIRED(int, cusolverDnDestroyParams, (void *params))                                         \
    OPTIONAL(int, cusolverDnSetDeterministicMode, (void *handle, int mode))                        \
    REQUIRED(int, cusolverDnXpotrf_bufferSize,                                                     \
             (void *handle, void *params, int uplo, int64_t n, int a_type, const void *a, int64_t  \
              lda, int compute_type, size_t *device_bytes, size_t *host_bytes))                    \
    REQUIRED(int, cusolverDnXpotrf,                                                                \
             (void *handle, void *params, int uplo, int64_t n, int a_type, void *a, int64_t lda,   \
              int compute_type, void *device, size_t device_bytes, void *host, size_t host_bytes,  \
              int *info))                                                                          \
    REQUIRED(int, cusolverDnXpotrs,                                                                \
             (void *handle, void *params, int uplo, int64_t n, int64_t nrhs, int a_type, const     \
              void *a, int64_t lda, int b_type, void *b, int64_t ldb, int *info))                  \
    REQUIRED(int, cusolverDnXgetrf_bufferSize,                                                     \
             (void *handle, void *params, int64_t m, int64_t n, int a_type, const void *a,         \
              int64_t lda, int compute_type, size_t *device_bytes, size_t *host_bytes))            \
    REQUIRED(int, cusolverDnXgetrf,                                                                \
             (void *handle, void *params, int64_t m, int64_t n, int a_type, void *a, int64_t lda,  \
              int64_t *ipiv, int compute_type, void *device, size_t device_bytes, void *host,      \
              size_t host_bytes, int *info))                                                       \
    REQUIRED(int, cusolverDnXgetrs,                                                                \
             (void *handle, void *params, int trans, int64_t n, int64_t nrhs, int a_type, const    \
              void *a, int64_t lda, const int64_t *ipiv, int b_type, void *b, int64_t ldb, int     \
              *info))                                                                              \
    REQUIRED(int, cusolverDnXgeqrf_bufferSize,                                                     \
             (void *handle, void *params, int64_t m, int64_t n, int a_type, const void *a,         \
              int64_t lda, int tau_type, const void *tau, int compute_type, size_t *device_bytes,  \
              size_t *host_bytes))                                                                 \
    REQUIRED(int, cusolverDnXgeqrf,                                                                \
             (void *handle, void *params, int64_t m, int64_t n, int a_type, void *a, int64_t lda,  \
              int tau_type, void *tau, int compute_type, void *device, size_t device_bytes, void   \
              *host, size_t host_bytes, int *info))                                                \
    REQUIRED(int, cusolverDnXsyevd_bufferSize,                                                     \
             (void *handle, void *params, int jobz, int uplo, int64_t n, int a_type, const void    \
              *a, int64_t lda, int w_type, const void *w, int compute_type, size_t *device_bytes,  \
              size_t *host_bytes))                                                                 \
    REQUIRED(int, cusolverDnXsyevd,                                                                \
             (void *handle, void *params, int jobz, int uplo, int64_t n, int a_type, void *a,      \
              int64_t lda, int w_type, void *w, int compute_type, void *device, size_t             \
              device_bytes, void *host, size_t host_bytes, int *info))                             \
    OPTIONAL(int, cusolverDnXsyevBatched_bufferSize,                                               \
             (void *handle, void *params, int jobz, int uplo, int64_t n, int a_type, const void    \
              *a, int64_t lda, int w_type, const void *w, int compute_type, size_t *device_bytes,  \
              size_t *host_bytes, int64_t batch))                                                  \
    OPTIONAL(int, cusolverDnXsyevBatched,                                                          \
             (void *handle, void *params, int jobz, int uplo, int64_t n, int a_type, void *a,      \
              int64_t lda, int w_type, void *w, int compute_type, void *device, size_t             \
              device_bytes, void *host, size_t host_bytes, int *info, int64_t batch))              \
    REQUIRED(int, cusolverDnXgesvd_bufferSize,                                                     \
             (void *handle, void *params, signed char jobu, signed char jobvt, int64_t m, int64_t  \
              n, int a_type, const void *a, int64_t lda, int s_type, const void *s, int u_type,    \
              const void *u, int64_t ldu, int vt_type, const void *vt, int64_t ldvt, int           \
              compute_type, size_t *device_bytes, size_t *host_bytes))                             \
    REQUIRED(int, cusolverDnXgesvd,                                                                \
             (void *handle, void *params, signed char jobu, signed char jobvt, int64_t m, int64_t  \
              n, int a_type, void *a, int64_t lda, int s_type, void *s, int u_type, void *u,       \
              int64_t ldu, int vt_type, void *vt, int64_t ldvt, int compute_type, void *device,    \
              size_t device_bytes, void *host, size_t host_bytes, int *info))                      \
    REQUIRED(int, cusolverDnSpotrfBatched,                                                         \
             (void *handle, int uplo, int n, void **a, int lda, int *info, int batch))             \
    REQUIRED(int, cusolverDnSpotrsBatched,                                                         \
             (void *handle, int uplo, int n, int nrhs, void **a, int lda, void **b, int ldb,       \
              int *info, int batch))                                                               \
    REQUIRED(int, cusolverDnDpotrfBatched,                                                         \
             (void *handle, int uplo, int n, void **a, int lda, int *info, int batch))             \
    REQUIRED(int, cusolverDnDpotrsBatched,                                                         \
             (void *handle, int uplo, int n, int nrhs, void **a, int lda, void **b, int ldb,       \
              int *info, int batch))                                                               \
    REQUIRED(int, cusolverDnCpotrfBatched,                                                         \
             (void *handle, int uplo, int n, void **a, int lda, int *info, int batch))             \
    REQUIRED(int, cusolverDnCpotrsBatched,                                                         \
             (void *handle, int uplo, int n, int nrhs, void **a, int lda, void **b, int ldb,       \
              int *info, int batch))                                                               \
    REQUIRED(int, cusolverDnZpotrfBatched,                                                         \
             (void *handle, int uplo, int n, void **a, int lda, int *info, int batch))             \
    REQUIRED(int, cusolverDnZpotrsBatched,                                                         \
             (void *handle, int uplo, int n, int nrhs, void **a, int lda, void **b, int ldb,       \
              int *info, int batch))                                                               \
    REQUIRED(int, cusolverDnSorgqr_bufferSize,                                                     \
             (void *handle, int m, int n, int k, const void *a, int lda, const void *tau, int      \
              *lwork))                                                                             \
    REQUIRED(int, cusolverDnSorgqr,                                                                \
             (void *handle, int m, int n, int k, void *a, int lda, const void *tau, void *work,    \
              int lwork, int *info))                                                               \
    REQUIRED(int, cusolverDnDorgqr_bufferSize,                                                     \
             (void *handle, int m, int n, int k, const void *a, int lda, const void *tau, int      \
              *lwork))                                                                             \
    REQUIRED(int, cusolverDnDorgqr,                                                                \
             (void *handle, int m, int n, int k, void *a, int lda, const void *tau, void *work,    \
              int lwork, int *info))                                                               \
    REQUIRED(int, cusolverDnCungqr_bufferSize,                                                     \
             (void *handle, int m, int n, int k, const void *a, int lda, const void *tau, int      \
              *lwork))                                                                             \
    REQUIRED(int, cusolverDnCungqr,                                                                \
             (void *handle, int m, int n, int k, void *a, int lda, const void *tau, void *work,    \
              int lwork, int *info))                                                               \
    REQUIRED(int, cusolverDnZungqr_bufferSize,                                                     \
             (void *handle, int m, int n, int k, const void *a, int lda, const void *tau, int      \
              *lwork))                                                                             \
    REQUIRED(int, cusolverDnZungqr,                                                                \
             (void *handle, int m, int n, int k, void *a, int lda, const void *tau, void *work,    \
              int lwork, int *info))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_CUSOLVER_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_cusolver_table;

#endif
