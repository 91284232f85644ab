/* attention(...) and attention_backward(...): arrays for both passes; and which instruction set
 * serves. The callers are in Python and have checked what a user gave; what is refused here would
 * read memory that is not there. */
#include "arrays.h"
#include "core/core.h"
#include "kernels/attention.h"
#include "kernels/attention_backward.h"
#include "kernels/kernels.h"

/* What both passes are given: the arrays from `arrays` on (mask is None for none), and the numbers
 * from `numbers` on, of which `threads` may be missing. */
typedef struct {
    const char *name;
    PyObject *const *arrays, *const *numbers;
    Py_ssize_t number_count;
} Given;
enum { QUERY, KEY, VALUE, MASK };
enum { IS_CAUSAL, SCALE, DROPOUT, SEED, ELEMENT, THREADS };

static int real_type(const attention_inputs *in) {
    return in->element == BCFG_FLOAT64 ? NPY_DOUBLE : NPY_FLOAT;
}

static bool take_element(const Given *call, attention_inputs *in) {
    for (in->element = 0; in->element < BCFG_ELEMENTS; in->element++)
        if ((in->element < BCFG_COMPLEX64 || in->element > BCFG_COMPLEX128) &&
            bcfg_is(call->numbers[ELEMENT], bcfg_element_names[in->element]))
            return true;
    PyErr_Format(PyExc_ValueError, "%s: no element %R", call->name, call->numbers[ELEMENT]);
    return false;
}

/* An array of that many dimensions, of these sizes and this type. */
static bool take_array(const Given *call, PyObject *given, const char *name, int type,
                       int dimensions, const int64_t *shape, attention_array *array) {
    PyArrayObject *it = (PyArrayObject *)given;
    if (!PyArray_Check(given) || PyArray_TYPE(it) != type || !PyArray_ISNOTSWAPPED(it) ||
        PyArray_NDIM(it) != dimensions) {
        PyErr_Format(PyExc_ValueError, "%s: %s must have %d dimensions and be of %s",
                     call->name, name, dimensions,
                     type == NPY_UINT8 ? "type uint8" : "the element's type");
        return false;
    }
    *array = (attention_array){.data = PyArray_DATA(it)};
    for (int d = 0; d < dimensions; d++) {
        array->strides[d] = PyArray_STRIDES(it)[d];
        if (PyArray_DIMS(it)[d] == shape[d]) continue;
        PyErr_Format(PyExc_ValueError, "%s: dimension %d of %s is %zd, and %lld is needed",
                     call->name, d, name, (Py_ssize_t)PyArray_DIMS(it)[d], (long long)shape[d]);
        return false;
    }
    return true;
}

static bool take_sizes(const Given *call, attention_inputs *in) {
    for (int i = QUERY; i <= VALUE; i++)
        if (!PyArray_Check(call->arrays[i]) ||
            PyArray_NDIM((PyArrayObject *)call->arrays[i]) != 4) {
            PyErr_Format(PyExc_ValueError,
                         "%s: query, key and value must be four-dimensional arrays", call->name);
            return false;
        }
    const npy_intp *query = PyArray_DIMS((PyArrayObject *)call->arrays[QUERY]);
    const npy_intp *key = PyArray_DIMS((PyArrayObject *)call->arrays[KEY]);
    in->batch = query[0], in->heads = query[1], in->queries = query[2], in->width = query[3];
    in->key_heads = key[1], in->keys = key[2];
    in->value_width = PyArray_DIMS((PyArrayObject *)call->arrays[VALUE])[3];
    if (in->key_heads == 0 ? in->heads == 0 : in->heads % in->key_heads == 0) return true;
    PyErr_Format(PyExc_ValueError, "%s: %lld heads of query are no multiple of %lld heads of key",
                 call->name, (long long)in->heads, (long long)in->key_heads);
    return false;
}

