/* One matrix: what is copied, what LAPACK is called for, and what is made of its answer.
 *
 * LAPACK reads by columns. A matrix that lies by rows is the transpose of one that lies by columns,
 * and is not turned where the mathematics allows: the inverse and the factor of the transpose are
 * the transposes of the inverse and the factor, and the singular vectors change places. */
#include <string.h>

#include "linalg.h"

typedef struct {
    const bcfg_lapack *lapack;
    const bcfg_problem *p;
    const bcfg_place *at;
    const bcfg_scratch *scratch;
    int32_t element;
    int64_t size;
} One;

static bool rows_are_dense(const One *one) {
    return one->p->a.column_stride == one->size && one->p->a.row_stride != one->size;
}

static char swapped(bool upper, bool flip) { return upper != flip ? 'U' : 'L'; }

/* LU of the n by n matrix `to`, which was taken from `a`. Which pivot is zero is a question about
 * the matrix, not its transpose: where the transpose has one, the matrix is asked. */
static int64_t factorise(const One *one, char *to, bool by_columns) {
    int64_t n = one->p->n;
    int64_t info = bcfg_getrf(one->lapack, one->element, n, n, to, n, one->scratch->pivots);
    if (info <= 0 || by_columns) return info;
    bcfg_take_matrix(one->size, to, &one->p->a, one->at->a, n, n, true);
    int64_t again = bcfg_getrf(one->lapack, one->element, n, n, to, n, one->scratch->pivots);
    return again > 0 ? again : info;
}

static int64_t inverse(const One *one) {
    int64_t n = one->p->n;
    const bcfg_space *space = &one->scratch->space;
    bcfg_take_matrix(one->size, one->at->x, &one->p->a, one->at->a, n, n, !one->p->by_rows);
    int64_t info = factorise(one, one->at->x, !one->p->by_rows);
    if (info == 0)
        info = bcfg_getri(one->lapack, one->element, n, one->at->x, one->scratch->pivots,
                          space->work, space->length);
    if (info != 0) bcfg_fill_nan(one->element, n * n, one->at->x);
    return info;
}

static int64_t cholesky(const One *one) {
    int64_t n = one->p->n;
    char triangle = swapped(one->p->upper, one->p->by_rows), *x = one->at->x;
    bcfg_take_matrix(one->size, x, &one->p->a, one->at->a, n, n, !one->p->by_rows);
    int64_t info = bcfg_potrf(one->lapack, one->element, triangle, n, x);
    if (info == 0) info = bcfg_nan_on_diagonal(one->element, n, x);
    bcfg_clear_triangle(one->element, n, x, triangle == 'L');
    return info;
}

/* A factor where it lies, or a copy by columns; *flipped where its transpose lies by columns. */
static const char *factor_of(const One *one, bool may_flip, bool *flipped) {
    int64_t n = one->p->n, row = one->p->a.row_stride, column = one->p->a.column_stride;
    bool aligned = (uintptr_t)one->at->a % (uintptr_t)one->size == 0;
    *flipped = false;
    if (aligned && row == one->size && column == n * one->size) return one->at->a;
    if (aligned && may_flip && column == one->size && row == n * one->size) {
        *flipped = true;
        return one->at->a;
    }
    bcfg_take_matrix(one->size, one->scratch->matrix, &one->p->a, one->at->a, n, n, true);
    return one->scratch->matrix;
}

static int64_t cholesky_solve(const One *one) {
    int64_t n = one->p->n, k = one->p->k;
    bool flipped;
    const char *factor = factor_of(one, one->element < BCFG_COMPLEX64, &flipped);
    bcfg_take_matrix(one->size, one->at->x, &one->p->b, one->at->b, n, k, true);
    if (k == 0) return 0;
    return bcfg_potrs(one->lapack, one->element, swapped(one->p->upper, flipped), n, k, factor,
                      one->at->x);
}

