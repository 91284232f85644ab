/* matmul(a, b, out=None): NumPy's rules of shapes and types over bcfg_matmul; and addmm. */
#include "arrays.h"
#include "gpu/python/device.h"

/* Below this many multiplications, or zeros to write, a product takes less time than other threads
 * would gain. */
enum { WORTH_RELEASING = 1 << 15 };

/* One call: what was passed, and what is multiplied. */
typedef struct {
    PyObject *given_a, *given_b, *given_out;
    PyArrayObject *added;          /* or NULL */
    PyArrayObject *a, *b, *result; /* owned */
    bool holds_bfloat16;           /* uint16 stands for it */
    int bfloat16_type;             /* its number, once an array of it was seen */
    bcfg_product product;
    int64_t shape[NPY_MAXDIMS], a_strides[NPY_MAXDIMS], b_strides[NPY_MAXDIMS];
    int64_t c_strides[NPY_MAXDIMS], added_strides[NPY_MAXDIMS];
} Call;

/* Has backendcfg.ops raise the error, with the shapes and types; returns -1. */
static int refuse(const Call *call, const char *reason, const char *detail) {
    if (bcfg_need(bcfg_callbacks.refuse, "refuse") == NULL) return -1;
    PyObject *done = PyObject_CallFunction(bcfg_callbacks.refuse, "ssOOO", reason, detail,
                                           call->given_a, call->given_b, call->given_out);
    if (done != NULL) PyErr_Format(PyExc_RuntimeError, "refuse did not raise: %s", reason);
    Py_XDECREF(done);
    return -1;
}

/* bfloat16 is no type of NumPy's: ml_dtypes has one, and others lend their memory as uint16. */
static bool is_bfloat16(const Call *call, PyArrayObject *array) {
    if (PyArray_TYPE(array) == NPY_USHORT) return call->holds_bfloat16;
    if (!PyTypeNum_ISUSERDEF(PyArray_TYPE(array)) || PyArray_ITEMSIZE(array) != 2) return false;
    const char *name = PyArray_DESCR(array)->typeobj->tp_name, *dot = strrchr(name, '.');
    return strcmp(dot != NULL ? dot + 1 : name, "bfloat16") == 0;
}

static int element_of(Call *call, PyObject *given) {
    PyArrayObject *array = (PyArrayObject *)given;
    int element = bcfg_element_of(PyArray_TYPE(array));
    if (element >= 0) return element;
    if (!is_bfloat16(call, array)) return -1;
    call->bfloat16_type = PyArray_TYPE(array);
    return BCFG_BFLOAT16;
}

/* NumPy's number of an element type. */
static int type_of(const Call *call, int element) {
    return element == BCFG_BFLOAT16 ? call->bfloat16_type : bcfg_element_types[element];
}

/* What two types promote to; the two with 16 bits have only float32 in common. */
static int promoted(int left, int right) {
    if (left == right) return left;
    if (left >= BCFG_BFLOAT16) left = BCFG_FLOAT32;
    if (right >= BCFG_BFLOAT16) right = BCFG_FLOAT32;
    bool is_complex = left >= BCFG_COMPLEX64 || right >= BCFG_COMPLEX64;
    return (is_complex ? BCFG_COMPLEX64 : BCFG_FLOAT32) + ((left | right) & 1);
}

static int take_types(Call *call) {
    PyObject *given[2] = {call->given_a, call->given_b};
    int element[2];
    for (int i = 0; i < 2; i++) {
        element[i] = element_of(call, given[i]);
        if (element[i] < 0) return refuse(call, "type", i ? "b" : "a");
        if (PyArray_NDIM((PyArrayObject *)given[i]) == 0)
            return refuse(call, "dimensions", i ? "b" : "a");
    }
    call->product.element = promoted(element[0], element[1]);
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
    p->batch_shape = call->shape;
    if (a_dimensions > 2) (void)bcfg_join_shape(a, 2, call->shape, &p->batch_dimensions);
    if (b_dimensions > 2 && !bcfg_join_shape(b, 2, call->shape, &p->batch_dimensions))
        return refuse(call, "batch", "");
    return 0;
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
        if (PyArray_TYPE(out) != type || !PyArray_ISNOTSWAPPED(out))
            return refuse(call, "out-type", bcfg_element_names[call->product.element]);
        if (PyArray_NDIM(out) != dimensions ||
            !PyArray_CompareLists(PyArray_DIMS(out), shape, dimensions))
            return refuse(call, "out-shape", "");
        if (!PyArray_ISWRITEABLE(out)) return refuse(call, "read-only", "");
        call->result = (PyArrayObject *)Py_NewRef(out);
    }
    call->product.c = bcfg_operand_of(call->result, call->product.batch_dimensions, call->c_strides,
                                      rows, columns);
    return 0;
}

/* The snapshot of this context, made now if this is its first use. NULL with an exception set. */
const bcfg_snapshot *bcfg_take_snapshot(void) {
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
    const bcfg_snapshot *snapshot = bcfg_take_snapshot();
    return snapshot == NULL ? NULL : PyLong_FromVoidPtr((void *)snapshot);
}

