/* abi_magma.h - what we use of MAGMA, libmagma.so: a build for CUDA, and one for HIP.
 *
 * Source: magma_types.h, magma_auxiliary.h, magma_copy.h, magma_z.h and magmablas_z.h of MAGMA 2.10
 * (icl-utk-edu/magma c64e52a); those of the other types are generated from the last two.
 * `native/abi/check.py` compares this file with the vendor's headers. Queues are `void *`, and so are
 * arrays of numbers, which the letter in a function's name says the type of; enumerations are int.
 *
 * The trap: built with MAGMA_ILP64, all integers are `long long` under the same names.
 * magma_version writes three of them, and so tells (library.c).
 */
#ifndef BACKENDCFG_DEVICE_ABI_MAGMA_H
#define BACKENDCFG_DEVICE_ABI_MAGMA_H

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_MAGMA_ERROR_CONSTANTS(CONSTANT)                                                       \
    CONSTANT(MAGMA_ERR, -100)                                                                      \
    CONSTANT(MAGMA_ERR_NOT_INITIALIZED, -101)                                                      \
    CONSTANT(MAGMA_ERR_REINITIALIZED, -102)                                                        \
    CONSTANT(MAGMA_ERR_NOT_SUPPORTED, -103)                                                        \
    CONSTANT(MAGMA_ERR_ILLEGAL_VALUE, -104)                                                        \
    CONSTANT(MAGMA_ERR_NOT_FOUND, -105)                                                            \
    CONSTANT(MAGMA_ERR_ALLOCATION, -106)                                                           \
    CONSTANT(MAGMA_ERR_INTERNAL_LIMIT, -107)                                                       \
    CONSTANT(MAGMA_ERR_UNALLOCATED, -108)                                                          \
    CONSTANT(MAGMA_ERR_FILESYSTEM, -109)                                                           \
    CONSTANT(MAGMA_ERR_UNEXPECTED, -110)                                                           \
    CONSTANT(MAGMA_ERR_SEQUENCE_FLUSHED, -111)                                                     \
    CONSTANT(MAGMA_ERR_HOST_ALLOC, -112)                                                           \
    CONSTANT(MAGMA_ERR_DEVICE_ALLOC, -113)                                                         \
    CONSTANT(MAGMA_ERR_CUDASTREAM, -114)                                                           \
    CONSTANT(MAGMA_ERR_INVALID_PTR, -115)                                                          \
    CONSTANT(MAGMA_ERR_UNKNOWN, -116)                                                              \
    CONSTANT(MAGMA_ERR_NOT_IMPLEMENTED, -117)                                                      \
    CONSTANT(MAGMA_ERR_NAN, -118)
#define BCFG_MAGMA_CONSTANTS(CONSTANT)                                                             \
    CONSTANT(MAGMA_SUCCESS, 0)                                                                     \
    CONSTANT(MagmaNoTrans, 111)                                                                    \
    CONSTANT(MagmaTrans, 112)                                                                      \
    CONSTANT(MagmaConjTrans, 113)                                                                  \
    CONSTANT(MagmaUpper, 121)                                                                      \
    CONSTANT(MagmaLower, 122)                                                                      \
    CONSTANT(MagmaNonUnit, 131)                                                                    \
    CONSTANT(MagmaLeft, 141)                                                                       \
    CONSTANT(MagmaNoVec, 301)                                                                      \
    CONSTANT(MagmaVec, 302)                                                                        \
    CONSTANT(MagmaAllVec, 304)                                                                     \
    CONSTANT(MagmaSomeVec, 305)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_MAGMA_CONSTANTS(CONSTANT)
    BCFG_MAGMA_ERROR_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* Scalars are passed by value. */
typedef struct {
    float real, imaginary;
} bcfg_magma_complex64;
typedef struct {
    double real, imaginary;
} bcfg_magma_complex128;

