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

struct handle {
    void *stream, *workspace;
    size_t workspace_bytes;
    int math_mode, atomics, live;
};

enum { HANDLES = 256 };
static struct handle handles[HANDLES];

static struct handle *handle_of(void *pointer) {
    for (int at = 0; at < HANDLES; at++)
        if (pointer == &handles[at] && handles[at].live) return pointer;
    return NULL;
}

#define HANDLE(pointer)                                                                            \
    struct handle *known = handle_of(pointer);                                                     \
    NEED(known, NOT_INITIALIZED)

int cublasCreate_v2(void **handle) {
    ENTER("cublasCreate_v2", P(handle))
    int at = 0;
    pthread_mutex_lock(&recording);
    while (at < HANDLES && handles[at].live) at++;
    if (at < HANDLES) handles[at] = (struct handle){.live = 1};
    pthread_mutex_unlock(&recording);
    NEED(at < HANDLES, ALLOC_FAILED)
    *handle = &handles[at];
    return 0;
}

int cublasDestroy_v2(void *handle) {
    ENTER("cublasDestroy_v2", P(handle))
    HANDLE(handle)
    pthread_mutex_lock(&recording);
    known->live = 0;
    pthread_mutex_unlock(&recording);
    return 0;
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
/* A product, whichever function it came through. */
typedef struct {
    const struct handle *handle;
    int transa, transb, a_type, b_type, c_type, compute, algorithm;
    int64_t m, n, k, lda, ldb, ldc;
    const void *alpha, *beta;
} call;

/* op(x) of a column-major matrix. */
static operand column_major(const void *data, int type, int64_t leading, int operation) {
    int transposed = operation != BCFG_CUBLAS_OP_N;
    return (operand){data, type, transposed ? leading : 1, transposed ? 1 : leading,
                     operation == BCFG_CUBLAS_OP_C};
}

static int check(const call *it) {
    NEED(it->m >= 0 && it->n >= 0 && it->k >= 0, INVALID_VALUE)
    NEED(it->transa >= 0 && it->transa <= 2 && it->transb >= 0 && it->transb <= 2, INVALID_VALUE)
    int64_t a_rows = it->transa == BCFG_CUBLAS_OP_N ? it->m : it->k;
    int64_t b_rows = it->transb == BCFG_CUBLAS_OP_N ? it->k : it->n;
    NEED(it->lda >= (a_rows > 1 ? a_rows : 1), INVALID_VALUE)
    NEED(it->ldb >= (b_rows > 1 ? b_rows : 1), INVALID_VALUE)
    NEED(it->ldc >= (it->m > 1 ? it->m : 1), INVALID_VALUE)
    NEED(it->alpha && it->beta, INVALID_VALUE)
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

static void product(const call *it, const void *a, const void *b, void *c) {
    int scale = scale_of(it->compute, it->c_type);
    operand into = column_major(c, it->c_type, it->ldc, BCFG_CUBLAS_OP_N);
    multiply(it->m, it->n, it->k, read_number(it->alpha, 0, scale),
             column_major(a, it->a_type, it->lda, it->transa),
             column_major(b, it->b_type, it->ldb, it->transb), read_number(it->beta, 0, scale), into,
             into, how_of(it), division_of(it), (ending){0});
}

/* Alpha and beta as they are read: one or two numbers. */
static argument scalar(const void *value, int compute, int element) {
    int scale = scale_of(compute, element);
    if (value == NULL) return P(NULL);
    number read = read_number(value, 0, scale);
    return (argument){.kind = FLOATS, .parts = is_complex(scale) ? 2 : 1,
                      .floats = {read.real, read.imaginary}};
}
#define F(value) scalar(value, compute_type, c_type)
static const struct handle no_handle;

#define STATE P(stream), I(math_mode), I(atomics), P(workspace), I(workspace_bytes)
#define STATE_WORDS "P(stream), I(math_mode), I(atomics), P(workspace), I(workspace_bytes)"
#define BEGIN                                                                                      \
    struct handle *known = handle_of(handle);                                                      \
    const struct handle *state = known ? known : &no_handle;                                       \
    void *stream = state->stream, *workspace = state->workspace;                                   \
    size_t workspace_bytes = state->workspace_bytes;                                               \
    int math_mode = state->math_mode, atomics = state->atomics;
#define CALL                                                                                       \
    NEED(known, NOT_INITIALIZED)                                                                   \
    call it = {known, transa, transb, a_type, b_type, c_type, compute_type, algorithm,             \
               m,     n,      k,      lda,    ldb,    ldc,    alpha,        beta};                 \
    status = check(&it);                                                                           \
    if (status != 0) return status;

int cublasGemmEx_64(void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k,
                    const void *alpha, const void *a, int a_type, int64_t lda, const void *b,
                    int b_type, int64_t ldb, const void *beta, void *c, int c_type, int64_t ldc,
                    int compute_type, int algorithm) {
    IDLE
    BEGIN
    int status = RECORD_WITH(STATE, STATE_WORDS, "cublasGemmEx_64", P(handle), I(transa), I(transb),
                             I(m), I(n), I(k), F(alpha), P(a), I(a_type), I(lda), P(b), I(b_type),
                             I(ldb), F(beta), P(c), I(c_type), I(ldc), I(compute_type),
                             I(algorithm));
    if (status != 0) return status;
    CALL
    product(&it, a, b, c);
    return 0;
}

int cublasGemmStridedBatchedEx_64(void *handle, int transa, int transb, int64_t m, int64_t n,
                                  int64_t k, const void *alpha, const void *a, int a_type,
                                  int64_t lda, long long a_stride, const void *b, int b_type,
                                  int64_t ldb, long long b_stride, const void *beta, void *c,
                                  int c_type, int64_t ldc, long long c_stride, int64_t batch,
                                  int compute_type, int algorithm) {
    BEGIN
    int status = RECORD_WITH(STATE, STATE_WORDS, "cublasGemmStridedBatchedEx_64", P(handle),
                             I(transa), I(transb), I(m), I(n), I(k), F(alpha), P(a), I(a_type),
                             I(lda), I(a_stride), P(b), I(b_type), I(ldb), I(b_stride), F(beta),
                             P(c), I(c_type), I(ldc), I(c_stride), I(batch), I(compute_type),
                             I(algorithm));
    if (status != 0) return status;
    CALL
    NEED(batch >= 0, INVALID_VALUE)
    for (int64_t at = 0; at < batch; at++)
        product(&it, (const char *)a + at * a_stride * (int64_t)size_of(a_type),
                (const char *)b + at * b_stride * (int64_t)size_of(b_type),
                (char *)c + at * c_stride * (int64_t)size_of(c_type));
    return 0;
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
