/* Counts who served the calls of operations written in Python: here, because the GIL makes a dictionary
 * exact without a lock. Also calls the hook of traces, for those operations and for products. */
#include "glue.h"

#include "../core/core.h"

int bcfg_tracing;

static PyObject *counts; /* {(operation, provider, because): calls} */

void bcfg_forget_served(void) {
    if (counts != NULL) PyDict_Clear(counts);
}

static int count(PyObject *operation, PyObject *provider, PyObject *because) {
    if (counts == NULL && (counts = PyDict_New()) == NULL) return -1;
    PyObject *key = PyTuple_Pack(3, operation, provider, because);
    if (key == NULL) return -1;
    PyObject *before = PyDict_GetItemWithError(counts, key); /* borrowed; texts run no Python */
    PyObject *after = NULL;
    if (before != NULL || !PyErr_Occurred())
        after = PyLong_FromLongLong(before != NULL ? PyLong_AsLongLong(before) + 1 : 1);
    int status = after != NULL ? PyDict_SetItem(counts, key, after) : -1;
    Py_XDECREF(after);
    Py_DECREF(key);
    return status;
}

static int tell(PyObject *operation, PyObject *provider, PyObject *because, PyObject *sizes,
                PyObject *dtype) {
    if (bcfg_need(bcfg_callbacks.traced, "traced") == NULL) return -1;
    PyObject *done = PyObject_CallFunctionObjArgs(bcfg_callbacks.traced, operation, provider,
                                                  because, sizes, dtype, NULL);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

PyObject *bcfg_served(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given < 3 || given > 5) {
        PyErr_SetString(PyExc_TypeError,
                        "served takes (operation, provider, because, sizes=(), dtype='')");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < 3; i++)
        if (!PyUnicode_CheckExact(arguments[i]))
            return PyErr_Format(PyExc_TypeError, "served takes text, not %.100s",
                                Py_TYPE(arguments[i])->tp_name);
    if (count(arguments[0], arguments[1], arguments[2]) < 0) return NULL;
    if (bcfg_tracing) {
        PyObject *sizes = given > 3 ? Py_NewRef(arguments[3]) : PyTuple_New(0);
        PyObject *dtype = given > 4 ? Py_NewRef(arguments[4]) : PyUnicode_New(0, 0);
        int status = sizes != NULL && dtype != NULL
                         ? tell(arguments[0], arguments[1], arguments[2], sizes, dtype)
                         : -1;
        Py_XDECREF(sizes);
        Py_XDECREF(dtype);
        if (status < 0) return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *bcfg_served_counts(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return counts != NULL ? PyDict_Copy(counts) : PyDict_New();
}

PyObject *bcfg_set_tracing(PyObject *module, PyObject *on) {
    (void)module;
    int is_on = PyObject_IsTrue(on);
    if (is_on < 0) return NULL;
    bcfg_tracing = is_on;
    Py_RETURN_NONE;
}

/* The sizes of a product: the batch, then m, n, k. */
static PyObject *sizes_of(const bcfg_product *product) {
    PyObject *sizes = PyTuple_New(product->batch_dimensions + 3);
    const int64_t last[3] = {product->m, product->n, product->k};
    for (Py_ssize_t i = 0; sizes != NULL && i < PyTuple_GET_SIZE(sizes); i++) {
        bool in_batch = i < product->batch_dimensions;
        PyObject *size = PyLong_FromLongLong(in_batch ? product->batch_shape[i]
                                                      : last[i - product->batch_dimensions]);
        if (size == NULL)
            Py_CLEAR(sizes);
        else
            PyTuple_SET_ITEM(sizes, i, size);
    }
    return sizes;
}

int bcfg_trace_served(const char *operation, const char *provider, const char *reason,
                      const bcfg_product *product, const char *dtype) {
    PyObject *given[5] = {PyUnicode_FromString(operation), PyUnicode_FromString(provider),
                          PyUnicode_FromString(reason), sizes_of(product),
                          PyUnicode_FromString(dtype)};
    int status = 0;
    for (int i = 0; i < 5; i++)
        if (given[i] == NULL) status = -1;
    if (status == 0) status = tell(given[0], given[1], given[2], given[3], given[4]);
    for (int i = 0; i < 5; i++) Py_XDECREF(given[i]);
    return status;
}

int bcfg_trace_product(const char *operation, const bcfg_snapshot *snapshot,
                       const bcfg_product *product, const char *dtype) {
    static const char *const reasons[] = {"first", "fastest", "able"};
    int64_t m = product->m, n = product->n, k = product->k;
    int32_t id = bcfg_operation_of(product);
    const char *name = "", *reason = "empty"; /* a result without products has no server */
    bcfg_description is = {.abi = BCFG_ABI, .size = sizeof is};
    bool empty = m == 0 || n == 0 || k == 0;
    for (int32_t d = 0; d < product->batch_dimensions; d++) empty |= product->batch_shape[d] == 0;
    int32_t chosen = empty ? -1 : bcfg_choose(snapshot, id, m, n, k);
    if (chosen >= 0) {
        (void)bcfg_describe(bcfg_ordered(snapshot, id, (uint32_t)chosen), &is);
        name = is.name;
        reason = reasons[bcfg_choice_reason(snapshot, id, m, n, k)];
    }
    return bcfg_trace_served(operation, name, reason, product, dtype);
}
