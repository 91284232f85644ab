/* A libhipsolver that computes on memory of the host. See recorded.h and factorisations.h.
 *
 * Like hipSOLVER it refuses the numbers of cuSOLVER, leading dimensions that are too small and a
 * workspace that is smaller than it said. Sizes are bytes. A step's record ends with the state of its
 * handle: stream, deterministic. OLD leaves out what came with version 2.3.
 */
#define SETTINGS
#include "recorded.h"

#include "decompositions.h"
#include "gpu/abi_hipsolver.h"

#ifdef OLD
#define NEWER(result, name, parameters)
#else
#define NEWER(result, name, parameters) API result name parameters;
#endif
/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_HIPSOLVER_SYMBOLS(DECLARE, NEWER)
#undef DECLARE

#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_HIPSOLVER_STATUS_##code;

static struct solver {
    void *stream;
    int deterministic, live;
} solvers[256];
enum { SOLVERS = sizeof solvers / sizeof *solvers };

static struct solver *solver_of(void *pointer) {
    for (int at = 0; at < SOLVERS; at++)
        if (pointer == &solvers[at] && solvers[at].live) return pointer;
    return NULL;
}
#define HANDLE(pointer)                                                                            \
    struct solver *known = solver_of(pointer);                                                     \
    NEED(known, NOT_INITIALIZED)

int hipsolverCreate(void **handle) {
    ENTER("hipsolverCreate", P(handle))
    for (int at = 0; at < SOLVERS; at++)
        if (!solvers[at].live) {
            solvers[at] = (struct solver){
                .live = 1, .deterministic = BCFG_HIPSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS};
            *handle = &solvers[at];
            return 0;
        }
    return BCFG_HIPSOLVER_STATUS_ALLOC_FAILED;
}

int hipsolverDestroy(void *handle) {
    ENTER("hipsolverDestroy", P(handle))
    HANDLE(handle)
    known->live = 0;
    return 0;
}

int hipsolverSetStream(void *handle, void *stream) {
    ENTER("hipsolverSetStream", P(handle), P(stream))
    HANDLE(handle)
    known->stream = stream;
    return 0;
}

#ifndef OLD
int hipsolverSetDeterministicMode(void *handle, int mode) {
    ENTER("hipsolverSetDeterministicMode", P(handle), I(mode))
    HANDLE(handle)
    NEED(mode == BCFG_HIPSOLVER_DETERMINISTIC_RESULTS ||
             mode == BCFG_HIPSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS, INVALID_ENUM)
    known->deterministic = mode;
    return 0;
}

int hipsolverGetDeterministicMode(void *handle, int *mode) {
    ENTER("hipsolverGetDeterministicMode", P(handle), P(mode))
    HANDLE(handle)
    *mode = known->deterministic;
    return 0;
}
#endif

/* Every step begins so: it is recorded with the state of its handle. */
#define STEP(function, ...)                                                                        \
    struct solver *known = solver_of(handle);                                                      \
    void *stream = known ? known->stream : NULL;                                                   \
    int deterministic = known ? known->deterministic : 0;                                          \
    int status = recorded(function, #__VA_ARGS__ ", P(stream), I(deterministic)",                  \
                          (argument[]){__VA_ARGS__, P(stream), I(deterministic)});                 \
    if (status != 0) return status;                                                                \
    NEED(known, NOT_INITIALIZED)
#define MATRIX(rows, leading)                                                                      \
    NEED((rows) >= 0 && (leading) >= ((rows) > 1 ? (rows) : 1), INVALID_VALUE)
#define FILL NEED(uplo == BCFG_HIPSOLVER_FILL_MODE_UPPER ||                                        \
                      uplo == BCFG_HIPSOLVER_FILL_MODE_LOWER, INVALID_ENUM)
