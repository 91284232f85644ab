/* A libcusolver that computes on memory of the host. See recorded.h and factorisations.h.
 *
 * VERSION is what it says of itself: 120401 is 12.4.1. Like cuSOLVER, it refuses a leading dimension
 * that is too small, types that differ, a workspace that is smaller than it said, and singular values
 * of a matrix with more columns than rows. A step's record ends with the state of its handle: stream,
 * deterministic. OLD leaves out what came with CUDA 12.2 and later.
 *
 * Settings: host_bytes, the workspace on the host that it asks for.
 */
#ifndef VERSION
#define VERSION 120401
#endif
#define SETTINGS SETTING(host_bytes, 24)
#include "recorded.h"

#include "decompositions.h"
#include "stacks.h"
#include "gpu/abi_cublas.h"
#include "gpu/abi_cusolver.h"

#ifdef OLD
#define NEWER(result, name, parameters)
#else
#define NEWER(result, name, parameters) API result name parameters;
#endif
/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_CUSOLVER_SYMBOLS(DECLARE, NEWER)
#undef DECLARE

#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_CUSOLVER_STATUS_##code;

static struct solver {
    void *stream;
    int deterministic, live;
} solvers[256];
static int parameters[256];
enum { SOLVERS = sizeof solvers / sizeof *solvers };

static struct solver *solver_of(void *pointer) {
    for (int at = 0; at < SOLVERS; at++)
        if (pointer == &solvers[at] && solvers[at].live) return pointer;
    return NULL;
}

static int is_known(void *params) {
    for (int at = 0; at < SOLVERS; at++)
        if (params == &parameters[at] && parameters[at]) return 1;
    return 0;
}

int cusolverDnCreate(void **handle) {
    ENTER("cusolverDnCreate", P(handle))
    for (int at = 0; at < SOLVERS; at++)
        if (!solvers[at].live) {
            solvers[at] =
                (struct solver){.live = 1, .deterministic = BCFG_CUSOLVER_DETERMINISTIC_RESULTS};
            *handle = &solvers[at];
            return 0;
        }
    return BCFG_CUSOLVER_STATUS_ALLOC_FAILED;
}

int cusolverDnDestroy(void *handle) {
    ENTER("cusolverDnDestroy", P(handle))
    struct solver *known = solver_of(handle);
    NEED(known, NOT_INITIALIZED)
    known->live = 0;
    return 0;
}

int cusolverDnSetStream(void *handle, void *stream) {
    ENTER("cusolverDnSetStream", P(handle), P(stream))
    struct solver *known = solver_of(handle);
    NEED(known, NOT_INITIALIZED)
    known->stream = stream;
    return 0;
}

int cusolverGetProperty(int property, int *value) {
    ENTER("cusolverGetProperty", I(property), P(value))
    const int parts[] = {VERSION / 10000, VERSION / 100 % 100, VERSION % 100};
    NEED(property >= 0 && property < 3, INVALID_VALUE)
    *value = parts[property];
    return 0;
}

int cusolverDnCreateParams(void **params) {
    ENTER("cusolverDnCreateParams", P(params))
    for (int at = 0; at < SOLVERS; at++)
        if (!parameters[at]) {
            parameters[at] = 1;
            *params = &parameters[at];
            return 0;
        }
    return BCFG_CUSOLVER_STATUS_ALLOC_FAILED;
}

int cusolverDnDestroyParams(void *params) {
    ENTER("cusolverDnDestroyParams", P(params))
    NEED(is_known(params), INVALID_VALUE)
    *(int *)params = 0;
    return 0;
}

