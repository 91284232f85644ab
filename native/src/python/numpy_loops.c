/* How NumPy finds loops is its own affair: a call shows whether it comes to ours. */
#include "numpy_loops.h"

/* Whether this thread asks, and whether NumPy came to a loop of ours since. */
static _Thread_local bool asking, came;
/* The loop in whose place ours is, while this thread is in it, called by ours. */
static _Thread_local const bcfg_numpy_loop *passing;

bool bcfg_numpy_only_asked(void) {
    came = true;
    return asking;
}

void bcfg_numpy_go_on(bcfg_numpy_loop *loop, char **data, const npy_intp *dimensions,
                      const npy_intp *steps, void *own) {
    /* If the loop called here comes back to ours, ours calls the first loop of all, which does not. */
    const bcfg_numpy_loop *outer = passing;
    passing = loop;
    atomic_load(outer == loop ? &loop->first : &loop->theirs)(data, dimensions, steps, own);
    passing = outer;
}

/* 1 with the ufunc, a new reference; 0 where NumPy has none of that name; -1 with an exception set. */
static int find(const bcfg_numpy_loop *loop, PyUFuncObject **found) {
    *found = (PyUFuncObject *)Py_XNewRef((PyObject *)loop->replaced);
    if (*found != NULL) return 1;
    if (PyUFunc_API == NULL && PyUFunc_ImportUFuncAPI() < 0) return -1;
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL) return -1;
    PyObject *ufunc = PyObject_GetAttrString(numpy, loop->ufunc);
    Py_DECREF(numpy);
    if (ufunc == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
        PyErr_Clear();
        return 0;
    }
    if (!PyObject_TypeCheck(ufunc, &PyUFunc_Type)) {
        Py_DECREF(ufunc);
        PyErr_Format(PyExc_RuntimeError, "numpy.%s is no ufunc: something replaced it", loop->ufunc);
        return -1;
    }
    *found = (PyUFuncObject *)ufunc;
    return 1;
}

/* The loop of the types; NULL for none. */
static PyUFuncGenericFunction current(const bcfg_numpy_loop *loop, const PyUFuncObject *ufunc) {
    if (ufunc->nin != loop->inputs || ufunc->nout != 1) return NULL;
    const char *types = ufunc->types;
    for (int i = 0; i < ufunc->ntypes; i++, types += ufunc->nargs) {
        int alike = 0;
        while (alike < ufunc->nargs && types[alike] == (char)loop->types[alike]) alike++;
        if (alike == ufunc->nargs) return ufunc->functions[i];
    }
    return NULL;
}

static void put(const bcfg_numpy_loop *loop, PyUFuncObject *ufunc, PyUFuncGenericFunction function) {
    PyUFuncGenericFunction before;
    (void)PyUFunc_ReplaceLoopBySignature(ufunc, function, loop->types, &before);
}

/* Whether NumPy comes to ours; -1 with an exception set. */
static int comes(const bcfg_numpy_loop *loop, PyUFuncObject *ufunc) {
    const npy_intp shape = 1;
    PyObject *operands[BCFG_NUMPY_OPERANDS] = {NULL}, *result = NULL;
    int made = 0;
    while (made < loop->inputs &&
           (operands[made] = PyArray_ZEROS(1, &shape, loop->types[made], 0)) != NULL)
        made++;
    if (made == loop->inputs) {
        asking = true;
        came = false;
        result = PyObject_Vectorcall((PyObject *)ufunc, operands, (size_t)made, NULL);
        asking = false;
    }
    for (int i = 0; i < made; i++) Py_DECREF(operands[i]);
    if (result == NULL) return -1;
    Py_DECREF(result);
    return came;
}

int bcfg_numpy_serves(bcfg_numpy_loop *loop) {
    PyUFuncObject *ufunc;
    int found = find(loop, &ufunc);
    if (found > 0) found = atomic_load(&loop->wanted) ? comes(loop, ufunc) : 0;
    Py_XDECREF((PyObject *)ufunc);
    return found;
}

int bcfg_numpy_give_back(bcfg_numpy_loop *loop) {
    PyUFuncObject *ufunc;
    int found = find(loop, &ufunc);
    atomic_store(&loop->wanted, false);
    if (found > 0 && atomic_load(&loop->theirs) != NULL && current(loop, ufunc) == loop->ours)
        put(loop, ufunc, atomic_load(&loop->theirs));
    Py_XDECREF((PyObject *)ufunc);
    return found;
}

/* Puts ours in place unless NumPy comes to it already; whether NumPy then does. */
static int place(bcfg_numpy_loop *loop, PyUFuncObject *ufunc) {
    const PyUFuncGenericFunction now = current(loop, ufunc), before = atomic_load(&loop->theirs);
    int found = before != NULL && before != now ? comes(loop, ufunc) : 0;
    if (found != 0 || now == NULL || now == loop->ours) return found;
    if (loop->replaced == NULL)
        loop->replaced = (PyUFuncObject *)Py_NewRef((PyObject *)ufunc);
    if (atomic_load(&loop->first) == NULL) atomic_store(&loop->first, now);
    atomic_store(&loop->theirs, now);
    put(loop, ufunc, loop->ours);
    found = comes(loop, ufunc);
    if (found <= 0) put(loop, ufunc, now);
    return found;
}

int bcfg_numpy_serve(bcfg_numpy_loop *loop) {
    PyUFuncObject *ufunc;
    int found = find(loop, &ufunc);
    if (found > 0) found = place(loop, ufunc);
    if (found > 0) atomic_store(&loop->wanted, true);
    Py_XDECREF((PyObject *)ufunc);
    return found;
}
