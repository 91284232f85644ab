/* attention(...): arrays for the forward pass of attention, and which instruction set serves. Its
 * callers are in Python and have checked what a user gave; what is refused here would read memory
 * that is not there. */
#include "arrays.h"
#include "kernels/attention.h"

enum { KERNEL, QUERY, KEY, VALUE, MASK, IS_CAUSAL, SCALE, DROPOUT, SEED, ELEMENT, THREADS, MOST };

static const struct {
    const char *name;
    int type;
} elements[] = {
    [ATTENTION_FLOAT32] = {"float32", NPY_FLOAT},
    [ATTENTION_FLOAT64] = {"float64", NPY_DOUBLE},
    [ATTENTION_BFLOAT16] = {"bfloat16", NPY_USHORT},
    [ATTENTION_FLOAT16] = {"float16", NPY_HALF},
};

static bool is(PyObject *given, const char *name) {
    return PyUnicode_Check(given) && PyUnicode_CompareWithASCIIString(given, name) == 0;
}

static int take_words(PyObject *const *given, attention_job *job) {
    job->streams = is(given[KERNEL], "efficient");
    if (!job->streams && !is(given[KERNEL], "flash")) {
        PyErr_Format(PyExc_ValueError, "attention: no kernel %R", given[KERNEL]);
        return -1;
    }
    for (int i = 0; i < (int)(sizeof elements / sizeof *elements); i++)
        if (is(given[ELEMENT], elements[i].name)) {
            job->element = (attention_element)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "attention: no element %R", given[ELEMENT]);
    return -1;
}

static int take(PyObject *given, const char *name, int type, const int64_t *shape,
                attention_array *array) {
    PyArrayObject *it = (PyArrayObject *)given;
    if (!PyArray_Check(given) || PyArray_TYPE(it) != type || !PyArray_ISNOTSWAPPED(it) ||
        PyArray_NDIM(it) != 4) {
        PyErr_Format(PyExc_ValueError, "attention: %s must be four-dimensional and of the element's "
                     "type", name);
        return -1;
    }
    array->data = PyArray_DATA(it);
    for (int d = 0; d < 4; d++) {
        array->strides[d] = PyArray_STRIDES(it)[d];
        if (PyArray_DIMS(it)[d] == shape[d]) continue;
        PyErr_Format(PyExc_ValueError, "attention: dimension %d of %s is %zd, and %lld is needed",
                     d, name, (Py_ssize_t)PyArray_DIMS(it)[d], (long long)shape[d]);
        return -1;
    }
    return 0;
}

