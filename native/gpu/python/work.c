/* Reads Python's description of a call's work, and describes a failure to Python. */
#include "gpu/python/device.h"
#include "gpu/device/kinds.h"

int bcfg_parse_streams(PyObject *tuple, DeviceWork *work) {
    work->is = (bcfg_work){.others = work->others};
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > DEVICE_OTHERS) {
        PyErr_SetString(PyExc_ValueError, "too many streams");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        work->others[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(tuple, i));
    work->is.other_count = (int)count;
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *bcfg_fault_object(bcfg_outcome outcome, const bcfg_fault *fault) {
    switch (outcome) {
    case BCFG_DEVICE_OK: return Py_NewRef(Py_None);
    case BCFG_DEVICE_MEMORY: return PyErr_NoMemory();
    case BCFG_DEVICE_FORKED: return Py_BuildValue("(sis)", "", 0, "");
    default: return Py_BuildValue("(sis)", fault->function, fault->status, fault->name);
    }
}

/* Without a library: Python keeps the handles of those that it calls. */
static int parse_place(PyObject *const *arguments, DeviceWork *work) {
    if (!PyTuple_Check(arguments[3])) {
        PyErr_SetString(PyExc_TypeError, "work: the streams are no tuple");
        return -1;
    }
    if (bcfg_parse_streams(arguments[3], work) < 0) return -1;
    work->is.driver = PyLong_AsVoidPtr(arguments[0]);
    work->is.index = (int32_t)PyLong_AsLong(arguments[1]);
    work->is.stream = PyLong_AsVoidPtr(arguments[2]);
    if (PyErr_Occurred()) return -1;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    if (bcfg_device_describe(work->is.driver, &about) == BCFG_OK &&
        (about.kind == BCFG_CUDA || about.kind == BCFG_HIP))
        return 0;
    PyErr_SetString(PyExc_ValueError, "work: no driver");
    return -1;
}

PyObject *bcfg_device_begin(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    DeviceWork work;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "device_begin: (driver, index, stream, others)");
    if (parse_place(arguments, &work) < 0) return NULL;
    bcfg_session session;
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome;
    bool captures = false;
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_work_begin(&work.is, &session, &fault);
    if (outcome == BCFG_DEVICE_OK) captures = bcfg_place_captures(work.is.driver, work.is.stream);
    Py_END_ALLOW_THREADS
    if (outcome != BCFG_DEVICE_OK) return bcfg_fault_object(outcome, &fault);
    /* The device to go back to, or -1. */
    return Py_BuildValue("(iO)", session.visit.changed ? session.visit.before : -1,
                         captures ? Py_True : Py_False);
}

PyObject *bcfg_device_end(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    DeviceWork work;
    if (count != 7)
        return PyErr_Format(PyExc_TypeError, "device_end: (driver, index, stream, others, "
                                             "synchronizes, before, failed)");
    if (parse_place(arguments, &work) < 0) return NULL;
    int synchronizes = PyObject_IsTrue(arguments[4]), failed = PyObject_IsTrue(arguments[6]);
    long before = PyLong_AsLong(arguments[5]);
    if (PyErr_Occurred()) return NULL;
    work.is.synchronizes = synchronizes;
    bcfg_session session = {.work = &work.is, .visit = {before >= 0, (int)before}};
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome = failed ? BCFG_DEVICE_FAULT : BCFG_DEVICE_OK;
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_work_end(&session, outcome, &fault);
    Py_END_ALLOW_THREADS
    return failed ? Py_NewRef(Py_None) : bcfg_fault_object(outcome, &fault);
}

PyObject *bcfg_device_soname(PyObject *module, PyObject *handle) {
    (void)module;
    void *opened = PyLong_AsVoidPtr(handle);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(bcfg_soname_version(opened));
}
