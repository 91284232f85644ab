/* A libhipblas that computes on memory of the host. See recorded.h and products.h.
 *
 * MAJOR is that of its interface. With 2, hipblasGemmEx_64 and its kin take hipBLAS's own numbers for
 * types, as hipBLAS 2 does, and hipblasGemmEx_v2_64 those of HIP; with 3 there are only the first,
 * which take those of HIP. Where the older functions are called with newer numbers they answer
 * INVALID_ENUM, and record it under their own name: nobody should.
 *
 * Like hipBLAS over rocBLAS it refuses FAST_TF32; XF32 comes by the math mode. A product's record ends
 * with the state of its handle: stream, math_mode, atomics, workspace, workspace_bytes.
 *
 * It has no settings.
 */
#ifndef MAJOR
#define MAJOR 3
#endif
#define SETTINGS
#include "recorded.h"

#include "blas_rules.h"
#include "gpu/abi_hipblas.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
#if MAJOR == 2
#define OLD(result, name, parameters)
#define NEW(result, name, before, parameters) API result before parameters;
#define GEMM hipblasGemmEx_v2_64
#define GEMM_STRIDED hipblasGemmStridedBatchedEx_v2_64
#else
#define OLD DECLARE
#define NEW(result, name, before, parameters) API result name parameters;
#define GEMM hipblasGemmEx_64
#define GEMM_STRIDED hipblasGemmStridedBatchedEx_64
#endif
BCFG_HIPBLAS_SYMBOLS(DECLARE, OLD, NEW)
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

#undef NEED
#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_HIPBLAS_STATUS_##code;

struct handle {
    void *stream, *workspace;
    size_t workspace_bytes;
    int math_mode, atomics, live;
};

enum { HANDLES = 256 };
static struct handle handles[HANDLES];
static const struct handle no_handle;

static struct handle *handle_of(void *pointer) {
    for (int at = 0; at < HANDLES; at++)
        if (pointer == &handles[at] && handles[at].live) return pointer;
    return NULL;
}

#define HANDLE(pointer)                                                                            \
    NEED(pointer, HANDLE_IS_NULLPTR)                                                               \
    struct handle *known = handle_of(pointer);                                                     \
    NEED(known, NOT_INITIALIZED)

int hipblasCreate(void **handle) {
    ENTER("hipblasCreate", P(handle))
    for (int at = 0; at < HANDLES; at++)
        if (!handles[at].live) {
            handles[at] = (struct handle){.live = 1, .atomics = BCFG_HIPBLAS_ATOMICS_ALLOWED};
            *handle = &handles[at];
            return 0;
        }
    return BCFG_HIPBLAS_STATUS_ALLOC_FAILED;
}

int hipblasDestroy(void *handle) {
    ENTER("hipblasDestroy", P(handle))
    HANDLE(handle)
    known->live = 0;
    return 0;
}

int hipblasSetStream(void *handle, void *stream) {
    ENTER("hipblasSetStream", P(handle), P(stream))
    HANDLE(handle)
    known->stream = stream;
    return 0;
}

#if MAJOR >= 3
int hipblasSetWorkspace(void *handle, void *workspace, size_t bytes) {
    ENTER("hipblasSetWorkspace", P(handle), P(workspace), I(bytes))
    HANDLE(handle)
    known->workspace = workspace;
    known->workspace_bytes = bytes;
    return 0;
}
#endif