#define IS_UPPER (uplo == BCFG_HIPSOLVER_FILL_MODE_UPPER)
#define MODE NEED(jobz == BCFG_HIPSOLVER_EIG_MODE_NOVECTOR ||                                      \
                      jobz == BCFG_HIPSOLVER_EIG_MODE_VECTOR, INVALID_ENUM)
/* What each step needs, so that too little shows; workspaces are written over. */
#define NEEDS(count, type) ((int)(count) * (int)bytes_of(type) + 16)
#define SAY(count, type)                                                                           \
    *bytes = NEEDS(count, type);                                                                   \
    return 0;
#define GIVEN(count, type)                                                                         \
    NEED(work && bytes >= NEEDS(count, type) && info, INVALID_VALUE)                               \
    memset(work, 0x7f, (size_t)bytes);                                                             \
    *info = 0;

static enum applied applied_of(int trans) {
    return trans == BCFG_HIPSOLVER_OP_N   ? AS_IS
           : trans == BCFG_HIPSOLVER_OP_T ? TRANSPOSED
                                          : ADJOINT;
}

static int64_t *widened(const int *pivots, int count) {
    int64_t *made = cleared(count, sizeof *made);
    for (int at = 0; at < count; at++) made[at] = pivots[at];
    return made;
}

static int least(int m, int n) { return m < n ? m : n; }

#define CHOLESKY(prefix, type)                                                                     \
    int prefix##potrf_bufferSize(void *handle, int uplo, int n, void *a, int lda, int *bytes) {    \
        STEP(#prefix "potrf_bufferSize", P(handle), I(uplo), I(n), P(a), I(lda))                   \
        FILL MATRIX(n, lda) SAY(n, type)                                                           \
    }                                                                                              \
    int prefix##potrf(void *handle, int uplo, int n, void *a, int lda, void *work, int bytes,      \
                      int *info) {                                                                 \
        STEP(#prefix "potrf", P(handle), I(uplo), I(n), P(a), I(lda), P(work), I(bytes), P(info))  \
        FILL MATRIX(n, lda) GIVEN(n, type)                                                         \
        *info = (int)factor_cholesky((matrix){a, type, lda}, IS_UPPER, n);                         \
        return 0;                                                                                  \
    }                                                                                              \
    int prefix##potrs_bufferSize(void *handle, int uplo, int n, int nrhs, void *a, int lda,        \
                                 void *b, int ldb, int *bytes) {                                   \
        STEP(#prefix "potrs_bufferSize", P(handle), I(uplo), I(n), I(nrhs), P(a), I(lda), P(b),    \
             I(ldb))                                                                               \
        FILL MATRIX(n, lda) MATRIX(n, ldb) SAY(n * nrhs, type)                                     \
    }                                                                                              \
    int prefix##potrs(void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb, \
                      void *work, int bytes, int *info) {                                          \
        STEP(#prefix "potrs", P(handle), I(uplo), I(n), I(nrhs), P(a), I(lda), P(b), I(ldb),       \
             P(work), I(bytes), P(info))                                                           \
        FILL MATRIX(n, lda) MATRIX(n, ldb) GIVEN(n *nrhs, type)                                    \
        solve_cholesky((matrix){a, type, lda}, IS_UPPER, n, (matrix){b, type, ldb}, nrhs);         \
        return 0;                                                                                  \
    }
CHOLESKY(hipsolverS, 0)
CHOLESKY(hipsolverD, 1)
CHOLESKY(hipsolverC, 4)
CHOLESKY(hipsolverZ, 5)

