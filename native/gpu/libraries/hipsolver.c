/* Linear algebra by hipSOLVER: its 32-bit functions, one matrix after the other. */
#include "gpu/libraries/factorisation.h"

#include <limits.h>
#include <stdlib.h>

/* A handle of hipSOLVER. */
typedef struct {
    void *handle;
    int deterministic;       /* the mode that was last set; 0 while it is as it was made */
    int usual;               /* the mode that it was made with, once another was set */
} solver_handle;

static const char *name_of(const bcfg_device_library *library, int status) {
    (void)library; /* it has no function for that */
    switch (status) {
#define CASE(name) case BCFG_##name: return #name;
        CASE(HIPSOLVER_STATUS_NOT_INITIALIZED)
        CASE(HIPSOLVER_STATUS_ALLOC_FAILED)
        CASE(HIPSOLVER_STATUS_INVALID_VALUE)
        CASE(HIPSOLVER_STATUS_MAPPING_ERROR)
        CASE(HIPSOLVER_STATUS_EXECUTION_FAILED)
        CASE(HIPSOLVER_STATUS_INTERNAL_ERROR)
        CASE(HIPSOLVER_STATUS_NOT_SUPPORTED)
        CASE(HIPSOLVER_STATUS_ARCH_MISMATCH)
        CASE(HIPSOLVER_STATUS_HANDLE_IS_NULLPTR)
        CASE(HIPSOLVER_STATUS_INVALID_ENUM)
        CASE(HIPSOLVER_STATUS_UNKNOWN)
#undef CASE
    default: return NULL;
    }
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    const bcfg_hipsolver_table *hipsolver = bcfg_hipsolver(library);
    *function = "hipsolverCreate";
    solver_handle *made = calloc(1, sizeof *made);
    if (made == NULL) return BCFG_HIPSOLVER_STATUS_ALLOC_FAILED;
    int status = hipsolver->hipsolverCreate(&made->handle);
    if (status == 0) {
        *function = "hipsolverSetStream";
        status = hipsolver->hipsolverSetStream(made->handle, stream);
        if (status != 0) (void)hipsolver->hipsolverDestroy(made->handle);
    }
    if (status != 0)
        free(made);
    else
        *handle = made;
    return status;
}

static void destroy(const bcfg_handle *handle) {
    solver_handle *made = handle->handle;
    (void)bcfg_hipsolver(handle->library)->hipsolverDestroy(made->handle);
    free(made);
}

/* Sets the deterministic mode that the flags ask for, or restores the mode that the handle was made
 * with. */
static int promise(const bcfg_hipsolver_table *hipsolver, solver_handle *handle,
                   const bcfg_step *step, const char **function) {
    if (step->deterministic == handle->deterministic) return 0;
    *function = "hipsolverSetDeterministicMode";
    if (hipsolver->hipsolverSetDeterministicMode == NULL ||
        hipsolver->hipsolverGetDeterministicMode == NULL) /* before version 2.3 */
        return BCFG_HIPSOLVER_STATUS_NOT_SUPPORTED;
    int status = 0;
    if (handle->deterministic == 0) {
        *function = "hipsolverGetDeterministicMode";
        status = hipsolver->hipsolverGetDeterministicMode(handle->handle, &handle->usual);
        if (status != 0) return status;
    }
    int mode = step->deterministic != 0 ? step->deterministic : handle->usual;
    *function = "hipsolverSetDeterministicMode";
    status = hipsolver->hipsolverSetDeterministicMode(handle->handle, mode);
    if (status == 0) handle->deterministic = step->deterministic;
    return status;
}

static int fill_of(const bcfg_step *step) {
    return step->upper ? BCFG_HIPSOLVER_FILL_MODE_UPPER : BCFG_HIPSOLVER_FILL_MODE_LOWER;
}

static int mode_of(const bcfg_step *step) {
    return step->vectors == 'N' ? BCFG_HIPSOLVER_EIG_MODE_NOVECTOR
                                : BCFG_HIPSOLVER_EIG_MODE_VECTOR;
}

static int operation_of(const bcfg_step *step) {
    return step->transpose == 'N'   ? BCFG_HIPSOLVER_OP_N
           : step->transpose == 'T' ? BCFG_HIPSOLVER_OP_T
                                    : BCFG_HIPSOLVER_OP_C;
}

/* Its sizes are 32-bit. */
static bool supports(const bcfg_device_library *library, const bcfg_step *step) {
    (void)library;
    return step->m <= INT_MAX && step->n <= INT_MAX && step->k <= INT_MAX;
}

