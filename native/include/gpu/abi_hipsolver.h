/* abi_hipsolver.h - what we use of hipSOLVER, libhipsolver.so.0 and libhipsolver.so.1.
 *
 * Source: hipsolver-types.h and hipsolver-functions.h of hipSOLVER 2.4 (ROCm/hipSOLVER 2b17b58). Of 3
 * (ROCm/rocm-libraries 0f54ba2) getrf, getrs and gesvd were read, and are the same; the rest is taken
 * to be. `native/abi/check.py` compares this file with the vendor's headers. Handles and streams are `void *`, and so are arrays of numbers, which the
 * letter in a function's name says the type of; enumerations are int.
 *
 * The 64-bit functions of its compatibility header do not have all that is needed; these have, in
 * 32-bit integers. On AMD's devices sizes of workspaces are bytes, where cuSOLVER counts numbers.
 */
#ifndef BACKENDCFG_DEVICE_ABI_HIPSOLVER_H
#define BACKENDCFG_DEVICE_ABI_HIPSOLVER_H

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_HIPSOLVER_CONSTANTS(CONSTANT)                                                         \
    CONSTANT(HIPSOLVER_STATUS_SUCCESS, 0)                                                          \
    CONSTANT(HIPSOLVER_STATUS_NOT_INITIALIZED, 1)                                                  \
    CONSTANT(HIPSOLVER_STATUS_ALLOC_FAILED, 2)                                                     \
    CONSTANT(HIPSOLVER_STATUS_INVALID_VALUE, 3)                                                    \
    CONSTANT(HIPSOLVER_STATUS_MAPPING_ERROR, 4)                                                    \
    CONSTANT(HIPSOLVER_STATUS_EXECUTION_FAILED, 5)                                                 \
    CONSTANT(HIPSOLVER_STATUS_INTERNAL_ERROR, 6)                                                   \
    CONSTANT(HIPSOLVER_STATUS_NOT_SUPPORTED, 7)                                                    \
    CONSTANT(HIPSOLVER_STATUS_ARCH_MISMATCH, 8)                                                    \
    CONSTANT(HIPSOLVER_STATUS_HANDLE_IS_NULLPTR, 9)                                                \
    CONSTANT(HIPSOLVER_STATUS_INVALID_ENUM, 10)                                                    \
    CONSTANT(HIPSOLVER_STATUS_UNKNOWN, 11)                                                         \
    CONSTANT(HIPSOLVER_OP_N, 111)                                                                  \
    CONSTANT(HIPSOLVER_OP_T, 112)                                                                  \
    CONSTANT(HIPSOLVER_OP_C, 113)                                                                  \
    CONSTANT(HIPSOLVER_FILL_MODE_UPPER, 121)                                                       \
    CONSTANT(HIPSOLVER_FILL_MODE_LOWER, 122)                                                       \
    CONSTANT(HIPSOLVER_EIG_MODE_NOVECTOR, 201)                                                     \
    CONSTANT(HIPSOLVER_EIG_MODE_VECTOR, 202)

/* Since version 2.3. */
#define BCFG_HIPSOLVER_SINCE_2_3_CONSTANTS(CONSTANT)                                               \
    CONSTANT(HIPSOLVER_DETERMINISTIC_RESULTS, 241)                                                 \
    CONSTANT(HIPSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS, 242)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_HIPSOLVER_CONSTANTS(CONSTANT)
    BCFG_HIPSOLVER_SINCE_2_3_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table. */
