/* Functions of libraries that scopes call whenever they are entered and left, as Python's own.
 *
 * ctypes takes several times as long. The interpreter lock is kept: these answer at once and wait
 * for nobody.
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

static PyObject *exchange(PyObject *address, PyObject *value) {
    int (*function)(int);
    void *where = PyLong_AsVoidPtr(address);
    memcpy(&function, &where, sizeof function);
    long given = PyLong_AsLong(value);
    if (given == -1 && PyErr_Occurred()) return NULL;
    if (given != (int)given) {
        PyErr_SetString(PyExc_OverflowError, "the number does not fit into a C int");
        return NULL;
    }
    return PyLong_FromLong(function((int)given));
}

static PyMethodDef asks = {"ask", ask, METH_NOARGS, "What `int f(void)` returns."};
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

PyObject *bcfg_exchanging(PyObject *module, PyObject *address) {
    (void)module;
    return bound(&exchanges, address);
}
