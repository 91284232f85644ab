/* Eigenvalues and singular values of matrices on host memory, by Jacobi's rotations: for the fakes.
 * Conventions are those of factorisations.h. */
#ifndef DECOMPOSITIONS_H
#define DECOMPOSITIONS_H

#include "factorisations.h"

/* A rotation that makes real numbers with a product between them independent: its tangent. */
static inline double tangent_of(double first, double second, double between) {
    double half = (second - first) / (2 * between);
    return (half >= 0 ? 1 : -1) / (fabs(half) + sqrt(1 + half * half));
}

/* Turns columns p and q of x, `rows` long: p = c p - s phase^* q, q = s p + c phase^* q. */
static inline void rotate(matrix x, int64_t rows, int64_t p, int64_t q, double c, double s,
                          entry phase) {
    for (int64_t row = 0; row < rows; row++) {
        entry first = entry_of(x, row, p), second = conjugate(phase) * entry_of(x, row, q);
        put_entry(x, row, p, c * first - s * second);
        put_entry(x, row, q, s * first + c * second);
    }
}

enum { SWEEPS = 60 };

/* syevd, heevd: eigenvalues of one triangle of a, ascending, into w, float or double as a is, and
 * the vectors into a where asked. 1 where it does not converge, as with NaN; 0 otherwise. */
static inline int64_t decompose_hermitian(matrix a, int upper, int64_t n, int with_vectors,
                                          void *w) {
    matrix x = {cleared(n * n, sizeof(entry)), 5, n > 0 ? n : 1}, v = identity_like(x, n);
    for (int64_t column = 0; column < n; column++)
        for (int64_t row = 0; row < n; row++) {
            int held = upper ? row <= column : row >= column;
            entry one = held ? entry_of(a, row, column) : conjugate(entry_of(a, column, row));
            put_entry(x, row, column, row == column ? real_part(one) : one);
        }
    double norm = 0;
    for (int64_t at = 0; at < n * n; at++) norm = hypot(norm, absolute(((entry *)x.data)[at]));
    int64_t turned = 1;
    for (int sweep = 0; sweep < SWEEPS && turned; sweep++) {
        turned = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                entry between = entry_of(x, p, q);
                double size = absolute(between);
                if (size <= 1e-15 * norm) continue;
                turned = 1;
                double t = tangent_of(real_part(entry_of(x, p, p)), real_part(entry_of(x, q, q)),
                                      size);
                double c = 1 / sqrt(1 + t * t);
                entry phase = between / size;
                rotate(x, n, p, q, c, c * t, phase);
                rotate(v, n, p, q, c, c * t, phase);
                for (int64_t column = 0; column < n; column++) { /* and the rows, adjoint */
                    entry first = entry_of(x, p, column), second = phase * entry_of(x, q, column);
                    put_entry(x, p, column, c * first - c * t * second);
                    put_entry(x, q, column, c * t * first + c * second);
                }
            }
    }
    matrix values = {w, real_of(a.type), 1};
    for (int64_t rank = 0; rank < n; rank++) { /* the smallest that is left */
        int64_t least = -1;
        double smallest = NAN;
        for (int64_t at = 0; at < n; at++) {
            double one = real_part(entry_of(x, at, at));
            if (least < 0 ? one == one : one < smallest) smallest = one, least = at;
        }
        if (least < 0) { /* NaN, or taken before */
            put_entry(values, 0, rank, (double)NAN);
            continue;
        }
        put_entry(values, 0, rank, entry_of(x, least, least));
        for (int64_t row = 0; with_vectors && row < n; row++)
            put_entry(a, row, rank, entry_of(v, row, least));
        put_entry(x, least, least, (double)NAN);
    }
    free(x.data);
    free(v.data);
    return turned;
}

/* Makes column `at` of u one of length 1 that is at right angles to those before. */
static inline void complete(matrix u, int64_t m, int64_t at) {
    for (int64_t unit = 0; unit < m; unit++) {
        for (int64_t row = 0; row < m; row++) put_entry(u, row, at, row == unit);
        for (int pass = 0; pass < 2; pass++)
            for (int64_t other = 0; other < at; other++) {
                entry sum = 0;
                for (int64_t row = 0; row < m; row++)
                    sum += conjugate(entry_of(u, row, other)) * entry_of(u, row, at);
                for (int64_t row = 0; row < m; row++)
                    put_entry(u, row, at, entry_of(u, row, at) - sum * entry_of(u, row, other));
            }
        double norm = 0;
        for (int64_t row = 0; row < m; row++) norm = hypot(norm, absolute(entry_of(u, row, at)));
        if (norm < 1 / sqrt(2.0 * (double)m)) continue; /* one unit has at least this left */
        for (int64_t row = 0; row < m; row++) put_entry(u, row, at, entry_of(u, row, at) / norm);
        return;
    }
}

