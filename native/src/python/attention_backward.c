/* attention_backward(...): arrays for the gradients of attention. Its callers are in Python and
 * have checked what a user gave; what is refused here would read memory that is not there. */
#include "arrays.h"
#include "kernels/attention_backward.h"

enum { GRAD_OUT, QUERY, KEY, VALUE, MASK, OUT, LOGSUMEXP, IS_CAUSAL, SCALE, DROPOUT, SEED, ELEMENT,
       THREADS, RESULTS, MOST };

static const struct {
    const char *name;
    int type;
} elements[] = {
    [BACKWARD_FLOAT32] = {"float32", NPY_FLOAT},
    [BACKWARD_FLOAT64] = {"float64", NPY_DOUBLE},
    [BACKWARD_BFLOAT16] = {"bfloat16", NPY_USHORT},
    [BACKWARD_FLOAT16] = {"float16", NPY_HALF},
};

static int take_element(PyObject *given, backward_element *element) {
    for (int i = 0; i < (int)(sizeof elements / sizeof *elements); i++)
        if (PyUnicode_Check(given) && PyUnicode_CompareWithASCIIString(given, elements[i].name) == 0) {
            *element = (backward_element)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "attention_backward: no element %R", given);
    return -1;
}

/* An array of a shape (its first `dimensions`) and type, -1 for any. */
static int take(PyObject *given, const char *name, int type, int dimensions, const int64_t *shape,
                backward_array *array) {
    PyArrayObject *it = (PyArrayObject *)given;
    if (!PyArray_Check(given) || (type >= 0 && PyArray_TYPE(it) != type) ||
        !PyArray_ISNOTSWAPPED(it) || PyArray_NDIM(it) != dimensions) {
        PyErr_Format(PyExc_ValueError, "attention_backward: %s is %R", name, given);
        return -1;
    }
    array->data = PyArray_DATA(it);
    array->strides[3] = 0;
    for (int d = 0; d < dimensions; d++) {
        array->strides[d] = PyArray_STRIDES(it)[d];
        if (PyArray_DIMS(it)[d] == shape[d]) continue;
        PyErr_Format(PyExc_ValueError,
                     "attention_backward: dimension %d of %s is %zd, and %lld is needed", d, name,
                     (Py_ssize_t)PyArray_DIMS(it)[d], (long long)shape[d]);
        return -1;
    }
    return 0;
}

static int take_sizes(PyObject *const *given, backward_job *job) {
    for (int i = QUERY; i <= VALUE; i++)
        if (!PyArray_Check(given[i]) || PyArray_NDIM((PyArrayObject *)given[i]) != 4) {
            PyErr_SetString(PyExc_ValueError,
                            "attention_backward: query, key and value have four dimensions");
            return -1;
        }
    const npy_intp *query = PyArray_DIMS((PyArrayObject *)given[QUERY]);
    job->batch = query[0];
    job->heads = query[1];
    job->queries = query[2];
    job->width = query[3];
    job->key_heads = PyArray_DIMS((PyArrayObject *)given[KEY])[1];
    job->keys = PyArray_DIMS((PyArrayObject *)given[KEY])[2];
    job->value_width = PyArray_DIMS((PyArrayObject *)given[VALUE])[3];
    if (job->key_heads == 0 ? job->heads == 0 : job->heads % job->key_heads == 0) return 0;
    PyErr_Format(PyExc_ValueError, "attention_backward: %lld heads of queries and %lld of keys",
                 (long long)job->heads, (long long)job->key_heads);
    return -1;
}

static int take_mask(PyObject *given, backward_job *job) {
    job->mask.data = NULL;
    if (given == Py_None) return 0;
    int64_t shape[] = {job->batch, job->heads, job->queries, job->keys};
    int type = PyArray_Check(given) ? PyArray_TYPE((PyArrayObject *)given) : -1;
    if (type == NPY_BOOL)
        job->mask_element = BACKWARD_BOOL;
    else if (type == NPY_FLOAT)
        job->mask_element = BACKWARD_FLOAT32;
    else if (type == elements[job->element].type)
        job->mask_element = job->element;
    else
        type = NPY_NOTYPE;
    return take(given, "mask", type, 4, shape, &job->mask);
}

