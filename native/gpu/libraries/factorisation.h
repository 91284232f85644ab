/* Linear algebra on a device: how a library is asked for one step of a function of ops.linalg.
 *
 * A function is one or two steps over a stack of matrices: a solution is LU and LU_SOLVE, QR is QR
 * and QR_VECTORS. Python plans them once for each kind of call: it makes all memory by the arrays'
 * own library, has the matrices put there by columns, and asks for the steps that come one after the
 * other in one call (backendcfg/gpu/linalg/solver.py). Each step has its own library.
 *
 * Who adds a library:
 *   1. abi_<library>.h, a kind, and its line in bcfg_solver_of below;
 *   2. a bcfg_vendor, in handle.c's table, which makes what is passed on as `handle`, and a
 *      bcfg_solver: `supports` says which steps it has, `sizes` what they need, `compute` puts one on
 *      the handle's stream;
 *   3. its rules from flags to a Recipe in backendcfg/gpu/linalg/steps.py (PROVIDERS, ORDERS,
 *      STEPS), with the type of pivots that it reads and writes.
 *
 * The rules of every step:
 *   - matrices lie by columns, each column right behind the one before: the leading dimension is the
 *     number of rows, at least 1. From one matrix of a stack to the next it is `*_stride` bytes, which
 *     may be 0 for what is only read;
 *   - all memory is the device's and ready in the order of the stream, and so must results be: a
 *     library that computes on the host or on a stream of its own waits by itself;
 *   - the triangle that a step does not read is not cleared by it;
 *   - `info` gets an int32 for each matrix, on the device, as LAPACK defines it: 0, or the place of
 *     the minor, the pivot or the value that failed. `info_stride` is 0 where nobody will read it;
 *   - sizes are never 0, `matrices` is at least 1;
 *   - a step that `is_together` is one call for the whole stack. Where each matrix starts it reads from
 *     arrays on the device, which are ready in the order of the stream too;
 *   - the result is 0 or the library's status, and *function names what was called last.
 */
#ifndef BACKENDCFG_DEVICE_FACTORISATION_H
#define BACKENDCFG_DEVICE_FACTORISATION_H

#include "gpu/device/handle.h"

/* What is read and written. `a` is always factorised where it lies. The numbers are those of STEPS
 * in backendcfg/gpu/linalg/steps.py. */
typedef enum {
    BCFG_STEP_CHOLESKY = 0,  /* potrf: a (n, n) -> its factor in the triangle `upper` */
    BCFG_STEP_CHOLESKY_SOLVE, /* potrs: b (n, k) <- solution, by the factor in a */
    BCFG_STEP_LU,            /* getrf: a (m, n) -> L and U; pivots (least of m, n) */
    BCFG_STEP_LU_SOLVE,      /* getrs: b (n, k) <- solution of op(A) X = b, by a and pivots */
    BCFG_STEP_QR,            /* geqrf: a (m, n) -> R, and reflectors below it; values: tau */
    BCFG_STEP_QR_VECTORS,    /* orgqr, ungqr: a (m, n) of k reflectors -> n columns of Q; values: tau */
    BCFG_STEP_EIGH,          /* syevd: a (n, n) -> eigenvectors unless vectors is 'N'; values: ascending */
    BCFG_STEP_SVD,           /* gesvd, m >= n: values: descending; unless vectors is 'N', b gets U
                                (m, m for 'A', m, n for 'S') and c V^H (n, n); a is lost */
    BCFG_STEPS
} bcfg_step_kind;

typedef struct {
    int32_t kind;            /* a bcfg_step_kind */
    int32_t element;         /* BCFG_FLOAT32 to BCFG_COMPLEX128 */
    int32_t deterministic;   /* the library's number of a mode to set; 0 where there is none */
    char transpose;          /* LU_SOLVE: 'N', 'T' or 'C' */
    char vectors;            /* EIGH: 'N' or 'S'; SVD: 'N', 'S' or 'A' */
    bool upper;              /* CHOLESKY, CHOLESKY_SOLVE, EIGH */
    bool is_together;        /* one call for the whole stack, by the pointers below */
    int64_t matrices, m, n, k;
    char *a, *b, *c;
    char *values;            /* real for EIGH and SVD, of the element's type for QR */
    char *pivots;            /* from 1, of the integers that the library has */
    char *info;
    void **a_pointers, **b_pointers; /* on the device: where each matrix of a and of b starts */
    int64_t a_stride, b_stride, c_stride, values_stride, pivots_stride, info_stride; /* bytes */
    void *workspace;         /* the device's, of workspace_bytes, as `sizes` said */
    size_t workspace_bytes;
    void *host;              /* the host's, until the call returns */
    size_t host_bytes;
} bcfg_step;

typedef struct {
    /* Whether it has a step for an element. */
    bool (*supports)(const bcfg_device_library *library, const bcfg_step *step);
    /* Bytes of workspace on the device and on the host that the step needs for all its matrices; they
     * are reused from one matrix to the next. The addresses in the step may be NULL. */
    int (*sizes)(const bcfg_device_library *library, bcfg_handle *handle, const bcfg_step *step,
                 size_t *workspace_bytes, size_t *host_bytes, const char **function);
    int (*compute)(const bcfg_device_library *library, bcfg_handle *handle, const bcfg_step *step,
                   const char **function);
} bcfg_solver;

extern const bcfg_solver bcfg_cublas_solver, bcfg_cusolver_solver, bcfg_hipsolver_solver,
    bcfg_magma_solver;

/* NULL for a library that factorises nothing. */
static inline const bcfg_solver *bcfg_solver_of(const bcfg_device_library *library) {
    switch (library->kind) {
    case BCFG_CUBLAS: return &bcfg_cublas_solver;
    case BCFG_CUSOLVER: return &bcfg_cusolver_solver;
    case BCFG_HIPSOLVER: return &bcfg_hipsolver_solver;
    case BCFG_MAGMA:
    case BCFG_MAGMA_HIP: return &bcfg_magma_solver;
    default: return NULL;
    }
}

#endif
