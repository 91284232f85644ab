/* Factorisations of matrices on host memory, as a LAPACK of a device would compute them: for the
 * fakes.
 *
 * Column-major, with LAPACK's conventions: where results lie, signs of reflectors, pivots and infos
 * that count from 1. What is stored is rounded to the type of its matrix; sums between are float64.
 * All is slow: for small matrices. Eigenvalues and singular values are in decompositions.h.
 */
#ifndef FACTORISATIONS_H
#define FACTORISATIONS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* <complex.h> would define I, which is recorded.h's. */
typedef double _Complex entry;

static inline double real_part(entry number) { return __real__ number; }
static inline double imaginary_part(entry number) { return __imag__ number; }
static inline entry conjugate(entry number) { return __builtin_conj(number); }
static inline double absolute(entry number) { return __builtin_cabs(number); }

/* A column-major matrix. `type`, as a cudaDataType: 0 float, 1 double, 4 and 5 complex of them. */
typedef struct {
    void *data;
    int type;
    int64_t leading;
} matrix;

/* What is solved with or applied: a, its transpose or its conjugate transpose. */
enum applied { AS_IS, TRANSPOSED, ADJOINT };

static inline entry entry_of(matrix a, int64_t row, int64_t column) {
    int64_t at = row + column * a.leading;
    switch (a.type) {
    case 0: return ((const float *)a.data)[at];
    case 1: return ((const double *)a.data)[at];
    case 4: return ((const float _Complex *)a.data)[at];
    default: return ((const double _Complex *)a.data)[at];
    }
}

static inline void put_entry(matrix a, int64_t row, int64_t column, entry number) {
    int64_t at = row + column * a.leading;
    switch (a.type) {
    case 0: ((float *)a.data)[at] = (float)real_part(number); return;
    case 1: ((double *)a.data)[at] = real_part(number); return;
    case 4: ((float _Complex *)a.data)[at] = (float _Complex)number; return;
    default: ((double _Complex *)a.data)[at] = number;
    }
}

static inline size_t bytes_of(int type) { return (size_t[]){4, 8, 0, 0, 8, 16}[type]; }
static inline int real_of(int type) { return type == 0 || type == 4 ? 0 : 1; }

/* a's element, of what is applied. */
static inline entry entry_applied(matrix a, enum applied how, int64_t row, int64_t column) {
    if (how == AS_IS) return entry_of(a, row, column);
    entry number = entry_of(a, column, row);
    return how == ADJOINT ? conjugate(number) : number;
}

/* trsm: b(0:n, 0:count) = op(a)^-1 b, with one triangle of a, whose diagonal is 1 if `unit`. With
 * `on_right` b(0:count, 0:n) = b op(a)^-1. */
static inline void solve_triangular(matrix a, int upper, enum applied how, int unit, int on_right,
                                    int64_t n, matrix b, int64_t count) {
    /* From the right it is the transposed problem. */
    int below = (upper != 0) == (how != AS_IS);
    int forward = on_right ? !below : below;
    for (int64_t side = 0; side < count; side++)
        for (int64_t step = 0; step < n; step++) {
            int64_t row = forward ? step : n - 1 - step;
            entry sum = on_right ? entry_of(b, side, row) : entry_of(b, row, side);
            for (int64_t done = 0; done < step; done++) {
                int64_t other = forward ? done : n - 1 - done;
                entry factor = on_right ? entry_applied(a, how, other, row)
                                        : entry_applied(a, how, row, other);
                sum -= factor * (on_right ? entry_of(b, side, other) : entry_of(b, other, side));
            }
            if (!unit) sum /= entry_applied(a, how, row, row);
            if (on_right)
                put_entry(b, side, row, sum);
            else
                put_entry(b, row, side, sum);
        }
}

/* potrf: one triangle of a becomes its factor; the other is not touched. The order of the leading
 * minor that is not positive, or 0. */
