/* Linear algebra by cuSOLVER: the 64-bit functions, one matrix after the other, and the batched
 * functions for Cholesky and eigenproblems. */
#include "gpu/libraries/factorisation.h"

#include <limits.h>
#include <stdlib.h>

/* A handle of cuSOLVER with its parameters. */
typedef struct {
    void *handle, *params;
    int deterministic;       /* the mode that was last set; 0 before that */
} solver_handle;

/* Stacks of eigenproblems up to this size use the batched function, where the library has it. One
 * larger matrix fills a device by itself. */
enum { LARGEST_TOGETHER = 512 };

static const char *name_of(const bcfg_device_library *library, int status) {
    (void)library; /* it has no function for that */
    switch (status) {
#define CASE(name) case BCFG_##name: return #name;
        CASE(CUSOLVER_STATUS_NOT_INITIALIZED)
        CASE(CUSOLVER_STATUS_ALLOC_FAILED)
        CASE(CUSOLVER_STATUS_INVALID_VALUE)
        CASE(CUSOLVER_STATUS_ARCH_MISMATCH)
        CASE(CUSOLVER_STATUS_MAPPING_ERROR)
        CASE(CUSOLVER_STATUS_EXECUTION_FAILED)
        CASE(CUSOLVER_STATUS_INTERNAL_ERROR)
        CASE(CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED)
        CASE(CUSOLVER_STATUS_NOT_SUPPORTED)
        CASE(CUSOLVER_STATUS_INVALID_LICENSE)
#undef CASE
    default: return NULL;
    }
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    const bcfg_cusolver_table *cusolver = bcfg_cusolver(library);
    *function = "cusolverDnCreate";
    solver_handle *made = calloc(1, sizeof *made);
    if (made == NULL) return BCFG_CUSOLVER_STATUS_ALLOC_FAILED;
    int status = cusolver->cusolverDnCreate(&made->handle);
    if (status != 0) {
        free(made);
        return status;
    }
    *function = "cusolverDnSetStream";
    status = cusolver->cusolverDnSetStream(made->handle, stream);
    if (status == 0) {
        *function = "cusolverDnCreateParams";
        status = cusolver->cusolverDnCreateParams(&made->params);
    }
    if (status != 0) {
        (void)cusolver->cusolverDnDestroy(made->handle);
        free(made);
        return status;
    }
    *handle = made;
    return 0;
}

static void destroy(const bcfg_handle *handle) {
    const bcfg_cusolver_table *cusolver = bcfg_cusolver(handle->library);
    solver_handle *made = handle->handle;
    (void)cusolver->cusolverDnDestroyParams(made->params);
    (void)cusolver->cusolverDnDestroy(made->handle);
    free(made);
}

/* Sets the deterministic mode that the flags ask for. The size of a workspace may depend on it. */
static int promise(const bcfg_cusolver_table *cusolver, solver_handle *handle,
                   const bcfg_step *step, const char **function) {
    if (step->deterministic == 0 || step->deterministic == handle->deterministic) return 0;
    *function = "cusolverDnSetDeterministicMode";
    if (cusolver->cusolverDnSetDeterministicMode == NULL)
        return BCFG_CUSOLVER_STATUS_NOT_SUPPORTED;
    int status = cusolver->cusolverDnSetDeterministicMode(handle->handle, step->deterministic);
    if (status == 0) handle->deterministic = step->deterministic;
    return status;
}

static int type_of(int32_t element) {
    static const int types[] = {BCFG_CUDA_R_32F, BCFG_CUDA_R_64F, BCFG_CUDA_C_32F,
                                BCFG_CUDA_C_64F};
    return types[element];
}

static int real_of(int32_t element) {
    return element == BCFG_FLOAT32 || element == BCFG_COMPLEX64 ? BCFG_CUDA_R_32F
                                                                : BCFG_CUDA_R_64F;
}

