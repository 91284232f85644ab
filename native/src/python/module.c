/* backendcfg._native: the module, and the callbacks that Python hands in. */
#include "glue.h"

Callbacks bcfg_callbacks;

static const struct {
    const char *name;
    PyObject **slot;
} slots[] = {
    {"enter_knobs", &bcfg_callbacks.enter_knobs}, {"leave_knobs", &bcfg_callbacks.leave_knobs},
    {"materialise", &bcfg_callbacks.materialise}, {"decorate", &bcfg_callbacks.decorate},
    {"aenter", &bcfg_callbacks.aenter},           {"aexit", &bcfg_callbacks.aexit},
    {"misplaced", &bcfg_callbacks.misplaced},     {"refuse", &bcfg_callbacks.refuse},
};
enum { SLOTS = sizeof slots / sizeof *slots };

static PyObject **slot_of(PyObject *name) {
    for (int i = 0; i < SLOTS; i++)
        if (PyUnicode_CompareWithASCIIString(name, slots[i].name) == 0) return slots[i].slot;
    return NULL;
}

PyObject *bcfg_bind(PyObject *module, PyObject *arguments, PyObject *keywords) {
    (void)module;
    if (PyTuple_GET_SIZE(arguments) != 0) {
        PyErr_SetString(PyExc_TypeError, "bind takes keywords only");
        return NULL;
    }
    PyObject *name, *value;
    for (Py_ssize_t at = 0; keywords != NULL && PyDict_Next(keywords, &at, &name, &value);) {
        if (slot_of(name) == NULL)
            return PyErr_Format(PyExc_TypeError, "bind has no callback %R", name);
        if (value != Py_None && !PyCallable_Check(value))
            return PyErr_Format(PyExc_TypeError, "%U must be callable or None", name);
    }
    PyObject *before = PyDict_New();
    for (Py_ssize_t at = 0; before != NULL && keywords != NULL &&
                            PyDict_Next(keywords, &at, &name, &value);) {
        PyObject **slot = slot_of(name);
        if (PyDict_SetItem(before, name, *slot != NULL ? *slot : Py_None) < 0) Py_CLEAR(before);
        if (before != NULL) Py_XSETREF(*slot, value == Py_None ? NULL : Py_NewRef(value));
    }
    return before;
}

PyObject *bcfg_need(PyObject *callback, const char *name) {
    if (callback == NULL)
        PyErr_Format(PyExc_RuntimeError, "backendcfg._native: %s is not bound", name);
    return callback;
}

static PyMethodDef methods[] = {
    {"bind", (PyCFunction)(void (*)(void))bcfg_bind, METH_VARARGS | METH_KEYWORDS,
     "bind(**callbacks)\n--\n\nHand in Python callables, None for none; the others keep their "
     "value. Returns what the named ones were."},
    {"current", bcfg_current_prepared, METH_NOARGS,
     "current()\n--\n\nThe innermost Prepared of this context, else the base, else None."},
    {"chain", bcfg_chain_names, METH_NOARGS,
     "chain()\n--\n\nThe Prepared of every open scope of this context, innermost first."},
    {"claims", bcfg_chain_claims, METH_NOARGS,
     "claims()\n--\n\nWhat enter_knobs returned for those scopes, innermost first."},
    {"set_base", bcfg_set_base, METH_O,
     "set_base(prepared)\n--\n\nWhat holds where no scope is open; None for nothing."},
    {"snapshot", bcfg_snapshot_here, METH_NOARGS,
     "snapshot()\n--\n\nAddress of the snapshot that an operation would take here and now."},
    {"set_array_api", bcfg_set_array_api, METH_NOARGS,
     "set_array_api()\n--\n\nImport NumPy's C API, which matmul needs."},
    {"matmul", (PyCFunction)(void (*)(void))bcfg_matmul_call, METH_FASTCALL | METH_KEYWORDS,
     "matmul(a, b, /, out=None)\n--\n\nMatrix product of two arrays; see backendcfg.ops."},
    {"mapped", bcfg_mapped, METH_NOARGS,
     "mapped()\n--\n\nLibraries ever loaded and unloaded here; None where nobody counts."},
    {"stats", bcfg_stats, METH_NOARGS,
     "stats()\n--\n\nFor each open provider (name, path, integer width, {operation: calls})."},
    {"reset_stats", bcfg_reset_stats, METH_NOARGS,
     "reset_stats()\n--\n\nSet every counter to zero."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) {
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "backendcfg does not work in subinterpreters");
        return -1;
    }
    if (bcfg_frames_ready() < 0 || PyType_Ready(&bcfg_FrameType) < 0 || bcfg_scope_ready() < 0)
        return -1;
    if (PyModule_AddType(module, &bcfg_PreparedType) < 0) return -1;
    if (PyModule_AddType(module, &bcfg_ScopeType) < 0) return -1;
    return PyModule_AddIntConstant(module, "ABI", BCFG_ABI);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)execute},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "backendcfg._native",
    .m_doc = "Scopes and products; see include/backendcfg.h for the C side.",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
