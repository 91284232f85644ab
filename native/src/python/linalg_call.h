/* One call of backendcfg.ops.linalg, from its arguments to its results. */
#ifndef BACKENDCFG_LINALG_CALL_H
#define BACKENDCFG_LINALG_CALL_H

#include "arrays.h"
#include "../core/linalg.h"

enum { MOST_ARGUMENTS = 5, MOST_RESULTS = 4 };

/* A line of linalg_functions.inc, and what its signature says: the names of the arguments, of which
 * the first `required` must be given, and those from `positional` on by name only. */
typedef struct {
    const char *name;
    int operation, arrays;
    bool raises;
    const char *signature;
    int required, positional;
    char arguments[MOST_ARGUMENTS][16]; /* "" where there is none */
} LinearSpec;

typedef struct {
    const LinearSpec *spec;
    PyObject *given[MOST_ARGUMENTS]; /* borrowed; NULL where not given */
    PyArrayObject *a, *b, *pivots;   /* owned */
    PyArrayObject *results[MOST_RESULTS], *info;
    int result_count;
    bool is_vector, raises, finite;
    bcfg_problem problem;
    int64_t shape[NPY_MAXDIMS], a_strides[NPY_MAXDIMS], b_strides[NPY_MAXDIMS];
    int64_t pivot_strides[NPY_MAXDIMS];
    int32_t one_info;
} LinearCall; /* finite: `ops.check_finite` is on */

/* Has Python raise InvalidArgumentError; returns -1. */
int bcfg_linear_refused(const LinearCall *call, const char *reason, const char *detail);
/* linalg_shape.c: the arguments' arrays as a problem. -1 with an exception set. */
int bcfg_linear_take(LinearCall *call);
/* linalg_result.c: memory for the results, and what is returned. */
int bcfg_linear_allocate(LinearCall *call);
PyObject *bcfg_linear_returned(LinearCall *call);

#endif
