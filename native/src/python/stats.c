/* The counters of every provider, as Python data. */
#include "gpu/products/recipe.h"
#include "glue.h"

/* {operation: count}, those at 0 left out. */
static PyObject *counts(const uint64_t *counters) {
    PyObject *calls = PyDict_New();
    for (int32_t i = 0; calls != NULL && i < BCFG_OPERATIONS; i++) {
        if (counters[i] == 0) continue;
        PyObject *count = PyLong_FromUnsignedLongLong(counters[i]);
        if (count == NULL || PyDict_SetItemString(calls, bcfg_operation_name(i), count) < 0)
            Py_CLEAR(calls);
        Py_XDECREF(count);
    }
    return calls;
}

static PyObject *entry(const bcfg_provider *provider) {
    bcfg_description is = {.abi = BCFG_ABI, .size = sizeof is};
    (void)bcfg_describe(provider, &is);
    PyObject *calls = counts(is.calls), *by_speed = counts(is.by_speed);
    PyObject *by_need = counts(is.by_need), *made = NULL;
    if (calls != NULL && by_speed != NULL && by_need != NULL)
        made = Py_BuildValue("(ssiOOO)", is.name, is.path, is.interface, calls, by_speed, by_need);
    Py_XDECREF(calls);
    Py_XDECREF(by_speed);
    Py_XDECREF(by_need);
    return made;
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
    bcfg_recipe_reset();
    bcfg_forget_served();
    Py_RETURN_NONE;
}
