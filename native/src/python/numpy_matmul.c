/* NumPy's matmul, and so `@`, by our own kernels.
 *
 * NumPy keeps one C function for each element type of a ufunc, its loop, and its C API replaces one.
 * matmul's loop multiplies a stack of matrices; NumPy has checked shapes and types by then, and made
 * copies where the result would overlap an operand. So whatever ends in matmul gets ours: `@`, stacks,
 * `out`, casts, subclasses. A stack that does not lie evenly in memory comes in several calls.
 * https://numpy.org/doc/stable/reference/c-api/ufunc.html#c.PyUFunc_ReplaceLoopBySignature
 *
 * Small products, and those that BLAS computes by half the work, go on to NumPy's loop. All but the loops
 * runs with the GIL held.
 */
#include "arrays.h"

#include <fenv.h>
#include <numpy/ufuncobject.h>
#include <stdatomic.h>
#include <string.h>

#include "../core/core.h"

/* Multiplications from which ours is faster than OpenBLAS, which computes a stack of small matrices on
 * one thread: those of two matrices of about 100 x 100. */
enum { LARGE = 1 << 20 };

typedef PyUFuncGenericFunction Loop;

/* All by element. Whether ours computes; a call that finds false goes on to NumPy's. */
static _Atomic bool wanted[BCFG_ELEMENTS];
/* The loops in whose place ours was put: first of all, and last. NULL until then. */
static _Atomic Loop first[BCFG_ELEMENTS], theirs[BCFG_ELEMENTS];

/* numpy.matmul, kept once a loop of it was replaced: a program may put another in its place. */
static PyUFuncObject *replaced;

/* Whether this thread came to a loop of ours since it last made this false. */
static _Thread_local bool reached;
/* Whether this thread is in the loop in whose place ours is, called by ours. */
static _Thread_local bool passing;

/* Matrices times their own transposes, which BLAS computes by half the work (?SYRK). */
static bool are_squares(const bcfg_product *p) {
    bool alike = p->batch_shape[0] == 1 || p->a.batch_strides[0] == p->b.batch_strides[0];
    return alike && p->a.data == p->b.data && p->m == p->n && p->a.row_stride == p->b.column_stride &&
           p->a.column_stride == p->b.row_stride;
}

/* Whether ours should compute it, by what was measured. */
static bool pays(const bcfg_product *p) {
    double one = (double)p->m * (double)p->n * (double)p->k, all = one * (double)p->batch_shape[0];
    if (p->element == BCFG_FLOAT16) return all > 0; /* NumPy has no BLAS for it */
    return all >= LARGE && p->m > 1 && p->n > 1 && !(one >= LARGE && are_squares(p));
}

static bool is_nan(int32_t element, const char *at) {
    float narrow;
    double wide;
    uint16_t half;
    switch (element) {
    case BCFG_FLOAT32: memcpy(&narrow, at, sizeof narrow); return narrow != narrow;
    case BCFG_FLOAT64: memcpy(&wide, at, sizeof wide); return wide != wide;
    default: memcpy(&half, at, sizeof half); return (half & 0x7fff) > 0x7c00;
    }
}

static bool has_nan(const bcfg_product *p) {
    for (int64_t index = 0; index < p->batch_shape[0]; index++)
        for (int64_t i = 0; i < p->m; i++) {
            const char *row = (const char *)p->c.data + index * p->c.batch_strides[0] +
                              i * p->c.row_stride;
            for (int64_t j = 0; j < p->n; j++)
                if (is_nan(p->element, row + j * p->c.column_stride)) return true;
        }
    return false;
}

/* Computes by our kernels; false where they did not. Where columns fill no vector, these also multiply by
 * zeros that are stored nowhere, and infinity times zero is invalid: NumPy would warn of it. What is
 * invalid in the result leaves NaN there. */
static bool compute(const bcfg_product *product) {
    const int before = fetestexcept(FE_INVALID);
    if (bcfg_native_product(bcfg_current(), product, NULL, NULL) != BCFG_OK) return false;
    if (before == 0 && fetestexcept(FE_INVALID) != 0 && !has_nan(product))
        (void)feclearexcept(FE_INVALID);
    return true;
}

/* `dimensions`: how many products, m, k, n. `steps`, in bytes: from product to product for a, b, c, then
 * rows and columns of a, b, c. */
static void run(int32_t element, char **data, const npy_intp *dimensions, const npy_intp *steps,
                void *own) {
    reached = true;
    int64_t count = dimensions[0], strides[3] = {steps[0], steps[1], steps[2]};
    bcfg_product product = {.element = element, .batch_dimensions = 1, .batch_shape = &count,
                            .m = dimensions[1], .k = dimensions[2], .n = dimensions[3],
                            .a = {data[0], steps[3], steps[4], &strides[0]},
                            .b = {data[1], steps[5], steps[6], &strides[1]},
                            .c = {data[2], steps[7], steps[8], &strides[2]}};
    if (atomic_load_explicit(&wanted[element], memory_order_relaxed) && pays(&product) &&
        compute(&product))
        return;
    /* If the loop called here comes back to ours, ours calls the first loop of all, which does not. */
    const bool again = passing;
    passing = true;
    atomic_load(again ? &first[element] : &theirs[element])(data, dimensions, steps, own);
    passing = again;
}

