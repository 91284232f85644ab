/* Device arrays by the protocols that every library has: slower than the table of functions. */
#include "gpu/python/device.h"

/* An attribute of a value; NULL without an exception where it has none. New reference. */
static PyObject *attribute(PyObject *value, const char *name) {
    PyObject *found = PyObject_GetAttrString(value, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return found;
}

/* Its device by `__dlpack_device__`: 1 found, 0 no such method, -1 with an exception set. */
static int place_of(PyObject *value, int32_t *kind, int32_t *index) {
    PyObject *method = attribute(value, "__dlpack_device__");
    if (method == NULL) return PyErr_Occurred() ? -1 : 0;
    PyObject *answer = PyObject_CallNoArgs(method);
    Py_DECREF(method);
    PyObject *pair = answer == NULL ? NULL : PySequence_Tuple(answer);
    Py_XDECREF(answer);
    if (pair == NULL) return -1;
    long parts[2] = {-1, -1};
    if (PyTuple_GET_SIZE(pair) == 2) {
        /* The kind is an enumeration in most libraries. */
        for (int i = 0; i < 2; i++) {
            PyObject *number = PyNumber_Index(PyTuple_GET_ITEM(pair, i));
            if (number != NULL) parts[i] = PyLong_AsLong(number);
            Py_XDECREF(number);
            if (PyErr_Occurred()) break;
        }
    } else {
        PyErr_SetString(PyExc_ValueError, "its `__dlpack_device__` is no pair");
    }
    Py_DECREF(pair);
    *kind = (int32_t)parts[0];
    *index = (int32_t)parts[1];
    return PyErr_Occurred() ? -1 : 1;
}

/* An entry of the interface; borrowed, NULL where it has none or None. */
static PyObject *entry(PyObject *interface, const char *name) {
    PyObject *found = PyDict_GetItemString(interface, name);
    return found == Py_None ? NULL : found;
}

static int take_numbers(PyObject *sequence, int64_t *numbers) {
    PyObject *tuple = PySequence_Tuple(sequence);
    if (tuple == NULL) return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > BCFG_DEVICE_DIMENSIONS)
        PyErr_Format(PyExc_ValueError, "it has %zd dimensions", count);
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    Py_DECREF(tuple);
    return PyErr_Occurred() ? -1 : (int)count;
}

/* NumPy's name of a type, little-endian, as a bcfg_element or DeviceType; and its size. */
static int32_t type_named(const char *name, int64_t *size) {
    static const struct {
        const char *name;
        int32_t type;
    } names[] = {{"f4", BCFG_FLOAT32},     {"f8", BCFG_FLOAT64}, {"c8", BCFG_COMPLEX64},
                 {"c16", BCFG_COMPLEX128}, {"f2", BCFG_FLOAT16}, {"b1", DEVICE_BOOL},
                 {"i1", DEVICE_INT8},      {"u1", DEVICE_UINT8}, {"i4", DEVICE_INT32},
                 {"i8", DEVICE_INT64}};
    *size = 1;
    if (name[0] != '<' && name[0] != '|' && name[0] != '=') return -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name + 1, names[i].name) == 0) {
            *size = strtol(name + 2, NULL, 10); /* it ends with its bytes */
            return names[i].type;
        }
    return -1;
}