#define NUMBER(setter, field, most)                                                                \
    int setter(void *handle, int mode) {                                                           \
        ENTER(#setter, P(handle), I(mode))                                                         \
        HANDLE(handle)                                                                             \
        NEED(mode >= 0 && mode <= most, INVALID_ENUM)                                              \
        known->field = mode;                                                                       \
        return 0;                                                                                  \
    }
NUMBER(hipblasSetAtomicsMode, atomics, 1)
NUMBER(hipblasSetMathMode, math_mode, 5)

int hipblasGetAtomicsMode(void *handle, int *mode) {
    ENTER("hipblasGetAtomicsMode", P(handle), P(mode))
    HANDLE(handle)
    *mode = known->atomics;
    return 0;
}

const char *hipblasStatusToString(int status) {
    switch (status) {
#define CASE(name) case BCFG_##name: return #name;
        CASE(HIPBLAS_STATUS_SUCCESS)
        CASE(HIPBLAS_STATUS_NOT_INITIALIZED)
        CASE(HIPBLAS_STATUS_ALLOC_FAILED)
        CASE(HIPBLAS_STATUS_INVALID_VALUE)
        CASE(HIPBLAS_STATUS_EXECUTION_FAILED)
        CASE(HIPBLAS_STATUS_INTERNAL_ERROR)
        CASE(HIPBLAS_STATUS_NOT_SUPPORTED)
        CASE(HIPBLAS_STATUS_ARCH_MISMATCH)
        CASE(HIPBLAS_STATUS_HANDLE_IS_NULLPTR)
        CASE(HIPBLAS_STATUS_INVALID_ENUM)
#undef CASE
    default: return "HIPBLAS_STATUS_UNKNOWN";
    }
}

#include "hip_rules.h"

/* A product, whichever function it came through. */
typedef struct {
    const struct handle *handle;
    int transa, transb, a_type, b_type, c_type, compute, algorithm;
    int64_t m, n, k, lda, ldb, ldc;
    const void *alpha, *beta;
} call;

static int check(const call *it) {
    NEED(it->m >= 0 && it->n >= 0 && it->k >= 0, INVALID_VALUE)
    NEED(is_operation(it->transa) && is_operation(it->transb), INVALID_ENUM)
    int64_t a_rows = it->transa == BCFG_HIPBLAS_OP_N ? it->m : it->k;
    int64_t b_rows = it->transb == BCFG_HIPBLAS_OP_N ? it->k : it->n;
    NEED(it->lda >= (a_rows > 1 ? a_rows : 1), INVALID_VALUE)
    NEED(it->ldb >= (b_rows > 1 ? b_rows : 1), INVALID_VALUE)
    NEED(it->ldc >= (it->m > 1 ? it->m : 1), INVALID_VALUE)
    NEED(it->alpha && it->beta, INVALID_VALUE)
    NEED(it->algorithm == BCFG_HIPBLAS_GEMM_DEFAULT, INVALID_ENUM)
    NEED(compute_of_cuda(it->compute) >= 0, INVALID_ENUM)
    NEED(it->compute != BCFG_HIPBLAS_COMPUTE_32F_FAST_TF32, NOT_SUPPORTED)
    NEED(is_supported(compute_of_cuda(it->compute), it->a_type, it->b_type, it->c_type),
         NOT_SUPPORTED)
    return 0;
}

static enum rounding how_of(const call *it) {
    if (it->handle->math_mode == BCFG_HIPBLAS_XF32_XDL_MATH &&
        it->compute == BCFG_HIPBLAS_COMPUTE_32F && (it->a_type == R_32F || it->a_type == C_32F))
        return TO_TF32;
    return rounding_of(compute_of_cuda(it->compute));
}

static void product(const call *it, const void *a, const void *b, void *c) {
    int scale = scale_of(compute_of_cuda(it->compute), it->c_type);
    operand into = column_major(c, it->c_type, it->ldc, BCFG_HIPBLAS_OP_N);
    multiply(it->m, it->n, it->k, read_number(it->alpha, 0, scale),
             column_major(a, it->a_type, it->lda, it->transa),
             column_major(b, it->b_type, it->ldb, it->transb), read_number(it->beta, 0, scale), into,
             into, how_of(it), UNDIVIDED, (ending){0});
}

/* Alpha and beta as they are read: one or two numbers. */
static argument scalar(const void *value, int compute, int element) {
    int scale = scale_of(compute_of_cuda(compute), element);
    if (value == NULL) return P(NULL);
    number read = read_number(value, 0, scale);
    return (argument){.kind = FLOATS, .parts = is_complex(scale) ? 2 : 1,
                      .floats = {read.real, read.imaginary}};
}
#define F(value) scalar(value, compute_type, c_type)

#define STATE                                                                                      \
    P(state->stream), I(state->math_mode), I(state->atomics),                                      \
        P(state->workspace), I(state->workspace_bytes)
#define STATE_WORDS                                                                                \
    "P(stream), I(math_mode), I(atomics), P(workspace), I(workspace_bytes)"
#define BEGIN                                                                                      \
    struct handle *known = handle_of(handle);                                                      \
    const struct handle *state = known ? known : &no_handle;
#define CALL                                                                                       \
    NEED(handle, HANDLE_IS_NULLPTR)                                                                \
    NEED(known, NOT_INITIALIZED)                                                                   \
    call it = {known, transa, transb, a_type, b_type, c_type, compute_type, algorithm,             \
               m,     n,      k,      lda,    ldb,    ldc,    alpha,        beta};                 \
    status = check(&it);                                                                           \
    if (status != 0) return status;

int GEMM(void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k, const void *alpha,
         const void *a, int a_type, int64_t lda, const void *b, int b_type, int64_t ldb,
         const void *beta, void *c, int c_type, int64_t ldc, int compute_type, int algorithm) {
    BEGIN
    int status = RECORD_WITH(STATE, STATE_WORDS, TEXT(GEMM), P(handle), I(transa), I(transb), I(m),
                             I(n), I(k), F(alpha), P(a), I(a_type), I(lda), P(b), I(b_type), I(ldb),
                             F(beta), P(c), I(c_type), I(ldc), I(compute_type), I(algorithm));
    if (status != 0) return status;
    CALL
    product(&it, a, b, c);
    return 0;
}

int GEMM_STRIDED(void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k,
                 const void *alpha, const void *a, int a_type, int64_t lda, int64_t a_stride,
                 const void *b, int b_type, int64_t ldb, int64_t b_stride, const void *beta, void *c,
                 int c_type, int64_t ldc, int64_t c_stride, int64_t batch, int compute_type,
                 int algorithm) {
    BEGIN
    int status = RECORD_WITH(STATE, STATE_WORDS, TEXT(GEMM_STRIDED), P(handle), I(transa),
                             I(transb), I(m), I(n), I(k), F(alpha), P(a), I(a_type), I(lda),
                             I(a_stride), P(b), I(b_type), I(ldb), I(b_stride), F(beta), P(c),
                             I(c_type), I(ldc), I(c_stride), I(batch), I(compute_type),
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

#if MAJOR == 2
/* The older meaning: nothing of ours may call these. */
#define TRAP(name)                                                                                 \
    API int name(void *handle);                                                                    \
    int name(void *handle) {                                                                       \
        ENTER(#name, P(handle))                                                                    \
        return BCFG_HIPBLAS_STATUS_INVALID_ENUM;                                                   \
    }
TRAP(hipblasGemmEx_64)
TRAP(hipblasGemmStridedBatchedEx_64)
#endif
