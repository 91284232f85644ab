/* Functions of libraries that scopes call whenever they are entered and left, as Python's own.
 *
 * ctypes takes several times as long. The interpreter lock is kept: `pool_calls.py` gives addresses here
 * of functions that answer at once and wait for nobody.
 */
#include "glue.h"

#include <string.h>

static PyObject *ask(PyObject *address, PyObject *ignored) {
    (void)ignored;
    int (*function)(void);
    void *where = PyLong_AsVoidPtr(address);
    memcpy(&function, &where, sizeof function);
    return PyLong_FromLong(function());
}

static PyObject *ask_whether(PyObject *address, PyObject *ignored) {
    (void)ignored;
    int (*function)(void);
    void *where = PyLong_AsVoidPtr(address);
    memcpy(&function, &where, sizeof function);
    return PyBool_FromLong(function());
}

/* Into *number; -1 with an exception set. */
static int as_int(PyObject *value, int *number) {
    long given = PyLong_AsLong(value);
    if (given == -1 && PyErr_Occurred()) return -1;
    *number = (int)given;
    if (given == *number) return 0;
    PyErr_SetString(PyExc_OverflowError, "the number does not fit into a C int");
    return -1;
}

static PyObject *exchange(PyObject *address, PyObject *value) {
    int (*function)(int), number;
    void *where = PyLong_AsVoidPtr(address);
    memcpy(&function, &where, sizeof function);
    return as_int(value, &number) < 0 ? NULL : PyLong_FromLong(function(number));
}

static PyObject *tell(PyObject *address, PyObject *value) {
    void (*function)(int);
    int number;
    void *where = PyLong_AsVoidPtr(address);
    memcpy(&function, &where, sizeof function);
    if (as_int(value, &number) < 0) return NULL;
    function(number);
    Py_RETURN_NONE;
}

static PyMethodDef asks = {"ask", ask, METH_NOARGS, "What `int f(void)` returns."};
static PyMethodDef whethers = {"ask_whether", ask_whether, METH_NOARGS,
                               "Whether `int f(void)` returns other than 0."};
static PyMethodDef tells = {"tell", tell, METH_O, "Call `void f(int)`."};
static PyMethodDef exchanges = {"exchange", exchange, METH_O, "What `int f(int)` returns."};

static PyObject *bound(PyMethodDef *method, PyObject *address) {
    if (PyLong_AsVoidPtr(address) == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a function has no address 0");
        return NULL;
    }
    return PyCFunction_New(method, address);
}

PyObject *bcfg_asking(PyObject *module, PyObject *address) {
    (void)module;
    return bound(&asks, address);
}

PyObject *bcfg_asking_whether(PyObject *module, PyObject *address) {
    (void)module;
    return bound(&whethers, address);
}

PyObject *bcfg_telling(PyObject *module, PyObject *address) {
    (void)module;
    return bound(&tells, address);
}

PyObject *bcfg_exchanging(PyObject *module, PyObject *address) {
    (void)module;
    return bound(&exchanges, address);
}