static int by_interface(PyObject *interface, DeviceArray *view) {
    if (!PyDict_Check(interface)) {
        PyErr_SetString(PyExc_ValueError, "its `__cuda_array_interface__` is no dictionary");
        return -1;
    }
    PyObject *shape = entry(interface, "shape"), *type = entry(interface, "typestr");
    PyObject *data = entry(interface, "data"), *strides = entry(interface, "strides");
    PyObject *stream = entry(interface, "stream");
    const char *name = type != NULL ? PyUnicode_AsUTF8(type) : NULL;
    if (shape == NULL || name == NULL || data == NULL || !PyTuple_Check(data) ||
        PyTuple_GET_SIZE(data) != 2 || entry(interface, "mask") != NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError,
                            "its `__cuda_array_interface__` has a mask, or lacks an entry");
        return -1;
    }
    int64_t size;
    bcfg_set_type(view, type_named(name, &size));
    view->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
    int read_only = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
    if (PyErr_Occurred() || read_only < 0) return -1;
    view->read_only = read_only;
    if ((view->dimensions = take_numbers(shape, view->shape)) < 0) return -1;
    if (strides != NULL) {
        int count = take_numbers(strides, view->strides);
        if (count >= 0 && count != view->dimensions)
            PyErr_SetString(PyExc_ValueError, "its strides do not fit its shape");
        if (PyErr_Occurred()) return -1;
    } else {
        int64_t step = size;
        for (int32_t d = view->dimensions - 1; d >= 0; d--) {
            view->strides[d] = step;
            if (view->shape[d] > 1 && __builtin_mul_overflow(step, view->shape[d], &step)) {
                PyErr_SetString(PyExc_ValueError, "its size does not fit 64 bits");
                return -1;
            }
        }
    }
    bool empty = false;
    for (int32_t d = 0; d < view->dimensions; d++) {
        if (view->shape[d] < 0) {
            PyErr_SetString(PyExc_ValueError, "its shape is negative");
            return -1;
        }
        empty = empty || view->shape[d] == 0;
    }
    if (view->data == NULL && !empty) {
        /* As PyTorch's tensors that wrap others have none. */
        PyErr_SetString(PyExc_ValueError, "it has no memory");
        return -1;
    }
    if (!empty &&
        !bcfg_can_be_memory(view->data, 0, view->shape, view->strides, view->dimensions, size)) {
        PyErr_SetString(PyExc_ValueError, "it reaches beyond all memory");
        return -1;
    }
    /* A stream of None means that the library names none. */
    view->synchronizes = stream == NULL;
    view->stream = stream == NULL ? NULL : PyLong_AsVoidPtr(stream);
    return PyErr_Occurred() ? -1 : 1;
}

/* The device of a pointer, by the driver, where the array does not name it. */
static int place_by_driver(DeviceArray *view) {
    if (bcfg_need(bcfg_device_callbacks.place, "place") == NULL) return -1;
    PyObject *index = PyObject_CallFunction(bcfg_device_callbacks.place, "N",
                                            PyLong_FromVoidPtr(view->data));
    if (index == NULL) return -1;
    view->kind = BCFG_PLACE_CUDA;
    view->index = (int32_t)PyLong_AsLong(index);
    Py_DECREF(index);
    return PyErr_Occurred() ? -1 : 1;
}

static const char versioned[] = "dltensor_versioned", unversioned[] = "dltensor";
static const char kept_versioned[] = "backendcfg.device_versioned", kept[] = "backendcfg.device";

/* Calls the deleter of a DLPack tensor; a pending exception is kept. */
static void let_go(PyObject *holder) {
    PyObject *pending = bcfg_take_exception();
    if (PyCapsule_IsValid(holder, kept_versioned)) {
        DLManagedTensorVersioned *held = PyCapsule_GetPointer(holder, kept_versioned);
        if (held->deleter != NULL) held->deleter(held);
    } else {
        DLManagedTensor *held = PyCapsule_GetPointer(holder, kept);
        if (held != NULL && held->deleter != NULL) held->deleter(held);
    }
    if (PyErr_Occurred()) PyErr_WriteUnraisable(holder);
    bcfg_put_exception(pending);
}

/* The capsule of `__dlpack__` for a stream: versioned, which can be read-only, else unversioned. */
static PyObject *capsule_of(PyObject *value, long stream) {
    PyObject *method = PyObject_GetAttrString(value, "__dlpack__");
    PyObject *none = PyTuple_New(0);
    PyObject *now = Py_BuildValue("{s:l,s:(ii)}", "stream", stream, "max_version", 1, 0);
    PyObject *old = Py_BuildValue("{s:l}", "stream", stream);
    PyObject *capsule = NULL;
    if (method != NULL && none != NULL && now != NULL && old != NULL) {
        capsule = PyObject_Call(method, none, now);
        if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear(); /* an exporter older than DLPack 1.0 has no such argument */
            capsule = PyObject_Call(method, none, old);
        }
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(now);
    Py_XDECREF(old);
    return capsule;
}