static int64_t cholesky_inverse(const One *one) {
    int64_t n = one->p->n;
    char triangle = swapped(one->p->upper, one->p->by_rows), *x = one->at->x;
    bcfg_take_matrix(one->size, x, &one->p->a, one->at->a, n, n, !one->p->by_rows);
    int64_t info = bcfg_potri(one->lapack, one->element, triangle, n, x);
    if (info != 0)
        bcfg_fill_nan(one->element, n * n, x);
    else
        bcfg_mirror_triangle(one->element, n, x, triangle == 'U');
    return info;
}

static int64_t lu_factor(const One *one) {
    int64_t m = one->p->m, n = one->p->n, least = m < n ? m : n;
    bcfg_take_matrix(one->size, one->at->x, &one->p->a, one->at->a, m, n, true);
    int64_t info =
        bcfg_getrf(one->lapack, one->element, m, n, one->at->x, m, one->scratch->pivots);
    for (int64_t i = 0; i < least; i++)
        one->at->out_pivots[i] = (int32_t)bcfg_pivot(one->lapack, one->scratch->pivots, i);
    return info;
}

/* P L U = A: the exchanges of rows are undone on the identity, last one first. */
static int64_t lu(const One *one) {
    int64_t m = one->p->m, n = one->p->n, least = m < n ? m : n, size = one->size;
    char *factors = one->scratch->matrix, *l = one->at->y, *u = one->at->z, *x = one->at->x;
    bcfg_take_matrix(size, factors, &one->p->a, one->at->a, m, n, true);
    (void)bcfg_getrf(one->lapack, one->element, m, n, factors, m, one->scratch->pivots);
    bcfg_fill_identity(one->element, m, m, x);
    bcfg_fill_identity(one->element, m, least, l);
    for (int64_t j = 0; j < least; j++)
        memcpy(l + (j + 1 + j * m) * size, factors + (j + 1 + j * m) * size,
               (size_t)((m - j - 1) * size));
    for (int64_t j = 0; j < n; j++) {
        int64_t filled = j + 1 < least ? j + 1 : least;
        memcpy(u + j * least * size, factors + j * m * size, (size_t)(filled * size));
        memset(u + (j * least + filled) * size, 0, (size_t)((least - filled) * size));
    }
    for (int64_t i = least - 1; i >= 0; i--) {
        int64_t with = bcfg_pivot(one->lapack, one->scratch->pivots, i) - 1;
        if (with == i) continue;
        for (int64_t j = 0; j < m; j++) {
            char kept[16];
            memcpy(kept, x + (i + j * m) * size, (size_t)size);
            memcpy(x + (i + j * m) * size, x + (with + j * m) * size, (size_t)size);
            memcpy(x + (with + j * m) * size, kept, (size_t)size);
        }
    }
    return 0;
}

/* op(A) X = B, or X op(A) = B, which is op(A)^T X^T = B^T. */
static int64_t lu_solve(const One *one) {
    int64_t n = one->p->n, k = one->p->k;
    bool flipped, conjugated = one->p->from_right && one->p->adjoint;
    const char *factors = factor_of(one, false, &flipped);
    for (int64_t i = 0; i < n; i++) {
        int32_t pivot;
        memcpy(&pivot, one->at->pivots + i * one->p->pivots.row_stride, sizeof pivot);
        /* They were checked, but another thread may have written them since. */
        if (pivot < 1 || pivot > n) pivot = (int32_t)i + 1;
        bcfg_set_pivot(one->lapack, one->scratch->pivots, i, pivot);
    }
    bcfg_take_matrix(one->size, one->at->x, &one->p->b, one->at->b, one->p->from_right ? k : n,
                     one->p->from_right ? n : k, !one->p->from_right);
    if (k == 0) return 0;
    char how = one->p->from_right == one->p->adjoint ? 'N' : one->p->adjoint ? 'C' : 'T';
    if (conjugated) bcfg_conjugate(one->element, n * k, one->at->x);
    (void)bcfg_getrs(one->lapack, one->element, how, n, k, factors, one->scratch->pivots,
                     one->at->x);
    if (conjugated) bcfg_conjugate(one->element, n * k, one->at->x);
    return 0;
}

