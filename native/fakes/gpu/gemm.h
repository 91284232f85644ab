/* What the fakes of cuBLAS and hipBLAS share: handles, and products that are recorded and computed.
 *
 * A file that includes this defines before: GEMM and GEMM_STRIDED, the names of the functions;
 * OPERATION_N, the operation that leaves a matrix as it is (those after it transpose, and conjugate too);
 * STRIDE, the type of a stride; NEED, which returns a status; GIVEN(handle), which refuses NULL. And
 * after: compute_of, check_numbers, how_of and division_of.
 */
#ifndef GEMM_H
#define GEMM_H

#include "blas_rules.h"

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
    GIVEN(pointer)                                                                                 \
    struct handle *known = handle_of(pointer);                                                     \
    NEED(known, NOT_INITIALIZED)

static int create_handle(void **handle, int atomics) {
    int at = 0;
    pthread_mutex_lock(&recording);
    while (at < HANDLES && handles[at].live) at++;
    if (at < HANDLES) handles[at] = (struct handle){.live = 1, .atomics = atomics};
    pthread_mutex_unlock(&recording);
    NEED(at < HANDLES, ALLOC_FAILED)
    *handle = &handles[at];
    return 0;
}

static int destroy_handle(void *handle) {
    HANDLE(handle)
    pthread_mutex_lock(&recording);
    known->live = 0;
    pthread_mutex_unlock(&recording);
    return 0;
}

/* A product, whichever function it came through. */
typedef struct {
    const struct handle *handle;
    int transa, transb, a_type, b_type, c_type, compute, algorithm;
    int64_t m, n, k, lda, ldb, ldc;
    const void *alpha, *beta;
} call;

/* cuBLAS's number of a compute type. */
static int compute_of(int compute);
/* Refuses operations, types, compute types and algorithms that the library does not take. */
static int check_numbers(const call *it);
static enum rounding how_of(const call *it);
static division division_of(const call *it);

/* op(x) of a column-major matrix. */
static operand column_major(const void *data, int type, int64_t leading, int operation) {
    int transposed = operation != OPERATION_N;
    return (operand){data, type, transposed ? leading : 1, transposed ? 1 : leading,
                     operation == OPERATION_N + 2};
}

static int check(const call *it) {
    int status = check_numbers(it);
    if (status != 0) return status;
    NEED(it->m >= 0 && it->n >= 0 && it->k >= 0, INVALID_VALUE)
    int64_t a_rows = it->transa == OPERATION_N ? it->m : it->k;
    int64_t b_rows = it->transb == OPERATION_N ? it->k : it->n;
    NEED(it->lda >= (a_rows > 1 ? a_rows : 1), INVALID_VALUE)
    NEED(it->ldb >= (b_rows > 1 ? b_rows : 1), INVALID_VALUE)
    NEED(it->ldc >= (it->m > 1 ? it->m : 1), INVALID_VALUE)
    NEED(it->alpha && it->beta, INVALID_VALUE)
    return 0;
}

static void product(const call *it, const void *a, const void *b, void *c) {
    int scale = scale_of(compute_of(it->compute), it->c_type);
    operand into = column_major(c, it->c_type, it->ldc, OPERATION_N);
    multiply(it->m, it->n, it->k, read_number(it->alpha, 0, scale),
             column_major(a, it->a_type, it->lda, it->transa),
             column_major(b, it->b_type, it->ldb, it->transb), read_number(it->beta, 0, scale), into,
             into, how_of(it), division_of(it), (ending){0});
}

/* Alpha and beta as they are read: one or two numbers. */
static argument scalar(const void *value, int compute, int element) {
    int scale = scale_of(compute_of(compute), element);
    if (value == NULL) return P(NULL);
    number read = read_number(value, 0, scale);
    return (argument){.kind = FLOATS, .parts = is_complex(scale) ? 2 : 1,
                      .floats = {read.real, read.imaginary}};
}
#define F(value) scalar(value, compute_type, c_type)

/* A product's record ends with the state of its handle. */
#define STATE                                                                                      \
    P(state->stream), I(state->math_mode), I(state->atomics), P(state->workspace),                 \
        I(state->workspace_bytes)
#define STATE_WORDS "P(stream), I(math_mode), I(atomics), P(workspace), I(workspace_bytes)"
#define BEGIN                                                                                      \
    struct handle *known = handle_of(handle);                                                      \
    const struct handle *state = known ? known : &no_handle;
#define CALL                                                                                       \
    GIVEN(handle)                                                                                  \
    NEED(known, NOT_INITIALIZED)                                                                   \
    call it = {known, transa, transb, a_type, b_type, c_type, compute_type, algorithm,             \
               m,     n,      k,      lda,    ldb,    ldc,    alpha,        beta};                 \
    status = check(&it);                                                                           \
    if (status != 0) return status;
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

int GEMM(void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k, const void *alpha,
         const void *a, int a_type, int64_t lda, const void *b, int b_type, int64_t ldb,
         const void *beta, void *c, int c_type, int64_t ldc, int compute_type, int algorithm) {
    IDLE
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
                 const void *alpha, const void *a, int a_type, int64_t lda, STRIDE a_stride,
                 const void *b, int b_type, int64_t ldb, STRIDE b_stride, const void *beta, void *c,
                 int c_type, int64_t ldc, STRIDE c_stride, int64_t batch, int compute_type,
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

#endif
