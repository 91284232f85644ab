/* Device arrays by the protocols that every library has: slower than the table of functions. */
#include "gpu/python/device.h"

/* An attribute of a value; NULL without an exception where it has none. New reference. */
static PyObject *attribute(PyObject *value, const char *name) {
    PyObject *found = PyObject_GetAttrString(value, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return found;
}

/* Its place by `__dlpack_device__`: 1 said, 0 it has no such method, -1 with an exception set. */
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

static int by_interface(PyObject *interface, DeviceArray *taken) {
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
    bcfg_set_type(taken, type_named(name, &size));
    taken->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
    int read_only = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
    if (PyErr_Occurred() || read_only < 0) return -1;
    taken->read_only = read_only;
    if ((taken->dimensions = take_numbers(shape, taken->shape)) < 0) return -1;
    if (strides != NULL) {
        int count = take_numbers(strides, taken->strides);
        if (count >= 0 && count != taken->dimensions)
            PyErr_SetString(PyExc_ValueError, "its strides do not fit its shape");
        if (PyErr_Occurred()) return -1;
    } else {
        for (int32_t d = taken->dimensions - 1; d >= 0; d--) {
            taken->strides[d] = size;
            if (taken->shape[d] > 1) size *= taken->shape[d];
        }
    }
    bool empty = false;
    for (int32_t d = 0; d < taken->dimensions; d++) empty = empty || taken->shape[d] == 0;
    if (taken->data == NULL && !empty) {
        /* So do PyTorch's tensors that wrap others. */
        PyErr_SetString(PyExc_ValueError, "it has no memory");
        return -1;
    }
    /* 1 and 2 are the streams that have numbers; without one, nothing has to be waited for. */
    taken->settles = stream == NULL;
    taken->stream = stream == NULL ? NULL : PyLong_AsVoidPtr(stream);
    return PyErr_Occurred() ? -1 : 1;
}

/* Which device a pointer belongs to, where nobody says. */
static int place_by_driver(DeviceArray *taken) {
    if (bcfg_need(bcfg_device_callbacks.place, "place") == NULL) return -1;
    PyObject *index = PyObject_CallFunction(bcfg_device_callbacks.place, "N",
                                            PyLong_FromVoidPtr(taken->data));
    if (index == NULL) return -1;
    taken->kind = BCFG_PLACE_CUDA;
    taken->index = (int32_t)PyLong_AsLong(index);
    Py_DECREF(index);
    return PyErr_Occurred() ? -1 : 1;
}

static const char versioned[] = "dltensor_versioned", unversioned[] = "dltensor";
static const char kept_versioned[] = "backendcfg.device_versioned", kept[] = "backendcfg.device";

/* Ends what an array rested on; a pending exception is kept. */
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

/* What it exports for a stream: versioned, so that read-only memory can be had, else as of old. */
static PyObject *capsule_of(PyObject *value, long stream) {
    PyObject *method = PyObject_GetAttrString(value, "__dlpack__");
    PyObject *none = PyTuple_New(0);
    PyObject *now = Py_BuildValue("{s:l,s:(ii)}", "stream", stream, "max_version", 1, 0);
    PyObject *old = Py_BuildValue("{s:l}", "stream", stream);
    PyObject *capsule = NULL;
    if (method != NULL && none != NULL && now != NULL && old != NULL) {
        capsule = PyObject_Call(method, none, now);
        if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear(); /* an exporter of before 1.0 does not know the argument */
            capsule = PyObject_Call(method, none, old);
        }
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(now);
    Py_XDECREF(old);
    return capsule;
}

static int by_capsule(PyObject *value, DeviceArray *taken) {
    /* The exporter makes the stream of that number wait for its own: the legacy default one. */
    long stream = taken->kind == BCFG_PLACE_CUDA ? 1 : 0;
    PyObject *capsule = capsule_of(value, stream);
    if (capsule == NULL) return -1;
    const DLTensor *tensor = NULL;
    void *managed = NULL;
    bool has_version = PyCapsule_IsValid(capsule, versioned);
    if (has_version) {
        DLManagedTensorVersioned *given = managed = PyCapsule_GetPointer(capsule, versioned);
        if (given->major == 1) tensor = &given->tensor;
        taken->read_only = given->flags & 1;
    } else if (PyCapsule_IsValid(capsule, unversioned)) {
        tensor = &((DLManagedTensor *)(managed = PyCapsule_GetPointer(capsule, unversioned)))->tensor;
    }
    int status = -1;
    if (tensor == NULL || tensor->dimensions < 0 || tensor->dimensions > BCFG_DEVICE_DIMENSIONS) {
        PyErr_SetString(PyExc_ValueError, "its DLPack capsule is none that is known here");
    } else {
        bcfg_set_type(taken, bcfg_type_of_dlpack(tensor->type));
        status = bcfg_read_dlpack(tensor, taken);
    }
    if (status == 1) {
        taken->holder = PyCapsule_New(managed, has_version ? kept_versioned : kept, NULL);
        if (taken->holder == NULL ||
            PyCapsule_SetName(capsule, has_version ? "used_dltensor_versioned" : "used_dltensor")) {
            Py_CLEAR(taken->holder);
            status = -1;
        } else {
            (void)PyCapsule_SetDestructor(taken->holder, let_go);
        }
    }
    Py_DECREF(capsule);
    taken->stream = (void *)(uintptr_t)stream;
    taken->settles = true;
    return status;
}

/* What PyTorch's interface leaves unsaid, in releases whose tensors have no table of functions: that
 * numbers stand for their conjugates or negatives, and the stream that works on them. */
static int complete(PyObject *value, DeviceArray *taken) {
    PyObject *method = attribute(value, "is_conj");
    if (method == NULL) return PyErr_Occurred() ? -1 : 1;
    Py_DECREF(method);
    PyObject *plain = taken->element < 0 ? NULL : bcfg_resolved(value, taken->element);
    if (PyErr_Occurred()) return -1;
    if (plain != NULL) {
        taken->holder = plain;
        taken->lazy = true;
        PyObject *interface = PyObject_GetAttrString(plain, "__cuda_array_interface__");
        int status = interface == NULL ? -1 : by_interface(interface, taken);
        Py_XDECREF(interface);
        if (status != 1) return -1;
    }
    if (!taken->settles) return 1;
    if (bcfg_need(bcfg_device_callbacks.stream, "stream") == NULL) return -1;
    PyObject *stream = PyObject_CallFunction(bcfg_device_callbacks.stream, "Oi", value,
                                             (int)taken->index);
    if (stream != NULL && stream != Py_None) {
        taken->stream = PyLong_AsVoidPtr(stream);
        taken->settles = false;
    }
    Py_XDECREF(stream);
    return PyErr_Occurred() ? -1 : 1;
}

int bcfg_take_by_protocol(PyObject *value, DeviceArray *taken) {
    taken->object = value;
    taken->kind = taken->index = -1;
    if (PyType_Check(value)) return 0;
    int placed = place_of(value, &taken->kind, &taken->index);
    if (placed < 0) return -1;
    if (placed && taken->kind != BCFG_PLACE_CUDA && taken->kind != BCFG_PLACE_ROCM) return 0;
    PyObject *interface = attribute(value, "__cuda_array_interface__");
    if (interface == NULL) {
        if (PyErr_Occurred()) return -1;
        return placed ? by_capsule(value, taken) : 0;
    }
    int status = by_interface(interface, taken);
    Py_DECREF(interface);
    if (status == 1 && taken->type < 0 && placed) /* bfloat16 has a name in DLPack alone */
        return by_capsule(value, taken);
    if (status == 1 && !placed) status = place_by_driver(taken);
    return status == 1 ? complete(value, taken) : status;
}

int bcfg_take_device(PyObject *value, DeviceArray *taken) {
    taken->holder = NULL;
    taken->exchange = NULL;
    taken->read_only = taken->settles = taken->lazy = false;
    bool known;
    int status = bcfg_take_by_exchange(value, taken, &known);
    if (status == 0 && !known) status = bcfg_take_by_protocol(value, taken);
    if (status != 1) Py_CLEAR(taken->holder);
    return status;
}

void bcfg_drop_device(DeviceArray *taken) { Py_CLEAR(taken->holder); }