static int64_t solve(const One *one) {
    int64_t n = one->p->n, k = one->p->k;
    bool right = one->p->from_right, by_columns = !rows_are_dense(one);
    /* The reference solves with complex factors faster where they lie by columns. */
    if (one->lapack->provider == &bcfg_reference_provider && one->element >= BCFG_COMPLEX64) by_columns = true;
    char *factors = one->scratch->matrix;
    bcfg_take_matrix(one->size, factors, &one->p->a, one->at->a, n, n, by_columns);
    int64_t info = factorise(one, factors, by_columns);
    if (info != 0) {
        bcfg_fill_nan(one->element, n * k, one->at->x);
        return info;
    }
    bcfg_take_matrix(one->size, one->at->x, &one->p->b, one->at->b, right ? k : n, right ? n : k,
                     !right);
    if (k == 0) return 0;
    return bcfg_getrs(one->lapack, one->element, by_columns != right ? 'N' : 'T', n, k, factors,
                      one->scratch->pivots, one->at->x);
}

static int64_t qr(const One *one) {
    int64_t m = one->p->m, n = one->p->n, least = m < n ? m : n, size = one->size;
    int64_t columns = one->p->mode == 'A' ? m : least, rows = one->p->mode == 'A' ? m : least;
    const bcfg_space *space = &one->scratch->space;
    bool aside = one->p->mode == 'r' || n > columns;
    char *q = aside ? one->scratch->matrix : one->at->x;
    bcfg_take_matrix(size, q, &one->p->a, one->at->a, m, n, true);
    int64_t info = bcfg_geqrf(one->lapack, one->element, m, n, q, one->scratch->factors,
                              space->work, space->length);
    for (int64_t j = 0; j < n; j++) {
        int64_t filled = j + 1 < least ? j + 1 : least;
        char *to = one->at->y + j * rows * size;
        memcpy(to, q + j * m * size, (size_t)(filled * size));
        memset(to + filled * size, 0, (size_t)((rows - filled) * size));
    }
    if (one->p->mode == 'r' || info != 0) return info;
    if (aside) memcpy(one->at->x, q, (size_t)(m * columns * size));
    return bcfg_orgqr(one->lapack, one->element, m, columns, least, one->at->x,
                      one->scratch->factors, space->work, space->length);
}

static int64_t eigen(const One *one) {
    int64_t n = one->p->n;
    bool vectors = one->p->operation == BCFG_EIGH;
    bool by_columns = one->element >= BCFG_COMPLEX64 || !rows_are_dense(one);
    char triangle = swapped(one->p->upper, !by_columns);
    char *x = vectors ? one->at->x : one->scratch->matrix;
    bcfg_take_matrix(one->size, x, &one->p->a, one->at->a, n, n, by_columns);
    if (!bcfg_finite_triangle(one->element, n, x, triangle == 'U')) return BCFG_NOT_FINITE_INFO;
    return bcfg_syevd(one->lapack, one->element, vectors ? 'V' : 'N', triangle, n, x,
                      one->at->values, &one->scratch->space);
}

static int64_t singular(const One *one) {
    int64_t m = one->p->m, n = one->p->n, least = m < n ? m : n;
    char how = one->p->operation == BCFG_SVDVALS ? 'N' : one->p->mode, *a = one->scratch->matrix;
    bool by_rows = one->p->by_rows;
    bcfg_take_matrix(one->size, a, &one->p->a, one->at->a, m, n, !by_rows);
    if (bcfg_not_finite(one->element, a, m * n * one->size, 1, m * n) >= 0)
        return BCFG_NOT_FINITE_INFO;
    if (by_rows)
        return bcfg_gesdd(one->lapack, one->element, how, n, m, a, one->at->values, one->at->y, n,
                          one->at->x, how == 'A' ? m : least, &one->scratch->space);
    return bcfg_gesdd(one->lapack, one->element, how, m, n, a, one->at->values, one->at->x, m,
                      one->at->y, how == 'A' ? n : least, &one->scratch->space);
}

