/* Stacks of matrices behind arrays of pointers, one after the other: for the fakes of libraries whose
 * functions take them in one call. */
#ifndef STACKS_H
#define STACKS_H

#include "factorisations.h"

/* The function for stacks works in the other triangle. */
static inline int64_t stacked_cholesky(matrix a, int upper, int64_t n) {
    int64_t info = factor_cholesky(a, upper, n);
    for (int64_t row = 0; row < n; row++)
        for (int64_t column = 0; column < n; column++)
            if (upper ? row > column : row < column) put_entry(a, row, column, NAN);
    return info;
}

static inline int64_t *wide_pivots(const int *pivots, int64_t n) {
    int64_t *wide = cleared(n, sizeof *wide);
    for (int64_t at = 0; pivots && at < n; at++) wide[at] = pivots[at];
    return wide;
}

static inline void stack_lu(void *const *a, int type, int64_t n, int64_t leading, int *pivots,
                            int *info, int batch) {
    for (int which = 0; which < batch; which++) {
        int64_t *wide = wide_pivots(NULL, n);
        info[which] = (int)factor_lu((matrix){a[which], type, leading}, n, n, wide);
        for (int64_t at = 0; at < n; at++) pivots[which * n + at] = (int)wide[at];
        free(wide);
    }
}

static inline void stack_solve_lu(const void *const *a, int type, enum applied how, int64_t n,
                                  int64_t count, int64_t leading, const int *pivots,
                                  void *const *b, int64_t b_leading, int batch) {
    for (int which = 0; which < batch; which++) {
        int64_t *wide = wide_pivots(pivots + which * n, n);
        solve_lu((matrix){(void *)(uintptr_t)a[which], type, leading}, how, n, wide,
                 (matrix){b[which], type, b_leading}, count);
        free(wide);
    }
}

#endif
