/* A loop of one of NumPy's ufuncs with ours in its place.
 *
 * NumPy keeps one C function for each element type of a ufunc, its loop, and its C API replaces one.
 * https://numpy.org/doc/stable/reference/c-api/ufunc.html#c.PyUFunc_ReplaceLoopBySignature
 * All but the loops runs with the GIL held. */
#ifndef BACKENDCFG_NUMPY_LOOPS_H
#define BACKENDCFG_NUMPY_LOOPS_H

#include "arrays.h"

#include <numpy/ufuncobject.h>
#include <stdatomic.h>

enum { BCFG_NUMPY_OPERANDS = 3 };

typedef struct {
    const char *ufunc; /* its name in numpy */
    int inputs;        /* before one output */
    int types[BCFG_NUMPY_OPERANDS]; /* NumPy's numbers */
    PyUFuncGenericFunction ours;
    /* Whether ours computes; a call that finds false goes on to NumPy's. */
    _Atomic bool wanted;
    /* The loops in whose place ours was put: first of all, and last. NULL until then. */
    _Atomic PyUFuncGenericFunction first, theirs;
    /* The ufunc, kept once its loop was replaced: a program may put another in its place. */
    PyUFuncObject *replaced;
} bcfg_numpy_loop;

/* What ours asks first: whether NumPy was only asked if it comes here. Nobody looks at the result then. */
bool bcfg_numpy_only_asked(void);

/* Lets NumPy's loop compute. */
void bcfg_numpy_go_on(bcfg_numpy_loop *loop, char **data, const npy_intp *dimensions,
                      const npy_intp *steps, void *own);

/* Each gives -1 with an exception set: a RuntimeError where something replaced the ufunc itself. */

/* Whether ours computes. */
int bcfg_numpy_serves(bcfg_numpy_loop *loop);
/* Lets ours compute; whether NumPy comes to it, and 0 where it has no such ufunc or type. */
int bcfg_numpy_serve(bcfg_numpy_loop *loop);
/* Gives NumPy its loop back. What something put over ours stays, and if it calls ours, that goes on to
 * NumPy's. */
int bcfg_numpy_give_back(bcfg_numpy_loop *loop);

#endif
