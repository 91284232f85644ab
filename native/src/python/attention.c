/* attention(...): arrays for the forward pass of attention, and which instruction set serves. */
#include "attention_inputs.h"
#include "kernels/attention.h"

enum { KERNEL, QUERY, IS_CAUSAL = 5, THREADS = 10, MOST };

static bool is(PyObject *given, const char *name) {
    return PyUnicode_Check(given) && PyUnicode_CompareWithASCIIString(given, name) == 0;
}

static int take_kernel(PyObject *given, attention_job *job) {
    job->streams = is(given, "efficient");
    if (job->streams || is(given, "flash")) return 0;
    PyErr_Format(PyExc_ValueError, "attention: no kernel %R", given);
    return -1;
}

static int take_results(attention_job *job, PyObject *results[2]) {
    const attention_inputs *in = &job->in;
    npy_intp shape[] = {in->batch, in->heads, in->queries, in->value_width};
    results[0] = PyArray_SimpleNew(4, shape, bcfg_attention_type(in->element));
    results[1] =
        PyArray_SimpleNew(3, shape, in->element == ATTENTION_FLOAT64 ? NPY_DOUBLE : NPY_FLOAT);
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
    attention_job job = {0};
    int32_t threads;
    PyObject *results[2] = {NULL, NULL};
    if (take_kernel(given[KERNEL], &job) == 0 &&
        bcfg_take_attention_inputs("attention", given + QUERY, given + IS_CAUSAL, count - IS_CAUSAL,
                                   &job.in, &threads) == 0 &&
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