static inline int64_t factor_cholesky(matrix a, int upper, int64_t n) {
    enum applied how = upper ? ADJOINT : AS_IS; /* as a lower one */
    for (int64_t column = 0; column < n; column++)
        for (int64_t row = column; row < n; row++) {
            entry sum = entry_applied(a, how, row, column);
            for (int64_t k = 0; k < column; k++)
                sum -= entry_applied(a, how, row, k) * conjugate(entry_applied(a, how, column, k));
            if (row == column) {
                if (!(real_part(sum) > 0)) return column + 1;
                sum = sqrt(real_part(sum));
            } else {
                sum /= entry_applied(a, how, column, column);
            }
            if (upper)
                put_entry(a, column, row, conjugate(sum));
            else
                put_entry(a, row, column, sum);
        }
    return 0;
}

/* potrs. */
static inline void solve_cholesky(matrix a, int upper, int64_t n, matrix b, int64_t count) {
    solve_triangular(a, upper, upper ? ADJOINT : AS_IS, 0, 0, n, b, count);
    solve_triangular(a, upper, upper ? AS_IS : ADJOINT, 0, 0, n, b, count);
}

static inline void *cleared(int64_t count, size_t size) {
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    if (memory == NULL) abort();
    return memory;
}

/* The identity, of the type of another matrix. For free(data). */
static inline matrix identity_like(matrix a, int64_t n) {
    matrix made = {cleared(n * n, bytes_of(a.type)), a.type, n > 0 ? n : 1};
    for (int64_t at = 0; at < n; at++) put_entry(made, at, at, 1);
    return made;
}

/* potri: a triangle of the inverse, from the factor in it. */
static inline void invert_cholesky(matrix a, int upper, int64_t n) {
    matrix inverse = identity_like(a, n);
    solve_cholesky(a, upper, n, inverse, n);
    for (int64_t column = 0; column < n; column++)
        for (int64_t row = 0; row < n; row++)
            if (upper ? row <= column : row >= column)
                put_entry(a, row, column, entry_of(inverse, row, column));
    free(inverse.data);
}

static inline void swap_rows(matrix a, int64_t first, int64_t second, int64_t count) {
    for (int64_t column = 0; column < count && first != second; column++) {
        entry kept = entry_of(a, first, column);
        put_entry(a, first, column, entry_of(a, second, column));
        put_entry(a, second, column, kept);
    }
}

/* Of complex numbers not the absolute value, so that LAPACK's row is chosen. */
static inline double size_of_pivot(entry number) {
    return fabs(real_part(number)) + fabs(imaginary_part(number));
}

/* getrf: unit lower and upper factors in a, m by n, its rows swapped by `pivots`, from 1, if not
 * NULL. The first column whose pivot is 0, from 1, or 0. */
static inline int64_t factor_lu(matrix a, int64_t m, int64_t n, int64_t *pivots) {
    int64_t singular = 0;
    for (int64_t step = 0; step < m && step < n; step++) {
        int64_t chosen = step;
        for (int64_t row = step + 1; pivots != NULL && row < m; row++) {
            if (size_of_pivot(entry_of(a, row, step)) > size_of_pivot(entry_of(a, chosen, step)))
                chosen = row;
        }
        if (pivots != NULL) {
            pivots[step] = chosen + 1;
            swap_rows(a, step, chosen, n);
        }
        entry pivot = entry_of(a, step, step);
        if (pivot == 0) {
            if (singular == 0) singular = step + 1;
            continue;
        }
        for (int64_t row = step + 1; row < m; row++) {
            put_entry(a, row, step, entry_of(a, row, step) / pivot);
            for (int64_t column = step + 1; column < n; column++)
                put_entry(a, row, column,
                    entry_of(a, row, column) - entry_of(a, row, step) * entry_of(a, step, column));
        }
    }
    return singular;
}