static int take_arrays(PyObject *const *given, backward_job *job) {
    int type = elements[job->element].type;
    int real = job->element == BACKWARD_FLOAT64 ? NPY_DOUBLE : NPY_FLOAT;
    int64_t query[] = {job->batch, job->heads, job->queries, job->width};
    int64_t key[] = {job->batch, job->key_heads, job->keys, job->width};
    int64_t value[] = {job->batch, job->key_heads, job->keys, job->value_width};
    int64_t out[] = {job->batch, job->heads, job->queries, job->value_width};
    return take(given[QUERY], "query", type, 4, query, &job->query) < 0 ||
                   take(given[KEY], "key", type, 4, key, &job->key) < 0 ||
                   take(given[VALUE], "value", type, 4, value, &job->value) < 0 ||
                   take(given[GRAD_OUT], "grad_out", type, 4, out, &job->grad_out) < 0 ||
                   take(given[OUT], "out", type, 4, out, &job->out) < 0 ||
                   take(given[LOGSUMEXP], "logsumexp", real, 3, out, &job->logsumexp) < 0 ||
                   take_mask(given[MASK], job) < 0
               ? -1
               : 0;
}

static int take_numbers(PyObject *const *given, Py_ssize_t count, backward_job *job,
                        int32_t *threads) {
    int is_causal = PyObject_IsTrue(given[IS_CAUSAL]);
    job->is_causal = is_causal > 0;
    job->scale = PyFloat_AsDouble(given[SCALE]);
    job->dropout = PyFloat_AsDouble(given[DROPOUT]);
    job->seed = PyLong_AsUnsignedLongLongMask(given[SEED]);
    *threads = count > THREADS ? (int32_t)PyLong_AsLong(given[THREADS]) : 0;
    if (PyErr_Occurred()) return -1;
    if (job->dropout >= 0 && job->dropout <= 1) return 0;
    PyErr_SetString(PyExc_ValueError, "attention_backward: dropout_p is not in [0, 1]");
    return -1;
}

/* The arrays of the gradients: those given, else new ones that lie as query, key and value do. */
static int take_results(PyObject *const *given, Py_ssize_t count, backward_job *job,
                        PyObject *results[3]) {
    PyObject *into = count > RESULTS ? given[RESULTS] : Py_None;
    if (into != Py_None && (!PyTuple_Check(into) || PyTuple_GET_SIZE(into) != 3)) {
        PyErr_SetString(PyExc_ValueError, "attention_backward: results are a tuple of three");
        return -1;
    }
    backward_array *arrays[] = {&job->grad_query, &job->grad_key, &job->grad_value};
    for (int i = 0; i < 3; i++) {
        PyArrayObject *like = (PyArrayObject *)given[QUERY + i];
        results[i] = into != Py_None ? Py_NewRef(PyTuple_GET_ITEM(into, i))
                                     : PyArray_NewLikeArray(like, NPY_KEEPORDER, NULL, 0);
        int64_t shape[4];
        for (int d = 0; d < 4; d++) shape[d] = PyArray_DIMS(like)[d];
        if (results[i] == NULL ||
            take(results[i], "a result", elements[job->element].type, 4, shape, arrays[i]) < 0)
            return -1;
        if (!PyArray_ISWRITEABLE((PyArrayObject *)results[i])) {
            PyErr_SetString(PyExc_ValueError, "attention_backward: a result is read-only");
            return -1;
        }
    }
    return 0;
}

PyObject *bcfg_attention_backward_call(PyObject *module, PyObject *const *given,
                                       Py_ssize_t count) {
    (void)module;
    if (count < THREADS || count > MOST) {
        PyErr_Format(PyExc_TypeError, "attention_backward takes 12 to 14 arguments, not %zd", count);
        return NULL;
    }
    if (!bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "set_array_api() has not been called");
        return NULL;
    }
    backward_job job = {0};
    int32_t threads;
    PyObject *results[3] = {NULL, NULL, NULL};
    if (take_element(given[ELEMENT], &job.element) == 0 && take_sizes(given, &job) == 0 &&
        take_arrays(given, &job) == 0 && take_numbers(given, count, &job, &threads) == 0 &&
        take_results(given, count, &job, results) == 0) {
        bcfg_status status;
        Py_BEGIN_ALLOW_THREADS
        status = bcfg_attention_backward(&job, threads, NULL);
        Py_END_ALLOW_THREADS
        if (status == BCFG_OK) return Py_BuildValue("NNN", results[0], results[1], results[2]);
        PyErr_NoMemory();
    }
    for (int i = 0; i < 3; i++) Py_XDECREF(results[i]);
    return NULL;
}