static bool take_mask(const Given *call, attention_inputs *in) {
    PyObject *given = call->arrays[MASK];
    if (given == Py_None) return true;
    int64_t shape[] = {in->batch, in->heads, in->queries, in->keys};
    int type = PyArray_Check(given) ? PyArray_TYPE((PyArrayObject *)given) : NPY_NOTYPE;
    if (type == NPY_BOOL) {
        in->mask_element = ATTENTION_BOOL;
    } else if (type == NPY_FLOAT) {
        in->mask_element = BCFG_FLOAT32;
    } else {
        in->mask_element = in->element;
        type = bcfg_element_types[in->element];
    }
    return take_array(call, given, "mask", type, 4, shape, &in->mask);
}

static bool take_arrays(const Given *call, attention_inputs *in) {
    int64_t query[] = {in->batch, in->heads, in->queries, in->width};
    int64_t key[] = {in->batch, in->key_heads, in->keys, in->width};
    int64_t value[] = {in->batch, in->key_heads, in->keys, in->value_width};
    int type = bcfg_element_types[in->element];
    return take_array(call, call->arrays[QUERY], "query", type, 4, query, &in->query) &&
           take_array(call, call->arrays[KEY], "key", type, 4, key, &in->key) &&
           take_array(call, call->arrays[VALUE], "value", type, 4, value, &in->value) &&
           take_mask(call, in);
}

/* The seed of dropout, or an array that says which weights are kept. */
static bool take_seed(const Given *call, attention_inputs *in) {
    PyObject *given = call->numbers[SEED];
    if (!PyArray_Check(given)) {
        in->seed = PyLong_AsUnsignedLongLongMask(given);
        return !PyErr_Occurred();
    }
    int64_t shape[] = {in->batch, in->heads, in->queries, in->keys};
    return take_array(call, given, "kept", NPY_UINT8, 4, shape, &in->kept);
}

static bool take_inputs(const Given *call, attention_inputs *in, int32_t *threads) {
    PyObject *const *numbers = call->numbers;
    if (!bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "set_array_api() has not been called");
        return false;
    }
    const bcfg_snapshot *snapshot = bcfg_take_snapshot();
    if (snapshot == NULL) return false;
    in->everywhere = bcfg_everywhere(snapshot);
    if (!take_element(call, in) || !take_sizes(call, in) || !take_arrays(call, in)) return false;
    in->is_causal = PyObject_IsTrue(numbers[IS_CAUSAL]) > 0;
    in->scale = PyFloat_AsDouble(numbers[SCALE]);
    in->dropout = PyFloat_AsDouble(numbers[DROPOUT]);
    if (!take_seed(call, in)) return false;
    *threads = call->number_count > THREADS ? (int32_t)PyLong_AsLong(numbers[THREADS]) : 0;
    if (PyErr_Occurred()) return false;
    if (in->dropout >= 0 && in->dropout <= 1) return true;
    PyErr_Format(PyExc_ValueError, "%s: dropout_p must be between 0 and 1", call->name);
    return false;
}

static bool take_kernel(PyObject *given, attention_job *job) {
    job->streams = bcfg_is(given, "efficient");
    if (job->streams || bcfg_is(given, "flash")) return true;
    PyErr_Format(PyExc_ValueError, "attention: no kernel %R", given);
    return false;
}

static bool make_results(attention_job *job, PyObject *results[2]) {
    const attention_inputs *in = &job->in;
    npy_intp shape[] = {in->batch, in->heads, in->queries, in->value_width};
    results[0] = PyArray_SimpleNew(4, shape, bcfg_element_types[attention_out_element(in)]);
    results[1] = PyArray_SimpleNew(3, shape, real_type(in));
    if (results[0] == NULL || results[1] == NULL) return false;
    job->out.data = PyArray_DATA((PyArrayObject *)results[0]);
    for (int d = 0; d < 4; d++)
        job->out.strides[d] = PyArray_STRIDES((PyArrayObject *)results[0])[d];
    job->logsumexp = PyArray_DATA((PyArrayObject *)results[1]);
    return true;
}

