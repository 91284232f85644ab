/* LAPACK: one table per provider, beside its table of products, and the calls into it. */
#ifndef BACKENDCFG_LAPACK_H
#define BACKENDCFG_LAPACK_H

#include "core.h"

enum {
#define ROUTINE(real, complex, NAME) BCFG_##NAME,
#include "lapack.inc"
#undef ROUTINE
    BCFG_ROUTINES
};

/* What a provider has of LAPACK. Immutable once published, and never freed. */
typedef struct bcfg_lapack {
    const bcfg_provider *provider;
    int32_t interface;
    const char *lacking;                            /* why it cannot serve, or "" */
    bcfg_function functions[BCFG_ROUTINES][4];      /* by routine and element */
    int (*set_own_threads)(int);                    /* of the calling thread; NULL: not settable */
    const struct bcfg_lapack *_Atomic next;         /* in the list of all tables */
} bcfg_lapack;

extern bcfg_lapack bcfg_reference_lapack;
extern const bcfg_function bcfg_portable_routines[BCFG_ROUTINES][4];
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define BCFG_HAS_WIDE_ROUTINES
extern const bcfg_function bcfg_wide_routines[BCFG_ROUTINES][4]; /* for CPUs with AVX2 */
#endif

/* lapack.c: a provider's table, looked up, called once to check it, and kept when it is first
 * asked for. Never NULL; `lacking` tells whether it serves. */
const bcfg_lapack *bcfg_lapack_of(const bcfg_provider *provider);

/* lapack_call.c: the routines in either width of integers. Matrices lie by columns. Each returns
 * LAPACK's info; a workspace holds `length` elements, and of length -1 asks for it. */
int64_t bcfg_getrf(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, void *a,
                   int64_t leading, void *pivots);
int64_t bcfg_getri(const bcfg_lapack *lapack, int32_t element, int64_t n, void *a,
                   const void *pivots, void *work, int64_t length);
int64_t bcfg_getrs(const bcfg_lapack *lapack, int32_t element, char how, int64_t n, int64_t k,
                   const void *a, const void *pivots, void *x);
int64_t bcfg_potrf(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, void *a);
int64_t bcfg_potri(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, void *a);
int64_t bcfg_potrs(const bcfg_lapack *lapack, int32_t element, char triangle, int64_t n, int64_t k,
                   const void *a, void *x);
int64_t bcfg_geqrf(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, void *a,
                   void *factors, void *work, int64_t length);
int64_t bcfg_orgqr(const bcfg_lapack *lapack, int32_t element, int64_t m, int64_t n, int64_t k,
                   void *a, const void *factors, void *work, int64_t length);
/* A workspace of eigenvalues and singular values: elements, reals and integers. */
typedef struct {
    void *work, *real, *integers;
    int64_t length, real_length, integer_length;
} bcfg_space;
int64_t bcfg_syevd(const bcfg_lapack *lapack, int32_t element, char vectors, char triangle,
                   int64_t n, void *a, void *values, const bcfg_space *space);
int64_t bcfg_gesdd(const bcfg_lapack *lapack, int32_t element, char how, int64_t m, int64_t n,
                   void *a, void *values, void *u, int64_t u_leading, void *vh, int64_t vh_leading,
                   const bcfg_space *space);
/* Pivots, which the library keeps in its own integers, and back; counted from 1. */
int64_t bcfg_pivot(const bcfg_lapack *lapack, const void *pivots, int64_t at);
void bcfg_set_pivot(const bcfg_lapack *lapack, void *pivots, int64_t at, int64_t value);

#endif