/* gesvd: a = u diag(s) vh, m by n; s descending, float or double as a is. Of u the first
 * `u_columns` columns are written, of vh the first `vh_rows` rows, and a is as it was. 1 where it
 * does not converge, as with NaN; 0 otherwise. */
static inline int64_t decompose_singular(matrix a, int64_t m, int64_t n, void *s, matrix u,
                                         int64_t u_columns, matrix vh, int64_t vh_rows) {
    /* x has no fewer rows than columns: a, or its adjoint. */
    int adjoint = m < n;
    int64_t rows = adjoint ? n : m, few = adjoint ? m : n;
    matrix x = {cleared(rows * few, sizeof(entry)), 5, rows > 0 ? rows : 1};
    matrix v = identity_like(x, few);
    for (int64_t column = 0; column < few; column++)
        for (int64_t row = 0; row < rows; row++)
            put_entry(x, row, column, entry_applied(a, adjoint ? ADJOINT : AS_IS, row, column));
    int64_t turned = 1;
    for (int sweep = 0; sweep < SWEEPS && turned; sweep++) {
        turned = 0;
        for (int64_t p = 0; p < few; p++)
            for (int64_t q = p + 1; q < few; q++) {
                double first = 0, second = 0;
                entry between = 0;
                for (int64_t row = 0; row < rows; row++) {
                    entry one = entry_of(x, row, p), other = entry_of(x, row, q);
                    first += real_part(one * conjugate(one));
                    second += real_part(other * conjugate(other));
                    between += conjugate(one) * other;
                }
                double size = absolute(between);
                if (size <= 1e-14 * sqrt(first * second)) continue;
                turned = 1;
                double t = tangent_of(first, second, size), c = 1 / sqrt(1 + t * t);
                rotate(x, rows, p, q, c, c * t, between / size);
                rotate(v, few, p, q, c, c * t, between / size);
            }
    }
    double *norms = cleared(few, sizeof *norms), largest = 0;
    for (int64_t column = 0; column < few; column++) {
        for (int64_t row = 0; row < rows; row++)
            norms[column] = hypot(norms[column], absolute(entry_of(x, row, column)));
        if (norms[column] > largest) largest = norms[column];
    }
    /* Left and right vectors of x, sorted. */
    matrix left = {cleared(rows * rows, sizeof(entry)), 5, rows > 0 ? rows : 1};
    matrix right = {cleared(few * few, sizeof(entry)), 5, few > 0 ? few : 1};
    matrix values = {s, real_of(a.type), 1};
    for (int64_t rank = 0; rank < few; rank++) {
        int64_t best = -1;
        for (int64_t at = 0; at < few; at++)
            if (norms[at] >= 0 && (best < 0 || norms[at] > norms[best])) best = at;
        if (best < 0) { /* NaN */
            put_entry(values, 0, rank, (double)NAN);
            continue;
        }
        put_entry(values, 0, rank, norms[best]);
        for (int64_t row = 0; row < few; row++) put_entry(right, row, rank, entry_of(v, row, best));
        if (norms[best] > 1e-15 * largest)
            for (int64_t row = 0; row < rows; row++)
                put_entry(left, row, rank, entry_of(x, row, best) / norms[best]);
        else
            complete(left, rows, rank);
        norms[best] = -1;
    }
    for (int64_t column = few; column < rows; column++) complete(left, rows, column);
    for (int64_t column = 0; column < u_columns; column++)
        for (int64_t row = 0; row < m; row++)
            put_entry(u, row, column, entry_of(adjoint ? right : left, row, column));
    for (int64_t row = 0; row < vh_rows; row++)
        for (int64_t column = 0; column < n; column++)
            put_entry(vh, row, column, conjugate(entry_of(adjoint ? left : right, column, row)));
    free(norms);
    free(left.data);
    free(right.data);
    free(x.data);
    free(v.data);
    return turned;
}

#endif
