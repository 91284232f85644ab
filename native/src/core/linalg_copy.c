/* Copies and fills matrices before and after a call of LAPACK. */
#include <math.h>
#include <string.h>

#include "linalg.h"

void bcfg_take_matrix(int64_t size, char *to, const bcfg_operand *operand, const char *from,
                      int64_t m, int64_t n, bool by_columns) {
    int64_t row = operand->row_stride, column = operand->column_stride;
    if (by_columns)
        bcfg_pack(size, to, from, column, row, n, m);
    else
        bcfg_pack(size, to, from, row, column, m, n);
}

void bcfg_clear_triangle(int32_t element, int64_t n, char *a, bool upper) {
    int64_t size = bcfg_element_size[element];
    for (int64_t j = 0; j < n; j++) {
        int64_t from = upper ? 0 : j + 1, to = upper ? j : n;
        char *at = a + (from + j * n) * size, *end = a + (to + j * n) * size;
        if (end - at > 64)
            memset(at, 0, (size_t)(end - at));
        else
            for (int32_t zero = 0; at < end; at += sizeof zero) memcpy(at, &zero, sizeof zero);
    }
}

#define BY_REAL(STATEMENTS)                                                                        \
    if (element == BCFG_FLOAT32 || element == BCFG_COMPLEX64) {                                    \
        STATEMENTS(float)                                                                          \
    } else {                                                                                       \
        STATEMENTS(double)                                                                         \
    }

static inline int64_t parts_of(int32_t element) { return element >= BCFG_COMPLEX64 ? 2 : 1; }

#define MIRROR(real)                                                                               \
    real *x = (real *)(void *)a;                                                                   \
    for (int64_t j = 0; j < n; j++)                                                                \
        for (int64_t i = 0; i < j; i++) {                                                          \
            real *high = x + (i + j * n) * parts, *low = x + (j + i * n) * parts;                  \
            real *to = from_upper ? low : high, *from = from_upper ? high : low;                   \
            to[0] = from[0];                                                                       \
            if (parts == 2) to[1] = -from[1];                                                      \
        }

void bcfg_mirror_triangle(int32_t element, int64_t n, char *a, bool from_upper) {
    int64_t parts = parts_of(element);
    BY_REAL(MIRROR)
}

#define FINITE(real)                                                                               \
    const real *x = (const real *)(const void *)a;                                                 \
    for (int64_t j = 0; j < n; j++) {                                                              \
        int64_t from = upper ? 0 : j, to = upper ? j + 1 : n;                                      \
        real sum = 0;                                                                              \
        for (int64_t i = (from + j * n) * parts; i < (to + j * n) * parts; i++) sum += x[i] * 0;   \
        if (sum != 0) return false; /* 0 times NaN or infinity is NaN */                           \
    }

bool bcfg_finite_triangle(int32_t element, int64_t n, const char *a, bool upper) {
    int64_t parts = parts_of(element);
    BY_REAL(FINITE)
    return true;
}

#define CONJUGATE(real)                                                                            \
    real *of = (real *)(void *)x;                                                                  \
    for (int64_t i = 0; i < count; i++) of[2 * i + 1] = -of[2 * i + 1];

void bcfg_conjugate(int32_t element, int64_t count, char *x) {
    if (parts_of(element) == 1) return;
    BY_REAL(CONJUGATE)
}

#define FILL(real)                                                                                 \
    real *to = (real *)(void *)x;                                                                  \
    for (int64_t i = 0; i < count * parts_of(element); i++) to[i] = (real)NAN;

void bcfg_fill_nan(int32_t element, int64_t count, char *x) { BY_REAL(FILL) }

#define IDENTITY(real)                                                                             \
    for (int64_t i = 0; i < m && i < n; i++)                                                       \
        ((real *)(void *)x)[(i + i * m) * parts_of(element)] = 1;

void bcfg_fill_identity(int32_t element, int64_t m, int64_t n, char *x) {
    if (m == 0 || n == 0) return;
    memset(x, 0, (size_t)(m * n * bcfg_element_size[element]));
    BY_REAL(IDENTITY)
}

#define DIAGONAL(real)                                                                             \
    for (int64_t i = 0; i < n; i++)                                                                \
        if (isnan(((const real *)(const void *)a)[i * (n + 1) * parts_of(element)])) return i + 1;

int64_t bcfg_nan_on_diagonal(int32_t element, int64_t n, const char *a) {
    BY_REAL(DIAGONAL)
    return 0;
}
