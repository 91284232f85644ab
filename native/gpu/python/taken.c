/* The arrays of one call on a device, kept in C between its parts: taken once, told apart from those of
 * other calls by their kind, and the call's memory made by the library that owns the first. */
#include "gpu/python/device.h"

#include <stdlib.h>

static const char capsule_name[] = "backendcfg.device_taken";

static void drop(DeviceTaken *taken) {
    for (int i = 0; i < taken->count; i++) bcfg_drop_device(&taken->arrays[i]);
    Py_XDECREF(taken->values);
    free(taken);
}

static void destroy(PyObject *capsule) { drop(PyCapsule_GetPointer(capsule, capsule_name)); }

DeviceTaken *bcfg_device_taken_of(PyObject *capsule) {
    return PyCapsule_GetPointer(capsule, capsule_name);
}

/* What calls must have in common: places, types, shapes and strides. */
static PyObject *kind_of(const DeviceTaken *taken) {
    int64_t words[1 + DEVICE_TAKEN * (1 + 2 * BCFG_DEVICE_DIMENSIONS)];
    Py_ssize_t count = 0;
    words[count++] = ((int64_t)taken->arrays[0].index << 8) + taken->arrays[0].kind;
    for (int i = 0; i < taken->count; i++) {
        const DeviceArray *array = &taken->arrays[i];
        words[count++] = ((int64_t)(1 + array->type) << 8) + array->dimensions;
        for (int32_t d = 0; d < array->dimensions; d++) {
            words[count++] = array->shape[d];
            words[count++] = array->strides[d];
        }
    }
    return PyBytes_FromStringAndSize((char *)words, count * (Py_ssize_t)sizeof *words);
}

/* A stream that is not the first array's, each once. */
static void note_stream(DeviceTaken *taken, void *stream) {
    bool counts = stream != taken->arrays[0].stream;
    for (int i = 0; i < taken->other_count; i++) counts = counts && taken->others[i] != stream;
    if (counts && taken->other_count < DEVICE_OTHERS) taken->others[taken->other_count++] = stream;
}

/* 1, or 0 where a value is no array at the place of the first; -1 with an exception set. */
static int take(DeviceTaken *taken) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(taken->values); i++) {
        DeviceArray *array = &taken->arrays[i];
        int status = bcfg_take_device(PyTuple_GET_ITEM(taken->values, i), array);
        if (status != 1) return status;
        taken->count++;
        if (array->kind != taken->arrays[0].kind || array->index != taken->arrays[0].index) return 0;
        note_stream(taken, array->stream);
        taken->settles = taken->settles || array->settles;
    }
    return 1;
}

PyObject *bcfg_device_taken(PyObject *module, PyObject *values) {
    (void)module;
    if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) < 1 ||
        PyTuple_GET_SIZE(values) > DEVICE_TAKEN)
        return PyErr_Format(PyExc_TypeError, "device_taken: a tuple of one to %d", DEVICE_TAKEN);
    DeviceTaken *taken = calloc(1, sizeof *taken);
    if (taken == NULL) return PyErr_NoMemory();
    taken->values = Py_NewRef(values);
    int status = take(taken);
    if (status < 0 && PyErr_ExceptionMatches(PyExc_Exception) &&
        !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear(); /* who takes it next says what is wrong with it */
        status = 0;
    }
    PyObject *kind = status == 1 ? kind_of(taken) : NULL;
    PyObject *capsule = kind != NULL ? PyCapsule_New(taken, capsule_name, destroy) : NULL;
    if (capsule == NULL) {
        Py_XDECREF(kind);
        drop(taken);
        return status == 0 ? Py_NewRef(Py_None) : NULL;
    }
    PyObject *both = PyTuple_Pack(2, kind, capsule);
    Py_DECREF(kind);
    Py_DECREF(capsule);
    return both;
}

PyObject *bcfg_device_make_like(const DeviceTaken *taken, const char *name, PyObject *shape,
                                char **data) {
    int64_t sizes[BCFG_DEVICE_DIMENSIONS];
    Py_ssize_t count = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : -1;
    int32_t type = bcfg_device_type(name);
    if (count < 0 || count > BCFG_DEVICE_DIMENSIONS || type < 0)
        return PyErr_Format(PyExc_ValueError, "no such shape or element");
    for (Py_ssize_t d = 0; d < count; d++)
        sizes[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
    if (PyErr_Occurred()) return NULL;
    DeviceArray like = taken->arrays[0], made;
    bcfg_set_type(&like, type);
    PyObject *array = bcfg_make_by_exchange(&like, (int32_t)count, sizes, &made);
    if (array != NULL) *data = made.data;
    return array;
}

/* Of a list of (element, shape); None where the library has no table. */
PyObject *bcfg_device_made(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *memory;
    if (!PyArg_ParseTuple(arguments, "OO!:device_made", &capsule, &PyTuple_Type, &memory))
        return NULL;
    DeviceTaken *taken = bcfg_device_taken_of(capsule);
    if (taken == NULL) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(memory);
    if (count > DEVICE_MADE) return PyErr_Format(PyExc_ValueError, "device_made: too many");
    if (taken->arrays[0].exchange == NULL) Py_RETURN_NONE;
    PyObject *arrays = PyList_New(count);
    for (Py_ssize_t i = 0; arrays != NULL && i < count; i++) {
        PyObject *shape, *made = NULL;
        const char *element;
        if (PyArg_ParseTuple(PyTuple_GET_ITEM(memory, i), "sO", &element, &shape))
            made = bcfg_device_make_like(taken, element, shape, &taken->made[i]);
        if (made == NULL) Py_CLEAR(arrays);
        else PyList_SET_ITEM(arrays, i, made);
    }
    return arrays;
}

/* The same for arrays that Python made. */
PyObject *bcfg_device_added(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *arrays;
    if (!PyArg_ParseTuple(arguments, "OO!:device_added", &capsule, &PyList_Type, &arrays))
        return NULL;
    DeviceTaken *taken = bcfg_device_taken_of(capsule);
    if (taken == NULL) return NULL;
    if (PyList_GET_SIZE(arrays) > DEVICE_MADE)
        return PyErr_Format(PyExc_ValueError, "device_added: too many");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(arrays); i++) {
        DeviceArray made;
        int status = bcfg_take_device(PyList_GET_ITEM(arrays, i), &made);
        if (status == 0) PyErr_Format(PyExc_ValueError, "device_added: no array on a device");
        if (status != 1) return NULL;
        taken->made[i] = made.data;
        taken->settles = taken->settles || made.settles;
        note_stream(taken, made.stream);
        bcfg_drop_device(&made);
    }
    Py_RETURN_NONE;
}

PyObject *bcfg_device_address(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    const DeviceTaken *taken = count == 2 ? bcfg_device_taken_of(arguments[0]) : NULL;
    long place = taken != NULL ? PyLong_AsLong(arguments[1]) : -1;
    if (PyErr_Occurred()) return NULL;
    const char *data = place < 0 || place >= DEVICE_TAKEN + DEVICE_MADE ? NULL
                       : place < DEVICE_TAKEN ? taken->arrays[place].data
                                              : taken->made[place - DEVICE_TAKEN];
    if (data == NULL) return PyErr_Format(PyExc_ValueError, "device_address: no such array");
    return PyLong_FromVoidPtr((void *)data);
}