/* Calls the function of the step's type: of real numbers by one name, of complex ones by another. */
#define CALL(real, complex, ...)                                                                   \
    (*function = (const char *const[]){"hipsolverS" #real, "hipsolverD" #real,                     \
                                       "hipsolverC" #complex,                                      \
                                       "hipsolverZ" #complex}[step->element],                      \
     (step->element == BCFG_FLOAT32     ? hipsolver->hipsolverS##real                              \
      : step->element == BCFG_FLOAT64   ? hipsolver->hipsolverD##real                              \
      : step->element == BCFG_COMPLEX64 ? hipsolver->hipsolverC##complex                           \
                                        : hipsolver->hipsolverZ##complex)(__VA_ARGS__))

static int sizes(const bcfg_device_library *library, bcfg_handle *lent, const bcfg_step *step,
                 size_t *workspace_bytes, size_t *host_bytes, const char **function) {
    const bcfg_hipsolver_table *hipsolver = bcfg_hipsolver(library);
    solver_handle *handle = lent->handle;
    *workspace_bytes = *host_bytes = 0;
    int status = promise(hipsolver, handle, step, function);
    if (status != 0) return status;
    void *h = handle->handle, *a = step->a, *b = step->b, *values = step->values;
    int m = (int)step->m, n = (int)step->n, k = (int)step->k, bytes = 0;
    int *pivots = (int *)(void *)step->pivots;
    signed char vectors = (signed char)step->vectors;
    switch (step->kind) {
    case BCFG_STEP_CHOLESKY:
        status = CALL(potrf_bufferSize, potrf_bufferSize, h, fill_of(step), n, a, n, &bytes);
        break;
    case BCFG_STEP_CHOLESKY_SOLVE:
        status =
            CALL(potrs_bufferSize, potrs_bufferSize, h, fill_of(step), n, k, a, n, b, n, &bytes);
        break;
    case BCFG_STEP_LU:
        status = CALL(getrf_bufferSize, getrf_bufferSize, h, m, n, a, m, &bytes);
        break;
    case BCFG_STEP_LU_SOLVE:
        status = CALL(getrs_bufferSize, getrs_bufferSize, h, operation_of(step), n, k, a, n, pivots,
                      b, n, &bytes);
        break;
    case BCFG_STEP_QR:
        status = CALL(geqrf_bufferSize, geqrf_bufferSize, h, m, n, a, m, &bytes);
        break;
    case BCFG_STEP_QR_VECTORS:
        status = CALL(orgqr_bufferSize, ungqr_bufferSize, h, m, n, k, a, m, values, &bytes);
        break;
    case BCFG_STEP_EIGH:
        status = CALL(syevd_bufferSize, heevd_bufferSize, h, mode_of(step), fill_of(step), n, a, n,
                      values, &bytes);
        break;
    default:
        status = CALL(gesvd_bufferSize, gesvd_bufferSize, h, vectors, vectors, m, n, &bytes);
    }
    if (status == 0) *workspace_bytes = (size_t)bytes;
    return status;
}

/* One matrix, at an index of the stack. */
static int one(const bcfg_hipsolver_table *hipsolver, const solver_handle *handle,
               const bcfg_step *step, int64_t at, const char **function) {
    void *h = handle->handle, *work = step->workspace;
    int m = (int)step->m, n = (int)step->n, k = (int)step->k, bytes = (int)step->workspace_bytes;
    char *a = step->a + at * step->a_stride, *b = step->b + at * step->b_stride;
    char *c = step->c + at * step->c_stride, *values = step->values + at * step->values_stride;
    int *pivots = (int *)(void *)(step->pivots + at * step->pivots_stride);
    int *info = (int *)(void *)(step->info + at * step->info_stride);
    signed char vectors = (signed char)step->vectors;
    switch (step->kind) {
    case BCFG_STEP_CHOLESKY:
        return CALL(potrf, potrf, h, fill_of(step), n, a, n, work, bytes, info);
    case BCFG_STEP_CHOLESKY_SOLVE:
        return CALL(potrs, potrs, h, fill_of(step), n, k, a, n, b, n, work, bytes, info);
    case BCFG_STEP_LU: return CALL(getrf, getrf, h, m, n, a, m, work, bytes, pivots, info);
    case BCFG_STEP_LU_SOLVE:
        return CALL(getrs, getrs, h, operation_of(step), n, k, a, n, pivots, b, n, work, bytes,
                    info);
    case BCFG_STEP_QR: return CALL(geqrf, geqrf, h, m, n, a, m, values, work, bytes, info);
    case BCFG_STEP_QR_VECTORS:
        return CALL(orgqr, ungqr, h, m, n, k, a, m, values, work, bytes, info);
    case BCFG_STEP_EIGH:
        return CALL(syevd, heevd, h, mode_of(step), fill_of(step), n, a, n, values, work, bytes,
                    info);
    default:
        /* Without memory for what lies beside the diagonal it takes that from the workspace, which
         * has room for it. */
        return CALL(gesvd, gesvd, h, vectors, vectors, m, n, a, m, values, b, m, c, n, work, bytes,
                    NULL, info);
    }
}

static int compute(const bcfg_device_library *library, bcfg_handle *lent, const bcfg_step *step,
                   const char **function) {
    const bcfg_hipsolver_table *hipsolver = bcfg_hipsolver(library);
    int status = promise(hipsolver, lent->handle, step, function);
    for (int64_t at = 0; status == 0 && at < step->matrices; at++)
        status = one(hipsolver, lent->handle, step, at, function);
    return status;
}

const bcfg_vendor bcfg_hipsolver_vendor = {name_of, create, destroy};
const bcfg_solver bcfg_hipsolver_solver = {supports, sizes, compute};