static int multiply(Call *call, const bcfg_snapshot *snapshot) {
    bcfg_product *p = &call->product;
    bcfg_operand operand, *added = NULL;
    if (call->added != NULL) {
        operand = bcfg_operand_of(call->added, p->batch_dimensions, call->added_strides, true, true);
        added = &operand;
    }
    bcfg_error error = {.abi = BCFG_ABI, .size = sizeof error};
    double work = (double)p->m * (double)p->n * (double)(p->k > 0 ? p->k : 1);
    for (int d = 0; d < p->batch_dimensions; d++) work *= (double)call->shape[d];
    bcfg_status status;
    if (work < WORTH_RELEASING) {
        status = bcfg_addmm(snapshot, p, added, &error);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = bcfg_addmm(snapshot, p, added, &error);
        Py_END_ALLOW_THREADS
    }
    switch (status) {
    case BCFG_OK:
        return bcfg_tracing
                   ? bcfg_trace_product("matmul", snapshot, p, bcfg_element_names[p->element])
                   : 0;
    case BCFG_E_MEMORY: PyErr_NoMemory(); return -1;
    case BCFG_E_RANGE: return refuse(call, "range", error.detail);
    case BCFG_E_UNSERVED: return refuse(call, "unserved", error.detail);
    case BCFG_E_NOT_FINITE: return refuse(call, "not-finite", error.detail);
    case BCFG_E_ARGUMENT: return refuse(call, "argument", error.detail);
    default: PyErr_Format(PyExc_SystemError, "bcfg_matmul: status %d", status); return -1;
    }
}

static int compute(Call *call) {
    const bcfg_snapshot *snapshot = bcfg_take_snapshot();
    if (snapshot == NULL || take_types(call) < 0 || take_shape(call) < 0) return -1;
    int type = type_of(call, call->product.element);
    int stack = call->product.batch_dimensions;
    call->a = bcfg_converted((PyArrayObject *)call->given_a, type);
    call->b = call->a != NULL ? bcfg_converted((PyArrayObject *)call->given_b, type) : NULL;
    if (call->b == NULL) return -1;
    call->product.a =
        bcfg_operand_of(call->a, stack, call->a_strides, PyArray_NDIM(call->a) > 1, true);
    call->product.b =
        bcfg_operand_of(call->b, stack, call->b_strides, true, PyArray_NDIM(call->b) > 1);
    return take_result(call, type) < 0 ? -1 : multiply(call, snapshot);
}

/* Arrays of other libraries: those on a device are multiplied there; for the others backendcfg.ops
 * calls again with NumPy arrays over their memory. */
static PyObject *multiply_foreign(const Call *call) {
    PyObject *product = bcfg_device_multiply("matmul", call->given_a, call->given_b, Py_None,
                                             call->given_out, NULL, NULL);
    if (product != Py_NotImplemented) return product;
    Py_DECREF(product);
    if (bcfg_need(bcfg_callbacks.foreign, "foreign") == NULL) return NULL;
    return PyObject_CallFunctionObjArgs(bcfg_callbacks.foreign, call->given_a, call->given_b,
                                        call->given_out, NULL);
}

static PyObject *call_matmul(PyObject *const *arguments, Py_ssize_t given, PyObject *keywords,
                             bool holds_bfloat16) {
    Call call;
    call.holds_bfloat16 = holds_bfloat16;
    call.given_out = Py_None;
    call.added = call.a = call.b = call.result = NULL;
    call.product.batch_dimensions = 0;
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
    /* What a subclass means is for Python to judge. */
    if (!PyArray_CheckExact(call.given_a) || !PyArray_CheckExact(call.given_b) ||
        (call.given_out != Py_None && !PyArray_CheckExact(call.given_out)))
        return multiply_foreign(&call);
    int status = compute(&call);
    Py_XDECREF(call.a);
    Py_XDECREF(call.b);
    if (status < 0) {
        Py_XDECREF(call.result);
        return NULL;
    }
    return call.given_out == Py_None ? PyArray_Return(call.result) : (PyObject *)call.result;
}

PyObject *bcfg_matmul_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given,
                           PyObject *keywords) {
    (void)module;
    return call_matmul(arguments, given, keywords, false);
}

PyObject *bcfg_matmul_bfloat16(PyObject *module, PyObject *const *arguments, Py_ssize_t given,
                               PyObject *keywords) {
    (void)module;
    return call_matmul(arguments, given, keywords, true);
}

/* What is added must have the result's shape and type: strides of 0 repeat it. */
static int take_added(const Call *call) {
    PyArrayObject *out = (PyArrayObject *)call->given_out, *added = call->added;
    if (PyArray_NDIM(out) < 2 || PyArray_TYPE(added) != PyArray_TYPE(out) ||
        PyArray_NDIM(added) != PyArray_NDIM(out) ||
        !PyArray_CompareLists(PyArray_DIMS(added), PyArray_DIMS(out), PyArray_NDIM(out)) ||
        !PyArray_ISNOTSWAPPED(added)) {
        PyErr_SetString(PyExc_ValueError, "what is added must be like `out`, of two dimensions or more");
        return -1;
    }
    return 0;
}

PyObject *bcfg_addmm_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    Call call;
    if (given != 4 || !bcfg_array_api_ready) {
        PyErr_SetString(PyExc_TypeError, "addmm takes (added, a, b, out)");
        return NULL;
    }
    for (int i = 0; i < 4; i++)
        if (!PyArray_CheckExact(arguments[i])) {
            PyErr_SetString(PyExc_TypeError, "addmm takes NumPy arrays");
            return NULL;
        }
    call.holds_bfloat16 = true;
    call.added = (PyArrayObject *)arguments[0];
    call.given_a = arguments[1];
    call.given_b = arguments[2];
    call.given_out = arguments[3];
    call.a = call.b = call.result = NULL;
    call.product.batch_dimensions = 0;
    int status = take_added(&call) < 0 ? -1 : compute(&call);
    Py_XDECREF(call.a);
    Py_XDECREF(call.b);
    if (status == 0) return (PyObject *)call.result;
    Py_XDECREF(call.result);
    return NULL;
}
