/* matmul(a, b, out=None): NumPy's rules of shapes and types over bcfg_matmul. */
#include "arrays.h"

/* Below this many multiplications, or zeros to write, a product takes less time than other threads
 * would gain. */
enum { WORTH_RELEASING = 1 << 15 };

static const int type_numbers[] = {NPY_FLOAT, NPY_DOUBLE, NPY_CFLOAT, NPY_CDOUBLE};
static const char *const type_names[] = {"float32", "float64", "complex64", "complex128"};

/* One call: what was passed, and what is multiplied. */
typedef struct {
    PyObject *given_a, *given_b, *given_out;
    PyArrayObject *a, *b, *result; /* owned */
    bcfg_product product;
    int64_t shape[NPY_MAXDIMS], a_strides[NPY_MAXDIMS], b_strides[NPY_MAXDIMS];
    int64_t c_strides[NPY_MAXDIMS];
} Call;

/* Raises what backendcfg.ops makes of it, with the shapes and types; always -1. */
static int refuse(const Call *call, const char *reason, const char *detail) {
    if (bcfg_need(bcfg_callbacks.refuse, "refuse") == NULL) return -1;
    PyObject *done = PyObject_CallFunction(bcfg_callbacks.refuse, "ssOOO", reason, detail,
                                           call->given_a, call->given_b, call->given_out);
    if (done != NULL) PyErr_Format(PyExc_RuntimeError, "refuse did not raise: %s", reason);
    Py_XDECREF(done);
    return -1;
}

static int element_of(PyObject *array) {
    switch (PyArray_TYPE((PyArrayObject *)array)) {
    case NPY_FLOAT: return BCFG_FLOAT32;
    case NPY_DOUBLE: return BCFG_FLOAT64;
    case NPY_CFLOAT: return BCFG_COMPLEX64;
    case NPY_CDOUBLE: return BCFG_COMPLEX128;
    default: return -1;
    }
}

static PyArrayObject *converted(PyObject *given, int type) {
    PyArrayObject *array = (PyArrayObject *)given;
    if (PyArray_TYPE(array) == type && PyArray_ISNOTSWAPPED(array))
        return (PyArrayObject *)Py_NewRef(given);
    PyArray_Descr *descriptor = PyArray_DescrFromType(type);
    return (PyArrayObject *)PyArray_FromArray(array, descriptor, NPY_ARRAY_DEFAULT);
}

static int take_types(Call *call) {
    PyObject *given[2] = {call->given_a, call->given_b};
    int element[2];
    for (int i = 0; i < 2; i++) {
        if (!PyArray_Check(given[i])) return refuse(call, "kind", i ? "b" : "a");
        element[i] = element_of(given[i]);
        if (element[i] < 0) return refuse(call, "type", i ? "b" : "a");
        if (PyArray_NDIM((PyArrayObject *)given[i]) == 0)
            return refuse(call, "dimensions", i ? "b" : "a");
    }
    bool is_complex = element[0] >= BCFG_COMPLEX64 || element[1] >= BCFG_COMPLEX64;
    bool is_double = (element[0] | element[1]) & 1;
    call->product.element = (is_complex ? BCFG_COMPLEX64 : BCFG_FLOAT32) + is_double;
    return 0;
}

/* Sizes and the batch's shape, from the arrays as given. */
static int take_shape(Call *call) {
    PyArrayObject *a = (PyArrayObject *)call->given_a, *b = (PyArrayObject *)call->given_b;
    int a_dimensions = PyArray_NDIM(a), b_dimensions = PyArray_NDIM(b);
    const npy_intp *a_shape = PyArray_DIMS(a), *b_shape = PyArray_DIMS(b);
    bcfg_product *p = &call->product;
    p->m = a_dimensions > 1 ? a_shape[a_dimensions - 2] : 1;
    p->k = a_shape[a_dimensions - 1];
    p->n = b_dimensions > 1 ? b_shape[b_dimensions - 1] : 1;
    if (b_shape[b_dimensions > 1 ? b_dimensions - 2 : 0] != p->k)
        return refuse(call, "inner", "");
    int most = a_dimensions > b_dimensions ? a_dimensions : b_dimensions;
    p->batch_dimensions = most > 2 ? most - 2 : 0;
    p->batch_shape = call->shape;
    for (int d = 0; d < p->batch_dimensions; d++) {
        int a_at = d - p->batch_dimensions + a_dimensions - 2;
        int b_at = d - p->batch_dimensions + b_dimensions - 2;
        npy_intp from_a = a_at >= 0 ? a_shape[a_at] : 1, from_b = b_at >= 0 ? b_shape[b_at] : 1;
        if (from_a != from_b && from_a != 1 && from_b != 1) return refuse(call, "batch", "");
        call->shape[d] = from_a == 1 ? from_b : from_a;
    }
    return 0;
}

/* An array as an operand; a vector is a row (of a, c) or a column (of b, c). */
static bcfg_operand operand(const Call *call, PyArrayObject *array, int64_t *strides,
                            bool has_rows, bool has_columns) {
    int at = PyArray_NDIM(array);
    const npy_intp *shape = PyArray_DIMS(array), *from = PyArray_STRIDES(array);
    bcfg_operand made = {.data = PyArray_DATA(array), .batch_strides = strides};
    if (has_columns) made.column_stride = from[--at];
    if (has_rows) made.row_stride = from[--at];
    for (int d = call->product.batch_dimensions - 1; d >= 0; d--)
        strides[d] = --at >= 0 && shape[at] != 1 ? from[at] : 0;
    return made;
}

