/* Views of arrays, results, and our own kernels: loading their code and launching them. Python
 * decides which kernel serves a call: see backendcfg/gpu/attention/forward.py. */
#include "gpu/python/device.h"

#include <stdlib.h>

static const char capsule_name[] = "backendcfg.device_kernel";

PyObject *bcfg_device_holds(PyObject *module, PyObject *value) {
    (void)module;
    DeviceArray view;
    int status = bcfg_view_device(value, &view);
    if (status == 1) bcfg_release_view(&view);
    if (status < 0) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
        PyErr_Clear(); /* the call that views it next says what is wrong with it */
    }
    return PyBool_FromLong(status == 1);
}

static PyObject *sizes_of(const int64_t *sizes, int32_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (int32_t d = 0; tuple != NULL && d < count; d++) {
        PyObject *size = PyLong_FromLongLong(sizes[d]);
        if (size == NULL) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, d, size);
    }
    return tuple;
}

PyObject *bcfg_device_array(PyObject *module, PyObject *value) {
    (void)module;
    DeviceArray view;
    int status = bcfg_view_device(value, &view);
    if (status < 0) return NULL;
    if (status == 0) Py_RETURN_NONE;
    PyObject *shape = sizes_of(view.shape, view.dimensions);
    PyObject *strides = sizes_of(view.strides, view.dimensions);
    PyObject *made = NULL;
    if (shape != NULL && strides != NULL)
        made = Py_BuildValue(
            "(NiisOONOOO)", PyLong_FromVoidPtr(view.data), view.kind, view.index,
            bcfg_device_element(view.type), shape, strides,
            PyLong_FromVoidPtr(view.stream), view.synchronizes ? Py_True : Py_False,
            view.read_only ? Py_True : Py_False, view.holder != NULL ? view.holder : Py_None);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    bcfg_release_view(&view);
    return made;
}

int32_t bcfg_device_type(const char *name) {
    for (int32_t type = 0; type < DEVICE_TYPES; type++)
        if (strcmp(bcfg_device_element(type), name) == 0) return type;
    return -1;
}

PyObject *bcfg_device_make(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *like, *shape;
    const char *name;
    if (!PyArg_ParseTuple(arguments, "OO!s:device_make", &like, &PyTuple_Type, &shape, &name))
        return NULL;
    int64_t sizes[BCFG_DEVICE_DIMENSIONS];
    Py_ssize_t count = PyTuple_GET_SIZE(shape);
    int32_t type = bcfg_device_type(name);
    if (count > BCFG_DEVICE_DIMENSIONS || type < 0)
        return PyErr_Format(PyExc_ValueError, "device_make: no such shape or element");
    for (Py_ssize_t d = 0; d < count; d++)
        sizes[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
    if (PyErr_Occurred()) return NULL;
    DeviceArray view, made;
    int status = bcfg_view_device(like, &view);
    if (status < 0) return NULL;
    if (status == 0 || view.exchange == NULL) {
        if (status == 1) bcfg_release_view(&view);
        Py_RETURN_NONE;
    }
    bcfg_set_type(&view, type);
    PyObject *array = bcfg_make_by_exchange(&view, (int32_t)count, sizes, &made);
    bcfg_release_view(&view);
    return array;
}

PyObject *bcfg_device_kernel(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long address;
    int index;
    unsigned int shared_bytes;
    PyObject *code;
    const char *name;
    if (!PyArg_ParseTuple(arguments, "KiSsI:device_kernel", &address, &index, &code, &name,
                          &shared_bytes))
        return NULL;
    const bcfg_device_library *driver = (const bcfg_device_library *)(uintptr_t)address;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    if (bcfg_device_describe(driver, &about) != BCFG_OK || about.kind != BCFG_CUDA)
        return PyErr_Format(PyExc_ValueError, "device_kernel: no driver of CUDA");
    bcfg_kernel *kernel = malloc(sizeof *kernel); /* never freed, as the loaded kernel is not */
    if (kernel == NULL) return PyErr_NoMemory();
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome;
    const char *image = PyBytes_AS_STRING(code);
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_kernel_load(driver, index, image, name, shared_bytes, kernel, &fault);
    Py_END_ALLOW_THREADS
    if (outcome != BCFG_DEVICE_OK) {
        free(kernel);
        return bcfg_fault_object(outcome, &fault);
    }
    return PyCapsule_New(kernel, capsule_name, NULL);
}

PyObject *bcfg_device_launch(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *streams;
    unsigned long long stream;
    int synchronizes;
    Py_buffer argument;
    bcfg_kernel_call call = {.argument = NULL};
    if (!PyArg_ParseTuple(arguments, "OKO!pIIy*:device_launch", &capsule, &stream, &PyTuple_Type,
                          &streams, &synchronizes, &call.grid, &call.threads, &argument))
        return NULL;
    const bcfg_kernel *kernel = PyCapsule_GetPointer(capsule, capsule_name);
    DeviceWork work;
    PyObject *result = NULL;
    if (kernel != NULL && bcfg_parse_streams(streams, &work) == 0) {
        call.work = work.is;
        call.work.driver = kernel->driver;
        call.work.index = kernel->index;
        call.work.stream = (void *)(uintptr_t)stream;
        call.work.synchronizes = synchronizes;
        call.argument = argument.buf;
        bcfg_fault fault = {"", 0, ""};
        bcfg_outcome outcome;
        Py_BEGIN_ALLOW_THREADS
        outcome = bcfg_kernel_launch(kernel, &call, &fault);
        Py_END_ALLOW_THREADS
        result = bcfg_fault_object(outcome, &fault);
    }
    PyBuffer_Release(&argument);
    return result;
}