/* REQUIRED(result, name, parameters). */
#define BCFG_MAGMA_SYMBOLS(REQUIRED)                                                               \
    REQUIRED(void, magma_version, (int *major, int *minor, int *micro))                            \
    REQUIRED(int, magma_init, (void))                                                              \
    REQUIRED(void, magma_getdevice, (int *device))                                                 \
    REQUIRED(void, magma_queue_destroy_internal,                                                   \
             (void *queue, const char *function, const char *file, int line))                      \
    REQUIRED(void, magma_queue_sync_internal,                                                      \
             (void *queue, const char *function, const char *file, int line))                      \
    REQUIRED(void, magma_setvector_internal,                                                       \
             (int n, int size, const void *from, int from_step, void *to, int to_step,             \
              void *queue, const char *function, const char *file, int line))                      \
    REQUIRED(void, magma_getvector_internal,                                                       \
             (int n, int size, const void *from, int from_step, void *to, int to_step,             \
              void *queue, const char *function, const char *file, int line))                      \
    REQUIRED(int, magma_spotrf_gpu, (int uplo, int n, void *a, int lda, int *info))                \
    REQUIRED(int, magma_dpotrf_gpu, (int uplo, int n, void *a, int lda, int *info))                \
    REQUIRED(int, magma_cpotrf_gpu, (int uplo, int n, void *a, int lda, int *info))                \
    REQUIRED(int, magma_zpotrf_gpu, (int uplo, int n, void *a, int lda, int *info))                \
    REQUIRED(void, magma_strsm,                                                                    \
             (int side, int uplo, int trans, int diagonal, int m, int n, float alpha,              \
              const void *a, int lda, void *b, int ldb, void *queue))                              \
    REQUIRED(void, magma_dtrsm,                                                                    \
             (int side, int uplo, int trans, int diagonal, int m, int n, double alpha,             \
              const void *a, int lda, void *b, int ldb, void *queue))                              \
    REQUIRED(void, magma_ctrsm,                                                                    \
             (int side, int uplo, int trans, int diagonal, int m, int n,                           \
              bcfg_magma_complex64 alpha, const void *a, int lda, void *b, int ldb, void *queue))  \
    REQUIRED(void, magma_ztrsm,                                                                    \
             (int side, int uplo, int trans, int diagonal, int m, int n,                           \
              bcfg_magma_complex128 alpha, const void *a, int lda, void *b, int ldb,               \
              void *queue))                                                                        \
    REQUIRED(int, magma_sgetrf_gpu, (int m, int n, void *a, int lda, int *pivots, int *info))      \
    REQUIRED(int, magma_dgetrf_gpu, (int m, int n, void *a, int lda, int *pivots, int *info))      \
    REQUIRED(int, magma_cgetrf_gpu, (int m, int n, void *a, int lda, int *pivots, int *info))      \
    REQUIRED(int, magma_zgetrf_gpu, (int m, int n, void *a, int lda, int *pivots, int *info))      \
    REQUIRED(int, magma_sgetrs_gpu,                                                                \
             (int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b, int ldb,         \
              int *info))                                                                          \
    REQUIRED(int, magma_dgetrs_gpu,                                                                \
             (int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b, int ldb,         \
              int *info))                                                                          \
    REQUIRED(int, magma_cgetrs_gpu,                                                                \
             (int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b, int ldb,         \
              int *info))                                                                          \
    REQUIRED(int, magma_zgetrs_gpu,                                                                \
             (int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b, int ldb,         \
              int *info))                                                                          \
    REQUIRED(int, magma_sgeqrf2_gpu, (int m, int n, void *a, int lda, void *tau, int *info))       \
    REQUIRED(int, magma_dgeqrf2_gpu, (int m, int n, void *a, int lda, void *tau, int *info))       \
    REQUIRED(int, magma_cgeqrf2_gpu, (int m, int n, void *a, int lda, void *tau, int *info))       \
    REQUIRED(int, magma_zgeqrf2_gpu, (int m, int n, void *a, int lda, void *tau, int *info))       \
    REQUIRED(int, magma_sorgqr2, (int m, int n, int k, void *a, int lda, void *tau, int *info))    \
    REQUIRED(int, magma_dorgqr2, (int m, int n, int k, void *a, int lda, void *tau, int *info))    \
    REQUIRED(int, magma_cungqr2, (int m, int n, int k, void *a, int lda, void *tau, int *info))    \
    REQUIRED(int, magma_zungqr2, (int m, int n, int k, void *a, int lda, void *tau, int *info))    \
    REQUIRED(int, magma_ssyevd_gpu,                                                                \
             (int jobz, int uplo, int n, void *a, int lda, void *w, void *host_a, int host_lda,    \
              void *work, int lwork, int *iwork, int liwork, int *info))                           \
    REQUIRED(int, magma_dsyevd_gpu,                                                                \
             (int jobz, int uplo, int n, void *a, int lda, void *w, void *host_a, int host_lda,    \
              void *work, int lwork, int *iwork, int liwork, int *info))                           \
    REQUIRED(int, magma_cheevd_gpu,                                                                \
             (int jobz, int uplo, int n, void *a, int lda, void *w, void *host_a, int host_lda,    \
              void *work, int lwork, void *rwork, int lrwork, int *iwork, int liwork, int *info))  \
    REQUIRED(int, magma_zheevd_gpu,                                                                \
             (int jobz, int uplo, int n, void *a, int lda, void *w, void *host_a, int host_lda,    \
              void *work, int lwork, void *rwork, int lrwork, int *iwork, int liwork, int *info))  \
    REQUIRED(int, magma_sgesdd,                                                                    \
             (int jobz, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *vt,       \
              int ldvt, void *work, int lwork, int *iwork, int *info))                             \
    REQUIRED(int, magma_dgesdd,                                                                    \
             (int jobz, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *vt,       \
              int ldvt, void *work, int lwork, int *iwork, int *info))                             \
    REQUIRED(int, magma_cgesdd,                                                                    \
             (int jobz, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *vt,       \
              int ldvt, void *work, int lwork, void *rwork, int *iwork, int *info))                \
    REQUIRED(int, magma_zgesdd,                                                                    \
             (int jobz, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *vt,       \
              int ldvt, void *work, int lwork, void *rwork, int *iwork, int *info))

/* Those that tell the builds apart. */
#define BCFG_MAGMA_CUDA_SYMBOLS(REQUIRED)                                                          \
    REQUIRED(void, magma_queue_create_from_cuda_internal,                                          \
             (int device, void *stream, void *cublas, void *cusparse, void **queue,                \
              const char *function, const char *file, int line))                                   \
    REQUIRED(void *, magma_queue_get_cublas_handle, (void *queue))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_MAGMA_SYMBOLS(MEMBER)
    BCFG_MAGMA_CUDA_SYMBOLS(MEMBER)
#undef MEMBER
} bcfg_magma_table;

#endif
