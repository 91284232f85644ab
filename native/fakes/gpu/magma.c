/* A libmagma that computes on memory of the host. See recorded.h and factorisations.h.
 *
 * VERSION is what it says of itself: 21000 is 2.10.0. HIP makes it the build for AMD's devices, WIDE
 * the one whose integers are long long. Like MAGMA it refuses, by the place of the argument, leading
 * dimensions and workspaces that are too small, and nothing before magma_init; what fails in a function
 * without a result is only recorded.
 *
 * Settings: device, the current one; unusable, 1 for queues that come without a handle of a BLAS.
 */
#ifndef VERSION
#define VERSION 21000
#endif
#define SETTINGS SETTING(device, 0) SETTING(unusable, 0)
#include "recorded.h"

#include "decompositions.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
#ifdef HIP
#include "gpu/abi_magma_hip.h"
BCFG_MAGMA_HIP_SYMBOLS(DECLARE, DECLARE)
#define QUEUE_FROM magma_queue_create_from_hip_internal
#define BLAS_OF magma_queue_get_hipblas_handle
#else
#include "gpu/abi_magma.h"
BCFG_MAGMA_SYMBOLS(DECLARE, DECLARE)
#define QUEUE_FROM magma_queue_create_from_cuda_internal
#define BLAS_OF magma_queue_get_cublas_handle
#endif
#undef DECLARE
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

static int initialised;
static struct queue {
    void *stream;
    int device, live;
} queues[256];
enum { QUEUES = sizeof queues / sizeof *queues };

