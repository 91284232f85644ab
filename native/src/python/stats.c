/* What served the calls, as Python data. */
#include "glue.h"

static PyObject *entry(const bcfg_provider *provider) {
    bcfg_description is = {.abi = BCFG_ABI, .size = sizeof is};
    (void)bcfg_describe(provider, &is);
    PyObject *calls = PyDict_New();
    for (int32_t i = 0; calls != NULL && i < BCFG_OPERATIONS; i++) {
        if (is.calls[i] == 0) continue;
        PyObject *count = PyLong_FromUnsignedLongLong(is.calls[i]);
        if (count == NULL || PyDict_SetItemString(calls, bcfg_operation_name(i), count) < 0)
            Py_CLEAR(calls);
        Py_XDECREF(count);
    }
    return calls == NULL ? NULL : Py_BuildValue("(ssiN)", is.name, is.path, is.interface, calls);
}

PyObject *bcfg_stats(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    PyObject *list = PyList_New(0);
    const bcfg_provider *provider = NULL;
    while (list != NULL && (provider = bcfg_next_provider(provider)) != NULL) {
        PyObject *one = entry(provider);
        if (one == NULL || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

PyObject *bcfg_reset_stats(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    bcfg_reset_calls();
    Py_RETURN_NONE;
}