static int take_sizes(PyObject *const *given, attention_job *job) {
    for (int i = QUERY; i <= VALUE; i++)
        if (!PyArray_Check(given[i]) || PyArray_NDIM((PyArrayObject *)given[i]) != 4) {
            PyErr_SetString(PyExc_ValueError,
                            "attention: query, key and value must be four-dimensional arrays");
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
    PyErr_Format(PyExc_ValueError,
                 "attention: %lld heads of query are no multiple of %lld heads of key",
                 (long long)job->heads, (long long)job->key_heads);
    return -1;
}

static int take_mask(PyObject *given, attention_job *job) {
    job->mask.data = NULL;
    if (given == Py_None) return 0;
    int64_t shape[] = {job->batch, job->heads, job->queries, job->keys};
    int type = PyArray_Check(given) ? PyArray_TYPE((PyArrayObject *)given) : NPY_NOTYPE;
    if (type == NPY_BOOL) {
        job->mask_element = ATTENTION_BOOL;
    } else if (type == NPY_FLOAT) {
        job->mask_element = ATTENTION_FLOAT32;
    } else {
        job->mask_element = job->element;
        type = elements[job->element].type;
    }
    return take(given, "mask", type, shape, &job->mask);
}

static int take_arrays(PyObject *const *given, attention_job *job) {
    int type = elements[job->element].type;
    int64_t query[] = {job->batch, job->heads, job->queries, job->width};
    int64_t key[] = {job->batch, job->key_heads, job->keys, job->width};
    int64_t value[] = {job->batch, job->key_heads, job->keys, job->value_width};
    return take(given[QUERY], "query", type, query, &job->query) < 0 ||
                   take(given[KEY], "key", type, key, &job->key) < 0 ||
                   take(given[VALUE], "value", type, value, &job->value) < 0 ||
                   take_mask(given[MASK], job) < 0
               ? -1
               : 0;
}

static int take_numbers(PyObject *const *given, Py_ssize_t count, attention_job *job,
                        int32_t *threads) {
    int is_causal = PyObject_IsTrue(given[IS_CAUSAL]);
    job->is_causal = is_causal > 0;
    job->scale = PyFloat_AsDouble(given[SCALE]);
    job->dropout = PyFloat_AsDouble(given[DROPOUT]);
    job->seed = PyLong_AsUnsignedLongLongMask(given[SEED]);
    *threads = count > THREADS ? (int32_t)PyLong_AsLong(given[THREADS]) : 0;
    if (PyErr_Occurred()) return -1;
    if (job->dropout >= 0 && job->dropout <= 1) return 0;
    PyErr_SetString(PyExc_ValueError, "attention: dropout_p must be between 0 and 1");
    return -1;
}

static int take_results(attention_job *job, PyObject *results[2]) {
    npy_intp shape[] = {job->batch, job->heads, job->queries, job->value_width};
    results[0] = PyArray_SimpleNew(4, shape, elements[job->element].type);
    results[1] =
        PyArray_SimpleNew(3, shape, job->element == ATTENTION_FLOAT64 ? NPY_DOUBLE : NPY_FLOAT);
    if (results[0] == NULL || results[1] == NULL) return -1;
    job->out.data = PyArray_DATA((PyArrayObject *)results[0]);
    for (int d = 0; d < 4; d++)
        job->out.strides[d] = PyArray_STRIDES((PyArrayObject *)results[0])[d];
    job->logsumexp = PyArray_DATA((PyArrayObject *)results[1]);
    return 0;
}

PyObject *bcfg_attention_call(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count < THREADS || count > MOST) {
        PyErr_Format(PyExc_TypeError, "attention takes 10 or 11 arguments, not %zd", count);
        return NULL;
    }
    if (!bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "set_array_api() has not been called");
        return NULL;
    }
    attention_job job = {0};
    int32_t threads;
    PyObject *results[2] = {NULL, NULL};
    if (take_words(given, &job) == 0 && take_sizes(given, &job) == 0 &&
        take_arrays(given, &job) == 0 && take_numbers(given, count, &job, &threads) == 0 &&
        take_results(&job, results) == 0) {
        bcfg_status status;
        Py_BEGIN_ALLOW_THREADS
        status = bcfg_attention(&job, threads, NULL);
        Py_END_ALLOW_THREADS
        if (status == BCFG_OK) return Py_BuildValue("NN", results[0], results[1]);
        PyErr_NoMemory();
    }
    Py_XDECREF(results[0]);
    Py_XDECREF(results[1]);
    return NULL;
}

PyObject *bcfg_kernel_isas(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    PyObject *list = PyList_New(0);
    const char *name;
    for (int32_t isa = 0; list != NULL && (name = bcfg_isa_name(isa)) != NULL; isa++) {
        if (*name == '\0') continue;
        PyObject *entry = Py_BuildValue("sOK", name, bcfg_isa_available(isa) ? Py_True : Py_False,
                                        (unsigned long long)bcfg_isa_served(isa));
        if (entry == NULL || PyList_Append(list, entry) < 0) Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

PyObject *bcfg_force_kernel_isa(PyObject *module, PyObject *given) {
    (void)module;
    int32_t isa = -1;
    if (given != Py_None) {
        const char *name = "";
        for (isa = 0; (name = bcfg_isa_name(isa)) != NULL && !is(given, name); isa++) continue;
        if (name == NULL || *name == '\0')
            return PyErr_Format(PyExc_ValueError, "no instruction set %R", given);
    }
    if (bcfg_force_isa(isa) != BCFG_OK)
        return PyErr_Format(PyExc_ValueError, "this CPU cannot run %R", given);
    Py_RETURN_NONE;
}