static int64_t (*const operations[BCFG_LINEAR_OPERATIONS])(const One *) = {
    [BCFG_INV] = inverse,
    [BCFG_CHOLESKY] = cholesky,
    [BCFG_CHOLESKY_SOLVE] = cholesky_solve,
    [BCFG_CHOLESKY_INVERSE] = cholesky_inverse,
    [BCFG_LU_FACTOR] = lu_factor,
    [BCFG_LU] = lu,
    [BCFG_LU_SOLVE] = lu_solve,
    [BCFG_QR] = qr,
    [BCFG_EIGH] = eigen,
    [BCFG_EIGVALSH] = eigen,
    [BCFG_SVD] = singular,
    [BCFG_SVDVALS] = singular,
    [BCFG_SOLVE] = solve,
};

int64_t bcfg_linalg_one(const bcfg_lapack *lapack, const bcfg_problem *problem,
                        const bcfg_place *place, const bcfg_scratch *scratch) {
    One one = {lapack, problem, place, scratch, problem->element,
               bcfg_element_size[problem->element]};
    return operations[problem->operation](&one);
}

/* The size that a workspace query returned. A float cannot hold every integer, so it is rounded up. */
static int64_t answer(int32_t element, const void *work) {
    if (element == BCFG_FLOAT32 || element == BCFG_COMPLEX64) {
        float length;
        memcpy(&length, work, sizeof length);
        return (int64_t)((double)length * (1 + 1.2e-7)) + 1;
    }
    double length;
    memcpy(&length, work, sizeof length);
    return (int64_t)length;
}

static int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

void bcfg_linalg_lengths(const bcfg_lapack *lapack, const bcfg_problem *p, bcfg_space *space) {
    int64_t m = p->m, n = p->n, least = m < n ? m : n, most = m > n ? m : n;
    int32_t element = p->element;
    double work[4] = {0}, real[2] = {0}, nothing[4];
    int64_t whole[2] = {0};
    bcfg_space query = {work, real, whole, -1, -1, -1};
    *space = (bcfg_space){0};
    switch (p->operation) {
    case BCFG_INV:
        (void)bcfg_getri(lapack, element, n, nothing, whole, work, -1);
        space->length = answer(element, work);
        break;
    case BCFG_QR:
        (void)bcfg_geqrf(lapack, element, m, n, nothing, nothing, work, -1);
        space->length = answer(element, work);
        (void)bcfg_orgqr(lapack, element, m, p->mode == 'A' ? m : least, least, nothing, nothing,
                         work, -1);
        space->length = larger(space->length, answer(element, work));
        break;
    case BCFG_EIGH:
    case BCFG_EIGVALSH:
        (void)bcfg_syevd(lapack, element, p->operation == BCFG_EIGH ? 'V' : 'N', 'L', n, nothing,
                         nothing, &query);
        space->length = answer(element, work);
        space->real_length = answer(element, real);
        space->integer_length = larger(bcfg_pivot(lapack, whole, 0), 3 + 5 * n);
        break;
    case BCFG_SVD:
    case BCFG_SVDVALS: {
        int64_t rows = p->by_rows ? n : m, columns = p->by_rows ? m : n;
        char how = p->operation == BCFG_SVDVALS ? 'N' : p->mode;
        (void)bcfg_gesdd(lapack, element, how, rows, columns, nothing, nothing, nothing, rows,
                         nothing, columns, &query);
        space->length = answer(element, work);
        space->real_length = larger(5 * least * least + 7 * least,
                                    2 * most * least + 2 * least * least + least);
        space->integer_length = 8 * least;
        break;
    }
    default: break;
    }
}
