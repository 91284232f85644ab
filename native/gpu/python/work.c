/* Reads Python's description of a call's work, and describes a failure to Python. */
#include "gpu/python/device.h"

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

int bcfg_parse_work(PyObject *tuple, DeviceWork *work) {
    unsigned long long library, driver, stream;
    int index, synchronizes;
    PyObject *streams;
    if (!PyArg_ParseTuple(tuple, "KKiKO!p:work", &library, &driver, &index, &stream, &PyTuple_Type,
                          &streams, &synchronizes) ||
        bcfg_parse_streams(streams, work) < 0)
        return -1;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    work->is.library = (const bcfg_device_library *)(uintptr_t)library;
    work->is.driver = (const bcfg_device_library *)(uintptr_t)driver;
    work->is.index = index;
    work->is.stream = (void *)(uintptr_t)stream;
    work->is.synchronizes = synchronizes;
    if (bcfg_device_describe(work->is.driver, &about) == BCFG_OK &&
        (about.kind == BCFG_CUDA || about.kind == BCFG_HIP))
        return 0;
    PyErr_SetString(PyExc_ValueError, "work: no driver");
    return -1;
}

PyObject *bcfg_fault_object(bcfg_outcome outcome, const bcfg_fault *fault) {
    switch (outcome) {
    case BCFG_DEVICE_OK: return Py_NewRef(Py_None);
    case BCFG_DEVICE_MEMORY: return PyErr_NoMemory();
    case BCFG_DEVICE_FORKED: return Py_BuildValue("(sis)", "", 0, "");
    default: return Py_BuildValue("(sis)", fault->function, fault->status, fault->name);
    }
}
