/* attention_backward(...): arrays for the gradients of attention. */
#include "attention_inputs.h"
#include "kernels/attention_backward.h"

enum { GRAD_OUT, QUERY, OUT = 5, LOGSUMEXP, IS_CAUSAL, THREADS = 12, RESULTS, MOST };

static const char call[] = "attention_backward";

/* What the forward pass returned, and the gradient of it. */
static int take_arrays(PyObject *const *given, backward_job *job) {
    const attention_inputs *in = &job->in;
    int type = bcfg_attention_type(in->element);
    int real = in->element == ATTENTION_FLOAT64 ? NPY_DOUBLE : NPY_FLOAT;
    int64_t out[] = {in->batch, in->heads, in->queries, in->value_width};
    return bcfg_take_attention_array(call, given[GRAD_OUT], "grad_out", type, 4, out,
                                     &job->grad_out) < 0 ||
                   bcfg_take_attention_array(call, given[OUT], "out", type, 4, out, &job->out) < 0 ||
                   bcfg_take_attention_array(call, given[LOGSUMEXP], "logsumexp", real, 3, out,
                                             &job->logsumexp) < 0
               ? -1
               : 0;
}

/* The arrays of the gradients: those given, else new ones that lie as query, key and value do. */
static int take_results(PyObject *const *given, Py_ssize_t count, backward_job *job,
                        PyObject *results[3]) {
    PyObject *into = count > RESULTS ? given[RESULTS] : Py_None;
    if (into != Py_None && (!PyTuple_Check(into) || PyTuple_GET_SIZE(into) != 3)) {
        PyErr_SetString(PyExc_ValueError, "attention_backward: results are a tuple of three");
        return -1;
    }
    attention_array *arrays[] = {&job->grad_query, &job->grad_key, &job->grad_value};
    for (int i = 0; i < 3; i++) {
        PyArrayObject *like = (PyArrayObject *)given[QUERY + i];
        results[i] = into != Py_None ? Py_NewRef(PyTuple_GET_ITEM(into, i))
                                     : PyArray_NewLikeArray(like, NPY_KEEPORDER, NULL, 0);
        int64_t shape[4];
        for (int d = 0; d < 4; d++) shape[d] = PyArray_DIMS(like)[d];
        if (results[i] == NULL ||
            bcfg_take_attention_array(call, results[i], "a result",
                                      bcfg_attention_type(job->in.element), 4, shape,
                                      arrays[i]) < 0)
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
    backward_job job = {0};
    int32_t threads;
    PyObject *results[3] = {NULL, NULL, NULL};
    if (bcfg_take_attention_inputs(call, given + QUERY, given + IS_CAUSAL, count - IS_CAUSAL,
                                   &job.in, &threads) == 0 &&
        take_arrays(given, &job) == 0 && take_results(given, count, &job, results) == 0) {
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