#define BCFG_HIPSOLVER_SYMBOLS(REQUIRED, OPTIONAL)                                                 \
    REQUIRED(int, hipsolverCreate, (void **handle))                                                \
    REQUIRED(int, hipsolverDestroy, (void *handle))                                                \
    REQUIRED(int, hipsolverSetStream, (void *handle, void *stream))                                \
    OPTIONAL(int, hipsolverSetDeterministicMode, (void *handle, int mode))                         \
    OPTIONAL(int, hipsolverGetDeterministicMode, (void *handle, int *mode))                        \
    REQUIRED(int, hipsolverSpotrf_bufferSize,                                                      \
             (void *handle, int uplo, int n, void *a, int lda, int *bytes))                        \
    REQUIRED(int, hipsolverDpotrf_bufferSize,                                                      \
             (void *handle, int uplo, int n, void *a, int lda, int *bytes))                        \
    REQUIRED(int, hipsolverCpotrf_bufferSize,                                                      \
             (void *handle, int uplo, int n, void *a, int lda, int *bytes))                        \
    REQUIRED(int, hipsolverZpotrf_bufferSize,                                                      \
             (void *handle, int uplo, int n, void *a, int lda, int *bytes))                        \
    REQUIRED(int, hipsolverSpotrf,                                                                 \
             (void *handle, int uplo, int n, void *a, int lda, void *work, int bytes, int *info))  \
    REQUIRED(int, hipsolverDpotrf,                                                                 \
             (void *handle, int uplo, int n, void *a, int lda, void *work, int bytes, int *info))  \
    REQUIRED(int, hipsolverCpotrf,                                                                 \
             (void *handle, int uplo, int n, void *a, int lda, void *work, int bytes, int *info))  \
    REQUIRED(int, hipsolverZpotrf,                                                                 \
             (void *handle, int uplo, int n, void *a, int lda, void *work, int bytes, int *info))  \
    REQUIRED(int, hipsolverSpotrs_bufferSize,                                                      \
             (void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb,         \
              int *bytes))                                                                         \
    REQUIRED(int, hipsolverDpotrs_bufferSize,                                                      \
             (void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb,         \
              int *bytes))                                                                         \
    REQUIRED(int, hipsolverCpotrs_bufferSize,                                                      \
             (void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb,         \
              int *bytes))                                                                         \
    REQUIRED(int, hipsolverZpotrs_bufferSize,                                                      \
             (void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb,         \
              int *bytes))                                                                         \
    REQUIRED(int, hipsolverSpotrs,                                                                 \
             (void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb,         \
              void *work, int bytes, int *info))                                                   \
    REQUIRED(int, hipsolverDpotrs,                                                                 \
             (void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb,         \
              void *work, int bytes, int *info))                                                   \
    REQUIRED(int, hipsolverCpotrs,                                                                 \
             (void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb,         \
              void *work, int bytes, int *info))                                                   \
    REQUIRED(int, hipsolverZpotrs,                                                                 \
             (void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb,         \
              void *work, int bytes, int *info))                                                   \
    REQUIRED(int, hipsolverSgetrf_bufferSize,                                                      \
             (void *handle, int m, int n, void *a, int lda, int *bytes))                           \
    REQUIRED(int, hipsolverDgetrf_bufferSize,                                                      \
             (void *handle, int m, int n, void *a, int lda, int *bytes))                           \
    REQUIRED(int, hipsolverCgetrf_bufferSize,                                                      \
             (void *handle, int m, int n, void *a, int lda, int *bytes))                           \
    REQUIRED(int, hipsolverZgetrf_bufferSize,                                                      \
             (void *handle, int m, int n, void *a, int lda, int *bytes))                           \
    REQUIRED(int, hipsolverSgetrf,                                                                 \
             (void *handle, int m, int n, void *a, int lda, void *work, int bytes, int *pivots,    \
              int *info))                                                                          \
    REQUIRED(int, hipsolverDgetrf,                                                                 \
             (void *handle, int m, int n, void *a, int lda, void *work, int bytes, int *pivots,    \
              int *info))                                                                          \
    REQUIRED(int, hipsolverCgetrf,                                                                 \
             (void *handle, int m, int n, void *a, int lda, void *work, int bytes, int *pivots,    \
              int *info))                                                                          \
    REQUIRED(int, hipsolverZgetrf,                                                                 \
             (void *handle, int m, int n, void *a, int lda, void *work, int bytes, int *pivots,    \
              int *info))                                                                          \
    REQUIRED(int, hipsolverSgetrs_bufferSize,                                                      \
             (void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,    \
              int ldb, int *bytes))                                                                \
    REQUIRED(int, hipsolverDgetrs_bufferSize,                                                      \
             (void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,    \
              int ldb, int *bytes))                                                                \
    REQUIRED(int, hipsolverCgetrs_bufferSize,                                                      \
             (void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,    \
              int ldb, int *bytes))                                                                \
    REQUIRED(int, hipsolverZgetrs_bufferSize,                                                      \
             (void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,    \
              int ldb, int *bytes))                                                                \
    REQUIRED(int, hipsolverSgetrs,                                                                 \
             (void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,    \
              int ldb, void *work, int bytes, int *info))                                          \
    REQUIRED(int, hipsolverDgetrs,                                                                 \
             (void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,    \
              int ldb, void *work, int bytes, int *info))                                          \
    REQUIRED(int, hipsolverCgetrs,                                                                 \
             (void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,    \
              int ldb, void *work, int bytes, int *info))                                          \
    REQUIRED(int, hipsolverZgetrs,                                                                 \
             (void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,    \
              int ldb, void *work, int bytes, int *info))                                          \
    REQUIRED(int, hipsolverSgeqrf_bufferSize,                                                      \
             (void *handle, int m, int n, void *a, int lda, int *bytes))                           \
    REQUIRED(int, hipsolverDgeqrf_bufferSize,                                                      \
             (void *handle, int m, int n, void *a, int lda, int *bytes))                           \
    REQUIRED(int, hipsolverCgeqrf_bufferSize,                                                      \
             (void *handle, int m, int n, void *a, int lda, int *bytes))                           \
    REQUIRED(int, hipsolverZgeqrf_bufferSize,                                                      \
             (void *handle, int m, int n, void *a, int lda, int *bytes))                           \
    REQUIRED(int, hipsolverSgeqrf,                                                                 \
             (void *handle, int m, int n, void *a, int lda, void *tau, void *work, int bytes,      \
              int *info))                                                                          \
    REQUIRED(int, hipsolverDgeqrf,                                                                 \
             (void *handle, int m, int n, void *a, int lda, void *tau, void *work, int bytes,      \
              int *info))                                                                          \
    REQUIRED(int, hipsolverCgeqrf,                                                                 \
             (void *handle, int m, int n, void *a, int lda, void *tau, void *work, int bytes,      \
              int *info))                                                                          \
    REQUIRED(int, hipsolverZgeqrf,                                                                 \
             (void *handle, int m, int n, void *a, int lda, void *tau, void *work, int bytes,      \
              int *info))                                                                          \
    REQUIRED(int, hipsolverSorgqr_bufferSize,                                                      \
             (void *handle, int m, int n, int k, void *a, int lda, void *tau, int *bytes))         \
    REQUIRED(int, hipsolverDorgqr_bufferSize,                                                      \
             (void *handle, int m, int n, int k, void *a, int lda, void *tau, int *bytes))         \
    REQUIRED(int, hipsolverCungqr_bufferSize,                                                      \
             (void *handle, int m, int n, int k, void *a, int lda, void *tau, int *bytes))         \
    REQUIRED(int, hipsolverZungqr_bufferSize,                                                      \
             (void *handle, int m, int n, int k, void *a, int lda, void *tau, int *bytes))         \
    REQUIRED(int, hipsolverSorgqr,                                                                 \
             (void *handle, int m, int n, int k, void *a, int lda, void *tau, void *work,          \
              int bytes, int *info))                                                               \
    REQUIRED(int, hipsolverDorgqr,                                                                 \
             (void *handle, int m, int n, int k, void *a, int lda, void *tau, void *work,          \
              int bytes, int *info))                                                               \
    REQUIRED(int, hipsolverCungqr,                                                                 \
             (void *handle, int m, int n, int k, void *a, int lda, void *tau, void *work,          \
              int bytes, int *info))                                                               \
    REQUIRED(int, hipsolverZungqr,                                                                 \
             (void *handle, int m, int n, int k, void *a, int lda, void *tau, void *work,          \
              int bytes, int *info))                                                               \
    REQUIRED(int, hipsolverSsyevd_bufferSize,                                                      \
             (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, int *bytes))     \
    REQUIRED(int, hipsolverDsyevd_bufferSize,                                                      \
             (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, int *bytes))     \
    REQUIRED(int, hipsolverCheevd_bufferSize,                                                      \
             (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, int *bytes))     \
    REQUIRED(int, hipsolverZheevd_bufferSize,                                                      \
             (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, int *bytes))     \
    REQUIRED(int, hipsolverSsyevd,                                                                 \
             (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, void *work,      \
              int bytes, int *info))                                                               \
    REQUIRED(int, hipsolverDsyevd,                                                                 \
             (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, void *work,      \
              int bytes, int *info))                                                               \
    REQUIRED(int, hipsolverCheevd,                                                                 \
             (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, void *work,      \
              int bytes, int *info))                                                               \
    REQUIRED(int, hipsolverZheevd,                                                                 \
             (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, void *work,      \
              int bytes, int *info))                                                               \
    REQUIRED(int, hipsolverSgesvd_bufferSize,                                                      \
             (void *handle, signed char jobu, signed char jobv, int m, int n, int *bytes))         \
    REQUIRED(int, hipsolverDgesvd_bufferSize,                                                      \
             (void *handle, signed char jobu, signed char jobv, int m, int n, int *bytes))         \
    REQUIRED(int, hipsolverCgesvd_bufferSize,                                                      \
             (void *handle, signed char jobu, signed char jobv, int m, int n, int *bytes))         \
    REQUIRED(int, hipsolverZgesvd_bufferSize,                                                      \
             (void *handle, signed char jobu, signed char jobv, int m, int n, int *bytes))         \
    REQUIRED(int, hipsolverSgesvd,                                                                 \
             (void *handle, signed char jobu, signed char jobv, int m, int n, void *a, int lda,    \
              void *s, void *u, int ldu, void *v, int ldv, void *work, int bytes, void *rwork,     \
              int *info))                                                                          \
    REQUIRED(int, hipsolverDgesvd,                                                                 \
             (void *handle, signed char jobu, signed char jobv, int m, int n, void *a, int lda,    \
              void *s, void *u, int ldu, void *v, int ldv, void *work, int bytes, void *rwork,     \
              int *info))                                                                          \
    REQUIRED(int, hipsolverCgesvd,                                                                 \
             (void *handle, signed char jobu, signed char jobv, int m, int n, void *a, int lda,    \
              void *s, void *u, int ldu, void *v, int ldv, void *work, int bytes, void *rwork,     \
              int *info))                                                                          \
    REQUIRED(int, hipsolverZgesvd,                                                                 \
             (void *handle, signed char jobu, signed char jobv, int m, int n, void *a, int lda,    \
              void *s, void *u, int ldu, void *v, int ldv, void *work, int bytes, void *rwork,     \
              int *info))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_HIPSOLVER_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_hipsolver_table;

#endif
