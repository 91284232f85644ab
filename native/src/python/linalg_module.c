/* Binds the callbacks of backendcfg.ops.linalg, and answers who would serve a call. */
#include "linalg_call.h"

PyObject *bcfg_linear_bind(PyObject *module, PyObject *arguments, PyObject *keywords) {
    (void)module;
    static char *names[] = {"refuse", "foreign", "failed", "types", NULL};
    PyObject *given[4] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO!:linalg_bind", names, &given[0],
                                     &given[1], &given[2], &PyDict_Type, &given[3]))
        return NULL;
    PyObject **slots[4] = {&bcfg_linear_refuse, &bcfg_linear_foreign, &bcfg_linear_failed,
                           &bcfg_linear_types};
    for (int i = 0; i < 4; i++)
        if (given[i] != NULL)
            Py_XSETREF(*slots[i], given[i] == Py_None ? NULL : Py_NewRef(given[i]));
    Py_RETURN_NONE;
}

PyObject *bcfg_linear_verdicts(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *function;
    int element;
    long long m, n, k;
    if (!PyArg_ParseTuple(arguments, "siLLL:linalg_choice", &function, &element, &m, &n, &k))
        return NULL;
    int operation = -1;
    for (int i = 0; i < LINEAR_FUNCTIONS; i++)
        if (strcmp(bcfg_linear_specs[i].name, function) == 0)
            operation = bcfg_linear_specs[i].operation;
    if (operation < 0 || element < BCFG_FLOAT32 || element > BCFG_COMPLEX128)
        return PyErr_Format(PyExc_ValueError, "no function %s of element %d", function, element);
    const bcfg_snapshot *snapshot = bcfg_take_snapshot();
    if (snapshot == NULL) return NULL;
    int32_t verdicts[64];
    uint32_t count = 0;
    while (count < 64 && bcfg_ordered(snapshot, BCFG_SGEMM + element, count) != NULL) count++;
    if (count == 64) return PyErr_Format(PyExc_ValueError, "more than 63 providers");
    bcfg_linear_choice choice;
    (void)bcfg_linalg_choose(snapshot, operation, element, m, n, k, verdicts, &choice);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        const bcfg_provider *provider = bcfg_ordered(snapshot, BCFG_SGEMM + element, i);
        bcfg_description is = {.abi = BCFG_ABI, .size = sizeof is};
        (void)bcfg_describe(provider, &is);
        const char *lacking =
            verdicts[i] == BCFG_LINEAR_LACKS ? bcfg_lapack_of(provider)->lacking : "";
        PyObject *one = Py_BuildValue("(ssis)", is.name, is.path, verdicts[i], lacking);
        if (one == NULL || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    if (list == NULL) return NULL;
    const char *why = choice.provider != NULL ? bcfg_linear_reasons[choice.why] : "";
    return Py_BuildValue("(Nsi)", list, why, bcfg_linalg_measured_by(operation, element));
}