PyObject *bcfg_attention_call(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count < 10 || count > 11)
        return PyErr_Format(PyExc_TypeError, "attention takes 10 or 11 arguments, not %zd", count);
    Given call = {"attention", given + 1, given + 5, count - 5};
    attention_job job = {0};
    int32_t threads;
    PyObject *results[2] = {NULL, NULL};
    if (take_kernel(given[0], &job) && take_inputs(&call, &job.in, &threads) &&
        make_results(&job, results)) {
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

/* What the forward pass returned, and the gradient of it. */
static bool take_outputs(const Given *call, PyObject *const *given, backward_job *job) {
    const attention_inputs *in = &job->in;
    int type = bcfg_element_types[in->element];
    int64_t out[] = {in->batch, in->heads, in->queries, in->value_width};
    return take_array(call, given[0], "grad_out", type, 4, out, &job->grad_out) &&
           take_array(call, given[5], "out", bcfg_element_types[attention_out_element(in)], 4, out,
                      &job->out) &&
           take_array(call, given[6], "logsumexp", real_type(in), 3, out, &job->logsumexp);
}

/* The arrays of the gradients: those given, else new ones that lie as query, key and value do. */
static bool take_gradients(const Given *call, PyObject *into, backward_job *job,
                           PyObject *results[3]) {
    if (into != Py_None && (!PyTuple_Check(into) || PyTuple_GET_SIZE(into) != 3)) {
        PyErr_SetString(PyExc_ValueError, "attention_backward: results are a tuple of three");
        return false;
    }
    attention_array *arrays[] = {&job->grad_query, &job->grad_key, &job->grad_value};
    for (int i = 0; i < 3; i++) {
        PyArrayObject *like = (PyArrayObject *)call->arrays[QUERY + i];
        results[i] = into != Py_None ? Py_NewRef(PyTuple_GET_ITEM(into, i))
                                     : PyArray_NewLikeArray(like, NPY_KEEPORDER, NULL, 0);
        int64_t shape[4];
        for (int d = 0; d < 4; d++) shape[d] = PyArray_DIMS(like)[d];
        if (results[i] == NULL ||
            !take_array(call, results[i], "a result", bcfg_element_types[job->in.element], 4, shape,
                        arrays[i]))
            return false;
        if (!PyArray_ISWRITEABLE((PyArrayObject *)results[i])) {
            PyErr_SetString(PyExc_ValueError, "attention_backward: a result is read-only");
            return false;
        }
    }
    return true;
}

PyObject *bcfg_attention_backward_call(PyObject *module, PyObject *const *given,
                                       Py_ssize_t count) {
    (void)module;
    if (count < 12 || count > 14)
        return PyErr_Format(PyExc_TypeError,
                            "attention_backward takes 12 to 14 arguments, not %zd", count);
    Given call = {"attention_backward", given + 1, given + 7, count - 7};
    backward_job job = {0};
    int32_t threads;
    PyObject *results[3] = {NULL, NULL, NULL};
    if (take_inputs(&call, &job.in, &threads) && take_outputs(&call, given, &job) &&
        take_gradients(&call, count > 13 ? given[13] : Py_None, &job, results)) {
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

PyObject *bcfg_has_tiles(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    const bcfg_snapshot *snapshot = bcfg_take_snapshot();
    if (snapshot == NULL) return NULL;
    return PyBool_FromLong(bcfg_kernels_for(BCFG_BFLOAT16, bcfg_everywhere(snapshot))->tiles != NULL);
}

PyObject *bcfg_force_kernel_isa(PyObject *module, PyObject *given) {
    (void)module;
    int32_t isa = -1;
    if (given != Py_None) {
        const char *name = "";
        for (isa = 0; (name = bcfg_isa_name(isa)) != NULL && !bcfg_is(given, name); isa++) continue;
        if (name == NULL || *name == '\0')
            return PyErr_Format(PyExc_ValueError, "no instruction set %R", given);
    }
    if (bcfg_force_isa(isa) != BCFG_OK)
        return PyErr_Format(PyExc_ValueError, "this CPU cannot run %R", given);
    Py_RETURN_NONE;
}