static struct queue *queue_of(void *pointer) {
    for (int at = 0; at < QUEUES; at++)
        if (pointer == &queues[at] && queues[at].live) return pointer;
    return NULL;
}
#define RECORD(function, ...)                                                                      \
    (void)recorded(function, #__VA_ARGS__, (argument[]){__VA_ARGS__});

void magma_version(int *major, int *minor, int *micro) {
    const int parts[] = {VERSION / 10000, VERSION / 100 % 100, VERSION % 100};
    int *const places[] = {major, minor, micro};
    for (int at = 0; at < 3; at++)
#ifdef WIDE
        *(long long *)(void *)places[at] = parts[at];
#else
        *places[at] = parts[at];
#endif
}

int magma_init(void) {
    ENTER("magma_init", I(initialised))
    initialised++;
    return 0;
}

void magma_getdevice(int *device) {
    RECORD("magma_getdevice", P(device))
    *device = (int)setting_device;
}

void QUEUE_FROM(int device, void *stream, void *blas, void *sparse, void **queue,
                const char *function, const char *file, int line) {
    (void)function, (void)file, (void)line;
    *queue = NULL;
    if (recorded(TEXT(QUEUE_FROM), "I(device), P(stream), P(blas), P(sparse)",
                 (argument[]){I(device), P(stream), P(blas), P(sparse)}) != 0)
        return;
    for (int at = 0; at < QUEUES && *queue == NULL; at++)
        if (!queues[at].live) {
            queues[at] = (struct queue){stream, device, 1};
            *queue = &queues[at];
        }
}

void *BLAS_OF(void *queue) { return setting_unusable ? NULL : queue_of(queue); }

void magma_queue_destroy_internal(void *queue, const char *function, const char *file, int line) {
    (void)function, (void)file, (void)line;
    RECORD("magma_queue_destroy_internal", P(queue))
    struct queue *known = queue_of(queue);
    if (known) known->live = 0;
}

void magma_queue_sync_internal(void *queue, const char *function, const char *file, int line) {
    (void)function, (void)file, (void)line;
    struct queue *known = queue_of(queue);
    void *stream = known ? known->stream : NULL;
    RECORD("magma_queue_sync_internal", P(queue), P(stream))
}

#define TRANSFER(name)                                                                             \
    void name(int n, int size, const void *from, int from_step, void *to, int to_step, void *queue,\
              const char *function, const char *file, int line) {                                  \
        (void)function, (void)file, (void)line;                                                    \
        struct queue *known = queue_of(queue);                                                     \
        void *stream = known ? known->stream : NULL;                                               \
        RECORD(#name, I(n), I(size), P(from), I(from_step), P(to), I(to_step), P(queue), P(stream))\
        if (known && from_step == 1 && to_step == 1) memcpy(to, from, (size_t)n * (size_t)size);   \
    }
TRANSFER(magma_setvector_internal)
TRANSFER(magma_getvector_internal)

/* Every function that says an info begins so. */
#define STEP(function, ...)                                                                        \
    *info = recorded(function, #__VA_ARGS__, (argument[]){__VA_ARGS__});                           \
    if (*info == 0 && !initialised) *info = BCFG_MAGMA_ERR_NOT_INITIALIZED;                        \
    if (*info != 0) return *info;
/* What an argument must be, by its place from 1. */
#define ARGUMENT(place, condition)                                                                 \
    if (!(condition)) return *info = -(place);
#define IS_FILL(uplo) (uplo == BCFG_MagmaUpper || uplo == BCFG_MagmaLower)
#define IS_LEADING(leading, rows) (leading >= ((rows) > 1 ? (rows) : 1))

static enum applied applied_of(int trans) {
    return trans == BCFG_MagmaNoTrans ? AS_IS : trans == BCFG_MagmaTrans ? TRANSPOSED : ADJOINT;
}

/* Pivots of the host, as wide as factorisations.h has them. */
static int64_t *widened(const int *pivots, int count) {
    int64_t *made = cleared(count, sizeof *made);
    for (int at = 0; at < count; at++) made[at] = pivots[at];
    return made;
}

static int least(int m, int n) { return m < n ? m : n; }

/* A number of the type of a matrix, as sizes of workspaces are said. */
static void say(void *work, int type, int count) {
    put_entry((matrix){work, type, 1}, 0, 0, count);
}

/* Workspaces are written over: what stands there must be nobody's. */
static void spoil(void *work, int type, int count) {
    if (work) memset(work, 0x7f, (size_t)count * bytes_of(type));
}

/* The functions whose parameters are the same for all types. */
#define ALIKE(prefix, q, type)                                                                     \
    int prefix##potrf_gpu(int uplo, int n, void *a, int lda, int *info) {                          \
        STEP(#prefix "potrf_gpu", I(uplo), I(n), P(a), I(lda), P(info))                            \
        ARGUMENT(1, IS_FILL(uplo)) ARGUMENT(2, n >= 0) ARGUMENT(4, IS_LEADING(lda, n))             \
        return *info = (int)factor_cholesky((matrix){a, type, lda}, uplo == BCFG_MagmaUpper, n);   \
    }                                                                                              \
    int prefix##getrf_gpu(int m, int n, void *a, int lda, int *pivots, int *info) {                \
        STEP(#prefix "getrf_gpu", I(m), I(n), P(a), I(lda), P(pivots), P(info))                    \
        ARGUMENT(1, m >= 0) ARGUMENT(2, n >= 0) ARGUMENT(4, IS_LEADING(lda, m))                    \
        int64_t *wide = cleared(least(m, n), sizeof *wide);                                        \
        *info = (int)factor_lu((matrix){a, type, lda}, m, n, wide);                                \
        for (int at = 0; at < least(m, n); at++) pivots[at] = (int)wide[at];                       \
        free(wide);                                                                                \
        return *info;                                                                              \
    }                                                                                              \
    int prefix##getrs_gpu(int trans, int n, int nrhs, void *a, int lda, int *pivots, void *b,      \
                          int ldb, int *info) {                                                    \
        STEP(#prefix "getrs_gpu", I(trans), I(n), I(nrhs), P(a), I(lda), P(pivots), P(b), I(ldb),  \
             P(info))                                                                              \
        ARGUMENT(1, trans >= BCFG_MagmaNoTrans && trans <= BCFG_MagmaConjTrans)                    \
        ARGUMENT(5, IS_LEADING(lda, n)) ARGUMENT(8, IS_LEADING(ldb, n))                            \
        int64_t *wide = widened(pivots, n);                                                        \
        solve_lu((matrix){a, type, lda}, applied_of(trans), n, wide, (matrix){b, type, ldb},       \
                 nrhs);                                                                            \
        free(wide);                                                                                \
        return 0;                                                                                  \
    }                                                                                              \
    int prefix##geqrf2_gpu(int m, int n, void *a, int lda, void *tau, int *info) {                 \
        STEP(#prefix "geqrf2_gpu", I(m), I(n), P(a), I(lda), P(tau), P(info))                      \
        ARGUMENT(4, IS_LEADING(lda, m))                                                            \
        factor_qr((matrix){a, type, lda}, m, n, tau);                                              \
        return 0;                                                                                  \
    }                                                                                              \
    int prefix##q(int m, int n, int k, void *a, int lda, void *tau, int *info) {                   \
        STEP(#prefix #q, I(m), I(n), I(k), P(a), I(lda), P(tau), P(info))                          \
        ARGUMENT(2, n <= m) ARGUMENT(3, k <= n) ARGUMENT(5, IS_LEADING(lda, m))                    \
        generate_q((matrix){a, type, lda}, tau, m, n, k);                                          \
        return 0;                                                                                  \
    }
ALIKE(magma_s, orgqr2, 0)
ALIKE(magma_d, orgqr2, 1)
ALIKE(magma_c, ungqr2, 4)
ALIKE(magma_z, ungqr2, 5)

#define TRSM(name, type, scalar, ...)                                                              \
    void name(int side, int uplo, int trans, int diagonal, int m, int n, scalar alpha,             \
              const void *a, int lda, void *b, int ldb, void *queue) {                             \
        struct queue *known = queue_of(queue);                                                     \
        void *stream = known ? known->stream : NULL;                                               \
        RECORD(#name, I(side), I(uplo), I(trans), I(diagonal), I(m), I(n), P(a), I(lda), P(b),     \
               I(ldb), P(stream))                                                                  \
        static const scalar one = {__VA_ARGS__};                                                   \
        if (!known || memcmp(&alpha, &one, sizeof one) != 0 || side != BCFG_MagmaLeft) return;     \
        solve_triangular((matrix){(void *)(uintptr_t)a, type, lda}, uplo == BCFG_MagmaUpper,       \
                         applied_of(trans), diagonal != BCFG_MagmaNonUnit, 0, m,                   \
                         (matrix){b, type, ldb}, n);                                               \
    }
TRSM(magma_strsm, 0, float, 1)
TRSM(magma_dtrsm, 1, double, 1)
TRSM(magma_ctrsm, 4, bcfg_complex64, 1, 0)
TRSM(magma_ztrsm, 5, bcfg_complex128, 1, 0)

/* What syevd and heevd need: MAGMA's minima, with blocks of 32. */
static int eigh_needs(int vectors, int n) {
    return n <= 1 ? 1 : vectors ? 2 * n + n * n + 32 * n : n + 32 * n;
}
static int eigh_integers(int vectors, int n) { return n <= 1 || !vectors ? 1 : 3 + 5 * n; }
static int eigh_reals(int vectors, int n) {
    return n <= 1 ? 1 : vectors ? 1 + 5 * n + 2 * n * n : n;
}

#define EIGH_BEGINS(type)                                                                          \
    int vectors = jobz == BCFG_MagmaVec;                                                           \
    ARGUMENT(1, vectors || jobz == BCFG_MagmaNoVec) ARGUMENT(2, IS_FILL(uplo))                     \
    ARGUMENT(5, IS_LEADING(lda, n)) ARGUMENT(8, IS_LEADING(host_lda, n))                           \
    say(work, type, eigh_needs(vectors, n));                                                       \
    *iwork = eigh_integers(vectors, n);
#define EIGH_COMPUTES(type)                                                                        \
    ARGUMENT(10, lwork >= eigh_needs(vectors, n))                                                  \
    spoil(work, type, lwork);                                                                      \
    spoil(host_a, type, n * n);                                                                    \
    return *info = (int)decompose_hermitian((matrix){a, type, lda}, uplo == BCFG_MagmaUpper, n,    \
                                            vectors, w);
#define EIGH_REAL(name, type)                                                                      \
    int name(int jobz, int uplo, int n, void *a, int lda, void *w, void *host_a, int host_lda,     \
             void *work, int lwork, int *iwork, int liwork, int *info) {                           \
        STEP(#name, I(jobz), I(uplo), I(n), P(a), I(lda), P(w), P(host_a), I(host_lda), P(work),   \
             I(lwork), P(iwork), I(liwork), P(info))                                               \
        EIGH_BEGINS(type)                                                                          \
        if (lwork == -1) return 0;                                                                 \
        ARGUMENT(12, liwork >= eigh_integers(vectors, n))                                          \
        EIGH_COMPUTES(type)                                                                        \
    }
#define EIGH_COMPLEX(name, type)                                                                   \
    int name(int jobz, int uplo, int n, void *a, int lda, void *w, void *host_a, int host_lda,     \
             void *work, int lwork, void *rwork, int lrwork, int *iwork, int liwork, int *info) {  \
        STEP(#name, I(jobz), I(uplo), I(n), P(a), I(lda), P(w), P(host_a), I(host_lda), P(work),   \
             I(lwork), P(rwork), I(lrwork), P(iwork), I(liwork), P(info))                          \
        EIGH_BEGINS(type)                                                                          \
        say(rwork, real_of(type), eigh_reals(vectors, n));                                         \
        if (lwork == -1) return 0;                                                                 \
        ARGUMENT(12, lrwork >= eigh_reals(vectors, n))                                             \
        ARGUMENT(14, liwork >= eigh_integers(vectors, n))                                          \
        spoil(rwork, real_of(type), lrwork);                                                       \
        EIGH_COMPUTES(type)                                                                        \
    }
EIGH_REAL(magma_ssyevd_gpu, 0)
EIGH_REAL(magma_dsyevd_gpu, 1)
EIGH_COMPLEX(magma_cheevd_gpu, 4)
EIGH_COMPLEX(magma_zheevd_gpu, 5)

static int svd_needs(int m, int n) { return 4 * n * n + 7 * n + 32 * (m + n); }

#define SVD_COMPUTES(type)                                                                         \
    int all = jobz == BCFG_MagmaAllVec, some = jobz == BCFG_MagmaSomeVec, few = least(m, n);       \
    ARGUMENT(1, all || some || jobz == BCFG_MagmaNoVec) ARGUMENT(5, IS_LEADING(lda, m))            \
    ARGUMENT(8, ldu >= 1 && (!(all || some) || ldu >= m))                                          \
    ARGUMENT(10, ldvt >= 1 && (!all || ldvt >= n) && (!some || ldvt >= few))                       \
    if (lwork == -1) {                                                                             \
        say(work, type, svd_needs(m, n));                                                          \
        return 0;                                                                                  \
    }                                                                                              \
    ARGUMENT(12, lwork >= svd_needs(m, n))                                                         \
    spoil(work, type, lwork);                                                                      \
    memset(iwork, 0x7f, 8 * (size_t)few * sizeof *iwork);                                          \
    *info = (int)decompose_singular((matrix){a, type, lda}, m, n, s, (matrix){u, type, ldu},       \
                                    all ? m : some ? few : 0, (matrix){vt, type, ldvt},            \
                                    all ? n : some ? few : 0);                                     \
    spoil(a, type, m * n);                                                                         \
    return *info;
#define SVD_REAL(name, type)                                                                       \
    int name(int jobz, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *vt,        \
             int ldvt, void *work, int lwork, int *iwork, int *info) {                             \
        STEP(#name, I(jobz), I(m), I(n), P(a), I(lda), P(s), P(u), I(ldu), P(vt), I(ldvt),         \
             P(work), I(lwork), P(iwork), P(info))                                                 \
        SVD_COMPUTES(type)                                                                         \
    }
#define SVD_COMPLEX(name, type)                                                                    \
    int name(int jobz, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *vt,        \
             int ldvt, void *work, int lwork, void *rwork, int *iwork, int *info) {                \
        STEP(#name, I(jobz), I(m), I(n), P(a), I(lda), P(s), P(u), I(ldu), P(vt), I(ldvt),         \
             P(work), I(lwork), P(rwork), P(iwork), P(info))                                       \
        int narrow = 5 * least(m, n) * (least(m, n) + 1), wide = 2 * m * n + 2 * n * n + n;        \
        if (lwork != -1) spoil(rwork, real_of(type), narrow > wide ? narrow : wide);               \
        SVD_COMPUTES(type)                                                                         \
    }
SVD_REAL(magma_sgesdd, 0)
SVD_REAL(magma_dgesdd, 1)
SVD_COMPLEX(magma_cgesdd, 4)
SVD_COMPLEX(magma_zgesdd, 5)
