/* PyTorch's generator on the CPU: bernoulli(words, start, p, one, out) draws many numbers at a time, and
 * exchange_state(generator, before, after) puts its state back. */
#include "arrays.h"
#include "glue.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* The memory of an array that is written: in native order, contiguous, of that type if it is no
 * NPY_NOTYPE. */
static void *memory_of(PyObject *given, int type, const char *name) {
    PyArrayObject *it = (PyArrayObject *)given;
    if (PyArray_Check(given) && PyArray_ISCARRAY(it) && PyArray_DATA(it) != NULL &&
        (type == NPY_NOTYPE || PyArray_TYPE(it) == type))
        return PyArray_DATA(it);
    PyErr_Format(PyExc_ValueError, "bernoulli: %s must be a contiguous array to write to", name);
    return NULL;
}

PyObject *bcfg_bernoulli(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (!bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "set_array_api() has not been called");
        return NULL;
    }
    if (count != 5)
        return PyErr_Format(PyExc_TypeError, "bernoulli takes 5 arguments, not %zd", count);
    uint64_t *words = memory_of(given[0], NPY_UINT64, "words");
    void *out = memory_of(given[4], NPY_NOTYPE, "out");
    if (words == NULL || out == NULL) return NULL;
    bcfg_mersenne state = {.next = (int32_t)PyLong_AsLong(given[1])};
    double p = PyFloat_AsDouble(given[2]);
    uint64_t one = PyLong_AsUnsignedLongLong(given[3]);
    if (PyErr_Occurred()) return NULL;
    npy_intp size = PyArray_ITEMSIZE((PyArrayObject *)given[4]);
    if (PyArray_SIZE((PyArrayObject *)given[0]) != MERSENNE_WORDS || state.next < 0 ||
        state.next > MERSENNE_WORDS || !(p >= 0 && p <= 1) ||
        !(size == 1 || size == 2 || size == 4 || size == 8)) {
        PyErr_SetString(PyExc_ValueError, "bernoulli: no state, probability or size of numbers");
        return NULL;
    }
    /* PyTorch asks whether number / 2^53 < p. */
    int64_t bound = (int64_t)ceil(ldexp(p, 53));
    for (int i = 0; i < MERSENNE_WORDS; i++) state.words[i] = (uint32_t)words[i];
    Py_BEGIN_ALLOW_THREADS
    bcfg_kernels_for(BCFG_FLOAT32, false)
        ->bernoulli(&state, bound, PyArray_SIZE((PyArrayObject *)given[4]), (int32_t)size, one, out);
    Py_END_ALLOW_THREADS
    for (int i = 0; i < MERSENNE_WORDS; i++) words[i] = state.words[i];
    return PyLong_FromLong(state.next);
}

/* The bytes of a generator's state, which a tensor holds; the array that shows them is new. */
static PyObject *bytes_of(PyObject *state) {
    PyObject *array = PyObject_CallMethod(state, "numpy", NULL);
    if (array == NULL || (PyArray_Check(array) && PyArray_ISCARRAY((PyArrayObject *)array)))
        return array;
    Py_DECREF(array);
    PyErr_SetString(PyExc_ValueError, "exchange_state: a state is no dense tensor");
    return NULL;
}

/* In C, where no other thread is let in: Python may switch threads after each call, and PyTorch where
 * it frees a tensor, so those that are made here live until the state is set. */
PyObject *bcfg_exchange_state(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "exchange_state takes 3 arguments, not %zd", count);
    PyObject *set = NULL, *now = NULL, *bytes = NULL, *before = bytes_of(given[1]);
    bool same = false;
    if (before != NULL && (now = PyObject_CallMethod(given[0], "get_state", NULL)) != NULL &&
        (bytes = bytes_of(now)) != NULL) {
        PyArrayObject *one = (PyArrayObject *)before, *other = (PyArrayObject *)bytes;
        same = PyArray_NBYTES(one) == PyArray_NBYTES(other) &&
               memcmp(PyArray_DATA(one), PyArray_DATA(other), (size_t)PyArray_NBYTES(one)) == 0;
        if (same) set = PyObject_CallMethod(given[0], "set_state", "O", given[2]);
    }
    bool failed = bytes == NULL || (same && set == NULL);
    Py_XDECREF(before);
    Py_XDECREF(now);
    Py_XDECREF(bytes);
    Py_XDECREF(set);
    return failed ? NULL : PyBool_FromLong(same);
}