static int by_capsule(PyObject *value, DeviceArray *view) {
    /* The exporter makes the stream of that number wait for its own: the legacy default one. */
    long stream = view->kind == BCFG_PLACE_CUDA ? 1 : 0;
    PyObject *capsule = capsule_of(value, stream);
    if (capsule == NULL) return -1;
    const DLTensor *tensor = NULL;
    void *managed = NULL;
    bool has_version = PyCapsule_IsValid(capsule, versioned);
    if (has_version) {
        DLManagedTensorVersioned *given = managed = PyCapsule_GetPointer(capsule, versioned);
        if (given->major == 1) { /* in another version the rest lies elsewhere */
            tensor = &given->tensor;
            view->read_only = given->flags & 1;
        }
    } else if (PyCapsule_IsValid(capsule, unversioned)) {
        tensor = &((DLManagedTensor *)(managed = PyCapsule_GetPointer(capsule, unversioned)))->tensor;
    }
    int status = -1;
    if (tensor == NULL || tensor->dimensions < 0 || tensor->dimensions > BCFG_DEVICE_DIMENSIONS) {
        PyErr_SetString(PyExc_ValueError, "its DLPack capsule is none that is known here");
    } else if (tensor->device.type != view->kind || tensor->device.id != view->index) {
        PyErr_SetString(PyExc_ValueError,
                        "its DLPack capsule is of another device than `__dlpack_device__` says");
    } else {
        bcfg_set_type(view, bcfg_type_of_dlpack(tensor->type));
        status = bcfg_read_dlpack(tensor, view);
    }
    if (status == 1) {
        view->holder = PyCapsule_New(managed, has_version ? kept_versioned : kept, NULL);
        if (view->holder == NULL ||
            PyCapsule_SetName(capsule, has_version ? "used_dltensor_versioned" : "used_dltensor")) {
            Py_CLEAR(view->holder);
            status = -1;
        } else {
            (void)PyCapsule_SetDestructor(view->holder, let_go);
        }
    }
    Py_DECREF(capsule);
    view->stream = (void *)(uintptr_t)stream;
    view->synchronizes = true;
    return status;
}

/* What PyTorch's `__cuda_array_interface__` lacks, in releases whose tensors have no table of
 * functions: whether an array is a lazy conjugate or negative, and its stream. */
static int complete(PyObject *value, DeviceArray *view) {
    PyObject *method = attribute(value, "is_conj");
    if (method == NULL) return PyErr_Occurred() ? -1 : 1;
    Py_DECREF(method);
    PyObject *plain = view->element < 0 ? NULL : bcfg_resolved(value, view->element);
    if (PyErr_Occurred()) return -1;
    if (plain != NULL) {
        view->holder = plain;
        view->lazy = true;
        PyObject *interface = PyObject_GetAttrString(plain, "__cuda_array_interface__");
        int status = interface == NULL ? -1 : by_interface(interface, view);
        Py_XDECREF(interface);
        if (status != 1) return -1;
    }
    if (!view->synchronizes) return 1;
    if (bcfg_need(bcfg_device_callbacks.stream, "stream") == NULL) return -1;
    PyObject *stream = PyObject_CallFunction(bcfg_device_callbacks.stream, "Oi", value,
                                             (int)view->index);
    if (stream != NULL && stream != Py_None) {
        view->stream = PyLong_AsVoidPtr(stream);
        view->synchronizes = false;
    }
    Py_XDECREF(stream);
    return PyErr_Occurred() ? -1 : 1;
}

int bcfg_view_by_protocol(PyObject *value, DeviceArray *view) {
    view->object = value;
    view->kind = view->index = -1;
    if (PyType_Check(value)) return 0;
    int placed = place_of(value, &view->kind, &view->index);
    if (placed < 0) return -1;
    if (placed && view->kind != BCFG_PLACE_CUDA && view->kind != BCFG_PLACE_ROCM) return 0;
    PyObject *interface = attribute(value, "__cuda_array_interface__");
    if (interface == NULL) {
        if (PyErr_Occurred()) return -1;
        return placed ? by_capsule(value, view) : 0;
    }
    int status = by_interface(interface, view);
    Py_DECREF(interface);
    if (status == 1 && view->type < 0 && placed) /* bfloat16 has a name in DLPack alone */
        return by_capsule(value, view);
    if (status == 1 && !placed) status = place_by_driver(view);
    return status == 1 ? complete(value, view) : status;
}

int bcfg_view_device(PyObject *value, DeviceArray *view) {
    view->holder = NULL;
    view->exchange = NULL;
    view->read_only = view->synchronizes = view->lazy = false;
    bool known;
    int status = bcfg_view_by_exchange(value, view, &known);
    if (status == 0 && !known) status = bcfg_view_by_protocol(value, view);
    if (status != 1) Py_CLEAR(view->holder);
    return status;
}

void bcfg_release_view(DeviceArray *view) { Py_CLEAR(view->holder); }
