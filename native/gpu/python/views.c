/* Views of the arrays of one call, kept in a capsule until the call ends. `device_taken` also
 * returns the key of their kind, places, types, shapes and strides, by which Python finds the
 * cached plan. The call's memory is made by the library that owns the first array. */
#include "gpu/python/device.h"

#include <stdlib.h>

static const char capsule_name[] = "backendcfg.device_taken";

static void drop(DeviceViews *views) {
    for (int i = 0; i < views->count; i++) bcfg_release_view(&views->arrays[i]);
    Py_XDECREF(views->values);
    free(views);
}

static void destroy(PyObject *capsule) { drop(PyCapsule_GetPointer(capsule, capsule_name)); }

DeviceViews *bcfg_device_views_of(PyObject *capsule) {
    return PyCapsule_GetPointer(capsule, capsule_name);
}

/* The key of a plan: places, types, shapes and strides. */
static PyObject *kind_of(const DeviceViews *views) {
    int64_t words[1 + DEVICE_VIEWED * (1 + 2 * BCFG_DEVICE_DIMENSIONS)];
    Py_ssize_t count = 0;
    words[count++] = ((int64_t)views->arrays[0].index << 8) + views->arrays[0].kind;
    for (int i = 0; i < views->count; i++) {
        const DeviceArray *array = &views->arrays[i];
        words[count++] = ((int64_t)(1 + array->type) << 8) + array->dimensions;
        for (int32_t d = 0; d < array->dimensions; d++) {
            words[count++] = array->shape[d];
            words[count++] = array->strides[d];
        }
    }
    return PyBytes_FromStringAndSize((char *)words, count * (Py_ssize_t)sizeof *words);
}

/* Notes a stream other than the first array's, each once. */
static void note_stream(DeviceViews *views, void *stream) {
    bool counts = stream != views->arrays[0].stream;
    for (int i = 0; i < views->other_count; i++) counts = counts && views->others[i] != stream;
    if (counts && views->other_count < DEVICE_OTHERS) views->others[views->other_count++] = stream;
}

/* 1, or 0 where a value is no array on the device of the first; -1 with an exception set. */
static int take(DeviceViews *views) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(views->values); i++) {
        DeviceArray *array = &views->arrays[i];
        int status = bcfg_view_device(PyTuple_GET_ITEM(views->values, i), array);
        if (status != 1) return status;
        views->count++;
        if (array->kind != views->arrays[0].kind || array->index != views->arrays[0].index) return 0;
        note_stream(views, array->stream);
        views->synchronizes = views->synchronizes || array->synchronizes;
    }
    return 1;
}

PyObject *bcfg_device_taken(PyObject *module, PyObject *values) {
    (void)module;
    if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) < 1 ||
        PyTuple_GET_SIZE(values) > DEVICE_VIEWED)
        return PyErr_Format(PyExc_TypeError, "device_taken: a tuple of one to %d", DEVICE_VIEWED);
    DeviceViews *views = calloc(1, sizeof *views);
    if (views == NULL) return PyErr_NoMemory();
    views->values = Py_NewRef(values);
    int status = take(views);
    if (status < 0 && PyErr_ExceptionMatches(PyExc_Exception) &&
        !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear(); /* the call that views it next says what is wrong with it */
        status = 0;
    }
    PyObject *kind = status == 1 ? kind_of(views) : NULL;
    PyObject *capsule = kind != NULL ? PyCapsule_New(views, capsule_name, destroy) : NULL;
    if (capsule == NULL) {
        Py_XDECREF(kind);
        drop(views);
        return status == 0 ? Py_NewRef(Py_None) : NULL;
    }
    PyObject *both = PyTuple_Pack(2, kind, capsule);
    Py_DECREF(kind);
    Py_DECREF(capsule);
    return both;
}

PyObject *bcfg_device_make_like(const DeviceViews *views, const char *name, PyObject *shape,
                                char **data) {
    int64_t sizes[BCFG_DEVICE_DIMENSIONS];
    Py_ssize_t count = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : -1;
    int32_t type = bcfg_device_type(name);
    if (count < 0 || count > BCFG_DEVICE_DIMENSIONS || type < 0)
        return PyErr_Format(PyExc_ValueError, "no such shape or element");
    for (Py_ssize_t d = 0; d < count; d++)
        sizes[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
    if (PyErr_Occurred()) return NULL;
    DeviceArray like = views->arrays[0], made;
    bcfg_set_type(&like, type);
    PyObject *array = bcfg_make_by_exchange(&like, (int32_t)count, sizes, &made);
    if (array != NULL) *data = made.data;
    return array;
}

/* Arrays from a tuple of (element, shape); None where the library has no table. */
PyObject *bcfg_device_made(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *memory;
    if (!PyArg_ParseTuple(arguments, "OO!:device_made", &capsule, &PyTuple_Type, &memory))
        return NULL;
    DeviceViews *views = bcfg_device_views_of(capsule);
    if (views == NULL) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(memory);
    if (count > DEVICE_MADE) return PyErr_Format(PyExc_ValueError, "device_made: too many");
    if (views->arrays[0].exchange == NULL) Py_RETURN_NONE;
    PyObject *arrays = PyList_New(count);
    for (Py_ssize_t i = 0; arrays != NULL && i < count; i++) {
        PyObject *shape, *made = NULL;
        const char *element;
        if (PyArg_ParseTuple(PyTuple_GET_ITEM(memory, i), "sO", &element, &shape))
            made = bcfg_device_make_like(views, element, shape, &views->made[i]);
        if (made == NULL) Py_CLEAR(arrays);
        else PyList_SET_ITEM(arrays, i, made);
    }
    return arrays;
}

/* Adds arrays that Python made. */
PyObject *bcfg_device_added(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *arrays;
    if (!PyArg_ParseTuple(arguments, "OO!:device_added", &capsule, &PyList_Type, &arrays))
        return NULL;
    DeviceViews *views = bcfg_device_views_of(capsule);
    if (views == NULL) return NULL;
    if (PyList_GET_SIZE(arrays) > DEVICE_MADE)
        return PyErr_Format(PyExc_ValueError, "device_added: too many");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(arrays); i++) {
        DeviceArray made;
        int status = bcfg_view_device(PyList_GET_ITEM(arrays, i), &made);
        if (status == 0) PyErr_Format(PyExc_ValueError, "device_added: no array on a device");
        if (status != 1) return NULL;
        views->made[i] = made.data;
        views->synchronizes = views->synchronizes || made.synchronizes;
        note_stream(views, made.stream);
        bcfg_release_view(&made);
    }
    Py_RETURN_NONE;
}

PyObject *bcfg_device_address(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    const DeviceViews *views = count == 2 ? bcfg_device_views_of(arguments[0]) : NULL;
    long place = views != NULL ? PyLong_AsLong(arguments[1]) : -1;
    if (PyErr_Occurred()) return NULL;
    const char *data = place < 0 || place >= DEVICE_VIEWED + DEVICE_MADE ? NULL
                       : place < DEVICE_VIEWED ? views->arrays[place].data
                                              : views->made[place - DEVICE_VIEWED];
    if (data == NULL) return PyErr_Format(PyExc_ValueError, "device_address: no such array");
    return PyLong_FromVoidPtr((void *)data);
}
