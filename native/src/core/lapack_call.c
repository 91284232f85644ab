/* Calls LAPACK. Fortran takes the address of every argument, and behind them the length of each
 * letter: so one call serves all routines. What a routine does not take is passed for nothing, and
 * a 64-bit integer on a little-endian machine begins with the 32-bit one that an LP64 library
 * reads. */
#include <string.h>

#include "lapack.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "integers are read in either width");

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

typedef int64_t compiled_in(void *const *given);
typedef const void *any;
typedef void fortran(any, any, any, any, any, any, any, any, any, any, any, any, any, any, any, any,
                     any);
enum { MOST = 14 };

/* `given` are the arguments before `info`, the first `letters` of which are letters. */
static int64_t call(const bcfg_lapack *lapack, int routine, int32_t element, int letters, int count,
                    any *given) {
    bcfg_function f = lapack->functions[routine][element];
    if (lapack->provider == &bcfg_reference_provider)
        return ((compiled_in *)f)((void *const *)(const void *)given);
    static const any length_of_one = (any)1;
    any x[MOST + 3] = {NULL};
    int64_t info = 0;
    memcpy(x, given, (size_t)count * sizeof *given);
    x[count] = &info;
    for (int i = 1; i <= letters; i++) x[count + i] = length_of_one;
    ((fortran *)f)(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11], x[12],
                   x[13], x[14], x[15], x[16]);
    return bcfg_pivot(lapack, &info, 0);
}
#define CALL(ROUTINE, letters, ...)                                                                \
    call(lapack, BCFG_##ROUTINE, element, letters, sizeof((any[]){__VA_ARGS__}) / sizeof(any),     \
         (any[]){__VA_ARGS__})

int64_t bcfg_getrf(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, void *a,
                   int64_t leading, void *pivots) {
    return CALL(GETRF, 0, &m, &n, a, &leading, pivots);
}

int64_t bcfg_getri(const bcfg_lapack *lapack, int32_t element, int64_t n, void *a,
                   const void *pivots, void *work, int64_t length) {
    return CALL(GETRI, 0, &n, a, &n, pivots, work, &length);
}

int64_t bcfg_getrs(const bcfg_lapack *lapack, int32_t element, char how, int64_t n, int64_t k,
                   const void *a, const void *pivots, void *x) {
    return CALL(GETRS, 1, &how, &n, &k, a, &n, pivots, x, &n);
}

int64_t bcfg_potrf(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, void *a) {
    return CALL(POTRF, 1, &triangle, &n, a, &n);
}

int64_t bcfg_potri(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, void *a) {
    return CALL(POTRI, 1, &triangle, &n, a, &n);
}

int64_t bcfg_potrs(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, int64_t k,
                   const void *a, void *x) {
    return CALL(POTRS, 1, &triangle, &n, &k, a, &n, x, &n);
}

int64_t bcfg_geqrf(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, void *a,
                   void *factors, void *work, int64_t length) {
    return CALL(GEQRF, 0, &m, &n, a, &m, factors, work, &length);
}

int64_t bcfg_orgqr(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, int64_t k,
                   void *a, const void *factors, void *work, int64_t length) {
    return CALL(ORGQR, 0, &m, &n, &k, a, &m, factors, work, &length);
}

int64_t bcfg_syevd(const bcfg_lapack *lapack, int32_t element, char vectors, char triangle,
                   int64_t n, void *a, void *values, const bcfg_space *s) {
    if (element >= BCFG_COMPLEX64)
        return CALL(SYEVD, 2, &vectors, &triangle, &n, a, &n, values, s->work, &s->length, s->real,
                    &s->real_length, s->integers, &s->integer_length);
    return CALL(SYEVD, 2, &vectors, &triangle, &n, a, &n, values, s->work, &s->length, s->integers,
                &s->integer_length);
}

int64_t bcfg_gesdd(const bcfg_lapack *lapack, int32_t element, char how, int64_t m, int64_t n,
                   void *a, void *values, void *u, int64_t u_leading, void *vh, int64_t vh_leading,
                   const bcfg_space *s) {
    if (element >= BCFG_COMPLEX64)
        return CALL(GESDD, 1, &how, &m, &n, a, &m, values, u, &u_leading, vh, &vh_leading, s->work,
                    &s->length, s->real, s->integers);
    return CALL(GESDD, 1, &how, &m, &n, a, &m, values, u, &u_leading, vh, &vh_leading, s->work,
                &s->length, s->integers);
}
