/* NumPy's matmul, and so `@`, by our own kernels.
 *
 * NumPy keeps one C function for each element type of a ufunc, its loop, and its C API replaces one and
 * says which was there before. matmul's loop multiplies a stack of matrices; NumPy has checked
 * shapes and types by then, made copies where the result would overlap an operand, and let go of the
 * GIL. So whatever ends in matmul gets ours: `@`, stacks, `out`, casts, subclasses.
 * https://numpy.org/doc/stable/reference/c-api/ufunc.html#c.PyUFunc_ReplaceLoopBySignature
 *
 * What ours would not do faster goes on to NumPy's loop.
 */
#include "arrays.h"

#include <numpy/ufuncobject.h>
#include <stdatomic.h>

#include "../core/core.h"

/* Multiplications, those of two matrices of 100 x 100, from which ours is faster than OpenBLAS, which
 * computes a stack of smaller ones on one thread. */
enum { LARGE = 1 << 20 };

typedef PyUFuncGenericFunction Loop;

enum { HALF, FLOAT, DOUBLE, LOOPS };
static const char *const names[LOOPS] = {"float16", "float32", "float64"};
static const int types[LOOPS] = {NPY_HALF, NPY_FLOAT, NPY_DOUBLE};

/* Whether our loops compute; a call that finds false goes on to NumPy's. */
static _Atomic bool wanted[LOOPS];
/* NumPy's loops, for which ours stand; NULL until they first do. */
static _Atomic Loop theirs[LOOPS];
/* Whether a call came to a loop of ours since this was last made false. */
static _Atomic bool reached;

/* A times its own transpose, which BLAS computes by half the work (?SYRK). */
static bool is_square(const bcfg_product *p) {
    return p->a.data == p->b.data && p->m == p->n && p->a.row_stride == p->b.column_stride &&
           p->a.column_stride == p->b.row_stride;
}

/* Whether ours is faster. */
static bool pays(const bcfg_product *p) {
    double work = (double)p->m * (double)p->n * (double)p->k * (double)p->batch_shape[0];
    if (p->element == BCFG_FLOAT16) return work > 0; /* NumPy has no BLAS for it */
    return work >= LARGE && p->m > 1 && p->n > 1 && !is_square(p);
}

/* `dimensions`: how many products, m, k, n. `steps`, in bytes: from product to product for a, b, c, then
 * rows and columns of a, b, c. */
static void run(int i, int32_t element, char **data, const npy_intp *dimensions,
                const npy_intp *steps, void *own) {
    if (!atomic_load_explicit(&reached, memory_order_relaxed)) atomic_store(&reached, true);
    int64_t count = dimensions[0], strides[3] = {steps[0], steps[1], steps[2]};
    bcfg_product product = {.element = element, .batch_dimensions = 1, .batch_shape = &count,
                            .m = dimensions[1], .k = dimensions[2], .n = dimensions[3],
                            .a = {data[0], steps[3], steps[4], &strides[0]},
                            .b = {data[1], steps[5], steps[6], &strides[1]},
                            .c = {data[2], steps[7], steps[8], &strides[2]}};
    if (!atomic_load_explicit(&wanted[i], memory_order_relaxed) || !pays(&product) ||
        bcfg_native_product(bcfg_current(), &product, NULL, NULL) != BCFG_OK)
        atomic_load_explicit(&theirs[i], memory_order_relaxed)(data, dimensions, steps, own);
}

#define LOOP(name, TYPE, element)                                                                   \
    static void name(char **data, const npy_intp *dimensions, const npy_intp *steps, void *own) {   \
        run(TYPE, element, data, dimensions, steps, own);                                           \
    }
LOOP(multiply_half, HALF, BCFG_FLOAT16)
LOOP(multiply_float, FLOAT, BCFG_FLOAT32)
LOOP(multiply_double, DOUBLE, BCFG_FLOAT64)
#undef LOOP

static const Loop ours[LOOPS] = {multiply_half, multiply_float, multiply_double};

