/* One call of backendcfg.ops.linalg, from its arguments to its results. */
#ifndef BACKENDCFG_LINALG_CALL_H
#define BACKENDCFG_LINALG_CALL_H

#include "arrays.h"
#include "../core/linalg.h"

/* `arguments` are all names, arrays first; the first `required` must be given, those from
 * `positional` on by name only. */
typedef struct {
    const char *name;
    int operation;
    int arrays, required, positional;
    const char *arguments[6];
    bool checks;                     /* raises for a matrix that cannot be served */
} LinearSpec;
extern const LinearSpec bcfg_linear_specs[];
enum { LINEAR_FUNCTIONS = 17, MOST_ARGUMENTS = 6, MOST_RESULTS = 4 };

typedef struct {
    const LinearSpec *spec;
    PyObject *given[MOST_ARGUMENTS]; /* borrowed; NULL where not given */
    PyArrayObject *a, *b, *pivots;   /* owned */
    PyArrayObject *results[MOST_RESULTS], *info;
    int result_count;
    bool is_vector, left, checks, finite;
    bcfg_problem problem;
    int64_t shape[NPY_MAXDIMS], a_strides[NPY_MAXDIMS], b_strides[NPY_MAXDIMS];
    int64_t pivot_strides[NPY_MAXDIMS];
    int32_t one_info;
} LinearCall; /* finite: `ops.check_finite` is on */

/* Python callables and types that backendcfg.ops.linalg binds; NULL before. */
extern PyObject *bcfg_linear_refuse, *bcfg_linear_foreign, *bcfg_linear_failed, *bcfg_linear_types;

/* The words of each bcfg_linear_reason, which ops.serving has sentences for. */
extern const char *const bcfg_linear_reasons[];

/* Has Python raise InvalidArgumentError; returns -1. */
int bcfg_linear_refused(const LinearCall *call, const char *reason, const char *detail);
/* linalg_shape.c: the arguments' arrays as a problem. -1 with an exception set. */
int bcfg_linear_take(LinearCall *call);
/* linalg_result.c: memory for the results, and what is returned. */
int bcfg_linear_allocate(LinearCall *call);
PyObject *bcfg_linear_returned(LinearCall *call);

#endif