#define LU(prefix, type)                                                                           \
    int prefix##getrf_bufferSize(void *handle, int m, int n, void *a, int lda, int *bytes) {       \
        STEP(#prefix "getrf_bufferSize", P(handle), I(m), I(n), P(a), I(lda))                      \
        MATRIX(m, lda) SAY(m * n, type)                                                            \
    }                                                                                              \
    int prefix##getrf(void *handle, int m, int n, void *a, int lda, void *work, int bytes,         \
                      int *pivots, int *info) {                                                    \
        STEP(#prefix "getrf", P(handle), I(m), I(n), P(a), I(lda), P(work), I(bytes), P(pivots),   \
             P(info))                                                                              \
        MATRIX(m, lda) GIVEN(m *n, type)                                                           \
        int64_t *wide = cleared(least(m, n), sizeof *wide);                                        \
        *info = (int)factor_lu((matrix){a, type, lda}, m, n, wide);                                \
        for (int at = 0; at < least(m, n); at++) pivots[at] = (int)wide[at];                       \
        free(wide);                                                                                \
        return 0;                                                                                  \
    }                                                                                              \
    int prefix##getrs_bufferSize(void *handle, int trans, int n, int nrhs, void *a, int lda,       \
                                 int *pivots, void *b, int ldb, int *bytes) {                      \
        STEP(#prefix "getrs_bufferSize", P(handle), I(trans), I(n), I(nrhs), P(a), I(lda),         \
             P(pivots), P(b), I(ldb))                                                              \
        NEED(trans >= BCFG_HIPSOLVER_OP_N && trans <= BCFG_HIPSOLVER_OP_C, INVALID_ENUM)           \
        MATRIX(n, lda) MATRIX(n, ldb) SAY(n * nrhs, type)                                          \
    }                                                                                              \
    int prefix##getrs(void *handle, int trans, int n, int nrhs, void *a, int lda, int *pivots,     \
                      void *b, int ldb, void *work, int bytes, int *info) {                        \
        STEP(#prefix "getrs", P(handle), I(trans), I(n), I(nrhs), P(a), I(lda), P(pivots), P(b),   \
             I(ldb), P(work), I(bytes), P(info))                                                   \
        NEED(trans >= BCFG_HIPSOLVER_OP_N && trans <= BCFG_HIPSOLVER_OP_C, INVALID_ENUM)           \
        MATRIX(n, lda) MATRIX(n, ldb) GIVEN(n *nrhs, type)                                         \
        for (int at = 0; at < n; at++) NEED(pivots[at] >= 1 && pivots[at] <= n, INTERNAL_ERROR)    \
        int64_t *wide = widened(pivots, n);                                                        \
        solve_lu((matrix){a, type, lda}, applied_of(trans), n, wide, (matrix){b, type, ldb},       \
                 nrhs);                                                                            \
        free(wide);                                                                                \
        return 0;                                                                                  \
    }
LU(hipsolverS, 0)
LU(hipsolverD, 1)
LU(hipsolverC, 4)
LU(hipsolverZ, 5)

#define QR(prefix, q, type)                                                                        \
    int prefix##geqrf_bufferSize(void *handle, int m, int n, void *a, int lda, int *bytes) {       \
        STEP(#prefix "geqrf_bufferSize", P(handle), I(m), I(n), P(a), I(lda))                      \
        MATRIX(m, lda) SAY(n, type)                                                                \
    }                                                                                              \
    int prefix##geqrf(void *handle, int m, int n, void *a, int lda, void *tau, void *work,         \
                      int bytes, int *info) {                                                      \
        STEP(#prefix "geqrf", P(handle), I(m), I(n), P(a), I(lda), P(tau), P(work), I(bytes),      \
             P(info))                                                                              \
        MATRIX(m, lda) GIVEN(n, type)                                                              \
        factor_qr((matrix){a, type, lda}, m, n, tau);                                              \
        return 0;                                                                                  \
    }                                                                                              \
    int prefix##q##_bufferSize(void *handle, int m, int n, int k, void *a, int lda, void *tau,     \
                               int *bytes) {                                                       \
        STEP(#prefix #q "_bufferSize", P(handle), I(m), I(n), I(k), P(a), I(lda), P(tau))          \
        MATRIX(m, lda) NEED(n <= m && k <= n, INVALID_VALUE) SAY(n, type)                          \
    }                                                                                              \
    int prefix##q(void *handle, int m, int n, int k, void *a, int lda, void *tau, void *work,      \
                  int bytes, int *info) {                                                          \
        STEP(#prefix #q, P(handle), I(m), I(n), I(k), P(a), I(lda), P(tau), P(work), I(bytes),     \
             P(info))                                                                              \
        MATRIX(m, lda) NEED(n <= m && k <= n, INVALID_VALUE) GIVEN(n, type)                        \
        generate_q((matrix){a, type, lda}, tau, m, n, k);                                          \
        return 0;                                                                                  \
    }