#ifndef OLD
int cusolverDnSetDeterministicMode(void *handle, int mode) {
    ENTER("cusolverDnSetDeterministicMode", P(handle), I(mode))
    struct solver *known = solver_of(handle);
    NEED(known, NOT_INITIALIZED)
    NEED(mode == 1 || mode == 2, INVALID_VALUE)
    known->deterministic = mode;
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
#define PARAMS NEED(is_known(params), INVALID_VALUE)

static int is_type(int type) {
    return type == BCFG_CUDA_R_32F || type == BCFG_CUDA_R_64F || type == BCFG_CUDA_C_32F ||
           type == BCFG_CUDA_C_64F;
}

/* A matrix that can be read: its type known, its columns not on top of each other. */
#define MATRIX(type, rows, leading)                                                                \
    NEED(is_type(type) && (rows) >= 0 && (leading) >= ((rows) > 1 ? (rows) : 1), INVALID_VALUE)
/* What each step needs on the device, so that too little shows. */
#define WORK(count, type) ((size_t)(count) * bytes_of(type) + 16)
#define GIVEN(needed)                                                                              \
    NEED(device &&device_bytes >= (needed) && host_bytes >= (size_t)setting_host_bytes && info,    \
         INVALID_VALUE)                                                                            \
    NEED(setting_host_bytes == 0 || host, INVALID_VALUE)
#define SAY(needed)                                                                                \
    *device_bytes = (needed);                                                                      \
    *host_bytes = (size_t)setting_host_bytes;                                                      \
    return 0;

static int64_t least(int64_t m, int64_t n) { return m < n ? m : n; }

/* Workspaces are written over: what stands there must be nobody's. */
static void spoil(void *device, size_t device_bytes, void *host, size_t host_bytes) {
    memset(device, 0x7f, device_bytes);
    if (host) memset(host, 0x7f, host_bytes);
}
#define SPOIL spoil(device, device_bytes, host, host_bytes);

int cusolverDnXpotrf_bufferSize(void *handle, void *params, int uplo, int64_t n, int a_type,
                                const void *a, int64_t lda, int compute_type, size_t *device_bytes,
                                size_t *host_bytes) {
    STEP("cusolverDnXpotrf_bufferSize", P(handle), P(params), I(uplo), I(n), I(a_type), P(a),
         I(lda), I(compute_type))
    PARAMS MATRIX(a_type, n, lda) NEED(compute_type == a_type, INVALID_VALUE)
    SAY(WORK(n, a_type))
}

int cusolverDnXpotrf(void *handle, void *params, int uplo, int64_t n, int a_type, void *a,
                     int64_t lda, int compute_type, void *device, size_t device_bytes, void *host,
                     size_t host_bytes, int *info) {
    STEP("cusolverDnXpotrf", P(handle), P(params), I(uplo), I(n), I(a_type), P(a), I(lda),
         I(compute_type), P(device), I(device_bytes), I(host_bytes), P(info))
    PARAMS MATRIX(a_type, n, lda) NEED(compute_type == a_type, INVALID_VALUE)
    NEED((uplo & ~1) == 0, INVALID_VALUE) GIVEN(WORK(n, a_type)) SPOIL
    *info = (int)factor_cholesky((matrix){a, a_type, lda}, uplo, n);
    return 0;
}

int cusolverDnXpotrs(void *handle, void *params, int uplo, int64_t n, int64_t nrhs, int a_type,
                     const void *a, int64_t lda, int b_type, void *b, int64_t ldb, int *info) {
    STEP("cusolverDnXpotrs", P(handle), P(params), I(uplo), I(n), I(nrhs), I(a_type), P(a), I(lda),
         I(b_type), P(b), I(ldb), P(info))
    PARAMS MATRIX(a_type, n, lda) MATRIX(b_type, n, ldb)
    NEED(a_type == b_type && (uplo & ~1) == 0 && info, INVALID_VALUE)
    solve_cholesky((matrix){(void *)(uintptr_t)a, a_type, lda}, uplo, n, (matrix){b, b_type, ldb},
                   nrhs);
    *info = 0;
    return 0;
}

int cusolverDnXgetrf_bufferSize(void *handle, void *params, int64_t m, int64_t n, int a_type,
                                const void *a, int64_t lda, int compute_type, size_t *device_bytes,
                                size_t *host_bytes) {
    STEP("cusolverDnXgetrf_bufferSize", P(handle), P(params), I(m), I(n), I(a_type), P(a), I(lda),
         I(compute_type))
    PARAMS MATRIX(a_type, m, lda) NEED(compute_type == a_type, INVALID_VALUE)
    SAY(WORK(m * n, a_type))
}

int cusolverDnXgetrf(void *handle, void *params, int64_t m, int64_t n, int a_type, void *a,
                     int64_t lda, int64_t *ipiv, int compute_type, void *device,
                     size_t device_bytes, void *host, size_t host_bytes, int *info) {
    STEP("cusolverDnXgetrf", P(handle), P(params), I(m), I(n), I(a_type), P(a), I(lda), P(ipiv),
         I(compute_type), P(device), I(device_bytes), I(host_bytes), P(info))
    PARAMS MATRIX(a_type, m, lda) NEED(compute_type == a_type, INVALID_VALUE)
    GIVEN(WORK(m * n, a_type)) SPOIL
    *info = (int)factor_lu((matrix){a, a_type, lda}, m, n, ipiv);
    return 0;
}

int cusolverDnXgetrs(void *handle, void *params, int trans, int64_t n, int64_t nrhs, int a_type,
                     const void *a, int64_t lda, const int64_t *ipiv, int b_type, void *b,
                     int64_t ldb, int *info) {
    STEP("cusolverDnXgetrs", P(handle), P(params), I(trans), I(n), I(nrhs), I(a_type), P(a), I(lda),
         P(ipiv), I(b_type), P(b), I(ldb), P(info))
    PARAMS MATRIX(a_type, n, lda) MATRIX(b_type, n, ldb)
    NEED(a_type == b_type && trans >= 0 && trans < 3 && info, INVALID_VALUE)
    for (int64_t at = 0; at < n; at++) NEED(ipiv[at] >= 1 && ipiv[at] <= n, INTERNAL_ERROR)
    solve_lu((matrix){(void *)(uintptr_t)a, a_type, lda},
             trans == BCFG_CUBLAS_OP_N   ? AS_IS
             : trans == BCFG_CUBLAS_OP_T ? TRANSPOSED
                                         : ADJOINT,
             n, ipiv, (matrix){b, b_type, ldb}, nrhs);
    *info = 0;
    return 0;
}

int cusolverDnXgeqrf_bufferSize(void *handle, void *params, int64_t m, int64_t n, int a_type,
                                const void *a, int64_t lda, int tau_type, const void *tau,
                                int compute_type, size_t *device_bytes, size_t *host_bytes) {
    STEP("cusolverDnXgeqrf_bufferSize", P(handle), P(params), I(m), I(n), I(a_type), P(a), I(lda),
         I(tau_type), P(tau), I(compute_type))
    PARAMS MATRIX(a_type, m, lda) NEED(compute_type == a_type && tau_type == a_type, INVALID_VALUE)
    SAY(WORK(n, a_type))
}

int cusolverDnXgeqrf(void *handle, void *params, int64_t m, int64_t n, int a_type, void *a,
                     int64_t lda, int tau_type, void *tau, int compute_type, void *device,
                     size_t device_bytes, void *host, size_t host_bytes, int *info) {
    STEP("cusolverDnXgeqrf", P(handle), P(params), I(m), I(n), I(a_type), P(a), I(lda), I(tau_type),
         P(tau), I(compute_type), P(device), I(device_bytes), I(host_bytes), P(info))
    PARAMS MATRIX(a_type, m, lda) NEED(compute_type == a_type && tau_type == a_type, INVALID_VALUE)
    GIVEN(WORK(n, a_type)) SPOIL
    factor_qr((matrix){a, a_type, lda}, m, n, tau);
    *info = 0;
    return 0;
}

/* Q of each type. */
#define VECTORS(name, type)                                                                        \
    int name##_bufferSize(void *handle, int m, int n, int k, const void *a, int lda,               \
                          const void *tau, int *lwork) {                                           \
        STEP(#name "_bufferSize", P(handle), I(m), I(n), I(k), P(a), I(lda), P(tau))               \
        MATRIX(type, m, lda) NEED(n <= m && k <= n, INVALID_VALUE)                                 \
        *lwork = n;                                                                                \
        return 0;                                                                                  \
    }                                                                                              \
    int name(void *handle, int m, int n, int k, void *a, int lda, const void *tau, void *work,     \
             int lwork, int *info) {                                                               \
        STEP(#name, P(handle), I(m), I(n), I(k), P(a), I(lda), P(tau), P(work), I(lwork), P(info)) \
        MATRIX(type, m, lda) NEED(n <= m && k <= n && work && lwork >= n && info, INVALID_VALUE)   \
        memset(work, 0x7f, (size_t)lwork * bytes_of(type));                                        \
        generate_q((matrix){a, type, lda}, tau, m, n, k);                                          \
        *info = 0;                                                                                 \
        return 0;                                                                                  \
    }
VECTORS(cusolverDnSorgqr, BCFG_CUDA_R_32F)
VECTORS(cusolverDnDorgqr, BCFG_CUDA_R_64F)
VECTORS(cusolverDnCungqr, BCFG_CUDA_C_32F)
VECTORS(cusolverDnZungqr, BCFG_CUDA_C_64F)

static int real_number(int type) { return real_of(type) ? BCFG_CUDA_R_64F : BCFG_CUDA_R_32F; }

/* Where an iteration does not converge, the number of what is left: as LAPACK says it. */
static int eigenvalues(void *a, int64_t lda, int type, int jobz, int uplo, int64_t n, void *w) {
    return (int)decompose_hermitian((matrix){a, type, lda}, uplo, n, jobz, w);
}

#define EIGEN                                                                                      \
    PARAMS MATRIX(a_type, n, lda)                                                                  \
    NEED(compute_type == a_type && w_type == real_number(a_type) && (jobz & ~1) == 0 &&            \
             (uplo & ~1) == 0, INVALID_VALUE)

int cusolverDnXsyevd_bufferSize(void *handle, void *params, int jobz, int uplo, int64_t n,
                                int a_type, const void *a, int64_t lda, int w_type, const void *w,
                                int compute_type, size_t *device_bytes, size_t *host_bytes) {
    STEP("cusolverDnXsyevd_bufferSize", P(handle), P(params), I(jobz), I(uplo), I(n), I(a_type),
         P(a), I(lda), I(w_type), P(w), I(compute_type))
    EIGEN
    SAY(WORK(2 * n * n, a_type))
}

int cusolverDnXsyevd(void *handle, void *params, int jobz, int uplo, int64_t n, int a_type, void *a,
                     int64_t lda, int w_type, void *w, int compute_type, void *device,
                     size_t device_bytes, void *host, size_t host_bytes, int *info) {
    STEP("cusolverDnXsyevd", P(handle), P(params), I(jobz), I(uplo), I(n), I(a_type), P(a), I(lda),
         I(w_type), P(w), I(compute_type), P(device), I(device_bytes), I(host_bytes), P(info))
    EIGEN GIVEN(WORK(2 * n * n, a_type)) SPOIL
    *info = eigenvalues(a, lda, a_type, jobz, uplo, n, w);
    return 0;
}

#ifndef OLD
int cusolverDnXsyevBatched_bufferSize(void *handle, void *params, int jobz, int uplo, int64_t n,
                                      int a_type, const void *a, int64_t lda, int w_type,
                                      const void *w, int compute_type, size_t *device_bytes,
                                      size_t *host_bytes, int64_t batch) {
    STEP("cusolverDnXsyevBatched_bufferSize", P(handle), P(params), I(jobz), I(uplo), I(n),
         I(a_type), P(a), I(lda), I(w_type), P(w), I(compute_type), I(batch))
    EIGEN
    SAY(WORK(2 * n * n * batch, a_type))
}

int cusolverDnXsyevBatched(void *handle, void *params, int jobz, int uplo, int64_t n, int a_type,
                           void *a, int64_t lda, int w_type, void *w, int compute_type,
                           void *device, size_t device_bytes, void *host, size_t host_bytes,
                           int *info, int64_t batch) {
    STEP("cusolverDnXsyevBatched", P(handle), P(params), I(jobz), I(uplo), I(n), I(a_type), P(a),
         I(lda), I(w_type), P(w), I(compute_type), P(device), I(device_bytes), I(host_bytes),
         P(info), I(batch))
    EIGEN GIVEN(WORK(2 * n * n * batch, a_type)) SPOIL
    for (int64_t at = 0; at < batch; at++)
        info[at] = eigenvalues((char *)a + (size_t)(at * lda * n) * bytes_of(a_type), lda, a_type,
                               jobz, uplo, n, (char *)w + (size_t)(at * n) * bytes_of(w_type));
    return 0;
}
#endif

#define SINGULAR                                                                                   \
    PARAMS MATRIX(a_type, m, lda)                                                                  \
    NEED(m >= n && compute_type == a_type && s_type == real_number(a_type) && u_type == a_type &&  \
             vt_type == a_type && jobu == jobvt && (jobu == 'N' || jobu == 'S' || jobu == 'A') &&  \
             ldu >= 1 && ldvt >= 1 && (jobu == 'N' || (ldu >= m && ldvt >= n)), INVALID_VALUE)

int cusolverDnXgesvd_bufferSize(void *handle, void *params, signed char jobu, signed char jobvt,
                                int64_t m, int64_t n, int a_type, const void *a, int64_t lda,
                                int s_type, const void *s, int u_type, const void *u, int64_t ldu,
                                int vt_type, const void *vt, int64_t ldvt, int compute_type,
                                size_t *device_bytes, size_t *host_bytes) {
    STEP("cusolverDnXgesvd_bufferSize", P(handle), P(params), I(jobu), I(jobvt), I(m), I(n),
         I(a_type), P(a), I(lda), I(s_type), P(s), I(u_type), P(u), I(ldu), I(vt_type), P(vt),
         I(ldvt), I(compute_type))
    SINGULAR
    SAY(WORK(m * n, a_type))
}

int cusolverDnXgesvd(void *handle, void *params, signed char jobu, signed char jobvt, int64_t m,
                     int64_t n, int a_type, void *a, int64_t lda, int s_type, void *s, int u_type,
                     void *u, int64_t ldu, int vt_type, void *vt, int64_t ldvt, int compute_type,
                     void *device, size_t device_bytes, void *host, size_t host_bytes, int *info) {
    STEP("cusolverDnXgesvd", P(handle), P(params), I(jobu), I(jobvt), I(m), I(n), I(a_type), P(a),
         I(lda), I(s_type), P(s), I(u_type), P(u), I(ldu), I(vt_type), P(vt), I(ldvt),
         I(compute_type), P(device), I(device_bytes), I(host_bytes), P(info))
    SINGULAR GIVEN(WORK(m * n, a_type)) SPOIL
    matrix left = {jobu == 'N' ? NULL : u, a_type, ldu};
    matrix right = {jobu == 'N' ? NULL : vt, a_type, ldvt};
    *info = (int)decompose_singular((matrix){a, a_type, lda}, m, n, s, left,
                                    jobu == 'N' ? 0 : jobu == 'A' ? m : least(m, n), right,
                                    jobu == 'N' ? 0 : n);
    /* What was there is lost, as with LAPACK. */
    for (int64_t column = 0; column < n; column++)
        memset((char *)a + (size_t)(column * lda) * bytes_of(a_type), 0x7f,
               (size_t)m * bytes_of(a_type));
    return 0;
}

/* Stacks of each type, by pointers. */
#define STACK(letter, type)                                                                        \
    int cusolverDn##letter##potrfBatched(void *handle, int uplo, int n, void **a, int lda,         \
                                         int *info, int batch) {                                   \
        STEP("cusolverDn" #letter "potrfBatched", P(handle), I(uplo), I(n), P(a), I(lda), P(info), \
             I(batch))                                                                             \
        MATRIX(type, n, lda) NEED((uplo & ~1) == 0 && a && info && batch > 0, INVALID_VALUE)       \
        for (int at = 0; at < batch; at++)                                                         \
            info[at] = (int)stacked_cholesky((matrix){a[at], type, lda}, uplo, n);                 \
        return 0;                                                                                  \
    }                                                                                              \
    int cusolverDn##letter##potrsBatched(void *handle, int uplo, int n, int nrhs, void **a,        \
                                         int lda, void **b, int ldb, int *info, int batch) {       \
        STEP("cusolverDn" #letter "potrsBatched", P(handle), I(uplo), I(n), I(nrhs), P(a), I(lda), \
             P(b), I(ldb), P(info), I(batch))                                                      \
        MATRIX(type, n, lda) MATRIX(type, n, ldb)                                                  \
        NEED((uplo & ~1) == 0 && nrhs == 1 && a && b && info && batch > 0, INVALID_VALUE)          \
        for (int at = 0; at < batch; at++)                                                         \
            solve_cholesky((matrix){a[at], type, lda}, uplo, n, (matrix){b[at], type, ldb}, 1);    \
        *info = 0;                                                                                 \
        return 0;                                                                                  \
    }
STACK(S, BCFG_CUDA_R_32F)
STACK(D, BCFG_CUDA_R_64F)
STACK(C, BCFG_CUDA_C_32F)
STACK(Z, BCFG_CUDA_C_64F)