static bool has_batched(const bcfg_cusolver_table *cusolver, const bcfg_step *step) {
    return step->matrices > 1 && step->n <= LARGEST_TOGETHER &&
           step->a_stride == step->n * step->n * bcfg_element_size[step->element] &&
           cusolver->cusolverDnXsyevBatched != NULL &&
           cusolver->cusolverDnXsyevBatched_bufferSize != NULL;
}

static int fill_of(const bcfg_step *step) {
    return step->upper ? BCFG_CUBLAS_FILL_MODE_UPPER : BCFG_CUBLAS_FILL_MODE_LOWER;
}

static int mode_of(const bcfg_step *step) {
    return step->vectors == 'N' ? BCFG_CUSOLVER_EIG_MODE_NOVECTOR : BCFG_CUSOLVER_EIG_MODE_VECTOR;
}

/* The functions that make Q, by element. */
typedef int (*vectors_sizes)(void *, int, int, int, const void *, int, const void *, int *);
typedef int (*vectors_compute)(void *, int, int, int, void *, int, const void *, void *, int,
                               int *);

static vectors_sizes vectors_sizes_of(const bcfg_cusolver_table *cusolver, int32_t element) {
    switch (element) {
    case BCFG_FLOAT32: return cusolver->cusolverDnSorgqr_bufferSize;
    case BCFG_FLOAT64: return cusolver->cusolverDnDorgqr_bufferSize;
    case BCFG_COMPLEX64: return cusolver->cusolverDnCungqr_bufferSize;
    default: return cusolver->cusolverDnZungqr_bufferSize;
    }
}

static vectors_compute vectors_compute_of(const bcfg_cusolver_table *cusolver, int32_t element) {
    switch (element) {
    case BCFG_FLOAT32: return cusolver->cusolverDnSorgqr;
    case BCFG_FLOAT64: return cusolver->cusolverDnDorgqr;
    case BCFG_COMPLEX64: return cusolver->cusolverDnCungqr;
    default: return cusolver->cusolverDnZungqr;
    }
}

static const char *const vectors_names[] = {"cusolverDnSorgqr", "cusolverDnDorgqr",
                                            "cusolverDnCungqr", "cusolverDnZungqr"};
static const char *const vectors_sizes_names[] = {
    "cusolverDnSorgqr_bufferSize", "cusolverDnDorgqr_bufferSize", "cusolverDnCungqr_bufferSize",
    "cusolverDnZungqr_bufferSize"};

static bool supports(const bcfg_device_library *library, const bcfg_step *step) {
    (void)library;
    bool is_narrow = step->m <= INT_MAX && step->n <= INT_MAX && step->matrices <= INT_MAX;
    if (step->is_together)
        return is_narrow && (step->kind == BCFG_STEP_CHOLESKY ||
                             (step->kind == BCFG_STEP_CHOLESKY_SOLVE && step->k == 1));
    return step->kind != BCFG_STEP_QR_VECTORS || is_narrow;
}