QR(hipsolverS, orgqr, 0)
QR(hipsolverD, orgqr, 1)
QR(hipsolverC, ungqr, 4)
QR(hipsolverZ, ungqr, 5)

#define EIGH(name, type)                                                                           \
    int name##_bufferSize(void *handle, int jobz, int uplo, int n, void *a, int lda, void *w,      \
                          int *bytes) {                                                            \
        STEP(#name "_bufferSize", P(handle), I(jobz), I(uplo), I(n), P(a), I(lda), P(w))           \
        MODE FILL MATRIX(n, lda) SAY(2 * n, type)                                                  \
    }                                                                                              \
    int name(void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, void *work,       \
             int bytes, int *info) {                                                               \
        STEP(#name, P(handle), I(jobz), I(uplo), I(n), P(a), I(lda), P(w), P(work), I(bytes),      \
             P(info))                                                                              \
        MODE FILL MATRIX(n, lda) GIVEN(2 * n, type)                                                \
        *info = (int)decompose_hermitian((matrix){a, type, lda}, IS_UPPER, n,                      \
                                         jobz == BCFG_HIPSOLVER_EIG_MODE_VECTOR, w);               \
        return 0;                                                                                  \
    }
EIGH(hipsolverSsyevd, 0)
EIGH(hipsolverDsyevd, 1)
EIGH(hipsolverCheevd, 4)
EIGH(hipsolverZheevd, 5)

#define SVD(name, type)                                                                            \
    int name##_bufferSize(void *handle, signed char jobu, signed char jobv, int m, int n,          \
                          int *bytes) {                                                            \
        STEP(#name "_bufferSize", P(handle), I(jobu), I(jobv), I(m), I(n))                         \
        SAY(m * n, type)                                                                           \
    }                                                                                              \
    int name(void *handle, signed char jobu, signed char jobv, int m, int n, void *a, int lda,     \
             void *s, void *u, int ldu, void *v, int ldv, void *work, int bytes, void *rwork,      \
             int *info) {                                                                          \
        STEP(#name, P(handle), I(jobu), I(jobv), I(m), I(n), P(a), I(lda), P(s), P(u), I(ldu),     \
             P(v), I(ldv), P(work), I(bytes), P(rwork), P(info))                                   \
        int all = jobu == 'A', some = jobu == 'S', few = least(m, n);                              \
        NEED(jobu == jobv && (all || some || jobu == 'N'), INVALID_VALUE)                          \
        NEED(jobu == 'N' || (ldu >= m && ldv >= (all ? n : few)), INVALID_VALUE)                   \
        MATRIX(m, lda) GIVEN(m *n, type)                                                           \
        *info = (int)decompose_singular((matrix){a, type, lda}, m, n, s, (matrix){u, type, ldu},   \
                                        all ? m : some ? few : 0, (matrix){v, type, ldv},          \
                                        all ? n : some ? few : 0);                                 \
        for (int at = 0; at < n; at++) /* a is lost */                                             \
            memset((char *)a + (size_t)at * (size_t)lda * bytes_of(type), 0x7f,                    \
                   (size_t)m * bytes_of(type));                                                    \
        return 0;                                                                                  \
    }
SVD(hipsolverSgesvd, 0)
SVD(hipsolverDgesvd, 1)
SVD(hipsolverCgesvd, 4)
SVD(hipsolverZgesvd, 5)
