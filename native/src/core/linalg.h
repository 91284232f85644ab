/* Linear algebra on stacks of matrices: one problem, who serves it, and its solution. */
#ifndef BACKENDCFG_LINALG_H
#define BACKENDCFG_LINALG_H

#include "lapack.h"

enum {
#define LINEAR(name, NAME, real, complex, by) BCFG_##NAME,
#include "linalg.inc"
#undef LINEAR
    BCFG_LINEAR_OPERATIONS
};

/* One result of every matrix: dense, `step` bytes from one matrix to the next. */
typedef struct {
    char *data;
    int64_t step;
} bcfg_result;

/* A stack of problems of one shape. `a` is m by n (n by n where it must be square); `b` has k
 * columns, or k rows when it stands to the left of `a`. Matrices of results lie by columns, except
 * where `by_rows` is said.
 *
 *   inv, cholesky, cholesky_inverse   x, by rows if `by_rows`
 *   cholesky_solve, lu_solve, solve   x; by rows, k by n, if `from_right`
 *   lu_factor                         x the factors, out_pivots
 *   lu                                x = P, y = L, z = U
 *   qr                                x = Q, y = R; mode 'r' (R only), 'S' (reduced), 'A' (complete)
 *   eigh, eigvalsh                    values, and x
 *   svd, svdvals                      values, x = U and y = V^H, both by rows if `by_rows`;
 *                                     mode 'S' or 'A' (full matrices)
 */
typedef struct {
    int32_t operation, element, dimensions;
    const int64_t *shape;                           /* of the stack */
    int64_t matrices, m, n, k;
    bcfg_operand a, b;
    bcfg_operand pivots;                            /* int32, row_stride apart */
    bool upper, adjoint, from_right, by_rows;
    char mode;
    bcfg_result x, y, z, values, out_pivots;
    int32_t *info;                                  /* for each matrix: 0, or where it failed */
} bcfg_problem;

/* `info` where LAPACK was not called, because the matrix has NaN or infinity. */
enum { BCFG_NOT_FINITE_INFO = -1 };

/* Solves it with a table. Everything but the numbers has been checked by the caller; results
 * overlap nothing. Errors: BCFG_E_MEMORY, and BCFG_E_ARGUMENT for a pivot outside the matrix. */
bcfg_status bcfg_linalg(const bcfg_lapack *lapack, const bcfg_problem *problem, bcfg_error *error);

/* linalg_one.c: one matrix, with a worker's scratch. Returns its info. */
typedef struct {
    char *matrix;                                   /* m by n elements */
    void *pivots, *factors;
    bcfg_space space;
} bcfg_scratch;
typedef struct {
    const char *a, *b;
    const char *pivots;
    char *x, *y, *z, *values;
    int32_t *out_pivots;
} bcfg_place;
int64_t bcfg_linalg_one(const bcfg_lapack *lapack, const bcfg_problem *problem,
                        const bcfg_place *place, const bcfg_scratch *scratch);
/* What a worker's scratch must hold, in `space` its lengths. */
void bcfg_linalg_lengths(const bcfg_lapack *lapack, const bcfg_problem *problem, bcfg_space *space);

/* linalg_choose.c: what the choice thinks of one provider. */
typedef enum {
    BCFG_LINEAR_SERVES = 0,
    BCFG_LINEAR_BEHIND = 1,
    BCFG_LINEAR_TOO_LARGE = 2,   /* a size does not fit its 32-bit integers */
    BCFG_LINEAR_LACKS = 3,       /* it has no usable LAPACK */
    BCFG_LINEAR_VARIES = 4,      /* its bits may change with its threads, which the tier forbids */
    BCFG_LINEAR_SLOWER = 5,      /* ours is faster for a matrix this small */
    BCFG_LINEAR_PRODUCTS = 6,    /* its fast kernels are for products */
} bcfg_linear_verdict;

/* Why the one that serves does. */
typedef enum {
    BCFG_LINEAR_FIRST = 0,       /* the first of the order */
    BCFG_LINEAR_ABLE = 1,        /* those before it cannot */
    BCFG_LINEAR_SMALL = 2,       /* ours, because the matrix is small */
    BCFG_LINEAR_STEADY = 3,      /* ours, because the tier promises its bits */
    BCFG_LINEAR_FASTEST = 4,     /* measured to be the fastest for its size */
    BCFG_LINEAR_REASONS
} bcfg_linear_reason;

typedef struct {
    const bcfg_provider *provider;
    int32_t why;
} bcfg_linear_choice;

/* Which measured preference decides an operation: that of the factorisation it is built on. */
int32_t bcfg_linalg_measured_by(int32_t operation, int32_t element);

/* The table that serves, NULL for none. `verdicts`, unless it is NULL, gets one number for each
 * provider of the order; `choice`, unless it is NULL, who serves and why. Libraries are asked for
 * their LAPACK as far as that is needed. */
const bcfg_lapack *bcfg_linalg_choose(const bcfg_snapshot *snapshot, int32_t operation,
                                      int32_t element, int64_t m, int64_t n, int64_t k,
                                      int32_t *verdicts, bcfg_linear_choice *choice);

/* Up to this size a library computes in the calling thread, so that a stack of matrices may be
 * shared out among threads of ours; above, it uses its own, one matrix after the other. The same
 * size goes the same way alone and in a stack. */
enum { BCFG_LIBRARY_ALONE = 48 };

/* linalg_copy.c. Where by columns: packs an m by n matrix so, else by rows. */
void bcfg_take_matrix(int64_t size, char *to, const bcfg_operand *operand, const char *from,
                      int64_t m, int64_t n, bool by_columns);
/* Of an n by n matrix that lies by columns: zeros above or below the diagonal; the conjugate of
 * one triangle into the other; whether a triangle, or everything, is finite. */
void bcfg_clear_triangle(int32_t element, int64_t n, char *a, bool upper);
void bcfg_mirror_triangle(int32_t element, int64_t n, char *a, bool from_upper);
bool bcfg_finite_triangle(int32_t element, int64_t n, const char *a, bool upper);
void bcfg_conjugate(int32_t element, int64_t count, char *x);
void bcfg_fill_nan(int32_t element, int64_t count, char *x);
void bcfg_fill_identity(int32_t element, int64_t m, int64_t n, char *x);
/* Whether a diagonal element is NaN: its place from 1, or 0. */
int64_t bcfg_nan_on_diagonal(int32_t element, int64_t n, const char *a);

#endif