/* numpy.matmul; NULL with an exception set. A new reference. */
static PyUFuncObject *find_matmul(void) {
    if (PyUFunc_API == NULL && PyUFunc_ImportUFuncAPI() < 0) return NULL;
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *matmul = numpy != NULL ? PyObject_GetAttrString(numpy, "matmul") : NULL;
    Py_XDECREF(numpy);
    if (matmul != NULL && !PyObject_TypeCheck(matmul, &PyUFunc_Type)) {
        PyErr_SetString(PyExc_RuntimeError, "numpy.matmul is no ufunc: something replaced it");
        Py_CLEAR(matmul);
    }
    return (PyUFuncObject *)matmul;
}

/* Puts a loop in place and returns the one that was there; NULL where NumPy has none of that type. */
static Loop exchange(PyUFuncObject *matmul, int i, Loop loop) {
    const int signature[3] = {types[i], types[i], types[i]};
    Loop before = NULL;
    return PyUFunc_ReplaceLoopBySignature(matmul, loop, signature, &before) == 0 ? before : NULL;
}

/* Puts ours in place, unless something put another there since: that one may call ours. */
static void serve(PyUFuncObject *matmul, int i) {
    Loop before = exchange(matmul, i, ours[i]), loop = atomic_load(&theirs[i]);
    if (before != NULL && loop == NULL) atomic_store(&theirs[i], before);
    else if (before != NULL && before != loop && before != ours[i]) (void)exchange(matmul, i, before);
    atomic_store(&wanted[i], true);
}

/* Gives NumPy its loop back, unless something put another in the place of ours: ours goes on to NumPy's
 * then. */
static void give_back(PyUFuncObject *matmul, int i) {
    atomic_store(&wanted[i], false);
    Loop loop = atomic_load(&theirs[i]), before = loop != NULL ? exchange(matmul, i, loop) : NULL;
    if (before != NULL && before != ours[i]) (void)exchange(matmul, i, before);
}

/* Whether ours computes, by a product of 1 x 0 and 0 x 1: how NumPy finds loops is its own affair. */
static bool is_served(PyUFuncObject *matmul, int i) {
    if (!atomic_load(&wanted[i])) return false;
    const npy_intp shape[2] = {1, 0};
    PyObject *row = PyArray_ZEROS(2, shape, types[i], 0), *column = NULL, *product = NULL;
    if (row != NULL) column = PyArray_Transpose((PyArrayObject *)row, NULL);
    atomic_store(&reached, false);
    if (column != NULL)
        product = PyObject_CallFunctionObjArgs((PyObject *)matmul, row, column, NULL);
    if (product == NULL) PyErr_Clear();
    Py_XDECREF(row);
    Py_XDECREF(column);
    Py_XDECREF(product);
    return product != NULL && atomic_load(&reached);
}

PyObject *bcfg_numpy_matmul(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    int i = LOOPS;
    if ((given == 1 || (given == 2 && PyBool_Check(arguments[1]))) && PyUnicode_Check(arguments[0]))
        for (i = 0; i < LOOPS && PyUnicode_CompareWithASCIIString(arguments[0], names[i]) != 0;) i++;
    if (i == LOOPS) {
        PyErr_SetString(PyExc_TypeError, "numpy_matmul takes \"float16\", \"float32\" or \"float64\", "
                                         "and at most one bool");
        return NULL;
    }
    PyObject *ready = bcfg_set_array_api(module, NULL);
    Py_XDECREF(ready);
    PyUFuncObject *matmul = ready != NULL ? find_matmul() : NULL;
    if (matmul == NULL) return NULL;
    bool wants = given == 2 && arguments[1] == Py_True;
    if (wants) serve(matmul, i);
    bool served = is_served(matmul, i), refused = wants && !served;
    if (refused || (given == 2 && !wants)) {
        give_back(matmul, i);
        served = false;
    }
    Py_DECREF(matmul);
    if (!refused) return PyBool_FromLong(served);
    return PyErr_Format(PyExc_RuntimeError,
                        "numpy.matmul of %s does not come to the loop that NumPy's C API replaces",
                        names[i]);
}
