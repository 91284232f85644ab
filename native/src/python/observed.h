/* What goes into a call that is observed, and what comes out of it; see observed.c. */
#ifndef BACKENDCFG_OBSERVED_H
#define BACKENDCFG_OBSERVED_H

#include "arrays.h"

/* The arguments of a call, however they were given. */
typedef struct {
    PyObject *self;                      /* NULL for none */
    PyObject *const *items;
    Py_ssize_t count;                    /* by position */
    PyObject *names;                     /* of those that follow, or NULL */
    PyObject *keywords;                  /* a dictionary in their place, or NULL */
} Given;

/* The argument of this number, `self` being 0; borrowed, or NULL. */
PyObject *bcfg_argument(const Given *given, Py_ssize_t number);
/* A keyword argument, borrowed, or NULL. */
PyObject *bcfg_named(const Given *given, const char *name);
/* `self` and the first `most` arguments by position, all for -1, as a tuple: a ufunc only writes to more. */
PyObject *bcfg_packed(const Given *given, int most);
PyObject *bcfg_packed_keywords(const Given *given);
/* Digests what a call computed; NumPy's number of the type of its first result, -1 for no numbers. */
int bcfg_digest_results(PyObject *results, uint64_t *value);

#endif