/* Checks `out`, or makes the result. */
static int take_result(Call *call, int type) {
    bool rows = PyArray_NDIM((PyArrayObject *)call->given_a) > 1;
    bool columns = PyArray_NDIM((PyArrayObject *)call->given_b) > 1;
    npy_intp shape[NPY_MAXDIMS];
    int dimensions = 0;
    for (; dimensions < call->product.batch_dimensions; dimensions++)
        shape[dimensions] = call->shape[dimensions];
    if (rows) shape[dimensions++] = call->product.m;
    if (columns) shape[dimensions++] = call->product.n;
    if (call->given_out == Py_None) {
        call->result = (PyArrayObject *)PyArray_SimpleNew(dimensions, shape, type);
        if (call->result == NULL) return -1;
    } else {
        PyArrayObject *out = (PyArrayObject *)call->given_out;
        if (!PyArray_Check(call->given_out)) return refuse(call, "kind", "out");
        if (PyArray_TYPE(out) != type || !PyArray_ISNOTSWAPPED(out))
            return refuse(call, "out-type", type_names[call->product.element]);
        if (PyArray_NDIM(out) != dimensions ||
            !PyArray_CompareLists(PyArray_DIMS(out), shape, dimensions))
            return refuse(call, "out-shape", "");
        if (!PyArray_ISWRITEABLE(out)) return refuse(call, "read-only", "");
        call->result = (PyArrayObject *)Py_NewRef(out);
    }
    call->product.c = operand(call, call->result, call->c_strides, rows, columns);
    return 0;
}

/* The snapshot of this context, made now if this is its first use. NULL with an exception set. */
static const bcfg_snapshot *take_snapshot(void) {
    Prepared *prepared;
    if (bcfg_innermost(&prepared) < 0) return NULL;
    if (prepared == NULL) return bcfg_current();
    if (prepared->snapshot != NULL) return prepared->snapshot;
    if (bcfg_need(bcfg_callbacks.materialise, "materialise") == NULL) return NULL;
    Py_INCREF(prepared);
    PyObject *address = PyObject_CallOneArg(bcfg_callbacks.materialise, (PyObject *)prepared);
    const bcfg_snapshot *snapshot = NULL;
    if (address != NULL && PyObject_SetAttrString((PyObject *)prepared, "snapshot", address) == 0)
        snapshot = prepared->snapshot;
    if (snapshot == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "materialise returned no snapshot");
    Py_XDECREF(address);
    Py_DECREF(prepared);
    return snapshot;
}

PyObject *bcfg_snapshot_here(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    const bcfg_snapshot *snapshot = take_snapshot();
    return snapshot == NULL ? NULL : PyLong_FromVoidPtr((void *)snapshot);
}

static int multiply(Call *call, const bcfg_snapshot *snapshot) {
    bcfg_product *p = &call->product;
    bcfg_error error = {.abi = BCFG_ABI, .size = sizeof error};
    double work = (double)p->m * (double)p->n * (double)(p->k > 0 ? p->k : 1);
    for (int d = 0; d < p->batch_dimensions; d++) work *= (double)call->shape[d];
    bcfg_status status;
    if (work < WORTH_RELEASING) {
        status = bcfg_matmul(snapshot, p, &error);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = bcfg_matmul(snapshot, p, &error);
        Py_END_ALLOW_THREADS
    }
    switch (status) {
    case BCFG_OK: return 0;
    case BCFG_E_MEMORY: PyErr_NoMemory(); return -1;
    case BCFG_E_RANGE: return refuse(call, "range", error.detail);
    case BCFG_E_UNSERVED: return refuse(call, "unserved", error.detail);
    case BCFG_E_NOT_FINITE: return refuse(call, "not-finite", error.detail);
    case BCFG_E_ARGUMENT: return refuse(call, "argument", error.detail);
    default: PyErr_Format(PyExc_SystemError, "bcfg_matmul: status %d", status); return -1;
    }
}

static int compute(Call *call) {
    const bcfg_snapshot *snapshot = take_snapshot();
    if (snapshot == NULL || take_types(call) < 0 || take_shape(call) < 0) return -1;
    int type = type_numbers[call->product.element];
    call->a = converted(call->given_a, type);
    call->b = call->a != NULL ? converted(call->given_b, type) : NULL;
    if (call->b == NULL) return -1;
    call->product.a = operand(call, call->a, call->a_strides, PyArray_NDIM(call->a) > 1, true);
    call->product.b = operand(call, call->b, call->b_strides, true, PyArray_NDIM(call->b) > 1);
    return take_result(call, type) < 0 ? -1 : multiply(call, snapshot);
}

PyObject *bcfg_matmul_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given,
                           PyObject *keywords) {
    (void)module;
    Call call;
    call.given_out = Py_None;
    call.a = call.b = call.result = NULL;
    call.product.abi = BCFG_ABI;
    call.product.size = sizeof call.product;
    Py_ssize_t named = keywords != NULL ? PyTuple_GET_SIZE(keywords) : 0;
    if (given < 2 || given + named > 3 ||
        (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, 0), "out"))) {
        PyErr_SetString(PyExc_TypeError, "matmul takes (a, b, out=None), a and b by position");
        return NULL;
    }
    call.given_a = arguments[0];
    call.given_b = arguments[1];
    if (given + named == 3) call.given_out = arguments[2];
    if (!bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "set_array_api() has not been called");
        return NULL;
    }
    int status = compute(&call);
    Py_XDECREF(call.a);
    Py_XDECREF(call.b);
    if (status < 0) {
        Py_XDECREF(call.result);
        return NULL;
    }
    return call.given_out == Py_None ? PyArray_Return(call.result) : (PyObject *)call.result;
}