static int sizes(const bcfg_device_library *library, bcfg_handle *lent, const bcfg_step *step,
                 size_t *workspace_bytes, size_t *host_bytes, const char **function) {
    const bcfg_cusolver_table *cusolver = bcfg_cusolver(library);
    solver_handle *handle = lent->handle;
    *workspace_bytes = *host_bytes = 0;
    int status = promise(cusolver, handle, step, function);
    if (status != 0) return status;
    void *h = handle->handle, *p = handle->params;
    int type = type_of(step->element), real = real_of(step->element), count = 0;
    int64_t m = step->m, n = step->n;
    if (step->is_together) return 0; /* the batched functions need no workspace */
    switch (step->kind) {
    case BCFG_STEP_CHOLESKY:
        *function = "cusolverDnXpotrf_bufferSize";
        return cusolver->cusolverDnXpotrf_bufferSize(h, p, fill_of(step), n, type, step->a, n, type,
                                                     workspace_bytes, host_bytes);
    case BCFG_STEP_LU:
        *function = "cusolverDnXgetrf_bufferSize";
        return cusolver->cusolverDnXgetrf_bufferSize(h, p, m, n, type, step->a, m, type,
                                                     workspace_bytes, host_bytes);
    case BCFG_STEP_QR:
        *function = "cusolverDnXgeqrf_bufferSize";
        return cusolver->cusolverDnXgeqrf_bufferSize(h, p, m, n, type, step->a, m, type,
                                                     step->values, type, workspace_bytes,
                                                     host_bytes);
    case BCFG_STEP_QR_VECTORS:
        *function = vectors_sizes_names[step->element];
        status = vectors_sizes_of(cusolver, step->element)(h, (int)m, (int)n, (int)step->k, step->a,
                                                           (int)m, step->values, &count);
        *workspace_bytes = (size_t)count * (size_t)bcfg_element_size[step->element];
        return status;
    case BCFG_STEP_EIGH:
        if (has_batched(cusolver, step)) {
            *function = "cusolverDnXsyevBatched_bufferSize";
            return cusolver->cusolverDnXsyevBatched_bufferSize(
                h, p, mode_of(step), fill_of(step), n, type, step->a, n, real, step->values, type,
                workspace_bytes, host_bytes, step->matrices);
        }
        *function = "cusolverDnXsyevd_bufferSize";
        return cusolver->cusolverDnXsyevd_bufferSize(h, p, mode_of(step), fill_of(step), n, type,
                                                     step->a, n, real, step->values, type,
                                                     workspace_bytes, host_bytes);
    case BCFG_STEP_SVD:
        *function = "cusolverDnXgesvd_bufferSize";
        return cusolver->cusolverDnXgesvd_bufferSize(
            h, p, (signed char)step->vectors, (signed char)step->vectors, m, n, type, step->a, m,
            real, step->values, type, step->b, m, type, step->c, n, type, workspace_bytes,
            host_bytes);
    default: return 0; /* the solutions need none */
    }
}

/* One matrix, at an index of the stack. */
static int one(const bcfg_cusolver_table *cusolver, const solver_handle *handle,
               const bcfg_step *step, int64_t at, const char **function) {
    void *h = handle->handle, *p = handle->params;
    int type = type_of(step->element), real = real_of(step->element);
    int64_t m = step->m, n = step->n, k = step->k;
    char *a = step->a + at * step->a_stride, *b = step->b + at * step->b_stride;
    char *c = step->c + at * step->c_stride, *values = step->values + at * step->values_stride;
    int64_t *pivots = (int64_t *)(void *)(step->pivots + at * step->pivots_stride);
    int *info = (int *)(void *)(step->info + at * step->info_stride);
    switch (step->kind) {
    case BCFG_STEP_CHOLESKY:
        *function = "cusolverDnXpotrf";
        return cusolver->cusolverDnXpotrf(h, p, fill_of(step), n, type, a, n, type, step->workspace,
                                          step->workspace_bytes, step->host, step->host_bytes,
                                          info);
    case BCFG_STEP_CHOLESKY_SOLVE:
        *function = "cusolverDnXpotrs";
        return cusolver->cusolverDnXpotrs(h, p, fill_of(step), n, k, type, a, n, type, b, n, info);
    case BCFG_STEP_LU:
        *function = "cusolverDnXgetrf";
        return cusolver->cusolverDnXgetrf(h, p, m, n, type, a, m, pivots, type, step->workspace,
                                          step->workspace_bytes, step->host, step->host_bytes,
                                          info);
    case BCFG_STEP_LU_SOLVE:
        *function = "cusolverDnXgetrs";
        return cusolver->cusolverDnXgetrs(h, p,
                                          step->transpose == 'N'   ? BCFG_CUBLAS_OP_N
                                          : step->transpose == 'T' ? BCFG_CUBLAS_OP_T
                                                                   : BCFG_CUBLAS_OP_C,
                                          n, k, type, a, n, pivots, type, b, n, info);
    case BCFG_STEP_QR:
        *function = "cusolverDnXgeqrf";
        return cusolver->cusolverDnXgeqrf(h, p, m, n, type, a, m, type, values, type,
                                          step->workspace, step->workspace_bytes, step->host,
                                          step->host_bytes, info);
    case BCFG_STEP_QR_VECTORS:
        *function = vectors_names[step->element];
        return vectors_compute_of(cusolver, step->element)(
            h, (int)m, (int)n, (int)k, a, (int)m, values, step->workspace,
            (int)(step->workspace_bytes / (size_t)bcfg_element_size[step->element]), info);
    case BCFG_STEP_EIGH:
        *function = "cusolverDnXsyevd";
        return cusolver->cusolverDnXsyevd(h, p, mode_of(step), fill_of(step), n, type, a, n, real,
                                          values, type, step->workspace, step->workspace_bytes,
                                          step->host, step->host_bytes, info);
    default:
        *function = "cusolverDnXgesvd";
        return cusolver->cusolverDnXgesvd(h, p, (signed char)step->vectors,
                                          (signed char)step->vectors, m, n, type, a, m, real,
                                          values, type, b, m, type, c, n, type, step->workspace,
                                          step->workspace_bytes, step->host, step->host_bytes,
                                          info);
    }
}

