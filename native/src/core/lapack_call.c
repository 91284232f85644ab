/* Calls LAPACK: the only file that has its signatures, for both integer widths. Fortran's
 * characters have their length as a hidden argument behind the others. */
#include <string.h>

#include "lapack.h"

/* A statement made for either width of integers, with `f` the routine. */
#define IN_EITHER_WIDTH(ROUTINE, CALL)                                                             \
    bcfg_function f = lapack->functions[BCFG_##ROUTINE][element];                                  \
    if (lapack->interface == BCFG_LP64) {                                                          \
        CALL(int32_t)                                                                              \
    } else {                                                                                       \
        CALL(int64_t)                                                                              \
    }

static inline bool is_complex(int32_t element) { return element >= BCFG_COMPLEX64; }

int64_t bcfg_pivot(const bcfg_lapack *lapack, const void *pivots, int64_t at) {
    if (lapack->interface == BCFG_LP64) return ((const int32_t *)pivots)[at];
    return ((const int64_t *)pivots)[at];
}

void bcfg_set_pivot(const bcfg_lapack *lapack, void *pivots, int64_t at, int64_t value) {
    if (lapack->interface == BCFG_LP64)
        ((int32_t *)pivots)[at] = (int32_t)value;
    else
        ((int64_t *)pivots)[at] = value;
}

#define GETRF(I)                                                                                   \
    I rows = (I)m, columns = (I)n, lead = (I)leading, info = 0;                                    \
    ((void (*)(const I *, const I *, void *, const I *, I *, I *))f)(&rows, &columns, a, &lead,    \
                                                                     pivots, &info);               \
    return info;

int64_t bcfg_getrf(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, void *a,
                   int64_t leading, void *pivots) {
    IN_EITHER_WIDTH(GETRF, GETRF)
}

#define GETRI(I)                                                                                   \
    I size = (I)n, most = (I)length, info = 0;                                                     \
    ((void (*)(const I *, void *, const I *, const I *, void *, const I *, I *))f)(                \
        &size, a, &size, pivots, work, &most, &info);                                              \
    return info;

int64_t bcfg_getri(const bcfg_lapack *lapack, int32_t element, int64_t n, void *a,
                   const void *pivots, void *work, int64_t length) {
    IN_EITHER_WIDTH(GETRI, GETRI)
}

#define GETRS(I)                                                                                   \
    I size = (I)n, sides = (I)k, info = 0;                                                         \
    ((void (*)(const char *, const I *, const I *, const void *, const I *, const I *, void *,     \
               const I *, I *, size_t))f)(&how, &size, &sides, a, &size, pivots, x, &size, &info,  \
                                          1);                                                      \
    return info;

int64_t bcfg_getrs(const bcfg_lapack *lapack, int32_t element, char how, int64_t n, int64_t k,
                   const void *a, const void *pivots, void *x) {
    IN_EITHER_WIDTH(GETRS, GETRS)
}

#define TRIANGLE_ONLY(I)                                                                           \
    I size = (I)n, info = 0;                                                                       \
    ((void (*)(const char *, const I *, void *, const I *, I *, size_t))f)(&triangle, &size, a,    \
                                                                           &size, &info, 1);       \
    return info;

int64_t bcfg_potrf(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, void *a) {
    IN_EITHER_WIDTH(POTRF, TRIANGLE_ONLY)
}

int64_t bcfg_potri(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, void *a) {
    IN_EITHER_WIDTH(POTRI, TRIANGLE_ONLY)
}

#define POTRS(I)                                                                                   \
    I size = (I)n, sides = (I)k, info = 0;                                                         \
    ((void (*)(const char *, const I *, const I *, const void *, const I *, void *, const I *,     \
               I *, size_t))f)(&triangle, &size, &sides, a, &size, x, &size, &info, 1);            \
    return info;

int64_t bcfg_potrs(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, int64_t k,
                   const void *a, void *x) {
    IN_EITHER_WIDTH(POTRS, POTRS)
}

#define GEQRF(I)                                                                                   \
    I rows = (I)m, columns = (I)n, most = (I)length, info = 0;                                     \
    ((void (*)(const I *, const I *, void *, const I *, void *, void *, const I *, I *))f)(        \
        &rows, &columns, a, &rows, factors, work, &most, &info);                                   \
    return info;

int64_t bcfg_geqrf(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, void *a,
                   void *factors, void *work, int64_t length) {
    IN_EITHER_WIDTH(GEQRF, GEQRF)
}

#define ORGQR(I)                                                                                   \
    I rows = (I)m, columns = (I)n, reflections = (I)k, most = (I)length, info = 0;                 \
    ((void (*)(const I *, const I *, const I *, void *, const I *, const void *, void *,           \
               const I *, I *))f)(&rows, &columns, &reflections, a, &rows, factors, work, &most,   \
                                  &info);                                                          \
    return info;

int64_t bcfg_orgqr(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, int64_t k,
                   void *a, const void *factors, void *work, int64_t length) {
    IN_EITHER_WIDTH(ORGQR, ORGQR)
}

#define SYEVD(I)                                                                                   \
    I size = (I)n, most = (I)s->length, real = (I)s->real_length, whole = (I)s->integer_length;    \
    I info = 0;                                                                                    \
    if (is_complex(element))                                                                       \
        ((void (*)(const char *, const char *, const I *, void *, const I *, void *, void *,       \
                   const I *, void *, const I *, I *, const I *, I *, size_t, size_t))f)(          \
            &vectors, &triangle, &size, a, &size, values, s->work, &most, s->real, &real,          \
            s->integers, &whole, &info, 1, 1);                                                     \
    else                                                                                           \
        ((void (*)(const char *, const char *, const I *, void *, const I *, void *, void *,       \
                   const I *, I *, const I *, I *, size_t, size_t))f)(                             \
            &vectors, &triangle, &size, a, &size, values, s->work, &most, s->integers, &whole,     \
            &info, 1, 1);                                                                          \
    return info;

int64_t bcfg_syevd(const bcfg_lapack *lapack, int32_t element, char vectors, char triangle,
                   int64_t n, void *a, void *values, const bcfg_space *s) {
    IN_EITHER_WIDTH(SYEVD, SYEVD)
}

#define GESDD(I)                                                                                   \
    I rows = (I)m, columns = (I)n, u_lead = (I)u_leading, vh_lead = (I)vh_leading;                 \
    I most = (I)s->length, info = 0;                                                               \
    if (is_complex(element))                                                                       \
        ((void (*)(const char *, const I *, const I *, void *, const I *, void *, void *,          \
                   const I *, void *, const I *, void *, const I *, void *, I *, I *, size_t))f)(  \
            &how, &rows, &columns, a, &rows, values, u, &u_lead, vh, &vh_lead, s->work, &most,     \
            s->real, s->integers, &info, 1);                                                       \
    else                                                                                           \
        ((void (*)(const char *, const I *, const I *, void *, const I *, void *, void *,          \
                   const I *, void *, const I *, void *, const I *, I *, I *, size_t))f)(          \
            &how, &rows, &columns, a, &rows, values, u, &u_lead, vh, &vh_lead, s->work, &most,     \
            s->integers, &info, 1);                                                                \
    return info;

int64_t bcfg_gesdd(const bcfg_lapack *lapack, int32_t element, char how, int64_t m, int64_t n,
                   void *a, void *values, void *u, int64_t u_leading, void *vh, int64_t vh_leading,
                   const bcfg_space *s) {
    IN_EITHER_WIDTH(GESDD, GESDD)
}