/* getrs. */
static inline void solve_lu(matrix a, enum applied how, int64_t n, const int64_t *pivots, matrix b,
                            int64_t count) {
    for (int64_t step = 0; how == AS_IS && pivots != NULL && step < n; step++)
        swap_rows(b, step, pivots[step] - 1, count);
    solve_triangular(a, how != AS_IS, how, how == AS_IS, 0, n, b, count);
    solve_triangular(a, how == AS_IS, how, how != AS_IS, 0, n, b, count);
    for (int64_t step = n - 1; how != AS_IS && pivots != NULL && step >= 0; step--)
        swap_rows(b, step, pivots[step] - 1, count);
}

/* getri: the inverse in place of the factors. The first 0 on the diagonal, from 1, or 0. */
static inline int64_t invert_lu(matrix a, int64_t n, const int64_t *pivots) {
    for (int64_t at = 0; at < n; at++)
        if (entry_of(a, at, at) == 0) return at + 1;
    matrix inverse = identity_like(a, n);
    solve_lu(a, AS_IS, n, pivots, inverse, n);
    for (int64_t column = 0; column < n; column++)
        for (int64_t row = 0; row < n; row++)
            put_entry(a, row, column, entry_of(inverse, row, column));
    free(inverse.data);
    return 0;
}

/* c(0:m, from:n) = h c, of one reflector h = 1 - tau v v^H in a's column `at`: v is 0 above row
 * `at` and 1 in it. */
static inline void reflect(matrix a, int64_t at, entry tau, int64_t m, matrix c, int64_t from,
                           int64_t n) {
    for (int64_t column = from; column < n; column++) {
        entry sum = entry_of(c, at, column);
        for (int64_t row = at + 1; row < m; row++)
            sum += conjugate(entry_of(a, row, at)) * entry_of(c, row, column);
        put_entry(c, at, column, entry_of(c, at, column) - tau * sum);
        for (int64_t row = at + 1; row < m; row++)
            put_entry(c, row, column, entry_of(c, row, column) - tau * sum * entry_of(a, row, at));
    }
}

/* geqrf: r above, reflectors below, and their factors in tau, which is of the type of a. */
static inline void factor_qr(matrix a, int64_t m, int64_t n, void *tau) {
    matrix factors = {tau, a.type, 1};
    for (int64_t step = 0; step < m && step < n; step++) {
        double below = 0;
        for (int64_t row = step + 1; row < m; row++)
            below = hypot(below, absolute(entry_of(a, row, step)));
        entry first = entry_of(a, step, step);
        if (below == 0 && imaginary_part(first) == 0) {
            put_entry(factors, 0, step, 0);
            continue;
        }
        double norm = hypot(below, absolute(first));
        double last = real_part(first) >= 0 ? -norm : norm;
        put_entry(factors, 0, step, (last - first) / last);
        for (int64_t row = step + 1; row < m; row++)
            put_entry(a, row, step, entry_of(a, row, step) / (first - last));
        reflect(a, step, conjugate(entry_of(factors, 0, step)), m, a, step + 1, n);
        put_entry(a, step, step, last);
    }
}

/* ormqr, unmqr from the left: c(0:m, 0:n) = q c, or q^H c, of a's first k reflectors. */
static inline void apply_q(matrix a, const void *tau, int adjoint, int64_t m, int64_t n, int64_t k,
                           matrix c) {
    matrix factors = {(void *)(uintptr_t)tau, a.type, 1};
    for (int64_t step = 0; step < k; step++) {
        int64_t at = adjoint ? step : k - 1 - step;
        entry factor = entry_of(factors, 0, at);
        reflect(a, at, adjoint ? conjugate(factor) : factor, m, c, 0, n);
    }
}

/* orgqr, ungqr: the first n columns of q, of k reflectors, in place of them. */
static inline void generate_q(matrix a, const void *tau, int64_t m, int64_t n, int64_t k) {
    matrix q = identity_like(a, m);
    apply_q(a, tau, 0, m, n, k, q);
    for (int64_t column = 0; column < n; column++)
        for (int64_t row = 0; row < m; row++) put_entry(a, row, column, entry_of(q, row, column));
    free(q.data);
}

#endif