/* Cholesky's factors of a whole stack, or its solutions with one right-hand side each. */
static int stack(const bcfg_cusolver_table *cusolver, void *handle, const bcfg_step *step,
                 const char **function) {
    const int n = (int)step->n, k = (int)step->k, matrices = (int)step->matrices;
    int *info = (int *)(void *)step->info;
#define CHOOSE(name)                                                                               \
    (*function = (const char *const[]){"cusolverDnS" #name, "cusolverDnD" #name,                   \
                                       "cusolverDnC" #name, "cusolverDnZ" #name}[step->element],   \
     step->element == BCFG_FLOAT32     ? cusolver->cusolverDnS##name                               \
     : step->element == BCFG_FLOAT64   ? cusolver->cusolverDnD##name                               \
     : step->element == BCFG_COMPLEX64 ? cusolver->cusolverDnC##name                               \
                                       : cusolver->cusolverDnZ##name)
    if (step->kind == BCFG_STEP_CHOLESKY)
        return CHOOSE(potrfBatched)(handle, fill_of(step), n, step->a_pointers, n, info, matrices);
    return CHOOSE(potrsBatched)(handle, fill_of(step), n, k, step->a_pointers, n, step->b_pointers,
                                n, info, matrices);
#undef CHOOSE
}

static int compute(const bcfg_device_library *library, bcfg_handle *lent, const bcfg_step *step,
                   const char **function) {
    const bcfg_cusolver_table *cusolver = bcfg_cusolver(library);
    solver_handle *handle = lent->handle;
    int status = promise(cusolver, handle, step, function);
    if (status == 0 && step->is_together) return stack(cusolver, handle->handle, step, function);
    if (status == 0 && step->kind == BCFG_STEP_EIGH && has_batched(cusolver, step)) {
        *function = "cusolverDnXsyevBatched";
        int type = type_of(step->element);
        return cusolver->cusolverDnXsyevBatched(
            handle->handle, handle->params, mode_of(step), fill_of(step), step->n, type, step->a,
            step->n, real_of(step->element), step->values, type, step->workspace,
            step->workspace_bytes, step->host, step->host_bytes, (int *)(void *)step->info,
            step->matrices);
    }
    for (int64_t at = 0; status == 0 && at < step->matrices; at++)
        status = one(cusolver, handle, step, at, function);
    return status;
}

const bcfg_vendor bcfg_cusolver_vendor = {name_of, create, destroy};
const bcfg_solver bcfg_cusolver_solver = {supports, sizes, compute};