#define LOOP(name, element)                                                                        \
    static void name(char **data, const npy_intp *dimensions, const npy_intp *steps, void *own) {  \
        run(element, data, dimensions, steps, own);                                                \
    }
LOOP(multiply_half, BCFG_FLOAT16)
LOOP(multiply_float, BCFG_FLOAT32)
LOOP(multiply_double, BCFG_FLOAT64)
#undef LOOP

static const Loop ours[BCFG_ELEMENTS] = {[BCFG_FLOAT16] = multiply_half,
                                         [BCFG_FLOAT32] = multiply_float,
                                         [BCFG_FLOAT64] = multiply_double};

/* numpy.matmul; NULL with an exception set. A new reference. */
static PyUFuncObject *find_matmul(void) {
    if (replaced != NULL) return (PyUFuncObject *)Py_NewRef((PyObject *)replaced);
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

/* The loop of a type; NULL for none. */
static Loop current(const PyUFuncObject *matmul, int32_t element) {
    const char type = (char)bcfg_element_types[element], *types = matmul->types;
    for (int i = 0; i < matmul->ntypes; i++, types += matmul->nargs)
        if (types[0] == type && types[1] == type && types[2] == type) return matmul->functions[i];
    return NULL;
}

static void put(PyUFuncObject *matmul, int32_t element, Loop loop) {
    const int type = bcfg_element_types[element], signature[3] = {type, type, type};
    Loop before;
    (void)PyUFunc_ReplaceLoopBySignature(matmul, loop, signature, &before);
}

/* Whether NumPy comes to ours for a product, of 1 x 0 and 0 x 1: how it finds loops is its own affair.
 * -1 with an exception set. */
static int reaches(PyUFuncObject *matmul, int32_t element) {
    const npy_intp shape[2] = {1, 0};
    PyObject *row = PyArray_ZEROS(2, shape, bcfg_element_types[element], 0), *column = NULL;
    PyObject *product = NULL;
    if (row != NULL) column = PyArray_Transpose((PyArrayObject *)row, NULL);
    reached = false;
    if (column != NULL)
        product = PyObject_CallFunctionObjArgs((PyObject *)matmul, row, column, NULL);
    Py_XDECREF(row);
    Py_XDECREF(column);
    if (product == NULL) return -1;
    Py_DECREF(product);
    return reached;
}

/* Gives NumPy its loop back. What something put over ours stays, and if it calls ours, that goes on to
 * NumPy's. */
static void give_back(PyUFuncObject *matmul, int32_t element) {
    atomic_store(&wanted[element], false);
    if (atomic_load(&theirs[element]) != NULL && current(matmul, element) == ours[element])
        put(matmul, element, atomic_load(&theirs[element]));
}

/* Puts ours in place unless NumPy comes to it already; whether NumPy then does, -1 with an exception
 * set. */
static int serve(PyUFuncObject *matmul, int32_t element) {
    const Loop now = current(matmul, element);
    int found = atomic_load(&theirs[element]) != NULL ? reaches(matmul, element) : 0;
    if (found != 0 || now == NULL || now == ours[element]) return found;
    if (replaced == NULL) replaced = (PyUFuncObject *)Py_NewRef((PyObject *)matmul);
    if (atomic_load(&first[element]) == NULL) atomic_store(&first[element], now);
    atomic_store(&theirs[element], now);
    put(matmul, element, ours[element]);
    found = reaches(matmul, element);
    if (found <= 0) put(matmul, element, now);
    return found;
}

PyObject *bcfg_numpy_matmul(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    int32_t element = BCFG_ELEMENTS;
    if ((given == 1 || (given == 2 && PyBool_Check(arguments[1]))) && PyUnicode_Check(arguments[0]))
        for (element = 0; element < BCFG_ELEMENTS; element++)
            if (ours[element] != NULL && PyUnicode_CompareWithASCIIString(
                                             arguments[0], bcfg_element_names[element]) == 0)
                break;
    if (element == BCFG_ELEMENTS) {
        PyErr_SetString(PyExc_TypeError, "numpy_matmul takes \"float16\", \"float32\" or \"float64\", "
                                         "and at most one bool");
        return NULL;
    }
    PyObject *ready = bcfg_set_array_api(module, NULL);
    Py_XDECREF(ready);
    PyUFuncObject *matmul = ready != NULL ? find_matmul() : NULL;
    if (matmul == NULL) return NULL;
    int found = 0;
    if (given == 1) {
        found = atomic_load(&wanted[element]) ? reaches(matmul, element) : 0;
    } else if (arguments[1] == Py_False) {
        give_back(matmul, element);
    } else {
        found = serve(matmul, element);
        if (found > 0) atomic_store(&wanted[element], true);
    }
    Py_DECREF(matmul);
    if (found < 0) return NULL;
    if (given == 1 || arguments[1] == Py_False || found > 0) return PyBool_FromLong(found);
    return PyErr_Format(PyExc_RuntimeError,
                        "numpy.matmul of %s does not come to the loop that NumPy's C API replaces",
                        bcfg_element_names[element]);
}
